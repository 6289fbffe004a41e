/* group_step.c -- steps of a group. The members' graphs are captured side by side: units up to the
 * next exchange on every member that is here, the exchange (group_exchange.c), and so on; then
 * each is launched on its member's queue. Members in other processes do the same: NCCL
 * connects them at their first exchange, so that capturing waits for them, too. A context owns its
 * memory of exchanges, and its members' contexts. */
#include "group_step.h"

mn_status cu_choose_member(const cu_group *g, uint32_t rank, mn_error *err) {
    return cu_check(cudaSetDevice(g->of[rank]->index), err, "choosing the device");
}

/* ---- capture --------------------------------------------------------------------------------- */
/* Every member's units up to `k`th exchange, or all: n. */
static mn_status launch_up_to(cu_joint_step *s, uint32_t k, uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = s->g->lo; r < s->g->hi && !st; r++) {
        cu_run *run = &s->run[r];
        const uint32_t to = k < n ? run->p->stops[k].unit : run->p->n_units;
        st = cu_choose_member(s->g, r, err);
        if (!st)
            st = cu_launch_some(run, s->unit[r], to, &s->last[r], err);
        s->unit[r] = to;
        st = cu_group_blame(s->g, r, st, err);
    }
    return st;
}

/* What scratch holds of other tensors beside stays what it was: exchanges write tensors alone. */
static mn_status launch_step(cu_joint_step *s, mn_error *err) {
    uint32_t n;
    const mnp_exchange *e = mnp_shard_exchanges(s->plan, &n);
    mn_status st = MN_OK;
    for (uint32_t k = 0; k <= n && !st; k++) {
        st = launch_up_to(s, k, n, err);
        if (!st && k < n)
            st = cu_launch_exchange(s, k, &e[k], err);
    }
    return st ? st : cu_end_exchanges(s, err);
}

cu_joint_step cu_joint_step_of(cu_group_context *c, bool captures) {
    cu_joint_step s = {0};
    s.c = c;
    s.g = cu_group_of(c->base.prog->dev);
    s.plan = ((cu_group_program *)c->base.prog)->whole;
    for (uint32_t r = s.g->lo; r < s.g->hi; r++) {
        mn_context *m = c->of[r];
        s.run[r] = cu_run_of(m, m->symbol, captures ? m->capture : m->queue->stream);
        s.last[r] = UINT32_MAX;
    }
    return s;
}

static mn_status begin_capture(const cu_joint_step *s, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = s->g->lo; r < s->g->hi && !st; r++) {
        const mn_context *m = s->c->of[r];
        st = mnp_check_sizes(m->prog->graph, m->symbol, m->bindings, err);
        if (!st)
            st = cu_choose_member(s->g, r, err);
        if (!st)
            st = cu_check(cudaStreamBeginCapture(m->capture, cudaStreamCaptureModeThreadLocal), err,
                          "capturing");
    }
    return st;
}

/* Ends what was begun, also after an error; graphs: [n], NULL where there is none. */
static mn_status end_capture(cu_joint_step *s, cudaGraph_t *graphs, mn_status st, mn_error *err) {
    for (uint32_t r = s->g->lo; r < s->g->hi; r++) {
        enum cudaStreamCaptureStatus how = cudaStreamCaptureStatusNone;
        mn_context *m = s->c->of[r];
        cudaSetDevice(s->g->of[r]->index);
        graphs[r] = NULL;
        if (cudaStreamIsCapturing(m->capture, &how) != cudaSuccess)
            cudaGetLastError();
        if (how == cudaStreamCaptureStatusNone)
            continue;
        const cudaError_t e = cudaStreamEndCapture(m->capture, &graphs[r]);
        if (!st)
            st = cu_group_blame(s->g, r, cu_check(e, err, "capturing"), err);
        else
            cudaGetLastError();
    }
    return st;
}

/* The members' graphs for their contexts' symbols, with all that a first launch needs. */
static mn_status capture(cu_group_context *c, bool prepare, mn_error *err) {
    cu_joint_step s = cu_joint_step_of(c, true);
    cudaGraph_t graphs[CU_MAX_MEMBERS];
    mn_status st = begin_capture(&s, err);
    if (!st)
        st = launch_step(&s, err);
    st = end_capture(&s, graphs, st, err);
    for (uint32_t r = s.g->lo; r < s.g->hi; r++) {
        cudaGraphExec_t exec = NULL;
        cudaSetDevice(s.g->of[r]->index);
        if (!st)
            st = cu_check(cudaGraphInstantiate(&exec, graphs[r], 0), err, "a captured graph");
        if (!st)
            st = cu_check(cudaGraphUpload(exec, c->of[r]->queue->stream), err, "a captured graph");
        if (graphs[r])
            cudaGraphDestroy(graphs[r]);
        if (!st)
            cu_context_keep(c->of[r], exec, prepare);
        else if (exec)
            cudaGraphExecDestroy(exec);
    }
    return st;
}

/* Takes the step's values on all members, and finds or makes their graphs. */
mn_status cu_group_get_ready(cu_group_context *c, uint32_t set, const int64_t *values, bool prepare,
                             cudaGraphExec_t *execs, mn_error *err) {
    const cu_group *g = cu_group_of(c->base.prog->dev);
    const mn_host *h = g->base.plugin->host;
    mn_status st = MN_OK;
    bool all = true;
    for (uint32_t r = g->lo; r < g->hi && !st; r++) {
        st = cu_group_blame(g, r, cu_context_begin(c->of[r], set, values, err), err);
        execs[r] = st ? NULL : cu_context_find(c->of[r], prepare);
        all = all && execs[r];
    }
    if (st || all)
        return st;
    const uint64_t from = h->now_ns(h->self);
    st = capture(c, prepare, err);
    c->of[g->lo]->capture_ns += h->now_ns(h->self) - from;
    for (uint32_t r = g->lo; r < g->hi && !st; r++)
        execs[r] = cu_context_find(c->of[r], prepare);
    return st;
}

mn_status cu_group_context_prepare(mn_context *ctx, uint32_t set, const int64_t *values,
                                   mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->base.prog->dev);
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = cu_group_get_ready(c, set, values, true, execs, err);
    for (uint32_t r = g->lo; r < g->hi && !st; r++) {
        st = cu_choose_member(g, r, err);
        if (!st)
            st = cu_events_reserve(g->of[r], 16, err);
    }
    return st;
}

/* Nothing is waited for until every member has its graph. */
mn_status cu_group_execute(mn_context *ctx, uint32_t set, const int64_t *values, mn_event **event,
                           mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->base.prog->dev);
    const mn_host *h = g->base.plugin->host;
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = cu_group_get_ready(c, set, values, false, execs, err);
    if (st)
        return st;
    const uint64_t from = h->now_ns(h->self);
    for (uint32_t r = g->lo; r < g->hi && !st; r++) {
        st = cu_choose_member(g, r, err);
        if (!st)
            st = cu_check(cudaGraphLaunch(execs[r], c->of[r]->queue->stream), err, "execute");
        st = cu_group_blame(g, r, st, err);
    }
    c->of[g->lo]->launch_ns += h->now_ns(h->self) - from;
    c->of[g->lo]->n_launches++;
    if (st || !event)
        return st;
    return cu_group_event_new((cu_group_queue *)c->base.queue, event, err);
}

/* ---- contexts -------------------------------------------------------------------------------- */
mn_status cu_group_context_create(mn_program *program, mn_queue *queue, mn_context **out,
                                  mn_error *err) {
    cu_group_program *p = (cu_group_program *)program;
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of(p->base.dev);
    mn_status st = MN_OK;
    cu_group_context *c = cu_new(p->base.dev, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->base.prog = &p->base;
    c->base.queue = &q->base;
    for (uint32_t r = g->lo; r < g->hi && !st; r++) {
        st = cu_context_create(p->of[r], q->of[r], &c->of[r], err);
        if (!st)
            st = cu_exchange_room(c, r, err);
        st = cu_group_blame(g, r, st, err);
    }
    if (st)
        cu_group_context_free(&c->base);
    else
        *out = &c->base;
    return st;
}

/* Members may be in the middle of what they have to exchange: all are waited for first. */
void cu_group_context_free(mn_context *ctx) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->base.prog->dev);
    const cu_group_queue *q = (const cu_group_queue *)c->base.queue;
    for (uint32_t r = g->lo; r < g->hi; r++) {
        cudaSetDevice(g->of[r]->index);
        cudaStreamSynchronize(q->of[r]->stream);
    }
    for (uint32_t r = g->lo; r < g->hi; r++) {
        cu_context_free(c->of[r]);
        cudaSetDevice(g->of[r]->index);
        cu_exchange_room_free(c, r);
    }
    cu_delete(c->base.prog->dev, c);
}

mn_status cu_group_context_bind(mn_context *ctx, uint32_t set, const mn_binding *given, uint32_t n,
                                uint32_t stride, mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->base.prog->dev);
    const uint64_t bytes = n * sizeof(mn_binding);
    mn_status st = MN_OK;
    if (n && stride < MNP_UP_TO(mn_binding, bytes))
        return mnp_fail(err, MN_INVALID, ~0u,
                        "bindings of %u bytes lack fields of the first release", stride);
    mn_binding *own = cu_new(c->base.prog->dev, bytes);
    if (!own)
        return mnp_fail_memory(err, bytes, "bindings");
    for (uint32_t r = g->lo; r < g->hi && !st; r++) {
        for (uint32_t i = 0; i < n; i++) {
            mnp_read(&own[i], sizeof *own, mnp_entry(given, i, stride), stride);
            if (own[i].buffer)
                own[i].buffer = cu_member_buffer(own[i].buffer, r);
        }
        st = cu_context_bind(c->of[r], set, own, n, sizeof *own, err);
        st = cu_group_blame(g, r, st, err);
    }
    cu_delete(c->base.prog->dev, own);
    return st;
}
