/* attention_distance.c -- attention.h: buckets of distances, and the products with keys and queries
 * of distances. Buckets are computed once per part of a call, in its scratch: a logarithm for each
 * score would cost more than the score. Products are made with the rows that a tile's distances
 * name, MNK_TILE of them at once, and then picked by distance. */
#include "attention.h"
#include "dtype.h"
#include <math.h>

/* Rows of the tables of relative keys and queries. */
static int64_t n_places(const mnk_distances *d) {
    const mnc_weight *w = d->rel_k ? d->rel_k : d->rel_q;
    return w->rows / d->h;
}

mnk_distances mnk_distances_of(const mnc_call *c) {
    const mnc_operand *q = &c->in[MN_ATTENTION_Q];
    const int64_t far = mnc_attr_int(c, MN_ATTENTION_ATTR_MAX_DISTANCE);
    mnk_distances d = {
        .biases = mnc_optional(c, MN_ATTENTION_DISTANCE_BIAS),
        .rel_k = mnc_optional(c, MN_ATTENTION_RELATIVE_K),
        .rel_q = mnc_optional(c, MN_ATTENTION_RELATIVE_Q),
        .h = q->dim[1],
        .dk = q->dim[2],
        .far = far,
        .bidirectional = mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL) != 0,
        .grow = far > 0,
    };
    if (mnk_has_relative(&d) && !d.far)
        d.far = n_places(&d) / 2;
    return d;
}

mnk_distances mnk_distances_asked(const mnc_query *q) {
    static const mnc_weight some;
    const mn_tensor *heads = mnc_query_in(q, MN_ATTENTION_Q);
    const mn_tensor *rel = mnc_query_in(q, MN_ATTENTION_RELATIVE_K);
    if (!rel)
        rel = mnc_query_in(q, MN_ATTENTION_RELATIVE_Q);
    mnk_distances d = {
        .h = mnc_query_dim(q, heads, 1),
        .dk = mnc_query_dim(q, heads, 2),
        .far = mnc_query_attr(q, MN_ATTENTION_ATTR_MAX_DISTANCE),
    };
    if (mnc_query_in(q, MN_ATTENTION_DISTANCE_BIAS))
        d.biases = &some;
    if (rel) {
        d.rel_k = &some;
        d.far = d.far ? d.far : rel->dim[0] / 2;
    }
    return d;
}

/* How far from the middle of n rows a distance's row is: at most n / 2. */
static int64_t relative_length(const mnk_distances *d, int64_t m) {
    const int64_t n = n_places(d);
    const int64_t mid = n / 4;
    const double from = (double)mid;
    int64_t length = m;
    if (d->grow && m > mid) {
        const double share = log((double)m / from) / log((double)(d->far - 1) / from);
        length = mid + (int64_t)ceil(share * (from - 1));
    }
    return mnk_least(length, n / 2);
}

static void fill_lengths(const mnk_distances *d) {
    for (int64_t m = 0; m <= d->far; m++)
        d->buckets[m] = (int32_t)relative_length(d, m);
}

/* The bucket of each distance, of n: the first n / 2 are exact, the others grow. */
static void fill_buckets(const mnk_distances *d) {
    const int64_t n = d->bidirectional ? d->biases->rows / 2 : d->biases->rows;
    const int64_t exact = n / 2;
    const double from = (double)exact;
    for (int64_t m = 0; m <= d->far; m++) {
        int64_t bucket = m;
        if (m >= exact) {
            const double share = log((double)m / from) / log((double)d->far / from);
            bucket = exact + (int64_t)(share * (double)(n - exact));
        }
        d->buckets[m] = (int32_t)(bucket < n ? bucket : n - 1);
    }
}

void mnk_distances_fill(const mnk_distances *d) {
    if (mnk_has_relative(d))
        fill_lengths(d);
    if (d->biases)
        fill_buckets(d);
}

float mnk_distance_bias(const mnk_distances *d, int64_t head, int64_t pos, int64_t p) {
    const mnc_weight *w = d->biases;
    int64_t m = pos - p;
    int64_t bucket = 0;
    if (d->bidirectional && m < 0) {
        bucket = w->rows / 2;
        m = -m;
    }
    if (m < 0)
        m = 0;
    bucket += d->buckets[mnk_least(m, d->far)];
    return mnk_load1(mnc_row(w, bucket), w->dtype.id, head);
}

/* The row for a query `ahead` positions behind its key. Where n is no multiple of 4 the first row
 * is for distances beyond `far`. */
static int64_t distance_place(const mnk_distances *d, int64_t ahead) {
    const int64_t n = n_places(d);
    const int64_t middle = n / 2;
    const int64_t m = ahead < 0 ? -ahead : ahead;
    int64_t length = d->buckets[mnk_least(m, d->far)];
    if (m > d->far && length < middle)
        length = relative_length(d, m);
    if (ahead < 0)
        return middle - length;
    return mnk_least(middle + length, n - 1);
}

/* The places of the tile's distances, from the first to the last; false: no row has an effect. */
static bool places_of_tile(const mnk_distances *d, const mnk_score_tile *t, int64_t *lo,
                           int64_t *hi) {
    int64_t first = INT64_MAX;
    int64_t last = -1;
    for (int64_t r = 0; r < t->nr; r++) {
        const int64_t pos = t->pos[r];
        if (pos < 0)
            continue;
        first = mnk_least(first, pos);
        if (pos > last)
            last = pos;
    }
    if (last < 0)
        return false;
    const int64_t end = t->t0 + t->b1;
    *lo = distance_place(d, first - end + 1);
    *hi = distance_place(d, last - t->t0 - t->b0);
    return true;
}

/* n rows of a head from `from` on, side by side. */
static void load_places(const mnk_distances *d, const mnc_weight *w, int64_t head, int64_t from,
                        int64_t n) {
    const size_t bytes = (size_t)d->dk * sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (from + i) * d->h + head;
        memcpy(d->rel_rows + i * d->dk, mnc_row(w, row), bytes);
    }
}

/* What the scores of query head g get of n places from `from` on: the products of the queries with
 * these, or of the tile's keys. */
static void add_places(const mnk_distances *d, const mnk_score_tile *t, int64_t g, int64_t from,
                       int64_t n, bool of_keys) {
    for (int64_t r = 0; r < t->nr; r++) {
        const int64_t pos = t->pos[r];
        const int64_t row = r * t->g + g;
        float *s = t->s + row * MNK_TILE;
        if (pos < 0)
            continue;
        for (int64_t x = t->b0; x < t->b1; x++) {
            const int64_t p = t->t0 + x;
            const int64_t at = distance_place(d, pos - p) - from;
            const bool is_here = at >= 0 && at < n;
            int64_t line = row;
            if (of_keys)
                line = x - t->b0;
            if (is_here)
                s[x] += d->rel_s[line * MNK_TILE + at];
        }
    }
}

/* The scores of query head g of key head h, whose distances have the places from lo to hi. */
static void add_to_head(const mnk_distances *d, const mnk_score_tile *t, int64_t h, int64_t g,
                        int64_t lo, int64_t hi) {
    const int64_t head = h * t->g + g;
    const float *k = t->k + t->b0 * d->dk;
    for (int64_t from = lo; from <= hi; from += MNK_TILE) {
        const int64_t n = mnk_least(hi + 1 - from, MNK_TILE);
        if (d->rel_k) {
            load_places(d, d->rel_k, head, from, n);
            t->v->scores(t->q, t->nr * t->g, d->rel_rows, n, d->dk, d->rel_s, MNK_TILE);
            add_places(d, t, g, from, n, false);
        }
        if (d->rel_q) {
            load_places(d, d->rel_q, head, from, n);
            t->v->scores(k, t->b1 - t->b0, d->rel_rows, n, d->dk, d->rel_s, MNK_TILE);
            add_places(d, t, g, from, n, true);
        }
    }
}

void mnk_add_relative(const mnk_distances *d, const mnk_score_tile *t, int64_t h) {
    int64_t lo;
    int64_t hi;
    if (!mnk_has_relative(d) || !places_of_tile(d, t, &lo, &hi))
        return;
    for (int64_t g = 0; g < t->g; g++)
        add_to_head(d, t, h, g, lo, hi);
}
