/* observe.c -- a step whose products are looked at: before a segment runs, what its LINEAR and
 * MOE_LINEAR nodes read is copied to the host. The placement is cut in front of each of them, so
 * that all of it crosses segments and is bound as dense f32 or i32. Memory for the copies is held
 * during a step. */
#include "engine/engine_impl.h"

/* A tensor of this step on the host. */
typedef struct {
    void *bytes;
    size_t cap;
    uint32_t tensor;
    bool filled;
} observed_copy;
typedef struct {
    mn_engine *e;
    const mn_engine_step *step;
    const mn_step_size *size;
    mn_product_fn fn;
    void *arg;
    observed_copy x, experts, factors;
    void *weighed; /* rows of x times their factors */
    size_t weighed_cap;
} observer;

static int64_t observed_dim(const observer *o, const mn_tensor *t, uint32_t i) {
    return t->dim[i] < 0 ? o->step->symbols[~t->dim[i]] : t->dim[i];
}

/* Rows of it that are not padding. */
static uint64_t live_rows(const observer *o, const mn_tensor *t) {
    if (t->dim[0] == MN_DIM(MN_SYM_OUTPUTS))
        return o->size->n_out;
    return t->dim[0] == MN_DIM(MN_SYM_TOKENS) ? o->size->n_rows : (uint64_t)t->dim[0];
}

/* Through pinned memory, where the device's own cannot be mapped. */
static mn_status read_to_host(const observer *o, mn_engine_segment *s, mn_buffer *from,
                              uint64_t bytes, void *to, mn_error *err) {
    mn_engine_device *d = &o->e->devices[s->device];
    mn_buffer *pinned = NULL;
    mn_event *done = NULL;
    void *map = NULL;
    mn_status st =
        mn_engine_alloc(o->e, s->device, bytes, MN_MEM_HOST_PINNED | MN_UNZEROED, &pinned, err);
    if (st)
        return st;
    st = d->backend->map(pinned, &map, err);
    if (!st)
        MN_WATCHED_FOR(
            mn_callee_of(d), "read", MN_MOVES_NS(bytes),
            MN_RETRY(st, d->backend->read(d->queue, from, 0, pinned, 0, bytes, &done, err)));
    if (!st)
        st = mn_event_settle(d->backend, mn_callee_of(d), MN_MOVES_NS(bytes), &done, err);
    if (!st)
        memcpy(to, map, bytes);
    MN_WATCHED(mn_callee_of(d), "buffer_free", d->backend->buffer_free(pinned));
    return st;
}

/* All of root tensor t, unless it is there already. */
static mn_status fill_copy(const observer *o, mn_engine_segment *s, uint32_t t, observed_copy *to,
                           mn_error *err) {
    mn_engine_device *d = &o->e->devices[s->device];
    mn_buffer *from = d->at[t];
    uint64_t bytes;
    void *map = NULL;
    mn_status st = MN_OK;
    if (to->filled && to->tensor == t)
        return MN_OK;
    if (!from)
        return mn_fail(err, MN_INVALID, "%.*s does not cross segments, so that it cannot be read",
                       MN_STR_ARG(o->e->graph->abi.tensors[t].name));
    if (!mn_tensor_bytes(&o->e->graph->abi, t, o->step->symbols, &bytes) || !bytes)
        return mn_fail(err, MN_INVALID, "%.*s: a tensor of no bytes",
                       MN_STR_ARG(o->e->graph->abi.tensors[t].name));
    if (!mn_grow(&to->bytes, &to->cap, bytes, 1))
        return mn_fail_memory(err, bytes);
    if (!d->unified)
        st = read_to_host(o, s, from, bytes, to->bytes, err);
    else
        st = d->backend->map(from, &map, err);
    if (!st && map)
        memcpy(to->bytes, map, bytes);
    to->tensor = t;
    to->filled = !st;
    return mn_engine_note(o->e, s->device, st);
}

static const mn_graph_weight *weight_at(const mn_model_graph *g, uint32_t root) {
    for (uint32_t i = 0; i < g->n_weights; i++)
        if ((uint32_t)g->weights[i].tensor == root)
            return &g->weights[i];
    return NULL;
}

/* Whether an earlier weight of the node is part of the same stored tensor. */
static bool told_already(const mn_graph *g, const mn_node *n, uint32_t first, uint32_t j,
                         uint32_t root) {
    for (uint32_t k = first; k < j; k += 2)
        if (mn_tensor_root(g, (uint32_t)g->operands[n->in_off + k]) == root)
            return true;
    return false;
}

static uint32_t first_weight(const mn_node *n) {
    return n->op == MN_OP_LINEAR ? MN_LINEAR_WEIGHT : MN_MOE_LINEAR_WEIGHT;
}

/* Once for each of the model's tensors that the weight has rows of. */
static mn_status tell_weight(const observer *o, const mn_graph_weight *w, mn_product_input *in,
                             mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < w->n_joined && !st; i++) {
        in->weight = &w->joined[i]->info;
        st = o->fn(o->arg, in, err);
    }
    if (w->n_joined || !w->source)
        return st;
    in->weight = &w->source->info;
    return o->fn(o->arg, in, err);
}

static mn_status tell_weights(const observer *o, const mn_node *n, mn_product_input *in,
                              mn_error *err) {
    const mn_graph *g = &o->e->graph->abi;
    const uint32_t first = first_weight(n);
    mn_status st = MN_OK;
    for (uint32_t j = first; j < first + 2 * n->n_out && !st; j += 2) {
        const uint32_t t = (uint32_t)g->operands[n->in_off + j];
        const uint32_t root = mn_tensor_root(g, t);
        const mn_graph_weight *w = weight_at(o->e->graph, root);
        if (!w || told_already(g, n, first, j, root))
            continue;
        in->n_mat = in->experts ? (uint64_t)g->tensors[t].dim[0] : in->n_each;
        st = tell_weight(o, w, in, err);
    }
    return st;
}

/* Where experts get weighted inputs (X_WEIGHTS): rows of x times the factor of each expert. */
static mn_status weigh_rows(observer *o, mn_engine_segment *s, const mn_node *n,
                            mn_product_input *in, mn_error *err) {
    const uint32_t behind = MN_MOE_LINEAR_WEIGHT + 2 * n->n_out;
    const int32_t t = behind < n->n_in ? o->e->graph->abi.operands[n->in_off + behind] : -1;
    const uint64_t J = in->n_chosen;
    const uint64_t cols = in->x_cols / in->n_each;
    if (t < 0)
        return MN_OK;
    const mn_status st = fill_copy(o, s, (uint32_t)t, &o->factors, err);
    if (st)
        return st;
    if (!mn_grow(&o->weighed, &o->weighed_cap, in->n_rows * J * cols, sizeof(float)))
        return mn_fail_memory(err, in->n_rows * J * cols * sizeof(float));
    const float *x = o->x.bytes;
    const float *factors = o->factors.bytes;
    float *to = o->weighed;
    for (uint64_t i = 0; i < in->n_rows * J; i++)
        for (uint64_t c = 0; c < cols; c++)
            to[i * cols + c] = factors[i] * x[i / (J / in->n_each) * cols + c];
    in->x = to;
    in->n_each = J;
    in->x_cols = J * cols;
    return MN_OK;
}

static mn_status observe_node(observer *o, mn_engine_segment *s, const mn_node *n, mn_error *err) {
    const mn_graph *g = &o->e->graph->abi;
    const uint32_t t = (uint32_t)g->operands[n->in_off];
    const mn_tensor *x = &g->tensors[t];
    const mn_tensor *w = &g->tensors[g->operands[n->in_off + first_weight(n)]];
    mn_product_input in = {.n_rows = live_rows(o, x), .n_each = 1, .x_cols = 1};
    if (!in.n_rows)
        return MN_OK;
    if (x->alias_of >= 0)
        return mn_fail(err, MN_UNSUPPORTED, "%.*s is a view, which a product reads",
                       MN_STR_ARG(x->name));
    for (uint32_t i = 1; i < x->n_dim; i++)
        in.x_cols *= (uint64_t)observed_dim(o, x, i);
    mn_status st = fill_copy(o, s, t, &o->x, err);
    if (st)
        return st;
    in.x = o->x.bytes;
    if (n->op == MN_OP_MOE_LINEAR) {
        const uint32_t chosen = (uint32_t)g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
        st = fill_copy(o, s, chosen, &o->experts, err);
        in.experts = o->experts.bytes;
        in.n_chosen = (uint64_t)observed_dim(o, &g->tensors[chosen], 1);
        in.n_each = x->n_dim > 2 ? in.n_chosen : 1;
        if (!st)
            st = weigh_rows(o, s, n, &in, err);
    } else if (w->n_dim > 2) { /* a matrix per head, which leaves the end of its row out */
        in.n_each = (uint64_t)w->dim[0];
    }
    in.x_cols /= in.n_each;
    in.n_cols = w->n_dim > 2 ? (uint64_t)w->dim[2] : in.x_cols;
    return st ? st : tell_weights(o, n, &in, err);
}

/* The products of segment k; the nodes in front of it have run. *more: not behind the last one. */
static mn_status observe_segment(observer *o, uint32_t k, bool *more, mn_error *err) {
    const mn_graph *g = &o->e->graph->abi;
    mn_engine_segment *s = &o->e->segments[k];
    mn_status st = MN_OK;
    o->x.filled = false;
    o->experts.filled = false;
    o->factors.filled = false;
    for (uint32_t i = s->node_lo; i < s->node_hi && !st; i++)
        if (g->nodes[i].op == MN_OP_LINEAR || g->nodes[i].op == MN_OP_MOE_LINEAR)
            st = observe_node(o, s, &g->nodes[i], err);
    *more = k + 1 < o->e->n_segments;
    return st;
}

static mn_status execute_settled(const observer *o, mn_engine_segment *s, mn_error *err) {
    const mn_engine_device *d = &o->e->devices[s->device];
    mn_event *done = NULL;
    mn_status st = mn_engine_segment_execute(o->e, s, o->step, &done, err);
    if (!st)
        st = mn_event_settle(d->backend, mn_callee_of(d), mn_engine_segment_ns(s, o->step->symbols),
                             &done, err);
    return mn_engine_note(o->e, s->device, st);
}

mn_status mn_engine_observe(mn_engine *e, const mn_engine_step *x, const mn_step_size *size,
                            mn_product_fn fn, void *arg, mn_error *err) {
    observer o = {.e = e, .step = x, .size = size, .fn = fn, .arg = arg};
    bool more = true;
    mn_status st = mn_engine_write_inputs(e, x, err);
    for (uint32_t k = 0; more && !st; k++) {
        st = mn_boundary_move(e, k, x->symbols, err);
        if (!st)
            st = observe_segment(&o, k, &more, err);
        if (!st && more)
            st = execute_settled(&o, &e->segments[k], err);
        if (!st && more)
            st = mn_boundary_fetch(e, k, x->symbols, err);
    }
    if (st)
        mn_boundary_drop(e);
    mn_free(o.x.bytes);
    mn_free(o.experts.bytes);
    mn_free(o.factors.bytes);
    mn_free(o.weighed);
    return st;
}
