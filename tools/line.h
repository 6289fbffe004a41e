/* line.h -- lines of standard input: typed with an editor and a history on a terminal, as they are
 * from a pipe. */
#ifndef MINERVA_LINE_H
#define MINERVA_LINE_H
#include <stddef.h>

/* ---- what was typed before: line_history.c --------------------------------------------------- */
typedef struct line_history line_history;
/* keep: entries of earlier runs, too; added ones are appended to $XDG_STATE_HOME/minerva/
 * chat_history (else below ~/.local/state; mode 600). A file that cannot be used costs one note, and
 * the history lives as long as the program. NULL: out of memory. */
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
    LINE_CLEARED,   /* Ctrl-C on a terminal: what was typed is gone */
    LINE_TOO_LONG,  /* more than READ_MAX bytes (app.h); the reader is of no more use */
    LINE_NO_MEMORY, /* the same */
    LINE_FAILED     /* the same; errno */
} line_event;

/* Reads standard input. NULL: out of memory. */
line_reader *line_open(void);
/* The caller's, for lines that are edited; may be NULL. */
void line_use_history(line_reader *r, line_history *history);
/* 1: a person types. */
int line_is_typed(const line_reader *r);
/* 1: lines are edited here, not by the terminal's driver, which is left to it where there is no
 * terminal to draw on (TERM=dumb, output elsewhere). */
int line_is_edited(const line_reader *r);
/* One line without its end. LINE_TEXT: *text, malloc'ed and the caller's, has *n bytes of UTF-8 as
 * they came and a NUL; of an edited line they may hold line ends (a paste). While the line is
 * edited, signals that end or stop the program leave the terminal as it was. */
line_event line_read(line_reader *r, const char *prompt, char **text, size_t *n);
void line_close(line_reader *r);
#endif
