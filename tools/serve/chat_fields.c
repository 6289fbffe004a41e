/* chat_fields.c -- reads what the chat template is given beside messages and tools
 * (chat_template_kwargs, reasoning_effort, documents), and whether the prompt ends within the last
 * message. chat_template_kwargs wins over the fields that have a name of their own. */
#include "serve/chat_fields.h"
#include <minerva/minerva.h>
#include <string.h>

/* ---- variables ------------------------------------------------------------------------------- */

/* Adds a variable that all does not have; v is copied. 0: out of memory. */
static int chat_fields_add(cJSON *all, const char *name, const cJSON *v) {
    if (cJSON_HasObjectItem(all, name))
        return 1;
    cJSON *copy = cJSON_Duplicate(v, 1);
    const int ok = copy && cJSON_AddItemToObject(all, name, copy);
    if (!ok)
        cJSON_Delete(copy);
    return ok;
}

/* Templates name the switch of thinking in two ways. */
static int add_thinking(cJSON *all, int thinks) {
    cJSON *v = cJSON_CreateBool(thinks);
    const int ok =
        v && chat_fields_add(all, "enable_thinking", v) && chat_fields_add(all, "thinking", v);
    cJSON_Delete(v);
    return ok;
}

/* An effort, which is "none" or switches thinking on. */
static int add_effort(cJSON *all, const cJSON *effort) {
    const char *word = cJSON_GetStringValue(effort);
    return chat_fields_add(all, "reasoning_effort", effort) &&
           add_thinking(all, !word || strcmp(word, "none"));
}

/* SGLang's "reasoning": {"effort": ..., "enabled": ...}. 0: the error is set, or out of memory. */
static int add_reasoning(cJSON *all, const cJSON *body, json_error *e) {
    const cJSON *reasoning = json_field(body, "reasoning");
    const cJSON *effort = json_field(reasoning, "effort");
    const cJSON *v = NULL;
    int enabled = -1;
    if (reasoning && !cJSON_IsObject(reasoning))
        return json_fail(e, "reasoning", "reasoning: expected an object");
    cJSON_ArrayForEach(v, reasoning) {
        if (strcmp(v->string, "effort") != 0 && strcmp(v->string, "enabled") != 0)
            return json_fail(e, "reasoning",
                             "reasoning: found \"%.40s\", expected effort or enabled", v->string);
    }
    if (effort && !cJSON_IsString(effort))
        return json_fail(e, "reasoning", "reasoning: effort: expected a string");
    if (!json_read_bool(reasoning, "enabled", &enabled, e))
        return 0;
    if (effort && !add_effort(all, effort))
        return 0;
    return enabled < 0 || add_thinking(all, enabled);
}

/* Fields of the request that are variables. 0: the error is set, or out of memory. */
static int add_fields(cJSON *all, const cJSON *body, json_error *e) {
    const cJSON *effort = json_field(body, "reasoning_effort");
    const cJSON *documents = json_field(body, "documents");
    const char *verbosity = NULL;
    if (effort && !cJSON_IsString(effort))
        return json_fail(e, "reasoning_effort", "reasoning_effort: expected a string");
    if (documents && !cJSON_IsArray(documents))
        return json_fail(e, "documents", "documents: expected a list");
    if (!json_read_string(body, "verbosity", &verbosity, e))
        return 0;
    return (!effort || add_effort(all, effort)) && add_reasoning(all, body, e) &&
           (!documents || chat_fields_add(all, "documents", documents)) &&
           (!verbosity || chat_fields_add(all, "verbosity", json_field(body, "verbosity")));
}

char *chat_variables(const cJSON *body, json_error *e) {
    const cJSON *given = json_field(body, "chat_template_kwargs");
    if (given && !cJSON_IsObject(given)) {
        json_fail(e, "chat_template_kwargs", "chat_template_kwargs: expected an object");
        return NULL;
    }
    cJSON *all = given ? cJSON_Duplicate(given, 1) : cJSON_CreateObject();
    char *text = all && add_fields(all, body, e) ? cJSON_PrintUnformatted(all) : NULL;
    cJSON_Delete(all);
    if (text || e->failed)
        return text;
    json_no_memory(e);
    return NULL;
}

/* ---- the end of the prompt ------------------------------------------------------------------- */

int chat_read_end(const cJSON *body, uint32_t *flags, json_error *e) {
    static const char name[] = "continue_final_message";
    const cJSON *messages = json_field(body, "messages");
    const cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
    const char *role = cJSON_GetStringValue(json_field(last, "role"));
    int continues = 0;
    int header = -1; /* add_generation_prompt: not given */
    *flags = 0;
    if (!json_read_bool(body, name, &continues, e) ||
        !json_read_bool(body, "add_generation_prompt", &header, e))
        return 0;
    if (continues && header == 1)
        return json_fail(e, name, "%s: found beside add_generation_prompt: true", name);
    const int has_calls = cJSON_GetArraySize(json_field(last, "tool_calls")) > 0;
    if (continues && (!role || strcmp(role, "assistant") != 0 || has_calls))
        return json_fail(e, name, "%s: expected a last message of the assistant without tool_calls",
                         name);
    if (continues)
        *flags = MN_CHAT_CONTINUE;
    else if (header == 0)
        *flags = MN_CHAT_NO_HEADER;
    return 1;
}
