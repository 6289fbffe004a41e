/* test_quantise.c -- quantisers against limits of their error; rows of a model's tensors against
 * rows of a backend's weights, by the one dequantiser that both use. That its layouts are right is
 * tested elsewhere: against cpu_simd's own kernels (test_rows_linear.c) and other implementations
 * (tests/golden). */
#include "unit.h"
#include "convert/quant.h"
#include "model/rows.h"
#include "reference.h"
#include <math.h>

enum { N = 1 << 15 };
static float values[N], back[N], other[N];
static uint8_t bytes[4 * N];
static uint64_t seed;

static uint64_t draw(void) { /* xorshift: the same numbers everywhere */
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static void gaussian(float sigma) {
    seed = 88172645463325252ull;
    for (int i = 0; i < N; i++) {
        const double u = ((double)(draw() >> 11) + 0.5) / 9007199254740992.0,
                     v = ((double)(draw() >> 11) + 0.5) / 9007199254740992.0;
        values[i] = (float)((double)sigma * sqrt(-2 * log(u)) * cos(2 * M_PI * v));
    }
}

/* Row `bytes` of n values. */
static void read_back(mn_dtype t, int64_t n, float *out) {
    const mn_plane p = {.ptr = bytes,
                        .bytes = sizeof bytes,
                        .kind = MN_PLANE_DATA,
                        .dtype = t.id,
                        .dim = {n},
                        .stride = {t.block_bytes}};
    const mn_tensor_info info = {.n_parts = 1,
                                 .n_planes = 1,
                                 .plane_stride = sizeof p,
                                 .dtype = t,
                                 .dim = {n},
                                 .n_dim = 1,
                                 .planes = &p};
    mn_row_values(&info, 0, out);
}

/* Sum of squared errors over sum of squares: what llama-quantize --pure reaches on the same kind of
 * values, without an importance matrix. */
static const struct {
    const char *name;
    double error;
} limits[] = {
    {"q8_0", 2.86e-5}, {"q6_k", 3.15e-4}, {"q5_k", 1.30e-3},   {"q5_1", 1.43e-3},
    {"q5_0", 1.82e-3}, {"q4_k", 5.09e-3}, {"iq4_nl", 5.80e-3}, {"iq4_xs", 5.89e-3},
    {"q4_1", 6.11e-3}, {"q4_0", 7.37e-3}, {"mxfp4", 1.30e-2},  {"q3_k", 2.27e-2},
    {"q2_k", 8.78e-2}, {"bf16", 2.75e-6}, {"f16", 4.3e-8},
};

static double relative_error(void) {
    double error = 0, square = 0;
    for (int i = 0; i < N; i++) {
        error += ((double)back[i] - (double)values[i]) * ((double)back[i] - (double)values[i]);
        square += (double)values[i] * (double)values[i];
    }
    return error / square;
}

static void errors_of_gaussian_weights(void **state) {
    (void)state;
    gaussian(0.02f);
    for (size_t i = 0; i < MN_COUNT(limits); i++) {
        mn_dtype t;
        assert_true(mn_dtype_by_name(mn_str_of(limits[i].name), &t) && mn_quant_has(t.id));
        mn_quant_row(t.id, values, NULL, N, bytes);
        read_back(t, N, back);
        const double e = relative_error();
        if (e > 1.02 * limits[i].error)
            print_error("%s: %g, at most %g\n", limits[i].name, e, 1.02 * limits[i].error);
        assert_true(e <= 1.02 * limits[i].error);
        assert_true(e > 0.3 * limits[i].error); /* less is not possible: then the test is wrong */
    }
}

/* What a second round over the scales of a block gains; the limits above would not miss it. */
static void scales_are_solved_for(void **state) {
    static const struct {
        uint32_t dtype;
        double error;
    } rows[] = {{MN_Q2_K, 6.82e-2}, {MN_Q4_K, 5.01e-3}, {MN_Q5_K, 1.21e-3}};
    (void)state;
    gaussian(0.02f);
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        mn_dtype t;
        assert_true(mn_dtype_by_id(rows[i].dtype, &t));
        mn_quant_row(t.id, values, NULL, N, bytes);
        read_back(t, N, back);
        const double e = relative_error();
        if (e > rows[i].error)
            fail_msg("%s: %g, at most %g", mn_dtype_name(t.id), e, rows[i].error);
    }
}

/* Scales of E4M3, which is coarse where values are small; what llama.cpp reaches at each size. */
static void errors_of_nvfp4(void **state) {
    static const struct {
        float sigma;
        double error;
    } rows[] = {{0.02f, 1.065e-2}, {0.1f, 9.0e-3}, {1, 9.0e-3}};
    static const float ends[] = {0, 1e-38f, 1e-7f, 1e-3f, 1, 448, 2688};
    mn_dtype t;
    (void)state;
    assert_true(mn_dtype_by_id(MN_NVFP4_64, &t));
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        gaussian(rows[i].sigma);
        mn_quant_row(t.id, values, NULL, N, bytes);
        read_back(t, N, back);
        const double e = relative_error();
        if (e > rows[i].error || e < 0.3 * rows[i].error)
            fail_msg("sigma %g: %g, at most %g", (double)rows[i].sigma, e, rows[i].error);
    }
    for (size_t i = 0; i < MN_COUNT(ends); i++) { /* values of a few sizes, one sign each */
        for (int k = 0; k < 64; k++)
            values[k] = (k % 2 ? -1.0f : 1.0f) * ends[i] * (k % 16 < 12 ? 1.0f : 0.5f);
        mn_quant_row(t.id, values, NULL, 64, bytes);
        read_back(t, 64, back);
        for (int k = 0; k < 64; k++)
            if (!(fabsf(back[k] - values[k]) <= 0.07f * ends[i] + 1e-3f))
                fail_msg("%g became %g", (double)values[k], (double)back[k]);
    }
}

static float weights[N];
static double weighted_error(void);

/* Types whose codes are indices of a codebook, without weights and with some over three orders of
 * magnitude. On the storyteller's matrices and its importance matrix the weighted errors are 0.82
 * to 0.89 of llama-quantize's. */
static void errors_of_codebooks(void **state) {
    static const struct {
        const char *name;
        double plain, weighted;
    } rows[] = {
        {"iq2_xxs", 0.108, 0.0530},  {"iq2_xs", 0.083, 0.0391},  {"iq2_s", 0.0585, 0.0326},
        {"iq3_xxs", 0.0320, 0.0136}, {"iq3_s", 0.0170, 0.00851}, {"iq1_s", 0.200, 0.128},
        {"iq1_m", 0.173, 0.0945},    {"tq1_0", 0.191, 0.177},    {"tq2_0", 0.191, 0.177},
    };
    (void)state;
    gaussian(1.5f);
    for (int i = 0; i < N; i++)
        weights[i] = expf(values[N - 1 - i]);
    gaussian(0.02f);
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        mn_dtype t;
        assert_true(mn_dtype_by_name(mn_str_of(rows[i].name), &t) && mn_quant_has(t.id));
        mn_quant_row(t.id, values, NULL, N, bytes);
        read_back(t, N, back);
        const double plain = relative_error();
        mn_quant_row(t.id, values, weights, N, bytes);
        read_back(t, N, back);
        const double weighted = weighted_error();
        if (plain > rows[i].plain || weighted > rows[i].weighted)
            fail_msg("%s: %g and %g, at most %g and %g", rows[i].name, plain, weighted,
                     rows[i].plain, rows[i].weighted);
    }
    memset(values, 0, sizeof values); /* a block of zeros is one */
    mn_quant_row(MN_IQ2_XS, values, NULL, N, bytes);
    mn_dtype t;
    assert_true(mn_dtype_by_id(MN_IQ2_XS, &t));
    read_back(t, N, back);
    assert_memory_equal(back, values, sizeof back);
}

/* Weights that are ternary come back as they were. */
static void ternary_weights(void **state) {
    static const uint32_t ids[] = {MN_TQ1_0, MN_TQ2_0};
    (void)state;
    seed = 7;
    for (int i = 0; i < N; i++)
        values[i] = (float)((int)(draw() % 3) - 1) * (float)(1 + i / 256) / 64;
    for (size_t i = 0; i < MN_COUNT(ids); i++) {
        mn_dtype t;
        assert_true(mn_dtype_by_id(ids[i], &t));
        mn_quant_row(t.id, values, NULL, N, bytes);
        read_back(t, N, back);
        for (int k = 0; k < N; k++)
            assert_true(back[k] == values[k]);
    }
}

static double weighted_error(void) {
    double error = 0, square = 0;
    for (int i = 0; i < N; i++) {
        const double r = (double)back[i] - (double)values[i];
        error += (double)weights[i] * r * r;
        square += (double)weights[i] * (double)values[i] * (double)values[i];
    }
    return error / square;
}

/* Weights over three orders of magnitude: each type's weighted error, as llama-quantize has it with
 * the same matrix, at the most. */
static void errors_by_weights(void **state) {
    static const struct {
        const char *name;
        double error;
    } rows[] = {
        {"q8_0", 2.8248e-05},   {"q6_k", 2.1066e-04},   {"q5_k", 8.6776e-04},  {"q5_1", 7.2437e-04},
        {"q5_0", 1.2303e-03},   {"q4_k", 3.2384e-03},   {"q4_1", 3.1147e-03},  {"q4_0", 5.0445e-03},
        {"iq4_nl", 4.0247e-03}, {"iq4_xs", 4.1358e-03}, {"mxfp4", 1.2962e-02}, {"q3_k", 1.4558e-02},
        {"q2_k", 4.0646e-02},
    };
    (void)state;
    gaussian(1.5f);
    for (int i = 0; i < N; i++)
        weights[i] = expf(values[i]);
    gaussian(0.02f);
    for (int i = 0; i < N / 2; i++) { /* not the numbers that the weights were made of */
        const float v = values[i];
        values[i] = values[N - 1 - i];
        values[N - 1 - i] = v;
    }
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        mn_dtype t;
        assert_true(mn_dtype_by_name(mn_str_of(rows[i].name), &t));
        mn_quant_row(t.id, values, weights, N, bytes);
        read_back(t, N, back);
        const double e = weighted_error();
        if (e > rows[i].error)
            print_error("%s: %g, at most %g\n", rows[i].name, e, rows[i].error);
        assert_true(e <= rows[i].error);
    }
}

/* bf16: to the nearest, and to the even one of two that are as near. */
static void bf16_ties(void **state) {
    static const uint32_t rows[][2] = {
        {0x3F800000, 0x3F80}, {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81},
        {0x3F818000, 0x3F82}, {0xBF818000, 0xBF82}, {0x3FFF8000, 0x4000}, {0x00008000, 0x0000}};
    (void)state;
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        float x;
        memcpy(&x, &rows[i][0], sizeof x);
        mn_quant_row(MN_BF16, &x, NULL, 1, bytes);
        assert_int_equal(bytes[0] | bytes[1] << 8, rows[i][1]);
    }
}

/* Blocks that a search over scales may stumble on: no value may come back far from where it was. */
static void odd_blocks(void **state) {
    (void)state;
    static const float scales[] = {0, 1e-38f, 1e-7f, 1, 3e4f};
    for (size_t i = 0; i < MN_COUNT(limits); i++) {
        mn_dtype t;
        assert_true(mn_dtype_by_name(mn_str_of(limits[i].name), &t));
        for (size_t s = 0; s < MN_COUNT(scales); s++)
            for (int kind = 0; kind < 5; kind++) {
                float x[256], y[256];
                /* constant, one spike, signs in turn, a ramp, all below 0 */
                for (int k = 0; k < 256; k++) {
                    const float kinds[] = {1, (float)(k == 77), k % 2 ? 1.0f : -1.0f,
                                           (float)k / 256, -1 - (float)(k % 7) / 8};
                    x[k] = scales[s] * kinds[kind];
                }
                mn_quant_row(t.id, x, NULL, 256, bytes);
                read_back(t, 256, y);
                for (int k = 0; k < 256; k++) {
                    assert_true(isfinite(y[k]));
                    assert_true(fabsf(y[k] - x[k]) <= 0.6f * scales[s] * 2 + 1e-7f);
                    if (!s)
                        assert_true(y[k] == 0);
                }
            }
    }
}

enum { ROWS = 3, COLS = 256 };

/* Types of several planes: MLX with groups, MXFP4 with its scales apart. */
static void planes(uint32_t dtype, uint32_t scale_type, uint32_t scale_bytes) {
    mn_dtype t;
    float scale[ROWS * COLS / 32], bias[ROWS * COLS / 32];
    uint8_t e8m0[ROWS * COLS / 32];
    assert_true(mn_dtype_by_id(dtype, &t));
    for (size_t k = 0; k < sizeof bytes; k++)
        bytes[k] = (uint8_t)(draw() >> 24);
    for (size_t k = 0; k < MN_COUNT(scale); k++)
        scale[k] = 0.01f * (float)(k + 1), bias[k] = -0.3f * (float)k,
        e8m0[k] = (uint8_t)(120 + k % 9);
    const void *const scales = scale_type == MN_U8 ? (const void *)e8m0 : (const void *)scale;
    const int64_t groups = COLS / t.block_elems, row = groups * t.block_bytes,
                  extra = groups * scale_bytes;
    const mn_plane p[3] = {
        {bytes, (uint64_t)(ROWS * row), MN_PLANE_DATA, dtype, {ROWS, COLS}, {row, t.block_bytes}},
        {scales,
         (uint64_t)(ROWS * extra),
         MN_PLANE_SCALE,
         scale_type,
         {ROWS, groups},
         {extra, scale_bytes}},
        {bias,
         (uint64_t)(ROWS * extra),
         MN_PLANE_BIAS,
         scale_type,
         {ROWS, groups},
         {extra, scale_bytes}}};
    const mn_tensor_info info = {.n_parts = 1,
                                 .n_planes = t.n_planes,
                                 .plane_stride = sizeof *p,
                                 .dtype = t,
                                 .dim = {ROWS, COLS},
                                 .n_dim = 2,
                                 .planes = p};
    const mnc_weight w = {.dtype = t,
                          .data = bytes,
                          .rows = ROWS,
                          .cols = COLS,
                          .row_bytes = (uint64_t)row,
                          .scale = {.data = scales,
                                    .row_bytes = (uint64_t)extra,
                                    .step = scale_bytes,
                                    .dtype = scale_type},
                          .bias = {.data = t.n_planes > 2 ? (const void *)bias : NULL,
                                   .row_bytes = (uint64_t)extra,
                                   .step = scale_bytes,
                                   .dtype = scale_type}};
    for (int r = 0; r < ROWS; r++) {
        mn_row_values(&info, (uint64_t)r, back);
        ref_row(&w, r, other);
        for (int k = 0; k < COLS; k++)
            if (back[k] != other[k])
                fail_msg("%s: row %d, element %d: %g and %g", mn_dtype_name(dtype), r, k,
                         (double)back[k], (double)other[k]);
    }
}

static void several_planes(void **state) {
    (void)state;
    seed = 99;
    for (uint32_t dtype = MN_MLX2_32; dtype <= MN_MLX5_128; dtype++)
        planes(dtype, MN_F32, 4);
    planes(MN_MXFP4_SPLIT, MN_U8, 1);
}

/* A matrix stored by columns, and one in two parts. */
static void strides_and_parts(void **state) {
    (void)state;
    mn_dtype t;
    mn_dtype_by_id(MN_F32, &t);
    float m[2][12];
    for (int i = 0; i < 24; i++)
        m[i / 12][i % 12] = (float)i;
    const mn_plane p[2] = {{m[0], sizeof m[0], MN_PLANE_DATA, MN_F32, {4, 3}, {4, 16}},
                           {m[1], sizeof m[1], MN_PLANE_DATA, MN_F32, {4, 3}, {4, 16}}};
    const mn_tensor_info info = {.n_parts = 2,
                                 .n_planes = 1,
                                 .plane_stride = sizeof *p,
                                 .dtype = t,
                                 .dim = {8, 3},
                                 .n_dim = 2,
                                 .planes = p};
    assert_int_equal(mn_row_count(&info), 8);
    for (int r = 0; r < 8; r++) {
        mn_row_values(&info, (uint64_t)r, back);
        for (int k = 0; k < 3; k++)
            assert_true(back[k] == m[r / 4][4 * k + r % 4]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_gaussian_weights),
        cmocka_unit_test(scales_are_solved_for),
        cmocka_unit_test(errors_of_nvfp4),
        cmocka_unit_test(errors_of_codebooks),
        cmocka_unit_test(ternary_weights),
        cmocka_unit_test(errors_by_weights),
        cmocka_unit_test(bf16_ties),
        cmocka_unit_test(odd_blocks),
        cmocka_unit_test(several_planes),
        cmocka_unit_test(strides_and_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
