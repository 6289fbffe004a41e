/* sampling.c -- the flags of sampling, and the values without a flag: the model's recommended
 * ones (generation_config.json or GGUF keys, by mn_model_sample_defaults), else the defaults of
 * the help. Used by run and chat; the flags are the subcommand's. */
#include "app.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define F(field) offsetof(sampling_flags, field)
const arg_row sampling_rows[SAMPLING_ROWS] = {
    {"--temp --temperature", "T", ARG_FLOAT, F(temp), 0, 100, NULL,
     "temperature; 0 = always the most likely token\n(default: the model's own, else 0.7)"},
    {"-s --seed", "N", ARG_SEED, F(seed), 0, 0, NULL,
     "the same seed gives the same answer (default: a random one, printed)"},
    {"--top-k", "N", ARG_INT, F(top_k), 0, 2147483647, NULL,
     "keep the N most likely tokens; 0 = off (default: the model's own, else 0)"},
    {"--top-p", "P", ARG_FLOAT, F(top_p), 0, 1, NULL,
     "keep the most likely tokens that reach P together\n(default: the model's own, else 0.95; 1 = "
     "off)"},
    {"--min-p", "P", ARG_FLOAT, F(min_p), 0, 1, NULL,
     "keep tokens at least P times as likely as the best\n(default: the model's own, else 0 = "
     "off)"},
    {"--repeat-penalty", "R", ARG_FLOAT, F(repeat_penalty), 0.01, 100, NULL,
     "divides the logits of tokens seen before\n(default: the model's own, else 1 = off)"},
    {"--repeat-last-n", "N", ARG_INT, F(last_n), -1, 2147483647, NULL,
     "how far back penalties look; -1 = over everything (default: 64; with the\nmodel's own "
     "penalty "
     "as far as the model says, else over everything)"},
    {"--frequency-penalty", "F", ARG_FLOAT, F(frequency_penalty), -100, 100, NULL,
     "subtracted per occurrence (default: 0)"},
    {"--presence-penalty", "F", ARG_FLOAT, F(presence_penalty), -100, 100, NULL,
     "subtracted once (default: 0)"},
    {"--stop", "TEXT", ARG_TEXTS, F(stop), 1, 0, NULL,
     "the answer ends before this text; may be given several times"},
    {"--samplers", "LIST", ARG_TEXT, F(samplers), 0, 0, NULL,
     "the samplers that run, in their order (default:\n"
     "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"},
    {"--dry-multiplier", "M", ARG_FLOAT, F(dry_multiplier), 0, 1000, NULL,
     "DRY, against repeated sequences: strength, 0.8 is usual (default: 0 = off)"},
    {"--dry-base", "B", ARG_FLOAT, F(dry_base), 1, 1000, NULL,
     "DRY: how fast the penalty grows with the sequence (default: 1.75)"},
    {"--dry-allowed-length", "N", ARG_INT, F(dry_allowed_length), 1, 2147483647, NULL,
     "DRY: the shortest sequence whose repetition costs (default: 2)"},
    {"--dry-penalty-last-n", "N", ARG_INT, F(dry_last_n), -1, 2147483647, NULL,
     "DRY: how far back it looks; -1 = over everything, 0 = off (default: -1)"},
    {"--dry-sequence-breaker", "TEXT", ARG_TEXTS, F(dry_breakers), 1, 0, NULL,
     "DRY: tokens with this text end a sequence; may be given several times, none:\nno text "
     "(default: line break, colon, double quote, asterisk)"},
    {"--top-n-sigma", "N", ARG_FLOAT, F(top_n_sigma), -1, 1000, NULL,
     "keep logits within N standard deviations of the largest\n(default: -1 = off)"},
    {"--typical --typical-p", "P", ARG_FLOAT, F(typical), 0, 1, NULL,
     "keep the most typical tokens that reach P together (default: 1 = off)"},
    {"--xtc-probability", "P", ARG_FLOAT, F(xtc_probability), 0, 1, NULL,
     "chance that XTC removes the likeliest tokens (default: 0 = off)"},
    {"--xtc-threshold", "P", ARG_FLOAT, F(xtc_threshold), 0, 1, NULL,
     "XTC: of the tokens at least as likely, one is left (default: 0.1; above\n0.5: off)"},
    {"--dynatemp-range", "R", ARG_FLOAT, F(dynatemp_range), 0, 100, NULL,
     "temperature from T - R where the model is sure to T + R (default: 0 = off)"},
    {"--dynatemp-exp", "E", ARG_FLOAT, F(dynatemp_exponent), 0, 100, NULL,
     "exponent of the entropy in the dynamic temperature (default: 1)"},
    {"--mirostat", "N", ARG_INT, F(mirostat), 0, 2, NULL,
     "2: mirostat 2.0, a steady surprise, instead of filters (default: 0 = off)"},
    {"--mirostat-ent", "TAU", ARG_FLOAT, F(mirostat_tau), 0, 100, NULL,
     "mirostat: the surprise to keep, in bits (default: 5)"},
    {"--mirostat-lr", "ETA", ARG_FLOAT, F(mirostat_eta), 0, 100, NULL,
     "mirostat: the learning rate (default: 0.1)"},
    {"-l --logit-bias", "ID+BIAS", ARG_TEXTS, F(bias_texts), 1, 0, NULL,
     "added to the logit of a token, as 15043+1 or 15043-1.5 (-inf: never); may be\ngiven several "
     "times"},
};

sampling_flags sampling_defaults(void) {
    sampling_flags f = {.temp = NAN,
                        .top_p = NAN,
                        .min_p = NAN,
                        .repeat_penalty = NAN,
                        .top_k = -1,
                        .last_n = -2,
                        .dry_multiplier = NAN,
                        .dry_base = NAN,
                        .top_n_sigma = NAN,
                        .typical = NAN,
                        .xtc_probability = NAN,
                        .xtc_threshold = NAN,
                        .dynatemp_range = NAN,
                        .dynatemp_exponent = NAN,
                        .mirostat_tau = NAN,
                        .mirostat_eta = NAN,
                        .dry_allowed_length = -1,
                        .dry_last_n = -2,
                        .mirostat = -1};
    return f;
}

/* Whether a name of n bytes is in a list with ';' between its names. */
static int is_listed(const char *list, const char *name, size_t n) {
    for (const char *at = list; *at; at += strcspn(at, ";"), at += *at == ';')
        if (strcspn(at, ";") == n && memcmp(at, name, n) == 0)
            return 1;
    return 0;
}

/* One of --logit-bias. 0, or EXIT_USAGE with the error printed. */
static int read_bias(const char *text, mn_logit_bias *out) {
    char *end = NULL;
    char *last = NULL;
    errno = 0;
    const long long id = strtoll(text, &end, 10);
    const int is_id = end != text && errno == 0 && *text >= '0' && *text <= '9' && id <= INT32_MAX;
    const double bias = strtod(end, &last);
    const int is_bias = (*end == '+' || *end == '-') && last != end && !*last && !isnan(bias);
    if (!is_id || !is_bias)
        return complain(EXIT_USAGE,
                        "--logit-bias: found \"%s\", expected the id of a token and what is added "
                        "to its logit, as 15043+1 or 15043-1.5",
                        text);
    *out = (mn_logit_bias){(int32_t)id, (float)bias};
    return 0;
}

static int read_biases(sampling_flags *f) {
    int code = 0;
    f->n_bias = 0;
    if (f->bias_texts.n > MN_MAX_BIAS)
        return complain(EXIT_USAGE, "--logit-bias: found %zu, expected at most %d", f->bias_texts.n,
                        MN_MAX_BIAS);
    for (size_t i = 0; i < f->bias_texts.n && code == 0; i++)
        code = read_bias(f->bias_texts.v[i], &f->bias[f->n_bias++]);
    return code;
}

int sampling_check(sampling_flags *f) {
    static const char all[] = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    const char *at = f->samplers ? f->samplers : "";
    while (*at) {
        const size_t n = strcspn(at, ";");
        if (!is_listed(all, at, n))
            return complain(EXIT_USAGE, "--samplers: found \"%.*s\", expected a list such as %s",
                            (int)n, at, all);
        if (is_listed(at + n + (at[n] == ';'), at, n))
            return complain(EXIT_USAGE, "--samplers: found \"%.*s\" twice, expected each once",
                            (int)n, at);
        at += n + (at[n] == ';');
    }
    return read_biases(f);
}

void sampling_free(sampling_flags *flags) {
    args_free_texts(&flags->stop);
    args_free_texts(&flags->dry_breakers);
    args_free_texts(&flags->bias_texts);
}

/* A number that was given; the library's 0 is its default, the caller's 0 is one. */
static void set_above_zero(double given, float *out) {
    if (!isnan(given))
        *out = given > 0 ? (float)given : 1e-9f;
}

static void set_number(double given, float *out) {
    if (!isnan(given))
        *out = given > 0 ? (float)given : 0; // below 0 is off, too
}

static void set_samplers(const sampling_flags *f, mn_sample_params *out) {
    set_number(f->dry_multiplier, &out->dry_multiplier);
    set_number(f->dry_base, &out->dry_base);
    set_number(f->top_n_sigma, &out->top_n_sigma);
    set_above_zero(f->typical, &out->typical_p);
    set_number(f->xtc_probability, &out->xtc_probability);
    set_above_zero(f->xtc_threshold, &out->xtc_threshold);
    set_number(f->dynatemp_range, &out->dynatemp_range);
    set_above_zero(f->dynatemp_exponent, &out->dynatemp_exponent);
    set_above_zero(f->mirostat_tau, &out->mirostat_tau);
    set_above_zero(f->mirostat_eta, &out->mirostat_eta);
    if (f->dry_allowed_length > 0)
        out->dry_allowed_length = (int32_t)f->dry_allowed_length;
    if (f->dry_last_n >= -1)
        out->dry_last_n = (int32_t)f->dry_last_n;
    if (f->dry_last_n == 0)
        out->dry_multiplier = 0;
    if (f->mirostat >= 0)
        out->mirostat = (int32_t)f->mirostat;
    if (f->samplers)
        out->samplers = f->samplers;
    const arg_texts *breakers = &f->dry_breakers;
    if (!breakers->n)
        return;
    const int none = breakers->n == 1 && strcmp(breakers->v[0], "none") == 0;
    out->dry_breakers = breakers->v;
    out->n_dry_breakers = none ? 0 : (uint32_t)breakers->n;
}

uint64_t sampling_seed(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint64_t)(seconds() * 1e6);
    return seed >> 32; // short enough to type again
}

void sampling_apply(const sampling_flags *f, mn_sample_params *out) {
    if (!isnan(f->temp))
        out->temp = (float)f->temp;
    if (!isnan(f->top_p)) // --top-p 0 is the most likely token; the library's 0 is "off"
        out->top_p = f->top_p > 0 ? (float)f->top_p : 1e-9f;
    if (f->top_k >= 0)
        out->top_k = (int32_t)f->top_k;
    if (!isnan(f->min_p))
        out->min_p = (float)f->min_p;
    /* the model's own penalty counts as many tokens as the model states */
    const int own_penalty = isnan(f->repeat_penalty) && out->repeat_penalty > 0;
    if (!isnan(f->repeat_penalty))
        out->repeat_penalty = (float)f->repeat_penalty;
    out->frequency_penalty = (float)f->frequency_penalty;
    out->presence_penalty = (float)f->presence_penalty;
    if (f->last_n >= -1 || !own_penalty)
        out->penalty_last_n = f->last_n >= -1 ? (int32_t)f->last_n : 64;
    out->bias = f->bias;
    out->n_bias = f->n_bias;
    set_samplers(f, out);
}

void sampling_values(const app *a, const sampling_flags *f, mn_sample_params *out) {
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    mn_model_sample_defaults(a->model, out);
    sampling_apply(f, out);
    out->seed = f->seed.given ? f->seed.v : sampling_seed();
}

void sampling_say_seed(const app *a, const sampling_flags *f, const mn_sample_params *p) {
    if (!f->seed.given && p->temp > 0)
        app_remark(a, "seed %" PRIu64, p->seed);
}

void sampling_resolve(const app *a, const sampling_flags *f, mn_sample_params *out) {
    sampling_values(a, f, out);
    sampling_say_seed(a, f, out);
}
