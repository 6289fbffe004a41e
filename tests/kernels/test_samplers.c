/* test_samplers.c -- the samplers of SAMPLE against a second implementation: lists of candidates in
 * double, sorted and shortened as the papers and pull requests describe it, without the ranges and
 * heaps of chain.c. Which candidates are left and with what probability is compared exactly, not by
 * drawing often. Cases in which a comparison is too close to call are left out. */
#include "chain.h"
#include "harness.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 48, C = 96, CASES = 12000 };
#define LIST(...) samplers_of((const uint32_t[]){__VA_ARGS__, 0})

/* ---- the second implementation --------------------------------------------------------------- */
typedef struct {
    int32_t id;
    double l, p, far;
} candidate;
typedef struct {
    candidate at[V];
    int n;
    double temp;
    bool close;   /* a comparison was within 1e-9 */
    float row[V]; /* as LOGPROB sees them */
} oracle;
typedef struct {
    mn_slot_params p;
    float logits[V];
    int32_t history[C];
    uint32_t breakers[(V + 31) / 32];
    int32_t pos;
    float mu;
} sample_case;

static uint64_t samplers_of(const uint32_t *list) {
    uint64_t bits = 0;
    for (int i = 0; list[i]; i++)
        bits |= (uint64_t)list[i] << 4 * i;
    return bits;
}

static int by_logit(const void *a, const void *b) {
    const candidate *x = a;
    const candidate *y = b;
    if (x->l != y->l)
        return x->l > y->l ? -1 : 1;
    return x->id - y->id;
}

static bool at_least(oracle *o, double a, double b) {
    o->close |= fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
    return a >= b;
}

static void softmax(oracle *o) {
    qsort(o->at, (size_t)o->n, sizeof *o->at, by_logit);
    double sum = 0;
    for (int i = 0; i < o->n; i++) {
        o->at[i].p = exp((o->at[i].l - o->at[0].l) / o->temp);
        sum += o->at[i].p;
    }
    for (int i = 0; i < o->n; i++)
        o->at[i].p /= sum;
}

static double entropy(const oracle *o) {
    double h = 0;
    for (int i = 0; i < o->n; i++)
        if (o->at[i].p > 0)
            h -= o->at[i].p * log(o->at[i].p);
    return h;
}

/* The candidates [lo, hi) alone. */
static void only(oracle *o, int lo, int hi) {
    memmove(o->at, o->at + lo, (size_t)(hi - lo) * sizeof *o->at);
    o->n = hi - lo;
}

static void tempered(oracle *o) {
    for (int i = 0; i < o->n; i++)
        o->at[i].l = (double)(float)(o->at[i].l / o->temp);
    o->temp = 1;
}

static bool is_breaker(const sample_case *k, int32_t id) {
    return k->breakers[id / 32] >> (id % 32) & 1;
}

static candidate *find(oracle *o, int32_t id) {
    for (int i = 0; i < o->n; i++)
        if (o->at[i].id == id)
            return &o->at[i];
    return NULL;
}

static void do_penalties(oracle *o, const sample_case *k) {
    const mn_slot_params *p = &k->p;
    const int lo =
        p->penalty_last_n < 0 || p->penalty_last_n > k->pos ? 0 : k->pos - p->penalty_last_n;
    const bool none = (p->repeat_penalty == 0 || p->repeat_penalty == 1) &&
                      p->frequency_penalty == 0 && p->presence_penalty == 0;
    if (none || !p->penalty_last_n)
        return;
    tempered(o);
    for (int32_t id = 0; id < V; id++) {
        int count = 0;
        candidate *c = find(o, id);
        for (int i = lo; i < k->pos; i++)
            count += k->history[i] == id;
        if (!count || !c)
            continue;
        float l = (float)c->l;
        if (p->repeat_penalty != 0)
            l = l > 0 ? l / p->repeat_penalty : l * p->repeat_penalty;
        l -= p->frequency_penalty * (float)count + p->presence_penalty;
        c->l = (double)l;
    }
}

/* The description of the first pull request: for every place of the last token, count backwards. */
static void do_dry(oracle *o, const sample_case *k) {
    const mn_slot_params *p = &k->p;
    const int lo = p->dry_last_n < 0 || p->dry_last_n > k->pos ? 0 : k->pos - p->dry_last_n;
    const int32_t *h = k->history;
    const int end = k->pos - 1;
    int longest[V] = {0};
    if (!(p->dry_multiplier > 0) || !(p->dry_base >= 1) || !p->dry_last_n)
        return;
    tempered(o);
    if (end < lo || is_breaker(k, h[end]))
        return;
    for (int i = lo; i < end; i++) {
        if (h[i] != h[end] || is_breaker(k, h[i + 1]))
            continue;
        int match = 1;
        while (i - match >= lo && h[i - match] == h[end - match] && !is_breaker(k, h[i - match]))
            match++;
        if (match > longest[h[i + 1]])
            longest[h[i + 1]] = match;
    }
    for (int32_t id = 0; id < V; id++) {
        candidate *c = find(o, id);
        if (!c || !longest[id] || longest[id] < p->dry_allowed_length)
            continue;
        const double by = (double)p->dry_multiplier *
                          pow((double)p->dry_base, longest[id] - p->dry_allowed_length);
        c->l = (double)((float)c->l - (float)fmin(by, (double)FLT_MAX));
    }
}

static void do_sigma(oracle *o, double n) {
    double mean = 0;
    double square = 0;
    int keep = 0;
    softmax(o);
    for (int i = 0; i < o->n; i++)
        mean += o->at[i].l;
    mean /= o->n;
    for (int i = 0; i < o->n; i++)
        square += (o->at[i].l - mean) * (o->at[i].l - mean);
    const double limit = o->at[0].l - n * sqrt(square / o->n);
    while (keep < o->n && at_least(o, o->at[keep].l, limit))
        keep++;
    only(o, 0, keep > 0 ? keep : 1);
}

static int by_distance(const void *a, const void *b) {
    const candidate *x = a;
    const candidate *y = b;
    if (x->far != y->far)
        return x->far < y->far ? -1 : 1;
    return by_logit(a, b);
}

static void do_typical(oracle *o, double goal) {
    softmax(o);
    const double h = entropy(o);
    double run = 0;
    int keep = 0;
    for (int i = 0; i < o->n; i++)
        o->at[i].far = fabs(-log(o->at[i].p) - h);
    qsort(o->at, (size_t)o->n, sizeof *o->at, by_distance);
    for (int i = 0; i + 1 < o->n; i++) /* the order of neighbours must be certain */
        o->close |= fabs(o->at[i].far - o->at[i + 1].far) < 1e-9;
    while (keep < o->n && !at_least(o, run, goal))
        run += o->at[keep++].p;
    o->n = keep;
    softmax(o);
}

static void do_top_p(oracle *o, double goal) {
    double run = 0;
    int keep = 0;
    softmax(o);
    while (keep < o->n && !at_least(o, run, goal))
        run += o->at[keep++].p;
    only(o, 0, keep);
}

static void do_min_p(oracle *o, double least) {
    int keep = 1;
    softmax(o);
    while (keep < o->n && at_least(o, o->at[keep].p / o->at[0].p, least))
        keep++;
    only(o, 0, keep);
}

static void do_xtc(oracle *o, const mn_slot_params *p, double w) {
    int above = 0;
    if (o->n < 2 || w >= (double)p->xtc_probability)
        return;
    softmax(o);
    while (above < o->n && at_least(o, o->at[above].p, (double)p->xtc_threshold))
        above++;
    if (above > 1)
        only(o, above - 1, o->n);
}

static void do_temperature(oracle *o, const mn_slot_params *p) {
    double temp = (double)p->temp;
    softmax(o);
    if (p->dynatemp_range > 0 && o->n > 1) {
        const double low = fmax(0, temp - (double)p->dynatemp_range);
        const double high = temp + (double)p->dynatemp_range;
        temp = low + (high - low) * pow(entropy(o) / log(o->n), (double)p->dynatemp_exponent);
    }
    if (temp > 0)
        o->temp *= temp;
    else
        only(o, 0, 1);
}

static void run_one(oracle *o, const sample_case *k, uint32_t sampler, double w) {
    const mn_slot_params *p = &k->p;
    if (sampler == MN_SAMPLER_PENALTIES)
        do_penalties(o, k);
    if (sampler == MN_SAMPLER_DRY)
        do_dry(o, k);
    if (sampler == MN_SAMPLER_TEMPERATURE)
        do_temperature(o, p);
    if (p->mirostat)
        return;
    if (sampler == MN_SAMPLER_TOP_N_SIGMA && p->top_n_sigma > 0)
        do_sigma(o, (double)p->top_n_sigma);
    if (sampler == MN_SAMPLER_TOP_K && p->top_k > 0 && p->top_k < o->n) {
        softmax(o);
        only(o, 0, p->top_k);
    }
    if (sampler == MN_SAMPLER_TYPICAL && p->typical_p > 0 && p->typical_p < 1)
        do_typical(o, (double)p->typical_p);
    if (sampler == MN_SAMPLER_TOP_P && p->top_p > 0 && p->top_p < 1)
        do_top_p(o, (double)p->top_p);
    if (sampler == MN_SAMPLER_MIN_P && p->min_p > 0)
        do_min_p(o, (double)p->min_p);
    if (sampler == MN_SAMPLER_XTC && p->xtc_probability > 0 && p->xtc_threshold <= 0.5f)
        do_xtc(o, p, w);
}

/* Two numbers of [0, 1) for a position. */
static void randoms(const sample_case *k, double *u, double *w) {
    const uint32_t key[2] = {(uint32_t)k->p.seed, (uint32_t)(k->p.seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)k->pos, 0, 0, 0};
    uint32_t x[4];
    mnc_philox(key, counter, x);
    *u = (x[0] >> 8) / 16777216.0;
    *w = (x[1] >> 8) / 16777216.0;
}

/* What is left, with probabilities, the id, and mu behind it. */
static int32_t oracle_draw(oracle *o, const sample_case *k, float *mu) {
    uint64_t list = k->p.samplers ? k->p.samplers : MN_SAMPLERS_DEFAULT;
    double u = 0;
    double w = 0;
    double run = 0;
    int at = 0;
    *o = (oracle){.temp = 1, .n = V};
    for (int i = 0; i < V; i++)
        o->at[i] = (candidate){.id = i, .l = (double)k->logits[i]};
    randoms(k, &u, &w);
    for (bool first = true; list; list >>= 4) {
        const uint32_t sampler = list & 15;
        const bool more = sampler == MN_SAMPLER_PENALTIES || sampler == MN_SAMPLER_DRY;
        if (first && !more) {
            for (int i = 0; i < o->n; i++)
                o->row[o->at[i].id] = (float)o->at[i].l;
            first = false;
        }
        run_one(o, k, sampler, w);
        for (int i = 0; first && i < o->n; i++)
            o->row[o->at[i].id] = (float)o->at[i].l;
    }
    softmax(o);
    if (k->p.mirostat) {
        int keep = 1;
        while (keep < o->n && at_least(o, o->at[keep].p, exp2(-(double)*mu)))
            keep++;
        only(o, 0, keep);
        softmax(o);
    }
    while (at + 1 < o->n && !(run + o->at[at].p > u))
        run += o->at[at++].p;
    o->close |= fabs(run - u) < 1e-9 || fabs(run + o->at[at].p - u) < 1e-9;
    if (k->p.mirostat)
        *mu = (float)((double)*mu -
                      (double)k->p.mirostat_eta * (-log2(o->at[at].p) - (double)k->p.mirostat_tau));
    return o->at[at].id;
}

/* ---- random cases ---------------------------------------------------------------------------- */
static uint64_t seed = 7;
static uint32_t below(uint32_t n) {
    return (uint32_t)((double)(case_rand(&seed) * 0.5f + 0.5f) * n) % n;
}
static bool one_in(uint32_t n) {
    return !below(n);
}
static float between(float lo, float hi) {
    return lo + (hi - lo) * (case_rand(&seed) * 0.5f + 0.5f);
}

/* Off in all but one of n cases. */
static float maybe(uint32_t n, float lo, float hi) {
    if (one_in(n))
        return between(lo, hi);
    return 0;
}

/* Some of the samplers, shuffled; 0 in half of the cases. */
static uint64_t some_order(void) {
    uint32_t list[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    if (one_in(2))
        return 0;
    for (uint32_t i = 8; i > 0; i--) {
        const uint32_t j = below(i + 1);
        const uint32_t was = list[i];
        list[i] = list[j];
        list[j] = was;
    }
    list[below(5) + 5] = 0;
    return samplers_of(list);
}

static sample_case random_case(void) {
    sample_case k = {.p = {.temp = between(0.3f, 2), .seed = below(1u << 30)}};
    mn_slot_params *p = &k.p;
    const uint32_t alphabet = 2 + below(6);
    const float width = between(1, 8);
    for (int i = 0; i < V; i++)
        k.logits[i] = width * case_rand(&seed);
    k.pos = (int32_t)below(C);
    for (int i = 0; i < C; i++)
        k.history[i] = (int32_t)below(alphabet) * 5 % V;
    if (one_in(3))
        k.breakers[0] = 1u << below(20);
    p->samplers = some_order();
    p->top_k = one_in(3) ? (int32_t)below(V + 4) : 0;
    p->top_p = maybe(3, 0.1f, 1);
    p->min_p = maybe(4, 0, 0.3f);
    p->penalty_last_n = one_in(2) ? -1 : (int32_t)below(20);
    p->repeat_penalty = one_in(4) ? between(0.8f, 1.5f) : 1;
    p->presence_penalty = maybe(6, -1, 1);
    p->frequency_penalty = maybe(6, 0, 0.5f);
    p->dry_multiplier = maybe(3, 0.1f, 2);
    p->dry_base = between(1, 2);
    p->dry_allowed_length = (int32_t)below(4);
    p->dry_last_n = one_in(2) ? -1 : (int32_t)below(40);
    p->top_n_sigma = maybe(4, 0.1f, 2);
    p->typical_p = maybe(3, 0.05f, 1);
    p->xtc_probability = maybe(3, 0, 1.2f);
    p->xtc_threshold = between(0, 0.6f);
    p->dynatemp_range = maybe(3, 0.1f, 1.5f);
    p->dynatemp_exponent = between(0.5f, 2);
    p->mirostat = one_in(5) ? 2 : 0;
    p->mirostat_tau = between(1, 5);
    p->mirostat_eta = between(0, 0.3f);
    k.mu = between(0, 8);
    return k;
}

static mnc_sample sample_of(const sample_case *k) {
    return (mnc_sample){.logits = k->logits,
                        .n_vocab = V,
                        .params = &k->p,
                        .history = k->history,
                        .n_ctx = C,
                        .pos = k->pos,
                        .breakers = k->breakers};
}

/* The candidates that the chain has left, and the id. */
static int32_t chain_draw(const sample_case *k, const mnc_sample *s, mnc_chain *c, float *l,
                          int32_t *ids, float *mu) {
    int32_t count[V];
    memcpy(l, k->logits, sizeof k->logits);
    *c = mnc_chain_begin(s, l, ids, count, false);
    return mnc_chain_draw(c, mu);
}

static void compare(mnc_chain *c, oracle *o) {
    double sum = 0;
    assert_int_equal(c->hi - c->lo, o->n);
    softmax(o);
    for (int i = 0; i < o->n; i++)
        sum += exp(((double)c->l[mnc_order_at(&c->order, c->lo + i)] - (double)c->max) / c->temp);
    for (int i = 0; i < o->n; i++) {
        const int32_t id = mnc_order_at(&c->order, c->lo + i);
        const double p = exp(((double)c->l[id] - (double)c->max) / c->temp) / sum;
        assert_int_equal(id, o->at[i].id);
        assert_true(fabs(p - o->at[i].p) < 1e-9);
    }
}

static void test_random(void **state) {
    (void)state;
    int n_close = 0;
    for (int n = 0; n < CASES; n++) {
        const sample_case k = random_case();
        mnc_sample s = sample_of(&k);
        oracle o;
        mnc_chain c;
        float l[V];
        int32_t ids[V];
        char scratch[12 * V];
        float want_mu = k.mu;
        float mu = k.mu;
        float logprob = 0;
        const int32_t want = oracle_draw(&o, &k, &want_mu);
        n_close += o.close;
        if (o.close)
            continue;
        const int32_t got = chain_draw(&k, &s, &c, l, ids, &mu);
        compare(&c, &o);
        assert_int_equal(got, want);
        assert_true(fabsf(mu - want_mu) < 1e-5f);
        mu = k.mu;
        s.mu = &mu;
        s.logprob = &logprob;
        assert_int_equal(mnc_sample_draw(&s, scratch), want);
        double all = 0;
        for (int i = 0; i < V; i++)
            all += exp((double)o.row[i]);
        assert_true(fabs((double)logprob - ((double)o.row[want] - log(all))) < 1e-5);
    }
    assert_in_range(n_close, 0, CASES / 50);
}

/* ---- cases by hand --------------------------------------------------------------------------- */
/* The ids that are left of logits ln(p). */
static int left(mn_slot_params p, const double *of, int n, int32_t *ids) {
    sample_case k = {.p = p, .pos = 1};
    mnc_sample s = sample_of(&k);
    mnc_chain c;
    float l[V];
    int32_t room[V];
    float mu = p.mirostat_tau * 2;
    for (int i = 0; i < V; i++)
        k.logits[i] = i < n ? (float)log(of[i]) : -INFINITY;
    if (k.p.temp == 0)
        k.p.temp = 1;
    chain_draw(&k, &s, &c, l, room, &mu);
    for (int64_t i = c.lo; i < c.hi; i++)
        ids[i - c.lo] = mnc_order_at(&c.order, i);
    return (int)(c.hi - c.lo);
}

static void expect(mn_slot_params p, const double *of, int n, uint32_t want) {
    int32_t ids[V];
    uint32_t got = 0;
    const int n_left = left(p, of, n, ids);
    for (int i = 0; i < n_left; i++)
        got |= 1u << ids[i];
    assert_int_equal(got, want);
}

static void test_sets(void **state) {
    (void)state;
    const double p[5] = {0.5, 0.2, 0.15, 0.1, 0.05};
    const double even[4] = {0.25, 0.25, 0.25, 0.25};
    const double steep[4] = {0.97, 0.01, 0.01, 0.01};
    const mn_slot_params xtc = {.xtc_probability = 1, .xtc_threshold = 0.12f};
    mn_slot_params none = xtc;
    mn_slot_params high = xtc;
    mn_slot_params off = xtc;
    none.xtc_threshold = 0.5f + 1e-3f;
    high.xtc_threshold = 0.4f; /* one id alone is above it: nothing is removed */
    off.xtc_probability = 0;
    expect(xtc, p, 5, 0x1c);
    expect(none, p, 5, 0x1f);
    expect(high, p, 5, 0x1f);
    expect(off, p, 5, 0x1f);
    /* ids below the limit by sigma: mean and deviation of the logits 0, -1, -1, -1 */
    const double logits[4] = {1, exp(-1), exp(-1), exp(-1)};
    expect((mn_slot_params){.top_n_sigma = 2}, logits, 4, 0x1);
    expect((mn_slot_params){.top_n_sigma = 2.4f}, logits, 4, 0xf);
    /* equal probabilities are all typical: the first ones are kept */
    expect((mn_slot_params){.typical_p = 0.5f}, even, 4, 0x3);
    /* the entropy of p is 1.33: 0.2 (1.61) and 0.5 (0.69) are 0.27 and 0.64 away, 0.15 0.56 */
    expect((mn_slot_params){.typical_p = 0.19f}, p, 5, 0x2);
    expect((mn_slot_params){.typical_p = 0.34f}, p, 5, 0x6);
    expect((mn_slot_params){.typical_p = 0.6f}, p, 5, 0x7);
    /* mirostat keeps what is at most mu = 2 tau bits surprising */
    expect((mn_slot_params){.mirostat = 2, .mirostat_tau = 1.2f}, p, 5, 0x3);
    expect((mn_slot_params){.mirostat = 2, .mirostat_tau = 0.1f}, p, 5, 0x1);
    /* its filters are then without effect */
    expect((mn_slot_params){.mirostat = 2, .mirostat_tau = 9, .top_k = 1}, p, 5, 0x1f);
    /* temperature before min_p: 1 / 97 becomes 1 / 9.8 */
    const uint64_t late = LIST(MN_SAMPLER_MIN_P, MN_SAMPLER_TEMPERATURE);
    const uint64_t early = LIST(MN_SAMPLER_TEMPERATURE, MN_SAMPLER_MIN_P);
    expect((mn_slot_params){.temp = 2, .min_p = 0.1f, .samplers = late}, steep, 4, 0x1);
    expect((mn_slot_params){.temp = 2, .min_p = 0.1f, .samplers = early}, steep, 4, 0xf);
    /* a sampler that is not in the list does nothing */
    expect((mn_slot_params){.top_k = 2, .samplers = late}, p, 5, 0x1f);
    /* dynamic temperature 0: one candidate of four equal ones has no entropy to divide by */
    expect((mn_slot_params){.temp = 0.5f, .dynatemp_range = 1, .top_k = 1}, even, 4, 0x1);
}

/* Greedy, so that what DRY takes away decides. */
static int32_t greedy(const mn_slot_params *p, const int32_t *history, int32_t n, uint32_t breakers,
                      const float *logits) {
    sample_case k = {.p = *p, .pos = n, .breakers = {breakers}};
    char scratch[12 * V];
    for (int i = 0; i < V; i++)
        k.logits[i] = logits[i];
    memcpy(k.history, history, (size_t)n * sizeof *history);
    mnc_sample s = sample_of(&k);
    return mnc_sample_draw(&s, scratch);
}

static void test_dry(void **state) {
    (void)state;
    /* 1 2 3 4 | 1 2 3: 4 would repeat a match of 3 */
    const int32_t history[7] = {1, 2, 3, 4, 1, 2, 3};
    float logits[V] = {[4] = 2, [5] = 1};
    mn_slot_params p = {
        .dry_multiplier = 1.1f, .dry_base = 1, .dry_allowed_length = 3, .dry_last_n = -1};
    assert_int_equal(greedy(&p, history, 7, 0, logits), 5);
    p.dry_allowed_length = 4; /* the match is shorter */
    assert_int_equal(greedy(&p, history, 7, 0, logits), 4);
    p.dry_allowed_length = 2;
    p.dry_multiplier = 0.6f; /* 0.6 * 1.75 ^ 1 */
    assert_int_equal(greedy(&p, history, 7, 0, logits), 4);
    p.dry_base = 1.75f;
    assert_int_equal(greedy(&p, history, 7, 0, logits), 5);
    assert_int_equal(greedy(&p, history, 7, 1u << 2, logits), 4); /* 2 breaks the match */
    assert_int_equal(greedy(&p, history, 7, 1u << 3, logits), 4); /* the newest one does */
    assert_int_equal(greedy(&p, history, 7, 1u << 4, logits), 4); /* a breaker is not penalised */
    assert_int_equal(greedy(&p, history, 7, 1u << 1, logits), 4); /* a match of 2 costs 0.6 */
    p.dry_last_n = 6;
    assert_int_equal(greedy(&p, history, 7, 0, logits), 4); /* the match is 2 long */
    p.dry_last_n = 0;
    assert_int_equal(greedy(&p, history, 7, 0, logits), 4);
    p.dry_last_n = -1;
    p.samplers = LIST(MN_SAMPLER_TEMPERATURE, MN_SAMPLER_PENALTIES);
    assert_int_equal(greedy(&p, history, 7, 0, logits), 4);
    p.samplers = LIST(MN_SAMPLER_TOP_K, MN_SAMPLER_DRY);
    assert_int_equal(greedy(&p, history, 7, 0, logits), 5);
    p.dry_multiplier = 3e38f; /* never past the largest float, so that an id is left */
    p.dry_base = 50;
    const float forced[V] = {[4] = 2};
    float only_4[V];
    for (int i = 0; i < V; i++)
        only_4[i] = i == 4 ? forced[4] : -INFINITY;
    assert_int_equal(greedy(&p, history, 7, 0, only_4), 4);
}

/* A history of one token costs no quadratic time: this test would take minutes. */
static void test_dry_loop(void **state) {
    (void)state;
    enum { LONG = 1 << 18 };
    int32_t *history = calloc(LONG, sizeof *history);
    const float logits[2] = {1, 0.5f};
    char scratch[24];
    const mn_slot_params p = {
        .dry_multiplier = 0.5f, .dry_base = 1.01f, .dry_allowed_length = 2, .dry_last_n = -1};
    assert_non_null(history);
    mnc_sample s = {.logits = logits,
                    .n_vocab = 2,
                    .params = &p,
                    .history = history,
                    .n_ctx = LONG,
                    .pos = LONG};
    assert_int_equal(mnc_sample_draw(&s, scratch), 1);
    free(history);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_sets),
                                       cmocka_unit_test(test_dry), cmocka_unit_test(test_dry_loop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
