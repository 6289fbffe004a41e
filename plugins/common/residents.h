/* residents.h -- experts that a device may lack: the operands of MOE_LINEAR and MOE_COMBINE that
 * say which are there. Pure functions, any thread. C11 that also compiles as C++. */
#ifndef MNP_RESIDENTS_H
#define MNP_RESIDENTS_H
#include "common.h"
#ifdef __cplusplus
extern "C" {
#endif

/* RESIDENT, EXPERTS and BASE fit the rest of the node; true where it has none */
bool mnp_residents_fit(const mn_graph *g, const mn_node *n);
/* The number of RESIDENT, which may be absent: behind the groups and X_WEIGHTS. */
static inline uint32_t mnp_resident_operand(const mn_node *n) {
    if (n->op == MN_OP_MOE_COMBINE)
        return MN_MOE_COMBINE_RESIDENT;
    return MN_MOE_LINEAR_WEIGHT + 2 * n->n_out + 1;
}

#ifdef __cplusplus
}
#endif
#endif
