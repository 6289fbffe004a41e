/* markdown_words.c -- characters, words and rows of Markdown on a terminal (markdown_inside.h).
 *
 * A word is written once it is complete, so that it is known whether its row has room. Its styles
 * are control sequences within it; a row that begins anew has its indent in front. Control
 * characters of the text become visible ones here, and nowhere else. */
#include "line_edit.h"
#include "markdown_inside.h"
#include <string.h>

/* ---- characters and styles ------------------------------------------------------------------- */

void md_write(markdown *m, const char *bytes, size_t n) {
    if (n)
        m->params.write(m->params.to, bytes, n);
}

int md_is_styled(const markdown *m) {
    return m->params.flags & MARKDOWN_STYLED;
}

/* The control sequence of a style, from any other; its length. */
size_t md_style_sequence(unsigned style, char out[40]) {
    static const struct {
        unsigned style;
        const char *code;
    } codes[] = {{BOLD, ";1"},   {DIM, ";2"},   {ITALIC, ";3"}, {UNDER, ";4"},
                 {STRIKE, ";9"}, {CODE, ";36"}, {HEAD, ";35"}};
    size_t n = 0;
    memcpy(out, "\033[0", 3);
    n = 3;
    for (size_t i = 0; i < MN_COUNT(codes); i++)
        if (style & codes[i].style) {
            memcpy(out + n, codes[i].code, strlen(codes[i].code));
            n += strlen(codes[i].code);
        }
    out[n++] = 'm';
    return n;
}

/* What is written from now on has this style; the word is empty. */
void md_write_style(markdown *m, unsigned style) {
    char sequence[40];
    if (md_is_styled(m) && style != m->style_out)
        md_write(m, sequence, md_style_sequence(style, sequence));
    m->style_out = style;
    m->style_word = style;
}

/* Bytes of the character at s; 0: it may be incomplete. A byte that begins none is one. */
size_t md_character_length(const char *s, size_t n, int final) {
    const unsigned char c = (unsigned char)s[0];
    size_t length = 1;
    if (c >= 0xf0 && c < 0xf8)
        length = 4;
    else if (c >= 0xe0)
        length = 3;
    else if (c >= 0xc2)
        length = 2;
    if (c >= 0xf8)
        length = 1;
    for (size_t i = 1; i < length; i++) {
        if (i >= n)
            return final ? 1 : 0;
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 1;
    }
    return length;
}

/* A character as the terminal may have it: control characters become ^A and the like. */
static mn_str visible(const char *s, size_t n, char out[3]) {
    const unsigned char c = (unsigned char)s[0];
    const int is_c1 = n == 2 && c == 0xc2 && (unsigned char)s[1] < 0xa0;
    if (is_c1 || (n == 1 && c >= 0x80))
        return (mn_str){"\xef\xbf\xbd", 3};
    if (n > 1 || (c >= ' ' && c != 127))
        return (mn_str){s, n};
    out[0] = '^';
    out[1] = (char)(c ^ 0x40);
    return (mn_str){out, 2};
}

int md_is_alnum(char c) {
    const unsigned char u = (unsigned char)c;
    return (u >= '0' && u <= '9') || ((u | 32) >= 'a' && (u | 32) <= 'z') || u >= 0x80;
}

int md_is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* How many of the n bytes at s are c. */
size_t md_run_of(const char *s, size_t n, char c) {
    size_t run = 0;
    while (run < n && s[run] == c)
        run++;
    return run;
}

size_t md_blanks_of(const char *s, size_t n) {
    size_t blanks = 0;
    while (blanks < n && md_is_blank(s[blanks]))
        blanks++;
    return blanks;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* A new row of the same line. */
static void new_row(markdown *m) {
    const unsigned style = m->style_out, style_word = m->style_word;
    md_write_style(m, 0);
    md_write(m, "\n", 1);
    md_write(m, m->indent.ptr, m->indent.len);
    md_write_style(m, style);
    m->style_word = style_word;
    m->column = m->indent_width;
    m->n_blanks = 0;
}

void md_write_blanks(markdown *m) {
    for (; m->n_blanks > 0; m->n_blanks--, m->column++)
        md_write(m, " ", 1);
}

/* Writes the word, in the next row if it does not fit into this one. */
void md_flush_word(markdown *m) {
    const int columns = m->params.columns(m->params.to);
    if (!m->word.len)
        return;
    if (columns && m->column + m->n_blanks + m->word_width > columns && m->column > m->indent_width)
        new_row(m);
    md_write_blanks(m);
    md_write(m, m->word.ptr, m->word.len);
    m->column += m->word_width;
    if (columns && m->column > columns) /* the terminal breaks what is longer than a row */
        m->column %= columns;
    m->style_out = m->style_word;
    mn_text_clear(&m->word);
    m->word_width = 0;
}

/* A character of the text. A row may end at blanks, and beside characters of two columns. */
void md_put_character(markdown *m, const char *s, size_t n, unsigned style) {
    char own[3], sequence[40];
    if (n == 1 && (md_is_blank(*s) || *s == '\r')) {
        md_flush_word(m);
        md_write_style(m, style & ~((UNDER | STRIKE) & ~m->style));
        m->n_blanks += *s != '\r';
        return;
    }
    const mn_str shown = visible(s, n, own);
    const int width = line_width(shown.ptr, shown.len);
    if (width == 2)
        md_flush_word(m);
    if (md_is_styled(m) && style != m->style_word)
        mn_text_put(&m->word, sequence, md_style_sequence(style, sequence));
    m->style_word = style;
    mn_text_put(&m->word, shown.ptr, shown.len);
    m->word_width += width;
    if (width == 2)
        md_flush_word(m);
}

/* Text without spans; whole characters. */
void md_put_literal(markdown *m, const char *s, size_t n, unsigned style) {
    for (size_t at = 0; at < n;) {
        const size_t length = md_character_length(s + at, n - at, 1);
        md_put_character(m, s + at, length, style);
        at += length;
    }
}

/* Bytes of a raw line. Returns how many were written: not an incomplete character. */
size_t md_put_raw(markdown *m, const char *s, size_t n, int final) {
    char own[3];
    size_t at = 0;
    if (n)
        md_write_style(m, m->style);
    while (at < n) {
        const size_t length = md_character_length(s + at, n - at, final);
        const int is_same = s[at] == '\t' || s[at] == '\r';
        const mn_str shown = is_same ? (mn_str){s + at, 1} : visible(s + at, length, own);
        if (!length)
            break;
        if (s[at] != '\r')
            md_write(m, shown.ptr, shown.len);
        at += length;
    }
    m->column += at > 0;
    return at;
}
