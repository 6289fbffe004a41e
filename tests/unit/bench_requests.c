/* bench_requests.c -- not a test: the rate of requests through minerva.h alone, without HTTP, to
 * hold a server's against. bench_requests MODEL DEVICE [REQUESTS PROMPT ANSWER RUNS]: each run
 * submits all requests at once, with random prompts, and prints how many ids per second came; then
 * the median. Compare with `minerva bench --url URL -b REQUESTS --requests REQUESTS`. */
#include <minerva/minerva.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_PROMPT = 1 << 16, MAX_RUNS = 99 };

typedef struct {
    uint32_t n_requests, n_prompt, n_answer, n_runs;
    uint64_t random;
} plan;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(mn_status st, const mn_error *err) {
    if (!st)
        return;
    fprintf(stderr, "bench_requests: %s\n", err->msg);
    exit(1);
}

static int32_t random_id(plan *p, int64_t n_vocab) {
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)(n_vocab / 10 + (int64_t)((p->random >> 33) % (uint64_t)(n_vocab / 2)));
}

static void submit_all(mn_session *s, plan *p, int64_t n_vocab) {
    static int32_t ids[MAX_PROMPT];
    mn_error err = MN_ERROR;
    const mn_sample_params sample = {
        .size = sizeof sample, .max_new = p->n_answer, .ignore_stop = 1};
    for (uint32_t i = 0; i < p->n_requests; i++) {
        for (uint32_t k = 0; k < p->n_prompt; k++)
            ids[k] = random_id(p, n_vocab);
        const mn_request_params request = {
            .size = sizeof request, .sample = &sample, .ids = ids, .n_ids = p->n_prompt};
        uint64_t id = 0;
        check(mn_session_submit(s, &request, &id, &err), &err);
    }
}

/* Until all have ended; how many ids came. */
static uint64_t take_all(mn_session *s, uint32_t n_requests) {
    mn_error err = MN_ERROR;
    uint64_t n_ids = 0;
    for (uint32_t done = 0; done < n_requests;) {
        mn_request_events events = {.size = sizeof events};
        check(mn_session_next(s, 1000, &events, &err), &err);
        const char *at = (const char *)events.events;
        for (uint32_t i = 0; i < events.n; i++, at += events.stride) {
            const mn_request_event *e = (const mn_request_event *)(const void *)at;
            n_ids += e->kind == MN_REQUEST_TOKEN;
            done += e->kind == MN_REQUEST_FINISH;
        }
    }
    return n_ids;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(mn_session *s, plan *p, int64_t n_vocab) {
    double rates[MAX_RUNS];
    for (uint32_t i = 0; i < p->n_runs; i++) {
        const double begin = seconds();
        submit_all(s, p, n_vocab);
        const uint64_t n = take_all(s, p->n_requests);
        rates[i] = (double)n / (seconds() - begin);
        printf("%s%.0f", i ? " " : "t/s: ", rates[i]);
    }
    qsort(rates, p->n_runs, sizeof *rates, by_value);
    printf("; median %.0f\n", rates[p->n_runs / 2]);
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise, uint32_t most) {
    const uint32_t n = argc > i ? (uint32_t)strtoul(argv[i], NULL, 10) : otherwise;
    if (n < 1)
        return 1;
    return n < most ? n : most;
}

int main(int argc, char **argv) {
    mn_error err = MN_ERROR;
    mn_runtime *rt = NULL;
    mn_model *model = NULL;
    mn_session *s = NULL;
    plan p = {number(argc, argv, 3, 64, 4096), number(argc, argv, 4, 128, MAX_PROMPT),
              number(argc, argv, 5, 128, 1 << 20), number(argc, argv, 6, 5, MAX_RUNS), 1};
    check(mn_runtime_create(NULL, &rt, &err), &err);
    check(mn_model_open(rt, argc > 1 ? argv[1] : NULL, &model, &err), &err);
    mn_model_info info = {.size = sizeof info};
    mn_model_get_info(model, &info);
    const mn_session_params params = {.size = sizeof params,
                                      .device = argc > 2 ? argv[2] : "auto",
                                      .n_seq = p.n_requests < 64 ? p.n_requests : 64};
    check(mn_session_create(model, &params, &s, &err), &err);
    printf("%u requests, prompt %u, answer %u, ", p.n_requests, p.n_prompt, p.n_answer);
    measure(s, &p, info.n_vocab);
    mn_session_free(s);
    mn_model_free(model);
    mn_runtime_free(rt);
    return 0;
}
