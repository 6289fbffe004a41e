/* offer.c -- one device's answer: can it, in how much memory, how fast. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

static mn_status refuse(mn_offer *o, mn_status st, const char *fmt, ...) MN_PRINTF(3, 4);
static mn_status refuse(mn_offer *o, mn_status st, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(o->reason, sizeof o->reason, fmt, ap);
    va_end(ap);
    return o->status = st;
}

static void set_symbols(const mn_request *r, uint32_t page_tokens, int64_t *max) {
    max[MN_SYM_TOKENS] = r->n_batch;
    max[MN_SYM_OUTPUTS] = r->n_outputs;
    max[MN_SYM_SEQS] = r->n_seq;
    max[MN_SYM_SLOTS] = r->n_seq;
    max[MN_SYM_CTX] = r->n_ctx;
    max[MN_SYM_PAGES] = page_tokens ? (r->n_ctx + page_tokens - 1) / page_tokens : 1;
}

/* The first weight among a node's operands names its type in the refusal. */
static mn_status refuse_node(mn_offer *o, const mn_backend *b, const mn_graph *g, uint32_t i, uint32_t reason) {
    const mn_node *n = &g->nodes[i];
    char why[200] = "";
    const char *weight = "", *type = "";
    int len = 0;
    for (uint32_t j = 0; j < n->n_in && !*type; j++) {
        int32_t t = g->operands[n->in_off + j];
        if (t < 0 || g->tensors[t].role != MN_ROLE_WEIGHT) continue;
        weight = g->tensors[t].name.ptr;
        len = (int)g->tensors[t].name.len;
        type = mn_dtype_name(g->tensors[t].dtype.id);
    }
    if (reason) b->reason(o->record->plugin->plugin->self, reason, why, sizeof why);
    why[sizeof why - 1] = 0;
    const mn_op_info *op = mn_op_find(n->op);
    return refuse(o, MN_UNSUPPORTED, "cannot run %s%s%s%s%.*s%s%s%s", op ? op->name : "an unknown op",
                  *type ? " with " : "", type, *type ? " weights (" : "", len, weight, *type ? ")" : "",
                  *why ? ": " : "", why);
}

static bool knows_contract(const mn_backend *b, void *self, const mn_node *n) {
    const uint32_t(*table)[2] = NULL;
    uint32_t count = 0;
    if (b->contracts(self, &table, &count)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (table[i][0] == n->op) return table[i][1] >= n->contract;
    return false;
}

static mn_status ask_verdicts(mn_offer *o, const mn_backend *b, const mn_model_graph *g, const int64_t *symbols) {
    void *self = o->record->plugin->plugin->self;
    mn_verdict *v = mn_calloc(g->abi.n_nodes, sizeof *v);
    mn_error err = MN_ERROR_INIT;
    if (!v) return refuse(o, MN_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < g->abi.n_nodes && !o->status; i++)
        if (!knows_contract(b, self, &g->abi.nodes[i])) refuse_node(o, b, &g->abi, i, 0);
    if (!o->status && b->supports(o->device, &g->abi, symbols, v, sizeof *v, &err))
        refuse(o, err.status ? err.status : MN_UNSUPPORTED, "%s", err.msg);
    for (uint32_t i = 0; i < g->abi.n_nodes && !o->status; i++)
        if (v[i].verdict == MN_VERDICT_NO) refuse_node(o, b, &g->abi, i, v[i].reason);
    mn_free(v);
    return o->status;
}

static mn_status ask_memory(mn_offer *o, const mn_backend *b, mn_compile *c, const mn_request *r, int64_t *symbols) {
    mn_error err = MN_ERROR_INIT;
    o->estimate = (mn_estimate){.size = sizeof o->estimate};
    if (b->estimate(o->device, c, &o->estimate, &err)) return refuse(o, err.status, "%s", err.msg);
    o->precision = c->precision = o->estimate.precision;
    o->kv_dtype = r->kv_dtype ? r->kv_dtype : o->precision == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
    c->kv_dtype = o->kv_dtype;
    o->kv = (mn_kv_layout){.size = sizeof o->kv};
    if (b->kv_layout(o->device, c, 0, &o->kv, &err)) return refuse(o, err.status, "%s", err.msg);
    if (!o->kv.page_tokens || !o->kv.page_bytes) return refuse(o, MN_UNSUPPORTED, "states KV pages of no size");
    set_symbols(r, o->kv.page_tokens, symbols);
    o->n_pages = (uint32_t)symbols[MN_SYM_PAGES];
    o->estimate.size = sizeof o->estimate;
    if (b->estimate(o->device, c, &o->estimate, &err)) return refuse(o, err.status, "%s", err.msg);
    const mn_estimate *e = &o->estimate;
    if (!mn_mul_u64((uint64_t)o->n_pages * r->n_seq, o->kv.page_bytes, &o->kv_bytes) ||
        !mn_add_u64(e->weights, o->kv_bytes, &o->need) || !mn_add_u64(o->need, e->scratch, &o->need))
        return refuse(o, MN_OUT_OF_MEMORY, "needs more memory than can be counted");
    uint64_t free_bytes = o->record->info.mem_free;
    if (free_bytes && o->need > free_bytes)
        return refuse(o, MN_OUT_OF_MEMORY,
                      "needs %.2f GiB (weights %.2f, KV cache %.2f for %u x %u positions, scratch %.2f), has %.2f GiB "
                      "free; a smaller -c would need less",
                      (double)o->need / 0x1p30, (double)e->weights / 0x1p30, (double)o->kv_bytes / 0x1p30, r->n_seq,
                      r->n_ctx, (double)e->scratch / 0x1p30, (double)free_bytes / 0x1p30);
    return MN_OK;
}

void mn_offer_ask(mn_registry *reg, const mn_device_record *rec, const mn_model_graph *g, const mn_request *r,
                  mn_offer *o) {
    int64_t symbols[MN_SYM_COUNT];
    mn_error err = MN_ERROR_INIT;
    *o = (mn_offer){.record = rec};
    if (!rec->usable) {
        refuse(o, MN_NO_DEVICE, "%s", rec->reason);
        return;
    }
    const mn_backend *b = rec->plugin->backend;
    if (mn_registry_device_open(reg, rec, &o->device, &err)) {
        refuse(o, err.status, "%s", err.msg);
        return;
    }
    set_symbols(r, 0, symbols);
    mn_compile c = {.size = sizeof c,
                    .precision = r->precision,
                    .graph = &g->abi,
                    .node_hi = g->abi.n_nodes,
                    .symbol_max = symbols,
                    .kv_dtype = r->kv_dtype};
    if (ask_verdicts(o, b, g, symbols) || ask_memory(o, b, &c, r, symbols)) return;
    /* 128 drawn ids after a prompt of 512: what users feel. Without an estimate, the stated bandwidth stands in. */
    double decode = o->estimate.decode_us, prefill = o->estimate.prefill_us, bytes = 0;
    for (uint32_t i = 0; i < g->n_weights; i++) bytes += g->weights[i].source ? (double)g->weights[i].source->bytes : 0;
    if (decode <= 0) decode = rec->info.mem_gbps > 0 ? bytes / rec->info.mem_gbps / 1e3 : 1e9;
    if (prefill <= 0) prefill = decode * 16;
    o->score = (128 * decode + prefill) / 640;
}

void mn_offer_symbols(const mn_offer *o, const mn_request *r, int64_t *symbols) {
    set_symbols(r, o->kv.page_tokens, symbols);
}
