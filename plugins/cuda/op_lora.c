/* op_lora.c -- LORA: its operands for the kernels of k_lora.cu, which compute in f32 in every
 * class. */
#include "ops.h"

static void launch_lora(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const mn_tensor *state = mnp_in_tensor(r->g, n, MN_LORA_A);
    cu_lora a = {0};
    a.T = cu_in_dim(r, n, MN_LORA_ADAPTER, 0);
    a.N = cu_in_dim(r, n, MN_LORA_B, 1);
    a.n_adapters = (int)state->dim[0];
    a.Q = (int)state->dim[1];
    a.K = (int)state->dim[2];
    a.half = state->dtype.id == MN_F16;
    a.x = cu_in_f32(r, n, MN_LORA_X);
    a.y = cu_in_f32(r, n, MN_LORA_Y);
    a.a = cu_in_ptr(r, n, MN_LORA_A);
    a.b = cu_in_ptr(r, n, MN_LORA_B);
    a.adapter = cu_in_i32(r, n, MN_LORA_ADAPTER);
    a.h = cu_room(r, CU_NEED_LORA);
    a.z = cu_out_f32(r, n, MN_LORA_OUT_Z);
    if (a.T)
        cu_lora_run(r->step->stream, &a);
}

static void lora_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_graph *g = p->base.graph;
    const mn_tensor *adapter = mnp_in_tensor(g, n, MN_LORA_ADAPTER);
    const mn_tensor *a = mnp_in_tensor(g, n, MN_LORA_A);
    const int64_t rows = mnp_dim(g, p->base.symbol_max, adapter->dim[0]);
    const int64_t numbers = rows * a->dim[1];
    mng_need(needs, CU_NEED_LORA, (uint64_t)numbers * 4);
}

const mng_op cu_op_lora = {MN_OP_LORA, 1, mng_lora_verdict, lora_needs, launch_lora};
