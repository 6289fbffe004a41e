/* numa.c -- memory of several nodes. A page lies on the node of the thread that first touched it,
 * and pages of a file where whoever read the file first ran: on a machine with two sockets often
 * all on one, whose memory then serves both. The mode interleave spreads pages over the nodes, in
 * turn. The mode split cuts every matrix into as many ranges of rows as there are nodes, puts each
 * on one, and phases.c has the threads of a node take the parts of their own range first.
 *
 * Pages that exist are moved by move_pages, which also moves those of a file that no other process
 * has mapped; caches are bound by mbind before their pages exist. Both are called by number: there
 * is no libnuma to link. */
#include "numa.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* of linux/mempolicy.h and linux/mman.h, which older headers lack */
#define POLICY_INTERLEAVE 3
#define FLAG_MOVE 2
#define ADVICE_POPULATE_READ 22

#define WORD_BITS (8 * sizeof(unsigned long))
#define CPU_WORDS (MNC_NUMA_CPUS / WORD_BITS)
#define BATCH 1024u /* pages of one call */

/* ---- system calls ---------------------------------------------------------------------------- */
static long kernel_move(unsigned long n, void **pages, const int *nodes, int *status) {
    return syscall(SYS_move_pages, 0, n, pages, nodes, status, FLAG_MOVE);
}

static long kernel_interleave(void *at, unsigned long bytes, const unsigned long *mask,
                              unsigned long n_bits) {
    return syscall(SYS_mbind, at, bytes, POLICY_INTERLEAVE, mask, n_bits, 0);
}

static int kernel_cpu(void) {
    return sched_getcpu();
}

static int kernel_pin(const unsigned long *mask, unsigned long bytes) {
    return (int)syscall(SYS_sched_setaffinity, 0, bytes, mask);
}

const mnc_numa_calls mnc_numa_kernel = {kernel_move, kernel_interleave, kernel_cpu, kernel_pin};

static void numa_say(const mnc_numa *n, int32_t level, const char *text) {
    if (MN_HAS(mn_host, n->host, log))
        n->host->log(n->host->self, level, mnp_str(text));
}

/* ---- the nodes of this machine --------------------------------------------------------------- */
static bool bit(const unsigned long *mask, unsigned long i) {
    return mask[i / WORD_BITS] >> i % WORD_BITS & 1;
}

/* Sets the bits that a list such as 0-3,8 names, of n at most. */
static void numa_read_list(const char *list, unsigned long *mask, unsigned long n) {
    const char *at = list;
    while (*at) {
        char *end;
        const unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (end == at)
            return;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < n; i++)
            mask[i / WORD_BITS] |= 1ul << i % WORD_BITS;
        if (*end != ',')
            return;
        at = end + 1;
    }
}

/* The same of a file's line: the first, or the one that begins with key. False: there is none. */
static bool read_list_of(const char *path, const char *key, unsigned long *mask, unsigned long n) {
    char line[4096];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        found = !strncmp(line, key, strlen(key));
        if (found)
            numa_read_list(line + strlen(key) + strspn(line + strlen(key), " \t"), mask, n);
    }
    fclose(f);
    return found;
}

/* Fills node and node_of_cpu. */
static void read_nodes(mnc_numa *n, const char *root) {
    char path[1200];
    unsigned long may[CPU_WORDS] = {0};
    unsigned long with_memory = 0;
    unsigned long allowed = 0;
    memset(n->node_of_cpu, -1, sizeof n->node_of_cpu);
    if (syscall(SYS_sched_getaffinity, 0, sizeof may, may) < 0)
        return;
    snprintf(path, sizeof path, "%s/sys/devices/system/node/has_memory", root);
    if (!read_list_of(path, "", &with_memory, MNC_NUMA_NODES))
        return;
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    if (!read_list_of(path, "Mems_allowed_list:", &allowed, MNC_NUMA_NODES))
        allowed = ~0ul;
    for (uint32_t i = 0; i < MNC_NUMA_NODES; i++) {
        unsigned long cpus[CPU_WORDS] = {0};
        bool has_cpu = false;
        if (!(with_memory & allowed & 1ul << i))
            continue;
        snprintf(path, sizeof path, "%s/sys/devices/system/node/node%u/cpulist", root, i);
        if (!read_list_of(path, "", cpus, MNC_NUMA_CPUS))
            continue;
        for (uint32_t cpu = 0; cpu < MNC_NUMA_CPUS; cpu++) {
            if (!bit(cpus, cpu) || !bit(may, cpu))
                continue;
            n->node_of_cpu[cpu] = (int8_t)n->n_nodes;
            has_cpu = true;
        }
        if (!has_cpu)
            continue;
        n->node[n->n_nodes] = (int32_t)i;
        n->n_nodes++;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */
/* MNC_NUMA_*; -1: no such mode. */
static int mode_of(mn_str value) {
    static const char *const names[] = {"auto", "off", "interleave", "split"};
    if (!value.len)
        return MNC_NUMA_AUTO;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (value.len == strlen(names[i]) && !memcmp(value.ptr, names[i], value.len))
            return i;
    return -1;
}

mn_status mnc_numa_open(const mn_host *host, const char *id, const char *root, mnc_numa **out,
                        mn_error *err) {
    mn_str value = {NULL, 0};
    char text[200];
    *out = NULL;
    if (!MN_HAS(mn_host, host, option))
        return MN_OK;
    if (!host->option(host->self, "numa", &value))
        value.len = 0;
    const int mode = mode_of(value);
    if (mode < 0)
        return mnp_fail(err, MN_BAD_INPUT, ~0u,
                        "--numa, MINERVA_CPU_NUMA (option numa of %s) is \"%.*s\"; valid: auto, "
                        "off, interleave, split",
                        id, (int)(value.len > 64 ? 64 : value.len), value.ptr);
    if (mode == MNC_NUMA_OFF)
        return MN_OK;
    mnc_numa *n = mnp_new(host, sizeof *n);
    if (!n)
        return mnp_fail_memory(err, sizeof *n, "the memory nodes");
    n->host = host;
    n->calls = &mnc_numa_kernel;
    n->mode = (uint32_t)mode;
    read_nodes(n, root);
    const bool is_auto = mode == MNC_NUMA_AUTO;
    if (n->n_nodes > 1 && !is_auto) {
        *out = n;
        return MN_OK;
    }
    snprintf(text, sizeof text,
             "numa %.*s has no effect: the processors of this process have memory of one node",
             (int)value.len, value.ptr);
    if (!is_auto)
        numa_say(n, MN_LOG_WARN, text);
    snprintf(text, sizeof text,
             "this process has memory of %u nodes: --numa interleave or split spreads weights and "
             "caches over them",
             n->n_nodes);
    if (n->n_nodes > 1)
        numa_say(n, MN_LOG_INFO, text);
    mnc_numa_free(n);
    return MN_OK;
}

void mnc_numa_free(mnc_numa *n) {
    if (n)
        mnp_delete(n->host, n);
}

/* ---- pages ----------------------------------------------------------------------------------- */
/* The kernel said no, which it does for all of a container: said once. */
static void numa_refuse(mnc_numa *n, const char *call, int code) {
    char text[200];
    if (atomic_exchange(&n->refused, true))
        return;
    snprintf(text, sizeof text,
             "numa: the kernel refuses %s (%s), in containers often without SYS_NICE: pages stay "
             "where they are",
             call, strerror(code));
    numa_say(n, MN_LOG_WARN, text);
}

void *mnc_numa_pages(mnc_numa *n, uint64_t bytes) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned long mask = 0;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    for (uint32_t i = 0; i < n->n_nodes; i++)
        mask |= 1ul << n->node[i];
    /* one more than there are bits: the kernel takes 1 from the number */
    if (!atomic_load(&n->refused) && n->calls->interleave(at, bytes, &mask, MNC_NUMA_NODES + 1))
        numa_refuse(n, "mbind", errno);
    return at;
}

/* Makes the pages of a file present, so that there is something to move. */
static void populate(uintptr_t at, uint64_t bytes, uint64_t page) {
    if (!madvise((void *)at, bytes, ADVICE_POPULATE_READ) || errno != EINVAL)
        return;
    for (uint64_t i = 0; i < bytes; i += page)
        (void)*(volatile const uint8_t *)(at + i);
}

/* Moves n pages from `at` on to nodes[]. False: the kernel refuses. */
static bool numa_move(mnc_numa *n, uintptr_t at, uint32_t n_pages, uint64_t page,
                      const int *nodes) {
    void *pages[BATCH];
    int status[BATCH];
    uint64_t placed = 0;
    for (uint32_t i = 0; i < n_pages; i++) {
        pages[i] = (void *)(at + i * page);
        status[i] = -EAGAIN;
    }
    if (n->calls->move_pages(n_pages, pages, nodes, status) < 0) {
        numa_refuse(n, "move_pages", errno);
        return false;
    }
    for (uint32_t i = 0; i < n_pages; i++)
        placed += status[i] == nodes[i];
    atomic_fetch_add(&n->placed, placed * page);
    atomic_fetch_add(&n->left, (n_pages - placed) * page);
    return true;
}

/* Every page belongs to the plane that holds its first byte. */
void mnc_numa_place(mnc_numa *n, const void *at, uint64_t bytes, uint64_t before, uint64_t total) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)at;
    const uintptr_t end = begin + bytes;
    uintptr_t from = (begin + page - 1) / page * page;
    int nodes[BATCH];
    while (from < end && !atomic_load(&n->refused)) {
        uint64_t n_pages = (end - from + page - 1) / page;
        if (n_pages > BATCH)
            n_pages = BATCH;
        for (uint32_t i = 0; i < n_pages; i++) {
            const uint64_t offset = from - begin + i * page;
            uint64_t node = offset / MNC_NUMA_STRIPE % n->n_nodes;
            if (total)
                node = (uint64_t)((__uint128_t)(before + offset) * n->n_nodes / total);
            nodes[i] = n->node[node];
        }
        populate(from, n_pages * page, page);
        if (!numa_move(n, from, (uint32_t)n_pages, page, nodes))
            return;
        from += n_pages * page;
    }
}

void mnc_numa_report(const mnc_numa *n) {
    char text[200];
    const unsigned long long placed = atomic_load(&n->placed) >> 20;
    const unsigned long long left = atomic_load(&n->left) >> 20;
    snprintf(text, sizeof text, "numa: %llu MiB of weights lie on %u nodes, by %s", placed,
             n->n_nodes, n->mode == MNC_NUMA_SPLIT ? "ranges of rows" : "turns");
    numa_say(n, MN_LOG_INFO, text);
    if (!left)
        return;
    snprintf(text, sizeof text,
             "numa: %llu MiB of weights could not be moved; pages of a file that another process "
             "has mapped cannot",
             left);
    numa_say(n, MN_LOG_WARN, text);
}

/* ---- threads --------------------------------------------------------------------------------- */
/* A thread belongs to one pool, as long as it lives. */
static _Thread_local bool is_pinned;

static void pin(const mnc_numa *n, uint32_t node) {
    unsigned long mask[CPU_WORDS] = {0};
    for (uint32_t cpu = 0; cpu < MNC_NUMA_CPUS; cpu++)
        if (n->node_of_cpu[cpu] == (int8_t)node)
            mask[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
    n->calls->pin(mask, sizeof mask); /* refused: the thread goes where the system wants it */
}

uint32_t mnc_numa_node(mnc_numa *n, uint32_t thread, uint32_t n_threads) {
    const uint32_t own = (uint32_t)((uint64_t)thread * n->n_nodes / n_threads);
    if (thread && !is_pinned) {
        is_pinned = true;
        pin(n, own);
    }
    const int cpu = n->calls->cpu();
    if (cpu < 0 || (uint32_t)cpu >= MNC_NUMA_CPUS || n->node_of_cpu[cpu] < 0)
        return own;
    return (uint32_t)n->node_of_cpu[cpu];
}
