/* plugin.c -- cpu_simd: facts, verdicts and one function per op for cpu_host. */
#include "plan.h"
#include "../cpu_host/attend_verdict.h"
#include "../cpu_host/optional.h"
#include "../cpu_host/sampler.h"
#include "../cpu_host/states.h"
#include "blas.h"
#include "lanes.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    const mn_host *host;
    int32_t level;
    mnk_blas blas;
} simd;

/* mnc_op.user of nodes without a plan is static: one entry per level, class and use of OpenBLAS. */
#define USE(level, p)                                                                              \
    {                                                                                              \
        {p, level, false}, {                                                                       \
            p, level, true                                                                         \
        }                                                                                          \
    }
#define USES(ID, name, BASE)                                                                       \
    {USE(MNK_##ID, MN_PRECISION_EXACT), USE(MNK_##ID, MN_PRECISION_EXACT),                         \
     USE(MNK_##ID, MN_PRECISION_A16), USE(MNK_##ID, MN_PRECISION_A8)},
static const mnk_use uses[MNK_N_LEVELS][4][2] = {MNK_ISAS(USES)};
static const mnk_use *use_of(const simd *s, uint32_t precision, bool blas) {
    const uint32_t p = precision <= MN_PRECISION_A8 ? precision : MN_PRECISION_EXACT;
    return &uses[s->level][p][blas];
}

static void say(const simd *s, int32_t level, const char *what) {
    if (MN_HAS(mn_host, s->host, log))
        s->host->log(s->host->self, level, (mn_str){what, strlen(what)});
}

#define ISA_NAME(ID, name, BASE) ", " name
static const char isa_names[] = MNK_ISAS(ISA_NAME);

/* *self: the plugin's own state. The instruction set is that of the CPU, or a lower one by
 * option. */
static mn_status init(const mn_host *host, void **self, mn_error *err) {
    int32_t cap = mnk_cpu_level();
    bool wants_tiles = true;
    mn_str value = {NULL, 0};
    bool is_set = false;
    if (MN_HAS(mn_host, host, option))
        is_set = host->option(host->self, "isa", &value);
    if (is_set && value.len) {
        cap = mnk_isa_by_name(value.ptr, value.len);
        if (cap < 0)
            return mnp_fail(err, MN_BAD_INPUT, ~0u,
                            "MINERVA_CPU_ISA (option isa of cpu_simd) is \"%.*s\"; valid: %s",
                            (int)(value.len > 64 ? 64 : value.len), value.ptr, &isa_names[2]);
        wants_tiles = cap == MNK_AMX;
    }
    const int32_t level = mnk_isa_cap(mnk_cpu_levels(), cap);
    simd *s = host->alloc(host->self, sizeof *s, 16);
    if (!s)
        return mnp_fail(err, MN_OUT_OF_MEMORY, ~0u, "out of memory: %zu bytes", sizeof *s);
    *s = (simd){.host = host, .level = level};
    if (level == MNK_AVX512VNNI && wants_tiles && mnk_amx_refused())
        say(s, MN_LOG_INFO,
            "cpu_simd: the operating system refuses the tile registers of AMX to this process "
            "(arch_prctl ARCH_REQ_XCOMP_PERM): products use AVX-512 VNNI");
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
    switch (r) {
    case REASON_DTYPE:
        return "cpu_simd has no kernel for this weight type";
    case REASON_SHAPE:
        return "shape outside of the op's contract";
    default:
        return "";
    }
}

static bool is_float(const mn_tensor *t) {
    uint32_t id = MN_DTYPE_NONE;
    if (t)
        id = t->dtype.id;
    return id == MN_F32 || id == MN_F16 || id == MN_BF16;
}
/* Refuses with a reason. */
static int32_t no(uint32_t *out, uint32_t why) {
    *out = why;
    return MN_VERDICT_NO;
}
/* n_dim: 2, or 3 for experts. */
static int32_t matrix_verdict(const simd *s, const mnc_query *q, const mn_tensor *w, uint32_t n_dim,
                              uint32_t *why) {
    const mnk_linear *kernel = NULL;
    if (w)
        kernel = mnk_find_linear(w->dtype.id, MN_PRECISION_EXACT, s->level, 1, 0);
    if (!kernel)
        return no(why, REASON_DTYPE);
    if (w->n_dim != n_dim)
        return no(why, REASON_SHAPE);
    const int64_t cols = mnc_query_dim(q, w, n_dim - 1);
    if (cols % (int64_t)w->dtype.block_elems || cols % kernel->grain)
        return no(why, REASON_SHAPE);
    if (s->level == MNK_GENERIC)
        return MN_VERDICT_SLOW;
    return MN_VERDICT_NATIVE;
}
/* The weights of LINEAR or MOE_LINEAR from operand `at` on, each with its bias. */
static int32_t product_verdict(const simd *s, const mnc_query *q, uint32_t at, uint32_t n_dim,
                               uint32_t *why) {
    int32_t best = MN_VERDICT_NATIVE;
    for (uint32_t i = 0; i < q->node->n_out; i++) {
        const mn_tensor *bias = mnc_query_in(q, at + 1 + 2 * i);
        if (bias && !is_float(bias))
            return no(why, REASON_DTYPE);
        const mn_tensor *w = mnc_query_in(q, at + 2 * i);
        const int32_t v = matrix_verdict(s, q, w, n_dim, why);
        best = v < best ? v : best;
    }
    return best;
}

/* ---- verdicts and scratch, for the table below ----------------------------------------------- */
static int32_t embed_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    const mn_tensor *positions = mnc_query_in(q, MN_EMBED_POS_WEIGHT);
    if (positions && !is_float(positions))
        return no(why, REASON_DTYPE);
    const mn_tensor *table = mnc_query_in(q, MN_EMBED_WEIGHT);
    const mn_tensor *rows = mnc_query_in(q, MN_EMBED_ROWS);
    if (rows && (!table || rows->n_dim != 2 || rows->dim[1] != table->dim[table->n_dim - 1]))
        return no(why, REASON_SHAPE);
    return matrix_verdict(s, q, table, 2, why);
}
static int32_t linear_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    const mn_tensor *x = mnc_query_in(q, MN_LINEAR_X);
    if (mnk_has_heads(q) && x->n_dim != 3)
        return no(why, REASON_SHAPE);
    return product_verdict(s, q, MN_LINEAR_WEIGHT, mnk_has_heads(q) ? 3 : 2, why);
}
static int32_t moe_linear_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    if (!mnp_residents_fit(q->graph, q->node))
        return no(why, REASON_SHAPE);
    return product_verdict(s, q, MN_MOE_LINEAR_WEIGHT, 3, why);
}
static int32_t moe_combine_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    if (mnp_residents_fit(q->graph, q->node))
        return MN_VERDICT_NATIVE;
    return no(why, REASON_SHAPE);
}
static int32_t moe_route_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    const mn_tensor *bias = mnc_query_in(q, MN_MOE_ROUTE_BIAS);
    if (bias && bias->dtype.id != MN_F32)
        return no(why, REASON_DTYPE);
    return MN_VERDICT_NATIVE;
}
static int32_t lookup_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    const mn_tensor *w = mnc_query_in(q, MN_LOOKUP_WEIGHT);
    if (!mnp_lookup_fits(q->graph, q->node))
        return no(why, REASON_SHAPE);
    return matrix_verdict(s, q, w, 2, why);
}
static int32_t lora_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    if (!mnp_lora_fits(q->graph, q->node))
        return no(why, REASON_SHAPE);
    return s->level == MNK_GENERIC ? MN_VERDICT_SLOW : MN_VERDICT_NATIVE;
}
static int32_t rms_norm_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    const bool fits = is_float(mnc_query_in(q, MN_RMS_NORM_WEIGHT));
    if (fits)
        return MN_VERDICT_NATIVE;
    return no(why, REASON_DTYPE);
}
static int32_t layer_norm_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    const mn_tensor *bias = mnc_query_in(q, MN_LAYER_NORM_BIAS);
    const mn_tensor *weight = mnc_query_in(q, MN_LAYER_NORM_WEIGHT);
    const bool fits = is_float(weight) && (!bias || is_float(bias));
    if (fits)
        return MN_VERDICT_NATIVE;
    return no(why, REASON_DTYPE);
}
static int32_t rope_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    const mn_tensor *x = mnc_query_in(q, MN_ROPE_X);
    const mn_tensor *freqs = mnc_query_in(q, MN_ROPE_FREQS);
    const mn_tensor *pos = mnc_query_in(q, MN_ROPE_POS);
    const mn_tensor *axes = mnc_query_in(q, MN_ROPE_AXES);
    bool fits = x && x->n_dim == 3 && freqs && freqs->dtype.id == MN_F32;
    fits = fits && (!pos || pos->n_dim == 2) && (!axes || axes->dtype.id == MN_I32);
    if (fits)
        return MN_VERDICT_NATIVE;
    return no(why, REASON_SHAPE);
}
static int32_t attention_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    const mn_tensor *x = mnc_query_in(q, MN_ATTENTION_Q);
    const int64_t n_head_kv = mnc_query_attr(q, MN_ATTENTION_ATTR_N_HEAD_KV);
    const mn_tensor *biases = mnc_query_in(q, MN_ATTENTION_DISTANCE_BIAS);
    bool fits = x && x->n_dim == 3 && n_head_kv > 0 && mnc_attention_fits(q);
    if (biases && !is_float(biases))
        return no(why, REASON_DTYPE);
    if (fits)
        fits = mnc_query_dim(q, x, 1) % n_head_kv == 0;
    if (fits)
        return MN_VERDICT_NATIVE;
    return no(why, REASON_SHAPE);
}
static int32_t state_verdict(const simd *s, const mnc_query *q, uint32_t *why) {
    (void)s;
    for (uint32_t i = 0; i < q->node->n_in; i++) {
        const mn_tensor *t = mnc_query_in(q, i);
        if (t && t->role == MN_ROLE_WEIGHT && !is_float(t))
            return no(why, REASON_DTYPE);
    }
    if (mnp_n_state(q->graph, q->node))
        return MN_VERDICT_NATIVE;
    return no(why, REASON_SHAPE);
}

/* Some columns of a row of the table. */
static uint64_t table_bytes(const mnc_query *q, const mnk_use *use, uint32_t table) {
    const uint32_t dtype = mnc_query_in(q, table)->dtype.id;
    return mnk_find_linear(dtype, MN_PRECISION_EXACT, use->level, 1, 0)->panel_bytes(MNK_KC);
}
static void embed_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mn_tensor *src = mnc_query_in(q, MN_EMBED_SRC);
    const int64_t rows = mnc_query_dim(q, src, 0);
    op->worker_bytes = table_bytes(q, use, MN_EMBED_WEIGHT);
    op->shared_bytes = (uint64_t)rows * sizeof(int32_t);
}
static void lookup_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    op->worker_bytes = table_bytes(q, use, MN_LOOKUP_WEIGHT);
}
static void rope_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    (void)use;
    const mn_tensor *x = mnc_query_in(q, MN_ROPE_X);
    const int64_t dim = mnc_query_dim(q, x, 2);
    op->worker_bytes = (uint64_t)dim * sizeof(float);
}
static void sample_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    (void)use;
    const mn_tensor *x = mnc_query_in(q, MN_SAMPLE_LOGITS);
    const int64_t n_vocab = mnc_query_dim(q, x, x->n_dim - 1);
    op->worker_bytes = mnc_sample_bytes(n_vocab);
}
static void attention_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    mnk_attention_scratch(q, use, op);
}
static void moe_route_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    (void)use;
    mnk_moe_route_scratch(q, op);
}

/* ---- the table of operations ----------------------------------------------------------------- */

/* The function of an op, with what runs before it: a driver, or that of an instruction set's
 * mnk_vector. */
#define NODE(fn) NULL, fn, 0
#define NODES(first, fn) first, fn, 0
#define VECTOR(field) NULL, NULL, offsetof(mnk_vector, field)
/* Which stages are in cells, of how many units, and when. */
#define APART 0, NULL, NULL
#define CELLS(cells) 1u << MNC_MAIN, cells, NULL
#define FIRST_CELLS(cells) 1u << MNC_FIRST, cells, NULL
#define ALL_CELLS(cells, now) 1u << MNC_FIRST | 1u << MNC_MAIN, cells, now
/* X(op, contract, function, work, cells, verdict, scratch); verdict NULL: always native; scratch
 * NULL: needs none */
#define MNK_OPS(X)                                                                                 \
    X(EMBED, 2, NODES(mnk_embed_resolve, mnk_embed_node), mnk_embed_work, APART, embed_verdict,    \
      embed_scratch)                                                                               \
    X(RMS_NORM, 3, VECTOR(rms_norm), mnk_output_work, CELLS(mnk_vector_cells), rms_norm_verdict,   \
      NULL)                                                                                        \
    X(LAYER_NORM, 1, VECTOR(layer_norm), mnk_output_work, CELLS(mnk_vector_cells),                 \
      layer_norm_verdict, NULL)                                                                    \
    X(LINEAR, 2, NODES(mnk_linear_quantise, mnk_linear_node), mnk_linear_work,                     \
      ALL_CELLS(mnk_linear_cells, NULL), linear_verdict, mnk_linear_scratch)                       \
    X(ROPE, 2, NODE(mnk_rope_node), mnk_rope_work, CELLS(mnk_head_cells), rope_verdict,            \
      rope_scratch)                                                                                \
    X(KV_STORE, 2, NODE(mnk_kv_store_node), mnk_kv_store_work, CELLS(mnk_head_cells), NULL, NULL)  \
    X(ATTENTION, 5, NODES(mnk_attention_split, mnk_attention_node), mnk_attention_work,            \
      ALL_CELLS(mnk_attention_cells, mnk_attention_now), attention_verdict, attention_scratch)     \
    X(ACT, 3, VECTOR(act), mnk_output_work, CELLS(mnk_element_cells), NULL, NULL)                  \
    X(GLU, 2, VECTOR(glu), mnk_output_work, CELLS(mnk_element_cells), NULL, NULL)                  \
    X(ADD, 1, VECTOR(add), mnk_output_work, CELLS(mnk_element_cells), NULL, NULL)                  \
    X(MUL, 1, VECTOR(mul), mnk_output_work, CELLS(mnk_element_cells), NULL, NULL)                  \
    X(SCALE, 1, VECTOR(scale_op), mnk_output_work, CELLS(mnk_element_cells), NULL, NULL)           \
    X(SOFTCAP, 1, VECTOR(softcap), mnk_output_work, CELLS(mnk_element_cells), NULL, NULL)          \
    X(GATHER_ROWS, 1, NODE(mnk_gather_node), mnk_output_work, APART, NULL, NULL)                   \
    X(SAMPLE, 4, NODE(mnc_op_sample), mnk_sample_work, APART, NULL, sample_scratch)                \
    X(MOE_ROUTE, 2, NODE(mnk_moe_route_node), mnk_moe_route_work, CELLS(NULL), moe_route_verdict,  \
      moe_route_scratch)                                                                           \
    X(MOE_LINEAR, 3, NODES(mnk_moe_quantise, mnk_moe_linear_node), mnk_moe_linear_work,            \
      FIRST_CELLS(mnk_moe_cells), moe_linear_verdict, mnk_moe_linear_scratch)                      \
    X(MOE_COMBINE, 3, NODE(mnk_moe_combine_node), mnk_output_work, CELLS(NULL),                    \
      moe_combine_verdict, NULL)                                                                   \
    X(CONV_STATE, 1, NODE(mnk_conv_node), mnk_conv_work, APART, state_verdict, mnk_state_scratch)  \
    X(SSM_SCAN, 1, NODES(mnk_scan_prepare, mnk_scan_node), mnk_scan_work, APART, state_verdict,    \
      mnk_state_scratch)                                                                           \
    X(GATED_DELTA, 1, NODES(mnk_delta_prepare, mnk_delta_node), mnk_delta_work, APART,             \
      state_verdict, mnk_state_scratch)                                                            \
    X(LOOKUP, 1, NODE(mnk_lookup_node), mnk_output_work, APART, lookup_verdict, lookup_scratch)    \
    X(LORA, 1, NODES(mnk_lora_shrink, mnk_lora_node), mnk_lora_work, APART, lora_verdict,          \
      mnk_lora_scratch)

#define CONTRACT(OP, contract, ...) {MN_OP_##OP, contract},
#define ROW(OP, contract, ...) {MN_OP_##OP, __VA_ARGS__},
static const mn_op_contract contracts[] = {MNK_OPS(CONTRACT)};
static const struct {
    uint32_t op;
    mnc_fn first;
    mnc_fn fn;
    size_t vector;
    mnc_work_fn work;
    uint32_t in_cells;
    mnc_cells_fn cells;
    mnc_now_fn now;
    int32_t (*verdict)(const simd *s, const mnc_query *q, uint32_t *why);
    void (*scratch)(const mnc_query *q, const mnk_use *use, mnc_op *op);
} op_rows[] = {MNK_OPS(ROW)};
enum { N_OPS = sizeof op_rows / sizeof *op_rows };

static int32_t verdict(void *self, const mnc_query *q, uint32_t *why) {
    for (int i = 0; i < N_OPS; i++) {
        const bool is_row = op_rows[i].op == q->node->op;
        if (is_row && op_rows[i].verdict)
            return op_rows[i].verdict(self, q, why);
    }
    return MN_VERDICT_NATIVE;
}

/* The operand of the first weight of a product, which keeps a plan; 0: of another node. */
static uint32_t first_weight(const mn_node *n) {
    if (n->op == MN_OP_LINEAR)
        return MN_LINEAR_WEIGHT;
    if (n->op == MN_OP_MOE_LINEAR)
        return MN_MOE_LINEAR_WEIGHT;
    return 0;
}

/* Weights that have kernels for 8-bit activations: those. All others: f32 sums as in class exact,
 * with the KV cache in f16. */
static uint32_t precision(void *self, const mn_graph *g) {
    const simd *s = self;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = mnp_node(g, i);
        const uint32_t first = first_weight(n);
        for (uint32_t j = first; first && j < n->n_in; j += 2) {
            const mn_tensor *w = mnp_in_tensor(g, n, j);
            if (!w)
                continue;
            const uint32_t dtype = w->dtype.id;
            const mnk_linear *k = mnk_find_linear(dtype, MN_PRECISION_A8, s->level, 1, 0);
            if (k && k->x_form == MNK_X_A8)
                return MN_PRECISION_A8;
        }
    }
    return MN_PRECISION_A16;
}

/* OpenBLAS is loaded here, when the first program can use it: in many it never is. */
static bool has_blas(simd *s) {
    const char *why;
    const mn_host *h = s->host;
    const bool ok = mnk_blas_open(&s->blas, h->workers(h->self), &why);
    if (why)
        say(s, MN_LOG_DEBUG, why);
    return ok;
}

/* Makes op->user a plan for a node whose weights are operands first, first + 2, ... */
static mn_status plan_make(const mn_host *host, const mnc_query *q, const mnk_use *use,
                           uint32_t first, mnc_op *op, mn_error *err) {
    const uint32_t n = q->node->n_out;
    const mn_tensor *w = mnc_query_in(q, first);
    const int64_t k = mnc_query_dim(q, w, w->n_dim - 1);
    const uint64_t bytes = mnk_plan_bytes(n);
    uint32_t dtype[MNC_MAX_OUT];
    mnk_plan *p = mnp_new(host, bytes);
    if (!p)
        return mnp_fail_memory(err, bytes, "the plan of a product");
    for (uint32_t i = 0; i < n; i++)
        dtype[i] = mnc_query_in(q, first + 2 * i)->dtype.id;
    mnk_plan_fill(p, use, dtype, n, k);
    op->user = p;
    op->owns_user = true;
    return MN_OK;
}

static mn_status prepare(void *self, const mnc_query *q, mnc_op *op, mn_error *err) {
    simd *s = self;
    const mnk_use *use = use_of(s, q->precision, false);
    if (q->node->op == MN_OP_LINEAR && !mnk_has_heads(q) && mnk_linear_wants_blas(q, use) &&
        has_blas(s))
        use = use_of(s, q->precision, true);
    const mnk_vector *v = mnk_find_vector(s->level);
    *op = (mnc_op){.user = (void *)(uintptr_t)use};
    if (mnk_has_heads(q)) {
        op->fn = mnk_heads_node;
        op->work = mnk_heads_work;
        mnk_heads_scratch(q, use, op);
        return MN_OK;
    }
    for (int i = 0; i < N_OPS; i++) {
        if (op_rows[i].op != q->node->op)
            continue;
        const char *of_vector = (const char *)v + op_rows[i].vector;
        op->first = op_rows[i].first;
        op->fn = op_rows[i].fn;
        op->work = op_rows[i].work;
        op->in_cells = op_rows[i].in_cells;
        op->cells = op_rows[i].cells;
        op->now = op_rows[i].now;
        if (!op->fn)
            memcpy(&op->fn, of_vector, sizeof op->fn);
        mn_status st = MN_OK;
        if (first_weight(q->node))
            st = plan_make(s->host, q, use, first_weight(q->node), op, err);
        if (!st && op_rows[i].scratch)
            op_rows[i].scratch(q, use, op);
        return st;
    }
    return mnp_fail(err, MN_UNSUPPORTED, q->index, "node %u: op %u is unknown to cpu_simd",
                    q->index, q->node->op);
}

/* One row of x is what most steps have. */
static uint64_t repacked_bytes(void *self, uint32_t dtype, int64_t rows, int64_t cols,
                               uint32_t precision) {
    const simd *s = self;
    if (!mnk_find_lanes(dtype, precision, s->level, 1, cols))
        return 0;
    return mnk_lanes_bytes(dtype, rows, cols);
}
static bool repack(void *self, const mnc_weight *w, uint8_t *to) {
    (void)self;
    return mnk_lanes_pack(w, to);
}

static const mnc_ops ops = {
    .id = "cpu_simd",
    .device_flags = MN_DEVICE_PARALLEL_PUT,
    .state_cols = {MNK_STATE_COLS, MNK_STATE_COLS},
    .has_numa = true,
    .vendor = "Minerva",
    .version = MNK_VERSION,
    .contracts = contracts,
    .n_contracts = N_OPS,
    .init = init,
    .fini = fini,
    .verdict = verdict,
    .reason = reason,
    .precision = precision,
    .prepare = prepare,
    .repacked_bytes = repacked_bytes,
    .repack = repack,
};

MN_PLUGIN_NOTE("cpu_simd", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mnc_plugin_entry(host, &ops, err);
}
