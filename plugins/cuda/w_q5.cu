/* w_q5.cu -- Q5_0: {f16 d; u32 high; u8 q[16]}, x = d (q - 16); Q5_1: {f16 d, m; u32 high;
 * u8 q[16]}, x = d q + m. */
#include "rows.cuh"

static __device__ int fifth_of(const uint8_t *high, int i) {
    return (high[i / 8] >> i % 8 & 1) << 4;
}

struct q5_0 {
    enum { BLOCK = 32, BYTES = 22, PLANES = 0 };
    using weight = packed<codes5, scale_f16, 16>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 6, i) | fifth_of(b + 2, i);
    }
    static __device__ void scales(const uint8_t *b, int, const cu_import &im, int64_t, int,
                                  int64_t to) {
        ((uint16_t *)im.to.at[2])[to] = u16_of(b);
    }
};
struct q5_1 {
    enum { BLOCK = 32, BYTES = 24, PLANES = 0 };
    using weight = packed<codes5, scale_min_f16, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        return nibble_of(b + 8, i) | fifth_of(b + 4, i);
    }
    static __device__ void scales(const uint8_t *b, int, const cu_import &im, int64_t, int,
                                  int64_t to) {
        ((uint32_t *)im.to.at[2])[to] = u32_of(b);
    }
};
extern const cu_type cu_type_q5_0 = packed_type<q5_0>(MN_Q5_0, "q5_0");
extern const cu_type cu_type_q5_1 = packed_type<q5_1>(MN_Q5_1, "q5_1");
