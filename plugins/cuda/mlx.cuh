/* mlx.cuh -- MLX's affine groups of 2, 3, 4, 5, 6 and 8 bits: a little-endian stream of codes,
 * SCALE and BIAS in planes of their own, x = scale q + bias. A file w_mlx*.cu has one or several of
 * them; those of one FORM, the elements that share a pair on the device, share kernels. */
#ifndef CU_MLX_CUH
#define CU_MLX_CUH
#include "rows.cuh"

template <int BITS> struct mlx_codes;
template <> struct mlx_codes<2> { using type = codes2; };
template <> struct mlx_codes<3> { using type = codes3; };
template <> struct mlx_codes<4> { using type = codes4; };
template <> struct mlx_codes<5> { using type = codes5; };
template <> struct mlx_codes<6> { using type = codes6; };
template <> struct mlx_codes<8> { using type = codes8; };

template <int BITS, int G, int FORM = G> struct mlx {
    enum { BLOCK = G, BYTES = G * BITS / 8, PLANES = G };
    using codes = typename mlx_codes<BITS>::type;
    using weight = packed<codes, scale_affine<FORM>, 0>;
    /* A code of 3, 5 or 6 bits may have some in the next byte. */
    static __device__ int code(const uint8_t *b, int i) {
        const int at = i * BITS;
        const int first = at % 8;
        uint32_t bits = b[at / 8];
        if (first + BITS > 8)
            bits |= (uint32_t)b[at / 8 + 1] << 8;
        return field_of(bits, first, BITS);
    }
    static __device__ void scales(const uint8_t *, const group_place &to) {
        enum { GROUPS = FORM / 32 };
        const int from = to.at / (G / 32);
        float2 *pairs = (float2 *)to.im.to.at[2];
        if (to.sub % GROUPS == 0)
            pairs[to.to / GROUPS] = make_float2(to.scales()[from], to.biases()[from]);
    }
};
#define MLX_AS(bits, group, form)                                                                  \
    extern const cu_type cu_type_mlx##bits##_##group =                                             \
        packed_type<mlx<bits, group, form>>(MN_MLX##bits##_##group, "mlx" #bits "_" #group)
#define MLX(bits, group) MLX_AS(bits, group, group)
/* Groups of 128 as two of 64: fewer kernels, half a bit more for each element. */
#define MLX_ALL(bits)                                                                              \
    MLX(bits, 32);                                                                                 \
    MLX(bits, 64);                                                                                 \
    MLX_AS(bits, 128, 64)
#endif
