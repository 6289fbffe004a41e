/* case_ops.c -- one random case per op. Rows are a SHAPE symbol; rows behind `live` are padding, as
 * is a row here and there before it (not with live = 0). What a generator draws does not depend on
 * live, so that cases of one seed share weights. */
#include "case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    op_case *c;
    const op_shape *s;
    uint64_t *seed;
    int64_t T; /* the dim of rows */
    int64_t live;
    bool holes;
} gen;

static void *zeroed(gen *g, int64_t n, size_t size) {
    void *p = calloc((size_t)n + 1, size);
    g->c->failed |= !p;
    return p;
}

static bool is_hole(const gen *g, int64_t t) {
    return t >= g->live || (g->holes && t % 5 == 3 && t + 1 < g->live);
}
/* A row that is to be spoiled: about `quarter` quarters down the live ones; -1: none is. */
static int64_t spoiled_at(const gen *g, int64_t quarter) {
    const int64_t t = g->live * quarter / 4;
    if (!g->s->spoil || g->live < 2)
        return -1;
    return is_hole(g, t) ? t + 1 : t; /* a hole is padding */
}
static int64_t spoiled_row(const gen *g) {
    return spoiled_at(g, 2);
}

/* What stands in op_case.dead of a row; outputs of a dirty case are nobody's. */
static uint8_t row_mark(const gen *g, bool padding, bool spoiled) {
    if (padding || g->s->dirty)
        return 1;
    return spoiled ? 2 : 0;
}

/* dead[symbol 0] from holes and the spoiled row: what most ops need. */
static void mark_dead(gen *g) {
    uint8_t *dead = g->c->dead[0] = zeroed(g, g->s->rows, 1);
    for (int64_t t = 0; dead && t < g->s->rows; t++)
        dead[t] = row_mark(g, is_hole(g, t), t == spoiled_row(g));
}

static void fill_bad(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
}

/* An input of `rows` rows (declared as dim `sym`), the first `drawn` of them noise; bad where dead
 * says so. */
static int32_t float_rows(gen *g, int64_t sym, int64_t rows, int64_t drawn, const uint8_t *dead,
                          int64_t d1, int64_t d2, float scale, const char *name) {
    int64_t cols = d1 * (d2 ? d2 : 1);
    float *x = zeroed(g, rows * cols, sizeof *x);
    if (!x)
        return 0;
    for (int64_t i = 0; i < drawn * cols; i++)
        x[i] = scale * (case_rand(g->seed) + case_rand(g->seed));
    for (int64_t t = 0; t < rows; t++)
        if (g->s->dirty || t >= drawn || (dead && dead[t]))
            fill_bad(x + t * cols, cols);
    int32_t i = d2 ? case_cube(g->c, MN_ROLE_INPUT, MN_F32, sym, d1, d2, x, name)
                   : case_mat(g->c, MN_ROLE_INPUT, MN_F32, sym, d1, x, name);
    free(x);
    return i;
}
static int32_t float_input(gen *g, int64_t d1, int64_t d2, const char *name) {
    return float_rows(g, g->T, g->s->rows, g->s->rows, g->c->dead[0], d1, d2, 1, name);
}

/* Two inputs, both bad in the spoiled row, and each alone in a row of its own: what the one hides
 * the other would hide too, as NaN * anything is NaN. Marks the rows. */
static void two_inputs(gen *g, const char *const name[2], const int64_t d1[2], const int64_t d2[2],
                       int32_t t[2]) {
    const int64_t alone[2] = {spoiled_at(g, 1), spoiled_at(g, 3)};
    mark_dead(g);
    uint8_t *dead = g->c->dead[0], *mine = zeroed(g, g->s->rows, 1);
    for (int i = 0; i < 2 && dead && mine; i++) {
        memcpy(mine, dead, (size_t)g->s->rows);
        if (alone[i] >= 0)
            mine[alone[i]] = 2;
        t[i] = float_rows(g, g->T, g->s->rows, g->s->rows, mine, d1[i], d2[i], 1, name[i]);
    }
    for (int i = 0; i < 2 && dead; i++)
        if (alone[i] >= 0)
            dead[alone[i]] = row_mark(g, false, true);
    free(mine);
}

static int32_t weight(gen *g, uint32_t dtype, uint32_t n_dim, const int64_t *dim,
                      const char *name) {
    int64_t rows = 1, cols = dim[n_dim - 1];
    for (uint32_t i = 0; i + 1 < n_dim; i++)
        rows *= dim[i];
    void *w = zeroed(g, (int64_t)case_weight_bytes(dtype, rows, cols) + 64, 1);
    if (!w)
        return 0;
    case_random_weight(dtype, rows, cols, g->seed, w);
    int32_t t = case_tensor(g->c, MN_ROLE_WEIGHT, dtype, n_dim, dim, w, name);
    free(w);
    return t;
}
static int32_t vector(gen *g, uint32_t dtype, int64_t n, const char *name) {
    return weight(g, dtype == MN_F16 || dtype == MN_BF16 ? dtype : MN_F32, 1, &n, name);
}
static int32_t matrix(gen *g, uint32_t dtype, int64_t rows, int64_t cols, const char *name) {
    return weight(g, dtype, 2, (const int64_t[]){rows, cols}, name);
}

static void linear(gen *g, uint32_t dtype) {
    int32_t in[32], out[16];
    uint32_t n = (uint32_t)g->s->variant + 1;
    mark_dead(g);
    in[0] = float_input(g, g->s->k, 0, "x");
    for (uint32_t i = 0; i < n; i++) {
        int64_t rows = g->s->n + i; /* unequal, on purpose */
        in[1 + 2 * i] = matrix(g, dtype, rows, g->s->k, "w");
        in[2 + 2 * i] = i % 2 ? vector(g, dtype, rows, "b") : -1;
        out[i] = case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, rows, NULL, "y");
    }
    case_node(g->c, MN_OP_LINEAR, in, 1 + 2 * n, out, n, NULL, 0);
}

/* Slot 0 has a prompt, slot 1 goes on, slot 2 is done; an id outside of the table counts as 0. */
static void embed(gen *g, uint32_t dtype) {
    const op_shape *s = g->s;
    op_case *c = g->c;
    int64_t past = s->past, length = past + s->rows + 16, last = g->live - 1;
    int32_t *row = zeroed(g, s->rows * 3, 4), *pos = row + s->rows, *slot = pos + s->rows;
    mn_slot slots[3] = {{5, 3, 1, 0}, {6 % (int32_t)s->n, 9, 2, 0}, {1, 4, 2, MN_SLOT_STOPPED}};
    if (!row)
        return;
    mark_dead(g);
    for (int64_t t = 0; t < s->rows; t++) {
        bool on = t == last, done = g->holes && last >= 2 && t == last - 1;
        bool none = t > last || (g->holes && last >= 4 && t == last - 2);
        row[t] = on ? ~1 : done ? ~2 : (int32_t)((uint64_t)t * 7 % (uint64_t)s->n);
        if (g->holes && t == 1 && last > 4)
            row[t] = (int32_t)s->n + 5;
        pos[t] = on || done ? -1 : (int32_t)(past + t);
        slot[t] = none ? -1 : on ? 1 : done ? 2 : 0;
        if (c->dead[0])
            c->dead[0][t] = none || done;
    }
    int32_t in[7] = {case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, row, "src"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, pos, "pos"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, slot, "row_slot"),
                     matrix(g, dtype, s->n, s->k, "table"),
                     case_state(c, slots, sizeof slots, 3, "slots"),
                     case_mat(c, MN_ROLE_STATE, MN_I32, 3, length, NULL, "history"),
                     -1};
    if (s->variant & 1) /* shorter than the context: later positions count as the last */
        in[6] = matrix(g, dtype == MN_F16 || dtype == MN_BF16 ? dtype : MN_F32,
                       past + s->rows / 2 + 1, s->k, "pos_table");
    int32_t out[2] = {case_mat(c, MN_ROLE_OUTPUT, MN_F32, g->T, s->k, NULL, "x"),
                      case_vec(c, MN_ROLE_OUTPUT, MN_I32, g->T, NULL, "row_pos")};
    c->every_row[out[1]] = true;
    case_node(c, MN_OP_EMBED, in, s->variant & 1 ? 7 : 6, out, 2, (const uint64_t[]){case_f64(2.5)},
              1);
    free(row);
}

static void norm(gen *g, uint32_t op, uint32_t dtype) {
    const op_shape *s = g->s;
    mark_dead(g);
    int32_t x = s->n_head ? float_input(g, s->n_head, s->k, "x") : float_input(g, s->k, 0, "x");
    int32_t y =
        case_tensor(g->c, MN_ROLE_OUTPUT, MN_F32, g->c->t[x].n_dim, g->c->t[x].dim, NULL, "y");
    bool bias = op == MN_OP_LAYER_NORM && !(s->variant & 1);
    int32_t w = vector(g, dtype, s->k, "w"), b = bias ? vector(g, dtype, s->k, "b") : -1;
    case_node(g->c, op, (const int32_t[]){x, w, b}, bias ? 3 : 2, &y, 1,
              (const uint64_t[]){case_f64(1e-5), case_f64(1)}, op == MN_OP_RMS_NORM ? 2 : 1);
}

static void rope(gen *g) {
    const op_shape *s = g->s;
    int64_t n_rot = s->n_rot ? s->n_rot : s->dim;
    float *freqs = zeroed(g, n_rot / 2, sizeof *freqs);
    int32_t *pos = zeroed(g, s->rows, 4);
    mark_dead(g);
    for (int64_t i = 0; freqs && i < n_rot / 2; i++)
        freqs[i] = powf(10000, -2 * (float)i / (float)n_rot);
    for (int64_t t = 0; pos && t < s->rows; t++)
        pos[t] = is_hole(g, t) ? -1 : (int32_t)(t * 37 + s->past);
    int32_t x = float_input(g, s->n_head, s->dim, "x"),
            p = case_vec(g->c, MN_ROLE_INPUT, MN_I32, g->T, pos, "row_pos");
    int32_t f = case_vec(g->c, MN_ROLE_WEIGHT, MN_F32, n_rot / 2, freqs, "freqs"),
            y = case_tensor(g->c, MN_ROLE_OUTPUT, MN_F32, 3, g->c->t[x].dim, NULL, "y");
    case_node(g->c, MN_OP_ROPE, (const int32_t[]){x, p, f}, 3, &y, 1,
              (const uint64_t[]){(uint64_t)s->variant, (uint64_t)s->n_rot, case_f64(1.1)}, 3);
    free(pos), free(freqs);
}

/* The cache is filled by a KV_STORE of the same graph: `past` rows of each sequence, then the
 * step's rows, dense from row 0 on. The store has rows for every place of every page, padding
 * behind those: a dirty case fills all of them. */
typedef struct {
    /* per sequence: rows of the step, keys, pages; rows: of the store */
    int64_t nq, per, len, pages, pt, rows;
    int32_t *kpos, *kslot, *qpos, *qslot, *seqs, *table;
    uint8_t *kdead;
} cache_plan;

enum { WINDOW = 17 };

/* Pages before the window of the step's first rows were given back: no entry, nothing stored, and
 * where the pages are lies what a dirty case left there. */
static void give_back(const op_shape *s, cache_plan *a) {
    const int64_t n = (s->past - WINDOW + 1) / a->pt;
    if (!(s->variant & 1) || s->dirty || s->past < WINDOW)
        return;
    for (int64_t slot = 0; slot < a->nq; slot++)
        for (int64_t i = 0; i < n; i++)
            a->table[slot * a->pages + i] = -1;
    for (int64_t q = 0; q < a->nq; q++)
        for (int64_t i = 0; i < n * a->pt; i++)
            a->kpos[q * a->len + i] = -1, a->kdead[q * a->len + i] = 1;
}

static void plan_rows(gen *g, cache_plan *a) {
    const op_shape *s = g->s;
    for (int64_t i = 0; i < a->rows; i++)
        a->kpos[i] = a->kslot[i] = -1, a->kdead[i] = 1;
    for (int64_t t = 0; t < s->rows; t++)
        a->qpos[t] = a->qslot[t] = -1;
    for (int64_t q = 0; q < a->nq; q++) {
        int64_t used = g->live - q * a->per < a->per ? g->live - q * a->per : a->per,
                n = s->past + used;
        int32_t slot = (int32_t)(g->holes ? a->nq - 1 - q : q);
        /* its rows of the step are there and have no effect */
        bool done = g->holes && a->nq > 2 && q == 1;
        bool spoilt = s->spoil && a->nq > 1 && q == a->nq - 1;
        if (used <= 0)
            continue;
        for (int64_t i = 0; i < n; i++) {
            a->kslot[q * a->len + i] = slot;
            a->kpos[q * a->len + i] = done && i >= s->past ? -1 : (int32_t)i;
            a->kdead[q * a->len + i] = (done && i >= s->past) || (spoilt && i == 0);
        }
        for (int64_t i = 0; i < used; i++) {
            int64_t t = q * a->per + i;
            a->qpos[t] = done ? -1 : (int32_t)(s->past + i), a->qslot[t] = slot;
            if (g->c->dead[0])
                g->c->dead[0][t] = row_mark(g, done, spoilt || t == spoiled_row(g));
        }
        a->seqs[4 * q] = (int32_t)(q * a->per), a->seqs[4 * q + 1] = (int32_t)used,
                    a->seqs[4 * q + 2] = slot;
    }
    for (int64_t i = 0; s->dirty && i < a->rows; i++)
        a->kpos[i] = (int32_t)(i % (a->pages * a->pt)),
        a->kslot[i] = (int32_t)(i / (a->pages * a->pt));
    /* backwards and by turns, so that order is no accident */
    for (int64_t slot = 0; slot < a->nq; slot++)
        for (int64_t i = 0; i < a->pages; i++)
            a->table[slot * a->pages + i] = (int32_t)(1 + (a->pages - 1 - i) * a->nq + slot);
    give_back(s, a);
}

/* What the layers of one KV group share: tensors, and the symbol of the rows that are stored. */
typedef struct {
    uint32_t group;
    int64_t n_stored;
    int32_t kpos, kslot, pages, kv, row_pos, row_slot, seqs;
} cache_tensors;

static cache_tensors cache_of(gen *g, const cache_plan *a, uint32_t group) {
    const op_shape *s = g->s;
    op_case *c = g->c;
    const int64_t U = case_symbol(c, "n_stored", a->rows, MN_SYMBOL_SHAPE);
    const int64_t Q = case_symbol(c, "n_seqs", a->nq, MN_SYMBOL_SHAPE);
    const int64_t P = case_symbol(c, "n_pages", a->pages, MN_SYMBOL_BOUND);
    const uint32_t n_pages = (uint32_t)(a->nq * a->pages + 1);
    cache_tensors t = {.group = group, .n_stored = U};
    t.kpos = case_vec(c, MN_ROLE_INPUT, MN_I32, U, a->kpos, "kpos");
    t.kslot = case_vec(c, MN_ROLE_INPUT, MN_I32, U, a->kslot, "kslot");
    t.pages = case_mat(c, MN_ROLE_INPUT, MN_I32, a->nq, P, a->table, "pages");
    t.kv = case_kv_of(c, s->kv_dtype ? s->kv_dtype : MN_F32, n_pages, group);
    t.row_pos = case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, a->qpos, "row_pos");
    t.row_slot = case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, a->qslot, "row_slot");
    t.seqs = case_mat(c, MN_ROLE_INPUT, MN_I32, Q, 4, a->seqs, "seqs");
    return t;
}

static void attention_nodes(gen *g, const cache_plan *a, const cache_tensors *t, uint64_t layer) {
    const op_shape *s = g->s;
    op_case *c = g->c;
    const int64_t U = t->n_stored, dv = s->dim_v ? s->dim_v : s->dim, drawn = a->nq * a->len;
    int32_t k = float_rows(g, U, a->rows, drawn, a->kdead, s->n_head_kv, s->dim, 1, "k"),
            v = float_rows(g, U, a->rows, drawn, a->kdead, s->n_head_kv, dv, 1, "v");
    int32_t q = float_input(g, s->n_head, s->dim, "q"),
            y = case_cube(c, MN_ROLE_OUTPUT, MN_F32, g->T, s->n_head, dv, NULL, "y");
    int32_t sinks = s->variant & 4 ? vector(g, MN_F32, s->n_head, "sinks") : -1;
    case_node(c, MN_OP_KV_STORE, (const int32_t[]){k, v, t->kpos, t->kslot, t->pages, t->kv}, 6,
              NULL, 0, (const uint64_t[]){layer, t->group}, 2);
    case_node(
        c, MN_OP_ATTENTION,
        (const int32_t[]){q, t->row_pos, t->row_slot, t->seqs, t->pages, t->kv, sinks}, 7, &y, 1,
        (const uint64_t[]){case_f64(1 / sqrt((double)s->dim)), s->variant & 1 ? WINDOW : 0,
                           s->variant & 2 ? case_f64(1.5) : 0, layer, t->group,
                           (uint64_t)s->n_head_kv, (uint64_t)s->dim_v, s->variant & 8 ? 1 : 0},
        8);
}

/* The arrays of a plan, filled for the generator's shape; false = out of memory. Freed by
 * plan_free. */
static bool plan_make(gen *g, cache_plan *a) {
    const op_shape *s = g->s;
    *a = (cache_plan){.nq = s->n_seqs ? s->n_seqs : 1, .pt = s->page_tokens ? s->page_tokens : 64};
    a->per = (s->rows + a->nq - 1) / a->nq;
    a->len = s->past + a->per;
    a->pages = (a->len + a->pt - 1) / a->pt;
    a->rows = a->nq * a->pages * a->pt;
    a->kpos = zeroed(g, 2 * a->rows + 2 * s->rows + 4 * a->nq + a->nq * a->pages, 4);
    a->kdead = zeroed(g, a->rows, 1);
    if (!a->kpos || !a->kdead || !g->c->dead[0])
        return false;
    a->kslot = a->kpos + a->rows;
    a->qpos = a->kslot + a->rows;
    a->qslot = a->qpos + s->rows;
    a->seqs = a->qslot + s->rows;
    a->table = a->seqs + 4 * a->nq;
    plan_rows(g, a);
    return true;
}

static void plan_free(cache_plan *a) {
    free(a->kpos);
    free(a->kdead);
}

static void attention(gen *g) {
    cache_plan a;
    mark_dead(g);
    if (plan_make(g, &a)) {
        const cache_tensors t = cache_of(g, &a, g->s->kv_group);
        attention_nodes(g, &a, &t, 0);
    }
    plan_free(&a);
}

op_case *case_groups(const op_shape *shape, uint32_t n_layers, uint64_t seed) {
    op_case *c = case_new();
    cache_plan a[CASE_GROUPS] = {{0}};
    cache_tensors t[CASE_GROUPS];
    if (!c)
        return NULL;
    gen g = {c, shape, &seed, 0, shape->live ? shape->live : shape->rows, shape->live != 0};
    g.T = case_symbol(c, "n_tokens", shape->rows, MN_SYMBOL_SHAPE);
    mark_dead(&g);
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        g.s = &shape[i];
        c->failed |= !plan_make(&g, &a[i]);
        if (!c->failed)
            t[i] = cache_of(&g, &a[i], i);
    }
    for (uint32_t i = 0; i < n_layers && !c->failed; i++) {
        g.s = &shape[i % CASE_GROUPS];
        attention_nodes(&g, &a[i % CASE_GROUPS], &t[i % CASE_GROUPS], i / CASE_GROUPS);
    }
    for (uint32_t i = 0; i < CASE_GROUPS; i++)
        plan_free(&a[i]);
    return c;
}

static void elementwise(gen *g, uint32_t op) {
    const op_shape *s = g->s;
    bool two = op == MN_OP_GLU || op == MN_OP_ADD || op == MN_OP_MUL,
         kind = op == MN_OP_ACT || op == MN_OP_GLU;
    int32_t in[2] = {0}, y;
    if (two) {
        two_inputs(g, (const char *const[]){"a", "b"}, (const int64_t[]){s->k, s->k},
                   (const int64_t[]){0, 0}, in);
    } else {
        mark_dead(g);
        in[0] = float_input(g, s->k, 0, "a"), in[1] = float_input(g, s->k, 0, "b");
    }
    y = case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, s->k, NULL, "y");
    uint64_t attr[4] = {kind ? (uint64_t)(s->variant & 3) : case_f64(1.75), case_f64(1.702),
                        case_f64(0.8), case_f64(1)};
    uint32_t n_attr = op == MN_OP_ADD || op == MN_OP_MUL    ? 0
                      : op == MN_OP_GLU && (s->variant & 4) ? 4
                                                            : 1;
    if (n_attr == 4 && (s->variant & 3) != MN_ACT_SILU)
        attr[1] = 0; /* alpha: silu only */
    case_node(g->c, op, in, two ? 2 : 1, &y, 1, attr, n_attr);
}

static void gather(gen *g) {
    const op_shape *s = g->s;
    int64_t n = s->rows < 64 ? s->rows : 64, O = case_symbol(g->c, "n_outputs", n, MN_SYMBOL_SHAPE);
    int32_t rows[64];
    uint8_t *dead = g->c->dead[1] = zeroed(g, n, 1);
    mark_dead(g);
    if (!dead || !g->c->dead[0])
        return;
    for (int64_t i = 0; i < n; i++) {
        bool hole = i >= g->live || (g->holes && i % 5 == 3);
        rows[i] = hole ? -1 : (int32_t)((g->live < n ? g->live : n) - 1 - i);
        dead[i] = hole ? 1 : g->c->dead[0][rows[i]];
    }
    int32_t x = float_input(g, s->k, 0, "x"),
            r = case_vec(g->c, MN_ROLE_INPUT, MN_I32, O, rows, "rows"),
            y = case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, O, s->k, NULL, "y");
    case_node(g->c, MN_OP_GATHER_ROWS, (const int32_t[]){x, r}, 2, &y, 1, NULL, 0);
}

static mn_slot_params draw_params(const gen *g, int64_t i) {
    mn_slot_params p = {.seed = (uint64_t)i * 77 << i % 40,
                        .temp = g->s->variant & 2 ? 0 : (float)(i % 3) * 0.7f,
                        .top_k = (int32_t)(i % 5) * 10,
                        .top_p = i % 2 ? 0.9f : 0,
                        .min_p = i % 7 == 1 ? 0.05f : 0,
                        .repeat_penalty = i % 4 == 3 ? 1.3f : 0,
                        .frequency_penalty = i % 6 == 2 ? 0.4f : 0,
                        .presence_penalty = i % 6 >= 4 ? 0.3f : 0,
                        .penalty_last_n = i % 3 == 1   ? 4
                                          : i % 3 == 2 ? 0
                                                       : -1,
                        .max_new = (int32_t)(i % 3)};
    p.n_stop = i % 2 ? MN_MAX_STOP : 0;
    for (int j = 0; j < p.n_stop; j++)
        p.stop[j] = (int32_t)((j * 3 + i) % g->s->n);
    return p;
}

/* MASK, sparse biases, TARGET and LOGPROB; a third of the rows has a target. */
static void sample_more(gen *g, int32_t *in, int32_t *logprob) {
    const op_shape *s = g->s;
    op_case *c = g->c;
    const int64_t words = (s->n + 31) / 32;
    uint32_t *mask = zeroed(g, s->rows * words, sizeof *mask);
    int32_t *ids = zeroed(g, s->rows * 3, sizeof *ids), *target = zeroed(g, s->rows, 4);
    float *by = zeroed(g, s->rows * 3, sizeof *by);
    for (int64_t i = 0; !c->failed && i < s->rows; i++) {
        target[i] = i % 3 == 1 ? (int32_t)(i % s->n) : -1;
        for (int64_t j = 0; j < words; j++)
            mask[i * words + j] = 0xF7BD6F5Bu;
        for (int j = 0; j < 3; j++) {
            ids[i * 3 + j] = j == 1 ? -1 : (int32_t)((i + j) % s->n);
            by[i * 3 + j] = j == 1 ? 100 : 3 * case_rand(g->seed);
        }
    }
    in[MN_SAMPLE_MASK] = case_mat(c, MN_ROLE_INPUT, MN_I32, g->T, words, mask, "mask");
    in[MN_SAMPLE_BIAS_IDS] = case_mat(c, MN_ROLE_STATE, MN_I32, s->rows, 3, ids, "bias_ids");
    in[MN_SAMPLE_BIAS_VALUES] = case_mat(c, MN_ROLE_STATE, MN_F32, s->rows, 3, by, "bias_values");
    in[MN_SAMPLE_TARGET] = case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, target, "target");
    *logprob = case_vec(c, MN_ROLE_OUTPUT, MN_F32, g->T, NULL, "logprob");
    free(mask), free(ids), free(target), free(by);
}

/* One row per slot, slots in reverse; with holes a done slot, a row without any finite logit, and
 * one with a NaN. */
static void sample(gen *g) {
    const op_shape *s = g->s;
    op_case *c = g->c;
    mn_slot *slots = zeroed(g, s->rows, sizeof *slots);
    mn_slot_params *params = zeroed(g, s->rows, sizeof *params);
    int32_t *slot = zeroed(g, s->rows, 4), *history = zeroed(g, s->rows * 16, 4);
    float *logits = zeroed(g, s->rows * s->n, 4), *bias = zeroed(g, s->rows * s->n, 4);
    uint8_t *dead = c->dead[0] = zeroed(g, s->rows, 1);
    for (int64_t i = 0; !c->failed && i < s->rows * s->n; i++) {
        logits[i] = 4 * (case_rand(g->seed) + case_rand(g->seed));
        bias[i] = i % 11 == 4 ? -INFINITY : 0.5f * case_rand(g->seed);
    }
    for (int64_t i = 0; !c->failed && i < s->rows; i++) {
        float *l = logits + i * s->n;
        slot[i] = (int32_t)(i < g->live ? g->live - 1 - i : -1), dead[i] = i >= g->live;
        slots[i].pos = (int32_t)(3 + i % 12);
        if (g->holes && i % 6 == 5)
            slots[i].done = MN_SLOT_LENGTH;
        params[i] = draw_params(g, i);
        for (int j = 0; j < 16; j++)
            history[i * 16 + j] = (int32_t)((i * 5 + j * 3) % s->n);
        if (dead[i] || s->dirty)
            fill_bad(l, s->n);
        for (int64_t j = 0; j < s->n; j++)
            if ((g->holes && i % 7 == 6) || (s->spoil && i % 2 && j % 3 == 1))
                l[j] = j % 2 && i % 14 != 6 ? NAN : -INFINITY;
        /* their tops are undefined */
        dead[i] |= slot[i] < 0 || (g->holes && (i % 7 == 6 || slot[i] % 6 == 5)) || s->dirty ||
                   (s->spoil && i % 2);
    }
    int32_t in[MN_SAMPLE_TARGET + 1] = {
        case_mat(c, MN_ROLE_INPUT, MN_F32, g->T, s->n, logits, "logits"),
        case_vec(c, MN_ROLE_INPUT, MN_I32, g->T, slot, "out_slot"),
        case_state(c, params, (uint64_t)s->rows * sizeof *params, s->rows, "params"),
        case_state(c, slots, (uint64_t)s->rows * sizeof *slots, s->rows, "slots"),
        case_mat(c, MN_ROLE_STATE, MN_I32, s->rows, 16, history, "history"),
        -1,
        -1,
        -1,
        -1,
        -1};
    if (s->variant & 1)
        in[MN_SAMPLE_BIAS] = case_mat(c, MN_ROLE_INPUT, MN_F32, g->T, s->n, bias, "bias");
    int32_t out[4] = {case_vec(c, MN_ROLE_OUTPUT, MN_I32, g->T, NULL, "ids"),
                      case_mat(c, MN_ROLE_OUTPUT, MN_I32, g->T, 5, NULL, "top_ids"),
                      case_mat(c, MN_ROLE_OUTPUT, MN_F32, g->T, 5, NULL, "top_logprobs"), -1};
    c->every_row[out[0]] = true;
    if (s->variant & 4)
        sample_more(g, in, &out[MN_SAMPLE_OUT_LOGPROB]);
    const uint32_t n_in = s->variant & 4 ? MN_SAMPLE_TARGET + 1 : MN_SAMPLE_BIAS + (s->variant & 1);
    case_node(c, MN_OP_SAMPLE, in, n_in, out, s->variant & 4 ? 4 : 3, NULL, 0);
    free(slots), free(params), free(slot), free(history), free(logits), free(bias);
}

static void moe_route(gen *g) {
    const op_shape *s = g->s;
    mark_dead(g);
    int32_t x = float_input(g, s->n_expert, 0, "logits"),
            b = s->variant & 8 ? vector(g, MN_F32, s->n_expert, "bias") : -1;
    int32_t out[2] = {case_mat(g->c, MN_ROLE_OUTPUT, MN_I32, g->T, s->n_used, NULL, "experts"),
                      case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, s->n_used, NULL, "weights")};
    case_node(g->c, MN_OP_MOE_ROUTE, (const int32_t[]){x, b}, s->variant & 8 ? 2 : 1, out, 2,
              (const uint64_t[]){(uint64_t)(s->variant & 3), s->variant & 4 ? 1 : 0,
                                 s->variant & 4 ? case_f64(2.5) : 0},
              3);
}

static void moe_linear(gen *g, uint32_t dtype) {
    const op_shape *s = g->s;
    int32_t in[6], out[2], *experts = zeroed(g, s->rows * s->n_used, 4);
    uint32_t n = s->variant & 2 ? 2 : 1;
    mark_dead(g);
    for (int64_t i = 0; experts && i < s->rows * s->n_used; i++) /* padding: not to be followed */
        experts[i] = is_hole(g, i / s->n_used) ? (i % 2 ? INT32_MAX : -7)
                                               : (int32_t)((i * 5 + i / s->n_used) % s->n_expert);
    in[0] = s->variant & 1 ? float_input(g, s->n_used, s->k, "x") : float_input(g, s->k, 0, "x");
    in[1] = case_mat(g->c, MN_ROLE_INPUT, MN_I32, g->T, s->n_used, experts, "experts");
    for (uint32_t i = 0; i < n; i++) {
        int64_t dim[3] = {s->n_expert, s->n + i, s->k};
        uint32_t vec = dtype == MN_F16 || dtype == MN_BF16 ? dtype : MN_F32;
        in[2 + 2 * i] = weight(g, dtype, 3, dim, "w");
        in[3 + 2 * i] = i ? weight(g, vec, 2, dim, "b") : -1;
        out[i] = case_cube(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, s->n_used, dim[1], NULL, "y");
    }
    case_node(g->c, MN_OP_MOE_LINEAR, in, 2 + 2 * n, out, n, NULL, 0);
    free(experts);
}

static void moe_combine(gen *g) {
    const op_shape *s = g->s;
    int32_t in[2] = {0}, y;
    two_inputs(g, (const char *const[]){"x", "weights"}, (const int64_t[]){s->n_used, s->n_used},
               (const int64_t[]){s->k, 0}, in);
    y = case_mat(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, s->k, NULL, "y");
    case_node(g->c, MN_OP_MOE_COMBINE, in, 2, &y, 1, NULL, 0);
}

op_case *case_random(uint32_t op, uint32_t dtype, const op_shape *s, uint64_t seed) {
    op_case *c = case_new();
    if (!c)
        return NULL;
    gen g = {c, s, &seed, 0, s->live ? s->live : s->rows, s->live != 0};
    g.T = case_symbol(c, op == MN_OP_SAMPLE ? "n_outputs" : "n_tokens", s->rows, MN_SYMBOL_SHAPE);
    switch (op) {
    case MN_OP_EMBED:
        embed(&g, dtype);
        break;
    case MN_OP_RMS_NORM:
    case MN_OP_LAYER_NORM:
        norm(&g, op, dtype);
        break;
    case MN_OP_LINEAR:
        linear(&g, dtype);
        break;
    case MN_OP_ROPE:
        rope(&g);
        break;
    case MN_OP_KV_STORE:
    case MN_OP_ATTENTION:
        attention(&g);
        break;
    case MN_OP_GATHER_ROWS:
        gather(&g);
        break;
    case MN_OP_SAMPLE:
        sample(&g);
        break;
    case MN_OP_MOE_ROUTE:
        moe_route(&g);
        break;
    case MN_OP_MOE_LINEAR:
        moe_linear(&g, dtype);
        break;
    case MN_OP_MOE_COMBINE:
        moe_combine(&g);
        break;
    default:
        elementwise(&g, op);
    }
    return c;
}

const char *case_op_name(uint32_t op) {
    static const char *const names[] = {
#define ROW(name, id) [id] = #name,
        MN_OPS(ROW)
#undef ROW
    };
    return op < sizeof names / sizeof *names ? names[op] : NULL;
}
