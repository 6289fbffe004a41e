/* numeric_large.c -- rule numeric.large: one case each of the sizes that models and servers have,
 * in one variant and class exact: sweeps (numeric_sweeps.c) stay small to try much. */
#include "numeric.h"

enum { NO_TYPE = MN_DTYPE_NONE };

static const struct {
    uint32_t op;
    uint32_t dtype[2]; /* of weights; the second where the first is not claimed */
    op_shape shape;
} cases[] = {
    {MN_OP_LINEAR, {MN_Q8_0, MN_F16}, {.rows = 2, .k = 4096, .n = 8192}},
    {MN_OP_LINEAR, {MN_F32, NO_TYPE}, {.rows = 321, .k = 64, .n = 40}},
    {MN_OP_RMS_NORM, {MN_F32, NO_TYPE}, {.rows = 321, .k = 4096}},
    {MN_OP_ATTENTION,
     {NO_TYPE, NO_TYPE},
     {.rows = 5, .n_head = 36, .n_head_kv = 4, .dim = 64, .past = 1100}},
    {MN_OP_ATTENTION,
     {NO_TYPE, NO_TYPE},
     {.rows = 66, .n_head = 2, .n_head_kv = 1, .dim = 32, .past = 20, .n_seqs = 66}},
    {MN_OP_SAMPLE, {NO_TYPE, NO_TYPE}, {.rows = 5, .n = 5000}},
};

static void large_cases(numeric *n) {
    check *c = n->c;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        op_shape s = cases[i].shape;
        const uint32_t before = n->n_cases;
        if (cases[i].op == MN_OP_ATTENTION)
            s.kv_dtype = MN_F32;
        for (int k = 0; k < 2 && n->n_cases == before && !check_over(c); k++)
            if (!k || cases[i].dtype[k] != NO_TYPE)
                numeric_compare(n, cases[i].op, cases[i].dtype[k], &s, MN_PRECISION_EXACT);
    }
    if (!n->n_cases)
        check_skip(c, "the plugin supports none of these operations%s", check_no_text(&n->plugin));
    check_found(c, "%u steps", n->n_cases);
}

void check_numeric_large(check *c) {
    numeric n;
    if (numeric_open(c, &n))
        large_cases(&n);
    numeric_close(&n);
}
