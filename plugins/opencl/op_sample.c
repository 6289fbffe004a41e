/* op_sample.c -- SAMPLE: its operands for sample.cl. Inputs that are not bound switch their filters
 * off; outputs that are not bound are not computed. */
#include "ops.h"

#define N_REFS(refs) (sizeof(refs) / sizeof(refs)[0])

/* An OPTIONAL output that nobody has bound is not computed, though it may have a place. */
static void sample(mng_run *r, const mng_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    const int32_t logits = mnp_in(r->g, n, MN_SAMPLE_LOGITS);
    const int32_t history = mnp_in(r->g, n, MN_SAMPLE_HISTORY);
    const int32_t ids = mnp_out(r->g, n, MN_SAMPLE_OUT_TOP_IDS);
    const int32_t probs = mnp_out(r->g, n, MN_SAMPLE_OUT_TOP_LOGPROBS);
    const mng_ref top_ids = mng_operand(r, ids);
    const mng_ref top_probs = mng_operand(r, probs);
    ocl_sample_args a = {.O = (int)mng_dim(r, logits, 0), .V = (int)mng_dim(r, logits, 1)};
    a.S = (int)mng_dim(r, history, 0);
    a.C = (int)mng_dim(r, history, 1);
    a.param_words = (int)mng_dim(r, mnp_in(r->g, n, MN_SAMPLE_PARAMS), 1);
    a.slot_words = (int)mng_dim(r, mnp_in(r->g, n, MN_SAMPLE_SLOTS), 1);
    a.n_bias_ids = (int)mng_dim(r, mnp_in(r->g, n, MN_SAMPLE_BIAS_IDS), 1);
    if (mng_is_there(top_ids) || mng_is_there(top_probs))
        a.n_top = (int)mng_dim(r, ids >= 0 ? ids : probs, 1);
    const mng_ref refs[] = {
        mng_operand(r, logits),
        mng_in(r, n, MN_SAMPLE_OUT_SLOT),
        mng_in(r, n, MN_SAMPLE_PARAMS),
        mng_in(r, n, MN_SAMPLE_SLOTS),
        mng_operand(r, history),
        mng_in(r, n, MN_SAMPLE_BIAS),
        mng_in(r, n, MN_SAMPLE_MASK),
        mng_in(r, n, MN_SAMPLE_BIAS_IDS),
        mng_in(r, n, MN_SAMPLE_BIAS_VALUES),
        mng_in(r, n, MN_SAMPLE_TARGET),
        mng_in(r, n, MN_SAMPLE_DRAFT),
        mng_in(r, n, MN_SAMPLE_BREAKERS),
        mng_out(r, n, MN_SAMPLE_OUT_IDS),
        top_ids,
        top_probs,
        mng_out(r, n, MN_SAMPLE_OUT_LOGPROB),
        mng_out(r, n, MN_SAMPLE_OUT_MU),
        mng_needed(r, OCL_NEED_LOGITS),
        mng_needed(r, OCL_NEED_MASS),
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

static void sample_needs(const mn_program *p, const mn_node *n, mng_needs *needs) {
    const mn_tensor *x = mnp_in_tensor(p->base.graph, n, MN_SAMPLE_LOGITS);
    const int64_t rows = mnp_dim(p->base.graph, p->base.symbol_max, x->dim[0]);
    const uint64_t all = (uint64_t)(rows * mnp_dim(p->base.graph, p->base.symbol_max, x->dim[1]));
    mng_need(needs, OCL_NEED_LOGITS, all * sizeof(float));
    mng_need(needs, OCL_NEED_MASS, all * sizeof(uint64_t));
}

const mng_op ocl_op_sample = {MN_OP_SAMPLE, 4, mng_sample_verdict, sample_needs, sample};
