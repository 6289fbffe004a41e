/* measure.c -- how fast a device is, seen through its table: a matrix of weights against one row
 * and 512, a chain of tiny nodes, rows to and fro. Sizes grow only as far as the smaller ones
 * promise that time allows; every wait is bounded. The graphs are registry/small_graph.c's; nothing
 * is kept here: rates.c has the cache. */
#include "negotiate/offer.h"
#include "registry/small_graph.h"
#include "usual.h"
#include <stdio.h>
#include <string.h>

#define BIG_BYTES (UINT64_C(128) << 20) /* beyond the caches of most devices */
#define SMALL_N 1024
#define LARGE_K 4096
#define BUDGET_US 60e3 /* for one run of anything */
#define NO_EXCHANGE_US 1e-3

typedef struct {
    mn_small_device d;
    mn_small_graph *sg;
    mn_sealed *fill;
    char *note; /* why something could not be measured */
    size_t cap;
} bench;

/* The note; false, for the caller to return. */
static bool measure_say(bench *be, const char *what, mn_status st, mn_error *e) {
    mn_fail_plain(e);
    const char *why = st == MN_TIMEOUT ? "no answer within 2 s" : e->msg;
    snprintf(be->note, be->cap, "%s: %.120s", what, why);
    return false;
}

static double us_since(uint64_t begin_ns) {
    return (double)(mn_now_ns() - begin_ns) * 1e-3;
}

/* The best of the runs but the first, which warms up. */
static void keep_best(int run, double took_us, double *best_us) {
    if (run == 1 || (run && took_us < *best_us))
        *best_us = took_us;
}

static bool measure_make(bench *be, int64_t rows_max, mn_small_run *m) {
    mn_error e = MN_ERROR_INIT;
    const mn_status st = mn_small_run_make(&be->d, be->sg, rows_max, m, &e);
    return !st || measure_say(be, "measuring", st, &e);
}

/* Experts that rows choose: of n_used in turn, n_chosen each. */
typedef struct {
    int64_t n_chosen, n_used;
    int64_t next; /* of the next step */
    int32_t *ids; /* [rows, n_chosen] */
} chooser;

static mn_status chooser_fill(bench *be, const mn_small_run *m, int64_t rows, chooser *c,
                              mn_error *e) {
    const int64_t n = rows * c->n_chosen;
    for (int64_t i = 0; i < n; i++)
        c->ids[i] = (int32_t)((c->next + i) % c->n_used);
    c->next = (c->next + n) % c->n_used;
    return mn_small_run_choose(&be->d, m, c->ids, (uint32_t)n, e);
}

/* Microseconds of a step with so many rows; c: NULL, or what chooses their experts. */
static bool time_rows(bench *be, const mn_small_run *m, int64_t rows, chooser *c, double *us) {
    enum { RUNS = 9 };
    const mn_backend *b = be->d.b;
    mn_error e = MN_ERROR_INIT;
    double spent = 0;
    *us = 0;
    int64_t given = rows;
    if (MN_HAS(mn_backend, b, context_prepare))
        MN_WATCHED(be->d.callee, "context_prepare",
                   mn_usual_prepare(b, m->context, 0, &given, NULL));
    for (int i = 0; i < RUNS && (i < 2 || spent < BUDGET_US); i++) {
        mn_status st = c ? chooser_fill(be, m, rows, c, &e) : MN_OK;
        const uint64_t begin = mn_now_ns();
        if (!st)
            st = mn_small_run_step(&be->d, m, rows, &e);
        if (st)
            return measure_say(be, "a step", st, &e);
        const double took = MN_MAX(us_since(begin), 1e-2);
        keep_best(i, took, us);
        spent += took;
    }
    return true;
}

/* The same of the graph that was built, compiled and freed around it. */
static bool time_graph(bench *be, int64_t rows, double *us) {
    mn_small_run m = {0};
    bool ok = measure_make(be, rows, &m);
    if (ok)
        ok = time_rows(be, &m, rows, NULL, us);
    mn_small_run_drop(&be->d, &m);
    return ok;
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool measure_build(bench *be, uint32_t op, uint32_t n, uint32_t dtype, int64_t n_rows,
                          int64_t k) {
    if (mn_small_graph_build(be->sg, op, n, dtype, n_rows, k))
        return true;
    snprintf(be->note, be->cap, "out of memory");
    return false;
}

static bool time_chain(bench *be, uint32_t op, uint32_t n, uint32_t dtype, double *us) {
    return measure_build(be, op, n, dtype, 256, 256) && time_graph(be, 1, us);
}

/* Of one node, by a chain of them against one; one_us: of the step with one. */
static bool time_node(bench *be, uint32_t op, uint32_t dtype, double *node_us, double *one_us) {
    enum { N = MN_SMALL_CHAIN };
    double many;
    if (!time_chain(be, op, 1, dtype, one_us) || !time_chain(be, op, N, dtype, &many))
        return false;
    *node_us = MN_MAX((many - *one_us) / (N - 1), 1e-3);
    return true;
}

/* Of the first operation that the device has. */
static bool measure_launch(bench *be, uint32_t dtype, mn_measured *out) {
    static const uint32_t ops[] = {MN_OP_ADD, MN_OP_RMS_NORM, MN_OP_LINEAR};
    double one;
    for (size_t i = 0; i < MN_COUNT(ops) && !be->d.stuck; i++) {
        if (!time_node(be, ops[i], dtype, &out->node_us, &one))
            continue;
        out->step_us = MN_MAX(one - out->node_us, 1e-3);
        be->note[0] = 0;
        return true;
    }
    return false;
}

/* Members of a group divide a product and bring its parts together, other nodes they do each for
 * itself. */
static bool exchanges(bench *be, const mn_offer *o, uint32_t dtype, mn_measured *out) {
    double product;
    double one;
    out->exchange_us = NO_EXCHANGE_US;
    if (!o->record->n_members)
        return true;
    if (!time_node(be, MN_OP_LINEAR, dtype, &product, &one))
        return false;
    out->exchange_us = MN_MAX(product - out->node_us, NO_EXCHANGE_US);
    return true;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Memory on both sides, for `bytes` there and back. */
typedef struct {
    mn_buffer *device, *host;
} copy_ends;

static mn_status copy_once(bench *be, const copy_ends *ends, uint64_t bytes, mn_error *e) {
    const mn_small_device *d = &be->d;
    mn_event *event = NULL;
    mn_status st = MN_OK;
    MN_WATCHED(d->callee, "write", st = d->b->write(d->queue, ends->device, 0, d->fill, bytes, e));
    if (!st)
        MN_WATCHED(d->callee, "read",
                   st = d->b->read(d->queue, ends->device, 0, ends->host, 0, bytes, &event, e));
    return st ? st : mn_small_wait(&be->d, event, e);
}

/* Microseconds of one way. */
static bool to_and_fro(bench *be, const copy_ends *ends, uint64_t bytes, double *us) {
    enum { RUNS = 4 };
    mn_error e = MN_ERROR_INIT;
    for (int i = 0; i < RUNS; i++) {
        const uint64_t begin = mn_now_ns();
        const mn_status st = copy_once(be, ends, bytes, &e);
        if (st)
            return measure_say(be, "a copy", st, &e);
        keep_best(i, us_since(begin) / 2, us);
    }
    return true;
}

static mn_status make_ends(const mn_small_device *d, uint64_t bytes, copy_ends *ends, mn_error *e) {
    mn_status st = mn_usual_alloc(d->b, d->dev, bytes, MN_MEM_DEVICE, &ends->device, e);
    if (!st)
        st = mn_usual_alloc(d->b, d->dev, bytes, MN_MEM_HOST_PINNED, &ends->host, e);
    return st;
}

static void free_ends(const mn_small_device *d, const copy_ends *ends) {
    if (d->stuck && MN_HAS(mn_backend, d->b, abort))
        d->b->abort(d->queue);
    if (ends->device)
        d->b->buffer_free(ends->device);
    if (ends->host)
        d->b->buffer_free(ends->host);
}

/* A small row, and so many bytes that their rate shows. */
static bool copies(bench *be, mn_measured *out) {
    const uint64_t row = 16 << 10;
    const uint64_t many = 4 << 20;
    copy_ends ends = {NULL, NULL};
    mn_error e = MN_ERROR_INIT;
    double row_us = 0;
    double many_us = 0;
    mn_status st = MN_OK;
    MN_WATCHED(be->d.callee, "alloc", st = make_ends(&be->d, many, &ends, &e));
    bool ok = !st || measure_say(be, "buffers for a copy", st, &e);
    if (ok)
        ok = to_and_fro(be, &ends, row, &row_us);
    if (ok)
        ok = to_and_fro(be, &ends, many, &many_us);
    MN_WATCHED(be->d.callee, "buffer_free", free_ends(&be->d, &ends));
    if (!ok)
        return false;
    const double us_per_byte = MN_MAX(many_us - row_us, 1) / (double)(many - row);
    out->copy_us = MN_MAX(row_us - us_per_byte * (double)row, 1e-2);
    out->copy_gbps = 1e-3 / us_per_byte;
    return true;
}

/* ---- products -------------------------------------------------------------------------------- */

static double without_launch(const mn_measured *m, double us) {
    return MN_MAX(us - m->step_us, us * 0.3);
}

static void set_decode(mn_measured *out, double bytes, double us) {
    out->decode_gbps = bytes / without_launch(out, us) * 1e-3;
}

static void set_prefill(mn_measured *out, double flop, double us) {
    out->prefill_tflops = flop / without_launch(out, us) * 1e-6;
}

static double measure_weight_bytes(mn_dtype t, int64_t n, int64_t k) {
    uint64_t bytes = 0;
    mn_dtype_bytes(t, (uint64_t)(n * k), &bytes);
    return (double)bytes;
}

/* A small matrix says what the large ones would take. many_us: of 512 rows; 0 = one row took too
 * long for that to be tried, and stands for them. */
static bool small_product(bench *be, mn_dtype t, double *one_us, double *many_us,
                          mn_measured *out) {
    const double flop = 2.0 * SMALL_N * SMALL_N;
    mn_small_run m = {0};
    *many_us = 0;
    bool ok = measure_build(be, MN_OP_LINEAR, 1, t.id, SMALL_N, SMALL_N);
    if (ok)
        ok = measure_make(be, MN_SMALL_ROWS, &m);
    if (ok)
        ok = time_rows(be, &m, 1, NULL, one_us);
    if (ok && *one_us * MN_SMALL_ROWS < 8 * BUDGET_US) /* a batch is never slower than its rows */
        ok = time_rows(be, &m, MN_SMALL_ROWS, NULL, many_us);
    mn_small_run_drop(&be->d, &m);
    if (!ok)
        return false;
    set_decode(out, measure_weight_bytes(t, SMALL_N, SMALL_N), *one_us);
    if (*many_us > 0)
        set_prefill(out, flop * MN_SMALL_ROWS, *many_us);
    else
        set_prefill(out, flop, *one_us);
    return true;
}

/* 512 rows by a matrix of LARGE_K x LARGE_K, if the small one promises that time allows it. */
static void large_prefill(bench *be, mn_dtype t, double small_us, mn_measured *out) {
    const double large = (double)LARGE_K * LARGE_K;
    const double promised_us = small_us * large / ((double)SMALL_N * SMALL_N);
    double us;
    const bool fits = measure_weight_bytes(t, LARGE_K, LARGE_K) <= (double)be->d.fill_bytes;
    if (small_us <= 0 || promised_us >= BUDGET_US || !fits)
        return;
    if (measure_build(be, MN_OP_LINEAR, 1, t.id, LARGE_K, LARGE_K) &&
        time_graph(be, MN_SMALL_ROWS, &us))
        set_prefill(out, 2 * large * MN_SMALL_ROWS, us);
}

/* One row by as many rows of weights as time, the fill and a quarter of the memory allow. */
static void large_decode(bench *be, mn_dtype t, double small_us, uint64_t free_bytes,
                         mn_measured *out) {
    const double in_budget = BUDGET_US * measure_weight_bytes(t, SMALL_N, SMALL_N) / small_us;
    const double in_memory = free_bytes ? (double)free_bytes / 4 : in_budget;
    const double in_fill = MN_MIN((double)be->d.fill_bytes, in_budget);
    const double planes = t.n_planes > 1 ? 1.25 : 1; /* beside the data */
    const double row = measure_weight_bytes(t, 1, LARGE_K) * planes;
    const int64_t n = (int64_t)(MN_MIN(in_fill, in_memory) / row);
    double us;
    if (be->d.stuck || n < SMALL_N)
        return;
    if (measure_build(be, MN_OP_LINEAR, 1, t.id, n, LARGE_K) && time_graph(be, 1, &us))
        set_decode(out, measure_weight_bytes(t, n, LARGE_K), us);
}

static bool measure_products(bench *be, mn_dtype t, uint64_t free_bytes, mn_measured *out) {
    double one_us = 0;
    double many_us = 0;
    if (!small_product(be, t, &one_us, &many_us, out))
        return false;
    large_prefill(be, t, many_us, out);
    large_decode(be, t, one_us, free_bytes, out);
    return !be->d.stuck;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool in_range(const mn_measured *m) {
    static const double most[] = {1e5, 1e5, 1e6, 1e6, 1e6, 1e5, 1e6}; /* GB/s, TFLOP/s, us */
    const double v[] = {m->decode_gbps, m->prefill_tflops, m->node_us,    m->step_us,
                        m->copy_us,     m->copy_gbps,      m->exchange_us};
    for (size_t i = 0; i < MN_COUNT(v); i++)
        if (!(v[i] > 1e-7 && v[i] < most[i]))
            return false;
    return true;
}

/* be has a queue and memory. */
static bool measure_all(bench *be, const mn_offer *o, mn_dtype type, mn_measured *out) {
    bool ok = measure_launch(be, type.id, out) && exchanges(be, o, type.id, out) && copies(be, out);
    if (ok)
        ok = measure_products(be, type, o->free_bytes, out);
    if (!ok || in_range(out))
        return ok;
    snprintf(be->note, be->cap, "measured figures that cannot be");
    return false;
}

/* Weights and rows for d, read-only. NULL = out of memory. */
static mn_sealed *make_fill(mn_small_device *d) {
    mn_sealed *s = mn_sealed_open(d->fill_bytes);
    if (!s)
        return NULL;
    uint8_t *fill = mn_sealed_take(s, d->fill_bytes, 1);
    memset(fill, 0x11, d->fill_bytes);
    d->fill = fill;
    return mn_sealed_close(s) ? s : NULL;
}

/* A queue, a fill and a place for graphs. false: the note says why there are none. */
static bool bench_open(bench *be, const mn_offer *o, uint64_t fill_bytes, char *note, size_t cap) {
    const mn_plugin_record *p = o->record->plugin;
    mn_error e = MN_ERROR_INIT;
    mn_status st = MN_OK;
    *be = (bench){
        .d = {.b = p->backend,
              .callee = p->callee,
              .dev = o->device,
              .precision = o->precision,
              .fill_bytes = fill_bytes},
        .note = note,
        .cap = cap,
    };
    note[0] = 0;
    MN_WATCHED(p->callee, "queue_create",
               st = mn_usual_queue(p->backend, o->device, &be->d.queue, &e));
    if (st)
        return measure_say(be, "a queue", st, &e);
    be->fill = make_fill(&be->d);
    be->sg = mn_calloc(1, sizeof *be->sg);
    if (!be->fill || !be->sg)
        snprintf(note, cap, "out of memory");
    return be->fill && be->sg;
}

static void bench_close(bench *be) {
    if (be->sg)
        mn_small_graph_clear(be->sg);
    if (be->d.queue)
        MN_WATCHED(be->d.callee, "queue_free", be->d.b->queue_free(be->d.queue));
    mn_sealed_free(be->fill);
    mn_free(be->sg);
}

bool mn_measure(const mn_offer *o, mn_dtype type, mn_measured *out, char *note, size_t cap) {
    bench be;
    *out = (mn_measured){0};
    const bool ok = bench_open(&be, o, BIG_BYTES, note, cap) && measure_all(&be, o, type, out);
    bench_close(&be);
    return ok;
}

/* ---- experts --------------------------------------------------------------------------------- */

/* How many rows of a prompt, and of how many experts: those of each expert are as many as 512 rows
 * of the model give it, and all of them take a quarter of the budget by the rate of LINEAR, which
 * is too good. */
static int64_t rows_of_prompt(mn_expert_shape shape, const mn_measured *of, int64_t *n_used) {
    const double each = (double)(MN_SMALL_ROWS * shape.n_chosen) / (double)shape.n_expert;
    const double flop = 2.0 * (double)(shape.n * shape.k);
    const double in_budget = BUDGET_US / 4 * of->prefill_tflops * 1e6 / flop; /* pairs */
    const double experts = MN_MIN((double)*n_used, MN_MAX(in_budget / each, 1));
    const double rows = MN_MIN(experts * each / (double)shape.n_chosen, MN_SMALL_ROWS);
    *n_used = MN_MAX((int64_t)experts, shape.n_chosen);
    return MN_MAX((int64_t)rows, 1);
}

/* One row, then rows of a prompt, by a weight of n_used experts. */
static bool time_experts(bench *be, mn_dtype type, mn_expert_shape shape, const mn_measured *of,
                         chooser *c, mn_measured_experts *out) {
    const double bytes = measure_weight_bytes(type, shape.n_chosen * shape.n, shape.k);
    int64_t n_used = c->n_used;
    const int64_t rows = rows_of_prompt(shape, of, &n_used);
    const double pairs = (double)(rows * shape.n_chosen);
    mn_measured rates = *of;
    mn_small_run m;
    double us;
    if (!measure_make(be, rows, &m))
        return false;
    bool ok = time_rows(be, &m, 1, c, &us);
    set_decode(&rates, bytes, us);
    c->n_used = n_used;
    if (ok)
        ok = time_rows(be, &m, rows, c, &us);
    set_prefill(&rates, 2 * pairs * (double)(shape.n * shape.k), us);
    mn_small_run_drop(&be->d, &m);
    *out = (mn_measured_experts){rates.decode_gbps, rates.prefill_tflops};
    return ok && !be->d.stuck && in_range(&rates);
}

bool mn_measure_experts(const mn_offer *o, mn_dtype type, mn_expert_shape shape,
                        const mn_measured *of, mn_measured_experts *out, char *note, size_t cap) {
    const double planes = type.n_planes > 1 ? 1.25 : 1; /* beside the data */
    const double expert = measure_weight_bytes(type, shape.n, shape.k) * planes;
    const double free_bytes = o->free_bytes ? (double)o->free_bytes / 4 : (double)BIG_BYTES;
    const double fit = MN_MIN(free_bytes, (double)BIG_BYTES) / expert;
    const int64_t n = MN_MIN((int64_t)fit, shape.n_expert);
    chooser c = {.n_chosen = shape.n_chosen, .n_used = n};
    bench be;
    *out = (mn_measured_experts){0};
    if (n < shape.n_chosen) {
        snprintf(note, cap, "experts too large to be measured");
        return false;
    }
    c.ids = mn_alloc((size_t)(MN_SMALL_ROWS * shape.n_chosen), sizeof *c.ids);
    const double x = (double)(MN_SMALL_ROWS * shape.k) * sizeof(float);
    const double fill = MN_MAX((double)n * expert, x) + (1 << 20);
    bool ok = bench_open(&be, o, (uint64_t)fill, note, cap) && c.ids;
    if (ok && !mn_small_experts_build(be.sg, type.id, n, shape.n_chosen, shape.n, shape.k))
        ok = false;
    ok = ok && time_experts(&be, type, shape, of, &c, out);
    bench_close(&be);
    mn_free(c.ids);
    return ok;
}
