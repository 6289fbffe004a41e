/* gbnf.c -- grammars in the notation of llama.cpp: rules `name ::= ...` with literals, classes of
 * characters, groups, alternatives, * + ? {m,n} and comments. The text is what rule "root" matches.
 * Rules may be used before they are defined; names are found through a table of hashes. */
#include "grammar/grammar_impl.h"
#include <string.h>

enum { SLOTS = 1u << 18 };

typedef struct {
    mn_gbuild *b;
    mn_str s;
    uint64_t at;
    uint32_t line, depth;
    uint32_t *slot; /* [SLOTS] rules by name */
} gbnf;

static mn_gexpr *gbnf_refuse(gbnf *p, mn_status status, const char *what) {
    if (!p->b->status)
        p->b->status = mn_fail(p->b->err, status, "grammar, line %u: %s", p->line, what);
    return NULL;
}

static int gbnf_peek(const gbnf *p) {
    return p->at < p->s.len ? (uint8_t)p->s.ptr[p->at] : -1;
}

static bool gbnf_take(gbnf *p, char c) {
    if (gbnf_peek(p) != c)
        return false;
    p->at++;
    return true;
}

/* Spaces and comments; and line ends where a rule may go on. */
static void blanks(gbnf *p, bool lines) {
    for (;;) {
        const int c = gbnf_peek(p);
        if (c == '#') {
            while (gbnf_peek(p) >= 0 && gbnf_peek(p) != '\n')
                p->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            p->line += c == '\n';
            p->at++;
        } else {
            return;
        }
    }
}

static mn_str name(gbnf *p) {
    const uint64_t from = p->at;
    for (;; p->at++) {
        const int c = gbnf_peek(p);
        const int lower = c | 0x20;
        const bool letter = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9');
        if (c < 0 || (!letter && c != '-' && c != '_'))
            break;
    }
    return (mn_str){p->s.ptr + from, p->at - from};
}

/* The rule of that name, made where it is new. */
static uint32_t rule_named(gbnf *p, mn_str n) {
    char text[256];
    if (!n.len || n.len >= sizeof text) {
        gbnf_refuse(p, MN_BAD_INPUT, "the name of a rule expected, of up to 255 characters");
        return MN_GNONE;
    }
    memcpy(text, n.ptr, (size_t)n.len);
    text[n.len] = 0;
    uint64_t at = mn_hash(text, (size_t)n.len, 0) % SLOTS;
    while (p->slot[at] != MN_GNONE) {
        if (!strcmp(p->b->rule[p->slot[at]].name, text))
            return p->slot[at];
        at = (at + 1) % SLOTS;
    }
    p->slot[at] = mn_grule_add(p->b, text, NULL);
    if (p->slot[at] != MN_GNONE)
        p->b->rule[p->slot[at]].line = p->line;
    return p->slot[at];
}

static bool gbnf_hex(gbnf *p, int n, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const int c = gbnf_peek(p);
        const char *found = c > 0 ? strchr(digits, c) : NULL;
        if (!found)
            return gbnf_refuse(p, MN_BAD_INPUT, "hexadecimal digits expected");
        *code = 16 * *code + (uint32_t)((found - digits) % 16);
        p->at++;
    }
    return *code <= 0x10ffff || gbnf_refuse(p, MN_BAD_INPUT, "no such character");
}

static bool character(gbnf *p, uint32_t *code) {
    static const char named[] = "n\nr\rt\t\\\\\"\"]][[--^^";
    if (!gbnf_take(p, '\\')) {
        const int n = mn_utf8_decode(p->s.ptr + p->at, (size_t)(p->s.len - p->at), code);
        p->at += (uint64_t)n;
        p->line += *code == '\n';
        return n || gbnf_refuse(p, MN_BAD_INPUT, "not valid UTF-8");
    }
    const int c = gbnf_peek(p);
    p->at += c >= 0;
    for (size_t i = 0; i + 1 < sizeof named; i += 2) {
        if (named[i] == c) {
            *code = (uint8_t)named[i + 1];
            return true;
        }
    }
    if (c == 'x')
        return gbnf_hex(p, 2, code);
    if (c == 'u')
        return gbnf_hex(p, 4, code);
    return c == 'U' ? gbnf_hex(p, 8, code)
                    : gbnf_refuse(p, MN_BAD_INPUT, "an unknown escape") != NULL;
}

static mn_gexpr *gbnf_literal(gbnf *p) {
    mn_text text = {0};
    p->at++;
    while (!gbnf_take(p, '"')) {
        uint32_t code = 0;
        char bytes[4];
        const bool ok = gbnf_peek(p) >= 0 && character(p, &code);
        if (!ok) {
            mn_text_free(&text);
            return gbnf_refuse(p, MN_BAD_INPUT, "a literal without its end");
        }
        mn_text_put(&text, bytes, (size_t)mn_utf8_encode(code, bytes));
    }
    mn_gexpr *x = text.failed ? mn_gbuild_memory(p->b) : NULL;
    if (!text.failed)
        x = mn_gx_text(p->b, text.ptr ? text.ptr : "", text.len);
    mn_text_free(&text);
    return x;
}

static bool gbnf_class_body(gbnf *p, mn_gchars *c) {
    while (!gbnf_take(p, ']')) {
        uint32_t lo = 0;
        if (gbnf_peek(p) < 0)
            return gbnf_refuse(p, MN_BAD_INPUT, "a class without its ']'");
        if (!character(p, &lo))
            return false;
        uint32_t hi = lo;
        const bool range =
            gbnf_peek(p) == '-' && p->at + 1 < p->s.len && p->s.ptr[p->at + 1] != ']';
        if (range) {
            p->at++;
            if (!character(p, &hi))
                return false;
        }
        if (hi < lo)
            return gbnf_refuse(p, MN_BAD_INPUT, "a range that ends before it begins");
        mn_gchars_add(c, lo, hi);
    }
    return true;
}

static mn_gexpr *gbnf_char_class(gbnf *p) {
    mn_gchars c = {0};
    bool ok = true;
    bool inverted = gbnf_take(p, '.');
    if (!inverted) {
        p->at++;
        inverted = gbnf_take(p, '^');
        ok = gbnf_class_body(p, &c);
    }
    if (inverted)
        mn_gchars_invert(&c);
    mn_gexpr *x = ok ? mn_gx_chars(p->b, &c, false) : NULL;
    mn_gchars_free(&c);
    return x;
}

static mn_gexpr *gbnf_alternatives(gbnf *p);

static mn_gexpr *gbnf_atom(gbnf *p) {
    const int c = gbnf_peek(p);
    if (c == '"')
        return gbnf_literal(p);
    if (c == '[' || c == '.')
        return gbnf_char_class(p);
    if (c == '<' || c == '!')
        return gbnf_refuse(p, MN_UNSUPPORTED, "tokens by name or id are not supported");
    if (c != '(')
        return mn_gx_ref(p->b, rule_named(p, name(p)));
    if (p->depth >= MN_GRAMMAR_NESTING)
        return gbnf_refuse(p, MN_UNSUPPORTED, "groups are nested too deeply");
    p->at++;
    p->depth++;
    blanks(p, true);
    mn_gexpr *x = gbnf_alternatives(p);
    p->depth--;
    blanks(p, true);
    if (x && !gbnf_take(p, ')'))
        return gbnf_refuse(p, MN_BAD_INPUT, "')' expected");
    return x;
}

/* All digits are read; what no grammar has room for stays above MN_GRAMMAR_NODES. */
static uint32_t gbnf_number(gbnf *p, uint32_t none) {
    uint64_t n = 0;
    const uint64_t from = p->at;
    for (; gbnf_peek(p) >= '0' && gbnf_peek(p) <= '9'; p->at++)
        if (n < MN_GRAMMAR_NODES)
            n = 10 * n + (uint64_t)(p->s.ptr[p->at] - '0');
    return p->at > from ? (uint32_t)n : none;
}

static mn_gexpr *gbnf_braces(gbnf *p, mn_gexpr *x) {
    blanks(p, false);
    const uint32_t min = gbnf_number(p, 0);
    uint32_t max = min;
    blanks(p, false);
    if (gbnf_take(p, ',')) {
        blanks(p, false);
        max = gbnf_number(p, MN_GNEVER);
        blanks(p, false);
    }
    if (!gbnf_take(p, '}') || max < min)
        return gbnf_refuse(p, MN_BAD_INPUT, "{m}, {m,} or {m,n} expected");
    return mn_gx_repeat(p->b, x, min, max);
}

static mn_gexpr *gbnf_repeated(gbnf *p) {
    mn_gexpr *x = gbnf_atom(p);
    while (x) {
        if (gbnf_take(p, '*'))
            x = mn_gx_repeat(p->b, x, 0, MN_GNEVER);
        else if (gbnf_take(p, '+'))
            x = mn_gx_repeat(p->b, x, 1, MN_GNEVER);
        else if (gbnf_take(p, '?'))
            x = mn_gx_repeat(p->b, x, 0, 1);
        else if (gbnf_take(p, '{'))
            x = gbnf_braces(p, x);
        else
            break;
    }
    return x;
}

static mn_gexpr *gbnf_sequence(gbnf *p) {
    mn_gexpr *x = mn_gx_new(p->b, MN_GX_SEQ);
    blanks(p, p->depth > 0);
    for (int c = gbnf_peek(p); c >= 0 && !strchr("|)\r\n", c); c = gbnf_peek(p)) {
        if (!mn_gx_add(p->b, x, gbnf_repeated(p)))
            return NULL;
        blanks(p, p->depth > 0);
    }
    return x;
}

static mn_gexpr *gbnf_alternatives(gbnf *p) {
    mn_gexpr *x = mn_gx_new(p->b, MN_GX_ALT);
    do {
        blanks(p, true);
        if (!mn_gx_add(p->b, x, gbnf_sequence(p)))
            return NULL;
        const uint64_t at = p->at;
        const uint32_t line = p->line;
        blanks(p, true);
        if (gbnf_peek(p) == '|')
            continue;
        p->at = at;
        p->line = line;
    } while (gbnf_take(p, '|'));
    return x;
}

static bool rule(gbnf *p) {
    const uint32_t r = rule_named(p, name(p));
    if (r == MN_GNONE)
        return false;
    blanks(p, false);
    if (!gbnf_take(p, ':') || !gbnf_take(p, ':') || !gbnf_take(p, '='))
        return gbnf_refuse(p, MN_BAD_INPUT, "'::=' expected behind the name of a rule");
    p->b->place = p->b->rule[r].name;
    mn_gexpr *x = gbnf_alternatives(p);
    if (!x)
        return false;
    const int c = gbnf_peek(p);
    if (c >= 0 && c != '\r' && c != '\n')
        return gbnf_refuse(p, MN_BAD_INPUT, "the end of the line expected");
    p->b->rule[r].expr = x;
    blanks(p, true);
    return true;
}

static bool rules(gbnf *p, uint32_t root) {
    if (root == MN_GNONE)
        return false;
    blanks(p, true);
    while (gbnf_peek(p) >= 0) {
        if (!rule(p))
            return false;
    }
    for (uint32_t r = root; r < p->b->n_rules; r++) {
        const mn_grule *x = &p->b->rule[r];
        if (x->expr)
            continue;
        p->b->status = mn_fail(p->b->err, MN_BAD_INPUT,
                               "grammar, line %u: rule \"%s\" is not defined", x->line, x->name);
        return false;
    }
    return true;
}

mn_gexpr *mn_ggbnf_parse(mn_gbuild *b, mn_str source) {
    gbnf p = {.b = b, .s = source, .line = 1, .slot = mn_alloc(SLOTS, sizeof *p.slot)};
    if (!p.slot)
        return mn_gbuild_memory(b);
    memset(p.slot, 0xff, SLOTS * sizeof *p.slot);
    const uint32_t root = rule_named(&p, mn_str_of("root"));
    const bool ok = rules(&p, root);
    mn_free(p.slot);
    b->place = NULL;
    return ok ? mn_gx_ref(b, root) : NULL;
}
