/* vec_neon.h -- the vector vocabulary for AArch64 Advanced SIMD: 4 lanes. */
#include <arm_neon.h>
#define VL 4
#define MR 4
#define NR 4
typedef float32x4_t VF;
static inline VF v_load(const void *p) {
    return vreinterpretq_f32_u8(vld1q_u8(p));
}
static inline void v_store(void *p, VF v) {
    vst1q_u8(p, vreinterpretq_u8_f32(v));
}
static inline VF v_set1(float x) {
    return vdupq_n_f32(x);
}
static inline VF v_add(VF a, VF b) {
    return vaddq_f32(a, b);
}
static inline VF v_sub(VF a, VF b) {
    return vsubq_f32(a, b);
}
static inline VF v_mul(VF a, VF b) {
    return vmulq_f32(a, b);
}
static inline VF v_div(VF a, VF b) {
    return vdivq_f32(a, b);
}
static inline VF v_fma(VF a, VF b, VF c) {
    return vfmaq_f32(c, a, b);
}
/* b if either is NaN */
static inline VF v_min(VF a, VF b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
static inline VF v_max(VF a, VF b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) {
    return vbslq_f32(vcltq_f32(a, b), x, y);
}
static inline VF v_abs(VF a) {
    return vabsq_f32(a);
}
static inline VF v_copysign(VF a, VF s) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), s, a);
}
static inline float v_sum(VF a) {
    return vaddvq_f32(a);
}
static inline float v_top(VF a) {
    return vmaxvq_f32(a);
}
static inline VF v_round(VF a) {
    return vrndnq_f32(a);
}
static inline VF v_pow2(VF n) {
    const int32x4_t e = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}
static inline VF v_f16(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
static inline VF v_bf16(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
static inline void v_store_f16(uint8_t *p, VF v) {
    vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v)));
}
static inline uint8x8_t v_load4(const uint8_t *p) {
    uint32_t u;
    memcpy(&u, p, 4);
    return vreinterpret_u8_u32(vdup_n_u32(u));
}
static inline uint32x4_t v_bytes4(const uint8_t *p) {
    return vmovl_u16(vget_low_u16(vmovl_u8(v_load4(p))));
}
/* d[i] = by * (byte i - less), i < 8 */
static inline void v_widen8(uint64_t bytes, int less, float by, float *d) {
    const uint16x8_t wide = vmovl_u8(vcreate_u8(bytes));
    const int16x8_t minus = vdupq_n_s16((int16_t)less);
    const int16x8_t w = vsubq_s16(vreinterpretq_s16_u16(wide), minus);
    const VF low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(w)));
    const VF high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(w)));
    vst1q_f32(d, vmulq_n_f32(low, by));
    vst1q_f32(d + 4, vmulq_n_f32(high, by));
}
/* exponent and mantissa as those of an f32, 2^120 too small; 127 is NaN */
static inline VF v_e4m3(const uint8_t *p) {
    uint32x4_t b = v_bytes4(p);
    uint32x4_t a = vandq_u32(b, vdupq_n_u32(127));
    uint32x4_t nan = vceqq_u32(a, vdupq_n_u32(127));
    VF f = vreinterpretq_f32_u32(vshlq_n_u32(a, 20));
    f = vmulq_f32(f, vdupq_n_f32(0x1p120f));
    uint32x4_t sign = vshlq_n_u32(vsubq_u32(b, a), 24);
    uint32x4_t bits = vorrq_u32(vreinterpretq_u32_f32(f), vorrq_u32(nan, sign));
    return vreinterpretq_f32_u32(bits);
}
static inline VF v_e5m2(const uint8_t *p) { /* the upper byte of an f16 */
    const uint8x8_t halves = vzip1_u8(vdup_n_u8(0), v_load4(p));
    return vcvt_f32_f16(vreinterpret_f16_u8(halves));
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
/* ---- 32 bytes: bytes_avx2.h says what these do ----------------------------------------------- */
typedef struct {
    uint8x16_t lo;
    uint8x16_t hi;
} VB;
static inline VB vb_load(const uint8_t *p) {
    return (VB){vld1q_u8(p), vld1q_u8(p + 16)};
}
static inline VB vb_halves(const uint8_t *p) {
    uint8x16_t b = vld1q_u8(p);
    VB v;
    v.lo = vandq_u8(b, vdupq_n_u8(15));
    v.hi = vshrq_n_u8(b, 4);
    return v;
}
static inline VB vb_pairs(const uint8_t *p) {
    VB v = vb_halves(p);
    VB pairs;
    pairs.lo = vzip1q_u8(v.lo, v.hi);
    pairs.hi = vzip2q_u8(v.lo, v.hi);
    return pairs;
}
static inline VB vb_field(VB v, int shift, uint8_t mask) {
    int8x16_t by = vdupq_n_s8((int8_t)-shift);
    uint8x16_t keep = vdupq_n_u8(mask);
    v.lo = vandq_u8(vshlq_u8(v.lo, by), keep);
    v.hi = vandq_u8(vshlq_u8(v.hi, by), keep);
    return v;
}
static inline VB vb_or(VB v, VB w) {
    v.lo = vorrq_u8(v.lo, w.lo);
    v.hi = vorrq_u8(v.hi, w.hi);
    return v;
}
static inline VB vb_less(VB v, uint8_t n) {
    v.lo = vsubq_u8(v.lo, vdupq_n_u8(n));
    v.hi = vsubq_u8(v.hi, vdupq_n_u8(n));
    return v;
}
static inline VB vb_flip(VB v) {
    v.lo = veorq_u8(v.lo, vdupq_n_u8(128));
    v.hi = veorq_u8(v.hi, vdupq_n_u8(128));
    return v;
}
static inline VB vb_bits(uint32_t bits, uint8_t to) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    const uint8x16_t t = vdupq_n_u8(to);
    const uint8x8_t b0 = vdup_n_u8((uint8_t)bits);
    const uint8x8_t b1 = vdup_n_u8((uint8_t)(bits >> 8));
    const uint8x8_t b2 = vdup_n_u8((uint8_t)(bits >> 16));
    const uint8x8_t b3 = vdup_n_u8((uint8_t)(bits >> 24));
    VB v;
    v.lo = vandq_u8(vtstq_u8(vcombine_u8(b0, b1), bit), t);
    v.hi = vandq_u8(vtstq_u8(vcombine_u8(b2, b3), bit), t);
    return v;
}
static inline VB vb_lookup(VB v, const uint8_t table[16]) {
    uint8x16_t t = vld1q_u8(table);
    v.lo = vqtbl1q_u8(t, v.lo);
    v.hi = vqtbl1q_u8(t, v.hi);
    return v;
}
static inline VB vb_mirror(VB v, uint32_t bits, uint8_t top) {
    const VB mask = vb_bits(bits, 255);
    const uint8x16_t most = vdupq_n_u8(top);
    v.lo = vbslq_u8(mask.lo, vsubq_u8(most, v.lo), v.lo);
    v.hi = vbslq_u8(mask.hi, vsubq_u8(most, v.hi), v.hi);
    return v;
}
/* How many of the thresholds 86 and 171 are reached: comparisons give 255, which is one less. */
static inline uint8x16_t ternary_half(uint8x16_t v, uint8x16_t by) {
    const uint8x16_t left = vmulq_u8(v, by);
    const uint8x16_t first = vcgeq_u8(left, vdupq_n_u8(86));
    const uint8x16_t second = vcgeq_u8(left, vdupq_n_u8(171));
    return vsubq_u8(vsubq_u8(vdupq_n_u8(0), first), second);
}
static inline VB vb_ternary(VB v, VB by) {
    v.lo = ternary_half(v.lo, by.lo);
    v.hi = ternary_half(v.hi, by.hi);
    return v;
}
static inline VB vb_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint64x2_t lo = vcombine_u64(vcreate_u64(a), vcreate_u64(b));
    const uint64x2_t hi = vcombine_u64(vcreate_u64(c), vcreate_u64(d));
    return (VB){vreinterpretq_u8_u64(lo), vreinterpretq_u8_u64(hi)};
}
#include "bytes_plain.h"
static inline VF v_of(VB v, int64_t e) { /* signed bytes [e, e + 4), e a multiple of 4 */
    int8x16_t h = vreinterpretq_s8_u8(e < 16 ? v.lo : v.hi);
    int8x8_t eight = e & 8 ? vget_high_s8(h) : vget_low_s8(h);
    int16x8_t w = vmovl_s8(eight);
    int16x4_t four = e & 4 ? vget_high_s16(w) : vget_low_s16(w);
    return vcvtq_f32_s32(vmovl_s16(four));
}
/* ---- 8-bit products: dot8_x86.h says what these do. Both factors are signed here. ---------- */
typedef struct {
    int8x16_t lo;
    int8x16_t hi;
} VX;
static inline VX vx_load(const int8_t *x, const int32_t *sum4, const int off) {
    (void)sum4;
    (void)off;
    return (VX){vld1q_s8(x), vld1q_s8(x + 16)};
}
static inline int32x4_t v_dot16(int32x4_t s, int8x16_t a, int8x16_t x) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(s, a, x);
#else /* -128 * 127 twice would not fit 16 bits: widen each */
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(x));
    s = vpadalq_s16(s, low);
    return vpadalq_s16(s, vmull_high_s8(a, x));
#endif
}
static inline VF vx_fold(VF acc, VB u, const VX *x, const float *d, const int group,
                         const int off) {
    const uint8x16_t less = vdupq_n_u8((uint8_t)off);
    const int32x4_t none = vdupq_n_s32(0);
    int8x16_t lo = vreinterpretq_s8_u8(vsubq_u8(u.lo, less));
    int8x16_t hi = vreinterpretq_s8_u8(vsubq_u8(u.hi, less));
    int32x4_t sum = v_dot16(none, lo, x->lo);
    if (group == 32) {
        sum = v_dot16(sum, hi, x->hi);
        return vfmaq_n_f32(acc, vcvtq_f32_s32(sum), d[0]);
    }
    acc = vfmaq_n_f32(acc, vcvtq_f32_s32(sum), d[0]);
    sum = v_dot16(none, hi, x->hi);
    return vfmaq_n_f32(acc, vcvtq_f32_s32(sum), d[1]);
}
#ifdef __ARM_FEATURE_MATMUL_INT8
#include "panel_i8mm.h"
#elif defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
enum { PAIR_SIDE = 8, PAIR_MOST = 8 };
#include "pairs.h"
#endif
