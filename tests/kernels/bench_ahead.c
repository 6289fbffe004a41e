/* bench_ahead.c -- not a test: decode speed with many steps enqueued ahead. bench_ahead MODEL
 * DEVICE [AHEAD [SEQUENCES [TOKENS]]] Also tells the host's time per step, building and enqueuing,
 * of the session and the plugin together. */
#include <minerva/minerva.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const mn_error *e) {
    return fprintf(stderr, "%s\n", e->msg), 1;
}

int main(int argc, char **argv) {
    mn_error err = MN_ERROR;
    mn_runtime *rt;
    mn_model *model;
    mn_session *s;
    if (argc < 3)
        return fprintf(stderr, "bench_ahead MODEL DEVICE [AHEAD [SEQUENCES [TOKENS]]]\n"), 2;
    const uint32_t ahead = argc > 3 ? (uint32_t)atoi(argv[3]) : 64;
    const uint32_t n_seq = argc > 4 ? (uint32_t)atoi(argv[4]) : 1;
    const uint32_t n_new = argc > 5 ? (uint32_t)atoi(argv[5]) : 128;
    if (mn_runtime_create(NULL, &rt, &err) || mn_model_open(rt, argv[1], &model, &err))
        return fail(&err);
    mn_session_params p = {
        .size = sizeof p,
        .device = argv[2],
        .n_seq = n_seq,
        .n_ctx = n_new + 64,
        .run_ahead = ahead,
    };
    if (mn_session_create(model, &p, &s, &err))
        return fail(&err);
    mn_token *t = calloc(n_seq, sizeof *t);
    mn_sample_params greedy = {
        .size = sizeof greedy,
        .max_new = n_new,
        .ignore_stop = 1,
    };
    for (int rep = 0; rep < 6; rep++) {
        const int32_t ids[4] = {1, 306, 4658, 278};
        int32_t seq[4096];
        uint32_t n = 1;
        for (uint32_t i = 0; i < n_seq; i++)
            if (mn_seq_create(s, ids, 4, &greedy, &seq[i], &err))
                return fail(&err);
        mn_session_stats before = {.size = sizeof before};
        mn_session_stats after = {.size = sizeof after};
        double first = 0;
        mn_session_get_stats(s, &before);
        uint64_t drawn = 0;
        uint64_t of_first = 0;
        while (n) {
            if (mn_session_step(s, t, n_seq, &n, &err))
                return fail(&err);
            drawn += n;
            if (!first) {
                first = now();
                of_first = n;
            }
        }
        double dt = now() - first;
        for (uint32_t i = 0; i < n_seq; i++)
            mn_seq_free(s, seq[i]);
        mn_session_get_stats(s, &after);
        if (!rep)
            continue; /* captures its graphs */
        printf("%u sequences, %u ahead: %.0f t/s, %.1f us per step, of which the host %.2f us\n",
               n_seq, ahead, (double)(drawn - of_first) / dt,
               dt * 1e6 * n_seq / (double)(drawn - of_first),
               (after.host_s - before.host_s) * 1e6 / (double)(after.n_steps - before.n_steps));
    }
    mn_session_free(s);
    mn_model_free(model);
    mn_runtime_free(rt);
    free(t);
    return 0;
}
