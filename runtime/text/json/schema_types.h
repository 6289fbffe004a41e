/* schema_types.h -- which types a JSON schema lets a value have. The writer of arguments of calls
 * (grammar/schema_tags.c) and their reader (text/chat/call_types.c) must agree on it. */
#ifndef MN_SCHEMA_TYPES_H
#define MN_SCHEMA_TYPES_H
#include <cjson/cJSON.h>
#include <stdint.h>

enum {
    MN_SCHEMA_TEXT = 1,
    MN_SCHEMA_NUMBER = 2,
    MN_SCHEMA_BOOL = 4,
    MN_SCHEMA_NULL = 8,
    MN_SCHEMA_LIST = 16,
    MN_SCHEMA_OBJECT = 32
};

/* The schema that a "$ref" names; NULL: unknown. */
typedef const cJSON *(*mn_schema_target_fn)(void *arg, const cJSON *schema);
typedef struct {
    mn_schema_target_fn target;
    void *arg;
    uint32_t visits; /* 0 at first; schemas that were visited, again for each reference */
} mn_schema_reader;
enum { MN_SCHEMA_VISITS = 10000 };
/* MN_SCHEMA_* of "type", else of "const", of "enum", or of the schemas that it combines; 0: the
 * schema states none, or (r->visits beyond MN_SCHEMA_VISITS) references spread over too many. */
uint32_t mn_schema_types(mn_schema_reader *r, const cJSON *schema);
#endif
