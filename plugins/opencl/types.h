/* types.h -- the tables of the compiled side: sources, weight types, kernels. A weight type is a
 * file kernels/w_*.cl that unpacks 16 elements of a row, and a row of OCL_TYPES; a type that is not
 * in the table is kept as f32, unpacked on the host by dtype/. A kernel is a row of OCL_KERNELS. */
#ifndef OCL_TYPES_H
#define OCL_TYPES_H
#include "opencl.h"

/* Every file kernels/NAME.cl (args: args.h) as text, embedded at build time. */
#define OCL_TEXTS(X)                                                                               \
    X(args)                                                                                        \
    X(common) X(weight) X(row) X(w_float) X(w_q32) X(w_k) X(w_planes) X(w_iq) OCL_SOURCES(X)
/* Those that have kernels. */
#define OCL_SOURCES(X)                                                                             \
    X(self_test)                                                                                   \
    X(rows)                                                                                        \
    X(embed)                                                                                       \
    X(linear)                                                                                      \
    X(warps)                                                                                       \
    X(mma)                                                                                         \
    X(pieces) X(mad) X(cache) X(cache_split) X(distance) X(moe) X(sample) X(step) X(state) X(lora)

#define OCL_TEXT_(name) extern const char ocl_text_##name[];
OCL_TEXTS(OCL_TEXT_)
#define OCL_SOURCE_(name) OCL_SOURCE_##name,
enum { OCL_SOURCES(OCL_SOURCE_) OCL_N_SOURCES };

/* clang-format off */
/* X(DTYPE, name, file, options, head); head: bytes of a block's scale, which stand in front of its
 * codes in a file and in a plane of their own on the device; 0: rows are as stored */
#define OCL_TYPES(X)                                                                               \
    X(F32, f32, w_float, " -DHAS_WORDS", 0)                                                        \
    X(F16, f16, w_float, " -DHAS_WORDS -DHAS_FRAGMENTS", 0)                                        \
    X(BF16, bf16, w_float, " -DHAS_WORDS", 0)                                                      \
    X(Q4_0, q4_0, w_q32, " -DHEAD=2 -DHAS_WORDS -DHAS_FRAGMENTS", 2) X(Q4_1, q4_1, w_q32, "", 0)   \
    X(Q5_0, q5_0, w_q32, "", 0) X(Q5_1, q5_1, w_q32, "", 0)                                        \
    X(Q8_0, q8_0, w_q32, " -DHEAD=2 -DHAS_WORDS -DHAS_FRAGMENTS", 2)                               \
    X(IQ4_NL, iq4_nl, w_q32, " -DHEAD=2", 2)                                                       \
    X(MXFP4, mxfp4, w_q32, " -DHEAD=1 -DHAS_WORDS -DHAS_FRAGMENTS", 1) X(Q2_K, q2_k, w_k, "", 0)   \
    X(Q3_K, q3_k, w_k, "", 0) X(Q4_K, q4_k, w_k, " -DHAS_WORDS -DHAS_FRAGMENTS", 0)                \
    X(Q5_K, q5_k, w_k, "", 0) X(Q6_K, q6_k, w_k, "", 0) X(IQ4_XS, iq4_xs, w_k, "", 0)              \
    X(MXFP4_SPLIT, mxfp4_split, w_planes, "", 0)                                                   \
    X(MLX2_32, mlx2_32, w_planes, " -DBITS=2 -DGROUP=32", 0)                                       \
    X(MLX2_64, mlx2_64, w_planes, " -DBITS=2 -DGROUP=64", 0)                                       \
    X(MLX2_128, mlx2_128, w_planes, " -DBITS=2 -DGROUP=128", 0)                                    \
    X(MLX3_32, mlx3_32, w_planes, " -DBITS=3 -DGROUP=32", 0)                                       \
    X(MLX3_64, mlx3_64, w_planes, " -DBITS=3 -DGROUP=64", 0)                                       \
    X(MLX3_128, mlx3_128, w_planes, " -DBITS=3 -DGROUP=128", 0)                                    \
    X(MLX4_32, mlx4_32, w_planes, " -DBITS=4 -DGROUP=32", 0)                                       \
    X(MLX4_64, mlx4_64, w_planes, " -DBITS=4 -DGROUP=64", 0)                                       \
    X(MLX4_128, mlx4_128, w_planes, " -DBITS=4 -DGROUP=128", 0)                                    \
    X(MLX5_32, mlx5_32, w_planes, " -DBITS=5 -DGROUP=32", 0)                                       \
    X(MLX5_64, mlx5_64, w_planes, " -DBITS=5 -DGROUP=64", 0)                                       \
    X(MLX5_128, mlx5_128, w_planes, " -DBITS=5 -DGROUP=128", 0)                                    \
    X(MLX6_32, mlx6_32, w_planes, " -DBITS=6 -DGROUP=32", 0)                                       \
    X(MLX6_64, mlx6_64, w_planes, " -DBITS=6 -DGROUP=64", 0)                                       \
    X(MLX6_128, mlx6_128, w_planes, " -DBITS=6 -DGROUP=128", 0)                                    \
    X(MLX8_32, mlx8_32, w_planes, " -DBITS=8 -DGROUP=32", 0)                                       \
    X(MLX8_64, mlx8_64, w_planes, " -DBITS=8 -DGROUP=64", 0)                                       \
    X(MLX8_128, mlx8_128, w_planes, " -DBITS=8 -DGROUP=128", 0)                                    \
    X(IQ1_S, iq1_s, w_iq, " -DGRID=MN_GRID_IQ1", 0) X(IQ1_M, iq1_m, w_iq, " -DGRID=MN_GRID_IQ1", 0)\
    X(IQ2_XXS, iq2_xxs, w_iq, " -DGRID=MN_GRID_IQ2_XXS", 0)                                        \
    X(IQ2_XS, iq2_xs, w_iq, " -DGRID=MN_GRID_IQ2_XS", 0)                                           \
    X(IQ2_S, iq2_s, w_iq, " -DGRID=MN_GRID_IQ2_S", 0)                                              \
    X(IQ3_XXS, iq3_xxs, w_iq, " -DGRID=MN_GRID_IQ3_XXS", 0)                                        \
    X(IQ3_S, iq3_s, w_iq, " -DGRID=MN_GRID_IQ3_S", 0)                                              \
    X(TQ1_0, tq1_0, w_iq, " -DGRID=NO_GRID", 0) X(TQ2_0, tq2_0, w_iq, " -DGRID=NO_GRID", 0)
/* clang-format on */

struct mng_type {
    uint32_t dtype;
    uint32_t index; /* of its row */
    const char *name;
    const char *text;    /* of its file */
    const char *options; /* of the compiler, beside -DTYPE=name */
    uint32_t head;       /* as above */
};
#define OCL_ONE_(DTYPE, name, file, options, head) OCL_TYPE_##name,
enum { OCL_TYPES(OCL_ONE_) OCL_N_TYPES, OCL_NO_TYPE = OCL_N_TYPES };
/* The row of a type, that of f32 where it has none; never NULL. */
const mng_type *ocl_type_of(uint32_t dtype);
const mng_type *ocl_type_at(uint32_t index); /* NULL: OCL_NO_TYPE */
/* Whether halves hold the codes of the type, for products of few rows on tensor cores. */
bool ocl_has_halves(const mng_type *type);

/* X(kernel, source, typed). Those of cache_split are those of cache, in the same order. */
#define OCL_KERNELS(X)                                                                             \
    X(rms_norm, rows, false)                                                                       \
    X(layer_norm, rows, false)                                                                     \
    X(elementwise, rows, false)                                                                    \
    X(gather_rows, rows, false)                                                                    \
    X(copy_view, rows, false)                                                                      \
    X(rope, rows, false)                                                                           \
    X(embed_state, embed, false)                                                                   \
    X(lookup_ids, embed, false)                                                                    \
    X(embed_rows, embed, true)                                                                     \
    X(linear_one, linear, true)                                                                    \
    X(linear_few, linear, true)                                                                    \
    X(linear_experts, linear, true)                                                                \
    X(linear_warp, warps, true)                                                                    \
    X(linear_mma_few, mma, true)                                                                   \
    X(linear_mma, mma, true)                                                                       \
    X(linear_pieces, pieces, true)                                                                 \
    X(linear_mad, mad, true)                                                                       \
    X(rope_store, cache, false)                                                                    \
    X(attend_64, cache, false)                                                                     \
    X(attend_128, cache, false)                                                                    \
    X(attend_512, cache, false)                                                                    \
    X(attend_576, cache, false)                                                                    \
    X(attend_64x4, cache, false)                                                                   \
    X(attend_128x4, cache, false)                                                                  \
    X(kv_store, cache, false)                                                                      \
    X(attend, cache, false)                                                                        \
    X(rope_store_split, cache_split, false)                                                        \
    X(attend_64_split, cache_split, false)                                                         \
    X(attend_128_split, cache_split, false)                                                        \
    X(attend_512_split, cache_split, false)                                                        \
    X(attend_576_split, cache_split, false)                                                        \
    X(attend_64x4_split, cache_split, false)                                                       \
    X(attend_128x4_split, cache_split, false)                                                      \
    X(kv_store_split, cache_split, false)                                                          \
    X(attend_split, cache_split, false)                                                            \
    X(attend_distance, distance, false)                                                            \
    X(moe_route, moe, false)                                                                       \
    X(moe_combine, moe, false)                                                                     \
    X(moe_combine_part, moe, false)                                                                \
    X(sample, sample, false)                                                                       \
    X(conv_state, state, false)                                                                    \
    X(scan_state, state, false)                                                                    \
    X(lora_shrink, lora, false)                                                                    \
    X(lora_expand, lora, false)
typedef struct {
    const char *name;
    uint32_t source;
    bool typed;
} ocl_kernel;
#define OCL_KERNEL_(name, source, typed) OCL_KERNEL_##name,
enum {
    OCL_KERNELS(OCL_KERNEL_) OCL_N_KERNELS,
    OCL_TO_SPLIT = OCL_KERNEL_rope_store_split - OCL_KERNEL_rope_store
};
extern const ocl_kernel ocl_kernels[OCL_N_KERNELS];

#endif
