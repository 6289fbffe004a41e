/* mask.c -- which tokens may follow. What can follow from a set alone, whatever lies below it, is
 * found once by a walk over the trie and kept with the set. What remains for each mask are the
 * tokens in which the set's rule ends before the token does: the walk notes where ("escapes"), and
 * goes on from there with the real stack.
 *
 * Where any plain character may come, as in strings, all plain tokens are added at once, and only
 * the trie of the others is walked: a tenth of the vocabulary. Where most bytes lead to one state,
 * as in patterns of letters, the same is done with an alphabet (alphabet.c). */
#include "grammar/grammar_impl.h"
#include <string.h>

enum {
    FEW = 512,
    FEW_NODES = 8,
    FEW_BYTES = 8,
    NODES_WORK = 2
}; /* tokens that are kept as ids; nodes that are walked one by one; bytes of no alphabet; nodes of
    * a walk that are one unit of work */

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

/* False: the work is used up. */
static bool spend(walker *w, uint64_t units, const level *at) {
    mn_grammar *g = w->c.g;
    const mn_gstack *k = w->c.stack;
    return at->n_heads ? mn_gspend(g, units, k->head[at->head].set) : mn_gspend_node(g, units, 0);
}

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

static level mask_level_of(const walker *w, uint32_t head, uint32_t n_heads, uint32_t n_frames) {
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
    *to = mask_level_of(w, head, n, k->n_frames);
    if (w->c.popped)
        note_escape(w, t, node);
    return n || w->c.popped;
}

/* The nodes of t below root without those that plain tokens alone need. at: the level of root, and
 * room for those below. */
static void walk_below(walker *w, const mn_gtrie *t, uint32_t root, level *at);

/* The plain tokens below a node, up to a run from there. */
static void mask_add_plain(walker *w, uint32_t node, uint32_t run) {
    const mn_grammar_vocab *v = w->v;
    const uint32_t longest = v->run[node] + run;
    const uint32_t end = v->plain_from[v->all.skip[node]];
    if (!node) {
        const uint32_t words = MN_GRAMMAR_WORDS(v->n_vocab);
        for (uint32_t i = 0; i < words; i++)
            w->bits[i] |= v->up_to[(size_t)run * words + i];
        return;
    }
    if (!mn_gbudget_take(w->c.g->budget, (end - v->plain_from[node]) / 4, 0))
        w->c.g->failed = true;
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
    mask_add_plain(w, node, run);
    if (v->rest_from[node] < v->rest_from[node + 1])
        walk_below(w, &v->rest, v->rest_from[node], at);
    return true;
}

static void walk_below(walker *w, const mn_gtrie *t, uint32_t root, level *at) {
    const uint32_t end = t->skip[root];
    const uint32_t base = t->depth[root];
    const bool runs = t == &w->v->all;
    uint32_t n = 0;
    for (uint32_t i = root + 1; i < end;) {
        level *here = at + (t->depth[i] - base);
        const level *up = here - 1;
        if (++n % NODES_WORK == 0 && !spend(w, 1, up))
            return;
        int goes_on = quick(w, up, here, t->byte[i]);
        if (goes_on < 0)
            goes_on = up->n_heads && descend(w, t, up, here, i);
        if (!goes_on) {
            i = t->skip[i];
            continue;
        }
        if (w->c.g->failed)
            return;
        if (t->token[i] >= 0)
            note_token(w, t->token[i]);
        i = runs && t->skip[i] > i + FEW_NODES && add_run(w, i, here) ? t->skip[i] : i + 1;
    }
}

/* ---- alphabets ------------------------------------------------------------------------------- */
/* What follows a set while bytes of its alphabet come: set[k] behind k of them, up to run. */
typedef struct {
    uint64_t bytes[4];
    uint32_t set[MN_GRUN_MOST + 1];
    uint32_t run;
} chain;

/* The most bytes that lead to the same set; false: too few to be worth an alphabet. */
static bool find_alphabet(walker *w, mn_gset *s, chain *c) {
    int32_t to[256];
    uint16_t n[256] = {0};
    uint32_t best = 256;
    for (uint32_t byte = 0; byte < 256 && !w->c.g->failed; byte++) {
        uint32_t first = 0;
        to[byte] = mn_gset_next(w->c.g, s, (uint8_t)byte);
        if (to[byte] < 0)
            continue;
        while (to[first] != to[byte])
            first++;
        n[first]++;
        if (best == 256 || n[first] > n[best])
            best = first;
    }
    if (best == 256 || n[best] < FEW_BYTES || w->c.g->failed)
        return false;
    memset(c->bytes, 0, sizeof c->bytes);
    for (uint32_t byte = best; byte < 256; byte++) {
        if (to[byte] == to[best])
            c->bytes[byte / 64] |= 1ull << byte % 64;
    }
    return true;
}

/* The set behind any byte of the alphabet; MN_GSET_MIXED: they do not lead to the same one. */
static int32_t next_of_all(walker *w, mn_gset *s, const uint64_t *bytes) {
    int32_t to = MN_GSET_ASK;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint64_t word = bytes[i]; word; word &= word - 1) {
            const uint32_t byte = 64 * i + (uint32_t)__builtin_ctzll(word);
            const int32_t next = mn_gset_next(w->c.g, s, (uint8_t)byte);
            if (to != MN_GSET_ASK && next != to)
                return MN_GSET_MIXED;
            to = next;
        }
    }
    return to;
}

/* False: it depends on the bytes which sets follow, or limits count. */
static bool follow_alphabet(walker *w, const level *top, chain *c) {
    const mn_grammar *g = w->c.g;
    for (c->run = 0; c->run < MN_GRUN_MOST; c->run++) {
        const uint32_t set = c->set[c->run];
        const int32_t to = next_of_all(w, g->set[set], c->bytes);
        if (to == MN_GSET_DEAD)
            return true;
        if (to < 0 || !g->set[to]->plain || top->depth + g->set[to]->need > MN_GRAMMAR_DEPTH)
            return false;
        w->c.deepest = MN_MAX(w->c.deepest, top->depth + g->set[to]->need);
        for (uint32_t k = c->run + 1; (uint32_t)to == set && k <= MN_GRUN_MOST; k++)
            c->set[k] = set;
        if ((uint32_t)to == set)
            c->run = MN_GRUN_MOST - 1;
        c->set[c->run + 1] = (uint32_t)to;
    }
    return true;
}

/* The tokens below a node at which others leave the alphabet. */
static void walk_exit(walker *w, const level *top, const chain *c, uint32_t node) {
    const mn_gtrie *t = &w->v->all;
    const uint32_t n = t->depth[node] - 1u;
    mn_gset *from = n <= c->run ? w->c.g->set[c->set[n]] : NULL;
    if (!from || mn_gset_next(w->c.g, from, t->byte[node]) < 0)
        return;
    level up = *top;
    up.head++;
    up.one = from;
    w->c.stack->head[up.head] = (mn_ghead){c->set[n], top->frame};
    int goes_on = quick(w, &up, &w->at[1], t->byte[node]);
    if (goes_on < 0)
        goes_on = descend(w, t, &up, &w->at[1], node);
    if (!goes_on)
        return;
    if (t->token[node] >= 0)
        note_token(w, t->token[node]);
    walk_below(w, t, node, &w->at[1]);
}

/* Whether the byte may leave the alphabet anywhere. */
static bool may_leave(walker *w, const chain *c, uint8_t byte) {
    for (uint32_t k = 0; k <= c->run; k++) {
        const uint64_t *first = w->c.g->set[c->set[k]]->first;
        if (first[byte / 64] >> byte % 64 & 1)
            return true;
    }
    return false;
}

/* All tokens from a head whose bytes mostly lead to one set. */
static bool add_alphabet(walker *w, const level *top) {
    const uint32_t words = MN_GRAMMAR_WORDS(w->v->n_vocab);
    chain c;
    if (!top->one || top->head + 2 >= w->c.stack->cap_heads || !find_alphabet(w, top->one, &c))
        return false;
    c.set[0] = w->c.stack->head[top->head].set;
    const mn_galphabet *a = follow_alphabet(w, top, &c) ? mn_galphabet_of(w->v, c.bytes) : NULL;
    if (!a)
        return false;
    for (uint32_t i = 0; i < words; i++)
        w->bits[i] |= a->up_to[(size_t)c.run * words + i];
    for (uint32_t byte = 0; byte < 256; byte++) {
        const uint32_t end = a->from[byte + 1];
        if (a->from[byte] == end || !may_leave(w, &c, (uint8_t)byte) ||
            !spend(w, (end - a->from[byte]) / NODES_WORK, top))
            continue;
        for (uint32_t i = a->from[byte]; i < end; i++)
            walk_exit(w, top, &c, a->exit[i]);
    }
    return true;
}

/* The nodes below one of the whole trie, from the heads that stand at its depth. */
static void mask_walk(walker *w, uint32_t root, level top) {
    w->at[0] = top;
    if (root || (!add_run(w, root, w->at) && !add_alphabet(w, w->at)))
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
        mask_walk(&w, 0, mask_level_of(&w, 0, 1, 1));
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

static void mask_add_mask(const mn_gmask *m, uint32_t *bits, uint32_t words) {
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
    mn_gclose_begin(&w->c);
    mn_gclose_add(&w->c, f.set, f.parent);
    mn_gclose_finish(&w->c);
    const level top = mask_level_of(w, n_heads, k->n_heads - n_heads, k->n_frames);
    for (uint32_t i = 0; i < m->n_escape && top.n_heads && !w->c.g->failed; i++)
        mask_walk(w, m->escape[i], top);
    k->n_heads = n_heads;
    k->n_frames = n_frames;
}

/* One head without its mask: where the stack is so high that limits count. */
static void walk_head(walker *w, mn_ghead h) {
    mn_gstack *k = w->c.stack;
    const uint32_t n_heads = k->n_heads;
    const uint32_t n_frames = k->n_frames;
    mn_gclose_begin(&w->c);
    mn_gclose_add(&w->c, h.set, h.frame);
    mn_gclose_finish(&w->c);
    const level top = mask_level_of(w, n_heads, k->n_heads - n_heads, k->n_frames);
    mask_walk(w, 0, top);
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
        if (!m && (g->is_view || g->budget->over))
            return;
        if (!m || m->deepest + depth > MN_GRAMMAR_DEPTH) {
            walk_head(w, h);
            continue;
        }
        mask_add_mask(m, w->bits, words);
        if (h.frame)
            walk_escapes(w, m, h);
    }
}

static bool mask_is_empty(const uint32_t *bits, uint32_t words) {
    for (uint32_t i = 0; i < words; i++)
        if (bits[i])
            return false;
    return true;
}

/* Whether the mask of the head's set is there, and is the head's as well: what lies below is of no
 * account. */
static bool mask_is_whole(const mn_grammar *g, const mn_gstack *k, mn_ghead h) {
    const mn_gmask *m = g->set[h.set]->mask;
    return m && m->deepest + k->frame[h.frame].depth <= MN_GRAMMAR_DEPTH &&
           (!h.frame || !m->n_escape);
}

/* The usual case, in which masks of sets are all that it takes. False: nothing was written. */
static bool join_masks(const mn_grammar *g, const mn_gstack *k, uint32_t *bits) {
    const uint32_t words = MN_GRAMMAR_WORDS(g->vocab->n_vocab);
    for (uint32_t i = 0; i < k->n_heads; i++)
        if (!mask_is_whole(g, k, k->head[i]))
            return false;
    memset(bits, 0, words * sizeof *bits);
    for (uint32_t i = 0; i < k->n_heads; i++)
        mask_add_mask(g->set[k->head[i].set]->mask, bits, words);
    return true;
}

/* g: of s, or a view of it. False: g->failed. */
static bool make_mask(mn_grammar *g, const mn_grammar_state *s, uint32_t *bits) {
    mn_gstack k = {0};
    g->failed = false;
    if (join_masks(g, &s->stack, bits))
        return true;
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
    mn_gbudget b = mn_gbudget_of(s);
    pthread_rwlock_rdlock(&s->g->lock);
    bool ok = mn_grammar_view(s->g, &b, &view) && make_mask(&view, s, bits);
    pthread_rwlock_unlock(&s->g->lock);
    if (!ok && !b.over) {
        pthread_rwlock_wrlock(&s->g->lock);
        s->g->budget = &b;
        ok = make_alone(s, bits);
        pthread_rwlock_unlock(&s->g->lock);
    }
    mn_gbudget_charge(s, &b);
    if (!ok)
        return mn_gbudget_fail(s->g, &b, err);
    if (mask_is_empty(bits, MN_GRAMMAR_WORDS(s->g->vocab->n_vocab)) && !s->complete)
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
