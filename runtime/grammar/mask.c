/* mask.c -- which tokens may follow. What can follow from a set alone, whatever lies below it, is
 * found once by a walk over the trie and kept with the set. What remains for each mask are the
 * tokens in which the set's rule ends before the token does: the walk notes where ("escapes"), and
 * goes on from there with the real stack.
 *
 * Where any plain character may come, as in strings, all plain tokens are added at once, and only
 * the trie of the others is walked: a tenth of the vocabulary. */
#include "grammar/grammar_impl.h"
#include <string.h>

enum {
    FEW = 512,
    FEW_NODES = 8
}; /* tokens that are kept as ids; nodes that are walked one by one */

/* The heads at one depth of a walk. one: the set of the only head, where it neither calls nor ends
 * unless that is the end of the text: the usual case, in which a step is one look at a table. */
typedef struct {
    mn_gset *one;
    uint32_t head, n_heads, n_frames;
    uint32_t frame, depth; /* of one: its frame, and how deep that is */
} level;
typedef struct {
    mn_gclose c;
    const mn_grammar_vocab *v;
    level *at; /* [longest + 2] */
    uint32_t *bits;
    mn_gmask *mask; /* NULL: bits alone; else where escapes go */
} walker;

static void note_token(walker *w, int32_t id) {
    for (; id >= 0; id = w->v->same[id])
        w->bits[id / 32] |= 1u << id % 32;
}

static void note_escape(walker *w, const mn_gtrie *t, uint32_t node) {
    mn_gmask *m = w->mask;
    if (t != &w->v->all)
        node = w->v->origin[node];
    if (!m || w->v->all.skip[node] == node + 1)
        return;
    if (!mn_grow((void **)&m->escape, &m->cap_escape, m->n_escape + 1u, sizeof *m->escape)) {
        w->c.g->failed = true;
        return;
    }
    m->escape[m->n_escape++] = node;
}

static level level_of(const walker *w, uint32_t head, uint32_t n_heads, uint32_t n_frames) {
    const mn_gstack *k = w->c.stack;
    level l = {NULL, head, n_heads, n_frames, 0, 0};
    if (n_heads != 1 || head + 1 >= k->cap_heads)
        return l;
    l.one = w->c.g->set[k->head[head].set];
    l.frame = k->head[head].frame;
    l.depth = k->frame[l.frame].depth;
    return l;
}

/* The one head of `from` by a byte. 0 = dead, 1 = done, -1 = more than one look is needed. */
static inline int quick(walker *w, const level *from, level *to, uint8_t byte) {
    mn_gset *s = from->one;
    if (!s || from->head + 1 >= w->c.stack->cap_heads)
        return -1;
    int32_t next = s->next ? s->next[byte] : MN_GSET_ASK;
    if (next == MN_GSET_ASK)
        next = mn_gset_next(w->c.g, s, byte);
    if (next < 0)
        return 0;
    s = w->c.g->set[next];
    const uint32_t depth = from->depth + s->need;
    if (!s->plain || depth > MN_GRAMMAR_DEPTH)
        return -1;
    w->c.deepest = MN_MAX(w->c.deepest, depth);
    w->c.stack->head[from->head + 1] = (mn_ghead){(uint32_t)next, from->frame};
    *to = (level){s, from->head + 1, 1, from->n_frames, from->frame, from->depth};
    return 1;
}

/* From the level of a node's parent to its own; false = no text goes on like that. */
static bool descend(walker *w, const mn_gtrie *t, const level *from, level *to, uint32_t node) {
    mn_gstack *k = w->c.stack;
    k->n_heads = from->head + from->n_heads;
    k->n_frames = from->n_frames;
    const uint32_t head = k->n_heads;
    const uint32_t n = mn_gstack_step(&w->c, from->head, from->n_heads, t->byte[node]);
    *to = level_of(w, head, n, k->n_frames);
    if (w->c.popped)
        note_escape(w, t, node);
    return n || w->c.popped;
}

/* The nodes of t below root without those that plain tokens alone need. at: the level of root, and
 * room for those below. */
static void walk_below(walker *w, const mn_gtrie *t, uint32_t root, level *at);

/* The plain tokens below a node, up to a run from there. */
static void add_plain(walker *w, uint32_t node, uint32_t run) {
    const mn_grammar_vocab *v = w->v;
    const uint32_t longest = v->run[node] + run;
    const uint32_t end = v->plain_from[v->all.skip[node]];
    if (!node) {
        const uint32_t words = MN_GRAMMAR_WORDS(v->n_vocab);
        for (uint32_t i = 0; i < words; i++)
            w->bits[i] |= v->up_to[(size_t)run * words + i];
        return;
    }
    for (uint32_t i = v->plain_from[node]; i < end; i++) {
        const uint32_t id = (uint32_t)v->plain[i];
        const uint32_t bit = v->plain_run[i] <= longest;
        w->bits[id / 32] |= bit << id % 32;
    }
}

/* All below a node of the whole trie at once, where its head takes any plain character. */
static bool add_run(walker *w, uint32_t node, level *at) {
    const mn_grammar_vocab *v = w->v;
    const mn_gstack *k = w->c.stack;
    if (v->run[node] == MN_GRUN_NONE || at->n_heads != 1)
        return false;
    const mn_ghead h = k->head[at->head];
    uint32_t need = 0;
    const uint32_t run = mn_gset_run(w->c.g, h.set, &need);
    const uint32_t depth = k->frame[h.frame].depth + need;
    if (run == MN_GRUN_NONE || depth > MN_GRAMMAR_DEPTH)
        return false;
    w->c.deepest = MN_MAX(w->c.deepest, depth);
    add_plain(w, node, run);
    if (v->rest_from[node] < v->rest_from[node + 1])
        walk_below(w, &v->rest, v->rest_from[node], at);
    return true;
}

static void walk_below(walker *w, const mn_gtrie *t, uint32_t root, level *at) {
    const uint32_t end = t->skip[root];
    const uint32_t base = t->depth[root];
    const bool runs = t == &w->v->all;
    for (uint32_t i = root + 1; i < end;) {
        level *here = at + (t->depth[i] - base);
        const level *up = here - 1;
        int goes_on = quick(w, up, here, t->byte[i]);
        if (goes_on < 0)
            goes_on = up->n_heads && descend(w, t, up, here, i);
        if (!goes_on) {
            i = t->skip[i];
            continue;
        }
        if (t->token[i] >= 0)
            note_token(w, t->token[i]);
        i = runs && t->skip[i] > i + FEW_NODES && add_run(w, i, here) ? t->skip[i] : i + 1;
    }
}

/* The nodes below one of the whole trie, from the heads that stand at its depth. */
static void walk(walker *w, uint32_t root, level top) {
    w->at[0] = top;
    if (root || !add_run(w, root, w->at))
        walk_below(w, &w->v->all, root, w->at);
}

/* ---- masks of sets --------------------------------------------------------------------------- */
/* Few tokens become a list. */
static void compact(mn_grammar *g, mn_gmask *m) {
    const uint32_t words = MN_GRAMMAR_WORDS(g->vocab->n_vocab);
    uint32_t n = 0;
    for (uint32_t i = 0; i < words; i++)
        n += (uint32_t)__builtin_popcount(m->bits[i]);
    if (n > FEW || !mn_grow((void **)&m->id, &m->cap, n + 1u, sizeof *m->id))
        return;
    for (uint32_t i = 0; i < words; i++) {
        for (uint32_t word = m->bits[i]; word; word &= word - 1)
            m->id[m->n++] = (int32_t)(32 * i) + __builtin_ctz(word);
    }
    mn_free(m->bits);
    m->bits = NULL;
}

static bool stack_of_set(mn_gstack *k, uint32_t set) {
    if (!mn_grow((void **)&k->head, &k->cap_heads, 256, sizeof *k->head) ||
        !mn_grow((void **)&k->frame, &k->cap_frames, 16, sizeof *k->frame))
        return false;
    k->head[0] = (mn_ghead){set, 0};
    k->frame[0] = (mn_gframe){0};
    k->n_heads = 1;
    k->n_frames = 1;
    return true;
}

/* The mask of a set; NULL: no memory. */
static mn_gmask *mask_of(mn_grammar *g, uint32_t set, level *levels) {
    mn_gset *s = g->set[set];
    if (s->mask)
        return s->mask;
    if (g->is_view) {
        g->failed = true;
        return NULL;
    }
    mn_gstack k = {0};
    mn_gmask *m = mn_calloc(1, sizeof *m);
    const uint32_t words = MN_GRAMMAR_WORDS(g->vocab->n_vocab);
    if (m)
        m->bits = mn_calloc(words, sizeof *m->bits);
    if (!m || !m->bits || !stack_of_set(&k, set)) {
        g->failed = true;
    } else {
        walker w = {{.g = g, .stack = &k}, g->vocab, levels, m->bits, m};
        walk(&w, 0, level_of(&w, 0, 1, 1));
        m->deepest = w.c.deepest;
        compact(g, m);
    }
    mn_gstack_free(&k);
    if (m) {
        s->mask = m;
        g->bytes += sizeof *m + 4 * (m->cap + m->cap_escape) + (m->bits ? 4ull * words : 0);
    }
    if (g->failed || g->full) { /* not complete: of use to nobody */
        mn_gmask_free(g, s);
        return NULL;
    }
    return m;
}

static void add_mask(const mn_gmask *m, uint32_t *bits, uint32_t words) {
    for (uint32_t i = 0; i < m->n; i++)
        bits[m->id[i] / 32] |= 1u << m->id[i] % 32;
    for (uint32_t i = 0; m->bits && i < words; i++)
        bits[i] |= m->bits[i];
}

/* Goes on at the escapes of a head's mask with what lies below it. */
static void walk_escapes(walker *w, const mn_gmask *m, mn_ghead h) {
    mn_gstack *k = w->c.stack;
    const uint32_t n_heads = k->n_heads;
    const uint32_t n_frames = k->n_frames;
    const mn_gframe f = k->frame[h.frame];
    w->c.first_head = k->n_heads;
    w->c.first_frame = k->n_frames;
    mn_gclose_add(&w->c, f.set, f.parent);
    mn_gclose_finish(&w->c);
    const level top = level_of(w, n_heads, k->n_heads - n_heads, k->n_frames);
    for (uint32_t i = 0; i < m->n_escape && top.n_heads && !w->c.g->failed; i++)
        walk(w, m->escape[i], top);
    k->n_heads = n_heads;
    k->n_frames = n_frames;
}

/* One head without its mask: where the stack is so high that limits count. */
static void walk_head(walker *w, mn_ghead h) {
    mn_gstack *k = w->c.stack;
    const uint32_t n_heads = k->n_heads;
    const uint32_t n_frames = k->n_frames;
    w->c.first_head = k->n_heads;
    mn_gclose_add(&w->c, h.set, h.frame);
    mn_gclose_finish(&w->c);
    const level top = level_of(w, n_heads, k->n_heads - n_heads, k->n_frames);
    walk(w, 0, top);
    k->n_heads = n_heads;
    k->n_frames = n_frames;
}

static void mask_heads(const mn_grammar_state *s, walker *w, level *levels) {
    mn_grammar *g = w->c.g;
    const uint32_t words = MN_GRAMMAR_WORDS(g->vocab->n_vocab);
    for (uint32_t i = 0; i < s->stack.n_heads && !g->failed; i++) {
        const mn_ghead h = s->stack.head[i];
        const mn_gmask *m = mask_of(g, h.set, levels);
        const uint32_t depth = s->stack.frame[h.frame].depth;
        if (!m && g->is_view)
            return;
        if (!m || m->deepest + depth > MN_GRAMMAR_DEPTH) {
            walk_head(w, h);
            continue;
        }
        add_mask(m, w->bits, words);
        if (h.frame)
            walk_escapes(w, m, h);
    }
}

static bool is_empty(const uint32_t *bits, uint32_t words) {
    uint32_t any = 0;
    for (uint32_t i = 0; i < words; i++)
        any |= bits[i];
    return !any;
}

/* g: of s, or a view of it. False: g->failed. */
static bool make_mask(mn_grammar *g, const mn_grammar_state *s, uint32_t *bits) {
    mn_gstack k = {0};
    g->failed = false;
    memset(bits, 0, MN_GRAMMAR_WORDS(g->vocab->n_vocab) * sizeof *bits);
    level *levels = mn_alloc(g->vocab->longest + 2ull, sizeof *levels);
    if (levels && mn_gstack_copy(&k, &s->stack)) {
        walker w = {{.g = g, .stack = &k}, g->vocab, levels, bits, NULL};
        mask_heads(s, &w, levels);
    } else {
        g->failed = true;
    }
    mn_gstack_free(&k);
    mn_free(levels);
    return !g->failed;
}

/* What others had left may have filled the memory: the mask is then made in an empty one. */
static bool make_alone(mn_grammar_state *s, uint32_t *bits) {
    mn_grammar *g = s->g;
    const bool was_full = g->full;
    if (was_full)
        mn_gsets_sweep(g);
    const bool ok = make_mask(g, s, bits);
    if (!ok || !g->full || was_full)
        return ok;
    mn_gsets_sweep(g);
    return make_mask(g, s, bits);
}

mn_status mn_grammar_mask(mn_grammar_state *s, uint32_t *bits, mn_error *err) {
    mn_grammar view;
    pthread_rwlock_rdlock(&s->g->lock);
    bool ok = mn_grammar_view(s->g, &view) && make_mask(&view, s, bits);
    pthread_rwlock_unlock(&s->g->lock);
    if (!ok) {
        pthread_rwlock_wrlock(&s->g->lock);
        ok = make_alone(s, bits);
        pthread_rwlock_unlock(&s->g->lock);
    }
    if (!ok)
        return mn_fail_memory(err, 0);
    if (is_empty(bits, MN_GRAMMAR_WORDS(s->g->vocab->n_vocab)) && !s->complete)
        return mn_fail(err, MN_UNSUPPORTED,
                       "no token of the vocabulary continues the text as the grammar demands");
    return MN_OK;
}

bool mn_grammar_within(const mn_grammar_vocab *v, const uint32_t *bits, uint32_t n_words,
                       uint64_t bytes) {
    const uint32_t words = MN_MIN(n_words, MN_GRAMMAR_WORDS(v->n_vocab));
    if (bytes >= v->longest)
        return true;
    for (uint32_t i = 0; i < words; i++) {
        for (uint32_t word = bits[i]; word; word &= word - 1) {
            const uint32_t id = 32 * i + (uint32_t)__builtin_ctz(word);
            if (v->offset[id + 1] - v->offset[id] > bytes)
                return false;
        }
    }
    return true;
}
