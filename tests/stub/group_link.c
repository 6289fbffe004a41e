/* group_link.c -- members in several processes of one machine: shared memory, whose name is made of
 * the group's id. The name is gone once all have come; pages that nobody writes take no room. */
#include "group.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 16, WAIT_MS = 60000, PAGE = 4096 };
typedef struct {
    _Atomic uint32_t came;
    _Atomic uint32_t here;
    _Atomic uint32_t turn;
} meeting;

struct group_link {
    meeting *all; /* a page; places of all members behind it */
    uint64_t bytes;
    uint32_t rank;
    uint32_t n;
};

mn_status group_link_new_id(uint8_t *id, mn_error *err) {
    memset(id, 0, GROUP_ID_BYTES);
    if (getrandom(id, NAME_BYTES, 0) != NAME_BYTES)
        return mnp_fail(err, MN_IO_ERROR, ~0u, "no random numbers");
    return MN_OK;
}

static void nap(long ns) {
    const struct timespec t = {.tv_nsec = ns};
    nanosleep(&t, NULL);
}

static bool wait_for_all(const group_link *l) {
    for (uint32_t ms = 0; ms < WAIT_MS && l->all->came < l->n; ms++)
        nap(1000000);
    return l->all->came >= l->n;
}

/* Whoever comes first makes it; all give it the same size. */
static void *map_shared(const char *name, uint64_t bytes) {
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return MAP_FAILED;
    void *p = MAP_FAILED;
    if (!ftruncate(fd, (off_t)bytes))
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p;
}

mn_status group_link_open(const uint8_t *id, uint32_t rank, uint32_t n, group_link **out,
                          mn_error *err) {
    char name[64] = "/minerva-group-";
    const size_t prefix = strlen(name);
    group_link *l = mnp_new(group_host, sizeof *l);
    if (!l)
        return mnp_fail_memory(err, sizeof *l, "a group");
    for (size_t i = 0; i < NAME_BYTES; i++)
        snprintf(name + prefix + 2 * i, 3, "%02x", id[i]);
    *l = (group_link){.rank = rank, .n = n, .bytes = PAGE + n * GROUP_PLACE};
    void *p = map_shared(name, l->bytes);
    if (p == MAP_FAILED) {
        mnp_delete(group_host, l);
        return mnp_fail(err, MN_IO_ERROR, ~0u, "no shared memory of %llu bytes",
                        (unsigned long long)(PAGE + n * GROUP_PLACE));
    }
    l->all = p;
    atomic_fetch_add(&l->all->came, 1);
    const bool all = wait_for_all(l);
    shm_unlink(name); /* the second one finds none */
    if (!all) {
        group_link_close(l);
        return mnp_fail(err, MN_TIMEOUT, ~0u, "not all %u members came within %d s", n,
                        WAIT_MS / 1000);
    }
    *out = l;
    return MN_OK;
}

void group_link_close(group_link *l) {
    if (!l)
        return;
    munmap(l->all, l->bytes);
    mnp_delete(group_host, l);
}

float *group_link_place(const group_link *l, uint32_t rank) {
    return (float *)(void *)((uint8_t *)l->all + PAGE + rank * GROUP_PLACE);
}

void group_link_meet(group_link *l) {
    const uint32_t turn = l->all->turn;
    if (atomic_fetch_add(&l->all->here, 1) + 1 == l->n) {
        l->all->here = 0;
        atomic_fetch_add(&l->all->turn, 1);
        return;
    }
    for (uint32_t i = 0; l->all->turn == turn; i++)
        if (i < 100)
            sched_yield();
        else
            nap(20000);
}
