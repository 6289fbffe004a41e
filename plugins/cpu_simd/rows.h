/* rows.h -- the kernels of cpu_simd as rows of one table: (ISA, precision class, weight dtype) ->
 * functions. Kernels are pure: no allocation, no globals, no I/O; pointers need the alignment of a
 * byte unless said otherwise. A body (rows_BODY.c) is written in the vocabulary of vec.h and
 * compiled once for each instruction set that meson.build names for it; the object exports
 * mnk_BODY_ISA, the body's kernels by the way of storing that they serve. table.c says in which
 * order these are tried. */
#ifndef MNK_ROWS_H
#define MNK_ROWS_H
#include "../cpu_host/cpu_host.h"
#include "dtype.h"
#include "types.h"
#include <string.h>

/* Instruction sets. X(ID, name, BASE): a CPU of a level runs its rows and those of all that it
 * builds upon. Of what a CPU has the last one here is taken. */
#define MNK_ISAS(X)                                                                                \
    X(GENERIC, "generic", GENERIC)                                                                 \
    X(AVX2, "avx2", GENERIC)                                                                       \
    X(AVXVNNI, "avxvnni", AVX2) /* VPDPBUSD without AVX-512 */                                     \
    X(AVX512, "avx512", AVX2)                                                                      \
    X(AVX512VNNI, "avx512vnni", AVX512)                                                            \
    X(AVX512BF16, "avx512bf16", AVX512VNNI) /* whose VDPBF16PS is as fast as f32's products */     \
    X(AMX, "amx", AVX512VNNI)                                                                      \
    X(NEON, "neon", GENERIC)                                                                       \
    X(NEON_DOT, "dotprod", NEON)                                                                   \
    X(NEON_I8MM, "i8mm", NEON_DOT)                                                                 \
    X(NEON_BF16, "bf16", NEON_I8MM)                                                                \
    X(SVE256, "sve256", NEON_BF16) /* SVE whose vectors have 256 bits */
#define MNK_LEVEL_(ID, name, BASE) MNK_##ID,
enum { MNK_ISAS(MNK_LEVEL_) MNK_N_LEVELS };

/* weight rows that one dot call reads side by side: memory streams per worker */
#define MNK_STREAMS 8
#define MNK_TILE 64   /* positions that attention scores at once */
#define MNK_BEHIND 16 /* rows that may be read behind the last of them */
/* up to here each weight row, in cache after the first, is multiplied by one x row after the
 * other */
#define MNK_FEW_ROWS 4
/* columns summed in f32 lanes before the lanes are added up, in dot and gemm alike */
#define MNK_KC 1024

/* Forms of the x rows that a kernel reads; a kernel of MNK_X_TILES reads MNK_X_TILES2, too. */
enum {
    MNK_X_F32,    /* [K] */
    MNK_X_A8,     /* a mnk_quant row */
    MNK_X_TILES,  /* groups of MNK_GROUP rows in bf16, made by mnk_linear.pack */
    MNK_X_TILES2, /* the same, and what that rounding lost */
    MNK_X_TILES8, /* groups of MNK_GROUP rows in bytes with scales, made by mnk_linear.pack */
    MNK_X_ROWS8,  /* the same, but tiles of rows as they lie, made by pack_quants */
    MNK_X_FORMS
};
#define MNK_GROUP 16

/* One x row of a product and where its sums go. */
typedef struct {
    const uint8_t *x; /* the row; tiles: of pair i the group of pair i / MNK_GROUP * MNK_GROUP */
    float *y;         /* of weight row 0 */
} mnk_pair;

/* Matrix product with weights as stored. An output's sum has one order, whatever the number of x
 * rows: f32 kernels are batch-invariant. */
typedef struct {
    const char *name;
    int32_t x_form;         /* MNK_X_* */
    int64_t panel_rows;     /* weight rows that unpack and gemm take at most */
    int64_t few_panel_rows; /* better for some tens of x rows; 0 = the same */
    int64_t kc;             /* columns per panel; 0 = all of K */
    int64_t grain;          /* K must be a multiple of it, and of the type's block */
    uint64_t (*panel_bytes)(int64_t k);
    /* out[i] = w[row[i]] . x for MNK_STREAMS rows; rows may be the same. */
    void (*dot)(const mnc_weight *w, const int64_t row[MNK_STREAMS], const uint8_t *x, float *out);
    /* Rows [row, row + n) and columns [k0, k0 + kc) into the panel. NULL, as gemm: for up to
     * MNK_FEW_ROWS x rows alone. */
    void (*unpack)(const mnc_weight *w, int64_t row, int64_t n, int64_t k0, int64_t kc,
                   void *panel);
    /* pair[i].y[y0 + j] = (first ? 0 : itself) + x[i] . panel[j], x from byte x0 of pair[i].x
     * on. */
    void (*gemm)(const void *panel, int64_t n, int64_t kc, const mnk_pair *pair, int64_t x0,
                 int64_t r, int64_t y0, bool first);
    /* Kernels of tiles and of byte panels have these, but for pack of the latter, instead of dot,
     * unpack and gemm. */
    /* n <= MNK_GROUP rows of x to a group: [planes][tiles of 32 columns][1 KiB], or [tiles of 64
     * columns][1 KiB], then f32 [spans of 256 columns][MNK_GROUP] */
    void (*pack)(const float *const x[MNK_GROUP], int64_t n, int64_t k, uint8_t *to);
    /* The same of mnk_quant rows, whose values are rounded once more: kernels of MNK_X_TILES8, and
     * those of MNK_X_ROWS8, which have no pack. */
    void (*pack_quants)(const uint8_t *const x[MNK_GROUP], int64_t n, int64_t k, uint8_t *to);
    /* weight rows [lo, hi) with all x rows */
    void (*product)(const mnc_weight *w, const mnk_pair *pair, int64_t r, int64_t lo, int64_t hi,
                    void *panel);
    /* x rows, whole groups, that are best multiplied with all weights before the next ones: about
     * what a second cache has room for. NULL: all */
    int64_t (*rows_at_once)(int64_t k);
} mnk_linear;

/* Bytes of a group of x rows in tiles, and of one more: or where K is a power of two, the same
 * columns of all groups would fall into the same sets of a second cache. */
static inline int64_t mnk_group_bytes(int64_t k, int32_t x_form) {
    const int64_t tile = 1024;
    if (x_form == MNK_X_TILES8 || x_form == MNK_X_ROWS8)
        return (k + 63) / 64 * tile + (k + 255) / 256 * 64 + tile;
    return (k + 31) / 32 * tile * (x_form == MNK_X_TILES2 ? 2 : 1) + tile;
}

/* Activations in 8 bits, per row: i8 q[K]; f32 d[K/32]; i32 sum[K/32] (of q in the block); i32
 * sum4[K/4], sum16[K/16]. */
static inline int64_t mnk_quant_bytes(int64_t k) {
    const int64_t floats = k / 8;
    const int64_t sums = k / 8 + k + k / 4;
    return (k + floats + sums + 63) / 64 * 64;
}
static inline const float *mnk_quant_d(const uint8_t *row, int64_t k) {
    const void *at = row + k;
    return at;
}
static inline const int32_t *mnk_quant_sum(const uint8_t *row, int64_t k) {
    const void *at = row + k + k / 8;
    return at;
}
static inline const int32_t *mnk_quant_sum4(const uint8_t *row, int64_t k) {
    const void *at = row + k + k / 4;
    return at;
}
static inline const int32_t *mnk_quant_sum16(const uint8_t *row, int64_t k) {
    const void *at = row + 2 * k + k / 4;
    return at;
}
/* Blocks [lo, hi) of k / 32 of x [k]; row 64-byte aligned, k a multiple of 32 */
void mnk_quantise(const float *x, int64_t k, int64_t lo, int64_t hi, uint8_t *row);

/* A row's effect on a block of columns of one head's state, [n, cols]: S = decay S + write u, y =
 * y_by read S. decay: of each of n, or one for all. SSM_SCAN: u = x_by x, and y has pass_by x
 * added. GATED_DELTA: u = x_by (x - known_by write S), with S decayed where `each` is set. */
#define MNK_STATE_COLS 32 /* columns of a block: of 128 rows it stays in a first cache */
typedef struct {
    const float *from;
    float *to; /* may be from */
    int64_t n;
    int64_t cols; /* at most MNK_STATE_COLS */
    bool each;
    const float *decay;
    const float *write; /* [n] */
    const float *read;  /* [n] */
    const float *x;     /* [cols] */
    float x_by;
    float known_by;
    float y_by;
    float pass_by;
    float *y; /* [cols] */
} mnk_state_row;

/* What the operations with a state need of one ISA: rows_state.c. */
typedef struct {
    /* size = softplus(x + bias), bounded, and decay = exp(size * rate); size may be NULL */
    void (*decays)(const float *x, const float *bias, const float *rate, int64_t n, float least,
                   float most, float *size, float *decay);
    void (*sigmoids)(const float *x, int64_t n, float by, float *y);         /* y = by sigmoid(x) */
    float (*squares)(const float *x, int64_t n);                             /* their sum */
    void (*conv_turn)(const float *w, int64_t n, int64_t width, float *out); /* to [width, n] */
    /* n channels: y = bias + the sum of w[j] x[j], x: [width] rows; bias may be NULL */
    void (*conv_row)(const float *const *x, const float *w, int64_t width, const float *bias,
                     int64_t n, float *y);
    void (*scan_row)(const mnk_state_row *r);
    void (*delta_row)(const mnk_state_row *r);
} mnk_state;

/* What attention, the small ops and those with a state need of one ISA. */
typedef struct {
    const char *name;
    void (*unpack_f16)(const uint8_t *src, int64_t n, float *dst);
    void (*pack_f16)(const float *src, int64_t n, uint8_t *dst); /* nearest even */
    /* s[r * lds + j] = q[r] . k[j]: q [r, d], k [n, d] with n <= MNK_TILE; k has room for MNK_TILE
     * + MNK_BEHIND rows of d rounded up to 16. */
    void (*scores)(const float *q, int64_t r, const float *k, int64_t n, int64_t d, float *s,
                   int64_t lds);
    /* s[MNK_TILE]: entries outside of [lo, hi) are masked. s = exp(logit - max(m, logits)); returns
     * the new maximum, *sum of the exps. A NaN may be missing in the maximum, never in the sum;
     * where all are -inf, the exps are 0. */
    float (*softmax)(float *s, int64_t lo, int64_t hi, float scale, float cap, float m, float *sum);
    void (*weigh)(const float *p, int64_t ldp, int64_t g, const float *v, int64_t lo, int64_t hi,
                  int64_t dv, float *acc, int64_t lda); /* acc[g, dv] += p[g, lo..hi) v */
    void (*scale)(float *x, int64_t n, float by);
    void (*add_scaled)(float *x, const float *y, int64_t n, float by); /* x += by * y */
    float (*exp1)(float x);
    /* whole nodes */
    mnc_fn rms_norm;
    mnc_fn layer_norm;
    mnc_fn act;
    mnc_fn glu;
    mnc_fn add;
    mnc_fn mul;
    mnc_fn scale_op;
    mnc_fn softcap;
    const mnk_state *state;
} mnk_vector;

/* Attention of a block of n query rows through tiles, in the other classes than exact. Positions
 * come in tiles of MNK_TILE, in order; sums stay in the block's room, with a running maximum. */
#define MNK_ATTEND_ROWS 32 /* fewer are not worth it */
typedef struct {
    const float *k; /* [MNK_TILE, dk]; rows that nobody sees may be anything */
    const float *v; /* [MNK_TILE, dv] */
    int64_t first;  /* of the rows of v that somebody sees, and behind the last */
    int64_t end;
    const int32_t *lo; /* [n] columns of the tile that a query sees, from lo on and before hi */
    const int32_t *hi;
    float scale; /* of scores */
    float cap;   /* MN_OP_ATTENTION's soft cap; 0: none */
} mnk_attend_tile;
typedef struct {
    int64_t n;
    int64_t dk;
    int64_t dv; /* a multiple of 16 */
    uint8_t *room;
} mnk_attend_block;
typedef struct {
    uint64_t (*room_bytes)(int64_t n, int64_t dk, int64_t dv);
    void (*begin)(const mnk_attend_block *b, const float *q); /* q: [n, dk] */
    void (*add)(const mnk_attend_block *b, const mnk_attend_tile *t);
    /* y[i]: [dv] of query i, or NULL; sink: [n], a logit without a value, or NULL */
    void (*end)(const mnk_attend_block *b, const float *sink, float *const *y);
    double error; /* relative L2, at most */
} mnk_attend;
/* NULL: there is none. */
const mnk_attend *mnk_find_attend(uint32_t precision, int32_t level, int64_t dv);

/* The ways of storing of types.h: MNK_KERNEL_q4_0 and so on. What a body exports for an instruction
 * set is an array of MNK_N_KERNELS; those that it does not serve have no name. */
#define MNK_KERNEL_ID_(kernel, ...) MNK_KERNEL_##kernel,
enum { MNK_PLAIN_KERNELS(MNK_KERNEL_ID_, ) MNK_BLOCK_KERNELS(MNK_KERNEL_ID_, ) MNK_N_KERNELS };

/* A row of the table: the kernels of a body on an instruction set, and when they are taken. */
#define MNK_N_TYPES 128 /* above every MN_* data type id: table.c checks that */
typedef struct {
    int32_t isa;
    uint32_t precision;       /* 0 = any */
    int64_t least;            /* rows of x from which on its products are taken */
    int64_t most;             /* and up to which; 0: all */
    const mnk_vector *vector; /* everything but matrix products; NULL: linear is not */
    const mnk_linear *linear; /* [MNK_N_KERNELS] */
} mnk_set;
/* The kernel of a row for a type; NULL: it has none. */
const mnk_linear *mnk_set_linear(const mnk_set *s, uint32_t dtype);

/* The first that fits, NULL if none. level: what the CPU has, capped; r: rows of x; k: columns, of
 * which the kernel's grain is a divisor; 0: any. */
const mnk_linear *mnk_find_linear(uint32_t dtype, uint32_t precision, int32_t level, int64_t r,
                                  int64_t k);
/* The same of those that read rows of x, not groups of them. */
const mnk_linear *mnk_find_plain(uint32_t dtype, uint32_t precision, int32_t level, int64_t r,
                                 int64_t k);
/* Of a weight that has the layout of lanes.h; NULL: the layout is not for so many rows. */
const mnk_linear *mnk_find_lanes(uint32_t dtype, uint32_t precision, int32_t level, int64_t r,
                                 int64_t k);
const mnk_vector *mnk_find_vector(int32_t level);
/* The rows that mnk_find_linear looks through. */
const mnk_set *mnk_sets(uint32_t *n);

/* What the CPU and the operating system offer: a bit for each level. */
uint32_t mnk_cpu_levels(void);
/* The best of them. */
int32_t mnk_cpu_level(void);
/* The CPU has AMX, and the operating system does not let this process use it. */
bool mnk_amx_refused(void);
int32_t mnk_isa_by_name(const char *name, size_t len); /* < 0 = no such name */
const char *mnk_isa_name(int32_t level);
/* The best of `levels` that cap is or builds upon: generic where that is of another family. */
int32_t mnk_isa_cap(uint32_t levels, int32_t cap);
/* Does a CPU of this level run the rows of isa? */
bool mnk_isa_runs(int32_t level, int32_t isa);

extern const mnk_attend mnk_attend_tiles_a8_amx, mnk_attend_tiles_a16_amx;

/* ---- scalars that every unit needs ----------------------------------------------------------- */
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
    uint32_t e = h & 0x7fffu;
    uint32_t s = (uint32_t)(h & 0x8000u) << 16;
    float f = mnk_bits_f32(e << 13) * 0x1p112f; /* subnormals come out right */
    if (e >= 0x7c00u)
        f = mnk_bits_f32(0x7f800000u | (e & 0x3ffu) << 13);
    return mnk_bits_f32(mnk_f32_bits(f) | s);
}
static inline uint16_t mnk_to_f16(float x) {
    uint32_t u = mnk_f32_bits(x);
    uint32_t s = u >> 16 & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(s | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(s | 0x7c00u);
    if (a < 0x38800000u) { /* subnormal: let the adder round */
        float f = mnk_bits_f32(a) + 0.5f;
        return (uint16_t)(s | (mnk_f32_bits(f) - 0x3f000000u));
    }
    const uint32_t odd = a >> 13 & 1u;
    const uint32_t rounded = a + 0xfffu + odd - 0x38000000u;
    return (uint16_t)(s | rounded >> 13);
}
static inline float mnk_bf16(uint16_t h) {
    return mnk_bits_f32((uint32_t)h << 16);
}
static inline float mnk_load1(const uint8_t *p, uint32_t dtype, int64_t i) { /* F32, F16 or BF16 */
    float f;
    if (dtype == MN_F16)
        return mnk_f16(mnk_u16(p + 2 * i));
    if (dtype == MN_BF16)
        return mnk_bf16(mnk_u16(p + 2 * i));
    memcpy(&f, p + 4 * i, 4);
    return f;
}

/* Where a row's planes begin. */
typedef struct {
    const uint8_t *data, *scale, *bias; /* scale, bias: only of types that have them */
    float tensor_scale;                 /* of types that have one, else 1 */
    const uint8_t *pick;                /* I32 [cols] */
} mnk_at;
static inline mnk_at mnk_row_at(const mnc_weight *w, int64_t row) {
    mnk_at at = {mnc_row(w, row), NULL, NULL, 1, NULL};
    if (w->tensor_scale.data || w->tensor_scale.groups) {
        const uint8_t *from = mnc_extra_row(w, &w->tensor_scale, row);
        memcpy(&at.tensor_scale, from, sizeof at.tensor_scale);
    }
    if (!w->scale.data && !w->scale.groups)
        return at; /* a type with biases has scales, too */
    at.scale = mnc_extra_row(w, &w->scale, row);
    if (w->bias.data || w->bias.groups)
        at.bias = mnc_extra_row(w, &w->bias, row);
    if (w->pick.data || w->pick.groups)
        at.pick = mnc_extra_row(w, &w->pick, row);
    return at;
}
/* A number of 4 and 3 bits, by ways that never make one that is subnormal in f32: those take an
 * x86 core a hundred times as long. */
static inline float mnk_4_and_3_bits(uint32_t size) {
    if (size < 8)
        return (float)size * 0x1p-9f;
    return mnk_bits_f32((size << 20) + (120u << 23));
}
static inline float mnk_e4m3(uint8_t b) { /* 127 is NaN; there are no infinities */
    const uint32_t size = b & 127u;
    const float f = size == 127 ? mnk_bits_f32(0x7fc00000u) : mnk_4_and_3_bits(size);
    return b & 128 ? -f : f;
}
/* GGUF's, without sign: 0x7f is 0, 0xff is 480. */
static inline float mnk_ue4m3(uint32_t b) {
    if (b == 127)
        return 0;
    return mnk_4_and_3_bits(b & 127u);
}
static inline float mnk_e8m0_half(uint32_t e) { /* 2^(e - 128); 255 is NaN */
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    const uint32_t nan = 0x7fc00000u;
    return mnk_bits_f32(e == 255 ? nan : bits);
}
/* The lowest eight fields of `bits` bits, spread to bytes: the upper half of eight, of four, of two
 * moves up. */
static inline uint64_t mnk_spread(uint64_t v, const int bits) {
    const uint64_t four = (1u << 4 * bits) - 1;
    const uint64_t two = ((1u << 2 * bits) - 1) * 0x100000001u;
    const uint64_t one = ((1u << bits) - 1) * 0x0001000100010001u;
    const uint64_t upper = v & four << 4 * bits;
    v = (v & four) | upper << (32 - 4 * bits);
    v = (v & two) | (v & ~two) << (16 - 2 * bits);
    return (v & one) | (v & ~one) << (8 - bits);
}
#endif
