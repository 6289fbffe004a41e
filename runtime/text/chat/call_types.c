/* call_types.c -- the types of parameters by the JSON schemas of a request's tools (call_types.h,
 * json/schema_types.h): which tool and which parameter is meant, and what a "$ref" among the
 * definitions names. The tree belongs to a stream, which looks at it once per value. */
#include "text/chat/call_types.h"
#include "text/json/json.h"
#include "text/json/schema_types.h"
#include <string.h>

mn_status mn_call_types_read(mn_str tools, cJSON **out, mn_error *err) {
    const char *end = NULL;
    bool no_memory = false;
    cJSON *list = mn_json_tree(tools.ptr, (size_t)tools.len, &end, &no_memory);
    if (no_memory)
        return mn_fail_memory(err, tools.len);
    if (cJSON_IsArray(list)) {
        *out = list;
        return MN_OK;
    }
    cJSON_Delete(list);
    return mn_fail(err, MN_INVALID, "tools: found no JSON list, expected one of tools");
}

/* What a schema's "$ref" names among the definitions of the parameters. */
static const cJSON *call_types_named(void *parameters, const cJSON *schema) {
    static const char *const folders[] = {"$defs", "definitions"};
    const char *ref = cJSON_GetStringValue(mn_json_item(schema, "$ref"));
    for (size_t i = 0; ref && i < MN_COUNT(folders); i++) {
        const size_t n = strlen(folders[i]);
        if (strncmp(ref, "#/", 2) || strncmp(ref + 2, folders[i], n) || ref[2 + n] != '/')
            continue;
        return mn_json_item(mn_json_item(parameters, folders[i]), ref + 3 + n);
    }
    return NULL;
}

/* The function of a tool, with this name; NULL: another one. */
static const cJSON *function_of(const cJSON *tool, mn_str name) {
    const cJSON *function = mn_json_item(tool, "function");
    if (!function)
        function = tool;
    const char *own = cJSON_GetStringValue(mn_json_item(function, "name"));
    return own && mn_str_is(name, own) ? function : NULL;
}

static const cJSON *call_types_find(const cJSON *tools, mn_str name) {
    const cJSON *tool = NULL;
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *function = function_of(tool, name);
        if (function)
            return function;
    }
    return NULL;
}

bool mn_call_types_has(const cJSON *tools, mn_str name) {
    return call_types_find(tools, name) != NULL;
}

bool mn_call_types_begins(const cJSON *tools, mn_str name) {
    const cJSON *tool = NULL;
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *function = mn_json_item(tool, "function");
        const char *own = cJSON_GetStringValue(mn_json_item(function ? function : tool, "name"));
        if (own && strlen(own) >= name.len && !memcmp(own, name.ptr, (size_t)name.len))
            return true;
    }
    return false;
}

/* The schema of a parameter; NULL: the tool does not state it. */
static const cJSON *schema_of(const cJSON *parameters, mn_str key) {
    const cJSON *schema = NULL;
    cJSON_ArrayForEach(schema, mn_json_item(parameters, "properties")) {
        if (schema->string && mn_str_is(key, schema->string))
            return schema;
    }
    return NULL;
}

bool mn_call_types_has_key(const cJSON *tools, mn_str name, mn_str key) {
    return schema_of(mn_json_item(call_types_find(tools, name), "parameters"), key) != NULL;
}

uint32_t mn_call_types_of(const cJSON *tools, mn_str name, mn_str key) {
    const cJSON *parameters = mn_json_item(call_types_find(tools, name), "parameters");
    const cJSON *schema = schema_of(parameters, key);
    mn_schema_reader r = {call_types_named, (void *)(uintptr_t)parameters, 0};
    return schema ? mn_schema_types(&r, schema) : 0;
}
