/* states.c -- CONV_STATE, SSM_SCAN and GATED_DELTA of GPU backends: their verdict by shapes, and
 * where the pages of states lie in a step. common/state_nodes.c has the shapes, common/memory.c the
 * pages. Holds nothing. */
#include "gpu_table.h"
#include "state_nodes.h"

uint32_t mng_state_verdict(const mn_device *dev, const mn_graph *g, const mn_node *n) {
    (void)dev;
    if (mnp_n_state(g, n)) {
        return MNG_OK;
    }
    return MNG_SHAPE;
}

mng_states mng_states_of(const mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const uint32_t row_pos = mnp_state_row_pos(n->op);
    const uint64_t page_bytes = u->state.page_bytes;
    mng_states s = {.state = &u->state};
    mnp_memory_node at;
    mnp_memory_node_of(n, &at);
    s.row_pos = mnp_in(r->g, n, row_pos);
    s.seqs = mnp_in(r->g, n, row_pos + MNP_SEQS_BEHIND);
    s.states = mnp_in(r->g, n, at.pages);
    s.memory = mnp_in(r->g, n, at.memory);
    const mn_binding *bound = &mng_context_of(r->c)->bindings[s.memory];
    s.T = (int)mng_dim(r, s.row_pos, 0);
    s.Q = (int)mng_dim(r, s.seqs, 0);
    s.S = (int)mng_dim(r, s.states, 0);
    s.n_pages = bound->bytes / page_bytes;
    s.part_pages = bound->buffer->room / page_bytes;
    return s;
}
