/* bench_disk.c -- what cache_dir saves and costs, by hand:
 *
 *   bench_disk MODEL DEVICE FOLDER [TOKENS]
 *
 * With TOKENS (33000): the time of a prompt of so many, and the time to the first token of its
 * continuation in a new session, from files. Without: the times between tokens of an answer beside
 * which prompts are computed, without files and with them, in turn. */
#include <minerva/minerva.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MORE = 20, DRAWN = 400, BESIDE = 12, BESIDE_TOKENS = 256 };

static mn_runtime *rt;
static mn_model *model;
static const char *device;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(mn_status st, const mn_error *err) {
    if (!st)
        return;
    fprintf(stderr, "bench_disk: %s\n", err->msg);
    exit(1);
}

static mn_session *open_session(const char *dir, uint32_t n_ctx, uint32_t n_seq) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_session_params p = {
        .size = sizeof p, .device = device, .n_ctx = n_ctx, .n_seq = n_seq, .cache_dir = dir};
    check(mn_session_create(model, &p, &s, &err), &err);
    return s;
}

static void submit(mn_session *s, const int32_t *ids, uint32_t n, uint32_t max_new) {
    mn_error err = MN_ERROR;
    uint64_t id;
    const mn_sample_params sample = {.size = sizeof sample, .max_new = max_new, .ignore_stop = 1};
    const mn_request_params p = {.size = sizeof p, .sample = &sample, .ids = ids, .n_ids = n};
    check(mn_session_submit(s, &p, &id, &err), &err);
}

/* The events until n requests are over; times of the tokens of request `watched`, *n_times. */
static mn_request_event run(mn_session *s, uint32_t n, uint64_t watched, double *times,
                            uint32_t *n_times) {
    mn_error err = MN_ERROR;
    mn_request_event last = {0};
    while (n) {
        mn_request_events got = {.size = sizeof got};
        check(mn_session_next(s, 1000, &got, &err), &err);
        for (uint32_t i = 0; i < got.n; i++) {
            const mn_request_event *e = &got.events[i];
            if (e->kind == MN_REQUEST_TOKEN && e->request == watched && times)
                times[(*n_times)++] = now();
            if (e->kind != MN_REQUEST_FINISH)
                continue;
            last = *e;
            n--;
        }
    }
    return last;
}

static int32_t *words(uint32_t n, uint32_t seed) {
    int32_t *ids = malloc((n + MORE) * sizeof *ids);
    if (!ids)
        exit(1);
    for (uint32_t i = 0; i < n + MORE; i++) {
        seed = seed * 1103515245u + 12345u;
        ids[i] = 10 + (int32_t)((seed >> 8) % 1900);
    }
    return ids;
}

static void long_prompt(const char *dir, uint32_t n) {
    mn_error err = MN_ERROR;
    int32_t *ids = words(n, 1);
    mn_session_load load = {.size = sizeof load};
    mn_session *s = open_session(dir, n + 256, 1);
    submit(s, ids, n, 1);
    const mn_request_event cold = run(s, 1, 0, NULL, NULL);
    const double begin = now();
    check(mn_session_keep(s, 600000, &err), &err);
    mn_session_get_load(s, &load);
    printf(
        "prompt of %u tokens: first token after %.2f s; then %.2f s until its pages are in files\n",
        n, (double)cold.first_ns * 1e-9, now() - begin);
    mn_session_free(s);
    s = open_session(dir, n + 256, 1);
    submit(s, ids, n + MORE, 1);
    const mn_request_event warm = run(s, 1, 0, NULL, NULL);
    mn_session_get_load(s, &load);
    printf("its continuation in a new session: first token after %.3f s (%.2f %%), %u of %u tokens "
           "from files, %.1f MiB\n",
           (double)warm.first_ns * 1e-9, 100.0 * (double)warm.first_ns / (double)cold.first_ns,
           warm.n_cached, n + MORE, (double)load.disk_read / 1048576);
    mn_session_free(s);
    free(ids);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times between tokens of one answer while prompts come and go. */
static void beside(const char *dir, const char *name, uint32_t seed) {
    static double times[DRAWN + 1];
    uint32_t n = 0;
    int32_t *ids = words(BESIDE * BESIDE_TOKENS, seed);
    mn_session *s = open_session(dir, 1024, 2);
    submit(s, ids, 8, DRAWN);
    for (uint32_t i = 0; i < BESIDE; i++)
        submit(s, ids + i * BESIDE_TOKENS, BESIDE_TOKENS, 4);
    run(s, BESIDE + 1, 1, times, &n);
    mn_session_free(s);
    for (uint32_t i = 0; i + 1 < n; i++)
        times[i] = times[i + 1] - times[i];
    qsort(times, n - 1, sizeof *times, by_size);
    printf("%s: between tokens %.2f ms in the median, %.2f ms at 99 %%, %.2f ms at most\n", name,
           times[n / 2] * 1e3, times[n * 99 / 100] * 1e3, times[n - 2] * 1e3);
    free(ids);
}

int main(int argc, char **argv) {
    mn_error err = MN_ERROR;
    if (argc < 4)
        return 2;
    device = argv[2];
    check(mn_runtime_create(NULL, &rt, &err), &err);
    check(mn_model_open(rt, argv[1], &model, &err), &err);
    for (uint32_t turn = 0; turn < 3 && argc == 4; turn++) {
        beside("", "without files", 2 + turn);
        beside(argv[3], "with files", 2 + turn);
    }
    if (argc > 4)
        long_prompt(argv[3], (uint32_t)atoi(argv[4]));
    mn_model_free(model);
    mn_runtime_free(rt);
    return 0;
}
