/* test_serve_faults.c -- requests while things fail: a device that is lost after any number of
 * steps, allocations that fail one after the other. What comes out is what would have come out, and
 * no page is left behind. */
#include "base/base.h"
#include "flaky.h"
#include "serving.h"

enum { N = 5, CHOICES = 2 };
static int32_t ids[N][200];
static const mn_logit_bias bias[] = {{400, 3}};

static mn_sample_params params_of(uint32_t i) {
    return (mn_sample_params){.size = sizeof(mn_sample_params),
                              .max_new = 14 + i,
                              .ignore_stop = 1,
                              .temp = 1,
                              .seed = i,
                              .repeat_penalty = 1.1f,
                              .penalty_last_n = -1,
                              .bias = bias,
                              .n_bias = i == 3};
}

static mn_request_params request_of(uint32_t i, const mn_sample_params *sample) {
    return (mn_request_params){.size = sizeof(mn_request_params),
                               .ids = ids[i],
                               .n_ids = words(i / 2, 60 + 30 * i, ids[i]),
                               .sample = sample,
                               .n_choices = i ? 1 : CHOICES,
                               .flags = i == 2 ? MN_SUBMIT_LOGPROBS : 0,
                               .n_top = 2};
}

static mn_session *serve_on(const char *name) {
    mn_session_params p = {.n_seq = 3, .n_ctx = 256, .n_batch = 48, .run_ahead = 2};
    device = name;
    return open_with(p);
}

static void check_all(mn_session *s, const served *got, const served *want) {
    mn_session_load load = {.size = sizeof load};
    for (uint32_t i = 0; i < N + CHOICES - 1; i++)
        same_ids(&got[i], &want[i]);
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    assert_true(load.pages_used == 0 && load.n_running == 0 && load.n_waiting == 0);
}

/* Request 0 has the first places, one per choice. */
static void play(mn_session *s, served *got) {
    memset(got, 0, sizeof *got * (N + CHOICES - 1));
    for (uint32_t i = 0; i < N; i++) {
        const mn_sample_params p = params_of(i);
        submit(s, request_of(i, &p), &got[i ? i + CHOICES - 1 : 0]);
    }
    finish_all(s, got, N + CHOICES - 1);
}

static served want[N + CHOICES], got[N + CHOICES];

/* Under sanitizers, where a play takes ten times as long, fewer of the moments. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY_STEP = 19, EVERY_ALLOCATION = 7 };
#else
enum { EVERY_STEP = 11, EVERY_ALLOCATION = 3 };
#endif

static void test_lost(void **state) {
    (void)state;
    mn_log_level(MN_LOG_ERROR);
    begin_world(NULL);
    mn_session *s = serve_on("cpu_simd");
    play(s, want);
    check_all(s, want, want);
    mn_session_free(s);
    for (uint32_t i = 1; i < N; i++) { /* nothing that they shared shows */
        const mn_sample_params p = params_of(i);
        lone(request_of(i, &p), got);
        same_ids(got, &want[i + CHOICES - 1]);
    }
    end_world();
    for (int k = 0; k < 60; k += EVERY_STEP) {
        char after[16];
        snprintf(after, sizeof after, "%d", k);
        begin_world((const char *const[]){"lost_after", after, "async", "1", NULL});
        s = serve_on("flaky,cpu_simd");
        play(s, got);
        check_all(s, got, want);
        mn_session_free(s);
        end_world();
    }
}

/* One call that fails for want of memory is made again. */
static uint32_t next_or_fail(mn_session *s, uint32_t *n_failed) {
    mn_request_events events = {.size = sizeof events};
    mn_error err = MN_ERROR;
    const mn_status st = mn_session_next(s, 1000, &events, &err);
    if (st)
        assert_int_equal(st, MN_OUT_OF_MEMORY);
    *n_failed += st != MN_OK;
    for (uint32_t i = 0; i < events.n; i++)
        take_event(&events.events[i]);
    return events.n;
}

static void test_no_memory(void **state) {
    (void)state;
    uint32_t n_failed = 0;
    mn_log_level(MN_LOG_ERROR);
    begin_world(NULL);
    for (int64_t k = 0; k < 120; k += k < 40 ? EVERY_ALLOCATION : 17) {
        mn_session *s = serve_on("cpu_simd");
        uint32_t n_ended = 0;
        memset(got, 0, sizeof got);
        mn_alloc_fail_once(k);
        for (uint32_t i = 0; i < N; i++) {
            const mn_sample_params p = params_of(i);
            served *to = &got[i ? i + CHOICES - 1 : 0];
            mn_request_params r = request_of(i, &p);
            r.user = to;
            mn_status st = mn_session_submit(s, &r, &to->id, NULL);
            if (st == MN_OUT_OF_MEMORY)
                st = mn_session_submit(s, &r, &to->id, NULL);
            assert_int_equal(st, MN_OK);
        }
        for (uint32_t calls = 0; n_ended < N + CHOICES - 1; calls++) {
            assert_true(calls < 10000);
            next_or_fail(s, &n_failed);
            n_ended = 0;
            for (uint32_t i = 0; i < N + CHOICES - 1; i++)
                n_ended += got[i].finish != 0;
        }
        mn_alloc_fail_once(-1);
        check_all(s, got, want);
        mn_session_free(s);
    }
    assert_true(n_failed > 0);
    end_world();
}

/* A device that cannot compute logprobs and biases: the first request that asks for them ends with
 * its reason, later ones are refused at once, and others run. */
static void test_refused(void **state) {
    static served alone, bad, good;
    (void)state;
    mn_error err = MN_ERROR;
    uint64_t id = 0;
    begin_world((const char *const[]){"plain", "1", NULL});
    mn_session *s = serve_on("flaky");
    const mn_sample_params plain = params_of(0);
    const mn_sample_params biased = params_of(3);
    mn_request_params r = request_of(1, &plain);
    submit(s, r, &alone);
    finish_all(s, &alone, 1);
    r.flags = MN_SUBMIT_LOGPROBS;
    submit(s, r, &bad);
    r.flags = 0;
    submit(s, r, &good);
    finish_all(s, &bad, 1);
    finish_all(s, &good, 1);
    assert_int_equal(bad.finish, MN_FINISH_FAILED);
    assert_non_null(strstr(bad.message, "draws ids and nothing else"));
    same_ids(&good, &alone);
    r.flags = MN_SUBMIT_PROMPT_LOGPROBS;
    assert_int_equal(mn_session_submit(s, &r, &id, &err), MN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "cannot compute logprobs"));
    r.flags = 0;
    r.sample = &biased;
    assert_int_equal(mn_session_submit(s, &r, &id, &err), MN_UNSUPPORTED);
    mn_sample_params xtc = plain;
    xtc.temp = 1;
    xtc.xtc_probability = 0.5f;
    r.sample = &xtc;
    submit(s, r, &bad);
    finish_all(s, &bad, 1);
    assert_int_equal(bad.finish, MN_FINISH_FAILED);
    assert_non_null(strstr(bad.message, "samplers beyond"));
    assert_int_equal(mn_session_submit(s, &r, &id, &err), MN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "no samplers beyond"));
    r.sample = &plain;
    submit(s, r, &good);
    finish_all(s, &good, 1);
    same_ids(&good, &alone);
    mn_session_free(s);
    end_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_refused)};
    if (!flaky_setup()) {
        printf("skipped: the stub was not built\n");
        return 77;
    }
    const int bad = cmocka_run_group_tests_name("serve_faults", tests, NULL, NULL);
    flaky_teardown();
    return bad;
}
