/* calls.h -- tool calls that a model writes into its answer as text, found while the answer comes.
 * How a family of models writes them is a row of the table in calls.c. What is inside of the marks
 * has one of three forms, each an automaton over bytes: call_json.c, call_named.c, call_tags.c.
 *
 * A call is given as soon as its name is known and its arguments have begun. Until then everything
 * since the first byte that could belong to it is held back, at most MN_CALL_HELD bytes, and
 * becomes text if it turns out to be no call. The events do not depend on how the answer is cut
 * into pieces. */
#ifndef MN_CALLS_H
#define MN_CALLS_H
#include "text/chat/events.h"
#include "text/json/run.h"
#include "text/tokenizer/tokenizer.h"

enum { MN_CALL_HELD = 16384, MN_CALL_NAME = 256, MN_CALL_KEY = 64 };

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
    const char *close;     /* a mark; NULL: none */
    const char *between;   /* two calls */
    bool tags;             /* NAME behind args in tags: before NAME ">\n", parameters, behind */
} mn_call_style;
/* known is false where there is no family. chat_template may be empty. */
mn_call_style mn_call_style_of(const mn_call_family *family, mn_str chat_template);

/* Whether the family writes values bare, whose types only the tools tell. */
bool mn_call_family_needs_types(const mn_call_family *family);

typedef enum { MN_CALL_MORE, MN_CALL_END, MN_CALL_BAD } mn_call_step;
typedef struct mn_calls mn_calls;
/* The next byte of a call, which is the last of s->held. MN_CALL_BAD: it belongs to none. */
typedef mn_call_step (*mn_call_form)(mn_calls *s, char c);

/* {"name": ..., "arguments": {...}}, or a list of those */
typedef struct {
    mn_json_run run;
    uint16_t level; /* depth of the keys of a call: 1, in a list 2 */
    enum {
        MN_CALL_NO_VALUE,
        MN_CALL_NAME_VALUE,
        MN_CALL_OBJECT_VALUE, /* arguments */
        MN_CALL_STRING_VALUE, /* arguments as JSON inside a string */
        MN_CALL_OTHER_VALUE
    } value;
    char key[MN_CALL_KEY];
    uint16_t n_key;
    bool has_name, has_args;
    mn_json_chars chars; /* of the name, or of arguments in a string */
    mn_json_run inner;   /* the JSON in a string */
    bool inner_end;
    mn_text early; /* arguments that came before the name */
} mn_call_json;

/* name[ARGS]{...} or name{...} */
typedef struct {
    enum { MN_CALL_IN_NAME, MN_CALL_IN_MARK, MN_CALL_IN_ID, MN_CALL_IN_GAP, MN_CALL_IN_ARGS } at;
    const char *mark;
    uint16_t n_mark;
    mn_json_run run;
} mn_call_named;

/* <function=name><parameter=key>value</parameter></function> */
typedef struct {
    enum { MN_CALL_TAG, MN_CALL_TAG_NAME, MN_CALL_TAG_KEY, MN_CALL_TAG_GAP, MN_CALL_TAG_VALUE } at;
    enum {
        MN_CALL_EMPTY,
        MN_CALL_MAYBE_WORD,
        MN_CALL_MAYBE_JSON,
        MN_CALL_RAW_JSON,
        MN_CALL_STRING
    } kind;
    uint32_t types; /* of the value: MN_CALL_*_TYPE; 0 = not known */
    char tag[16];   /* what may become a tag, or the end of a value */
    uint16_t n_tag;
    char key[MN_CALL_KEY];
    uint16_t n_key;
    bool trimmed, has_args;
    mn_json_run run;
    mn_text maybe; /* a value that may be JSON */
} mn_call_tags;

/* {.family, .tools}: at the beginning of an answer; freed by mn_calls_free. One thread at a
 * time. */
struct mn_calls {
    const mn_call_family *family; /* NULL: calls are not looked for */
    const struct cJSON *tools;    /* for mn_call_types_of; may be NULL */
    uint32_t n;                   /* calls so far */
    /* the rest is of calls.c and the forms */
    mn_events *out;
    mn_text held; /* neither given nor dropped */
    size_t mark;  /* where in held a mark begins */
    size_t again; /* 1 + where in held to look anew if this is no call; 0: at its last byte */
    enum { MN_CALLS_OUTSIDE, MN_CALLS_MARK, MN_CALLS_GAP, MN_CALLS_INSIDE } state;
    bool said;   /* the answer has text: a call without a mark cannot begin any more */
    bool after;  /* only white space and marks since the last call */
    bool marked; /* the call that is read has a mark */
    bool framed; /* what is held belongs to a call that was given */
    char name[MN_CALL_NAME];
    uint16_t n_name;
    mn_call_form form;
    mn_call_json json;
    mn_call_named named;
    mn_call_tags tags;
};

/* Appends the events of a piece of an answer. out->failed where memory runs out. */
void mn_calls_push(mn_calls *s, mn_str text, mn_events *out);
/* The answer ends, or is interrupted by another part of the output: what is held is decided. */
void mn_calls_finish(mn_calls *s, mn_events *out);
void mn_calls_free(mn_calls *s);

/* ---- for the forms --------------------------------------------------------------------------- */
mn_call_step mn_call_json_push(mn_calls *s, char c);
mn_call_step mn_call_named_push(mn_calls *s, char c);
mn_call_step mn_call_tags_push(mn_calls *s, char c);
/* Adds a byte to the name; false: it is too long. */
bool mn_calls_name(mn_calls *s, char c);
/* Gives the call; what was held belongs to it. */
void mn_calls_begin(mn_calls *s);
/* Gives arguments of the last call; what was held belongs to it. */
void mn_calls_put(mn_calls *s, const char *bytes, size_t n);
/* Before MN_CALL_BAD of a form that keeps bytes itself: these are what is held, and looked at
 * again. */
void mn_calls_again(mn_calls *s, const char *bytes, size_t n);

#endif
