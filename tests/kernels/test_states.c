/* test_states.c -- CONV_STATE, SSM_SCAN and GATED_DELTA of the CPU plugins against the numbers of
 * state_vectors.h, with the rows of a sequence cut into steps in several ways. Argument: the
 * plugin. */
#include "harness.h"
#include "case_plan.h"
#include "state_vectors.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *plugin = "reference";

enum { N_PAGES = 4, MOST_ROWS = 16, MOST_Y = 512, MOST_STATE = 512 };

/* Rows [lo, lo + n) of a case as a step of one sequence in slot 1, which goes from page `from` to
 * page `to`. */
typedef struct {
    int64_t lo;
    int64_t n;
    int32_t from;
    int32_t to;
} cut;

/* One vector of state_vectors.h: what the three operations have in common. */
typedef struct {
    const char *name;
    int64_t n_rows;
    int64_t y_cols;
    int64_t n_state;
    const float *y;
    const float *state;
    op_case *(*make)(const void *vector, const cut *at);
    const void *vector;
} subject;

/* ---- cases ----------------------------------------------------------------------------------- */
/* An operand of a row each: rows of x from at->lo on come first, behind them NaN. */
static int32_t rows_of(op_case *c, int64_t T, int64_t n_rows, const cut *at, int64_t d1, int64_t d2,
                       const float *x, const char *name) {
    const int64_t dim[] = {T, d1, d2};
    const int64_t cols = d2 ? d1 * d2 : d1;
    float *values = malloc((size_t)(n_rows * cols) * sizeof *values);
    assert_non_null(values);
    memset(values, 0xff, (size_t)(n_rows * cols) * sizeof *values);
    memcpy(values, x + at->lo * cols, (size_t)(at->n * cols) * sizeof *values);
    const int32_t t = case_tensor(c, MN_ROLE_INPUT, MN_F32, d2 ? 3 : 2, dim, values, name);
    free(values);
    return t;
}

/* ROW_POS, SEQS, STATES and STATE, in this order in all three. */
static void sequence_of(op_case *c, int64_t T, const cut *at, int32_t in[4]) {
    const int32_t seqs[8] = {0, 0, 0, 0, 0, (int32_t)at->n, 1, 0}; // the first entry is unused
    const int32_t states[4] = {-1, -1, at->from, at->to};
    int32_t row_pos[MOST_ROWS];
    for (int64_t i = 0; i < MOST_ROWS; i++)
        row_pos[i] = i < at->n ? (int32_t)(at->lo + i) : -1;
    in[0] = case_vec(c, MN_ROLE_INPUT, MN_I32, T, row_pos, "row_pos");
    in[1] = case_mat(c, MN_ROLE_INPUT, MN_I32, 2, 4, seqs, "seqs");
    in[2] = case_mat(c, MN_ROLE_INPUT, MN_I32, 2, 2, states, "states");
    in[3] = case_kv(c, MN_F32, N_PAGES);
}

static op_case *begin(int64_t n_rows, const cut *at, int64_t *T) {
    op_case *c = case_new();
    assert_non_null(c);
    assert_true(n_rows <= MOST_ROWS);
    *T = case_symbol(c, "n_tokens", n_rows, MN_SYMBOL_SHAPE);
    c->value[0] = at->n;
    c->most[0] = n_rows;
    return c;
}

static op_case *conv_case(const void *vector, const cut *at) {
    const state_conv_case *v = vector;
    const uint64_t attr[] = {0, 0};
    int32_t in[7];
    int64_t T;
    op_case *c = begin(v->T, at, &T);
    in[0] = rows_of(c, T, v->T, at, v->C, 0, v->x, "x");
    in[1] = case_mat(c, MN_ROLE_WEIGHT, MN_F32, v->C, v->W, v->weight, "w");
    sequence_of(c, T, at, in + MN_CONV_STATE_ROW_POS);
    in[6] = v->bias ? case_vec(c, MN_ROLE_WEIGHT, MN_F32, v->C, v->bias, "b") : -1;
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, T, v->C, NULL, "y");
    case_node(c, MN_OP_CONV_STATE, in, 7, &y, 1, attr, 2);
    return c;
}

static op_case *scan_case(const void *vector, const cut *at) {
    const state_scan_case *v = vector;
    const uint64_t attr[] = {
        0, 0, (uint64_t)v->G, v->a_log, case_f64(v->dt_min), case_f64(v->dt_max)};
    int32_t in[9];
    int64_t T;
    op_case *c = begin(v->T, at, &T);
    in[0] = rows_of(c, T, v->T, at, v->H * v->P + 2 * v->G * v->N, 0, v->xbc, "xbc");
    in[1] = rows_of(c, T, v->T, at, v->H, 0, v->dt, "dt");
    in[2] = case_vec(c, MN_ROLE_WEIGHT, MN_F32, v->H, v->a, "a");
    in[3] = case_vec(c, MN_ROLE_WEIGHT, MN_F32, v->H, v->d, "d");
    in[4] = case_vec(c, MN_ROLE_WEIGHT, MN_F32, v->H, v->dt_bias, "dt_bias");
    sequence_of(c, T, at, in + MN_SSM_SCAN_ROW_POS);
    const int32_t y = case_cube(c, MN_ROLE_OUTPUT, MN_F32, T, v->H, v->P, NULL, "y");
    case_node(c, MN_OP_SSM_SCAN, in, 9, &y, 1, attr, 6);
    return c;
}

static op_case *delta_case(const void *vector, const cut *at) {
    const state_delta_case *v = vector;
    const uint64_t attr[] = {0,
                             0,
                             (uint64_t)v->Hk,
                             v->tiled,
                             v->a_log,
                             case_f64(v->eps),
                             case_f64(v->scale),
                             case_f64(v->beta_scale)};
    const int64_t n_bias = v->each ? v->Hv * v->Dk : v->Hv;
    int32_t in[9];
    int64_t T;
    op_case *c = begin(v->T, at, &T);
    in[0] = rows_of(c, T, v->T, at, 2 * v->Hk * v->Dk + v->Hv * v->Dv, 0, v->qkv, "qkv");
    in[1] = rows_of(c, T, v->T, at, v->Hv, v->each ? v->Dk : 0, v->gate, "gate");
    in[2] = rows_of(c, T, v->T, at, v->Hv, 0, v->beta, "beta");
    in[3] = case_vec(c, MN_ROLE_WEIGHT, MN_F32, v->Hv, v->a, "a");
    in[4] = case_vec(c, MN_ROLE_WEIGHT, MN_F32, n_bias, v->dt_bias, "dt_bias");
    sequence_of(c, T, at, in + MN_GATED_DELTA_ROW_POS);
    const int32_t y = case_cube(c, MN_ROLE_OUTPUT, MN_F32, T, v->Hv, v->Dv, NULL, "y");
    case_node(c, MN_OP_GATED_DELTA, in, 9, &y, 1, attr, 8);
    return c;
}

static subject conv_subject(const state_conv_case *v) {
    return (subject){
        .name = v->name,
        .n_rows = v->T,
        .y_cols = v->C,
        .n_state = v->C * (v->W - 1),
        .y = v->y,
        .state = v->state,
        .make = conv_case,
        .vector = v,
    };
}
static subject scan_subject(const state_scan_case *v) {
    const int64_t width = v->H * v->P;
    return (subject){
        .name = v->name,
        .n_rows = v->T,
        .y_cols = width,
        .n_state = width * v->N,
        .y = v->y,
        .state = v->state,
        .make = scan_case,
        .vector = v,
    };
}
static subject delta_subject(const state_delta_case *v) {
    const int64_t width = v->Hv * v->Dv;
    return (subject){
        .name = v->name,
        .n_rows = v->T,
        .y_cols = width,
        .n_state = width * v->Dk,
        .y = v->y,
        .state = v->state,
        .make = delta_case,
        .vector = v,
    };
}

/* ---- runs ------------------------------------------------------------------------------------ */
/* What the rows of a subject gave, and the page that the last step left. */
typedef struct {
    float y[MOST_Y];
    float state[MOST_STATE];
} outcome;

/* The subject's rows in steps of n; moves: each step leaves another page than it begins with. */
static void run_cut(h_plugin *p, const subject *s, int64_t n, bool moves, outcome *out) {
    const case_on on = {.be = p->be, .dev = p->dev, .queue = p->queue};
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    cut at = {0, s->n_rows, -1, 1};
    op_case *first = s->make(s->vector, &at);
    case_plan *plan = NULL;
    assert_true(s->n_rows * s->y_cols <= MOST_Y && s->n_state <= MOST_STATE);
    if (case_open(&on, first, MN_PRECISION_EXACT, &plan, &err))
        fail_msg("%s: %s", s->name, err.msg);
    for (at.lo = 0; at.lo < s->n_rows; at.lo += n) {
        at.n = s->n_rows - at.lo < n ? s->n_rows - at.lo : n;
        op_case *c = s->make(s->vector, &at);
        const uint32_t y = (uint32_t)c->operands[c->n[0].out_off];
        if (case_step(plan, c, &err))
            fail_msg("%s: %s", s->name, err.msg);
        assert_string_equal(case_breach(plan), "");
        memcpy(out->y + at.lo * s->y_cols, c->result[y], (size_t)(at.n * s->y_cols) * 4);
        const uint32_t pages = (uint32_t)c->kv[0].tensor;
        const uint64_t page_bytes = c->bytes[pages] / N_PAGES;
        memcpy(out->state, (char *)c->result[pages] + (uint64_t)at.to * page_bytes,
               (size_t)s->n_state * 4);
        at.from = at.to;
        if (moves)
            at.to = at.to % 3 + 1;
        case_free(c);
    }
    case_close(plan);
    case_free(first);
}

/* All cuts have the bits of one step, and its numbers are the vector's. */
static void check_subject(h_plugin *p, const subject *s) {
    static outcome whole;
    static outcome other;
    const size_t y_bytes = (size_t)(s->n_rows * s->y_cols) * 4;
    run_cut(p, s, s->n_rows, false, &whole);
    const double e = case_rel_l2(whole.y, s->y, s->n_rows * s->y_cols);
    if (!(e <= 1e-6))
        fail_msg("%s: relative L2 %g", s->name, e);
    if (!strcmp(plugin, "reference")) // its states lie as the vectors' do
        assert_true(case_rel_l2(whole.state, s->state, s->n_state) <= 1e-6);
    for (int64_t n = 1; n <= 3 && n <= s->n_rows; n++)
        for (int moves = 0; moves < 2; moves++) {
            run_cut(p, s, n, moves, &other);
            if (memcmp(whole.y, other.y, y_bytes))
                fail_msg("%s: steps of %d rows compute others than one step", s->name, (int)n);
            assert_memory_equal(whole.state, other.state, (size_t)s->n_state * 4);
        }
}

static h_plugin tested;
static int open_plugin(void **state) {
    (void)state;
    return h_open(&tested, plugin) ? 0 : -1;
}
static int close_plugin(void **state) {
    (void)state;
    h_close(&tested);
    return h_host_live() ? -1 : 0;
}

#define CHECK_EACH(kind)                                                                           \
    static void kind##_vectors(void **state) {                                                     \
        (void)state;                                                                               \
        const size_t n = sizeof state_##kind##_cases / sizeof *state_##kind##_cases;               \
        for (size_t i = 0; i < n; i++) {                                                           \
            const subject s = kind##_subject(&state_##kind##_cases[i]);                            \
            check_subject(&tested, &s);                                                            \
        }                                                                                          \
    }
CHECK_EACH(conv)
CHECK_EACH(scan)
CHECK_EACH(delta)

/* ---- a step of several sequences ------------------------------------------------------------- */
enum { N_CHANNEL = 3, N_TAP = 3, PAGE = (N_TAP - 1) * N_CHANNEL, MIXED_PAGES = 6, MIXED_ROWS = 8 };

/* Rows 0 and 2 go on in place from page 3, rows 3 and 6 begin and leave page 5, and row 7 is all
 * that a sequence has, and padding: its page 1 is carried to page 2. */
static op_case *mixed_case(const float *x, int32_t *y) {
    const float weight[N_CHANNEL * N_TAP] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int32_t row_pos[MIXED_ROWS] = {9, -1, 10, 0, -1, -1, 1, -1};
    const int32_t seqs[16] = {3, 4, 0, 0, 0, 3, 2, 0, 7, 1, 1, 0, 0, 0, 0, 0};
    const int32_t states[6] = {-1, 5, 1, 2, 3, 3};
    const uint64_t attr[] = {0, 0};
    op_case *c = case_new();
    int32_t in[6];
    assert_non_null(c);
    const int64_t T = case_symbol(c, "n_tokens", MIXED_ROWS, MN_SYMBOL_SHAPE);
    in[0] = case_mat(c, MN_ROLE_INPUT, MN_F32, T, N_CHANNEL, x, "x");
    in[1] = case_mat(c, MN_ROLE_WEIGHT, MN_F32, N_CHANNEL, N_TAP, weight, "w");
    in[2] = case_vec(c, MN_ROLE_INPUT, MN_I32, T, row_pos, "row_pos");
    in[3] = case_mat(c, MN_ROLE_INPUT, MN_I32, 4, 4, seqs, "seqs");
    in[4] = case_mat(c, MN_ROLE_INPUT, MN_I32, 3, 2, states, "states");
    in[5] = case_kv(c, MN_F32, MIXED_PAGES);
    *y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, T, N_CHANNEL, NULL, "y");
    case_node(c, MN_OP_CONV_STATE, in, 6, y, 1, attr, 2);
    return c;
}

static void mixed_sequences(void **state) {
    const case_on on = {.be = tested.be, .dev = tested.dev, .queue = tested.queue};
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    float x[MIXED_ROWS][N_CHANNEL];
    float before[MIXED_PAGES][PAGE];
    case_plan *plan = NULL;
    int32_t y_tensor;
    (void)state;
    for (int t = 0; t < MIXED_ROWS; t++) {
        const bool padding = t == 1 || t == 4 || t == 5 || t == 7;
        for (int i = 0; i < N_CHANNEL; i++) {
            x[t][i] = (float)(10 * t + i);
            if (padding)
                x[t][i] = NAN;
        }
    }
    op_case *c = mixed_case(x[0], &y_tensor);
    assert_int_equal(case_open(&on, c, MN_PRECISION_EXACT, &plan, &err), MN_OK);
    const int32_t pages = c->kv[0].tensor;
    const uint64_t page_bytes = c->bytes[pages] / MIXED_PAGES;
    for (int page = 0; page < MIXED_PAGES; page++) {
        for (int i = 0; i < PAGE; i++)
            before[page][i] = (float)(100 * page + i);
        assert_int_equal(on.be->write(on.queue, plan->buffer[pages], (uint64_t)page * page_bytes,
                                      before[page], sizeof before[page], &err),
                         MN_OK);
    }
    assert_int_equal(case_step(plan, c, &err), MN_OK);
    const float(*y)[N_CHANNEL] = c->result[y_tensor];
    const char *after = c->result[pages];
    for (int i = 0; i < N_CHANNEL; i++) {
        const float old = before[3][i];
        const float newer = before[3][N_CHANNEL + i];
        assert_true(y[0][i] == old + newer + x[0][i]);
        assert_true(y[2][i] == newer + x[0][i] + x[2][i]);
        assert_true(y[3][i] == x[3][i]);
        assert_true(y[6][i] == x[3][i] + x[6][i]);
        before[3][i] = x[0][i];
        before[3][N_CHANNEL + i] = x[2][i];
        before[5][i] = x[3][i];
        before[5][N_CHANNEL + i] = x[6][i];
    }
    memcpy(before[2], before[1], sizeof before[2]);
    for (int page = 0; page < MIXED_PAGES; page++)
        assert_memory_equal(after + (uint64_t)page * page_bytes, before[page], sizeof before[page]);
    case_close(plan);
    case_free(c);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_vectors),
        cmocka_unit_test(scan_vectors),
        cmocka_unit_test(delta_vectors),
        cmocka_unit_test(mixed_sequences),
    };
    if (argc > 1)
        plugin = argv[1];
    return cmocka_run_group_tests(tests, open_plugin, close_plugin);
}
