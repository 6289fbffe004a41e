/* dialect_llama.c -- llama-server's own paths: /completion (also /completions), /infill, /props,
 * /slots, /apply-template. Answers are objects with the text, its tokens, the settings of the
 * generation and its times; several prompts make a list. Requests are in dialect_llama_request.c.
 *
 * g->content is the text of a piece, g->logprobs its tokens with logprobs. a->own has what the
 * answer needs of the request, or is NULL. */
#include "serve/dialect_llama.h"
#include <stdlib.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

static void put_llama_error(const json_error *e, mn_text *out) {
    static const struct {
        unsigned status;
        const char *type;
    } types[] = {{401, "authentication_error"},
                 {403, "permission_error"},
                 {404, "not_found_error"},
                 {501, "not_supported_error"},
                 {503, "unavailable_error"}};
    const char *type = e->status >= 500 ? "server_error" : "invalid_request_error";
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (types[i].status == e->status)
            type = types[i].type;
    if (e->code && !strcmp(e->code, "context_length_exceeded"))
        type = "exceed_context_size_error";
    mn_text_printf(out, "{\"error\":{\"code\":%u,\"message\":", e->status);
    json_stringz(out, e->message);
    mn_text_printf(out, ",\"type\":\"%s\"}}", type);
}

static void llama_error(const http_request *r, const json_error *e, mn_text *out) {
    (void)r;
    put_llama_error(e, out);
    mn_text_puts(out, "\n");
}

static void llama_stream_error(const http_request *r, const json_error *e, mn_text *out) {
    (void)r;
    mn_text_puts(out, "data: ");
    put_llama_error(e, out);
    mn_text_puts(out, "\n\n");
}

/* Clients look for these words. */
static void llama_refused(const served *m, json_error *e) {
    if (e->n_tokens && e->code && !strcmp(e->code, "context_length_exceeded"))
        snprintf(e->message, sizeof e->message,
                 "request (%llu tokens) exceeds the available context size (%u tokens)",
                 (unsigned long long)e->n_tokens, m->n_ctx);
}

/* ---- members --------------------------------------------------------------------------------- */

static void put_token_list(mn_text *out, const int32_t *ids, uint32_t n) {
    mn_text_puts(out, ",\"tokens\":[");
    for (uint32_t i = 0; i < n; i++)
        mn_text_printf(out, "%s%d", i ? "," : "", ids[i]);
    mn_text_puts(out, "]");
}

static void put_llama_text(generation *g, mn_text *out) {
    mn_text_printf(out, "{\"index\":%u,\"content\":\"", g->index);
    mn_text_add(out, &g->content);
    mn_text_puts(out, "\"");
}

/* The tokens of the piece with their logprobs; they are cleared. */
static void put_probabilities(generation *g, mn_text *out) {
    if (g->logprobs.len) {
        mn_text_puts(out, ",\"completion_probabilities\":[");
        mn_text_add(out, &g->logprobs);
        mn_text_puts(out, "]");
    }
    mn_text_clear(&g->logprobs);
}

static uint32_t slot_of(const generation *g) {
    return (uint32_t)(g->id % 4096);
}

static void put_counts(const generation *g, mn_text *out) {
    mn_text_printf(out, ",\"id_slot\":%u,\"tokens_predicted\":%u,\"tokens_evaluated\":%u",
                   slot_of(g), g->n_ids - g->n_prompt, g->n_prompt);
}

/* Why it ended. */
static void put_stop(const answer *a, const generation *g, mn_text *out) {
    const mn_str word = g->stop_string ? a->ask.stop[g->stop_string - 1] : (mn_str){"", 0};
    const int by_length = g->finish == MN_FINISH_LENGTH;
    const int is_full = a->ask.max_tokens < 0 || g->max_new < (uint64_t)a->ask.max_tokens;
    const char *type = by_length ? "limit" : "eos";
    mn_text_printf(out, ",\"truncated\":%s,\"stop_type\":\"%s\",\"stopping_word\":",
                   by_length && is_full ? "true" : "false", g->stop_string ? "word" : type);
    mn_text_json(out, word);
}

/* An object with everything. ids: n of them, those of the answer that it has. */
static void put_llama_final(const answer *a, generation *g, const int32_t *ids, uint32_t n,
                            mn_text *out) {
    put_llama_text(g, out);
    put_token_list(out, ids, n);
    put_counts(g, out);
    mn_text_puts(out, ",\"stop\":true,\"model\":");
    json_stringz(out, a->ask.model ? a->ask.model : a->m->name);
    mn_text_puts(out, ",\"generation_settings\":");
    llama_put_settings(a->m, a, out);
    mn_text_puts(out, ",\"prompt\":");
    llama_put_text_of(a->m, g->ids, g->n_prompt, out);
    mn_text_printf(out, ",\"has_new_line\":%s", g->has_new_line ? "true" : "false");
    put_stop(a, g, out);
    mn_text_printf(out, ",\"tokens_cached\":%u,\"timings\":", g->n_ids);
    llama_put_timings(g, out);
    put_probabilities(g, out);
    mn_text_puts(out, "}");
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void llama_text(answer *a, generation *g, const mn_stream_event *e) {
    (void)a;
    g->has_new_line |= memchr(e->text.ptr, '\n', e->text.len) != NULL;
    mn_text_json_inner(&g->content, e->text.ptr, e->text.len);
}

/* A token: its members are those of logprobs, and its id. */
static void put_probable(const answer *a, mn_text *out, int32_t id, float logprob) {
    mn_text_printf(out, "{\"id\":%d,", id);
    const size_t at = out->len;
    logprob_entry(a, out, id, logprob);
    if (out->len > at)
        mn_text_remove(out, at, at + 1); /* its brace */
}

static void llama_logprob(answer *a, generation *g, const wire_event *e) {
    mn_text *b = &g->logprobs;
    mn_text_puts(b, b->len ? "," : "");
    put_probable(a, b, e->token, e->logprob);
    mn_text_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < e->n_top; i++) {
        mn_text_puts(b, i ? "," : "");
        put_probable(a, b, e->top_ids[i], e->top_logprobs[i]);
        mn_text_puts(b, "}");
    }
    mn_text_puts(b, "]}");
}

/* The answer's ids that the stream has not had. */
static const int32_t *new_ids(generation *g, uint32_t *n) {
    const uint32_t from = g->n_given ? g->n_given : g->n_prompt;
    g->n_given = g->n_ids;
    *n = g->n_ids - from;
    return g->ids + from;
}

static void llama_pieces(answer *a, generation *g, mn_text *out) {
    uint32_t n = 0;
    if (!g->content.len)
        return;
    const int32_t *ids = new_ids(g, &n);
    mn_text_puts(out, "data: ");
    put_llama_text(g, out);
    put_token_list(out, ids, n);
    put_counts(g, out);
    mn_text_puts(out, ",\"stop\":false");
    if (cJSON_IsTrue(json_field(a->own, "timings_per_token"))) {
        mn_text_puts(out, ",\"timings\":");
        llama_put_timings(g, out);
    }
    put_probabilities(g, out);
    mn_text_puts(out, "}\n\n");
    mn_text_clear(&g->content);
}

static void llama_begin(answer *a, mn_text *out) {
    (void)a;
    (void)out;
}

static void llama_end(answer *a, generation *g, mn_text *out) {
    mn_text object = {0};
    uint32_t n = 0;
    const int32_t *ids = new_ids(g, &n);
    put_llama_final(a, g, ids, n, &object);
    llama_choose_fields(json_field(a->own, "response_fields"), &object);
    mn_text_puts(out, "data: ");
    mn_text_add(out, &object);
    mn_text_puts(out, "\n\n");
    mn_text_free(&object);
}

static void llama_whole(answer *a, generation *g, mn_text *out) {
    mn_text object = {0};
    (void)g;
    mn_text_puts(out, a->n > 1 ? "[" : "");
    for (uint32_t i = 0; i < a->n; i++) {
        generation *one = &a->g[i];
        const uint32_t n = a->ask.token_ids ? one->n_ids - one->n_prompt : 0;
        mn_text_clear(&object);
        put_llama_final(a, one, one->ids + one->n_prompt, n, &object);
        llama_choose_fields(json_field(a->own, "response_fields"), &object);
        mn_text_puts(out, i ? "," : "");
        mn_text_add(out, &object);
    }
    mn_text_puts(out, a->n > 1 ? "]\n" : "\n");
    mn_text_free(&object);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int llama_read_as(answer *a, cJSON *request, json_error *e) {
    if (!request)
        return json_no_memory(e);
    cJSON_Delete(a->in.body);
    a->in.body = request;
    a->body = request;
    if (completion_read(a, 0, e))
        return 1;
    llama_refused(a->m, e);
    return 0;
}

static int llama_completion_read(answer *a, json_error *e) {
    cJSON *kept = NULL;
    cJSON *request = llama_completion_request(a->m, a->in.body, &kept, e);
    a->own = kept;
    return llama_read_as(a, request, e);
}

static int llama_infill_read(answer *a, json_error *e) {
    cJSON *kept = NULL;
    cJSON *request = llama_infill_request(a->m, a->in.body, &kept, e);
    a->own = kept;
    return llama_read_as(a, request, e);
}

static void llama_free(void *own) {
    cJSON_Delete(own);
}

const dialect dialect_llama = {
    .paths = {"/completion", "/completions", "/infill", "/props", "/slots", "/apply-template",
              "/embedding", "/embeddings", "/rerank", "/reranking"},
    .stream_type = "text/event-stream",
    .ping = ": keep-alive\n\n",
    .begin = llama_begin,
    .pieces = llama_pieces,
    .end = llama_end,
    .whole = llama_whole,
    .error = llama_error,
    .stream_error = llama_stream_error,
    .free = llama_free,
};

static const answer_form llama_completion_form = {
    .id_prefix = "cmpl-",
    .object = "completion",
    .chunk_object = "completion",
    .read = llama_completion_read,
    .text = llama_text,
    .logprob = llama_logprob,
    .dialect = &dialect_llama,
};

static const answer_form llama_infill_form = {
    .id_prefix = "cmpl-",
    .object = "infill",
    .chunk_object = "infill",
    .read = llama_infill_read,
    .text = llama_text,
    .logprob = llama_logprob,
    .dialect = &dialect_llama,
};

void route_llama_completion(serve *s, http_request *r) {
    answer_serve(s, r, &llama_completion_form);
}

void route_llama_infill(serve *s, http_request *r) {
    answer_serve(s, r, &llama_infill_form);
}

/* ---- what the server is ---------------------------------------------------------------------- */

/* The model that a path without a body is about: the first one that is loaded; NULL: none is. */
static const served *shown_model(const serve *s) {
    for (unsigned i = 0; i < s->models.n; i++)
        if (s->models.v[i]->is_open && !strcmp(models_state(s->models.v[i]), "loaded"))
            return s->models.v[i];
    return NULL;
}

/* The same; NULL: r is answered. */
static const served *need_model(const serve *s, http_request *r) {
    const served *m = shown_model(s);
    if (m)
        return m;
    http_header(r, "Retry-After", "2");
    http_error(r, 503, "unavailable_error", NULL, NULL, "no model is loaded");
    return NULL;
}

/* A variable that the tokeniser gives templates, as a string of JSON. */
static void put_variable(const served *m, const char *name, mn_text *out) {
    char source[64];
    char *text = NULL;
    uint64_t n = 0;
    snprintf(source, sizeof source, "{{ %s }}", name);
    mn_text_printf(out, ",\"%s\":", name);
    if (!m->a.model || mn_template_render(m->a.model, source, mn_str_of("{}"), &text, &n, NULL))
        mn_text_puts(out, "\"\"");
    else
        mn_text_json(out, (mn_str){text, n});
    mn_json_free(text);
}

static unsigned n_slots(const served *m) {
    return m->n_seq * m->n_links;
}

void route_llama_props(serve *s, http_request *r) {
    const served *m = need_model(s, r);
    mn_text out = {0};
    if (!m)
        return;
    mn_text_printf(&out, "{\"default_generation_settings\":{\"n_ctx\":%u,\"params\":", m->n_ctx);
    llama_put_settings(m, NULL, &out);
    mn_text_printf(&out, "},\"total_slots\":%u,\"model_alias\":", n_slots(m));
    json_stringz(&out, m->name);
    mn_text_puts(&out, ",\"model_path\":");
    json_stringz(&out, m->a.info.path ? m->a.info.path : "");
    mn_text_puts(&out, ",\"modalities\":{\"vision\":false,\"audio\":false},\"chat_template\":");
    mn_text_json(&out, mn_model_chat_template(m->a.model));
    put_variable(m, "bos_token", &out);
    put_variable(m, "eos_token", &out);
    mn_text_printf(&out, ",\"build_info\":\"minerva %s\",\"is_sleeping\":false}\n", mn_version());
    serve_json(s, r, &out);
}

/* There is nothing that a request may change. */
void route_llama_set_props(serve *s, http_request *r) {
    json_error e = {0};
    mn_text out = {0};
    if (!models_permit(s, r))
        return;
    cJSON *body = json_parse(r->body, r->n_body, &e);
    if (body && body->child)
        json_fail(&e, body->child->string,
                  "%.60s: no property of this server is changed by a request: use flags",
                  body->child->string);
    cJSON_Delete(body);
    if (e.failed) {
        serve_refuse(s, r, &e);
        return;
    }
    mn_text_puts(&out, "{\"success\":true}\n");
    serve_json(s, r, &out);
}

/* Generations of m that an engine has, in the order of the answers; at most max. */
static unsigned running(const served *m, const generation **out, unsigned max) {
    unsigned n = 0;
    for (const answer *a = m->s->answers; a; a = a->next)
        for (uint32_t i = 0; !a->in.running && a->m == m && i < a->n && n < max; i++)
            if (a->g[i].link && a->g[i].admitted && !a->g[i].done)
                out[n++] = &a->g[i];
    return n;
}

/* A sequence of the engine, with the generation that it has, or NULL. */
static void put_slot(const served *m, unsigned i, const generation *g, mn_text *out) {
    mn_text_printf(out, "%s{\"id\":%u,\"n_ctx\":%u,\"speculative\":false,", i ? "," : "", i,
                   m->n_ctx);
    mn_text_printf(out, "\"is_processing\":%s", g ? "true" : "false");
    if (g)
        mn_text_printf(out,
                       ",\"id_task\":%llu,\"n_prompt_tokens\":%u,\"next_token\":[{"
                       "\"n_decoded\":%u,\"n_remain\":%lld}]",
                       (unsigned long long)g->id, g->n_prompt, g->n_ids - g->n_prompt,
                       (long long)g->max_new - (g->n_ids - g->n_prompt));
    mn_text_puts(out, "}");
}

void route_llama_slots(serve *s, http_request *r) {
    const served *m = need_model(s, r);
    const unsigned n = m ? n_slots(m) : 0;
    if (!m)
        return;
    const generation **busy = calloc(n + 1u, sizeof *busy);
    const unsigned n_busy = busy ? running(m, busy, n) : 0;
    mn_text out = {.failed = !busy};
    mn_text_puts(&out, "[");
    for (unsigned i = 0; i < n; i++)
        put_slot(m, i, i < n_busy ? busy[i] : NULL, &out);
    mn_text_puts(&out, "]\n");
    free(busy);
    serve_json(s, r, &out);
}

/* ---- /apply-template ------------------------------------------------------------------------- */

static int llama_apply_template(reading *x) {
    mn_text *out = reading_out(x);
    int32_t *ids = NULL;
    uint32_t n = 0;
    int has_tools = 0;
    ask_form form = {0};
    const int ok = form_calls(x->body, &form, &has_tools, &x->e) &&
                   chat_ids(x->m, x->body, has_tools, &ids, &n, &x->e);
    form_free(&form);
    if (!ok)
        return 0;
    mn_text_puts(out, "{\"prompt\":");
    llama_put_text_of(x->m, ids, n, out);
    mn_text_puts(out, "}\n");
    mn_ids_free(ids);
    return 1;
}

void route_llama_template(serve *s, http_request *r) {
    reading_serve(s, r, llama_apply_template);
}
