/* types_iq.h -- blocks of 256 of few bits: indices of codebooks (dtype/grids.h), and ternary codes.
 * Layouts: GGUF specification. Entries of codebooks stay packed, two bits for each of eight
 * elements or four for each of four: 512 to 4096 bytes remain in the first cache, and a register's
 * lookup makes values of 32 codes at once. */

/* Four entries of eight codes, eight of four: 32 codes. */
INLINE uint64_t four_entries(const uint16_t *grid, const int index[4]) {
    uint64_t codes = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint64_t entry = grid[index[i]];
        codes |= entry << 16 * i;
    }
    return codes;
}
/* Four signs of 7 bits each, to 32: the eighth of each makes the number of bits even. */
INLINE uint32_t even_signs(uint32_t s) {
    uint32_t v = s & 0x7f;
    v |= s << 1 & 0x7f00;
    v |= s << 2 & 0x7f0000;
    v |= s << 3 & 0x7f000000;
    uint32_t sum = v ^ v << 4;
    sum ^= sum << 2;
    sum ^= sum << 1;
    return v | (sum & 0x80808080);
}
/* Values by code, negative where a bit of signs is set, then `off` more. */
INLINE VB signed_values(VB codes, const uint8_t values[16], uint32_t signs, const uint8_t off) {
    const VB size = vb_lookup(codes, values);
    const VB v = vb_negate(size, signs);
    return vb_less(v, (uint8_t)-off);
}
static const uint8_t values_of_iq2[16] = {8, 25, 43};
static const uint8_t values_of_iq3_xxs[16] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t values_of_iq3_s[16] = {1, 3, 5, 7, 9, 11, 13, 15};
/* d[i] = by (2 nibble i + 1), i < 8 */
INLINE void odd_scales(uint32_t nibbles, float by, float *d) {
    const uint64_t ones = 0x0101010101010101;
    const uint64_t scales = mnk_spread(nibbles, 4);
    const uint64_t odd = scales << 1 | ones;
    v_widen8(odd, 0, by, d);
}
/* The highest nibbles of eight u32, `apart` bytes from one to the next. */
INLINE uint32_t top_nibbles(const uint8_t *p, const int apart) {
    uint32_t nibbles = 0;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const uint32_t nibble = p[apart * i + 3] >> 4;
        nibbles |= nibble << 4 * i;
    }
    return nibbles;
}

/* {f16 d; {u8 q[4]; u32 s} [8]}: s: signs, and a scale above them */
SCALES(iq2_xxs) {
    const uint8_t *p = at->data + b * 66;
    (void)w;
    (void)m;
    odd_scales(top_nibbles(p + 6, 8), v_f16_1(p) / 8, d);
}
BYTES(iq2_xxs) {
    const uint8_t *q = p + 2 + 8 * j;
    const int index[4] = {q[0], q[1], q[2], q[3]};
    const uint64_t codes = four_entries(mn_grid_iq2_xxs, index);
    const uint32_t signs = even_signs(load_u32(q + 4));
    return signed_values(vb_twos(codes), values_of_iq2, signs, 43);
}

/* {f16 d; u16 q[32]; u8 scale[8]}: q: 9 bits of an index, 7 of signs */
SCALES(iq2_xs) {
    const uint8_t *p = at->data + b * 74;
    const float by = v_f16_1(p) / 8;
    (void)w;
    (void)m;
    odd_scales(load_u32(p + 66), by, d);
    odd_scales(load_u32(p + 70), by, d + 8);
}
BYTES(iq2_xs) {
    const uint64_t q = load_u64(p + 2 + 8 * j);
    const int index[4] = {
        q & 511,
        q >> 16 & 511,
        q >> 32 & 511,
        q >> 48 & 511,
    };
    const uint64_t codes = four_entries(mn_grid_iq2_xs, index);
    const uint64_t sevens = q >> 9 & 0x007f007f007f007f;
    const uint64_t pairs = sevens | sevens >> 9;
    const uint32_t low = pairs & 0x3fff;
    const uint32_t high = pairs >> 32 & 0x3fff;
    const uint32_t signs = even_signs(low | high << 14);
    return signed_values(vb_twos(codes), values_of_iq2, signs, 43);
}

/* {f16 d; u8 q[32]; u8 sign[32]; u8 high[8]; u8 scale[8]}: high: two bits of each index */
SCALES(iq2_s) {
    const uint8_t *p = at->data + b * 82;
    const float by = v_f16_1(p) / 8;
    (void)w;
    (void)m;
    odd_scales(load_u32(p + 74), by, d);
    odd_scales(load_u32(p + 78), by, d + 8);
}
BYTES(iq2_s) {
    const uint8_t *q = p + 2 + 4 * j;
    const int h = p[66 + j];
    const int index[4] = {
        q[0] | (h << 8 & 0x300),
        q[1] | (h << 6 & 0x300),
        q[2] | (h << 4 & 0x300),
        q[3] | (h << 2 & 0x300),
    };
    const uint64_t codes = four_entries(mn_grid_iq2_s, index);
    const uint32_t signs = load_u32(p + 34 + 4 * j);
    return signed_values(vb_twos(codes), values_of_iq2, signs, 43);
}

/* {f16 d; u8 q[64]; u32 s[8]}: s as in IQ2_XXS */
SCALES(iq3_xxs) {
    const uint8_t *p = at->data + b * 98;
    (void)w;
    (void)m;
    odd_scales(top_nibbles(p + 66, 4), v_f16_1(p) / 4, d);
}
BYTES(iq3_xxs) {
    const uint8_t *q = p + 2 + 8 * j;
    const int first[4] = {q[0], q[1], q[2], q[3]};
    const int last[4] = {q[4], q[5], q[6], q[7]};
    const uint64_t low = four_entries(mn_grid_iq3_xxs, first);
    const uint64_t high = four_entries(mn_grid_iq3_xxs, last);
    const uint32_t signs = even_signs(load_u32(p + 66 + 4 * j));
    return signed_values(vb_nibbles(low, high), values_of_iq3_xxs, signs, 62);
}

/* {f16 d; u8 q[64]; u8 high[8]; u8 sign[32]; u8 scale[4]}: high: a bit of each index */
SCALES(iq3_s) {
    const uint8_t *p = at->data + b * 110;
    (void)w;
    (void)m;
    odd_scales(load_u32(p + 106), v_f16_1(p), d);
}
BYTES(iq3_s) {
    const uint8_t *q = p + 2 + 8 * j;
    const int h = p[66 + j];
    const int first[4] = {
        q[0] | (h << 8 & 256),
        q[1] | (h << 7 & 256),
        q[2] | (h << 6 & 256),
        q[3] | (h << 5 & 256),
    };
    const uint64_t low = four_entries(mn_grid_iq3_s, first);
    const int last[4] = {
        q[4] | (h << 4 & 256),
        q[5] | (h << 3 & 256),
        q[6] | (h << 2 & 256),
        q[7] | (h << 1 & 256),
    };
    const uint64_t high = four_entries(mn_grid_iq3_s, last);
    const uint32_t signs = load_u32(p + 74 + 4 * j);
    return signed_values(vb_nibbles(low, high), values_of_iq3_s, signs, 15);
}

/* {f16 d; u8 q[32]; u16 high[8]}: high of 32 elements: 3 bits for each index, 3 of a scale, one
 * that is set where an eighth is taken off, which else is added. In eighths, 9 more: */
static const uint8_t values_of_iq1[2][16] = {{2, 10, 18}, {0, 8, 16}};
SCALES(iq1_s) {
    const uint8_t *p = at->data + b * 50;
    uint64_t odd = 0;
    (void)w;
    (void)m;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const uint64_t scale = p[35 + 2 * i] >> 3 & 14;
        odd |= (scale | 1) << 8 * i;
    }
    v_widen8(odd, 0, v_f16_1(p) / 8, d);
}
BYTES(iq1_s) {
    const uint8_t *q = p + 2 + 4 * j;
    const int h = mnk_u16(p + 34 + 2 * j);
    const int index[4] = {
        q[0] | (h << 8 & 0x700),
        q[1] | (h << 5 & 0x700),
        q[2] | (h << 2 & 0x700),
        q[3] | (h >> 1 & 0x700),
    };
    const uint64_t codes = four_entries(mn_grid_iq1, index);
    return vb_lookup(vb_twos(codes), values_of_iq1[h >> 15]);
}

/* {u8 q[32]; u8 high[16]; u16 scale[4]}: high: a nibble for each index, three bits of it and what
 * IQ1_S has for 32 elements; a scale: 3 bits for each 16 of 64 elements, then a fourth of d */
SCALES(iq1_m) {
    const uint8_t *p = at->data + b * 56;
    const uint64_t s = load_u64(p + 48);
    const uint64_t tops = s >> 12 & 0x000f000f000f000f;
    const uint16_t whole = (uint16_t)(tops | tops >> 12 | tops >> 24 | tops >> 36);
    const float by = v_f16_1((const uint8_t *)&whole) / 8;
    (void)w;
    (void)m;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const int shift = 16 * (i / 4) + 3 * (i % 4);
        const int scale = (int)(s >> shift) & 7;
        d[i] = by * (float)(2 * scale + 1);
    }
}
BYTES(iq1_m) {
    const uint8_t *q = p + 4 * j;
    const int h = mnk_u16(p + 32 + 2 * j);
    const int index[4] = {
        q[0] | (h << 8 & 0x700),
        q[1] | (h << 4 & 0x700),
        q[2] | (h & 0x700),
        q[3] | (h >> 4 & 0x700),
    };
    const uint64_t codes = four_entries(mn_grid_iq1, index);
    /* one bit for each eight elements to all of them */
    uint32_t less = h >> 3 & 1;
    less |= h << 1 & 0x100;
    less |= (uint32_t)(h & 0x800) << 5;
    less |= (uint32_t)(h & 0x8000) << 9;
    const VB added = vb_bits(~(less * 255), 2);
    const VB v = vb_lookup(vb_twos(codes), values_of_iq1[1]);
    return vb_or(v, added);
}

/* One scale for the block. */
INLINE void eight_scales(float by, float *d) {
    for (int i = 0; i < 8; i++)
        d[i] = by;
}
/* {u8 q[48]; u8 last[4]; f16 d}: five digits to the base 3 in a byte, of 32 bytes, then of 16; then
 * four in each of the last four. A digit is what three times the byte, multiplied modulo 256 by a
 * power of 3, has above 256. */
SCALES(tq1_0) {
    (void)w;
    (void)m;
    eight_scales(v_f16_1(at->data + b * 54 + 52), d);
}
#define TWICE(x) x, x
#define FOURFOLD(x) TWICE(x), TWICE(x)
#define SIXTEEN(x) FOURFOLD(x), FOURFOLD(x), FOURFOLD(x), FOURFOLD(x)
static const uint8_t powers_of_3[8][32] = {
    {SIXTEEN(1), SIXTEEN(1)},   {SIXTEEN(3), SIXTEEN(3)},
    {SIXTEEN(9), SIXTEEN(9)},   {SIXTEEN(27), SIXTEEN(27)},
    {SIXTEEN(81), SIXTEEN(81)}, {SIXTEEN(1), SIXTEEN(3)},
    {SIXTEEN(9), SIXTEEN(27)},  {SIXTEEN(81), FOURFOLD(1), FOURFOLD(3), FOURFOLD(9), FOURFOLD(27)},
};
#undef TWICE
#undef FOURFOLD
#undef SIXTEEN
BYTES(tq1_0) {
    const VB by = vb_load(powers_of_3[j]);
    if (j < 5)
        return vb_ternary(vb_load(p), by);
    const uint64_t a = load_u64(p + 32);
    const uint64_t b = load_u64(p + 40);
    const uint64_t last = load_u32(p + 48) * 0x100000001u;
    if (j < 7)
        return vb_ternary(vb_words(a, b, a, b), by);
    return vb_ternary(vb_words(a, b, last, last), by);
}

/* {u8 q[64]; f16 d} */
SCALES(tq2_0) {
    (void)w;
    (void)m;
    eight_scales(v_f16_1(at->data + b * 66 + 64), d);
}
BYTES(tq2_0) {
    const VB q = vb_load(p + j / 4 * 32);
    return vb_field(q, 2 * (j % 4), 3);
}
