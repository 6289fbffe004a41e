/* lex.c -- a template's text to tokens. Follows jinja2/lexer.py with trim_blocks and lstrip_blocks
 * on and keep_trailing_newline off, as Transformers sets it up: white space beside tags is decided
 * here, and the parser sees none of it.
 *
 * The source is copied once, with newlines normalised; tokens point into the copy, both live in the
 * template's arena. Lines are counted as the text is passed over, for the errors of all later
 * parts. */
#include "text/jinja/lex.h"
#include "text/jinja/text.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    mn_jctx *c;
    mn_jstr s;          // newlines normalised
    size_t at, counted; // lines are counted up to `counted`
    bool line_start;    // the last match ended with a newline
    mn_jtoken *tokens;
    size_t n, cap;
    mn_jbuf open; // brackets waiting for their partner
} lexer;

const char *mn_jtoken_name(mn_jtoken_type type) {
    static const char *const names[] = {"end of template",
                                        "template text",
                                        "{{",
                                        "}}",
                                        "{%",
                                        "%}",
                                        "name",
                                        "string",
                                        "integer",
                                        "float",
                                        "+",
                                        "-",
                                        "/",
                                        "//",
                                        "*",
                                        "%",
                                        "**",
                                        "~",
                                        "[",
                                        "]",
                                        "(",
                                        ")",
                                        "{",
                                        "}",
                                        "==",
                                        "!=",
                                        ">",
                                        ">=",
                                        "<",
                                        "<=",
                                        "=",
                                        ".",
                                        ":",
                                        "|",
                                        ",",
                                        ";"};
    return names[type];
}

/* Keeps the number of the current line for errors. */
static void count_lines(lexer *x, size_t to) {
    for (; x->counted < to; x->counted++)
        x->c->line += x->s.ptr[x->counted] == '\n';
}

/* Appends a token that stands at [from, to); NULL = failed. */
static mn_jtoken *lex_add(lexer *x, mn_jtoken_type type, size_t from, size_t to) {
    mn_jtoken *tokens = mn_jgrow(x->c, x->tokens, x->n, &x->cap, sizeof *tokens);
    if (!tokens)
        return NULL;
    x->tokens = tokens;
    mn_jtoken *t = &tokens[x->n++];
    *t = (mn_jtoken){.type = type, .line = x->c->line, .text = {x->s.ptr + from, to - from}};
    return t;
}

/* 0 past the end. */
static char lex_peek(const lexer *x, size_t at) {
    return at < x->s.len ? x->s.ptr[at] : 0;
}
/* Does this text stand at `at`? */
static bool looks(const lexer *x, size_t at, const char *z) {
    const size_t n = strlen(z);
    if (at > x->s.len || n > x->s.len - at)
        return false;
    return !memcmp(x->s.ptr + at, z, n);
}

/* Where white space that begins at `at` ends. */
static size_t lex_skip_space(const lexer *x, size_t at) {
    while (at < x->s.len) {
        uint32_t u;
        const size_t n = mn_jchar(x->s, at, &u);
        if (!mn_jcode_space(u))
            break;
        at += n;
    }
    return at;
}

/* End of a closing tag ("%}" or "#}") that may begin at `at`, with the white space that goes with
 * it: all behind a minus, without a sign one newline; 0 = none. */
static size_t close_at(const lexer *x, size_t at, const char *tag) {
    const char sign = lex_peek(x, at);
    if (looks(x, at, tag))
        return at + 2 + (lex_peek(x, at + 2) == '\n');
    if ((sign != '+' && sign != '-') || !looks(x, at + 1, tag))
        return 0;
    return sign == '+' ? at + 3 : lex_skip_space(x, at + 3);
}

/* "{%- word -%}" at `at`: end of the tag, 0 = something else. */
static size_t word_tag_at(const lexer *x, size_t at, const char *word, bool trim) {
    if (!looks(x, at, "{%"))
        return 0;
    at += 2;
    if (lex_peek(x, at) == '-' || lex_peek(x, at) == '+')
        at++;
    at = lex_skip_space(x, at);
    if (!looks(x, at, word))
        return 0;
    at = lex_skip_space(x, at + strlen(word));
    if (trim)
        return close_at(x, at, "%}");
    if (looks(x, at, "-%}"))
        return lex_skip_space(x, at + 3);
    return looks(x, at, "%}") ? at + 2 : 0;
}

/* Goes on behind what was read. */
static void moved(lexer *x, size_t to) {
    x->line_start = to > x->at && x->s.ptr[to - 1] == '\n';
    x->at = to;
    count_lines(x, to);
}

/* Text [from, to) in front of a tag with this sign. */
static bool add_data(lexer *x, size_t from, size_t to, char sign, bool variable) {
    size_t end = to;
    if (sign == '-')
        end = from + mn_jstrip(x->c, mn_jstr_slice(x->s, from, to), NULL, 2).len;
    else if (sign != '+' && !variable) {
        size_t line = to;
        while (line > from && x->s.ptr[line - 1] != '\n')
            line--;
        if ((line > from || x->line_start) && lex_skip_space(x, line) >= to)
            end = line;
    }
    return end == from || lex_add(x, MN_T_DATA, from, end);
}

/* From behind {# to behind #}. */
static bool lex_comment(lexer *x, size_t at) {
    for (; at < x->s.len; at++) {
        size_t end = close_at(x, at, "#}");
        if (!end)
            continue;
        moved(x, end);
        return true;
    }
    return mn_jfail(x->c, "missing end of comment tag");
}

/* {% raw %}: all is text up to {% endraw %}. */
static bool lex_raw(lexer *x, size_t after) {
    moved(x, after);
    for (size_t at = after; at < x->s.len; at++) {
        size_t end = x->s.ptr[at] == '{' ? word_tag_at(x, at, "endraw", true) : 0;
        if (!end)
            continue;
        char sign = lex_peek(x, at + 2);
        if (!add_data(x, after, at, sign, false))
            return false;
        moved(x, end);
        return true;
    }
    return mn_jfail(x->c, "missing end of raw directive");
}

/* ---- inside tags ----------------------------------------------------------------------------- */

static int digit_of(char ch) {
    const int value = mn_hex_digit(ch);
    return value < 0 ? 99 : value;
}
static bool lex_is_name(char ch) {
    const char low = (char)(ch | 32);
    const bool letter = low >= 'a' && low <= 'z';
    return letter || mn_is_digit(ch) || ch == '_' || (uint8_t)ch >= 0x80;
}

/* Behind digits, and underscores between them. */
static size_t digits_end(const lexer *x, size_t at) {
    for (;; at++) {
        const bool joined = lex_peek(x, at) == '_' && mn_is_digit(lex_peek(x, at + 1));
        if (!joined && !mn_is_digit(lex_peek(x, at)))
            return at;
    }
}

/* Up to end, which is known to be a float's. */
static bool lex_float(lexer *x, size_t end) {
    char text[80];
    size_t n = 0;
    mn_jtoken *t = lex_add(x, MN_T_FLOAT, x->at, end);
    if (!t)
        return false;
    for (size_t i = x->at; i < end; i++) {
        if (x->s.ptr[i] == '_')
            continue;
        if (n == sizeof text)
            return mn_jfail(x->c, "number too long");
        text[n++] = x->s.ptr[i];
    }
    if (!mn_parse_f64((mn_str){text, n}, &t->f))
        return mn_jfail(x->c, "bad number '%.*s'", (int)n, text);
    moved(x, end);
    return true;
}

/* A base that the prefix at `at` names, 10 without one. */
static int base_at(const lexer *x, size_t at) {
    const char kind = (char)(lex_peek(x, at + 1) | 32);
    int base = 10;
    if (lex_peek(x, at) != '0')
        return base;
    if (kind == 'x')
        base = 16;
    else if (kind == 'o')
        base = 8;
    else if (kind == 'b')
        base = 2;
    return digit_of(lex_peek(x, at + 2)) < base ? base : 10;
}

/* Decimal, or with 0x, 0o, 0b. 0 and 00 are numbers, 01 is 0 and then 1. */
static bool lex_int(lexer *x) {
    const int base = base_at(x, x->at);
    size_t at = x->at + (base == 10 ? 0 : 2);
    const bool zero = base == 10 && lex_peek(x, at) == '0';
    int64_t value = 0;
    for (;; at++) {
        const char ch = lex_peek(x, at);
        const bool joined = ch == '_' && digit_of(lex_peek(x, at + 1)) < base;
        if (joined)
            continue;
        if (digit_of(ch) >= base || (zero && ch != '0'))
            break;
        if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
            __builtin_add_overflow(value, (int64_t)digit_of(ch), &value))
            return mn_jfail(x->c, "integer does not fit in 64 bits");
    }
    mn_jtoken *t = lex_add(x, MN_T_INT, x->at, at);
    if (!t)
        return false;
    t->i = value;
    moved(x, at);
    return true;
}

/* Where the exponent that may begin at `at` ends; `at` = there is none. */
static size_t exponent_end(const lexer *x, size_t at) {
    size_t e = at + 1;
    if ((lex_peek(x, at) | 32) != 'e')
        return at;
    if (lex_peek(x, e) == '+' || lex_peek(x, e) == '-')
        e++;
    return mn_is_digit(lex_peek(x, e)) ? digits_end(x, e) : at;
}

/* Behind a dot only an integer: a.0.1 is two subscripts. */
static bool lex_number(lexer *x) {
    const bool after_dot = x->at && x->s.ptr[x->at - 1] == '.';
    const size_t whole = digits_end(x, x->at);
    size_t end = whole;
    if (after_dot)
        return lex_int(x);
    if (lex_peek(x, end) == '.' && mn_is_digit(lex_peek(x, end + 1)))
        end = digits_end(x, end + 1);
    end = exponent_end(x, end);
    return end == whole ? lex_int(x) : lex_float(x, end);
}

/* How many digits follow \x, \u and \U, and \ooo at most; 0 = not one of these. */
static size_t escape_digits(char c) {
    switch (c) {
    case 'x':
        return 2;
    case 'u':
        return 4;
    case 'U':
        return 8;
    default:
        return c >= '0' && c <= '7' ? 3 : 0;
    }
}

/* \ooo, \xHH, \uHHHH, \UHHHHHHHH: bytes used after the backslash, 0 = not one of these */
static size_t number_escape(const char *p, size_t n, uint32_t *code, bool *bad) {
    const size_t want = escape_digits(p[0]);
    const bool octal = mn_is_digit(p[0]);
    const int base = octal ? 8 : 16;
    size_t used = octal ? 0 : 1;
    *code = 0;
    for (size_t i = 0; i < want; i++, used++) {
        const int d = used < n ? digit_of(p[used]) : 99;
        if (d >= base) {
            *bad = !octal;
            break;
        }
        *code = *code * (uint32_t)base + (uint32_t)d;
    }
    *bad |= *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000);
    return want ? used : 0;
}

/* One escape at p, which has n > 1 bytes; *used: how many of them it is. What is none stays as it
 * is, backslash included. */
static bool lex_put_escape(lexer *x, mn_jbuf *b, const char *p, size_t n, size_t *used) {
    static const char from[] = "abfnrtv\\'\"";
    static const char to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = p[1] ? strchr(from, p[1]) : NULL;
    uint32_t code;
    bool bad = false;
    const size_t digits = number_escape(p + 1, n - 1, &code, &bad);
    *used = 1 + (digits ? digits : 1);
    if (bad || p[1] == 'N')
        return mn_jfail(x->c, "bad escape \\%c in a string", p[1]);
    if (digits)
        return mn_jbuf_code(x->c, b, code, 0);
    if (p[1] == '\n')
        return true;
    if (known)
        return mn_jbuf_bytes(x->c, b, &to[known - from], 1, 0);
    return mn_jbuf_bytes(x->c, b, p, 2, 0);
}

/* The escapes of Python's strings. */
static bool unescape(lexer *x, const char *p, size_t n, mn_str *out) {
    mn_jbuf b = {0};
    for (size_t i = 0, used; i < n; i += used) {
        if (p[i] == '\\' && i + 1 < n) {
            if (!lex_put_escape(x, &b, p + i, n - i, &used))
                return false;
            continue;
        }
        const char *next = memchr(p + i + 1, '\\', n - i - 1);
        used = next ? (size_t)(next - p) - i : n - i;
        if (!mn_jbuf_bytes(x->c, &b, p + i, used, 0))
            return false;
    }
    *out = (mn_str){b.ptr ? b.ptr : "", b.len};
    return true;
}

/* Up to the same quote, unless a backslash stands in front of it. */
static bool lex_string(lexer *x) {
    const char quote = x->s.ptr[x->at];
    const size_t from = x->at + 1;
    size_t end = from;
    while (end < x->s.len && x->s.ptr[end] != quote)
        end += x->s.ptr[end] == '\\' ? 2 : 1;
    if (end >= x->s.len)
        return mn_jfail(x->c, "string without an end");
    mn_jtoken *t = lex_add(x, MN_T_STRING, from, end);
    if (!t || !unescape(x, x->s.ptr + from, end - from, &t->text))
        return false;
    moved(x, end + 1);
    return true;
}

/* The bracket that closes this one; NULL: it is none that opens. */
static const char *closing(mn_jtoken_type type) {
    switch (type) {
    case MN_T_LPAREN:
        return ")";
    case MN_T_LBRACKET:
        return "]";
    case MN_T_LBRACE:
        return "}";
    default:
        return NULL;
    }
}

/* Brackets close in the order in which they were opened; only outside of them does }} end a tag. */
static bool balance(lexer *x, mn_jtoken_type type) {
    const char *close = closing(type);
    const char *got = mn_jtoken_name(type);
    if (close)
        return mn_jbuf_puts(x->c, &x->open, close, 0);
    if (type != MN_T_RPAREN && type != MN_T_RBRACKET && type != MN_T_RBRACE)
        return true;
    if (!x->open.len)
        return mn_jfail(x->c, "unexpected '%s'", got);
    const char expected = x->open.ptr[--x->open.len];
    if (expected != got[0])
        return mn_jfail(x->c, "unexpected '%s', expected '%c'", got, expected);
    return true;
}

/* The longest operator that stands there. */
static bool lex_operator(lexer *x) {
    static const mn_jtoken_type two[] = {MN_T_FLOORDIV, MN_T_POW, MN_T_EQ,
                                         MN_T_NE,       MN_T_GE,  MN_T_LE};
    mn_jtoken_type type = MN_T_EOF;
    for (size_t i = 0; i < MN_COUNT(two) && !type; i++)
        if (looks(x, x->at, mn_jtoken_name(two[i])))
            type = two[i];
    for (mn_jtoken_type t = MN_T_ADD; t <= MN_T_SEMICOLON && !type; t++)
        if (!mn_jtoken_name(t)[1] && mn_jtoken_name(t)[0] == x->s.ptr[x->at])
            type = t;
    if (!type)
        return mn_jfail(x->c, "unexpected character '%c'",
                        x->s.ptr[x->at] >= ' ' ? x->s.ptr[x->at] : '?');
    size_t n = strlen(mn_jtoken_name(type));
    if (!balance(x, type) || !lex_add(x, type, x->at, x->at + n))
        return false;
    moved(x, x->at + n);
    return true;
}

/* Letters, digits, underscores and all that is not ASCII. */
static bool lex_name(lexer *x) {
    size_t end = x->at;
    while (lex_is_name(lex_peek(x, end)) && end < x->s.len)
        end++;
    if (!lex_add(x, MN_T_NAME, x->at, end))
        return false;
    moved(x, end);
    return true;
}

/* End of the tag that may end at `at`: only outside of brackets; 0 = it goes on. */
static size_t tag_end(const lexer *x, bool block) {
    if (x->open.len)
        return 0;
    if (block)
        return close_at(x, x->at, "%}");
    if (looks(x, x->at, "-}}"))
        return lex_skip_space(x, x->at + 3);
    return looks(x, x->at, "}}") ? x->at + 2 : 0;
}

static bool lex_token(lexer *x) {
    const char ch = x->s.ptr[x->at];
    if (mn_is_digit(ch))
        return lex_number(x);
    if (lex_is_name(ch))
        return lex_name(x);
    if (ch == '"' || ch == '\'')
        return lex_string(x);
    return lex_operator(x);
}

/* The inside of a tag up to and with its end; without one the parser meets the end of the
 * template. */
static bool lex_tag(lexer *x, bool block) {
    x->open.len = 0;
    while (x->at < x->s.len) {
        const size_t end = tag_end(x, block);
        if (end) {
            if (!lex_add(x, block ? MN_T_BLOCK_END : MN_T_VAR_END, x->at, end))
                return false;
            moved(x, end);
            return true;
        }
        const size_t after = lex_skip_space(x, x->at);
        if (after > x->at)
            moved(x, after);
        else if (!lex_token(x))
            return false;
    }
    return true;
}

/* The next "{%", "{{" or "{#" at or behind `at`; the end of the source = none. */
static size_t next_tag(const lexer *x, size_t at) {
    for (; at + 1 < x->s.len; at++) {
        const char kind = x->s.ptr[at + 1];
        if (x->s.ptr[at] == '{' && (kind == '%' || kind == '{' || kind == '#'))
            return at;
    }
    return x->s.len;
}

/* Text up to the next tag, and that tag. */
static bool lex_root(lexer *x) {
    const size_t at = next_tag(x, x->at);
    if (at == x->s.len) {
        const bool ok = lex_add(x, MN_T_DATA, x->at, at);
        moved(x, at);
        return ok;
    }
    const char kind = x->s.ptr[at + 1];
    const char sign = lex_peek(x, at + 2);
    const bool block = kind == '%';
    const size_t raw = block ? word_tag_at(x, at, "raw", false) : 0;
    const size_t inside = at + 2 + (sign == '-' || sign == '+');
    if (!add_data(x, x->at, at, sign, kind == '{'))
        return false;
    count_lines(x, at);
    if (raw)
        return lex_raw(x, raw);
    moved(x, inside);
    if (kind == '#')
        return lex_comment(x, inside);
    return lex_add(x, block ? MN_T_BLOCK_BEGIN : MN_T_VAR_BEGIN, at, inside) && lex_tag(x, block);
}

/* \r\n and \r become \n; one newline at the very end goes. */
static bool lex_normalise(lexer *x, mn_str source) {
    char *p = mn_jalloc(x->c, (size_t)source.len + 1, 1);
    if (!p)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        char ch = source.ptr[i];
        if (ch == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n')
            continue;
        p[n++] = ch == '\r' ? '\n' : ch;
    }
    if (n && p[n - 1] == '\n')
        n--;
    x->s = (mn_jstr){p, NULL, n, 0};
    return true;
}

bool mn_jlex(mn_jctx *c, mn_str source, mn_jtoken **tokens) {
    lexer x = {.c = c, .line_start = true};
    c->line = 1;
    if (!lex_normalise(&x, source))
        return false;
    if (mn_utf8_check(x.s.ptr, x.s.len) != x.s.len)
        return mn_jfail(c, "the template is not UTF-8");
    while (x.at < x.s.len)
        if (!lex_root(&x))
            return false;
    if (!lex_add(&x, MN_T_EOF, x.s.len, x.s.len))
        return false;
    *tokens = x.tokens;
    return true;
}
