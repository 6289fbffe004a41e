/* plan.c -- where the tensors inside a segment lie: one arena, room reused once nobody reads a
 * tensor any more. */
#include "mnc.h"
#include <stdlib.h>

bool mnc_out_may_be_absent(uint32_t op, uint32_t i) {
    return op == MN_OP_SAMPLE && i != MN_SAMPLE_OUT_IDS;
}
bool mnc_changes_state(uint32_t op) {
    return op == MN_OP_EMBED || op == MN_OP_KV_STORE || op == MN_OP_SAMPLE;
}

static mn_status live(mn_program *p, uint32_t node, mn_error *err) {
    const mn_graph *g = p->graph;
    const mn_node *n = mnc_node(g, node);
    int32_t at = (int32_t)(node - p->lo);
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        bool out = i >= n->n_in;
        int32_t t = out ? mnc_out(g, n, i - n->n_in) : mnc_in(g, n, i);
        if (t < 0 || mnc_tensor(g, (uint32_t)t)->role == MN_ROLE_WEIGHT)
            continue;
        const mn_tensor *view = mnc_tensor(g, (uint32_t)t);
        if (view->alias_of >= 0 &&
            (view->role == MN_ROLE_STATE ||
             mnc_tensor(g, mnc_root(g, (uint32_t)t))->role == MN_ROLE_WEIGHT))
            return mnc_fail(err, MN_UNSUPPORTED, node,
                            "%.*s: views of weights and states are not supported", MNC_NAME(view));
        int64_t dense = 1;
        for (uint32_t d = view->n_dim; view->alias_of >= 0 && d-- > 0;) {
            int64_t size = mnc_dim(g, p->symbol_max, view->dim[d]);
            if (view->stride[d] != dense && size != 1)
                return mnc_fail(err, MN_UNSUPPORTED, node, "%.*s: only dense views are supported",
                                MNC_NAME(view));
            dense *= size;
        }
        mnc_home *h = &p->homes[mnc_root(g, (uint32_t)t)];
        if (h->first < 0)
            h->first = at;
        h->last = at;
        if (out && !mnc_out_may_be_absent(n->op, i - n->n_in))
            h->produced = true;
    }
    return MN_OK;
}

typedef struct {
    const mnc_home *homes;
} sort_arg;
static int by_size(const void *a, const void *b, void *arg) {
    const mnc_home *h = ((const sort_arg *)arg)->homes;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (h[x].bytes != h[y].bytes)
        return h[x].bytes < h[y].bytes ? 1 : -1;
    return x < y ? -1 : 1;
}

/* Largest first, each at the lowest place that no tensor alive at the same time holds (Pisarchyk
 * and Lee 2020). sorted: the tensors placed so far, by place. */
static uint64_t place(mnc_home *homes, const uint32_t *order, uint32_t n, uint32_t *sorted) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        mnc_home *h = &homes[order[i]];
        uint64_t at = 0;
        uint32_t slot = 0;
        for (uint32_t j = 0; j < i; j++) {
            const mnc_home *o = &homes[sorted[j]];
            if (o->last < h->first || o->first > h->last)
                continue;
            if (o->place >= at + h->bytes)
                break;
            if (o->place + o->bytes > at)
                at = o->place + o->bytes;
        }
        h->place = at;
        while (slot < i && homes[sorted[slot]].place < at)
            slot++;
        memmove(sorted + slot + 1, sorted + slot, (i - slot) * sizeof *sorted);
        sorted[slot] = order[i];
        if (at + h->bytes > total)
            total = at + h->bytes;
    }
    return total;
}

mn_status mnc_homes(mn_program *p, mn_error *err) {
    const mn_graph *g = p->graph;
    mn_status s = MN_OK;
    uint64_t want = 2 * sizeof(uint32_t) * (uint64_t)g->n_tensors;
    uint32_t *order = mnc_new(p->dev, want), n = 0;
    if (!order)
        return mnc_fail_memory(err, want, "planning");
    for (uint32_t i = 0; i < g->n_tensors; i++)
        p->homes[i] = (mnc_home){MNC_NO_PLACE, 0, -1, -1, false};
    for (uint32_t i = p->lo; i < p->hi && !s; i++)
        s = live(p, i, err);
    for (uint32_t i = 0; i < g->n_tensors && !s; i++) {
        mnc_home *h = &p->homes[i];
        const mn_tensor *t = mnc_tensor(g, i);
        if (!h->produced || (t->role != MN_ROLE_INTERIOR && t->role != MN_ROLE_OUTPUT))
            continue;
        if (!mnc_bytes(g, t, p->symbol_max, &h->bytes))
            s = mnc_fail(err, MN_INVALID, ~0u, "%.*s: its size overflows or breaks its block",
                         MNC_NAME(t));
        h->bytes = (h->bytes + MNC_ALIGN - 1) / MNC_ALIGN * MNC_ALIGN;
        order[n++] = i;
    }
    if (!s) {
        qsort_r(order, n, sizeof *order, by_size, &(sort_arg){p->homes});
        p->arena_bytes = place(p->homes, order, n, order + g->n_tensors);
    }
    mnc_delete(p->dev, order);
    return s;
}
