/* test_preempt.c -- a KV cache with fewer pages than the requests want: who gives way, that all
 * finish with the ids that they draw alone, that priorities hold, and that every page comes
 * back. */
#include "serving.h"

enum { PAGE = 64, N_CTX = 1024 };

static uint64_t kv_bytes(uint32_t n_seq, uint32_t n_ctx) {
    mn_session *s = open_with((mn_session_params){.n_seq = n_seq, .n_ctx = n_ctx, .n_batch = PAGE});
    mn_session_info info = {.size = sizeof info};
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    mn_session_free(s);
    return info.kv_bytes;
}

/* Bytes of the pages for so many positions, and of what n_seq sequences have besides: states. */
static uint64_t bytes_for(uint32_t n_seq, uint32_t positions) {
    const uint64_t page = kv_bytes(1, 2 * PAGE) - kv_bytes(1, PAGE);
    const uint64_t states = kv_bytes(n_seq, N_CTX) - n_seq * (N_CTX / PAGE) * page;
    return states + positions / PAGE * page;
}

static mn_session *small(uint32_t n_seq, uint32_t positions, uint32_t ahead) {
    return open_with((mn_session_params){.n_seq = n_seq,
                                         .n_ctx = N_CTX,
                                         .n_batch = PAGE,
                                         .run_ahead = ahead,
                                         .kv_bytes = bytes_for(n_seq, positions)});
}

static mn_session_load load_of(mn_session *s) {
    mn_session_load load = {.size = sizeof load};
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    return load;
}

static void test_sizes(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    mn_session *s = small(8, 5 * PAGE, 1);
    served got;
    int32_t ids[400];
    uint64_t id;
    mn_sample_params p = {.size = sizeof p, .max_new = 100, .ignore_stop = 1};
    mn_request_params r = {.size = sizeof r, .ids = ids, .n_ids = 222, .sample = &p};
    words(1, 400, ids);
    assert_int_equal(mn_session_submit(s, &r, &id, &err), MN_BAD_INPUT);
    assert_true(strstr(err.msg, "222") && strstr(err.msg, "100") && strstr(err.msg, "320"));
    r.n_ids = 221; /* the last id needs no place */
    submit(s, r, &got);
    finish_all(s, &got, 1);
    assert_int_equal(got.n, 100);
    p.max_new = 0; /* as many as fit */
    submit(s, r, &got);
    finish_all(s, &got, 1);
    assert_int_equal(got.n, 100);
    assert_int_equal(load_of(s).pages_total, 5);
    mn_session_free(s);
    const mn_session_params tiny = {.size = sizeof tiny,
                                    .device = device,
                                    .n_ctx = N_CTX,
                                    .n_batch = 256,
                                    .kv_bytes = bytes_for(1, PAGE)};
    assert_int_equal(mn_session_create(model, &tiny, &s, &err), MN_OUT_OF_MEMORY);
    assert_non_null(strstr(err.msg, "256"));
}

/* Answers that grow beyond what there is: all finish, in any number of steps ahead. */
static void test_all_finish(void **state) {
    (void)state;
    enum { N = 5 };
    static served want[N], got[N];
    int32_t ids[N][128];
    mn_sample_params p = {.size = sizeof p,
                          .max_new = 80,
                          .ignore_stop = 1,
                          .temp = 1,
                          .repeat_penalty = 1.1f,
                          .penalty_last_n = -1};
    for (uint32_t i = 0; i < N; i++) {
        p.seed = i;
        words(i, 30 + 10 * i, ids[i]);
        lone((mn_request_params){.ids = ids[i], .n_ids = 30 + 10 * i, .sample = &p}, &want[i]);
    }
    for (uint32_t ahead = 1; ahead < 20; ahead += 15) {
        mn_session *s = small(N, 4 * PAGE, ahead);
        for (uint32_t i = 0; i < N; i++) {
            p.seed = i;
            submit(s, (mn_request_params){.ids = ids[i], .n_ids = 30 + 10 * i, .sample = &p},
                   &got[i]);
        }
        finish_all(s, got, N);
        for (uint32_t i = 0; i < N; i++)
            same_ids(&got[i], &want[i]);
        assert_true(load_of(s).n_preempted > 0);
        assert_int_equal(got[0].last.n_preempted, 0); /* the first always gets on */
        assert_int_equal(load_of(s).pages_used, 0);
        mn_session_free(s);
    }
}

/* A request of normal priority gets the slot and the pages of one of low priority, which finishes
 * later as if nothing had happened. */
static void test_priority(void **state) {
    (void)state;
    served want[3], got[3];
    int32_t ids[3][200];
    mn_sample_params p = {.size = sizeof p, .max_new = 90, .ignore_stop = 1};
    mn_session *s = small(2, 6 * PAGE, 1);
    for (uint32_t i = 0; i < 3; i++) {
        p.max_new = i < 2 ? 90 : 40;
        mn_request_params r = {
            .ids = ids[i], .n_ids = words(i, i < 2 ? 100 + i : 20, ids[i]), .sample = &p};
        lone(r, &want[i]);
        r.priority = i < 2 ? MN_PRIORITY_LOW : MN_PRIORITY_NORMAL;
        if (i < 2)
            submit(s, r, &got[i]);
    }
    while (got[1].n < 10)
        next(s, 1000);
    mn_request_params r = {.ids = ids[2], .n_ids = 20, .sample = &p};
    submit(s, r, &got[2]);
    finish_all(s, &got[2], 1);
    assert_true(!got[1].finish); /* the other one may have been at its end */
    finish_all(s, got, 3);
    assert_true(got[1].last.n_preempted > 0);
    for (uint32_t i = 0; i < 3; i++)
        same_ids(&got[i], &want[i]);
    mn_session_free(s);
}

static mn_status count_rows(void *arg, uint32_t first, uint32_t n, uint32_t n_vocab,
                            const float *rows) {
    uint32_t *n_rows = arg;
    assert_true(first == *n_rows && n_vocab && rows);
    *n_rows += n;
    return MN_OK;
}

/* Sequences of mn_seq_create give way, too: those that have ended first. */
static void test_sequences(void **state) {
    (void)state;
    enum { N = 4 };
    served want[N];
    int32_t ids[N][200] = {{0}}, seq[N], drawn[N][64];
    uint32_t n_drawn[N] = {0};
    mn_token t[N];
    uint32_t n = 1;
    const mn_sample_params p = {.size = sizeof p, .max_new = 50, .ignore_stop = 1};
    mn_session *s = small(N, 6 * PAGE, 1);
    for (uint32_t i = 0; i < N; i++) {
        words(i, 100, ids[i]);
        lone((mn_request_params){.ids = ids[i], .n_ids = 100, .sample = &p}, &want[i]);
        assert_int_equal(mn_seq_create(s, ids[i], 100, &p, &seq[i], NULL), MN_OK);
    }
    while (n) {
        assert_int_equal(mn_session_step(s, t, N, &n, NULL), MN_OK);
        for (uint32_t i = 0; i < n; i++)
            drawn[t[i].seq][n_drawn[t[i].seq]++] = t[i].id;
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(n_drawn[i], 50);
        assert_memory_equal(drawn[seq[i]], want[i].ids, 50 * sizeof(int32_t));
    }
    /* logits of a text find their pages, and a fork that finds none is computed again */
    mn_seq_free(s, seq[3]);
    uint32_t n_rows = 0;
    assert_int_equal(mn_session_logits(s, ids[1], 150, count_rows, &n_rows, NULL), MN_OK);
    assert_int_equal(n_rows, 150);
    int32_t twin;
    memcpy(ids[0] + 100, want[0].ids, 50 * sizeof(int32_t));
    served more;
    lone((mn_request_params){.ids = ids[0], .n_ids = 120, .sample = &p}, &more);
    assert_int_equal(mn_seq_fork_at(s, seq[0], 119, &twin, NULL), MN_OK);
    assert_int_equal(mn_seq_extend(s, twin, ids[0] + 119, 1, &p, NULL), MN_OK);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(mn_session_step(s, t, N, &n, NULL), MN_OK);
        assert_true(n == 1 && t[0].id == more.ids[i]);
    }
    mn_session_free(s);
}

/* Clients that come and go at random: in the end nothing is held. */
static void test_churn(void **state) {
    (void)state;
    enum { N = 24 };
    static served got[N];
    int32_t ids[300];
    uint32_t lot = 12345;
    uint32_t begun = 0;
    mn_session *s = small(6, 10 * PAGE, 1);
    for (uint32_t round = 0; begun < N || load_of(s).n_running + load_of(s).n_waiting; round++) {
        assert_true(round < 20000);
        lot = lot * 1664525 + 1013904223;
        const mn_sample_params p = {
            .size = sizeof p, .max_new = 1 + (lot >> 8) % 120, .ignore_stop = 1};
        const mn_request_params r = {.ids = ids,
                                     .n_ids = words((lot >> 16) % 5, 10 + (lot >> 20) % 250, ids),
                                     .sample = &p,
                                     .priority = lot >> 31};
        if (begun < N && lot % 3 == 0)
            submit(s, r, &got[begun++]);
        if (begun && lot % 11 == 0)
            mn_session_abort(s, got[lot % begun].id);
        next(s, 10);
    }
    finish_all(s, got, N);
    assert_int_equal(load_of(s).pages_used, 0);
    mn_session_free(s);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_all_finish),
        cmocka_unit_test(test_priority), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_churn)};
    if (open_model(argc, argv))
        return 1;
    return close_model(cmocka_run_group_tests_name("preempt", tests, NULL, NULL));
}
