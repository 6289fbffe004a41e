/* gemm_maps.c -- the matrix product on Hopper as its kernels (gemm_sm90.cuh) want it: maps of x and
 * W for the copy engine, encoded by the driver; places of partial sums in the scratch; how many
 * blocks. */
#include "gemm_args.h"
#include "tensor_map.h"

const cu_gemm_shape cu_gemm_shapes[CU_GEMM_SHAPES] = {
    {128, 256, 1}, {128, 192, 1}, {128, 128, 1}, {128, 128, 2}, {64, 256, 1}};

static bool usable; /* there is code for this card, and the driver encodes maps */

static const gemm_kernel *kernels_of(const cu_gemm *g) {
    if (g->kind == CU_BF16)
        return gemm_kernels_bf16;
    return gemm_kernels_f16;
}

void cu_gemm_sm90_init(void) {
    for (int i = 0; i < CU_GEMM_SHAPES; i++) {
        if (!gemm_kernels_f16[i].init() || !gemm_kernels_bf16[i].init())
            return; /* built without code for it */
    }
    usable = cu_maps_init();
}

/* [groups, rows, K] of 16-bit elements, read in boxes of 64 k by box_rows; zeros outside. */
static bool map_of(CUtensorMap *map, const cu_gemm *g, const void *at, int rows, int groups,
                   int64_t group_stride, int box_rows) {
    const cu_boxes boxes = {.type = g->kind == CU_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                            .n_dim = 3,
                            .at = (void *)at,
                            .dim = {(cuuint64_t)g->K, (cuuint64_t)rows, (cuuint64_t)groups},
                            .stride = {(cuuint64_t)g->ld * 2, (cuuint64_t)group_stride * 2},
                            .box = {GEMM_BLOCK_K, (cuuint32_t)box_rows, 1}};
    return cu_map_encode(map, &boxes);
}

static bool maps_of(gemm_params *p, const cu_gemm *g, const cu_gemm_shape *shape, int piece) {
    const int64_t x_stride = (int64_t)g->rows * g->ld;
    if (!map_of(&p->x, g, g->x, g->rows, 1, x_stride, shape->rows))
        return false;
    for (int i = 0; i < g->n_seg; i++) {
        const int64_t dense = (int64_t)g->seg[i].n * g->ld;
        const int64_t stride = g->offsets ? g->w_stride : dense;
        const cu_gemm_seg *s = &g->seg[i];
        if (!map_of(&p->w[i], g, s->w, s->n, p->a.n_groups, stride, piece))
            return false;
    }
    return true;
}

/* Places of marks and partial sums in the scratch, for a grid of so many blocks. */
static void scratch_of(gemm_params *p, const cu_gemm *g, const cu_gemm_shape *shape, int blocks,
                       int split) {
    const uint64_t marks = ((uint64_t)blocks * GEMM_CONSUMERS * sizeof *p->ready + 255) / 256 * 256;
    const uint64_t sums = (uint64_t)blocks * shape->rows * shape->cols * sizeof *p->partial;
    if (!g->scratch || g->scratch_bytes < marks + sums)
        return;
    p->ready = (unsigned *)g->scratch;
    p->partial = (float *)((char *)g->scratch + marks);
    p->split = split;
}

bool cu_gemm_sm90(const cu_card *d, cudaStream_t s, const cu_gemm *g, cu_gemm_plan plan) {
    if (d->cc != 90 || !usable || plan.shape < 0 || g->n_groups > CU_GEMM_MAX_GROUPS)
        return false;
    const cu_gemm_shape *shape = &cu_gemm_shapes[plan.shape];
    const gemm_kernel *e = &kernels_of(g)[plan.shape];
    const int cluster = shape->deep;
    const int height = shape->rows;
    gemm_params p;
    memset(&p, 0, sizeof p);
    gemm_args_fill(&p.a, g, e->piece, shape->cols / e->piece);
    if (!maps_of(&p, g, shape, e->piece))
        return false;
    p.iters = (g->K + GEMM_BLOCK_K - 1) / GEMM_BLOCK_K;
    p.a.band = 2048 / height;
    const int blocks = d->sms / cluster * cluster;
    if (shape->deep == 1)
        scratch_of(&p, g, shape, blocks, plan.split);
    else if (p.iters < shape->deep)
        return false;
    const int64_t tiles = gemm_row_tiles_most(g, height) * p.a.col_tiles;
    p.dealt = gemm_deal_out((int)tiles, blocks / cluster, p.iters, p.split);
    const bool few = p.dealt.split == 0 && tiles * cluster < blocks;
    e->launch(s, &p, few ? (int)tiles * cluster : blocks);
    return true;
}
