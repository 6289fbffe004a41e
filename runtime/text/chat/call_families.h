/* call_families.h -- how families of models mark their calls: a row of a table each, for
 * calls.c. */
#ifndef MN_CALL_FAMILIES_H
#define MN_CALL_FAMILIES_H
#include "text/chat/calls.h"

#define MN_FUNCTION_TAG "<function="
#define MN_FUNCTION_END "</function>"

/* opens: marks in front of a call or a list of them; closes: marks behind. */
struct mn_call_family {
    const char *opens[2], *closes[2];
    const char *hint; /* another text of the chat template that identifies the family; NULL: none */
    const char *content; /* lines: a mark behind the line of the name; NULL: none */
    const char *prompt;  /* a mark that a prompt ends with, of the first call; NULL: none */
    char separator;      /* between calls without marks */
    bool bare;           /* an answer that begins with { may be a call without a mark */
    bool named, tags;    /* forms beside JSON */
    bool functions;      /* tags: the tag of a function is the mark */
    bool lines;          /* named: the name is a line */
    bool lists;          /* calls stand in a list, also a single one */
};

#endif
