/* case_run.c -- a case on a device: weights, program, buffers between guard bytes, steps, and the
 * comparison of two runs. */
#include "case_plan.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTE 0xa5
#define WAIT_NS UINT64_C(60000000000)

static mn_status fail(mn_error *err, mn_status s, const char *msg) {
    if (err && err->size >= sizeof *err) {
        err->status = s;
        snprintf(err->msg, sizeof err->msg, "%s", msg);
    }
    return s;
}

/* ---- weights --------------------------------------------------------------------------------- */
/* A dense plane of a part: dims of the tensor with dim[0] = d0. */
static mn_plane dense(const mn_tensor *t, int64_t d0, const mn_plane_spec *spec,
                      const uint8_t *at) {
    mn_plane p = {.ptr = at, .kind = spec->kind, .dtype = spec->dtype};
    const uint32_t last = t->n_dim - 1;
    int64_t step = case_dtype(spec->dtype).block_bytes;
    p.bytes = (uint64_t)step;
    for (uint32_t d = 0; d < t->n_dim && !spec->rows; d++)
        p.dim[d] = 1; /* one value for all: strides of 0 */
    if (!spec->rows)
        return p;
    for (uint32_t d = t->n_dim; d-- > 0;) {
        const int64_t whole = d == 0 ? d0 : t->dim[d];
        int64_t n = whole;
        if (d == last)
            n = spec->by_block ? whole / t->dtype.block_elems : 1;
        else if (d + 1 == last)
            n = (whole + spec->rows - 1) / spec->rows;
        p.dim[d] = d == last && spec->kind == MN_PLANE_DATA ? whole : n;
        p.stride[d] = step;
        step *= n;
    }
    p.bytes = (uint64_t)step;
    return p;
}

/* All planes of a weight in `planes`; returns the number of parts. Of a type with one row of scales
 * for 128 rows a matrix comes in parts of 128 rows, experts come as one. */
static uint32_t planes_of(const op_case *c, uint32_t i, mn_plane *planes, uint32_t most) {
    const mn_tensor *t = &c->t[i];
    const uint8_t *at[MN_PLANE_KINDS] = {c->data[i]};
    mn_plane_spec spec[MN_PLANE_KINDS];
    const uint32_t n_planes = t->dtype.n_planes;
    int64_t height = t->dim[0];
    uint32_t n_parts = 0;
    for (uint32_t k = 0; k < n_planes; k++) {
        mn_dtype_plane(t->dtype.id, k, &spec[k]);
        if (k)
            at[k] = at[k - 1] + dense(t, t->dim[0], &spec[k - 1], at[k - 1]).bytes;
        if (t->n_dim == 2 && spec[k].rows > 1)
            height = spec[k].rows;
    }
    for (int64_t r = 0; r < t->dim[0] && (n_parts + 1) * n_planes <= most; r += height) {
        const int64_t rows = t->dim[0] - r < height ? t->dim[0] - r : height;
        for (uint32_t k = 0; k < n_planes; k++) {
            mn_plane *p = &planes[n_parts * n_planes + k];
            *p = dense(t, rows, &spec[k], at[k]);
            at[k] += p->bytes;
        }
        n_parts++;
    }
    return n_parts;
}

static mn_status put_weight(case_plan *p, mn_queue *q, uint32_t i, mn_error *err) {
    const op_case *c = p->first;
    const mn_backend *be = p->on.be;
    mn_plane planes[64];
    const uint32_t parts = planes_of(c, i, planes, 64);
    const mn_weight_src src = {.size = sizeof src,
                               .tensor = i,
                               .n_parts = parts,
                               .n_planes = c->t[i].dtype.n_planes,
                               .plane_stride = sizeof *planes,
                               .planes = planes,
                               .dtype = c->t[i].dtype};
    mn_event *ev = NULL;
    mn_status s = be->weights_put(p->weights, q, &src, &ev, err);
    if (!s && ev)
        s = be->wait(ev, WAIT_NS, err);
    if (ev)
        be->event_free(ev);
    return s;
}

/* One of the threads that put weights at the same time: each takes every n-th. */
typedef struct {
    case_plan *plan;
    mn_queue *queue;
    uint32_t first, n;
    pthread_barrier_t *begin;
    mn_status status;
    mn_error err;
    pthread_t thread;
} putter;

static void *put_every_nth(void *arg) {
    putter *a = arg;
    const op_case *c = a->plan->first;
    uint32_t at = 0;
    if (a->begin)
        pthread_barrier_wait(a->begin);
    for (uint32_t i = 0; i < c->g.n_tensors && !a->status; i++)
        if (c->t[i].role == MN_ROLE_WEIGHT && at++ % a->n == a->first)
            a->status = put_weight(a->plan, a->queue, i, &a->err);
    return NULL;
}

/* The queues are there before the first thread is, so that all can begin at the same time. */
static mn_status put_by_threads(case_plan *p, uint32_t n, mn_error *err) {
    const mn_backend *be = p->on.be;
    putter a[CASE_PUT_THREADS];
    pthread_barrier_t begin;
    mn_status s = MN_OK;
    uint32_t n_queues = 0, n_threads = 0;
    for (; n_queues < n && !s; n_queues += !s) {
        a[n_queues] = (putter){.plan = p, .first = n_queues, .n = n};
        a[n_queues].err.size = sizeof(mn_error);
        s = be->queue_create(p->on.dev, &a[n_queues].queue, err);
    }
    if (!s && pthread_barrier_init(&begin, NULL, n))
        s = fail(err, MN_OUT_OF_MEMORY, "no memory for a barrier");
    for (; n_threads < n && !s; n_threads++) {
        a[n_threads].begin = &begin;
        if (pthread_create(&a[n_threads].thread, NULL, put_every_nth, &a[n_threads]))
            abort(); /* the others wait at the barrier; the rule's process ends here */
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        pthread_join(a[i].thread, NULL);
        if (a[i].status && !s) {
            s = a[i].status;
            if (err)
                *err = a[i].err;
        }
    }
    for (uint32_t i = 0; i < n_queues; i++)
        be->queue_free(a[i].queue);
    return s;
}

static mn_status put_weights(case_plan *p, uint32_t n_threads, mn_error *err) {
    uint32_t kept = 0;
    putter alone = {.plan = p, .queue = p->on.queue, .n = 1, .err = {.size = sizeof(mn_error)}};
    mn_status s = MN_OK;
    if (n_threads > 1)
        s = put_by_threads(p, n_threads, err);
    else {
        put_every_nth(&alone);
        s = alone.status;
        if (s && err)
            *err = alone.err;
    }
    return s ? s : p->on.be->weights_seal(p->weights, p->on.queue, &kept, err);
}

/* ---- buffers: guard | payload | guard; of the cache only the one behind, since kv_copy takes a
 * buffer of pages ---- */
static uint64_t lead(const case_plan *p, const op_case *c, uint32_t i) {
    return case_kv_group(c, i) >= 0 ? 0 : p->guard;
}
static uint64_t whole(const case_plan *p, const op_case *c, uint32_t i) {
    return lead(p, c, i) + c->bytes[i] + p->guard;
}

static bool is_bound(const op_case *c, uint32_t i) {
    uint32_t role = c->t[i].role;
    return role != MN_ROLE_WEIGHT && role != MN_ROLE_INTERIOR && !c->unbound[i] &&
           case_in_segment(c, i);
}

static mn_status fit_kv(const case_plan *p, op_case *c) {
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        const int32_t t = c->kv[i].tensor;
        if (t < 0 || c->bytes[t] == p->kv_bytes[i])
            continue;
        void *r = realloc(c->result[t], p->kv_bytes[i] + 1);
        if (!r)
            return MN_OUT_OF_MEMORY;
        c->result[t] = r;
        c->bytes[t] = p->kv_bytes[i];
    }
    return MN_OK;
}

static mn_status make_buffers(case_plan *p, mn_error *err) {
    op_case *c = p->first;
    const mn_backend *be = p->on.be;
    mn_status s = MN_OK;
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        mn_kv_layout l = {.size = sizeof l};
        if (c->kv[i].tensor < 0 || !case_in_segment(c, (uint32_t)c->kv[i].tensor))
            continue;
        s = case_kv_layout(p, i, &l, err);
        if (s)
            return s;
        p->kv_bytes[i] = l.page_bytes * c->kv[i].pages;
    }
    s = fit_kv(p, c);
    if (s)
        return fail(err, s, "out of memory");
    for (uint32_t i = 0; i < c->g.n_tensors && !s; i++) {
        uint64_t n = whole(p, c, i);
        if (!is_bound(c, i))
            continue;
        s = be->alloc(p->on.dev, n, MN_MEM_DEVICE, &p->buffer[i], err);
        p->binding[p->n_bindings++] = (mn_binding){i, 0, p->buffer[i], lead(p, c, i), c->bytes[i]};
        if (n > p->host_bytes)
            p->host_bytes = n;
    }
    if (s || !p->host_bytes)
        return s;
    if (!(p->scratch = malloc(p->host_bytes)))
        return fail(err, MN_OUT_OF_MEMORY, "out of memory");
    s = be->alloc(p->on.dev, p->host_bytes, MN_MEM_HOST_PINNED, &p->host, err);
    if (!s)
        s = be->map(p->host, &p->host_map, err);
    memset(p->scratch, GUARD_BYTE, p->guard); /* the cache keeps what it holds from step to step */
    for (uint32_t i = 0; i < CASE_GROUPS && !s; i++) {
        const int32_t t = c->kv[i].tensor;
        if (t >= 0 && p->buffer[t])
            s = be->write(p->on.queue, p->buffer[t], p->kv_bytes[i], p->scratch, p->guard, err);
    }
    return s;
}

mn_status case_kv_layout(case_plan *p, uint32_t group, mn_kv_layout *out, mn_error *err) {
    return p->on.be->kv_layout(p->on.dev, &p->ask, group, out, err);
}

static mn_status make_context(case_plan *p, uint32_t i, mn_queue *q, mn_error *err) {
    const mn_backend *be = p->on.be;
    mn_status s = be->context_create(p->program, q, &p->contexts[i], err);
    if (!s)
        s = be->context_bind(p->contexts[i], 0, p->binding, p->n_bindings, sizeof *p->binding, err);
    p->at = i;
    return s;
}

mn_status case_second_context(case_plan *p, mn_error *err) {
    mn_status s = p->on.be->queue_create(p->on.dev, &p->queues[1], err);
    if (s)
        return s;
    p->on.queue = p->queues[1];
    return make_context(p, 1, p->queues[1], err);
}

mn_compile case_question(const op_case *c, uint32_t precision) {
    mn_compile ask = {.size = sizeof ask,
                      .precision = precision,
                      .graph = &c->g,
                      .node_hi = c->g.n_nodes,
                      .symbol_max = c->value,
                      .k_dtype = c->kv_dtype,
                      .v_dtype = c->kv_dtype};
    if (c->node_hi) {
        ask.node_lo = c->node_lo;
        ask.node_hi = c->node_hi;
    }
    return ask;
}

mn_status case_open(const case_on *on, op_case *c, uint32_t precision, case_plan **out,
                    mn_error *err) {
    return case_open_puts(on, c, precision, 1, out, err);
}

mn_status case_open_puts(const case_on *on, op_case *c, uint32_t precision, uint32_t n_threads,
                         case_plan **out, mn_error *err) {
    const mn_backend *be = on->be;
    case_plan *p = c && !c->failed ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return fail(err, MN_OUT_OF_MEMORY, "out of memory for a case");
    p->on = *on, p->first = c, p->guard = on->align > 256 ? on->align : 256;
    for (uint32_t i = 0; i < c->g.n_symbols; i++)
        p->max[i] = c->sym[i].max;
    p->ask = case_question(c, precision);
    p->ask.symbol_max = p->max;
    mn_estimate est = {.size = sizeof est};
    mn_status s = be->estimate(on->dev, &p->ask, &est, err);
    if (!s)
        s = be->weights_open(on->dev, &p->ask, &p->weights, err);
    if (!s)
        s = put_weights(p, n_threads, err);
    p->ask.weights = p->weights;
    if (!s)
        s = be->compile(on->dev, &p->ask, &p->program, err);
    if (!s)
        s = make_buffers(p, err);
    if (!s)
        s = make_context(p, 0, on->queue, err);
    if (s)
        case_close(p);
    else
        *out = p;
    return s;
}

void case_close(case_plan *p) {
    if (!p)
        return;
    const mn_backend *be = p->on.be;
    for (int i = 0; i < 2; i++)
        if (p->contexts[i])
            be->context_free(p->contexts[i]);
    if (p->program)
        be->program_free(p->program);
    if (p->weights)
        be->weights_free(p->weights);
    for (uint32_t i = 0; i < CASE_TENSORS; i++)
        if (p->buffer[i])
            be->buffer_free(p->buffer[i]);
    if (p->host)
        be->buffer_free(p->host);
    if (p->queues[1])
        be->queue_free(p->queues[1]);
    free(p->scratch);
    free(p);
}

/* ---- a step ---------------------------------------------------------------------------------- */
static mn_status write_all(case_plan *p, const op_case *c, mn_error *err) {
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        if (!p->buffer[i] || case_kv_group(c, i) >= 0)
            continue;
        uint64_t n = c->bytes[i];
        memset(p->scratch, GUARD_BYTE, n + 2 * p->guard);
        if (c->t[i].role == MN_ROLE_OUTPUT) /* NaN, or a number that no op gives */
            memset(p->scratch + p->guard, c->t[i].dtype.id == MN_F32 ? 0xff : 0x5b, n);
        else if (n)
            memcpy(p->scratch + p->guard, c->data[i], n);
        mn_status s =
            p->on.be->write(p->on.queue, p->buffer[i], 0, p->scratch, n + 2 * p->guard, err);
        if (s)
            return s;
    }
    return MN_OK;
}

static int64_t live_bytes(const op_case *c, uint32_t i) { /* of an output at the step's values */
    int64_t n = c->t[i].dtype.block_bytes;
    for (uint32_t d = 0; d < c->t[i].n_dim; d++)
        n *= c->t[i].dim[d] < 0 ? c->value[~c->t[i].dim[d]] : c->t[i].dim[d];
    return n;
}

static bool all_are(const uint8_t *p, uint64_t n, uint8_t byte) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != byte)
            return false;
    return true;
}

static void look_for_breach(case_plan *p, const op_case *c, uint32_t i, const uint8_t *bytes) {
    const char *name = c->t[i].name.ptr;
    uint64_t at = lead(p, c, i), n = c->bytes[i], live = (uint64_t)live_bytes(c, i);
    uint32_t role = c->t[i].role;
    if (p->breach[0])
        return;
    if (!all_are(bytes, at, GUARD_BYTE) || !all_are(bytes + at + n, p->guard, GUARD_BYTE))
        snprintf(p->breach, sizeof p->breach,
                 "bytes outside of the buffer bound to '%s' were written", name);
    else if (role == MN_ROLE_INPUT && n && memcmp(bytes + at, c->data[i], n))
        snprintf(p->breach, sizeof p->breach, "the input '%s' was written", name);
    else if (role == MN_ROLE_OUTPUT && live < n &&
             !all_are(bytes + at + live, n - live, c->t[i].dtype.id == MN_F32 ? 0xff : 0x5b))
        snprintf(p->breach, sizeof p->breach, "rows of '%s' behind those of the step were written",
                 name);
}

static mn_status read_all(case_plan *p, op_case *c, mn_error *err) {
    const mn_backend *be = p->on.be;
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        mn_event *ev = NULL;
        if (!p->buffer[i])
            continue;
        uint64_t n = whole(p, c, i);
        mn_status s = be->read(p->on.queue, p->buffer[i], 0, p->host, 0, n, &ev, err);
        if (!s && ev)
            s = be->wait(ev, WAIT_NS, err);
        if (ev)
            be->event_free(ev);
        if (s)
            return s;
        look_for_breach(p, c, i, p->host_map);
        memcpy(c->result[i], (const uint8_t *)p->host_map + lead(p, c, i), c->bytes[i]);
    }
    return MN_OK;
}

mn_status case_step(case_plan *p, op_case *c, mn_error *err) {
    mn_event *ev = NULL;
    if (c->failed || fit_kv(p, c))
        return fail(err, MN_OUT_OF_MEMORY, "out of memory for a case");
    mn_status s = write_all(p, c, err);
    if (!s)
        s = p->on.be->execute(p->contexts[p->at], 0, c->value, &ev, err);
    if (!s && ev)
        s = p->on.be->wait(ev, WAIT_NS, err);
    if (ev)
        p->on.be->event_free(ev);
    return s ? s : read_all(p, c, err);
}

mn_status case_kv_copy(case_plan *p, uint32_t group, const mn_page_copy *pairs, uint32_t n,
                       mn_error *err) {
    mn_kv_layout l = {.size = sizeof l};
    mn_status s = case_kv_layout(p, group, &l, err);
    if (s)
        return s;
    return p->on.be->kv_copy(p->on.queue, p->buffer[p->first->kv[group].tensor], &l, pairs, n,
                             sizeof *pairs, NULL, err);
}

const char *case_breach(const case_plan *p) {
    return p->breach;
}

mn_status case_run(const case_on *on, op_case *c, uint32_t precision, mn_error *err) {
    case_plan *p = NULL;
    mn_status s = case_open(on, c, precision, &p, err);
    if (s)
        return s;
    s = case_step(p, c, err);
    if (!s && p->breach[0])
        s = fail(err, MN_INVALID, p->breach);
    case_close(p);
    return s;
}

/* ---- two runs -------------------------------------------------------------------------------- */
/* The rows of an output that count, packed together; rows of other things all count. */
static int64_t pack(const op_case *c, uint32_t i, const op_case *run, uint8_t *out) {
    const mn_tensor *t = &c->t[i];
    int64_t sym = t->n_dim && t->dim[0] < 0 ? ~t->dim[0] : -1, rows = sym < 0 ? 1 : c->value[sym];
    uint64_t row = sym < 0 ? c->bytes[i] : c->bytes[i] / (uint64_t)c->sym[sym].max, n = 0;
    const uint8_t *dead =
        sym < 0 || c->every_row[i] || t->role != MN_ROLE_OUTPUT ? NULL : c->dead[sym];
    for (int64_t r = 0; r < rows; r++) {
        if (dead && dead[r])
            continue;
        memcpy(out + n, (const uint8_t *)run->result[i] + (uint64_t)r * row, row);
        n += row;
    }
    return (int64_t)n;
}

double case_differ(const op_case *got, const op_case *want, const char **where) {
    double worst = 0;
    for (uint32_t i = 0; i < got->g.n_tensors; i++) {
        uint32_t role = got->t[i].role;
        if ((role != MN_ROLE_OUTPUT && role != MN_ROLE_STATE) || case_kv_group(got, i) >= 0 ||
            got->unbound[i] || !case_in_segment(got, i))
            continue;
        uint8_t *a = malloc(2 * got->bytes[i] + 16),
                *b = a ? a + (got->bytes[i] + 7) / 8 * 8 : NULL;
        if (!a)
            return (double)INFINITY;
        int64_t n = pack(got, i, got, a);
        pack(got, i, want, b);
        double e = got->t[i].dtype.id == MN_F32
                       ? case_rel_l2((const void *)a, (const void *)b, n / 4)
                   : memcmp(a, b, (size_t)n) ? (double)INFINITY
                                             : 0;
        if (e > worst && where)
            *where = got->t[i].name.ptr;
        worst = e > worst ? e : worst;
        free(a);
    }
    return worst;
}

/* Whether a spoiled row of tensor i holds a number where `want` has NaN. */
static bool hides_nan(const op_case *got, const op_case *want, uint32_t i, bool loose) {
    const mn_tensor *t = &got->t[i];
    const int64_t sym = t->n_dim && t->dim[0] < 0 ? ~t->dim[0] : -1;
    if (t->role != MN_ROLE_OUTPUT || t->dtype.id != MN_F32 || got->unbound[i] || sym < 0 ||
        !got->dead[sym])
        return false;
    const uint64_t row = got->bytes[i] / (uint64_t)got->sym[sym].max / sizeof(float);
    const float *a = got->result[i], *b = want->result[i];
    for (uint64_t k = 0; k < (uint64_t)got->value[sym] * row; k++)
        if (got->dead[sym][k / row] == 2 && isnan(b[k]) && !(loose ? !isfinite(a[k]) : isnan(a[k])))
            return true;
    return false;
}

const char *case_hides_nan(const op_case *got, const op_case *want, bool loose) {
    for (uint32_t i = 0; i < got->g.n_tensors; i++)
        if (hides_nan(got, want, i, loose))
            return got->t[i].name.ptr;
    return NULL;
}

bool case_supported(const case_on *on, const op_case *c, uint32_t *reason) {
    mn_verdict v[CASE_NODES];
    memset(v, 0, sizeof v);
    if (c->failed || on->be->supports(on->dev, &c->g, c->value, v, sizeof v[0], NULL))
        return false;
    for (uint32_t i = 0; i < c->g.n_nodes; i++) {
        if (reason)
            *reason = v[i].reason;
        if (v[i].verdict == MN_VERDICT_NO)
            return false;
    }
    return true;
}
