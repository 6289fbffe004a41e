/* program.c -- from "can you?" to a step: verdicts, estimates, a compiled segment, a context,
 * execute. */
#include "template.h"

/* ---- reading what the host hands over -----------------------------------------------------------
 * A newer host has longer structs, an older one shorter ones. Ask for the last field that you need,
 * by name: sizeof would grow with the next header that you compile against, and turn away hosts
 * that have all you need. */

static mn_status check_graph(const mn_graph *g, mn_error *err) {
    if (COVERS(g->size, mn_graph, n_attrs) && COVERS(g->node_stride, mn_node, layer) &&
        COVERS(g->tensor_stride, mn_tensor, name) &&
        (!g->n_symbols || COVERS(g->symbol_stride, mn_symbol, add)))
        return MN_OK;
    return t_fail(err, MN_INVALID, ~0u, "an mn_graph of %u bytes with nodes of %u is too short",
                  g->size, g->node_stride);
}

/* Positions are the host's to get right, and cheap for us to check once. */
static mn_status check_node(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = t_node(g, i);
    bool ok = n->n_in <= g->n_operands && n->in_off <= g->n_operands - n->n_in &&
              n->n_out <= g->n_operands && n->out_off <= g->n_operands - n->n_out &&
              n->n_attr <= g->n_attrs && n->attr_off <= g->n_attrs - n->n_attr;
    for (uint32_t j = 0; ok && j < n->n_in; j++)
        ok = t_in(g, n, j) < (int64_t)g->n_tensors;
    for (uint32_t j = 0; ok && j < n->n_out; j++)
        ok = t_out(g, n, j) < (int64_t)g->n_tensors;
    if (ok)
        return MN_OK;
    return t_fail(err, MN_INVALID, i, "node %u: operands or attributes outside the graph", i);
}

mn_status t_read_compile(const mn_compile *in, mn_compile *out, mn_error *err) {
    t_see(out, sizeof *out, in);
    const mn_graph *g = out->graph;
    if (!g || !out->symbol_max)
        return t_fail(err, MN_INVALID, ~0u, "mn_compile without graph or symbol_max");
    mn_status s = check_graph(g, err);
    if (s)
        return s;
    if (out->node_lo > out->node_hi || out->node_hi > g->n_nodes)
        return t_fail(err, MN_INVALID, ~0u, "segment [%u, %u) of %u nodes", out->node_lo,
                      out->node_hi, g->n_nodes);
    /* a newer host's class: we do not know whether ours is finer */
    if (out->precision > MN_PRECISION_A8)
        return t_fail(err, MN_UNSUPPORTED, ~0u, "precision class %u is unknown", out->precision);
    if (out->flags & ~(uint64_t)MN_COMPILE_DETERMINISTIC)
        return t_fail(err, MN_UNSUPPORTED, ~0u, "flags 0x%llx: one is unknown",
                      (unsigned long long)out->flags);
    if (!out->n_sets)
        out->n_sets = 1;
    if (out->n_sets > T_MAX_SETS)
        return t_fail(err, MN_UNSUPPORTED, ~0u, "%u sets of bindings; at most %u", out->n_sets,
                      T_MAX_SETS);
    for (uint32_t i = out->node_lo; i < out->node_hi && !s; i++)
        s = check_node(g, i, err);
    return s;
}

/* Symbol i from one before it: base * mul + add. */
static bool derive(const mn_symbol *s, uint32_t i, const int64_t *out, int64_t *v) {
    if ((uint32_t)s->base >= i)
        return false;
    if (__builtin_mul_overflow(out[s->base], s->mul, v))
        return false;
    return !__builtin_add_overflow(*v, s->add, v) && *v >= 0;
}

/* Symbol values as tensors see them: derived ones computed, BOUND ones at their maximum, since they
 * lay tensors out. */
static mn_status symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                         mn_error *err) {
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const mn_symbol *s = t_symbol(g, i);
        int64_t v = given[i];
        int64_t most;
        if (max)
            most = max[i];
        else
            most = s->max;
        bool ok = v >= 0 && (!max || v <= most);
        if (s->kind == MN_SYMBOL_SHAPE)
            ok = ok && v >= s->min;
        if (s->base >= 0)
            ok = derive(s, i, out, &v);
        if (!ok)
            return t_fail(err, MN_INVALID, ~0u, "symbol %.24s: found %lld, expected %lld to %lld",
                          s->name, (long long)v, (long long)s->min, (long long)most);
        out[i] = v;
        if (s->kind == MN_SYMBOL_BOUND && max)
            out[i] = max[i];
    }
    return MN_OK;
}

bool t_size(const mn_graph *g, const mn_tensor *t, const int64_t *values, t_operand *o) {
    o->n = 1;
    o->first = o->last = 1;
    if (t->n_dim > MN_MAX_DIM)
        return false;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        if (t->dim[i] < 0 && (uint64_t)~t->dim[i] >= g->n_symbols)
            return false;
        o->last = t_dim(t, i, values);
        if (!i)
            o->first = o->last;
        if (o->last < 0)
            return false;
        if (__builtin_mul_overflow(o->n, o->last, &o->n))
            return false;
    }
    return o->n <= INT64_MAX / 16;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Something that this version does not know, and that is used: an operand that is there, an
 * attribute that is not 0. */
static bool has_more(const mn_graph *g, const mn_node *n, const t_kernel *k) {
    for (uint32_t i = k->n_in; i < n->n_in; i++)
        if (t_in(g, n, i) >= 0)
            return true;
    for (uint32_t i = k->n_out; i < n->n_out; i++)
        if (t_out(g, n, i) >= 0)
            return true;
    for (uint32_t i = k->n_attr; i < n->n_attr; i++)
        if (g->attrs[n->attr_off + i])
            return true;
    return false;
}

static uint32_t judge(const mn_graph *g, const mn_node *n) {
    const t_kernel *k = t_kernel_of(n->op);
    if (!k)
        return T_OP;
    if (n->contract > k->contract)
        return T_CONTRACT;
    if (has_more(g, n, k))
        return T_EXTRA;
    return k->judge(g, n);
}

/* Pure: no device work. The host asks once per graph, before any weight is read; it shows the
 * reasons. What compile would say is asked here: class, types of the cache, sizes. */
mn_status t_supports(mn_device *d, const mn_compile *in, mn_verdict *out, uint32_t stride,
                     mn_error *err) {
    (void)d;
    mn_compile c;
    mn_status s = t_read_compile(in, &c, err);
    for (uint32_t i = c.node_lo; i < c.node_hi && !s; i++) {
        mn_verdict v = {.reason = judge(c.graph, t_node(c.graph, i))};
        v.verdict = v.reason ? MN_VERDICT_NO : MN_VERDICT_NATIVE; /* one_us, many_us: unknown */
        char *to = (char *)out + (uint64_t)(i - c.node_lo) * stride;
        memcpy(to, &v, stride < sizeof v ? stride : sizeof v);
    }
    return s;
}

/* ---- compiling a segment ------------------------------------------------------------------------
 * What the segment makes gets a place in the context's scratch, whether or not the host binds it
 * later. A real backend would let tensors that do not live at the same time share one place, and
 * fuse neighbours. */

static mn_status place_outputs(mn_program *p, const mn_node *n, mn_error *err) {
    for (uint32_t j = 0; j < n->n_out; j++) {
        int32_t t = t_out(p->graph, n, j);
        t_operand o;
        if (t < 0)
            continue;
        const mn_tensor *x = t_tensor(p->graph, t);
        if (!t_size(p->graph, x, p->symbol_max, &o))
            return t_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows", T_NAME(x));
        uint64_t bytes = (uint64_t)o.n * sizeof(float);
        bytes = (bytes + T_ALIGN - 1) / T_ALIGN * T_ALIGN;
        p->place[t] = p->scratch_bytes;
        if (__builtin_add_overflow(p->scratch_bytes, bytes, &p->scratch_bytes))
            return t_fail(err, MN_INVALID, ~0u, "the scratch of the segment overflows");
    }
    return MN_OK;
}

/* Bytes of the set that weights_put will make. Weights that two nodes share count twice: an upper
 * bound may. */
static void count_weights(mn_program *p, const mn_node *n) {
    for (uint32_t j = 0; j < n->n_in; j++) {
        int32_t t = t_in(p->graph, n, j);
        t_operand o;
        const mn_tensor *x = NULL;
        if (t >= 0)
            x = t_tensor(p->graph, t);
        if (!x || x->role != MN_ROLE_WEIGHT)
            continue;
        if (t_size(p->graph, x, p->symbol_max, &o))
            p->weight_bytes += (uint64_t)o.n * t_elem(x->dtype.id) + 2 * T_ALIGN;
    }
}

/* The program without its weights: what estimate and compile share, so that they cannot
 * disagree. */
static mn_status plan(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    const mn_graph *g = c->graph;
    uint64_t bytes = sizeof(mn_program) + (uint64_t)g->n_symbols * 8 +
                     (uint64_t)g->n_tensors * (8 + sizeof(t_weight *));
    mn_program *p = t_new(d->plugin, bytes);
    if (!p)
        return t_no_memory(err, bytes, "a program");
    p->dev = d;
    p->graph = g;
    p->lo = c->node_lo;
    p->hi = c->node_hi;
    p->n_sets = c->n_sets;
    p->symbol_max = (int64_t *)(p + 1);
    p->place = (uint64_t *)(p->symbol_max + g->n_symbols);
    p->w = (const t_weight **)(p->place + g->n_tensors);
    memset(p->place, 0xff, g->n_tensors * sizeof *p->place); /* T_NO_PLACE */
    mn_status s = symbols(g, c->symbol_max, NULL, p->symbol_max, err);
    for (uint32_t i = p->lo; i < p->hi && !s; i++) {
        const mn_node *n = t_node(g, i);
        uint32_t no = judge(g, n);
        if (no)
            s = t_fail(err, MN_UNSUPPORTED, i, "node %u (op %u): %s", i, n->op, t_reasons[no]);
        if (!s)
            s = place_outputs(p, n, err);
        if (!s)
            count_weights(p, n);
    }
    if (s)
        t_program_free(p);
    else
        *out = p;
    return s;
}

/* Upper bounds: the host plans memory with them, and `minerva plugins check` holds us to them. */
mn_status t_estimate(mn_device *d, const mn_compile *in, mn_estimate *out, mn_error *err) {
    mn_compile c;
    mn_program *p;
    mn_status s = t_read_compile(in, &c, err);
    if (!s)
        s = plan(d, &c, &p, err);
    if (s)
        return s;
    mn_estimate e = {
        /* the class that we use, whichever was asked for: finer is allowed */
        .precision = MN_PRECISION_EXACT,
        .weights = p->weight_bytes + sizeof(mn_weights) + c.graph->n_tensors * sizeof(t_weight),
        .scratch = p->scratch_bytes + sizeof(mn_context) + c.graph->n_symbols * 16 +
                   c.graph->n_tensors * (sizeof(mn_binding) * c.n_sets + 8) + sizeof *p +
                   4 * T_ALIGN,
        .import_peak = 0, /* nothing beyond the weights while they come in */
        .row_grain = 1,   /* we compute any number of rows: no rounding up */
        .flags = MN_ESTIMATE_DETERMINISTIC,
    };
    t_program_free(p);
    t_give(out, out->size, &e, sizeof e);
    return MN_OK;
}

/* The entry of a weight set for a tensor of g. A set is legal for every graph whose weights have
 * its names, types and dims; for the graph that it was opened for the index is enough. */
static const t_weight *find_weight(const mn_weights *w, const mn_graph *g, int32_t tensor) {
    const mn_tensor *t = t_tensor(g, tensor);
    if (w->graph == g)
        return w->w[tensor].data ? &w->w[tensor] : NULL;
    for (uint32_t i = 0; i < w->graph->n_tensors; i++) {
        const mn_tensor *x = t_tensor(w->graph, (int32_t)i);
        bool same_type = x->dtype.id == t->dtype.id && x->n_dim == t->n_dim;
        if (!w->w[i].data)
            continue;
        if (!same_type)
            continue;
        if (x->name.len != t->name.len)
            continue;
        if (memcmp(x->name.ptr, t->name.ptr, t->name.len) == 0 &&
            memcmp(x->dim, t->dim, sizeof t->dim) == 0)
            return &w->w[i];
    }
    return NULL;
}

static mn_status find_weights(mn_program *p, const mn_node *n, const mn_weights *w, mn_error *err) {
    for (uint32_t j = 0; j < n->n_in; j++) {
        int32_t t = t_in(p->graph, n, j);
        if (t < 0)
            continue;
        if (t_tensor(p->graph, t)->role != MN_ROLE_WEIGHT)
            continue;
        p->w[t] = NULL;
        if (w)
            p->w[t] = find_weight(w, p->graph, t);
        if (!p->w[t])
            return t_fail(err, w && w->graph != p->graph ? MN_UNSUPPORTED : MN_INVALID, ~0u,
                          "weight %.*s is not in the set", T_NAME(t_tensor(p->graph, t)));
    }
    return MN_OK;
}

mn_status t_compile(mn_device *d, const mn_compile *in, mn_program **out, mn_error *err) {
    mn_compile c;
    mn_program *p;
    mn_status s = t_read_compile(in, &c, err);
    if (!s)
        s = plan(d, &c, &p, err);
    if (s)
        return s;
    for (uint32_t i = p->lo; i < p->hi && !s; i++)
        s = find_weights(p, t_node(p->graph, i), c.weights, err);
    if (s)
        t_program_free(p);
    else
        *out = p;
    return s;
}

void t_program_free(mn_program *p) {
    if (p)
        t_delete(p->dev->plugin, p);
}

/* What took long to compile can be saved, and comes back in mn_compile.cache. Here there is nothing
 * worth it. */
mn_status t_program_save(const mn_program *p, void *dst, uint64_t *bytes) {
    (void)p;
    (void)dst;
    (void)bytes;
    return MN_UNSUPPORTED;
}

/* ---- a context: what one step after the other needs, allocated once -------------------------- */

mn_status t_context_create(mn_program *p, const mn_context_params *in, mn_context **out,
                           mn_error *err) {
    const mn_graph *g = p->graph;
    uint64_t bytes = sizeof(mn_context) + (uint64_t)g->n_symbols * 8 +
                     (uint64_t)g->n_tensors * sizeof(mn_binding) * p->n_sets;
    mn_context_params params;
    t_see(&params, sizeof params, in);
    if (!params.queue)
        return t_fail(err, MN_INVALID, ~0u, "context_create without a queue");
    mn_status s = t_no_flags(params.flags, "context_create", err);
    if (s)
        return s;
    mn_context *c = t_new(p->dev->plugin, bytes);
    uint8_t *scratch = NULL;
    if (c)
        scratch = t_new(p->dev->plugin, p->scratch_bytes);
    if (!scratch) {
        t_delete(p->dev->plugin, c);
        return t_no_memory(err, c ? p->scratch_bytes : bytes, "a context");
    }
    *c = (mn_context){.prog = p, .queue = params.queue, .scratch = scratch};
    c->values = (int64_t *)(c + 1);
    c->sets[0] = (mn_binding *)(c->values + g->n_symbols);
    for (uint32_t i = 1; i < p->n_sets; i++)
        c->sets[i] = c->sets[i - 1] + g->n_tensors;
    *out = c;
    return MN_OK;
}

void t_context_free(mn_context *c) {
    if (!c)
        return;
    t_delete(c->prog->dev->plugin, c->scratch);
    t_delete(c->prog->dev->plugin, c);
}

static mn_status check_binding(const mn_graph *g, const mn_binding *b, mn_error *err) {
    if (b->tensor >= g->n_tensors || t_tensor(g, (int32_t)b->tensor)->role == MN_ROLE_WEIGHT)
        return t_fail(err, MN_INVALID, ~0u,
                      "binding of tensor %u: expected one of %u that is no weight", b->tensor,
                      g->n_tensors);
    if (b->buffer && b->offset % sizeof(float) == 0 && b->offset <= b->buffer->bytes &&
        b->bytes <= b->buffer->bytes - b->offset)
        return MN_OK;
    return t_fail(err, MN_INVALID, ~0u, "%.*s: %llu bytes at %llu do not lie in the buffer",
                  T_NAME(t_tensor(g, (int32_t)b->tensor)), (unsigned long long)b->bytes,
                  (unsigned long long)b->offset);
}

/* Replaces all bindings of one set; the other sets stay as they are. After an error none of this
 * set are bound. */
mn_status t_context_bind(mn_context *c, uint32_t set, const mn_binding *list, uint32_t n,
                         uint32_t stride, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    mn_status s = MN_OK;
    if (set >= c->prog->n_sets)
        return t_fail(err, MN_INVALID, ~0u, "binding set %u; there are %u", set, c->prog->n_sets);
    c->bound[set] = false;
    memset(c->sets[set], 0, g->n_tensors * sizeof *c->sets[set]);
    for (uint32_t i = 0; i < n && !s; i++) {
        const mn_binding *b = (const mn_binding *)((const char *)list + (uint64_t)i * stride);
        s = check_binding(g, b, err);
        if (!s && c->sets[set][b->tensor].buffer)
            s = t_fail(err, MN_INVALID, ~0u, "%.*s is bound twice",
                       T_NAME(t_tensor(g, (int32_t)b->tensor)));
        if (!s)
            memcpy(&c->sets[set][b->tensor], b, stride < sizeof *b ? stride : sizeof *b);
    }
    c->bound[set] = !s;
    return s;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static mn_status operand(const mn_context *c, int32_t t, t_operand *o, mn_error *err) {
    const mn_program *p = c->prog;
    memset(o, 0, sizeof *o);
    if (t < 0)
        return MN_OK;
    const mn_tensor *x = t_tensor(p->graph, t);
    const mn_binding *b = &c->bindings[t];
    if (x->role == MN_ROLE_WEIGHT) {
        o->w = p->w[t];
        return MN_OK;
    }
    (void)t_size(p->graph, x, c->values, o); /* fits: it did at the maxima */
    if (b->buffer && (uint64_t)o->n * sizeof(float) <= b->bytes)
        o->x = (float *)(void *)(b->buffer->ptr + b->offset);
    else if (!b->buffer && p->place[t] != T_NO_PLACE)
        o->x = (float *)(void *)(c->scratch + p->place[t]);
    else
        return t_fail(err, MN_INVALID, ~0u, "%.*s is bound to %llu bytes, %lld floats are needed",
                      T_NAME(x), (unsigned long long)(b->buffer ? b->bytes : 0), (long long)o->n);
    return MN_OK;
}

static mn_status fill_call(const mn_context *c, const mn_node *n, t_call *call, mn_error *err) {
    const mn_graph *g = c->prog->graph;
    mn_status s = MN_OK;
    call->n_in = n->n_in;
    call->n_out = n->n_out;
    call->attr = g->attrs + n->attr_off;
    call->n_attr = n->n_attr;
    for (uint32_t j = 0; j < T_MAX_IN && !s; j++)
        s = operand(c, t_in(g, n, j), &call->in[j], err);
    for (uint32_t j = 0; j < T_MAX_LINEAR && !s; j++)
        s = operand(c, t_out(g, n, j), &call->out[j], err);
    return s;
}

typedef struct {
    const t_kernel *kernel;
    t_call call;
} task;
static void run(void *arg, uint32_t i, uint32_t n) {
    const task *t = arg;
    t->kernel->run(&t->call, i, n);
}

/* Words that another device writes, or waits for, are for devices whose queues can wait. priority
 * and deadline_ns are wishes: nothing here is ever late or waits. */
mn_status t_see_step(const mn_context *c, const mn_step *in, mn_step *out, mn_error *err) {
    t_see(out, sizeof *out, in);
    if (out->n_waits || out->n_signals)
        return t_fail(err, MN_UNSUPPORTED, ~0u, "a step that waits for words, or writes them");
    if (out->set >= c->prog->n_sets || !c->bound[out->set])
        return t_fail(err, MN_INVALID, ~0u, "binding set %u is not bound", out->set);
    return t_no_flags(out->flags, "a step", err);
}

/* Allocates nothing, and is bounded. A GPU would have captured all of this for these values in
 * context_prepare, and here only launch it; event is then where the step ends. */
mn_status t_execute(mn_context *c, const mn_step *in, mn_event **event, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_host *h = p->dev->plugin->host;
    mn_step step;
    mn_status s = t_see_step(c, in, &step, err);
    if (s)
        return s;
    c->bindings = c->sets[step.set];
    s = symbols(p->graph, step.values, p->symbol_max, c->values, err);
    uint32_t workers = h->workers(h->self);
    if (!workers)
        workers = 1;
    if (workers > p->dev->plugin->max_workers)
        workers = p->dev->plugin->max_workers;
    for (uint32_t i = p->lo; i < p->hi && !s; i++) {
        task t = {.kernel = t_kernel_of(t_node(p->graph, i)->op)};
        if (atomic_load(&c->queue->aborted))
            return t_fail(err, MN_CANCELLED, i, "the queue was aborted");
        s = fill_call(c, t_node(p->graph, i), &t.call, err);
        if (!s)
            s = h->parallel(h->self, workers, run, &t); /* returns when all workers have */
        if (!s && c->profiling)
            t_profile_node(c->profiling, h, i, t_node(p->graph, i)->op, &t.call);
    }
    if (!s && event)
        *event = NULL; /* complete already */
    return s;
}
