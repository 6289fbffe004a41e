/* completion.c -- /v1/completions: prompts as text or ids, one or a list, answers as text. The
 * older of OpenAI's interfaces: 16 tokens unless the request says more, echo, logprobs as parallel
 * arrays. */
#include "serve/answer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOKENS = 16, MAX_PROMPTS = 2048 };

/* ---- prompts --------------------------------------------------------------------------------- */

/* The ids of a list of numbers. NULL: the error is set. */
static int32_t *ids_of(const served *m, const cJSON *list, uint32_t *n, json_error *e) {
    const double n_vocab = (double)m->a.info.n_vocab;
    const cJSON *item = NULL;
    int32_t *ids = malloc(((size_t)cJSON_GetArraySize(list) + 1) * sizeof *ids);
    *n = 0;
    if (!ids) {
        json_no_memory(e);
        return NULL;
    }
    cJSON_ArrayForEach(item, list) {
        const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(x >= 0 && x < n_vocab) || x != floor(x)) {
            char found[80];
            json_fail(e, "prompt", "prompt: found %s, expected token ids below %.0f",
                      json_found(item, found, sizeof found), n_vocab);
            free(ids);
            return NULL;
        }
        ids[(*n)++] = (int32_t)x;
    }
    return ids;
}

/* The text of a prompt, for echo; NULL: out of memory. */
static char *completion_text_of_ids(const served *m, const int32_t *ids, uint32_t n) {
    mn_stream *stream = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    mn_text text = {0};
    if (mn_stream_create(m->a.model, MN_STREAM_PLAIN, &stream, NULL))
        return NULL;
    for (uint32_t i = 0; i <= n; i++) {
        const mn_status st = i < n ? mn_stream_push(stream, ids[i], &events, &n_events, NULL)
                                   : mn_stream_finish(stream, &events, &n_events, NULL);
        for (uint32_t k = 0; !st && k < n_events; k++)
            mn_text_put(&text, events[k].text.ptr, events[k].text.len);
        text.failed |= st != MN_OK;
    }
    mn_stream_free(stream);
    return mn_text_take(&text);
}

/* Prompt i: text or a list of ids. 0: the error is set. */
static int add_prompt(answer *a, uint32_t i, const cJSON *prompt, json_error *e) {
    const served *m = a->m;
    mn_error err = MN_ERROR;
    int32_t *ids = NULL;
    uint32_t n = 0;
    int ok = 1;
    if (cJSON_IsString(prompt)) {
        const mn_str text = {prompt->valuestring, strlen(prompt->valuestring)};
        const uint32_t flags =
            MN_TEXT_PARSE_SPECIAL | (a->ask.add_special ? MN_TEXT_ADD_SPECIAL : 0);
        if (!serve_may_fit(m, text.len, "prompt", e))
            return 0;
        const mn_status st = mn_model_tokenize(m->a.model, text, flags, &ids, &n, &err);
        ok = !st || serve_library_error(&err, st, "prompt", e);
    } else {
        int32_t *given = ids_of(m, prompt, &n, e);
        ok = given != NULL;
        ids = given;
    }
    if (ok && !n)
        ok = json_fail(e, "prompt", "prompt: found no token, expected at least one");
    const uint32_t flags =
        MN_STREAM_CONTINUE | MN_STREAM_PLAIN | (a->ask.skip_special ? 0 : MN_STREAM_SPECIAL);
    ok = ok && answer_prompt(a, i, ids, n, flags, DEFAULT_TOKENS, "prompt", e);
    if (ok && a->echo) {
        a->echo[i] = cJSON_IsString(prompt) ? strdup(prompt->valuestring)
                                            : completion_text_of_ids(m, ids, n);
        ok = a->echo[i] || json_no_memory(e);
    }
    if (cJSON_IsString(prompt))
        mn_ids_free(ids);
    else
        free(ids);
    return ok;
}

/* A prompt is a text, a list of ids, or a list of either. */
static int add_prompts(answer *a, json_error *e) {
    const cJSON *prompt = json_field(a->body, "prompt");
    const cJSON *item = prompt;
    uint32_t n = 1;
    const int is_list = cJSON_IsArray(prompt);
    const int is_ids = is_list && cJSON_IsNumber(prompt->child);
    if (!cJSON_IsString(prompt) && !(is_list && prompt->child))
        return json_fail(e, "prompt",
                         "prompt: expected a string, a list of strings, a list of "
                         "token ids or a list of such lists");
    if (is_list && !is_ids) {
        n = (uint32_t)cJSON_GetArraySize(prompt);
        item = prompt->child;
    }
    if (n > MAX_PROMPTS)
        return json_fail(e, "prompt", "prompt: found %u prompts, expected at most %d", n,
                         MAX_PROMPTS);
    if (!answer_reserve(a, n, e))
        return 0;
    if (a->ask.echo)
        a->echo = calloc(n, sizeof *a->echo);
    if (a->ask.echo && !a->echo)
        return json_no_memory(e);
    for (uint32_t i = 0; i < n; i++) {
        if (!cJSON_IsString(item) && !cJSON_IsArray(item))
            return json_fail(e, "prompt", "prompt: found a list of different things");
        if (!add_prompt(a, i, item, e))
            return 0;
        item = item->next;
    }
    return 1;
}

/* ---- the form of answers --------------------------------------------------------------------- */

/* One member of an object of the most likely tokens. */
static void put_top(answer *a, generation *g, const char *comma, int32_t id, float logprob) {
    mn_text_puts(&g->calls, comma);
    logprob_token(a, &g->calls, id);
    mn_text_puts(&g->calls, ":");
    json_float(&g->calls, logprob, "-9999.0");
}

/* Parallel arrays grow together: g->logprobs holds tokens, g->thinking their logprobs, g->calls the
 * objects of the most likely ones; this form has no other use for them. */
static void put_entry(answer *a, generation *g, int32_t id, float logprob, const int32_t *top_ids,
                      const float *top, uint32_t n_top, int has_top) {
    const char *comma = g->logprobs.len ? "," : "";
    const mn_str text = mn_model_token_text(a->m->a.model, id);
    int is_in_top = 0;
    mn_text_puts(&g->logprobs, comma);
    logprob_token(a, &g->logprobs, id);
    mn_text_puts(&g->thinking, comma);
    json_float(&g->thinking, logprob, "null");
    mn_text_printf(&g->offsets, "%s%u", comma, g->text_at);
    for (uint64_t i = 0; i < text.len; i++)
        g->text_at += ((unsigned char)text.ptr[i] & 0xC0) != 0x80; /* characters, not bytes */
    mn_text_puts(&g->calls, comma);
    mn_text_puts(&g->calls, has_top ? "{" : "null");
    for (uint32_t i = 0; i < n_top; i++) {
        is_in_top |= top_ids[i] == id;
        put_top(a, g, i ? "," : "", top_ids[i], top[i]);
    }
    if (has_top && !is_in_top) /* the token itself is always there */
        put_top(a, g, n_top ? "," : "", id, logprob);
    mn_text_puts(&g->calls, has_top ? "}" : "");
}

static void completion_logprob(answer *a, generation *g, const wire_event *e) {
    put_entry(a, g, e->token, e->logprob, e->top_ids, e->top_logprobs, e->n_top, 1);
}

/* 1 if the text of a prompt shows its first token, which a begin-of-text token does not. */
static int begins_with(const char *echo, const served *m, int32_t id) {
    const mn_str text = mn_model_token_text(m->a.model, id);
    return echo && strlen(echo) >= text.len && !memcmp(echo, text.ptr, text.len);
}

/* The first token of a prompt has no logprob: null. */
static void completion_prompt(answer *a, generation *g, const wire_event *e) {
    for (uint32_t i = 0; i < e->n_prompt; i++) {
        const size_t at = (size_t)i * e->n_top;
        put_entry(a, g, g->ids[i], e->prompt_logprobs[i], e->prompt_top_ids + at,
                  e->prompt_top_logprobs + at, i ? e->n_top : 0, i > 0);
        if (i == 0 && !begins_with(a->echo[g->index / (uint32_t)a->ask.n], a->m, g->ids[0]))
            g->text_at = 0;
    }
}

static void completion_text(answer *a, generation *g, const mn_stream_event *e) {
    (void)a;
    mn_text_json_inner(&g->content, e->text.ptr, e->text.len);
}

static void put_array(mn_text *out, const char *name, const mn_text *items) {
    mn_text_printf(out, "\"%s\":[", name);
    mn_text_add(out, items);
    mn_text_puts(out, "]");
}

/* "logprobs": the four arrays, or null if none were asked for. */
static void put_logprobs(const answer *a, const generation *g, mn_text *out) {
    mn_text_puts(out, ",\"logprobs\":");
    if (!a->ask.logprobs) {
        mn_text_puts(out, "null");
        return;
    }
    mn_text_puts(out, "{");
    put_array(out, "tokens", &g->logprobs);
    mn_text_puts(out, ",");
    put_array(out, "token_logprobs", &g->thinking);
    mn_text_puts(out, ",");
    put_array(out, "top_logprobs", &g->calls);
    mn_text_puts(out, ",");
    put_array(out, "text_offset", &g->offsets);
    mn_text_puts(out, "}");
}

/* The text before the answer, once. */
static void put_echo(answer *a, generation *g, mn_text *out) {
    const uint32_t i = g->index / (uint32_t)a->ask.n;
    if (a->echo && a->echo[i] && !g->echoed)
        mn_text_json_inner(out, a->echo[i], strlen(a->echo[i]));
    g->echoed = 1;
}

/* Chunks and whole answers have the same members here. */
static void completion_members(answer *a, generation *g, const char *finish, mn_text *out) {
    mn_text_puts(out, "\"text\":\"");
    put_echo(a, g, out);
    mn_text_add(out, &g->content);
    mn_text_puts(out, "\"");
    put_logprobs(a, g, out);
    mn_text_printf(out, finish ? ",\"finish_reason\":\"%s\"" : ",\"finish_reason\":null", finish);
    mn_text_clear(&g->content);
    mn_text_clear(&g->logprobs);
    mn_text_clear(&g->thinking);
    mn_text_clear(&g->calls);
    mn_text_clear(&g->offsets);
}

/* ---- the route ------------------------------------------------------------------------------- */

/* Fields of text completions alone: what would change the answer and is not supported. */
static int check_others(const answer *a, json_error *e) {
    int64_t best_of = a->ask.n;
    if (!json_read_int(a->body, "best_of", 1, ASK_MAX_CHOICES, &best_of, e))
        return 0;
    if (best_of != a->ask.n)
        return json_fail(e, "best_of", "best_of: found %lld, expected the same as n",
                         (long long)best_of);
    return 1;
}

/* Reads the request and makes its prompts. 0: the error is set. */
static int prepare(answer *a, json_error *e) {
    if (!ask_read(a->body, 0, a->m->a.info.n_vocab, &a->ask, e) || !check_others(a, e))
        return 0;
    answer_defaults(a);
    return add_prompts(a, e);
}

static const answer_form completion_form = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .read = prepare,
    .text = completion_text,
    .logprob = completion_logprob,
    .prompt = completion_prompt,
    .chunk = completion_members,
    .whole = completion_members,
};

void route_completion(serve *s, http_request *r) {
    answer_serve(s, r, &completion_form);
}
