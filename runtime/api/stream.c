/* stream.c -- streams of the API: ids of an output become events as they come.
 *
 * An id passes the detokeniser; the channels of the vocabulary (channels.c) or tags spelled as text
 * (think_tags.c) tell thinking, answer and calls apart; calls that are written as text are found in
 * the answer (calls.c), and in thinking that never ends (thought_calls.c). The rest of the answer
 * ends at the caller's stop strings (stop_strings.c). A
 * stream refers to the model's tokeniser; the events are valid until the next call. */
#include "opened/opened.h"
#include "text/chat/call_types.h"
#include "text/chat/channels.h"
#include "text/chat/events.h"
#include "text/chat/stop_strings.h"
#include "text/chat/think_tags.h"
#include "text/chat/thought_calls.h"
#include <cjson/cJSON.h>
#include <string.h>

struct mn_stream {
    mn_detokenizer *d;
    mn_channels channels;
    mn_think_tags tags;
    mn_calls calls; /* written as text, or messages of Harmony */
    mn_thought thought;
    cJSON *tools;     /* of the request; NULL: not given, or not needed */
    mn_events answer; /* what calls makes of a piece of the answer */
    mn_stops stops;
    mn_text piece;              /* the text of one id */
    mn_events events;           /* of the last push */
    bool in_message;            /* of Harmony, to a tool */
    bool thinks;                /* the last text was thought */
    bool one_call;              /* MN_STREAM_ONE_CALL */
    bool calls_only;            /* MN_STREAM_CALLS_ONLY */
    bool full;                  /* one_call, and another one began */
    bool cut;                   /* mn_stream_cut */
    bool trim;                  /* white space after </think> is part of no text */
    bool plain;                 /* no parts: all that is pushed is the answer */
    bool pushed;                /* an id, or the end: stop strings come too late */
    uint32_t n_pushed, n_least; /* ids; stop strings end the answer from n_least on */
};

mn_status mn_stream_create(const mn_model *m, uint32_t flags, mn_stream **out, mn_error *err) {
    const uint32_t known = MN_STREAM_CONTINUE | MN_STREAM_PLAIN | MN_STREAM_SPECIAL |
                           MN_STREAM_TOOLS | MN_STREAM_ONE_CALL | MN_STREAM_CALLS_ONLY;
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
    if (flags & MN_STREAM_TOOLS && !s->plain && s->channels.channel < 0)
        s->calls.family = m->calls;
    s->one_call = flags & MN_STREAM_ONE_CALL;
    s->calls_only = flags & MN_STREAM_CALLS_ONLY;
    if (m->spells_thinking && !has_channels && !s->plain)
        s->tags.state = MN_THINK_BEGIN;
    st = mn_detokenizer_create(m->tokenizer, how, &s->d, err);
    if (st)
        mn_free(s);
    else
        *out = s;
    return st;
}

void mn_stream_free(mn_stream *s) {
    if (!s)
        return;
    mn_detokenizer_free(s->d);
    mn_think_tags_free(&s->tags);
    mn_calls_free(&s->calls);
    mn_thought_free(&s->thought);
    cJSON_Delete(s->tools);
    mn_events_free(&s->answer);
    mn_stops_free(&s->stops);
    mn_text_free(&s->piece);
    mn_events_free(&s->events);
    mn_free(s);
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

mn_status mn_stream_stop_from(mn_stream *s, uint32_t n, mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"st", s}, {0}});
    if (!st && s->pushed)
        st =
            mn_fail(err, MN_INVALID, "%s: called after ids were pushed, expected before", __func__);
    if (!st)
        s->n_least = n;
    return st;
}

mn_status mn_stream_tools(mn_stream *s, mn_str tools, mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"st", s}, {0}});
    cJSON *list = NULL;
    if (!st)
        st = mn_args_text(err, __func__, "tools", tools);
    if (!st && s->pushed)
        st =
            mn_fail(err, MN_INVALID, "%s: called after ids were pushed, expected before", __func__);
    const bool harmony = st == MN_OK && !s->plain && s->channels.channel >= 0;
    if (st || (!s->calls.family && !harmony))
        return st;
    st = mn_call_types_read(tools, &list, err);
    if (st)
        return st;
    cJSON_Delete(s->tools);
    s->tools = list;
    s->calls.tools = list;
    s->thought.calls = (mn_calls){.family = s->calls.family, .tools = list, .strict = true};
    return MN_OK;
}

int mn_stream_stopped(const mn_stream *s) {
    if (s && s->full)
        return -1;
    return s && s->stops.met ? 1 + (int)s->stops.which : 0;
}

void mn_stream_cut(mn_stream *s) {
    if (s)
        s->cut = true;
}

/* How the calls of the output end. */
static mn_calls_end end_of(const mn_stream *s) {
    if (!s->cut)
        return MN_CALLS_ENDED;
    return s->calls_only ? MN_CALLS_ONLY_CUT : MN_CALLS_CUT;
}

/* ---- the prompt ------------------------------------------------------------------------------ */
void mn_stream_prompt(mn_stream *s, const int32_t *ids, uint32_t n) {
    mn_text end = {0};
    if (!s || !ids)
        return;
    mn_channels_prompt(&s->channels, ids, n);
    const char *mark = mn_call_family_prompt(s->calls.family);
    if (s->tags.state == MN_THINK_OFF && !mark)
        return;
    const bool read = mn_prompt_end(s->channels.tok, ids, n, &end) && end.len;
    const mn_str text = {end.ptr, end.len};
    if (read && s->tags.state != MN_THINK_OFF)
        mn_think_tags_prompt(&s->tags, text);
    const mn_str last = n ? mn_tokenizer_piece(s->channels.tok, ids[n - 1]) : (mn_str){NULL, 0};
    if (mark && ((last.ptr && mn_str_is(last, mark)) || (read && mn_str_ends(text, mark))))
        mn_calls_prompted(&s->calls);
    mn_text_free(&end);
}

/* ---- events ---------------------------------------------------------------------------------- */
/* Text of the answer passes the strings that end it; last: none of them goes on behind it. */
static mn_status put_text(mn_stream *s, mn_str text, bool last) {
    mn_status st = mn_stops_push(&s->stops, &text, last);
    if (!st)
        mn_events_put(&s->events, MN_EVENT_TEXT, 0, text);
    return st;
}

/* Another event than text decides what was kept back of the text before it. Nothing comes after a
 * stop string. */
static mn_status put(mn_stream *s, uint32_t kind, uint32_t call, mn_str text) {
    s->full |= s->one_call && kind == MN_EVENT_CALL && call > 0;
    if (!text.len || s->stops.met || s->full)
        return MN_OK;
    if (kind == MN_EVENT_TEXT)
        return put_text(s, text, false);
    mn_status st = put_text(s, (mn_str){"", 0}, true);
    if (!st)
        mn_events_put(&s->events, kind, call, text);
    return st;
}

/* What was found in a piece of the answer. */
static mn_status put_found(mn_stream *s) {
    mn_events *found = &s->answer;
    mn_status st = mn_events_done(found);
    for (uint32_t i = 0; i < found->n && !st; i++)
        st = put(s, found->list[i].kind, found->list[i].call, found->list[i].text);
    mn_events_clear(found);
    return st;
}

static bool is_blank(mn_str s) {
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return !s.len;
}

/* An answer, or its beginning: what was held of the thinking is decided. */
static mn_status end_thinking(mn_stream *s, mn_str text) {
    if (s->thinks)
        mn_thought_close(&s->thought, &s->answer);
    s->thinks = false;
    if (s->thought.holds && !is_blank(text))
        mn_thought_release(&s->thought, &s->answer);
    return put_found(s);
}

/* Text of the answer, which may have calls in it. */
static mn_status put_answer(mn_stream *s, mn_str text) {
    mn_status st = end_thinking(s, text);
    if (st)
        return st;
    if (!s->calls.family)
        return put(s, MN_EVENT_TEXT, 0, text);
    mn_calls_push(&s->calls, text, &s->answer);
    return put_found(s);
}

/* The answer ends, or another part of the output begins. */
static mn_status end_answer(mn_stream *s, mn_calls_end how) {
    if (!s->calls.family)
        return MN_OK;
    mn_calls_finish(&s->calls, how, &s->answer);
    return put_found(s);
}

/* Where the tools are known, a call may stand in it. */
static mn_status put_thinking(mn_stream *s, mn_str text) {
    mn_status st = text.len ? end_answer(s, MN_CALLS_ENDED) : MN_OK;
    if (st || !text.len)
        return st;
    s->thinks = true;
    if (!s->thought.calls.tools || !s->thought.calls.family)
        return put(s, MN_EVENT_THINKING, 0, text);
    mn_thought_push(&s->thought, text, &s->answer);
    return put_found(s);
}

/* Calls at the end of thinking that no answer follows. */
static mn_status end_thought(mn_stream *s) {
    if (s->thinks || s->thought.holds)
        s->calls.n += mn_thought_finish(&s->thought, s->calls.n, &s->answer);
    s->thinks = false;
    return put_found(s);
}

/* Hands the events of a push out; st: of what made them. */
static mn_status give(mn_stream *s, mn_status st, const mn_stream_event **events, uint32_t *n,
                      mn_error *err) {
    if (!st && s->piece.failed)
        st = MN_OUT_OF_MEMORY;
    if (!st)
        st = mn_events_done(&s->events);
    if (st)
        return mn_fail(err, st, "turning ids into text failed%s",
                       st == MN_OUT_OF_MEMORY ? ": out of memory" : "");
    *events = s->events.list;
    *n = s->events.n;
    return MN_OK;
}

/* The text of an id behind a tag: white space there belongs to nobody. */
static mn_str trimmed(mn_stream *s) {
    mn_str text = {s->piece.ptr ? s->piece.ptr : "", s->piece.len};
    while (s->trim && text.len && strchr(" \t\r\n", *text.ptr)) {
        text.ptr++;
        text.len--;
    }
    s->trim = s->trim && !text.len;
    return text;
}

/* Where tags are spelled as text they are taken out of the piece, and say whose text it is. */
static mn_status put_spelled(mn_stream *s, bool last) {
    mn_status st = MN_OK;
    bool more = true;
    while (more && !st) {
        bool thinking = false;
        const bool literal = mn_calls_reading(&s->calls);
        mn_think_tags_push(&s->tags, &s->piece, last, literal, &thinking);
        const mn_str text = {s->piece.ptr, s->piece.len};
        more = text.len > 0;
        st = thinking ? put_thinking(s, text) : put_answer(s, text);
        s->piece.len = 0;
    }
    return st;
}

/* A call of Harmony, which names tools with a namespace. */
static mn_status begin_call(mn_stream *s) {
    static const char space[] = "functions.";
    const size_t n = sizeof space - 1;
    mn_str tool = mn_str_of(s->channels.tool);
    const bool function = tool.len > n && !memcmp(tool.ptr, space, n);
    if (function)
        tool = (mn_str){tool.ptr + n, tool.len - n};
    mn_status st = end_thinking(s, mn_str_of("."));
    if (st)
        return st;
    s->in_message = true;
    mn_calls_message(&s->calls, tool, function || mn_call_types_has(s->calls.tools, tool),
                     &s->answer);
    return put_found(s);
}

static mn_status end_call(mn_stream *s, mn_calls_end how) {
    if (!s->in_message)
        return MN_OK;
    s->in_message = false;
    mn_calls_message_end(&s->calls, how, &s->answer);
    return put_found(s);
}

/* Arguments of a call of Harmony; its header may be the prompt's end. */
static mn_status put_arguments(mn_stream *s, mn_str text) {
    mn_status st = s->in_message || !text.len ? MN_OK : begin_call(s);
    if (st)
        return st;
    mn_calls_message_push(&s->calls, text, &s->answer);
    return put_found(s);
}

/* A message to a tool that ends within its header: a call without arguments. */
static mn_status call_of_header(mn_stream *s) {
    mn_channels c = s->channels;
    if (c.part != MN_CHANNEL_HEADER || mn_channels_break(&c) != MN_CHANNEL_CALL)
        return MN_OK;
    s->channels = c;
    mn_status st = begin_call(s);
    return st ? st : end_call(s, MN_CALLS_ENDED);
}

/* s->piece, of this part of the output */
static mn_status put_piece(mn_stream *s, mn_channel part, bool last) {
    if (s->tags.state != MN_THINK_OFF)
        return put_spelled(s, last);
    const mn_str text = trimmed(s);
    if (part == MN_CHANNEL_THINKING)
        return put_thinking(s, text);
    return part == MN_CHANNEL_CALL ? put_arguments(s, text) : put_answer(s, text);
}

/* A special token that is part of what the model says, as text. */
static void show_mark(mn_stream *s, int32_t id) {
    const mn_str mark = mn_tokenizer_piece(s->channels.tok, id);
    if (mn_utf8_check(mark.ptr, mark.len) == mark.len)
        mn_text_put(&s->piece, mark.ptr, mark.len);
}

/* A mark or a word of a header, which is nobody's text; the end of a header may begin a call. */
static mn_status push_header(mn_stream *s, int32_t id) {
    if (id == s->channels.think || id == s->channels.end_think)
        s->trim = true;
    if (s->channels.part == MN_CHANNEL_CALL)
        return begin_call(s);
    return end_call(s, MN_CALLS_ENDED);
}

/* A token that is a part of a call as models write it. */
static bool is_mark(const mn_stream *s, int32_t id) {
    const mn_str piece = mn_tokenizer_piece(s->channels.tok, id);
    return mn_channels_shows(&s->channels, id) ||
           (piece.ptr && mn_tokenizer_is_special(s->channels.tok, id) &&
            mn_call_family_has_mark(s->calls.family, piece));
}

static mn_status push(mn_stream *s, int32_t id) {
    mn_status st = MN_OK;
    if (!s->plain && id >= 0 && id == s->channels.call)
        st = call_of_header(s);
    if (st)
        return st;
    const mn_channel part = s->plain ? MN_CHANNEL_ANSWER : mn_channels_push(&s->channels, id);
    if (part == MN_CHANNEL_HEADER)
        return push_header(s, id);
    st = mn_detokenizer_push(s->d, id, &s->piece);
    if (!st && !s->plain && is_mark(s, id))
        show_mark(s, id);
    return st ? st : put_piece(s, part, false);
}

/* What every call with events does first. */
static mn_status begin(mn_stream *s, const char *function, const mn_stream_event **events,
                       uint32_t *n, mn_error *err) {
    const mn_arg args[] = {{"st", s}, {"events", events}, {"n", n}, {0}};
    mn_status st = mn_args_need(err, function, args);
    if (st)
        return st;
    *n = 0;
    s->pushed = true;
    s->piece.len = 0;
    mn_events_clear(&s->events);
    return MN_OK;
}

mn_status mn_stream_push(mn_stream *s, int32_t id, const mn_stream_event **events, uint32_t *n,
                         mn_error *err) {
    mn_status st = begin(s, __func__, events, n, err);
    if (st)
        return st;
    s->stops.off = ++s->n_pushed < s->n_least;
    return give(s, push(s, id), events, n, err);
}

mn_status mn_stream_finish(mn_stream *s, const mn_stream_event **events, uint32_t *n,
                           mn_error *err) {
    mn_status st = begin(s, __func__, events, n, err);
    if (st)
        return st;
    st = mn_detokenizer_finish(s->d, &s->piece);
    mn_channel part = s->channels.part;
    if (part == MN_CHANNEL_HEADER)
        part = MN_CHANNEL_ANSWER; /* of a character that was cut before it */
    if (s->cut)
        mn_think_tags_cut(&s->tags);
    if (!st)
        st = put_piece(s, part, true);
    if (!st)
        st = end_call(s, end_of(s));
    if (!st && !s->cut && !s->plain)
        st = call_of_header(s);
    if (!st)
        st = end_thought(s);
    if (!st)
        st = end_answer(s, end_of(s));
    if (!st)
        st = put_text(s, (mn_str){"", 0}, true);
    return give(s, st, events, n, err);
}
