/* test_scores.c -- what requests can ask of SAMPLE beside an id: logprobs of drawn ids and of
 * prompts, the most likely ids, biases, a least number of ids. The judge is mn_session_logits. */
#include "serving.h"
#include <math.h>

enum { V = 2048, MOST = 80, TOP = 5 };

/* Logits of every position of one text. */
typedef struct {
    float rows[MOST][V];
} table;
static table all;

static mn_status keep(void *arg, uint32_t first, uint32_t n, uint32_t n_vocab, const float *rows) {
    table *t = arg;
    assert_int_equal(n_vocab, V);
    memcpy(t->rows[first], rows, (size_t)n * V * sizeof *rows);
    return MN_OK;
}

static void judge(const int32_t *ids, uint32_t n) {
    mn_session *s = open_with((mn_session_params){.n_ctx = 128, .flags = MN_SESSION_NO_SAMPLING});
    assert_int_equal(mn_session_logits(s, ids, n, keep, &all, NULL), MN_OK);
    mn_session_free(s);
}

/* Of an id behind position `at`. */
static double logprob(uint32_t at, int32_t id) {
    const float *l = all.rows[at];
    double sum = 0;
    float most = l[0];
    for (int i = 0; i < V; i++)
        most = fmaxf(most, l[i]);
    for (int i = 0; i < V; i++)
        sum += exp((double)l[i] - (double)most);
    return (double)l[id] - (double)most - log(sum);
}

static void check_top(const mn_request_event *e, uint32_t at) {
    assert_int_equal(e->n_top, TOP);
    for (uint32_t k = 0; k < TOP; k++) {
        assert_true(fabs((double)e->top_logprobs[k] - logprob(at, e->top_ids[k])) < 1e-4);
        assert_true(!k || e->top_logprobs[k] <= e->top_logprobs[k - 1]);
    }
}

/* Greedy: each id is the most likely one; its logprob and those of the next best are the
 * model's. */
static void test_logprobs(void **state) {
    (void)state;
    int32_t ids[MOST];
    uint32_t n = words(1, 30, ids);
    uint64_t id;
    const mn_sample_params p = {.size = sizeof p, .max_new = 12, .ignore_stop = 1};
    const mn_request_params r = {.size = sizeof r,
                                 .ids = ids,
                                 .n_ids = n,
                                 .sample = &p,
                                 .flags = MN_SUBMIT_LOGPROBS | MN_SUBMIT_PROMPT_LOGPROBS,
                                 .n_top = TOP};
    served want;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &want);
    memcpy(ids + n, want.ids, 12 * sizeof *ids);
    judge(ids, n + 12);
    for (uint32_t n_seq = 1; n_seq < 4; n_seq += 2) {
        mn_session *s = open_with((mn_session_params){.n_seq = n_seq, .n_ctx = 128});
        mn_request_events events = {.size = sizeof events};
        uint32_t n_drawn = 0;
        bool done = false;
        assert_int_equal(mn_session_submit(s, &r, &id, NULL), MN_OK);
        while (!done) {
            assert_int_equal(mn_session_next(s, 10000, &events, NULL), MN_OK);
            for (uint32_t i = 0; i < events.n; i++) {
                const mn_request_event *e = &events.events[i];
                done = e->kind == MN_REQUEST_FINISH;
                if (e->kind == MN_REQUEST_PROMPT) {
                    assert_true(isnan(e->prompt_logprobs[0]) && e->prompt_top_ids[0] == -1);
                    for (uint32_t k = 1; k < n; k++)
                        assert_true(fabs((double)e->prompt_logprobs[k] - logprob(k - 1, ids[k])) <
                                    1e-4);
                    assert_true(fabs((double)e->prompt_top_logprobs[TOP * 7] -
                                     logprob(6, e->prompt_top_ids[TOP * 7])) < 1e-4);
                }
                if (e->kind != MN_REQUEST_TOKEN)
                    continue;
                assert_int_equal(e->id, want.ids[n_drawn]);
                assert_true(fabs((double)e->logprob - logprob(n + n_drawn - 1, e->id)) < 1e-4);
                assert_int_equal(e->top_ids[0], e->id);
                check_top(e, n + n_drawn - 1);
                n_drawn++;
            }
        }
        assert_int_equal(n_drawn, 12);
        mn_session_free(s);
    }
}

/* A bias forbids what was drawn, or forces what never was; the next request in the slot has
 * none. */
static void test_bias(void **state) {
    (void)state;
    int32_t ids[MOST];
    const uint32_t n = words(4, 20, ids);
    mn_sample_params p = {.size = sizeof p, .max_new = 6, .ignore_stop = 1};
    served plain, got;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &plain);
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 128});
    const mn_logit_bias never = {plain.ids[0], -INFINITY};
    const mn_logit_bias always[] = {{77, 1000}, {78, 999}};
    p.bias = &never;
    p.n_bias = 1;
    submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    finish_all(s, &got, 1);
    for (uint32_t i = 0; i < got.n; i++)
        assert_int_not_equal(got.ids[i], never.id);
    p.bias = always;
    p.n_bias = 2;
    submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    finish_all(s, &got, 1);
    for (uint32_t i = 0; i < got.n; i++)
        assert_int_equal(got.ids[i], 77);
    p.n_bias = 0;
    submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    finish_all(s, &got, 1);
    same_ids(&got, &plain);
    /* the older functions have it as well */
    int32_t seq;
    mn_token t;
    uint32_t k;
    p.n_bias = 2;
    assert_int_equal(mn_seq_create(s, ids, n, &p, &seq, NULL), MN_OK);
    assert_int_equal(mn_session_step(s, &t, 1, &k, NULL), MN_OK);
    assert_int_equal(t.id, 77);
    mn_seq_free(s, seq);
    const mn_logit_bias bad[] = {{V, 1}, {3, NAN}, {3, INFINITY}};
    uint64_t id;
    mn_request_params r = {.size = sizeof r, .ids = ids, .n_ids = n, .sample = &p};
    p.n_bias = 1;
    for (int i = 0; i < 3; i++) {
        p.bias = &bad[i];
        assert_int_equal(mn_session_submit(s, &r, &id, NULL), i ? MN_INVALID : MN_BAD_INPUT);
    }
    const mn_logit_bias twice[] = {{5, 1}, {5, 2}};
    p.bias = twice;
    p.n_bias = 2;
    assert_int_equal(mn_session_submit(s, &r, &id, NULL), MN_BAD_INPUT);
    mn_session_free(s);
}

/* A stop id that would be the first one is not drawn before min_new ids. */
static void test_min_new(void **state) {
    (void)state;
    int32_t ids[MOST];
    const uint32_t n = words(6, 20, ids);
    mn_sample_params p = {.size = sizeof p, .max_new = 20};
    served got;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    const int32_t stop = got.ids[0];
    p.stop = &stop;
    p.n_stop = 1;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    assert_true(got.n == 1 && got.finish == MN_FINISH_STOP);
    p.min_new = 7;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    assert_true(got.n >= 7);
    for (uint32_t i = 0; i + 1 < 7; i++)
        assert_int_not_equal(got.ids[i], stop);
}

/* Requests that score beside others that do not: each draws what it draws alone, sampled, with a
 * bias, also when pages run out. */
static void test_mixed(void **state) {
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* sequences are scheduled alike for all, and the oracle is slow */
    enum { N = 5 };
    static served want[N], got[N];
    int32_t ids[N][MOST];
    mn_sample_params p[N];
    mn_session_info info = {.size = sizeof info};
    const mn_logit_bias bias[] = {{300, 4}, {301, -3}};
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 64, .n_batch = 64});
    mn_session_get_info(s, &info);
    mn_session_free(s);
    s = open_with((mn_session_params){
        .n_seq = N, .n_ctx = 512, .n_batch = 64, .kv_bytes = 5 * info.kv_bytes});
    for (uint32_t i = 0; i < N; i++) {
        p[i] = (mn_sample_params){.size = sizeof p[i],
                                  .max_new = 70,
                                  .ignore_stop = 1,
                                  .temp = 1,
                                  .seed = i,
                                  .bias = bias,
                                  .n_bias = i % 2 ? 2 : 0};
        const mn_request_params r = {.ids = ids[i],
                                     .n_ids = words(i, 25 + 9 * i, ids[i]),
                                     .sample = &p[i],
                                     .flags = i > 2 ? MN_SUBMIT_LOGPROBS : 0,
                                     .n_top = i};
        lone(r, &want[i]);
        submit(s, r, &got[i]);
    }
    finish_all(s, got, N);
    for (uint32_t i = 0; i < N; i++) {
        same_ids(&got[i], &want[i]);
        for (uint32_t k = 0; k < got[i].n; k++)
            assert_true(i > 2 ? fabsf(got[i].logprob[k] - want[i].logprob[k]) < 1e-5f
                              : isnan(got[i].logprob[k]));
    }
    mn_session_load load = {.size = sizeof load};
    mn_session_get_load(s, &load);
    assert_true(load.n_preempted > 0 && load.pages_used == 0);
    mn_session_free(s);
}

int main(int argc, char **argv) {
    static const char *const devices[] = {"cpu_simd", "reference", "cuda:0", "opencl"};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logprobs), cmocka_unit_test(test_bias),
                                       cmocka_unit_test(test_min_new),
                                       cmocka_unit_test(test_mixed)};
    int bad = 0;
    if (open_model(argc, argv))
        return 1;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        mn_device_item d;
        bool there = false;
        if (argc > 2 && strcmp(argv[2], devices[i]))
            continue;
        for (uint32_t k = 0; !there && !mn_runtime_device(rt, k, &d); k++)
            there = !strcmp(d.name, devices[i]) && d.usable;
        device = devices[i];
        if (there)
            bad += cmocka_run_group_tests_name(device, tests, NULL, NULL);
        else
            printf("skipped: %s is not built\n", device);
    }
    return close_model(bad);
}
