/* sampler.c -- bias, penalties, filters in ops.def's fixed order, the draw. Nothing is sorted
 * further than it is read: the candidates form a heap whose tail, once popped, holds the best ids
 * in order. */
#include "sampler.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* Philox4x32-10 (Salmon et al. 2011): counter-based, so that a position's draw depends on the
 * seed alone. */
void mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0];
        uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        uint32_t n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = n0;
        c[1] = (uint32_t)b;
        c[2] = n2;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* Scratch: logits as adjusted, ids as a heap, counts of the penalties. */
uint64_t mnc_sample_bytes(int64_t n_vocab) {
    if (n_vocab < 0)
        return 0;
    return (uint64_t)n_vocab * 12;
}

typedef struct {
    const float *logit;
    int32_t *id;
    int64_t n;
    int64_t popped;
} heap; /* id[0 .. n - popped) heap, behind it the best, last first */

static inline bool better(const float *l, int32_t a, int32_t b) {
    return l[a] > l[b] || (l[a] == l[b] && a < b);
}

/* sign > 0: the best on top; < 0: the worst on top. */
static void sift(const float *l, int32_t *id, int64_t n, int64_t at, bool best) {
    int32_t v = id[at];
    for (int64_t kid; (kid = 2 * at + 1) < n; at = kid) {
        if (kid + 1 < n && better(l, id[kid + 1], id[kid]) == best)
            kid++;
        if (better(l, id[kid], v) != best)
            break;
        id[at] = id[kid];
    }
    id[at] = v;
}

static void heapify(const float *l, int32_t *id, int64_t n, bool best) {
    for (int64_t i = n / 2; i-- > 0;)
        sift(l, id, n, i, best);
}

/* Candidates: all finite logits, or the k best of them. */
static heap collect(const float *l, int64_t n_vocab, int64_t k, int32_t *id) {
    heap h = {l, id, 0, 0};
    for (int64_t v = 0; v < n_vocab; v++) {
        int32_t i = (int32_t)v;
        if (l[i] == -INFINITY)
            continue;
        if (k <= 0 || h.n < k) {
            id[h.n++] = i;
            if (h.n == k)
                heapify(l, id, k, false);
        } else if (l[i] > l[id[0]]) { /* a tie keeps the lower id, which came first */
            id[0] = i;
            sift(l, id, k, 0, false);
        }
    }
    heapify(l, id, h.n, true);
    return h;
}

/* The i-th best candidate, i < n, asked for in any order. */
static int32_t best_at(heap *h, int64_t i) {
    while (h->popped <= i) {
        int64_t left = h->n - h->popped;
        int32_t top = h->id[0];
        h->id[0] = h->id[left - 1];
        h->popped++;
        if (left > 1)
            sift(h->logit, h->id, left - 1, 0, true);
        h->id[left - 1] = top;
    }
    return h->id[h->n - 1 - i];
}

/* Does the history matter? Most requests have no penalties, and their logits are used as they
 * are. */
static bool has_penalties(const mn_slot_params *p) {
    const bool repeats = p->repeat_penalty != 0 && p->repeat_penalty != 1;
    const bool counts = p->frequency_penalty != 0 || p->presence_penalty != 0;
    return p->penalty_last_n != 0 && (repeats || counts);
}

/* count: scratch, [n_vocab]: how often each id stands in the part of the history that counts. */
static void penalise(const mnc_sample *s, float *l, int32_t *count) {
    const mn_slot_params *p = s->params;
    int64_t hi;
    if (s->pos < s->n_ctx)
        hi = s->pos;
    else
        hi = s->n_ctx;
    int64_t lo = 0;
    if (p->penalty_last_n >= 0 && p->penalty_last_n <= hi)
        lo = hi - p->penalty_last_n;
    memset(count, 0, (size_t)s->n_vocab * sizeof *count);
    for (int64_t i = lo; i < hi; i++) {
        const int32_t id = s->history[i];
        if (id >= 0 && id < s->n_vocab)
            count[id]++;
    }
    for (int64_t i = lo; i < hi; i++) {
        int32_t id = s->history[i];
        if (id < 0 || id >= s->n_vocab)
            continue;
        if (!count[id])
            continue;
        const float repeat = p->repeat_penalty;
        if (repeat != 0)
            l[id] = l[id] > 0 ? l[id] / repeat : l[id] * repeat;
        l[id] -= p->frequency_penalty * (float)count[id] + p->presence_penalty;
        count[id] = 0; /* once per id */
    }
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
static bool adjust(const mnc_sample *s, float *l, int32_t *count) {
    const mn_slot_params *p = s->params;
    if (!add_biases(s, l))
        return false;
    for (int32_t i = 0; s->n_drawn < p->min_new && i < count_stops(p); i++)
        if (p->stop[i] >= 0 && p->stop[i] < s->n_vocab)
            l[p->stop[i]] = -INFINITY;
    if (!has_penalties(p))
        return true;
    penalise(s, l, count);
    for (int64_t i = 0; i < s->n_vocab; i++)
        if (isnan(l[i])) /* a masked id that is penalised: -inf * 0, -inf + inf */
            l[i] = -INFINITY;
    return true;
}

/* The lowest id of the largest logit; MN_ID_NONE: none above -inf; MN_ID_NAN: one is NaN. */
static int32_t arg_max(const float *l, int64_t n) {
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

/* What candidate id counts for, against the largest logit. */
static double weight_of(const heap *h, int32_t id, float max, double temp) {
    const double below = (double)h->logit[id] - max;
    return exp(below / temp);
}

/* The weight of all candidates, in any order. */
static double weigh(const heap *h, float max, double temp) {
    double sum = 0;
    for (int64_t i = 0; i < h->n; i++)
        sum += weight_of(h, h->id[i], max, temp);
    return sum;
}

/* log of the sum of exp(l); -inf: none is finite; NaN: one is NaN */
static double log_sum(const float *l, int64_t n) {
    const int32_t first = arg_max(l, n);
    double sum = 0;
    if (first < 0)
        return first == MN_ID_NAN ? NAN : -INFINITY;
    const double max = l[first];
    for (int64_t i = 0; i < n; i++)
        sum += exp(l[i] - max);
    return max + log(sum);
}

/* of_all: log_sum of the row. -inf for an id that is none. */
static float log_prob(const float *l, int32_t id, double of_all) {
    if (id < 0)
        return -INFINITY;
    return (float)(l[id] - of_all);
}

static bool wants_top(const mnc_sample *s) {
    return s->n_top > 0 && (s->top_ids || s->top_logprobs);
}

/* ids: scratch, [n_vocab] */
static void write_top(const mnc_sample *s, const float *l, double of_all, int32_t *ids) {
    heap h = collect(l, s->n_vocab, s->n_top, ids);
    for (int64_t i = 0; i < s->n_top; i++) {
        int32_t id = -1;
        if (i < h.n)
            id = best_at(&h, i);
        if (s->top_ids)
            s->top_ids[i] = id;
        if (s->top_logprobs)
            s->top_logprobs[i] = log_prob(l, id, of_all);
    }
}

/* Probabilities of a given id: by the logits as they are, without bias or temperature. */
void mnc_sample_target(const mnc_sample *s, int32_t target, void *scratch) {
    const double of_all = log_sum(s->logits, s->n_vocab);
    if (wants_top(s))
        write_top(s, s->logits, of_all, scratch);
    if (s->logprob)
        *s->logprob = log_prob(s->logits, target < s->n_vocab ? target : -1, of_all);
}

/* How many of the best survive top_p and min_p; *sum becomes their weight at the draw's
 * temperature. */
static int64_t filter(heap *h, const mn_slot_params *p, float max, double *sum) {
    bool by_top = p->top_p > 0 && p->top_p < 1;
    bool by_min = p->min_p > 0;
    int64_t keep = h->n;
    double temp = p->temp;
    if (by_top) {
        const double goal = p->top_p * weigh(h, max, 1);
        double run = 0;
        for (keep = 0; keep < h->n && run < goal; keep++)
            run += weight_of(h, best_at(h, keep), max, 1);
    }
    if (by_min) {
        int64_t n = keep ? 1 : 0; /* the best stays */
        while (n < keep && weight_of(h, best_at(h, n), max, 1) >= p->min_p)
            n++;
        keep = n;
    }
    if (keep == h->n) {
        *sum = weigh(h, max, temp);
        return keep;
    }
    *sum = 0;
    for (int64_t i = 0; i < keep; i++)
        *sum += weight_of(h, best_at(h, i), max, temp);
    return keep;
}

/* Draws from the adjusted logits. ids: scratch, [n_vocab] */
static int32_t draw(const mnc_sample *s, const float *l, int32_t *ids) {
    const mn_slot_params *p = s->params;
    const int64_t top_k = p->top_k > 0 && p->top_k < s->n_vocab ? p->top_k : 0;
    heap h = collect(l, s->n_vocab, top_k, ids);
    if (!h.n)
        return MN_ID_NONE;
    const float max = l[best_at(&h, 0)];
    double sum;
    double run = 0;
    const int64_t keep = filter(&h, p, max, &sum);
    const uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)s->pos, 0, 0, 0};
    uint32_t x[4];
    mnc_philox(key, counter, x);
    const double uniform = (x[0] >> 8) * 0x1p-24; /* [0, 1) */
    const double goal = uniform * sum;
    for (int64_t i = 0; i < keep; i++) {
        const int32_t id = best_at(&h, i);
        run += weight_of(&h, id, max, p->temp);
        if (run > goal)
            return id;
    }
    return best_at(&h, keep - 1);
}

/* Whether the logits are drawn from as they are. */
static bool is_plain(const mnc_sample *s) {
    const bool may_stop = s->n_drawn >= s->params->min_new || !s->params->n_stop;
    if (s->bias)
        return false;
    if (s->mask)
        return false;
    if (s->sparse)
        return false;
    if (!may_stop)
        return false;
    return !has_penalties(s->params);
}

/* scratch: mnc_sample_bytes. Greedy rows that nothing changes are not copied. */
int32_t mnc_sample_draw(const mnc_sample *s, void *scratch) {
    float *l = scratch;
    int32_t *ids = (int32_t *)(l + s->n_vocab);
    int32_t *count = ids + s->n_vocab;
    const bool greedy = !(s->params->temp > 0);
    const bool logprobs = wants_top(s) || s->logprob;
    if (greedy && !logprobs && is_plain(s))
        return arg_max(s->logits, s->n_vocab);
    const bool ok = adjust(s, l, count);
    double of_all = (double)NAN;
    if (logprobs && ok)
        of_all = log_sum(l, s->n_vocab);
    if (wants_top(s))
        write_top(s, l, of_all, ids);
    int32_t id = MN_ID_NAN;
    if (ok)
        id = greedy ? arg_max(l, s->n_vocab) : draw(s, l, ids);
    if (s->logprob)
        *s->logprob = log_prob(l, id, of_all);
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
static mn_slot_params params_of(const mnc_call *c, int32_t slot) {
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
static int32_t draw_row(const mnc_call *c, mnc_worker *w, int64_t row, int32_t slot) {
    const mnc_operand *history = &c->in[MN_SAMPLE_HISTORY];
    mn_slot *state = mnc_row_of(&c->in[MN_SAMPLE_SLOTS], slot);
    const mn_slot_params params = params_of(c, slot);
    if (state->done)
        return MN_ID_NONE;
    mnc_sample s = sample_of(c, row);
    add_bias_operands(c, row, slot, &s);
    s.params = &params;
    s.history = (const int32_t *)history->ptr + slot * history->cols;
    s.n_ctx = history->cols;
    s.pos = state->pos;
    s.n_drawn = state->n_drawn;
    const int32_t id = mnc_sample_draw(&s, w->scratch);
    slot_advance(state, &params, id);
    return id;
}

/* The slot that draws from a row; -1 = none. */
static int32_t slot_of(const mnc_call *c, int64_t row) {
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
    const int32_t slot = slot_of(c, row);
    int64_t n = 1;
    if (!drafts || slot < 0)
        return n;
    while (row + n < c->in[MN_SAMPLE_LOGITS].rows && drafts[row + n - 1] >= 0 &&
           slot_of(c, row + n) == slot)
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
        ids[i] = draw_row(c, w, i, slot);
        if (i + 1 == row + n || state->done || ids[i] != drafts[i])
            return;
        state->pos++;
    }
}

/* A slot's rows all go to one worker: a slot that draws twice in a step draws in order. */
void mnc_op_sample(const mnc_call *c, mnc_worker *w) {
    const int32_t *targets = c->in[MN_SAMPLE_TARGET].ptr;
    int32_t *ids = c->out[MN_SAMPLE_OUT_IDS].ptr;
    int64_t n = 1;
    for (int64_t row = 0; row < c->in[MN_SAMPLE_LOGITS].rows; row += n) {
        const int32_t slot = slot_of(c, row);
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
