/* wide.c -- see wide.h. */
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MORE 24 /* bytes that the plugin does not know, behind each element */
#define GARBAGE 0xee

static const mn_backend *real;
static char breach[160];
static int compiled;

/* n elements of `size` bytes, `stride` apart, become ones with MORE bytes of garbage between
 * them. */
static void *spread(const void *from, uint64_t n, uint64_t size, uint64_t stride) {
    char *to = malloc(n * (size + MORE) + 1);
    if (to)
        memset(to, GARBAGE, n * (size + MORE) + 1);
    for (uint64_t i = 0; to && i < n; i++)
        memcpy(to + i * (size + MORE), (const char *)from + i * stride, size);
    return to;
}

static void look(const char *what, const void *at, uint64_t n) {
    for (uint64_t i = 0; i < n && !breach[0]; i++)
        if (((const uint8_t *)at)[i] != GARBAGE)
            snprintf(breach, sizeof breach,
                     "%s: bytes behind those that the plugin knows were written", what);
}

/* An output struct with room behind it: calls fn on it, checks the size that it states and what is
 * behind. */
typedef struct {
    union {
        uint32_t size;
        mn_device_info info;
        mn_estimate estimate;
        mn_kv_layout kv;
    } u;
    uint8_t more[64];
} wide_out;
static void out_begin(wide_out *w, uint32_t known) {
    memset(w, GARBAGE, sizeof *w);
    w->u.size = known + 64;
}
static void out_end(wide_out *w, uint32_t known, void *out, const char *what) {
    uint32_t size = w->u.size;
    if (size > known + 64)
        snprintf(breach, sizeof breach,
                 "%s: found size %u, expected at most the %u there was room for", what, size,
                 known + 64);
    if (size <= known + 64)
        look(what, (char *)w + size, known + 64 - size);
    memcpy(out, w, size < known ? size : known);
    if (size > known)
        memcpy(out, &known, sizeof known);
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    wide_out w;
    out_begin(&w, sizeof *out);
    mn_status s = real->device_info(self, i, &w.u.info, err);
    if (!s)
        out_end(&w, sizeof *out, out, "device_info");
    return s;
}

/* mn_compile with fields behind it. */
typedef struct {
    mn_compile c;
    uint8_t more[MORE];
} wide_compile;
static wide_compile widen(const mn_compile *c) {
    wide_compile w;
    memset(&w, GARBAGE, sizeof w);
    w.c = *c;
    w.c.size = sizeof w;
    return w;
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    wide_compile ask = widen(c);
    wide_out w;
    out_begin(&w, sizeof *out);
    mn_status s = real->estimate(d, &ask.c, &w.u.estimate, err);
    if (!s)
        out_end(&w, sizeof *out, out, "estimate");
    return s;
}

static mn_status kv_layout(mn_device *d, const mn_compile *c, uint32_t group, mn_kv_layout *out,
                           mn_error *err) {
    wide_compile ask = widen(c);
    wide_out w;
    out_begin(&w, sizeof *out);
    mn_status s = real->kv_layout(d, &ask.c, group, &w.u.kv, err);
    if (!s)
        out_end(&w, sizeof *out, out, "kv_layout");
    return s;
}

static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    wide_compile ask = widen(c);
    return real->weights_open(d, &ask.c, out, err);
}
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    wide_compile ask = widen(c);
    compiled = 1;
    return real->compile(d, &ask.c, out, err);
}

static mn_status supports(mn_device *d, const mn_graph *g, const int64_t *at, mn_verdict *out,
                          uint32_t stride, mn_error *err) {
    uint32_t n = g->n_nodes, step = sizeof(mn_verdict) + MORE;
    char *wide = malloc((uint64_t)n * step + 1);
    if (!wide)
        return MN_OUT_OF_MEMORY;
    memset(wide, GARBAGE, (uint64_t)n * step + 1);
    mn_status s = real->supports(d, g, at, (mn_verdict *)(void *)wide, step, err);
    for (uint32_t i = 0; i < n && !s; i++) {
        memcpy((char *)out + (uint64_t)i * stride, wide + (uint64_t)i * step, sizeof(mn_verdict));
        look("supports", wide + (uint64_t)i * step + sizeof(mn_verdict), MORE);
    }
    free(wide);
    return s;
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
    void *planes = spread(src->planes, (uint64_t)src->n_parts * src->n_planes, sizeof(mn_plane),
                          src->plane_stride);
    wide.s.planes = planes;
    mn_status s = planes ? real->weights_put(w, q, &wide.s, ev, err) : MN_OUT_OF_MEMORY;
    free(planes); // only the weights themselves stay
    return s;
}

static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    void *wide = spread(b, n, sizeof *b, stride);
    mn_status s = MN_OUT_OF_MEMORY;
    if (wide)
        s = real->context_bind(c, set, wide, n, sizeof *b + MORE, err);
    free(wide);
    return s;
}

static mn_status kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l, const mn_page_copy *p,
                         uint32_t n, uint32_t stride, mn_event **ev, mn_error *err) {
    struct {
        mn_kv_layout l;
        uint8_t more[MORE];
    } layout;
    memset(&layout, GARBAGE, sizeof layout);
    layout.l = *l;
    layout.l.size = sizeof layout;
    void *wide = spread(p, n, sizeof *p, stride);
    mn_status s = MN_OUT_OF_MEMORY;
    if (wide)
        s = real->kv_copy(q, kv, &layout.l, wide, n, sizeof *p + MORE, ev, err);
    free(wide);
    return s;
}

const mn_backend *wide_backend(const mn_backend *be) {
    static mn_backend table;
    real = be, breach[0] = 0, compiled = 0;
    memset(&table, 0, sizeof table);
    memcpy(&table, be, be->size < sizeof table ? be->size : sizeof table);
    table.device_info = device_info, table.estimate = estimate, table.kv_layout = kv_layout,
    table.weights_open = weights_open;
    table.compile = compile, table.supports = supports, table.weights_put = weights_put,
    table.context_bind = context_bind;
    table.kv_copy = kv_copy;
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
    w->arrays[0] = spread(g->nodes, g->n_nodes, sizeof(mn_node), g->node_stride);
    w->arrays[1] = spread(g->tensors, g->n_tensors, sizeof(mn_tensor), g->tensor_stride);
    w->arrays[2] = spread(g->symbols, g->n_symbols, sizeof(mn_symbol), g->symbol_stride);
    g->nodes = w->arrays[0], g->tensors = w->arrays[1], g->symbols = w->arrays[2];
    g->node_stride = sizeof(mn_node) + MORE, g->tensor_stride = sizeof(mn_tensor) + MORE,
    g->symbol_stride = sizeof(mn_symbol) + MORE;
    g->size += 64; // what is behind it in op_case
    return g->nodes && g->tensors && g->symbols;
}

void wide_undo(wide_graph *w, op_case *c) {
    c->g = w->was;
    for (int i = 0; i < 3; i++)
        free(w->arrays[i]);
}
