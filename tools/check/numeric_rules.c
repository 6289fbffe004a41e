/* numeric_rules.c -- a rule per op: its types, shapes, variants and classes, and pages that are
 * copied. */
#include "numeric.h"
#include <string.h>

static const uint32_t kv_types[] = {MN_F32, MN_F16, MN_BF16, MN_Q8_0};

/* All classes; with a cache class exact on every type of cache and the others on f16, as they
 * run. */
static void compare_classes(numeric *n, uint32_t op, uint32_t dtype, op_shape s) {
    bool cached = op == MN_OP_KV_STORE || op == MN_OP_ATTENTION;
    for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && !check_over(n->c); p++)
        for (uint32_t k = 0; k < (cached ? 4 : 1) && !check_over(n->c); k++) {
            if (cached && p != MN_PRECISION_EXACT && kv_types[k] != MN_F16)
                continue;
            s.kv_dtype = cached ? kv_types[k] : 0;
            numeric_compare(n, op, dtype, &s, p);
        }
}

static void sweep_type(numeric *n, const check_sweep *w, uint32_t dtype) {
    uint32_t before = n->n_cases;
    for (uint32_t i = 0; i < w->n_shapes; i++)
        for (uint32_t v = 0; v < w->n_variants && !check_over(n->c); v++) {
            op_shape s = w->shapes[i];
            if (w->op == MN_OP_MOE_ROUTE && (v & 3) > MN_ROUTE_SIGMOID)
                continue;
            /* there are many types */
            if (w->types == SWEEP_MATRIX && i && v != i % w->n_variants)
                continue;
            s.variant = v;
            if (w->k_blocks) {
                int64_t block = case_dtype(dtype).block_elems;
                while (block > 1 && s.k * block > 2048)
                    s.k /= 2;
                s.k *= block;
            }
            compare_classes(n, w->op, dtype, s);
        }
    n->n_types += n->n_cases > before;
}

static void sweep(check *c, uint32_t op) {
    const check_sweep *w = check_sweeps;
    numeric n;
    while (w->op != op)
        w++;
    if (numeric_open(c, &n)) {
        for (uint32_t i = 0; mn_dtype_at(i) && !check_over(c); i++) {
            const uint32_t type = mn_dtype_at(i);
            const bool plain = type == MN_F32 || type == MN_F16 || type == MN_BF16;
            if (w->types == SWEEP_MATRIX ? case_is_weight_type(type)
                                         : w->types == SWEEP_VECTOR && plain)
                sweep_type(&n, w, type);
        }
        if (w->types == SWEEP_NONE)
            sweep_type(&n, w, MN_DTYPE_NONE);
        if (!n.n_cases && n.n_unproven)
            check_skip(c, "claimed, but the oracle has no kernel for it yet");
        else if (!n.n_cases)
            check_skip(c, "the plugin says no to %s", case_op_name(op));
        check_found(c, "%u steps%s", n.n_cases,
                    n.n_unproven ? "; the oracle has no kernel for some types yet" : "");
    }
    numeric_close(&n);
}

#define SWEEP(name, OP)                                                                            \
    void check_numeric_##name(check *c) {                                                          \
        sweep(c, MN_OP_##OP);                                                                      \
    }
SWEEP(embed, EMBED)
SWEEP(rms_norm, RMS_NORM)
SWEEP(layer_norm, LAYER_NORM)
SWEEP(linear, LINEAR)
SWEEP(rope, ROPE)
SWEEP(kv_store, KV_STORE)
SWEEP(attention, ATTENTION)
SWEEP(act, ACT)
SWEEP(glu, GLU)
SWEEP(add, ADD)
SWEEP(mul, MUL)
SWEEP(scale, SCALE)
SWEEP(softcap, SOFTCAP)
SWEEP(gather_rows, GATHER_ROWS)
SWEEP(sample, SAMPLE)
SWEEP(moe_route, MOE_ROUTE)
SWEEP(moe_linear, MOE_LINEAR)
SWEEP(moe_combine, MOE_COMBINE)

/* ---- pages that are copied ------------------------------------------------------------------- */
static int32_t *data_of(op_case *c, const char *name, uint64_t *n) {
    for (uint32_t i = 0; i < c->g.n_tensors; i++)
        if (!strcmp(c->t[i].name.ptr, name)) {
            *n = c->bytes[i] / 4;
            return c->data[i];
        }
    return NULL;
}

static mn_status copy_pages(case_plan *plan, uint32_t group, uint32_t n_pages, uint32_t last,
                            uint32_t page_tokens, mn_error *err) {
    mn_page_copy pairs[64];
    /* page 1 + (pages - 1 - i) is the slot's i-th: the half-filled one is page 1 */
    for (uint32_t i = 0; i < n_pages; i++)
        pairs[i] = (mn_page_copy){1 + i, n_pages + 1 + i, i ? page_tokens : last, 0};
    return case_kv_copy(plan, group, pairs, n_pages, err);
}

/* The tokens of a page on the plugin's device; 0 = it has no such cache. */
static uint32_t tokens_of_page(const numeric *n, const op_shape *s) {
    op_case *c = case_random(MN_OP_ATTENTION, 0, s, 7);
    mn_kv_layout l = {.size = sizeof l};
    if (c && !c->failed && case_supported(&n->here, c, NULL)) {
        const mn_compile ask = case_question(c, MN_PRECISION_EXACT);
        if (n->here.be->kv_layout(n->here.dev, &ask, s->kv_group, &l, NULL))
            l.page_tokens = 0;
    }
    case_free(c);
    return l.page_tokens;
}

/* A sequence, its pages copied, and the same queries over the copies: nothing is stored in
 * between. */
static void copied(check *c, numeric *n, uint32_t kv_dtype, uint32_t group) {
    op_shape s = {.rows = 5,
                  .n_head = 4,
                  .n_head_kv = 2,
                  .dim = 32,
                  .past = 150,
                  .kv_dtype = kv_dtype,
                  .kv_group = group};
    const char *where = "", *type = mn_dtype_name(kv_dtype);
    mn_error err = check_error();
    case_plan *plan = NULL;
    s.page_tokens = tokens_of_page(n, &s);
    if (!s.page_tokens)
        return;
    const uint32_t len = (uint32_t)(s.past + s.rows);
    const uint32_t pages = (len + s.page_tokens - 1) / s.page_tokens;
    const uint32_t last = len - (pages - 1) * s.page_tokens;
    uint64_t n_table = 0, n_pos = 0;
    op_case *a = case_random(MN_OP_ATTENTION, 0, &s, 7),
            *b = case_random(MN_OP_ATTENTION, 0, &s, 7);
    if (!a || !b || pages > 64)
        goto out;
    a->kv[group].pages = 2 * pages + 1;
    check_doing(c, "kv_copy of %u pages of group %u ran, KV %s", pages, group, type);
    mn_status st = case_open(&n->here, a, MN_PRECISION_EXACT, &plan, &err);
    if (!st)
        st = case_step(plan, a, &err);
    if (!st)
        st = copy_pages(plan, group, pages, last, s.page_tokens, &err);
    int32_t *table = data_of(b, "pages", &n_table), *pos = data_of(b, "kpos", &n_pos);
    for (uint64_t i = 0; i < n_table; i++)
        table[i] += (int32_t)pages;
    for (uint64_t i = 0; i < n_pos; i++)
        pos[i] = -1;
    if (!st)
        st = case_step(plan, b, &err);
    if (st)
        check_fail(c, "KV %s, group %u: found status 0x%x (%s), expected MN_OK", type, group,
                   (unsigned)st, err.msg);
    else if (case_differ(b, a, &where) != 0)
        check_fail(c,
                   "KV %s, group %u: attention over copied pages gives another '%s' than over the "
                   "pages themselves, expected the same bits",
                   type, group, where);
    n->n_cases++;
out:
    case_close(plan);
    case_free(a), case_free(b);
}

void check_numeric_kv_copy(check *c) {
    numeric n;
    if (numeric_open(c, &n)) {
        for (size_t i = 0; i < sizeof kv_types / sizeof *kv_types; i++)
            for (uint32_t group = 0; group < CASE_GROUPS && !check_over(c); group++)
                copied(c, &n, kv_types[i], group);
        if (!n.n_cases)
            check_skip(c, "the plugin says no to KV_STORE or ATTENTION");
    }
    numeric_close(&n);
}
