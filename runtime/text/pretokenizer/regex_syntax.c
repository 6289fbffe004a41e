/* regex_syntax.c -- regular expressions in the syntax of tokenizer.json, which is Oniguruma's for
 * Ruby (its doc/RE), written for PCRE2. The two agree on most; what is spelled alike and means
 * another thing is rewritten here: white space, word characters and scripts, sets within sets, some
 * repetitions and options. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer/regex_syntax.h"
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 64
#define NO_ATOM SIZE_MAX
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* outside of sets Latin-1's other numbers count */
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define SPACE "\\t-\\r\\x{20}\\x{85}\\p{Z}" /* PCRE2's \s has U+180E too */
#define NOT_SPACE "\\S\\x{180e}"

typedef struct {
    size_t atom;     /* where the group began in the output */
    uint32_t opened; /* groups of options that end with it */
} group;
typedef struct {
    const char *at, *end, *problem; /* problem: what cannot be said; NULL = none */
    mn_text *out;
    size_t atom;            /* where the last thing that can be repeated began in the output */
    group stack[MAX_DEPTH]; /* [0] is the whole */
    uint32_t depth, sets;
} translator;

/* One character's set: items of a bracket, and other ways to match a character. */
typedef struct {
    mn_text items, others; /* others: alternatives, each begun by a bar */
    bool negated;
} set;

static void set_free(set *s) {
    mn_text_free(&s->items);
    mn_text_free(&s->others);
}

static bool looking_at(const translator *t, const char *z) {
    size_t n = strlen(z);
    return (size_t)(t->end - t->at) >= n && !memcmp(t->at, z, n);
}

/* The first problem is the one that the message tells; always false. */
static bool regex_syntax_fail(translator *t, const char *problem) {
    if (!t->problem)
        t->problem = problem;
    return false;
}

/* Of the character at t->at, at least 1. */
static size_t char_length(const translator *t) {
    uint32_t code;
    return (size_t)MN_MAX(1, mn_utf8_decode(t->at, (size_t)(t->end - t->at), &code));
}

/* ---- properties ------------------------------------------------------------------------------ */
static const struct {
    const char *name, *items;
} classes[] = {{"alpha", "\\p{Alphabetic}"},
               {"alnum", "\\p{Alphabetic}\\p{Nd}"},
               {"digit", "\\p{Nd}"},
               {"upper", "\\p{Uppercase}"},
               {"lower", "\\p{Lowercase}"},
               {"space", SPACE},
               {"blank", "\\p{Zs}\\t"},
               {"cntrl", "\\p{Cc}"},
               {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
               {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
               {"punct", "\\p{P}"},
               {"word", WORD},
               {"xdigit", "0-9A-Fa-f"},
               {"ascii", "\\x00-\\x7f"},
               {"any", "\\x{0}-\\x{10ffff}"},
               {"assigned", "\\P{Cn}"},
               {"letter", "\\p{L}"},
               {"uppercaseletter", "\\p{Lu}"},
               {"lowercaseletter", "\\p{Ll}"},
               {"titlecaseletter", "\\p{Lt}"},
               {"modifierletter", "\\p{Lm}"},
               {"otherletter", "\\p{Lo}"},
               {"mark", "\\p{M}"},
               {"nonspacingmark", "\\p{Mn}"},
               {"spacingmark", "\\p{Mc}"},
               {"enclosingmark", "\\p{Me}"},
               {"number", "\\p{N}"},
               {"decimalnumber", "\\p{Nd}"},
               {"letternumber", "\\p{Nl}"},
               {"othernumber", "\\p{No}"},
               {"punctuation", "\\p{P}"},
               {"symbol", "\\p{S}"},
               {"separator", "\\p{Z}"},
               {"spaceseparator", "\\p{Zs}"},
               {"other", "\\p{C}"},
               {"control", "\\p{Cc}"}};

/* Case, blanks, hyphens and underscores in names do not count. */
static mn_str plain_name(const char *s, size_t n, char to[64]) {
    size_t k = 0;
    for (size_t i = 0; i < n && k < 63; i++)
        if (!strchr(" -_", s[i]))
            to[k++] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] - 'A' + 'a') : s[i];
    to[k] = 0;
    return (mn_str){to, k};
}

static const char *find_class(mn_str name) {
    for (size_t i = 0; i < MN_COUNT(classes); i++)
        if (mn_str_is(name, classes[i].name))
            return classes[i].items;
    return NULL;
}

/* A script's own characters: since 10.40 PCRE2 takes its bare name to mean those that scripts share
 * as well. */
static bool is_script(const char *name) {
    char e[80];
    int code = 0;
    PCRE2_SIZE at = 0;
    snprintf(e, sizeof e, "\\p{sc:%s}", name); /* names are cut at 63 */
    pcre2_code *made =
        pcre2_compile((PCRE2_SPTR)e, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(made);
    return made != NULL;
}

/* What stands in \p{...}, as items of a bracket. */
static void put_property(mn_text *out, const char *s, size_t n) {
    char name[64];
    const mn_str plain = plain_name(s, n, name);
    const char *items = find_class(plain);
    if (items)
        mn_text_puts(out, items);
    else
        mn_text_printf(out, plain.len > 2 && is_script(name) ? "\\p{sc:%.*s}" : "\\p{%.*s}", (int)n,
                       s);
}

/* ---- escapes --------------------------------------------------------------------------------- */
/* The set that a backslash and what follows stand for: items, or with *negated all others. false:
 * none, and nothing is consumed. */
static bool class_escape(translator *t, mn_text *items, bool *negated) {
    const char *s = t->at;
    if (t->end - s < 2)
        return false;
    *negated = s[1] == 'S' || s[1] == 'W' || s[1] == 'H' || s[1] == 'P' || s[1] == 'D';
    switch (s[1]) {
    case 's':
    case 'S':
        mn_text_puts(items, SPACE);
        break;
    case 'w':
    case 'W':
        mn_text_puts(items, WORD);
        break;
    case 'd':
    case 'D':
        mn_text_puts(items, "\\p{Nd}");
        break;
    case 'h':
    case 'H':
        mn_text_puts(items, "0-9A-Fa-f");
        break;
    case 'p':
    case 'P': {
        const char *close =
            t->end - s > 2 && s[2] == '{' ? memchr(s, '}', (size_t)(t->end - s)) : NULL;
        if (!close)
            return regex_syntax_fail(t, "\\p without a name in braces");
        const bool circumflex = s[3] == '^';
        *negated ^= circumflex;
        put_property(items, s + 3 + circumflex, (size_t)(close - s - 3 - circumflex));
        t->at = close + 1;
        return true;
    }
    default:
        return false;
    }
    t->at += 2;
    return true;
}

/* A backslash that stands for one character, or for none. */
static bool other_escape(translator *t, mn_text *out) {
    const size_t left = (size_t)(t->end - t->at);
    if (left < 2)
        return regex_syntax_fail(t, "a backslash at its end");
    const char c = t->at[1];
    if (c == 'u') {
        if (left < 6)
            return regex_syntax_fail(t, "\\u without four digits");
        mn_text_printf(out, "\\x{%.4s}", t->at + 2);
        t->at += 6;
        return true;
    }
    if (c == 'x' && left > 2 && t->at[2] != '{' && strchr("89abcdefABCDEF", t->at[2]) && left > 3 &&
        strchr("0123456789abcdefABCDEF", t->at[3]))
        return regex_syntax_fail(t, "\\x of a byte that is no character");
    t->at++;
    const size_t n = char_length(t);
    mn_text_puts(out, "\\");
    mn_text_put(out, t->at, n);
    t->at += n;
    /* a name or number, as it stands */
    if (strchr("xkgo", c) && t->at < t->end && strchr("{<'", *t->at)) {
        char end = '\'';
        if (*t->at == '{')
            end = '}';
        else if (*t->at == '<')
            end = '>';
        const char *close = memchr(t->at, end, (size_t)(t->end - t->at));
        if (!close)
            return regex_syntax_fail(t, "a name that does not end");
        mn_text_put(out, t->at, (size_t)(close + 1 - t->at));
        t->at = close + 1;
    }
    return true;
}

/* ---- sets ------------------------------------------------------------------------------------ */
static void put_set(mn_text *out, const set *s);

/* [:name:] and [:^name:]. */
static bool posix_class(translator *t, set *s) {
    char name[64];
    const char *at = t->at + 2, *close = memchr(at, ':', (size_t)(t->end - at));
    const bool negated = at < t->end && *at == '^';
    if (!close || close + 1 >= t->end || close[1] != ']')
        return false;
    at += negated;
    const mn_str plain = plain_name(at, (size_t)(close - at), name);
    /* the property has no symbols */
    const char *items = mn_str_is(plain, "punct") ? "\\p{P}\\p{S}" : find_class(plain);
    t->at = close + 2;
    if (items && negated)
        mn_text_printf(&s->others, "|[^%s]", items);
    else if (items)
        mn_text_puts(&s->items, items);
    else
        mn_text_printf(&s->items, "[:%s%s:]", negated ? "^" : "", name);
    return true;
}

static bool read_set(translator *t, set *out);

/* A set within the set: its items become items of the outer one, unless it has more than those. */
static bool inner_set(translator *t, set *out) {
    set inner = {0};
    const bool ok = read_set(t, &inner);
    const bool items_only = !inner.negated && !inner.others.len;
    if (ok && items_only)
        mn_text_put(&out->items, inner.items.ptr, inner.items.len);
    else if (ok) {
        mn_text_puts(&out->others, "|");
        put_set(&out->others, &inner);
    }
    out->items.failed |= inner.items.failed || inner.others.failed;
    set_free(&inner);
    return ok;
}

/* What a backslash begins: a class of characters, else one character. */
static bool set_escape(translator *t, set *out) {
    mn_text items = {0};
    bool negated = false;
    const bool not_space = looking_at(t, "\\S");
    const bool is_class = class_escape(t, &items, &negated);
    if (is_class && not_space)
        mn_text_puts(&out->items, NOT_SPACE);
    else if (is_class && negated)
        mn_text_printf(&out->others, "|[^%s]", items.ptr ? items.ptr : "");
    else if (is_class)
        mn_text_put(&out->items, items.ptr, items.len);
    out->items.failed |= items.failed;
    mn_text_free(&items);
    return is_class || (!t->problem && other_escape(t, &out->items));
}

/* One item, at t->at; out: what the set has so far. */
static bool set_item(translator *t, set *out) {
    if (looking_at(t, "[:") && posix_class(t, out))
        return true;
    if (*t->at == '[')
        return inner_set(t, out);
    if (*t->at == '\\')
        return set_escape(t, out);
    const size_t n = char_length(t);
    if (*t->at == ']')
        mn_text_puts(&out->items, "\\"); /* the first in its set */
    mn_text_put(&out->items, t->at, n);
    t->at += n;
    return true;
}

/* What stands before an && looks ahead. */
static void look_ahead(mn_text *both, set *left) {
    mn_text_puts(both, "(?=");
    put_set(both, left);
    mn_text_puts(both, ")");
    set_free(left);
    *left = (set){0};
}

/* From the opening bracket to behind the closing one. */
static bool read_set(translator *t, set *out) {
    mn_text both = {0};
    if (++t->sets > MAX_DEPTH)
        return regex_syntax_fail(t, "sets nested too deeply");
    t->at++;
    const bool negated = t->at < t->end && *t->at == '^';
    t->at += negated;
    bool ok = true, closed = false;
    for (const char *first = t->at; ok && !closed && t->at < t->end;) {
        closed = *t->at == ']' && t->at > first;
        if (closed)
            t->at++;
        else if (looking_at(t, "&&")) {
            look_ahead(&both, out);
            t->at += 2;
        } else
            ok = set_item(t, out);
    }
    if (ok && both.len) { /* the last one takes the character */
        put_set(&both, out);
        set_free(out);
        *out = (set){0};
        mn_text_printf(&out->others, "|%s", both.ptr ? both.ptr : "");
    }
    out->items.failed |= both.failed;
    mn_text_free(&both);
    out->negated = negated;
    t->sets--;
    return ok && (closed || regex_syntax_fail(t, "a set that does not end"));
}

static void put_set(mn_text *out, const set *s) {
    const char *items = s->items.ptr ? s->items.ptr : "";
    out->failed |= s->items.failed || s->others.failed;
    if (!s->others.len)
        mn_text_printf(out, "[%s%s]", s->negated ? "^" : "", items);
    else if (s->items.len)
        mn_text_printf(out, "(?:%s[%s]%s%s)", s->negated ? "(?!" : "", items, s->others.ptr,
                       s->negated ? ")[\\s\\S]" : "");
    else
        mn_text_printf(out, "(?:%s%s%s)", s->negated ? "(?!" : "", s->others.ptr + 1,
                       s->negated ? ")[\\s\\S]" : "");
}

static bool put_bracket(translator *t) {
    set s = {0};
    const bool ok = read_set(t, &s);
    t->atom = t->out->len;
    if (ok)
        put_set(t->out, &s);
    set_free(&s);
    return ok;
}

/* ---- groups ---------------------------------------------------------------------------------- */
static bool comment(translator *t) {
    const char *close = memchr(t->at, ')', (size_t)(t->end - t->at));
    if (!close)
        return regex_syntax_fail(t, "a comment that does not end");
    t->at = close + 1;
    return true;
}

/* The letters of "?imx-imx" in front of a colon or parenthesis; 0: something else. */
static size_t option_length(const translator *t) {
    if (t->at == t->end || *t->at != '?')
        return 0;
    const size_t n = 1 + strspn(t->at + 1, "imx-");
    return n > 1 && (t->at[n] == ':' || t->at[n] == ')') ? n : 0;
}

static bool open_group(translator *t) {
    if (looking_at(t, "(?#"))
        return comment(t);
    if (looking_at(t, "(?~"))
        return regex_syntax_fail(t, "an absent group (?~");
    if (t->depth == MAX_DEPTH)
        return regex_syntax_fail(t, "groups nested too deeply");
    t->stack[t->depth] = (group){t->out->len, 0};
    t->atom = NO_ATOM;
    mn_text_put(t->out, t->at++, 1);
    const size_t n = option_length(t);
    for (size_t i = 0; i < n; i++)
        mn_text_put(t->out, t->at[i] == 'm' ? "s" : t->at + i, 1);
    t->at += n;
    if (!n || *t->at == ':')
        return t->depth++, true;
    /* Options alone hold, as a group of their own, to the end of the group that they stand in. */
    mn_text_puts(t->out, ":");
    t->at++;
    t->stack[t->depth - 1].opened++;
    return true;
}

static void close_all(translator *t, const group *g) {
    for (uint32_t i = 0; i < g->opened; i++)
        mn_text_puts(t->out, ")");
}

static bool close_group(translator *t) {
    if (t->depth == 1)
        return regex_syntax_fail(t, "a parenthesis that closes nothing");
    const group *g = &t->stack[--t->depth];
    close_all(t, g);
    mn_text_put(t->out, t->at++, 1);
    t->atom = g->atom;
    return true;
}

/* ---- repetition ------------------------------------------------------------------------------ */
static void wrap_atom(translator *t) {
    mn_text *out = t->out;
    mn_text tail = {0};
    if (out->failed)
        return;
    mn_text_put(&tail, out->ptr + t->atom, out->len - t->atom);
    out->len = t->atom;
    mn_text_printf(out, "(?:%s)", tail.ptr ? tail.ptr : "");
    out->failed |= tail.failed;
    mn_text_free(&tail);
}

/* {n}, {n,}, {n,m}, {,m}; a + behind repeats the repetition, and so does a ? behind {n}. */
static bool interval(translator *t) {
    const char *s = t->at + 1, *low = s;
    const size_t n_low = strspn(s, "0123456789");
    s += n_low;
    const bool comma = *s == ',';
    const char *high = s += comma;
    const size_t n_high = comma ? strspn(s, "0123456789") : 0;
    s += n_high;
    if (*s != '}' || (!n_low && !n_high) || t->atom == NO_ATOM) {
        t->atom = t->out->len;
        mn_text_puts(t->out, "\\{");
        t->at++;
        return true;
    }
    mn_text_printf(t->out, "{%.*s%s%.*s}", n_low ? (int)n_low : 1, n_low ? low : "0",
                   comma ? "," : "", (int)n_high, high);
    t->at = s + 1;
    if (t->at < t->end && (*t->at == '+' || (*t->at == '?' && !comma)))
        wrap_atom(t);
    else if (t->at < t->end && *t->at == '?') {
        mn_text_puts(t->out, "?");
        t->at++;
    }
    return true;
}

static bool repetition(translator *t) {
    mn_text_put(t->out, t->at++, 1);
    if (t->at < t->end && (*t->at == '?' || *t->at == '+'))
        mn_text_put(t->out, t->at++, 1);
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */
static bool regex_syntax_escape(translator *t) {
    mn_text items = {0};
    bool negated = false;
    const bool inside = looking_at(t, "\\b"), outside = looking_at(t, "\\B");
    t->atom = t->out->len;
    if (inside || outside) {
        mn_text_printf(t->out,
                       inside ? "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))"
                              : "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))",
                       WORD_ALONE, WORD_ALONE, WORD_ALONE, WORD_ALONE);
        t->at += 2;
        return true;
    }
    if (!class_escape(t, &items, &negated))
        return mn_text_free(&items), !t->problem && other_escape(t, t->out);
    const char *body = items.ptr ? items.ptr : "";
    mn_text_printf(t->out, "[%s%s]", negated ? "^" : "", strcmp(body, WORD) ? body : WORD_ALONE);
    t->out->failed |= items.failed;
    mn_text_free(&items);
    return true;
}

static bool regex_syntax_step(translator *t) {
    switch (*t->at) {
    case '\\':
        return regex_syntax_escape(t);
    case '[':
        return put_bracket(t);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '{':
        return interval(t);
    case '*':
    case '+':
    case '?':
        return repetition(t);
    default:
        break;
    }
    const size_t n = char_length(t);
    t->atom = strchr("^$|", *t->at) ? NO_ATOM : t->out->len;
    mn_text_put(t->out, t->at, n);
    t->at += n;
    return true;
}

const char *mn_regex_translate(mn_str e, mn_text *out) {
    mn_text copy = {0}; /* ended by a NUL */
    mn_text_put(&copy, e.ptr, (size_t)e.len);
    translator t = {
        .at = copy.ptr, .end = copy.ptr + copy.len, .out = out, .atom = NO_ATOM, .depth = 1};
    bool ok = true;
    while (ok && t.at < t.end && !copy.failed && !out->failed)
        ok = regex_syntax_step(&t);
    if (ok && t.depth > 1)
        ok = regex_syntax_fail(&t, "a parenthesis that is not closed");
    close_all(&t, &t.stack[0]);
    out->failed |= copy.failed;
    mn_text_free(&copy);
    return ok ? NULL : t.problem;
}
