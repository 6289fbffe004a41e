/* w_iq1_m.cu -- IQ1_M: {u8 q[32]; u8 high[16]; u16 scale[4]}: high: a nibble for each index, three
 * bits of it and `less`; a scale: 3 bits for each 16 of 64 elements, then a fourth of the f16 d;
 * x = d (2 scale + 1) (element - 1 + 1/8), or - 1/8 where less. `less` is that of eight elements: a
 * code has it as third bit, and the table 8 times the sum. */
#include "iq.cuh"

using iq1_table = table_of<-7, 1, 9, 0, -9, -1, 7, 0>;
static __device__ const uint16_t iq1_m_grid[] = {MN_GRID_IQ1(IQ_ENTRY)};

struct iq1_m {
    enum { BLOCK = 256, BYTES = 56, PLANES = 0 };
    using weight = packed<codes_table3<iq1_table>, scale_under<scale_i8_16, 8>, 128>;
    static __device__ int code(const uint8_t *b, int i) {
        const int high = nibble_at(b + 32, i / 8);
        const int upper = high & 7;
        const int less = high >> 3;
        const uint32_t entry = iq1_m_grid[b[i / 8] | upper << 8];
        return field_of(entry, i % 8 * 2, 2) | less << 2;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int four = u16_of(b + 48 + to.sub / 2 * 2);
        const int at = to.sub % 2 * 6;
        const int first = field_of(four, at, 3);
        const int second = field_of(four, at + 3, 3);
        uint32_t d = 0;
        for (int i = 0; i < 4; i++) {
            const uint32_t nibble = b[49 + 2 * i] >> 4;
            d |= nibble << 4 * i;
        }
        to.keep_two(2 * first + 1, 2 * second + 1);
        to.block_half((uint16_t)d);
    }
};
extern const cu_type cu_type_iq1_m = packed_type<iq1_m>(MN_IQ1_M, "iq1_m");
