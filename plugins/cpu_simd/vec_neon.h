/* vec_neon.h -- the vector vocabulary for AArch64 Advanced SIMD: 4 lanes. */
#include <arm_neon.h>
#define VL 4
#define MR 4
#define NR 4
typedef float32x4_t VF;
static inline VF v_load(const void *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
static inline void v_store(void *p, VF v) { vst1q_u8(p, vreinterpretq_u8_f32(v)); }
static inline VF v_set1(float x) { return vdupq_n_f32(x); }
static inline VF v_add(VF a, VF b) { return vaddq_f32(a, b); }
static inline VF v_sub(VF a, VF b) { return vsubq_f32(a, b); }
static inline VF v_mul(VF a, VF b) { return vmulq_f32(a, b); }
static inline VF v_div(VF a, VF b) { return vdivq_f32(a, b); }
static inline VF v_fma(VF a, VF b, VF c) { return vfmaq_f32(c, a, b); }
static inline VF v_min(VF a, VF b) { return vbslq_f32(vcltq_f32(a, b), a, b); } /* b if either is NaN */
static inline VF v_max(VF a, VF b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
static inline VF v_abs(VF a) { return vabsq_f32(a); }
static inline VF v_copysign(VF a, VF s) { return vbslq_f32(vdupq_n_u32(0x80000000u), s, a); }
static inline float v_sum(VF a) { return vaddvq_f32(a); }
static inline float v_top(VF a) { return vmaxvq_f32(a); }
static inline VF v_round(VF a) { return vrndnq_f32(a); }
static inline VF v_pow2(VF n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline VF v_f16(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
static inline VF v_bf16(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
static inline void v_store_f16(uint8_t *p, VF v) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v))); }
static inline int8x8_t v_load4(const uint8_t *p) {
    uint32_t u;
    memcpy(&u, p, 4);
    return vreinterpret_s8_u32(vdup_n_u32(u));
}
static inline VF v_widen(int8x8_t v) { return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(v)))); }
static inline VF v_i8(const uint8_t *p) { return v_widen(v_load4(p)); }
static inline VF v_lo4(const uint8_t *p) { return v_widen(vsub_s8(vand_s8(v_load4(p), vdup_n_s8(15)), vdup_n_s8(8))); }
static inline VF v_hi4(const uint8_t *p) {
    return v_widen(vsub_s8(vreinterpret_s8_u8(vshr_n_u8(vreinterpret_u8_s8(v_load4(p)), 4)), vdup_n_s8(8)));
}
static inline float v_f16_1(const uint8_t *p) { return mnk_f16(mnk_u16(p)); }
static inline void v_prefetch(const uint8_t *p) { __builtin_prefetch(p); }
static inline VF v_dot_i8(int8x16_t a, int8x16_t b, int8x16_t x, int8x16_t y) {
#ifdef __ARM_FEATURE_DOTPROD
    return vcvtq_f32_s32(vdotq_s32(vdotq_s32(vdupq_n_s32(0), a, x), b, y));
#else
    int32x4_t s =
        vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(x))); /* -128 * 127 twice would not fit 16 bits: widen each */
    s = vpadalq_s16(s, vmull_high_s8(a, x));
    s = vpadalq_s16(s, vmull_s8(vget_low_s8(b), vget_low_s8(y)));
    return vcvtq_f32_s32(vpadalq_s16(s, vmull_high_s8(b, y)));
#endif
}
static inline VF v_dot_q8(const uint8_t *w, const int8_t *x) {
    return v_dot_i8(vreinterpretq_s8_u8(vld1q_u8(w)), vreinterpretq_s8_u8(vld1q_u8(w + 16)), vld1q_s8(x),
                    vld1q_s8(x + 16));
}
static inline VF v_dot_q4(const uint8_t *w, const int8_t *x) {
    uint8x16_t b = vld1q_u8(w);
    int8x16_t lo = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(15))), vdupq_n_s8(8));
    int8x16_t hi = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(b, 4)), vdupq_n_s8(8));
    return v_dot_i8(lo, hi, vld1q_s8(x), vld1q_s8(x + 16));
}
