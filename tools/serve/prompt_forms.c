/* prompt_forms.c -- ids of prompts (prompt_forms.h), for text completions and embeddings. */
#include "serve/prompt_forms.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int prompt_is_list(const cJSON *v) {
    const cJSON *item = NULL;
    if (!cJSON_IsArray(v))
        return 0;
    cJSON_ArrayForEach(item, v) {
        if (cJSON_IsNumber(item))
            return 0;
    }
    return 1;
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* The ids of one prompt while its parts are read. */
typedef struct {
    const served *m;
    const char *param;
    uint32_t flags; /* of the next text */
    int32_t *ids;
    uint32_t n, cap;
    json_error *e;
} prompt_list;

static int prompt_put(prompt_list *l, const int32_t *ids, uint32_t n) {
    if (n > l->cap - l->n) {
        const uint32_t cap = l->n + l->n / 2 + n + 16;
        int32_t *grown = realloc(l->ids, cap * sizeof *grown);
        if (!grown)
            return json_no_memory(l->e);
        l->ids = grown;
        l->cap = cap;
    }
    if (n)
        memcpy(l->ids + l->n, ids, n * sizeof *ids);
    l->n += n;
    return 1;
}

static int prompt_put_text(prompt_list *l, const char *text) {
    mn_error err = MN_ERROR;
    int32_t *ids = NULL;
    uint32_t n = 0;
    const mn_str str = {text, strlen(text)};
    if (!serve_may_fit(l->m, str.len, l->param, l->e))
        return 0;
    const mn_status st = mn_model_tokenize(l->m->a.model, str, l->flags, &ids, &n, &err);
    if (st)
        return serve_library_error(&err, st, l->param, l->e);
    const int ok = prompt_put(l, ids, n);
    mn_ids_free(ids);
    l->flags &= ~MN_TEXT_ADD_SPECIAL;
    return ok;
}

static int prompt_put_id(prompt_list *l, const cJSON *v) {
    const double n_vocab = (double)l->m->a.info.n_vocab;
    const double x = cJSON_IsNumber(v) ? v->valuedouble : -1;
    char found[80];
    if (!(x >= 0 && x < n_vocab) || x != floor(x))
        return json_fail(l->e, l->param, "%s: found %s, expected token ids below %.0f", l->param,
                         json_found(v, found, sizeof found), n_vocab);
    l->flags &= ~MN_TEXT_ADD_SPECIAL;
    return prompt_put(l, &(int32_t){(int32_t)x}, 1);
}

/* {"prompt_string": TEXT}, or {"content": [{"type": "text", "text": TEXT}, ...]}. */
static int prompt_put_object(prompt_list *l, const cJSON *v) {
    const char *text = cJSON_GetStringValue(json_field(v, "prompt_string"));
    const cJSON *data = json_field(v, "multimodal_data");
    const cJSON *parts = json_field(v, "content");
    const cJSON *part = NULL;
    mn_text all = {0};
    if (data && (!cJSON_IsArray(data) || data->child))
        return json_fail(l->e, l->param, "%s: multimodal_data: this server reads text only",
                         l->param);
    if (text)
        return prompt_put_text(l, text);
    cJSON_ArrayForEach(part, parts) {
        const char *type = cJSON_GetStringValue(json_field(part, "type"));
        const char *piece = cJSON_GetStringValue(json_field(part, "text"));
        if (!type || strcmp(type, "text") != 0 || !piece) {
            mn_text_free(&all);
            return json_fail(l->e, l->param,
                             "%s: found a part of type \"%.40s\", expected \"text\": this server "
                             "reads text only",
                             l->param, type ? type : "");
        }
        mn_text_puts(&all, piece);
    }
    if (!cJSON_IsArray(parts))
        return json_fail(l->e, l->param,
                         "%s: found an object, expected prompt_string or content (a list of parts)",
                         l->param);
    const char *joined = all.ptr ? all.ptr : "";
    const int ok = all.failed ? json_no_memory(l->e) : prompt_put_text(l, joined);
    mn_text_free(&all);
    return ok;
}

static int prompt_put_part(prompt_list *l, const cJSON *v) {
    if (cJSON_IsString(v))
        return prompt_put_text(l, v->valuestring);
    return cJSON_IsObject(v) ? prompt_put_object(l, v) : prompt_put_id(l, v);
}

int prompt_ids(const served *m, const cJSON *prompt, const char *param, uint32_t flags,
               int32_t **ids, uint32_t *n, json_error *e) {
    prompt_list l = {.m = m, .param = param, .flags = flags, .e = e};
    const cJSON *item = NULL;
    int ok = 1;
    if (cJSON_IsArray(prompt)) {
        cJSON_ArrayForEach(item, prompt) {
            ok = ok && prompt_put_part(&l, item);
        }
    } else if (cJSON_IsString(prompt) || cJSON_IsObject(prompt)) {
        ok = prompt_put_part(&l, prompt);
    } else {
        ok = json_fail(e, param, "%s: expected a string, or a list of token ids", param);
    }
    ok = ok && prompt_put(&l, NULL, 0);
    if (!ok) {
        free(l.ids);
        return 0;
    }
    *ids = l.ids;
    *n = l.n;
    return 1;
}

/* ---- text ------------------------------------------------------------------------------------ */

static char *prompt_text_of_ids(const served *m, const int32_t *ids, uint32_t n) {
    mn_stream *stream = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    mn_text text = {0};
    if (mn_stream_create(m->a.model, MN_STREAM_PLAIN, &stream, NULL))
        return NULL;
    for (uint32_t i = 0; i <= n; i++) {
        const mn_status st = i < n ? mn_stream_push(stream, ids[i], &events, &n_events, NULL)
                                   : mn_stream_finish(stream, &events, &n_events, NULL);
        for (uint32_t k = 0; !st && k < n_events; k++)
            mn_text_put(&text, events[k].text.ptr, events[k].text.len);
        text.failed |= st != MN_OK;
    }
    mn_stream_free(stream);
    return mn_text_take(&text);
}

char *prompt_text(const served *m, const cJSON *prompt, const int32_t *ids, uint32_t n) {
    return cJSON_IsString(prompt) ? strdup(prompt->valuestring) : prompt_text_of_ids(m, ids, n);
}
