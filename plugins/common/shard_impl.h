/* shard_impl.h -- a plan while it is made (shard.c) and what its graphs are made from
 * (shard_graph.c). */
#ifndef MNP_SHARD_IMPL_H
#define MNP_SHARD_IMPL_H
#include "shard.h"
#include "units.h"

enum { SHARD_OPEN, SHARD_ROWS, SHARD_COLUMNS }; /* how a product was cut */
struct mnp_shard {
    const mn_host *host;
    const mn_graph *g;
    uint32_t lo;
    uint32_t hi;
    uint32_t n; /* members */
    uint32_t n_tensors;
    uint32_t n_exchanges;
    uint32_t room;            /* of tensors: the graph's and one per operand */
    mnp_piece *pieces;        /* [room] */
    mnp_share *shares;        /* [room][n] */
    int32_t *operands;        /* [n_operands] */
    bool *first_only;         /* [n_operands] absent except on member 0: biases of sums */
    bool *decided;            /* [n_operands] of a weight: which piece of it the node reads */
    bool *placed;             /* [n_tensors of the graph] a weight whose first piece is decided */
    uint8_t *how;             /* [n_nodes] SHARD_ROWS, ... */
    mnp_share *kv;            /* [n_nodes][n] KV heads of a divided ATTENTION; else zeros */
    mnp_use *uses;            /* [n_tensors of the graph] */
    mnp_exchange *exchanges;  /* [2 * n_operands] */
    mn_graph *graphs;         /* [n] */
    mn_tensor *tensors;       /* [n][n_tensors] */
    int32_t *member_operands; /* [2][n_operands]: of member 0, of the others */
    uint64_t *attrs;          /* [n][n_attrs] */
    char *names;              /* [n_tensors - the graph's][NAME] */
    uint32_t n_memory;        /* groups of the memory; n_layers: of all of them */
    uint32_t n_layers;
    mn_memory_use *memory;    /* [n][n_memory] */
    mn_memory_params *params; /* [n][n_memory] */
    mn_memory_layer *layers;  /* [n][n_layers] */
};
static inline mnp_share *shard_shares(const mnp_shard *s, uint32_t tensor) {
    return &s->shares[(uint64_t)tensor * s->n];
}
/* Makes the members' graphs once all is decided. */
mn_status shard_make_graphs(mnp_shard *s, mn_error *err);
/* Makes the members' memory of sequences. */
mn_status shard_make_memory(mnp_shard *s, const mn_compile *c, mn_error *err);

#endif
