/* op_sample.c -- SAMPLE: its operands for sample.cl. Inputs that are not bound switch their filters
 * off; outputs that are not bound are not computed. */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

/* An OPTIONAL output that nobody has bound is not computed, though it may have a place. */
static void sample(ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t logits = mnp_in(r->g, n, MN_SAMPLE_LOGITS);
    const int32_t history = mnp_in(r->g, n, MN_SAMPLE_HISTORY);
    const int32_t ids = mnp_out(r->g, n, MN_SAMPLE_OUT_TOP_IDS);
    const int32_t probs = mnp_out(r->g, n, MN_SAMPLE_OUT_TOP_LOGPROBS);
    const ocl_ref top_ids = ocl_operand(r, ids);
    const ocl_ref top_probs = ocl_operand(r, probs);
    ocl_sample_args a = {.O = (int)ocl_dim(r, logits, 0), .V = (int)ocl_dim(r, logits, 1)};
    a.S = (int)ocl_dim(r, history, 0);
    a.C = (int)ocl_dim(r, history, 1);
    a.param_words = (int)ocl_dim(r, mnp_in(r->g, n, MN_SAMPLE_PARAMS), 1);
    a.slot_words = (int)ocl_dim(r, mnp_in(r->g, n, MN_SAMPLE_SLOTS), 1);
    a.n_bias_ids = (int)ocl_dim(r, mnp_in(r->g, n, MN_SAMPLE_BIAS_IDS), 1);
    if (ocl_is_there(top_ids) || ocl_is_there(top_probs))
        a.n_top = (int)ocl_dim(r, ids >= 0 ? ids : probs, 1);
    const ocl_ref refs[] = {
        ocl_operand(r, logits),
        ocl_in(r, n, MN_SAMPLE_OUT_SLOT),
        ocl_in(r, n, MN_SAMPLE_PARAMS),
        ocl_in(r, n, MN_SAMPLE_SLOTS),
        ocl_operand(r, history),
        ocl_in(r, n, MN_SAMPLE_BIAS),
        ocl_in(r, n, MN_SAMPLE_MASK),
        ocl_in(r, n, MN_SAMPLE_BIAS_IDS),
        ocl_in(r, n, MN_SAMPLE_BIAS_VALUES),
        ocl_in(r, n, MN_SAMPLE_TARGET),
        ocl_in(r, n, MN_SAMPLE_DRAFT),
        ocl_in(r, n, MN_SAMPLE_BREAKERS),
        ocl_out(r, n, MN_SAMPLE_OUT_IDS),
        top_ids,
        top_probs,
        ocl_out(r, n, MN_SAMPLE_OUT_LOGPROB),
        ocl_out(r, n, MN_SAMPLE_OUT_MU),
        ocl_scratch(r, r->p->logits_at),
        ocl_scratch(r, r->p->mass_at),
    };
    const size_t lanes = r->dev->sample_lanes;
    const ocl_grid grid = {{(size_t)a.O * lanes, 1, 1}, {lanes, 1, 1}};
    ocl_enqueue(r, &(ocl_launch){.kernel = OCL_KERNEL_sample,
                                 .refs = refs,
                                 .n_refs = N_REFS(refs),
                                 .args = &a,
                                 .args_bytes = sizeof a,
                                 .grid = grid});
}

static void sample_needs(const mn_program *p, const mn_node *n, ocl_needs *needs) {
    const mn_tensor *x = mnp_in_tensor(p->graph, n, MN_SAMPLE_LOGITS);
    const int64_t rows = mnp_dim(p->graph, p->symbol_max, x->dim[0]);
    const uint64_t all = (uint64_t)(rows * mnp_dim(p->graph, p->symbol_max, x->dim[1]));
    ocl_need(&needs->logits, all * sizeof(float));
    ocl_need(&needs->mass, all * sizeof(uint64_t));
}

static uint32_t sample_verdict(const mn_graph *g, const mn_node *n) {
    for (uint32_t i = MN_SAMPLE_LOGITS; i <= MN_SAMPLE_HISTORY; i++) {
        const mn_tensor *t = mnp_in_tensor(g, n, i);
        if (!t || (i != MN_SAMPLE_OUT_SLOT && t->n_dim != 2))
            return OCL_SHAPE;
    }
    return OCL_OK;
}

const ocl_op ocl_op_sample = {MN_OP_SAMPLE, 4, sample_verdict, sample_needs, sample};
