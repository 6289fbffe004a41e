/* streams.c -- routed experts of a CPU's segments, computed on the card in prompts: whether, from
 * how many rows on, and what it costs of the card's memory.
 *
 * A layer's experts take their bytes by the rate at which they reach the card, however many rows
 * there are; the CPU takes a time for each row. So there is a number of rows from which on the card
 * is faster. Asked about once the placement is made, which stays as it is: the rows alone decide in
 * each step (engine/stream.c). */
#include "graph/stream.h"
#include "negotiate/crossing.h"
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

/* Of a room for experts: 2 ms of a bus of 16 GB/s. */
#define ROOM_BYTES (32.0 * 1024 * 1024)
/* What a copy to pinned memory and on to the card asks of main memory: a read, a write, a read. */
#define COPY_PASSES 3

typedef struct {
    mn_placement *p;
    const mn_model_graph *g;
    const mn_request *r;
    mn_stream_plan *plan;
    int64_t max_rows; /* of a step */
    uint64_t digests[MN_STREAM_KINDS][4];
    uint64_t scratch; /* the largest of a program, or their sum where they share none */
    double rows;      /* that the card needs to be faster; 0: a rate is missing */
    double change_us; /* of a prompt's time */
} stream_search;

static mn_offer *card_of(const stream_search *s) {
    return &s->p->offers[s->plan->card];
}

static void say_why(stream_search *s, const char *why) {
    if (!*s->plan->why)
        snprintf(s->plan->why, sizeof s->plan->why, "%.190s", why);
}

/* ---- which segments -------------------------------------------------------------------------- */
/* Whether segment k is the experts of one layer, and segments of one card are around it. No group:
 * its members would have a share of each expert. */
static bool is_candidate(const stream_search *s, const mn_expert_range *e, uint32_t n_ranges,
                         uint32_t k) {
    const mn_segment *list = s->p->segments;
    if (!k || k + 1 >= s->p->n_segments || !mn_offer_is_cpu(&s->p->offers[list[k].offer]))
        return false;
    const uint32_t card = list[k - 1].offer;
    if (card != list[k + 1].offer || card == list[k].offer || s->p->offers[card].record->n_members)
        return false;
    for (uint32_t i = 0; i < n_ranges; i++)
        if (e[i].lo == list[k].node_lo && e[i].hi == list[k].node_hi)
            return true;
    return false;
}

/* ---- what the card says ---------------------------------------------------------------------- */
/* Nodes [lo, hi) of the graph as a question; NULL: out of memory. */
static const mn_compile *ask_nodes(const stream_search *s, const mn_stream_graph *g, uint32_t lo,
                                   uint32_t hi, mn_sealed **owner) {
    int64_t max[MN_STREAM_SYMBOLS];
    mn_stream_symbols(g, max);
    const mn_compile c = {.size = sizeof c,
                          .precision = card_of(s)->precision,
                          .graph = g->given,
                          .node_lo = lo,
                          .node_hi = hi,
                          .symbol_max = max,
                          .n_sets = 1,
                          .flags = lo ? 0 : MN_COMPILE_UPDATES};
    return mn_given_compile(&c, owner);
}

/* Whether the card can run all of the nodes. */
static bool supports(const mn_offer *o, const mn_compile *c) {
    enum { MOST = 16 };
    mn_verdict v[MOST];
    mn_error unsaid = MN_ERROR_INIT;
    mn_status st = MN_OK;
    const uint32_t n = c->node_hi - c->node_lo;
    if (n > MOST)
        return false;
    memset(v, 0, sizeof v);
    MN_WATCHED(o->record->plugin->callee, "supports",
               st = o->record->plugin->backend->supports(o->device, c, v, sizeof *v, &unsaid));
    for (uint32_t i = 0; i < n && !st; i++)
        if (v[i].verdict == MN_VERDICT_NO)
            return false;
    return !st;
}

static bool estimate(const stream_search *s, const mn_stream_graph *g, uint32_t lo, uint32_t hi,
                     mn_estimate *out) {
    const mn_offer *o = card_of(s);
    mn_error unsaid = MN_ERROR_INIT;
    mn_sealed *pages;
    mn_status st = MN_OK;
    const mn_compile *c = ask_nodes(s, g, lo, hi, &pages);
    *out = (mn_estimate){.size = sizeof *out};
    if (!c)
        return false;
    const bool can = supports(o, c);
    if (can)
        MN_WATCHED(o->record->plugin->callee, "estimate",
                   st = o->record->plugin->backend->estimate(o->device, c, out, &unsaid));
    mn_sealed_free(pages);
    return can && !st && out->weights < UINT64_C(1) << 50 && out->scratch < UINT64_C(1) << 50;
}

/* Bytes of the buffers of a kind (engine/stream.c). */
static uint64_t buffer_bytes(const mn_stream_graph *g) {
    const int32_t all[] = {g->in[0], g->in[1],  g->rows,    g->experts, g->made, g->all,
                           g->order, g->sorted, g->weights, g->chosen,  g->sum};
    int64_t max[MN_STREAM_SYMBOLS];
    uint64_t sum = 0;
    mn_stream_symbols(g, max);
    for (size_t i = 0; i < MN_COUNT(all); i++) {
        uint64_t bytes = 0;
        if (all[i] >= 0 && mn_tensor_bytes(&g->abi, (uint32_t)all[i], max, &bytes))
            sum += bytes;
    }
    return sum;
}

/* The needs of one more kind of layers. false: the card cannot have it. */
static bool add_kind(stream_search *s, const mn_stream_graph *g) {
    mn_stream_plan *plan = s->plan;
    mn_estimate products;
    mn_estimate order;
    mn_estimate sum;
    if (!estimate(s, g, 0, g->n_product, &products) ||
        !estimate(s, g, g->n_product, g->n_product + 1, &order) ||
        !estimate(s, g, g->n_product + 1, g->abi.n_nodes, &sum))
        return false;
    if (mn_device_shares_scratch(card_of(s)->record)) {
        s->scratch = MN_MAX(s->scratch, products.scratch);
        s->scratch = MN_MAX(s->scratch, MN_MAX(order.scratch, sum.scratch));
    } else
        s->scratch += plan->n_rooms * products.scratch + order.scratch + sum.scratch;
    plan->room_bytes = MN_MAX(plan->room_bytes, products.weights);
    plan->need += plan->n_rooms * products.weights + buffer_bytes(g);
    if (!plan->n_kinds) /* the queues of the rooms put as long as the engine lives */
        plan->need += products.import_peak;
    plan->pinned = plan->n_rooms * products.host_pinned;
    plan->precision = card_of(s)->precision;
    plan->row_grain = products.row_grain;
    memcpy(s->digests[plan->n_kinds++], g->abi.digest, sizeof g->abi.digest);
    return true;
}

static bool knows_kind(const stream_search *s, const mn_stream_graph *g) {
    for (uint32_t i = 0; i < s->plan->n_kinds; i++)
        if (!memcmp(s->digests[i], g->abi.digest, sizeof g->abi.digest))
            return true;
    return false;
}

/* ---- rates ----------------------------------------------------------------------------------- */
/* GB/s at which experts reach the card: each room's thread copies at the rate that was measured of
 * one, up to what the bus is claimed to have and main memory lets through. 0: not measured. */
static double rate_to_card(const stream_search *s, const mn_offer *cpu) {
    const mn_rates *card = &card_of(s)->rates;
    if (card->source < MN_RATES_CACHED || cpu->rates.source < MN_RATES_CACHED)
        return 0;
    const double bus = mn_capped(card_of(s)->record->info.h2d_gbps, MN_MOST_BUS_GBPS);
    const double one = card->copy_gbps;
    const double memory = cpu->rates.type[0].decode_gbps / COPY_PASSES;
    return MN_MIN(MN_MIN(one * s->plan->n_rooms, MN_MAX(bus, one)), memory);
}

/* The share of the groups that are copied: of divided layers those with experts of the CPU. */
static double copied_share(const stream_search *s, const mn_stream_graph *g) {
    const int64_t first = g->of_resident < 0 ? 0 : s->g->division.n_first / g->group;
    return 1 - (double)(first * g->group) / (double)g->n_expert;
}

/* Times of the layer's experts; cpu: the segment that has them. false: a rate is missing. */
static bool times_of(const stream_search *s, const mn_segment *cpu, const mn_stream_graph *g,
                     double bytes, mn_stream_times *t) {
    mn_segment card = {.node_lo = cpu->node_lo, .node_hi = cpu->node_hi, .offer = s->plan->card};
    const double rate = rate_to_card(s, &s->p->offers[cpu->offer]);
    if (rate <= 0)
        return false;
    s->plan->gbps = rate;
    mn_segment_time(card_of(s), s->g, &card);
    const double share = copied_share(s, g);
    const double n_groups = share * (double)(g->n_expert / g->group);
    *t = (mn_stream_times){
        .bus_us = share * bytes / rate * 1e-3,
        .launch_us = n_groups * (g->n_product + 2) * card_of(s)->rates.node_us,
        .card_us = card.prefill_us / MN_PROMPT_ROWS,
        .cpu_us = cpu->prefill_us / MN_PROMPT_ROWS,
    };
    return true;
}

/* Of a prompt's time, if the card computes them: each of its steps has all experts copied. */
static double change_by(const stream_search *s, const mn_stream_times *t) {
    const double rows = MN_MIN((double)s->max_rows, MN_PROMPT_ROWS);
    const double n_steps = MN_PROMPT_ROWS / MN_MAX(rows, 1);
    const double card_us = t->launch_us + rows * t->card_us;
    return n_steps * MN_MAX(t->bus_us, card_us) - MN_PROMPT_ROWS * t->cpu_us;
}

/* Of the layer: rows from which on the card is faster, and how long it takes for a prompt. */
static void add_times(stream_search *s, const mn_segment *cpu, const mn_stream_graph *g,
                      double bytes) {
    mn_segment here = {.node_lo = cpu->node_lo, .node_hi = cpu->node_hi, .offer = cpu->offer};
    mn_stream_times t;
    mn_segment_time(&s->p->offers[cpu->offer], s->g, &here); /* by rates that may be newer */
    if (!times_of(s, &here, g, bytes, &t)) {
        s->rows = 0;
        return;
    }
    s->rows = MN_MAX(s->rows, mn_stream_rows(&t));
    s->change_us += change_by(s, &t);
}

double mn_stream_rows(const mn_stream_times *t) {
    if (t->cpu_us <= t->card_us)
        return MN_STREAM_NEVER;
    const double rows = MN_MAX(t->bus_us / t->cpu_us, t->launch_us / (t->cpu_us - t->card_us));
    return MN_MIN(rows, MN_STREAM_NEVER);
}

/* ---- the whole ------------------------------------------------------------------------------- */
/* The layer's experts as a graph, bytes of all of them, and whether the card can have its kind. */
static mn_status ask_layer(stream_search *s, mn_node_range nodes, mn_stream_graph *g, double *bytes,
                           bool *can, mn_error *err) {
    const mn_graph *abi = &s->g->abi;
    const mn_segment range = {.node_lo = nodes.lo, .node_hi = nodes.hi};
    const double share = mn_experts_share(abi, nodes.lo);
    const int64_t n_expert = mn_experts_routed(abi, nodes.lo);
    mn_error why = MN_ERROR_INIT;
    *g = (mn_stream_graph){0};
    *can = false;
    *bytes = mn_segment_bytes(abi, &range) / MN_MAX(share, 1e-3);
    if (n_expert < 2 || !s->g->weights)
        return MN_OK;
    const int64_t group = mn_stream_group(n_expert, *bytes, ROOM_BYTES);
    const mn_status st =
        mn_stream_graph_make(s->g, nodes.lo, nodes.hi, group, s->max_rows, s->max_rows, g, &why);
    if (st)
        say_why(s, why.msg);
    if (st && st != MN_UNSUPPORTED)
        return mn_fail(err, st, "%s", why.msg);
    *can = !st && (knows_kind(s, g) || (s->plan->n_kinds < MN_STREAM_KINDS && add_kind(s, g)));
    if (!st && !*can)
        say_why(s, "the card cannot compute them a few at a time");
    return MN_OK;
}

static mn_status add_segment(stream_search *s, uint32_t k, mn_error *err) {
    mn_segment *segment = &s->p->segments[k];
    const mn_node_range nodes = {segment->node_lo, segment->node_hi};
    mn_stream_graph g;
    double bytes;
    bool can;
    const mn_status st = ask_layer(s, nodes, &g, &bytes, &can, err);
    if (can) {
        segment->stream_group = g.group;
        s->plan->n_layers++;
        s->plan->group = (uint32_t)g.group;
        add_times(s, segment, &g, bytes);
    }
    mn_stream_graph_free(&g);
    return st;
}

/* Whether the card has the memory beside its segments. */
static bool has_memory(stream_search *s) {
    const mn_offer *o = card_of(s);
    mn_need_sum sum = {0};
    for (uint32_t k = 0; k < s->p->n_segments; k++)
        if (s->p->segments[k].offer == s->plan->card && !mn_need_add(o, &s->p->segments[k], &sum))
            return false;
    const bool shares = mn_device_shares_scratch(o->record);
    s->plan->need += shares ? s->scratch - MN_MIN(s->scratch, sum.scratch) : s->scratch;
    const uint64_t used = mn_need_total(&sum);
    if (!o->free_bytes || (used <= o->free_bytes && s->plan->need <= o->free_bytes - used))
        return true;
    char why[160];
    snprintf(why, sizeof why, "%s needs %.1f MB more for them, and has %.1f MB left",
             o->record->name, (double)s->plan->need * 1e-6,
             o->free_bytes > used ? (double)(o->free_bytes - used) * 1e-6 : 0);
    say_why(s, why);
    return false;
}

/* By the request, or by the rates. */
static void set_rows(stream_search *s) {
    mn_stream_plan *plan = s->plan;
    const int64_t most = s->max_rows;
    const double least = MN_FEW_ROWS + 1;
    char why[120];
    plan->faster_from = s->rows;
    if (s->r->stream_rows)
        plan->rows = s->r->stream_rows;
    else if (card_of(s)->precision == MN_PRECISION_EXACT)
        say_why(s, "in class exact a row has the same bits in every step, so that one device "
                   "computes it: not without a number in stream_experts");
    else if (s->rows <= 0)
        say_why(s, "the rates of the devices were not measured");
    else if (s->rows > (double)most) {
        snprintf(why, sizeof why, "the card is faster from %.0f rows on, and a step has %lld",
                 s->rows, (long long)most);
        say_why(s, s->rows < MN_STREAM_NEVER ? why : "the CPU is as fast as the card");
    } else {
        plan->rows = (uint32_t)MN_MAX(s->rows + 1, least);
        plan->by_rates = true;
    }
    plan->prefill_us = s->p->prefill_us;
    if (plan->rows && plan->rows <= MN_PROMPT_ROWS && s->rows > 0)
        plan->prefill_us += s->change_us;
}

/* Where the choice of devices needed no rates, they are measured now: once, for they are kept. */
static void need_rates(const stream_search *s, uint32_t cpu) {
    mn_offer *both[] = {card_of(s), &s->p->offers[cpu]};
    if (s->r->stream_rows || card_of(s)->precision == MN_PRECISION_EXACT)
        return;
    for (size_t i = 0; i < MN_COUNT(both); i++)
        if (both[i]->rates.source < MN_RATES_CACHED)
            mn_rates_get(both[i], s->g, s->r, true);
}

static mn_status search(stream_search *s, const mn_expert_range *ranges, uint32_t n_ranges,
                        mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t k = 0; k < s->p->n_segments && !st; k++) {
        if (!is_candidate(s, ranges, n_ranges, k))
            continue;
        if (!s->plan->record) {
            s->plan->card = s->p->segments[k - 1].offer;
            s->plan->record = card_of(s)->record;
            need_rates(s, s->p->segments[k].offer);
        }
        if (s->p->segments[k - 1].offer == s->plan->card)
            st = add_segment(s, k, err);
    }
    if (!st && s->plan->n_layers && has_memory(s))
        set_rows(s);
    for (uint32_t k = 0; k < s->p->n_segments && !s->plan->rows; k++)
        s->p->segments[k].stream_group = 0;
    return st;
}

static uint32_t rooms_for(const mn_request *r) {
    return MN_MAX(MN_MIN(r->threads / 2, MN_STREAM_ROOMS), 2u);
}

mn_status mn_negotiate_streams(mn_placement *p, const mn_model_graph *g, const mn_request *r,
                               mn_error *err) {
    stream_search s = {.p = p, .g = g, .r = r, .plan = &p->stream};
    mn_expert_range *ranges;
    uint32_t n;
    p->stream = (mn_stream_plan){.n_rooms = rooms_for(r)};
    if (r->stream_rows == MN_EXPERTS_NONE || !p->n_segments)
        return MN_OK;
    s.max_rows = p->symbol_max[MN_SYM_TOKENS];
    mn_status st = mn_expert_ranges(&g->abi, &ranges, &n, err);
    if (st)
        return st;
    st = search(&s, ranges, n, err);
    mn_free(ranges);
    const uint32_t silent = MN_REQUEST_EXPLAIN | MN_REQUEST_AGAIN;
    const bool asked = r->stream_rows && s.plan->record && !(r->flags & silent);
    if (!st && asked && !s.plan->rows)
        mn_log(MN_LOG_WARN, "stream_experts has no effect: %s", s.plan->why);
    return st;
}

/* Of each layer's experts, on both devices: fills change_us, and s->rows. false: the card cannot
 * have some, or a rate is missing. */
static bool expect_layers(stream_search *s, uint32_t cpu, const mn_expert_range *ranges, uint32_t n,
                          double *change_us) {
    mn_error unsaid = MN_ERROR_INIT;
    bool can = true;
    for (uint32_t i = 0; i < n && can; i++) {
        const mn_node_range nodes = {ranges[i].lo, ranges[i].hi};
        mn_segment here = {.node_lo = nodes.lo, .node_hi = nodes.hi, .offer = cpu};
        mn_stream_graph g;
        mn_stream_times t = {0};
        double bytes;
        ask_layer(s, nodes, &g, &bytes, &can, &unsaid);
        mn_segment_time(&s->p->offers[cpu], s->g, &here);
        can = can && times_of(s, &here, &g, bytes, &t);
        s->rows = can ? MN_MAX(s->rows, mn_stream_rows(&t)) : 0;
        change_us[i] = can ? change_by(s, &t) : 0;
        mn_stream_graph_free(&g);
    }
    return can;
}

uint64_t mn_streams_expect(mn_placement *p, uint32_t card, uint32_t cpu, const mn_model_graph *g,
                           const mn_request *r, const mn_expert_range *ranges, uint32_t n,
                           double *change_us) {
    mn_stream_plan plan = {.n_rooms = rooms_for(r), .card = card};
    stream_search s = {.p = p, .g = g, .r = r, .plan = &plan, .max_rows = r->n_batch};
    const bool by_rates = !r->stream_rows;
    const bool is_exact = p->offers[card].precision == MN_PRECISION_EXACT;
    const bool never = r->stream_rows == MN_EXPERTS_NONE || card == cpu || (by_rates && is_exact);
    const bool can = n && !never && expect_layers(&s, cpu, ranges, n, change_us);
    const double from = by_rates ? s.rows : r->stream_rows;
    const bool some = can && from <= (double)s.max_rows;
    for (uint32_t i = 0; i < n && !(some && from <= MN_PROMPT_ROWS); i++)
        change_us[i] = 0;
    if (!some)
        return 0;
    return plan.need + (mn_device_shares_scratch(p->offers[card].record) ? 0 : s.scratch);
}

double mn_streams_change(mn_placement *p, const mn_model_graph *g, const mn_request *r) {
    mn_error unsaid = MN_ERROR_INIT;
    if (mn_negotiate_streams(p, g, r, &unsaid) || !p->stream.rows)
        return 0;
    return p->stream.prefill_us - p->prefill_us;
}
