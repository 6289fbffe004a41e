/* pins.c -- PATTERN=DEVICE of the user: nodes whose weights have matching names are on that device.
 *
 * A rule is of weights, a device gets nodes: a product goes where its matrices are to be, with what
 * has to stay together with it, and nodes without a matrix go where the nodes before and behind
 * them go. Routed experts whose products all go to one device take their sum along. Rules are read
 * and searched once per negotiation; which device a name means depends on the list that is tried.
 */
#include "negotiate/choose.h"
#include <stdio.h>
#include <string.h>

enum { NO_RULE = -1 };

/* ---- reading --------------------------------------------------------------------------------- */

/* The first "PATTERN=DEVICE" of a list with commas, which a pattern may have, too: it ends at the
 * first comma behind its '='. What is behind it is in *rest. */
static mn_str first_entry(mn_str list, mn_str *rest) {
    uint64_t n = 0;
    bool named = false;
    while (n < list.len && !(named && list.ptr[n] == ','))
        named |= list.ptr[n++] == '=';
    *rest = n < list.len ? (mn_str){list.ptr + n + 1, list.len - n - 1} : (mn_str){"", 0};
    return (mn_str){list.ptr, n};
}

static mn_status read_rules(mn_chooser *c, mn_error *err) {
    mn_str rest = mn_str_of(c->r->tensor_devices);
    mn_status st = MN_OK;
    while (rest.len && !st) {
        const size_t n = c->n_rules + 1u;
        mn_name_rule *more = mn_realloc(c->rules, n, sizeof *more);
        if (!more)
            return mn_fail_memory(err, n * sizeof *more);
        c->rules = more;
        const mn_str one = first_entry(rest, &rest);
        st = mn_name_rule_read(one, "PATTERN=DEVICE, as in ffn_.*_exps=cpu", &more[c->n_rules++],
                               err);
    }
    return st;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* "CUDA0" as "cuda:0": how other tools write it. */
static void usual_name(mn_str given, char *out, size_t cap) {
    size_t n = 0;
    for (uint64_t i = 0; i < given.len && n + 2 < cap; i++) {
        const char ch = given.ptr[i];
        const bool begins = i && mn_is_digit(ch) && !mn_is_digit(given.ptr[i - 1]);
        if (begins && given.ptr[i - 1] != ':')
            out[n++] = ':';
        out[n++] = ch >= 'A' && ch <= 'Z' ? (char)(ch - 'A' + 'a') : ch;
    }
    out[n] = 0;
}

/* The registry's device of that name, as it stands or as other tools write it. */
static const mn_device_record *device_of_name(const mn_chooser *c, mn_str name) {
    char usual[96];
    const mn_device_record *d = mn_registry_device(c->reg, name);
    if (d)
        return d;
    usual_name(name, usual, sizeof usual);
    return mn_registry_device(c->reg, mn_str_of(usual));
}

bool mn_pin_is_cpu(mn_str value) {
    char usual[96];
    usual_name(value, usual, sizeof usual);
    return !strcmp(usual, "cpu");
}

/* ---- which nodes ----------------------------------------------------------------------------- */

/* Whether operand j of the node is a weight that says where it goes: of products a matrix. */
static bool decides(const mn_graph *g, const mn_node *n, uint32_t j) {
    const int32_t t = g->operands[n->in_off + j];
    if (t < 0 || g->tensors[t].role != MN_ROLE_WEIGHT)
        return false;
    if (n->op == MN_OP_LINEAR)
        return j % 2 == MN_LINEAR_WEIGHT % 2;
    return n->op != MN_OP_MOE_LINEAR || j % 2 == MN_MOE_LINEAR_WEIGHT % 2;
}

/* The first rule that matches the tensor's name, or NO_RULE. */
static mn_status rule_of_tensor(mn_chooser *c, int32_t tensor, int32_t *rule) {
    bool found = false;
    *rule = NO_RULE;
    for (uint32_t i = 0; i < c->n_rules && !found; i++) {
        mn_status st =
            mn_name_rule_find(&c->rules[i], c->g->abi.tensors[tensor].name, &found, c->err);
        if (st)
            return st;
        if (found)
            *rule = (int32_t)i;
    }
    return MN_OK;
}

static bool same_device(const mn_chooser *c, int32_t a, int32_t b) {
    if (a == b || a < 0 || b < 0)
        return a == b;
    return mn_str_eq(c->rules[a].value, c->rules[b].value);
}

/* Where the node's weights are to be: one place for all of them. */
static mn_status rule_of_node(mn_chooser *c, uint32_t i, int32_t *rule) {
    const mn_graph *g = &c->g->abi;
    const mn_node *n = &g->nodes[i];
    int32_t first = -1;
    *rule = NO_RULE;
    for (uint32_t j = 0; j < n->n_in; j++) {
        int32_t own;
        if (!decides(g, n, j))
            continue;
        const int32_t t = g->operands[n->in_off + j];
        mn_status st = rule_of_tensor(c, t, &own);
        if (st)
            return st;
        if (first >= 0 && !same_device(c, own, *rule))
            return mn_fail(c->err, MN_BAD_INPUT,
                           "%.*s and %.*s are factors of one product, which is on one device: "
                           "expected a pattern for both",
                           MN_STR_ARG(g->tensors[first].name), MN_STR_ARG(g->tensors[t].name));
        if (first < 0)
            *rule = own;
        first = t;
    }
    return MN_OK;
}

/* Nodes that have to stay together with one that has a rule. */
static void spread_to_bonds(mn_chooser *c) {
    const mn_graph *g = &c->g->abi;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint64_t bond = c->rule_of[i] == NO_RULE ? 0 : mn_node_bond(g, i);
        for (uint32_t k = 0; bond && k < g->n_nodes; k++)
            if (mn_node_bond(g, k) == bond)
                c->rule_of[k] = c->rule_of[i];
    }
}

static void spread_to_experts(mn_chooser *c, const mn_expert_range *e) {
    const mn_graph *g = &c->g->abi;
    const int32_t rule = c->rule_of[e->lo];
    for (uint32_t i = e->lo; i < e->hi; i++)
        if (g->nodes[i].op == MN_OP_MOE_LINEAR && !same_device(c, c->rule_of[i], rule))
            return;
    for (uint32_t i = e->lo; i < e->hi; i++)
        c->rule_of[i] = rule;
}

static bool has_matrix(const mn_graph *g, uint32_t node) {
    const mn_node *n = &g->nodes[node];
    for (uint32_t j = 0; j < n->n_in; j++)
        if (decides(g, n, j) && g->tensors[g->operands[n->in_off + j]].n_dim > 1)
            return true;
    return false;
}

/* Nodes without a matrix between two of a layer that go to one device: rotations, attention. */
static void spread_between(mn_chooser *c) {
    const mn_graph *g = &c->g->abi;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (c->rule_of[i] == NO_RULE && !has_matrix(g, i))
            continue;
        const bool joins = last != UINT32_MAX && c->rule_of[i] != NO_RULE &&
                           g->nodes[last].layer == g->nodes[i].layer &&
                           same_device(c, c->rule_of[last], c->rule_of[i]);
        for (uint32_t k = last + 1; joins && k < i; k++)
            c->rule_of[k] = c->rule_of[i];
        last = i;
    }
}

/* Whether the rule's device was lost, or refused what it claimed: others go on. */
static bool is_void(const mn_chooser *c, const mn_name_rule *r) {
    const mn_device_record *d = mn_pin_is_cpu(r->value) ? NULL : device_of_name(c, r->value);
    return d && (d->lost || mn_is_passed_over(c, d));
}

/* The nodes of such rules are free. */
static void drop_void(mn_chooser *c) {
    for (uint32_t i = 0; i < c->n_rules; i++) {
        if (!is_void(c, &c->rules[i]))
            continue;
        mn_log(MN_LOG_WARN, "\"%.*s\" is not followed: the device is not there any more",
               MN_STR_ARG(c->rules[i].text));
        for (uint32_t k = 0; k < c->g->abi.n_nodes; k++)
            if (c->rule_of[k] == (int32_t)i)
                c->rule_of[k] = NO_RULE;
    }
}

static mn_status check_rule(const mn_chooser *c, const mn_name_rule *r, mn_error *err) {
    if (!r->used)
        return mn_fail(err, MN_BAD_INPUT,
                       "\"%.*s\": the pattern matches no matrix of the model; minerva inspect "
                       "lists its tensors",
                       MN_STR_ARG(r->text));
    if (!mn_pin_is_cpu(r->value) && !device_of_name(c, r->value))
        return mn_fail(err, MN_NO_DEVICE,
                       "\"%.*s\": there is no device \"%.*s\"; minerva devices lists them",
                       MN_STR_ARG(r->text), MN_STR_ARG(r->value));
    return MN_OK;
}

mn_status mn_pins_read(mn_chooser *c) {
    const uint32_t n_nodes = c->g->abi.n_nodes;
    if (!c->r->tensor_devices || !*c->r->tensor_devices)
        return MN_OK;
    mn_status st = read_rules(c, c->err);
    if (st)
        return st;
    c->rule_of = mn_alloc(n_nodes, sizeof *c->rule_of);
    if (!c->rule_of)
        return mn_fail_memory(c->err, n_nodes * sizeof *c->rule_of);
    for (uint32_t i = 0; i < n_nodes && !st; i++)
        st = rule_of_node(c, i, &c->rule_of[i]);
    for (uint32_t i = 0; i < c->n_rules && !st; i++)
        st = check_rule(c, &c->rules[i], c->err);
    if (st)
        return st;
    for (uint32_t i = 0; i < c->n_experts; i++)
        spread_to_experts(c, &c->experts[i]);
    spread_between(c);
    spread_to_bonds(c);
    drop_void(c);
    return MN_OK;
}

void mn_pins_free(mn_chooser *c) {
    for (uint32_t i = 0; i < c->n_rules; i++)
        mn_name_rule_free(&c->rules[i]);
    mn_free(c->rules);
    mn_free(c->rule_of);
}

/* ---- which device ---------------------------------------------------------------------------- */

uint32_t mn_pin_offer(const mn_chooser *c, uint32_t rule) {
    const mn_device_record *d = device_of_name(c, c->rules[rule].value);
    for (uint32_t i = 0; i < c->p->n_offers && d; i++)
        if (mn_offer_at(c, i)->record == d && mn_can_some(c, i))
            return i;
    return MN_NO_OFFER;
}

/* The offer of the order that the rule means, or MN_NO_OFFER. */
static uint32_t offer_in(const mn_chooser *c, const mn_order *w, uint32_t cpu, uint32_t rule) {
    if (mn_pin_is_cpu(c->rules[rule].value))
        return cpu;
    const uint32_t at = mn_pin_offer(c, rule);
    for (uint32_t k = 0; k < w->n; k++)
        if (w->at[k] == at)
            return at;
    return MN_NO_OFFER;
}

bool mn_pins_put(mn_chooser *c, const mn_order *w, uint32_t cpu, char *why, size_t cap) {
    for (uint32_t i = 0; i < c->g->abi.n_nodes && c->n_rules; i++) {
        if (c->rule_of[i] == NO_RULE)
            continue;
        const uint32_t rule = (uint32_t)c->rule_of[i];
        const uint32_t at = offer_in(c, w, cpu, rule);
        if (at == MN_NO_OFFER) {
            snprintf(why, cap, "\"%.*s\": the device is not in the list, or can run no node",
                     MN_STR_ARG(c->rules[rule].text));
            return false;
        }
        c->pin[i] = (int32_t)at;
    }
    return true;
}
