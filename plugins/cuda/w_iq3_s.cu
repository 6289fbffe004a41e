/* w_iq3_s.cu -- IQ3_S: {f16 d; u8 q[64]; u8 high[8]; u8 sign[32]; u8 scale[4]}: high: a bit of each
 * index; scales of 4 bits for 32 elements; x = d (2 scale + 1) * value, and a sign. Values are
 * 2 e + 1 of the elements e of the codebook, so that one with its sign is 2 c - 15 of a code c:
 * 8 + e, or 7 - e where it is negative. */
#include "iq.cuh"

/* Nibbles that count twice. */
struct codes_doubled : codes4 {
    __device__ __forceinline__ void halves(int g, uint32_t *r) const {
        const uint32_t q = word_of(low, g);
        r[0] = and_or<0x001e001eu, 0x64006400u>(q << 1);
        r[1] = and_or<0x01e001e0u, 0x64006400u>(q << 1);
        r[2] = and_or<0x001e001eu, 0x64006400u>(q >> 7);
        r[3] = and_or<0x01e001e0u, 0x64006400u>(q >> 7);
    }
};
static __device__ const uint16_t iq3_s_grid[] = {MN_GRID_IQ3_S(IQ_ENTRY)};

struct iq3_s {
    enum { BLOCK = 256, BYTES = 110, PLANES = 0 };
    using weight = packed<codes_doubled, scale_i8_32, 15>;
    static __device__ int code(const uint8_t *b, int i) {
        const int low = b[2 + i / 4];
        const int high = field_of(b[66 + i / 32], i / 4 % 8, 1);
        const uint32_t entry = iq3_s_grid[low | high << 8];
        const int element = field_of(entry, i % 4 * 4, 3);
        const int sign = field_of(b[74 + i / 8], i % 8, 1);
        if (sign)
            return 7 - element;
        return 8 + element;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int scale = nibble_at(b + 106, to.sub);
        to.keep_byte(2 * scale + 1);
        to.block_half(u16_of(b));
    }
};
extern const cu_type cu_type_iq3_s = packed_type<iq3_s>(MN_IQ3_S, "iq3_s");
