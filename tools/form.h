/* form.h -- the flags for an answer that follows a form: a JSON schema, a regular expression, a
 * grammar, choices. Used by run and chat. */
#ifndef MINERVA_FORM_H
#define MINERVA_FORM_H
#include "app.h"

typedef struct {
    const char *schema, *regex, *grammar;
    arg_texts choices;
} form_flags;
#define FORM_ROWS 4
extern const arg_row form_rows[FORM_ROWS];

/* 0, or EXIT_USAGE with the error printed: more than one is given. */
int form_check(const form_flags *f);
/* With the model open: *out is the constraint (mn_constraint_free), NULL where no flag is given. 0,
 * or the exit code with the error printed. */
int form_open(app *a, const form_flags *f, mn_constraint **out);
#endif
