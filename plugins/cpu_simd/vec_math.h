/* vec_math.h -- exponentials on the vocabulary of vec_*.h. */
#include <math.h>

/* term[0] x^(n - 1) + ... + term[n - 1] */
INLINE VF v_polynomial(VF x, const float *term, const int n) {
    VF sum = v_set1(term[0]);
#pragma GCC unroll 8
    for (int i = 1; i < n; i++)
        sum = v_fma(sum, x, v_set1(term[i]));
    return sum;
}

/* (exp(x) - 1 - x) / x^2 for |x| up to half of ln 2 (Cephes) */
static inline VF v_exp_series(VF x) {
    static const float term[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    return v_polynomial(x, term, 6);
}

/* exp to about 1 ulp; 0 below -87.33, infinity above 88.37; NaN stays. */
static inline VF v_exp(VF x0) {
    VF x = v_min(v_set1(88.37f), x0);
    x = v_max(v_set1(-87.33f), x);
    VF n = v_mul(x, v_set1(1.44269504f));
    n = v_round(n);
    VF r = v_fma(n, v_set1(-0.693359375f), x);
    r = v_fma(n, v_set1(2.12194440e-4f), r);
    VF p = v_exp_series(r);
    p = v_fma(p, v_mul(r, r), r);
    p = v_add(p, v_set1(1.0f));
    p = v_mul(p, v_pow2(n));
    p = v_sel_lt(v_set1(88.37f), x0, v_set1(INFINITY), p);
    return v_sel_lt(x0, v_set1(-87.33f), v_set1(0), p);
}
/* exp(x) - 1 - x for x <= 0, without what cancels near 0 */
static inline VF v_exp_rest(VF x) {
    const VF near = v_mul(v_mul(x, x), v_exp_series(x));
    const VF far = v_sub(v_sub(v_exp(x), v_set1(1)), x);
    return v_sel_lt(v_set1(-0.34f), x, near, far);
}
static inline VF v_tanh(VF x) { /* Cephes: a polynomial where 1 - 2 / (e^2x + 1) would cancel */
    static const float term[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                                 1.33314422036e-1f, -3.33332819422e-1f};
    VF a = v_abs(x);
    VF z = v_mul(x, x);
    VF p = v_polynomial(z, term, 5);
    p = v_fma(v_mul(p, z), x, x);
    VF big = v_add(v_exp(v_add(a, a)), v_set1(1));
    VF e = v_sub(v_set1(1), v_div(v_set1(2), big));
    return v_sel_lt(a, v_set1(0.625f), p, v_copysign(e, x));
}
