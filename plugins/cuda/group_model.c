/* group_model.c -- a model on a group: what the members are asked is what the host asks, with the
 * graphs of a plan. Every weight set and program has a plan of its own, which is a pure function of
 * graph, segment and number of members; the weights of one are those of the other by name.
 *
 * Sizes are those of all members, also of those in other processes: their cards are of the kind of
 * the first one that is here, which is asked for them. */
#include "group_step.h"

/* ---- questions ------------------------------------------------------------------------------- */
/* What the members are asked, one by one. */
typedef struct {
    mnp_shard *plan;
    mn_compile host;
} question;

static mn_status ask(const cu_group *g, const mn_compile *in, question *q, mn_error *err) {
    q->plan = NULL;
    mnp_read(&q->host, sizeof q->host, in, in->size);
    q->host.size = sizeof q->host;
    return mnp_shard_plan(g->base.base.host, in, g->n, &q->plan, err);
}

static mn_compile for_member(const question *q, uint32_t rank) {
    return mnp_shard_compile(q->plan, rank, &q->host);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    if (a > b)
        return a;
    return b;
}

/* ---- negotiation ----------------------------------------------------------------------------- */
static mn_status estimate_member(const cu_group *g, const question *q, uint32_t rank,
                                 mn_estimate *out, mn_error *err) {
    const mn_compile c = for_member(q, rank);
    const cu_member of = {q->plan, rank};
    mn_status st = mng_estimate_as(cu_member_device(g, rank), &of, &c, out, err);
    if (!st)
        out->scratch += cu_exchange_bytes(g);
    return st;
}

mn_status cu_group_member_estimate(mn_device *d, uint32_t rank, const mn_compile *in,
                                   mn_estimate *out, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    mn_estimate one = {0};
    question q;
    if (rank >= g->n)
        return mnp_fail(err, MN_INVALID, ~0u, "member %u of %u", rank, g->n);
    mn_status st = ask(g, in, &q, err);
    if (st)
        return st;
    one.size = sizeof one;
    st = estimate_member(g, &q, rank, &one, err);
    mnp_shard_free(q.plan);
    if (!st)
        mnp_fill(out, &one, sizeof one);
    return st;
}

/* Times of the slowest member; what exchanges take is not in them. */
mn_status cu_group_estimate(mn_device *d, const mn_compile *in, mn_estimate *out, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    mn_estimate all = {0};
    question q;
    mn_status st = ask(g, in, &q, err);
    for (uint32_t r = 0; r < g->n && !st; r++) {
        mn_estimate one = {0};
        one.size = sizeof one;
        st = estimate_member(g, &q, r, &one, err);
        one.weights = larger(one.weights, all.weights);
        one.scratch = larger(one.scratch, all.scratch);
        if (all.decode_us > one.decode_us)
            one.decode_us = all.decode_us;
        if (all.prefill_us > one.prefill_us)
            one.prefill_us = all.prefill_us;
        all = one;
    }
    mnp_shard_free(q.plan);
    if (!st)
        mnp_fill(out, &all, sizeof all);
    return st;
}

/* ---- the cache ------------------------------------------------------------------------------- */
mn_status cu_group_memory_layout(mn_device *d, const mn_compile *in, uint32_t group,
                                 mn_memory_layout *out, mn_error *err) {
    cu_group *g = cu_group_of(d);
    uint64_t most = 0;
    question q;
    mn_status st = ask(g, in, &q, err);
    if (st)
        return st;
    cu_group_layout *l = mng_new(d, sizeof *l);
    if (!l)
        st = mnp_fail_memory(err, sizeof *l, "a layout");
    for (uint32_t r = 0; r < g->n && !st; r++) {
        const mn_compile c = for_member(&q, r);
        l->of[r].size = sizeof l->of[r];
        st = mng_memory_layout(cu_member_device(g, r), &c, group, &l->of[r], err);
        most = larger(most, l->of[r].page_bytes);
    }
    mnp_shard_free(q.plan);
    if (st) {
        mng_delete(d, l);
        return st;
    }
    mn_memory_layout all = l->of[0];
    all.page_bytes = most;
    all.cookie = (uint64_t)(uintptr_t)l;
    pthread_mutex_lock(&g->base.base.lock);
    l->next = g->layouts;
    g->layouts = l;
    pthread_mutex_unlock(&g->base.base.lock);
    mnp_fill(out, &all, sizeof all);
    return MN_OK;
}

mn_status cu_group_memory_copy(mn_queue *queue, mn_buffer *kv, const mn_memory_layout *layout,
                               const mn_page_copy *copies, uint32_t n, uint32_t stride,
                               mn_event **event, mn_error *err) {
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of_queue(q);
    const cu_group_layout *l = (const cu_group_layout *)(uintptr_t)layout->cookie;
    mn_status st = MN_OK;
    CU_EACH_MEMBER (g, r, !st) {
        st = mng_memory_copy(q->of[r], cu_member_buffer(kv, r), &l->of[r], copies, n, stride, NULL,
                             err);
        st = cu_group_blame(g, r, st, err);
    }
    if (st || !event)
        return st;
    return cu_group_event_new(q, event, err);
}

/* ---- weights --------------------------------------------------------------------------------- */
void cu_group_weights_free(mn_weights *weights) {
    cu_group_weights *w = (cu_group_weights *)weights;
    const cu_group *g = cu_group_of(w->base.dev);
    CU_EACH_MEMBER (g, r, true)
        mng_weights_free(w->of[r]);
    mnp_shard_free(w->plan);
    mng_delete(w->base.dev, w);
}

mn_status cu_group_weights_open(mn_device *d, const mn_compile *in, mn_weights **out,
                                mn_error *err) {
    const cu_group *g = cu_group_of(d);
    question q;
    mn_status st = ask(g, in, &q, err);
    if (st)
        return st;
    cu_group_weights *w = mng_new(d, sizeof *w);
    if (!w) {
        mnp_shard_free(q.plan);
        return mnp_fail_memory(err, sizeof *w, "a weight set");
    }
    w->base.dev = d;
    w->base.graph = q.host.graph;
    w->plan = q.plan;
    CU_EACH_MEMBER (g, r, !st) {
        const mn_compile c = for_member(&q, r);
        st = cu_group_blame(g, r, mng_weights_open(g->of[r], &c, &w->of[r], err), err);
    }
    if (st)
        cu_group_weights_free(&w->base);
    else
        *out = &w->base;
    return st;
}

/* A member's piece: tensor t of the members' graphs. event: of the member. */
static mn_status put_piece(cu_group_weights *w, cu_group_queue *q, uint32_t rank, uint32_t t,
                           const mn_weight_src *in, mn_plane *planes, mn_event **event,
                           mn_error *err) {
    mn_weight_src piece;
    mn_status st = mnp_shard_source(w->plan, rank, t, in, planes, &piece, err);
    if (!st)
        st = mng_weights_put(w->of[rank], q->of[rank], &piece, event, err);
    return cu_group_blame(cu_group_of(w->base.dev), rank, st, err);
}

/* All pieces of a weight, on all members that are here; planes: room for those of a source.
 * Without events the members go on while the next one's piece is sent: the source's bytes were read
 * by then. */
static mn_status put_pieces(cu_group_weights *w, cu_group_queue *q, const mn_weight_src *in,
                            mn_plane *planes, mn_error *err) {
    const cu_group *g = cu_group_of(w->base.dev);
    const uint32_t n = mnp_shard_graph(w->plan, 0)->n_tensors;
    mn_status st = MN_OK;
    for (uint32_t t = 0; t < n && !st; t++) {
        if (mnp_shard_piece(w->plan, t).source != in->tensor)
            continue;
        CU_EACH_MEMBER (g, r, !st) {
            mn_event *sent = NULL;
            st = put_piece(w, q, r, t, in, planes, &sent, err);
            mng_event_free(sent);
        }
    }
    return st;
}

mn_status cu_group_weights_put(mn_weights *weights, mn_queue *queue, const mn_weight_src *in,
                               mn_event **event, mn_error *err) {
    cu_group_weights *w = (cu_group_weights *)weights;
    cu_group_queue *q = (cu_group_queue *)queue;
    if (event)
        *event = NULL;
    mn_status st = mnp_check_source(w->base.graph, in, 3, err);
    if (st)
        return st;
    const uint64_t bytes = (uint64_t)in->n_parts * in->n_planes * sizeof(mn_plane);
    mn_plane *planes = mng_new(w->base.dev, bytes);
    if (!planes)
        return mnp_fail_memory(err, bytes, "a weight's planes");
    st = put_pieces(w, q, in, planes, err);
    mng_delete(w->base.dev, planes);
    if (st || !event)
        return st;
    return cu_group_event_new(q, event, err);
}

mn_status cu_group_weights_seal(mn_weights *weights, mn_queue *queue, uint32_t *kept_how,
                                mn_error *err) {
    cu_group_weights *w = (cu_group_weights *)weights;
    cu_group_queue *q = (cu_group_queue *)queue;
    const cu_group *g = cu_group_of(w->base.dev);
    mn_status st = MN_OK;
    uint32_t all = 0;
    CU_EACH_MEMBER (g, r, !st) {
        uint32_t how = 0;
        st = cu_check(cudaSetDevice(g->of[r]->index), err, "choosing the device");
        if (!st)
            st = mng_weights_seal(w->of[r], q->of[r], &how, err);
        st = cu_group_blame(g, r, st, err);
        all |= how;
    }
    if (kept_how)
        *kept_how = all;
    return st;
}

/* ---- programs -------------------------------------------------------------------------------- */
void cu_group_program_free(mn_program *program) {
    cu_group_program *p = (cu_group_program *)program;
    const cu_group *g = cu_group_of_program(&p->base);
    CU_EACH_MEMBER (g, r, true)
        mng_program_free(p->of[r]);
    mnp_shard_free(p->whole);
    mng_delete(p->base.base.dev, p);
}

mn_status cu_group_compile(mn_device *d, const mn_compile *in, mn_program **out, mn_error *err) {
    const cu_group *g = cu_group_of(d);
    question q;
    mn_status st = ask(g, in, &q, err);
    if (st)
        return st;
    cu_group_program *p = mng_new(d, sizeof *p);
    if (!p) {
        mnp_shard_free(q.plan);
        return mnp_fail_memory(err, sizeof *p, "a program");
    }
    p->base.base.dev = d;
    p->base.base.graph = q.host.graph;
    p->whole = q.plan;
    const cu_group_weights *w = (const cu_group_weights *)q.host.weights;
    CU_EACH_MEMBER (g, r, !st) {
        mn_compile c = for_member(&q, r);
        const cu_member of = {q.plan, r};
        c.weights = w ? w->of[r] : NULL;
        st = mng_compile_as(g->of[r], &of, &c, &p->of[r], err);
    }
    if (st)
        cu_group_program_free(&p->base);
    else
        *out = &p->base;
    return st;
}
