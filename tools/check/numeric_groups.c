/* numeric_groups.c -- rule numeric.groups: KV groups and segments. The layers of two groups
 * alternate; a segment holds all of them, some, or those of one group, and need not hold the
 * first. The results of each layer are compared with those of `reference`, whose pages may have
 * another size. Each side owns its plan and the case that holds its graph until close_side. */
#include "numeric.h"
#include <math.h>
#include <stdio.h>

#define LAYERS 4 /* two of each group */

/* The groups differ in heads, dims and window: a plugin that uses the page table, page size or
 * buffer of one for the other is found. */
static const op_shape shapes[CASE_GROUPS] = {
    {.rows = 9, .n_head = 4, .n_head_kv = 1, .dim = 32, .past = 150, .n_seqs = 2},
    {.rows = 9, .n_head = 4, .n_head_kv = 2, .dim = 64, .past = 150, .n_seqs = 2, .variant = 1},
};

/* Nodes [lo, hi); a layer is two nodes. */
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

/* dirty: all values are NaN and Inf. NULL = out of memory. */
static op_case *numeric_groups_make(const side *s, uint32_t segment, bool dirty) {
    op_shape shape[CASE_GROUPS] = {s->shape[0], s->shape[1]};
    shape[0].dirty = dirty;
    shape[1].dirty = dirty;
    op_case *c = case_groups(shape, LAYERS, 4242);
    if (!c)
        return NULL;
    c->node_lo = segments[segment].lo;
    c->node_hi = segments[segment].hi;
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
    op_case *c = numeric_groups_make(s, segment, false);
    mn_status st = MN_OUT_OF_MEMORY;
    if (c && !c->failed)
        st = MN_OK;
    for (uint32_t i = 0; i < CASE_GROUPS && !st; i++) {
        mn_memory_layout l = {.size = sizeof l};
        const mn_compile ask = case_question(c, precision);
        if (!case_in_segment(c, (uint32_t)c->kv[i].tensor))
            continue;
        st = on->be->memory_layout(on->dev, &ask, i, &l, err);
        s->shape[i].page_tokens = l.page_tokens;
    }
    case_free(c);
    if (st)
        return st;
    s->first = numeric_groups_make(s, segment, false);
    return case_open(on, s->first, precision, &s->plan, err);
}

static void close_side(side *s) {
    case_close(s->plan);
    case_free(s->first);
}

/* A step on NaN and Inf, then one whose results are kept in *out. */
static mn_status run_side(side *s, uint32_t segment, op_case **out, mn_error *err) {
    op_case *c = numeric_groups_make(s, segment, true);
    mn_status st = MN_OUT_OF_MEMORY;
    if (c)
        st = case_step(s->plan, c, err);
    case_free(c);
    *out = numeric_groups_make(s, segment, false);
    if (st)
        return st;
    if (!*out)
        return MN_OUT_OF_MEMORY;
    return case_step(s->plan, *out, err);
}

/* The plugin's results of a segment against want, those of `reference`. A class other than exact
 * may be refused. */
static void run_and_compare(numeric *n, uint32_t kv_dtype, uint32_t precision, uint32_t segment,
                            const op_case *want) {
    const char *what = segments[segment].what;
    const char *class = check_class_name(precision);
    const char *where = "";
    check *c = n->c;
    side mine = {0};
    op_case *got = NULL;
    mn_error err = check_error();
    check_doing(c, "a segment with %s ran, class %s", what, class);
    mn_status st = open_side(&mine, &n->here, kv_dtype, precision, segment, &err);
    const bool refused = st && MN_STATUS_CLASS(st) == MN_CLASS_REFUSE;
    if (!st)
        st = run_side(&mine, segment, &got, &err);
    if (!refused || precision == MN_PRECISION_EXACT)
        check_status(c, st, &err, "a segment with %s, class %s", what, class);
    if (!st && case_breach(mine.plan)[0])
        check_fail(c, "a segment with %s, class %s: %s", what, class, case_breach(mine.plan));
    double e = 0;
    if (!st)
        e = case_differ(got, want, &where);
    const double most = check_class_limit(precision);
    if (!(e <= most))
        check_fail(c,
                   "a segment with %s, class %s: '%s' differs from reference's: found relative L2 "
                   "%g, expected at most %g",
                   what, class, where, e, most);
    n->n_cases += !st;
    case_free(got);
    close_side(&mine);
}

static void numeric_groups_compare(numeric *n, uint32_t precision, uint32_t segment) {
    uint32_t kv = MN_F16;
    if (precision == MN_PRECISION_EXACT)
        kv = MN_F32;
    side theirs = {0};
    op_case *want = NULL;
    mn_error err = check_error();
    mn_status st = open_side(&theirs, &n->there, kv, MN_PRECISION_EXACT, segment, &err);
    if (!st)
        st = run_side(&theirs, segment, &want, &err);
    if (st)
        check_skip(n->c, "the plugin `reference` failed: %s", err.msg);
    else
        run_and_compare(n, kv, precision, segment, want);
    case_free(want);
    close_side(&theirs);
}

static bool claims_attention(const numeric *n) {
    op_case *any = case_groups(shapes, LAYERS, 1);
    const bool claimed = any && case_supported(&n->here, any);
    case_free(any);
    return claimed;
}

static void compare_all(numeric *n) {
    check *c = n->c;
    if (!claims_attention(n)) {
        check_skip(c, "the plugin does not support KV_STORE or ATTENTION%s",
                   check_no_text(&n->plugin));
        return;
    }
    for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A16; p++)
        for (uint32_t i = 0; i < sizeof segments / sizeof *segments && !check_over(c); i++)
            numeric_groups_compare(n, p, i);
    check_found(c, "%u segments", n->n_cases);
}

void check_numeric_groups(check *c) {
    numeric n;
    if (numeric_open(c, &n))
        compare_all(&n);
    numeric_close(&n);
}
