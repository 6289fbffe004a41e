/* plan.h -- what LINEAR and MOE_LINEAR look up once, in prepare: the kernels of each weight and the
 * forms of x, by the number of rows of x. A step with some number of rows then finds them without
 * the table. The program of cpu_host owns a plan (mnc_op.owns_user). */
#ifndef MNK_PLAN_H
#define MNK_PLAN_H
#include "nodes.h"

/* What a product reads of its weight. */
enum {
    MNK_STORED, /* the weight as stored */
    MNK_SECOND, /* its second layout (lanes.h) if so few rows have kernels for it, else as stored */
    MNK_PLAIN,  /* as stored, and of x rows, not groups of them */
    MNK_READS
};
typedef struct {
    const mnk_linear *of[MNK_READS];
} mnk_kernels;

enum { MNK_RANGES = 12 }; /* more than the table has: test_rows tries all levels */
typedef struct {
    mnk_use use; /* first, as of nodes without a plan */
    uint32_t n_weights;
    uint32_t n_ranges;
    int64_t from[MNK_RANGES]; /* rows of x from which on a range counts, up to the next one */
    /* of all weights, by MNK_STORED and MNK_SECOND; mnk_forms_place is for the call. n_own: 1 where
     * threads make tiles of their own. */
    mnk_forms forms[MNK_RANGES][2];
    mnk_kernels kernels[]; /* [n_ranges][n_weights] */
} mnk_plan;

uint64_t mnk_plan_bytes(uint32_t n_weights);
/* Of n weights with k columns each. */
void mnk_plan_fill(mnk_plan *p, const mnk_use *use, const uint32_t *dtype, uint32_t n, int64_t k);
/* The range of r rows. */
uint32_t mnk_plan_range(const mnk_plan *p, int64_t r);
static inline const mnk_kernels *mnk_plan_kernels(const mnk_plan *p, uint32_t range, uint32_t i) {
    return &p->kernels[range * p->n_weights + i];
}
/* What products of up to r rows of k columns need: raises *panel, adds 1 << MNK_X_* to *forms. */
void mnk_plan_scratch(const mnk_plan *p, int64_t k, int64_t r, uint64_t *panel, uint32_t *forms);
#endif
