/* op_lora.c -- LORA: its operands for the kernels of lora.cl. */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

static void lora(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mn_tensor *state = mnp_in_tensor(r->g, n, MN_LORA_A);
    const mng_ref adapter = mng_in(r, n, MN_LORA_ADAPTER);
    const mng_ref room = mng_needed(r, OCL_NEED_LORA);
    const ocl_lora_args a = {.T = (int)mng_dim(r, mnp_in(r->g, n, MN_LORA_ADAPTER), 0),
                             .K = (int)state->dim[2],
                             .N = (int)mng_dim(r, mnp_in(r->g, n, MN_LORA_B), 1),
                             .Q = (int)state->dim[1],
                             .n_adapters = (int)state->dim[0],
                             .half_width = state->dtype.id == MN_F16};
    const mng_ref shrink[] = {mng_in(r, n, MN_LORA_X), mng_in(r, n, MN_LORA_A), adapter, room};
    const mng_ref expand[] = {mng_in(r, n, MN_LORA_Y), mng_in(r, n, MN_LORA_B), adapter, room,
                              mng_out(r, n, MN_LORA_OUT_Z)};
    if (!a.T)
        return;
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_lora_shrink,
                                 .refs = shrink,
                                 .n_refs = N_REFS(shrink),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items(a.Q, a.T, 1)});
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_lora_expand,
                                 .refs = expand,
                                 .n_refs = N_REFS(expand),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = ocl_items(a.N, a.T, 1)});
}

static void lora_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_graph *g = p->base.graph;
    const mn_tensor *adapter = mnp_in_tensor(g, n, MN_LORA_ADAPTER);
    const int64_t rows = mnp_dim(g, p->base.symbol_max, adapter->dim[0]);
    const int64_t rank = mnp_in_tensor(g, n, MN_LORA_A)->dim[1];
    mng_need(needs, OCL_NEED_LORA, (uint64_t)(rows * rank) * 4);
}

const mng_op ocl_op_lora = {MN_OP_LORA, 1, mng_lora_verdict, lora_needs, lora};
