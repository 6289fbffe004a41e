/* numeric.h -- the numeric rules: what they try. One sweep = one op with its weight types, shapes
 * and variants. */
#ifndef CHECK_NUMERIC_H
#define CHECK_NUMERIC_H
#include "case.h"
#include "check.h"

/* Weight types that a sweep goes through. */
#define SWEEP_NONE 0u   /* no weights: once */
#define SWEEP_VECTOR 1u /* F32, F16, BF16 */
#define SWEEP_MATRIX 2u /* every weight type */
typedef struct {
    uint32_t op, types;
    const op_shape *shapes; /* k counts blocks where k_blocks is set: "3" is 96 elements of Q8_0 */
    uint32_t n_shapes;
    uint32_t k_blocks;
    uint32_t n_variants; /* variants 0 .. n_variants - 1 of each shape */
} check_sweep;
extern const check_sweep check_sweeps[];
extern const uint32_t check_n_sweeps;

const char *check_class_name(uint32_t precision);
double check_class_limit(uint32_t precision); /* docs/ops.md: 1e-5, 5e-3, 3e-2 */

/* The plugin and the oracle, opened side by side in one process. */
typedef struct {
    check *c;
    check_host hosts[2];
    check_plugin plugin, oracle;
    case_on here, there;
    /* compared; weight types among them; claimed but unknown to the oracle */
    uint32_t n_cases, n_types, n_unproven;
} numeric;
/* 1, or 0 and the rule is over. numeric_close after it in either case. */
int numeric_open(check *c, numeric *n);
void numeric_close(numeric *n);
/* One op x type x shape in one class, with one type of cache. Fails the rule at the first
 * difference. */
void numeric_compare(numeric *n, uint32_t op, uint32_t dtype, const op_shape *s,
                     uint32_t precision);
#endif
