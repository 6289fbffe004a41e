/* bytes_plain.h -- what instruction sets without a better way share; bytes_avx2.h says what these
 * do. Little-endian. */
static inline uint64_t stream_word(const uint8_t *p, int64_t at,
                                   int64_t bytes) { /* up to eight bytes from p + at on, then 0 */
    uint64_t w = 0;
    if (at < bytes) {
        const int64_t left = bytes - at;
        memcpy(&w, p + at, (size_t)(left < 8 ? left : 8));
    }
    return w;
}
static inline VF v_table16(const float *table, const uint8_t *p) {
    float value[VL];
    for (int i = 0; i < VL / 2; i++) {
        const uint8_t high = p[i] >> 4;
        const uint8_t low = p[i] & 15;
        value[2 * i] = table[high];
        value[2 * i + 1] = table[low];
    }
    return v_load(value);
}
/* 32 fields of `bits` bits, from 4 * bits bytes. */
static inline VB vb_stream(const uint8_t *p, const int bits) {
    const int64_t n = 4 * bits;
    const uint64_t w0 = stream_word(p, 0, n);
    const uint64_t w1 = stream_word(p, bits, n);
    const uint64_t w2 = stream_word(p, 2 * bits, n);
    const uint64_t w3 = stream_word(p, 3 * bits, n);
    return vb_words(mnk_spread(w0, bits), mnk_spread(w1, bits), mnk_spread(w2, bits),
                    mnk_spread(w3, bits));
}
