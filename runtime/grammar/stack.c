/* stack.c -- where a text may be in a grammar: heads, each a set of nodes on top of frames that say
 * where to go on when its rule ends. Several heads stand for several ways to read the same text.
 * Frames share what lies below them. Whatever exceeds a limit is left out, which is safe: what
 * remains can still be completed.
 *
 * A closure holds each head and each frame once: few are compared one by one, more are found
 * through tables of hashes that belong to the stack. An entry counts for the closure whose stamp it
 * has, so that no table is ever cleared. */
#include "grammar/grammar_impl.h"
#include <string.h>

enum { FEW = 8, SLOTS = 8 * MN_GRAMMAR_HEADS }; /* twice the heads or frames of a closure */

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
    mn_free(s->slot);
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

/* ---- each head and frame once ---------------------------------------------------------------- */
/* A table of 2 * SLOTS entries: of heads, then of frames. */
static uint64_t *stack_table_of(mn_gclose *c, bool frames) {
    mn_gstack *k = c->stack;
    if (!k->slot) {
        k->slot = mn_calloc(2ull * SLOTS, sizeof *k->slot);
        k->stamp = 0;
    }
    if (!k->slot) {
        c->g->failed = true;
        return NULL;
    }
    return k->slot + (frames ? SLOTS : 0);
}

/* The two numbers of head or frame i that tell it from others. */
static mn_ghead stack_pair_of(const mn_gstack *k, bool frames, uint32_t i) {
    return frames ? (mn_ghead){k->frame[i].set, k->frame[i].parent} : k->head[i];
}

static uint32_t stack_slot_of(mn_ghead pair) {
    const uint64_t both = (uint64_t)pair.set << 32 | pair.frame;
    return (uint32_t)(both * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SLOTS;
}

/* The head or frame of this closure with that pair, or MN_GNONE; *free: the slot where it would be.
 */
static uint32_t find_hashed(const mn_gclose *c, const uint64_t *table, bool frames, mn_ghead pair,
                            uint32_t *free) {
    uint32_t at = stack_slot_of(pair);
    for (; table[at] >> 32 == c->stamp; at = (at + 1) % SLOTS) {
        const mn_ghead other = stack_pair_of(c->stack, frames, (uint32_t)table[at]);
        if (other.set == pair.set && other.frame == pair.frame)
            return (uint32_t)table[at];
    }
    *free = at;
    return MN_GNONE;
}

/* Head or frame i is in the table of its closure, together with those before it once there are more
 * than a few. */
static void stack_enter(mn_gclose *c, bool frames, uint32_t first, uint32_t i) {
    uint64_t *table = i - first >= FEW ? stack_table_of(c, frames) : NULL;
    if (!table)
        return;
    if (!c->stamp)
        c->stamp = ++c->stack->stamp;
    for (uint32_t k = i - first == FEW ? first : i; k <= i; k++) {
        uint32_t free = 0;
        if (find_hashed(c, table, frames, stack_pair_of(c->stack, frames, k), &free) == MN_GNONE)
            table[free] = (uint64_t)c->stamp << 32 | k;
    }
}

/* The same among those from `first` up to n. */
static uint32_t stack_find(mn_gclose *c, bool frames, uint32_t first, uint32_t n, mn_ghead pair) {
    uint32_t free = 0;
    if (n - first > FEW) {
        const uint64_t *table = stack_table_of(c, frames);
        return table ? find_hashed(c, table, frames, pair, &free) : MN_GNONE;
    }
    for (uint32_t i = first; i < n; i++) {
        const mn_ghead other = stack_pair_of(c->stack, frames, i);
        if (other.set == pair.set && other.frame == pair.frame)
            return i;
    }
    return MN_GNONE;
}

/* Appends a head unless it is there already. */
static void stack_append(mn_gclose *c, uint32_t set, uint32_t frame) {
    mn_gstack *k = c->stack;
    const mn_ghead h = {set, frame};
    mn_gspend(c->g, 2, set);
    if (k->n_heads - c->first_head >= 4 * MN_GRAMMAR_HEADS || c->g->failed ||
        !within_depth(c, frame, c->g->set[set]->need) ||
        stack_find(c, false, c->first_head, k->n_heads, h) != MN_GNONE)
        return;
    if (!mn_grow((void **)&k->head, &k->cap_heads, k->n_heads + 1u, sizeof *k->head)) {
        c->g->failed = true;
        return;
    }
    k->head[k->n_heads] = h;
    stack_enter(c, false, c->first_head, k->n_heads++);
}

/* A frame on top of parent; MN_GNONE where it may not be. */
static uint32_t stack_push(mn_gclose *c, uint32_t then, uint32_t parent) {
    mn_gstack *k = c->stack;
    mn_gspend(c->g, 1, then);
    if (!within_depth(c, parent, c->g->set[then]->need))
        return MN_GNONE;
    const uint32_t known =
        stack_find(c, true, c->first_frame, k->n_frames, (mn_ghead){then, parent});
    if (known != MN_GNONE)
        return known;
    if (k->n_frames - c->first_frame >= 4 * MN_GRAMMAR_HEADS)
        return MN_GNONE;
    if (!mn_grow((void **)&k->frame, &k->cap_frames, k->n_frames + 1u, sizeof *k->frame)) {
        c->g->failed = true;
        return MN_GNONE;
    }
    k->frame[k->n_frames] = (mn_gframe){then, parent, k->frame[parent].depth + 1};
    stack_enter(c, true, c->first_frame, k->n_frames);
    return k->n_frames++;
}

static void follow_calls(mn_gclose *c, mn_ghead h) {
    mn_gset *s = c->g->set[h.set];
    if (!mn_gset_calls(c->g, s))
        return;
    for (uint32_t i = 0; i < s->n_calls; i++) {
        const mn_gcall call = s->call[i];
        const uint32_t frame = call.last ? h.frame : stack_push(c, call.then, h.frame);
        if (frame != MN_GNONE)
            stack_append(c, call.start, frame);
    }
}

void mn_gclose_begin(mn_gclose *c) {
    c->first_head = c->stack->n_heads;
    c->first_frame = c->stack->n_frames;
    c->stamp = 0;
    c->popped = false;
}

void mn_gclose_add(mn_gclose *c, uint32_t set, uint32_t frame) {
    mn_gstack *k = c->stack;
    uint32_t at = k->n_heads;
    stack_append(c, set, frame);
    for (; at < k->n_heads && !c->g->failed; at++) {
        const mn_ghead h = k->head[at];
        if (c->g->set[h.set]->has_calls)
            follow_calls(c, h);
        if (!c->g->set[h.set]->ends)
            continue;
        const mn_gframe f = k->frame[h.frame];
        if (h.frame)
            stack_append(c, f.set, f.parent);
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
    mn_gclose_begin(c);
    for (uint32_t i = from; i < from + n && !c->g->failed; i++) {
        const mn_ghead h = k->head[i];
        mn_gspend(c->g, 1, h.set);
        const int32_t next = mn_gset_next(c->g, c->g->set[h.set], byte);
        if (next >= 0)
            mn_gclose_add(c, (uint32_t)next, h.frame);
    }
    mn_gclose_finish(c);
    return k->n_heads - c->first_head;
}
