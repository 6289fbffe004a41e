/* bench_cuda.c -- the time of each kernel of the CUDA plugin through mn.profile/1, and the rate
 * that it gives: GB/s where memory is the limit, TFLOP/s where products are, and the share of that
 * limit. A row names the kernels that its step runs; tests/dev/cuda_kernels.py holds the names
 * against the sources. Times are from event to event, so that 3 us are the least there is.
 *   bench_cuda [WORD]    only rows whose kernels contain the word. Needs a GPU. */
#include "case_plan.h"
#include "harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 11, MOST_UNITS = 32 };

typedef struct {
    const char *kernels;
    uint32_t op, dtype, precision;
    op_shape s;
} row;

#define EXACT MN_PRECISION_EXACT
#define A16 MN_PRECISION_A16
#define ROWS(n) .rows = n, .k = 4096
#define HEADS .n_head = 32, .n_head_kv = 8, .dim = 128
#define CONV .k = 8192, .n = 4
#define DELTA .n_head = 32, .n_head_kv = 16, .dim = 128, .dim_v = 128, .variant = 2
#define SCAN .n_head = 128, .n_head_kv = 1, .dim = 64, .n = 128, .variant = 1
#define MANY .rows = 512, .n_expert = 32, .n_used = 4, .k = 1024, .n = 512

static const row rows[] = {
    {"one_row", MN_OP_LINEAR, MN_F16, A16, {ROWS(1), .n = 16384}},
    {"one_row", MN_OP_LINEAR, MN_Q8_0, A16, {ROWS(1), .n = 16384}},
    {"one_row", MN_OP_LINEAR, MN_Q4_0, A16, {ROWS(1), .n = 16384}},
    {"one_row", MN_OP_LINEAR, MN_Q4_K, A16, {ROWS(1), .n = 16384}},
    {"one_row", MN_OP_LINEAR, MN_MXFP4, A16, {ROWS(1), .n = 16384}},
    {"gemv", MN_OP_LINEAR, MN_F16, EXACT, {ROWS(4), .n = 16384}},
    {"to_half_rows few_sm90", MN_OP_LINEAR, MN_F16, A16, {ROWS(16), .n = 16384}},
    {"to_half_rows few_sm90", MN_OP_LINEAR, MN_Q4_K, A16, {ROWS(16), .n = 16384}},
    {"score_rows", MN_OP_LINEAR, MN_F32, A16, {ROWS(512), .n = 32}},
    {"to_half_rows gemm_blocks", MN_OP_LINEAR, MN_F16, A16, {ROWS(512), .n = 8192}},
    {"to_half_rows expand_rows gemm_blocks", MN_OP_LINEAR, MN_Q4_K, A16, {ROWS(512), .n = 8192}},
    {"rms_rows", MN_OP_RMS_NORM, MN_F32, EXACT, {ROWS(2048)}},
    {"layer_rows", MN_OP_LAYER_NORM, MN_F32, EXACT, {ROWS(2048)}},
    {"embed_state embed_rows", MN_OP_EMBED, MN_F16, EXACT, {ROWS(512), .n = 32000}},
    {"rope_rows", MN_OP_ROPE, 0, EXACT, {.rows = 2048, HEADS}},
    {"store_rows attend", MN_OP_ATTENTION, 0, EXACT, {.rows = 1, HEADS, .past = 8191}},
    {"store_rows attend",
     MN_OP_ATTENTION,
     0,
     A16,
     {.rows = 16, HEADS, .past = 4095, .n_seqs = 16, .kv_dtype = MN_F16}},
    {"store_rows attend_wide",
     MN_OP_ATTENTION,
     0,
     A16,
     {.rows = 1, .n_head = 24, .n_head_kv = 4, .dim = 256, .past = 32767, .kv_dtype = MN_F16}},
    {"store_heads attend",
     MN_OP_ATTENTION,
     0,
     A16,
     {.rows = 16, HEADS, .past = 4095, .n_seqs = 16, .kv_dtype = MN_Q8_0}},
    {"store_rows attend_prompt",
     MN_OP_ATTENTION,
     0,
     A16,
     {.rows = 2048, HEADS, .kv_dtype = MN_F16}},
    {"elementwise", MN_OP_GLU, 0, EXACT, {ROWS(2048)}},
    {"gather_rows", MN_OP_GATHER_ROWS, 0, EXACT, {ROWS(2048)}},
    {"sample_rows", MN_OP_SAMPLE, 0, EXACT, {.rows = 16, .n = 128000}},
    {"sample_rows", MN_OP_SAMPLE, 0, EXACT, {.rows = 20, .n = 201088}},
    {"sample_rows", MN_OP_SAMPLE, 0, EXACT, {.rows = 20, .n = 201088, .variant = 16}},
    {"route_few", MN_OP_MOE_ROUTE, 0, EXACT, {.rows = 8, .n_expert = 32, .n_used = 4}},
    {"route_few", MN_OP_MOE_ROUTE, 0, EXACT, {.rows = 1, .n_expert = 512, .n_used = 10}},
    {"route_rows", MN_OP_MOE_ROUTE, 0, EXACT, {.rows = 2048, .n_expert = 128, .n_used = 8}},
    {"sort_all sort_rows expand_rows gemm_blocks unsort_rows",
     MN_OP_MOE_LINEAR,
     MN_MXFP4,
     A16,
     {MANY}},
    {"combine_rows", MN_OP_MOE_COMBINE, 0, EXACT, {MANY}},
    {"conv_rows", MN_OP_CONV_STATE, MN_F32, EXACT, {.rows = 1, .n_seqs = 1, CONV}},
    {"conv_rows", MN_OP_CONV_STATE, MN_F32, EXACT, {.rows = 4096, .n_seqs = 1, CONV}},
    {"scan_rows", MN_OP_GATED_DELTA, MN_F32, EXACT, {.rows = 1, .n_seqs = 1, DELTA}},
    {"scan_rows", MN_OP_GATED_DELTA, MN_F32, EXACT, {.rows = 20, .n_seqs = 20, DELTA}},
    {"scan_rows", MN_OP_GATED_DELTA, MN_F32, EXACT, {.rows = 512, .n_seqs = 1, DELTA}},
    {"scan_rows", MN_OP_GATED_DELTA, MN_F32, EXACT, {.rows = 4096, .n_seqs = 1, DELTA}},
    {"scan_rows", MN_OP_SSM_SCAN, MN_F32, EXACT, {.rows = 20, .n_seqs = 20, SCAN}},
    {"scan_rows", MN_OP_SSM_SCAN, MN_F32, EXACT, {.rows = 4096, .n_seqs = 1, SCAN}},
};

static double peak_gbps;
static double peak_tflops;

/* What a profile does not count of the cache: bytes read once by each sequence, products of all. */
static void count_cache(const row *r, double *bytes, double *flop) {
    const op_shape *s = &r->s;
    if (r->op != MN_OP_ATTENTION)
        return;
    const int64_t n_seqs = s->n_seqs ? s->n_seqs : 1;
    const int64_t per = s->rows / n_seqs;
    const int64_t length = s->past + per;
    double of_element = 4;
    if (s->kv_dtype == MN_F16)
        of_element = 2;
    if (s->kv_dtype == MN_Q8_0)
        of_element = 34.0 / 32;
    const int64_t kept = n_seqs * length * s->n_head_kv * s->dim;
    const double seen = (double)s->past + 0.5 * (double)per;
    const int64_t of_row = s->n_head * s->dim;
    *bytes += 2 * of_element * (double)kept;
    *flop += 4 * (double)(s->rows * of_row) * seen;
}

/* Bytes of states: each sequence's is read and written once. */
static double state_bytes(const row *r) {
    const op_shape *s = &r->s;
    int64_t numbers = 0;
    if (r->op == MN_OP_CONV_STATE)
        numbers = s->k * (s->n - 1);
    if (r->op == MN_OP_SSM_SCAN)
        numbers = s->n_head * s->dim * s->n;
    if (r->op == MN_OP_GATED_DELTA)
        numbers = s->n_head * s->dim * s->dim_v;
    return 8 * (double)(numbers * s->n_seqs);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The step's time in us, a median; its bytes and operations. False: it does not run here. */
static bool time_step(const h_plugin *p, case_plan *plan, op_case *c, double *us, double *bytes,
                      double *flop) {
    const mn_profile *profile = p->api->query(p->api->self, MN_PROFILE_ID);
    mn_profile_unit units[MOST_UNITS];
    double took[REPEATS];
    mn_error err = {.size = sizeof err};
    if (case_step(plan, c, &err))
        return false;
    for (int i = 0; i < REPEATS; i++) {
        uint32_t n = MOST_UNITS;
        if (mn_usual_profile(profile, plan->contexts[0], 0, c->value, units, sizeof *units, &n,
                             &err))
            return false;
        took[i] = *bytes = *flop = 0;
        for (uint32_t u = 0; u < n && u < MOST_UNITS; u++) {
            took[i] += (double)units[u].time_ns / 1000;
            *bytes += (double)units[u].bytes;
            *flop += (double)units[u].flop;
        }
    }
    qsort(took, REPEATS, sizeof *took, by_value);
    *us = took[REPEATS / 2];
    return true;
}

static void print(const row *r, double us, double bytes, double flop) {
    const double gbps = bytes / us / 1e3;
    const double tflops = flop / us / 1e6;
    const double of_memory = gbps / peak_gbps;
    const double of_products = tflops / peak_tflops;
    char what[64];
    snprintf(what, sizeof what, "%s, %lld rows%s", case_op_name(r->op), (long long)r->s.rows,
             r->precision == EXACT ? ", exact" : "");
    printf("%-54s %-30s %9.1f us", r->kernels, what, us);
    if (of_products > of_memory)
        printf(" %8.1f TFLOP/s %5.1f %%\n", tflops, 100 * of_products);
    else
        printf(" %8.0f GB/s    %5.1f %%\n", gbps, 100 * of_memory);
}

static bool run(const h_plugin *p, const row *r) {
    const case_on on = {.be = p->be, .dev = p->dev, .queue = p->queue};
    case_plan *plan = NULL;
    mn_error err = {.size = sizeof err};
    double us;
    double bytes;
    double flop;
    op_shape s = r->s;
    s.page_tokens = 64;
    op_case *c = case_random(r->op, r->dtype, &s, 3);
    bool ran = c && !case_open(&on, c, r->precision, &plan, &err);
    ran = ran && time_step(p, plan, c, &us, &bytes, &flop);
    if (ran) {
        count_cache(r, &bytes, &flop);
        bytes += state_bytes(r);
        print(r, us, bytes, flop);
    } else
        printf("FAIL  %s: %s\n", r->kernels, err.msg);
    case_close(plan);
    case_free(c);
    return ran;
}

int main(int argc, char **argv) {
    h_plugin p;
    mn_device_info info = {.size = sizeof info};
    mn_error err = {.size = sizeof err};
    int failed = 0;
    if (!h_open(&p, "cuda"))
        return 77;
    if (p.be->device_info(p.api->self, 0, &info, &err))
        return 1;
    peak_gbps = info.mem_gbps;
    peak_tflops = info.fp16_tflops;
    printf("%s: %.0f GB/s, %.0f TFLOP/s in f16 are the limits\n", info.name, peak_gbps,
           peak_tflops);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (argc < 2 || strstr(rows[i].kernels, argv[1]))
            failed += !run(&p, &rows[i]);
    h_close(&p);
    return failed != 0;
}
