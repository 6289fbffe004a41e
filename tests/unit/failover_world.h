/* failover_world.h -- a runtime with the stub of stubs/flaky.c, which is lost after k executes, and
 * a play whose ids must not change by that: for test_failover.c and test_comeback.c. */
#ifndef FAILOVER_WORLD_H
#define FAILOVER_WORLD_H
#include "opened/opened.h"
#include "flaky.h"
#include <stdatomic.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MAX_SEQ = 5, MAX_NEW = 12, MAX_IDS = 64 };
static mn_runtime *rt;
static mn_model *model;

/* ---- the log --------------------------------------------------------------------------------- */
static char log_text[2048];
static atomic_uint n_warnings; /* from the threads that watch calls, too */
static uint32_t n_attempts;    /* attempts to open a lost device that failed */
static inline void keep_log(void *arg, int32_t level, const char *msg) {
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
static inline void open_world(const char *const *options) {
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
static inline void close_world(void) {
    mn_model_free(model);
    mn_runtime_free(rt);
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static uint32_t n_cpu_moe, n_gpu_experts; /* of the session's parameters */
static const char *tensor_devices;
static bool with_drafts; /* of the model itself, which mostly hold */
static bool with_head;   /* drafts are of the model's own draft head */
static const char *draft_device = "cpu_simd";
static uint32_t n_batch = 16;

static inline mn_status try_session(const char *device, uint32_t n_seq, uint32_t ahead,
                                    mn_session **s, mn_error *err) {
    mn_session_params p = {.size = sizeof p,
                           .device = device,
                           .precision = MN_PRECISION_EXACT,
                           .n_seq = n_seq,
                           .n_ctx = 256,
                           .n_batch = n_batch,
                           .run_ahead = ahead,
                           .n_cpu_moe = n_cpu_moe,
                           .n_gpu_experts = n_gpu_experts,
                           .tensor_devices = tensor_devices};
    if (with_drafts) {
        p.draft = with_head ? NULL : model;
        p.draft_device = draft_device;
        p.speculate = MN_SPECULATE_ALWAYS | (with_head ? MN_SPECULATE_HEAD : 0);
        p.n_draft = 2;
    }
    return mn_session_create(model, &p, s, err);
}

static inline mn_session *session(const char *device, uint32_t n_seq, uint32_t ahead) {
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

static inline uint32_t prompt(uint32_t which, int32_t *ids) {
    const uint32_t n_words = fixture ? 150 : 2000;
    uint32_t n = 3 + (which * 17) % 90;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i ? (int32_t)(6 + (which * 131 + i * i * 17) % n_words) : 0;
    return n;
}

static inline mn_status step(mn_session *s, story *to, uint32_t *n, mn_error *err) {
    mn_token t[MAX_SEQ + 1];
    mn_status st = mn_session_step(s, t, MAX_SEQ + 1, n, err);
    for (uint32_t i = 0; !st && i < *n; i++) {
        assert_in_range(to->n[t[i].seq], 0, MAX_IDS - 1);
        to->ids[t[i].seq][to->n[t[i].seq]++] = t[i].id;
        to->finish[t[i].seq] = t[i].finish;
    }
    return st;
}

static inline void run(mn_session *s, story *to) {
    mn_error err = MN_ERROR;
    for (uint32_t n = 1; n;)
        if (step(s, to, &n, &err))
            fail_msg("%s", err.msg);
}

static inline mn_sample_params greedy(void) {
    return (mn_sample_params){.size = sizeof(mn_sample_params), .max_new = MAX_NEW};
}
static inline mn_sample_params sampled(void) {
    mn_sample_params p = greedy();
    p.temp = 1, p.top_k = 40, p.top_p = 0.95f, p.seed = 77, p.repeat_penalty = 1.2f,
    p.penalty_last_n = -1;
    p.frequency_penalty = 0.1f;
    return p;
}

static inline void check(mn_status st, const mn_error *err) {
    if (st)
        fail_msg("%s", err->msg);
}

static inline story play(const char *device, uint32_t n_seq, uint32_t ahead, mn_sample_params p) {
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

static inline void same(const story *a, const story *b) {
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_memory_equal(a->finish, b->finish, sizeof a->finish);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_int_equal(a->n_drawn, b->n_drawn);
}

/* What is told when nothing is lost; [0] greedy, [1] sampled. */
static story told[2][MAX_SEQ + 1];
static inline void tell(uint32_t n_seq) {
    if (told[0][n_seq].n_drawn)
        return;
    open_world(NULL);
    told[0][n_seq] = play("cpu_simd", n_seq, 1, greedy());
    told[1][n_seq] = play("cpu_simd", n_seq, 1, sampled());
    assert_int_equal(n_warnings, 0);
    close_world();
}

/* argv[1]: one test alone. 77: skipped. */
static inline int failover_main(const struct CMUnitTest *tests, size_t n, int argc, char **argv) {
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
    int bad = _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
    flaky_teardown();
    return bad != 0;
}
#endif
