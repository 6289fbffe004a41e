/* talk.h -- the input of a chat template beside the prompt: system message, history, tools,
 * variables. */
#ifndef MINERVA_TALK_H
#define MINERVA_TALK_H
#include "app.h"

typedef struct {
    const char *system, *history, *tools, *vars, *chat_template;
} talk_flags;
#define TALK_ROWS 5
extern const arg_row talk_rows[TALK_ROWS];

/* The texts of the flags. A value that begins with { or [ is JSON, else the name of a file. */
typedef struct {
    const talk_flags *flags;
    char *history, *tools, *vars; /* NULL: not given */
    char *chat_template;          /* the text of a file; NULL: the flag is a name */
} talk;

/* 1 if there is a chat template: the model's own, or that of --chat-template. */
int talk_has_template(const app *a, const talk *t);
/* The first flag that is given, or NULL. */
const char *talk_given(const talk_flags *flags);
/* *text: the JSON of a flag's value or of its file, malloc'ed; unchanged if flag is NULL. 0 or
 * the exit code. */
int talk_read(const char *flag, char **text);
/* Each 0 or the exit code. t->flags is set; the texts are read. */
int talk_open(talk *t);
/* With the model open: --chat-template replaces the model's own. */
int talk_use(app *a, const talk *t);
/* With the model open: a flag that is given needs a chat template, which must accept the texts. */
int talk_check(app *a, const talk *t);
/* The ids of history, messages and the header of the answer, without the ids of the first n_known
 * messages; an error names the file. TALK_ANEW: the template renders the known messages differently
 * now, so that a sequence cannot be extended. */
#define TALK_ANEW (-1)
int talk_ids(app *a, const talk *t, const mn_message *messages, uint32_t n, uint32_t n_known,
             int32_t **ids, uint32_t *n_ids);
void talk_close(talk *t);
#endif
