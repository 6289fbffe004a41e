/* w_k.cl -- blocks of 256 whose scales are quantised themselves: q2_k to q6_k, iq4_xs. A piece lies
 * within one group of a block's scales; n: its number in the block. */
#ifndef W_K
#define W_K
constant float xs_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

/* 16 codes of two bits: 32 bytes hold 128 elements, the first 32 in the lowest bits. */
static uchar16 two_bits(global const uchar *q, int n) {
    return vload16(0, q + n / 8 * 32 + n % 2 * 16) >> (uchar)(2 * (n / 2 % 4)) & (uchar)3;
}
/* 16 codes of four bits: 32 bytes hold 64, the first 32 in the low nibbles. Blocks of q4_k and
 * q5_k are multiples of 16 bytes. */
static uchar16 four_bits(global const uchar *q, int n) {
    return bytes16(q + n / 4 * 32 + n % 2 * 16) >> (uchar)(4 * (n / 2 % 2)) & (uchar)15;
}
/* 16 codes of one bit: bit n / 2 of 32 bytes. */
static uchar16 one_bit(global const uchar *q, int n) {
    return vload16(0, q + n % 2 * 16) >> (uchar)(n / 2) & (uchar)1;
}

static float16 piece_q2_k(global const uchar *row, int i) {
    global const uchar *b = row + 84 * (i / 16);
    const int n = i % 16;
    const float scale = half_at(b + 80) * (float)(b[n] & 15);
    const float least = half_at(b + 82) * (float)(b[n] >> 4);
    return scale * convert_float16(two_bits(b + 16, n)) - least;
}
static float16 piece_q3_k(global const uchar *row, int i) {
    global const uchar *b = row + 110 * (i / 16);
    global const uchar *s = b + 96;
    const int n = i % 16;
    const int low = n < 8 ? s[n] & 15 : s[n - 8] >> 4;
    const int high = s[8 + n % 4] >> 2 * (n / 4) & 3;
    const uchar16 q = two_bits(b + 32, n) | one_bit(b, n) << (uchar)2;
    const float scale = half_at(b + 108) * (float)((low | high << 4) - 32);
    return scale * (convert_float16(q) - 4.0f);
}
/* Scale and minimum of group j of q4_k and q5_k: 6 bits each in 12 bytes behind two halves. */
static float2 scale_min_of(uint4 words, int j) {
    const int at = 8 * (j % 4);
    const uint low = words.y >> at;
    const uint mid = words.z >> at;
    const uint high = words.w >> at;
    const float2 both = two_halves(words.x);
    if (j < 4)
        return both * (float2)(low & 63, mid & 63);
    return both * (float2)((high & 15) | (low >> 2 & 48), (high >> 4 & 15) | (mid >> 2 & 48));
}
static float2 scale_min(global const uchar *b, int j) {
    return scale_min_of(words4(b), j);
}
static float16 piece_q4_k(global const uchar *row, int i) {
    global const uchar *b = row + 144 * (i / 16);
    const int n = i % 16;
    const float2 s = scale_min(b, n / 2);
    return s.x * nibbles16(b + 16 + n / 4 * 32 + n % 2 * 16, n / 2 % 2) - s.y;
}
/* Words as in w_float.cl: 16 bytes of a block's codes are parts of two groups of its scales. */
enum { parts_q4_k = 2, quads_q4_k = 4 };
static global const uchar *word_q4_k(global const uchar *row, int i) {
    return row + 144 * (i / 8) + 16 + 16 * (i % 8);
}
/* Four lanes side by side have words of one block: each asks for a quarter of its scales. */
static uint bits_q4_k(global const uchar *row, global const uchar *scale, int i) {
#ifdef STEP_EXPERTS /* row.cl takes them so */
    return asked1(row + 144 * (i / 8) + 4 * ((int)get_local_id(0) % 4));
#else
    return 0;
#endif
}
static int quad_q4_k(int i, int part) {
    return 16 * (i / 2) + 4 * (i % 2) + 8 * part;
}
static float4 times_q4_k(float4 sum, uint4 word, uint bits, global const uchar *row, int i,
                         int part, float4 x0, float4 x1, float4 x2, float4 x3) {
    const uint4 w = word >> (uint)(4 * part);
    const float4 of = dot_codes(nibbles4(w.x), nibbles4(w.y), nibbles4(w.z), nibbles4(w.w), x0, x1,
                                x2, x3);
    const float2 s = scale_min(row + 144 * (i / 8), i % 8 / 2 * 2 + part);
    return fma((x0 + x1) + (x2 + x3), (float4)(-s.y), fma(of, (float4)(s.x), sum));
}
#ifdef STEP_WARPS
/* For row.cl: as in w_float.cl. */
enum { crossed_q4_k = 1, chained_q4_k = 0, sums_q4_k = 1 };
static uint2 fragment_q4_k(uint4 word, int part, int q) {
    return nibble_halves(component(word, q) >> 4 * part, 0);
}
#ifndef PTX
static uint neighbour(uint v, int n, local float *red);
#endif
static float scaled_q4_k(float2 of, uint bits, int i, local const float *sums, local float *red) {
#ifdef PTX
    const uint4 words = quarters(bits);
#else
    const uint4 words = (uint4)(neighbour(bits, 0, red), neighbour(bits, 1, red),
                                neighbour(bits, 2, red), neighbour(bits, 3, red));
#endif
    const int group = i % 8 / 2 * 2;
    const float2 first = scale_min_of(words, group);
    const float2 second = scale_min_of(words, group + 1);
    const float least = first.y * sums[quad_q4_k(i, 0) / 4] + second.y * sums[quad_q4_k(i, 1) / 4];
    return first.x * of.x + second.x * of.y - least;
}
#endif
static float16 piece_q5_k(global const uchar *row, int i) {
    global const uchar *b = row + 176 * (i / 16);
    const int n = i % 16;
    const float2 s = scale_min(b, n / 2);
    const uchar16 q = four_bits(b + 48, n) | one_bit(b + 16, n) << (uchar)4;
    return s.x * convert_float16(q) - s.y;
}
/* Of 128 elements the first 64 are low nibbles. */
static float16 piece_q6_k(global const uchar *row, int i) {
    global const uchar *b = row + 210 * (i / 16);
    const int n = i % 16;
    const uchar16 bytes = vload16(0, b + n / 8 * 64 + n % 4 * 16);
    const uchar16 low = bytes >> (uchar)(4 * (n / 4 % 2)) & (uchar)15;
    const uchar16 q = low | two_bits(b + 128, n) << (uchar)4;
    const float scale = half_at(b + 208) * (float)(char)b[192 + n];
    return scale * (convert_float16(q) - 32.0f);
}
static float16 piece_iq4_xs(global const uchar *row, int i) {
    global const uchar *b = row + 136 * (i / 16);
    const int s = i % 16 / 2;
    const int low = b[4 + s / 2] >> 4 * (s % 2) & 15;
    const int high = (b[2] | b[3] << 8) >> 2 * s & 3;
    const float scale = half_at(b) * (float)((low | high << 4) - 32);
    uchar code[16];
    float v[16];
    vstore16(vload16(0, b + 8 + 16 * s) >> (uchar)(4 * (i % 2)) & (uchar)15, 0, code);
    for (int k = 0; k < 16; k++)
        v[k] = xs_values[code[k]];
    return scale * vload16(0, v);
}
#endif
#undef PIECE
#undef PIECE_OF
#undef PIECE_OF_
#define PIECE_OF_(type, row, i) piece_##type(row, i)
#define PIECE_OF(type, row, i) PIECE_OF_(type, row, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, i)
