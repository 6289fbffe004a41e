/* w_iq2.cu -- IQ2_XXS, IQ2_XS and IQ2_S: x = d (2 scale + 1) / 8 * (8, 25 or 43), and a sign.
 *   IQ2_XXS  {f16 d; {u8 q[4]; u32 s} [8]}: s of 32 elements: four times seven signs, a scale
 *   IQ2_XS   {f16 d; u16 q[32]; u8 scale[8]}: q: 9 bits of an index, seven signs
 *   IQ2_S    {f16 d; u8 q[32]; u8 sign[32]; u8 high[8]; u8 scale[8]}: high: two bits of each index
 * Scales of 4 bits, in XXS of 32 elements, else of 16; kept as bytes 2 scale + 1 of 16. A code is
 * an element of the codebook, and the sign as third bit. */
#include "iq.cuh"

using iq2_table = table_of<8, 25, 43, 0, -8, -25, -43, 0>;
using iq2_weight = packed<codes_table3<iq2_table>, scale_under<scale_i8_16, 8>, 128>;

static __device__ const uint16_t iq2_xxs_grid[] = {MN_GRID_IQ2_XXS(IQ_ENTRY)};
static __device__ const uint16_t iq2_xs_grid[] = {MN_GRID_IQ2_XS(IQ_ENTRY)};
static __device__ const uint16_t iq2_s_grid[] = {MN_GRID_IQ2_S(IQ_ENTRY)};

static __device__ int iq2_code(uint32_t entry, uint32_t signs, int i) {
    const int at = i % 8;
    const int element = field_of(entry, 2 * at, 2);
    const int sign = field_of(signs, at, 1);
    return element | sign << 2;
}
static __device__ void iq2_scales(const uint8_t *b, int first, int second, const group_place &to) {
    first &= 15;
    to.keep_two(2 * first + 1, 2 * second + 1);
    to.block_half(u16_of(b));
}

struct iq2_xxs {
    enum { BLOCK = 256, BYTES = 66, PLANES = 0 };
    using weight = iq2_weight;
    static __device__ int code(const uint8_t *b, int i) {
        const int eight = i / 8 % 4;
        const uint8_t *q = b + 2 + i / 32 * 8;
        const uint32_t s = u32_of(q + 4);
        const uint32_t entry = iq2_xxs_grid[q[eight]];
        return iq2_code(entry, with_eighth_sign(s >> 7 * eight), i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int scale = b[9 + 8 * to.sub] >> 4;
        iq2_scales(b, scale, scale, to);
    }
};
struct iq2_xs {
    enum { BLOCK = 256, BYTES = 74, PLANES = 0 };
    using weight = iq2_weight;
    static __device__ int code(const uint8_t *b, int i) {
        const uint8_t *at = b + 2 + i / 8 * 2;
        const uint32_t q = u16_of(at);
        const uint32_t entry = iq2_xs_grid[q & 511];
        return iq2_code(entry, with_eighth_sign(q >> 9), i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int both = b[66 + to.sub];
        iq2_scales(b, both, both >> 4, to);
    }
};
struct iq2_s {
    enum { BLOCK = 256, BYTES = 82, PLANES = 0 };
    using weight = iq2_weight;
    static __device__ int code(const uint8_t *b, int i) {
        const int eight = i / 8;
        const int high = field_of(b[66 + eight / 4], eight % 4 * 2, 2);
        const int low = b[2 + eight];
        const uint32_t entry = iq2_s_grid[low | high << 8];
        return iq2_code(entry, b[34 + eight], i);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int both = b[74 + to.sub];
        iq2_scales(b, both, both >> 4, to);
    }
};
extern const cu_type cu_type_iq2_xxs = packed_type<iq2_xxs>(MN_IQ2_XXS, "iq2_xxs");
extern const cu_type cu_type_iq2_xs = packed_type<iq2_xs>(MN_IQ2_XS, "iq2_xs");
extern const cu_type cu_type_iq2_s = packed_type<iq2_s>(MN_IQ2_S, "iq2_s");
