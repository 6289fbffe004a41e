/* w_mxfp4_split.cu -- MXFP4_SPLIT: MXFP4 with scales in a plane of their own, element 2i in the low
 * half of byte i (OCP MX 1.0). */
#include "rows.cuh"

struct mxfp4_split {
    enum { BLOCK = 32, BYTES = 16, PLANES = 32 };
    using weight = packed<codes_e2m1, scale_e8m0, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_at(b, i);
    }
    static __device__ void scales(const uint8_t *, const group_place &to) {
        to.keep_exponent();
    }
};
extern const cu_type cu_type_mxfp4_split = packed_type<mxfp4_split>(MN_MXFP4_SPLIT, "mxfp4_split");
