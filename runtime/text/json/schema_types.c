/* schema_types.c -- which types a JSON schema lets a value have (schema_types.h). A walk along
 * references and combined schemas, bounded in depth and in the number of schemas, since references
 * may form loops and spread without end. Nothing is kept. */
#include "text/json/schema_types.h"
#include "text/json/json.h"
#include <string.h>

enum { HOPS = 32 };

static uint32_t type_of_word(const cJSON *word) {
    static const struct {
        const char *word;
        uint32_t type;
    } known[] = {{"string", MN_SCHEMA_TEXT},    {"number", MN_SCHEMA_NUMBER},
                 {"integer", MN_SCHEMA_NUMBER}, {"boolean", MN_SCHEMA_BOOL},
                 {"null", MN_SCHEMA_NULL},      {"array", MN_SCHEMA_LIST},
                 {"object", MN_SCHEMA_OBJECT}};
    const char *text = cJSON_GetStringValue(word);
    for (size_t i = 0; text && i < MN_COUNT(known); i++)
        if (!strcmp(known[i].word, text))
            return known[i].type;
    return 0;
}

static uint32_t type_of_literal(const cJSON *v) {
    if (cJSON_IsString(v))
        return MN_SCHEMA_TEXT;
    if (cJSON_IsNumber(v))
        return MN_SCHEMA_NUMBER;
    if (cJSON_IsBool(v))
        return MN_SCHEMA_BOOL;
    if (cJSON_IsNull(v))
        return MN_SCHEMA_NULL;
    return cJSON_IsArray(v) ? MN_SCHEMA_LIST : MN_SCHEMA_OBJECT;
}

/* The types of one schema, without those of what it combines. */
static uint32_t own_types(const cJSON *schema) {
    const cJSON *type = mn_json_item(schema, "type");
    const cJSON *one = mn_json_item(schema, "const");
    const cJSON *x = NULL;
    uint32_t types = type_of_word(type);
    cJSON_ArrayForEach(x, type) types |= type_of_word(x);
    if (types)
        return types;
    if (one)
        return type_of_literal(one);
    cJSON_ArrayForEach(x, mn_json_item(schema, "enum")) types |= type_of_literal(x);
    return types;
}

static uint32_t schema_types_types_of(mn_schema_reader *r, const cJSON *schema, uint32_t hops) {
    static const char *const combined[] = {"anyOf", "oneOf", "allOf"};
    if (!schema || hops == HOPS || ++r->visits > MN_SCHEMA_VISITS)
        return 0;
    if (mn_json_item(schema, "$ref"))
        return schema_types_types_of(r, r->target(r->arg, schema), hops + 1);
    uint32_t types = own_types(schema);
    for (size_t i = 0; i < MN_COUNT(combined) && !types; i++) {
        const cJSON *one = NULL;
        cJSON_ArrayForEach(one, mn_json_item(schema, combined[i])) types |=
            schema_types_types_of(r, one, hops + 1);
    }
    return types;
}

uint32_t mn_schema_types(mn_schema_reader *r, const cJSON *schema) {
    return schema_types_types_of(r, schema, 0);
}
