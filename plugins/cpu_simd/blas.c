/* blas.c -- OpenBLAS, loaded when the first program is planned that can use it, never before, and
 * for calls from our own threads: it must not have any of its own.
 *
 * Why so much care. OpenBLAS starts a thread per processor while it is loaded, unless it sees but
 * one processor: the thread that loads it is bound to one for that time (the environment is not
 * ours to change). It takes 128 MiB of address space for each call that runs at the same time, and
 * where that fails it tries again without end: so the room is looked for first, and all of it is
 * taken at once; OpenBLAS keeps it. A library that the application has loaded already is used only
 * if that one has a single thread, too, for the number of threads is one setting of the process.
 *
 * Of its three variants only the one with pthreads serves: the one without threads takes no lock
 * when several threads call it (its results then vary), and the one with OpenMP starts threads for
 * each thread that calls it.
 *
 * The library stays loaded until the process ends; the counts below belong to it. */
#include "blas.h"
#ifndef MNC_OPENBLAS
bool mnk_blas_open(mnk_blas *user, uint32_t n, const char **why) {
    (void)n;
    *why = "OpenBLAS was not built in";
    if (user->asked)
        *why = NULL;
    user->asked = true;
    return false;
}
void mnk_blas_close(mnk_blas *user) {
    *user = (mnk_blas){0};
}
bool mnk_blas_rows(const mnc_weight *w, const float *x, int64_t r, float *y, int64_t ldy,
                   int64_t lo, int64_t hi) {
    (void)w;
    (void)x;
    (void)r;
    (void)y;
    (void)ldy;
    (void)lo;
    (void)hi;
    return false;
}
#else
#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLAS_NAME "libopenblas.so.0"
#define BUFFER_BYTES (129u << 20) /* of one call; and a page or two */
#define LIBRARY_BYTES (96u << 20) /* code, data and tables */
#define SOME_CALLS 16u            /* at once, where the library does not tell */
#define MAX_CALLS 128u

static struct {
    atomic_int owner; /* the process that loads the library; 0 = none yet */
    pthread_mutex_t lock;
    bool tried;
    __typeof__(&cblas_sgemm) sgemm; /* NULL = cannot be used */
    void *(*take)(int);             /* blas_memory_alloc: one call's buffer */
    void (*give)(void *);
    uint32_t most, n_users; /* calls at once: at most; now promised */
    const char *why;
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- loading --------------------------------------------------------------------------------- */

/* Whether n buffers and `more` bytes find room: all are mapped, then released. */
static bool has_room(uint32_t n, size_t more) {
    void *at[MAX_CALLS + 1];
    uint32_t i = 0;
    bool all = true;
    for (; i <= n && all; i++) {
        size_t bytes = more;
        if (i < n)
            bytes = BUFFER_BYTES;
        if (!bytes)
            break;
        at[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        all = at[i] != MAP_FAILED;
    }
    for (uint32_t k = 0; k < i; k++)
        if (at[k] != MAP_FAILED)
            munmap(at[k], k < n ? BUFFER_BYTES : more);
    return all;
}

/* Opens the library, bound to one processor. NULL: not loaded, or the binding failed. */
static void *open_bound(void) {
    enum { BITS = 16384, BYTES = BITS / 8 };
    _Alignas(cpu_set_t) unsigned char before[BYTES] = {0};
    _Alignas(cpu_set_t) unsigned char one[BYTES] = {0};
    cpu_set_t *mask = (cpu_set_t *)(void *)before;
    if (sched_getaffinity(0, BYTES, mask))
        return NULL;
    size_t cpu = 0;
    while (cpu < BITS && !CPU_ISSET_S(cpu, BYTES, mask))
        cpu++;
    CPU_SET_S(cpu, BYTES, (cpu_set_t *)(void *)one);
    if (sched_setaffinity(0, BYTES, (cpu_set_t *)(void *)one))
        return NULL;
    void *library = dlopen(BLAS_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    sched_setaffinity(0, BYTES, mask);
    return library;
}

/* A symbol as a function: ISO C has no cast from object to function. */
static bool blas_find(void *library, const char *name, void *fn, size_t bytes) {
    void *symbol = dlsym(library, name);
    if (symbol)
        memcpy(fn, &symbol, bytes);
    return symbol != NULL;
}

/* Calls that may run at the same time: each needs a buffer, whose number is fixed in the build. */
static uint32_t most_calls(const char *config) {
    const char *at = strstr(config, "MAX_THREADS=");
    long n;
    if (at)
        n = atol(at + strlen("MAX_THREADS="));
    else
        n = (long)SOME_CALLS;
    if (n < 1)
        return 1;
    return n > (long)MAX_CALLS ? MAX_CALLS : (uint32_t)n;
}

/* Sets blas.sgemm and what it needs, or blas.why. */
static void load(void) {
    __typeof__(&cblas_sgemm) sgemm;
    __typeof__(&openblas_get_parallel) parallel;
    __typeof__(&openblas_get_num_threads) threads;
    __typeof__(&openblas_get_config) config;
    void *library = dlopen(BLAS_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const bool theirs = library != NULL;
    if (!theirs && !has_room(2, LIBRARY_BYTES)) {
        blas.why = "no OpenBLAS: not enough address space";
        return;
    }
    if (!theirs)
        library = open_bound();
    blas.why = "no OpenBLAS: it cannot be loaded";
    if (!library)
        return;
    blas.why = "no OpenBLAS: the library lacks a function";
    if (!blas_find(library, "cblas_sgemm", &sgemm, sizeof sgemm))
        return;
    if (!blas_find(library, "openblas_get_parallel", &parallel, sizeof parallel))
        return;
    if (!blas_find(library, "openblas_get_num_threads", &threads, sizeof threads))
        return;
    if (!blas_find(library, "openblas_get_config", &config, sizeof config))
        return;
    if (!blas_find(library, "blas_memory_alloc", &blas.take, sizeof blas.take))
        return;
    if (!blas_find(library, "blas_memory_free", &blas.give, sizeof blas.give))
        return;
    blas.why = "no OpenBLAS: it is built without threads or with OpenMP, expected pthreads";
    if (parallel() != 1)
        return;
    blas.why = "no OpenBLAS: the library would start threads";
    if (theirs)
        blas.why = "no OpenBLAS: the application uses it with several threads";
    if (threads() != 1)
        return;
    blas.most = most_calls(config());
    blas.sgemm = sgemm;
    blas.why = "OpenBLAS is used for f32 weights";
}

/* Takes the buffers of all users at once, so that none is looked for later. */
static bool reserve(uint32_t n) {
    void *buffer[MAX_CALLS];
    if (n > blas.most || !has_room(n, 0))
        return false;
    uint32_t i = 0;
    while (i < n && (buffer[i] = blas.take(0)) != NULL)
        i++;
    const bool all = i == n;
    while (i)
        blas.give(buffer[--i]);
    return all;
}

/* In the child of a fork the library's locks, and ours, may be held by threads that are not
 * there. */
static bool is_own_process(void) {
    int nobody = 0;
    const int self = (int)getpid();
    if (atomic_compare_exchange_strong(&blas.owner, &nobody, self))
        return true;
    return nobody == self;
}

bool mnk_blas_open(mnk_blas *user, uint32_t n, const char **why) {
    *why = NULL;
    if (!is_own_process()) {
        *why = "no OpenBLAS: it was loaded before a fork";
        if (user->asked)
            *why = NULL;
        user->asked = true;
        return false;
    }
    pthread_mutex_lock(&blas.lock);
    if (!user->asked) {
        if (!blas.tried)
            load();
        blas.tried = true;
        *why = blas.why;
        user->ok = blas.sgemm && n <= blas.most && reserve(blas.n_users + n);
        if (blas.sgemm && !user->ok)
            *why = "no OpenBLAS: not enough address space, or too many threads";
        user->n = 0;
        if (user->ok)
            user->n = n;
        blas.n_users += user->n;
        user->asked = true;
    }
    const bool ok = user->ok;
    pthread_mutex_unlock(&blas.lock);
    return ok;
}

void mnk_blas_close(mnk_blas *user) {
    if (!user->n)
        return;
    pthread_mutex_lock(&blas.lock);
    blas.n_users -= user->n;
    pthread_mutex_unlock(&blas.lock);
    *user = (mnk_blas){0};
}

bool mnk_blas_rows(const mnc_weight *w, const float *x, int64_t r, float *y, int64_t ldy,
                   int64_t lo, int64_t hi) {
    const int64_t most = 1 << 30;
    if (hi <= lo)
        return true;
    if ((uintptr_t)w->data % sizeof(float) || r > most || w->cols > most || ldy > most)
        return false;
    if (w->groups || w->row_bytes != (uint64_t)w->cols * sizeof(float))
        return false;
    const int cols = (int)w->cols;
    const int rows = (int)(hi - lo);
    const float *weights = (const float *)w->data + lo * w->cols;
    blas.sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)r, rows, cols, 1.0f, x, cols, weights,
               cols, 0.0f, y + lo, (int)ldy);
    return true;
}
#endif
