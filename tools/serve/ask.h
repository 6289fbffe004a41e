/* ask.h -- the fields of a request for generations: sampling, limits, kind of answer. */
#ifndef MINERVA_SERVE_ASK_H
#define MINERVA_SERVE_ASK_H
#include "serve/form.h"
#include "serve/json.h"
#include "serve/wire.h"

enum {
    ASK_MAX_STOP = 64,
    ASK_MAX_STOP_IDS = 16,
    ASK_MAX_CHOICES = 128,
    ASK_SAMPLERS = 10, /* numbers of DRY, XTC and so on: ask.c */
};

/* Texts point into the request's JSON. */
typedef struct {
    int stream, include_usage, ignore_eos, echo;
    int64_t n;
    int64_t max_tokens; /* -1: not given */
    int64_t min_tokens, seed, priority;
    int has_seed;
    int logprobs;  /* 1: asked for */
    int64_t n_top; /* with logprobs: how many of the most likely */
    double temp, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty; /* NAN: none */
    int64_t top_k;                                                                  /* -2: none */
    mn_str stop[ASK_MAX_STOP];
    uint32_t n_stop;
    int stop_given;
    int32_t stop_ids[ASK_MAX_STOP_IDS];
    uint32_t n_stop_ids;
    int32_t bias_ids[WIRE_MAX_BIAS];
    float bias[WIRE_MAX_BIAS];
    uint32_t n_bias;
    double samplers[ASK_SAMPLERS];                    /* NAN: none */
    int64_t dry_allowed_length, dry_last_n, mirostat; /* -1, -2, -1: none */
    const char *dry_breakers[MN_MAX_DRY_BREAKERS];    /* copies, in dry_text */
    char dry_text[2048];
    uint32_t n_dry_breakers;
    int has_dry_breakers;
    char order[160]; /* names of samplers with ';' between; empty: none */
    const char *model;
    ask_form form;
} ask;

/* is_chat: logprobs is a flag beside top_logprobs, else a number. n_vocab: of the model.
 * 0: the error is set. */
int ask_read(const cJSON *body, int is_chat, int64_t n_vocab, ask *out, json_error *e);
void ask_free(ask *a); /* what it does not only point to */
/* The strings of --stop, where the request has none. */
void ask_default_stops(ask *a, const char *const *stops, size_t n);
/* The parameters of a generation: what the request says, else *defaults. seed: of requests without
 * one. The lists of *out point into *a. */
void ask_sample(const ask *a, const mn_sample_params *defaults, uint64_t seed,
                mn_sample_params *out);
#endif
