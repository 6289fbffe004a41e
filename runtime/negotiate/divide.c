/* divide.c -- routed experts of one layer on two devices: how many of them, of which layers.
 *
 * Placements of whole layers' experts come first (options.c): they tell what is left of the card's
 * memory if the experts of the last n layers are on the CPU. Of what is left, each of these layers
 * can have some experts on the card, which computes them, and the shared experts, while the CPU
 * computes the others. By the rates of both devices the best n and number of experts are found;
 * only then are graphs built and asked about, a few. The graph whose placement is the fastest
 * becomes the session's, which keeps it, whatever devices it loses: the order of a divided sum
 * belongs to the graph. */
#include "negotiate/choose.h"
#include <stdio.h>
#include <string.h>

/* Times of the routed experts of one layer on both devices, and the bytes of one of them. */
typedef struct {
    mn_expert_range range;
    mn_segment card, cpu; /* their times, all experts of the layer */
    double n_expert, n_chosen, bytes;
    const double *use; /* mn_layer_shape.expert_share; NULL: experts are used alike */
} layer_cost;

typedef struct {
    mn_registry *reg;
    const mn_model_graph *g; /* undivided */
    const mn_divider *divider;
    mn_request r;
    const mn_placement *whole; /* of the undivided graph */
    layer_cost *layers;        /* [n_layers] with experts */
    uint32_t n_layers;
    uint32_t card, cpu;          /* offers of the undivided placement */
    mn_placement best;           /* n_segments 0: none */
    double best_score;           /* with streamed prompts */
    const mn_model_graph *graph; /* of the best */
    mn_option *options;          /* [n_options] what was tried */
    uint32_t n_options;
} divide_search;

/* ---- what is known of whole layers ----------------------------------------------------------- */

/* What the offer would need for the nodes, and how long it would take. false: it cannot have
 * them. */
static bool ask_range(const divide_search *d, uint32_t offer, mn_expert_range e, mn_segment *s) {
    mn_offer *o = &d->whole->offers[offer];
    mn_error unsaid = MN_ERROR_INIT;
    *s = (mn_segment){.node_lo = e.lo, .node_hi = e.hi, .offer = offer};
    for (uint32_t i = e.lo; i < e.hi; i++)
        if (!o->can || !o->can[i])
            return false;
    if (mn_segment_ask(o, d->g, &d->r, s, &unsaid))
        return false;
    mn_segment_time(o, d->g, s);
    return true;
}

static bool cost_layer(const divide_search *d, mn_expert_range e, layer_cost *to) {
    const mn_graph *g = &d->g->abi;
    const mn_node *n = &g->nodes[e.lo];
    const int32_t chosen = g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
    to->range = e;
    to->use = e.layer < d->g->hp.n_layer ? d->g->hp.layer[e.layer].expert_share : NULL;
    to->n_expert = (double)mn_experts_routed(g, e.lo);
    to->n_chosen = chosen < 0 ? 0 : (double)g->tensors[chosen].dim[1];
    if (to->n_expert <= to->n_chosen || to->n_chosen <= 0)
        return false;
    if (!ask_range(d, d->card, e, &to->card) || !ask_range(d, d->cpu, e, &to->cpu))
        return false;
    const mn_segment all = {.node_lo = e.lo, .node_hi = e.hi};
    const double bytes = MN_MAX((double)to->card.estimate.weights, mn_segment_bytes(g, &all));
    to->bytes = bytes / to->n_expert;
    return to->bytes > 0;
}

/* Costs of all layers with experts; none where a layer has no number. */
static mn_status cost_layers(divide_search *d, mn_error *err) {
    mn_expert_range *ranges;
    uint32_t n;
    mn_status st = mn_expert_ranges(&d->g->abi, &ranges, &n, err);
    if (st || !n)
        return st;
    d->layers = mn_calloc(n, sizeof *d->layers);
    if (!d->layers)
        st = mn_fail_memory(err, n * sizeof *d->layers);
    for (uint32_t i = 0; i < n && !st; i++)
        if (cost_layer(d, ranges[i], &d->layers[d->n_layers]))
            d->n_layers++;
    if (d->n_layers < n)
        d->n_layers = 0;
    mn_free(ranges);
    return st;
}

/* Whether a layer has products behind its routed experts, which may stand in front of them. */
static bool has_shared(const divide_search *d) {
    const mn_graph *g = &d->g->abi;
    const mn_expert_range *e = &d->layers[d->n_layers - 1].range;
    for (uint32_t i = e->hi; i < g->n_nodes && g->nodes[i].layer == e->layer; i++)
        if (g->nodes[i].op == MN_OP_LINEAR)
            return true;
    return false;
}

/* ---- prediction ------------------------------------------------------------------------------ */

/* What a layer's time changes by if k of its experts are on the card, and not all on the CPU. */
static double gain_of_layer(const layer_cost *c, uint32_t k) {
    const double here = c->use ? c->use[k] : k / c->n_expert;
    const double away = c->n_chosen * (1 - here); /* rows that are computed for nothing */
    const double token = here + MN_MIN(away, 1) / c->n_chosen;
    const double decode = MN_MAX(c->card.decode_us * token, c->cpu.decode_us * (1 - here));
    const double prefill = MN_MAX(c->card.prefill_us, c->cpu.prefill_us * (1 - here));
    return mn_score(c->cpu.decode_us - decode, c->cpu.prefill_us - prefill);
}

/* The last n layers; bytes: of one expert of each of them. */
static double gain_of_layers(const divide_search *d, uint32_t n, uint32_t k, double *bytes) {
    double gain = 0;
    *bytes = 0;
    for (uint32_t i = d->n_layers - n; i < d->n_layers; i++) {
        gain += gain_of_layer(&d->layers[i], k);
        *bytes += d->layers[i].bytes;
    }
    return gain;
}

typedef struct {
    const mn_option *from; /* whole layers' experts on the CPU; NULL: nothing was found */
    uint32_t k;
    double score;
} candidate;

/* The best number of experts for the option, of at most `room` bytes. */
static candidate best_number(const divide_search *d, const mn_option *o, double room) {
    const uint32_t n_expert = (uint32_t)d->layers[d->n_layers - 1].n_expert;
    candidate best = {.from = NULL};
    double bytes;
    for (uint32_t k = 1; k < n_expert; k++) {
        const double score = o->score - gain_of_layers(d, o->n_layers, k, &bytes);
        if (bytes * k > room)
            break;
        if (!best.from || score < best.score)
            best = (candidate){o, k, score};
    }
    return best;
}

static bool is_usable(const mn_option *o) {
    return !*o->reason && !o->spills && o->n_layers && o->room > o->need;
}

/* The best of all options but `except`. */
static candidate predict_without(const divide_search *d, const mn_option *except) {
    candidate best = {.from = NULL};
    for (uint32_t i = 0; i < d->whole->n_options; i++) {
        const mn_option *o = &d->whole->options[i];
        if (o == except || !is_usable(o) || o->n_layers > d->n_layers)
            continue;
        const candidate c = best_number(d, o, (double)(o->room - o->need));
        if (c.from && (!best.from || c.score < best.score))
            best = c;
    }
    return best;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* The offer of the same device in another placement. */
static uint32_t offer_like(const mn_placement *p, const mn_offer *o) {
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (p->offers[i].record == o->record)
            return i;
    return MN_NO_OFFER;
}

/* Nodes of the second halves. */
static uint32_t nodes_away(const mn_model_graph *g) {
    mn_expert_range *ranges;
    mn_error unsaid = MN_ERROR_INIT;
    uint32_t n;
    uint32_t sum = 0;
    if (mn_expert_ranges(&g->abi, &ranges, &n, &unsaid))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (ranges[i].layer >= g->division.layer_lo)
            sum += ranges[i].hi - ranges[i].lo;
    mn_free(ranges);
    return sum;
}

/* Bytes that the card needs; *spills: others have more than the second halves. */
static uint64_t need_of_card(const divide_search *d, const mn_placement *p, const mn_model_graph *g,
                             bool *spills) {
    const uint32_t card = offer_like(p, &d->whole->offers[d->card]);
    mn_need_sum sum = {0};
    uint32_t n_other = 0;
    for (uint32_t k = 0; k < p->n_segments; k++) {
        const mn_segment *s = &p->segments[k];
        if (s->offer == card)
            mn_need_add(&p->offers[card], s, &sum);
        else
            n_other += s->node_hi - s->node_lo;
    }
    *spills = n_other > nodes_away(g);
    return mn_need_total(&sum);
}

/* change_us: of a prompt, where the card computes experts of the CPU. */
static mn_status divide_note(divide_search *d, const mn_placement *p, const mn_option *from,
                             uint32_t k, uint64_t need, bool spills, double change_us,
                             mn_error *err) {
    const size_t n = d->n_options + 1u;
    mn_option *more = mn_realloc(d->options, n, sizeof *more);
    if (!more)
        return mn_fail_memory(err, n * sizeof *more);
    d->options = more;
    more[d->n_options++] = (mn_option){.n_layers = from->n_layers,
                                       .n_first = k,
                                       .divided = true,
                                       .device = from->device,
                                       .n_segments = p->n_segments,
                                       .n_copies = p->n_copies,
                                       .decode_us = p->decode_us,
                                       .prefill_us = p->prefill_us + change_us,
                                       .score = p->score + mn_score(0, change_us),
                                       .need = need,
                                       .room = from->room,
                                       .spills = spills};
    return MN_OK;
}

/* Negotiates with k experts of each of the option's layers on the card. *need: bytes of the card;
 * *spills: there was no room for that. A graph that cannot be made or placed is no error. */
static mn_status try_division(divide_search *d, const mn_option *from, uint32_t k, uint64_t *need,
                              bool *spills, mn_error *err) {
    const mn_division division = {
        .on = true,
        .n_first = k,
        .layer_lo = d->layers[d->n_layers - from->n_layers].range.layer,
    };
    const mn_model_graph *g;
    mn_placement p;
    *spills = true;
    *need = 0;
    mn_status st = d->divider->graph(d->divider->arg, division, &g, err);
    if (st)
        return st;
    if (mn_negotiate_kv(d->reg, g, &d->r, &p, NULL))
        return MN_OK;
    *need = need_of_card(d, &p, g, spills);
    const double change_us = mn_streams_change(&p, g, &d->r);
    const double score = p.score + mn_score(0, change_us);
    st = divide_note(d, &p, from, k, *need, *spills, change_us, err);
    if (!st && !*spills && (!d->best.n_segments || score < d->best_score)) {
        const mn_placement slower = d->best;
        d->best_score = score;
        d->best = p;
        p = slower;
        d->graph = g;
    }
    mn_placement_free(&p);
    return st;
}

/* Where the number does not fit, one expert tells what segments of halves need besides. */
static mn_status try_candidate(divide_search *d, candidate c, mn_error *err) {
    uint64_t need;
    bool spills;
    double each;
    if (!c.from)
        return MN_OK;
    mn_status st = try_division(d, c.from, c.k, &need, &spills, err);
    if (st || !spills || c.k == 1)
        return st;
    st = try_division(d, c.from, 1, &need, &spills, err);
    if (st || spills || need >= c.from->room)
        return st;
    gain_of_layers(d, c.from->n_layers, 1, &each);
    const double room = (double)(c.from->room - need) + each;
    const candidate next = best_number(d, c.from, MN_MIN(room, each * (c.k - 1)));
    if (!next.from || next.k == 1)
        return MN_OK;
    return try_division(d, next.from, next.k, &need, &spills, err);
}

static const mn_option *fastest_option(const mn_placement *p) {
    const mn_option *best = NULL;
    for (uint32_t i = 0; i < p->n_options; i++)
        if (is_usable(&p->options[i]) && (!best || p->options[i].score < best->score))
            best = &p->options[i];
    return best;
}

static mn_status divide_try_all(divide_search *d, mn_error *err) {
    const mn_option *whole = fastest_option(d->whole);
    uint64_t need;
    bool spills;
    mn_status st = MN_OK;
    if (whole && has_shared(d))
        st = try_division(d, whole, 0, &need, &spills, err);
    const candidate first = predict_without(d, NULL);
    if (!st)
        st = try_candidate(d, first, err);
    if (!st && first.from)
        st = try_candidate(d, predict_without(d, first.from), err);
    return st;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Whether the request leaves to the host where experts are, and the card had no room for all. */
static bool may_divide(const mn_model_graph *g, const mn_request *r, const mn_placement *p) {
    const bool is_free = !r->n_cpu_moe && !r->n_gpu_experts &&
                         !(r->tensor_devices && *r->tensor_devices) && !g->division.on;
    return is_free && p->n_options > 0 && p->n_segments > 0;
}

/* A single device goes to a split only where that gains more than measuring may have got wrong. */
static bool divide_gains(const divide_search *d, mn_placement *p) {
    const double wanted = p->n_segments > 1 ? 1 : MN_SPLIT_GAIN;
    const double score = p->score + mn_score(0, mn_streams_change(p, d->g, &d->r));
    return d->best.n_segments && d->best_score * wanted < score;
}

/* What was tried joins the options of the placement. */
static mn_status join_options(const divide_search *d, mn_placement *from, mn_placement *to,
                              bool divided, mn_error *err) {
    const uint32_t n = from->n_options + d->n_options;
    mn_option *all = mn_realloc(from->options, n, sizeof *all);
    if (!all)
        return mn_fail_memory(err, n * sizeof *all);
    from->options = NULL;
    for (uint32_t i = 0; i < d->n_options; i++)
        all[from->n_options + i] = d->options[i];
    for (uint32_t i = 0; i < n && divided; i++)
        all[i].chosen = all[i].divided && !all[i].spills && all[i].score <= d->best_score;
    from->n_options = 0;
    mn_free(to->options);
    to->options = all;
    to->n_options = n;
    return MN_OK;
}

static mn_status divide_settle(divide_search *d, const mn_model_graph **g, mn_placement *out,
                               mn_error *err) {
    const bool gains = divide_gains(d, out);
    if (!d->n_options)
        return MN_OK;
    if (!gains)
        return join_options(d, out, out, false, err);
    const mn_status st = join_options(d, out, &d->best, true, err);
    if (st)
        return st;
    mn_placement_free(out);
    *out = d->best;
    *g = d->graph;
    d->best = (mn_placement){0};
    return MN_OK;
}

/* The user says how many experts of each layer a card has. */
static mn_status negotiate_fixed(mn_registry *reg, const mn_model_graph **g,
                                 const mn_divider *divider, const mn_request *r, mn_placement *out,
                                 mn_error *err) {
    const mn_division division = {.on = true, .n_first = r->n_gpu_experts};
    const mn_model_graph *own = *g;
    mn_status st = MN_OK;
    if (!own->division.on && r->n_gpu_experts != MN_EXPERTS_NONE)
        st = divider->graph(divider->arg, division, &own, err);
    if (!st)
        st = mn_negotiate_kv(reg, own, r, out, err);
    *g = own;
    return st;
}

mn_status mn_negotiate_divided(mn_registry *reg, const mn_model_graph **g,
                               const mn_divider *divider, const mn_request *req, mn_placement *out,
                               mn_error *err) {
    if (req->n_gpu_experts)
        return negotiate_fixed(reg, g, divider, req, out, err);
    mn_status st = mn_negotiate_kv(reg, *g, req, out, err);
    if (st || !may_divide(*g, req, out))
        return st;
    divide_search d = {
        .reg = reg,
        .g = *g,
        .divider = divider,
        .r = *req,
        .whole = out,
        .card = out->options[0].device,
        .cpu = out->options[0].cpu,
    };
    d.r.flags = (d.r.flags | MN_REQUEST_AGAIN) & ~MN_REQUEST_MEASURE;
    if (d.cpu != d.card)
        st = cost_layers(&d, err);
    if (!st && d.n_layers)
        st = divide_try_all(&d, err);
    if (!st)
        st = divide_settle(&d, g, out, err);
    if (st)
        mn_placement_free(out);
    mn_placement_free(&d.best);
    mn_free(d.options);
    mn_free(d.layers);
    return st;
}
