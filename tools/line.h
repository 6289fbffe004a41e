/* line.h -- lines of standard input: with an editor and a history on a terminal, unchanged from a
 * pipe. */
#ifndef MINERVA_LINE_H
#define MINERVA_LINE_H
#include <stddef.h>

/* ---- the history: line_history.c ------------------------------------------------------------- */
typedef struct line_history line_history;
/* keep: entries of earlier runs, too; added ones are appended to $XDG_STATE_HOME/minerva/
 * chat_history (else below ~/.local/state; mode 600). If the file cannot be used, a note is
 * printed, and the history lasts as long as the program. NULL: out of memory. */
line_history *history_open(int keep);
void history_add(line_history *h, const char *text, size_t n);
size_t history_count(const line_history *h);
const char *history_entry(const line_history *h, size_t i); /* 0 is the oldest */
void history_close(line_history *h);                        /* NULL: nothing */

/* ---- lines: line.c --------------------------------------------------------------------------- */
typedef struct line_reader line_reader;
typedef enum {
    LINE_TEXT,
    LINE_END,       /* of the input: Ctrl-D, a pipe's end */
    LINE_CLEARED,   /* Ctrl-C on a terminal: the typed text is dropped */
    LINE_TOO_LONG,  /* more than READ_MAX bytes (app.h); the reader cannot be used any more */
    LINE_NO_MEMORY, /* the same */
    LINE_FAILED     /* the same; errno */
} line_event;

/* Reads standard input. NULL: out of memory. */
line_reader *line_open(void);
/* The history of edited lines, which stays the caller's; may be NULL. */
void line_use_history(line_reader *r, line_history *history);
/* 1: standard input is a terminal. */
int line_is_typed(const line_reader *r);
/* 1: lines are edited here; 0: by the terminal's driver, without a terminal to draw on
 * (TERM=dumb, output to a file). */
int line_is_edited(const line_reader *r);
/* Reads one line without its end. LINE_TEXT: *text, malloc'ed and the caller's, has *n bytes and
 * a NUL; an edited line may contain line ends (a paste). A signal that ends or stops the program
 * restores the terminal first. */
line_event line_read(line_reader *r, const char *prompt, char **text, size_t *n);
void line_close(line_reader *r);
#endif
