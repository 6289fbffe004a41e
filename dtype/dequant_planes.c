/* dequant_planes.c -- types whose scales lie apart from their data: MLX's affine groups, MXFP4 as
 * released, NVFP4, NF4, FP4, F8 with scales. x = tensor_scale * scale * code + bias, rounded once,
 * from double; a plane that is not there counts as 1, or as 0 for a bias. */
#include "dequant.h"
#include <string.h>

/* The value of one plane for block b; `none` if there is no such plane. */
static double dequant_planes_value_of(const mn_stored_row *row, uint32_t kind, int64_t b,
                                      double none) {
    const mn_plane_row *p = &row->plane[kind - 1];
    return p->at ? mn_plane_value(p->dtype, p->at + b * p->step) : none;
}

/* Element i of the block at p, before it is scaled. */
static double dequant_planes_code_of(uint32_t dtype, const uint8_t *p, int64_t i) {
    switch (dtype) {
    case MN_NVFP4:
    case MN_MXFP4_SPLIT: { /* element 2i is the low nibble of byte i */
        const uint32_t byte = p[i / 2];
        return mn_e2m1_to_f32(byte >> 4 * (i % 2) & 15);
    }
    case MN_NF4_64: /* element 2i is the high nibble of byte i */
        return mn_nf4_values[p[i / 2] >> 4 * (1 - i % 2) & 15];
    case MN_FP4_64:
        return mn_fp4_values[p[i / 2] >> 4 * (1 - i % 2) & 15];
    case MN_F8_E4M3:
    case MN_F8_E4M3_32:
    case MN_F8_E4M3_128:
        return mn_e4m3_to_f32(p[i]);
    default:
        return mn_bit_stream(p, i, mn_mlx_bits(dtype));
    }
}

void mn_dequant_planes(const mn_stored_row *row, int64_t n, float *out) {
    const uint32_t dtype = row->dtype.id;
    const int64_t elems = row->dtype.block_elems;
    const bool one_scale = !row->plane[MN_PLANE_SCALE - 1].step;
    const double tensor_scale = dequant_planes_value_of(row, MN_PLANE_TENSOR_SCALE, 0, 1);
    double scale = tensor_scale * dequant_planes_value_of(row, MN_PLANE_SCALE, 0, 1);
    for (int64_t b = 0; b < n / elems; b++, out += elems) {
        const uint8_t *p = mn_block(row, b);
        if (!one_scale)
            scale = tensor_scale * dequant_planes_value_of(row, MN_PLANE_SCALE, b, 1);
        const double bias = dequant_planes_value_of(row, MN_PLANE_BIAS, b, 0);
        for (int64_t i = 0; i < elems; i++) {
            const double code = dequant_planes_code_of(dtype, p, i);
            out[i] = (float)(scale * code + bias);
        }
    }
}

/* Columns in the order of activations: which scale and which bias a column has is in PICK. */
void mn_dequant_pick(const mn_stored_row *row, int64_t n, float *out) {
    const mn_plane_row *pick = &row->plane[MN_PLANE_PICK - 1];
    const int64_t elems = row->dtype.block_elems;
    uint32_t bits = 8;
    if (row->dtype.id == MN_PICK4_32)
        bits = 4;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *block = mn_block(row, i / elems);
        const double code = mn_bit_stream(block, i % elems, bits);
        int32_t g;
        memcpy(&g, pick->at + i * pick->step, sizeof g);
        const double scale = dequant_planes_value_of(row, MN_PLANE_SCALE, g, 1);
        const double bias = dequant_planes_value_of(row, MN_PLANE_BIAS, g, 0);
        out[i] = (float)(scale * code + bias);
    }
}
