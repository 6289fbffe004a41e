/* w_iq1_s.cu -- IQ1_S: {f16 d; u8 q[32]; u16 high[8]}: high of 32 elements: 3 bits for each index,
 * 3 of a scale, one that says `less`; x = d (2 scale + 1) (element - 1 + 1/8), or - 1/8 where
 * less. */
#include "iq.cuh"

/* Per 32 a byte 2 scale + 1, bit 7: less; f16 per 256. The eighths are the minimum. */
struct scale_iq1 : scale_i8_32 {
    enum { HAS_MIN = 1 };
    __device__ __forceinline__ void get(int g, float *s, float *m) const {
        const uint32_t b = v >> 8 * g;
        const float eighth = b & 0x80 ? -0.125f : 0.125f;
        s[0] = __half2float(d) * (float)(b & 15);
        m[0] = s[0] * eighth;
    }
};
static __device__ const uint16_t iq1_s_grid[] = {MN_GRID_IQ1(IQ_ENTRY)};

struct iq1_s {
    enum { BLOCK = 256, BYTES = 50, PLANES = 0 };
    using weight = packed<codes2, scale_iq1, 1>;
    static __device__ int code(const uint8_t *b, int i) {
        const int eight = i / 8;
        const int high = u16_of(b + 34 + i / 32 * 2);
        const int upper = field_of(high, eight % 4 * 3, 3);
        const int low = b[2 + eight];
        const uint32_t entry = iq1_s_grid[low | upper << 8];
        return field_of(entry, i % 8 * 2, 2);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const int high = u16_of(b + 34 + 2 * to.sub);
        const int scale = field_of(high, 12, 3);
        const int less = high >> 15;
        to.keep_byte((2 * scale + 1) | less << 7);
        to.block_half(u16_of(b));
    }
};
extern const cu_type cu_type_iq1_s = packed_type<iq1_s>(MN_IQ1_S, "iq1_s");
