/* w_q32.cl -- blocks of 32: q4_1, q5_0 and q5_1 with their scale in front, q4_0, q8_0, iq4_nl and
 * mxfp4 with all scales in a plane of their own, so that codes are read 16 bytes at once.
 * A piece is half a block: the low nibbles of its 16 bytes, or the high ones. */
#ifndef W_Q32
#define W_Q32
constant float iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
constant float e2m1_values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static float e8m0(uchar e) {
    if (e == 255)
        return NAN;
    return e ? as_float((uint)e << 23) : 0x1p-127f;
}
static uchar16 halves(uchar16 both, int i) {
    return i % 2 ? both >> (uchar)4 : both & (uchar)15;
}
static uchar16 nibbles(global const uchar *q, int i) {
    return halves(vload16(0, q), i);
}
/* Of a row of codes alone. */
static uchar16 row_nibbles(global const uchar *row, int i) {
    return halves(bytes16(row + 16 * (i / 2)), i);
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

/* Codes of e2m1: sign, two bits of exponent and one of mantissa, which as those of a half are
 * 2^-14 of their value: so they come. */
static float4 e2m1_4(uint codes) {
    const uint low = (codes & 0xff) | (codes & 0xff00) << 8;
    const uint high = (codes >> 16 & 0xff) | (codes >> 8 & 0xff0000);
    const float2 a = two_halves((low & 0x70007) << 9 | (low & 0x80008) << 12);
    const float2 b = two_halves((high & 0x70007) << 9 | (high & 0x80008) << 12);
    return (float4)(a, b);
}
static float16 e2m1(global const uchar *row, int i) {
#ifdef IS_CPU
    return look_up(e2m1_values, row_nibbles(row, i)) * 0x1p-14f;
#else
    const uint4 codes = words4(row + 16 * (i / 2)) >> (uint)(4 * (i % 2)) & 0x0f0f0f0fu;
    return (float16)(e2m1_4(codes.x), e2m1_4(codes.y), e2m1_4(codes.z), e2m1_4(codes.w));
#endif
}

static float16 piece_q4_0(global const uchar *row, global const uchar *scale, int i) {
    return half_at(scale + 2 * (i / 2)) * (nibbles16(row + 16 * (i / 2), i % 2) - 8.0f);
}
static float16 piece_q4_1(global const uchar *row, global const uchar *scale, int i) {
    global const uchar *b = row + 20 * (i / 2);
    return half_at(b) * convert_float16(nibbles(b + 4, i)) + half_at(b + 2);
}
static float16 piece_q5_0(global const uchar *row, global const uchar *scale, int i) {
    global const uchar *b = row + 22 * (i / 2);
    const uchar16 q = nibbles(b + 6, i) | fifths(b + 2, i);
    return half_at(b) * (convert_float16(q) - 16.0f);
}
static float16 piece_q5_1(global const uchar *row, global const uchar *scale, int i) {
    global const uchar *b = row + 24 * (i / 2);
    const uchar16 q = nibbles(b + 8, i) | fifths(b + 4, i);
    return half_at(b) * convert_float16(q) + half_at(b + 2);
}
static float16 piece_q8_0(global const uchar *row, global const uchar *scale, int i) {
    return half_at(scale + 2 * (i / 2)) * signed16(row + 16 * i);
}
static float16 piece_iq4_nl(global const uchar *row, global const uchar *scale, int i) {
    return half_at(scale + 2 * (i / 2)) * look_up(iq4_values, row_nibbles(row, i));
}
static float16 piece_mxfp4(global const uchar *row, global const uchar *scale, int i) {
    return e8m0(scale[i / 2]) * (e2m1(row, i) * 16384.0f);
}

/* ---- codes (HAS_CODES) ----------------------------------------------------------------------- */
/* codes_TYPE: of a piece. valued_TYPE: sum and what is the sum `of` of their products with x as one
 * of values; xs: the sum of x. */
static float16 codes_q4_0(global const uchar *row, int i) {
    return nibbles16(row + 16 * (i / 2), i % 2);
}
static float4 valued_q4_0(global const uchar *row, global const uchar *scale, int i, float4 of,
                          float4 xs, float4 sum) {
    return fma(fma(xs, (float4)(-8.0f), of), (float4)(half_at(scale + 2 * (i / 2))), sum);
}
static float16 codes_q8_0(global const uchar *row, int i) {
    return signed16(row + 16 * i);
}
static float4 valued_q8_0(global const uchar *row, global const uchar *scale, int i, float4 of,
                          float4 xs, float4 sum) {
    return fma(of, (float4)(half_at(scale + 2 * (i / 2))), sum);
}
static float16 codes_mxfp4(global const uchar *row, int i) {
    return e2m1(row, i);
}
static float4 valued_mxfp4(global const uchar *row, global const uchar *scale, int i, float4 of,
                           float4 xs, float4 sum) {
    return fma(of * 16384.0f, (float4)(e8m0(scale[i / 2])), sum);
}
#endif
#undef PIECE
#undef PIECE_OF
#undef PIECE_OF_
#define PIECE_OF_(type, row, scale, i) piece_##type(row, scale, i)
#define PIECE_OF(type, row, scale, i) PIECE_OF_(type, row, scale, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, scale, i)
