/* scales.cuh -- how the scales of 32 elements lie in memory. A scale format has
 *   BITS2, BITS3   bits per 128 elements of planes 2 and 3
 *   N              scales of a group of 32: 1, or 2 (one for each 16)
 *   load           what a lane reads; plane 2 and 3, group: 32 * group is the element in the matrix
 *   get            s[N], m[N]: value = (code - zero) * s + m; m is 0 where HAS_MIN is false
 * Products of an f16 scale and a small integer are exact in f32. */
#ifndef CU_SCALES_CUH
#define CU_SCALES_CUH
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ float half_bits(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* f16 scale per 32 */
struct scale_f16 {
    enum { BITS2 = 64, BITS3 = 0, N = 1, HAS_MIN = 0 };
    __half d;
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t group) {
        d = __ldg((const __half *)p2 + group);
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        s[0] = __half2float(d);
        m[0] = 0;
    }
};

/* f16 scale and minimum per 32 */
struct scale_min_f16 {
    enum { BITS2 = 128, BITS3 = 0, N = 1, HAS_MIN = 1 };
    uint32_t v;
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t group) {
        v = __ldg((const uint32_t *)p2 + group);
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        s[0] = half_bits(v & 0xffffu);
        m[0] = half_bits(v >> 16);
    }
};

/* Q4_K and Q5_K: per 32 {u8 scale, u8 min}, of 6 bits each, per 256 {f16 d, dmin} */
struct scale_k {
    enum { BITS2 = 64, BITS3 = 16, N = 1, HAS_MIN = 1 };
    uchar2 v;
    uint32_t d;
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t group) {
        v = __ldg((const uchar2 *)p2 + group);
        d = __ldg((const uint32_t *)p3 + (group >> 3));
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        s[0] = half_bits(d & 0xffffu) * (float)v.x;
        m[0] = -half_bits(d >> 16) * (float)v.y;
    }
};
/* At import: the scale and minimum of group `sub` from the block's {f16 d, dmin; u8 scale[12]}. */
__device__ __forceinline__ void import_scale_k(const uint8_t *block, int sub, char *p2, char *p3,
                                               int64_t group) {
    const uint8_t *s = block + 4;
    uchar2 v;
    if (sub < 4) {
        v.x = s[sub] & 63;
        v.y = s[sub + 4] & 63;
    } else {
        v.x = (unsigned char)((s[sub + 4] & 15) | s[sub - 4] >> 6 << 4);
        v.y = (unsigned char)(s[sub + 4] >> 4 | s[sub] >> 6 << 4);
    }
    ((uchar2 *)p2)[group] = v;
    if (!sub)
        ((uint32_t *)p3)[group >> 3] =
            block[0] | block[1] << 8 | block[2] << 16 | (uint32_t)block[3] << 24;
}

/* Q3_K and Q6_K: signed bytes per 16, f16 per 256 */
struct scale_i8_16 {
    enum { BITS2 = 64, BITS3 = 8, N = 2, HAS_MIN = 0 };
    char2 v;
    __half d;
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t group) {
        v = __ldg((const char2 *)p2 + group);
        d = __ldg((const __half *)p3 + (group >> 3));
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        const float f = __half2float(d);
        s[0] = f * (float)v.x;
        s[1] = f * (float)v.y;
        m[0] = m[1] = 0;
    }
};

/* IQ4_XS: a signed byte per 32, f16 per 256 */
struct scale_i8_32 {
    enum { BITS2 = 32, BITS3 = 8, N = 1, HAS_MIN = 0 };
    signed char v;
    __half d;
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t group) {
        v = __ldg((const signed char *)p2 + group);
        d = __ldg((const __half *)p3 + (group >> 3));
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        s[0] = __half2float(d) * (float)v;
        m[0] = 0;
    }
};

/* Q2_K: per 16 a byte {scale, min << 4}, per 256 {f16 d, dmin} */
struct scale_q2 {
    enum { BITS2 = 64, BITS3 = 16, N = 2, HAS_MIN = 1 };
    uchar2 v;
    uint32_t d;
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t group) {
        v = __ldg((const uchar2 *)p2 + group);
        d = __ldg((const uint32_t *)p3 + (group >> 3));
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        const float f = half_bits(d & 0xffffu), fmin = -half_bits(d >> 16);
        s[0] = f * (float)(v.x & 15);
        s[1] = f * (float)(v.y & 15);
        m[0] = fmin * (float)(v.x >> 4);
        m[1] = fmin * (float)(v.y >> 4);
    }
};

/* MXFP4: E8M0 per 32. E2M1 codes count twice, so the scale is halved. */
struct scale_e8m0 {
    enum { BITS2 = 32, BITS3 = 0, N = 1, HAS_MIN = 0 };
    uint8_t e;
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t group) {
        e = __ldg((const uint8_t *)p2 + group);
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        /* 2^(e - 128); below 2^-126 a subnormal number, 255 is NaN */
        const uint32_t bits = e > 1 ? (uint32_t)(e - 1) << 23 : 0x00200000u << e;
        s[0] = e == 255 ? __uint_as_float(0x7fffffffu) : __uint_as_float(bits);
        m[0] = 0;
    }
};

/* MLX: {f32 scale, f32 bias} per G elements */
template <int G> struct scale_affine {
    enum { BITS2 = 8192 / G, BITS3 = 0, N = 1, HAS_MIN = 1 };
    float2 v;
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t group) {
        v = __ldg((const float2 *)p2 + group / (G / 32));
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        s[0] = v.x;
        m[0] = v.y;
    }
};
#endif
