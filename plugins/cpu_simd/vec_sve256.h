/* vec_sve256.h -- the vector vocabulary for SVE with vectors of 256 bits: 8 lanes. The unit is
 * compiled for this length alone (-msve-vector-bits), so that vectors can be in arrays. */
#include <arm_sve.h>
#define VL 8
#define MR 4
#define NR 4
#define FIXED __attribute__((arm_sve_vector_bits(256)))
typedef svfloat32_t VF FIXED;
typedef svuint8_t VB FIXED; /* 32 bytes: bytes_avx2.h says what functions of them do */
typedef svint8_t signed_bytes FIXED;
/* all lanes */
#define ALL svptrue_b32()
#define ALL8 svptrue_b8()

static inline VF v_load(const void *p) {
    const svuint8_t bytes = svld1_u8(ALL8, p);
    return svreinterpret_f32_u8(bytes);
}
static inline void v_store(void *p, VF v) {
    const svuint8_t bytes = svreinterpret_u8_f32(v);
    svst1_u8(ALL8, p, bytes);
}
static inline VF v_set1(float x) {
    return svdup_n_f32(x);
}
static inline VF v_add(VF a, VF b) {
    return svadd_f32_x(ALL, a, b);
}
static inline VF v_sub(VF a, VF b) {
    return svsub_f32_x(ALL, a, b);
}
static inline VF v_mul(VF a, VF b) {
    return svmul_f32_x(ALL, a, b);
}
static inline VF v_div(VF a, VF b) {
    return svdiv_f32_x(ALL, a, b);
}
static inline VF v_fma(VF a, VF b, VF c) {
    return svmla_f32_x(ALL, c, a, b);
}
/* b if either is NaN */
static inline VF v_min(VF a, VF b) {
    const svbool_t less = svcmplt_f32(ALL, a, b);
    return svsel_f32(less, a, b);
}
static inline VF v_max(VF a, VF b) {
    const svbool_t more = svcmpgt_f32(ALL, a, b);
    return svsel_f32(more, a, b);
}
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) {
    const svbool_t less = svcmplt_f32(ALL, a, b);
    return svsel_f32(less, x, y);
}
static inline VF v_abs(VF a) {
    return svabs_f32_x(ALL, a);
}
static inline VF v_copysign(VF a, VF s) {
    const svuint32_t of_a = svreinterpret_u32_f32(a);
    const svuint32_t of_s = svreinterpret_u32_f32(s);
    const svuint32_t size = svand_n_u32_x(ALL, of_a, 0x7fffffffu);
    const svuint32_t sign = svand_n_u32_x(ALL, of_s, 0x80000000u);
    const svuint32_t both = svorr_u32_x(ALL, size, sign);
    return svreinterpret_f32_u32(both);
}
static inline float v_sum(VF a) {
    return svaddv_f32(ALL, a);
}
static inline float v_top(VF a) {
    return svmaxv_f32(ALL, a);
}
static inline VF v_round(VF a) {
    return svrintn_f32_x(ALL, a);
}
static inline VF v_pow2(VF n) {
    const svint32_t whole = svcvt_s32_f32_x(ALL, n);
    const svint32_t e = svadd_n_s32_x(ALL, whole, 127);
    const svint32_t bits = svlsl_n_s32_x(ALL, e, 23);
    return svreinterpret_f32_s32(bits);
}
/* Eight 16-bit values, each in the low half of a lane, where conversions want an f16. */
static inline svuint32_t halves_of(const uint8_t *p) {
    return svld1uh_u32(ALL, (const uint16_t *)(const void *)p);
}
static inline VF v_f16(const uint8_t *p) {
    const svuint32_t halves = halves_of(p);
    return svcvt_f32_f16_x(ALL, svreinterpret_f16_u32(halves));
}
static inline VF v_bf16(const uint8_t *p) {
    const svuint32_t halves = halves_of(p);
    const svuint32_t bits = svlsl_n_u32_x(ALL, halves, 16);
    return svreinterpret_f32_u32(bits);
}
static inline void v_store_f16(uint8_t *p, VF v) {
    const svfloat16_t rounded = svcvt_f16_f32_x(ALL, v);
    const svuint32_t halves = svreinterpret_u32_f16(rounded);
    svst1h_u32(ALL, (uint16_t *)(void *)p, halves);
}
/* d[i] = by * (byte i - less), i < 8 */
static inline void v_widen8(uint64_t bytes, int less, float by, float *d) {
    const svuint32_t wide = svld1ub_u32(ALL, (const uint8_t *)&bytes);
    const svint32_t w = svsub_n_s32_x(ALL, svreinterpret_s32_u32(wide), less);
    const svfloat32_t f = svcvt_f32_s32_x(ALL, w);
    const svfloat32_t product = svmul_n_f32_x(ALL, f, by);
    svst1_f32(ALL, d, product);
}
/* exponent and mantissa as those of an f32, 2^120 too small; 127 is NaN */
static inline VF v_e4m3(const uint8_t *p) {
    const svuint32_t b = svld1ub_u32(ALL, p);
    const svuint32_t a = svand_n_u32_x(ALL, b, 127);
    const svbool_t nan = svcmpeq_n_u32(ALL, a, 127);
    const svuint32_t moved = svlsl_n_u32_x(ALL, a, 20);
    const VF f = svreinterpret_f32_u32(moved);
    const VF size = svmul_n_f32_x(ALL, f, 0x1p120f);
    const svuint32_t of_size = svreinterpret_u32_f32(size);
    const svuint32_t top = svsub_u32_x(ALL, b, a);
    const svuint32_t sign = svlsl_n_u32_x(ALL, top, 24);
    const svuint32_t bits = svorr_u32_x(ALL, of_size, sign);
    const svuint32_t all_bits = svorr_n_u32_m(nan, bits, ~0u);
    return svreinterpret_f32_u32(all_bits);
}
static inline VF v_e5m2(const uint8_t *p) { /* the upper byte of an f16 */
    const svuint32_t bytes = svld1ub_u32(ALL, p);
    const svuint32_t halves = svlsl_n_u32_x(ALL, bytes, 8);
    return svcvt_f32_f16_x(ALL, svreinterpret_f16_u32(halves));
}
static inline float v_f16_1(const uint8_t *p) { /* one instruction, of every AArch64 CPU */
    __fp16 half;
    memcpy(&half, p, sizeof half);
    return (float)half;
}
static inline void v_f16_2(const uint8_t *p, float *a, float *b) {
    *a = v_f16_1(p);
    *b = v_f16_1(p + 2);
}
/* Inlined early: GCC takes a function that does nothing else for one without effect and drops its
 * calls. */
static inline __attribute__((always_inline)) void v_prefetch(const uint8_t *p) {
    __builtin_prefetch(p);
}
/* ---- 32 bytes -------------------------------------------------------------------------------- */
static inline VB vb_load(const uint8_t *p) {
    return svld1_u8(ALL8, p);
}
static inline VB vb_halves(const uint8_t *p) {
    const svbool_t upper = svnot_b_z(ALL8, svptrue_pat_b8(SV_VL16));
    const svuint8_t twice = svld1rq_u8(ALL8, p);
    const svuint8_t moved = svlsr_n_u8_m(upper, twice, 4);
    return svand_n_u8_x(ALL8, moved, 15);
}
static inline VB vb_pairs(const uint8_t *p) {
    const svbool_t all = svptrue_b16();
    const svuint16_t wide = svld1ub_u16(all, p);
    const svuint16_t low = svand_n_u16_x(all, wide, 0x000f);
    const svuint16_t moved = svlsl_n_u16_x(all, wide, 4);
    const svuint16_t high = svand_n_u16_x(all, moved, 0x0f00);
    const svuint16_t pairs = svorr_u16_x(all, low, high);
    return svreinterpret_u8_u16(pairs);
}
static inline VB vb_field(VB v, int shift, uint8_t mask) {
    VB moved;
    if (shift < 0)
        moved = svlsl_n_u8_x(ALL8, v, (uint8_t)-shift);
    else
        moved = svlsr_n_u8_x(ALL8, v, (uint8_t)shift);
    return svand_n_u8_x(ALL8, moved, mask);
}
static inline VB vb_or(VB v, VB w) {
    return svorr_u8_x(ALL8, v, w);
}
static inline VB vb_less(VB v, uint8_t n) {
    return svsub_n_u8_x(ALL8, v, n);
}
static inline VB vb_flip(VB v) {
    return sveor_n_u8_x(ALL8, v, 128);
}
static inline VB vb_bits(uint32_t bits, uint8_t to) {
    const svuint8_t place = svindex_u8(0, 1);
    const svuint8_t byte = svlsr_n_u8_x(ALL8, place, 3);
    const svuint32_t words = svdup_n_u32(bits);
    const svuint8_t spread = svtbl_u8(svreinterpret_u8_u32(words), byte);
    const svuint64_t masks = svdup_n_u64(0x8040201008040201u);
    const svuint8_t bit = svreinterpret_u8_u64(masks);
    const svuint8_t found = svand_u8_x(ALL8, spread, bit);
    const svbool_t set = svcmpne_n_u8(ALL8, found, 0);
    return svdup_n_u8_z(set, to);
}
static inline VB vb_lookup(VB v, const uint8_t table[16]) {
    const svuint8_t twice = svld1rq_u8(ALL8, table);
    return svtbl_u8(twice, v);
}
static inline VB vb_mirror(VB v, uint32_t bits, uint8_t top) {
    const svuint8_t mask = vb_bits(bits, 255);
    const svuint8_t other = svsub_u8_x(ALL8, svdup_n_u8(top), v);
    return svsel_u8(svcmpne_n_u8(ALL8, mask, 0), other, v);
}
static inline VB vb_ternary(VB v, VB by) {
    const svuint8_t left = svmul_u8_x(ALL8, v, by);
    return svmulh_n_u8_x(ALL8, left, 3);
}
static inline VB vb_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint64_t w[4] = {a, b, c, d};
    const svuint64_t words = svld1_u64(svptrue_b64(), w);
    return svreinterpret_u8_u64(words);
}
#include "bytes_plain.h"
static inline VF v_of(VB v, int64_t e) { /* signed bytes [e, e + 8), e a multiple of 8 */
    const svint8_t s = svreinterpret_s8_u8(v);
    const svint16_t half = e < 16 ? svunpklo_s16(s) : svunpkhi_s16(s);
    const svint32_t eight = e & 8 ? svunpkhi_s32(half) : svunpklo_s32(half);
    return svcvt_f32_s32_x(ALL, eight);
}
/* ---- 8-bit products: dot8_x86.h says what these do. Both factors are signed here. ---------- */
typedef struct {
    signed_bytes q;
} VX;
static inline VX vx_load(const int8_t *x, const int32_t *sum4, const int off) {
    (void)sum4;
    (void)off;
    return (VX){svld1_s8(ALL8, x)};
}
static inline VF vx_fold(VF acc, VB u, const VX *x, const float *d, const int group,
                         const int off) {
    const svuint8_t less = svsub_n_u8_x(ALL8, u, (uint8_t)off);
    const svint8_t s = svreinterpret_s8_u8(less);
    const svint32_t sum = svdot_s32(svdup_n_s32(0), s, x->q);
    const svfloat32_t products = svcvt_f32_s32_x(ALL, sum);
    svfloat32_t by = svdup_n_f32(d[0]);
    if (group < 32)
        by = svsel_f32(svptrue_pat_b32(SV_VL4), by, svdup_n_f32(d[1]));
    return svmla_f32_x(ALL, acc, products, by);
}
