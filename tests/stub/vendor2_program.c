/* vendor2_program.c -- see vendor2.h: compiled segments, their contexts, and the two ops over the
 * host's workers. A context is used by one thread at a time. */
#include "vendor2.h"
#include <string.h>

/* ---- programs -------------------------------------------------------------------------------- */
/* The set's copy of a weight of g: by name, type and dims where the set is of another graph. */
static const void *find_weight(const mn_weights *w, const mn_graph *g, int32_t tensor) {
    const mn_tensor *t = v2_tensor(g, tensor);
    if (w->graph == g)
        return w->data[tensor];
    for (int32_t i = 0; (uint32_t)i < w->graph->n_tensors; i++) {
        const mn_tensor *x = v2_tensor(w->graph, i);
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
    mn_status s = v2_read_question(in, &c, err);
    if (!s)
        s = v2_measure(&c, &weights, &made, &row, err);
    if (s)
        return s;
    const mn_graph *g = c.graph;
    mn_program *p = v2_make(d->host, sizeof *p + g->n_symbols * sizeof(int64_t) +
                                         g->n_tensors * sizeof(void *));
    if (!p)
        return v2_no_memory(err);
    p->dev = d;
    p->graph = g;
    p->lo = c.node_lo;
    p->hi = c.node_hi;
    p->row = row;
    p->n_sets = c.n_sets;
    p->data = (const void **)(p->symbol_max + g->n_symbols);
    p->n_workers = d->host->workers(d->host->self);
    for (uint32_t i = 0; i < g->n_symbols; i++)
        p->symbol_max[i] = c.symbol_max[i];
    for (uint32_t i = c.node_lo; i < c.node_hi; i++)
        for (uint32_t j = 1; j < v2_node(g, i)->n_in; j++) {
            const int32_t t = v2_in(g, v2_node(g, i), j);
            if (t < 0)
                continue;
            p->data[t] = c.weights ? find_weight(c.weights, g, t) : NULL;
            if (p->data[t])
                continue;
            v2_drop(d->host, p);
            return v2_fail(err, c.weights && c.weights->graph != g ? MN_UNSUPPORTED : MN_INVALID, i,
                           "vendor2: node %u: a weight is missing", i);
        }
    *out = p;
    return MN_OK;
}
static void program_free(mn_program *p) {
    if (p)
        v2_drop(p->dev->host, p);
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
        v2_drop(h, c->at[i].own);
    v2_drop(h, c->scratch);
    v2_drop(h, c);
}

static mn_status context_create(mn_program *p, const mn_context_params *params, mn_context **out,
                                mn_error *err) {
    const mn_host *h = p->dev->host;
    const mn_graph *g = p->graph;
    mn_context *c = v2_make(h, sizeof *c + g->n_tensors * sizeof c->at[0] * p->n_sets);
    mn_context_params own;
    v2_read(&own, sizeof own, params);
    if (!c)
        return v2_no_memory(err);
    if (!own.queue || own.flags) {
        v2_drop(h, c);
        return v2_fail(err, own.queue ? MN_UNSUPPORTED : MN_INVALID, ~0u,
                       "vendor2: context_create without a queue, or with flags");
    }
    c->prog = p;
    c->cur = c->at;
    bool ok = (c->scratch = v2_make(h, p->n_workers * p->row * sizeof(float)));
    for (uint32_t i = p->lo; i < p->hi && ok; i++)
        for (uint32_t j = 0; j < v2_node(g, i)->n_out && ok; j++) {
            int32_t t = v2_out(g, v2_node(g, i), j);
            ok = c->cur[t].own ||
                 (c->cur[t].own =
                      v2_make(h, v2_count(g, p->symbol_max, v2_tensor(g, t), 0) * sizeof(float)));
        }
    if (!ok) {
        context_free(c);
        return v2_no_memory(err);
    }
    *out = c;
    return MN_OK;
}

static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *list, uint32_t n,
                              uint32_t stride, mn_error *err) {
    if (set >= c->prog->n_sets)
        return v2_fail(err, MN_INVALID, ~0u, "binding set %u", set);
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
            !v2_inside(b->buffer, b->offset, b->bytes))
            return v2_fail(err, MN_INVALID, ~0u, "vendor2: binding %u leaves its buffer", i);
        if (v2_tensor(p->graph, (int32_t)b->tensor)->role == MN_ROLE_WEIGHT)
            return v2_fail(err, MN_INVALID, ~0u, "vendor2: binding %u: tensor %u is a weight", i,
                           b->tensor);
        if (c->cur[b->tensor].bytes != UINT64_MAX)
            return v2_fail(err, MN_INVALID, ~0u, "vendor2: binding %u: tensor %u is bound twice", i,
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
    uint32_t dtype = v2_tensor(c->prog->graph, tensor)->dtype.id;
    for (uint64_t i = 0, k = row * n; i < n; i++, k++)
        if (dtype == MN_F32)
            out[i] = ((const float *)data)[k];
        else if (dtype == MN_BF16)
            out[i] = from_bits((uint32_t)((const uint16_t *)data)[k] << 16);
        else
            out[i] = from_f16(((const uint16_t *)data)[k]);
}

/* Newton's method from half the exponent. */
double v2_root(double v) {
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
    int32_t x = v2_in(g, c->node, MN_RMS_NORM_X);
    int32_t weight = v2_in(g, c->node, MN_RMS_NORM_WEIGHT);
    uint64_t n = v2_count(g, c->symbol, v2_tensor(g, weight), 0);
    uint64_t rows = v2_count(g, c->symbol, v2_tensor(g, x), 0) / n;
    double eps = attribute(g, c->node, MN_RMS_NORM_ATTR_EPS);
    double offset = attribute(g, c->node, MN_RMS_NORM_ATTR_OFFSET);
    float *w = c->scratch + worker * c->prog->row;
    read_row(c, weight, 0, n, w);
    for (uint64_t r = worker; r < rows; r += n_workers) {
        const float *in = (const float *)c->cur[x].ptr + r * n;
        float *out = (float *)c->cur[v2_out(g, c->node, 0)].ptr + r * n;
        double sum = 0;
        for (uint64_t i = 0; i < n; i++)
            sum += (double)in[i] * (double)in[i];
        double scale = 1 / v2_root(sum / (double)n + eps);
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)((double)in[i] * scale * ((double)w[i] + offset));
    }
}

/* y_i = x * W_i^T + b_i; x: [R, K], W_i: [N_i, K], columns of y shared out. */
static void linear(void *arg, uint32_t worker, uint32_t n_workers) {
    const mn_context *c = arg;
    const mn_graph *g = c->prog->graph;
    const mn_tensor *tx = v2_tensor(g, v2_in(g, c->node, MN_LINEAR_X));
    const float *x = (const float *)c->cur[v2_in(g, c->node, MN_LINEAR_X)].ptr;
    uint64_t rows = (uint64_t)v2_dim(g, c->symbol, tx, 0);
    uint64_t k = v2_count(g, c->symbol, tx, 1);
    float *w = c->scratch + worker * c->prog->row;
    for (uint32_t i = 0; i < c->node->n_out; i++) {
        int32_t weight = v2_in(g, c->node, MN_LINEAR_WEIGHT + 2 * i);
        int32_t bias = v2_in(g, c->node, MN_LINEAR_BIAS + 2 * i);
        float *y = (float *)c->cur[v2_out(g, c->node, i)].ptr;
        float b = 0;
        uint64_t n = (uint64_t)v2_tensor(g, weight)->dim[0];
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

/* The bytes of a blob stay where they are as long as the graph. */
static void curve(void *arg, uint32_t worker, uint32_t n_workers) {
    const mn_context *c = arg;
    const mn_graph *g = c->prog->graph;
    const int32_t in = v2_in(g, c->node, 0);
    const float *x = (const float *)c->cur[in].ptr;
    float *y = (float *)c->cur[v2_out(g, c->node, 0)].ptr;
    const float *table;
    const uint64_t last = v2_table(g, c->node, &table) - 1;
    const uint64_t n = v2_count(g, c->symbol, v2_tensor(g, in), 0);
    for (uint64_t i = worker; i < n; i += n_workers) {
        uint64_t at = 0; /* of a NaN, too */
        if (x[i] >= (float)last)
            at = last;
        else if (x[i] >= 0)
            at = (uint64_t)x[i];
        y[i] = table[at];
    }
}

typedef void (*v2_fn)(void *arg, uint32_t worker, uint32_t n_workers);
static v2_fn fn_of(uint32_t op) {
    if (op == V2_CURVE)
        return curve;
    return op == MN_OP_LINEAR ? linear : rms_norm;
}

/* The room behind a tensor: its own has its largest size. */
static bool fits(const mn_context *c, const int64_t *value, int32_t t) {
    uint64_t n = v2_count(c->prog->graph, value, v2_tensor(c->prog->graph, t), 0);
    return c->cur[t].ptr == c->cur[t].own || n <= c->cur[t].bytes / sizeof(float);
}

static mn_status check_step(const mn_context *c, const int64_t *value, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        int64_t v = v2_symbol(g, value, i);
        int64_t max = v2_symbol(g, c->prog->symbol_max, i);
        if (v >= 0 && v <= max)
            continue;
        return v2_fail(err, MN_INVALID, ~0u,
                       "vendor2: symbol %u is %lld; compiled for at most %lld", i, (long long)v,
                       (long long)max);
    }
    for (uint32_t i = c->prog->lo; i < c->prog->hi; i++) {
        const mn_node *n = v2_node(g, i);
        bool ok = c->cur[v2_in(g, n, 0)].ptr && fits(c, value, v2_in(g, n, 0));
        for (uint32_t j = 0; j < n->n_out && ok; j++)
            ok = fits(c, value, v2_out(g, n, j));
        if (!ok)
            return v2_fail(err, MN_INVALID, i,
                           "vendor2: node %u: a tensor is not bound, or to too few bytes", i);
    }
    return MN_OK;
}

static mn_status execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    mn_step own;
    v2_read(&own, sizeof own, step);
    if (own.flags || own.n_waits || own.n_signals)
        return v2_fail(err, MN_UNSUPPORTED, ~0u, "vendor2: a step with flags or words");
    if (own.set >= c->prog->n_sets)
        return v2_fail(err, MN_INVALID, ~0u, "binding set %u", own.set);
    c->cur = c->at + own.set * c->prog->graph->n_tensors;
    mn_device *d = c->prog->dev;
    mn_status s = check_step(c, own.values, err);
    c->symbol = own.values;
    for (uint32_t i = c->prog->lo; i < c->prog->hi && !s; i++) {
        c->node = v2_node(c->prog->graph, i);
        s = d->host->parallel(d->host->self, c->prog->n_workers, fn_of(c->node->op), c);
    }
    if (!s && event)
        *event = &d->done;
    return s;
}

void v2_add_programs(mn_backend *b) {
    b->compile = compile;
    b->program_free = program_free;
    b->program_save = program_save;
    b->context_create = context_create;
    b->context_bind = context_bind;
    b->execute = execute;
    b->context_free = context_free;
}
