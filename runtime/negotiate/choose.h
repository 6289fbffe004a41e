/* choose.h -- the choice among plans, in six files: auto.c chooses for auto, list.c chooses by the
 * user's list, options.c places routed experts, divide.c those of one layer on two devices, pins.c
 * weights that the user names, negotiate.c begins and ends a negotiation and writes the reasons. */
#ifndef MN_CHOOSE_H
#define MN_CHOOSE_H
#include "base/name_rule.h"
#include "negotiate/offer.h"

/* a split must be so much faster than what it replaces: rates are measured on busy machines */
#define MN_SPLIT_GAIN 1.1

/* One negotiation. */
typedef struct {
    mn_registry *reg;
    const mn_model_graph *g;
    const mn_request *r;
    mn_placement *p;          /* its offers, made as devices are asked */
    mn_plan plan;             /* the best so far; n_segments 0 = none */
    bool named;               /* the user chose these devices */
    mn_expert_range *experts; /* [n_experts] of the graph */
    uint32_t n_experts;
    mn_name_rule *rules; /* [n_rules] of request.tensor_devices */
    uint32_t n_rules;
    int32_t *rule_of;  /* [n_nodes] rule, or -1; NULL: there is no rule */
    int32_t *pin;      /* [n_nodes] of the plan that is tried */
    char why_not[400]; /* why auto cannot follow the request; "" = it can */
    mn_error *err;
} mn_chooser;

/* Offers, best first. */
typedef struct {
    uint32_t at[MN_MAX_SPLIT], n;
} mn_order;

static inline bool mn_has_plan(const mn_chooser *c) {
    return c->plan.n_segments > 0;
}
static inline bool mn_explains(const mn_chooser *c) {
    return c->r->flags & MN_REQUEST_EXPLAIN;
}
static inline mn_offer *mn_offer_at(const mn_chooser *c, uint32_t i) {
    return &c->p->offers[i];
}
/* Whether the best plan so far has offer i. */
static inline bool mn_in_plan(const mn_chooser *c, uint32_t i) {
    for (uint32_t d = 0; d < c->plan.n_devices; d++)
        if (c->plan.device[d] == i)
            return true;
    return false;
}
static inline bool mn_can_all(const mn_chooser *c, uint32_t i) {
    return mn_offer_is_whole(mn_offer_at(c, i), c->g);
}
static inline bool mn_can_some(const mn_chooser *c, uint32_t i) {
    const mn_offer *o = mn_offer_at(c, i);
    return o->can && o->n_can;
}

/* ---- auto.c ---------------------------------------------------------------------------------- */
/* Asks the device unless it was asked before; *at: its offer. Errors, here and below, are those of
 * the host: a device that cannot is an offer that says so, devices that cannot are no plan. */
mn_status mn_ask_device(mn_chooser *c, const mn_device_record *d, uint32_t *at);
/* All devices but those that the request passes over; cpu_only: usable CPUs. */
mn_status mn_ask_all(mn_chooser *c, bool cpu_only);
bool mn_is_passed_over(const mn_chooser *c, const mn_device_record *d);
/* Whether another plugin offers the card of offer i as well (the same uid), can run the graph, and
 * claims no less: auto leaves i out then. The context of a second driver would take memory of the
 * card that is not counted. False if the user named devices. */
bool mn_is_double(const mn_chooser *c, uint32_t i);
/* Rates of all devices that were asked; compares: rates that decide the choice are measured. */
void mn_rate_all(mn_chooser *c, bool compares);
void mn_order_add(mn_order *w, uint32_t i); /* appends i, unless the list has it */
/* All devices that were asked and can run some node, by rank. */
void mn_order_add_ranked(const mn_chooser *c, mn_order *w, bool cpu_only, bool oracles);
/* Makes the plan of these devices, with the experts where the request wants them. */
mn_status mn_plan_order(mn_chooser *c, const mn_order *w, mn_plan *out);
void mn_plan_adopt(mn_chooser *c, mn_plan *plan); /* empties plan */
mn_status mn_choose_auto(mn_chooser *c, bool cpu_only);

/* ---- pins.c: where the user wants weights ---------------------------------------------------- */
/* The rules of the request. MN_INVALID, MN_BAD_INPUT: which one is wrong or matches nothing. */
mn_status mn_pins_read(mn_chooser *c);
void mn_pins_free(mn_chooser *c);
bool mn_pin_is_cpu(mn_str value); /* "cpu": the CPU of the list, whatever its name */
#define MN_NO_OFFER UINT32_MAX
/* The offer of the device that the rule names; MN_NO_OFFER: it was not asked, or can do nothing. */
uint32_t mn_pin_offer(const mn_chooser *c, uint32_t rule);
/* Into c->pin, for a plan of these devices; cpu: an offer or MN_NO_OFFER. false: a device is not
 * among them, and why says so. */
bool mn_pins_put(mn_chooser *c, const mn_order *w, uint32_t cpu, char *why, size_t cap);

/* ---- options.c: routed experts on the CPU ---------------------------------------------------- */
mn_status mn_options_begin(mn_chooser *c); /* finds the experts, reads the rules */
void mn_options_end(mn_chooser *c);
/* Whether the request says where experts or other weights are. */
bool mn_experts_are_fixed(const mn_chooser *c);
void mn_options_forget(mn_chooser *c); /* what was considered, for another choice to begin */
/* *plan: of these devices in this order, by whole layers, and short of memory. Becomes the fastest
 * plan that has the experts of the last layers on the CPU, if one is faster. Options are listed in
 * the placement, for the record. */
mn_status mn_options_try(mn_chooser *c, const mn_order *w, mn_plan *plan);

/* ---- list.c ---------------------------------------------------------------------------------- */
/* Chooses by the request's list: c has a plan afterwards, or err has the reason. */
mn_status mn_choose_listed(mn_chooser *c);
/* Whether the list names the device, or a choice (auto, cpu) that includes it. */
bool mn_may_choose(const mn_chooser *c, const mn_device_record *d);
/* "a: why; b: why": the devices that were asked and refused, though the user counts on them. */
void mn_list_refusals(const mn_chooser *c, mn_text *out);
/* Its file is there, but not its devices. */
static inline bool mn_record_has_failed(const mn_plugin_record *r) {
    return r->status != MN_RECORD_OK && r->status != MN_RECORD_SHADOWED;
}
#endif
