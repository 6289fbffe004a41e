/* dialect_responses_request.c -- a request of OpenAI Responses as one of the chat.
 *
 * Fields with one meaning are copied under the chat's name, and the chat checks them. Items go by a
 * table: reasoning, messages and calls of the assistant that are neighbours become one message for
 * the template; each output of a call becomes a message of its own. Tools that OpenAI's own servers
 * run are left out with a line in the log, for agents send them along. */
#include "out.h"
#include "serve/dialect_responses.h"
#include <string.h>

/* ---- fields ---------------------------------------------------------------------------------- */

/* Behind "seed" they are the chat's own, which OpenAI does not have here. */
static const struct {
    const char *name, *chat;
} responses_copied[] = {
    {"model", "model"},
    {"stream", "stream"},
    {"max_output_tokens", "max_completion_tokens"},
    {"temperature", "temperature"},
    {"top_p", "top_p"},
    {"parallel_tool_calls", "parallel_tool_calls"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"top_k", "top_k"},
    {"min_p", "min_p"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"repetition_penalty", "repetition_penalty"},
    {"logit_bias", "logit_bias"},
    {"priority", "priority"},
    {"cache_salt", "cache_salt"},
    {"chat_template_kwargs", "chat_template_kwargs"},
};

/* Fields that would change the answer: found with a value, they are an error. */
static const struct {
    const char *name, *why;
} responses_refused_fields[] = {
    {"background", "send \"stream\": true, or wait for the answer"},
    {"conversation", "use previous_response_id, or send the items"},
    {"prompt", "this server keeps no prompts: send instructions and input"},
    {"context_management", "no prompt is ever shortened"},
    {"moderation", "there is no second model that judges"},
    {"image", "answers are text"},
};

static int responses_check_fields(const cJSON *body, json_error *e) {
    for (size_t i = 0; i < MN_COUNT(responses_refused_fields); i++) {
        const char *name = responses_refused_fields[i].name;
        const cJSON *v = json_field(body, name);
        const int is_empty = !v || cJSON_IsFalse(v) || (cJSON_IsArray(v) && !v->child);
        if (!is_empty)
            return json_fail(e, name, "%s: not supported: %s", name,
                             responses_refused_fields[i].why);
    }
    return 1;
}

/* include: logprobs are in the answer; what else OpenAI can include, no answer here has. */
static int responses_add_logprobs(cJSON *chat, const cJSON *body, json_error *e) {
    static const char *const absent[] = {"file_search_call.results",
                                         "web_search_call.results",
                                         "web_search_call.action.sources",
                                         "message.input_image.image_url",
                                         "computer_call_output.output.image_url",
                                         "code_interpreter_call.outputs",
                                         "reasoning.encrypted_content"};
    const cJSON *include = json_field(body, "include");
    const cJSON *top = json_field(body, "top_logprobs");
    const cJSON *item = NULL;
    int wants = top != NULL;
    if (include && !cJSON_IsArray(include))
        return json_fail(e, "include", "include: expected a list of strings");
    cJSON_ArrayForEach(item, include) {
        const char *word = cJSON_GetStringValue(item);
        size_t i = 0;
        if (word && !strcmp(word, "message.output_text.logprobs")) {
            wants = 1;
            continue;
        }
        while (word && i < MN_COUNT(absent) && strcmp(word, absent[i]) != 0)
            i++;
        if (!word || i == MN_COUNT(absent))
            return json_fail(e, "include",
                             "include: found \"%.60s\", expected message.output_text.logprobs",
                             word ? word : "");
    }
    return !wants || (dialect_add(chat, "logprobs", cJSON_CreateBool(1)) &&
                      dialect_copy(chat, "top_logprobs", top));
}

static int responses_add_fields(cJSON *chat, const cJSON *body, json_error *e) {
    if (!responses_check_fields(body, e))
        return 0;
    for (size_t i = 0; i < MN_COUNT(responses_copied); i++)
        if (!dialect_copy(chat, responses_copied[i].chat,
                          json_field(body, responses_copied[i].name)))
            return 0;
    return responses_add_logprobs(chat, body, e);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The items while they are read; of the assistant's message what was read of it. */
typedef struct {
    cJSON *list; /* of the chat's messages */
    int i;       /* of the item */
    cJSON *parts, *calls;
    mn_text thinking;
    int is_open; /* the assistant's message has something */
} turns;

/* A message with a role and a content, which it takes over; NULL: out of memory. */
static cJSON *responses_message(const char *role, cJSON *content) {
    cJSON *out = cJSON_CreateObject();
    const int ok = out && content && dialect_add(out, "role", cJSON_CreateString(role));
    if (ok && dialect_add(out, "content", content))
        return out;
    if (!ok)
        cJSON_Delete(content);
    cJSON_Delete(out);
    return NULL;
}

/* Ends the assistant's message, if one is open. 0: out of memory. */
static int turns_close(turns *t) {
    if (!t->is_open)
        return 1;
    const int has_calls = t->calls->child != NULL;
    cJSON *content = t->parts;
    if (!t->parts->child) {
        cJSON_Delete(t->parts);
        content = has_calls ? cJSON_CreateNull() : cJSON_CreateString("");
    }
    t->parts = cJSON_CreateArray();
    t->is_open = 0;
    cJSON *out = responses_message("assistant", content);
    int ok = out && t->parts && (!has_calls || dialect_copy(out, "tool_calls", t->calls));
    if (ok && t->thinking.len)
        ok = dialect_add(out, "reasoning_content", cJSON_CreateString(t->thinking.ptr));
    cJSON_Delete(t->calls);
    t->calls = cJSON_CreateArray();
    mn_text_clear(&t->thinking);
    if (ok && t->calls)
        return dialect_push(t->list, out);
    cJSON_Delete(out);
    return 0;
}

/* {"type": "text", "text": ...} */
static int responses_push_text(cJSON *parts, const char *text) {
    cJSON *part = cJSON_CreateObject();
    if (part && dialect_add(part, "type", cJSON_CreateString("text")) &&
        dialect_add(part, "text", cJSON_CreateString(text)))
        return dialect_push(parts, part);
    cJSON_Delete(part);
    return 0;
}

/* Appends a content, a text or a list of parts with texts, to the chat's parts. */
static int responses_add_parts(const turns *t, const char *name, const cJSON *content, cJSON *parts,
                               json_error *e) {
    static const char *const types[][2] = {
        {"input_text", "text"}, {"output_text", "text"}, {"text", "text"}, {"refusal", "refusal"}};
    const cJSON *part = NULL;
    int k = 0;
    if (cJSON_IsString(content))
        return responses_push_text(parts, content->valuestring);
    if (!cJSON_IsArray(content))
        return json_fail(e, "input", "input[%d].%s: expected a string or a list of parts", t->i,
                         name);
    cJSON_ArrayForEach(part, content) {
        const char *type = cJSON_GetStringValue(json_field(part, "type"));
        size_t i = 0;
        while (type && i < MN_COUNT(types) && strcmp(type, types[i][0]) != 0)
            i++;
        const char *text = type && i < MN_COUNT(types)
                               ? cJSON_GetStringValue(json_field(part, types[i][1]))
                               : NULL;
        if (!text)
            return json_fail(e, "input",
                             "input[%d].%s[%d]: found a part of type \"%.40s\", expected "
                             "input_text or output_text with its text: this server reads text only",
                             t->i, name, k, type ? type : "");
        if (!responses_push_text(parts, text))
            return 0;
        k++;
    }
    return 1;
}

static int read_message_item(turns *t, const cJSON *item, json_error *e) {
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    const char *role = cJSON_GetStringValue(json_field(item, "role"));
    const cJSON *content = json_field(item, "content");
    size_t i = 0;
    while (role && i < MN_COUNT(roles) && strcmp(role, roles[i]) != 0)
        i++;
    if (!role || i == MN_COUNT(roles))
        return json_fail(e, "input",
                         "input[%d].role: found \"%.40s\", expected user, assistant, system or "
                         "developer",
                         t->i, role ? role : "");
    if (!strcmp(role, "assistant")) {
        t->is_open = 1;
        return responses_add_parts(t, "content", content, t->parts, e);
    }
    cJSON *parts = cJSON_CreateArray();
    if (!turns_close(t) || !parts || !responses_add_parts(t, "content", content, parts, e)) {
        cJSON_Delete(parts);
        return 0;
    }
    return dialect_push(t->list, responses_message(role, parts));
}

/* A text that an item must have. NULL: the error is set. */
static const char *responses_text_of(const turns *t, const cJSON *item, const char *name,
                                     json_error *e) {
    const char *text = cJSON_GetStringValue(json_field(item, name));
    if (!text)
        json_fail(e, "input", "input[%d].%s: expected a string", t->i, name);
    return text;
}

/* An id of a call without the prefix of answers: templates may want 9 letters and digits. */
static cJSON *responses_call_id(const char *id) {
    const size_t n = sizeof RESPONSES_CALL_PREFIX - 1;
    return cJSON_CreateString(strncmp(id, RESPONSES_CALL_PREFIX, n) ? id : id + n);
}

static int read_call_item(turns *t, const cJSON *item, json_error *e) {
    const char *id = responses_text_of(t, item, "call_id", e);
    const char *name = responses_text_of(t, item, "name", e);
    const char *arguments = responses_text_of(t, item, "arguments", e);
    if (!id || !name || !arguments)
        return 0;
    cJSON *call = cJSON_CreateObject();
    cJSON *function = cJSON_CreateObject();
    const int has_function = dialect_add(call, "function", function);
    t->is_open = 1;
    if (has_function && dialect_add(call, "id", responses_call_id(id)) &&
        dialect_add(call, "type", cJSON_CreateString("function")) &&
        dialect_add(function, "name", cJSON_CreateString(name)) &&
        dialect_add(function, "arguments", cJSON_CreateString(*arguments ? arguments : "{}")))
        return dialect_push(t->calls, call);
    cJSON_Delete(call);
    return 0;
}

static int read_output_item(turns *t, const cJSON *item, json_error *e) {
    const char *id = responses_text_of(t, item, "call_id", e);
    cJSON *parts = id ? cJSON_CreateArray() : NULL;
    if (!parts || !turns_close(t) ||
        !responses_add_parts(t, "output", json_field(item, "output"), parts, e)) {
        cJSON_Delete(parts);
        return 0;
    }
    cJSON *out = responses_message("tool", parts);
    if (out && dialect_add(out, "tool_call_id", responses_call_id(id)))
        return dialect_push(t->list, out);
    cJSON_Delete(out);
    return 0;
}

/* The texts of a list of an item of reasoning; 1: it has some. */
static int add_reasoning_texts(turns *t, const cJSON *list) {
    const size_t before = t->thinking.len;
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, list) {
        const char *text = cJSON_GetStringValue(json_field(part, "text"));
        if (text)
            mn_text_puts(&t->thinking, text);
    }
    return t->thinking.len > before;
}

/* What was thought; else its summary. encrypted_content is another provider's: no model here can
 * read it. */
static int read_reasoning_item(turns *t, const cJSON *item, json_error *e) {
    (void)e;
    if (add_reasoning_texts(t, json_field(item, "content")) ||
        add_reasoning_texts(t, json_field(item, "summary")))
        t->is_open = 1;
    return !t->thinking.failed;
}

static const struct {
    const char *type;
    int (*read)(turns *t, const cJSON *item, json_error *e);
} responses_item_types[] = {
    {"message", read_message_item},
    {"function_call", read_call_item},
    {"function_call_output", read_output_item},
    {"reasoning", read_reasoning_item},
};

static int turns_read_item(turns *t, const cJSON *item, json_error *e) {
    const cJSON *given = json_field(item, "type");
    const char *type = given ? cJSON_GetStringValue(given) : "message";
    for (size_t i = 0; type && i < MN_COUNT(responses_item_types); i++)
        if (!strcmp(type, responses_item_types[i].type))
            return responses_item_types[i].read(t, item, e);
    return json_fail(e, "input",
                     "input[%d]: found an item of type \"%.40s\", which is not supported: this "
                     "server reads message, function_call, function_call_output and reasoning",
                     t->i, type ? type : "");
}

/* The messages of the chat: instructions first. */
static int responses_add_messages(cJSON *chat, const cJSON *body, const cJSON *items,
                                  json_error *e) {
    const char *instructions = NULL;
    const cJSON *item = NULL;
    turns t = {.list = cJSON_CreateArray()};
    if (!dialect_add(chat, "messages", t.list) ||
        !json_read_string(body, "instructions", &instructions, e))
        return 0;
    int ok = !instructions || !*instructions ||
             dialect_push(t.list, responses_message("system", cJSON_CreateString(instructions)));
    t.parts = cJSON_CreateArray();
    t.calls = cJSON_CreateArray();
    ok = ok && t.parts && t.calls;
    cJSON_ArrayForEach(item, items) {
        ok = ok && turns_read_item(&t, item, e);
        t.i++;
    }
    ok = ok && turns_close(&t);
    cJSON_Delete(t.parts);
    cJSON_Delete(t.calls);
    mn_text_free(&t.thinking);
    return ok;
}

/* A text as the item that it stands for. NULL: out of memory. */
static cJSON *item_of_text(const char *text) {
    cJSON *item = cJSON_CreateObject();
    cJSON *parts = cJSON_CreateArray();
    cJSON *part = cJSON_CreateObject();
    const int has_part = dialect_push(parts, part);
    const int has_parts = dialect_add(item, "content", parts);
    if (item && has_part && has_parts &&
        dialect_add(part, "type", cJSON_CreateString("input_text")) &&
        dialect_add(part, "text", cJSON_CreateString(text)) &&
        dialect_add(item, "type", cJSON_CreateString("message")) &&
        dialect_add(item, "role", cJSON_CreateString("user")))
        return item;
    cJSON_Delete(item);
    return NULL;
}

/* Adds a member that is absent or null. */
static int add_absent(cJSON *item, const char *name, const char *value) {
    if (json_field(item, name))
        return 1;
    cJSON_DeleteItemFromObjectCaseSensitive(item, name);
    return dialect_add(item, name, cJSON_CreateString(value));
}

/* Adds an item to the list, which takes it over, with a type and an id. */
static int push_item(cJSON *list, cJSON *item, const char *name, int i) {
    char id[80];
    snprintf(id, sizeof id, "%s_%d", name, i);
    if (item && add_absent(item, "type", "message") && add_absent(item, "id", id))
        return dialect_push(list, item);
    cJSON_Delete(item);
    return 0;
}

cJSON *responses_items(const cJSON *body, const char *name, int first, json_error *e) {
    const cJSON *input = json_field(body, "input");
    const cJSON *item = NULL; /* of a text: none */
    int i = first;
    cJSON *list = cJSON_CreateArray();
    int ok = list != NULL;
    if (cJSON_IsString(input))
        ok = ok && push_item(list, item_of_text(input->valuestring), name, i);
    else if (input && !cJSON_IsArray(input))
        ok = json_fail(e, "input", "input: expected a string or a list of items");
    cJSON_ArrayForEach(item, input) {
        if (ok && !cJSON_IsObject(item))
            ok = json_fail(e, "input", "input[%d]: expected an object", i - first);
        ok = ok && push_item(list, cJSON_Duplicate(item, 1), name, i);
        i++;
    }
    if (ok)
        return list;
    cJSON_Delete(list);
    return NULL;
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* A tool that a provider's own servers run. The log names the type where it is a plain word. */
static void leave_tool_out(const char *type) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const int is_word = type && strlen(type) <= 60 && !type[strspn(type, word)];
    note("/v1/responses: a tool of type %s is no function and is left out",
         is_word ? type : "unknown");
}

/* 1 if the list of tool_choice's allowed_tools has the function; list NULL: all are allowed. */
static int is_allowed(const cJSON *list, const cJSON *name) {
    const cJSON *item = NULL;
    if (!list)
        return 1;
    cJSON_ArrayForEach(item, list) {
        const char *own = cJSON_GetStringValue(json_field(item, "name"));
        if (own && cJSON_IsString(name) && !strcmp(own, name->valuestring))
            return 1;
    }
    return 0;
}

static int responses_add_tool(cJSON *list, const cJSON *tool, int i, json_error *e) {
    const cJSON *parameters = json_field(tool, "parameters");
    const cJSON *name = json_field(tool, "name");
    if (!cJSON_IsString(name))
        return json_fail(e, "tools", "tools[%d].name: expected a string", i);
    if (parameters && !cJSON_IsObject(parameters))
        return json_fail(e, "tools", "tools[%d].parameters: expected a JSON schema as an object",
                         i);
    cJSON *out = cJSON_CreateObject();
    cJSON *function = cJSON_CreateObject();
    if (dialect_add(out, "function", function) &&
        dialect_add(out, "type", cJSON_CreateString("function")) &&
        dialect_copy(function, "name", name) &&
        dialect_copy(function, "description", json_field(tool, "description")) &&
        dialect_copy(function, "parameters", parameters) &&
        dialect_copy(function, "strict", json_field(tool, "strict")))
        return dialect_push(list, out);
    cJSON_Delete(out);
    return 0;
}

static int responses_add_tools(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *tools = json_field(body, "tools");
    const cJSON *allowed = json_field(json_field(body, "tool_choice"), "tools");
    const cJSON *tool = NULL;
    int i = 0;
    if (!tools)
        return 1;
    if (!cJSON_IsArray(tools))
        return json_fail(e, "tools", "tools: expected a list");
    cJSON *list = cJSON_CreateArray();
    if (!dialect_add(chat, "tools", list))
        return 0;
    cJSON_ArrayForEach(tool, tools) {
        const char *type = cJSON_GetStringValue(json_field(tool, "type"));
        const int is_function = type && !strcmp(type, "function");
        if (!is_function)
            leave_tool_out(type);
        else if (is_allowed(allowed, json_field(tool, "name")) &&
                 !responses_add_tool(list, tool, i, e))
            return 0;
        i++;
    }
    return 1;
}

/* {"type": "function", "function": {"name": ...}} */
static int add_named_choice(cJSON *chat, const cJSON *name) {
    cJSON *out = cJSON_CreateObject();
    cJSON *function = cJSON_CreateObject();
    const int has_function = dialect_add(out, "function", function);
    return dialect_add(chat, "tool_choice", out) && has_function &&
           dialect_add(out, "type", cJSON_CreateString("function")) &&
           dialect_copy(function, "name", name);
}

static int responses_add_choice(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *choice = json_field(body, "tool_choice");
    const char *type = cJSON_GetStringValue(json_field(choice, "type"));
    const cJSON *name = json_field(choice, "name");
    const cJSON *mode = json_field(choice, "mode");
    if (!choice || cJSON_IsString(choice))
        return dialect_copy(chat, "tool_choice", choice);
    if (type && !strcmp(type, "function") && cJSON_IsString(name))
        return add_named_choice(chat, name);
    if (type && !strcmp(type, "allowed_tools") && cJSON_IsArray(json_field(choice, "tools")))
        return dialect_copy(chat, "tool_choice", mode);
    return json_fail(e, "tool_choice",
                     "tool_choice: found type \"%.40s\", expected \"auto\", \"none\", "
                     "\"required\", a function with its name, or allowed_tools with tools",
                     type ? type : "");
}

/* ---- thinking and the form of the answer ----------------------------------------------------- */

static int responses_add_reasoning(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *reasoning = json_field(body, "reasoning");
    if (reasoning && !cJSON_IsObject(reasoning))
        return json_fail(e, "reasoning", "reasoning: expected an object");
    return dialect_copy(chat, "reasoning_effort", json_field(reasoning, "effort"));
}

/* {"name", "schema", "strict"} beside the type as the chat's object within. */
static int responses_add_schema(cJSON *out, const cJSON *format) {
    static const char *const names[] = {"name", "schema", "strict", "description"};
    cJSON *inner = cJSON_CreateObject();
    int ok = dialect_add(out, "json_schema", inner);
    for (size_t i = 0; i < MN_COUNT(names); i++)
        ok = ok && dialect_copy(inner, names[i], json_field(format, names[i]));
    return ok;
}

static int responses_add_text(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *text = json_field(body, "text");
    const cJSON *format = json_field(text, "format");
    const cJSON *type = json_field(format, "type");
    if (text && !cJSON_IsObject(text))
        return json_fail(e, "text", "text: expected an object");
    if (!dialect_copy(chat, "verbosity", json_field(text, "verbosity")))
        return 0;
    if (!format)
        return 1;
    if (!cJSON_IsString(type))
        return json_fail(e, "text.format",
                         "text.format: expected an object with the type text, json_object or "
                         "json_schema");
    cJSON *out = cJSON_CreateObject();
    return dialect_add(chat, "response_format", out) && dialect_copy(out, "type", type) &&
           (strcmp(type->valuestring, "json_schema") != 0 || responses_add_schema(out, format));
}

/* ---- all ------------------------------------------------------------------------------------- */

cJSON *responses_chat(const cJSON *body, const cJSON *items, json_error *e) {
    cJSON *chat = cJSON_CreateObject();
    if (chat && !items->child)
        json_fail(e, "input", "input: expected a string or a list of at least one item");
    else if (chat && responses_add_fields(chat, body, e) &&
             responses_add_messages(chat, body, items, e) && responses_add_tools(chat, body, e) &&
             responses_add_choice(chat, body, e) && responses_add_reasoning(chat, body, e) &&
             responses_add_text(chat, body, e))
        return chat;
    cJSON_Delete(chat);
    return NULL;
}

cJSON *responses_request(const cJSON *body, json_error *e) {
    cJSON *items = responses_items(body, "item", 0, e);
    cJSON *chat = items ? responses_chat(body, items, e) : NULL;
    cJSON_Delete(items);
    return chat;
}

/* The chat's names of fields in what it says about a request. */
void responses_refused(const served *m, json_error *e) {
    static const char *const names[][2] = {{"messages", "input"},
                                           {"max_completion_tokens", "max_output_tokens"},
                                           {"response_format", "text.format"},
                                           {"reasoning_effort", "reasoning.effort"},
                                           {"verbosity", "text.verbosity"}};
    char rest[sizeof e->message];
    if (e->n_tokens && e->code && !strcmp(e->code, "context_length_exceeded")) {
        snprintf(e->param, sizeof e->param, "input");
        snprintf(e->message, sizeof e->message,
                 "This model's maximum context length is %u tokens. However, your input resulted "
                 "in at least %llu tokens. Please reduce the length of the input.",
                 m->n_ctx, (unsigned long long)e->n_tokens);
    }
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const size_t n = strlen(names[i][0]);
        if (strcmp(e->param, names[i][0]) != 0)
            continue;
        snprintf(e->param, sizeof e->param, "%s", names[i][1]);
        if (strncmp(e->message, names[i][0], n) != 0)
            return;
        snprintf(rest, sizeof rest, "%s", e->message + n);
        snprintf(e->message, sizeof e->message, "%s%.400s", names[i][1], rest);
        return;
    }
}

/* ---- what answers repeat --------------------------------------------------------------------- */

/* A member with what the request has, else a default (JSON). */
static int put_asked_member(mn_text *out, const cJSON *body, const char *name,
                            const char *otherwise) {
    const cJSON *v = json_field(body, name);
    char *text = v ? cJSON_PrintUnformatted(v) : NULL;
    if (v && !text)
        return 0;
    mn_text_printf(out, ",\"%s\":", name);
    mn_text_puts(out, text ? text : otherwise);
    cJSON_free(text);
    return 1;
}

int responses_put_asked(const cJSON *body, const mn_sample_params *sample, mn_text *out) {
    static const char *const rows[][2] = {{"instructions", "null"},
                                          {"max_output_tokens", "null"},
                                          {"metadata", "{}"},
                                          {"parallel_tool_calls", "true"},
                                          {"previous_response_id", "null"},
                                          {"reasoning", "{\"effort\":null,\"summary\":null}"},
                                          {"store", "true"},
                                          {"text", "{\"format\":{\"type\":\"text\"}}"},
                                          {"tool_choice", "\"auto\""},
                                          {"tools", "[]"},
                                          {"top_logprobs", "0"},
                                          {"truncation", "\"disabled\""},
                                          {"user", "null"}};
    mn_text_puts(out, ",\"background\":false,\"temperature\":");
    json_float(out, sample->temp, "null");
    mn_text_puts(out, ",\"top_p\":");
    json_float(out, sample->top_p, "null");
    for (size_t i = 0; i < MN_COUNT(rows); i++)
        if (!put_asked_member(out, body, rows[i][0], rows[i][1]))
            return 0;
    return !out->failed;
}
