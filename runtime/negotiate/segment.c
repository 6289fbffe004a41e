/* segment.c -- what a device says that a run of nodes would take, held against what can be true.
 *
 * Estimates and KV layouts are claims: classes, sizes and times that cannot be are refused or left
 * out. Plans ask for the same runs again and again, so answers are kept with the offer, whole. */
#include "negotiate/offer.h"
#include <string.h>

enum { MAX_PAGE_TOKENS = 1 << 20, MAX_GRAIN = 1 << 16 };
#define MAX_BYTES ((uint64_t)1 << 50) /* no machine has a petabyte */

void mn_request_symbols(const mn_request *r, int64_t n_pages, int64_t *max) {
    max[MN_SYM_TOKENS] = r->n_batch;
    max[MN_SYM_OUTPUTS] = r->n_outputs;
    max[MN_SYM_SEQS] = MN_MAX(r->n_seq, MN_MIN(r->n_batch, MN_FEW_ROWS));
    max[MN_SYM_SLOTS] = r->n_seq;
    max[MN_SYM_CTX] = r->n_ctx;
    max[MN_SYM_PAGES] = n_pages;
    max[MN_SYM_SEQ_ROWS] = r->n_batch;
    max[MN_SYM_TEXT] = r->n_batch;
}

/* ---- pages ----------------------------------------------------------------------------------- */
static uint64_t pages_for(uint64_t positions, uint32_t page_tokens) {
    return (positions + page_tokens - 1) / page_tokens;
}

/* States: the one that a step begins with, and the one that it leaves. */
enum { STATES_OF_ONE = 2 };

/* The window may begin and end inside a page. */
uint64_t mn_kv_pages_of_one(const mn_kv_group *group, uint32_t page_tokens, int64_t n_ctx,
                            uint32_t ahead) {
    if (group->state)
        return STATES_OF_ONE;
    const uint64_t whole = pages_for((uint64_t)n_ctx, page_tokens);
    if (!group->window)
        return whole;
    return MN_MIN(whole, pages_for((uint64_t)group->window + ahead, page_tokens) + 2);
}

/* For all sequences, and for snapshots: as many as their texts can have, but few. */
static uint64_t states_for(uint64_t n_seq, uint64_t n_ctx) {
    enum { FEW = 16 };
    const uint64_t most = n_seq * (n_ctx / MN_STATE_EVERY + 2);
    return n_seq * STATES_OF_ONE + MN_MIN(most, MN_MAX(2 * n_seq, FEW));
}

uint64_t mn_kv_pages(const mn_kv_group *group, uint32_t page_tokens, const int64_t *symbol_max,
                     uint32_t ahead) {
    const int64_t n_ctx = symbol_max[MN_SYM_CTX];
    const uint64_t n_seq = (uint64_t)symbol_max[MN_SYM_SLOTS];
    if (group->state)
        return states_for(n_seq, (uint64_t)n_ctx);
    const uint64_t whole = n_seq * pages_for((uint64_t)n_ctx, page_tokens);
    if (group->one_step) /* whole texts, of the rows of one step; each may leave a page half full */
        return MN_MIN(whole, pages_for((uint64_t)symbol_max[MN_SYM_TOKENS], page_tokens) + n_seq);
    if (!group->window)
        return whole;
    const uint64_t batches = ahead > 1 ? 2 : 1;
    return MN_MIN(whole, n_seq * mn_kv_pages_of_one(group, page_tokens, n_ctx, ahead) +
                             batches * pages_for((uint64_t)symbol_max[MN_SYM_TOKENS], page_tokens));
}

uint32_t mn_steps_ahead(const mn_device_record *d, const mn_request *r) {
    const bool ahead = d->info.flags & MN_DEVICE_ASYNC || r->flags & MN_REQUEST_AHEAD;
    return ahead && r->run_ahead ? r->run_ahead : 1;
}

int64_t mn_segment_row(const mn_segment *s, const mn_request *r) {
    int64_t most = 1;
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP; i++)
        if (s->kv[i].page_tokens) /* a state has no positions */
            most = MN_MAX(most, (int64_t)pages_for(r->n_ctx, s->kv[i].page_tokens));
    return most;
}

mn_status mn_segment_question(const mn_offer *o, const mn_model_graph *g, mn_node_range nodes,
                              uint32_t precision, uint32_t k_dtype, uint32_t v_dtype,
                              const int64_t *symbols, mn_question *out, mn_error *err) {
    out->compile = (mn_compile){.size = sizeof(mn_compile),
                                .precision = precision,
                                .graph = o->given ? o->given : g->given,
                                .node_lo = nodes.lo,
                                .node_hi = nodes.hi,
                                .symbol_max = symbols,
                                .n_sets = MN_BINDING_SETS};
    if (!mn_memory_uses_find(&g->abi, &nodes, 1, k_dtype, v_dtype, &out->memory))
        return mn_fail_memory(err, g->abi.n_nodes * sizeof(mn_memory_layer));
    mn_memory_uses_give(&out->memory, &out->compile);
    return MN_OK;
}

/* ---- estimates ------------------------------------------------------------------------------- */

/* A class that exists, and is no coarser than what was asked for. */
static mn_status check_class(const mn_compile *c, const mn_estimate *e, mn_error *err) {
    const bool stated = e->size >= MN_UP_TO(mn_estimate, precision);
    if (!stated || e->precision < MN_PRECISION_EXACT || e->precision > MN_PRECISION_A8)
        return mn_fail(err, MN_UNSUPPORTED, "its estimate states no precision class");
    if (c->precision != MN_PRECISION_AUTO && e->precision > c->precision)
        return mn_fail(err, MN_UNSUPPORTED,
                       "would compute in a coarser precision class than was asked for");
    return MN_OK;
}

static bool has_sane_sizes(const mn_estimate *e) {
    const uint64_t sizes[] = {e->weights, e->scratch, e->host_pinned, e->import_peak};
    for (size_t i = 0; i < MN_COUNT(sizes); i++)
        if (sizes[i] > MAX_BYTES)
            return false;
    return true;
}

/* What is unknown or cannot be of its times and its grain becomes 0. */
static mn_status ask_estimate(const mn_offer *o, const mn_compile *c, mn_estimate *e,
                              mn_error *err) {
    const mn_plugin_record *p = o->record->plugin;
    mn_sealed *pages;
    const mn_compile *given = mn_given_compile(c, &pages);
    mn_status st = MN_OK;
    if (!given)
        return mn_fail_memory(err, sizeof *c);
    *e = (mn_estimate){.size = sizeof *e};
    MN_WATCHED(p->callee, "estimate", st = p->backend->estimate(o->device, given, e, err));
    mn_sealed_free(pages);
    if (!st)
        st = check_class(c, e, err);
    if (st)
        return st;
    if (!has_sane_sizes(e))
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
    mn_request_symbols(r, 1, symbols);
    mn_question q;
    mn_status st = mn_segment_question(o, g, (mn_node_range){lo, hi}, r->precision, r->k_dtype,
                                       r->v_dtype, symbols, &q, err);
    if (st)
        return st;
    st = ask_estimate(o, &q.compile, &e, err);
    mn_memory_uses_free(&q.memory);
    if (st)
        return st;
    o->precision = e.precision;
    const uint32_t usual = o->precision == MN_PRECISION_EXACT ? MN_F32 : MN_F16;
    o->k_dtype = r->k_dtype ? r->k_dtype : usual;
    o->v_dtype = r->v_dtype ? r->v_dtype : usual;
    return MN_OK;
}

/* ---- KV groups ------------------------------------------------------------------------------- */

static mn_status segment_ask_group(const mn_offer *o, const mn_question *q, uint32_t group,
                                   mn_segment *s, mn_error *err) {
    const mn_compile *c = &q->compile;
    const mn_memory_uses *memory = &q->memory;
    mn_memory_layout *kv = &s->kv[group];
    const mn_plugin_record *p = o->record->plugin;
    mn_sealed *pages;
    const mn_compile *given = mn_given_compile(c, &pages);
    mn_status st = MN_OK;
    if (!given)
        return mn_fail_memory(err, sizeof *c);
    MN_WATCHED(p->callee, "memory_layout",
               st = p->backend->memory_layout(o->device, given, group, kv, err));
    mn_sealed_free(pages);
    if (st)
        return st;
    const bool is_paged = mn_memory_uses_group(memory, group)->kind == MN_MEMORY_PAGED;
    const bool fits_kind = !kv->page_tokens == !is_paged && kv->page_tokens <= MAX_PAGE_TOKENS;
    const bool some_bytes = kv->page_bytes && kv->page_bytes <= MAX_BYTES;
    if (!fits_kind || !some_bytes)
        return mn_fail(err, MN_UNSUPPORTED, "states KV pages of %llu bytes for %u positions",
                       (unsigned long long)kv->page_bytes, kv->page_tokens);
    kv->size = sizeof *kv;
    return MN_OK;
}

/* Layouts, pages and bytes of all groups that are here. */
static mn_status ask_kv(const mn_offer *o, const mn_model_graph *g, const mn_question *q,
                        const mn_request *r, mn_segment *s, mn_error *err) {
    const uint32_t ahead = mn_steps_ahead(o->record, r);
    mn_status st = MN_OK;
    s->kv_bytes = 0;
    for (uint32_t i = 0; i < MN_MAX_KV_GROUP && !st; i++) {
        uint64_t bytes = 0;
        s->kv[i] = (mn_memory_layout){.size = sizeof s->kv[i]};
        s->n_pages[i] = 0;
        if (!mn_memory_uses_group(&q->memory, i))
            continue;
        st = segment_ask_group(o, q, i, s, err);
        if (st)
            return st;
        const uint32_t page_tokens = s->kv[i].page_tokens;
        s->n_pages[i] = mn_kv_pages_for(&g->hp.kv[i], page_tokens, q->compile.symbol_max, ahead,
                                        r->kv_positions);
        if (!mn_mul_u64(s->n_pages[i], s->kv[i].page_bytes, &bytes) ||
            !mn_add_u64(s->kv_bytes, bytes, &s->kv_bytes))
            st = mn_fail(err, MN_OUT_OF_MEMORY, "needs a larger KV cache than can be counted");
    }
    return st;
}

/* Weights that another session of the model has on the device take no memory again. The engine
 * takes the reference: a set that is freed before leaves its memory to the import. */
static void share_weights(const mn_offer *o, const mn_model_graph *g, const mn_request *r,
                          mn_segment *s) {
    const mn_held_question q = {o->device, g, s->node_lo, s->node_hi, o->precision};
    s->shares = mn_held_has(r->held, &q);
    if (!s->shares)
        return;
    s->estimate.weights = 0;
    s->estimate.import_peak = 0;
}

bool mn_need_add(const mn_offer *o, const mn_segment *s, mn_need_sum *sum) {
    const uint64_t scratch = s->estimate.scratch;
    uint64_t all;
    if (mn_device_shares_scratch(o->record))
        sum->scratch = MN_MAX(sum->scratch, scratch);
    else if (!mn_add_u64(sum->scratch, scratch, &sum->scratch))
        return false;
    return mn_add_u64(sum->rest, s->need - scratch, &sum->rest) &&
           mn_add_u64(sum->rest, sum->scratch, &all);
}

/* State of the adapters that the nodes read, all of which the host allocates. */
static bool add_adapters(const mn_graph *g, const mn_segment *s, uint64_t *need) {
    bool fits = true;
    for (uint32_t i = s->node_lo; i < s->node_hi && fits; i++) {
        const mn_node *n = &g->nodes[i];
        for (uint32_t in = MN_LORA_A; n->op == MN_OP_LORA && in <= MN_LORA_B && fits; in++) {
            const mn_tensor *t = &g->tensors[g->operands[n->in_off + in]];
            uint64_t bytes = t->dtype.block_bytes;
            for (uint32_t d = 0; d < t->n_dim && fits; d++)
                fits = mn_mul_u64(bytes, (uint64_t)t->dim[d], &bytes);
            fits = fits && mn_add_u64(*need, bytes, need);
        }
    }
    return fits;
}

/* mn_segment_ask, of a segment that was not asked about before. */
static mn_status ask_segment(const mn_offer *o, const mn_model_graph *g, const mn_request *r,
                             mn_segment *s, mn_error *err) {
    int64_t symbols[MN_SYM_COUNT];
    mn_request_symbols(r, 1, symbols);
    mn_question q;
    mn_status st = mn_segment_question(o, g, (mn_node_range){s->node_lo, s->node_hi}, o->precision,
                                       o->k_dtype, o->v_dtype, symbols, &q, err);
    if (st)
        return st;
    st = ask_kv(o, g, &q, r, s, err);
    if (!st) {
        mn_request_symbols(r, mn_segment_row(s, r), symbols);
        st = ask_estimate(o, &q.compile, &s->estimate, err);
    }
    mn_memory_uses_free(&q.memory);
    if (st)
        return st;
    share_weights(o, g, r, s);
    if (!mn_add_u64(s->estimate.weights, s->kv_bytes, &s->need) ||
        !mn_add_u64(s->need, s->estimate.scratch, &s->need) || !add_adapters(&g->abi, s, &s->need))
        return mn_fail(err, MN_OUT_OF_MEMORY, "needs more memory than can be counted");
    return MN_OK;
}

/* ---- answers that are kept ------------------------------------------------------------------- */
typedef struct mn_segment_answer {
    mn_segment segment;
    mn_error error; /* status MN_OK: none */
} mn_segment_answer;

static const mn_segment_answer *find_answer(const mn_offer *o, const mn_segment *s) {
    for (size_t i = 0; i < o->n_answers; i++) {
        const mn_segment *known = &o->answers[i].segment;
        if (known->node_lo == s->node_lo && known->node_hi == s->node_hi)
            return &o->answers[i];
    }
    return NULL;
}

/* Without memory for it the next one asks the device again. */
static void segment_keep_answer(mn_offer *o, const mn_segment_answer *answer) {
    void *list = o->answers;
    if (!mn_grow(&list, &o->cap_answers, o->n_answers + 1, sizeof *o->answers))
        return;
    o->answers = list;
    o->answers[o->n_answers++] = *answer;
}

void mn_segment_answers_free(mn_offer *o) {
    mn_free(o->answers);
}

static void copy_answer(mn_segment *s, const mn_segment *known) {
    s->estimate = known->estimate;
    s->shares = known->shares;
    memcpy(s->kv, known->kv, sizeof s->kv);
    memcpy(s->n_pages, known->n_pages, sizeof s->n_pages);
    s->kv_bytes = known->kv_bytes;
    s->need = known->need;
}

mn_status mn_segment_ask(mn_offer *o, const mn_model_graph *g, const mn_request *r, mn_segment *s,
                         mn_error *err) {
    const mn_segment_answer *known = find_answer(o, s);
    mn_segment_answer fresh = {.segment = *s, .error = MN_ERROR_INIT};
    if (!known) {
        fresh.error.status = ask_segment(o, g, r, &fresh.segment, &fresh.error);
        mn_fail_plain(&fresh.error);
        segment_keep_answer(o, &fresh);
        known = &fresh;
    }
    copy_answer(s, &known->segment);
    if (!known->error.status)
        return MN_OK;
    return mn_fail(err, known->error.status, "%s", known->error.msg);
}
