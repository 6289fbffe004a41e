/* w_planes.cl -- types whose scales lie beside their codes: MLX's affine groups (BITS and GROUP by
 * the type) and mxfp4 as released. x = scale code + bias. */
#ifdef BITS
/* 16 values of BITS bits, a little-endian stream: 2 BITS bytes. */
static float16 piece_planes(global const uchar *row, global const float *scale,
                            global const float *bias, int i) {
    global const uchar *q = row + 2 * BITS * i;
    float v[16];
    for (int k = 0; k < 16; k++) {
        const int bit = k * BITS;
        uint code = (uint)q[bit / 8] >> bit % 8;
        if (bit % 8 + BITS > 8)
            code |= (uint)q[bit / 8 + 1] << (8 - bit % 8);
        v[k] = (float)(code & ((1u << BITS) - 1));
    }
    return scale[16 * i / GROUP] * vload16(0, v) + bias[16 * i / GROUP];
}
#else
constant float e2m1_values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
/* Element 2k is the low nibble of byte k. */
static float16 piece_planes(global const uchar *row, global const float *scale,
                            global const float *bias, int i) {
    global const uchar *q = row + 8 * i;
    float v[16];
    for (int k = 0; k < 8; k++) {
        v[2 * k] = e2m1_values[q[k] & 15];
        v[2 * k + 1] = e2m1_values[q[k] >> 4];
    }
    return scale[i / 2] * vload16(0, v);
}
#endif
#define PIECE(row, scale, bias, i) piece_planes(row, (global const float *)(scale), bias, i)
