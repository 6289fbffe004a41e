/* talk.h -- what a chat template gets beside the prompt: system message, history, tools,
 * variables. */
#ifndef MINERVA_TALK_H
#define MINERVA_TALK_H
#include "app.h"

typedef struct {
    const char *system, *history, *tools, *vars, *chat_template;
} talk_flags;
#define TALK_ROWS 5
extern const arg_row talk_rows[TALK_ROWS];

/* The texts of the flags. A value that begins with { or [ is the JSON itself, else the name of its
 * file. */
typedef struct {
    const talk_flags *flags;
    char *history, *tools, *vars; /* NULL: not given */
    char *chat_template;          /* the text of a file; else the flag is a name */
} talk;

/* 1 if there is a chat template: the model's own, or one that a flag names. */
int talk_has_template(const app *a, const talk *t);
/* The first of the flags that is given, or NULL. */
const char *talk_given(const talk_flags *flags);
/* What a flag's value names or is, malloc'ed; NULL for NULL. 0 or the exit code. */
int talk_read(const char *flag, char **text);
/* Each 0 or the exit code. t->flags is set; the texts are read. */
int talk_open(talk *t);
/* With the model open: it needs a chat template if anything is given, and the texts must be what it
 * takes. */
int talk_check(app *a, const talk *t);
/* The ids of history, then messages, then the header of the answer, but for the first n_known; an
 * error names the file. TALK_ANEW: the template writes what is known differently now, so that a
 * sequence cannot go on. */
#define TALK_ANEW (-1)
int talk_ids(app *a, const talk *t, const mn_message *messages, uint32_t n, uint32_t n_known,
             int32_t **ids, uint32_t *n_ids);
void talk_close(talk *t);
#endif
