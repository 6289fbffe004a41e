/* small_graph.c -- a chain of a few nodes on one device; small_graph.h says for whom. Everything
 * that a plugin returns is looked at before it is used: the probing process is the first to call
 * these functions, and a pointer that is missing is a sentence there, not a crash. */
#include "registry/small_graph.h"
#include "usual.h"
#include <string.h>

#define GIVE_UP_NS UINT64_C(2000000000)
#define N_TOKENS (~INT64_C(0)) /* a dim: the value of symbol 0 */
#define POLL_NS UINT64_C(100000000)

/* ---- the graph ------------------------------------------------------------------------------- */

static mn_tensor small_tensor(const char *name, uint32_t role, uint32_t dtype, int64_t rows,
                              int64_t cols) {
    mn_tensor t = {
        .role = role,
        .n_dim = cols ? 2 : 1,
        .alias_of = -1,
        .dim = {rows, cols},
        .name = mn_str_of(name),
    };
    mn_dtype_by_id(dtype, &t.dtype);
    return t;
}

/* Node i and its operands from *at on. */
static void add_node(mn_small_graph *s, uint32_t op, uint32_t i, uint32_t *at) {
    const int32_t in = i ? (int32_t)(MN_SMALL_FIRST_Y + i - 1) : MN_SMALL_X;
    const int32_t second = op == MN_OP_ADD ? MN_SMALL_X : MN_SMALL_WEIGHT;
    const bool linear = op == MN_OP_LINEAR;
    mn_node *node = &s->nodes[i];
    *node = (mn_node){.op = op, .contract = 1, .in_off = *at, .n_in = linear ? 3 : 2, .n_out = 1};
    s->operands[(*at)++] = in;
    s->operands[(*at)++] = second;
    if (linear)
        s->operands[(*at)++] = -1; /* no bias */
    node->out_off = *at;
    node->n_attr = op == MN_OP_RMS_NORM ? 2 : 0;
    s->operands[(*at)++] = (int32_t)(MN_SMALL_FIRST_Y + i);
}

/* x, w, and the y of each node: the last one is the graph's. */
static void small_add_tensors(mn_small_graph *s, uint32_t op, uint32_t n, uint32_t dtype,
                              int64_t n_rows, int64_t k) {
    const bool linear = op == MN_OP_LINEAR;
    s->tensors[MN_SMALL_X] = small_tensor("x", MN_ROLE_INPUT, MN_F32, N_TOKENS, k);
    s->tensors[MN_SMALL_WEIGHT] = linear ? small_tensor("w", MN_ROLE_WEIGHT, dtype, n_rows, k)
                                         : small_tensor("w", MN_ROLE_WEIGHT, MN_F32, k, 0);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t role = i + 1 == n ? MN_ROLE_OUTPUT : MN_ROLE_INTERIOR;
        s->tensors[MN_SMALL_FIRST_Y + i] = small_tensor("y", role, MN_F32, N_TOKENS, n_rows);
    }
}

void mn_small_graph_clear(mn_small_graph *s) {
    mn_sealed_free(s->pages);
    memset(s, 0, sizeof *s);
}

/* The graph of the nodes and tensors that s has; digest: of the n_what numbers. */
static bool finish_graph(mn_small_graph *s, uint32_t n_nodes, uint32_t n_tensors,
                         uint32_t n_operands, const int64_t *what, size_t n_what) {
    s->g = (mn_graph){
        .size = sizeof s->g,
        .n_nodes = n_nodes,
        .n_tensors = n_tensors,
        .n_symbols = 1,
        .node_stride = sizeof(mn_node),
        .tensor_stride = sizeof(mn_tensor),
        .symbol_stride = sizeof(mn_symbol),
        .n_operands = n_operands,
        .nodes = s->nodes,
        .tensors = s->tensors,
        .symbols = &s->symbol,
        .operands = s->operands,
        .attrs = s->attrs,
        .n_attrs = 2,
        .step = -1,
    };
    for (uint64_t i = 0; i < 4; i++)
        s->g.digest[i] = mn_hash(what, n_what * sizeof *what, i + 77);
    s->given = mn_given_graph(&s->g, &s->pages);
    return s->given;
}

static void begin_graph(mn_small_graph *s) {
    mn_small_graph_clear(s);
    s->symbol = (mn_symbol){"n_tokens", 1, MN_SMALL_ROWS, 1, MN_SYMBOL_SHAPE, -1, 1, 0};
}

bool mn_small_graph_build(mn_small_graph *s, uint32_t op, uint32_t n, uint32_t dtype,
                          int64_t n_rows, int64_t k) {
    const double eps = 1e-5;
    const int64_t what[] = {op, n, dtype, n_rows, k};
    uint32_t at = 0;
    begin_graph(s);
    small_add_tensors(s, op, n, dtype, n_rows, k);
    memcpy(&s->attrs[0], &eps, sizeof eps);
    for (uint32_t i = 0; i < n; i++)
        add_node(s, op, i, &at);
    return finish_graph(s, n, MN_SMALL_FIRST_Y + n, at, what, MN_COUNT(what));
}

static mn_tensor deeper(mn_tensor t, int64_t last) {
    t.dim[t.n_dim++] = last;
    return t;
}

bool mn_small_experts_build(mn_small_graph *s, uint32_t dtype, int64_t n_expert, int64_t n_chosen,
                            int64_t n_rows, int64_t k) {
    enum { N_TENSORS = MN_SMALL_EXPERTS + 2, Y = N_TENSORS - 1 };
    static const int32_t operands[] = {MN_SMALL_X, MN_SMALL_EXPERTS, MN_SMALL_WEIGHT, -1, Y};
    const int64_t what[] = {MN_OP_MOE_LINEAR, dtype, n_expert, n_chosen, n_rows, k};
    begin_graph(s);
    s->tensors[MN_SMALL_X] = small_tensor("x", MN_ROLE_INPUT, MN_F32, N_TOKENS, k);
    s->tensors[MN_SMALL_WEIGHT] =
        deeper(small_tensor("w", MN_ROLE_WEIGHT, dtype, n_expert, n_rows), k);
    s->tensors[MN_SMALL_EXPERTS] =
        small_tensor("experts", MN_ROLE_INPUT, MN_I32, N_TOKENS, n_chosen);
    s->tensors[Y] = deeper(small_tensor("y", MN_ROLE_OUTPUT, MN_F32, N_TOKENS, n_chosen), n_rows);
    memcpy(s->operands, operands, sizeof operands);
    s->nodes[0] = (mn_node){
        .op = MN_OP_MOE_LINEAR, .contract = 1, .n_in = Y + 1, .n_out = 1, .out_off = Y + 1};
    return finish_graph(s, 1, N_TENSORS, MN_COUNT(operands), what, MN_COUNT(what));
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Plane i of weight t at ptr, one part. false: this type cannot be made so: rows of scales for many
 * rows are parts of their own. */
static bool small_plane_of(const mn_tensor *t, uint32_t i, const uint8_t *ptr, mn_plane *out) {
    const uint32_t last = t->n_dim - 1;
    mn_plane_spec spec;
    mn_dtype e;
    if (!mn_dtype_plane(t->dtype.id, i, &spec) || spec.rows > 1)
        return false;
    if (!mn_dtype_by_id(spec.dtype, &e))
        return false;
    const int64_t blocks = mn_plane_values(&spec, t->dtype, t->dim[last]);
    int64_t bytes = blocks * (int64_t)e.block_bytes; /* of what lies behind a dim */
    *out = (mn_plane){.ptr = ptr, .kind = spec.kind, .dtype = e.id};
    for (uint32_t k = last; k-- > 0;) {
        out->dim[k] = spec.rows ? t->dim[k] : 1;
        out->stride[k] = spec.rows ? bytes : 0;
        bytes *= out->dim[k];
    }
    out->dim[last] = i ? blocks : t->dim[last];
    out->stride[last] = spec.by_block ? e.block_bytes : 0;
    out->bytes = (uint64_t)bytes;
    return true;
}

/* The planes of weight t in d->fill; p: [MN_PLANE_KINDS]. false: no such type, or fill is too
 * small. */
static bool small_planes_of(const mn_small_device *d, const mn_tensor *t, mn_plane *p) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < t->dtype.n_planes; i++) {
        if (!small_plane_of(t, i, d->fill + at, &p[i]))
            return false;
        at += p[i].bytes;
    }
    return at <= d->fill_bytes;
}

static mn_status small_put_weight(mn_small_device *d, const mn_tensor *t, mn_weights *set,
                                  mn_error *err) {
    mn_plane planes[MN_PLANE_KINDS];
    mn_event *event = NULL;
    if (!small_planes_of(d, t, planes))
        return mn_fail(err, MN_UNSUPPORTED, "no weights of this type to measure with");
    const mn_weight_src src = {
        .size = sizeof src,
        .tensor = MN_SMALL_WEIGHT,
        .n_parts = 1,
        .n_planes = t->dtype.n_planes,
        .plane_stride = sizeof *planes,
        .planes = planes,
        .dtype = t->dtype,
    };
    const mn_status st = d->b->weights_put(set, d->queue, &src, &event, err);
    return st ? st : mn_small_wait(d, event, err);
}

/* What a call returned beside MN_OK has to be there. */
static mn_status small_given(mn_status st, const void *made, const char *call, mn_error *err) {
    if (st || made)
        return st;
    return mn_fail(err, MN_INVALID, "%s says that it worked and returns nothing", call);
}

static mn_status import(mn_small_device *d, const mn_compile *c, mn_small_run *m, mn_error *err) {
    bool used = false;
    uint32_t kept = 0;
    mn_sealed *pages;
    const mn_compile *own = mn_given_compile(c, &pages);
    if (!own)
        return mn_fail_memory(err, sizeof *c);
    mn_status st = d->b->weights_open(d->dev, own, &m->weights, err);
    mn_sealed_free(pages);
    st = small_given(st, m->weights, "weights_open", err);
    for (uint32_t i = 0; i < c->graph->n_operands; i++)
        used |= c->graph->operands[i] == MN_SMALL_WEIGHT;
    if (!st && used)
        st = small_put_weight(d, &c->graph->tensors[MN_SMALL_WEIGHT], m->weights, err);
    return st ? st : d->b->weights_seal(m->weights, d->queue, &kept, err);
}

/* ---- running --------------------------------------------------------------------------------- */

mn_status mn_small_wait(mn_small_device *d, mn_event *event, mn_error *err) {
    const uint64_t begin = mn_now_ns();
    mn_status st = MN_TIMEOUT;
    if (!event)
        return MN_OK;
    while (st == MN_TIMEOUT && mn_now_ns() - begin < GIVE_UP_NS)
        MN_WATCHED(d->callee, "wait", st = d->b->wait(event, POLL_NS, err));
    d->stuck = d->stuck || st == MN_TIMEOUT;
    d->b->event_free(event);
    return st;
}

/* Children first. */
static void drop_objects(const mn_backend *b, const mn_small_run *m) {
    if (m->context)
        b->context_free(m->context);
    if (m->program)
        b->program_free(m->program);
    if (m->weights)
        b->weights_free(m->weights);
    if (m->x)
        b->buffer_free(m->x);
    if (m->y)
        b->buffer_free(m->y);
    if (m->experts)
        b->buffer_free(m->experts);
    mn_sealed_free(m->pages);
}

void mn_small_run_drop(mn_small_device *d, mn_small_run *m) {
    const mn_backend *b = d->b;
    if (d->stuck && MN_HAS(mn_backend, b, abort))
        MN_WATCHED(d->callee, "abort", b->abort(d->queue));
    MN_WATCHED(d->callee, "context_free", drop_objects(b, m));
    *m = (mn_small_run){0};
}

static mn_status make_buffer(const mn_small_device *d, uint64_t bytes, mn_buffer **out,
                             mn_error *err) {
    const mn_status st = mn_usual_alloc(d->b, d->dev, bytes, MN_MEM_DEVICE, out, err);
    return small_given(st, *out, "alloc", err);
}

/* Of a tensor [n_tokens, ...], of four bytes each. */
static uint64_t bytes_of_rows(const mn_tensor *t, int64_t rows) {
    for (uint32_t i = 1; i < t->n_dim; i++)
        rows *= t->dim[i];
    return (uint64_t)rows * sizeof(float);
}

/* x holds the fill; y and experts are zeroed. */
static mn_status small_bind(const mn_small_device *d, const mn_graph *g, int64_t rows_max,
                            mn_small_run *m, mn_error *err) {
    const bool has_experts = g->nodes[0].op == MN_OP_MOE_LINEAR;
    const uint32_t last = g->n_tensors - 1;
    const uint64_t in = bytes_of_rows(&g->tensors[MN_SMALL_X], rows_max);
    const uint64_t out = bytes_of_rows(&g->tensors[last], rows_max);
    const uint64_t ids = bytes_of_rows(&g->tensors[MN_SMALL_EXPERTS], rows_max);
    mn_status st = make_buffer(d, in, &m->x, err);
    if (!st)
        st = make_buffer(d, out, &m->y, err);
    if (!st && has_experts)
        st = make_buffer(d, ids, &m->experts, err);
    if (!st && in <= d->fill_bytes)
        st = d->b->write(d->queue, m->x, 0, d->fill, in, err);
    if (st)
        return st;
    const mn_binding bound[3] = {{MN_SMALL_X, 0, m->x, 0, in},
                                 {last, 0, m->y, 0, out},
                                 {MN_SMALL_EXPERTS, 0, m->experts, 0, ids}};
    const uint32_t n = has_experts ? 3 : 2;
    mn_sealed *pages;
    const mn_binding *own = mn_given_array(bound, n, sizeof *bound, &pages);
    if (!own)
        return mn_fail_memory(err, sizeof bound);
    st = d->b->context_bind(m->context, 0, own, n, sizeof *own, err);
    mn_sealed_free(pages);
    return st;
}

static mn_status small_compile(const mn_small_device *d, const mn_compile *c, mn_small_run *m,
                               mn_error *err) {
    const mn_compile *own = mn_given_compile(c, &m->pages);
    mn_status st = MN_OK;
    if (!own)
        return mn_fail_memory(err, sizeof *c);
    MN_WATCHED(d->callee, "compile", st = d->b->compile(d->dev, own, &m->program, err));
    return small_given(st, m->program, "compile", err);
}

mn_status mn_small_run_make(mn_small_device *d, const mn_small_graph *s, int64_t rows_max,
                            mn_small_run *out, mn_error *err) {
    mn_compile c = {
        .size = sizeof c,
        .precision = d->precision,
        .graph = s->given,
        .node_hi = s->g.n_nodes,
        .symbol_max = &rows_max,
    };
    *out = (mn_small_run){0};
    mn_status st = MN_OK;
    MN_WATCHED(d->callee, "weights_put", st = import(d, &c, out, err));
    c.weights = out->weights;
    if (!st)
        st = small_compile(d, &c, out, err);
    if (!st)
        st = mn_usual_context(d->b, out->program, d->queue, &out->context, err);
    st = small_given(st, out->context, "context_create", err);
    if (!st)
        st = small_bind(d, s->given, rows_max, out, err);
    if (st)
        mn_small_run_drop(d, out);
    return st;
}

mn_status mn_small_run_choose(mn_small_device *d, const mn_small_run *m, const int32_t *ids,
                              uint32_t n, mn_error *err) {
    mn_status st = MN_OK;
    MN_WATCHED(d->callee, "write",
               st = d->b->write(d->queue, m->experts, 0, ids, n * sizeof *ids, err));
    return st;
}

mn_status mn_small_run_step(mn_small_device *d, const mn_small_run *m, int64_t rows,
                            mn_error *err) {
    mn_event *event = NULL;
    mn_status st = MN_OK;
    MN_WATCHED(d->callee, "execute",
               st = mn_usual_execute(d->b, m->context, 0, &rows, &event, err));
    return st ? st : mn_small_wait(d, event, err);
}
