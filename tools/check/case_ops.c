/* case_ops.c -- one random case per op, and what all generators share (case_gen.h). KV_STORE and
 * ATTENTION are in case_cache.c, SAMPLE in case_sample.c, operations with a state in case_state.c.
 *
 * Rows are a SHAPE symbol. Rows from `live` on are padding; unless live was 0, so are some rows
 * before it ("holes"), since a plugin must not take padding to be at the end. What a generator
 * draws does not depend on live: cases of one seed share their weights, so that a plan opened
 * for one case can run the others. The caller owns the case; arrays that a generator fills are
 * copied into it and freed. */
#include "case_gen.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the generators share --------------------------------------------------------------- */
casegen casegen_begin(op_case *c, const op_shape *s, uint64_t *seed, const char *rows_symbol) {
    casegen g = {
        .c = c,
        .s = s,
        .seed = seed,
    };
    if (s->live)
        g.live = s->live;
    else
        g.live = s->rows;
    g.holes = s->live != 0;
    g.T = case_symbol(c, rows_symbol, s->rows, MN_SYMBOL_SHAPE);
    return g;
}

void *casegen_zeroed(casegen *g, int64_t n, size_t size) {
    void *p = calloc((size_t)n + 1, size);
    if (!p)
        g->c->failed = true;
    return p;
}

bool casegen_is_hole(const casegen *g, int64_t t) {
    const bool between = t % 5 == 3 && t + 1 < g->live;
    return t >= g->live || (g->holes && between);
}

/* The row that is to be spoiled, about quarter / 4 of the way down the live ones; -1 = none is.
 * A hole cannot be spoiled: it is padding already. */
static int64_t spoiled_at(const casegen *g, int64_t quarter) {
    const int64_t t = g->live * quarter / 4;
    if (!g->s->spoil || g->live < 2)
        return -1;
    if (casegen_is_hole(g, t))
        return t + 1;
    return t;
}

int64_t casegen_spoiled_row(const casegen *g) {
    return spoiled_at(g, 2);
}

uint8_t casegen_row_mark(const casegen *g, bool padding, bool spoiled) {
    if (padding || g->s->dirty)
        return ROW_PADDING;
    if (spoiled)
        return ROW_SPOILED;
    return ROW_COUNTS;
}

void casegen_mark_dead(casegen *g) {
    const int64_t spoiled = casegen_spoiled_row(g);
    uint8_t *dead = casegen_zeroed(g, g->s->rows, 1);
    for (int64_t t = 0; dead && t < g->s->rows; t++)
        dead[t] = casegen_row_mark(g, casegen_is_hole(g, t), t == spoiled);
    g->c->dead[0] = dead;
}

void casegen_fill_bad(float *x, int64_t n) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++)
        x[i] = bad[i % 3];
}

int32_t casegen_float_rows(casegen *g, int64_t sym, int64_t rows, int64_t drawn,
                           const uint8_t *dead, int64_t d1, int64_t d2, const char *name) {
    int64_t cols = d1;
    if (d2)
        cols = d1 * d2;
    const int64_t dim[] = {sym, d1, d2};
    float *x = casegen_zeroed(g, rows * cols, sizeof *x); // [rows, cols]
    if (!x)
        return 0;
    for (int64_t i = 0; i < drawn * cols; i++) {
        const float first = case_rand(g->seed);
        x[i] = first + case_rand(g->seed);
    }
    for (int64_t t = 0; t < rows; t++) {
        const bool is_dead = dead && dead[t];
        if (g->s->dirty || t >= drawn || is_dead)
            casegen_fill_bad(x + t * cols, cols);
    }
    const int32_t i = case_tensor(g->c, MN_ROLE_INPUT, MN_F32, d2 ? 3 : 2, dim, x, name);
    free(x);
    return i;
}

int32_t casegen_float_input(casegen *g, int64_t d1, int64_t d2, const char *name) {
    const int64_t rows = g->s->rows;
    return casegen_float_rows(g, g->T, rows, rows, g->c->dead[0], d1, d2, name);
}

int32_t casegen_int_input(casegen *g, const int32_t *values, const char *name) {
    return case_vec(g->c, MN_ROLE_INPUT, MN_I32, g->T, values, name);
}

int32_t casegen_float_output(casegen *g, int64_t cols, const char *name) {
    return case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, cols, NULL, name);
}

int32_t casegen_int_output(casegen *g, const char *name) {
    return case_vec(g->c, MN_ROLE_OUTPUT, MN_I32, g->T, NULL, name);
}

/* Two inputs that are bad in the spoiled row; besides, each is bad in one row where the other is
 * good: NaN * anything is NaN, so that one bad factor would hide whether the other is read.
 * Marks the rows. d1, d2: of each input; in: receives their tensors. */
static void two_inputs(casegen *g, const char *const name[2], const int64_t d1[2],
                       const int64_t d2[2], int32_t in[2]) {
    const int64_t alone[2] = {spoiled_at(g, 1), spoiled_at(g, 3)};
    const int64_t rows = g->s->rows;
    casegen_mark_dead(g);
    uint8_t *dead = g->c->dead[0];
    uint8_t *mine = casegen_zeroed(g, rows, 1);
    for (int i = 0; i < 2 && dead && mine; i++) {
        memcpy(mine, dead, (size_t)rows);
        if (alone[i] >= 0)
            mine[alone[i]] = ROW_SPOILED;
        in[i] = casegen_float_rows(g, g->T, rows, rows, mine, d1[i], d2[i], name[i]);
    }
    for (int i = 0; i < 2 && dead; i++)
        if (alone[i] >= 0)
            dead[alone[i]] = casegen_row_mark(g, false, true);
    free(mine);
}

int32_t casegen_weight(casegen *g, uint32_t dtype, uint32_t n_dim, const int64_t *dim,
                       const char *name) {
    const int64_t cols = dim[n_dim - 1];
    int64_t rows = 1;
    for (uint32_t i = 0; i + 1 < n_dim; i++)
        rows *= dim[i];
    const int64_t bytes = (int64_t)case_weight_bytes(dtype, rows, cols);
    void *w = casegen_zeroed(g, bytes + 64, 1);
    if (!w)
        return 0;
    case_random_weight(dtype, rows, cols, g->seed, w);
    const int32_t t = case_tensor(g->c, MN_ROLE_WEIGHT, dtype, n_dim, dim, w, name);
    free(w);
    return t;
}

/* The type of vectors and small tables beside matrices of dtype: only floats are legal for them. */
static uint32_t case_ops_float_type(uint32_t dtype) {
    if (dtype == MN_F16 || dtype == MN_BF16)
        return dtype;
    return MN_F32;
}

int32_t casegen_vector(casegen *g, uint32_t dtype, int64_t n, const char *name) {
    return casegen_weight(g, case_ops_float_type(dtype), 1, &n, name);
}

int32_t casegen_matrix(casegen *g, uint32_t dtype, int64_t rows, int64_t cols, const char *name) {
    const int64_t dim[] = {rows, cols};
    return casegen_weight(g, dtype, 2, dim, name);
}

/* ---- dense layers ---------------------------------------------------------------------------- */
/* Each of some heads has a matrix of its own, and some elements that are passed on. */
static void linear_heads(casegen *g, uint32_t op, uint32_t dtype) {
    enum { HEADS = 3, BEHIND = 5 };
    const int64_t dim[3] = {HEADS, g->s->n, g->s->k};
    int32_t in[3] = {0, 0, -1};
    casegen_mark_dead(g);
    in[0] = casegen_float_input(g, HEADS, g->s->k + BEHIND, "x");
    in[1] = casegen_weight(g, dtype, 3, dim, "w");
    const int32_t y =
        case_cube(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, HEADS, g->s->n + BEHIND, NULL, "y");
    case_node(g->c, op, in, 3, &y, 1, NULL, 0);
}

/* variant: number of weights - 1, or 4: a matrix for each head. Numbers of rows differ, as those of
 * q, k and v do; every second weight has a bias. */
static void linear(casegen *g, uint32_t op, uint32_t dtype) {
    int32_t in[32];
    int32_t out[16];
    const uint32_t n = (uint32_t)g->s->variant + 1;
    if (g->s->variant == 4) {
        linear_heads(g, op, dtype);
        return;
    }
    casegen_mark_dead(g);
    in[0] = casegen_float_input(g, g->s->k, 0, "x");
    for (uint32_t i = 0; i < n; i++) {
        const int64_t rows = g->s->n + i;
        in[1 + 2 * i] = casegen_matrix(g, dtype, rows, g->s->k, "w");
        in[2 + 2 * i] = i % 2 ? casegen_vector(g, dtype, rows, "b") : -1;
        out[i] = casegen_float_output(g, rows, "y");
    }
    case_node(g->c, op, in, 1 + 2 * n, out, n, NULL, 0);
}

/* Row t of EMBED. Slot 0 has a prompt; the last live row continues slot 1; with holes the row
 * before it continues slot 2, which is done, another row has no slot, and one id is outside of
 * the table. */
static void embed_row(const casegen *g, int64_t t, int32_t *src, int32_t *pos, int32_t *slot) {
    const int64_t n_vocab = g->s->n;
    const int64_t last = g->live - 1;
    *src = (int32_t)(t * 7 % n_vocab);
    *pos = (int32_t)(g->s->past + t);
    *slot = 0;
    if (t == last)
        *slot = 1;
    else if (g->holes && last >= 2 && t == last - 1)
        *slot = 2;
    if (*slot) {
        *src = ~*slot;
        *pos = -1;
    }
    if (g->holes && last > 4 && t == 1)
        *src = (int32_t)n_vocab + 5;
    if (t > last || (g->holes && last >= 4 && t == last - 2))
        *slot = -1;
}

/* variant bit 1: rows that are given, two of three; bit 0: a table of positions, shorter than the
 * context, so that later positions count as its last. */
static void embed(casegen *g, uint32_t op, uint32_t dtype) {
    const op_shape *s = g->s;
    op_case *c = g->c;
    const bool has_pos_table = s->variant & 1;
    const int64_t n_history = s->past + s->rows + 16;
    const uint64_t scale = case_f64(2.5);
    enum { N_SLOTS = 3, N_GIVEN = 5 };
    const mn_slot slots[N_SLOTS] = {
        {.last_id = 5, .pos = 3, .n_drawn = 1},
        {.last_id = 6 % (int32_t)s->n, .pos = 9, .n_drawn = 2},
        {.last_id = 1, .pos = 4, .n_drawn = 2, .done = MN_SLOT_STOPPED}};
    int32_t *src = casegen_zeroed(g, s->rows * 3, sizeof *src); // src, pos, slot: [rows] each
    if (!src)
        return;
    int32_t *pos = src + s->rows;
    int32_t *slot = pos + s->rows;
    casegen_mark_dead(g);
    for (int64_t t = 0; t < s->rows; t++) {
        embed_row(g, t, &src[t], &pos[t], &slot[t]);
        const bool has_no_effect = slot[t] < 0 || slot[t] == 2;
        if (c->dead[0]) {
            if (has_no_effect)
                c->dead[0][t] = ROW_PADDING;
            else
                c->dead[0][t] = ROW_COUNTS;
        }
    }
    const bool has_rows = s->variant & 2;
    for (int64_t t = 0; t < s->rows && has_rows; t++)
        if (src[t] >= 0 && t % 3 && t != 4)
            src[t] = -N_SLOTS - 1 - (int32_t)(t % N_GIVEN);
    int32_t in[8] = {0, 0, 0, 0, 0, 0, -1, -1};
    in[0] = casegen_int_input(g, src, "src");
    in[1] = casegen_int_input(g, pos, "pos");
    in[2] = casegen_int_input(g, slot, "row_slot");
    in[3] = casegen_matrix(g, dtype, s->n, s->k, "table");
    in[4] = case_state(c, slots, sizeof slots, 3, "slots");
    in[5] = case_mat(c, MN_ROLE_STATE, MN_I32, 3, n_history, NULL, "history");
    if (has_pos_table)
        in[6] = casegen_matrix(g, case_ops_float_type(dtype), s->past + s->rows / 2 + 1, s->k,
                               "pos_table");
    if (has_rows)
        in[7] = casegen_float_rows(g, N_GIVEN, N_GIVEN, N_GIVEN, NULL, s->k, 0, "rows");
    int32_t out[2];
    out[0] = casegen_float_output(g, s->k, "x");
    out[1] = casegen_int_output(g, "row_pos");
    c->every_row[out[1]] = true;
    uint32_t n_in = has_pos_table ? 7 : 6;
    if (has_rows)
        n_in = 8;
    case_node(c, op, in, n_in, out, 2, &scale, 1);
    free(src);
}

/* Row t's position and slot of LOOKUP; position -1 where it is no row. */
static void lookup_row(const casegen *g, int64_t t, int64_t n_ctx, int32_t *pos, int32_t *slot) {
    const bool is_hole = g->holes && t % 5 == 3;
    *slot = (int32_t)(t % 3);
    *pos = (int32_t)(t % n_ctx);
    if (t >= g->live || is_hole)
        *pos = -1;
    if (is_hole && t % 2)
        *slot = -1;
}

/* A table of two halves, of which variant says which one is read; some ids are outside of it. */
static void lookup(casegen *g, uint32_t op, uint32_t dtype) {
    enum { SLOTS = 3, CONTEXT = 11 };
    const op_shape *s = g->s;
    const uint64_t attr[] = {s->variant & 1 ? (uint64_t)s->k : 0, case_f64(1.5)};
    int32_t history[SLOTS * CONTEXT];
    int32_t *pos = casegen_zeroed(g, s->rows * 2, sizeof *pos); // pos, slot: [rows] each
    if (!pos)
        return;
    int32_t *slot = pos + s->rows;
    casegen_mark_dead(g);
    for (int32_t i = 0; i < SLOTS * CONTEXT; i++)
        history[i] = i * 7 % (int32_t)(s->n + 2);
    for (int64_t t = 0; t < s->rows; t++) {
        lookup_row(g, t, CONTEXT, &pos[t], &slot[t]);
        if (g->c->dead[0])
            g->c->dead[0][t] = pos[t] < 0 ? ROW_PADDING : ROW_COUNTS;
    }
    const int32_t in[] = {
        casegen_int_input(g, pos, "row_pos"),
        casegen_int_input(g, slot, "row_slot"),
        case_mat(g->c, MN_ROLE_STATE, MN_I32, SLOTS, CONTEXT, history, "history"),
        casegen_matrix(g, dtype, s->n, 2 * s->k, "table"),
    };
    const int32_t y = casegen_float_output(g, s->k, "y");
    case_node(g->c, op, in, 4, &y, 1, attr, 2);
    free(pos);
}

/* [T, k], or [T, n_head, k] where n_head is set. variant bit 0: of LAYER_NORM no bias, of RMS_NORM
 * a weight for each head; bit 1: of RMS_NORM a weight that is shorter than a row. */
static void norm(casegen *g, uint32_t op, uint32_t dtype) {
    const op_shape *s = g->s;
    const bool has_bias = op == MN_OP_LAYER_NORM && !(s->variant & 1);
    const uint64_t attr[] = {case_f64(1e-5), case_f64(1)}; // epsilon; RMS_NORM: gain
    int32_t in[3] = {0, 0, -1};
    casegen_mark_dead(g);
    if (s->n_head)
        in[0] = casegen_float_input(g, s->n_head, s->k, "x");
    else
        in[0] = casegen_float_input(g, s->k, 0, "x");
    const mn_tensor *x = &g->c->t[in[0]];
    const int32_t y = case_tensor(g->c, MN_ROLE_OUTPUT, MN_F32, x->n_dim, x->dim, NULL, "y");
    if (op == MN_OP_RMS_NORM && s->n_head && s->variant & 1)
        in[1] = casegen_matrix(g, case_ops_float_type(dtype), s->n_head, s->k, "w");
    else
        in[1] = casegen_vector(g, dtype, s->variant & 2 ? s->k - s->k / 3 : s->k, "w");
    if (has_bias)
        in[2] = casegen_vector(g, dtype, s->k, "b");
    case_node(g->c, op, in, has_bias ? 3 : 2, &y, 1, attr, op == MN_OP_RMS_NORM ? 2 : 1);
}

/* Positions of the rows in three axes, and which of them each pair turns by. */
static void rope_axes(casegen *g, int64_t n_pairs, int32_t in[2]) {
    enum { AXES = 3 };
    const int64_t rows = g->s->rows;
    int32_t *pos = casegen_zeroed(g, AXES * rows + n_pairs, sizeof *pos); // [AXES, T], [n_pairs]
    if (!pos)
        return;
    for (int64_t i = 0; i < AXES * rows; i++)
        pos[i] = (int32_t)(i * 53 % 997);
    for (int64_t i = 0; i < n_pairs; i++)
        pos[AXES * rows + i] = (int32_t)(i % (AXES + 1)) - (i % 7 == 6); /* some are outside */
    in[0] = case_mat(g->c, MN_ROLE_INPUT, MN_I32, AXES, g->T, pos, "pos");
    in[1] = -1;
    if (g->s->variant & 4)
        in[1] = case_vec(g->c, MN_ROLE_WEIGHT, MN_I32, n_pairs, pos + AXES * rows, "axes");
    free(pos);
}

/* variant: bit 0: how elements are paired, 1: positions of their own, 2: in axes.
 * freqs[i] = 10000^(-2 i / n_rot). */
static void rope(casegen *g, uint32_t op, uint32_t dtype) {
    const op_shape *s = g->s;
    const int64_t n_rot = s->n_rot ? s->n_rot : s->dim;
    const uint64_t attr[] = {(uint64_t)s->variant & 1, (uint64_t)s->n_rot, case_f64(1.1)};
    float *freqs = casegen_zeroed(g, n_rot / 2, sizeof *freqs);
    int32_t *pos = casegen_zeroed(g, s->rows, sizeof *pos);
    int32_t in[5];
    const uint32_t n_in = s->variant & 2 ? 5 : 3;
    (void)dtype;
    casegen_mark_dead(g);
    for (int64_t i = 0; freqs && i < n_rot / 2; i++)
        freqs[i] = powf(10000, -2 * (float)i / (float)n_rot);
    for (int64_t t = 0; pos && t < s->rows; t++) {
        if (casegen_is_hole(g, t))
            pos[t] = -1;
        else
            pos[t] = (int32_t)(t * 37 + s->past);
    }
    in[0] = casegen_float_input(g, s->n_head, s->dim, "x");
    in[1] = casegen_int_input(g, pos, "row_pos");
    in[2] = case_vec(g->c, MN_ROLE_WEIGHT, MN_F32, n_rot / 2, freqs, "freqs");
    const int32_t y = case_tensor(g->c, MN_ROLE_OUTPUT, MN_F32, 3, g->c->t[in[0]].dim, NULL, "y");
    if (n_in > 3)
        rope_axes(g, n_rot / 2, in + 3);
    case_node(g->c, op, in, n_in, &y, 1, attr, 3);
    free(pos);
    free(freqs);
}

/* ---- elementwise, rows ----------------------------------------------------------------------- */
/* The four numbers of xielu; EPS is low enough to be seen. */
static void xielu_attributes(uint64_t attr[5]) {
    attr[MN_ACT_ATTR_ALPHA_P] = case_f64(0.8);
    attr[MN_ACT_ATTR_ALPHA_N] = case_f64(1.3);
    attr[MN_ACT_ATTR_BETA] = case_f64(0.5);
    attr[MN_ACT_ATTR_EPS] = case_f64(-0.125);
}

/* ACT and GLU: bits 0, 1 and 3 of variant are the kind; GLU bit 2: alpha (of SiLU alone), limit and
 * offset. ADD and MUL have no attributes, SCALE and SOFTCAP one number. The number of
 * attributes. */
static uint32_t elementwise_attributes(const casegen *g, uint32_t op, uint64_t attr[5]) {
    const int64_t kind = case_act_kind(g->s->variant);
    const bool has_kind = op == MN_OP_ACT || op == MN_OP_GLU;
    if (has_kind)
        attr[0] = (uint64_t)kind;
    else
        attr[0] = case_f64(1.75);
    if (kind == MN_ACT_SILU)
        attr[1] = case_f64(1.702);
    else
        attr[1] = 0;
    attr[2] = case_f64(0.8);
    attr[3] = case_f64(1);
    if (op == MN_OP_ADD || op == MN_OP_MUL)
        return 0;
    if (op == MN_OP_ACT && kind == MN_ACT_XIELU) {
        xielu_attributes(attr);
        return 5;
    }
    if (op == MN_OP_GLU && (g->s->variant & 4))
        return 4;
    return 1;
}

static void case_ops_elementwise(casegen *g, uint32_t op, uint32_t dtype) {
    static const char *const names[] = {"a", "b"};
    const int64_t d1[] = {g->s->k, g->s->k};
    const int64_t d2[] = {0, 0};
    const bool has_two = op == MN_OP_GLU || op == MN_OP_ADD || op == MN_OP_MUL;
    uint64_t attr[5];
    int32_t in[2] = {0};
    (void)dtype;
    if (has_two) {
        two_inputs(g, names, d1, d2, in);
    } else {
        casegen_mark_dead(g);
        in[0] = casegen_float_input(g, g->s->k, 0, "a");
        casegen_float_input(g, g->s->k, 0, "b"); // bound, though no node reads it
    }
    const int32_t y = casegen_float_output(g, g->s->k, "y");
    const uint32_t n_attr = elementwise_attributes(g, op, attr);
    case_node(g->c, op, in, has_two ? 2 : 1, &y, 1, attr, n_attr);
}

/* Output i is row live - 1 - i of the input; every fifth output row is padding. */
static void gather(casegen *g, uint32_t op, uint32_t dtype) {
    int64_t n = 64;
    if (g->s->rows < 64)
        n = g->s->rows;
    const int64_t n_live = g->live < n ? g->live : n;
    const int64_t O = case_symbol(g->c, "n_outputs", n, MN_SYMBOL_SHAPE);
    int32_t rows[64];
    int32_t in[2];
    uint8_t *dead = casegen_zeroed(g, n, 1);
    (void)dtype;
    g->c->dead[1] = dead;
    casegen_mark_dead(g);
    if (!dead || !g->c->dead[0])
        return;
    for (int64_t i = 0; i < n; i++) {
        const bool hole = i >= g->live || (g->holes && i % 5 == 3);
        if (hole) {
            rows[i] = -1;
            dead[i] = ROW_PADDING;
            continue;
        }
        rows[i] = (int32_t)(n_live - 1 - i);
        dead[i] = g->c->dead[0][rows[i]];
    }
    in[0] = casegen_float_input(g, g->s->k, 0, "x");
    in[1] = case_vec(g->c, MN_ROLE_INPUT, MN_I32, O, rows, "rows");
    const int32_t y = case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, O, g->s->k, NULL, "y");
    case_node(g->c, op, in, 2, &y, 1, NULL, 0);
}

/* ---- mixtures of experts --------------------------------------------------------------------- */
/* variant: bits 0 and 1 the kind, bit 2 normalise and scale, bit 3 a bias, bit 4 groups of 2 or 16
 * experts, of which half are chosen from. */
static void moe_route(casegen *g, uint32_t op, uint32_t dtype) {
    const op_shape *s = g->s;
    const bool normalises = s->variant & 4;
    const bool has_bias = s->variant & 8;
    const bool has_groups = s->variant & 16;
    const uint64_t n_group = (uint64_t)s->n_expert / (s->n_expert > 16 ? 16 : 2);
    const uint64_t attr[] = {(uint64_t)(s->variant & 3),
                             normalises,
                             normalises ? case_f64(2.5) : 0,
                             has_groups ? n_group : 0,
                             has_groups ? n_group / 2 : 0,
                             has_groups ? 1 + (uint64_t)has_bias : 0,
                             (s->variant & 3) == MN_ROUTE_SPARSEMIXER ? case_f64(0.2) : 0};
    int32_t in[2] = {0, -1};
    int32_t out[2];
    (void)dtype;
    casegen_mark_dead(g);
    in[0] = casegen_float_input(g, s->n_expert, 0, "logits");
    if (has_bias)
        in[1] = casegen_vector(g, MN_F32, s->n_expert, "bias");
    out[0] = case_mat(g->c, MN_ROLE_OUTPUT, MN_I32, g->T, s->n_used, NULL, "experts");
    out[1] = casegen_float_output(g, s->n_used, "weights");
    case_node(g->c, op, in, has_bias ? 2 : 1, out, 2, attr, attr[3] || attr[6] ? 7 : 3);
}

/* The expert of row t and choice j; padding holds numbers that are no experts: a plugin that
 * follows them reads outside of the weight. */
static int32_t case_ops_expert_of(const casegen *g, int64_t t, int64_t j) {
    const int64_t i = t * g->s->n_used + j;
    if (!casegen_is_hole(g, t))
        return (int32_t)((i * 5 + t) % g->s->n_expert);
    if (i % 2)
        return INT32_MAX;
    return -7;
}

/* EXPERTS, [T, J]. */
static int32_t experts_input(casegen *g) {
    const op_shape *s = g->s;
    int32_t *experts = casegen_zeroed(g, s->rows * s->n_used, sizeof *experts);
    for (int64_t i = 0; experts && i < s->rows * s->n_used; i++)
        experts[i] = case_ops_expert_of(g, i / s->n_used, i % s->n_used);
    const int32_t t = case_mat(g->c, MN_ROLE_INPUT, MN_I32, g->T, s->n_used, experts, "experts");
    free(experts);
    return t;
}

static bool is_resident(int64_t expert) {
    return expert % 3 != 1;
}

/* RESIDENT, [E]: any number but 0 says that an expert is there. */
static int32_t resident_input(casegen *g) {
    const int64_t n = g->s->n_expert;
    int32_t *resident = casegen_zeroed(g, n, sizeof *resident);
    for (int64_t e = 0; resident && e < n; e++)
        resident[e] = is_resident(e) ? (int32_t)(1 - 2 * (e & 1)) : 0;
    const int32_t t = case_vec(g->c, MN_ROLE_INPUT, MN_I32, n, resident, "resident");
    free(resident);
    return t;
}

/* Of each output of products [T, J, N] the sum over the experts that are resident: rows of the
 * others are undefined. */
static void combine_residents(casegen *g, const int32_t *out, uint32_t n, int32_t experts,
                              int32_t resident) {
    for (uint32_t i = 0; i < n; i++) {
        const int32_t in[] = {out[i], -1, experts, resident};
        const int32_t sum = casegen_float_output(g, g->c->t[out[i]].dim[2], "sum");
        case_node(g->c, MN_OP_MOE_COMBINE, in, 4, &sum, 1, NULL, 0);
    }
}

/* variant bit 0: a row of x for each chosen expert; bit 1: two weights, the second with a bias; bit
 * 2: factors of x; bit 3: experts that are not there, and a sum over the others. */
static void moe_linear(casegen *g, uint32_t op, uint32_t dtype) {
    const op_shape *s = g->s;
    const bool divided = s->variant & 8;
    const uint32_t n = s->variant & 2 ? 2 : 1;
    int32_t in[8];
    int32_t out[2];
    casegen_mark_dead(g);
    if (s->variant & 1)
        in[0] = casegen_float_input(g, s->n_used, s->k, "x");
    else
        in[0] = casegen_float_input(g, s->k, 0, "x");
    in[1] = experts_input(g);
    for (uint32_t i = 0; i < n; i++) {
        const int64_t dim[3] = {s->n_expert, s->n + i, s->k};
        in[2 + 2 * i] = casegen_weight(g, dtype, 3, dim, "w");
        in[3 + 2 * i] = i ? casegen_weight(g, case_ops_float_type(dtype), 2, dim, "b") : -1;
        out[i] = case_cube(g->c, divided ? MN_ROLE_INTERIOR : MN_ROLE_OUTPUT, MN_F32, g->T,
                           s->n_used, dim[1], NULL, "y");
    }
    uint32_t n_in = 2 + 2 * n;
    if (s->variant & 4)
        in[n_in++] = casegen_float_input(g, s->n_used, 0, "x_weights");
    else if (divided)
        in[n_in++] = -1;
    if (divided)
        in[n_in++] = resident_input(g);
    case_node(g->c, op, in, n_in, out, n, NULL, 0);
    if (divided)
        combine_residents(g, out, n, in[1], in[n_in - 1]);
}

/* What the experts that are not there made is bad. x: [T, J, D] */
static void spoil_absent(casegen *g, int32_t x) {
    const op_shape *s = g->s;
    float *rows = g->c->data[x];
    if (g->c->failed)
        return;
    for (int64_t i = 0; i < s->rows * s->n_used; i++) {
        const int32_t e = case_ops_expert_of(g, i / s->n_used, i % s->n_used);
        if (e >= 0 && e < s->n_expert && !is_resident(e))
            casegen_fill_bad(rows + i * s->k, s->k);
    }
}

/* variant bit 0: no weights; bit 1: experts that are not there; bit 2: the sum begins with BASE. */
static void moe_combine(casegen *g, uint32_t op, uint32_t dtype) {
    static const char *const names[] = {"x", "weights"};
    const op_shape *s = g->s;
    const int64_t d1[] = {s->n_used, s->n_used};
    const int64_t d2[] = {s->k, 0};
    int32_t in[] = {0, 0, -1, -1, -1};
    uint32_t n_in = s->variant & 1 ? 1 : 2;
    (void)dtype;
    two_inputs(g, names, d1, d2, in);
    if (s->variant & 1)
        in[MN_MOE_COMBINE_WEIGHTS] = -1;
    if (s->variant & 2) {
        in[MN_MOE_COMBINE_EXPERTS] = experts_input(g);
        in[MN_MOE_COMBINE_RESIDENT] = resident_input(g);
        spoil_absent(g, in[0]);
        n_in = 4;
    }
    if (s->variant & 4) {
        in[MN_MOE_COMBINE_BASE] = casegen_float_input(g, s->k, 0, "base");
        n_in = 5;
    }
    const int32_t y = casegen_float_output(g, s->k, "y");
    case_node(g->c, op, in, n_in, &y, 1, NULL, 0);
}

/* The matrices of n adapters, [n, rows, cols] in F32 or F16. */
static int32_t lora_state(casegen *g, int64_t n, int64_t rows, int64_t cols, const char *name) {
    const uint32_t dtype = g->s->variant & 1 ? MN_F16 : MN_F32;
    const int64_t all = n * rows * cols;
    float *x = casegen_zeroed(g, all, sizeof *x);
    void *stored = casegen_zeroed(g, all, sizeof *x);
    int32_t t = 0;
    if (x && stored) {
        for (int64_t i = 0; i < all; i++)
            x[i] = case_rand(g->seed);
        case_quantise(dtype, x, all, stored);
        t = case_cube(g->c, MN_ROLE_STATE, dtype, n, rows, cols, stored, name);
    }
    free(stored);
    free(x);
    return t;
}

/* Adapters in turn, none, and numbers outside of them; variant bit 0: F16, 1: x [T, 2, K / 2].
 * n_used: the rank. */
static void lora(casegen *g, uint32_t op, uint32_t dtype) {
    enum { ADAPTERS = 3 };
    static const char *const names[] = {"x", "y"};
    const op_shape *s = g->s;
    const int64_t halves = s->variant & 2 ? s->k : 0;
    const int64_t k = halves ? 2 * s->k : s->k;
    const int64_t d1[] = {halves ? 2 : s->k, s->n};
    const int64_t d2[] = {halves, 0};
    int32_t in[5] = {0};
    int32_t *adapter = casegen_zeroed(g, s->rows, sizeof *adapter);
    (void)dtype;
    two_inputs(g, names, d1, d2, in);
    const uint8_t *dead = g->c->dead[0];
    for (int64_t t = 0; adapter && dead && t < s->rows; t++) {
        adapter[t] = (int32_t)(t % ADAPTERS);
        if (dead[t] != ROW_SPOILED && t % 4 == 1)
            adapter[t] = -1;
        if (dead[t] != ROW_SPOILED && t % 7 == 5)
            adapter[t] = t % 2 ? ADAPTERS : INT32_MIN;
    }
    in[MN_LORA_A] = lora_state(g, ADAPTERS, s->n_used, k, "a");
    in[MN_LORA_B] = lora_state(g, ADAPTERS, s->n, s->n_used, "b");
    if (adapter)
        in[MN_LORA_ADAPTER] = casegen_int_input(g, adapter, "adapter");
    const int32_t z = casegen_float_output(g, s->n, "z");
    case_node(g->c, op, in, 5, &z, 1, NULL, 0);
    free(adapter);
}

/* ---- by op ----------------------------------------------------------------------------------- */
/* The generator of each op; NULL: an elementwise one. dtype: of the weights. */
static void (*const generators[])(casegen *g, uint32_t op, uint32_t dtype) = {
    [MN_OP_EMBED] = embed,
    [MN_OP_LOOKUP] = lookup,
    [MN_OP_LORA] = lora,
    [MN_OP_RMS_NORM] = norm,
    [MN_OP_LAYER_NORM] = norm,
    [MN_OP_LINEAR] = linear,
    [MN_OP_ROPE] = rope,
    [MN_OP_KV_STORE] = casegen_attention,
    [MN_OP_ATTENTION] = casegen_attention,
    [MN_OP_GATHER_ROWS] = gather,
    [MN_OP_SAMPLE] = casegen_sample,
    [MN_OP_MOE_ROUTE] = moe_route,
    [MN_OP_MOE_LINEAR] = moe_linear,
    [MN_OP_MOE_COMBINE] = moe_combine,
    [MN_OP_CONV_STATE] = casegen_state,
    [MN_OP_SSM_SCAN] = casegen_state,
    [MN_OP_GATED_DELTA] = casegen_state,
};

op_case *case_random(uint32_t op, uint32_t dtype, const op_shape *s, uint64_t seed) {
    op_case *c = case_new();
    if (!c)
        return NULL;
    casegen g = casegen_begin(c, s, &seed, op == MN_OP_SAMPLE ? "n_outputs" : "n_tokens");
    if (op < sizeof generators / sizeof *generators && generators[op])
        generators[op](&g, op, dtype);
    else
        case_ops_elementwise(&g, op, dtype);
    return c;
}

const char *case_op_name(uint32_t op) {
    static const char *const names[] = {
#define ROW(name, id) [id] = #name,
        MN_OPS(ROW)
#undef ROW
    };
    if (op < sizeof names / sizeof *names)
        return names[op];
    return NULL;
}
