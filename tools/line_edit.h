/* line_edit.h -- the parts of the line reader (line.h): keys, the edited text, its drawing on the
 * terminal. None of them reads or waits. */
#ifndef MINERVA_LINE_EDIT_H
#define MINERVA_LINE_EDIT_H
#include "text_buffer.h"

/* ---- keys: line_keys.c ----------------------------------------------------------------------- */
/* Below 128: a control character, Ctrl-A = 1. */
enum {
    KEY_NONE = 0, /* an unknown sequence */
    KEY_BACKSPACE = 127,
    KEY_TEXT = 256, /* one character, or part of a paste */
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

/* The first key of n >= 1 bytes and the number of its bytes; 0: it is incomplete. no_more: no
 * byte came for a while, so that the bytes are the whole key (the Escape key). pasting: between
 * KEY_PASTE_BEGIN and KEY_PASTE_END all bytes are text, except control characters: line ends (as
 * "\n"), tabs and Ctrl-C are used, others are ignored. */
size_t line_key_of(const char *bytes, size_t n, int pasting, int no_more, line_key *key);

/* ---- text: line_edit.c ----------------------------------------------------------------------- */
/* A character is a grapheme cluster (UAX 29): a base with all its marks; a byte that is not
 * UTF-8 is kept and counts as one. */
size_t line_next(const char *text, size_t n, size_t at); /* end of the character at at < n */
int line_width(const char *character, size_t n);         /* its columns */

typedef struct {
    mn_text text;
    size_t at; /* the cursor: before this byte */
    mn_text killed;
    int killing; /* the last key killed: the next one adds to killed */
} line_edit;

void edit_insert(line_edit *e, const char *text, size_t n);
void edit_replace(line_edit *e, const char *text, size_t n); /* the cursor is at its end then */
/* Executes a key. 1: it is an editing key. Up and down move between the lines of the text, and
 * return 0 at its first and last line. */
int edit_key(line_edit *e, const line_key *key);
void edit_free(line_edit *e);

/* ---- drawing: line_draw.c -------------------------------------------------------------------- */
typedef struct {
    int columns, rows; /* of the terminal */
    int at_row;        /* the cursor's row, among those that are drawn */
    int at_column;
    int top;     /* the first row of the text that is drawn, if not all fit */
    int *widths; /* [n_drawn]: columns of each drawn row */
    int n_drawn, cap;
} line_view;

/* Appends to out the bytes that draw prompt and text over the last drawing. The prompt is ASCII;
 * bold: it is drawn bold. */
void line_draw(line_view *v, const char *prompt, int bold, const line_edit *e, mn_text *out);
/* Appends the bytes that move the cursor below the drawing; the next one is new. */
void line_leave(line_view *v, mn_text *out);
/* Sets the terminal's size. Most terminals break rows again that are too long then. */
void line_resize(line_view *v, int columns, int rows);
#endif
