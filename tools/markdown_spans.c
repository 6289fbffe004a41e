/* markdown_spans.c -- the spans of a line of Markdown: **bold**, `code`, [links](url), formulas
 * (markdown_inside.h). A span is written once its end has come; if none comes within HELD_MAX bytes
 * or the line, its marker is text. */
#include "markdown_inside.h"
#include <stdint.h>
#include <string.h>

/* A span that has no end after so many bytes is none. */
#define HELD_MAX 400
#define DEPTH_MAX 8

/* ---- spans ----------------------------------------------------------------------------------- */

#define SPAN_NONE 0
#define SPAN_OPEN SIZE_MAX /* its end may still come */

/* Where text has what behind from; n: nowhere. */
size_t md_find_text(const char *s, size_t n, size_t from, const char *what, size_t n_what) {
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
        const size_t at = md_find_text(s, n, 2, end, 2);
        if (at == n)
            return no_end(final);
        md_put_literal(m, s, at + 2, style);
        return at + 2;
    }
    if (!strchr(marks, s[1]) || !s[1])
        return SPAN_NONE;
    md_put_character(m, s + 1, 1, style);
    return 2;
}

/* `code`, with a blank at both ends ``of it, where it has ` ``. */
static size_t span_code(markdown *m, const char *s, size_t n, int final, unsigned style) {
    const size_t ticks = md_run_of(s, n, '`');
    if (ticks == n)
        return no_end(final);
    size_t at = ticks, run = 0;
    for (; at < n; at += run + !run) {
        run = md_run_of(s + at, n - at, '`');
        if (run == ticks && (at + run < n || final))
            break;
    }
    if (at >= n && !final)
        return SPAN_OPEN;
    if (at >= n) {
        md_put_literal(m, s, ticks, style);
        return ticks;
    }
    const size_t pad = at - ticks > 2 && s[ticks] == ' ' && s[at - 1] == ' ';
    md_put_literal(m, s + ticks + pad, at - ticks - 2 * pad, style | CODE);
    return at + ticks;
}

/* $x_1$: what is between stays as it is. Prices and variables are none, as in the page. */
static size_t span_formula(markdown *m, const char *s, size_t n, int final, unsigned style) {
    if (n < 2)
        return no_end(final);
    if (md_is_blank(s[1]) || (s[1] >= '0' && s[1] <= '9') || md_is_alnum(m->before))
        return SPAN_NONE;
    size_t at = md_find_text(s, n, 1, "$", 1);
    while (at < n && (md_is_blank(s[at - 1]) || (at + 1 < n && md_is_alnum(s[at + 1]))))
        at = md_find_text(s, n, at + 1, "$", 1);
    if (at == n || (at + 1 == n && !final))
        return no_end(final);
    md_put_literal(m, s, at + 1, style);
    return at + 1;
}

/* [text](url) */
static size_t span_link(markdown *m, const char *s, size_t n, int final, unsigned style,
                        int depth) {
    const size_t middle = md_find_text(s, n, 1, "]", 1);
    if (middle == n || (middle + 1 == n && !final))
        return no_end(final);
    if (middle + 1 == n || s[middle + 1] != '(')
        return SPAN_NONE;
    const size_t end = md_find_text(s, n, middle + 2, ")", 1);
    if (end == n)
        return no_end(final);
    const char *url = s + middle + 2;
    const size_t n_url = end - middle - 2;
    md_inline(m, s + 1, middle - 1, 1, style | UNDER, depth + 1);
    if (n_url && (n_url != middle - 1 || memcmp(url, s + 1, n_url) != 0)) {
        md_put_literal(m, middle > 1 ? " (" : "(", middle > 1 ? 2 : 1, style | DIM);
        md_put_literal(m, url, n_url, style | DIM);
        md_put_literal(m, ")", 1, style | DIM);
    }
    return end + 1;
}

/* Where the marker, a run of c, ends what it began; n: nowhere so far. */
static size_t emphasis_end(const char *s, size_t n, size_t run, int final) {
    const char c = s[0];
    for (size_t at = run; at < n;) {
        const size_t found = md_run_of(s + at, n - at, c);
        const size_t after = at + found;
        const int is_end = found == run && at > run && !md_is_blank(s[at - 1]);
        const int may_end = final || after < n;
        if (is_end && may_end && !(c == '_' && after < n && md_is_alnum(s[after])))
            return at;
        at += found ? found : 1;
    }
    return n;
}

/* *italic*, **bold**, ***both***, ~~struck~~; a run without an end is text. */
static size_t span_emphasis(markdown *m, const char *s, size_t n, int final, unsigned style,
                            int depth) {
    static const unsigned styles[] = {0, ITALIC, BOLD, BOLD | ITALIC};
    const size_t run = md_run_of(s, n, s[0]);
    if (run == n && !final)
        return SPAN_OPEN;
    const int fits = s[0] == '~' ? run == 2 : run <= 3;
    const int opens = run < n && !md_is_blank(s[run]) && !(s[0] == '_' && md_is_alnum(m->before));
    const size_t end = fits && opens ? emphasis_end(s, n, run, final) : n;
    if (fits && opens && end == n && no_end(final) == SPAN_OPEN)
        return SPAN_OPEN;
    if (end == n) {
        md_put_literal(m, s, run, style);
        return run;
    }
    const unsigned more = s[0] == '~' ? STRIKE : styles[run];
    m->before = 0;
    md_inline(m, s + run, end - run, 1, style | more, depth + 1);
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
size_t md_inline(markdown *m, const char *s, size_t n, int final, unsigned style, int depth) {
    size_t at = 0;
    while (at < n) {
        size_t done = SPAN_NONE;
        if (md_is_styled(m) && depth < DEPTH_MAX)
            done = put_span(m, s + at, n - at, final, style, depth);
        if (done == SPAN_OPEN)
            break;
        if (done == SPAN_NONE) {
            done = md_character_length(s + at, n - at, final);
            if (!done)
                break;
            md_put_character(m, s + at, done, style);
        }
        at += done;
        m->before = s[at - 1];
    }
    return at;
}
