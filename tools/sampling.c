/* sampling.c -- the flags of sampling, and the values without a flag: the model's recommended
 * ones (generation_config.json or GGUF keys, by mn_model_sample_defaults), else the defaults of
 * the help. Used by run and chat; the flags are the subcommand's. */
#include "app.h"
#include <inttypes.h>
#include <math.h>
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
};

sampling_flags sampling_defaults(void) {
    sampling_flags f = {
        .temp = NAN, .top_p = NAN, .min_p = NAN, .repeat_penalty = NAN, .top_k = -1, .last_n = -2};
    return f;
}

uint64_t sampling_seed(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint64_t)(seconds() * 1e6);
    return seed >> 32; // short enough to type again
}

void sampling_values(const app *a, const sampling_flags *f, mn_sample_params *out) {
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    mn_model_sample_defaults(a->model, out);
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
