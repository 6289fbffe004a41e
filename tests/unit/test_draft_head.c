/* test_draft_head.c -- a model's own draft head beside what a script has computed in f64
 * (tests/golden/draft_heads.py): its logits, the ids that it guesses while the model generates, and
 * what drafts of it change: no id.
 *
 * test_draft_head DEVICE FIXTURE...: each fixture in turn. */
#include "session/session.h"
#include "serving.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <unistd.h>

enum { GUESSED = 3, MOST = 12, N_NEW = 16 };

/* draft.safetensors of the fixture. */
typedef struct {
    int32_t *ids, *drafts;  // [n], [n, GUESSED]
    float *hidden, *logits; // [n, n_embd], [n, n_vocab]
    uint32_t n, n_embd, n_vocab, n_prompt;
    char *data;
} golden_head;
static golden_head want;

/* ---- the file -------------------------------------------------------------------------------- */
static void *tensor_of(const cJSON *head, char *begin, const char *name, uint32_t *rows,
                       uint32_t *cols) {
    const cJSON *t = cJSON_GetObjectItem(head, name);
    const cJSON *dim = cJSON_GetObjectItem(t, "shape");
    const cJSON *at = cJSON_GetObjectItem(t, "data_offsets");
    assert_true(cJSON_GetArraySize(dim) && cJSON_GetArraySize(at) == 2);
    *rows = (uint32_t)cJSON_GetArrayItem(dim, 0)->valuedouble;
    *cols = 1;
    if (cJSON_GetArraySize(dim) > 1)
        *cols = (uint32_t)cJSON_GetArrayItem(dim, 1)->valuedouble;
    return begin + (size_t)cJSON_GetArrayItem(at, 0)->valuedouble;
}

static void read_golden(const char *folder) {
    char path[4400];
    uint64_t n = 0;
    uint64_t bytes = 0;
    uint32_t rows = 0;
    uint32_t one = 0;
    snprintf(path, sizeof path, "%s/draft.safetensors", folder);
    assert_int_equal(mn_read_file(path, 1 << 24, &want.data, &n, NULL), MN_OK);
    memcpy(&bytes, want.data, sizeof bytes);
    cJSON *head = cJSON_ParseWithLength(want.data + 8, bytes);
    char *begin = want.data + 8 + bytes;
    want.ids = tensor_of(head, begin, "ids", &want.n, &one);
    want.drafts = tensor_of(head, begin, "drafts", &rows, &one);
    assert_int_equal(rows, want.n);
    assert_int_equal(one, GUESSED);
    want.hidden = tensor_of(head, begin, "hidden", &rows, &want.n_embd);
    want.logits = tensor_of(head, begin, "logits", &rows, &want.n_vocab);
    want.n_prompt = want.n - 24;
    cJSON_Delete(head);
}

/* ---- logits ---------------------------------------------------------------------------------- */
static const float *hidden_before(void *arg, uint32_t slot, uint32_t position) {
    (void)arg;
    (void)slot;
    return position ? want.hidden + (size_t)(position - 1) * want.n_embd : NULL;
}

static mn_status compare_rows(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                              const float *rows) {
    double *sums = arg;
    assert_int_equal(n_vocab, want.n_vocab);
    for (size_t i = 0; i < (size_t)n_rows * n_vocab; i++) {
        const double y = (double)want.logits[(size_t)first * n_vocab + i];
        sums[0] += ((double)rows[i] - y) * ((double)rows[i] - y);
        sums[1] += y * y;
    }
    return MN_OK;
}

/* In one step, and in steps of few rows. */
static void test_logits(void **state) {
    static const uint32_t batches[] = {0, 7, 1};
    const double limit = strcmp(device, "reference") ? 1e-4 : 1e-5;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        double sums[2] = {0};
        const mn_session_params p = {.size = sizeof p,
                                     .device = device,
                                     .precision = MN_PRECISION_EXACT,
                                     .n_ctx = 128,
                                     .n_batch = batches[i],
                                     .flags = MN_SESSION_HEAD | MN_SESSION_NO_SAMPLING};
        mn_session *s = NULL;
        if (mn_session_make(model, p, &s, &err))
            fail_msg("%s", err.msg);
        s->steps.hidden.hear = hidden_before;
        if (mn_session_logits(s, want.ids, want.n, compare_rows, sums, &err))
            fail_msg("%s", err.msg);
        mn_session_free(s);
        const double error = sqrt(sums[0] / sums[1]);
        print_message("relative L2 error %.2g\n", error);
        assert_true(error <= limit);
    }
}

/* ---- what it guesses ------------------------------------------------------------------------- */
typedef struct {
    uint32_t n_right; /* drafts of every round that are made right */
    uint32_t n_rounds, n_seen;
} rehearsal;

/* The head's guesses are in `to`: those of the script. Then the first ones become what the model
 * draws. */
static uint32_t look(void *arg, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k) {
    rehearsal *r = arg;
    assert_memory_equal(ids, want.ids, n * sizeof *ids);
    for (uint32_t i = 0; i < k && i < GUESSED; i++) {
        if (to[i] != want.drafts[(n - 1) * GUESSED + i])
            fail_msg("draft %u behind %u ids is %d, expected %d", i, n, to[i],
                     want.drafts[(n - 1) * GUESSED + i]);
        r->n_seen++;
    }
    const uint32_t right = r->n_right == UINT32_MAX ? r->n_rounds % (GUESSED + 1) : r->n_right;
    for (uint32_t i = 0; i < k; i++) {
        to[i] = n + i < want.n ? want.ids[n + i] : 0;
        if (i >= right)
            to[i] ^= 1;
    }
    r->n_rounds++;
    return k;
}

/* Greedy ids of the model, with rounds of drafts of which so many hold. */
static void generate(uint32_t n_right, uint32_t n_batch) {
    rehearsal r = {.n_right = n_right};
    served got;
    const mn_sample_params p = {.size = sizeof p, .max_new = 24, .ignore_stop = 1};
    mn_session *s = open_with((mn_session_params){
        .n_seq = 1,
        .n_ctx = 128,
        .n_batch = n_batch,
        .speculate = MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS | MN_SPECULATE_REHEARSE,
        .n_draft = GUESSED,
        .guess = look,
        .guess_arg = &r});
    submit(s, (mn_request_params){.ids = want.ids, .n_ids = want.n_prompt, .sample = &p}, &got);
    finish_all(s, &got, 1);
    assert_int_equal(got.n, 24);
    assert_memory_equal(got.ids, want.ids + want.n_prompt, 24 * sizeof *got.ids);
    assert_true(r.n_seen > 10);
    mn_session_free(s);
}

static void test_guesses(void **state) {
    (void)state;
    generate(0, 0);
    generate(1, 5);
    generate(GUESSED, 16);
    generate(UINT32_MAX, 0);
}

/* ---- ids ------------------------------------------------------------------------------------- */
static served plain[MOST];

/* Greedy and sampled, with penalties, logprobs, biases and samplers: all programs of the engine. */
static void ask_all(mn_session *s, served *out) {
    static const mn_logit_bias bias[] = {{7, 2.5f}, {90, -3}};
    for (uint32_t i = 0; i < MOST; i++) {
        const mn_sample_params p = {.size = sizeof p,
                                    .max_new = N_NEW,
                                    .seed = i,
                                    .temp = i % 2 ? 0.9f : 0,
                                    .repeat_penalty = i % 3 ? 0 : 1.1f,
                                    .bias = bias,
                                    .n_bias = i % 4 == 3 ? 2 : 0,
                                    .typical_p = i == 9 ? 0.7f : 0,
                                    .ignore_stop = 1};
        const bool scores = i % 5 == 4;
        const mn_request_params r = {.ids = want.ids + i % 5,
                                     .n_ids = 1 + i * 5,
                                     .sample = &p,
                                     .flags = scores ? MN_SUBMIT_LOGPROBS : 0,
                                     .n_top = scores ? 3 : 0};
        submit(s, r, &out[i]);
    }
    finish_all(s, out, MOST);
}

static int make_plain(void **state) {
    (void)state;
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 128});
    ask_all(s, plain);
    mn_session_free(s);
    return 0;
}

/* Right in part, whatever the head has guessed. */
static uint32_t know(void *arg, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k) {
    (void)arg;
    for (uint32_t i = 0; i < MOST; i++) {
        const uint32_t n_prompt = 1 + i * 5;
        if (n < n_prompt || memcmp(ids, want.ids + i % 5, n_prompt * sizeof *ids) ||
            memcmp(ids + n_prompt, plain[i].ids, (n - n_prompt) * sizeof *ids))
            continue;
        for (uint32_t j = 0; j < k && n - n_prompt + j < plain[i].n; j++)
            to[j] = plain[i].ids[n - n_prompt + j] ^ ((n + j) % 4 == 3);
        return k;
    }
    return k;
}

static void same_with(mn_session_params how) {
    static served got[MOST];
    how.n_ctx = 128;
    mn_session *s = open_with(how);
    ask_all(s, got);
    for (uint32_t i = 0; i < MOST; i++)
        same_ids(&got[i], &plain[i]);
    mn_session_stats stats = {.size = sizeof stats};
    assert_int_equal(mn_session_get_stats(s, &stats), MN_OK);
    assert_true(stats.n_drafted > 0);
    mn_session_free(s);
}

static void test_ids(void **state) {
    const uint32_t head = MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS;
    (void)state;
    same_with((mn_session_params){.n_seq = 1, .speculate = head, .n_draft = 1});
    same_with((mn_session_params){.n_seq = MOST, .speculate = head, .n_draft = 4});
    same_with((mn_session_params){.n_seq = 5, .n_batch = 16, .speculate = head, .n_draft = 7});
    same_with((mn_session_params){
        .n_seq = 4, .speculate = head | MN_SPECULATE_REHEARSE, .guess = know, .n_draft = 5});
    same_with((mn_session_params){.n_seq = 4, .speculate = MN_SPECULATE_HEAD});
}

/* Short answers to many texts, many at once. */
static void answer_many(uint32_t speculate, const char *elsewhere, served *out, uint32_t n) {
    mn_session *s = open_with((mn_session_params){.n_seq = 16,
                                                  .n_ctx = 64,
                                                  .speculate = speculate,
                                                  .n_draft = speculate ? 3 : 0,
                                                  .tensor_devices = elsewhere});
    for (uint32_t i = 0; i < n; i++) {
        const mn_sample_params p = {
            .size = sizeof p, .max_new = 8, .seed = i, .temp = i % 3 ? 0.7f : 0, .ignore_stop = 1};
        submit(s, (mn_request_params){.ids = want.ids + i % 60, .n_ids = 1 + i % 12, .sample = &p},
               &out[i]);
    }
    finish_all(s, out, n);
    mn_session_free(s);
}

static void test_many(void **state) {
    enum { MANY = 125 };
    static served without[MANY];
    static served with[MANY];
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* the oracle is slow */
    answer_many(0, NULL, without, MANY);
    answer_many(MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS, NULL, with, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        same_ids(&with[i], &without[i]);
}

/* Experts of the model on another device: it is in several parts, and tells its hidden states. */
static void test_parts(void **state) {
    enum { FEW = 20 };
    static served without[FEW];
    static served with[FEW];
    mn_error err = MN_ERROR_INIT;
    const mn_model_graph *g = NULL;
    (void)state;
    assert_int_equal(mn_model_graph_of(model, &g, &err), MN_OK);
    if (!g->hp.n_expert || !strcmp(device, "reference"))
        return;
    device = "cpu_simd,reference";
    answer_many(0, "_exps=reference", without, FEW);
    answer_many(MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS, "_exps=reference", with, FEW);
    device = "cpu_simd";
    for (uint32_t i = 0; i < FEW; i++)
        same_ids(&with[i], &without[i]);
}

/* Room for a part of the positions: requests give way, and are computed again. */
static void test_give_way(void **state) {
    mn_session_info info = {.size = sizeof info};
    (void)state;
    mn_session *s = open_with((mn_session_params){.n_seq = MOST, .n_ctx = 64, .n_batch = 32});
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    mn_session_free(s);
    same_with((mn_session_params){.n_seq = MOST,
                                  .n_batch = 32,
                                  .kv_bytes = info.kv_bytes,
                                  .speculate = MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS |
                                               MN_SPECULATE_REHEARSE,
                                  .guess = know,
                                  .n_draft = 3});
}

/* Draws what is left of the sequence's answer. */
static void draw(mn_session *s, int32_t *ids, uint32_t n) {
    mn_error err = MN_ERROR_INIT;
    mn_token t[32];
    uint32_t got = 0;
    for (uint32_t at = 0; at < n; at += got) {
        if (mn_session_step(s, t, 32, &got, &err))
            fail_msg("%s", err.msg);
        for (uint32_t i = 0; i < got; i++)
            ids[at + i] = t[i].id;
    }
}

/* A sequence that goes on, is cut, and has a twin: as without drafts. */
static void go_on(uint32_t speculate, int32_t out[4][N_NEW]) {
    const mn_sample_params p = {.size = sizeof p, .max_new = N_NEW, .ignore_stop = 1};
    const mn_session_params how = {
        .n_seq = 2, .n_ctx = 256, .speculate = speculate, .n_draft = speculate ? 3 : 0};
    mn_session *s = open_with(how);
    int32_t seq = -1;
    int32_t twin = -1;
    assert_int_equal(mn_seq_create(s, want.ids, 20, &p, &seq, NULL), MN_OK);
    draw(s, out[0], N_NEW);
    assert_int_equal(mn_seq_extend(s, seq, want.ids + 20, 9, &p, NULL), MN_OK);
    draw(s, out[1], N_NEW);
    assert_int_equal(mn_seq_fork_at(s, seq, 30, &twin, NULL), MN_OK);
    assert_int_equal(mn_seq_extend(s, twin, want.ids + 30, 5, &p, NULL), MN_OK);
    draw(s, out[2], N_NEW);
    assert_int_equal(mn_seq_truncate(s, seq, 25, NULL), MN_OK);
    assert_int_equal(mn_seq_extend(s, seq, want.ids + 3, 7, &p, NULL), MN_OK);
    draw(s, out[3], N_NEW);
    mn_session_free(s);
}

static void test_fork_and_cut(void **state) {
    static int32_t without[4][N_NEW];
    static int32_t with[4][N_NEW];
    (void)state;
    go_on(0, without);
    go_on(MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS, with);
    assert_memory_equal(with, without, sizeof with);
}

/* ---- errors, and what is said ---------------------------------------------------------------- */
static void test_says(void **state) {
    mn_session_info info = {.size = sizeof info};
    mn_model_info about = {.size = sizeof about};
    mn_error err = MN_ERROR_INIT;
    mn_session *s = NULL;
    char path[4400];
    mn_model *other = NULL;
    (void)state;
    assert_int_equal(mn_model_get_info(model, &about), MN_OK);
    assert_int_equal(about.draft_head, 1);
    s = open_with((mn_session_params){.speculate = MN_SPECULATE_HEAD});
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    assert_non_null(strstr(info.speculation, "the model's draft head on "));
    mn_session_free(s);
    const mn_session_params both = {
        .size = sizeof both, .device = device, .speculate = MN_SPECULATE_HEAD, .draft = model};
    assert_int_equal(mn_session_create(model, &both, &s, &err), MN_INVALID);
    snprintf(path, sizeof path, "%s/fixtures/qwen3", getenv("MINERVA_TEST_DATA"));
    assert_int_equal(mn_model_open(rt, path, &other, &err), MN_OK);
    const mn_session_params none = {
        .size = sizeof none, .device = device, .speculate = MN_SPECULATE_HEAD};
    assert_int_equal(mn_session_create(other, &none, &s, &err), MN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "has no draft head"));
    mn_model_free(other);
}

/* What convert writes has the head, too. */
static void test_converted(void **state) {
    char folder[] = "/tmp/minerva-head-XXXXXX";
    char path[64];
    mn_error err = MN_ERROR_INIT;
    mn_model *whole = model;
    const mn_convert_params params = {.size = sizeof params, .type = "f32"};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f32.gguf", folder);
    if (mn_model_convert(whole, path, &params, &err) || mn_model_open(rt, path, &model, &err))
        fail_msg("%s", err.msg);
    test_logits(state);
    test_guesses(state);
    mn_model_free(model);
    model = whole;
    unlink(path);
    rmdir(folder);
}

static int test_fixture(const char *name) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),       cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_ids),          cmocka_unit_test(test_give_way),
        cmocka_unit_test(test_fork_and_cut), cmocka_unit_test(test_says),
        cmocka_unit_test(test_converted),    cmocka_unit_test(test_many),
        cmocka_unit_test(test_parts),
    };
    char path[4200];
    mn_error err = MN_ERROR_INIT;
    snprintf(path, sizeof path, "%s/fixtures/%s", getenv("MINERVA_TEST_DATA"), name);
    if (mn_model_open(rt, path, &model, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    read_golden(path);
    const int bad = cmocka_run_group_tests_name(name, tests, make_plain, NULL);
    mn_free(want.data);
    mn_model_free(model);
    return bad;
}

int main(int argc, char **argv) {
    mn_error err = MN_ERROR_INIT;
    int bad = 0;
    if (argc > 1)
        device = argv[1];
    if (mn_runtime_create(NULL, &rt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (int i = 2; i < argc; i++)
        bad |= test_fixture(argv[i]);
    mn_runtime_free(rt);
    return bad != 0;
}
