/* chain.h -- a graph of three operations one after the other, for what a graph of one cannot show:
 * segments that do not begin at node 0, tensors between nodes, several weights and symbols. */
#ifndef MINERVA_CHECK_CHAIN_H
#define MINERVA_CHECK_CHAIN_H
#include "life.h"

enum { CHAIN_NODES = 3, CHAIN_ROWS = 6, CHAIN_COLS = 64 };

/* The operations of a chain, in order; the device runs each of them in f32. */
typedef struct {
    uint32_t op[CHAIN_NODES];
} chain_ops;
/* Three different ones where the device has three that keep the shape of their input; 0 and the
 * rule is skipped, with its stage closed, where it has none. */
int chain_find(check *c, stage *s, chain_ops *ops);

/* t0 -> node 0 -> t1 -> node 1 -> t2 -> node 2 -> t3, each [n_tokens, CHAIN_COLS] in f32; t1 and t2
 * are INTERIOR. n_tokens is the second symbol. Equal seeds give equal weights and inputs. NULL =
 * out of memory, and the rule has failed. */
op_case *chain_case(check *c, const chain_ops *ops, uint64_t seed);
/* The same graph with its tensors in the reverse order. */
op_case *chain_reversed(check *c, const chain_ops *ops, uint64_t seed);
/* The same data with node i alone in the graph: its input becomes x [n_tokens, CHAIN_COLS]. */
op_case *chain_node(check *c, const chain_ops *ops, uint32_t i, uint64_t seed, const float *x);
/* The tensor t0 to t3. */
uint32_t chain_tensor(const op_case *o, uint32_t i);
#endif
