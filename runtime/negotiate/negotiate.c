/* negotiate.c -- from the user's words and the devices' offers to one choice that can explain itself. */
#include "negotiate/offer.h"
#include <string.h>

static bool is_oracle(const mn_device_record *d) { return d->info.flags & MN_DEVICE_ORACLE; }
static bool is_cpu(const mn_device_record *d) { return d->usable && d->info.kind == MN_DEVICE_CPU; }

static void list_devices(mn_registry *reg, mn_text *out) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    for (size_t i = 0; i < n; i++)
        mn_text_printf(out, "%s%s%s", i ? ", " : "", all[i].name, all[i].usable ? "" : " (not usable)");
    if (!n) mn_text_puts(out, "none");
}

static mn_status no_such_device(mn_registry *reg, mn_str name, mn_error *err) {
    mn_text list = {0};
    list_devices(reg, &list);
    mn_status st = mn_fail(err, MN_NO_DEVICE, "there is no device \"%.*s\"; there are: %s", MN_STR_ARG(name),
                           list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return st;
}

static mn_offer *ask(mn_placement *p, mn_registry *reg, const mn_device_record *d, const mn_model_graph *g,
                     const mn_request *r) {
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (p->offers[i].record == d) return &p->offers[i];
    mn_offer *o = &p->offers[p->n_offers++];
    mn_offer_ask(reg, d, g, r, o);
    return o;
}

/* The best offer among all devices, or among CPUs; the oracle only if nothing else can. */
static mn_offer *best(mn_placement *p, mn_registry *reg, const mn_model_graph *g, const mn_request *r, bool cpu_only) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    mn_offer *win = NULL;
    for (size_t i = 0; i < n; i++) {
        if (cpu_only && !is_cpu(&all[i])) continue;
        mn_offer *o = ask(p, reg, &all[i], g, r);
        if (o->status) continue;
        bool better = !win || is_oracle(win->record) > is_oracle(o->record) ||
                      (is_oracle(win->record) == is_oracle(o->record) && o->score < win->score);
        if (better) win = o;
    }
    return win;
}

static void list_refusals(const mn_placement *p, const mn_offer *but, mn_text *out) {
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (p->offers[i].status && &p->offers[i] != but)
            mn_text_printf(out, "%s%s: %s", out->len ? "; " : "", p->offers[i].record->name, p->offers[i].reason);
}

/* Backends that could not even be loaded: the likely reason for a fallback. */
static void list_failed_plugins(const mn_registry *reg, mn_text *out) {
    size_t n;
    const mn_plugin_record *r = mn_registry_plugins(reg, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(r[i].status, "ok") && strcmp(r[i].status, "shadowed"))
            mn_text_printf(out, "%s%s (%s): %s", out->len ? "; " : "", r[i].path, r[i].status, r[i].reason);
}

static void explain(mn_placement *p, const mn_registry *reg, const mn_offer *win, bool named) {
    mn_text why = {0};
    uint32_t others = 0;
    for (uint32_t i = 0; i < p->n_offers; i++) others += &p->offers[i] != win && !p->offers[i].status;
    p->fallback = !named && is_oracle(win->record);
    if (named)
        mn_text_puts(&why, "named by the user");
    else if (p->fallback)
        mn_text_puts(&why, "nothing faster is there (this is the slow reference)");
    else if (!others)
        mn_text_puts(&why, "the only usable device");
    else
        mn_text_printf(&why, "the fastest of %u usable devices", others + 1);
    mn_text refused = {0};
    list_refusals(p, win, &refused);
    if (p->fallback) list_failed_plugins(reg, &refused);
    if (refused.len) mn_text_printf(&why, "; not used: %s", refused.ptr);
    mn_text_free(&refused);
    p->why = why.ptr;
}

static mn_status nothing(const mn_placement *p, mn_registry *reg, const char *asked, mn_error *err) {
    mn_text refused = {0}, devices = {0};
    bool memory = p->n_offers > 0;
    for (uint32_t i = 0; i < p->n_offers; i++)
        memory = memory && (MN_STATUS_CLASS(p->offers[i].status) == MN_CLASS_SMALLER || is_oracle(p->offers[i].record));
    list_refusals(p, NULL, &refused);
    list_devices(reg, &devices);
    mn_status st = mn_fail(err, memory ? MN_OUT_OF_MEMORY : MN_NO_DEVICE,
                           "device %s: nothing can run the model: %s; there are: %s", asked,
                           refused.len ? refused.ptr : "no backend plugin is installed (see `minerva plugins`)",
                           devices.ptr ? devices.ptr : "");
    mn_text_free(&refused);
    mn_text_free(&devices);
    return st;
}

/* Goes through the user's list; the first entry that can run the graph wins. */
static mn_status by_list(mn_placement *p, mn_registry *reg, const mn_model_graph *g, const mn_request *r,
                         mn_offer **win, bool *named, mn_error *err) {
    mn_text missing = {0};
    mn_str first_missing = {0};
    for (const char *s = r->devices; s && !*win; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        mn_str name = {s, strcspn(s, ",")};
        if (mn_str_is(name, "auto") || mn_str_is(name, "cpu")) {
            *win = best(p, reg, g, r, mn_str_is(name, "cpu"));
            *named = false;
            continue;
        }
        const mn_device_record *d = mn_registry_device(reg, name);
        if (d) {
            mn_offer *o = ask(p, reg, d, g, r);
            if (!o->status) {
                *win = o;
                *named = true;
            }
            continue;
        }
        if (!first_missing.ptr) first_missing = name;
        mn_text_printf(&missing, "%s%.*s (no such device)", missing.len ? "; " : "", MN_STR_ARG(name));
    }
    mn_status st = MN_OK;
    if (!*win && first_missing.ptr)
        st = no_such_device(reg, first_missing, err);
    else if (!*win)
        st = nothing(p, reg, r->devices, err);
    else if (missing.len && p->n_offers)
        mn_log(MN_LOG_WARN, "device list %s: not used: %s", r->devices, missing.ptr);
    mn_text_free(&missing);
    return st;
}

mn_status mn_negotiate(mn_registry *reg, const mn_model_graph *g, const mn_request *r, mn_placement *out,
                       mn_error *err) {
    mn_placement p = {0};
    mn_offer *win = NULL;
    bool named = false;
    size_t n;
    mn_registry_devices(reg, &n);
    p.offers = mn_calloc(n ? n : 1, sizeof *p.offers);
    if (!p.offers) return mn_fail_memory(err, n * sizeof *p.offers);
    mn_status st = by_list(&p, reg, g, r, &win, &named, err);
    if (!st) {
        explain(&p, reg, win, named);
        p.chosen = (uint32_t)(win - p.offers);
        mn_offer_symbols(win, r, p.symbol_max);
        p.segments = mn_calloc(1, sizeof *p.segments);
        if (p.segments) p.segments[p.n_segments++] = (mn_segment){0, g->abi.n_nodes, p.chosen};
        if (!p.why || !p.segments) st = mn_fail_memory(err, 64);
    }
    if (st)
        mn_placement_free(&p);
    else
        *out = p;
    return st;
}

void mn_placement_free(mn_placement *p) {
    for (uint32_t i = 0; i < p->n_offers; i++) mn_free(p->offers[i].verdicts);
    mn_free(p->segments);
    mn_free(p->offers);
    mn_free(p->why);
    *p = (mn_placement){0};
}
