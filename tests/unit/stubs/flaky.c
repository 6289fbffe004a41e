/* flaky.c -- a CPU plugin that is lost while it works: cpu_simd's kernels behind a table that fails
 * on command. Its KV pages have another size than cpu_simd's. Options, as [plugin.flaky] of
 * minerva.ini or MINERVA_FLAKY_* (of a file lost.so: MINERVA_LOST_*):
 *   devices     how many there are; flaky or flaky:0, flaky:1, ...
 *   lost_after  per device, "7,0": executes that succeed before it is lost; "-" or missing: never
 *   lost_at     which call tells: execute (the default), wait, read, write, weights or compile
 *               (these two at once)
 *   back_after  the n-th device_open after a loss succeeds, the ones before say that the device is
 *               lost; "-" or missing: it never comes back
 *   relapse     executes that succeed once it is back; missing: it stays
 *   bad_test    self-tests that fail once it is back
 *   transient   every n-th execute, write and read fails once with a status of class TRANSIENT,
 *               before it has done anything
 *   async       1: claims MN_DEVICE_ASYNC, so that the host runs ahead
 *   plain       1: refuses to compile a SAMPLE that gives more than ids; 2: one that verifies
 *               drafts, as before contract 3
 *   sample      the newest contract of SAMPLE that it knows, as an older plugin would
 *   unified     0: does not claim MN_DEVICE_UNIFIED, so that the host reads what leaves it
 *   gpu         1: claims to be a GPU that computes 512 rows in 1 ms
 *   slow        milliseconds that every execute sleeps first: how long a text takes at least, on
 *               any machine
 * A lost device says so from then on at every call but the *_free and *_close ones, until it is
 * opened again; a device that is opened while it is open, or closed while it has a queue, ends the
 * process. One runtime of a process at a time. */
#include <minerva/plugin.h>
MN_PLUGIN_NOTE("flaky", MN_KIND_BACKEND, "");
#define minerva_plugin_entry kernels_entry
#undef MN_PLUGIN_NOTE
#define MN_PLUGIN_NOTE(id, kinds, isa) struct flaky_unused
#include "../../../plugins/cpu_simd/plugin.c"
#undef minerva_plugin_entry
#include "../../../plugins/cpu_host/mnc.h"
#include <stdlib.h>
#include <unistd.h>

#ifndef FLAKY_LOST_AFTER
/* of lost_after where no option says it; tests/stub builds one that loses */
#define FLAKY_LOST_AFTER "-"
#endif
enum { MAX_DEVICES = 4, NEVER = 1 << 30 };
static struct {
    mn_device *_Atomic dev;
    _Atomic int32_t left; /* executes until it is lost */
    _Atomic bool lost, back;
    _Atomic uint32_t n_opens, n_queues; /* since it was lost; now */
} units[MAX_DEVICES];
static uint32_t n_units, transient, back_after, relapse, slow_ms;
static _Atomic uint32_t n_calls, bad_tests;
static bool async, unified, gpu;
static uint32_t plain, sample_contract;
static mn_op_contract older[64]; /* contracts of cpu_simd, that of SAMPLE as old as asked for */
static char lost_at[16];
static mn_backend table;
static mn_plugin api;

static mn_status gone(mn_error *err) {
    return mnp_fail(err, MN_DEVICE_LOST, ~0u, "the plug was pulled");
}
static bool tells(const char *call) {
    return !strcmp(lost_at, call);
}

static uint32_t unit(const mn_device *d) {
    uint32_t i = 0;
    while (i + 1 < n_units && units[i].dev != d)
        i++;
    return i;
}

/* Every call of a device goes through here first. */
static mn_status check(const mn_device *d, const char *call, mn_error *err) {
    const uint32_t u = unit(d);
    const bool late = tells("wait") || tells("read"); /* these tell of the execute before them */
    if (tells(call) && units[u].left < !late)
        units[u].lost = true;
    return units[u].lost ? gone(err) : MN_OK;
}

static mn_status hiccup(mn_error *err) {
    if (!transient || ++n_calls % transient)
        return MN_OK;
    return mnp_fail(err, MN_STATUS(MN_CLASS_TRANSIENT, 9), ~0u, "busy");
}

static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self, (void)err;
    *n = n_units;
    return MN_OK;
}
static mn_status device_info(void *self, uint32_t i, mn_device_info *info, mn_error *err) {
    if (i >= n_units)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "device %u of %u", i, n_units);
    mn_status st = mnc_device_info(self, 0, info, err);
    if (async)
        info->flags |= MN_DEVICE_ASYNC;
    if (!unified)
        info->flags &= ~(uint64_t)MN_DEVICE_UNIFIED;
    if (gpu)
        info->kind = MN_DEVICE_GPU;
    return st;
}
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    if (i >= n_units)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "device %u of %u", i, n_units);
    if (units[i].dev)
        abort();
    if (units[i].lost && ++units[i].n_opens < back_after)
        return mnp_fail(err, MN_DEVICE_LOST, ~0u, "opened %u times", (unsigned)units[i].n_opens);
    const mn_open_params usual = {.size = sizeof usual};
    (void)params;
    mn_status st = mnc_device_open(self, 0, &usual, out, err);
    if (st)
        return st;
    units[i].dev = *out;
    if (units[i].lost)
        units[i].left = (int32_t)relapse;
    units[i].back = units[i].lost;
    units[i].lost = false;
    units[i].n_opens = 0;
    return MN_OK;
}
static void device_close(mn_device *d) {
    const uint32_t u = unit(d);
    if (units[u].dev != d || units[u].n_queues)
        abort();
    units[u].dev = NULL;
    mnc_device_close(d);
}
static mn_status self_test(mn_device *d, mn_error *err) {
    if (!units[unit(d)].back || !bad_tests)
        return mnc_self_test(d, err);
    bad_tests--;
    units[unit(d)].lost = true;
    return mnp_fail(err, MN_DEVICE_LOST, ~0u, "adds wrongly");
}

static mn_status buffer_alloc(mn_device *d, const mn_alloc_params *a, mn_buffer **out,
                              mn_error *err) {
    mn_status st = check(d, "alloc", err);
    return st ? st : mnc_alloc(d, a, out, err);
}
static mn_status queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    mn_status st = check(d, "queue", err);
    if (!st)
        st = mnc_queue_create(d, params, out, err);
    units[unit(d)].n_queues += !st;
    return st;
}
static void queue_free(mn_queue *q) {
    units[unit(q->dev)].n_queues -= q != NULL;
    mnc_queue_free(q);
}
static mn_status queue_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                             mn_error *err) {
    mn_status st = check(q->dev, "write", err);
    if (!st)
        st = hiccup(err);
    return st ? st : mnc_write(q, b, off, src, n, err);
}
/* The kernels' events are NULL, complete already; here somebody waits, so that wait can tell. */
static mn_status give_event(mn_device *d, mn_status st, mn_event **ev) {
    if (!st && ev)
        *ev = &d->done;
    return st;
}
static mn_status queue_read(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to,
                            uint64_t to_off, uint64_t n, mn_event **ev, mn_error *err) {
    mn_status st = check(q->dev, "read", err);
    if (!st)
        st = hiccup(err);
    return st ? st : give_event(q->dev, mnc_read(q, b, off, to, to_off, n, ev, err), ev);
}
static mn_status event_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    mn_device *d = (mn_device *)(void *)((char *)e - offsetof(mn_device, done));
    mn_status st = check(d, "wait", err);
    return st ? st : mnc_wait(e, timeout_ns, err);
}
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    mn_status st = check(d, "open", err);
    return st ? st : mnc_weights_open(d, c, out, err);
}
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    if (tells("weights"))
        units[unit(q->dev)].left -= units[unit(q->dev)].left < NEVER ? NEVER : 0;
    mn_status st = check(q->dev, "weights", err);
    return st ? st : mnc_weights_put(w, q, src, ev, err);
}
static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *c, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
    mn_status st = check(q->dev, "memory_copy", err);
    return st ? st : mnc_memory_copy(q, kv, l, c, n, stride, ev, err);
}
/* Whether SAMPLE is to give logprobs, too. */
static bool scores(const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = &g->nodes[i];
        if (n->op == MN_OP_SAMPLE && n->n_out > MN_SAMPLE_OUT_LOGPROB)
            return g->operands[n->out_off + MN_SAMPLE_OUT_LOGPROB] >= 0;
    }
    return false;
}
/* Whether SAMPLE is to verify drafts. */
static bool verifies(const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = &g->nodes[i];
        if (n->op == MN_OP_SAMPLE && n->n_in > MN_SAMPLE_DRAFT)
            return g->operands[n->in_off + MN_SAMPLE_DRAFT] >= 0;
    }
    return false;
}
static mn_status program_compile(mn_device *d, const mn_compile *c, mn_program **out,
                                 mn_error *err) {
    if (tells("compile"))
        units[unit(d)].left -= units[unit(d)].left < NEVER ? NEVER : 0;
    mn_status st = check(d, "compile", err);
    if (!st && plain == 1 && scores(c->graph))
        st = mnp_fail(err, MN_UNSUPPORTED, ~0u, "draws ids and nothing else");
    if (!st && plain == 2 && verifies(c->graph))
        st = mnp_fail(err, MN_UNSUPPORTED, ~0u, "verifies no drafts");
    for (uint32_t i = c->node_lo; i < c->node_hi && !st && sample_contract; i++) {
        const mn_node *n = mnp_node(c->graph, i);
        if (n->op == MN_OP_SAMPLE && n->contract > sample_contract)
            st = mnp_fail(err, MN_UNSUPPORTED, i, "contract %u of SAMPLE", n->contract);
    }
    return st ? st : mnc_compile(d, c, out, err);
}
static mn_status list_contracts(void *self, const mn_op_contract **out, uint32_t *n,
                                uint32_t *stride) {
    const mn_op_contract *known = NULL;
    const mn_status st = mnc_contracts(self, &known, n, stride);
    if (st || *n > 64)
        return st ? st : MN_INVALID;
    memcpy(older, known, *n * sizeof *older);
    for (uint32_t i = 0; i < *n && sample_contract; i++)
        if (older[i].op == MN_OP_SAMPLE)
            older[i].contract = sample_contract;
    *out = older;
    return MN_OK;
}
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *e, mn_error *err) {
    const mn_status st = mnc_estimate(d, c, e, err);
    if (!st && gpu)
        e->prefill_us = 1000;
    return st;
}
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_status st = check(c->queue->dev, "bind", err);
    return st ? st : mnc_context_bind(c, set, b, n, stride, err);
}
/* The execute after the last good one computes nothing, even where a later call is the one that
 * tells. */
static mn_status context_execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_device *d = c->queue->dev;
    const uint32_t u = unit(d);
    mn_status st = check(d, "execute", err);
    if (!st)
        st = hiccup(err);
    if (st)
        return st;
    if (slow_ms)
        usleep(slow_ms * 1000);
    if (units[u].left-- > 0)
        st = mnc_execute(c, step, ev, err);
    return give_event(d, st, ev);
}

static const void *query(void *self, const char *id) {
    (void)self;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &table;
}

static void option(const mn_host *h, const char *key, char *out, size_t cap) {
    mn_str v = {NULL, 0};
    if (h->option(h->self, key, &v) && v.ptr)
        snprintf(out, cap, "%.*s", (int)(v.len < cap ? v.len : cap - 1), v.ptr);
}

static uint32_t number(const mn_host *h, const char *key, uint32_t otherwise) {
    char text[16] = "";
    option(h, key, text, sizeof text);
    return *text ? (uint32_t)atoi(text) : otherwise;
}

static void read_options(const mn_host *h) {
    char text[64] = FLAKY_LOST_AFTER, *at = text;
    n_units = number(h, "devices", 1) < MAX_DEVICES ? number(h, "devices", 1) : MAX_DEVICES;
    option(h, "lost_after", text, sizeof text);
    for (uint32_t i = 0; i < MAX_DEVICES; i++) {
        units[i].dev = NULL;
        units[i].lost = units[i].back = false;
        units[i].n_opens = units[i].n_queues = 0;
        units[i].left = *at && *at != '-' ? atoi(at) : NEVER;
        at += strcspn(at, ",");
        at += *at == ',';
    }
    snprintf(lost_at, sizeof lost_at, "execute");
    option(h, "lost_at", lost_at, sizeof lost_at);
    transient = number(h, "transient", 0);
    async = number(h, "async", 0);
    plain = number(h, "plain", 0);
    sample_contract = number(h, "sample", 0);
    unified = number(h, "unified", 1);
    gpu = number(h, "gpu", 0);
    back_after = number(h, "back_after", NEVER);
    relapse = number(h, "relapse", NEVER);
    bad_tests = number(h, "bad_test", 0);
    slow_ms = number(h, "slow", 0);
    n_calls = 0;
}

MN_EXPORT const mn_plugin *minerva_plugin_entry(const mn_host *h, mn_error *err) {
    const mn_plugin *kernels = kernels_entry(h, err);
    if (!kernels)
        return NULL;
    read_options(h);
    table = mnc_backend;
    table.device_count = device_count;
    table.device_info = device_info;
    table.device_open = device_open;
    table.device_close = device_close;
    table.self_test = self_test;
    table.contracts = list_contracts;
    table.estimate = estimate;
    table.alloc = buffer_alloc;
    table.queue_create = queue_create;
    table.queue_free = queue_free;
    table.write = queue_write;
    table.read = queue_read;
    table.wait = event_wait;
    table.weights_open = weights_open;
    table.weights_put = weights_put;
    table.memory_copy = memory_copy;
    table.compile = program_compile;
    table.context_bind = context_bind;
    table.execute = context_execute;
    api = *kernels;
    api.id = (mn_str){"flaky", 5};
    api.query = query;
    return &api;
}
