/* messages.c -- a caller's messages as dicts of the template language (messages.h): roles, text
 * parts, thoughts, content that is null, and the arguments of calls, which clients write as the
 * text of an object and most templates read as the object. All values live in the arena of the
 * rendering; strings without escapes point into the caller's JSON. */
#include "text/chat/messages.h"
#include "text/jinja/eval.h"
#include <stdio.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */
bool mn_messages_set(mn_jctx *c, mn_jdict *d, const char *name, mn_jval v) {
    mn_jval key;
    return mn_j_literal(c, name, &key) && mn_jdict_set(c, d, key, v);
}

static bool make_str(mn_jctx *c, mn_str s, uint8_t mark, mn_jval *out) {
    const mn_jstr text = {s.ptr ? s.ptr : "", NULL, (size_t)s.len, mark};
    return mn_j_string(c, text, out);
}

bool mn_messages_set_str(mn_jctx *c, mn_jdict *d, const char *name, mn_str s, uint8_t mark) {
    mn_jval v;
    return make_str(c, s, mark, &v) && mn_messages_set(c, d, name, v);
}

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

bool mn_messages_wrong_type(mn_jctx *c, const char *what, mn_jval v, const char *expected) {
    return mn_jfail(c, "%s: found %s, expected %s", what, found_type(v), expected);
}

static mn_jval *messages_get(mn_jctx *c, const mn_jdict *d, const char *name) {
    return mn_jdict_name(c, d, mn_str_of(name));
}

/* ---- role and thoughts ----------------------------------------------------------------------- */
static bool known_role(mn_str role) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    for (size_t i = 0; i < MN_COUNT(roles); i++)
        if (mn_str_is(role, roles[i]))
            return true;
    return false;
}

/* A message must have a role; one that every template knows is template text: "<|" ~ role ~ "|>" is
 * a special token. "developer" is OpenAI's newer name of "system", which templates know. */
static bool take_role(mn_jctx *c, const char *what, mn_jdict *d) {
    const mn_jval *role = messages_get(c, d, "role");
    if (!role)
        return mn_jfail(c, "%s: found no \"role\", expected a string", what);
    if (role->type != MN_J_STR)
        return mn_messages_wrong_type(c, what, *role, "a string as \"role\"");
    const mn_str s = mn_jstr_bytes(role->u.s);
    if (mn_str_is(s, "developer"))
        return mn_messages_set_str(c, d, "role", mn_str_of("system"), 0);
    return !known_role(s) || mn_messages_set_str(c, d, "role", s, 0);
}

/* What was thought goes by several names; as in Transformers, templates find it under the two that
 * they read. */
static bool alias_thoughts(mn_jctx *c, mn_jdict *d) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const bool has = messages_get(c, d, "thinking") != NULL;
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        const mn_jval *found = messages_get(c, d, names[i]);
        if (!found || found->type == MN_J_NONE)
            continue;
        const mn_jval thoughts = *found; // what follows may move it
        if (!mn_messages_set(c, d, "reasoning_content", thoughts))
            return false;
        return has || mn_messages_set(c, d, "thinking", thoughts);
    }
    return true;
}

/* ---- content --------------------------------------------------------------------------------- */
static bool is_empty(const mn_jval *v) {
    return !v || v->type == MN_J_NONE;
}

/* The text of a part {"type": "text", "text": ...}; NULL: another one. */
static const mn_jstr *part_text(mn_jctx *c, mn_jval part) {
    static const mn_jstr none = {"", NULL, 0, 1};
    if (part.type != MN_J_DICT)
        return NULL;
    const mn_jval *type = messages_get(c, part.u.d, "type");
    const mn_jval *text = messages_get(c, part.u.d, "text");
    if (!type || type->type != MN_J_STR || !mn_str_is(mn_jstr_bytes(type->u.s), "text"))
        return NULL;
    if (is_empty(text))
        return &none;
    return text->type == MN_J_STR ? text->u.s : NULL;
}

/* A list of text parts becomes their text; one with other parts stays as it is. */
static bool join_parts(mn_jctx *c, mn_jdict *d) {
    const mn_jval *content = messages_get(c, d, "content");
    if (!content || content->type != MN_J_LIST)
        return true;
    const mn_jlist *parts = content->u.l;
    mn_jbuf text = {0};
    mn_jval joined;
    for (size_t i = 0; i < parts->n; i++) {
        const mn_jstr *part = part_text(c, parts->items[i]);
        if (!part)
            return !c->status;
        if (i && !mn_jbuf_puts(c, &text, "\n", 1))
            return false;
        if (!mn_jbuf_put(c, &text, *part))
            return false;
    }
    return mn_jbuf_value(c, &text, &joined) && mn_messages_set(c, d, "content", joined);
}

/* Content that is null or missing. */
static bool take_content(mn_jctx *c, mn_jdict *d, mn_message_style *style) {
    mn_jval null = mn_j_of(MN_J_NONE);
    if (!is_empty(messages_get(c, d, "content")))
        return true;
    style->has |= MN_MESSAGES_NULL;
    if (!(style->form & MN_MESSAGES_NULL))
        return mn_messages_set_str(c, d, "content", mn_str_of(""), 1);
    null.u.b = true; // it is noticed where it becomes text
    return mn_messages_set(c, d, "content", null);
}

/* ---- calls ----------------------------------------------------------------------------------- */
static bool messages_is_blank(mn_str s) {
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return !s.len;
}

/* Text that says an object becomes the object; other text is no error. */
static bool read_object(mn_jctx *c, mn_jval *v) {
    const mn_str text = mn_jstr_bytes(v->u.s);
    mn_error *err = c->err;
    mn_jval read;
    c->err = NULL;
    if (mn_j_from_json(c, "arguments", text, &read) && read.type == MN_J_DICT)
        *v = read;
    c->err = err;
    if (c->status == MN_OUT_OF_MEMORY)
        mn_fail_memory(err, text.len);
    else
        c->status = MN_OK;
    return !c->status;
}

/* JSON as Transformers writes it. */
static bool messages_text_of(mn_jctx *c, mn_jval object, mn_jval *out) {
    mn_jval none[MN_J_MAX_PARAMS];
    for (size_t i = 0; i < MN_J_MAX_PARAMS; i++)
        none[i] = mn_j_of(MN_J_MISSING);
    none[0] = mn_j_bool(false);
    none[3] = mn_j_bool(false);
    const mn_jinput in = {.self = object, .arg = none};
    return mn_jtojson(c, &in, out);
}

static bool make_object(mn_jctx *c, mn_jval *out) {
    mn_jdict *d = mn_jdict_new(c);
    if (d)
        *out = mn_j_dictval(d);
    return d != NULL;
}

/* Arguments of a call in the form that is asked for: none are {}; text that is no object stays. */
static bool take_arguments(mn_jctx *c, mn_jdict *function, mn_message_style *style) {
    const mn_jval *found = messages_get(c, function, "arguments");
    const bool as_text = style->form & MN_MESSAGES_TEXT;
    const bool is_text = found && found->type == MN_J_STR;
    const bool none = is_empty(found) || (is_text && messages_is_blank(mn_jstr_bytes(found->u.s)));
    mn_jval v = none ? mn_j_of(MN_J_NONE) : *found;
    style->has |= MN_MESSAGES_TEXT;
    if (none && !make_object(c, &v))
        return false;
    if (is_text && !none && !as_text && !read_object(c, &v))
        return false;
    if (v.type == MN_J_DICT)
        v.u.d->watched = true;
    if (v.type == MN_J_DICT && as_text && !messages_text_of(c, v, &v))
        return false;
    return mn_messages_set(c, function, "arguments", v);
}

static bool take_call(mn_jctx *c, const char *what, mn_jval call, mn_message_style *style) {
    if (call.type != MN_J_DICT)
        return mn_messages_wrong_type(c, what, call, "objects as \"tool_calls\"");
    const mn_jval *function = messages_get(c, call.u.d, "function");
    if (function && function->type == MN_J_DICT)
        return take_arguments(c, function->u.d, style);
    return !messages_get(c, call.u.d, "name") || take_arguments(c, call.u.d, style);
}

/* "tool_calls": null is none. */
static bool take_calls(mn_jctx *c, const char *what, mn_jdict *d, mn_message_style *style) {
    const mn_jval *calls = messages_get(c, d, "tool_calls");
    if (!calls)
        return true;
    if (calls->type == MN_J_NONE) {
        mn_jdict_drop(c, d, mn_str_of("tool_calls"));
        return true;
    }
    if (calls->type != MN_J_LIST)
        return mn_messages_wrong_type(c, what, *calls, "a list as \"tool_calls\"");
    const mn_jlist *list = calls->u.l;
    for (size_t i = 0; i < list->n; i++)
        if (!take_call(c, what, list->items[i], style))
            return false;
    return true;
}

/* ---- messages -------------------------------------------------------------------------------- */
static bool messages_take(mn_jctx *c, const char *what, mn_jdict *d, mn_message_style *style,
                          mn_jlist *messages) {
    if (!take_role(c, what, d) || !alias_thoughts(c, d))
        return false;
    if (!take_content(c, d, style) || !take_calls(c, what, d, style))
        return false;
    return mn_jlist_add(c, messages, mn_j_dictval(d));
}

bool mn_messages_history(mn_jctx *c, mn_str json, mn_message_style *style, mn_jlist *messages) {
    mn_jval list;
    char what[32];
    if (!mn_j_from_json(c, "history", json, &list))
        return false;
    if (list.type != MN_J_LIST)
        return mn_messages_wrong_type(c, "history", list, "a list of messages");
    for (size_t i = 0; i < list.u.l->n; i++) {
        const mn_jval message = list.u.l->items[i];
        snprintf(what, sizeof what, "history[%zu]", i);
        if (message.type != MN_J_DICT)
            return mn_messages_wrong_type(c, what, message, "an object");
        if (!join_parts(c, message.u.d) || !messages_take(c, what, message.u.d, style, messages))
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
        return mn_messages_wrong_type(c, what, more, "an object");
    return mn_jdict_set_all(c, d, more.u.d->items, more.u.d->n);
}

bool mn_messages_add(mn_jctx *c, const mn_chat_message *m, size_t i, mn_message_style *style,
                     mn_jlist *messages) {
    mn_jdict *d = mn_jdict_new(c);
    char what[48];
    snprintf(what, sizeof what, "messages[%zu].more", i);
    if (!d || !mn_messages_set_str(c, d, "role", m->role, 1))
        return false;
    if (!mn_messages_set_str(c, d, "content", m->content, 1))
        return false;
    return add_more(c, what, m->more, d) && messages_take(c, what, d, style, messages);
}
