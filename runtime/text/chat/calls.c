/* calls.c -- finds tool calls in the text of an answer (calls.h): marks, and what is between calls.
 * The families of models are in call_families.c. The state is that of one stream, which owns it;
 * what is held is a copy of the answer's bytes, at most MN_CALL_HELD of them, and is dropped or
 * given once.
 *
 * Every byte is examined once, but for the few of a mark that is none, so that the time is linear
 * in the length of the answer whatever a model writes. */
#include "text/chat/call_families.h"
#include "text/chat/call_types.h"
#include "text/chat/calls.h"
#include <string.h>

enum { SPACE_HELD = 64, MARK_MAX = 64 };

/* ---- what is given --------------------------------------------------------------------------- */
static void calls_drop(mn_calls *s) {
    s->held.len = 0;
    s->again = 0;
}

/* Where in a line of text the answer is, and whether that is code. */
static void calls_follow(mn_calls *s, char c) {
    if (c == '\n') {
        s->in_line = false;
        s->ticks = 0;
    } else if (c == '`' && !s->in_line && s->ticks < 3) {
        s->ticks++;
        if (s->ticks == 3)
            s->fenced = !s->fenced;
    } else if (!mn_is_blank(c)) {
        s->in_line = true;
    }
}

/* What is held, from..to, is text after all; the others are dropped. */
static void calls_say(mn_calls *s, size_t from, size_t to) {
    if (to > from)
        mn_events_put(s->out, MN_EVENT_TEXT, 0, (mn_str){s->held.ptr + from, to - from});
    calls_drop(s);
}

bool mn_calls_name(mn_calls *s, char c) {
    if (s->n_name == sizeof s->name)
        return false;
    s->name[s->n_name++] = c;
    return true;
}

bool mn_calls_is_tool(const mn_calls *s) {
    return mn_call_types_has(s->tools, (mn_str){s->name, s->n_name});
}

bool mn_calls_begins_tool(const mn_calls *s) {
    return mn_call_types_begins(s->tools, (mn_str){s->name, s->n_name});
}

/* Some models write the namespace that Harmony has. */
static void drop_namespace(mn_calls *s) {
    static const char space[] = "functions.";
    const uint16_t n = sizeof space - 1;
    if (s->n_name <= n || memcmp(s->name, space, n) != 0)
        return;
    if (!mn_call_types_has(s->tools, (mn_str){s->name + n, (uint64_t)(s->n_name - n)}))
        return;
    s->n_name = (uint16_t)(s->n_name - n);
    memmove(s->name, s->name + n, s->n_name);
}

bool mn_calls_may_call(mn_calls *s) {
    if (mn_calls_is_tool(s))
        return true;
    drop_namespace(s);
    if (mn_calls_is_tool(s))
        return true;
    return !s->strict && (s->marked || (!s->tools && s->family->bare));
}

void mn_calls_begin(mn_calls *s) {
    calls_drop(s);
    if (s->opened)
        s->owed = s->family->closes[0] != NULL;
    s->opened = false;
    s->framed = true;
    s->given = true;
    s->open = true;
    mn_events_put(s->out, MN_EVENT_CALL, s->n++, (mn_str){s->name, s->n_name});
}

void mn_calls_put(mn_calls *s, const char *bytes, size_t n) {
    calls_drop(s);
    mn_events_put(s->out, MN_EVENT_ARGUMENTS, s->n - 1, (mn_str){bytes, n});
}

void mn_calls_arguments(mn_calls *s, const char *bytes, size_t n) {
    mn_call_json *j = &s->json;
    if (s->form == &mn_call_json_form && !j->has_name) {
        mn_text_put(&j->early, bytes, n);
        s->out->failed |= j->early.failed;
        return;
    }
    if (!s->given)
        mn_calls_begin(s);
    mn_calls_put(s, bytes, n);
}

/* ---- marks ----------------------------------------------------------------------------------- */
typedef enum { NO_MARK, OPENS, CLOSES, BEGINS_FUNCTION, ENDS_FUNCTION } mark_kind;

/* -1: the text does not begin so; 0: as far as it goes; 1: it is that. */
static int on(const char *text, size_t n, const char *mark) {
    const size_t len = strlen(mark);
    if (n > len || memcmp(mark, text, n) != 0)
        return -1;
    return n == len;
}

int mn_calls_on_close(const mn_calls *s, const char *text, size_t n) {
    int best = -1;
    for (int i = 0; i < 2 && s->family->closes[i]; i++)
        best = MN_MAX(best, on(text, n, s->family->closes[i]));
    return best;
}

void mn_calls_mark_closed(mn_calls *s) {
    s->owed = false;
}

/* A tag of a function may stand alone where it is known what tools there are. */
static bool may_begin_function(const mn_calls *s) {
    return s->family->words &&
           (s->tools || s->opened || (s->after && s->owed) || s->family->functions);
}

/* Which mark the text is, or is on the way to: what mn_calls_on_close returns. */
static int on_mark(const mn_calls *s, const char *text, size_t n, mark_kind *kind) {
    static const mn_call_words none = {0};
    const mn_call_family *f = s->family;
    const mn_call_words *w = f->words ? f->words : &none;
    const bool closing = s->after || s->owed;
    const struct {
        const char *mark;
        mark_kind kind;
        bool looked_for;
    } all[] = {{w->function, BEGINS_FUNCTION, may_begin_function(s)},
               {f->opens[0], OPENS, !f->functions},
               {f->opens[1], OPENS, true},
               {w->function_end, ENDS_FUNCTION, s->after},
               {f->closes[0], CLOSES, closing},
               {f->closes[1], CLOSES, closing}};
    int best = -1;
    for (size_t i = 0; i < MN_COUNT(all) && best < 1; i++) {
        if (!all[i].mark || !all[i].looked_for)
            continue;
        best = MN_MAX(best, on(text, n, all[i].mark));
        *kind = best == 1 ? all[i].kind : NO_MARK;
    }
    return best;
}

/* The mark that what is held ends with. */
static const char *last_mark(const mn_calls *s, mark_kind *kind) {
    const mn_call_family *f = s->family;
    const mn_str held = {s->held.ptr, s->held.len};
    const struct {
        const char *mark;
        mark_kind kind;
    } all[] = {{f->closes[0], CLOSES},
               {f->closes[1], CLOSES},
               {f->opens[1], OPENS},
               {f->opens[0], f->functions ? BEGINS_FUNCTION : OPENS},
               {f->words ? f->words->function : NULL, BEGINS_FUNCTION},
               {f->words ? f->words->function_end : NULL, ENDS_FUNCTION}};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i].mark && mn_str_ends(held, all[i].mark)) {
            *kind = all[i].kind;
            return all[i].mark;
        }
    return NULL;
}

/* Of what is held only its last bytes, the mark, remain. */
static void keep_mark(mn_calls *s, const char *mark) {
    const size_t n = strlen(mark);
    memmove(s->held.ptr, s->held.ptr + s->held.len - n, n);
    s->held.len = n;
}

bool mn_calls_ends_with_mark(mn_calls *s) {
    mark_kind kind = NO_MARK;
    const char *mark = last_mark(s, &kind);
    if (!mark || kind == ENDS_FUNCTION)
        return false;
    keep_mark(s, mark);
    s->again = 1;
    return true;
}

/* ---- what is read ---------------------------------------------------------------------------- */
static void calls_push(mn_calls *s, char c);

static void go_outside(mn_calls *s, bool after) {
    s->after = after;
    s->opened = false;
    s->in_gap = false;
    s->state = MN_CALLS_OUTSIDE;
}

/* What is held is text; of a mark that stands where one was to be closed, only what is behind. */
static void say_held(mn_calls *s, size_t n) {
    const bool drops = s->reopened && s->state == MN_CALLS_GAP;
    const size_t from = drops ? MN_MIN(s->mark_end, n) : 0;
    for (size_t i = from; i < n; i++)
        calls_follow(s, s->held.ptr[i]);
    s->said |= n > from;
    calls_say(s, from, n);
}

/* What is held is no call: it is text, but for its last byte, or the beginning of another mark,
 * which are looked at again. */
static void calls_refuse(mn_calls *s) {
    char rest[MARK_MAX];
    const size_t from = (s->again ? s->again : s->held.len) - 1;
    const size_t n = MN_MIN(s->held.len - from, sizeof rest);
    memcpy(rest, s->held.ptr + from, n);
    say_held(s, from);
    go_outside(s, false);
    for (size_t i = 0; i < n; i++)
        calls_push(s, rest[i]);
}

/* Behind a call that broke off: words are text; brackets, what is in front of them, and marks are
 * what was left of it. */
static void calls_decide(mn_calls *s) {
    const char *brace = s->held.len ? memrchr(s->held.ptr, '}', s->held.len) : NULL;
    size_t from = brace ? (size_t)(brace - s->held.ptr) + 1 : 0;
    while (from < s->held.len && mn_is_blank(s->held.ptr[from]))
        from++;
    const unsigned char c = from < s->held.len ? (unsigned char)s->held.ptr[from] : 0;
    const bool words = (c | 0x20) >= 'a' && ((c | 0x20) <= 'z' || c >= 0x80);
    if (words) {
        s->said = true;
        s->in_line = s->held.ptr[s->held.len - 1] != '\n';
        calls_say(s, from, s->held.len);
    }
    calls_drop(s);
    go_outside(s, !words);
}

/* A byte that does not go on with the call. */
static void break_off(mn_calls *s) {
    char rest[MARK_MAX];
    const size_t from = (s->again ? s->again : s->held.len) - 1;
    const size_t n = MN_MIN(s->held.len - from, sizeof rest);
    memcpy(rest, s->held.ptr + from, n);
    if (!s->form->finish(s, (unsigned char)rest[0])) {
        calls_refuse(s);
        return;
    }
    calls_drop(s);
    s->state = MN_CALLS_BEHIND;
    for (size_t i = 0; i < n; i++)
        calls_push(s, rest[i]);
}

/* The call or list of calls is whole. */
static void calls_end(mn_calls *s) {
    if (!s->framed) { /* an empty list */
        s->again = s->held.len + 1;
        calls_refuse(s);
        return;
    }
    calls_drop(s);
    s->in_line = false;
    go_outside(s, true);
}

static void calls_inside(mn_calls *s, char c) {
    const mn_call_step step = s->form->push(s, c);
    if (step == MN_CALL_BAD) {
        break_off(s);
    } else if (step == MN_CALL_END) {
        calls_end(s);
    } else if (step == MN_CALL_TEXT) {
        calls_drop(s);
        s->in_line = false;
        go_outside(s, false);
    }
}

/* A call begins, of this form. */
static void calls_begin(mn_calls *s, const mn_call_form *form) {
    mn_text early = s->json.early;
    mn_text maybe = s->tags.maybe;
    early.len = 0;
    maybe.len = 0;
    s->json = (mn_call_json){.early = early};
    s->named = (mn_call_named){.lines = s->family->lines,
                               .content = s->family->content,
                               .args = s->family->args,
                               .before = s->family->before,
                               .quote = s->family->quote,
                               .typed = s->family->typed};
    s->python = (mn_call_python){.in_list = false};
    s->tags = (mn_call_tags){.maybe = maybe};
    s->n_name = 0;
    s->framed = false;
    s->given = false;
    s->open = false;
    s->in_gap = false;
    s->form = form;
    s->state = MN_CALLS_INSIDE;
}

static bool calls_in_name(char c) {
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || c == '_';
}

/* The first byte behind a mark, or of a call without one. */
static void calls_enter(mn_calls *s, char c) {
    const mn_call_family *f = s->family;
    const mn_call_form *form = NULL;
    if (f->python && (c == '[' || (s->marked && calls_in_name(c))))
        form = &mn_call_python_form;
    else if ((c == '{' || c == '[') && !f->lines)
        form = &mn_call_json_form;
    else if (f->named && calls_in_name(c))
        form = &mn_call_named_form;
    else if (f->words && !f->words->function && s->marked && calls_in_name(c))
        form = &mn_call_tags_form;
    if (!form) {
        calls_refuse(s);
        return;
    }
    calls_begin(s, form);
    calls_inside(s, c);
}

/* Behind a mark. Some models fence the call as code. */
static void in_gap(mn_calls *s, char c) {
    if (c == '\n')
        s->gap_code = false;
    if (mn_is_blank(c) || s->gap_code)
        return;
    if (c == '`' && !s->family->named) {
        s->gap_code = s->held.len > 2 && s->held.ptr[s->held.len - 2] == '`';
    } else if (c == '<' && (s->family->words || s->family->nested)) {
        s->mark = s->held.len - 1;
        s->in_gap = true;
        s->state = MN_CALLS_MARK;
    } else {
        calls_enter(s, c);
    }
}

/* Whether a call may begin here without a mark: behind another one, or in a line of its own. */
static bool may_be_bare(const mn_calls *s) {
    if (s->after)
        return s->family->bare || s->owed || s->tools;
    if (s->fenced || s->in_line)
        return false;
    return s->tools ? !s->family->lines : s->family->bare && !s->said;
}

/* The '[' of no mark, and what is behind it, may begin a list of calls. */
static bool retry_as_list(mn_calls *s) {
    char rest[MARK_MAX];
    const size_t n = s->held.len - s->mark;
    if (s->held.ptr[s->mark] != '[' || s->in_gap || !may_be_bare(s))
        return false;
    memcpy(rest, s->held.ptr + s->mark, n);
    s->held.len = s->mark + 1;
    s->marked = s->after && s->owed;
    calls_begin(s, &mn_call_json_form);
    calls_inside(s, '[');
    for (size_t i = 1; i < n; i++)
        calls_push(s, rest[i]);
    return true;
}

static void opened(mn_calls *s) {
    if (!s->in_gap) {
        s->reopened = s->after || s->owed;
        s->mark_end = s->held.len;
    }
    s->marked = true;
    s->opened = true;
    s->in_gap = false;
    s->gap_code = false;
    s->state = MN_CALLS_GAP;
}

/* A byte of a mark: in front of a call, or behind one. */
static void in_mark(mn_calls *s) {
    mark_kind kind = NO_MARK;
    const int found = on_mark(s, s->held.ptr + s->mark, s->held.len - s->mark, &kind);
    if (found < 0 && !retry_as_list(s)) {
        calls_refuse(s);
    } else if (kind == OPENS) {
        opened(s);
    } else if (kind == BEGINS_FUNCTION) {
        s->marked = s->in_gap || (s->after && s->owed) || s->family->functions;
        calls_begin(s, &mn_call_tags_form);
    } else if (found == 1) {
        s->owed &= kind != CLOSES;
        calls_drop(s);
        go_outside(s, true);
    }
}

/* A bracket too much behind a call, or what stands between two in one mark or ends code there. */
static bool is_left_over(const mn_calls *s, char c) {
    const bool in_mark = s->owed && (c == '`' || c == ',');
    return s->after && s->held.len == 1 && (c == '}' || c == ']' || in_mark);
}

/* The first byte of a call without a mark of its own. */
static bool begins_call(const mn_calls *s, char c) {
    const mn_call_family *f = s->family;
    if (c == '{' || c == '[')
        return may_be_bare(s);
    if (!calls_in_name(c))
        return false;
    if (f->python && s->marked)
        return true;
    return f->named && s->tools && !s->after && may_be_bare(s) &&
           mn_call_types_begins(s->tools, (mn_str){&c, 1});
}

/* A byte of the text, or between calls. */
static void outside(mn_calls *s, char c) {
    const mn_call_family *f = s->family;
    const bool first = s->held.len == 1;
    mark_kind kind = NO_MARK;
    if (mn_is_blank(c)) {
        calls_follow(s, c);
        if (s->after && first)
            calls_drop(s);
        else if (s->held.len > SPACE_HELD)
            calls_say(s, 0, s->held.len);
        return;
    }
    if ((f->separator && c == f->separator && s->after && first) || is_left_over(s, c)) {
        if (c != f->separator)
            calls_drop(s);
        return;
    }
    s->marked = s->after && s->owed;
    if (!(s->strict && s->in_line) && on_mark(s, &c, 1, &kind) >= 0) {
        s->mark = s->held.len - 1;
        s->in_gap = false;
        s->state = MN_CALLS_MARK;
    } else if (begins_call(s, c)) {
        calls_enter(s, c);
    } else {
        calls_follow(s, c);
        s->said = true;
        s->after = false;
        calls_say(s, 0, s->held.len);
    }
}

/* Behind a call that broke off: up to a mark, or where there are none, the end of the line. */
static void chat_calls_behind(mn_calls *s, char c) {
    const mn_call_family *f = s->family;
    mark_kind kind = NO_MARK;
    const char *mark = last_mark(s, &kind);
    if (mark && (kind == OPENS || kind == BEGINS_FUNCTION)) {
        keep_mark(s, mark);
        s->mark = 0;
        s->after = true;
        s->in_gap = false;
        in_mark(s);
    } else if (mark) {
        s->owed &= kind != CLOSES;
        calls_drop(s);
        go_outside(s, true);
    } else if (!f->closes[0] && (c == '\n' || (f->separator && c == f->separator))) {
        calls_decide(s);
    }
}

/* More than is held: a call that was given ends here, what is held is text. */
static void calls_overflow(mn_calls *s) {
    if (s->state == MN_CALLS_INSIDE && s->given) {
        mn_text held = s->held;
        s->held = (mn_text){0};
        s->form->finish(s, -1);
        mn_text_free(&s->held);
        s->held = held;
    }
    s->again = s->held.len + 1;
    calls_refuse(s);
}

static void calls_push(mn_calls *s, char c) {
    mn_text_put(&s->held, &c, 1);
    if (s->held.failed) {
        s->out->failed = true;
        return;
    }
    if (s->held.len > MN_CALL_HELD)
        calls_overflow(s);
    else if (s->state == MN_CALLS_OUTSIDE)
        outside(s, c);
    else if (s->state == MN_CALLS_MARK)
        in_mark(s);
    else if (s->state == MN_CALLS_INSIDE)
        calls_inside(s, c);
    else if (s->state == MN_CALLS_BEHIND)
        chat_calls_behind(s, c);
    else
        in_gap(s, c);
}

void mn_calls_push(mn_calls *s, mn_str text, mn_events *out) {
    s->out = out;
    for (uint64_t i = 0; i < text.len; i++)
        calls_push(s, text.ptr[i]);
}

void mn_calls_prompted(mn_calls *s) {
    s->marked = true;
    s->opened = true;
    s->state = MN_CALLS_GAP;
}

/* ---- the end --------------------------------------------------------------------------------- */
/* A call that was given: its object is closed, unless the output was cut; words between its tags
 * are text. */
static void finish_given(mn_calls *s, bool cut) {
    mn_text junk = {0};
    if (s->form == &mn_call_tags_form && s->tags.at == MN_CALL_TAG_JUNK) {
        junk = s->held;
        s->held = (mn_text){0};
    }
    if (!cut || junk.len)
        s->form->finish(s, -1);
    calls_drop(s);
    if (junk.len) {
        mn_text_free(&s->held);
        s->held = junk;
        calls_decide(s);
    }
}

/* What is held is no text where it is part of a call that a limit cut, or of a mark behind one. */
static bool is_lost(const mn_calls *s, bool cut) {
    const size_t n = s->held.len - s->mark;
    if (s->state == MN_CALLS_MARK)
        return s->after || (cut && (s->in_gap || n > 1));
    if (s->state == MN_CALLS_GAP)
        return cut || s->reopened;
    if (s->state == MN_CALLS_OUTSIDE)
        return s->after;
    return s->state == MN_CALLS_INSIDE && cut && (s->marked || s->after);
}

void mn_calls_finish(mn_calls *s, mn_calls_end how, mn_events *out) {
    const bool cut = how != MN_CALLS_ENDED;
    s->out = out;
    if (s->state == MN_CALLS_INSIDE && (s->framed || (!cut && s->form->finish(s, -1))))
        finish_given(s, cut);
    else if (s->state == MN_CALLS_BEHIND)
        calls_decide(s);
    else if (is_lost(s, cut) || how == MN_CALLS_ONLY_CUT)
        calls_drop(s);
    say_held(s, s->held.len);
    go_outside(s, false);
}

/* ---- messages -------------------------------------------------------------------------------- */
void mn_calls_message(mn_calls *s, mn_str name, bool json, mn_events *out) {
    s->out = out;
    s->n_name = (uint16_t)MN_MIN(name.len, sizeof s->name);
    memcpy(s->name, name.ptr, s->n_name);
    s->form = &mn_call_named_form;
    mn_calls_begin(s);
    mn_call_args_begin(&s->args);
    s->open = json;
    s->state = MN_CALLS_INSIDE;
}

void mn_calls_message_push(mn_calls *s, mn_str text, mn_events *out) {
    s->out = out;
    if (s->state == MN_CALLS_INSIDE && !s->open)
        mn_calls_put(s, text.ptr, (size_t)text.len);
    for (uint64_t i = 0; i < text.len && s->open; i++) {
        const mn_call_step step = mn_call_args_push(s, text.ptr[i]);
        if (step == MN_CALL_MORE)
            continue;
        mn_call_args_close(s);
        s->open = false;
        s->state = MN_CALLS_OUTSIDE;
    }
}

void mn_calls_message_end(mn_calls *s, mn_calls_end how, mn_events *out) {
    s->out = out;
    if (s->open && how == MN_CALLS_ENDED)
        mn_call_args_close(s);
    s->open = false;
    s->state = MN_CALLS_OUTSIDE;
}

bool mn_calls_reading(const mn_calls *s) {
    return s->state == MN_CALLS_INSIDE && (s->given || s->marked);
}

void mn_calls_free(mn_calls *s) {
    mn_text_free(&s->held);
    mn_text_free(&s->made);
    mn_text_free(&s->json.early);
    mn_text_free(&s->tags.maybe);
}
