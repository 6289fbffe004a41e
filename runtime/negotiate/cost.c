/* cost.c -- times of segments and of the copies between them.
 *
 * What a product of matrices takes is what its weights take: their bytes by the rate of their type
 * for one row, their multiplications for a prompt. All other nodes cost their launch. Times are
 * microseconds, of one drawn token (decode) and of a prompt of 512 tokens (prefill). */
#include "negotiate/crossing.h"
#include "negotiate/offer.h"

/* for a device that states nothing and could not be measured: any that does goes first */
#define UNKNOWN_GBPS 1.0
/* of a group, in a layer: a sum behind attention, one behind its feed-forward part (Shoeybi et al.
 * 2019, Megatron-LM) */
enum { PROMPT = MN_PROMPT_ROWS, EXCHANGES = 2 };

static double us_at(double bytes, double gbps) {
    return bytes / gbps * 1e-3;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* symbols may be NULL of a weight: its shape has none. */
static double count_elements(const mn_tensor *t, const int64_t *symbols) {
    double n = 1;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        const int64_t dim = t->dim[i];
        n *= (double)(dim < 0 ? symbols[~dim] : dim);
    }
    return n;
}

static double tensor_bytes(const mn_tensor *t, const int64_t *symbols) {
    const double n = count_elements(t, symbols);
    if (t->role != MN_ROLE_WEIGHT)
        return n * 4; /* FLOAT crosses as f32, everything else is I32 */
    return t->dtype.block_elems ? n / t->dtype.block_elems * t->dtype.block_bytes : 0;
}

/* How much of a weight a product needs, 1: all of it. */
typedef struct {
    double token;    /* of its bytes, that one token reads */
    double prompt;   /* the same of a whole prompt */
    double multiply; /* of its elements, that each row of a prompt is multiplied with */
} need_share;

/* Experts that each token chooses; 0: it is not known. */
static double chosen_per_token(const mn_graph *g, const mn_node *n) {
    const int32_t at = g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
    const mn_tensor *experts = at < 0 ? NULL : &g->tensors[at]; // [n_tokens, n_chosen]
    return experts && experts->n_dim == 2 ? (double)experts->dim[1] : 0;
}

/* model: NULL, or the graph whose layers say how often experts are used.
 * Of the experts of a layer, a token reads those that it chose, and of a divided layer those of its
 * half. The weight of a first half has its experts alone: rows of the others are computed with the
 * first of them, and read by nobody. */
static need_share share_of(const mn_model_graph *model, const mn_graph *g, uint32_t node,
                           const mn_tensor *w) {
    const mn_node *n = &g->nodes[node];
    const need_share whole = {1, 1, 1};
    if (n->op != MN_OP_MOE_LINEAR || w->n_dim != 3 || w->dim[0] <= 0)
        return whole;
    const double here = (double)w->dim[0];
    const double all = MN_MAX((double)mn_experts_routed(g, node), here);
    const double chosen = chosen_per_token(g, n);
    const double own = mn_experts_share(g, node);
    const double use = mn_experts_use(model, g, node);
    if (chosen <= 0 || chosen >= all)
        return whole;
    if (here < all) {
        const double read = chosen * use + MN_MIN(chosen * (1 - use), 1);
        return (need_share){MN_MIN(read / here, 1), 1, chosen / here};
    }
    return (need_share){use * chosen / all, own, use * chosen / all};
}

/* Operand j of a product if that is a weight, else NULL. */
static const mn_tensor *factor(const mn_graph *g, const mn_node *n, uint32_t j) {
    if (n->op != MN_OP_LINEAR && n->op != MN_OP_MOE_LINEAR)
        return NULL;
    const int32_t at = g->operands[n->in_off + j];
    if (at < 0)
        return NULL;
    const mn_tensor *t = &g->tensors[at];
    return t->role == MN_ROLE_WEIGHT ? t : NULL;
}

double mn_node_bytes(const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    double sum = 0;
    for (uint32_t j = 0; j < n->n_in; j++) {
        const mn_tensor *w = factor(g, n, j);
        if (w)
            sum += share_of(NULL, g, i, w).token * tensor_bytes(w, NULL);
    }
    return sum;
}

double mn_segment_bytes(const mn_graph *g, const mn_segment *s) {
    double sum = 0;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const mn_node *n = &g->nodes[i];
        for (uint32_t j = 0; j < n->n_in; j++) {
            const mn_tensor *w = factor(g, n, j);
            if (w)
                sum += share_of(NULL, g, i, w).prompt * tensor_bytes(w, NULL);
        }
    }
    return sum;
}

/* ---- times of a segment ---------------------------------------------------------------------- */

static const mn_type_rate *rate_of(const mn_rates *r, uint32_t dtype) {
    for (uint32_t i = 0; i < r->n_types; i++)
        if (r->type[i].dtype == dtype)
            return &r->type[i];
    return &r->type[0]; /* of the type that the model has most of */
}

/* Whether the node works on the rows that are drawn from alone, also in a prompt. */
static bool has_few_rows(const mn_graph *g, const mn_node *n) {
    const int32_t at = n->n_in ? g->operands[n->in_off] : -1;
    if (at < 0)
        return false;
    const mn_tensor *x = &g->tensors[at];
    return x->n_dim && x->dim[0] == MN_DIM(MN_SYM_OUTPUTS);
}

static void add_weight(const mn_rates *r, const mn_model_graph *model, const mn_graph *g,
                       uint32_t node, const mn_tensor *w, mn_segment *s) {
    const mn_type_rate *rate = rate_of(r, w->dtype.id);
    const need_share share = share_of(model, g, node, w);
    const double bytes = tensor_bytes(w, NULL);
    const double flop = 2 * PROMPT * share.multiply * count_elements(w, NULL);
    const bool of_experts = g->nodes[node].op == MN_OP_MOE_LINEAR && rate->experts_gbps > 0;
    const double gbps = of_experts ? rate->experts_gbps : rate->decode_gbps;
    const double tflops = of_experts ? rate->experts_tflops : rate->prefill_tflops;
    const double one_us = us_at(share.token * bytes, gbps);
    const double read_us = us_at(share.prompt * bytes, rate->decode_gbps);
    const double compute_us = flop / tflops * 1e-6;
    s->decode_us += one_us;
    s->prefill_us += has_few_rows(g, &g->nodes[node]) ? one_us : MN_MAX(compute_us, read_us);
}

/* By the rates that were measured. */
static void add_measured(const mn_rates *r, const mn_model_graph *model, const mn_graph *g,
                         mn_segment *s) {
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const mn_node *n = &g->nodes[i];
        const double exchanges = n->op == MN_OP_ATTENTION ? EXCHANGES : 0;
        s->decode_us += r->node_us + exchanges * r->exchange_us;
        s->prefill_us += r->node_us + exchanges * r->exchange_us;
        for (uint32_t j = 0; j < n->n_in; j++) {
            const mn_tensor *w = factor(g, n, j);
            if (w)
                add_weight(r, model, g, i, w, s);
        }
    }
}

/* By what the plugin claims, but no less than the fastest known memory and units would take. */
static void add_claimed(const mn_offer *o, const mn_model_graph *model, const mn_graph *g,
                        mn_segment *s) {
    static const mn_rates fastest = {
        .type = {{.decode_gbps = MN_MOST_MEM_GBPS, .prefill_tflops = MN_MOST_TFLOPS}},
        .n_types = 1,
    };
    const double gbps = mn_capped(o->record->info.mem_gbps, MN_MOST_MEM_GBPS);
    mn_segment least = {.node_lo = s->node_lo, .node_hi = s->node_hi};
    double decode_us = s->estimate.decode_us;
    double prefill_us = s->estimate.prefill_us;
    double bytes = 0;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++)
        bytes += mn_node_bytes(g, i);
    add_measured(&fastest, model, g, &least);
    if (decode_us <= 0)
        decode_us = us_at(bytes, gbps > 0 ? gbps : UNKNOWN_GBPS);
    if (prefill_us <= 0)
        prefill_us = decode_us * 16;
    s->decode_us += MN_MAX(decode_us, least.decode_us);
    s->prefill_us += MN_MAX(prefill_us, least.prefill_us);
}

void mn_segment_time(const mn_offer *o, const mn_model_graph *g, mn_segment *s) {
    const bool measured = o->rates.n_types > 0;
    const mn_graph *own = o->given ? o->given : &g->abi; /* with the types that it reads */
    s->decode_us = s->prefill_us = o->rates.step_us;
    if (measured)
        add_measured(&o->rates, g, own, s);
    else
        add_claimed(o, g, own, s);
    s->row_us = MN_MAX(s->decode_us, s->prefill_us / PROMPT);
    /* a claim may be too good: not less than reading the weights at 1 GB/s for each token */
    if (!measured)
        s->row_us = MN_MAX(s->row_us, us_at(mn_segment_bytes(own, s), 1));
}

/* ---- what crosses between segments ----------------------------------------------------------- */

static double copy_time(const mn_rates *r, double bytes) {
    return r->copy_us + (r->copy_gbps > 0 ? us_at(bytes, r->copy_gbps) : 0);
}

/* A copy takes its time on both devices. */
static void add_copy(const mn_offer *offers, const mn_tensor *t, const mn_crossing *c,
                     mn_copies *copies) {
    const int64_t one[MN_SYM_COUNT] = {1, 1, 1, 1, 1, 1, 1, 0};
    const int64_t many[MN_SYM_COUNT] = {PROMPT, 1, 1, 1, 1, 1, PROMPT, PROMPT};
    const uint32_t ends[2] = {c->from, c->device};
    copies->n_copies++;
    for (int i = 0; i < 2; i++) {
        const mn_rates *r = &offers[ends[i]].rates;
        copies->decode_us += copy_time(r, tensor_bytes(t, one));
        copies->prefill_us += copy_time(r, tensor_bytes(t, many));
    }
}

/* Segments of a plan that is half made have no offer yet: they are one more device. */
static mn_status find_crossings(const mn_model_graph *g, const mn_request *r, const mn_segment *s,
                                uint32_t n, mn_crossings *out, mn_error *err) {
    int64_t max[MN_SYM_COUNT];
    uint32_t n_offers = 0;
    mn_crossing_segment *list = mn_alloc(n, sizeof *list);
    *out = (mn_crossings){0};
    if (!list)
        return mn_fail_memory(err, n * sizeof *list);
    for (uint32_t k = 0; k < n; k++)
        if (s[k].offer != UINT32_MAX)
            n_offers = MN_MAX(n_offers, s[k].offer + 1);
    for (uint32_t k = 0; k < n; k++)
        list[k] = (mn_crossing_segment){s[k].node_lo, s[k].node_hi, MN_MIN(s[k].offer, n_offers)};
    mn_request_symbols(r, 1, max);
    const mn_status st = mn_crossings_find(&g->abi, list, n, n_offers + 1, max, out, err);
    mn_free(list);
    return st;
}

mn_status mn_boundaries(const mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                        mn_segment *s, uint32_t n, mn_copies *copies, mn_error *err) {
    mn_crossings x;
    const mn_status st = find_crossings(g, r, s, n, &x, err);
    for (uint32_t k = 0; k < n && !st; k++)
        s[k].boundary_bytes = x.new_bytes[k];
    for (uint32_t i = 0; i < x.n && copies && !st; i++)
        if (x.at[i].from != MN_NOT_MOVED)
            add_copy(offers, &g->abi.tensors[x.at[i].tensor], &x.at[i], copies);
    mn_crossings_free(&x);
    return st;
}
