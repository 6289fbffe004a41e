/* op_moe.c -- MOE_ROUTE, MOE_LINEAR, MOE_COMBINE: which experts, their products, their sum. J of E
 * experts are chosen per token; a pair is a token and one of its experts. */
#include "optional.h"
#include "reference.h"
#include <math.h>

/* What the router's logit counts for; of the two softmax kinds the logit itself. */
static double moe_score(int64_t kind, double logit) {
    if (kind == MN_ROUTE_SIGMOID)
        return 1 / (1 + exp(-logit));
    return logit;
}

/* Softmax over n values in place. */
static void moe_softmax(double *v, int64_t n) {
    double max = v[0];
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        max = v[i] > max ? v[i] : max;
    for (int64_t i = 0; i < n; i++) {
        v[i] = exp(v[i] - max);
        sum += v[i];
    }
    for (int64_t i = 0; i < n; i++)
        v[i] /= sum;
}

/* The outcome of a token whose router gives NaN: k experts, since there must be some, and weights
 * of NaN. */
static void moe_route_nowhere(int64_t k, int32_t *experts, float *weights) {
    for (int64_t j = 0; j < k; j++) {
        experts[j] = (int32_t)j;
        weights[j] = NAN;
    }
}

/* The first of the largest of n values that are not NaN; there is one. */
static int64_t moe_largest(const double *v, int64_t n) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; e++)
        if (!isnan(v[e]) && (best < 0 || v[e] > v[best]))
            best = e;
    return best;
}

/* pick: scores with the bias, which decides the choice alone. False if one is NaN. */
static bool moe_add_bias(const double *p, const float *bias, int64_t n, double *pick) {
    bool ok = true;
    for (int64_t e = 0; e < n; e++) {
        pick[e] = p[e] + (bias ? bias[e] : 0);
        ok &= !isnan(pick[e]);
    }
    return ok;
}

/* The sum of the n largest of a group's scores. */
static double moe_group_score(const double *pick, int64_t size, int64_t n) {
    double sum = 0;
    double last = INFINITY;
    int64_t at = -1; /* of the last one taken: of equal ones the lower index comes first */
    for (int64_t j = 0; j < n && j < size; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < size; e++) {
            const bool left = pick[e] < last || (!(pick[e] > last) && e > at);
            if (left && (best < 0 || pick[e] > pick[best]))
                best = e;
        }
        sum += pick[best];
        last = pick[best];
        at = best;
    }
    return sum;
}

/* Experts outside of the best groups are taken out of the choice. chosen: scratch, a number per
 * group. */
static void moe_keep_groups(const mnc_call *c, double *pick, int64_t n, double *chosen) {
    const int64_t n_group = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_N_GROUP);
    const int64_t n_used = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_GROUPS_USED);
    int64_t n_best = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_GROUP_SCORE);
    if (n_group <= 1)
        return;
    if (!n_best)
        n_best = 1;
    const int64_t size = n / n_group;
    for (int64_t g = 0; g < n_group; g++)
        chosen[g] = moe_group_score(pick + g * size, size, n_best);
    for (int64_t j = 0; j < n_used; j++)
        chosen[moe_largest(chosen, n_group)] = NAN; /* kept */
    for (int64_t e = 0; e < n; e++)
        if (!isnan(chosen[e / size]))
            pick[e] = NAN;
}

/* The weight of the largest of those that are left, best: its part of a softmax over the logits
 * near it. */
static double moe_sparse_weight(const float *logits, const double *pick, int64_t n, int64_t best,
                                double jitter) {
    const double max = pick[best];
    double sum = 0;
    for (int64_t e = 0; e < n; e++) {
        const double scale = fmax(fabs((double)logits[e]), max);
        const bool is_far = (max - pick[e]) / scale > 2 * jitter;
        if (!isnan(pick[e]) && !is_far)
            sum += exp(pick[e] - max);
    }
    return 1 / sum;
}

/* One token. p: scores [E]; pick: what the choice goes by [E], then the chosen scores [J]. */
static void route(const mnc_call *c, const float *logits, const float *bias, double *p,
                  double *pick, int32_t *experts, float *weights) {
    const int64_t n = c->in[MN_MOE_ROUTE_LOGITS].cols;
    const int64_t k = ref_last(&c->out[MN_MOE_ROUTE_OUT_EXPERTS]);
    const int64_t kind = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_KIND);
    double *chosen = pick + n;
    const double jitter = mnc_attr_f64(c, MN_MOE_ROUTE_ATTR_JITTER);
    double scale = mnc_attr_f64(c, MN_MOE_ROUTE_ATTR_SCALE);
    double sum = 0;
    for (int64_t e = 0; e < n; e++)
        p[e] = moe_score(kind, logits[e]);
    if (kind == MN_ROUTE_SOFTMAX)
        moe_softmax(p, n);
    if (!moe_add_bias(p, bias, n, pick)) {
        moe_route_nowhere(k, experts, weights);
        return;
    }
    moe_keep_groups(c, pick, n, chosen);
    for (int64_t j = 0; j < k; j++) {
        const int64_t best = moe_largest(pick, n);
        experts[j] = (int32_t)best;
        chosen[j] = p[best];
        if (kind == MN_ROUTE_SPARSEMIXER)
            chosen[j] = moe_sparse_weight(logits, pick, n, best, jitter);
        pick[best] = NAN; /* taken */
    }
    if (kind == MN_ROUTE_TOPK_SOFTMAX)
        moe_softmax(chosen, k);
    for (int64_t j = 0; j < k; j++)
        sum += chosen[j];
    if (scale == 0)
        scale = 1;
    if (mnc_attr_int(c, MN_MOE_ROUTE_ATTR_NORMALISE))
        scale /= sum;
    for (int64_t j = 0; j < k; j++)
        weights[j] = (float)(chosen[j] * scale);
}

/* Scratch: scores, what the choice goes by and the chosen, [3, E] double, and the bias, [E]. */
static void moe_route(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_ROUTE_LOGITS];
    const mnc_weight *b = mnc_optional(c, MN_MOE_ROUTE_BIAS);
    const int64_t n = x->cols;
    const int64_t k = ref_last(&c->out[MN_MOE_ROUTE_OUT_EXPERTS]);
    int32_t *experts = c->out[MN_MOE_ROUTE_OUT_EXPERTS].ptr; /* [T, J] */
    float *weights = c->out[MN_MOE_ROUTE_OUT_WEIGHTS].ptr;   /* [T, J] */
    double *p = w->scratch;
    float *bias = (float *)(p + 3 * n);
    int64_t lo;
    int64_t hi;
    if (b)
        ref_row(b, 0, bias);
    mnc_range(w, x->rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        const float *logits = (const float *)x->ptr + t * n;
        route(c, logits, b ? bias : NULL, p, p + n, experts + t * k, weights + t * k);
    }
}

/* The products of one weight of MOE_LINEAR with the pairs of one expert. */
typedef struct {
    const mnc_weight *m;     /* [E N, K] */
    const mnc_weight *bias;  /* [E, N], or NULL */
    const float *x;          /* [T, K] or [T, J, K] */
    const int32_t *experts;  /* [T, J] */
    const float *factors;    /* of x, [T, J], or NULL */
    const int32_t *resident; /* [E]: 0 is not computed; or NULL */
    int64_t n_pairs;         /* T J */
    int64_t pairs_per_x;     /* J or 1 */
    float *y;                /* [T, J, N] */
} products;

/* Does pair p go to expert e? An id that is out of range counts as 0. */
static bool is_pair_of(const products *u, int64_t p, int64_t e) {
    const int64_t n_expert = u->m->rows / u->m->group_rows;
    const int32_t id = u->experts[p];
    return id == e || (e == 0 && (id < 0 || id >= n_expert));
}

static bool is_used(const products *u, int64_t e) {
    if (u->resident && !u->resident[e])
        return false;
    for (int64_t p = 0; p < u->n_pairs; p++)
        if (is_pair_of(u, p, e))
            return true;
    return false;
}

/* Outputs lo to hi - 1 of expert e. Scratch: one weight row, [K], then a row of the bias, [N]. */
static void multiply_expert(const products *u, int64_t e, int64_t lo, int64_t hi, float *scratch) {
    const int64_t k = u->m->cols;
    const int64_t n = u->m->group_rows;
    float *row = scratch;
    float *bias = row + k;
    if (u->bias)
        ref_row(u->bias, e, bias);
    for (int64_t j = lo; j < hi; j++) {
        double offset = 0;
        if (u->bias)
            offset = bias[j];
        ref_row(u->m, e * n + j, row);
        for (int64_t p = 0; p < u->n_pairs; p++) {
            const float *x = u->x + p / u->pairs_per_x * k;
            const double factor = u->factors ? u->factors[p] : 1;
            if (is_pair_of(u, p, e))
                u->y[p * n + j] = (float)(factor * ref_dot(x, row, k) + offset);
        }
    }
}

/* Each worker has its share of the N outputs of every expert. */
static void moe_linear(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    const mnc_operand *experts = &c->in[MN_MOE_LINEAR_EXPERTS];
    products u = {
        .x = x->ptr,
        .experts = experts->ptr,
        .n_pairs = experts->rows * experts->cols,
        .pairs_per_x = x->n_dim == 3 ? 1 : experts->cols,
    };
    const uint32_t behind = MN_MOE_LINEAR_WEIGHT + 2 * c->node->n_out;
    if (behind < c->node->n_in)
        u.factors = c->in[behind].ptr;
    u.resident = mnc_optional_ptr(c, mnp_resident_operand(c->node));
    for (uint32_t i = 0; i < c->node->n_out && u.n_pairs; i++) {
        u.m = c->in[MN_MOE_LINEAR_WEIGHT + 2 * i].weight;
        u.bias = mnc_optional(c, MN_MOE_LINEAR_BIAS + 2 * i);
        u.y = c->out[i].ptr;
        const int64_t n_expert = u.m->rows / u.m->group_rows;
        int64_t lo;
        int64_t hi;
        mnc_range(w, u.m->group_rows, 1, &lo, &hi);
        for (int64_t e = 0; e < n_expert; e++)
            if (is_used(&u, e))
                multiply_expert(&u, e, lo, hi, w->scratch);
    }
}

/* Experts of pairs, of which some are left out of a sum. */
typedef struct {
    const int32_t *experts;  /* [T, J] */
    const int32_t *resident; /* [E], or NULL: all are in it */
    int64_t n_expert;
} residents;

static bool is_in_sum(const residents *r, int64_t p) {
    if (!r->resident)
        return true;
    const int32_t e = r->experts[p];
    return r->resident[e < 0 || e >= r->n_expert ? 0 : e] != 0;
}

/* y: [T, D], the experts' outputs [T, J, D] weighted, unless there are no weights, and added up
 * behind what the sum begins with. */
static void moe_combine(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_COMBINE_X];
    const float *in = x->ptr;
    const float *weights = mnc_optional_ptr(c, MN_MOE_COMBINE_WEIGHTS);
    const float *base = mnc_optional_ptr(c, MN_MOE_COMBINE_BASE);
    const residents r = {.experts = mnc_optional_ptr(c, MN_MOE_COMBINE_EXPERTS),
                         .resident = mnc_optional_ptr(c, MN_MOE_COMBINE_RESIDENT),
                         .n_expert = c->in[MN_MOE_COMBINE_RESIDENT].rows};
    float *y = c->out[MN_MOE_COMBINE_OUT_Y].ptr;
    const int64_t d = ref_last(x);
    const int64_t k = x->dim[1];
    int64_t lo;
    int64_t hi;
    mnc_range(w, x->rows * d, 16, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const int64_t first = i / d * k; /* pair of the token */
        double sum = base ? base[i] : 0;
        for (int64_t p = first; p < first + k; p++)
            if (is_in_sum(&r, p))
                sum += (weights ? (double)weights[p] : 1) * in[p * d + i % d];
        y[i] = (float)sum;
    }
}

static void size_route(const mnc_query *q, mnc_op *op) {
    const uint64_t n = ref_last_dim(q, MN_MOE_ROUTE_LOGITS);
    op->worker_bytes = n * (3 * sizeof(double) + sizeof(float));
}

static void size_linear(const mnc_query *q, mnc_op *op) {
    const uint32_t end = MN_MOE_LINEAR_WEIGHT + 2 * q->node->n_out;
    for (uint32_t i = MN_MOE_LINEAR_WEIGHT; i < end; i += 2) {
        const mn_tensor *t = mnc_query_in(q, i);
        uint64_t n = 0;
        if (t && t->n_dim == 3)
            n = (uint64_t)t->dim[1];
        const uint64_t k = ref_last_dim(q, i);
        const uint64_t bytes = (n + k) * sizeof(float);
        if (bytes > op->worker_bytes)
            op->worker_bytes = bytes;
    }
}

/* Odd operands are biases. */
static uint32_t linear_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    if (i % 2 == 1)
        return ref_vector(t);
    if (t->n_dim != 3)
        return REF_NO_SHAPE;
    if (ref_has_type(t->dtype.id))
        return 0;
    return REF_NO_TYPE;
}

static bool route_fits(const mnc_query *q) {
    if (q->node->n_out != 2)
        return false;
    if (!mnc_query_out(q, 0))
        return false;
    return mnc_query_out(q, 1);
}

static bool linear_fits(const mnc_query *q) {
    if (!ref_has_second(q))
        return false;
    return q->node->n_in >= 2 * q->node->n_out + 1 && mnp_residents_fit(q->graph, q->node);
}

const ref_op ref_op_moe_route = {
    .fn = moe_route,
    .size = size_route,
    .weight = ref_f32,
    .fits = route_fits,
};

const ref_op ref_op_moe_linear = {
    .fn = moe_linear,
    .size = size_linear,
    .weight = linear_weight,
    .fits = linear_fits,
};

static bool combine_fits(const mnc_query *q) {
    return mnp_residents_fit(q->graph, q->node);
}

const ref_op ref_op_moe_combine = {
    .fn = moe_combine,
    .fits = combine_fits,
};
