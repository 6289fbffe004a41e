/* chat.c -- messages through a model's chat template. */
#include "text/chat.h"
#include "text/jinja_eval.h"
#include "text/jinja_render.h"
#include <cjson/cJSON.h>
#include <string.h>

/* ---- finding the template ---- */

static const mn_file *file_named(const mn_file *files, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (mn_str_is(files[i].name, name)) return &files[i];
    return NULL;
}

static mn_status put_source(mn_text *source, mn_str s, mn_error *err) {
    mn_text_put(source, s.ptr, (size_t)s.len);
    return source->failed ? mn_fail_memory(err, s.len) : MN_OK;
}

static const char *named_default(const cJSON *list) {
    const char *found = NULL;
    for (const cJSON *i = list->child; i; i = i->next) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "name"));
        if (name && !strcmp(name, "default"))
            found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "template"));
    }
    return found;
}

static mn_status from_config(const mn_file *file, mn_text *source, mn_error *err) {
    cJSON *json = cJSON_ParseWithLength(file->map, (size_t)file->bytes);
    if (!json) return mn_fail(err, MN_BAD_FILE, "%.*s: not valid JSON", MN_STR_ARG(file->name));
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(json, "chat_template");
    const char *text = cJSON_IsArray(entry) ? named_default(entry) : cJSON_GetStringValue(entry);
    mn_status status = MN_END;
    if (text)
        status = put_source(source, mn_str_of(text), err);
    else if (entry && !cJSON_IsNull(entry))
        status = mn_fail(err, MN_BAD_FILE,
                         "%.*s: chat_template is neither a string nor a list with a template named \"default\"",
                         MN_STR_ARG(file->name));
    cJSON_Delete(json);
    return status;
}

mn_status mn_chat_template_find(const mn_meta *meta, const mn_file *files, uint32_t n_files, mn_text *source,
                                mn_error *err) {
    mn_str text;
    if (meta) {
        mn_status status = mn_meta_str(meta, "tokenizer.chat_template", &text, err);
        if (status == MN_OK) return put_source(source, text, err);
        if (status != MN_END) return status;
    }
    const mn_file *file = files ? file_named(files, n_files, "chat_template.jinja") : NULL;
    if (file) return put_source(source, (mn_str){file->map, file->bytes}, err);
    file = files ? file_named(files, n_files, "tokenizer_config.json") : NULL;
    return file ? from_config(file, source, err) : MN_END;
}

/* ---- rendering ---- */

typedef struct {
    const mn_chat_message *messages;
    uint32_t n;
    bool add_generation_prompt;
    mn_str bos, eos;
} chat_vars;

static bool known_role(mn_str role) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    for (size_t i = 0; i < MN_COUNT(roles); i++)
        if (mn_str_is(role, roles[i])) return true;
    return false;
}

static bool set(mn_jctx *c, mn_jdict *d, const char *name, mn_jval v) {
    mn_jval key;
    return mn_j_literal(c, name, &key) && mn_jdict_set(c, d, key, v);
}

static bool set_str(mn_jctx *c, mn_jdict *d, const char *name, mn_str s, uint8_t mark) {
    mn_jval v;
    return mn_j_string(c, (mn_jstr){s.ptr ? s.ptr : "", NULL, (size_t)s.len, mark, false}, &v) && set(c, d, name, v);
}

static bool fill_chat(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const chat_vars *from = arg;
    mn_jlist *messages = mn_jlist_new(c, from->n);
    if (!messages) return false;
    for (uint32_t i = 0; i < from->n; i++) {
        const mn_chat_message *m = &from->messages[i];
        mn_jdict *d = mn_jdict_new(c);
        if (!d || !set_str(c, d, "role", m->role, !known_role(m->role)) || !set_str(c, d, "content", m->content, 1) ||
            !mn_jlist_add(c, messages, mn_j_dictval(d)))
            return false;
    }
    return set(c, vars, "messages", mn_j_listval(MN_J_LIST, messages)) && set(c, vars, "tools", mn_j_of(MN_J_NONE)) &&
           set(c, vars, "documents", mn_j_of(MN_J_NONE)) &&
           set(c, vars, "add_generation_prompt", mn_j_bool(from->add_generation_prompt)) &&
           (!from->bos.ptr || set_str(c, vars, "bos_token", from->bos, 0)) &&
           (!from->eos.ptr || set_str(c, vars, "eos_token", from->eos, 0));
}

mn_status mn_chat_render(const mn_jinja *tmpl, const mn_chat_message *messages, uint32_t n, bool add_generation_prompt,
                         mn_str bos, mn_str eos, int64_t now, mn_text *out, mn_text *marks, mn_error *err) {
    chat_vars from = {messages, n, add_generation_prompt, bos, eos};
    return mn_jinja_render_with(tmpl, fill_chat, &from, now, out, marks, err);
}

typedef struct {
    mn_str json, bos, eos;
} json_vars;

static bool set_missing(mn_jctx *c, mn_jdict *d, const char *name, mn_str s) {
    return !s.len || mn_jdict_name(d, mn_str_of(name)) || set_str(c, d, name, s, 0);
}

static bool fill_json(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const json_vars *from = arg;
    return mn_jvars_from_json(c, from->json, NULL, vars) && set_missing(c, vars, "bos_token", from->bos) &&
           set_missing(c, vars, "eos_token", from->eos);
}

mn_status mn_chat_render_json(const mn_jinja *tmpl, mn_str vars, mn_str bos, mn_str eos, int64_t now, mn_text *out,
                              mn_error *err) {
    json_vars from = {vars, bos, eos};
    return mn_jinja_render_with(tmpl, fill_json, &from, now, out, NULL, err);
}
