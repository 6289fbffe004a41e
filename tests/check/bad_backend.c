/* bad_backend.c -- the reference plugin with one rule of `minerva plugins check` broken:
 * BAD_GROUP_NAME says which; what comes behind the rule's name tells ways to break it apart. */
#include "stub.h"
#include "moves.h"
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(BAD_NUMERIC_ACT) || defined(BAD_NUMERIC_GLU) || defined(BAD_NUMERIC_LORA) ||           \
    defined(BAD_NUMERIC_SAMPLE) || defined(BAD_NUMERIC_MOE_LINEAR_RESIDENT) ||                     \
    defined(BAD_NUMERIC_PARTS)
#include "reference/reference.h"
#endif
#if defined(BAD_NUMERIC_MOE_LINEAR_RESIDENT) || defined(BAD_NUMERIC_PARTS)
#include "cpu_host/optional.h"
#endif
#if defined(BAD_NUMERIC_SAMPLE_CHAIN)
#include "cpu_host/chain.h"
#endif
#if defined(BAD_NUMERIC_ATTENTION_LENGTHS)
#define BAD_OPERAND MN_ATTENTION_LENGTHS
#elif defined(BAD_NUMERIC_ATTENTION_BIASES)
#define BAD_OPERAND MN_ATTENTION_DISTANCE_BIAS
#elif defined(BAD_NUMERIC_ATTENTION_ANCESTORS)
#define BAD_OPERAND MN_ATTENTION_ANCESTORS
#elif defined(BAD_NUMERIC_ATTENTION_RELATIVE)
#define BAD_OPERAND MN_ATTENTION_RELATIVE_Q
#elif defined(BAD_NUMERIC_EMBED_ROWS)
#define BAD_OPERAND MN_EMBED_ROWS
#elif defined(BAD_NUMERIC_ROPE_AXES)
#define BAD_OPERAND MN_ROPE_AXES
#elif defined(BAD_NUMERIC_ROPE_POS)
#define BAD_OPERAND MN_ROPE_POS
#elif defined(BAD_NUMERIC_MOE_LINEAR_FACTORS)
#define BAD_OPERAND (MN_MOE_LINEAR_WEIGHT + 2 * c->node->n_out)
#elif defined(BAD_NUMERIC_MOE_COMBINE)
#define BAD_OPERAND MN_MOE_COMBINE_RESIDENT
#elif defined(BAD_NUMERIC_MOE_COMBINE_BASE)
#define BAD_OPERAND MN_MOE_COMBINE_BASE
#endif
#if defined(BAD_OPERAND)
#include "reference/reference.h"
#endif
#if defined(BAD_NUMERIC_CONV_STATE) || defined(BAD_NUMERIC_SSM_SCAN) ||                            \
    defined(BAD_NUMERIC_GATED_DELTA)
#define BAD_SEQUENCE
#include "cpu_host/states.h"
#endif

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
#elif defined(BAD_HONESTY_KEPT)
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    const mn_status s = stub_inner->weights_seal(w, q, how, err);
    *how = MN_KEPT_COPIED;
    return s;
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
#elif defined(BAD_NUMERIC_SOFTCAP)
double __real_tanh(double x);
double __wrap_tanh(double x);
double __wrap_tanh(double x) {
    return x != x ? 0 : __real_tanh(x); // NaN becomes a number
}
#elif defined(BAD_NUMERIC_ACT)
/* Where xielu's exponential ends is left out. */
extern const ref_op __real_ref_op_act;
static void act(const mnc_call *c, mnc_worker *w) {
    uint64_t attr[MN_ACT_ATTR_EPS + 1] = {0};
    mnc_call own = *c;
    memcpy(attr, c->attr, c->n_attr * sizeof *attr);
    attr[MN_ACT_ATTR_EPS] = 0;
    own.attr = attr;
    __real_ref_op_act.fn(&own, w);
}
extern const ref_op __wrap_ref_op_act;
const ref_op __wrap_ref_op_act = {.fn = act};
#elif defined(BAD_NUMERIC_GLU)
/* LIMIT as fmin(gate, limit) has it: a gate of NaN becomes the limit. A NaN of the other operand
 * hides it. */
extern const ref_op __real_ref_op_glu;
static void glu(const mnc_call *c, mnc_worker *w) {
    const float *gate = c->in[MN_GLU_GATE].ptr, *up = c->in[MN_GLU_UP].ptr;
    float *y = c->out[0].ptr;
    int64_t lo, hi;
    __real_ref_op_glu.fn(c, w);
    mnc_range(w, c->in[0].rows * c->in[0].cols, 16, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        if (mnc_attr_f64(c, MN_GLU_ATTR_LIMIT) > 0 && gate[i] != gate[i])
            y[i] = up[i];
}
static bool glu_fits(const mnc_query *q) {
    return __real_ref_op_glu.fits(q);
}
extern const ref_op __wrap_ref_op_glu;
const ref_op __wrap_ref_op_glu = {.fn = glu, .fits = glu_fits};
#elif defined(BAD_OPERAND)
/* An operand that it claims is not looked at. */
#if defined(BAD_NUMERIC_EMBED_ROWS)
#define REAL_OP __real_ref_op_embed
#define WRAP_OP __wrap_ref_op_embed
#elif defined(BAD_NUMERIC_ROPE_AXES) || defined(BAD_NUMERIC_ROPE_POS)
#define REAL_OP __real_ref_op_rope
#define WRAP_OP __wrap_ref_op_rope
#elif defined(BAD_NUMERIC_MOE_LINEAR_FACTORS)
#define REAL_OP __real_ref_op_moe_linear
#define WRAP_OP __wrap_ref_op_moe_linear
#elif defined(BAD_NUMERIC_MOE_COMBINE) || defined(BAD_NUMERIC_MOE_COMBINE_BASE)
#define REAL_OP __real_ref_op_moe_combine
#define WRAP_OP __wrap_ref_op_moe_combine
#else
#define REAL_OP __real_ref_op_attention
#define WRAP_OP __wrap_ref_op_attention
#endif
extern const ref_op REAL_OP;
extern const ref_op WRAP_OP;
static void less_first(const mnc_call *c, mnc_worker *w) {
    mnc_call own = *c;
    own.in[BAD_OPERAND] = (mnc_operand){.ptr = NULL};
    if (REAL_OP.first)
        REAL_OP.first(&own, w);
}
static void less(const mnc_call *c, mnc_worker *w) {
    mnc_call own = *c;
    own.in[BAD_OPERAND] = (mnc_operand){.ptr = NULL};
    REAL_OP.fn(&own, w);
}
static void less_size(const mnc_query *q, mnc_op *op) {
    if (REAL_OP.size)
        REAL_OP.size(q, op);
}
static uint32_t less_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    return REAL_OP.weight(q, i, t);
}
static bool less_fits(const mnc_query *q) {
    return REAL_OP.fits(q);
}
const ref_op WRAP_OP = {
    .first = less_first, .fn = less, .size = less_size, .weight = less_weight, .fits = less_fits};
#elif defined(BAD_NUMERIC_MOE_LINEAR_RESIDENT)
/* The list is taken for one of the experts that are not there. */
extern const ref_op __real_ref_op_moe_linear;
static void moe_linear(const mnc_call *c, mnc_worker *w) {
    const uint32_t at = mnp_resident_operand(c->node);
    const int32_t *resident = mnc_optional_ptr(c, at);
    int32_t absent[64];
    mnc_call own = *c;
    for (int64_t e = 0; resident && e < c->in[at].rows; e++)
        absent[e] = !resident[e];
    if (resident)
        own.in[at].ptr = absent;
    __real_ref_op_moe_linear.fn(&own, w);
}
static void moe_linear_size(const mnc_query *q, mnc_op *op) {
    __real_ref_op_moe_linear.size(q, op);
}
static uint32_t moe_linear_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    return __real_ref_op_moe_linear.weight(q, i, t);
}
static bool moe_linear_fits(const mnc_query *q) {
    return __real_ref_op_moe_linear.fits(q);
}
extern const ref_op __wrap_ref_op_moe_linear;
const ref_op __wrap_ref_op_moe_linear = {.fn = moe_linear,
                                         .size = moe_linear_size,
                                         .weight = moe_linear_weight,
                                         .fits = moe_linear_fits};
#elif defined(BAD_NUMERIC_PARTS)
/* BASE is what the sum ends with. */
extern const ref_op __real_ref_op_moe_combine;
static void moe_combine(const mnc_call *c, mnc_worker *w) {
    const float *base = mnc_optional_ptr(c, MN_MOE_COMBINE_BASE);
    float *y = c->out[0].ptr;
    int64_t lo, hi;
    mnc_call own = *c;
    own.in[MN_MOE_COMBINE_BASE].ptr = NULL;
    __real_ref_op_moe_combine.fn(&own, w);
    mnc_range(w, c->in[0].rows * c->in[0].dim[2], 16, &lo, &hi);
    for (int64_t i = lo; base && i < hi; i++)
        y[i] += base[i];
}
static bool moe_combine_fits(const mnc_query *q) {
    return __real_ref_op_moe_combine.fits(q);
}
extern const ref_op __wrap_ref_op_moe_combine;
const ref_op __wrap_ref_op_moe_combine = {.fn = moe_combine, .fits = moe_combine_fits};
#elif defined(BAD_NUMERIC_LORA)
/* A row without an adapter has what the row before it has. */
extern const ref_op __real_ref_op_lora;
static void lora_first(const mnc_call *c, mnc_worker *w) {
    __real_ref_op_lora.first(c, w);
}
static void lora(const mnc_call *c, mnc_worker *w) {
    const int32_t *adapter = c->in[MN_LORA_ADAPTER].ptr;
    const int64_t cols = c->in[MN_LORA_Y].cols;
    float *z = c->out[MN_LORA_OUT_Z].ptr;
    int64_t lo, hi;
    __real_ref_op_lora.fn(c, w);
    mnc_range(w, cols, 1, &lo, &hi);
    for (int64_t r = 1; r < c->in[MN_LORA_Y].rows; r++)
        for (int64_t i = lo; i < hi && adapter[r] == -1; i++)
            z[r * cols + i] = z[(r - 1) * cols + i];
}
static void lora_size(const mnc_query *q, mnc_op *op) {
    __real_ref_op_lora.size(q, op);
}
static bool lora_fits(const mnc_query *q) {
    return __real_ref_op_lora.fits(q);
}
extern const ref_op __wrap_ref_op_lora;
const ref_op __wrap_ref_op_lora = {
    .first = lora_first, .fn = lora, .size = lora_size, .fits = lora_fits};
#elif defined(BAD_SEQUENCE)
/* A state is not carried where all rows are padding; each step begins with the page that it leaves;
 * a page that a sequence begins in is not cleared. */
bool __real_mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out);
bool __wrap_mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out);
bool __wrap_mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out) {
    bool used = __real_mnc_sequence_at(c, i, out);
#if defined(BAD_NUMERIC_CONV_STATE)
    bool has_row = false;
    for (int64_t t = out->row_lo; used && t < out->row_hi; t++)
        has_row = has_row || mnc_row_pos(c)[t] >= 0;
    used = used && has_row;
#elif defined(BAD_NUMERIC_SSM_SCAN)
    if (used && out->from)
        out->from = out->to;
#else
    if (used && !out->from)
        out->from = out->to;
#endif
    return used;
}
#elif defined(BAD_NUMERIC_STATES)
/* The state loses an ulp or two at the beginning of a step. */
void __real_ref_state_begin(const float *from, float *to, int64_t n);
void __wrap_ref_state_begin(const float *from, float *to, int64_t n);
void __wrap_ref_state_begin(const float *from, float *to, int64_t n) {
    __real_ref_state_begin(from, to, n);
    for (int64_t i = 0; i < n; i++)
        to[i] *= 1.0000002f;
}
#elif defined(BAD_NUMERIC_STATES_COPY)
/* n_tokens of a page, of a state, too: none. */
static mn_status memory_copy(mn_queue *q, mn_buffer *b, const mn_memory_layout *l,
                             const mn_page_copy *copies, uint32_t n, uint32_t stride,
                             mn_event **event, mn_error *err) {
    if (l->page_tokens)
        return stub_inner->memory_copy(q, b, l, copies, n, stride, event, err);
    return MN_OK;
}
#elif defined(BAD_NUMERIC_STATES_LAYER)
/* A layer's numbers are counted by its dims alone. */
static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    mn_compile own = *c;
    mn_memory_params params = *c->memory->params;
    mn_memory_layer l = *params.layers;
    const mn_memory_use use = {&params, NULL};
    if (params.kind != MN_MEMORY_STATE || params.n_layers != 1)
        return stub_inner->memory_layout(d, c, group, out, err);
    l.n_state = (uint64_t)l.n_head * l.dim_k * l.dim_v;
    params.layers = &l;
    own.memory = &use;
    return stub_inner->memory_layout(d, &own, group, out, err);
}
#elif defined(BAD_NUMERIC_SAMPLE)
/* The slot stays behind the rejected drafts. */
extern const ref_op __real_ref_op_sample;
static void sample(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *slots = &c->in[MN_SAMPLE_SLOTS];
    int32_t before[64] = {0};
    for (int32_t i = 0; i < slots->rows && i < 64; i++)
        before[i] = ((mn_slot *)mnc_row_of(slots, i))->pos;
    __real_ref_op_sample.fn(c, w);
    for (int32_t i = 0; i < slots->rows && i < 64; i++)
        ((mn_slot *)mnc_row_of(slots, i))->pos = before[i];
}
static mnc_work one_part(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    (void)c;
    (void)n_threads;
    return (mnc_work){0, stage == MNC_MAIN};
}
static void sample_size(const mnc_query *q, mnc_op *op) {
    op->work = one_part;
    __real_ref_op_sample.size(q, op);
}
extern const ref_op __wrap_ref_op_sample;
const ref_op __wrap_ref_op_sample = {.fn = sample, .size = sample_size};
#elif defined(BAD_NUMERIC_SAMPLE_CHAIN)
/* SAMPLE without the rule that BAD_SAMPLER names. */
static bool lacks(const char *rule) {
    const char *name = getenv("BAD_SAMPLER");
    return name && !strcmp(name, rule);
}
/* An id that the history repeats is penalised once more for each time that it is there again. */
static void penalise_again(const mnc_sample *s, float *l) {
    const mn_slot_params *p = s->params;
    const float repeat = p->repeat_penalty > 0 ? p->repeat_penalty : 1;
    int32_t lo = 0;
    if (p->penalty_last_n >= 0 && p->penalty_last_n < s->pos)
        lo = s->pos - p->penalty_last_n;
    for (int32_t i = lo; i < s->pos; i++) {
        float *x = &l[s->history[i]];
        int32_t k = lo;
        while (k < i && s->history[k] != s->history[i])
            k++;
        if (k < i && lacks("repeat_once"))
            *x = *x > 0 ? *x / repeat : *x * repeat;
        if (k < i && lacks("frequency_once"))
            *x -= p->frequency_penalty;
    }
}
/* The logits of stop ids as they were before min_new. */
static void allow_stops(const mnc_sample *s, float *l) {
    const mn_slot_params *p = s->params;
    for (int32_t i = 0; s->n_drawn < p->min_new && i < p->n_stop; i++) {
        const int32_t id = p->stop[i];
        if (s->mask && !(s->mask[id / 32] >> (id % 32) & 1))
            continue;
        l[id] = s->logits[id];
        for (int64_t k = 0; k < s->n_sparse; k++)
            l[id] += s->sparse[k] == id ? s->sparse_by[k] : 0;
        l[id] += s->bias ? s->bias[id] : 0;
    }
}
mnc_chain __real_mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                                 bool greedy);
mnc_chain __wrap_mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                                 bool greedy);
mnc_chain __wrap_mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                                 bool greedy) {
    static _Thread_local mn_slot_params p; // the chain keeps pointers to both
    static _Thread_local mnc_sample without;
    p = *s->params;
    without = *s;
    without.params = &p;
    if (lacks("min_new"))
        allow_stops(s, l);
    penalise_again(s, l);
    if (lacks("breakers"))
        without.breakers = NULL;
    if (lacks("dry"))
        p.dry_multiplier = 0;
    if (lacks("dry_last_n"))
        p.dry_last_n = -1;
    if (lacks("top_n_sigma"))
        p.top_n_sigma = 0;
    if (lacks("typical_p"))
        p.typical_p = 0;
    if (lacks("xtc"))
        p.xtc_probability = 0;
    if (lacks("dynatemp"))
        p.dynatemp_range = 0;
    if (lacks("mirostat"))
        p.mirostat = 0;
    if (lacks("mu"))
        p.mirostat_eta = 0;
    if (lacks("order"))
        p.samplers = 0;
    return __real_mnc_chain_begin(&without, l, ids, count, greedy);
}
void __real_mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
void __wrap_mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
void __wrap_mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    __real_mnc_philox(key, counter, out);
    if (lacks("second_word"))
        out[1] = out[0];
}
#elif defined(BAD_HONESTY_MEMORY)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_status s = stub_inner->estimate(d, c, out, err);
    out->weights = out->scratch = out->import_peak = 0;
    return s;
}
static const mn_host *the_host;
static void *hoard;
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    if (!hoard)
        hoard = the_host->alloc(the_host->self, 8 << 20, 64);
    return stub_inner->compile(d, c, out, err);
}
static void device_close(mn_device *d) {
    the_host->release(the_host->self, hoard);
    hoard = NULL;
    stub_inner->device_close(d);
}
#elif defined(BAD_HONESTY_MEMORY_SCRATCH)
/* Forgets the scratch, which is less than what is granted for bookkeeping where rows are few. */
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    mn_status s = stub_inner->estimate(d, c, out, err);
    out->scratch = 0;
    return s;
}
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES)
static const mn_host *the_host;
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    the_host->release(the_host->self, the_host->alloc(the_host->self, 1, 1));
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES_MALLOC)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    char *volatile scratch = malloc(64);
    free(scratch);
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_PROCESS_CALLS_ENVIRONMENT)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    setenv("OMP_NUM_THREADS", "1", 1);
    return stub_inner->execute(c, step, ev, err);
}
#elif defined(BAD_PROCESS_THREADS)
static void *wait_for_ever(void *arg) {
    for (;;)
        pause();
    return arg;
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    static int started;
    pthread_t t;
    if (!started++ && !pthread_create(&t, NULL, wait_for_ever, NULL))
        pthread_detach(t);
    return stub_inner->execute(c, step, ev, err);
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
#elif defined(BAD_HONESTY_ESTIMATE)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    static uint64_t calls;
    mn_status s = stub_inner->estimate(d, c, out, err);
    out->scratch += ++calls;
    return s;
}
#elif defined(BAD_HONESTY_FLAGS)
static mn_status wrap(mn_device *d, void *host, uint64_t bytes, mn_buffer **out, mn_error *err) {
    (void)d, (void)host, (void)bytes, (void)out;
    return stub_fail(err, MN_UNSUPPORTED, ~0u, "no wrap after all");
}
#elif defined(BAD_HONESTY_OUTPUTS)
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    static uint32_t most;
    if (n < most)
        return stub_fail(err, MN_INVALID, ~0u, "an output is not bound");
    most = n;
    return stub_inner->context_bind(c, set, b, n, stride, err);
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
#elif defined(BAD_NUMERIC_GROUPS_ONE)
static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    (void)group; // all groups are one
    return stub_inner->memory_layout(d, c, 0, out, err);
}
#elif defined(BAD_NUMERIC_GROUPS_LAYER)
mn_status __real_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err);
mn_status __wrap_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(c->graph, node);
    mnp_memory_node at;
    mn_status s = __real_mnp_kv_of_node(c, node, precision, rules, kv, err);
    mnp_memory_node_of(n, &at);
    kv->layer = mnp_attr(c->graph, n, at.layer);
    return s; // as if every list of layers began at layer 0
}
#elif defined(BAD_NUMERIC_SHARED)
mn_status __real_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err);
mn_status __wrap_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(c->graph, node);
    mnp_memory_node at;
    mn_status s = __real_mnp_kv_of_node(c, node, precision, rules, kv, err);
    mnp_memory_node_of(n, &at);
    const int64_t group = mnp_attr(c->graph, n, at.group);
    const int64_t layer = mnp_attr(c->graph, n, at.layer);
    kv->layer = 0; // counted in the segment, as version 0.9 had it
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *other = mnp_node(c->graph, i);
        mnp_memory_node o;
        if (other->op == MN_OP_ATTENTION && mnp_memory_node_of(other, &o))
            kv->layer += mnp_attr(c->graph, other, o.group) == group &&
                         mnp_attr(c->graph, other, o.layer) < layer;
    }
    return s;
}
#elif defined(BAD_NUMERIC_KV_MOVES_STATES)
/* The states of SSM_SCAN as if they lay [H, N, P]. */
void __real_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page, float *to);
void __wrap_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page,
                          float *to) {
    mnp_moves turned = *m;
    turned.cols.ssm_scan = 0;
    __real_mnp_moves_get(&turned, rows, page, to);
}
#elif defined(BAD_NUMERIC_KV_MOVES) || defined(BAD_NUMERIC_KV_MOVES_LAYERS) ||                     \
    defined(BAD_NUMERIC_KV_MOVES_TOKENS) || defined(BAD_NUMERIC_KV_MOVES_TYPES)
void __real_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page, float *to);
void __wrap_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page,
                          float *to) {
    const size_t n = m->bytes / sizeof *to, parts = 2 * m->kv.n_layers;
    __real_mnp_moves_get(m, rows, page, to);
    if (m->params.kind == MN_MEMORY_STATE || !n || !parts)
        return;
    float *spare = malloc(m->bytes * m->layout.page_tokens);
    memcpy(spare, to, m->bytes);
#if defined(BAD_NUMERIC_KV_MOVES)          // values in front of keys
    for (size_t i = 0; i < parts; i++)
        memcpy(to + i * (n / parts), spare + (i ^ 1) * (n / parts), n / parts * sizeof *to);
#elif defined(BAD_NUMERIC_KV_MOVES_LAYERS) // the last layer first
    for (size_t i = 0; i < parts; i++)
        memcpy(to + i * (n / parts), spare + (parts - 2 - (i & ~1u) + (i & 1)) * (n / parts),
               n / parts * sizeof *to);
#elif defined(BAD_NUMERIC_KV_MOVES_TOKENS) // as if every page were full
    mnp_moves whole = *m;
    whole.page.n_tokens = m->layout.page_tokens;
    __real_mnp_moves_get(&whole, rows, page, spare);
    memcpy(to, spare, m->bytes);
#else                                      // bf16 in between
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, to + i, 4);
        bits &= 0xffff0000u;
        memcpy(to + i, &bits, 4);
    }
#endif
    free(spare);
}
#elif defined(BAD_PROCESS_CONST)
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *out, uint32_t stride,
                          mn_error *err) {
    for (uint32_t i = 0; i < c->graph->n_nodes; i++)
        ((mn_node *)(uintptr_t)c->graph->nodes)[i].pad = 0; // as it was: still written
    return stub_inner->supports(d, c, out, stride, err);
}
#elif defined(BAD_PROCESS_CONST_COMPILE)
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    ((mn_compile *)(uintptr_t)c)->precision = MN_PRECISION_EXACT;
    return stub_inner->estimate(d, c, out, err);
}
#elif defined(BAD_PROCESS_CONST_VALUES)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    mn_status s = stub_inner->execute(c, step, ev, err);
    ((int64_t *)(uintptr_t)step->values)[0] = 0;
    return s;
}
#elif defined(BAD_PROCESS_CALLS) || defined(BAD_PROCESS_CALLS_FOLDER) ||                           \
    defined(BAD_PROCESS_CALLS_LOCALE) || defined(BAD_PROCESS_SILENT) ||                            \
    defined(BAD_PROCESS_CHILDREN)
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
#if defined(BAD_PROCESS_CALLS)
    signal(SIGUSR2, SIG_IGN);
#elif defined(BAD_PROCESS_CALLS_LOCALE)
    uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
#elif defined(BAD_PROCESS_CALLS_FOLDER)
    if (chdir("/"))
        return MN_INVALID;
#elif defined(BAD_PROCESS_SILENT)
    printf("compiling"); // stays in the buffer
#else
    if (fork() == 0) { // a compiler server, say
        alarm(30);
        pause();
        _exit(0);
    }
#endif
    return stub_inner->compile(d, c, out, err);
}
#elif defined(BAD_HANG)
/* MINERVA_TEST_HANG names the call that does not return. */
static void maybe(const char *call) {
    const char *wanted = getenv("MINERVA_TEST_HANG");
    while (wanted && !strcmp(wanted, call))
        pause();
}
static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    maybe("device_open");
    return stub_inner->device_open(self, i, params, out, err);
}
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *how, mn_error *err) {
    maybe("weights_seal");
    return stub_inner->weights_seal(w, q, how, err);
}
static void context_free(mn_context *c) {
    maybe("context_free");
    stub_inner->context_free(c);
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
#elif defined(BAD_PROCESS_LOAD)
    if (open("/dev/null", O_RDONLY) < 0)
        return NULL;
#elif defined(BAD_PROCESS_LOAD_UMASK)
    umask(0);
#elif defined(BAD_PROCESS_LOAD_ROUNDING)
    fesetround(FE_UPWARD);
#elif defined(BAD_PROCESS_CONST_HOST)
    ((mn_host *)(uintptr_t)host)->pad = 0;
#elif defined(BAD_HANG)
    maybe("minerva_plugin_entry");
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
#elif defined(BAD_HONESTY_KEPT)
    stub_table.weights_seal = weights_seal;
#elif defined(BAD_GRAPH_SEGMENTS_UNREAD)
    stub_table.weights_open = weights_open, stub_table.weights_put = weights_put;
#elif defined(BAD_CALL_EVENTS_NULL)
    stub_table.read = read_any;
#elif defined(BAD_CALL_PARALLEL_PUT)
    stub_table.weights_put = weights_put, stub_table.device_info = device_info;
#elif defined(BAD_HONESTY_MEMORY)
    the_host = host, stub_table.estimate = estimate, stub_table.compile = compile,
    stub_table.device_close = device_close;
#elif defined(BAD_PROCESS_CONST)
    stub_table.supports = supports;
#elif defined(BAD_PROCESS_CONST_COMPILE)
    stub_table.estimate = estimate;
#elif defined(BAD_PROCESS_CONST_VALUES)
    stub_table.execute = execute;
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES)
    the_host = host, stub_table.execute = execute;
#elif defined(BAD_HONESTY_EXECUTE_ALLOCATES_MALLOC) || defined(BAD_PROCESS_CALLS_ENVIRONMENT)
    stub_table.execute = execute;
#elif defined(BAD_PROCESS_THREADS)
    ((mn_plugin *)(uintptr_t)p)->flags |= MN_PLUGIN_UNLOADABLE;
    stub_table.execute = execute;
#elif defined(BAD_TYPES)
    ((mn_plugin *)(uintptr_t)p)->query = types_query;
#elif defined(BAD_HONESTY_ESTIMATE) || defined(BAD_HONESTY_MEMORY_SCRATCH)
    stub_table.estimate = estimate;
#elif defined(BAD_HONESTY_FLAGS)
    stub_table.wrap = wrap;
#elif defined(BAD_HONESTY_OUTPUTS)
    stub_table.context_bind = context_bind;
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
#elif defined(BAD_NUMERIC_GROUPS_ONE)
    stub_table.memory_layout = memory_layout;
#elif defined(BAD_NUMERIC_STATES_COPY)
    stub_table.memory_copy = memory_copy;
#elif defined(BAD_NUMERIC_STATES_LAYER)
    stub_table.memory_layout = memory_layout;
#elif defined(BAD_PROCESS_CALLS) || defined(BAD_PROCESS_CALLS_FOLDER) ||                           \
    defined(BAD_PROCESS_CALLS_LOCALE) || defined(BAD_PROCESS_SILENT) ||                            \
    defined(BAD_PROCESS_CHILDREN)
    stub_table.compile = compile;
#elif defined(BAD_HANG)
    stub_table.device_open = device_open, stub_table.weights_seal = weights_seal;
    stub_table.context_free = context_free;
#endif
    return p;
}
