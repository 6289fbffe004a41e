/* w_f8_e5m2.cu -- F8_E5M2 (OCP FP8), which has no scale: on the device each is 1, as the form of F8
 * wants one. Infinity and NaN stay what they are. */
#include "floats.cuh"

struct f8_e5m2 {
    enum { BLOCK = 32, BYTES = 32, PLANES = 0 };
    using weight = packed_floats<codes_e5m2, scale_f32, 16>;
    static __device__ int code(const uint8_t *b, int i) {
        return b[i];
    }
    static __device__ void scales(const uint8_t *, const group_place &to) {
        float *plane = (float *)to.im.to.at[2];
        if (to.at % 4 == 0)
            plane[to.to / 4] = 1;
    }
};
extern const cu_type cu_type_f8_e5m2 = packed_type<f8_e5m2>(MN_F8_E5M2, "f8_e5m2");
