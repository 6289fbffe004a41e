/* refusal.c -- why a device cannot run nodes of a graph, in words for people.
 *
 * A model has hundreds of nodes and few kinds of them: an operation with the types of its weights.
 * A kind is named once, and kinds that are refused for one reason share its sentence. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

/* ---- kinds of nodes -------------------------------------------------------------------------- */

/* The type of the weight at operand j of node i; 0 = there is none. */
static uint32_t weight_type(const mn_graph *g, uint32_t i, uint32_t j) {
    const int32_t t = g->operands[g->nodes[i].in_off + j];
    if (t < 0 || g->tensors[t].role != MN_ROLE_WEIGHT)
        return 0;
    return g->tensors[t].dtype.id;
}

/* Whether one of the first n operands of node i is a weight of that type. */
static bool refusal_has_type(const mn_graph *g, uint32_t i, uint32_t n, uint32_t type) {
    for (uint32_t j = 0; j < n; j++)
        if (weight_type(g, i, j) == type)
            return true;
    return false;
}

static bool has_types_of(const mn_graph *g, uint32_t a, uint32_t b) {
    for (uint32_t j = 0; j < g->nodes[b].n_in; j++) {
        const uint32_t type = weight_type(g, b, j);
        if (type && !refusal_has_type(g, a, g->nodes[a].n_in, type))
            return false;
    }
    return true;
}

bool mn_node_same_kind(const mn_graph *g, uint32_t a, uint32_t b) {
    const bool same_op = g->nodes[a].op == g->nodes[b].op;
    return same_op && has_types_of(g, a, b) && has_types_of(g, b, a);
}

void mn_node_weight_types(const mn_graph *g, uint32_t i, char *out, size_t cap) {
    size_t len = 0;
    out[0] = 0;
    for (uint32_t j = 0; j < g->nodes[i].n_in && len < cap; j++) {
        const uint32_t type = weight_type(g, i, j);
        if (!type || refusal_has_type(g, i, j, type))
            continue;
        const char *comma = len ? ", " : "";
        len += (size_t)snprintf(out + len, cap - len, "%s%s", comma, mn_dtype_name(type));
    }
}

void mn_offer_node_kind(const mn_graph *g, uint32_t i, char *out, size_t cap) {
    const mn_op_info *op = mn_op_find(g->nodes[i].op);
    const char *name = op ? op->name : "an unknown op";
    char types[MN_TYPES_CAP];
    mn_node_weight_types(g, i, types, sizeof types);
    if (*types)
        snprintf(out, cap, "%s with %s weights", name, types);
    else
        snprintf(out, cap, "%s", name);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void ask_reason(const mn_offer *o, uint32_t reason, char *why, size_t cap) {
    const mn_plugin_record *p = o->record->plugin;
    if (!reason || !MN_HAS(mn_backend, p->backend, reason))
        return;
    MN_WATCHED(p->callee, "reason",
               p->backend->reason(p->plugin->self, reason, why, (uint32_t)cap));
    mn_plain_array(why, cap);
}

void mn_offer_node_reason(const mn_offer *o, uint32_t i, char *why, size_t cap) {
    why[0] = 0;
    switch (o->said[i]) {
    case MN_SAID_UNKNOWN_OP:
        snprintf(why, cap, "the plugin does not know the operation");
        break;
    case MN_SAID_OLD_CONTRACT:
        snprintf(why, cap, "newer than the plugin's contract");
        break;
    case MN_SAID_NO_VERDICT:
        snprintf(why, cap, "the plugin gave no valid verdict");
        break;
    default:
        ask_reason(o, o->verdicts[i].reason, why, cap);
        break;
    }
}

static bool refusal_is_refused(const mn_offer *o, uint32_t i) {
    return o->verdicts[i].verdict == MN_VERDICT_NO;
}

/* The first node of its kind that is refused. */
static bool is_first_no(const mn_offer *o, const mn_graph *g, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (refusal_is_refused(o, k) && mn_node_same_kind(g, k, i))
            return false;
    return refusal_is_refused(o, i);
}

static bool same_reason(const mn_offer *o, uint32_t a, uint32_t b) {
    const mn_verdict *x = &o->verdicts[a];
    const mn_verdict *y = &o->verdicts[b];
    return o->said[a] == o->said[b] && x->reason == y->reason;
}

/* The first node with its reason, among the first of their kinds. */
static bool is_first_reason(const mn_offer *o, const mn_graph *g, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (same_reason(o, k, i) && is_first_no(o, g, k))
            return false;
    return is_first_no(o, g, i);
}

/* Whether a node of the op is accepted with a weight of that type. */
static bool refusal_is_known(const mn_offer *o, const mn_graph *g, uint32_t op, uint32_t type) {
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        const mn_node *n = &g->nodes[k];
        if (n->op == op && !refusal_is_refused(o, k) && refusal_has_type(g, k, n->n_in, type))
            return true;
    }
    return false;
}

/* Of a refused node with weights of several types the first whose type no accepted node of the op
 * has: it may be why. -1 = none. */
static int32_t odd_weight(const mn_offer *o, const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    char types[MN_TYPES_CAP];
    mn_node_weight_types(g, i, types, sizeof types);
    if (!strchr(types, ','))
        return -1;
    for (uint32_t j = 0; j < n->n_in; j++) {
        const uint32_t type = weight_type(g, i, j);
        if (type && !refusal_is_known(o, g, n->op, type))
            return g->operands[n->in_off + j];
    }
    return -1;
}

/* ---- the sentence ---------------------------------------------------------------------------- */

static void refusal_append(mn_offer *o, const char *text) { /* as far as the room goes */
    const size_t len = strlen(o->reason);
    snprintf(o->reason + len, sizeof o->reason - len, "%s", text);
}

/* "LINEAR with q4_0, f64 weights (blk.0.attn_q.bias is f64)" */
static void append_kind(mn_offer *o, const mn_graph *g, uint32_t i) {
    const int32_t odd = odd_weight(o, g, i);
    char text[200];
    mn_offer_node_kind(g, i, text, sizeof text);
    refusal_append(o, text);
    if (odd < 0)
        return;
    const mn_tensor *t = &g->tensors[odd];
    snprintf(text, sizeof text, " (%.*s is %s)", MN_STR_ARG(t->name), mn_dtype_name(t->dtype.id));
    text[mn_utf8_complete(text, strlen(text))] = 0;
    refusal_append(o, text);
}

/* The kinds that are refused as node i is, and why. */
static void refusal_append_group(mn_offer *o, const mn_graph *g, uint32_t i) {
    char why[200];
    append_kind(o, g, i);
    for (uint32_t k = i + 1; k < g->n_nodes; k++) {
        if (!same_reason(o, k, i) || !is_first_no(o, g, k))
            continue;
        refusal_append(o, ", ");
        append_kind(o, g, k);
    }
    mn_offer_node_reason(o, i, why, sizeof why);
    if (!*why)
        return;
    refusal_append(o, ": ");
    refusal_append(o, why);
}

void mn_offer_refuse_nodes(mn_offer *o, const mn_graph *g) {
    const char *before = "cannot run ";
    o->status = MN_UNSUPPORTED;
    o->reason[0] = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (!is_first_reason(o, g, i))
            continue;
        refusal_append(o, before);
        refusal_append_group(o, g, i);
        before = "; ";
    }
    o->reason[mn_utf8_complete(o->reason, strlen(o->reason))] = 0;
}
