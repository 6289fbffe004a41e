/* kernels.c -- launches of plugins/cuda without kernels: each touches what it is given from end to
 * end, so that sanitizers see places that are not there, and leaves zeros in outputs. The sum alone
 * is one, for the self-test. */
#include "attend_distance.h"
#include "chunks.h"
#include "exchange.h"
#include "gemm_args.h"
#include "prompt_sm90.h"
#include "types.h"

/* The bytes are there. */
static void reads(const void *p, int64_t bytes) {
    volatile char seen = 0;
    const char *at = p;
    for (int64_t i = 0; at && i < bytes; i += 64)
        seen = at[i];
    if (at && bytes > 0)
        seen = at[bytes - 1];
    (void)seen;
}
static void writes(void *p, int64_t bytes) {
    if (p && bytes > 0)
        memset(p, 0, (size_t)bytes);
}
static int64_t kind_bytes(int kind) {
    return kind == CU_F32 ? 4 : 2;
}

/* ---- rows ------------------------------------------------------------------------------------ */
void cu_to_half(cudaStream_t s, const float *x, void *y, int rows, int K, int ld, int kind) {
    (void)s, (void)kind;
    reads(x, (int64_t)rows * K * 4);
    writes(y, (int64_t)rows * ld * 2);
}
void cu_rms_norm(cudaStream_t s, const cu_norm *a) {
    (void)s;
    reads(a->x, (int64_t)a->x_rows * a->D * 4);
    reads(a->w, (int64_t)a->w_rows * a->D * 4);
    reads(a->gather, a->gather ? a->rows * 4 : 0);
    writes(a->y, (int64_t)a->rows * a->D * kind_bytes(a->y_kind));
    writes(a->half, (int64_t)a->rows * a->ld * 2);
}
void cu_rms_part(cudaStream_t s, const cu_norm *a, int n) {
    (void)s;
    reads(a->x, (int64_t)a->x_rows * a->D * 4);
    reads(a->w, (int64_t)n * 4);
    writes(a->y, (int64_t)a->rows * a->D * 4);
}
void cu_heads_in(cudaStream_t s, const cu_heads *a) {
    const int64_t n = (int64_t)a->T * a->H;
    (void)s;
    reads(a->x, n * (a->K + a->behind) * 4);
    writes(a->dense, a->dense ? n * a->K * 4 : 0);
    writes(a->order, n * 4);
    writes(a->pairs, n * 4);
    writes(a->start, (a->H + 1) * 4);
    writes(a->active, a->H * 4);
}
void cu_heads_out(cudaStream_t s, const cu_heads *a, const float *product, float *y, int N) {
    const int64_t n = (int64_t)a->T * a->H;
    (void)s;
    reads(product, n * N * 4);
    writes(y, n * (N + a->behind) * 4);
}
void cu_layer_norm(cudaStream_t s, const float *x, const float *w, const float *b, float *y,
                   int rows, int w_rows, int D, float eps) {
    (void)s, (void)eps;
    reads(x, (int64_t)rows * D * 4);
    reads(w, (int64_t)w_rows * D * 4);
    reads(b, (int64_t)w_rows * D * 4);
    writes(y, (int64_t)rows * D * 4);
}
void cu_lookup_ids(cudaStream_t s, const cu_embed *e) {
    (void)s;
    reads(e->row_pos, e->T * 4);
    reads(e->row_slot, e->T * 4);
    writes(e->ids, e->T * 4);
}
void cu_lora_run(cudaStream_t s, const cu_lora *a) {
    const int64_t rows = a->T;
    const int64_t n_x = rows * a->K;
    const int64_t n_y = rows * a->N;
    const int64_t n_h = rows * a->Q;
    (void)s;
    reads(a->x, n_x * 4);
    reads(a->y, n_y * 4);
    reads(a->adapter, rows * 4);
    writes(a->h, n_h * 4);
    writes(a->z, n_y * 4);
}
void cu_embed_state(cudaStream_t s, const cu_embed *e) {
    (void)s;
    reads(e->src, e->T * 4);
    reads(e->row_slot, e->T * 4);
    writes(e->ids, e->T * 4);
    writes(e->row_pos, e->T * 4);
}
void cu_rope_run(cudaStream_t s, const cu_rope *r) {
    (void)s;
    reads(r->x, (int64_t)r->T * r->H * r->D * 4);
    reads(r->row_pos, r->T * 4);
    writes(r->y, (int64_t)r->T * r->H * r->D * 4);
}
void cu_elementwise_run(cudaStream_t s, const cu_elementwise *e) {
    (void)s;
    float *y = e->y;
    reads(e->a, e->n * 4);
    const int64_t n_b = e->what == CU_EW_PAIRS ? e->n / e->n_b : e->n;
    reads(e->b, e->b ? n_b * 4 : 0);
    if (e->what != CU_EW_ADD || e->y_kind != CU_F32) {
        writes(e->y, e->n * kind_bytes(e->y_kind));
        return;
    }
    for (int64_t i = 0; i < e->n; i++)
        y[i] = e->a[i] + e->b[i];
}
void cu_gather(cudaStream_t s, const float *x, const int32_t *rows, float *y, int O, int T, int D) {
    (void)s;
    reads(x, (int64_t)T * D * 4);
    reads(rows, O * 4);
    writes(y, (int64_t)O * D * 4);
}
void cu_copy_view(cudaStream_t s, const cu_view *v) {
    (void)s;
    reads(v->apart, 4);
    if (!v->to_apart)
        writes(v->dense, v->n * 4);
}
void cu_sample_run(cudaStream_t s, const cu_sample *a) {
    (void)s;
    reads(a->logits, (int64_t)a->O * a->V * 4);
    reads(a->out_slot, a->O * 4);
    writes(a->adjusted, (int64_t)a->O * a->V * 4);
    writes(a->count, (int64_t)a->O * a->V * 4);
    writes(a->ids, a->O * 4);
    writes(a->logprob, a->O * 4);
    writes(a->top_ids, (int64_t)a->O * a->n_top * 4);
    writes(a->top_logprobs, (int64_t)a->O * a->n_top * 4);
}

/* ---- the cache ------------------------------------------------------------------------------- */
static void touch_cache(const cu_cache *c) {
    reads(c->row_pos, c->T * 4);
    reads(c->row_slot, c->T * 4);
    reads(c->pages, (int64_t)c->S * c->P * 4);
    reads(c->kv, c->n_pages * (int64_t)c->page_bytes);
}
void cu_store_run(cudaStream_t s, const cu_store *a) {
    (void)s;
    touch_cache(&a->c);
    reads(a->k, (int64_t)a->c.T * a->c.Hkv * a->c.dk * 4);
    reads(a->v, (int64_t)a->c.T * a->c.Hkv * a->c.dv * 4);
}
static void touch_attend(const cu_attend *a, unsigned slices) {
    touch_cache(&a->c);
    reads(a->q, (int64_t)a->c.T * a->H * a->c.dk * 4);
    reads(a->sinks, a->H * 4);
    reads(a->seqs, a->n_seqs * 16);
    writes(a->y, (int64_t)a->c.T * a->H * a->c.dv * kind_bytes(a->y_kind));
    if (slices > 1)
        writes(a->partial, (int64_t)a->c.T * a->H * a->max_splits * (a->c.dv + 2) * 4);
}
void cu_attend_f32(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    (void)s;
    touch_attend(&x->a, grid.z);
}
void cu_attend_f16(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    cu_attend_f32(s, x, grid);
}
void cu_attend_tiles(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    cu_attend_f32(s, x, grid);
}
void cu_attend_q8_0(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    cu_attend_f32(s, x, grid);
}
void cu_attend_any(cudaStream_t s, const cu_attend_args *x, dim3 grid) {
    cu_attend_f32(s, x, grid);
}
void cu_attend_long_init(const cu_card *d) {
    (void)d;
}
void cu_attend_tiles_init(void) {
}
void cu_attend_long(cudaStream_t s, const cu_attend *a, int log_split, int slices) {
    (void)s, (void)log_split;
    reads(a->slopes, a->H * 4);
    touch_attend(a, (unsigned)slices);
}
void cu_attend_distance_init(const cu_card *d) {
    (void)d;
}
void cu_attend_distance(cudaStream_t s, const cu_attend *a, const cu_distance *d, int rows,
                        int log_split, int slices) {
    (void)s, (void)rows, (void)log_split;
    reads(a->slopes, a->slopes ? a->H * 4 : 0);
    reads(d->biases, d->biases ? (int64_t)d->places * a->H * 4 : 0);
    reads(d->rel_k, d->rel_k ? (int64_t)d->places * a->H * a->c.dk * 4 : 0);
    reads(d->rel_q, d->rel_q ? (int64_t)d->places * a->H * a->c.dk * 4 : 0);
    reads(d->ancestors, d->ancestors ? (int64_t)a->c.T * d->n_words * 4 : 0);
    touch_attend(a, (unsigned)slices);
}
bool cu_latent_kernel_init(void) {
    return true;
}
void cu_attend_latent(cudaStream_t s, const cu_latent *p, int blocks) {
    (void)s;
    touch_attend(&p->a, 1);
    if (p->sharing)
        writes(p->parts, (int64_t)blocks * CU_LATENT_PART * 4);
}
void cu_merge_latent(cudaStream_t s, const cu_latent *p, bool many) {
    (void)s, (void)many;
    touch_attend(&p->a, 1);
}
static void attend_prompt(cudaStream_t s, const cu_attend *a, dim3 grid) {
    (void)s, (void)grid;
    touch_attend(a, 1);
}
const cu_prompt_kernel cu_prompt_f16[CU_PROMPT_KERNELS] = {{64, 50000, attend_prompt},
                                                           {96, 70000, attend_prompt},
                                                           {128, 90000, attend_prompt},
                                                           {256, 170000, attend_prompt}};
const cu_prompt_kernel cu_prompt_q8_0[CU_PROMPT_KERNELS] = {{64, 50000, attend_prompt},
                                                            {96, 70000, attend_prompt},
                                                            {128, 90000, attend_prompt},
                                                            {256, 170000, attend_prompt}};

static bool prompt_sm90_init(void) {
    return false;
}
const prompt_sm90_kernel prompt_sm90_f16[PROMPT_SM90_KERNELS] = {
    {64, 192, prompt_sm90_init, NULL},
    {128, 128, prompt_sm90_init, NULL},
    {256, 128, prompt_sm90_init, NULL}};
const prompt_sm90_kernel prompt_sm90_q8_0[PROMPT_SM90_Q8_KERNELS] = {
    {64, 128, prompt_sm90_init, NULL}, {128, 128, prompt_sm90_init, NULL}};

/* ---- states ---------------------------------------------------------------------------------- */
static void touch_states(const cu_states *s) {
    reads(s->row_pos, s->T * 4);
    reads(s->seqs, s->Q * 16);
    reads(s->states, s->S * 8);
    reads(s->memory, s->n_pages * (int64_t)s->page_bytes);
}
void cu_conv_run(cudaStream_t s, const cu_conv *a) {
    const int64_t n = (int64_t)a->s.T * a->C;
    (void)s;
    touch_states(&a->s);
    reads(a->x, n * 4);
    reads(a->weight, (int64_t)a->C * a->W * 4);
    reads(a->bias, a->C * 4);
    writes(a->y, n * 4);
}
void cu_scan_run(cudaStream_t s, const cu_scan *a) {
    const int64_t T = a->s.T;
    const int64_t n_step = (int64_t)a->H * (a->each ? a->n : 1);
    (void)s;
    touch_states(&a->s);
    reads(a->rows, T * a->width * 4);
    reads(a->step, T * n_step * 4);
    reads(a->beta, T * a->H * 4);
    reads(a->a, a->H * 4);
    reads(a->dt_bias, n_step * 4);
    reads(a->d, a->H * 4);
    writes(a->y, T * a->H * a->dim * 4);
}
void cu_chunks_run(cudaStream_t s, const cu_scan *a, void *room) {
    cu_scan_run(s, a);
    writes(room, (int64_t)cu_chunks_room(a->s.T, a->s.Q, a->G, a->H));
}

/* ---- experts --------------------------------------------------------------------------------- */
void cu_moe_sort(cudaStream_t s, const cu_sort *a) {
    (void)s;
    reads(a->of, a->n_pairs * 4);
    reads(a->resident, a->n * 4);
    writes(a->pairs, a->n_pairs * 4);
    writes(a->start, (a->n + 1) * 4);
    writes(a->active, a->n_active * 4);
}
static void touch_route(const cu_route *r) {
    reads(r->logits, (int64_t)r->T * r->n * 4);
    reads(r->bias, r->n * 4);
    writes(r->experts, (int64_t)r->T * r->k * 4);
    writes(r->weights, (int64_t)r->T * r->k * 4);
}
void cu_route_run(cudaStream_t s, const cu_route *r, const cu_sort *then) {
    touch_route(r);
    cu_moe_sort(s, then);
}
void cu_router_run(cudaStream_t s, const cu_router *a) {
    (void)s;
    reads(a->x, a->D * 4);
    writes(a->y, a->D * 4);
    writes(a->scores, a->route.n * 4);
    writes(a->arrived, 4);
    touch_route(&a->route);
}
void cu_sort_rows(cudaStream_t s, const cu_sorted *a) {
    (void)s;
    reads(a->pairs, a->n_pairs * 4);
    writes(a->y, (int64_t)a->n_pairs * a->ld * 2);
}
void cu_unsort_rows(cudaStream_t s, const void *x, void *y, const int32_t *pairs, int n_pairs,
                    int bytes) {
    (void)s;
    reads(pairs, n_pairs * 4);
    reads(x, (int64_t)n_pairs * bytes);
    writes(y, (int64_t)n_pairs * bytes);
}
void cu_moe_combine(cudaStream_t s, const float *x, const float *weights, const float *residual,
                    float *y, int T, int k, int D) {
    (void)s;
    reads(x, (int64_t)T * k * D * 4);
    reads(weights, (int64_t)T * k * 4);
    reads(residual, (int64_t)T * D * 4);
    writes(y, (int64_t)T * D * 4);
}
void cu_moe_combine_part(cudaStream_t s, const cu_combine *a) {
    const int64_t rows = a->T;
    const int64_t pairs = rows * a->k;
    const int64_t wide = 4 * a->D;
    (void)s;
    reads(a->x, pairs * wide);
    reads(a->weights, pairs * 4);
    reads(a->experts, pairs * 4);
    reads(a->resident, a->n * 4);
    reads(a->base, rows * wide);
    reads(a->residual, rows * wide);
    writes(a->y, rows * wide);
}

/* ---- products -------------------------------------------------------------------------------- */
static void touch_linear(const cu_linear *a) {
    const int row_bytes = a->x_kind == CU_F32 ? a->K * 4 : a->x_ld * 2;
    const int x_rows = a->experts.of ? a->rows / a->experts.x_div : a->rows;
    reads(a->x, (int64_t)(a->gather ? a->x_rows : x_rows) * row_bytes);
    for (int i = 0; i < a->n_seg; i++) {
        const bool glu = a->epi == CU_EPI_GLU;
        const int64_t bytes = glu ? kind_bytes(a->y_kind) : 4;
        reads(a->seg[i].w.at[0], 1);
        reads(a->seg[i].bias, a->seg[i].rows * 4);
        if (!glu || i == 0)
            writes(a->seg[i].y, (int64_t)a->rows * a->seg[i].rows * bytes);
    }
}
static void multiply(const cu_card *d, cudaStream_t s, const cu_linear *a) {
    (void)d, (void)s;
    touch_linear(a);
}
void cu_scores_run(cudaStream_t s, const cu_linear *a) {
    multiply(NULL, s, a);
}
void cu_gemm_mma_init(void) {
}
static void touch_gemm(const gemm_args *a) {
    for (int i = 0; i < a->n_seg; i++)
        reads(a->seg[i].w, 1);
}
void gemm_mma_launch(cudaStream_t s, const gemm_args *a, bool tall, bool bf16, int64_t tiles,
                     const char *x, int64_t pitch) {
    (void)s, (void)tall, (void)bf16, (void)tiles;
    reads(x, a->rows * pitch);
    touch_gemm(a);
}
static bool gemm_init(void) {
    return false;
}
static void gemm_launch(cudaStream_t s, const gemm_params *p, int blocks) {
    (void)s, (void)blocks;
    touch_gemm(&p->a);
}
#define GEMM_ROWS                                                                                  \
    {64, gemm_init, gemm_launch}, {96, gemm_init, gemm_launch}, {64, gemm_init, gemm_launch},      \
        {32, gemm_init, gemm_launch}, {                                                            \
        64, gemm_init, gemm_launch                                                                 \
    }
const gemm_kernel gemm_kernels_f16[CU_GEMM_SHAPES] = {GEMM_ROWS};
const gemm_kernel gemm_kernels_bf16[CU_GEMM_SHAPES] = {GEMM_ROWS};

/* ---- types of weights ------------------------------------------------------------------------ */
static void type_init(const cu_card *d) {
    (void)d;
}
static void expand(cudaStream_t s, const cu_planes *w, int64_t row, int64_t n, int ld, int pitch,
                   void *out) {
    (void)s, (void)row, (void)ld;
    reads(w->at[0], 1);
    writes(out, n * pitch * 2);
}
static void embed(cudaStream_t s, const cu_embed *e) {
    (void)s;
    reads(e->ids, e->T * 4);
    reads(e->table.at[0], 1);
    writes(e->x, (int64_t)e->T * e->D * 4);
}
static void import(cudaStream_t s, const cu_import *i) {
    (void)s;
    reads(i->data, 1);
    for (int p = 0; p < CU_MAX_PLANES; p++)
        reads(i->to.at[p], 1);
}
#define FLOAT(type, id, bytes, half_)                                                              \
    const cu_type cu_type_##type = {.dtype = id,                                                   \
                                    .name = #type,                                                 \
                                    .bits = {1024 * (bytes)},                                      \
                                    .align = CU_K_ALIGN,                                           \
                                    .block = 1,                                                    \
                                    .block_bytes = bytes,                                          \
                                    .half = half_,                                                 \
                                    .init = type_init,                                             \
                                    .gemv = multiply,                                              \
                                    .mmv = (half_) == CU_F32 ? NULL : multiply,                    \
                                    .expand = expand,                                              \
                                    .embed = embed}
#define PACKED(type, id, block_, bytes, extra)                                                     \
    const cu_type cu_type_##type = {.dtype = id,                                                   \
                                    .name = #type,                                                 \
                                    .bits = {1024, 512, 128, 128},                                 \
                                    .align = 128,                                                  \
                                    .block = block_,                                               \
                                    .block_bytes = bytes,                                          \
                                    .planes = extra,                                               \
                                    .half = CU_HALF,                                               \
                                    .widens = true,                                                \
                                    .init = type_init,                                             \
                                    .gemv = multiply,                                              \
                                    .mmv = multiply,                                               \
                                    .expand = expand,                                              \
                                    .embed = embed,                                                \
                                    .import = import}
FLOAT(f32, MN_F32, 4, CU_F32);
FLOAT(f16, MN_F16, 2, CU_HALF);
FLOAT(bf16, MN_BF16, 2, CU_LOW);
PACKED(q4_0, MN_Q4_0, 32, 18, 0);
PACKED(q4_1, MN_Q4_1, 32, 20, 0);
PACKED(q5_0, MN_Q5_0, 32, 22, 0);
PACKED(q5_1, MN_Q5_1, 32, 24, 0);
PACKED(q8_0, MN_Q8_0, 32, 34, 0);
PACKED(q2_k, MN_Q2_K, 256, 84, 0);
PACKED(q3_k, MN_Q3_K, 256, 110, 0);
PACKED(q4_k, MN_Q4_K, 256, 144, 0);
PACKED(q5_k, MN_Q5_K, 256, 176, 0);
PACKED(q6_k, MN_Q6_K, 256, 210, 0);
PACKED(iq4_nl, MN_IQ4_NL, 32, 18, 0);
PACKED(iq4_xs, MN_IQ4_XS, 256, 136, 0);
PACKED(mxfp4, MN_MXFP4, 32, 17, 0);
PACKED(mxfp4_split, MN_MXFP4_SPLIT, 32, 16, 32);
PACKED(mlx4_32, MN_MLX4_32, 32, 16, 32);
PACKED(mlx4_64, MN_MLX4_64, 64, 32, 64);
PACKED(mlx4_128, MN_MLX4_128, 128, 64, 128);
PACKED(mlx8_32, MN_MLX8_32, 32, 32, 32);
PACKED(mlx8_64, MN_MLX8_64, 64, 64, 64);
PACKED(mlx8_128, MN_MLX8_128, 128, 128, 128);
PACKED(f8_e4m3, MN_F8_E4M3, 32, 32, 128);
PACKED(f8_e4m3_128, MN_F8_E4M3_128, 32, 32, 128);
PACKED(nvfp4, MN_NVFP4, 32, 16, 16);
PACKED(nvfp4_64, MN_NVFP4_64, 64, 36, 64);
PACKED(iq2_xxs, MN_IQ2_XXS, 256, 66, 0);
PACKED(iq2_xs, MN_IQ2_XS, 256, 74, 0);
PACKED(iq2_s, MN_IQ2_S, 256, 82, 0);
PACKED(iq3_xxs, MN_IQ3_XXS, 256, 98, 0);
PACKED(iq3_s, MN_IQ3_S, 256, 110, 0);
PACKED(iq1_s, MN_IQ1_S, 256, 50, 0);
PACKED(iq1_m, MN_IQ1_M, 256, 56, 0);
PACKED(tq1_0, MN_TQ1_0, 256, 54, 0);
PACKED(tq2_0, MN_TQ2_0, 256, 66, 0);
PACKED(mlx2_32, MN_MLX2_32, 32, 8, 32);
PACKED(mlx2_64, MN_MLX2_64, 64, 16, 64);
PACKED(mlx2_128, MN_MLX2_128, 128, 32, 128);
PACKED(mlx3_32, MN_MLX3_32, 32, 12, 32);
PACKED(mlx3_64, MN_MLX3_64, 64, 24, 64);
PACKED(mlx3_128, MN_MLX3_128, 128, 48, 128);
PACKED(f8_e5m2, MN_F8_E5M2, 32, 32, 0);
PACKED(f8_e4m3_32, MN_F8_E4M3_32, 32, 32, 32);
PACKED(mlx5_32, MN_MLX5_32, 32, 20, 32);
PACKED(mlx5_64, MN_MLX5_64, 64, 40, 64);
PACKED(mlx5_128, MN_MLX5_128, 128, 80, 128);
PACKED(mlx6_32, MN_MLX6_32, 32, 24, 32);
PACKED(mlx6_64, MN_MLX6_64, 64, 48, 64);
PACKED(mlx6_128, MN_MLX6_128, 128, 96, 128);

/* ---- groups: a card alone is in none -------------------------------------------------------- */
void cu_sum_words(cudaStream_t s, const cu_sum *a) {
    (void)s, (void)a;
}
void cu_sum_parts(cudaStream_t s, const cu_sum *a) {
    (void)s, (void)a;
}
void cu_sum_rows(cudaStream_t s, const cu_sum *a) {
    (void)s, (void)a;
}
void cu_gather_run(cudaStream_t s, const cu_gather_parts *a) {
    (void)s, (void)a;
}
void cu_take_run(cudaStream_t s, const cu_take *a) {
    (void)s, (void)a;
}
void cu_count_exchanges(cudaStream_t s, cu_mailbox *mail, uint32_t n) {
    (void)s, (void)mail, (void)n;
}
