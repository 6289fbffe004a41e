/* test_dtype.c -- dtype.def against MN_DTYPES: every type has one row, every row agrees with the
 * ABI, and every type of weights can be read. */
#include "unit.h"
#include <math.h>

/* Weights of all planes that a row may have, in one place. */
static uint8_t zeros[4096];

static void rows(void **state) {
    (void)state;
    uint32_t n = 0;
#define ROW(NAME, number, elems, bytes, planes)                                                    \
    {                                                                                              \
        mn_dtype t;                                                                                \
        assert_true(mn_dtype_by_id(number, &t));                                                   \
        assert_true(t.id == number && t.block_elems == elems);                                     \
        assert_true(t.block_bytes == bytes && t.n_planes == planes);                               \
        n++;                                                                                       \
    }
    MN_DTYPES(ROW)
#undef ROW
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_int_not_equal(mn_dtype_at(i), mn_dtype_at(j));
    assert_int_equal(mn_dtype_at(n), MN_DTYPE_NONE);
}

/* The planes that dtype.def tells of are as many as the ABI counts; a plane stands once. */
static void planes(void **state) {
    (void)state;
    for (uint32_t i = 0; mn_dtype_at(i); i++) {
        mn_dtype t, of;
        mn_plane_spec spec;
        uint32_t n = 0, kinds = 0;
        mn_dtype_by_id(mn_dtype_at(i), &t);
        for (uint32_t k = 0; mn_dtype_plane(t.id, k, &spec); k++) {
            assert_true(spec.kind >= MN_PLANE_DATA && spec.kind <= MN_PLANE_KINDS);
            assert_false(kinds >> spec.kind & 1);
            assert_true(mn_dtype_by_id(spec.dtype, &of) && mn_plane_takes(&spec, of.id));
            assert_true(!k == (spec.kind == MN_PLANE_DATA));
            kinds |= 1u << spec.kind;
            n += !spec.optional;
        }
        assert_int_equal(n, t.n_planes);
        assert_true(n == 1 || mn_dtype_is_weight(t.id));
    }
}

static void ggml_numbers(void **state) {
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; mn_dtype_at(i); i++) {
        uint32_t ggml;
        mn_dtype back;
        if (!mn_dtype_ggml(mn_dtype_at(i), &ggml))
            continue;
        assert_true(mn_dtype_by_ggml(ggml, &back));
        assert_int_equal(back.id, mn_dtype_at(i));
        assert_int_equal(back.n_planes, 1); /* a GGUF tensor is one run of blocks */
        n++;
    }
    assert_true(n >= 32);
}

/* A block of zeros is a block of numbers, in every type. */
static void all_are_read(void **state) {
    (void)state;
    for (uint32_t i = 0; mn_dtype_at(i); i++) {
        mn_stored_row row = {0};
        float out[256];
        mn_plane_spec spec;
        mn_dtype_by_id(mn_dtype_at(i), &row.dtype);
        assert_true(mn_dequant_has(row.dtype.id) == mn_dtype_is_weight(row.dtype.id));
        if (!mn_dequant_has(row.dtype.id))
            continue;
        for (uint32_t k = 0; mn_dtype_plane(row.dtype.id, k, &spec); k++)
            row.plane[spec.kind - 1] = (mn_plane_row){zeros, 0, spec.dtype};
        for (uint32_t k = 0; k < row.dtype.block_elems; k++)
            out[k] = NAN;
        mn_dequant_row(&row, row.dtype.block_elems, out);
        for (uint32_t k = 0; k < row.dtype.block_elems; k++)
            assert_true(isfinite(out[k]));
    }
}

enum { SUM_BLOCKS = 1024 };
/* The GGUF types of few bits give what the Python package gguf gives, or llama.cpp's formula where
 * that has none, bit for bit: the sums are those of dtype_sums.py, of the same pseudo-random
 * blocks. high: the upper byte of an f16 scale, which is kept finite; -1: there is none. */
static void few_bits(void **state) {
    (void)state;
    static const struct {
        uint32_t dtype;
        int high;
        uint64_t sum;
    } types[] = {
        {MN_IQ1_S, 1, 0x54a9dcbee052bac5},   {MN_IQ1_M, 55, 0x2bcbd3eeb0ca7965},
        {MN_IQ2_XXS, 1, 0x467b37432c627009}, {MN_IQ2_XS, 1, 0x6aa7a0a765b7fdc1},
        {MN_IQ2_S, 1, 0x2baceb753395d6a1},   {MN_IQ3_XXS, 1, 0x9bcf4915e26437bd},
        {MN_IQ3_S, 1, 0xc3251b5f05a67da5},   {MN_TQ1_0, 53, 0x6a27f04d99662325},
        {MN_TQ2_0, 65, 0xfb9528561c538325},  {MN_NVFP4_64, -1, 0xefddde3871422325},
        {MN_Q1_0, 1, 0x2f6342d7214b6325},    {MN_Q2_0, 1, 0x75073cd2261a4325},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint8_t block[128];
        uint32_t values[256];
        uint64_t random = 1, sum = 14695981039346656037u;
        mn_stored_row row = {.plane = {{block, 0, types[i].dtype}}};
        assert_true(mn_dtype_by_id(types[i].dtype, &row.dtype));
        for (int b = 0; b < SUM_BLOCKS; b++) {
            for (uint32_t k = 0; k < row.dtype.block_bytes; k++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                block[k] = (uint8_t)(random >> 56);
            }
            if (types[i].high >= 0)
                block[types[i].high] &= 0xbf;
            mn_dequant_row(&row, row.dtype.block_elems, (float *)values);
            for (uint32_t k = 0; k < row.dtype.block_elems; k++)
                sum = (sum ^ values[k]) * 1099511628211u;
        }
        if (sum != types[i].sum)
            fail_msg("%s: sum %016llx", mn_dtype_name(types[i].dtype), (unsigned long long)sum);
    }
}

/* Every code of the small floats, by the formulas of their specifications. */
static void small_floats(void **state) {
    (void)state;
    for (int b = 0; b < 256; b++) {
        const int e = b >> 3 & 15, m = b & 7;
        const double sign = b & 128 ? -1 : 1;
        const double x = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
        if ((b & 127) == 127)
            assert_true(isnan(mn_e4m3_to_f32((uint8_t)b)));
        else
            assert_true((double)mn_e4m3_to_f32((uint8_t)b) == sign * x);
        if (b < 255)
            assert_true((double)mn_e8m0_to_f32((uint8_t)b) == ldexp(1, b - 127));
    }
    for (uint32_t q = 0; q < 16; q++) {
        const double e = q >> 1 & 3, m = q & 1;
        const double x = e > 0 ? ldexp(1 + m / 2, (int)e - 1) : m / 2;
        assert_true((double)mn_e2m1_to_f32(q) == (q & 8 ? -x : x));
    }
}

/* Halves come back as they were; what lies in the middle of two goes to the even one. */
static void halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        const float a = mn_f16_to_f32((uint16_t)h), b = mn_f16_to_f32((uint16_t)(h + 1));
        const uint16_t even = (uint16_t)(h + (h & 1));
        assert_int_equal(mn_f32_to_f16(a), h);
        assert_int_equal(mn_f32_to_f16(-a), h | 0x8000);
        if (h + 1 == 0x7C00)
            break;
        assert_int_equal(mn_f32_to_f16((a + b) / 2), even);
        assert_int_equal(mn_f32_to_f16(nextafterf((a + b) / 2, a)), h);
        assert_int_equal(mn_f32_to_f16(nextafterf((a + b) / 2, b)), h + 1);
    }
    assert_int_equal(mn_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(mn_f32_to_f16(65520), 0x7C00);
    assert_int_equal(mn_f32_to_f16(INFINITY), 0x7C00);
    assert_true(isnan(mn_f16_to_f32(mn_f32_to_f16(NAN))));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),         cmocka_unit_test(planes),   cmocka_unit_test(ggml_numbers),
        cmocka_unit_test(all_are_read), cmocka_unit_test(few_bits), cmocka_unit_test(small_floats),
        cmocka_unit_test(halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
