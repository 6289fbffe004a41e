/* chain.c -- see chain.h. A chain is built from a list of its tensors, so that their order in the
 * graph is free; the data of each comes from the seed and its name, whatever the order. Cases
 * belong to the caller. */
#include "chain.h"
#include <string.h>

/* One tensor of a chain. */
typedef struct {
    const char *name;
    uint32_t role;
    int64_t rows; /* CHAIN_COLS for a matrix, 0 for a vector, < 0: n_tokens */
    const float *data;
} chain_part;

enum { MOST_PARTS = 2 * CHAIN_NODES + 1 };
typedef struct {
    chain_part part[MOST_PARTS];
    int32_t tensor[MOST_PARTS]; /* of each part, once the case has it */
    uint32_t n;
    uint64_t seed;
} chain_parts;

static const char *const tensor_names[CHAIN_NODES + 1] = {"x", "h1", "h2", "y"};
static const char *const weight_names[CHAIN_NODES] = {"w0", "w1", "w2"};
static const char *const second_names[CHAIN_NODES] = {"c0", "c1", "c2"};

/* ---- tensors --------------------------------------------------------------------------------- */
/* The number of the new part. */
static uint32_t chain_add(chain_parts *p, uint32_t role, const char *name, int64_t rows,
                          const float *data) {
    p->part[p->n] = (chain_part){name, role, rows, data};
    return p->n++;
}

static void chain_make_tensor(op_case *c, chain_parts *p, uint32_t i, int64_t n_tokens) {
    const chain_part *x = &p->part[i];
    float data[CHAIN_COLS * CHAIN_COLS];
    uint64_t seed = p->seed;
    int64_t n = CHAIN_COLS;
    if (x->rows)
        n *= x->rows < 0 ? CHAIN_ROWS : x->rows;
    for (const char *at = x->name; *at; at++)
        seed = seed * 131 + (uint8_t)*at;
    for (int64_t k = 0; k < n; k++)
        data[k] = case_rand(&seed);
    const float *from = x->data ? x->data : data;
    if (x->rows)
        p->tensor[i] = case_mat(c, x->role, MN_F32, x->rows < 0 ? n_tokens : x->rows, CHAIN_COLS,
                                from, x->name);
    else
        p->tensor[i] = case_vec(c, x->role, MN_F32, CHAIN_COLS, from, x->name);
}

/* ---- nodes ----------------------------------------------------------------------------------- */
/* The second operand of node i: a weight, an input, or none (-1). */
static int32_t chain_second(chain_parts *p, uint32_t op, uint32_t i) {
    switch (op) {
    case MN_OP_LINEAR:
        return (int32_t)chain_add(p, MN_ROLE_WEIGHT, weight_names[i], CHAIN_COLS, NULL);
    case MN_OP_RMS_NORM:
    case MN_OP_LAYER_NORM:
        return (int32_t)chain_add(p, MN_ROLE_WEIGHT, weight_names[i], 0, NULL);
    case MN_OP_ADD:
    case MN_OP_MUL:
    case MN_OP_GLU:
        return (int32_t)chain_add(p, MN_ROLE_INPUT, second_names[i], -1, NULL);
    default:
        return -1;
    }
}

static void chain_add_node(op_case *c, const chain_parts *p, uint32_t op, uint32_t in,
                           int32_t second, uint32_t out) {
    const bool is_norm = op == MN_OP_RMS_NORM || op == MN_OP_LAYER_NORM;
    const bool has_factor = op == MN_OP_SCALE || op == MN_OP_SOFTCAP;
    const uint64_t attr = case_f64(is_norm ? 1e-5 : 1.75);
    const int32_t from[2] = {p->tensor[in], second < 0 ? -1 : p->tensor[second]};
    case_node(c, op, from, second < 0 ? 1 : 2, &p->tensor[out], 1, &attr, is_norm || has_factor);
}

/* Nodes [lo, hi) of a chain; x: of the first, or NULL for what the seed draws. */
static op_case *chain_build(check *c, const chain_ops *ops, uint32_t lo, uint32_t hi, uint64_t seed,
                            const float *x, bool reversed) {
    chain_parts p = {.seed = seed};
    uint32_t at[CHAIN_NODES + 1] = {0};
    int32_t second[CHAIN_NODES] = {0};
    op_case *o = case_new();
    if (!o) {
        check_fail(c, "out of memory for a chain");
        return NULL;
    }
    for (uint32_t i = lo; i <= hi; i++) {
        uint32_t role = MN_ROLE_INTERIOR;
        if (i == lo)
            role = MN_ROLE_INPUT;
        else if (i == hi)
            role = MN_ROLE_OUTPUT;
        at[i] = chain_add(&p, role, tensor_names[i], -1, i == lo ? x : NULL);
        if (i < hi)
            second[i] = chain_second(&p, ops->op[i], i);
    }
    case_symbol(o, "n_outputs", 3, MN_SYMBOL_SHAPE);
    const int64_t n_tokens = case_symbol(o, "n_tokens", CHAIN_ROWS, MN_SYMBOL_SHAPE);
    for (uint32_t i = 0; i < p.n; i++)
        chain_make_tensor(o, &p, reversed ? p.n - 1 - i : i, n_tokens);
    for (uint32_t i = lo; i < hi; i++)
        chain_add_node(o, &p, ops->op[i], at[i], second[i], at[i + 1]);
    if (!o->failed)
        return o;
    case_free(o);
    check_fail(c, "out of memory for a chain");
    return NULL;
}

op_case *chain_case(check *c, const chain_ops *ops, uint64_t seed) {
    return chain_build(c, ops, 0, CHAIN_NODES, seed, NULL, false);
}

op_case *chain_reversed(check *c, const chain_ops *ops, uint64_t seed) {
    return chain_build(c, ops, 0, CHAIN_NODES, seed, NULL, true);
}

op_case *chain_node(check *c, const chain_ops *ops, uint32_t i, uint64_t seed, const float *x) {
    return chain_build(c, ops, i, i + 1, seed, x, false);
}

uint32_t chain_tensor(const op_case *o, uint32_t i) {
    uint32_t t = 0;
    while (t + 1 < o->g.n_tensors && strcmp(o->t[t].name.ptr, tensor_names[i]))
        t++;
    return t;
}

/* ---- which operations ------------------------------------------------------------------------ */
static bool chain_runs(check *c, const stage *s, uint32_t op) {
    const chain_ops alone = {{op}};
    op_case *o = chain_node(c, &alone, 0, 1, NULL);
    const bool yes = o && case_supported(&s->on, o);
    case_free(o);
    return yes;
}

int chain_find(check *c, stage *s, chain_ops *ops) {
    static const uint32_t order[] = {MN_OP_RMS_NORM, MN_OP_LINEAR,  MN_OP_ADD,
                                     MN_OP_GLU,      MN_OP_MUL,     MN_OP_SCALE,
                                     MN_OP_ACT,      MN_OP_SOFTCAP, MN_OP_LAYER_NORM};
    uint32_t n = 0;
    check_doing(c, "supports met the operations of a chain");
    for (size_t i = 0; i < sizeof order / sizeof *order && n < CHAIN_NODES; i++)
        if (chain_runs(c, s, order[i]))
            ops->op[n++] = order[i];
    if (check_over(c))
        return 0;
    for (uint32_t i = n; n && i < CHAIN_NODES; i++)
        ops->op[i] = ops->op[i % n];
    if (n)
        return 1;
    stage_close(c, s);
    check_skip(c, "the device runs no operation in f32 whose output has the shape of its input");
    return 0;
}
