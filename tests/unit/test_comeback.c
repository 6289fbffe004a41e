/* test_comeback.c -- a device that was lost is tried again, later and later, and is used when it is
 * back. */
#include "failover_world.h"
#include "registry/internal.h"
#include <pthread.h>

static const mn_device_record *flaky_record(void) {
    const mn_device_record *d = mn_registry_device(rt->registry, mn_str_of("flaky"));
    assert_non_null(d);
    return d;
}

/* A session that is on the device now, whatever was before. */
static void is_used(const char *list, const char *device) {
    mn_session *s = session(list, 1, 1);
    mn_session_info info = {.size = sizeof info};
    mn_session_get_info(s, &info);
    assert_string_equal(info.device, device);
    mn_session_free(s);
}

static void is_refused(const char *why) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    assert_int_equal(try_session("flaky", 1, 1, &s, &err), MN_NO_DEVICE);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, why);
}

/* Plays until the device is lost and the session has gone on elsewhere. */
static mn_session *lose_one(void) {
    mn_session *s = session("flaky,cpu_simd", 1, 1);
    mn_sample_params p = greedy();
    int32_t ids[128], seq;
    mn_error err = MN_ERROR;
    story to = {0};
    check(mn_seq_create(s, ids, prompt(0, ids), &p, &seq, &err), &err);
    run(s, &to);
    assert_string_equal(log_text, "flaky was lost (the plug was pulled); going on with cpu_simd");
    return s;
}

static void test_comes_back(void **state) {
    (void)state;
    tell(5);
    open_world(OPTIONS("lost_after", "7", "back_after", "2"));
    mn_registry_set_delays(rt->registry, 0, 0);
    story got = play("flaky,cpu_simd", 5, 1, greedy());
    same(&told[0][5], &got);
    assert_int_equal(n_warnings, 1);
    is_refused("the plug was pulled"); /* the first attempt does not help */
    got = play("flaky", 5, 1, greedy());
    same(&told[0][5], &got);
    assert_string_equal(log_text, "device flaky was lost and is back");
    assert_int_equal(n_warnings, 2);
    assert_true(flaky_record()->usable);
    assert_string_equal(flaky_record()->reason, "");
    close_world();
}

/* Nobody opens it before its delay is over, and a list that does not name it does not wait. */
static void test_delay(void **state) {
    mn_device_item item;
    const uint64_t hour = 3600 * 1000000000ull;
    (void)state;
    open_world(OPTIONS("lost_after", "1", "back_after", "1"));
    mn_registry_set_delays(rt->registry, hour, hour);
    mn_session_free(lose_one());
    for (int i = 0; i < 3; i++)
        is_refused("lost: the plug was pulled; tried again in 3600 s at the earliest");
    is_used("auto", "cpu_simd");
    for (uint32_t i = 0; !mn_runtime_device(rt, i, &item); i++)
        assert_in_range(item.retry_s, strcmp(item.name, "flaky") ? 0 : 3500,
                        strcmp(item.name, "flaky") ? 0 : 3600);
    close_world();
    open_world(OPTIONS("lost_after", "1", "back_after", "1"));
    mn_registry_set_delays(rt->registry, 0, 0);
    mn_session_free(lose_one());
    is_used("cpu_simd", "cpu_simd");
    assert_false(flaky_record()->usable);
    mn_session_free(session("auto", 1, 1)); /* a choice that it is part of */
    assert_true(flaky_record()->usable);
    close_world();
}

/* A device that is lost again soon waits twice as long as before; one that was well for longer than
 * the longest delay begins anew. */
static void test_delay_of_relapse(void **state) {
    const uint64_t second = 1000000000;
    (void)state;
    open_world(OPTIONS("lost_after", "1", "back_after", "1"));
    mn_registry *reg = rt->registry;
    const mn_device_record *d = flaky_record();
    mn_device_state *s = &reg->state[d - reg->devices];
    for (int well = 0; well < 2; well++) {
        mn_registry_set_delays(reg, 0, 0);
        mn_registry_quarantine(reg, d, "a first time");
        mn_registry_retry(reg, d);
        assert_true(d->usable);
        s->delay_ns = 500 * second;
        mn_registry_set_delays(reg, 7, well ? 8 : 100000 * second);
        mn_registry_quarantine(reg, d, "again");
        assert_int_equal(s->delay_ns, well ? 7 : 1000 * second);
        s->next_ns = 0;
        mn_registry_retry(reg, d);
    }
    close_world();
}

/* Attempts become rare: 1 ns, 2 ns, ... 300 s. */
static void test_stays_lost(void **state) {
    (void)state;
    open_world(OPTIONS("lost_after", "1"));
    mn_registry_set_delays(rt->registry, 1, 300 * 1000000000ull);
    mn_session_free(lose_one());
    n_attempts = 0;
    mn_log_level(MN_LOG_INFO);
    for (int i = 0; i < 3000 && mn_registry_retry_s(rt->registry, flaky_record()) < 2; i++) {
        mn_registry_retry(rt->registry, flaky_record());
        usleep(1000);
    }
    mn_log_level(MN_LOG_WARN);
    assert_in_range(mn_registry_retry_s(rt->registry, flaky_record()), 2, 300);
    assert_in_range(n_attempts, 20, 35);
    is_refused("lost: the plug was pulled; tried again in ");
    close_world();
}

static void test_self_test(void **state) {
    (void)state;
    open_world(OPTIONS("lost_after", "1", "back_after", "1", "bad_test", "2"));
    mn_registry_set_delays(rt->registry, 0, 0);
    mn_session_free(lose_one());
    is_refused("the plug was pulled");
    is_refused("the plug was pulled");
    is_used("flaky", "flaky");
    close_world();
}

/* The device is closed when its last user lets go, and not tried before. */
static void test_in_use(void **state) {
    (void)state;
    open_world(OPTIONS("lost_after", "1", "back_after", "1"));
    mn_registry_set_delays(rt->registry, 0, 0);
    mn_session *idle = session("flaky", 1, 1);
    mn_session_free(lose_one());
    is_refused("lost: the plug was pulled; tried again when the sessions that used it are over");
    mn_session_free(idle);
    is_used("flaky", "flaky");
    close_world();
}

/* Losses and returns while several threads open sessions: the stub ends the process if the device
 * is opened twice, or closed too early. */
static void *come_and_go(void *arg) {
    static const char *const lists[] = {"flaky,cpu_simd", "auto"};
    mn_session_params p = {.size = sizeof p,
                           .device = lists[(uintptr_t)arg % 2],
                           .precision = MN_PRECISION_EXACT,
                           .n_ctx = 64,
                           .n_batch = 16};
    for (int i = 0; i < 6; i++) {
        mn_session *s = NULL;
        mn_sample_params sample = greedy();
        mn_token t;
        int32_t seq;
        uint32_t n = 1;
        mn_status st = mn_session_create(model, &p, &s, NULL);
        if (!st)
            st = mn_seq_create(s, (const int32_t[]){0, 7, 9}, 3, &sample, &seq, NULL);
        while (!st && n)
            st = mn_session_step(s, &t, 1, &n, NULL);
        mn_session_free(s);
        if (st)
            return s;
    }
    return (void *)(uintptr_t)1;
}

static void test_threads(void **state) {
    pthread_t t[4];
    (void)state;
    open_world(OPTIONS("lost_after", "5", "back_after", "1", "relapse", "9"));
    mn_registry_set_delays(rt->registry, 0, 0);
    mn_log_level(MN_LOG_ERROR);
    for (uintptr_t i = 0; i < MN_COUNT(t); i++)
        assert_int_equal(pthread_create(&t[i], NULL, come_and_go, (void *)i), 0);
    for (size_t i = 0; i < MN_COUNT(t); i++) {
        void *done;
        pthread_join(t[i], &done);
        assert_non_null(done);
    }
    mn_log_level(MN_LOG_WARN);
    close_world();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),       cmocka_unit_test(test_delay),
        cmocka_unit_test(test_delay_of_relapse), cmocka_unit_test(test_stays_lost),
        cmocka_unit_test(test_self_test),        cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_threads)};
    return failover_main(tests, MN_COUNT(tests), argc, argv);
}
