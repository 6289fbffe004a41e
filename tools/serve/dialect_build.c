/* dialect_build.c -- the pieces that dialects build the chat's request of (dialect.h). */
#include "serve/dialect.h"

int dialect_add(cJSON *object, const char *name, cJSON *v) {
    if (v && cJSON_AddItemToObject(object, name, v))
        return 1;
    cJSON_Delete(v);
    return 0;
}

int dialect_push(cJSON *list, cJSON *v) {
    if (v && cJSON_AddItemToArray(list, v))
        return 1;
    cJSON_Delete(v);
    return 0;
}

int dialect_copy(cJSON *object, const char *name, const cJSON *v) {
    return !v || dialect_add(object, name, cJSON_Duplicate(v, 1));
}
