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
    assert_true(n >= 23);
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
        cmocka_unit_test(rows),         cmocka_unit_test(planes),
        cmocka_unit_test(ggml_numbers), cmocka_unit_test(all_are_read),
        cmocka_unit_test(small_floats), cmocka_unit_test(halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
