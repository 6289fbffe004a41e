/* chat.c -- messages through a model's chat template. */
#include "text/chat/chat.h"
#include "text/jinja/eval.h"
#include "text/jinja/render.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* ---- finding the template -------------------------------------------------------------------- */

static mn_status put_source(mn_text *source, mn_str s, const char *name, mn_error *err) {
    mn_status st = mn_companion_text(&s, MN_COMPANION_MAX, name, err);
    const char *nul = !st && s.len ? memchr(s.ptr, 0, s.len) : NULL;
    if (nul)
        st = mn_fail(err, MN_BAD_FILE, "%s: found a NUL at byte %zu, expected text", name,
                     (size_t)(nul - s.ptr));
    if (st)
        return st;
    mn_text_put(source, s.ptr, (size_t)s.len);
    return source->failed ? mn_fail_memory(err, s.len) : MN_OK;
}

static const char *named(const cJSON *list, const char *wanted) {
    const char *found = NULL;
    for (const cJSON *i = list->child; i; i = i->next) {
        const char *name = cJSON_GetStringValue(mn_json_item(i, "name"));
        if (name && !strcmp(name, wanted))
            found = cJSON_GetStringValue(mn_json_item(i, "template"));
    }
    return found;
}

static mn_status from_config(const mn_file *files, uint32_t n_files, const char *name,
                             mn_text *source, mn_error *err) {
    static const char file[] = "tokenizer_config.json";
    const bool plain = !strcmp(name, "default");
    cJSON *json = NULL;
    mn_status status = mn_json_file(files, n_files, file, &json, err);
    if (status || !json)
        return status ? status : MN_END;
    const cJSON *entry = mn_json_item(json, "chat_template");
    const char *text = cJSON_IsArray(entry) ? named(entry, name)
                       : plain              ? cJSON_GetStringValue(entry)
                                            : NULL;
    status = MN_END;
    if (text)
        status = put_source(source, mn_str_of(text), file, err);
    else if (plain && entry && !cJSON_IsNull(entry))
        status = mn_fail(
            err, MN_BAD_FILE,
            "%s: chat_template is neither a string nor a list with a template named \"default\"",
            file);
    cJSON_Delete(json);
    return status;
}

mn_status mn_chat_template_find(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                                const char *name, mn_text *source, mn_error *err) {
    const bool plain = !strcmp(name, "default");
    char key[64];
    mn_str text;
    snprintf(key, sizeof key, "tokenizer.chat_template%s%s", plain ? "" : ".", plain ? "" : name);
    if (meta) {
        mn_status status = mn_meta_str(meta, key, &text, err);
        if (status == MN_OK)
            return put_source(source, text, key, err);
        if (status != MN_END)
            return status;
    }
    static const char jinja[] = "chat_template.jinja";
    const mn_file *file = files && plain ? mn_file_named(files, n_files, jinja) : NULL;
    if (file)
        return put_source(source, (mn_str){file->map, file->bytes}, jinja, err);
    return files ? from_config(files, n_files, name, source, err) : MN_END;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static bool known_role(mn_str role) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    for (size_t i = 0; i < MN_COUNT(roles); i++)
        if (mn_str_is(role, roles[i]))
            return true;
    return false;
}

static bool set(mn_jctx *c, mn_jdict *d, const char *name, mn_jval v) {
    mn_jval key;
    return mn_j_literal(c, name, &key) && mn_jdict_set(c, d, key, v);
}

static bool set_str(mn_jctx *c, mn_jdict *d, const char *name, mn_str s, uint8_t mark) {
    mn_jval v;
    return mn_j_string(c, (mn_jstr){s.ptr ? s.ptr : "", NULL, (size_t)s.len, mark}, &v) &&
           set(c, d, name, v);
}

static bool wrong_type(mn_jctx *c, const char *what, mn_jval v, const char *expected) {
    const char *found = v.type == MN_J_NONE   ? "null"
                        : v.type == MN_J_BOOL ? "a boolean"
                        : v.type == MN_J_STR  ? "a string"
                        : v.type == MN_J_LIST ? "a list"
                        : v.type == MN_J_DICT ? "an object"
                                              : "a number";
    return mn_jfail(c, "%s: found %s, expected %s", what, found, expected);
}

/* A message must have a role; one that every template knows is template text: "<|" ~ role ~ "|>" is
 * a special token. */
static bool take_role(mn_jctx *c, const char *what, mn_jdict *d) {
    mn_jval *role = mn_jdict_name(c, d, mn_str_of("role"));
    if (!role)
        return mn_jfail(c, "%s: found no \"role\", expected a string", what);
    if (role->type != MN_J_STR)
        return wrong_type(c, what, *role, "a string as \"role\"");
    mn_str s = mn_jstr_bytes(role->u.s);
    return !known_role(s) || set_str(c, d, "role", s, 0);
}

/* What was thought goes by several names; as in Transformers, templates find it under the two that
 * they read. */
static bool alias_thoughts(mn_jctx *c, mn_jdict *d) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const mn_jval *found = mn_jdict_name(c, d, mn_str_of(names[i]));
        if (!found || found->type == MN_J_NONE)
            continue;
        mn_jval thoughts = *found;
        bool has = mn_jdict_name(c, d, mn_str_of("thinking")) != NULL;
        return set(c, d, "reasoning_content", thoughts) && (has || set(c, d, "thinking", thoughts));
    }
    return true;
}

static bool add_history(mn_jctx *c, mn_str json, mn_jlist *messages) {
    mn_jval list;
    char what[32];
    if (!mn_j_from_json(c, "history", json, &list))
        return false;
    if (list.type != MN_J_LIST)
        return wrong_type(c, "history", list, "a list of messages");
    for (size_t i = 0; i < list.u.l->n; i++) {
        mn_jval message = list.u.l->items[i];
        snprintf(what, sizeof what, "history[%zu]", i);
        if (message.type != MN_J_DICT)
            return wrong_type(c, what, message, "an object");
        if (!take_role(c, what, message.u.d) || !alias_thoughts(c, message.u.d) ||
            !mn_jlist_add(c, messages, message))
            return false;
    }
    return true;
}

static bool add_message(mn_jctx *c, const mn_chat_message *m, size_t i, mn_jlist *messages) {
    mn_jdict *d = mn_jdict_new(c);
    mn_jval more;
    char what[48];
    snprintf(what, sizeof what, "messages[%zu].more", i);
    if (!d || !set_str(c, d, "role", m->role, 1) || !set_str(c, d, "content", m->content, 1))
        return false;
    if (m->more.len) {
        if (!mn_j_from_json(c, what, m->more, &more))
            return false;
        if (more.type != MN_J_DICT)
            return wrong_type(c, what, more, "an object");
        for (size_t k = 0; k < more.u.d->n; k++)
            if (!mn_jdict_set(c, d, more.u.d->items[k].key, more.u.d->items[k].value))
                return false;
    }
    return take_role(c, what, d) && alias_thoughts(c, d) &&
           mn_jlist_add(c, messages, mn_j_dictval(d));
}

static bool add_tools(mn_jctx *c, mn_str json, mn_jdict *vars) {
    mn_jval list = mn_j_of(MN_J_NONE);
    char what[32];
    if (json.len && !mn_j_from_json(c, "tools", json, &list))
        return false;
    if (json.len && list.type != MN_J_LIST)
        return wrong_type(c, "tools", list, "a list of tools");
    for (size_t i = 0; json.len && i < list.u.l->n; i++) {
        snprintf(what, sizeof what, "tools[%zu]", i);
        if (list.u.l->items[i].type != MN_J_DICT)
            return wrong_type(c, what, list.u.l->items[i], "an object");
    }
    return set(c, vars, "tools", list);
}

/* The caller's variables, but for those that have a place of their own. */
static bool add_vars(mn_jctx *c, mn_str json, mn_jdict *vars) {
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                        "eos_token"};
    mn_jval own;
    if (!json.len)
        return true;
    if (!mn_j_from_json(c, "vars", json, &own))
        return false;
    if (own.type != MN_J_DICT)
        return wrong_type(c, "vars", own, "an object");
    for (size_t i = 0; i < MN_COUNT(taken); i++)
        if (mn_jdict_name(c, own.u.d, mn_str_of(taken[i])))
            return mn_jfail(c, "vars: found \"%s\", which is given elsewhere", taken[i]);
    for (size_t i = 0; i < own.u.d->n; i++)
        if (!mn_jdict_set(c, vars, own.u.d->items[i].key, own.u.d->items[i].value))
            return false;
    return true;
}

typedef struct {
    const mn_chat *chat;
    uint32_t n;
    bool answer;
    uint32_t *part; /* MN_CHAT_PART_*: the text that is being read */
} chat_vars;

static bool fill_chat(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const chat_vars *from = arg;
    const mn_chat *chat = from->chat;
    mn_jlist *messages = mn_jlist_new(c, 0);
    *from->part = MN_CHAT_PART_HISTORY;
    if (!messages || (chat->history.len && !add_history(c, chat->history, messages)))
        return false;
    *from->part = MN_CHAT_PART_MESSAGES;
    for (uint32_t i = 0; i < MN_MIN(chat->n, from->n); i++)
        if (!add_message(c, &chat->messages[i], i, messages))
            return false;
    if (!set(c, vars, "messages", mn_j_listval(MN_J_LIST, messages)) ||
        !set(c, vars, "documents", mn_j_of(MN_J_NONE)) ||
        !set(c, vars, "add_generation_prompt", mn_j_bool(from->answer)) ||
        (chat->bos.ptr && !set_str(c, vars, "bos_token", chat->bos, 0)) ||
        (chat->eos.ptr && !set_str(c, vars, "eos_token", chat->eos, 0)))
        return false;
    *from->part = MN_CHAT_PART_TOOLS;
    if (!add_tools(c, chat->tools, vars))
        return false;
    *from->part = MN_CHAT_PART_VARS;
    if (!add_vars(c, chat->vars, vars))
        return false;
    *from->part = MN_CHAT_PART_TEMPLATE;
    return true;
}

mn_status mn_chat_render(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                         int64_t now, mn_text *out, mn_text *marks, mn_error *err) {
    uint32_t part = MN_CHAT_PART_HISTORY;
    chat_vars from = {chat, n, answer, &part};
    mn_status status = mn_jinja_render_with(tmpl, fill_chat, &from, now, out, marks, err);
    if (status && err)
        err->part = part;
    if (part == MN_CHAT_PART_TEMPLATE || status != MN_BAD_INPUT)
        return status;
    if (err)
        err->status = MN_INVALID; // the caller's texts, before the template saw them
    return MN_INVALID;
}

typedef struct {
    mn_str json, bos, eos;
} json_vars;

static bool set_missing(mn_jctx *c, mn_jdict *d, const char *name, mn_str s) {
    return !s.len || mn_jdict_name(c, d, mn_str_of(name)) || set_str(c, d, name, s, 0);
}

static bool fill_json(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const json_vars *from = arg;
    return mn_jvars_from_json(c, from->json, NULL, vars) &&
           set_missing(c, vars, "bos_token", from->bos) &&
           set_missing(c, vars, "eos_token", from->eos);
}

mn_status mn_chat_render_json(const mn_jinja *tmpl, mn_str vars, mn_str bos, mn_str eos,
                              int64_t now, mn_text *out, mn_error *err) {
    json_vars from = {vars, bos, eos};
    return mn_jinja_render_with(tmpl, fill_json, &from, now, out, NULL, err);
}
