/* wide.c -- see wide.h. The table of the host of a later minor is static: one at a time, in the
 * process of a rule. Its functions make longer copies of the arguments (wide_args.h), call the
 * plugin, look at the garbage, and hand back what the caller knows; the copies are freed before
 * they return, but for graphs, which live as long as what was made of them. */
#include "wide.h"
#include "wide_args.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static mn_backend real; /* a copy: a table may be freed with the plugin's self */
static int compiled;
static int always; /* wide_always was called */

/* ---- graphs that programs and sets keep ------------------------------------------------------ */
typedef struct kept_graph {
    struct kept_graph *next;
    const void *owner; /* a program or a set */
    void *graph;
} kept_graph;
static kept_graph *kept_graphs;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

/* The graph is freed where the call failed; one that cannot be noted stays. */
static void keep_graph(mn_status st, const void *owner, void *graph) {
    if (st) {
        free(graph);
        return;
    }
    kept_graph *k = graph ? malloc(sizeof *k) : NULL;
    if (!k)
        return;
    pthread_mutex_lock(&kept_lock);
    *k = (kept_graph){kept_graphs, owner, graph};
    kept_graphs = k;
    pthread_mutex_unlock(&kept_lock);
}

/* Before the owner is freed: afterwards another one may have its address. The graph's memory. */
static void *take_wide_graph(const void *owner) {
    void *graph = NULL;
    pthread_mutex_lock(&kept_lock);
    kept_graph **at = &kept_graphs;
    while (*at && (*at)->owner != owner)
        at = &(*at)->next;
    kept_graph *k = *at;
    if (k) {
        *at = k->next;
        graph = k->graph;
    }
    pthread_mutex_unlock(&kept_lock);
    free(k);
    return graph;
}

/* ---- discovery and negotiation --------------------------------------------------------------- */
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    wide_out w;
    wide_out e;
    void *to = wide_out_begin(&w, out, sizeof *out);
    const mn_status st = real.device_info(self, i, to, wide_error_begin(&e, err));
    wide_out_end(&w, out, sizeof *out, !st, "device_info");
    return wide_error_end(&e, err, st, "device_info");
}

static mn_status device_open(void *self, uint32_t i, const mn_open_params *p, mn_device **out,
                             mn_error *err) {
    wide_in in;
    wide_out e;
    p = wide_input(&in, p, sizeof *p);
    const mn_status st = real.device_open(self, i, p, out, wide_error_begin(&e, err));
    return wide_error_end(&e, err, st, "device_open");
}

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    wide_ask a;
    wide_out e;
    const uint32_t size = sizeof(mn_verdict);
    const uint32_t step = size + WIDE_MORE;
    const uint64_t n = c->node_hi - c->node_lo;
    char *wide = wide_spread(NULL, n, size, 0);
    const mn_compile *ask = wide_ask_begin(&a, c, always);
    mn_status st = MN_OUT_OF_MEMORY;
    if (ask && wide)
        st = wide_error_end(
            &e, err,
            real.supports(d, ask, (mn_verdict *)(void *)wide, step, wide_error_begin(&e, err)),
            "supports");
    for (uint64_t i = 0; i < n && !st; i++) {
        const char *verdict = wide + i * step;
        memcpy((char *)out + i * stride, verdict, size);
        wide_look("supports", verdict + size, WIDE_MORE);
    }
    free(wide);
    free(a.graph);
    wide_ask_end(&a);
    return st;
}

static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    wide_ask a;
    wide_out w;
    wide_out e;
    const mn_compile *ask = wide_ask_begin(&a, c, always);
    if (!ask)
        return MN_OUT_OF_MEMORY;
    const mn_status st =
        real.estimate(d, ask, wide_out_begin(&w, out, sizeof *out), wide_error_begin(&e, err));
    wide_out_end(&w, out, sizeof *out, !st, "estimate");
    free(a.graph);
    wide_ask_end(&a);
    return wide_error_end(&e, err, st, "estimate");
}

static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    wide_ask a;
    wide_out w;
    wide_out e;
    const mn_compile *ask = wide_ask_begin(&a, c, always);
    if (!ask)
        return MN_OUT_OF_MEMORY;
    const mn_status st = real.memory_layout(d, ask, group, wide_out_begin(&w, out, sizeof *out),
                                            wide_error_begin(&e, err));
    wide_out_end(&w, out, sizeof *out, !st, "memory_layout");
    free(a.graph);
    wide_ask_end(&a);
    return wide_error_end(&e, err, st, "memory_layout");
}

/* ---- memory and queues ----------------------------------------------------------------------- */
static mn_status alloc(mn_device *d, const mn_alloc_params *p, mn_buffer **out, mn_error *err) {
    wide_in in;
    wide_out e;
    p = wide_input(&in, p, sizeof *p);
    const mn_status st = real.alloc(d, p, out, wide_error_begin(&e, err));
    return wide_error_end(&e, err, st, "alloc");
}

static mn_status queue_create(mn_device *d, const mn_queue_params *p, mn_queue **out,
                              mn_error *err) {
    wide_in in;
    wide_out e;
    p = wide_input(&in, p, sizeof *p);
    const mn_status st = real.queue_create(d, p, out, wide_error_begin(&e, err));
    return wide_error_end(&e, err, st, "queue_create");
}

static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *p, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
    wide_in in;
    wide_out e;
    const uint32_t step = sizeof *p + WIDE_MORE;
    void *wide = wide_spread(p, n, sizeof *p, stride);
    if (!wide)
        return MN_OUT_OF_MEMORY;
    l = wide_input(&in, l, sizeof *l);
    const mn_status st = real.memory_copy(q, kv, l, wide, n, step, ev, wide_error_begin(&e, err));
    free(wide);
    return wide_error_end(&e, err, st, "memory_copy");
}

/* ---- weights --------------------------------------------------------------------------------- */
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    wide_ask a;
    wide_out e;
    const mn_compile *ask = wide_ask_begin(&a, c, always);
    if (!ask)
        return MN_OUT_OF_MEMORY;
    const mn_status st = real.weights_open(d, ask, out, wide_error_begin(&e, err));
    keep_graph(st, *out, a.graph);
    wide_ask_end(&a);
    return wide_error_end(&e, err, st, "weights_open");
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    wide_in in;
    wide_out e;
    if (src->size != sizeof *src)
        return real.weights_put(w, q, src, ev, err);
    const uint64_t n = (uint64_t)src->n_parts * src->n_planes;
    void *planes = wide_spread(src->planes, n, sizeof(mn_plane), src->plane_stride);
    if (!planes)
        return MN_OUT_OF_MEMORY;
    src = wide_input(&in, src, sizeof *src);
    in.src.planes = planes;
    in.src.plane_stride = sizeof(mn_plane) + WIDE_MORE;
    const mn_status st = real.weights_put(w, q, src, ev, wide_error_begin(&e, err));
    free(planes); // a plugin may keep pointers into the weights, never to the planes
    return wide_error_end(&e, err, st, "weights_put");
}

static void weights_free(mn_weights *w) {
    void *graph = take_wide_graph(w);
    real.weights_free(w);
    free(graph);
}

/* ---- programs -------------------------------------------------------------------------------- */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    wide_ask a;
    wide_out e;
    const mn_compile *ask = wide_ask_begin(&a, c, always);
    if (!ask)
        return MN_OUT_OF_MEMORY;
    compiled = 1;
    const mn_status st = real.compile(d, ask, out, wide_error_begin(&e, err));
    keep_graph(st, *out, a.graph);
    wide_ask_end(&a);
    return wide_error_end(&e, err, st, "compile");
}

static void program_free(mn_program *p) {
    void *graph = take_wide_graph(p);
    real.program_free(p);
    free(graph);
}

static mn_status context_create(mn_program *program, const mn_context_params *p, mn_context **out,
                                mn_error *err) {
    wide_in in;
    wide_out e;
    p = wide_input(&in, p, sizeof *p);
    const mn_status st = real.context_create(program, p, out, wide_error_begin(&e, err));
    return wide_error_end(&e, err, st, "context_create");
}

static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    wide_out e;
    void *wide = wide_spread(b, n, sizeof *b, stride);
    mn_status st = MN_OUT_OF_MEMORY;
    if (wide)
        st = wide_error_end(
            &e, err,
            real.context_bind(c, set, wide, n, sizeof *b + WIDE_MORE, wide_error_begin(&e, err)),
            "context_bind");
    free(wide);
    return st;
}

static mn_status context_prepare(mn_context *c, const mn_step *s, mn_error *err) {
    wide_in in;
    wide_out e;
    s = wide_input(&in, s, sizeof *s);
    const mn_status st = real.context_prepare(c, s, wide_error_begin(&e, err));
    return wide_error_end(&e, err, st, "context_prepare");
}

/* words: [n], of a step that is this minor's. */
static mn_status spread_words(const mn_word **words, uint32_t n, uint32_t stride, void **block) {
    *block = NULL;
    if (!n)
        return MN_OK;
    *block = wide_spread(*words, n, sizeof **words, stride);
    if (!*block)
        return MN_OUT_OF_MEMORY;
    *words = *block;
    return MN_OK;
}

static mn_status execute(mn_context *c, const mn_step *s, mn_event **ev, mn_error *err) {
    wide_in in;
    wide_out e;
    void *waits = NULL;
    void *signals = NULL;
    mn_status st = MN_OK;
    s = wide_input(&in, s, sizeof *s);
    if (s == &in.step) {
        st = spread_words(&in.step.waits, s->n_waits, s->word_stride, &waits);
        if (!st)
            st = spread_words(&in.step.signals, s->n_signals, s->word_stride, &signals);
        in.step.word_stride = sizeof(mn_word) + WIDE_MORE;
    }
    if (!st)
        st = wide_error_end(&e, err, real.execute(c, s, ev, wide_error_begin(&e, err)), "execute");
    free(waits);
    free(signals);
    return st;
}

/* ---- the table ------------------------------------------------------------------------------- */
#define WIDEN(name)                                                                                \
    if (table.name)                                                                                \
        table.name = name;

static const mn_backend *widened(const mn_backend *be) {
    static mn_backend table;
    memset(&real, 0, sizeof real);
    memcpy(&real, be, be->size < sizeof real ? be->size : sizeof real);
    table = real;
    WIDEN(device_info)
    WIDEN(device_open)
    WIDEN(supports)
    WIDEN(estimate)
    WIDEN(alloc)
    WIDEN(queue_create)
    WIDEN(weights_open)
    WIDEN(weights_put)
    WIDEN(weights_free)
    WIDEN(memory_layout)
    WIDEN(memory_copy)
    WIDEN(compile)
    WIDEN(program_free)
    WIDEN(context_create)
    WIDEN(context_bind)
    WIDEN(context_prepare)
    WIDEN(execute)
    return &table;
}

const mn_backend *wide_backend(const mn_backend *be) {
    wide_found[0] = 0;
    compiled = 0;
    return always ? be : widened(be); /* always: all of them are wide already */
}

const mn_backend *wide_always(const mn_backend *be) {
    always = 1;
    return be ? widened(be) : NULL;
}

const char *wide_breach(void) {
    return wide_found;
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
    g->node_stride = sizeof(mn_node) + WIDE_MORE;
    g->tensor_stride = sizeof(mn_tensor) + WIDE_MORE;
    g->symbol_stride = sizeof(mn_symbol) + WIDE_MORE;
    g->size += 64; // bytes of op_case that are behind the graph
    return g->nodes && g->tensors && g->symbols;
}

void wide_undo(wide_graph *w, op_case *c) {
    c->g = w->was;
    for (int i = 0; i < 3; i++)
        free(w->arrays[i]);
}
