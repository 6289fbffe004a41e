/* rows.h -- the kernels of cpu_simd as rows of one table: (op, weight dtype, precision class, ISA) -> functions.
 * Kernels are pure: no allocation, no globals, no I/O; pointers need the alignment of a byte unless said otherwise.
 * Every ISA is one translation unit (rows_ISA.c) that includes a small vector vocabulary (vec_ISA.h) and the shared
 * bodies (rows_f32.inc, rows_a8.inc, rows_ops.inc). Adding a kernel = a function there and one row in table.c. */
#ifndef MNK_ROWS_H
#define MNK_ROWS_H
#include "../cpu_host/cpu_host.h"
#include <string.h>

/* Levels of an ISA family grow with its number: a row may run if it is generic or of the CPU's family and not above its level. */
enum {
    MNK_GENERIC = 0,
    MNK_AVX2 = 1,
    MNK_AVX512 = 2,
    MNK_AVX512VNNI = 3,
    MNK_AMX = 4,
    MNK_NEON = 16,
    MNK_NEON_DOT = 17
};

#define MNK_STREAMS 8 /* weight rows that one dot call reads side by side: memory streams per worker */
#define MNK_TILE 64   /* positions that attention scores at once */
#define MNK_KC 1024   /* columns summed in f32 lanes before the lanes are added up, in dot and gemm alike */

/* Matrix product with weights as stored. An output's sum has one order, whatever R is: f32 kernels are batch-invariant. */
typedef struct {
    const char *name;
    int32_t quantised_x;    /* x rows are mnk_quant rows (see below), else f32 */
    int64_t panel_rows;     /* weight rows that unpack and gemm take at most */
    int64_t few_panel_rows; /* better for some tens of x rows; 0 = the same */
    int64_t kc;             /* columns per panel; 0 = all of K */
    uint64_t (*panel_bytes)(int64_t k);
    /* out[i] = w[i] . x for MNK_STREAMS rows; rows may be the same. */
    void (*dot)(const uint8_t *const w[MNK_STREAMS], const uint8_t *x, int64_t k, float *out);
    /* Rows [0, n) and columns [k0, k0 + kc) into the panel. */
    void (*unpack)(const uint8_t *w, uint64_t row_bytes, int64_t n, int64_t k0, int64_t kc, void *panel);
    /* y[r * ldy + j] = (first ? 0 : y) + x[r] . panel[j]; x points at column k0 of row 0; ldx in bytes. */
    void (*gemm)(const void *panel, int64_t n, int64_t kc, const uint8_t *x, int64_t ldx, int64_t r, float *y,
                 int64_t ldy, bool first);
} mnk_linear;

/* Activations in 8 bits, per row: i8 q[K]; f32 d[K/32]; i32 sum[K/32] (of q in the block); i32 sum4[K/4] (of 4 q's). */
static inline int64_t mnk_quant_bytes(int64_t k) { return (k + k / 8 + k / 8 + k + 63) / 64 * 64; }
static inline const float *mnk_quant_d(const uint8_t *row, int64_t k) { return (const float *)(const void *)(row + k); }
static inline const int32_t *mnk_quant_sum(const uint8_t *row, int64_t k) {
    return (const int32_t *)(const void *)(row + k + k / 8);
}
static inline const int32_t *mnk_quant_sum4(const uint8_t *row, int64_t k) {
    return (const int32_t *)(const void *)(row + k + k / 4);
}
void mnk_quantise(const float *x, int64_t k, uint8_t *row); /* row 64-byte aligned, k a multiple of 32 */

/* What attention and the small ops need of one ISA. */
typedef struct {
    const char *name;
    void (*unpack_f16)(const uint8_t *src, int64_t n, float *dst);
    void (*pack_f16)(const float *src, int64_t n, uint8_t *dst); /* nearest even */
    /* s[r * lds + j] = q[r] . k[j]: q [r, d], k [n, d] with n <= MNK_TILE; k has room for MNK_TILE + 8 rows of d rounded up to 16. */
    void (*scores)(const float *q, int64_t r, const float *k, int64_t n, int64_t d, float *s, int64_t lds);
    /* s[MNK_TILE]: masked entries hold -inf. s = exp(logit - max(m, logits)); returns the new maximum, *sum of the exps. */
    float (*softmax)(float *s, float scale, float cap, float m, float *sum);
    void (*weigh)(const float *p, int64_t ldp, int64_t g, const float *v, int64_t lo, int64_t hi, int64_t dv,
                  float *acc, int64_t lda); /* acc[g, dv] += p[g, lo..hi) v */
    void (*scale)(float *x, int64_t n, float by);
    void (*add_scaled)(float *x, const float *y, int64_t n, float by); /* x += by * y */
    float (*exp1)(float x);
    /* whole nodes */
    mnc_fn rms_norm, layer_norm, act, glu, add, mul, scale_op, softcap;
} mnk_vector;

/* One row of the table. */
typedef struct {
    uint32_t op, dtype, precision; /* dtype and precision 0 = any */
    int32_t isa;
    const mnk_linear *linear; /* MN_OP_LINEAR */
    const mnk_vector *vector; /* all else */
} mnk_row;

/* First row that fits, NULL if none. level: what the CPU has, capped. */
const mnk_row *mnk_find(uint32_t op, uint32_t dtype, uint32_t precision, int32_t level);
const mnk_row *mnk_rows(uint32_t *n);

/* What the CPU and the OS offer, and the cap by name: < 0 = no such name. */
int32_t mnk_cpu_level(void);
int32_t mnk_isa_by_name(const char *name, size_t len);
const char *mnk_isa_name(int32_t level);
int32_t mnk_isa_cap(int32_t level, int32_t cap); /* a cap of another family leaves the generic rows */

extern const mnk_vector mnk_vector_generic, mnk_vector_avx2, mnk_vector_avx512, mnk_vector_neon;
#define MNK_LINEAR_OF(isa)                                                                                             \
    extern const mnk_linear mnk_f32_##isa, mnk_f16_##isa, mnk_bf16_##isa, mnk_q8_0_##isa, mnk_q4_0_##isa,              \
        mnk_q8_0_a8_##isa, mnk_q4_0_a8_##isa
MNK_LINEAR_OF(generic);
MNK_LINEAR_OF(avx2);
MNK_LINEAR_OF(avx512);
MNK_LINEAR_OF(avx512vnni);
MNK_LINEAR_OF(neon);
MNK_LINEAR_OF(neon_dot);

/* ---- scalars that every unit needs ---- */
static inline float mnk_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t mnk_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline uint16_t mnk_u16(const uint8_t *p) {
    uint16_t u;
    memcpy(&u, p, 2);
    return u;
}
static inline float mnk_f16(uint16_t h) {
    uint32_t e = h & 0x7fffu, s = (uint32_t)(h & 0x8000u) << 16;
    float f = mnk_bits_f32(e << 13) * 0x1p112f; /* subnormals come out right */
    if (e >= 0x7c00u) f = mnk_bits_f32(0x7f800000u | (e & 0x3ffu) << 13);
    return mnk_bits_f32(mnk_f32_bits(f) | s);
}
static inline uint16_t mnk_to_f16(float x) {
    uint32_t u = mnk_f32_bits(x), s = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(s | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(s | 0x7c00u);
    if (a < 0x38800000u) { /* subnormal: let the adder round */
        float f = mnk_bits_f32(a) + 0.5f;
        return (uint16_t)(s | (mnk_f32_bits(f) - 0x3f000000u));
    }
    return (uint16_t)(s | ((a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13));
}
static inline float mnk_bf16(uint16_t h) { return mnk_bits_f32((uint32_t)h << 16); }
static inline float mnk_load1(const uint8_t *p, uint32_t dtype, int64_t i) { /* F32, F16 or BF16 */
    float f;
    if (dtype == MN_F16) return mnk_f16(mnk_u16(p + 2 * i));
    if (dtype == MN_BF16) return mnk_bf16(mnk_u16(p + 2 * i));
    memcpy(&f, p + 4 * i, 4);
    return f;
}
#endif
