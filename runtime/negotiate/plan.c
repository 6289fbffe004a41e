/* plan.c -- nodes to devices in an order of preference: by what each can, then by what its memory
 * holds. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

#define NOBODY (-1)

typedef struct {
    mn_offer *offers;
    const mn_model_graph *g;
    const mn_request *r;
    int32_t *owner; /* [n_nodes] offer */
    int32_t *trial; /* [n_nodes] scratch */
    uint32_t n, n_layers;
    mn_plan *out;
    mn_error *err; /* of the host */
} planner;

static uint32_t count_layers(const mn_graph *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].layer >= (int32_t)n)
            n = (uint32_t)g->nodes[i].layer + 1;
    return n;
}

/* Maximal runs of one owner. */
static mn_status runs_of(const planner *p, const int32_t *owner, mn_segment **out, uint32_t *n) {
    *n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        *n += !i || owner[i] != owner[i - 1];
    mn_segment *s = *out = mn_calloc(*n, sizeof *s);
    if (!s)
        return mn_fail_memory(p->err, *n * sizeof *s);
    for (uint32_t i = 0, k = 0; i < p->n; i++) {
        if (i && owner[i] == owner[i - 1])
            s[k - 1].node_hi = i + 1;
        else
            s[k++] = (mn_segment){.node_lo = i, .node_hi = i + 1, .offer = (uint32_t)owner[i]};
    }
    return MN_OK;
}

/* Bytes that the device of offer d would need for what trial gives it; UINT64_MAX with a reason =
 * it refuses. */
static mn_status need_of(planner *p, uint32_t d, uint64_t *need, char *why, size_t cap) {
    mn_segment *s;
    uint32_t n;
    mn_status st = runs_of(p, p->trial, &s, &n);
    if (!st)
        st = mn_boundaries(p->offers, p->g, p->r, s, n, NULL, p->err);
    *need = 0;
    for (uint32_t k = 0; k < n && !st && *need != UINT64_MAX; k++) {
        mn_error e = MN_ERROR_INIT;
        if (s[k].offer != d)
            continue;
        if (mn_segment_ask(&p->offers[d], p->g, p->r, &s[k], &e)) {
            mn_fail_plain(&e);
            snprintf(why, cap, "%.95s: %.290s", p->offers[d].record->name, e.msg);
            *need = UINT64_MAX;
        } else if (!mn_add_u64(*need, s[k].need + s[k].boundary_bytes, need))
            *need = UINT64_MAX;
    }
    mn_free(s);
    return st;
}

/* Memory that is left to offer d when the devices before it in the plan have theirs. 0 in
 * free_bytes: unlimited. */
static uint64_t room_of(const planner *p, uint32_t d) {
    const mn_offer *o = &p->offers[d];
    uint64_t left = o->free_bytes;
    if (!left)
        return UINT64_MAX - 1;
    for (uint32_t i = 0; i < p->out->n_devices; i++) {
        const mn_device_info *a = &o->record->info, *b = &p->offers[p->out->device[i]].record->info;
        bool same = p->out->device[i] == d || (a->mem_pool[0] && !strcmp(a->mem_pool, b->mem_pool));
        if (same)
            left -= MN_MIN(left, p->out->used[i]);
    }
    return left;
}

/* trial = owner, with d on all nodes that nobody has, that it can, and that lie in layers below
 * n_layers (outside layers: if ends). */
static uint32_t try_on(planner *p, uint32_t d, uint32_t n_layers, bool ends) {
    uint32_t took = 0;
    memcpy(p->trial, p->owner, p->n * sizeof *p->trial);
    for (uint32_t i = 0; i < p->n; i++) {
        int32_t layer = p->g->abi.nodes[i].layer;
        bool inside = layer < 0 ? ends : (uint32_t)layer < n_layers;
        if (p->owner[i] != NOBODY || !p->offers[d].can[i] || !inside)
            continue;
        p->trial[i] = (int32_t)d;
        took++;
    }
    return took;
}

/* The largest number of layers that fits, by bisection: estimates are upper bounds that grow with
 * the segment. */
static mn_status most_layers(planner *p, uint32_t d, bool ends, uint64_t room, uint32_t *layers,
                             uint64_t *need) {
    uint32_t lo = 0, hi = p->n_layers; /* lo fits, or nothing does */
    *layers = 0, *need = UINT64_MAX;
    while (lo <= hi && hi != UINT32_MAX) {
        uint32_t mid = lo + (hi - lo) / 2;
        uint64_t bytes = 0;
        char why[8];
        mn_status st = MN_OK;
        if (try_on(p, d, mid, ends))
            st = need_of(p, d, &bytes, why, sizeof why);
        if (st)
            return st;
        if (bytes <= room) {
            *layers = mid, *need = bytes;
            lo = mid + 1;
        } else
            hi = mid - 1;
    }
    return MN_OK;
}

static void take(planner *p, uint32_t d, uint64_t need, uint64_t lacks) {
    mn_plan *out = p->out;
    memcpy(p->owner, p->trial, p->n * sizeof *p->owner);
    out->used[out->n_devices] = need;
    out->lacks[out->n_devices] = lacks;
    out->device[out->n_devices++] = d;
}

static mn_status give(planner *p, uint32_t d, bool *starved) {
    uint64_t room = room_of(p, d), all, with_ends, without;
    uint32_t layers, fewer;
    char *why = p->out->reason;
    if (!p->offers[d].can || !try_on(p, d, p->n_layers, true))
        return MN_OK;
    mn_status st = need_of(p, d, &all, why, sizeof p->out->reason);
    if (st)
        return st;
    if (all <= room)
        return take(p, d, all, 0), MN_OK;
    if (!*why)
        snprintf(why, sizeof p->out->reason, "%s: %.2f GiB would be needed, %.2f are free",
                 p->offers[d].record->name, (double)all / 0x1p30, (double)room / 0x1p30);
    /* What comes before and after the layers goes along, unless only that would fit. */
    st = most_layers(p, d, true, room, &layers, &with_ends);
    if (!st)
        st = most_layers(p, d, false, room, &fewer, &without);
    if (st)
        return st;
    bool ends = with_ends <= room && (layers || !fewer);
    if (!ends)
        layers = fewer;
    *starved = !try_on(p, d, layers, ends);
    if (!*starved)
        take(p, d, ends ? with_ends : without, all);
    return MN_OK;
}

/* Why nodes are left over: nobody can, or nobody has the room. */
static void leftover(planner *p, const uint32_t *order, uint32_t n) {
    mn_plan *out = p->out;
    for (uint32_t i = 0; i < p->n && out->status != MN_UNSUPPORTED; i++) {
        if (p->owner[i] != NOBODY)
            continue;
        bool anyone = false;
        for (uint32_t k = 0; k < n; k++)
            anyone |= p->offers[order[k]].can && p->offers[order[k]].can[i];
        out->status = anyone ? MN_OUT_OF_MEMORY : MN_UNSUPPORTED;
        if (anyone)
            continue;
        char kind[200];
        mn_offer_node_kind(&p->g->abi, i, kind, sizeof kind);
        snprintf(out->reason, sizeof out->reason, "none of the devices can run %s", kind);
    }
}

static mn_status finish(planner *p) {
    mn_plan *out = p->out;
    double total = 0, decode = 0, prefill = 0;
    mn_status st = runs_of(p, p->owner, &out->segments, &out->n_segments);
    for (uint32_t k = 0; k < out->n_segments && !st; k++) {
        mn_segment *s = &out->segments[k];
        mn_error e = MN_ERROR_INIT;
        if (mn_segment_ask(&p->offers[s->offer], p->g, p->r, s, &e)) {
            out->status = MN_UNSUPPORTED;
            mn_fail_plain(&e);
            snprintf(out->reason, sizeof out->reason, "%s: %.300s",
                     p->offers[s->offer].record->name, e.msg);
            return MN_OK;
        }
        mn_segment_time(&p->offers[s->offer], p->g, s);
        decode += s->decode_us, prefill += s->prefill_us;
        for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
            double bytes = mn_node_bytes(&p->g->abi, i);
            total += bytes;
            for (uint32_t d = 0; d < out->n_devices; d++)
                out->share[d] += out->device[d] == s->offer ? bytes : 0;
        }
    }
    if (!st)
        st = mn_boundaries(p->offers, p->g, p->r, out->segments, out->n_segments, &out->copies,
                           p->err);
    if (st)
        return st;
    for (uint32_t k = 0; k < out->n_segments; k++)
        out->segments[k].need += out->segments[k].boundary_bytes;
    for (uint32_t d = 0; d < out->n_devices; d++)
        out->share[d] = total > 0 ? out->share[d] / total : 0;
    if (total <= 0)
        out->share[0] = 1;
    out->score = mn_score(decode + out->copies.decode_us, prefill + out->copies.prefill_us);
    return MN_OK;
}

mn_status mn_plan_make(mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                       const uint32_t *order, uint32_t n, mn_plan *out, mn_error *err) {
    planner p = {.offers = offers, .g = g, .r = r, .n = g->abi.n_nodes, .out = out, .err = err};
    *out = (mn_plan){0};
    n = MN_MIN(n, MN_MAX_SPLIT);
    p.n_layers = count_layers(&g->abi);
    p.owner = mn_alloc(p.n, sizeof *p.owner);
    p.trial = mn_alloc(p.n, sizeof *p.trial);
    mn_status st = p.owner && p.trial ? MN_OK : mn_fail_memory(err, p.n * sizeof *p.owner);
    for (uint32_t i = 0; !st && i < p.n; i++)
        p.owner[i] = NOBODY;
    for (uint32_t k = 0; k < n && !st; k++)
        st = give(&p, order[k], &out->starved[k]);
    if (!st)
        leftover(&p, order, n);
    if (!st && !out->status)
        st = finish(&p);
    mn_free(p.owner);
    mn_free(p.trial);
    return st;
}

void mn_plan_free(mn_plan *p) {
    mn_free(p->segments);
    *p = (mn_plan){0};
}

/* The layers of a device's nodes, if it has every node of a range of layers; else false. */
static bool layer_range(const mn_plan *p, const mn_graph *g, uint32_t offer, int32_t *lo,
                        int32_t *hi) {
    *lo = INT32_MAX, *hi = -1;
    for (int round = 0; round < 2; round++)
        for (uint32_t k = 0; k < p->n_segments; k++)
            for (uint32_t i = p->segments[k].node_lo; i < p->segments[k].node_hi; i++) {
                int32_t layer = g->nodes[i].layer;
                bool mine = p->segments[k].offer == offer;
                if (layer < 0)
                    continue;
                if (!round && mine)
                    *lo = MN_MIN(*lo, layer), *hi = MN_MAX(*hi, layer);
                if (round && !mine && layer >= *lo && layer <= *hi)
                    return false;
            }
    return *hi >= 0;
}

static void list_ops(const mn_plan *p, const mn_graph *g, uint32_t offer, mn_text *out) {
    uint64_t seen = 0;
    for (uint32_t k = 0; k < p->n_segments; k++)
        for (uint32_t i = p->segments[k].node_lo;
             p->segments[k].offer == offer && i < p->segments[k].node_hi; i++) {
            const mn_op_info *op = mn_op_find(g->nodes[i].op);
            if (!op || seen >> (op->id & 63) & 1)
                continue;
            mn_text_printf(out, "%s%s", seen ? ", " : " ", op->name);
            seen |= UINT64_C(1) << (op->id & 63);
        }
}

void mn_plan_describe(const mn_plan *p, const mn_offer *offers, const mn_model_graph *g,
                      mn_text *out) {
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int32_t lo, hi;
        mn_text_printf(out, "%s%s", d ? ", " : "", offers[p->device[d]].record->name);
        if (p->n_devices > 1 && d + 1 == p->n_devices)
            mn_text_puts(out, " the rest");
        else if (p->n_devices > 1 && layer_range(p, &g->abi, p->device[d], &lo, &hi))
            mn_text_printf(out, lo == hi ? " layer %d" : " layers %d-%d", lo, hi);
        else if (p->n_devices > 1)
            list_ops(p, &g->abi, p->device[d], out);
    }
}
