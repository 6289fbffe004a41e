/* memory_uses.c -- reads the nodes of a segment that store or read what is remembered of sequences.
 * The sizes of a layer follow from the node that is found first: KV_STORE and ATTENTION of a layer
 * state the same. */
#include "memory_uses.h"
#include "alloc.h"
#include "state_shapes.h"
#include <stdlib.h>

/* ---- nodes ----------------------------------------------------------------------------------- */
static const mn_node *node_at(const mn_graph *g, uint32_t i) {
    return (const mn_node *)(const void *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
}

static int64_t attr_at(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_attr ? (int64_t)g->attrs[n->attr_off + i] : 0;
}

static const mn_tensor *tensor_at(const mn_graph *g, int32_t t) {
    return (const mn_tensor *)(const void *)((const char *)g->tensors +
                                             (uint64_t)t * g->tensor_stride);
}

/* Input or output i; NULL: absent. */
static const mn_tensor *input_at(const mn_graph *g, const mn_node *n, uint32_t i) {
    const int32_t t = i < n->n_in ? g->operands[n->in_off + i] : -1;
    return t < 0 ? NULL : tensor_at(g, t);
}
static const mn_tensor *output_at(const mn_graph *g, const mn_node *n, uint32_t i) {
    const int32_t t = i < n->n_out ? g->operands[n->out_off + i] : -1;
    return t < 0 ? NULL : tensor_at(g, t);
}

typedef struct {
    uint32_t group, kind;
    mn_memory_layer layer;
} found;

static uint32_t size_of(int64_t dim) {
    return dim > 0 && dim <= UINT32_MAX ? (uint32_t)dim : 0;
}

static found paged(const mn_graph *g, const mn_node *n) {
    found f = {.kind = MN_MEMORY_PAGED};
    if (n->op == MN_OP_KV_STORE) {
        const mn_tensor *k = input_at(g, n, MN_KV_STORE_K);
        const mn_tensor *v = input_at(g, n, MN_KV_STORE_V);
        f.group = (uint32_t)attr_at(g, n, MN_KV_STORE_ATTR_GROUP);
        f.layer.layer = attr_at(g, n, MN_KV_STORE_ATTR_KV_LAYER);
        if (!k || k->n_dim != 3 || (v && (v->n_dim != 3 || k->dim[1] != v->dim[1])))
            return f;
        f.layer.n_head = size_of(k->dim[1]);
        f.layer.dim_k = size_of(k->dim[2]);
        if (v)
            f.layer.dim_v = size_of(v->dim[2]);
        return f;
    }
    const mn_tensor *q = input_at(g, n, MN_ATTENTION_Q);
    const int64_t dim_v = attr_at(g, n, MN_ATTENTION_ATTR_DIM_V);
    f.group = (uint32_t)attr_at(g, n, MN_ATTENTION_ATTR_GROUP);
    f.layer.layer = attr_at(g, n, MN_ATTENTION_ATTR_KV_LAYER);
    f.layer.n_head = size_of(attr_at(g, n, MN_ATTENTION_ATTR_N_HEAD_KV));
    if (!q || q->n_dim != 3)
        return f;
    f.layer.dim_k = size_of(q->dim[2]);
    if (attr_at(g, n, MN_ATTENTION_ATTR_V_OF_K))
        return f;
    f.layer.dim_v = dim_v ? size_of(dim_v) : f.layer.dim_k;
    return f;
}

/* op and dims; no dims where operands are missing. */
static mn_memory_layer state_of(const mn_graph *g, const mn_node *n) {
    const mn_memory_layer none = {.op = n->op};
    const mn_tensor *y = output_at(g, n, 0);
    const mn_tensor *x = input_at(g, n, 0);
    const mn_tensor *w = NULL;
    if (!x || !y)
        return none;
    switch (n->op) {
    case MN_OP_CONV_STATE:
        w = input_at(g, n, MN_CONV_STATE_WEIGHT);
        return w ? mn_conv_layer(mn_conv_shape_of(w)) : none;
    case MN_OP_SSM_SCAN:
        w = input_at(g, n, MN_SSM_SCAN_A);
        return w ? mn_ssm_layer(mn_ssm_shape_of(x, w, y, attr_at(g, n, MN_SSM_SCAN_ATTR_N_GROUP)))
                 : none;
    default:
        w = input_at(g, n, MN_GATED_DELTA_GATE);
        return w ? mn_delta_layer(
                       mn_delta_shape_of(x, w, y, attr_at(g, n, MN_GATED_DELTA_ATTR_N_HEAD_K)))
                 : none;
    }
}

/* False: the node remembers nothing. LAYER and GROUP are the first two attributes of all operations
 * with a state. */
static bool node_finds(const mn_graph *g, const mn_node *n, found *f) {
    switch (n->op) {
    case MN_OP_KV_STORE:
    case MN_OP_ATTENTION:
        *f = paged(g, n);
        return true;
    case MN_OP_CONV_STATE:
    case MN_OP_SSM_SCAN:
    case MN_OP_GATED_DELTA:
        *f = (found){.group = (uint32_t)attr_at(g, n, MN_CONV_STATE_ATTR_GROUP),
                     .kind = MN_MEMORY_STATE,
                     .layer = state_of(g, n)};
        f->layer.layer = attr_at(g, n, MN_CONV_STATE_ATTR_LAYER);
        return true;
    default:
        return false;
    }
}

/* ---- the list -------------------------------------------------------------------------------- */
static int by_group_and_layer(const void *a, const void *b) {
    const found *x = a;
    const found *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return (x->layer.layer > y->layer.layer) - (x->layer.layer < y->layer.layer);
}

/* Each layer once, and how many groups there are. */
static uint32_t unite(found *f, uint32_t n, uint32_t *n_groups) {
    uint32_t kept = 0;
    qsort(f, n, sizeof *f, by_group_and_layer);
    *n_groups = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept && !by_group_and_layer(&f[kept - 1], &f[i]))
            continue;
        *n_groups += !kept || f[kept - 1].group != f[i].group;
        f[kept++] = f[i];
    }
    return kept;
}

static void fill(mn_memory_uses *u, const found *f, uint32_t n, uint32_t k_dtype,
                 uint32_t v_dtype) {
    mn_memory_params *m = NULL;
    u->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        u->layer[i] = f[i].layer;
        if (!m || m->group != f[i].group) {
            const bool typed = f[i].kind == MN_MEMORY_PAGED;
            m = &u->params[u->n];
            *m = (mn_memory_params){.size = sizeof *m,
                                    .group = f[i].group,
                                    .kind = f[i].kind,
                                    .k_dtype = typed ? k_dtype : MN_DTYPE_NONE,
                                    .v_dtype = typed ? v_dtype : MN_DTYPE_NONE,
                                    .layer_stride = sizeof *u->layer,
                                    .layers = &u->layer[i]};
            u->use[u->n++] = (mn_memory_use){m, NULL};
        }
        m->n_layers++;
    }
}

bool mn_memory_uses_find(const mn_graph *g, const mn_node_range *ranges, uint32_t n_ranges,
                         uint32_t k_dtype, uint32_t v_dtype, mn_memory_uses *out) {
    uint32_t n = 0;
    uint32_t n_groups;
    *out = (mn_memory_uses){0};
    found *list = mn_alloc(g->n_nodes + 1ull, sizeof *list);
    if (!list)
        return false;
    for (uint32_t r = 0; r < n_ranges; r++)
        for (uint32_t i = ranges[r].lo; i < ranges[r].hi; i++)
            n += node_finds(g, node_at(g, i), &list[n]);
    n = unite(list, n, &n_groups);
    const size_t per_group = sizeof *out->use + sizeof *out->params + sizeof *out->layout;
    out->block = mn_alloc(1, n_groups * per_group + n * sizeof *out->layer + 1);
    if (out->block) {
        out->params = out->block;
        out->layout = (mn_memory_layout *)(out->params + n_groups);
        out->layer = (mn_memory_layer *)(out->layout + n_groups);
        out->use = (mn_memory_use *)(out->layer + n);
        fill(out, list, n, k_dtype, v_dtype);
    }
    mn_free(list);
    return out->block;
}

void mn_memory_uses_free(mn_memory_uses *u) {
    mn_free(u->block);
    *u = (mn_memory_uses){0};
}

const mn_memory_params *mn_memory_uses_group(const mn_memory_uses *u, uint32_t group) {
    for (uint32_t i = 0; i < u->n; i++)
        if (u->params[i].group == group)
            return &u->params[i];
    return NULL;
}

void mn_memory_uses_know(mn_memory_uses *u, uint32_t group, const mn_memory_layout *layout) {
    for (uint32_t i = 0; i < u->n; i++) {
        if (u->params[i].group != group)
            continue;
        u->layout[i] = *layout;
        u->use[i].layout = &u->layout[i];
    }
}

void mn_memory_uses_give(const mn_memory_uses *u, mn_compile *c) {
    c->memory = u->use;
    c->n_memory = u->n;
    c->memory_stride = sizeof *u->use;
}
