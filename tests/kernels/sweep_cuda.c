/* sweep_cuda.c -- the time of products of the CUDA plugin by rows, from 1 to 512, for the types and
 * shapes of models: no number of rows may cost more than its parts do. For each row of the table
 * the times are measured through mn.profile/1 (medians), and n rows break the rule where
 *   cost(n) > 1.05 min over a of (cost(a) + cost(n - a)), or
 *   n / cost(n) < 0.95 of the best rate of fewer rows.
 * Only numbers of rows in `counts` are measured; what lies between costs at most what the next one
 * does. Prints times and what breaks a rule; the exit code is 1 where a sum of parts is cheaper.
 *   sweep_cuda [WORD]    only rows whose name contains the word. Needs a GPU.
 *   sweep_cuda types     one row of two shapes by every packed form: time, bits of an element as
 *                        the device keeps it, rate of these bytes, and its share of q4_0's rate or,
 *                        of more than 5 bits, q8_0's. */
#include "case_plan.h"
#include "harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 7, MOST_UNITS = 32, MOST_ROWS = 512 };
static const int counts[] = {1,   2,   3,   4,   5,   8,   12,  16,  20,  24,  28,  32,  40,
                             48,  56,  64,  65,  72,  80,  96,  97,  112, 128, 129, 144, 160,
                             192, 193, 224, 256, 257, 320, 321, 384, 385, 448, 512};
enum { N_COUNTS = sizeof counts / sizeof *counts };
/* What events resolve, in us. */
static const double GRAIN = 0.6;

typedef struct {
    const char *name;
    uint32_t dtype;
    int64_t n, k, n_expert, n_used;
} row;

static const row rows[] = {
    {"q8_0 gpt-oss output", MN_Q8_0, 201088, 2880, 0, 0},
    {"q8_0 gpt-oss q", MN_Q8_0, 4096, 2880, 0, 0},
    {"q8_0 gpt-oss o", MN_Q8_0, 2880, 4096, 0, 0},
    {"q8_0 gpt-oss k", MN_Q8_0, 512, 2880, 0, 0},
    {"mxfp4 gpt-oss experts", MN_MXFP4, 2880, 2880, 32, 4},
    {"mxfp4 gpt-oss four experts", MN_MXFP4, 2880, 2880, 4, 4},
    {"q4_k mistral up", MN_Q4_K, 14336, 4096, 0, 0},
    {"q4_k mistral down", MN_Q4_K, 4096, 14336, 0, 0},
    {"q4_k mistral q", MN_Q4_K, 4096, 4096, 0, 0},
    {"q4_k qwen3.6 up", MN_Q4_K, 17408, 5120, 0, 0},
    {"q4_k qwen3.6 down", MN_Q4_K, 5120, 17408, 0, 0},
    {"q6_k mistral output", MN_Q6_K, 32000, 4096, 0, 0},
    {"q4_k tinyllama up", MN_Q4_K, 5632, 2048, 0, 0},
    {"q4_k tinyllama down", MN_Q4_K, 2048, 5632, 0, 0},
    {"q4_k tinyllama q", MN_Q4_K, 2048, 2048, 0, 0},
    {"q4_0 tinyllama up", MN_Q4_0, 5632, 2048, 0, 0},
    {"q5_k tinyllama up", MN_Q5_K, 5632, 2048, 0, 0},
    {"q6_k tinyllama output", MN_Q6_K, 32000, 2048, 0, 0},
    {"q8_0 tinyllama up", MN_Q8_0, 5632, 2048, 0, 0},
    {"q8_0 tinyllama output", MN_Q8_0, 32000, 2048, 0, 0},
    {"bf16 tinyllama up", MN_BF16, 5632, 2048, 0, 0},
    {"f16 tinyllama up", MN_F16, 5632, 2048, 0, 0},
    {"f16 tinyllama output", MN_F16, 32000, 2048, 0, 0},
};

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Copied over each other between two steps, so that each finds its weights in memory, as in a
 * model, and not in the cache of the one before. */
enum { FLUSH_BYTES = 128 << 20 };
static mn_buffer *flush[2];

static void flush_cache(const h_plugin *p) {
    mn_event *done = NULL;
    if (flush[1] && !p->be->copy(p->queue, flush[0], 0, flush[1], 0, FLUSH_BYTES, &done, NULL))
        p->be->wait(done, UINT64_MAX, NULL);
    p->be->event_free(done);
}

/* A step's time in us with the case's values, a median; below 0: it does not run. bytes: that it
 * reads and writes. */
static double time_step(const h_plugin *p, case_plan *plan, const int64_t *values, double *bytes) {
    const mn_profile *profile = p->api->query(p->api->self, MN_PROFILE_ID);
    mn_profile_unit units[MOST_UNITS];
    double took[REPEATS];
    mn_error err = {.size = sizeof err};
    for (int i = 0; i < REPEATS; i++) {
        uint32_t n = MOST_UNITS;
        flush_cache(p);
        if (mn_usual_profile(profile, plan->contexts[0], 0, values, units, sizeof *units, &n, &err))
            return -1;
        took[i] = 0;
        *bytes = 0;
        for (uint32_t u = 0; u < n && u < MOST_UNITS; u++) {
            took[i] += (double)units[u].time_ns / 1000;
            *bytes += (double)units[u].bytes;
        }
    }
    qsort(took, REPEATS, sizeof *took, by_value);
    return took[REPEATS / 2];
}

/* us: [N_COUNTS]; how many numbers of rows cost more than parts of them. */
static int judge(const double *us) {
    int broken = 0;
    double best_rate = 0;
    for (int i = 0; i < N_COUNTS; i++) {
        double parts = 1e30;
        for (int a = 0; a < i; a++)
            for (int b = a; b < i; b++)
                if (counts[a] + counts[b] >= counts[i] && us[a] + us[b] < parts)
                    parts = us[a] + us[b];
        const double rate = counts[i] / us[i];
        if (us[i] > 1.05 * parts + GRAIN) {
            printf("  %d rows: %.1f us, parts %.1f us\n", counts[i], us[i], parts);
            broken++;
        }
        if (counts[i] / (us[i] - GRAIN) < 0.95 * best_rate)
            printf("  %d rows: rate %.2f of the best of fewer rows\n", counts[i], rate / best_rate);
        best_rate = rate > best_rate ? rate : best_rate;
    }
    return broken;
}

static int run(const h_plugin *p, const row *r) {
    const case_on on = {.be = p->be, .dev = p->dev, .queue = p->queue};
    const uint32_t op = r->n_expert ? MN_OP_MOE_LINEAR : MN_OP_LINEAR;
    const op_shape s = {
        .rows = MOST_ROWS, .n = r->n, .k = r->k, .n_expert = r->n_expert, .n_used = r->n_used};
    case_plan *plan = NULL;
    mn_error err = {.size = sizeof err};
    double us[N_COUNTS];
    double bytes;
    op_case *c = case_random(op, r->dtype, &s, 3);
    bool ran = c && !case_open(&on, c, MN_PRECISION_A16, &plan, &err);
    ran = ran && !case_step(plan, c, &err);
    printf("%s:", r->name);
    for (int i = 0; i < N_COUNTS && ran; i++) {
        int64_t values[CASE_SYMBOLS];
        memcpy(values, c->value, sizeof values);
        values[0] = counts[i];
        us[i] = time_step(p, plan, values, &bytes);
        ran = us[i] >= 0;
        printf(" %d %.1f", counts[i], us[i]);
    }
    printf("\n");
    const int broken = ran ? judge(us) : 1;
    if (!ran)
        printf("FAIL  %s: %s\n", r->name, err.msg);
    fflush(stdout);
    case_close(plan);
    case_free(c);
    return broken;
}

/* ---- types ----------------------------------------------------------------------------------- */
/* One of each form in which packed weights lie on the device. */
static const uint32_t packed_types[] = {
    MN_Q4_0,    MN_Q8_0,    MN_Q2_K,    MN_Q3_K,    MN_Q4_K,       MN_Q5_K,    MN_Q6_K,
    MN_MXFP4,   MN_MLX4_64, MN_MLX8_64, MN_F8_E4M3, MN_F8_E4M3_32, MN_F8_E5M2, MN_NVFP4,
    MN_IQ2_XS,  MN_IQ3_XXS, MN_IQ3_S,   MN_IQ1_S,   MN_IQ1_M,      MN_TQ2_0,   MN_MLX2_32,
    MN_MLX2_64, MN_MLX3_32, MN_MLX3_64, MN_MLX5_64, MN_MLX6_32,    MN_MLX6_64};

/* One row of a matrix of the type: us and bytes; false: it does not run. */
static bool time_type(const h_plugin *p, uint32_t dtype, const op_shape *s, double *us,
                      double *bytes) {
    const case_on on = {.be = p->be, .dev = p->dev, .queue = p->queue};
    case_plan *plan = NULL;
    mn_error err = {.size = sizeof err};
    op_case *c = case_random(MN_OP_LINEAR, dtype, s, 3);
    bool ran = c && !case_open(&on, c, MN_PRECISION_A16, &plan, &err);
    ran = ran && !case_step(plan, c, &err);
    if (ran)
        *us = time_step(p, plan, c->value, bytes);
    else
        printf("FAIL  %s: %s\n", mn_dtype_name(dtype), err.msg);
    case_close(plan);
    case_free(c);
    return ran && *us > 0;
}

static int sweep_types(const h_plugin *p, int64_t n, int64_t k) {
    const op_shape s = {.rows = 1, .n = n, .k = k};
    double rate[2] = {0, 0}; /* of q4_0, of q8_0 */
    int failed = 0;
    printf("one row, %lld x %lld\n", (long long)n, (long long)k);
    for (size_t i = 0; i < sizeof packed_types / sizeof *packed_types; i++) {
        double us;
        double bytes;
        if (!time_type(p, packed_types[i], &s, &us, &bytes)) {
            failed++;
            continue;
        }
        const double gbps = bytes / us / 1e3;
        const double bits = bytes * 8 / (double)(n * k);
        if (i < 2)
            rate[i] = gbps;
        printf("  %-12s %7.1f us %6.2f bits %6.0f GB/s %5.2f\n", mn_dtype_name(packed_types[i]), us,
               bits, gbps, gbps / rate[bits > 5]);
    }
    fflush(stdout);
    return failed;
}

int main(int argc, char **argv) {
    h_plugin p;
    int broken = 0;
    if (!h_open(&p, "cuda"))
        return 77;
    for (int i = 0; i < 2; i++)
        if (mn_usual_alloc(p.be, p.dev, FLUSH_BYTES, MN_MEM_DEVICE, &flush[i], NULL))
            flush[i] = NULL;
    const bool types = argc > 1 && !strcmp(argv[1], "types");
    if (types)
        broken = sweep_types(&p, 5632, 2048) + sweep_types(&p, 14336, 4096);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !types; i++)
        if (argc < 2 || strstr(rows[i].name, argv[1]))
            broken += run(&p, &rows[i]);
    printf("%d %s\n", broken,
           types ? "types failed" : "numbers of rows cost more than parts of them");
    for (int i = 0; i < 2; i++)
        p.be->buffer_free(flush[i]);
    h_close(&p);
    return broken != 0;
}
