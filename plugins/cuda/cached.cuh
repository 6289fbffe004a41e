/* cached.cuh -- where keys and values lie in a page, and how they are read. A page has, per layer,
 * the keys of all heads, then the values; a head has CU_PAGE_TOKENS rows of `pad` elements. Of q8_0
 * a head has the codes of all rows, then their scales, one f16 per 32 codes: codes are read 8 at
 * once. */
#ifndef CU_CACHED_CUH
#define CU_CACHED_CUH
#include "device.cuh"
#include <type_traits>

struct q8_codes {
    uint2 q;
    float d;
};
struct eight_floats {
    float f[8];
};

/* Keys, values of this layer in a page. */
__device__ __forceinline__ char *keys_at(const cu_cache &c, int page) {
    return c.kv + (int64_t)page * c.page_bytes + c.layer_at;
}
__device__ __forceinline__ char *values_at(const cu_cache &c, int page) {
    return keys_at(c, page) + c.v_offset;
}

/* Of q8_0: where a head begins among the keys or values of a page, the codes of the row at position
 * p, and its scales. */
__device__ __forceinline__ char *q8_head(char *plane, int kvh, int pad) {
    const int row_bytes = pad / 32 * 34;
    const int bytes = CU_PAGE_TOKENS * row_bytes;
    return plane + (int64_t)kvh * bytes;
}
__device__ __forceinline__ char *q8_codes_at(char *head, int p, int pad) {
    const int row = p % CU_PAGE_TOKENS;
    return head + row * pad;
}
__device__ __forceinline__ __half *q8_scales_at(char *head, int p, int pad) {
    const int row = p % CU_PAGE_TOKENS;
    const int blocks = pad / 32;
    char *scales = head + CU_PAGE_TOKENS * pad;
    return (__half *)scales + row * blocks;
}
/* Where the row of floats at position p begins, in elements. */
__device__ __forceinline__ int64_t float_row(int kvh, int p, int pad) {
    const int row = p % CU_PAGE_TOKENS;
    const int64_t before = (int64_t)kvh * CU_PAGE_TOKENS;
    return (before + row) * pad;
}

__device__ __forceinline__ void widen(const q8_codes &v, float (&f)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int shift = 8 * i;
        const signed char low = (signed char)(v.q.x >> shift);
        const signed char high = (signed char)(v.q.y >> shift);
        f[i] = v.d * (float)low;
        f[i + 4] = v.d * (float)high;
    }
}

/* Elements [8 i, 8 i + 8) of a row. */
__device__ __forceinline__ q8_codes read_q8(char *plane, int kvh, int p, int pad, int i) {
    char *head = q8_head(plane, kvh, pad);
    const uint2 *codes = (const uint2 *)q8_codes_at(head, p, pad);
    const __half *scales = q8_scales_at(head, p, pad);
    q8_codes r;
    r.q = __ldcg(&codes[i]);
    r.d = __half2float(__ldcg(&scales[i / 4]));
    return r;
}
/* The same of any type, f32. */
__device__ __forceinline__ eight_floats read_any(char *plane, uint32_t dtype, int kvh, int p,
                                                 int pad, int i) {
    const int64_t first = float_row(kvh, p, pad) + 8 * i;
    eight_floats r;
    if (dtype == MN_Q8_0) {
        widen(read_q8(plane, kvh, p, pad, i), r.f);
        return r;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int64_t at = first + k;
        if (dtype == MN_F32)
            r.f[k] = __ldcg((const float *)plane + at);
        else
            r.f[k] = __half2float(__ldcg((const __half *)plane + at));
    }
    return r;
}
#endif
