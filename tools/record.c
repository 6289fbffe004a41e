/* record.c -- values of the records that the library gives as JSON. A record comes from the same
 * build as this program, but a key may be absent in it (a step that did not happen), so a missing
 * value is an empty one. Holds nothing. */
#include "record.h"

const char *record_text(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}

double record_number(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}
