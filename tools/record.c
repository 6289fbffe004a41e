/* record.c -- values of the records that the library gives as JSON. A record comes from the same
 * build as this program, but a key may be absent in it (a step that did not happen), so a missing
 * value is an empty one. Holds nothing. */
#include "record.h"
#include "table.h"
#include <stdio.h>

const char *record_text(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}

double record_number(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static void add_group(const cJSON *group, record_cost *cost) {
    const double pages = record_number(group, "pages");
    const double tokens = record_number(group, "page_tokens");
    const double bytes = pages > 0 ? record_number(group, "bytes") / pages : 0;
    if (tokens > 0)
        cost->per_token += bytes / tokens;
    else
        cost->state += bytes;
}

record_cost record_sequence_cost(const cJSON *placement) {
    record_cost cost = {0};
    const cJSON *segment;
    const cJSON *group;
    cJSON_ArrayForEach(segment, cJSON_GetObjectItemCaseSensitive(placement, "segments")) {
        const cJSON *groups = cJSON_GetObjectItemCaseSensitive(segment, "kv_groups");
        cJSON_ArrayForEach(group, groups) add_group(group, &cost);
    }
    return cost;
}

const char *record_cost_text(const record_cost *cost, char dst[96]) {
    char state[32];
    char token[32];
    human_bytes((uint64_t)cost->per_token, token);
    if (cost->state > 0)
        snprintf(dst, 96, "a sequence: %s of state, %s for each token",
                 human_bytes((uint64_t)cost->state, state), token);
    else
        snprintf(dst, 96, "a sequence: %s for each token", token);
    return dst;
}
