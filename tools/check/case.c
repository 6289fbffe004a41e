/* case.c -- a case while it is built by hand or by the generators of case_ops.c: tensors,
 * symbols and nodes in the fixed tables of op_case, with the data beside them. The case owns the
 * data; the graph in it points into its own tables, so that a case is never copied or moved. */
#include "case.h"
#include <stdlib.h>
#include <string.h>

op_case *case_new(void) {
    op_case *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->g = (mn_graph){
        .size = sizeof c->g,
        .node_stride = sizeof *c->n,
        .tensor_stride = sizeof *c->t,
        .symbol_stride = sizeof *c->sym,
        .nodes = c->n,
        .tensors = c->t,
        .symbols = c->sym,
        .operands = c->operands,
        .attrs = c->attrs,
        .step = -1,
    };
    for (uint32_t i = 0; i < CASE_GROUPS; i++)
        c->kv[i].tensor = -1;
    return c;
}

void case_free(op_case *c) {
    if (!c)
        return;
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        free(c->data[i]);
        free(c->result[i]);
    }
    for (uint32_t i = 0; i < CASE_SYMBOLS; i++)
        free(c->dead[i]);
    mn_memory_uses_free(&c->memory);
    free(c);
}

/* Adds a symbol; returns ~index, as a dim. The value of the case is its maximum. */
int64_t case_symbol(op_case *c, const char *name, int64_t max, uint32_t kind) {
    uint32_t i = c->g.n_symbols;
    if (i == CASE_SYMBOLS) {
        c->failed = true;
        return 0;
    }
    c->g.n_symbols++;
    c->sym[i] = (mn_symbol){
        .min = 1,
        .max = max,
        .typical = 1,
        .kind = kind,
        .base = -1,
        .mul = 1,
    };
    strncpy(c->sym[i].name, name, sizeof c->sym[i].name - 1);
    c->value[i] = max;
    return ~(int64_t)i;
}

int64_t case_most(const op_case *c, uint32_t symbol) {
    return c->most[symbol] ? c->most[symbol] : c->sym[symbol].max;
}

/* The size of a tensor at the maxima of its symbols. */
static uint64_t case_bytes_of(const op_case *c, uint32_t role, uint32_t dtype, uint32_t n_dim,
                              const int64_t *dim) {
    int64_t rows = 1;
    int64_t cols = 1;
    for (uint32_t d = 0; d < n_dim; d++) {
        int64_t n = dim[d] < 0 ? case_most(c, (uint32_t)~dim[d]) : dim[d];
        if (d + 1 == n_dim)
            cols = n;
        else
            rows *= n;
    }
    if (role == MN_ROLE_WEIGHT)
        return case_weight_bytes(dtype, rows, cols);
    return case_plane_bytes(dtype, rows * cols);
}

/* Adds a tensor with a copy of data (NULL: zeros) and space for the result; returns its index. On
 * failure c->failed is set, and later calls do nothing. */
int32_t case_tensor(op_case *c, uint32_t role, uint32_t dtype, uint32_t n_dim, const int64_t *dim,
                    const void *data, const char *name) {
    uint32_t i = c->g.n_tensors;
    if (c->failed || i == CASE_TENSORS) {
        c->failed = true;
        return 0;
    }
    mn_tensor *t = &c->t[i];
    *t = (mn_tensor){
        .dtype = case_dtype(dtype),
        .n_dim = n_dim,
        .role = role,
        .alias_of = -1,
        .name = {name, strlen(name)},
    };
    for (uint32_t d = 0; d < n_dim; d++)
        t->dim[d] = dim[d];
    c->bytes[i] = case_bytes_of(c, role, dtype, n_dim, dim);
    c->data[i] = calloc(1, c->bytes[i] + 1);
    c->result[i] = calloc(1, c->bytes[i] + 1);
    c->g.n_tensors++;
    c->failed = !c->data[i] || !c->result[i];
    if (data && !c->failed)
        memcpy(c->data[i], data, c->bytes[i]);
    return (int32_t)i;
}

int32_t case_vec(op_case *c, uint32_t role, uint32_t dtype, int64_t d0, const void *data,
                 const char *name) {
    return case_tensor(c, role, dtype, 1, &d0, data, name);
}

int32_t case_mat(op_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1,
                 const void *data, const char *name) {
    const int64_t dim[] = {d0, d1};
    return case_tensor(c, role, dtype, 2, dim, data, name);
}

int32_t case_cube(op_case *c, uint32_t role, uint32_t dtype, int64_t d0, int64_t d1, int64_t d2,
                  const void *data, const char *name) {
    const int64_t dim[] = {d0, d1, d2};
    return case_tensor(c, role, dtype, 3, dim, data, name);
}

int32_t case_state(op_case *c, const void *data, uint64_t bytes, int64_t d0, const char *name) {
    const int64_t words = (int64_t)bytes / 4 / d0;
    return case_mat(c, MN_ROLE_STATE, MN_I32, d0, words, data, name);
}

int32_t case_kv_of(op_case *c, uint32_t dtype, uint32_t n_pages, uint32_t group) {
    c->kv_dtype = dtype;
    c->v_dtype = dtype;
    c->kv[group].pages = n_pages;
    c->kv[group].tensor = case_vec(c, MN_ROLE_STATE, MN_U8, 0, NULL, group ? "kv.1" : "kv");
    return c->kv[group].tensor;
}

int32_t case_kv(op_case *c, uint32_t dtype, uint32_t n_pages) {
    return case_kv_of(c, dtype, n_pages, 0);
}

int32_t case_kv_group(const op_case *c, uint32_t tensor) {
    for (int32_t i = 0; i < CASE_GROUPS; i++)
        if (c->kv[i].tensor == (int32_t)tensor)
            return i;
    return -1;
}

/* Whether a node of [lo, hi) reads the tensor, or, with `made`, makes it. */
static bool case_uses(const op_case *c, uint32_t lo, uint32_t hi, uint32_t tensor, bool made) {
    for (uint32_t i = lo; i < hi; i++) {
        const mn_node *n = &c->n[i];
        const int32_t *operands = c->operands + (made ? n->out_off : n->in_off);
        for (uint32_t k = 0; k < (made ? n->n_out : n->n_in); k++)
            if (operands[k] == (int32_t)tensor)
                return true;
    }
    return false;
}

bool case_in_segment(const op_case *c, uint32_t tensor) {
    if (!c->node_hi)
        return true;
    return case_uses(c, c->node_lo, c->node_hi, tensor, false) ||
           case_uses(c, c->node_lo, c->node_hi, tensor, true);
}

uint32_t case_role(const op_case *c, uint32_t tensor) {
    const uint32_t role = c->t[tensor].role;
    if (role != MN_ROLE_INTERIOR || !c->node_hi)
        return role;
    const bool made = case_uses(c, c->node_lo, c->node_hi, tensor, true);
    const bool read = case_uses(c, c->node_lo, c->node_hi, tensor, false);
    const bool read_outside = case_uses(c, 0, c->node_lo, tensor, false) ||
                              case_uses(c, c->node_hi, c->g.n_nodes, tensor, false);
    if (read && !made)
        return MN_ROLE_INPUT;
    return made && read_outside ? MN_ROLE_OUTPUT : role;
}

uint64_t case_f64(double v) {
    uint64_t bits;
    memcpy(&bits, &v, 8);
    return bits;
}

static uint32_t contract_of_norm(const mn_tensor *x, const mn_tensor *w) {
    if (w->n_dim == 1 && w->dim[0] < x->dim[x->n_dim - 1])
        return 3;
    return w->n_dim;
}

/* The lowest contract version that describes the node. */
static uint32_t contract_of(const op_case *c, uint32_t op, const int32_t *in, uint32_t n_in,
                            uint32_t n_out, const uint64_t *attr, uint32_t n_attr) {
    if (op == MN_OP_RMS_NORM)
        return contract_of_norm(&c->t[in[MN_RMS_NORM_X]], &c->t[in[MN_RMS_NORM_WEIGHT]]);
    if (op == MN_OP_LINEAR)
        return c->t[in[MN_LINEAR_WEIGHT]].n_dim - 1;
    if (op == MN_OP_MOE_ROUTE)
        return n_attr > MN_MOE_ROUTE_ATTR_SCALE + 1 ? 2 : 1;
    if (op == MN_OP_SAMPLE && n_in > MN_SAMPLE_BREAKERS)
        return 4;
    if (op == MN_OP_SAMPLE)
        return n_in > MN_SAMPLE_DRAFT ? 3 : 2;
    if (op == MN_OP_ACT && n_attr > MN_ACT_ATTR_EPS)
        return 3;
    if ((op == MN_OP_ACT || op == MN_OP_GLU) && n_attr)
        return attr[0] < MN_ACT_SIGMOID ? 1 : 2;
    if (op == MN_OP_MOE_LINEAR) /* X_WEIGHTS and RESIDENT are behind the groups */
        return 1 + n_in - (MN_MOE_LINEAR_WEIGHT + 2 * n_out);
    if (op == MN_OP_MOE_COMBINE && n_in > MN_MOE_COMBINE_EXPERTS)
        return 3;
    if (op == MN_OP_MOE_COMBINE)
        return n_in > MN_MOE_COMBINE_WEIGHTS ? 1 : 2;
    if (op == MN_OP_KV_STORE)
        return in[MN_KV_STORE_V] < 0 ? 2 : 1;
    if (op == MN_OP_EMBED)
        return n_in > MN_EMBED_ROWS ? 2 : 1;
    if (op == MN_OP_ROPE)
        return n_in > MN_ROPE_POS ? 2 : 1;
    if (op == MN_OP_ATTENTION && n_in > MN_ATTENTION_RELATIVE_K)
        return 5;
    if (op == MN_OP_ATTENTION && n_in > MN_ATTENTION_DISTANCE_BIAS)
        return 4;
    if (op != MN_OP_ATTENTION || n_attr <= MN_ATTENTION_ATTR_BIDIRECTIONAL)
        return 1;
    if (n_attr > MN_ATTENTION_ATTR_BIDIRECTIONAL + 1)
        return 3;
    if (attr[MN_ATTENTION_ATTR_BIDIRECTIONAL])
        return 2;
    return 1;
}

/* memcpy, also of no bytes from NULL. */
static void case_append(void *to, const void *from, size_t n) {
    if (n)
        memcpy(to, from, n);
}

void case_node(op_case *c, uint32_t op, const int32_t *in, uint32_t n_in, const int32_t *out,
               uint32_t n_out, const uint64_t *attr, uint32_t n_attr) {
    mn_graph *g = &c->g;
    const bool fits = g->n_nodes < CASE_NODES && g->n_operands + n_in + n_out <= CASE_OPERANDS &&
                      g->n_attrs + n_attr <= CASE_ATTRS;
    if (!fits)
        c->failed = true;
    if (c->failed)
        return;
    c->n[g->n_nodes] = (mn_node){
        .op = op,
        .contract = contract_of(c, op, in, n_in, n_out, attr, n_attr),
        .in_off = g->n_operands,
        .n_in = n_in,
        .out_off = g->n_operands + n_in,
        .n_out = n_out,
        .attr_off = (uint32_t)g->n_attrs,
        .n_attr = n_attr,
    };
    case_append(c->operands + g->n_operands, in, n_in * sizeof *in);
    case_append(c->operands + g->n_operands + n_in, out, n_out * sizeof *out);
    case_append(c->attrs + g->n_attrs, attr, n_attr * sizeof *attr);
    g->n_nodes++;
    g->n_operands += n_in + n_out;
    g->n_attrs += n_attr;
}
