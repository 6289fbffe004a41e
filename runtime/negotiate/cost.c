/* cost.c -- times of segments and of the copies between them. */
#include "negotiate/offer.h"

/* for a device that states nothing and could not be measured: any that does goes first */
#define UNKNOWN_GBPS 1.0

static double tensor_bytes(const mn_graph *g, int32_t t, const int64_t *symbols) {
    const mn_tensor *x = &g->tensors[t];
    double n = 1;
    for (uint32_t i = 0; i < x->n_dim; i++)
        n *= (double)(x->dim[i] < 0 ? symbols[~x->dim[i]] : x->dim[i]);
    if (x->role != MN_ROLE_WEIGHT)
        return n * 4; /* FLOAT crosses as f32, everything else is I32 */
    return x->dtype.block_elems ? n / x->dtype.block_elems * x->dtype.block_bytes : 0;
}

/* Of the experts of a layer, a token reads those that it chose. */
static double read_share(const mn_graph *g, const mn_node *n, const mn_tensor *w) {
    if (n->op != MN_OP_MOE_LINEAR || w->n_dim != 3 || w->dim[0] <= 0)
        return 1;
    int32_t chosen = g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
    int64_t each =
        chosen >= 0 && g->tensors[chosen].n_dim == 2 ? g->tensors[chosen].dim[1] : w->dim[0];
    return each > 0 && each < w->dim[0] ? (double)each / (double)w->dim[0] : 1;
}

static bool multiplies(const mn_node *n) {
    return n->op == MN_OP_LINEAR || n->op == MN_OP_MOE_LINEAR;
}

double mn_node_bytes(const mn_graph *g, uint32_t i) {
    const mn_node *n = &g->nodes[i];
    double sum = 0;
    for (uint32_t j = 0; multiplies(n) && j < n->n_in; j++) {
        int32_t t = g->operands[n->in_off + j];
        if (t < 0 || g->tensors[t].role != MN_ROLE_WEIGHT)
            continue;
        sum += read_share(g, n, &g->tensors[t]) * tensor_bytes(g, t, NULL);
    }
    return sum;
}

double mn_segment_bytes(const mn_graph *g, const mn_segment *s) {
    double sum = 0;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const mn_node *n = &g->nodes[i];
        for (uint32_t j = 0; multiplies(n) && j < n->n_in; j++) {
            int32_t t = g->operands[n->in_off + j];
            if (t >= 0 && g->tensors[t].role == MN_ROLE_WEIGHT)
                sum += tensor_bytes(g, t, NULL);
        }
    }
    return sum;
}

static const mn_type_rate *rate_of(const mn_rates *r, uint32_t dtype) {
    for (uint32_t i = 0; i < r->n_types; i++)
        if (r->type[i].dtype == dtype)
            return &r->type[i];
    return &r->type[0]; /* of the type that the model has most of */
}

static void add_node(const mn_rates *r, const mn_graph *g, uint32_t i, mn_segment *s) {
    const mn_node *n = &g->nodes[i];
    int32_t x = n->n_in ? g->operands[n->in_off] : -1;
    bool few_rows = x >= 0 && g->tensors[x].n_dim && g->tensors[x].dim[0] == MN_DIM(MN_SYM_OUTPUTS);
    s->decode_us += r->node_us;
    s->prefill_us += r->node_us;
    for (uint32_t j = 0; multiplies(n) && j < n->n_in; j++) {
        int32_t t = g->operands[n->in_off + j];
        if (t < 0 || g->tensors[t].role != MN_ROLE_WEIGHT)
            continue;
        const mn_tensor *w = &g->tensors[t];
        const mn_type_rate *rate = rate_of(r, w->dtype.id);
        double share = read_share(g, n, w), bytes = tensor_bytes(g, t, NULL), elements = 1;
        for (uint32_t d = 0; d < w->n_dim; d++)
            elements *= (double)w->dim[d];
        double one = share * bytes / rate->decode_gbps * 1e-3,
               many = 2 * 512 * share * elements / rate->prefill_tflops * 1e-6;
        s->decode_us += one;
        s->prefill_us += few_rows ? one : MN_MAX(many, bytes / rate->decode_gbps * 1e-3);
    }
}

/* By the rates that were measured. */
static void add_measured(const mn_offer *o, const mn_model_graph *g, mn_segment *s) {
    for (uint32_t i = s->node_lo; i < s->node_hi; i++)
        add_node(&o->rates, &g->abi, i, s);
}

/* By what the plugin claims, but no less than the fastest known memory and units would take. */
static void add_claimed(const mn_offer *o, const mn_model_graph *g, mn_segment *s) {
    static const mn_rates fastest = {
        .type = {{.decode_gbps = MN_MOST_MEM_GBPS, .prefill_tflops = MN_MOST_TFLOPS}},
        .n_types = 1,
    };
    const double claimed_gbps = mn_capped(o->record->info.mem_gbps, MN_MOST_MEM_GBPS);
    const double gbps = claimed_gbps > 0 ? claimed_gbps : UNKNOWN_GBPS;
    mn_segment least = {0};
    double bytes = 0;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        bytes += mn_node_bytes(&g->abi, i);
        add_node(&fastest, &g->abi, i, &least);
    }
    double decode = s->estimate.decode_us;
    double prefill = s->estimate.prefill_us;
    if (decode <= 0)
        decode = bytes / gbps * 1e-3;
    if (prefill <= 0)
        prefill = decode * 16;
    s->decode_us += MN_MAX(decode, least.decode_us);
    s->prefill_us += MN_MAX(prefill, least.prefill_us);
}

void mn_segment_time(const mn_offer *o, const mn_model_graph *g, mn_segment *s) {
    const bool measured = o->rates.n_types > 0;
    s->decode_us = s->prefill_us = o->rates.step_us;
    if (measured)
        add_measured(o, g, s);
    else
        add_claimed(o, g, s);
    s->row_us = MN_MAX(s->decode_us, s->prefill_us / 512);
    /* a claim may be too good: not less than reading the weights at 1 GB/s for each token */
    if (!measured)
        s->row_us = MN_MAX(s->row_us, mn_segment_bytes(&g->abi, s) * 1e-3);
}

typedef struct {
    uint32_t maker;   /* segment that writes it; UINT32_MAX = none */
    uint32_t counted; /* last segment whose boundary it was counted in, + 1 */
    bool left;        /* counted in its maker's boundary */
    uint32_t n_at;    /* devices that have a copy */
    uint32_t at[MN_MAX_SPLIT];
} crossing;

static double copy_time(const mn_rates *r, double bytes) {
    return r->copy_us + (r->copy_gbps > 0 ? bytes / r->copy_gbps * 1e-3 : 0);
}

static void add_copy(const mn_offer *offers, const mn_model_graph *g, int32_t t, uint32_t from,
                     uint32_t to, mn_copies *copies) {
    const int64_t one[MN_SYM_COUNT] = {1, 1, 1, 1, 1, 1, 1};
    const int64_t many[MN_SYM_COUNT] = {512, 1, 1, 1, 1, 1, 512};
    const uint32_t ends[2] = {from, to};
    copies->n_copies++;
    for (int i = 0; i < 2; i++) {
        copies->decode_us += copy_time(&offers[ends[i]].rates, tensor_bytes(&g->abi, t, one));
        copies->prefill_us += copy_time(&offers[ends[i]].rates, tensor_bytes(&g->abi, t, many));
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

mn_status mn_boundaries(const mn_offer *offers, const mn_model_graph *g, const mn_request *r,
                        mn_segment *s, uint32_t n, mn_copies *copies, mn_error *err) {
    const mn_graph *a = &g->abi;
    int64_t max[MN_SYM_COUNT];
    mn_request_symbols(r, 1, max);
    crossing *all = mn_calloc(a->n_tensors, sizeof *all);
    if (!all)
        return mn_fail_memory(err, a->n_tensors * sizeof *all);
    for (uint32_t i = 0; i < a->n_tensors; i++)
        all[i].maker = UINT32_MAX;
    for (uint32_t k = 0; k < n; k++) {
        s[k].boundary_bytes = 0;
        for (uint32_t i = s[k].node_lo; i < s[k].node_hi; i++) {
            const mn_node *node = &a->nodes[i];
            for (uint32_t j = 0; j < node->n_in; j++) {
                int32_t t = a->operands[node->in_off + j];
                crossing *c = t < 0 ? NULL : &all[t];
                if (!c || c->maker == UINT32_MAX || c->maker == k || c->counted == k + 1)
                    continue;
                uint64_t bytes = (uint64_t)tensor_bytes(a, t, max);
                c->counted = k + 1;
                s[k].boundary_bytes += bytes;
                if (!c->left)
                    s[c->maker].boundary_bytes += bytes;
                c->left = true;
                if (copies && s[k].offer != s[c->maker].offer && arrives(c, s[k].offer))
                    add_copy(offers, g, t, s[c->maker].offer, s[k].offer, copies);
            }
            for (uint32_t j = 0; j < node->n_out; j++)
                if (a->operands[node->out_off + j] >= 0)
                    all[a->operands[node->out_off + j]].maker = k;
        }
    }
    mn_free(all);
    return MN_OK;
}
