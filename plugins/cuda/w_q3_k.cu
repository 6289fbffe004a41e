/* w_q3_k.cu -- Q3_K: {u8 high[32]; u8 q[64]; u8 scale[12]; f16 d}, groups of 16,
 * x = d (scale - 32) (q - 4), q with its high bit. The 16 scales of 6 bits: low four bits in the
 * first eight bytes, high two in the last four; kept as bytes less 32. */
#include "rows.cuh"

struct q3_k {
    enum { BLOCK = 256, BYTES = 110, PLANES = 0 };
    using weight = packed<codes3, scale_i8_16, 4>;
    static __device__ int code(const uint8_t *b, int i) {
        const int byte = 32 + i / 128 * 32 + i % 32;
        const int part = i / 32 % 4;
        const int low = b[byte] >> 2 * part & 3;
        const int high = b[i % 32] >> i / 32 & 1;
        return low | high << 2;
    }
    static __device__ uint8_t scale_of(const uint8_t *s, int i) {
        const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        const int high = s[8 + i % 4] >> 2 * (i / 4) & 3;
        return (uint8_t)((low | high << 4) - 32);
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        const uint8_t *s = b + 96;
        const int i = 2 * to.sub;
        to.keep_two(scale_of(s, i), scale_of(s, i + 1));
        to.block_half(u16_of(b + 108));
    }
};
extern const cu_type cu_type_q3_k = packed_type<q3_k>(MN_Q3_K, "q3_k");
