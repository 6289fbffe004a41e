/* measure.c -- how fast a device is, seen through its table: a matrix of weights against one row
 * and 512, a chain of tiny nodes, rows to and fro. Sizes grow only as far as the smaller ones
 * promise that time allows; every wait is bounded. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

#define CHAIN 64u
#define ROWS 512
#define BIG_BYTES (UINT64_C(128) << 20) /* beyond the caches of most devices */
#define SMALL_N 1024
#define LARGE_K 4096
#define BUDGET_US 60e3 /* for one run of anything */
#define GIVE_UP_NS UINT64_C(2000000000)
#define POLL_NS UINT64_C(100000000)

/* A graph of our own: x -> n nodes -> y. */
typedef struct {
    mn_graph g;
    mn_symbol symbol;
    mn_node nodes[CHAIN];
    mn_tensor tensors[CHAIN + 2];
    int32_t operands[CHAIN * 4];
    uint64_t attrs[2];
} small_graph;

typedef struct {
    const mn_backend *b;
    const mn_callee *callee;
    mn_device *dev;
    uint32_t precision;
    mn_queue *queue;
    uint8_t *fill; /* weights; a pattern that every type reads as ordinary numbers */
    uint64_t fill_bytes;
    small_graph *sg;
    bool stuck;
    char *note;
    size_t cap;
} bench;

/* What one compiled graph holds; freed children first. */
typedef struct {
    mn_weights *weights;
    mn_program *program;
    mn_context *context;
    mn_buffer *x, *y;
} made;

static bool say(bench *be, const char *what, mn_status st, mn_error *e) {
    e->msg[sizeof e->msg - 1] = 0;
    snprintf(be->note, be->cap, "%s: %.120s", what,
             st == MN_TIMEOUT ? "no answer within 2 s" : e->msg);
    return false;
}

static mn_status settle(bench *be, mn_event *event, mn_error *e) {
    uint64_t begin = mn_now_ns();
    mn_status st = MN_OK;
    if (!event)
        return MN_OK;
    do
        MN_WATCHED(be->callee, "wait", st = be->b->wait(event, POLL_NS, e));
    while (st == MN_TIMEOUT && mn_now_ns() - begin < GIVE_UP_NS);
    be->stuck = be->stuck || st == MN_TIMEOUT;
    be->b->event_free(event);
    return st;
}

/* ---- graphs ---------------------------------------------------------------------------------- */
static mn_tensor tensor(const char *name, uint32_t role, uint32_t dtype, int64_t rows,
                        int64_t cols) {
    mn_tensor t = {.role = role,
                   .n_dim = cols ? 2 : 1,
                   .alias_of = -1,
                   .dim = {rows, cols},
                   .name = mn_str_of(name)};
    mn_dtype_by_id(dtype, &t.dtype);
    return t;
}

/* A chain of n nodes; LINEAR with a weight [n_rows, k] (square if n > 1), RMS_NORM, or ADD. */
static void build(small_graph *s, uint32_t op, uint32_t n, uint32_t dtype, int64_t n_rows,
                  int64_t k) {
    enum { X, WEIGHT, FIRST };
    const double eps = 1e-5;
    memset(s, 0, sizeof *s);
    s->symbol = (mn_symbol){"n_tokens", 1, ROWS, 1, MN_SYMBOL_SHAPE, -1, 1, 0};
    s->tensors[X] = tensor("x", MN_ROLE_INPUT, MN_F32, MN_DIM(0), k);
    s->tensors[WEIGHT] = op == MN_OP_LINEAR ? tensor("w", MN_ROLE_WEIGHT, dtype, n_rows, k)
                                            : tensor("w", MN_ROLE_WEIGHT, MN_F32, k, 0);
    memcpy(&s->attrs[0], &eps, sizeof eps);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t in = i ? (int32_t)(FIRST + i - 1) : X, second = op == MN_OP_ADD ? X : WEIGHT;
        mn_node *node = &s->nodes[i];
        *node = (mn_node){
            .op = op, .contract = 1, .in_off = at, .n_in = op == MN_OP_LINEAR ? 3 : 2, .n_out = 1};
        s->operands[at++] = in;
        s->operands[at++] = second;
        if (op == MN_OP_LINEAR)
            s->operands[at++] = -1;
        node->out_off = at;
        s->operands[at++] = (int32_t)(FIRST + i);
        node->n_attr = op == MN_OP_RMS_NORM ? 2 : 0;
        s->tensors[FIRST + i] =
            tensor("y", i + 1 == n ? MN_ROLE_OUTPUT : MN_ROLE_INTERIOR, MN_F32, MN_DIM(0), n_rows);
    }
    s->g = (mn_graph){.size = sizeof s->g,
                      .n_nodes = n,
                      .n_tensors = FIRST + n,
                      .n_symbols = 1,
                      .node_stride = sizeof(mn_node),
                      .tensor_stride = sizeof(mn_tensor),
                      .symbol_stride = sizeof(mn_symbol),
                      .n_operands = at,
                      .nodes = s->nodes,
                      .tensors = s->tensors,
                      .symbols = &s->symbol,
                      .operands = s->operands,
                      .attrs = s->attrs,
                      .n_attrs = 2};
    const int64_t what[] = {op, n, dtype, n_rows, k};
    for (uint64_t i = 0; i < 4; i++)
        s->g.digest[i] = mn_hash(what, sizeof what, i + 77);
}

/* ---- one graph on the device ----------------------------------------------------------------- */
static bool planes_of(bench *be, const mn_tensor *t, mn_plane *p, uint32_t *n) {
    const mn_dtype d = t->dtype;
    const uint32_t last = t->n_dim - 1;
    uint64_t at = 0;
    *n = d.n_planes;
    for (uint32_t i = 0; i < *n; i++) {
        mn_plane_spec spec;
        mn_dtype e;
        /* rows of scales for many rows are parts of their own */
        if (!mn_dtype_plane(d.id, i, &spec) || !mn_dtype_by_id(spec.dtype, &e) || spec.rows > 1)
            return false;
        const int64_t rows = last && spec.rows ? t->dim[0] : 1;
        const int64_t blocks = spec.by_block ? t->dim[last] / (int64_t)d.block_elems : 1;
        const int64_t row = blocks * (int64_t)e.block_bytes;
        p[i] = (mn_plane){.ptr = be->fill + at, .kind = spec.kind, .dtype = e.id};
        p[i].dim[0] = rows;
        p[i].dim[last] = i ? blocks : t->dim[last];
        p[i].stride[0] = spec.rows ? row : 0;
        p[i].stride[last] = spec.by_block ? e.block_bytes : 0;
        p[i].bytes = (uint64_t)(row * rows);
        at += p[i].bytes;
    }
    return at <= be->fill_bytes;
}

static mn_status import(bench *be, const mn_compile *c, made *m, mn_error *e) {
    const mn_tensor *t = &c->graph->tensors[1];
    mn_plane planes[MN_PLANE_KINDS];
    mn_event *event = NULL;
    uint32_t n, kept;
    mn_status st = be->b->weights_open(be->dev, c, &m->weights, e);
    if (st)
        return st;
    bool used = false;
    for (uint32_t i = 0; i < c->graph->n_operands; i++)
        used |= c->graph->operands[i] == 1;
    if (used) {
        if (!planes_of(be, t, planes, &n))
            return mn_fail(e, MN_UNSUPPORTED, "no weights of this type to measure with");
        mn_weight_src src = {sizeof src, 1, 1, n, sizeof *planes, 0, planes, t->dtype};
        st = be->b->weights_put(m->weights, be->queue, &src, &event, e);
        if (!st)
            st = settle(be, event, e);
    }
    return st ? st : be->b->weights_seal(m->weights, be->queue, &kept, e);
}

static void drop_objects(const mn_backend *b, const made *m) {
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
}

static void drop(bench *be, made *m) {
    const mn_backend *b = be->b;
    if (be->stuck && MN_HAS(mn_backend, b, abort))
        MN_WATCHED(be->callee, "abort", b->abort(be->queue));
    MN_WATCHED(be->callee, "context_free", drop_objects(b, m));
    *m = (made){0};
}

static bool make(bench *be, int64_t rows_max, made *m) {
    const mn_graph *g = &be->sg->g;
    const mn_backend *b = be->b;
    const uint32_t last = g->n_tensors - 1;
    const uint64_t in = (uint64_t)(rows_max * g->tensors[0].dim[1]) * 4,
                   out = (uint64_t)(rows_max * g->tensors[last].dim[1]) * 4;
    mn_error e = MN_ERROR_INIT;
    mn_compile c = {.size = sizeof c,
                    .precision = be->precision,
                    .graph = g,
                    .node_hi = g->n_nodes,
                    .symbol_max = &rows_max,
                    .k_dtype = MN_F16,
                    .v_dtype = MN_F16};
    mn_status st = MN_OK;
    MN_WATCHED(be->callee, "weights_put", st = import(be, &c, m, &e));
    c.weights = m->weights;
    if (!st)
        MN_WATCHED(be->callee, "compile", st = b->compile(be->dev, &c, &m->program, &e));
    if (!st)
        st = b->context_create(m->program, be->queue, &m->context, &e);
    if (!st)
        st = b->alloc(be->dev, in, MN_MEM_DEVICE, &m->x, &e);
    if (!st)
        st = b->alloc(be->dev, out, MN_MEM_DEVICE, &m->y, &e);
    if (!st && in <= be->fill_bytes)
        st = b->write(be->queue, m->x, 0, be->fill, in, &e);
    mn_binding bind[2] = {{0, 0, m->x, 0, in}, {last, 0, m->y, 0, out}};
    if (!st)
        st = b->context_bind(m->context, 0, bind, 2, sizeof *bind, &e);
    if (!st)
        return true;
    drop(be, m);
    return say(be, "measuring", st, &e);
}

/* The best of a few runs; the first is not counted. */
static bool time_rows(bench *be, const made *m, int64_t rows, double *us) {
    mn_error e = MN_ERROR_INIT;
    double spent = 0;
    *us = 0;
    if (MN_HAS(mn_backend, be->b, context_prepare))
        be->b->context_prepare(m->context, 0, &rows, NULL);
    for (int i = 0; i < 9 && (i < 2 || spent < BUDGET_US); i++) {
        mn_event *event = NULL;
        uint64_t begin = mn_now_ns();
        mn_status st = MN_OK;
        MN_WATCHED(be->callee, "execute", st = be->b->execute(m->context, 0, &rows, &event, &e));
        if (!st)
            st = settle(be, event, &e);
        if (st)
            return say(be, "a step", st, &e);
        double took = (double)(mn_now_ns() - begin) * 1e-3;
        took = MN_MAX(took, 1e-2);
        if (i == 1 || (i && took < *us))
            *us = took;
        spent += took;
    }
    return true;
}

static bool time_graph(bench *be, int64_t rows, double *us) {
    made m = {0};
    bool ok = make(be, rows, &m) && time_rows(be, &m, rows, us);
    drop(be, &m);
    return ok;
}

/* ---- the four figures ------------------------------------------------------------------------ */
static bool launch(bench *be, uint32_t dtype, mn_measured *out) {
    static const uint32_t ops[] = {MN_OP_ADD, MN_OP_RMS_NORM, MN_OP_LINEAR};
    double one, many;
    for (size_t i = 0; i < MN_COUNT(ops) && !be->stuck; i++) {
        build(be->sg, ops[i], 1, dtype, 256, 256);
        if (!time_graph(be, 1, &one))
            continue;
        build(be->sg, ops[i], CHAIN, dtype, 256, 256);
        if (!time_graph(be, 1, &many))
            continue;
        out->node_us = MN_MAX((many - one) / (CHAIN - 1), 1e-3);
        out->step_us = MN_MAX(one - out->node_us, 1e-3);
        be->note[0] = 0;
        return true;
    }
    return false;
}

static bool to_and_fro(bench *be, mn_buffer *dev, mn_buffer *host, uint64_t bytes, double *us) {
    mn_error e = MN_ERROR_INIT;
    for (int i = 0; i < 4; i++) {
        mn_event *event = NULL;
        uint64_t begin = mn_now_ns();
        mn_status st = be->b->write(be->queue, dev, 0, be->fill, bytes, &e);
        if (!st)
            st = be->b->read(be->queue, dev, 0, host, 0, bytes, &event, &e);
        if (!st)
            st = settle(be, event, &e);
        if (st)
            return say(be, "a copy", st, &e);
        double took = (double)(mn_now_ns() - begin) * 0.5e-3;
        if (i == 1 || (i && took < *us))
            *us = took;
    }
    return true;
}

static bool copies(bench *be, mn_measured *out) {
    const uint64_t row = 16 << 10, many = 4 << 20;
    mn_buffer *dev = NULL, *host = NULL;
    mn_error e = MN_ERROR_INIT;
    double few = 0, lots = 0;
    mn_status st = be->b->alloc(be->dev, many, MN_MEM_DEVICE, &dev, &e);
    if (!st)
        st = be->b->alloc(be->dev, many, MN_MEM_HOST_PINNED, &host, &e);
    bool ok = st ? say(be, "buffers for a copy", st, &e)
                 : to_and_fro(be, dev, host, row, &few) && to_and_fro(be, dev, host, many, &lots);
    if (be->stuck && MN_HAS(mn_backend, be->b, abort))
        be->b->abort(be->queue);
    if (dev)
        be->b->buffer_free(dev);
    if (host)
        be->b->buffer_free(host);
    if (!ok)
        return false;
    double per = MN_MAX(lots - few, 1) / (double)(many - row);
    out->copy_us = MN_MAX(few - per * (double)row, 1e-2);
    out->copy_gbps = 1e-3 / per;
    return true;
}

static double without_launch(const mn_measured *m, double us) {
    return MN_MAX(us - m->step_us, us * 0.3);
}

static void set_rates(mn_measured *out, double decode_bytes, double decode_us, double flop,
                      double prefill_us) {
    if (decode_us > 0)
        out->decode_gbps = decode_bytes / without_launch(out, decode_us) * 1e-3;
    if (prefill_us > 0)
        out->prefill_tflops = flop / without_launch(out, prefill_us) * 1e-6;
}

static uint64_t weight_bytes(mn_dtype t, int64_t n, int64_t k) {
    uint64_t bytes = 0;
    return mn_dtype_bytes(t, (uint64_t)(n * k), &bytes) ? bytes : 0;
}

/* A small matrix first: it says what the large ones would take. */
static bool products(bench *be, mn_dtype t, uint64_t free_bytes, mn_measured *out) {
    const double small = (double)SMALL_N * SMALL_N, large = (double)LARGE_K * LARGE_K;
    const double small_bytes = (double)weight_bytes(t, SMALL_N, SMALL_N);
    double one = 0, many = 0, us;
    made m = {0};
    build(be->sg, MN_OP_LINEAR, 1, t.id, SMALL_N, SMALL_N);
    bool ok = make(be, ROWS, &m) && time_rows(be, &m, 1, &one);
    if (ok && one * ROWS < 8 * BUDGET_US)
        ok = time_rows(be, &m, ROWS, &many); /* a batch is never slower than its rows */
    drop(be, &m);
    if (!ok)
        return false;
    set_rates(out, small_bytes, one, 2 * small * (many > 0 ? ROWS : 1), many > 0 ? many : one);
    if (many > 0 && many * large / small < BUDGET_US) {
        build(be->sg, MN_OP_LINEAR, 1, t.id, LARGE_K, LARGE_K);
        if (weight_bytes(t, LARGE_K, LARGE_K) <= be->fill_bytes && time_graph(be, ROWS, &us))
            set_rates(out, 0, 0, 2 * large * ROWS, us);
    }
    double most = MN_MIN((double)be->fill_bytes, BUDGET_US * small_bytes / one);
    if (free_bytes)
        most = MN_MIN(most, (double)free_bytes / 4);
    int64_t n =
        (int64_t)(most / ((double)weight_bytes(t, 1, LARGE_K) * (t.n_planes > 1 ? 1.25 : 1)));
    if (!be->stuck && n >= SMALL_N) {
        build(be->sg, MN_OP_LINEAR, 1, t.id, n, LARGE_K);
        if (time_graph(be, 1, &us))
            set_rates(out, (double)weight_bytes(t, n, LARGE_K), us, 0, 0);
    }
    return !be->stuck;
}

static bool in_range(const mn_measured *m) {
    const double v[] = {m->decode_gbps, m->prefill_tflops, m->node_us,
                        m->step_us,     m->copy_us,        m->copy_gbps};
    static const double most[] = {1e5, 1e5, 1e6, 1e6, 1e6, 1e5}; /* GB/s, TFLOP/s, us */
    for (size_t i = 0; i < MN_COUNT(v); i++)
        if (!(v[i] > 1e-7 && v[i] < most[i]))
            return false;
    return true;
}

bool mn_measure(const mn_plugin_record *plugin, mn_device *d, uint32_t precision, mn_dtype type,
                uint64_t free_bytes, mn_measured *out, char *note, size_t cap) {
    const mn_backend *b = plugin->backend;
    bench be = {.b = b,
                .callee = plugin->callee,
                .dev = d,
                .precision = precision,
                .fill_bytes = BIG_BYTES,
                .note = note,
                .cap = cap};
    mn_error e = MN_ERROR_INIT;
    *out = (mn_measured){0};
    note[0] = 0;
    mn_status st = MN_OK;
    MN_WATCHED(be.callee, "queue_create", st = b->queue_create(d, &be.queue, &e));
    if (st)
        return say(&be, "a queue", st, &e);
    be.fill = mn_alloc_aligned(BIG_BYTES, 4096);
    be.sg = mn_alloc(1, sizeof *be.sg);
    bool ok = be.fill && be.sg;
    if (ok) {
        memset(be.fill, 0x11, BIG_BYTES);
        ok = launch(&be, type.id, out) && copies(&be, out) && products(&be, type, free_bytes, out);
    } else
        snprintf(note, cap, "out of memory");
    MN_WATCHED(be.callee, "queue_free", b->queue_free(be.queue));
    if (ok && !in_range(out)) {
        snprintf(note, cap, "measured figures that cannot be");
        ok = false;
    }
    mn_free(be.fill);
    mn_free(be.sg);
    return ok;
}
