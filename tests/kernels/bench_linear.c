/* bench_linear.c -- not a test: GB/s of weights and GFLOP/s of LINEAR per ISA, type, class and
 * rows, beside a read loop with several streams per thread in the same run. Usage: bench_linear
 * [threads [isa [dtype]]]. */
#include "../../plugins/cpu_simd/blas.h"
#include "../../plugins/cpu_simd/nodes.h"
#include "case.h"
#include "read_streams.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define K 2048
#define BIG (384u << 20) /* bytes of weights for one row: beyond any cache */
enum { REPEATS = 5, MAX_THREADS = 64 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    const mnk_linear *kern;
    mnc_weight w;
    float *x;
    float *y;
    uint8_t *xq;
    int64_t r;
    bool blas;
    const uint8_t *mem;
    uint64_t bytes;
    uint64_t sink;
} work;
typedef struct {
    work *w;
    uint32_t i;
    uint32_t n;
    void *panel;
    mnk_pair *pair;
    pthread_barrier_t *at;
    double *took;
} worker;

static void once(worker *t) {
    work *w = t->w;
    if (!w->kern && !w->blas) {
        uint64_t part = w->bytes / t->n / 64 * 64;
        __atomic_add_fetch(&w->sink, read_streams(w->mem + t->i * part, part), __ATOMIC_RELAXED);
        return;
    }
    int64_t units = w->w.rows / 16;
    int64_t lo = units * t->i / t->n * 16;
    int64_t hi = units * (t->i + 1) / t->n * 16;
    int64_t ldq = mnk_quant_bytes(K);
    if (w->blas) {
        mnk_blas_rows(&w->w, w->x, w->r, w->y, w->w.rows, lo, hi);
        return;
    }
    if (w->kern->x_form == MNK_X_A8) {
        const int64_t end = w->r * (t->i + 1) / t->n;
        for (int64_t i = w->r * t->i / t->n; i < end; i++)
            mnk_quantise(w->x + i * K, K, 0, K / 32, w->xq + i * ldq);
        pthread_barrier_wait(t->at);
    }
    const uint8_t *x = w->kern->x_form == MNK_X_A8 ? w->xq : (const uint8_t *)w->x;
    const int64_t ldx = w->kern->x_form == MNK_X_A8 ? ldq : 4 * K;
    for (int64_t i = 0; i < w->r; i++) {
        t->pair[i].x = x + i * ldx;
        t->pair[i].y = w->y + i * w->w.rows;
    }
    mnk_linear_rows(w->kern, &w->w, t->pair, w->r, lo, hi, t->panel);
}
static void *thread_main(void *p) {
    worker *t = p;
    for (int i = 0; i <= REPEATS; i++) { /* the first is not counted */
        pthread_barrier_wait(t->at);
        double t0 = now();
        once(t);
        pthread_barrier_wait(t->at);
        if (t->i == 0)
            t->took[i] = now() - t0;
    }
    return NULL;
}
static int by_value(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

static double seconds(work *w, uint32_t n) { /* median */
    static uint8_t *panels[MAX_THREADS];
    pthread_t th[MAX_THREADS];
    worker t[MAX_THREADS];
    double took[REPEATS + 1];
    pthread_barrier_t at;
    pthread_barrier_init(&at, NULL, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!panels[i])
            panels[i] = aligned_alloc(64, (1u << 20) + 512 * sizeof(mnk_pair));
        t[i] =
            (worker){w, i, n, panels[i], (mnk_pair *)(void *)(panels[i] + (1u << 20)), &at, took};
        pthread_create(&th[i], NULL, thread_main, &t[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(th[i], NULL);
    pthread_barrier_destroy(&at);
    qsort(took + 1, REPEATS, sizeof *took, by_value);
    return took[1 + REPEATS / 2];
}

static void line(const char *name, work *w, uint32_t n, double limit) {
    double s = seconds(w, n);
    double bytes = (double)w->w.row_bytes * (double)w->w.rows;
    double flop = 2.0 * K * (double)w->w.rows * (double)w->r;
    printf("| %-22s | %4lld | %6.1f | %3.0f %% | %7.1f |\n", name, (long long)w->r,
           bytes / s * 1e-9, 100 * bytes / s / limit, flop / s * 1e-9);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int64_t rows_of[] = {1, 2, 4, 20, 512};
    uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    uint32_t n_sets;
    int32_t level = argc > 2 ? mnk_isa_by_name(argv[2], strlen(argv[2])) : mnk_cpu_level();
    uint32_t only = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    if (n < 1 || n > MAX_THREADS || level < 0 || !(mnk_cpu_levels() >> level & 1))
        return fprintf(stderr, "usage: bench_linear [threads [isa [dtype]]]\n"), 2;
    const mnk_set *sets = mnk_sets(&n_sets);
    uint8_t *mem = aligned_alloc(64, BIG);
    work w = {.mem = mem, .bytes = BIG};
    mnk_blas blas = {0};
    const char *why;
    /* as halves, between 2^-14 and 2^-7; whatever the type, no NaN */
    for (uint64_t i = 0; i < BIG; i += 2) {
        uint16_t h = (uint16_t)(0x0400u | ((i * 2654435761u) >> 7 & 0x1bffu));
        memcpy(mem + i, &h, 2);
    }
    w.x = malloc(512 * K * sizeof(float));
    w.xq = aligned_alloc(64, (size_t)(512 * mnk_quant_bytes(K)));
    w.y = malloc(sizeof(float) * 512 * 16384 > BIG / 16 ? sizeof(float) * 512 * 16384 : BIG / 16);
    for (int i = 0; i < 512 * K; i++)
        w.x[i] = (float)(i % 17 - 8) * 0.1f;
    double limit = BIG / seconds(&w, n) * 1e-9 * 1e9;
    printf("threads %u, read loop of %d streams per thread: %.1f GB/s\n\n| kernel | rows | GB/s of "
           "weights | of read "
           "loop | GFLOP/s |\n|---|---|---|---|---|\n",
           n, READ_STREAMS, limit * 1e-9);
    for (uint32_t i = 0; i < n_sets * MNK_N_TYPES; i++) {
        const uint32_t t = i % MNK_N_TYPES;
        const mnk_set *set = &sets[i / MNK_N_TYPES];
        const mnk_linear *kern = mnk_set_linear(set, t);
        const mn_dtype d = case_dtype(t);
        if (!kern || (argc > 2 ? set->isa != level : !mnk_isa_runs(level, set->isa)) ||
            (only && t != only))
            continue;
        w.w = (mnc_weight){
            .dtype = d,
            .data = mem,
            .cols = K,
            .row_bytes = case_plane_bytes(t, K),
        };
        w.w.scale = w.w.bias = (mnc_extra){
            .data = mem,
            .row_bytes = K / d.block_elems * 2,
            .step = 2,
            .dtype = MN_F16,
        };
        if (d.n_planes < 3)
            w.w.bias.data = NULL;
        if (d.n_planes < 2 && t != MN_F8_E4M3)
            w.w.scale.data = NULL;
        if (t == MN_MXFP4_SPLIT) {
            w.w.scale.row_bytes = K / 32;
            w.w.scale.step = 1;
        }
        for (int j = 0; j < 5; j++) {
            w.kern = kern;
            w.blas = false;
            w.r = rows_of[j];
            if (w.r > MNK_FEW_ROWS && !w.kern->gemm)
                continue;
            w.w.rows = 5632;
            if (w.r == 20)
                w.w.rows = 32000;
            if (w.r < 20)
                w.w.rows = (int64_t)(BIG / w.w.row_bytes / 16 * 16);
            if (w.r == 512 && set->isa == MNK_GENERIC)
                w.w.rows = 1024;
            line(w.kern->name, &w, n, limit);
        }
        w.kern = NULL;
        w.blas = true;
        if (t == MN_F32 && mnk_blas_open(&blas, n, &why)) {
            for (int j = 3; j < 5; j++) {
                w.r = rows_of[j];
                line("f32 OpenBLAS", &w, n, limit);
            }
        }
    }
    w.kern = NULL;
    w.blas = false;
    limit = BIG / seconds(&w, n);
    printf("\nread loop again: %.1f GB/s\n", limit * 1e-9);
    return 0;
}
