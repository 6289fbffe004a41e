/* numeric_states.c -- rule numeric.states: in class exact the rows of a sequence give the same bits
 * in one step and in several, and the state behind them is the same, also in a page that
 * memory_copy made. A host computes rows again that it has computed in other steps, from a
 * snapshot. And memory_layout refuses layers that contradict themselves. Each trial owns its plan;
 * cases live for one step. */
#include "numeric.h"
#include <string.h>

enum { ROWS = 7, STATE_COPY = 2 /* a page that no step of one sequence in place uses */ };

static const struct {
    uint32_t op;
    op_shape shape;
} trials[] = {
    {MN_OP_CONV_STATE, {.rows = ROWS, .k = 70, .n = 4, .n_seqs = 1, .variant = 1}},
    {MN_OP_SSM_SCAN,
     {.rows = ROWS, .n_head = 4, .n_head_kv = 2, .dim = 20, .n = 24, .n_seqs = 1, .variant = 1}},
    {MN_OP_GATED_DELTA,
     {.rows = ROWS,
      .n_head = 4,
      .n_head_kv = 2,
      .dim = 24,
      .dim_v = 40,
      .n_seqs = 1,
      .variant = 2}},
};

/* One operation on the plugin, and its results of one step: of all rows, and of the step behind. */
typedef struct {
    numeric *n;
    uint32_t op;
    op_shape shape;
    case_plan *plan;
    op_case *first; /* holds the weights */
    op_case *whole;
    op_case *behind;
} state_trial;

static op_case *state_case(const state_trial *t, uint32_t phase) {
    op_shape s = t->shape;
    s.phase = phase;
    return case_random(t->op, MN_F32, &s, 42 + t->op);
}

static int32_t *state_input(op_case *c, const char *name) {
    uint32_t i = 0;
    while (strcmp(c->t[i].name.ptr, name))
        i++;
    return c->data[i];
}

/* The case becomes a step of its rows [lo, lo + n); n rows or more, those behind are padding. */
static void cut_rows(op_case *c, int64_t lo, int64_t n, int64_t padded) {
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        const uint64_t row = c->bytes[i] / ROWS;
        uint8_t *x = c->data[i];
        if (c->t[i].role != MN_ROLE_INPUT || c->t[i].dim[0] != ~(int64_t)0)
            continue;
        memmove(x, x + (uint64_t)lo * row, (uint64_t)n * row);
        memset(x + (uint64_t)n * row, 0xff, (uint64_t)(ROWS - n) * row); // NaN, and -1
    }
    state_input(c, "seqs")[1] = (int32_t)n;
    if (lo)
        state_input(c, "states")[0] = state_input(c, "states")[1];
    c->value[0] = padded;
}

/* Runs a step; frees the case and returns NULL after an error, which ends the rule. */
static op_case *run_state(state_trial *t, op_case *c, const char *what) {
    mn_error err = check_error();
    mn_status st = MN_OUT_OF_MEMORY;
    if (c)
        st = case_step(t->plan, c, &err);
    if (!st)
        return c;
    check_status(t->n->c, st, &err, "%s, class exact: %s", case_op_name(t->op), what);
    case_free(c);
    return NULL;
}

/* Whether n rows of the output are those of the step of all rows from row lo on. */
static bool same_rows(const state_trial *t, const op_case *c, const op_case *want, int64_t lo,
                      int64_t n) {
    const uint32_t y = (uint32_t)c->operands[c->n[0].out_off];
    const uint64_t row = c->bytes[y] / ROWS;
    (void)t;
    return !memcmp(c->result[y], (const char *)want->result[y] + (uint64_t)lo * row,
                   (uint64_t)n * row);
}

/* The step behind the rows, from `page` or, 0, from where it lies: the bits of t->behind. */
static void compare_behind(state_trial *t, int32_t page, const char *what) {
    op_case *c = state_case(t, 2);
    if (c && page)
        state_input(c, "states")[0] = page;
    c = run_state(t, c, what);
    if (c && !same_rows(t, c, t->behind, 0, ROWS))
        check_fail(t->n->c,
                   "%s, class exact: rows behind %s are others than behind one step of %d rows, "
                   "expected the same bits",
                   case_op_name(t->op), what, ROWS);
    case_free(c);
}

/* The rows in steps of n, each padded to `padded`. */
static void compare_cut(state_trial *t, int64_t n, int64_t padded, const char *what) {
    for (int64_t lo = 0; lo < ROWS && !check_over(t->n->c); lo += n) {
        const int64_t some = ROWS - lo < n ? ROWS - lo : n;
        op_case *c = state_case(t, 0);
        if (c && !c->failed)
            cut_rows(c, lo, some, padded);
        c = run_state(t, c, what);
        if (c && !same_rows(t, c, t->whole, lo, some))
            check_fail(t->n->c,
                       "%s, class exact: row %lld of %s is another than of one step of %d rows, "
                       "expected the same bits",
                       case_op_name(t->op), (long long)lo, what, ROWS);
        case_free(c);
        t->n->n_cases++;
    }
    if (!check_over(t->n->c))
        compare_behind(t, 0, what);
}

/* A copy of the state stays when other rows go on from the page itself. */
static void compare_copy(state_trial *t) {
    const int32_t page = state_input(t->first, "states")[1];
    const mn_page_copy pair = {(uint32_t)page, STATE_COPY, 0, 0};
    mn_error err = check_error();
    const mn_status st = case_memory_copy(t->plan, 0, &pair, 1, &err);
    check_status(t->n->c, st, &err, "%s: memory_copy of a state", case_op_name(t->op));
    if (check_over(t->n->c))
        return;
    case_free(run_state(t, state_case(t, 1), "a step behind memory_copy"));
    if (!check_over(t->n->c))
        compare_behind(t, STATE_COPY, "memory_copy of the state");
}

static void refuse_layer(state_trial *t, const mn_memory_layer *wrong, mn_status want,
                         const char *what) {
    const mn_backend *be = t->n->here.be;
    mn_compile ask = case_question(t->first, MN_PRECISION_EXACT);
    mn_memory_params params = *ask.memory->params;
    const mn_memory_use use = {&params, NULL};
    mn_memory_layout l = {.size = sizeof l};
    params.layers = wrong;
    params.layer_stride = sizeof *wrong;
    ask.memory = &use;
    const mn_status st = be->memory_layout(t->n->here.dev, &ask, params.group, &l, NULL);
    CHECK(t->n->c, st == want,
          "memory_layout of a state of %s with %s: found status 0x%x, expected 0x%x",
          case_op_name(t->op), what, (unsigned)st, (unsigned)want);
}

static void refuse_layers(state_trial *t) {
    const mn_compile ask = case_question(t->first, MN_PRECISION_EXACT);
    mn_memory_layer l = *ask.memory->params->layers;
    l.n_state++;
    refuse_layer(t, &l, MN_INVALID, "one more number than its dims have");
    if (check_over(t->n->c))
        return;
    l.n_state--;
    l.op = 9999;
    refuse_layer(t, &l, MN_UNSUPPORTED, "operation 9999");
}

static void try_state(state_trial *t) {
    mn_error err = check_error();
    refuse_layers(t);
    if (check_over(t->n->c))
        return;
    const mn_status st = case_open(&t->n->here, t->first, MN_PRECISION_EXACT, &t->plan, &err);
    check_status(t->n->c, st, &err, "%s, class exact", case_op_name(t->op));
    if (st)
        return;
    t->whole = run_state(t, state_case(t, 0), "one step");
    if (t->whole)
        t->behind = run_state(t, state_case(t, 2), "the step behind it");
    if (!t->behind)
        return;
    compare_cut(t, 1, 1, "steps of one row");
    if (!check_over(t->n->c))
        compare_cut(t, 3, 4, "steps of three rows");
    if (!check_over(t->n->c))
        compare_copy(t);
}

static void try_states(numeric *n) {
    for (size_t i = 0; i < MN_COUNT(trials) && !check_over(n->c); i++) {
        state_trial t = {.n = n, .op = trials[i].op, .shape = trials[i].shape};
        check_doing(n->c, "%s ran", case_op_name(t.op));
        t.first = state_case(&t, 0);
        if (t.first && case_supported(&n->here, t.first))
            try_state(&t);
        case_close(t.plan);
        case_free(t.first);
        case_free(t.whole);
        case_free(t.behind);
    }
    if (!n->n_cases)
        check_skip(n->c, "the plugin supports no operation with a state%s",
                   check_no_text(&n->plugin));
}

void check_numeric_states(check *c) {
    numeric n;
    if (numeric_open(c, &n))
        try_states(&n);
    numeric_close(&n);
}
