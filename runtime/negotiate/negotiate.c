/* negotiate.c -- from the user's words and the devices' offers to one placement that can explain
 * itself. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

/* a split must be so much faster than what it replaces: rates are measured on busy machines */
#define SPLIT_GAIN 1.1
/* of the weight bytes read per token: a device that would get less is left out under auto */
#define MIN_SHARE 0.1

typedef struct {
    mn_registry *reg;
    const mn_model_graph *g;
    const mn_request *r;
    mn_placement *p;
    mn_plan plan; /* the best so far; n_segments 0 = none */
    bool named;   /* the user chose these devices */
    mn_error *err;
} chooser;

static bool has_plan(const chooser *c) {
    return c->plan.n_segments > 0;
}
static bool explains(const chooser *c) {
    return c->r->flags & MN_REQUEST_EXPLAIN;
}
static mn_offer *offer(chooser *c, uint32_t i) {
    return &c->p->offers[i];
}
static bool is_whole(chooser *c, uint32_t i) {
    return mn_offer_is_whole(offer(c, i), c->g);
}
static bool can_some(chooser *c, uint32_t i) {
    return offer(c, i)->can && offer(c, i)->n_can;
}

/* ---- asking ---------------------------------------------------------------------------------- */
static mn_status ask(chooser *c, const mn_device_record *d, uint32_t *at) {
    mn_placement *p = c->p;
    for (*at = 0; *at < p->n_offers; ++*at)
        if (p->offers[*at].record == d)
            break;
    mn_status st = *at < p->n_offers
                       ? MN_OK
                       : mn_offer_ask(c->reg, d, c->g, c->r, &p->offers[p->n_offers++], c->err);
    p->offers[*at].asked = true;
    return st;
}

static bool is_passed_over(const chooser *c, const mn_device_record *d) {
    for (uint32_t i = 0; i < c->r->n_passed_over; i++)
        if (c->r->passed_over[i] == d)
            return true;
    return false;
}

static mn_status ask_all(chooser *c, bool cpu_only) {
    size_t n;
    uint32_t at;
    const mn_device_record *all = mn_registry_devices(c->reg, &n);
    mn_status st = MN_OK;
    for (size_t i = 0; i < n && !st; i++)
        if (!is_passed_over(c, &all[i]) &&
            (!cpu_only || (all[i].usable && all[i].info.kind == MN_DEVICE_CPU)))
            st = ask(c, &all[i], &at);
    return st;
}

/* Rates of everybody who may take part. They are measured where they decide: between devices that
 * are no oracles. */
static void rate_all(chooser *c, bool compares) {
    uint32_t rivals = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        rivals += offer(c, i)->asked && can_some(c, i) && !mn_offer_is_oracle(offer(c, i));
    bool measure = explains(c) || (compares && rivals > 1);
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        mn_offer *o = offer(c, i);
        if (!o->asked || !can_some(c, i) || o->rates.source)
            continue;
        mn_rates_get(o, c->g, c->r, measure && !mn_offer_is_oracle(o));
        if (!is_whole(c, i))
            continue;
        mn_segment all = {.node_hi = c->g->abi.n_nodes, .estimate = o->estimate};
        mn_segment_time(o, c->g, &all);
        o->score = mn_score(all.decode_us, all.prefill_us);
    }
}

/* ---- orders of preference -------------------------------------------------------------------- */
typedef struct {
    uint32_t at[MN_MAX_SPLIT], n;
} order;

static void append(order *w, uint32_t i) {
    for (uint32_t k = 0; k < w->n; k++)
        if (w->at[k] == i)
            return;
    if (w->n < MN_MAX_SPLIT)
        w->at[w->n++] = i;
}

/* Those that can do everything before those that cannot, the oracle behind the others, the CPU too,
 * then by score. */
static double rank(chooser *c, uint32_t i) {
    const mn_offer *o = offer(c, i);
    return (is_whole(c, i) ? 0 : 4e18) + (mn_offer_is_oracle(o) ? 2e18 : 0) +
           (mn_offer_is_cpu(o) ? 1e18 : 0) + MN_MIN(o->score, 1e17);
}

static void append_ranked(chooser *c, order *w, bool cpu_only, bool oracles) {
    for (uint32_t round = 0; round < c->p->n_offers; round++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < c->p->n_offers; i++) {
            bool in = false;
            for (uint32_t k = 0; k < w->n; k++)
                in |= w->at[k] == i;
            const mn_offer *o = offer(c, i);
            if (in || !o->asked || !can_some(c, i) || (cpu_only && !mn_offer_is_cpu(o)) ||
                (mn_offer_is_oracle(o) && !oracles))
                continue;
            if (best == UINT32_MAX || rank(c, i) < rank(c, best))
                best = i;
        }
        if (best != UINT32_MAX)
            append(w, best);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */
static mn_status make_plan(chooser *c, const order *w, mn_plan *out) {
    return mn_plan_make(c->p->offers, c->g, c->r, w->at, w->n, out, c->err);
}

static void adopt(chooser *c, mn_plan *plan) {
    mn_plan_free(&c->plan);
    c->plan = *plan;
    *plan = (mn_plan){0};
}

/* Adopts the plan of these devices if there is one. */
static mn_status adopt_order(chooser *c, const order *w) {
    mn_plan plan = {0};
    if (!w->n)
        return MN_OK;
    mn_status st = make_plan(c, w, &plan);
    if (!st && !plan.status)
        adopt(c, &plan);
    else
        mn_plan_free(&plan);
    return st;
}

static void note_trial(chooser *c, uint32_t i, const mn_plan *plan) {
    mn_trial *t = &offer(c, i)->trial;
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

static void left_out(chooser *c, uint32_t i) {
    mn_trial *t = &offer(c, i)->trial;
    t->result = MN_TRIAL_SMALL_SHARE;
    snprintf(t->reason, sizeof t->reason,
             "left out: its share of the work would be %.1f %%, at least %.0f are worth it",
             t->share * 100, MIN_SHARE * 100);
}

static void too_slow(chooser *c, uint32_t i) {
    mn_trial *t = &offer(c, i)->trial;
    t->result = MN_TRIAL_TOO_SLOW;
    snprintf(t->reason, sizeof t->reason,
             "the split would take %.0f us per token (%u segments, %u copies of %.0f us), %s alone "
             "takes %.0f",
             t->score, t->n_segments, t->n_copies, t->copy_us,
             offer(c, c->plan.device[0])->record->name, c->plan.score);
}

/* Leaves out, one by one, devices with too small a share, if the others can do without. */
static mn_status drop_small(chooser *c, order *w, mn_plan *plan) {
    for (uint32_t k = 0; k < plan->n_devices && plan->n_devices > 1; k++) {
        if (plan->share[k] >= MIN_SHARE)
            continue;
        order fewer = {.n = 0};
        mn_plan other = {0};
        for (uint32_t i = 0; i < w->n; i++)
            if (w->at[i] != plan->device[k])
                append(&fewer, w->at[i]);
        mn_status st = make_plan(c, &fewer, &other);
        if (st || other.status) {
            mn_plan_free(&other);
            if (st)
                return st;
            continue;
        }
        note_trial(c, plan->device[k], plan);
        left_out(c, plan->device[k]);
        mn_plan_free(plan);
        *plan = other;
        *w = fewer;
        k = UINT32_MAX; /* from the start */
    }
    return MN_OK;
}

/* A faster device that lacks only memory: layers to it, the rest to the others. */
static mn_status try_layers(chooser *c, bool cpu_only) {
    order all = {.n = 0}, w = {.n = 0};
    bool promising = false;
    append_ranked(c, &all, cpu_only, false);
    for (uint32_t k = 0; k < all.n; k++) {
        const mn_offer *o = offer(c, all.at[k]);
        if (!is_whole(c, all.at[k]))
            continue;
        append(&w, all.at[k]);
        promising |= o->status && (!has_plan(c) || o->score < c->plan.score);
    }
    mn_plan plan = {0};
    if (!promising)
        return MN_OK;
    mn_status st = make_plan(c, &w, &plan);
    if (!st && !plan.status)
        st = drop_small(c, &w, &plan);
    bool better = !st && !plan.status && (!has_plan(c) || plan.score * SPLIT_GAIN < c->plan.score);
    for (uint32_t k = 0; k < w.n && !st; k++) {
        mn_trial *t = &offer(c, w.at[k])->trial;
        if (!offer(c, w.at[k])->status || t->result)
            continue;
        note_trial(c, w.at[k], &plan);
        if (!plan.status && !better)
            too_slow(c, w.at[k]);
    }
    if (better)
        adopt(c, &plan);
    else
        mn_plan_free(&plan);
    return st;
}

/* A device that knows a part of the operations, in front of the best so far. */
static mn_status try_part(chooser *c, uint32_t i) {
    order w = {.at = {i}, .n = 1};
    mn_plan plan = {0};
    for (uint32_t d = 0; d < c->plan.n_devices; d++)
        append(&w, c->plan.device[d]);
    mn_status st = make_plan(c, &w, &plan);
    if (!st) {
        note_trial(c, i, &plan);
        mn_trial *t = &offer(c, i)->trial;
        bool small = !plan.status && t->share < MIN_SHARE,
             slow = !plan.status && plan.score * SPLIT_GAIN >= c->plan.score;
        if (small)
            left_out(c, i);
        else if (slow)
            too_slow(c, i);
        else if (!plan.status)
            adopt(c, &plan);
    }
    mn_plan_free(&plan);
    return st;
}

static mn_status single(chooser *c, bool oracles) {
    order w = {.n = 0};
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = offer(c, i);
        if (!o->asked || o->status || mn_offer_is_oracle(o) != oracles)
            continue;
        if (!w.n || o->score < offer(c, w.at[0])->score)
            w = (order){{i}, 1};
    }
    return adopt_order(c, &w);
}

/* One device; layers over several; whatever together can; the oracle; then parts for those who
 * would speed that up. */
static mn_status choose_auto(chooser *c, bool cpu_only) {
    order w = {.n = 0};
    mn_status st = ask_all(c, cpu_only);
    if (st)
        return st;
    rate_all(c, true);
    st = single(c, false);
    if (!st)
        st = try_layers(c, cpu_only);
    for (uint32_t oracles = 0; oracles < 2 && !st && !has_plan(c); oracles++) {
        if (oracles)
            st = single(c, true);
        if (st || has_plan(c))
            break;
        w.n = 0;
        /* partial ones first: the others could do all */
        for (uint32_t i = 0; i < c->p->n_offers; i++)
            if (offer(c, i)->asked && can_some(c, i) && !is_whole(c, i) &&
                !mn_offer_is_oracle(offer(c, i)))
                append(&w, i);
        append_ranked(c, &w, cpu_only, oracles);
        st = adopt_order(c, &w);
    }
    for (uint32_t i = 0; i < c->p->n_offers && !st && has_plan(c); i++) {
        bool in = false;
        for (uint32_t d = 0; d < c->plan.n_devices; d++)
            in |= c->plan.device[d] == i;
        if (!in && offer(c, i)->asked && can_some(c, i) && !is_whole(c, i) &&
            !mn_offer_is_oracle(offer(c, i)))
            st = try_part(c, i);
    }
    return st;
}

/* ---- the user's list ------------------------------------------------------------------------- */
static void list_devices(mn_registry *reg, mn_text *out) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    for (size_t i = 0; i < n; i++)
        mn_text_printf(out, "%s%s%s", i ? ", " : "", all[i].name,
                       all[i].usable ? "" : " (not usable)");
    if (!n)
        mn_text_puts(out, "none");
}

static void list_refusals(chooser *c, mn_text *out) {
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = offer(c, i);
        bool in = false;
        for (uint32_t d = 0; d < c->plan.n_devices; d++)
            in |= c->plan.device[d] == i;
        /* it would not be missed */
        if (o->asked && o->status && !in && (!has_plan(c) || !mn_offer_is_oracle(o)))
            mn_text_printf(out, "%s%s: %s", out->len ? "; " : "", o->record->name, o->reason);
    }
}

/* why: "" = no plugin of that name was found at all. */
static mn_status no_such_device(chooser *c, mn_str name, const char *why) {
    mn_text list = {0};
    list_devices(c->reg, &list);
    mn_status st =
        mn_fail(c->err, MN_NO_DEVICE, "there is no device \"%.*s\"%s%s%s; there are: %s",
                MN_STR_ARG(name), *why ? " (" : "", why, *why ? ")" : "", list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return st;
}

static mn_status nothing(chooser *c, const mn_plan *tried) {
    mn_text refused = {0}, devices = {0};
    bool memory = false, other = false;
    uint32_t asked = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = offer(c, i);
        asked += o->asked;
        if (!o->asked || mn_offer_is_oracle(o))
            continue;
        bool short_of = MN_STATUS_CLASS(o->status) == MN_CLASS_SMALLER;
        memory |= short_of;
        other |= !short_of;
    }
    if (tried && tried->status == MN_OUT_OF_MEMORY)
        memory = true, other = false;
    list_refusals(c, &refused);
    if (tried && tried->reason[0] && asked > 1) /* else it says the same again */
        mn_text_printf(&refused, "%s%s", refused.len ? "; " : "", tried->reason);
    list_devices(c->reg, &devices);
    mn_status st = mn_fail(c->err, memory && !other ? MN_OUT_OF_MEMORY : MN_NO_DEVICE,
                           "device %s: nothing can run the model: %s; there are: %s", c->r->devices,
                           refused.ptr ? refused.ptr
                                       : "no backend plugin is installed (see `minerva plugins`)",
                           devices.ptr ? devices.ptr : "");
    mn_text_free(&refused);
    mn_text_free(&devices);
    return st;
}

static const char *next_entry(const char *s, mn_str *name) {
    *name = (mn_str){s, strcspn(s, ",")};
    return s[name->len] ? s + name->len + 1 : NULL;
}

static bool is_choice(mn_str name) {
    return mn_str_is(name, "auto") || mn_str_is(name, "cpu");
}

/* Whether another entry of the list is a CPU or leaves the choice: then a device that fails is
 * passed over with a warning, unless the user wants none to be. */
static bool has_fallback(const chooser *c, mn_str except) {
    mn_str name;
    if (c->r->flags & MN_REQUEST_STRICT)
        return false;
    for (const char *rest = c->r->devices; rest;) {
        rest = next_entry(rest, &name);
        const mn_device_record *d = is_choice(name) ? NULL : mn_registry_device(c->reg, name);
        const bool cpu = d && d->usable && d->info.kind == MN_DEVICE_CPU;
        if (is_choice(name) || (cpu && !mn_str_eq(name, except)))
            return true;
    }
    return false;
}

typedef struct {
    order w;
    bool spare[MN_MAX_SPLIT]; /* may get nothing: there is a fallback */
    uint32_t n_named;
    mn_text passed_over;
} listed;

static void pass_over(listed *l, mn_str name, const char *why) {
    mn_text_printf(&l->passed_over, "%s%.*s (%s)", l->passed_over.len ? "; " : "", MN_STR_ARG(name),
                   *why ? why : "no such device");
}

static bool has_failed(const mn_plugin_record *r) {
    return r->status != MN_RECORD_OK && r->status != MN_RECORD_SHADOWED;
}

/* Why there is no device of that name: its plugin's file may be there and have failed. "" = there
 * is no such file. */
static void why_missing(chooser *c, mn_str name, char *out, size_t cap) {
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(c->reg, &n);
    mn_str id = {name.ptr, name.len};
    for (uint64_t i = 0; i < name.len && id.len == name.len; i++)
        if (name.ptr[i] == ':')
            id.len = i;
    out[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(r[i].path, '/'), *file = slash ? slash + 1 : r[i].path;
        bool same = r[i].id.len ? mn_str_eq(r[i].id, id)
                                : (mn_str_eq((mn_str){file, strcspn(file, ".")}, id));
        if (same && has_failed(&r[i]))
            snprintf(out, cap, "%s: %.300s", mn_record_status_name(r[i].status), r[i].reason);
    }
}

/* One name: into the order, or passed over, or an error. */
static mn_status add_named(chooser *c, mn_str name, bool fallback, listed *l) {
    const mn_device_record *d = mn_registry_device(c->reg, name);
    uint32_t at = 0;
    char missing[360];
    if (!d)
        why_missing(c, name, missing, sizeof missing);
    if (!d && !fallback)
        return no_such_device(c, name, missing);
    mn_status st = d ? ask(c, d, &at) : MN_OK;
    if (st)
        return st;
    if (d && can_some(c, at)) {
        l->spare[MN_MIN(l->w.n, MN_MAX_SPLIT - 1)] = fallback;
        append(&l->w, at);
        l->n_named = l->w.n;
        return MN_OK;
    }
    pass_over(l, name, d ? offer(c, at)->reason : missing);
    return fallback ? MN_OK : nothing(c, NULL);
}

/* What stands behind a choice that was enough is not needed, but has to be there. */
static mn_status look_at_rest(chooser *c, const char *rest, listed *l) {
    mn_str name;
    char missing[360];
    while (rest) {
        rest = next_entry(rest, &name);
        const mn_device_record *d = is_choice(name) ? NULL : mn_registry_device(c->reg, name);
        if (is_choice(name) || (d && d->usable))
            continue;
        if (!d)
            why_missing(c, name, missing, sizeof missing);
        if (d)
            mn_registry_say_lost(c->reg, d, missing, sizeof missing);
        if (!has_fallback(c, name) && d)
            return mn_fail(c->err, MN_NO_DEVICE, "device %s cannot be used: %s", d->name, missing);
        if (!has_fallback(c, name))
            return no_such_device(c, name, missing);
        pass_over(l, name, missing);
    }
    return MN_OK;
}

static mn_status plan_listed(chooser *c, listed *l) {
    mn_plan plan = {0};
    rate_all(c, l->w.n > l->n_named);
    mn_status st = make_plan(c, &l->w, &plan);
    if (!st && plan.status)
        st = nothing(c, &plan);
    for (uint32_t k = 0; k < l->n_named && !st; k++)
        if (plan.starved[k] && l->spare[k])
            pass_over(l, mn_str_of(offer(c, l->w.at[k])->record->name),
                      "has no memory for any part of the model");
        else if (plan.starved[k])
            st = mn_fail(
                c->err, MN_OUT_OF_MEMORY, "device %s: has no memory for any part of the model: %s",
                offer(c, l->w.at[k])->record->name,
                *offer(c, l->w.at[k])->reason ? offer(c, l->w.at[k])->reason : plan.reason);
    if (st)
        mn_plan_free(&plan);
    else
        adopt(c, &plan);
    return st;
}

static mn_status choose(chooser *c) {
    listed l = {.n_named = 0};
    mn_status st = MN_OK;
    for (const char *s = c->r->devices; s && !st && !has_plan(c);) {
        mn_str name;
        s = next_entry(s, &name);
        bool cpu = mn_str_is(name, "cpu");
        if (!is_choice(name))
            st = add_named(c, name, has_fallback(c, name), &l);
        else if (!l.w.n) {
            st = choose_auto(c, cpu);
            if (!st && has_plan(c))
                st = look_at_rest(c, s, &l);
        } else {
            st = ask_all(c, cpu);
            rate_all(c, true);
            append_ranked(c, &l.w, cpu, true);
        }
    }
    c->named = !has_plan(c);
    if (!st && !has_plan(c))
        st = l.w.n ? plan_listed(c, &l) : nothing(c, NULL);
    if (!st && l.passed_over.len)
        mn_log(MN_LOG_WARN, "device list %s: not used: %s (--strict makes this an error)",
               c->r->devices, l.passed_over.ptr);
    mn_text_free(&l.passed_over);
    return st;
}

/* ---- the sentence and the words -------------------------------------------------------------- */
/* Backends that are not even loaded: those that are set aside, or (all) whatever the reason, which is
 * the likely one for a fallback. */
static void list_failed_plugins(const mn_registry *reg, bool all, mn_text *out) {
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(reg, &n);
    for (size_t i = 0; i < n; i++)
        if (r[i].status == MN_RECORD_SET_ASIDE || (all && has_failed(&r[i])))
            mn_text_printf(out, "%s%s (%s): %s", out->len ? "; " : "", r[i].path,
                           mn_record_status_name(r[i].status), r[i].reason);
}

static void say_split(chooser *c, mn_text *why) {
    const mn_plan *plan = &c->plan;
    uint32_t d = 0;
    mn_plan_describe(plan, c->p->offers, c->g, why);
    while (d < plan->n_devices && !plan->lacks[d])
        d++;
    const mn_offer *o = offer(c, plan->device[d < plan->n_devices ? d : 0]);
    if (d < plan->n_devices && plan->lacks[d] < UINT64_MAX)
        mn_text_printf(why, ": %.1f GiB would be needed, %.1f are free",
                       (double)plan->lacks[d] / 0x1p30, (double)o->free_bytes / 0x1p30);
    else if (c->named)
        mn_text_puts(why, ": named by the user");
    else
        mn_text_puts(why, ": no single device does it as fast");
    mn_text_printf(why, "; %u segments, %u copies per step", plan->n_segments,
                   plan->copies.n_copies);
}

static void say_why(chooser *c, mn_text *why) {
    const mn_offer *win = offer(c, c->p->chosen);
    uint32_t others = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        others += offer(c, i) != win && offer(c, i)->asked && !offer(c, i)->status;
    if (c->plan.n_devices > 1)
        say_split(c, why);
    else if (c->named)
        mn_text_puts(why, "named by the user");
    else if (c->p->fallback)
        mn_text_puts(why, "nothing faster is there (this is the slow reference)");
    else if (!others)
        mn_text_puts(why, "the only usable device");
    else
        mn_text_printf(why, "the fastest of %u usable devices", others + 1);
    mn_text refused = {0};
    list_refusals(c, &refused);
    if (!c->named)
        list_failed_plugins(c->reg, c->p->fallback, &refused);
    if (refused.len)
        mn_text_printf(why, "; not used: %s", refused.ptr);
    mn_text_free(&refused);
}

static mn_outcome outcome(const chooser *c, const mn_offer *o, bool in) {
    uint32_t klass = MN_STATUS_CLASS(o->status);
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
    return mn_offer_is_oracle(o) ? MN_OUTCOME_ORACLE : MN_OUTCOME_SLOWER;
}

/* Weights that a device uses where they lie in their file cost it no memory of their own. But what
 * of them does not fit beside the rest comes from the disk at every step. */
static void warn_of_disk(const chooser *c) {
    const mn_plan *plan = &c->plan;
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        const mn_offer *o = &c->p->offers[plan->device[d]];
        double in_file = 0, left = (double)o->free_bytes - (double)plan->used[d];
        for (uint32_t k = 0; k < plan->n_segments; k++) {
            const mn_segment *s = &plan->segments[k];
            if (s->offer == plan->device[d])
                in_file += MN_MAX(mn_segment_bytes(&c->g->abi, s) - (double)s->estimate.weights, 0);
        }
        if (o->free_bytes && in_file > left)
            mn_log(MN_LOG_WARN,
                   "%s uses %.2f GiB of weights where they lie in their file, and %.2f GiB of "
                   "memory are free for them: "
                   "the rest is read from the disk at every step",
                   o->record->name, in_file / 0x1p30, MN_MAX(left, 0) / 0x1p30);
    }
}

/* The plan becomes the placement. */
static mn_status settle(chooser *c) {
    mn_placement *p = c->p;
    mn_plan *plan = &c->plan;
    mn_text why = {0};
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        offer(c, plan->device[d])->share = plan->share[d];
        if (!d || plan->share[d] > p->offers[p->chosen].share)
            p->chosen = plan->device[d];
    }
    p->fallback = !c->named && mn_offer_is_oracle(offer(c, p->chosen));
    say_why(c, &why);
    warn_of_disk(c);
    p->segments = plan->segments, p->n_segments = plan->n_segments;
    plan->segments = NULL;
    p->n_copies = plan->copies.n_copies;
    p->copy_us = mn_score(plan->copies.decode_us, plan->copies.prefill_us);
    p->score = plan->score;
    p->why = why.ptr;
    mn_request_symbols(c->r, 1, p->symbol_max);
    for (uint32_t k = 0; k < p->n_segments; k++)
        p->symbol_max[MN_SYM_PAGES] =
            MN_MAX(p->symbol_max[MN_SYM_PAGES], mn_segment_row(&p->segments[k], c->r));
    return p->why && !why.failed ? MN_OK : mn_fail_memory(c->err, 64);
}

/* For the record: what auto would have thought of each device, whatever the list says. */
static mn_status rehearse(chooser *c) {
    mn_status st = choose_auto(c, false);
    mn_plan_free(&c->plan);
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        offer(c, i)->asked = false;
    return st;
}

static void tell(const chooser *c) {
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = &c->p->offers[i];
        mn_log(MN_LOG_DEBUG, "device %s: %s%s%s; %.4g us per token by %s rates", o->record->name,
               mn_outcome_name(o->outcome), *o->reason ? ": " : "", o->reason, o->score,
               o->rates.source ? mn_rates_source_name(o->rates.source) : "no");
    }
    if (c->p->why)
        mn_log(MN_LOG_DEBUG, "device list %s: %s: %s", c->r->devices,
               c->p->offers[c->p->chosen].record->name, c->p->why);
}

/* Whether the list names the device, or leaves a choice that it is part of: only then is it worth
 * the time of trying it again. */
static bool may_choose(const chooser *c, const mn_device_record *d) {
    bool may = explains(c);
    mn_str name;
    for (const char *rest = c->r->devices; rest && !may;) {
        rest = next_entry(rest, &name);
        if (is_choice(name))
            may = !mn_str_is(name, "cpu") || d->info.kind == MN_DEVICE_CPU;
        else
            may = mn_registry_device(c->reg, name) == d;
    }
    return may && !is_passed_over(c, d);
}

mn_status mn_negotiate(mn_registry *reg, const mn_model_graph *g, const mn_request *r,
                       mn_placement *out, mn_error *err) {
    mn_placement p = {0};
    chooser c = {.reg = reg, .g = g, .r = r, .p = &p, .err = err};
    size_t n;
    *out = (mn_placement){0};
    const mn_device_record *all = mn_registry_devices(reg, &n);
    for (size_t i = 0; all && i < n; i++)
        if (!all[i].usable && may_choose(&c, &all[i]))
            mn_registry_retry(reg, &all[i]);
    p.offers = all ? mn_calloc(n ? n : 1, sizeof *p.offers) : NULL;
    if (!p.offers)
        return mn_fail_memory(err, n * sizeof *p.offers);
    mn_status st = explains(&c) ? rehearse(&c) : MN_OK;
    if (!st)
        st = choose(&c);
    for (uint32_t i = 0; i < p.n_offers; i++) {
        bool in = false;
        for (uint32_t d = 0; d < c.plan.n_devices; d++)
            in |= c.plan.device[d] == i;
        p.offers[i].outcome = outcome(&c, &p.offers[i], !st && in);
    }
    if (!st)
        st = settle(&c);
    tell(&c);
    mn_plan_free(&c.plan);
    if (st && !explains(&c))
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
    mn_free(p->why);
    *p = (mn_placement){0};
}
