/* pages.c -- pages of the KV cache as bytes: out of devices and back into them, in queue order.
 *
 * What is in a page is the plugin's; that page p is the bytes [p * page_bytes, (p + 1) *
 * page_bytes) of the group's buffer, and that a page means the same wherever it lies, is tried once
 * (mn_engine_test_pages). Devices that can be mapped and have finished when execute returns are
 * copied from and to directly; others through queues and pinned memory, a part for each place. */
#include "engine/engine_impl.h"
#include "base/arithmetic.h"

/* What one place waits for on one device: bytes in pinned memory, and where they go. */
typedef struct {
    uint32_t device;
    uint64_t at, bytes;
    char *to;
} fetched_part;

typedef struct {
    fetched_part *parts;
    size_t n, cap;
    mn_event **events; /* [n_devices]: of the last read */
    uint64_t *used;    /* [n_devices]: bytes of its pinned memory */
} fetch_place;

typedef struct {
    mn_buffer *buffer; /* NULL: none is needed */
    char *map;
    uint64_t bytes; /* of one place */
} stage;

struct mn_engine_pages {
    fetch_place *places;
    uint32_t n_places;
    stage *stages; /* [n_devices] */
};

/* Whether the host may read and write its memory as it is. */
static bool is_direct(const mn_engine_device *d) {
    return d->unified && !(d->record->info.flags & MN_DEVICE_ASYNC);
}

static uint64_t own_page_bytes(const mn_engine *e, const mn_engine_device *d, uint32_t group) {
    return d->pages_kv[group] ? mn_page_ratio(e, d, group) * d->kv[group].page_bytes : 0;
}

uint64_t mn_engine_page_bytes(const mn_engine *e, uint32_t group) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->n_devices; i++)
        bytes += own_page_bytes(e, &e->devices[i], group);
    return bytes;
}

/* ---- what pages are like --------------------------------------------------------------------- */
static mn_status pages_map(mn_engine *e, uint32_t device, uint32_t group, char **map,
                           mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    void *at = NULL;
    mn_status st = MN_OK;
    MN_WATCHED(mn_callee_of(d), "map", st = d->backend->map(d->pages_kv[group], &at, err));
    *map = at;
    return mn_engine_note(e, device, st);
}

/* Reads bytes of a buffer and waits for them. */
static mn_status read_back(mn_engine *e, uint32_t device, uint32_t group, mn_buffer *pinned,
                           uint64_t bytes, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    mn_event *done = NULL;
    mn_status st;
    MN_WATCHED_FOR(mn_callee_of(d), "read", MN_MOVES_NS(bytes),
                   MN_RETRY(st, d->backend->read(d->queue, d->pages_kv[group], 0, pinned, 0, bytes,
                                                 &done, err)));
    if (!st)
        st = mn_event_settle(d->backend, mn_callee_of(d), MN_MOVES_NS(bytes), &done, err);
    return mn_engine_note(e, device, st);
}

static void fill_pattern(unsigned char *to, uint64_t bytes, uint64_t seed) {
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
}

/* Page 0 is copied over page 1 by the plugin: then page 1 has its bytes, and page 0 too. Both are
 * zeroed in the end. pages: [2 * bytes], used for both. */
static mn_status test_with(mn_engine *e, uint32_t device, uint32_t group, mn_buffer *pinned,
                           const char *map, unsigned char *pages, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    const uint64_t bytes = d->kv[group].page_bytes;
    const mn_memory_layout layout = d->kv[group];
    const mn_page_copy copy = {.src_page = 0, .dst_page = 1, .n_tokens = layout.page_tokens};
    fill_pattern(pages, 2 * bytes, bytes);
    mn_status st = mn_engine_write(d, d->pages_kv[group], 0, pages, 2 * bytes, err);
    if (!st)
        MN_WATCHED_FOR(mn_callee_of(d), "memory_copy", MN_MOVES_NS(bytes),
                       MN_RETRY(st, d->backend->memory_copy(d->queue, d->pages_kv[group], &layout,
                                                            &copy, 1, sizeof copy, NULL, err)));
    if (!st)
        st = read_back(e, device, group, pinned, 2 * bytes, err);
    if (st)
        return mn_engine_note(e, device, st);
    const bool same = !memcmp(map, pages, bytes) && !memcmp(map + bytes, pages, bytes);
    memset(pages, 0, 2 * bytes);
    st = mn_engine_write(d, d->pages_kv[group], 0, pages, 2 * bytes, err);
    if (!st && !same)
        st = mn_fail(err, MN_UNSUPPORTED, "%s does not keep pages one behind the other",
                     d->record->name);
    return mn_engine_note(e, device, st);
}

static mn_status test_group(mn_engine *e, uint32_t device, uint32_t group, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    const uint64_t bytes = d->kv[group].page_bytes;
    mn_buffer *pinned = NULL;
    void *map = NULL;
    if (d->group_bytes[group] / 2 < bytes)
        return mn_fail(err, MN_UNSUPPORTED, "the KV cache has one page");
    unsigned char *pages = mn_alloc(2, (size_t)bytes);
    if (!pages)
        return mn_fail_memory(err, 2 * bytes);
    const uint32_t kind = MN_MEM_HOST_PINNED | MN_UNZEROED;
    mn_status st = mn_engine_alloc(e, device, 2 * bytes, kind, &pinned, err);
    if (!st)
        st = mn_engine_note(e, device, d->backend->map(pinned, &map, err));
    if (!st)
        st = test_with(e, device, group, pinned, map, pages, err);
    if (pinned)
        MN_WATCHED(mn_callee_of(d), "buffer_free", d->backend->buffer_free(pinned));
    mn_free(pages);
    return st;
}

mn_status mn_engine_test_pages(mn_engine *e, uint32_t groups, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        const mn_engine_device *d = &e->devices[i];
        if (d->record->n_members)
            return mn_fail(err, MN_UNSUPPORTED, "%s is a group of devices", d->record->name);
        for (uint32_t k = 0; k < e->graph->hp.n_kv && !st; k++)
            if (d->pages_kv[k] && groups >> k & 1)
                st = test_group(e, i, k, err);
    }
    return st;
}

static void describe_segment(const mn_engine *e, const mn_engine_segment *s, mn_text *to) {
    const mn_device_record *r = e->devices[s->device].record;
    const mn_plugin_record *p = r->plugin;
    mn_text_printf(to, "nodes %u to %u on %s\n", s->node_lo, s->node_hi, r->name);
    mn_text_printf(to, "  device %.64s, %.64s, driver %.64s\n", r->info.name, r->info.uid,
                   r->info.driver);
    mn_text_printf(to, "  plugin %.*s %s, build %s\n", MN_STR_ARG(p->id),
                   p->version ? p->version : "", p->build_id ? p->build_id : "");
    mn_text_printf(to, "  class %u, keys %u, values %u\n", s->precision, s->k_dtype, s->v_dtype);
}

static void describe_memory(const mn_engine *e, const mn_engine_device *d, mn_text *to) {
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++) {
        const mn_memory_layout *l = &d->kv[i];
        if (d->pages_kv[i])
            mn_text_printf(to, "group %u on %s: pages of %u tokens, %llu bytes, flags %llu %llu\n",
                           i, d->record->name, l->page_tokens, (unsigned long long)l->page_bytes,
                           (unsigned long long)l->flags, (unsigned long long)l->cookie);
    }
}

void mn_engine_describe_pages(const mn_engine *e, mn_text *to) {
    const uint64_t *digest = e->graph->abi.digest;
    mn_text_printf(to, "graph %016llx%016llx%016llx%016llx\n", (unsigned long long)digest[0],
                   (unsigned long long)digest[1], (unsigned long long)digest[2],
                   (unsigned long long)digest[3]);
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++)
        mn_text_printf(to, "group %u: pages of %u tokens\n", i, e->group[i].page_tokens);
    for (uint32_t i = 0; i < e->n_segments; i++)
        describe_segment(e, &e->segments[i], to);
    for (uint32_t i = 0; i < e->n_devices; i++)
        describe_memory(e, &e->devices[i], to);
}

/* ---- places ---------------------------------------------------------------------------------- */
/* Pinned memory of a device for all places; n_pages: of a place, by group. */
static mn_status stage_create(mn_engine *e, uint32_t device, const uint32_t *n_pages,
                              mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    stage *x = &e->pages->stages[device];
    void *map = NULL;
    for (uint32_t k = 0; k < e->graph->hp.n_kv; k++)
        x->bytes += n_pages[k] * own_page_bytes(e, d, k);
    if (is_direct(d) || !x->bytes)
        return MN_OK;
    const uint32_t kind = MN_MEM_HOST_PINNED | MN_UNZEROED;
    mn_status st = mn_engine_alloc(e, device, x->bytes * e->pages->n_places, kind, &x->buffer, err);
    if (!st)
        st = mn_engine_note(e, device, d->backend->map(x->buffer, &map, err));
    x->map = map;
    return st;
}

mn_status mn_engine_make_places(mn_engine *e, uint32_t n_places, const uint32_t *n_pages,
                                mn_error *err) {
    mn_engine_pages *p = mn_calloc(1, sizeof *p);
    if (!p)
        return mn_fail_memory(err, sizeof *p);
    e->pages = p;
    p->n_places = n_places;
    p->places = mn_calloc(n_places, sizeof *p->places);
    p->stages = mn_calloc(e->n_devices, sizeof *p->stages);
    bool ok = p->places && p->stages;
    for (uint32_t i = 0; ok && i < n_places; i++) {
        p->places[i].events = mn_calloc(e->n_devices, sizeof(mn_event *));
        p->places[i].used = mn_calloc(e->n_devices, sizeof(uint64_t));
        ok = p->places[i].events && p->places[i].used;
    }
    mn_status st = ok ? MN_OK : mn_fail_memory(err, n_places * sizeof *p->places);
    for (uint32_t i = 0; i < e->n_devices && !st; i++)
        st = stage_create(e, i, n_pages, err);
    return st;
}

/* What was enqueued still writes to the pinned memory. */
static void place_free(mn_engine *e, fetch_place *x) {
    for (uint32_t i = 0; x->events && i < e->n_devices; i++) {
        const mn_engine_device *d = &e->devices[i];
        mn_event_settle(d->backend, mn_callee_of(d), 0, &x->events[i], NULL);
    }
    mn_free(x->parts);
    mn_free(x->events);
    mn_free(x->used);
}

void mn_engine_places_free(mn_engine *e) {
    mn_engine_pages *p = e->pages;
    if (!p)
        return;
    for (uint32_t i = 0; p->places && i < p->n_places; i++)
        place_free(e, &p->places[i]);
    for (uint32_t i = 0; p->stages && i < e->n_devices; i++)
        if (p->stages[i].buffer)
            e->devices[i].backend->buffer_free(p->stages[i].buffer);
    mn_free(p->places);
    mn_free(p->stages);
    mn_free(p);
    e->pages = NULL;
}

/* ---- out of devices -------------------------------------------------------------------------- */
/* Through pinned memory. */
static mn_status fetch_staged(mn_engine *e, fetch_place *x, uint32_t place, mn_buffer *from,
                              const fetched_part *part, uint64_t at, mn_error *err) {
    mn_engine_device *d = &e->devices[part->device];
    const stage *pinned = &e->pages->stages[part->device];
    const uint64_t to = place * pinned->bytes + part->at;
    mn_event *done = NULL;
    void *parts = x->parts;
    mn_status st;
    if (!mn_grow(&parts, &x->cap, x->n + 1, sizeof *x->parts))
        return mn_fail_memory(err, (x->n + 1) * sizeof *x->parts);
    x->parts = parts;
    MN_WATCHED_FOR(mn_callee_of(d), "read", MN_MOVES_NS(part->bytes),
                   MN_RETRY(st, d->backend->read(d->queue, from, at, pinned->buffer, to,
                                                 part->bytes, &done, err)));
    if (st)
        return mn_engine_note(e, part->device, st);
    if (x->events[part->device])
        d->backend->event_free(x->events[part->device]);
    x->events[part->device] = done;
    x->used[part->device] += part->bytes;
    x->parts[x->n++] = *part;
    return MN_OK;
}

/* One of the caller's pages on one device. */
static mn_status fetch_own(mn_engine *e, uint32_t device, uint32_t place, uint32_t group,
                           int32_t page, char *to, mn_error *err) {
    fetch_place *x = &e->pages->places[place];
    const mn_engine_device *d = &e->devices[device];
    const uint64_t bytes = d->kv[group].page_bytes;
    const uint32_t ratio = mn_page_ratio(e, d, group);
    char *map = NULL;
    mn_status st = MN_OK;
    if (is_direct(d))
        st = pages_map(e, device, group, &map, err);
    for (uint32_t i = 0; i < ratio && !st; i++) {
        const uint64_t at = ((uint64_t)page * ratio + i) * bytes;
        const fetched_part part = {device, x->used[device], bytes, to + i * bytes};
        if (map)
            memcpy(part.to, map + at, bytes);
        else
            st = fetch_staged(e, x, place, d->pages_kv[group], &part, at, err);
    }
    return st;
}

mn_status mn_engine_fetch_page(mn_engine *e, uint32_t place, uint32_t group, int32_t page, char *to,
                               mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        if (!e->devices[i].pages_kv[group])
            continue;
        st = fetch_own(e, i, place, group, page, to, err);
        to += own_page_bytes(e, &e->devices[i], group);
    }
    return st;
}

mn_status mn_engine_fetch_poll(mn_engine *e, uint32_t place, mn_error *err) {
    fetch_place *x = &e->pages->places[place];
    for (uint32_t i = 0; i < e->n_devices; i++) {
        mn_engine_device *d = &e->devices[i];
        mn_status st = MN_OK;
        if (!x->events[i])
            continue;
        MN_WATCHED(mn_callee_of(d), "wait", st = d->backend->wait(x->events[i], 0, err));
        if (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT)
            return MN_TIMEOUT;
        d->backend->event_free(x->events[i]);
        x->events[i] = NULL;
        if (st)
            return mn_engine_note(e, i, st);
    }
    for (size_t i = 0; i < x->n; i++) {
        const fetched_part *p = &x->parts[i];
        const stage *pinned = &e->pages->stages[p->device];
        memcpy(p->to, pinned->map + place * pinned->bytes + p->at, p->bytes);
    }
    mn_engine_fetch_drop(e, place);
    return MN_OK;
}

void mn_engine_fetch_drop(mn_engine *e, uint32_t place) {
    fetch_place *x = &e->pages->places[place];
    for (uint32_t i = 0; i < e->n_devices; i++) {
        if (x->events[i])
            e->devices[i].backend->event_free(x->events[i]);
        x->events[i] = NULL;
        x->used[i] = 0;
    }
    x->n = 0;
}

/* ---- into devices ---------------------------------------------------------------------------- */
static mn_status store_own(mn_engine *e, uint32_t device, uint32_t group, int32_t page,
                           const char *from, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    const uint64_t bytes = d->kv[group].page_bytes;
    const uint32_t ratio = mn_page_ratio(e, d, group);
    char *map = NULL;
    mn_status st = MN_OK;
    if (is_direct(d))
        st = pages_map(e, device, group, &map, err);
    for (uint32_t i = 0; i < ratio && !st; i++) {
        const uint64_t at = ((uint64_t)page * ratio + i) * bytes;
        if (map)
            memcpy(map + at, from + i * bytes, bytes);
        else
            st = mn_engine_write(d, d->pages_kv[group], at, from + i * bytes, bytes, err);
    }
    return mn_engine_note(e, device, st);
}

mn_status mn_engine_store_page(mn_engine *e, uint32_t group, int32_t page, const char *from,
                               mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        if (!e->devices[i].pages_kv[group])
            continue;
        st = store_own(e, i, group, page, from, err);
        from += own_page_bytes(e, &e->devices[i], group);
    }
    return st;
}
