/* op_linear.c -- LINEAR and MOE_LINEAR: one kernel for each weight (linear.cl). One row has a
 * kernel of its own; more go by four, so that a weight is unpacked once for four of them. */
#include "ops.h"
#include "residents.h"

enum { FEW = OCL_LINEAR_FEW };
#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

ocl_grid ocl_linear_grid(ocl_shape shape, int64_t n, int64_t tiles) {
    const int64_t outputs = shape.outputs;
    const size_t lanes = shape.lanes;
    const size_t groups = (size_t)((n + outputs - 1) / outputs);
    return (ocl_grid){{groups * lanes, (size_t)(outputs * tiles), 1}, {lanes, (size_t)outputs, 1}};
}

/* n outputs of a matrix of the type, `tiles` of rows. */
static ocl_grid grid_of(const mng_run *r, const mng_type *type, int64_t n, int64_t tiles) {
    return ocl_linear_grid(ocl_shape_of(r->dev, type), n, tiles);
}

static ocl_linear_args args_of(const mng_weight *w, int64_t N, int64_t rows) {
    ocl_linear_args a = {.w = ocl_matrix_of(w)};
    a.K = (int)w->cols;
    a.N = (int)N;
    a.rows = (int)rows;
    a.per_x = 1;
    a.n_experts = 1;
    a.stride = a.N;
    a.count = 1;
    return a;
}

/* ---- tensor cores ---------------------------------------------------------------------------- */
enum { LEAST_PAIRS = 20, FEW_ROWS = 32, FEW_OUTPUTS = 16 };

static bool takes_mma(const mng_run *r, const mng_weight *w, int64_t rows) {
    const bool fits = w->n_parts == 1 && w->cols % 32 == 0;
    return r->dev->mma && fits && ocl_has_halves(w->type) && rows >= OCL_TILE_ROWS;
}

static bool pairs_take_mma(const mng_run *r, const mng_weight *w, int64_t pairs) {
    return takes_mma(r, w, pairs) && pairs >= LEAST_PAIRS && pairs <= OCL_MMA_PAIRS;
}

/* Whether tiles of many rows are enough to fill a device. */
static bool is_many(const ocl_linear_args *a) {
    enum { ENOUGH = 64 };
    const int across = (a->N + OCL_MMA_OUTPUTS - 1) / OCL_MMA_OUTPUTS;
    const int down = (a->rows + OCL_MMA_ROWS - 1) / OCL_MMA_ROWS;
    return a->rows > FEW_ROWS && across * down >= ENOUGH;
}

/* Whether these are many rows of a packed type or f16, and the matrix is whole. A few tiles are
 * better than the kernel for any device. */
static bool suits_halves(const mng_weight *w, const ocl_linear_args *a) {
    const uint32_t type = w->type->dtype;
    const bool is_packed = type != MN_F32 && type != MN_BF16;
    return w->n_parts == 1 && is_packed && w->cols % 32 == 0 && a->rows > FEW_ROWS;
}

/* Whether they go by pieces: of types whose values halves do not hold. */
static bool takes_pieces(const mng_run *r, const mng_weight *w, const ocl_linear_args *a) {
    return r->dev->mma && suits_halves(w, a) && !ocl_has_halves(w->type);
}

/* Whether they go by products of sub-groups. */
static bool takes_mad(const mng_run *r, const mng_weight *w, const ocl_linear_args *a) {
    return r->dev->mad && suits_halves(w, a);
}

/* refs: as in product_mma. */
static void product_mad(mng_run *r, const mng_weight *w, const ocl_linear_args *a,
                        const mng_ref refs[6], bool beside) {
    const size_t items = r->dev->mad;
    const size_t outputs = items * OCL_MAD_SUBS;
    const size_t across = ((size_t)a->N + outputs - 1) / outputs;
    const size_t down = ((size_t)a->rows + OCL_MAD_ROWS - 1) / OCL_MAD_ROWS;
    ocl_enqueue(r, &(ocl_launch){
                       .kernel = OCL_KERNEL_linear_mad,
                       .type = w->type,
                       .refs = refs,
                       .n_refs = 6,
                       .args = a,
                       .args_bytes = sizeof *a,
                       .grid = {{items * across, OCL_MAD_SUBS * down, 1}, {items, OCL_MAD_SUBS, 1}},
                       .beside = beside});
}

/* Many rows of a float matrix, or of one that goes by pieces, by tiles that are staged; else 32
 * rows at a time, or an expert's. Rows of x must begin at multiples of 16 bytes. beside: as in
 * ocl_launch. */
static void product_mma(mng_run *r, const mng_weight *w, const ocl_linear_args *a, mng_ref x,
                        mng_ref experts, mng_ref matrix, mng_ref bias, mng_ref add, mng_ref y,
                        bool beside) {
    const bool paired = mng_is_there(experts);
    const bool pieces = !ocl_has_halves(w->type);
    const bool many = pieces || (!paired && w->type->dtype == MN_F16 && is_many(a));
    uint32_t kernel = many ? OCL_KERNEL_linear_mma : OCL_KERNEL_linear_mma_few;
    if (pieces)
        kernel = OCL_KERNEL_linear_pieces;
    const int outputs = many ? OCL_MMA_OUTPUTS : FEW_OUTPUTS;
    const int rows = many ? OCL_MMA_ROWS : FEW_ROWS;
    const size_t across = (size_t)((a->N + outputs - 1) / outputs);
    size_t down = (size_t)((a->rows + rows - 1) / rows);
    if (paired)
        down = (size_t)a->n_experts;
    const mng_ref refs[] = {x, experts, matrix, bias, add, y};
    const ocl_grid grid = {{32 * across, OCL_WARPS * down, 1}, {32, OCL_WARPS, 1}};
    ocl_enqueue(r, &(ocl_launch){.kernel = kernel,
                                 .type = w->type,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = a,
                                 .args_bytes = sizeof *a,
                                 .grid = grid,
                                 .beside = beside});
}

/* With part k of a matrix: some of the outputs. at: x, bias, what is added, y. */
static void product_part(mng_run *r, const mng_weight *w, ocl_linear_args a, uint32_t k,
                         const mng_ref *at) {
    const mng_part part = mng_part_of(w, k);
    const mng_ref refs[] = {at[0], part.at, mng_behind(at[1], part.first),
                            mng_behind(at[2], part.first), mng_behind(at[3], part.first)};
    const bool one = a.rows == 1;
    const int64_t tiles = one ? 1 : (a.rows + FEW - 1) / FEW;
    a.N = (int)part.rows;
    ocl_enqueue(r, &(ocl_launch){.kernel = one ? OCL_KERNEL_linear_one : OCL_KERNEL_linear_few,
                                 .type = w->type,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = grid_of(r, w->type, a.N, tiles)});
}

/* Product i of a node; add: what is added to it, or absent, and where the sum goes. */
static void product(mng_run *r, const mn_node *n, uint32_t i, mng_ref add, mng_ref y) {
    const int32_t x = mnp_in(r->g, n, MN_LINEAR_X);
    const int32_t weight = mnp_in(r->g, n, MN_LINEAR_WEIGHT + 2 * i);
    const mng_weight *w = mng_weight_of(r, weight);
    const mng_ref bias = mng_in(r, n, MN_LINEAR_BIAS + 2 * i);
    const ocl_linear_args a = args_of(w, w->rows, mng_dim(r, x, 0));
    const mng_ref from = mng_operand(r, x);
    if ((takes_mma(r, w, a.rows) || takes_pieces(r, w, &a)) && from.at % 16 == 0) {
        product_mma(r, w, &a, from, mng_absent(r), mng_operand(r, weight), bias, add, y, i > 0);
        return;
    }
    if (takes_mad(r, w, &a) && from.at % 16 == 0) {
        const mng_ref refs[6] = {from, mng_absent(r), mng_operand(r, weight), bias, add, y};
        product_mad(r, w, &a, refs, i > 0);
        return;
    }
    for (uint32_t k = 0; k < w->n_parts; k++)
        product_part(r, w, a, k, (const mng_ref[]){from, bias, add, y});
}

/* ---- whole units ----------------------------------------------------------------------------- */
/* Rows that a unit's kernel takes: each reads the matrices anew, from the cache of the device. */
enum { MOST_ROWS = 32 };

/* Whether one kernel does the unit: matrices of one type and width, and a norm's row held at
 * once. */
static bool unit_is_whole(const mng_run *r, const mng_unit *u, const mn_node *n, uint32_t first,
                          int64_t rows) {
    const mng_weight *w = mng_weight_of(r, mnp_in(r->g, n, first));
    const bool experts = n->op == MN_OP_MOE_LINEAR;
    if (!r->dev->warps || n->n_out > 3 || w->n_parts > 1 || (rows > MOST_ROWS && !experts))
        return false;
    if (experts ? pairs_take_mma(r, w, rows) : takes_mma(r, w, rows))
        return false;
    if (u->norm >= 0 && w->cols > OCL_STAGED)
        return false;
    for (uint32_t i = 1; i < n->n_out; i++) {
        const mng_weight *other = mng_weight_of(r, mnp_in(r->g, n, first + 2 * i));
        if (other->type != w->type || other->cols != w->cols || other->n_parts > 1)
            return false;
    }
    return true;
}

/* Operands of linear_warp, in its order. */
enum {
    REF_X,
    REF_NORM,
    REF_EXPERTS,
    REF_W,
    REF_B = REF_W + 3,
    REF_ADD = REF_B + 3,
    REF_Y,
    N_REF = REF_Y + 3
};

static void set_norm(mng_run *r, const mng_unit *u, ocl_warp_args *a, mng_ref *refs) {
    if (u->norm < 0)
        return;
    mng_launch_node(r, u->gather);
    const mn_node *norm = mnp_node(r->g, (uint32_t)u->norm);
    a->normalise = 1;
    a->eps = (float)mnp_attr_f64(r->g, norm, MN_RMS_NORM_ATTR_EPS);
    a->offset = (float)mnp_attr_f64(r->g, norm, MN_RMS_NORM_ATTR_OFFSET);
    refs[REF_X] = mng_in(r, norm, MN_RMS_NORM_X);
    refs[REF_NORM] = mng_in(r, norm, MN_RMS_NORM_WEIGHT);
}

/* What stands behind the product: where its output goes. */
static void set_output(const mng_run *r, const mng_unit *u, const mn_node *n, ocl_warp_args *a,
                       mng_ref *refs) {
    if (u->add >= 0) {
        refs[REF_ADD] = mng_operand(r, mng_addend(r->g, u->add, mnp_out(r->g, n, 0)));
        refs[REF_Y] = mng_out(r, mnp_node(r->g, (uint32_t)u->add), 0);
    }
    if (u->glu >= 0) {
        const mn_node *glu = mnp_node(r->g, (uint32_t)u->glu);
        const mng_glu attrs = mng_glu_of(r->g, glu);
        a->glu = 1;
        a->kind = attrs.kind;
        a->alpha = attrs.alpha;
        a->limit = attrs.limit;
        a->up_offset = attrs.up_offset;
        refs[REF_Y] = mng_out(r, glu, 0);
    }
}

/* One kernel. rows: of the output; of experts pairs. */
static void whole(mng_run *r, const mng_unit *u, const mn_node *n, uint32_t first, int64_t rows,
                  mng_ref experts, int per_x) {
    mng_ref refs[N_REF];
    ocl_warp_args a = {.per_x = per_x};
    for (uint32_t i = 0; i < N_REF; i++)
        refs[i] = mng_absent(r);
    refs[REF_X] = mng_in(r, n, 0);
    refs[REF_EXPERTS] = experts;
    a.n_experts = 1;
    int64_t outputs = 0;
    const mng_weight *w = NULL;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const int32_t t = mnp_in(r->g, n, first + 2 * i);
        w = mng_weight_of(r, t);
        if (mng_is_there(experts))
            a.n_experts = (int)mnp_tensor(r->g, (uint32_t)t)->dim[0];
        a.w[i] = ocl_matrix_of(w);
        a.N[i] = (int)(w->rows / a.n_experts);
        outputs += a.N[i];
        refs[REF_W + i] = mng_operand(r, t);
        refs[REF_B + i] = mng_in(r, n, first + 2 * i + 1);
        refs[REF_Y + i] = mng_out(r, n, i);
    }
    a.K = (int)w->cols;
    set_norm(r, u, &a, refs);
    set_output(r, u, n, &a, refs);
    a.apart = a.glu ? a.N[0] : 1;
    a.units = (int)(outputs + 1) / 2;
    const size_t groups = ((size_t)a.units + OCL_WARPS - 1) / OCL_WARPS;
    /* rows side by side, so that those of one matrix find it in the cache */
    const ocl_grid grid = {{32 * (size_t)rows, OCL_WARPS * groups, 1}, {32, OCL_WARPS, 1}};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_linear_warp,
                                 .type = w->type,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = grid});
}

enum { N_EXPERTS_REFS = 6, EXPERTS_MATRIX = 2 }; /* x, experts, matrix, bias, resident, y */

/* The pairs whose expert is in part k. */
static void experts_part(mng_run *r, const mng_weight *w, ocl_linear_args a, uint32_t k,
                         mng_ref *refs) {
    const mng_part part = mng_part_of(w, k);
    refs[EXPERTS_MATRIX] = part.at;
    a.first = (int)(part.first / a.N);
    a.count = (int)(part.rows / a.N);
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_linear_experts,
                                 .type = w->type,
                                 .refs = refs,
                                 .n_refs = N_EXPERTS_REFS,
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = grid_of(r, w->type, a.N, a.rows)});
}

/* Matrices of heads: those of experts, where pair r H + h is head h of row r. */
static void linear_heads(mng_run *r, const mn_node *n) {
    const int32_t x = mnp_in(r->g, n, MN_LINEAR_X);
    for (uint32_t i = 0; i < n->n_out; i++) {
        const int32_t weight = mnp_in(r->g, n, MN_LINEAR_WEIGHT + 2 * i);
        const mng_weight *w = mng_weight_of(r, weight);
        const int64_t H = mnp_tensor(r->g, (uint32_t)weight)->dim[0];
        ocl_linear_args a = args_of(w, w->rows / H, mng_dim(r, x, 0) * H);
        a.n_experts = (int)H;
        a.behind = (int)(mng_last_dim(r, x) - w->cols);
        mng_ref refs[] = {mng_operand(r, x), mng_absent(r), mng_operand(r, weight),
                          mng_absent(r),     mng_absent(r), mng_out(r, n, i)};
        for (uint32_t k = 0; k < w->n_parts; k++)
            experts_part(r, w, a, k, refs);
    }
}

static void linear(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int64_t rows = mng_dim(r, mnp_in(r->g, n, MN_LINEAR_X), 0);
    if (mnp_in_tensor(r->g, n, MN_LINEAR_WEIGHT)->n_dim == 3) {
        linear_heads(r, n);
        return;
    }
    if (unit_is_whole(r, u, n, MN_LINEAR_WEIGHT, rows)) {
        whole(r, u, n, MN_LINEAR_WEIGHT, rows, mng_absent(r), 1);
        return;
    }
    mng_launch_node(r, u->gather);
    mng_launch_node(r, u->norm);
    if (u->add >= 0) {
        const mng_ref add = mng_operand(r, mng_addend(r->g, u->add, mnp_out(r->g, n, 0)));
        product(r, n, 0, add, mng_out(r, mnp_node(r->g, (uint32_t)u->add), 0));
        return;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        product(r, n, i, mng_absent(r), mng_out(r, n, i));
    mng_launch_node(r, u->glu);
}

/* X_WEIGHTS, or -1. */
static int32_t factors_of(const mn_graph *g, const mn_node *n) {
    return mnp_in(g, n, MN_MOE_LINEAR_WEIGHT + 2 * n->n_out);
}

/* A product with factor times x is factor times the product: of each pair, in all outputs. */
static void scale_outputs(mng_run *r, const mn_node *n, int64_t pairs) {
    const int32_t factors = factors_of(r->g, n);
    for (uint32_t i = 0; factors >= 0 && pairs && i < n->n_out; i++)
        ocl_scale_pairs(r, mng_out(r, n, i), mng_operand(r, factors),
                        mng_elements(r, mnp_out(r->g, n, i)), pairs);
}

/* A bias is no part of what is scaled. */
static uint32_t moe_linear_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; factors_of(g, n) >= 0 && i < n->n_out; i++)
        if (mnp_in(g, n, MN_MOE_LINEAR_BIAS + 2 * i) >= 0)
            return MNG_NO_KERNEL;
    return mng_moe_linear_verdict(d, g, n);
}

static void moe_linear(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t x = mnp_in(r->g, n, MN_MOE_LINEAR_X);
    const int32_t experts = mnp_in(r->g, n, MN_MOE_LINEAR_EXPERTS);
    const int64_t pairs = mng_elements(r, experts);
    int per_x = 1;
    if (mnp_tensor(r->g, (uint32_t)x)->n_dim == 2)
        per_x = (int)mng_dim(r, experts, 1);
    const mng_ref resident = mng_in(r, n, mnp_resident_operand(n));
    const bool all = !mng_is_there(resident);
    if (all && unit_is_whole(r, u, n, MN_MOE_LINEAR_WEIGHT, pairs)) {
        whole(r, u, n, MN_MOE_LINEAR_WEIGHT, pairs, mng_operand(r, experts), per_x);
        scale_outputs(r, n, pairs);
        return;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const int32_t weight = mnp_in(r->g, n, MN_MOE_LINEAR_WEIGHT + 2 * i);
        const mng_weight *w = mng_weight_of(r, weight);
        const int64_t n_experts = mnp_tensor(r->g, (uint32_t)weight)->dim[0];
        ocl_linear_args a = args_of(w, w->rows / n_experts, pairs);
        a.n_experts = (int)n_experts;
        a.per_x = per_x;
        mng_ref refs[] = {mng_operand(r, x),
                          mng_operand(r, experts),
                          mng_operand(r, weight),
                          mng_in(r, n, MN_MOE_LINEAR_BIAS + 2 * i),
                          resident,
                          mng_out(r, n, i)};
        if (all && pairs_take_mma(r, w, pairs) && refs[0].at % 16 == 0) {
            product_mma(r, w, &a, refs[0], refs[1], refs[2], refs[3], mng_absent(r), refs[5],
                        i > 0);
            continue;
        }
        for (uint32_t k = 0; k < w->n_parts; k++)
            experts_part(r, w, a, k, refs);
    }
    scale_outputs(r, n, pairs);
    mng_launch_node(r, u->glu);
}

const mng_op ocl_op_linear = {MN_OP_LINEAR, 2, mng_linear_verdict, NULL, linear};
const mng_op ocl_op_moe_linear = {MN_OP_MOE_LINEAR, 3, moe_linear_verdict, NULL, moe_linear};
