/* bad_deep.c -- bad_backend.c for what shows only beneath a right answer: other bits, blocks that
 * are left, bytes behind the last one, verdicts that are none. BAD_GROUP_NAME says which rule is
 * broken, what comes behind its name tells ways to break it apart. */
#include "stub.h"
#include <stdlib.h>

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

/* ---- verdicts -------------------------------------------------------------------------------- */
#if defined(BAD_NUMERIC_ATTENTION_STATUS)
/* An error where a verdict is meant. */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    const mn_graph *g = c->graph;
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *n = (const void *)((const char *)g->nodes + (size_t)i * g->node_stride);
        if (n->op == MN_OP_ATTENTION)
            return stub_fail(err, MN_INVALID, i, "no attention today");
    }
    return stub_inner->supports(d, c, v, stride, err);
}
static void change(void) {
    stub_table.supports = supports;
}
#elif defined(BAD_NOTHING)
/* Breaks no rule: it runs nothing. */
static mn_status supports(mn_device *d, const mn_compile *c, mn_verdict *v, uint32_t stride,
                          mn_error *err) {
    const mn_status s = stub_inner->supports(d, c, v, stride, err);
    for (uint32_t i = 0; i < c->node_hi - c->node_lo; i++)
        memset((char *)v + (size_t)i * stride, 0, sizeof *v);
    return s;
}
static mn_status reason(void *self, uint32_t id, char *buf, uint32_t n) {
    (void)self, (void)id;
    snprintf(buf, n, "no work on Sundays");
    return MN_OK;
}
static void change(void) {
    stub_table.supports = supports;
    stub_table.reason = reason;
}

/* ---- numeric.batch, numeric.large ------------------------------------------------------------ */
#elif defined(BAD_NUMERIC_BATCH) || defined(BAD_NUMERIC_LARGE) || defined(BAD_NUMERIC_LARGE_ROWS)
/* Where there is more than one row, sums end in other bits; room for rows of 4095 numbers, or for
 * 300 rows. */
#include "reference/reference.h"
extern const ref_op __real_ref_op_linear;
extern const ref_op __wrap_ref_op_linear;
static void linear(const mnc_call *c, mnc_worker *w) {
    float *y = c->out[0].ptr;
    __real_ref_op_linear.fn(c, w);
    for (int64_t i = 0; y && i < c->out[0].rows * c->out[0].cols; i++) {
#if defined(BAD_NUMERIC_BATCH)
        y[i] *= c->in[0].rows > 1 ? 1.0000002f : 1;
#elif defined(BAD_NUMERIC_LARGE)
        y[i] *= c->in[0].cols >= 4096 ? 0.99f : 1;
#else
        y[i] *= i / c->out[0].cols >= 300 ? 0 : 1;
#endif
    }
}
static mnc_work one_part(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    (void)c;
    (void)n_threads;
    return (mnc_work){0, stage == MNC_MAIN};
}
static void linear_size(const mnc_query *q, mnc_op *op) {
    __real_ref_op_linear.size(q, op);
    op->work = one_part;
}
static uint32_t linear_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    return __real_ref_op_linear.weight(q, i, t);
}
static bool linear_fits(const mnc_query *q) {
    return __real_ref_op_linear.fits(q);
}
const ref_op __wrap_ref_op_linear = {
    .fn = linear, .size = linear_size, .weight = linear_weight, .fits = linear_fits};
static void change(void) {
}

/* ---- honesty.leaks --------------------------------------------------------------------------- */
#elif defined(BAD_HONESTY_LEAKS) || defined(BAD_HONESTY_LEAKS_PUT)
/* A block for each bind, or for each weight that is refused. */
static void *volatile lost;
#if defined(BAD_HONESTY_LEAKS)
static mn_status context_bind(mn_context *c, uint32_t set, const mn_binding *b, uint32_t n,
                              uint32_t stride, mn_error *err) {
    lost = malloc(4096);
    return stub_inner->context_bind(c, set, b, n, stride, err);
}
static void change(void) {
    stub_table.context_bind = context_bind;
}
#else
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    const mn_status st = stub_inner->weights_put(w, q, src, ev, err);
    if (st)
        lost = malloc(100);
    return st;
}
static void change(void) {
    stub_table.weights_put = weights_put;
}
#endif

/* ---- call.events, call.shared_weights -------------------------------------------------------- */
#elif defined(BAD_CALL_EVENTS_UNREAD)
/* Nothing is done for a weight that no node reads, and nothing said. */
static const mn_weights *empty;
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    const mn_status st = stub_inner->weights_open(d, c, out, err);
    if (!st && c->node_lo == c->node_hi)
        empty = *out;
    return st;
}
static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **ev,
                             mn_error *err) {
    return w == empty ? MN_OK : stub_inner->weights_put(w, q, src, ev, err);
}
static void change(void) {
    stub_table.weights_open = weights_open;
    stub_table.weights_put = weights_put;
}
#elif defined(BAD_CALL_SHARED_WEIGHTS_OUT)
/* What it frees stays in *out. */
static mn_status compile(mn_device *d, const mn_compile *c, mn_program **out, mn_error *err) {
    const mn_status st = stub_inner->compile(d, c, out, err);
    if (st)
        *out = (mn_program *)(void *)&stub_table;
    return st;
}
static void change(void) {
    stub_table.compile = compile;
}

/* ---- call.transfers -------------------------------------------------------------------------- */
#elif defined(BAD_CALL_TRANSFERS_READ)
/* Whole lines of a cache, where they fit. */
static mn_status read_lines(mn_queue *q, const mn_buffer *b, uint64_t off, mn_buffer *to,
                            uint64_t to_off, uint64_t n, mn_event **ev, mn_error *err) {
    const uint64_t lines = n < UINT64_MAX - 64 ? (n + 63) / 64 * 64 : n;
    const mn_status st = stub_inner->read(q, b, off, to, to_off, lines, ev, NULL);
    return st ? stub_inner->read(q, b, off, to, to_off, n, ev, err) : st;
}
static void change(void) {
    stub_table.read = read_lines;
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "bad");
    if (p)
        change();
    return p;
}
