/* types.h -- the weight types as data. A kernel serves one way of storing; several types may share
 * it.
 *
 * A block kernel sees a row as blocks of E elements in B bytes. It takes 32 elements at a time as
 * unsigned bytes u, with a scale d, and maybe a minimum m, for each group of G elements: x = d * (u
 * - OFF) + m. That serves f32 and 8-bit products alike. X(kernel, E, B, G, OFF, MIN, APART, TOP,
 * ...): OFF is 128 where u needs all eight bits, smaller where seven are enough; MIN: has m; APART:
 * scales lie in planes of their own, so that eight blocks may be taken at once; TOP: the largest u.
 * types_*.h have for each kernel, E being constant after inlining:
 *   KERNEL_scales(w, at, b, d, m)   of block b: d[E/G], m[E/G], room for 16
 *   KERNEL_bytes(p, j)              elements [32j, 32j + 32) of the block at p
 * and for those APART, whose blocks have 32 elements, where the vocabulary has V_SCALES8:
 *   KERNEL_scales8(w, at, b, d, m)  of blocks [8b, 8b + 8); KERNEL_bytes may then go on to j = 7 */
#ifndef MNK_TYPES_H
#define MNK_TYPES_H
/* clang-format off */
#define MNK_PLAIN_KERNELS(X, ...)                                                                  \
    X(f32, __VA_ARGS__)         X(f16, __VA_ARGS__)      X(bf16, __VA_ARGS__)                      \
    X(f8_e5m2, __VA_ARGS__)     X(f8_e4m3, __VA_ARGS__)  X(f8_e4m3_128, __VA_ARGS__)            \
    X(f8_e4m3_32, __VA_ARGS__)  X(nf4_64, __VA_ARGS__)   X(fp4_64, __VA_ARGS__)                   \
    X(pick4_32, __VA_ARGS__)    X(pick8_32, __VA_ARGS__)
#define MNK_BLOCKS(X, ...)                                                                         \
    /* kernel      E    B   G  OFF MIN APART TOP */                                                \
    X(q4_0,        32,  18, 32,   8, 0, 0,  15, __VA_ARGS__)                                       \
    X(q4_1,        32,  20, 32,   0, 1, 0,  15, __VA_ARGS__)                                       \
    X(q5_0,        32,  22, 32,  16, 0, 0,  31, __VA_ARGS__)                                       \
    X(q5_1,        32,  24, 32,   0, 1, 0,  31, __VA_ARGS__)                                       \
    X(q8_0,        32,  34, 32, 128, 0, 0, 255, __VA_ARGS__)                                       \
    X(q8_1,        32,  36, 32, 128, 0, 0, 255, __VA_ARGS__)                                       \
    X(iq4_nl,      32,  18, 32, 128, 0, 0, 241, __VA_ARGS__)                                       \
    X(mxfp4,       32,  17, 32,  12, 0, 0,  24, __VA_ARGS__)                                       \
    X(q1_0,       128,  18, 32,   1, 0, 0,   2, __VA_ARGS__)                                       \
    X(q2_0,        64,  18, 32,   1, 0, 0,   3, __VA_ARGS__)                                       \
    X(nvfp4_64,    64,  36, 16,  12, 0, 0,  24, __VA_ARGS__)                                       \
    X(q2_k,       256,  84, 16,   0, 1, 0,   3, __VA_ARGS__)                                       \
    X(q3_k,       256, 110, 16,   4, 0, 0,   7, __VA_ARGS__)                                       \
    X(q4_k,       256, 144, 32,   0, 1, 0,  15, __VA_ARGS__)                                       \
    X(q5_k,       256, 176, 32,   0, 1, 0,  31, __VA_ARGS__)                                       \
    X(q6_k,       256, 210, 16,  32, 0, 0,  63, __VA_ARGS__)                                       \
    X(q8_k,       256, 292, 32, 128, 0, 0, 255, __VA_ARGS__)                                       \
    X(iq4_xs,     256, 136, 32, 128, 0, 0, 241, __VA_ARGS__)                                       \
    X(iq1_s,      256,  50, 32,   9, 0, 0,  18, __VA_ARGS__)                                       \
    X(iq1_m,      256,  56, 16,   9, 0, 0,  18, __VA_ARGS__)                                       \
    X(iq2_xxs,    256,  66, 32,  43, 0, 0,  86, __VA_ARGS__)                                       \
    X(iq2_xs,     256,  74, 16,  43, 0, 0,  86, __VA_ARGS__)                                       \
    X(iq2_s,      256,  82, 16,  43, 0, 0,  86, __VA_ARGS__)                                       \
    X(iq3_xxs,    256,  98, 32,  62, 0, 0, 124, __VA_ARGS__)                                       \
    X(iq3_s,      256, 110, 32,  15, 0, 0,  30, __VA_ARGS__)                                       \
    X(tq1_0,      256,  54, 32,   1, 0, 0,   2, __VA_ARGS__)                                       \
    X(tq2_0,      256,  66, 32,   1, 0, 0,   3, __VA_ARGS__)                                       \
    X(mxfp4_split,  32,  16, 32,  12, 0, 1,  24, __VA_ARGS__)                                      \
    X(nvfp4,       32,  16, 16,  12, 0, 1,  24, __VA_ARGS__)                                       \
    X(mlx2,        32,   8, 32,   0, 1, 1,   3, __VA_ARGS__)                                       \
    X(mlx3,        32,  12, 32,   0, 1, 1,   7, __VA_ARGS__)                                       \
    X(mlx4,        32,  16, 32,   0, 1, 1,  15, __VA_ARGS__)                                       \
    X(mlx5,        32,  20, 32,   0, 1, 1,  31, __VA_ARGS__)                                       \
    X(mlx6,        32,  24, 32,   0, 1, 1,  63, __VA_ARGS__)                                       \
    X(mlx8,        32,  32, 32, 128, 1, 1, 255, __VA_ARGS__)
#define MNK_NAME_ONLY_(kernel, e, b, g, off, min, apart, top, X, ...) X(kernel, __VA_ARGS__)
#define MNK_BLOCK_KERNELS(X, ...) MNK_BLOCKS(MNK_NAME_ONLY_, X, __VA_ARGS__)

/* Which kernel serves a dtype. */
#define MNK_PLAIN_TYPES(X, ...)                                                                    \
    X(F32, f32, __VA_ARGS__)                 X(F16, f16, __VA_ARGS__)                              \
    X(BF16, bf16, __VA_ARGS__)               X(F8_E5M2, f8_e5m2, __VA_ARGS__)                      \
    X(F8_E4M3, f8_e4m3, __VA_ARGS__)         X(F8_E4M3_128, f8_e4m3_128, __VA_ARGS__)       \
    X(F8_E4M3_32, f8_e4m3_32, __VA_ARGS__)   X(NF4_64, nf4_64, __VA_ARGS__)               \
    X(FP4_64, fp4_64, __VA_ARGS__)                                                                 \
    X(PICK4_32, pick4_32, __VA_ARGS__)       X(PICK8_32, pick8_32, __VA_ARGS__)
#define MNK_BLOCK_TYPES(X, ...)                                                                    \
    X(Q4_0, q4_0, __VA_ARGS__)                  X(Q4_1, q4_1, __VA_ARGS__)                         \
    X(Q5_0, q5_0, __VA_ARGS__)                  X(Q5_1, q5_1, __VA_ARGS__)                         \
    X(Q8_0, q8_0, __VA_ARGS__)                  X(Q8_1, q8_1, __VA_ARGS__)                         \
    X(IQ4_NL, iq4_nl, __VA_ARGS__)              X(MXFP4, mxfp4, __VA_ARGS__)                       \
    X(Q2_K, q2_k, __VA_ARGS__)                  X(Q3_K, q3_k, __VA_ARGS__)                         \
    X(Q4_K, q4_k, __VA_ARGS__)                  X(Q5_K, q5_k, __VA_ARGS__)                         \
    X(Q6_K, q6_k, __VA_ARGS__)                  X(Q8_K, q8_k, __VA_ARGS__)                         \
    X(IQ4_XS, iq4_xs, __VA_ARGS__)              X(MXFP4_SPLIT, mxfp4_split, __VA_ARGS__)           \
    X(IQ1_S, iq1_s, __VA_ARGS__)                X(IQ1_M, iq1_m, __VA_ARGS__)                       \
    X(IQ2_XXS, iq2_xxs, __VA_ARGS__)            X(IQ2_XS, iq2_xs, __VA_ARGS__)                     \
    X(IQ2_S, iq2_s, __VA_ARGS__)                X(IQ3_XXS, iq3_xxs, __VA_ARGS__)                   \
    X(IQ3_S, iq3_s, __VA_ARGS__)                X(TQ1_0, tq1_0, __VA_ARGS__)                       \
    X(TQ2_0, tq2_0, __VA_ARGS__)                                                                   \
    X(NVFP4, nvfp4, __VA_ARGS__)                X(NVFP4_64, nvfp4_64, __VA_ARGS__)                 \
    X(Q1_0, q1_0, __VA_ARGS__)                  X(Q2_0, q2_0, __VA_ARGS__)                         \
    X(MLX2_32, mlx2, __VA_ARGS__)  X(MLX2_64, mlx2, __VA_ARGS__)  X(MLX2_128, mlx2, __VA_ARGS__)   \
    X(MLX3_32, mlx3, __VA_ARGS__)  X(MLX3_64, mlx3, __VA_ARGS__)  X(MLX3_128, mlx3, __VA_ARGS__)   \
    X(MLX4_32, mlx4, __VA_ARGS__)  X(MLX4_64, mlx4, __VA_ARGS__)  X(MLX4_128, mlx4, __VA_ARGS__)   \
    X(MLX5_32, mlx5, __VA_ARGS__)  X(MLX5_64, mlx5, __VA_ARGS__)  X(MLX5_128, mlx5, __VA_ARGS__)   \
    X(MLX6_32, mlx6, __VA_ARGS__)  X(MLX6_64, mlx6, __VA_ARGS__)  X(MLX6_128, mlx6, __VA_ARGS__)   \
    X(MLX8_32, mlx8, __VA_ARGS__)  X(MLX8_64, mlx8, __VA_ARGS__)  X(MLX8_128, mlx8, __VA_ARGS__)
/* clang-format on */
#endif
