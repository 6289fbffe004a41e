/* probe_device.c -- what minerva-probe does with the devices of a backend: the calls by which a
 * host comes to its first token, each once and small. A plugin that refuses something says so to
 * the host, too, as things are then: a refusal is no fault here. A fault is a self-test that fails
 * or a call that says that it worked and did not. */
#include "registry/probe_main.h"
#include "registry/small_graph.h"
#include "usual.h"
#include <stdio.h>
#include <string.h>

#define ROWS 2
#define WIDTH 32 /* elements of a row */
#define MAX_CONTRACTS 4096u

typedef struct {
    const mn_plugin_record *rec;
    uint32_t index;
    char uid[sizeof((mn_device_info *)0)->uid];
    mn_small_device small;
    mn_small_graph graph;
} probed_device;

static void phase_of(const char *doing, const probed_device *d) {
    probe_tell("phase", "%s %u", doing, d->index);
}

static void tell_fault(const probed_device *d, const char *what, mn_error *why) {
    mn_fail_plain(why);
    probe_tell("fault", "%u\t%s\t%s: %s", d->index, d->uid, what,
               why->msg[0] ? why->msg : "the plugin gave no reason");
}

/* Whether it may be over next time: then the answer is not worth keeping. */
static bool probe_device_passes(mn_status st) {
    const uint32_t klass = MN_STATUS_CLASS(st);
    const bool passing = klass == MN_CLASS_SMALLER || klass == MN_CLASS_TRANSIENT;
    if (passing)
        probe_tell("again", "1");
    return passing;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static bool knows(const probed_device *d, uint32_t op) {
    const mn_op_contract *table = NULL;
    uint32_t n = 0;
    uint32_t stride = 0;
    if (d->small.b->contracts(d->rec->plugin->self, &table, &n, &stride) || !table ||
        stride < MN_UP_TO(mn_op_contract, contract) || n > MAX_CONTRACTS)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const mn_op_contract *c =
            (const mn_op_contract *)(const void *)((const char *)table + (size_t)i * stride);
        if (c->op == op && c->contract >= 1)
            return true;
    }
    return false;
}

/* The questions of negotiation: verdict and class. */
static bool probe_device_ask(probed_device *d, const mn_compile *question) {
    const mn_backend *b = d->small.b;
    mn_error why = MN_ERROR_INIT;
    mn_verdict verdict = {.verdict = MN_VERDICT_NO};
    mn_estimate estimate = {.size = sizeof estimate};
    phase_of("asking for verdicts of device", d);
    if (b->supports(d->small.dev, question, &verdict, sizeof verdict, &why))
        return false;
    if (verdict.verdict == MN_VERDICT_NO)
        return false;
    phase_of("asking for an estimate of device", d);
    if (b->estimate(d->small.dev, question, &estimate, &why))
        return false;
    d->small.precision = estimate.precision;
    return true;
}

/* Asks as negotiation does; fills in the class that the device would use. */
static bool probe_device_accepts(probed_device *d) {
    const int64_t rows = ROWS;
    const mn_compile question = {
        .size = sizeof question,
        .precision = MN_PRECISION_AUTO,
        .graph = d->graph.given,
        .node_hi = d->graph.given->n_nodes,
        .symbol_max = &rows,
    };
    mn_sealed *pages;
    const mn_compile *given = mn_given_compile(&question, &pages);
    const bool accepted = given && probe_device_ask(d, given);
    mn_sealed_free(pages);
    return accepted;
}

static bool probe_device_run_step(probed_device *d) {
    mn_error why = MN_ERROR_INIT;
    mn_small_run run;
    phase_of("compiling a small graph for device", d);
    mn_status st = mn_small_run_make(&d->small, &d->graph, ROWS, &run, &why);
    if (!st) {
        phase_of("running a step on device", d);
        st = mn_small_run_step(&d->small, &run, ROWS, &why);
    }
    if (st == MN_INVALID)
        tell_fault(d, "cannot run a small graph", &why);
    else if (st)
        probe_device_passes(st);
    mn_small_run_drop(&d->small, &run);
    return !st;
}

/* The first op that the device can run is enough. */
static void try_step(probed_device *d) {
    static const uint32_t ops[] = {MN_OP_RMS_NORM, MN_OP_ADD, MN_OP_LINEAR};
    for (size_t i = 0; i < MN_COUNT(ops); i++) {
        if (!knows(d, ops[i]))
            continue;
        if (!mn_small_graph_build(&d->graph, ops[i], 1, MN_F32, WIDTH, WIDTH))
            return;
        if (probe_device_accepts(d) && probe_device_run_step(d))
            return;
    }
}

static void try_queue(probed_device *d) {
    static float fill[WIDTH * WIDTH];
    mn_error why = MN_ERROR_INIT;
    for (size_t i = 0; i < MN_COUNT(fill); i++)
        fill[i] = 0.5f;
    d->small.fill = (const uint8_t *)fill;
    d->small.fill_bytes = sizeof fill;
    phase_of("making a queue of device", d);
    const mn_status st = mn_usual_queue(d->small.b, d->small.dev, &d->small.queue, &why);
    if (st || !d->small.queue) {
        probe_device_passes(st);
        return;
    }
    try_step(d);
    mn_small_graph_clear(&d->graph);
    phase_of("freeing the queue of device", d);
    d->small.b->queue_free(d->small.queue);
}

/* ---- a device -------------------------------------------------------------------------------- */

static bool passes_self_test(const probed_device *d) {
    const mn_backend *b = d->small.b;
    mn_error why = MN_ERROR_INIT;
    if (!MN_HAS(mn_backend, b, self_test))
        return true;
    phase_of("running the self-test of device", d);
    const mn_status st = b->self_test(d->small.dev, &why);
    if (st && !probe_device_passes(st))
        tell_fault(d, "failed its self-test", &why);
    return !st;
}

/* A device that cannot be opened is not mentioned: the host's own attempt says why, as things are
 * then. It is closed before the verdict: its memory is what the host plans with next. */
static void try_open(probed_device *d) {
    mn_error why = MN_ERROR_INIT;
    phase_of("opening device", d);
    const mn_status st =
        mn_usual_open(d->small.b, d->rec->plugin->self, d->index, &d->small.dev, &why);
    if (st || !d->small.dev) {
        probe_device_passes(st);
        return;
    }
    if (passes_self_test(d))
        try_queue(d);
    phase_of("closing device", d);
    d->small.b->device_close(d->small.dev);
}

static void try_device(const mn_plugin_record *rec, uint32_t i) {
    static probed_device d;
    mn_error why = MN_ERROR_INIT;
    mn_device_info info = {.size = sizeof info};
    memset(&d, 0, sizeof d);
    d.rec = rec;
    d.index = i;
    d.small.b = rec->backend;
    phase_of("describing device", &d);
    if (rec->backend->device_info(rec->plugin->self, i, &info, &why) != MN_OK)
        return; /* the host's list says it, too */
    mn_plain_array(info.uid, sizeof info.uid);
    memcpy(d.uid, info.uid, sizeof d.uid);
    try_open(&d);
}

void probe_devices(const mn_plugin_record *rec) {
    mn_error why = MN_ERROR_INIT;
    uint32_t n = 0;
    probe_phase("listing devices");
    const mn_status st = rec->backend->device_count(rec->plugin->self, &n, &why);
    if (st || n > MN_MAX_DEVICES)
        return; /* as above */
    for (uint32_t i = 0; i < n; i++)
        try_device(rec, i);
}
