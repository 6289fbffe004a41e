/* w_mxfp8.cu -- F8_E4M3_32, MXFP8: E4M3 with a scale in E8M0 for each 32 (OCP MX 1.0). The format
 * of scales makes 2^14 of them, and codes want 2^8. */
#include "floats.cuh"

struct mxfp8 {
    enum { BLOCK = 32, BYTES = 32, PLANES = 32 };
    using weight = packed_floats<codes_e4m3, scale_under<scale_e8m0, 64>, 256>;
    static __device__ int code(const uint8_t *b, int i) {
        return b[i];
    }
    /* The scale is NaN where a code is. */
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_exponent();
        for (int i = 0; i < 32; i++) {
            if ((b[i] & 0x7f) == 0x7f)
                to.keep_byte(255);
        }
    }
};
extern const cu_type cu_type_f8_e4m3_32 = packed_type<mxfp8>(MN_F8_E4M3_32, "f8_e4m3_32");
