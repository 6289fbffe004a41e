/* types_block32.h -- blocks of 32 to 128 of the GGUF specification. Element i < 16 of 32 is the low
 * nibble of byte i, 16 + i its high one. */
#define SCALES(name)                                                                               \
    INLINE void name##_scales(const mnc_weight *w, const mnk_at *at, int64_t b, float *d, float *m)
#define BYTES(name) INLINE VB name##_bytes(const uint8_t *p, const int j)

INLINE uint32_t load_u32(const uint8_t *p) {
    uint32_t u;
    memcpy(&u, p, 4);
    return u;
}
INLINE uint64_t load_u64(const uint8_t *p) {
    uint64_t u;
    memcpy(&u, p, 8);
    return u;
}
/* {f16 d; ...}, and {f16 d, m; ...} */
#define ONE_SCALE(name, bytes)                                                                     \
    SCALES(name) {                                                                                 \
        (void)w, (void)m, d[0] = v_f16_1(at->data + b * bytes);                                    \
    }
#define SCALE_AND_MIN(name, bytes)                                                                 \
    SCALES(name) {                                                                                 \
        (void)w, v_f16_2(at->data + b * bytes, d, m);                                              \
    }

ONE_SCALE(q4_0, 18)
BYTES(q4_0) {
    (void)j;
    return vb_halves(p + 2);
}
SCALE_AND_MIN(q4_1, 20)
BYTES(q4_1) {
    (void)j;
    return vb_halves(p + 4);
}

/* the fifth bit of element i is bit i of a u32 before the nibbles */
ONE_SCALE(q5_0, 22)
BYTES(q5_0) {
    (void)j;
    const VB fifth = vb_bits(load_u32(p + 2), 16);
    return vb_or(vb_halves(p + 6), fifth);
}
SCALE_AND_MIN(q5_1, 24)
BYTES(q5_1) {
    (void)j;
    const VB fifth = vb_bits(load_u32(p + 4), 16);
    return vb_or(vb_halves(p + 8), fifth);
}

ONE_SCALE(q8_0, 34)
BYTES(q8_0) {
    (void)j;
    return vb_flip(vb_load(p + 2));
}
ONE_SCALE(q8_1, 36)
BYTES(q8_1) {
    (void)j;
    return vb_flip(vb_load(p + 4));
}

static const uint8_t iq4_values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                       129, 141, 153, 166, 181, 197, 217, 241}; /* 128 more */
ONE_SCALE(iq4_nl, 18)
BYTES(iq4_nl) {
    (void)j;
    return vb_lookup(vb_halves(p + 2), iq4_values);
}

/* E2M1 doubled, 12 more; the scale is halved. */
static const uint8_t fp4_values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
SCALES(mxfp4) {
    (void)w;
    (void)m;
    d[0] = mnk_e8m0_half(at->data[b * 17]);
}
BYTES(mxfp4) {
    (void)j;
    return vb_lookup(vb_halves(p + 1), fp4_values);
}

/* One scale for all groups of a block. */
SCALES(q1_0) {
    (void)w, (void)m;
    const float all = v_f16_1(at->data + b * 18);
    for (int g = 0; g < 4; g++)
        d[g] = all;
}
BYTES(q1_0) {
    return vb_bits(load_u32(p + 2 + 4 * j), 2);
}
SCALES(q2_0) {
    (void)w, (void)m;
    const float both = v_f16_1(at->data + b * 18);
    d[0] = both;
    d[1] = both;
}
BYTES(q2_0) {
    return vb_stream(p + 2 + 8 * j, 2);
}

SCALES(nvfp4_64) {
    (void)w, (void)m;
    const uint8_t *scale = at->data + b * 36;
    const float half = 0.5f * at->tensor_scale;
    for (int g = 0; g < 4; g++) {
        const float stored = mnk_ue4m3(scale[g]);
        d[g] = stored * half;
    }
}
/* Of 8 bytes the low nibbles, then the high ones. */
BYTES(nvfp4_64) {
    const uint64_t low = 0x0f0f0f0f0f0f0f0f;
    const uint64_t first = load_u64(p + 4 + 16 * j);
    const uint64_t second = load_u64(p + 12 + 16 * j);
    const VB codes = vb_words(first & low, first >> 4 & low, second & low, second >> 4 & low);
    return vb_lookup(codes, fp4_values);
}
