/* test_call.c -- calls into plugins as they are announced, watched, and told to handlers. Times are
 * only waited for, never measured. */
#include "base/call.h"
#include "base/call_limit.h"
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
enum { PATIENCE_MS = 60000 };

static _Atomic int n_stuck, n_said;
static mn_call_seen last;
static char said[2048];

static void on_stuck(void *arg, const mn_call_seen *call) {
    assert_ptr_equal(arg, &last);
    last = *call;
    atomic_fetch_add(&n_stuck, 1);
}

static void on_log(void *arg, int32_t level, const char *msg) {
    (void)arg, (void)level;
    snprintf(said, sizeof said, "%s", msg);
    atomic_fetch_add(&n_said, 1);
}

static bool comes(const _Atomic int *count, int n) {
    for (int i = 0; i < PATIENCE_MS && atomic_load(count) < n; i++)
        usleep(1000);
    return atomic_load(count) == n;
}

/* The calls of `plugin` are watched until finish. */
static mn_callee plugin = {.id = "stub", .path = "/lib/stub.so"};

static void begin(uint64_t say_ms, uint64_t limit_ms, uint64_t step_ms) {
    const mn_watch_params p = {.say_ns = say_ms * MS,
                               .limit_ns = limit_ms * MS,
                               .step_limit_ns = step_ms * MS,
                               .stuck = on_stuck,
                               .arg = &last};
    n_stuck = n_said = 0;
    mn_log_to(on_log, NULL);
    plugin.watch = mn_watch_create(&p);
    assert_non_null(plugin.watch);
}

static void finish(void) {
    mn_watch_free(plugin.watch);
    plugin.watch = NULL;
    mn_log_to(NULL, NULL);
}

static void a_call_that_hangs(void **state) {
    (void)state;
    begin(40, 80, 0);
    mn_call *call = mn_call_begin(&plugin, "supports", 0);
    assert_true(comes(&n_stuck, 1));
    assert_int_equal(n_said, 1);
    assert_non_null(strstr(said, "plugin stub (/lib/stub.so): its call supports is waited for"));
    assert_string_equal(last.what, "supports");
    assert_ptr_equal(last.callee, &plugin);
    assert_int_equal(last.limit_ns, 80 * MS);
    assert_true(last.waited_ns >= 80 * MS);
    usleep(300000); /* once, and it goes on being waited for */
    assert_int_equal(n_stuck, 1);
    assert_int_equal(n_said, 1);
    mn_call_end(call);
    call = mn_call_begin(&plugin, "compile", 0);
    assert_true(comes(&n_stuck, 2));
    mn_call_end(call);
    finish();
}

/* Short calls follow each other for longer than any limit, and nobody is told. Where the test
 * itself stood still for that long, it says nothing. */
static void calls_that_come_back(void **state) {
    (void)state;
    uint64_t longest = 0;
    begin(400, 400, 400);
    for (int i = 0; i < 80; i++) {
        const uint64_t from = mn_now_ns();
        MN_WATCHED(&plugin, "execute", usleep(10000));
        longest = MN_MAX(MN_MAX(longest, mn_now_ns() - from), 1);
    }
    if (longest < 200 * MS)
        assert_int_equal(n_stuck + n_said, 0);
    finish();
}

/* A step has as much more as it was expected to take, a hundredfold; a limit of 0 is none. */
static void steps(void **state) {
    (void)state;
    begin(20, 20, 20);
    mn_call *call = mn_call_begin(&plugin, "execute", 1000 * 1000 * MS);
    usleep(300000);
    assert_int_equal(n_stuck + n_said, 0);
    mn_call_end(call);
    call = mn_call_begin(&plugin, "execute", MS);
    assert_true(comes(&n_stuck, 1));
    assert_int_equal(last.limit_ns, 120 * MS);
    assert_int_equal(last.expected_ns, MS);
    mn_call_end(call);
    finish();
    begin(20, 20, 0);
    call = mn_call_begin(&plugin, "execute", 1);
    assert_true(comes(&n_said, 1));
    usleep(100000);
    assert_int_equal(n_stuck, 0);
    mn_call_end(call);
    finish();
}

/* The watch sleeps when there is nothing to see, and the next call wakes it. */
static void a_call_after_a_rest(void **state) {
    (void)state;
    begin(40, 40, 40);
    usleep(400000);
    mn_call *call = mn_call_begin(&plugin, "memory_layout", 0);
    assert_true(comes(&n_stuck, 1));
    mn_call_end(call);
    finish();
}

static void *call_and_wait(void *arg) {
    const int *go_on = arg;
    mn_call *call = mn_call_begin(&plugin, "weights_put", 0);
    char byte;
    while (read(*go_on, &byte, 1) < 0)
        continue;
    mn_call_end(call);
    return NULL;
}

static bool now_is(const char *what, bool alone) {
    const mn_callee *callee;
    const char *found;
    bool only;
    return mn_call_now(&callee, &found, &only) && !strcmp(found, what) && only == alone;
}

/* A handler is told of its own thread's call, else of another's. */
static void what_a_handler_sees(void **state) {
    (void)state;
    static mn_callee other = {.id = "other"};
    const mn_callee *callee;
    const char *what;
    int go_on[2];
    pthread_t thread;
    assert_false(mn_call_now(&callee, &what, NULL));
    assert_int_equal(pipe(go_on), 0);
    assert_int_equal(pthread_create(&thread, NULL, call_and_wait, &go_on[0]), 0);
    for (int i = 0; i < PATIENCE_MS && !mn_call_now(&callee, &what, NULL); i++)
        usleep(1000);
    assert_true(now_is("weights_put", true));
    mn_call *call = mn_call_begin(&other, "open", 0);
    assert_true(now_is("open", true));
    const pid_t child = fork();
    if (!child) { /* none of these calls are the child's */
        mn_call_fork();
        _exit(mn_call_now(&callee, &what, NULL));
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    mn_call_end(call);
    assert_int_equal(write(go_on[1], "x", 1), 1);
    pthread_join(thread, NULL);
    assert_false(mn_call_now(&callee, &what, NULL));
    close(go_on[0]), close(go_on[1]);
}

/* More than there is room for are not watched, and nothing else. */
static void too_many(void **state) {
    (void)state;
    enum { N = 100 };
    mn_call *calls[N];
    const mn_callee *callee;
    const char *what;
    for (int i = 0; i < N; i++)
        calls[i] = mn_call_begin(&plugin, "alloc", 0);
    assert_null(calls[N - 1]);
    for (int i = 0; i < N; i++)
        mn_call_end(calls[i]);
    assert_false(mn_call_now(&callee, &what, NULL));
    assert_null(mn_call_begin(NULL, "alloc", 0));
}

static void quick_calls(void **state) {
    const uint64_t s = UINT64_C(1000000000);
    (void)state;
    assert_int_equal(mn_call_limit_ns(300 * s, "entry"), 30 * s);
    assert_int_equal(mn_call_limit_ns(300 * s, "query"), 30 * s);
    assert_int_equal(mn_call_limit_ns(300 * s, "device_count"), 30 * s);
    assert_int_equal(mn_call_limit_ns(300 * s, "device_info"), 30 * s);
    assert_int_equal(mn_call_limit_ns(300 * s, "shutdown"), 10 * s);
    assert_int_equal(mn_call_limit_ns(300 * s, "compile"), 300 * s);
    assert_int_equal(mn_call_limit_ns(900 * s, "entry"), 90 * s); /* the setting stays */
    assert_int_equal(mn_call_limit_ns(900 * s, "shutdown"), 30 * s);
    assert_int_equal(mn_call_limit_ns(6 * s, "entry"), 6 * s);
    assert_int_equal(mn_call_limit_ns(0, "shutdown"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quick_calls),
        cmocka_unit_test(a_call_that_hangs),
        cmocka_unit_test(calls_that_come_back),
        cmocka_unit_test(steps),
        cmocka_unit_test(a_call_after_a_rest),
        cmocka_unit_test(what_a_handler_sees),
        cmocka_unit_test(too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
