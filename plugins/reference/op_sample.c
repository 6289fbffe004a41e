/* op_sample.c -- SAMPLE is cpu_host's own, since every CPU plugin must draw the same ids; it is
 * plain C in double like the rest. */
#include "reference.h"
#include "sampler.h"

static void size(const mnc_query *q, mnc_op *op) {
    op->worker_bytes = mnc_sample_bytes((int64_t)ref_last_dim(q, MN_SAMPLE_LOGITS));
}

const ref_op ref_op_sample = {
    .fn = mnc_op_sample,
    .size = size,
};
