/* case_state.c -- random cases of CONV_STATE, SSM_SCAN and GATED_DELTA.
 *
 * What a state holds shows in the rows that go on from it, so a case is one of three steps
 * (op_shape.phase) of the same sequences: the first begins with zeros and leaves page A of each
 * sequence, the second goes on from A in place, from A to another page, or begins anew, by turns,
 * and the third goes on from what the second left. Numbers that the steps share, the weights, are
 * drawn before those that they do not. Used by case_ops.c through case_gen.h; state_plan owns its
 * arrays, the case has copies. */
#include "case_gen.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES_OF_SEQUENCE = 3, WAYS = 3 };

/* Sequence q has the rows [q * per, (q + 1) * per) of the step, those of them that are live.
 * Several nodes may share a plan; layer: of the next node. */
typedef struct {
    int64_t n_seqs;
    int64_t n_slots; /* one more: its row of STATES is [-1, -1] */
    int64_t per;
    int32_t *row_pos; /* [rows] */
    int32_t *seqs;    /* [n_seqs, 4] */
    int32_t *states;  /* [n_slots, 2] */
    uint64_t layer;
    bool has_operands;
    int32_t operands[4]; /* ROW_POS, SEQS, STATES, STATE */
} state_plan;

/* Page i of sequence q; page 0 is nobody's. */
static int32_t state_page(const state_plan *a, int64_t q, int64_t i) {
    return (int32_t)(1 + (PAGES_OF_SEQUENCE - 1 - i) * a->n_seqs + q);
}

/* The pages that sequence q begins a phase with and leaves. */
static void pages_of_phase(const state_plan *a, int64_t q, uint32_t phase, int32_t page[2]) {
    const int64_t way = q % WAYS; /* 0: in place, 1: to another page, 2: anew */
    const int32_t first = state_page(a, q, 0);
    int32_t left = first;
    if (way != 0) {
        left = state_page(a, q, 1);
    }
    page[0] = -1;
    page[1] = first;
    if (phase == 0)
        return;
    page[1] = left;
    if (phase == 1 && way != 2) {
        page[0] = first;
    }
    if (phase == 1)
        return;
    page[0] = left;
    page[1] = state_page(a, q, 2);
}

/* With holes, slots and entries of SEQS are in reverse order, and the rows of sequence 1 of three
 * or more are all padding in the second phase: its state is carried as it is. */
static void plan_states(casegen *g, state_plan *a, int64_t q) {
    const int64_t spoiled = casegen_spoiled_row(g);
    const int64_t lo = q * a->per;
    const uint32_t phase = g->s->phase;
    const bool several = g->holes && a->n_seqs > 2;
    const bool done = several && q == 1 && phase == 1;
    int64_t hi = lo + a->per;
    int64_t slot = q;
    if (g->live < hi) {
        hi = g->live;
    }
    if (lo >= hi)
        return;
    if (g->holes) {
        slot = a->n_seqs - 1 - q;
    }
    bool is_spoiled = phase > 0 && spoiled >= lo && spoiled < hi;
    int32_t *seq = a->seqs + 4 * slot;
    seq[0] = (int32_t)lo;
    seq[1] = (int32_t)(hi - lo);
    seq[2] = (int32_t)slot;
    pages_of_phase(a, q, phase, a->states + 2 * slot);
    for (int64_t t = lo; t < hi; t++) {
        const bool padding = done || casegen_is_hole(g, t);
        is_spoiled = is_spoiled || t == spoiled;
        if (!padding) {
            a->row_pos[t] = (int32_t)((int64_t)phase * a->per + t - lo);
        }
        g->c->dead[0][t] = casegen_row_mark(g, padding, is_spoiled);
    }
}

/* false = out of memory. state_plan_free after it in either case. */
static bool state_plan_make(casegen *g, state_plan *a) {
    const op_shape *s = g->s;
    *a = (state_plan){.n_seqs = s->n_seqs ? s->n_seqs : 1};
    a->n_slots = a->n_seqs + 1;
    a->per = (s->rows + a->n_seqs - 1) / a->n_seqs;
    casegen_mark_dead(g);
    a->row_pos = casegen_zeroed(g, s->rows + 4 * a->n_seqs + 2 * a->n_slots, sizeof *a->row_pos);
    if (!a->row_pos || !g->c->dead[0])
        return false;
    a->seqs = a->row_pos + s->rows;
    a->states = a->seqs + 4 * a->n_seqs;
    for (int64_t t = 0; t < s->rows; t++) {
        a->row_pos[t] = -1;
    }
    for (int64_t i = 0; i < 2 * a->n_slots; i++) {
        a->states[i] = -1;
    }
    for (int64_t q = 0; q < a->n_seqs; q++) {
        plan_states(g, a, q);
    }
    return true;
}

static void state_plan_free(state_plan *a) {
    free(a->row_pos);
}

/* ---- operands -------------------------------------------------------------------------------- */
/* n numbers from [lo, hi) as F32, or as F16 or BF16 if that is dtype. */
static int32_t state_weight(casegen *g, uint32_t dtype, int64_t n, float lo, float hi,
                            const char *name) {
    const uint32_t type = dtype == MN_F16 || dtype == MN_BF16 ? dtype : MN_F32;
    float *x = casegen_zeroed(g, n, sizeof *x);
    void *w = casegen_zeroed(g, n, sizeof *x);
    int32_t t = 0;
    for (int64_t i = 0; x && i < n; i++) {
        x[i] = lo + (hi - lo) * (case_rand(g->seed) + 1) / 2;
    }
    if (x && w) {
        case_quantise(type, x, n, w);
        t = case_vec(g->c, MN_ROLE_WEIGHT, type, n, w, name);
    }
    free(x);
    free(w);
    return t;
}

/* Rates of a decay: of A_LOG logarithms, else below 0, so that no state grows. */
static int32_t rate_weight(casegen *g, uint32_t dtype, int64_t n, bool is_log) {
    return is_log ? state_weight(g, dtype, n, -3, 1, "a") : state_weight(g, dtype, n, -2, 0, "a");
}

/* A float input whose numbers are multiplied by `by`. */
static int32_t small_input(casegen *g, int64_t d1, int64_t d2, float by, const char *name) {
    const int32_t t = casegen_float_input(g, d1, d2, name);
    float *x = g->c->data[t];
    for (uint64_t i = 0; !g->c->failed && i < g->c->bytes[t] / sizeof *x; i++) {
        x[i] *= by;
    }
    return t;
}

/* ROW_POS, SEQS, STATES and STATE, which lie behind one another; made for the first node. */
static void sequence_operands(casegen *g, state_plan *a, int32_t in[4]) {
    op_case *c = g->c;
    int32_t *own = a->operands;
    if (!a->has_operands) {
        const uint32_t n_pages = (uint32_t)(PAGES_OF_SEQUENCE * a->n_seqs + 1);
        const int64_t Q = case_symbol(c, "n_seqs", a->n_seqs, MN_SYMBOL_SHAPE);
        own[0] = casegen_int_input(g, a->row_pos, "row_pos");
        own[1] = case_mat(c, MN_ROLE_INPUT, MN_I32, Q, 4, a->seqs, "seqs");
        own[2] = case_mat(c, MN_ROLE_INPUT, MN_I32, a->n_slots, 2, a->states, "states");
        own[3] = case_kv_of(c, MN_DTYPE_NONE, n_pages, g->s->kv_group);
        a->has_operands = true;
    }
    memcpy(in, own, sizeof a->operands);
}

/* What rows hold differs from phase to phase. */
static void next_numbers(casegen *g) {
    *g->seed += g->s->phase * UINT64_C(0x9e3779b97f4a7c15);
}

/* k: channels, n: the width. variant bit 0: a bias. */
static void conv_node(casegen *g, state_plan *a, uint32_t dtype) {
    const op_shape *s = g->s;
    const bool has_bias = s->variant & 1;
    const uint64_t attr[] = {a->layer, s->kv_group};
    int32_t in[7];
    in[1] = casegen_matrix(g, dtype, s->k, s->n, "w");
    in[6] = has_bias ? casegen_vector(g, dtype, s->k, "b") : -1;
    next_numbers(g);
    in[0] = casegen_float_input(g, s->k, 0, "x");
    sequence_operands(g, a, in + MN_CONV_STATE_ROW_POS);
    const int32_t y = casegen_float_output(g, s->k, "y");
    case_node(g->c, MN_OP_CONV_STATE, in, has_bias ? 7 : 6, &y, 1, attr, 2);
}

/* Y as [T, H, P]; else by groups, [T, G, H P / G], or [T, H P] where there is one. */
static int32_t scan_output(casegen *g, bool as_heads) {
    const op_shape *s = g->s;
    const int64_t width = s->n_head * s->dim;
    int64_t parts = s->n_head_kv;
    if (as_heads) {
        parts = s->n_head;
    }
    if (parts == 1 && !as_heads)
        return casegen_float_output(g, width, "y");
    return case_cube(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, parts, width / parts, NULL, "y");
}

/* n_head of dim, n_head_kv groups of n. variant bit 0: A_LOG, bit 1: limits of dt, bit 2: Y has
 * other dims than [T, H, P]. */
static void scan_node(casegen *g, state_plan *a, uint32_t dtype) {
    const op_shape *s = g->s;
    const bool is_log = s->variant & 1;
    const bool limits = s->variant & 2;
    const int64_t width = s->n_head * s->dim;
    const uint64_t attr[] = {a->layer,
                             s->kv_group,
                             (uint64_t)s->n_head_kv,
                             is_log,
                             limits ? case_f64(0.3) : 0,
                             limits ? case_f64(1.2) : 0};
    int32_t in[9];
    in[2] = rate_weight(g, dtype, s->n_head, is_log);
    in[3] = state_weight(g, dtype, s->n_head, -1, 1, "d");
    in[4] = state_weight(g, dtype, s->n_head, -1, 1, "dt_bias");
    next_numbers(g);
    in[0] = casegen_float_input(g, width + 2 * s->n_head_kv * s->n, 0, "xbc");
    in[1] = casegen_float_input(g, s->n_head, 0, "dt");
    sequence_operands(g, a, in + MN_SSM_SCAN_ROW_POS);
    const int32_t y = scan_output(g, !(s->variant & 4));
    case_node(g->c, MN_OP_SSM_SCAN, in, 9, &y, 1, attr, 6);
}

/* n_head of dim_v read n_head_kv of dim. variant bit 0: heads in turn, bit 1: A_LOG, bit 2: a decay
 * for each element, bit 3: q and k as they are, with a scale and beta up to 2. */
static void delta_node(casegen *g, state_plan *a, uint32_t dtype) {
    const op_shape *s = g->s;
    const bool each = s->variant & 4;
    const bool plain = s->variant & 8;
    const float size = plain ? 0.6f / sqrtf((float)s->dim) : 1; /* longer keys make states grow */
    const uint64_t attr[] = {a->layer,
                             s->kv_group,
                             (uint64_t)s->n_head_kv,
                             s->variant & 1,
                             s->variant & 2 ? 1 : 0,
                             plain ? 0 : case_f64(1e-6),
                             plain ? case_f64(0.7) : 0,
                             plain ? case_f64(2) : 0};
    int32_t in[9];
    in[3] = rate_weight(g, dtype, s->n_head, s->variant & 2);
    in[4] = state_weight(g, dtype, each ? s->n_head * s->dim : s->n_head, -1, 1, "dt_bias");
    next_numbers(g);
    in[0] = small_input(g, 2 * s->n_head_kv * s->dim + s->n_head * s->dim_v, 0, size, "qkv");
    in[1] = casegen_float_input(g, s->n_head, each ? s->dim : 0, "gate");
    in[2] = casegen_float_input(g, s->n_head, 0, "beta");
    sequence_operands(g, a, in + MN_GATED_DELTA_ROW_POS);
    const int32_t y = case_cube(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, s->n_head, s->dim_v, NULL, "y");
    case_node(g->c, MN_OP_GATED_DELTA, in, 9, &y, 1, attr, 8);
}

bool case_has_state(uint32_t op) {
    return op == MN_OP_CONV_STATE || op == MN_OP_SSM_SCAN || op == MN_OP_GATED_DELTA;
}

static void state_node(casegen *g, state_plan *a, uint32_t op, uint32_t dtype) {
    if (op == MN_OP_CONV_STATE) {
        conv_node(g, a, dtype);
    } else if (op == MN_OP_SSM_SCAN) {
        scan_node(g, a, dtype);
    } else {
        delta_node(g, a, dtype);
    }
}

void casegen_state(casegen *g, uint32_t op, uint32_t dtype) {
    state_plan a;
    if (state_plan_make(g, &a)) {
        state_node(g, &a, op, dtype);
    }
    state_plan_free(&a);
}

/* Operations have weights of one name, by which a set is found: each gets a name of its own. */
static void name_weights(op_case *c) {
    static char names[CASE_TENSORS][16]; /* always the same texts */
    for (uint32_t i = 0; i < c->g.n_tensors; i++) {
        if (c->t[i].role != MN_ROLE_WEIGHT)
            continue;
        const int n = snprintf(names[i], sizeof names[i], "weight %u", i);
        c->t[i].name = (mn_str){names[i], (uint64_t)n};
    }
}

op_case *case_states(const uint32_t *op, const op_shape *shape, uint32_t n, uint64_t seed) {
    op_case *c = case_new();
    state_plan a;
    if (!c)
        return NULL;
    casegen g = casegen_begin(c, shape, &seed, "n_tokens");
    if (!state_plan_make(&g, &a)) {
        c->failed = true;
    }
    for (uint32_t i = 0; i < n && !c->failed; i++) {
        g.s = &shape[i];
        a.layer = n - 1 - i;
        state_node(&g, &a, op[i], MN_F32);
    }
    name_weights(c);
    state_plan_free(&a);
    return c;
}
