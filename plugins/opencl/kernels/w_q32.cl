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

/* Codes of e2m1 in the low nibbles of four bytes: sign, two bits of exponent and one of mantissa,
 * which as those of a half are 2^-14 of their value: so they come. */
static float4 e2m1_4(uint codes) {
    const float2 even = two_halves((codes << 9 & 0x0e000e00) | (codes << 12 & 0x80008000));
    const float2 odd = two_halves((codes << 1 & 0x0e000e00) | (codes << 4 & 0x80008000));
    return (float4)(even.x, odd.x, even.y, odd.y);
}
static float16 e2m1(global const uchar *row, int i) {
#ifdef IS_CPU
    return look_up(e2m1_values, row_nibbles(row, i)) * 0x1p-14f;
#else
    const uint4 codes = words4(row + 16 * (i / 2)) >> (uint)(4 * (i % 2));
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

/* ---- words of 16 bytes (HAS_WORDS): as in w_float.cl ----------------------------------------- */
enum { parts_q4_0 = 2, quads_q4_0 = 4, parts_q8_0 = 1, quads_q8_0 = 4 };
enum { parts_mxfp4 = 2, quads_mxfp4 = 4 };
static global const uchar *word_q8_0(global const uchar *row, int i) {
    return row + 16 * i;
}
static float half_of(uint bits) {
    return two_halves(bits).x;
}
static uint bits_q8_0(global const uchar *row, global const uchar *scale, int i) {
    return *(global const ushort *)(scale + 2 * (i / 2));
}
static int quad_q8_0(int i, int part) {
    return 4 * i;
}
static float4 times_q8_0(float4 sum, uint4 word, uint bits, global const uchar *row, int i,
                         int part, float4 x0, float4 x1, float4 x2, float4 x3) {
    const float4 of = dot_codes(signed4(word.x), signed4(word.y), signed4(word.z), signed4(word.w),
                                x0, x1, x2, x3);
    return fma(of, (float4)(half_of(bits)), sum);
}
#define word_q4_0 word_q8_0
static uint bits_q4_0(global const uchar *row, global const uchar *scale, int i) {
    return *(global const ushort *)(scale + 2 * i);
}
static int quad_q4_0(int i, int part) {
    return 8 * i + 4 * part;
}
static float4 times_q4_0(float4 sum, uint4 word, uint bits, global const uchar *row, int i,
                         int part, float4 x0, float4 x1, float4 x2, float4 x3) {
    const uint4 w = word >> (uint)(4 * part);
    const float4 of = dot_codes(nibbles4(w.x), nibbles4(w.y), nibbles4(w.z), nibbles4(w.w), x0, x1,
                                x2, x3);
    const float4 xs = (x0 + x1) + (x2 + x3);
    return fma(fma(xs, (float4)(-8.0f), of), (float4)(half_of(bits)), sum);
}
#define word_mxfp4 word_q8_0
#define quad_mxfp4 quad_q4_0
static uint bits_mxfp4(global const uchar *row, global const uchar *scale, int i) {
    return scale[i];
}
static float4 times_mxfp4(float4 sum, uint4 word, uint bits, global const uchar *row, int i,
                          int part, float4 x0, float4 x1, float4 x2, float4 x3) {
    const uint4 w = word >> (uint)(4 * part);
    const float4 of =
        dot_codes(e2m1_4(w.x), e2m1_4(w.y), e2m1_4(w.z), e2m1_4(w.w), x0, x1, x2, x3);
    return fma(of * 16384.0f, (float4)(e8m0(bits)), sum);
}
#ifdef STEP_WARPS
/* For row.cl: as in w_float.cl. */
enum { crossed_q8_0 = 0, chained_q8_0 = 0, sums_q8_0 = 0 };
static uint2 fragment_q8_0(uint4 word, int part, int q) {
    return byte_halves(component(word, q));
}
static float scaled_q8_0(float2 of, uint bits, int i, local const float *sums, local float *red) {
    return (of.x + of.y) * half_of(bits);
}
enum { crossed_q4_0 = 1, chained_q4_0 = 0, sums_q4_0 = 0 };
static uint2 fragment_q4_0(uint4 word, int part, int q) {
    return nibble_halves(component(word, q) >> 4 * part, 8);
}
#define scaled_q4_0 scaled_q8_0
enum { crossed_mxfp4 = 1, chained_mxfp4 = 0, sums_mxfp4 = 0 };
static uint2 fragment_mxfp4(uint4 word, int part, int q) {
    const uint codes = component(word, q) >> 4 * part;
    return (uint2)((codes << 9 & 0x0e000e00) | (codes << 12 & 0x80008000),
                   (codes << 1 & 0x0e000e00) | (codes << 4 & 0x80008000));
}
static float scaled_mxfp4(float2 of, uint bits, int i, local const float *sums, local float *red) {
    return (of.x + of.y) * 16384.0f * e8m0(bits);
}
#endif
#endif
#undef PIECE
#undef PIECE_OF
#undef PIECE_OF_
#define PIECE_OF_(type, row, scale, i) piece_##type(row, scale, i)
#define PIECE_OF(type, row, scale, i) PIECE_OF_(type, row, scale, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, scale, i)
