/* w_nvfp4.cu -- NVFP4: E2M1, a scale in E4M3 for each 16 and one in f32 for all. In checkpoints
 * element 2i is in the low half of byte i and scales are a tensor of their own; NVFP4_64 of GGUF
 * has blocks of 64: {u8 d[4]; u8 q[32]}. */
#include "floats.cuh"

/* A byte of E4M3 per 16, f32 per 256: 2^14 of the tensor's scale, since codes are 2^-14 of their
 * values. */
struct scale_nvfp4 {
    enum { BITS2 = 64, BITS3 = 16, N = 2, HAS_MIN = 0 };
    uint2 v;
    float tensor;
    template <class R = from_global>
    __device__ __forceinline__ void load(const char *p2, const char *p3, int64_t unit) {
        v = R::scale((const uint2 *)p2 + unit);
        tensor = R::scale((const float *)p3 + (unit >> 1));
    }
    /* The bits of E4M3 as those of an f32: 2^-120 of its value. */
    static __device__ __forceinline__ float e4m3(uint32_t byte) {
        const uint32_t sign = byte << 24 & 0x80000000u;
        const uint32_t rest = byte << 20 & 0x07f00000u;
        const float f = __uint_as_float(sign | rest);
        return f * 0x1p120f;
    }
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const uint32_t both = half_word(v, g);
        s[0] = e4m3(both) * tensor;
        s[1] = e4m3(both >> 8) * tensor;
        m[0] = 0;
        m[1] = 0;
    }
};

struct nvfp4 {
    enum { BLOCK = 32, BYTES = 16, PLANES = 16 };
    using weight = packed_floats<codes_e2m1, scale_nvfp4, 1>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_at(b, i);
    }
    /* What is a value of E4M3, as it. */
    static __device__ int to_e4m3(float f) {
        const uint32_t bits = __float_as_uint(f * 0x1p-120f);
        const uint32_t sign = bits >> 24 & 0x80;
        return (int)(sign | (bits >> 20 & 0x7f));
    }
    /* NaN where one of the block's scales is. */
    static __device__ void scales(const uint8_t *, const group_place &to) {
        const float *scale = to.scales() + 2 * to.at;
        const int left = to.im.values - 2 * to.at;
        float *plane = (float *)to.im.to.at[3];
        to.keep_two(to_e4m3(scale[0]), to_e4m3(scale[1]));
        if (to.at % 8)
            return;
        float tensor = to.biases()[0];
        for (int i = 0; i < min(16, left); i++) {
            if (isnan(scale[i]))
                tensor = NAN;
        }
        plane[to.to / 8] = tensor * 16384.0f;
    }
};
/* Of 16 elements with one scale the first 8 are the low halves of 8 bytes. Scales have no sign, and
 * 0x7f is 0 (dtype/float.c). The host hands the tensor's scale for each block. */
struct nvfp4_64 {
    enum { BLOCK = 64, BYTES = 36, PLANES = 64 };
    using weight = nvfp4::weight;
    static __device__ int code(const uint8_t *b, int i) {
        const uint8_t *q = b + 4 + i / 16 * 8;
        const int both = q[i % 8];
        const bool is_low = i % 16 < 8;
        if (is_low)
            return both & 15;
        return both >> 4;
    }
    static __device__ int scale_of(int stored) {
        if (stored == 0x7f)
            return 0;
        return stored & 0x7f;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const uint8_t *scale = b + 2 * to.sub;
        float *plane = (float *)to.im.to.at[3];
        const int first = scale_of(scale[0]);
        const int second = scale_of(scale[1]);
        to.keep_two(first, second);
        if (to.at % 8)
            return;
        const float tensor = to.scales()[to.at / 2];
        plane[to.to / 8] = tensor * 16384.0f;
    }
};
/* Rows begin with a scale of their own. */
template <class F> static constexpr cu_type nvfp4_type(uint32_t dtype, const char *name) {
    cu_type t = packed_type<F>(dtype, name);
    t.align = 256;
    return t;
}
extern const cu_type cu_type_nvfp4 = nvfp4_type<nvfp4>(MN_NVFP4, "nvfp4");
extern const cu_type cu_type_nvfp4_64 = nvfp4_type<nvfp4_64>(MN_NVFP4_64, "nvfp4_64");
