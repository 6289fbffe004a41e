/* floats.cuh -- weights whose codes are little floats: registers hold values, a power of two apart
 * from what they stand for, without arithmetic (F8, NVFP4). */
#ifndef CU_FLOATS_CUH
#define CU_FLOATS_CUH
#include "rows.cuh"

/* E4M3: sign, four bits of exponent, three of mantissa, as bits 15 and 13 to 7 of an f16 that is
 * 2^-8 of the value, whatever the exponent. Of the 16 bits of a half word, two codes, register 0
 * takes those bits as they lie, register 1 bits 14 and 6 to 0. NaN is not among them. */
struct codes_e4m3 : codes8 {
    enum { BASE = 0 };
    static __device__ __forceinline__ void two_of(uint32_t q, uint32_t *r) {
        const uint32_t sign = q << 1 & 0x80008000u;
        r[0] = q & 0xbf80bf80u;
        r[1] = sign | (q << 7 & 0x3f803f80u);
    }
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint4 &q = low[g / 2];
        two_of(g % 2 ? q.z : q.x, r);
        two_of(g % 2 ? q.w : q.y, r + 2);
    }
    static __device__ __forceinline__ uint32_t half_of(uint32_t first, uint32_t second) {
        uint32_t half = (first & 0x80) << 8;
        half |= (second & 0x80) << 7;
        half |= (first & 0x7f) << 7;
        return half | (second & 0x7f);
    }
    template <class F>
    static __device__ __forceinline__ void pack(uint8_t *p0, uint8_t *, int64_t to, int g, F code) {
        uint16_t *words = (uint16_t *)p0;
        words += to * 16 + 4 * g;
        for (int i = 0; i < 4; i++) {
            const int j = i / 2 * 4 + i % 2;
            const int first = code(j);
            const int second = code(j + 2);
            words[i] = (uint16_t)half_of(first, second);
        }
    }
};

/* E5M2: the upper byte of an f16. */
struct codes_e5m2 : codes8 {
    enum { BASE = 0 };
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint4 &q = low[g / 2];
        const uint32_t a = g % 2 ? q.z : q.x;
        const uint32_t b = g % 2 ? q.w : q.y;
        r[0] = __byte_perm(a, 0, 0x1404u);
        r[1] = __byte_perm(a, 0, 0x3424u);
        r[2] = __byte_perm(b, 0, 0x1404u);
        r[3] = __byte_perm(b, 0, 0x3424u);
    }
};

/* An f32 for each 128 elements */
struct scale_f32 {
    enum { BITS2 = 32, BITS3 = 0, N = 1, HAS_MIN = 0 };
    float v;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *, int64_t unit) {
        v = R::scale((const float *)p2 + unit);
    }
    __device__ __forceinline__ void get(int, float *s, float *m) const {
        s[0] = v;
        m[0] = 0;
    }
};

/* A format of scales, of which each counts as 1 / UNDER. */
template <class S, int UNDER> struct scale_under : S {
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        S::get(g, s, m);
#pragma unroll
        for (int n = 0; n < S::N; n++)
            s[n] *= 1.0f / UNDER;
    }
};

/* code * scale. For matrix units values are moved up by SIXTEENTHS / 16. */
template <class C, class S, int SIXTEENTHS> struct packed_floats : packed<C, S, 0> {
    static constexpr float SCALED = SIXTEENTHS / 16.0f;
    __device__ __forceinline__ void to_half(int g, uint32_t *r) const {
        float scale[2];
        float min[2];
        __half2 factor[2];
        this->c.halves(g, r);
        this->s.get(g, scale, min);
#pragma unroll
        for (int n = 0; n < S::N; n++)
            factor[n] = __float2half2_rn(scale[n] * SCALED);
#pragma unroll
        for (int k = 0; k < 4; k++)
            r[k] = times_half2(r[k], factor[k / 2 % S::N]);
    }
};
#endif
