/* op_rope.c -- ROPE: pairs of elements rotated by position, angles in double (RoFormer,
 * arXiv:2104.09864). Frequencies come with the model, one per pair. */
#include "reference.h"
#include <math.h>

/* Elements i0 and i1 of a head, rotated by `angle` and scaled. */
static void rope_rotate(const float *x, float *y, int64_t i0, int64_t i1, double angle,
                        double mscale) {
    const double co = cos(angle) * mscale;
    const double si = sin(angle) * mscale;
    const double u = x[i0];
    const double v = x[i1];
    y[i0] = (float)(u * co - v * si);
    y[i1] = (float)(u * si + v * co);
}

/* The position by which pair i of row t turns. */
static int32_t turned_by(const mnc_call *c, int64_t t, int64_t i) {
    const int32_t *row_pos = c->in[MN_ROPE_ROW_POS].ptr;
    const mnc_weight *axes = mnc_optional(c, MN_ROPE_AXES);
    const mnc_operand *pos = &c->in[MN_ROPE_POS]; /* [A, T] */
    if (MN_ROPE_POS >= c->node->n_in || !pos->ptr)
        return row_pos[t];
    int32_t axis = 0;
    if (axes)
        axis = ((const int32_t *)axes->data)[i];
    if (axis < 0 || axis >= pos->rows)
        axis = 0;
    return ((const int32_t *)pos->ptr)[axis * pos->cols + t];
}

/* Elements behind the first n_rot of a head stay as they are. */
static void rope(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_ROPE_X];
    const float *in = x->ptr;
    const float *freqs = c->in[MN_ROPE_FREQS].weight->data;
    const int32_t *row_pos = c->in[MN_ROPE_ROW_POS].ptr;
    float *out = c->out[MN_ROPE_OUT_Y].ptr; /* [T, H, D] */
    const int64_t n_head = x->dim[1];
    const int64_t d = x->dim[2];
    const bool adjacent = mnc_attr_int(c, MN_ROPE_ATTR_PAIRING) == MN_ROPE_ADJACENT;
    int64_t n_rot = mnc_attr_int(c, MN_ROPE_ATTR_N_ROT);
    double mscale = mnc_attr_f64(c, MN_ROPE_ATTR_MSCALE);
    int64_t lo;
    int64_t hi;
    if (!n_rot)
        n_rot = d;
    if (mscale == 0)
        mscale = 1;
    mnc_range(w, x->rows * n_head, 1, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        const float *a = in + r * d;
        float *y = out + r * d;
        const int64_t t = r / n_head;
        const bool is_row = row_pos[t] >= 0;
        for (int64_t i = 0; i < n_rot / 2; i++) {
            int64_t i0 = i;
            if (adjacent)
                i0 = 2 * i;
            int64_t i1;
            if (adjacent)
                i1 = 2 * i + 1;
            else
                i1 = i + n_rot / 2;
            const double angle = is_row ? turned_by(c, t, i) * (double)freqs[i] : 0;
            rope_rotate(a, y, i0, i1, angle, mscale);
        }
        for (int64_t i = n_rot; i < d; i++)
            y[i] = a[i];
    }
}

/* AXES are numbers of axes. */
static uint32_t rope_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    if (i == MN_ROPE_AXES)
        return t->dtype.id == MN_I32 ? 0 : REF_NO_TYPE;
    return ref_f32(q, i, t);
}

static bool fits(const mnc_query *q) {
    const mn_tensor *pos = mnc_query_in(q, MN_ROPE_POS);
    if (mnc_query_in(q, MN_ROPE_X)->n_dim != 3 || (pos && pos->n_dim != 2))
        return false;
    return mnc_query_in(q, MN_ROPE_FREQS);
}

const ref_op ref_op_rope = {
    .fn = rope,
    .weight = rope_weight,
    .fits = fits,
};
