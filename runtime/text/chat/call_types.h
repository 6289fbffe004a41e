/* call_types.h -- the types that the tools of a request state for their parameters, for the form of
 * calls that writes values bare (call_tags.c). */
#ifndef MN_CALL_TYPES_H
#define MN_CALL_TYPES_H
#include "base/base.h"

struct cJSON;
/* tools: a list of {"type": "function", "function": {"name", "parameters": a JSON schema}}.
 * cJSON_Delete by the caller. MN_INVALID: something else. */
mn_status mn_call_types_read(mn_str tools, struct cJSON **out, mn_error *err);
/* The MN_SCHEMA_* (json/schema_types.h) that a parameter may have; 0: the schema states none.
 * tools: may be NULL. */
uint32_t mn_call_types_of(const struct cJSON *tools, mn_str name, mn_str key);

/* Whether a tool has this name, whether a name begins so, and whether the tool has this parameter.
 * tools: may be NULL. */
bool mn_call_types_has(const struct cJSON *tools, mn_str name);
bool mn_call_types_begins(const struct cJSON *tools, mn_str name);
bool mn_call_types_has_key(const struct cJSON *tools, mn_str name, mn_str key);

#endif
