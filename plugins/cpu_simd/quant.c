/* quant.c -- activations to 8 bits, per block of 32: d = max |x| / 127, q = round(x / d). */
#include "rows.h"

void mnk_quantise(const float *x, int64_t k, int64_t lo, int64_t hi, uint8_t *row) {
    int8_t *q = (int8_t *)row + 32 * lo;
    float *d = (float *)(void *)(row + k);
    int32_t *sum = (int32_t *)(void *)(row + k + k / 8);
    int32_t *sum4 = (int32_t *)(void *)(row + k + k / 4) + 8 * lo;
    int32_t *sum16 = (int32_t *)(void *)(row + 2 * k + k / 4) + 2 * lo;
    x += 32 * lo;
    for (int64_t b = lo; b < hi; b++) {
        int32_t bits[32];
        int32_t top = 0;
        memcpy(bits, x, sizeof bits);
        /* as whole numbers, so that a NaN is the largest and stays one in d */
        for (int i = 0; i < 32; i++) {
            const int32_t size = bits[i] & 0x7fffffff;
            top = size > top ? size : top;
        }
        const float amax = mnk_bits_f32((uint32_t)top);
        float inv = amax != 0 ? 127.0f / amax : 0;
        /* 127 / amax would overflow; such blocks count as 0 */
        if (amax > 0 && amax < 1e-36f)
            inv = 0;
        for (int i = 0; i < 32; i++) {
            float v = x[i] * inv + 0x1.8p23f; /* rounds to nearest even into the low bits */
            memcpy(&bits[i], &v, sizeof v);
        }
        for (int i = 0; i < 32; i++)
            q[i] = (int8_t)bits[i];
        for (int i = 0; i < 8; i++) {
            const int8_t *four = q + 4 * i;
            sum4[i] = four[0] + four[1] + four[2] + four[3];
        }
        for (int i = 0; i < 2; i++) {
            const int32_t *four = sum4 + 4 * i;
            sum16[i] = four[0] + four[1] + four[2] + four[3];
        }
        d[b] = amax / 127.0f;
        sum[b] = sum16[0] + sum16[1];
        x += 32;
        q += 32;
        sum4 += 8;
        sum16 += 2;
    }
}
