/* distances.h -- buckets of distances between positions, of ATTENTION's DISTANCE_BIAS, RELATIVE_K
 * and RELATIVE_Q, as integers: what a device compares in place of logarithms. */
#ifndef MNP_DISTANCES_H
#define MNP_DISTANCES_H
#include "common.h"

#define MNP_DISTANCE_STEPS 128
/* The length of a distance m >= 0 is m up to `exact`, and from there on `exact` and the number of
 * steps that are <= m; steps ascend. Of DISTANCE_BIAS the length is the bucket, one of `places` in
 * each direction; of RELATIVE_* the row is `places`, half of the rows, and the length, or less it
 * where the key comes later. */
typedef struct {
    int32_t exact;
    int32_t places;
    int32_t n_steps;
    int32_t step[MNP_DISTANCE_STEPS];
} mnp_distances;

/* Whether the node has a table by distances. */
bool mnp_has_distances(const mn_graph *g, const mn_node *n);
/* Steps that the buckets of a node need, whose operands fit (attend_fits.h); 0: none. */
int64_t mnp_distance_steps(const mn_graph *g, const mn_node *n);
/* By the formulas of docs/ops.md in double, as plugin `reference` has them. The node has at most
 * MNP_DISTANCE_STEPS. */
void mnp_distances_of(const mn_graph *g, const mn_node *n, mnp_distances *out);
#endif
