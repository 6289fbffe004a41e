/* w_f8.cu -- F8_E4M3 with a scale for each row or one for all (or none), F8_E4M3_128 with one for
 * each 128 x 128 elements (OCP FP8). On the device both have an f32 for each 128 columns. */
#include "floats.cuh"

struct f8 {
    enum { BLOCK = 32, BYTES = 32, PLANES = 128 };
    using weight = packed_floats<codes_e4m3, scale_f32, 256>;
    static __device__ int code(const uint8_t *b, int i) {
        return b[i];
    }
    /* By the first group of four: 2^8 of the stored scale, since registers hold 2^-8 of values; NaN
     * where a code is NaN. */
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int left = to.im.cols - 32 * to.at;
        float *plane = (float *)to.im.to.at[2];
        if (to.at % 4)
            return;
        float scale = to.scales()[to.at / 4];
        for (int i = 0; i < min(128, left); i++) {
            if ((b[i] & 0x7f) == 0x7f)
                scale = NAN;
        }
        plane[to.to / 4] = scale * 256.0f;
    }
};
extern const cu_type cu_type_f8_e4m3 = packed_type<f8>(MN_F8_E4M3, "f8_e4m3");
extern const cu_type cu_type_f8_e4m3_128 = packed_type<f8>(MN_F8_E4M3_128, "f8_e4m3_128");
