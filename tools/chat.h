/* chat.h -- the parts of minerva chat: its conversation, its commands, its turns. */
#ifndef MINERVA_CHAT_H
#define MINERVA_CHAT_H
#include "text_buffer.h"
#include "generate.h"
#include "line.h"
#include "form.h"
#include "talk.h"

typedef struct {
    int64_t n;
    int show_thinking, context_full, plain, no_history;
} chat_flags;
enum { CONTEXT_DROP, CONTEXT_ERROR }; /* choices of --context-full */
#define CHAT_ROWS 5
#define CHAT_SETTINGS 4 /* the first ones, which /set knows */
#define CHAT_BAD_N "%s: found \"0\", expected a whole number from 1 to 2147483647, or -1"
extern const arg_row chat_rows[CHAT_ROWS];

typedef struct {
    app a;
    app_flags *app_flags; /* of the command; /model changes the model */
    char *model;          /* its name, malloc'ed by /model; or NULL */
    talk talk;
    form_flags form;
    mn_constraint *constraint; /* of form; NULL: none */
    chat_flags flags;
    sampling_flags sampling;
    /* The conversation: owned copies. The prompt has the system messages at its begin and all that
     * follow the n_dropped messages after them. */
    mn_message *messages;
    uint32_t n, n_dropped;
    uint32_t n_known;   /* how many of them the sequence holds */
    uint32_t n_calls;   /* tool calls of the model so far */
    uint32_t n_results; /* the first of them without a result */
    int has_seq;
    /* The last turn: what the sequence held before it (0: nothing, it cannot be taken back), how
     * many messages that were; the ids that were computed for it, and all with its answer. */
    uint32_t turn_length, turn_known, turn_ids, turn_total;
    uint32_t n_again;   /* how often its answer was made again */
    int timings;        /* print them after each answer */
    markdown *markdown; /* NULL: standard output is no terminal */
    gen g;
    mn_sample_params sample;
    line_reader *lines;
    line_history *history;
    out_file out;
    char *file; /* the file that was loaded or saved last, or NULL */
} chat;

/* ---- chat_messages.c: each 0, or the exit code with the error printed ------------------------ */
/* more: as of mn_message, owned by the conversation from now on, also after an error; or NULL */
int messages_push(chat *c, const char *role, mn_str content, char *more);
void messages_free(const mn_message *m); /* one that is in no conversation */
void messages_pop(chat *c);
/* How many messages remain without the newest turn: a user's message and what follows it; n: there
 * is none. */
uint32_t messages_before_turn(const chat *c);
void messages_clear(chat *c, uint32_t keep); /* all but the first */
uint32_t messages_system(const chat *c);     /* how many system messages begin it */
/* Replaces the system messages by one with this text; empty: by none. */
int messages_set_system(chat *c, const char *text);
/* Appends the messages of a JSON list, which the library has checked (talk_check). */
int messages_from_json(chat *c, const char *json);
/* Replaces all messages by those of the file; unchanged after an error. */
int messages_load(chat *c, const char *path);
int messages_save(chat *c, const char *path);

/* ---- chat_commands.c ------------------------------------------------------------------------- */
#define CHAT_END (-1)  /* the conversation ends */
#define CHAT_TURN (-2) /* the line is a user's turn */
/* Runs the command of a line: 0 or the exit code with the error printed, or one of the above. */
int chat_command(chat *c, const char *line, size_t n);

/* ---- chat_turn.c ----------------------------------------------------------------------------- */
/* Appends a message and answers the conversation. */
int chat_say(chat *c, const char *role, const char *text, size_t n);
/* The same of the result of the next call. */
int chat_say_result(chat *c, const char *text);
/* Answers the conversation again in place of its last answer, which comes back if that fails. */
int chat_answer_again(chat *c);
/* Removes the newest turn. */
int chat_undo(chat *c);
void chat_print_timings(const chat *c); /* of the last answer */
void chat_forget_sequence(chat *c);     /* the next turn is computed from all messages */
void chat_apply_settings(chat *c);      /* uses flags and sampling for the turns that follow */

/* ---- chat.c ---------------------------------------------------------------------------------- */
/* Goes on with another model; with the old one if it cannot be opened. An error that leaves none
 * ends the chat (c->a.model is NULL). */
int chat_use_model(chat *c, const char *name);
#endif
