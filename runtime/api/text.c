/* text.c -- text of the API: tokens of a text, and streams, which turn ids into text as they come.
 *
 * A stream passes ids through the detokeniser, tells thinking from the answer by the channels of the
 * vocabulary (channels.c) or by tags spelled as text (think_tags.c), and ends at the caller's stop
 * strings. It refers to the model's tokeniser; its text is valid until the next push. */
#include "api/api.h"
#include "text/chat/channels.h"
#include "text/chat/think_tags.h"
#include "text/chat/stop_strings.h"
#include <string.h>

mn_status mn_text_need_tokenizer(const mn_model *m, mn_error *err) {
    if (m->tokenizer)
        return MN_OK;
    return mn_fail(err, MN_UNSUPPORTED, "%s: the model has no tokeniser; give token ids",
                   m->canonical->path);
}

mn_status mn_text_encode(const mn_model *m, mn_str text, const uint8_t *plain, uint32_t flags,
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
    const uint32_t known = MN_TEXT_ADD_SPECIAL | MN_TEXT_PARSE_SPECIAL;
    uint32_t f = 0;
    if (flags & MN_TEXT_ADD_SPECIAL)
        f |= MN_TOKENIZE_ADD_SPECIAL;
    if (flags & MN_TEXT_PARSE_SPECIAL)
        f |= MN_TOKENIZE_PARSE_SPECIAL;
    const mn_arg args[] = {{"m", m}, {"ids", ids}, {"n", n}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_text(err, __func__, "text", text);
    if (!st)
        st = mn_args_flags(err, "mn_model_tokenize: flags", flags, known);
    if (!st)
        st = mn_text_need_tokenizer(m, err);
    return st ? st : mn_text_encode(m, text, NULL, f, ids, n, err);
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
    const uint32_t known = MN_STREAM_CONTINUE | MN_STREAM_PLAIN | MN_STREAM_SPECIAL;
    uint32_t how = 0;
    if (flags & MN_STREAM_CONTINUE)
        how |= MN_DETOKENIZE_CONTINUE;
    if (flags & MN_STREAM_SPECIAL)
        how |= MN_DETOKENIZE_SPECIAL;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"out", out}, {0}});
    if (!st)
        st = mn_args_flags(err, "mn_stream_create: flags", flags, known);
    if (!st)
        st = mn_text_need_tokenizer(m, err);
    if (st)
        return st;
    mn_stream *s = mn_calloc(1, sizeof *s);
    if (!s)
        return mn_fail_memory(err, sizeof *s);
    s->plain = flags & (MN_STREAM_PLAIN | MN_STREAM_SPECIAL);
    s->channels = mn_channels_of(m->tokenizer);
    const bool has_channels = s->channels.think >= 0 || s->channels.channel >= 0;
    if (m->spells_thinking && !has_channels && !s->plain)
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
    const bool few = n <= MN_STOPS_MAX; /* else none is looked at: n is no length, perhaps */
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

/* Hands the stream's text out; st: of what made it. */
static mn_status give(mn_stream *s, mn_status st, mn_str *text, mn_error *err) {
    *text = (mn_str){s->text.ptr ? s->text.ptr : "", s->text.len};
    if (!st && s->text.failed)
        st = MN_OUT_OF_MEMORY;
    return st ? mn_fail(err, st, "turning ids into text failed") : MN_OK;
}

/* The text of the last ids of a prompt, appended; false: it cannot be had. */
static bool end_of_prompt(const mn_tokenizer *tok, const int32_t *ids, uint32_t n, mn_text *end) {
    const uint32_t from = n > 16 ? n - 16 : 0;
    mn_detokenizer *d = NULL;
    if (mn_detokenizer_create(tok, MN_DETOKENIZE_CONTINUE, &d, NULL))
        return false;
    bool ok = true;
    for (uint32_t i = from; i < n && ok; i++)
        ok = !mn_detokenizer_push(d, ids[i], end);
    mn_detokenizer_free(d);
    return ok;
}

void mn_stream_prompt(mn_stream *s, const int32_t *ids, uint32_t n) {
    mn_text end = {0};
    if (!s || !ids)
        return;
    mn_channels_prompt(&s->channels, ids, n);
    if (s->spelled.state == MN_THINK_OFF)
        return;
    if (end_of_prompt(s->channels.tok, ids, n, &end) && end.len)
        mn_think_tags_prompt(&s->spelled, (mn_str){end.ptr, end.len});
    mn_text_free(&end);
}

int mn_stream_is_thinking(const mn_stream *s) {
    return s && s->part == MN_CHANNEL_THINKING;
}

mn_str mn_stream_tool(const mn_stream *s) {
    return mn_str_of(s && s->part == MN_CHANNEL_CALL ? s->channels.tool : "");
}

/* Where tags are spelled as text they are taken out, and say whose text it is. */
static void respell(mn_stream *s, bool last) {
    bool thinking = false;
    mn_think_tags_push(&s->spelled, &s->text, last, &thinking);
    s->part = thinking ? MN_CHANNEL_THINKING : MN_CHANNEL_ANSWER;
}

/* A special token that is part of what the model says, as text. */
static void show_mark(mn_stream *s, int32_t id) {
    const mn_str mark = mn_tokenizer_piece(s->channels.tok, id);
    if (mn_utf8_check(mark.ptr, mark.len) == mark.len)
        mn_text_put(&s->text, mark.ptr, mark.len);
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
    const mn_channel part = mn_channels_push(&s->channels, id);
    if (part == MN_CHANNEL_HEADER) {
        const bool tag = id == s->channels.think || id == s->channels.end_think;
        s->trim = s->trim || tag;
        s->part = s->channels.part;
        return give(s, MN_OK, text, err);
    }
    s->part = part;
    st = mn_detokenizer_push(s->d, id, &s->text);
    if (!st && mn_channels_shows(&s->channels, id))
        show_mark(s, id);
    if (!st && s->spelled.state != MN_THINK_OFF)
        respell(s, false);
    st = give(s, st, text, err);
    while (s->trim && text->len && strchr(" \t\r\n", *text->ptr)) {
        text->ptr++;
        text->len--;
    }
    s->trim = s->trim && !text->len;
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
