/* dialect_ollama.c -- Ollama's /api/chat and /api/generate: answers are objects, in a stream one
 * per line, the last of which has durations and counts. Requests are in dialect_ollama_request.c,
 * what says which models there are in ollama_models.c.
 *
 * A line has what a token completed: g->content and g->thinking are its text, g->logprobs its
 * tokens. Calls are sent whole: g->calls has the members of the list, whose last one is open until
 * g->offsets, the text of its arguments, is an object; a call that a limit has cut is left out. */
#include "serve/dialect_ollama.h"
#include <string.h>
#include <time.h>

/* ---- errors ---------------------------------------------------------------------------------- */

/* The name in the sentence about a model that the server has not; its length. */
static size_t missing_model(const json_error *e, const char **name) {
    const char *at =
        e->code && !strcmp(e->code, "model_not_found") ? strchr(e->message, '"') : NULL;
    const char *end = at ? strstr(at + 1, "\", expected") : NULL;
    *name = end ? at + 1 : NULL;
    return end ? (size_t)(end - *name) : 0;
}

/* Clients look for Ollama's words about a model. */
static void ollama_error(const http_request *r, const json_error *e, mn_text *out) {
    const char *name = NULL;
    const size_t n = missing_model(e, &name);
    (void)r;
    mn_text_puts(out, "{\"error\":\"");
    if (name) {
        mn_text_puts(out, "model '");
        mn_text_json_inner(out, name, n);
        mn_text_puts(out, "' not found");
    } else {
        mn_text_json_inner(out, e->message, strlen(e->message));
    }
    mn_text_puts(out, "\"}\n");
}

/* ---- members --------------------------------------------------------------------------------- */

void ollama_put_name(mn_text *out, const char *name) {
    mn_text_json(out, mn_str_of(name));
    if (!strchr(name, ':') && out->len)
        mn_text_insert(out, out->len - 1, ":latest", sizeof ":latest" - 1);
}

void ollama_put_time(mn_text *out, double at) {
    const time_t whole = (time_t)at;
    struct tm day = {0};
    char date[40] = "1970-01-01T00:00:00";
    if (gmtime_r(&whole, &day))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &day);
    mn_text_printf(out, "\"%s.%06uZ\"", date, (unsigned)((at - (double)whole) * 1e6) % 1000000);
}

static double time_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void put_line_head(const answer *a, mn_text *out) {
    mn_text_puts(out, "{\"model\":");
    json_stringz(out, a->ask.model ? a->ask.model : a->m->name);
    mn_text_puts(out, ",\"created_at\":");
    ollama_put_time(out, time_now());
}

static void ollama_put_member(mn_text *out, const char *name, const mn_text *inner) {
    mn_text_printf(out, ",\"%s\":\"", name);
    mn_text_add(out, inner);
    mn_text_puts(out, "\"");
}

static int is_chat(const answer *a) {
    return a->form->dialect == &dialect_ollama;
}

/* The message or the response, with what g has, which is cleared. */
static void put_parts(const answer *a, generation *g, mn_text *out) {
    const int has_calls = g->calls.len && !g->call_open;
    if (is_chat(a))
        mn_text_puts(out, ",\"message\":{\"role\":\"assistant\"");
    ollama_put_member(out, is_chat(a) ? "content" : "response", &g->content);
    if (g->thinking.len)
        ollama_put_member(out, "thinking", &g->thinking);
    if (has_calls && is_chat(a)) {
        mn_text_puts(out, ",\"tool_calls\":[");
        mn_text_add(out, &g->calls);
        mn_text_puts(out, "]");
    }
    mn_text_puts(out, is_chat(a) ? "}" : "");
    if (g->logprobs.len) {
        mn_text_puts(out, ",\"logprobs\":[");
        mn_text_add(out, &g->logprobs);
        mn_text_puts(out, "]");
    }
    mn_text_clear(&g->content);
    mn_text_clear(&g->thinking);
    mn_text_clear(&g->logprobs);
    if (has_calls)
        mn_text_clear(&g->calls);
}

/* Nanoseconds, at least 1: clients divide by them. */
static unsigned long long ollama_ns(double s) {
    return s > 1e-9 ? (unsigned long long)(s * 1e9) : 1;
}

/* The members of the last object. */
static void put_last(const answer *a, const generation *g, mn_text *out) {
    const double now = seconds();
    const double first = g->first > 0 ? g->first : now;
    mn_text_printf(out,
                   ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,"
                   "\"load_duration\":0,\"prompt_eval_count\":%u,\"prompt_eval_duration\":%llu,",
                   g->finish == MN_FINISH_LENGTH ? "length" : "stop",
                   ollama_ns(now - a->http->since), g->n_prompt, ollama_ns(first - g->begin));
    mn_text_printf(out, "\"eval_count\":%u,\"eval_duration\":%llu}\n", g->n_ids - g->n_prompt,
                   ollama_ns(now - first));
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The open call is whole, or is taken back: its arguments were cut. */
static void end_call(generation *g) {
    mn_text *arguments = &g->offsets;
    if (!g->call_open)
        return;
    g->call_open = 0;
    if (!arguments->len && g->finish != MN_FINISH_LENGTH)
        mn_text_puts(arguments, "{}");
    cJSON *input = cJSON_ParseWithLength(arguments->ptr ? arguments->ptr : "", arguments->len);
    if (cJSON_IsObject(input)) {
        mn_text_add(&g->calls, arguments);
        mn_text_puts(&g->calls, "}}");
    } else {
        mn_text_remove(&g->calls, g->text_at, g->calls.len);
    }
    mn_text_clear(arguments);
    cJSON_Delete(input);
}

static void begin_call(generation *g, const mn_stream_event *e) {
    end_call(g);
    g->text_at = (uint32_t)g->calls.len;
    mn_text_puts(&g->calls, g->calls.len ? "," : "");
    mn_text_puts(&g->calls, "{\"function\":{\"name\":");
    mn_text_json(&g->calls, e->text);
    mn_text_puts(&g->calls, ",\"arguments\":");
    g->n_calls = e->call + 1;
    g->call_open = 1;
}

static void ollama_text(answer *a, generation *g, const mn_stream_event *e) {
    if (e->kind == MN_EVENT_ARGUMENTS) {
        if (g->call_open)
            mn_text_put(&g->offsets, e->text.ptr, e->text.len);
        return;
    }
    if (e->kind == MN_EVENT_CALL) {
        begin_call(g, e);
        return;
    }
    end_call(g);
    if (e->kind != MN_EVENT_THINKING)
        mn_text_json_inner(&g->content, e->text.ptr, e->text.len);
    else if (a->ask.with_thinking)
        mn_text_json_inner(&g->thinking, e->text.ptr, e->text.len);
}

/* One line of a stream, where there is something to say. */
static void ollama_pieces(answer *a, generation *g, mn_text *out) {
    if (!g->content.len && !g->thinking.len && !(g->calls.len && !g->call_open))
        return;
    put_line_head(a, out);
    put_parts(a, g, out);
    mn_text_puts(out, ",\"done\":false}\n");
}

static void ollama_begin(answer *a, mn_text *out) {
    (void)a;
    (void)out;
}

static void ollama_whole(answer *a, generation *g, mn_text *out) {
    end_call(g);
    put_line_head(a, out);
    put_parts(a, g, out);
    put_last(a, g, out);
}

static void ollama_end(answer *a, generation *g, mn_text *out) {
    end_call(g);
    ollama_pieces(a, g, out);
    ollama_whole(a, g, out);
}

/* The model is there; with keep_alive 0 it is let go, by who may. */
static int ollama_empty(answer *a, mn_text *out) {
    json_error e = {0};
    int given = 0;
    double keep = 0;
    ollama_keep_alive(a->in.body, &given, &keep, &e);
    const int ends = given && keep == 0 && a->s->models.lazy;
    if (ends && !models_permit(a->s, a->http))
        return 0;
    if (ends)
        models_unload(a->m, &e);
    put_line_head(a, out);
    mn_text_puts(out, is_chat(a) ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                                 : ",\"response\":\"\"");
    mn_text_printf(out, ",\"done\":true,\"done_reason\":\"%s\"}\n", ends ? "unload" : "load");
    return 1;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* What a request without a prompt has: no generation. */
static int read_load(answer *a, json_error *e) {
    const cJSON *body = a->in.body;
    int given = 0;
    double keep = 0;
    return ollama_model(body, &a->ask.model, e) && ollama_keep_alive(body, &given, &keep, e);
}

static int ollama_chat_read(answer *a, json_error *e) {
    return ollama_is_load(a->in.body) ? read_load(a, e) : dialect_read(a, e);
}

/* As a chat with one message, or as a text completion. */
static int ollama_generate_read(answer *a, json_error *e) {
    int is_text = 0;
    if (ollama_is_load(a->in.body))
        return read_load(a, e);
    cJSON *request = ollama_generate_request(a->in.body, &is_text, e);
    if (!request)
        return json_no_memory(e);
    cJSON_Delete(a->in.body);
    a->in.body = request;
    a->body = request;
    if (is_text ? completion_read(a, 0, e) : chat_read(a, e))
        return 1;
    ollama_refused(a->m, e);
    return 0;
}

static int ollama_stay(const cJSON *body, double *seconds) {
    json_error e = {0};
    int given = 0;
    return ollama_keep_alive(body, &given, seconds, &e) && given;
}

const dialect dialect_ollama = {
    .paths = {"/api"},
    .but_for = "/api/v1/", /* OpenAI's, behind a proxy */
    .stream_type = "application/x-ndjson",
    .request = ollama_chat_request,
    .stay = ollama_stay,
    .refused = ollama_refused,
    .begin = ollama_begin,
    .pieces = ollama_pieces,
    .end = ollama_end,
    .whole = ollama_whole,
    .empty = ollama_empty,
    .error = ollama_error,
    .stream_error = ollama_error,
};

/* The same with "response" instead of "message". */
static const dialect dialect_ollama_generate = {
    .paths = {"/api/generate"},
    .stream_type = "application/x-ndjson",
    .begin = ollama_begin,
    .pieces = ollama_pieces,
    .end = ollama_end,
    .whole = ollama_whole,
    .empty = ollama_empty,
    .error = ollama_error,
    .stream_error = ollama_error,
};

/* ---- the routes ------------------------------------------------------------------------------ */

static const answer_form ollama_chat_form = {
    .id_prefix = "",
    .object = "chat",
    .chunk_object = "chat",
    .read = ollama_chat_read,
    .text = ollama_text,
    .logprob = chat_logprob,
    .dialect = &dialect_ollama,
};

static const answer_form ollama_generate_form = {
    .id_prefix = "",
    .object = "generate",
    .chunk_object = "generate",
    .read = ollama_generate_read,
    .text = ollama_text,
    .logprob = chat_logprob,
    .dialect = &dialect_ollama_generate,
};

void route_ollama_chat(serve *s, http_request *r) {
    answer_serve(s, r, &ollama_chat_form);
}

void route_ollama_generate(serve *s, http_request *r) {
    answer_serve(s, r, &ollama_generate_form);
}
