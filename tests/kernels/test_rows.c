/* test_rows.c -- every row of cpu_simd's table that this CPU can run against double arithmetic.
 * Stands alone: links the row units and the drivers, the oracle's dequantisation, not cpu_host (its
 * few helpers are here) and no plugin, so that it also runs cross-built. */
#include "test_rows.h"
#include "../../plugins/cpu_simd/plan.h"
#include "case.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int n_failed, n_checks;
bool rows_quick; /* under an emulator: fewer shapes */
bool rows_once;  /* under sanitizers: each length of a row, but not with each number of rows */
void rows_check(bool ok, const char *what, const char *row, int64_t k, int64_t n, int64_t r,
                double got) {
    n_checks++;
    if (ok)
        return;
    n_failed++;
    printf("FAILED %s: %s K %lld N %lld R %lld: %g\n", what, row, (long long)k, (long long)n,
           (long long)r, got);
}

/* ---- the helpers of cpu_host, over threads of this program ----------------------------------- */
void mnc_range(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    int64_t units = (total + grain - 1) / grain;
    *lo = units * w->i / w->n * grain;
    *hi = units * (w->i + 1) / w->n * grain;
    if (*hi > total)
        *hi = total;
    if (*lo > total)
        *lo = total;
}
void mnc_range_guided(const mnc_worker *w, int64_t total, int64_t grain, int64_t *lo, int64_t *hi) {
    mnc_range(w, total, grain, lo, hi);
}
mnc_spans mnc_range_cells(const mnc_worker *w, int64_t rows, int64_t cols, int64_t grain) {
    mnc_spans s = {.n = 1};
    mnc_range(w, rows * cols, grain, &s.lo, &s.hi);
    return s;
}
void mnc_range_rows(const mnc_worker *w, int64_t rows, int64_t *lo, int64_t *hi) {
    mnc_range(w, rows, 1, lo, hi);
}
void mnc_range_units(const mnc_worker *w, int64_t n, int64_t *lo, int64_t *hi) {
    (void)w;
    *lo = 0;
    *hi = n;
}
int64_t mnc_attr_int(const mnc_call *c, uint32_t i) {
    return i < c->n_attr ? (int64_t)c->attr[i] : 0;
}
double mnc_attr_f64(const mnc_call *c, uint32_t i) {
    double d = 0;
    if (i < c->n_attr)
        memcpy(&d, &c->attr[i], 8);
    return d;
}
const mn_tensor *mnc_query_in(const mnc_query *q, uint32_t i) {
    (void)q;
    (void)i;
    return NULL;
}
int64_t mnc_query_dim(const mnc_query *q, const mn_tensor *t, uint32_t i) {
    (void)q;
    (void)t;
    (void)i;
    return 0;
}
int64_t mnc_query_attr(const mnc_query *q, uint32_t i) {
    (void)q;
    (void)i;
    return 0;
}
mnc_weight mnc_expert(const mnc_weight *w, int64_t e) {
    (void)e;
    return *w;
}

typedef struct {
    mnc_fn fn;
    const mnc_call *c;
    mnc_worker w;
} job;
/* Every n_threads-th part from its first one on. */
static void *job_main(void *p) {
    job *j = p;
    for (; j->w.i < j->w.n; j->w.i += j->w.n_threads)
        j->fn(j->c, &j->w);
    return NULL;
}

/* Blocks of NaN, one for each thread and one that they share; kept, since making them costs more
 * than most runs do. */
enum { SCRATCH = 4 << 20, MAX_THREADS = 4, SHARED = MAX_THREADS };
static void *nan_block(uint32_t i) {
    static void *blocks[MAX_THREADS + 1];
    if (!blocks[i])
        blocks[i] = aligned_alloc(64, SCRATCH);
    return memset(blocks[i], 0xff, SCRATCH);
}

static void run_stage(mnc_fn fn, const mnc_call *c, uint32_t n_parts, uint32_t n_threads) {
    job j[MAX_THREADS];
    pthread_t t[MAX_THREADS];
    for (uint32_t i = 0; i < n_threads; i++) {
        j[i] = (job){.fn = fn, .c = c};
        j[i].w =
            (mnc_worker){.i = i, .n = n_parts, .n_threads = n_threads, .scratch = nan_block(i)};
        pthread_create(&t[i], NULL, job_main, &j[i]);
    }
    for (uint32_t i = 0; i < n_threads; i++)
        pthread_join(t[i], NULL);
}
void rows_run(mnc_fn fn, mnc_call *c, uint32_t n) {
    c->shared = nan_block(SHARED);
    run_stage(fn, c, n, n);
}
void rows_run_attention(mnc_call *c, uint32_t n) {
    c->shared = nan_block(SHARED);
    const mnc_work first = mnk_attention_work(c, MNC_FIRST, n);
    const mnc_work last = mnk_attention_work(c, MNC_MAIN, n);
    if (first.units)
        run_stage(mnk_attention_split, c, n, n);
    if (last.units)
        run_stage(mnk_attention_node, c, n, n);
}

/* ---- numbers --------------------------------------------------------------------------------- */
static uint64_t seed = 1;
uint32_t rows_u32(void) {
    return (uint32_t)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 32);
}
float rows_uniform(void) {
    return (float)rows_u32() / 2147483648.0f - 1;
}
double rows_f16(uint16_t h) {
    int e = h >> 10 & 31;
    int m = h & 1023;
    double v = ldexp(1024 + m, e - 25);
    if (e == 0)
        v = ldexp(m, -24);
    if (e == 31)
        v = m ? NAN : INFINITY;
    return h & 0x8000 ? -v : v;
}
double rows_rel_l2(const float *a, const double *b, int64_t n) {
    double e = 0;
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        e += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += b[i] * b[i];
    }
    return s > 0 ? sqrt(e / s) : sqrt(e);
}
double rows_norm(const double *a, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * a[i];
    return sqrt(s);
}

uint64_t rows_bits(double d) {
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
}

/* ---- which rows are taken -------------------------------------------------------------------- */
static void caps(void) {
    uint32_t n;
    const mnk_set *sets = mnk_sets(&n);
    for (int32_t level = 0; level < MNK_N_LEVELS; level++) {
        for (uint32_t t = 1; t < MNK_N_TYPES; t++) {
            for (uint32_t p = MN_PRECISION_EXACT; p <= MN_PRECISION_A8 && case_is_weight_type(t);
                 p++) {
                for (int64_t r = 1; r < 100; r += 90) {
                    const mnk_linear *k = mnk_find_linear(t, p, level, r, 0);
                    const int32_t form = k ? k->x_form : -1;
                    bool ok = p == MN_PRECISION_A8 || form != MNK_X_A8;
                    ok = ok && (p != MN_PRECISION_EXACT || form == MNK_X_F32);
                    if (r == 1)
                        ok = ok && k && k->dot;
                    else
                        ok = ok && k && (k->gemm || k->product);
                    bool mine = false;
                    for (uint32_t i = 0; i < n; i++) {
                        const bool runs = mnk_isa_runs(level, sets[i].isa);
                        mine |= runs && mnk_set_linear(&sets[i], t) == k;
                    }
                    rows_check(ok && mine, "choice", mnk_isa_name(level), t, p, r, 0);
                }
            }
        }
    }
    const uint32_t vnni = (1u << MNK_AVX512VNNI << 1) - 1; /* with AVX-VNNI */
    const struct {
        uint32_t have;
        int32_t cap, want;
    } cases[] = {
        {vnni, MNK_AMX, MNK_AVX512VNNI},
        {vnni, MNK_AVX512, MNK_AVX512},
        {vnni, MNK_AVXVNNI, MNK_AVXVNNI},
        {vnni, MNK_NEON_BF16, MNK_GENERIC},
        {vnni & ~(1u << MNK_AVXVNNI), MNK_AVXVNNI, MNK_AVX2}, /* Zen 4, Ice Lake */
        {1u << MNK_GENERIC | 1u << MNK_AVX2 | 1u << MNK_AVXVNNI, MNK_AMX, MNK_AVX2},
        {1u << MNK_GENERIC | 1u << MNK_NEON | 1u << MNK_NEON_DOT, MNK_NEON_BF16, MNK_NEON_DOT},
        {1u << MNK_GENERIC | 1u << MNK_NEON | 1u << MNK_NEON_DOT, MNK_NEON, MNK_NEON},
        {1u << MNK_GENERIC | 1u << MNK_NEON, MNK_AVX2, MNK_GENERIC},
        {1u << MNK_GENERIC | 1u << MNK_NEON, MNK_SVE256, MNK_NEON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        rows_check(mnk_isa_cap(cases[i].have, cases[i].cap) == cases[i].want, "cap",
                   mnk_isa_name(cases[i].cap), cases[i].have, cases[i].want, 0, 0);
    rows_check(!mnk_isa_runs(MNK_AVX512VNNI, MNK_AVXVNNI) &&
                   !mnk_isa_runs(MNK_AVXVNNI, MNK_AVX512) &&
                   mnk_isa_runs(MNK_NEON_BF16, MNK_NEON) && mnk_isa_runs(MNK_AMX, MNK_AMX),
               "levels", "", 0, 0, 0, 0);
    rows_check(mnk_isa_by_name("avx512", 6) == MNK_AVX512 && mnk_isa_by_name("avx", 3) < 0, "names",
               "", 0, 0, 0, 0);
}

/* No row before sets[i] was tried for the same: what is tried is found for a level and a class. */
static bool is_first(const mnk_set *sets, uint32_t i, uint32_t type) {
    for (uint32_t j = 0; j < i; j++) {
        const bool alike = sets[j].isa == sets[i].isa && sets[j].precision == sets[i].precision;
        if (alike && mnk_set_linear(&sets[j], type))
            return false;
    }
    return true;
}

/* A plan has what the table has, for any number of rows of x. */
static void plans(void) {
    enum { K = 512, ROWS = 100 };
    mnk_plan *p = calloc(1, mnk_plan_bytes(1));
    for (int32_t level = 0; level < MNK_N_LEVELS && p; level++)
        for (uint32_t t = 1; t < MNK_N_TYPES; t++)
            for (uint32_t c = MN_PRECISION_EXACT; c <= MN_PRECISION_A8 && case_is_weight_type(t);
                 c++) {
                const mnk_use use = {c, level, false};
                mnk_plan_fill(p, &use, &t, 1, K);
                rows_check(p->n_ranges < MNK_RANGES, "ranges of a plan", mnk_isa_name(level), t, c,
                           p->n_ranges, 0);
                for (int64_t r = 1; r < ROWS; r++) {
                    const uint32_t range = mnk_plan_range(p, r);
                    const mnk_kernels *found = mnk_plan_kernels(p, range, 0);
                    const mnk_linear *stored = mnk_find_linear(t, c, level, r, K);
                    const mnk_linear *lanes = mnk_find_lanes(t, c, level, r, K);
                    bool ok = found->of[MNK_STORED] == stored;
                    ok = ok && found->of[MNK_SECOND] == (lanes ? lanes : stored);
                    ok = ok && found->of[MNK_PLAIN] == mnk_find_plain(t, c, level, r, K);
                    ok = ok && !p->forms[range][0].n_own == (r > MNK_COLUMN_ROWS);
                    rows_check(ok, "plan", mnk_isa_name(level), t, c, r, 0);
                }
            }
    rows_check(p != NULL, "memory", "", 0, 0, 0, 0);
    free(p);
}

/* The level that the sets are taken for: the CPU's, or `name`, which may be more than the CPU has
 * if its rows are built to be emulated. */
static int32_t level_of(const char *name, bool emulated) {
    if (!name)
        return mnk_cpu_level();
    const int32_t cap = mnk_isa_by_name(name, strlen(name));
    if (cap < 0) {
        printf("no instruction set \"%s\"\n", name);
        exit(2);
    }
    return mnk_isa_cap(emulated ? ~0u : mnk_cpu_levels(), cap);
}

/* test_rows [once | quick | brief | emulated | level [ISA]]: the rows of all instruction sets that
 * the CPU has; quick, brief (both quick and once) and emulated: of the best one, or of ISA; level:
 * of none, which it names. */
int main(int argc, char **argv) {
    uint32_t n;
    const bool emulated = argc > 1 && !strcmp(argv[1], "emulated");
    const bool brief = argc > 1 && !strcmp(argv[1], "brief");
    const bool all_once = argc > 1 && !strcmp(argv[1], "once");
    const bool one_level = argc > 1 && !all_once;
    rows_once = all_once || brief;
    rows_quick = brief || (argc > 1 && !strcmp(argv[1], "quick"));
    const mnk_set *sets = mnk_sets(&n);
    const int32_t level = level_of(argc > 2 ? argv[2] : NULL, emulated);
    caps();
    plans();
    if (argc > 1 && !strcmp(argv[1], "level"))
        n = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (one_level ? sets[i].isa != level : !(mnk_cpu_levels() >> sets[i].isa & 1))
            continue;
        for (uint32_t t = 0; t < MNK_N_TYPES; t++) {
            if (mnk_set_linear(&sets[i], t) && (emulated || is_first(sets, i, t))) {
                rows_linear(t, sets[i].precision ? sets[i].precision : MN_PRECISION_EXACT,
                            sets[i].isa, emulated ? sets[i].least : 0);
            }
        }
        const mnk_vector *v = sets[i].vector;
        if (!v)
            continue;
        rows_small(v);
        rows_state(v);
        rows_attention(sets[i].isa, MN_PRECISION_EXACT, v->name);
    }
    static const uint32_t rounded[] = {MN_PRECISION_A16, MN_PRECISION_A8};
    for (int i = 0; i < 2; i++) {
        const mnk_attend *tiles = mnk_find_attend(rounded[i], level, 16);
        if (tiles)
            rows_attend(tiles);
        if (tiles && !emulated) /* with the vectors of another set */
            rows_attention(level, rounded[i], "tiles");
    }
    printf("test_rows: level %s, %d checks, %d failed\n", mnk_isa_name(level), n_checks, n_failed);
    return n_failed > 0;
}
