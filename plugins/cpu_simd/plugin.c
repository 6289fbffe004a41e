/* plugin.c -- cpu_simd: facts, verdicts and one function per op for cpu_host. */
#include "nodes.h"
#include "../cpu_host/sampler.h"
#include "blas.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    const mn_host *host;
    int32_t level;
    mnk_blas blas;
} simd;

/* mnc_op.user must be static: one entry per class, level and use of OpenBLAS. */
/* clang-format off */
#define USES(p, blas)                                                                              \
    { {p, MNK_GENERIC, blas}, {p, MNK_AVX2, blas}, {p, MNK_AVX512, blas}, {p, MNK_AVX512VNNI, blas}, \
      {p, MNK_AMX, blas}, {p, MNK_NEON, blas}, {p, MNK_NEON_DOT, blas} }
#define USES_OF(blas)                                                                              \
    { USES(MN_PRECISION_EXACT, blas), USES(MN_PRECISION_EXACT, blas), USES(MN_PRECISION_A16, blas), \
      USES(MN_PRECISION_A8, blas) }
/* clang-format on */
static const mnk_use uses[2][4][7] = {USES_OF(false), USES_OF(true)};
static const mnk_use *use_of(const simd *s, uint32_t precision, bool blas) {
    const mnk_use *u = uses[blas][precision <= MN_PRECISION_A8 ? precision : 1];
    while (u->level != s->level)
        u++;
    return u;
}

static const uint32_t contracts[][2] = {
    {MN_OP_EMBED, 1},      {MN_OP_RMS_NORM, 1},    {MN_OP_LAYER_NORM, 1}, {MN_OP_LINEAR, 1},
    {MN_OP_ROPE, 1},       {MN_OP_KV_STORE, 1},    {MN_OP_ATTENTION, 1},  {MN_OP_ACT, 1},
    {MN_OP_GLU, 1},        {MN_OP_ADD, 1},         {MN_OP_MUL, 1},        {MN_OP_SCALE, 1},
    {MN_OP_SOFTCAP, 1},    {MN_OP_GATHER_ROWS, 1}, {MN_OP_SAMPLE, 1},     {MN_OP_MOE_ROUTE, 1},
    {MN_OP_MOE_LINEAR, 1}, {MN_OP_MOE_COMBINE, 1},
};

static mn_status init(const mn_host *host, void **self, mn_error *err) {
    int32_t cap = MNK_NEON_DOT, level = mnk_cpu_level();
    mn_str value = {NULL, 0};
    if (MN_HAS(mn_host, host, option) && host->option(host->self, "isa", &value) && value.len) {
        cap = mnk_isa_by_name(value.ptr, value.len);
        if (cap < 0)
            return mnp_fail(err, MN_BAD_INPUT, ~0u,
                            "MINERVA_CPU_ISA (option isa of cpu_simd) is \"%.*s\"; valid: generic, "
                            "avx2, avx512, "
                            "avx512vnni, amx, neon",
                            (int)(value.len > 64 ? 64 : value.len), value.ptr);
        level = mnk_isa_cap(level, cap);
    }
    simd *s = host->alloc(host->self, sizeof *s, 16);
    if (!s)
        return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: %zu bytes", sizeof *s);
    *s = (simd){.host = host, .level = level};
    *self = s;
    return MN_OK;
}
static void fini(const mn_host *host, void *self) {
    simd *s = self;
    mnk_blas_close(&s->blas);
    host->release(host->self, self);
}

enum { REASON_DTYPE = 1, REASON_SHAPE };
static const char *reason(void *self, uint32_t r) {
    (void)self;
    return r == REASON_DTYPE   ? "cpu_simd has no kernel for this weight type"
           : r == REASON_SHAPE ? "shape outside of the op's contract"
                               : "";
}

static bool is_float(const mn_tensor *t) {
    return t && (t->dtype.id == MN_F32 || t->dtype.id == MN_F16 || t->dtype.id == MN_BF16);
}
static int32_t no(uint32_t *out, uint32_t why) {
    *out = why;
    return MN_VERDICT_NO;
}
/* n_dim: 2, or 3 for experts. */
static int32_t matrix_verdict(const simd *s, const mnc_query *q, const mn_tensor *w, uint32_t n_dim,
                              uint32_t *why) {
    if (!w || !mnk_find_linear(w->dtype.id, MN_PRECISION_EXACT, s->level, 1))
        return no(why, REASON_DTYPE);
    if (w->n_dim != n_dim || mnc_query_dim(q, w, n_dim - 1) % (int64_t)w->dtype.block_elems)
        return no(why, REASON_SHAPE);
    return s->level == MNK_GENERIC ? MN_VERDICT_SLOW : MN_VERDICT_NATIVE;
}
/* The weights of LINEAR or MOE_LINEAR from operand `at` on, each with its bias. */
static int32_t product_verdict(const simd *s, const mnc_query *q, uint32_t at, uint32_t n_dim,
                               uint32_t *why) {
    int32_t best = MN_VERDICT_NATIVE;
    for (uint32_t i = 0; i < q->node->n_out; i++) {
        const mn_tensor *bias = mnc_query_in(q, at + 1 + 2 * i);
        if (bias && !is_float(bias))
            return no(why, REASON_DTYPE);
        int32_t v = matrix_verdict(s, q, mnc_query_in(q, at + 2 * i), n_dim, why);
        best = v < best ? v : best;
    }
    return best;
}
static int32_t verdict(void *self, const mnc_query *q, uint32_t *why) {
    const simd *s = self;
    const int32_t best = MN_VERDICT_NATIVE;
    switch (q->node->op) {
    case MN_OP_EMBED:
        if (mnc_query_in(q, MN_EMBED_POS_WEIGHT) && !is_float(mnc_query_in(q, MN_EMBED_POS_WEIGHT)))
            return no(why, REASON_DTYPE);
        return matrix_verdict(s, q, mnc_query_in(q, MN_EMBED_WEIGHT), 2, why);
    case MN_OP_LINEAR:
        return product_verdict(s, q, MN_LINEAR_WEIGHT, 2, why);
    case MN_OP_MOE_LINEAR:
        return product_verdict(s, q, MN_MOE_LINEAR_WEIGHT, 3, why);
    case MN_OP_MOE_ROUTE: {
        const mn_tensor *b = mnc_query_in(q, MN_MOE_ROUTE_BIAS);
        return b && b->dtype.id != MN_F32 ? no(why, REASON_DTYPE) : best;
    }
    case MN_OP_RMS_NORM:
        return is_float(mnc_query_in(q, MN_RMS_NORM_WEIGHT)) ? best : no(why, REASON_DTYPE);
    case MN_OP_LAYER_NORM: {
        const mn_tensor *b = mnc_query_in(q, MN_LAYER_NORM_BIAS);
        return is_float(mnc_query_in(q, MN_LAYER_NORM_WEIGHT)) && (!b || is_float(b))
                   ? best
                   : no(why, REASON_DTYPE);
    }
    case MN_OP_ROPE: {
        const mn_tensor *x = mnc_query_in(q, MN_ROPE_X), *f = mnc_query_in(q, MN_ROPE_FREQS);
        return x && x->n_dim == 3 && f && f->dtype.id == MN_F32 ? best : no(why, REASON_SHAPE);
    }
    case MN_OP_ATTENTION: {
        const mn_tensor *x = mnc_query_in(q, MN_ATTENTION_Q);
        const uint64_t *at = q->graph->attrs + q->node->attr_off;
        int64_t hkv = MN_ATTENTION_ATTR_N_HEAD_KV < q->node->n_attr
                          ? (int64_t)at[MN_ATTENTION_ATTR_N_HEAD_KV]
                          : 0;
        return x && x->n_dim == 3 && hkv > 0 && mnc_query_dim(q, x, 1) % hkv == 0
                   ? best
                   : no(why, REASON_SHAPE);
    }
    default:
        return best;
    }
}

/* Weights that have kernels for 8-bit activations: those. All others: f32 sums as in class exact,
 * with the KV cache in f16. */
static uint32_t precision(void *self, const mn_graph *g) {
    const simd *s = self;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n =
            (const mn_node *)(const void *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
        if (n->op != MN_OP_LINEAR && n->op != MN_OP_MOE_LINEAR)
            continue;
        for (uint32_t j = n->op == MN_OP_LINEAR ? MN_LINEAR_WEIGHT : MN_MOE_LINEAR_WEIGHT;
             j < n->n_in; j += 2) {
            int32_t t = g->operands[n->in_off + j];
            const mn_tensor *w =
                (const mn_tensor *)(const void *)((const char *)g->tensors +
                                                  (uint64_t)(t < 0 ? 0 : t) * g->tensor_stride);
            const mnk_linear *k = mnk_find_linear(w->dtype.id, MN_PRECISION_A8, s->level, 1);
            if (t >= 0 && k && k->quantised_x)
                return MN_PRECISION_A8;
        }
    }
    return MN_PRECISION_A16;
}

static const struct {
    uint32_t op;
    mnc_fn fn;
} drivers[] = {{MN_OP_EMBED, mnk_embed_node},
               {MN_OP_LINEAR, mnk_linear_node},
               {MN_OP_ROPE, mnk_rope_node},
               {MN_OP_KV_STORE, mnk_kv_store_node},
               {MN_OP_ATTENTION, mnk_attention_node},
               {MN_OP_GATHER_ROWS, mnk_gather_node},
               {MN_OP_SAMPLE, mnc_op_sample},
               {MN_OP_MOE_ROUTE, mnk_moe_route_node},
               {MN_OP_MOE_LINEAR, mnk_moe_linear_node},
               {MN_OP_MOE_COMBINE, mnk_moe_combine_node}};

static mnc_fn vector_fn(const mnk_vector *v, uint32_t op) {
    switch (op) {
    case MN_OP_RMS_NORM:
        return v->rms_norm;
    case MN_OP_LAYER_NORM:
        return v->layer_norm;
    case MN_OP_ACT:
        return v->act;
    case MN_OP_GLU:
        return v->glu;
    case MN_OP_ADD:
        return v->add;
    case MN_OP_MUL:
        return v->mul;
    case MN_OP_SCALE:
        return v->scale_op;
    case MN_OP_SOFTCAP:
        return v->softcap;
    default:
        return NULL;
    }
}

/* OpenBLAS is loaded here, when the first program can use it: in many it never is. */
static bool has_blas(simd *s) {
    const char *why;
    const mn_host *h = s->host;
    const bool ok = mnk_blas_open(&s->blas, h->workers(h->self), &why);
    if (why)
        h->log(h->self, MN_LOG_DEBUG, (mn_str){why, strlen(why)});
    return ok;
}

static mn_status prepare(void *self, const mnc_query *q, mnc_op *op, mn_error *err) {
    simd *s = self;
    const mnk_use *use = use_of(s, q->precision, false);
    if (q->node->op == MN_OP_LINEAR && mnk_linear_wants_blas(q, use) && has_blas(s))
        use = use_of(s, q->precision, true);
    *op = (mnc_op){.user = (void *)(uintptr_t)use};
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (drivers[i].op == q->node->op)
            op->fn = drivers[i].fn;
    if (!op->fn)
        op->fn = vector_fn(mnk_find_vector(s->level), q->node->op);
    if (!op->fn)
        return mnp_fail(err, MN_UNSUPPORTED, q->index, "node %u: op %u is unknown to cpu_simd",
                        q->index, q->node->op);
    switch (q->node->op) {
    case MN_OP_LINEAR:
        mnk_linear_scratch(q, use, op);
        break;
    case MN_OP_ATTENTION:
        mnk_attention_scratch(q, op);
        break;
    case MN_OP_MOE_ROUTE:
        mnk_moe_route_scratch(q, op);
        break;
    case MN_OP_MOE_LINEAR:
        mnk_moe_linear_scratch(q, use, op);
        break;
    case MN_OP_ROPE:
        op->worker_bytes =
            (uint64_t)mnc_query_dim(q, mnc_query_in(q, MN_ROPE_X), 2) * sizeof(float);
        break;
    case MN_OP_SAMPLE: {
        const mn_tensor *x = mnc_query_in(q, MN_SAMPLE_LOGITS);
        op->worker_bytes = mnc_sample_bytes(mnc_query_dim(q, x, x->n_dim - 1));
        break;
    }
    case MN_OP_EMBED: {
        const mn_tensor *w = mnc_query_in(q, MN_EMBED_WEIGHT);
        op->worker_bytes =
            mnk_find_linear(w->dtype.id, MN_PRECISION_EXACT, s->level, 1)->panel_bytes(MNK_KC);
        op->shared_bytes =
            (uint64_t)mnc_query_dim(q, mnc_query_in(q, MN_EMBED_SRC), 0) * sizeof(int32_t);
        break;
    }
    default:
        break;
    }
    return MN_OK;
}

static const mnc_ops ops = {
    .id = "cpu_simd",
    .vendor = "Minerva",
    .version = MNK_VERSION,
    .build_id = MNK_VERSION " " __DATE__ " " __TIME__,
    .contracts = contracts,
    .n_contracts = sizeof contracts / sizeof *contracts,
    .init = init,
    .fini = fini,
    .verdict = verdict,
    .reason = reason,
    .precision = precision,
    .prepare = prepare,
};

MN_PLUGIN_NOTE("cpu_simd", MN_KIND_BACKEND, "")

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mnc_plugin_entry(host, &ops, err);
}
