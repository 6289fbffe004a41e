/* chat.c -- chats of the API: messages through a chat template, tokenised, of which a sequence that
 * knows some already gets the rest; and templates alone, rendered to text.
 *
 * Templates are parsed once per model (chat, chat_tools); the caller's own is parsed per call. What
 * a user wrote is marked byte by byte on its way, so that it never becomes a special token. */
#include "opened/opened.h"
#include "text/chat/chat.h"
#include "text/json/json.h"
#include "text/json/scan.h"
#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* The text of a special token; empty = there is none. */
static mn_str piece(const mn_model *m, int32_t id) {
    return id < 0 ? mn_str_of("") : mn_tokenizer_piece(m->tokenizer, id);
}

/* The model's template; some have another one for chats with tools. */
static const mn_jinja *own_template(const mn_model *m, bool tools) {
    return tools && m->chat_tools ? m->chat_tools : m->chat;
}

/* ---- checks ---------------------------------------------------------------------------------- */
/* Texts at no address, whatever they would say. */
static mn_status check_texts(const mn_chat_params *p, mn_error *err) {
    static const char in[] = "mn_model_chat";
    mn_status st = mn_args_text(err, in, "history", p->history);
    if (!st)
        st = mn_args_text(err, in, "tools", p->tools);
    if (!st)
        st = mn_args_text(err, in, "vars", p->vars);
    if (!st && p->n_messages && !p->messages)
        st = mn_fail(err, MN_INVALID, "%s: messages is NULL, n_messages is %u", in, p->n_messages);
    for (uint32_t i = 0; i < p->n_messages && !st; i++) {
        const mn_message *m = &p->messages[i];
        st = mn_args_text(err, in, "a role", m->role);
        if (!st)
            st = mn_args_text(err, in, "a content", m->content);
        if (!st)
            st = mn_args_text(err, in, "a more", m->more);
    }
    return st;
}

/* Contents are what users type: their bytes are checked one by one. */
static mn_status check_utf8(const mn_chat_params *p, mn_error *err) {
    for (uint32_t i = 0; i < p->n_messages; i++) {
        mn_str s = p->messages[i].content;
        size_t bad = mn_utf8_check(s.ptr, s.len);
        if (bad < s.len)
            return mn_fail(err, MN_BAD_INPUT, "the text is not UTF-8: byte %zu", bad);
    }
    return MN_OK;
}

/* ---- rendering ------------------------------------------------------------------------------- */
/* The source of another template than the model's own, appended. MN_END: no such name. */
static mn_status find_template(const mn_model *m, const char *name, uint32_t flags, mn_text *source,
                               mn_error *err) {
    const mn_file_set *f = &m->canonical->files;
    const bool named = flags & MN_CHAT_NAMED;
    const char *known = named ? mn_chat_known(name) : name;
    mn_status st = MN_END;
    if (named)
        st = mn_chat_template_find(&m->canonical->meta, f->files, f->n, name, source, err);
    if (st != MN_END || !known)
        return st;
    mn_text_puts(source, known);
    return source->failed ? mn_fail_memory(err, strlen(known)) : MN_OK;
}

/* The same, parsed; *out is the caller's. */
static mn_status template_of(const mn_model *m, const char *name, uint32_t flags, mn_text *source,
                             mn_jinja **out, mn_error *err) {
    mn_text names = {0};
    mn_status st = find_template(m, name, flags, source, err);
    if (st == MN_END) {
        mn_chat_known_names(&names);
        st = mn_fail(err, MN_INVALID,
                     "%s has no chat template \"%.60s\", and no such one is known; expected one of "
                     "its own or of %s",
                     m->canonical->path, name, names.ptr ? names.ptr : "those that are");
    } else if (!st) {
        st = mn_jinja_parse((mn_str){source->ptr ? source->ptr : "", source->len}, out, err);
        if (st && st != MN_OUT_OF_MEMORY)
            st = mn_fail_in(err, MN_INVALID, "chat template");
    }
    if (st && err)
        err->part = MN_CHAT_PART_TEMPLATE;
    mn_text_free(&names);
    return st;
}

mn_status mn_model_set_template(mn_model *m, const char *chat_template, uint32_t flags,
                                mn_error *err) {
    mn_text source = {0};
    mn_jinja *other = NULL;
    const mn_arg args[] = {{"m", m}, {"chat_template", chat_template}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_flags(err, "mn_model_set_template: flags", flags, MN_CHAT_NAMED);
    if (!st)
        st = mn_text_need_tokenizer(m, err);
    if (!st)
        st = template_of(m, chat_template, flags, &source, &other, err);
    if (!st) {
        mn_jinja_free(m->chat);
        mn_jinja_free(m->chat_tools);
        m->chat = other;
        m->chat_tools = NULL;
        m->spells_thinking = false;
        m->calls = NULL;
        m->call_style = (mn_call_style){0};
        mn_model_take_forms(m, (mn_str){source.ptr ? source.ptr : "", source.len});
        mn_model_default_forms(m);
    }
    mn_text_free(&source);
    return st;
}

mn_str mn_model_chat_template(const mn_model *m) {
    return m && m->chat ? mn_jinja_source(m->chat) : (mn_str){"", 0};
}

/* The first n messages; answer: and the header of the next. form: as mn_chat_render_as. */
static mn_status render(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                        int64_t now, uint32_t *form, mn_text *out, mn_text *marks, mn_error *err) {
    mn_status st = mn_chat_render_as(tmpl, chat, n, answer, now, form, out, marks, err);
    return st && st != MN_INVALID ? mn_fail_in(err, st, "chat template") : st;
}

/* The sequence that knows an answer ends with its stop token; a template may write white space
 * behind that, which is new to it. */
static size_t known_end(const mn_model *m, const mn_text *known, const mn_text *marks) {
    size_t end = known->len;
    while (end && strchr(" \t\r\n", known->ptr[end - 1]))
        end--;
    for (uint32_t i = 0; i < m->n_stop; i++) {
        mn_str stop = piece(m, m->stop[i]);
        if (stop.len && stop.len <= end &&
            !memcmp(known->ptr + end - stop.len, stop.ptr, stop.len) && !marks->ptr[end - 1])
            return end;
    }
    return known->len;
}

/* What the template makes of all messages beyond what it makes of those that are known; answer: and
 * of the header of the next. */
static mn_status encode_new(const mn_model *m, const mn_jinja *tmpl, const mn_chat *chat,
                            uint32_t n_known, bool answer, int32_t **ids, uint32_t *n,
                            mn_error *err) {
    const int64_t now = (int64_t)time(NULL);
    mn_text all = {0}, marks = {0}, known = {0}, known_marks = {0};
    size_t from = 0;
    uint32_t form = MN_CHAT_ANY_FORM;
    mn_status st = render(tmpl, chat, UINT32_MAX, answer, now, &form, &all, &marks, err);
    if (!st && n_known)
        st = render(tmpl, chat, n_known, false, now, &form, &known, &known_marks, err);
    if (!st && (known.len > all.len || (known.len && memcmp(known.ptr, all.ptr, known.len))))
        st = mn_fail(err, MN_UNSUPPORTED, "the chat template changes what came before");
    if (!st) {
        from = known_end(m, &known, &known_marks);
        mn_str text = {all.ptr + from, all.len - from};
        st = mn_text_encode(m, text, (const uint8_t *)marks.ptr + from, MN_TOKENIZE_PARSE_SPECIAL,
                            ids, n, err);
    }
    mn_text_free(&all);
    mn_text_free(&marks);
    mn_text_free(&known);
    mn_text_free(&known_marks);
    return st;
}

/* ---- a last message that the output continues ------------------------------------------------ */
/* *out: the content of the last message, or of its last part, freed by mn_free; NULL: no text. */
static mn_status last_content(const mn_chat *chat, char **out, mn_error *err) {
    const mn_str given = chat->n ? chat->messages[chat->n - 1].content : (mn_str){NULL, 0};
    if (chat->n) {
        *out = mn_strndup(given.ptr ? given.ptr : "", (size_t)given.len);
        return *out ? MN_OK : mn_fail_memory(err, (size_t)given.len + 1);
    }
    const char *end = NULL;
    bool no_memory = false;
    cJSON *history = mn_json_tree(chat->history.ptr, (size_t)chat->history.len, &end, &no_memory);
    if (!history) // it was rendered before
        return mn_fail_memory(err, (size_t)chat->history.len);
    const cJSON *last = cJSON_GetArrayItem(history, cJSON_GetArraySize(history) - 1);
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(last, "content");
    if (cJSON_IsArray(content))
        content = cJSON_GetObjectItemCaseSensitive(
            cJSON_GetArrayItem(content, cJSON_GetArraySize(content) - 1), "text");
    const char *text = cJSON_GetStringValue(content);
    *out = text ? mn_strndup(text, strlen(text)) : NULL;
    const bool failed = text && !*out;
    cJSON_Delete(history);
    return failed ? mn_fail_memory(err, 1) : MN_OK;
}

static size_t end_of_words(const char *text, size_t n) {
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    return n;
}

/* Whether one of the texts ends with the other; templates trim contents, or show their end alone.
 */
static bool ends_alike(const char *a, size_t n_a, const char *b, size_t n_b) {
    const size_t n = MN_MIN(n_a, n_b);
    return n && !memcmp(a + n_a - n, b + n_b - n, n);
}

/* What was rendered without the header of an answer, up to the end of the last content: the last
 * bytes that are the user's. */
static mn_status cut_behind(const mn_chat *chat, mn_text *all, const mn_text *marks,
                            mn_error *err) {
    char *content = NULL;
    size_t end = all->len;
    mn_status st = last_content(chat, &content, err);
    if (st)
        return st;
    while (end && !marks->ptr[end - 1])
        end--;
    size_t begin = end;
    while (begin && marks->ptr[begin - 1])
        begin--;
    const size_t n = end_of_words(all->ptr + begin, end - begin);
    const bool found =
        content && ends_alike(content, end_of_words(content, strlen(content)), all->ptr + begin, n);
    mn_free(content);
    all->len = end;
    return found ? MN_OK
                 : mn_fail(err, MN_UNSUPPORTED,
                           "the last message cannot be continued: its content is empty, or the "
                           "chat template does not write it");
}

static mn_status encode_open(const mn_model *m, const mn_jinja *tmpl, const mn_chat *chat,
                             int32_t **ids, uint32_t *n, mn_error *err) {
    mn_text all = {0}, marks = {0};
    const int64_t now = (int64_t)time(NULL);
    uint32_t form = MN_CHAT_ANY_FORM;
    mn_status st = render(tmpl, chat, UINT32_MAX, false, now, &form, &all, &marks, err);
    if (!st)
        st = cut_behind(chat, &all, &marks, err);
    if (!st)
        st = mn_text_encode(m, (mn_str){all.ptr, all.len}, (const uint8_t *)marks.ptr,
                            MN_TOKENIZE_PARSE_SPECIAL, ids, n, err);
    mn_text_free(&all);
    mn_text_free(&marks);
    return st;
}

/* A template that says the same without the tools does not know of them. */
static void warn_of_tools(const mn_model *m, const mn_jinja *tmpl, const mn_chat *chat) {
    const int64_t now = (int64_t)time(NULL);
    mn_text with = {0}, without = {0}, marks = {0}, bare_marks = {0};
    mn_chat bare = *chat;
    uint32_t form = MN_CHAT_ANY_FORM;
    bare.tools = (mn_str){NULL, 0};
    if (!render(tmpl, chat, UINT32_MAX, true, now, &form, &with, &marks, NULL) &&
        !render(tmpl, &bare, UINT32_MAX, true, now, &form, &without, &bare_marks, NULL) &&
        with.len == without.len && (!with.len || !memcmp(with.ptr, without.ptr, with.len)))
        mn_log(MN_LOG_WARN,
               "%s: the chat template has no place for tools: the model is not told "
               "of them",
               m->canonical->path);
    mn_text_free(&with);
    mn_text_free(&without);
    mn_text_free(&marks);
    mn_text_free(&bare_marks);
}

/* Everything about params that can be said without rendering. own: params with its defaults. */
static mn_status check_chat(const mn_model *m, const mn_chat_params *params, mn_chat_params *own,
                            mn_error *err) {
    mn_status st = mn_args_take(MN_SIZED_CHAT_PARAMS, own, params, err);
    if (!st)
        st = mn_args_flags(err, "mn_chat_params.flags", own->flags,
                           MN_CHAT_NAMED | MN_CHAT_CONTINUE | MN_CHAT_NO_HEADER);
    if (!st && own->n_known > own->n_messages)
        st = mn_fail(err, MN_INVALID,
                     "mn_chat_params.n_known: found %u, expected at most %u: n_messages",
                     own->n_known, own->n_messages);
    if (!st && own->n_known && own->flags & MN_CHAT_CONTINUE)
        st = mn_fail(err, MN_INVALID,
                     "mn_chat_params.n_known: found %u, expected 0 with MN_CHAT_CONTINUE",
                     own->n_known);
    if (!st)
        st = check_texts(own, err);
    if (!st)
        st = mn_text_need_tokenizer(m, err);
    if (!st && !m->chat && !own->chat_template)
        st = mn_fail(err, MN_UNSUPPORTED, "%s: the model has no chat template", m->canonical->path);
    return st ? st : check_utf8(own, err);
}

/* Renders and tokenises with other, or with the model's own template where that is NULL. */
static mn_status encode_chat(const mn_model *m, const mn_chat_params *p, const mn_jinja *other,
                             int32_t **ids, uint32_t *n, mn_error *err) {
    mn_chat_message *copy = mn_calloc(p->n_messages ? p->n_messages : 1, sizeof *copy);
    if (!copy)
        return mn_fail_memory(err, p->n_messages * sizeof *copy);
    for (uint32_t i = 0; i < p->n_messages; i++) {
        const mn_message *from = &p->messages[i];
        copy[i] = (mn_chat_message){from->role, from->content, from->more};
    }
    const mn_chat chat = {.messages = copy,
                          .n = p->n_messages,
                          .history = p->history,
                          .tools = p->tools,
                          .vars = p->vars,
                          .bos = piece(m, mn_tokenizer_bos(m->tokenizer)),
                          .eos = piece(m, mn_tokenizer_eos(m->tokenizer))};
    const mn_jinja *tmpl = other ? other : own_template(m, chat.tools.len > 0);
    const bool answer = !(p->flags & MN_CHAT_NO_HEADER);
    mn_status st = p->flags & MN_CHAT_CONTINUE
                       ? encode_open(m, tmpl, &chat, ids, n, err)
                       : encode_new(m, tmpl, &chat, p->n_known, answer, ids, n, err);
    if (!st && chat.tools.len && !atomic_exchange(m->told, true))
        warn_of_tools(m, tmpl, &chat);
    mn_free(copy);
    return st;
}

mn_status mn_model_chat_with(const mn_model *m, const mn_chat_params *params, int32_t **ids,
                             uint32_t *n, mn_error *err) {
    mn_chat_params own = {0};
    mn_text source = {0};
    mn_jinja *other = NULL;
    const mn_arg args[] = {{"m", m}, {"params", params}, {"ids", ids}, {"n", n}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = check_chat(m, params, &own, err);
    if (!st && own.chat_template)
        st = template_of(m, own.chat_template, own.flags, &source, &other, err);
    if (!st)
        st = encode_chat(m, &own, other, ids, n, err);
    mn_jinja_free(other);
    mn_text_free(&source);
    return st;
}

mn_status mn_model_chat(const mn_model *m, const mn_message *messages, uint32_t n_messages,
                        uint32_t n_known, int32_t **ids, uint32_t *n, mn_error *err) {
    mn_chat_params p = {
        .size = sizeof p, .n_messages = n_messages, .n_known = n_known, .messages = messages};
    return mn_model_chat_with(m, &p, ids, n, err);
}

/* Whether the variables name a list of tools. */
static bool has_tools(mn_str vars) {
    mn_str tools;
    size_t at;
    if (!mn_scan_find(vars, "tools", "", &tools, &at))
        return false;
    return tools.len && tools.ptr[0] == '[';
}

mn_status mn_template_render(const mn_model *m, const char *source, mn_str vars, char **text,
                             uint64_t *n, mn_error *err) {
    const mn_tokenizer *tok = m ? m->tokenizer : NULL;
    const int64_t now = (int64_t)time(NULL);
    mn_str bos = {NULL, 0};
    mn_str eos = {NULL, 0};
    mn_jinja *own = NULL;
    mn_text out = {0};
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"text", text}, {"n", n}, {0}});
    if (!st)
        st = mn_args_text(err, __func__, "vars", vars);
    if (st)
        return st;
    if (!source && !(m && m->chat))
        return mn_fail(err, MN_UNSUPPORTED, "%s: the model has no chat template",
                       m ? m->canonical->path : "no model");
    if (tok) {
        bos = piece(m, mn_tokenizer_bos(tok));
        eos = piece(m, mn_tokenizer_eos(tok));
    }
    if (source)
        st = mn_jinja_parse(mn_str_of(source), &own, err);
    const mn_jinja *tmpl = own;
    if (!source)
        tmpl = own_template(m, has_tools(vars));
    if (!st)
        st = mn_chat_render_json(tmpl, vars, bos, eos, now, &out, err);
    *n = out.len;
    if (!st) {
        *text = mn_strndup(out.ptr ? out.ptr : "", out.len);
        if (!*text)
            st = mn_fail_memory(err, out.len);
    }
    mn_jinja_free(own);
    mn_text_free(&out);
    return st;
}
