/* w_q6_k.cu -- Q6_K: {u8 low[128]; u8 high[64]; i8 scale[16]; f16 d}, groups of 16,
 * x = d scale (q - 32); of 128 elements the first 64 are low nibbles. */
#include "rows.cuh"

struct q6_k {
    enum { BLOCK = 256, BYTES = 210, PLANES = 0 };
    using weight = packed<codes6, scale_i8_16, 32>;
    static __device__ int code(const uint8_t *b, int i) {
        const int at = i % 128;
        const uint8_t *lows = b + i / 128 * 64;
        const uint8_t *highs = b + 128 + i / 128 * 32;
        const int low = lows[at % 64] >> 4 * (at / 64) & 15;
        const int high = highs[at % 32] >> 2 * (at / 32) & 3;
        return low | high << 4;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const uint8_t *s = b + 192 + 2 * to.sub;
        to.keep_two(s[0], s[1]);
        to.block_half(u16_of(b + 208));
    }
};
extern const cu_type cu_type_q6_k = packed_type<q6_k>(MN_Q6_K, "q6_k");
