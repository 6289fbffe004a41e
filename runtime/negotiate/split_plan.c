/* split_plan.c -- nodes to devices in an order of preference: by what each can, then by what its
 * memory holds.
 *
 * Every device in turn is tried on all nodes that nobody has yet; what is too much for its memory
 * is cut to the largest number of layers from the first on. The plugins bound the memory of whole
 * segments, so every try is cut into segments and asked about. Plans that are no good end as a
 * status with a reason, for negotiate.c makes several and takes the best. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

#define NOBODY (-1)

typedef struct {
    mn_offer *offers;
    const mn_model_graph *g;
    const mn_request *r;
    const int32_t *pin; /* [n_nodes] offer, or MN_UNPINNED; NULL: no node is pinned */
    int32_t *owner;     /* [n_nodes] offer */
    int32_t *trial;     /* [n_nodes] scratch */
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

static const char *split_plan_name_of(const planner *p, uint32_t d) {
    return p->offers[d].record->name;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Whether one of the nodes [lo, hi) reads what the node makes. */
static bool is_read_in(const mn_graph *g, uint32_t node, uint32_t lo, uint32_t hi) {
    const mn_node *n = &g->nodes[node];
    for (uint32_t j = 0; j < n->n_out; j++) {
        const int32_t made = g->operands[n->out_off + j];
        for (uint32_t i = lo; i < hi && made >= 0; i++)
            for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
                const int32_t t = g->operands[g->nodes[i].in_off + k];
                if (t >= 0 && mn_tensor_root(g, (uint32_t)t) == mn_tensor_root(g, (uint32_t)made))
                    return true;
            }
    }
    return false;
}

/* Where the nodes begin that stand at the end of run s and that the run behind it, up to end, does
 * not wait for; s->node_hi: there are none, none with a product, or all of it. */
static uint32_t beside_from(const mn_graph *g, const mn_segment *s, uint32_t end) {
    uint32_t lo = s->node_hi;
    bool is_worth_it = false;
    while (lo > s->node_lo && !is_read_in(g, lo - 1, s->node_hi, end)) {
        lo--;
        const uint32_t op = g->nodes[lo].op;
        is_worth_it |= op == MN_OP_LINEAR || op == MN_OP_MOE_LINEAR;
    }
    return is_worth_it && lo > s->node_lo ? lo : s->node_hi;
}

/* Whether the device of the run goes on by itself while the host sees to another one. */
static bool runs_ahead(const mn_offer *offers, const mn_segment *s) {
    return s->offer != UINT32_MAX && offers[s->offer].record->info.flags & MN_DEVICE_ASYNC;
}

/* Maximal runs of one owner into s, which has room for them. */
static uint32_t fill_runs(const mn_graph *g, const int32_t *owner, mn_segment *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (!i || owner[i] != owner[i - 1])
            s[n++] = (mn_segment){.node_lo = i, .offer = (uint32_t)owner[i]};
        s[n - 1].node_hi = i + 1;
    }
    return n;
}

mn_status mn_plan_segments(const mn_offer *offers, const mn_model_graph *g, const int32_t *owner,
                           mn_segment **out, uint32_t *n, mn_error *err) {
    const mn_graph *abi = &g->abi;
    uint32_t n_runs = 0;
    for (uint32_t i = 0; i < abi->n_nodes; i++)
        n_runs += !i || owner[i] != owner[i - 1];
    mn_segment *s = mn_calloc(2 * (size_t)n_runs, sizeof *s);
    mn_segment *runs = mn_calloc(n_runs, sizeof *runs);
    *out = s;
    *n = 0;
    if (!s || !runs) {
        mn_free(runs);
        return mn_fail_memory(err, 3 * n_runs * sizeof *s);
    }
    fill_runs(abi, owner, runs);
    for (uint32_t k = 0; k < n_runs; k++) {
        uint32_t cut = runs[k].node_hi;
        if (k + 1 < n_runs && runs_ahead(offers, &runs[k]))
            cut = beside_from(abi, &runs[k], runs[k + 1].node_hi);
        s[(*n)++] = runs[k];
        if (cut == runs[k].node_hi)
            continue;
        s[*n - 1].node_hi = cut;
        s[*n] = runs[k];
        s[*n].node_lo = cut;
        s[(*n)++].beside = true;
    }
    mn_free(runs);
    return MN_OK;
}

void mn_plan_times(const mn_segment *s, uint32_t n, double *decode_us, double *prefill_us) {
    for (uint32_t k = 0; k < n; k++) {
        *decode_us += s[k].decode_us;
        *prefill_us += s[k].prefill_us;
        if (!s[k].beside || k + 1 == n)
            continue;
        *decode_us -= MN_MIN(s[k].decode_us, s[k + 1].decode_us);
        *prefill_us -= MN_MIN(s[k].prefill_us, s[k + 1].prefill_us);
    }
}

static mn_status runs_of(const planner *p, const int32_t *owner, mn_segment **out, uint32_t *n) {
    return mn_plan_segments(p->offers, p->g, owner, out, n, p->err);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Adds what the device bounds for segment s; false = it refuses, and why, or it is beyond
 * counting. */
static bool add_need(planner *p, mn_segment *s, mn_need_sum *sum, char *why, size_t cap) {
    mn_offer *o = &p->offers[s->offer];
    mn_error e = MN_ERROR_INIT;
    if (!mn_segment_ask(o, p->g, p->r, s, &e))
        return mn_need_add(o, s, sum) && mn_add_u64(sum->rest, s->boundary_bytes, &sum->rest);
    mn_fail_plain(&e);
    snprintf(why, cap, "%.95s: %.290s", o->record->name, e.msg);
    return false;
}

/* Bytes that the device of offer d would need for what trial gives it; UINT64_MAX with a reason =
 * it refuses. */
static mn_status need_of(planner *p, uint32_t d, uint64_t *need, char *why, size_t cap) {
    mn_need_sum sum = {0};
    mn_segment *s;
    uint32_t n;
    bool counted = true;
    mn_status st = runs_of(p, p->trial, &s, &n);
    if (!st)
        st = mn_boundaries(p->offers, p->g, p->r, s, n, NULL, p->err);
    for (uint32_t k = 0; k < n && !st && counted; k++)
        if (s[k].offer == d)
            counted = add_need(p, &s[k], &sum, why, cap);
    *need = counted ? mn_need_total(&sum) : UINT64_MAX;
    mn_free(s);
    return st;
}

static bool share_memory(const planner *p, uint32_t a, uint32_t b) {
    const char *pool_a = p->offers[a].record->info.mem_pool;
    const char *pool_b = p->offers[b].record->info.mem_pool;
    return a == b || (*pool_a && !strcmp(pool_a, pool_b));
}

/* Memory that is left to offer d when the devices before it in the plan have theirs. 0 in
 * free_bytes: unlimited. */
static uint64_t room_of(const planner *p, uint32_t d) {
    const mn_plan *out = p->out;
    uint64_t left = p->offers[d].free_bytes;
    if (!left)
        return UINT64_MAX - 1;
    for (uint32_t i = 0; i < out->n_devices; i++)
        if (share_memory(p, d, out->device[i]))
            left -= MN_MIN(left, out->used[i]);
    return left;
}

/* ---- nodes to a device ----------------------------------------------------------------------- */

/* Whether device d may have node i in a plan of so many layers: what is pinned belongs to its
 * device, however many layers that has. */
static bool may_own(const planner *p, uint32_t d, uint32_t i, uint32_t n_layers, bool ends) {
    const int32_t layer = p->g->abi.nodes[i].layer;
    if (p->owner[i] != NOBODY || !p->offers[d].can[i])
        return false;
    if (p->pin && p->pin[i] != MN_UNPINNED)
        return p->pin[i] == (int32_t)d;
    return layer < 0 ? ends : (uint32_t)layer < n_layers;
}

/* trial = owner, with d on all nodes that nobody has, that it can, and that lie in layers below
 * n_layers (outside layers: if ends). How many these are. */
static uint32_t try_on(planner *p, uint32_t d, uint32_t n_layers, bool ends) {
    uint32_t took = 0;
    memcpy(p->trial, p->owner, p->n * sizeof *p->trial);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!may_own(p, d, i, n_layers, ends))
            continue;
        p->trial[i] = (int32_t)d;
        took++;
    }
    return took;
}

/* How many layers from the first on, and whether what lies outside of layers goes along. */
typedef struct {
    uint32_t layers;
    bool ends;
    uint64_t need; /* bytes; UINT64_MAX: not even none fits */
} portion;

/* The largest number of layers that fits into room, by bisection: estimates are upper bounds that
 * grow with the segment. */
static mn_status most_layers(planner *p, uint32_t d, uint64_t room, portion *out) {
    uint32_t lo = 0, hi = p->n_layers; /* below lo fits, or nothing does */
    out->layers = 0;
    out->need = UINT64_MAX;
    while (lo <= hi && hi != UINT32_MAX) {
        const uint32_t mid = lo + (hi - lo) / 2;
        uint64_t bytes = 0;
        char why[8];
        mn_status st = MN_OK;
        if (try_on(p, d, mid, out->ends))
            st = need_of(p, d, &bytes, why, sizeof why);
        if (st)
            return st;
        if (bytes > room) {
            hi = mid - 1;
            continue;
        }
        out->layers = mid;
        out->need = bytes;
        lo = mid + 1;
    }
    return MN_OK;
}

/* trial becomes the plan. */
static void split_plan_take(planner *p, uint32_t d, uint64_t need, uint64_t lacks) {
    mn_plan *out = p->out;
    memcpy(p->owner, p->trial, p->n * sizeof *p->owner);
    out->used[out->n_devices] = need;
    out->lacks[out->n_devices] = lacks;
    out->device[out->n_devices++] = d;
}

/* A part of what d could run, which is more than its memory holds: `all` bytes. */
static mn_status give_part(planner *p, uint32_t d, uint64_t room, uint64_t all, bool *starved) {
    portion with = {.ends = true};
    portion without = {.ends = false};
    mn_status st = most_layers(p, d, room, &with);
    if (!st)
        st = most_layers(p, d, room, &without);
    if (st)
        return st;
    /* what comes before and after the layers goes along, unless only that would fit */
    const bool ends = with.need <= room && (with.layers || !without.layers);
    const portion *best = ends ? &with : &without;
    *starved = !try_on(p, d, best->layers, best->ends);
    if (!*starved)
        split_plan_take(p, d, best->need, all);
    return MN_OK;
}

/* Gives d what it can and has memory for. starved: there were nodes for it, and room for none. */
static mn_status split_plan_give(planner *p, uint32_t d, bool *starved) {
    const uint64_t room = room_of(p, d);
    char *why = p->out->reason;
    const size_t cap = sizeof p->out->reason;
    uint64_t all;
    if (!p->offers[d].can || !try_on(p, d, p->n_layers, true))
        return MN_OK;
    mn_status st = need_of(p, d, &all, why, cap);
    if (st)
        return st;
    if (all <= room) {
        split_plan_take(p, d, all, 0);
        return MN_OK;
    }
    if (!*why)
        snprintf(why, cap, "%s: %.2f GiB would be needed, %.2f are free", split_plan_name_of(p, d),
                 (double)all / 0x1p30, (double)room / 0x1p30);
    return give_part(p, d, room, all, starved);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Whether one of the n devices could run node i, where it is pinned that one. */
static bool anyone_can(const planner *p, const uint32_t *order, uint32_t n, uint32_t i) {
    for (uint32_t k = 0; k < n; k++) {
        const mn_offer *o = &p->offers[order[k]];
        const bool elsewhere = p->pin && p->pin[i] != MN_UNPINNED && p->pin[i] != (int32_t)order[k];
        if (o->can && o->can[i] && !elsewhere)
            return true;
    }
    return false;
}

/* Why nodes are left over: nobody can, or nobody has the room. */
static void explain_rest(planner *p, const uint32_t *order, uint32_t n) {
    mn_plan *out = p->out;
    char kind[200];
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->owner[i] != NOBODY)
            continue;
        out->status = MN_OUT_OF_MEMORY;
        if (anyone_can(p, order, n, i))
            continue;
        out->status = MN_UNSUPPORTED;
        mn_offer_node_kind(&p->g->abi, i, kind, sizeof kind);
        snprintf(out->reason, sizeof out->reason, "none of the devices can run %s", kind);
        return;
    }
}

/* Asks the device for a segment of the plan, and adds its times and weight bytes. A refusal is the
 * plan's status. */
static void finish_segment(planner *p, mn_segment *s) {
    mn_plan *out = p->out;
    mn_offer *o = &p->offers[s->offer];
    mn_error e = MN_ERROR_INIT;
    if (mn_segment_ask(o, p->g, p->r, s, &e)) {
        out->status = MN_UNSUPPORTED;
        mn_fail_plain(&e);
        snprintf(out->reason, sizeof out->reason, "%s: %.300s", o->record->name, e.msg);
        return;
    }
    mn_segment_time(o, p->g, s);
    double bytes = 0;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++)
        bytes += mn_node_bytes(&p->g->abi, i);
    for (uint32_t d = 0; d < out->n_devices; d++)
        if (out->device[d] == s->offer)
            out->share[d] += bytes;
}

/* From bytes to parts of 1; a model without weights is all the first device's. */
static void normalise_shares(mn_plan *out) {
    double total = 0;
    for (uint32_t d = 0; d < out->n_devices; d++)
        total += out->share[d];
    for (uint32_t d = 0; d < out->n_devices; d++)
        out->share[d] = total > 0 ? out->share[d] / total : 0;
    if (total <= 0)
        out->share[0] = 1;
}

static mn_status split_plan_finish(planner *p) {
    mn_plan *out = p->out;
    mn_copies *copies = &out->copies;
    mn_status st = runs_of(p, p->owner, &out->segments, &out->n_segments);
    for (uint32_t k = 0; k < out->n_segments && !st && !out->status; k++)
        finish_segment(p, &out->segments[k]);
    if (st || out->status)
        return st;
    st = mn_boundaries(p->offers, p->g, p->r, out->segments, out->n_segments, copies, p->err);
    if (st)
        return st;
    for (uint32_t k = 0; k < out->n_segments; k++)
        out->segments[k].need += out->segments[k].boundary_bytes;
    normalise_shares(out);
    mn_plan_times(out->segments, out->n_segments, &out->decode_us, &out->prefill_us);
    out->decode_us += copies->decode_us;
    out->prefill_us += copies->prefill_us;
    out->score = mn_score(out->decode_us, out->prefill_us);
    return MN_OK;
}

mn_status mn_plan_make(mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                       const uint32_t *order, uint32_t n, const int32_t *pin, mn_plan *out,
                       mn_error *err) {
    planner p = {
        .offers = offers,
        .g = g,
        .r = r,
        .pin = pin,
        .n = g->abi.n_nodes,
        .out = out,
        .err = err,
    };
    *out = (mn_plan){0};
    n = MN_MIN(n, MN_MAX_SPLIT);
    p.n_layers = count_layers(&g->abi);
    p.owner = mn_alloc(p.n, sizeof *p.owner);
    p.trial = mn_alloc(p.n, sizeof *p.trial);
    mn_status st = MN_OK;
    if (!p.owner || !p.trial)
        st = mn_fail_memory(err, p.n * sizeof *p.owner);
    for (uint32_t i = 0; !st && i < p.n; i++)
        p.owner[i] = NOBODY;
    for (uint32_t k = 0; k < n && !st; k++)
        st = split_plan_give(&p, order[k], &out->starved[k]);
    if (!st)
        explain_rest(&p, order, n);
    if (!st && !out->status)
        st = split_plan_finish(&p);
    mn_free(p.owner);
    mn_free(p.trial);
    return st;
}

void mn_plan_free(mn_plan *p) {
    mn_free(p->segments);
    *p = (mn_plan){0};
}

/* ---- in words -------------------------------------------------------------------------------- */

bool mn_plan_owns(const mn_plan *p, uint32_t offer, uint32_t node) {
    for (uint32_t k = 0; k < p->n_segments; k++) {
        const mn_segment *s = &p->segments[k];
        if (node >= s->node_lo && node < s->node_hi)
            return s->offer == offer;
    }
    return false;
}

/* The first and the last of some layers. */
typedef struct {
    int32_t lo, hi;
} layer_span;
#define NO_LAYERS ((layer_span){INT32_MAX, -1})

static void span_add(layer_span *s, int32_t layer) {
    s->lo = MN_MIN(s->lo, layer);
    s->hi = MN_MAX(s->hi, layer);
}

/* Of the routed experts only. */
static bool is_expert(const mn_expert_range *experts, uint32_t n, uint32_t node) {
    for (uint32_t i = 0; i < n; i++)
        if (node >= experts[i].lo && node < experts[i].hi)
            return true;
    return false;
}

/* The layers of a device's nodes, if it has every node of a range of layers but routed experts; the
 * layers of these that it lacks are in *less. Else false. */
static bool layer_range(const mn_plan *p, const mn_graph *g, const mn_expert_range *experts,
                        uint32_t n_experts, uint32_t offer, layer_span *all, layer_span *less) {
    *all = *less = NO_LAYERS;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].layer >= 0 && mn_plan_owns(p, offer, i))
            span_add(all, g->nodes[i].layer);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const int32_t layer = g->nodes[i].layer;
        if (layer < all->lo || layer > all->hi || mn_plan_owns(p, offer, i))
            continue;
        if (!is_expert(experts, n_experts, i))
            return false;
        span_add(less, layer);
    }
    return all->hi >= 0;
}

static void describe_span(const char *before, layer_span s, mn_text *out) {
    if (s.hi < 0)
        return;
    if (s.lo == s.hi)
        mn_text_printf(out, "%s%d", before, s.lo);
    else
        mn_text_printf(out, "%s%d-%d", before, s.lo, s.hi);
}

/* " LINEAR, RMS_NORM": the operations of a device, each once. */
static void list_ops(const mn_plan *p, const mn_graph *g, uint32_t offer, mn_text *out) {
    uint64_t seen = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_op_info *op = mn_op_find(g->nodes[i].op);
        const uint64_t bit = op ? UINT64_C(1) << (op->id & 63) : 0;
        if (!op || seen & bit || !mn_plan_owns(p, offer, i))
            continue;
        mn_text_printf(out, "%s%s", seen ? ", " : " ", op->name);
        seen |= bit;
    }
}

void mn_plan_describe(const mn_plan *p, const mn_offer *offers, const mn_model_graph *g,
                      mn_text *out) {
    mn_expert_range *experts = NULL;
    uint32_t n = 0;
    mn_error unsaid = MN_ERROR_INIT;
    (void)mn_expert_ranges(&g->abi, &experts, &n, &unsaid); /* else operations are listed */
    for (uint32_t d = 0; d < p->n_devices; d++) {
        const uint32_t offer = p->device[d];
        layer_span all;
        layer_span less;
        mn_text_printf(out, "%s%s", d ? ", " : "", offers[offer].record->name);
        if (p->n_devices == 1)
            continue;
        if (d + 1 == p->n_devices)
            mn_text_puts(out, " the rest");
        else if (layer_range(p, &g->abi, experts, n, offer, &all, &less)) {
            describe_span(all.lo == all.hi ? " layer " : " layers ", all, out);
            char which[64] = " without the experts of ";
            if (g->division.n_first)
                snprintf(which, sizeof which, " with %u experts of each of ", g->division.n_first);
            describe_span(which, less, out);
        } else
            list_ops(p, &g->abi, offer, out);
    }
    mn_free(experts);
}
