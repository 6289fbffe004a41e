/* w_mxfp4.cu -- MXFP4: {u8 e; u8 q[16]}, x = 2^(e - 127) e2m1(q) (OCP MX 1.0). */
#include "rows.cuh"

struct mxfp4 {
    enum { BLOCK = 32, BYTES = 17, PLANES = 0 };
    using weight = packed<codes_e2m1, scale_e8m0, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 1, i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_byte(b[0]);
    }
};
extern const cu_type cu_type_mxfp4 = packed_type<mxfp4>(MN_MXFP4, "mxfp4");
