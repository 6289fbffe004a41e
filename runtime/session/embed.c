/* embed.c -- mn_session_embed: the hidden states of texts, several texts per step, pooled into one
 * vector each.
 *
 * A session that embeds has no sequences: its slots and pages are lent to the texts of one wave, as
 * many as there are slots (of an encoder: as fit into one step), and come back when the wave is
 * over. Steps are waited for, so that nothing is ever in flight here. A wave whose device was lost
 * is computed again on the next one. */
#include "session/session.h"
#include <math.h>
#include <string.h>

typedef struct {
    mn_session *s;
    const mn_embed_text *texts;
    uint32_t n_texts, pooling, norm, n_dim;
    float *out;   /* [n_texts, n_dim] */
    double *sums; /* [n_seq, D]: of the rows of each slot's text that count */
    /* of scores; NULL: the vectors themselves are asked for. n_dim is 1 then */
    const mn_head *head;
    const mn_head *dense; /* of vectors: what follows the pooling; NULL: nothing */
    double *scratch;      /* [2, widest of the head, or of what follows] */
    bool logits;
    uint32_t label; /* 1 + of a head with several; 0: it has one */
} job;

/* The outputs of a slot's text in one step: rows [first, first + n) of the hidden states. */
typedef struct {
    uint32_t first, n;
} slot_rows;

mn_status mn_embed_refuse_encoder(const mn_model *m, mn_error *err) {
    if (!mn_hparams_is_encoder(m->canonical))
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED,
                   "%s is an encoder (%s): it makes embeddings (minerva embed, /v1/embeddings) and "
                   "generates no text",
                   m->canonical->path, m->arch);
}

/* ---- arguments ------------------------------------------------------------------------------- */
/* The error is about text i. */
static mn_status blame(mn_error *err, uint32_t i, mn_status st) {
    err->part = i + 1;
    return st;
}

static mn_status check_length(const mn_session *s, const mn_embed_text *t, uint32_t i,
                              mn_error *err) {
    const mn_hparams *hp = &s->steps.graph->hp;
    if (!t->n)
        return mn_fail(err, MN_BAD_INPUT, "text %u is empty: it has no token", i + 1);
    if (!t->ids)
        return mn_fail(err, MN_INVALID, "mn_session_embed: texts[%u].ids is NULL", i);
    if (t->n > s->steps.n_ctx)
        return mn_fail(err, MN_BAD_INPUT,
                       "text %u has %u tokens, the context %u (-c; the model was trained for %lld)",
                       i + 1, t->n, s->steps.n_ctx, (long long)hp->n_ctx_train);
    if (hp->bidirectional && t->n > s->steps.n_batch)
        return mn_fail(err, MN_BAD_INPUT,
                       "text %u has %u tokens, a step %u rows: an encoder reads a text in one step "
                       "(--batch)",
                       i + 1, t->n, s->steps.n_batch);
    return MN_OK;
}

static mn_status check_text(const mn_session *s, const mn_embed_text *t, uint32_t i,
                            mn_error *err) {
    const int64_t n_vocab = s->steps.graph->hp.n_vocab;
    mn_status st = check_length(s, t, i, err);
    for (uint32_t k = 0; k < t->n && !st; k++)
        if (t->ids[k] < 0 || t->ids[k] >= n_vocab)
            st = mn_fail(err, MN_BAD_INPUT,
                         "text %u: token id %d at place %u is outside the vocabulary of %lld",
                         i + 1, t->ids[k], k, (long long)n_vocab);
    if (st)
        return blame(err, i, st);
    return MN_OK;
}

/* What p asks for, with the model's own where it says nothing. */
static mn_status set_job(job *j, const mn_embed_params *p, mn_error *err) {
    const mn_session *s = j->s;
    const mn_head *dense = &s->model->embed.dense;
    uint32_t width = (uint32_t)s->steps.graph->hp.n_embd;
    mn_status st = MN_OK;
    if (dense->n) {
        j->dense = dense;
        width = dense->layer[dense->n - 1].n_out;
    }
    if (p->pooling > MN_POOLING_LAST || p->norm > MN_NORM_NONE)
        return mn_fail(err, MN_INVALID,
                       "mn_embed_params: pooling %u, norm %u: expected MN_POOLING_* (0 to %u) and "
                       "MN_NORM_* (0 to %u)",
                       p->pooling, p->norm, MN_POOLING_LAST, MN_NORM_NONE);
    if (p->n_dim > width)
        return mn_fail(err, MN_INVALID,
                       "mn_embed_params.n_dim: found %u, expected at most %u: the model's",
                       p->n_dim, width);
    j->pooling = p->pooling;
    j->norm = p->norm;
    j->n_dim = p->n_dim ? p->n_dim : width;
    if (!p->pooling)
        st = mn_pooling_defaults(s->model, &j->pooling, NULL, err);
    if (!st && !p->norm)
        j->norm = s->model->embed.norm;
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* Row `row` of the text at position pos counts: it is an output. */
static bool counts(const job *j, const mn_embed_text *t, uint32_t pos) {
    if (j->pooling == MN_POOLING_CLS)
        return pos == 0;
    if (j->pooling == MN_POOLING_LAST)
        return pos + 1 == t->n;
    return true;
}

/* Packs the text's next m tokens behind what the step holds. */
static slot_rows add_rows(const job *j, uint32_t slot, const mn_embed_text *t, uint32_t m,
                          mn_step_size *size) {
    mn_session *s = j->s;
    mn_sequence *q = &s->steps.seqs[slot];
    const mn_input_layout *l = &s->steps.engine->in;
    int32_t *seqs = s->steps.packed + l->seqs + 4 * (size_t)size->n_seqs; // [n_seqs, 4]
    slot_rows rows = {.first = size->n_out};
    seqs[0] = (int32_t)size->n_rows;
    seqs[1] = (int32_t)m;
    seqs[2] = (int32_t)slot;
    for (uint32_t i = 0; i < m; i++) {
        const uint32_t row = size->n_rows + i;
        const uint32_t pos = q->n_enqueued + i;
        s->steps.packed[l->src + row] = t->ids[pos];
        if (j->head && s->steps.graph->typed && pos >= t->n_first)
            s->steps.packed[l->src + row] += (int32_t)s->steps.graph->hp.n_vocab;
        s->steps.packed[l->pos + row] = (int32_t)pos;
        s->steps.packed[l->row_slot + row] = (int32_t)slot;
        mn_step_adapt_row(&s->steps, row, q);
        if (counts(j, t, pos))
            s->steps.packed[l->out_row + size->n_out++] = (int32_t)row;
    }
    mn_state_step(&j->s->steps.kv, slot, q->n_enqueued, m, true);
    q->n_enqueued += m;
    size->n_seqs++;
    size->n_rows += m;
    size->max_rows = MN_MAX(size->max_rows, m);
    size->longest = MN_MAX(size->longest, q->n_enqueued);
    rows.n = size->n_out - rows.first;
    return rows;
}

/* Rows of the wave's texts, as many as the batch has room for. rows: [n] */
static mn_status fill_wave(const job *j, uint32_t first, uint32_t n, slot_rows *rows,
                           mn_step_size *size, mn_error *err) {
    mn_session *s = j->s;
    *size = (mn_step_size){0};
    memset(rows, 0, n * sizeof *rows);
    mn_step_clear(&s->steps);
    for (uint32_t i = 0; i < n; i++) {
        const mn_embed_text *t = &j->texts[first + i];
        const mn_sequence *q = &s->steps.seqs[i];
        const uint32_t m = MN_MIN(t->n - q->n_enqueued, s->steps.n_batch - size->n_rows);
        if (!m)
            continue;
        mn_pages_trim(&s->steps.kv, i, mn_seq_text(&s->steps.seqs[i]));
        if (!mn_pages_reserve(&s->steps.kv, i, q->n_enqueued + m))
            return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page for a text");
        rows[i] = add_rows(j, i, t, m, size);
    }
    return MN_OK;
}

/* Adds the step's hidden states [n_out, D] to the sums of their texts. */
static void add_hidden(const job *j, uint32_t n, const slot_rows *rows, const float *hidden) {
    const size_t width = (size_t)j->s->steps.graph->hp.n_embd;
    for (uint32_t i = 0; i < n; i++) {
        double *sum = j->sums + i * width;
        for (uint32_t k = 0; k < rows[i].n; k++) {
            const float *row = hidden + (rows[i].first + k) * width;
            for (size_t d = 0; d < width; d++)
                sum[d] += (double)row[d];
        }
    }
}

static mn_status run_step(const job *j, uint32_t first, uint32_t n, slot_rows *rows, bool *idle,
                          mn_error *err) {
    mn_session *s = j->s;
    mn_step_size size;
    const float *hidden = NULL;
    const uint64_t begin_ns = mn_now_ns();
    if (atomic_exchange(&s->steps.cancelled, 0))
        return mn_fail(err, MN_CANCELLED, "cancelled");
    mn_status st = fill_wave(j, first, n, rows, &size, err);
    *idle = !st && !size.n_rows;
    if (st || *idle)
        return st;
    st = mn_session_run_packed(s, &size, err);
    if (!st && size.n_out)
        st = mn_engine_logits(s->steps.engine, size.n_out, &hidden, err);
    st = mn_steps_settle(&s->steps, st, err);
    if (st)
        return st;
    if (size.n_out)
        add_hidden(j, n, rows, hidden);
    s->steps.stats.n_prompt += size.n_rows;
    s->steps.stats.n_steps++;
    s->steps.stats.prompt_s += (double)(mn_now_ns() - begin_ns) * 1e-9;
    return MN_OK;
}

/* ---- a wave ---------------------------------------------------------------------------------- */
/* How many texts from `first` on go together. */
static uint32_t wave_size(const job *j, uint32_t first) {
    const mn_session *s = j->s;
    const uint32_t most = MN_MIN(s->steps.n_seq, j->n_texts - first);
    uint32_t rows = 0;
    uint32_t n = 0;
    if (!s->steps.graph->hp.bidirectional)
        return most;
    for (; n < most && j->texts[first + n].n <= s->steps.n_batch - rows; n++)
        rows += j->texts[first + n].n;
    return n;
}

/* Texts [first, first + n) from their first tokens on: their sums. The slots are free
 * afterwards. */
static mn_status run_wave(const job *j, uint32_t first, uint32_t n, slot_rows *rows,
                          mn_error *err) {
    mn_session *s = j->s;
    bool idle = false;
    memset(j->sums, 0, n * (size_t)s->steps.graph->hp.n_embd * sizeof *j->sums);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = 0;
        mn_slot_claim(&s->steps, &slot); /* all are free: it is slot i */
        s->steps.seqs[slot].n_tokens = j->texts[first + i].n;
        s->steps.seqs[slot].adapter = s->steps.limits.adapter;
        mn_adapter_hold(s->model->adapters, s->steps.limits.adapter);
    }
    mn_status st = mn_engine_make_logits(s->steps.engine, err);
    if (!st && n)
        st = mn_slot_adapt(&s->steps, 0, err); /* all have one */
    while (!st && !idle)
        st = run_step(j, first, n, rows, &idle, err);
    for (uint32_t i = 0; i < n; i++)
        mn_slot_release(&s->steps, i);
    return st;
}

/* Text i: its sum [D] becomes its mean. */
static void take_mean(const job *j, uint32_t i, double *sum) {
    const uint32_t width = (uint32_t)j->s->steps.graph->hp.n_embd;
    if (j->pooling == MN_POOLING_MEAN)
        for (uint32_t d = 0; d < width; d++)
            sum[d] /= j->texts[i].n;
}

/* The vector of text i from its sum. */
static mn_status finish_text(const job *j, uint32_t i, double *sum, mn_error *err) {
    float *out = j->out + (size_t)i * j->n_dim;
    const double *x = sum;
    double squares = 0;
    double scale = 1;
    take_mean(j, i, sum);
    if (j->dense)
        x = mn_head_apply(j->dense, sum, j->scratch);
    for (uint32_t d = 0; d < j->n_dim; d++)
        squares += x[d] * x[d];
    if (!isfinite(squares))
        return mn_fail(err, MN_BAD_FILE,
                       "%s: a hidden state of text %u is NaN or infinite, expected numbers: the "
                       "weights are damaged, or too large for the device's types (--precision "
                       "exact)",
                       j->s->model->canonical->path, i + 1);
    if (j->norm == MN_NORM_L2 && squares > 0)
        scale /= sqrt(squares);
    for (uint32_t d = 0; d < j->n_dim; d++)
        out[d] = (float)(x[d] * scale);
    return MN_OK;
}

/* The probability of the label of this logit among all, y: [n_out]. Not finite ones make NaN. */
static double label_share(const mn_head *h, const double *y, double logit) {
    double sum = 0;
    for (uint32_t i = 0; i < h->layer[h->n - 1].n_out; i++)
        sum += exp(y[i] - logit);
    return 1 / sum;
}

/* The score of pair i from its sum. */
static mn_status finish_pair(const job *j, uint32_t i, double *sum, mn_error *err) {
    take_mean(j, i, sum);
    const double *y = mn_head_apply(j->head, sum, j->scratch);
    const double logit = y[j->label ? j->label - 1 : 0];
    if (!isfinite(logit))
        return mn_fail(err, MN_BAD_FILE,
                       "%s: the score of text %u is NaN or infinite, expected a number: the "
                       "weights are damaged, or too large for the device's types (--precision "
                       "exact)",
                       j->s->model->canonical->path, i + 1);
    j->out[i] = (float)logit;
    if (!j->logits)
        j->out[i] = (float)(j->label ? label_share(j->head, y, logit) : 1 / (1 + exp(-logit)));
    return MN_OK;
}

/* All waves; one is run from its beginning again if the device was lost. */
static mn_status run_all(const job *j, slot_rows *rows, mn_error *err) {
    mn_session *s = j->s;
    const size_t width = (size_t)s->steps.graph->hp.n_embd;
    mn_status st = mn_failover_ready(s, err);
    for (uint32_t first = 0, n; first < j->n_texts && !st; first += n) {
        uint32_t on;
        n = wave_size(j, first);
        do {
            on = s->n_placed;
            st = run_wave(j, first, n, rows, err);
            st = mn_failover(s, st, err);
        } while (!st && s->n_placed != on);
        for (uint32_t i = 0; i < n && !st; i++) {
            if (j->head)
                st = finish_pair(j, first + i, j->sums + i * width, err);
            else
                st = finish_text(j, first + i, j->sums + i * width, err);
            if (st)
                blame(err, first + i, st);
        }
    }
    return st;
}

/* What mn_session_embed and mn_session_score have in common: every text is checked, then
 * computed. */
static mn_status embed_begin(job *j, uint64_t cap, const char *function, mn_error *err) {
    const mn_session *s = j->s;
    mn_status st = MN_OK;
    if (cap / j->n_dim < j->n_texts)
        st = mn_fail(err, MN_INVALID, "%s: room for %llu numbers, %u texts of %u numbers", function,
                     (unsigned long long)cap, j->n_texts, j->n_dim);
    for (uint32_t i = 0; i < j->n_texts && !st; i++)
        st = check_text(s, &j->texts[i], i, err);
    if (st)
        return st;
    const size_t width = (size_t)s->steps.graph->hp.n_embd;
    slot_rows *rows = mn_alloc(s->steps.n_seq, sizeof *rows);
    j->sums = mn_alloc(s->steps.n_seq * width, sizeof *j->sums);
    const mn_head *behind = j->head ? j->head : j->dense;
    if (behind)
        j->scratch = mn_alloc(2 * (size_t)behind->widest, sizeof *j->scratch);
    if (rows && j->sums && (j->scratch || !behind))
        st = run_all(j, rows, err);
    else
        st = mn_fail_memory(err, s->steps.n_seq * width * sizeof *j->sums);
    mn_free(rows);
    mn_free(j->sums);
    mn_free(j->scratch);
    return st;
}

/* The arguments that both have. */
static mn_status embed_check(const job *j, const char *function, const char *texts, mn_error *err) {
    const mn_arg args[] = {{"s", j->s}, {texts, j->texts}, {"out", j->out}, {0}};
    mn_status st = mn_args_need(err, function, args);
    if (!st)
        st = mn_args_same_process(err, function, j->s->model->rt);
    if (!st && !j->s->steps.graph->embeds)
        st = mn_fail(err, MN_INVALID, "%s: this session generates text, expected one that embeds",
                     function);
    return st;
}

mn_status mn_session_embed(mn_session *s, const mn_embed_text *texts, uint32_t n_texts,
                           const mn_embed_params *params, float *out, uint64_t cap, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_embed_params p = {.size = sizeof p};
    job j = {.s = s, .texts = texts, .n_texts = n_texts, .out = out};
    if (!err)
        err = &why;
    mn_status st = embed_check(&j, __func__, "texts", err);
    if (!st)
        st = mn_args_take(MN_SIZED_EMBED_PARAMS, &p, params, err);
    if (!st)
        st = set_job(&j, &p, err);
    return st ? st : embed_begin(&j, cap, __func__, err);
}

mn_status mn_session_score(mn_session *s, const mn_embed_text *pairs, uint32_t n_pairs,
                           uint32_t flags, float *out, uint64_t cap, mn_error *err) {
    enum { LABEL_MASK = 255 };
    const uint32_t label = flags >> 8; /* MN_SCORE_LABEL */
    mn_error why = MN_ERROR_INIT;
    job j = {.s = s, .texts = pairs, .n_texts = n_pairs, .out = out, .n_dim = 1};
    if (!err)
        err = &why;
    mn_status st = embed_check(&j, __func__, "pairs", err);
    if (!st)
        st = mn_args_flags(err, "mn_session_score: flags", flags & LABEL_MASK, MN_SCORE_LOGIT);
    if (!st)
        st = mn_head_need(s->model, label, err);
    if (!st && label > s->model->score.n_labels)
        st = mn_fail(err, MN_INVALID, "mn_session_score: label %u: found %u labels", label - 1,
                     s->model->score.n_labels);
    if (st)
        return st;
    j.label = label;
    j.head = &s->model->score.head;
    j.pooling = j.head->pooling;
    j.logits = flags & MN_SCORE_LOGIT;
    return embed_begin(&j, cap, __func__, err);
}
