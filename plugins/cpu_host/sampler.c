/* sampler.c -- bias, penalties, filters in ops.def's fixed order, the draw. Nothing is sorted
 * further than it is read: the candidates form a heap whose tail, once popped, holds the best ids
 * in order. */
#include "sampler.h"
#include <float.h>
#include <math.h>
#include <string.h>

void mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1], c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = n0, c[1] = (uint32_t)b, c[2] = n2, c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* Scratch: logits as adjusted, ids as a heap, counts of the penalties. */
uint64_t mnc_sample_bytes(int64_t n_vocab) {
    return n_vocab < 0 ? 0 : (uint64_t)n_vocab * 12;
}

typedef struct {
    const float *logit;
    int32_t *id;
    int64_t n, popped;
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

static bool has_penalties(const mn_slot_params *p) {
    return p->penalty_last_n != 0 && ((p->repeat_penalty != 0 && p->repeat_penalty != 1) ||
                                      p->frequency_penalty != 0 || p->presence_penalty != 0);
}

static void penalise(const mnc_sample *s, float *l, int32_t *count) {
    const mn_slot_params *p = s->params;
    int64_t hi = s->pos < s->n_ctx ? s->pos : s->n_ctx,
            lo = p->penalty_last_n < 0 || p->penalty_last_n > hi ? 0 : hi - p->penalty_last_n;
    memset(count, 0, (size_t)s->n_vocab * sizeof *count);
    for (int64_t i = lo; i < hi; i++)
        if (s->history[i] >= 0 && s->history[i] < s->n_vocab)
            count[s->history[i]]++;
    for (int64_t i = lo; i < hi; i++) {
        int32_t id = s->history[i];
        if (id < 0 || id >= s->n_vocab || !count[id])
            continue;
        if (p->repeat_penalty != 0)
            l[id] = l[id] > 0 ? l[id] / p->repeat_penalty : l[id] * p->repeat_penalty;
        l[id] -= p->frequency_penalty * (float)count[id] + p->presence_penalty;
        count[id] = 0; /* once per id */
    }
}

static void adjust(const mnc_sample *s, float *l, int32_t *count) {
    for (int64_t i = 0; i < s->n_vocab; i++) {
        float v = s->bias ? s->logits[i] + s->bias[i] : s->logits[i];
        l[i] = isnan(v) ? -INFINITY : v > FLT_MAX ? FLT_MAX : v;
    }
    if (has_penalties(s->params))
        penalise(s, l, count);
    for (int64_t i = 0; i < s->n_vocab && has_penalties(s->params); i++)
        if (isnan(l[i]))
            l[i] = -INFINITY;
}

static int32_t arg_max(const float *l, int64_t n) {
    float best = -INFINITY;
    int32_t at = -1;
    for (int64_t i = 0; i < n; i++)
        if (l[i] > best)
            best = l[i], at = (int32_t)i;
    return at;
}

static double weigh(const heap *h, float max, double temp) { /* in any order: all candidates */
    double sum = 0;
    for (int64_t i = 0; i < h->n; i++)
        sum += exp(((double)h->logit[h->id[i]] - (double)max) / temp);
    return sum;
}

static void write_top(const mnc_sample *s, const float *l, int32_t *ids) {
    int32_t first = arg_max(l, s->n_vocab);
    double sum = 0;
    if (first >= 0)
        for (int64_t i = 0; i < s->n_vocab; i++)
            sum += exp((double)l[i] - (double)l[first]);
    heap h = collect(l, s->n_vocab, s->n_top, ids);
    for (int64_t i = 0; i < s->n_top; i++) {
        int32_t id = i < h.n ? best_at(&h, i) : -1;
        if (s->top_ids)
            s->top_ids[i] = id;
        if (s->top_logprobs)
            s->top_logprobs[i] =
                id < 0 ? -INFINITY : (float)((double)l[id] - (double)l[first] - log(sum));
    }
}

/* How many of the best survive top_p and min_p; *sum becomes their weight at the draw's
 * temperature. */
static int64_t filter(heap *h, const mn_slot_params *p, float max, double *sum) {
    bool by_top = p->top_p > 0 && p->top_p<1, by_min = p->min_p> 0;
    int64_t keep = h->n;
    double temp = p->temp;
    if (by_top) {
        double goal = (double)p->top_p * weigh(h, max, 1), run = 0;
        for (keep = 0; keep < h->n && run < goal; keep++)
            run += exp((double)h->logit[best_at(h, keep)] - (double)max);
    }
    if (by_min) {
        int64_t n = 0;
        while (n < keep &&
               (n == 0 || exp((double)h->logit[best_at(h, n)] - (double)max) >= (double)p->min_p))
            n++;
        keep = n;
    }
    if (keep == h->n) {
        *sum = weigh(h, max, temp);
        return keep;
    }
    *sum = 0;
    for (int64_t i = 0; i < keep; i++)
        *sum += exp(((double)h->logit[best_at(h, i)] - (double)max) / temp);
    return keep;
}

int32_t mnc_sample_draw(const mnc_sample *s, void *scratch) {
    const mn_slot_params *p = s->params;
    float *l = scratch;
    int32_t *ids = (int32_t *)(l + s->n_vocab), *count = ids + s->n_vocab;
    bool top = s->n_top > 0 && (s->top_ids || s->top_logprobs), greedy = !(p->temp > 0);
    if (greedy && !top && !s->bias && !has_penalties(p)) {
        int32_t id = arg_max(s->logits, s->n_vocab);
        return id;
    }
    adjust(s, l, count);
    if (top)
        write_top(s, l, ids);
    if (greedy)
        return arg_max(l, s->n_vocab);
    heap h = collect(l, s->n_vocab, p->top_k > 0 && p->top_k < s->n_vocab ? p->top_k : 0, ids);
    if (!h.n)
        return -1;
    float max = l[best_at(&h, 0)];
    double sum, run = 0;
    int64_t keep = filter(&h, p, max, &sum);
    uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)},
             counter[4] = {(uint32_t)s->pos, 0, 0, 0}, x[4];
    mnc_philox(key, counter, x);
    double goal = (double)(x[0] >> 8) * 0x1p-24 * sum;
    for (int64_t i = 0; i < keep; i++) {
        int32_t id = best_at(&h, i);
        run += exp(((double)l[id] - (double)max) / (double)p->temp);
        if (run > goal)
            return id;
    }
    return best_at(&h, keep - 1);
}

/* Writes a drawn id into the slot. -1 (nothing could be drawn) stops it. */
static void slot_advance(mn_slot *slot, const mn_slot_params *p, int32_t id) {
    int32_t n_stop = p->n_stop < MN_MAX_STOP ? p->n_stop : MN_MAX_STOP;
    if (id < 0) {
        slot->done = MN_SLOT_STOPPED;
        return;
    }
    slot->last_id = id;
    slot->n_drawn++;
    if (p->max_new > 0 && slot->n_drawn >= p->max_new)
        slot->done = MN_SLOT_LENGTH;
    for (int32_t i = 0; i < n_stop; i++)
        if (p->stop[i] == id)
            slot->done = MN_SLOT_STOPPED;
}

static void sample_row(const mnc_call *c, mnc_worker *w, int64_t row, int32_t slot) {
    const mnc_operand *logits = &c->in[MN_SAMPLE_LOGITS], *history = &c->in[MN_SAMPLE_HISTORY],
                      *bias = &c->in[MN_SAMPLE_BIAS];
    const mnc_operand *tops = &c->out[MN_SAMPLE_OUT_TOP_IDS],
                      *probs = &c->out[MN_SAMPLE_OUT_TOP_LOGPROBS];
    mn_slot *state = (mn_slot *)c->in[MN_SAMPLE_SLOTS].ptr + slot;
    const mn_slot_params *params = (const mn_slot_params *)c->in[MN_SAMPLE_PARAMS].ptr + slot;
    int32_t *ids = c->out[MN_SAMPLE_OUT_IDS].ptr;
    int64_t n_top = tops->ptr ? tops->cols : probs->ptr ? probs->cols : 0;
    mnc_sample s = {(const float *)logits->ptr + row * logits->cols,
                    bias->ptr ? (const float *)bias->ptr + row * logits->cols : NULL,
                    logits->cols,
                    params,
                    (const int32_t *)history->ptr + slot * history->cols,
                    history->cols,
                    state->pos,
                    tops->ptr ? (int32_t *)tops->ptr + row * n_top : NULL,
                    probs->ptr ? (float *)probs->ptr + row * n_top : NULL,
                    n_top};
    ids[row] = -1;
    if (state->done)
        return;
    ids[row] = mnc_sample_draw(&s, w->scratch);
    slot_advance(state, params, ids[row]);
}

/* A slot's rows all go to one worker: a slot that draws twice in a step draws in order. */
void mnc_op_sample(const mnc_call *c, mnc_worker *w) {
    const int32_t *out_slot = c->in[MN_SAMPLE_OUT_SLOT].ptr;
    int32_t *ids = c->out[MN_SAMPLE_OUT_IDS].ptr;
    int64_t n_slots = c->in[MN_SAMPLE_HISTORY].rows;
    for (int64_t row = 0; row < c->in[MN_SAMPLE_LOGITS].rows; row++) {
        int32_t slot = out_slot[row];
        if (slot < 0 || slot >= n_slots) {
            if (w->i == 0)
                ids[row] = -1;
        } else if ((uint32_t)slot % w->n == w->i)
            sample_row(c, w, row, slot);
    }
}
