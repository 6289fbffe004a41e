/* inputs.c -- sums of squares of what products read, text by text, from which an importance matrix
 * is made. The session owns the sums; its placement is cut, so that steps are run by
 * mn_engine_observe and nothing is ever in flight here. Rows are added in double on one thread:
 * little work beside the products. */
#include "session/session.h"
#include <math.h>

void mn_input_sums_free(mn_input_sums *sums) {
    for (size_t i = 0; i < sums->n; i++) {
        mn_free(sums->at[i].sums);
        mn_free(sums->at[i].counts);
    }
    mn_free(sums->at);
    *sums = (mn_input_sums){0};
}

/* The sums of a weight, made when its first row comes. NULL: out of memory. */
static mn_imatrix_sums *sums_of(mn_input_sums *all, const mn_product_input *in) {
    void *list = all->at;
    const mn_str name = in->weight->name;
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].name.ptr == name.ptr)
            return &all->at[i];
    if (!mn_grow(&list, &all->cap, all->n + 1, sizeof *all->at))
        return NULL;
    all->at = list;
    mn_imatrix_sums *w = &all->at[all->n];
    *w = (mn_imatrix_sums){.name = name, .n_cols = in->n_cols, .n_mat = in->n_mat};
    w->sums = mn_calloc(in->n_cols * in->n_mat, sizeof *w->sums);
    w->counts = mn_calloc(in->n_mat, sizeof *w->counts);
    all->n++;
    return w->sums && w->counts ? w : NULL;
}

/* x: [n_cols] */
static void add_row(mn_imatrix_sums *w, uint64_t mat, const float *x) {
    double *sums = w->sums + mat * w->n_cols;
    for (uint64_t i = 0; i < w->n_cols; i++)
        sums[i] += (double)x[i] * (double)x[i];
    w->counts[mat]++;
}

static void add_chosen(mn_imatrix_sums *w, const mn_product_input *in, uint64_t row) {
    for (uint64_t j = 0; j < in->n_chosen; j++) {
        const int32_t expert = in->experts[row * in->n_chosen + j];
        const uint64_t each = in->n_each > 1 ? j : 0;
        if (expert >= 0 && (uint64_t)expert < w->n_mat)
            add_row(w, (uint64_t)expert, in->x + (row * in->n_each + each) * in->x_cols);
    }
}

static mn_status on_product(void *arg, const mn_product_input *in, mn_error *err) {
    mn_session *s = arg;
    mn_imatrix_sums *w = sums_of(&s->sums, in);
    if (!w)
        return mn_fail_memory(err, in->n_cols * in->n_mat * sizeof *w->sums);
    for (uint64_t row = 0; row < in->n_rows; row++) {
        if (in->experts)
            add_chosen(w, in, row);
        else
            for (uint64_t i = 0; i < in->n_each; i++)
                add_row(w, i, in->x + (row * in->n_each + i) * in->x_cols);
    }
    for (uint64_t i = 0; i < w->n_cols * w->n_mat; i++)
        if (!isfinite((float)w->sums[i]))
            return mn_fail(err, MN_BAD_FILE,
                           "%s: an input of %.*s (column %llu) is not finite, expected numbers: "
                           "the weights are damaged, or too large for the device's types "
                           "(--precision exact)",
                           s->model->canonical->path, MN_STR_ARG(w->name),
                           (unsigned long long)(i % w->n_cols));
    return MN_OK;
}

static mn_status sum_rows(mn_session *s, uint32_t seq, uint32_t n, mn_error *err) {
    mn_engine *e = s->steps.engine;
    mn_engine_step step = {.inputs = s->steps.packed};
    mn_step_size size;
    mn_status st = mn_session_pack_rows(s, seq, n, &size, err);
    if (st)
        return st;
    s->steps.sent_valid = false;
    mn_engine_describe(e, &size, s->steps.packed);
    mn_engine_symbols(e, &size, step.symbols);
    st = mn_engine_observe(e, &step, &size, on_product, s, err);
    return mn_steps_settle(&s->steps, st, err);
}

mn_status mn_session_input_sums(mn_session *s, const int32_t *ids, uint32_t n, mn_error *err) {
    static const mn_sample_params greedy = {.size = sizeof greedy};
    mn_error why = MN_ERROR_INIT;
    int32_t seq = -1;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"ids", ids}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st && !s->sums_inputs)
        st = mn_fail(err, MN_INVALID,
                     "mn_session_input_sums: the session was made without MN_SESSION_INPUT_SUMS");
    if (!st)
        st = mn_seq_begin(s, ids, n, &greedy, &seq, err);
    if (st)
        return st;
    s->steps.seqs[seq].running = false;
    const uint32_t block = MN_MIN(s->steps.n_outputs, s->steps.n_batch);
    for (uint32_t at = 0; at < n && !st; at += block)
        st = sum_rows(s, (uint32_t)seq, MN_MIN(block, n - at), err);
    mn_seq_free(s, seq);
    s->sums.n_texts += !st;
    return st;
}

mn_status mn_session_write_imatrix(mn_session *s, const char *path, const char *dataset,
                                   uint32_t flags, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {"path", path}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = mn_args_flags(err, "flags", flags,
                           MN_IMATRIX_REPLACE | MN_IMATRIX_OLD | MN_IMATRIX_OUTPUT);
    if (st)
        return st;
    const mn_imatrix_made made = {.at = s->sums.at,
                                  .n = s->sums.n,
                                  .dataset = mn_str_of(dataset ? dataset : ""),
                                  .n_chunks = s->sums.n_texts,
                                  .chunk_tokens = s->steps.n_ctx,
                                  .old = flags & MN_IMATRIX_OLD,
                                  .only_layers = !(flags & MN_IMATRIX_OUTPUT)};
    return mn_imatrix_write(path, &made, flags & MN_IMATRIX_REPLACE, err);
}
