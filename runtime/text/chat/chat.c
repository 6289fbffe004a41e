/* chat.c -- messages through a model's chat template: the caller's texts become variables of the
 * template (mn_jval), each marked as the user's or as template text, so that no text of a user is
 * taken for a special token. All values live in the arena of the rendering. templates.c finds the
 * template, messages.c makes the messages, jinja/ runs it. */
#include "text/chat/chat.h"
#include "text/chat/messages.h"
#include "text/jinja/eval.h"
#include "text/jinja/render.h"
#include <stdio.h>
#include <string.h>

/* ---- other variables ------------------------------------------------------------------------- */

/* Without tools the variable is none, which templates ask for. */
static bool chat_template_add_tools(mn_jctx *c, mn_str json, mn_jdict *vars) {
    mn_jval list = mn_j_of(MN_J_NONE);
    char what[32];
    if (!json.len)
        return mn_messages_set(c, vars, "tools", list);
    if (!mn_j_from_json(c, "tools", json, &list))
        return false;
    if (list.type != MN_J_LIST)
        return mn_messages_wrong_type(c, "tools", list, "a list of tools");
    for (size_t i = 0; i < list.u.l->n; i++) {
        const mn_jval tool = list.u.l->items[i];
        snprintf(what, sizeof what, "tools[%zu]", i);
        if (tool.type != MN_J_DICT)
            return mn_messages_wrong_type(c, what, tool, "an object");
    }
    return mn_messages_set(c, vars, "tools", list);
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
        return mn_messages_wrong_type(c, "vars", own, "an object");
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
    mn_message_style *style;
    bool *printed; /* mn_jctx.printed */
} chat_vars;

/* A token that the model has not is no variable: templates ask whether it is defined. */
static bool set_token(mn_jctx *c, mn_jdict *vars, const char *name, mn_str token) {
    return !token.ptr || mn_messages_set_str(c, vars, name, token, 0);
}

/* The messages: first the history, then the caller's. */
static bool add_messages(mn_jctx *c, mn_jdict *vars, const chat_vars *from) {
    const mn_chat *chat = from->chat;
    const uint32_t n = MN_MIN(chat->n, from->n);
    mn_jlist *messages = mn_jlist_new(c, 0);
    *from->part = MN_CHAT_PART_HISTORY;
    if (!messages)
        return false;
    if (chat->history.len && !mn_messages_history(c, chat->history, from->style, messages))
        return false;
    *from->part = MN_CHAT_PART_MESSAGES;
    for (uint32_t i = 0; i < n; i++)
        if (!mn_messages_add(c, &chat->messages[i], i, from->style, messages))
            return false;
    return mn_messages_set(c, vars, "messages", mn_j_listval(MN_J_LIST, messages));
}

/* from->part follows what is read, so that an error can say which text it is about. */
static bool fill_chat(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const chat_vars *from = arg;
    const mn_chat *chat = from->chat;
    const mn_jval none = mn_j_of(MN_J_NONE);
    c->printed = from->printed;
    if (!add_messages(c, vars, from))
        return false;
    if (!mn_messages_set(c, vars, "documents", none))
        return false;
    if (!mn_messages_set(c, vars, "add_generation_prompt", mn_j_bool(from->answer)))
        return false;
    if (!set_token(c, vars, "bos_token", chat->bos))
        return false;
    if (!set_token(c, vars, "eos_token", chat->eos))
        return false;
    *from->part = MN_CHAT_PART_TOOLS;
    if (!chat_template_add_tools(c, chat->tools, vars))
        return false;
    *from->part = MN_CHAT_PART_VARS;
    if (!add_vars(c, chat->vars, vars))
        return false;
    *from->part = MN_CHAT_PART_TEMPLATE;
    return true;
}

/* In one form of the messages. *clean: the template printed none of them as Python does. */
static mn_status render_once(const mn_jinja *tmpl, chat_vars *from, int64_t now, mn_text *out,
                             mn_text *marks, bool *clean, mn_error *err) {
    bool printed = false;
    from->printed = &printed;
    *from->part = MN_CHAT_PART_HISTORY;
    const mn_status st = mn_jinja_render_with(tmpl, fill_chat, from, now, out, marks, err);
    *clean = !st && !printed;
    if (st && err)
        err->part = *from->part;
    if (*from->part == MN_CHAT_PART_TEMPLATE || st != MN_BAD_INPUT)
        return st;
    if (err)
        err->status = MN_INVALID; // the caller's texts, before the template saw them
    return MN_INVALID;
}

static void chat_template_forget(mn_text *out, mn_text *marks, size_t n, size_t n_marks) {
    out->len = n;
    if (marks)
        marks->len = n_marks;
}

/* First as Transformers has them. Null goes last: a template that asks for it may render "" without
 * an error, and leave out the call. */
static const uint32_t forms[] = {MN_MESSAGES_NULL, MN_MESSAGES_NULL | MN_MESSAGES_TEXT, 0,
                                 MN_MESSAGES_TEXT};
enum { USUAL = 0 }; /* of several errors the one that is reported */

/* In the form that the template renders best, which *best says. */
static mn_status try_forms(const mn_jinja *tmpl, chat_vars *from, int64_t now, mn_text *out,
                           mn_text *marks, uint32_t *best, mn_error *err) {
    const size_t n = out->len;
    const size_t n_marks = marks ? marks->len : 0;
    mn_message_style *style = from->style;
    mn_status st = MN_OK;
    *best = MN_CHAT_ANY_FORM;
    for (size_t i = 0; i < MN_COUNT(forms); i++) {
        bool clean = false;
        if (i && (forms[i] ^ forms[0]) & ~style->has)
            continue;
        style->form = forms[i];
        st = render_once(tmpl, from, now, out, marks, &clean, err);
        if (clean || st == MN_OUT_OF_MEMORY || st == MN_INVALID) {
            *best = forms[i];
            return st;
        }
        chat_template_forget(out, marks, n, n_marks);
        if (!st && *best == MN_CHAT_ANY_FORM)
            *best = forms[i];
    }
    if (*best == MN_CHAT_ANY_FORM)
        *best = USUAL;
    style->form = *best;
    bool clean = false;
    return render_once(tmpl, from, now, out, marks, &clean, err);
}

mn_status mn_chat_render_as(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                            int64_t now, uint32_t *form, mn_text *out, mn_text *marks,
                            mn_error *err) {
    uint32_t part = MN_CHAT_PART_HISTORY;
    mn_message_style style = {.form = *form};
    chat_vars from = {chat, n, answer, &part, &style, NULL};
    bool clean = false;
    if (*form != MN_CHAT_ANY_FORM)
        return render_once(tmpl, &from, now, out, marks, &clean, err);
    return try_forms(tmpl, &from, now, out, marks, form, err);
}

mn_status mn_chat_render(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                         int64_t now, mn_text *out, mn_text *marks, mn_error *err) {
    uint32_t form = MN_CHAT_ANY_FORM;
    return mn_chat_render_as(tmpl, chat, n, answer, now, &form, out, marks, err);
}

typedef struct {
    mn_str json, bos, eos;
} json_vars;

/* Unless the caller's object has it, or there is no such token. */
static bool set_missing(mn_jctx *c, mn_jdict *d, const char *name, mn_str s) {
    return !s.len || mn_jdict_name(c, d, mn_str_of(name)) || mn_messages_set_str(c, d, name, s, 0);
}

static bool chat_template_fill_json(mn_jctx *c, mn_jdict *vars, const void *arg) {
    const json_vars *from = arg;
    return mn_jvars_from_json(c, from->json, NULL, vars) &&
           set_missing(c, vars, "bos_token", from->bos) &&
           set_missing(c, vars, "eos_token", from->eos);
}

mn_status mn_chat_render_json(const mn_jinja *tmpl, mn_str vars, mn_str bos, mn_str eos,
                              int64_t now, mn_text *out, mn_error *err) {
    json_vars from = {vars, bos, eos};
    return mn_jinja_render_with(tmpl, chat_template_fill_json, &from, now, out, NULL, err);
}
