/* regex.c -- regular expressions to expressions over bytes. Classes such as \w mean ASCII; where
 * dialects differ (ECMA 262, Python, PCRE), only what all of them match is allowed, which is why a
 * class has two sets: what it surely holds, and what it may hold in some dialect. */
#include "grammar/grammar_impl.h"
#include <string.h>

typedef struct {
    mn_gbuild *b;
    mn_str s;
    uint64_t at;
    const char *where;
    mn_gregex *how;
    uint32_t depth, wraps; /* groups around this place; those that hold a whole alternative */
} regex;
typedef struct {
    mn_gchars sure, maybe;
} class_chars;
/* An expression and how many characters it matches. */
typedef struct {
    mn_gexpr *x;
    uint32_t least, most;
} part;

static mn_gexpr *regex_refuse(regex *r, mn_status status, const char *what) {
    if (!r->b->status)
        r->b->status = mn_fail(r->b->err, status, "%s: \"%.*s\", byte %llu: %s", r->where,
                               MN_STR_ARG(r->s), (unsigned long long)r->at, what);
    return NULL;
}

static int regex_peek(const regex *r) {
    return r->at < r->s.len ? (uint8_t)r->s.ptr[r->at] : -1;
}

static bool regex_skip(regex *r, const char *word) {
    const size_t n = strlen(word);
    if (r->s.len - r->at < n || memcmp(r->s.ptr + r->at, word, n))
        return false;
    r->at += n;
    return true;
}

static uint32_t regex_add_up(uint32_t a, uint32_t b) {
    const uint64_t sum = (uint64_t)a + b;
    return a == MN_GNEVER || sum >= MN_GNEVER ? MN_GNEVER : (uint32_t)sum;
}

static uint32_t times(uint32_t a, uint32_t b) {
    const uint64_t product = (uint64_t)a * b;
    if (!product)
        return 0;
    return a == MN_GNEVER || b == MN_GNEVER || product >= MN_GNEVER ? MN_GNEVER : (uint32_t)product;
}

/* n hexadecimal digits; false = they are not there */
static bool regex_hex(regex *r, uint32_t n, uint32_t *code) {
    *code = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int c = regex_peek(r);
        const char *digits = "0123456789abcdef";
        const char *found = c > 0 ? strchr(digits, c | 0x20) : NULL;
        if (c >= '0' && c <= '9')
            found = digits + (c - '0');
        if (!found)
            return false;
        *code = 16 * *code + (uint32_t)(found - digits);
        r->at++;
    }
    return true;
}

static bool hex_braced(regex *r, uint32_t *code) {
    uint32_t n = 0;
    while (r->at + n < r->s.len && r->s.ptr[r->at + n] != '}')
        n++;
    return n >= 1 && n <= 6 && regex_hex(r, n, code) && regex_skip(r, "}") && *code <= 0x10ffff;
}

/* Behind a backslash: a single character; false = none, b->status is set. */
static bool escaped_char(regex *r, uint32_t *code) {
    static const char named[] = "n\nr\rt\tf\fv\v";
    const int c = regex_peek(r);
    if (c < 0)
        return regex_refuse(r, MN_BAD_INPUT, "nothing follows the backslash");
    if (c >= '1' && c <= '9')
        return regex_refuse(r, MN_UNSUPPORTED, "back-references cannot be enforced");
    r->at++;
    for (size_t i = 0; i + 1 < sizeof named; i += 2) {
        if (named[i] == c) {
            *code = (uint32_t)named[i + 1];
            return true;
        }
    }
    *code = (uint32_t)c;
    if (c == 'x' || c == 'u') {
        const uint32_t digits = c == 'x' ? 2 : 4;
        const bool ok = regex_skip(r, "{") ? hex_braced(r, code) : regex_hex(r, digits, code);
        return ok || regex_refuse(r, MN_BAD_INPUT, "hexadecimal digits expected");
    }
    if (c == '0')
        *code = 0;
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
        return regex_refuse(r, MN_UNSUPPORTED, "this escape cannot be enforced");
    return c < 0x80 || regex_refuse(r, MN_BAD_INPUT, "an escaped character that is not ASCII");
}

static void add_spaces(mn_gchars *c) {
    static const mn_grange spaces[] = {{9, 13},          {32, 32},         {0x85, 0x85},
                                       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                       {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                       {0x3000, 0x3000}, {0xfeff, 0xfeff}, {28, 31}};
    for (size_t i = 0; i < MN_COUNT(spaces); i++)
        mn_gchars_add(c, spaces[i].lo, spaces[i].hi);
}

/* \d \w \s and their complements; false = it is none of them. */
static bool class_letter(class_chars *out, int letter) {
    class_chars c = {0};
    const int lower = letter | 0x20;
    if (lower == 'd' || lower == 'w')
        mn_gchars_add(&c.sure, '0', '9');
    if (lower == 'w') {
        mn_gchars_add(&c.sure, 'a', 'z');
        mn_gchars_add(&c.sure, 'A', 'Z');
        mn_gchars_add(&c.sure, '_', '_');
    }
    if (lower == 's') {
        mn_gchars_add(&c.sure, 9, 13);
        mn_gchars_add(&c.sure, ' ', ' ');
        add_spaces(&c.maybe);
    } else {
        mn_gchars_add(&c.maybe, lower == 'd' ? 0x660 : 0x80, 0x10ffff);
    }
    mn_gchars_merge(&c.maybe, &c.sure);
    if (letter != lower) {
        mn_gchars_invert(&c.sure);
        mn_gchars_invert(&c.maybe);
        mn_gchars_merge(&out->sure, &c.maybe);
        mn_gchars_merge(&out->maybe, &c.sure);
    } else {
        mn_gchars_merge(&out->sure, &c.sure);
        mn_gchars_merge(&out->maybe, &c.maybe);
    }
    mn_gchars_free(&c.sure);
    mn_gchars_free(&c.maybe);
    return true;
}

/* \p{Name} or \P{Name} */
static bool class_category(regex *r, class_chars *out, bool inverted) {
    mn_gchars c = {0};
    const uint64_t from = r->at + 1;
    if (regex_peek(r) != '{')
        return regex_refuse(r, MN_BAD_INPUT, "'{' and the name of a Unicode category expected");
    while (regex_peek(r) >= 0 && regex_peek(r) != '}')
        r->at++;
    const mn_str name = {r->s.ptr + from, r->at - from};
    bool ok = regex_skip(r, "}") && mn_gchars_category(r->b, &c, name);
    if (inverted)
        mn_gchars_invert(&c);
    mn_gchars_merge(&out->sure, &c);
    mn_gchars_merge(&out->maybe, &c);
    mn_gchars_free(&c);
    if (r->b->status)
        return false;
    return ok ||
           regex_refuse(r, MN_UNSUPPORTED, "only general categories (such as L or Nd) are known");
}

/* At a backslash: a class (true, single MN_GNONE) or a single character. */
static bool regex_escape(regex *r, class_chars *out, uint32_t *single) {
    *single = MN_GNONE;
    r->at++;
    const int c = regex_peek(r);
    if (c > 0 && strchr("dDwWsS", c)) {
        r->at++;
        return class_letter(out, c);
    }
    if (c == 'p' || c == 'P') {
        r->at++;
        return class_category(r, out, c == 'P');
    }
    return escaped_char(r, single);
}

static bool plain_char(regex *r, uint32_t *code) {
    const int n = mn_utf8_decode(r->s.ptr + r->at, (size_t)(r->s.len - r->at), code);
    if (!n)
        return regex_refuse(r, MN_BAD_INPUT, "not valid UTF-8");
    r->at += (uint64_t)n;
    return true;
}

/* One item of a class in brackets: a character, or a class (MN_GNONE). */
static bool class_item(regex *r, class_chars *out, uint32_t *code) {
    if (regex_skip(r, "[:"))
        return regex_refuse(r, MN_UNSUPPORTED, "POSIX classes cannot be enforced");
    if (regex_peek(r) != '\\')
        return plain_char(r, code);
    if (regex_skip(r, "\\b")) {
        *code = '\b';
        return true;
    }
    if (regex_skip(r, "\\-")) {
        *code = '-';
        return true;
    }
    return regex_escape(r, out, code);
}

/* Behind '['. */
static bool class_body(regex *r, class_chars *out) {
    bool first = true;
    while (regex_peek(r) != ']' || first) {
        uint32_t lo = 0;
        if (regex_peek(r) < 0)
            return regex_refuse(r, MN_BAD_INPUT, "']' is missing");
        if (first && regex_peek(r) == ']')
            return regex_refuse(r, MN_UNSUPPORTED, "an empty class; write \\] for a bracket");
        first = false;
        if (!class_item(r, out, &lo))
            return false;
        uint32_t hi = lo;
        const bool range =
            regex_peek(r) == '-' && r->at + 1 < r->s.len && r->s.ptr[r->at + 1] != ']';
        if (range && lo != MN_GNONE) {
            r->at++;
            if (!class_item(r, out, &hi))
                return false;
            if (hi == MN_GNONE || hi < lo)
                return regex_refuse(r, MN_BAD_INPUT, "a range that ends before it begins");
        }
        if (lo == MN_GNONE)
            continue;
        mn_gchars_add(&out->sure, lo, hi);
        mn_gchars_add(&out->maybe, lo, hi);
    }
    r->at++;
    return true;
}

static mn_gexpr *class_done(regex *r, class_chars *c, bool ok) {
    mn_gexpr *x = ok ? mn_gx_chars(r->b, &c->sure, r->how->json) : NULL;
    mn_gchars_free(&c->sure);
    mn_gchars_free(&c->maybe);
    return x;
}

static mn_gexpr *char_class(regex *r) {
    class_chars c = {0};
    const int at = regex_peek(r);
    bool ok = true;
    if (at == '.') {
        r->at++;
        mn_gchars_add(&c.sure, '\n', '\n');
        mn_gchars_add(&c.sure, '\r', '\r');
        mn_gchars_add(&c.sure, 0x2028, 0x2029);
        mn_gchars_invert(&c.sure);
    } else if (at == '[') {
        r->at++;
        const bool inverted = regex_skip(r, "^");
        ok = class_body(r, &c);
        if (inverted) {
            mn_gchars_invert(&c.maybe);
            const mn_gchars swap = c.sure;
            c.sure = c.maybe;
            c.maybe = swap;
        }
    } else {
        uint32_t code = 0;
        ok = at == '\\' ? regex_escape(r, &c, &code) : plain_char(r, &code);
        if (ok && code != MN_GNONE)
            mn_gchars_add(&c.sure, code, code);
    }
    return class_done(r, &c, ok);
}

static part regex_alternatives(regex *r);

static part group(regex *r) {
    r->at++;
    if (r->depth >= MN_GRAMMAR_NESTING)
        return (part){regex_refuse(r, MN_UNSUPPORTED, "groups are nested too deeply"), 0, 0};
    if (regex_skip(r, "?=") || regex_skip(r, "?!") || regex_skip(r, "?<=") || regex_skip(r, "?<!"))
        return (part){regex_refuse(r, MN_UNSUPPORTED, "look-around cannot be enforced"), 0, 0};
    if (regex_skip(r, "?P<") || regex_skip(r, "?<")) {
        while (regex_peek(r) >= 0 && regex_peek(r) != '>')
            r->at++;
        r->at++;
        r->at = MN_MIN(r->at, r->s.len);
    } else if (regex_peek(r) == '?' && !regex_skip(r, "?:")) {
        return (part){regex_refuse(r, MN_UNSUPPORTED, "this kind of group cannot be enforced"), 0,
                      0};
    }
    r->depth++;
    part p = regex_alternatives(r);
    r->depth--;
    if (p.x && !regex_skip(r, ")"))
        p.x = regex_refuse(r, MN_BAD_INPUT, "')' is missing");
    return p;
}

static part regex_atom(regex *r) {
    const int c = regex_peek(r);
    if (c == '(')
        return group(r);
    if (c == '*' || c == '+' || c == '?')
        return (part){regex_refuse(r, MN_BAD_INPUT, "nothing to repeat"), 0, 0};
    if (c == '^' || c == '$')
        return (part){
            regex_refuse(r, MN_UNSUPPORTED, "anchors can be enforced at the two ends alone"), 0, 0};
    return (part){char_class(r), 1, 1};
}

/* All digits are read; what no grammar has room for stays above MN_GRAMMAR_NODES. */
static bool regex_number(regex *r, uint32_t *out) {
    uint64_t n = 0;
    const uint64_t from = r->at;
    for (; regex_peek(r) >= '0' && regex_peek(r) <= '9'; r->at++)
        if (n < MN_GRAMMAR_NODES)
            n = 10 * n + (uint64_t)(r->s.ptr[r->at] - '0');
    *out = (uint32_t)n;
    return r->at > from;
}

/* {m}, {m,}, {m,n} or {,n}; else it is not a quantifier, and nothing was read. */
static bool regex_braces(regex *r, uint32_t *min, uint32_t *max) {
    const uint64_t from = r->at++;
    const bool has_min = regex_number(r, min);
    const bool comma = regex_skip(r, ",");
    const bool has_max = comma && regex_number(r, max);
    if ((has_min || has_max) && regex_skip(r, "}")) {
        if (!has_min)
            *min = 0;
        if (!has_max)
            *max = comma ? MN_GNEVER : *min;
        return true;
    }
    r->at = from;
    return false;
}

static bool quantifier(regex *r, uint32_t *min, uint32_t *max) {
    const int c = regex_peek(r);
    *min = c == '+';
    *max = c == '?' ? 1 : MN_GNEVER;
    if (c == '{')
        return regex_braces(r, min, max);
    if (c != '*' && c != '+' && c != '?')
        return false;
    r->at++;
    return true;
}

static part regex_repeated(regex *r) {
    uint32_t min = 0;
    uint32_t max = 0;
    part p = regex_atom(r);
    while (p.x && quantifier(r, &min, &max)) {
        if (max < min) {
            p.x = regex_refuse(r, MN_BAD_INPUT, "a maximum below the minimum");
            break;
        }
        regex_skip(r, "?"); /* lazy: the same texts */
        if (regex_peek(r) == '+')
            p.x = regex_refuse(r, MN_UNSUPPORTED, "possessive quantifiers cannot be enforced");
        p = (part){mn_gx_repeat(r->b, p.x, min, max), times(p.least, min), times(p.most, max)};
    }
    return p;
}

/* At a group that is the whole of an alternative, so that its own may be anchored. */
static bool is_wrap(const regex *r) {
    uint32_t open = 0;
    bool class = false;
    const bool plain = r->at + 1 < r->s.len && r->s.ptr[r->at + 1] != '?';
    if (regex_peek(r) != '(' || r->wraps >= MN_GRAMMAR_NESTING)
        return false;
    if (!plain && (r->at + 2 >= r->s.len || r->s.ptr[r->at + 2] != ':'))
        return false;
    for (uint64_t i = r->at; i < r->s.len; i++) {
        const char c = r->s.ptr[i];
        if (c == '\\')
            i++;
        else if (class || c == '[')
            class = c != ']';
        else if (c == '(')
            open++;
        else if (c == ')' && !--open)
            return i + 1 == r->s.len || r->s.ptr[i + 1] == '|' || r->s.ptr[i + 1] == ')';
    }
    return false;
}

static part wrapped(regex *r) {
    r->at++;
    regex_skip(r, "?:");
    r->wraps++;
    part p = regex_alternatives(r);
    r->wraps--;
    if (p.x && !regex_skip(r, ")"))
        p.x = regex_refuse(r, MN_BAD_INPUT, "')' is missing");
    return p;
}

/* The outermost alternatives alone may be anchored. */
static part regex_sequence(regex *r) {
    const bool inside = r->wraps > 0;
    if (!r->depth && is_wrap(r))
        return wrapped(r);
    part all = {mn_gx_new(r->b, MN_GX_SEQ), 0, 0};
    const bool outer = !r->depth;
    bool ends = false;
    const bool begins = outer && regex_skip(r, "^");
    if (outer && r->how->search && !begins)
        mn_gx_add(r->b, all.x, r->how->any);
    while (all.x && regex_peek(r) >= 0 && regex_peek(r) != '|' && regex_peek(r) != ')') {
        const char next = r->at + 1 == r->s.len ? '|' : r->s.ptr[r->at + 1];
        const bool last = next == '|' || (inside && next == ')');
        if (outer && last && regex_skip(r, "$")) {
            ends = true;
            continue;
        }
        const part p = regex_repeated(r);
        if (!mn_gx_add(r->b, all.x, p.x))
            all.x = NULL;
        all.least = regex_add_up(all.least, p.least);
        all.most = regex_add_up(all.most, p.most);
    }
    if (outer && r->how->search && !ends)
        mn_gx_add(r->b, all.x, r->how->any);
    if (outer && r->how->search && !(begins && ends))
        all.most = MN_GNEVER;
    return all;
}

static part regex_alternatives(regex *r) {
    part all = {mn_gx_new(r->b, MN_GX_ALT), MN_GNEVER, 0};
    do {
        const part p = regex_sequence(r);
        if (!mn_gx_add(r->b, all.x, p.x))
            return (part){NULL, 0, 0};
        all.least = MN_MIN(all.least, p.least);
        all.most = MN_MAX(all.most, p.most);
    } while (regex_skip(r, "|"));
    return all;
}

mn_gexpr *mn_gregex_parse(mn_gbuild *b, mn_str source, const char *where, mn_gregex *how) {
    regex r = {b, source, 0, where, how, 0, 0};
    part p = regex_alternatives(&r);
    if (p.x && r.at < source.len)
        p.x = regex_refuse(&r, MN_BAD_INPUT, "')' without '('");
    how->least = p.least;
    how->most = p.most;
    return p.x;
}
