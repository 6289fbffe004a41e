/* numeric_groups.c -- KV groups and segments: layers of two groups by turns, of which a segment
 * holds all, some, or those of one group, and need not hold the first. What each layer gives is
 * held against `reference`, whose pages may be of another size. */
#include "numeric.h"
#include <math.h>
#include <stdio.h>

#define LAYERS 4 /* two of each group */

/* Groups of unlike geometry: one page table, size or buffer for both is wrong for one of them. */
static const op_shape shapes[CASE_GROUPS] = {
    {.rows = 9, .n_head = 4, .n_head_kv = 1, .dim = 32, .past = 150, .n_seqs = 2},
    {.rows = 9, .n_head = 4, .n_head_kv = 2, .dim = 64, .past = 150, .n_seqs = 2, .variant = 1},
};

/* Runs of nodes; a layer is two. */
static const struct {
    uint32_t lo, hi;
    const char *what;
} segments[] = {
    {0, 8, "two layers of each KV group"},
    {4, 8, "KV layer 1 of both groups"},
    {2, 6, "KV layer 0 of group 1 and KV layer 1 of group 0"},
    {6, 8, "KV layer 1 of group 1 alone"},
};

/* One side of the comparison: a plugin, and the shapes with the tokens of its pages. */
typedef struct {
    const case_on *on;
    op_shape shape[CASE_GROUPS];
    op_case *first; /* holds nothing but the program's graph */
    case_plan *plan;
} side;

static op_case *make(const side *s, uint32_t segment, bool dirty) {
    op_shape shape[CASE_GROUPS] = {s->shape[0], s->shape[1]};
    shape[0].dirty = shape[1].dirty = dirty;
    op_case *c = case_groups(shape, LAYERS, 4242);
    if (c) {
        c->node_lo = segments[segment].lo;
        c->node_hi = segments[segment].hi;
    }
    return c;
}

/* Asks for the pages of each group of the segment, then compiles. */
static mn_status open_side(side *s, const case_on *on, uint32_t kv_dtype, uint32_t precision,
                           uint32_t segment, mn_error *err) {
    s->on = on;
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        s->shape[i] = shapes[i];
        s->shape[i].kv_dtype = kv_dtype;
    }
    op_case *c = make(s, segment, false);
    mn_status st = c && !c->failed ? MN_OK : MN_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < CASE_GROUPS && !st; i++) {
        mn_kv_layout l = {.size = sizeof l};
        const mn_compile ask = case_question(c, precision);
        if (!case_in_segment(c, (uint32_t)c->kv[i].tensor))
            continue;
        st = on->be->kv_layout(on->dev, &ask, i, &l, err);
        s->shape[i].page_tokens = l.page_tokens;
    }
    case_free(c);
    if (st)
        return st;
    s->first = make(s, segment, false);
    return case_open(on, s->first, precision, &s->plan, err);
}

static void close_side(side *s) {
    case_close(s->plan);
    case_free(s->first);
}

/* A step on NaN and Inf, then one whose results are kept in *out. */
static mn_status run_side(side *s, uint32_t segment, op_case **out, mn_error *err) {
    op_case *c = make(s, segment, true);
    mn_status st = c ? case_step(s->plan, c, err) : MN_OUT_OF_MEMORY;
    case_free(c);
    *out = make(s, segment, false);
    if (!st)
        st = *out ? case_step(s->plan, *out, err) : MN_OUT_OF_MEMORY;
    return st;
}

static void compare(numeric *n, uint32_t precision, uint32_t segment) {
    const uint32_t kv = precision == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
    const char *what = segments[segment].what, *class = check_class_name(precision), *where = "";
    side mine = {0}, theirs = {0};
    op_case *a = NULL, *b = NULL;
    mn_error err = check_error();
    check_doing(n->c, "a segment with %s ran, class %s", what, class);
    mn_status st = open_side(&theirs, &n->there, kv, MN_PRECISION_EXACT, segment, &err);
    if (!st)
        st = run_side(&theirs, segment, &b, &err);
    if (st)
        check_skip(n->c, "the oracle failed: %s", err.msg);
    if (!st)
        st = open_side(&mine, &n->here, kv, precision, segment, &err);
    const bool refused =
        st && precision != MN_PRECISION_EXACT && MN_STATUS_CLASS(st) == MN_CLASS_REFUSE;
    if (!st)
        st = run_side(&mine, segment, &a, &err);
    if (st && !refused)
        check_fail(n->c, "a segment with %s, class %s: found status 0x%x (%s), expected MN_OK",
                   what, class, (unsigned)st, err.msg);
    if (!st && case_breach(mine.plan)[0])
        check_fail(n->c, "a segment with %s, class %s: %s", what, class, case_breach(mine.plan));
    if (!st) {
        const double e = case_differ(a, b, &where), most = check_class_limit(precision);
        if (!(e <= most))
            check_fail(n->c,
                       "a segment with %s, class %s: '%s' differs from reference's: relative L2 "
                       "%g, expected at most %g",
                       what, class, where, e, most);
        n->n_cases++;
    }
    case_free(a);
    case_free(b);
    close_side(&mine);
    close_side(&theirs);
}

void check_numeric_groups(check *c) {
    numeric n;
    if (numeric_open(c, &n)) {
        op_case *any = case_groups(shapes, LAYERS, 1);
        const bool claimed = any && !any->failed && case_supported(&n.here, any, NULL);
        case_free(any);
        if (!claimed)
            check_skip(c, "the plugin says no to KV_STORE or ATTENTION");
        for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A16 && claimed; p++)
            for (uint32_t i = 0; i < sizeof segments / sizeof *segments && !check_over(c); i++)
                compare(&n, p, i);
        check_found(c, "%u segments", n.n_cases);
    }
    numeric_close(&n);
}
