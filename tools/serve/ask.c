/* ask.c -- reads the fields that chat and text completions share (ask.h): numbers and flags by the
 * table of fields (fields.def), lists and objects by a function each. What reaches the engine is in
 * range. */
#include "serve/ask.h"
#include "app.h"
#include "serve/fields.h"
#include <math.h>
#include <string.h>

/* What a field that is absent leaves. */
static void set_absent(ask *out) {
    memset(out, 0, sizeof *out);
    out->numbers = sample_numbers_absent();
    out->n = 1;
    out->max_tokens = -1;
    out->add_special = 1;
    out->skip_special = 1;
    out->with_thinking = 1;
}

/* llama-server's -1 is "as many as fit", which a limit beyond the context is. */
static int read_n_predict(const cJSON *body, ask *out) {
    if (json_field(body, "n_predict") && out->max_tokens < 0)
        out->max_tokens = INT32_MAX;
    return 1;
}

/* "seed": any number of 64 bits; -1 counts as absent, as with vLLM and llama-server. */
static int read_seed(const cJSON *body, ask *out, json_error *e) {
    const cJSON *v = json_field(body, "seed");
    out->has_seed = v && !(cJSON_IsNumber(v) && v->valuedouble == -1);
    return json_read_u64(body, "seed", &out->seed, e);
}

/* One stop string; an empty one is ignored. */
static int ask_add_stop(const cJSON *v, ask *out, json_error *e) {
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
        return ask_add_stop(stop, out, e);
    cJSON_ArrayForEach(item, stop) {
        if (!ask_add_stop(item, out, e))
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
static int ask_add_sampler(const cJSON *v, ask *out, json_error *e) {
    const size_t n = strlen(out->order);
    const size_t room = sizeof out->order - n;
    if (!cJSON_IsString(v) || strlen(v->valuestring) + 2 > room)
        return json_fail(e, "samplers", "samplers: expected a list of names of samplers");
    snprintf(out->order + n, room, "%s%s", n ? ";" : "", v->valuestring);
    return 1;
}

/* "samplers": a list of names, or one string with ';' between them. */
static int ask_read_order(const cJSON *body, ask *out, json_error *e) {
    const cJSON *list = json_field(body, "samplers");
    const cJSON *item = NULL;
    if (!list)
        return 1;
    if (!cJSON_IsArray(list))
        return ask_add_sampler(list, out, e);
    cJSON_ArrayForEach(item, list) {
        if (!ask_add_sampler(item, out, e))
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

/* The id of an entry of logit_bias: a name of an object, or the first of a pair; -1: neither. */
static int64_t bias_id(const cJSON *item) {
    int64_t id = -1;
    const cJSON *first = cJSON_IsArray(item) ? item->child : NULL;
    if (item->string)
        return parse_int(item->string, strlen(item->string), &id) ? id : -1;
    const double x = cJSON_IsNumber(first) ? first->valuedouble : -1;
    return x == floor(x) && x >= 0 && x < INT32_MAX ? (int64_t)x : -1;
}

/* Its number; false is "never". NAN: neither. */
static double bias_of(const cJSON *item) {
    const int is_pair = !item->string && cJSON_GetArraySize(item) == 2;
    const cJSON *v = is_pair ? item->child->next : item;
    if (cJSON_IsFalse(v))
        return -INFINITY;
    const double x = cJSON_IsNumber(v) ? v->valuedouble : NAN;
    return x >= -100 && x <= 100 ? x : NAN;
}

/* One id with what is added to its logit. */
static int ask_add_bias(const cJSON *item, int64_t n_vocab, ask *out, json_error *e) {
    const int64_t id = bias_id(item);
    const double v = bias_of(item);
    char found[80];
    if (id < 0 || id >= n_vocab || isnan(v))
        return json_fail(e, "logit_bias",
                         "logit_bias: found %.40s, expected token ids below %lld, each with a "
                         "number from -100 to 100, or false",
                         item->string ? item->string : json_found(item, found, sizeof found),
                         (long long)n_vocab);
    uint32_t at = 0; /* a later number of the same id wins */
    while (at < out->n_bias && out->bias_ids[at] != (int32_t)id)
        at++;
    if (at == WIRE_MAX_BIAS)
        return json_fail(e, "logit_bias", "logit_bias: found more than %u token ids",
                         WIRE_MAX_BIAS);
    out->bias_ids[at] = (int32_t)id;
    out->bias[at] = (float)v;
    out->n_bias += at == out->n_bias;
    return 1;
}

/* "logit_bias": {"ID": NUMBER}, or llama-server's [[ID, NUMBER]]; added to the logits, -100
 * excludes an id in practice. */
static int read_bias(const cJSON *body, int64_t n_vocab, ask *out, json_error *e) {
    const cJSON *all = json_field(body, "logit_bias");
    const cJSON *item = NULL;
    if (all && !cJSON_IsObject(all) && !cJSON_IsArray(all))
        return json_fail(e, "logit_bias", "logit_bias: expected an object of token ids");
    cJSON_ArrayForEach(item, all) {
        if (!ask_add_bias(item, n_vocab, out, e))
            return 0;
    }
    return 1;
}

/* llama-server's name for both: so many of the most likely tokens. */
static int read_n_probs(const cJSON *body, ask *out, json_error *e) {
    int64_t n = 0;
    if (!json_read_int(body, "n_probs", 0, 20, &n, e))
        return 0;
    out->logprobs |= n > 0;
    out->n_top = n > out->n_top ? n : out->n_top;
    return 1;
}

/* Chat has a flag and a number, text completions one number; the flag as a number is 0 or 1. */
static int read_logprobs(const cJSON *body, int is_chat, ask *out, json_error *e) {
    const cJSON *v = json_field(body, "logprobs");
    int64_t n = 0;
    if (!is_chat) {
        out->logprobs = v != NULL && !cJSON_IsFalse(v);
        return (cJSON_IsBool(v) || json_read_int(body, "logprobs", 0, 20, &out->n_top, e)) &&
               read_n_probs(body, out, e);
    }
    if (cJSON_IsNumber(v) && !json_read_int(body, "logprobs", 0, 1, &n, e))
        return 0;
    out->logprobs = n > 0;
    if ((!cJSON_IsNumber(v) && !json_read_bool(body, "logprobs", &out->logprobs, e)) ||
        !json_read_int(body, "top_logprobs", 0, 20, &out->n_top, e))
        return 0;
    if (out->n_top && !out->logprobs)
        return json_fail(e, "top_logprobs", "top_logprobs: needs logprobs: true");
    return read_n_probs(body, out, e);
}

/* "stream_options", which has a meaning with streams alone. */
static int read_stream_options(const cJSON *body, ask *out, json_error *e) {
    const cJSON *options = json_field(body, "stream_options");
    if (options && !cJSON_IsObject(options))
        return json_fail(e, "stream_options", "stream_options: expected an object");
    if (options && !out->stream)
        return json_fail(e, "stream_options", "stream_options: needs stream: true");
    return !options ||
           (json_read_bool(options, "include_usage", &out->include_usage, e) &&
            json_read_bool(options, "continuous_usage_stats", &out->continuous_usage, e));
}

/* No token at all is of use where the prompt's logprobs are. */
static int check_max_tokens(const ask *a, int is_chat, json_error *e) {
    if (a->max_tokens || (!is_chat && a->echo))
        return 1;
    return json_fail(e, "max_tokens",
                     "max_tokens: found 0, expected a whole number from 1 (0 with echo)");
}

int ask_read(const cJSON *body, int is_chat, int64_t n_vocab, ask *out, json_error *e) {
    set_absent(out);
    return json_read_string(body, "model", &out->model, e) &&
           json_read_string(body, "cache_salt", &out->cache_salt, e) &&
           fields_read(body, is_chat ? FIELDS_CHAT : FIELDS_TEXT, out, e) &&
           read_n_predict(body, out) && read_seed(body, out, e) &&
           read_stream_options(body, out, e) && read_stop(body, out, e) &&
           read_breakers(body, out, e) && ask_read_order(body, out, e) &&
           read_stop_ids(body, n_vocab, out, e) && read_bias(body, n_vocab, out, e) &&
           read_logprobs(body, is_chat, out, e) && form_read(body, &out->form, e) &&
           check_max_tokens(out, is_chat, e);
}

void ask_free(ask *a) {
    form_free(&a->form);
}

void ask_default_stops(ask *a, const char *const *stops, size_t n) {
    for (size_t i = 0; !a->stop_given && i < n && i < ASK_MAX_STOP; i++)
        a->stop[a->n_stop++] = (mn_str){stops[i], strlen(stops[i])};
}

void ask_sample(const ask *a, const mn_sample_params *defaults, uint64_t seed,
                mn_sample_params *out) {
    *out = *defaults;
    out->seed = a->has_seed ? a->seed : seed;
    sample_numbers_apply(&a->numbers, out);
    if (a->order[0])
        out->samplers = a->order;
    if (a->has_dry_breakers) {
        out->dry_breakers = a->dry_breakers;
        out->n_dry_breakers = a->n_dry_breakers;
    }
    out->ignore_stop = a->ignore_eos;
    out->stop = a->stop_ids;
    out->n_stop = a->n_stop_ids;
}
