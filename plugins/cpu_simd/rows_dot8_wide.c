/* rows_dot8_wide.c -- one x row against MNK_STREAMS weight rows in registers of 64 bytes, for the
 * types where rows_dot8.c, 32 columns at a time, takes longer than the memory. 256 columns at a
 * time: what the weight rows share of x is laid out once, in the order in which a weight's bytes
 * come; eight scales are read as one vector. Q8_0 gained
 * nothing by the same. */
#include "vec.h"

enum { WIDE = 256, WIDE_AHEAD = 1024 /* bytes of prefetch on each row */ };

typedef struct {
    __m512i x[4];     /* 64 columns each, in the type's order */
    __m512i seed[4];  /* what the weights' offset adds, negative */
    __m256 d;         /* of 32 columns each */
    __m512 d_and_sum; /* the same, and times the sum of those columns: for types with minima */
} wide_x;

typedef struct {
    int64_t bytes; /* of 256 columns */
    void (*load_x)(wide_x *, const uint8_t *x, int64_t k, int64_t b);
    __m512 (*add)(__m512 acc, const uint8_t *p, const wide_x *x);
} wide_type;

/* 64 columns of x from c on; the seed for weights that are off too large. */
INLINE __m512i wide_seed(const uint8_t *x, int64_t k, int64_t c, const int off) {
    const __m512i sum = _mm512_loadu_si512(mnk_quant_sum4(x, k) + c / 4);
    return _mm512_mullo_epi32(sum, _mm512_set1_epi32(-off));
}
INLINE __m256 wide_d(const uint8_t *x, int64_t k, int64_t b) {
    return _mm256_loadu_ps(mnk_quant_d(x, k) + WIDE / 32 * b);
}
/* Eight f16, `apart` bytes from one to the next. */
INLINE __m256 wide_scales(const uint8_t *p, const int apart) {
    __m128i low = _mm_cvtsi32_si128(mnk_u16(p));
    __m128i high = _mm_cvtsi32_si128(mnk_u16(p + 4 * apart));
    low = _mm_insert_epi16(low, mnk_u16(p + apart), 1);
    high = _mm_insert_epi16(high, mnk_u16(p + 5 * apart), 1);
    low = _mm_insert_epi16(low, mnk_u16(p + 2 * apart), 2);
    high = _mm_insert_epi16(high, mnk_u16(p + 6 * apart), 2);
    low = _mm_insert_epi16(low, mnk_u16(p + 3 * apart), 3);
    high = _mm_insert_epi16(high, mnk_u16(p + 7 * apart), 3);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
}
/* acc + sums, a lane's scale being that at its index in `lanes`, counted from `first` on. */
INLINE __m512 wide_fold(__m512 acc, __m512i sums, __m512 scales, const int32_t lanes[16],
                        int first) {
    const __m512i from = _mm512_add_epi32(_mm512_loadu_si512(lanes), _mm512_set1_epi32(first));
    const __m512 scale = _mm512_permutexvar_ps(from, scales);
    const __m512 sum = _mm512_cvtepi32_ps(sums);
    return _mm512_fmadd_ps(sum, scale, acc);
}
static const int32_t twos[16] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
static const int32_t fours[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
static const int32_t eights[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};

/* ---- Q4_0: four blocks in a register, first their low nibbles ------------------------------ */
static const int64_t low_halves[8] = {0, 1, 4, 5, 8, 9, 12, 13};
static const int64_t high_halves[8] = {2, 3, 6, 7, 10, 11, 14, 15};
INLINE void wide_x_q4_0(wide_x *o, const uint8_t *x, int64_t k, int64_t b) {
    const __m512i low = _mm512_loadu_si512(low_halves);
    const __m512i high = _mm512_loadu_si512(high_halves);
    for (int j = 0; j < 4; j += 2) {
        const int64_t c = WIDE * b + 64 * j;
        const __m512i x0 = _mm512_loadu_si512(x + c);
        const __m512i x1 = _mm512_loadu_si512(x + c + 64);
        const __m512i s0 = wide_seed(x, k, c, 8);
        const __m512i s1 = wide_seed(x, k, c + 64, 8);
        o->x[j] = _mm512_permutex2var_epi64(x0, low, x1);
        o->x[j + 1] = _mm512_permutex2var_epi64(x0, high, x1);
        const __m512i seed_low = _mm512_permutex2var_epi64(s0, low, s1);
        const __m512i seed_high = _mm512_permutex2var_epi64(s0, high, s1);
        o->seed[j] = _mm512_add_epi32(seed_low, seed_high);
    }
    o->d = wide_d(x, k, b);
}
INLINE __m512 wide_add_q4_0(__m512 acc, const uint8_t *p, const wide_x *x) {
    const __m512i four = _mm512_set1_epi8(15);
    const __m256 d = _mm256_mul_ps(wide_scales(p, 18), x->d);
#pragma GCC unroll 2
    for (int j = 0; j < 4; j += 2) {
        const uint8_t *q = p + 36 * j + 2;
        __m512i u = _mm512_castsi128_si512(vb_load16(q));
        u = _mm512_inserti32x4(u, vb_load16(q + 18), 1);
        u = _mm512_inserti32x4(u, vb_load16(q + 36), 2);
        u = _mm512_inserti32x4(u, vb_load16(q + 54), 3);
        const __m512i low = _mm512_and_si512(u, four);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(u, 4), four);
        __m512i s = _mm512_dpbusd_epi32(x->seed[j], low, x->x[j]);
        s = _mm512_dpbusd_epi32(s, high, x->x[j + 1]);
        acc = wide_fold(acc, s, _mm512_castps256_ps512(d), fours, 2 * j);
    }
    return acc;
}

/* ---- Q6_K: 16 scales; upper bits of 128 columns in 32 bytes, two for each quarter ---------- */
INLINE void wide_x_q6_k(wide_x *o, const uint8_t *x, int64_t k, int64_t b) {
    for (int j = 0; j < 4; j++) {
        o->x[j] = _mm512_loadu_si512(x + WIDE * b + 64 * j);
        o->seed[j] = wide_seed(x, k, WIDE * b + 64 * j, 32);
    }
    o->d = wide_d(x, k, b);
}
static const int64_t first_bits_up[8] = {4, 4, 4, 4, 2, 2, 2, 2};
static const int64_t last_bits_down[8] = {0, 0, 0, 0, 2, 2, 2, 2};
/* The block's 16 scales times those of x. */
INLINE __m512 wide_scales_q6_k(const uint8_t *p, const wide_x *x) {
    const __m512 d = _mm512_set1_ps(v_f16_1(p + 208));
    const __m512 of_x = _mm512_castps256_ps512(x->d);
    const __m512 dx = _mm512_permutexvar_ps(_mm512_loadu_si512(twos), of_x);
    const __m512i whole = _mm512_cvtepi8_epi32(vb_load16(p + 192));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(whole), _mm512_mul_ps(d, dx));
}
INLINE __m512 wide_add_q6_k(__m512 acc, const uint8_t *p, const wide_x *x) {
    const __m512i four = _mm512_set1_epi8(15);
    const __m512i upper = _mm512_set1_epi8(48);
    const __m512i up = _mm512_loadu_si512(first_bits_up);
    const __m512i down = _mm512_loadu_si512(last_bits_down);
    const __m512 scale = wide_scales_q6_k(p, x);
#pragma GCC unroll 2
    for (int j = 0; j < 4; j += 2) {
        const __m512i low = _mm512_loadu_si512(p + 32 * j);
        const __m512i high = _mm512_broadcast_i64x4(vb_load(p + 128 + 16 * j));
        const __m512i first = _mm512_and_si512(low, four);
        const __m512i last = _mm512_and_si512(_mm512_srli_epi16(low, 4), four);
        __m512i u0 = _mm512_and_si512(_mm512_sllv_epi64(high, up), upper);
        __m512i u1 = _mm512_and_si512(_mm512_srlv_epi64(high, down), upper);
        u0 = _mm512_or_si512(u0, first);
        u1 = _mm512_or_si512(u1, last);
        const __m512i s0 = _mm512_dpbusd_epi32(x->seed[j], u0, x->x[j]);
        const __m512i s1 = _mm512_dpbusd_epi32(x->seed[j + 1], u1, x->x[j + 1]);
        acc = wide_fold(acc, s0, scale, fours, 4 * j);
        acc = wide_fold(acc, s1, scale, fours, 4 * j + 4);
    }
    return acc;
}

/* ---- Q4_K: 64 columns in 32 bytes, first their low nibbles; scales and minima of 6 bits ------ */
INLINE void wide_x_q4_k(wide_x *o, const uint8_t *x, int64_t k, int64_t b) {
    for (int j = 0; j < 4; j++)
        o->x[j] = _mm512_loadu_si512(x + WIDE * b + 64 * j);
    const int32_t *sums = mnk_quant_sum(x, k) + WIDE / 32 * b;
    const __m256i sum = _mm256_loadu_si256((const void *)sums);
    const __m256 d = wide_d(x, k, b);
    const __m256 all = _mm256_mul_ps(d, _mm256_cvtepi32_ps(sum));
    o->d_and_sum = _mm512_insertf32x8(_mm512_castps256_ps512(d), all, 1);
}
/* The first 16 bytes of Q4_K, {f16 d, dmin; u8 scale[12]}: eight scales, then eight minima. */
static const struct {
    uint8_t low_from[16];  /* the byte with the lower bits, */
    uint32_t low_down[4];  /* how far up they are, */
    uint32_t low_mask[4];  /* and how many; */
    uint8_t high_from[16]; /* the byte with the upper two bits, 128 where the lower ones are all */
} scales_q4_k = {
    {4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15},
    {0, 0, 0, 4},
    {0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f},
    {128, 128, 128, 128, 4, 5, 6, 7, 128, 128, 128, 128, 8, 9, 10, 11},
};
INLINE __m128i load_dwords(const uint32_t p[4]) {
    return _mm_loadu_si128((const void *)p);
}
INLINE __m512 wide_scales_q4_k(const uint8_t *p) {
    const __m128i head = vb_load16(p);
    __m128i low = _mm_shuffle_epi8(head, vb_load16(scales_q4_k.low_from));
    low = _mm_srlv_epi32(low, load_dwords(scales_q4_k.low_down));
    low = _mm_and_si128(low, load_dwords(scales_q4_k.low_mask));
    __m128i high = _mm_shuffle_epi8(head, vb_load16(scales_q4_k.high_from));
    high = _mm_srli_epi16(high, 2);
    high = _mm_and_si128(high, _mm_set1_epi8(48));
    const __m512i six = _mm512_cvtepu8_epi32(_mm_or_si128(low, high));
    const __m512 both = _mm512_castps128_ps512(_mm_cvtph_ps(head));
    const __m512 by = _mm512_permutexvar_ps(_mm512_loadu_si512(eights), both);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(six), by);
}
static const int64_t second_down[8] = {0, 0, 0, 0, 4, 4, 4, 4};
INLINE __m512 wide_add_q4_k(__m512 acc, const uint8_t *p, const wide_x *x) {
    const __m512i four = _mm512_set1_epi8(15);
    const __m512i down = _mm512_loadu_si512(second_down);
    const __m512 scale = _mm512_mul_ps(wide_scales_q4_k(p), x->d_and_sum);
    acc = _mm512_mask_sub_ps(acc, 0xff00, acc, scale);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512i both = _mm512_broadcast_i64x4(vb_load(p + 16 + 32 * j));
        const __m512i u = _mm512_and_si512(_mm512_srlv_epi64(both, down), four);
        const __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u, x->x[j]);
        acc = wide_fold(acc, s, scale, eights, 2 * j);
    }
    return acc;
}

/* ---- all types ------------------------------------------------------------------------------- */
INLINE void dot_wide(const mnc_weight *w, const int64_t row[MNK_STREAMS], const uint8_t *x,
                     float *out, const wide_type t) {
    mnk_at at[MNK_STREAMS];
    __m512 acc[MNK_STREAMS];
    for (int s = 0; s < MNK_STREAMS; s++) {
        at[s] = mnk_row_at(w, row[s]);
        acc[s] = _mm512_setzero_ps();
    }
    for (int64_t b = 0; b < w->cols / WIDE; b++) {
        wide_x xb;
        t.load_x(&xb, x, w->cols, b);
#pragma GCC unroll 1
        for (int s = 0; s < MNK_STREAMS; s++) {
            const uint8_t *p = at[s].data + b * t.bytes;
            for (int64_t i = 0; i < t.bytes; i += 64)
                v_prefetch(p + WIDE_AHEAD + i);
            acc[s] = t.add(acc[s], p, &xb);
        }
    }
    for (int s = 0; s < MNK_STREAMS; s++)
        out[s] = v_sum(acc[s]);
}
/* X(kernel, bytes of 256 columns) */
#define WIDE_TYPES(X) X(q4_0, 8 * 18) X(q6_k, 210) X(q4_k, 144)
#define WIDE_DOT(type, bytes)                                                                      \
    static void dot_wide_##type(const mnc_weight *w, const int64_t row[MNK_STREAMS],               \
                                const uint8_t *x, float *out) {                                    \
        dot_wide(w, row, x, out, (wide_type){bytes, wide_x_##type, wide_add_##type});              \
    }
#define WIDE_KERNEL(type, bytes)                                                                   \
    [MNK_KERNEL_##type] = {                                                                        \
        .name = #type " dot8 wide " V_NAME,                                                        \
        .x_form = MNK_X_A8,                                                                        \
        .grain = WIDE,                                                                             \
        .dot = dot_wide_##type,                                                                    \
    },
WIDE_TYPES(WIDE_DOT)
const mnk_linear V_ID(mnk_dot8_wide)[MNK_N_KERNELS] = {WIDE_TYPES(WIDE_KERNEL)};
