/* w_iq4_xs.cu -- IQ4_XS: {f16 d; u16 high; u8 low[4]; u8 q[128]}, eight scales of 6 bits, x = d
 * (scale - 32) table[q]; kept as bytes less 32. */
#include "iq4.cuh"

struct iq4_xs {
    enum { BLOCK = 256, BYTES = 136, PLANES = 0 };
    using weight = packed<codes_table<iq4_table>, scale_i8_32, 128>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 8 + 16 * (i / 32), i % 32);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int both = b[4 + to.sub / 2];
        const int low = both >> 4 * (to.sub % 2) & 15;
        const int high = u16_of(b + 2) >> 2 * to.sub & 3;
        to.keep_byte((low | high << 4) - 32);
        to.block_half(u16_of(b));
    }
};
extern const cu_type cu_type_iq4_xs = packed_type<iq4_xs>(MN_IQ4_XS, "iq4_xs");
