/* offer.c -- one device's answer: which nodes it can run. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

/* Where a corrected verdict comes from; kept in the pad of our copy. */
enum { SAID, UNKNOWN_OP, OLD_CONTRACT, NO_VERDICT };
enum { MAX_CONTRACTS = 4096 };

static mn_status refuse(mn_offer *o, mn_status st, const char *fmt, ...) MN_PRINTF(3, 4);
static mn_status refuse(mn_offer *o, mn_status st, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(o->reason, sizeof o->reason, fmt, ap);
    va_end(ap);
    mn_plain_array(o->reason, sizeof o->reason);
    return o->status = st;
}

/* What a plugin returned, with a class that exists. A device that is lost leaves the choice until it
 * has been opened again. */
static mn_status refuse_by(mn_registry *reg, mn_offer *o, mn_status st, mn_error *why) {
    uint32_t klass = MN_STATUS_CLASS(st);
    mn_fail_plain(why);
    if (klass < MN_CLASS_REFUSE || klass > MN_CLASS_INPUT)
        st = MN_UNSUPPORTED;
    refuse(o, st, "%.390s", why->msg[0] ? why->msg : "refused without a reason");
    if (klass == MN_CLASS_LOST && o->device) /* one that did not open is in quarantine already */
        mn_registry_quarantine(reg, o->record, o->reason);
    return st;
}

/* The type of the weight at operand j of node i; 0 = there is none. */
static uint32_t weight_type(const mn_graph *g, uint32_t i, uint32_t j) {
    int32_t t = g->operands[g->nodes[i].in_off + j];
    return t >= 0 && g->tensors[t].role == MN_ROLE_WEIGHT ? g->tensors[t].dtype.id : 0;
}

static bool has_type(const mn_graph *g, uint32_t i, uint32_t n_in, uint32_t type) {
    for (uint32_t j = 0; j < n_in; j++)
        if (weight_type(g, i, j) == type)
            return true;
    return false;
}

static bool has_types_of(const mn_graph *g, uint32_t a, uint32_t b) {
    for (uint32_t j = 0; j < g->nodes[b].n_in; j++) {
        uint32_t type = weight_type(g, b, j);
        if (type && !has_type(g, a, g->nodes[a].n_in, type))
            return false;
    }
    return true;
}

bool mn_node_same_kind(const mn_graph *g, uint32_t a, uint32_t b) {
    return g->nodes[a].op == g->nodes[b].op && has_types_of(g, a, b) && has_types_of(g, b, a);
}

void mn_node_weight_types(const mn_graph *g, uint32_t i, char *out, size_t cap) {
    size_t len = 0;
    out[0] = 0;
    for (uint32_t j = 0; j < g->nodes[i].n_in && len < cap; j++) {
        uint32_t type = weight_type(g, i, j);
        if (type && !has_type(g, i, j, type))
            len += (size_t)snprintf(out + len, cap - len, "%s%s", len ? ", " : "",
                                    mn_dtype_name(type));
    }
}

void mn_offer_node_reason(const mn_offer *o, uint32_t i, char *why, size_t cap) {
    const mn_backend *b = o->record->plugin->backend;
    why[0] = 0;
    switch (o->verdicts[i].pad) {
    case UNKNOWN_OP:
        snprintf(why, cap, "the plugin does not know the operation");
        return;
    case OLD_CONTRACT:
        snprintf(why, cap, "newer than the plugin's contract");
        return;
    case NO_VERDICT:
        snprintf(why, cap, "the plugin gave no valid verdict");
        return;
    default:
        break;
    }
    if (o->verdicts[i].reason && MN_HAS(mn_backend, b, reason))
        MN_WATCHED(
            o->record->plugin->callee, "reason",
            b->reason(o->record->plugin->plugin->self, o->verdicts[i].reason, why, (uint32_t)cap));
    mn_plain_array(why, cap);
}

void mn_offer_node_kind(const mn_graph *g, uint32_t i, char *out, size_t cap) {
    const mn_op_info *op = mn_op_find(g->nodes[i].op);
    char types[MN_TYPES_CAP];
    mn_node_weight_types(g, i, types, sizeof types);
    snprintf(out, cap, "%s%s%s%s", op ? op->name : "an unknown op", *types ? " with " : "", types,
             *types ? " weights" : "");
}

/* The first node of its kind that is refused. */
static bool is_first_no(const mn_offer *o, const mn_graph *g, uint32_t i) {
    if (o->verdicts[i].verdict != MN_VERDICT_NO)
        return false;
    for (uint32_t k = 0; k < i; k++)
        if (o->verdicts[k].verdict == MN_VERDICT_NO && mn_node_same_kind(g, k, i))
            return false;
    return true;
}

static bool same_reason(const mn_offer *o, uint32_t a, uint32_t b) {
    return o->verdicts[a].pad == o->verdicts[b].pad &&
           o->verdicts[a].reason == o->verdicts[b].reason;
}

/* Of a refused node with weights of several types the first whose type no accepted node of the op
 * has: it may be why. -1 = none. */
static int32_t odd_weight(const mn_offer *o, const mn_graph *g, uint32_t i) {
    char types[MN_TYPES_CAP];
    mn_node_weight_types(g, i, types, sizeof types);
    for (uint32_t j = 0; j < g->nodes[i].n_in && strchr(types, ','); j++) {
        const uint32_t type = weight_type(g, i, j);
        bool known = !type;
        for (uint32_t k = 0; k < g->n_nodes && !known; k++)
            known = g->nodes[k].op == g->nodes[i].op && o->verdicts[k].verdict != MN_VERDICT_NO &&
                    has_type(g, k, g->nodes[k].n_in, type);
        if (!known)
            return g->operands[g->nodes[i].in_off + j];
    }
    return -1;
}

static void append(mn_offer *o, const char *text) { /* as far as the room goes */
    size_t len = strlen(o->reason);
    snprintf(o->reason + len, sizeof o->reason - len, "%s", text);
}

/* "cannot run EMBED with f32 weights, ROPE with f32 weights: no such op; LINEAR with q4_0, f64
 * weights (blk.0.attn_q.bias is f64): ...": each reason once. */
static void refuse_nodes(mn_offer *o, const mn_graph *g) {
    char text[200];
    o->status = MN_UNSUPPORTED;
    snprintf(o->reason, sizeof o->reason, "cannot run ");
    for (uint32_t i = 0, groups = 0; i < g->n_nodes; i++) {
        bool fresh = is_first_no(o, g, i);
        for (uint32_t k = 0; k < i && fresh; k++)
            fresh = !is_first_no(o, g, k) || !same_reason(o, k, i);
        if (!fresh)
            continue;
        for (uint32_t k = i; k < g->n_nodes; k++) {
            if (!is_first_no(o, g, k) || !same_reason(o, k, i))
                continue;
            if (k > i || groups++)
                append(o, k > i ? ", " : "; ");
            mn_offer_node_kind(g, k, text, sizeof text);
            append(o, text);
            const int32_t odd = odd_weight(o, g, k);
            if (odd < 0)
                continue;
            const mn_tensor *t = &g->tensors[odd];
            snprintf(text, sizeof text, " (%.*s is %s)", MN_STR_ARG(t->name),
                     mn_dtype_name(t->dtype.id));
            text[mn_utf8_complete(text, strlen(text))] = 0;
            append(o, text);
        }
        mn_offer_node_reason(o, i, text, sizeof text);
        if (*text)
            append(o, ": "), append(o, text);
    }
    o->reason[mn_utf8_complete(o->reason, strlen(o->reason))] = 0;
}

static uint32_t contract_state(const uint32_t (*table)[2], uint32_t n, const mn_node *node) {
    for (uint32_t i = 0; i < n; i++)
        if (table[i][0] == node->op)
            return table[i][1] >= node->contract ? SAID : OLD_CONTRACT;
    return UNKNOWN_OP;
}

static mn_status ask_verdicts(mn_registry *reg, mn_offer *o, const mn_model_graph *g,
                              const int64_t *symbols) {
    const mn_backend *b = o->record->plugin->backend;
    const mn_callee *callee = o->record->plugin->callee;
    void *self = o->record->plugin->plugin->self;
    const uint32_t(*table)[2] = NULL;
    uint32_t count = 0, known = 0;
    mn_error why = MN_ERROR_INIT;
    o->stage = MN_STAGE_CONTRACTS;
    mn_status st = MN_OK;
    MN_WATCHED(callee, "contracts", st = b->contracts(self, &table, &count));
    if (st || (count && !table) || count > MAX_CONTRACTS)
        return refuse(o, MN_UNSUPPORTED, "cannot list the operations that it knows");
    for (uint32_t i = 0; i < g->abi.n_nodes; i++)
        known += contract_state(table, count, &g->abi.nodes[i]) == SAID;
    o->stage = MN_STAGE_VERDICTS;
    if (known)
        MN_WATCHED(
            callee, "supports",
            st = b->supports(o->device, &g->abi, symbols, o->verdicts, sizeof *o->verdicts, &why));
    if (st) {
        memset(o->verdicts, 0, g->abi.n_nodes * sizeof *o->verdicts);
        return refuse_by(reg, o, st, &why);
    }
    for (uint32_t i = 0; i < g->abi.n_nodes; i++) {
        mn_verdict *v = &o->verdicts[i];
        uint32_t state = contract_state(table, count, &g->abi.nodes[i]);
        if (state == SAID && (v->verdict < MN_VERDICT_ASK || v->verdict > MN_VERDICT_NATIVE))
            state = NO_VERDICT;
        /* it knows best why not */
        if (state != SAID && v->verdict == MN_VERDICT_NO && v->reason)
            state = SAID;
        if (state != SAID)
            *v = (mn_verdict){.verdict = MN_VERDICT_NO};
        v->pad = state;
    }
    return MN_OK;
}

/* What stays together: KV_STORE and ATTENTION of a layer's cache, EMBED and SAMPLE. 0 = the node is
 * free. */
static uint64_t tied(const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    bool store = n->op == MN_OP_KV_STORE;
    if (n->op == MN_OP_EMBED || n->op == MN_OP_SAMPLE)
        return 1;
    if (!store && n->op != MN_OP_ATTENTION)
        return 0;
    uint32_t il = store ? MN_KV_STORE_ATTR_KV_LAYER : MN_ATTENTION_ATTR_KV_LAYER,
             ig = store ? MN_KV_STORE_ATTR_GROUP : MN_ATTENTION_ATTR_GROUP;
    uint64_t layer = il < n->n_attr ? g->attrs[n->attr_off + il] : 0,
             group = ig < n->n_attr ? g->attrs[n->attr_off + ig] : 0;
    return 2 + layer + (group << 32);
}

static void fold(mn_offer *o, const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        o->can[i] = o->verdicts[i].verdict != MN_VERDICT_NO;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        uint64_t bond = o->can[i] ? 0 : tied(g, i);
        for (uint32_t k = 0; bond && k < g->n_nodes; k++)
            if (tied(g, k) == bond)
                o->can[k] = 0;
    }
    o->n_can = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        o->n_can += o->can[i];
}

/* The longest run that it can: the class is asked for that. */
static void longest_run(const mn_offer *o, uint32_t n, uint32_t *lo, uint32_t *hi) {
    *lo = *hi = 0;
    for (uint32_t i = 0, from = 0; i <= n; i++) {
        if (i < n && o->can[i])
            continue;
        if (i - from > *hi - *lo)
            *lo = from, *hi = i;
        from = i + 1;
    }
}

static void ask_free(mn_offer *o) {
    const mn_backend *b = o->record->plugin->backend;
    uint64_t left = 0, total = 0;
    mn_status st = MN_UNSUPPORTED;
    if (MN_HAS(mn_backend, b, device_memory))
        MN_WATCHED(o->record->plugin->callee, "device_memory",
                   st = b->device_memory(o->device, &left, &total, NULL));
    o->free_bytes = st ? o->record->info.mem_free : left;
}

static mn_status ask_memory(mn_registry *reg, mn_offer *o, const mn_model_graph *g,
                            const mn_request *r) {
    mn_error why = MN_ERROR_INIT;
    uint32_t lo, hi;
    longest_run(o, g->abi.n_nodes, &lo, &hi);
    o->stage = MN_STAGE_MEMORY;
    ask_free(o);
    mn_status st = mn_offer_class(o, g, r, lo, hi, &why);
    if (st) {
        memset(o->can, 0, g->abi.n_nodes), o->n_can = 0;
        return refuse_by(reg, o, st, &why);
    }
    if (hi - lo < g->abi.n_nodes)
        return MN_OK;
    mn_segment all = {.node_hi = hi};
    st = mn_segment_ask(o, g, r, &all, &why);
    o->estimate = all.estimate, o->kv_bytes = all.kv_bytes, o->need = all.need;
    if (st && MN_STATUS_CLASS(st) != MN_CLASS_SMALLER) /* not to be trusted with a part either */
        memset(o->can, 0, g->abi.n_nodes), o->n_can = 0;
    if (st)
        return refuse_by(reg, o, st, &why);
    if (!o->free_bytes || o->need <= o->free_bytes)
        return MN_OK;
    return refuse(o, MN_OUT_OF_MEMORY,
                  "needs %.2f GiB (weights %.2f, KV cache %.2f for %u x %u positions, scratch "
                  "%.2f), has %.2f GiB "
                  "free; a smaller -c would need less",
                  (double)o->need / 0x1p30, (double)o->estimate.weights / 0x1p30,
                  (double)o->kv_bytes / 0x1p30, r->n_seq, r->n_ctx,
                  (double)o->estimate.scratch / 0x1p30, (double)o->free_bytes / 0x1p30);
}

mn_status mn_offer_ask(mn_registry *reg, const mn_device_record *rec, const mn_model_graph *g,
                       const mn_request *r, mn_offer *o, mn_error *err) {
    int64_t symbols[MN_SYM_COUNT];
    mn_error why = MN_ERROR_INIT;
    char lost[sizeof o->reason];
    *o = (mn_offer){.registry = reg,
                    .record = rec,
                    .stage = rec->plugin->backend ? MN_STAGE_DEVICE : MN_STAGE_PLUGIN};
    if (!rec->usable) {
        mn_registry_say_lost(reg, rec, lost, sizeof lost);
        refuse(o, MN_NO_DEVICE, "%s", lost);
        return MN_OK;
    }
    o->stage = MN_STAGE_OPEN;
    mn_status st = mn_registry_device_open(reg, rec, &o->device, &why);
    if (st)
        return refuse_by(reg, o, st, &why), MN_OK;
    o->verdicts = mn_calloc(g->abi.n_nodes, sizeof *o->verdicts);
    o->can = mn_calloc(g->abi.n_nodes, 1);
    if (!o->verdicts || !o->can)
        return mn_fail_memory(err, g->abi.n_nodes * sizeof *o->verdicts);
    mn_request_symbols(r, 1, symbols);
    if (ask_verdicts(reg, o, g, symbols))
        return MN_OK;
    fold(o, &g->abi);
    if (!o->n_can)
        return refuse_nodes(o, &g->abi), MN_OK;
    if (ask_memory(reg, o, g, r))
        return MN_OK;
    if (o->n_can < g->abi.n_nodes)
        refuse_nodes(o, &g->abi);
    else
        o->stage = MN_STAGE_OFFERED;
    return MN_OK;
}

void mn_offer_free(mn_offer *o) {
    mn_free(o->verdicts);
    mn_free(o->can);
    mn_segment_answers_free(o);
    if (o->device)
        mn_registry_device_release(o->registry, o->record, o->device);
}
