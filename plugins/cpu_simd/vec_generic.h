/* vec_generic.h -- the vector vocabulary in plain C: 4 lanes, whatever the compiler makes of them. */
#define VL 4
#define MR 2
#define NR 4
#define VNAME "generic"
#define V_ID(name) name##_generic
typedef float VF __attribute__((vector_size(16)));
typedef int32_t VI __attribute__((vector_size(16)));
static inline VF v_load(const void *p) {
    VF v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v_store(void *p, VF v) { memcpy(p, &v, sizeof v); }
static inline VF v_set1(float x) { return (VF){x, x, x, x}; }
static inline VF v_add(VF a, VF b) { return a + b; }
static inline VF v_sub(VF a, VF b) { return a - b; }
static inline VF v_mul(VF a, VF b) { return a * b; }
static inline VF v_div(VF a, VF b) { return a / b; }
static inline VF v_fma(VF a, VF b, VF c) { return a * b + c; }
static inline VF v_sel(VI m, VF a, VF b) { return (VF)(((VI)a & m) | ((VI)b & ~m)); }
static inline VF v_min(VF a, VF b) { return v_sel((VI)(a < b), a, b); } /* b if either is NaN */
static inline VF v_max(VF a, VF b) { return v_sel((VI)(a > b), a, b); }
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) { return v_sel((VI)(a < b), x, y); }
static inline VF v_abs(VF a) { return (VF)((VI)a & 0x7fffffff); }
static inline VF v_copysign(VF a, VF s) { return (VF)(((VI)a & 0x7fffffff) | ((VI)s & (int32_t)0x80000000)); }
static inline float v_sum(VF a) { return (a[0] + a[2]) + (a[1] + a[3]); }
static inline float v_top(VF a) {
    float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
}
static inline VF v_round(VF a) {
    const VF big = v_set1(0x1.8p23f);
    return (a + big) - big;
} /* |a| < 2^22 */
static inline VF v_pow2(VF n) { return (VF)(((VI)(n + v_set1(0x1.8p23f)) + 127) << 23); } /* integers, -126..127 */
static inline VF v_f16(const uint8_t *p) {
    return (VF){mnk_f16(mnk_u16(p)), mnk_f16(mnk_u16(p + 2)), mnk_f16(mnk_u16(p + 4)), mnk_f16(mnk_u16(p + 6))};
}
static inline VF v_bf16(const uint8_t *p) {
    return (VF){mnk_bf16(mnk_u16(p)), mnk_bf16(mnk_u16(p + 2)), mnk_bf16(mnk_u16(p + 4)), mnk_bf16(mnk_u16(p + 6))};
}
static inline void v_store_f16(uint8_t *p, VF v) {
    for (int i = 0; i < 4; i++) {
        uint16_t h = mnk_to_f16(v[i]);
        memcpy(p + 2 * i, &h, 2);
    }
}
static inline VF v_i8(const uint8_t *p) { return (VF){(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]}; }
static inline VF v_lo4(const uint8_t *p) {
    return (VF){(float)((p[0] & 15) - 8), (float)((p[1] & 15) - 8), (float)((p[2] & 15) - 8), (float)((p[3] & 15) - 8)};
}
static inline VF v_hi4(const uint8_t *p) {
    return (VF){(float)((p[0] >> 4) - 8), (float)((p[1] >> 4) - 8), (float)((p[2] >> 4) - 8), (float)((p[3] >> 4) - 8)};
}
static inline float v_f16_1(const uint8_t *p) { return mnk_f16(mnk_u16(p)); }
static inline void v_prefetch(const uint8_t *p) { __builtin_prefetch(p); }
/* ---- 8-bit dot products of a block of 32, as partial sums in f32 lanes ---- */
static inline VF v_dot_q8(const uint8_t *w, const int8_t *x) { /* signed times signed */
    int32_t s[4] = {0, 0, 0, 0};
    for (int i = 0; i < 32; i++) s[i & 3] += (int8_t)w[i] * x[i];
    return (VF){(float)s[0], (float)s[1], (float)s[2], (float)s[3]};
}
static inline VF v_dot_q4(const uint8_t *w, const int8_t *x) { /* nibbles less 8 */
    int32_t s[4] = {0, 0, 0, 0};
    for (int i = 0; i < 16; i++) s[i & 3] += ((w[i] & 15) - 8) * x[i] + ((w[i] >> 4) - 8) * x[16 + i];
    return (VF){(float)s[0], (float)s[1], (float)s[2], (float)s[3]};
}
