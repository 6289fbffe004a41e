/* test_numa.c -- memory of several nodes: which nodes there are, below a root of the test's own;
 * which pages are asked for where, through system calls of the test's own; that shares of work
 * follow the pages; the kernel's own calls, on the one node that every machine has. */
#include "harness.h"
#include "host.h"
#include "../../plugins/cpu_host/mnc.h"
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_PAGES = 4096, MOST_ROWS = 4096 };

/* ---- a host that listens --------------------------------------------------------------------- */
static mn_host ears;
static char heard[2048];
static int n_heard; /* warnings */

static void listen_to(void *self, int32_t level, mn_str text) {
    (void)self;
    n_heard += level <= MN_LOG_WARN;
    snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%.*s\n", (int)text.len,
             text.ptr);
}

static void deafen(void) {
    n_heard = 0;
    heard[0] = 0;
}

/* ---- a machine ------------------------------------------------------------------------------- */
static char root[64];

static void put_file(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s/", root, folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The first processor of this process is of node 1, all others of node 3; node 2 has memory alone,
 * node 5 processors alone. False: there is one processor. */
static bool put_machine(const char *mems) {
    cpu_set_t may;
    char status[64];
    char first[32] = "";
    char others[4096] = "";
    if (sched_getaffinity(0, sizeof may, &may) || CPU_COUNT(&may) < 2)
        return false;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &may))
            continue;
        if (!first[0])
            snprintf(first, sizeof first, "%d\n", i);
        else
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%d",
                     others[0] ? "," : "", i);
    }
    snprintf(status, sizeof status, "Name:\ttest\nMems_allowed_list:\t%s\n", mems);
    put_file("proc/self", "status", status);
    put_file("sys/devices/system/node", "has_memory", "1-3\n");
    put_file("sys/devices/system/node/node1", "cpulist", first);
    put_file("sys/devices/system/node/node2", "cpulist", "\n");
    put_file("sys/devices/system/node/node3", "cpulist", others);
    put_file("sys/devices/system/node/node5", "cpulist", "4000-4100\n");
    return true;
}

static mnc_numa *open_as(const char *mode) {
    mnc_numa *n = NULL;
    deafen();
    h_host_option("numa", mode);
    assert_int_equal(mnc_numa_open(&ears, "cpu_simd", root, &n, NULL), MN_OK);
    h_host_option(NULL, NULL);
    return n;
}

static void modes(void **state) {
    mnc_numa *n = NULL;
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    (void)state;
    if (!put_machine("0-63"))
        skip();
    h_host_option("numa", "bogus");
    assert_int_equal(mnc_numa_open(&ears, "cpu_simd", root, &n, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "--numa"));
    assert_non_null(strstr(err.msg, "MINERVA_CPU_NUMA"));
    assert_non_null(strstr(err.msg, "\"bogus\""));
    assert_non_null(strstr(err.msg, "auto, off, interleave, split"));
    assert_null(open_as("off"));
    assert_string_equal(heard, "");
    assert_null(open_as("auto"));
    assert_int_equal(n_heard, 0);
    assert_non_null(strstr(heard, "memory of 2 nodes"));
    n = open_as("interleave");
    assert_non_null(n);
    assert_int_equal(n->mode, MNC_NUMA_INTERLEAVE);
    mnc_numa_free(n);
    n = open_as("split");
    assert_non_null(n);
    assert_int_equal(n->mode, MNC_NUMA_SPLIT);
    assert_int_equal(n->n_nodes, 2);
    assert_int_equal(n->node[0], 1);
    assert_int_equal(n->node[1], 3);
    mnc_numa_free(n);
    h_host_fail_after(0);
    h_host_option("numa", "split");
    assert_int_equal(mnc_numa_open(&ears, "cpu_simd", root, &n, NULL), MN_OUT_OF_MEMORY);
    h_host_fail_after(-1);
    h_host_option(NULL, NULL);
}

/* Of the two nodes with processors one is forbidden, or no file says anything. */
static void one_node(void **state) {
    (void)state;
    if (!put_machine("0,3-4"))
        skip();
    assert_null(open_as("interleave"));
    assert_int_equal(n_heard, 1);
    assert_non_null(strstr(heard, "numa interleave has no effect"));
    root[0]++;
    assert_null(open_as("split"));
    root[0]--;
    assert_int_equal(n_heard, 1);
    assert_null(open_as("auto"));
    assert_string_equal(heard, "");
}

/* ---- pages ----------------------------------------------------------------------------------- */
static struct {
    const uint8_t *begin;
    int node[MOST_PAGES]; /* asked for by page; 0: not yet */
    int n_asked[MOST_PAGES];
    int n_calls;
    int code; /* errno of a refusal */
    int busy; /* every so many pages cannot be moved */
    unsigned long mask;
    int n_pinned;
    unsigned long pinned[MNC_NUMA_CPUS / 8 / sizeof(unsigned long)];
    atomic_int turn;
} fake;

static long fake_move(unsigned long n, void **pages, const int *nodes, int *status) {
    fake.n_calls++;
    if (fake.code) {
        errno = fake.code;
        return -1;
    }
    for (unsigned long i = 0; i < n; i++) {
        const long at = ((const uint8_t *)pages[i] - fake.begin) / PAGE;
        if (fake.begin && at >= 0 && at < MOST_PAGES) {
            fake.node[at] = nodes[i];
            fake.n_asked[at]++;
        }
        status[i] = nodes[i];
        if (fake.busy && (i + 1) % (unsigned long)fake.busy == 0)
            status[i] = -EBUSY;
    }
    return 0;
}
static long fake_interleave(void *at, unsigned long bytes, const unsigned long *mask,
                            unsigned long n_bits) {
    (void)at;
    (void)bytes;
    assert_int_equal(n_bits, MNC_NUMA_NODES + 1);
    fake.n_calls++;
    fake.mask = *mask;
    errno = fake.code;
    return fake.code ? -1 : 0;
}
/* Threads change their processor all the time. */
static int fake_cpu(void) {
    return atomic_fetch_add(&fake.turn, 1) % 3 - 1;
}
static int fake_pin(const unsigned long *mask, unsigned long bytes) {
    fake.n_pinned++;
    memcpy(fake.pinned, mask, bytes);
    return 0;
}
static const mnc_numa_calls fakes = {fake_move, fake_interleave, fake_cpu, fake_pin};

/* Two nodes, 4 and 6, with a processor each, 0 and 1. */
static mnc_numa *make(uint32_t mode) {
    mnc_numa *n = mnp_new(&ears, sizeof *n);
    assert_non_null(n);
    memset(&fake, 0, sizeof fake);
    deafen();
    n->host = &ears;
    n->calls = &fakes;
    n->mode = mode;
    n->n_nodes = 2;
    n->node[0] = 4;
    n->node[1] = 6;
    memset(n->node_of_cpu, -1, sizeof n->node_of_cpu);
    n->node_of_cpu[0] = 0;
    n->node_of_cpu[1] = 1;
    return n;
}

static uint8_t *pages_of(uint64_t bytes) {
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* Every page of two planes that meet in the middle of one is asked for once, in turns. */
static void interleaved(void **state) {
    (void)state;
    if (sysconf(_SC_PAGESIZE) != PAGE)
        skip();
    mnc_numa *n = make(MNC_NUMA_INTERLEAVE);
    const uint64_t bytes = (uint64_t)MOST_PAGES * PAGE;
    uint8_t *p = pages_of(bytes);
    const uint64_t cut = 1500 * PAGE + 100;
    fake.begin = p;
    mnc_numa_place(n, p, cut, 0, 0);
    mnc_numa_place(n, p + cut, bytes - cut, 0, 0);
    for (int i = 0; i < MOST_PAGES; i++) {
        const int from = i > 1500 ? 1501 : 0; /* the first page of the plane */
        assert_int_equal(fake.n_asked[i], 1);
        if (from == 0)
            assert_int_equal(fake.node[i], i / 16 % 2 ? 6 : 4);
    }
    int n_first = 0;
    for (int i = 1501; i < MOST_PAGES; i++)
        n_first += fake.node[i] == 4;
    assert_in_range(n_first, (MOST_PAGES - 1501) / 2 - 16, (MOST_PAGES - 1501) / 2 + 16);
    assert_int_equal(n->placed, bytes);
    assert_int_equal(n->left, 0);
    mnc_numa_report(n);
    assert_int_equal(n_heard, 0);
    assert_non_null(strstr(heard, "16 MiB of weights lie on 2 nodes"));
    munmap(p, bytes);
    mnc_numa_free(n);
}

/* A matrix in two parts, the first a quarter: the first half of the whole is the first node's. */
static void split(void **state) {
    (void)state;
    if (sysconf(_SC_PAGESIZE) != PAGE)
        skip();
    mnc_numa *n = make(MNC_NUMA_SPLIT);
    const uint64_t bytes = (uint64_t)MOST_PAGES * PAGE;
    uint8_t *p = pages_of(bytes);
    fake.begin = p;
    mnc_numa_place(n, p, bytes / 4, 0, bytes);
    mnc_numa_place(n, p + bytes / 4, bytes - bytes / 4, bytes / 4, bytes);
    for (int i = 0; i < MOST_PAGES; i++)
        assert_int_equal(fake.node[i], i < MOST_PAGES / 2 ? 4 : 6);
    munmap(p, bytes);
    mnc_numa_free(n);
}

/* A container's kernel: one sentence, and no call after the first. Pages that cannot be moved. */
static void refused(void **state) {
    (void)state;
    mnc_numa *n = make(MNC_NUMA_INTERLEAVE);
    const uint64_t bytes = (uint64_t)MOST_PAGES * PAGE;
    uint8_t *p = pages_of(bytes);
    fake.code = EPERM;
    mnc_numa_place(n, p, bytes, 0, 0);
    mnc_numa_place(n, p, bytes, 0, 0);
    uint8_t *zeros = mnc_numa_pages(n, bytes);
    assert_non_null(zeros);
    zeros[bytes - 1] = 1;
    assert_int_equal(fake.n_calls, 1);
    assert_int_equal(n_heard, 1);
    assert_non_null(strstr(heard, "refuses move_pages (Operation not permitted)"));
    munmap(zeros, bytes);
    mnc_numa_free(n);
    n = make(MNC_NUMA_INTERLEAVE);
    fake.busy = 2;
    mnc_numa_place(n, p, bytes, 0, 0);
    assert_int_equal(n->left, bytes / 2);
    mnc_numa_report(n);
    assert_int_equal(n_heard, 1);
    assert_non_null(strstr(heard, "8 MiB of weights could not be moved"));
    munmap(p, bytes);
    mnc_numa_free(n);
}

static void caches(void **state) {
    (void)state;
    mnc_numa *n = make(MNC_NUMA_INTERLEAVE);
    uint8_t *p = mnc_numa_pages(n, 1 << 20);
    assert_non_null(p);
    assert_int_equal(fake.mask, 1 << 4 | 1 << 6);
    for (int i = 0; i < 1 << 20; i++)
        assert_int_equal(p[i], 0);
    munmap(p, 1 << 20);
    mnc_numa_free(n);
}

/* The kernel's calls on node 0 alone, under both names: all pages lie there, of a file too. */
static void real_kernel(void **state) {
    (void)state;
    char path[] = "/tmp/test_numa_XXXXXX";
    char block[PAGE] = {1};
    const int pages = 64;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < pages; i++)
        assert_int_equal(write(fd, block, PAGE), PAGE);
    void *file = mmap(NULL, (size_t)pages * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(file != MAP_FAILED);
    mnc_numa *n = make(MNC_NUMA_INTERLEAVE);
    n->calls = &mnc_numa_kernel;
    n->node[0] = 0;
    n->node[1] = 0;
    mnc_numa_place(n, file, (uint64_t)pages * PAGE, 0, 0);
    uint8_t *zeros = mnc_numa_pages(n, 1 << 20);
    assert_non_null(zeros);
    zeros[0] = 1;
    const bool may = !atomic_load(&n->refused);
    if (may)
        assert_int_equal(n->placed, (uint64_t)pages * PAGE);
    munmap(zeros, 1 << 20);
    munmap(file, (size_t)pages * PAGE);
    close(fd);
    unlink(path);
    mnc_numa_free(n);
    if (!may)
        skip(); /* a container */
}

/* ---- shares of work -------------------------------------------------------------------------- */
/* Rows that parts of `node` compute, among those of all parts, which are all rows once. */
static void check_shares(uint32_t n_threads, uint32_t n_parts, uint32_t n_nodes, int64_t rows) {
    uint8_t done[MOST_ROWS] = {0};
    for (uint32_t i = 0; i < n_parts; i++) {
        const mnc_worker w = {.i = i, .n = n_parts, .n_threads = n_threads, .n_nodes = n_nodes};
        const int64_t node = (int64_t)i * n_nodes / n_parts;
        int64_t lo;
        int64_t hi;
        mnc_range_guided(&w, rows, 16, &lo, &hi);
        for (int64_t r = lo; r < hi; r++)
            done[r]++;
        if (n_parts % n_nodes || lo == hi)
            continue;
        assert_true(lo >= node * rows / n_nodes - 16);
        assert_true(hi <= (node + 1) * rows / n_nodes + 16);
    }
    for (int64_t r = 0; r < rows; r++)
        assert_int_equal(done[r], 1);
}

static void shares(void **state) {
    static const int64_t rows[] = {16, 100, 1000, 4096};
    (void)state;
    for (uint32_t n_nodes = 1; n_nodes <= 4; n_nodes++)
        for (uint32_t n_threads = n_nodes; n_threads <= 12; n_threads++)
            for (int r = 0; r < 4; r++)
                for (uint32_t n = n_nodes; n <= MNC_GUIDED * n_threads; n++)
                    check_shares(n_threads, n, n_nodes, rows[r]);
}

/* Thread 0 is the caller's own; another is kept to its node once, and asked for where it is. */
static void *pinned_thread(void *arg) {
    mnc_numa *n = arg;
    fake.turn = 2; /* processor 1 */
    assert_int_equal(mnc_numa_node(n, 3, 4), 1);
    assert_int_equal(fake.n_pinned, 1);
    assert_int_equal(fake.pinned[0], 1 << 1);
    fake.turn = 1; /* processor 0 */
    assert_int_equal(mnc_numa_node(n, 3, 4), 0);
    fake.turn = 0; /* unknown: its share of the threads */
    assert_int_equal(mnc_numa_node(n, 1, 4), 0);
    fake.turn = 0;
    assert_int_equal(mnc_numa_node(n, 2, 4), 1);
    assert_int_equal(fake.n_pinned, 1);
    return NULL;
}

static void threads(void **state) {
    (void)state;
    pthread_t thread;
    mnc_numa *n = make(MNC_NUMA_SPLIT);
    mnc_numa_node(n, 0, 4);
    assert_int_equal(fake.n_pinned, 0);
    assert_int_equal(pthread_create(&thread, NULL, pinned_thread, n), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mnc_numa_free(n);
}

/* The same bits as without nodes: products of one row and many, of several weights, of experts. */
static void results(void **state) {
    static const uint32_t ops[] = {MN_OP_LINEAR, MN_OP_MOE_LINEAR};
    (void)state;
    if (!h_built("cpu_simd"))
        skip();
    for (int i = 0; i < 2 * 2 * 4; i++) {
        op_shape s = {.rows = i / 2 % 2 ? 1 : 37, .k = 256, .n = 640, .n_expert = 4, .n_used = 2};
        s.variant = i / 4;
        op_case *want = case_random(ops[i % 2], MN_Q8_0, &s, 7);
        op_case *got = case_random(ops[i % 2], MN_Q8_0, &s, 7);
        h_plugin p;
        assert_non_null(want);
        assert_non_null(got);
        h_host_workers(4);
        h_host_of_plugins(&ears);
        assert_true(h_open(&p, "cpu_simd"));
        h_run(&p, want, MN_PRECISION_A8);
        mnc_plugin *inside = p.api->self;
        assert_null(inside->numa);
        inside->numa = make(MNC_NUMA_SPLIT);
        h_run(&p, got, MN_PRECISION_A8);
        assert_true(fake.n_calls > 0);
        assert_true(atomic_load(&fake.turn) > 0);
        assert_true(case_differ(got, want, NULL) == 0);
        h_close(&p);
        case_free(want);
        case_free(got);
    }
    h_host_of_plugins(NULL);
    h_host_workers(3);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes),       cmocka_unit_test(one_node), cmocka_unit_test(interleaved),
        cmocka_unit_test(split),       cmocka_unit_test(refused),  cmocka_unit_test(caches),
        cmocka_unit_test(real_kernel), cmocka_unit_test(shares),   cmocka_unit_test(threads),
        cmocka_unit_test(results),
    };
    snprintf(root, sizeof root, "/tmp/test_numa_root_XXXXXX");
    ears = h_host;
    ears.log = listen_to;
    if (!mkdtemp(root))
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0);
}
