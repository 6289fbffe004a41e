/* dialect_responses.c -- answers and streams of OpenAI Responses. An answer is a list of items:
 * reasoning, a message, calls. In a stream one item is open at a time; its text is gathered, since
 * the events that end it and the response that ends the stream have it whole. Requests are in
 * dialect_responses_request.c, the routes in responses_routes.c. */
#include "serve/dialect_responses.h"
#include "serve/responses_store.h"
#include <stdlib.h>
#include <string.h>

static responses_state *state_of(const answer *a) {
    return a->own;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void responses_error(const http_request *r, const json_error *e, mn_text *out) {
    serve_put_error(r, serve_error_type(e->status), e->param[0] ? e->param : NULL, e->code,
                    e->message, out);
}

/* OpenAI's code of an error in a stream; clients try again later with the first one. */
static const char *stream_code(unsigned status) {
    return status == 503 ? "server_is_overloaded" : "server_error";
}

/* The event has the error twice: as event, and as the object that clients raise. */
static void responses_stream_error(const http_request *r, const json_error *e, mn_text *out) {
    const char *code = stream_code(e->status);
    mn_text_printf(out,
                   "event: error\ndata: {\"type\":\"error\",\"sequence_number\":%llu,\"error\":"
                   "{\"code\":\"%s\",\"type\":\"server_error\",\"param\":null,\"message\":",
                   (unsigned long long)r->n_events, code);
    json_stringz(out, e->message);
    mn_text_printf(out, "},\"code\":\"%s\",\"param\":null,\"message\":", code);
    json_stringz(out, e->message);
    mn_text_puts(out, "}\n\n");
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The part of the answer's id that no other answer has. */
static const char *unique_of(const answer *a) {
    return a->id + strlen(a->form->id_prefix);
}

/* The ids of items and calls come from the answer's: they are the same in all events. */
static void put_item_id(const answer *a, const generation *g, mn_text *out) {
    const char *prefix = "msg";
    if (g->open == MN_EVENT_THINKING)
        prefix = "rs";
    else if (g->open == MN_EVENT_CALL)
        prefix = "fc";
    mn_text_printf(out, "\"%s_%s_%u\"", prefix, unique_of(a), g->n_blocks - 1);
}

/* 9 letters and digits, which suit all templates. */
static void responses_put_call_id(const answer *a, const generation *g, mn_text *out) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t bits = mn_fnv_word(mn_fnv_z(MN_FNV_BASIS, unique_of(a)), g->n_blocks);
    char id[10] = {0};
    for (size_t i = 0; i < 9; i++) {
        id[i] = letters[bits % 62];
        bits /= 62;
    }
    mn_text_printf(out, "\"" RESPONSES_CALL_PREFIX "%s\"", id);
}

/* The part of the open item that has its text. whole: with the text, and the logprobs of its
 * tokens. */
static void put_part(const answer *a, const generation *g, int whole, mn_text *out) {
    const int thinks = g->open == MN_EVENT_THINKING;
    mn_text_printf(out, "{\"type\":\"%s\",\"text\":\"", thinks ? "reasoning_text" : "output_text");
    if (whole)
        mn_text_add(out, &state_of(a)->text);
    mn_text_puts(out, "\"");
    if (!thinks) {
        mn_text_puts(out, ",\"annotations\":[],\"logprobs\":[");
        if (whole)
            mn_text_add(out, &g->logprobs);
        mn_text_puts(out, "]");
    }
    mn_text_puts(out, "}");
}

/* The open item. status NULL: it has just begun, and has no text yet. */
static void put_item(const answer *a, const generation *g, const char *status, mn_text *out) {
    const responses_state *s = state_of(a);
    mn_text_puts(out, "{\"id\":");
    put_item_id(a, g, out);
    if (g->open == MN_EVENT_CALL) {
        mn_text_puts(out, ",\"type\":\"function_call\",\"call_id\":");
        responses_put_call_id(a, g, out);
        mn_text_puts(out, ",\"name\":");
        mn_text_add(out, &s->name);
        mn_text_puts(out, ",\"arguments\":\"");
        if (status)
            mn_text_add(out, &s->text);
        mn_text_puts(out, "\"");
    } else {
        mn_text_puts(out, g->open == MN_EVENT_THINKING
                              ? ",\"type\":\"reasoning\",\"summary\":[],\"content\":["
                              : ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (status)
            put_part(a, g, 1, out);
        mn_text_puts(out, "]");
    }
    mn_text_printf(out, ",\"status\":\"%s\"}", status ? status : "in_progress");
}

/* ---- events ---------------------------------------------------------------------------------- */

/* An event of the response up to its own members; a brace is open. */
static void begin_event(const answer *a, const char *name, mn_text *out) {
    mn_text_printf(out,
                   "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%llu",
                   name, name, (unsigned long long)a->http->n_events++);
}

static void end_event(mn_text *out) {
    mn_text_puts(out, "}\n\n");
}

/* An event with the open item. */
static void put_item_event(const answer *a, const generation *g, const char *name,
                           const char *status, mn_text *out) {
    begin_event(a, name, out);
    mn_text_printf(out, ",\"output_index\":%u,\"item\":", g->n_blocks - 1);
    put_item(a, g, status, out);
    end_event(out);
}

/* An event about the text of the open item, up to that text. */
static void begin_text_event(const answer *a, const generation *g, const char *name, mn_text *out) {
    begin_event(a, name, out);
    mn_text_puts(out, ",\"item_id\":");
    put_item_id(a, g, out);
    mn_text_printf(out, ",\"output_index\":%u", g->n_blocks - 1);
    if (g->open != MN_EVENT_CALL)
        mn_text_puts(out, ",\"content_index\":0");
}

/* Events by the kind of the open item: of a piece of text, of its end; and how the latter names the
 * text. */
static const struct {
    const char *delta, *done, *member;
} responses_names[] = {
    [MN_EVENT_TEXT] = {"output_text.delta", "output_text.done", "text"},
    [MN_EVENT_THINKING] = {"reasoning_text.delta", "reasoning_text.done", "text"},
    [MN_EVENT_CALL] = {"function_call_arguments.delta", "function_call_arguments.done",
                       "arguments"}};

static void put_part_event(const answer *a, const generation *g, const char *name, int whole,
                           mn_text *out) {
    if (g->open != MN_EVENT_TEXT)
        return;
    begin_text_event(a, g, name, out);
    mn_text_puts(out, ",\"part\":");
    put_part(a, g, whole, out);
    end_event(out);
}

static void put_text_done(const answer *a, const generation *g, mn_text *out) {
    const responses_state *s = state_of(a);
    begin_text_event(a, g, responses_names[g->open].done, out);
    if (g->open == MN_EVENT_CALL) {
        mn_text_puts(out, ",\"name\":");
        mn_text_add(out, &s->name);
    }
    mn_text_printf(out, ",\"%s\":\"", responses_names[g->open].member);
    mn_text_add(out, &s->text);
    mn_text_puts(out, "\"");
    if (g->open == MN_EVENT_TEXT) {
        mn_text_puts(out, ",\"logprobs\":[");
        mn_text_add(out, &g->logprobs);
        mn_text_puts(out, "]");
    }
    end_event(out);
}

/* Ends the open item, which becomes one of the output. */
static void close_item(const answer *a, generation *g, const char *status, mn_text *out) {
    responses_state *s = state_of(a);
    if (!g->open)
        return;
    if (a->ask.stream) {
        put_text_done(a, g, out);
        put_part_event(a, g, "content_part.done", 1, out);
        put_item_event(a, g, "output_item.done", status, out);
    }
    mn_text_puts(&s->output, s->output.len ? "," : "");
    put_item(a, g, status, &s->output);
    mn_text_clear(&s->text);
    mn_text_clear(&s->name);
    mn_text_clear(&g->logprobs);
    g->open = 0;
}

static void open_item(const answer *a, generation *g, const mn_stream_event *e, mn_text *out) {
    close_item(a, g, "completed", out);
    g->n_blocks++;
    g->open = e->kind;
    if (e->kind == MN_EVENT_CALL)
        mn_text_json(&state_of(a)->name, e->text);
    if (!a->ask.stream)
        return;
    put_item_event(a, g, "output_item.added", NULL, out);
    put_part_event(a, g, "content_part.added", 0, out);
}

/* A piece of the open item. */
static void responses_put_piece(const answer *a, const generation *g, const mn_stream_event *e,
                                mn_text *out) {
    mn_text_json_inner(&state_of(a)->text, e->text.ptr, e->text.len);
    if (!a->ask.stream)
        return;
    begin_text_event(a, g, responses_names[g->open].delta, out);
    mn_text_puts(out, ",\"delta\":\"");
    mn_text_json_inner(out, e->text.ptr, e->text.len);
    mn_text_puts(out, g->open == MN_EVENT_TEXT ? "\",\"logprobs\":[]" : "\"");
    end_event(out);
}

static void responses_text(answer *a, generation *g, const mn_stream_event *e) {
    mn_text *out = &g->content;
    if (e->kind == MN_EVENT_CALL) {
        open_item(a, g, e, out);
        g->n_calls = e->call + 1;
        return;
    }
    const int is_lost = e->kind == MN_EVENT_ARGUMENTS && g->open != MN_EVENT_CALL;
    if (!e->text.len || is_lost)
        return;
    if (e->kind != MN_EVENT_ARGUMENTS && g->open != e->kind)
        open_item(a, g, e, out);
    responses_put_piece(a, g, e, out);
}

/* ---- the response ---------------------------------------------------------------------------- */

/* The last member, so that no text of the request is taken for it (relay.c). */
static void responses_put_usage(const generation *g, mn_text *out) {
    const uint32_t n_cached = g->n_cached < g->n_prompt ? g->n_cached : g->n_prompt;
    const uint32_t n_new = g->n_ids - g->n_prompt;
    mn_text_printf(out,
                   "\"usage\":{\"input_tokens\":%u,\"output_tokens\":%u,\"total_tokens\":%u,"
                   "\"input_tokens_details\":{\"cached_tokens\":%u,\"cache_write_tokens\":0},"
                   "\"output_tokens_details\":{\"reasoning_tokens\":%u}}",
                   g->n_prompt, n_new, g->n_ids, n_cached, g->n_thinking);
}

/* The response with the items that are whole. g NULL: it has just begun. */
static void put_response(const answer *a, const generation *g, mn_text *out) {
    const responses_state *s = state_of(a);
    const int is_cut = g && g->finish == MN_FINISH_LENGTH;
    const char *status = is_cut ? "incomplete" : "completed";
    mn_text_printf(out,
                   "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
                   "\"error\":null,\"incomplete_details\":%s,\"model\":",
                   a->id, (long long)a->created, g ? status : "in_progress",
                   is_cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_stringz(out, a->ask.model ? a->ask.model : a->m->name);
    mn_text_add(out, &s->asked);
    mn_text_puts(out, ",\"output\":[");
    mn_text_add(out, &s->output);
    mn_text_puts(out, "],");
    if (g)
        responses_put_usage(g, out);
    else
        mn_text_puts(out, "\"usage\":null");
    mn_text_puts(out, "}");
}

static void put_response_event(const answer *a, const generation *g, const char *name,
                               mn_text *out) {
    begin_event(a, name, out);
    mn_text_puts(out, ",\"response\":");
    put_response(a, g, out);
    end_event(out);
}

static void responses_begin(answer *a, mn_text *out) {
    put_response_event(a, NULL, "created", out);
    put_response_event(a, NULL, "in_progress", out);
}

/* The last item; an answer without any has an empty message, for clients that want one. */
static void end_items(const answer *a, generation *g, mn_text *out) {
    const mn_stream_event none = {.kind = MN_EVENT_TEXT};
    if (!g->n_blocks)
        open_item(a, g, &none, out);
    close_item(a, g, g->finish == MN_FINISH_LENGTH ? "incomplete" : "completed", out);
}

static void keep_response(const answer *a, const generation *g) {
    const responses_state *s = state_of(a);
    mn_text text = {0};
    mn_text output = {0};
    if (!s->is_kept || !a->s->responses)
        return;
    put_response(a, g, &text);
    mn_text_puts(&output, "[");
    mn_text_add(&output, &s->output);
    mn_text_puts(&output, "]");
    responses_store_put(a->s->responses, a->id, a->in.key, &text, &s->input, &output);
    mn_text_free(&text);
    mn_text_free(&output);
}

static void responses_end(answer *a, generation *g, mn_text *out) {
    end_items(a, g, out);
    keep_response(a, g);
    put_response_event(a, g, g->finish == MN_FINISH_LENGTH ? "incomplete" : "completed", out);
}

static void responses_whole(answer *a, generation *g, mn_text *out) {
    end_items(a, g, &g->content);
    keep_response(a, g);
    put_response(a, g, out);
    mn_text_puts(out, "\n");
}

static void responses_free(void *own) {
    responses_state *s = own;
    if (!s)
        return;
    mn_text_free(&s->asked);
    mn_text_free(&s->input);
    mn_text_free(&s->output);
    mn_text_free(&s->text);
    mn_text_free(&s->name);
    free(s);
}

const answer_form responses_form = {
    .id_prefix = "resp_",
    .object = "response",
    .chunk_object = "response",
    .read = responses_read,
    .text = responses_text,
    .logprob = chat_logprob,
    .dialect = &dialect_responses,
};

const dialect dialect_responses = {
    .paths = {"/v1/responses"},
    .stream_type = "text/event-stream",
    .ping = ": keep-alive\n\n",
    .request = responses_request,
    .refused = responses_refused,
    .begin = responses_begin,
    .end = responses_end,
    .whole = responses_whole,
    .error = responses_error,
    .stream_error = responses_stream_error,
    .free = responses_free,
};
