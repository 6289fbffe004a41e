/* test_failover.c -- a device is lost in the middle of everything: what comes out is what would
 * have come out. The stub of stubs/flaky.c is lost after k executes; another device goes on. */
#include "failover_world.h"

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

/* The same of layers whose experts both devices have: the CPU goes on with both halves, in the
 * order of the divided sum. What a sequence gets does not depend on others beside it. */
static void test_divided(void **state) {
    static const char *const fixtures[] = {"gpt-oss", "qwen3-next", "mixtral", "deepseek-v3"};
    static const char *const after[] = {"0", "3", "17", "40"};
    (void)state;
    n_gpu_experts = 2;
    for (size_t f = 0; f < MN_COUNT(fixtures); f++) {
        fixture = fixtures[f];
        open_world(OPTIONS("gpu", "1", "async", "1", "unified", "0"));
        const story alone = play("cpu_simd", 1, 1, sampled());
        const story want = play("cpu_simd", 2, 1, sampled());
        const story both = play("flaky,cpu_simd", 2, 1, sampled());
        assert_int_equal(n_warnings, 0);
        close_world();
        assert_memory_equal(alone.ids[0], want.ids[0], sizeof alone.ids[0]);
        same(&want, &both);
        for (size_t k = f % 2; k < MN_COUNT(after); k += 2) {
            open_world(OPTIONS("gpu", "1", "async", "1", "unified", "0", "lost_at", calls[k],
                               "lost_after", after[k]));
            const story got = play("flaky,cpu_simd", 2, 1, sampled());
            assert_int_equal(n_warnings, 1);
            same(&want, &got);
            close_world();
        }
    }
    n_gpu_experts = 0;
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_sequence),   cmocka_unit_test(test_five_sequences),
        cmocka_unit_test(test_run_ahead),      cmocka_unit_test(test_states),
        cmocka_unit_test(test_statistics),     cmocka_unit_test(test_constraint),
        cmocka_unit_test(test_drafts),         cmocka_unit_test(test_drafts_device),
        cmocka_unit_test(test_draft_head),     cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_no_drafts),      cmocka_unit_test(test_samplers),
        cmocka_unit_test(test_info),           cmocka_unit_test(test_experts),
        cmocka_unit_test(test_divided),        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rows_requested), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_creation),       cmocka_unit_test(test_twice),
        cmocka_unit_test(test_transient),      cmocka_unit_test(test_logits),
        cmocka_unit_test(test_embeddings),     cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_generate)};
    return failover_main(tests, MN_COUNT(tests), argc, argv);
}
