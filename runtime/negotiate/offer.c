/* offer.c -- one device's answer: which nodes it can run, and whether it has the memory.
 *
 * What a plugin says is read as claims: verdicts that cannot be become a no, statuses that do not
 * exist a refusal. A refusal is the offer's status and reason, never an error of the negotiation.
 * The device stays open as long as the offer lives. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

enum { MAX_CONTRACTS = 4096 };
#define GIB(bytes) ((double)(bytes) / 0x1p30)

static mn_status offer_refuse(mn_offer *o, mn_status st, const char *fmt, ...) MN_PRINTF(3, 4);
static mn_status offer_refuse(mn_offer *o, mn_status st, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(o->reason, sizeof o->reason, fmt, ap);
    va_end(ap);
    mn_plain_array(o->reason, sizeof o->reason);
    o->status = st;
    return st;
}

/* What a plugin returned, with a class that exists. A device that is lost leaves the choice until
 * it has been opened again. */
static mn_status refuse_by(mn_offer *o, mn_status st, mn_error *why) {
    const uint32_t klass = MN_STATUS_CLASS(st);
    mn_fail_plain(why);
    if (klass < MN_CLASS_REFUSE || klass > MN_CLASS_INPUT)
        st = MN_UNSUPPORTED;
    offer_refuse(o, st, "%.390s", why->msg[0] ? why->msg : "refused without a reason");
    if (klass == MN_CLASS_LOST && o->device) /* one that did not open is in quarantine already */
        mn_registry_quarantine(o->registry, o->record, o->reason);
    return st;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* The operations that a plugin knows, each with the newest contract. */
typedef struct {
    const mn_op_contract *at;
    uint32_t n, stride;
} contract_list;

static const mn_op_contract *contract_at(const contract_list *list, uint32_t i) {
    return (const mn_op_contract *)(const void *)((const char *)list->at +
                                                  (size_t)i * list->stride);
}

static uint32_t contract_state(const contract_list *list, const mn_node *node) {
    for (uint32_t i = 0; i < list->n; i++) {
        const mn_op_contract *c = contract_at(list, i);
        if (c->op == node->op)
            return c->contract >= node->contract ? MN_SAID : MN_SAID_OLD_CONTRACT;
    }
    return MN_SAID_UNKNOWN_OP;
}

static bool knows_any(const contract_list *list, const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (contract_state(list, &g->nodes[i]) == MN_SAID)
            return true;
    return false;
}

/* A verdict that cannot be is a no. The result: MN_SAID_*, its origin. */
static uint8_t correct_verdict(const contract_list *list, const mn_node *node, mn_verdict *v) {
    const bool exists = v->verdict >= MN_VERDICT_ASK && v->verdict <= MN_VERDICT_NATIVE;
    uint32_t state = contract_state(list, node);
    if (state == MN_SAID && !exists)
        state = MN_SAID_NO_VERDICT;
    if (v->verdict == MN_VERDICT_NO && v->reason)
        state = MN_SAID; /* it knows best why not */
    if (state != MN_SAID)
        *v = (mn_verdict){.verdict = MN_VERDICT_NO};
    return (uint8_t)state;
}

static mn_status ask_contracts(mn_offer *o, contract_list *list) {
    const mn_plugin_record *p = o->record->plugin;
    mn_status st = MN_OK;
    o->stage = MN_STAGE_CONTRACTS;
    MN_WATCHED(p->callee, "contracts",
               st = p->backend->contracts(p->plugin->self, &list->at, &list->n, &list->stride));
    const bool is_short = list->n && list->stride < MN_UP_TO(mn_op_contract, contract);
    if (st || (list->n && !list->at) || is_short || list->n > MAX_CONTRACTS)
        return offer_refuse(o, MN_UNSUPPORTED, "cannot list the operations that it knows");
    return MN_OK;
}

/* One call of supports, with the question in pages of its own. */
static mn_status ask_supports(mn_offer *o, const mn_compile *question, mn_error *why) {
    const mn_plugin_record *p = o->record->plugin;
    mn_sealed *pages;
    const mn_compile *given = mn_given_compile(question, &pages);
    mn_status st = MN_OK;
    if (!given)
        return mn_fail_memory(why, sizeof *question);
    MN_WATCHED(p->callee, "supports",
               st = p->backend->supports(o->device, given, o->verdicts, sizeof *o->verdicts, why));
    mn_sealed_free(pages);
    return st;
}

static mn_status ask_verdicts(mn_offer *o, const mn_compile *question) {
    const mn_graph *g = question->graph;
    contract_list list = {NULL, 0, 0};
    mn_error why = MN_ERROR_INIT;
    mn_status st = ask_contracts(o, &list);
    if (st)
        return st;
    for (uint32_t i = 0; i < list.n; i++)
        if (contract_at(&list, i)->op == MN_OP_SAMPLE)
            o->sample_contract = contract_at(&list, i)->contract;
    o->stage = MN_STAGE_VERDICTS;
    if (knows_any(&list, g))
        st = ask_supports(o, question, &why);
    if (st) {
        memset(o->verdicts, 0, g->n_nodes * sizeof *o->verdicts);
        return refuse_by(o, st, &why);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        o->said[i] = correct_verdict(&list, &g->nodes[i], &o->verdicts[i]);
    return MN_OK;
}

/* ---- what may be placed there ---------------------------------------------------------------- */

uint64_t mn_node_bond(const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    uint64_t layer;
    uint64_t group;
    switch (n->op) {
    case MN_OP_EMBED:
    case MN_OP_SAMPLE:
    case MN_OP_LOOKUP:
        return 1;
    case MN_OP_KV_STORE:
        layer = mn_node_attr(g, n, MN_KV_STORE_ATTR_KV_LAYER);
        group = mn_node_attr(g, n, MN_KV_STORE_ATTR_GROUP);
        break;
    case MN_OP_ATTENTION:
        layer = mn_node_attr(g, n, MN_ATTENTION_ATTR_KV_LAYER);
        group = mn_node_attr(g, n, MN_ATTENTION_ATTR_GROUP);
        break;
    default:
        return 0;
    }
    return 2 + layer + (group << 32);
}

/* None of the nodes that are tied to node i can be placed there. */
static void untie(mn_offer *o, const mn_graph *g, uint32_t i) {
    const uint64_t bond = mn_node_bond(g, i);
    for (uint32_t k = 0; bond && k < g->n_nodes; k++)
        if (mn_node_bond(g, k) == bond)
            o->can[k] = 0;
}

static void set_can(mn_offer *o, const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        o->can[i] = o->verdicts[i].verdict != MN_VERDICT_NO;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!o->can[i])
            untie(o, g, i);
    o->n_can = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        o->n_can += o->can[i];
}

static void clear_can(mn_offer *o, const mn_graph *g) {
    memset(o->can, 0, g->n_nodes);
    o->n_can = 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The longest run that it can: the class is asked for that. */
static void longest_run(const mn_offer *o, uint32_t n, uint32_t *lo, uint32_t *hi) {
    uint32_t from = 0;
    *lo = *hi = 0;
    for (uint32_t i = 0; i <= n; i++) {
        if (i < n && o->can[i])
            continue;
        if (i - from > *hi - *lo) {
            *lo = from;
            *hi = i;
        }
        from = i + 1;
    }
}

/* Of the memory that is free, what the request leaves to it. */
static void offer_ask_free(mn_offer *o, const mn_request *r) {
    const mn_plugin_record *p = o->record->plugin;
    uint64_t left = 0;
    uint64_t total = 0;
    mn_status st = MN_UNSUPPORTED;
    if (MN_HAS(mn_backend, p->backend, device_memory))
        MN_WATCHED(p->callee, "device_memory",
                   st = p->backend->device_memory(o->device, &left, &total, NULL));
    o->free_bytes = st ? o->record->info.mem_free : left;
    if (r->device_memory && !mn_offer_is_cpu(o))
        o->free_bytes = MN_MIN(o->free_bytes ? o->free_bytes : UINT64_MAX, r->device_memory);
}

/* Bytes of the model's matrices in another type; 0: no matrices. */
static double bytes_in_type(const mn_graph *g, const mn_dtype *type, double *now) {
    double elements = 0;
    *now = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const mn_tensor *t = &g->tensors[i];
        if (t->role != MN_ROLE_WEIGHT || t->n_dim < 2 || t->alias_of >= 0 || !t->dtype.block_elems)
            continue;
        double n = 1;
        for (uint32_t d = 0; d < t->n_dim; d++)
            n *= (double)t->dim[d];
        elements += n;
        *now += n / t->dtype.block_elems * t->dtype.block_bytes;
    }
    return elements / type->block_elems * type->block_bytes;
}

/* The largest of the usual types with which the device would have the memory; 0: none. */
static uint32_t type_that_fits(const mn_offer *o, const mn_graph *g) {
    static const uint32_t types[] = {MN_Q8_0, MN_Q6_K, MN_Q5_K, MN_Q4_K, MN_Q3_K, MN_Q2_K};
    for (size_t i = 0; i < MN_COUNT(types); i++) {
        mn_dtype type;
        double now;
        if (!mn_dtype_by_id(types[i], &type))
            continue;
        const double then = bytes_in_type(g, &type, &now);
        const double saved = MN_MIN(now - then, (double)o->estimate.weights);
        if (saved > 0 && (double)o->need - saved <= (double)o->free_bytes)
            return types[i];
    }
    return 0;
}

/* What the user could change for the model to fit: "-c 2048 would fit; --device cuda:0,cpu ...". */
static void say_what_fits(const mn_offer *o, const mn_model_graph *g, const mn_request *r,
                          char *out, size_t cap) {
    const uint64_t rest = o->need - o->kv_bytes;
    const uint32_t type = type_that_fits(o, &g->abi);
    uint64_t n_ctx = 0;
    if (rest < o->free_bytes && o->kv_bytes)
        n_ctx = (uint64_t)((double)r->n_ctx * (double)(o->free_bytes - rest) / (double)o->kv_bytes);
    n_ctx -= n_ctx % 256;
    size_t len = 0;
    if (n_ctx)
        len = (size_t)snprintf(out, cap, "-c %llu would fit", (unsigned long long)n_ctx);
    else if (type)
        len = (size_t)snprintf(out, cap, "with weights of %s (minerva convert --type) it would fit",
                               mn_dtype_name(type));
    else
        len = (size_t)snprintf(out, cap, "no context and no type of q2_k or more would fit");
    if (!mn_offer_is_cpu(o) && len < cap)
        snprintf(out + len, cap - len, "; in --device %.40s,cpu the CPU has the rest",
                 o->record->name);
}

/* Bounds of the whole graph, which all its nodes can run. */
static mn_status ask_whole(mn_offer *o, const mn_model_graph *g, const mn_request *r) {
    mn_error why = MN_ERROR_INIT;
    mn_segment all = {.node_hi = g->abi.n_nodes};
    const mn_status st = mn_segment_ask(o, g, r, &all, &why);
    o->estimate = all.estimate;
    o->kv_bytes = all.kv_bytes;
    o->need = all.need;
    if (st && MN_STATUS_CLASS(st) != MN_CLASS_SMALLER) /* not to be trusted with a part either */
        clear_can(o, &g->abi);
    if (st)
        return refuse_by(o, st, &why);
    if (!o->free_bytes || o->need <= o->free_bytes)
        return MN_OK;
    char fits[128];
    say_what_fits(o, g, r, fits, sizeof fits);
    return offer_refuse(
        o, MN_OUT_OF_MEMORY,
        "%sneeds %.2f GiB (weights %.2f, KV cache %.2f for %u x %u positions, scratch "
        "%.2f), has %.2f GiB free; %s",
        o->record->n_members ? "each member " : "", GIB(o->need), GIB(o->estimate.weights),
        GIB(o->kv_bytes), r->n_seq, r->n_ctx, GIB(o->estimate.scratch), GIB(o->free_bytes), fits);
}

static mn_status ask_memory(mn_offer *o, const mn_model_graph *g, const mn_request *r) {
    mn_error why = MN_ERROR_INIT;
    uint32_t lo;
    uint32_t hi;
    longest_run(o, g->abi.n_nodes, &lo, &hi);
    o->stage = MN_STAGE_MEMORY;
    offer_ask_free(o, r);
    const mn_status st = mn_offer_class(o, g, r, lo, hi, &why);
    if (st) {
        clear_can(o, &g->abi);
        return refuse_by(o, st, &why);
    }
    return hi - lo == g->abi.n_nodes ? ask_whole(o, g, r) : MN_OK;
}

/* ---- the offer ------------------------------------------------------------------------------- */

static mn_status offer_open_device(mn_offer *o) {
    mn_error why = MN_ERROR_INIT;
    char lost[sizeof o->reason];
    if (!o->record->usable) {
        mn_registry_say_lost(o->registry, o->record, lost, sizeof lost);
        return offer_refuse(o, MN_NO_DEVICE, "%s", lost);
    }
    o->stage = MN_STAGE_OPEN;
    const mn_status st = mn_registry_device_open(o->registry, o->record, &o->device, &why);
    return st ? refuse_by(o, st, &why) : MN_OK;
}

mn_status mn_offer_ask(mn_registry *reg, const mn_device_record *rec, const mn_model_graph *g,
                       const mn_request *r, mn_offer *o, mn_error *err) {
    const uint32_t n_nodes = g->abi.n_nodes;
    int64_t symbols[MN_SYM_COUNT];
    *o = (mn_offer){.registry = reg,
                    .record = rec,
                    .stage = rec->plugin->backend ? MN_STAGE_DEVICE : MN_STAGE_PLUGIN};
    if (offer_open_device(o))
        return MN_OK;
    mn_error why = MN_ERROR_INIT;
    const mn_status viewed = mn_graph_for(g, &rec->plugin->types, &o->given, &why);
    if (viewed == MN_OUT_OF_MEMORY)
        return mn_fail_memory(err, 0);
    if (viewed)
        return refuse_by(o, viewed, &why), MN_OK;
    o->verdicts = mn_calloc(n_nodes, sizeof *o->verdicts);
    o->said = mn_calloc(n_nodes, 1);
    o->can = mn_calloc(n_nodes, 1);
    if (!o->verdicts || !o->said || !o->can)
        return mn_fail_memory(err, n_nodes * sizeof *o->verdicts);
    mn_request_symbols(r, 1, symbols);
    mn_question whole;
    mn_status st = mn_segment_question(o, g, (mn_node_range){0, n_nodes}, r->precision, r->k_dtype,
                                       r->v_dtype, symbols, &whole, err);
    if (st)
        return st;
    st = ask_verdicts(o, &whole.compile);
    mn_memory_uses_free(&whole.memory);
    if (st)
        return MN_OK;
    set_can(o, &g->abi);
    if (o->n_can && ask_memory(o, g, r))
        return MN_OK;
    if (o->n_can < n_nodes)
        mn_offer_refuse_nodes(o, &g->abi);
    else
        o->stage = MN_STAGE_OFFERED;
    return MN_OK;
}

void mn_offer_free(mn_offer *o) {
    mn_free(o->verdicts);
    mn_free(o->said);
    mn_free(o->can);
    mn_segment_answers_free(o);
    if (o->device)
        mn_registry_device_release(o->registry, o->record, o->device);
}
