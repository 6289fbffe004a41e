/* segment.c -- what a device says that a run of nodes would take, held against what can be true. */
#include "negotiate/offer.h"

enum { MAX_PAGE_TOKENS = 1 << 20, MAX_GRAIN = 1 << 16 };
#define MAX_BYTES ((uint64_t)1 << 50) /* no machine has a petabyte */

void mn_request_symbols(const mn_request *r, uint32_t page_tokens, int64_t *max) {
    max[MN_SYM_TOKENS] = r->n_batch;
    max[MN_SYM_OUTPUTS] = r->n_outputs;
    max[MN_SYM_SEQS] = r->n_seq;
    max[MN_SYM_SLOTS] = r->n_seq;
    max[MN_SYM_CTX] = r->n_ctx;
    max[MN_SYM_PAGES] = page_tokens ? (r->n_ctx + page_tokens - 1) / page_tokens : 1;
}

static mn_compile question(const mn_model_graph *g, uint32_t lo, uint32_t hi, uint32_t precision,
                           uint32_t kv_dtype, const int64_t *symbols) {
    return (mn_compile){.size = sizeof(mn_compile),
                        .precision = precision,
                        .graph = &g->abi,
                        .node_lo = lo,
                        .node_hi = hi,
                        .symbol_max = symbols,
                        .kv_dtype = kv_dtype};
}

static mn_status ask_estimate(const mn_offer *o, const mn_compile *c, mn_estimate *e,
                              mn_error *err) {
    *e = (mn_estimate){.size = sizeof *e};
    mn_status st = o->record->plugin->backend->estimate(o->device, c, e, err);
    if (st)
        return st;
    if (e->size < MN_UP_TO(mn_estimate, precision) || e->precision < MN_PRECISION_EXACT ||
        e->precision > MN_PRECISION_A8)
        return mn_fail(err, MN_UNSUPPORTED, "its estimate states no precision class");
    if (c->precision != MN_PRECISION_AUTO && e->precision > c->precision)
        return mn_fail(err, MN_UNSUPPORTED,
                       "would compute in a coarser precision class than was asked for");
    if (e->weights > MAX_BYTES || e->scratch > MAX_BYTES || e->host_pinned > MAX_BYTES ||
        e->import_peak > MAX_BYTES)
        return mn_fail(err, MN_UNSUPPORTED,
                       "its estimate is absurd: %llu bytes of weights, %llu of scratch",
                       (unsigned long long)e->weights, (unsigned long long)e->scratch);
    e->decode_us = mn_sane(e->decode_us);
    e->prefill_us = mn_sane(e->prefill_us);
    if (e->row_grain > MAX_GRAIN)
        e->row_grain = 0;
    e->size = sizeof *e;
    return MN_OK;
}

mn_status mn_offer_class(mn_offer *o, const mn_model_graph *g, const mn_request *r, uint32_t lo,
                         uint32_t hi, mn_error *err) {
    int64_t symbols[MN_SYM_COUNT];
    mn_estimate e;
    mn_request_symbols(r, 0, symbols);
    mn_compile c = question(g, lo, hi, r->precision, r->kv_dtype, symbols);
    mn_status st = ask_estimate(o, &c, &e, err);
    if (st)
        return st;
    o->precision = e.precision;
    o->kv_dtype = r->kv_dtype ? r->kv_dtype : o->precision == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
    return MN_OK;
}

static bool has_kv(const mn_graph *g, uint32_t lo, uint32_t hi) {
    for (uint32_t i = lo; i < hi; i++)
        if (g->nodes[i].op == MN_OP_KV_STORE || g->nodes[i].op == MN_OP_ATTENTION)
            return true;
    return false;
}

static mn_status ask_kv(const mn_offer *o, const mn_compile *c, const mn_request *r, mn_segment *s,
                        mn_error *err) {
    s->kv = (mn_kv_layout){.size = sizeof s->kv};
    if (!has_kv(c->graph, s->node_lo, s->node_hi))
        return MN_OK;
    mn_status st = o->record->plugin->backend->kv_layout(o->device, c, 0, &s->kv, err);
    if (st)
        return st;
    if (!s->kv.page_tokens || s->kv.page_tokens > MAX_PAGE_TOKENS || !s->kv.page_bytes ||
        s->kv.page_bytes > MAX_BYTES)
        return mn_fail(err, MN_UNSUPPORTED, "states KV pages of %llu bytes for %u positions",
                       (unsigned long long)s->kv.page_bytes, s->kv.page_tokens);
    s->kv.size = sizeof s->kv;
    s->n_pages = (r->n_ctx + s->kv.page_tokens - 1) / s->kv.page_tokens;
    if (!mn_mul_u64((uint64_t)s->n_pages * r->n_seq, s->kv.page_bytes, &s->kv_bytes))
        return mn_fail(err, MN_OUT_OF_MEMORY, "needs a larger KV cache than can be counted");
    return MN_OK;
}

mn_status mn_segment_ask(const mn_offer *o, const mn_model_graph *g, const mn_request *r,
                         mn_segment *s, mn_error *err) {
    int64_t symbols[MN_SYM_COUNT];
    mn_request_symbols(r, 0, symbols);
    mn_compile c = question(g, s->node_lo, s->node_hi, o->precision, o->kv_dtype, symbols);
    s->n_pages = 0, s->kv_bytes = 0;
    mn_status st = ask_kv(o, &c, r, s, err);
    if (st)
        return st;
    mn_request_symbols(r, s->kv.page_tokens, symbols);
    st = ask_estimate(o, &c, &s->estimate, err);
    if (st)
        return st;
    if (!mn_add_u64(s->estimate.weights, s->kv_bytes, &s->need) ||
        !mn_add_u64(s->need, s->estimate.scratch, &s->need))
        return mn_fail(err, MN_OUT_OF_MEMORY, "needs more memory than can be counted");
    return MN_OK;
}
