/* ops.c -- the table of operations. */
#include "ops.h"

#define DECLARE(name) extern const mng_op ocl_op_##name;
OCL_OPS(DECLARE)
#define ROW(name) &ocl_op_##name,
const mng_op *const ocl_ops[OCL_N_OPS] = {OCL_OPS(ROW)};
