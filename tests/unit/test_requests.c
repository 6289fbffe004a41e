/* test_requests.c -- requests of mn_session_submit: events and their order, waiting, abort, resume,
 * prefill alone, and what threads may do. */
#include "serving.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static const mn_sample_params plenty = {.size = sizeof plenty, .max_new = 24};

static void test_like_sequences(void **state) {
    (void)state;
    int32_t ids[64], seq;
    const uint32_t n = words(3, 40, ids);
    served got;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &plenty}, &got);
    assert_int_equal(got.n_prompt_events, 1);
    assert_int_equal(got.last.n_prompt, n);
    assert_int_equal(got.last.n_drawn, got.n);
    assert_true(got.last.first_ns >= got.last.queued_ns);
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 256});
    assert_int_equal(mn_seq_create(s, ids, n, &plenty, &seq, NULL), MN_OK);
    uint32_t at = 0;
    uint32_t k = 1;
    mn_token t;
    while (!mn_session_step(s, &t, 1, &k, NULL) && k) {
        assert_int_equal(t.id, got.ids[at++]);
        assert_int_equal(t.finish, at == got.n ? got.finish : 0);
    }
    assert_int_equal(at, got.n);
    mn_session_free(s);
}

/* More than there are slots: all are served, each as alone. */
static void test_waiting(void **state) {
    (void)state;
    enum { N = 9 };
    static served want[N], got[N];
    int32_t ids[N][80];
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 256});
    mn_session_load load = {.size = sizeof load};
    for (uint32_t i = 0; i < N; i++) {
        const mn_request_params p = {
            .ids = ids[i], .n_ids = words(i, 5 + 8 * i, ids[i]), .sample = &plenty};
        lone(p, &want[i]);
        submit(s, p, &got[i]);
    }
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    assert_int_equal(load.n_waiting, N);
    assert_true(load.beat_ms == UINT64_MAX && load.queued_tokens > N);
    finish_all(s, got, N);
    for (uint32_t i = 0; i < N; i++)
        same_ids(&got[i], &want[i]);
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    assert_true(load.n_waiting == 0 && load.n_running == 0 && load.beat_ms < 60000);
    assert_int_equal(load.n_finished[MN_FINISH_LENGTH] + load.n_finished[MN_FINISH_STOP], N);
    mn_session_free(s);
}

/* A request goes on from any point of its answer with the ids that it would have had. */
static void test_resumed(void **state) {
    (void)state;
    int32_t ids[128];
    const uint32_t n = words(7, 30, ids);
    const mn_sample_params p = {.size = sizeof p,
                                .max_new = 20,
                                .temp = 1,
                                .top_k = 40,
                                .repeat_penalty = 1.2f,
                                .penalty_last_n = -1,
                                .ignore_stop = 1,
                                .seed = 11};
    served whole, rest;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &whole);
    assert_int_equal(whole.n, 20);
    memcpy(ids + n, whole.ids, sizeof(int32_t) * 20);
    for (uint32_t k = 1; k <= 20; k += k < 18 ? 6 : 1) {
        lone((mn_request_params){.ids = ids, .n_ids = n + k, .n_drawn = k, .sample = &p}, &rest);
        assert_int_equal(rest.n, 20 - k);
        assert_memory_equal(rest.ids, whole.ids + k, rest.n * sizeof *rest.ids);
        assert_int_equal(rest.finish, MN_FINISH_LENGTH);
        assert_int_equal(rest.last.n_drawn, 20);
        assert_int_equal(rest.last.n_prompt, n);
    }
}

static void test_choices(void **state) {
    (void)state;
    static served got[4];
    served one;
    int32_t ids[128];
    const uint32_t n = words(2, 100, ids);
    mn_sample_params p = {.size = sizeof p, .max_new = 12, .temp = 1, .seed = 5, .ignore_stop = 1};
    mn_session *s = open_with((mn_session_params){.n_seq = 3, .n_ctx = 256});
    memset(got, 0, sizeof got);
    const mn_request_params many = {.ids = ids, .n_ids = n, .sample = &p, .n_choices = 4};
    submit(s, many, &got[0]);
    memset(&got[1], 0, 3 * sizeof *got);
    finish_all(s, got, 4);
    mn_session_free(s);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(got[i].n_prompt_events, i == 0);
        p.seed = 5 + i;
        lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &one);
        same_ids(&got[i], &one);
    }
}

static void test_prefill_only(void **state) {
    (void)state;
    served got;
    int32_t ids[128], seq, twin;
    const uint32_t n = words(4, 90, ids);
    const mn_sample_params p = {.size = sizeof p, .flags = MN_SAMPLE_PREFILL_ONLY};
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got);
    assert_int_equal(got.finish, MN_FINISH_PROMPT);
    assert_true(got.n == 0 && got.n_prompt_events == 1);
    /* a sequence whose prompt alone is stored; its forks draw what they would have drawn */
    served want;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &plenty}, &want);
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 256});
    mn_token t[2];
    uint32_t k = 9;
    assert_int_equal(mn_seq_create(s, ids, n - 1, &p, &seq, NULL), MN_OK);
    assert_int_equal(mn_session_step(s, t, 2, &k, NULL), MN_OK);
    assert_int_equal(k, 0);
    assert_int_equal(mn_seq_length(s, seq), n - 1);
    for (uint32_t keep = n - 1; keep > 60; keep -= 13) {
        assert_int_equal(mn_seq_fork_at(s, seq, keep, &twin, NULL), MN_OK);
        assert_int_equal(mn_seq_length(s, twin), keep);
        assert_int_equal(mn_seq_extend(s, twin, ids + keep, n - keep, &plenty, NULL), MN_OK);
        for (uint32_t i = 0; i < want.n; i++) {
            assert_int_equal(mn_session_step(s, t, 2, &k, NULL), MN_OK);
            assert_true(k == 1 && t[0].id == want.ids[i]);
        }
        mn_seq_free(s, twin);
    }
    /* a page that a fork shares is not written to */
    assert_int_equal(mn_seq_fork_at(s, seq, n - 1, &twin, NULL), MN_OK);
    assert_int_equal(mn_seq_truncate(s, seq, 10, NULL), MN_OK);
    assert_int_equal(mn_seq_length(s, seq), 10);
    assert_int_equal(mn_seq_extend(s, seq, ids + 40, 50, &p, NULL), MN_OK);
    assert_int_equal(mn_session_step(s, t, 2, &k, NULL), MN_OK);
    assert_int_equal(mn_seq_extend(s, twin, ids + n - 1, 1, &plenty, NULL), MN_OK);
    assert_int_equal(mn_session_step(s, t, 2, &k, NULL), MN_OK);
    assert_true(k == 1 && t[0].id == want.ids[0]);
    assert_int_equal(mn_seq_truncate(s, seq, 61, NULL), MN_INVALID);
    assert_int_equal(mn_seq_fork_at(s, seq, 0, &twin, NULL), MN_INVALID);
    mn_session_free(s);
}

static void test_abort(void **state) {
    (void)state;
    static served got[4];
    int32_t ids[64];
    const uint32_t n = words(8, 20, ids);
    const mn_sample_params p = {.size = sizeof p, .max_new = 200, .ignore_stop = 1};
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 256});
    for (uint32_t i = 0; i < 4; i++)
        submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &got[i]);
    mn_session_abort(s, got[3].id); /* before anybody looked */
    while (got[0].n < 3)
        next(s, 1000);
    assert_int_equal(got[3].finish, MN_FINISH_ABORTED);
    mn_session_abort(s, got[0].id); /* runs */
    mn_session_abort(s, got[2].id); /* waits */
    mn_session_abort(s, 12345);
    next(s, 1000);
    assert_int_equal(got[0].finish, MN_FINISH_ABORTED);
    assert_int_equal(got[2].finish, MN_FINISH_ABORTED);
    finish_all(s, got, 4);
    assert_int_equal(got[1].finish, MN_FINISH_LENGTH);
    assert_int_equal(got[1].n, 200);
    mn_session_free(s);
}

/* Free with requests in every state: nothing leaks (a build with sanitizers says so). */
static void test_free_early(void **state) {
    (void)state;
    static served got[3];
    int32_t ids[64];
    const uint32_t n = words(8, 20, ids);
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 256});
    for (uint32_t i = 0; i < 3; i++) {
        submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &plenty}, &got[i]);
        if (i < 2)
            next(s, 1000);
    }
    mn_session_free(s);
}

static void test_errors(void **state) {
    (void)state;
    int32_t ids[300] = {0};
    uint64_t id = 0;
    mn_error err = MN_ERROR;
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 200});
    mn_request_params p = {.size = sizeof p, .ids = ids, .n_ids = 201};
    assert_int_equal(mn_session_submit(s, &p, &id, &err), MN_BAD_INPUT);
    assert_true(strstr(err.msg, "201") && strstr(err.msg, "200"));
    p.n_ids = 0;
    assert_int_equal(mn_session_submit(s, &p, &id, &err), MN_BAD_INPUT);
    p.n_ids = 3;
    p.n_drawn = 3;
    assert_int_equal(mn_session_submit(s, &p, &id, &err), MN_INVALID);
    p.n_drawn = 0;
    p.priority = 2;
    assert_int_equal(mn_session_submit(s, &p, &id, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "priority"));
    p.priority = 0;
    p.flags = 1u << 30;
    assert_int_equal(mn_session_submit(s, &p, &id, &err), MN_INVALID);
    p.flags = 0;
    ids[1] = 2048;
    assert_int_equal(mn_session_submit(s, &p, &id, &err), MN_BAD_INPUT);
    /* requests and running sequences do not mix */
    served got;
    mn_token t;
    uint32_t k;
    int32_t seq;
    mn_request_events events = {.size = sizeof events};
    ids[1] = 7;
    assert_int_equal(mn_seq_create(s, ids, 3, &plenty, &seq, NULL), MN_OK);
    assert_int_equal(mn_session_next(s, 0, &events, &err), MN_INVALID);
    while (!mn_session_step(s, &t, 1, &k, NULL) && k)
        continue;
    submit(s, (mn_request_params){.ids = ids, .n_ids = 3, .sample = &plenty}, &got);
    assert_int_equal(mn_session_next(s, 0, &events, &err), MN_OUT_OF_MEMORY); /* no slot is left */
    mn_seq_free(s, seq);
    next(s, 1000);
    assert_int_equal(mn_session_step(s, &t, 1, &k, &err), MN_INVALID);
    finish_all(s, &got, 1);
    assert_int_equal(mn_session_step(s, &t, 1, &k, &err), MN_OK);
    mn_session_free(s);
}

static sem_t woken;

static void *later(void *arg) {
    static served got;
    static int32_t ids[4] = {0, 9, 9, 9};
    usleep(30000);
    mn_session_wake(arg);
    sem_wait(&woken); /* else both are there at once */
    usleep(30000);
    submit(arg, (mn_request_params){.ids = ids, .n_ids = 4, .sample = &plenty}, &got);
    return &got;
}

/* A sleeping mn_session_next wakes up for what other threads do. */
static void test_threads(void **state) {
    (void)state;
    pthread_t thread;
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 64});
    sem_init(&woken, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, later, s), 0);
    assert_int_equal(next(s, 60000), 0);
    sem_post(&woken);
    assert_true(next(s, 60000) > 0);
    void *got;
    pthread_join(thread, &got);
    finish_all(s, got, 1);
    mn_session_free(s);
}

enum { SUBMITTERS = 4, EACH = 12 };
static served crowd[SUBMITTERS][EACH];
static mn_session *shared;

static void *submit_some(void *arg) {
    const uint32_t who = (uint32_t)(uintptr_t)arg;
    int32_t ids[64];
    mn_session_load load = {.size = sizeof load};
    for (uint32_t i = 0; i < EACH; i++) {
        const mn_sample_params p = {.size = sizeof p, .max_new = 5 + i, .ignore_stop = 1};
        const uint32_t n = words(who, 10 + i, ids);
        submit(shared, (mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &crowd[who][i]);
        if (i % 3 == 2)
            mn_session_abort(shared, crowd[who][i - 1].id);
        mn_session_get_load(shared, &load);
        usleep(500 * who);
    }
    return NULL;
}

/* Several threads submit and abort while another one steps: each request ends once. */
static void test_submitters(void **state) {
    (void)state;
    pthread_t thread[SUBMITTERS];
    mn_session_load load = {.size = sizeof load};
    shared = open_with((mn_session_params){.n_seq = 3, .n_ctx = 64});
    for (uintptr_t i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, submit_some, (void *)i), 0);
    uint64_t n_ended = 0;
    for (uint32_t calls = 0; n_ended < SUBMITTERS * EACH; calls++) {
        assert_true(calls < 100000);
        next(shared, 100);
        mn_session_get_load(shared, &load);
        n_ended = load.n_finished[MN_FINISH_LENGTH] + load.n_finished[MN_FINISH_ABORTED];
    }
    for (uint32_t i = 0; i < SUBMITTERS; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < SUBMITTERS * EACH; i++) {
        const served *a = &crowd[i / EACH][i % EACH];
        assert_true(a->finish == MN_FINISH_ABORTED || a->n == 5 + i % EACH);
    }
    mn_session_free(shared);
}

typedef struct {
    uint32_t n_logged, n_progress;
    float done;
    bool cancel;
} heard;

static void on_log(void *arg, int32_t level, const char *message) {
    heard *h = arg;
    assert_true(level >= MN_LOG_ERROR && *message);
    h->n_logged++;
}

static int32_t on_progress(void *arg, float done, const char *what) {
    heard *h = arg;
    assert_true(done >= h->done && done <= 1 && *what);
    h->done = done;
    h->n_progress++;
    return h->cancel;
}

/* The log and the progress of an import go to the application while its runtime is there. */
static void test_callbacks(void **state) {
    (void)state;
    heard h = {0};
    const mn_setting debug = {"log_level", "debug"};
    const mn_runtime_params params = {.size = sizeof params,
                                      .n_settings = 1,
                                      .settings = &debug,
                                      .arg = &h,
                                      .log = on_log,
                                      .progress = on_progress};
    const mn_session_params p = {.size = sizeof p, .device = device, .n_ctx = 64};
    mn_runtime *other = NULL;
    mn_model *m = NULL;
    mn_session *s = NULL;
    mn_model_info info = {.size = sizeof info};
    mn_model_get_info(model, &info);
    assert_int_equal(mn_runtime_create(&params, &other, NULL), MN_OK);
    assert_int_equal(mn_model_open(other, info.path, &m, NULL), MN_OK);
    assert_int_equal(mn_session_create(m, &p, &s, NULL), MN_OK);
    assert_true(h.n_logged > 0 && h.n_progress > 3 && h.done > 0.5f);
    mn_session_free(s);
    h.cancel = true;
    h.done = 0;
    assert_int_equal(mn_session_create(m, &p, &s, NULL), MN_CANCELLED);
    mn_model_free(m);
    mn_runtime_free(other);
}

/* Every token has its bytes: those of a text's tokens, joined, are the text. */
static void test_token_text(void **state) {
    (void)state;
    static const char text[] = "Once upon a time, a caf\xc3\xa9 \xf0\x9f\x90\xb1 sang.";
    char joined[200];
    size_t at = 0;
    int32_t *ids = NULL;
    uint32_t n = 0;
    const mn_str all = {text, sizeof text - 1};
    assert_int_equal(mn_model_tokenize(model, all, 0, &ids, &n, NULL), MN_OK);
    for (uint32_t i = 0; i < n; i++) {
        const mn_str t = mn_model_token_text(model, ids[i]);
        assert_true(t.len > 0 && at + t.len < sizeof joined);
        memcpy(joined + at, t.ptr, t.len);
        at += t.len;
        assert_true(mn_model_token_piece(model, ids[i]).len > 0);
    }
    const size_t space = at - (sizeof text - 1); /* that tokenising puts in front */
    assert_true(space <= 1);
    assert_memory_equal(joined + space, text, sizeof text - 1);
    assert_int_equal(mn_model_token_text(model, -1).len, 0);
    assert_int_equal(mn_model_token_text(model, 1 << 20).len, 0);
    mn_ids_free(ids);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_sequences), cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_resumed),        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_prefill_only),   cmocka_unit_test(test_abort),
        cmocka_unit_test(test_free_early),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_submitters),
        cmocka_unit_test(test_callbacks),      cmocka_unit_test(test_token_text)};
    if (open_model(argc, argv))
        return 1;
    return close_model(cmocka_run_group_tests_name("requests", tests, NULL, NULL));
}
