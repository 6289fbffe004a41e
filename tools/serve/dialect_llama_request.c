/* dialect_llama_request.c -- requests of llama-server's /completion and /infill as text
 * completions. They have the names of those (fields.def); here is what has another form: texts in
 * logit_bias, what of the answer is wanted, and the parts of /infill. */
#include "serve/dialect_llama.h"
#include <string.h>

/* ---- logit_bias ------------------------------------------------------------------------------ */

/* [id, bias] at the end of list. */
static int push_bias(cJSON *list, int32_t id, const cJSON *bias) {
    cJSON *pair = cJSON_CreateArray();
    if (pair && dialect_push(pair, cJSON_CreateNumber(id)) &&
        dialect_push(pair, cJSON_Duplicate(bias, 1)))
        return dialect_push(list, pair);
    cJSON_Delete(pair);
    return 0;
}

/* Every token of a text has the bias. */
static int push_text_bias(const served *m, cJSON *list, const char *text, const cJSON *bias,
                          json_error *e) {
    mn_error err = MN_ERROR;
    int32_t *ids = NULL;
    uint32_t n = 0;
    if (!serve_may_fit(m, strlen(text), "logit_bias", e))
        return 0;
    const mn_status st = mn_model_tokenize(m->a.model, mn_str_of(text), 0, &ids, &n, &err);
    if (st)
        return serve_library_error(&err, st, "logit_bias", e);
    int ok = 1;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = push_bias(list, ids[i], bias);
    mn_ids_free(ids);
    return ok;
}

/* An entry as pairs of ids. A key of an object may be the digits of an id; a text in a pair is a
 * text. What is neither is left to the reader of pairs. */
static int add_bias_item(const served *m, cJSON *list, const cJSON *item, json_error *e) {
    const cJSON *first = cJSON_IsArray(item) ? item->child : NULL;
    int64_t id = -1;
    if (item->string && parse_int(item->string, strlen(item->string), &id) && id >= 0 &&
        id < INT32_MAX)
        return push_bias(list, (int32_t)id, item);
    if (item->string)
        return push_text_bias(m, list, item->string, item, e);
    if (cJSON_IsString(first) && first->next)
        return push_text_bias(m, list, first->valuestring, first->next, e);
    return dialect_push(list, cJSON_Duplicate(item, 1));
}

static int llama_spell_bias(const served *m, cJSON *body, json_error *e) {
    const cJSON *bias = json_field(body, "logit_bias");
    const cJSON *item = NULL;
    if (!cJSON_IsObject(bias) && !cJSON_IsArray(bias))
        return 1; /* absent, or its reader refuses it */
    cJSON *list = cJSON_CreateArray();
    cJSON_ArrayForEach(item, bias) {
        if (!list || !add_bias_item(m, list, item, e)) {
            cJSON_Delete(list);
            return 0;
        }
    }
    if (list && cJSON_ReplaceItemInObjectCaseSensitive(body, "logit_bias", list))
        return 1;
    cJSON_Delete(list);
    return 0;
}

/* ---- what the answer has --------------------------------------------------------------------- */

/* Moves a field of the body into *kept. */
static int keep(cJSON *body, const char *name, cJSON **kept) {
    cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(body, name);
    if (!v)
        return 1;
    *kept = *kept ? *kept : cJSON_CreateObject();
    if (*kept)
        return dialect_add(*kept, name, v);
    cJSON_Delete(v);
    return 0;
}

/* Fields that text completions of OpenAI's form refuse: the answer here has the parts. */
static int llama_keep_fields(cJSON *body, cJSON **kept, json_error *e) {
    const cJSON *fields = json_field(body, "response_fields");
    const cJSON *field = NULL;
    int times = 0;
    if (fields && !cJSON_IsArray(fields))
        return json_fail(e, "response_fields", "response_fields: expected a list of names");
    cJSON_ArrayForEach(field, fields) {
        if (!cJSON_IsString(field))
            return json_fail(e, "response_fields", "response_fields: expected a list of names");
    }
    return json_read_bool(body, "timings_per_token", &times, e) &&
           keep(body, "response_fields", kept) && keep(body, "timings_per_token", kept);
}

cJSON *llama_completion_request(const served *m, const cJSON *body, cJSON **kept, json_error *e) {
    cJSON *out = cJSON_Duplicate(body, 1);
    if (out && llama_spell_bias(m, out, e) && llama_keep_fields(out, kept, e))
        return out;
    cJSON_Delete(out);
    return NULL;
}

/* ---- infill ---------------------------------------------------------------------------------- */

/* A text of the body; NULL: the error is set. */
static const char *llama_need_text(const cJSON *body, const char *name, json_error *e) {
    const char *text = NULL;
    if (json_read_string(body, name, &text, e) && !text)
        json_fail(e, name, "%s: found none, expected a string", name);
    return text;
}

/* input_prefix and what stands before the cursor of its line; then what is behind it. */
static int add_infill_parts(cJSON *out, const cJSON *body, json_error *e) {
    const char *prefix = llama_need_text(body, "input_prefix", e);
    const char *suffix = prefix ? llama_need_text(body, "input_suffix", e) : NULL;
    const char *prompt = "";
    mn_text all = {0};
    if (!suffix || !json_read_string(body, "prompt", &prompt, e))
        return 0;
    mn_text_puts(&all, prefix);
    mn_text_puts(&all, prompt);
    cJSON_DeleteItemFromObjectCaseSensitive(out, "prompt");
    cJSON_DeleteItemFromObjectCaseSensitive(out, "suffix");
    const int ok = !all.failed &&
                   dialect_add(out, "prompt", cJSON_CreateString(all.ptr ? all.ptr : "")) &&
                   dialect_add(out, "suffix", cJSON_CreateString(suffix));
    mn_text_free(&all);
    /* an empty list: there is a middle even where nothing follows */
    return ok && (json_field(out, "input_extra") ||
                  (cJSON_DeleteItemFromObjectCaseSensitive(out, "input_extra"),
                   dialect_add(out, "input_extra", cJSON_CreateArray())));
}

cJSON *llama_infill_request(const served *m, const cJSON *body, cJSON **kept, json_error *e) {
    cJSON *out = llama_completion_request(m, body, kept, e);
    if (out && add_infill_parts(out, body, e))
        return out;
    cJSON_Delete(out);
    return NULL;
}
