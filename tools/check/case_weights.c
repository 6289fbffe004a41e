/* case_weights.c -- weights of a case as sources of the plugin: planes, parts, and threads that put
 * them at the same time. */
#include "case_plan.h"
#include <pthread.h>
#include <stdlib.h>

static void copy_error(mn_error *to, const mn_error *from) {
    if (to)
        *to = *from;
}

/* Elements that lie behind one another along dim d of a plane: blocks in the last dim, groups of
 * spec->rows rows in the one before it. whole: the tensor's dim. */
static int64_t steps_along(const mn_tensor *t, const mn_plane_spec *spec, uint32_t d,
                           int64_t whole) {
    const uint32_t last = t->n_dim - 1;
    if (d == last) {
        return mn_plane_values(spec, t->dtype, whole);
    }
    if (d + 1 == last)
        return (whole + spec->rows - 1) / spec->rows;
    return whole;
}

/* A dense plane of a part at `at`: dims of the tensor with dim[0] = d0. */
static mn_plane dense(const mn_tensor *t, int64_t d0, const mn_plane_spec *spec,
                      const uint8_t *at) {
    mn_plane p = {
        .ptr = at,
        .kind = spec->kind,
        .dtype = spec->dtype,
    };
    int64_t stride = case_dtype(spec->dtype).block_bytes;
    for (uint32_t d = t->n_dim; d-- > 0;) {
        int64_t whole = d0;
        if (d != 0)
            whole = t->dim[d];
        const bool counts_elements = d + 1 == t->n_dim && spec->kind == MN_PLANE_DATA;
        p.dim[d] = 1;
        if (!spec->rows) // one value for all: strides of 0
            continue;
        const int64_t n = steps_along(t, spec, d, whole);
        if (counts_elements)
            p.dim[d] = whole;
        else
            p.dim[d] = n;
        p.stride[d] = stride;
        stride *= n;
    }
    p.bytes = (uint64_t)stride;
    return p;
}

/* All planes of weight i, at most `most`, in `planes`; the number of parts. A matrix of a type
 * with one row of scales per 128 rows is given in parts of 128 rows, experts as one part. */
static uint32_t planes_of(const op_case *c, uint32_t i, mn_plane *planes, uint32_t most) {
    const mn_tensor *t = &c->t[i];
    const uint8_t *at[MN_PLANE_KINDS] = {c->data[i]};
    mn_plane_spec spec[MN_PLANE_KINDS];
    const uint32_t n_planes = t->dtype.n_planes;
    int64_t height = t->dim[0];
    uint32_t n_parts = 0;
    for (uint32_t k = 0; k < n_planes; k++) {
        mn_dtype_plane(t->dtype.id, k, &spec[k]);
        if (k) {
            const mn_plane before = dense(t, t->dim[0], &spec[k - 1], at[k - 1]);
            at[k] = at[k - 1] + before.bytes;
        }
        if (t->n_dim == 2 && spec[k].rows > 1)
            height = spec[k].rows;
    }
    for (int64_t r = 0; r < t->dim[0] && (n_parts + 1) * n_planes <= most; r += height) {
        const int64_t left = t->dim[0] - r;
        int64_t rows = height;
        if (left < height)
            rows = left;
        for (uint32_t k = 0; k < n_planes; k++) {
            mn_plane *p = &planes[n_parts * n_planes + k];
            *p = dense(t, rows, &spec[k], at[k]);
            at[k] += p->bytes;
        }
        n_parts++;
    }
    return n_parts;
}

mn_weight_src case_source(const op_case *c, uint32_t i, mn_plane *planes) {
    return (mn_weight_src){
        .size = sizeof(mn_weight_src),
        .tensor = i,
        .n_parts = planes_of(c, i, planes, CASE_MOST_PLANES),
        .n_planes = c->t[i].dtype.n_planes,
        .plane_stride = sizeof *planes,
        .planes = planes,
        .dtype = c->t[i].dtype,
    };
}

mn_status case_put_weight(const case_plan *p, mn_weights *w, mn_queue *q, uint32_t i, mn_event **ev,
                          mn_error *err) {
    mn_plane planes[CASE_MOST_PLANES];
    const mn_weight_src src = case_source(p->first, i, planes);
    return p->on.be->weights_put(w, q, &src, ev, err);
}

static mn_status put_one_weight(case_plan *p, mn_queue *q, uint32_t i, mn_error *err) {
    mn_event *ev = NULL;
    const mn_status st = case_put_weight(p, p->weights, q, i, &ev, err);
    return case_wait(p->on.be, st, &ev, err);
}

/* One of the threads that put weights at the same time: weights first, first + n, ... */
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
    uint32_t n_weights = 0;
    if (a->begin)
        pthread_barrier_wait(a->begin);
    for (uint32_t i = 0; i < c->g.n_tensors && !a->status; i++) {
        if (c->t[i].role != MN_ROLE_WEIGHT)
            continue;
        if (n_weights % a->n == a->first)
            a->status = put_one_weight(a->plan, a->queue, i, &a->err);
        n_weights++;
    }
    return NULL;
}

static putter putter_of(case_plan *p, uint32_t first, uint32_t n) {
    putter a = {
        .plan = p,
        .queue = p->on.queue,
        .first = first,
        .n = n,
    };
    a.err.size = sizeof a.err;
    return a;
}

/* Starts and joins the threads; the first status that is not MN_OK. */
static mn_status join_putters(putter *a, uint32_t n, mn_error *err) {
    pthread_barrier_t begin;
    mn_status st = MN_OK;
    if (pthread_barrier_init(&begin, NULL, n))
        return case_plan_fail(err, MN_OUT_OF_MEMORY, "no memory for a barrier");
    for (uint32_t i = 0; i < n; i++) {
        a[i].begin = &begin;
        if (pthread_create(&a[i].thread, NULL, put_every_nth, &a[i]))
            abort(); // the others wait at the barrier; the rule's process ends here
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(a[i].thread, NULL);
        if (a[i].status && !st) {
            st = a[i].status;
            copy_error(err, &a[i].err);
        }
    }
    pthread_barrier_destroy(&begin);
    return st;
}

/* All queues exist before the first thread starts, so that all threads begin at the same time. */
static mn_status put_by_threads(case_plan *p, uint32_t n, mn_error *err) {
    const mn_backend *be = p->on.be;
    putter a[CASE_PUT_THREADS];
    mn_status st = MN_OK;
    uint32_t n_queues = 0;
    while (n_queues < n && !st) {
        a[n_queues] = putter_of(p, n_queues, n);
        st = mn_usual_queue(be, p->on.dev, &a[n_queues].queue, err);
        if (!st)
            n_queues++;
    }
    if (!st)
        st = join_putters(a, n, err);
    for (uint32_t i = 0; i < n_queues; i++)
        be->queue_free(a[i].queue);
    return st;
}

static mn_status put_alone(case_plan *p, mn_error *err) {
    putter a = putter_of(p, 0, 1);
    put_every_nth(&a);
    if (a.status)
        copy_error(err, &a.err);
    return a.status;
}

mn_status case_put_weights(case_plan *p, uint32_t n_threads, mn_error *err) {
    mn_status st = n_threads > 1 ? put_by_threads(p, n_threads, err) : put_alone(p, err);
    if (st)
        return st;
    return p->on.be->weights_seal(p->weights, p->on.queue, &p->kept, err);
}
