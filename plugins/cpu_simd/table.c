/* table.c -- the kernels, most special first; the first that fits is taken. */
#include "lanes.h"

#define LINEAR(id, kernel, isa) [MN_##id] = &mnk_##kernel##_##isa,
#define LINEAR_A8(id, kernel, isa) [MN_##id] = &mnk_##kernel##_a8_##isa,
#define A8_FROM(isa, level, least)                                                                 \
    {                                                                                              \
        level, MN_PRECISION_A8, least, 0, NULL, {                                                  \
            MNK_BLOCK_TYPES(LINEAR_A8, isa)                                                        \
        }                                                                                          \
    }
#define A8(isa, level) A8_FROM(isa, level, 0)
/* One row each for up to MNK_FEW_ROWS x rows; more through panels of bytes. */
#define A8_PANELS(isa, level) A8_FROM(panels_##isa, level, MNK_FEW_ROWS + 1), A8(isa, level)
#define F32(isa, level)                                                                            \
    {                                                                                              \
        level, 0, 0, 0, &mnk_vector_##isa, {                                                       \
            MNK_PLAIN_TYPES(LINEAR, isa) MNK_BLOCK_TYPES(LINEAR, isa)                              \
        }                                                                                          \
    }

/* Tiles: weights of 16 bits as bf16, in class a8 types of blocks in bytes. A tile of x costs as
 * much for one row as for 16: below these numbers of rows VNNI is faster, or each row alone. */
enum { TILES_A8 = 8, TILES_A8_VNNI = 32, TILES_A16 = MNK_FEW_ROWS + 1 };
#define AMX(precision, least, ...)                                                                 \
    {                                                                                              \
        MNK_AMX, precision, least, 0, NULL, {                                                      \
            LINEAR(F16, f16, amx) LINEAR(BF16, bf16, amx) __VA_ARGS__                              \
        }                                                                                          \
    }

/* The same for weights of bf16 by bfmmla; fewer rows are products in f32. */
#define BFMMLA(precision)                                                                          \
    {                                                                                              \
        MNK_NEON_BF16, precision, MNK_FEW_ROWS + 1, 0, NULL, {                                     \
            LINEAR(BF16, bf16, neon_bf16)                                                          \
        }                                                                                          \
    }

/* AVX-512 without VNNI: its f32 panels, for more rows than a few. */
#define A8_IN_F32(isa, level)                                                                      \
    {                                                                                              \
        level, MN_PRECISION_A8, MNK_FEW_ROWS + 1, 0, NULL, {                                       \
            MNK_BLOCK_TYPES(LINEAR, isa)                                                           \
        }                                                                                          \
    }

#define FITS(name, id, elems, bytes, planes) &&(id) < MNK_N_TYPES
_Static_assert(1 MN_DTYPES(FITS), "MNK_N_TYPES is above every id");

static const mnk_set sets[] = {
#if defined(__x86_64__)
    AMX(MN_PRECISION_A8, TILES_A8, MNK_BLOCK_TYPES(LINEAR_A8, amx)),
    AMX(MN_PRECISION_A16, TILES_A16, ),
    A8_FROM(avx512vnni_tiles, MNK_AVX512VNNI, TILES_A8_VNNI),
    A8_PANELS(avx512vnni, MNK_AVX512VNNI),
    A8_PANELS(avxvnni, MNK_AVXVNNI),
    A8_IN_F32(avx512, MNK_AVX512),
    A8_PANELS(avx2, MNK_AVX2),
    F32(avx512, MNK_AVX512),
    F32(avx2, MNK_AVX2),
#elif defined(__aarch64__)
    BFMMLA(MN_PRECISION_A8),    BFMMLA(MN_PRECISION_A16),
    A8(sve256, MNK_SVE256),     A8_PANELS(neon_i8mm, MNK_NEON_I8MM),
    A8(neon_dot, MNK_NEON_DOT), A8(neon, MNK_NEON),
    F32(sve256, MNK_SVE256),    F32(neon, MNK_NEON),
#endif
    A8(generic, MNK_GENERIC),
    F32(generic, MNK_GENERIC),
};

/* Of weights whose rows lie side by side, in the same order of preference. A few rows of x are
 * multiplied register by register, on AMX more of them through tiles; the kernels of the stored
 * weights, above, take the rest. */
enum { LANES_TILES = 9, LANES_AVX512 = 8 };
#define LANES(ID, type, of_scale, off, fit, top, min, isa) [MN_##ID] = &mnk_##type##_lanes_##isa,
#define LANES_SET(isa, level, least, most)                                                         \
    {                                                                                              \
        level, MN_PRECISION_A8, least, most, NULL, {                                               \
            MNK_LANES_TYPES(LANES, isa)                                                            \
        }                                                                                          \
    }
static const mnk_set lanes_sets[] = {
#if defined(__x86_64__)
    LANES_SET(amx, MNK_AMX, LANES_TILES, MNK_LANES_ROWS),
    LANES_SET(avx512vnni, MNK_AVX512VNNI, 1, LANES_AVX512),
    LANES_SET(avxvnni, MNK_AVXVNNI, 1, MNK_FEW_ROWS),
    LANES_SET(avx2, MNK_AVX2, 1, MNK_FEW_ROWS),
#else
    {0},
#endif
};

const mnk_set *mnk_sets(uint32_t *n) {
    *n = sizeof sets / sizeof *sets;
    return sets;
}

/* r: rows of x; kernels without gemm are for few. forms: of x, those below are found. */
static const mnk_linear *find(const mnk_set *from, size_t n, uint32_t dtype, uint32_t precision,
                              int32_t level, int64_t r, int32_t forms) {
    if (dtype >= MNK_N_TYPES)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const mnk_set *s = &from[i];
        const mnk_linear *l = s->linear[dtype];
        const bool in_class = !s->precision || s->precision == precision;
        if (!l || !in_class || !mnk_isa_runs(level, s->isa))
            continue;
        const bool has_all = l->gemm || l->product;
        const bool takes = r >= s->least && (!s->most || r <= s->most);
        if (l->x_form < forms && takes && (has_all || r <= MNK_FEW_ROWS))
            return l;
    }
    return NULL;
}
#define FIND(from, ...) find(from, sizeof from / sizeof *from, __VA_ARGS__)

const mnk_linear *mnk_find_linear(uint32_t dtype, uint32_t precision, int32_t level, int64_t r) {
    return FIND(sets, dtype, precision, level, r, MNK_X_FORMS);
}

const mnk_linear *mnk_find_plain(uint32_t dtype, uint32_t precision, int32_t level, int64_t r) {
    return FIND(sets, dtype, precision, level, r, MNK_X_TILES);
}

const mnk_linear *mnk_find_lanes(uint32_t dtype, uint32_t precision, int32_t level, int64_t r) {
    return FIND(lanes_sets, dtype, precision, level, r, MNK_X_FORMS);
}

const mnk_vector *mnk_find_vector(int32_t level) {
    for (uint32_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (sets[i].vector && mnk_isa_runs(level, sets[i].isa))
            return sets[i].vector;
    return NULL;
}

const mnk_attend *mnk_find_attend(uint32_t precision, int32_t level, int64_t dv) {
#if defined(__x86_64__)
    const bool has = level == MNK_AMX && dv % 16 == 0;
    if (has && precision == MN_PRECISION_A8)
        return &mnk_attend_amx_a8;
    if (has && precision == MN_PRECISION_A16)
        return &mnk_attend_amx_a16;
#endif
    (void)precision;
    (void)level;
    (void)dv;
    return NULL;
}
