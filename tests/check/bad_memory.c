/* bad_memory.c -- the reference plugin with one rule of `minerva plugins check` broken that is
 * about the memory of sequences. Those that read mn_compile otherwise than it is meant get a copy
 * of it in every call: see spoil. */
#include "stub.h"

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

/* ---- mn_compile.memory ----------------------------------------------------------------------- */
#if defined(BAD_GRAPH_STRIDES_USES) || defined(BAD_GRAPH_STRIDES_LAYERS) ||                        \
    defined(BAD_NUMERIC_ATTENTION_CLASS) || defined(BAD_NUMERIC_SHARED_MORE) ||                    \
    defined(BAD_GRAPH_QUESTIONS_MEMORY) || defined(BAD_GRAPH_QUESTIONS_KIND)
enum { USES = 8, LAYERS = 64 };
typedef struct {
    mn_compile c;
    mn_memory_use use[USES];
    mn_memory_params params[USES];
    mn_memory_layer layer[USES][LAYERS];
} copied;

static const mn_memory_use *use_at(const mn_compile *c, uint32_t i, uint32_t stride) {
    return (const mn_memory_use *)(const void *)((const char *)c->memory + (size_t)i * stride);
}

/* The request, of which only `memory` is a copy that may be changed. */
static copied *copy(const mn_compile *c) {
    static copied one; /* of the call: nobody keeps it */
    copied *x = &one;
    x->c = *c;
    for (uint32_t i = 0; i < c->n_memory && i < USES; i++) {
#if defined(BAD_GRAPH_STRIDES_USES)
        const mn_memory_use *use = use_at(c, i, sizeof *use);
#else
        const mn_memory_use *use = use_at(c, i, c->memory_stride);
#endif
        x->use[i] = *use;
        x->params[i] = *use->params;
        x->params[i].layers = x->layer[i];
        x->params[i].layer_stride = sizeof(mn_memory_layer);
        x->use[i].params = &x->params[i];
        for (uint32_t k = 0; k < use->params->n_layers && k < LAYERS; k++) {
#if defined(BAD_GRAPH_STRIDES_LAYERS)
            const size_t stride = sizeof(mn_memory_layer);
#else
            const size_t stride = use->params->layer_stride;
#endif
            memcpy(&x->layer[i][k], (const char *)use->params->layers + k * stride,
                   sizeof(mn_memory_layer));
        }
    }
    x->c.memory = x->use;
    x->c.memory_stride = sizeof *x->use;
    return x;
}

#if defined(BAD_NUMERIC_ATTENTION_CLASS)
/* A cache whose type is not stated is f16, in class exact, too. */
static const mn_compile *spoil(const mn_compile *c) {
    copied *x = copy(c);
    for (uint32_t i = 0; i < c->n_memory && i < USES; i++) {
        mn_memory_params *p = &x->params[i];
        if (p->kind == MN_MEMORY_PAGED && p->k_dtype == MN_DTYPE_NONE)
            p->k_dtype = p->v_dtype = MN_F16;
    }
    return &x->c;
}
#elif defined(BAD_NUMERIC_SHARED_MORE)
/* What no node of the segment has is not expected in the list. */
static const mn_compile *spoil(const mn_compile *c) {
    copied *x = copy(c);
    for (uint32_t i = 0; i < c->n_memory && i < USES; i++)
        if (x->params[i].group >= c->n_memory)
            x->c.n_memory = 0;
    return &x->c;
}
#elif defined(BAD_GRAPH_QUESTIONS_MEMORY)
/* What is not STATE is PAGED. */
static const mn_compile *spoil(const mn_compile *c) {
    copied *x = copy(c);
    for (uint32_t i = 0; i < c->n_memory && i < USES; i++)
        if (x->params[i].kind != MN_MEMORY_STATE)
            x->params[i].kind = MN_MEMORY_PAGED;
    return &x->c;
}
#else
static const mn_compile *spoil(const mn_compile *c) {
    return &copy(c)->c;
}
#endif

static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    return stub_inner->supports(d, spoil(c), v, stride, err);
}
static mn_status estimate(mn_device *d, const mn_compile *c, mn_estimate *out, mn_error *err) {
    return stub_inner->estimate(d, spoil(c), out, err);
}
static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    const mn_status st = stub_inner->memory_layout(d, spoil(c), group, out, err);
#if defined(BAD_GRAPH_QUESTIONS_KIND)
    if (st == MN_UNSUPPORTED) /* what it does not know is the caller's fault */
        return MN_INVALID;
#endif
    return st;
}
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    return stub_inner->weights_open(d, spoil(c), out, err);
}
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    return stub_inner->compile(d, spoil(c), out, err);
}
static void change(void) {
    stub_table.supports = supports;
    stub_table.estimate = estimate;
    stub_table.memory_layout = memory_layout;
    stub_table.weights_open = weights_open;
    stub_table.compile = compile;
}

/* ---- a layer's place ------------------------------------------------------------------------- */
#elif defined(BAD_NUMERIC_SHARED_NUMBERS)
/* It is the layer's number. */
#include "common.h"
mn_status __real_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err);
mn_status __wrap_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(c->graph, node);
    mnp_memory_node at;
    const mn_status st = __real_mnp_kv_of_node(c, node, precision, rules, kv, err);
    if (mnp_memory_node_of(n, &at))
        kv->layer = mnp_attr(c->graph, n, at.layer);
    return st;
}
static void change(void) {
}

/* ---- memory_copy ----------------------------------------------------------------------------- */
#elif defined(BAD_NUMERIC_MEMORY_COPY) || defined(BAD_NUMERIC_MEMORY_COPY_FIRST) ||                \
    defined(BAD_PROCESS_CONST_PAGES)
static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *p, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
#if defined(BAD_NUMERIC_MEMORY_COPY)         /* pairs are one behind the other */
    stride = sizeof *p;
#elif defined(BAD_NUMERIC_MEMORY_COPY_FIRST) /* of several pairs the first alone */
    n = n > 1 ? 1 : n;
#else
    if (n) /* done: writes so into the list */
        *(volatile uint32_t *)(uintptr_t)&p->pad = 0;
#endif
    return stub_inner->memory_copy(q, kv, l, p, n, stride, ev, err);
}
static void change(void) {
    stub_table.memory_copy = memory_copy;
}
#elif defined(BAD_NUMERIC_MEMORY_COPY_TOKENS)
/* As many bytes of a page as it has tokens, whatever lies in them. */
static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *p, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n && !st; i++) {
        const mn_page_copy *at = (const void *)((const char *)p + (size_t)i * stride);
        const uint64_t bytes =
            l->page_tokens ? l->page_bytes * at->n_tokens / l->page_tokens : l->page_bytes;
        st = stub_inner->copy(q, kv, at->dst_page * l->page_bytes, kv, at->src_page * l->page_bytes,
                              bytes, NULL, err);
    }
    if (ev)
        *ev = NULL;
    return st;
}
static void change(void) {
    stub_table.memory_copy = memory_copy;
}
#elif defined(BAD_NUMERIC_MEMORY_COPY_ORDER)
/* A copy is done behind the next one, or before the next step. */
static struct {
    mn_queue *queue;
    mn_buffer *kv;
    mn_memory_layout layout;
    mn_page_copy pairs[64];
    uint32_t n;
} waiting;
static void copy_waiting(void) {
    if (waiting.n)
        stub_inner->memory_copy(waiting.queue, waiting.kv, &waiting.layout, waiting.pairs,
                                waiting.n, sizeof *waiting.pairs, NULL, NULL);
    waiting.n = 0;
}
static mn_status memory_copy(mn_queue *q, mn_buffer *kv, const mn_memory_layout *l,
                             const mn_page_copy *p, uint32_t n, uint32_t stride, mn_event **ev,
                             mn_error *err) {
    if (waiting.n || ev || n > 64) {
        const mn_status st = stub_inner->memory_copy(q, kv, l, p, n, stride, ev, err);
        copy_waiting();
        return st;
    }
    waiting.queue = q;
    waiting.kv = kv;
    waiting.layout = *l;
    waiting.n = n;
    for (uint32_t i = 0; i < n; i++)
        memcpy(&waiting.pairs[i], (const char *)p + (size_t)i * stride, sizeof *p);
    return MN_OK;
}
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    copy_waiting();
    return stub_inner->execute(c, step, ev, err);
}
static void change(void) {
    stub_table.memory_copy = memory_copy;
    stub_table.execute = execute;
}

/* ---- process.const --------------------------------------------------------------------------- */
#elif defined(BAD_PROCESS_CONST_MEMORY) || defined(BAD_PROCESS_CONST_LAYERS)
/* Notes what it chose where it was asked. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    for (uint32_t i = 0; i < c->n_memory; i++) {
        const mn_memory_use *use =
            (const void *)((const char *)c->memory + (size_t)i * c->memory_stride);
#if defined(BAD_PROCESS_CONST_MEMORY)
        *(volatile uint32_t *)(uintptr_t)&use->params->pad = 0;
#else
        *(volatile int64_t *)(uintptr_t)&use->params->layers->layer = use->params->layers->layer;
#endif
    }
    return stub_inner->compile(d, c, out, err);
}
static void change(void) {
    stub_table.compile = compile;
}
#elif defined(BAD_PROCESS_CONST_STEP)
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    *(volatile uint32_t *)(uintptr_t)&step->set = step->set;
    return stub_inner->execute(c, step, ev, err);
}
static void change(void) {
    stub_table.execute = execute;
}
#elif defined(BAD_PROCESS_CONST_ALLOC)
static mn_status alloc(mn_device *d, const mn_alloc_params *p, mn_buffer **out, mn_error *err) {
    *(volatile uint32_t *)(uintptr_t)&p->pad = 0;
    return stub_inner->alloc(d, p, out, err);
}
static void change(void) {
    stub_table.alloc = alloc;
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "bad");
    if (p)
        change();
    return p;
}
