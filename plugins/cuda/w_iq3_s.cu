/* w_iq3_s.cu -- IQ3_S: {f16 d; u8 q[64]; u8 high[8]; u8 sign[32]; u8 scale[4]}: high: a bit of each
 * index; scales of 4 bits for 32 elements; x = d (2 scale + 1) * value, and a sign. Kept as IQ3_XXS
 * is (w_iq3_xxs.cu), with a table of its own. */
#include "iq.cuh"

using iq3_s_table = table_of<1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15>;
static __device__ const uint16_t iq3_s_grid[] = {MN_GRID_IQ3_S(IQ_ENTRY)};

struct iq3_s {
    enum { BLOCK = 256, BYTES = 110, PLANES = 0 };
    using weight = packed<codes_table<iq3_s_table>, scale_i8_32, 128>;
    static __device__ int code(const uint8_t *b, int i) {
        const int low = b[2 + i / 4];
        const int high = field_of(b[66 + i / 32], i / 4 % 8, 1);
        const uint32_t entry = iq3_s_grid[low | high << 8];
        const int element = field_of(entry, i % 4 * 4, 3);
        const int sign = field_of(b[74 + i / 8], i % 8, 1);
        return element | sign << 3;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int scale = nibble_at(b + 106, to.sub);
        to.keep_byte(2 * scale + 1);
        to.block_half(u16_of(b));
    }
};
extern const cu_type cu_type_iq3_s = packed_type<iq3_s>(MN_IQ3_S, "iq3_s");
