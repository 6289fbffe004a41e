/* windows.c -- the ids of a text that is run in windows, each of which begins as a text does. */
#include "app.h"
#include <stdlib.h>
#include <string.h>

int32_t app_first_id(app *a) {
    int32_t *ids = NULL;
    uint32_t n = 0;
    mn_error why = MN_ERROR;
    if (mn_model_tokenize(a->model, (mn_str){"", 0}, MN_TEXT_ADD_SPECIAL, &ids, &n, &why) != MN_OK)
        return -1;
    const int32_t id = n ? ids[0] : -1;
    mn_ids_free(ids);
    return id;
}

int app_text_ids(app *a, const char *path, int parse_special, int32_t **ids, uint32_t *n) {
    char *data;
    size_t bytes;
    int32_t *made = NULL;
    int code = read_all_text(path, &data, &bytes);
    if (code)
        return code;
    const uint32_t how = MN_TEXT_ADD_SPECIAL | (parse_special ? MN_TEXT_PARSE_SPECIAL : 0);
    const mn_status status =
        mn_model_tokenize(a->model, (mn_str){data, bytes}, how, &made, n, &a->err);
    free(data);
    if (status != MN_OK)
        return app_fail(a, status);
    *ids = malloc((*n + 1) * sizeof **ids);
    if (*ids)
        memcpy(*ids, made, *n * sizeof **ids);
    mn_ids_free(made);
    return *ids ? 0 : no_memory();
}
