/* call_threads.c -- group call: device functions from many threads, two queues at the same time,
 * and one set of weights from several threads. */
#include "life.h"
#include <pthread.h>
#include <string.h>

typedef struct {
    const check_plugin *p;
    const op_case *like; /* the graph that all ask about */
    const mn_compile *ask;
    mn_status status;
    const char *what;
} asker;

static void *ask_often(void *arg) {
    asker *a = arg;
    const mn_backend *be = a->p->be;
    for (int i = 0; i < 50 && !a->status; i++) {
        mn_device_info info = {.size = sizeof info};
        mn_estimate e = {.size = sizeof e};
        mn_verdict v[CASE_NODES];
        mn_buffer *b = NULL;
        a->what = "device_info", a->status = be->device_info(a->p->api->self, 0, &info, NULL);
        if (!a->status)
            a->what = "supports",
            a->status = be->supports(a->p->dev, &a->like->g, a->like->value, v, sizeof v[0], NULL);
        if (!a->status)
            a->what = "estimate", a->status = be->estimate(a->p->dev, a->ask, &e, NULL);
        if (!a->status)
            a->what = "alloc", a->status = be->alloc(a->p->dev, 1000, MN_MEM_DEVICE, &b, NULL);
        if (!a->status)
            be->buffer_free(b);
    }
    return NULL;
}

void check_call_concurrent(check *c) {
    check_host h;
    check_plugin p;
    case_plan *plan = NULL;
    pthread_t t[4];
    asker a[4];
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    op_case *o = life_case(c, &p);
    case_on on = life_on(&p);
    if (!o) {
        check_close(c, &p);
        return;
    }
    mn_status st = case_open(&on, o, MN_PRECISION_EXACT, &plan, &p.err);
    CHECK(c, !st, "a small graph: found status 0x%x (%s)", (unsigned)st, p.err.msg);
    check_doing(c, "device_info, supports, estimate and alloc ran on 4 threads");
    for (int i = 0; i < 4; i++) {
        a[i] = (asker){&p, o, &plan->ask, MN_OK, ""};
        CHECK(c, !pthread_create(&t[i], NULL, ask_often, &a[i]), "no thread");
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++)
        CHECK(c, !a[i].status, "%s on 4 threads: found status 0x%x", a[i].what,
              (unsigned)a[i].status);
    case_close(plan);
    case_free(o);
    check_close(c, &p);
}

/* ---- two queues with two programs, each from its own thread ---------------------------------- */
typedef struct {
    const check_plugin *p;
    op_case *o;
    mn_status status;
    mn_error err;
    double worst;
} runner;

static void *run_often(void *arg) {
    runner *r = arg;
    op_shape shape = life_shape();
    mn_queue *q = NULL;
    case_plan *plan = NULL;
    r->status = r->p->be->queue_create(r->p->dev, &q, &r->err);
    if (r->status)
        return NULL;
    case_on on = {r->p->be, r->p->dev, q, 0};
    op_case *again = case_random(r->o->n[0].op, MN_F32, &shape, 7);
    r->status =
        again ? case_open(&on, again, MN_PRECISION_EXACT, &plan, &r->err) : MN_OUT_OF_MEMORY;
    for (int i = 0; i < 20 && !r->status; i++) {
        r->status = case_step(plan, again, &r->err);
        double d = r->status ? 0 : case_differ(again, r->o, NULL);
        if (d > r->worst)
            r->worst = d;
    }
    case_close(plan);
    case_free(again);
    r->p->be->queue_free(q);
    return NULL;
}

void check_call_two_queues(check *c) {
    check_host h;
    check_plugin p;
    pthread_t t[2];
    runner r[2];
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    op_case *o = life_case(c, &p);
    case_on on = life_on(&p);
    if (!o) {
        check_close(c, &p);
        return;
    }
    mn_status st = case_run(&on, o, MN_PRECISION_EXACT, &p.err);
    CHECK(c, !st, "a small graph: found status 0x%x (%s)", (unsigned)st, p.err.msg);
    check_doing(c, "two queues ran at the same time");
    for (int i = 0; i < 2; i++) {
        r[i] = (runner){&p, o, MN_OK, check_error(), 0};
        CHECK(c, !pthread_create(&t[i], NULL, run_often, &r[i]), "no thread");
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(c, !r[i].status, "two queues at the same time: found status 0x%x (%s)",
              (unsigned)r[i].status, r[i].err.msg);
        CHECK(c, r[i].worst < 1e-5,
              "two queues at the same time: results differ by %g from those of one alone",
              r[i].worst);
    }
    case_free(o);
    check_close(c, &p);
}

/* ---- one set of weights from several threads -------------------------------------------------- */
enum { PUT_ROUNDS = 8 };

/* Runs the case with weights from so many threads into *o's results. */
static mn_status run_puts(const case_on *on, op_case *o, uint32_t n_threads, mn_error *err) {
    case_plan *plan = NULL;
    mn_status st = case_open_puts(on, o, MN_PRECISION_EXACT, n_threads, &plan, err);
    if (!st)
        st = case_step(plan, o, err);
    case_close(plan);
    return st;
}

/* A LINEAR with many weights; NULL = the device does not run it. */
static op_case *many_weights(const case_on *on, uint32_t dtype) {
    op_shape shape = life_shape();
    shape.k = shape.n = 256;
    shape.variant = 7; /* eight matrices, and vectors */
    op_case *o = case_random(MN_OP_LINEAR, dtype, &shape, 11);
    if (o && !o->failed && case_supported(on, o, NULL))
        return o;
    case_free(o);
    return NULL;
}

static void puts_of_type(check *c, const case_on *on, const char *type, op_case *want,
                         op_case *got) {
    mn_error err = check_error();
    mn_status st = run_puts(on, want, 1, &err);
    CHECK(c, !st, "%s weights put by one thread: found status 0x%x (%s)", type, (unsigned)st,
          err.msg);
    if (!st)
        st = run_puts(on, got, 1, &err);
    /* a device that repeats itself does so whoever puts the weights */
    const double most = case_differ(got, want, NULL) > 0 ? 1e-5 : 0;
    for (uint32_t i = 0; i < PUT_ROUNDS && !st && !check_over(c); i++) {
        const uint32_t n = 2 + i % (CASE_PUT_THREADS - 1);
        st = run_puts(on, got, n, &err);
        CHECK(c, !st,
              "%s weights put by %u threads at once: found status 0x%x (%s), expected MN_OK", type,
              n, (unsigned)st, err.msg);
        const double worst = st ? 0 : case_differ(got, want, NULL);
        CHECK(c, worst <= most,
              "%s weights put by %u threads at once: results differ by %g from those of one thread",
              type, n, worst);
    }
}

void check_call_parallel_put(check *c) {
    static const struct {
        uint32_t dtype;
        const char *name;
    } types[] = {{MN_F32, "F32"}, {MN_BF16, "BF16"}, {MN_Q8_0, "Q8_0"}, {MN_Q4_K, "Q4_K"}};
    check_host h;
    check_plugin p;
    mn_device_info info = {.size = sizeof info};
    uint32_t n_tried = 0;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    const case_on on = life_on(&p);
    mn_status st = p.be->device_info(p.api->self, 0, &info, &p.err);
    CHECK(c, !st, "device_info: found status 0x%x (%s)", (unsigned)st, p.err.msg);
    const bool claimed = info.flags & MN_DEVICE_PARALLEL_PUT;
    check_doing(c, "several threads put weights of one set");
    for (size_t i = 0; i < sizeof types / sizeof types[0] && claimed && !check_over(c); i++) {
        op_case *want = many_weights(&on, types[i].dtype), *got = many_weights(&on, types[i].dtype);
        if (want && got)
            puts_of_type(c, &on, types[i].name, want, got);
        n_tried += want && got;
        case_free(want);
        case_free(got);
    }
    if (!claimed)
        check_skip(c, "the device does not have MN_DEVICE_PARALLEL_PUT");
    else if (!n_tried && !check_over(c))
        check_skip(c, "the device says yes to no LINEAR that the check can make a graph of");
    check_close(c, &p);
}
