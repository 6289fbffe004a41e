/* group.c -- the table of the group: every function asks all members, in the order of ranks. A
 * buffer has a copy per member; only weights, the cache and what lies between divided nodes differ.
 * What is told about memory is that of one member: the least free, the largest share. The option
 * `memory` (MINERVA_GROUP_MEMORY, MiB) bounds a member's; `lost`: so many steps go well, then every
 * group is lost. In a group of several processes a device has one member here, and shares memory
 * with the others (group_link.c). */
#include "group.h"
#include "stub.h"
#include <stdio.h>
#include <stdlib.h>

MN_PLUGIN_NOTE("group", MN_KIND_BACKEND, "");

const mn_backend *group_inner;
const mn_host *group_host;
static mn_host quiet; /* the members': one thread, and nothing runs on it */
static uint64_t memory_bytes;
static long steps_left = -1;

/* ---- devices --------------------------------------------------------------------------------- */
static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self, (void)err;
    *n = GROUP_MAX;
    return MN_OK;
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    mn_device_info info = {.size = sizeof info};
    if (i >= GROUP_MAX)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "device %u; there are %u", i, GROUP_MAX);
    const mn_status st = group_inner->device_info(self, 0, &info, err);
    if (st)
        return st;
    info.kind = MN_DEVICE_OTHER;
    info.flags = 0;
    snprintf(info.name, sizeof info.name, "a member of groups");
    snprintf(info.uid, sizeof info.uid, "group-%u", i);
    snprintf(info.mem_pool, sizeof info.mem_pool, "group-%u", i);
    if (memory_bytes)
        info.mem_total = info.mem_free = info.max_alloc = memory_bytes;
    mnp_fill(out, &info, sizeof info);
    return MN_OK;
}

static void device_close(mn_device *device) {
    group_device *d = (group_device *)(void *)device;
    if (!d)
        return;
    for (uint32_t r = d->lo; r < d->hi; r++)
        if (d->of[r])
            group_inner->device_close(d->of[r]);
    group_link_close(d->link);
    while (d->layouts) {
        group_layout *next = d->layouts->next;
        mnp_delete(group_host, d->layouts);
        d->layouts = next;
    }
    mnp_delete(group_host, d);
}

static mn_status open_members(void *self, const uint32_t *members, uint32_t n, mn_device **out,
                              mn_error *err) {
    mn_status st = MN_OK;
    group_device *d = mnp_new(group_host, sizeof *d);
    if (!d)
        return mnp_fail_memory(err, sizeof *d, "a device");
    d->n = n;
    d->hi = n;
    for (uint32_t r = 0; r < n && !st; r++) {
        if (members[r] >= GROUP_MAX)
            st = mnp_fail(err, MN_NO_DEVICE, ~0u, "device %u; there are %u", members[r], GROUP_MAX);
        else
            st = mn_usual_open(group_inner, self, 0, &d->of[r], err);
    }
    if (st)
        device_close((mn_device *)(void *)d);
    else
        *out = (mn_device *)(void *)d;
    return st;
}

static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    (void)params;
    return open_members(self, &i, 1, out, err);
}

static mn_status device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    const group_device *g = (const group_device *)(void *)d;
    const mn_status st = group_inner->device_memory(g->of[g->lo], free_bytes, total, err);
    if (memory_bytes)
        *free_bytes = *total = memory_bytes;
    return st;
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    const group_device *x = (const group_device *)(void *)d;
    return group_inner->supports(x->of[x->lo], c, v, stride, err);
}

/* ---- memory ---------------------------------------------------------------------------------- */
static void buffer_free(mn_buffer *buffer) {
    group_buffer *b = (group_buffer *)(void *)buffer;
    if (!b)
        return;
    for (uint32_t r = 0; r < GROUP_MAX; r++)
        if (b->of[r])
            group_inner->buffer_free(b->of[r]);
    mnp_delete(group_host, b);
}

static mn_status alloc(mn_device *device, const mn_alloc_params *a, mn_buffer **out,
                       mn_error *err) {
    group_device *d = (group_device *)(void *)device;
    mn_status st = MN_OK;
    group_buffer *b = mnp_new(group_host, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a buffer");
    b->dev = d;
    b->n = a->kind == MN_MEM_HOST_PINNED ? 1 : d->n;
    if (b->n == 1)
        st = group_inner->alloc(d->of[d->lo], a, &b->of[0], err);
    for (uint32_t r = d->lo; r < d->hi && b->n > 1 && !st; r++)
        st = group_inner->alloc(d->of[r], a, &b->of[r], err);
    if (st)
        buffer_free((mn_buffer *)(void *)b);
    else
        *out = (mn_buffer *)(void *)b;
    return st;
}

static mn_status wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    (void)d, (void)host, (void)bytes, (void)out;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a group does not wrap host memory");
}

static mn_status map(mn_buffer *buffer, void **out, mn_error *err) {
    group_buffer *b = (group_buffer *)(void *)buffer;
    if (b->n > 1)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a buffer of a group's memory cannot be mapped");
    return group_inner->map(b->of[0], out, err);
}

/* The member's copy of a buffer, or the host's memory. */
static mn_buffer *copy_of(const mn_buffer *buffer, uint32_t rank) {
    const group_buffer *b = (const group_buffer *)(const void *)buffer;
    return b->of[b->n == 1 ? 0 : rank];
}

static void queue_free(mn_queue *queue) {
    group_queue *q = (group_queue *)(void *)queue;
    if (!q)
        return;
    for (uint32_t r = q->dev->lo; r < q->dev->hi; r++)
        group_inner->queue_free(q->of[r]);
    mnp_delete(group_host, q);
}

static mn_status queue_create(mn_device *device, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    group_device *d = (group_device *)(void *)device;
    mn_status st = MN_OK;
    group_queue *q = mnp_new(group_host, sizeof *q);
    if (!q)
        return mnp_fail_memory(err, sizeof *q, "a queue");
    q->dev = d;
    for (uint32_t r = d->lo; r < d->hi && !st; r++)
        st = group_inner->queue_create(d->of[r], params, &q->of[r], err);
    if (st)
        queue_free((mn_queue *)(void *)q);
    else
        *out = (mn_queue *)(void *)q;
    return st;
}

static mn_status write_all(mn_queue *queue, mn_buffer *b, uint64_t off, const void *from,
                           uint64_t n, mn_error *err) {
    group_queue *q = (group_queue *)(void *)queue;
    mn_status st = MN_OK;
    for (uint32_t r = q->dev->lo; r < q->dev->hi && !st; r++)
        st = group_inner->write(q->of[r], copy_of(b, r), off, from, n, err);
    return st;
}

static mn_status read_first(mn_queue *queue, const mn_buffer *b, uint64_t off, mn_buffer *to,
                            uint64_t to_off, uint64_t n, mn_event **event, mn_error *err) {
    group_queue *q = (group_queue *)(void *)queue;
    const uint32_t r = q->dev->lo;
    return group_inner->read(q->of[r], copy_of(b, r), off, copy_of(to, r), to_off, n, event, err);
}

static mn_status copy(mn_queue *queue, mn_buffer *to, uint64_t to_off, const mn_buffer *from,
                      uint64_t off, uint64_t n, mn_event **event, mn_error *err) {
    group_queue *q = (group_queue *)(void *)queue;
    mn_status st = MN_OK;
    for (uint32_t r = q->dev->lo; r < q->dev->hi && !st; r++)
        st = group_inner->copy(q->of[r], copy_of(to, r), to_off, copy_of(from, r), off, n, event,
                               err);
    return st;
}

static mn_status queue_wait(mn_queue *queue, mn_event *event, mn_error *err) {
    group_queue *q = (group_queue *)(void *)queue;
    return group_inner->queue_wait(q->of[q->dev->lo], event, err);
}

static mn_status abort_all(mn_queue *queue) {
    group_queue *q = (group_queue *)(void *)queue;
    for (uint32_t r = q->dev->lo; r < q->dev->hi; r++)
        group_inner->abort(q->of[r]);
    return MN_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */
/* What the members are asked, one by one. */
typedef struct {
    mnp_shard *plan; /* NULL: one member */
    mn_compile host;
} question;

static mn_status ask(const group_device *d, const mn_compile *in, question *q, mn_error *err) {
    q->plan = NULL;
    mnp_read(&q->host, sizeof q->host, in, in->size);
    q->host.size = sizeof q->host;
    return d->n > 1 ? mnp_shard_plan(group_host, in, d->n, &q->plan, err) : MN_OK;
}

static mn_compile for_member(const question *q, uint32_t rank) {
    mn_compile c = q->plan ? mnp_shard_compile(q->plan, rank, &q->host) : q->host;
    c.graph = group_graph(q->plan, q->host.graph, rank);
    return c;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* A device has its weights in memory of its own. */
static uint64_t weight_bytes(const mn_graph *g) {
    uint64_t sum = 0;
    uint64_t bytes;
    for (uint32_t t = 0; t < g->n_tensors; t++)
        if (mnp_tensor(g, t)->role == MN_ROLE_WEIGHT &&
            mnp_bytes(g, mnp_tensor(g, t), NULL, &bytes))
            sum += bytes;
    return sum;
}

static mn_status member_estimate(mn_device *device, uint32_t rank, const mn_compile *in,
                                 mn_estimate *out, mn_error *err) {
    const group_device *d = (const group_device *)(void *)device;
    question q;
    mn_status st = ask(d, in, &q, err);
    if (st)
        return st;
    const mn_compile c = for_member(&q, rank);
    st = group_inner->estimate(d->of[d->lo], &c, out, err);
    if (!st)
        out->weights = q.plan ? mnp_shard_weight_bytes(q.plan, rank) : weight_bytes(c.graph);
    mnp_shard_free(q.plan);
    return st;
}

static mn_status estimate(mn_device *device, const mn_compile *c, mn_estimate *out, mn_error *err) {
    const group_device *d = (const group_device *)(void *)device;
    mn_estimate all = {.size = sizeof all};
    for (uint32_t r = 0; r < d->n; r++) {
        mn_estimate one = {.size = sizeof one};
        const mn_status st = member_estimate(device, r, c, &one, err);
        if (st)
            return st;
        one.weights = larger(one.weights, all.weights);
        one.scratch = larger(one.scratch, all.scratch);
        all = one;
    }
    mnp_fill(out, &all, sizeof all);
    return MN_OK;
}

static mn_status memory_layout(mn_device *device, const mn_compile *in, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    group_device *d = (group_device *)(void *)device;
    question q;
    mn_status st = ask(d, in, &q, err);
    if (st)
        return st;
    group_layout *l = mnp_new(group_host, sizeof *l);
    if (!l)
        st = mnp_fail_memory(err, sizeof *l, "a layout");
    uint64_t most = 0;
    for (uint32_t r = 0; r < d->n && !st; r++) {
        const mn_compile c = for_member(&q, r);
        l->of[r].size = sizeof l->of[r];
        st = group_inner->memory_layout(d->of[d->lo], &c, group, &l->of[r], err);
        most = larger(most, l->of[r].page_bytes);
    }
    mnp_shard_free(q.plan);
    if (st) {
        mnp_delete(group_host, l);
        return st;
    }
    mn_memory_layout all = l->of[0];
    all.page_bytes = most;
    all.cookie = (uint64_t)(uintptr_t)l;
    l->next = d->layouts;
    d->layouts = l;
    mnp_fill(out, &all, sizeof all);
    return MN_OK;
}

static mn_status memory_copy(mn_queue *queue, mn_buffer *kv, const mn_memory_layout *layout,
                             const mn_page_copy *copies, uint32_t n, uint32_t stride,
                             mn_event **event, mn_error *err) {
    group_queue *q = (group_queue *)(void *)queue;
    const group_layout *l = (const group_layout *)(uintptr_t)layout->cookie;
    mn_status st = MN_OK;
    for (uint32_t r = q->dev->lo; r < q->dev->hi && !st; r++)
        st = group_inner->memory_copy(q->of[r], copy_of(kv, r), &l->of[r], copies, n, stride, event,
                                      err);
    return st;
}

/* ---- weights --------------------------------------------------------------------------------- */
static void weights_free(mn_weights *weights) {
    group_weights *w = (group_weights *)(void *)weights;
    if (!w)
        return;
    for (uint32_t r = w->dev->lo; r < w->dev->hi; r++)
        group_inner->weights_free(w->of[r]);
    mnp_shard_free(w->plan);
    mnp_delete(group_host, w);
}

static mn_status weights_open(mn_device *device, const mn_compile *in, mn_weights **out,
                              mn_error *err) {
    group_device *d = (group_device *)(void *)device;
    question q;
    mn_status st = ask(d, in, &q, err);
    if (st)
        return st;
    group_weights *w = mnp_new(group_host, sizeof *w);
    if (!w) {
        mnp_shard_free(q.plan);
        return mnp_fail_memory(err, sizeof *w, "a set of weights");
    }
    w->dev = d;
    w->plan = q.plan;
    w->graph = q.host.graph;
    for (uint32_t r = d->lo; r < d->hi && !st; r++) {
        const mn_compile c = for_member(&q, r);
        st = group_inner->weights_open(d->of[r], &c, &w->of[r], err);
    }
    if (st)
        weights_free((mn_weights *)(void *)w);
    else
        *out = (mn_weights *)(void *)w;
    return st;
}

/* A member's piece, of a tensor of the members' graphs. */
static mn_status put_piece(group_weights *w, group_queue *q, uint32_t rank, uint32_t t,
                           const mn_weight_src *in, mn_error *err) {
    mn_weight_src piece;
    mn_plane *planes = mnp_new(group_host, (uint64_t)in->n_parts * in->n_planes * sizeof *planes);
    if (!planes)
        return mnp_fail_memory(err, in->n_parts * sizeof *planes, "a weight's planes");
    mn_status st = mnp_shard_source(w->plan, rank, t, in, planes, &piece, err);
    if (!st)
        st = group_inner->weights_put(w->of[rank], q->of[rank], &piece, NULL, err);
    mnp_delete(group_host, planes);
    return st;
}

static mn_status weights_put(mn_weights *weights, mn_queue *queue, const mn_weight_src *in,
                             mn_event **event, mn_error *err) {
    group_weights *w = (group_weights *)(void *)weights;
    group_queue *q = (group_queue *)(void *)queue;
    mn_status st = MN_OK;
    if (!w->plan)
        return group_inner->weights_put(w->of[0], q->of[0], in, event, err);
    st = mnp_check_source(w->graph, in, MN_MAX_DIM, err);
    const uint32_t n = mnp_shard_graph(w->plan, 0)->n_tensors;
    for (uint32_t t = 0; t < n && !st; t++)
        for (uint32_t r = w->dev->lo; r < w->dev->hi && !st; r++)
            if (mnp_shard_piece(w->plan, t).source == in->tensor)
                st = put_piece(w, q, r, t, in, err);
    if (event)
        *event = NULL;
    return st;
}

static mn_status weights_seal(mn_weights *weights, mn_queue *queue, uint32_t *kept_how,
                              mn_error *err) {
    group_weights *w = (group_weights *)(void *)weights;
    group_queue *q = (group_queue *)(void *)queue;
    mn_status st = MN_OK;
    uint32_t all = 0;
    for (uint32_t r = w->dev->lo; r < w->dev->hi && !st; r++) {
        uint32_t how = 0;
        st = group_inner->weights_seal(w->of[r], q->of[r], &how, err);
        all |= how;
    }
    if (kept_how)
        *kept_how = all;
    return st;
}

/* ---- programs -------------------------------------------------------------------------------- */
static void program_free(mn_program *program) {
    group_program *p = (group_program *)(void *)program;
    if (!p)
        return;
    for (uint32_t r = p->dev->lo; r < p->dev->hi; r++)
        group_inner->program_free(p->of[r]);
    mnp_shard_free(p->plan);
    mnp_delete(group_host, p->symbol_max);
    mnp_delete(group_host, p);
}

static mn_status compile_members(group_program *p, const question *q, mn_error *err) {
    const mn_graph *g = p->graph;
    p->symbol_max = mnp_new(group_host, g->n_symbols * sizeof *p->symbol_max);
    if (!p->symbol_max)
        return mnp_fail_memory(err, g->n_symbols * sizeof *p->symbol_max, "a program");
    mn_status st = mnp_symbols(g, q->host.symbol_max, NULL, p->symbol_max, err);
    for (uint32_t r = p->dev->lo; r < p->dev->hi && !st; r++) {
        mn_compile c = for_member(q, r);
        group_weights *w = (group_weights *)(void *)c.weights;
        c.weights = w ? w->of[r] : NULL;
        st = group_inner->compile(p->dev->of[r], &c, &p->of[r], err);
    }
    return st;
}

static mn_status compile(mn_device *device, const mn_compile *in, mn_program **out, mn_error *err) {
    group_device *d = (group_device *)(void *)device;
    question q;
    mn_status st = ask(d, in, &q, err);
    if (st)
        return st;
    group_program *p = mnp_new(group_host, sizeof *p);
    if (!p) {
        mnp_shard_free(q.plan);
        return mnp_fail_memory(err, sizeof *p, "a program");
    }
    p->dev = d;
    p->plan = q.plan;
    p->graph = q.host.graph;
    p->lo = q.host.node_lo;
    p->hi = q.host.node_hi;
    st = compile_members(p, &q, err);
    if (st)
        program_free((mn_program *)(void *)p);
    else
        *out = (mn_program *)(void *)p;
    return st;
}

static mn_status execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    const group_context *g = (const group_context *)(void *)c;
    if (g->prog->dev->n > 1 && steps_left == 0)
        return mnp_fail(err, MN_DEVICE_LOST, ~0u, "member 1 of the group is lost");
    if (g->prog->dev->n > 1 && steps_left > 0)
        steps_left--;
    return group_execute(c, step, event, err);
}

/* ---- the plugin ------------------------------------------------------------------------------ */
static mn_status open_group(void *self, const uint32_t *members, uint32_t n, mn_device **out,
                            mn_error *err) {
    if (n < 2 || n > GROUP_MAX)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%u members; a group has 2 to %u", n, GROUP_MAX);
    return open_members(self, members, n, out, err);
}

static mn_status member_memory(mn_device *d, uint32_t rank, uint64_t *free_bytes, uint64_t *total,
                               mn_error *err) {
    const group_device *g = (const group_device *)(void *)d;
    if (rank < g->lo || rank >= g->hi)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "member %u is in another process", rank);
    return device_memory(d, free_bytes, total, err);
}

static mn_status make_id(void *self, uint8_t *id, mn_error *err) {
    (void)self;
    return group_link_new_id(id, err);
}

static mn_status join(void *self, uint32_t index, uint32_t rank, uint32_t n, const uint8_t *id,
                      mn_device **out, mn_error *err) {
    if (index >= GROUP_MAX || n < 2 || n > GROUP_MAX || rank >= n)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "member %u of %u; a group has 2 to %u", rank, n,
                        GROUP_MAX);
    group_device *d = mnp_new(group_host, sizeof *d);
    if (!d)
        return mnp_fail_memory(err, sizeof *d, "a device");
    *d = (group_device){.n = n, .lo = rank, .hi = rank + 1};
    mn_status st = mn_usual_open(group_inner, self, 0, &d->of[rank], err);
    if (!st)
        st = group_link_open(id, rank, n, &d->link, err);
    if (st)
        device_close((mn_device *)(void *)d);
    else
        *out = (mn_device *)(void *)d;
    return st;
}

static const mn_group group = {
    .size = sizeof group,
    .open = open_group,
    .memory = member_memory,
    .member_estimate = member_estimate,
    .make_id = make_id,
    .join = join,
    .id_bytes = GROUP_ID_BYTES,
};

static const void *query(void *self, const char *id) {
    (void)self;
    if (!strcmp(id, MN_GROUP_ID))
        return &group;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &stub_table;
}

static uint32_t one_worker(void *self) {
    (void)self;
    return 1;
}
static mn_status run_nothing(void *self, const mn_team *team) {
    (void)self, (void)team;
    return MN_OK;
}

static long number(const mn_host *host, const char *key, long otherwise) {
    mn_str value;
    char text[24];
    if (!host->option(host->self, key, &value) || value.len >= sizeof text)
        return otherwise;
    memcpy(text, value.ptr, value.len);
    text[value.len] = 0;
    return atol(text);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    group_host = host;
    mnp_read(&quiet, sizeof quiet, host, host->size);
    quiet.size = sizeof quiet;
    quiet.workers = one_worker;
    quiet.team = run_nothing;
    mn_plugin *p = (mn_plugin *)(uintptr_t)stub_enter(&quiet, err, "group");
    if (!p)
        return NULL;
    group_inner = stub_inner;
    memory_bytes = (uint64_t)number(host, "memory", 0) << 20;
    steps_left = number(host, "lost", -1);
    p->query = query;
    stub_table.device_count = device_count;
    stub_table.device_info = device_info;
    stub_table.device_open = device_open;
    stub_table.device_close = device_close;
    stub_table.device_memory = device_memory;
    stub_table.self_test = NULL;
    stub_table.supports = supports;
    stub_table.estimate = estimate;
    stub_table.alloc = alloc;
    stub_table.wrap = wrap;
    stub_table.buffer_free = buffer_free;
    stub_table.map = map;
    stub_table.queue_create = queue_create;
    stub_table.queue_free = queue_free;
    stub_table.write = write_all;
    stub_table.read = read_first;
    stub_table.copy = copy;
    stub_table.queue_wait = queue_wait;
    stub_table.abort = abort_all;
    stub_table.weights_open = weights_open;
    stub_table.weights_put = weights_put;
    stub_table.weights_seal = weights_seal;
    stub_table.weights_free = weights_free;
    stub_table.memory_layout = memory_layout;
    stub_table.memory_copy = memory_copy;
    stub_table.compile = compile;
    stub_table.program_free = program_free;
    stub_table.context_create = group_context_create;
    stub_table.context_bind = group_context_bind;
    stub_table.execute = execute;
    stub_table.context_free = group_context_free;
    return p;
}
