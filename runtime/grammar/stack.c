/* stack.c -- where a text may be in a grammar: heads, each a set of nodes on top of frames that say
 * where to go on when its rule ends. Several heads stand for several ways to read the same text.
 * Frames share what lies below them. Whatever exceeds a limit is left out, which is safe: what
 * remains can still be completed. */
#include "grammar/grammar_impl.h"
#include <string.h>

bool mn_gstack_copy(mn_gstack *to, const mn_gstack *from) {
    if (!mn_grow((void **)&to->head, &to->cap_heads, from->n_heads + 1u, sizeof *to->head) ||
        !mn_grow((void **)&to->frame, &to->cap_frames, from->n_frames + 1u, sizeof *to->frame))
        return false;
    memcpy(to->head, from->head, from->n_heads * sizeof *to->head);
    memcpy(to->frame, from->frame, from->n_frames * sizeof *to->frame);
    to->n_heads = from->n_heads;
    to->n_frames = from->n_frames;
    return true;
}

void mn_gstack_free(mn_gstack *s) {
    mn_free(s->head);
    mn_free(s->frame);
    *s = (mn_gstack){0};
}

/* Whether a set with this need may stand on a frame; remembers the deepest. */
static bool within_depth(mn_gclose *c, uint32_t frame, uint32_t need) {
    const uint32_t depth = c->stack->frame[frame].depth + need;
    if (need > MN_GRAMMAR_DEPTH || depth > MN_GRAMMAR_DEPTH)
        return false;
    c->deepest = MN_MAX(c->deepest, depth);
    return true;
}

/* Appends a head unless it is there already. */
static void append(mn_gclose *c, uint32_t set, uint32_t frame) {
    mn_gstack *k = c->stack;
    if (k->n_heads - c->first_head >= 4 * MN_GRAMMAR_HEADS ||
        !within_depth(c, frame, c->g->set[set]->need))
        return;
    for (uint32_t i = c->first_head; i < k->n_heads; i++) {
        if (k->head[i].set == set && k->head[i].frame == frame)
            return;
    }
    if (!mn_grow((void **)&k->head, &k->cap_heads, k->n_heads + 1u, sizeof *k->head)) {
        c->g->failed = true;
        return;
    }
    k->head[k->n_heads++] = (mn_ghead){set, frame};
}

/* A frame on top of parent; MN_GNONE where it may not be. */
static uint32_t push(mn_gclose *c, uint32_t then, uint32_t parent) {
    mn_gstack *k = c->stack;
    if (!within_depth(c, parent, c->g->set[then]->need))
        return MN_GNONE;
    for (uint32_t i = c->first_frame; i < k->n_frames; i++) {
        if (k->frame[i].set == then && k->frame[i].parent == parent)
            return i;
    }
    if (k->n_frames - c->first_frame >= 4 * MN_GRAMMAR_HEADS)
        return MN_GNONE;
    if (!mn_grow((void **)&k->frame, &k->cap_frames, k->n_frames + 1u, sizeof *k->frame)) {
        c->g->failed = true;
        return MN_GNONE;
    }
    k->frame[k->n_frames] = (mn_gframe){then, parent, k->frame[parent].depth + 1};
    return k->n_frames++;
}

static void follow_calls(mn_gclose *c, mn_ghead h) {
    mn_gset *s = c->g->set[h.set];
    if (!mn_gset_calls(c->g, s))
        return;
    for (uint32_t i = 0; i < s->n_calls; i++) {
        const mn_gcall call = s->call[i];
        const uint32_t frame = call.last ? h.frame : push(c, call.then, h.frame);
        if (frame != MN_GNONE)
            append(c, call.start, frame);
    }
}

void mn_gclose_add(mn_gclose *c, uint32_t set, uint32_t frame) {
    mn_gstack *k = c->stack;
    uint32_t at = k->n_heads;
    append(c, set, frame);
    for (; at < k->n_heads; at++) {
        const mn_ghead h = k->head[at];
        if (c->g->set[h.set]->has_calls)
            follow_calls(c, h);
        if (!c->g->set[h.set]->ends)
            continue;
        const mn_gframe f = k->frame[h.frame];
        if (h.frame)
            append(c, f.set, f.parent);
        else
            c->popped = true;
    }
}

void mn_gclose_finish(mn_gclose *c) {
    mn_gstack *k = c->stack;
    uint32_t n = c->first_head;
    for (uint32_t i = c->first_head; i < k->n_heads; i++) {
        const mn_ghead h = k->head[i];
        if (c->g->set[h.set]->has_bytes && n - c->first_head < MN_GRAMMAR_HEADS)
            k->head[n++] = h;
    }
    k->n_heads = n;
}

uint32_t mn_gstack_step(mn_gclose *c, uint32_t from, uint32_t n, uint8_t byte) {
    mn_gstack *k = c->stack;
    c->first_head = k->n_heads;
    c->first_frame = k->n_frames;
    c->popped = false;
    for (uint32_t i = from; i < from + n; i++) {
        const mn_ghead h = k->head[i];
        const int32_t next = mn_gset_next(c->g, c->g->set[h.set], byte);
        if (next >= 0)
            mn_gclose_add(c, (uint32_t)next, h.frame);
    }
    mn_gclose_finish(c);
    return k->n_heads - c->first_head;
}
