/* host.c -- see host.h. The state of a host is in its check_host, which the rule's function
 * owns; a plugin gets a pointer to it as `self`. Blocks carry a head with their size and guard
 * bytes on both sides, which are checked when the block is released. Any thread of the plugin
 * may call: counters are atomic. */
#include "host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "threads.h"

/* A block is: padding | head | the plugin's bytes | guard. */
#define GUARD 64
#define MAGIC UINT64_C(0x6d696e6572766121)
typedef struct {
    uint64_t magic, bytes;
    void *base;
    uint8_t guard[GUARD];
} head;

/* Whether this allocation is one that the rule makes fail. */
static int must_fail(check_host *h) {
    if (atomic_load(&h->fail_in) < 0 || atomic_fetch_sub(&h->fail_in, 1) > 0)
        return 0;
    atomic_store(&h->fail_in, h->fail_once ? -1 : 0);
    atomic_fetch_add(&h->refused, 1);
    return 1;
}

static void count_block(check_host *h, long long bytes) {
    atomic_fetch_add(&h->live, 1);
    const long long now = atomic_fetch_add(&h->bytes, bytes) + bytes;
    long long peak = atomic_load(&h->peak);
    while (now > peak && !atomic_compare_exchange_weak(&h->peak, &peak, now)) {
    }
}

static void *alloc_block(void *self, uint64_t bytes, uint64_t align) {
    check_host *h = self;
    atomic_fetch_add(&h->calls, 1);
    if (!align || align & (align - 1))
        atomic_fetch_or(&h->broken, CHECK_HOST_ALIGN);
    if (must_fail(h))
        return NULL;
    if (align < 16)
        align = 16;
    if (bytes > UINT64_C(1) << 36 || align > UINT64_C(1) << 24)
        return NULL;
    uint8_t *base = malloc(sizeof(head) + align + bytes + GUARD);
    if (!base)
        return NULL;
    const uintptr_t least = (uintptr_t)base + sizeof(head);
    uint8_t *p = (uint8_t *)((least + align - 1) & ~(uintptr_t)(align - 1));
    head k = {
        .magic = MAGIC,
        .bytes = bytes,
        .base = base,
    };
    memset(k.guard, 0xfd, GUARD);
    memcpy(p - sizeof k, &k, sizeof k);
    memset(p, 0xa5, bytes); // a plugin must not expect zeros
    memset(p + bytes, 0xfd, GUARD);
    count_block(h, (long long)bytes);
    return p;
}

static int intact(const uint8_t *guard) {
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xfd)
            return 0;
    return 1;
}

static void release_block(void *self, void *ptr) {
    check_host *h = self;
    head k;
    if (!ptr)
        return;
    memcpy(&k, (uint8_t *)ptr - sizeof k, sizeof k);
    if (k.magic != MAGIC) {
        atomic_fetch_or(&h->broken, intact(k.guard) ? CHECK_HOST_FOREIGN : CHECK_HOST_UNDERRUN);
        return;
    }
    if (!intact(k.guard))
        atomic_fetch_or(&h->broken, CHECK_HOST_UNDERRUN);
    if (!intact((uint8_t *)ptr + k.bytes))
        atomic_fetch_or(&h->broken, CHECK_HOST_OVERRUN);
    atomic_fetch_sub(&h->live, 1);
    atomic_fetch_sub(&h->bytes, (long long)k.bytes);
    memset((uint8_t *)ptr - sizeof k, 0, 16);
    memset(ptr, 0xdd, k.bytes);
    free(k.base);
}

static mn_status parallel(void *self, uint32_t n, void (*fn)(void *, uint32_t, uint32_t),
                          void *arg) {
    check_host *h = self;
    if (n > h->workers)
        return MN_INVALID;
    return check_run_tasks(n, fn, arg);
}

static uint32_t workers(void *self) {
    return ((check_host *)self)->workers;
}

static int32_t progress(void *self, float done, mn_str what) {
    check_host *h = self;
    (void)done;
    (void)what;
    atomic_fetch_add(&h->progressed, 1);
    if (atomic_load(&h->stop_in) < 0)
        return 0;
    if (atomic_fetch_sub(&h->stop_in, 1) > 0)
        return 0;
    atomic_store(&h->stop_in, 0);
    return 1;
}

uint64_t check_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t now_ns(void *self) {
    (void)self;
    return check_now_ns();
}

static int32_t option(void *self, const char *key, mn_str *value) {
    check_host *h = self;
    const uint32_t n = atomic_load(&h->n_asked);
    uint32_t i = 0;
    while (i < n && strcmp(h->asked[i], key))
        i++;
    if (i == n && n < 16) {
        snprintf(h->asked[n], sizeof h->asked[n], "%s", key);
        atomic_store(&h->n_asked, n + 1);
    }
    if (!h->option_key || strcmp(h->option_key, key))
        return 0;
    *value = (mn_str){h->option_value, strlen(h->option_value)};
    return 1;
}

static void log_line(void *self, int32_t level, mn_str msg) {
    (void)self;
    (void)level;
    (void)msg;
}

static mn_status team(void *self, const mn_team *t) {
    return check_run_team(workers(self), t);
}

static const void *query(void *self, const char *id) {
    (void)self;
    (void)id;
    return NULL;
}

static uint32_t played = MN_ABI_VERSION;

void check_host_play(uint32_t abi) {
    played = abi;
}

uint32_t check_host_played(void) {
    return played;
}

/* A newer host accepts what this one does, as from 1.0 on; an older one has its own version alone.
 */
void check_host_init(check_host *h) {
    memset(h, 0, sizeof *h);
    memset(h->api_more, 0xee, sizeof h->api_more);
    h->api = (mn_host){
        .size = (uint32_t)(check_host_is_newer() ? offsetof(check_host, calls) : sizeof(mn_host)),
        .abi = played,
        .abi_min = played < MN_ABI_OLDEST ? played : MN_ABI_OLDEST,
        .self = h,
        .log = log_line,
        .alloc = alloc_block,
        .release = release_block,
        .parallel = parallel,
        .workers = workers,
        .progress = progress,
        .now_ns = now_ns,
        .option = option,
        .query = query,
        .team = team,
    };
    h->workers = 3;
    atomic_store(&h->fail_in, -1);
    atomic_store(&h->stop_in, -1);
}

void check_host_mark(check_host *h) {
    atomic_store(&h->peak, atomic_load(&h->bytes));
}

const char *check_host_fault(const check_host *h) {
    unsigned b = atomic_load(&h->broken);
    if (b & CHECK_HOST_OVERRUN)
        return "wrote behind the end of a block of host->alloc";
    if (b & CHECK_HOST_UNDERRUN)
        return "wrote before the beginning of a block of host->alloc";
    if (b & CHECK_HOST_FOREIGN)
        return "released what host->alloc did not return, or released it twice";
    if (b & CHECK_HOST_ALIGN)
        return "asked host->alloc for an alignment that is not a power of 2";
    return NULL;
}
