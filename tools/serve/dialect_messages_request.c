/* dialect_messages_request.c -- a request of Anthropic Messages as one of the chat.
 *
 * Fields with one meaning are copied under the chat's name, and the chat checks them. Blocks of a
 * message go by a table: texts stay parts of the message, calls and thinking become members of an
 * assistant's message, and each result of a call becomes a message of its own before the texts of
 * its turn. What the client only tells a provider (cache_control, metadata, service_tier, ...) is
 * ignored. */
#include "out.h"
#include "serve/dialect_messages.h"
#include <string.h>

/* ---- fields ---------------------------------------------------------------------------------- */

static const struct {
    const char *name, *chat;
} copied[] = {
    {"model", "model"},   {"max_tokens", "max_tokens"},
    {"stream", "stream"}, {"temperature", "temperature"},
    {"top_p", "top_p"},   {"stop_sequences", "stop"},
    {"top_k", "top_k"},
};

/* Fields that would change the answer: found with a value, they are an error. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"mcp_servers", "this server calls no other servers: use tools"},
};

static int messages_add_fields(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *stop = json_field(body, "stop_sequences");
    if (stop && !cJSON_IsArray(stop))
        return json_fail(e, "stop_sequences", "stop_sequences: expected a list of strings");
    for (size_t i = 0; i < MN_COUNT(refused); i++) {
        const cJSON *v = json_field(body, refused[i].name);
        if (v && (v->child || !cJSON_IsArray(v)))
            return json_fail(e, refused[i].name, "%s: not supported: %s", refused[i].name,
                             refused[i].why);
    }
    for (size_t i = 0; i < MN_COUNT(copied); i++)
        if (!dialect_copy(chat, copied[i].chat, json_field(body, copied[i].name)))
            return 0;
    return 1;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* One message while its blocks are read. */
typedef struct {
    cJSON *list; /* of the chat's messages */
    const char *role;
    char at[48]; /* "messages[2].content[0]" */
    cJSON *parts, *calls;
    mn_text thinking;
} message;

/* {"type": "text", "text": ...}; NULL: out of memory. */
static cJSON *text_part(const char *text) {
    cJSON *part = cJSON_CreateObject();
    if (part && dialect_add(part, "type", cJSON_CreateString("text")) &&
        dialect_add(part, "text", cJSON_CreateString(text)))
        return part;
    cJSON_Delete(part);
    return NULL;
}

/* A text that a block must have. NULL: the error is set. */
static const char *messages_text_of(const message *m, const cJSON *block, const char *name,
                                    json_error *e) {
    const char *text = cJSON_GetStringValue(json_field(block, name));
    if (!text)
        json_fail(e, "messages", "%s.%s: expected a string", m->at, name);
    return text;
}

static int read_text(message *m, const cJSON *block, json_error *e) {
    const char *text = messages_text_of(m, block, "text", e);
    return text && dialect_push(m->parts, text_part(text));
}

/* Several blocks of thinking are one text. */
static int read_thinking(message *m, const cJSON *block, json_error *e) {
    const char *text = messages_text_of(m, block, "thinking", e);
    if (!text)
        return 0;
    mn_text_puts(&m->thinking, text);
    return !m->thinking.failed;
}

/* An id of a call without the prefix of answers: templates may want 9 letters and digits. */
static const char *call_id(const char *id) {
    const size_t n = sizeof MESSAGES_CALL_PREFIX - 1;
    return strncmp(id, MESSAGES_CALL_PREFIX, n) ? id : id + n;
}

/* {"name", "arguments"} of a call. NULL: out of memory. */
static cJSON *messages_function_of(const char *name, const cJSON *input) {
    cJSON *function = cJSON_CreateObject();
    char *arguments = input ? cJSON_PrintUnformatted(input) : NULL;
    const int ok = function && (arguments || !input) &&
                   dialect_add(function, "name", cJSON_CreateString(name)) &&
                   dialect_add(function, "arguments", cJSON_CreateString(input ? arguments : "{}"));
    cJSON_free(arguments);
    if (ok)
        return function;
    cJSON_Delete(function);
    return NULL;
}

static int read_call(message *m, const cJSON *block, json_error *e) {
    const char *id = messages_text_of(m, block, "id", e);
    const char *name = messages_text_of(m, block, "name", e);
    const cJSON *input = json_field(block, "input");
    if (!id || !name)
        return 0;
    if (input && !cJSON_IsObject(input))
        return json_fail(e, "messages", "%s.input: expected an object", m->at);
    cJSON *call = cJSON_CreateObject();
    if (call && dialect_add(call, "id", cJSON_CreateString(call_id(id))) &&
        dialect_add(call, "type", cJSON_CreateString("function")) &&
        dialect_add(call, "function", messages_function_of(name, input)))
        return dialect_push(m->calls, call);
    cJSON_Delete(call);
    return 0;
}

/* A content that is a text or a list of texts, as the chat has it. NULL: the error is set, or out
 * of memory. */
static cJSON *texts_of(const char *at, const char *param, const cJSON *content, json_error *e) {
    const cJSON *block = NULL;
    if (!content || cJSON_IsString(content))
        return cJSON_CreateString(content ? content->valuestring : "");
    cJSON *parts = cJSON_IsArray(content) ? cJSON_CreateArray() : NULL;
    if (!cJSON_IsArray(content))
        json_fail(e, param, "%s: expected a string or a list of blocks", at);
    cJSON_ArrayForEach(block, content) {
        const char *type = cJSON_GetStringValue(json_field(block, "type"));
        const char *text = cJSON_GetStringValue(json_field(block, "text"));
        const int is_text = type && text && !strcmp(type, "text");
        if (!is_text)
            json_fail(e, param,
                      "%s: found a block of type \"%.40s\", expected \"text\": this server reads "
                      "text only",
                      at, type ? type : "");
        if (!is_text || !parts || !dialect_push(parts, text_part(text))) {
            cJSON_Delete(parts);
            return NULL;
        }
    }
    return parts;
}

/* A message with a role; NULL: out of memory. */
static cJSON *message_of(const char *role) {
    cJSON *out = cJSON_CreateObject();
    if (out && dialect_add(out, "role", cJSON_CreateString(role)))
        return out;
    cJSON_Delete(out);
    return NULL;
}

/* The result of a call: a message of its own. */
static int read_result(message *m, const cJSON *block, json_error *e) {
    const char *id = messages_text_of(m, block, "tool_use_id", e);
    cJSON *content = id ? texts_of(m->at, "messages", json_field(block, "content"), e) : NULL;
    cJSON *out = content ? message_of("tool") : NULL;
    if (!out) {
        cJSON_Delete(content);
        return 0;
    }
    if (dialect_add(out, "content", content) &&
        dialect_add(out, "tool_call_id", cJSON_CreateString(call_id(id))))
        return dialect_push(m->list, out);
    cJSON_Delete(out);
    return 0;
}

/* A document whose text is in the request. */
static int read_document(message *m, const cJSON *block, json_error *e) {
    const cJSON *source = json_field(block, "source");
    const char *type = cJSON_GetStringValue(json_field(source, "type"));
    const char *text = cJSON_GetStringValue(json_field(source, "data"));
    if (!type || strcmp(type, "text") != 0 || !text)
        return json_fail(e, "messages",
                         "%s: found a document with a source of type \"%.40s\", expected \"text\" "
                         "with its data: this server reads text only",
                         m->at, type ? type : "");
    return dialect_push(m->parts, text_part(text));
}

/* A provider's encrypted thinking: no model here can read it. */
static int skip(message *m, const cJSON *block, json_error *e) {
    (void)m;
    (void)block;
    (void)e;
    return 1;
}

static const struct {
    const char *type, *role; /* role NULL: any */
    int (*read)(message *m, const cJSON *block, json_error *e);
} blocks[] = {
    {"text", NULL, read_text},
    {"document", "user", read_document},
    {"tool_result", "user", read_result},
    {"tool_use", "assistant", read_call},
    {"thinking", "assistant", read_thinking},
    {"redacted_thinking", "assistant", skip},
};

static int messages_read_block(message *m, const cJSON *block, json_error *e) {
    const char *type = cJSON_GetStringValue(json_field(block, "type"));
    for (size_t i = 0; type && i < MN_COUNT(blocks); i++)
        if (!strcmp(type, blocks[i].type) && (!blocks[i].role || !strcmp(m->role, blocks[i].role)))
            return blocks[i].read(m, block, e);
    return json_fail(e, "messages",
                     "%s: found a block of type \"%.40s\" in a message of role %.20s, which is not "
                     "supported: this server reads text, tool_use, tool_result and thinking",
                     m->at, type ? type : "", m->role);
}

/* Adds what the blocks of a message have left. Results alone are no message of the user. */
static int messages_add_message(message *m) {
    const int has_calls = m->calls->child != NULL;
    const int has_text = m->parts->child != NULL;
    if (!strcmp(m->role, "user") && !has_text)
        return 1;
    cJSON *out = message_of(m->role);
    int ok = out != NULL;
    if (ok && has_text)
        ok = dialect_copy(out, "content", m->parts);
    else if (ok)
        ok = dialect_add(out, "content", has_calls ? cJSON_CreateNull() : cJSON_CreateString(""));
    ok = ok && (!has_calls || dialect_copy(out, "tool_calls", m->calls));
    if (ok && m->thinking.len)
        ok = dialect_add(out, "reasoning_content", cJSON_CreateString(m->thinking.ptr));
    if (ok)
        return dialect_push(m->list, out);
    cJSON_Delete(out);
    return 0;
}

/* The blocks of message i. */
static int messages_read_blocks(message *m, size_t i, const cJSON *content, json_error *e) {
    const cJSON *block = NULL;
    size_t k = 0;
    int ok = m->parts && m->calls;
    cJSON_ArrayForEach(block, content) {
        snprintf(m->at, sizeof m->at, "messages[%zu].content[%zu]", i, k);
        ok = ok && messages_read_block(m, block, e);
        k++;
    }
    return ok && messages_add_message(m);
}

/* A message whose content is a text. */
static int messages_add_plain(cJSON *list, const char *role, const char *text) {
    cJSON *out = message_of(role);
    if (out && dialect_add(out, "content", cJSON_CreateString(text)))
        return dialect_push(list, out);
    cJSON_Delete(out);
    return 0;
}

static int messages_read_message(cJSON *list, size_t i, const cJSON *given, json_error *e) {
    const char *role = cJSON_GetStringValue(json_field(given, "role"));
    const cJSON *content = json_field(given, "content");
    if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")))
        return json_fail(e, "messages",
                         "messages[%zu].role: found \"%.40s\", expected user or assistant", i,
                         role ? role : "");
    if (cJSON_IsString(content))
        return messages_add_plain(list, role, content->valuestring);
    if (!cJSON_IsArray(content))
        return json_fail(e, "messages",
                         "messages[%zu].content: expected a string or a list of blocks", i);
    message m = {
        .list = list, .role = role, .parts = cJSON_CreateArray(), .calls = cJSON_CreateArray()};
    const int ok = messages_read_blocks(&m, i, content, e);
    cJSON_Delete(m.parts);
    cJSON_Delete(m.calls);
    mn_text_free(&m.thinking);
    return ok;
}

/* Some agents' first line has a hash that changes with each request, so that no cached prefix
 * would ever be found: the hash is replaced. */
static void blank_billing(cJSON *content) {
    static const char mark[] = "x-anthropic-billing-header:";
    char *text = cJSON_IsArray(content) ? cJSON_GetStringValue(json_field(content->child, "text"))
                                        : cJSON_GetStringValue(content);
    if (!text || strncmp(text, mark, sizeof mark - 1) != 0)
        return;
    char *hash = strstr(text, "cch=");
    if (!hash || hash > text + strcspn(text, "\n"))
        return;
    const size_t n = strcspn(hash + 4, ";\n");
    if (n <= 16)
        memset(hash + 4, '0', n);
}

/* The system prompt: the first message. */
static int messages_add_system(cJSON *list, const cJSON *body, json_error *e) {
    const cJSON *system = json_field(body, "system");
    if (!system || (cJSON_IsArray(system) && !system->child) ||
        (cJSON_IsString(system) && !*system->valuestring))
        return 1;
    cJSON *content = texts_of("system", "system", system, e);
    cJSON *out = content ? message_of("system") : NULL;
    if (!out) {
        cJSON_Delete(content);
        return 0;
    }
    blank_billing(content);
    if (dialect_add(out, "content", content))
        return dialect_push(list, out);
    cJSON_Delete(out);
    return 0;
}

/* 1 if the answer continues the last message: a text of the assistant. */
static int is_prefill(const cJSON *list) {
    const cJSON *last = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
    const char *role = cJSON_GetStringValue(json_field(last, "role"));
    const cJSON *content = json_field(last, "content");
    const int has_text =
        cJSON_IsString(content) ? *content->valuestring != 0 : content && content->child;
    return role && !strcmp(role, "assistant") && has_text && !json_field(last, "tool_calls");
}

static int messages_add_messages(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *given = json_field(body, "messages");
    const cJSON *m = NULL;
    size_t i = 0;
    cJSON *list = cJSON_CreateArray();
    if (!dialect_add(chat, "messages", list))
        return 0;
    if (!cJSON_IsArray(given) || !given->child)
        return json_fail(e, "messages", "messages: expected a list of at least one message");
    if (!messages_add_system(list, body, e))
        return 0;
    cJSON_ArrayForEach(m, given) {
        if (!messages_read_message(list, i, m, e))
            return 0;
        i++;
    }
    return !is_prefill(list) || dialect_add(chat, "continue_final_message", cJSON_CreateBool(1));
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* A tool that the provider's own servers run: agents send them along, and the model does without.
 * The log names the type where it is a plain word. */
static void drop_tool(const char *type) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const int is_word = strlen(type) <= 60 && !type[strspn(type, word)];
    note("/v1/messages: a tool of type %s has no input_schema and is left out",
         is_word ? type : "unknown");
}

static int messages_add_tool(cJSON *list, size_t i, const cJSON *tool, json_error *e) {
    const char *type = cJSON_GetStringValue(json_field(tool, "type"));
    const cJSON *schema = json_field(tool, "input_schema");
    const cJSON *name = json_field(tool, "name");
    if (!schema && type && strcmp(type, "custom") != 0) {
        drop_tool(type);
        return 1;
    }
    if (!cJSON_IsString(name) || !cJSON_IsObject(schema))
        return json_fail(e, "tools", "tools[%zu]: expected a name and an input_schema (an object)",
                         i);
    cJSON *function = cJSON_CreateObject();
    cJSON *out = cJSON_CreateObject();
    const int ok = function && out && dialect_copy(function, "name", name) &&
                   dialect_copy(function, "description", json_field(tool, "description")) &&
                   dialect_copy(function, "parameters", schema) &&
                   dialect_copy(function, "strict", json_field(tool, "strict")) &&
                   dialect_add(out, "type", cJSON_CreateString("function"));
    if (ok && dialect_add(out, "function", function))
        return dialect_push(list, out);
    if (!ok)
        cJSON_Delete(function);
    cJSON_Delete(out);
    return 0;
}

static int messages_add_tools(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *tools = json_field(body, "tools");
    const cJSON *tool = NULL;
    size_t i = 0;
    if (!tools)
        return 1;
    if (!cJSON_IsArray(tools))
        return json_fail(e, "tools", "tools: expected a list");
    cJSON *list = cJSON_CreateArray();
    if (!dialect_add(chat, "tools", list))
        return 0;
    cJSON_ArrayForEach(tool, tools) {
        if (!messages_add_tool(list, i, tool, e))
            return 0;
        i++;
    }
    return 1;
}

/* {"type": "function", "function": {"name": ...}}; NULL: out of memory. */
static cJSON *named_choice(const cJSON *name) {
    cJSON *function = cJSON_CreateObject();
    cJSON *out = cJSON_CreateObject();
    const int ok = out && function && dialect_copy(function, "name", name) &&
                   dialect_add(out, "type", cJSON_CreateString("function"));
    if (ok && dialect_add(out, "function", function))
        return out;
    if (!ok)
        cJSON_Delete(function);
    cJSON_Delete(out);
    return NULL;
}

static int messages_add_choice(cJSON *chat, const cJSON *body, json_error *e) {
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const cJSON *choice = json_field(body, "tool_choice");
    const char *type = cJSON_GetStringValue(json_field(choice, "type"));
    const cJSON *name = json_field(choice, "name");
    int one_call = 0;
    if (!choice)
        return 1;
    if (!json_read_bool(choice, "disable_parallel_tool_use", &one_call, e))
        return 0;
    if (one_call && !dialect_add(chat, "parallel_tool_calls", cJSON_CreateBool(0)))
        return 0;
    for (size_t i = 0; type && i < MN_COUNT(words); i++)
        if (!strcmp(type, words[i][0]))
            return dialect_add(chat, "tool_choice", cJSON_CreateString(words[i][1]));
    if (type && !strcmp(type, "tool") && cJSON_IsString(name))
        return dialect_add(chat, "tool_choice", named_choice(name));
    return json_fail(e, "tool_choice",
                     "tool_choice: found type \"%.40s\", expected auto, any, none, or tool with a "
                     "name",
                     type ? type : "");
}

/* ---- thinking and the form of the answer ----------------------------------------------------- */

/* thinking: absent is off. Who has not asked for blocks of thinking gets none. */
static int messages_add_thinking(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *thinking = json_field(body, "thinking");
    const char *type = cJSON_GetStringValue(json_field(thinking, "type"));
    const char *display = cJSON_GetStringValue(json_field(thinking, "display"));
    const int is_off = !thinking || (type && !strcmp(type, "disabled"));
    const int is_on = type && (!strcmp(type, "enabled") || !strcmp(type, "adaptive"));
    if (!is_off && !is_on)
        return json_fail(e, "thinking",
                         "thinking: found type \"%.40s\", expected enabled, adaptive or disabled",
                         type ? type : "");
    const int shows = is_on && !(display && !strcmp(display, "omitted"));
    cJSON *variables = cJSON_CreateObject();
    return dialect_add(chat, "chat_template_kwargs", variables) &&
           dialect_add(variables, "enable_thinking", cJSON_CreateBool(is_on)) &&
           dialect_add(variables, "thinking", cJSON_CreateBool(is_on)) &&
           dialect_add(chat, "include_reasoning", cJSON_CreateBool(shows));
}

static int messages_check_config(const cJSON *config, json_error *e) {
    return !config || cJSON_IsObject(config) ||
           json_fail(e, "output_config", "output_config: expected an object");
}

/* output_config.effort; templates know three words. */
static int messages_add_effort(cJSON *chat, const cJSON *config, json_error *e) {
    static const char *const words[][2] = {
        {"low", "low"}, {"medium", "medium"}, {"high", "high"}, {"xhigh", "high"}, {"max", "high"}};
    const cJSON *effort = json_field(config, "effort");
    const char *word = cJSON_GetStringValue(effort);
    for (size_t i = 0; word && i < MN_COUNT(words); i++)
        if (!strcmp(word, words[i][0]))
            return dialect_add(chat, "reasoning_effort", cJSON_CreateString(words[i][1]));
    return !effort || json_fail(e, "output_config",
                                "output_config.effort: expected low, medium, high, xhigh or max");
}

/* output_config.format, or its older name. */
static int messages_add_format(cJSON *chat, const cJSON *body, const cJSON *config, json_error *e) {
    const cJSON *newer = json_field(config, "format");
    const cJSON *format = newer ? newer : json_field(body, "output_format");
    const char *name = newer ? "output_config.format" : "output_format";
    const char *type = cJSON_GetStringValue(json_field(format, "type"));
    const cJSON *schema = json_field(format, "schema");
    if (!format)
        return 1;
    if (!type || strcmp(type, "json_schema") != 0 || !schema)
        return json_fail(e, name, "%s: found type \"%.40s\", expected json_schema with a schema",
                         name, type ? type : "");
    cJSON *out = cJSON_CreateObject();
    cJSON *inner = cJSON_CreateObject();
    const int ok = dialect_add(chat, "response_format", out);
    if (!ok || !dialect_add(out, "json_schema", inner)) {
        if (!ok)
            cJSON_Delete(inner);
        return 0;
    }
    return dialect_add(out, "type", cJSON_CreateString("json_schema")) &&
           dialect_add(inner, "name", cJSON_CreateString("answer")) &&
           dialect_copy(inner, "schema", schema);
}

/* ---- all ------------------------------------------------------------------------------------- */

cJSON *messages_request(const cJSON *body, json_error *e) {
    const cJSON *config = json_field(body, "output_config");
    cJSON *chat = cJSON_CreateObject();
    if (chat && messages_add_fields(chat, body, e) && messages_add_messages(chat, body, e) &&
        messages_add_tools(chat, body, e) && messages_add_choice(chat, body, e) &&
        messages_add_thinking(chat, body, e) && messages_check_config(config, e) &&
        messages_add_effort(chat, config, e) && messages_add_format(chat, body, config, e))
        return chat;
    cJSON_Delete(chat);
    return NULL;
}
