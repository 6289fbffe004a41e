/* call_threads.c -- group call: device functions from many threads, and two queues at the same
 * time. */
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
