/* bad_backend.c -- the reference plugin with one rule of `minerva plugins check` broken that is
 * about devices, graphs and calls: BAD_GROUP_NAME says which; what comes behind the rule's name
 * tells ways to break it apart. bad_numbers.c, bad_process.c, bad_memory.c, bad_late.c, bad_deep.c
 * and bad_version.c have the other rules. */
#include "stub.h"
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#if defined(BAD_OPEN_QUERY) /* the note promises a loader, too */
MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND | MN_KIND_LOADER, "");
#else
MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");
#endif

#if defined(BAD_HOST_NO_MEMORY)
static const mn_host *the_host;
static mn_status queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    char *p = the_host->alloc(the_host->self, 64, 64);
    *p = 1; // without a look
    the_host->release(the_host->self, p);
    return stub_inner->queue_create(d, params, out, err);
}
#elif defined(BAD_DEVICE_LIST)
/* An index past the last one begins anew, as where a list is repeated for a test. */
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    (void)i;
    return stub_inner->device_info(self, 0, out, err);
}
#elif defined(BAD_DEVICE_LIST_OPEN)
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    (void)i;
    return stub_inner->device_open(self, 0, params, out, err);
}
#elif defined(BAD_GRAPH_STRIDES)
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    memset(v, 0, (uint64_t)(c->node_hi - c->node_lo) * stride); // what is between the verdicts too
    return stub_inner->supports(d, c, v, stride, err);
}
#elif defined(BAD_GRAPH_SMALL_OUTPUTS)
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    memset(out, 0, sizeof *out); // whatever its size
    out->size = sizeof *out;
    return stub_inner->device_info(self, i, out, err);
}
#elif defined(BAD_GRAPH_UNKNOWN_OP)
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    mn_status s = stub_inner->supports(d, c, v, stride, err);
    for (uint32_t i = 0; i < c->node_hi - c->node_lo; i++)
        ((mn_verdict *)(void *)((char *)v + (uint64_t)i * stride))->verdict = MN_VERDICT_NATIVE;
    return s;
}
#elif defined(BAD_GRAPH_UNKNOWN_OP_STATUS) || defined(BAD_GRAPH_NEWER_CONTRACT_STATUS) ||          \
    defined(BAD_GRAPH_UNKNOWN_DTYPE_STATUS)
/* What it does not know is the caller's fault. */
#define BAD_STATUS
static mn_status blame(mn_status s) {
    return s == MN_UNSUPPORTED ? MN_INVALID : s;
}
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    return blame(stub_inner->estimate(d, c, out, err));
}
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    return blame(stub_inner->weights_open(d, c, out, err));
}
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    return blame(stub_inner->compile(d, c, out, err));
}
#elif defined(BAD_GRAPH_QUESTIONS)
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    if (c->node_lo == c->node_hi)
        return stub_fail(err, MN_INVALID, ~0u, "nothing to compile");
    return stub_inner->compile(d, c, out, err);
}
#elif defined(BAD_GRAPH_MORE_ATTRIBUTES) || defined(BAD_GRAPH_MORE_OPERANDS)
/* What is behind the last that it knows is not looked at. */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    const mn_status s = stub_inner->supports(d, c, v, stride, err);
    for (uint32_t i = c->node_lo; !s && i < c->node_hi; i++) {
        const mn_node *n = &c->graph->nodes[i];
        mn_verdict *at = (void *)((char *)v + (uint64_t)(i - c->node_lo) * stride);
#if defined(BAD_GRAPH_MORE_ATTRIBUTES)
        if (n->n_attr && c->graph->attrs[n->attr_off + n->n_attr - 1] == 1)
#else
        if (n->n_in > 12)
#endif
            at->verdict = MN_VERDICT_NATIVE;
    }
    return s;
}
#elif defined(BAD_GRAPH_QUESTIONS_CLASS)
/* Classes are asked of estimate alone. */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    mn_compile own = *c;
    own.precision = MN_PRECISION_EXACT;
    return stub_inner->supports(d, &own, v, stride, err);
}
#elif defined(BAD_GRAPH_SEGMENTS)
/* Every segment begins at node 0. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_compile own = *c;
    own.node_lo = 0;
    own.node_hi = c->node_hi - c->node_lo;
    return stub_inner->compile(d, &own, out, err);
}
#elif defined(BAD_GRAPH_SEGMENTS_NODE)
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    const mn_status s = stub_inner->compile(d, c, out, err);
    if (s && err)
        err->node = ~0u;
    return s;
}
#elif defined(BAD_GRAPH_SEGMENTS_PLACE) || defined(BAD_GRAPH_SEGMENTS_VERDICTS)
/* The verdict of a node is at its number; or verdicts are one behind the other. */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    mn_verdict own[64];
    const mn_status s = stub_inner->supports(d, c, own, sizeof *own, err);
    for (uint32_t i = c->node_lo; !s && i < c->node_hi; i++) {
#if defined(BAD_GRAPH_SEGMENTS_PLACE)
        memcpy((char *)v + (uint64_t)i * stride, &own[i - c->node_lo], sizeof *own);
#else
        (void)stride;
        v[i - c->node_lo] = own[i - c->node_lo];
#endif
    }
    return s;
}
#elif defined(BAD_GRAPH_SEGMENTS_NODES) || defined(BAD_GRAPH_SEGMENTS_TENSORS) ||                  \
    defined(BAD_GRAPH_SEGMENTS_SYMBOLS)
/* Elements of one of the graph's arrays are one behind the other. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    static mn_graph graphs[256]; /* programs refer to them */
    static uint32_t n_graphs;
    mn_graph *g = &graphs[n_graphs++ % 256];
    mn_compile own = *c;
    own.graph = g;
    *g = *c->graph;
#if defined(BAD_GRAPH_SEGMENTS_NODES)
    g->node_stride = sizeof(mn_node);
#elif defined(BAD_GRAPH_SEGMENTS_TENSORS)
    g->tensor_stride = sizeof(mn_tensor);
#else
    g->symbol_stride = sizeof(mn_symbol);
#endif
    return stub_inner->compile(d, &own, out, err);
}
#elif defined(BAD_GRAPH_SEGMENTS_INTERIOR)
/* What no graph has as an input or output is the plugin's own, bound or not. */
static const mn_graph *graph;
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    graph = c->graph;
    return stub_inner->compile(d, c, out, err);
}
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_binding own[64];
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < n; i++) {
        const mn_binding *x = (const void *)((const char *)b + (uint64_t)i * stride);
        if (graph->tensors[x->tensor].role != MN_ROLE_INTERIOR)
            own[n_own++] = *x;
    }
    return stub_inner->context_bind(c, set, own, n_own, sizeof *own, err);
}
#elif defined(BAD_CALL_BINDINGS)
/* A tensor that is there twice: the last one counts. */
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_binding once[64];
    uint32_t n_once = 0;
    for (uint32_t i = 0; i < n; i++) {
        const mn_binding *x = (const void *)((const char *)b + (uint64_t)i * stride);
        uint32_t at = 0;
        while (at < n_once && once[at].tensor != x->tensor)
            at++;
        n_once += at == n_once;
        memcpy(&once[at], x, sizeof *once);
    }
    return stub_inner->context_bind(c, set, once, n_once, sizeof *once, err);
}
#elif defined(BAD_CALL_BINDINGS_WEIGHT)
/* Bindings of what no step reads are passed over. */
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_error e = {.size = sizeof e};
    const mn_status s = stub_inner->context_bind(c, set, b, n, stride, &e);
    if (s && n && strstr(e.msg, "weight"))
        return stub_inner->context_bind(c, set, b, n - 1, stride, err);
    if (err && s)
        *err = e;
    return s;
}
#elif defined(BAD_CALL_SHARED_WEIGHTS) || defined(BAD_CALL_SHARED_WEIGHTS_DIMS)
/* A weight of a shared set is found at its own index alone; or by its name, whatever its dims. */
static const mn_graph *opened;
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    opened = c->graph;
    return stub_inner->weights_open(d, c, out, err);
}
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    static mn_graph graph;
    static mn_tensor tensors[64];
    mn_compile own = *c;
    graph = *c->graph;
    own.graph = &graph;
    graph.tensors = tensors;
    graph.tensor_stride = sizeof *tensors;
    memcpy(tensors, c->graph->tensors, graph.n_tensors * sizeof *tensors);
    for (uint32_t i = 0; i < graph.n_tensors && c->graph != opened; i++) {
        if (tensors[i].role != MN_ROLE_WEIGHT)
            continue;
#if defined(BAD_CALL_SHARED_WEIGHTS)
        const mn_str name = opened->tensors[i].name;
        if (tensors[i].name.len != name.len || memcmp(tensors[i].name.ptr, name.ptr, name.len))
            return stub_fail(err, MN_UNSUPPORTED, ~0u, "another weight is at its index");
#else
        memcpy(tensors[i].dim, opened->tensors[i].dim, sizeof tensors[i].dim);
#endif
    }
    return stub_inner->compile(d, &own, out, err);
}
#elif defined(BAD_CALL_SYMBOLS)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    const int64_t one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t *values = step->values;
    const mn_step own = mn_usual_step(step->set, values[0] < 1 || values[0] > 1000 ? one : values);
    return stub_inner->execute(c, &own, ev, err);
}
#elif defined(BAD_CALL_SYMBOLS_MAX)
/* Compiles for the maximum of the graph. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    static int64_t most[64]; /* read during the call */
    mn_compile own = *c;
    for (uint32_t i = 0; i < c->graph->n_symbols; i++)
        most[i] = c->graph->symbols[i].max;
    own.symbol_max = most;
    return stub_inner->compile(d, &own, out, err);
}
#elif defined(BAD_CALL_SYMBOLS_BIND)
/* Bindings have to be as large as the maximum of the graph needs. */
static const mn_graph *graph;
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    graph = c->graph;
    return stub_inner->compile(d, c, out, err);
}
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const mn_binding *x = (const void *)((const char *)b + (uint64_t)i * stride);
        if (x->tensor >= graph->n_tensors)
            break;
        const int64_t dim = graph->tensors[x->tensor].dim[0];
        if (dim < 0 && x->bytes < (uint64_t)graph->symbols[~dim].max * 4)
            return stub_fail(err, MN_INVALID, ~0u, "a binding is too small");
    }
    return stub_inner->context_bind(c, set, b, n, stride, err);
}
#elif defined(BAD_CALL_SETS)
/* Two sets, whatever was asked for. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_compile own = *c;
    own.n_sets = 2;
    return stub_inner->compile(d, &own, out, err);
}
#elif defined(BAD_CALL_SETS_BIND)
/* The bindings of set 0 count for every set. */
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    mn_status s = stub_inner->context_bind(c, set, b, n, stride, err);
    if (!s && set)
        s = stub_inner->context_bind(c, 0, b, n, stride, err);
    return s;
}
#elif defined(BAD_CALL_SETS_EXECUTE)
static uint32_t n_sets;
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    n_sets = c->n_sets;
    return stub_inner->compile(d, c, out, err);
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_step own = *step;
    if (own.set < n_sets)
        own.set = 0;
    return stub_inner->execute(c, &own, ev, err);
}
#elif defined(BAD_CALL_SETS_ONE)
/* Room for one set: a rule of its own finds it, not all of them. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    if (c->n_sets > 1)
        return stub_fail(err, MN_UNSUPPORTED, ~0u, "more than one set of bindings");
    return stub_inner->compile(d, c, out, err);
}
#elif defined(BAD_CALL_SETS_ZERO)
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    if (!c->n_sets)
        return stub_fail(err, MN_INVALID, ~0u, "no sets of bindings");
    return stub_inner->compile(d, c, out, err);
}
#elif defined(BAD_CALL_PARAMS)
/* Reads what a short step lacks. */
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_step own = *step;
    own.size = sizeof own;
    return stub_inner->execute(c, &own, ev, err);
}
#elif defined(BAD_CALL_PARAMS_FLAGS)
/* Drops what it does not know. */
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    const mn_step own = mn_usual_step(step->set, step->values);
    return stub_inner->execute(c, &own, ev, err);
}
#elif defined(BAD_CALL_PARAMS_WORDS)
/* Nobody will ever see the word. */
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_step own = *step;
    if (own.size >= sizeof own)
        own.n_signals = 0;
    return stub_inner->execute(c, &own, ev, err);
}
#elif defined(BAD_CALL_PARAMS_UID)
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    const mn_open_params own = {.size = offsetof(mn_open_params, uid), .flags = params->flags};
    return stub_inner->device_open(self, i, &own, out, err);
}
#elif defined(BAD_CALL_PARAMS_ALLOC)
static mn_status buffer_alloc(mn_device *d, const mn_alloc_params *a, mn_buffer **out,
                              mn_error *err) {
    mn_alloc_params own = *a;
    own.flags &= MN_ALLOC_UNZEROED;
    return stub_inner->alloc(d, &own, out, err);
}
#elif defined(BAD_CALL_TRANSFERS)
static mn_status write_any(mn_queue *q, mn_buffer *b, uint64_t off, const void *src, uint64_t n,
                           mn_error *err) {
    mn_status s = stub_inner->write(q, b, off, src, n, err);
    return s == MN_INVALID ? MN_OK : s;
}
#elif defined(BAD_CALL_ABORT)
static mn_status abort_queue(mn_queue *q) {
    (void)q;
    return raise(SIGSEGV) ? MN_INVALID : MN_OK;
}
#elif defined(BAD_CALL_ABORT_FLAG)
/* It has an abort. */
static mn_status abort_queue(mn_queue *q) {
    (void)q;
    return MN_OK;
}
#elif defined(BAD_CALL_EVENTS) || defined(BAD_CALL_EVENTS_PUT)
/* The work is done, so there is nothing to say about events. */
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    (void)ev;
    return stub_inner->execute(c, step, NULL, err);
}
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    (void)ev;
    return stub_inner->weights_put(w, q, src, NULL, err);
}
#elif defined(BAD_CALL_EVENTS_NULL)
static mn_status read_any(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to,
                          uint64_t to_off, uint64_t n, mn_event **ev, mn_error *err) {
    const mn_status s = stub_inner->read(q, b, off, to, to_off, n, ev, err);
    if (!s)
        *ev = NULL; /* whether there is one or not */
    return s;
}
#elif defined(BAD_CALL_SOURCES) || defined(BAD_CALL_SOURCES_PARTS) ||                              \
    defined(BAD_CALL_SOURCES_PLANES)
/* Sources of f32 in one plane: dense whatever their strides; the first part counts for all; planes
 * are one behind the other. */
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    static mn_plane planes[64];
    mn_weight_src own = *src;
    own.planes = planes;
    own.plane_stride = sizeof *planes;
    for (uint32_t i = 0; i < src->n_parts * src->n_planes && i < 64; i++) {
        const char *at = (const char *)src->planes + (size_t)i * src->plane_stride;
#if defined(BAD_CALL_SOURCES_PLANES)
        at = (const char *)src->planes + (size_t)i * sizeof *planes;
#endif
        memcpy(&planes[i], at, sizeof *planes);
#if defined(BAD_CALL_SOURCES)
        if (src->dtype.id == MN_F32 && planes[i].dim[1] && !planes[i].dim[2]) {
            planes[i].stride[1] = 4;
            planes[i].stride[0] = 4 * planes[i].dim[1];
        }
#elif defined(BAD_CALL_SOURCES_PARTS)
        if (i && src->n_planes == 1)
            planes[i].ptr = planes[0].ptr;
#endif
    }
    return stub_inner->weights_put(w, q, &own, ev, err);
}
#elif defined(BAD_CALL_WEIGHTS_TWICE) || defined(BAD_CALL_WEIGHTS_TYPE) ||                         \
    defined(BAD_CALL_WEIGHTS_ROWS)
/* Passes over a second source of a tensor; takes one of another type, or of fewer or more rows. */
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    const mn_status s = stub_inner->weights_put(w, q, src, ev, err);
#if defined(BAD_CALL_WEIGHTS_TWICE)
    static const mn_weights *set; /* the last that was put */
    static uint32_t tensor;
    const int passes = set == w && tensor == src->tensor;
    if (!s) {
        set = w;
        tensor = src->tensor;
    }
#elif defined(BAD_CALL_WEIGHTS_TYPE)
    const int passes = src->dtype.id == MN_F16 || src->planes->dtype == MN_F16;
#else
    const int passes = src->n_parts == 2 || src->planes->dim[0] % 2;
#endif
    if (s == MN_INVALID && passes && ev)
        *ev = NULL;
    return passes && s == MN_INVALID ? MN_OK : s;
}
#elif defined(BAD_GRAPH_SEGMENTS_UNREAD)
/* A weight that the segment does not read is refused. */
static const mn_compile *asked;
static mn_compile last;
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    last = *c;
    asked = &last;
    return stub_inner->weights_open(d, c, out, err);
}
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    const mn_graph *g = asked->graph;
    for (uint32_t i = asked->node_lo; i < asked->node_hi; i++) {
        const mn_node *n = (const void *)((const char *)g->nodes + (size_t)i * g->node_stride);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (g->operands[n->in_off + k] == (int32_t)src->tensor)
                return stub_inner->weights_put(w, q, src, ev, err);
    }
    return stub_fail(err, MN_INVALID, ~0u, "no node reads this weight");
}
#elif defined(BAD_CALL_PARALLEL_PUT)
/* One description for all threads: who comes second puts the other's weight. */
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    static mn_weight_src shared;
    shared = *src;
    usleep(2000); // as a copy would take
    const mn_weight_src mine = shared;
    return stub_inner->weights_put(w, q, &mine, ev, err);
}
static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    mn_status s = stub_inner->device_info(self, i, out, err);
    out->flags |= MN_DEVICE_PARALLEL_PUT;
    return s;
}
#elif defined(BAD_TYPES_LIST) || defined(BAD_TYPES_TO_F32) || defined(BAD_TYPES_TO_F32_ZEROS) ||   \
    defined(BAD_TYPES_TO_F32_END) || defined(BAD_TYPES_TO_F32_ELEMENT) ||                          \
    defined(BAD_TYPES_TO_F32_STRIDE)
#define BAD_TYPES
/* x = nibble - 8, and a fault. */
static mn_status to_f32(void *self, const mn_plane *planes, uint32_t n_planes, uint64_t block,
                        uint64_t n_blocks, float *out) {
    (void)self, (void)n_planes;
    for (uint64_t i = 0; i < n_blocks * 32; i++) {
        const uint64_t at = block + i / 32;
        uint64_t step = (uint64_t)planes->stride[0];
#if defined(BAD_TYPES_TO_F32_STRIDE)
        step = 16;
#endif
        const uint8_t *bytes = (const uint8_t *)planes->ptr + at * step;
        out[i] = (float)(bytes[i % 32 / 2] >> i % 2 * 4 & 15) - 8;
#if defined(BAD_TYPES_TO_F32)
        out[i] = (float)(block + i % 32); /* of each block its first place in the call */
#elif defined(BAD_TYPES_TO_F32_ZEROS)
        out[i] = 0;
#elif defined(BAD_TYPES_TO_F32_END)
        if (32 * (int64_t)(at + 1) == planes->dim[0]) /* the last block of a row */
            out[i] = 0;
#elif defined(BAD_TYPES_TO_F32_ELEMENT)
        if (i % 32 == 31)
            out[i] = out[i - 1] * 0 + 1;
#endif
    }
    return MN_OK;
}
static mn_status type_at(void *self, uint32_t i, mn_type *out, mn_error *err) {
    static uint32_t calls;
    mn_type t = {.size = sizeof t,
                 .name = {"stub.q4", 7},
                 .dtype = {MN_VENDOR | 1u, 32, 16, 1},
                 .to_f32 = to_f32};
    (void)self, (void)err;
    if (i)
        return MN_END;
#if defined(BAD_TYPES_LIST)
    t.dtype.id += calls++;
#else
    (void)calls;
#endif
    memcpy(out, &t, out->size < sizeof t ? out->size : sizeof t);
    return MN_OK;
}
static const mn_types own_types = {sizeof own_types, 0, type_at};
static const void *types_query(void *self, const char *id) {
    return strcmp(id, MN_TYPES_ID) ? stub_query(self, id) : &own_types;
}
#elif defined(BAD_GRAPH_SLOT_ROWS)
/* EMBED and SAMPLE with rows of sizeof: dim[1] of their tensors is not looked at. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    mn_graph *g = (mn_graph *)(uintptr_t)c->graph;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        mn_tensor *t = (mn_tensor *)(uintptr_t)((const char *)g->tensors + i * g->tensor_stride);
        if (t->name.len == 5 && !memcmp(t->name.ptr, "slots", 5))
            t->dim[1] = sizeof(mn_slot) / 4;
    }
    return stub_inner->compile(d, c, out, err);
}
#elif defined(BAD_PROFILE_UNITS) || defined(BAD_PROFILE_SAME) || defined(BAD_PROFILE_ROOM)
static const mn_profile *inner_profile;
static mn_status profile(mn_context *c, const mn_step *step, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
#if defined(BAD_PROFILE_UNITS)
    const uint32_t had = *n;
    mn_status s = inner_profile->execute(c, step, units, stride, n, err);
    if (!s && units && had)
        units[0].n_nodes = 0; // a node that nobody counts
    return s;
#elif defined(BAD_PROFILE_SAME)
    const int64_t least[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const mn_step own = mn_usual_step(step->set, units ? least : step->values);
    return inner_profile->execute(c, &own, units, stride, n, err);
#else
    mn_profile_unit all[64];
    uint32_t room = *n, most = 64;
    if (!units)
        return inner_profile->execute(c, step, NULL, 0, n, err);
    mn_status s = inner_profile->execute(c, step, all, sizeof *all, &most, err);
    for (uint32_t i = 0; !s && i < most && room; i++) // whatever the room
        memcpy((char *)units + (size_t)i * stride, &all[i],
               stride < sizeof *all ? stride : sizeof *all);
    *n = most;
    return s;
#endif
}
static const mn_profile bad_profile = {.size = sizeof bad_profile, .execute = profile};
#elif defined(BAD_EXPERTS_SAME) || defined(BAD_EXPERTS_ROOM) || defined(BAD_EXPERTS_ROOM_PART) ||  \
    defined(BAD_EXPERTS_WRONG)
#define BAD_EXPERTS
static mn_experts bad_experts; /* the reference's, but for what follows */
static bool dropped;
/* One by one: what is there comes again, or those before the one that finds no room stay. What was
 * dropped makes no room. */
static mn_status bring(mn_weights *w, mn_queue *q, const mn_weight_src *src, const int32_t *experts,
                       uint32_t n, mn_event **ev, mn_error *err) {
    mn_status st = MN_OK;
#if defined(BAD_EXPERTS_SAME) || defined(BAD_EXPERTS_ROOM_PART)
    for (uint32_t i = 0; i < n && !st; i++) {
#if defined(BAD_EXPERTS_SAME)
        stub_inner_experts->drop(w, q, src->tensor, experts + i, 1, NULL);
#endif
        st = stub_inner_experts->bring(w, q, src, experts + i, 1, ev, err);
    }
#else
    st = stub_inner_experts->bring(w, q, src, experts, n, ev, err);
#endif
#if defined(BAD_EXPERTS_ROOM)
    if (dropped)
        st = stub_fail(err, MN_OUT_OF_MEMORY, ~0u, "no room");
#endif
    return st;
}
/* Nobody looks whether it was there. */
static mn_status drop(mn_weights *w, mn_queue *q, uint32_t tensor, const int32_t *experts,
                      uint32_t n, mn_error *err) {
    const mn_status st = stub_inner_experts->drop(w, q, tensor, experts, n, err);
    dropped = dropped || !st;
#if defined(BAD_EXPERTS_WRONG)
    return MN_OK;
#else
    return st;
#endif
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
#if defined(BAD_HOST_TRUNCATED)
    if (((const volatile mn_host *)host)->self == (void *)err)
        return NULL; // reads what a short host lacks
#elif defined(BAD_HOST_ERROR_SIZE)
    if (err && host->abi >> 16 != MN_ABI_VERSION >> 16)
        memset(err, 0, sizeof *err);
#elif defined(BAD_HOST_TWO)
    static const mn_plugin *only;
    if (only)
        return only;
#endif
    const mn_plugin *p = stub_enter(host, err, "bad");
#if defined(BAD_HOST_NO_MEMORY)
    the_host = host, stub_table.queue_create = queue_create;
#elif defined(BAD_GRAPH_STRIDES) || defined(BAD_GRAPH_UNKNOWN_OP) ||                               \
    defined(BAD_GRAPH_SEGMENTS_PLACE) || defined(BAD_GRAPH_SEGMENTS_VERDICTS) ||                   \
    defined(BAD_GRAPH_MORE_ATTRIBUTES) || defined(BAD_GRAPH_MORE_OPERANDS) ||                      \
    defined(BAD_GRAPH_QUESTIONS_CLASS)
    stub_table.supports = supports;
#elif defined(BAD_GRAPH_SEGMENTS_INTERIOR)
    stub_table.compile = compile, stub_table.context_bind = context_bind;
#elif defined(BAD_GRAPH_SMALL_OUTPUTS) || defined(BAD_DEVICE_LIST)
    stub_table.device_info = device_info;
#elif defined(BAD_DEVICE_LIST_OPEN)
    stub_table.device_open = device_open;
#elif defined(BAD_STATUS)
    stub_table.estimate = estimate, stub_table.weights_open = weights_open;
    stub_table.compile = compile;
#elif defined(BAD_CALL_SHARED_WEIGHTS) || defined(BAD_CALL_SHARED_WEIGHTS_DIMS)
    stub_table.weights_open = weights_open, stub_table.compile = compile;
#elif defined(BAD_CALL_BINDINGS) || defined(BAD_CALL_SETS_BIND) || defined(BAD_CALL_BINDINGS_WEIGHT)
    stub_table.context_bind = context_bind;
#elif defined(BAD_CALL_SETS_EXECUTE)
    stub_table.compile = compile, stub_table.execute = execute;
#elif defined(BAD_CALL_SYMBOLS_BIND)
    stub_table.compile = compile, stub_table.context_bind = context_bind;
#elif defined(BAD_CALL_SYMBOLS) || defined(BAD_CALL_PARAMS) || defined(BAD_CALL_PARAMS_FLAGS) ||   \
    defined(BAD_CALL_PARAMS_WORDS)
    stub_table.execute = execute;
#elif defined(BAD_CALL_SETS) || defined(BAD_CALL_SETS_ZERO) || defined(BAD_CALL_SETS_ONE) ||       \
    defined(BAD_CALL_SYMBOLS_MAX)
    stub_table.compile = compile;
#elif defined(BAD_CALL_PARAMS_UID)
    stub_table.device_open = device_open;
#elif defined(BAD_CALL_PARAMS_ALLOC)
    stub_table.alloc = buffer_alloc;
#elif defined(BAD_CALL_TRANSFERS)
    stub_table.write = write_any;
#elif defined(BAD_CALL_ABORT) || defined(BAD_CALL_ABORT_FLAG)
    stub_table.abort = abort_queue;
#elif defined(BAD_CALL_EVENTS)
    stub_table.execute = execute;
    (void)weights_put;
#elif defined(BAD_CALL_EVENTS_PUT)
    stub_table.weights_put = weights_put;
    (void)execute;
#elif defined(BAD_CALL_SOURCES) || defined(BAD_CALL_SOURCES_PARTS) ||                              \
    defined(BAD_CALL_SOURCES_PLANES) || defined(BAD_CALL_WEIGHTS_TWICE) ||                         \
    defined(BAD_CALL_WEIGHTS_TYPE) || defined(BAD_CALL_WEIGHTS_ROWS)
    stub_table.weights_put = weights_put;
#elif defined(BAD_GRAPH_SEGMENTS_UNREAD)
    stub_table.weights_open = weights_open, stub_table.weights_put = weights_put;
#elif defined(BAD_CALL_EVENTS_NULL)
    stub_table.read = read_any;
#elif defined(BAD_CALL_PARALLEL_PUT)
    stub_table.weights_put = weights_put, stub_table.device_info = device_info;
#elif defined(BAD_TYPES)
    ((mn_plugin *)(uintptr_t)p)->query = types_query;
#elif defined(BAD_PROFILE_UNITS) || defined(BAD_PROFILE_SAME) || defined(BAD_PROFILE_ROOM)
    inner_profile = stub_inner_profile;
    stub_profile = &bad_profile;
#elif defined(BAD_EXPERTS)
    bad_experts = *stub_inner_experts;
    bad_experts.bring = bring;
    bad_experts.drop = drop;
    stub_experts = &bad_experts;
#elif defined(BAD_HOST_TWO)
    only = p;
#elif defined(BAD_GRAPH_SLOT_ROWS) || defined(BAD_GRAPH_QUESTIONS) ||                              \
    defined(BAD_GRAPH_SEGMENTS) || defined(BAD_GRAPH_SEGMENTS_NODE) ||                             \
    defined(BAD_GRAPH_SEGMENTS_NODES) || defined(BAD_GRAPH_SEGMENTS_TENSORS) ||                    \
    defined(BAD_GRAPH_SEGMENTS_SYMBOLS)
    stub_table.compile = compile;
#endif
    return p;
}
