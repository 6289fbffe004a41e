/* rows_state.c -- the inner loops of CONV_STATE, SSM_SCAN and GATED_DELTA on the vocabulary of
 * vec_*.h: one row of a sequence at a time, in the order of rows. A column of a state is never
 * mixed with another, and the sums of a column have one order: results depend on neither the rows
 * of a step nor on the threads. */
#include "vec.h"

/* ---- vectors of which some lanes count ------------------------------------------------------- */
INLINE VF load_lanes(const float *p, const bool whole, int64_t lanes) {
    float some[VL] = {0};
    if (whole)
        return v_load(p);
    memcpy(some, p, (size_t)lanes * sizeof *p);
    return v_load(some);
}
INLINE void store_lanes(float *p, VF v, const bool whole, int64_t lanes) {
    float some[VL];
    if (whole) {
        v_store(p, v);
        return;
    }
    v_store(some, v);
    memcpy(p, some, (size_t)lanes * sizeof *p);
}

/* ---- elements -------------------------------------------------------------------------------- */
/* ln(1 + e^x) = max(x, 0) + ln(1 + e), e = e^-|x| <= 1, by the series of atanh in e / (2 + e),
 * whose square is at most 1/9. NaN stays. */
INLINE VF v_softplus(VF x) {
    static const float term[] = {1.f / 15, 1.f / 13, 1.f / 11, 1.f / 9,
                                 1.f / 7,  1.f / 5,  1.f / 3,  1.f};
    const VF e = v_exp(v_sub(v_set1(0), v_abs(x)));
    const VF s = v_div(e, v_add(v_set1(2), e));
    const VF series = v_polynomial(v_mul(s, s), term, 8);
    return v_fma(v_add(s, s), series, v_max(v_set1(0), x));
}

static void decays(const float *x, const float *bias, const float *rate, int64_t n, float least,
                   float most, float *size, float *decay) {
    for (int64_t i = 0; i < n; i += VL) {
        const bool whole = n - i >= VL;
        const int64_t lanes = n - i;
        const VF in = load_lanes(x + i, whole, lanes);
        const VF by = load_lanes(rate + i, whole, lanes);
        const VF offset = load_lanes(bias + i, whole, lanes);
        VF d = v_softplus(v_add(in, offset));
        d = v_max(v_set1(least), d);
        d = v_min(v_set1(most), d);
        if (size)
            store_lanes(size + i, d, whole, lanes);
        const VF e = v_exp(v_mul(d, by));
        store_lanes(decay + i, e, whole, lanes);
    }
}

static void sigmoids(const float *x, int64_t n, float by, float *y) {
    for (int64_t i = 0; i < n; i += VL) {
        const bool whole = n - i >= VL;
        const int64_t lanes = n - i;
        const VF in = load_lanes(x + i, whole, lanes);
        const VF e = v_exp(v_sub(v_set1(0), in));
        const VF sum = v_add(v_set1(1), e);
        store_lanes(y + i, v_div(v_set1(by), sum), whole, lanes);
    }
}

static float squares(const float *x, int64_t n) {
    VF sum = v_set1(0);
    for (int64_t i = 0; i < n; i += VL) {
        const VF v = load_lanes(x + i, n - i >= VL, n - i);
        sum = v_fma(v, v, sum);
    }
    return v_sum(sum);
}

/* ---- convolution ----------------------------------------------------------------------------- */
/* Channels [i, i + VL). x: [width] rows; w: [width, n]. */
INLINE void conv_channels(const float *const *x, const float *w, const int64_t width,
                          const float *bias, int64_t n, int64_t i, const bool whole, float *y) {
    const int64_t lanes = n - i;
    VF sum = v_set1(0);
    if (bias)
        sum = load_lanes(bias + i, whole, lanes);
#pragma GCC unroll 4
    for (int64_t j = 0; j < width; j++) {
        const VF in = load_lanes(x[j] + i, whole, lanes);
        const VF by = load_lanes(w + j * n + i, whole, lanes);
        sum = v_fma(by, in, sum);
    }
    store_lanes(y + i, sum, whole, lanes);
}
INLINE void conv_of_width(const float *const *x, const float *w, const int64_t width,
                          const float *bias, int64_t n, float *y) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        conv_channels(x, w, width, bias, n, i, true, y);
    if (i < n)
        conv_channels(x, w, width, bias, n, i, false, y);
}
static void conv_row(const float *const *x, const float *w, int64_t width, const float *bias,
                     int64_t n, float *y) {
    if (width == 4)
        conv_of_width(x, w, 4, bias, n, y);
    else if (width == 3)
        conv_of_width(x, w, 3, bias, n, y);
    else
        conv_of_width(x, w, width, bias, n, y);
}

/* w: [n, width] to [width, n]. */
INLINE void turn_of_width(const float *w, int64_t n, const int64_t width, float *out) {
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < n; i++)
            out[j * n + i] = w[i * width + j];
}
static void conv_turn(const float *w, int64_t n, int64_t width, float *out) {
    if (width == 4)
        turn_of_width(w, n, 4, out);
    else
        turn_of_width(w, n, width, out);
}

/* ---- a row of a block of columns ------------------------------------------------------------- */
/* A row is passed by value: what is stored might be the caller's copy of it. So many chains of sums
 * keep the units busy that multiply. */
enum { CHAINS = 8 };

/* sum[c] += write[i] S[i, c], of decayed S where each element has its own. */
INLINE void known_add(const mnk_state_row r, int64_t i, int64_t j, const int nv, const bool whole,
                      int64_t lanes, const bool each, VF *sum) {
    const float *from = r.from + i * r.cols + j;
    float by = r.write[i];
    if (each)
        by *= r.decay[i];
#pragma GCC unroll 8
    for (int c = 0; c < nv; c++) {
        const VF s = load_lanes(from + c * VL, whole, lanes);
        sum[c] = v_fma(v_set1(by), s, sum[c]);
    }
}

/* known[c]: the sum over i, in SETS chains for each c. */
INLINE void known_sums(const mnk_state_row r, int64_t j, const int nv, const bool whole,
                       int64_t lanes, const bool each, VF *known) {
    enum { SETS = VL >= 16 ? 4 : 2 };
    VF sum[SETS][CHAINS];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int s = 0; s < SETS; s++)
#pragma GCC unroll 8
        for (int c = 0; c < nv; c++)
            sum[s][c] = v_set1(0);
    for (; i + SETS <= r.n; i += SETS)
#pragma GCC unroll 4
        for (int s = 0; s < SETS; s++)
            known_add(r, i + s, j, nv, whole, lanes, each, sum[s]);
    for (; i < r.n; i++)
        known_add(r, i, j, nv, whole, lanes, each, sum[0]);
#pragma GCC unroll 8
    for (int c = 0; c < nv; c++)
        known[c] = sum[0][c];
#pragma GCC unroll 4
    for (int s = 1; s < SETS; s++)
#pragma GCC unroll 8
        for (int c = 0; c < nv; c++)
            known[c] = v_add(known[c], sum[s][c]);
}

/* S = decay S + write u, and the sums of read S. */
INLINE void state_update(const mnk_state_row r, int64_t j, const int nv, const bool whole,
                         int64_t lanes, const bool each, const VF *u, VF *sum) {
#pragma GCC unroll 8
    for (int c = 0; c < nv; c++)
        sum[c] = v_set1(0);
    for (int64_t i = 0; i < r.n; i++) {
        const VF decay = v_set1(r.decay[each ? i : 0]);
        const VF write = v_set1(r.write[i]);
        const VF read = v_set1(r.read[i]);
        const int64_t at = i * r.cols + j;
#pragma GCC unroll 8
        for (int c = 0; c < nv; c++) {
            const VF kept = v_mul(decay, load_lanes(r.from + at + c * VL, whole, lanes));
            const VF s = v_fma(write, u[c], kept);
            store_lanes(r.to + at + c * VL, s, whole, lanes);
            sum[c] = v_fma(read, s, sum[c]);
        }
    }
}

/* Columns [j, j + nv VL), or those `lanes` that are there. */
INLINE void state_columns(const mnk_state_row r, int64_t j, const int nv, const bool whole,
                          const bool delta, const bool each) {
    const int64_t lanes = r.cols - j;
    VF u[CHAINS];
    VF sum[CHAINS];
    VF known[CHAINS];
    if (delta)
        known_sums(r, j, nv, whole, lanes, each, known);
#pragma GCC unroll 8
    for (int c = 0; c < nv; c++) {
        VF x = load_lanes(r.x + j + c * VL, whole, lanes);
        if (delta) {
            const VF there = v_mul(v_set1(r.known_by), known[c]);
            x = v_sub(x, there);
        }
        u[c] = v_mul(v_set1(r.x_by), x);
    }
    state_update(r, j, nv, whole, lanes, each, u, sum);
#pragma GCC unroll 8
    for (int c = 0; c < nv; c++) {
        VF y = v_mul(v_set1(r.y_by), sum[c]);
        if (!delta) {
            const VF x = load_lanes(r.x + j + c * VL, whole, lanes);
            y = v_fma(v_set1(r.pass_by), x, y);
        }
        store_lanes(r.y + j + c * VL, y, whole, lanes);
    }
}

INLINE void state_row(const mnk_state_row r, const bool delta, const bool each) {
    enum { WIDE = MNK_STATE_COLS / VL < CHAINS ? MNK_STATE_COLS / VL : CHAINS };
    int64_t j = 0;
    for (; j + WIDE * VL <= r.cols; j += WIDE * VL)
        state_columns(r, j, WIDE, true, delta, each);
    for (; j + VL <= r.cols; j += VL)
        state_columns(r, j, 1, true, delta, each);
    if (j < r.cols)
        state_columns(r, j, 1, false, delta, each);
}

static void scan_row(const mnk_state_row *r) {
    state_row(*r, false, false);
}
static void delta_row(const mnk_state_row *r) {
    if (r->each)
        state_row(*r, true, true);
    else
        state_row(*r, true, false);
}

const mnk_state V_ID(mnk_state) = {decays,   sigmoids, squares,  conv_turn,
                                   conv_row, scan_row, delta_row};
