/* chain.c -- the samplers of SAMPLE, in the order that a slot's parameters state, and the draw.
 * Every sampler keeps a range of places of the order of logits, so that the order is sorted no
 * further than it is read: the candidates form a heap whose tail, once popped, holds the best ids
 * in order. Only the penalties and dry change logits; where they follow another sampler, the logits
 * are written back and the order is made anew. Formulas and sources: docs/ops.md, SAMPLE. */
#include "chain.h"
#include <float.h>
#include <math.h>
#include <string.h>
#include "samplers.h"

/* ---- the order of logits --------------------------------------------------------------------- */
static inline bool chain_better(const float *l, int32_t a, int32_t b) {
    return l[a] > l[b] || (l[a] == l[b] && a < b);
}

/* best: the best on top; else the worst on top. */
static void sift(const float *l, int32_t *id, int64_t n, int64_t at, bool best) {
    int32_t v = id[at];
    for (int64_t kid; (kid = 2 * at + 1) < n; at = kid) {
        if (kid + 1 < n && chain_better(l, id[kid + 1], id[kid]) == best)
            kid++;
        if (chain_better(l, id[kid], v) != best)
            break;
        id[at] = id[kid];
    }
    id[at] = v;
}

static void heapify(const float *l, int32_t *id, int64_t n, bool best) {
    for (int64_t i = n / 2; i-- > 0;)
        sift(l, id, n, i, best);
}

mnc_order mnc_order_of(const float *l, int64_t n_vocab, int64_t k, int32_t *id) {
    mnc_order o = {l, id, 0, 0};
    for (int64_t v = 0; v < n_vocab; v++) {
        int32_t i = (int32_t)v;
        if (l[i] == -INFINITY)
            continue;
        if (k <= 0 || o.n < k) {
            id[o.n++] = i;
            if (o.n == k)
                heapify(l, id, k, false);
        } else if (l[i] > l[id[0]]) { /* a tie keeps the lower id, which came first */
            id[0] = i;
            sift(l, id, k, 0, false);
        }
    }
    heapify(l, id, o.n, true);
    return o;
}

int32_t mnc_order_at(mnc_order *o, int64_t i) {
    while (o->popped <= i) {
        int64_t left = o->n - o->popped;
        int32_t top = o->id[0];
        o->id[0] = o->id[left - 1];
        o->popped++;
        if (left > 1)
            sift(o->logit, o->id, left - 1, 0, true);
        o->id[left - 1] = top;
    }
    return o->id[o->n - 1 - i];
}

/* ---- what the history says ------------------------------------------------------------------- */
/* The last last_n (< 0: all) tokens that the slot has stored: places [lo, hi) of its history. */
typedef struct {
    int64_t lo, hi;
} past;
static past past_of(const mnc_sample *s, int32_t last_n) {
    past h = {0, s->n_ctx};
    if (s->pos < s->n_ctx)
        h.hi = s->pos;
    if (last_n >= 0 && last_n <= h.hi)
        h.lo = h.hi - last_n;
    return h;
}

bool mnc_chain_reads_history(const mn_slot_params *p) {
    return mnp_has_penalties(p) || mnp_has_dry(p);
}

/* count: scratch, [n_vocab]: how often each id stands in the part of the history that counts. */
static void chain_penalise(const mnc_sample *s, float *l, int32_t *count) {
    const mn_slot_params *p = s->params;
    const past h = past_of(s, p->penalty_last_n);
    memset(count, 0, (size_t)s->n_vocab * sizeof *count);
    for (int64_t i = h.lo; i < h.hi; i++) {
        const int32_t id = s->history[i];
        if (id >= 0 && id < s->n_vocab)
            count[id]++;
    }
    for (int64_t i = h.lo; i < h.hi; i++) {
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
    for (int64_t i = 0; i < s->n_vocab; i++) {
        if (isnan(l[i])) /* a masked id that is penalised: -inf * 0, -inf + inf */
            l[i] = -INFINITY;
        if (l[i] > FLT_MAX) /* divided by a penalty near 0 */
            l[i] = FLT_MAX;
    }
}

/* Tokens of a match beyond dry_allowed_length that are counted: by then the penalty forbids the id,
 * and a history that repeats one token costs a bounded number of comparisons. */
enum { DRY_MOST = 256 };

/* An id that ends matches, and one that is none. */
static bool chain_breaks(const mnc_sample *s, int32_t id) {
    if (id < 0 || id >= s->n_vocab)
        return true;
    return s->breakers && (s->breakers[id / 32] >> (id % 32) & 1);
}

/* How many tokens up to and with place i equal the newest ones; at most `most`. */
static int32_t chain_match_at(const mnc_sample *s, past h, int64_t i, int32_t most) {
    int32_t n = 0;
    while (n < most && i - n >= h.lo && s->history[i - n] == s->history[h.hi - 1 - n] &&
           !chain_breaks(s, s->history[i - n]))
        n++;
    return n;
}

static float dry_penalty(const mn_slot_params *p, int32_t match) {
    const double by = p->dry_multiplier * pow(p->dry_base, match - p->dry_allowed_length);
    return (float)fmin(by, FLT_MAX);
}

/* longest: scratch, [n_vocab]: of the matches that an id follows. */
static void chain_dry(const mnc_sample *s, float *l, int32_t *longest) {
    const mn_slot_params *p = s->params;
    const past h = past_of(s, p->dry_last_n);
    const int32_t least = p->dry_allowed_length > 1 ? p->dry_allowed_length : 1;
    const int32_t most =
        p->dry_allowed_length < INT32_MAX - DRY_MOST ? p->dry_allowed_length + DRY_MOST : INT32_MAX;
    memset(longest, 0, (size_t)s->n_vocab * sizeof *longest);
    for (int64_t i = h.lo; i + 1 < h.hi; i++) {
        const int32_t next = s->history[i + 1];
        const int32_t match = chain_match_at(s, h, i, most);
        if (match >= least && !chain_breaks(s, next) && match > longest[next])
            longest[next] = match;
    }
    for (int64_t i = h.lo; i + 1 < h.hi; i++) {
        const int32_t next = s->history[i + 1];
        if (chain_breaks(s, next) || !longest[next])
            continue;
        l[next] -= dry_penalty(p, longest[next]);
        longest[next] = 0; /* once per id */
    }
}

/* ---- the candidates -------------------------------------------------------------------------- */
/* The first sampler to come, off the list; 0 = the list is over. */
static uint32_t chain_take(mnc_chain *c) {
    const uint32_t sampler = c->left & 15;
    c->left = sampler ? c->left >> 4 : 0;
    return sampler;
}

static int32_t chain_at(mnc_chain *c, int64_t place) {
    return mnc_order_at(&c->order, place);
}

/* Makes the order, of the k best ids (0: of all). false = no logit is finite. */
static bool chain_make_order(mnc_chain *c, int64_t k) {
    if (!c->order.id) {
        c->order = mnc_order_of(c->l, c->s->n_vocab, k, c->ids);
        c->lo = 0;
        c->hi = c->order.n;
        if (c->hi)
            c->max = c->l[chain_at(c, 0)];
    }
    return c->hi > 0;
}

/* How far the logit of a place lies below the first candidate's, at the temperature so far. */
static double chain_below(mnc_chain *c, int64_t place) {
    return ((double)c->max - c->l[chain_at(c, place)]) / c->temp;
}

/* What an id counts for, against the first candidate. */
static double weight_of(const mnc_chain *c, int32_t id) {
    const double less = (double)c->l[id] - c->max;
    return exp(less / c->temp);
}

/* The i-th candidate of hi - lo, in an order that costs nothing: where the end of the order is not
 * cut off, its ids stand in front, as a heap. */
static int32_t any(mnc_chain *c, int64_t i) {
    if (c->hi == c->order.n)
        return c->order.id[i];
    return chain_at(c, c->lo + i);
}

/* The weight of all candidates: most of a draw's time where nothing is cut off. */
static double chain_weigh(mnc_chain *c) {
    const int64_t n = c->hi - c->lo;
    const bool uncut = c->hi == c->order.n;
    double sum = 0;
    for (int64_t i = 0; i < n && uncut; i++)
        sum += weight_of(c, c->order.id[i]);
    for (int64_t i = 0; i < n && !uncut; i++)
        sum += weight_of(c, chain_at(c, c->lo + i));
    return sum;
}

/* Candidates are [lo, hi) from now on. */
static void chain_keep(mnc_chain *c, int64_t lo, int64_t hi) {
    c->lo = lo;
    c->hi = hi;
    c->max = c->l[chain_at(c, lo)];
}

/* The mean of `below`, by probability; sum: weigh(c). With ln sum it is the entropy in nats. */
static double mean_below(mnc_chain *c, double sum) {
    double mean = 0;
    for (int64_t i = 0; i < c->hi - c->lo; i++) {
        const int32_t id = any(c, i);
        const double w = weight_of(c, id);
        if (w > 0)
            mean += w / sum * ((double)c->max - c->l[id]) / c->temp;
    }
    return mean;
}

/* The range goes back into the logits, for a sampler that changes them. */
static void chain_write_back(mnc_chain *c) {
    if (!c->order.id)
        return;
    memset(c->count, 0, (size_t)c->s->n_vocab * sizeof *c->count);
    for (int64_t i = 0; i < c->hi - c->lo; i++)
        c->count[any(c, i)] = 1;
    for (int64_t i = 0; i < c->s->n_vocab; i++)
        c->l[i] = c->count[i] ? (float)(c->l[i] / c->temp) : -INFINITY;
    c->temp = 1;
    c->order.id = NULL;
}

/* ---- samplers that narrow the candidates ----------------------------------------------------- */
static void chain_top_n_sigma(mnc_chain *c, double n_sigma) {
    const int64_t n = c->hi - c->lo;
    double mean = 0;
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        mean += c->l[any(c, i)] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double off = c->l[any(c, i)] - mean;
        square += off * off / (double)n;
    }
    const double limit = c->max - n_sigma * sqrt(square);
    int64_t hi = c->lo + 1;
    while (hi < c->hi && c->l[chain_at(c, hi)] >= limit)
        hi++;
    chain_keep(c, c->lo, hi);
}

static void top_k(mnc_chain *c, int64_t k) {
    if (c->lo + k < c->hi)
        chain_keep(c, c->lo, c->lo + k);
}

/* The distance from -ln p falls and rises again along the order: the range grows from where it is
 * smallest. */
static void chain_typical(mnc_chain *c, double p) {
    const double sum = chain_weigh(c);
    const double centre = mean_below(c, sum); /* there -ln p is the entropy */
    int64_t lo = c->lo;
    for (int64_t i = c->lo; i < c->hi; i++) {
        if (fabs(chain_below(c, i) - centre) < fabs(chain_below(c, lo) - centre))
            lo = i;
        if (chain_below(c, i) >= centre)
            break;
    }
    int64_t hi = lo + 1;
    double run = weight_of(c, chain_at(c, lo));
    while (run < p * sum && (lo > c->lo || hi < c->hi)) {
        const double left = lo > c->lo ? fabs(chain_below(c, lo - 1) - centre) : HUGE_VAL;
        const double right = hi < c->hi ? fabs(chain_below(c, hi) - centre) : HUGE_VAL;
        const bool likelier = lo > c->lo && left <= right;
        const int64_t next = likelier ? lo - 1 : hi;
        run += weight_of(c, chain_at(c, next));
        lo -= likelier;
        hi += !likelier;
    }
    chain_keep(c, lo, hi);
}

static void top_p(mnc_chain *c, double p) {
    const double goal = p * chain_weigh(c);
    double run = 0;
    int64_t hi = c->lo;
    for (; hi < c->hi && run < goal; hi++)
        run += weight_of(c, chain_at(c, hi));
    chain_keep(c, c->lo, hi);
}

static void min_p(mnc_chain *c, double p) {
    int64_t hi = c->lo + 1; /* the best stays */
    while (hi < c->hi && weight_of(c, chain_at(c, hi)) >= p)
        hi++;
    chain_keep(c, c->lo, hi);
}

/* 24 bits of a random word: [0, 1) */
static double uniform(uint32_t word) {
    return (word >> 8) * 0x1p-24;
}

static void chain_xtc(mnc_chain *c, const mn_slot_params *p) {
    if (c->hi - c->lo < 2 || uniform(c->word[1]) >= p->xtc_probability)
        return;
    const double limit = p->xtc_threshold * chain_weigh(c);
    int64_t lo = c->lo;
    while (lo + 1 < c->hi && weight_of(c, chain_at(c, lo + 1)) >= limit)
        lo++;
    chain_keep(c, lo, c->hi);
}

static void chain_temperature(mnc_chain *c, const mn_slot_params *p) {
    double temp = p->temp;
    const int64_t n = c->hi - c->lo;
    if (p->dynatemp_range > 0 && n > 1) {
        const double low = fmax(0, temp - p->dynatemp_range);
        const double high = temp + p->dynatemp_range;
        const double sum = chain_weigh(c);
        const double entropy = mean_below(c, sum) + log(sum);
        const double share = entropy / log((double)n);
        temp = low + (high - low) * pow(share, p->dynatemp_exponent);
    }
    if (temp > 0)
        c->temp *= temp;
    else
        chain_keep(c, c->lo, c->lo + 1);
}

/* The probability of what mirostat keeps has at most mu bits of surprise. */
static void cut_surprise(mnc_chain *c, double mu) {
    const double limit = chain_weigh(c) * exp2(-mu);
    int64_t hi = c->lo + 1;
    while (hi < c->hi && weight_of(c, chain_at(c, hi)) >= limit)
        hi++;
    chain_keep(c, c->lo, hi);
}

/* ---- the chain ------------------------------------------------------------------------------- */
/* Whether a sampler does anything with these parameters. */
static bool is_on(uint32_t sampler, const mn_slot_params *p) {
    if (p->mirostat == 2 && sampler != MN_SAMPLER_TEMPERATURE)
        return false;
    switch (sampler) {
    case MN_SAMPLER_TOP_N_SIGMA:
        return p->top_n_sigma > 0;
    case MN_SAMPLER_TOP_K:
        return p->top_k > 0;
    case MN_SAMPLER_TYPICAL:
        return p->typical_p > 0 && p->typical_p < 1;
    case MN_SAMPLER_TOP_P:
        return p->top_p > 0 && p->top_p < 1;
    case MN_SAMPLER_MIN_P:
        return p->min_p > 0;
    case MN_SAMPLER_XTC:
        return p->xtc_probability > 0 && p->xtc_threshold <= 0.5f;
    case MN_SAMPLER_TEMPERATURE:
        return p->temp > 0;
    default:
        return false;
    }
}

/* false = the sampler is no sampler of the history. */
static bool chain_run_on_history(mnc_chain *c, uint32_t sampler) {
    const mn_slot_params *p = c->s->params;
    const mnp_on_history how = mnp_sampler_on_history(sampler, p);
    if (how != MNP_HISTORY_ON)
        return how == MNP_HISTORY_OFF;
    chain_write_back(c);
    c->rewritten = true;
    if (sampler == MN_SAMPLER_PENALTIES)
        chain_penalise(c->s, c->l, c->count);
    else
        chain_dry(c->s, c->l, c->count);
    return true;
}

/* Runs a sampler that is on, over candidates. */
static void chain_narrow(mnc_chain *c, uint32_t sampler) {
    const mn_slot_params *p = c->s->params;
    switch (sampler) {
    case MN_SAMPLER_TOP_N_SIGMA:
        chain_top_n_sigma(c, p->top_n_sigma);
        break;
    case MN_SAMPLER_TOP_K:
        top_k(c, p->top_k);
        break;
    case MN_SAMPLER_TYPICAL:
        chain_typical(c, p->typical_p);
        break;
    case MN_SAMPLER_TOP_P:
        top_p(c, p->top_p);
        break;
    case MN_SAMPLER_MIN_P:
        min_p(c, p->min_p);
        break;
    case MN_SAMPLER_XTC:
        chain_xtc(c, p);
        break;
    default:
        chain_temperature(c, p);
    }
}

mnc_chain mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                          bool greedy) {
    const mn_slot_params *p = s->params;
    mnc_chain c = {.s = s, .l = l, .ids = ids, .count = count, .left = p->samplers, .temp = 1};
    if (!c.left)
        c.left = MN_SAMPLERS_DEFAULT;
    while (c.left) {
        const uint64_t left = c.left;
        const bool done = chain_run_on_history(&c, chain_take(&c));
        if (done || greedy)
            continue;
        c.left = left;
        break;
    }
    c.rewritten = false;
    return c;
}

/* Which candidate is drawn; *share: its probability. */
static int32_t cpu_host_chain_draw(mnc_chain *c, double *share) {
    const double sum = chain_weigh(c);
    const double goal = uniform(c->word[0]) * sum;
    double run = 0;
    double w = 0;
    int64_t place = c->lo;
    for (; place < c->hi; place++) {
        w = weight_of(c, chain_at(c, place));
        run += w;
        if (run > goal)
            break;
    }
    *share = w / sum;
    return chain_at(c, place < c->hi ? place : c->hi - 1);
}

int32_t mnc_chain_draw(mnc_chain *c, float *mu) {
    const mn_slot_params *p = c->s->params;
    const uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)c->s->pos, 0, 0, 0};
    const bool mirostat = p->mirostat == 2 && mu;
    uint32_t words[4];
    double share = 1;
    mnc_philox(key, counter, words);
    memcpy(c->word, words, sizeof c->word);
    while (c->left) {
        const uint32_t sampler = chain_take(c);
        if (chain_run_on_history(c, sampler) || !is_on(sampler, p))
            continue;
        const bool cuts = sampler == MN_SAMPLER_TOP_K && p->top_k < c->s->n_vocab;
        if (!chain_make_order(c, cuts ? p->top_k : 0))
            return MN_ID_NONE;
        chain_narrow(c, sampler);
    }
    if (!chain_make_order(c, 0))
        return MN_ID_NONE;
    if (mirostat)
        cut_surprise(c, *mu);
    const int32_t id = cpu_host_chain_draw(c, &share);
    if (mirostat)
        *mu = (float)(*mu - p->mirostat_eta * (-log2(share) - p->mirostat_tau));
    return id;
}
