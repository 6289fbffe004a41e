/* arena.c -- one arena for the tensors that a segment makes: room is used again once nobody reads a
 * tensor any more. The allocations are the caller's array; nothing is kept here. Greedy by size
 * (Pisarchyk and Lee 2020): within a few per cent of the lower bound on graphs of transformers. */
#include "common.h"
#include <stdlib.h>

/* a: [n_tensors]; nothing has a place yet. */
void mnp_arena_begin(const mn_graph *g, mnp_allocation *a) {
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        a[i].place = MNP_NOWHERE;
        a[i].bytes = 0;
        a[i].first = a[i].last = -1;
        a[i].produced = false;
    }
}

/* A tensor is alive from the first to the last step that touches it or a view of it. */
void mnp_arena_live(const mn_graph *g, uint32_t node, int32_t at, mnp_allocation *a) {
    const mn_node *n = mnp_node(g, node);
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(g, n, i);
        if (t < 0)
            continue;
        if (mnp_tensor(g, (uint32_t)t)->role == MN_ROLE_WEIGHT)
            continue;
        mnp_allocation *x = &a[mnp_root(g, (uint32_t)t)];
        if (x->first < 0 || at < x->first)
            x->first = at;
        if (at > x->last)
            x->last = at;
        if (i >= n->n_in && !mnp_out_may_be_absent(n->op, i - n->n_in))
            x->produced = true;
    }
}

/* Largest first; of equals the one with the lower index, so that the plan is the same every
 * time. */
static int arena_by_size(const void *x, const void *y, void *arg) {
    const mnp_allocation *a = arg;
    const uint32_t i = *(const uint32_t *)x;
    const uint32_t j = *(const uint32_t *)y;
    if (a[i].bytes != a[j].bytes)
        return a[i].bytes < a[j].bytes ? 1 : -1;
    if (i < j)
        return -1;
    return 1;
}

/* Each at the lowest place that no tensor alive at the same time holds. order: [n] tensors, largest
 * first; sorted: room for n, the tensors placed so far by place. The arena's bytes. */
static uint64_t arena_place(mnp_allocation *a, const uint32_t *order, uint32_t n,
                            uint32_t *sorted) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        mnp_allocation *x = &a[order[i]];
        uint64_t at = 0;
        for (uint32_t j = 0; j < i; j++) {
            const mnp_allocation *o = &a[sorted[j]];
            if (o->last < x->first)
                continue;
            if (o->first > x->last)
                continue;
            if (o->place >= at + x->bytes)
                break;
            if (o->place + o->bytes > at)
                at = o->place + o->bytes;
        }
        x->place = at;
        uint32_t slot = 0;
        while (slot < i && a[sorted[slot]].place < at)
            slot++;
        memmove(sorted + slot + 1, sorted + slot, (i - slot) * sizeof *sorted);
        sorted[slot] = order[i];
        if (at + x->bytes > total)
            total = at + x->bytes;
    }
    return total;
}

mn_status mnp_arena_place(const mn_host *h, const mn_graph *g, const int64_t *symbol_max,
                          uint64_t align, mnp_allocation *a, uint64_t *bytes, mn_error *err) {
    const uint64_t want = 2 * sizeof(uint32_t) * (uint64_t)g->n_tensors;
    mn_status st = MN_OK;
    uint32_t n = 0;
    uint32_t *order = mnp_new(h, want);
    if (!order)
        return mnp_fail_memory(err, want, "planning");
    for (uint32_t i = 0; i < g->n_tensors && !st; i++) {
        const mn_tensor *t = mnp_tensor(g, i);
        if (!a[i].produced)
            continue;
        if (t->role != MN_ROLE_INTERIOR && t->role != MN_ROLE_OUTPUT)
            continue;
        if (!mnp_bytes(g, t, symbol_max, &a[i].bytes))
            st = mnp_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows or breaks its block",
                          MNP_NAME(t));
        a[i].bytes = (a[i].bytes + align - 1) / align * align;
        order[n] = i;
        n++;
    }
    if (!st) {
        qsort_r(order, n, sizeof *order, arena_by_size, a);
        *bytes = arena_place(a, order, n, order + g->n_tensors);
    }
    mnp_delete(h, order);
    return st;
}
