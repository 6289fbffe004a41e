/* kv.c -- how large the KV cache is. Sequences share its pages, so that it need not have room for
 * all of them at full length: with a number of bytes as many positions as fit into them; without
 * one, all where the memory is there, else what a device has left beside the model. */
#include "negotiate/offer.h"
#include <string.h>

#define MIB(bytes) ((double)(bytes) / 0x1p20)
/* of the free memory that a device keeps: the host's is for others, too */
enum { RESERVE_PART = 16, RESERVE_PART_HOST = 2 };
/* of mn_segment.prefill_us; what a step of wide rows may take, which is how long a cancellation
 * waits */
enum { RATED_ROWS = 512, LONGEST_STEP_US = 250000 };

uint64_t mn_kv_pages_for(const mn_kv_group *group, uint32_t page_tokens, const int64_t *symbol_max,
                         uint32_t ahead, uint64_t positions) {
    const uint64_t all = mn_kv_pages(group, page_tokens, symbol_max, ahead);
    if (group->state)
        return all;
    const uint64_t n = (positions + page_tokens - 1) / page_tokens;
    if (!positions)
        return all;
    return group->window ? MN_MIN(n, all) : n;
}

/* Bytes of the pages that the segment has for so many positions; UINT64_MAX: too many to count. */
static uint64_t segment_bytes(const mn_placement *p, uint32_t segment, const mn_model_graph *g,
                              const mn_request *r, uint64_t positions) {
    const mn_segment *s = &p->segments[segment];
    const uint32_t ahead = mn_steps_ahead(p->offers[s->offer].record, r);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++) {
        const mn_memory_layout *kv = &s->kv[i];
        uint64_t bytes;
        if (!kv->page_bytes)
            continue;
        const uint64_t n =
            mn_kv_pages_for(&g->hp.kv[i], kv->page_tokens, p->symbol_max, ahead, positions);
        if (!mn_mul_u64(n, kv->page_bytes, &bytes) || !mn_add_u64(sum, bytes, &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* ---- what fits ------------------------------------------------------------------------------- */
typedef struct {
    const mn_placement *p;
    const mn_model_graph *g;
    const mn_request *r;
} sizing;

/* Whether the pages for so many positions are at most r->kv_bytes. */
static bool fits_bytes(const sizing *x, uint64_t positions) {
    uint64_t sum = 0;
    for (uint32_t k = 0; k < x->p->n_segments; k++)
        if (!mn_add_u64(sum, segment_bytes(x->p, k, x->g, x->r, positions), &sum))
            return false;
    return sum <= x->r->kv_bytes;
}

/* Whether the device of the offer has room for its share of them, for the rest of its segments, for
 * a second program's scratch, and a reserve. Where contexts of a queue share it, it still is a
 * second one if it is larger than the first, which does not grow behind its first step. */
static bool fits_device(const sizing *x, uint32_t offer, uint64_t positions) {
    const mn_offer *o = &x->p->offers[offer];
    const uint64_t free_bytes = o->free_bytes;
    const bool host = !strcmp(o->record->info.mem_pool, "host");
    uint64_t need = free_bytes / (host ? RESERVE_PART_HOST : RESERVE_PART);
    mn_need_sum sum = {0};
    for (uint32_t k = 0; k < x->p->n_segments; k++) {
        const mn_segment *s = &x->p->segments[k];
        if (s->offer != offer)
            continue;
        mn_segment rest = *s;
        rest.need -= s->kv_bytes;
        if (!mn_need_add(o, &rest, &sum) ||
            !mn_add_u64(need, segment_bytes(x->p, k, x->g, x->r, positions), &need))
            return false;
    }
    if (!mn_add_u64(need, sum.scratch, &need) || !mn_add_u64(need, mn_need_total(&sum), &need))
        return false;
    return !free_bytes || need <= free_bytes;
}

static bool fits_devices(const sizing *x, uint64_t positions) {
    for (uint32_t k = 0; k < x->p->n_segments; k++)
        if (!fits_device(x, x->p->segments[k].offer, positions))
            return false;
    return true;
}

/* The most positions from least to most that fit, if least does. */
static uint64_t most_that_fit(const sizing *x, bool (*fits)(const sizing *, uint64_t),
                              uint64_t least, uint64_t most) {
    while (least < most) {
        const uint64_t middle = least + (most - least + 1) / 2;
        if (fits(x, middle))
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* The placement with pages for so many positions. */
static void resize(mn_placement *p, const mn_model_graph *g, const mn_request *r,
                   uint64_t positions) {
    p->kv_positions = positions;
    for (uint32_t k = 0; k < p->n_segments; k++) {
        mn_segment *s = &p->segments[k];
        const uint32_t ahead = mn_steps_ahead(p->offers[s->offer].record, r);
        const uint64_t bytes = segment_bytes(p, k, g, r, positions);
        s->need += bytes - s->kv_bytes;
        s->kv_bytes = bytes;
        for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++)
            if (s->kv[i].page_bytes)
                s->n_pages[i] = mn_kv_pages_for(&g->hp.kv[i], s->kv[i].page_tokens, p->symbol_max,
                                                ahead, positions);
    }
}

/* ---- the two ways ---------------------------------------------------------------------------- */
static mn_status negotiate_bytes(mn_registry *reg, const mn_model_graph *g, mn_request *r,
                                 mn_placement *out, mn_error *err) {
    const sizing x = {out, g, r};
    r->kv_positions = r->n_batch;
    mn_status st = mn_negotiate(reg, g, r, out, err);
    if (st || !out->n_segments)
        return st;
    if (!fits_bytes(&x, r->n_batch)) {
        uint64_t least = 0;
        for (uint32_t k = 0; k < out->n_segments; k++)
            least += out->segments[k].kv_bytes;
        mn_placement_free(out);
        return mn_fail(err, MN_OUT_OF_MEMORY,
                       "a KV cache of %.1f MiB has no room for one batch of %u positions, which "
                       "need %.1f MiB",
                       MIB(r->kv_bytes), r->n_batch, MIB(least));
    }
    r->kv_positions = most_that_fit(&x, fits_bytes, r->n_batch, UINT32_MAX);
    mn_placement_free(out);
    st = mn_negotiate(reg, g, r, out, err);
    out->kv_positions = r->kv_positions;
    return st;
}

/* Whether memory kept a device from being used, or from being used alone. */
static bool memory_is_short(const mn_placement *p, mn_status st) {
    if (st)
        return st == MN_OUT_OF_MEMORY;
    bool lacks = p->n_segments > 1;
    for (uint32_t i = 0; i < p->n_offers; i++)
        lacks = lacks || p->offers[i].outcome == MN_OUTCOME_OUT_OF_MEMORY;
    return lacks;
}

/* One sequence at full length fits, all at once do not: as many positions as there is memory for,
 * if that is worth it. */
static mn_status negotiate_shared(mn_registry *reg, const mn_model_graph *g, mn_request *r,
                                  mn_placement *out, mn_status st, mn_error *err) {
    mn_placement shared;
    r->kv_positions = r->n_ctx;
    if (!st)
        r->flags |= MN_REQUEST_AGAIN;
    const mn_status now = mn_negotiate(reg, g, r, &shared, NULL);
    if (now)
        return st;
    if (!st && shared.score * 1.25 > out->score) {
        mn_placement_free(&shared);
        return st;
    }
    const uint64_t all = (uint64_t)r->n_seq * r->n_ctx;
    const sizing x = {&shared, g, r};
    resize(&shared, g, r, most_that_fit(&x, fits_devices, r->n_ctx, all));
    mn_log(MN_LOG_INFO, "the KV cache has room for %llu positions, which %u sequences share",
           (unsigned long long)shared.kv_positions, r->n_seq);
    mn_placement_free(out);
    *out = shared;
    if (err)
        err->status = MN_OK;
    return MN_OK;
}

/* Whether a step of wide rows ends soon enough to be cancelled, on the one GPU that runs all. */
static bool may_widen(const mn_placement *p, const mn_request *r) {
    if (r->n_batch_wide <= r->n_batch || p->n_segments != 1)
        return false;
    const mn_segment *s = &p->segments[0];
    const mn_offer *o = &p->offers[s->offer];
    const double wide_us = s->prefill_us / RATED_ROWS * r->n_batch_wide;
    return o->record->info.kind == MN_DEVICE_GPU && o->free_bytes > s->need &&
           wide_us < LONGEST_STEP_US;
}

/* Whether the wide placement is the same one, and leaves most of what the other would leave. */
static bool is_spared(const mn_placement *wide, const mn_placement *p) {
    const mn_segment *s = &p->segments[0];
    const mn_segment *w = &wide->segments[0];
    const mn_offer *o = &p->offers[s->offer];
    if (wide->n_segments != 1 || wide->offers[w->offer].record != o->record)
        return false;
    return w->need <= s->need + (o->free_bytes - s->need) / 4 &&
           wide->kv_positions >= p->kv_positions;
}

/* The record says where rates came from when they were first asked for. */
static void carry_rates(mn_placement *wide, const mn_placement *p) {
    for (uint32_t i = 0; i < MN_MIN(wide->n_offers, p->n_offers); i++)
        if (wide->offers[i].record == p->offers[i].record)
            wide->offers[i].rates = p->offers[i].rates;
}

static mn_status negotiate_rows(mn_registry *reg, const mn_model_graph *g,
                                const mn_request *request, mn_placement *out, mn_error *err) {
    mn_request r = *request;
    if (r.kv_bytes)
        return negotiate_bytes(reg, g, &r, out, err);
    const mn_status st = mn_negotiate(reg, g, &r, out, err);
    if (r.n_seq < 2 || !memory_is_short(out, st))
        return st;
    return negotiate_shared(reg, g, &r, out, st, err);
}

mn_status mn_negotiate_kv(mn_registry *reg, const mn_model_graph *g, const mn_request *request,
                          mn_placement *out, mn_error *err) {
    const mn_status st = negotiate_rows(reg, g, request, out, err);
    if (st || !may_widen(out, request))
        return st;
    mn_placement wide;
    mn_request r = *request;
    r.n_batch = r.n_batch_wide;
    r.flags |= MN_REQUEST_AGAIN;
    if (negotiate_rows(reg, g, &r, &wide, NULL))
        return MN_OK;
    if (is_spared(&wide, out)) {
        carry_rates(&wide, out);
        const mn_placement narrow = *out;
        *out = wide;
        wide = narrow;
    }
    mn_placement_free(&wide);
    return MN_OK;
}
