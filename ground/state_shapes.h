/* state_shapes.h -- the sizes of operations with a state (docs/ops.md), from the dims of their
 * operands. Dims are those of the graph, none of them a symbol but dim[0] of activations. A shape
 * that the contract does not allow has n_state 0. */
#ifndef MN_STATE_SHAPES_H
#define MN_STATE_SHAPES_H
#include <minerva/plugin.h>

/* A layer with a state [n_head, dim_k, dim_v] in mn_memory_params; without a number the state is
 * none that the contract allows. */
static inline mn_memory_layer mn_state_layer(uint32_t op, int64_t n_head, int64_t dim_k,
                                             int64_t dim_v, int64_t n_state) {
    mn_memory_layer l = {0, 0, 0, 0, op, 0};
    if (n_state <= 0)
        return l;
    l.n_head = (uint32_t)n_head;
    l.dim_k = (uint32_t)dim_k;
    l.dim_v = (uint32_t)dim_v;
    l.n_state = (uint64_t)n_state;
    return l;
}

/* CONV_STATE: w is WEIGHT [C, W]. */
typedef struct {
    int64_t channels, width, n_state;
} mn_conv_shape;
static inline mn_conv_shape mn_conv_shape_of(const mn_tensor *w) {
    mn_conv_shape s = {0, 0, 0};
    if (w->n_dim != 2 || w->dim[0] < 1 || w->dim[1] < 2)
        return s;
    s.channels = w->dim[0];
    s.width = w->dim[1];
    s.n_state = s.channels * (s.width - 1);
    return s;
}
static inline mn_memory_layer mn_conv_layer(mn_conv_shape s) {
    return mn_state_layer(MN_OP_CONV_STATE, 1, s.width - 1, s.channels, s.n_state);
}

/* SSM_SCAN: H heads of P elements, G groups of N. */
typedef struct {
    int64_t n_head, dim, n_group, n, n_state;
} mn_ssm_shape;
static inline mn_ssm_shape mn_ssm_shape_of(const mn_tensor *xbc, const mn_tensor *a,
                                           const mn_tensor *y, int64_t n_group) {
    mn_ssm_shape s = {0, 0, 0, 0, 0};
    if (xbc->n_dim != 2 || a->n_dim != 1 || a->dim[0] < 1 || n_group < 1 || y->n_dim < 2)
        return s;
    s.n_head = a->dim[0];
    s.n_group = n_group;
    const int64_t width = y->n_dim == 3 ? y->dim[1] * y->dim[2] : y->dim[1];
    s.dim = width / s.n_head;
    const int64_t rest = xbc->dim[1] - width;
    s.n = rest / (2 * n_group);
    if (width % s.n_head || s.n_head % n_group || s.dim < 1 || s.n < 1 || rest % (2 * n_group))
        return s;
    s.n_state = width * s.n;
    return s;
}
static inline mn_memory_layer mn_ssm_layer(mn_ssm_shape s) {
    return mn_state_layer(MN_OP_SSM_SCAN, s.n_head, s.dim, s.n, s.n_state);
}

/* GATED_DELTA: Hv heads of Dv elements read Hk heads of Dk. per_element: a decay for each of Dk. */
typedef struct {
    int64_t n_head_v, dim_v, n_head_k, dim_k, n_state;
    int64_t per_element;
} mn_delta_shape;
static inline mn_delta_shape mn_delta_shape_of(const mn_tensor *qkv, const mn_tensor *gate,
                                               const mn_tensor *y, int64_t n_head_k) {
    mn_delta_shape s = {0, 0, 0, 0, 0, 0};
    if (qkv->n_dim != 2 || y->n_dim != 3 || y->dim[1] < 1 || y->dim[2] < 1 || n_head_k < 1)
        return s;
    s.n_head_v = y->dim[1];
    s.dim_v = y->dim[2];
    s.n_head_k = n_head_k;
    const int64_t rest = qkv->dim[1] - s.n_head_v * s.dim_v;
    s.dim_k = rest / (2 * n_head_k);
    s.per_element = gate->n_dim == 3;
    if (s.n_head_v % n_head_k || s.dim_k < 1 || rest % (2 * n_head_k))
        return s;
    s.n_state = s.n_head_v * s.dim_k * s.dim_v;
    return s;
}
static inline mn_memory_layer mn_delta_layer(mn_delta_shape s) {
    return mn_state_layer(MN_OP_GATED_DELTA, s.n_head_v, s.dim_k, s.dim_v, s.n_state);
}
#endif
