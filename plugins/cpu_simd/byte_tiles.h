/* byte_tiles.h -- x in bytes with one scale for BYTE_SPAN columns, for tiles. */
enum { BYTE_SPAN = 256 };

/* Columns [at, at + n) of a mnk_quant row of k, which have a scale for 32 of them, to bytes with
 * one scale, and zeros behind them up to whole tiles; returns what 1 stands for. */
INLINE float unite_scales(const uint8_t *row, int64_t k, int64_t at, int64_t n, int8_t *to) {
    const float *d = mnk_quant_d(row, k) + at / 32;
    const __mmask16 keep = (__mmask16)((1u << n / 32) - 1);
    const __m512 scale = _mm512_maskz_loadu_ps(keep, d);
    /* as whole numbers, of which a NaN is the largest; none is below 0 */
    const __m512i bits = _mm512_castps_si512(scale);
    const int32_t top = _mm512_reduce_max_epi32(bits);
    const float most = mnk_bits_f32((uint32_t)top);
    float by = 0;
    if (most >= 0x1p-100f)
        by = 32767 / most;
    const VF of_most = v_mul(scale, v_set1(by));
    int32_t share[VL];
    _mm512_storeu_si512(share, _mm512_cvtps_epi32(of_most));
    memset(to, 0, BYTE_SPAN);
    for (int64_t b = 0; b < n / 32; b++) {
        const void *from = row + at + 32 * b;
        const __m256i q = _mm256_loadu_si256(from);
        const __m512i wide = _mm512_cvtepi8_epi16(q);
        const __m512i of_block = _mm512_set1_epi16((short)share[b]);
        const __m512i rounded = _mm512_mulhrs_epi16(wide, of_block);
        void *at_block = to + 32 * b;
        _mm256_storeu_si256(at_block, _mm512_cvtepi16_epi8(rounded));
    }
    return most;
}
