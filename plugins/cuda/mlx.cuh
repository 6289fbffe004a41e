/* mlx.cuh -- MLX's affine groups of 4 and 8 bits: a stream of codes, SCALE and BIAS in planes of
 * their own, x = scale q + bias. A file w_mlx*.cu is one of them. */
#ifndef CU_MLX_CUH
#define CU_MLX_CUH
#include "rows.cuh"

template <int BITS, int G> struct mlx {
    enum { BLOCK = G, BYTES = G * BITS / 8, PLANES = 1 };
    using codes = std::conditional_t<BITS == 4, codes4, codes8>;
    using weight = packed<codes, scale_affine<G>, 0>;
    static __device__ int code(const uint8_t *b, int i) {
        if (BITS == 4)
            return b[i / 2] >> 4 * (i % 2) & 15;
        return b[i];
    }
    static __device__ void scales(const uint8_t *, int sub, const cu_import &im, int64_t row,
                                  int at, int64_t to) {
        const int64_t from = row * im.blocks + at / (G / 32);
        float2 *pairs = (float2 *)im.to.at[2];
        if (!sub)
            pairs[to / (G / 32)] = make_float2(im.scale[from], im.bias[from]);
    }
};
#define MLX(bits, group)                                                                           \
    extern const cu_type cu_type_mlx##bits##_##group =                                             \
        packed_type<mlx<bits, group>>(MN_MLX##bits##_##group, "mlx" #bits "_" #group)
#endif
