/* case_cache.c -- random cases of KV_STORE and ATTENTION, also with several layers in two KV
 * groups.
 *
 * The cache is filled by a KV_STORE of the same graph: `past` rows of each sequence, then the
 * rows of the step, from row 0 on without gaps. The store has a row for every place of every
 * page: what is left over is padding, and a dirty case fills all places with NaN. Used by
 * case_ops.c through case_gen.h; cache_plan owns its arrays until plan_free, the case has
 * copies. */
#include "case_gen.h"
#include <math.h>
#include <stdlib.h>

enum { WINDOW = 17, CHUNK = 23, BUCKETS = 12, FAR = 40, PLACES = 26, N_MORE = 6 };

/* What is stored and asked, per sequence q: rows [q * per, (q + 1) * per) of the step, rows
 * [q * len, (q + 1) * len) of the store. */
typedef struct {
    int64_t n_seqs;
    int64_t per;   /* rows of the step */
    int64_t len;   /* keys: past + per */
    int64_t pages; /* of one sequence */
    int64_t page_tokens;
    int64_t rows;          /* of the store: n_seqs * pages * page_tokens */
    int32_t *kpos, *kslot; /* [rows]: position and slot of each stored row, -1 = padding */
    int32_t *qpos, *qslot; /* [rows of the step] */
    int32_t *lengths;      /* [n_seqs], by slot: stored positions that cross attention sees */
    int32_t *seqs;         /* [n_seqs, 4]: first row, number of rows, slot, 0 */
    int32_t *table;        /* [n_seqs, pages]: the page table, by slot; -1 = no page */
    uint8_t *kdead;        /* [rows]: not 0 = the key and value hold NaN */
} cache_plan;

/* With a window (variant bit 0), pages before the window of the step's first rows have been
 * given back: they have no entry in the table, nothing is stored in them, and their memory holds
 * what a dirty case left there. */
static void case_cache_give_back(const op_shape *s, cache_plan *a) {
    const int64_t n_pages = (s->past - WINDOW + 1) / a->page_tokens;
    const int64_t n_rows = n_pages * a->page_tokens;
    if (!(s->variant & 1) || s->dirty || s->past < WINDOW)
        return;
    for (int64_t q = 0; q < a->n_seqs; q++) {
        for (int64_t i = 0; i < n_pages; i++)
            a->table[q * a->pages + i] = -1;
        for (int64_t i = q * a->len; i < q * a->len + n_rows; i++) {
            a->kpos[i] = -1;
            a->kdead[i] = 1;
        }
    }
}

/* Sequence q of the plan. With holes, slots are in reverse order, and sequence 1 of three or
 * more is done: its rows of the step are there and have no effect. With spoil, the first key of
 * the last sequence holds NaN. */
static void plan_sequence(casegen *g, cache_plan *a, int64_t q) {
    const int64_t past = g->s->past;
    const int64_t left = g->live - q * a->per;
    const int64_t used = left < a->per ? left : a->per;
    const int32_t slot = (int32_t)(g->holes ? a->n_seqs - 1 - q : q);
    const bool done = g->holes && a->n_seqs > 2 && q == 1;
    const bool spoiled = g->s->spoil && a->n_seqs > 1 && q == a->n_seqs - 1;
    if (used <= 0)
        return;
    for (int64_t i = 0; i < past + used; i++) {
        const int64_t row = q * a->len + i;
        const bool unused = done && i >= past;
        a->kslot[row] = slot;
        if (unused)
            a->kpos[row] = -1;
        else
            a->kpos[row] = (int32_t)i;
        a->kdead[row] = unused || (spoiled && i == 0);
    }
    for (int64_t i = 0; i < used; i++) {
        const int64_t t = q * a->per + i;
        if (done)
            a->qpos[t] = -1;
        else
            a->qpos[t] = (int32_t)(past + i);
        a->qslot[t] = slot;
        g->c->dead[0][t] = casegen_row_mark(g, done, spoiled || t == casegen_spoiled_row(g));
    }
    a->seqs[4 * q] = (int32_t)(q * a->per);
    a->seqs[4 * q + 1] = (int32_t)used;
    a->seqs[4 * q + 2] = slot;
    a->lengths[slot] = (int32_t)(1 + (past + used - 1) * 2 / 3);
    if (done)
        a->lengths[slot] = 1;
}

static void plan_rows(casegen *g, cache_plan *a) {
    const int64_t places = a->pages * a->page_tokens; // of one sequence
    for (int64_t i = 0; i < a->rows; i++) {
        a->kpos[i] = -1;
        a->kslot[i] = -1;
        a->kdead[i] = 1;
    }
    for (int64_t t = 0; t < g->s->rows; t++) {
        a->qpos[t] = -1;
        a->qslot[t] = -1;
    }
    for (int64_t q = 0; q < a->n_seqs; q++)
        plan_sequence(g, a, q);
    for (int64_t i = 0; g->s->dirty && i < a->rows; i++) {
        a->kpos[i] = (int32_t)(i % places);
        a->kslot[i] = (int32_t)(i / places);
    }
    // Pages descend and those of the sequences alternate: a plugin that ignores the table is found.
    for (int64_t slot = 0; slot < a->n_seqs; slot++)
        for (int64_t i = 0; i < a->pages; i++)
            a->table[slot * a->pages + i] = (int32_t)(1 + (a->pages - 1 - i) * a->n_seqs + slot);
    case_cache_give_back(g->s, a);
}

/* Fills the plan for the generator's shape; false = out of memory. plan_free after it in either
 * case. */
static bool plan_make(casegen *g, cache_plan *a) {
    const op_shape *s = g->s;
    *a = (cache_plan){.n_seqs = s->n_seqs ? s->n_seqs : 1};
    if (s->page_tokens)
        a->page_tokens = s->page_tokens;
    else
        a->page_tokens = 64;
    a->per = (s->rows + a->n_seqs - 1) / a->n_seqs;
    a->len = s->past + a->per;
    a->pages = (a->len + a->page_tokens - 1) / a->page_tokens;
    a->rows = a->n_seqs * a->pages * a->page_tokens;
    const int64_t n_table = a->n_seqs * a->pages;
    const int64_t n_words = 2 * a->rows + 2 * s->rows + 5 * a->n_seqs + n_table;
    a->kpos = casegen_zeroed(g, n_words, sizeof *a->kpos);
    a->kdead = casegen_zeroed(g, a->rows, 1);
    if (!a->kpos || !a->kdead || !g->c->dead[0])
        return false;
    a->kslot = a->kpos + a->rows;
    a->qpos = a->kslot + a->rows;
    a->qslot = a->qpos + s->rows;
    a->seqs = a->qslot + s->rows;
    a->table = a->seqs + 4 * a->n_seqs;
    a->lengths = a->table + n_table;
    plan_rows(g, a);
    return true;
}

static void plan_free(cache_plan *a) {
    free(a->kpos);
    free(a->kdead);
}

/* What the layers of one KV group share: tensors, and the symbol of the rows that are stored. */
typedef struct {
    uint32_t group;
    int64_t n_stored;
    int32_t kpos, kslot, pages, kv, row_pos, row_slot, seqs;
} cache_tensors;

static cache_tensors cache_tensors_of(casegen *g, const cache_plan *a, uint32_t group) {
    op_case *c = g->c;
    const int64_t U = case_symbol(c, "n_stored", a->rows, MN_SYMBOL_SHAPE);
    const int64_t Q = case_symbol(c, "n_seqs", a->n_seqs, MN_SYMBOL_SHAPE);
    const int64_t P = case_symbol(c, "n_pages", a->pages, MN_SYMBOL_BOUND);
    const uint32_t n_pages = (uint32_t)(a->n_seqs * a->pages + 1);
    uint32_t kv_dtype = MN_F32;
    if (g->s->kv_dtype)
        kv_dtype = g->s->kv_dtype;
    cache_tensors t = {
        .group = group,
        .n_stored = U,
    };
    t.kpos = case_vec(c, MN_ROLE_INPUT, MN_I32, U, a->kpos, "kpos");
    t.kslot = case_vec(c, MN_ROLE_INPUT, MN_I32, U, a->kslot, "kslot");
    t.pages = case_mat(c, MN_ROLE_INPUT, MN_I32, a->n_seqs, P, a->table, "pages");
    t.kv = case_kv_of(c, kv_dtype, n_pages, group);
    if (g->s->v_dtype)
        c->v_dtype = g->s->v_dtype;
    if (g->s->kv_free) {
        c->kv_dtype = MN_DTYPE_NONE;
        c->v_dtype = MN_DTYPE_NONE;
    }
    t.row_pos = casegen_int_input(g, a->qpos, "row_pos");
    t.row_slot = casegen_int_input(g, a->qslot, "row_slot");
    t.seqs = case_mat(c, MN_ROLE_INPUT, MN_I32, Q, 4, a->seqs, "seqs");
    return t;
}

/* Which rows of its sequence each row sees: a tree: some of the rows in front of it, itself
 * and the first one, and now and then one behind it. One word less than the longest sequence needs,
 * so that the last rows see nothing of themselves. */
static int32_t ancestors_of(casegen *g, const cache_plan *a) {
    const int64_t n_words = a->per > 32 ? a->per / 32 : 1;
    int32_t *bits = casegen_zeroed(g, g->s->rows * n_words, sizeof *bits); // [T, n_words]
    if (!bits)
        return -1;
    for (int64_t t = 0; t < g->s->rows; t++) {
        const int64_t own = t % a->per;
        for (int64_t j = 0; j < 32 * n_words; j++) {
            const bool is_before = j < own && case_rand(g->seed) > 0.2f;
            const bool is_behind = j == own + 1 && j < a->seqs[4 * (t / a->per) + 1] && t % 7 == 2;
            if (!j || j == own || is_before || is_behind)
                bits[t * n_words + j / 32] |= (int32_t)(1u << j % 32);
        }
    }
    const int32_t x = case_mat(g->c, MN_ROLE_INPUT, MN_I32, g->T, n_words, bits, "ancestors");
    free(bits);
    return x;
}

/* The optional operands from ALIBI on. */
static void more_operands(casegen *g, const cache_plan *a, int32_t to[N_MORE]) {
    const op_shape *s = g->s;
    const int64_t places[3] = {PLACES, s->n_head, s->dim};
    for (int i = 0; i < N_MORE; i++)
        to[i] = -1;
    if (s->variant & 16)
        to[0] = casegen_vector(g, MN_F32, s->n_head, "slopes");
    if (s->variant & 256)
        to[1] = casegen_matrix(g, MN_F32, BUCKETS, s->n_head, "biases");
    if (s->variant & 128)
        to[2] = case_vec(g->c, MN_ROLE_INPUT, MN_I32, a->n_seqs, a->lengths, "lengths");
    if (s->variant & 512)
        to[3] = ancestors_of(g, a);
    if (s->variant & 1024)
        to[4] = casegen_weight(g, MN_F32, 3, places, "relative_k");
    if (s->variant & 2048)
        to[5] = casegen_weight(g, MN_F32, 3, places, "relative_q");
}

/* A KV_STORE and an ATTENTION of one layer. variant: bit 0 window, 1 softcap, 2 sinks,
 * 3 bidirectional, 4 slopes, 5 values are the first elements of keys, 6 chunks, 7 lengths,
 * 8 biases of distances, 9 ancestors, 10 relative keys, 11 relative queries; with both of these
 * rows of far distances are shared. k: [n_stored, n_head_kv, dim], q: [T, n_head, dim]. */
static void attention_nodes(casegen *g, const cache_plan *a, const cache_tensors *t,
                            uint64_t layer) {
    const op_shape *s = g->s;
    const bool v_of_k = s->variant & 32;
    int64_t dim_v = s->dim_v ? s->dim_v : s->dim;
    if (v_of_k && !s->dim_v)
        dim_v -= dim_v / 4;
    const int64_t drawn = a->n_seqs * a->len;
    const int64_t U = t->n_stored;
    const int64_t n_kv = s->n_head_kv;
    const int32_t k = casegen_float_rows(g, U, a->rows, drawn, a->kdead, n_kv, s->dim, "k");
    int32_t v = -1;
    if (!v_of_k)
        v = casegen_float_rows(g, U, a->rows, drawn, a->kdead, n_kv, dim_v, "v");
    const int32_t q = casegen_float_input(g, s->n_head, s->dim, "q");
    const int32_t y = case_cube(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, s->n_head, dim_v, NULL, "y");
    int32_t sinks = -1;
    if (s->variant & 4)
        sinks = casegen_vector(g, MN_F32, s->n_head, "sinks");
    int32_t more[N_MORE];
    more_operands(g, a, more);
    const int32_t store_in[] = {k, v, t->kpos, t->kslot, t->pages, t->kv};
    const int32_t in[] = {q,       t->row_pos, t->row_slot, t->seqs, t->pages, t->kv,  sinks,
                          more[0], more[1],    more[2],     more[3], more[4],  more[5]};
    const uint64_t store_attr[] = {layer, t->group};
    const uint64_t attr[] = {
        case_f64(1 / sqrt((double)s->dim)),
        s->variant & 1 ? WINDOW : 0,
        s->variant & 2 ? case_f64(1.5) : 0, // softcap
        layer,
        t->group,
        (uint64_t)s->n_head_kv,
        (uint64_t)(v_of_k ? dim_v : s->dim_v),
        s->variant & 8 ? 1 : 0, // bidirectional
        v_of_k,
        s->variant & 64 ? CHUNK : 0,
        s->variant & 256 || s->variant >= 1024 + 2048 ? FAR : 0,
    };
    const bool old = s->variant < 16;
    case_node(g->c, MN_OP_KV_STORE, store_in, 6, NULL, 0, store_attr, 2);
    uint32_t n_in = old ? 7 : 8;
    if (s->variant >= 128)
        n_in = s->variant >= 1024 ? 13 : 11;
    uint32_t n_attr = old ? 8 : 10;
    if (s->variant & 256 || s->variant >= 1024)
        n_attr = 11;
    case_node(g->c, MN_OP_ATTENTION, in, n_in, &y, 1, attr, n_attr);
}

void casegen_attention(casegen *g, uint32_t op, uint32_t dtype) {
    cache_plan a;
    (void)op;
    (void)dtype;
    casegen_mark_dead(g);
    if (plan_make(g, &a)) {
        const cache_tensors t = cache_tensors_of(g, &a, g->s->kv_group);
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
    casegen g = casegen_begin(c, shape, &seed, "n_tokens");
    casegen_mark_dead(&g);
    for (uint32_t i = 0; i < CASE_GROUPS; i++) {
        g.s = &shape[i];
        if (!plan_make(&g, &a[i]))
            c->failed = true;
        if (!c->failed)
            t[i] = cache_tensors_of(&g, &a[i], i);
    }
    for (uint32_t i = 0; i < n_layers && !c->failed; i++) {
        const uint32_t group = i % CASE_GROUPS;
        g.s = &shape[group];
        attention_nodes(&g, &a[group], &t[group], i / CASE_GROUPS);
    }
    for (uint32_t i = 0; i < CASE_GROUPS; i++)
        plan_free(&a[i]);
    return c;
}
