/* w_q4_1.cu -- Q4_1: {f16 d, m; u8 q[16]}, x = d q + m. */
#include "rows.cuh"

struct q4_1 {
    enum { BLOCK = 32, BYTES = 20, PLANES = 0 };
    using weight = packed<codes4, scale_min_f16, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 4, i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_word(b);
    }
};
extern const cu_type cu_type_q4_1 = packed_type<q4_1>(MN_Q4_1, "q4_1");
