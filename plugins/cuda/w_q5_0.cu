/* w_q5_0.cu -- Q5_0: {f16 d; u32 high; u8 q[16]}, x = d (q - 16). */
#include "rows.cuh"

struct q5_0 {
    enum { BLOCK = 32, BYTES = 22, PLANES = 0 };
    using weight = packed<codes5, scale_f16, 16>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 6, i) | fifth_of(b + 2, i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_half(b);
    }
};
extern const cu_type cu_type_q5_0 = packed_type<q5_0>(MN_Q5_0, "q5_0");
