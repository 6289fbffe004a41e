/* w_q4_0.cu -- Q4_0: {f16 d; u8 q[16]}, x = d (q - 8). */
#include "rows.cuh"

struct q4_0 {
    enum { BLOCK = 32, BYTES = 18, PLANES = 0 };
    using weight = packed<codes4, scale_f16, 8>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 2, i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_half(b);
    }
};
extern const cu_type cu_type_q4_0 = packed_type<q4_0>(MN_Q4_0, "q4_0");
