/* bench.h -- one measurement of minerva bench. */
#ifndef MINERVA_BENCH_H
#define MINERVA_BENCH_H
#include "app.h"
#include <sched.h>

/* n_prompt rows, n_gen tokens, or both one after the other, on batch sequences that have depth
 * tokens before. */
typedef struct {
    uint32_t n_prompt, n_gen, depth, batch;
    double accept;                  /* of --accept; below 0: none */
    const mn_sample_params *sample; /* how tokens are drawn; max_new and stop ids are the test's */
} bench_test;

typedef struct {
    double *samples; /* t/s of each repetition, all sequences together */
    size_t n;
    double avg, stddev; /* stddev: of the sample, 0 for one */
    double ttft_s;      /* median time to the first token: tokenising, depth and prompt, sampling */
    double p50_s, p99_s; /* time per generated token and sequence; NaN if none was generated */
    double others;       /* CPUs that other programs used during the test; < 0: unknown */
    uint64_t n_drafted, n_accepted, n_forced; /* of all repetitions: mn_session_stats */
    uint64_t n_steps;
    double draft_s;
    int busy; /* 1: so many that the rates are too low */
} bench_result;

/* --accept: what the model generates without drafts, by position, and how much of it a draft gets
 * right. The first run of a test records it. */
typedef struct {
    int32_t *ids; /* [cap] */
    size_t n, cap;
    double part;
    int recording;
} bench_truth;
uint32_t bench_guess(void *truth, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k);

/* One warm-up and n_reps repetitions. 0 or the exit code; *out is freed by bench_result_free either
 * way. truth: of --accept, or NULL. */
int bench_measure(app *a, const bench_test *t, size_t n_reps, bench_truth *truth,
                  bench_result *out);
void bench_result_free(bench_result *r);
/* One warm-up, then n_reps repetitions; fn is called with each of their steps. 0 or the exit
 * code. */
int bench_profile(app *a, const bench_test *t, size_t n_reps, mn_profile_fn fn, void *arg);
const char *bench_model(const app *a); /* its name; bench.c */
/* "pp512", "tg128 @ d4096", "pp512+tg128" */
void bench_name(const bench_test *t, char *dst, size_t n);

/* ---- bench_profile.c: the time of each unit, instead of rates -------------------------------- */
/* Runs the test with profiling and prints a table by kind of unit, or (json) an object with
 * every unit; prompt steps and generation steps separately. 0 or the exit code. */
int bench_print_profile(app *a, const bench_test *t, size_t n_reps, int json, out_file *out);

/* ---- bench_peaks.c: read bandwidth and multiply-add rates of this machine -------------------- */
/* Prints a row, or (json) an object, for each with each number of threads; none given: with one and
 * with all. 0 or the exit code. */
int bench_peaks(const arg_ints *threads, int json, out_file *out);
typedef struct {
    double gbps, gflops;
    const char *ops; /* the instruction set that gflops is of; lives as long as the program */
} bench_best;
/* The same measurements: reading, and the fastest instruction set. 0 or the exit code. */
int bench_best_peaks(uint32_t threads, bench_best *best);

/* ---- bench_floor.c: the least time that a device needs for work ------------------------------ */
typedef struct {
    char device[96], source[120]; /* source: where the rates are from, for the user */
    double gbps, gflops;          /* 0: unknown */
} bench_limit;
typedef struct {
    bench_limit *v;
    size_t n;
} bench_limits;
/* Of the session's devices: measured here for processors, else claimed by
 * the device or measured when it was chosen. 0 or the exit code; freed by bench_limits_free either
 * way. */
int bench_limits_get(app *a, bench_limits *out);
void bench_limits_free(bench_limits *l);
/* In ns; 0: unknown. */
double bench_floor(const bench_limits *l, const char *device, double bytes, double flop);

/* ---- busy.c ---------------------------------------------------------------------------------- */
typedef struct {
    cpu_set_t cpus;
    uint32_t n_cpu;
    double work, own, at;
    int ok;
} busy_mark;
void busy_begin(busy_mark *m);
/* How many CPUs other programs used since the mark, on average; < 0: unknown. */
double busy_others(const busy_mark *m);
int busy_matters(const busy_mark *m, double others); /* 1: enough to lower rates */
#endif
