/* host.c -- the mn_host of the tests: the check's threads, counted allocations whose end is
 * guarded, injected failures. */
#include "harness.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "host.h"
#include "threads.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define MN_POISON ASAN_POISON_MEMORY_REGION
#define MN_UNPOISON ASAN_UNPOISON_MEMORY_REGION
#else
#define MN_POISON(p, n) (void)0
#define MN_UNPOISON(p, n) (void)0
#endif

static uint32_t n_workers = 3;
static const char *option_key, *option_value;
static atomic_llong fail_in = -1, live;

void h_host_workers(uint32_t n) {
    n_workers = n;
}
void h_host_option(const char *key, const char *value) {
    option_key = key;
    option_value = value;
}
void h_host_fail_after(int64_t k) {
    atomic_store(&fail_in, k);
}
int64_t h_host_live(void) {
    return atomic_load(&live);
}

static void log_line(void *self, int32_t level, mn_str msg) {
    (void)self;
    if (level <= MN_LOG_WARN)
        fprintf(stderr, "# plugin: %.*s\n", (int)msg.len, msg.ptr);
}

/* Before an allocation: how long it is. Behind it: bytes that nobody may write. */
enum { HEAD = 256, TAIL = 256, TAIL_BYTE = 0x5a };
typedef struct {
    void *block;
    uint64_t bytes;
} head;
static head *head_of(void *p) {
    return (head *)(void *)((uint8_t *)p - sizeof(head));
}

static void *give(void *self, uint64_t bytes, uint64_t align) {
    const uint64_t front = align > HEAD ? align : HEAD;
    void *block = NULL;
    (void)self;
    if (atomic_load(&fail_in) >= 0 &&
        (atomic_load(&fail_in) == 0 || atomic_fetch_sub(&fail_in, 1) == 0))
        return NULL;
    if (bytes > (uint64_t)1 << 36 || posix_memalign(&block, front, front + bytes + TAIL))
        return NULL;
    uint8_t *p = (uint8_t *)block + front;
    memset(p, 0xa5, bytes);
    memset(p + bytes, TAIL_BYTE, TAIL);
    *head_of(p) = (head){block, bytes};
    MN_POISON(p + bytes, TAIL);
    atomic_fetch_add(&live, 1);
    return p;
}

static void take_back(void *self, void *p) {
    (void)self;
    if (!p)
        return;
    const head h = *head_of(p);
    const uint8_t *tail = (uint8_t *)p + h.bytes;
    MN_UNPOISON(tail, TAIL);
    for (int i = 0; i < TAIL; i++)
        if (tail[i] != TAIL_BYTE) {
            fprintf(stderr, "# plugin: wrote behind an allocation of %llu bytes\n",
                    (unsigned long long)h.bytes);
            abort();
        }
    atomic_fetch_sub(&live, 1);
    free(h.block);
}

static mn_status parallel(void *self, uint32_t n, void (*fn)(void *, uint32_t, uint32_t),
                          void *arg) {
    (void)self;
    return check_run_tasks(n, fn, arg);
}

static uint32_t workers(void *self) {
    (void)self;
    return n_workers;
}
static int32_t progress(void *self, float done, mn_str what) {
    (void)self;
    (void)done;
    (void)what;
    return 0;
}
static uint64_t now_ns(void *self) {
    struct timespec t;
    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static int32_t option(void *self, const char *key, mn_str *value) {
    (void)self;
    if (!option_key || strcmp(key, option_key))
        return 0;
    *value = (mn_str){option_value, strlen(option_value)};
    return 1;
}

static bool is_late;
void h_host_late(bool on) {
    is_late = on;
}
/* Of the last parts every second one may be without work: the last but one comes first. */
static void run_late(const mn_team *t, uint32_t phase, uint32_t n) {
    for (uint32_t parity = 0; parity < 2; parity++)
        for (uint32_t i = n; i; i--)
            if ((i - 1) % 2 == parity)
                t->run(t->arg, phase, i - 1, 0);
}
static mn_status team(void *self, const mn_team *t) {
    for (uint32_t p = 0; is_late && p < t->n_phases; p++)
        run_late(t, p, t->chunks(t->arg, p));
    if (is_late)
        return MN_OK;
    return check_run_team(workers(self), t);
}

static const void *query(void *self, const char *id) {
    (void)self;
    (void)id;
    return NULL;
}

const mn_host h_host = {sizeof(mn_host), MN_ABI_VERSION, MN_ABI_VERSION, 0,        NULL,
                        log_line,        give,           take_back,      parallel, workers,
                        progress,        now_ns,         option,         query,    team};
