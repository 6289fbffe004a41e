/* residents.c -- of experts that a device may lack: whether the operand that says which, and what
 * comes with it, fit the rest of a node. */
#include "residents.h"

/* I32 [E]; E 0: any number of them. */
static bool is_resident_list(const mn_tensor *t, int64_t n_expert) {
    if (t->n_dim != 1 || t->dtype.id != MN_I32)
        return false;
    return t->dim[0] > 0 && (!n_expert || t->dim[0] == n_expert);
}

static bool fits_resident_linear(const mn_graph *g, const mn_node *n) {
    const mn_tensor *resident = mnp_in_tensor(g, n, mnp_resident_operand(n));
    for (uint32_t i = 0; i < n->n_out && resident; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, MN_MOE_LINEAR_WEIGHT + 2 * i);
        if (!w || !is_resident_list(resident, w->dim[0]))
            return false;
    }
    return true;
}

// x: [T, J, D]   experts: [T, J]   base: [T, D]
static bool fits_combine(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_MOE_COMBINE_X);
    const mn_tensor *experts = mnp_in_tensor(g, n, MN_MOE_COMBINE_EXPERTS);
    const mn_tensor *resident = mnp_in_tensor(g, n, MN_MOE_COMBINE_RESIDENT);
    const mn_tensor *base = mnp_in_tensor(g, n, MN_MOE_COMBINE_BASE);
    if (!x || x->n_dim != 3 || !experts != !resident)
        return false;
    if (experts && (experts->n_dim != 2 || experts->dim[1] != x->dim[1]))
        return false;
    if (resident && !is_resident_list(resident, 0))
        return false;
    return !base || (base->n_dim == 2 && base->dim[1] == x->dim[2]);
}

bool mnp_residents_fit(const mn_graph *g, const mn_node *n) {
    if (n->op == MN_OP_MOE_COMBINE)
        return fits_combine(g, n);
    return fits_resident_linear(g, n);
}
