/* table.c -- the kernels, most special first; the first that fits is taken. Bodies and instruction
 * sets are compiled as meson.build lists them; here stand the objects that these export. */
#include "lanes.h"
#include "nodes.h"

#define FITS(name, id, elems, bytes, planes) &&(id) < MNK_N_TYPES
_Static_assert(1 MN_DTYPES(FITS), "MNK_N_TYPES is above every id");

/* Tiles: weights of 16 bits as bf16, in class a8 types of blocks in bytes. A tile of x costs as
 * much for one row as for 16: below these numbers of rows VNNI is faster, or each row alone. */
enum { MANY = MNK_FEW_ROWS + 1, TILES_A8 = 8, TILES_A8_VNNI = 32, TILES_A16 = MANY };
/* Of weights whose rows lie side by side a few rows of x are multiplied register by register, on
 * AMX more of them through tiles; the kernels of the stored weights take the rest. */
enum { LANES_TILES = 9, LANES_AVX512 = 8 };

/* L(level, class, least, most, mnk_BODY_ISA), V(level, mnk_ops_ISA): what is special stands before
 * what is general. A body in front need not serve all types, nor all lengths of a row. */
#define ANY 0
#define A8 MN_PRECISION_A8
#define A16 MN_PRECISION_A16
#if defined(__x86_64__)
#define ROWS(L, V)                                                                                 \
    L(AMX, A8, TILES_A8, 0, mnk_tiles16_amx)                                                       \
    L(AMX, A8, TILES_A8, 0, mnk_tiles8_amx)                                                        \
    L(AMX, A16, TILES_A16, 0, mnk_tiles16_amx)                                                     \
    L(AVX512BF16, A8, MANY, 0, mnk_dpbf16_avx512bf16)                                              \
    L(AVX512BF16, A16, MANY, 0, mnk_dpbf16_avx512bf16)                                             \
    L(AVX512VNNI, A8, TILES_A8_VNNI, 0, mnk_tiles8_avx512vnni)                                     \
    L(AVX512VNNI, A8, MANY, 0, mnk_panels8_wide_avx512vnni)                                        \
    L(AVX512VNNI, A8, MANY, 0, mnk_panels8_avx512vnni)                                             \
    L(AVX512VNNI, A8, 0, 0, mnk_dot8_wide_avx512vnni)                                              \
    L(AVX512VNNI, A8, 0, 0, mnk_dot8_vnni256)                                                      \
    L(AVXVNNI, A8, MANY, 0, mnk_panels8_avxvnni)                                                   \
    L(AVXVNNI, A8, 0, 0, mnk_dot8_avxvnni)                                                         \
    /* without VNNI f32 panels are faster than AVX2's of bytes; maddubs gains nothing there */     \
    L(AVX512, A8, MANY, 0, mnk_f32_avx512)                                                         \
    L(AVX2, A8, MANY, 0, mnk_panels8_avx2)                                                         \
    L(AVX2, A8, 0, 0, mnk_dot8_avx2)                                                               \
    L(AVX512, ANY, 0, 0, mnk_f32_avx512)                                                           \
    V(AVX512, mnk_ops_avx512)                                                                      \
    L(AVX2, ANY, 0, 0, mnk_f32_avx2)                                                               \
    V(AVX2, mnk_ops_avx2)
#define LANES_ROWS(L)                                                                              \
    L(AMX, A8, LANES_TILES, MNK_LANES_ROWS, mnk_lanes_tiles_amx)                                   \
    L(AVX512VNNI, A8, 1, LANES_AVX512, mnk_lanes8_avx512vnni)                                      \
    L(AVXVNNI, A8, 1, MNK_FEW_ROWS, mnk_lanes8_avxvnni)                                            \
    L(AVX2, A8, 1, MNK_FEW_ROWS, mnk_lanes8_avx2)
#elif defined(__aarch64__)
#define ROWS(L, V)                                                                                 \
    L(NEON_BF16, A8, MANY, 0, mnk_bfmmla_neon_bf16)                                                \
    L(NEON_BF16, A16, MANY, 0, mnk_bfmmla_neon_bf16)                                               \
    L(SVE256, A8, 0, 0, mnk_dot8_sve256)                                                           \
    L(NEON_I8MM, A8, MANY, 0, mnk_panels8_neon_i8mm)                                               \
    L(NEON_DOT, A8, 0, 0, mnk_dot8_neon_dot)                                                       \
    L(NEON, A8, 0, 0, mnk_dot8_neon)                                                               \
    L(SVE256, ANY, 0, 0, mnk_f32_sve256)                                                           \
    V(SVE256, mnk_ops_sve256)                                                                      \
    L(NEON, ANY, 0, 0, mnk_f32_neon)                                                               \
    V(NEON, mnk_ops_neon)
#else
#define ROWS(L, V)
#endif
#define GENERIC_ROWS(L, V)                                                                         \
    L(GENERIC, A8, 0, 0, mnk_dot8_generic)                                                         \
    L(GENERIC, ANY, 0, 0, mnk_f32_generic)                                                         \
    V(GENERIC, mnk_ops_generic)

#define LINEAR_EXTERN(level, class, least, most, cell) extern const mnk_linear cell[MNK_N_KERNELS];
#define VECTOR_EXTERN(level, cell) extern const mnk_vector cell;
#define LINEAR_ROW(level, class, least, most, cell) {MNK_##level, class, least, most, NULL, cell},
#define VECTOR_ROW(level, cell) {MNK_##level, ANY, 0, 0, &cell, NULL},
ROWS(LINEAR_EXTERN, VECTOR_EXTERN)
GENERIC_ROWS(LINEAR_EXTERN, VECTOR_EXTERN)
static const mnk_set sets[] = {ROWS(LINEAR_ROW, VECTOR_ROW) GENERIC_ROWS(LINEAR_ROW, VECTOR_ROW)};
#ifdef LANES_ROWS
LANES_ROWS(LINEAR_EXTERN)
static const mnk_set lanes_sets[] = {LANES_ROWS(LINEAR_ROW)};
#else
static const mnk_set lanes_sets[] = {{0}};
#endif

/* 1 + MNK_KERNEL_* of a type; 0: none serves it. */
#define KERNEL_OF(id, kernel, ...) [MN_##id] = 1 + MNK_KERNEL_##kernel,
static const uint8_t kernel_of[MNK_N_TYPES] = {MNK_PLAIN_TYPES(KERNEL_OF, )
                                                   MNK_BLOCK_TYPES(KERNEL_OF, )};

const mnk_set *mnk_sets(uint32_t *n) {
    *n = sizeof sets / sizeof *sets;
    return sets;
}

const mnk_linear *mnk_set_linear(const mnk_set *s, uint32_t dtype) {
    if (!s->linear || dtype >= MNK_N_TYPES || !kernel_of[dtype])
        return NULL;
    const mnk_linear *kernel = &s->linear[kernel_of[dtype] - 1];
    return kernel->name ? kernel : NULL;
}

/* r: rows of x of k columns; kernels without gemm are for few. forms: of x, those below are
 * found. */
static const mnk_linear *set_find(const mnk_set *from, size_t n, uint32_t dtype, uint32_t precision,
                                  int32_t level, int64_t r, int64_t k, int32_t forms) {
    for (size_t i = 0; i < n; i++) {
        const mnk_set *s = &from[i];
        const mnk_linear *l = mnk_set_linear(s, dtype);
        const bool in_class = !s->precision || s->precision == precision;
        if (!l || !in_class || !mnk_isa_runs(level, s->isa))
            continue;
        const bool has_all = l->gemm || l->product;
        const bool in_range = r >= s->least && (!s->most || r <= s->most);
        const bool takes = in_range && k % l->grain == 0;
        if (l->x_form < forms && takes && (has_all || r <= MNK_FEW_ROWS))
            return l;
    }
    return NULL;
}
#define FIND(from, ...) set_find(from, sizeof from / sizeof *from, __VA_ARGS__)

const mnk_linear *mnk_find_linear(uint32_t dtype, uint32_t precision, int32_t level, int64_t r,
                                  int64_t k) {
    return FIND(sets, dtype, precision, level, r, k, MNK_X_FORMS);
}

const mnk_linear *mnk_find_plain(uint32_t dtype, uint32_t precision, int32_t level, int64_t r,
                                 int64_t k) {
    return FIND(sets, dtype, precision, level, r, k, MNK_X_TILES);
}

const mnk_linear *mnk_find_lanes(uint32_t dtype, uint32_t precision, int32_t level, int64_t r,
                                 int64_t k) {
    return FIND(lanes_sets, dtype, precision, level, r, k, MNK_X_FORMS);
}

/* The lower of next and `to`, of those above r; 0: none. */
static int64_t sooner_rows(int64_t next, int64_t to, int64_t r) {
    if (to <= r || (next && next < to))
        return next;
    return to;
}
static int64_t set_next(const mnk_set *from, size_t n, int64_t r, int64_t next) {
    for (size_t i = 0; i < n; i++) {
        next = sooner_rows(next, from[i].least, r);
        next = sooner_rows(next, from[i].most + 1, r);
    }
    return next;
}

int64_t mnk_next_rows(int64_t r) {
    const int64_t next = sooner_rows(0, MNK_FEW_ROWS + 1, r);
    const int64_t of_sets = set_next(sets, sizeof sets / sizeof *sets, r, next);
    return set_next(lanes_sets, sizeof lanes_sets / sizeof *lanes_sets, r, of_sets);
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
        return &mnk_attend_tiles_a8_amx;
    if (has && precision == MN_PRECISION_A16)
        return &mnk_attend_tiles_a16_amx;
#endif
    (void)precision;
    (void)level;
    (void)dv;
    return NULL;
}
