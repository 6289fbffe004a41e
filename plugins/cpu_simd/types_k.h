/* types_k.h -- blocks of 256 whose scales are quantised themselves. Layouts: GGUF
 * specification. */

/* {u8 scale[16]; u8 q[64]; f16 d, dmin} */
SCALES(q2_k) {
    const uint8_t *p = at->data + b * 84;
    const uint64_t four = 0x0f0f0f0f0f0f0f0f;
    const uint64_t lo = load_u64(p);
    const uint64_t hi = load_u64(p + 8);
    const float by = v_f16_1(p + 80);
    const float less = -v_f16_1(p + 82);
    (void)w;
    v_widen8(lo & four, 0, by, d);
    v_widen8(hi & four, 0, by, d + 8);
    v_widen8(lo >> 4 & four, 0, less, m);
    v_widen8(hi >> 4 & four, 0, less, m + 8);
}
BYTES(q2_k) {
    const VB q = vb_load(p + 16 + j / 4 * 32);
    return vb_field(q, 2 * (j % 4), 3);
}

/* {u8 high[32]; u8 q[64]; u8 scale[12]; f16 d}: scales of 6 bits, low four in the first eight
 * bytes, high two in the last four */
SCALES(q3_k) {
    const uint8_t *p = at->data + b * 110;
    const uint64_t four = 0x0f0f0f0f0f0f0f0f;
    const uint64_t two = 0x0303030303030303;
    const uint64_t low = load_u64(p + 96);
    const uint64_t z = load_u32(p + 104);
    const float by = v_f16_1(p + 108);
    (void)w;
    (void)m;
    const uint64_t high0 = (z | z >> 2 << 32) & two;
    const uint64_t high1 = (z >> 4 | z >> 6 << 32) & two;
    const uint64_t low0 = low & four;
    const uint64_t low1 = low >> 4 & four;
    v_widen8(low0 | high0 << 4, 32, by, d);
    v_widen8(low1 | high1 << 4, 32, by, d + 8);
}
BYTES(q3_k) {
    const VB q = vb_load(p + 32 + j / 4 * 32);
    const VB low = vb_field(q, 2 * (j % 4), 3);
    const VB high = vb_field(vb_load(p), j - 2, 4);
    return vb_or(low, high);
}

/* Eight scales and eight minima of 6 bits in 12 bytes. */
INLINE void scales_and_mins(const uint8_t *p, float *d, float *m) {
    const uint64_t x = load_u32(p + 4);
    const uint64_t y = load_u32(p + 8);
    const uint64_t z = load_u32(p + 12);
    const uint64_t six = 0x3f3f3f3f;
    const uint64_t four = 0x0f0f0f0f;
    float by;
    float less;
    v_f16_2(p, &by, &less);
    const uint64_t two = 0x30303030;
    const uint64_t x4 = (z & four) | (x >> 2 & two);
    const uint64_t y4 = (z >> 4 & four) | (y >> 2 & two);
    v_widen8((x & six) | x4 << 32, 0, by, d);
    v_widen8((y & six) | y4 << 32, 0, -less, m);
}
/* {f16 d, dmin; u8 scale[12]; u8 q[128]}; Q5_K has u8 high[32] before q */
SCALES(q4_k) {
    (void)w;
    scales_and_mins(at->data + b * 144, d, m);
}
BYTES(q4_k) {
    const VB q = vb_load(p + 16 + j / 2 * 32);
    return vb_field(q, 4 * (j % 2), 15);
}
SCALES(q5_k) {
    (void)w;
    scales_and_mins(at->data + b * 176, d, m);
}
BYTES(q5_k) {
    const VB q = vb_load(p + 48 + j / 2 * 32);
    const VB low = vb_field(q, 4 * (j % 2), 15);
    const VB high = vb_field(vb_load(p + 16), j - 4, 16);
    return vb_or(low, high);
}

/* {u8 low[128]; u8 high[64]; i8 scale[16]; f16 d}: of 128 elements the first 64 are low nibbles */
SCALES(q6_k) {
    const uint8_t *p = at->data + b * 210;
    const uint64_t flip = 0x8080808080808080;
    const float by = v_f16_1(p + 208);
    (void)w;
    (void)m;
    const uint64_t lo = load_u64(p + 192);
    const uint64_t hi = load_u64(p + 200);
    v_widen8(lo ^ flip, 128, by, d);
    v_widen8(hi ^ flip, 128, by, d + 8);
}
BYTES(q6_k) {
    const VB q = vb_load(p + j / 4 * 64 + j % 2 * 32);
    const VB q2 = vb_load(p + 128 + j / 4 * 32);
    const VB low = vb_field(q, j % 4 / 2 * 4, 15);
    const VB high = vb_field(q2, 2 * (j % 4) - 4, 48);
    return vb_or(low, high);
}

/* {f32 d; i8 q[256]; i16 sums[16]} */
SCALES(q8_k) {
    float one;
    (void)w;
    (void)m;
    memcpy(&one, at->data + b * 292, 4);
    for (int i = 0; i < 8; i++)
        d[i] = one;
}
BYTES(q8_k) {
    return vb_flip(vb_load(p + 4 + 32 * j));
}

/* {f16 d; u16 high; u8 low[4]; u8 q[128]}: 8 scales of 6 bits, less 32 */
SCALES(iq4_xs) {
    const uint8_t *p = at->data + b * 136;
    (void)w;
    (void)m;
    const uint64_t low = mnk_spread(load_u32(p + 4), 4);
    const uint64_t high = mnk_spread(mnk_u16(p + 2), 2);
    v_widen8(low | high << 4, 32, v_f16_1(p), d);
}
BYTES(iq4_xs) {
    return vb_lookup(vb_halves(p + 8 + 16 * j), iq4_values);
}
