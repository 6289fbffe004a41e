/* bench_read.c -- not a test: GB/s that a read loop with several streams per thread reaches. Usage:
 * bench_read [threads [runs]]. */
#include "read_streams.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES (1ull << 30) /* beyond any cache */
enum { MAX_THREADS = 64 };
typedef struct {
    const uint8_t *mem;
    uint64_t bytes;
    uint64_t sum;
} part;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_part(void *p) {
    part *w = p;
    w->sum = read_streams(w->mem, w->bytes);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 2;
    int runs = argc > 2 ? atoi(argv[2]) : 5;
    pthread_t th[MAX_THREADS];
    part w[MAX_THREADS];
    double gbps[64];
    uint8_t *mem = aligned_alloc(2u << 20, BYTES);
    if (n < 1 || n > MAX_THREADS || runs < 1 || runs > 64 || !mem)
        return fprintf(stderr, "usage: bench_read [threads [runs]]\n"), 2;
    /* as few misses of the address cache as can be: the limit, not the habit */
    madvise(mem, BYTES, MADV_HUGEPAGE);
    memset(mem, 1, BYTES);
    for (int r = 0; r < runs; r++) {
        double t0 = now();
        for (int i = 0; i < n; i++) {
            w[i] = (part){mem + BYTES / (uint64_t)n / 64 * 64 * (uint64_t)i,
                          BYTES / (uint64_t)n / 64 * 64, 0};
            if (pthread_create(&th[i], NULL, read_part, &w[i]))
                return 1;
        }
        for (int i = 0; i < n; i++)
            pthread_join(th[i], NULL);
        gbps[r] = (double)BYTES / (now() - t0) * 1e-9;
    }
    qsort(gbps, (size_t)runs, sizeof *gbps, by_value);
    printf("%.2f\n", gbps[runs / 2]);
    free(mem);
    return 0;
}
