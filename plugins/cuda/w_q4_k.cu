/* w_q4_k.cu -- Q4_K: {f16 d, dmin; u8 scale[12]; u8 q[128]}, eight groups of 32, two to 32 bytes,
 * x = d scale q - dmin min. */
#include "rows.cuh"

struct q4_k {
    enum { BLOCK = 256, BYTES = 144, PLANES = 0 };
    using weight = packed<codes4, scale_k, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        const int byte = 16 + i / 64 * 32 + i % 32;
        const int half = i / 32 % 2;
        return b[byte] >> 4 * half & 15;
    }
    static __device__ void scales(const uint8_t *b, const group_place &to) {
        import_scale_k(b, to);
    }
};
extern const cu_type cu_type_q4_k = packed_type<q4_k>(MN_Q4_K, "q4_k");
