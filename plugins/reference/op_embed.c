/* op_embed.c -- EMBED: token ids of the step, literal or the slots' own, as rows of the table; the
 * slots go forward. */
#include "reference.h"
#include <string.h>

/* ROWS [N, D]; NULL: the node lacks it. */
static const mnc_operand *given_rows(const mnc_call *c) {
    return MN_EMBED_ROWS < c->node->n_in && c->in[MN_EMBED_ROWS].ptr ? &c->in[MN_EMBED_ROWS] : NULL;
}

/* Row t's id, or -2 - n of row n of ROWS, and its position at *pos; both -1 if it is no row. Its
 * slot goes forward. */
static int32_t embedding_resolve_row(const mnc_call *c, int64_t t, int32_t *pos) {
    const int32_t *all_src = c->in[MN_EMBED_SRC].ptr;
    const int32_t *all_pos = c->in[MN_EMBED_POS].ptr;
    const int32_t *row_slot = c->in[MN_EMBED_ROW_SLOT].ptr;
    const int32_t src = all_src[t];
    const int32_t given_pos = all_pos[t];
    const int32_t s = row_slot[t];
    int32_t *history = c->in[MN_EMBED_HISTORY].ptr; /* [n_slots, n_ctx] */
    const int64_t n_slots = c->in[MN_EMBED_HISTORY].rows;
    const int64_t n_ctx = c->in[MN_EMBED_HISTORY].cols;
    const int64_t n_vocab = c->in[MN_EMBED_WEIGHT].weight->rows;
    *pos = -1;
    if (s < 0 || s >= n_slots)
        return -1;
    mn_slot *slot = mnc_row_of(&c->in[MN_EMBED_SLOTS], s);
    const mnc_operand *given = given_rows(c);
    const bool is_given = given && src < -n_slots;
    if (src < 0 && !is_given && slot->done)
        return -1;
    int32_t p = given_pos;
    if (given_pos < 0)
        p = slot->pos;
    if (p < 0 || p >= n_ctx)
        return -1;
    int32_t id = src;
    if (src < 0)
        id = slot->last_id;
    if (is_given || id < 0 || id >= n_vocab)
        id = 0;
    *pos = p;
    history[s * n_ctx + p] = id;
    slot->pos = p + 1;
    if (!is_given)
        return id;
    const int64_t row = -n_slots - 1 - src;
    return (int32_t)(-2 - (row < given->rows ? row : 0));
}

/* The state goes forward row by row, on one worker; ids: shared scratch [T], -1 = no row. */
static void embedding_resolve(const mnc_call *c, int32_t *ids) {
    int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    for (int64_t t = 0; t < c->in[MN_EMBED_SRC].rows; t++)
        ids[t] = embedding_resolve_row(c, t, &row_pos[t]);
}

/* The learned embedding of a position; those behind the last one have the last one's. */
static void position_row(const mnc_weight *positions, int64_t pos, float *out) {
    const int64_t last = positions->rows - 1;
    ref_row(positions, pos < last ? pos : last, out);
}

/* x = scale x + learned */
static void scale_row(float *x, int64_t d, double scale, const float *learned) {
    for (int64_t i = 0; i < d; i++) {
        double offset = 0;
        if (learned)
            offset = learned[i];
        x[i] = (float)(scale * x[i] + offset);
    }
}

/* The first of the parts does it all. */
static void resolve_all(const mnc_call *c, mnc_worker *w) {
    if (w->i == 0)
        embedding_resolve(c, c->shared);
}

static void embed(const mnc_call *c, mnc_worker *w) {
    const mnc_weight *table = c->in[MN_EMBED_WEIGHT].weight;
    const mnc_weight *positions = c->in[MN_EMBED_POS_WEIGHT].weight;
    const int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    const int64_t d = table->cols;
    const int32_t *ids = c->shared;
    float *learned = positions ? w->scratch : NULL; /* [D] */
    double scale = mnc_attr_f64(c, MN_EMBED_ATTR_SCALE);
    int64_t lo;
    int64_t hi;
    if (scale == 0)
        scale = 1;
    mnc_range(w, c->in[MN_EMBED_SRC].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        float *x = (float *)c->out[MN_EMBED_OUT_X].ptr + t * d; /* of [T, D] */
        if (ids[t] == -1) {
            memset(x, 0, (size_t)d * sizeof *x);
            continue;
        }
        const bool is_given = ids[t] < 0;
        if (is_given)
            memcpy(x, (const float *)given_rows(c)->ptr + (-2 - ids[t]) * d, (size_t)d * sizeof *x);
        else
            ref_row(table, ids[t], x);
        if (positions)
            position_row(positions, row_pos[t], learned);
        scale_row(x, d, is_given ? 1 : scale, learned);
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    op->shared_bytes = ref_first_dim(q, MN_EMBED_SRC) * sizeof(int32_t);
    op->worker_bytes = ref_last_dim(q, MN_EMBED_WEIGHT) * sizeof(float);
}

/* Rows that are given are as wide as the table's. */
static bool embed_fits(const mnc_query *q) {
    const mn_tensor *rows = mnc_query_in(q, MN_EMBED_ROWS);
    const mn_tensor *table = mnc_query_in(q, MN_EMBED_WEIGHT);
    return !rows || (table && rows->n_dim == 2 && rows->dim[1] == table->dim[table->n_dim - 1]);
}

static uint32_t weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    if (i == MN_EMBED_POS_WEIGHT)
        return ref_vector(t);
    if (ref_has_type(t->dtype.id))
        return 0;
    return REF_NO_TYPE;
}

const ref_op ref_op_embed = {
    .first = resolve_all,
    .fn = embed,
    .size = size,
    .weight = weight,
    .fits = embed_fits,
};
