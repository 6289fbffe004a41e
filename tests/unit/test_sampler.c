/* test_sampler.c -- a device whose plugin knows an older contract of SAMPLE, with a newer one
 * behind it in the list: requests that need the newer contract are drawn there, and everybody has
 * the ids that one new device gives. */
#include "base/base.h"
#include "flaky.h"
#include "serving.h"
#include <math.h>

enum { N = 8, MIROSTAT = 2, GUIDED = 6 };
static const mn_logit_bias bias[] = {{400, 3}, {17, -2}};
static int32_t ids[N][200];
static served want[N];
static served got[N];

/* Requests 0, 1 and 7 need no contract 4. */
static mn_sample_params sample_of(uint32_t i, mn_constraint *words_of) {
    mn_sample_params p = {.size = sizeof p,
                          .max_new = 30 + i,
                          .ignore_stop = i != GUIDED,
                          .temp = i ? 1.2f : 0,
                          .seed = 5 + i,
                          .repeat_penalty = i % 2 ? 1.1f : 0,
                          .penalty_last_n = -1};
    if (i == MIROSTAT || i == 3 || i == GUIDED)
        p.mirostat = 2;
    if (i == 3) {
        p.bias = bias;
        p.n_bias = 2;
    }
    if (i == 4) {
        p.dry_multiplier = 0.8f;
        p.xtc_probability = 0.5f;
    }
    if (i == 5)
        p.samplers = "temperature;top_k;min_p";
    if (i == GUIDED)
        p.constraint = words_of;
    return p;
}

static mn_request_params request_of(uint32_t i, const mn_sample_params *sample) {
    return (mn_request_params){.size = sizeof(mn_request_params),
                               .ids = ids[i],
                               .n_ids = words(i, 20 + 15 * i, ids[i]),
                               .sample = sample,
                               .flags = i == 3 || i == 7 ? MN_SUBMIT_LOGPROBS : 0,
                               .n_top = 2};
}

static void play(mn_session *s, served *out) {
    static const char source[] = "([a-z]{2,4} ){5}end";
    const mn_constraint_params how = {
        .size = sizeof how, .kind = MN_CONSTRAINT_REGEX, .source = {source, sizeof source - 1}};
    mn_constraint *c = NULL;
    mn_error err = MN_ERROR;
    if (mn_constraint_create(model, &how, &c, &err))
        fail_msg("%s", err.msg);
    for (uint32_t i = 0; i < N; i++) {
        const mn_sample_params p = sample_of(i, c);
        submit(s, request_of(i, &p), &out[i]);
    }
    finish_all(s, out, N);
    mn_constraint_free(c);
    for (uint32_t i = 0; i < N; i++)
        if (out[i].finish == MN_FINISH_FAILED)
            fail_msg("request %u: %s", i, out[i].message);
}

static mn_session *serve_on(const char *name, uint32_t speculate) {
    const mn_session_params p = {
        .n_seq = 5, .n_ctx = 256, .n_batch = 48, .run_ahead = 2, .speculate = speculate};
    device = name;
    return open_with(p);
}

/* Of a new device alone. */
static void expect(void) {
    if (want[0].n)
        return;
    begin_world(NULL);
    mn_session *s = serve_on("cpu_simd", 0);
    play(s, want);
    mn_session_free(s);
    end_world();
}

static void compare(const char *name, const char *const *options, uint32_t speculate,
                    const char *runs_on) {
    mn_session_info info = {.size = sizeof info};
    expect();
    begin_world(options);
    mn_session *s = serve_on(name, speculate);
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    assert_string_equal(info.device, runs_on);
    for (int again = 0; again < 2; again++) {
        play(s, got);
        for (uint32_t i = 0; i < N; i++) {
            same_ids(&got[i], &want[i]);
            for (uint32_t k = 0; k < got[i].n; k++)
                if (i == 3 || i == 7)
                    assert_true(fabsf(got[i].logprob[k] - want[i].logprob[k]) < 1e-3f);
        }
    }
    mn_session_free(s);
    end_world();
}

static void older(void **state) {
    (void)state;
    compare("flaky,cpu_simd", (const char *const[]){"sample", "3", NULL}, 0, "flaky");
    compare("flaky,cpu", (const char *const[]){"sample", "2", "async", "1", NULL}, 0, "flaky");
}

/* Where the host reads what leaves the device, and where some sequences verify drafts. */
static void read_back(void **state) {
    (void)state;
    const char *const options[] = {"sample", "3", "unified", "0", "async", "1", NULL};
    compare("flaky,cpu_simd", options, 0, "flaky");
    compare("flaky,cpu_simd", options, MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS, "flaky");
}

/* The older device is lost on the way, or the one that draws. */
static void lost(void **state) {
    static const struct {
        const char *devices;
        const char *after;
        const char *old;
    } rows[] = {{"flaky:0,cpu_simd", "9", "3"}, {"flaky:0,cpu_simd", "40", "3"}};
    (void)state;
    expect();
    mn_log_level(MN_LOG_ERROR);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        begin_world((const char *const[]){"sample", rows[k].old, "lost_after", rows[k].after,
                                          "async", "1", NULL});
        mn_session *s = serve_on(rows[k].devices, 0);
        play(s, got);
        for (uint32_t i = 0; i < N; i++)
            same_ids(&got[i], &want[i]);
        mn_session_free(s);
        end_world();
    }
}

/* Without a device that knows more. */
static void alone(void **state) {
    (void)state;
    expect();
    begin_world((const char *const[]){"sample", "3", NULL});
    mn_session *s = serve_on("flaky", 0);
    const mn_sample_params p = sample_of(MIROSTAT, NULL);
    const mn_sample_params plain = sample_of(1, NULL);
    submit(s, request_of(MIROSTAT, &p), &got[0]);
    submit(s, request_of(1, &plain), &got[1]);
    finish_all(s, got, 2);
    assert_int_equal(got[0].finish, MN_FINISH_FAILED);
    assert_non_null(strstr(got[0].message, "samplers beyond"));
    same_ids(&got[1], &want[1]);
    mn_session_free(s);
    end_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(older), cmocka_unit_test(read_back),
                                       cmocka_unit_test(lost), cmocka_unit_test(alone)};
    if (!flaky_setup()) {
        printf("skipped: the stub was not built\n");
        return 77;
    }
    const int bad = cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
    flaky_teardown();
    return bad;
}
