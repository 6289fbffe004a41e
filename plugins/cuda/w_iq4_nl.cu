/* w_iq4_nl.cu -- IQ4_NL: {f16 d; u8 q[16]}, x = d table[q]. */
#include "iq4.cuh"

struct iq4_nl {
    enum { BLOCK = 32, BYTES = 18, PLANES = 0 };
    using weight = packed<codes_table<iq4_table>, scale_f16, 128>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 2, i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        to.keep_half(b);
    }
};
extern const cu_type cu_type_iq4_nl = packed_type<iq4_nl>(MN_IQ4_NL, "iq4_nl");
