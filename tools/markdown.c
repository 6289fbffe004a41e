/* markdown.c -- Markdown for a terminal, in pieces as a model writes it (markdown.h): its lines.
 *
 * A line of the source begins a line of the terminal; its rows are broken between words, and begin
 * below the text of a list item or behind the bar of a quote. The first characters of a line decide
 * what it is (markdown_begin_line); then md_inline writes its text up to a span that has no end
 * yet. `held` has the bytes of the line that are not decided, `word` the word that is not written,
 * with its styles. Lines of code, tables and formulas are raw: neither wrapped nor searched for
 * spans. */
#include "markdown_inside.h"
#include <stdlib.h>
#include <string.h>

#define RULE_MAX 40

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
    const size_t run = md_run_of(s, n, s[0]);
    if (run < 3)
        return run == n && !final ? BEGIN_MORE : BEGIN_WORDS;
    if (s[0] == '`' && memchr(s + run, '`', n - run))
        return BEGIN_WORDS;
    return final ? BEGIN_FENCE : BEGIN_MORE;
}

/* -, +, * and _: a rule, a list item or text. *n_mark: bytes of the item's mark. */
static begin_kind begin_of_mark(const char *s, size_t n, int final, size_t *n_mark) {
    size_t marks = 0, at = 0;
    for (; at < n && (s[at] == s[0] || md_is_blank(s[at])); at++)
        marks += s[at] == s[0];
    if (at == n && !final)
        return BEGIN_MORE;
    if (at == n && marks >= 3 && s[0] != '+')
        return BEGIN_RULE;
    *n_mark = 2;
    return s[0] != '_' && n > 1 && md_is_blank(s[1]) ? BEGIN_ITEM : BEGIN_WORDS;
}

static begin_kind begin_of_number(const char *s, size_t n, int final, size_t *n_mark) {
    size_t digits = 0;
    while (digits < n && digits < 10 && s[digits] >= '0' && s[digits] <= '9')
        digits++;
    if (digits + 1 >= n && !final && digits < 10)
        return BEGIN_MORE;
    *n_mark = digits + 2;
    const int is_item = digits < 10 && digits + 1 < n && (s[digits] == '.' || s[digits] == ')');
    return is_item && md_is_blank(s[digits + 1]) ? BEGIN_ITEM : BEGIN_WORDS;
}

static begin_kind begin_of_heading(const char *s, size_t n, int final, size_t *n_mark) {
    const size_t run = md_run_of(s, n, '#');
    if (run == n && !final && run <= 6)
        return BEGIN_MORE;
    *n_mark = run + 1;
    return run <= 6 && run < n && md_is_blank(s[run]) ? BEGIN_HEADING : BEGIN_WORDS;
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
        *n_mark = n > 1 && md_is_blank(s[1]) ? 2 : 1;
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
    md_write_style(m, style);
    md_write(m, s, n);
    md_write_style(m, 0);
    m->column += width;
    m->indent_width += width;
    for (int i = 0; i < width; i++)
        mn_text_put(&m->indent, " ", 1);
}

static void put_item(markdown *m, const char *s, size_t n) {
    const int is_bullet = n == 2 && md_is_styled(m) && !(m->params.flags & MARKDOWN_ASCII);
    if (is_bullet && strchr("-+*", s[0]))
        put_mark(m, "\xe2\x80\xa2 ", 4, HEAD, 2);
    else
        put_mark(m, s, n, HEAD, (int)n);
}

/* The bar of a quote, which its later rows have, too. */
static void put_bar(markdown *m) {
    const char *bar = m->params.flags & MARKDOWN_ASCII ? "| " : "\xe2\x94\x82 ";
    char sequence[40];
    md_write_style(m, DIM);
    md_write(m, bar, strlen(bar));
    md_write_style(m, 0);
    mn_text_put(&m->indent, sequence, md_style_sequence(DIM, sequence));
    mn_text_puts(&m->indent, bar);
    mn_text_put(&m->indent, sequence, md_style_sequence(0, sequence));
    m->column += 2;
    m->indent_width += 2;
}

static void put_rule(markdown *m) {
    const char *dash = m->params.flags & MARKDOWN_ASCII ? "-" : "\xe2\x94\x80";
    const int columns = m->params.columns(m->params.to);
    md_write_style(m, DIM);
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
    const size_t n = m->held.len, blanks = md_blanks_of(s, n);
    const int is_first = !m->in_formula;
    const int is_closed = md_find_text(s, n, is_first ? blanks + 2 : 0, "$$", 2) < n ||
                          md_find_text(s, n, 0, "\\]", 2) < n || blanks == n;
    m->in_formula = !is_closed;
    begin_raw(m, 0);
}

/* A line within a block of code: its end, or code. 0: it is not known yet. */
static int begin_code(markdown *m, int final) {
    const char *s = m->held.ptr;
    const size_t n = m->held.len, blanks = md_blanks_of(s, n);
    const size_t run = md_run_of(s + blanks, n - blanks, m->fence);
    const size_t rest = blanks + run + md_blanks_of(s + blanks + run, n - blanks - run);
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
        m->n_fence = md_run_of(m->held.ptr + blanks, m->held.len - blanks, m->fence);
        begin_raw(m, DIM);
        return 1;
    case BEGIN_FORMULA:
        begin_formula(m);
        return 1;
    case BEGIN_RULE:
        begin_raw(m, 0);
        if (md_is_styled(m)) {
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
    else if (kind == BEGIN_QUOTE && md_is_styled(m))
        put_bar(m);
    else if (kind == BEGIN_HEADING && md_is_styled(m))
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
        const size_t blanks = md_blanks_of(m->held.ptr, m->held.len);
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
        done = md_put_raw(m, m->held.ptr, m->held.len, final);
    else if (m->held.len)
        done = md_inline(m, m->held.ptr, m->held.len, final, m->style, 0);
    mn_text_remove(&m->held, 0, done);
    if (final)
        md_flush_word(m);
}

/* The line is complete and written; the next one is new. */
static void markdown_end_line(markdown *m) {
    md_write_style(m, 0);
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
        md_write_blanks(m);
        begin_raw(m, 0);
        md_put_raw(m, bytes, part, 1);
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
