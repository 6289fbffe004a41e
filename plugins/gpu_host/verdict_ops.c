/* verdict_ops.c -- verdicts of single operations by the shapes of their operands, for the rows of a
 * backend's table: what kernels of every backend rely on. Pure. */
#include "gpu_table.h"
#include "residents.h"
#include "attend_fits.h"

static const mng_limits *limits_of(const mn_device *dev) {
    return &mng_backend_of(dev)->limits;
}

uint32_t mng_embed_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *w = mnp_in_tensor(g, n, MN_EMBED_WEIGHT);
    (void)dev;
    if (w && w->n_dim == 2 && w->dim[0] <= 1 << 30)
        return MNG_OK;
    return MNG_SHAPE;
}

uint32_t mng_lookup_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *w = mnp_in_tensor(g, n, MN_LOOKUP_WEIGHT);
    (void)dev;
    if (w && w->dim[0] <= 1 << 30 && mnp_lookup_fits(g, n))
        return MNG_OK;
    return MNG_SHAPE;
}

uint32_t mng_lora_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    (void)dev;
    if (mnp_lora_fits(g, n))
        return MNG_OK;
    return MNG_SHAPE;
}

uint32_t mng_pair_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    (void)dev;
    if (mnp_in(g, n, 1) >= 0)
        return MNG_OK;
    return MNG_SHAPE;
}

/* Elements of the dims from `from` on; -1: a size that is a symbol. */
static int64_t row_elements(const mn_tensor *x, uint32_t from) {
    int64_t n = 1;
    for (uint32_t i = from; i < x->n_dim; i++)
        n = x->dim[i] < 0 ? -1 : n * x->dim[i];
    return n;
}

/* A matrix for each head, which is as long as its rows or longer. */
static bool fits_heads(const mn_device *dev, const mn_tensor *x, const mn_tensor *w) {
    if (x->n_dim != 3 || x->dim[1] != w->dim[0] || x->dim[2] < w->dim[2])
        return false;
    return w->dim[0] <= limits_of(dev)->max_experts;
}

uint32_t mng_linear_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_LINEAR_X);
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, MN_LINEAR_WEIGHT + 2 * i);
        if (!w || mnp_out(g, n, i) < 0)
            return MNG_SHAPE;
        if (w->n_dim == 3 && fits_heads(dev, x, w))
            continue;
        if (w->n_dim != 2 || w->dim[1] != row_elements(x, 1))
            return MNG_SHAPE;
    }
    return MNG_OK;
}

uint32_t mng_moe_linear_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_LINEAR_X);
    const mn_tensor *experts = mnp_in_tensor(g, n, MN_MOE_LINEAR_EXPERTS);
    if (!experts || experts->n_dim != 2 || x->n_dim < 2 || x->n_dim > 3)
        return MNG_SHAPE;
    if (!mnp_residents_fit(g, n))
        return MNG_SHAPE;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, MN_MOE_LINEAR_WEIGHT + 2 * i);
        if (!w || mnp_out(g, n, i) < 0 || w->n_dim != 3)
            return MNG_SHAPE;
        if (w->dim[2] != row_elements(x, x->n_dim - 1))
            return MNG_SHAPE;
        if (w->dim[0] > limits_of(dev)->max_experts)
            return MNG_EXPERTS;
    }
    return MNG_OK;
}

uint32_t mng_rope_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_ROPE_X);
    const bool even = mnp_attr(g, n, MN_ROPE_ATTR_N_ROT) % 2 == 0;
    (void)dev;
    if (x->n_dim == 3 && x->dim[2] > 0 && even)
        return MNG_OK;
    return MNG_SHAPE;
}

uint32_t mng_store_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    enum { MOST_HEADS = 65535 };
    const mn_tensor *k = mnp_in_tensor(g, n, MN_KV_STORE_K);
    const mn_tensor *v = mnp_in_tensor(g, n, MN_KV_STORE_V);
    const int64_t most = limits_of(dev)->kv.max_head_dim;
    if (k->n_dim != 3 || (v && v->n_dim != 3) || k->dim[1] > MOST_HEADS)
        return MNG_SHAPE;
    if (k->dim[2] > most || (v && v->dim[2] > most))
        return MNG_HEAD;
    return MNG_OK;
}

uint32_t mng_attention_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *q = mnp_in_tensor(g, n, MN_ATTENTION_Q);
    const mn_tensor *y = mnp_out_tensor(g, n, 0);
    const int64_t kv = mnp_attr(g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
    const int64_t most = limits_of(dev)->kv.max_head_dim;
    if (q->n_dim != 3 || y->n_dim != 3)
        return MNG_SHAPE;
    const int64_t heads = q->dim[1];
    if (kv <= 0 || heads <= 0 || heads % kv || !mnp_attention_fits(g, n))
        return MNG_SHAPE;
    if (q->dim[2] > most || y->dim[2] > most)
        return MNG_HEAD;
    if (mnp_distance_steps(g, n) > MNP_DISTANCE_STEPS)
        return MNG_DISTANCES;
    return MNG_OK;
}

uint32_t mng_route_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    const mn_tensor *logits = mnp_in_tensor(g, n, MN_MOE_ROUTE_LOGITS);
    const mn_tensor *experts = mnp_out_tensor(g, n, MN_MOE_ROUTE_OUT_EXPERTS);
    if (mnp_out(g, n, MN_MOE_ROUTE_OUT_WEIGHTS) < 0)
        return MNG_SHAPE;
    if (logits->n_dim != 2 || experts->n_dim != 2 || experts->dim[1] > logits->dim[1])
        return MNG_SHAPE;
    if (logits->dim[1] > limits_of(dev)->max_experts)
        return MNG_EXPERTS;
    return MNG_OK;
}

uint32_t mng_combine_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    (void)dev;
    if (mnp_residents_fit(g, n))
        return MNG_OK;
    return MNG_SHAPE;
}

uint32_t mng_sample_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    (void)dev;
    for (uint32_t i = MN_SAMPLE_LOGITS; i <= MN_SAMPLE_HISTORY; i++) {
        const mn_tensor *t = mnp_in_tensor(g, n, i);
        if (!t || (i != MN_SAMPLE_OUT_SLOT && t->n_dim != 2))
            return MNG_SHAPE;
    }
    return MNG_OK;
}
