/* numeric_sweeps.c -- the shapes that numeric_rules.c runs each op with: the smallest, odd ones,
 * and some that are larger than usual tiles of kernels; and the tolerance of each precision
 * class. Constant. */
#include "numeric.h"

#define ROWS 37 /* the most rows of a step: not a bucket */

/* clang-format off */
static const op_shape embed[] = {
    {.rows = ROWS, .k = 1, .n = 53, .past = 0},
    {.rows = ROWS, .k = 7, .n = 131, .past = 9}};
static const op_shape lookup[] = {
    {.rows = ROWS, .k = 1, .n = 53},
    {.rows = ROWS, .k = 3, .n = 7}};
static const op_shape lora[] = {
    {.rows = ROWS, .k = 1, .n = 5, .n_used = 1},
    {.rows = ROWS, .k = 33, .n = 129, .n_used = 3},
    {.rows = ROWS, .k = 330, .n = 17, .n_used = 16},
    {.rows = 70, .k = 64, .n = 96, .n_used = 40}};
static const op_shape norms[] = {
    {.rows = ROWS, .k = 5},
    {.rows = ROWS, .k = 77, .n_head = 3},
    {.rows = ROWS, .k = 1000}};
static const op_shape linear[] = {
    {.rows = ROWS, .k = 1, .n = 5},
    {.rows = ROWS, .k = 3, .n = 37},
    {.rows = ROWS, .k = 33, .n = 129},
    {.rows = ROWS, .k = 331, .n = 17}};
static const op_shape rope[] = {
    {.rows = ROWS, .n_head = 3, .dim = 64, .past = 5000},
    {.rows = ROWS, .n_head = 1, .dim = 40, .n_rot = 12},
    {.rows = ROWS, .n_head = 8, .dim = 128, .n_rot = 128, .past = 100000}};
static const op_shape attention[] = {
    {.rows = ROWS, .n_head = 8, .n_head_kv = 2, .dim = 64},
    {.rows = ROWS, .n_head = 6, .n_head_kv = 1, .dim = 32, .past = 300},
    {.rows = ROWS, .n_head = 4, .n_head_kv = 4, .dim = 20, .dim_v = 12, .past = 70},
    {.rows = ROWS, .n_head = 8, .n_head_kv = 4, .dim = 80, .past = 100, .n_seqs = 7},
    {.rows = 5, .n_head = 2, .n_head_kv = 1, .dim = 128, .past = 63, .n_seqs = 5}};
static const op_shape store[] = {
    {.rows = ROWS, .n_head = 2, .n_head_kv = 2, .dim = 16, .dim_v = 24, .past = 130, .n_seqs = 3}};
static const op_shape plain[] = {
    {.rows = ROWS, .k = 1},
    {.rows = ROWS, .k = 257},
    {.rows = ROWS, .k = 1031}};
static const op_shape gather[] = {{.rows = ROWS, .k = 3}, {.rows = ROWS, .k = 515}};
static const op_shape draws[] = {{.rows = ROWS, .n = 7}, {.rows = ROWS, .n = 1999}};
static const op_shape route[] = {
    {.rows = ROWS, .n_expert = 8, .n_used = 2},
    {.rows = ROWS, .n_expert = 5, .n_used = 5},
    {.rows = ROWS, .n_expert = 128, .n_used = 8}};
static const op_shape experts[] = {
    {.rows = ROWS, .n_expert = 3, .n_used = 1, .k = 1, .n = 5},
    {.rows = ROWS, .n_expert = 8, .n_used = 2, .k = 5, .n = 33}};
static const op_shape combine[] = {
    {.rows = ROWS, .n_expert = 3, .n_used = 2, .k = 77},
    {.rows = ROWS, .n_expert = 16, .n_used = 8, .k = 256}};
static const op_shape conv[] = {
    {.rows = ROWS, .k = 5, .n = 4, .n_seqs = 7},
    {.rows = ROWS, .k = 131, .n = 2, .n_seqs = 2},
    {.rows = 70, .k = 67, .n = 3, .n_seqs = 1}};
static const op_shape scan[] = {
    {.rows = ROWS, .n_head = 4, .n_head_kv = 2, .dim = 5, .n = 7, .n_seqs = 7},
    {.rows = ROWS, .n_head = 3, .n_head_kv = 1, .dim = 64, .n = 33, .n_seqs = 2},
    {.rows = 70, .n_head = 2, .n_head_kv = 1, .dim = 24, .n = 16, .n_seqs = 1}};
static const op_shape delta[] = {
    {.rows = ROWS, .n_head = 6, .n_head_kv = 2, .dim = 5, .dim_v = 7, .n_seqs = 7},
    {.rows = ROWS, .n_head = 2, .n_head_kv = 1, .dim = 64, .dim_v = 48, .n_seqs = 2},
    {.rows = 70, .n_head = 2, .n_head_kv = 2, .dim = 32, .dim_v = 24, .n_seqs = 1}};

const check_sweep check_sweeps[] = {
    {MN_OP_EMBED, SWEEP_MATRIX, embed, MN_COUNT(embed), 1, 4},
    {MN_OP_RMS_NORM, SWEEP_VECTOR, norms, MN_COUNT(norms), 0, 3},
    {MN_OP_LAYER_NORM, SWEEP_VECTOR, norms, MN_COUNT(norms), 0, 2},
    {MN_OP_LINEAR, SWEEP_MATRIX, linear, MN_COUNT(linear), 1, 5},
    {MN_OP_ROPE, SWEEP_NONE, rope, MN_COUNT(rope), 0, 8},
    {MN_OP_KV_STORE, SWEEP_NONE, store, MN_COUNT(store), 0, 1},
    {MN_OP_ATTENTION, SWEEP_NONE, attention, MN_COUNT(attention), 0, 4096},
    {MN_OP_ACT, SWEEP_NONE, plain, MN_COUNT(plain), 0, 11},
    {MN_OP_GLU, SWEEP_NONE, plain, MN_COUNT(plain), 0, 14},
    {MN_OP_ADD, SWEEP_NONE, plain, MN_COUNT(plain), 0, 1},
    {MN_OP_MUL, SWEEP_NONE, plain, MN_COUNT(plain), 0, 1},
    {MN_OP_SCALE, SWEEP_NONE, plain, MN_COUNT(plain), 0, 1},
    {MN_OP_SOFTCAP, SWEEP_NONE, plain, MN_COUNT(plain), 0, 1},
    {MN_OP_GATHER_ROWS, SWEEP_NONE, gather, MN_COUNT(gather), 0, 1},
    {MN_OP_SAMPLE, SWEEP_NONE, draws, MN_COUNT(draws), 0, 32},
    {MN_OP_MOE_ROUTE, SWEEP_NONE, route, MN_COUNT(route), 0, 32},
    {MN_OP_MOE_LINEAR, SWEEP_MATRIX, experts, MN_COUNT(experts), 1, 16},
    {MN_OP_MOE_COMBINE, SWEEP_NONE, combine, MN_COUNT(combine), 0, 8},
    {MN_OP_CONV_STATE, SWEEP_VECTOR, conv, MN_COUNT(conv), 0, 2},
    {MN_OP_SSM_SCAN, SWEEP_VECTOR, scan, MN_COUNT(scan), 0, 8},
    {MN_OP_GATED_DELTA, SWEEP_VECTOR, delta, MN_COUNT(delta), 0, 16},
    {MN_OP_LOOKUP, SWEEP_MATRIX, lookup, MN_COUNT(lookup), 1, 2},
    {MN_OP_LORA, SWEEP_NONE, lora, MN_COUNT(lora), 0, 4},
};
/* clang-format on */
const uint32_t check_n_sweeps = MN_COUNT(check_sweeps);

const char *check_class_name(uint32_t precision) {
    static const char *const names[] = {"auto", "exact", "a16", "a8"};
    if (precision < MN_COUNT(names))
        return names[precision];
    return "?";
}

double check_class_limit(uint32_t precision) {
    if (precision == MN_PRECISION_EXACT)
        return 1e-5;
    if (precision == MN_PRECISION_A16)
        return 5e-3;
    return 3e-2;
}
