/* samplers.c -- what callers ask of the samplers of contract 4, as a slot of the device holds it:
 * the order by names, defaults for what is 0, and the sequence breakers of DRY as a bit per token.
 * Breakers belong to a job, or to a sequence of mn_seq_create, and outlive slots and engines, as
 * does mu of mirostat, which comes back with each id. */
#include "session/requests/requests.h"
#include <float.h>
#include <string.h>

/* Names as llama.cpp has them; [0] is MN_SAMPLER_PENALTIES. */
static const char *const names[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                    "top_p",     "min_p", "xtc",         "temperature"};

/* MN_SAMPLER_* of a name; 0 = none. */
static uint32_t find_name(const char *text, size_t n) {
    for (uint32_t i = 0; i < MN_COUNT(names); i++)
        if (strlen(names[i]) == n && !memcmp(names[i], text, n))
            return i + 1;
    return 0;
}

/* A list of names with ';' between them, as mn_slot_params.samplers. */
static mn_status read_order(const char *list, uint64_t *out, mn_error *err) {
    uint32_t n = 0;
    uint32_t seen = 0;
    *out = 0;
    for (const char *at = list; at && *at; n++) {
        const size_t len = strcspn(at, ";");
        const uint32_t sampler = find_name(at, len);
        if (!sampler)
            return mn_fail(err, MN_BAD_INPUT,
                           "sampler '%.*s' is unknown, expected a list such as "
                           "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
                           (int)MN_MIN(len, 64u), at);
        if (seen >> sampler & 1)
            return mn_fail(err, MN_BAD_INPUT, "sampler '%s' stands twice in the list of samplers",
                           names[sampler - 1]);
        seen |= 1u << sampler;
        *out |= (uint64_t)sampler << 4 * n;
        at += len + (at[len] == ';');
    }
    if (*out == MN_SAMPLERS_DEFAULT)
        *out = 0;
    return MN_OK;
}

static mn_status check_numbers(const mn_sample_params *p, mn_error *err) {
    const struct {
        const char *name;
        float value;
        float max;
    } rows[] = {
#define MN_SAMPLE_F32(member, zero, top, ...) {#member, p->member, top},
#include "samplers.def"
    };
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (rows[i].max > 0 && !(rows[i].value >= 0 && rows[i].value <= rows[i].max))
            return mn_fail(err, MN_INVALID,
                           "mn_sample_params.%s: found %g, expected a number from 0 to %g",
                           rows[i].name, (double)rows[i].value, (double)rows[i].max);
    if (p->dry_base > 0 && p->dry_base < 1)
        return mn_fail(err, MN_INVALID, "mn_sample_params.dry_base: found %g, expected 1 or more",
                       (double)p->dry_base);
    if (p->dry_allowed_length < 0)
        return mn_fail(err, MN_INVALID,
                       "mn_sample_params.dry_allowed_length: found %d, expected 0 or more",
                       p->dry_allowed_length);
    if (p->n_dry_breakers > MN_MAX_DRY_BREAKERS)
        return mn_fail(err, MN_INVALID, "mn_sample_params.n_dry_breakers: found %u, at most %d",
                       p->n_dry_breakers, MN_MAX_DRY_BREAKERS);
    if (p->mirostat && p->mirostat != 2)
        return mn_fail(err, MN_INVALID,
                       "mn_sample_params.mirostat: found %d, expected 0 (off) or 2 (mirostat 2.0)",
                       p->mirostat);
    return MN_OK;
}

static float or_default(float value, float standard) {
    return value > 0 ? value : standard;
}

mn_status mn_samplers_of_slot(const mn_sample_params *p, mn_slot_params *out, mn_error *err) {
    uint64_t order = 0;
    mn_status st = check_numbers(p, err);
    if (!st)
        st = read_order(p->samplers, &order, err);
    if (st)
        return st;
    out->samplers = order;
    if (p->dry_multiplier > 0) {
        out->dry_multiplier = p->dry_multiplier;
        out->dry_base = or_default(p->dry_base, 1.75f);
        out->dry_allowed_length = p->dry_allowed_length ? p->dry_allowed_length : 2;
        out->dry_last_n = p->dry_last_n > 0 ? p->dry_last_n : -1;
    }
    if (!(p->temp > 0))
        return MN_OK; /* of the others nothing is left */
    out->top_n_sigma = p->top_n_sigma;
    out->typical_p = p->typical_p < 1 ? p->typical_p : 0;
    if (p->xtc_probability > 0) {
        out->xtc_probability = p->xtc_probability;
        out->xtc_threshold = or_default(p->xtc_threshold, 0.1f);
    }
    if (p->dynatemp_range > 0) {
        out->dynatemp_range = p->dynatemp_range;
        out->dynatemp_exponent = or_default(p->dynatemp_exponent, 1);
    }
    if (p->mirostat) {
        out->mirostat = 2;
        out->mirostat_tau = or_default(p->mirostat_tau, 5);
        out->mirostat_eta = or_default(p->mirostat_eta, 0.1f);
    }
    return MN_OK;
}

bool mn_samplers_need(const mn_slot_params *p) {
    static const mn_slot_params none;
    const size_t from = offsetof(mn_slot_params, samplers);
    return memcmp((const char *)p + from, (const char *)&none + from, sizeof none - from) != 0;
}

/* ---- breakers of DRY ------------------------------------------------------------------------- */
/* Sets the bits of the ids below n_vocab whose text contains the breaker; how many. */
static uint32_t mark(const mn_model *m, const char *breaker, uint32_t n_vocab, uint32_t *bits) {
    const size_t len = strlen(breaker);
    uint32_t n = 0;
    for (uint32_t id = 0; id < n_vocab; id++) {
        const mn_str text = mn_vocabulary_text(m, (int32_t)id);
        if (!memmem(text.ptr, text.len, breaker, len))
            continue;
        bits[id / 32] |= 1u << id % 32;
        n++;
    }
    return n;
}

/* A breaker longer than any token: the last token of its spelling. */
static mn_status mark_last(const mn_model *m, const char *breaker, uint32_t n_vocab, uint32_t *bits,
                           mn_error *err) {
    const mn_str text = {breaker, strlen(breaker)};
    int32_t *ids = NULL;
    uint32_t n = 0;
    mn_status st = mn_text_encode(m, text, NULL, MN_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    if (!st && n && ids[n - 1] >= 0 && (uint32_t)ids[n - 1] < n_vocab)
        bits[ids[n - 1] / 32] |= 1u << ids[n - 1] % 32;
    mn_free(ids);
    return st;
}

static mn_status mark_all(const mn_limits *l, const mn_sample_params *p, uint32_t *bits,
                          mn_error *err) {
    static const char *const standard[] = {"\n", ":", "\"", "*"};
    const uint32_t n_vocab = (uint32_t)l->graph->hp.n_vocab;
    const char *const *breakers = p->dry_breakers ? p->dry_breakers : standard;
    const uint32_t n = p->dry_breakers ? p->n_dry_breakers : MN_COUNT(standard);
    for (uint32_t i = 0; i < n; i++) {
        if (!breakers[i] || !breakers[i][0])
            return mn_fail(err, MN_BAD_INPUT, "sequence breaker %u of DRY is empty", i);
        mn_status st = MN_OK;
        if (!mark(l->model, breakers[i], n_vocab, bits) && p->dry_breakers)
            st = mark_last(l->model, breakers[i], n_vocab, bits, err);
        if (st)
            return st;
    }
    return MN_OK;
}

mn_status mn_breakers_create(const mn_limits *l, const mn_sample_params *p,
                             const mn_slot_params *slot, uint32_t **out, mn_error *err) {
    const size_t words = (size_t)MN_MASK_WORDS(l->graph->hp.n_vocab);
    *out = NULL;
    if (!(slot->dry_multiplier > 0))
        return MN_OK;
    mn_status st = mn_text_need_tokenizer(l->model, err);
    if (st)
        return st;
    uint32_t *bits = mn_calloc(words, sizeof *bits);
    if (!bits)
        return mn_fail_memory(err, words * sizeof *bits);
    st = mark_all(l, p, bits, err);
    if (st)
        mn_free(bits);
    else
        *out = bits;
    return st;
}
