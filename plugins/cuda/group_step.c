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
    CU_EACH_MEMBER (s->g, r, !st) {
        mng_run *run = &s->run[r];
        uint32_t to = run->p->base.n_units;
        if (k < n)
            to = run->p->stops[k].unit;
        st = cu_choose_member(s->g, r, err);
        if (!st)
            st = cu_launch_some(run, s->unit[r], to, err);
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
    if (st)
        return st;
    return cu_end_exchanges(s, err);
}

cu_joint_step cu_joint_step_of(cu_group_context *c, bool captures) {
    cu_joint_step s = {.c = c,
                       .g = cu_group_of_context(c),
                       .plan = ((cu_group_program *)c->base.base.prog)->whole};
    CU_EACH_MEMBER (s.g, r, true) {
        mn_context *m = c->of[r];
        m->stream = captures ? m->capture : m->base.queue->stream;
        s.run[r] = mng_run_of(m, false, NULL);
    }
    return s;
}

static mn_status begin_capture(const cu_joint_step *s, mn_error *err) {
    mn_status st = MN_OK;
    CU_EACH_MEMBER (s->g, r, !st) {
        const mn_context *m = s->c->of[r];
        st = mng_check_sizes(m, err);
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
    CU_EACH_MEMBER (s->g, r, true) {
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
    CU_EACH_MEMBER (s.g, r, true) {
        cudaGraphExec_t exec = NULL;
        cudaSetDevice(s.g->of[r]->index);
        if (!st)
            st = cu_check(cudaGraphInstantiate(&exec, graphs[r], 0), err, "a captured graph");
        if (!st)
            st = cu_check(cudaGraphUpload(exec, c->of[r]->base.queue->stream), err,
                          "a captured graph");
        if (graphs[r])
            cudaGraphDestroy(graphs[r]);
        if (!st)
            cu_graph_keep(c->of[r], exec, prepare);
        else if (exec)
            cudaGraphExecDestroy(exec);
    }
    return st;
}

/* Takes the step's values on all members, and finds or makes their graphs. */
mn_status cu_group_get_ready(cu_group_context *c, const mn_step *step, bool prepare,
                             cudaGraphExec_t *execs, mn_error *err) {
    const cu_group *g = cu_group_of_context(c);
    const mn_host *h = g->base.base.host;
    mn_status st = MN_OK;
    bool all = true;
    CU_EACH_MEMBER (g, r, !st) {
        st = cu_group_blame(g, r, mng_context_begin(c->of[r], step, err), err);
        execs[r] = st ? NULL : cu_graph_find(c->of[r], prepare);
        all = all && execs[r];
    }
    if (st || all)
        return st;
    const uint64_t from = h->now_ns(h->self);
    st = capture(c, prepare, err);
    c->of[g->lo]->capture_ns += h->now_ns(h->self) - from;
    CU_EACH_MEMBER (g, r, !st)
        execs[r] = cu_graph_find(c->of[r], prepare);
    return st;
}

mn_status cu_group_context_prepare(mn_context *ctx, const mn_step *step, mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of_context(c);
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = cu_group_get_ready(c, step, true, execs, err);
    CU_EACH_MEMBER (g, r, !st) {
        st = cu_choose_member(g, r, err);
        if (!st)
            st = mng_events_reserve(g->of[r], 16, err);
    }
    return st;
}

/* Nothing is waited for until every member has its graph. */
mn_status cu_group_execute(mn_context *ctx, const mn_step *step, mn_event **event, mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of_context(c);
    const mn_host *h = g->base.base.host;
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = cu_group_get_ready(c, step, false, execs, err);
    if (st)
        return st;
    const uint64_t from = h->now_ns(h->self);
    CU_EACH_MEMBER (g, r, !st) {
        st = cu_choose_member(g, r, err);
        if (!st)
            st = cu_check(cudaGraphLaunch(execs[r], c->of[r]->base.queue->stream), err, "execute");
        st = cu_group_blame(g, r, st, err);
    }
    c->of[g->lo]->launch_ns += h->now_ns(h->self) - from;
    c->of[g->lo]->n_launches++;
    if (st || !event)
        return st;
    return cu_group_event_new((cu_group_queue *)c->base.base.queue, event, err);
}

/* ---- contexts -------------------------------------------------------------------------------- */
mn_status cu_group_context_create(mn_program *program, const mn_context_params *params,
                                  mn_context **out, mn_error *err) {
    cu_group_program *p = (cu_group_program *)program;
    const cu_group *g = cu_group_of_program(&p->base);
    mn_queue *queue;
    mn_status st = mnp_read_context(params, &queue, err);
    if (st)
        return st;
    cu_group_queue *q = (cu_group_queue *)queue;
    cu_group_context *c = mng_new(p->base.base.dev, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->base.base.prog = &p->base;
    c->base.base.queue = &q->base;
    CU_EACH_MEMBER (g, r, !st) {
        const mn_context_params own = {.size = sizeof own, .queue = q->of[r]};
        st = mng_context_create(p->of[r], &own, &c->of[r], err);
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
    const cu_group *g = cu_group_of_context(c);
    const cu_group_queue *q = (const cu_group_queue *)c->base.base.queue;
    CU_EACH_MEMBER (g, r, true) {
        cudaSetDevice(g->of[r]->index);
        cudaStreamSynchronize(q->of[r]->stream);
    }
    CU_EACH_MEMBER (g, r, true) {
        mng_context_free(c->of[r]);
        cudaSetDevice(g->of[r]->index);
        cu_exchange_room_free(c, r);
    }
    mng_delete(c->base.base.prog->base.dev, c);
}

mn_status cu_group_context_bind(mn_context *ctx, uint32_t set, const mn_binding *given, uint32_t n,
                                uint32_t stride, mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of_context(c);
    const uint64_t bytes = n * sizeof(mn_binding);
    mn_status st = MN_OK;
    if (n && stride < MNP_UP_TO(mn_binding, bytes))
        return mnp_fail(err, MN_INVALID, ~0u,
                        "bindings of %u bytes lack fields of the first release", stride);
    mn_binding *own = mng_new(c->base.base.prog->base.dev, bytes);
    if (!own)
        return mnp_fail_memory(err, bytes, "bindings");
    CU_EACH_MEMBER (g, r, !st) {
        for (uint32_t i = 0; i < n; i++) {
            mnp_read(&own[i], sizeof *own, mnp_entry(given, i, stride), stride);
            if (own[i].buffer)
                own[i].buffer = cu_member_buffer(own[i].buffer, r);
        }
        st = mng_context_bind(c->of[r], set, own, n, sizeof *own, err);
        st = cu_group_blame(g, r, st, err);
    }
    mng_delete(c->base.base.prog->base.dev, own);
    return st;
}
