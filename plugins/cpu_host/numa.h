/* numa.h -- where the pages of weights and caches lie on a machine whose memory is several nodes,
 * and which thread computes what. Off, there is no mnc_numa: every call site checks for NULL. */
#ifndef MNC_NUMA_H
#define MNC_NUMA_H
#include "common.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MNC_NUMA_NODES 64u
#define MNC_NUMA_CPUS 16384u
/* Pages of the mode interleave change the node after so many bytes. */
#define MNC_NUMA_STRIPE 65536u

/* auto is off as long as nothing else was measured to be better, and says what else there is. */
enum { MNC_NUMA_AUTO, MNC_NUMA_OFF, MNC_NUMA_INTERLEAVE, MNC_NUMA_SPLIT };

/* The system calls that place pages, and the node of the calling thread's processor: the kernel's,
 * or a test's own. Each returns what the system call does, -1 with errno set. */
typedef struct {
    long (*move_pages)(unsigned long n, void **pages, const int *nodes, int *status);
    long (*interleave)(void *at, unsigned long bytes, const unsigned long *mask,
                       unsigned long n_bits);
    int (*cpu)(void);
    int (*pin)(const unsigned long *mask, unsigned long bytes);
} mnc_numa_calls;
extern const mnc_numa_calls mnc_numa_kernel;

/* Nodes that have memory and processors which this process may use, in ascending order; fields
 * below count them from 0. Written once, but for what is atomic. */
typedef struct {
    const mn_host *host;
    const mnc_numa_calls *calls;
    uint32_t mode; /* MNC_NUMA_INTERLEAVE or MNC_NUMA_SPLIT */
    uint32_t n_nodes;
    int32_t node[MNC_NUMA_NODES];      /* the kernel's numbers */
    int8_t node_of_cpu[MNC_NUMA_CPUS]; /* -1: not in the affinity mask, or without memory */
    atomic_bool refused;               /* the kernel refuses to place pages: no further try */
    _Atomic uint64_t placed;           /* bytes of weights that lie where they should */
    _Atomic uint64_t left;             /* bytes of weights that do not */
} mnc_numa;

/* Reads the option "numa" and, below root ("" but in tests), Linux's description of nodes. *out
 * NULL: off, or there is one node (with a message). MN_BAD_INPUT: no such mode. */
mn_status mnc_numa_open(const mn_host *host, const char *id, const char *root, mnc_numa **out,
                        mn_error *err);
void mnc_numa_free(mnc_numa *n);
/* Zeroed pages of the system's, interleaved as they are first used; munmap by the caller. NULL: out
 * of memory. */
void *mnc_numa_pages(mnc_numa *n, uint64_t bytes);
/* Moves the pages of a weight to their node; pages of a mapped file are read first and moved, too.
 * The bytes are [before, before + bytes) of `total` in the order of the weight's rows, of which
 * each node gets an equal share; total 0: the pages are interleaved. Pages that the kernel refuses
 * to move stay. Any thread. */
void mnc_numa_place(mnc_numa *n, const void *at, uint64_t bytes, uint64_t before, uint64_t total);
/* Logs how many bytes of weights were placed so far. */
void mnc_numa_report(const mnc_numa *n);
/* The node where thread i of n_threads of the host's pool runs now; the first call of a thread
 * other than 0, which is the caller's own, keeps it to the processors of one node. */
uint32_t mnc_numa_node(mnc_numa *n, uint32_t thread, uint32_t n_threads);

#endif
