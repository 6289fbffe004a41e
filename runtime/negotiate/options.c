/* options.c -- where routed experts are: placements that leave those of some layers to the CPU and
 * everything else to the devices in front of it, beside placements by whole layers.
 *
 * A token reads all of a layer but its experts, and few of these: a byte of attention on a card
 * saves more time than a byte of experts. So a card that lacks memory gets everything else first,
 * then the experts of as many layers as fit beside what prompts need (streams.c). From the last
 * layer on, for the first devices of a list get the first layers. What was considered is listed in
 * the placement, for the record; the list belongs to it. */
#include "negotiate/choose.h"
#include <stdio.h>
#include <string.h>

mn_status mn_options_begin(mn_chooser *c) {
    const uint32_t n_nodes = c->g->abi.n_nodes;
    mn_status st = mn_expert_ranges(&c->g->abi, &c->experts, &c->n_experts, c->err);
    if (!st)
        st = mn_pins_read(c);
    if (st)
        return st;
    c->pin = mn_alloc(n_nodes, sizeof *c->pin);
    if (!c->pin)
        return mn_fail_memory(c->err, n_nodes * sizeof *c->pin);
    const bool asked = c->r->n_cpu_moe && c->r->n_cpu_moe != MN_EXPERTS_NONE;
    if (asked && !c->n_experts && !(c->r->flags & MN_REQUEST_AGAIN))
        mn_log(MN_LOG_WARN, "the model has no routed experts that could be on the CPU");
    return MN_OK;
}

void mn_options_end(mn_chooser *c) {
    mn_pins_free(c);
    mn_free(c->experts);
    mn_free(c->pin);
}

bool mn_experts_are_fixed(const mn_chooser *c) {
    return c->n_rules || (c->n_experts && (c->r->n_cpu_moe || c->g->division.on));
}

/* ---- one placement --------------------------------------------------------------------------- */

/* The device that gets experts: of the CPUs behind the first device the first one, since an order
 * has the best in front; else the first device itself. */
static uint32_t cpu_of(const mn_chooser *c, const mn_order *w) {
    for (uint32_t k = 1; k <= w->n; k++)
        if (mn_offer_is_cpu(mn_offer_at(c, w->at[k % w->n])))
            return w->at[k % w->n];
    return MN_NO_OFFER;
}

/* The experts of n layers from `first` on, counted in layers that have some, belong to the CPU; how
 * many nodes these are. */
static uint32_t pin_experts(mn_chooser *c, uint32_t cpu, uint32_t first, uint32_t n) {
    uint32_t pinned = 0;
    for (uint32_t i = 0; i < c->g->abi.n_nodes; i++)
        c->pin[i] = MN_UNPINNED;
    for (uint32_t k = first; k < first + n; k++)
        for (uint32_t i = c->experts[k].lo; i < c->experts[k].hi; i++, pinned++)
            c->pin[i] = (int32_t)cpu;
    return pinned;
}

/* Whether somebody in the order is no CPU, and somebody is one. */
static bool has_both(const mn_chooser *c, const mn_order *w) {
    bool cpu = false;
    bool other = false;
    for (uint32_t k = 0; k < w->n; k++) {
        const bool is_cpu = mn_offer_is_cpu(mn_offer_at(c, w->at[k]));
        cpu |= is_cpu;
        other |= !is_cpu;
    }
    return cpu && other;
}

/* The second half of divided experts belongs to the CPU, as long as another device has the rest. */
static void pin_division(mn_chooser *c, const mn_order *w, uint32_t cpu) {
    for (uint32_t k = 0; k < c->n_experts && c->g->division.on && has_both(c, w); k++)
        for (uint32_t i = c->experts[k].lo; i < c->experts[k].hi; i++)
            if (c->experts[k].layer >= c->g->division.layer_lo)
                c->pin[i] = (int32_t)cpu;
}

static mn_status plan_pinned(mn_chooser *c, const mn_order *w, mn_plan *out) {
    return mn_plan_make(c->p->offers, c->g, c->r, w->at, w->n, c->pin, out, c->err);
}

/* By the request: experts of the first layers, then what its rules say. */
mn_status mn_plan_order(mn_chooser *c, const mn_order *w, mn_plan *out) {
    const bool none = !c->r->n_cpu_moe || c->r->n_cpu_moe == MN_EXPERTS_NONE;
    const uint32_t n = none ? 0 : MN_MIN(c->r->n_cpu_moe, c->n_experts);
    const uint32_t cpu = cpu_of(c, w);
    char why[sizeof out->reason] = "";
    if (n && cpu == MN_NO_OFFER)
        snprintf(why, sizeof why,
                 "the experts of %u layers are to be on the CPU, and no CPU is in the list", n);
    else
        pin_experts(c, cpu, 0, n);
    if (!*why)
        pin_division(c, w, cpu);
    if (!*why && mn_pins_put(c, w, cpu, why, sizeof why))
        return plan_pinned(c, w, out);
    *out = (mn_plan){.status = MN_UNSUPPORTED};
    memcpy(out->reason, why, sizeof out->reason);
    return MN_OK;
}

/* ---- the record ------------------------------------------------------------------------------ */

void mn_options_forget(mn_chooser *c) {
    mn_free(c->p->options);
    c->p->options = NULL;
    c->p->n_options = 0;
    c->why_not[0] = 0;
}

/* Appends what came of a plan; n: layers whose experts are on the CPU; change_us: of a prompt,
 * where a card computes them (streams.c). */
static mn_status options_note(mn_chooser *c, const mn_plan *plan, uint32_t cpu, uint32_t n,
                              bool spills, double change_us) {
    mn_placement *p = c->p;
    const size_t count = p->n_options + 1u;
    mn_option *more = mn_realloc(p->options, count, sizeof *more);
    if (!more)
        return mn_fail_memory(c->err, count * sizeof *more);
    p->options = more;
    mn_option *o = &more[p->n_options++];
    *o = (mn_option){.n_layers = n,
                     .device = plan->n_devices ? plan->device[0] : 0,
                     .cpu = cpu,
                     .n_segments = plan->n_segments,
                     .n_copies = plan->copies.n_copies,
                     .decode_us = plan->decode_us,
                     .prefill_us = plan->prefill_us + change_us,
                     .score = plan->score + mn_score(0, change_us),
                     .spills = spills};
    if (plan->n_devices) {
        o->need = plan->used[0];
        o->room = mn_offer_at(c, plan->device[0])->free_bytes;
    }
    if (plan->status)
        snprintf(o->reason, sizeof o->reason, "%.150s", plan->reason);
    return MN_OK;
}

static void options_choose(mn_placement *p, uint32_t n_layers) {
    for (uint32_t i = 0; i < p->n_options; i++)
        p->options[i].chosen = p->options[i].n_layers == n_layers;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Whether the CPU has more than its `pinned` nodes: whole layers that fit nowhere else. */
static bool options_spill(const mn_chooser *c, const mn_plan *plan, uint32_t cpu, uint32_t pinned) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->g->abi.n_nodes; i++)
        n += mn_plan_owns(plan, cpu, i);
    return n > pinned;
}

/* What the search has found. */
typedef struct {
    mn_plan *plan; /* the best, which was there before the search at first */
    double score;  /* of it, with streamed prompts */
    uint32_t n;    /* layers whose experts it has on the CPU */
    bool last;     /* fewer do not fit either */
} best_option;

/* The experts of the last n layers on the CPU. */
static mn_status try_last(mn_chooser *c, const mn_order *w, uint32_t n, const double *change_us,
                          best_option *best) {
    const uint32_t cpu = cpu_of(c, w);
    const uint32_t pinned = pin_experts(c, cpu, c->n_experts - n, n);
    mn_plan plan = {0};
    double change = 0;
    mn_status st = plan_pinned(c, w, &plan);
    best->last = st || plan.status || options_spill(c, &plan, cpu, pinned);
    for (uint32_t i = c->n_experts - n; i < c->n_experts && !best->last; i++)
        change += change_us[i];
    if (!st)
        st = options_note(c, &plan, cpu, n, !plan.status && best->last, change);
    const double score = plan.score + mn_score(0, change);
    if (!st && !plan.status && (best->plan->status || score < best->score)) {
        const mn_plan slower = *best->plan;
        *best->plan = plan;
        plan = slower;
        best->score = score;
        best->n = n;
    }
    mn_plan_free(&plan);
    return st;
}

/* Beside what prompts need of the card. */
static mn_status try_all(mn_chooser *c, const mn_order *w, uint32_t cpu, const double *change_us,
                         uint64_t reserve, mn_plan *plan) {
    best_option best = {.plan = plan, .score = plan->score};
    mn_offer *card = mn_offer_at(c, w->at[0]);
    const uint64_t kept = reserve < card->free_bytes ? reserve : 0;
    mn_status st = options_note(c, plan, cpu, 0, !plan->status, 0);
    card->free_bytes -= kept;
    for (uint32_t n = c->n_experts; n && !best.last && !st; n--)
        st = try_last(c, w, n, change_us, &best);
    card->free_bytes += kept;
    if (!st)
        options_choose(c->p, best.n);
    return st;
}

mn_status mn_options_try(mn_chooser *c, const mn_order *w, mn_plan *plan) {
    const uint32_t cpu = cpu_of(c, w);
    if (!c->n_experts || mn_experts_are_fixed(c) || w->n < 2 || cpu == MN_NO_OFFER)
        return MN_OK;
    double *change_us = mn_calloc(c->n_experts, sizeof *change_us);
    if (!change_us)
        return mn_fail_memory(c->err, c->n_experts * sizeof *change_us);
    mn_options_forget(c);
    const uint64_t reserve =
        mn_streams_expect(c->p, w->at[0], cpu, c->g, c->r, c->experts, c->n_experts, change_us);
    const mn_status st = try_all(c, w, cpu, change_us, reserve, plan);
    mn_free(change_us);
    return st;
}
