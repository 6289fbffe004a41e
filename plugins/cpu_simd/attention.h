/* attention.h -- what distances between queries and keys add to the scores of ATTENTION: a bias by
 * the bucket of a distance (T5, MPNet), or products with keys and queries of distances (DeBERTa).
 * The caller computes the other scores, and lays out the scratch. */
#ifndef MNK_ATTENTION_H
#define MNK_ATTENTION_H
#include "nodes.h"

/* The distances of a node. All sizes are known before the scratch is there. */
typedef struct {
    const mnc_weight *biases; /* [B, H], by bucket of the distance; NULL: none */
    /* [B, H, dk], by the place of a distance, whose lengths are in buckets; NULL: none */
    const mnc_weight *rel_k;
    const mnc_weight *rel_q;
    int64_t h; /* query heads */
    int64_t dk;
    int64_t far;        /* distances from here on are in one bucket */
    bool bidirectional; /* of biases: keys behind the query have buckets of their own */
    bool grow;          /* of places: from a quarter of them on, lengths grow by logarithm */
    int32_t *buckets;   /* [far + 1], by mnk_distances_fill */
    float *rel_rows;    /* [MNK_TILE + MNK_BEHIND, dk]: some rows of a table, of one head */
    float *rel_s;       /* [the longer of rows and MNK_TILE, MNK_TILE]: products with these */
} mnk_distances;

/* Scores of nr rows, with g query heads each, for the columns [b0, b1) of a tile. */
typedef struct {
    const mnk_vector *v;
    const int32_t *pos; /* [nr], negative: the row has no effect */
    int64_t nr;
    int64_t g;
    int64_t t0; /* position of column 0 */
    int64_t b0;
    int64_t b1;
    const float *q; /* [nr, g, dk] */
    const float *k; /* [MNK_TILE, dk] */
    float *s;       /* [nr, g, MNK_TILE] */
} mnk_score_tile;

static inline int64_t mnk_least(int64_t a, int64_t b) {
    if (a < b)
        return a;
    return b;
}
/* Of a call, all but the scratch. */
mnk_distances mnk_distances_of(const mnc_call *c);
/* Of a query, for the size of the scratch alone: its tables have no values. */
mnk_distances mnk_distances_asked(const mnc_query *q);
static inline bool mnk_has_relative(const mnk_distances *d) {
    return d->rel_k || d->rel_q;
}
static inline bool mnk_has_distances(const mnk_distances *d) {
    return d->biases || mnk_has_relative(d);
}
/* Fills buckets, if the node has distances. */
void mnk_distances_fill(const mnk_distances *d);
/* What the key at p adds to the logit of a row at pos; d has biases. */
float mnk_distance_bias(const mnk_distances *d, int64_t head, int64_t pos, int64_t p);
/* Adds the products with keys and queries of distances to the scores of key head h; nothing where
 * the node has none. */
void mnk_add_relative(const mnk_distances *d, const mnk_score_tile *t, int64_t h);
#endif
