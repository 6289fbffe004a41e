/* numeric_rules.c -- group numeric: a rule per op, which compares the plugin with `reference`
 * (numeric.c) for all its weight types, shapes (numeric_sweeps.c), variants and classes; and the
 * rule about pages that memory_copy made. Layers of several KV groups are in numeric_groups.c. */
#include "numeric.h"
#include <string.h>

/* Of keys and of values. */
static const struct {
    uint32_t k;
    uint32_t v;
} kv_types[] = {
    {MN_F32, MN_F32},   {MN_F16, MN_F16},  {MN_BF16, MN_BF16},
    {MN_Q8_0, MN_Q8_0}, {MN_F16, MN_Q8_0}, {MN_Q8_0, MN_F32},
};
enum { N_KV_TYPES = sizeof kv_types / sizeof *kv_types };

/* Class exact runs with every cache, A16 with those of 16 bits and fewer, A8 with f16 alone. Caches
 * that few use take the plain variant of a shape, and the one with a window, a cap and sinks. */
static bool is_cache_tried(uint32_t precision, uint32_t i, int64_t variant) {
    const bool both = kv_types[i].k == kv_types[i].v;
    const bool usual = both && (kv_types[i].k == MN_F32 || kv_types[i].k == MN_F16);
    if (!usual && variant != 0 && variant != 7 && variant != 32)
        return false;
    if (precision == MN_PRECISION_EXACT)
        return true;
    if (precision == MN_PRECISION_A16 && both && kv_types[i].k == MN_Q8_0)
        return true;
    return both && kv_types[i].k == MN_F16;
}

/* Without a type a cache is f32 in class exact, f16 in the others. */
static void compare_free_cache(numeric *n, uint32_t op, uint32_t dtype, op_shape s) {
    if (s.variant != 0 && s.variant != 7)
        return;
    s.kv_free = 1;
    for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && !check_over(n->c); p++)
        numeric_compare(n, op, dtype, &s, p);
}

static void compare_caches(numeric *n, uint32_t op, uint32_t dtype, op_shape s) {
    compare_free_cache(n, op, dtype, s);
    for (uint32_t i = 0; i < N_KV_TYPES; i++) {
        s.kv_dtype = kv_types[i].k;
        s.v_dtype = kv_types[i].v;
        for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && !check_over(n->c); p++)
            if (is_cache_tried(p, i, s.variant))
                numeric_compare(n, op, dtype, &s, p);
    }
}

/* Class by class of one case, so that the oracle computes each once. */
static void compare_classes(numeric *n, const check_sweep *w, uint32_t dtype, op_shape s) {
    if (w->op == MN_OP_KV_STORE || w->op == MN_OP_ATTENTION) {
        compare_caches(n, w->op, dtype, s);
        return;
    }
    for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && !check_over(n->c); p++)
        numeric_compare(n, w->op, dtype, &s, p);
}

/* Of what contract 3 adds each alone, and with a few of what was there. */
static bool is_attention_tried(uint32_t v) {
    enum { WINDOW = 1, CAP = 2, SINKS = 4, BOTH_WAYS = 8, SLOPES = 16, OF_KEYS = 32, CHUNKS = 64 };
    static const uint8_t tried[] = {SLOPES,
                                    SLOPES | WINDOW,
                                    SLOPES | CAP | SINKS,
                                    SLOPES | BOTH_WAYS,
                                    OF_KEYS,
                                    OF_KEYS | WINDOW | CAP | SINKS,
                                    OF_KEYS | SLOPES,
                                    CHUNKS,
                                    CHUNKS | SINKS,
                                    CHUNKS | WINDOW,
                                    CHUNKS | OF_KEYS};
    for (uint32_t i = 0; i < sizeof tried; i++)
        if (tried[i] == v)
            return true;
    return false;
}

/* Variants of what contracts 4 and 5 brought, with what goes together with it. */
static bool is_joined(uint32_t v, uint32_t shape) {
    static const uint32_t all[] = {
        128,                     /* lengths */
        128 + 6,                 /* with a cap and sinks */
        128 + 256,               /* with biases of distances */
        256,                     /* these alone */
        256 + 7,                 /* with a window, a cap and sinks */
        256 + 8,                 /* both ways */
        512,                     /* ancestors */
        512 + 256 + 6,           /* with all that goes with them */
        128 + 32,                /* lengths where values are of keys */
        128 + 256 + 16 + 2,      /* all that joins logits, of another text */
        512 + 16,                /* ancestors with slopes */
        512 + 256 + 32 + 16 + 2, /* values of keys, too */
        1024,                    /* relative keys */
        1024 + 2048 + 8,         /* queries, too, both ways */
        2048 + 8,                /* these alone */
        1024 + 2048 + 16 + 7,    /* with slopes, a window, a cap and sinks */
    };
    for (uint32_t k = 0; k < MN_COUNT(all); k++)
        if (all[k] == v)
            return shape % 2 == k % 2 || !shape;
    return false;
}

/* Variant v of shape i is tried. There are many matrix types: of the shapes after the first, one
 * variant each is enough. */
static bool is_tried(const check_sweep *w, uint32_t i, uint32_t v) {
    if (w->op == MN_OP_MOE_ROUTE && (v & 3) == MN_ROUTE_SPARSEMIXER)
        return w->shapes[i].n_used == 2 && !(v & 24);
    if (w->op == MN_OP_MOE_ROUTE && (v & 16))
        return w->shapes[i].n_expert % 4 == 0;
    if (w->op == MN_OP_ROPE && (v & 6) == 4)
        return false; /* axes of no positions */
    if (case_act_kind(v) > (w->op == MN_OP_ACT ? MN_ACT_XIELU : MN_ACT_RELU2) &&
        (w->op == MN_OP_ACT || w->op == MN_OP_GLU))
        return false;
    if (w->op == MN_OP_ACT && (v & 4))
        return false;
    if (w->op == MN_OP_ATTENTION && v >= 16)
        return v < 128 ? is_attention_tried(v) : is_joined(v, i);
    if (w->op == MN_OP_MOE_LINEAR && v >= 8) /* experts that are not there */
        return i == 0 ? v == 8 || v == 15 : v == 11;
    return w->types != SWEEP_MATRIX || i == 0 || v == i % w->n_variants;
}

/* k of a shape in elements. Rows of more than 2048 would make a rule too slow. */
static int64_t elements_of(const check_sweep *w, uint32_t dtype, int64_t k) {
    if (!w->k_blocks)
        return k;
    const int64_t block = case_dtype(dtype).block_elems;
    while (block > 1 && k * block > 2048)
        k /= 2;
    return k * block;
}

static void sweep_type(numeric *n, const check_sweep *w, uint32_t dtype) {
    for (uint32_t i = 0; i < w->n_shapes; i++)
        for (uint32_t v = 0; v < w->n_variants && !check_over(n->c); v++) {
            op_shape s = w->shapes[i];
            if (!is_tried(w, i, v))
                continue;
            s.variant = v;
            s.k = elements_of(w, dtype, s.k);
            compare_classes(n, w, dtype, s);
        }
}

static bool has_type(const check_sweep *w, uint32_t type) {
    if (w->types == SWEEP_MATRIX)
        return case_is_weight_type(type);
    const bool is_float = type == MN_F32 || type == MN_F16 || type == MN_BF16;
    return w->types == SWEEP_VECTOR && is_float;
}

static void sweep_types(numeric *n, const check_sweep *w) {
    check *c = n->c;
    if (w->types == SWEEP_NONE)
        sweep_type(n, w, MN_DTYPE_NONE);
    for (uint32_t i = 0; mn_dtype_at(i) && !check_over(c); i++)
        if (has_type(w, mn_dtype_at(i)))
            sweep_type(n, w, mn_dtype_at(i));
    if (!n->n_cases && n->n_unproven)
        check_skip(c, "claimed, but the plugin `reference` has no kernel for it");
    else if (!n->n_cases)
        check_skip(c, "the plugin does not support %s%s", case_op_name(w->op),
                   check_no_text(&n->plugin));
    check_found(c, "%u steps%s", n->n_cases,
                n->n_unproven ? "; the plugin `reference` has no kernel for some types" : "");
}

static void sweep(check *c, uint32_t op) {
    const check_sweep *w = check_sweeps;
    numeric n;
    while (w->op != op)
        w++;
    if (numeric_open(c, &n))
        sweep_types(&n, w);
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
SWEEP(conv_state, CONV_STATE)
SWEEP(ssm_scan, SSM_SCAN)
SWEEP(gated_delta, GATED_DELTA)
SWEEP(lookup, LOOKUP)
SWEEP(lora, LORA)

/* ---- pages that are copied ------------------------------------------------------------------- */
/* The integers of an input; *n: how many. */
static int32_t *numeric_rule_data_of(op_case *c, const char *name, uint64_t *n) {
    uint32_t i = 0;
    while (strcmp(c->t[i].name.ptr, name))
        i++;
    *n = c->bytes[i] / 4;
    return c->data[i];
}

/* Page 1 + i to page 1 + n_pages + i, and this one in a second call, which finds what the first one
 * has written, to page 1 + 2 * n_pages + i. Pages descend (case_cache.c), so that page 1 is the
 * last one of the sequence, which holds `last` tokens. */
static mn_status copy_pages(case_plan *plan, uint32_t group, uint32_t n_pages, uint32_t last,
                            uint32_t page_tokens, mn_error *err) {
    mn_page_copy pairs[64];
    mn_status st = MN_OK;
    for (uint32_t to = n_pages; to <= 2 * n_pages && !st; to += n_pages) {
        for (uint32_t i = 0; i < n_pages; i++)
            pairs[i] = (mn_page_copy){to - n_pages + 1 + i, to + 1 + i, i ? page_tokens : last, 0};
        st = case_memory_copy(plan, group, pairs, n_pages, err);
    }
    return st;
}

/* The tokens of a page on the plugin's device; 0 = it has no such cache. */
static uint32_t tokens_of_page(const numeric *n, const op_shape *s) {
    op_case *c = case_random(MN_OP_ATTENTION, 0, s, 7);
    mn_memory_layout l = {.size = sizeof l};
    if (c && !c->failed && case_supported(&n->here, c)) {
        const mn_compile ask = case_question(c, MN_PRECISION_EXACT);
        if (n->here.be->memory_layout(n->here.dev, &ask, s->kv_group, &l, NULL))
            l.page_tokens = 0;
    }
    case_free(c);
    return l.page_tokens;
}

/* The case reads the copies of its pages, and stores nothing. */
static void use_copies(op_case *c, uint32_t n_pages) {
    uint64_t n_table;
    uint64_t n_pos;
    int32_t *table = numeric_rule_data_of(c, "pages", &n_table);
    int32_t *pos = numeric_rule_data_of(c, "kpos", &n_pos);
    for (uint64_t i = 0; i < n_table; i++)
        table[i] += (int32_t)n_pages;
    for (uint64_t i = 0; i < n_pos; i++)
        pos[i] = -1;
}

/* a and b are equal cases of shape s: a fills the cache, its pages are copied, b reads the
 * copies. */
static void compare_copies(numeric *n, const op_shape *s, op_case *a, op_case *b) {
    const uint32_t group = s->kv_group;
    const char *where = "";
    const char *type = mn_dtype_name(s->kv_dtype);
    const uint32_t len = (uint32_t)(s->past + s->rows);
    const uint32_t pages = (len + s->page_tokens - 1) / s->page_tokens;
    const uint32_t last = len - (pages - 1) * s->page_tokens;
    mn_error err = check_error();
    case_plan *plan = NULL;
    if (a->failed || b->failed || pages > 64)
        return;
    a->kv[group].pages = 3 * pages + 1;
    use_copies(b, 2 * pages);
    check_doing(n->c, "memory_copy of %u pages of group %u ran, KV %s", pages, group, type);
    mn_status st = case_open(&n->here, a, MN_PRECISION_EXACT, &plan, &err);
    if (!st)
        st = case_step(plan, a, &err);
    if (!st)
        st = copy_pages(plan, group, pages, last, s->page_tokens, &err);
    if (!st)
        st = case_step(plan, b, &err);
    check_status(n->c, st, &err, "KV %s, group %u", type, group);
    if (!st && case_differ(b, a, &where) != 0)
        check_fail(
            n->c,
            "KV %s, group %u: attention over copied pages computes another '%s' than over the "
            "pages themselves, expected the same bits",
            type, group, where);
    n->n_cases++;
    case_close(plan);
}

static void copied(numeric *n, uint32_t k_dtype, uint32_t v_dtype, uint32_t group) {
    op_shape s = {
        .rows = 5,
        .n_head = 4,
        .n_head_kv = 2,
        .dim = 32,
        .past = 150,
        .kv_dtype = k_dtype,
        .v_dtype = v_dtype,
        .kv_group = group,
    };
    s.page_tokens = tokens_of_page(n, &s);
    if (!s.page_tokens)
        return;
    op_case *a = case_random(MN_OP_ATTENTION, 0, &s, 7);
    op_case *b = case_random(MN_OP_ATTENTION, 0, &s, 7);
    if (a && b)
        compare_copies(n, &s, a, b);
    case_free(a);
    case_free(b);
}

static void copy_each(numeric *n) {
    for (uint32_t i = 0; i < N_KV_TYPES; i++)
        for (uint32_t group = 0; group < CASE_GROUPS && !check_over(n->c); group++)
            copied(n, kv_types[i].k, kv_types[i].v, group);
    if (!n->n_cases)
        check_skip(n->c, "the plugin does not support KV_STORE or ATTENTION%s",
                   check_no_text(&n->plugin));
}

void check_numeric_memory_copy(check *c) {
    numeric n;
    if (numeric_open(c, &n))
        copy_each(&n);
    numeric_close(&n);
}
