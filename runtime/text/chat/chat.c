/* chat.c -- messages through a model's chat template: the caller's texts become variables of the
 * template (mn_jval), each marked as the user's or as template text, so that no text of a user is
 * taken for a special token. All values live in the arena of the rendering. templates.c finds the
 * template, jinja/ runs it. */
#include "text/chat/chat.h"
#include "text/jinja/eval.h"
#include "text/jinja/render.h"
#include <stdio.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

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

/* mark: 1 = the user's */
static bool set_str(mn_jctx *c, mn_jdict *d, const char *name, mn_str s, uint8_t mark) {
    const char *bytes = s.ptr ? s.ptr : "";
    const mn_jstr text = {bytes, NULL, (size_t)s.len, mark};
    mn_jval v;
    if (!mn_j_string(c, text, &v))
        return false;
    return set(c, d, name, v);
}

/* In JSON's words, since the caller wrote JSON. */
static const char *found_type(mn_jval v) {
    switch (v.type) {
    case MN_J_NONE:
        return "null";
    case MN_J_BOOL:
        return "a boolean";
    case MN_J_STR:
        return "a string";
    case MN_J_LIST:
        return "a list";
    case MN_J_DICT:
        return "an object";
    default:
        return "a number";
    }
}

static bool wrong_type(mn_jctx *c, const char *what, mn_jval v, const char *expected) {
    return mn_jfail(c, "%s: found %s, expected %s", what, found_type(v), expected);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A message must have a role; one that every template knows is template text: "<|" ~ role ~ "|>" is
 * a special token. */
static bool take_role(mn_jctx *c, const char *what, mn_jdict *d) {
    const mn_jval *role = mn_jdict_name(c, d, mn_str_of("role"));
    if (!role)
        return mn_jfail(c, "%s: found no \"role\", expected a string", what);
    if (role->type != MN_J_STR)
        return wrong_type(c, what, *role, "a string as \"role\"");
    const mn_str s = mn_jstr_bytes(role->u.s);
    if (!known_role(s))
        return true;
    return set_str(c, d, "role", s, 0);
}

/* What was thought goes by several names; as in Transformers, templates find it under the two that
 * they read. */
static bool alias_thoughts(mn_jctx *c, mn_jdict *d) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const bool has = mn_jdict_name(c, d, mn_str_of("thinking"));
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const mn_jval *found = mn_jdict_name(c, d, mn_str_of(names[i]));
        if (!found || found->type == MN_J_NONE)
            continue;
        const mn_jval thoughts = *found; // what follows may move it
        if (!set(c, d, "reasoning_content", thoughts))
            return false;
        return has || set(c, d, "thinking", thoughts);
    }
    return true;
}

/* json: a list of messages, all of it the user's but for the roles that templates know. */
static bool add_history(mn_jctx *c, mn_str json, mn_jlist *messages) {
    mn_jval list;
    char what[32];
    if (!mn_j_from_json(c, "history", json, &list))
        return false;
    if (list.type != MN_J_LIST)
        return wrong_type(c, "history", list, "a list of messages");
    for (size_t i = 0; i < list.u.l->n; i++) {
        const mn_jval message = list.u.l->items[i];
        snprintf(what, sizeof what, "history[%zu]", i);
        if (message.type != MN_J_DICT)
            return wrong_type(c, what, message, "an object");
        if (!take_role(c, what, message.u.d) || !alias_thoughts(c, message.u.d) ||
            !mn_jlist_add(c, messages, message))
            return false;
    }
    return true;
}

/* m->more: keys that win over role and content. */
static bool add_more(mn_jctx *c, const char *what, mn_str json, mn_jdict *d) {
    mn_jval more;
    if (!json.len)
        return true;
    if (!mn_j_from_json(c, what, json, &more))
        return false;
    if (more.type != MN_J_DICT)
        return wrong_type(c, what, more, "an object");
    return mn_jdict_set_all(c, d, more.u.d->items, more.u.d->n);
}

/* Message number i as a dict: role and content, then what more says. */
static bool add_message(mn_jctx *c, const mn_chat_message *m, size_t i, mn_jlist *messages) {
    mn_jdict *d = mn_jdict_new(c);
    char what[48];
    snprintf(what, sizeof what, "messages[%zu].more", i);
    if (!d || !set_str(c, d, "role", m->role, 1))
        return false;
    if (!set_str(c, d, "content", m->content, 1))
        return false;
    if (!add_more(c, what, m->more, d))
        return false;
    if (!take_role(c, what, d) || !alias_thoughts(c, d))
        return false;
    return mn_jlist_add(c, messages, mn_j_dictval(d));
}

/* ---- other variables ------------------------------------------------------------------------- */

/* Without tools the variable is none, which templates ask for. */
static bool add_tools(mn_jctx *c, mn_str json, mn_jdict *vars) {
    mn_jval list = mn_j_of(MN_J_NONE);
    char what[32];
    if (!json.len)
        return set(c, vars, "tools", list);
    if (!mn_j_from_json(c, "tools", json, &list))
        return false;
    if (list.type != MN_J_LIST)
        return wrong_type(c, "tools", list, "a list of tools");
    for (size_t i = 0; i < list.u.l->n; i++) {
        const mn_jval tool = list.u.l->items[i];
        snprintf(what, sizeof what, "tools[%zu]", i);
        if (tool.type != MN_J_DICT)
            return wrong_type(c, what, tool, "an object");
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
    return mn_jdict_set_all(c, vars, own.u.d->items, own.u.d->n);
}

/* ---- rendering ------------------------------------------------------------------------------- */

typedef struct {
    const mn_chat *chat;
    uint32_t n;
    bool answer;
    uint32_t *part; /* MN_CHAT_PART_*: the text that is being read */
} chat_vars;

/* A token that the model has not is no variable: templates ask whether it is defined. */
static bool set_token(mn_jctx *c, mn_jdict *vars, const char *name, mn_str token) {
    return !token.ptr || set_str(c, vars, name, token, 0);
}

/* The messages: first the history, then the caller's. */
static bool add_messages(mn_jctx *c, mn_jdict *vars, const chat_vars *from) {
    const mn_chat *chat = from->chat;
    const uint32_t n = MN_MIN(chat->n, from->n);
    mn_jlist *messages = mn_jlist_new(c, 0);
    *from->part = MN_CHAT_PART_HISTORY;
    if (!messages)
        return false;
    if (chat->history.len && !add_history(c, chat->history, messages))
        return false;
    *from->part = MN_CHAT_PART_MESSAGES;
    for (uint32_t i = 0; i < n; i++)
        if (!add_message(c, &chat->messages[i], i, messages))
            return false;
    return set(c, vars, "messages", mn_j_listval(MN_J_LIST, messages));
}

/* from->part follows what is read, so that an error can say which text it is about. */
static bool fill_chat(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const chat_vars *from = arg;
    const mn_chat *chat = from->chat;
    const mn_jval none = mn_j_of(MN_J_NONE);
    if (!add_messages(c, vars, from))
        return false;
    if (!set(c, vars, "documents", none))
        return false;
    if (!set(c, vars, "add_generation_prompt", mn_j_bool(from->answer)))
        return false;
    if (!set_token(c, vars, "bos_token", chat->bos))
        return false;
    if (!set_token(c, vars, "eos_token", chat->eos))
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
    mn_status st = mn_jinja_render_with(tmpl, fill_chat, &from, now, out, marks, err);
    if (st && err)
        err->part = part;
    if (part == MN_CHAT_PART_TEMPLATE || st != MN_BAD_INPUT)
        return st;
    if (err)
        err->status = MN_INVALID; // the caller's texts, before the template saw them
    return MN_INVALID;
}

typedef struct {
    mn_str json, bos, eos;
} json_vars;

/* Unless the caller's object has it, or there is no such token. */
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
