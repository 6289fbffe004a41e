/* lex.c -- follows jinja2/lexer.py with trim_blocks and lstrip_blocks on,
 * keep_trailing_newline off. */
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

static void count_lines(lexer *x, size_t to) {
    for (; x->counted < to; x->counted++)
        x->c->line += x->s.ptr[x->counted] == '\n';
}

static mn_jtoken *add(lexer *x, mn_jtoken_type type, size_t from, size_t to) {
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 64;
        mn_jtoken *t = mn_jalloc(x->c, cap, sizeof *t);
        if (!t)
            return NULL;
        if (x->n)
            memcpy(t, x->tokens, x->n * sizeof *t);
        x->tokens = t;
        x->cap = cap;
    }
    mn_jtoken *t = &x->tokens[x->n++];
    *t = (mn_jtoken){type, x->c->line, {x->s.ptr + from, to - from}, 0, 0};
    return t;
}

static char peek(const lexer *x, size_t at) {
    return at < x->s.len ? x->s.ptr[at] : 0;
}
static bool looks(const lexer *x, size_t at, const char *z) {
    size_t n = strlen(z);
    return at <= x->s.len && n <= x->s.len - at && !memcmp(x->s.ptr + at, z, n);
}

static size_t skip_space(const lexer *x, size_t at) {
    uint32_t u;
    size_t n;
    while (at < x->s.len && (n = mn_jchar(x->s, at, &u), mn_jcode_space(u)))
        at += n;
    return at;
}

/* End of a closing tag ("%}" or "#}") that may begin at `at`, with the white space that goes with
 * it; 0 = none. */
static size_t close_at(const lexer *x, size_t at, const char *tag) {
    char sign = peek(x, at);
    if ((sign == '+' || sign == '-') && looks(x, at + 1, tag))
        return sign == '+' ? at + 3 : skip_space(x, at + 3);
    if (!looks(x, at, tag))
        return 0;
    return at + 2 + (peek(x, at + 2) == '\n');
}

/* "{%- word -%}" at `at`: end of the tag, 0 = something else. */
static size_t word_tag_at(const lexer *x, size_t at, const char *word, bool trim) {
    if (!looks(x, at, "{%"))
        return 0;
    at += 2;
    if (peek(x, at) == '-' || peek(x, at) == '+')
        at++;
    at = skip_space(x, at);
    if (!looks(x, at, word))
        return 0;
    at = skip_space(x, at + strlen(word));
    if (trim)
        return close_at(x, at, "%}");
    if (looks(x, at, "-%}"))
        return skip_space(x, at + 3);
    return looks(x, at, "%}") ? at + 2 : 0;
}

static void moved(lexer *x, size_t to) {
    x->line_start = to > x->at ? x->s.ptr[to - 1] == '\n' : false;
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
        if ((line > from || x->line_start) && skip_space(x, line) >= to)
            end = line;
    }
    return end == from || add(x, MN_T_DATA, from, end);
}

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

static bool lex_raw(lexer *x, size_t after) {
    moved(x, after);
    for (size_t at = after; at < x->s.len; at++) {
        size_t end = x->s.ptr[at] == '{' ? word_tag_at(x, at, "endraw", true) : 0;
        if (!end)
            continue;
        char sign = peek(x, at + 2);
        if (!add_data(x, after, at, sign, false))
            return false;
        moved(x, end);
        return true;
    }
    return mn_jfail(x->c, "missing end of raw directive");
}

/* ---- inside tags ----------------------------------------------------------------------------- */

static bool is_digit(char ch) {
    return ch >= '0' && ch <= '9';
}
static int digit_of(char ch) {
    return is_digit(ch)             ? ch - '0'
           : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
           : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                    : 99;
}
static bool is_name(char ch) {
    return is_digit(ch) || (ch | 32) - 'a' + 0u < 26u || ch == '_' || (uint8_t)ch >= 0x80;
}

static size_t digits_end(const lexer *x, size_t at) {
    while (is_digit(peek(x, at)) || (peek(x, at) == '_' && is_digit(peek(x, at + 1))))
        at++;
    return at;
}

static bool lex_float(lexer *x, size_t end) {
    char text[80];
    size_t n = 0;
    mn_jtoken *t = add(x, MN_T_FLOAT, x->at, end);
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

static bool lex_int(lexer *x) {
    size_t at = x->at;
    int base = 10;
    char kind = (char)(peek(x, at + 1) | 32);
    if (peek(x, at) == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
        if (digit_of(peek(x, at + 2)) < base)
            at += 2;
        else
            base = 10;
    }
    bool zero = base == 10 && peek(x, at) == '0'; // 0 and 00 are numbers, 01 is 0 and then 1
    int64_t value = 0;
    for (; digit_of(peek(x, at)) < base || (peek(x, at) == '_' && digit_of(peek(x, at + 1)) < base);
         at++) {
        if (peek(x, at) == '_')
            continue;
        if (zero && peek(x, at) != '0')
            break;
        if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
            __builtin_add_overflow(value, (int64_t)digit_of(peek(x, at)), &value))
            return mn_jfail(x->c, "integer does not fit in 64 bits");
    }
    mn_jtoken *t = add(x, MN_T_INT, x->at, at);
    if (!t)
        return false;
    t->i = value;
    moved(x, at);
    return true;
}

static bool lex_number(lexer *x) {
    size_t at = digits_end(x, x->at), end = at;
    bool after_dot = x->at && x->s.ptr[x->at - 1] == '.';
    if (!after_dot) {
        if (peek(x, at) == '.' && is_digit(peek(x, at + 1)))
            end = at = digits_end(x, at + 1);
        size_t e = at;
        if ((peek(x, e) | 32) == 'e') {
            e++;
            if (peek(x, e) == '+' || peek(x, e) == '-')
                e++;
            if (is_digit(peek(x, e)))
                end = digits_end(x, e);
        }
        if (memchr(x->s.ptr + x->at, '.', end - x->at) ||
            memchr(x->s.ptr + x->at, 'e', end - x->at) ||
            memchr(x->s.ptr + x->at, 'E', end - x->at))
            return lex_float(x, end);
    }
    return lex_int(x);
}

/* \ooo, \xHH, \uHHHH, \UHHHHHHHH: bytes used after the backslash, 0 = not one of these */
static size_t number_escape(const char *p, size_t n, uint32_t *code, bool *bad) {
    int base = 16;
    size_t want = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : p[0] == 'U' ? 8 : 0, used = 1;
    if (!want) {
        if (p[0] < '0' || p[0] > '7')
            return 0;
        base = 8;
        used = 0;
        want = 3;
    }
    *code = 0;
    for (size_t i = 0; i < want; i++, used++) {
        int d = used < n ? digit_of(p[used]) : 99;
        if (d < base)
            *code = *code * (uint32_t)base + (uint32_t)d;
        else if (base == 8)
            break;
        else
            return *bad = true, used;
    }
    *bad = *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000);
    return used;
}

static bool unescape(lexer *x, const char *p, size_t n, mn_str *out) {
    static const char from[] = "abfnrtv\\'\"\n", to[] = "\a\b\f\n\r\t\v\\'\"";
    mn_jbuf b = {0};
    for (size_t i = 0; i < n;) {
        if (p[i] != '\\' || i + 1 >= n) {
            const char *next = memchr(p + i + 1, '\\', n - i - 1);
            size_t end = next ? (size_t)(next - p) : n;
            if (!mn_jbuf_bytes(x->c, &b, p + i, end - i, 0))
                return false;
            i = end;
            continue;
        }
        const char *known = p[i + 1] ? strchr(from, p[i + 1]) : NULL;
        uint32_t code;
        bool bad = false;
        size_t used = number_escape(p + i + 1, n - i - 1, &code, &bad);
        if (bad || p[i + 1] == 'N')
            return mn_jfail(x->c, "bad escape \\%c in a string", p[i + 1]);
        bool ok = used     ? mn_jbuf_code(x->c, &b, code, 0)
                  : !known ? mn_jbuf_bytes(x->c, &b, p + i, 2, 0)
                           : p[i + 1] == '\n' || mn_jbuf_bytes(x->c, &b, &to[known - from], 1, 0);
        if (!ok)
            return false;
        i += 1 + (used ? used : 1);
    }
    *out = (mn_str){b.ptr ? b.ptr : "", b.len};
    return true;
}

static bool lex_string(lexer *x) {
    char quote = x->s.ptr[x->at];
    size_t end = x->at + 1;
    while (end < x->s.len && x->s.ptr[end] != quote)
        end += x->s.ptr[end] == '\\' ? 2 : 1;
    if (end >= x->s.len)
        return mn_jfail(x->c, "string without an end");
    mn_jtoken *t = add(x, MN_T_STRING, x->at + 1, end);
    if (!t || !unescape(x, x->s.ptr + x->at + 1, end - x->at - 1, &t->text))
        return false;
    moved(x, end + 1);
    return true;
}

static bool balance(lexer *x, mn_jtoken_type type) {
    const char *close = type == MN_T_LPAREN     ? ")"
                        : type == MN_T_LBRACKET ? "]"
                        : type == MN_T_LBRACE   ? "}"
                                                : NULL;
    if (close)
        return mn_jbuf_puts(x->c, &x->open, close, 0);
    if (type != MN_T_RPAREN && type != MN_T_RBRACKET && type != MN_T_RBRACE)
        return true;
    const char *got = mn_jtoken_name(type);
    if (!x->open.len)
        return mn_jfail(x->c, "unexpected '%s'", got);
    if (x->open.ptr[--x->open.len] != got[0])
        return mn_jfail(x->c, "unexpected '%s', expected '%c'", got, x->open.ptr[x->open.len]);
    return true;
}

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
    if (!balance(x, type) || !add(x, type, x->at, x->at + n))
        return false;
    moved(x, x->at + n);
    return true;
}

static bool lex_name(lexer *x) {
    size_t end = x->at;
    while (is_name(peek(x, end)) && end < x->s.len)
        end++;
    if (!add(x, MN_T_NAME, x->at, end))
        return false;
    moved(x, end);
    return true;
}

/* The inside of a tag up to and with its end. */
static bool lex_tag(lexer *x, bool block) {
    x->open.len = 0;
    while (x->at < x->s.len) {
        size_t end = 0;
        if (!x->open.len && block)
            end = close_at(x, x->at, "%}");
        else if (!x->open.len)
            end = looks(x, x->at, "-}}")  ? skip_space(x, x->at + 3)
                  : looks(x, x->at, "}}") ? x->at + 2
                                          : 0;
        if (end) {
            if (!add(x, block ? MN_T_BLOCK_END : MN_T_VAR_END, x->at, end))
                return false;
            moved(x, end);
            return true;
        }
        size_t after = skip_space(x, x->at);
        if (after > x->at) {
            moved(x, after);
            continue;
        }
        char ch = x->s.ptr[x->at];
        bool ok = is_digit(ch)              ? lex_number(x)
                  : is_name(ch)             ? lex_name(x)
                  : ch == '"' || ch == '\'' ? lex_string(x)
                                            : lex_operator(x);
        if (!ok)
            return false;
    }
    return true; // the parser meets the end of the template
}

static bool lex_root(lexer *x) {
    size_t at = x->at;
    char kind = 0;
    for (; at + 1 < x->s.len; at++)
        if (x->s.ptr[at] == '{' &&
            (kind = x->s.ptr[at + 1], kind == '%' || kind == '{' || kind == '#'))
            break;
    if (at + 1 >= x->s.len) {
        bool ok = x->at == x->s.len || add(x, MN_T_DATA, x->at, x->s.len);
        moved(x, x->s.len);
        return ok;
    }
    size_t raw = kind == '%' ? word_tag_at(x, at, "raw", false) : 0;
    char sign = peek(x, at + 2);
    if (!add_data(x, x->at, at, sign, kind == '{'))
        return false;
    size_t inside = at + 2 + (sign == '-' || sign == '+');
    count_lines(x, at);
    if (raw)
        return lex_raw(x, raw);
    moved(x, inside);
    if (kind == '#')
        return lex_comment(x, inside);
    return add(x, kind == '%' ? MN_T_BLOCK_BEGIN : MN_T_VAR_BEGIN, at, inside) &&
           lex_tag(x, kind == '%');
}

/* \r\n and \r become \n; one newline at the very end goes. */
static bool normalise(lexer *x, mn_str source) {
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
    if (!normalise(&x, source))
        return false;
    if (mn_utf8_check(x.s.ptr, x.s.len) != x.s.len)
        return mn_jfail(c, "the template is not UTF-8");
    while (x.at < x.s.len)
        if (!lex_root(&x))
            return false;
    if (!add(&x, MN_T_EOF, x.s.len, x.s.len))
        return false;
    *tokens = x.tokens;
    return true;
}
