/* group_step.c -- steps of a group. The members' contexts are those of cpu_host, each with a
 * program of its member's graph; a step is one team of the host's pool, whose phases are the nodes
 * between two exchanges, a chunk for each member, and the exchanges. Nobody waits for a thread, so
 * that groups larger than the pool run, too. Sums are added in the order of ranks: the same bits in
 * every run. */
#include "group.h"

/* ---- where tensors lie ----------------------------------------------------------------------- */
/* A member's copy of a tensor, in the set that is run; of a member in another process what it has
 * shown. */
static float *data_of(const group_context *c, uint32_t rank, uint32_t t) {
    const mn_context *m = c->of[rank];
    if (!m)
        return group_link_place(c->prog->dev->link, rank);
    const mn_binding *b = &m->at->bindings[t];
    if (b->buffer)
        return (float *)(void *)(b->buffer->ptr + b->offset);
    return (float *)(void *)(m->scratch + m->prog->allocations[t].place);
}

/* Of a member's tensor: rows before dim, steps along it, elements of one step. */
typedef struct {
    int64_t outer;
    int64_t n;
    int64_t inner;
} extent;
static extent extent_of(const group_context *c, uint32_t rank, uint32_t t, uint32_t dim) {
    const mn_context *m = c->of[rank];
    const mn_graph *g = m->prog->graph;
    const mn_tensor *x = mnp_tensor(g, t);
    extent e = {1, 1, 1};
    for (uint32_t i = 0; i < x->n_dim; i++) {
        const int64_t n = mnp_dim(g, m->at->symbol, x->dim[i]);
        if (i < dim)
            e.outer *= n;
        else if (i == dim)
            e.n = n;
        else
            e.inner *= n;
    }
    return e;
}

/* ---- exchanges ------------------------------------------------------------------------------- */
/* Elements [lo, hi), for all members that are here. */
static void sum(const group_context *c, const mnp_exchange *e, int64_t lo, int64_t hi) {
    const group_device *d = c->prog->dev;
    for (int64_t k = lo; k < hi; k++) {
        float all = data_of(c, 0, e->to)[k];
        for (uint32_t r = 1; r < d->n; r++)
            all += data_of(c, r, e->to)[k];
        for (uint32_t r = d->lo; r < d->hi; r++)
            data_of(c, r, e->to)[k] = all;
    }
}

static int64_t elements_of(const group_context *c, uint32_t rank, uint32_t t) {
    const extent x = extent_of(c, rank, t, 0);
    return x.n * x.inner;
}

/* Copies `n` steps per row between tensors of different widths. */
static void copy_steps(float *to, int64_t to_width, const float *from, int64_t from_width,
                       int64_t n, int64_t outer) {
    for (int64_t i = 0; i < outer; i++)
        memcpy(to + i * to_width, from + i * from_width, (size_t)n * sizeof *to);
}

/* All pieces, for one member. */
static void gather(const group_context *c, const mnp_exchange *e, uint32_t rank) {
    const extent whole = extent_of(c, rank, e->to, e->dim);
    float *to = data_of(c, rank, e->to);
    for (uint32_t r = 0; r < c->prog->dev->n; r++) {
        const mnp_share share = mnp_shard_share(c->prog->plan, e->from, r);
        const int64_t width = (share.hi - share.lo) * whole.inner;
        copy_steps(to + share.lo * whole.inner, whole.n * whole.inner, data_of(c, r, e->from),
                   width, width, whole.outer);
    }
}

static void take(const group_context *c, const mnp_exchange *e, uint32_t rank) {
    const extent whole = extent_of(c, rank, e->from, e->dim);
    const mnp_share share = mnp_shard_share(c->prog->plan, e->to, rank);
    const int64_t width = (share.hi - share.lo) * whole.inner;
    copy_steps(data_of(c, rank, e->to), width, data_of(c, rank, e->from) + share.lo * whole.inner,
               whole.n * whole.inner, width, whole.outer);
}

/* An exchange, for one member: with members in other processes, what is shown stays until all have
 * read it. */
static void exchange_here(const group_context *c, const mnp_exchange *e, uint32_t rank) {
    const uint32_t n = c->prog->dev->n;
    const int64_t total = e->kind == MNP_SUM ? elements_of(c, rank, e->to) : 0;
    if (e->kind == MNP_SUM)
        sum(c, e, total * rank / n, total * (rank + 1) / n);
    else if (e->kind == MNP_GATHER)
        gather(c, e, rank);
    else
        take(c, e, rank);
}
static void exchange_far(const group_context *c, const mnp_exchange *e, uint32_t rank) {
    group_link *link = c->prog->dev->link;
    if (e->kind == MNP_TAKE) {
        take(c, e, rank);
        return;
    }
    const int64_t total = elements_of(c, rank, e->from);
    memcpy(group_link_place(link, rank), data_of(c, rank, e->from), (size_t)total * sizeof(float));
    group_link_meet(link);
    if (e->kind == MNP_SUM)
        sum(c, e, 0, total);
    else
        gather(c, e, rank);
    group_link_meet(link);
}

/* ---- a step ---------------------------------------------------------------------------------- */
static bool is_active(const mn_context *m, uint32_t node) {
    for (uint32_t k = 0; k < m->at->n_active; k++)
        if (m->prog->steps[m->at->active[k]].node == node)
            return true;
    return false;
}

/* A stage of a node, all its parts. */
static void run_stage(mn_context *m, mnc_call *call, const mnc_op *op, uint32_t stage) {
    const mnc_fn fn = stage == MNC_FIRST ? op->first : op->fn;
    const mn_program *p = m->prog;
    if (!fn)
        return;
    uint32_t n = 1;
    if (op->work)
        n = mnc_parts(op->work(call, stage, p->n_workers), p->n_workers);
    uint8_t *scratch = m->scratch + p->arena_bytes + p->shared_bytes;
    for (uint32_t i = 0; i < n; i++) {
        mnc_worker w = {.i = i, .n = n, .n_threads = p->n_workers, .scratch = scratch};
        fn(call, &w);
    }
}

static void run_nodes(mn_context *m, uint32_t lo, uint32_t hi) {
    for (uint32_t k = 0; k < m->at->n_active; k++) {
        const uint32_t i = m->at->active[k];
        const mnc_step *step = &m->prog->steps[i];
        if (step->node < lo || step->node >= hi)
            continue;
        run_stage(m, &m->at->calls[i], &step->op, MNC_FIRST);
        run_stage(m, &m->at->calls[i], &step->op, MNC_MAIN);
    }
}

static uint32_t chunks(void *arg, uint32_t phase) {
    const group_context *c = arg;
    const mnp_exchange *e = c->phases[phase].exchange;
    const group_device *d = c->prog->dev;
    const bool unused = e && e->kind == MNP_SUM && !is_active(c->of[d->lo], e->at - 1);
    return unused ? 0 : d->hi - d->lo;
}

static void run_chunk(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread) {
    group_context *c = arg;
    const group_phase *p = &c->phases[phase];
    (void)thread;
    const group_device *d = c->prog->dev;
    const uint32_t rank = d->lo + chunk;
    if (!p->exchange)
        run_nodes(c->of[rank], p->lo, p->hi);
    else if (d->link)
        exchange_far(c, p->exchange, rank);
    else
        exchange_here(c, p->exchange, rank);
}

/* The members' own execute checks and fills in what the step needs; their pool runs nothing. */
mn_status group_execute(mn_context *ctx, const mn_step *step, mn_event **event, mn_error *err) {
    group_context *c = (group_context *)(void *)ctx;
    for (uint32_t r = c->prog->dev->lo; r < c->prog->dev->hi; r++) {
        const mn_status st = group_inner->execute(c->of[r], step, NULL, err);
        if (st)
            return st;
    }
    if (event)
        *event = NULL;
    const mn_team team = {sizeof team, c->n_phases, c, chunks, run_chunk};
    return group_host->team(group_host->self, &team);
}

/* ---- contexts -------------------------------------------------------------------------------- */
/* Nodes up to the next exchange, exchanges, and so on. */
static void fill_phases(group_context *c) {
    const group_program *p = c->prog;
    uint32_t n = 0;
    uint32_t lo = p->lo;
    const mnp_exchange *e = p->plan ? mnp_shard_exchanges(p->plan, &n) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (e[i].at > lo)
            c->phases[c->n_phases++] = (group_phase){NULL, lo, e[i].at};
        lo = e[i].at;
        c->phases[c->n_phases++] = (group_phase){&e[i], 0, 0};
    }
    c->phases[c->n_phases++] = (group_phase){NULL, lo, p->hi};
}

/* A place for a tensor that no node makes, or none reads: large enough for every member. */
static void add_room(group_context *c, uint32_t t, uint64_t *bytes) {
    const group_program *p = c->prog;
    uint64_t most = 0;
    if (c->place[t] != MNP_NOWHERE)
        return;
    for (uint32_t r = 0; r < p->dev->n; r++) {
        uint64_t own = 0;
        const mn_graph *g = mnp_shard_graph(p->plan, r);
        mnp_bytes(g, mnp_tensor(g, t), p->symbol_max, &own);
        most = own > most ? own : most;
    }
    c->place[t] = *bytes;
    *bytes += (most + MNC_ALIGN - 1) / MNC_ALIGN * MNC_ALIGN;
}

/* What a member shows to those of other processes has room. */
static mn_status check_places(const group_program *p, mn_error *err) {
    uint32_t n = 0;
    const mnp_exchange *e = p->dev->link ? mnp_shard_exchanges(p->plan, &n) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        const mn_graph *g = mnp_shard_graph(p->plan, p->dev->lo);
        uint64_t bytes = 0;
        mnp_bytes(g, mnp_tensor(g, e[i].from), p->symbol_max, &bytes);
        if (e[i].kind != MNP_TAKE && bytes > GROUP_PLACE)
            return mnp_fail(err, MN_UNSUPPORTED, e[i].at,
                            "an exchange of %llu bytes; there is room for %llu",
                            (unsigned long long)bytes, (unsigned long long)GROUP_PLACE);
    }
    return MN_OK;
}

static mn_status fill_room(group_context *c, mn_error *err) {
    const group_program *p = c->prog;
    uint64_t bytes = 0;
    uint32_t n = 0;
    mn_status st = MN_OK;
    const mnp_exchange *e = p->plan ? mnp_shard_exchanges(p->plan, &n) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (e[i].kind == MNP_SUM)
            continue;
        add_room(c, e[i].from, &bytes);
        add_room(c, e[i].to, &bytes);
    }
    for (uint32_t r = p->dev->lo; r < p->dev->hi && !st; r++)
        st = mn_usual_alloc(group_inner, p->dev->of[r], bytes, MN_MEM_DEVICE, &c->room[r], err);
    return st;
}

mn_status group_context_create(mn_program *program, const mn_context_params *params,
                               mn_context **out, mn_error *err) {
    group_program *p = (group_program *)(void *)program;
    group_queue *q = (group_queue *)(void *)params->queue;
    uint32_t n_exchanges = 0;
    const uint32_t n_tensors = group_graph(p->plan, p->graph, 0)->n_tensors;
    if (p->plan)
        mnp_shard_exchanges(p->plan, &n_exchanges);
    group_context *c = mnp_new(group_host, sizeof *c);
    if (!c)
        return mnp_fail_memory(err, sizeof *c, "a context");
    c->prog = p;
    c->place = mnp_new(group_host, n_tensors * sizeof *c->place);
    c->phases = mnp_new(group_host, (2 * n_exchanges + 1) * sizeof *c->phases);
    mn_status st = MN_OK;
    if (!c->place || !c->phases)
        st = mnp_fail_memory(err, n_tensors * sizeof *c->place, "a context");
    for (uint32_t t = 0; t < n_tensors && !st; t++)
        c->place[t] = MNP_NOWHERE;
    for (uint32_t r = p->dev->lo; r < p->dev->hi && !st; r++)
        st = mn_usual_context(group_inner, p->of[r], q->of[r], &c->of[r], err);
    if (!st)
        st = check_places(p, err);
    if (!st)
        st = fill_room(c, err);
    if (!st)
        fill_phases(c);
    if (st)
        group_context_free((mn_context *)(void *)c);
    else
        *out = (mn_context *)(void *)c;
    return st;
}

static bool is_given(const mn_binding *given, uint32_t n, uint32_t stride, uint32_t t) {
    for (uint32_t i = 0; i < n; i++)
        if (((const mn_binding *)mnp_entry(given, i, stride))->tensor == t)
            return true;
    return false;
}

/* What the host binds, and room for the tensors of exchanges. all: room for both. */
static mn_status bind_member(group_context *c, uint32_t r, uint32_t set, const mn_binding *given,
                             uint32_t n, uint32_t stride, mn_binding *all, mn_error *err) {
    const mn_graph *g = group_graph(c->prog->plan, c->prog->graph, r);
    uint32_t n_all = 0;
    for (uint32_t i = 0; i < n; i++) {
        mn_binding b = *(const mn_binding *)mnp_entry(given, i, stride);
        const group_buffer *buffer = (const group_buffer *)(void *)b.buffer;
        b.buffer = NULL;
        if (buffer)
            b.buffer = buffer->of[buffer->n == 1 ? 0 : r];
        all[n_all++] = b;
    }
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        uint64_t bytes = 0;
        if (c->place[t] == MNP_NOWHERE || is_given(given, n, stride, t))
            continue;
        mnp_bytes(g, mnp_tensor(g, t), c->prog->symbol_max, &bytes);
        all[n_all++] =
            (mn_binding){.tensor = t, .buffer = c->room[r], .offset = c->place[t], .bytes = bytes};
    }
    return group_inner->context_bind(c->of[r], set, all, n_all, sizeof *all, err);
}

mn_status group_context_bind(mn_context *ctx, uint32_t set, const mn_binding *given, uint32_t n,
                             uint32_t stride, mn_error *err) {
    group_context *c = (group_context *)(void *)ctx;
    const uint32_t n_tensors = group_graph(c->prog->plan, c->prog->graph, 0)->n_tensors;
    mn_binding *all = mnp_new(group_host, ((uint64_t)n + n_tensors) * sizeof *all);
    mn_status st = MN_OK;
    if (!all)
        return mnp_fail_memory(err, n * sizeof *all, "bindings");
    for (uint32_t r = c->prog->dev->lo; r < c->prog->dev->hi && !st; r++)
        st = bind_member(c, r, set, given, n, stride, all, err);
    mnp_delete(group_host, all);
    return st;
}

/* Also of one that is half made. */
void group_context_free(mn_context *ctx) {
    group_context *c = (group_context *)(void *)ctx;
    if (!c)
        return;
    for (uint32_t r = c->prog->dev->lo; r < c->prog->dev->hi; r++) {
        if (c->of[r])
            group_inner->context_free(c->of[r]);
        if (c->room[r])
            group_inner->buffer_free(c->room[r]);
    }
    mnp_delete(group_host, c->place);
    mnp_delete(group_host, c->phases);
    mnp_delete(group_host, c);
}
