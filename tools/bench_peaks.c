/* bench_peaks.c -- minerva bench --peaks: what memory and cores of this machine can do, the limits
 * that rates are compared with.
 *
 * Each number is the sum over the threads, which run at the same time, of the median of many rounds
 * of a tenth of a millisecond: shorter than a time slice, so that other programs on the same cores
 * show in few rounds. Instruction sets are chosen by name here and looked for at run time. */
#include "bench.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROUNDS = 400, LINE = 64, STREAMS = 8, CHAINS = 12 };
#define MOST_BYTES (512ull << 20) /* beyond any cache */
#define ROUND_BYTES (2ull << 20)
#define ROUND_STEPS 4000ull

/* ---- work ----------------------------------------------------------------------------------- */
/* A word of each line of [p, p + ROUND_BYTES), in streams side by side as weight rows are read. */
static uint64_t read_round(const uint8_t *p) {
    const uint64_t part = ROUND_BYTES / STREAMS;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < part; i += LINE)
        for (uint64_t s = 0; s < STREAMS; s++) {
            const uint8_t *at = p + s * part + i;
            uint64_t word;
            memcpy(&word, at, sizeof word);
            __builtin_prefetch(at + 1024);
            sum += word;
        }
    return sum;
}

/* Steps of CHAINS multiply-adds that do not wait for each other. STEP: acc = acc + x * y. */
#define CHAINED(name, attribute, type, constraint, zero, STEP)                                     \
    attribute static void name(uint64_t steps) {                                                   \
        type acc[CHAINS];                                                                          \
        type x = zero;                                                                             \
        type y = zero;                                                                             \
        for (int c = 0; c < CHAINS; c++)                                                           \
            acc[c] = zero;                                                                         \
        for (uint64_t i = 0; i < steps; i++) {                                                     \
            __asm__ volatile("" : "+" constraint(x), "+" constraint(y));                           \
            _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) STEP(acc[c], x, y);          \
        }                                                                                          \
        for (int c = 0; c < CHAINS; c++)                                                           \
            __asm__ volatile("" : : constraint(acc[c]));                                           \
    }
#define TARGET(isa) __attribute__((target(isa)))

typedef float four_floats __attribute__((vector_size(16)));
#define STEP_ANY(acc, x, y) acc += (x) * (y)
#if defined(__x86_64__)
CHAINED(any_f32, , four_floats, "x", (four_floats){0}, STEP_ANY)
#define STEP_AVX2(acc, x, y) acc = _mm256_fmadd_ps(x, y, acc)
CHAINED(avx2_f32, TARGET("avx2,fma"), __m256, "x", _mm256_setzero_ps(), STEP_AVX2)
#define STEP_AVX512(acc, x, y) acc = _mm512_fmadd_ps(x, y, acc)
CHAINED(avx512_f32, TARGET("avx512f"), __m512, "v", _mm512_setzero_ps(), STEP_AVX512)
#define STEP_VNNI(acc, x, y) acc = _mm512_dpbusd_epi32(acc, x, y)
CHAINED(vnni_i8, TARGET("avx512f,avx512vnni"), __m512i, "v", _mm512_setzero_si512(), STEP_VNNI)

static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") != 0;
}
static int has_vnni(void) {
    return __builtin_cpu_supports("avx512vnni") != 0;
}
#elif defined(__aarch64__)
CHAINED(any_f32, , four_floats, "w", (four_floats){0}, STEP_ANY)
#else
CHAINED(any_f32, , four_floats, "m", (four_floats){0}, STEP_ANY)
#endif

/* One line of the report; run NULL: reading. */
typedef struct {
    const char *name, *unit;
    double per_step; /* operations, a multiply-add being two */
    void (*run)(uint64_t steps);
    int (*has)(void); /* NULL: always */
} peak;
static const peak peaks[] = {
    {"read", "GB/s", 0, NULL, NULL},
    {"f32, 16 bytes", "GFLOP/s", 2.0 * 4 * CHAINS, any_f32, NULL},
#if defined(__x86_64__)
    {"f32 avx2", "GFLOP/s", 2.0 * 8 * CHAINS, avx2_f32, has_avx2},
    {"f32 avx512", "GFLOP/s", 2.0 * 16 * CHAINS, avx512_f32, has_avx512},
    {"i8 avx512vnni", "GOP/s", 2.0 * 64 * CHAINS, vnni_i8, has_vnni},
#endif
};

/* ---- threads -------------------------------------------------------------------------------- */
typedef struct {
    const peak *what;
    pthread_t thread;
    uint8_t *mem; /* of reading: this thread's part */
    uint64_t bytes;
    double rate;
    uint64_t sum; /* of what was read, so that it is */
} worker;

static int bench_peaks_by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In 1e9 per second. */
static double one_round(worker *w, uint64_t round) {
    double amount = (double)ROUND_BYTES;
    const double begin = seconds();
    if (w->what->run) {
        amount = w->what->per_step * (double)ROUND_STEPS;
        w->what->run(ROUND_STEPS);
    } else {
        w->sum += read_round(w->mem + round * ROUND_BYTES);
    }
    return amount / (seconds() - begin) / 1e9;
}

static void *run_worker(void *arg) {
    worker *w = arg;
    double rates[ROUNDS];
    uint64_t n = ROUNDS;
    if (!w->what->run) {
        memset(w->mem, 1, w->bytes); /* by the thread that reads it */
        n = w->bytes / ROUND_BYTES;
    }
    if (n > ROUNDS)
        n = ROUNDS;
    for (uint64_t i = 0; i < n; i++)
        rates[i] = one_round(w, i);
    qsort(rates, n, sizeof *rates, bench_peaks_by_value);
    w->rate = n ? rates[n / 2] : 0;
    return NULL;
}

/* The sum of n threads; below 0: they cannot be had. mem: bytes that all of them read together. */
static double bench_peaks_measure(const peak *what, uint32_t n, uint8_t *mem, uint64_t bytes) {
    worker *workers = calloc(n, sizeof *workers);
    uint32_t started = 0;
    double sum = 0;
    if (!workers)
        return -1;
    const uint64_t share = bytes / n / ROUND_BYTES * ROUND_BYTES;
    for (; started < n; started++) {
        worker *w = &workers[started];
        *w = (worker){.what = what, .mem = mem + started * share, .bytes = share};
        if (pthread_create(&w->thread, NULL, run_worker, w))
            break;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].rate;
    }
    free(workers);
    return started == n ? sum : -1;
}

/* ---- the report ----------------------------------------------------------------------------- */
static void json_peak(const peak *p, uint32_t threads, double rate, out_file *out) {
    json_out j = out_json(out);
    json_open(&j, '{');
    json_put_z(&j, "peak", p->name);
    json_put_uint(&j, "threads", threads);
    json_put_num(&j, "rate", rate);
    json_put_z(&j, "unit", p->unit);
    json_close(&j);
    json_line(&j);
}

/* As measure(), in *rate. 0 or the exit code. */
static int bench_peaks_take(const peak *p, uint32_t threads, uint8_t *mem, uint64_t bytes,
                            double *rate) {
    *rate = bench_peaks_measure(p, threads, mem, bytes);
    if (*rate < 0)
        return complain(EXIT_FAILED, "peaks: %u threads cannot be started; use fewer (-t)",
                        threads);
    return 0;
}

/* All peaks with one number of threads. 0 or the exit code. */
static int all_peaks(uint32_t threads, uint8_t *mem, uint64_t bytes, table *rows, out_file *out) {
    for (size_t i = 0; i < MN_COUNT(peaks); i++) {
        const peak *p = &peaks[i];
        if (p->has && !p->has())
            continue;
        double rate;
        const int code = bench_peaks_take(p, threads, mem, bytes, &rate);
        if (code)
            return code;
        if (!rows) {
            json_peak(p, threads, rate, out);
            continue;
        }
        table_cell(rows, "%u", threads);
        table_cell(rows, "%s", p->name);
        table_cell(rows, "%.1f", rate);
        table_cell(rows, "%s", p->unit);
    }
    return 0;
}

/* What all threads together read: a sixteenth of the machine's memory at most. */
static uint64_t bench_peaks_read_bytes(void) {
    const uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
    const uint64_t part = pages * (uint64_t)sysconf(_SC_PAGESIZE) / 16;
    return part < MOST_BYTES ? part : MOST_BYTES;
}

/* NULL: out of memory. Freed by munmap. */
static uint8_t *read_memory(uint64_t bytes) {
    uint8_t *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return NULL;
    madvise(mem, bytes, MADV_HUGEPAGE);
    return mem;
}

int bench_best_peaks(uint32_t threads, bench_best *best) {
    const uint64_t bytes = bench_peaks_read_bytes();
    uint8_t *mem = read_memory(bytes);
    int code = 0;
    *best = (bench_best){.ops = ""};
    if (!mem)
        return no_memory();
    for (size_t i = 0; i < MN_COUNT(peaks) && code == 0; i++) {
        const peak *p = &peaks[i];
        double rate;
        if (p->has && !p->has())
            continue;
        code = bench_peaks_take(p, threads, mem, bytes, &rate);
        if (code)
            break;
        if (!p->run) {
            best->gbps = rate;
        } else if (rate > best->gflops) {
            best->gflops = rate;
            best->ops = p->name;
        }
    }
    munmap(mem, bytes);
    return code;
}

int bench_peaks(const arg_ints *threads, int json, out_file *out) {
    static const char *const columns[] = {"threads", "peak", "rate", "unit", NULL};
    const uint64_t bytes = bench_peaks_read_bytes();
    cpu_set_t cpus;
    table rows;
    int64_t usual[2] = {1, 1};
    size_t n = 1;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        usual[1] = CPU_COUNT(&cpus);
    if (usual[1] > 1)
        n = 2;
    const int64_t *list = threads->given ? threads->v : usual;
    if (threads->given)
        n = threads->n;
    uint8_t *mem = read_memory(bytes);
    if (!mem)
        return no_memory();
    table_begin(&rows, columns, 0x5);
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++)
        code = all_peaks(list[i] ? (uint32_t)list[i] : (uint32_t)usual[1], mem, bytes,
                         json ? NULL : &rows, out);
    if (!json)
        table_print(&rows, TABLE_MARKDOWN, out);
    table_free(&rows);
    munmap(mem, bytes);
    out_flush(out);
    return code;
}
