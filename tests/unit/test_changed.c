/* test_changed.c -- model files that change while they are in use, through minerva.h: maps with and
 * without the guard, files that are read, and faults that are none of ours. The device is the
 * reference, which uses weights where they lie. */
#include <minerva/minerva.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { N_IDS = 6 };
static mn_runtime *rt;
static char folder[64], weights[128];
static const int32_t prompt[N_IDS] = {1, 5, 9, 2, 7, 3};

static void copy(const char *name) {
    char from[1024], to[128], chunk[65536];
    snprintf(from, sizeof from, "%s/fixtures/llama/%s", getenv("MINERVA_TEST_DATA"), name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (size_t n = 1; n;) {
        n = fread(chunk, 1, sizeof chunk, in);
        assert_int_equal(fwrite(chunk, 1, n, out), n);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static int begin(void **state) {
    (void)state;
    strcpy(folder, "/tmp/minerva-changed-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    copy("model.safetensors");
    copy("config.json");
    return 0;
}

static int end(void **state) {
    (void)state;
    char path[128];
    static const char *const names[] = {"model.safetensors", "config.json", "aside", "out.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static mn_model *open_model(uint32_t flags) {
    mn_error err = MN_ERROR;
    mn_model *m = NULL;
    const mn_model_params params = {sizeof params, flags};
    if (mn_model_open_with(rt, folder, &params, &m, &err))
        fail_msg("%s", err.msg);
    return m;
}

static mn_session *open_session(mn_model *m, uint32_t flags) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_session_params p = {.size = sizeof p,
                                 .device = "reference",
                                 .precision = MN_PRECISION_EXACT,
                                 .n_ctx = 64,
                                 .n_batch = flags ? 1 : 0,
                                 .flags = flags};
    if (mn_session_create(m, &p, &s, &err))
        fail_msg("%s", err.msg);
    return s;
}

static mn_session *running(mn_model *m) {
    mn_session *s = open_session(m, 0);
    int32_t seq;
    assert_int_equal(mn_seq_create(s, prompt, N_IDS, NULL, &seq, NULL), MN_OK);
    return s;
}

static mn_status step(mn_session *s, int32_t *id, mn_error *err) {
    mn_token t = {0};
    uint32_t n = 0;
    mn_status st = mn_session_step(s, &t, 1, &n, err);
    *id = t.id;
    assert_int_equal(n, st ? 0 : 1); /* a step that is discarded gives nothing */
    return st;
}

static void expect_changed(mn_status st, const mn_error *err) {
    assert_int_equal(st, MN_IO_ERROR);
    if (!strstr(err->msg, weights) || !strstr(err->msg, "while it"))
        fail_msg("%s", err->msg);
}

/* Same size, other bytes and time. */
static void overwrite(void) {
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    int fd = open(weights, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\0\0\0\0", 4, 200000), 4);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void test_shorter(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    int32_t id;
    mn_model *m = open_model(MN_MODEL_GUARD);
    mn_session *s = running(m);
    assert_int_equal(step(s, &id, &err), MN_OK);
    assert_int_equal(truncate(weights, 4096), 0);
    expect_changed(step(s, &id, &err), &err);
    expect_changed(step(s, &id, &err), &err); /* and so it stays */
    mn_session_free(s);
    mn_session *again = NULL;
    const mn_session_params p = {.size = sizeof p, .device = "reference", .n_ctx = 64};
    expect_changed(mn_session_create(m, &p, &again, &err), &err);
    assert_null(again);
    mn_model_free(m);
}

/* Without the guard what can be seen without a fault is seen. */
static void test_overwritten(void **state) {
    (void)state;
    static const uint32_t flags[] = {0, MN_MODEL_GUARD};
    for (size_t i = 0; i < 2; i++) {
        mn_error err = MN_ERROR;
        int32_t id;
        mn_model *m = open_model(flags[i]);
        mn_session *s = running(m);
        assert_int_equal(step(s, &id, &err), MN_OK);
        overwrite();
        expect_changed(step(s, &id, &err), &err);
        mn_session_free(s);
        mn_model_free(m);
        copy("model.safetensors");
    }
}

/* What is read, or replaced by a rename, is what it was: the same ids as without any of that. */
static void test_unharmed(void **state) {
    (void)state;
    char aside[128];
    int32_t want[8], id;
    snprintf(aside, sizeof aside, "%s/aside", folder);
    for (int how = 0; how < 3; how++) {
        mn_error err = MN_ERROR;
        mn_model *m = open_model(how == 1 ? MN_MODEL_READ : MN_MODEL_GUARD);
        mn_session *s = running(m);
        for (int i = 0; i < 8; i++) {
            if (i == 2 && how == 1)
                assert_int_equal(truncate(weights, 100), 0);
            if (i == 2 && how == 2) {
                assert_int_equal(rename(weights, aside), 0);
                copy("model.safetensors");
                assert_int_equal(truncate(weights, 100), 0);
            }
            if (step(s, &id, &err))
                fail_msg("%s", err.msg);
            if (!how)
                want[i] = id;
            assert_int_equal(id, want[i]);
        }
        mn_session_free(s);
        mn_model_free(m);
        copy("model.safetensors");
    }
}

static mn_status shorten(void *arg, uint32_t first, uint32_t n, uint32_t n_vocab,
                         const float *rows) {
    (void)n, (void)n_vocab, (void)rows;
    *(uint32_t *)arg = first;
    assert_true(first == 0 || truncate(weights, 4096) == 0);
    return MN_OK;
}

static void test_logits(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    uint32_t last = 0;
    mn_model *m = open_model(MN_MODEL_GUARD);
    mn_session *s = open_session(m, MN_SESSION_NO_SAMPLING);
    expect_changed(mn_session_logits(s, prompt, N_IDS, shorten, &last, &err), &err);
    assert_int_equal(last, 1);
    mn_session_free(s);
    mn_model_free(m);
}

static int shorten_once(void *arg, uint64_t done, uint64_t total) {
    (void)arg, (void)done, (void)total;
    return truncate(weights, 4096);
}

static void test_convert(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    char out[128];
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    mn_model *m = open_model(MN_MODEL_GUARD);
    const mn_convert_params p = {.size = sizeof p, .progress = shorten_once};
    expect_changed(mn_model_convert(m, out, &p, &err), &err);
    assert_int_not_equal(access(out, F_OK), 0); /* nothing, not even a part */
    mn_model_free(m);
}

static void test_flags(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    mn_model *m = NULL;
    const mn_model_params p = {sizeof p, 64};
    assert_int_equal(mn_model_open_with(rt, folder, &p, &m, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "mn_model_params.flags"));
    assert_null(m);
}

/* One more tensor of the header, whose bytes the caller appends. */
static void add_tensor(const char *json) {
    static char file[1 << 20];
    FILE *f = fopen(weights, "rb");
    assert_non_null(f);
    const size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    uint64_t head = 0;
    memcpy(&head, file, sizeof head);
    const uint64_t longer = head + strlen(json);
    size_t end = 8 + (size_t)head;
    while (file[end - 1] != '}')
        end--;
    f = fopen(weights, "wb");
    assert_non_null(f);
    fwrite(&longer, 1, sizeof longer, f);
    fwrite(file + 8, 1, end - 9, f);
    fwrite(json, 1, strlen(json), f);
    fwrite(file + end - 1, 1, n - end + 1, f);
    assert_int_equal(fclose(f), 0);
}

/* A tensor that no graph uses: the flag opens the model that it is without. */
static void test_unused(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    char *json = NULL;
    struct stat st;
    char more[160];
    assert_int_equal(stat(weights, &st), 0);
    FILE *f = fopen(weights, "rb");
    uint64_t head = 0;
    assert_int_equal(fread(&head, sizeof head, 1, f), 1);
    fclose(f);
    const unsigned long long data = (unsigned long long)st.st_size - 8 - head;
    snprintf(
        more, sizeof more,
        ",\"model.layers.1.mood\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%llu,%llu]}",
        data, data + 4);
    add_tensor(more);
    f = fopen(weights, "ab");
    fwrite("\0\0\0\0", 1, 4, f);
    assert_int_equal(fclose(f), 0);
    for (uint32_t i = 0; i < 2; i++) {
        mn_model *m = open_model(i ? MN_MODEL_IGNORE_UNUSED : 0);
        const mn_status status = mn_model_graph_json(m, &json, &err);
        assert_int_equal(status, i ? MN_OK : MN_UNSUPPORTED);
        if (!i)
            assert_non_null(strstr(err.msg, "model.layers.*.mood (1)"));
        mn_json_free(json);
        json = NULL;
        mn_model_free(m);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */
static sigjmp_buf back;
static volatile sig_atomic_t theirs;

static void on_theirs(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    theirs++;
    siglongjmp(back, 1);
}

/* Reads a page of a file that has none; nothing of this comes back from a fault. */
static char touch_nothing(void) {
    FILE *f = tmpfile();
    assert_non_null(f);
    const volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(f), 0);
    assert_true(map != MAP_FAILED);
    char c = map[100];
    munmap((void *)(uintptr_t)map, 4096);
    fclose(f);
    return c;
}

static void (*handler_of(int number))(int, siginfo_t *, void *) {
    struct sigaction now;
    assert_int_equal(sigaction(number, NULL, &now), 0);
    return now.sa_flags & SA_SIGINFO ? now.sa_sigaction : NULL;
}

/* A handler that was there before gets what is not ours, ours is gone when the model is. */
static void test_other_faults(void **state) {
    (void)state;
    struct sigaction mine = {.sa_sigaction = on_theirs, .sa_flags = SA_SIGINFO}, old;
    assert_int_equal(sigaction(SIGBUS, &mine, &old), 0);
    mn_model *unguarded = open_model(0);
    assert_true(handler_of(SIGBUS) == on_theirs);
    mn_model *m = open_model(MN_MODEL_GUARD), *second = open_model(MN_MODEL_GUARD);
    assert_true(handler_of(SIGBUS) != on_theirs);
    theirs = 0;
    if (!sigsetjmp(back, 1))
        touch_nothing();
    if (!sigsetjmp(back, 1))
        raise(SIGBUS);
    assert_int_equal(theirs, 2);
    mn_model_free(m);
    assert_true(handler_of(SIGBUS) != on_theirs);
    mn_model_free(second);
    mn_model_free(unguarded);
    assert_true(handler_of(SIGBUS) == on_theirs);
    sigaction(SIGBUS, &old, NULL);
}

/* Where there was none, the process ends as it would have. */
static void test_default_faults(void **state) {
    (void)state;
    struct sigaction plain = {.sa_handler = SIG_DFL}, old; /* cmocka has a handler */
    assert_int_equal(sigaction(SIGBUS, &plain, &old), 0);
    for (int sent = 0; sent < 2; sent++) {
        mn_model *m = open_model(MN_MODEL_GUARD);
        int status = 0;
        pid_t child = fork();
        if (!child) {
            const struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            alarm(20);
            if (sent)
                raise(SIGBUS);
            else
                touch_nothing();
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
        mn_model_free(m);
    }
    sigaction(SIGBUS, &old, NULL);
}

typedef struct {
    mn_session *s;
    mn_error err;
    mn_status st;
} job;

/* On an alternate stack of the size that minerva.h names. */
static void *step_there(void *arg) {
    job *j = arg;
    const size_t bytes = (size_t)sysconf(_SC_MINSIGSTKSZ) + (16u << 10);
    stack_t stack = {.ss_sp = malloc(bytes), .ss_size = bytes}, none = {.ss_flags = SS_DISABLE};
    int32_t id;
    assert_non_null(stack.ss_sp);
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    j->st = step(j->s, &id, &j->err);
    sigaltstack(&none, NULL);
    free(stack.ss_sp);
    return NULL;
}

static void test_alternate_stack(void **state) {
    (void)state;
    pthread_t thread;
    mn_model *m = open_model(MN_MODEL_GUARD);
    job j = {running(m), MN_ERROR, MN_OK};
    assert_int_equal(truncate(weights, 4096), 0);
    assert_int_equal(pthread_create(&thread, NULL, step_there, &j), 0);
    pthread_join(thread, NULL);
    expect_changed(j.st, &j.err);
    mn_session_free(j.s);
    mn_model_free(m);
}

int main(void) {
    static const mn_setting settings[] = {{"threads", "3"}};
    const mn_runtime_params params = {.size = sizeof params, .n_settings = 1, .settings = settings};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shorter, begin, end),
        cmocka_unit_test_setup_teardown(test_overwritten, begin, end),
        cmocka_unit_test_setup_teardown(test_unharmed, begin, end),
        cmocka_unit_test_setup_teardown(test_logits, begin, end),
        cmocka_unit_test_setup_teardown(test_convert, begin, end),
        cmocka_unit_test_setup_teardown(test_flags, begin, end),
        cmocka_unit_test_setup_teardown(test_unused, begin, end),
        cmocka_unit_test_setup_teardown(test_other_faults, begin, end),
        cmocka_unit_test_setup_teardown(test_default_faults, begin, end),
        cmocka_unit_test_setup_teardown(test_alternate_stack, begin, end),
    };
    mn_error err = MN_ERROR;
    if (mn_runtime_create(&params, &rt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    int bad = cmocka_run_group_tests(tests, NULL, NULL);
    mn_runtime_free(rt);
    return bad != 0;
}
