/* wide.c -- see wide.h. The table of the host of a later minor is static: one at a time, in the
 * process of a rule. Its functions make longer copies of the arguments, call the plugin, look at
 * the garbage, and hand back what the caller knows; the copies are freed before they return. */
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MORE 24 /* bytes that the plugin does not know, behind each element */
#define GARBAGE 0xee

static const mn_backend *real;
static char breach[160];
static int compiled;

/* n bytes of garbage; the caller frees. */
static void *garbage(uint64_t n) {
    void *p = malloc(n + 1);
    if (p)
        memset(p, GARBAGE, n + 1);
    return p;
}

/* Elements of `size` bytes, `stride` apart, as elements with MORE bytes of garbage between them.
 * The caller frees. */
static void *wide_spread(const void *from, uint64_t n, uint64_t size, uint64_t stride) {
    const uint64_t wide = size + MORE;
    char *to = garbage(n * wide);
    for (uint64_t i = 0; to && i < n; i++)
        memcpy(to + i * wide, (const char *)from + i * stride, size);
    return to;
}

/* The n bytes at `at`, which the plugin must not write. */
static void look(const char *what, const void *at, uint64_t n) {
    for (uint64_t i = 0; i < n && !breach[0]; i++)
        if (((const uint8_t *)at)[i] != GARBAGE)
            snprintf(breach, sizeof breach,
                     "%s: bytes behind those that the plugin knows were written", what);
}

/* An output struct with ROOM more bytes behind it. */
#define ROOM 64
typedef struct {
    union {
        uint32_t size;
        mn_device_info info;
        mn_estimate estimate;
        mn_memory_layout kv;
    } u;
    uint8_t more[ROOM];
} wide_out;

static void out_begin(wide_out *w, uint32_t known) {
    memset(w, GARBAGE, sizeof *w);
    w->u.size = known + ROOM;
}

/* Checks the size that the plugin has set and what is behind it; copies the known bytes to the
 * caller. */
static void out_end(wide_out *w, uint32_t known, void *out, const char *what) {
    const uint32_t size = w->u.size;
    const uint32_t all = known + ROOM;
    if (size > all)
        snprintf(breach, sizeof breach, "%s: found size %u, expected at most %u, the room given",
                 what, size, all);
    else
        look(what, (char *)w + size, all - size);
    memcpy(out, w, size < known ? size : known);
    if (size > known)
        memcpy(out, &known, sizeof known);
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    wide_out w;
    out_begin(&w, sizeof *out);
    mn_status st = real->device_info(self, i, &w.u.info, err);
    if (!st)
        out_end(&w, sizeof *out, out, "device_info");
    return st;
}

/* mn_compile with fields behind it. */
typedef struct {
    mn_compile c;
    uint8_t more[MORE];
} wide_compile;
static wide_compile wide_widen(const mn_compile *c) {
    wide_compile w;
    memset(&w, GARBAGE, sizeof w);
    w.c = *c;
    w.c.size = sizeof w;
    return w;
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    wide_compile ask = wide_widen(c);
    wide_out w;
    out_begin(&w, sizeof *out);
    mn_status st = real->estimate(d, &ask.c, &w.u.estimate, err);
    if (!st)
        out_end(&w, sizeof *out, out, "estimate");
    return st;
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    wide_compile ask = wide_widen(c);
    wide_out w;
    out_begin(&w, sizeof *out);
    mn_status st = real->memory_layout(d, &ask.c, group, &w.u.kv, err);
    if (!st)
        out_end(&w, sizeof *out, out, "memory_layout");
    return st;
}

static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    wide_compile ask = wide_widen(c);
    return real->weights_open(d, &ask.c, out, err);
}

static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    wide_compile ask = wide_widen(c);
    compiled = 1;
    return real->compile(d, &ask.c, out, err);
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    wide_compile ask = wide_widen(c);
    const uint32_t size = sizeof(mn_verdict);
    const uint32_t step = size + MORE;
    const uint64_t n = c->node_hi - c->node_lo;
    char *wide = garbage(n * step);
    if (!wide)
        return MN_OUT_OF_MEMORY;
    mn_status st = real->supports(d, &ask.c, (mn_verdict *)(void *)wide, step, err);
    for (uint64_t i = 0; i < n && !st; i++) {
        const char *verdict = wide + i * step;
        memcpy((char *)out + i * stride, verdict, size);
        look("supports", verdict + size, MORE);
    }
    free(wide);
    return st;
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    struct {
        mn_weight_src s;
        uint8_t more[MORE];
    } wide;
    memset(&wide, GARBAGE, sizeof wide);
    wide.s = *src;
    wide.s.size = sizeof wide;
    wide.s.plane_stride = sizeof(mn_plane) + MORE;
    const uint64_t n = (uint64_t)src->n_parts * src->n_planes;
    void *planes = wide_spread(src->planes, n, sizeof(mn_plane), src->plane_stride);
    if (!planes)
        return MN_OUT_OF_MEMORY;
    wide.s.planes = planes;
    mn_status st = real->weights_put(w, q, &wide.s, ev, err);
    free(planes); // a plugin may keep pointers into the weights, never to the planes
    return st;
}

static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    void *wide = wide_spread(b, n, sizeof *b, stride);
    mn_status st = MN_OUT_OF_MEMORY;
    if (wide)
        st = real->context_bind(c, set, wide, n, sizeof *b + MORE, err);
    free(wide);
    return st;
}

static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *p, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
    struct {
        mn_memory_layout l;
        uint8_t more[MORE];
    } layout;
    memset(&layout, GARBAGE, sizeof layout);
    layout.l = *l;
    layout.l.size = sizeof layout;
    void *wide = wide_spread(p, n, sizeof *p, stride);
    mn_status st = MN_OUT_OF_MEMORY;
    if (wide)
        st = real->memory_copy(q, kv, &layout.l, wide, n, sizeof *p + MORE, ev, err);
    free(wide);
    return st;
}

const mn_backend *wide_backend(const mn_backend *be) {
    static mn_backend table;
    real = be;
    breach[0] = 0;
    compiled = 0;
    memset(&table, 0, sizeof table);
    memcpy(&table, be, be->size < sizeof table ? be->size : sizeof table);
    table.device_info = device_info;
    table.estimate = estimate;
    table.memory_layout = memory_layout;
    table.weights_open = weights_open;
    table.compile = compile;
    table.supports = supports;
    table.weights_put = weights_put;
    table.context_bind = context_bind;
    table.memory_copy = memory_copy;
    return &table;
}

const char *wide_breach(void) {
    return breach;
}

int wide_compiled(void) {
    return compiled;
}

int wide_do(wide_graph *w, op_case *c) {
    mn_graph *g = &c->g;
    w->was = *g;
    w->arrays[0] = wide_spread(g->nodes, g->n_nodes, sizeof(mn_node), g->node_stride);
    w->arrays[1] = wide_spread(g->tensors, g->n_tensors, sizeof(mn_tensor), g->tensor_stride);
    w->arrays[2] = wide_spread(g->symbols, g->n_symbols, sizeof(mn_symbol), g->symbol_stride);
    g->nodes = w->arrays[0];
    g->tensors = w->arrays[1];
    g->symbols = w->arrays[2];
    g->node_stride = sizeof(mn_node) + MORE;
    g->tensor_stride = sizeof(mn_tensor) + MORE;
    g->symbol_stride = sizeof(mn_symbol) + MORE;
    g->size += 64; // bytes of op_case that are behind the graph
    return g->nodes && g->tensors && g->symbols;
}

void wide_undo(wide_graph *w, op_case *c) {
    c->g = w->was;
    for (int i = 0; i < 3; i++)
        free(w->arrays[i]);
}
