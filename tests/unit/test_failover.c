/* test_failover.c -- a device is lost in the middle of everything: what comes out is what would
 * have come out. The stub of stubs/flaky.c is lost after k executes; another device goes on. */
#include "opened/opened.h"
#include "flaky.h"
#include "registry/internal.h"
#include <stdatomic.h>
#include <pthread.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MAX_SEQ = 5, MAX_NEW = 12, MAX_IDS = 64 };
static mn_runtime *rt;
static mn_model *model;

/* ---- the log --------------------------------------------------------------------------------- */
static char log_text[2048];
static atomic_uint n_warnings; /* from the threads that watch calls, too */
static uint32_t n_attempts;    /* attempts to open a lost device that failed */
static void keep_log(void *arg, int32_t level, const char *msg) {
    (void)arg;
    if (level == MN_LOG_INFO && strstr(msg, " is still lost: "))
        n_attempts++;
    if (level != MN_LOG_WARN)
        return;
    n_warnings++;
    snprintf(log_text, sizeof log_text, "%s", msg);
}

/* ---- worlds ---------------------------------------------------------------------------------- */
static const char *fixture; /* instead of the demo model */
static void open_world(const char *const *options) {
    char path[4400];
    mn_error err = MN_ERROR;
    snprintf(path, sizeof path, "%s/fixtures/%s", getenv("MINERVA_TEST_DATA"),
             fixture ? fixture : "");
    if (flaky_runtime(options, &rt, &err) ||
        mn_model_open(rt, fixture ? path : flaky_demo, &model, &err))
        fail_msg("%s", err.msg);
    n_warnings = 0;
    log_text[0] = 0;
}
static void close_world(void) {
    mn_model_free(model);
    mn_runtime_free(rt);
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static uint32_t n_cpu_moe; /* of the session's parameters */
static const char *tensor_devices;
static bool with_drafts; /* of the model itself, which mostly hold */
static bool with_head;   /* drafts are of the model's own draft head */
static const char *draft_device = "cpu_simd";
static uint32_t n_batch = 16;

static mn_status try_session(const char *device, uint32_t n_seq, uint32_t ahead, mn_session **s,
                             mn_error *err) {
    mn_session_params p = {.size = sizeof p,
                           .device = device,
                           .precision = MN_PRECISION_EXACT,
                           .n_seq = n_seq,
                           .n_ctx = 256,
                           .n_batch = n_batch,
                           .run_ahead = ahead,
                           .n_cpu_moe = n_cpu_moe,
                           .tensor_devices = tensor_devices};
    if (with_drafts) {
        p.draft = with_head ? NULL : model;
        p.draft_device = draft_device;
        p.speculate = MN_SPECULATE_ALWAYS | (with_head ? MN_SPECULATE_HEAD : 0);
        p.n_draft = 2;
    }
    return mn_session_create(model, &p, s, err);
}

static mn_session *session(const char *device, uint32_t n_seq, uint32_t ahead) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    if (try_session(device, n_seq, ahead, &s, &err))
        fail_msg("%s", err.msg);
    return s;
}

/* ---- the play: sequences that begin one after the other, then an extend, a fork, and an extend of
 * both ---- */
typedef struct {
    int32_t ids[MAX_SEQ + 1][MAX_IDS];
    uint32_t n[MAX_SEQ + 1];
    int32_t finish[MAX_SEQ + 1];
    uint64_t n_prompt, n_drawn, n_restored, n_steps;
} story;

static uint32_t prompt(uint32_t which, int32_t *ids) {
    const uint32_t n_words = fixture ? 150 : 2000;
    uint32_t n = 3 + (which * 17) % 90;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i ? (int32_t)(6 + (which * 131 + i * i * 17) % n_words) : 0;
    return n;
}

static mn_status step(mn_session *s, story *to, uint32_t *n, mn_error *err) {
    mn_token t[MAX_SEQ + 1];
    mn_status st = mn_session_step(s, t, MAX_SEQ + 1, n, err);
    for (uint32_t i = 0; !st && i < *n; i++) {
        assert_in_range(to->n[t[i].seq], 0, MAX_IDS - 1);
        to->ids[t[i].seq][to->n[t[i].seq]++] = t[i].id;
        to->finish[t[i].seq] = t[i].finish;
    }
    return st;
}

static void run(mn_session *s, story *to) {
    mn_error err = MN_ERROR;
    for (uint32_t n = 1; n;)
        if (step(s, to, &n, &err))
            fail_msg("%s", err.msg);
}

static mn_sample_params greedy(void) {
    return (mn_sample_params){.size = sizeof(mn_sample_params), .max_new = MAX_NEW};
}
static mn_sample_params sampled(void) {
    mn_sample_params p = greedy();
    p.temp = 1, p.top_k = 40, p.top_p = 0.95f, p.seed = 77, p.repeat_penalty = 1.2f,
    p.penalty_last_n = -1;
    p.frequency_penalty = 0.1f;
    return p;
}

static void check(mn_status st, const mn_error *err) {
    if (st)
        fail_msg("%s", err->msg);
}

static story play(const char *device, uint32_t n_seq, uint32_t ahead, mn_sample_params p) {
    static const int32_t more[] = {20, 30, 40};
    story to = {0};
    int32_t ids[128], seq, twin;
    mn_error err = MN_ERROR;
    mn_session *s = session(device, MAX_SEQ + 1, ahead);
    for (uint32_t i = 0; i < n_seq; i++) {
        uint32_t n = prompt(i, ids), got;
        p.max_new = MAX_NEW + i % 3;
        check(mn_seq_create(s, ids, n, &p, &seq, &err), &err);
        assert_int_equal(seq, i);
        check(step(s, &to, &got, &err), &err);
    }
    run(s, &to);
    p.max_new = 5;
    check(mn_seq_extend(s, 0, more, 3, &p, &err), &err);
    run(s, &to);
    check(mn_seq_fork(s, 0, &twin, &err), &err);
    assert_int_equal(twin, n_seq);
    check(mn_seq_extend(s, 0, more + 1, 2, &p, &err), &err);
    check(mn_seq_extend(s, twin, more, 1, &p, &err), &err);
    run(s, &to);
    mn_session_stats stats = {.size = sizeof stats};
    mn_session_get_stats(s, &stats);
    to.n_prompt = stats.n_prompt, to.n_drawn = stats.n_drawn, to.n_restored = stats.n_restored;
    to.n_steps = stats.n_steps;
    mn_session_free(s);
    return to;
}

static void same(const story *a, const story *b) {
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_memory_equal(a->finish, b->finish, sizeof a->finish);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_int_equal(a->n_drawn, b->n_drawn);
}

/* What is told when nothing is lost; [0] greedy, [1] sampled. */
static story told[2][MAX_SEQ + 1];
static void tell(uint32_t n_seq) {
    if (told[0][n_seq].n_drawn)
        return;
    open_world(NULL);
    told[0][n_seq] = play("cpu_simd", n_seq, 1, greedy());
    told[1][n_seq] = play("cpu_simd", n_seq, 1, sampled());
    assert_int_equal(n_warnings, 0);
    close_world();
}

static void lose(const char *at, const char *after, const char *async, uint32_t n_seq,
                 uint32_t ahead, int how) {
    open_world(OPTIONS("lost_at", at, "lost_after", after, "async", async));
    story got = play("flaky,reference,cpu_simd", n_seq, ahead, how ? sampled() : greedy());
    assert_int_equal(n_warnings, 1);
    assert_string_equal(log_text, "flaky was lost (the plug was pulled); going on with reference");
    same(&told[how][n_seq], &got);
    close_world();
}

static const char *const calls[] = {"execute", "wait", "read", "write"};

/* Under sanitizers, where a story takes ten times as long, fewer of the moments. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 5, EVERY_STEP = 13 };
#else
enum { EVERY = 1, EVERY_STEP = 3 };
#endif

static void test_one_sequence(void **state) {
    static const char *const after[] = {"0", "1", "2", "7"};
    (void)state;
    tell(1);
    for (size_t i = 0; i < MN_COUNT(after) * MN_COUNT(calls); i += EVERY) {
        const size_t k = i / MN_COUNT(calls);
        lose(calls[i % MN_COUNT(calls)], after[k], "0", 1, 1, k % 2);
    }
}

/* Everywhere: in prompts of several steps, between them, in extend and fork. */
static void test_five_sequences(void **state) {
    (void)state;
    tell(5);
    for (int k = 0; k < (int)told[0][5].n_steps; k += k < 4 ? 1 : EVERY_STEP) {
        char after[16];
        snprintf(after, sizeof after, "%d", k);
        lose(calls[k % 3], after, "0", 5, 1, k % 2);
    }
}

static void test_run_ahead(void **state) {
    static const char *const after[] = {"0", "1", "5", "9", "14", "20", "26", "31"};
    (void)state;
    tell(5);
    for (size_t k = 0; k < MN_COUNT(after); k += EVERY)
        lose(calls[k / EVERY % 3], after[k], k % 2 ? "1" : "0", 5, k % 2 ? 0 : 32, k % 2);
}

/* With a constraint: where a sequence is in its grammar does not depend on the device. */
static story play_constrained(const char *device, uint32_t ahead, bool forced) {
    const char *const source =
        forced ? "(([a-z]{2,4} went to the garden[.,] )+)" : "([a-z ]{3,30}[.,]){1,9}";
    const mn_constraint_params how = {
        .size = sizeof how, .kind = MN_CONSTRAINT_REGEX, .source = {source, strlen(source)}};
    mn_error err = MN_ERROR;
    mn_sample_params p = sampled();
    check(mn_constraint_create(model, &how, &p.constraint, &err), &err);
    const story to = play(device, 3, ahead, p);
    mn_constraint_free(p.constraint);
    return to;
}

/* Neither is where text is forced, nor what drafts were made for the device that was lost. */
static void test_constraint(void **state) {
    static const char *const after[] = {"0", "2", "5", "8"};
    (void)state;
    for (uint32_t how = 0; how < 3; how++) {
        open_world(NULL);
        const story want = play_constrained("cpu_simd", 1, how);
        close_world();
        with_drafts = how == 2;
        for (size_t k = 0; k < MN_COUNT(after); k++) {
            open_world(
                OPTIONS("lost_at", calls[k], "lost_after", after[k], "async", k % 2 ? "1" : "0"));
            const story got = play_constrained("flaky,reference,cpu_simd", k % 2 ? 0 : 4, how);
            assert_int_equal(n_warnings, 1);
            same(&want, &got);
            close_world();
        }
        with_drafts = false;
    }
}

/* A device whose SAMPLE is older than drafts draws the same ids one by one, forced text as well;
 * who asked for drafts is told once. */
static void test_no_drafts(void **state) {
    (void)state;
    open_world(NULL);
    const story want = play_constrained("cpu_simd", 1, true);
    close_world();
    for (uint32_t how = 0; how < 2; how++) {
        open_world(OPTIONS("plain", "2"));
        with_drafts = how;
        const story got = play_constrained("flaky", 1, true);
        with_drafts = false;
        assert_int_equal(n_warnings, how);
        same(&want, &got);
        assert_true(got.n_steps > want.n_steps);
        close_world();
    }
}

static void test_drafts(void **state) {
    static const char *const after[] = {"0", "2", "4", "7"};
    (void)state;
    tell(3);
    with_drafts = true;
    for (size_t k = 0; k < MN_COUNT(after); k++)
        lose(calls[k], after[k], k % 2 ? "1" : "0", 3, k % 2 ? 0 : 4, k % 2);
    with_drafts = false;
}

/* The draft model's device is lost: another one goes on with the drafts, or there are none; what is
 * drawn stays the same. */
static void test_drafts_device(void **state) {
    static const char *const after[] = {"0", "1", "4", "7"};
    static const char *const devices[] = {"flaky,reference", "flaky"};
    (void)state;
    tell(3);
    with_drafts = true;
    for (size_t k = 0; k < MN_COUNT(after); k++) {
        draft_device = devices[k % 2];
        open_world(
            OPTIONS("lost_at", calls[k], "lost_after", after[k], "async", k % 2 ? "1" : "0"));
        const story got = play("cpu_simd", 3, 1, k % 2 ? sampled() : greedy());
        assert_int_equal(n_warnings, 1);
        assert_non_null(strstr(log_text, k % 2 ? "no drafts of the draft model any more: "
                                               : "flaky was lost (the plug was pulled); going on"));
        same(&told[k % 2][3], &got);
        close_world();
    }
    draft_device = "cpu_simd";
    with_drafts = false;
}

/* The device of a model with states is lost, or that of its draft head, which has read hidden
 * states of the first device; with the head, the same ids as without. */
static void test_draft_head(void **state) {
    static const char *const after[] = {"0", "1", "5", "11"};
    (void)state;
    fixture = "qwen3.5-mtp";
    for (size_t k = 0; k < MN_COUNT(after); k++) {
        const mn_sample_params how = k % 2 ? sampled() : greedy();
        open_world(NULL);
        const story want = play("cpu_simd", 3, 1, how);
        close_world();
        with_drafts = true;
        with_head = true;
        for (int of_head = 0; of_head < 2; of_head++) {
            draft_device = of_head ? "flaky" : "cpu_simd";
            open_world(OPTIONS("lost_at", calls[k], "lost_after", after[k]));
            const story got = play(of_head ? "cpu_simd" : "flaky,cpu_simd", 3, 1, how);
            assert_int_equal(n_warnings, 1);
            assert_non_null(strstr(log_text, of_head ? "no drafts of the draft head any more: "
                                                     : "flaky was lost (the plug was pulled)"));
            story drawn = got;
            drawn.n_prompt = want.n_prompt; /* drafts leave other states to begin a fork with */
            same(&want, &drawn);
            close_world();
        }
        with_drafts = false;
        with_head = false;
    }
    draft_device = "cpu_simd";
    fixture = NULL;
}

/* The device of an encoder and a decoder is lost: the next one reads the texts again. */
static void test_encoder(void **state) {
    static const char *const after[] = {"0", "1", "4", "9", "20"};
    (void)state;
    fixture = "t5";
    n_batch = 128;
    for (size_t k = 0; k < MN_COUNT(after); k++) {
        const mn_sample_params how = k % 2 ? sampled() : greedy();
        open_world(NULL);
        const story want = play("cpu_simd", 3, 1, how);
        close_world();
        /* not at a write: steps that only draw have none */
        open_world(OPTIONS("lost_at", calls[k % 3], "lost_after", after[k]));
        const story got = play("flaky,cpu_simd", 3, 1, how);
        assert_int_equal(n_warnings, 1);
        assert_non_null(strstr(log_text, "flaky was lost (the plug was pulled)"));
        same(&want, &got);
        close_world();
    }
    n_batch = 16;
    fixture = NULL;
}

/* Mirostat's state goes on where the last id that came back left it. */
static void test_samplers(void **state) {
    static const char *const after[] = {"0", "5", "16"};
    (void)state;
    mn_sample_params p = sampled();
    p.mirostat = 2;
    p.mirostat_tau = 3;
    p.dry_multiplier = 0.5f;
    open_world(NULL);
    const story want = play("cpu_simd", 3, 1, p);
    close_world();
    for (size_t k = 0; k < MN_COUNT(after); k++) {
        open_world(
            OPTIONS("lost_at", calls[k], "lost_after", after[k], "async", k % 2 ? "1" : "0"));
        const story got = play("flaky,reference,cpu_simd", 3, k % 2 ? 0 : 4, p);
        assert_int_equal(n_warnings, 1);
        same(&want, &got);
        close_world();
    }
}

/* Layers that remember a state: it goes with the device, and is computed again from the tokens. */
static void test_states(void **state) {
    static const char *const fixtures[] = {"granite4-h", "qwen3-next", "lfm2", "mamba2"};
    static const char *const after[] = {"0", "3", "8", "17"};
    (void)state;
    for (size_t f = 0; f < MN_COUNT(fixtures); f++) {
        fixture = fixtures[f];
        open_world(NULL);
        const story want = play("cpu_simd", 4, 1, f % 2 ? sampled() : greedy());
        close_world();
        with_drafts = f == 1;
        for (size_t k = 0; k < MN_COUNT(after); k++) {
            open_world(
                OPTIONS("lost_at", calls[k], "lost_after", after[k], "async", k % 2 ? "1" : "0"));
            const story got =
                play("flaky,reference,cpu_simd", 4, k % 2 ? 0 : 4, f % 2 ? sampled() : greedy());
            assert_int_equal(n_warnings, 1);
            same(&want, &got);
            close_world();
        }
        with_drafts = false;
    }
    fixture = NULL;
}

static void test_statistics(void **state) {
    (void)state;
    tell(5);
    open_world(OPTIONS("lost_after", "20"));
    story got = play("flaky,cpu_simd", 5, 1, greedy());
    same(&told[0][5], &got);
    assert_true(got.n_restored > 20);
    assert_int_equal(told[0][5].n_restored, 0);
    mn_session *s = session("auto", 1, 1); /* the lost device is in no later choice */
    mn_session_info info = {.size = sizeof info};
    mn_session_get_info(s, &info);
    assert_null(strstr(info.device, "flaky"));
    mn_session_free(s);
    close_world();
}

static void test_info(void **state) {
    (void)state;
    open_world(OPTIONS("lost_after", "3"));
    mn_session *s = session("flaky,cpu_simd", 1, 1);
    mn_session_info before = {.size = sizeof before}, after = {.size = sizeof after};
    mn_sample_params p = greedy();
    int32_t ids[128], seq;
    story to = {0};
    mn_session_get_info(s, &before);
    assert_string_equal(before.device, "flaky");
    assert_int_equal(mn_seq_create(s, ids, prompt(1, ids), &p, &seq, NULL), MN_OK);
    run(s, &to);
    mn_session_get_info(s, &after);
    assert_string_equal(after.device, "cpu_simd");
    assert_string_equal(before.device, "flaky"); /* what was handed out stays */
    assert_true(after.n_ctx == before.n_ctx && after.n_seq == before.n_seq &&
                after.n_batch == before.n_batch);
    mn_session_free(s);
    close_world();
}

/* ---- experts on the CPU ---------------------------------------------------------------------- */
/* The card of a model with experts is lost, and the CPU, which has the experts, goes on with all:
 * the same ids. Where the user named the card for some weights, a line says that it is gone. */
static void test_experts(void **state) {
    static const char *const after[] = {"0", "1", "5", "17", "40"};
    static const char *const rules[] = {NULL, "attn_.*weight=flaky,_exps=cpu"};
    (void)state;
    fixture = "gpt-oss";
    open_world(NULL);
    const story want = play("cpu_simd", 2, 1, sampled());
    close_world();
    for (size_t k = 0; k < MN_COUNT(after); k++) {
        open_world(OPTIONS("lost_at", calls[k % 4], "lost_after", after[k]));
        n_cpu_moe = k % 3 ? MN_CPU_MOE_ALL : 1;
        tensor_devices = rules[k % 2];
        const story got = play("flaky,cpu_simd", 2, 1, sampled());
        assert_int_equal(n_warnings, 1 + k % 2);
        assert_string_equal(log_text,
                            "flaky was lost (the plug was pulled); going on with cpu_simd");
        same(&want, &got);
        close_world();
    }
    n_cpu_moe = 0;
    tensor_devices = NULL;
    fixture = NULL;
}

/* ---- rows of a step -------------------------------------------------------------------------- */
static uint32_t rows_now(const mn_session *s) {
    mn_session_info info = {.size = sizeof info};
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    return info.n_batch;
}

/* As an explanation of a session with these parameters says; measures the devices. */
static uint32_t rows_explained(const mn_session_params *p) {
    char *json = NULL;
    check(mn_model_explain(model, p, &json, NULL), NULL);
    const char *at = strstr(json, "\"rows\":");
    assert_non_null(at);
    const uint32_t rows = (uint32_t)atoi(at + strlen("\"rows\":"));
    mn_json_free(json);
    return rows;
}

static uint32_t rows_requested(const mn_session_params *p) {
    const mn_model_graph *g = NULL;
    mn_request r;
    assert_int_equal(mn_model_graph_for(model, 0, 0, &g, NULL), MN_OK);
    assert_int_equal(mn_request_make(model, g, p, &r, NULL), MN_OK);
    return MN_MAX(r.n_batch, r.n_batch_wide);
}

/* A GPU has steps of 2,048 rows where nobody names a number; the CPU that goes on for it has 512:
 * a step of more takes long there. */
static void test_rows(void **state) {
    (void)state;
    open_world(OPTIONS("gpu", "1", "lost_after", "3"));
    mn_session_params p = {.size = sizeof p, .device = "flaky,cpu_simd", .n_ctx = 256};
    mn_session *s = NULL;
    mn_error err = MN_ERROR;
    mn_sample_params sample = greedy();
    int32_t ids[128], seq;
    story to = {0};
    check(mn_session_create(model, &p, &s, &err), &err);
    assert_int_equal(rows_now(s), 2048);
    check(mn_seq_create(s, ids, prompt(1, ids), &sample, &seq, &err), &err);
    run(s, &to);
    assert_int_equal(rows_now(s), 512);
    mn_session_free(s);
    close_world();
}

/* Numbers that the caller or the configuration names, logits of every row, and ranks, which have
 * one size for all, keep what they say. */
static void test_rows_requested(void **state) {
    (void)state;
    open_world(OPTIONS("gpu", "1"));
    mn_session_params p = {.size = sizeof p, .device = "flaky"};
    assert_int_equal(rows_requested(&p), 2048);
    p.n_batch = 100;
    assert_int_equal(rows_requested(&p), 100);
    assert_int_equal(rows_explained(&p), 100);
    p.n_batch = 0;
    p.device = "cpu_simd";
    assert_int_equal(rows_explained(&p), 512);
    p.flags = MN_SESSION_NO_SAMPLING;
    assert_int_equal(rows_requested(&p), 64);
    p.flags = 0;
    rt->ranks = (struct mn_ranks *)(void *)&p; /* nobody asks it anything */
    assert_int_equal(rows_requested(&p), 512);
    rt->ranks = NULL;
    close_world();
}

/* With nothing else on the list: the error says what was lost; the session can be asked again, and
 * freed. */
static void test_alone(void **state) {
    (void)state;
    open_world(OPTIONS("lost_after", "4"));
    mn_session *s = session("flaky", 2, 1);
    mn_sample_params p = greedy();
    mn_session_info info = {.size = sizeof info};
    int32_t ids[128], seq, twin;
    uint32_t n = prompt(2, ids), got = 1;
    mn_error err = MN_ERROR;
    story to = {0};
    assert_int_equal(mn_seq_create(s, ids, n, &p, &seq, NULL), MN_OK);
    mn_status st = MN_OK;
    while (!st && got)
        st = step(s, &to, &got, &err);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(st, MN_NO_DEVICE);
        assert_non_null(strstr(err.msg, "flaky was lost (the plug was pulled)"));
        assert_non_null(strstr(err.msg, "no other device was named"));
        st = step(s, &to, &got, &err);
    }
    assert_int_equal(mn_seq_create(s, ids, n, &p, &twin, NULL), MN_NO_DEVICE);
    assert_int_equal(mn_seq_length(s, seq), n + to.n[seq]);
    mn_session_get_info(s, &info);
    mn_seq_free(s, seq);
    mn_session_free(s);
    assert_int_equal(n_warnings, 0);
    s = NULL;
    assert_int_equal(try_session("flaky", 1, 1, &s, &err), MN_NO_DEVICE);
    close_world();
}

static void test_creation(void **state) {
    static const char *const at[] = {"compile", "weights", "open", "bind", "alloc", "queue"};
    (void)state;
    for (size_t i = 0; i < MN_COUNT(at); i++) {
        mn_error err = MN_ERROR;
        mn_session *s = NULL;
        open_world(OPTIONS("lost_at", at[i], "lost_after", "0"));
        assert_int_equal(try_session("flaky", 1, 1, &s, &err), MN_NO_DEVICE);
        assert_non_null(strstr(err.msg, "flaky"));
        assert_non_null(strstr(err.msg, "the plug was pulled"));
        close_world();
        open_world(OPTIONS("lost_at", at[i], "lost_after", "0"));
        s = session("flaky,cpu_simd", 1, 1);
        if (n_warnings)
            assert_string_equal(log_text,
                                "flaky was lost (the plug was pulled); going on with cpu_simd");
        mn_session_free(s);
        close_world();
    }
}

/* The second device is lost while it takes over, or later. */
static void test_twice(void **state) {
    static const char *const after[] = {"3,0", "0,0", "6,1", "6,9"};
    (void)state;
    tell(5);
    for (size_t i = 0; i < MN_COUNT(after); i++) {
        const bool write = i < 2;
        open_world(OPTIONS("devices", "2", "lost_after", after[i], "lost_at",
                           write ? "write" : "execute"));
        story got = play("flaky:0,flaky:1,cpu_simd", 5, 1, greedy());
        same(&told[0][5], &got);
        if (write)
            assert_string_equal(
                log_text, "flaky:0 was lost (the plug was pulled), flaky:1 was lost (the plug was "
                          "pulled); going on with cpu_simd");
        else
            assert_string_equal(log_text,
                                "flaky:1 was lost (the plug was pulled); going on with cpu_simd");
        assert_int_equal(n_warnings, write ? 1 : 2);
        close_world();
    }
}

static void test_transient(void **state) {
    static const char *const every[] = {"2", "3", "5"};
    (void)state;
    tell(5);
    for (size_t i = 0; i < MN_COUNT(every); i++) {
        open_world(OPTIONS("transient", every[i]));
        story got = play("flaky", 5, i ? 4 : 1, greedy());
        same(&told[0][5], &got);
        assert_int_equal(n_warnings, 0);
        close_world();
    }
    open_world(OPTIONS("transient", "1")); /* for ever: given up */
    mn_session *s = session("flaky", 1, 1);
    mn_sample_params p = greedy();
    int32_t ids[128], seq;
    assert_int_equal(MN_STATUS_CLASS(mn_seq_create(s, ids, prompt(0, ids), &p, &seq, NULL)),
                     MN_CLASS_TRANSIENT);
    mn_session_free(s);
    close_world();
}

/* ---- logits ---------------------------------------------------------------------------------- */
typedef struct {
    uint32_t n;
    double sum[128];
} seen;
static mn_status see(void *arg, uint32_t first, uint32_t n, uint32_t n_vocab, const float *rows) {
    seen *s = arg;
    assert_int_equal(first, s->n);
    for (uint32_t i = 0; i < n; i++, s->n++)
        for (uint32_t v = 0; v < n_vocab; v++)
            s->sum[s->n] += (double)rows[(size_t)i * n_vocab + v] * (1 + v % 7);
    return MN_OK;
}

static seen logits(const char *device) {
    mn_session_params p = {.size = sizeof p,
                           .device = device,
                           .precision = MN_PRECISION_EXACT,
                           .n_ctx = 128,
                           .n_batch = 16,
                           .flags = MN_SESSION_NO_SAMPLING};
    mn_session *s = NULL;
    mn_error err = MN_ERROR;
    seen got = {0};
    int32_t ids[128];
    uint32_t n = prompt(5, ids);
    check(mn_session_create(model, &p, &s, &err), &err);
    check(mn_session_logits(s, ids, n, see, &got, &err), &err);
    assert_int_equal(got.n, n);
    mn_session_free(s);
    return got;
}

static void test_logits(void **state) {
    static const char *const after[] = {"0", "1", "3", "5"};
    (void)state;
    open_world(NULL);
    seen want = logits("cpu_simd");
    close_world();
    for (size_t i = 0; i < MN_COUNT(after); i++) {
        open_world(OPTIONS("lost_at", calls[i], "lost_after", after[i]));
        seen got = logits("flaky,cpu_simd");
        assert_int_equal(n_warnings, 1);
        assert_memory_equal(&want, &got, sizeof want);
        close_world();
    }
}

/* ---- embeddings ------------------------------------------------------------------------------ */
enum { EMBED_TEXTS = 5, EMBED_WIDTH = 512 };

/* Vectors [EMBED_TEXTS, n_embd] of texts that need several steps, two at a time. */
static void embed(const char *device, float *out) {
    const mn_session_params p = {.size = sizeof p,
                                 .device = device,
                                 .precision = MN_PRECISION_EXACT,
                                 .n_ctx = 128,
                                 .n_seq = 2,
                                 .n_batch = 16,
                                 .flags = MN_SESSION_EMBED};
    const mn_embed_params how = {.size = sizeof how, .pooling = MN_POOLING_MEAN};
    int32_t ids[EMBED_TEXTS][128];
    mn_embed_text texts[EMBED_TEXTS];
    mn_session *s = NULL;
    mn_error err = MN_ERROR;
    for (uint32_t i = 0; i < EMBED_TEXTS; i++)
        texts[i] = (mn_embed_text){ids[i], prompt(i, ids[i]), 0};
    check(mn_session_create(model, &p, &s, &err), &err);
    check(mn_session_embed(s, texts, EMBED_TEXTS, &how, out, EMBED_TEXTS * EMBED_WIDTH, &err),
          &err);
    mn_session_free(s);
}

static void test_embeddings(void **state) {
    static const char *const after[] = {"0", "2", "5", "9"};
    static float want[EMBED_TEXTS * EMBED_WIDTH];
    static float got[EMBED_TEXTS * EMBED_WIDTH];
    (void)state;
    open_world(NULL);
    embed("cpu_simd", want);
    close_world();
    for (size_t i = 0; i < MN_COUNT(after); i++) {
        memset(got, 0, sizeof got);
        open_world(OPTIONS("lost_at", calls[i], "lost_after", after[i]));
        embed("flaky,cpu_simd", got);
        assert_int_equal(n_warnings, 1);
        assert_memory_equal(want, got, sizeof want);
        close_world();
    }
}

/* Memory runs out while the session changes devices: an error, no leak, and the next call goes
 * on. */
static void test_out_of_memory(void **state) {
    (void)state;
    story want = {0};
    bool failed = true;
    uint32_t n_failed = 0;
    for (int64_t k = 0; failed; k += k < 60 ? 1 : k / 8) {
        mn_sample_params p = greedy();
        mn_error err = MN_ERROR;
        int32_t ids[128], seq;
        uint32_t got = 1;
        story to = {0};
        open_world(OPTIONS("lost_after", k ? "6" : "-"));
        mn_session *s = session("flaky,cpu_simd", MAX_SEQ + 1, 1);
        for (uint32_t i = 0; i < 2; i++)
            check(mn_seq_create(s, ids, prompt(i, ids), &p, &seq, &err), &err);
        failed = false;
        if (k)
            mn_alloc_fail_after(k); /* steps allocate nothing: the first is of the change */
        for (mn_status st = MN_OK; got || st;) {
            st = step(s, &to, &got, &err);
            mn_alloc_fail_after(n_warnings || st ? -1 : k);
            if (st && st != MN_OUT_OF_MEMORY && st != MN_NO_DEVICE)
                fail_msg("%s", err.msg);
            failed = failed || st;
            n_failed += st != MN_OK;
        }
        mn_alloc_fail_after(-1);
        if (!k) {
            want = to;
            failed = true;
        } else
            assert_memory_equal(&want, &to, sizeof to);
        mn_session_free(s);
        close_world();
        assert_true(k < 1 << 20);
    }
    assert_true(n_failed > 20);
}

/* ---- devices that come back, or do not ------------------------------------------------------- */
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

static int count(void *arg, const char *text, uint64_t n) {
    char *to = arg;
    strncat(to, text, n);
    return 0;
}

static void test_generate(void **state) {
    (void)state;
    char want[1024] = "", got[1024] = "";
    mn_sample_params p = greedy();
    mn_error err = MN_ERROR;
    open_world(NULL);
    mn_session *s = session("cpu_simd", 1, 1);
    check(mn_generate(s, "Tell me a story.", &p, count, want, &err), &err);
    mn_session_free(s);
    close_world();
    open_world(OPTIONS("lost_after", "7"));
    s = session("flaky,cpu", 1, 0);
    check(mn_generate(s, "Tell me a story.", &p, count, got, &err), &err);
    mn_session_free(s);
    assert_int_equal(n_warnings, 1);
    close_world();
    assert_string_equal(want, got);
}

int main(int argc, char **argv) { /* argv[1]: one test alone */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_sequence),
                                       cmocka_unit_test(test_five_sequences),
                                       cmocka_unit_test(test_run_ahead),
                                       cmocka_unit_test(test_states),
                                       cmocka_unit_test(test_statistics),
                                       cmocka_unit_test(test_constraint),
                                       cmocka_unit_test(test_drafts),
                                       cmocka_unit_test(test_drafts_device),
                                       cmocka_unit_test(test_draft_head),
                                       cmocka_unit_test(test_encoder),
                                       cmocka_unit_test(test_no_drafts),
                                       cmocka_unit_test(test_samplers),
                                       cmocka_unit_test(test_info),
                                       cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_rows_requested),
                                       cmocka_unit_test(test_alone),
                                       cmocka_unit_test(test_creation),
                                       cmocka_unit_test(test_twice),
                                       cmocka_unit_test(test_transient),
                                       cmocka_unit_test(test_logits),
                                       cmocka_unit_test(test_embeddings),
                                       cmocka_unit_test(test_out_of_memory),
                                       cmocka_unit_test(test_generate),
                                       cmocka_unit_test(test_comes_back),
                                       cmocka_unit_test(test_delay),
                                       cmocka_unit_test(test_delay_of_relapse),
                                       cmocka_unit_test(test_stays_lost),
                                       cmocka_unit_test(test_self_test),
                                       cmocka_unit_test(test_in_use),
                                       cmocka_unit_test(test_threads)};
    const char *isa = getenv("MINERVA_CPU_ISA"); /* answers are compared bit by bit */
    if (isa)
        setenv("MINERVA_FLAKY_ISA", isa, 1);
    if (!flaky_setup()) {
        printf("skipped: cpu_simd is not built\n");
        return 77;
    }
    mn_log_to(keep_log, NULL);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    flaky_teardown();
    return bad != 0;
}
