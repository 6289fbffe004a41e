/* host.c -- states of sequences in host memory: what the prefix cache knows and the device has no
 * page for any more, and what comes back when a text begins with it.
 *
 * A state that is needed least leaves its page as bytes (mn_engine_fetch_page), in queue order, so
 * that the page is free for steps that are enqueued later. It is still known: a text that begins
 * behind it gets a page again, into which the bytes are written. In memory of the host, too, those
 * that are worth least go first (mn_state_used), and with them what they save.
 *
 * Through pinned memory bytes arrive some time later: a place (mn_engine_make_places) is taken
 * until they have. */
#include "session/kv/pool.h"
#include <time.h>

enum { MOST_STATES = 4096, PLACES = 2 };

/* ---- life ------------------------------------------------------------------------------------ */
uint32_t mn_host_room(const mn_kv *kv) {
    if (kv->state_group < 0 || kv->no_cache)
        return 0;
    const uint64_t bytes = mn_engine_page_bytes(kv->engine, (uint32_t)kv->state_group);
    return bytes ? (uint32_t)MN_MIN(kv->most_host / bytes, (uint64_t)MOST_STATES) : 0;
}

mn_status mn_host_open(mn_kv *kv, mn_error *err) {
    mn_host_states *h = &kv->host;
    uint32_t n_pages[MN_MAX_KV_GROUP] = {0};
    const uint32_t n = mn_host_room(kv);
    if (!n || !kv->prefix.block)
        return MN_OK;
    n_pages[kv->state_group] = 1;
    mn_status st = mn_engine_test_pages(kv->engine, 1u << kv->state_group, err);
    if (!st)
        st = mn_engine_make_places(kv->engine, PLACES, n_pages, err);
    if (st)
        return st;
    h->states = mn_calloc(n, sizeof *h->states);
    if (!h->states)
        return mn_fail_memory(err, n * sizeof *h->states);
    h->bytes = mn_engine_page_bytes(kv->engine, (uint32_t)kv->state_group);
    h->n = n;
    for (uint32_t i = 0; i < PLACES; i++)
        h->waiting[i] = -1;
    return MN_OK;
}

/* The entry is free; whoever named it does not any more. */
static void host_drop(mn_kv *kv, uint32_t at) {
    mn_host_states *h = &kv->host;
    for (uint32_t i = 0; i < PLACES; i++) {
        if (h->waiting[i] != (int32_t)at)
            continue;
        mn_engine_fetch_drop(kv->engine, i);
        h->waiting[i] = -1;
    }
    mn_free(h->states[at].bytes);
    h->states[at] = (mn_host_state){0};
    h->n_used--;
}

void mn_host_close(mn_kv *kv) {
    mn_host_states *h = &kv->host;
    for (uint32_t i = 0; i < PLACES; i++)
        h->waiting[i] = -1; /* the engine is gone, and its places with it */
    for (uint32_t i = 0; i < h->n; i++)
        if (h->states[i].bytes)
            host_drop(kv, i);
    mn_free(h->states);
    *h = (mn_host_states){.n_out = h->n_out, .n_back = h->n_back};
}

void mn_host_forget(mn_kv *kv, int32_t node) {
    mn_prefix_node *x = &kv->prefix.nodes[node];
    if (x->host < 0)
        return;
    host_drop(kv, (uint32_t)x->host);
    x->host = -1;
}

void mn_host_clear(mn_kv *kv) {
    for (uint32_t i = 0; i < kv->host.n; i++)
        if (kv->host.states[i].bytes)
            mn_prefix_lose_state(kv, kv->host.states[i].node);
}

/* ---- bytes on their way ---------------------------------------------------------------------- */
/* Waits until the bytes of the place have arrived; false: they will not, and the state is lost. */
static bool await_place(mn_kv *kv, uint32_t place) {
    enum { PAUSE_NS = 20000 };
    static const uint64_t most_ns = UINT64_C(10000000000);
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    mn_host_states *h = &kv->host;
    const int32_t at = h->waiting[place];
    if (at < 0)
        return true;
    const uint64_t end = mn_now_ns() + most_ns;
    mn_status st = mn_engine_fetch_poll(kv->engine, place, NULL);
    while (st == MN_TIMEOUT && mn_now_ns() < end) {
        nanosleep(&pause, NULL);
        st = mn_engine_fetch_poll(kv->engine, place, NULL);
    }
    if (st) {
        mn_prefix_lose_state(kv, h->states[at].node);
        return false;
    }
    h->waiting[place] = -1;
    return true;
}

static bool await_state(mn_kv *kv, int32_t at) {
    for (uint32_t i = 0; i < PLACES; i++)
        if (kv->host.waiting[i] == at)
            return await_place(kv, i);
    return true;
}

/* ---- out ------------------------------------------------------------------------------------- */
/* A free entry, or that of the state which is worth least, if that is less than `worth`; -1: none.
 */
static int32_t entry_for(mn_kv *kv, uint64_t worth) {
    const mn_host_states *h = &kv->host;
    int32_t least = -1;
    for (uint32_t i = 0; i < h->n; i++) {
        const mn_host_state *s = &h->states[i];
        if (!s->bytes)
            return (int32_t)i;
        if (!s->is_asked && (least < 0 || s->worth < h->states[least].worth))
            least = (int32_t)i;
    }
    if (least < 0 || h->states[least].worth > worth)
        return -1;
    mn_prefix_lose_state(kv, h->states[least].node);
    return least;
}

/* Enqueues the copy; false: it cannot be. */
static bool fetch_state(mn_kv *kv, int32_t at, int32_t page) {
    mn_host_states *h = &kv->host;
    const uint32_t place = h->next_place;
    const uint32_t group = (uint32_t)kv->state_group;
    await_place(kv, place);
    char *bytes = mn_alloc(1, (size_t)h->bytes);
    if (!bytes)
        return false;
    if (mn_engine_fetch_page(kv->engine, place, group, page, bytes, NULL)) {
        mn_engine_fetch_drop(kv->engine, place);
        mn_free(bytes);
        return false;
    }
    h->next_place = (place + 1) % PLACES;
    h->waiting[place] = at;
    h->states[at].bytes = bytes;
    h->n_used++;
    return true;
}

bool mn_host_keep(mn_kv *kv, uint32_t group, int32_t page) {
    mn_host_states *h = &kv->host;
    mn_page_info *info = &kv->pools[group].info[page];
    if (!h->n || !mn_group_is_state(kv, group))
        return false;
    const int32_t node = info->node;
    const int32_t at = entry_for(kv, info->worth);
    if (at < 0 || !fetch_state(kv, at, page))
        return false;
    h->states[at].worth = info->worth;
    h->states[at].node = node;
    h->n_out++;
    kv->prefix.nodes[node].host = at;
    mn_prefix_pages_of(kv, node, group)[0] = -1;
    mn_page_forget(kv, group, page);
    return true;
}

/* ---- back ------------------------------------------------------------------------------------ */
/* A page with the bytes, which the node names; -1: none is free now, or it cannot be written. */
static int32_t store_state(mn_kv *kv, uint32_t slot, const mn_host_state *s) {
    const uint32_t group = (uint32_t)kv->state_group;
    int32_t page = -1;
    if (!mn_state_room(kv, slot) || !mn_page_take(kv, group, &page))
        return -1;
    if (!mn_engine_store_page(kv->engine, group, page, s->bytes, NULL))
        return page;
    mn_page_give(kv, group, page);
    return -1;
}

bool mn_host_bring_back(mn_kv *kv, uint32_t slot, int32_t node) {
    mn_host_states *h = &kv->host;
    const int32_t at = node < 0 ? -1 : kv->prefix.nodes[node].host;
    if (at < 0)
        return true;
    if (!await_state(kv, at))
        return false;
    h->states[at].is_asked = true; /* another may leave its page for it */
    const int32_t page = store_state(kv, slot, &h->states[at]);
    h->states[at].is_asked = false;
    if (page < 0)
        return false;
    mn_page_pool *p = &kv->pools[kv->state_group];
    p->info[page].node = node;
    p->info[page].worth = h->states[at].worth;
    mn_prefix_pages_of(kv, node, (uint32_t)kv->state_group)[0] = page;
    mn_host_forget(kv, node);
    h->n_back++;
    mn_page_give(kv, (uint32_t)kv->state_group, page); /* kept, as the node names it */
    return true;
}

void mn_host_count(const mn_kv *kv, mn_session_load *load) {
    load->states_host = kv->host.n_used;
    load->states_out = kv->host.n_out;
    load->states_back = kv->host.n_back;
}
