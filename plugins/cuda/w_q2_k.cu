/* w_q2_k.cu -- Q2_K: {u8 scale[16]; u8 q[64]; f16 d, dmin}, groups of 16,
 * x = d (scale & 15) q - dmin (scale >> 4). */
#include "rows.cuh"

struct q2_k {
    enum { BLOCK = 256, BYTES = 84, PLANES = 0 };
    using weight = packed<codes2, scale_q2, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        const int byte = 16 + i / 128 * 32 + i % 32;
        const int part = i / 32 % 4;
        return b[byte] >> 2 * part & 3;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const uint8_t *s = b + 2 * to.sub;
        to.keep_two(s[0], s[1]);
        to.block_word(b + 80);
    }
};
extern const cu_type cu_type_q2_k = packed_type<q2_k>(MN_Q2_K, "q2_k");
