/* test_fork.c -- what holds in the child of a fork: every function on what the parent made returns,
 * with an error or with an answer that needs no threads; a runtime of the child's own tells the
 * same story; the parent notices nothing. A child that hangs is ended by its alarm. */
#include <minerva/minerva.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { N_IDS = 6, N_NEW = 12, SECONDS = 120 };
static const int32_t prompt[N_IDS] = {0, 2, 374, 3, 315, 576};

typedef struct {
    mn_runtime *rt;
    mn_model *model;
    mn_session *session;
    mn_error err;
} world;

static mn_status open_world(world *w) {
    const mn_setting settings[] = {{"threads", "4"}, {"device", "cpu"}, {"precision", "exact"}};
    const mn_runtime_params params = {.size = sizeof params, .n_settings = 3, .settings = settings};
    *w = (world){.err = MN_ERROR};
    mn_status st = mn_runtime_create(&params, &w->rt, &w->err);
    if (!st)
        st = mn_model_open(w->rt, NULL, &w->model, &w->err);
    return st ? st : mn_session_create(w->model, NULL, &w->session, &w->err);
}

static void close_world(world *w) {
    mn_session_free(w->session);
    mn_model_free(w->model);
    mn_runtime_free(w->rt);
}

/* The ids that follow the prompt, the likeliest each. */
static mn_status story(world *w, int32_t ids[N_NEW]) {
    const mn_sample_params greedy = {.size = sizeof greedy, .max_new = N_NEW};
    int32_t seq = -1;
    uint32_t n = 1, at = 0;
    mn_token t;
    mn_status st = mn_seq_create(w->session, prompt, N_IDS, &greedy, &seq, &w->err);
    while (!st && n && at < N_NEW) {
        st = mn_session_step(w->session, &t, 1, &n, &w->err);
        if (!st && n)
            ids[at++] = t.id;
    }
    if (!st)
        mn_seq_free(w->session, seq);
    return st;
}

/* ---- in the child: exit codes, for cmocka belongs to the parent ------------------------------ */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int print_nothing(void *arg, const char *text, uint64_t n) {
    (void)arg, (void)text, (void)n;
    return 0;
}

static mn_status no_rows(void *arg, uint32_t first, uint32_t n_rows, uint32_t n_vocab,
                         const float *rows) {
    (void)arg, (void)first, (void)n_rows, (void)n_vocab, (void)rows;
    return MN_OK;
}

static void refused(mn_status st, const mn_error *err) {
    CHECK(st == MN_INVALID);
    CHECK(strstr(err->msg, "forked"));
}

/* What computes or opens. */
static void errors(world *w) {
    mn_error err = MN_ERROR;
    mn_token t;
    mn_model *model;
    mn_session *session;
    mn_device_item device;
    uint32_t n;
    int32_t seq;
    char *json;
    refused(mn_session_step(w->session, &t, 1, &n, &err), &err);
    refused(mn_seq_create(w->session, prompt, N_IDS, NULL, &seq, &err), &err);
    refused(mn_seq_extend(w->session, 0, prompt, N_IDS, NULL, &err), &err);
    refused(mn_seq_fork(w->session, 0, &seq, &err), &err);
    refused(mn_session_logits(w->session, prompt, N_IDS, no_rows, NULL, &err), &err);
    refused(mn_generate(w->session, "a", NULL, print_nothing, NULL, &err), &err);
    refused(mn_session_create(w->model, NULL, &session, &err), &err);
    refused(mn_model_open(w->rt, NULL, &model, &err), &err);
    refused(mn_model_explain(w->model, NULL, &json, &err), &err);
    refused(mn_model_convert(w->model, "/nowhere/m.gguf", NULL, &err), &err);
    CHECK(mn_runtime_device(w->rt, 0, &device) == MN_INVALID);
}

/* What only reads. */
static void answers(world *w) {
    mn_error err = MN_ERROR;
    mn_config_item item;
    mn_plugin_item plugin;
    mn_model_info info = {.size = sizeof info};
    mn_session_info about = {.size = sizeof about};
    int32_t *ids;
    uint32_t n;
    CHECK(mn_runtime_config(w->rt, 0, &item) == MN_OK);
    CHECK(mn_runtime_plugin(w->rt, 0, &plugin) == MN_OK);
    CHECK(mn_runtime_threads(w->rt) == 4);
    CHECK(mn_model_get_info(w->model, &info) == MN_OK && info.n_vocab > 0);
    CHECK(mn_session_get_info(w->session, &about) == MN_OK);
    CHECK(mn_model_tokenize(w->model, (mn_str){"a fox", 5}, 0, &ids, &n, &err) == MN_OK && n > 0);
    mn_ids_free(ids);
    mn_session_cancel(w->session);
}

static void in_child(world *parents, const int32_t *expected) {
    world own;
    int32_t ids[N_NEW] = {0};
    alarm(SECONDS);
    errors(parents);
    answers(parents);
    mn_seq_free(parents->session, 0);
    close_world(parents);
    if (open_world(&own) || story(&own, ids)) {
        fprintf(stderr, "%s\n", own.err.msg);
        _exit(2);
    }
    close_world(&own);
    CHECK(!memcmp(ids, expected, sizeof ids));
#if defined(__SANITIZE_ADDRESS__)
    _exit(0); /* what the parent made is a leak here */
#else
    exit(0); /* with all that was registered for the end */
#endif
}

static void expect_child(world *w, const int32_t *expected) {
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        in_child(w, expected);
    int how = -1;
    assert_true(pid > 0 && waitpid(pid, &how, 0) == pid);
    if (!WIFEXITED(how) || WEXITSTATUS(how))
        fail_msg("the child: %s %d", WIFSIGNALED(how) ? "signal" : "exit code",
                 WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
}

/* ---- in the parent --------------------------------------------------------------------------- */

static void quiet(void **state) {
    (void)state;
    world w;
    int32_t before[N_NEW] = {0}, after[N_NEW] = {0};
    if (open_world(&w) || story(&w, before))
        fail_msg("%s", w.err.msg);
    expect_child(&w, before);
    expect_child(&w, before);
    assert_int_equal(story(&w, after), MN_OK);
    assert_memory_equal(before, after, sizeof before);
    close_world(&w);
}

static world busy_world;
static atomic_bool stop;

static void *tell_on(void *arg) {
    int32_t ids[N_NEW];
    (void)arg;
    while (!atomic_load(&stop))
        if (story(&busy_world, ids))
            abort();
    return NULL;
}

/* Forked while another thread computes: whatever is locked then stays locked in the child. */
static void busy(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* its allocator has locks of its own, which a fork does not look after */
#endif
    pthread_t teller;
    int32_t expected[N_NEW] = {0};
    if (open_world(&busy_world) || story(&busy_world, expected))
        fail_msg("%s", busy_world.err.msg);
    assert_int_equal(pthread_create(&teller, NULL, tell_on, NULL), 0);
    for (int i = 0; i < 8; i++) {
        usleep(3000 * (useconds_t)i);
        expect_child(&busy_world, expected);
    }
    atomic_store(&stop, true);
    pthread_join(teller, NULL);
    close_world(&busy_world);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quiet), cmocka_unit_test(busy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
