/* w_iq3_xxs.cu -- IQ3_XXS: {f16 d; u8 q[64]; u32 s[8]}: s of 32 elements: four times seven signs, a
 * scale of 4 bits; x = d (2 scale + 1) / 4 * value, and a sign. The table has values / 2; scales
 * are kept as bytes 2 scale + 1. A code is an element of the codebook, the sign its fourth bit. */
#include "iq.cuh"

using iq3_xxs_table = table_of<2, 6, 10, 14, 18, 22, 26, 31, -2, -6, -10, -14, -18, -22, -26, -31>;
static __device__ const uint16_t iq3_xxs_grid[] = {MN_GRID_IQ3_XXS(IQ_ENTRY)};

struct iq3_xxs {
    enum { BLOCK = 256, BYTES = 98, PLANES = 0 };
    using weight = packed<codes_table<iq3_xxs_table>, scale_under<scale_i8_32, 2>, 128>;
    static __device__ int code(const uint8_t *b, int i) {
        const int eight = i / 8 % 4;
        const int index = b[2 + i / 4];
        const uint32_t s = u32_of(b + 66 + i / 32 * 4);
        const uint32_t signs = with_eighth_sign(s >> 7 * eight);
        const int element = field_of(iq3_xxs_grid[index], i % 4 * 4, 3);
        const int sign = field_of(signs, i % 8, 1);
        return element | sign << 3;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int scale = b[69 + 4 * to.sub] >> 4;
        to.keep_byte(2 * scale + 1);
        to.block_half(u16_of(b));
    }
};
extern const cu_type cu_type_iq3_xxs = packed_type<iq3_xxs>(MN_IQ3_XXS, "iq3_xxs");
