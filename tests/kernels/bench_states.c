/* bench_states.c -- not a test: the time of a step of CONV_STATE, SSM_SCAN and GATED_DELTA of
 * cpu_simd, at the sizes of models, with the bytes of states that it reads and writes. Sequences of
 * one row each have states beyond any cache: then memory is the bound, which the first line
 * measures. Best of many runs. Usage: bench_states [threads [isa]]. */
#include "harness.h"
#include "case_plan.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 64, MEGABYTES = 256 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what memory gives ----------------------------------------------------------------------- */
typedef float four __attribute__((vector_size(16)));
typedef struct {
    four *x;
    size_t n;
} stretch;
static void *update(void *arg) {
    const stretch *s = arg;
    for (size_t i = 0; i < s->n; i++)
        s->x[i] = s->x[i] * 0.5f + 1;
    return NULL;
}
static double memory_rate(int threads) {
    const size_t n = ((size_t)MEGABYTES << 20) / sizeof(four) / (size_t)threads;
    four *x = calloc(n * (size_t)threads, sizeof *x);
    double best = 1e9;
    assert_non_null(x);
    for (int run = 0; run < 8; run++) {
        pthread_t thread[MOST_THREADS];
        stretch s[MOST_THREADS];
        const double t0 = now();
        for (int i = 0; i < threads; i++) {
            s[i] = (stretch){x + (size_t)i * n, n};
            pthread_create(&thread[i], NULL, update, &s[i]);
        }
        for (int i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
        const double s_of_run = now() - t0;
        best = s_of_run < best ? s_of_run : best;
    }
    free(x);
    return 2.0 * (double)n * threads * sizeof(four) / best * 1e-9;
}

/* ---- steps ----------------------------------------------------------------------------------- */
static double step_time(case_plan *p, const op_case *c) {
    double best = 1e9;
    double left = 1;
    while (left > 0) {
        mn_event *ev = NULL;
        mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
        const double t0 = now();
        if (mn_usual_execute(p->on.be, p->contexts[p->at], p->set, c->value, &ev, &err))
            fail_msg("%s", err.msg);
        const double s = now() - t0;
        best = s < best ? s : best;
        left -= s + 1e-5;
    }
    return best;
}

/* Every sequence goes on in the page that it has. */
static void stay_in_place(op_case *c) {
    uint32_t t = 0;
    while (strcmp(c->t[t].name.ptr, "states"))
        t++;
    int32_t *states = c->data[t];
    for (uint64_t i = 0; i < c->bytes[t] / sizeof *states; i += 2)
        states[i] = states[i + 1];
}

static void measure(h_plugin *plugin, uint32_t op, op_shape s, double state_bytes) {
    const case_on on = {.be = plugin->be, .dev = plugin->dev, .queue = plugin->queue};
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    case_plan *p = NULL;
    op_case *c = case_random(op, MN_F32, &s, 1);
    stay_in_place(c);
    if (case_open(&on, c, MN_PRECISION_EXACT, &p, &err) || case_step(p, c, &err))
        fail_msg("%s", err.msg);
    const double best = step_time(p, c);
    const double bytes = 2 * state_bytes * (double)s.n_seqs;
    printf("| %s | %d | %d | %.1f | %.1f | %.2f |\n", case_op_name(op), (int)s.n_seqs,
           (int)(s.rows / s.n_seqs), best * 1e6, bytes / best * 1e-9, best * 1e6 / (double)s.rows);
    case_close(p);
    case_free(c);
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    static const int64_t steps[][2] = {{1, 1}, {1, 16}, {1, 256}, {60, 1}}; /* sequences, rows */
    h_plugin plugin;
    if (threads < 1 || threads > MOST_THREADS)
        return 2;
    h_host_workers((uint32_t)threads);
    if (argc > 2)
        h_host_option("isa", argv[2]);
    if (!h_open(&plugin, "cpu_simd"))
        return 2;
    printf("memory: %.1f GB/s read and written by %d threads\n\n"
           "| operation | sequences | rows of each | us | GB/s of states | us a row |\n"
           "|---|---|---|---|---|---|\n",
           memory_rate(threads), threads);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const op_shape of = {.rows = steps[i][0] * steps[i][1], .n_seqs = steps[i][0]};
        op_shape conv = of; /* Qwen3-Next */
        conv.k = 8192;
        conv.n = 4;
        op_shape scan = of; /* Granite 4 H Small */
        scan.n_head = 128;
        scan.n_head_kv = 1;
        scan.dim = 64;
        scan.n = 128;
        scan.variant = 1;
        op_shape delta = of; /* Qwen3-Next */
        delta.n_head = 32;
        delta.n_head_kv = 16;
        delta.dim = 128;
        delta.dim_v = 128;
        delta.variant = 2;
        op_shape each = delta; /* Kimi Linear */
        each.n_head_kv = 32;
        each.variant = 6;
        measure(&plugin, MN_OP_CONV_STATE, conv, 8192 * 3 * 4.0);
        measure(&plugin, MN_OP_SSM_SCAN, scan, 128 * 64 * 128 * 4.0);
        measure(&plugin, MN_OP_GATED_DELTA, delta, 32 * 128 * 128 * 4.0);
        measure(&plugin, MN_OP_GATED_DELTA, each, 32 * 128 * 128 * 4.0);
    }
    h_close(&plugin);
    return 0;
}
