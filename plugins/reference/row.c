/* row.c -- rows of weights as f32: where the planes of a row lie in a weight of cpu_host, for the
 * dequantiser that reference shares with `minerva convert`. It is not the only opinion: cpu_simd
 * unpacks with kernels of its own, and tests hold one against the other. */
#include "reference.h"

/* F64 is converted and never multiplied with. */
bool ref_has_type(uint32_t dtype) {
    return mn_dequant_has(dtype) && dtype != MN_F64;
}

static mn_plane_row plane_row(const mnc_weight *w, const mnc_extra *x, int64_t row) {
    if (!x->data && !x->groups)
        return (mn_plane_row){0};
    return (mn_plane_row){mnc_extra_row(w, x, row), (int64_t)x->step, x->dtype};
}

void ref_row(const mnc_weight *w, int64_t row, float *out) {
    const mn_stored_row stored = {
        .dtype = w->dtype,
        .plane = {
            [MN_PLANE_DATA - 1] = {mnc_row(w, row), w->dtype.block_bytes, w->dtype.id},
            [MN_PLANE_SCALE - 1] = plane_row(w, &w->scale, row),
            [MN_PLANE_BIAS - 1] = plane_row(w, &w->bias, row),
            [MN_PLANE_TENSOR_SCALE - 1] = plane_row(w, &w->tensor_scale, row),
            [MN_PLANE_PICK - 1] = plane_row(w, &w->pick, row),
        }};
    mn_dequant_row(&stored, w->cols, out);
}
