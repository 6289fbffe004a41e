/* call_threads.c -- group call: device functions from several threads, two queues at the same
 * time, and one weight set filled by several threads. Each thread works on its own struct in the
 * rule's function, which joins it before it looks at the results. */
#include "life.h"
#include <pthread.h>
#include <string.h>

/* ---- questions ------------------------------------------------------------------------------- */
enum { N_ASKERS = 4, N_RUNNERS = 2 };

/* A thread that asks about the stage's case; what: the call that failed. */
typedef struct {
    const stage *s;
    mn_status status;
    const char *what;
} asker;

static void *ask_often(void *arg) {
    asker *a = arg;
    const check_plugin *p = &a->s->p;
    const mn_backend *be = p->be;
    for (int i = 0; i < 50 && !a->status; i++) {
        mn_device_info info = {.size = sizeof info};
        mn_estimate e = {.size = sizeof e};
        mn_verdict v[CASE_NODES];
        mn_buffer *b = NULL;
        a->what = "device_info";
        a->status = be->device_info(p->api->self, 0, &info, NULL);
        if (a->status)
            break;
        a->what = "supports";
        a->status = be->supports(p->dev, &a->s->plan->ask, v, sizeof v[0], NULL);
        if (a->status)
            break;
        a->what = "estimate";
        a->status = be->estimate(p->dev, &a->s->plan->ask, &e, NULL);
        if (a->status)
            break;
        a->what = "alloc";
        a->status = mn_usual_alloc(be, p->dev, 1000, MN_MEM_DEVICE, &b, NULL);
        if (!a->status)
            be->buffer_free(b);
    }
    return NULL;
}

void check_call_concurrent(check *c) {
    stage s;
    pthread_t t[N_ASKERS];
    asker a[N_ASKERS];
    if (!stage_plan(c, &s))
        return;
    check_doing(c, "device_info, supports, estimate and alloc ran on 4 threads");
    for (int i = 0; i < N_ASKERS; i++) {
        a[i] = (asker){.s = &s};
        CHECK(c, !pthread_create(&t[i], NULL, ask_often, &a[i]), "no thread");
    }
    for (int i = 0; i < N_ASKERS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < N_ASKERS; i++)
        CHECK_OK(c, a[i].status, NULL, "%s on 4 threads", a[i].what);
    stage_close(c, &s);
}

/* ---- two queues with two programs, each from its own thread ---------------------------------- */
typedef struct {
    const stage *s; /* its case has been run */
    mn_status status;
    mn_error err;
    double worst; /* how much results differ from those of the stage's case */
} runner;

/* Compiles and runs a twin of the stage's case on a queue of its own. */
static void *run_often(void *arg) {
    runner *r = arg;
    const stage *s = r->s;
    const op_shape shape = life_shape();
    case_plan *plan = NULL;
    case_on on = s->on;
    r->status = mn_usual_queue(on.be, on.dev, &on.queue, &r->err);
    if (r->status)
        return NULL;
    op_case *twin = case_random(s->o->n[0].op, MN_F32, &shape, 7);
    r->status = case_open(&on, twin, MN_PRECISION_EXACT, &plan, &r->err);
    for (int i = 0; i < 20 && !r->status; i++) {
        r->status = case_step(plan, twin, &r->err);
        double d = 0;
        if (!r->status)
            d = case_differ(twin, s->o, NULL);
        if (d > r->worst)
            r->worst = d;
    }
    case_close(plan);
    case_free(twin);
    on.be->queue_free(on.queue);
    return NULL;
}

void check_call_two_queues(check *c) {
    stage s;
    pthread_t t[N_RUNNERS];
    runner r[N_RUNNERS];
    if (!stage_case(c, &s))
        return;
    mn_status st = case_run(&s.on, s.o, MN_PRECISION_EXACT, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "a small graph");
    check_doing(c, "two queues ran at the same time");
    for (int i = 0; i < N_RUNNERS; i++) {
        r[i] = (runner){
            .s = &s,
            .err = check_error(),
        };
        CHECK(c, !pthread_create(&t[i], NULL, run_often, &r[i]), "no thread");
    }
    for (int i = 0; i < N_RUNNERS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < N_RUNNERS; i++) {
        CHECK_OK(c, r[i].status, &r[i].err, "two queues at the same time");
        CHECK(c, r[i].worst < 1e-5,
              "two queues at the same time: results differ by %g from those of one alone",
              r[i].worst);
    }
    stage_close(c, &s);
}

/* ---- one weight set filled by several threads ------------------------------------------------ */
enum { PUT_ROUNDS = 8 };

/* Runs the case, whose weights n_threads threads put. */
static mn_status run_puts(const case_on *on, op_case *o, uint32_t n_threads, mn_error *err) {
    case_plan *plan = NULL;
    mn_status st = case_open_puts(on, o, MN_PRECISION_EXACT, n_threads, &plan, err);
    if (!st)
        st = case_step(plan, o, err);
    case_close(plan);
    return st;
}

/* A LINEAR with eight matrices, and vectors. NULL = the device does not run it. */
static op_case *many_weights(const case_on *on, uint32_t dtype) {
    op_shape shape = life_shape();
    shape.k = 256;
    shape.n = 256;
    shape.variant = 7;
    op_case *o = case_random(MN_OP_LINEAR, dtype, &shape, 11);
    if (o && !o->failed && case_supported(on, o))
        return o;
    case_free(o);
    return NULL;
}

/* want, got: two equal cases. A device that gives the same bits each time must do so however many
 * threads put the weights; another one must stay within 1e-5. */
static void puts_of_type(check *c, const case_on *on, const char *type, op_case *want,
                         op_case *got) {
    mn_error err = check_error();
    mn_status st = run_puts(on, want, 1, &err);
    if (!st)
        st = run_puts(on, got, 1, &err);
    CHECK_OK(c, st, &err, "%s weights put by one thread", type);
    double most = 0;
    if (case_differ(got, want, NULL) > 0)
        most = 1e-5;
    for (uint32_t i = 0; i < PUT_ROUNDS; i++) {
        const uint32_t n = 2 + i % (CASE_PUT_THREADS - 1);
        st = run_puts(on, got, n, &err);
        CHECK_OK(c, st, &err, "%s weights put by %u threads at once", type, n);
        const double worst = case_differ(got, want, NULL);
        CHECK(c, worst <= most,
              "%s weights put by %u threads at once: results differ by %g from those of one "
              "thread, expected at most %g",
              type, n, worst, most);
    }
}

static void try_puts(check *c, const case_on *on, uint32_t dtype, uint32_t *n_tried) {
    op_case *want = many_weights(on, dtype);
    op_case *got = many_weights(on, dtype);
    if (want && got) {
        puts_of_type(c, on, mn_dtype_name(dtype), want, got);
        ++*n_tried;
    }
    case_free(want);
    case_free(got);
}

void check_call_parallel_put(check *c) {
    static const uint32_t types[] = {MN_F32, MN_BF16, MN_Q8_0, MN_Q4_K};
    stage s;
    mn_device_info info = {.size = sizeof info};
    uint32_t n_tried = 0;
    if (!stage_device(c, &s))
        return;
    mn_status st = s.p.be->device_info(s.p.api->self, 0, &info, &s.p.err);
    CHECK_OK(c, st, &s.p.err, "device_info");
    const bool claimed = info.flags & MN_DEVICE_PARALLEL_PUT;
    check_doing(c, "several threads put weights of one set");
    for (size_t i = 0; i < sizeof types / sizeof types[0] && claimed && !check_over(c); i++)
        try_puts(c, &s.on, types[i], &n_tried);
    if (!claimed)
        check_skip(c, "the device does not have MN_DEVICE_PARALLEL_PUT");
    else if (!n_tried)
        check_skip(c, "the device supports no LINEAR that the check can build a graph of");
    stage_close(c, &s);
}
