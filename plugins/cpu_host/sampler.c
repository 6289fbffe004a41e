/* sampler.c -- SAMPLE: biases, the samplers and the draw (chain.c), probabilities beside the id,
 * and the slot that moves on. */
#include "chain.h"
#include <float.h>
#include <math.h>
#include <string.h>
#include "samplers.h"

void mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    memcpy(out, counter, 4 * sizeof *out);
    mnp_philox(key[0], key[1], out);
}

/* Scratch: logits as adjusted, ids as a heap, counts of the penalties. */
uint64_t mnc_sample_bytes(int64_t n_vocab) {
    if (n_vocab < 0)
        return 0;
    return (uint64_t)n_vocab * 12;
}

/* l = the logits with bias, mask and min_new; false = one of them is NaN. */
static bool add_biases(const mnc_sample *s, float *l) {
    bool is_nan = false;
    for (int64_t i = 0; i < s->n_vocab; i++)
        l[i] = s->logits[i] > FLT_MAX ? FLT_MAX : s->logits[i];
    for (int64_t i = 0; s->sparse && i < s->n_sparse; i++)
        if (s->sparse[i] >= 0 && s->sparse[i] < s->n_vocab)
            l[s->sparse[i]] += s->sparse_by[i];
    for (int64_t i = 0; s->bias && i < s->n_vocab; i++)
        l[i] += s->bias[i];
    for (int64_t i = 0; i < s->n_vocab; i++) {
        is_nan |= isnan(l[i]);
        if (l[i] > FLT_MAX)
            l[i] = FLT_MAX;
    }
    for (int64_t i = 0; s->mask && i < s->n_vocab; i++)
        if (!(s->mask[i / 32] >> (i % 32) & 1))
            l[i] = -INFINITY;
    return !is_nan;
}

static int32_t count_stops(const mn_slot_params *p) {
    if (p->n_stop < MN_MAX_STOP)
        return p->n_stop;
    return MN_MAX_STOP;
}

/* false = NaN */
static bool sampler_adjust(const mnc_sample *s, float *l) {
    const mn_slot_params *p = s->params;
    if (!add_biases(s, l))
        return false;
    for (int32_t i = 0; s->n_drawn < p->min_new && i < count_stops(p); i++)
        if (p->stop[i] >= 0 && p->stop[i] < s->n_vocab)
            l[p->stop[i]] = -INFINITY;
    return true;
}

/* The lowest id of the largest logit; MN_ID_NONE: none above -inf; MN_ID_NAN: one is NaN. */
static int32_t sampler_arg_max(const float *l, int64_t n) {
    float best = -INFINITY;
    int32_t at = MN_ID_NONE;
    bool is_nan = false;
    for (int64_t i = 0; i < n; i++) {
        is_nan |= isnan(l[i]);
        if (l[i] > best) {
            best = l[i];
            at = (int32_t)i;
        }
    }
    if (is_nan)
        return MN_ID_NAN;
    return at;
}

/* log of the sum of exp(l); -inf: none is finite; NaN: one is NaN */
static double log_sum(const float *l, int64_t n) {
    const int32_t first = sampler_arg_max(l, n);
    double sum = 0;
    if (first < 0)
        return first == MN_ID_NAN ? NAN : -INFINITY;
    const double max = l[first];
    for (int64_t i = 0; i < n; i++)
        sum += exp(l[i] - max);
    return max + log(sum);
}

/* of_all: log_sum of the row. -inf for an id that is none. */
static float sampler_log_prob(const float *l, int32_t id, double of_all) {
    if (id < 0)
        return -INFINITY;
    return (float)(l[id] - of_all);
}

static bool wants_top(const mnc_sample *s) {
    return s->n_top > 0 && (s->top_ids || s->top_logprobs);
}

/* ids: scratch, [n_vocab] */
static void sampler_write_top(const mnc_sample *s, const float *l, double of_all, int32_t *ids) {
    mnc_order h = mnc_order_of(l, s->n_vocab, s->n_top, ids);
    for (int64_t i = 0; i < s->n_top; i++) {
        int32_t id = -1;
        if (i < h.n)
            id = mnc_order_at(&h, i);
        if (s->top_ids)
            s->top_ids[i] = id;
        if (s->top_logprobs)
            s->top_logprobs[i] = sampler_log_prob(l, id, of_all);
    }
}

/* Probabilities of a given id: by the logits as they are, without bias or temperature. */
void mnc_sample_target(const mnc_sample *s, int32_t target, void *scratch) {
    const double of_all = log_sum(s->logits, s->n_vocab);
    if (wants_top(s))
        sampler_write_top(s, s->logits, of_all, scratch);
    if (s->logprob)
        *s->logprob = sampler_log_prob(s->logits, target < s->n_vocab ? target : -1, of_all);
}

/* Whether the logits are drawn from as they are. */
static bool sampler_is_plain(const mnc_sample *s) {
    const bool may_stop = s->n_drawn >= s->params->min_new || !s->params->n_stop;
    if (s->bias)
        return false;
    if (s->mask)
        return false;
    if (s->sparse)
        return false;
    if (!may_stop)
        return false;
    return !mnc_chain_reads_history(s->params);
}

/* scratch: mnc_sample_bytes. Greedy rows that nothing changes are not copied. */
int32_t mnc_sample_draw(const mnc_sample *s, void *scratch) {
    float *l = scratch;
    int32_t *ids = (int32_t *)(l + s->n_vocab);
    int32_t *count = ids + s->n_vocab;
    const bool greedy = !(s->params->temp > 0);
    const bool logprobs = wants_top(s) || s->logprob;
    if (greedy && !logprobs && sampler_is_plain(s))
        return sampler_arg_max(s->logits, s->n_vocab);
    const bool ok = sampler_adjust(s, l);
    mnc_chain chain = {0};
    if (ok)
        chain = mnc_chain_begin(s, l, ids, count, greedy);
    double of_all = (double)NAN;
    if (logprobs && ok)
        of_all = log_sum(l, s->n_vocab);
    if (wants_top(s))
        sampler_write_top(s, l, of_all, ids);
    int32_t id = MN_ID_NAN;
    if (ok)
        id = greedy ? sampler_arg_max(l, s->n_vocab) : mnc_chain_draw(&chain, s->mu);
    if (s->logprob && chain.rewritten) {
        sampler_adjust(s, l); /* logprobs are those before the chain */
        mnc_chain_begin(s, l, ids, count, greedy);
    }
    if (s->logprob)
        *s->logprob = sampler_log_prob(l, id, of_all);
    return id;
}

/* Writes a drawn id into the slot; without one it has failed. */
static void slot_advance(mn_slot *slot, const mn_slot_params *p, int32_t id) {
    if (id < 0) {
        slot->done = MN_SLOT_FAILED;
        return;
    }
    slot->last_id = id;
    slot->n_drawn++;
    if (p->max_new > 0 && slot->n_drawn >= p->max_new)
        slot->done = MN_SLOT_LENGTH;
    for (int32_t i = 0; i < count_stops(p); i++)
        if (p->stop[i] == id)
            slot->done = MN_SLOT_STOPPED;
}

/* A row of PARAMS; what it lacks is 0. */
static mn_slot_params sampler_params_of(const mnc_call *c, int32_t slot) {
    const mnc_operand *rows = &c->in[MN_SAMPLE_PARAMS];
    mn_slot_params p = {0};
    const uint64_t bytes = (uint64_t)rows->dim[1] * 4;
    memcpy(&p, mnc_row_of(rows, slot), bytes < sizeof p ? bytes : sizeof p);
    return p;
}

/* The operands that belong to an output row, whatever it does. */
static mnc_sample sample_of(const mnc_call *c, int64_t row) {
    const mnc_operand *logits = &c->in[MN_SAMPLE_LOGITS];
    const mnc_operand *ids = &c->out[MN_SAMPLE_OUT_TOP_IDS];
    const mnc_operand *probs = &c->out[MN_SAMPLE_OUT_TOP_LOGPROBS];
    const mnc_operand *one = &c->out[MN_SAMPLE_OUT_LOGPROB];
    mnc_sample s = {.logits = (const float *)logits->ptr + row * logits->cols,
                    .n_vocab = logits->cols};
    if (ids->ptr || probs->ptr)
        s.n_top = ids->ptr ? ids->cols : probs->cols;
    if (ids->ptr)
        s.top_ids = (int32_t *)ids->ptr + row * s.n_top;
    if (probs->ptr)
        s.top_logprobs = (float *)probs->ptr + row * s.n_top;
    if (one->ptr)
        s.logprob = (float *)one->ptr + row;
    return s;
}

/* Bias and mask belong to the output row, sparse biases to the slot. */
static void add_bias_operands(const mnc_call *c, int64_t row, int32_t slot, mnc_sample *s) {
    const mnc_operand *bias = &c->in[MN_SAMPLE_BIAS];
    const mnc_operand *mask = &c->in[MN_SAMPLE_MASK];
    const mnc_operand *sparse = &c->in[MN_SAMPLE_BIAS_IDS];
    const mnc_operand *by = &c->in[MN_SAMPLE_BIAS_VALUES];
    if (bias->ptr)
        s->bias = (const float *)bias->ptr + row * bias->cols;
    if (mask->ptr)
        s->mask = (const uint32_t *)mask->ptr + row * mask->cols;
    if (sparse->ptr && by->ptr) {
        s->sparse = (const int32_t *)sparse->ptr + slot * sparse->cols;
        s->sparse_by = (const float *)by->ptr + slot * by->cols;
        s->n_sparse = sparse->cols;
    }
}

/* Draws for an output row and moves its slot on; no id for a slot that is done. */
static int32_t sampler_draw_row(const mnc_call *c, mnc_worker *w, int64_t row, int32_t slot) {
    const mnc_operand *history = &c->in[MN_SAMPLE_HISTORY];
    mn_slot *state = mnc_row_of(&c->in[MN_SAMPLE_SLOTS], slot);
    const mn_slot_params params = sampler_params_of(c, slot);
    if (state->done)
        return MN_ID_NONE;
    const bool has_mu = c->in[MN_SAMPLE_SLOTS].dim[1] * 4 >= (int64_t)MNP_UP_TO(mn_slot, mu);
    const mnc_operand *breakers = &c->in[MN_SAMPLE_BREAKERS];
    float *mu = c->out[MN_SAMPLE_OUT_MU].ptr;
    mnc_sample s = sample_of(c, row);
    add_bias_operands(c, row, slot, &s);
    if (breakers->ptr)
        s.breakers = (const uint32_t *)breakers->ptr + slot * breakers->cols;
    if (has_mu)
        s.mu = &state->mu;
    s.params = &params;
    s.history = (const int32_t *)history->ptr + slot * history->cols;
    s.n_ctx = history->cols;
    s.pos = state->pos;
    s.n_drawn = state->n_drawn;
    const int32_t id = mnc_sample_draw(&s, w->scratch);
    slot_advance(state, &params, id);
    if (mu && has_mu)
        mu[row] = state->mu;
    return id;
}

/* The slot that draws from a row; -1 = none. */
static int32_t sampler_slot_of(const mnc_call *c, int64_t row) {
    const int32_t *targets = c->in[MN_SAMPLE_TARGET].ptr; /* NULL = no row has one */
    const int32_t slot = ((const int32_t *)c->in[MN_SAMPLE_OUT_SLOT].ptr)[row];
    const bool scores = targets && targets[row] >= 0;
    if (scores || slot < 0 || slot >= c->in[MN_SAMPLE_HISTORY].rows)
        return -1;
    return slot;
}

/* How many rows from `row` on verify drafts of one another; 1 = it is alone. */
static int64_t tied_rows(const mnc_call *c, int64_t row) {
    const int32_t *drafts = c->in[MN_SAMPLE_DRAFT].ptr; /* NULL = no rows are tied */
    const int32_t slot = sampler_slot_of(c, row);
    int64_t n = 1;
    if (!drafts || slot < 0)
        return n;
    while (row + n < c->in[MN_SAMPLE_LOGITS].rows && drafts[row + n - 1] >= 0 &&
           sampler_slot_of(c, row + n) == slot)
        n++;
    return n;
}

/* Draws from n tied rows until a draft is not what is drawn. EMBED has moved the slot behind all of
 * them: it goes back, and forward with each draft that holds. */
static void draw_rows(const mnc_call *c, mnc_worker *w, int64_t row, int64_t n, int32_t slot) {
    const int32_t *drafts = c->in[MN_SAMPLE_DRAFT].ptr;
    int32_t *ids = c->out[MN_SAMPLE_OUT_IDS].ptr;
    mn_slot *state = mnc_row_of(&c->in[MN_SAMPLE_SLOTS], slot);
    for (int64_t i = 0; i < n; i++)
        ids[row + i] = MN_ID_NONE;
    if (state->done)
        return;
    state->pos -= (int32_t)(n - 1);
    for (int64_t i = row; i < row + n; i++) {
        ids[i] = sampler_draw_row(c, w, i, slot);
        if (i + 1 == row + n || state->done || ids[i] != drafts[i])
            return;
        state->pos++;
    }
}

/* A slot's rows all go to one part: a slot that draws twice in a step draws in order. */
void mnc_op_sample(const mnc_call *c, mnc_worker *w) {
    const int32_t *targets = c->in[MN_SAMPLE_TARGET].ptr;
    int32_t *ids = c->out[MN_SAMPLE_OUT_IDS].ptr;
    int64_t n = 1;
    for (int64_t row = 0; row < c->in[MN_SAMPLE_LOGITS].rows; row += n) {
        const int32_t slot = sampler_slot_of(c, row);
        n = tied_rows(c, row);
        if ((uint32_t)(slot >= 0 ? slot : row) % w->n != w->i)
            continue;
        if (slot >= 0) {
            draw_rows(c, w, row, n, slot);
            continue;
        }
        ids[row] = MN_ID_NONE;
        if (!targets || targets[row] < 0)
            continue;
        const mnc_sample s = sample_of(c, row);
        mnc_sample_target(&s, targets[row], w->scratch);
    }
}
