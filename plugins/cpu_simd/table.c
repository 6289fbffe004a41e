/* table.c -- the kernels, most special first; the first row that fits is taken. */
#include "rows.h"

#define LINEAR(type, id, isa, level)                                                                                   \
    { MN_OP_LINEAR, MN_##id, 0, level, &mnk_##type##_##isa, NULL }
#define LINEAR_A8(type, id, isa, level)                                                                                \
    { MN_OP_LINEAR, MN_##id, MN_PRECISION_A8, level, &mnk_##type##_a8_##isa, NULL }
#define FLOATS(isa, level) LINEAR(f32, F32, isa, level), LINEAR(f16, F16, isa, level), LINEAR(bf16, BF16, isa, level)
#define BLOCKS(isa, level) LINEAR(q8_0, Q8_0, isa, level), LINEAR(q4_0, Q4_0, isa, level)
#define BLOCKS_A8(isa, level) LINEAR_A8(q8_0, Q8_0, isa, level), LINEAR_A8(q4_0, Q4_0, isa, level)
#define REST(isa, level)                                                                                               \
    { 0, 0, 0, level, NULL, &mnk_vector_##isa } /* op 0: every other op */

static const mnk_row table[] = {
#if defined(__x86_64__)
    BLOCKS_A8(avx512vnni, MNK_AVX512VNNI),
    BLOCKS_A8(avx2, MNK_AVX2),
    FLOATS(avx512, MNK_AVX512),
    BLOCKS(avx512, MNK_AVX512),
    REST(avx512, MNK_AVX512),
    FLOATS(avx2, MNK_AVX2),
    BLOCKS(avx2, MNK_AVX2),
    REST(avx2, MNK_AVX2),
#elif defined(__aarch64__)
    BLOCKS_A8(neon_dot, MNK_NEON_DOT),
    BLOCKS_A8(neon, MNK_NEON),
    FLOATS(neon, MNK_NEON),
    BLOCKS(neon, MNK_NEON),
    REST(neon, MNK_NEON),
#endif
    BLOCKS_A8(generic, MNK_GENERIC),
    FLOATS(generic, MNK_GENERIC),
    BLOCKS(generic, MNK_GENERIC),
    REST(generic, MNK_GENERIC),
};

const mnk_row *mnk_rows(uint32_t *n) {
    *n = sizeof table / sizeof *table;
    return table;
}

const mnk_row *mnk_find(uint32_t op, uint32_t dtype, uint32_t precision, int32_t level) {
    for (uint32_t i = 0; i < sizeof table / sizeof *table; i++) {
        const mnk_row *r = &table[i];
        if (r->op ? r->op != op || r->dtype != dtype : op == MN_OP_LINEAR) continue;
        if (r->precision && r->precision != precision) continue;
        if (r->isa <= level && (r->isa == MNK_GENERIC || r->isa >= MNK_NEON || level < MNK_NEON)) return r;
    }
    return NULL;
}
