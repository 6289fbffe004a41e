/* state_nodes.h -- CONV_STATE, SSM_SCAN and GATED_DELTA as nodes of a graph: which shapes are
 * legal, and where operands lie. ground/state_shapes.h has the sizes that follow. Pure functions;
 * any thread. */
#ifndef MNP_STATE_NODES_H
#define MNP_STATE_NODES_H
#include "common.h"
#include "state_shapes.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Of a node of that operation. n_state is 0 where operands are missing or do not fit together. */
mn_conv_shape mnp_conv_shape(const mn_graph *g, const mn_node *n);
mn_ssm_shape mnp_ssm_shape(const mn_graph *g, const mn_node *n);
mn_delta_shape mnp_delta_shape(const mn_graph *g, const mn_node *n);

bool mnp_has_state(uint32_t op);
/* What mn_memory_params states of a node of one of the three, but for the number of the layer.
 * n_state 0: its operands do not fit. */
mn_memory_layer mnp_state_layer(const mn_graph *g, const mn_node *n);
static inline uint64_t mnp_n_state(const mn_graph *g, const mn_node *n) {
    return mnp_state_layer(g, n).n_state;
}
/* The operand ROW_POS of one of the three; SEQS and STATES are behind it. */
uint32_t mnp_state_row_pos(uint32_t op);
#define MNP_SEQS_BEHIND 1u
#define MNP_STATES_BEHIND 2u

#ifdef __cplusplus
}
#endif
#endif
