/* scales.cuh -- how the scales of packed weights lie in memory. A scale format has
 *   BITS2, BITS3   bits per 128 elements of planes 2 and 3
 *   N              scales of a group of 32: 1, or 2 (one for each 16)
 *   load           what a lane reads for a unit of 128 elements; unit: 128 * unit is the element in
 *                  the matrix
 *   get            s[N], m[N] of group g: value = (code - zero) * s + m; m is 0 without
 *                  HAS_MIN
 * Products of an f16 scale and a small integer are exact in f32. */
#ifndef CU_SCALES_CUH
#define CU_SCALES_CUH
#include "codes.cuh"
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ float half_bits(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}
/* Byte i of eight. */
__device__ __forceinline__ uint32_t byte_of(uint2 v, int i) {
    const uint32_t word = i < 4 ? v.x : v.y;
    return word >> 8 * (i % 4) & 0xffu;
}

/* yes ? a : b, of two registers: the compiler would put an array in memory to choose from it. */
__device__ __forceinline__ float either(bool yes, float a, float b) {
#ifdef CU_EMULATED /* tests run this on a CPU */
    return yes ? a : b;
#else
    float r;
    asm("{ .reg .pred p;\n"
        "setp.ne.u32 p, %1, 0;\n"
        "selp.f32 %0, %2, %3, p; }"
        : "=f"(r)
        : "r"((uint32_t)yes), "f"(a), "f"(b));
    return r;
#endif
}

/* f16 scale per 32 */
struct scale_f16 {
    enum { BITS2 = 64, BITS3 = 0, N = 1, HAS_MIN = 0 };
    uint2 v;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t unit) {
        v = R::scale((const uint2 *)p2 + unit);
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const uint32_t bits = half_word(v, g) & 0xffffu;
        s[0] = half_bits(bits);
        m[0] = 0;
    }
};

/* f16 scale and minimum per 32 */
struct scale_min_f16 {
    enum { BITS2 = 128, BITS3 = 0, N = 1, HAS_MIN = 1 };
    uint4 v;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t unit) {
        v = R::scale((const uint4 *)p2 + unit);
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const uint32_t w = word_of(v, g);
        s[0] = half_bits(w & 0xffffu);
        m[0] = half_bits(w >> 16);
    }
};

/* Q4_K and Q5_K: per 32 {u8 scale, u8 min}, of 6 bits each, per 256 {f16 d, dmin} */
struct scale_k {
    enum { BITS2 = 64, BITS3 = 16, N = 1, HAS_MIN = 1 };
    uint2 v;
    uint32_t d;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t unit) {
        v = R::scale((const uint2 *)p2 + unit);
        d = R::scale((const uint32_t *)p3 + (unit >> 1));
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const float scale = half_bits(d & 0xffffu);
        const float min = -half_bits(d >> 16);
        s[0] = scale * (float)byte_of(v, 2 * g);
        m[0] = min * (float)byte_of(v, 2 * g + 1);
    }
};

/* Q3_K and Q6_K: signed bytes per 16, f16 per 256 */
struct scale_i8_16 {
    enum { BITS2 = 64, BITS3 = 8, N = 2, HAS_MIN = 0 };
    uint2 v;
    __half d;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t unit) {
        v = R::scale((const uint2 *)p2 + unit);
        d = R::scale((const __half *)p3 + (unit >> 1));
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const float f = __half2float(d);
        s[0] = f * (float)(int8_t)byte_of(v, 2 * g);
        s[1] = f * (float)(int8_t)byte_of(v, 2 * g + 1);
        m[0] = 0;
        m[1] = 0;
    }
};

/* IQ4_XS: a signed byte per 32, f16 per 256 */
struct scale_i8_32 {
    enum { BITS2 = 32, BITS3 = 8, N = 1, HAS_MIN = 0 };
    uint32_t v;
    __half d;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t unit) {
        v = R::scale((const uint32_t *)p2 + unit);
        d = R::scale((const __half *)p3 + (unit >> 1));
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        s[0] = __half2float(d) * (float)(int8_t)(v >> 8 * g);
        m[0] = 0;
    }
};

/* Q2_K: per 16 a byte {scale, min << 4}, per 256 {f16 d, dmin} */
struct scale_q2 {
    enum { BITS2 = 64, BITS3 = 16, N = 2, HAS_MIN = 1 };
    uint2 v;
    uint32_t d;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t unit) {
        v = R::scale((const uint2 *)p2 + unit);
        d = R::scale((const uint32_t *)p3 + (unit >> 1));
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const float f = half_bits(d & 0xffffu);
        const float fmin = -half_bits(d >> 16);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t b = byte_of(v, 2 * g + k);
            s[k] = f * (float)(b & 15);
            m[k] = fmin * (float)(b >> 4);
        }
    }
};

/* MXFP4: E8M0 per 32; codes are 2^-14 of the value */
struct scale_e8m0 {
    enum { BITS2 = 32, BITS3 = 0, N = 1, HAS_MIN = 0 };
    uint32_t v;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t unit) {
        v = R::scale((const uint32_t *)p2 + unit);
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        /* 2^(e - 127 + 14): two factors, since e may be large; 255 is NaN */
        const uint32_t e = v >> 8 * g & 0xffu;
        const float scale = e ? __uint_as_float(e << 23) : __uint_as_float(0x00400000u);
        s[0] = e == 255 ? __uint_as_float(0x7fffffffu) : scale * 16384.0f;
        m[0] = 0;
    }
};

/* The scale of a group times FACTOR, twice in 16 bits; of E8M0 without going through its cases: NaN
 * becomes infinity. */
template <class S> __device__ __forceinline__ __half2 scale_in_halves(const S &s, int g, float f) {
    float scale[2];
    float min[2];
    s.get(g, scale, min);
    return __float2half2_rn(scale[0] * f);
}
template <>
__device__ __forceinline__ __half2 scale_in_halves(const scale_e8m0 &s, int g, float f) {
    const uint32_t exponent = g == 3 ? s.v >> 1 : s.v << (23 - 8 * g);
    return __float2half2_rn(__uint_as_float(exponent & 0x7f800000u) * (16384.0f * f));
}

/* MLX: {f32 scale, f32 bias} per G elements */
template <int G> struct scale_affine {
    enum { BITS2 = 8192 / G, BITS3 = 0, N = 1, HAS_MIN = 1 };
    float2 v[128 / G];
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t unit) {
#pragma unroll
        for (int i = 0; i < 128 / G; i++)
            v[i] = R::scale((const float2 *)p2 + unit * (128 / G) + i);
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        /* g may be known at run time only: no index into registers */
        float scale = v[0].x;
        float min = v[0].y;
#pragma unroll
        for (int i = 1; i < 128 / G; i++) {
            const bool mine = g * 32 / G == i;
            scale = either(mine, v[i].x, scale);
            min = either(mine, v[i].y, min);
        }
        s[0] = scale;
        m[0] = min;
    }
};
#endif
