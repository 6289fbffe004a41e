/* ops.c -- the toy's weights and its table of operations: a launch copies where the operands lie
 * and how large they are into a command, and the stream's thread calls the kernel with it. */
#include "state_nodes.h"
#include "toy.h"

/* What kernels need beside their operands: per thread, per node. */
enum { NEED_WORKER, NEED_SHARED };

/* ---- weights: f32, dense --------------------------------------------------------------------- */
void toy_weight_shape(const mn_device *d, const mn_tensor *t, mng_weight *w) {
    static const mng_type f32 = {MN_F32};
    (void)d;
    (void)t;
    w->type = &f32;
    w->row_bytes = (uint64_t)w->cols * sizeof(float);
    w->part_bytes = (uint64_t)w->rows * w->row_bytes;
}

mn_status toy_weight_put(mn_queue *q, const mng_weight *w, const mnp_source_row *s, mn_error *err) {
    return mng_put_plane(q, w, mng_write_unpacked, 0, w->row_bytes, *s, err);
}

static mnc_weight weight_of(const mng_weight *w) {
    return (mnc_weight){.dtype = {MN_F32, 1, sizeof(float), 1},
                        .data = w->mem[0],
                        .rows = w->rows,
                        .cols = w->cols,
                        .row_bytes = w->row_bytes,
                        .group_rows = w->group_rows};
}

/* ---- kernels, on the stream's thread --------------------------------------------------------- */
void toy_run_kernel(const toy_kernel *k) {
    mnc_call call = k->call;
    mnc_worker worker = {.n = 1, .n_threads = 1, .n_nodes = 1, .scratch = k->scratch};
    for (uint32_t i = 0; i < call.node->n_in; i++)
        if (call.in[i].weight)
            call.in[i].weight = &k->weights[i];
    if (k->op->first)
        k->op->first(&call, &worker);
    k->op->fn(&call, &worker);
}

void toy_run_view(const mng_view *v) {
    char *dense = toy_at(v->dense);
    char *apart = toy_at(v->apart);
    for (int64_t i = 0; i < v->n; i++) {
        int64_t rest = i;
        int64_t at = 0;
        for (uint32_t d = v->n_dim; d-- > 0; rest /= v->dim[d])
            at += rest % v->dim[d] * v->stride[d];
        if (v->out)
            memcpy(apart + 4 * at, dense + 4 * i, 4);
        else
            memcpy(dense + 4 * i, apart + 4 * at, 4);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */
static const ref_op *kernel_of(uint32_t op) {
    static const struct {
        uint32_t op;
        const ref_op *kernel;
    } kernels[] = {
#define ROW(OP, name, contract) {MN_OP_##OP, &ref_op_##name},
        REF_OPS(ROW)
#undef ROW
    };
    for (uint32_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].op == op)
            return kernels[i].kernel;
    return NULL;
}

static void fill_operand(const mng_run *r, int32_t t, mnc_operand *o, mnc_weight *weight) {
    if (t < 0)
        return;
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    o->n_dim = x->n_dim;
    o->dtype = mnp_elem_dtype(x);
    o->rows = x->n_dim ? mng_dim(r, t, 0) : 1;
    o->cols = 1;
    for (uint32_t i = 0; i < x->n_dim; i++) {
        o->dim[i] = mng_dim(r, t, i);
        o->cols *= i ? o->dim[i] : 1;
    }
    if (x->role == MN_ROLE_WEIGHT) {
        *weight = weight_of(mng_weight_of(r, t));
        o->weight = weight;
    } else {
        o->ptr = toy_at(mng_operand(r, t));
    }
}

static void fill_cache(const mng_run *r, const mng_unit *u, mnc_kv *kv) {
    const mng_cache c = mng_cache_of(r, u);
    *kv = (mnc_kv){.geo = *c.kv,
                   .pages = (const int32_t *)(const void *)toy_at(mng_operand(r, c.pages)),
                   .max_pages = c.P,
                   .n_pages = (int64_t)c.n_pages,
                   .base = (uint8_t *)toy_at(mng_operand(r, c.cache))};
}

static void fill_states(const mng_run *r, const mng_unit *u, mnc_states *to) {
    const mng_states s = mng_states_of(r, u);
    *to = (mnc_states){.geo = *s.state,
                       .pages = (const int32_t *)(const void *)toy_at(mng_operand(r, s.states)),
                       .n_pages = (int64_t)s.n_pages,
                       .base = (uint8_t *)toy_at(mng_operand(r, s.memory))};
}

static void launch(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    mn_queue *q = r->c->base.queue;
    mnp_memory_node memory;
    if (r->dry)
        return;
    toy_command *command = toy_begin(q);
    toy_kernel *k = &command->u.kernel;
    command->what = TOY_KERNEL;
    memset(k, 0, sizeof *k);
    k->op = kernel_of(n->op);
    k->scratch = toy_at(mng_needed(r, NEED_WORKER));
    k->call.node = n;
    k->call.attr = &r->g->attrs[n->attr_off];
    k->call.n_attr = n->n_attr;
    k->call.shared = toy_at(mng_needed(r, NEED_SHARED));
    for (uint32_t i = 0; i < n->n_in; i++)
        fill_operand(r, mnp_in(r->g, n, i), &k->call.in[i], &k->weights[i]);
    for (uint32_t i = 0; i < n->n_out; i++)
        fill_operand(r, mnp_out(r->g, n, i), &k->call.out[i], NULL);
    if (mnp_has_state(n->op))
        fill_states(r, u, &k->call.states);
    else if (mnp_memory_node_of(n, &memory))
        fill_cache(r, u, &k->call.kv);
    toy_push(q);
}

void toy_copy_view(mng_run *r, const mng_view *v) {
    mn_queue *q = r->c->base.queue;
    if (r->dry)
        return;
    toy_command *command = toy_begin(q);
    command->what = TOY_VIEW;
    command->u.view = *v;
    toy_push(q);
}

/* ---- the table ------------------------------------------------------------------------------- */
static void needs(const mn_program *p, const mn_node *n, mng_needs *to) {
    const mnc_query q = {.graph = p->base.graph,
                         .node = n,
                         .symbol = p->base.symbol_max,
                         .precision = MN_PRECISION_EXACT,
                         .n_workers = 1};
    mnc_op op = {0};
    if (kernel_of(n->op)->size)
        kernel_of(n->op)->size(&q, &op);
    mng_need(to, NEED_WORKER, op.worker_bytes);
    mng_need(to, NEED_SHARED, op.shared_bytes);
}

/* X(OP, contract, verdict by shapes) */
#define TOY_OPS(X)                                                                                 \
    X(EMBED, 2, mng_embed_verdict)                                                                 \
    X(RMS_NORM, 3, mng_pair_verdict)                                                               \
    X(LAYER_NORM, 1, mng_pair_verdict)                                                             \
    X(LINEAR, 2, mng_linear_verdict)                                                               \
    X(ROPE, 2, mng_rope_verdict)                                                                   \
    X(KV_STORE, 2, mng_store_verdict)                                                              \
    X(ATTENTION, 4, mng_attention_verdict)                                                         \
    X(ACT, 3, NULL)                                                                                \
    X(GLU, 2, mng_pair_verdict)                                                                    \
    X(ADD, 1, mng_pair_verdict)                                                                    \
    X(MUL, 1, mng_pair_verdict)                                                                    \
    X(SCALE, 1, NULL)                                                                              \
    X(SOFTCAP, 1, NULL)                                                                            \
    X(GATHER_ROWS, 1, mng_pair_verdict)                                                            \
    X(SAMPLE, 4, mng_sample_verdict)                                                               \
    X(MOE_ROUTE, 2, mng_route_verdict)                                                             \
    X(MOE_LINEAR, 3, mng_moe_linear_verdict)                                                       \
    X(MOE_COMBINE, 3, mng_combine_verdict)                                                         \
    X(CONV_STATE, 1, mng_state_verdict)                                                            \
    X(SSM_SCAN, 1, mng_state_verdict)                                                              \
    X(GATED_DELTA, 1, mng_state_verdict)                                                           \
    X(LOOKUP, 1, mng_lookup_verdict)                                                               \
    X(LORA, 1, mng_lora_verdict)
#define ROW(OP, contract, verdict) &(const mng_op){MN_OP_##OP, contract, verdict, needs, launch},
const mng_op *const toy_ops[TOY_N_OPS] = {TOY_OPS(ROW)};
#undef ROW
