/* repack.c -- second layouts of weights (mnc_ops.repack): which weights get one, and its memory. */
#include "mnc.h"
#include <sys/mman.h>
#include <sys/resource.h>

/* A thread makes some GB in a second, which is what a start may take. */
#define BYTES_PER_THREAD (2ull << 30)

/* The bytes of a weight of a LINEAR; tensors beside matrices have none, nor have those above limit
 * bytes as they are stored: sums of what remains do not overflow. */
static uint64_t repack_bytes_of(const mn_device *d, const mn_graph *g, const mn_tensor *t,
                                uint32_t precision, uint64_t limit) {
    const mnc_plugin *p = d->plugin;
    uint64_t stored;
    if (t->n_dim != 2 || !mnp_bytes(g, t, NULL, &stored) || stored > limit)
        return 0;
    return p->ops->repacked_bytes(p->self, t->dtype.id, t->dim[0], t->dim[1], precision);
}

static bool is_off(const mn_host *h) {
    mn_str value = {NULL, 0};
    if (!MN_HAS(mn_host, h, option) || !h->option(h->self, "repack", &value))
        return false;
    return value.len == 3 && !memcmp(value.ptr, "off", 3);
}

/* Where the process may have so much address space (ulimit -v), that is for what a step needs. */
static bool is_limited(void) {
    struct rlimit space;
    return !getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY;
}

static uint64_t repack_sum_of(const uint64_t *bytes, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

uint64_t mnc_repacked_bytes(mn_device *d, const mn_graph *g, uint32_t lo, uint32_t hi,
                            uint32_t precision, uint64_t *bytes) {
    const mn_host *h = d->plugin->host;
    const uint64_t limit = BYTES_PER_THREAD * h->workers(h->self);
    uint64_t free_bytes;
    uint64_t total;
    mn_error err = {.size = sizeof err};
    memset(bytes, 0, g->n_tensors * sizeof *bytes);
    /* on several memory nodes rows lie where they are read; a layout of 16 rows would not */
    if (!d->plugin->ops->repacked_bytes || d->plugin->numa || is_off(h) || is_limited())
        return 0;
    mnp_cursor at = {lo, 0};
    uint32_t node;
    for (int32_t t; (t = mnp_next_weight(g, hi, &at, &node)) >= 0;)
        if (mnp_node(g, node)->op == MN_OP_LINEAR)
            bytes[t] = repack_bytes_of(d, g, mnp_tensor(g, (uint32_t)t), precision, limit);
    const uint64_t sum = repack_sum_of(bytes, g->n_tensors);
    const bool is_known = !mnc_device_memory(d, &free_bytes, &total, &err);
    const bool is_scarce = is_known && sum > free_bytes / 2;
    if (!is_scarce && sum <= limit)
        return sum;
    memset(bytes, 0, g->n_tensors * sizeof *bytes);
    return 0;
}

void mnc_repack_open(mn_weights *w, uint32_t lo, uint32_t hi) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t *bytes = mnc_new(w->dev, w->n * sizeof *bytes);
    if (!bytes)
        return;
    w->repacked_bytes = mnc_repacked_bytes(w->dev, w->graph, lo, hi, w->precision, bytes);
    void *at = MAP_FAILED;
    if (w->repacked_bytes)
        at = mmap(NULL, w->repacked_bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    if (at != MAP_FAILED) {
        (void)madvise(at, w->repacked_bytes, MADV_HUGEPAGE);
        w->repacked = at;
    }
    uint8_t *next = w->repacked;
    for (uint32_t i = 0; i < w->n && next; i++) {
        if (bytes[i])
            w->kept[i].repack_to = next;
        next += bytes[i];
    }
    mnc_delete(w->dev, bytes);
}

void mnc_repack(const mn_weights *w, mnc_kept *k) {
    const mnc_plugin *p = w->dev->plugin;
    if (!k->repack_to)
        return;
    if (p->ops->repack(p->self, &k->w, k->repack_to))
        k->w.repacked = k->repack_to;
}

void mnc_repack_close(mn_weights *w) {
    if (w->repacked)
        munmap(w->repacked, w->repacked_bytes);
}
