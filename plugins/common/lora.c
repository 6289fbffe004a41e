/* lora.c -- whether the operands of a LORA fit together. */
#include "common.h"

/* Elements of a row: the dims behind the first; -1: one of them is a symbol. */
static int64_t lora_width(const mn_tensor *t) {
    int64_t n = 1;
    for (uint32_t i = 1; i < t->n_dim; i++) {
        if (t->dim[i] < 1 || __builtin_mul_overflow(n, t->dim[i], &n))
            return -1;
    }
    return n;
}

static bool lora_is_float(const mn_tensor *t) {
    return t->dtype.id == MN_F32;
}

/* [N_A, rows, cols] in F32 or F16, of known sizes. */
static bool lora_is_state(const mn_tensor *t) {
    const bool typed = t->dtype.id == MN_F32 || t->dtype.id == MN_F16;
    if (t->n_dim != 3 || !typed)
        return false;
    return t->dim[0] > 0 && t->dim[1] > 0 && t->dim[2] > 0;
}

bool mnp_lora_fits(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = mnp_in_tensor(g, n, MN_LORA_X);
    const mn_tensor *y = mnp_in_tensor(g, n, MN_LORA_Y);
    const mn_tensor *a = mnp_in_tensor(g, n, MN_LORA_A);
    const mn_tensor *b = mnp_in_tensor(g, n, MN_LORA_B);
    const mn_tensor *adapter = mnp_in_tensor(g, n, MN_LORA_ADAPTER);
    const mn_tensor *z = mnp_out_tensor(g, n, MN_LORA_OUT_Z);
    if (!x || !y || !a || !b || !adapter || !z || n->n_out != 1)
        return false;
    if (!lora_is_state(a) || !lora_is_state(b) || adapter->n_dim != 1)
        return false;
    if (a->dim[0] != b->dim[0] || a->dim[1] != b->dim[2] || a->dtype.id != b->dtype.id)
        return false;
    if (x->n_dim < 2 || y->n_dim < 2 || z->n_dim < 2)
        return false;
    if (!lora_is_float(x) || !lora_is_float(y) || !lora_is_float(z))
        return false;
    if (lora_width(x) != a->dim[2] || lora_width(y) != b->dim[1] || lora_width(z) != b->dim[1])
        return false;
    return x->dim[0] == y->dim[0] && y->dim[0] == z->dim[0] && adapter->dim[0] == x->dim[0];
}
