/* numeric_parts.c -- group numeric: a sum over experts that two devices share. What MOE_COMBINE
 * makes of the experts that are there, behind BASE, is held against one plain sum whose first
 * term is BASE and whose other terms are theirs: the same numbers added in the same order. */
#include "numeric.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, CHOSEN = 4, WIDTH = 133, EXPERTS = 7 };

typedef struct {
    float x[ROWS][CHOSEN][WIDTH];
    float weights[ROWS][CHOSEN];
    float base[ROWS][WIDTH];
    int32_t experts[ROWS][CHOSEN];
    int32_t resident[EXPERTS];
} parts;

static void fill_parts(parts *p) {
    uint64_t seed = 11;
    for (int e = 0; e < EXPERTS; e++)
        p->resident[e] = e % 3 != 1;
    for (int t = 0; t < ROWS; t++) {
        for (int i = 0; i < WIDTH; i++)
            p->base[t][i] = case_rand(&seed);
        for (int j = 0; j < CHOSEN; j++) {
            p->experts[t][j] = (t + 2 * j) % EXPERTS;
            p->weights[t][j] = case_rand(&seed);
            const bool there = p->resident[p->experts[t][j]];
            for (int i = 0; i < WIDTH; i++)
                p->x[t][j][i] = there ? case_rand(&seed) : NAN;
        }
    }
}

/* With EXPERTS and RESIDENT, and BASE or without. */
static op_case *divided_sum(const parts *p, bool has_base) {
    op_case *c = case_new();
    if (!c)
        return NULL;
    const int64_t T = case_symbol(c, "n_tokens", ROWS, MN_SYMBOL_SHAPE);
    int32_t in[5] = {0, 0, 0, 0, -1};
    in[0] = case_cube(c, MN_ROLE_INPUT, MN_F32, T, CHOSEN, WIDTH, p->x, "x");
    in[1] = case_mat(c, MN_ROLE_INPUT, MN_F32, T, CHOSEN, p->weights, "weights");
    in[2] = case_mat(c, MN_ROLE_INPUT, MN_I32, T, CHOSEN, p->experts, "experts");
    in[3] = case_vec(c, MN_ROLE_INPUT, MN_I32, EXPERTS, p->resident, "resident");
    if (has_base)
        in[4] = case_mat(c, MN_ROLE_INPUT, MN_F32, T, WIDTH, p->base, "base");
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, T, WIDTH, NULL, "y");
    case_node(c, MN_OP_MOE_COMBINE, in, has_base ? 5 : 4, &y, 1, NULL, 0);
    return c;
}

/* Of one term more: the first is BASE, with a weight of 1; those of absent experts are zeros. */
static op_case *plain_sum(const parts *p, bool has_base) {
    static float x[ROWS][CHOSEN + 1][WIDTH];
    static float weights[ROWS][CHOSEN + 1];
    op_case *c = case_new();
    if (!c)
        return NULL;
    memset(x, 0, sizeof x);
    memset(weights, 0, sizeof weights);
    for (int t = 0; t < ROWS; t++) {
        weights[t][0] = has_base ? 1 : 0;
        if (has_base)
            memcpy(x[t][0], p->base[t], sizeof p->base[t]);
        for (int j = 0; j < CHOSEN; j++) {
            if (!p->resident[p->experts[t][j]])
                continue;
            weights[t][j + 1] = p->weights[t][j];
            memcpy(x[t][j + 1], p->x[t][j], sizeof p->x[t][j]);
        }
    }
    const int64_t T = case_symbol(c, "n_tokens", ROWS, MN_SYMBOL_SHAPE);
    const int32_t in[] = {
        case_cube(c, MN_ROLE_INPUT, MN_F32, T, CHOSEN + 1, WIDTH, x, "x"),
        case_mat(c, MN_ROLE_INPUT, MN_F32, T, CHOSEN + 1, weights, "weights"),
    };
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, T, WIDTH, NULL, "y");
    case_node(c, MN_OP_MOE_COMBINE, in, 2, &y, 1, NULL, 0);
    return c;
}

/* a: divided, b: plain. */
static void compare_sums(numeric *n, op_case *a, op_case *b, const char *what) {
    check *c = n->c;
    mn_error err = check_error();
    const float *got = a->result[a->g.n_tensors - 1];
    const float *want = b->result[b->g.n_tensors - 1];
    check_doing(c, "MOE_COMBINE %s ran", what);
    mn_status st = case_run(&n->here, a, MN_PRECISION_EXACT, &err);
    if (!st)
        st = case_run(&n->here, b, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "MOE_COMBINE %s", what);
    for (int i = 0; i < ROWS * WIDTH; i++)
        CHECK(
            c, got[i] == want[i],
            "MOE_COMBINE %s: found %.9g for element %d, expected %.9g, the bits of one sum in the "
            "order of EXPERTS that begins with BASE",
            what, (double)got[i], i, (double)want[i]);
    n->n_cases++;
}

static void compare_parts(numeric *n, const parts *p, bool has_base) {
    op_case *a = divided_sum(p, has_base);
    op_case *b = plain_sum(p, has_base);
    const bool made = a && b && !a->failed && !b->failed;
    if (made && case_supported(&n->here, a) && case_supported(&n->here, b))
        compare_sums(n, a, b, has_base ? "with RESIDENT and BASE" : "with RESIDENT");
    case_free(a);
    case_free(b);
}

void check_numeric_parts(check *c) {
    static parts p;
    numeric n;
    if (numeric_open(c, &n)) {
        fill_parts(&p);
        compare_parts(&n, &p, false);
        if (!check_over(c))
            compare_parts(&n, &p, true);
        if (!n.n_cases)
            check_skip(c, "the plugin does not support MOE_COMBINE with RESIDENT");
    }
    numeric_close(&n);
}
