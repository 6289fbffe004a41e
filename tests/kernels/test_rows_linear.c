/* test_rows_linear.c -- test_rows: LINEAR of every type, precision and instruction set, against
 * sums of doubles over what the oracle's dequantisation reads. */
#include "test_rows.h"
#include "../../plugins/reference/reference.h"
#include "../../plugins/cpu_simd/lanes.h"
#include "case.h"
#include <math.h>
#include <stdlib.h>

/* The F16 values of a scale or bias plane, as MLX stores them too: in another type, moved up to the
 * next place in memory. */
static uint8_t *as_dtype(mnc_extra *e, uint32_t dtype, int64_t n, uint8_t *to) {
    for (int64_t i = 0; i < n; i++) {
        const float f = (float)rows_f16(mnk_u16(e->data + 2 * i));
        uint32_t u = mnk_f32_bits(f);
        uint16_t h = (uint16_t)(u >> 16);
        memcpy(to + i * (dtype == MN_F32 ? 4 : 2), dtype == MN_F32 ? (void *)&u : (void *)&h,
               dtype == MN_F32 ? 4 : 2);
    }
    const uint64_t step = dtype == MN_F32 ? 4 : 2;
    *e = (mnc_extra){
        .data = to,
        .row_bytes = e->row_bytes / e->step * step,
        .step = step,
        .dtype = dtype,
    };
    return to + (uint64_t)n * step;
}

static mnc_extra *extra_of(mnc_weight *w, uint32_t kind) {
    mnc_extra *const of[] = {NULL, NULL, &w->scale, &w->bias, &w->tensor_scale, &w->pick};
    return of[kind];
}

/* A random weight [n, k]; its planes lie behind one another, the last of them at an odd address
 * where the type allows it. */
static mnc_weight random_weight(uint32_t type, int64_t n, int64_t k, uint8_t **memory) {
    const mn_dtype t = case_dtype(type);
    const uint64_t bytes = case_plane_bytes(type, n * k);
    const uint64_t blocks = (uint64_t)k / t.block_elems;
    mnc_weight w = {
        .dtype = t,
        .rows = n,
        .cols = k,
        .row_bytes = case_plane_bytes(type, k),
    };
    mn_plane_spec spec;
    const bool floats = t.n_planes == 3 && mn_dtype_plane(type, 1, &spec) && spec.is_float;
    uint8_t *p = *memory =
        malloc(case_weight_bytes(type, n, k) + (type == MN_F8_E4M3 ? (uint64_t)n * 4 : 0) +
               (floats ? 8 * blocks * (uint64_t)n : 0) + 2);
    uint64_t s = rows_u32();
    p += type == MN_F32 ? 0 : 2;
    case_random_weight(type, n, k, &s, p);
    w.data = p;
    p += bytes;
    for (uint32_t i = 1; i < t.n_planes && mn_dtype_plane(type, i, &spec); i++) {
        const uint64_t step = case_dtype(spec.dtype).block_bytes;
        const uint64_t row = (uint64_t)mn_plane_values(&spec, t, k) * step;
        *extra_of(&w, spec.kind) = (mnc_extra){
            .data = p,
            .row_bytes = spec.rows == 1 ? row : 0,
            .step = spec.by_block ? step : 0,
            .dtype = spec.dtype,
        };
        p += (uint64_t)n * row;
    }
    for (int i = 0; floats && i < 2 && n % 3; i++)
        p = as_dtype(i ? &w.bias : &w.scale, n % 3 == 1 ? MN_BF16 : MN_F32, (int64_t)blocks * n, p);
    if (type == MN_F8_E4M3 && n % 2) { /* with and without scales */
        w.scale = (mnc_extra){
            .data = p,
            .row_bytes = 4,
            .step = 0,
            .dtype = MN_F32,
        };
        for (int64_t i = 0; i < n; i++) {
            float f = 0.01f + 0.002f * (float)i;
            memcpy(p + 4 * i, &f, 4);
        }
    }
    return w;
}

enum { MOST_ROWS = 33, QUICK_ROWS = 7, MOST_GROUPS = (MOST_ROWS + MNK_GROUP - 1) / MNK_GROUP };

/* The most rows of a case. */
static int64_t most_rows(void) {
    return rows_quick ? QUICK_ROWS : MOST_ROWS;
}

/* The inputs of a case as a kernel reads them, and what the weight makes of them in double
 * arithmetic: want [MOST_ROWS, n]. */
typedef struct {
    uint8_t *rows;
    int64_t ldx;   /* bytes from row to row */
    double *value; /* [k, MOST_ROWS] */
    double *want;
} linear_inputs;

/* A weight [n, k] and most_rows() random rows, for all numbers of rows. */
typedef struct {
    uint32_t type, precision;
    int32_t level;
    int64_t k, n;
    mnc_weight w;
    uint8_t *memory;
    uint8_t *lanes; /* the weight as w.repacked, or NULL */
    float *wv, *x;
    bool full;                     /* codes and x are as large as can be */
    linear_inputs in[MNK_X_FORMS]; /* those that were needed */
} linear_case;

/* Where a block has its codes, and the byte that makes them the largest; packed types of each
 * number of bits. */
static const struct {
    uint32_t type;
    uint8_t from;
    uint8_t to;
    uint8_t byte;
} full_codes[] = {
    {MN_Q4_0, 2, 18, 0xff},  {MN_Q5_0, 2, 22, 0xff},    {MN_Q8_0, 2, 34, 0x80},
    {MN_MXFP4, 1, 17, 0x77}, {MN_IQ4_NL, 2, 18, 0},     {MN_Q2_K, 16, 80, 0xff},
    {MN_Q3_K, 0, 96, 0xff},  {MN_Q4_K, 16, 144, 0xff},  {MN_Q5_K, 16, 176, 0xff},
    {MN_Q6_K, 0, 192, 0xff}, {MN_MLX6_64, 0, 48, 0xff}, {MN_MLX8_64, 0, 64, 0xff},
};

/* False: the type is not among them. */
static bool fill_codes(mnc_weight *w, uint32_t type) {
    const mn_dtype t = case_dtype(type);
    uint8_t *p = (uint8_t *)(uintptr_t)w->data;
    const int64_t blocks = w->rows * w->cols / t.block_elems;
    for (size_t i = 0; i < sizeof full_codes / sizeof *full_codes; i++) {
        if (full_codes[i].type != type)
            continue;
        for (int64_t b = 0; b < blocks; b++, p += t.block_bytes)
            memset(p + full_codes[i].from, full_codes[i].byte,
                   (size_t)(full_codes[i].to - full_codes[i].from));
        return true;
    }
    return false;
}

/* full: the largest codes, and x as large as it becomes in 8 bits. */
static linear_case linear_open(uint32_t type, uint32_t precision, int32_t level, int64_t k,
                               int64_t n, bool full) {
    linear_case c = {
        .type = type,
        .precision = precision,
        .level = level,
        .k = k,
        .n = n,
    };
    c.w = random_weight(type, n, k, &c.memory);
    c.wv = malloc(sizeof *c.wv * (size_t)(k * n));
    c.x = malloc(sizeof *c.x * (size_t)(k * MOST_ROWS));
    c.full = full && fill_codes(&c.w, type);
    const uint64_t lanes = mnk_lanes_bytes(type, n, k);
    if (lanes) {
        c.lanes = aligned_alloc(64, (lanes + 63) / 64 * 64);
        if (!mnk_lanes_pack(&c.w, c.lanes)) { /* scales that are F32 */
            free(c.lanes);
            c.lanes = NULL;
        }
    }
    for (int64_t i = 0; i < n; i++)
        ref_row(&c.w, i, c.wv + i * k);
    for (int64_t i = 0; i < k * most_rows(); i++) {
        c.x[i] = rows_uniform();
        if (c.full)
            c.x[i] = i / k % 2 ? -1 : 1;
    }
    return c;
}

static void linear_close(linear_case *c) {
    for (int i = 0; i < MNK_X_FORMS; i++) {
        free(c->in[i].rows);
        free(c->in[i].value);
        free(c->in[i].want);
    }
    free(c->memory);
    free(c->lanes);
    free(c->wv);
    free(c->x);
}

/* What tiles keep of x: 8 bits of its mantissa, or 16. */
static double in_tiles(double x, int32_t x_form) {
    float high = (float)x;
    uint32_t bits = mnk_f32_bits(high);
    bits += 0x7fff + (bits >> 16 & 1);
    high = mnk_bits_f32(bits & 0xffff0000);
    if (x_form == MNK_X_TILES2)
        return high + in_tiles(x - high, MNK_X_TILES);
    return high;
}

/* Column j of row i of a group in bytes. */
static double in_bytes(const uint8_t *group, int32_t x_form, int64_t k, int64_t i, int64_t j) {
    const uint8_t *tile = group + j / 64 * 1024;
    int64_t at = j % 64 / 4 * 64 + i * 4 + j % 4;
    if (x_form == MNK_X_ROWS8)
        at = i * 64 + j % 64;
    const int8_t q = (int8_t)tile[at];
    float scale;
    memcpy(&scale, group + (k + 63) / 64 * 1024 + (j / 256 * MNK_GROUP + i) * 4, sizeof scale);
    return (double)q * scale;
}

/* n rows to a group; by way of rows in 8 bits, where that is how the kernel makes it. */
static void pack_rows(const mnk_linear *kern, const float *const x[MNK_GROUP], int64_t n, int64_t k,
                      uint8_t *to) {
    const uint8_t *row[MNK_GROUP];
    const int64_t ldq = mnk_quant_bytes(k);
    if (kern->pack) {
        kern->pack(x, n, k, to);
        return;
    }
    uint8_t *rows = aligned_alloc(64, (size_t)(MNK_GROUP * ldq));
    for (int64_t i = 0; i < n; i++) {
        row[i] = rows + i * ldq;
        mnk_quantise(x[i], k, 0, k / 32, rows + i * ldq);
    }
    kern->pack_quants(row, n, k, to);
    free(rows);
}

/* The most_rows() rows as groups of tiles. */
static void put_tiles(const linear_case *c, int32_t x_form, const mnk_linear *kern,
                      linear_inputs *in) {
    const int64_t k = c->k;
    in->ldx = mnk_group_bytes(k, x_form);
    in->rows = aligned_alloc(64, (size_t)(MOST_GROUPS * in->ldx));
    uint8_t *to = in->rows;
    for (int64_t i = 0; i < most_rows(); i += MNK_GROUP) {
        const float *x[MNK_GROUP];
        int64_t n = 0;
        while (n < MNK_GROUP && i + n < most_rows()) {
            x[n] = c->x + (i + n) * k;
            n++;
        }
        pack_rows(kern, x, n, k, to);
        to += in->ldx;
    }
    in->value = malloc(sizeof *in->value * (size_t)(k * MOST_ROWS));
    for (int64_t i = 0; i < most_rows(); i++) {
        const float *x = c->x + i * k;
        for (int64_t j = 0; j < k; j++) {
            double value;
            if (x_form == MNK_X_TILES8 || x_form == MNK_X_ROWS8)
                value = in_bytes(in->rows + i / MNK_GROUP * in->ldx, x_form, k, i % MNK_GROUP, j);
            else
                value = in_tiles(x[j], x_form);
            in->value[j * MOST_ROWS + i] = value;
        }
    }
}

/* The rows as they are or in 8 bits, and their values. */
static void put_rows(const linear_case *c, bool quantised, linear_inputs *in) {
    const int64_t k = c->k;
    in->ldx = quantised ? mnk_quant_bytes(k) : 4 * k;
    in->rows = aligned_alloc(64, (size_t)((MOST_ROWS * in->ldx + 63) / 64 * 64));
    in->value = malloc(sizeof *in->value * (size_t)(k * MOST_ROWS));
    for (int64_t i = 0; i < most_rows(); i++) {
        uint8_t *row = in->rows + i * in->ldx;
        const float *x = c->x + i * k;
        if (quantised)
            mnk_quantise(x, k, 0, k / 32, row);
        else
            memcpy(row, x, (size_t)(4 * k));
        for (int64_t j = 0; j < k; j++) {
            double value = x[j];
            if (quantised)
                value = (double)mnk_quant_d(row, k)[j / 32] * (int8_t)row[j];
            in->value[j * MOST_ROWS + i] = value;
        }
    }
}

/* Most of the time under sanitizers, which pass it over. */
UNSANITIZED static void add_scaled(double *sum, const double *value, double by, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += value[i] * by;
}

static const linear_inputs *linear_inputs_of(linear_case *c, const mnk_linear *kern) {
    linear_inputs *in = &c->in[kern->x_form];
    if (in->rows)
        return in;
    if (kern->pack || kern->pack_quants)
        put_tiles(c, kern->x_form, kern, in);
    else
        put_rows(c, kern->x_form == MNK_X_A8, in);
    in->want = malloc(sizeof *in->want * (size_t)(c->n * MOST_ROWS));
    const int64_t n_rows = most_rows();
    for (int64_t j = 0; j < c->n; j++) {
        const float *weight = c->wv + j * c->k;
        const double *value = in->value;
        double sum[MOST_ROWS] = {0};
        for (int64_t l = 0; l < c->k; l++) {
            add_scaled(sum, value, weight[l], n_rows);
            value += MOST_ROWS;
        }
        for (int64_t i = 0; i < n_rows; i++)
            in->want[i * c->n + j] = sum[i];
    }
    return in;
}

/* The size of one output where inputs and weights do not cancel. */
static double usual_output(const linear_case *c, const linear_inputs *in, int64_t r) {
    double nx = 0;
    double nw = 0;
    for (int64_t l = 0; l < c->k; l++) {
        const double *value = in->value + l * MOST_ROWS;
        for (int64_t i = 0; i < r; i++)
            nx += value[i] * value[i];
    }
    for (int64_t i = 0; i < c->k * c->n; i++) {
        const double weight = c->wv[i];
        nw += weight * weight;
    }
    return sqrt(nx * nw / (double)c->k);
}

static void multiply_rows(const mnk_linear *kern, const mnc_weight *w, const uint8_t *x,
                          int64_t ldx, int64_t r, float *y, void *panel, uint64_t panel_bytes) {
    mnk_pair pair[MOST_ROWS];
    const int64_t cut = w->repacked ? w->rows / 3 : 0; /* not between two groups of lanes */
    for (int64_t i = 0; i < r; i++) {
        int64_t at = i;
        if (kern->pack || kern->pack_quants)
            at = i / MNK_GROUP;
        pair[i].x = x + at * ldx;
        pair[i].y = y + i * w->rows;
    }
    memset(panel, 0xff, panel_bytes);
    mnk_linear_rows(kern, w, pair, r, 0, cut, panel);
    mnk_linear_rows(kern, w, pair, r, cut, w->rows, panel);
}

/* Of tiles: two f32 values that differ in their last bit may differ in bf16's; two planes lose the
 * product of their rests; weights in bytes are rounded to 127 steps for 256 columns. */
static double error_limit(const mnk_linear *kern) {
    if (kern->x_form == MNK_X_TILES)
        return 1e-4;
    if (kern->x_form == MNK_X_TILES2)
        return 1e-5;
    if (kern->x_form == MNK_X_TILES8 || kern->x_form == MNK_X_ROWS8)
        return 1.2e-2;
    return 2e-6;
}

/* The first r rows of a weight whose rows lie side by side, which the kernel reads alone. */
static void linear_lanes_case(linear_case *c, int64_t r) {
    const mnk_linear *kern = mnk_find_lanes(c->type, c->precision, c->level, r, c->k);
    if (!kern)
        return;
    const linear_inputs *in = linear_inputs_of(c, kern);
    const int64_t n = c->n;
    float *y = malloc(sizeof *y * (size_t)(n * r));
    uint8_t panel[1];
    mnc_weight w = c->w;
    w.data = NULL;
    w.repacked = c->lanes;
    memset(y, 0xff, sizeof *y * (size_t)(n * r));
    multiply_rows(kern, &w, in->rows, in->ldx, r, y, panel, sizeof panel);
    const double e = rows_rel_l2(y, in->want, n * r) * rows_norm(in->want, n * r);
    const double by = usual_output(c, in, r);
    const double limit = error_limit(kern) * (c->full ? 50 : 1);
    rows_check(e <= limit * by, "error of lanes", kern->name, c->k, n, r, e / by);
    free(y);
}

/* The first r rows: near the double ones; the first and the last of them as they come out alone. */
static void linear_rows_case(linear_case *c, int64_t r) {
    const mnk_linear *kern = mnk_find_linear(c->type, c->precision, c->level, r, c->k);
    const mnk_linear *few = mnk_find_linear(c->type, c->precision, c->level, 1, c->k);
    const linear_inputs *in = linear_inputs_of(c, kern);
    const int64_t n = c->n;
    const uint64_t pb = (kern->panel_bytes ? kern->panel_bytes(c->k) : 0) / 64 * 64 + 64;
    float *y = malloc(sizeof *y * (size_t)(n * r));
    float *one = malloc(sizeof *one * (size_t)n);
    void *panel = aligned_alloc(64, pb);
    memset(y, 0xff, sizeof *y * (size_t)(n * r));
    multiply_rows(kern, &c->w, in->rows, in->ldx, r, y, panel, pb);
    const double e = rows_rel_l2(y, in->want, n * r) * rows_norm(in->want, n * r);
    const double by = usual_output(c, in, r); /* a single output may cancel */
    /* by is 0: all weights are */
    /* sums that saturate are off by far more; long ones of one sign by their rounding */
    const double limit = error_limit(kern) * (c->full ? 50 : 1);
    rows_check(e <= limit * by, "error", kern->name, c->k, n, r, e / by);
    const bool same_bits = few->x_form == MNK_X_F32 && kern->x_form == MNK_X_F32;
    for (int64_t i = 0; i < r && same_bits; i += r > 1 ? r - 1 : 1) {
        multiply_rows(few, &c->w, in->rows + i * in->ldx, in->ldx, 1, one, panel, pb);
        rows_check(!memcmp(one, y + i * n, sizeof *one * (size_t)n), "bits depend on R", kern->name,
                   c->k, n, r, (double)i);
    }
    free(y);
    free(one);
    free(panel);
}

enum { MANY = 530, MANY_WEIGHTS = 150 };

/* MANY rows of x to tiles, `some` at once. */
static void product_by(const mnk_linear *kern, const mnc_weight *w, const uint8_t *x, int64_t some,
                       float *y, void *panel) {
    const int64_t bytes = mnk_group_bytes(w->cols, kern->x_form);
    mnk_pair pair[MANY];
    for (int64_t i = 0; i < MANY; i++) {
        pair[i].x = x + i / MNK_GROUP * bytes;
        pair[i].y = y + i * MANY_WEIGHTS;
    }
    for (int64_t i = 0; i < MANY; i += some)
        mnk_linear_rows(kern, w, pair + i, MANY - i < some ? MANY - i : some, 0, MANY_WEIGHTS,
                        panel);
}

/* Kernels of tiles, with more rows than one panel has and more of x than it is unpacked for: the
 * same bits as one group at a time. */
static void tiles_of_many(uint32_t type, const mnk_linear *kern) {
    const int64_t e = case_dtype(type).block_elems;
    const int64_t k = (541 + e - 1) / e * e;
    const int64_t groups = (MANY + MNK_GROUP - 1) / MNK_GROUP;
    uint8_t *memory;
    const mnc_weight w = random_weight(type, MANY_WEIGHTS, k, &memory);
    const int64_t bytes = mnk_group_bytes(k, kern->x_form);
    uint8_t *x = aligned_alloc(64, (size_t)(groups * bytes));
    float *values = malloc(sizeof *values * (size_t)(MNK_GROUP * k));
    const size_t n = (size_t)MANY * MANY_WEIGHTS;
    float *y = calloc(2 * n, sizeof *y);
    void *panel = aligned_alloc(64, kern->panel_bytes(k) / 64 * 64 + 64);
    const float *row[MNK_GROUP];
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t i = 0; i < MNK_GROUP * k; i++)
            values[i] = rows_uniform();
        for (int64_t i = 0; i < MNK_GROUP; i++)
            row[i] = values + i * k;
        kern->pack(row, MNK_GROUP, k, x + g * bytes);
    }
    product_by(kern, &w, x, MANY, y, panel);
    product_by(kern, &w, x, MNK_GROUP, y + n, panel);
    rows_check(!memcmp(y, y + n, n * sizeof *y), "bits depend on R", kern->name, k, MANY_WEIGHTS,
               MANY, 0);
    free(memory);
    free(x);
    free(values);
    free(y);
    free(panel);
}

/* The largest weight of the span of 256 columns that column l of row j is in. */
UNSANITIZED static double most_of_span(const linear_case *c, int64_t j, int64_t l) {
    const float *row = c->wv + j * c->k;
    double most = 0;
    for (int64_t i = l / 256 * 256; i < c->k && i < l / 256 * 256 + 256; i++)
        most = fmax(most, fabs((double)row[i]));
    return most;
}

/* Kernels of tiles of bytes: one of x alone shows each weight as it was rounded. */
static void weights_in_bytes(linear_case *c, const mnk_linear *kern) {
    const int64_t bytes = mnk_group_bytes(c->k, kern->x_form);
    uint8_t *group = aligned_alloc(64, (size_t)bytes);
    float *x = calloc((size_t)(MNK_GROUP * c->k), sizeof *x);
    float *y = malloc(sizeof *y * (size_t)(MNK_GROUP * c->n));
    void *panel = aligned_alloc(64, kern->panel_bytes(c->k) / 64 * 64 + 64);
    const float *row[MNK_GROUP];
    mnk_pair pair[MNK_GROUP];
    for (int64_t i = 0; i < MNK_GROUP; i++) {
        row[i] = x + i * c->k;
        pair[i] = (mnk_pair){group, y + i * c->n};
    }
    for (int64_t at = 0; at < c->k; at += MNK_GROUP) {
        memset(x, 0, sizeof *x * (size_t)(MNK_GROUP * c->k));
        for (int64_t i = 0; i < MNK_GROUP && at + i < c->k; i++)
            x[i * c->k + at + i] = 1;
        kern->pack(row, MNK_GROUP, c->k, group);
        mnk_linear_rows(kern, &c->w, pair, MNK_GROUP, 0, c->n, panel);
        for (int64_t i = 0; i < MNK_GROUP && at + i < c->k; i++)
            for (int64_t j = 0; j < c->n; j++) {
                const double weight = c->wv[j * c->k + at + i];
                const double got = y[i * c->n + j];
                const double off = fabs(got - weight);
                const double most = most_of_span(c, j, at + i);
                rows_check(off <= 1.5 / 127 * most, "a weight", kern->name, c->k, c->n, at + i,
                           off / most);
            }
    }
    free(group);
    free(x);
    free(y);
    free(panel);
}

/* Tiles of rows in 8 bits: each value within half of the span's step and what its
 * factor of 15 bits loses; of a span with a NaN none is a
 * number. */
static void tiles_of_quants(const mnk_linear *kern) {
    enum { K = 608, ROWS = 11, BROKEN = 300 };
    const int64_t quant_bytes = mnk_quant_bytes(K);
    uint8_t *group = aligned_alloc(64, (size_t)mnk_group_bytes(K, MNK_X_TILES8));
    uint8_t *rows = aligned_alloc(64, (size_t)(ROWS * quant_bytes));
    const uint8_t *row[MNK_GROUP];
    for (int64_t i = 0; i < ROWS; i++) {
        float x[K];
        for (int64_t j = 0; j < K; j++)
            x[j] = rows_uniform() * (float)(1 + j / 32 % 5);
        if (i == 0)
            memset(x, 0, sizeof x);
        if (i == 3)
            x[BROKEN] = NAN;
        row[i] = rows + i * quant_bytes;
        mnk_quantise(x, K, 0, K / 32, rows + i * quant_bytes);
    }
    memset(group, 0xff, (size_t)mnk_group_bytes(K, MNK_X_TILES8));
    kern->pack_quants(row, ROWS, K, group);
    for (int64_t i = 0; i < MNK_GROUP; i++)
        for (int64_t j = 0; j < K; j++) {
            double value = 0;
            double step = 0;
            const double got = in_bytes(group, MNK_X_TILES8, K, i, j);
            for (int64_t l = j / 256 * 8; i < ROWS && l < K / 32 && l < j / 256 * 8 + 8; l++)
                step = fmax(step, (double)mnk_quant_d(row[i], K)[l]);
            if (i < ROWS)
                value = (double)mnk_quant_d(row[i], K)[j / 32] * (int8_t)row[i][j];
            const bool is_broken = i == 3 && j / 256 == BROKEN / 256;
            const bool near = fabs(got - value) <= 0.507 * step;
            rows_check(is_broken ? isnan(got) : near, "x in tiles", kern->name, K, i, j, got);
        }
    free(group);
    free(rows);
}

void rows_linear(uint32_t type, uint32_t precision, int32_t level, int64_t least) {
    /* 8 of 32 columns are taken at once by some kernels: a rest, none */
    static const int64_t blocks[] = {1, 3, 9, 16, 65};
    static const int64_t floats[] = {1, 7, 33, 64, 1030, 2083};
    static const int64_t ns[] = {1, 3, 17, 50, 70};
    static const int64_t rs[] = {1, 2, 4, QUICK_ROWS, MOST_ROWS};
    const int64_t lanes_rows[] = {1, 3, QUICK_ROWS, rows_quick ? QUICK_ROWS : MNK_LANES_ROWS};
    int64_t e = case_dtype(type).block_elems;
    while (!mnk_find_linear(type, precision, level, 1, e)) /* columns of the most general kernel */
        e *= 2;
    int64_t most = 5;
    if (e > 32)
        most = e > 128 ? 3 : 4;
    const mnk_linear *many = mnk_find_linear(type, precision, level, MANY, e);
    if (many->pack)
        tiles_of_many(type, many);
    if (many->pack_quants)
        tiles_of_quants(many);
    const int64_t lengths = e > 1 ? most : 6 - rows_quick;
    for (int64_t i = rows_quick; i < lengths; i++) {
        for (int j = 0; j < 5 - (rows_quick && rows_once); j += 1 + rows_quick) {
            if (rows_once && i != j % lengths && j != i % 5)
                continue;
            linear_case c = linear_open(type, precision, level, e > 1 ? e * blocks[i] : floats[i],
                                        ns[j], j == 3);
            for (int l = rows_quick; l < 5; l += 1 + rows_quick)
                if (rs[l] >= least)
                    linear_rows_case(&c, rs[l]);
            for (int l = 0; l < 4 && c.lanes; l++)
                linear_lanes_case(&c, lanes_rows[l]);
            if (many->x_form == MNK_X_TILES8 && c.n < 20)
                weights_in_bytes(&c, many);
            linear_close(&c);
        }
    }
}
