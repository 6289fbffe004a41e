/* calls.c -- finds tool calls in the text of an answer (calls.h): the marks of each family of
 * models, and what is between calls. The state is that of one stream, which owns it; what is held
 * is a copy of the answer's bytes, at most MN_CALL_HELD of them, and is dropped or given once.
 *
 * Every byte is examined once, but for the few of a mark that is none, so that the time is linear
 * in the length of the answer whatever a model writes. */
#include "text/chat/calls.h"
#include <string.h>

enum { SPACE_HELD = 64 };

/* opens: marks in front of a call or a list of them; closes: marks behind. */
struct mn_call_family {
    const char *opens[2], *closes[2];
    const char *hint; /* another text of the chat template that tells the family; NULL: none */
    char separator;   /* between calls without marks */
    bool bare;        /* an answer that begins with { may be a call without a mark */
    bool named, tags; /* forms beside JSON */
    bool lists;       /* calls stand in a list, also a single one */
};

/* The first whose mark is in the template, else in the vocabulary: models that were tuned with
 * another template keep the vocabulary of their parents. */
static const mn_call_family families[] = {
    /* Mistral: [TOOL_CALLS][{...}], later [TOOL_CALLS]name[ARGS]{...} */
    {.opens = {"[TOOL_CALLS]"}, .named = true, .lists = true},
    /* Phi-4-mini, Granite 3: <|tool_call|>[{...}]<|/tool_call|>, later <tool_call>[{...}] */
    {.opens = {"<|tool_call|>", "<tool_call>"},
     .closes = {"<|/tool_call|>", "</tool_call>"},
     .lists = true},
    /* Hermes, Qwen, Granite 4: <tool_call>{...}</tool_call>; Qwen3-Coder: tags in it */
    {.opens = {"<tool_call>"}, .closes = {"</tool_call>"}, .tags = true},
    /* Llama 3: {"name": ..., "parameters": ...} and nothing else, or behind <|python_tag|> */
    {.opens = {"<|python_tag|>"},
     .hint = "{\"name\": function name, \"parameters\":",
     .separator = ';',
     .bare = true}};

static bool has(mn_str text, const char *part) {
    return part && memmem(text.ptr, (size_t)text.len, part, strlen(part));
}

const mn_call_family *mn_call_family_in(mn_str chat_template) {
    for (size_t i = 0; i < MN_COUNT(families); i++)
        if (has(chat_template, families[i].opens[0]) || has(chat_template, families[i].hint))
            return &families[i];
    return NULL;
}

const mn_call_family *mn_call_family_of(const mn_tokenizer *tok) {
    for (size_t i = 0; i < MN_COUNT(families); i++)
        if (mn_tokenizer_find(tok, mn_str_of(families[i].opens[0])) >= 0)
            return &families[i];
    return NULL;
}

/* The first of the marks that the template has; without a template the first. */
static const char *mark_in(const char *const marks[2], mn_str chat_template) {
    for (int i = 0; i < 2 && chat_template.len; i++)
        if (has(chat_template, marks[i]))
            return marks[i];
    return chat_template.len ? NULL : marks[0];
}

mn_call_style mn_call_style_of(const mn_call_family *family, mn_str chat_template) {
    mn_call_style y = {.key = "arguments", .before = "\n{\"name\": \"", .behind = "}\n"};
    if (!family)
        return y;
    y.known = true;
    y.between = "";
    if (family->bare) {
        y.before = "";
        y.key = "parameters";
        y.behind = "}";
        y.between = "; ";
        return y;
    }
    if (family->tags && has(chat_template, "<function=")) {
        y.tags = true;
        y.before = "\n<function=";
        y.behind = "</function>\n";
    }
    y.open = mark_in(family->opens, chat_template);
    y.close = mark_in(family->closes, chat_template);
    if (!y.open)
        y.open = family->opens[0];
    if (family->named && has(chat_template, "[ARGS]"))
        y.args_mark = "[ARGS]";
    if (family->lists) {
        y.before = "[{\"name\": \"";
        y.behind = "}]";
    } else {
        y.between = "\n";
    }
    return y;
}

bool mn_call_family_needs_types(const mn_call_family *family) {
    return family && family->tags;
}

/* ---- what is given --------------------------------------------------------------------------- */
static void drop(mn_calls *s) {
    s->held.len = 0;
    s->again = 0;
}

/* The first n bytes that are held are text after all; the others are dropped. */
static void say(mn_calls *s, size_t n) {
    mn_events_put(s->out, MN_EVENT_TEXT, 0, (mn_str){s->held.ptr, n});
    drop(s);
}

bool mn_calls_name(mn_calls *s, char c) {
    if (s->n_name == sizeof s->name)
        return false;
    s->name[s->n_name++] = c;
    return true;
}

void mn_calls_begin(mn_calls *s) {
    drop(s);
    s->framed = true;
    mn_events_put(s->out, MN_EVENT_CALL, s->n++, (mn_str){s->name, s->n_name});
}

void mn_calls_put(mn_calls *s, const char *bytes, size_t n) {
    drop(s);
    mn_events_put(s->out, MN_EVENT_ARGUMENTS, s->n - 1, (mn_str){bytes, n});
}

void mn_calls_again(mn_calls *s, const char *bytes, size_t n) {
    drop(s);
    mn_text_put(&s->held, bytes, n);
    s->again = 1;
}

/* ---- what is read ---------------------------------------------------------------------------- */
static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void push(mn_calls *s, char c);

/* What is held is no call: it is text, but for its last byte, or the beginning of another mark,
 * which are looked at again. */
static void refuse(mn_calls *s) {
    char rest[32];
    const size_t from = (s->again ? s->again : s->held.len) - 1;
    const size_t n = MN_MIN(s->held.len - from, sizeof rest);
    memcpy(rest, s->held.ptr + from, n);
    s->said = true;
    s->after = false;
    s->state = MN_CALLS_OUTSIDE;
    say(s, from);
    for (size_t i = 0; i < n; i++)
        push(s, rest[i]);
}

/* How many bytes of one of the marks the text begins with: 0 = it does not lie on the way to one;
 * *whole: it is one. */
static size_t on_mark(const char *const marks[2], const char *text, size_t n, bool *whole) {
    for (int i = 0; i < 2 && marks[i]; i++) {
        const size_t len = strlen(marks[i]);
        if (n > len || memcmp(marks[i], text, n) != 0)
            continue;
        *whole = n == len;
        return n;
    }
    return 0;
}

/* The call or list of calls is whole. */
static void end(mn_calls *s) {
    if (!s->framed) { /* an empty list */
        s->again = s->held.len + 1;
        refuse(s);
        return;
    }
    drop(s);
    s->after = true;
    s->state = MN_CALLS_OUTSIDE;
}

static void inside(mn_calls *s, char c) {
    const mn_call_step step = s->form(s, c);
    if (step == MN_CALL_BAD)
        refuse(s);
    else if (step == MN_CALL_END)
        end(s);
}

/* The first byte behind a mark, or of a call without one. */
static void enter(mn_calls *s, char c) {
    const mn_call_family *f = s->family;
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    s->form = NULL;
    if (c == '{' || c == '[')
        s->form = mn_call_json_push;
    else if (f->tags && c == '<')
        s->form = mn_call_tags_push;
    else if (f->named && (letter || c == '_'))
        s->form = mn_call_named_push;
    if (!s->form) {
        refuse(s);
        return;
    }
    mn_text early = s->json.early;
    mn_text maybe = s->tags.maybe;
    early.len = 0;
    maybe.len = 0;
    s->json = (mn_call_json){.early = early};
    s->named = (mn_call_named){0};
    s->tags = (mn_call_tags){.maybe = maybe};
    s->n_name = 0;
    s->framed = false;
    s->state = MN_CALLS_INSIDE;
    inside(s, c);
}

/* A byte of a mark: in front of a call, or behind one. */
static void in_mark(mn_calls *s) {
    const char *text = s->held.ptr + s->mark;
    const size_t n = s->held.len - s->mark;
    bool opened = false;
    bool closed = false;
    const size_t opens = on_mark(s->family->opens, text, n, &opened);
    const size_t closes = s->after ? on_mark(s->family->closes, text, n, &closed) : 0;
    if (opened) {
        s->marked = true;
        s->state = MN_CALLS_GAP;
    } else if (closed) {
        drop(s);
        s->state = MN_CALLS_OUTSIDE;
    } else if (!opens && !closes)
        refuse(s);
}

/* A byte of the text, or between calls. */
static void outside(mn_calls *s, char c) {
    const mn_call_family *f = s->family;
    const bool first = s->held.len == 1;
    if (is_space(c)) {
        if (s->after && first)
            drop(s);
        else if (s->held.len > SPACE_HELD)
            say(s, s->held.len);
        return;
    }
    if (c == f->opens[0][0] || (s->after && f->closes[0] && c == f->closes[0][0])) {
        s->mark = s->held.len - 1;
        s->state = MN_CALLS_MARK;
    } else if (f->bare && c == '{' && (s->after || !s->said)) {
        s->marked = false;
        enter(s, c);
    } else if (!f->separator || c != f->separator || !s->after || !first) {
        s->said = true;
        s->after = false;
        say(s, s->held.len);
    }
}

static void push(mn_calls *s, char c) {
    mn_text_put(&s->held, &c, 1);
    if (s->held.failed) {
        s->out->failed = true;
        return;
    }
    if (s->held.len > MN_CALL_HELD) {
        s->again = s->held.len + 1;
        refuse(s);
    } else if (s->state == MN_CALLS_OUTSIDE)
        outside(s, c);
    else if (s->state == MN_CALLS_MARK)
        in_mark(s);
    else if (s->state == MN_CALLS_INSIDE)
        inside(s, c);
    else if (!is_space(c))
        enter(s, c);
}

void mn_calls_push(mn_calls *s, mn_str text, mn_events *out) {
    s->out = out;
    for (uint64_t i = 0; i < text.len; i++)
        push(s, text.ptr[i]);
}

/* The rest of a call that was given, or a mark behind one, is not text. */
void mn_calls_finish(mn_calls *s, mn_events *out) {
    bool whole = false;
    bool frame = s->state == MN_CALLS_INSIDE && s->framed;
    s->out = out;
    if (s->state == MN_CALLS_MARK && s->after)
        frame = on_mark(s->family->closes, s->held.ptr + s->mark, s->held.len - s->mark, &whole);
    if (frame)
        drop(s);
    s->said |= s->held.len > 0;
    s->after = false;
    s->state = MN_CALLS_OUTSIDE;
    say(s, s->held.len);
}

void mn_calls_free(mn_calls *s) {
    mn_text_free(&s->held);
    mn_text_free(&s->json.early);
    mn_text_free(&s->tags.maybe);
}
