/* markdown_inside.h -- what the parts of markdown.h share: markdown.c (lines), markdown_spans.c
 * (text of a line), markdown_words.c (words, rows, styles). */
#ifndef MINERVA_MARKDOWN_INSIDE_H
#define MINERVA_MARKDOWN_INSIDE_H
#include "markdown.h"
#include "text_buffer.h"

/* Styles of text, which add up. */
enum { BOLD = 1, ITALIC = 2, UNDER = 4, STRIKE = 8, DIM = 16, CODE = 32, HEAD = 64 };

typedef enum { LINE_NEW, LINE_WORDS, LINE_RAW } line_state;

/* A text that arrives. held: bytes of the line that are not decided; word: not written yet, with
 * its styles; indent: begins the second row of a line and those after it. */
struct markdown {
    markdown_params params;
    mn_text held, word, indent;
    line_state line;
    char fence; /* of the block of code that is open; 0: none is */
    size_t n_fence;
    int in_formula; /* its end is in a later line */
    int column, indent_width, word_width, n_blanks;
    unsigned style;      /* of the line */
    unsigned style_word; /* at the end of the word */
    unsigned style_out;  /* of what is written */
    char before;         /* the last byte of the line's text; 0: none */
};

/* ---- markdown_words.c ------------------------------------------------------------------------ */
void md_write(markdown *m, const char *bytes, size_t n);
int md_is_styled(const markdown *m);
/* The control sequence of a style, from any other; its length. */
size_t md_style_sequence(unsigned style, char out[40]);
/* What is written from now on has this style; the word is empty. */
void md_write_style(markdown *m, unsigned style);
/* Bytes of the character at s; 0: it may be incomplete. A byte that begins none is one. */
size_t md_character_length(const char *s, size_t n, int final);
int md_is_alnum(char c); /* or part of a character beyond ASCII */
int md_is_blank(char c);
size_t md_run_of(const char *s, size_t n, char c); /* how many of the n bytes at s are c */
size_t md_blanks_of(const char *s, size_t n);
void md_write_blanks(markdown *m); /* those behind the last word */
/* Writes the word, in the next row if it does not fit into this one. */
void md_flush_word(markdown *m);
/* A character of the text. A row may end at blanks, and beside characters of two columns. */
void md_put_character(markdown *m, const char *s, size_t n, unsigned style);
/* Text without spans; whole characters. */
void md_put_literal(markdown *m, const char *s, size_t n, unsigned style);
/* Bytes of a raw line. Returns how many were written: not an incomplete character. */
size_t md_put_raw(markdown *m, const char *s, size_t n, int final);

/* ---- markdown_spans.c ------------------------------------------------------------------------ */
/* Where text has `what` behind from; n: nowhere. */
size_t md_find_text(const char *s, size_t n, size_t from, const char *what, size_t n_what);
/* Puts text with its spans. Returns how many bytes are done: where a span has no end yet, it
 * stops. final: the text is complete; depth: of spans around it. */
size_t md_inline(markdown *m, const char *s, size_t n, int final, unsigned style, int depth);
#endif
