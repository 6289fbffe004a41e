/* cut.c -- strings that several expressions allow together, that others do not match, of a limited
 * number of characters: lengths beside a pattern, names that are none of the known ones. Each
 * expression becomes an automaton that is made deterministic on demand (sets.c); their product is
 * found state by state and becomes an expression of its own. All of them write a character in the
 * one way of mn_gx_chars, so that no other way of writing it goes past them. */
#include "grammar/grammar_impl.h"
#include <string.h>

enum { MOST_STATES = 1u << 15, MOST_BYTES = 24u << 20, EXPAND_WORK = 128 };

/* A state of the product: at[0] in any string, at[1 + i] in part i, the characters so far. */
typedef struct {
    int32_t at[MN_GCUT_PARTS + 1];
    uint32_t count;
} place;
typedef struct {
    mn_gbuild *b;
    const mn_gcut *cut;
    mn_grammar dfa[MN_GCUT_PARTS + 1];
    place *list;
    uint32_t n;
    size_t cap;
    uint32_t *slot; /* [2 * MOST_STATES] states by hash */
    mn_gtable *out;
    size_t cap_runs;
} product;

mn_gexpr *mn_gx_any_char(mn_gbuild *b) {
    mn_gchars all = {0};
    mn_gchars_add(&all, 0, 0x10ffff);
    mn_gexpr *x = mn_gx_chars(b, &all, true);
    mn_gchars_free(&all);
    return x;
}

/* An automaton of its own; without any start where x matches nothing. */
static bool open_dfa(mn_gbuild *b, mn_gexpr *x, mn_grammar *g) {
    mn_error err = MN_ERROR_INIT;
    mn_gbuild own = {.err = &err, .budget = b->budget};
    mn_grule_add(&own, "string", x);
    if (!own.status)
        mn_gnfa_build(&own, &g->nfa);
    if (own.status != MN_BAD_INPUT && !own.status && mn_gsets_init(g))
        mn_gbuild_memory(&own);
    const mn_status st = own.status;
    b->budget = own.budget;
    g->budget = &b->budget;
    mn_gbuild_free(&own);
    if (st && st != MN_BAD_INPUT)
        b->status = mn_fail(b->err, st, "%s", err.msg);
    return !st;
}

/* An automaton that ran out of memory or work says too little: what is excluded would not be. */
static bool refuse_dfa(mn_gbuild *b) {
    if (b->budget.over)
        return mn_gbuild_spend(b, 1);
    return mn_gbuild_memory(b);
}

static void close_dfa(mn_grammar *g) {
    mn_gsets_free(g);
    mn_gnfa_free(&g->nfa);
}

static int32_t cut_step(mn_grammar *g, int32_t at, uint8_t byte) {
    return at < 0 ? at : mn_gset_next(g, g->set[at], byte);
}

static bool ends(const mn_grammar *g, int32_t at) {
    return at >= 0 && g->set[at]->ends;
}

/* The place behind one byte; false = no string goes on like that. */
static bool next_place(product *p, const place *from, uint8_t byte, place *to) {
    const mn_gcut *cut = p->cut;
    memset(to, 0, sizeof *to);
    to->count = from->count;
    for (uint32_t i = 0; i <= cut->n; i++) {
        to->at[i] = cut_step(&p->dfa[i], from->at[i], byte);
        const bool must = !i || !cut->part[i - 1].not ;
        if (must && to->at[i] < 0)
            return false;
    }
    if (to->at[0] == p->list[0].at[0])
        to->count++;
    if (cut->max == MN_GNEVER)
        to->count = MN_MIN(to->count, cut->min);
    return to->count <= cut->max;
}

/* Whole characters, enough of them, in all parts and in none of those that are excluded. */
static bool accepted(const product *p, const place *at) {
    bool ok = at->at[0] == p->list[0].at[0] && at->count >= p->cut->min;
    for (uint32_t i = 0; i < p->cut->n; i++)
        ok &= ends(&p->dfa[i + 1], at->at[i + 1]) != p->cut->part[i].not ;
    return ok;
}

/* The number of a state, which is made where it is new; MN_GNONE: b->status says why. */
static uint32_t cut_state_of(product *p, const place *at) {
    uint64_t way = mn_hash(at, sizeof *at, 3) % (2 * MOST_STATES);
    for (; p->slot[way] != MN_GNONE; way = (way + 1) % (2 * MOST_STATES)) {
        if (!memcmp(&p->list[p->slot[way]], at, sizeof *at))
            return p->slot[way];
    }
    if (p->n == MOST_STATES) {
        p->b->status = mn_fail(p->b->err, MN_UNSUPPORTED, "%s: needs more than %u states",
                               p->cut->where, MOST_STATES);
        return MN_GNONE;
    }
    if (!mn_grow((void **)&p->list, &p->cap, p->n + 1u, sizeof *p->list)) {
        mn_gbuild_memory(p->b);
        return MN_GNONE;
    }
    p->list[p->n] = *at;
    p->slot[way] = p->n;
    return p->n++;
}

/* A byte of the state at hand; fresh: its first. Neighbours with the same target are one run. */
static bool cut_add_run(product *p, uint8_t byte, uint32_t to, bool fresh) {
    mn_gtable *t = p->out;
    if (!fresh && t->run[t->n_runs - 1].to == to && t->run[t->n_runs - 1].hi + 1 == byte) {
        t->run[t->n_runs - 1].hi = byte;
        return true;
    }
    if (!mn_grow((void **)&t->run, &p->cap_runs, t->n_runs + 1u, sizeof *t->run))
        return mn_gbuild_memory(p->b);
    t->run[t->n_runs++] = (mn_grun){byte, byte, to};
    return true;
}

/* All bytes that go on from state i; neighbours mostly lead to the same place. */
static bool expand(product *p, uint32_t i) {
    const place from = p->list[i];
    place before;
    uint32_t n = MN_GNONE;
    bool fresh = true;
    if (!mn_gbuild_spend(p->b, (1ull + p->cut->n) * EXPAND_WORK))
        return false;
    memset(&before, 0xff, sizeof before);
    for (uint32_t byte = 0; byte < 256; byte++) {
        place to;
        if (!next_place(p, &from, (uint8_t)byte, &to))
            continue;
        if (memcmp(&to, &before, sizeof to))
            n = cut_state_of(p, &to);
        if (n == MN_GNONE || !cut_add_run(p, (uint8_t)byte, n, fresh))
            return false;
        before = to;
        fresh = false;
    }
    return true;
}

/* One part alone takes too many states. */
static bool is_heavy(const product *p) {
    for (uint32_t i = 0; i <= p->cut->n && !p->b->status; i++) {
        if (p->dfa[i].bytes > MOST_BYTES)
            p->b->status = mn_fail(p->b->err, MN_UNSUPPORTED,
                                   "%s: its states need more than %u "
                                   "bytes",
                                   p->cut->where, MOST_BYTES);
    }
    return p->b->status != MN_OK;
}

static bool cut_is_whole(const product *p) {
    for (uint32_t i = 0; i <= p->cut->n; i++) {
        if (p->dfa[i].full || p->dfa[i].failed)
            return refuse_dfa(p->b);
    }
    return true;
}

static bool cut_multiply(product *p) {
    mn_gtable *t = p->out;
    size_t cap_from = 0;
    size_t cap_ends = 0;
    place first;
    memset(&first, 0, sizeof first);
    for (uint32_t i = 0; i <= p->cut->n; i++)
        first.at[i] = p->dfa[i].nfa.n_rules ? mn_gset_start(&p->dfa[i], 0) : MN_GSET_DEAD;
    p->slot = mn_alloc(2 * MOST_STATES, sizeof *p->slot);
    if (!p->slot)
        return mn_gbuild_memory(p->b);
    if (!mn_gbuild_spend(p->b, MOST_STATES / 16))
        return false;
    memset(p->slot, 0xff, 2 * MOST_STATES * sizeof *p->slot);
    if (cut_state_of(p, &first) == MN_GNONE)
        return false;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!mn_grow((void **)&t->from, &cap_from, i + 2u, sizeof *t->from) ||
            !mn_grow((void **)&t->ends, &cap_ends, i + 1u, sizeof *t->ends))
            return mn_gbuild_memory(p->b);
        t->from[i] = t->n_runs;
        t->ends[i] = accepted(p, &p->list[i]);
        if (!expand(p, i) || is_heavy(p))
            return false;
        t->from[i + 1] = t->n_runs;
    }
    t->n = p->n;
    return true;
}

static void cut_table_free(mn_gtable *t) {
    mn_free(t->from);
    mn_free(t->run);
    mn_free(t->ends);
}

/* The table moves into the arena. */
static mn_gexpr *table_expr(mn_gbuild *b, const mn_gtable *t) {
    mn_gexpr *x = mn_gx_new(b, MN_GX_TABLE);
    mn_gtable *copy = mn_arena_alloc(&b->arena, 1, sizeof *copy);
    if (!x || !copy)
        return mn_gbuild_memory(b);
    *copy = *t;
    copy->from = mn_arena_alloc(&b->arena, t->n + 1ull, sizeof *t->from);
    copy->run = mn_arena_alloc(&b->arena, t->n_runs + 1ull, sizeof *t->run);
    copy->ends = mn_arena_alloc(&b->arena, t->n, sizeof *t->ends);
    if (!copy->from || !copy->run || !copy->ends)
        return mn_gbuild_memory(b);
    memcpy(copy->from, t->from, (t->n + 1ull) * sizeof *t->from);
    memcpy(copy->ends, t->ends, t->n * sizeof *t->ends);
    if (t->n_runs)
        memcpy(copy->run, t->run, t->n_runs * sizeof *t->run);
    x->table = copy;
    return x;
}

mn_gexpr *mn_gx_cut(mn_gbuild *b, const mn_gcut *cut) {
    mn_gtable table = {0};
    product *p = mn_calloc(1, sizeof *p);
    mn_gexpr *any = mn_gx_repeat(b, mn_gx_any_char(b), 0, MN_GNEVER);
    mn_gexpr *x = NULL;
    bool possible = p && any;
    if (!possible)
        mn_gbuild_memory(b); /* unless there is a status already */
    for (uint32_t i = 0; possible && !b->status && i <= cut->n; i++) {
        const bool some = open_dfa(b, i ? cut->part[i - 1].x : any, &p->dfa[i]);
        possible = some || (i && cut->part[i - 1].not );
        if (!some) {
            close_dfa(&p->dfa[i]);
            p->dfa[i] = (mn_grammar){0};
        }
    }
    if (p && !b->status) {
        p->b = b;
        p->cut = cut;
        p->out = &table;
        if (!possible)
            x = mn_gx_new(b, MN_GX_ALT);
        else if (cut_multiply(p) && cut_is_whole(p))
            x = table_expr(b, &table);
    }
    for (uint32_t i = 0; p && i <= cut->n; i++)
        close_dfa(&p->dfa[i]);
    cut_table_free(&table);
    if (p) {
        mn_free(p->list);
        mn_free(p->slot);
    }
    mn_free(p);
    return x;
}

bool mn_gx_matches(mn_gbuild *b, mn_gexpr *x, mn_str text) {
    mn_grammar g = {0};
    int32_t at = MN_GSET_DEAD;
    if (open_dfa(b, x, &g))
        at = mn_gset_start(&g, 0);
    for (uint64_t i = 0; i < text.len; i++)
        at = cut_step(&g, at, (uint8_t)text.ptr[i]);
    const bool ok = ends(&g, at);
    if (g.failed || g.full)
        refuse_dfa(b);
    close_dfa(&g);
    return ok;
}
