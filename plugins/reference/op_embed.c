/* op_embed.c -- EMBED: token ids of the step, literal or the slots' own, as rows of the table; the
 * slots go forward. */
#include "reference.h"
#include <string.h>

/* The state goes forward row by row, on one worker; ids: shared scratch [T], -1 = no row. */
static void resolve(const mnc_call *c, int32_t *ids) {
    const int32_t *src = c->in[MN_EMBED_SRC].ptr;
    const int32_t *pos = c->in[MN_EMBED_POS].ptr;
    const int32_t *row_slot = c->in[MN_EMBED_ROW_SLOT].ptr;
    int32_t *history = c->in[MN_EMBED_HISTORY].ptr;
    int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    int64_t n_slots = c->in[MN_EMBED_HISTORY].rows;
    int64_t n_ctx = c->in[MN_EMBED_HISTORY].cols;
    int64_t n_vocab = c->in[MN_EMBED_WEIGHT].weight->rows;
    for (int64_t t = 0; t < c->in[MN_EMBED_SRC].rows; t++) {
        const int32_t s = row_slot[t];
        ids[t] = row_pos[t] = -1;
        if (s < 0 || s >= n_slots)
            continue;
        mn_slot *slot = mnc_row_of(&c->in[MN_EMBED_SLOTS], s);
        if (src[t] < 0 && slot->done)
            continue;
        int32_t id = src[t] < 0 ? slot->last_id : src[t];
        const int32_t p = pos[t] < 0 ? slot->pos : pos[t];
        if (p < 0 || p >= n_ctx)
            continue;
        if (id < 0 || id >= n_vocab)
            id = 0;
        ids[t] = id;
        row_pos[t] = p;
        history[s * n_ctx + p] = id;
        slot->pos = p + 1;
    }
}

static void embed(const mnc_call *c, mnc_worker *w) {
    const mnc_weight *table = c->in[MN_EMBED_WEIGHT].weight;
    int32_t *ids = c->shared;
    float *x = c->out[MN_EMBED_OUT_X].ptr; /* [T, D] */
    double scale = mnc_attr_f64(c, MN_EMBED_ATTR_SCALE);
    const mnc_weight *positions = c->in[MN_EMBED_POS_WEIGHT].weight;
    const int32_t *row_pos = c->out[MN_EMBED_OUT_ROW_POS].ptr;
    float *learned = w->scratch; /* [D] */
    int64_t lo;
    int64_t hi;
    int64_t d = table->cols;
    if (scale == 0)
        scale = 1;
    if (w->i == 0)
        resolve(c, ids);
    mnc_barrier(w);
    mnc_range(w, c->in[MN_EMBED_SRC].rows, 1, &lo, &hi);
    for (int64_t t = lo; t < hi; t++) {
        if (ids[t] < 0) {
            memset(x + t * d, 0, (size_t)d * sizeof *x);
            continue;
        }
        ref_row(table, ids[t], x + t * d);
        if (positions)
            ref_row(positions, row_pos[t] < positions->rows ? row_pos[t] : positions->rows - 1,
                    learned);
        for (int64_t i = 0; i < d; i++)
            x[t * d + i] =
                (float)(scale * (double)x[t * d + i] + (positions ? (double)learned[i] : 0));
    }
}

static void size(const mnc_query *q, mnc_op *op) {
    op->shared_bytes = ref_first_dim(q, MN_EMBED_SRC) * sizeof(int32_t);
    op->worker_bytes = ref_last_dim(q, MN_EMBED_WEIGHT) * sizeof(float);
}

static uint32_t weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    (void)q;
    if (i == MN_EMBED_POS_WEIGHT)
        return ref_vector(t);
    return ref_has_type(t->dtype.id) ? 0 : REF_NO_TYPE;
}

const ref_op ref_op_embed = {
    .fn = embed,
    .size = size,
    .weight = weight,
};
