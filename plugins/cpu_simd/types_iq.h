/* types_iq.h -- blocks of 256 of few bits: indices of codebooks, and ternary codes. Layouts: GGUF
 * specification. Entries of codebooks lie as bytes (grids.c), 1 to 16 KiB a type, which remain in
 * the first cache. */
extern const uint64_t mnk_grid_iq1[2048];
extern const uint64_t mnk_grid_iq2_xxs[256];
extern const uint64_t mnk_grid_iq2_xs[512];
extern const uint64_t mnk_grid_iq2_s[1024];
extern const uint32_t mnk_grid_iq3_xxs[256];
extern const uint32_t mnk_grid_iq3_s[512];

/* Of four entries of eight elements, or eight of four, the 32 bytes. */
INLINE VB grid_eights(const uint64_t *grid, const int index[4]) {
    const uint64_t a = grid[index[0]];
    const uint64_t b = grid[index[1]];
    const uint64_t c = grid[index[2]];
    const uint64_t d = grid[index[3]];
    return vb_words(a, b, c, d);
}
INLINE uint64_t two_fours(const uint32_t *grid, int first, int second) {
    const uint64_t high = grid[second];
    return grid[first] | high << 32;
}
INLINE VB grid_fours(const uint32_t *grid, const int index[8]) {
    const uint64_t a = two_fours(grid, index[0], index[1]);
    const uint64_t b = two_fours(grid, index[2], index[3]);
    const uint64_t c = two_fours(grid, index[4], index[5]);
    const uint64_t d = two_fours(grid, index[6], index[7]);
    return vb_words(a, b, c, d);
}
/* Four bytes with seven signs each: the eighth of each makes the number of bits even. */
INLINE uint32_t with_eighth(uint32_t v) {
    uint32_t sum = v ^ v << 4;
    sum ^= sum << 2;
    sum ^= sum << 1;
    return v | (sum & 0x80808080);
}
/* Four times seven signs, one behind the other, to 32. */
INLINE uint32_t even_signs(uint32_t s) {
    uint32_t v = s & 0x7f;
    v |= s << 1 & 0x7f00;
    v |= s << 2 & 0x7f0000;
    v |= s << 3 & 0x7f000000;
    return with_eighth(v);
}
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
    const VB v = grid_eights(mnk_grid_iq2_xxs, index);
    const uint32_t signs = even_signs(load_u32(q + 4));
    return vb_mirror(v, signs, 86);
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
    const VB v = grid_eights(mnk_grid_iq2_xs, index);
    uint64_t sevens = q >> 9 & 0x007f007f007f007f;
    sevens = (sevens | sevens >> 8) & 0x0000ffff0000ffff;
    sevens |= sevens >> 16;
    const uint32_t signs = with_eighth((uint32_t)sevens);
    return vb_mirror(v, signs, 86);
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
    const VB v = grid_eights(mnk_grid_iq2_s, index);
    const uint32_t signs = load_u32(p + 34 + 4 * j);
    return vb_mirror(v, signs, 86);
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
    const int index[8] = {q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]};
    const VB v = grid_fours(mnk_grid_iq3_xxs, index);
    const uint32_t signs = even_signs(load_u32(p + 66 + 4 * j));
    return vb_mirror(v, signs, 124);
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
    const int index[8] = {
        q[0] | (h << 8 & 256), q[1] | (h << 7 & 256), q[2] | (h << 6 & 256), q[3] | (h << 5 & 256),
        q[4] | (h << 4 & 256), q[5] | (h << 3 & 256), q[6] | (h << 2 & 256), q[7] | (h << 1 & 256),
    };
    const VB v = grid_fours(mnk_grid_iq3_s, index);
    const uint32_t signs = load_u32(p + 74 + 4 * j);
    return vb_mirror(v, signs, 30);
}

/* {f16 d; u8 q[32]; u16 high[8]}: high of 32 elements: 3 bits for each index, 3 of a scale, one
 * that is set where an eighth is taken off, which else is added. Bytes are eighths, 9 more: 0, 8,
 * 16, and 2 where it is added. */
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
    const VB v = grid_eights(mnk_grid_iq1, index);
    const uint32_t added = h >> 15 ? 0 : UINT32_MAX;
    return vb_or(v, vb_bits(added, 2));
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
    const uint64_t ones = 0x0101010101010101;
    const uint64_t low = (s & 0xfff) | (s >> 4 & 0xfff000);
    const uint64_t high = (s >> 32 & 0xfff) | (s >> 36 & 0xfff000);
    const uint64_t odd_low = mnk_spread(low, 3) << 1 | ones;
    const uint64_t odd_high = mnk_spread(high, 3) << 1 | ones;
    v_widen8(odd_low, 0, by, d);
    v_widen8(odd_high, 0, by, d + 8);
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
    const VB v = grid_eights(mnk_grid_iq1, index);
    /* one bit for each eight elements to all of them */
    uint32_t less = h >> 3 & 0x1111;
    less = (less & 0x0011) | (less & 0x1100) << 8;
    less = (less & 0x00010001) | (less & 0x00100010) << 4;
    const VB added = vb_bits(~(less * 255), 2);
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
