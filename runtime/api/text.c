/* text.c -- text of the API: tokenise, chat, streams of text. */
#include "api/api.h"
#include "text/chat/channels.h"
#include "text/chat/chat.h"
#include "text/json/scan.h"
#include "text/chat/think_tags.h"
#include "text/chat/stop_strings.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static mn_status need_tokenizer(const mn_model *m, mn_error *err) {
    return m->tokenizer
               ? MN_OK
               : mn_fail(err, MN_UNSUPPORTED, "%s: the model has no tokeniser; give token ids",
                         m->canonical->path);
}

static mn_status encode(const mn_model *m, mn_str text, const uint8_t *plain, uint32_t flags,
                        int32_t **ids, uint32_t *n, mn_error *err) {
    size_t count = 0;
    int32_t *made = NULL;
    mn_status st = mn_tokenizer_encode(m->tokenizer, text, plain, flags, &made, &count, err);
    if (!st && count > INT32_MAX)
        st = mn_fail(err, MN_BAD_INPUT, "the text has %zu tokens", count);
    st = mn_canonical_settle(m->canonical, false, st, err);
    if (st) {
        mn_free(made);
        return st;
    }
    *ids = made;
    *n = (uint32_t)count;
    return MN_OK;
}

mn_status mn_model_tokenize(const mn_model *m, mn_str text, uint32_t flags, int32_t **ids,
                            uint32_t *n, mn_error *err) {
    uint32_t f = (flags & MN_TEXT_ADD_SPECIAL ? MN_TOKENIZE_ADD_SPECIAL : 0) |
                 (flags & MN_TEXT_PARSE_SPECIAL ? MN_TOKENIZE_PARSE_SPECIAL : 0);
    const mn_arg args[] = {{"m", m}, {"ids", ids}, {"n", n}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_text(err, __func__, "text", text);
    if (!st)
        st = mn_args_flags(err, "mn_model_tokenize: flags", flags,
                           MN_TEXT_ADD_SPECIAL | MN_TEXT_PARSE_SPECIAL);
    if (!st)
        st = need_tokenizer(m, err);
    return st ? st : encode(m, text, NULL, f, ids, n, err);
}

static mn_str piece(const mn_model *m, int32_t id) {
    return id < 0 ? mn_str_of("") : mn_tokenizer_piece(m->tokenizer, id);
}

/* ---- chat ------------------------------------------------------------------------------------ */
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

static mn_status check_utf8(const mn_chat_params *p, mn_error *err) {
    for (uint32_t i = 0; i < p->n_messages; i++) {
        mn_str s = p->messages[i].content;
        size_t bad = mn_utf8_check(s.ptr, s.len);
        if (bad < s.len)
            return mn_fail(err, MN_BAD_INPUT, "the text is not UTF-8: byte %zu", bad);
    }
    return MN_OK;
}

/* The template that p asks for instead of the model's own; *out is the caller's. */
static mn_status template_of(const mn_model *m, const mn_chat_params *p, mn_jinja **out,
                             mn_error *err) {
    const mn_file_set *f = &m->canonical->files;
    const bool named = p->flags & MN_CHAT_NAMED;
    const char *name = p->chat_template, *known = named ? mn_chat_known(name) : name;
    mn_text source = {0}, names = {0};
    mn_status st = MN_END;
    if (named)
        st = mn_chat_template_find(&m->canonical->meta, f->files, f->n, name, &source, err);
    if (st == MN_END && known) {
        mn_text_puts(&source, known);
        st = source.failed ? mn_fail_memory(err, strlen(known)) : MN_OK;
    }
    if (st == MN_END) {
        mn_chat_known_names(&names);
        st = mn_fail(err, MN_INVALID,
                     "%s has no chat template \"%.60s\", and no such one is known; expected one of "
                     "its own or of %s",
                     m->canonical->path, name, names.ptr ? names.ptr : "those that are");
    } else if (!st) {
        st = mn_jinja_parse((mn_str){source.ptr ? source.ptr : "", source.len}, out, err);
        if (st && st != MN_OUT_OF_MEMORY)
            st = mn_fail_in(err, MN_INVALID, "chat template");
    }
    if (st && err)
        err->part = MN_CHAT_PART_TEMPLATE;
    mn_text_free(&source);
    mn_text_free(&names);
    return st;
}

/* The first n messages; answer: and the header of the next. */
static mn_status render(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                        int64_t now, mn_text *out, mn_text *marks, mn_error *err) {
    mn_status st = mn_chat_render(tmpl, chat, n, answer, now, out, marks, err);
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

/* What the template makes of all messages beyond what it makes of those that are known. */
static mn_status encode_new(const mn_model *m, const mn_jinja *tmpl, const mn_chat *chat,
                            uint32_t n_known, int32_t **ids, uint32_t *n, mn_error *err) {
    const int64_t now = (int64_t)time(NULL);
    mn_text all = {0}, marks = {0}, known = {0}, known_marks = {0};
    size_t from = 0;
    mn_status st = render(tmpl, chat, UINT32_MAX, true, now, &all, &marks, err);
    if (!st && n_known)
        st = render(tmpl, chat, n_known, false, now, &known, &known_marks, err);
    if (!st && (known.len > all.len || (known.len && memcmp(known.ptr, all.ptr, known.len))))
        st = mn_fail(err, MN_UNSUPPORTED, "the chat template changes what came before");
    if (!st) {
        from = known_end(m, &known, &known_marks);
        mn_str text = {all.ptr + from, all.len - from};
        st = encode(m, text, (const uint8_t *)marks.ptr + from, MN_TOKENIZE_PARSE_SPECIAL, ids, n,
                    err);
    }
    mn_text_free(&all);
    mn_text_free(&marks);
    mn_text_free(&known);
    mn_text_free(&known_marks);
    return st;
}

/* A template that says the same without the tools does not know of them. */
static void warn_of_tools(const mn_model *m, const mn_jinja *tmpl, const mn_chat *chat) {
    const int64_t now = (int64_t)time(NULL);
    mn_text with = {0}, without = {0}, marks = {0}, bare_marks = {0};
    mn_chat bare = *chat;
    bare.tools = (mn_str){NULL, 0};
    if (!render(tmpl, chat, UINT32_MAX, true, now, &with, &marks, NULL) &&
        !render(tmpl, &bare, UINT32_MAX, true, now, &without, &bare_marks, NULL) &&
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

mn_status mn_model_chat_with(const mn_model *m, const mn_chat_params *params, int32_t **ids,
                             uint32_t *n, mn_error *err) {
    mn_chat_params own = {0}, *p = &own;
    mn_jinja *other = NULL;
    const mn_arg args[] = {{"m", m}, {"params", params}, {"ids", ids}, {"n", n}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_take(MN_SIZED_CHAT_PARAMS, &own, params, err);
    if (!st)
        st = mn_args_flags(err, "mn_chat_params.flags", own.flags, MN_CHAT_NAMED);
    if (!st && own.n_known > own.n_messages)
        st = mn_fail(err, MN_INVALID,
                     "mn_chat_params.n_known: found %u, expected at most %u: n_messages",
                     own.n_known, own.n_messages);
    if (!st)
        st = check_texts(p, err);
    if (!st)
        st = need_tokenizer(m, err);
    if (!st && !m->chat && !p->chat_template)
        st = mn_fail(err, MN_UNSUPPORTED, "%s: the model has no chat template", m->canonical->path);
    if (!st)
        st = check_utf8(p, err);
    if (!st && p->chat_template)
        st = template_of(m, p, &other, err);
    if (st)
        return st;
    mn_chat_message *copy = mn_calloc(p->n_messages ? p->n_messages : 1, sizeof *copy);
    if (!copy) {
        mn_jinja_free(other);
        return mn_fail_memory(err, p->n_messages * sizeof *copy);
    }
    for (uint32_t i = 0; i < p->n_messages; i++)
        copy[i] =
            (mn_chat_message){p->messages[i].role, p->messages[i].content, p->messages[i].more};
    mn_chat chat = {.messages = copy,
                    .n = p->n_messages,
                    .history = p->history,
                    .tools = p->tools,
                    .vars = p->vars};
    chat.bos = piece(m, mn_tokenizer_bos(m->tokenizer));
    chat.eos = piece(m, mn_tokenizer_eos(m->tokenizer));
    const mn_jinja *theirs = chat.tools.len && m->chat_tools ? m->chat_tools : m->chat;
    st = encode_new(m, other ? other : theirs, &chat, p->n_known, ids, n, err);
    if (!st && chat.tools.len && !atomic_exchange(m->told, true))
        warn_of_tools(m, other ? other : theirs, &chat);
    mn_jinja_free(other);
    mn_free(copy);
    return st;
}

mn_status mn_model_chat(const mn_model *m, const mn_message *messages, uint32_t n_messages,
                        uint32_t n_known, int32_t **ids, uint32_t *n, mn_error *err) {
    mn_chat_params p = {
        .size = sizeof p, .n_messages = n_messages, .n_known = n_known, .messages = messages};
    return mn_model_chat_with(m, &p, ids, n, err);
}

static bool has_tools(mn_str vars) {
    mn_str tools;
    size_t at;
    return mn_scan_find(vars, "tools", "", &tools, &at) && tools.len && tools.ptr[0] == '[';
}

mn_status mn_template_render(const mn_model *m, const char *source, mn_str vars, char **text,
                             uint64_t *n, mn_error *err) {
    const mn_tokenizer *tok = m ? m->tokenizer : NULL;
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
    if (source)
        st = mn_jinja_parse(mn_str_of(source), &own, err);
    mn_str bos = tok ? piece(m, mn_tokenizer_bos(tok)) : (mn_str){NULL, 0};
    mn_str eos = tok ? piece(m, mn_tokenizer_eos(tok)) : (mn_str){NULL, 0};
    const mn_jinja *theirs = !m ? NULL : has_tools(vars) && m->chat_tools ? m->chat_tools : m->chat;
    if (!st)
        st =
            mn_chat_render_json(own ? own : theirs, vars, bos, eos, (int64_t)time(NULL), &out, err);
    if (!st && !(*text = mn_strndup(out.ptr ? out.ptr : "", out.len)))
        st = mn_fail_memory(err, out.len);
    *n = out.len;
    mn_jinja_free(own);
    mn_text_free(&out);
    return st;
}

void mn_ids_free(int32_t *ids) {
    mn_free(ids);
}

int mn_model_is_stop(const mn_model *m, int32_t id) {
    for (uint32_t i = 0; m && i < m->n_stop; i++)
        if (m->stop[i] == id)
            return 1;
    return 0;
}

/* ---- streams --------------------------------------------------------------------------------- */
struct mn_stream {
    mn_detokenizer *d;
    mn_channels channels;
    mn_think_tags spelled;
    mn_channel part; /* of what was pushed last */
    bool trim;       /* white space after </think> belongs to nobody */
    bool plain;      /* no parts: all that is pushed is the answer */
    bool pushed;     /* an id, or the end: stop strings come too late */
    mn_text text;
    mn_stops stops;
};

mn_status mn_stream_create(const mn_model *m, uint32_t flags, mn_stream **out, mn_error *err) {
    const uint32_t how = (flags & MN_STREAM_CONTINUE ? MN_DETOKENIZE_CONTINUE : 0) |
                         (flags & MN_STREAM_SPECIAL ? MN_DETOKENIZE_SPECIAL : 0);
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"out", out}, {0}});
    if (!st)
        st = mn_args_flags(err, "mn_stream_create: flags", flags,
                           MN_STREAM_CONTINUE | MN_STREAM_PLAIN | MN_STREAM_SPECIAL);
    if (!st)
        st = need_tokenizer(m, err);
    if (st)
        return st;
    mn_stream *s = mn_calloc(1, sizeof *s);
    if (!s)
        return mn_fail_memory(err, sizeof *s);
    s->plain = flags & (MN_STREAM_PLAIN | MN_STREAM_SPECIAL);
    s->channels = mn_channels_of(m->tokenizer);
    if (m->spells_thinking && s->channels.think < 0 && s->channels.channel < 0 && !s->plain)
        s->spelled.state = MN_THINK_BEGIN;
    st = mn_detokenizer_create(m->tokenizer, how, &s->d, err);
    if (st)
        mn_free(s);
    else
        *out = s;
    return st;
}

mn_status mn_stream_stop(mn_stream *s, const mn_str *strings, uint32_t n, mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"st", s}, {0}});
    if (!st && n)
        st = mn_args_need(err, __func__, (mn_arg[]){{"strings", strings}, {0}});
    if (!st && s->pushed)
        st =
            mn_fail(err, MN_INVALID, "%s: called after ids were pushed, expected before", __func__);
    bool few = n <= MN_STOPS_MAX; /* else none is looked at: n is no length, perhaps */
    for (uint32_t i = 0; few && i < n && !st; i++)
        st = mn_args_text(err, __func__, "a string", strings[i]);
    return st ? st : mn_stops_set(&s->stops, strings, n, err);
}

int mn_stream_stopped(const mn_stream *s) {
    return s && s->stops.met;
}

/* Text of the answer passes the strings that end it. */
static mn_status stop(mn_stream *s, mn_str *text, bool last, mn_error *err) {
    if (s->part == MN_CHANNEL_THINKING)
        return MN_OK;
    mn_status st = mn_stops_push(&s->stops, text, last);
    return st ? mn_fail(err, st, "turning ids into text failed") : MN_OK;
}

static mn_status give(mn_stream *s, mn_status st, mn_str *text, mn_error *err) {
    *text = (mn_str){s->text.ptr ? s->text.ptr : "", s->text.len};
    if (!st && s->text.failed)
        st = MN_OUT_OF_MEMORY;
    return st ? mn_fail(err, st, "turning ids into text failed") : MN_OK;
}

void mn_stream_prompt(mn_stream *s, const int32_t *ids, uint32_t n) {
    mn_detokenizer *d = NULL;
    mn_text end = {0};
    if (!s || !ids)
        return;
    mn_channels_prompt(&s->channels, ids, n);
    if (s->spelled.state == MN_THINK_OFF ||
        mn_detokenizer_create(s->channels.tok, MN_DETOKENIZE_CONTINUE, &d, NULL))
        return;
    bool ok = true;
    for (uint32_t i = n > 16 ? n - 16 : 0; i < n; i++)
        ok = ok && !mn_detokenizer_push(d, ids[i], &end);
    if (ok && end.len)
        mn_think_tags_prompt(&s->spelled, (mn_str){end.ptr, end.len});
    mn_detokenizer_free(d);
    mn_text_free(&end);
}

int mn_stream_is_thinking(const mn_stream *s) {
    return s && s->part == MN_CHANNEL_THINKING;
}

mn_str mn_stream_tool(const mn_stream *s) {
    return mn_str_of(s && s->part == MN_CHANNEL_CALL ? s->channels.tool : "");
}

static void respell(mn_stream *s, bool last) {
    bool thinking = false;
    mn_think_tags_push(&s->spelled, &s->text, last, &thinking);
    s->part = thinking ? MN_CHANNEL_THINKING : MN_CHANNEL_ANSWER;
}

/* Marks and headers give no text; after one, the white space that begins a part is dropped where
 * tags made it. */
mn_status mn_stream_push(mn_stream *s, int32_t id, mn_str *text, mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"st", s}, {"text", text}, {0}});
    if (st)
        return st;
    s->pushed = true;
    s->text.len = 0;
    if (s->plain) {
        st = give(s, mn_detokenizer_push(s->d, id, &s->text), text, err);
        return st ? st : stop(s, text, false, err);
    }
    mn_channel part = mn_channels_push(&s->channels, id);
    s->trim |=
        part == MN_CHANNEL_HEADER && (id == s->channels.think || id == s->channels.end_think);
    s->part = part == MN_CHANNEL_HEADER ? s->channels.part : part;
    if (part == MN_CHANNEL_HEADER)
        return give(s, MN_OK, text, err);
    st = mn_detokenizer_push(s->d, id, &s->text);
    if (!st && mn_channels_shows(&s->channels, id)) {
        mn_str mark = mn_tokenizer_piece(s->channels.tok, id);
        if (mn_utf8_check(mark.ptr, mark.len) == mark.len)
            mn_text_put(&s->text, mark.ptr, mark.len);
    }
    if (!st && s->spelled.state != MN_THINK_OFF)
        respell(s, false);
    st = give(s, st, text, err);
    while (s->trim && text->len && strchr(" \t\r\n", *text->ptr))
        text->ptr++, text->len--;
    s->trim &= !text->len;
    return st ? st : stop(s, text, false, err);
}

mn_status mn_stream_finish(mn_stream *s, mn_str *text, mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"st", s}, {"text", text}, {0}});
    if (st)
        return st;
    s->pushed = true;
    s->text.len = 0;
    st = mn_detokenizer_finish(s->d, &s->text);
    if (!st && s->spelled.state != MN_THINK_OFF)
        respell(s, true);
    st = give(s, st, text, err);
    if (!st && s->stops.held.len)
        s->part = MN_CHANNEL_ANSWER; /* what was held back is of the answer */
    return st ? st : stop(s, text, true, err);
}

void mn_stream_free(mn_stream *s) {
    if (!s)
        return;
    mn_detokenizer_free(s->d);
    mn_think_tags_free(&s->spelled);
    mn_text_free(&s->text);
    mn_stops_free(&s->stops);
    mn_free(s);
}
