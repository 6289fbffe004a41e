/* ask.c -- reads the fields that chat and text completions share (ask.h): OpenAI's and vLLM's
 * names, and llama.cpp's of samplers that they do not have. Unknown fields are ignored; each known
 * one is checked here, so that what reaches the engine is in range. */
#include "serve/ask.h"
#include "app.h"
#include <math.h>
#include <string.h>

typedef struct {
    const char *name;
    size_t offset; /* of a double in ask */
    double lo, hi;
} number_row;

#define F(field) offsetof(ask, field)
static const number_row numbers[] = {
    {"temperature", F(temp), 0, 100},
    {"top_p", F(top_p), 0, 1},
    {"min_p", F(min_p), 0, 1},
    {"repetition_penalty", F(repeat_penalty), 0.01, 100},
    {"frequency_penalty", F(frequency_penalty), -2, 2},
    {"presence_penalty", F(presence_penalty), -2, 2},
};

typedef struct {
    const char *name;
    size_t offset; /* of an int64_t in ask */
    int64_t lo, hi;
} int_row;

static const int_row ints[] = {
    {"n", F(n), 1, ASK_MAX_CHOICES},
    {"max_tokens", F(max_tokens), 0, INT32_MAX},
    {"max_completion_tokens", F(max_tokens), 1, INT32_MAX},
    {"min_tokens", F(min_tokens), 0, INT32_MAX},
    {"top_k", F(top_k), -1, INT32_MAX},
    {"priority", F(priority), INT32_MIN, INT32_MAX},
    {"dry_allowed_length", F(dry_allowed_length), 0, INT32_MAX},
    {"dry_penalty_last_n", F(dry_last_n), -1, INT32_MAX},
    {"mirostat", F(mirostat), 0, 2},
};

/* Of samplers alone: where the number goes. off_at_0: the library's 0 is "off", too; in the other
 * fields it stands for a default, and 0 of a request becomes the least number. */
static const struct {
    const char *name;
    size_t offset; /* of a float in mn_sample_params */
    double lo, hi;
    int off_at_0;
} samplers[ASK_SAMPLERS] = {
    {"dry_multiplier", offsetof(mn_sample_params, dry_multiplier), 0, 1000, 1},
    {"dry_base", offsetof(mn_sample_params, dry_base), 1, 1000, 0},
    {"top_n_sigma", offsetof(mn_sample_params, top_n_sigma), -1000, 1000, 1},
    {"typical_p", offsetof(mn_sample_params, typical_p), 0, 1, 0},
    {"xtc_probability", offsetof(mn_sample_params, xtc_probability), 0, 1, 1},
    {"xtc_threshold", offsetof(mn_sample_params, xtc_threshold), 0, 1, 0},
    {"dynatemp_range", offsetof(mn_sample_params, dynatemp_range), 0, 100, 1},
    {"dynatemp_exponent", offsetof(mn_sample_params, dynatemp_exponent), 0, 100, 0},
    {"mirostat_tau", offsetof(mn_sample_params, mirostat_tau), 0, 100, 0},
    {"mirostat_eta", offsetof(mn_sample_params, mirostat_eta), 0, 100, 0},
};

/* The rows of the two tables; the seed may be any whole number. */
static int read_numbers(const cJSON *body, ask *out, json_error *e) {
    char *base = (char *)out;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const number_row *row = &numbers[i];
        double *at = (double *)(void *)(base + row->offset);
        *at = NAN;
        if (!json_read_number(body, row->name, row->lo, row->hi, at, e))
            return 0;
    }
    for (size_t i = 0; i < ASK_SAMPLERS; i++) {
        out->samplers[i] = NAN;
        if (!json_read_number(body, samplers[i].name, samplers[i].lo, samplers[i].hi,
                              &out->samplers[i], e))
            return 0;
    }
    for (size_t i = 0; i < COUNT(ints); i++) {
        const int_row *row = &ints[i];
        int64_t *at = (int64_t *)(void *)(base + row->offset);
        if (!json_read_int(body, row->name, row->lo, row->hi, at, e))
            return 0;
    }
    out->has_seed = json_field(body, "seed") != NULL;
    return json_read_int(body, "seed", INT64_MIN, INT64_MAX, &out->seed, e);
}

/* One stop string; an empty one is ignored. */
static int add_stop(const cJSON *v, ask *out, json_error *e) {
    if (!cJSON_IsString(v))
        return json_fail(e, "stop", "stop: expected a string or a list of strings");
    const size_t n = strlen(v->valuestring);
    if (n == 0)
        return 1; /* as other servers do */
    if (n > 1024 || out->n_stop == ASK_MAX_STOP)
        return json_fail(e, "stop",
                         "stop: found %s, expected at most %d strings of at most 1024 bytes",
                         n > 1024 ? "a longer string" : "more strings", ASK_MAX_STOP);
    out->stop[out->n_stop++] = (mn_str){v->valuestring, n};
    return 1;
}

/* "stop": a string or a list of strings. */
static int read_stop(const cJSON *body, ask *out, json_error *e) {
    const cJSON *stop = json_field(body, "stop");
    const cJSON *item = NULL;
    if (!stop)
        return 1;
    out->stop_given = 1;
    if (!cJSON_IsArray(stop))
        return add_stop(stop, out, e);
    cJSON_ArrayForEach(item, stop) {
        if (!add_stop(item, out, e))
            return 0;
    }
    return 1;
}

/* "dry_sequence_breakers": a list of texts; an empty list is none. */
static int read_breakers(const cJSON *body, ask *out, json_error *e) {
    const char *name = "dry_sequence_breakers";
    const cJSON *list = json_field(body, name);
    const cJSON *item = NULL;
    size_t at = 0;
    if (!list)
        return 1;
    out->has_dry_breakers = 1;
    if (!cJSON_IsArray(list))
        return json_fail(e, name, "%s: expected a list of strings", name);
    cJSON_ArrayForEach(item, list) {
        const size_t n = cJSON_IsString(item) ? strlen(item->valuestring) + 1 : 0;
        const int fits = at + n <= sizeof out->dry_text;
        if (n < 2 || !fits || out->n_dry_breakers == MN_MAX_DRY_BREAKERS)
            return json_fail(e, name,
                             "%s: expected at most %d strings that are not empty, of %zu bytes "
                             "together",
                             name, MN_MAX_DRY_BREAKERS, sizeof out->dry_text);
        memcpy(out->dry_text + at, item->valuestring, n);
        out->dry_breakers[out->n_dry_breakers++] = out->dry_text + at;
        at += n;
    }
    return 1;
}

/* One name behind those of out->order; the library knows which there are. */
static int add_sampler(const cJSON *v, ask *out, json_error *e) {
    const size_t n = strlen(out->order);
    const size_t room = sizeof out->order - n;
    if (!cJSON_IsString(v) || strlen(v->valuestring) + 2 > room)
        return json_fail(e, "samplers", "samplers: expected a list of names of samplers");
    snprintf(out->order + n, room, "%s%s", n ? ";" : "", v->valuestring);
    return 1;
}

/* "samplers": a list of names, or one string with ';' between them. */
static int read_order(const cJSON *body, ask *out, json_error *e) {
    const cJSON *list = json_field(body, "samplers");
    const cJSON *item = NULL;
    if (!list)
        return 1;
    if (!cJSON_IsArray(list))
        return add_sampler(list, out, e);
    cJSON_ArrayForEach(item, list) {
        if (!add_sampler(item, out, e))
            return 0;
    }
    return 1;
}

/* 1 if v is a token id of the model. */
static int is_id(const cJSON *v, int64_t n_vocab) {
    const double x = cJSON_IsNumber(v) ? v->valuedouble : -1;
    return x >= 0 && x < (double)n_vocab && x == floor(x);
}

/* "stop_token_ids" (vLLM): further ids that end the answer. */
static int read_stop_ids(const cJSON *body, int64_t n_vocab, ask *out, json_error *e) {
    const cJSON *list = json_field(body, "stop_token_ids");
    const cJSON *item = NULL;
    if (!list)
        return 1;
    if (!cJSON_IsArray(list))
        return json_fail(e, "stop_token_ids", "stop_token_ids: expected a list of token ids");
    cJSON_ArrayForEach(item, list) {
        if (!is_id(item, n_vocab) || out->n_stop_ids == ASK_MAX_STOP_IDS)
            return json_fail(e, "stop_token_ids",
                             "stop_token_ids: expected at most %d token ids below %lld",
                             ASK_MAX_STOP_IDS, (long long)n_vocab);
        out->stop_ids[out->n_stop_ids++] = (int32_t)item->valuedouble;
    }
    return 1;
}

/* "logit_bias": {"ID": NUMBER}, added to the logits; -100 excludes an id in practice. */
static int read_bias(const cJSON *body, int64_t n_vocab, ask *out, json_error *e) {
    const cJSON *object = json_field(body, "logit_bias");
    const cJSON *item = NULL;
    if (!object)
        return 1;
    if (!cJSON_IsObject(object))
        return json_fail(e, "logit_bias", "logit_bias: expected an object of token ids");
    cJSON_ArrayForEach(item, object) {
        int64_t id = -1;
        const double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
        const int is_number = parse_int(item->string, strlen(item->string), &id);
        if (!is_number || id < 0 || id >= n_vocab || !(v >= -100 && v <= 100))
            return json_fail(e, "logit_bias",
                             "logit_bias: found \"%.20s\", expected token ids below %lld, each "
                             "with a number from -100 to 100",
                             item->string, (long long)n_vocab);
        if (out->n_bias == WIRE_MAX_BIAS)
            return json_fail(e, "logit_bias", "logit_bias: found more than %u token ids",
                             WIRE_MAX_BIAS);
        out->bias_ids[out->n_bias] = (int32_t)id;
        out->bias[out->n_bias++] = (float)v;
    }
    return 1;
}

/* Chat has a flag and a number, text completions one number. */
static int read_logprobs(const cJSON *body, int is_chat, ask *out, json_error *e) {
    if (!is_chat) {
        const cJSON *v = json_field(body, "logprobs");
        out->logprobs = v != NULL && !cJSON_IsFalse(v);
        return cJSON_IsBool(v) || json_read_int(body, "logprobs", 0, 20, &out->n_top, e);
    }
    if (!json_read_bool(body, "logprobs", &out->logprobs, e) ||
        !json_read_int(body, "top_logprobs", 0, 20, &out->n_top, e))
        return 0;
    if (out->n_top && !out->logprobs)
        return json_fail(e, "top_logprobs", "top_logprobs: needs logprobs: true");
    return 1;
}

/* "stream" and "stream_options", which has a meaning with streams alone. */
static int read_stream(const cJSON *body, ask *out, json_error *e) {
    const cJSON *options = json_field(body, "stream_options");
    if (!json_read_bool(body, "stream", &out->stream, e))
        return 0;
    if (options && !cJSON_IsObject(options))
        return json_fail(e, "stream_options", "stream_options: expected an object");
    if (options && !out->stream)
        return json_fail(e, "stream_options", "stream_options: needs stream: true");
    return !options || json_read_bool(options, "include_usage", &out->include_usage, e);
}

/* No token at all is of use where the prompt's logprobs are. */
static int check_max_tokens(const ask *a, int is_chat, json_error *e) {
    if (a->max_tokens || (!is_chat && a->echo))
        return 1;
    return json_fail(e, "max_tokens",
                     "max_tokens: found 0, expected a whole number from 1 (0 with echo)");
}

int ask_read(const cJSON *body, int is_chat, int64_t n_vocab, ask *out, json_error *e) {
    memset(out, 0, sizeof *out);
    out->n = 1;
    out->max_tokens = -1;
    out->top_k = -2;
    out->dry_allowed_length = -1;
    out->dry_last_n = -2;
    out->mirostat = -1;
    return json_read_string(body, "model", &out->model, e) && read_numbers(body, out, e) &&
           read_stream(body, out, e) && read_stop(body, out, e) && read_breakers(body, out, e) &&
           read_order(body, out, e) && read_stop_ids(body, n_vocab, out, e) &&
           read_bias(body, n_vocab, out, e) && read_logprobs(body, is_chat, out, e) &&
           form_read(body, &out->form, e) &&
           json_read_bool(body, "ignore_eos", &out->ignore_eos, e) &&
           json_read_bool(body, "echo", &out->echo, e) && check_max_tokens(out, is_chat, e);
}

void ask_free(ask *a) {
    form_free(&a->form);
}

void ask_default_stops(ask *a, const char *const *stops, size_t n) {
    for (size_t i = 0; !a->stop_given && i < n && i < ASK_MAX_STOP; i++)
        a->stop[a->n_stop++] = (mn_str){stops[i], strlen(stops[i])};
}

static float value_or(double given, float otherwise) {
    return isnan(given) ? otherwise : (float)given;
}

/* Those that OpenAI and vLLM do not have. */
static void set_samplers(const ask *a, mn_sample_params *out) {
    for (size_t i = 0; i < ASK_SAMPLERS; i++) {
        float *to = (float *)(void *)((char *)out + samplers[i].offset);
        const double given = a->samplers[i];
        if (isnan(given))
            continue;
        *to = samplers[i].off_at_0 ? 0 : 1e-9f;
        if (given > 0)
            *to = (float)given;
    }
    if (a->dry_allowed_length >= 0)
        out->dry_allowed_length = (int32_t)a->dry_allowed_length;
    if (a->dry_last_n >= -1)
        out->dry_last_n = (int32_t)a->dry_last_n;
    if (a->dry_last_n == 0)
        out->dry_multiplier = 0;
    if (a->mirostat >= 0)
        out->mirostat = (int32_t)a->mirostat;
    if (a->order[0])
        out->samplers = a->order;
    if (!a->has_dry_breakers)
        return;
    out->dry_breakers = a->dry_breakers;
    out->n_dry_breakers = a->n_dry_breakers;
}

void ask_sample(const ask *a, const mn_sample_params *defaults, uint64_t seed,
                mn_sample_params *out) {
    *out = *defaults;
    out->seed = a->has_seed ? (uint64_t)a->seed : seed;
    out->temp = value_or(a->temp, out->temp);
    out->min_p = value_or(a->min_p, out->min_p);
    out->repeat_penalty = value_or(a->repeat_penalty, out->repeat_penalty);
    out->frequency_penalty = value_or(a->frequency_penalty, out->frequency_penalty);
    out->presence_penalty = value_or(a->presence_penalty, out->presence_penalty);
    if (!isnan(a->top_p)) /* 0 is the most likely token; the library's 0 is "off" */
        out->top_p = a->top_p > 0 ? (float)a->top_p : 1e-9f;
    if (a->top_k >= -1) /* vLLM's -1 is "off" */
        out->top_k = a->top_k > 0 ? (int32_t)a->top_k : 0;
    set_samplers(a, out);
    out->ignore_stop = a->ignore_eos;
    out->stop = a->stop_ids;
    out->n_stop = a->n_stop_ids;
}
