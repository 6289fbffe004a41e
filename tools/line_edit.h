/* line_edit.h -- the parts of the line reader (line.h): keys, the text that is edited, its picture
 * on the terminal. None of them reads or waits. */
#ifndef MINERVA_LINE_EDIT_H
#define MINERVA_LINE_EDIT_H
#include "buffer.h"

/* ---- keys: line_keys.c ----------------------------------------------------------------------- */
/* Below 128: a control character, Ctrl-A = 1. */
enum {
    KEY_NONE = 0, /* a sequence that means nothing here */
    KEY_BACKSPACE = 127,
    KEY_TEXT = 256, /* one character, or (of a paste) part of a text */
    KEY_NEWLINE,    /* a line break inside the text: Alt-Enter */
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_WORD_LEFT,
    KEY_WORD_RIGHT,
    KEY_KILL_WORD,
    KEY_KILL_WORD_LEFT,
    KEY_PASTE_BEGIN,
    KEY_PASTE_END
};
#define CTRL(letter) ((letter) - '@')

typedef struct {
    int kind;
    const char *text; /* KEY_TEXT: into the bytes that were given */
    size_t n;
} line_key;

/* The first key of n >= 1 bytes and the number of bytes it took; 0: its end is still to come.
 * no_more: nothing follows soon, so that what is there is all (the Escape key). pasting: between
 * KEY_PASTE_BEGIN and KEY_PASTE_END bytes are text whatever they are; of control characters only
 * line ends (as "\n"), tabs and Ctrl-C count. */
size_t line_key_of(const char *bytes, size_t n, int pasting, int no_more, line_key *key);

/* ---- text: line_edit.c ----------------------------------------------------------------------- */
/* A character is what a user takes for one: a base with all its marks (a grapheme cluster, UAX 29);
 * a byte that is no UTF-8 is kept and counts as one. */
size_t line_next(const char *text, size_t n, size_t at); /* end of the character at at < n */
int line_width(const char *character, size_t n);         /* its columns */

typedef struct {
    buffer text;
    size_t at; /* the cursor: before this byte */
    buffer killed;
    int killing; /* the last key killed: the next one adds to killed */
} line_edit;

void edit_insert(line_edit *e, const char *text, size_t n);
void edit_replace(line_edit *e, const char *text, size_t n); /* all of it; the cursor at its end */
/* 1: the key changed text or cursor, or could have. Up and down move between the lines of the text
 * and give 0 at its first and last one. */
int edit_key(line_edit *e, const line_key *key);
void edit_free(line_edit *e);

/* ---- picture: line_draw.c -------------------------------------------------------------------- */
typedef struct {
    int columns, rows; /* of the terminal */
    int at_row;        /* the row of the picture where the cursor stands */
    int at_column;
    int top;     /* the first row of the text that is shown, where not all fit */
    int *widths; /* [n_drawn]: columns of each row of the picture */
    int n_drawn, cap;
} line_view;

/* Appends to out what turns the last picture into one of the text behind its prompt, which takes as
 * many columns as bytes. bold: the prompt is. */
void line_draw(line_view *v, const char *prompt, int bold, const line_edit *e, buffer *out);
/* Appends what puts the cursor below the picture, and forgets it. */
void line_leave(line_view *v, buffer *out);
/* The terminal's size changed: most break the rows again that became too long. */
void line_resize(line_view *v, int columns, int rows);
#endif
