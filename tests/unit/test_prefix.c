/* test_prefix.c -- the prefix cache: equal beginnings are computed once, logits stay the same bit
 * for bit, and what is kept gives way when the room is needed. */
#include "serving.h"

static const mn_sample_params few = {.size = sizeof few, .max_new = 8, .ignore_stop = 1};

static void serve(mn_session *s, const int32_t *ids, uint32_t n, served *got) {
    submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &few}, got);
    finish_all(s, got, 1);
}

static mn_session_load load_of(mn_session *s) {
    mn_session_load load = {.size = sizeof load};
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    return load;
}

static void test_shared(void **state) {
    (void)state;
    int32_t ids[400];
    served cold, warm, longer, want;
    const uint32_t n = words(1, 200, ids);
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 512});
    serve(s, ids, n, &cold);
    const uint64_t computed = load_of(s).n_prompt;
    serve(s, ids, n, &warm);
    same_ids(&warm, &cold);
    assert_int_equal(cold.last.n_cached, 0);
    assert_int_equal(warm.last.n_cached, 192); /* whole pages of 64 */
    assert_int_equal(load_of(s).n_prompt, computed + 8);
    /* the answer of a turn is part of the next turn's prompt */
    memcpy(ids + n, cold.ids, cold.n * sizeof *ids);
    words(9, 80, ids + n + cold.n);
    serve(s, ids, n + cold.n + 80, &longer);
    assert_int_equal(longer.last.n_cached, 192);
    lone((mn_request_params){.ids = ids, .n_ids = n + cold.n + 80, .sample = &few}, &want);
    same_ids(&longer, &want);
    assert_true(load_of(s).cache_hits == 384 && load_of(s).cache_queries == 2 * n + 288);
    /* other tokens at the beginning: nothing of it is shared */
    ids[3]++;
    serve(s, ids, n, &warm);
    assert_int_equal(warm.last.n_cached, 0);
    ids[3]--;
    mn_session_free(s);
}

/* Whole prompts in pages, prompts of one page and of less; salts; the flags against it. */
static void test_borders(void **state) {
    (void)state;
    int32_t ids[200];
    served got;
    static const struct {
        uint32_t n, cached;
    } rows[] = {{63, 0}, {64, 0}, {65, 64}, {128, 64}, {129, 128}};
    words(2, 200, ids);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 512});
        served first;
        serve(s, ids, rows[i].n, &first);
        serve(s, ids, rows[i].n, &got);
        assert_int_equal(got.last.n_cached, rows[i].cached);
        same_ids(&got, &first);
        mn_session_free(s);
    }
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 512});
    mn_request_params p = {.ids = ids, .n_ids = 150, .sample = &few, .cache_salt = 1};
    for (int i = 0; i < 4; i++) {
        p.cache_salt = i < 2 ? 1 : 2;
        submit(s, p, &got);
        finish_all(s, &got, 1);
        assert_int_equal(got.last.n_cached, i % 2 ? 128 : 0);
    }
    p.flags = MN_SUBMIT_NO_CACHE;
    submit(s, p, &got);
    finish_all(s, &got, 1);
    assert_int_equal(got.last.n_cached, 0);
    mn_session_free(s);
    s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 512, .flags = MN_SESSION_NO_CACHE});
    for (int i = 0; i < 2; i++) {
        serve(s, ids, 150, &got);
        assert_int_equal(got.last.n_cached, 0);
    }
    mn_session_free(s);
}

/* Many at once with one beginning: it is computed once, whoever is first. */
static void test_at_once(void **state) {
    (void)state;
    enum { N = 8, SHARED = 448 };
#ifdef __SANITIZE_ADDRESS__
    enum { COMPARED = 2 }; /* the others differ in their last words alone */
#else
    enum { COMPARED = N };
#endif
    static served got[N], want[N];
    static int32_t ids[N][512];
    /* penalties see the shared tokens, too */
    const mn_sample_params p = {.size = sizeof p,
                                .max_new = 8,
                                .ignore_stop = 1,
                                .temp = 1,
                                .repeat_penalty = 1.5f,
                                .penalty_last_n = -1};
    mn_session *s = open_with((mn_session_params){.n_seq = N, .n_ctx = 600, .n_batch = 128});
    for (uint32_t i = 0; i < N; i++) {
        words(3, SHARED, ids[i]);
        words(40 + i, 20, ids[i] + SHARED);
        submit(s, (mn_request_params){.ids = ids[i], .n_ids = SHARED + 20, .sample = &p}, &got[i]);
    }
    finish_all(s, got, N);
    assert_true(load_of(s).n_prompt < SHARED + N * 20 + 200);
    mn_session_free(s);
    for (uint32_t i = 0; i < COMPARED; i++) {
        lone((mn_request_params){.ids = ids[i], .n_ids = SHARED + 20, .sample = &p}, &want[i]);
        same_ids(&got[i], &want[i]);
    }
}

/* Choices of one prompt: it is computed once, but for what is not a whole page. */
static void test_choices_share(void **state) {
    (void)state;
    enum { N = 5 };
    static served got[N];
    int32_t ids[256];
    const uint32_t n = words(5, 200, ids);
    mn_session *s = open_with((mn_session_params){.n_seq = N, .n_ctx = 512});
    memset(got, 0, sizeof got);
    submit(s, (mn_request_params){.ids = ids, .n_ids = n, .sample = &few, .n_choices = N}, got);
    finish_all(s, got, N);
    assert_int_equal(load_of(s).n_prompt, n + (N - 1) * (n - 192));
    for (uint32_t i = 1; i < N; i++)
        assert_int_equal(got[i].last.n_cached, 192);
    mn_session_free(s);
}

/* A cache too small for all: the least recently used text is computed again, nothing fails, and in
 * the end every page is free or kept. */
static void test_evicted(void **state) {
    (void)state;
    enum { TEXTS = 6 };
    static served want[TEXTS];
    int32_t ids[TEXTS][256];
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 512});
    uint32_t n_cached = 0;
    for (uint32_t i = 0; i < TEXTS; i++) {
        words(20 + i, 256, ids[i]);
        lone((mn_request_params){.ids = ids[i], .n_ids = 256, .sample = &few}, &want[i]);
    }
    for (uint32_t i = 0; i < 4 * TEXTS; i++) {
        const uint32_t at = i % 4 < 2 ? 0 : i % TEXTS;
        served got;
        serve(s, ids[at], 256, &got);
        same_ids(&got, &want[at]);
        n_cached += got.last.n_cached;
    }
    assert_in_range(n_cached, 192, (4 * TEXTS - TEXTS) * 192);
    assert_int_equal(load_of(s).pages_used, 0);
    assert_in_range(load_of(s).pages_cached, 1, load_of(s).pages_total);
    mn_session_free(s);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared), cmocka_unit_test(test_borders),
        cmocka_unit_test(test_at_once), cmocka_unit_test(test_choices_share),
        cmocka_unit_test(test_evicted)};
    if (open_model(argc, argv))
        return 1;
    return close_model(cmocka_run_group_tests_name("prefix", tests, NULL, NULL));
}
