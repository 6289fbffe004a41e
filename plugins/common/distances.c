/* distances.c -- the distances at which the bucket of an ATTENTION's table changes: searched on the
 * host with the logarithms of docs/ops.md, so that a device has the same integers as `reference`.
 * Pure. */
#include "distances.h"
#include <math.h>

/* What a node's buckets follow from. */
typedef struct {
    bool relative; /* RELATIVE_*, else DISTANCE_BIAS */
    int64_t rows;  /* of DISTANCE_BIAS: of one direction */
    int64_t far;   /* MAX_DISTANCE */
    int64_t exact;
} formula;

static const mn_tensor *relative_table(const mn_graph *g, const mn_node *n) {
    const mn_tensor *t = mnp_in_tensor(g, n, MN_ATTENTION_RELATIVE_K);
    return t ? t : mnp_in_tensor(g, n, MN_ATTENTION_RELATIVE_Q);
}

static formula formula_of(const mn_graph *g, const mn_node *n) {
    const mn_tensor *biases = mnp_in_tensor(g, n, MN_ATTENTION_DISTANCE_BIAS);
    const mn_tensor *relative = relative_table(g, n);
    formula f = {.relative = relative != NULL,
                 .far = mnp_attr(g, n, MN_ATTENTION_ATTR_MAX_DISTANCE)};
    if (relative) {
        f.rows = relative->dim[0];
        f.exact = f.far ? f.rows / 4 : f.rows / 2;
    } else if (biases) {
        const bool both_ways = mnp_attr(g, n, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0;
        f.rows = both_ways ? biases->dim[0] / 2 : biases->dim[0];
        f.exact = f.rows / 2;
    }
    return f;
}

/* The greatest length that makes a difference. */
static int64_t longest_distance(const formula *f) {
    return f->relative ? f->rows / 2 : f->rows - 1;
}

/* The length of a distance m, at least f->exact. */
static int64_t length_by_formula(const formula *f, int64_t m) {
    const double from = (double)f->exact;
    if (f->relative) {
        const double share = log((double)m / from) / log((double)(f->far - 1) / from);
        return f->exact + (int64_t)ceil(share * (from - 1));
    }
    const double share = log((double)m / from) / log((double)f->far / from);
    return f->exact + (int64_t)floor(share * (double)(f->rows - f->exact));
}

/* The first distance from `lo` on of that length or a greater one; INT32_MAX: none before it. */
static int32_t first_of_length(const formula *f, int64_t lo, int64_t length) {
    int64_t hi = INT32_MAX;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (length_by_formula(f, mid) >= length)
            hi = mid;
        else
            lo = mid + 1;
    }
    return (int32_t)lo;
}

bool mnp_has_distances(const mn_graph *g, const mn_node *n) {
    return mnp_in(g, n, MN_ATTENTION_DISTANCE_BIAS) >= 0 || relative_table(g, n);
}

int64_t mnp_distance_steps(const mn_graph *g, const mn_node *n) {
    const formula f = formula_of(g, n);
    return mnp_has_distances(g, n) ? longest_distance(&f) - f.exact : 0;
}

void mnp_distances_of(const mn_graph *g, const mn_node *n, mnp_distances *out) {
    const formula f = formula_of(g, n);
    const int64_t n_steps = mnp_distance_steps(g, n);
    int64_t from = f.exact;
    *out = (mnp_distances){.exact = (int32_t)f.exact,
                           .places = (int32_t)(f.relative ? f.rows / 2 : f.rows)};
    for (; out->n_steps < n_steps && out->n_steps < MNP_DISTANCE_STEPS; out->n_steps++) {
        from = first_of_length(&f, from, f.exact + out->n_steps + 1);
        out->step[out->n_steps] = (int32_t)from;
    }
}
