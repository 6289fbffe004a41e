/* w_iq.cl -- blocks of 256 of few bits: iq1_s to iq3_s, whose codes are indices of a codebook, GRID
 * (dtype/grids.h, which stands in front of this text), and the ternary tq1_0 and tq2_0. A piece
 * is 16 elements; n: its number in the block. Layouts: dtype/dequant_iq.c. */
#define NO_GRID(X) 0
#define ENTRY(entry) entry,
constant ushort grid[] = {GRID(ENTRY)};
constant float values_iq1[4] = {-1, 0, 1, 0};
constant float values_iq2[4] = {8, 25, 43, 0};
constant float values_iq3_xxs[16] = {4, 12, 20, 28, 36, 44, 52, 62};
constant float values_iq3_s[16] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Blocks have an even address. */
static uint u16_at(global const uchar *p) {
    return *(global const ushort *)p;
}
static uint u32_at(global const uchar *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}
/* Values of 16 codes of `bits` bits, negative where signs has a bit. */
static float16 values16(ulong codes, int bits, constant float *values, uint signs) {
    float v[16];
    for (int k = 0; k < 16; k++) {
        const float x = values[(uint)(codes >> bits * k) & ((1u << bits) - 1)];
        v[k] = signs >> k & 1 ? -x : x;
    }
    return vload16(0, v);
}
/* Two entries of eight codes. */
static ulong entries2(uint first, uint second) {
    return grid[first] | (uint)grid[second] << 16;
}
/* Four of four. */
static ulong entries4(uint a, uint b, uint c, uint d) {
    return entries2(a, b) | entries2(c, d) << 32;
}
/* Two times eight signs of which seven are stored: the number of negative ones is even. */
static uint even_signs(uint first, uint second) {
    first &= 127;
    second &= 127;
    first |= (popcount(first) & 1) << 7;
    second |= (popcount(second) & 1) << 7;
    return first | second << 8;
}

static float16 piece_iq2_xxs(global const uchar *row, int i) {
    global const uchar *b = row + 66 * (i / 16);
    const int n = i % 16;
    global const uchar *q = b + 2 + 8 * (n / 2);
    const uint s = u32_at(q + 4);
    const uint signs = s >> 14 * (n % 2);
    const float scale = half_at(b) * (float)(2 * (s >> 28) + 1) * 0.125f;
    const ulong codes = entries2(q[n % 2 * 2], q[n % 2 * 2 + 1]);
    return scale * values16(codes, 2, values_iq2, even_signs(signs, signs >> 7));
}
/* Scale n of 4 bits. */
static float scale_iq2(global const uchar *b, global const uchar *scales, int n) {
    const int scale = scales[n / 2] >> 4 * (n % 2) & 15;
    return half_at(b) * (float)(2 * scale + 1) * 0.125f;
}
static float16 piece_iq2_xs(global const uchar *row, int i) {
    global const uchar *b = row + 74 * (i / 16);
    const int n = i % 16;
    const uint first = u16_at(b + 2 + 4 * n);
    const uint second = u16_at(b + 4 + 4 * n);
    const ulong codes = entries2(first & 511, second & 511);
    const uint signs = even_signs(first >> 9, second >> 9);
    return scale_iq2(b, b + 66, n) * values16(codes, 2, values_iq2, signs);
}
static float16 piece_iq2_s(global const uchar *row, int i) {
    global const uchar *b = row + 82 * (i / 16);
    const int n = i % 16;
    const uint high = b[66 + n / 2] >> 4 * (n % 2);
    const ulong codes =
        entries2(b[2 + 2 * n] | (high & 3) << 8, b[3 + 2 * n] | (high >> 2 & 3) << 8);
    const uint signs = u16_at(b + 34 + 2 * n);
    return scale_iq2(b, b + 74, n) * values16(codes, 2, values_iq2, signs);
}

static float16 piece_iq3_xxs(global const uchar *row, int i) {
    global const uchar *b = row + 98 * (i / 16);
    const int n = i % 16;
    global const uchar *q = b + 2 + 4 * n;
    const uint s = u32_at(b + 66 + 4 * (n / 2));
    const uint signs = s >> 14 * (n % 2);
    const float scale = half_at(b) * (float)(2 * (s >> 28) + 1) * 0.25f;
    const ulong codes = entries4(q[0], q[1], q[2], q[3]);
    return scale * values16(codes, 4, values_iq3_xxs, even_signs(signs, signs >> 7));
}
static float16 piece_iq3_s(global const uchar *row, int i) {
    global const uchar *b = row + 110 * (i / 16);
    const int n = i % 16;
    global const uchar *q = b + 2 + 4 * n;
    const uint high = (uint)(b[66 + n / 2] >> 4 * (n % 2)) << 8;
    const ulong codes = entries4(q[0] | (high & 256), q[1] | (high >> 1 & 256),
                                 q[2] | (high >> 2 & 256), q[3] | (high >> 3 & 256));
    const int scale = b[106 + n / 4] >> 4 * (n / 2 % 2) & 15;
    const float by = half_at(b) * (float)(2 * scale + 1);
    return by * values16(codes, 4, values_iq3_s, u16_at(b + 74 + 2 * n));
}

/* An eighth less for eight elements, or more. */
static float16 deltas(bool first_less, bool second_less) {
    const float8 first = (float8)(first_less ? -0.125f : 0.125f);
    const float8 second = (float8)(second_less ? -0.125f : 0.125f);
    return (float16)(first, second);
}
static float16 piece_iq1_s(global const uchar *row, int i) {
    global const uchar *b = row + 50 * (i / 16);
    const int n = i % 16;
    const uint high = u16_at(b + 34 + 2 * (n / 2));
    const uint upper = high >> 6 * (n % 2);
    const float scale = half_at(b) * (float)(2 * (high >> 12 & 7) + 1);
    const ulong codes =
        entries2(b[2 + 2 * n] | (upper & 7) << 8, b[3 + 2 * n] | (upper >> 3 & 7) << 8);
    return scale * (values16(codes, 2, values_iq1, 0) + deltas(high >> 15, high >> 15));
}
static float16 piece_iq1_m(global const uchar *row, int i) {
    global const uchar *b = row + 56 * (i / 16);
    const int n = i % 16;
    const uint high = b[32 + n];
    const uint s = u16_at(b + 48 + 2 * (n / 4));
    const ushort bits = (ushort)(u16_at(b + 48) >> 12 | (u16_at(b + 50) >> 8 & 0xf0) |
                                 (u16_at(b + 52) >> 4 & 0xf00) | (u16_at(b + 54) & 0xf000));
    const float d = vload_half(0, (const private half *)&bits);
    const float scale = d * (float)(2 * (s >> 3 * (n % 4) & 7) + 1);
    const ulong codes = entries2(b[2 * n] | (high & 7) << 8, b[2 * n + 1] | (high >> 4 & 7) << 8);
    return scale * (values16(codes, 2, values_iq1, 0) + deltas(high >> 3 & 1, high >> 7));
}

/* Digits to the base 3, less 1, of what is left of bytes: 3 left >> 8. */
static float16 digits16(uchar16 left) {
    return convert_float16(convert_ushort16(left) * (ushort)3 >> (ushort)8) - 1.0f;
}
constant uchar powers_of_3[5] = {1, 3, 9, 27, 81};
static float16 piece_tq1_0(global const uchar *row, int i) {
    global const uchar *b = row + 54 * (i / 16);
    const int n = i % 16;
    const float scale = half_at(b + 52);
    if (n < 10)
        return scale * digits16(vload16(0, b + n % 2 * 16) * powers_of_3[n / 2]);
    if (n < 15)
        return scale * digits16(vload16(0, b + 32) * powers_of_3[n - 10]);
    const uchar4 q = vload4(0, b + 48);
    return scale * digits16((uchar16)(q, q * (uchar)3, q * (uchar)9, q * (uchar)27));
}
/* Codes in the order of q2_k. */
static float16 piece_tq2_0(global const uchar *row, int i) {
    global const uchar *b = row + 66 * (i / 16);
    const int n = i % 16;
    const uchar16 bytes = vload16(0, b + n / 8 * 32 + n % 2 * 16);
    const uchar16 q = bytes >> (uchar)(2 * (n / 2 % 4)) & (uchar)3;
    return half_at(b + 64) * (convert_float16(q) - 1.0f);
}
#define PIECE_OF_(type, row, i) piece_##type(row, i)
#define PIECE_OF(type, row, i) PIECE_OF_(type, row, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, i)
