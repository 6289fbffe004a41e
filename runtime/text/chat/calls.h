/* calls.h -- tool calls that a model writes into its answer as text, found while the answer comes.
 * How a family of models writes them is a row of the table in call_families.c. What is inside of
 * the marks has one of four forms, each an automaton over bytes: call_json.c, call_named.c,
 * call_tags.c, call_python.c; arguments that are JSON are read by call_args.c.
 *
 *   OUTSIDE --first byte of a mark--> MARK --whole--> GAP --first byte of a form--> INSIDE
 *      |  ^                            |               |                             |   |
 *      |  +-----------none: text-------+---------------+--------no call: text--------+   |
 *      |  +---------------------------------------------------------call whole-----------+
 *      |  +--mark, line or end: dropped, or text-- BEHIND <--given, and broken-----------+
 *      +--first byte of a form without a mark------------------------------------------> INSIDE
 *
 *   outside() -> MARK, INSIDE      in_mark() -> GAP, OUTSIDE      enter() -> INSIDE
 *   refuse() -> OUTSIDE            end() -> OUTSIDE               break_off() -> BEHIND
 *   behind() -> OUTSIDE, GAP       mn_calls_finish() -> OUTSIDE
 *
 * Invariants:
 *  1. A call is given as soon as its name is known and its arguments have begun. Until then
 *     everything since the first byte that could belong to it is held, at most MN_CALL_HELD bytes,
 *     and becomes text if it turns out to be no call.
 *  2. Once a call is given, its arguments are one JSON object: every way out closes it, but an
 *     output that was cut (mn_calls_finish), which may end inside it. Errors of models are
 *     mended or dropped; text behind a call that broke off is text.
 *  3. Marks around a call that is given are never text: neither before it, nor behind it, nor
 *     twice, nor where one of them was forgotten.
 *  4. Without a mark only names of the request's tools are calls: JSON where a line begins that is
 *     not fenced as code, the tag of a function where its next tag follows.
 *  5. The events do not depend on how the answer is cut into pieces, nor on whether a mark is a
 *     token or spelled as text.
 *  6. Text that is no call is there once, in order and complete. */
#ifndef MN_CALLS_H
#define MN_CALLS_H
#include "text/chat/events.h"
#include "text/json/mend.h"
#include "text/tokenizer/tokenizer.h"

enum { MN_CALL_HELD = 16384, MN_CALL_NAME = 256, MN_CALL_KEY = 128 };

typedef struct mn_call_family mn_call_family;
/* The family whose marks a chat template contains; NULL: none. */
const mn_call_family *mn_call_family_in(mn_str chat_template);
/* The family whose marks are special tokens of a vocabulary; NULL: none. */
const mn_call_family *mn_call_family_of(const mn_tokenizer *tok);

/* How a model writes one call, for grammars: open, then before NAME", "key": ARGUMENTS behind, or
 * NAME args_mark ARGUMENTS; then close. All texts are static. */
typedef struct {
    bool known;
    const char *open;      /* a mark; NULL: the call begins the answer, with {"name": " */
    const char *before;    /* up to the name: "\n{\"name\": \"" */
    const char *key;       /* "arguments" */
    const char *behind;    /* "}\n" */
    const char *args_mark; /* a mark; NULL: not that form */
    const char *content;   /* a mark behind args_mark; NULL: none */
    bool prompted;         /* the prompt ends with the first open */
    const char *close;     /* a mark; NULL: none */
    const char *between;   /* two calls */
    enum {
        MN_CALL_NO_TAGS,
        MN_CALL_FUNCTION_TAGS,
        MN_CALL_INVOKE_TAGS,
        MN_CALL_ARG_TAGS
    } tags;               /* before NAME name_end, arguments in tags, behind */
    const char *name_end; /* ">\n" */
    bool keyed;           /* before NAME": ARGUMENTS behind */
    /* marks around open and close; texts around NAME, with args_mark; NULL: none */
    const char *section, *section_end, *name_before, *name_behind;
    const char *const *tokens; /* [2] special tokens that marks are made of; NULL: none, or fewer */
} mn_call_style;
/* known is false where there is no family. chat_template may be empty. */
mn_call_style mn_call_style_of(const mn_call_family *family, mn_str chat_template);

/* The end of a prompt that leaves the mark of a call to the model; NULL: none. */
const char *mn_call_family_prompt(const mn_call_family *family);
/* Whether text contains a mark of the family (a special token that is part of a call). */
bool mn_call_family_has_mark(const mn_call_family *family, mn_str text);

/* MN_CALL_TEXT: the held bytes are the header of a text that begins behind them. MN_CALL_BAD: the
 * byte belongs to no call. */
typedef enum { MN_CALL_MORE, MN_CALL_END, MN_CALL_TEXT, MN_CALL_BAD } mn_call_step;
typedef struct mn_calls mn_calls;
typedef struct {
    /* The next byte of a call, which is the last of s->held. */
    mn_call_step (*push)(mn_calls *s, char c);
    /* The call breaks off: closes what was given, or gives what is a call as it stands. next: the
     * byte that does not belong to it; -1: the output ends. false: none was given. */
    bool (*finish)(mn_calls *s, int next);
} mn_call_form;
extern const mn_call_form mn_call_json_form, mn_call_named_form, mn_call_tags_form,
    mn_call_python_form;

/* Arguments that are JSON: an object, or its text in a string, or null, "", [] or nothing: {}. */
typedef struct {
    enum {
        MN_CALL_ARGS_BEGIN,
        MN_CALL_ARGS_OBJECT,
        MN_CALL_ARGS_STRING,
        MN_CALL_ARGS_NULL,
        MN_CALL_ARGS_LIST,
        MN_CALL_ARGS_DONE
    } at;
    mn_json_mend json;   /* the object */
    mn_json_chars chars; /* of a string */
    const char *word;    /* the rest of null or None */
} mn_call_args;

/* {"name": ..., "arguments": {...}}, or a list of those */
typedef struct {
    mn_json_mend outer; /* all but the arguments */
    uint16_t level;     /* depth of the keys of a call: 1, in a list and in "function" one more */
    enum {
        MN_CALL_NO_VALUE,
        MN_CALL_NAME_VALUE,
        MN_CALL_FUNCTION_VALUE, /* the name, or an object with name and arguments */
        MN_CALL_ARGS_VALUE,
        MN_CALL_OTHER_VALUE
    } value;
    char key[MN_CALL_KEY];
    uint16_t n_key;
    bool has_name, has_args, in_args;
    bool wrapped;        /* in an object "function" */
    mn_json_chars chars; /* of the name */
    mn_text early;       /* arguments that came before the name */
} mn_call_json;

/* name[ARGS]{...} or name{...}, or with lines: name, a line break, content, {...}, or with a mark
 * of the family's in place of [ARGS], or call:name{key:value} */
typedef struct {
    enum {
        MN_CALL_IN_NAME,
        MN_CALL_IN_MARK,
        MN_CALL_IN_ID,
        MN_CALL_IN_GAP,
        MN_CALL_IN_TYPED, /* behind a type, where a name may follow */
        MN_CALL_IN_TYPED_NAME,
        MN_CALL_IN_FENCE,
        MN_CALL_IN_ARGS
    } at;
    bool lines;
    const char *args;   /* the mark behind the name; NULL: [ARGS] */
    bool typed;         /* what is in front of it may be a type */
    const char *before; /* dropped in front of the name; NULL: none */
    const char *quote;  /* around strings of the arguments; NULL: quotes */
    uint8_t n_quote;    /* bytes of it that were read */
    bool in_quotes;
    const char *content; /* a mark behind the line of the name; NULL: none */
    const char *mark;
    uint16_t n_mark;
    bool is_text; /* the name is "all" */
} mn_call_named;

/* name(key=value, ...), or a list of those */
typedef struct {
    enum {
        MN_CALL_PY_START, /* in front of a call */
        MN_CALL_PY_NAME,
        MN_CALL_PY_GAP, /* in front of a key */
        MN_CALL_PY_KEY,
        MN_CALL_PY_VALUE,
        MN_CALL_PY_BEHIND
    } at;
    bool in_list;
    uint32_t depth; /* of brackets in a value */
    char quote;     /* of the string that the value is in; 0: none */
    bool escaped;
} mn_call_python;

/* <function=name><parameter=key>value</parameter></function> */
typedef struct {
    enum {
        MN_CALL_TAG_NAME,
        MN_CALL_TAG_KEY,
        MN_CALL_TAG_GAP,
        MN_CALL_TAG_BEFORE, /* a value, behind its key */
        MN_CALL_TAG_VALUE,
        MN_CALL_TAG_JSON, /* one object instead of parameters */
        MN_CALL_TAG_JUNK  /* up to a tag that is known */
    } at;
    enum {
        MN_CALL_EMPTY,
        MN_CALL_MAYBE_WORD,
        MN_CALL_MAYBE_JSON,
        MN_CALL_RAW_JSON,
        MN_CALL_SPOILT,
        MN_CALL_STRING
    } kind;
    uint32_t types;        /* of the value: MN_CALL_*_TYPE; 0 = not known */
    char tag[MN_CALL_KEY]; /* what may become a tag, or the end of a value */
    uint16_t n_tag;
    char key[MN_CALL_KEY];
    uint16_t n_key;
    bool trimmed, has_args;
    mn_json_run run;
    mn_json_mend raw; /* a value that was too long to be kept */
    mn_text maybe;    /* a value that may be JSON */
} mn_call_tags;

/* {.family, .tools, ...}: at the beginning of an answer; freed by mn_calls_free. One thread at a
 * time. */
struct mn_calls {
    const mn_call_family *family; /* NULL: calls are not looked for */
    const struct cJSON *tools;    /* of the request, call_types.h; NULL: not known */
    bool strict; /* only tools of the request, and only where a line begins: inside of thinking */
    uint32_t n;  /* calls so far */
    /* the rest is of calls.c and the forms */
    mn_events *out;
    mn_text held;    /* neither given nor dropped */
    size_t mark;     /* where in held a mark begins */
    size_t mark_end; /* where in held an opening mark ends */
    size_t again;    /* 1 + where in held to look anew if this is no call; 0: at its last byte */
    enum { MN_CALLS_OUTSIDE, MN_CALLS_MARK, MN_CALLS_GAP, MN_CALLS_INSIDE, MN_CALLS_BEHIND } state;
    bool said;     /* the answer has text */
    bool in_line;  /* the line has text */
    uint8_t ticks; /* at the beginning of a line; 3: it begins or ends code */
    bool fenced;   /* the text is code */
    bool after;    /* only white space and marks since the last call */
    bool marked;   /* the call that is read has a mark */
    bool opened;   /* that mark's call has not been given */
    bool in_gap;   /* the mark that is read stands behind another one */
    bool gap_code; /* behind a mark: in a line that begins code */
    bool owed;     /* the mark of a call that was given has not been closed */
    bool reopened; /* the mark stands where one was to be closed */
    bool framed;   /* what is held belongs to a mark with a call that was given */
    bool given;    /* the call that is read was given */
    bool open;     /* its object is not complete */
    char name[MN_CALL_NAME];
    uint16_t n_name;
    const mn_call_form *form;
    mn_call_args args;
    mn_text made; /* by the last byte of arguments */
    mn_call_json json;
    mn_call_named named;
    mn_call_python python;
    mn_call_tags tags;
};

/* How an output ends: by itself, by a limit, or by a limit where a grammar allows calls alone. */
typedef enum { MN_CALLS_ENDED, MN_CALLS_CUT, MN_CALLS_ONLY_CUT } mn_calls_end;

/* Appends the events of a piece of an answer. out->failed where memory runs out. */
void mn_calls_push(mn_calls *s, mn_str text, mn_events *out);
/* The prompt ends with mn_call_family_prompt: the output begins behind a mark. */
void mn_calls_prompted(mn_calls *s);
/* The answer ends, or is interrupted by another part of the output: what is held is decided. */
void mn_calls_finish(mn_calls *s, mn_calls_end how, mn_events *out);
/* A call whose name came in the header of a message (Harmony): name, then its text, then its end.
 * json: the arguments are an object, as of the request's functions; else any text, which is passed
 * on unread. Text behind the object is dropped. */
void mn_calls_message(mn_calls *s, mn_str name, bool json, mn_events *out);
void mn_calls_message_push(mn_calls *s, mn_str text, mn_events *out);
void mn_calls_message_end(mn_calls *s, mn_calls_end how, mn_events *out);
/* Whether a call is being read: bytes inside of it are no marks of anything else. */
bool mn_calls_reading(const mn_calls *s);
void mn_calls_free(mn_calls *s);

/* ---- for the forms --------------------------------------------------------------------------- */
/* Adds a byte to the name; false: it is too long. */
bool mn_calls_name(mn_calls *s, char c);
/* The name is complete. Returns whether it may be called ("functions.f" is f where only that is a
 * tool). is_tool: it is one of the request's; begins_tool: it is the beginning of one. */
bool mn_calls_may_call(mn_calls *s);
bool mn_calls_is_tool(const mn_calls *s);
bool mn_calls_begins_tool(const mn_calls *s);
/* Gives the call; the held bytes belong to it. */
void mn_calls_begin(mn_calls *s);
/* Gives arguments of the last call; the held bytes belong to it. */
void mn_calls_put(mn_calls *s, const char *bytes, size_t n);
/* As above; gives the call before its first arguments, or keeps them until its name is known. */
void mn_calls_arguments(mn_calls *s, const char *bytes, size_t n);
/* A mark behind calls: -1: the text does not begin so; 0: as far as it goes; 1: it does. */
int mn_calls_on_close(const mn_calls *s, const char *text, size_t n);
/* The mark of the calls was closed by the form. */
void mn_calls_mark_closed(mn_calls *s);
/* If the held bytes end with a mark of calls or functions, keeps that mark alone, to be examined
 * again. */
bool mn_calls_ends_with_mark(mn_calls *s);

/* call_args.c. At a value. */
void mn_call_args_begin(mn_call_args *a);
/* MN_CALL_END with the last byte of the value. */
mn_call_step mn_call_args_push(mn_calls *s, char c);
/* Completes the object, or gives {}. */
void mn_call_args_close(mn_calls *s);

#endif
