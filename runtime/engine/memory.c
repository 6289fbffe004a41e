/* memory.c -- what sequences remember on a device: the groups and layers of its segments, which
 * share page tables and buffers. A layer is stored and read on one device. */
#include "engine/engine_impl.h"
#include "base/arithmetic.h"

/* The device's segments as ranges; NULL: out of memory. */
static mn_node_range *ranges_of(const mn_engine *e, uint32_t device, uint32_t *n) {
    mn_node_range *ranges = mn_alloc(e->n_segments, sizeof *ranges);
    *n = 0;
    for (uint32_t i = 0; ranges && i < e->n_segments; i++)
        if (e->segments[i].device == device)
            ranges[(*n)++] = (mn_node_range){e->segments[i].node_lo, e->segments[i].node_hi};
    return ranges;
}

static bool is_stored(const mn_graph *g, const mn_node_range *ranges, uint32_t n, uint32_t node) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = ranges[i].lo; k < ranges[i].hi && k < node; k++)
            if (mn_node_stores_for(g, &g->nodes[k], &g->nodes[node]))
                return true;
    return false;
}

/* An ATTENTION reads what a KV_STORE of the same device stored. */
static mn_status check_stores(const mn_engine *e, uint32_t device, const mn_node_range *ranges,
                              uint32_t n, mn_error *err) {
    const mn_graph *g = &e->graph->abi;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = ranges[i].lo; k < ranges[i].hi; k++)
            if (g->nodes[k].op == MN_OP_ATTENTION && !is_stored(g, ranges, n, k))
                return mn_fail_node(err, MN_INVALID, k,
                                    "node %u is an ATTENTION on %s whose KV_STORE is not there", k,
                                    e->devices[device].record->name);
    return MN_OK;
}

/* The first segment of the device, for which it is asked. */
static mn_engine_segment *first_segment(mn_engine *e, uint32_t device) {
    uint32_t i = 0;
    while (e->segments[i].device != device)
        i++;
    return &e->segments[i];
}

static mn_status ask_group(mn_engine *e, uint32_t device, uint32_t group, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    mn_memory_layout *kv = &d->kv[group];
    mn_sealed *pages;
    const mn_compile *c =
        mn_engine_segment_question(e, first_segment(e, device), e->graph, &pages, err);
    mn_status st = MN_OK;
    if (!c)
        return MN_OUT_OF_MEMORY;
    *kv = (mn_memory_layout){.size = sizeof *kv};
    MN_WATCHED(mn_callee_of(d), "memory_layout",
               st = d->backend->memory_layout(d->device, c, group, kv, err));
    mn_sealed_free(pages);
    if (st)
        return mn_engine_note(e, device, st);
    const bool is_paged = mn_memory_uses_group(&d->memory, group)->kind == MN_MEMORY_PAGED;
    if (!kv->page_bytes || !kv->page_tokens == is_paged)
        return mn_fail(err, MN_UNSUPPORTED, "%s states pages of %llu bytes and %u tokens",
                       d->record->name, (unsigned long long)kv->page_bytes, kv->page_tokens);
    kv->size = sizeof *kv;
    return MN_OK;
}

mn_status mn_engine_memory_ask(mn_engine *e, uint32_t device, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    const mn_engine_segment *s = first_segment(e, device);
    uint32_t n;
    mn_node_range *ranges = ranges_of(e, device, &n);
    if (!ranges)
        return mn_fail_memory(err, e->n_segments * sizeof *ranges);
    mn_status st = check_stores(e, device, ranges, n, err);
    if (!st && !mn_memory_uses_find(&e->graph->abi, ranges, n, s->k_dtype, s->v_dtype, &d->memory))
        st = mn_fail_memory(err, e->graph->abi.n_nodes * sizeof(mn_memory_layer));
    mn_free(ranges);
    for (uint32_t i = 0; i < d->memory.n && !st; i++) {
        const uint32_t group = d->memory.params[i].group;
        if (group >= MN_MAX_KV_GROUP)
            return mn_fail(err, MN_INVALID, "group %u of the memory, at most %d", group,
                           MN_MAX_KV_GROUP);
        st = ask_group(e, device, group, err);
    }
    for (uint32_t i = 0; i < d->memory.n && !st; i++) {
        const uint32_t group = d->memory.params[i].group;
        mn_memory_uses_know(&d->memory, group, &d->kv[group]);
    }
    return st;
}

/* Pages of the group for all sequences. Zeroed where the layout needs that alone. */
static mn_status create_group(mn_engine *e, uint32_t device, uint32_t group, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    const mn_memory_layout *kv = &d->kv[group];
    const uint64_t n = (uint64_t)e->group[group].n_total * mn_page_ratio(e, d, group);
    uint64_t *bytes = &d->group_bytes[group];
    if (!mn_mul_u64(n, kv->page_bytes, bytes) || !mn_add_u64(e->kv_bytes, *bytes, &e->kv_bytes))
        return mn_fail(err, MN_OUT_OF_MEMORY, "a KV cache of more bytes than can be counted");
    uint32_t kind = MN_MEM_DEVICE;
    if (!(kv->flags & MN_MEMORY_ZEROED))
        kind = MN_MEM_DEVICE | MN_UNZEROED;
    return mn_engine_alloc(e, device, *bytes, kind, &d->pages_kv[group], err);
}

mn_status mn_engine_memory_create(mn_engine *e, uint32_t device, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->graph->hp.n_kv && !st; i++)
        if (e->devices[device].kv[i].page_bytes)
            st = create_group(e, device, i, err);
    return st;
}

void mn_engine_memory_free(mn_engine_device *d) {
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++) {
        if (d->pages_kv[i])
            MN_WATCHED(mn_callee_of(d), "buffer_free", d->backend->buffer_free(d->pages_kv[i]));
        d->pages_kv[i] = NULL;
    }
    mn_memory_uses_free(&d->memory);
}
