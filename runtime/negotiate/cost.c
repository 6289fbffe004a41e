/* cost.c -- times of segments and of the copies between them.
 *
 * What a product of matrices takes is what its weights take: their bytes by the rate of their type
 * for one row, their multiplications for a prompt. All other nodes cost their launch. Times are
 * microseconds, of one drawn token (decode) and of a prompt of 512 tokens (prefill). */
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

/* Of the experts of a layer, a token reads those that it chose. */
static double read_share(const mn_graph *g, const mn_node *n, const mn_tensor *w) {
    if (n->op != MN_OP_MOE_LINEAR || w->n_dim != 3 || w->dim[0] <= 0)
        return 1;
    const int32_t at = g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
    if (at < 0)
        return 1;
    const mn_tensor *experts = &g->tensors[at]; // [n_tokens, n_chosen]
    const double chosen = experts->n_dim == 2 ? (double)experts->dim[1] : 0;
    const double all = (double)w->dim[0];
    return chosen > 0 && chosen < all ? chosen / all : 1;
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
            sum += read_share(g, n, w) * tensor_bytes(w, NULL);
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
                sum += tensor_bytes(w, NULL);
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

static void add_weight(const mn_rates *r, const mn_graph *g, const mn_node *n, const mn_tensor *w,
                       mn_segment *s) {
    const mn_type_rate *rate = rate_of(r, w->dtype.id);
    const double share = read_share(g, n, w);
    const double bytes = tensor_bytes(w, NULL);
    const double flop = 2 * PROMPT * share * count_elements(w, NULL);
    const double one_us = us_at(share * bytes, rate->decode_gbps);
    const double read_us = us_at(bytes, rate->decode_gbps);
    const double compute_us = flop / rate->prefill_tflops * 1e-6;
    s->decode_us += one_us;
    s->prefill_us += has_few_rows(g, n) ? one_us : MN_MAX(compute_us, read_us);
}

/* By the rates that were measured. */
static void add_measured(const mn_rates *r, const mn_graph *g, mn_segment *s) {
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const mn_node *n = &g->nodes[i];
        const double exchanges = n->op == MN_OP_ATTENTION ? EXCHANGES : 0;
        s->decode_us += r->node_us + exchanges * r->exchange_us;
        s->prefill_us += r->node_us + exchanges * r->exchange_us;
        for (uint32_t j = 0; j < n->n_in; j++) {
            const mn_tensor *w = factor(g, n, j);
            if (w)
                add_weight(r, g, n, w, s);
        }
    }
}

/* By what the plugin claims, but no less than the fastest known memory and units would take. */
static void add_claimed(const mn_offer *o, const mn_graph *g, mn_segment *s) {
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
    add_measured(&fastest, g, &least);
    if (decode_us <= 0)
        decode_us = us_at(bytes, gbps > 0 ? gbps : UNKNOWN_GBPS);
    if (prefill_us <= 0)
        prefill_us = decode_us * 16;
    s->decode_us += MN_MAX(decode_us, least.decode_us);
    s->prefill_us += MN_MAX(prefill_us, least.prefill_us);
}

void mn_segment_time(const mn_offer *o, const mn_model_graph *g, mn_segment *s) {
    const bool measured = o->rates.n_types > 0;
    s->decode_us = s->prefill_us = o->rates.step_us;
    if (measured)
        add_measured(&o->rates, &g->abi, s);
    else
        add_claimed(o, &g->abi, s);
    s->row_us = MN_MAX(s->decode_us, s->prefill_us / PROMPT);
    /* a claim may be too good: not less than reading the weights at 1 GB/s for each token */
    if (!measured)
        s->row_us = MN_MAX(s->row_us, us_at(mn_segment_bytes(&g->abi, s), 1));
}

/* ---- what crosses between segments ----------------------------------------------------------- */

/* A tensor on its way from the segment that writes it to those that read it. */
typedef struct {
    uint32_t maker;   /* segment that writes it; UINT32_MAX = none */
    uint32_t counted; /* last segment whose boundary it was counted in, + 1 */
    bool left;        /* counted in its maker's boundary */
    uint32_t n_at;    /* devices that have a copy */
    uint32_t at[MN_MAX_SPLIT];
} crossing;

typedef struct {
    const mn_offer *offers;
    const mn_graph *g;
    int64_t max[MN_SYM_COUNT];
    crossing *all; /* [n_tensors] */
    mn_segment *segments;
    mn_copies *copies; /* NULL: nobody asks */
} border;

static double copy_time(const mn_rates *r, double bytes) {
    return r->copy_us + (r->copy_gbps > 0 ? us_at(bytes, r->copy_gbps) : 0);
}

/* A copy takes its time on both devices. */
static void add_copy(const border *b, const mn_tensor *t, uint32_t from, uint32_t to) {
    const int64_t one[MN_SYM_COUNT] = {1, 1, 1, 1, 1, 1, 1};
    const int64_t many[MN_SYM_COUNT] = {PROMPT, 1, 1, 1, 1, 1, PROMPT};
    const uint32_t ends[2] = {from, to};
    b->copies->n_copies++;
    for (int i = 0; i < 2; i++) {
        const mn_rates *r = &b->offers[ends[i]].rates;
        b->copies->decode_us += copy_time(r, tensor_bytes(t, one));
        b->copies->prefill_us += copy_time(r, tensor_bytes(t, many));
    }
}

static bool arrives(crossing *c, uint32_t offer) { /* false = the device has it already */
    for (uint32_t i = 0; i < c->n_at; i++)
        if (c->at[i] == offer)
            return false;
    if (c->n_at < MN_MAX_SPLIT)
        c->at[c->n_at++] = offer;
    return true;
}

/* Segment k reads tensor t. It counts once on each side, and once per device as a copy. */
static void read_tensor(const border *b, uint32_t k, uint32_t t) {
    crossing *c = &b->all[t];
    if (c->maker == UINT32_MAX || c->maker == k || c->counted == k + 1)
        return;
    mn_segment *here = &b->segments[k];
    mn_segment *there = &b->segments[c->maker];
    const uint64_t bytes = (uint64_t)tensor_bytes(&b->g->tensors[t], b->max);
    c->counted = k + 1;
    here->boundary_bytes += bytes;
    if (!c->left)
        there->boundary_bytes += bytes;
    c->left = true;
    if (b->copies && here->offer != there->offer && arrives(c, here->offer))
        add_copy(b, &b->g->tensors[t], there->offer, here->offer);
}

static void cross_node(const border *b, uint32_t k, const mn_node *n) {
    const int32_t *in = &b->g->operands[n->in_off];
    const int32_t *out = &b->g->operands[n->out_off];
    for (uint32_t j = 0; j < n->n_in; j++)
        if (in[j] >= 0)
            read_tensor(b, k, (uint32_t)in[j]);
    for (uint32_t j = 0; j < n->n_out; j++)
        if (out[j] >= 0)
            b->all[out[j]].maker = k;
}

mn_status mn_boundaries(const mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                        mn_segment *s, uint32_t n, mn_copies *copies, mn_error *err) {
    const uint32_t n_tensors = g->abi.n_tensors;
    border b = {
        .offers = offers,
        .g = &g->abi,
        .segments = s,
        .copies = copies,
    };
    mn_request_symbols(r, 1, b.max);
    b.all = mn_calloc(n_tensors, sizeof *b.all);
    if (!b.all)
        return mn_fail_memory(err, n_tensors * sizeof *b.all);
    for (uint32_t i = 0; i < n_tensors; i++)
        b.all[i].maker = UINT32_MAX;
    for (uint32_t k = 0; k < n; k++)
        s[k].boundary_bytes = 0;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = s[k].node_lo; i < s[k].node_hi; i++)
            cross_node(&b, k, &g->abi.nodes[i]);
    mn_free(b.all);
    return MN_OK;
}
