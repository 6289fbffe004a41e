/* w_float.cl -- f32, f16 and bf16; rows are padded with zeros to whole pieces. */
#ifndef W_FLOAT
#define W_FLOAT
static float16 piece_f32(global const uchar *row, int i) {
    return *(global const float16 *)(row + 64 * i);
}
static float16 piece_f16(global const uchar *row, int i) {
#ifdef PTX
    const uint4 a = words4(row + 32 * i);
    const uint4 b = words4(row + 32 * i + 16);
    return (float16)(two_halves(a.x), two_halves(a.y), two_halves(a.z), two_halves(a.w),
                     two_halves(b.x), two_halves(b.y), two_halves(b.z), two_halves(b.w));
#else
    return vload_half16(i, (global const half *)row);
#endif
}
static float16 piece_bf16(global const uchar *row, int i) {
    const ushort16 bits = *(global const ushort16 *)(row + 32 * i);
    return as_float16(convert_uint16(bits) << 16);
}

/* ---- words of 16 bytes (HAS_WORDS) ----------------------------------------------------------- */
/* For warps.cl. parts_TYPE, quads_TYPE: parts of a word, quads of x that one meets; word_TYPE:
 * where a word lies; bits_TYPE: those of its scale; quad_TYPE: the first of x for a part;
 * times_TYPE: the sum and the products of a part, as four. */
enum { parts_f32 = 1, quads_f32 = 1, parts_f16 = 1, quads_f16 = 2, parts_bf16 = 1, quads_bf16 = 2 };
static global const uchar *word_f32(global const uchar *row, int i) {
    return row + 16 * i;
}
static uint bits_f32(global const uchar *row, global const uchar *scale, int i) {
    return 0;
}
static int quad_f32(int i, int part) {
    return i;
}
static float4 times_f32(float4 sum, uint4 word, uint bits, global const uchar *row, int i, int part,
                        float4 x0, float4 x1, float4 x2, float4 x3) {
    return fma(as_float4(word), x0, sum);
}
#define word_f16 word_f32
#define bits_f16 bits_f32
static int quad_f16(int i, int part) {
    return 2 * i;
}
static float4 times_f16(float4 sum, uint4 word, uint bits, global const uchar *row, int i, int part,
                        float4 x0, float4 x1, float4 x2, float4 x3) {
    const float4 low = (float4)(two_halves(word.x), two_halves(word.y));
    const float4 high = (float4)(two_halves(word.z), two_halves(word.w));
    return fma(high, x1, fma(low, x0, sum));
}
/* For row.cl. fragment_TYPE: four elements of a part as halves; crossed_TYPE: the inner two of them
 * change places; chained_TYPE: there are no scales, and sums go on; sums_TYPE: those of x are
 * needed; scaled_TYPE: the products of a word, from
 * those of its parts. */
enum { crossed_f16 = 0, chained_f16 = 1, sums_f16 = 0 };
static uint2 fragment_f16(uint4 word, int part, int q) {
    return q ? word.zw : word.xy;
}
static float scaled_f16(float2 of, uint bits, int i, local const float *sums, local float *red) {
    return of.x;
}
#define word_bf16 word_f32
#define bits_bf16 bits_f32
#define quad_bf16 quad_f16
static float4 times_bf16(float4 sum, uint4 word, uint bits, global const uchar *row, int i,
                         int part, float4 x0, float4 x1, float4 x2, float4 x3) {
    const uint4 even = word << 16;
    const uint4 odd = word & 0xffff0000u;
    const float4 low = as_float4((uint4)(even.x, odd.x, even.y, odd.y));
    const float4 high = as_float4((uint4)(even.z, odd.z, even.w, odd.w));
    return fma(high, x1, fma(low, x0, sum));
}
#endif
#undef PIECE
#undef PIECE_OF
#undef PIECE_OF_
#define PIECE_OF_(type, row, i) piece_##type(row, i)
#define PIECE_OF(type, row, i) PIECE_OF_(type, row, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, i)
