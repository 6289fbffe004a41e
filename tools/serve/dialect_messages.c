/* dialect_messages.c -- Anthropic Messages: /v1/messages and /v1/messages/count_tokens. Answers are
 * a list of blocks of text, thinking and calls; in a stream one block is open at a time. Requests
 * are in dialect_messages_request.c. */
#include "serve/dialect_messages.h"
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *error_type(unsigned status) {
    static const struct {
        unsigned status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"}};
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (types[i].status == status)
            return types[i].type;
    return status >= 500 ? "api_error" : "invalid_request_error";
}

static void messages_put_error(const http_request *r, const json_error *e, mn_text *out) {
    mn_text_printf(
        out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(e->status));
    json_stringz(out, e->message);
    mn_text_puts(out, "},\"request_id\":");
    json_stringz(out, r->id);
    mn_text_puts(out, "}");
}

static void messages_error(const http_request *r, const json_error *e, mn_text *out) {
    messages_put_error(r, e, out);
    mn_text_puts(out, "\n");
}

static void messages_stream_error(const http_request *r, const json_error *e, mn_text *out) {
    mn_text_puts(out, "event: error\ndata: ");
    messages_put_error(r, e, out);
    mn_text_puts(out, "\n\n");
}

/* A sentence of the chat about a field that has another name here: "stop: found ...". */
static void use_own_name(json_error *e) {
    static const char *const names[][2] = {{"stop", "stop_sequences"},
                                           {"response_format", "output_config.format"}};
    char rest[sizeof e->message];
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const size_t n = strlen(names[i][0]);
        if (strcmp(e->param, names[i][0]) != 0 || strncmp(e->message, names[i][0], n) != 0)
            continue;
        snprintf(rest, sizeof rest, "%s", e->message + n);
        snprintf(e->message, sizeof e->message, "%s%.400s", names[i][1], rest);
        return;
    }
}

/* Agents know a prompt that is too long by these words alone. */
static void messages_refused(const served *m, json_error *e) {
    use_own_name(e);
    if (e->n_tokens && e->code && !strcmp(e->code, "context_length_exceeded"))
        snprintf(e->message, sizeof e->message, "prompt is too long: %llu tokens > %u maximum",
                 (unsigned long long)e->n_tokens, m->n_ctx);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The block of a call, without its arguments. */
static void put_call(mn_text *out, mn_str name) {
    mn_text_puts(out, "{\"type\":\"tool_use\",\"id\":\"" MESSAGES_CALL_PREFIX);
    chat_put_call_id(out);
    mn_text_puts(out, "\",\"name\":");
    mn_text_json(out, name);
    mn_text_puts(out, ",\"input\":");
}

/* The arguments of a call in a whole answer; those that max_tokens has cut are left out. */
static void put_input(generation *g) {
    mn_text *arguments = &g->calls;
    cJSON *input = arguments->len ? cJSON_ParseWithLength(arguments->ptr, arguments->len) : NULL;
    if (cJSON_IsObject(input))
        mn_text_add(&g->content, arguments);
    else
        mn_text_puts(&g->content, "{}");
    cJSON_Delete(input);
    mn_text_clear(arguments);
}

/* Ends the block that is open. */
static void close_block(const answer *a, generation *g, mn_text *out) {
    const uint32_t i = g->n_blocks - 1;
    if (!g->open)
        return;
    if (a->ask.stream) {
        if (g->open == MN_EVENT_THINKING)
            mn_text_printf(out,
                           "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
                           "\"index\":%u,\"delta\":{\"type\":\"signature_delta\",\"signature\":"
                           "\"\"}}\n\n",
                           i);
        mn_text_printf(out,
                       "event: content_block_stop\ndata: {\"type\":\"content_block_stop\","
                       "\"index\":%u}\n\n",
                       i);
    } else if (g->open == MN_EVENT_CALL) {
        put_input(g);
        mn_text_puts(out, "}");
    } else {
        mn_text_puts(out, g->open == MN_EVENT_THINKING ? "\",\"signature\":\"\"}" : "\"}");
    }
    g->open = 0;
}

/* What a block of kind begins with: in a stream as a whole, else up to its text. */
static void put_begin(const answer *a, const mn_stream_event *e, mn_text *out) {
    const char *name = e->kind == MN_EVENT_THINKING ? "thinking" : "text";
    if (e->kind == MN_EVENT_CALL) {
        put_call(out, e->text);
        mn_text_puts(out, a->ask.stream ? "{}}" : "");
        return;
    }
    mn_text_printf(out, "{\"type\":\"%s\",\"%s\":\"", name, name);
    if (a->ask.stream)
        mn_text_puts(out, e->kind == MN_EVENT_THINKING ? "\",\"signature\":\"\"}" : "\"}");
}

static void open_block(const answer *a, generation *g, const mn_stream_event *e, mn_text *out) {
    close_block(a, g, out);
    if (a->ask.stream)
        mn_text_printf(out,
                       "event: content_block_start\ndata: {\"type\":\"content_block_start\","
                       "\"index\":%u,\"content_block\":",
                       g->n_blocks);
    else
        mn_text_puts(out, g->n_blocks ? "," : "");
    put_begin(a, e, out);
    mn_text_puts(out, a->ask.stream ? "}\n\n" : "");
    g->n_blocks++;
    g->open = e->kind;
}

/* A piece of the open block. */
static void messages_put_piece(const answer *a, generation *g, const mn_stream_event *e,
                               mn_text *out) {
    static const char *const deltas[][2] = {[MN_EVENT_TEXT] = {"text_delta", "text"},
                                            [MN_EVENT_THINKING] = {"thinking_delta", "thinking"},
                                            [MN_EVENT_CALL] = {"input_json_delta", "partial_json"}};
    if (!a->ask.stream && g->open == MN_EVENT_CALL) {
        mn_text_put(&g->calls, e->text.ptr, e->text.len);
        return;
    }
    if (a->ask.stream)
        mn_text_printf(out,
                       "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
                       "\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":\"",
                       g->n_blocks - 1, deltas[g->open][0], deltas[g->open][1]);
    mn_text_json_inner(out, e->text.ptr, e->text.len);
    mn_text_puts(out, a->ask.stream ? "\"}}\n\n" : "");
}

static void messages_text(answer *a, generation *g, const mn_stream_event *e) {
    mn_text *out = &g->content;
    if (e->kind == MN_EVENT_CALL) {
        open_block(a, g, e, out);
        g->n_calls = e->call + 1;
        return;
    }
    const int is_hidden = e->kind == MN_EVENT_THINKING && !a->ask.with_thinking;
    const int is_lost = e->kind == MN_EVENT_ARGUMENTS && g->open != MN_EVENT_CALL;
    if (!e->text.len || is_hidden || is_lost)
        return;
    if (e->kind != MN_EVENT_ARGUMENTS && g->open != e->kind)
        open_block(a, g, e, out);
    messages_put_piece(a, g, e, out);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The client's stop string that ended g; NULL: none. */
static const mn_str *stop_of(const answer *a, const generation *g) {
    return g->stop_string && a->ask.stop_given ? &a->ask.stop[g->stop_string - 1] : NULL;
}

static const char *messages_reason_of(const answer *a, const generation *g) {
    const int is_full = a->ask.max_tokens < 0 || g->max_new < (uint64_t)a->ask.max_tokens;
    if (stop_of(a, g))
        return "stop_sequence";
    if (g->finish == MN_FINISH_LENGTH)
        return is_full ? "model_context_window_exceeded" : "max_tokens";
    return g->n_calls && !g->stop_string ? "tool_use" : "end_turn";
}

static void put_reason(const answer *a, const generation *g, mn_text *out) {
    const mn_str *stop = stop_of(a, g);
    mn_text_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", messages_reason_of(a, g));
    if (stop)
        mn_text_json(out, *stop);
    else
        mn_text_puts(out, "null");
}

/* Tokens from the cache are none of input_tokens. */
static void messages_put_usage(const generation *g, mn_text *out) {
    const uint32_t n_cached = g->n_cached < g->n_prompt ? g->n_cached : g->n_prompt;
    mn_text_printf(out,
                   "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
                   "\"cache_read_input_tokens\":%u,\"output_tokens\":%u}",
                   g->n_prompt - n_cached, n_cached, g->n_ids - g->n_prompt);
}

static void messages_put_head(const answer *a, mn_text *out) {
    mn_text_printf(out,
                   "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
    json_stringz(out, a->ask.model ? a->ask.model : a->m->name);
    mn_text_puts(out, ",\"content\":[");
}

static void messages_begin(answer *a, mn_text *out) {
    mn_text_puts(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    messages_put_head(a, out);
    mn_text_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    messages_put_usage(&a->g[0], out);
    mn_text_puts(out, "}}\n\n");
    mn_text_puts(out, a->form->dialect->ping);
}

static void messages_end(answer *a, generation *g, mn_text *out) {
    close_block(a, g, out);
    mn_text_puts(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    put_reason(a, g, out);
    mn_text_puts(out, "},");
    messages_put_usage(g, out);
    mn_text_puts(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void messages_whole(answer *a, generation *g, mn_text *out) {
    close_block(a, g, &g->content);
    messages_put_head(a, out);
    mn_text_add(out, &g->content);
    mn_text_puts(out, "],");
    put_reason(a, g, out);
    mn_text_puts(out, ",");
    messages_put_usage(g, out);
    mn_text_puts(out, "}\n");
}

const dialect dialect_messages = {
    .paths = {"/v1/messages"},
    .id_header = "request-id",
    .stream_type = "text/event-stream",
    .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .request = messages_request,
    .refused = messages_refused,
    .begin = messages_begin,
    .end = messages_end,
    .whole = messages_whole,
    .error = messages_error,
    .stream_error = messages_stream_error,
};

/* ---- the routes ------------------------------------------------------------------------------ */

static const answer_form messages_form = {
    .id_prefix = "msg_",
    .object = "message",
    .chunk_object = "message",
    .read = dialect_read,
    .text = messages_text,
    .dialect = &dialect_messages,
};

void route_messages(serve *s, http_request *r) {
    answer_serve(s, r, &messages_form);
}

static int messages_count_tokens(reading *x) {
    uint32_t n = 0;
    if (!dialect_count(x->m, &dialect_messages, x->body, &n, &x->e))
        return 0;
    mn_text_printf(reading_out(x), "{\"input_tokens\":%u}\n", n);
    return 1;
}

void route_count_tokens(serve *s, http_request *r) {
    reading_serve(s, r, messages_count_tokens);
}
