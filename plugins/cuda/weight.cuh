/* weight.cuh -- what a lane reads of a weight at once, as f32 or as 16-bit numbers. A class of
 * weights has
 *   E        elements that a lane reads at once: index v = row * (ld / E) + position in the row
 *   GROUPS   eight elements each, four registers of two 16-bit numbers
 *   HALF     how x is rounded in class a16: CU_HALF or CU_LOW; CU_F32 = no matrix units
 *   SCALED   to_half multiplies by it; a product of matrix units is divided by it at the end
 *            (where x is lowered, to_half multiplies by CU_LOWERED, too)
 *   PACKED   has codes and scales (codes.cuh, scales.cuh)
 *   load     planes, v
 *   column   where elements 4q to 4q + 3 of position v lie in the row
 *   place    the reverse: v and q of columns i to i + 3
 *   to_float [E], by q
 *   to_half  the registers of group g
 * Instances: w_*.cu. */
#ifndef CU_WEIGHT_CUH
#define CU_WEIGHT_CUH
#include "codes.cuh"
#include "device.cuh"
#include "scales.cuh"
#include "types.h"

/* Two f16, each times a factor of its own. */
__device__ __forceinline__ uint32_t times_half2(uint32_t two, __half2 factor) {
    const __half2 v = *(const __half2 *)&two;
    const __half2 y = __hmul2(v, factor);
    return *(const uint32_t *)&y;
}

/* (code - ZERO) * scale + min. In 16 bits a scale may be as small as 2^-24: SCALED moves it up. */
template <class C, class S, int ZERO> struct packed {
    enum { E = 32, GROUPS = 4, HALF = CU_HALF, PACKED = 1, OFFSET = ZERO };
    /* codes of E2M1 are 2^-14 of the value, and their scales 2^14 times as large: in f16 up to
     * 2^5 */
    static constexpr float SCALED = C::BASE ? 64.0f : 0.0625f;
    using codes = C;
    using scales = S;
    C c;
    S s;
    __device__ __forceinline__ void load(const cu_planes &p, int64_t v) {
        c.load(p.at[0], p.at[1], v);
        s.load(p.at[2], p.at[3], v >> 2);
    }
    /* Where position v lies in each plane, so that units an even number further on lie at constant
     * distances. 32 bits: a position has 32 elements. */
    struct cursor {
        const char *p[CU_MAX_PLANES];
    };
    static __device__ __forceinline__ cursor seek(const cu_planes &p, uint32_t v) {
        cursor at;
        at.p[0] = p.at[0] + (uint64_t)v * (4 * C::LOW);
        at.p[1] = NULL;
        at.p[3] = NULL;
        if (C::HIGH)
            at.p[1] = p.at[1] + (uint64_t)v * (4 * C::HIGH);
        at.p[2] = p.at[2] + (uint64_t)(v >> 2) * (S::BITS2 / 8);
        if (S::BITS3)
            at.p[3] = p.at[3] + (uint64_t)(v >> 3) * (S::BITS3 / 4);
        return at;
    }
    __device__ __forceinline__ void load(const cursor &at, int units) {
        c.load(at.p[0], at.p[1], 4 * units);
        s.load(at.p[2], at.p[3], units);
    }
    static __device__ __forceinline__ int column(int v, int q) {
        return v / 4 * 128 + q / 2 * 32 + q % 2 * 16 + v % 4 * 4;
    }
    static __device__ __forceinline__ void place(int i, int *v, int *q) {
        *v = i / 128 * 4 + i % 16 / 4;
        *q = i % 128 / 16;
    }
    static __device__ __forceinline__ float scaled(float v, float scale, float min) {
        return S::HAS_MIN ? fmaf(v, scale, min) : v * scale;
    }
    __device__ __forceinline__ void to_float(float *f) const {
#pragma unroll
        for (int g = 0; g < 4; g++) {
            uint32_t r[4];
            float scale[2];
            float min[2];
            c.halves(g, r);
            s.get(g, scale, min);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int n = k / 2 % S::N;
                float2 v = __half22float2(*(const __half2 *)&r[k]);
                if (C::ODD && k % 2) {
                    v.x = (v.x - C::BASE) * 0.0625f - ZERO;
                    v.y = (v.y - C::BASE) * 0.0625f - ZERO;
                } else {
                    v.x -= C::BASE + ZERO;
                    v.y -= C::BASE + ZERO;
                }
                float *to = &f[8 * g + 2 * k];
                to[0] = scaled(v.x, scale[n], min[n]);
                to[1] = scaled(v.y, scale[n], min[n]);
            }
        }
    }
    __device__ __forceinline__ void to_half(int g, uint32_t *r) const {
        float scale[2];
        float min[2];
        __half2 scale2[2];
        __half2 min2[2];
        c.halves(g, r);
        if constexpr (!C::BASE) {
            const __half2 factor = scale_in_halves(s, g, SCALED);
#pragma unroll
            for (int k = 0; k < 4; k++)
                r[k] = times_half2(r[k], factor);
            return;
        }
        s.get(g, scale, min);
#pragma unroll
        for (int n = 0; n < S::N; n++) {
            scale2[n] = __float2half2_rn(scale[n] * SCALED);
            min2[n] = __float2half2_rn(min[n] * SCALED);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int n = k / 2 % S::N;
            __half2 v = *(const __half2 *)&r[k];
            if (C::BASE && C::ODD && k % 2) {
                const __half2 sixteenth = __float2half2_rn(0.0625f);
                const __half2 base = __float2half2_rn(-(C::BASE / 16.0f + ZERO));
                v = __hfma2(v, sixteenth, base);
            } else if (C::BASE) {
                v = __hsub2(v, __float2half2_rn(C::BASE + ZERO));
            }
            if (S::HAS_MIN)
                v = __hfma2(v, scale2[n], min2[n]);
            else
                v = __hmul2(v, scale2[n]);
            r[k] = *(const uint32_t *)&v;
        }
    }
};

/* Elements lie in order. */
template <int N> struct in_order {
    static __device__ __forceinline__ int column(int v, int q) {
        return v * N + 4 * q;
    }
    static __device__ __forceinline__ void place(int i, int *v, int *q) {
        *v = i / N;
        *q = i % N / 4;
    }
};

struct weight_f32 : in_order<4> {
    enum { E = 4, GROUPS = 0, HALF = CU_F32, SCALED = 1, PACKED = 0 };
    uint4 v;
    __device__ __forceinline__ void load(const cu_planes &p, int64_t index) {
        v = __ldcs((const uint4 *)p.at[0] + index);
    }
    __device__ __forceinline__ void to_float(float *f) const {
        f[0] = __uint_as_float(v.x);
        f[1] = __uint_as_float(v.y);
        f[2] = __uint_as_float(v.z);
        f[3] = __uint_as_float(v.w);
    }
};

struct weight_f16 : in_order<8> {
    enum { E = 8, GROUPS = 1, HALF = CU_HALF, SCALED = 1, PACKED = 0 };
    uint4 v;
    __device__ __forceinline__ void load(const cu_planes &p, int64_t index) {
        v = __ldcs((const uint4 *)p.at[0] + index);
    }
    __device__ __forceinline__ void to_float(float *f) const {
        const __half2 *h = (const __half2 *)&v;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 x = __half22float2(h[i]);
            f[2 * i] = x.x;
            f[2 * i + 1] = x.y;
        }
    }
    __device__ __forceinline__ void to_half(int, uint32_t *h) const {
        h[0] = v.x;
        h[1] = v.y;
        h[2] = v.z;
        h[3] = v.w;
    }
};

/* Matrix units get it as f16, as they get x: as bf16 both, x would lose three bits. */
struct weight_bf16 : in_order<8> {
    enum { E = 8, GROUPS = 1, HALF = CU_LOW, SCALED = 1, PACKED = 0 };
    uint4 v;
    __device__ __forceinline__ void load(const cu_planes &p, int64_t index) {
        v = __ldcs((const uint4 *)p.at[0] + index);
    }
    __device__ __forceinline__ void to_float(float *f) const {
        const uint32_t u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            f[2 * i] = __uint_as_float(u[i] << 16);
            f[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
        }
    }
    /* Exact from 2^-21 to 2^12: f16 has three bits more than bf16. What is larger becomes the
     * largest f16, what is smaller loses at most 2^-29. */
    __device__ __forceinline__ void to_half(int, uint32_t *h) const {
        const uint32_t u[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float low = __uint_as_float(u[i] << 16) * CU_LOWERED;
            const float high = __uint_as_float(u[i] & 0xffff0000u) * CU_LOWERED;
            asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(h[i]) : "f"(high), "f"(low));
        }
    }
};

/* Four values as f16. */
__device__ __forceinline__ uint2 round4(float4 v) {
    ushort4 h;
    h.x = __half_as_ushort(to_half(v.x));
    h.y = __half_as_ushort(to_half(v.y));
    h.z = __half_as_ushort(to_half(v.z));
    h.w = __half_as_ushort(to_half(v.w));
    uint2 r;
    memcpy(&r, &h, sizeof r);
    return r;
}
#endif
