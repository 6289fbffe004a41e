/* test_words.c -- two plugins that work in turns through memory that both wrap: the reference
 * plugin's step writes its result and a word there, the step of the other one, enqueued before,
 * waits for the word, reads the result, and writes a word of its own: test_words PLUGIN.so, of a
 * GPU. The memory is mapped once for each, as by two processes. */
#include "case_plan.h"
#include "harness.h"
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 2, COLS = 8, DATA_AT = 4096, BYTES = 2 * 4096 };
enum { X, Y, SUM, TENSORS }; /* of ADD */
static const char *so;
static mn_error err;

/* One of the two. */
typedef struct {
    h_plugin p;
    op_case *c;
    case_plan *plan;
    uint8_t *at; /* its mapping */
    mn_buffer *wrapped;
} side;

static void side_open(side *s, const char *name, int fd, uint64_t seed) {
    memset(s, 0, sizeof *s);
    err = (mn_error){.size = sizeof err};
    assert_true(h_open(&s->p, name));
    const case_on on = {.be = s->p.be, .dev = s->p.dev, .queue = s->p.queue};
    s->c = case_random(MN_OP_ADD, MN_F32, &(op_shape){.rows = ROWS, .k = COLS}, seed);
    assert_int_equal(s->c->g.n_tensors, TENSORS);
    assert_int_equal(case_open(&on, s->c, MN_PRECISION_EXACT, &s->plan, &err), MN_OK);
    assert_int_equal(case_step(s->plan, s->c, &err), MN_OK);
    s->at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(s->at != MAP_FAILED);
    assert_int_equal(s->p.be->wrap(s->p.dev, s->at, BYTES, &s->wrapped, &err), MN_OK);
}

static void side_close(side *s) {
    case_close(s->plan);
    case_free(s->c);
    s->p.be->buffer_free(s->wrapped);
    munmap(s->at, BYTES);
    h_close(&s->p);
}

/* A tensor of its step lies in the shared memory from now on. */
static void side_bind(side *s, uint32_t tensor) {
    case_plan *p = s->plan;
    for (uint32_t i = 0; i < p->n_bindings; i++)
        if (p->binding[i].tensor == tensor) {
            p->binding[i].buffer = s->wrapped;
            p->binding[i].offset = DATA_AT;
        }
    assert_int_equal(s->p.be->context_bind(p->contexts[0], 0, p->binding, p->n_bindings,
                                           sizeof *p->binding, &err),
                     MN_OK);
}

static uint32_t *word_of(const side *s, uint32_t i) {
    return (uint32_t *)(void *)s->at + i;
}

static mn_word word(const side *s, uint32_t i, uint32_t value) {
    return (mn_word){.buffer = s->wrapped, .offset = 4 * i, .value = value};
}

/* wait, signal: NULL = none. */
static mn_status run(side *s, uint32_t context, const mn_word *wait, const mn_word *signal,
                     mn_event **ev) {
    mn_step step = mn_usual_step(0, s->c->value);
    step.waits = wait;
    step.n_waits = wait != NULL;
    step.signals = signal;
    step.n_signals = signal != NULL;
    step.word_stride = sizeof(mn_word);
    return s->p.be->execute(s->plan->contexts[context], &step, ev, &err);
}

static void pair_open(side *a, side *b) {
    const int fd = memfd_create("words", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    side_open(a, "reference", fd, 1);
    side_open(b, so, fd, 2);
    close(fd);
}

/* b = (a's sum) + (b's y), without the host between the steps. */
static void in_turns(void **state) {
    side a;
    side b;
    mn_event *ev = NULL;
    mn_event *back = NULL;
    (void)state;
    pair_open(&a, &b);
    side_bind(&a, SUM);
    side_bind(&b, X);
    const mn_backend *be = b.p.be;
    const mn_word wait = word(&b, 0, 1);
    const mn_word signal = word(&b, 1, 5);
    const mn_word made = word(&a, 0, 1);
    assert_int_equal(run(&b, 0, &wait, &signal, &ev), MN_OK);
    assert_int_equal(be->wait(ev, 20000000, &err), MN_TIMEOUT);
    assert_int_equal(*word_of(&a, 1), 0);
    assert_int_equal(run(&a, 0, NULL, &made, NULL), MN_OK);
    assert_int_equal(be->wait(ev, UINT64_C(20000000000), &err), MN_OK);
    assert_int_equal(__atomic_load_n(word_of(&a, 1), __ATOMIC_ACQUIRE), 5);
    be->event_free(ev);
    assert_int_equal(be->read(b.p.queue, b.plan->buffer[SUM], b.plan->guard, b.plan->host, 0,
                              ROWS * COLS * 4, &back, &err),
                     MN_OK);
    assert_int_equal(be->wait(back, UINT64_MAX, &err), MN_OK);
    be->event_free(back);
    const float *sum = b.plan->host_map;
    const float *x = a.c->result[SUM];
    const float *y = b.c->data[Y];
    for (int i = 0; i < ROWS * COLS; i++)
        assert_true(sum[i] == x[i] + y[i]);
    side_close(&a);
    side_close(&b);
}

/* Values go round; a word that is beyond the value counts as reached. */
static void values(void **state) {
    side a;
    side b;
    static const uint32_t is[] = {5, 6, 0, 0x7fffffff, 0x80000006};
    static const uint32_t want[] = {5, 5, 0xffffffff, 5, 5};
    static const bool reached[] = {true, true, true, true, false};
    (void)state;
    pair_open(&a, &b);
    for (int i = 0; i < 5; i++) {
        mn_event *ev = NULL;
        const mn_word wait = word(&b, 2, want[i]);
        __atomic_store_n(word_of(&a, 2), is[i], __ATOMIC_RELEASE);
        assert_int_equal(run(&b, 0, &wait, NULL, &ev), MN_OK);
        if (!reached[i]) {
            assert_int_equal(b.p.be->wait(ev, 20000000, &err), MN_TIMEOUT);
            __atomic_store_n(word_of(&a, 2), want[i], __ATOMIC_RELEASE);
        }
        assert_int_equal(b.p.be->wait(ev, UINT64_C(20000000000), &err), MN_OK);
        b.p.be->event_free(ev);
    }
    side_close(&a);
    side_close(&b);
}

/* An abort ends a wait that nobody would end. */
static void aborted(void **state) {
    side a;
    side b;
    mn_event *ev = NULL;
    (void)state;
    pair_open(&a, &b);
    const mn_word never = word(&b, 3, 9);
    const mn_word signal = word(&b, 4, 7);
    assert_int_equal(case_second_context(b.plan, &err), MN_OK);
    assert_int_equal(run(&b, 1, &never, &signal, &ev), MN_OK);
    assert_int_equal(b.p.be->wait(ev, 20000000, &err), MN_TIMEOUT);
    assert_int_equal(b.p.be->abort(b.plan->queues[1]), MN_OK);
    const mn_status st = b.p.be->wait(ev, UINT64_C(20000000000), &err);
    assert_true(st == MN_OK || st == MN_CANCELLED);
    assert_int_equal(__atomic_load_n(word_of(&a, 4), __ATOMIC_ACQUIRE), 7);
    b.p.be->event_free(ev);
    side_close(&a);
    side_close(&b);
}

/* The words of a step whose device is lost are written all the same. */
static void lost(void **state) {
    const struct timespec nap = {0, 1000000};
    side a;
    side b;
    mn_event *ev = NULL;
    (void)state;
    if (!strstr(so, "gpu_toy"))
        skip();
    h_host_option("lost_after", "2"); /* the second step's kernel */
    pair_open(&a, &b);
    const mn_word signal = word(&b, 5, 3);
    assert_int_equal(run(&b, 0, NULL, &signal, &ev), MN_OK);
    assert_int_equal(b.p.be->wait(ev, UINT64_C(20000000000), &err), MN_DEVICE_LOST);
    for (int i = 0; i < 5000 && __atomic_load_n(word_of(&a, 5), __ATOMIC_ACQUIRE) != 3; i++)
        nanosleep(&nap, NULL);
    assert_int_equal(__atomic_load_n(word_of(&a, 5), __ATOMIC_ACQUIRE), 3);
    b.p.be->event_free(ev);
    side_close(&a);
    side_close(&b);
    h_host_option(NULL, NULL);
}

static void wrong_words(void **state) {
    side a;
    side b;
    (void)state;
    pair_open(&a, &b);
    const side *const sides[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        side *s = (side *)(uintptr_t)sides[i];
        const mn_word odd = {.buffer = s->wrapped, .offset = 2, .value = 1};
        const mn_word beyond = {.buffer = s->wrapped, .offset = BYTES, .value = 1};
        const mn_word nowhere = {.value = 1};
        assert_int_equal(run(s, 0, NULL, &odd, NULL), MN_INVALID);
        assert_int_equal(run(s, 0, NULL, &beyond, NULL), MN_INVALID);
        assert_int_equal(run(s, 0, NULL, &nowhere, NULL), MN_INVALID);
    }
    const mn_word wait = word(&a, 0, 1);
    assert_int_equal(run(&a, 0, &wait, NULL, NULL), MN_UNSUPPORTED); /* not asynchronous */
    const mn_word on_device = {.buffer = b.plan->buffer[SUM], .value = 1};
    assert_int_equal(run(&b, 0, &on_device, NULL, NULL), MN_INVALID);
    side_close(&a);
    side_close(&b);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_turns), cmocka_unit_test(values),      cmocka_unit_test(aborted),
        cmocka_unit_test(lost),     cmocka_unit_test(wrong_words),
    };
    if (argc != 2)
        return 1;
    so = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
