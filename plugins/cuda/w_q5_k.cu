/* w_q5_k.cu -- Q5_K: {f16 d, dmin; u8 scale[12]; u8 high[32]; u8 q[128]}: as Q4_K with a fifth bit,
 * bit i / 32 of high[i % 32]. */
#include "rows.cuh"

struct q5_k {
    enum { BLOCK = 256, BYTES = 176, PLANES = 0 };
    using weight = packed<codes5, scale_k, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        const int byte = 48 + i / 64 * 32 + i % 32;
        const int half = i / 32 % 2;
        const int low = b[byte] >> 4 * half & 15;
        const int high = b[16 + i % 32] >> i / 32 & 1;
        return low | high << 4;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        import_scale_k(b, to);
    }
};
extern const cu_type cu_type_q5_k = packed_type<q5_k>(MN_Q5_K, "q5_k");
