/* writes.c -- writes into what it is given as const, though it computes as the reference plugin
 * does. The plugin's options say where and into what: MINERVA_WRITES_IN (a function's name) and
 * MINERVA_WRITES_TO; in the host alone, or with MINERVA_WRITES_PROBE in the probing process, too.
 * A GPU that boasts, which auto wants; with MINERVA_WRITES_ASKED it does not boast. */
#include "stub.h"
#include <errno.h>

MN_PLUGIN_NOTE("writes", MN_KIND_BACKEND, "");

static char where[32];
static char what[32];
static const mn_host *own_host;
static const mn_graph *kept; /* of the last program: a graph lives as long as it */

static void option(const mn_host *host, const char *key, char *dst, size_t cap) {
    mn_str value;
    dst[0] = 0;
    if (!host->option(host->self, key, &value))
        return;
    const size_t n = value.len < cap ? value.len : cap - 1;
    memcpy(dst, value.ptr, n);
    dst[n] = 0;
}

static int is_here(const char *here) {
    return !strcmp(where, here);
}

static int is_target(const char *target) {
    return !strcmp(what, target);
}

/* Every byte of const memory that a write of these bytes changes. */
static void scribble(const void *at, size_t n) {
    volatile char *to = (volatile char *)(uintptr_t)at;
    for (size_t i = 0; i < n; i++)
        to[i] = (char)(to[i] ^ 1);
}

/* The angles of a model, turned the other way: other text that reads well. */
static void flip_rope(const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == MN_OP_ROPE)
            scribble(&g->attrs[g->nodes[i].attr_off + MN_ROPE_ATTR_PAIRING], 1);
}

static void spoil_host(void) {
    if (is_target("host"))
        scribble(&own_host->now_ns, sizeof own_host->now_ns);
}

static void spoil_graph(const mn_graph *g) {
    if (is_target("attrs"))
        flip_rope(g);
    if (is_target("graph"))
        scribble(&g->n_nodes, sizeof g->n_nodes);
    if (is_target("nodes"))
        scribble(&g->nodes[0].op, sizeof g->nodes[0].op);
    if (is_target("tensors"))
        scribble(&g->tensors[0].dim, sizeof g->tensors[0].dim);
    if (is_target("name"))
        scribble(g->tensors[0].name.ptr, 1);
    if (is_target("operands"))
        scribble(g->operands, sizeof *g->operands);
    if (is_target("symbols"))
        scribble(&g->symbols[0].max, sizeof g->symbols[0].max);
    spoil_host();
}

static void spoil_compile(const mn_compile *c) {
    if (is_target("compile"))
        scribble(&c->precision, sizeof c->precision);
    if (is_target("maxima"))
        scribble(c->symbol_max, c->graph->n_symbols * sizeof *c->symbol_max);
    spoil_graph(c->graph);
}

/* ---- the table ------------------------------------------------------------------------------- */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    const mn_status st = stub_inner->supports(d, c, out, stride, err);
    if (!is_here("supports"))
        return st;
    spoil_compile(c);
    return st;
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    const mn_status st = stub_boast_estimate(d, c, out, err);
    if (is_here("estimate"))
        spoil_compile(c);
    return st;
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    const mn_status st = stub_inner->memory_layout(d, c, group, out, err);
    if (is_here("memory_layout"))
        spoil_compile(c);
    return st;
}

static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    const mn_status st = stub_inner->weights_open(d, c, out, err);
    if (is_here("weights_open"))
        spoil_compile(c);
    return st;
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **event,
                             mn_error *err) {
    const mn_status st = stub_inner->weights_put(w, q, src, event, err);
    const int large = src->planes[0].bytes > 4096; /* of a file */
    if (!is_here("weights_put"))
        return st;
    if (is_target("planes") && large)
        scribble(&src->planes[0].stride, sizeof src->planes[0].stride);
    if (is_target("weights"))
        scribble(src->planes[0].ptr, 1);
    return st;
}

static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    const mn_status st = stub_inner->compile(d, c, out, err);
    kept = c->graph;
    if (is_here("compile"))
        spoil_compile(c);
    return st;
}

static mn_status context_bind(mn_context *x, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    const mn_status st = stub_inner->context_bind(x, set, b, n, stride, err);
    if (is_here("context_bind") && is_target("bindings"))
        scribble(b, (size_t)n * stride);
    return st;
}

static mn_status context_prepare(mn_context *x, const mn_step *step, mn_error *err) {
    const mn_status st = stub_inner->context_prepare(x, step, err);
    if (is_here("context_prepare") && is_target("values"))
        scribble(step->values, kept->n_symbols * sizeof *step->values);
    return st;
}

static mn_status write_bytes(mn_queue *q, mn_buffer *to, uint64_t at, const void *src, uint64_t n,
                             mn_error *err) {
    const mn_status st = stub_inner->write(q, to, at, src, n, err);
    if (is_here("write") && is_target("values"))
        scribble(src, (size_t)n);
    return st;
}

static mn_status execute(mn_context *x, const mn_step *step, mn_event **event, mn_error *err) {
    const mn_status st = stub_inner->execute(x, step, event, err);
    if (!is_here("execute"))
        return st;
    if (is_target("values"))
        scribble(step->values, kept->n_symbols * sizeof *step->values);
    spoil_graph(kept);
    return st;
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    char probe[4] = "";
    char asked[4] = "";
    const int in_host = !strstr(program_invocation_short_name, "probe");
    const mn_plugin *p = stub_enter(host, err, "writes");
    if (!p)
        return NULL;
    own_host = host;
    option(host, "probe", probe, sizeof probe);
    option(host, "asked", asked, sizeof asked);
    if (in_host || probe[0]) {
        option(host, "in", where, sizeof where);
        option(host, "to", what, sizeof what);
    }
    stub_table.supports = supports;
    stub_table.estimate = estimate;
    stub_table.memory_layout = memory_layout;
    stub_table.weights_open = weights_open;
    stub_table.weights_put = weights_put;
    stub_table.compile = compile;
    stub_table.context_bind = context_bind;
    if (stub_table.context_prepare)
        stub_table.context_prepare = context_prepare;
    stub_table.write = write_bytes;
    stub_table.execute = execute;
    if (!asked[0])
        stub_table.device_info = stub_boast;
    return p;
}
