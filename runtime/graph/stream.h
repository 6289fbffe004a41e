/* stream.h -- the routed experts of a layer as a graph for another device, which has memory for a
 * few of them at a time. A row of this graph is a pair: a row of the step and one of the experts
 * that it chose. So the products are those of MOE_LINEAR with one expert a row, of a weight whose
 * experts the host replaces between steps; what they make is put in the order of the step, and
 * added up in the order of EXPERTS.
 *
 * Three programs, ranges of nodes: the products of the pairs of some experts [0, n_product); the
 * order of all pairs [n_product, n_product + 1); the sum, the rest. Layers whose graphs have one
 * digest share them. */
#ifndef MN_STREAM_H
#define MN_STREAM_H
#include "graph/graph.h"

/* Symbols of the graph: rows of the step; pairs of one run of the products; all pairs of the
 * step. */
enum { MN_STREAM_ROWS, MN_STREAM_PAIRS, MN_STREAM_ALL, MN_STREAM_SYMBOLS };
enum { MN_STREAM_IN = 2, MN_STREAM_WEIGHTS = 16 };

/* A weight [group, ...] of the graph, and the model's graph's, of all experts. */
typedef struct {
    int32_t tensor;
    const mn_graph_weight *all;
} mn_stream_weight;

typedef struct {
    mn_graph abi;
    const mn_graph *given; /* for plugins */
    mn_sealed *pages;
    uint32_t n_product;
    int64_t n_expert, n_chosen, group, dim; /* dim: of a row of the sum */
    /* Tensors here: rows of the step [T, K], and of which of them, and of which expert of the
     * group, a pair is [P], [P, 1]; what products make [P, 1, D], the same of all pairs [A, D],
     * where a pair of the step lies there [A], the same in that order [A, D], and again [T, J, D];
     * operands of the sum, -1 where it has none, and the sum [T, D]. */
    int32_t in[MN_STREAM_IN], rows, experts, made, all, order, sorted, again, weights, chosen,
        resident, sum;
    /* Tensors of the model's graph: what `in`, weights and sum are there; the chosen experts, which
     * the host reads; which experts it has, -1: all. */
    int32_t of_in[MN_STREAM_IN], of_weights, of_chosen, of_resident, of_sum;
    mn_stream_weight weight[MN_STREAM_WEIGHTS];
    uint32_t n_in, n_weights;
} mn_stream_graph;

/* Of the experts in nodes [lo, hi) of g (mn_expert_range), `group` at a time, which divides their
 * number; at most max_rows rows and max_pairs pairs. MN_UNSUPPORTED: they are of another form, and
 * err says which. *out is freed by mn_stream_graph_free in any case. */
mn_status mn_stream_graph_make(const mn_model_graph *g, uint32_t lo, uint32_t hi, int64_t group,
                               int64_t max_rows, int64_t max_pairs, mn_stream_graph *out,
                               mn_error *err);
void mn_stream_graph_free(mn_stream_graph *s);
/* Maxima of its symbols: [MN_STREAM_SYMBOLS]. */
void mn_stream_symbols(const mn_stream_graph *s, int64_t *max);

/* The largest divisor of n_expert so that a group is at most `most` bytes; `bytes`: of all experts.
 * At least 1, and at most n_expert / 2. */
int64_t mn_stream_group(int64_t n_expert, double bytes, double most);
#endif
