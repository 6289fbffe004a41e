/* dialect_ollama_request.c -- requests of Ollama's /api/chat and /api/generate as ones of the chat,
 * or of text completions.
 *
 * "options" goes by a table: what has one meaning is copied under the chat's name, which checks it;
 * what would change the answer and is not supported is refused; what says how a model is loaded has
 * no effect here. Calls have no ids in this dialect: they are numbered, and results follow in
 * order. */
#include "serve/dialect_ollama.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *chat;
} options[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repeat_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"mirostat_tau", "mirostat_tau"},
    {"mirostat_eta", "mirostat_eta"},
};

/* Of a refused field: the value that asks for nothing. */
typedef struct {
    const char *name;
    double nothing;
    const char *why;
} ollama_refusal;

static const ollama_refusal refused_options[] = {
    {"tfs_z", 1, "there is no such sampler: use min_p"},
    {"penalize_newline", 1, "penalties count every token"},
};

static const ollama_refusal refused_fields[] = {
    {"width", 0, "answers are text"},
    {"height", 0, "answers are text"},
    {"steps", 0, "answers are text"},
};

/* 1 if v asks for nothing: the number, as a boolean too, or an empty text or list. */
static int is_nothing(const cJSON *v, double nothing) {
    if (cJSON_IsBool(v))
        return cJSON_IsTrue(v) == (nothing != 0);
    if (cJSON_IsNumber(v))
        return v->valuedouble == nothing;
    return cJSON_IsString(v) ? !*v->valuestring : !v->child;
}

static int check_refusals(const cJSON *object, const char *before, const ollama_refusal *rows,
                          size_t n, json_error *e) {
    for (size_t i = 0; i < n; i++) {
        const cJSON *v = json_field(object, rows[i].name);
        if (v && !is_nothing(v, rows[i].nothing))
            return json_fail(e, rows[i].name, "%s%s: not supported: %s", before, rows[i].name,
                             rows[i].why);
    }
    return 1;
}

/* A limit that is not above 0 is none. */
static int add_num_predict(cJSON *chat, const cJSON *given, json_error *e) {
    int64_t n = -1;
    if (!json_read_int(given, "num_predict", INT32_MIN, INT32_MAX, &n, e))
        return 0;
    return n <= 0 || dialect_add(chat, "max_tokens", cJSON_CreateNumber((double)n));
}

/* The older of its two forms is not there: it draws as the newer one does. */
static int add_mirostat(cJSON *chat, const cJSON *given, json_error *e) {
    int64_t kind = 0;
    if (!json_read_int(given, "mirostat", 0, 2, &kind, e))
        return 0;
    return !kind || dialect_add(chat, "mirostat", cJSON_CreateNumber(2));
}

static int add_options(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *given = json_field(body, "options");
    if (!given)
        return 1;
    if (!cJSON_IsObject(given))
        return json_fail(e, "options", "options: expected an object");
    if (!check_refusals(given, "options.", refused_options, MN_COUNT(refused_options), e) ||
        !add_num_predict(chat, given, e) || !add_mirostat(chat, given, e))
        return 0;
    for (size_t i = 0; i < MN_COUNT(options); i++)
        if (!dialect_copy(chat, options[i].chat, json_field(given, options[i].name)))
            return 0;
    return 1;
}

void ollama_refused(const served *m, json_error *e) {
    static const char *const names[][2] = {{"max_tokens", "options.num_predict"},
                                           {"response_format", "format"}};
    char rest[sizeof e->message];
    (void)m;
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const size_t n = strlen(names[i][0]);
        if (strcmp(e->param, names[i][0]) != 0 || strncmp(e->message, names[i][0], n) != 0)
            continue;
        snprintf(rest, sizeof rest, "%s", e->message + n);
        snprintf(e->message, sizeof e->message, "%s%.400s", names[i][1], rest);
        return;
    }
}

/* ---- the model and its time in memory -------------------------------------------------------- */

int ollama_model(const cJSON *body, const char **out, json_error *e) {
    *out = NULL;
    if (!json_read_string(body, "name", out, e) || !json_read_string(body, "model", out, e))
        return 0;
    return (*out && **out) || json_fail(e, "model", "model is required");
}

/* A duration as Go writes it: numbers, each with a unit. 0: it is none. */
static int parse_duration(const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    const int is_negative = *text == '-';
    const char *at = text + (is_negative || *text == '+');
    char *end = NULL;
    double sum = 0;
    if (!*at)
        return 0;
    while (*at) {
        const size_t n = strspn(at, "0123456789.");
        const double v = n ? strtod(at, &end) : 0;
        size_t i = 0;
        if (!n || end != at + n)
            return 0;
        const size_t n_unit = strspn(end, "nusmh");
        while (i < MN_COUNT(units) &&
               (strlen(units[i].unit) != n_unit || strncmp(units[i].unit, end, n_unit) != 0))
            i++;
        if (i == MN_COUNT(units) && (n_unit || sum > 0))
            return 0;
        sum += v * (n_unit ? units[i].seconds : 1); /* a number alone: seconds */
        at = end + n_unit;
    }
    *seconds = is_negative ? -sum : sum;
    return isfinite(sum);
}

int ollama_keep_alive(const cJSON *body, int *given, double *seconds, json_error *e) {
    const cJSON *v = json_field(body, "keep_alive");
    char found[80];
    *given = v != NULL;
    *seconds = 0;
    if (!v)
        return 1;
    if (cJSON_IsNumber(v) && isfinite(v->valuedouble)) {
        *seconds = v->valuedouble;
        return 1;
    }
    if (cJSON_IsString(v) && parse_duration(v->valuestring, seconds))
        return 1;
    return json_fail(e, "keep_alive",
                     "keep_alive: found %s, expected seconds, or a duration such as \"5m\"",
                     json_found(v, found, sizeof found));
}

/* ---- fields of both -------------------------------------------------------------------------- */

/* Images are no text. at: where the list is. */
static int check_images(const cJSON *object, const char *at, json_error *e) {
    const cJSON *images = json_field(object, "images");
    if (!images || (cJSON_IsArray(images) && !images->child))
        return 1;
    return json_fail(e, "images", "%simages: not supported: this server reads text only", at);
}

/* format: "json" or a schema. */
static int ollama_add_format(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *format = json_field(body, "format");
    const char *word = cJSON_GetStringValue(format);
    if (!format || (word && !*word))
        return 1;
    if (!cJSON_IsObject(format) && !(word && !strcmp(word, "json")))
        return json_fail(e, "format", "format: expected \"json\" or a JSON schema (an object)");
    cJSON *out = cJSON_CreateObject();
    if (!dialect_add(chat, "response_format", out))
        return 0;
    if (word)
        return dialect_add(out, "type", cJSON_CreateString("json_object"));
    cJSON *inner = cJSON_CreateObject();
    return dialect_add(out, "json_schema", inner) &&
           dialect_add(out, "type", cJSON_CreateString("json_schema")) &&
           dialect_add(inner, "name", cJSON_CreateString("answer")) &&
           dialect_copy(inner, "schema", format);
}

/* think: absent is the template's own; false hides what a model thinks in spite of it. */
static int ollama_add_thinking(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *think = json_field(body, "think");
    const char *word = cJSON_GetStringValue(think);
    const int is_effort =
        word && (!strcmp(word, "low") || !strcmp(word, "medium") || !strcmp(word, "high"));
    if (!think || (word && !*word))
        return 1;
    if (!is_effort && !cJSON_IsBool(think))
        return json_fail(e, "think", "think: expected true, false, low, medium or high");
    const int is_on = is_effort || cJSON_IsTrue(think);
    cJSON *variables = cJSON_CreateObject();
    return dialect_add(chat, "chat_template_kwargs", variables) &&
           dialect_add(variables, "enable_thinking", cJSON_CreateBool(is_on)) &&
           dialect_add(variables, "thinking", cJSON_CreateBool(is_on)) &&
           (!is_effort || dialect_add(chat, "reasoning_effort", cJSON_CreateString(word))) &&
           dialect_add(chat, "include_reasoning", cJSON_CreateBool(is_on));
}

/* logprobs and top_logprobs: of text completions one number, of the chat two fields. */
static int ollama_add_logprobs(cJSON *chat, const cJSON *body, int is_text, json_error *e) {
    int asked = 0;
    int64_t n_top = 0;
    if (!json_read_bool(body, "logprobs", &asked, e) ||
        !json_read_int(body, "top_logprobs", 0, 20, &n_top, e))
        return 0;
    if (n_top && !asked)
        return json_fail(e, "top_logprobs", "top_logprobs: needs logprobs: true");
    if (!asked)
        return 1;
    if (is_text)
        return dialect_add(chat, "logprobs", cJSON_CreateNumber((double)n_top));
    return dialect_add(chat, "logprobs", cJSON_CreateBool(1)) &&
           dialect_add(chat, "top_logprobs", cJSON_CreateNumber((double)n_top));
}

/* What /api/chat and /api/generate have both; streams are the default here. */
static int add_common(cJSON *chat, const cJSON *body, int is_text, json_error *e) {
    const char *model = NULL;
    int stream = 1;
    int given = 0;
    double keep = 0;
    return ollama_model(body, &model, e) && dialect_add(chat, "model", cJSON_CreateString(model)) &&
           json_read_bool(body, "stream", &stream, e) &&
           dialect_add(chat, "stream", cJSON_CreateBool(stream)) &&
           ollama_keep_alive(body, &given, &keep, e) &&
           check_refusals(body, "", refused_fields, MN_COUNT(refused_fields), e) &&
           check_images(body, "", e) && add_options(chat, body, e) &&
           ollama_add_format(chat, body, e) && ollama_add_logprobs(chat, body, is_text, e);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Calls so far, and results of them: the k-th result is that of the k-th call. */
typedef struct {
    unsigned n_calls, n_results;
} call_order;

/* 9 letters and digits, which suit all templates. */
static cJSON *id_of(unsigned n) {
    char id[16];
    snprintf(id, sizeof id, "call%05u", n % 100000);
    return cJSON_CreateString(id);
}

/* A call in the chat's form. NULL: the error is set, or out of memory. */
static cJSON *ollama_call_of(const cJSON *given, const char *at, unsigned n, json_error *e) {
    const cJSON *from = json_field(given, "function");
    const cJSON *name = json_field(from, "name");
    const cJSON *arguments = json_field(from, "arguments");
    if (!cJSON_IsString(name) || (arguments && !cJSON_IsObject(arguments))) {
        json_fail(e, "messages",
                  "%s.tool_calls: expected a function with a name and arguments (an object)", at);
        return NULL;
    }
    cJSON *call = cJSON_CreateObject();
    cJSON *function = cJSON_CreateObject();
    char *text = arguments ? cJSON_PrintUnformatted(arguments) : NULL;
    const int has = call && (text || !arguments);
    int ok = has && dialect_add(call, "function", function);
    if (!ok && !has)
        cJSON_Delete(function);
    ok = ok && dialect_add(call, "id", id_of(n)) &&
         dialect_add(call, "type", cJSON_CreateString("function")) &&
         dialect_copy(function, "name", name) &&
         dialect_add(function, "arguments", cJSON_CreateString(text ? text : "{}"));
    cJSON_free(text);
    if (ok)
        return call;
    cJSON_Delete(call);
    return NULL;
}

static int ollama_add_calls(cJSON *out, const cJSON *given, const char *at, call_order *order,
                            json_error *e) {
    const cJSON *calls = json_field(given, "tool_calls");
    const cJSON *call = NULL;
    if (!calls || (cJSON_IsArray(calls) && !calls->child))
        return 1;
    if (!cJSON_IsArray(calls))
        return json_fail(e, "messages", "%s.tool_calls: expected a list", at);
    cJSON *list = cJSON_CreateArray();
    if (!dialect_add(out, "tool_calls", list))
        return 0;
    cJSON_ArrayForEach(call, calls) {
        if (!dialect_push(list, ollama_call_of(call, at, order->n_calls, e)))
            return 0;
        order->n_calls++;
    }
    return 1;
}

/* What else a message of a role has. */
static int add_members(cJSON *out, const cJSON *given, const char *at, call_order *order,
                       json_error *e) {
    const char *role = cJSON_GetStringValue(json_field(given, "role"));
    const char *thinking = NULL;
    const char *name = NULL;
    if (!json_read_string(given, "thinking", &thinking, e) ||
        !json_read_string(given, "name", &name, e) ||
        !json_read_string(given, "tool_name", &name, e) || !check_images(given, at, e))
        return 0;
    if (!strcmp(role, "assistant"))
        return (!thinking || !*thinking ||
                dialect_add(out, "reasoning_content", cJSON_CreateString(thinking))) &&
               ollama_add_calls(out, given, at, order, e);
    if (strcmp(role, "tool") != 0)
        return 1;
    return dialect_add(out, "tool_call_id", id_of(order->n_results++)) &&
           (!name || dialect_add(out, "name", cJSON_CreateString(name)));
}

static int ollama_add_message(cJSON *list, size_t i, const cJSON *given, call_order *order,
                              json_error *e) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = cJSON_GetStringValue(json_field(given, "role"));
    const char *content = "";
    char at[40];
    size_t k = 0;
    snprintf(at, sizeof at, "messages[%zu]", i);
    while (k < MN_COUNT(roles) && !(role && !strcmp(role, roles[k])))
        k++;
    if (k == MN_COUNT(roles))
        return json_fail(e, "messages",
                         "%s.role: found \"%.40s\", expected system, user, assistant or tool", at,
                         role ? role : "");
    const cJSON *text = json_field(given, "content");
    if (text && !cJSON_IsString(text))
        return json_fail(e, "messages", "%s.content: expected a string", at);
    if (text)
        content = text->valuestring;
    cJSON *out = cJSON_CreateObject();
    if (out && dialect_add(out, "role", cJSON_CreateString(role)) &&
        dialect_add(out, "content", cJSON_CreateString(content)) &&
        add_members(out, given, at, order, e))
        return dialect_push(list, out);
    cJSON_Delete(out);
    return 0;
}

/* 1 if the answer continues the last message: a text of the assistant. */
static int ollama_is_prefill(const cJSON *list) {
    const cJSON *last = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
    const char *role = cJSON_GetStringValue(json_field(last, "role"));
    const char *text = cJSON_GetStringValue(json_field(last, "content"));
    return role && !strcmp(role, "assistant") && text && *text && !json_field(last, "tool_calls");
}

static int ollama_add_messages(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *given = json_field(body, "messages");
    const cJSON *m = NULL;
    call_order order = {0};
    size_t i = 0;
    cJSON *list = cJSON_CreateArray();
    if (!dialect_add(chat, "messages", list))
        return 0;
    if (!cJSON_IsArray(given))
        return json_fail(e, "messages", "messages: expected a list");
    cJSON_ArrayForEach(m, given) {
        if (!ollama_add_message(list, i, m, &order, e))
            return 0;
        i++;
    }
    return !ollama_is_prefill(list) ||
           dialect_add(chat, "continue_final_message", cJSON_CreateBool(1));
}

/* Tools are the chat's; their type may be absent. */
static int ollama_add_tools(cJSON *chat, const cJSON *body, json_error *e) {
    const cJSON *tools = json_field(body, "tools");
    cJSON *tool = NULL;
    if (!tools || (cJSON_IsArray(tools) && !tools->child))
        return 1;
    if (!cJSON_IsArray(tools))
        return json_fail(e, "tools", "tools: expected a list");
    cJSON *list = cJSON_Duplicate(tools, 1);
    if (!dialect_add(chat, "tools", list))
        return 0;
    cJSON_ArrayForEach(tool, list) {
        if (cJSON_IsObject(tool) && !cJSON_HasObjectItem(tool, "type") &&
            !dialect_add(tool, "type", cJSON_CreateString("function")))
            return 0;
    }
    return 1;
}

cJSON *ollama_chat_request(const cJSON *body, json_error *e) {
    cJSON *chat = cJSON_CreateObject();
    if (chat && add_common(chat, body, 0, e) && ollama_add_messages(chat, body, e) &&
        ollama_add_tools(chat, body, e) && ollama_add_thinking(chat, body, e))
        return chat;
    cJSON_Delete(chat);
    return NULL;
}

/* ---- generate -------------------------------------------------------------------------------- */

/* Fields that this server does not have, or not beside raw. */
static int check_generate(const cJSON *body, int is_raw, json_error *e) {
    static const struct {
        const char *name;
        int with_raw; /* refused beside raw alone */
        const char *why;
    } rows[] = {
        {"template", 0, "the template is the server's: --chat-template"},
        {"context", 0, "use the messages of /api/chat"},
        {"system", 1, "raw has no template that would write it"},
        {"think", 1, "raw has no template that would ask for it"},
        {"suffix", 1, "raw is the whole prompt"},
    };
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        const cJSON *v = json_field(body, rows[i].name);
        if (v && (is_raw || !rows[i].with_raw) && !is_nothing(v, 0))
            return json_fail(e, rows[i].name, "%s: not supported%s: %s", rows[i].name,
                             rows[i].with_raw ? " beside raw" : "", rows[i].why);
    }
    return 1;
}

/* A message with a text, where there is one. */
static int add_text(cJSON *list, const char *role, const char *text) {
    cJSON *out = text && *text ? cJSON_CreateObject() : NULL;
    if (!text || !*text)
        return 1;
    if (out && dialect_add(out, "role", cJSON_CreateString(role)) &&
        dialect_add(out, "content", cJSON_CreateString(text)))
        return dialect_push(list, out);
    cJSON_Delete(out);
    return 0;
}

/* The prompt as one message of the user. */
static int add_prompt_message(cJSON *chat, const cJSON *body, const char *prompt, json_error *e) {
    const char *system = NULL;
    cJSON *list = cJSON_CreateArray();
    return dialect_add(chat, "messages", list) && json_read_string(body, "system", &system, e) &&
           add_text(list, "system", system) && add_text(list, "user", prompt) &&
           ollama_add_thinking(chat, body, e);
}

cJSON *ollama_generate_request(const cJSON *body, int *is_text, json_error *e) {
    const char *prompt = "";
    const char *suffix = "";
    int raw = 0;
    if (!json_read_bool(body, "raw", &raw, e) || !json_read_string(body, "prompt", &prompt, e) ||
        !json_read_string(body, "suffix", &suffix, e) || !check_generate(body, raw, e))
        return NULL;
    *is_text = raw || *suffix;
    cJSON *out = cJSON_CreateObject();
    int ok = out && add_common(out, body, *is_text, e);
    if (ok && *is_text)
        ok = dialect_add(out, "prompt", cJSON_CreateString(prompt)) &&
             (!*suffix || dialect_add(out, "suffix", cJSON_CreateString(suffix)));
    else if (ok)
        ok = add_prompt_message(out, body, prompt, e);
    if (ok)
        return out;
    cJSON_Delete(out);
    return NULL;
}

int ollama_is_load(const cJSON *body) {
    const cJSON *messages = json_field(body, "messages");
    const char *prompt = cJSON_GetStringValue(json_field(body, "prompt"));
    const char *suffix = cJSON_GetStringValue(json_field(body, "suffix"));
    if (messages)
        return cJSON_IsArray(messages) && !messages->child;
    return !(prompt && *prompt) && !(suffix && *suffix);
}
