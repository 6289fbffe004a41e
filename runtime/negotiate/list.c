/* list.c -- the user's list of devices: names, "cpu" and "auto", best first.
 *
 * Names are taken in order until a choice stands in the list: at its head it decides alone, behind
 * names it adds whoever could do what they leave. A name that cannot be used is an error, unless a
 * CPU or a choice is in the list, too: then it is passed over with a warning. */
#include "negotiate/choose.h"
#include <stdio.h>
#include <string.h>

enum { WHY_CAP = 360 };

/* What was made of the list so far. */
typedef struct {
    mn_order w;
    bool spare[MN_MAX_SPLIT]; /* may get nothing: there is a fallback */
    uint32_t n_named;
    mn_text passed_over;
} listed;

/* ---- entries --------------------------------------------------------------------------------- */

/* The entry at s; what stands behind it, or NULL. */
static const char *device_list_next_entry(const char *s, mn_str *name) {
    *name = (mn_str){s, strcspn(s, ",")};
    return s[name->len] ? s + name->len + 1 : NULL;
}

static bool is_choice(mn_str name) {
    return mn_str_is(name, "auto") || mn_str_is(name, "cpu");
}

static const mn_device_record *device_named(const mn_chooser *c, mn_str name) {
    return is_choice(name) ? NULL : mn_registry_device(c->reg, name);
}

/* Whether another entry of the list is a CPU or leaves the choice, and the user does not want
 * devices that fail to be errors all the same. */
static bool has_fallback(const mn_chooser *c, mn_str except) {
    const char *rest = c->r->devices;
    mn_str name;
    if (c->r->flags & MN_REQUEST_STRICT)
        return false;
    while (rest) {
        rest = device_list_next_entry(rest, &name);
        const mn_device_record *d = device_named(c, name);
        const bool cpu = d && d->usable && d->info.kind == MN_DEVICE_CPU;
        if (is_choice(name) || (cpu && !mn_str_eq(name, except)))
            return true;
    }
    return false;
}

bool mn_may_choose(const mn_chooser *c, const mn_device_record *d) {
    const char *rest = c->r->devices;
    bool may = mn_explains(c);
    mn_str name;
    while (rest && !may) {
        rest = device_list_next_entry(rest, &name);
        const bool of_kind = !mn_str_is(name, "cpu") || d->info.kind == MN_DEVICE_CPU;
        may = is_choice(name) ? of_kind : mn_registry_device(c->reg, name) == d;
    }
    return may && !mn_is_passed_over(c, d);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void put_all_devices(mn_registry *reg, mn_text *out) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    for (size_t i = 0; i < n; i++)
        mn_text_printf(out, "%s%s%s", i ? ", " : "", all[i].name,
                       all[i].usable ? "" : " (not usable)");
    if (!n)
        mn_text_puts(out, "none");
}

/* A machine without a driver lacks it at every start: that is said once, by the start that probes
 * the plugin. */
static bool device_list_is_known(const mn_chooser *c, const mn_offer *o) {
    const mn_plugin_record *plugin = o->record->plugin;
    return mn_has_plan(c) && !c->named && plugin->probe.cached && o->status == MN_NO_DEVICE;
}

void mn_list_refusals(const mn_chooser *c, mn_text *out) {
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = mn_offer_at(c, i);
        const bool missed = !mn_has_plan(c) || !mn_offer_is_oracle(o);
        if (o->asked && o->status && missed && !mn_in_plan(c, i) && !device_list_is_known(c, o))
            mn_text_printf(out, "%s%s: %s", out->len ? "; " : "", o->record->name, o->reason);
    }
}

/* why: "" = no plugin of that name was found at all; no_memory: it was, and could not be opened. */
static mn_status no_such_device(mn_chooser *c, mn_str name, const char *why, bool no_memory) {
    mn_text list = {0};
    put_all_devices(c->reg, &list);
    mn_status st = mn_fail(c->err, no_memory ? MN_OUT_OF_MEMORY : MN_NO_DEVICE,
                           "there is no device \"%.*s\"%s%s%s; there are: %s", MN_STR_ARG(name),
                           *why ? " (" : "", why, *why ? ")" : "", list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return st;
}

/* Whether memory alone is in the way of all that were asked but the oracle. Plugins without a
 * device (no driver, no card) say nothing about memory. */
static bool lacks_memory(const mn_chooser *c) {
    bool memory = false;
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        const mn_offer *o = mn_offer_at(c, i);
        if (!o->asked || mn_offer_is_oracle(o) || o->status == MN_NO_DEVICE)
            continue;
        if (MN_STATUS_CLASS(o->status) != MN_CLASS_SMALLER)
            return false;
        memory = true;
    }
    return memory;
}

static uint32_t count_asked(const mn_chooser *c) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->p->n_offers; i++)
        n += mn_offer_at(c, i)->asked;
    return n;
}

/* The error that no device can run the graph. tried: the last plan, or NULL. */
static mn_status nothing(mn_chooser *c, const mn_plan *tried) {
    mn_text refused = {0};
    mn_text devices = {0};
    const mn_plugin_record *missing = mn_registry_no_memory(c->reg, "backend");
    const bool memory =
        (tried && tried->status == MN_OUT_OF_MEMORY) || lacks_memory(c) || missing != NULL;
    mn_list_refusals(c, &refused);
    if (missing)
        mn_text_printf(&refused, "%sout of memory while %s was opened: %s", refused.len ? "; " : "",
                       missing->path, missing->reason);
    const bool twice = refused.len && count_asked(c) == 1; /* it says the same again */
    if (*c->why_not)
        mn_text_printf(&refused, "%s%s", refused.len ? "; " : "", c->why_not);
    else if (tried && tried->reason[0] && !twice)
        mn_text_printf(&refused, "%s%s", refused.len ? "; " : "", tried->reason);
    if (!refused.len)
        mn_text_puts(&refused, "no backend plugin is installed (see `minerva plugins`)");
    put_all_devices(c->reg, &devices);
    mn_status st = mn_fail(c->err, memory ? MN_OUT_OF_MEMORY : MN_NO_DEVICE,
                           "device %s: nothing can run the model: %s; there are: %s", c->r->devices,
                           refused.ptr ? refused.ptr : "", devices.ptr ? devices.ptr : "");
    mn_text_free(&refused);
    mn_text_free(&devices);
    return st;
}

/* Whether the plugin's file would be that of id: what its note or the probe said, else its name. */
static bool has_id(const mn_plugin_record *r, mn_str id) {
    const char *slash = strrchr(r->path, '/');
    const char *file = slash ? slash + 1 : r->path;
    const mn_str stem = {file, strcspn(file, ".")};
    return mn_str_eq(r->id.len ? r->id : stem, id);
}

/* Why there is no device of that name: its plugin's file may be there and have failed. "" = there
 * is no such file. */
static void why_missing(const mn_chooser *c, mn_str name, char out[WHY_CAP], bool *no_memory) {
    char group[MN_GROUP_WHY];
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(c->reg, &n);
    const char *colon = name.len ? memchr(name.ptr, ':', name.len) : NULL;
    const mn_str id = {name.ptr, colon ? (uint64_t)(colon - name.ptr) : name.len};
    out[0] = 0;
    *no_memory = false;
    if (mn_is_group_name(name) && !mn_registry_group(c->reg, name, group))
        snprintf(out, WHY_CAP, "%.350s", group);
    for (size_t i = 0; i < n; i++) {
        if (!has_id(&r[i], id) || !mn_record_has_failed(&r[i]))
            continue;
        *no_memory |= r[i].no_memory;
        snprintf(out, WHY_CAP, "%s: %s%.300s", mn_record_status_name(r[i].status),
                 r[i].no_memory ? "out of memory: " : "", r[i].reason);
    }
}

/* ---- the list -------------------------------------------------------------------------------- */

static void device_list_pass_over(listed *l, mn_str name, const char *why) {
    mn_text_printf(&l->passed_over, "%s%.*s (%s)", l->passed_over.len ? "; " : "", MN_STR_ARG(name),
                   *why ? why : "no such device");
}

static mn_status pass_over_missing(mn_chooser *c, mn_str name, bool fallback, listed *l) {
    char why[WHY_CAP];
    bool no_memory = false;
    why_missing(c, name, why, &no_memory);
    if (!fallback)
        return no_such_device(c, name, why, no_memory);
    device_list_pass_over(l, name, why);
    return MN_OK;
}

/* One name: into the order, or passed over, or an error. */
static mn_status add_named(mn_chooser *c, mn_str name, listed *l) {
    const mn_device_record *d = mn_registry_device(c->reg, name);
    const bool fallback = has_fallback(c, name);
    uint32_t at;
    if (!d)
        return pass_over_missing(c, name, fallback, l);
    mn_status st = mn_ask_device(c, d, &at);
    if (st)
        return st;
    if (mn_can_some(c, at)) {
        l->spare[MN_MIN(l->w.n, MN_MAX_SPLIT - 1)] = fallback;
        mn_order_add(&l->w, at);
        l->n_named = l->w.n;
        return MN_OK;
    }
    if (!fallback)
        return nothing(c, NULL);
    device_list_pass_over(l, name, mn_offer_at(c, at)->reason);
    return MN_OK;
}

/* What stands behind a choice that was enough is not needed, but has to be there. */
static mn_status look_at(mn_chooser *c, mn_str name, listed *l) {
    const mn_device_record *d = device_named(c, name);
    const bool fallback = has_fallback(c, name);
    char why[WHY_CAP];
    if (is_choice(name) || (d && d->usable))
        return MN_OK;
    if (!d)
        return pass_over_missing(c, name, fallback, l);
    mn_registry_say_lost(c->reg, d, why, sizeof why);
    if (!fallback)
        return mn_fail(c->err, MN_NO_DEVICE, "device %s cannot be used: %s", d->name, why);
    device_list_pass_over(l, name, why);
    return MN_OK;
}

static mn_status look_at_rest(mn_chooser *c, const char *rest, listed *l) {
    mn_status st = MN_OK;
    mn_str name;
    while (rest && !st) {
        rest = device_list_next_entry(rest, &name);
        st = look_at(c, name, l);
    }
    return st;
}

/* "auto" or "cpu" with `rest` of the list behind it. */
static mn_status add_choice(mn_chooser *c, mn_str name, const char *rest, listed *l) {
    const bool cpu_only = mn_str_is(name, "cpu");
    mn_status st;
    if (!l->w.n) {
        st = mn_choose_auto(c, cpu_only);
        return st || !mn_has_plan(c) ? st : look_at_rest(c, rest, l);
    }
    st = mn_ask_all(c, cpu_only);
    mn_rate_all(c, true);
    mn_order_add_ranked(c, &l->w, cpu_only, true);
    return st;
}

/* A named device that has memory for no part. */
static mn_status starve(mn_chooser *c, uint32_t k, const mn_plan *plan, listed *l) {
    static const char what[] = "has no memory for any part of the model";
    const mn_offer *o = mn_offer_at(c, l->w.at[k]);
    if (!l->spare[k])
        return mn_fail(c->err, MN_OUT_OF_MEMORY, "device %s: %s: %s", o->record->name, what,
                       *o->reason ? o->reason : plan->reason);
    device_list_pass_over(l, mn_str_of(o->record->name), what);
    return MN_OK;
}

static bool is_short(const mn_plan *plan) {
    for (uint32_t d = 0; d < plan->n_devices; d++)
        if (plan->lacks[d])
            return true;
    return false;
}

/* Rates that were taken as claimed, because nothing depended on them. */
static void measure_claims(mn_chooser *c) {
    for (uint32_t i = 0; i < c->p->n_offers; i++) {
        mn_rates *rates = &mn_offer_at(c, i)->rates;
        if (rates->source == MN_RATES_CLAIMED && !*rates->note)
            rates->source = MN_RATES_NONE;
    }
    mn_rate_all(c, true);
}

/* A device has no memory for all that it could do: which part it gets depends on rates. */
static mn_status plan_short(mn_chooser *c, const listed *l, mn_plan *plan) {
    if (!c->n_experts || mn_experts_are_fixed(c))
        return MN_OK;
    measure_claims(c);
    mn_plan_free(plan);
    const mn_status st = mn_plan_order(c, &l->w, plan);
    return st ? st : mn_options_try(c, &l->w, plan);
}

static mn_status plan_listed(mn_chooser *c, listed *l) {
    mn_plan plan = {0};
    mn_rate_all(c, l->w.n > l->n_named);
    mn_status st = mn_plan_order(c, &l->w, &plan);
    if (!st && is_short(&plan))
        st = plan_short(c, l, &plan);
    if (!st && plan.status)
        st = nothing(c, &plan);
    for (uint32_t k = 0; k < l->n_named && !st; k++)
        if (plan.starved[k])
            st = starve(c, k, &plan, l);
    if (!st)
        mn_plan_adopt(c, &plan);
    mn_plan_free(&plan);
    return st;
}

/* A device has one place in a list: alone, or in one group. */
static mn_status check_overlap(const mn_chooser *c, const mn_device_record *d, const char *rest) {
    mn_str name;
    while (rest) {
        rest = device_list_next_entry(rest, &name);
        const mn_device_record *other = device_named(c, name);
        if (other && mn_devices_overlap(d, other))
            return mn_fail(c->err, MN_NO_DEVICE,
                           "device list %s: found %s beside %s, which have a device in common; "
                           "expected each device once: leave out one of the two",
                           c->r->devices, d->name, other->name);
    }
    return MN_OK;
}

static mn_status check_overlaps(const mn_chooser *c) {
    const char *rest = c->r->devices;
    mn_status st = MN_OK;
    mn_str name;
    while (rest && !st) {
        rest = device_list_next_entry(rest, &name);
        const mn_device_record *d = device_named(c, name);
        if (d)
            st = check_overlap(c, d, rest);
    }
    return st;
}

mn_status mn_choose_listed(mn_chooser *c) {
    const char *rest = c->r->devices;
    listed l = {.n_named = 0};
    mn_status st = check_overlaps(c);
    mn_str name;
    while (rest && !st && !mn_has_plan(c)) {
        rest = device_list_next_entry(rest, &name);
        if (is_choice(name))
            st = add_choice(c, name, rest, &l);
        else
            st = add_named(c, name, &l);
    }
    c->named = !mn_has_plan(c);
    if (!st && !mn_has_plan(c))
        st = l.w.n ? plan_listed(c, &l) : nothing(c, NULL);
    if (!st && l.passed_over.len && !(c->r->flags & MN_REQUEST_AGAIN))
        mn_log(MN_LOG_WARN, "device list %s: not used: %s (--strict makes this an error)",
               c->r->devices, l.passed_over.ptr);
    mn_text_free(&l.passed_over);
    return st;
}
