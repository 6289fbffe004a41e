/* measure.c -- how fast a device is, seen through its table: a matrix of weights against one row
 * and 512, a chain of tiny nodes, rows to and fro. Sizes grow only as far as the smaller ones
 * promise that time allows; every wait is bounded. The graphs are registry/small_graph.c's; nothing
 * is kept here: rates.c has the cache. */
#include "negotiate/offer.h"
#include "registry/small_graph.h"
#include <stdio.h>
#include <string.h>

#define BIG_BYTES (UINT64_C(128) << 20) /* beyond the caches of most devices */
#define SMALL_N 1024
#define LARGE_K 4096
#define BUDGET_US 60e3 /* for one run of anything */

typedef struct {
    mn_small_device d;
    mn_small_graph *sg;
    char *note; /* why something could not be measured */
    size_t cap;
} bench;

static bool say(bench *be, const char *what, mn_status st, mn_error *e) {
    mn_fail_plain(e);
    snprintf(be->note, be->cap, "%s: %.120s", what,
             st == MN_TIMEOUT ? "no answer within 2 s" : e->msg);
    return false;
}

static bool make(bench *be, int64_t rows_max, mn_small_run *m) {
    mn_error e = MN_ERROR_INIT;
    const mn_status st = mn_small_run_make(&be->d, be->sg, rows_max, m, &e);
    return !st || say(be, "measuring", st, &e);
}

/* The best of a few runs; the first is not counted. */
static bool time_rows(bench *be, const mn_small_run *m, int64_t rows, double *us) {
    mn_error e = MN_ERROR_INIT;
    double spent = 0;
    *us = 0;
    if (MN_HAS(mn_backend, be->d.b, context_prepare))
        be->d.b->context_prepare(m->context, 0, &rows, NULL);
    for (int i = 0; i < 9 && (i < 2 || spent < BUDGET_US); i++) {
        const uint64_t begin = mn_now_ns();
        const mn_status st = mn_small_run_step(&be->d, m, rows, &e);
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
    mn_small_run m = {0};
    const bool ok = make(be, rows, &m) && time_rows(be, &m, rows, us);
    mn_small_run_drop(&be->d, &m);
    return ok;
}

/* ---- the four figures ------------------------------------------------------------------------ */
static bool launch(bench *be, uint32_t dtype, mn_measured *out) {
    static const uint32_t ops[] = {MN_OP_ADD, MN_OP_RMS_NORM, MN_OP_LINEAR};
    double one, many;
    for (size_t i = 0; i < MN_COUNT(ops) && !be->d.stuck; i++) {
        mn_small_graph_build(be->sg, ops[i], 1, dtype, 256, 256);
        if (!time_graph(be, 1, &one))
            continue;
        mn_small_graph_build(be->sg, ops[i], MN_SMALL_CHAIN, dtype, 256, 256);
        if (!time_graph(be, 1, &many))
            continue;
        out->node_us = MN_MAX((many - one) / (MN_SMALL_CHAIN - 1), 1e-3);
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
        mn_status st = be->d.b->write(be->d.queue, dev, 0, be->d.fill, bytes, &e);
        if (!st)
            st = be->d.b->read(be->d.queue, dev, 0, host, 0, bytes, &event, &e);
        if (!st)
            st = mn_small_wait(&be->d, event, &e);
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
    mn_status st = be->d.b->alloc(be->d.dev, many, MN_MEM_DEVICE, &dev, &e);
    if (!st)
        st = be->d.b->alloc(be->d.dev, many, MN_MEM_HOST_PINNED, &host, &e);
    bool ok = st ? say(be, "buffers for a copy", st, &e)
                 : to_and_fro(be, dev, host, row, &few) && to_and_fro(be, dev, host, many, &lots);
    if (be->d.stuck && MN_HAS(mn_backend, be->d.b, abort))
        be->d.b->abort(be->d.queue);
    if (dev)
        be->d.b->buffer_free(dev);
    if (host)
        be->d.b->buffer_free(host);
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
    mn_small_run m = {0};
    mn_small_graph_build(be->sg, MN_OP_LINEAR, 1, t.id, SMALL_N, SMALL_N);
    bool ok = make(be, MN_SMALL_ROWS, &m) && time_rows(be, &m, 1, &one);
    if (ok && one * MN_SMALL_ROWS < 8 * BUDGET_US)
        ok = time_rows(be, &m, MN_SMALL_ROWS, &many); /* a batch is never slower than its rows */
    mn_small_run_drop(&be->d, &m);
    if (!ok)
        return false;
    set_rates(out, small_bytes, one, 2 * small * (many > 0 ? MN_SMALL_ROWS : 1),
              many > 0 ? many : one);
    if (many > 0 && many * large / small < BUDGET_US) {
        mn_small_graph_build(be->sg, MN_OP_LINEAR, 1, t.id, LARGE_K, LARGE_K);
        if (weight_bytes(t, LARGE_K, LARGE_K) <= be->d.fill_bytes &&
            time_graph(be, MN_SMALL_ROWS, &us))
            set_rates(out, 0, 0, 2 * large * MN_SMALL_ROWS, us);
    }
    double most = MN_MIN((double)be->d.fill_bytes, BUDGET_US * small_bytes / one);
    if (free_bytes)
        most = MN_MIN(most, (double)free_bytes / 4);
    int64_t n =
        (int64_t)(most / ((double)weight_bytes(t, 1, LARGE_K) * (t.n_planes > 1 ? 1.25 : 1)));
    if (!be->d.stuck && n >= SMALL_N) {
        mn_small_graph_build(be->sg, MN_OP_LINEAR, 1, t.id, n, LARGE_K);
        if (time_graph(be, 1, &us))
            set_rates(out, (double)weight_bytes(t, n, LARGE_K), us, 0, 0);
    }
    return !be->d.stuck;
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

bool mn_measure(const mn_offer *o, mn_dtype type, mn_measured *out, char *note, size_t cap) {
    const mn_backend *b = o->record->plugin->backend;
    mn_error e = MN_ERROR_INIT;
    bench be = {
        .d = {.b = b,
              .callee = o->record->plugin->callee,
              .dev = o->device,
              .precision = o->precision,
              .k_dtype = o->k_dtype,
              .v_dtype = o->v_dtype,
              .fill_bytes = BIG_BYTES},
        .note = note,
        .cap = cap,
    };
    *out = (mn_measured){0};
    note[0] = 0;
    mn_status st = MN_OK;
    MN_WATCHED(be.d.callee, "queue_create", st = b->queue_create(o->device, &be.d.queue, &e));
    if (st)
        return say(&be, "a queue", st, &e);
    uint8_t *fill = mn_alloc_aligned(BIG_BYTES, 4096);
    be.d.fill = fill;
    be.sg = mn_alloc(1, sizeof *be.sg);
    bool ok = fill && be.sg;
    if (ok) {
        memset(fill, 0x11, BIG_BYTES);
        ok = launch(&be, type.id, out) && copies(&be, out) &&
             products(&be, type, o->free_bytes, out);
    } else
        snprintf(note, cap, "out of memory");
    MN_WATCHED(be.d.callee, "queue_free", b->queue_free(be.d.queue));
    if (ok && !in_range(out)) {
        snprintf(note, cap, "measured figures that cannot be");
        ok = false;
    }
    mn_free(fill);
    mn_free(be.sg);
    return ok;
}
