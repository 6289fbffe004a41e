/* test_sampling.c -- the samplers of contract 4 through a session: that settings are checked and
 * reach the device, that requests with them draw the same ids alone, in batches, and when they are
 * preempted, and that their neighbours do not notice. The formulas: test_samplers. */
#include "serving.h"
#include <math.h>

enum { N = 6, MOST = 80 };

/* Settings of six requests: plain, and each group of samplers. */
static mn_sample_params settings(uint32_t i) {
    mn_sample_params p = {
        .size = sizeof p, .max_new = 60, .ignore_stop = 1, .temp = 1.2f, .seed = i};
    switch (i) {
    case 1:
        p.dry_multiplier = 0.8f;
        p.xtc_probability = 0.5f;
        break;
    case 2:
        p.mirostat = 2;
        p.mirostat_tau = 1;
        p.mirostat_eta = 0.3f;
        break;
    case 3:
        p.typical_p = 0.7f;
        p.top_n_sigma = 2;
        break;
    case 4:
        p.dynatemp_range = 0.6f;
        p.min_p = 0.02f;
        p.samplers = "temperature;min_p";
        break;
    case 5:
        p.mirostat = 2;
        p.mirostat_tau = 2;
        p.dry_multiplier = 1;
        break;
    default:
        break;
    }
    return p;
}

static mn_session *small_pool(void) {
    mn_session_info info = {.size = sizeof info};
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 64, .n_batch = 64});
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    mn_session_free(s);
    return open_with((mn_session_params){
        .n_seq = N, .n_ctx = 512, .n_batch = 64, .kv_bytes = 5 * info.kv_bytes});
}

/* Mirostat's mu survives that pages run out. */
static void test_together(void **state) {
    (void)state;
    static served want[N], got[N];
    int32_t ids[N][MOST];
    mn_sample_params p[N];
    mn_session *s = small_pool();
    for (uint32_t i = 0; i < N; i++) {
        p[i] = settings(i);
        const mn_request_params r = {
            .ids = ids[i], .n_ids = words(i, 25 + 9 * i, ids[i]), .sample = &p[i]};
        lone(r, &want[i]);
        submit(s, r, &got[i]);
    }
    finish_all(s, got, N);
    for (uint32_t i = 0; i < N; i++)
        same_ids(&got[i], &want[i]);
    mn_session_load load = {.size = sizeof load};
    mn_session_get_load(s, &load);
    assert_true(load.n_preempted > 0);
    mn_session_free(s);
}

static void draw(mn_sample_params p, served *out) {
    int32_t ids[MOST];
    const uint32_t n = words(3, 24, ids);
    p.size = sizeof p;
    p.ignore_stop = 1;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, out);
    assert_int_equal(out->finish, MN_FINISH_LENGTH);
}

static bool differ(const served *a, const served *b) {
    return a->n != b->n || memcmp(a->ids, b->ids, a->n * sizeof *a->ids);
}

/* Each setting changes the answer, and one that means "off" does not. */
static void test_effect(void **state) {
    (void)state;
    static served plain, got;
    mn_sample_params p = {.temp = 1.5f, .seed = 5, .max_new = 40};
    const mn_sample_params base = p;
    draw(p, &plain);
    for (uint32_t i = 1; i < N; i++) {
        p = settings(i);
        p.temp = base.temp;
        p.seed = base.seed;
        p.max_new = base.max_new;
        draw(p, &got);
        assert_true(differ(&plain, &got));
    }
    p = base;
    p.samplers = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    p.typical_p = 1;
    p.dry_base = 2;
    p.mirostat_tau = 3;
    p.xtc_threshold = 0.2f;
    draw(p, &got);
    assert_false(differ(&plain, &got));
    p = base;
    p.samplers = "top_k";
    p.top_k = 1;
    p.repeat_penalty = 5; /* not in the list */
    p.penalty_last_n = -1;
    draw(p, &got);
    draw((mn_sample_params){.max_new = 40}, &plain); /* greedy */
    assert_false(differ(&plain, &got));
}

static const char spelled[] = " no token has this text";

/* Whether the token breaks matches: it has "the" in it, or may be the last of the other text. */
static bool breaks(int32_t id) {
    const mn_str t = mn_model_token_text(model, id);
    const size_t n = sizeof spelled - 1;
    const bool ends = t.len && t.len <= n && !memcmp(spelled + n - t.len, t.ptr, t.len);
    return ends || memmem(t.ptr, t.len, "the", 3);
}

/* Greedy with a penalty that forbids: no pair of tokens comes twice; with breakers pairs may,
 * behind them alone. */
static void test_dry(void **state) {
    (void)state;
    static served got;
    static const char *const none[1];
    const char *const the[] = {"the", spelled};
    mn_sample_params p = {.max_new = 150, .dry_multiplier = 1000, .dry_allowed_length = 1};
    uint32_t n_repeats = 0;
    for (int with = 0; with < 2; with++) {
        p.dry_breakers = with ? the : none;
        p.n_dry_breakers = with ? 2 : 0;
        draw(p, &got);
        for (uint32_t i = 0; i + 1 < got.n; i++)
            for (uint32_t k = 0; k < i; k++) {
                if (got.ids[k] != got.ids[i] || got.ids[k + 1] != got.ids[i + 1])
                    continue;
                assert_true(with && (breaks(got.ids[i]) || breaks(got.ids[i + 1])));
                n_repeats++;
            }
    }
    assert_true(n_repeats > 0);
}

/* Settings that cannot be meant, and what the message says. */
static void test_refused(void **state) {
    (void)state;
    const char *const empty = "";
    const struct {
        mn_sample_params p;
        mn_status status;
        const char *word;
    } rows[] = {
        {{.samplers = "top_k;top_x"}, MN_BAD_INPUT, "'top_x'"},
        {{.samplers = "top_k;xtc;top_k"}, MN_BAD_INPUT, "twice"},
        {{.samplers = "top_k;;xtc"}, MN_BAD_INPUT, "penalties;dry;"},
        {{.typical_p = 1.5f}, MN_INVALID, "typical_p"},
        {{.xtc_probability = -1}, MN_INVALID, "xtc_probability"},
        {{.top_n_sigma = NAN}, MN_INVALID, "top_n_sigma"},
        {{.dry_multiplier = 1, .dry_base = 0.5f}, MN_INVALID, "dry_base"},
        {{.dry_allowed_length = -1}, MN_INVALID, "dry_allowed_length"},
        {{.n_dry_breakers = 65}, MN_INVALID, "n_dry_breakers"},
        {{.dry_multiplier = 1, .dry_breakers = &empty, .n_dry_breakers = 1}, MN_BAD_INPUT, "empty"},
        {{.mirostat = 1}, MN_INVALID, "mirostat"},
    };
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 64});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mn_error err = MN_ERROR;
        mn_sample_params p = rows[i].p;
        const int32_t ids[2] = {5, 6};
        uint64_t id;
        int32_t seq;
        p.size = sizeof p;
        p.temp = 1;
        const mn_request_params r = {.size = sizeof r, .ids = ids, .n_ids = 2, .sample = &p};
        assert_int_equal(mn_session_submit(s, &r, &id, &err), rows[i].status);
        assert_non_null(strstr(err.msg, rows[i].word));
        assert_int_equal(mn_seq_create(s, ids, 2, &p, &seq, &err), rows[i].status);
    }
    mn_session_free(s);
}

/* Sequences of mn_seq_create: the answers of requests, and mirostat begins anew with each. */
static void test_sequences(void **state) {
    (void)state;
    static served want;
    int32_t ids[MOST];
    mn_sample_params p = settings(2);
    const uint32_t n = words(2, 24, ids);
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 256});
    int32_t seq;
    p.max_new = 20;
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &want);
    assert_int_equal(mn_seq_create(s, ids, n, &p, &seq, NULL), MN_OK);
    for (uint32_t i = 0; i < 20;) {
        mn_token t;
        uint32_t k = 0;
        assert_int_equal(mn_session_step(s, &t, 1, &k, NULL), MN_OK);
        for (uint32_t j = 0; j < k; j++)
            assert_int_equal(t.id, want.ids[i++]);
    }
    p.mirostat = 0; /* the slot's next answer is a plain one */
    int32_t again[MOST];
    memcpy(again, ids, n * sizeof *ids);
    mn_seq_free(s, seq);
    lone((mn_request_params){.ids = ids, .n_ids = n, .sample = &p}, &want);
    served got;
    submit(s, (mn_request_params){.ids = again, .n_ids = n, .sample = &p}, &got);
    finish_all(s, &got, 1);
    same_ids(&got, &want);
    mn_session_free(s);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused), cmocka_unit_test(test_effect), cmocka_unit_test(test_dry),
        cmocka_unit_test(test_together), cmocka_unit_test(test_sequences)};
    if (open_model(argc, argv))
        return 1;
    return close_model(cmocka_run_group_tests(tests, NULL, NULL));
}
