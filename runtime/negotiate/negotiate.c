/* negotiate.c -- one negotiation from the request to a placement that can explain itself: lost
 * devices are tried again, the list is followed (list.c, auto.c), and what was chosen is put into
 * words: a sentence on the choice, one word per device. */
#include "negotiate/choose.h"
#include <stdio.h>
#include <string.h>

#define GIB(bytes) ((double)(bytes) / 0x1p30)

/* ---- the sentence ---------------------------------------------------------------------------- */

/* Backends that are not even loaded: those that are set aside, or (all) whatever the reason, which
 * is the likely one for a fallback. */
static void list_failed_plugins(const mn_registry *reg, bool all, mn_text *out) {
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(reg, &n);
    for (size_t i = 0; i < n; i++)
        if (r[i].status == MN_RECORD_SET_ASIDE || (all && mn_record_has_failed(&r[i])))
            mn_text_printf(out, "%s%s (%s): %s", out->len ? "; " : "", r[i].path,
                           mn_record_status_name(r[i].status), r[i].reason);
}

/* What device d of the plan would need for all that it could do and has no memory for; 0 = it has,
 * UINT64_MAX = more than can be counted. */
static uint64_t lacking(const mn_chooser *c, uint32_t d) {
    const mn_offer *o = mn_offer_at(c, c->plan.device[d]);
    if (c->plan.lacks[d] || MN_STATUS_CLASS(o->status) != MN_CLASS_SMALLER)
        return c->plan.lacks[d];
    return o->need; /* it has less to do in this plan */
}

/* Why several devices: the first that lacked memory is the reason. */
static void say_split(const mn_chooser *c, mn_text *why) {
    const mn_plan *plan = &c->plan;
    uint32_t d = 0;
    mn_plan_describe(plan, c->p->offers, c->g, why);
    while (d < plan->n_devices && !lacking(c, d))
        d++;
    const bool lacks = d < plan->n_devices && lacking(c, d) < UINT64_MAX;
    if (lacks)
        mn_text_printf(why, ": %.1f GiB would be needed, %.1f are free", GIB(lacking(c, d)),
                       GIB(mn_offer_at(c, plan->device[d])->free_bytes));
    else if (c->named)
        mn_text_puts(why, ": named by the user");
    else
        mn_text_puts(why, ": no single device does it as fast");
    mn_text_printf(why, "; %u segments, %u copies per step", plan->n_segments,
                   plan->copies.n_copies);
}

/* Devices that could have run the graph as well. */
static uint32_t count_others(const mn_chooser *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = mn_offer_at(c, i);
        n += i != c->p->chosen && o->asked && !o->status && !o->record->n_members;
    }
    return n;
}

/* The fastest member of the chosen group that has the memory alone; NULL: none has. */
static const mn_offer *best_member(const mn_chooser *c) {
    const mn_device_record *group = mn_offer_at(c, c->p->chosen)->record;
    const mn_offer *best = NULL;
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = mn_offer_at(c, i);
        if (o->asked && !o->status && mn_group_has(group, o->record) &&
            (!best || o->score < best->score))
            best = o;
    }
    return best;
}

static void say_group(const mn_chooser *c, mn_text *why) {
    const mn_offer *alone = best_member(c);
    const uint32_t n = mn_offer_at(c, c->p->chosen)->record->n_members;
    if (alone)
        mn_text_printf(why, "%u devices together: %.1f times as fast as %s alone", n,
                       alone->score / c->plan.score, alone->record->name);
    else
        mn_text_printf(why, "%u devices together: none of them has the memory alone", n);
}

static void say_single(const mn_chooser *c, mn_text *why) {
    const uint32_t others = count_others(c);
    const mn_offer *o = mn_offer_at(c, c->p->chosen);
    if (c->named)
        mn_text_puts(why, "named by the user");
    else if (o->record->n_members)
        say_group(c, why);
    else if (c->p->fallback)
        mn_text_puts(why, "nothing faster is there (this is the slow reference)");
    else if (!others)
        mn_text_puts(why, "the only usable device");
    else
        mn_text_printf(why, "the fastest of %u usable devices", others + 1);
}

static void say_why(const mn_chooser *c, mn_text *why) {
    mn_text refused = {0};
    if (c->plan.n_devices > 1)
        say_split(c, why);
    else
        say_single(c, why);
    mn_list_refusals(c, &refused);
    if (!c->named)
        list_failed_plugins(c->reg, c->p->fallback, &refused);
    if (refused.len)
        mn_text_printf(why, "; not used: %s", refused.ptr);
    mn_text_free(&refused);
}

/* ---- one word per device --------------------------------------------------------------------- */

static mn_outcome outcome(const mn_chooser *c, uint32_t i, bool in) {
    const mn_offer *o = mn_offer_at(c, i);
    const uint32_t klass = MN_STATUS_CLASS(o->status);
    if (in)
        return MN_OUTCOME_CHOSEN;
    if (o->record->lost)
        return MN_OUTCOME_QUARANTINED;
    if (o->trial.result == MN_TRIAL_SMALL_SHARE)
        return MN_OUTCOME_LEFT_OUT;
    if (klass == MN_CLASS_SMALLER)
        return MN_OUTCOME_OUT_OF_MEMORY;
    if (!o->record->usable || !o->verdicts)
        return MN_OUTCOME_FAILED;
    if (o->status && o->n_can && o->n_can < c->g->abi.n_nodes)
        return MN_OUTCOME_PARTIAL;
    if (o->status)
        return MN_OUTCOME_UNSUPPORTED;
    if (!o->asked)
        return MN_OUTCOME_NOT_NAMED;
    if (mn_is_double(c, i))
        return MN_OUTCOME_SAME_CARD;
    return mn_offer_is_oracle(o) ? MN_OUTCOME_ORACLE : MN_OUTCOME_SLOWER;
}

static void set_outcomes(const mn_chooser *c, bool chosen) {
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        mn_offer_at(c, i)->outcome = outcome(c, i, chosen && mn_in_plan(c, i));
}

static void negotiation_tell(const mn_chooser *c) {
    const mn_placement *p = c->p;
    for (uint32_t i = 0; i < p->n_offers; i++) {
        const mn_offer *o = &p->offers[i];
        const char *source = o->rates.source ? mn_rates_source_name(o->rates.source) : "no";
        mn_log(MN_LOG_DEBUG, "device %s: %s%s%s; %.4g us per token by %s rates", o->record->name,
               mn_outcome_name(o->outcome), *o->reason ? ": " : "", o->reason, o->score, source);
    }
    if (p->why)
        mn_log(MN_LOG_DEBUG, "device list %s: %s: %s", c->r->devices,
               p->offers[p->chosen].record->name, p->why);
}

/* ---- the placement --------------------------------------------------------------------------- */

/* Bytes of weights that device d of the plan uses where they lie in their file. */
static double bytes_in_file(const mn_chooser *c, uint32_t d) {
    const mn_plan *plan = &c->plan;
    double sum = 0;
    for (uint32_t k = 0; k < plan->n_segments; k++) {
        const mn_segment *s = &plan->segments[k];
        const double all = mn_segment_bytes(&c->g->abi, s);
        if (s->offer == plan->device[d])
            sum += MN_MAX(all - (double)s->estimate.weights, 0);
    }
    return sum;
}

/* Weights in their file cost the device no memory of its own. But what of them does not fit beside
 * the rest comes from the disk at every step. */
static void warn_of_disk(const mn_chooser *c) {
    const mn_plan *plan = &c->plan;
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        const mn_offer *o = mn_offer_at(c, plan->device[d]);
        const double in_file = bytes_in_file(c, d);
        const double left = (double)o->free_bytes - (double)plan->used[d];
        if (o->free_bytes && in_file > left)
            mn_log(MN_LOG_WARN,
                   "%s uses %.2f GiB of weights where they lie in their file, and %.2f GiB of "
                   "memory are free for them: the rest is read from the disk at every step",
                   o->record->name, GIB(in_file), GIB(MN_MAX(left, 0)));
    }
}

/* Each device's share, and the one with the largest. */
static void set_shares(const mn_chooser *c) {
    mn_placement *p = c->p;
    const mn_plan *plan = &c->plan;
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        const uint32_t i = plan->device[d];
        p->offers[i].share = plan->share[d];
        if (!d || plan->share[d] > p->offers[p->chosen].share)
            p->chosen = i;
    }
}

/* The plan becomes the placement. */
static mn_status negotiation_settle(mn_chooser *c) {
    mn_placement *p = c->p;
    mn_plan *plan = &c->plan;
    mn_text why = {0};
    set_shares(c);
    p->fallback = !c->named && mn_offer_is_oracle(mn_offer_at(c, p->chosen));
    say_why(c, &why);
    if (!(c->r->flags & MN_REQUEST_AGAIN))
        warn_of_disk(c);
    p->segments = plan->segments;
    p->n_segments = plan->n_segments;
    plan->segments = NULL;
    p->n_copies = plan->copies.n_copies;
    p->copy_us = mn_score(plan->copies.decode_us, plan->copies.prefill_us);
    p->score = plan->score;
    p->decode_us = plan->decode_us;
    p->prefill_us = plan->prefill_us;
    p->why = why.ptr;
    p->kv_positions = c->r->kv_positions;
    p->watcher = c->r->watcher;
    p->held = c->r->held;
    mn_request_symbols(c->r, 1, p->symbol_max);
    int64_t *pages = &p->symbol_max[MN_SYM_PAGES];
    for (uint32_t k = 0; k < p->n_segments; k++)
        *pages = MN_MAX(*pages, mn_segment_row(&p->segments[k], c->r));
    return p->why && !why.failed ? MN_OK : mn_fail_memory(c->err, 64);
}

/* For the record: what auto would have thought of each device, whatever the list says. */
static mn_status rehearse(mn_chooser *c) {
    mn_status st = mn_choose_auto(c, false);
    mn_plan_free(&c->plan);
    mn_options_forget(c);
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        mn_offer_at(c, i)->asked = false;
    return st;
}

/* A lost device is opened again only where it may be chosen: that takes time. */
static void retry_lost(const mn_chooser *c, const mn_device_record *all, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!all[i].usable && mn_may_choose(c, &all[i]))
            mn_registry_retry(c->reg, &all[i]);
}

mn_status mn_negotiate(mn_registry *reg, const mn_model_graph *g, const mn_request *r,
                       mn_placement *out, mn_error *err) {
    mn_placement p = {0};
    mn_chooser c = {
        .reg = reg,
        .g = g,
        .r = r,
        .p = &p,
        .err = err,
    };
    size_t n;
    *out = (mn_placement){0};
    const mn_device_record *all = mn_registry_devices(reg, &n);
    if (all)
        p.offers = mn_calloc(n + MN_MAX_GROUPS, sizeof *p.offers); /* groups, too */
    if (!p.offers)
        return mn_fail_memory(err, n * sizeof *p.offers);
    retry_lost(&c, all, n);
    mn_status st = mn_options_begin(&c);
    if (!st && mn_explains(&c))
        st = rehearse(&c);
    if (!st)
        st = mn_choose_listed(&c);
    set_outcomes(&c, !st);
    if (!st)
        st = negotiation_settle(&c);
    negotiation_tell(&c);
    mn_plan_free(&c.plan);
    mn_options_end(&c);
    if (st && !mn_explains(&c))
        mn_placement_free(&p);
    else
        *out = p;
    return st;
}

void mn_placement_free(mn_placement *p) {
    for (uint32_t i = 0; i < p->n_offers; i++)
        mn_offer_free(&p->offers[i]);
    mn_free(p->segments);
    mn_free(p->offers);
    mn_free(p->options);
    mn_free(p->why);
    *p = (mn_placement){0};
}
