/* cached.c -- rows of keys and values as a cache keeps them: F32, F16 (nearest even) or blocks of
 * Q8_0, d = largest / 127 rounded to f16, q = x / d rounded to nearest even. Every plugin rounds
 * so, and a device that does the same steps in f32 has the same codes. */
#include "dtype.h"
#include <math.h>
#include <string.h>

/* The scale of a block as it is stored: f16; NaN if an element is not finite. */
static uint16_t scale_of(const float x[32]) {
    const uint16_t nan = 0x7E00;
    const uint16_t largest = 0x7BFF;
    float top = 0;
    for (int i = 0; i < 32; i++) {
        if (!isfinite(x[i]))
            return nan;
        top = fmaxf(top, fabsf(x[i]));
    }
    const float d = top / 127.0f;
    if (d >= 65504.0f)
        return largest;
    return mn_f32_to_f16(d);
}

static void cached_put_block(const float x[32], uint8_t *to) {
    const uint16_t half = scale_of(x);
    const float d = mn_f16_to_f32(half);
    float inverse = 0;
    if (d > 0) /* not of NaN: its codes are 0 */
        inverse = 1.0f / d;
    memcpy(to, &half, sizeof half);
    for (int i = 0; i < 32; i++) {
        float q = 0;
        if (inverse > 0)
            q = fminf(fmaxf(rintf(x[i] * inverse), -127.0f), 127.0f);
        to[2 + i] = (uint8_t)(int8_t)q;
    }
}

void mn_cached_put(uint32_t dtype, const float *x, int64_t n, uint8_t *to) {
    if (dtype == MN_F32) {
        memcpy(to, x, (size_t)n * sizeof *x);
        return;
    }
    if (dtype == MN_F16) {
        for (int64_t i = 0; i < n; i++) {
            const uint16_t h = mn_f32_to_f16(x[i]);
            memcpy(to + 2 * i, &h, sizeof h);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += 32, to += 34) {
        float block[32] = {0};
        const int64_t left = n - i < 32 ? n - i : 32;
        memcpy(block, x + i, (size_t)left * sizeof *x);
        cached_put_block(block, to);
    }
}

/* n codes of a block, with its scale in front. */
static void get_block(const uint8_t *from, int64_t n, float *x) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    const float d = mn_f16_to_f32(half);
    for (int64_t i = 0; i < n; i++) {
        const int8_t q = (int8_t)from[2 + i];
        x[i] = d * q;
    }
}

void mn_cached_get(uint32_t dtype, const uint8_t *from, int64_t n, float *x) {
    if (dtype == MN_F32) {
        memcpy(x, from, (size_t)n * sizeof *x);
        return;
    }
    if (dtype == MN_F16) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, from + 2 * i, sizeof h);
            x[i] = mn_f16_to_f32(h);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += 32, from += 34) {
        const int64_t left = n - i < 32 ? n - i : 32;
        get_block(from, left, x + i);
    }
}
