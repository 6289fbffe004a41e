/* chat.c -- /v1/chat/completions: messages become the ids of a prompt by the model's chat template,
 * and the pieces of the output become content, reasoning_content and tool calls.
 *
 * Messages are checked here and passed on as they are: the library brings them into the form that
 * the template renders, for this server and for minerva run --history alike. */
#include "serve/answer.h"
#include "serve/chat_fields.h"
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------- */

/* This server reads text only. 0: the error is set. */
static int chat_answer_check_parts(const cJSON *parts, json_error *e) {
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, parts) {
        const char *type = "";
        const char *piece = NULL;
        if (!cJSON_IsObject(part) || !json_read_string(part, "type", &type, e) ||
            !json_read_string(part, "text", &piece, e) || strcmp(type, "text") != 0 || !piece)
            return json_fail(e, "messages",
                             "messages: found a part of type \"%.40s\", expected \"text\": this "
                             "server reads text only",
                             type);
    }
    return 1;
}

static int check_calls(const cJSON *message, json_error *e) {
    const cJSON *calls = json_field(message, "tool_calls");
    const cJSON *call = NULL;
    if (calls && !cJSON_IsArray(calls))
        return json_fail(e, "messages", "messages: tool_calls: expected a list");
    cJSON_ArrayForEach(call, calls) {
        if (!cJSON_IsObject(json_field(call, "function")))
            return json_fail(e, "messages", "messages: tool_calls: expected a function");
    }
    return 1;
}

/* What the library would accept and this interface does not. 0: the error is set. */
static int check_message(const cJSON *m, size_t i, json_error *e) {
    const char *role = NULL;
    if (!cJSON_IsObject(m))
        return json_fail(e, "messages", "messages[%zu]: expected an object", i);
    if (!json_read_string(m, "role", &role, e) || !role)
        return json_fail(e, "messages", "messages[%zu]: found no role", i);
    const cJSON *content = json_field(m, "content");
    if (cJSON_IsArray(content))
        return chat_answer_check_parts(content, e) && check_calls(m, e);
    if (content && !cJSON_IsString(content))
        return json_fail(e, "messages",
                         "messages[%zu]: content: expected a string or a list of parts", i);
    return check_calls(m, e);
}

/* Bytes of a content, or of its parts. */
static size_t content_bytes(const cJSON *content) {
    size_t n = cJSON_IsString(content) ? strlen(content->valuestring) : 0;
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, content) {
        const char *text = cJSON_GetStringValue(json_field(part, "text"));
        n += text ? strlen(text) : 0;
    }
    return n;
}

/* The messages as JSON for the template, freed by cJSON_free; NULL: the error is set. */
static char *messages_json(const served *m, const cJSON *body, json_error *e) {
    const cJSON *list = json_field(body, "messages");
    const cJSON *item = NULL;
    size_t i = 0;
    size_t n_bytes = 0;
    if (!cJSON_IsArray(list) || !list->child) {
        json_fail(e, "messages", "messages: expected a list of at least one message");
        return NULL;
    }
    cJSON_ArrayForEach(item, list) {
        if (!check_message(item, i, e))
            return NULL;
        n_bytes += content_bytes(json_field(item, "content"));
        i++;
    }
    serve_may_fit(m, n_bytes, "messages", e);
    char *text = e->failed ? NULL : cJSON_PrintUnformatted(list);
    if (!text)
        json_no_memory(e);
    return text;
}

static mn_str chat_answer_str_of(const char *z) {
    return (mn_str){z ? z : "", z ? strlen(z) : 0};
}

/* The name of the field that an error of the library is about. */
static const char *param_of(const mn_error *err) {
    if (err->part == MN_CHAT_PART_TOOLS)
        return "tools";
    return err->part == MN_CHAT_PART_VARS ? "chat_template_kwargs" : "messages";
}

int chat_ids(served *m, const cJSON *body, int has_tools, int32_t **ids, uint32_t *n,
             json_error *e) {
    mn_error err = MN_ERROR;
    if (!m->a.info.has_chat_template)
        return json_fail(e, "messages",
                         "the model has no chat template: use /v1/completions, or start the "
                         "server with --chat-template");
    uint32_t flags = 0;
    if (!chat_read_end(body, &flags, e))
        return 0;
    char *messages = messages_json(m, body, e);
    char *vars = messages ? chat_variables(body, e) : NULL;
    char *tools = has_tools && vars ? cJSON_PrintUnformatted(json_field(body, "tools")) : NULL;
    const mn_chat_params params = {.size = sizeof params,
                                   .flags = flags,
                                   .history = chat_answer_str_of(messages),
                                   .tools = chat_answer_str_of(tools),
                                   .vars = chat_answer_str_of(vars)};
    int ok = messages && vars && (tools || !has_tools || json_no_memory(e));
    if (ok) {
        const mn_status st = mn_model_chat_with(m->a.model, &params, ids, n, &err);
        const char *param = (flags & MN_CHAT_CONTINUE) && st == MN_UNSUPPORTED
                                ? "continue_final_message"
                                : param_of(&err);
        ok = !st || serve_library_error(&err, st, param, e);
    }
    cJSON_free(messages);
    cJSON_free(vars);
    cJSON_free(tools);
    return ok;
}

/* ---- the form of answers --------------------------------------------------------------------- */

void chat_put_call_id(mn_text *out) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    char id[10];
    uint64_t bits = sampling_seed() << 32 | sampling_seed();
    for (size_t i = 0; i < 9; i++) {
        id[i] = letters[bits % 62];
        bits /= 62;
    }
    id[9] = 0;
    mn_text_puts(out, id);
}

/* Ends the object of the last call, so that what is in g->calls is whole. */
static void close_call(generation *g) {
    if (g->call_open)
        mn_text_puts(&g->calls, "\"}}");
    g->call_open = 0;
}

/* A call begins: an object that holds the name; its arguments follow. */
static void chat_answer_begin_call(answer *a, generation *g, const mn_stream_event *e) {
    mn_text *b = &g->calls;
    close_call(g);
    mn_text_puts(b, b->len ? "," : "");
    if (a->ask.stream)
        mn_text_printf(b, "{\"index\":%u,", e->call);
    mn_text_puts(b, a->ask.stream ? "\"id\":\"" : "{\"id\":\"");
    chat_put_call_id(b);
    mn_text_puts(b, "\",\"type\":\"function\",\"function\":{\"name\":");
    mn_text_json(b, e->text);
    mn_text_puts(b, ",\"arguments\":\"");
    g->n_calls = e->call + 1;
    g->call_open = 1;
}

/* A piece of arguments: in a stream an object of its own, unless its call has just begun. */
static void chat_answer_add_arguments(answer *a, generation *g, const mn_stream_event *e) {
    mn_text *b = &g->calls;
    if (!g->call_open && a->ask.stream) {
        mn_text_puts(b, b->len ? "," : "");
        mn_text_printf(b, "{\"index\":%u,\"function\":{\"arguments\":\"", e->call);
        g->call_open = 1;
    }
    mn_text_json_inner(b, e->text.ptr, e->text.len);
}

/* Each kind of text has its buffer, and its member of the delta or message. */
static void chat_text(answer *a, generation *g, const mn_stream_event *e) {
    switch (e->kind) {
    case MN_EVENT_THINKING:
        if (a->ask.with_thinking)
            mn_text_json_inner(&g->thinking, e->text.ptr, e->text.len);
        break;
    case MN_EVENT_CALL:
        chat_answer_begin_call(a, g, e);
        break;
    case MN_EVENT_ARGUMENTS:
        chat_answer_add_arguments(a, g, e);
        break;
    default:
        mn_text_json_inner(&g->content, e->text.ptr, e->text.len);
    }
}

/* One member of an object. */
static void member(mn_text *out, int *n, const char *name, const char *quote,
                   const mn_text *value) {
    mn_text_printf(out, "%s\"%s\":%s", (*n)++ ? "," : "", name, quote);
    mn_text_put(out, value->ptr ? value->ptr : "", value->len);
    mn_text_puts(out, *quote == '[' ? "]" : quote);
}

/* The delta of a stream; the first of a choice has the role, the last one the reason. */
static void chat_chunk(answer *a, generation *g, const char *finish, mn_text *out) {
    int n = 0;
    const int first = g->n_ids == g->n_prompt && !finish;
    (void)a;
    close_call(g);
    mn_text_puts(out, "\"delta\":{");
    if (first) {
        mn_text_puts(out, "\"role\":\"assistant\",\"content\":null");
        n = 1;
    }
    if (g->thinking.len)
        member(out, &n, "reasoning_content", "\"", &g->thinking);
    if (g->content.len)
        member(out, &n, "content", "\"", &g->content);
    if (g->calls.len)
        member(out, &n, "tool_calls", "[", &g->calls);
    mn_text_puts(out, "},\"logprobs\":");
    if (g->logprobs.len) {
        mn_text_puts(out, "{\"content\":[");
        mn_text_put(out, g->logprobs.ptr, g->logprobs.len);
        mn_text_puts(out, "]}");
    } else {
        mn_text_puts(out, "null");
    }
    mn_text_printf(out, finish ? ",\"finish_reason\":\"%s\"" : ",\"finish_reason\":null", finish);
    mn_text_clear(&g->thinking);
    mn_text_clear(&g->content);
    mn_text_clear(&g->calls);
    mn_text_clear(&g->logprobs);
}

/* The message: content is null beside calls without text, as clients expect. */
static void chat_whole(answer *a, generation *g, const char *finish, mn_text *out) {
    int n = 1;
    close_call(g);
    mn_text_puts(out, "\"message\":{\"role\":\"assistant\"");
    if (g->content.len || !g->calls.len)
        member(out, &n, "content", "\"", &g->content);
    else
        mn_text_puts(out, ",\"content\":null");
    if (g->thinking.len)
        member(out, &n, "reasoning_content", "\"", &g->thinking);
    if (g->calls.len)
        member(out, &n, "tool_calls", "[", &g->calls);
    mn_text_puts(out, "},\"logprobs\":");
    if (a->ask.logprobs) {
        mn_text_puts(out, "{\"content\":[");
        mn_text_put(out, g->logprobs.ptr ? g->logprobs.ptr : "", g->logprobs.len);
        mn_text_puts(out, "]}");
    } else {
        mn_text_puts(out, "null");
    }
    mn_text_printf(out, ",\"finish_reason\":\"%s\"", finish);
}

void chat_logprob(answer *a, generation *g, const wire_event *e) {
    mn_text *b = &g->logprobs;
    mn_text_puts(b, b->len ? "," : "");
    logprob_entry(a, b, e->token, e->logprob);
    mn_text_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < e->n_top; i++) {
        mn_text_puts(b, i ? "," : "");
        logprob_entry(a, b, e->top_ids[i], e->top_logprobs[i]);
        mn_text_puts(b, "}");
    }
    mn_text_puts(b, "]}");
}

/* ---- the route ------------------------------------------------------------------------------- */

/* The tools tell the streams which types arguments have. 0: the error is set. */
static int give_tools(answer *a, json_error *e) {
    mn_error err = MN_ERROR;
    char *tools = cJSON_PrintUnformatted(json_field(a->body, "tools"));
    mn_status st = tools ? MN_OK : MN_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < a->n && st == MN_OK; i++)
        st = mn_stream_tools(a->g[i].stream, chat_answer_str_of(tools), &err);
    cJSON_free(tools);
    return !st || serve_library_error(&err, st, "tools", e);
}

/* Of a stream whose request has tools. */
static uint32_t stream_flags(const ask_form *f) {
    const int forced = f->kind == MN_CONSTRAINT_CALLS && f->flags & MN_CONSTRAINT_CALLS_ONLY;
    return MN_STREAM_TOOLS | (f->one_call ? MN_STREAM_ONE_CALL : 0) |
           (forced ? MN_STREAM_CALLS_ONLY : 0);
}

int chat_read(answer *a, json_error *e) {
    served *m = a->m;
    int32_t *ids = NULL;
    uint32_t n = 0;
    int has_tools = 0;
    if (!ask_read(a->body, 1, m->a.info.n_vocab, &a->ask, e) ||
        !form_calls(a->body, &a->ask.form, &has_tools, e))
        return 0;
    answer_defaults(a);
    if (!chat_ids(m, a->body, has_tools, &ids, &n, e))
        return 0;
    const uint32_t flags = MN_STREAM_CONTINUE | (has_tools ? stream_flags(&a->ask.form) : 0);
    const int ok = answer_reserve(a, 1, e) && answer_prompt(a, 0, ids, n, flags, 0, "messages", e);
    mn_ids_free(ids);
    return ok && (!has_tools || give_tools(a, e));
}

static const answer_form chat_form = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .read = chat_read,
    .text = chat_text,
    .logprob = chat_logprob,
    .chunk = chat_chunk,
    .whole = chat_whole,
    .begins = 1,
};

void route_chat(serve *s, http_request *r) {
    answer_serve(s, r, &chat_form);
}
