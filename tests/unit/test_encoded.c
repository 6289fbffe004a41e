/* test_encoded.c -- sessions with a model whose encoder reads the prompt once and whose decoder
 * answers: batches, pages that are too few, forks, cuts and runs of ids behind an answer give the
 * ids of the same text alone.
 *
 * test_encoded MODEL DEVICE */
#include "serving.h"

enum { MOST = 8, NEW = 40, CTX = 128 };

static uint32_t text(uint32_t which, int32_t *ids) {
    const uint32_t n = 1 + (which * 29 + 5) % 70;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(5 + (which * 131 + i * i * 17 + i) % n_words);
    return n;
}

static mn_sample_params drawing(uint32_t n, uint32_t seed) {
    return (mn_sample_params){.size = sizeof(mn_sample_params),
                              .max_new = n,
                              .seed = seed,
                              .temp = seed % 2 ? 0.9f : 0,
                              .ignore_stop = 1};
}

static mn_session_load load_of(mn_session *s) {
    mn_session_load load = {.size = sizeof load};
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    return load;
}

static served alone[MOST];
static int make_alone(void **state) {
    (void)state;
    for (uint32_t i = 0; i < MOST; i++) {
        int32_t ids[CTX];
        const mn_sample_params p = drawing(NEW, i);
        mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = CTX});
        submit(s, (mn_request_params){.ids = ids, .n_ids = text(i, ids), .sample = &p}, &alone[i]);
        finish_all(s, &alone[i], 1);
        mn_session_free(s);
    }
    return 0;
}

static mn_session_load batch(mn_session_params how) {
    static served got[MOST];
    mn_session *s = open_with(how);
    for (uint32_t i = 0; i < MOST; i++) {
        int32_t ids[CTX];
        const mn_sample_params p = drawing(NEW, i);
        submit(s, (mn_request_params){.ids = ids, .n_ids = text(i, ids), .sample = &p}, &got[i]);
    }
    finish_all(s, got, MOST);
    for (uint32_t i = 0; i < MOST; i++)
        same_ids(&got[i], &alone[i]);
    const mn_session_load load = load_of(s);
    assert_int_equal(load.pages_used, 0);
    mn_session_free(s);
    return load;
}

static void test_batch(void **state) {
    (void)state;
    batch((mn_session_params){.n_seq = MOST, .n_ctx = CTX});
    batch((mn_session_params){.n_seq = 3, .n_ctx = CTX, .run_ahead = 8});
}

/* Room for half of the positions: requests give way, and their texts are read again. */
static void test_give_way(void **state) {
    (void)state;
    mn_session_info info = {.size = sizeof info};
    mn_session_params few = {.n_seq = MOST, .n_ctx = CTX, .n_batch = CTX};
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = CTX, .n_batch = CTX});
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    mn_session_free(s);
    few.kv_bytes = info.kv_bytes;
    const mn_session_load load = batch(few);
    assert_true(load.n_preempted > 0);
}

/* ---- sequences ------------------------------------------------------------------------------- */
static void draw(mn_session *s, int32_t seq, served *out, uint32_t n) {
    mn_error err = MN_ERROR;
    mn_token t[4];
    uint32_t got = 1;
    out->n = 0;
    while (out->n < n) {
        if (mn_session_step(s, t, 4, &got, &err))
            fail_msg("%s", err.msg);
        for (uint32_t i = 0; i < got; i++)
            if (t[i].seq == seq)
                out->ids[out->n++] = t[i].id;
    }
}

/* A new sequence of text `which`, and n ids of its answer. */
static mn_session *begin(uint32_t which, uint32_t n, int32_t *seq, served *out) {
    int32_t ids[CTX];
    mn_error err = MN_ERROR;
    const mn_sample_params p = drawing(n, 0);
    mn_session *s = open_with((mn_session_params){.n_seq = 3, .n_ctx = CTX});
    const uint32_t n_ids = text(which, ids);
    if (mn_seq_create(s, ids, n_ids, &p, seq, &err))
        fail_msg("%s", err.msg);
    draw(s, *seq, out, n);
    return s;
}

/* The sequence goes on behind other ids. */
static void go_on(mn_session *s, int32_t seq, served *out) {
    static const int32_t more[] = {11, 23, 31};
    mn_error err = MN_ERROR;
    const mn_sample_params p = drawing(9, 3);
    if (mn_seq_extend(s, seq, more, 3, &p, &err))
        fail_msg("%s", err.msg);
    draw(s, seq, out, 9);
}

/* A fork goes on as a sequence of its own, beside the other; and as one that was never forked. */
static void test_fork(void **state) {
    static served first;
    static served want;
    static served got;
    int32_t seq;
    int32_t twin;
    (void)state;
    mn_session *s = begin(3, 20, &seq, &first);
    go_on(s, seq, &want);
    mn_session_free(s);
    s = begin(3, 20, &seq, &first);
    assert_int_equal(mn_seq_fork(s, seq, &twin, NULL), MN_OK);
    go_on(s, twin, &got);
    assert_memory_equal(got.ids, want.ids, 9 * sizeof *got.ids);
    go_on(s, seq, &got);
    assert_memory_equal(got.ids, want.ids, 9 * sizeof *got.ids);
    mn_session_free(s);
}

/* Cut behind n ids of an answer, a sequence goes on as one that drew no more than these. */
static void test_cut(void **state) {
    static const uint32_t keeps[] = {20, 13, 1};
    static served first;
    static served want;
    static served got;
    int32_t seq;
    int32_t twin;
    (void)state;
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        mn_session *s = begin(3, keeps[i], &seq, &first);
        go_on(s, seq, &want);
        mn_session_free(s);
        s = begin(3, 25, &seq, &first);
        /* the id that begins every answer is one of the sequence */
        assert_int_equal(mn_seq_fork_at(s, seq, 1 + keeps[i], &twin, NULL), MN_OK);
        go_on(s, twin, &got);
        assert_memory_equal(got.ids, want.ids, 9 * sizeof *got.ids);
        assert_int_equal(mn_seq_truncate(s, seq, 1 + keeps[i], NULL), MN_OK);
        go_on(s, seq, &got);
        assert_memory_equal(got.ids, want.ids, 9 * sizeof *got.ids);
        mn_session_free(s);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_give_way),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_cut),
    };
    if (open_model(argc, argv))
        return 1;
    return close_model(cmocka_run_group_tests_name("encoded", tests, make_alone, NULL));
}
