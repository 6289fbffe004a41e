/* ops.c -- the table of operations. */
#include "ops.h"

/* clang-format off */
#define CU_OPS(X)                                                                                  \
    X(embed)                                                                                       \
    X(rms_norm)                                                                                    \
    X(layer_norm)                                                                                  \
    X(linear)                                                                                      \
    X(rope)                                                                                        \
    X(kv_store)                                                                                    \
    X(attention)                                                                                   \
    X(act) X(glu) X(add) X(mul) X(scale) X(softcap) X(gather_rows) X(sample) X(moe_route)          \
        X(moe_linear) X(moe_combine)
/* clang-format on */

#define DECLARE(name) extern const cu_op cu_op_##name;
CU_OPS(DECLARE)
#define ROW(name) &cu_op_##name,
const cu_op *const cu_ops[] = {CU_OPS(ROW)};
const uint32_t cu_n_ops = sizeof cu_ops / sizeof *cu_ops;

const cu_op *cu_op_of(uint32_t op) {
    for (uint32_t i = 0; i < cu_n_ops; i++) {
        if (cu_ops[i]->op == op)
            return cu_ops[i];
    }
    return NULL;
}
