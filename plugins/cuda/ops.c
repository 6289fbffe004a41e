/* ops.c -- the table of operations. */
#include "ops.h"

#define CU_DECLARE(name) extern const mng_op cu_op_##name;
CU_OPS(CU_DECLARE)
#define CU_ROW(name) &cu_op_##name,
const mng_op *const cu_ops[CU_N_OPS] = {CU_OPS(CU_ROW)};
