/* ask.h -- the fields of a request for generations: sampling, limits, kind of answer. */
#ifndef MINERVA_SERVE_ASK_H
#define MINERVA_SERVE_ASK_H
#include "sample_numbers.h"
#include "serve/form.h"
#include "serve/json.h"
#include "serve/wire.h"

enum {
    ASK_MAX_STOP = 64,
    ASK_MAX_STOP_IDS = 16,
    ASK_MAX_CHOICES = 128,
};

typedef struct ask {
    int stream, include_usage, continuous_usage, ignore_eos, echo, add_special;
    int keep_stop;     /* the stop string that ended the answer is part of it */
    int skip_special;  /* 0: special tokens by their names */
    int token_ids;     /* 1: ids beside the text */
    int progress;      /* 1: how far the prompt is, in a stream */
    int name_ids;      /* 1: tokens of logprobs by their ids */
    int with_thinking; /* 0: what was thought is left out */
    int64_t n;
    int64_t max_tokens; /* -1: not given */
    int64_t min_tokens, priority;
    uint64_t seed;
    int has_seed;
    int logprobs;  /* 1: asked for */
    int64_t n_top; /* with logprobs: how many of the most likely */
    sample_numbers numbers;
    mn_str stop[ASK_MAX_STOP];
    uint32_t n_stop;
    int stop_given;
    int32_t stop_ids[ASK_MAX_STOP_IDS];
    uint32_t n_stop_ids;
    int32_t bias_ids[WIRE_MAX_BIAS];
    float bias[WIRE_MAX_BIAS];
    uint32_t n_bias;
    const char *dry_breakers[MN_MAX_DRY_BREAKERS]; /* copies, in dry_text */
    char dry_text[2048];
    uint32_t n_dry_breakers;
    int has_dry_breakers;
    char order[160];                /* names of samplers with ';' between; empty: none */
    const char *model, *cache_salt; /* NULL: none */
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
