/* auto.c -- the choice that is left to the host: who is asked, in which order of preference plans
 * are made, and which plan is the best.
 *
 * Plans are tried from the simple to the split: a single device, layers over several, any devices
 * that cover the graph together, the oracle; then a device that knows some operations alone is put
 * in front of the best. What was thought of a split stays in the offer (mn_trial), for the
 * record. */
#include "negotiate/choose.h"
#include <stdio.h>
#include <string.h>

/* and a group, which takes all its members from whatever else they could do */
#define GROUP_GAIN 1.2
/* of the weight bytes read per token: a device that would get less is left out under auto */
#define MIN_SHARE 0.1

/* ---- asking ---------------------------------------------------------------------------------- */

mn_status mn_ask_device(mn_chooser *c, const mn_device_record *d, uint32_t *at) {
    mn_placement *p = c->p;
    mn_status st = MN_OK;
    *at = 0;
    if (d->n_members) /* devices are tried again when the negotiation begins */
        mn_registry_retry(c->reg, d);
    while (*at < p->n_offers && p->offers[*at].record != d)
        ++*at;
    if (*at == p->n_offers) {
        p->n_offers++; /* freed also where asking fails */
        st = mn_offer_ask(c->reg, d, c->g, c->r, &p->offers[*at], c->err);
    }
    p->offers[*at].asked = true;
    return st;
}

bool mn_is_passed_over(const mn_chooser *c, const mn_device_record *d) {
    for (uint32_t i = 0; i < c->r->n_passed_over; i++)
        if (c->r->passed_over[i] == d)
            return true;
    return false;
}

mn_status mn_ask_all(mn_chooser *c, bool cpu_only) {
    size_t n;
    uint32_t at;
    const mn_device_record *all = mn_registry_devices(c->reg, &n);
    mn_status st = MN_OK;
    for (size_t i = 0; i < n && !st; i++) {
        const mn_device_record *d = &all[i];
        const bool usable_cpu = d->usable && d->info.kind == MN_DEVICE_CPU;
        if (!mn_is_passed_over(c, d) && (usable_cpu || !cpu_only))
            st = mn_ask_device(c, d, &at);
    }
    return st;
}

/* Whether offer j is of the card of offer i, by another driver. */
static bool is_same_card(const mn_chooser *c, uint32_t i, uint32_t j) {
    const mn_device_info *a = &mn_offer_at(c, i)->record->info;
    const mn_device_info *b = &mn_offer_at(c, j)->record->info;
    const bool host = a->kind == MN_DEVICE_CPU || b->kind == MN_DEVICE_CPU;
    return i != j && !host && *a->uid && !strncmp(a->uid, b->uid, sizeof a->uid);
}

/* By what is claimed: measuring would open the card a second time. */
bool mn_is_double(const mn_chooser *c, uint32_t i) {
    const double claim = mn_sane(mn_offer_at(c, i)->record->info.mem_gbps);
    for (uint32_t j = 0; j < c->p->n_offers && !c->named; j++) {
        if (!is_same_card(c, i, j) || !mn_offer_at(c, j)->asked || !mn_can_all(c, j))
            continue;
        const double other = mn_sane(mn_offer_at(c, j)->record->info.mem_gbps);
        if (other > claim || (other == claim && j < i))
            return true;
    }
    return false;
}

/* Whether offer i takes part in the choice. */
static bool takes_part(const mn_chooser *c, uint32_t i) {
    return mn_offer_at(c, i)->asked && mn_can_some(c, i) && !mn_is_double(c, i);
}

/* Rates are measured where they decide: between devices that are no oracles. */
static bool is_contested(const mn_chooser *c) {
    uint32_t rivals = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        rivals += takes_part(c, i) && !mn_offer_is_oracle(mn_offer_at(c, i));
    return rivals > 1;
}

void mn_rate_all(mn_chooser *c, bool compares) {
    const bool measure = mn_explains(c) || (compares && is_contested(c));
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        mn_offer *o = mn_offer_at(c, i);
        if (!takes_part(c, i) || o->rates.source)
            continue;
        mn_rates_get(o, c->g, c->r, measure && !mn_offer_is_oracle(o));
        if (!mn_can_all(c, i))
            continue;
        mn_segment all = {.node_hi = c->g->abi.n_nodes, .estimate = o->estimate};
        mn_segment_time(o, c->g, &all);
        o->score = mn_score(all.decode_us, all.prefill_us);
    }
}

/* ---- orders of preference -------------------------------------------------------------------- */

static bool is_in(const mn_order *w, uint32_t i) {
    for (uint32_t k = 0; k < w->n; k++)
        if (w->at[k] == i)
            return true;
    return false;
}

void mn_order_add(mn_order *w, uint32_t i) {
    if (!is_in(w, i) && w->n < MN_MAX_SPLIT)
        w->at[w->n++] = i;
}

/* Those that can do everything before those that cannot, the oracle behind the others, the CPU too,
 * then by score. Of plugins that offer the CPU, one that was not measured is behind those that
 * were: what it claims is no reason to take the same processor by another way. */
static double auto_rank(const mn_chooser *c, uint32_t i) {
    const mn_offer *o = mn_offer_at(c, i);
    double sum = MN_MIN(o->score, 1e17);
    if (!mn_can_all(c, i))
        sum += 4e18;
    if (mn_offer_is_oracle(o))
        sum += 2e18;
    if (mn_offer_is_cpu(o))
        sum += 1e18;
    if (mn_offer_is_cpu(o) && o->rates.source == MN_RATES_CLAIMED)
        sum += 5e17;
    return sum;
}

static bool is_wanted(const mn_chooser *c, uint32_t i, bool cpu_only, bool oracles) {
    const mn_offer *o = mn_offer_at(c, i);
    if (o->record->n_members || (cpu_only && !mn_offer_is_cpu(o)))
        return false;
    return takes_part(c, i) && (oracles || !mn_offer_is_oracle(o));
}

void mn_order_add_ranked(const mn_chooser *c, mn_order *w, bool cpu_only, bool oracles) {
    for (uint32_t round = 0; round < c->p->n_offers; round++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < c->p->n_offers; i++) {
            if (is_in(w, i) || !is_wanted(c, i, cpu_only, oracles))
                continue;
            if (best == UINT32_MAX || auto_rank(c, i) < auto_rank(c, best))
                best = i;
        }
        if (best == UINT32_MAX)
            return;
        mn_order_add(w, best);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

void mn_plan_adopt(mn_chooser *c, mn_plan *plan) {
    mn_plan_free(&c->plan);
    c->plan = *plan;
    *plan = (mn_plan){0};
}

/* Adopts the plan of these devices if there is one. */
static mn_status adopt_order(mn_chooser *c, const mn_order *w) {
    mn_plan plan = {0};
    if (!w->n)
        return MN_OK;
    mn_status st = mn_plan_order(c, w, &plan);
    if (!st && !plan.status)
        mn_plan_adopt(c, &plan);
    mn_plan_free(&plan);
    return st;
}

/* Whether the plan is worth more than the best so far, beyond what measuring may have got wrong. */
static bool gains(const mn_chooser *c, const mn_plan *plan) {
    return !mn_has_plan(c) || plan->score * MN_SPLIT_GAIN < c->plan.score;
}

/* ---- what was thought of a split, for the record --------------------------------------------- */

static void note_trial(mn_chooser *c, uint32_t i, const mn_plan *plan) {
    mn_trial *t = &mn_offer_at(c, i)->trial;
    *t = (mn_trial){.result = plan->status ? MN_TRIAL_FAILED : MN_TRIAL_TAKEN,
                    .score = plan->score,
                    .copy_us = mn_score(plan->copies.decode_us, plan->copies.prefill_us),
                    .n_segments = plan->n_segments,
                    .n_copies = plan->copies.n_copies};
    for (uint32_t d = 0; d < plan->n_devices; d++)
        if (plan->device[d] == i)
            t->share = plan->share[d];
    if (plan->status)
        snprintf(t->reason, sizeof t->reason, "the split fails: %.150s", plan->reason);
}

static void left_out(mn_chooser *c, uint32_t i) {
    mn_trial *t = &mn_offer_at(c, i)->trial;
    t->result = MN_TRIAL_SMALL_SHARE;
    snprintf(t->reason, sizeof t->reason,
             "left out: its share of the work would be %.1f %%, at least %.0f are worth it",
             t->share * 100, MIN_SHARE * 100);
}

static void too_slow(mn_chooser *c, uint32_t i) {
    mn_trial *t = &mn_offer_at(c, i)->trial;
    t->result = MN_TRIAL_TOO_SLOW;
    snprintf(t->reason, sizeof t->reason,
             "the split would take %.0f us per token (%u segments, %u copies of %.0f us), %s alone "
             "takes %.0f",
             t->score, t->n_segments, t->n_copies, t->copy_us,
             mn_offer_at(c, c->plan.device[0])->record->name, c->plan.score);
}

/* ---- layers over several devices ------------------------------------------------------------- */

/* Replaces plan and order by those without `device`, if the others can do without it. */
static mn_status drop_device(mn_chooser *c, uint32_t device, mn_order *w, mn_plan *plan,
                             bool *dropped) {
    mn_order fewer = {.n = 0};
    mn_plan other = {0};
    for (uint32_t i = 0; i < w->n; i++)
        if (w->at[i] != device)
            mn_order_add(&fewer, w->at[i]);
    mn_status st = mn_plan_order(c, &fewer, &other);
    *dropped = !st && !other.status;
    if (!*dropped) {
        mn_plan_free(&other);
        return st;
    }
    note_trial(c, device, plan);
    left_out(c, device);
    mn_plan_free(plan);
    *plan = other;
    *w = fewer;
    return MN_OK;
}

/* Leaves out, one by one, devices with too small a share, if the others can do without. */
static mn_status drop_small(mn_chooser *c, mn_order *w, mn_plan *plan) {
    for (uint32_t k = 0; k < plan->n_devices && plan->n_devices > 1; k++) {
        bool dropped = false;
        mn_status st = MN_OK;
        if (plan->share[k] < MIN_SHARE)
            st = drop_device(c, plan->device[k], w, plan, &dropped);
        if (st)
            return st;
        if (dropped)
            k = UINT32_MAX; /* from the start */
    }
    return MN_OK;
}

/* Devices that can do everything, by rank. Whether one of them lacks only memory and would be
 * faster than the best so far. */
static bool promise_layers(const mn_chooser *c, bool cpu_only, mn_order *w) {
    mn_order all = {.n = 0};
    bool promising = false;
    mn_order_add_ranked(c, &all, cpu_only, false);
    for (uint32_t k = 0; k < all.n; k++) {
        const mn_offer *o = mn_offer_at(c, all.at[k]);
        const bool faster = !mn_has_plan(c) || o->score < c->plan.score;
        if (!mn_can_all(c, all.at[k]))
            continue;
        mn_order_add(w, all.at[k]);
        promising = promising || (o->status && faster);
    }
    return promising;
}

/* A faster device that lacks only memory: layers to it, the rest to the others. */
static mn_status try_layers(mn_chooser *c, bool cpu_only) {
    mn_order w = {.n = 0};
    mn_plan plan = {0};
    if (!promise_layers(c, cpu_only, &w))
        return MN_OK;
    mn_status st = mn_plan_order(c, &w, &plan);
    const mn_order all = w;
    if (!st && !plan.status)
        st = drop_small(c, &w, &plan);
    if (!st)
        st = mn_options_try(c, &all, &plan);
    const bool better = !st && !plan.status && gains(c, &plan);
    for (uint32_t k = 0; k < w.n && !st; k++) {
        const mn_offer *o = mn_offer_at(c, w.at[k]);
        if (!o->status || o->trial.result)
            continue;
        note_trial(c, w.at[k], &plan);
        if (!plan.status && !better)
            too_slow(c, w.at[k]);
    }
    if (better)
        mn_plan_adopt(c, &plan);
    mn_plan_free(&plan);
    return st;
}

/* ---- devices that know some operations ------------------------------------------------------- */

static bool is_partial(const mn_chooser *c, uint32_t i) {
    const mn_offer *o = mn_offer_at(c, i);
    const bool passed = mn_offer_is_oracle(o) || o->record->n_members;
    return takes_part(c, i) && !mn_can_all(c, i) && !passed;
}

/* Offer i, which is partial, in front of the best so far. */
static mn_status try_part(mn_chooser *c, uint32_t i) {
    mn_order w = {.at = {i}, .n = 1};
    mn_plan plan = {0};
    for (uint32_t d = 0; d < c->plan.n_devices; d++)
        mn_order_add(&w, c->plan.device[d]);
    mn_status st = mn_plan_order(c, &w, &plan);
    if (!st)
        note_trial(c, i, &plan);
    const bool works = !st && !plan.status;
    if (works && mn_offer_at(c, i)->trial.share < MIN_SHARE)
        left_out(c, i);
    else if (works && !gains(c, &plan))
        too_slow(c, i);
    else if (works)
        mn_plan_adopt(c, &plan);
    mn_plan_free(&plan);
    return st;
}

static mn_status try_parts(mn_chooser *c) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < c->p->n_offers && !st; i++)
        if (is_partial(c, i) && !mn_in_plan(c, i))
            st = try_part(c, i);
    return st;
}

/* The user says where experts are: the fastest device that can do all the rest, and the CPU. */
static mn_status try_fixed(mn_chooser *c, bool cpu_only) {
    mn_order ranked = {.n = 0};
    mn_order w = {.n = 0};
    if (!mn_experts_are_fixed(c))
        return MN_OK;
    mn_order_add_ranked(c, &ranked, cpu_only, false);
    for (uint32_t i = 0; i < c->n_rules && !cpu_only; i++)
        if (mn_pin_offer(c, i) != MN_NO_OFFER &&
            !mn_offer_is_cpu(mn_offer_at(c, mn_pin_offer(c, i))))
            mn_order_add(&w, mn_pin_offer(c, i));
    for (uint32_t k = 0; k < ranked.n; k++)
        if (mn_can_all(c, ranked.at[k]))
            mn_order_add(&w, ranked.at[k]);
    mn_plan plan = {0};
    mn_status st = w.n ? mn_plan_order(c, &w, &plan) : MN_OK;
    memcpy(c->why_not, plan.reason, sizeof c->why_not);
    if (!st && w.n && !plan.status)
        mn_plan_adopt(c, &plan);
    mn_plan_free(&plan);
    return st;
}

/* Whatever covers the graph together; partial devices first, for the others could do all. */
static mn_status try_cover(mn_chooser *c, bool cpu_only, bool oracles) {
    mn_order w = {.n = 0};
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        if (is_partial(c, i))
            mn_order_add(&w, i);
    mn_order_add_ranked(c, &w, cpu_only, oracles);
    return adopt_order(c, &w);
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* The fastest device that can do everything and has the memory. */
static mn_status try_single(mn_chooser *c, bool oracles) {
    mn_order w = {.n = 0};
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = mn_offer_at(c, i);
        if (!takes_part(c, i) || o->status || mn_offer_is_oracle(o) != oracles)
            continue;
        if (!w.n || o->score < mn_offer_at(c, w.at[0])->score)
            w = (mn_order){{i}, 1};
    }
    return adopt_order(c, &w);
}

/* What a group of all devices of the plugin has to gain: MN_SPLIT_GAIN where all of them could run
 * the model and lack the memory alone, GROUP_GAIN where one of them is the best so far; 0: it is
 * not tried. */
static double wanted_of_group(const mn_chooser *c, const mn_plugin_record *plugin) {
    uint32_t n = 0;
    uint32_t n_lack = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = mn_offer_at(c, i);
        if (o->record->plugin != plugin || o->record->n_members || !o->record->usable)
            continue;
        const bool lacks = MN_STATUS_CLASS(o->status) == MN_CLASS_SMALLER;
        if (!takes_part(c, i) || (o->status && !lacks))
            return 0;
        n++;
        n_lack += lacks;
    }
    if (!plugin->group || n < 2)
        return 0;
    if (n_lack == n)
        return MN_SPLIT_GAIN;
    const bool is_best =
        c->plan.n_devices == 1 && mn_offer_at(c, c->plan.device[0])->record->plugin == plugin;
    return is_best ? GROUP_GAIN : 0;
}

static bool is_measured(const mn_offer *o) {
    return o->rates.source == MN_RATES_CACHED || o->rates.source == MN_RATES_MEASURED;
}

/* Offer i is a group. Whether its plan is to replace the best so far, by rates that were measured;
 * else the record says why not. */
static bool group_gains(mn_chooser *c, uint32_t i, const mn_plan *plan, double wanted) {
    mn_trial *t = &mn_offer_at(c, i)->trial;
    note_trial(c, i, plan);
    if (plan->status)
        return false;
    if (!mn_has_plan(c))
        return true;
    const mn_offer *best = mn_offer_at(c, c->plan.device[0]);
    const double gain = c->plan.score / plan->score;
    const bool known = wanted < GROUP_GAIN || (is_measured(mn_offer_at(c, i)) && is_measured(best));
    if (known && gain >= wanted)
        return true;
    t->result = MN_TRIAL_TOO_SLOW;
    snprintf(
        t->reason, sizeof t->reason,
        "%.60s alone takes %.0f us per token, the group would take %.0f%s: %.2f times as fast; "
        "wanted: %.1f",
        best->record->name, c->plan.score, plan->score, known ? "" : " by claims alone", gain,
        wanted);
    return false;
}

/* All devices of the plugin as one, if that can be and gains as much as is wanted. */
static mn_status try_group(mn_chooser *c, const mn_plugin_record *plugin, double wanted) {
    char name[96];
    char why[MN_GROUP_WHY];
    uint32_t at;
    mn_plan plan = {0};
    snprintf(name, sizeof name, "%.80s:all", plugin->id.ptr);
    const mn_device_record *d = mn_registry_group(c->reg, mn_str_of(name), why);
    if (!d || mn_is_passed_over(c, d))
        return MN_OK;
    mn_status st = mn_ask_device(c, d, &at);
    if (st || mn_offer_at(c, at)->status)
        return st;
    mn_rate_all(c, true);
    const mn_order w = {.at = {at}, .n = 1};
    st = mn_plan_order(c, &w, &plan);
    if (!st && group_gains(c, at, &plan, wanted))
        mn_plan_adopt(c, &plan);
    mn_plan_free(&plan);
    return st;
}

static mn_status try_groups(mn_chooser *c) {
    size_t n;
    const mn_plugin_record *all = mn_registry_plugins(c->reg, &n);
    mn_status st = MN_OK;
    for (size_t i = 0; i < n && !st; i++) {
        const double wanted = all[i].backend ? wanted_of_group(c, &all[i]) : 0;
        if (wanted > 0)
            st = try_group(c, &all[i], wanted);
    }
    return st;
}

mn_status mn_choose_auto(mn_chooser *c, bool cpu_only) {
    mn_status st = mn_ask_all(c, cpu_only);
    if (st)
        return st;
    mn_rate_all(c, true);
    st = try_fixed(c, cpu_only);
    if (st || mn_has_plan(c))
        return st;
    st = try_single(c, false);
    if (!st && !cpu_only)
        st = try_groups(c);
    if (!st)
        st = try_layers(c, cpu_only);
    if (!st && !mn_has_plan(c))
        st = try_cover(c, cpu_only, false);
    if (!st && !mn_has_plan(c))
        st = try_single(c, true);
    if (!st && !mn_has_plan(c))
        st = try_cover(c, cpu_only, true);
    return st || !mn_has_plan(c) ? st : try_parts(c);
}
