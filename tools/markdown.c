/* markdown.c -- Markdown for a terminal, in pieces as a model writes it (markdown.h).
 *
 * A line of the source begins a line of the terminal; its rows are broken between words, and begin
 * below the text of a list item or behind the bar of a quote. The first characters of a line decide
 * what it is (markdown_begin_line); then markdown_inline writes its text up to a span that has no
 * end yet. `held` has the bytes of the line that are not decided, `word` the word that is not
 * written, with its styles. Lines of code, tables and formulas are raw: neither wrapped nor
 * searched for spans. */
#include "markdown.h"
#include "line_edit.h"
#include "text_buffer.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A span that has no end after so many bytes is none. */
#define HELD_MAX 400
#define RULE_MAX 40
#define DEPTH_MAX 8

enum { BOLD = 1, ITALIC = 2, UNDER = 4, STRIKE = 8, DIM = 16, CODE = 32, HEAD = 64 };

typedef enum { LINE_NEW, LINE_WORDS, LINE_RAW } line_state;

struct markdown {
    markdown_params params;
    mn_text held, word, indent; /* indent: begins the second row and those after it */
    line_state line;
    char fence; /* of the block of code that is open; 0: none is */
    size_t n_fence;
    int in_formula; /* its end is in a later line */
    int column, indent_width, word_width, n_blanks;
    unsigned style;      /* of the line */
    unsigned style_word; /* at the end of the word */
    unsigned style_out;  /* of what is written */
    char before;         /* the last byte of the line's text; 0: none */
    int failed;
};

markdown *markdown_open(const markdown_params *params) {
    markdown *m = calloc(1, sizeof *m);
    if (m)
        m->params = *params;
    return m;
}

void markdown_close(markdown *m) {
    if (!m)
        return;
    mn_text_free(&m->held);
    mn_text_free(&m->word);
    mn_text_free(&m->indent);
    free(m);
}

/* ---- characters and styles ------------------------------------------------------------------- */

static void md_write(markdown *m, const char *bytes, size_t n) {
    if (n)
        m->params.write(m->params.to, bytes, n);
}

static int is_styled(const markdown *m) {
    return m->params.flags & MARKDOWN_STYLED;
}

/* The control sequence of a style, from any other; its length. */
static size_t style_sequence(unsigned style, char out[40]) {
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
static void write_style(markdown *m, unsigned style) {
    char sequence[40];
    if (is_styled(m) && style != m->style_out)
        md_write(m, sequence, style_sequence(style, sequence));
    m->style_out = style;
    m->style_word = style;
}

/* Bytes of the character at s; 0: it may be incomplete. A byte that begins none is one. */
static size_t character_length(const char *s, size_t n, int final) {
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

static int is_alnum(char c) {
    const unsigned char u = (unsigned char)c;
    return (u >= '0' && u <= '9') || ((u | 32) >= 'a' && (u | 32) <= 'z') || u >= 0x80;
}

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* How many of the n bytes at s are c. */
static size_t run_of(const char *s, size_t n, char c) {
    size_t run = 0;
    while (run < n && s[run] == c)
        run++;
    return run;
}

static size_t blanks_of(const char *s, size_t n) {
    size_t blanks = 0;
    while (blanks < n && is_blank(s[blanks]))
        blanks++;
    return blanks;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* A new row of the same line. */
static void new_row(markdown *m) {
    const unsigned style = m->style_out, style_word = m->style_word;
    write_style(m, 0);
    md_write(m, "\n", 1);
    md_write(m, m->indent.ptr, m->indent.len);
    write_style(m, style);
    m->style_word = style_word;
    m->column = m->indent_width;
    m->n_blanks = 0;
}

static void write_blanks(markdown *m) {
    for (; m->n_blanks > 0; m->n_blanks--, m->column++)
        md_write(m, " ", 1);
}

/* Writes the word, in the next row if it does not fit into this one. */
static void flush_word(markdown *m) {
    const int columns = m->params.columns(m->params.to);
    if (!m->word.len)
        return;
    if (columns && m->column + m->n_blanks + m->word_width > columns && m->column > m->indent_width)
        new_row(m);
    write_blanks(m);
    md_write(m, m->word.ptr, m->word.len);
    m->column += m->word_width;
    if (columns && m->column > columns) /* the terminal breaks what is longer than a row */
        m->column %= columns;
    m->style_out = m->style_word;
    mn_text_clear(&m->word);
    m->word_width = 0;
}

/* A character of the text. A row may end at blanks, and beside characters of two columns. */
static void put_character(markdown *m, const char *s, size_t n, unsigned style) {
    char own[3], sequence[40];
    if (n == 1 && (is_blank(*s) || *s == '\r')) {
        flush_word(m);
        write_style(m, style & ~((UNDER | STRIKE) & ~m->style));
        m->n_blanks += *s != '\r';
        return;
    }
    const mn_str shown = visible(s, n, own);
    const int width = line_width(shown.ptr, shown.len);
    if (width == 2)
        flush_word(m);
    if (is_styled(m) && style != m->style_word)
        mn_text_put(&m->word, sequence, style_sequence(style, sequence));
    m->style_word = style;
    mn_text_put(&m->word, shown.ptr, shown.len);
    m->word_width += width;
    if (width == 2)
        flush_word(m);
}

/* Text without spans; whole characters. */
static void put_literal(markdown *m, const char *s, size_t n, unsigned style) {
    for (size_t at = 0; at < n;) {
        const size_t length = character_length(s + at, n - at, 1);
        put_character(m, s + at, length, style);
        at += length;
    }
}

/* Bytes of a raw line. Returns how many were written: not an incomplete character. */
static size_t put_raw(markdown *m, const char *s, size_t n, int final) {
    char own[3];
    size_t at = 0;
    if (n)
        write_style(m, m->style);
    while (at < n) {
        const size_t length = character_length(s + at, n - at, final);
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

/* ---- spans ----------------------------------------------------------------------------------- */

#define SPAN_NONE 0
#define SPAN_OPEN SIZE_MAX /* its end may still come */

static size_t markdown_inline(markdown *m, const char *s, size_t n, int final, unsigned style,
                              int depth);

/* Where text has what behind from; n: nowhere. */
static size_t find_text(const char *s, size_t n, size_t from, const char *what, size_t n_what) {
    for (size_t at = from; at + n_what <= n; at++)
        if (memcmp(s + at, what, n_what) == 0)
            return at;
    return n;
}

/* Without an end so far: SPAN_OPEN, or SPAN_NONE once none can come. */
static size_t no_end(int final) {
    return final ? SPAN_NONE : SPAN_OPEN;
}

/* \* is *; a formula in \( \) or \[ \] stays as it is. */
static size_t span_escape(markdown *m, const char *s, size_t n, int final, unsigned style) {
    static const char marks[] = "\\`*_{}#+-.!|<>~$";
    if (n < 2)
        return no_end(final);
    if (s[1] == '(' || s[1] == '[') {
        const char end[2] = {'\\', s[1] == '(' ? ')' : ']'};
        const size_t at = find_text(s, n, 2, end, 2);
        if (at == n)
            return no_end(final);
        put_literal(m, s, at + 2, style);
        return at + 2;
    }
    if (!strchr(marks, s[1]) || !s[1])
        return SPAN_NONE;
    put_character(m, s + 1, 1, style);
    return 2;
}

/* `code`, with a blank at both ends ``of it, where it has ` ``. */
static size_t span_code(markdown *m, const char *s, size_t n, int final, unsigned style) {
    const size_t ticks = run_of(s, n, '`');
    if (ticks == n)
        return no_end(final);
    size_t at = ticks, run = 0;
    for (; at < n; at += run + !run) {
        run = run_of(s + at, n - at, '`');
        if (run == ticks && (at + run < n || final))
            break;
    }
    if (at >= n && !final)
        return SPAN_OPEN;
    if (at >= n) {
        put_literal(m, s, ticks, style);
        return ticks;
    }
    const size_t pad = at - ticks > 2 && s[ticks] == ' ' && s[at - 1] == ' ';
    put_literal(m, s + ticks + pad, at - ticks - 2 * pad, style | CODE);
    return at + ticks;
}

/* $x_1$: what is between stays as it is. Prices and variables are none, as in the page. */
static size_t span_formula(markdown *m, const char *s, size_t n, int final, unsigned style) {
    if (n < 2)
        return no_end(final);
    if (is_blank(s[1]) || (s[1] >= '0' && s[1] <= '9') || is_alnum(m->before))
        return SPAN_NONE;
    size_t at = find_text(s, n, 1, "$", 1);
    while (at < n && (is_blank(s[at - 1]) || (at + 1 < n && is_alnum(s[at + 1]))))
        at = find_text(s, n, at + 1, "$", 1);
    if (at == n || (at + 1 == n && !final))
        return no_end(final);
    put_literal(m, s, at + 1, style);
    return at + 1;
}

/* [text](url) */
static size_t span_link(markdown *m, const char *s, size_t n, int final, unsigned style,
                        int depth) {
    const size_t middle = find_text(s, n, 1, "]", 1);
    if (middle == n || (middle + 1 == n && !final))
        return no_end(final);
    if (middle + 1 == n || s[middle + 1] != '(')
        return SPAN_NONE;
    const size_t end = find_text(s, n, middle + 2, ")", 1);
    if (end == n)
        return no_end(final);
    const char *url = s + middle + 2;
    const size_t n_url = end - middle - 2;
    markdown_inline(m, s + 1, middle - 1, 1, style | UNDER, depth + 1);
    if (n_url && (n_url != middle - 1 || memcmp(url, s + 1, n_url) != 0)) {
        put_literal(m, middle > 1 ? " (" : "(", middle > 1 ? 2 : 1, style | DIM);
        put_literal(m, url, n_url, style | DIM);
        put_literal(m, ")", 1, style | DIM);
    }
    return end + 1;
}

/* Where the marker, a run of c, ends what it began; n: nowhere so far. */
static size_t emphasis_end(const char *s, size_t n, size_t run, int final) {
    const char c = s[0];
    for (size_t at = run; at < n;) {
        const size_t found = run_of(s + at, n - at, c);
        const size_t after = at + found;
        const int is_end = found == run && at > run && !is_blank(s[at - 1]);
        const int may_end = final || after < n;
        if (is_end && may_end && !(c == '_' && after < n && is_alnum(s[after])))
            return at;
        at += found ? found : 1;
    }
    return n;
}

/* *italic*, **bold**, ***both***, ~~struck~~; a run without an end is text. */
static size_t span_emphasis(markdown *m, const char *s, size_t n, int final, unsigned style,
                            int depth) {
    static const unsigned styles[] = {0, ITALIC, BOLD, BOLD | ITALIC};
    const size_t run = run_of(s, n, s[0]);
    if (run == n && !final)
        return SPAN_OPEN;
    const int fits = s[0] == '~' ? run == 2 : run <= 3;
    const int opens = run < n && !is_blank(s[run]) && !(s[0] == '_' && is_alnum(m->before));
    const size_t end = fits && opens ? emphasis_end(s, n, run, final) : n;
    if (fits && opens && end == n && no_end(final) == SPAN_OPEN)
        return SPAN_OPEN;
    if (end == n) {
        put_literal(m, s, run, style);
        return run;
    }
    const unsigned more = s[0] == '~' ? STRIKE : styles[run];
    m->before = 0;
    markdown_inline(m, s + run, end - run, 1, style | more, depth + 1);
    return end + run;
}

/* What begins with s[0]: the bytes that were written or dropped, SPAN_NONE or SPAN_OPEN. */
static size_t put_span(markdown *m, const char *s, size_t n, int final, unsigned style, int depth) {
    if (n >= HELD_MAX) {
        n = HELD_MAX;
        final = 1;
    }
    switch (s[0]) {
    case '\\':
        return span_escape(m, s, n, final, style);
    case '`':
        return span_code(m, s, n, final, style);
    case '$':
        return span_formula(m, s, n, final, style);
    case '*':
    case '_':
    case '~':
        return span_emphasis(m, s, n, final, style, depth);
    case '[':
        return span_link(m, s, n, final, style, depth);
    default:
        return SPAN_NONE;
    }
}

/* Puts text with its spans. Returns how many bytes are done: where a span has no end yet, it
 * stops. */
static size_t markdown_inline(markdown *m, const char *s, size_t n, int final, unsigned style,
                              int depth) {
    size_t at = 0;
    while (at < n) {
        size_t done = SPAN_NONE;
        if (is_styled(m) && depth < DEPTH_MAX)
            done = put_span(m, s + at, n - at, final, style, depth);
        if (done == SPAN_OPEN)
            break;
        if (done == SPAN_NONE) {
            done = character_length(s + at, n - at, final);
            if (!done)
                break;
            put_character(m, s + at, done, style);
        }
        at += done;
        m->before = s[at - 1];
    }
    return at;
}

/* ---- how a line begins ----------------------------------------------------------------------- */

typedef enum {
    BEGIN_MORE, /* it is not known yet */
    BEGIN_WORDS,
    BEGIN_RAW,
    BEGIN_FENCE,
    BEGIN_FORMULA,
    BEGIN_RULE,
    BEGIN_HEADING,
    BEGIN_QUOTE,
    BEGIN_ITEM
} begin_kind;

/* A fence is known when its line is complete; one of backquotes has none behind it. */
static begin_kind begin_of_fence(const char *s, size_t n, int final) {
    const size_t run = run_of(s, n, s[0]);
    if (run < 3)
        return run == n && !final ? BEGIN_MORE : BEGIN_WORDS;
    if (s[0] == '`' && memchr(s + run, '`', n - run))
        return BEGIN_WORDS;
    return final ? BEGIN_FENCE : BEGIN_MORE;
}

/* -, +, * and _: a rule, a list item or text. *n_mark: bytes of the item's mark. */
static begin_kind begin_of_mark(const char *s, size_t n, int final, size_t *n_mark) {
    size_t marks = 0, at = 0;
    for (; at < n && (s[at] == s[0] || is_blank(s[at])); at++)
        marks += s[at] == s[0];
    if (at == n && !final)
        return BEGIN_MORE;
    if (at == n && marks >= 3 && s[0] != '+')
        return BEGIN_RULE;
    *n_mark = 2;
    return s[0] != '_' && n > 1 && is_blank(s[1]) ? BEGIN_ITEM : BEGIN_WORDS;
}

static begin_kind begin_of_number(const char *s, size_t n, int final, size_t *n_mark) {
    size_t digits = 0;
    while (digits < n && digits < 10 && s[digits] >= '0' && s[digits] <= '9')
        digits++;
    if (digits + 1 >= n && !final && digits < 10)
        return BEGIN_MORE;
    *n_mark = digits + 2;
    const int is_item = digits < 10 && digits + 1 < n && (s[digits] == '.' || s[digits] == ')');
    return is_item && is_blank(s[digits + 1]) ? BEGIN_ITEM : BEGIN_WORDS;
}

static begin_kind begin_of_heading(const char *s, size_t n, int final, size_t *n_mark) {
    const size_t run = run_of(s, n, '#');
    if (run == n && !final && run <= 6)
        return BEGIN_MORE;
    *n_mark = run + 1;
    return run <= 6 && run < n && is_blank(s[run]) ? BEGIN_HEADING : BEGIN_WORDS;
}

/* s: the line behind its blanks, n >= 1. */
static begin_kind begin_of(const char *s, size_t n, int final, size_t *n_mark) {
    switch (s[0]) {
    case '`':
    case '~':
        return begin_of_fence(s, n, final);
    case '|':
        return BEGIN_RAW;
    case '$':
    case '\\':
        if (n < 2)
            return final ? BEGIN_WORDS : BEGIN_MORE;
        return s[1] == (s[0] == '$' ? '$' : '[') ? BEGIN_FORMULA : BEGIN_WORDS;
    case '#':
        return begin_of_heading(s, n, final, n_mark);
    case '>':
        *n_mark = n > 1 && is_blank(s[1]) ? 2 : 1;
        return n < 2 && !final ? BEGIN_MORE : BEGIN_QUOTE;
    case '-':
    case '+':
    case '*':
    case '_':
        return begin_of_mark(s, n, final, n_mark);
    default:
        return s[0] >= '0' && s[0] <= '9' ? begin_of_number(s, n, final, n_mark) : BEGIN_WORDS;
    }
}

/* Text in front of the line, and as many blanks in front of its later rows. */
static void put_mark(markdown *m, const char *s, size_t n, unsigned style, int width) {
    write_style(m, style);
    md_write(m, s, n);
    write_style(m, 0);
    m->column += width;
    m->indent_width += width;
    for (int i = 0; i < width; i++)
        mn_text_put(&m->indent, " ", 1);
}

static void put_item(markdown *m, const char *s, size_t n) {
    const int is_bullet = n == 2 && is_styled(m) && !(m->params.flags & MARKDOWN_ASCII);
    if (is_bullet && strchr("-+*", s[0]))
        put_mark(m, "\xe2\x80\xa2 ", 4, HEAD, 2);
    else
        put_mark(m, s, n, HEAD, (int)n);
}

/* The bar of a quote, which its later rows have, too. */
static void put_bar(markdown *m) {
    const char *bar = m->params.flags & MARKDOWN_ASCII ? "| " : "\xe2\x94\x82 ";
    char sequence[40];
    write_style(m, DIM);
    md_write(m, bar, strlen(bar));
    write_style(m, 0);
    mn_text_put(&m->indent, sequence, style_sequence(DIM, sequence));
    mn_text_puts(&m->indent, bar);
    mn_text_put(&m->indent, sequence, style_sequence(0, sequence));
    m->column += 2;
    m->indent_width += 2;
}

static void put_rule(markdown *m) {
    const char *dash = m->params.flags & MARKDOWN_ASCII ? "-" : "\xe2\x94\x80";
    const int columns = m->params.columns(m->params.to);
    write_style(m, DIM);
    for (int i = 0; i < (columns && columns < RULE_MAX ? columns : RULE_MAX); i++)
        md_write(m, dash, strlen(dash));
    m->column = 1;
}

static void begin_raw(markdown *m, unsigned style) {
    m->line = LINE_RAW;
    m->style = style;
}

/* A line of a formula, complete: whether a later line ends it. */
static void begin_formula(markdown *m) {
    const char *s = m->held.ptr;
    const size_t n = m->held.len, blanks = blanks_of(s, n);
    const int is_first = !m->in_formula;
    const int is_closed = find_text(s, n, is_first ? blanks + 2 : 0, "$$", 2) < n ||
                          find_text(s, n, 0, "\\]", 2) < n || blanks == n;
    m->in_formula = !is_closed;
    begin_raw(m, 0);
}

/* A line within a block of code: its end, or code. 0: it is not known yet. */
static int begin_code(markdown *m, int final) {
    const char *s = m->held.ptr;
    const size_t n = m->held.len, blanks = blanks_of(s, n);
    const size_t run = run_of(s + blanks, n - blanks, m->fence);
    const size_t rest = blanks + run + blanks_of(s + blanks + run, n - blanks - run);
    if (rest == n && !final)
        return 0;
    const int is_end = rest == n && run >= m->n_fence;
    if (is_end)
        m->fence = 0;
    begin_raw(m, is_end ? DIM : CODE);
    return 1;
}

/* The line begins with what is not words, behind `blanks` blanks. 0: it does begin with words. */
static int begin_block(markdown *m, begin_kind kind, size_t blanks) {
    switch (kind) {
    case BEGIN_FENCE:
        m->fence = m->held.ptr[blanks];
        m->n_fence = run_of(m->held.ptr + blanks, m->held.len - blanks, m->fence);
        begin_raw(m, DIM);
        return 1;
    case BEGIN_FORMULA:
        begin_formula(m);
        return 1;
    case BEGIN_RULE:
        begin_raw(m, 0);
        if (is_styled(m)) {
            put_rule(m);
            mn_text_clear(&m->held);
        }
        return 1;
    case BEGIN_RAW:
        begin_raw(m, 0);
        return 1;
    default:
        return 0;
    }
}

/* Writes the mark of words, and removes it from the line. 1: another mark may follow. */
static int begin_words(markdown *m, begin_kind kind, size_t blanks, size_t n_mark) {
    const char *mark = m->held.ptr + blanks;
    put_mark(m, m->held.ptr, blanks, 0, (int)blanks);
    m->line = LINE_WORDS;
    if (kind == BEGIN_ITEM)
        put_item(m, mark, n_mark);
    else if (kind == BEGIN_QUOTE && is_styled(m))
        put_bar(m);
    else if (kind == BEGIN_HEADING && is_styled(m))
        m->style = BOLD | HEAD | (n_mark == 2 ? (unsigned)UNDER : 0);
    else
        n_mark = 0;
    mn_text_remove(&m->held, 0, blanks + n_mark);
    if (kind == BEGIN_QUOTE && n_mark)
        m->line = LINE_NEW;
    return m->line == LINE_NEW;
}

/* Decides what the line is, and writes what it begins with. 0: it is not known yet. */
static int markdown_begin_line(markdown *m, int final) {
    if (m->fence)
        return begin_code(m, final);
    if (m->in_formula && final)
        begin_formula(m);
    if (m->in_formula || m->line == LINE_RAW)
        return final;
    for (int again = 1; again;) {
        const size_t blanks = blanks_of(m->held.ptr, m->held.len);
        size_t n_mark = 0;
        begin_kind kind = BEGIN_WORDS;
        if (blanks == m->held.len)
            kind = final ? BEGIN_WORDS : BEGIN_MORE;
        else
            kind = begin_of(m->held.ptr + blanks, m->held.len - blanks, final, &n_mark);
        if (m->indent_width && (kind == BEGIN_FENCE || kind == BEGIN_FORMULA))
            kind = BEGIN_RAW;
        if (kind == BEGIN_MORE || (kind == BEGIN_FORMULA && !final))
            return 0;
        again = !begin_block(m, kind, blanks) && begin_words(m, kind, blanks, n_mark);
        if (again && !m->held.len)
            return 0;
    }
    return 1;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes what is decided of the held bytes; final: the line is complete. */
static void markdown_step(markdown *m, int final) {
    size_t done = 0;
    if (m->line == LINE_NEW && !m->held.len) {
        m->in_formula &= !final; /* an empty line ends what is none */
        return;
    }
    if (m->line == LINE_NEW && !markdown_begin_line(m, final))
        return;
    if (m->line == LINE_RAW)
        done = put_raw(m, m->held.ptr, m->held.len, final);
    else if (m->held.len)
        done = markdown_inline(m, m->held.ptr, m->held.len, final, m->style, 0);
    mn_text_remove(&m->held, 0, done);
    if (final)
        flush_word(m);
}

/* The line is complete and written; the next one is new. */
static void markdown_end_line(markdown *m) {
    write_style(m, 0);
    mn_text_clear(&m->held);
    mn_text_clear(&m->indent);
    m->line = LINE_NEW;
    m->style = 0;
    m->column = m->indent_width = m->n_blanks = 0;
    m->before = 0;
}

static int markdown_state(const markdown *m) {
    return !m->held.failed && !m->word.failed && !m->indent.failed;
}

int markdown_put(markdown *m, const char *bytes, size_t n) {
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        const size_t part = end ? (size_t)(end - bytes) : n;
        mn_text_put(&m->held, bytes, part);
        if (!markdown_state(m))
            return 0;
        markdown_step(m, end != NULL);
        if (end) {
            markdown_end_line(m);
            md_write(m, "\n", 1);
        }
        bytes += part + (end != NULL);
        n -= part + (end != NULL);
    }
    return markdown_state(m);
}

int markdown_plain(markdown *m, const char *bytes, size_t n) {
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        const size_t part = end ? (size_t)(end - bytes) : n;
        markdown_step(m, 1);
        write_blanks(m);
        begin_raw(m, 0);
        put_raw(m, bytes, part, 1);
        if (end) {
            markdown_end_line(m);
            md_write(m, "\n", 1);
        }
        bytes += part + (end != NULL);
        n -= part + (end != NULL);
    }
    return markdown_state(m);
}

int markdown_end(markdown *m) {
    markdown_step(m, 1);
    markdown_end_line(m);
    m->fence = 0;
    m->in_formula = 0;
    return markdown_state(m);
}
