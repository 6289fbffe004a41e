/* numeric.h -- the numeric rules: a plugin compared with the plugin `reference`, the oracle. A
 * sweep is one op with the weight types, shapes and variants that it is tried with. */
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
    const op_shape *shapes;
    uint32_t n_shapes;
    uint32_t k_blocks;   /* 1: k of the shapes counts blocks of the weight type: 3 is 96 of Q8_0 */
    uint32_t n_variants; /* variants 0 .. n_variants - 1 of each shape */
} check_sweep;
extern const check_sweep check_sweeps[];
extern const uint32_t check_n_sweeps;

double check_class_limit(uint32_t precision); /* relative L2; docs/ops.md: 1e-5, 5e-3, 3e-2 */

/* What the oracle computed in a step of some shape: the same for every class of the plugin. */
typedef struct {
    uint32_t op, dtype, grain;
    op_shape shape;
    op_case *results;
} numeric_answer;

/* The plugin and the oracle, opened side by side in one process. */
typedef struct {
    check *c;
    check_host hosts[2];
    check_plugin plugin, oracle;
    case_on here, there;
    numeric_answer answers[32]; /* the latest, in a ring */
    uint32_t n_answers;         /* all that were made */
    uint32_t n_cases;           /* steps compared */
    uint32_t n_unproven;        /* trials that the plugin claims and the oracle cannot run */
} numeric;
/* 1, or 0 and the rule is over. numeric_close after it in either case. */
int numeric_open(check *c, numeric *n);
void numeric_close(numeric *n);
/* n rows, at most max, rounded up as the host does it: to the next power of two below the grain, to
 * a multiple of the grain from there on; grain 1: not at all, 0: always to a power of two. */
int64_t numeric_bucket(int64_t n, int64_t max, uint32_t grain);
/* States in the form of mn.kv/1, for the rule numeric.kv_moves (numeric_state_moves.c). */
void numeric_state_moves(numeric *n);
/* One trial: op, weight type, shape and class, with one type of cache. Fails the rule at the first
 * difference. Nothing is compared where the plugin does not claim it. */
void numeric_compare(numeric *n, uint32_t op, uint32_t dtype, const op_shape *s,
                     uint32_t precision);
#endif
