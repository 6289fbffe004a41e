/* completion.c -- /v1/completions: prompts as text or ids, one or a list, answers as text. The
 * older of OpenAI's interfaces: 16 tokens unless the request says more, echo, logprobs as parallel
 * arrays. */
#include "serve/answer.h"
#include "serve/infill.h"
#include "serve/prompt_forms.h"
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOKENS = 16, MAX_PROMPTS = 2048 };

/* ---- prompts --------------------------------------------------------------------------------- */

enum { MAX_FILES = 1024 };

/* "input_extra": further files before the prompt, with their names. 0: the error is set. */
static int read_files(const cJSON *list, infill_file *files, uint32_t *n, json_error *e) {
    static const char name[] = "input_extra";
    const cJSON *item = NULL;
    if (list && !cJSON_IsArray(list))
        return json_fail(e, name, "%s: expected a list of objects with a text and a filename",
                         name);
    cJSON_ArrayForEach(item, list) {
        const char *text = cJSON_GetStringValue(json_field(item, "text"));
        const cJSON *file = json_field(item, "filename");
        if (!text || (file && !cJSON_IsString(file)))
            return json_fail(e, name, "%s[%u]: expected a text and a filename", name, *n);
        if (*n == MAX_FILES)
            return json_fail(e, name, "%s: found more than %d files", name, MAX_FILES);
        files[(*n)++] = (infill_file){file ? file->valuestring : "tmp", text};
    }
    return 1;
}

/* The ids of a text between the prompt and "suffix". 0: the error is set. */
static int infill_ids(const answer *a, const cJSON *prompt, int32_t **ids, uint32_t *n,
                      json_error *e) {
    const cJSON *list = json_field(a->body, "input_extra");
    const size_t most = (size_t)cJSON_GetArraySize(list) + 1;
    infill_parts parts = {.suffix = "", .add_special = a->ask.add_special};
    if (!cJSON_IsString(prompt))
        return json_fail(e, "prompt", "prompt: expected a string beside suffix");
    infill_file *files = calloc(most < MAX_FILES ? most : MAX_FILES, sizeof *files);
    parts.prefix = prompt->valuestring;
    parts.files = files;
    int ok = files || json_no_memory(e);
    ok = ok && json_read_string(a->body, "suffix", &parts.suffix, e) &&
         read_files(list, files, &parts.n_files, e) &&
         serve_may_fit(a->m, strlen(parts.prefix) + strlen(parts.suffix), "prompt", e) &&
         infill_prompt(a->m->a.model, &parts, ids, n, e);
    free(files);
    return ok;
}

/* 1 if the prompt goes on behind the answer. */
static int has_suffix(const cJSON *body) {
    const cJSON *suffix = json_field(body, "suffix");
    return json_field(body, "input_extra") ||
           (suffix && !(cJSON_IsString(suffix) && !*suffix->valuestring));
}

/* Prompt i. 0: the error is set. */
static int add_prompt(answer *a, uint32_t i, const cJSON *prompt, uint32_t limit, json_error *e) {
    const uint32_t text_flags =
        MN_TEXT_PARSE_SPECIAL | (a->ask.add_special ? MN_TEXT_ADD_SPECIAL : 0);
    const uint32_t flags =
        MN_STREAM_CONTINUE | MN_STREAM_PLAIN | (a->ask.skip_special ? 0 : MN_STREAM_SPECIAL);
    int32_t *ids = NULL;
    uint32_t n = 0;
    int ok = has_suffix(a->body) ? infill_ids(a, prompt, &ids, &n, e)
                                 : prompt_ids(a->m, prompt, "prompt", text_flags, &ids, &n, e);
    if (ok && !n)
        ok = json_fail(e, "prompt", "prompt: found no token, expected at least one");
    ok = ok && answer_prompt(a, i, ids, n, flags, limit, "prompt", e);
    if (ok && a->echo) {
        a->echo[i] = prompt_text(a->m, prompt, ids, n);
        ok = a->echo[i] || json_no_memory(e);
    }
    free(ids);
    return ok;
}

/* One prompt, or a list of them (prompt_forms.h). */
static int add_prompts(answer *a, uint32_t limit, json_error *e) {
    const cJSON *prompt = json_field(a->body, "prompt");
    const cJSON *item = prompt;
    uint32_t n = 1;
    const int has_prompt = cJSON_IsString(prompt) || (prompt && prompt->child);
    if (!has_prompt)
        return json_fail(e, "prompt",
                         "prompt: expected a string, a list of strings, a list of "
                         "token ids or a list of such lists");
    if (prompt_is_list(prompt)) {
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
        if (!add_prompt(a, i, item, limit, e))
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

int completion_read(answer *a, uint32_t limit, json_error *e) {
    if (!ask_read(a->body, 0, a->m->a.info.n_vocab, &a->ask, e) || !check_others(a, e))
        return 0;
    answer_defaults(a);
    return add_prompts(a, limit, e);
}

static int prepare(answer *a, json_error *e) {
    return completion_read(a, DEFAULT_TOKENS, e);
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
