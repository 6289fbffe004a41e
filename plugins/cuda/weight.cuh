/* weight.cuh -- what a lane reads of a weight at once, as f32 or as 16-bit numbers. A class of
 * weights has
 *   E        elements that a lane reads at once, in a row
 *   HALF     how x is rounded in class a16: CU_HALF or CU_BF16; CU_F32 = no matrix units
 *   SCALED   to_half multiplies by it; a product of matrix units is divided by it at the end
 *   load     planes, index: row * (ld / E) + position in the row
 *   to_float v[E]
 *   to_half  v[E / 2] pairs
 * Instances: w_*.cu. */
#ifndef CU_WEIGHT_CUH
#define CU_WEIGHT_CUH
#include "codes.cuh"
#include "kernels.h"
#include "scales.cuh"
#include "types.h"

/* (code - ZERO) * scale + min. In 16 bits a scale may be as small as 2^-24: SCALED moves it up. */
template <class C, class S, int ZERO> struct packed {
    enum { E = 32, HALF = CU_HALF, SCALED = 64 };
    using codes = C;
    using scales = S;
    C c;
    S s;
    __device__ __forceinline__ void load(const cu_planes &p, int64_t index) {
        c.load(p.at[0], p.at[1], index);
        s.load(p.at[2], p.at[3], index);
    }
    __device__ __forceinline__ void to_float(float *v) const {
        uint32_t w[8];
        float scale[2], min[2];
        c.bytes(w);
        s.get(0, scale, min);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int k = S::N == 2 && i >= 16;
            /* 2^23 + code */
            const uint32_t bits = __byte_perm(w[i / 4], 0x4b000000u, 0x7440u + i % 4);
            const float code = __uint_as_float(bits) - (8388608.0f + ZERO);
            v[i] = S::HAS_MIN ? fmaf(code, scale[k], min[k]) : code * scale[k];
        }
    }
    __device__ __forceinline__ void to_half(uint32_t *v) const {
        uint32_t w[8];
        float scale[2], min[2];
        c.bytes(w);
        s.get(0, scale, min);
        __half2 scale2[2], min2[2];
#pragma unroll
        for (int k = 0; k < S::N; k++) {
            scale2[k] = __float2half2_rn(scale[k] * SCALED);
            min2[k] = __float2half2_rn(min[k] * SCALED);
        }
        const __half2 zero = __float2half2_rn(1024.0f + ZERO);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int k = S::N == 2 && i >= 8;
            /* 1024 + code, twice */
            const uint32_t bits = __byte_perm(w[i / 2], 0x64646464u, i % 2 ? 0x4342u : 0x4140u);
            const __half2 code = __hsub2(*(const __half2 *)&bits, zero);
            const __half2 r =
                S::HAS_MIN ? __hfma2(code, scale2[k], min2[k]) : __hmul2(code, scale2[k]);
            v[i] = *(const uint32_t *)&r;
        }
    }
};

struct weight_f32 {
    enum { E = 4, HALF = CU_F32, SCALED = 1 };
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

struct weight_f16 {
    enum { E = 8, HALF = CU_HALF, SCALED = 1 };
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
    __device__ __forceinline__ void to_half(uint32_t *h) const {
        h[0] = v.x, h[1] = v.y, h[2] = v.z, h[3] = v.w;
    }
};

struct weight_bf16 {
    enum { E = 8, HALF = CU_BF16, SCALED = 1 };
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
    __device__ __forceinline__ void to_half(uint32_t *h) const {
        h[0] = v.x, h[1] = v.y, h[2] = v.z, h[3] = v.w;
    }
};
#endif
