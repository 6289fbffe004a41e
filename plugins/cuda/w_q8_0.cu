/* w_q8_0.cu -- Q8_0: {f16 d; i8 q[32]}, x = d q. Codes are q + 128. */
#include "rows.cuh"

struct q8_0 {
    enum { BLOCK = 32, BYTES = 34, PLANES = 0 };
    using weight = packed<codes8, scale_f16, 128>;
    static __device__ int code(const uint8_t *b, int i) {
        return b[2 + i] ^ 0x80;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_half(b);
    }
};
extern const cu_type cu_type_q8_0 = packed_type<q8_0>(MN_Q8_0, "q8_0");
