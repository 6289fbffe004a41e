/* sets.c -- the automaton made deterministic on demand: a set holds all nodes that the same bytes
 * lead to inside one rule. Sets, their transitions and their masks belong to the grammar and are
 * shared by its states. Their memory is bounded: at MN_GRAMMAR_MEMORY no more are made, which
 * allows fewer tokens, and the next call first frees all that no state refers to. */
#include "grammar/grammar_impl.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FIND_WORK = 8 }; /* to look for a set, and to make it */

mn_status mn_gsets_init(mn_grammar *g) {
    g->n_slots = 1024;
    g->slot = mn_alloc(g->n_slots, sizeof *g->slot);
    g->start = mn_alloc(g->nfa.n_rules, sizeof *g->start);
    g->mark = mn_calloc(g->nfa.n, sizeof *g->mark);
    g->visits = mn_alloc(g->nfa.n, sizeof *g->visits);
    g->gather = mn_alloc(g->nfa.n, sizeof *g->gather);
    if (!g->slot || !g->start || !g->mark || !g->visits || !g->gather)
        return MN_OUT_OF_MEMORY;
    memset(g->slot, 0xff, g->n_slots * sizeof *g->slot);
    memset(g->start, 0xff, g->nfa.n_rules * sizeof *g->start);
    return MN_OK;
}

bool mn_grammar_view(const mn_grammar *g, mn_gbudget *b, mn_grammar *view) {
    if (g->full)
        return false;
    memcpy(view, g, offsetof(mn_grammar, lock));
    view->is_view = true;
    view->failed = false;
    view->budget = b;
    return true;
}

/* What a view lacks is a writer's to make. */
static bool sets_is_refused(mn_grammar *g) {
    g->failed |= g->is_view;
    return g->is_view;
}

void mn_gmask_free(mn_grammar *g, mn_gset *s) {
    mn_gmask *m = s->mask;
    if (!m)
        return;
    g->bytes -= sizeof *m + 4 * (m->cap + m->cap_escape);
    g->bytes -= m->bits ? 4 * (uint64_t)MN_GRAMMAR_WORDS(g->vocab->n_vocab) : 0;
    mn_free(m->bits);
    mn_free(m->id);
    mn_free(m->escape);
    mn_free(m);
    s->mask = NULL;
}

static uint64_t sets_size_of(const mn_gset *s) {
    return sizeof *s + 4 * (uint64_t)s->n + (s->next ? 1024 : 0) + s->n_calls * sizeof *s->call;
}

static void sets_set_free(mn_grammar *g, mn_gset *s) {
    if (!s)
        return;
    mn_gmask_free(g, s);
    g->bytes -= sets_size_of(s);
    mn_free(s->node);
    mn_free(s->next);
    mn_free(s->call);
    mn_free(s);
}

void mn_gsets_free(mn_grammar *g) {
    for (uint32_t i = 0; i < g->n_sets; i++)
        sets_set_free(g, g->set[i]);
    mn_free(g->set);
    mn_free(g->slot);
    mn_free(g->start);
    mn_free(g->mark);
    mn_free(g->visits);
    mn_free(g->gather);
}

static void put_slot(mn_grammar *g, uint32_t id) {
    uint64_t at = g->set[id]->hash & (g->n_slots - 1);
    while (g->slot[at] != MN_GNONE)
        at = (at + 1) & (g->n_slots - 1);
    g->slot[at] = id;
}

static bool grow_slots(mn_grammar *g) {
    if (g->n_sets * 2 < g->n_slots)
        return true;
    uint32_t *more = mn_alloc(2ull * g->n_slots, sizeof *more);
    if (!more)
        return false;
    mn_free(g->slot);
    g->slot = more;
    g->n_slots *= 2;
    memset(g->slot, 0xff, g->n_slots * sizeof *g->slot);
    for (uint32_t i = 0; i < g->n_sets; i++)
        put_slot(g, i);
    return true;
}

/* ---- closures: all nodes that need no byte --------------------------------------------------- */
static void begin_closure(mn_grammar *g) {
    g->stamp++;
    if (g->stamp)
        return;
    memset(g->mark, 0, g->nfa.n * sizeof *g->mark);
    g->stamp = 1;
}

static void sets_visit(mn_grammar *g, uint32_t node, uint32_t *n_work) {
    if (node == MN_GNONE || g->mark[node] == g->stamp || g->nfa.need[node] == MN_GNEVER)
        return;
    g->mark[node] = g->stamp;
    g->visits[(*n_work)++] = node;
}

/* Appends to g->gather what node leads to; returns the new length. Work used up: some is missing,
 * and g->failed. */
static uint32_t close_over(mn_grammar *g, uint32_t node, uint32_t n) {
    uint32_t n_work = 0;
    sets_visit(g, node, &n_work);
    while (n_work && mn_gspend_node(g, 1, node)) {
        const uint32_t at = g->visits[--n_work];
        const mn_gnode *x = &g->nfa.node[at];
        if (x->kind != MN_GN_SPLIT) {
            g->gather[n++] = at;
            continue;
        }
        sets_visit(g, x->other, &n_work);
        sets_visit(g, x->to, &n_work);
    }
    return n;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sets_describe(const mn_gnfa *a, mn_gset *s) {
    s->need = MN_GNEVER;
    for (uint32_t i = 0; i < s->n; i++) {
        const mn_gnode *x = &a->node[s->node[i]];
        s->need = MN_MIN(s->need, a->need[s->node[i]]);
        s->ends |= x->kind == MN_GN_END;
        s->has_calls |= x->kind == MN_GN_CALL;
        if (x->kind != MN_GN_BYTES)
            continue;
        s->has_bytes = true;
        for (uint32_t w = x->lo / 64u; w <= x->hi / 64u; w++) {
            const uint64_t above = w == x->lo / 64u ? UINT64_MAX << x->lo % 64 : UINT64_MAX;
            const uint64_t below = w == x->hi / 64u ? UINT64_MAX >> (63 - x->hi % 64) : UINT64_MAX;
            s->first[w] |= above & below;
        }
    }
    /* The end of the text leads nowhere: no need to look below. */
    const bool outermost = !a->calls_root && !s->node[0];
    s->plain = !s->has_calls && (!s->ends || outermost);
}

static bool add_set(mn_grammar *g, mn_gset *s) {
    if (!grow_slots(g) || !mn_grow((void **)&g->set, &g->cap_sets, g->n_sets + 1u, sizeof *g->set))
        return false;
    g->set[g->n_sets] = s;
    put_slot(g, g->n_sets++);
    return true;
}

/* The set of the first n nodes of g->gather; MN_GSET_DEAD: there are none, or no memory or work. */
static int32_t sets_find_or_make(mn_grammar *g, uint32_t n) {
    if (g->failed || !n || !mn_gspend_node(g, FIND_WORK + 2ull * n, g->gather[0]))
        return MN_GSET_DEAD;
    qsort(g->gather, n, sizeof *g->gather, by_number);
    const uint64_t hash = mn_hash(g->gather, n * sizeof *g->gather, 1);
    for (uint64_t at = hash & (g->n_slots - 1); g->slot[at] != MN_GNONE;
         at = (at + 1) & (g->n_slots - 1)) {
        const mn_gset *s = g->set[g->slot[at]];
        if (s->hash == hash && s->n == n && !memcmp(s->node, g->gather, n * sizeof *s->node))
            return (int32_t)g->slot[at];
    }
    if (g->bytes > MN_GRAMMAR_MEMORY) {
        g->full = true;
        return MN_GSET_DEAD;
    }
    mn_gset *s = mn_calloc(1, sizeof *s);
    uint32_t *node = mn_alloc(n, sizeof *node);
    if (s && node) {
        memcpy(node, g->gather, n * sizeof *node);
        s->node = node;
        s->n = n;
        s->hash = hash;
        s->run_next = MN_GSET_ASK;
        sets_describe(&g->nfa, s);
        if (add_set(g, s)) {
            g->bytes += sets_size_of(s);
            return (int32_t)g->n_sets - 1;
        }
    }
    mn_free(node);
    mn_free(s);
    g->failed = true;
    return MN_GSET_DEAD;
}

int32_t mn_gset_start(mn_grammar *g, uint32_t rule) {
    if (g->start[rule] != MN_GNONE)
        return (int32_t)g->start[rule];
    if (sets_is_refused(g))
        return MN_GSET_DEAD;
    begin_closure(g);
    const int32_t id = sets_find_or_make(g, close_over(g, g->nfa.start[rule], 0));
    if (id >= 0)
        g->start[rule] = (uint32_t)id;
    return id;
}

static bool make_next(mn_grammar *g, mn_gset *s) {
    s->next = mn_alloc(256, sizeof *s->next);
    if (!s->next) {
        g->failed = true;
        return false;
    }
    g->bytes += 1024;
    for (int byte = 0; byte < 256; byte++) {
        const bool possible = s->first[byte / 64] >> byte % 64 & 1;
        s->next[byte] = possible ? MN_GSET_ASK : MN_GSET_DEAD;
    }
    return true;
}

int32_t mn_gset_next(mn_grammar *g, mn_gset *s, uint8_t byte) {
    if (s->next && s->next[byte] != MN_GSET_ASK)
        return s->next[byte];
    if (sets_is_refused(g) || (!s->next && !make_next(g, s)))
        return MN_GSET_DEAD;
    if (s->next[byte] != MN_GSET_ASK)
        return s->next[byte];
    /* All bytes of lo to hi lead to where this one leads. */
    uint32_t n = 0;
    uint8_t lo = 0;
    uint8_t hi = 255;
    if (!mn_gspend_node(g, 1 + s->n / 2, s->node[0]))
        return MN_GSET_DEAD;
    begin_closure(g);
    for (uint32_t i = 0; i < s->n; i++) {
        const mn_gnode *x = &g->nfa.node[s->node[i]];
        if (x->kind != MN_GN_BYTES)
            continue;
        if (x->hi < byte) {
            lo = MN_MAX(lo, (uint8_t)(x->hi + 1));
        } else if (x->lo > byte) {
            hi = MN_MIN(hi, (uint8_t)(x->lo - 1));
        } else {
            lo = MN_MAX(lo, x->lo);
            hi = MN_MIN(hi, x->hi);
            n = close_over(g, x->to, n);
        }
    }
    const int32_t id = sets_find_or_make(g, n);
    for (uint32_t b = lo; b <= hi && (id >= 0 || (!n && !g->failed)); b++)
        s->next[b] = id;
    return id;
}

/* ---- runs of plain characters ---------------------------------------------------------------- */
/* Where all bytes of lo to hi lead; MN_GSET_DEAD: none leads anywhere; MN_GSET_MIXED. */
static int32_t common_next(mn_grammar *g, int32_t set, uint32_t lo, uint32_t hi) {
    if (set < 0)
        return set;
    mn_gset *s = g->set[set];
    const int32_t to = mn_gset_next(g, s, (uint8_t)lo);
    for (uint32_t byte = lo + 1; byte <= hi; byte++) {
        if (mn_gset_next(g, s, (uint8_t)byte) != to)
            return MN_GSET_MIXED;
    }
    return to >= 0 && !g->set[to]->plain ? MN_GSET_MIXED : to;
}

/* Where all characters of UTF-8 lead that are plain: by their first byte, the second, and `more`
 * bytes of 80 to BF. */
static int32_t find_run_next(mn_grammar *g, int32_t set) {
    static const struct {
        uint8_t lo, hi, lo2, hi2, more;
    } list[] = {
        {' ', '!', 0, 0, 0},         {'#', '[', 0, 0, 0},         {']', 0x7f, 0, 0, 0},
        {0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1},
        {0xed, 0xed, 0x80, 0x9f, 1}, {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
        {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2}};
    int32_t common = MN_GSET_ASK;
    for (size_t i = 0; i < MN_COUNT(list); i++) {
        int32_t to = common_next(g, set, list[i].lo, list[i].hi);
        if (list[i].lo2)
            to = common_next(g, to, list[i].lo2, list[i].hi2);
        for (uint8_t k = 0; k < list[i].more; k++)
            to = common_next(g, to, 0x80, 0xbf);
        if (to == MN_GSET_MIXED || (common != MN_GSET_ASK && common != to))
            return MN_GSET_MIXED;
        common = to;
    }
    return common;
}

uint32_t mn_gset_run(mn_grammar *g, uint32_t set, uint32_t *deepest) {
    for (uint32_t run = 0; run < MN_GRUN_MOST; run++) {
        mn_gset *s = g->set[set];
        if (!s->plain)
            return MN_GRUN_NONE;
        if (s->run_next == MN_GSET_ASK && sets_is_refused(g))
            return MN_GRUN_NONE;
        if (s->run_next == MN_GSET_ASK) {
            const int32_t next = find_run_next(g, (int32_t)set);
            if (g->failed || g->full) /* it may lead on: nothing is kept */
                return MN_GRUN_NONE;
            s->run_next = next;
        }
        if (s->run_next == MN_GSET_MIXED)
            return MN_GRUN_NONE;
        *deepest = MN_MAX(*deepest, s->need);
        if (s->run_next < 0)
            return run;
        if ((uint32_t)s->run_next == set)
            break;
        set = (uint32_t)s->run_next;
    }
    return MN_GRUN_MOST;
}

static int sets_by_place(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The calls of s as rule << 32 | the node behind it, in order. place: [s->n] */
static uint32_t called_places(const mn_grammar *g, const mn_gset *s, uint64_t *place) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const mn_gnode *x = &g->nfa.node[s->node[i]];
        if (x->kind == MN_GN_CALL)
            place[n++] = (uint64_t)x->other << 32 | x->to;
    }
    qsort(place, n, sizeof *place, sets_by_place);
    return n;
}

static uint32_t count_rules(const uint64_t *place, uint32_t n) {
    uint32_t n_rules = 0;
    for (uint32_t i = 0; i < n; i++)
        n_rules += !i || place[i] >> 32 != place[i - 1] >> 32;
    return n_rules;
}

/* The call of the rule at place[*i], with everything that may follow it; *i moves to the next rule.
 */
static bool make_call(mn_grammar *g, const uint64_t *place, uint32_t n_places, uint32_t *i,
                      mn_gcall *out) {
    const uint32_t rule = (uint32_t)(place[*i] >> 32);
    uint32_t n = 0;
    begin_closure(g);
    for (; *i < n_places && place[*i] >> 32 == rule; ++*i)
        n = close_over(g, (uint32_t)place[*i], n);
    const int32_t then = sets_find_or_make(g, n);
    const int32_t start = mn_gset_start(g, rule);
    if (then < 0 || start < 0)
        return false;
    const mn_gset *t = g->set[then];
    *out = (mn_gcall){(uint32_t)start, (uint32_t)then, t->ends && t->n == 1};
    return true;
}

bool mn_gset_calls(mn_grammar *g, mn_gset *s) {
    if (s->calls_known)
        return true;
    if (sets_is_refused(g) || !mn_gspend_node(g, 4ull * s->n, s->node[0]))
        return false;
    uint64_t *places = mn_alloc(s->n, sizeof *places);
    const uint32_t n_places = places ? called_places(g, s, places) : 0;
    mn_gcall *call = mn_alloc(count_rules(places, n_places), sizeof *call);
    uint32_t n = 0;
    bool ok = places && call;
    g->failed |= !ok;
    for (uint32_t i = 0; i < n_places && ok; n++)
        ok = make_call(g, places, n_places, &i, &call[n]);
    mn_free(places);
    if (!ok) {
        mn_free(call);
        return false;
    }
    s->call = call;
    s->n_calls = n;
    s->calls_known = true;
    g->bytes += n * sizeof *call;
    return true;
}

/* ---- freeing what no state holds ------------------------------------------------------------- */
static void forget_derived(mn_grammar *g, mn_gset *s) {
    mn_gmask_free(g, s);
    g->bytes -= (s->next ? 1024 : 0) + s->n_calls * sizeof *s->call;
    mn_free(s->next);
    mn_free(s->call);
    s->next = NULL;
    s->call = NULL;
    s->n_calls = 0;
    s->calls_known = false;
    s->run_next = MN_GSET_ASK;
}

static void renumber(mn_gstack *k, const uint32_t *to) {
    for (uint32_t i = 0; i < k->n_heads; i++)
        k->head[i].set = to[k->head[i].set];
    for (uint32_t i = 1; i < k->n_frames; i++)
        k->frame[i].set = to[k->frame[i].set];
}

static void mark_states(mn_grammar *g) {
    for (uint32_t i = 0; i < g->n_sets; i++)
        g->set[i]->marked = false;
    for (const mn_grammar_state *s = g->states; s; s = s->after) {
        for (uint32_t i = 0; i < s->stack.n_heads; i++)
            g->set[s->stack.head[i].set]->marked = true;
        for (uint32_t i = 1; i < s->stack.n_frames; i++)
            g->set[s->stack.frame[i].set]->marked = true;
    }
}

static void sets_sweep(mn_grammar *g, uint32_t *to) {
    uint32_t n = 0;
    mark_states(g);
    for (uint32_t i = 0; i < g->n_sets; i++) {
        mn_gset *s = g->set[i];
        to[i] = n;
        if (!s->marked) {
            sets_set_free(g, s);
            continue;
        }
        forget_derived(g, s);
        g->set[n++] = s;
    }
    g->n_sets = n;
    for (mn_grammar_state *s = g->states; s; s = s->after)
        renumber(&s->stack, to);
    memset(g->start, 0xff, g->nfa.n_rules * sizeof *g->start);
    memset(g->slot, 0xff, g->n_slots * sizeof *g->slot);
    for (uint32_t i = 0; i < n; i++)
        put_slot(g, i);
    g->full = false;
}

void mn_gsets_sweep(mn_grammar *g) {
    uint32_t *to = mn_alloc(g->n_sets, sizeof *to);
    if (!to)
        return;
    pthread_mutex_lock(&g->list_lock);
    sets_sweep(g, to);
    pthread_mutex_unlock(&g->list_lock);
    mn_free(to);
}
