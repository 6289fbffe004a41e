/* vendor2.c -- a whole backend in one file, against plugin.h alone: two ops, RMS_NORM and LINEAR,
 * in class exact, with weights in f32, f16 or bf16. Everything else is left to other devices:
 * minerva run --device vendor2,cpu.
 *
 * The "device" is host memory and every call is done when it returns, which keeps it short; a
 * driver's calls would stand in their places. Builds with: cc -shared -fPIC -I PREFIX/include
 * vendor2.c -o vendor2.so. Needs no libm. */
#include <minerva/plugin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

MN_PLUGIN_NOTE("vendor2", MN_KIND_BACKEND, "");

typedef struct {
    mn_plugin api;
    const mn_host *host;
} vendor;
struct mn_event {
    int unused;
};
struct mn_device {
    const mn_host *host;
    mn_event done; /* nothing is ever pending: one event serves all */
};
struct mn_queue {
    mn_device *dev;
};
struct mn_buffer {
    mn_device *dev;
    uint64_t bytes;
    uint8_t *ptr;
};
struct mn_weights {
    mn_device *dev;
    const mn_graph *graph;
    uint32_t lo;
    uint32_t hi;
    void *data[]; /* [n_tensors] dense copies in the stored type; NULL = not put */
};
struct mn_program {
    mn_device *dev;
    const mn_graph *graph;
    const void **data; /* [n_tensors] of the weight set, behind symbol_max */
    uint32_t lo;
    uint32_t hi;
    uint32_t n_workers;
    uint64_t row;         /* elements of one worker's scratch: the longest weight row */
    int64_t symbol_max[]; /* [n_symbols] */
};
typedef struct {
    uint8_t *ptr; /* what the host bound, else own */
    uint64_t bytes;
    uint8_t *own; /* a tensor made in the segment has room for its largest size */
} place;
struct mn_context {
    mn_program *prog;
    const mn_node *node;   /* the one that runs, and the step's */
    const int64_t *symbol; /* values, for the workers */
    float *scratch;        /* [n_workers, row] */
    place *cur;            /* the set in use: at, or behind it */
    place at[]; /* [MN_BINDING_SETS][n_tensors]; memory of its own belongs to the first */
};

/* ---- errors, memory, the graph's arrays ------------------------------------------------------ */

/* Fills what the caller has room for. */
static mn_status fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    mn_error e = {sizeof e, status, 0, node, 0, {0}};
    if (!err)
        return status;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, args);
    va_end(args);
    if (err->size < sizeof e)
        e.size = err->size;
    memcpy(err, &e, e.size);
    if (e.size > offsetof(mn_error, msg))
        ((char *)err)[e.size - 1] = 0;
    return status;
}

static void *make(const mn_host *h, uint64_t bytes) { /* zeroed */
    void *p = h->alloc(h->self, bytes ? bytes : 1, 64);
    if (p)
        memset(p, 0, bytes);
    return p;
}
static void drop(const mn_host *h, void *p) {
    h->release(h->self, p);
}
static mn_status no_memory(mn_error *err) {
    return fail(err, MN_OUT_OF_MEMORY, ~0u, "vendor2: out of memory");
}

static const mn_node *node_at(const mn_graph *g, uint32_t i) {
    return (const mn_node *)((const char *)g->nodes + (uint64_t)i * g->node_stride);
}
static const mn_tensor *tensor_at(const mn_graph *g, int32_t i) {
    return (const mn_tensor *)((const char *)g->tensors + (uint64_t)i * g->tensor_stride);
}
static int32_t input(const mn_graph *g, const mn_node *n, uint32_t i) {
    return i < n->n_in ? g->operands[n->in_off + i] : -1;
}
static int32_t output(const mn_graph *g, const mn_node *n, uint32_t i) {
    return g->operands[n->out_off + i];
}

static int64_t symbol_value(const mn_graph *g, const int64_t *value, uint32_t i) {
    const mn_symbol *s =
        (const mn_symbol *)((const char *)g->symbols + (uint64_t)i * g->symbol_stride);
    return s->base < 0 ? value[i] : value[s->base] * s->mul + s->add;
}
static int64_t dim(const mn_graph *g, const int64_t *value, const mn_tensor *t, uint32_t i) {
    return t->dim[i] < 0 ? symbol_value(g, value, (uint32_t)~t->dim[i]) : t->dim[i];
}
/* Elements from dimension `from` on; UINT64_MAX = too many. */
static uint64_t count(const mn_graph *g, const int64_t *value, const mn_tensor *t, uint32_t from) {
    uint64_t n = 1;
    for (uint32_t i = from; i < t->n_dim; i++)
        if (__builtin_mul_overflow(n, (uint64_t)dim(g, value, t, i), &n) || n >> 48)
            return UINT64_MAX;
    return n;
}

/* ---- discovery ------------------------------------------------------------------------------- */

static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self;
    (void)err;
    *n = 1;
    return MN_OK;
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    (void)self;
    if (i)
        return fail(err, MN_NO_DEVICE, ~0u, "vendor2: device %u; there is one", i);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    mn_device_info info = {.kind = MN_DEVICE_OTHER,
                           .name = "two ops in plain C",
                           .uid = "vendor2-0",
                           .driver = "vendor2 1",
                           .mem_pool = "host",
                           .align = 64,
                           .flags = MN_DEVICE_UNIFIED};
    info.mem_total = info.max_alloc = page * (uint64_t)sysconf(_SC_PHYS_PAGES);
    info.mem_free = page * (uint64_t)sysconf(_SC_AVPHYS_PAGES);
    info.size = out->size < sizeof info ? out->size : (uint32_t)sizeof info;
    memcpy(out, &info, info.size);
    return MN_OK;
}

static mn_status device_open(void *self, uint32_t i, mn_device **out, mn_error *err) {
    const mn_host *h = ((vendor *)self)->host;
    if (i)
        return fail(err, MN_NO_DEVICE, ~0u, "vendor2: device %u; there is one", i);
    mn_device *d = make(h, sizeof *d);
    if (!d)
        return no_memory(err);
    d->host = h;
    *out = d;
    return MN_OK;
}
static void device_close(mn_device *d) {
    if (d)
        drop(d->host, d);
}

/* A driver would run a small kernel and copy its result back. */
static double root(double v);
static mn_status self_test(mn_device *d, mn_error *err) {
    (void)d;
    return root(0.25) == 0.5
               ? MN_OK
               : fail(err, MN_NO_DEVICE, ~0u, "vendor2: the square root of 1/4 is not 1/2");
}

/* ---- negotiation ----------------------------------------------------------------------------- */

enum { FINE, OTHER_OP, WEIGHT_TYPE, VIEW, SHAPE };
static const char *const reasons[] = {"", "only RMS_NORM and LINEAR",
                                      "weights are f32, f16 or bf16", "no views of tensors",
                                      "operands do not fit together"};

static bool is_plain(uint32_t dtype) {
    return dtype == MN_F32 || dtype == MN_F16 || dtype == MN_BF16;
}

static uint32_t judge(const mn_graph *g, const mn_node *n) {
    if ((n->op != MN_OP_RMS_NORM && n->op != MN_OP_LINEAR) || n->contract != 1)
        return OTHER_OP;
    bool linear = n->op == MN_OP_LINEAR;
    if (!n->n_out || n->n_in < 2 * n->n_out || input(g, n, 0) < 0)
        return SHAPE;
    for (uint32_t i = 0; i < n->n_in; i++) {
        int32_t at = input(g, n, i);
        if (at < 0 && linear && i > 0 && i % 2 == 0)
            continue; /* no bias */
        if (at < 0 || (uint32_t)at >= g->n_tensors)
            return SHAPE;
        const mn_tensor *t = tensor_at(g, at);
        if (t->alias_of >= 0)
            return VIEW;
        if (i == 0 && (t->n_dim < 1 || t->role == MN_ROLE_WEIGHT || !is_plain(t->dtype.id)))
            return SHAPE;
        if (i > 0 && (t->role != MN_ROLE_WEIGHT || t->n_dim != (linear && i % 2 ? 2 : 1)))
            return SHAPE;
        if (i > 0 && !is_plain(t->dtype.id))
            return WEIGHT_TYPE;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        int32_t at = output(g, n, i);
        if (at < 0 || (uint32_t)at >= g->n_tensors)
            return SHAPE;
        if (tensor_at(g, at)->alias_of >= 0)
            return VIEW;
    }
    return FINE;
}

static mn_status contracts(void *self, const uint32_t (**table)[2], uint32_t *n) {
    static const uint32_t mine[][2] = {{MN_OP_RMS_NORM, 1}, {MN_OP_LINEAR, 1}};
    (void)self;
    *table = mine;
    *n = sizeof mine / sizeof mine[0];
    return MN_OK;
}

static mn_status supports(mn_device *d, const mn_graph *g, const int64_t *symbol_at,
                          mn_verdict *verdicts, uint32_t stride, mn_error *err) {
    (void)d;
    (void)symbol_at;
    (void)err;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        uint32_t why = judge(g, node_at(g, i));
        *(mn_verdict *)((char *)verdicts + (uint64_t)i * stride) =
            (mn_verdict){.verdict = why == FINE ? MN_VERDICT_NATIVE : MN_VERDICT_NO, .reason = why};
    }
    return MN_OK;
}

static mn_status reason(void *self, uint32_t why, char *buf, uint32_t cap) {
    (void)self;
    if (cap)
        snprintf(buf, cap, "%s", why < sizeof reasons / sizeof reasons[0] ? reasons[why] : "");
    return MN_OK;
}

/* The question as far as the asker has it, with a segment that this plugin can run. */
static mn_status read_question(const mn_compile *in, mn_compile *c, mn_error *err) {
    memset(c, 0, sizeof *c);
    memcpy(c, in, in->size < sizeof *c ? in->size : sizeof *c);
    const mn_graph *g = c->graph;
    if (!g || !c->symbol_max || g->size < sizeof *g)
        return fail(err, MN_INVALID, ~0u, "vendor2: no graph, or an older one");
    if (c->precision > MN_PRECISION_A8)
        return fail(err, MN_UNSUPPORTED, ~0u, "vendor2: precision class %u", c->precision);
    if (c->flags & ~(uint64_t)MN_COMPILE_DETERMINISTIC)
        return fail(err, MN_UNSUPPORTED, ~0u, "vendor2: unknown flag");
    if (c->node_lo > c->node_hi || c->node_hi > g->n_nodes)
        return fail(err, MN_INVALID, ~0u, "vendor2: nodes [%u, %u) of %u", c->node_lo, c->node_hi,
                    g->n_nodes);
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        uint32_t why = judge(g, node_at(g, i));
        if (why)
            return fail(err, MN_UNSUPPORTED, i, "vendor2: node %u: %s", i, reasons[why]);
    }
    return MN_OK;
}

static bool makes(const mn_graph *g, uint32_t lo, uint32_t hi, int32_t tensor) {
    for (uint32_t i = lo; i < hi; i++)
        for (uint32_t j = 0; j < node_at(g, i)->n_out; j++)
            if (output(g, node_at(g, i), j) == tensor)
                return true;
    return false;
}
static bool takes(const mn_graph *g, uint32_t lo, uint32_t hi, int32_t tensor) {
    for (uint32_t i = lo; i < hi; i++)
        for (uint32_t j = 0; j < node_at(g, i)->n_in; j++)
            if (input(g, node_at(g, i), j) == tensor)
                return true;
    return false;
}

/* Bytes of the weights and of what is made in the segment, and the longest weight row; SMALLER
 * where they overflow. */
static mn_status measure(const mn_compile *c, uint64_t *weights, uint64_t *made, uint64_t *row,
                         mn_error *err) {
    const mn_graph *g = c->graph;
    *weights = *made = *row = 0;
    for (int32_t i = 0; i < (int32_t)g->n_tensors; i++) {
        const mn_tensor *t = tensor_at(g, i);
        bool weight = t->role == MN_ROLE_WEIGHT && takes(g, c->node_lo, c->node_hi, i);
        if (!weight && !makes(g, c->node_lo, c->node_hi, i))
            continue;
        uint64_t n = count(g, c->symbol_max, t, 0);
        uint64_t last = t->n_dim > 1 ? (uint64_t)t->dim[1] : n;
        if (n == UINT64_MAX)
            return fail(err, MN_OUT_OF_MEMORY, ~0u, "vendor2: tensor %d is too large", i);
        if (weight && last > *row)
            *row = last;
        /* as alloc rounds */
        *(weight ? weights : made) += n * (weight ? t->dtype.block_bytes : sizeof(float)) + 128;
    }
    return MN_OK;
}

static mn_status estimate(mn_device *d, const mn_compile *in, mn_estimate *out, mn_error *err) {
    mn_compile c;
    uint64_t row;
    mn_estimate e = {
        .precision = MN_PRECISION_EXACT, .row_grain = 1, .flags = MN_ESTIMATE_DETERMINISTIC};
    mn_status s = read_question(in, &c, err);
    if (!s)
        s = measure(&c, &e.weights, &e.scratch, &row, err);
    if (s)
        return s;
    e.import_peak = e.weights;
    e.scratch += row * sizeof(float) * d->host->workers(d->host->self) + sizeof(mn_program) +
                 sizeof(mn_context) + c.graph->n_tensors * sizeof(place) +
                 c.graph->n_symbols * sizeof(int64_t) + 512;
    e.weights += sizeof(mn_weights) + c.graph->n_tensors * sizeof(void *) + 128;
    e.size = out->size < sizeof e ? out->size : (uint32_t)sizeof e;
    memcpy(out, &e, e.size);
    return MN_OK;
}

static mn_status kv_layout(mn_device *d, const mn_compile *c, uint32_t group, mn_kv_layout *out,
                           mn_error *err) {
    (void)d;
    (void)c;
    (void)group;
    (void)out;
    return fail(err, MN_UNSUPPORTED, ~0u, "vendor2: keeps no keys and values");
}

static mn_status kv_copy(mn_queue *q, mn_buffer *kv, const mn_kv_layout *l,
                         const mn_page_copy *list, uint32_t n, uint32_t stride, mn_event **event,
                         mn_error *err) {
    (void)event;
    (void)q;
    (void)kv;
    (void)l;
    (void)list;
    (void)n;
    (void)stride;
    return fail(err, MN_UNSUPPORTED, ~0u, "vendor2: keeps no keys and values");
}

/* ---- memory and queues ----------------------------------------------------------------------- */

static mn_status buffer_alloc(mn_device *d, uint64_t bytes, uint32_t kind, mn_buffer **out,
                              mn_error *err) {
    const uint32_t where = kind & ~MN_MEM_UNZEROED;
    if (where != MN_MEM_DEVICE && where != MN_MEM_HOST_PINNED)
        return fail(err, MN_UNSUPPORTED, ~0u, "vendor2: memory kind 0x%x", kind);
    mn_buffer *b = make(d->host, sizeof *b);
    if (!b)
        return no_memory(err);
    *b = (mn_buffer){d, bytes, make(d->host, bytes)};
    if (!b->ptr) {
        drop(d->host, b);
        return no_memory(err);
    }
    *out = b;
    return MN_OK;
}
static mn_status buffer_wrap(mn_device *d, void *ptr, uint64_t bytes, mn_buffer **out,
                             mn_error *err) {
    (void)d;
    (void)ptr;
    (void)bytes;
    (void)out;
    return fail(err, MN_UNSUPPORTED, ~0u, "vendor2: buffers are its own");
}
static void buffer_free(mn_buffer *b) {
    if (!b)
        return;
    drop(b->dev->host, b->ptr);
    drop(b->dev->host, b);
}
static mn_status map(mn_buffer *b, void **out, mn_error *err) {
    (void)err;
    *out = b->ptr;
    return MN_OK;
}
static mn_status queue_create(mn_device *d, mn_queue **out, mn_error *err) {
    mn_queue *q = make(d->host, sizeof *q);
    if (!q)
        return no_memory(err);
    q->dev = d;
    *out = q;
    return MN_OK;
}
static void queue_free(mn_queue *q) {
    if (q)
        drop(q->dev->host, q);
}

static bool inside(const mn_buffer *b, uint64_t off, uint64_t n) {
    return off <= b->bytes && n <= b->bytes - off;
}

static mn_status queue_write(mn_queue *q, mn_buffer *b, uint64_t off, const void *from, uint64_t n,
                             mn_error *err) {
    (void)q;
    if (!inside(b, off, n))
        return fail(err, MN_INVALID, ~0u, "vendor2: a write leaves its buffer");
    if (n)
        memcpy(b->ptr + off, from, n);
    return MN_OK;
}
static mn_status queue_copy(mn_queue *q, mn_buffer *to, uint64_t to_off, const mn_buffer *from,
                            uint64_t off, uint64_t n, mn_event **event, mn_error *err) {
    if (!inside(from, off, n) || !inside(to, to_off, n))
        return fail(err, MN_INVALID, ~0u, "vendor2: a copy leaves its buffer");
    if (n)
        memmove(to->ptr + to_off, from->ptr + off, n);
    if (event)
        *event = &q->dev->done;
    return MN_OK;
}
static mn_status queue_read(mn_queue *q, const mn_buffer *from, uint64_t off, mn_buffer *to,
                            uint64_t to_off, uint64_t n, mn_event **event, mn_error *err) {
    return queue_copy(q, to, to_off, from, off, n, event, err);
}
static mn_status event_wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    (void)e;
    (void)timeout_ns;
    (void)err;
    return MN_OK;
}
static mn_status queue_wait(mn_queue *q, mn_event *e, mn_error *err) {
    (void)q;
    (void)e;
    (void)err;
    return MN_OK;
}
static void event_free(mn_event *e) {
    (void)e;
}

/* ---- weights: copied once, as stored --------------------------------------------------------- */

static mn_status weights_open(mn_device *d, const mn_compile *in, mn_weights **out, mn_error *err) {
    mn_compile c;
    mn_status s = read_question(in, &c, err);
    if (s)
        return s;
    mn_weights *w = make(d->host, sizeof *w + c.graph->n_tensors * sizeof w->data[0]);
    if (!w)
        return no_memory(err);
    w->dev = d;
    w->graph = c.graph;
    w->lo = c.node_lo;
    w->hi = c.node_hi;
    *out = w;
    return MN_OK;
}

/* One plane of a part: rows by columns, with any strides that stay inside its bytes. */
static uint8_t *copy_part(const mn_tensor *t, const mn_plane *p, uint8_t *to) {
    uint64_t rows = (uint64_t)p->dim[0];
    uint64_t cols = t->n_dim > 1 ? (uint64_t)p->dim[1] : 1;
    uint64_t size = t->dtype.block_bytes;
    uint64_t down = (uint64_t)p->stride[0];
    uint64_t right = t->n_dim > 1 ? (uint64_t)p->stride[1] : 0;
    if (p->kind != MN_PLANE_DATA || p->dtype != t->dtype.id || p->dim[0] <= 0 ||
        p->dim[0] > t->dim[0] || p->stride[0] < 0 ||
        (t->n_dim > 1 && (p->dim[1] != t->dim[1] || p->stride[1] < 0)) || down > p->bytes ||
        right > p->bytes || (rows - 1) * down + (cols - 1) * right + size > p->bytes)
        return NULL;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < cols; i++, to += size)
            memcpy(to, (const uint8_t *)p->ptr + r * down + i * right, size);
    return to;
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *in, mn_event **event,
                             mn_error *err) {
    const mn_host *h = w->dev->host;
    mn_weight_src s = {0};
    (void)q;
    memcpy(&s, in, in->size < sizeof s ? in->size : sizeof s);
    if (event)
        *event = NULL;
    if (s.tensor >= w->graph->n_tensors ||
        tensor_at(w->graph, (int32_t)s.tensor)->role != MN_ROLE_WEIGHT)
        return fail(err, MN_INVALID, ~0u, "vendor2: tensor %u is not a weight", s.tensor);
    if (!takes(w->graph, w->lo, w->hi, (int32_t)s.tensor))
        return MN_OK;
    const mn_tensor *t = tensor_at(w->graph, (int32_t)s.tensor);
    uint64_t left = (uint64_t)t->dim[0];
    uint64_t bytes = count(w->graph, NULL, t, 0) * t->dtype.block_bytes;
    if (w->data[s.tensor] || s.n_planes != 1 || s.dtype.id != t->dtype.id || !s.planes)
        return fail(err, MN_INVALID, ~0u,
                    "vendor2: weight %u: put twice, or not of the graph's type", s.tensor);
    uint8_t *data = make(h, bytes);
    uint8_t *to = data;
    if (!data)
        return no_memory(err);
    for (uint32_t i = 0; i < s.n_parts && to; i++) {
        const mn_plane *p =
            (const mn_plane *)((const char *)s.planes + (uint64_t)i * s.plane_stride);
        to = p->dim[0] > 0 && (uint64_t)p->dim[0] <= left ? copy_part(t, p, to) : NULL;
        left -= to ? (uint64_t)p->dim[0] : 0;
    }
    if (!to || left) {
        drop(h, data);
        return fail(err, MN_INVALID, ~0u, "vendor2: weight %u: its parts are not [%lld, ...]",
                    s.tensor, (long long)t->dim[0]);
    }
    w->data[s.tensor] = data;
    return MN_OK;
}

static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    (void)q;
    for (uint32_t i = w->lo; i < w->hi; i++)
        for (uint32_t j = 1; j < node_at(w->graph, i)->n_in; j++) {
            int32_t t = input(w->graph, node_at(w->graph, i), j);
            if (t < 0 || w->data[t])
                continue;
            mn_str name = tensor_at(w->graph, t)->name;
            return fail(err, MN_INVALID, i, "vendor2: weight %.*s is missing", (int)name.len,
                        name.ptr ? name.ptr : "");
        }
    if (kept_how)
        *kept_how = MN_KEPT_COPIED;
    return MN_OK;
}

static void weights_free(mn_weights *w) {
    if (!w)
        return;
    const mn_host *h = w->dev->host;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++)
        drop(h, w->data[i]);
    drop(h, w);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The set's copy of a weight of g: by name, type and dims where the set is of another graph. */
static const void *find_weight(const mn_weights *w, const mn_graph *g, int32_t tensor) {
    const mn_tensor *t = tensor_at(g, tensor);
    if (w->graph == g)
        return w->data[tensor];
    for (int32_t i = 0; (uint32_t)i < w->graph->n_tensors; i++) {
        const mn_tensor *x = tensor_at(w->graph, i);
        if (x->name.len == t->name.len && !memcmp(x->name.ptr, t->name.ptr, t->name.len) &&
            x->dtype.id == t->dtype.id && x->n_dim == t->n_dim &&
            !memcmp(x->dim, t->dim, sizeof t->dim))
            return w->data[i];
    }
    return NULL;
}

static mn_status compile(mn_device *d, const mn_compile *in, mn_program **out, mn_error *err) {
    mn_compile c;
    uint64_t weights;
    uint64_t made;
    uint64_t row;
    mn_status s = read_question(in, &c, err);
    if (!s)
        s = measure(&c, &weights, &made, &row, err);
    if (s)
        return s;
    const mn_graph *g = c.graph;
    mn_program *p =
        make(d->host, sizeof *p + g->n_symbols * sizeof(int64_t) + g->n_tensors * sizeof(void *));
    if (!p)
        return no_memory(err);
    p->dev = d;
    p->graph = g;
    p->lo = c.node_lo;
    p->hi = c.node_hi;
    p->row = row;
    p->data = (const void **)(p->symbol_max + g->n_symbols);
    p->n_workers = d->host->workers(d->host->self);
    for (uint32_t i = 0; i < g->n_symbols; i++)
        p->symbol_max[i] = c.symbol_max[i];
    for (uint32_t i = c.node_lo; i < c.node_hi; i++)
        for (uint32_t j = 1; j < node_at(g, i)->n_in; j++) {
            const int32_t t = input(g, node_at(g, i), j);
            if (t < 0)
                continue;
            p->data[t] = c.weights ? find_weight(c.weights, g, t) : NULL;
            if (p->data[t])
                continue;
            drop(d->host, p);
            return fail(err, c.weights && c.weights->graph != g ? MN_UNSUPPORTED : MN_INVALID, i,
                        "vendor2: node %u: a weight is missing", i);
        }
    *out = p;
    return MN_OK;
}
static void program_free(mn_program *p) {
    if (p)
        drop(p->dev->host, p);
}

static mn_status program_save(const mn_program *p, void *to, uint64_t *bytes) {
    (void)p;
    (void)to;
    (void)bytes;
    return MN_UNSUPPORTED;
}

static void context_free(mn_context *c) {
    if (!c)
        return;
    const mn_host *h = c->prog->dev->host;
    for (uint32_t i = 0; i < c->prog->graph->n_tensors; i++)
        drop(h, c->at[i].own);
    drop(h, c->scratch);
    drop(h, c);
}

static mn_status context_create(mn_program *p, mn_queue *q, mn_context **out, mn_error *err) {
    const mn_host *h = p->dev->host;
    const mn_graph *g = p->graph;
    mn_context *c = make(h, sizeof *c + g->n_tensors * sizeof c->at[0] * MN_BINDING_SETS);
    (void)q;
    if (!c)
        return no_memory(err);
    c->prog = p;
    c->cur = c->at;
    bool ok = (c->scratch = make(h, p->n_workers * p->row * sizeof(float)));
    for (uint32_t i = p->lo; i < p->hi && ok; i++)
        for (uint32_t j = 0; j < node_at(g, i)->n_out && ok; j++) {
            int32_t t = output(g, node_at(g, i), j);
            ok = c->cur[t].own ||
                 (c->cur[t].own =
                      make(h, count(g, p->symbol_max, tensor_at(g, t), 0) * sizeof(float)));
        }
    if (!ok) {
        context_free(c);
        return no_memory(err);
    }
    *out = c;
    return MN_OK;
}

static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *list, uint32_t n,
                              uint32_t stride, mn_error *err) {
    if (set >= MN_BINDING_SETS)
        return fail(err, MN_INVALID, ~0u, "binding set %u", set);
    const mn_program *p = c->prog;
    c->cur = c->at + set * p->graph->n_tensors;
    for (uint32_t i = 0; i < p->graph->n_tensors; i++)
        c->cur[i].own = c->at[i].own;
    for (uint32_t i = 0; i < p->graph->n_tensors; i++) {
        c->cur[i].ptr = c->cur[i].own;
        c->cur[i].bytes = UINT64_MAX;
    }
    for (uint32_t i = 0; i < n; i++) {
        const mn_binding *b = (const mn_binding *)((const char *)list + (uint64_t)i * stride);
        if (b->tensor >= p->graph->n_tensors || !b->buffer ||
            !inside(b->buffer, b->offset, b->bytes))
            return fail(err, MN_INVALID, ~0u, "vendor2: binding %u leaves its buffer", i);
        if (c->cur[b->tensor].bytes != UINT64_MAX)
            return fail(err, MN_INVALID, ~0u, "vendor2: binding %u: tensor %u is bound twice", i,
                        b->tensor);
        c->cur[b->tensor].ptr = b->buffer->ptr + b->offset;
        c->cur[b->tensor].bytes = b->bytes;
    }
    return MN_OK;
}

/* ---- the two ops; each worker computes its share, in sums of doubles ------------------------- */

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static float from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = h >> 10 & 31;
    uint32_t man = h & 1023;
    if (!exp)
        return (sign ? -1.0f : 1.0f) * (float)man * 0x1p-24f;
    return from_bits(sign | (exp == 31 ? 255 : exp + 112) << 23 | man << 13);
}
static void read_row(const mn_context *c, int32_t tensor, uint64_t row, uint64_t n, float *out) {
    const void *data = c->prog->data[tensor];
    uint32_t dtype = tensor_at(c->prog->graph, tensor)->dtype.id;
    for (uint64_t i = 0, k = row * n; i < n; i++, k++)
        out[i] = dtype == MN_F32    ? ((const float *)data)[k]
                 : dtype == MN_BF16 ? from_bits((uint32_t)((const uint16_t *)data)[k] << 16)
                                    : from_f16(((const uint16_t *)data)[k]);
}

/* Newton's method from half the exponent. */
static double root(double v) {
    uint64_t bits;
    double r;
    if (!(v > 0) || v > 1e300)
        return v;
    memcpy(&bits, &v, sizeof bits);
    bits = (bits >> 1) + 0x1ff8000000000000u;
    memcpy(&r, &bits, sizeof r);
    for (int i = 0; i < 6; i++)
        r = 0.5 * (r + v / r);
    return r;
}

static double attribute(const mn_graph *g, const mn_node *n, uint32_t i) {
    double v = 0;
    if (i < n->n_attr)
        memcpy(&v, &g->attrs[n->attr_off + i], sizeof v);
    return v;
}

/* y = x / sqrt(mean(x^2) + eps) * (weight + offset); x: [..., D], rows shared out. */
static void rms_norm(void *arg, uint32_t worker, uint32_t n_workers) {
    const mn_context *c = arg;
    const mn_graph *g = c->prog->graph;
    int32_t x = input(g, c->node, MN_RMS_NORM_X);
    int32_t weight = input(g, c->node, MN_RMS_NORM_WEIGHT);
    uint64_t n = count(g, c->symbol, tensor_at(g, weight), 0);
    uint64_t rows = count(g, c->symbol, tensor_at(g, x), 0) / n;
    double eps = attribute(g, c->node, MN_RMS_NORM_ATTR_EPS);
    double offset = attribute(g, c->node, MN_RMS_NORM_ATTR_OFFSET);
    float *w = c->scratch + worker * c->prog->row;
    read_row(c, weight, 0, n, w);
    for (uint64_t r = worker; r < rows; r += n_workers) {
        const float *in = (const float *)c->cur[x].ptr + r * n;
        float *out = (float *)c->cur[output(g, c->node, 0)].ptr + r * n;
        double sum = 0;
        for (uint64_t i = 0; i < n; i++)
            sum += (double)in[i] * (double)in[i];
        double scale = 1 / root(sum / (double)n + eps);
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)((double)in[i] * scale * ((double)w[i] + offset));
    }
}

/* y_i = x * W_i^T + b_i; x: [R, K], W_i: [N_i, K], columns of y shared out. */
static void linear(void *arg, uint32_t worker, uint32_t n_workers) {
    const mn_context *c = arg;
    const mn_graph *g = c->prog->graph;
    const mn_tensor *tx = tensor_at(g, input(g, c->node, MN_LINEAR_X));
    const float *x = (const float *)c->cur[input(g, c->node, MN_LINEAR_X)].ptr;
    uint64_t rows = (uint64_t)dim(g, c->symbol, tx, 0);
    uint64_t k = count(g, c->symbol, tx, 1);
    float *w = c->scratch + worker * c->prog->row;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        int32_t weight = input(g, c->node, MN_LINEAR_WEIGHT + 2 * i);
        int32_t bias = input(g, c->node, MN_LINEAR_BIAS + 2 * i);
        float *y = (float *)c->cur[output(g, c->node, i)].ptr;
        float b = 0;
        uint64_t n = (uint64_t)tensor_at(g, weight)->dim[0];
        for (uint64_t col = worker; col < n; col += n_workers) {
            if (bias >= 0)
                read_row(c, bias, col, 1, &b);
            read_row(c, weight, col, k, w);
            for (uint64_t r = 0; r < rows; r++) {
                double sum = (double)b;
                for (uint64_t j = 0; j < k; j++)
                    sum += (double)x[r * k + j] * (double)w[j];
                y[r * n + col] = (float)sum;
            }
        }
    }
}

/* The room behind a tensor: its own has its largest size. */
static bool fits(const mn_context *c, const int64_t *value, int32_t t) {
    uint64_t n = count(c->prog->graph, value, tensor_at(c->prog->graph, t), 0);
    return c->cur[t].ptr == c->cur[t].own || n <= c->cur[t].bytes / sizeof(float);
}

static mn_status check_step(const mn_context *c, const int64_t *value, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        int64_t v = symbol_value(g, value, i);
        int64_t max = symbol_value(g, c->prog->symbol_max, i);
        if (v >= 0 && v <= max)
            continue;
        return fail(err, MN_INVALID, ~0u, "vendor2: symbol %u is %lld; compiled for at most %lld",
                    i, (long long)v, (long long)max);
    }
    for (uint32_t i = c->prog->lo; i < c->prog->hi; i++) {
        const mn_node *n = node_at(g, i);
        bool ok = c->cur[input(g, n, 0)].ptr && fits(c, value, input(g, n, 0));
        for (uint32_t j = 0; j < n->n_out && ok; j++)
            ok = fits(c, value, output(g, n, j));
        if (!ok)
            return fail(err, MN_INVALID, i,
                        "vendor2: node %u: a tensor is not bound, or to too few bytes", i);
    }
    return MN_OK;
}

static mn_status execute(mn_context *c, uint32_t set, const int64_t *symbol_values,
                         mn_event **event, mn_error *err) {
    if (set >= MN_BINDING_SETS)
        return fail(err, MN_INVALID, ~0u, "binding set %u", set);
    c->cur = c->at + set * c->prog->graph->n_tensors;
    mn_device *d = c->prog->dev;
    mn_status s = check_step(c, symbol_values, err);
    c->symbol = symbol_values;
    for (uint32_t i = c->prog->lo; i < c->prog->hi && !s; i++) {
        c->node = node_at(c->prog->graph, i);
        s = d->host->parallel(d->host->self, c->prog->n_workers,
                              c->node->op == MN_OP_LINEAR ? linear : rms_norm, c);
    }
    if (!s && event)
        *event = &d->done;
    return s;
}

/* ---- the tables ------------------------------------------------------------------------------ */

static const mn_backend backend = {
    .size = sizeof(mn_backend),
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .self_test = self_test,
    .contracts = contracts,
    .supports = supports,
    .reason = reason,
    .estimate = estimate,
    .alloc = buffer_alloc,
    .wrap = buffer_wrap,
    .buffer_free = buffer_free,
    .map = map,
    .queue_create = queue_create,
    .queue_free = queue_free,
    .write = queue_write,
    .read = queue_read,
    .copy = queue_copy,
    .wait = event_wait,
    .queue_wait = queue_wait,
    .event_free = event_free,
    .weights_open = weights_open,
    .weights_put = weights_put,
    .weights_seal = weights_seal,
    .weights_free = weights_free,
    .kv_layout = kv_layout,
    .kv_copy = kv_copy,
    .compile = compile,
    .program_free = program_free,
    .program_save = program_save,
    .context_create = context_create,
    .context_bind = context_bind,
    .execute = execute,
    .context_free = context_free,
};

static const void *query(void *self, const char *id) {
    (void)self;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &backend;
}
static void shut_down(void *self) {
    const mn_host *h = ((vendor *)self)->host;
    drop(h, self);
}

#define STR(text)                                                                                  \
    { text, sizeof text - 1 }

/* What is called below; the rest of the host may be missing. */
static bool host_suffices(const mn_host *h) {
    return MN_HAS(mn_host, h, alloc) && MN_HAS(mn_host, h, release) &&
           MN_HAS(mn_host, h, parallel) && MN_HAS(mn_host, h, workers);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    if (host->abi < MN_ABI_OLDEST || host->abi_min > MN_ABI_VERSION ||
        host->abi >> 16 != MN_ABI_VERSION >> 16) {
        fail(err, MN_UNSUPPORTED, ~0u, "vendor2: built for ABI %u.%u, the host has %u.%u",
             MN_ABI_VERSION >> 16, MN_ABI_VERSION & 0xffff, host->abi >> 16, host->abi & 0xffff);
        return NULL;
    }
    if (!host_suffices(host)) {
        fail(err, MN_UNSUPPORTED, ~0u,
             "vendor2: needs alloc, release, parallel and workers of the host");
        return NULL;
    }
    vendor *v = make(host, sizeof *v);
    if (!v) {
        no_memory(err);
        return NULL;
    }
    v->host = host;
    v->api = (mn_plugin){sizeof v->api,
                         MN_ABI_VERSION,
                         v,
                         STR("vendor2"),
                         STR("Minerva"),
                         STR("1"),
                         STR(__DATE__ " " __TIME__),
                         MN_PLUGIN_UNLOADABLE,
                         query,
                         shut_down};
    return &v->api;
}
