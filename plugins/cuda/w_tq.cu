/* w_tq.cu -- TQ1_0: {u8 q[48]; u8 last[4]; f16 d}, digit i of 32 bytes, then of 16, for i < 5, of
 * the last four for i < 4, the first one 256 / 3 times as much; TQ2_0: {u8 q[64]; f16 d}, codes of
 * two bits in the order of Q2_K's. x = d (code - 1); both are kept in two bits, with an f32 for
 * each 128 elements. */
#include "floats.cuh"

using tq_weight = packed<codes2, scale_f32, 1>;

static __device__ void tq_scales(uint16_t d, const group_place &to) {
    float *plane = (float *)to.im.to.at[2];
    if (to.sub % 4 == 0)
        plane[to.to / 4] = half_bits(d);
}

struct tq1_0 {
    enum { BLOCK = 256, BYTES = 54, PLANES = 0 };
    using weight = tq_weight;
    static __device__ int ternary(uint32_t byte, int i) {
        for (; i > 0; i--)
            byte = byte * 3 & 0xff;
        return (int)(byte * 3 >> 8);
    }
    static __device__ int code(const uint8_t *b, int i) {
        if (i < 160)
            return ternary(b[i % 32], i / 32);
        i -= 160;
        if (i < 80)
            return ternary(b[32 + i % 16], i / 16);
        i -= 80;
        return ternary(b[48 + i % 4], i / 4);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        tq_scales(u16_of(b + 52), to);
    }
};
struct tq2_0 {
    enum { BLOCK = 256, BYTES = 66, PLANES = 0 };
    using weight = tq_weight;
    static __device__ int code(const uint8_t *b, int i) {
        const int byte = i / 128 * 32 + i % 32;
        return field_of(b[byte], i / 32 % 4 * 2, 2);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        tq_scales(u16_of(b + 64), to);
    }
};
extern const cu_type cu_type_tq1_0 = packed_type<tq1_0>(MN_TQ1_0, "tq1_0");
extern const cu_type cu_type_tq2_0 = packed_type<tq2_0>(MN_TQ2_0, "tq2_0");
