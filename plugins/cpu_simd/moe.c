/* moe.c -- MOE_ROUTE, MOE_LINEAR, MOE_COMBINE: J of E experts per token. A pair is a token and one
 * of its experts. The choice is computed in double, as reference does it, so that every CPU plugin
 * makes the same one. */
#include "optional.h"
#include "plan.h"
#include <math.h>

/* ---- MOE_ROUTE: in double, so that the choice is everyone's ---------------------------------- */
static void softmax(double *v, int64_t n) {
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

/* The first of the largest of n values that are not NaN; there is one. */
static int64_t moe_best(const double *v, int64_t n) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; e++) {
        const bool better = best < 0 || v[e] > v[best];
        if (!isnan(v[e]) && better)
            best = e;
    }
    return best;
}

/* The sum of the n largest of v; of equal ones the lower index comes first. */
static double sum_of_best(const double *v, int64_t size, int64_t n) {
    double sum = 0;
    double last = INFINITY;
    int64_t at = -1; /* of the last one added */
    for (int64_t j = 0; j < n && j < size; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < size; e++) {
            const bool left = v[e] < last || (!(v[e] > last) && e > at);
            if (left && (best < 0 || v[e] > v[best]))
                best = e;
        }
        sum += v[best];
        last = v[best];
        at = best;
    }
    return sum;
}

/* What is outside of the best groups of experts becomes NaN in pick. score: scratch, one number per
 * group. */
static void keep_groups(const mnc_call *c, double *pick, int64_t n, double *score) {
    const int64_t n_group = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_N_GROUP);
    const int64_t n_used = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_GROUPS_USED);
    const int64_t n_best = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_GROUP_SCORE);
    if (n_group <= 1)
        return;
    const int64_t size = n / n_group;
    for (int64_t g = 0; g < n_group; g++)
        score[g] = sum_of_best(pick + g * size, size, n_best ? n_best : 1);
    for (int64_t j = 0; j < n_used; j++)
        score[moe_best(score, n_group)] = NAN; /* kept */
    for (int64_t e = 0; e < n; e++)
        if (!isnan(score[e / size]))
            pick[e] = NAN;
}

/* Of sparsemixer: the part that the best of pick has of a softmax over the logits near it. */
static double sparse_weight(const double *logit, const double *pick, int64_t n, int64_t best,
                            double jitter) {
    const double max = pick[best];
    double sum = 0;
    for (int64_t e = 0; e < n; e++) {
        const double scale = fmax(fabs(logit[e]), max);
        const bool is_far = (max - pick[e]) / scale > 2 * jitter;
        if (!isnan(pick[e]) && !is_far)
            sum += exp(pick[e] - max);
    }
    return 1 / sum;
}

/* The j best of pick, best first, the lower index of equals; a taken one becomes NaN. score: [n];
 * chosen: its values [j]. */
static void moe_choose(const mnc_call *c, const double *score, double *pick, int64_t n, int64_t j,
                       int32_t *experts, double *chosen) {
    const double jitter = mnc_attr_f64(c, MN_MOE_ROUTE_ATTR_JITTER);
    const int64_t kind = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_KIND);
    keep_groups(c, pick, n, chosen);
    for (int64_t i = 0; i < j; i++) {
        const int64_t best = moe_best(pick, n);
        experts[i] = (int32_t)best;
        chosen[i] = score[best];
        if (kind == MN_ROUTE_SPARSEMIXER)
            chosen[i] = sparse_weight(score, pick, n, best, jitter);
        pick[best] = NAN;
    }
}

/* pick: scores with the bias, which decides the choice alone. False if one is NaN. */
static bool moe_add_bias(const double *score, const mnc_weight *bias, int64_t n, double *pick) {
    bool ok = true;
    for (int64_t e = 0; e < n; e++) {
        pick[e] = score[e];
        if (bias)
            pick[e] += mnk_load1(bias->data, MN_F32, e);
        ok &= !isnan(pick[e]);
    }
    return ok;
}

/* The outcome of a token whose router gives NaN: j experts, since there must be some, and weights
 * of NaN. */
static void route_nowhere(int64_t j, int32_t *experts, float *weights) {
    for (int64_t i = 0; i < j; i++) {
        experts[i] = (int32_t)i;
        weights[i] = NAN;
    }
}

/* Scores of the chosen experts as weights: scaled, and of a sum of 1 where that is asked for. */
static void weigh_chosen(const mnc_call *c, const double *chosen, int64_t k, float *weights) {
    double scale = mnc_attr_f64(c, MN_MOE_ROUTE_ATTR_SCALE);
    double sum = 0;
    for (int64_t j = 0; j < k; j++)
        sum += chosen[j];
    if (scale == 0)
        scale = 1;
    if (mnc_attr_int(c, MN_MOE_ROUTE_ATTR_NORMALISE))
        scale /= sum;
    for (int64_t j = 0; j < k; j++)
        weights[j] = (float)(chosen[j] * scale);
}

/* Scratch: scores [E], what the choice goes by [E], the chosen [J <= E], in double. */
void mnk_moe_route_node(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_ROUTE_LOGITS];
    const mnc_weight *bias = mnc_optional(c, MN_MOE_ROUTE_BIAS);
    const mnc_operand *out = &c->out[MN_MOE_ROUTE_OUT_EXPERTS];
    const int64_t n = x->cols;
    const int64_t k = out->cols;
    const int64_t kind = mnc_attr_int(c, MN_MOE_ROUTE_ATTR_KIND);
    double *score = w->scratch;
    double *pick = score + n;
    double *chosen = pick + n;
    int64_t lo;
    int64_t hi;
    mnc_range_rows(w, x->rows, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        const float *logit = (const float *)x->ptr + t * n;
        float *weights = (float *)c->out[MN_MOE_ROUTE_OUT_WEIGHTS].ptr + t * k;
        int32_t *experts = (int32_t *)out->ptr + t * k;
        for (int64_t e = 0; e < n; e++) {
            const double l = logit[e];
            score[e] = l;
            if (kind == MN_ROUTE_SIGMOID)
                score[e] = 1 / (1 + exp(-l));
        }
        if (kind == MN_ROUTE_SOFTMAX)
            softmax(score, n);
        if (!moe_add_bias(score, bias, n, pick)) {
            route_nowhere(k, experts, weights);
            continue;
        }
        moe_choose(c, score, pick, n, k, experts, chosen);
        if (kind == MN_ROUTE_TOPK_SOFTMAX)
            softmax(chosen, k);
        weigh_chosen(c, chosen, k, weights);
    }
}

/* An exponential in double for each expert, and a search through all for each chosen one. */
mnc_work mnk_moe_route_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const mnc_operand *x = &c->in[MN_MOE_ROUTE_LOGITS];
    const int64_t of_expert = 20 + c->out[MN_MOE_ROUTE_OUT_EXPERTS].cols;
    (void)stage;
    (void)n_threads;
    const int64_t of_row = x->cols * of_expert;
    return (mnc_work){x->rows * of_row, x->rows};
}

void mnk_moe_route_scratch(const mnc_query *q, mnc_op *op) {
    const mn_tensor *x = mnc_query_in(q, MN_MOE_ROUTE_LOGITS);
    const int64_t n = mnc_query_dim(q, x, x->n_dim - 1);
    op->worker_bytes = 3 * (uint64_t)n * sizeof(double);
}

/* ---- MOE_LINEAR: the (token, choice) pairs of an expert are the rows of one product with its
 * matrix ---- */

/* Of one part: each makes its own, from the same experts. */
typedef struct {
    int32_t *order; /* [P] pairs by expert */
    int32_t *start; /* [E + 1] of each expert in order */
    mnk_pair *pair; /* [P] rows of one product */
    void *panel;
} groups;

static uint64_t up64(uint64_t n) {
    return (n + 63) / 64 * 64;
}

/* base NULL: the size only */
static uint64_t lay_out(groups *g, int64_t pairs, int64_t n_expert, uint8_t *base) {
    const uint64_t order = up64((uint64_t)pairs * 4);
    const uint64_t start = up64((uint64_t)(n_expert + 2) * 4);
    const uint64_t pair = up64((uint64_t)pairs * sizeof(mnk_pair));
    if (base) {
        g->order = (void *)base;
        g->start = (void *)(base + order);
        g->pair = (void *)(base + order + start);
        g->panel = base + order + start + pair;
    }
    return order + start + pair;
}

/* padding is not followed */
static int64_t expert_of(const int32_t *experts, int64_t p, int64_t n) {
    const int32_t e = experts[p];
    if (e < 0 || e >= n)
        return 0;
    return e;
}

/* Experts of pairs, of which those that are not resident are left out. */
typedef struct {
    const int32_t *experts;  /* [T, J] */
    const int32_t *resident; /* [E], or NULL: all are */
    int64_t n_expert;
} moe_experts;

/* Of pair p; -1: it is left out. */
static int64_t resident_of(const moe_experts *x, int64_t p) {
    const int64_t e = expert_of(x->experts, p, x->n_expert);
    return !x->resident || x->resident[e] ? e : -1;
}

/* Pairs by expert: counted, then put in their places. */
static void sort_pairs(groups *g, const moe_experts *x, int64_t pairs) {
    const int64_t n = x->n_expert;
    memset(g->start, 0, (size_t)(n + 2) * sizeof *g->start);
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t e = resident_of(x, p);
        if (e >= 0)
            g->start[e + 2]++;
    }
    /* start[e + 1]: where e's next pair goes */
    for (int64_t e = 0; e < n; e++)
        g->start[e + 2] += g->start[e + 1];
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t e = resident_of(x, p);
        if (e < 0)
            continue;
        const int32_t to = g->start[e + 1]++;
        g->order[to] = (int32_t)p;
    }
}

typedef struct {
    const mnc_call *c;
    const groups *g;
    int64_t k, per_x;       /* pairs that share a row of x */
    const mnk_forms *forms; /* of tiles */
} product;

static int64_t pairs_of(const mnc_call *c) {
    const mnc_operand *ex = &c->in[MN_MOE_LINEAR_EXPERTS];
    return ex->rows * ex->cols;
}

static moe_experts experts_of(const mnc_call *c, int64_t n_expert) {
    return (moe_experts){.experts = c->in[MN_MOE_LINEAR_EXPERTS].ptr,
                         .resident = mnc_optional_ptr(c, mnp_resident_operand(c->node)),
                         .n_expert = n_expert};
}

/* For r rows of x that are not in tiles, of weight i. */
static const mnk_linear *plain_kernel(const mnc_call *c, uint32_t i, int64_t r) {
    const uint32_t range = mnk_plan_range(c->user, r);
    return mnk_plan_kernels(c->user, range, i)->of[MNK_PLAIN];
}

/* The plan's range of the pairs that an expert has on average. */
static uint32_t range_of(const mnc_call *c, const mnc_weight *w) {
    return mnk_plan_range(c->user, pairs_of(c) * w->group_rows / w->rows);
}
/* For all experts of weight i if they have enough pairs on average: each pair's x is packed once,
 * for all experts and outputs. NULL: they are multiplied by plain kernels. */
static const mnk_linear *tile_kernel(const mnc_call *c, uint32_t i) {
    const mnc_weight *w = c->in[MN_MOE_LINEAR_WEIGHT + 2 * i].weight;
    const mnk_kernels *found = mnk_plan_kernels(c->user, range_of(c, w), i);
    const mnk_linear *kern = found->of[MNK_STORED];
    return kern->x_form >= MNK_X_TILES ? kern : NULL;
}

/* Groups of pairs by expert, where each expert's begin with a new one: the most there may be. */
static int64_t most_groups(int64_t pairs, int64_t n_expert) {
    return pairs / MNK_GROUP + n_expert;
}

/* The forms of tiles that the node's products read. */
static mnk_forms moe_forms_of(const mnc_call *c) {
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    const mnc_weight *first = c->in[MN_MOE_LINEAR_WEIGHT].weight;
    const int64_t n_expert = first->rows / first->group_rows;
    const mnk_plan *plan = c->user;
    mnk_forms f = plan->forms[range_of(c, first)][MNK_STORED];
    f.n_own = 0;
    const int64_t n_groups = most_groups(pairs_of(c), n_expert);
    mnk_forms_place(&f, x->dim[x->n_dim - 1], 0, n_groups);
    return f;
}

/* The factors of x, [T, J]; NULL: the node has none. */
static const float *expert_factors(const mnc_call *c) {
    const uint32_t behind = MN_MOE_LINEAR_WEIGHT + 2 * c->node->n_out;
    if (behind < c->node->n_in)
        return c->in[behind].ptr;
    return NULL;
}

/* A product with factor times x is factor times the product: rows [lo, hi) of n pairs, in the order
 * of g->pair. */
static void scale_by_factors(const product *o, const int32_t *order, int64_t n, int64_t lo,
                             int64_t hi) {
    const mnk_use *use = o->c->user;
    const mnk_vector *v = mnk_find_vector(use->level);
    const float *factors = expert_factors(o->c);
    for (int64_t j = 0; j < n && factors; j++) {
        float *y = o->g->pair[j].y;
        v->scale(y + lo, hi - lo, factors[order[j]]);
    }
}

/* Rows [lo, hi) of expert e of output i. group: the expert's first one among those of x in
 * tiles. */
static void rows_of_expert(const product *o, uint32_t i, int64_t e, int64_t lo, int64_t hi,
                           int64_t group) {
    const mnc_call *c = o->c;
    const groups *g = o->g;
    const mnc_weight *all = c->in[MN_MOE_LINEAR_WEIGHT + 2 * i].weight;
    const mnc_weight one = mnc_expert(all, e);
    const mnc_weight *bias = mnc_optional(c, MN_MOE_LINEAR_BIAS + 2 * i);
    const int64_t n_pairs = g->start[e + 1] - g->start[e];
    const mnk_linear *tiles = tile_kernel(c, i);
    const mnk_linear *kern = tiles ? tiles : plain_kernel(c, i, n_pairs);
    float *y = c->out[i].ptr; /* [T, J, N] */
    const int32_t form = mnk_form_of(o->forms, kern);
    const uint8_t *x = (const uint8_t *)c->shared;
    int64_t ldx = mnk_quant_bytes(o->k);
    if (form == MNK_X_F32) {
        x = c->in[MN_MOE_LINEAR_X].ptr;
        ldx = 4 * o->k;
    } else if (tiles) {
        x += o->forms->at[form];
        ldx = mnk_group_bytes(o->k, form);
    }
    for (int64_t j = 0; j < n_pairs; j++) {
        const int64_t p = g->order[g->start[e] + j];
        const int64_t at = group + j / MNK_GROUP;
        g->pair[j].x = x + (tiles ? at * ldx : p / o->per_x * ldx);
        g->pair[j].y = y + p * one.rows;
    }
    mnk_linear_rows(kern, &one, g->pair, n_pairs, lo, hi, g->panel);
    scale_by_factors(o, g->order + g->start[e], n_pairs, lo, hi);
    if (!bias)
        return;
    const uint8_t *b = mnc_row(bias, e);
    const uint32_t dtype = bias->dtype.id;
    for (int64_t j = 0; j < n_pairs; j++) {
        float *sum = g->pair[j].y;
        for (int64_t r = lo; r < hi; r++)
            sum[r] += mnk_load1(b, dtype, r);
    }
}

/* Reading the weights is the work where experts have few pairs each: the rows of all experts in use
 * are shared out as one run. Else the products are, and each part takes a share of every expert. */
static void moe_output(const product *o, mnc_worker *w, uint32_t i, int64_t n_expert, int64_t n,
                       bool few) {
    int64_t lo;
    int64_t hi;
    int64_t used = 0;
    int64_t begin = 0;
    int64_t group = 0;
    const int32_t *start = o->g->start;
    for (int64_t e = 0; e < n_expert; e++)
        used += start[e + 1] > start[e];
    mnc_range_guided(w, few ? used * n : n, 16, &lo, &hi);
    for (int64_t e = 0; e < n_expert; e++) {
        if (start[e + 1] == start[e])
            continue;
        int64_t from = 0;
        if (lo > begin)
            from = lo - begin;
        int64_t to = n;
        if (hi - begin < n)
            to = hi - begin;
        if (from < to)
            rows_of_expert(o, i, e, from, to, group);
        group += mnk_groups(start[e + 1] - start[e]);
        if (few)
            begin += n;
    }
}

static bool x_per_pair(const mnc_call *c) {
    return c->in[MN_MOE_LINEAR_X].n_dim == 3;
}

static int64_t rows_of_x(const mnc_call *c) {
    if (x_per_pair(c))
        return pairs_of(c);
    return c->in[MN_MOE_LINEAR_X].rows;
}

static int64_t last_dim(const mnc_operand *x) {
    return x->dim[x->n_dim - 1];
}

/* As few or as many pairs as an expert may have. */
static bool wants_quantised(const mnc_call *c) {
    bool quantised = false;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        quantised |= plain_kernel(c, i, 1)->x_form == MNK_X_A8;
        quantised |= plain_kernel(c, i, pairs_of(c))->x_form == MNK_X_A8;
    }
    return quantised;
}

/* This part's share of the groups of x, expert by expert: pair j of an expert is row j % MNK_GROUP
 * of the expert's group j / MNK_GROUP. */
static void pack_pairs(const mnc_call *c, mnc_worker *w, const mnk_forms *f) {
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    const mnc_operand *ex = &c->in[MN_MOE_LINEAR_EXPERTS];
    const mnc_weight *wt = c->in[MN_MOE_LINEAR_WEIGHT].weight;
    const int64_t n_expert = wt->rows / wt->group_rows;
    const int64_t k = last_dim(x);
    const int64_t per_x = x_per_pair(c) ? 1 : ex->cols;
    groups g = {0};
    int64_t n = 0;
    int64_t lo;
    int64_t hi;
    lay_out(&g, c->max_rows * ex->cols, n_expert, w->scratch);
    const moe_experts chosen = experts_of(c, n_expert);
    sort_pairs(&g, &chosen, pairs_of(c));
    for (int64_t e = 0; e < n_expert; e++)
        n += mnk_groups(g.start[e + 1] - g.start[e]);
    mnc_range(w, n, 1, &lo, &hi);
    n = 0;
    for (int64_t e = 0; e < n_expert; e++) {
        for (int64_t j = g.start[e]; j < g.start[e + 1]; j += MNK_GROUP, n++) {
            const float *rows[MNK_GROUP];
            int64_t some = 0;
            if (n < lo || n >= hi)
                continue;
            for (; some < MNK_GROUP && j + some < g.start[e + 1]; some++) {
                const int64_t row = g.order[j + some] / per_x;
                rows[some] = (const float *)x->ptr + row * k;
            }
            for (int32_t form = MNK_X_TILES; form < MNK_X_FORMS; form++) {
                const int64_t bytes = mnk_group_bytes(k, form);
                uint8_t *to = (uint8_t *)c->shared + f->at[form] + n * bytes;
                if (f->kern[form])
                    f->kern[form]->pack(rows, some, k, to);
            }
        }
    }
}

void mnk_moe_quantise(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    const mnk_forms f = moe_forms_of(c);
    if (mnk_forms_has_tiles(&f)) {
        pack_pairs(c, w, &f);
        return;
    }
    const int64_t per_row = rows_of_x(c) / x->rows;
    mnk_quantise_rows(w, x->ptr, x->rows, per_row, last_dim(x), c->shared);
}

int64_t mnk_moe_cells(const mnc_call *c, uint32_t stage) {
    const mnk_forms f = moe_forms_of(c);
    (void)stage;
    if (mnk_forms_has_tiles(&f))
        return 0;
    if (x_per_pair(c))
        return c->in[MN_MOE_LINEAR_EXPERTS].cols;
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    return last_dim(x) / 32;
}

mnc_work mnk_moe_linear_work(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    const int64_t k = last_dim(&c->in[MN_MOE_LINEAR_X]);
    const int64_t pairs = pairs_of(c);
    int64_t n = 0;
    (void)n_threads;
    if (!pairs)
        return (mnc_work){0, 0};
    if (stage == MNC_FIRST) {
        const mnk_forms f = moe_forms_of(c);
        if (mnk_forms_has_tiles(&f))
            return (mnc_work){pairs * k, mnk_groups(pairs)};
        if (!wants_quantised(c))
            return (mnc_work){0, 0};
        const int64_t rows = rows_of_x(c);
        return (mnc_work){rows * k, rows};
    }
    for (uint32_t i = 0; i < c->node->n_out; i++)
        n += c->in[MN_MOE_LINEAR_WEIGHT + 2 * i].weight->group_rows;
    return mnk_product_work(n * pairs, k, 1);
}

void mnk_moe_linear_node(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_MOE_LINEAR_X];
    const mnc_operand *ex = &c->in[MN_MOE_LINEAR_EXPERTS];
    const int64_t pairs = pairs_of(c);
    const mnk_forms forms = moe_forms_of(c);
    groups g = {0};
    const product o = {
        .c = c,
        .g = &g,
        .k = last_dim(x),
        .per_x = x_per_pair(c) ? 1 : ex->cols,
        .forms = &forms,
    };
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        const mnc_weight *wt = c->in[MN_MOE_LINEAR_WEIGHT + 2 * i].weight;
        const int64_t n = wt->group_rows;
        const int64_t n_expert = wt->rows / n;
        if (!c->out[i].ptr)
            continue;
        lay_out(&g, c->max_rows * ex->cols, n_expert, w->scratch);
        const moe_experts chosen = experts_of(c, n_expert);
        sort_pairs(&g, &chosen, pairs);
        moe_output(&o, w, i, n_expert, n, pairs <= MNK_FEW_ROWS * n_expert);
    }
}

void mnk_moe_linear_scratch(const mnc_query *q, const mnk_use *use, mnc_op *op) {
    const mn_tensor *x = mnc_query_in(q, MN_MOE_LINEAR_X);
    const mn_tensor *ex = mnc_query_in(q, MN_MOE_LINEAR_EXPERTS);
    const int64_t t = mnc_query_dim(q, ex, 0);
    const int64_t pairs = t * mnc_query_dim(q, ex, 1);
    const int64_t k = mnc_query_dim(q, x, x->n_dim - 1);
    uint64_t panel = 0;
    uint64_t rest = 0;
    uint32_t forms = 0;
    int64_t n_groups = 0;
    (void)use;
    for (uint32_t i = 0; i < q->node->n_out; i++) {
        const mn_tensor *wt = mnc_query_in(q, MN_MOE_LINEAR_WEIGHT + 2 * i);
        const int64_t n_expert = mnc_query_dim(q, wt, 0);
        const uint64_t bytes = lay_out(NULL, pairs, n_expert, NULL);
        const int64_t most = most_groups(pairs, n_expert);
        n_groups = most > n_groups ? most : n_groups;
        rest = bytes > rest ? bytes : rest;
    }
    mnk_plan_scratch(op->user, k, pairs, &panel, &forms);
    op->worker_bytes = rest + panel;
    int64_t x_rows = t;
    if (x->n_dim == 3)
        x_rows = pairs;
    op->shared_bytes = mnk_x_bytes(forms, k, x_rows, n_groups);
}

/* ---- MOE_COMBINE ----------------------------------------------------------------------------- */
/* In the order of the choices, behind what the sum begins with. */
void mnk_moe_combine_node(const mnc_call *c, mnc_worker *w) {
    const mnk_use *use = c->user;
    const mnk_vector *v = mnk_find_vector(use->level);
    const mnc_operand *x = &c->in[MN_MOE_COMBINE_X];
    const float *in = x->ptr; /* [T, J, D] */
    const float *weights = mnc_optional_ptr(c, MN_MOE_COMBINE_WEIGHTS);
    const float *base = mnc_optional_ptr(c, MN_MOE_COMBINE_BASE);
    const moe_experts chosen = {.experts = mnc_optional_ptr(c, MN_MOE_COMBINE_EXPERTS),
                                .resident = mnc_optional_ptr(c, MN_MOE_COMBINE_RESIDENT),
                                .n_expert = c->in[MN_MOE_COMBINE_RESIDENT].rows};
    const int64_t k = x->dim[1];
    const int64_t d = x->dim[x->n_dim - 1];
    const mnc_spans share = mnc_range_cells(w, x->rows, d, 512); /* of y [T, D], as one row */
    int64_t lo = share.lo;
    const int64_t hi = share.hi;
    while (lo < hi) {
        const int64_t t = lo / d;
        const int64_t at = lo % d;
        const int64_t left = d - at;
        int64_t n;
        if (left < hi - lo)
            n = left;
        else
            n = hi - lo;
        float *y = (float *)c->out[MN_MOE_COMBINE_OUT_Y].ptr + lo;
        if (base)
            memcpy(y, base + lo, (size_t)n * sizeof *y);
        else
            memset(y, 0, (size_t)n * sizeof *y);
        for (int64_t p = t * k; p < (t + 1) * k; p++)
            if (!chosen.resident || resident_of(&chosen, p) >= 0)
                v->add_scaled(y, in + p * d + at, n, weights ? weights[p] : 1);
        lo += n;
    }
}
