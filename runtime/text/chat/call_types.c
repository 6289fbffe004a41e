/* call_types.c -- reads the types of parameters from JSON schemas (call_types.h): "type" as a word
 * or a list of words, those of "enum" and "const", of "anyOf" and "oneOf", and of what a "$ref"
 * among the definitions names; a schema that says it in another way says
 * nothing. The tree belongs to a stream, which looks at it once per value. */
#include "text/chat/call_types.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <string.h>

mn_status mn_call_types_read(mn_str tools, cJSON **out, mn_error *err) {
    cJSON *list = cJSON_ParseWithLength(tools.ptr, (size_t)tools.len);
    if (cJSON_IsArray(list)) {
        *out = list;
        return MN_OK;
    }
    cJSON_Delete(list);
    return mn_fail(err, MN_INVALID, "tools: found no JSON list, expected one of tools");
}

static uint32_t type_of_word(const cJSON *word) {
    static const struct {
        const char *word;
        uint32_t type;
    } known[] = {{"string", MN_CALL_TEXT_TYPE},    {"number", MN_CALL_NUMBER_TYPE},
                 {"integer", MN_CALL_NUMBER_TYPE}, {"boolean", MN_CALL_BOOL_TYPE},
                 {"null", MN_CALL_NULL_TYPE},      {"array", MN_CALL_LIST_TYPE},
                 {"object", MN_CALL_OBJECT_TYPE}};
    const char *text = cJSON_GetStringValue(word);
    for (size_t i = 0; text && i < MN_COUNT(known); i++)
        if (!strcmp(known[i].word, text))
            return known[i].type;
    return 0;
}

static uint32_t type_of_literal(const cJSON *v) {
    if (cJSON_IsString(v))
        return MN_CALL_TEXT_TYPE;
    if (cJSON_IsNumber(v))
        return MN_CALL_NUMBER_TYPE;
    if (cJSON_IsBool(v))
        return MN_CALL_BOOL_TYPE;
    if (cJSON_IsNull(v))
        return MN_CALL_NULL_TYPE;
    return cJSON_IsArray(v) ? MN_CALL_LIST_TYPE : MN_CALL_OBJECT_TYPE;
}

/* The types of one schema, without those of what it combines. */
static uint32_t own_types(const cJSON *schema) {
    const cJSON *type = mn_json_item(schema, "type");
    const cJSON *one = mn_json_item(schema, "const");
    const cJSON *word = NULL;
    uint32_t types = type_of_word(type);
    cJSON_ArrayForEach(word, type) types |= type_of_word(word);
    if (!types && one)
        return type_of_literal(one);
    if (!types)
        cJSON_ArrayForEach(word, mn_json_item(schema, "enum")) types |= type_of_literal(word);
    return types;
}

/* What a schema's "$ref" names among the definitions of the parameters; else the schema. */
static const cJSON *named(const cJSON *schema, const cJSON *parameters) {
    static const char *const folders[] = {"$defs", "definitions"};
    const char *ref = cJSON_GetStringValue(mn_json_item(schema, "$ref"));
    for (size_t i = 0; ref && i < MN_COUNT(folders); i++) {
        const size_t n = strlen(folders[i]);
        if (strncmp(ref, "#/", 2) || strncmp(ref + 2, folders[i], n) || ref[2 + n] != '/')
            continue;
        const cJSON *found = mn_json_item(mn_json_item(parameters, folders[i]), ref + 3 + n);
        return found ? found : schema;
    }
    return schema;
}

static uint32_t types_of(const cJSON *schema, const cJSON *parameters) {
    static const char *const combined[] = {"anyOf", "oneOf"};
    schema = named(schema, parameters);
    uint32_t types = own_types(schema);
    for (size_t i = 0; i < MN_COUNT(combined); i++) {
        const cJSON *one = NULL;
        cJSON_ArrayForEach(one, mn_json_item(schema, combined[i])) types |=
            own_types(named(one, parameters));
    }
    return types;
}

/* The function of a tool, with this name; NULL: another one. */
static const cJSON *function_of(const cJSON *tool, mn_str name) {
    const cJSON *function = mn_json_item(tool, "function");
    if (!function)
        function = tool;
    const char *own = cJSON_GetStringValue(mn_json_item(function, "name"));
    return own && mn_str_is(name, own) ? function : NULL;
}

uint32_t mn_call_types_of(const cJSON *tools, mn_str name, mn_str key) {
    const cJSON *tool = NULL;
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *function = function_of(tool, name);
        const cJSON *parameters = mn_json_item(function, "parameters");
        const cJSON *schema = NULL;
        cJSON_ArrayForEach(schema, mn_json_item(parameters, "properties")) {
            if (schema->string && mn_str_is(key, schema->string))
                return types_of(schema, parameters);
        }
    }
    return 0;
}
