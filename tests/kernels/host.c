/* host.c -- the mn_host of the tests: the check's threads, counted allocations, injected
 * failures. */
#include "harness.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "host.h"
#include "threads.h"

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

static void *give(void *self, uint64_t bytes, uint64_t align) {
    void *p = NULL;
    (void)self;
    if (atomic_load(&fail_in) >= 0 &&
        (atomic_load(&fail_in) == 0 || atomic_fetch_sub(&fail_in, 1) == 0))
        return NULL;
    if (bytes > (uint64_t)1 << 36 ||
        posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes ? bytes : 1))
        return NULL;
    memset(p, 0xa5, bytes);
    atomic_fetch_add(&live, 1);
    return p;
}

static void take_back(void *self, void *p) {
    (void)self;
    if (p)
        atomic_fetch_sub(&live, 1);
    free(p);
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

static mn_status team(void *self, const mn_team *t) {
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
