/* test_import.c -- weights on their way into a device: how many are in flight, on how many threads,
 * and what is left when one fails. The device counts and computes nothing. */
#include "base/base.h"
#include "engine/weights.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { N = 60, UNREAD = 7, HANG_S = 60 };

struct mn_queue {
    int32_t inside; /* threads in a put through it */
};
struct mn_event {
    bool waited;
};
struct mn_weights {
    uint32_t n_put[N];
};

/* What the device is told to do, and what it has seen. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t met;
    uint32_t meet;            /* the first puts return when so many threads are inside */
    int32_t fail_at, lose_at; /* tensors; -1 = none */
    mn_status fail_with, lose_with, queues;
    uint32_t hiccups; /* puts that fail once with TRANSIENT */
    bool no_events;
    uint32_t inside, most_inside, in_flight, most_in_flight, n_puts, n_queues, n_made, n_waits;
    uint32_t n_sets, n_seals;
} dev;
static mn_queue caller;

static void reset(void) {
    memset(&dev, 0, sizeof dev);
    pthread_mutex_init(&dev.lock, NULL);
    pthread_cond_init(&dev.met, NULL);
    dev.fail_at = dev.lose_at = -1;
    dev.lose_with = MN_DEVICE_LOST;
}

/* ---- the device ------------------------------------------------------------------------------ */
static mn_status say(mn_error *err, mn_status st, const char *what, uint32_t i) {
    return mn_fail_node(err, st, i, "%s %u", what, i);
}
static mn_status queue_create(mn_device *d, const mn_queue_params *params, mn_queue **out,
                              mn_error *err) {
    (void)d, (void)params;
    if (dev.queues)
        return say(err, dev.queues, "no queue", 0);
    *out = mn_calloc(1, sizeof **out);
    dev.n_queues++;
    dev.n_made++;
    return MN_OK;
}
static void queue_free(mn_queue *q) {
    assert_int_equal(q->inside, 0);
    mn_free(q);
    dev.n_queues--;
}
static mn_status weights_open(mn_device *d, const mn_compile *c, mn_weights **out, mn_error *err) {
    (void)d, (void)c, (void)err;
    *out = mn_calloc(1, sizeof **out);
    dev.n_sets++;
    return MN_OK;
}
static void weights_free(mn_weights *w) {
    assert_int_equal(dev.in_flight, 0);
    mn_free(w);
    dev.n_sets--;
}

static void enter(mn_queue *q) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += HANG_S;
    dev.inside++;
    q->inside++;
    assert_int_equal(q->inside, 1);
    dev.most_inside = MN_MAX(dev.most_inside, dev.inside);
    pthread_cond_broadcast(&dev.met);
    while (dev.most_inside < dev.meet)
        if (pthread_cond_timedwait(&dev.met, &dev.lock, &end))
            fail_msg("no more than %u threads came", dev.most_inside);
}

static mn_status weights_put(mn_weights *w, mn_queue *q, const mn_weight_src *src, mn_event **event,
                             mn_error *err) {
    const uint32_t t = src->tensor;
    mn_status st = MN_OK;
    pthread_mutex_lock(&dev.lock);
    enter(q);
    *event = NULL;
    dev.n_puts++;
    if (dev.hiccups && dev.hiccups--)
        st = say(err, MN_STATUS(MN_CLASS_TRANSIENT, 9), "busy", t);
    else if ((int32_t)t == dev.fail_at)
        st = say(err, dev.fail_with, "bad weight", t);
    else if ((int32_t)t == dev.lose_at)
        st = say(err, dev.lose_with, "gone at", t);
    if (!st) {
        w->n_put[t]++;
        if (!dev.no_events) {
            *event = mn_calloc(1, sizeof **event);
            dev.in_flight++;
        }
        dev.most_in_flight = MN_MAX(dev.most_in_flight, dev.in_flight);
    }
    dev.inside--;
    q->inside--;
    pthread_mutex_unlock(&dev.lock);
    return st;
}

static mn_status wait(mn_event *e, uint64_t timeout_ns, mn_error *err) {
    (void)timeout_ns, (void)err;
    pthread_mutex_lock(&dev.lock);
    e->waited = true;
    dev.n_waits++;
    pthread_mutex_unlock(&dev.lock);
    return MN_OK;
}
static void event_free(mn_event *e) {
    pthread_mutex_lock(&dev.lock);
    assert_true(e->waited);
    dev.in_flight--;
    pthread_mutex_unlock(&dev.lock);
    mn_free(e);
}
static mn_status weights_seal(mn_weights *w, mn_queue *q, uint32_t *kept_how, mn_error *err) {
    (void)err;
    assert_ptr_equal(q, &caller);
    assert_int_equal(dev.in_flight, 0);
    assert_int_equal(dev.n_queues, 0);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(w->n_put[i], i != UNREAD);
    *kept_how = MN_KEPT_COPIED;
    dev.n_seals++;
    return MN_OK;
}

static const mn_backend table = {.size = sizeof table,
                                 .queue_create = queue_create,
                                 .queue_free = queue_free,
                                 .wait = wait,
                                 .event_free = event_free,
                                 .weights_open = weights_open,
                                 .weights_put = weights_put,
                                 .weights_seal = weights_seal,
                                 .weights_free = weights_free};

/* ---- a graph whose one node reads all weights but one ---------------------------------------- */
static mn_status import(uint32_t n_threads, uint64_t bytes_of_each, mn_error *err) {
    static mn_tensor tensors[N];
    static mn_graph_weight weights[N];
    static mn_model_tensor_entry entries[N];
    static int32_t operands[N];
    static mn_node node = {.op = MN_OP_LINEAR, .n_in = N};
    static mn_model_graph g;
    for (int32_t i = 0; i < N; i++) {
        tensors[i] = (mn_tensor){.role = MN_ROLE_WEIGHT, .alias_of = -1};
        entries[i].bytes = bytes_of_each;
        weights[i] = (mn_graph_weight){.tensor = i, .source = &entries[i]};
        operands[i] = i == UNREAD ? -1 : i;
    }
    g.abi = (mn_graph){.size = sizeof g.abi,
                       .n_nodes = 1,
                       .n_tensors = N,
                       .nodes = &node,
                       .tensors = tensors,
                       .operands = operands};
    g.weights = weights;
    g.n_weights = N;
    const mn_compile c = {.size = sizeof c, .graph = &g.abi, .node_hi = 1};
    const mn_import in = {
        .backend = &table, .queue = &caller, .n_threads = n_threads, .compile = &c, .graph = &g};
    mn_weights *set = NULL;
    uint32_t kept_how = 0;
    mn_status st = mn_weights_import(&in, &set, &kept_how, err);
    if (!st) {
        assert_int_equal(kept_how, MN_KEPT_COPIED);
        assert_int_equal(dev.n_seals, 1);
        assert_int_equal(dev.n_waits, dev.no_events ? 0 : N - 1);
        weights_free(set);
    }
    assert_int_equal(dev.n_sets, 0); /* also after an error nothing is left */
    assert_int_equal(dev.n_queues, 0);
    assert_int_equal(dev.in_flight, 0);
    return st;
}
#define BIG (64ull << 20)

static void works(uint32_t n_threads, uint64_t bytes_of_each) {
    mn_error err = MN_ERROR_INIT;
    if (import(n_threads, bytes_of_each, &err))
        fail_msg("%s", err.msg);
}

/* ---- the tests ------------------------------------------------------------------------------- */
static void one_thread(void **state) {
    (void)state;
    reset();
    works(1, BIG);
    assert_int_equal(dev.most_inside, 1);
    assert_int_equal(dev.n_made, 0);
    assert_int_equal(dev.most_in_flight, 16); /* many, and there is an end to it */
    reset();
    dev.no_events = true;
    works(1, BIG);
    reset();
    dev.hiccups = 5;
    works(1, BIG);
    assert_int_equal(dev.n_puts, N - 1 + 5);
}

static void several_threads(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= 8; n *= 2) {
        reset();
        dev.meet = n; /* all of them at the same time, each with a queue of its own */
        works(n, BIG);
        assert_int_equal(dev.most_inside, n);
        assert_int_equal(dev.n_made, n - 1);
        assert_in_range(dev.most_in_flight, 1, 16);
    }
    reset();
    works(8, 1000); /* a small model is not worth a thread */
    assert_int_equal(dev.n_made, 0);
    reset();
    works(0, BIG);
    reset();
    works(1000, BIG);
    assert_in_range(dev.n_made, 1, 7);
}

static void fewer_queues(void **state) {
    mn_error err = MN_ERROR_INIT;
    (void)state;
    reset();
    dev.queues = MN_OUT_OF_MEMORY; /* then without them */
    works(4, BIG);
    reset();
    dev.queues = MN_DEVICE_LOST;
    assert_int_equal(import(4, BIG, &err), MN_DEVICE_LOST);
    assert_string_equal(err.msg, "no queue 0");
}

static void failures(void **state) {
    static const mn_status with[] = {MN_BAD_FILE, MN_OUT_OF_MEMORY, MN_CANCELLED};
    (void)state;
    for (uint32_t n = 1; n <= 4; n += 3)
        for (size_t k = 0; k < MN_COUNT(with); k++) {
            mn_error err = MN_ERROR_INIT;
            reset();
            dev.fail_at = 20;
            dev.fail_with = with[k];
            assert_int_equal(import(n, BIG, &err), with[k]);
            assert_string_equal(err.msg, "bad weight 20");
            assert_int_equal(err.node, 20);
            assert_int_equal(dev.n_seals, 0);
            if (n == 1)
                assert_int_equal(dev.n_puts, 20);
        }
}

/* A device that is lost is what counts, whatever else fails at the same time. */
static void lost(void **state) {
    mn_error err = MN_ERROR_INIT;
    (void)state;
    reset();
    dev.meet = 2;
    dev.fail_at = 0;
    dev.fail_with = MN_BAD_FILE;
    dev.lose_at = 1;
    assert_int_equal(import(2, BIG, &err), MN_DEVICE_LOST);
    assert_string_equal(err.msg, "gone at 1");
}

/* Of weights that fail at the same time the first in the graph's order is told. */
static void two_fail(void **state) {
    (void)state;
    for (int32_t first = 0; first < 2; first++) {
        mn_error err = MN_ERROR_INIT;
        reset();
        dev.meet = 2;
        dev.fail_at = first;
        dev.fail_with = MN_BAD_FILE;
        dev.lose_at = !first;
        dev.lose_with = MN_OUT_OF_MEMORY;
        assert_int_equal(import(2, BIG, &err), first ? MN_OUT_OF_MEMORY : MN_BAD_FILE);
        assert_int_equal(err.node, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),   cmocka_unit_test(several_threads),
        cmocka_unit_test(fewer_queues), cmocka_unit_test(failures),
        cmocka_unit_test(lost),         cmocka_unit_test(two_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
