/* call_families.h -- how families of models mark their calls: a row of a table each, for
 * calls.c. */
#ifndef MN_CALL_FAMILIES_H
#define MN_CALL_FAMILIES_H
#include "text/chat/calls.h"

/* What stands around the parts of a call that is written as tags. */
typedef struct {
    const char *function;     /* in front of the name; NULL: the mark of the call does */
    const char *function_end; /* NULL: the mark that closes the call */
    const char *parameter;    /* in front of a key, which may have quotes */
    const char *key_end;
    const char *value; /* behind a key and white space; NULL: the value is there at once */
    const char *value_end;
    bool lines; /* the line breaks around a value are not part of it */
    bool typed; /* behind a key in quotes string="true" or "false" may say what the value is */
} mn_call_words;

/* opens: marks in front of a call or a list of them; closes: marks behind. */
struct mn_call_family {
    const char *opens[2], *closes[2];
    const char *hint; /* another text of the chat template that identifies the family; NULL: none */
    const char *content;        /* lines: a mark behind the line of the name; NULL: none */
    const char *prompt;         /* a mark that a prompt ends with, of the first call; NULL: none */
    const mn_call_words *words; /* of the form with tags; NULL: the family has no such form */
    const char *args;           /* named: the mark in front of the arguments; NULL: [ARGS] */
    const char *before;         /* named: in front of the name, arguments at once behind; or NULL */
    const char *quote;          /* named: around strings of the arguments; NULL: quotes */
    const char *tokens[2];      /* special tokens that marks are made of, beside the marks */
    char separator;             /* between calls without marks */
    bool bare;                  /* an answer that begins with { may be a call without a mark */
    bool hinted;                /* the hint alone identifies the family, in a vocabulary, too */
    bool named;                 /* that form, beside JSON */
    bool nested;                /* opens[1] and closes[0] are a call's, the others around all */
    bool numbered;              /* named: "functions." NAME ":" number */
    bool typed;                 /* named: function, args, NAME, a line, {...}, fenced as code */
    bool python;                /* that form, beside JSON */
    bool functions;             /* words: the tag of a function is the mark */
    bool keyed;                 /* JSON: {NAME: ARGUMENTS} */
    bool actions;               /* JSON: the keys are tool_name and parameters */
    bool parameters;            /* JSON: that key in place of arguments, and no line break behind */
    bool lines;                 /* named: the name is a line */
    bool lists;                 /* calls stand in a list, also a single one */
};

#endif
