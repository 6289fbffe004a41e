/* w_q32.cl -- blocks of 32 with their scale in front: q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4.
 * A piece is half a block: the low nibbles of its 16 bytes, or the high ones. */
constant float iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
constant float e2m1_values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static float e8m0(uchar e) {
    if (e == 255)
        return NAN;
    return e ? as_float((uint)e << 23) : 0x1p-127f;
}
static uchar16 nibbles(global const uchar *q, int i) {
    const uchar16 both = vload16(0, q);
    return i % 2 ? both >> (uchar)4 : both & (uchar)15;
}
/* The fifth bits: bit 16 (i % 2) + k of four bytes belongs to element k. */
static uchar16 fifths(global const uchar *high, int i) {
    const uint bits = (uint)high[2 * (i % 2)] | (uint)high[2 * (i % 2) + 1] << 8;
    const uint16 k = (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return convert_uchar16(((uint16)bits >> k & 1u) << 4);
}
static float16 look_up(constant float *values, uchar16 q) {
    uchar code[16];
    float v[16];
    vstore16(q, 0, code);
    for (int k = 0; k < 16; k++)
        v[k] = values[code[k]];
    return vload16(0, v);
}

static float16 piece_q4_0(global const uchar *row, int i) {
    global const uchar *b = row + 18 * (i / 2);
    return half_at(b) * (convert_float16(nibbles(b + 2, i)) - 8.0f);
}
static float16 piece_q4_1(global const uchar *row, int i) {
    global const uchar *b = row + 20 * (i / 2);
    return half_at(b) * convert_float16(nibbles(b + 4, i)) + half_at(b + 2);
}
static float16 piece_q5_0(global const uchar *row, int i) {
    global const uchar *b = row + 22 * (i / 2);
    const uchar16 q = nibbles(b + 6, i) | fifths(b + 2, i);
    return half_at(b) * (convert_float16(q) - 16.0f);
}
static float16 piece_q5_1(global const uchar *row, int i) {
    global const uchar *b = row + 24 * (i / 2);
    const uchar16 q = nibbles(b + 8, i) | fifths(b + 4, i);
    return half_at(b) * convert_float16(q) + half_at(b + 2);
}
static float16 piece_q8_0(global const uchar *row, int i) {
    global const uchar *b = row + 34 * (i / 2);
    return half_at(b) * convert_float16(vload16(i % 2, (global const char *)b + 2));
}
static float16 piece_iq4_nl(global const uchar *row, int i) {
    global const uchar *b = row + 18 * (i / 2);
    return half_at(b) * look_up(iq4_values, nibbles(b + 2, i));
}
static float16 piece_mxfp4(global const uchar *row, int i) {
    global const uchar *b = row + 17 * (i / 2);
    return e8m0(b[0]) * look_up(e2m1_values, nibbles(b + 1, i));
}
#define PIECE_OF_(type, row, i) piece_##type(row, i)
#define PIECE_OF(type, row, i) PIECE_OF_(type, row, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, i)
