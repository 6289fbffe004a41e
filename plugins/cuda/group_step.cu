/* group_step.cu -- steps of a group. The members' graphs are captured side by side: units up to the
 * next exchange on every member, the exchange, and so on; then each is launched on its member's
 * queue. A context owns its mailboxes, and its members' contexts. */
#include "group.h"
#include "ops.h"

/* ---- exchanges of a step --------------------------------------------------------------------- */
/* The members' steps while they are captured. */
struct joint_step {
    cu_group_context *c;
    cu_group *g;
    const mnp_shard *plan;
    cu_run run[CU_MAX_MEMBERS];
    uint32_t unit[CU_MAX_MEMBERS]; /* that is launched next */
    uint32_t last[CU_MAX_MEMBERS]; /* that was launched last */
    uint32_t n_exchanges;          /* through mailboxes so far */
};

static mn_status choose(const joint_step *s, uint32_t rank, mn_error *err) {
    return cu_check(cudaSetDevice(s->g->of[rank]->index), err, "choosing the device");
}

static cu_exchange exchange_of(const joint_step *s, uint32_t rank) {
    cu_exchange e = {};
    for (uint32_t r = 0; r < s->g->n; r++)
        e.mail[r] = s->c->mail[r];
    e.missed = &s->g->missed[rank];
    e.rank = rank;
    e.n = s->g->n;
    e.index = s->n_exchanges;
    e.room = (int64_t)(s->g->small / sizeof(float));
    return e;
}

/* Where a sum goes on member `rank`: to what adds to it, if its exchange does that. */
static float *sum_to(const joint_step *s, uint32_t k, uint32_t rank, const mnp_exchange *e,
                     const float **add) {
    const cu_run *r = &s->run[rank];
    const int32_t unit = r->p->stops[k].add;
    *add = NULL;
    if (unit < 0)
        return cu_f32(r, (int32_t)e->to);
    const mn_node *n = mnp_node(r->g, r->p->units[unit].node);
    const int32_t a = mnp_in(r->g, n, 0);
    *add = cu_f32(r, a == (int32_t)e->to ? mnp_in(r->g, n, 1) : a);
    return cu_f32(r, mnp_out(r->g, n, 0));
}

/* NCCL's sum, then the addition as an operation of its own. */
static mn_status sum_by_nccl(joint_step *s, uint32_t k, const mnp_exchange *e, int64_t n,
                             mn_error *err) {
    float *at[CU_MAX_MEMBERS];
    cudaStream_t streams[CU_MAX_MEMBERS];
    for (uint32_t r = 0; r < s->g->n; r++) {
        at[r] = cu_f32(&s->run[r], (int32_t)e->to);
        streams[r] = s->run[r].s;
    }
    mn_status st = cu_nccl_sum(s->g, at, n, streams, err);
    for (uint32_t r = 0; r < s->g->n && !st; r++) {
        cu_elementwise sum = {};
        sum.y = sum_to(s, k, r, e, &sum.b);
        sum.what = CU_EW_ADD;
        sum.a = at[r];
        sum.n = n;
        st = choose(s, r, err);
        if (!st && sum.b)
            cu_elementwise_run(s->run[r].s, &sum);
    }
    return st;
}

static mn_status sum(joint_step *s, uint32_t k, const mnp_exchange *e, mn_error *err) {
    const int64_t n = cu_elements(&s->run[0], (int32_t)e->to);
    const bool small = n * (int64_t)sizeof(float) <= (int64_t)s->g->small;
    cu_sum a = {};
    a.n = n;
    if (!n)
        return MN_OK;
    if (!s->g->peers || (s->g->nccl && !small))
        return sum_by_nccl(s, k, e, n, err);
    for (uint32_t r = 0; r < s->g->n; r++) {
        a.x[r] = cu_f32(&s->run[r], (int32_t)e->from);
        a.y[r] = sum_to(s, k, r, e, &a.add);
    }
    for (uint32_t r = 0; r < s->g->n; r++) {
        const mn_status st = choose(s, r, err);
        if (st)
            return st;
        a.e = exchange_of(s, r);
        sum_to(s, k, r, e, &a.add);
        if (small)
            cu_sum_words(s->run[r].s, &a);
        else
            cu_sum_parts(s->run[r].s, &a);
    }
    s->n_exchanges++;
    return MN_OK;
}

/* Of a tensor that is divided along dim: its rows, and what member `rank` has of each. */
static cu_columns columns_of(const joint_step *s, uint32_t rank, const mnp_exchange *e) {
    const cu_run *r = &s->run[rank];
    const bool gathers = e->kind == MNP_GATHER;
    const int32_t whole = (int32_t)(gathers ? e->to : e->from);
    const mnp_share share = mnp_shard_share(s->plan, gathers ? e->from : e->to, rank);
    const uint32_t n_dim = mnp_tensor(r->g, (uint32_t)whole)->n_dim;
    int64_t inner = 1;
    cu_columns c = {1, 0, 0, 0};
    for (uint32_t i = 0; i < e->dim; i++)
        c.rows *= cu_dim(r, whole, i);
    for (uint32_t i = e->dim + 1; i < n_dim; i++)
        inner *= cu_dim(r, whole, i);
    c.first = share.lo * inner;
    c.width = (share.hi - share.lo) * inner;
    c.pitch = cu_dim(r, whole, e->dim) * inner;
    return c;
}

/* Without peer memory: each member's part among zeros, and the sum of all. */
static mn_status gather_by_nccl(joint_step *s, const mnp_exchange *e, mn_error *err) {
    float *at[CU_MAX_MEMBERS];
    cudaStream_t streams[CU_MAX_MEMBERS];
    const int64_t n = cu_elements(&s->run[0], (int32_t)e->to);
    for (uint32_t r = 0; r < s->g->n; r++) {
        const cu_columns c = columns_of(s, r, e);
        at[r] = cu_f32(&s->run[r], (int32_t)e->to);
        streams[r] = s->run[r].s;
        mn_status st = choose(s, r, err);
        if (st)
            return st;
        CU_TRY(cudaMemsetAsync(at[r], 0, (size_t)n * sizeof(float), streams[r]), err, "gathering");
        CU_TRY(cudaMemcpy2DAsync(at[r] + c.first, (size_t)c.pitch * sizeof(float),
                                 cu_f32(&s->run[r], (int32_t)e->from),
                                 (size_t)c.width * sizeof(float), (size_t)c.width * sizeof(float),
                                 (size_t)c.rows, cudaMemcpyDeviceToDevice, streams[r]),
               err, "gathering");
    }
    return cu_nccl_sum(s->g, at, n, streams, err);
}

static mn_status gather(joint_step *s, const mnp_exchange *e, mn_error *err) {
    cu_gather_parts a = {};
    if (!cu_elements(&s->run[0], (int32_t)e->to))
        return MN_OK;
    if (!s->g->peers)
        return gather_by_nccl(s, e, err);
    for (uint32_t r = 0; r < s->g->n; r++)
        a.y[r] = cu_f32(&s->run[r], (int32_t)e->to);
    for (uint32_t r = 0; r < s->g->n; r++) {
        const mn_status st = choose(s, r, err);
        if (st)
            return st;
        a.e = exchange_of(s, r);
        a.x = cu_f32(&s->run[r], (int32_t)e->from);
        a.c = columns_of(s, r, e);
        cu_gather_run(s->run[r].s, &a);
    }
    s->n_exchanges++;
    return MN_OK;
}

static mn_status take(joint_step *s, const mnp_exchange *e, mn_error *err) {
    for (uint32_t r = 0; r < s->g->n; r++) {
        cu_take a = {};
        const mn_status st = choose(s, r, err);
        if (st)
            return st;
        a.x = cu_f32(&s->run[r], (int32_t)e->from);
        a.y = cu_f32(&s->run[r], (int32_t)e->to);
        a.c = columns_of(s, r, e);
        if (a.c.rows)
            cu_take_run(s->run[r].s, &a);
    }
    return MN_OK;
}

/* Exchange k, if what it makes is wanted: an output that is not bound is not. */
static mn_status launch_exchange(joint_step *s, uint32_t k, const mnp_exchange *e, mn_error *err) {
    mn_status st = MN_OK;
    if (!cu_ptr(&s->run[0], (int32_t)e->from) || !cu_ptr(&s->run[0], (int32_t)e->to))
        return MN_OK;
    if (e->kind == MNP_SUM)
        st = sum(s, k, e, err);
    else if (e->kind == MNP_GATHER)
        st = gather(s, e, err);
    else
        st = take(s, e, err);
    if (st)
        return st;
    return cu_check(cudaPeekAtLastError(), err, "an exchange of the group");
}

/* ---- capture --------------------------------------------------------------------------------- */
/* Every member's units up to `k`th exchange, or all: n. */
static mn_status launch_up_to(joint_step *s, uint32_t k, uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = 0; r < s->g->n && !st; r++) {
        cu_run *run = &s->run[r];
        const uint32_t to = k < n ? run->p->stops[k].unit : run->p->n_units;
        st = choose(s, r, err);
        if (!st)
            st = cu_launch_some(run, s->unit[r], to, &s->last[r], err);
        s->unit[r] = to;
        st = cu_group_blame(s->g, r, st, err);
    }
    return st;
}

/* What scratch holds of other tensors beside stays what it was: exchanges write tensors alone. */
static mn_status launch_step(joint_step *s, mn_error *err) {
    uint32_t n;
    const mnp_exchange *e = mnp_shard_exchanges(s->plan, &n);
    mn_status st = MN_OK;
    for (uint32_t k = 0; k <= n && !st; k++) {
        st = launch_up_to(s, k, n, err);
        if (!st && k < n)
            st = launch_exchange(s, k, &e[k], err);
    }
    for (uint32_t r = 0; r < s->g->n && !st && s->n_exchanges; r++) {
        st = choose(s, r, err);
        if (!st)
            cu_count_exchanges(s->run[r].s, s->c->mail[r], s->n_exchanges);
    }
    return st;
}

static mn_status begin_capture(joint_step *s, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = 0; r < s->g->n && !st; r++) {
        mn_context *m = s->c->of[r];
        s->run[r] = cu_run_of(m, m->symbol, m->capture);
        s->last[r] = UINT32_MAX;
        st = mnp_check_sizes(m->prog->graph, m->symbol, m->bindings, err);
        if (!st)
            st = choose(s, r, err);
        if (!st)
            st = cu_check(cudaStreamBeginCapture(m->capture, cudaStreamCaptureModeThreadLocal), err,
                          "capturing");
    }
    return st;
}

/* Ends what was begun, also after an error; graphs: [n], NULL where there is none. */
static mn_status end_capture(joint_step *s, cudaGraph_t *graphs, mn_status st, mn_error *err) {
    for (uint32_t r = 0; r < s->g->n; r++) {
        cudaStreamCaptureStatus how = cudaStreamCaptureStatusNone;
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
    joint_step s = {};
    cudaGraph_t graphs[CU_MAX_MEMBERS];
    s.c = c;
    s.g = cu_group_of(c->prog->dev);
    s.plan = ((cu_group_program *)c->prog)->whole;
    mn_status st = begin_capture(&s, err);
    if (!st)
        st = launch_step(&s, err);
    st = end_capture(&s, graphs, st, err);
    for (uint32_t r = 0; r < s.g->n; r++) {
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
static mn_status get_ready(cu_group_context *c, uint32_t set, const int64_t *values, bool prepare,
                           cudaGraphExec_t *execs, mn_error *err) {
    const cu_group *g = cu_group_of(c->prog->dev);
    const mn_host *h = g->plugin->host;
    mn_status st = MN_OK;
    bool all = true;
    for (uint32_t r = 0; r < g->n && !st; r++) {
        st = cu_group_blame(g, r, cu_context_begin(c->of[r], set, values, err), err);
        execs[r] = st ? NULL : cu_context_find(c->of[r], prepare);
        all = all && execs[r];
    }
    if (st || all)
        return st;
    const uint64_t from = h->now_ns(h->self);
    st = capture(c, prepare, err);
    c->of[0]->capture_ns += h->now_ns(h->self) - from;
    for (uint32_t r = 0; r < g->n && !st; r++)
        execs[r] = cu_context_find(c->of[r], prepare);
    return st;
}

mn_status cu_group_context_prepare(mn_context *ctx, uint32_t set, const int64_t *values,
                                   mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->prog->dev);
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = get_ready(c, set, values, true, execs, err);
    for (uint32_t r = 0; r < g->n && !st; r++) {
        st = cu_check(cudaSetDevice(g->of[r]->index), err, "choosing the device");
        if (!st)
            st = cu_events_reserve(g->of[r], 16, err);
    }
    return st;
}

/* Nothing is waited for until every member has its graph. */
mn_status cu_group_execute(mn_context *ctx, uint32_t set, const int64_t *values, mn_event **event,
                           mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->prog->dev);
    const mn_host *h = g->plugin->host;
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = get_ready(c, set, values, false, execs, err);
    if (st)
        return st;
    const uint64_t from = h->now_ns(h->self);
    for (uint32_t r = 0; r < g->n && !st; r++) {
        st = cu_check(cudaSetDevice(g->of[r]->index), err, "choosing the device");
        if (!st)
            st = cu_check(cudaGraphLaunch(execs[r], c->of[r]->queue->stream), err, "execute");
        st = cu_group_blame(g, r, st, err);
    }
    c->of[0]->launch_ns += h->now_ns(h->self) - from;
    c->of[0]->n_launches++;
    if (st || !event)
        return st;
    return cu_group_event_new((cu_group_queue *)c->queue, event, err);
}

/* ---- contexts -------------------------------------------------------------------------------- */
uint64_t cu_mailbox_bytes(const cu_group *g) {
    return sizeof(cu_mailbox) + 2 * g->n * (g->small / sizeof(float)) * sizeof(uint64_t);
}

static mn_status make_mailbox(cu_group_context *c, uint32_t rank, mn_error *err) {
    const cu_group *g = cu_group_of(c->prog->dev);
    const uint64_t bytes = cu_mailbox_bytes(g);
    CU_TRY(cudaSetDevice(g->of[rank]->index), err, "choosing the device");
    mn_status st = cu_check_room(cudaMalloc((void **)&c->mail[rank], bytes), bytes, err,
                                 "mailboxes of a group");
    if (!st)
        st = cu_check(cudaMemset(c->mail[rank], 0, bytes), err, "mailboxes of a group");
    if (!st)
        st = cu_check(cudaStreamSynchronize(0), err, "mailboxes of a group");
    return st;
}

mn_status cu_group_context_create(mn_program *program, mn_queue *queue, mn_context **out,
                                  mn_error *err) {
    cu_group_program *p = (cu_group_program *)program;
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of(p->dev);
    mn_status st = MN_OK;
    cu_group_context *c = (cu_group_context *)cu_new(p->dev, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->prog = p;
    c->queue = q;
    for (uint32_t r = 0; r < g->n && !st; r++) {
        st = cu_context_create(p->of[r], q->of[r], &c->of[r], err);
        if (!st && g->peers)
            st = make_mailbox(c, r, err);
        st = cu_group_blame(g, r, st, err);
    }
    if (st)
        cu_group_context_free(c);
    else
        *out = c;
    return st;
}

/* Members may be in the middle of what they have to exchange: all are waited for first. */
void cu_group_context_free(mn_context *ctx) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->prog->dev);
    const cu_group_queue *q = (const cu_group_queue *)c->queue;
    for (uint32_t r = 0; r < g->n; r++) {
        cudaSetDevice(g->of[r]->index);
        cudaStreamSynchronize(q->of[r]->stream);
    }
    for (uint32_t r = 0; r < g->n; r++) {
        cu_context_free(c->of[r]);
        cudaSetDevice(g->of[r]->index);
        if (c->mail[r])
            cudaFree(c->mail[r]);
    }
    cu_delete(c->prog->dev, c);
}

mn_status cu_group_context_bind(mn_context *ctx, uint32_t set, const mn_binding *given, uint32_t n,
                                uint32_t stride, mn_error *err) {
    cu_group_context *c = (cu_group_context *)ctx;
    const cu_group *g = cu_group_of(c->prog->dev);
    const uint64_t bytes = n * sizeof(mn_binding);
    mn_status st = MN_OK;
    if (n && stride < MNP_UP_TO(mn_binding, bytes))
        return mnp_fail(err, MN_INVALID, ~0u,
                        "bindings of %u bytes lack fields of the first release", stride);
    mn_binding *own = (mn_binding *)cu_new(c->prog->dev, bytes);
    if (!own)
        return mnp_fail_memory(err, bytes, "bindings");
    for (uint32_t r = 0; r < g->n && !st; r++) {
        for (uint32_t i = 0; i < n; i++) {
            mnp_read(&own[i], sizeof *own, mnp_entry(given, i, stride), stride);
            if (own[i].buffer)
                own[i].buffer = cu_member_buffer(own[i].buffer, r);
        }
        st = cu_context_bind(c->of[r], set, own, n, sizeof *own, err);
        st = cu_group_blame(g, r, st, err);
    }
    cu_delete(c->prog->dev, own);
    return st;
}
