/* op_linear.c -- LINEAR and MOE_LINEAR: which kernel multiplies so many rows by a weight of this
 * type. Class exact: dot products in f32 (gemv). Else matrix units (mmv), for one row of a float
 * type gemv again, which reads no more bytes and rounds less. More than CU_MANY rows: gemm.h, which
 * wants weights of 16 bits; packed ones are widened into the scratch, as many rows at a time as it
 * holds. No number of rows may cost more than its parts do (tests/kernels/sweep_cuda): where it
 * would, rows are multiplied in several calls. */
#include "gemm.h"
#include "ops.h"
#include "residents.h"

/* Whether a product of so many rows is one of matrix units. */
static bool on_matrix_units(const mng_run *r, const mng_weight *w, int64_t rows) {
    if (!cu_rounds(r->p) || cu_row_of(w)->half == CU_F32)
        return false;
    return rows > 1 || cu_row_of(w)->import;
}

/* Whether a product is one of few outputs (k_moe.cu); class exact wants the sums of a single
 * row. */
static bool is_scores(const mng_run *r, const mng_weight *w, const cu_linear *a) {
    const bool plain = a->n_seg == 1 && a->epi == CU_EPI_NONE && !a->gather && !a->norm;
    const bool fits = a->x_kind == CU_F32 && a->K % 4 == 0 && a->total <= 512 && a->rows > 1;
    return cu_rounds(r->p) && cu_row_of(w) == cu_type_of(MN_F32) && plain && fits;
}

static const char *kernel_name_of(bool many, bool units) {
    if (many)
        return "gemm";
    if (units)
        return "mmv";
    return "gemv";
}

/* A product that is not many rows. */
static void few_rows_of(const mng_run *r, const cu_type *type, bool units, const cu_linear *a) {
    if (units)
        type->mmv(&r->dev->card, r->step->stream, a);
    else
        type->gemv(&r->dev->card, r->step->stream, a);
}

/* x, tensor t, as 16-bit rows of ld elements: in the scratch, if it is f32 and is not there yet. */
static void round_x(mng_run *r, const mng_weight *w, int32_t t, cu_linear *a, int64_t rows) {
    if (a->x_kind != CU_F32)
        return;
    void *half = cu_room(r, CU_NEED_HALF);
    const int kind = cu_row_of(w)->half;
    if (r->step->rounded != t || r->step->rounded_kind != kind)
        cu_to_half(r->step->stream, (const float *)a->x, half, (int)rows, a->K, a->x_ld, kind);
    r->step->rounded = t;
    r->step->rounded_kind = kind;
    a->x = half;
    a->x_kind = kind;
}

/* Segments [from, from + count) of a product: weights, biases, outputs. first: operand of weight
 * 0 */
static const mng_weight *set_segments(const mng_run *r, const mn_node *n, uint32_t first,
                                      uint32_t from, uint32_t count, cu_linear *a) {
    const mng_weight *w = cu_in_weight(r, n, first + 2 * from);
    a->K = (int)w->cols;
    a->ld = (int)w->ld;
    a->x_ld = (int)mnp_round(w->cols, CU_K_ALIGN);
    a->n_seg = (int)count;
    a->epi = CU_EPI_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = first + 2 * (from + i);
        const mng_weight *x = cu_in_weight(r, n, at);
        cu_seg *seg = &a->seg[i];
        seg->w = cu_planes_of(x);
        seg->bias = cu_in_flat(r, n, at + 1);
        seg->y = cu_out_f32(r, n, from + i);
        seg->rows = (int)x->group_rows;
        a->total += seg->rows;
    }
    return w;
}

/* The GLU behind gate and up becomes the product's epilogue: one output, of gate's rows. */
static void fuse_glu(const mng_run *r, const mn_node *glu, cu_linear *a) {
    const int32_t y = mnp_out(r->g, glu, 0);
    a->epi = CU_EPI_GLU;
    a->glu = cu_glu_attrs(r->g, glu);
    a->total = a->seg[0].rows;
    a->seg[0].y = cu_f32(r, y);
    a->y_kind = cu_kind(r, y);
}

/* The same of an ADD, whose other operand is the residual. */
static void fuse_add(const mng_run *r, const mn_node *add, int32_t product, cu_linear *a) {
    int32_t other = mnp_in(r->g, add, MN_ADD_A);
    if (other == product)
        other = mnp_in(r->g, add, MN_ADD_B);
    a->epi = CU_EPI_ADD;
    a->residual = cu_f32(r, other);
    a->seg[0].y = cu_out_f32(r, add, 0);
}

/* The GLU by a kernel of its own, over what the product wrote. */
static void glu_apart(const mng_run *r, const mn_node *glu, const cu_linear *a) {
    const int32_t y = mnp_out(r->g, glu, 0);
    cu_elementwise e = {.what = CU_EW_GLU,
                        .a = a->seg[0].y,
                        .b = a->seg[1].y,
                        .y = cu_ptr(r, y),
                        .n = mng_elements(r, y),
                        .glu = cu_glu_attrs(r->g, glu),
                        .y_kind = cu_kind(r, y)};
    cu_elementwise_run(r->step->stream, &e);
}

/* ---- many rows ------------------------------------------------------------------------------- */
enum { CU_MANY = 64, CU_MANY_OF_EXPERT = 24, CU_MANY_PACKED_OF_EXPERT = 100 };
static const uint64_t WIDE_BYTES = 128u << 20;

/* Whether few_sm90 unpacks a weight on the way that must be widened for gemm.h. */
static bool unpacks(const mng_run *r, const mng_weight *w) {
    return cu_row_of(w)->widens && r->dev->card.cc == 90;
}

/* Whether an expert's rows are worth gemm.h. */
static bool is_many_of_expert(const mng_run *r, const mng_weight *w, int rows) {
    if (unpacks(r, w))
        return rows > CU_MANY_PACKED_OF_EXPERT;
    return rows > CU_MANY_OF_EXPERT;
}

/* gate and up go together */
static int segments_at_once(const cu_linear *a) {
    if (a->epi == CU_EPI_GLU)
        return 2;
    return 1;
}

/* What all parts of a product have in common; segments follow. */
static cu_gemm gemm_of(const mng_run *r, const cu_linear *a) {
    cu_gemm g = {.x = a->x,
                 .kind = CU_HALF,
                 .rows = a->rows,
                 .K = a->K,
                 .ld = a->x_ld,
                 .epi = a->epi,
                 .y_kind = a->y_kind,
                 .residual = a->residual,
                 .glu = a->glu,
                 .late = a->late,
                 .scratch = cu_room(r, CU_NEED_GEMM),
                 .scratch_bytes = cu_gemm_scratch(&r->dev->card)};
    return g;
}

/* Rows [from, from + n) of segment s of the product. */
static void set_gemm_segment(const cu_linear *a, int s, int64_t from, int n, const void *w,
                             cu_gemm *g) {
    const int kind = a->epi == CU_EPI_GLU ? a->y_kind : CU_F32;
    cu_gemm_seg *to = &g->seg[g->n_seg++];
    const cu_seg *seg = &a->seg[s];
    to->w = w;
    to->bias = seg->bias ? seg->bias + from : NULL;
    to->y = (char *)seg->y + from * (kind == CU_F32 ? 4 : 2);
    to->n = n;
    to->ld_y = seg->rows;
    to->part = n < seg->rows;
}

/* A product whose weights are kept in 16 bits. */
static void gemm_stored(const mng_run *r, const cu_linear *a) {
    cu_gemm g = gemm_of(r, a);
    for (int s = 0; s < a->n_seg; s++) {
        const cu_seg *seg = &a->seg[s];
        set_gemm_segment(a, s, 0, seg->rows, seg->w.at[0], &g);
    }
    cu_gemm_run(&r->dev->card, r->step->stream, &g);
}

/* Rows [from, from + n) of segments [first, first + count), widened side by side, `room` rows for
 * each, and multiplied. */
static void gemm_widened_part(const mng_run *r, const cu_linear *a, const cu_type *type, int first,
                              int count, int64_t from, int64_t room) {
    char *to = cu_room(r, CU_NEED_WIDE);
    cu_gemm g = gemm_of(r, a);
    for (int s = first; s < first + count; s++) {
        const cu_seg *seg = &a->seg[s];
        const int64_t left = seg->rows - from;
        int64_t n = left;
        if (room < n)
            n = room;
        type->expand(r->step->stream, &seg->w, from, n, a->ld, a->x_ld, to);
        set_gemm_segment(a, s, from, (int)n, to, &g);
        const int64_t rows = mnp_round(n, 128);
        to += rows * a->x_ld * 2;
    }
    g.fresh_w = true;
    if (g.residual)
        g.residual += from;
    cu_gemm_run(&r->dev->card, r->step->stream, &g);
}

/* All segments at once, if there is room for them; else as many rows as there is room for: those of
 * a GLU side by side, others one after the other. */
static void gemm_widened(const mng_run *r, const cu_linear *a, const cu_type *type) {
    const int64_t room = (int64_t)r->p->base.needs.bytes[CU_NEED_WIDE] / (a->x_ld * 2) / 128 * 128;
    const int step = segments_at_once(a);
    int64_t all = 0;
    for (int s = 0; s < a->n_seg; s++)
        all += mnp_round(a->seg[s].rows, 128);
    if (all <= room) {
        gemm_widened_part(r, a, type, 0, a->n_seg, 0, room);
        return;
    }
    const int64_t each = room / step / 128 * 128;
    for (int s = 0; s < a->n_seg; s += step) {
        for (int64_t from = 0; from < a->seg[s].rows; from += each)
            gemm_widened_part(r, a, type, s, step, from, each);
    }
}

/* How many weights a matrix has where 64 rows more cost less than to widen it, and where at least a
 * few rows more do; measured on an H200 (tests/kernels/sweep_cuda). */
static const int64_t HUGE_MATRIX = 400000000, LARGE_MATRIX = 49000000;
/* The same where 16 rows more do. */
static const int64_t BROAD_MATRIX = 64000000;
/* Outputs that give every processor of such a card a tile of few_sm90. */
static const int BROAD = 16896;

/* How many of the first rows are multiplied in one call, so that no number of rows costs more than
 * its parts do: packed weights go by 64 rows as long as that is less than to widen them, and a few
 * rows beside whole tiles of gemm.h go by themselves. */
static int rows_at_once(const mng_run *r, const mng_weight *w, const cu_linear *a, int rows) {
    const int both = segments_at_once(a);
    const int64_t weights = (int64_t)a->total * both * a->K;
    const int rest = rows % 128;
    if (rows <= CU_MANY || !unpacks(r, w) || a->total * both < BROAD || weights < LARGE_MATRIX)
        return rows;
    if (rows <= CU_MANY + (weights >= BROAD_MATRIX ? 16 : 8))
        return CU_MANY;
    if (weights >= HUGE_MATRIX && rows <= 3 * CU_MANY)
        return CU_MANY;
    if (weights < HUGE_MATRIX || !rest || rest > (rows < 384 ? 64 : 32))
        return rows;
    return rows - rest;
}

/* Rows [from, from + n) of a product. */
static cu_linear rows_of(const cu_linear *a, int from, int n) {
    cu_linear part = *a;
    part.rows = n;
    part.x = (const char *)a->x + (int64_t)from * (a->x_kind == CU_F32 ? a->K * 4 : a->x_ld * 2);
    if (a->residual)
        part.residual += (int64_t)from * a->seg[0].rows;
    for (int i = 0; i < a->n_seg; i++) {
        const int bytes = a->epi == CU_EPI_GLU && a->y_kind != CU_F32 ? 2 : 4;
        char *y = (char *)a->seg[i].y + (int64_t)from * a->seg[i].rows * bytes;
        part.seg[i].y = (float *)y;
    }
    return part;
}

static void multiply(const mng_run *r, const mng_weight *w, bool units, const cu_linear *a) {
    const bool many = units && a->rows > CU_MANY;
    if (many && cu_row_of(w)->widens)
        gemm_widened(r, a, cu_row_of(w));
    else if (many)
        gemm_stored(r, a);
    else if (is_scores(r, w, a))
        cu_scores_run(r->step->stream, a);
    else
        few_rows_of(r, cu_row_of(w), units, a);
}

/* Outputs [from, from + count) of a LINEAR, whose weights have one type. */
static void run_part(mng_run *r, const mng_unit *u, cu_linear a, uint32_t from, uint32_t count) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mn_node *epi = cu_epilogue(r->g, u);
    const mng_weight *w = set_segments(r, n, MN_LINEAR_WEIGHT, from, count, &a);
    const bool units = on_matrix_units(r, w, a.rows);
    bool glu_after = false;
    if (epi && epi->op == MN_OP_ADD)
        fuse_add(r, epi, mnp_out(r->g, n, 0), &a);
    else if (epi && (units || a.rows == 1))
        fuse_glu(r, epi, &a);
    else
        glu_after = epi != NULL;
    if (units && a.rows > 1)
        round_x(r, w, mnp_in(r->g, n, MN_LINEAR_X), &a, a.rows);
    int left = a.rows;
    while (left) {
        int rows = left;
        if (units)
            rows = rows_at_once(r, w, &a, left);
        const cu_linear part = rows_of(&a, a.rows - left, rows);
        cu_chose(r, u->node, kernel_name_of(units && rows > CU_MANY, units), cu_row_of(w)->name,
                 rows);
        multiply(r, w, units, &part);
        left -= rows;
    }
    if (glu_after)
        glu_apart(r, epi, &a);
}

/* The norm before a product: fused if there is one row, else a kernel of its own. */
static void set_x(const mng_run *r, const mng_unit *u, int32_t x, cu_linear *a) {
    const mn_graph *g = r->g;
    a->x = cu_f32(r, x);
    a->x_kind = cu_kind(r, x);
    if (u->norm < 0)
        return;
    const mn_node *norm = mnp_node(g, u->norm);
    int32_t source = mnp_in(g, norm, 0);
    const int32_t *rows = NULL;
    if (u->gather >= 0) {
        const mn_node *gather = mnp_node(g, u->gather);
        source = mnp_in(g, gather, 0);
        rows = cu_in_i32(r, gather, MN_GATHER_ROWS_ROWS);
    }
    const float *w = cu_in_flat(r, norm, MN_RMS_NORM_WEIGHT);
    const float eps = cu_attr(g, norm, MN_RMS_NORM_ATTR_EPS);
    const float offset = cu_attr(g, norm, MN_RMS_NORM_ATTR_OFFSET);
    if (a->rows > 1) {
        cu_norm all = {0};
        all.x = cu_f32(r, source);
        all.w = w;
        all.w_rows = 1;
        all.gather = rows;
        all.y = cu_ptr(r, x);
        all.x_rows = cu_dim(r, source, 0);
        all.rows = a->rows;
        all.D = cu_last_dim(r, x);
        all.y_kind = a->x_kind;
        all.eps = eps;
        all.offset = offset;
        cu_rms_norm(r->step->stream, &all);
        return;
    }
    a->x = cu_f32(r, source);
    a->gather = rows;
    a->x_rows = cu_dim(r, source, 0);
    a->norm = w;
    a->eps = eps;
    a->offset = offset;
}

/* A step without rows launches nothing. */
static void launch_linear(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const int32_t x = mnp_in(g, n, MN_LINEAR_X);
    cu_linear a = {0};
    a.rows = cu_dim(r, x, 0);
    a.late = r->step->late;
    if (!a.rows)
        return;
    set_x(r, u, x, &a);
    for (uint32_t i = 0, count; i < n->n_out; i += count) { /* weights of one type together */
        const cu_type *type = cu_in_type(r, n, MN_LINEAR_WEIGHT + 2 * i);
        for (count = 1; i + count < n->n_out && count < CU_MAX_SEG; count++) {
            if (cu_in_type(r, n, MN_LINEAR_WEIGHT + 2 * (i + count)) != type)
                break;
        }
        run_part(r, u, a, i, count);
    }
}

/* Pairs of an EXPERTS tensor, sorted, in the scratch. resident: which of them count, or NULL. */
static cu_experts sort_experts(mng_run *r, int32_t experts, int n_experts,
                               const int32_t *resident) {
    cu_sort a = cu_sort_of(r, experts, n_experts);
    a.resident = resident;
    cu_experts e = {.of = a.of,
                    .pairs = a.pairs,
                    .start = a.start,
                    .active = a.active,
                    .n = n_experts,
                    .n_active = a.n_active,
                    .typical = (a.n_pairs + a.n_active - 1) / a.n_active,
                    .most = cu_dim(r, experts, 0)};
    if (resident || r->step->sorted != experts)
        cu_moe_sort(r->step->stream, &a);
    r->step->sorted = resident ? -1 : experts;
    return e;
}

/* Products of many pairs: x and y in the order of experts, as many experts at a time as there is
 * room for in 16 bits. */
static void gemm_experts(mng_run *r, cu_linear *a, const mng_weight *w, bool keeps_16) {
    const cu_type *type = cu_row_of(w);
    const cu_experts *e = &a->experts;
    const int y_kind = a->epi == CU_EPI_GLU ? a->y_kind : CU_F32;
    const int n = a->seg[0].rows;
    const int64_t expert_bytes = (int64_t)n * a->x_ld * 2;
    const int both = segments_at_once(a);
    const int fits = (int)((int64_t)r->p->base.needs.bytes[CU_NEED_WIDE] / (expert_bytes * both));
    int room = fits; /* experts at a time */
    if (keeps_16)
        room = e->n;
    cu_sorted x = {.x = a->x,
                   .y = cu_room(r, CU_NEED_SORTED_X),
                   .pairs = e->pairs,
                   .n_pairs = a->rows,
                   .x_div = e->x_div,
                   .K = a->K,
                   .ld = a->x_ld,
                   .x_kind = a->x_kind,
                   .kind = type->half};
    cu_sort_rows(r->step->stream, &x);
    char *y = cu_room(r, CU_NEED_SORTED_Y);
    char *wide = cu_room(r, CU_NEED_WIDE);
    for (int from = 0; from < e->n; from += room) {
        int count = e->n - from;
        if (room < count)
            count = room;
        cu_gemm g = gemm_of(r, a);
        g.x = x.y;
        g.fresh_w = !keeps_16;
        g.offsets = e->start + from;
        g.n_groups = count;
        g.w_stride = (int64_t)n * a->x_ld;
        for (int s = 0; s < both; s++) {
            char *to = wide + s * room * expert_bytes;
            if (!keeps_16) {
                type->expand(r->step->stream, &a->seg[s].w, (int64_t)from * n, (int64_t)count * n,
                             a->ld, a->x_ld, to);
            }
            cu_gemm_seg *seg = &g.seg[g.n_seg++];
            seg->w = keeps_16 ? a->seg[s].w.at[0] : to;
            seg->bias = a->seg[s].bias ? a->seg[s].bias + (int64_t)from * n : NULL;
            seg->y = y;
            seg->n = n;
            seg->ld_y = n;
        }
        cu_gemm_run(&r->dev->card, r->step->stream, &g);
    }
    const int row_bytes = n * (y_kind == CU_F32 ? 4 : 2);
    cu_unsort_rows(r->step->stream, y, a->seg[0].y, e->pairs, a->rows, row_bytes);
}

/* X_WEIGHTS, or -1. */
static int32_t factors_of(const mn_graph *g, const mn_node *n) {
    return mnp_in(g, n, MN_MOE_LINEAR_WEIGHT + 2 * n->n_out);
}

/* A product with factor times x is factor times the product: of each pair, in all outputs. */
static void scale_pairs(mng_run *r, const mn_node *n, int n_pairs) {
    const int32_t factors = factors_of(r->g, n);
    for (uint32_t i = 0; factors >= 0 && i < n->n_out; i++) {
        const int32_t y = mnp_out(r->g, n, i);
        cu_elementwise e = {0};
        e.what = CU_EW_PAIRS;
        e.a = cu_f32(r, y);
        e.b = cu_f32(r, factors);
        e.y = cu_f32(r, y);
        e.y_kind = CU_F32;
        e.n = mng_elements(r, y);
        e.n_b = e.n / n_pairs;
        cu_elementwise_run(r->step->stream, &e);
    }
}

/* Outputs one after the other, gate and up together where a GLU is fused. Few pairs go to dot
 * products or matrix units as they come, others sorted by expert. With RESIDENT pairs are sorted
 * where matrix units take them, so that experts which are not there have none; dot products compute
 * them, too: the weights are all on the device. */
static void moe_linear(mng_run *r, const mng_unit *u) {
    const mn_graph *g = r->g;
    const mn_node *n = mnp_node(g, u->node);
    const mn_node *epi = cu_epilogue(g, u);
    const int32_t x = mnp_in(g, n, MN_MOE_LINEAR_X);
    const int32_t experts = mnp_in(g, n, MN_MOE_LINEAR_EXPERTS);
    const int n_pairs = cu_elements(r, experts);
    const int k = cu_last_dim(r, experts);
    const bool per_pair = mnp_tensor(g, x)->n_dim == 3;
    const int32_t *resident = cu_in_i32(r, n, mnp_resident_operand(n));
    if (!n_pairs)
        return;
    for (uint32_t i = 0, count; i < n->n_out; i += count) {
        cu_linear a = {0};
        const mng_weight *w = cu_in_weight(r, n, MN_MOE_LINEAR_WEIGHT + 2 * i);
        count = epi ? n->n_out : 1;
        set_segments(r, n, MN_MOE_LINEAR_WEIGHT, i, count, &a);
        const int n_experts = (int)(w->rows / w->group_rows);
        const bool units = cu_rounds(r->p) && cu_row_of(w)->half != CU_F32;
        a.rows = n_pairs;
        a.x = cu_ptr(r, x);
        a.x_kind = cu_kind(r, x);
        if (epi)
            fuse_glu(r, epi, &a);
        if (units && (resident || !cu_pairs_alone(cu_row_of(w), n_pairs))) {
            round_x(r, w, x, &a, per_pair ? n_pairs : n_pairs / k);
            a.experts = sort_experts(r, experts, n_experts, resident);
        } else {
            a.experts.of = cu_i32(r, experts);
            a.experts.n = n_experts;
        }
        a.experts.x_div = per_pair ? 1 : k;
        const bool many = units && a.experts.pairs && is_many_of_expert(r, w, a.experts.typical);
        cu_chose(r, u->node, kernel_name_of(many, units), cu_row_of(w)->name, n_pairs);
        if (many)
            gemm_experts(r, &a, w, !cu_row_of(w)->widens);
        else
            few_rows_of(r, cu_row_of(w), units, &a);
    }
    scale_pairs(r, n, n_pairs);
}

/* ---- heads with matrices of their own -------------------------------------------------------- */
/* The pairs of heads, sorted as if each head's matrix were an expert that all rows chose. */
static cu_experts experts_of_heads(const cu_heads *h, bool sorted) {
    cu_experts e = {.of = h->order, .n = h->H, .x_div = 1};
    if (!sorted)
        return e;
    e.pairs = h->pairs;
    e.start = h->start;
    e.active = h->active;
    e.n_active = h->H;
    e.typical = h->T;
    e.most = h->T;
    return e;
}

static cu_heads heads_of(const mng_run *r, const mn_node *n, int K) {
    const int32_t x = mnp_in(r->g, n, MN_LINEAR_X);
    cu_heads h = {.x = cu_f32(r, x), .T = cu_dim(r, x, 0), .H = cu_dim(r, x, 1), .K = K};
    const int n_pairs = h.T * h.H;
    h.behind = cu_dim(r, x, 2) - K;
    if (h.behind)
        h.dense = cu_room(r, CU_NEED_HEADS_X);
    h.order = cu_room(r, CU_NEED_HEADS);
    h.pairs = h.order + n_pairs;
    h.start = h.pairs + n_pairs;
    h.active = h.start + h.H + 1;
    return h;
}

static void linear_heads(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    for (uint32_t i = 0; i < n->n_out; i++) {
        cu_linear a = {0};
        const mng_weight *w = set_segments(r, n, MN_LINEAR_WEIGHT, i, 1, &a);
        const cu_heads h = heads_of(r, n, a.K);
        const cu_type *type = cu_row_of(w);
        const bool units = cu_rounds(r->p) && type->half != CU_F32;
        const bool sorted = units && !cu_pairs_alone(type, h.T * h.H);
        float *y = a.seg[0].y;
        if (!h.T)
            return;
        cu_heads_in(r->step->stream, &h);
        a.rows = h.T * h.H;
        a.x = h.behind ? h.dense : h.x;
        a.x_kind = CU_F32;
        a.experts = experts_of_heads(&h, sorted);
        if (h.behind)
            a.seg[0].y = cu_room(r, CU_NEED_HEADS_Y);
        if (sorted) {
            r->step->rounded = -1;
            round_x(r, w, -2, &a, a.rows);
            r->step->rounded = -1;
        }
        const bool many = sorted && is_many_of_expert(r, w, a.experts.typical);
        cu_chose(r, u->node, kernel_name_of(many, units), type->name, a.rows);
        if (many)
            gemm_experts(r, &a, w, !type->widens);
        else
            few_rows_of(r, type, units, &a);
        if (h.behind)
            cu_heads_out(r->step->stream, &h, a.seg[0].y, y, a.seg[0].rows);
    }
}

static void linear(mng_run *r, const mng_unit *u) {
    const mn_tensor *w = mnp_in_tensor(r->g, mnp_node(r->g, u->node), MN_LINEAR_WEIGHT);
    if (w->n_dim == 3)
        linear_heads(r, u);
    else
        launch_linear(r, u);
}

/* ---- what they need -------------------------------------------------------------------------- */
static uint32_t first_weight(const mn_node *n) {
    if (n->op == MN_OP_LINEAR)
        return MN_LINEAR_WEIGHT;
    return MN_MOE_LINEAR_WEIGHT;
}

/* gemv keeps a row of x and of its norm in shared memory. */
static bool fits_shared_memory(const mn_device *d, int64_t K) {
    return mnp_round(K, 128) * 10 <= d->card.smem_max - 4096;
}

static uint32_t length_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, first_weight(n) + 2 * i);
        if (!fits_shared_memory(d, w->dim[w->n_dim - 1]))
            return MNG_LENGTH;
    }
    return MNG_OK;
}

static uint32_t linear_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    const uint32_t why = mng_linear_verdict(d, g, n);
    if (why)
        return why;
    return length_verdict(d, g, n);
}

static uint32_t moe_linear_verdict(const mn_device *d, const mn_graph *g, const mn_node *n) {
    const uint32_t why = mng_moe_linear_verdict(d, g, n);
    if (why)
        return why;
    for (uint32_t i = 0; factors_of(g, n) >= 0 && i < n->n_out; i++)
        if (mnp_in(g, n, MN_MOE_LINEAR_BIAS + 2 * i) >= 0) /* it is no part of what is scaled */
            return MNG_NO_KERNEL;
    return length_verdict(d, g, n);
}

/* What products of many rows need: weights in 16 bits, at most WIDE_BYTES or one expert of both
 * segments; of experts, x and y in another order. */
static void many_needs(const mn_tensor *w, int64_t rows, mng_needs *needs) {
    const bool experts = w->n_dim == 3;
    const int64_t K = w->dim[w->n_dim - 1];
    const cu_type *type = cu_type_for(w->dtype.id, K);
    const int64_t N = w->dim[w->n_dim - 2];
    const uint64_t ld = (uint64_t)mnp_round(K, CU_K_ALIGN);
    if (type->half == CU_F32)
        return;
    if (experts) {
        mng_need(needs, CU_NEED_SORTED_X, (uint64_t)rows * ld * 2);
        mng_need(needs, CU_NEED_SORTED_Y, (uint64_t)rows * (uint64_t)N * 4);
    }
    if (!type->widens)
        return;
    uint64_t bytes = (uint64_t)(experts ? N : mnp_round(N, 128)) * ld * 2 * 2;
    if (experts && bytes < WIDE_BYTES)
        bytes *= WIDE_BYTES / bytes;
    if (!experts && bytes > WIDE_BYTES)
        bytes = WIDE_BYTES;
    mng_need(needs, CU_NEED_WIDE, bytes);
}

static void linear_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_graph *g = p->base.graph;
    const uint32_t first = first_weight(n);
    const mn_tensor *x = mnp_in_tensor(g, n, 0);
    const mn_tensor *w = mnp_in_tensor(g, n, first);
    const int64_t ld = mnp_round(w->dim[w->n_dim - 1], CU_K_ALIGN);
    int64_t rows = mnp_dim(g, p->base.symbol_max, x->dim[0]);
    if (n->op == MN_OP_MOE_LINEAR) {
        const mn_tensor *e = mnp_in_tensor(g, n, MN_MOE_LINEAR_EXPERTS);
        rows *= mnp_dim(g, p->base.symbol_max, e->dim[1]);
        mng_need(needs, CU_NEED_PAIRS, (uint64_t)(rows + 2 * w->dim[0] + 1) * 4);
    }
    if (n->op == MN_OP_LINEAR && w->n_dim == 3) {
        const uint64_t H = (uint64_t)w->dim[0];
        rows *= w->dim[0];
        mng_need(needs, CU_NEED_HEADS_X, (uint64_t)(rows * w->dim[2]) * 4);
        mng_need(needs, CU_NEED_HEADS_Y, (uint64_t)(rows * w->dim[1]) * 4);
        mng_need(needs, CU_NEED_HEADS, (2 * (uint64_t)rows + 2 * H + 1) * 4);
    }
    mng_need(needs, CU_NEED_HALF, (uint64_t)(rows * ld) * 2);
    if (rows > CU_MANY && cu_rounds(p))
        many_needs(w, rows, needs);
}

const mng_op cu_op_linear = {MN_OP_LINEAR, 2, linear_verdict, linear_needs, linear};
const mng_op cu_op_moe_linear = {MN_OP_MOE_LINEAR, 3, moe_linear_verdict, linear_needs, moe_linear};
