/* text.c -- text of the API: tokenise, chat, streams of text. */
#include "api/api.h"
#include "text/channels.h"
#include "text/chat.h"
#include <string.h>
#include <time.h>

static mn_status need_tokenizer(const mn_model *m, mn_error *err) {
    return m->tokenizer
               ? MN_OK
               : mn_fail(err, MN_UNSUPPORTED, "%s: the model has no tokeniser; give token ids", m->canonical->path);
}

static mn_status encode(const mn_model *m, mn_str text, const uint8_t *plain, uint32_t flags, int32_t **ids,
                        uint32_t *n, mn_error *err) {
    size_t count = 0;
    mn_status st = mn_tokenizer_encode(m->tokenizer, text, plain, flags, ids, &count, err);
    if (!st && count > INT32_MAX) {
        mn_free(*ids);
        st = mn_fail(err, MN_BAD_INPUT, "the text has %zu tokens", count);
    }
    *n = (uint32_t)count;
    return st;
}

mn_status mn_model_tokenize(const mn_model *m, mn_str text, uint32_t flags, int32_t **ids, uint32_t *n, mn_error *err) {
    uint32_t f = (flags & MN_TEXT_ADD_SPECIAL ? MN_TOKENIZE_ADD_SPECIAL : 0) |
                 (flags & MN_TEXT_PARSE_SPECIAL ? MN_TOKENIZE_PARSE_SPECIAL : 0);
    mn_status st = need_tokenizer(m, err);
    return st ? st : encode(m, text, NULL, f, ids, n, err);
}

static mn_str piece(const mn_model *m, int32_t id) {
    return id < 0 ? mn_str_of("") : mn_tokenizer_piece(m->tokenizer, id);
}

static mn_status render(const mn_model *m, const mn_message *messages, uint32_t n, bool answer, mn_text *out,
                        mn_text *marks, mn_error *err) {
    mn_chat_message *copy = mn_calloc(n ? n : 1, sizeof *copy);
    if (!copy) return mn_fail_memory(err, n * sizeof *copy);
    for (uint32_t i = 0; i < n; i++) copy[i] = (mn_chat_message){messages[i].role, messages[i].content};
    mn_status st = mn_chat_render(m->chat, copy, n, answer, piece(m, mn_tokenizer_bos(m->tokenizer)),
                                  piece(m, mn_tokenizer_eos(m->tokenizer)), (int64_t)time(NULL), out, marks, err);
    mn_free(copy);
    return st ? mn_fail_in(err, st, "chat template") : MN_OK;
}

mn_status mn_model_chat(const mn_model *m, const mn_message *messages, uint32_t n_messages, uint32_t n_known,
                        int32_t **ids, uint32_t *n, mn_error *err) {
    mn_text all = {0}, marks = {0}, known = {0};
    mn_status st = need_tokenizer(m, err);
    if (!st && !m->chat) st = mn_fail(err, MN_UNSUPPORTED, "%s: the model has no chat template", m->canonical->path);
    for (uint32_t i = 0; i < n_messages && !st; i++) {
        size_t bad = mn_utf8_check(messages[i].content.ptr, messages[i].content.len);
        if (bad < messages[i].content.len) st = mn_fail(err, MN_BAD_INPUT, "the text is not UTF-8: byte %zu", bad);
    }
    if (!st) st = render(m, messages, n_messages, true, &all, &marks, err);
    if (!st && n_known) st = render(m, messages, n_known, false, &known, NULL, err);
    if (!st && (known.len > all.len || (known.len && memcmp(known.ptr, all.ptr, known.len))))
        st = mn_fail(err, MN_UNSUPPORTED, "the chat template changes what came before");
    if (!st) {
        mn_str text = {all.ptr + known.len, all.len - known.len};
        st = encode(m, text, (const uint8_t *)marks.ptr + known.len, MN_TOKENIZE_PARSE_SPECIAL, ids, n, err);
    }
    mn_text_free(&all);
    mn_text_free(&marks);
    mn_text_free(&known);
    return st;
}

mn_status mn_template_render(const mn_model *m, const char *source, mn_str vars, char **text, uint64_t *n,
                             mn_error *err) {
    const mn_tokenizer *tok = m ? m->tokenizer : NULL;
    mn_jinja *own = NULL;
    mn_text out = {0};
    mn_status st = MN_OK;
    if (!source && !(m && m->chat))
        return mn_fail(err, MN_UNSUPPORTED, "%s: the model has no chat template", m ? m->canonical->path : "no model");
    if (source) st = mn_jinja_parse(mn_str_of(source), &own, err);
    mn_str bos = tok ? piece(m, mn_tokenizer_bos(tok)) : (mn_str){NULL, 0};
    mn_str eos = tok ? piece(m, mn_tokenizer_eos(tok)) : (mn_str){NULL, 0};
    if (!st) st = mn_chat_render_json(own ? own : m->chat, vars, bos, eos, (int64_t)time(NULL), &out, err);
    if (!st && !(*text = mn_strndup(out.ptr ? out.ptr : "", out.len))) st = mn_fail_memory(err, out.len);
    *n = out.len;
    mn_jinja_free(own);
    mn_text_free(&out);
    return st;
}

void mn_ids_free(int32_t *ids) { mn_free(ids); }

int mn_model_is_stop(const mn_model *m, int32_t id) {
    for (uint32_t i = 0; i < m->n_stop; i++)
        if (m->stop[i] == id) return 1;
    return 0;
}

/* ---- streams ---- */
struct mn_stream {
    mn_detokenizer *d;
    mn_channels channels;
    mn_part part; /* of what was pushed last */
    bool trim;    /* white space after </think> belongs to nobody */
    mn_text text;
};

mn_status mn_stream_create(const mn_model *m, int continuing, mn_stream **out, mn_error *err) {
    mn_status st = need_tokenizer(m, err);
    if (st) return st;
    mn_stream *s = mn_calloc(1, sizeof *s);
    if (!s) return mn_fail_memory(err, sizeof *s);
    s->channels = mn_channels_of(m->tokenizer);
    st = mn_detokenizer_create(m->tokenizer, continuing ? MN_DETOKENIZE_CONTINUE : 0, &s->d, err);
    if (st)
        mn_free(s);
    else
        *out = s;
    return st;
}

static mn_status give(mn_stream *s, mn_status st, mn_str *text, mn_error *err) {
    *text = (mn_str){s->text.ptr ? s->text.ptr : "", s->text.len};
    if (!st && s->text.failed) st = MN_OUT_OF_MEMORY;
    return st ? mn_fail(err, st, "turning ids into text failed") : MN_OK;
}

void mn_stream_prompt(mn_stream *s, const int32_t *ids, uint32_t n) { mn_channels_prompt(&s->channels, ids, n); }

int mn_stream_is_thinking(const mn_stream *s) { return s->part == MN_PART_THINKING; }

/* Marks and headers give no text; after one, the white space that begins a part is dropped where tags made it. */
mn_status mn_stream_push(mn_stream *s, int32_t id, mn_str *text, mn_error *err) {
    mn_part part = mn_channels_push(&s->channels, id);
    s->text.len = 0;
    s->trim |= part == MN_PART_HEADER && (id == s->channels.think || id == s->channels.end_think);
    s->part = part == MN_PART_HEADER ? s->channels.part : part;
    if (part == MN_PART_HEADER) return give(s, MN_OK, text, err);
    mn_status st = give(s, mn_detokenizer_push(s->d, id, &s->text), text, err);
    while (s->trim && text->len && strchr(" \t\r\n", *text->ptr)) text->ptr++, text->len--;
    s->trim &= !text->len;
    return st;
}

mn_status mn_stream_finish(mn_stream *s, mn_str *text, mn_error *err) {
    s->text.len = 0;
    return give(s, mn_detokenizer_finish(s->d, &s->text), text, err);
}

void mn_stream_free(mn_stream *s) {
    if (!s) return;
    mn_detokenizer_free(s->d);
    mn_text_free(&s->text);
    mn_free(s);
}
