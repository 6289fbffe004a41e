/* w_nvfp4.cu -- NVFP4: E2M1, element 2i in the low half of byte i, a scale in E4M3 for each 16 and
 * one in f32 for all. */
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
/* Rows begin with a scale of their own. */
static constexpr cu_type nvfp4_type() {
    cu_type t = packed_type<nvfp4>(MN_NVFP4, "nvfp4");
    t.align = 256;
    return t;
}
extern const cu_type cu_type_nvfp4 = nvfp4_type();
