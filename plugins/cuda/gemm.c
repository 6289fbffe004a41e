/* gemm.c -- the matrix product of many rows: how a given shape is run. The choice adds up what a
 * tile's parts take, measured once on an H200; only their ratios matter. */
#include "gemm_args.h"

void cu_gemm_init(const cu_card *d) {
    cu_gemm_mma_init();
    if (d->cc == 90)
        cu_gemm_sm90_init();
}

/* The largest tile's sums for every processor, and two marks each. */
uint64_t cu_gemm_scratch(const cu_card *d) {
    const uint64_t sums = 128 * 256 * sizeof(float);
    const uint64_t marks = 2 * sizeof(unsigned);
    return (uint64_t)d->sms * (sums + marks) + 256;
}

/* Nanoseconds: 64 k of a tile; its epilogue by CU_EPI_*; handing on the sums of a tile that is
 * split. By cu_gemm_shapes. */
typedef struct {
    int iter;
    int epilogue[3];
    int hand_on;
} cost;
static const cost costs[CU_GEMM_SHAPES] = {
    {600, {1800, 3000, 2600}, 5500}, {490, {1400, 2300, 2000}, 4500},
    {375, {900, 1600, 1300}, 3500},  {375, {500, 900, 700}, 1400},
    {390, {900, 1600, 1300}, 3500},
};

/* Tiles along the rows; with experts a guess: each has half a tile that is not full. */
static int64_t row_tiles(const cu_gemm *g, int height) {
    if (!g->offsets)
        return (g->rows + height - 1) / height;
    int64_t used = g->n_groups;
    if (g->rows < used)
        used = g->rows;
    return g->rows / height + (used + 1) / 2;
}

static int64_t tiles_of(const cu_gemm *g, const cu_gemm_shape *shape) {
    int64_t columns = 0;
    for (int i = 0; i < g->n_seg; i++)
        columns += g->seg[i].n;
    const int64_t col_tiles = (columns + shape->cols - 1) / shape->cols;
    return row_tiles(g, shape->rows) * col_tiles;
}

/* Every processor takes whole tiles, the last round may leave some idle. */
static int64_t whole_ns(const cost *c, const cu_gemm *g, int64_t tiles, int64_t takers, int iters) {
    const int64_t rounds = (tiles + takers - 1) / takers;
    return rounds * (iters * c->iter + c->epilogue[g->epi]);
}

/* The tiles of the last round are dealt out evenly to all, in at most 16 parts each; each part
 * after the first is added by itself. */
static int64_t split_ns(const cost *c, const cu_gemm *g, int64_t tiles, int64_t takers, int iters) {
    const int64_t rounds = tiles / takers;
    const int64_t rest = tiles % takers;
    const int64_t workers = takers < 16 * rest ? takers : 16 * rest;
    const int64_t share = (rest * iters + workers - 1) / workers;
    const int64_t parts = (workers + rest - 1) / rest;
    const int64_t whole = whole_ns(c, g, rounds * takers, takers, iters);
    const int64_t part = (share > 4 ? share : 4) * c->iter;
    const int64_t hand_on = c->hand_on * (2 + parts) / 4;
    return whole + part + hand_on + c->epilogue[g->epi];
}

cu_gemm_plan cu_gemm_choose(const cu_card *d, const cu_gemm *g) {
    cu_gemm_plan best = {-1, 0};
    int64_t least = INT64_MAX;
    for (int i = 0; i < CU_GEMM_SHAPES; i++) {
        const cu_gemm_shape *shape = &cu_gemm_shapes[i];
        const int iters = (g->K + 63) / 64 / shape->deep;
        const int64_t tiles = tiles_of(g, shape);
        const int64_t takers = d->sms / shape->deep;
        int64_t ns = whole_ns(&costs[i], g, tiles, takers, iters);
        if (shape->deep > 1) {
            const int64_t rounds = (tiles + takers - 1) / takers;
            ns += costs[i].hand_on * rounds;
        }
        if (iters > 0 && ns < least) {
            least = ns;
            best = (cu_gemm_plan){i, 0};
        }
        if (shape->deep > 1 || tiles % takers == 0 || !g->scratch)
            continue;
        ns = split_ns(&costs[i], g, tiles, takers, iters);
        if (ns < least) {
            least = ns;
            best = (cu_gemm_plan){i, 100};
        }
    }
    return best;
}

/* ---- what kernels are launched with ---------------------------------------------------------- */
/* Columns that are written of a segment's y: padding, too, but not what is another part's. */
static int gemm_width(const cu_gemm_seg *s) {
    if (!s->part && s->ld_y > s->n)
        return s->ld_y;
    return s->n;
}

void gemm_args_fill(gemm_args *a, const cu_gemm *g, int piece, int pieces_a_tile) {
    *a = (gemm_args){0};
    for (int i = 0; i < g->n_seg; i++) {
        const cu_gemm_seg *s = &g->seg[i];
        gemm_segment *to = &a->seg[i];
        const int n = g->epi == CU_EPI_GLU ? s->n : gemm_width(s);
        const uintptr_t places = (uintptr_t)s->y | (uintptr_t)g->residual;
        to->w = s->w;
        to->bias = s->bias;
        to->y = s->y;
        to->n = s->n;
        to->ld = s->ld_y;
        to->end = gemm_width(s);
        to->first = a->pieces;
        to->vectors = s->ld_y % 4 == 0 && places % 16 == 0;
        a->pieces += (n + piece - 1) / piece;
    }
    if (g->epi == CU_EPI_GLU) {
        const int n = gemm_width(&g->seg[0]);
        a->pieces = 2 * ((n + piece - 1) / piece);
    }
    a->col_tiles = (a->pieces + pieces_a_tile - 1) / pieces_a_tile;
    a->fresh_w = g->fresh_w;
    a->residual = g->residual;
    a->offsets = g->offsets;
    a->w_stride = g->w_stride;
    a->rows = g->rows;
    a->n_seg = g->n_seg;
    a->n_groups = g->offsets ? g->n_groups : 1;
    a->epi = g->epi;
    a->y_kind = g->y_kind;
    a->late = g->late;
    a->glu = g->glu;
    if (a->glu.alpha == 0)
        a->glu.alpha = 1;
}

int64_t gemm_row_tiles_most(const cu_gemm *g, int height) {
    const int64_t whole = (g->rows + height - 1) / height;
    if (g->offsets)
        return whole + g->n_groups;
    return whole;
}

/* The portable kernel: tall tiles, where groups have rows for them. */
void cu_gemm_mma(const cu_card *d, cudaStream_t s, const cu_gemm *g) {
    const int per_group = g->offsets ? g->rows / g->n_groups : g->rows;
    const bool tall = per_group > 64;
    const int height = tall ? 128 : 64;
    gemm_args a;
    gemm_args_fill(&a, g, GEMM_MMA_PIECE, GEMM_MMA_COLS / GEMM_MMA_PIECE);
    a.band = 2048 / height;
    (void)d;
    const int64_t tiles = gemm_row_tiles_most(g, height) * a.col_tiles;
    gemm_mma_launch(s, &a, tall, g->kind == CU_BF16, tiles, g->x, (int64_t)g->ld * 2);
}

void cu_gemm_run(const cu_card *d, cudaStream_t s, const cu_gemm *g) {
    if (g->rows == 0 || (g->offsets && g->n_groups == 0))
        return;
    if (!cu_gemm_sm90(d, s, g, cu_gemm_choose(d, g)))
        cu_gemm_mma(d, s, g);
}
