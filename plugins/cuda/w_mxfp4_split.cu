/* w_mxfp4_split.cu -- MXFP4_SPLIT: MXFP4 with scales in a plane of their own, element 2i in the low
 * half of byte i (OCP MX 1.0). */
#include "rows.cuh"

struct mxfp4_split {
    enum { BLOCK = 32, BYTES = 16, PLANES = 1 };
    using weight = packed<codes_e2m1, scale_e8m0, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        return b[i / 2] >> 4 * (i % 2) & 15;
    }
    /* The host hands 2^(e - 127) in f32: e is its exponent; 2^-127 is subnormal. */
    static __device__ void scales(const uint8_t *, int, const cu_import &im, int64_t row, int at,
                                  int64_t to) {
        const uint32_t bits = __float_as_uint(im.scale[row * im.blocks + at]);
        ((uint8_t *)im.to.at[2])[to] = (uint8_t)(bits >> 23);
    }
};
extern const cu_type cu_type_mxfp4_split = packed_type<mxfp4_split>(MN_MXFP4_SPLIT, "mxfp4_split");
