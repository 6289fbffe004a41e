/* vec_generic.h -- the vector vocabulary in plain C: 4 lanes, whatever the compiler makes of
 * them. */
#define VL 4
#define MR 2
#define NR 4
typedef float VF __attribute__((vector_size(16)));
typedef int32_t VI __attribute__((vector_size(16)));
typedef uint32_t VU __attribute__((vector_size(16)));
static inline VF v_load(const void *p) {
    VF v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v_store(void *p, VF v) {
    memcpy(p, &v, sizeof v);
}
static inline VF v_set1(float x) {
    return (VF){x, x, x, x};
}
static inline VF v_add(VF a, VF b) {
    return a + b;
}
static inline VF v_sub(VF a, VF b) {
    return a - b;
}
static inline VF v_mul(VF a, VF b) {
    return a * b;
}
static inline VF v_div(VF a, VF b) {
    return a / b;
}
static inline VF v_fma(VF a, VF b, VF c) {
    return a * b + c;
}
static inline VF v_sel(VI m, VF a, VF b) {
    const VI from_a = (VI)a & m;
    const VI from_b = (VI)b & ~m;
    return (VF)(from_a | from_b);
}
static inline VF v_min(VF a, VF b) {
    return v_sel((VI)(a < b), a, b);
} /* b if either is NaN */
static inline VF v_max(VF a, VF b) {
    return v_sel((VI)(a > b), a, b);
}
static inline VF v_sel_lt(VF a, VF b, VF x, VF y) {
    return v_sel((VI)(a < b), x, y);
}
static inline VF v_abs(VF a) {
    return (VF)((VI)a & 0x7fffffff);
}
static inline VF v_copysign(VF a, VF s) {
    const VI size = (VI)a & 0x7fffffff;
    const VI sign = (VI)s & (int32_t)0x80000000;
    return (VF)(size | sign);
}
static inline float v_sum(VF a) {
    const float even = a[0] + a[2];
    const float odd = a[1] + a[3];
    return even + odd;
}
static inline float v_top(VF a) {
    float x = a[0] > a[1] ? a[0] : a[1];
    float y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
}
static inline VF v_round(VF a) {
    const VF big = v_set1(0x1.8p23f);
    return (a + big) - big;
} /* |a| < 2^22 */
/* integers, -126..127; a NaN gives anything, without an overflow of signed numbers */
static inline VF v_pow2(VF n) {
    const VU bits = (VU)(n + v_set1(0x1.8p23f));
    return (VF)((bits + 127) << 23);
}
static inline VF v_f16(const uint8_t *p) {
    const float a = mnk_f16(mnk_u16(p));
    const float b = mnk_f16(mnk_u16(p + 2));
    const float c = mnk_f16(mnk_u16(p + 4));
    const float d = mnk_f16(mnk_u16(p + 6));
    return (VF){a, b, c, d};
}
static inline VF v_bf16(const uint8_t *p) {
    const float a = mnk_bf16(mnk_u16(p));
    const float b = mnk_bf16(mnk_u16(p + 2));
    const float c = mnk_bf16(mnk_u16(p + 4));
    const float d = mnk_bf16(mnk_u16(p + 6));
    return (VF){a, b, c, d};
}
static inline void v_store_f16(uint8_t *p, VF v) {
    for (int i = 0; i < 4; i++) {
        uint16_t h = mnk_to_f16(v[i]);
        memcpy(p + 2 * i, &h, 2);
    }
}
/* d[i] = by * (byte i - less), i < 8 */
static inline void v_widen8(uint64_t bytes, int less, float by, float *d) {
    for (int i = 0; i < 8; i++) {
        const int byte = bytes >> 8 * i & 255;
        d[i] = by * (float)(byte - less);
    }
}
static inline VF v_e4m3(const uint8_t *p) {
    const float a = mnk_e4m3(p[0]);
    const float b = mnk_e4m3(p[1]);
    const float c = mnk_e4m3(p[2]);
    const float d = mnk_e4m3(p[3]);
    return (VF){a, b, c, d};
}
static inline float f8_e5m2(uint8_t b) {
    return mnk_f16((uint16_t)(b << 8));
}
static inline VF v_e5m2(const uint8_t *p) {
    const float a = f8_e5m2(p[0]);
    const float b = f8_e5m2(p[1]);
    const float c = f8_e5m2(p[2]);
    const float d = f8_e5m2(p[3]);
    return (VF){a, b, c, d};
}
static inline float v_f16_1(const uint8_t *p) {
    return mnk_f16(mnk_u16(p));
}
static inline void v_f16_2(const uint8_t *p, float *a, float *b) {
    *a = v_f16_1(p);
    *b = v_f16_1(p + 2);
}
static inline void v_prefetch(const uint8_t *p) {
    __builtin_prefetch(p);
}
/* ---- 32 bytes: bytes_avx2.h says what these do ----------------------------------------------- */
typedef struct {
    uint8_t b[32];
} VB;
static inline VB vb_load(const uint8_t *p) {
    VB v;
    memcpy(v.b, p, 32);
    return v;
}
static inline VB vb_halves(const uint8_t *p) {
    VB v;
    for (int i = 0; i < 16; i++) {
        v.b[i] = p[i] & 15;
        v.b[16 + i] = p[i] >> 4;
    }
    return v;
}
static inline VB vb_pairs(const uint8_t *p) {
    VB v;
    for (int i = 0; i < 16; i++) {
        v.b[2 * i] = p[i] & 15;
        v.b[2 * i + 1] = p[i] >> 4;
    }
    return v;
}
static inline VB vb_field(VB v, int shift, uint8_t mask) {
    for (int i = 0; i < 32; i++) {
        const int moved = shift < 0 ? v.b[i] << -shift : v.b[i] >> shift;
        v.b[i] = (uint8_t)(moved & mask);
    }
    return v;
}
static inline VB vb_or(VB v, VB w) {
    for (int i = 0; i < 32; i++)
        v.b[i] |= w.b[i];
    return v;
}
static inline VB vb_less(VB v, uint8_t n) {
    for (int i = 0; i < 32; i++)
        v.b[i] = (uint8_t)(v.b[i] - n);
    return v;
}
static inline VB vb_flip(VB v) {
    for (int i = 0; i < 32; i++)
        v.b[i] ^= 0x80;
    return v;
}
static inline VB vb_bits(uint32_t bits, uint8_t to) {
    VB v;
    for (int i = 0; i < 32; i++)
        v.b[i] = bits >> i & 1 ? to : 0;
    return v;
}
static inline VB vb_lookup(VB v, const uint8_t table[16]) {
    for (int i = 0; i < 32; i++)
        v.b[i] = table[v.b[i]];
    return v;
}
static inline VB vb_mirror(VB v, uint32_t bits, uint8_t top) {
    for (int i = 0; i < 32; i++)
        if (bits >> i & 1)
            v.b[i] = (uint8_t)(top - v.b[i]);
    return v;
}
static inline VB vb_ternary(VB v, VB by) {
    for (int i = 0; i < 32; i++) {
        const uint8_t left = (uint8_t)(v.b[i] * by.b[i]);
        v.b[i] = (uint8_t)(left * 3 >> 8);
    }
    return v;
}
static inline VB vb_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint64_t w[4] = {a, b, c, d};
    VB v;
    memcpy(v.b, w, 32);
    return v;
}
#include "bytes_plain.h"
static inline VF v_of(VB v, int64_t e) { /* signed bytes [e, e + 4) */
    const int8_t *b = (const int8_t *)v.b + e;
    return (VF){b[0], b[1], b[2], b[3]};
}
/* ---- 8-bit products: dot8_x86.h says what these do ----------------------------------------- */
typedef struct {
    const int8_t *x;
} VX;
static inline VX vx_load(const int8_t *x, const int32_t *sum4, const int off) {
    (void)sum4;
    (void)off;
    return (VX){x};
}
/* A function of its own: GCC makes more of its loops than of eight copies in a body's. */
static NOINLINE __attribute__((unused)) VF vx_fold(VF acc, VB u, const VX *x, const float *d,
                                                   const int group, const int off) {
    int32_t s[4] = {0};
    int32_t t[4] = {0};
    for (int i = 0; i < 16; i++) {
        const int low_byte = u.b[i] - off;
        const int high_byte = u.b[16 + i] - off;
        s[i & 3] += low_byte * x->x[i];
        t[i & 3] += high_byte * x->x[16 + i];
    }
    const VF low = {(float)s[0], (float)s[1], (float)s[2], (float)s[3]};
    const VF high = {(float)t[0], (float)t[1], (float)t[2], (float)t[3]};
    return acc + v_set1(d[0]) * low + v_set1(d[group < 32]) * high;
}
