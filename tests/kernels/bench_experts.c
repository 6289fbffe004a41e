/* bench_experts.c -- not a test: GB/s of experts that MOE_LINEAR of cpu_simd reads in class a8,
 * where few rows choose each expert, beside a read loop in the same run. Each step reads all
 * experts of a weight once, which is larger than caches of a core. Medians. Of scales beside the
 * data nothing is counted. Usage: bench_experts [threads [isa]]. */
#include "case_plan.h"
#include "harness.h"
#include "read_streams.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES (UINT64_C(576) << 20)
enum { MOST_THREADS = 64, RUNS = 9, K = 2048, N = 2048, CHOSEN = 4 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* ---- what memory gives ----------------------------------------------------------------------- */
typedef struct {
    const uint8_t *mem;
    uint64_t bytes;
    uint64_t sum;
} stretch;
static void *read_stretch(void *arg) {
    stretch *s = arg;
    s->sum = read_streams(s->mem, s->bytes);
    return NULL;
}
static double read_rate(const uint8_t *mem, int threads) {
    double gbps[RUNS];
    for (int run = 0; run < RUNS; run++) {
        pthread_t thread[MOST_THREADS];
        stretch s[MOST_THREADS];
        const uint64_t each = BYTES / (uint64_t)threads / 64 * 64;
        const double t0 = now();
        for (int i = 0; i < threads; i++) {
            s[i] = (stretch){mem + each * (uint64_t)i, each, 0};
            pthread_create(&thread[i], NULL, read_stretch, &s[i]);
        }
        for (int i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
        gbps[run] = (double)each * threads / (now() - t0) * 1e-9;
    }
    return median(gbps, RUNS);
}

/* ---- steps ----------------------------------------------------------------------------------- */
static uint32_t tensor_of(const op_case *c, const char *name) {
    uint32_t t = 0;
    while (strcmp(c->t[t].name.ptr, name))
        t++;
    return t;
}

/* Each expert by as many pairs of row and expert as the others. */
static void choose(op_case *c, int64_t n_expert) {
    const uint32_t t = tensor_of(c, "experts");
    int32_t *experts = c->data[t];
    for (uint64_t i = 0; i < c->bytes[t] / sizeof *experts; i++)
        experts[i] = (int32_t)((int64_t)i % n_expert);
}

/* Median seconds of a step. */
static double step_time(case_plan *p, const op_case *c) {
    double took[RUNS];
    for (int run = 0; run < RUNS; run++) {
        mn_event *ev = NULL;
        mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
        const double t0 = now();
        if (mn_usual_execute(p->on.be, p->contexts[p->at], p->set, c->value, &ev, &err))
            fail_msg("%s", err.msg);
        took[run] = now() - t0;
    }
    return median(took, RUNS);
}

/* n_rows: of each expert; limit: GB/s of the read loop. */
static void measure(h_plugin *plugin, uint32_t type, const char *name, int64_t n_rows,
                    double limit) {
    const case_on on = {.be = plugin->be, .dev = plugin->dev, .queue = plugin->queue};
    const uint64_t expert = case_plane_bytes(type, (int64_t)N * K);
    const int64_t n_expert = (int64_t)(BYTES / expert) / CHOSEN * CHOSEN;
    const op_shape s = {
        .rows = n_expert * n_rows / CHOSEN, .k = K, .n = N, .n_expert = n_expert, .n_used = CHOSEN};
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    case_plan *p = NULL;
    op_case *c = case_random(MN_OP_MOE_LINEAR, type, &s, 1);
    assert_non_null(c);
    choose(c, n_expert);
    if (case_open(&on, c, MN_PRECISION_A8, &p, &err) || case_step(p, c, &err))
        fail_msg("%s: %s", name, err.msg);
    const double gbps = (double)expert * (double)n_expert / step_time(p, c) * 1e-9;
    printf("| %s | %d | %.1f | %.0f %% |\n", name, (int)n_rows, gbps, 100 * gbps / limit);
    fflush(stdout);
    case_close(p);
    case_free(c);
}

int main(int argc, char **argv) {
    static const struct {
        uint32_t type;
        const char *name;
    } types[] = {{MN_MXFP4, "mxfp4"}, {MN_Q4_K, "q4_k"}, {MN_Q8_0, "q8_0"}, {MN_MLX4_128, "int4"}};
    static const int64_t rows[] = {1, 2, 4, 8};
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    h_plugin plugin;
    uint8_t *mem = aligned_alloc(2u << 20, BYTES);
    if (threads < 1 || threads > MOST_THREADS || !mem)
        return 2;
    memset(mem, 1, BYTES);
    h_host_workers((uint32_t)threads);
    if (argc > 2)
        h_host_option("isa", argv[2]);
    if (!h_open(&plugin, "cpu_simd"))
        return 2;
    printf("| type | rows of each expert | GB/s | of the read rate |\n|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const double limit = read_rate(mem, threads);
        printf("| read | | %.1f | |\n", limit);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            measure(&plugin, types[i].type, types[i].name, rows[k], limit);
    }
    h_close(&plugin);
    free(mem);
    return 0;
}
