/* ops.c -- the table of operations. */
#include "ops.h"

/* clang-format off */
#define OCL_OPS(X)                                                                                 \
    X(embed) X(rms_norm) X(layer_norm) X(linear) X(rope) X(kv_store) X(attention) X(act) X(glu)    \
    X(add) X(mul) X(scale) X(softcap) X(gather_rows) X(sample) X(moe_route) X(moe_linear)          \
    X(moe_combine)
/* clang-format on */

#define DECLARE(name) extern const ocl_op ocl_op_##name;
OCL_OPS(DECLARE)
#define ROW(name) &ocl_op_##name,
const ocl_op *const ocl_ops[] = {OCL_OPS(ROW)};
const uint32_t ocl_n_ops = sizeof ocl_ops / sizeof *ocl_ops;

const ocl_op *ocl_op_of(uint32_t op) {
    for (uint32_t i = 0; i < ocl_n_ops; i++)
        if (ocl_ops[i]->op == op)
            return ocl_ops[i];
    return NULL;
}
