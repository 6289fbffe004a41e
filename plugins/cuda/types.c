/* types.c -- the table of weight types. A type is a row of a file w_*.cu, and a name here. */
#include "types.h"

/* clang-format off */
#define CU_TYPES(X)                                                                                \
    X(f32)                                                                                         \
    X(f16)                                                                                         \
    X(bf16)                                                                                        \
    X(q4_0)                                                                                        \
    X(q4_1)                                                                                        \
    X(q5_0)                                                                                        \
    X(q5_1)                                                                                        \
    X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) X(iq4_nl) X(iq4_xs) X(mxfp4) X(mxfp4_split)    \
        X(mlx4_32) X(mlx4_64) X(mlx4_128) X(mlx8_32) X(mlx8_64) X(mlx8_128) X(f8_e4m3)             \
        X(f8_e4m3_128) X(f8_e4m3_32) X(f8_e5m2) X(nvfp4) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs)  \
        X(iq3_s) X(iq1_s) X(iq1_m) X(tq1_0) X(tq2_0) X(mlx2_32) X(mlx2_64) X(mlx2_128) X(mlx3_32)  \
        X(mlx3_64) X(mlx3_128) X(mlx5_32) X(mlx5_64) X(mlx5_128) X(mlx6_32) X(mlx6_64)             \
        X(mlx6_128) X(nvfp4_64)
/* clang-format on */

#define DECLARE(name) extern const cu_type cu_type_##name;
CU_TYPES(DECLARE)
#define ROW(name) &cu_type_##name,
static const cu_type *const table[] = {CU_TYPES(ROW)};
enum { N = sizeof table / sizeof *table };

static const cu_type *native(uint32_t dtype) {
    for (int i = 0; i < N; i++) {
        if (table[i]->dtype == dtype)
            return table[i];
    }
    return NULL;
}

const cu_type *cu_type_of(uint32_t dtype) {
    const cu_type *t = native(dtype);
    if (t)
        return t;
    return &cu_type_f32;
}

const cu_type *cu_type_for(uint32_t dtype, int64_t cols) {
    const cu_type *t = cu_type_of(dtype);
    if (cols % t->block)
        return &cu_type_f32;
    return t;
}

void cu_types_init(const cu_card *d) {
    for (int i = 0; i < N; i++)
        table[i]->init(d);
}
