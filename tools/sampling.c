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
/* The flags of other kinds, at their places in the table of numbers. */
#define ROW_seed                                                                                   \
    {"-s --seed", "N",                                                                             \
     ARG_SEED,    F(seed),                                                                         \
     0,           0,                                                                               \
     NULL,        "the same seed gives the same answer (default: a random one, printed)"},
#define ROW_stop                                                                                   \
    {"--stop", "TEXT", ARG_TEXTS, F(stop),                                                         \
     1,        0,      NULL,      "the answer ends before this text; may be given several times"},
#define ROW_samplers                                                                               \
    {"--samplers",                                                                                 \
     "LIST",                                                                                       \
     ARG_TEXT,                                                                                     \
     F(samplers),                                                                                  \
     0,                                                                                            \
     0,                                                                                            \
     NULL,                                                                                         \
     "the samplers that run, in their order "                                                      \
     "(default:\npenalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"},
#define ROW_dry_breakers                                                                           \
    {"--dry-sequence-breaker",                                                                     \
     "TEXT",                                                                                       \
     ARG_TEXTS,                                                                                    \
     F(dry_breakers),                                                                              \
     1,                                                                                            \
     0,                                                                                            \
     NULL,                                                                                         \
     "DRY: tokens with this text end a sequence; may be given several times, none:\nno text "      \
     "(default: line break, colon, double quote, asterisk)"},
#define ROW_bias_texts                                                                             \
    {"-l --logit-bias",                                                                            \
     "ID+BIAS",                                                                                    \
     ARG_TEXTS,                                                                                    \
     F(bias_texts),                                                                                \
     1,                                                                                            \
     0,                                                                                            \
     NULL,                                                                                         \
     "added to the logit of a token, as 15043+1 or 15043-1.5 (-inf: never); may be\ngiven "        \
     "several times"},
const arg_row sampling_rows[SAMPLING_ROWS] = {
#define MN_SAMPLE_F32(member, zero, top, flags, value, least, most, help, ...)                     \
    {flags, value, ARG_FLOAT, F(numbers.member), least, most, NULL, help},
#define MN_SAMPLE_I32(member, zero, top, flags, value, least, most, help, ...)                     \
    {flags, value, ARG_INT, F(numbers.member), least, most, NULL, help},
#define MN_SAMPLE_TEXT(what) ROW_##what
#include "samplers.def"
};

sampling_flags sampling_defaults(void) {
    sampling_flags f = {.numbers = sample_numbers_absent()};
    f.numbers.frequency_penalty = 0;
    f.numbers.presence_penalty = 0;
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
static int sampling_read_bias(const char *text, mn_logit_bias *out) {
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
        code = sampling_read_bias(f->bias_texts.v[i], &f->bias[f->n_bias++]);
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

static void set_samplers(const sampling_flags *f, mn_sample_params *out) {
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
    const sample_numbers *n = &f->numbers;
    /* the model's own penalty counts as many tokens as the model states */
    const int own_penalty = isnan(n->repeat_penalty) && out->repeat_penalty > 0;
    sample_numbers_apply(n, out);
    if (n->penalty_last_n == SAMPLE_ABSENT && !own_penalty)
        out->penalty_last_n = 64;
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
