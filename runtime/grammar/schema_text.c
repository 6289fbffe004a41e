/* schema_text.c -- strings and numbers of JSON Schema. One demand on a string is an expression of
 * its own; several together are cut to what all of them allow (cut.c). Numbers with bounds are
 * texts of digits between two texts, without exponent, with up to six digits behind the point. */
#include "grammar/schema_impl.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 16, FRACTION = 6, LONGEST = 4096, SHORT = 64, REMAINDERS = 4096 };

/* ---- strings --------------------------------------------------------------------------------- */
#define DAY_OF_MONTH                                                                               \
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define DATE                                                                                       \
    "((0[0-9]{2}[1-9]|[1-9][0-9]{3})-" DAY_OF_MONTH                                                \
    "|[1-9][0-9](0[48]|[2468][048]|[13579][26])-02-29)"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL "){0,4}"
#define EMAIL "[A-Za-z0-9_+-]{1,40}(\\.[A-Za-z0-9_+-]{1,20})?@" LABEL "(\\." LABEL "){1,3}"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define H16 "[0-9A-Fa-f]{1,4}"
#define PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI                                                                                        \
    "[a-z][a-z0-9+.-]{0,20}://" HOST "(:[0-9]{1,4})?(/" PATH_CHAR "*)*(\\?(" PATH_CHAR             \
    "|[/?])*)?(#(" PATH_CHAR "|[/?])*)?"
#define POINTER "(/([A-Za-z0-9_ .-]|~0|~1)*)*"
#define DURATION                                                                                   \
    "P([0-9]{1,9}W|[0-9]{1,9}D(T[0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?)?|"                        \
    "[0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|"                           \
    "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))"

/* NULL with c->b->status MN_OK: nobody enforces this format. */
static mn_gexpr *format(mn_gschema *c, const cJSON *f) {
    static const struct {
        const char *name, *regex;
    } list[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"duration", DURATION},
        {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
        {"email", EMAIL},
        {"idn-email", EMAIL},
        {"hostname", HOST},
        {"idn-hostname", HOST},
        {"ipv4", BYTE "(\\." BYTE "){3}"},
        {"ipv6", "(" H16 ":){7}" H16 "|(" H16 ":){1,6}:" H16 "|::(" H16 "(:" H16 "){0,6})?"},
        {"uri", URI},
        {"iri", URI},
        {"uri-reference", URI},
        {"iri-reference", URI},
        {"uri-template", URI},
        {"json-pointer", POINTER},
        {"relative-json-pointer", "(0|[1-9]{1,4})(#|" POINTER ")"},
        {"regex", "[A-Za-z0-9_ @#%&=:;,<>/-]*"},
    };
    for (size_t i = 0; i < MN_COUNT(list); i++) {
        mn_gregex how = {.json = true};
        if (cJSON_IsString(f) && !strcmp(list[i].name, f->valuestring))
            return mn_gregex_parse(c->b, mn_str_of(list[i].regex), list[i].name, &how);
    }
    if (!cJSON_IsString(f))
        return mn_gschema_refuse(c, MN_BAD_INPUT, "format", "a string expected");
    mn_gschema_warn(c, "format", "not a format of JSON Schema: ignored");
    return NULL;
}

mn_gexpr *mn_gschema_pattern(mn_gschema *c, const char *pattern, uint32_t *least, uint32_t *most) {
    char where[MN_GSCHEMA_PATH + 32];
    mn_gregex how = {.json = true, .search = true};
    snprintf(where, sizeof where, "schema, #%s/pattern", c->path);
    how.any = mn_gx_repeat(c->b, mn_gx_any_char(c->b), 0, MN_GNEVER);
    mn_gexpr *x = mn_gregex_parse(c->b, mn_str_of(pattern), where, &how);
    *least = how.least;
    *most = how.most;
    return x;
}

/* One more expression that the string has to match. */
static bool add_part(mn_gschema *c, mn_gcut *cut, mn_gexpr *x) {
    if (!x)
        return false;
    if (cut->n == MN_GCUT_PARTS)
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "", "too many demands on one string");
    cut->part[cut->n].not = false;
    cut->part[cut->n++].x = x;
    return true;
}

static mn_gexpr *schema_text_literal(mn_gschema *c, const char *string) {
    mn_text z = {0};
    mn_gexpr *x = mn_gchars_json(&z, mn_str_of(string)) ? mn_gx_text(c->b, z.ptr, z.len)
                                                        : mn_gbuild_memory(c->b);
    mn_text_free(&z);
    return x;
}

/* One of the strings of a list. */
static mn_gexpr *schema_text_one_of(mn_gschema *c, const cJSON *list) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const cJSON *v = NULL;
    cJSON_ArrayForEach(v, list) {
        if (cJSON_IsString(v) && !mn_gx_add(c->b, alt, schema_text_literal(c, v->valuestring)))
            return NULL;
    }
    return alt;
}

/* A pattern, or all of a list of them, which combined schemas have. */
static bool add_patterns(mn_gschema *c, const cJSON *p, mn_gcut *cut) {
    const cJSON *each = cJSON_IsArray(p) ? p->child : p;
    for (; each; each = cJSON_IsArray(p) ? each->next : NULL) {
        uint32_t least = 0;
        uint32_t most = 0;
        if (!cJSON_IsString(each))
            return mn_gschema_refuse(c, MN_BAD_INPUT, "pattern", "a string expected");
        if (!add_part(c, cut, mn_gschema_pattern(c, each->valuestring, &least, &most)))
            return false;
        if (least >= cut->min && most <= cut->max) { /* it says as much about the length */
            cut->min = 0;
            cut->max = MN_GNEVER;
        }
    }
    return true;
}

bool mn_gschema_cut(mn_gschema *c, const cJSON *s, mn_gcut *cut) {
    const cJSON *f = mn_gschema_item(s, "format");
    const cJSON *list = mn_gschema_item(s, "enum");
    const cJSON *one = mn_gschema_item(s, "const");
    if (!mn_gschema_count(c, s, "minLength", 0, &cut->min) ||
        !mn_gschema_count(c, s, "maxLength", MN_GNEVER, &cut->max))
        return false;
    if (list && !add_part(c, cut, schema_text_one_of(c, list)))
        return false;
    if (cJSON_IsString(one) && !add_part(c, cut, schema_text_literal(c, one->valuestring)))
        return false;
    mn_gexpr *x = f ? format(c, f) : NULL;
    if (c->b->status || (x && !add_part(c, cut, x)))
        return false;
    const cJSON *p = mn_gschema_item(s, "pattern");
    return !p || add_patterns(c, p, cut);
}

bool mn_gschema_allows_string(mn_gschema *c, const cJSON *s, const char *string) {
    static const char *const keys[] = {"minLength", "maxLength", "pattern", "format"};
    mn_gcut cut = {.max = MN_GNEVER, .where = "enum"};
    mn_text key = {0};
    bool limited = false;
    for (size_t i = 0; i < MN_COUNT(keys); i++)
        limited |= mn_gschema_item(s, keys[i]) != NULL;
    if (!limited)
        return true;
    if (c->limited != s) {
        c->limited = s;
        c->limited_to = mn_gschema_cut(c, s, &cut) ? mn_gx_cut(c->b, &cut) : NULL;
    }
    mn_gexpr *x = c->limited_to;
    if (!x)
        c->limited = NULL;
    if (!mn_gchars_json(&key, mn_str_of(string)))
        mn_gbuild_memory(c->b);
    const bool ok = x && !key.failed && mn_gx_matches(c->b, x, (mn_str){key.ptr, key.len});
    mn_text_free(&key);
    return ok;
}

/* Where the lengths take too many states, shorter strings may do. */
static mn_gexpr *cut_or_shorter(mn_gschema *c, mn_gcut *cut) {
    mn_gexpr *x = mn_gx_cut(c->b, cut);
    if (x || c->b->status != MN_UNSUPPORTED || c->b->budget.over || cut->max <= SHORT ||
        cut->min > SHORT)
        return x;
    c->b->status = MN_OK;
    mn_gschema_warn(c, "maxLength", "strings end after 64 characters");
    cut->max = SHORT;
    return mn_gx_cut(c->b, cut);
}

mn_gexpr *mn_gschema_string(mn_gschema *c, const cJSON *s) {
    char where[MN_GSCHEMA_PATH + 16];
    mn_gcut cut = {.max = MN_GNEVER, .where = where};
    mn_gexpr *body = NULL;
    if (!mn_gschema_cut(c, s, &cut))
        return NULL;
    const bool limited = cut.min || cut.max != MN_GNEVER;
    if (!limited && !cut.n)
        return mn_gschema_named(c, "string");
    if (cut.max != MN_GNEVER && cut.max > LONGEST && cut.min <= LONGEST) {
        mn_gschema_warn(c, "maxLength", "strings end after 4096 characters");
        cut.max = LONGEST;
    }
    snprintf(where, sizeof where, "schema, #%s", c->path);
    if (cut.n == 1 && !limited)
        body = cut.part[0].x;
    else if (cut.n)
        body = cut_or_shorter(c, &cut);
    else if (cut.min > cut.max)
        body = mn_gx_new(c->b, MN_GX_ALT);
    else
        body = mn_gx_repeat(c->b, mn_gschema_named(c, "char"), cut.min, cut.max);
    mn_gexpr *part[3] = {mn_gschema_text(c, "\""), body, mn_gschema_text(c, "\"")};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 3);
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* Texts of n digits that begin as lo up to `same`, go on with a digit of lo to hi there, and with
 * any behind; a point stands before the last `point` digits. */
static mn_gexpr *schema_text_fixed(mn_gschema *c, const char *lo, const char *hi, size_t same,
                                   uint32_t point) {
    const size_t n = strlen(lo);
    mn_gexpr *seq = mn_gx_new(c->b, MN_GX_SEQ);
    for (size_t i = 0; i < n; i++) {
        const char from = i > same ? '0' : lo[i];
        const char to = i > same ? '9' : hi[i];
        if (point && i + point == n)
            mn_gx_add(c->b, seq, mn_gschema_text(c, "."));
        mn_gx_add(c->b, seq, mn_gx_bytes(c->b, (uint8_t)from, (uint8_t)to));
    }
    return c->b->status ? NULL : seq;
}

/* Adds to alt the numbers lo to hi, of the same number of digits. */
static bool digits(mn_gschema *c, mn_gexpr *alt, const char *lo, const char *hi, uint32_t point) {
    const size_t n = strlen(lo);
    size_t same = 0;
    while (same < n && lo[same] == hi[same])
        same++;
    bool full = true;
    for (size_t i = same + 1; i < n; i++)
        full &= lo[i] == '0' && hi[i] == '9';
    if (full || same == n)
        return mn_gx_add(c->b, alt, schema_text_fixed(c, lo, hi, same, point));
    char middle[2 * DIGITS];
    memcpy(middle, lo, n + 1);
    memset(middle + same + 1, '9', n - same - 1);
    if (!digits(c, alt, lo, middle, point))
        return false;
    memcpy(middle, hi, n + 1);
    memset(middle + same + 1, '0', n - same - 1);
    char below_hi[2 * DIGITS];
    char above_lo[2 * DIGITS];
    memcpy(above_lo, middle, n + 1);
    memcpy(below_hi, middle, n + 1);
    above_lo[same] = (char)(lo[same] + 1);
    below_hi[same] = (char)(hi[same] - 1);
    memset(below_hi + same + 1, '9', n - same - 1);
    if (above_lo[same] <= below_hi[same] && !digits(c, alt, above_lo, below_hi, point))
        return false;
    return digits(c, alt, middle, hi, point);
}

/* Adds the numbers lo to hi, both at least 0, in units of 10 to the power of -point. */
static bool naturals(mn_gschema *c, mn_gexpr *to, const char *sign, int64_t lo, int64_t hi,
                     uint32_t point) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    int64_t last = 9;
    for (uint32_t i = 0; i < point; i++)
        last = 10 * last + 9;
    for (; lo <= hi; last = 10 * last + 9) {
        char from[2 * DIGITS];
        char until[2 * DIGITS];
        if (lo > last)
            continue;
        const int width = (int)point + 1;
        snprintf(from, sizeof from, "%0*lld", width, (long long)lo);
        snprintf(until, sizeof until, "%0*lld", width, (long long)MN_MIN(hi, last));
        if (!digits(c, alt, from, until, point))
            return false;
        lo = last + 1;
    }
    mn_gexpr *part[2] = {mn_gschema_text(c, sign), alt};
    return mn_gx_add(c->b, to, mn_gx_join(c->b, MN_GX_SEQ, part, 2));
}

typedef struct {
    double lo, hi;
    bool above_lo, below_hi; /* the ends are left out */
    bool any;
} interval;

static bool bound(mn_gschema *c, const cJSON *s, const char *key, interval *to) {
    const cJSON *v = mn_gschema_item(s, key);
    const bool low = strstr(key, "inimum") != NULL;
    const bool open = key[0] == 'e';
    if (!v)
        return true;
    if (open && cJSON_IsBool(v)) { /* draft 4: of the bound beside it */
        *(low ? &to->above_lo : &to->below_hi) |= cJSON_IsTrue(v);
        return true;
    }
    if (!cJSON_IsNumber(v))
        return mn_gschema_refuse(c, MN_BAD_INPUT, key, "a number expected");
    const double limit = v->valuedouble;
    to->any = true;
    if (low && (limit > to->lo || (limit == to->lo && open))) {
        to->lo = limit;
        to->above_lo = open;
    } else if (!low && (limit < to->hi || (limit == to->hi && open))) {
        to->hi = limit;
        to->below_hi = open;
    }
    return true;
}

/* All four keywords; the end that is harder to pass counts. */
static bool bounds(mn_gschema *c, const cJSON *s, interval *to) {
    *to = (interval){-INFINITY, INFINITY, false, false, false};
    return bound(c, s, "minimum", to) && bound(c, s, "exclusiveMinimum", to) &&
           bound(c, s, "maximum", to) && bound(c, s, "exclusiveMaximum", to);
}

bool mn_gschema_allows_number(mn_gschema *c, const cJSON *s, double number) {
    const cJSON *m = mn_gschema_item(s, "multipleOf");
    interval in;
    if (!bounds(c, s, &in))
        return false;
    if (cJSON_IsNumber(m) && fmod(number, m->valuedouble) != 0)
        return false;
    return number >= in.lo && number <= in.hi && !(in.above_lo && number == in.lo) &&
           !(in.below_hi && number == in.hi);
}

/* The least number of units of 1 / scale that is not below limit, as a double; open: above it. Up
 * to 2^53 all integers are doubles. */
static double least_above(double limit, double scale, bool open) {
    double k = ceil(limit * scale);
    if (scale <= 1)
        return k + (open && k == limit);
    while ((k - 1) / scale > limit || (!open && (k - 1) / scale == limit))
        k--;
    while (k / scale < limit || (open && k / scale == limit))
        k++;
    return k;
}

/* Adds the numbers of the interval with `point` digits behind the point: integers up to 2^53, the
 * last one that all readers of JSON have, and numbers of 15 digits. */
static bool add_interval(mn_gschema *c, mn_gexpr *alt, const interval *in, uint32_t point) {
    static const double scale[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
    const double limit = point ? 999999999999999.0 : 0x1p53;
    const double at_lo = fmax(in->lo, -limit / scale[point]);
    const double at_hi = fmin(in->hi, limit / scale[point]);
    if (fabs(at_lo) * scale[point] > limit || fabs(at_hi) * scale[point] > limit ||
        (at_lo >= limit && in->above_lo) || (-at_hi >= limit && in->below_hi))
        return true;
    const int64_t from = (int64_t)least_above(at_lo, scale[point], in->above_lo);
    const int64_t to = -(int64_t)least_above(-at_hi, scale[point], in->below_hi);
    if (from < 0 && from <= to && !naturals(c, alt, "-", MN_MAX(-to, 1), -from, point))
        return false;
    return to < 0 || from > to || naturals(c, alt, "", MN_MAX(from, 0), to, point);
}

/* The alternatives, unless all numbers between the bounds are too long. */
static mn_gexpr *some(mn_gschema *c, mn_gexpr *alt, const interval *in) {
    const bool empty = in->lo > in->hi || (in->lo == in->hi && (in->above_lo || in->below_hi));
    if (alt && !alt->n && !empty && (fabs(in->lo) >= 1e15 || fabs(in->hi) >= 1e15))
        return mn_gschema_refuse(c, MN_UNSUPPORTED, isinf(in->lo) ? "maximum" : "minimum",
                                 "beyond 2^53, or 15 digits with a fraction");
    return alt;
}

/* A multiple of the keyword's number that is an integer: the least one, 0 where there is none. */
static uint32_t divisor(const cJSON *m) {
    for (uint32_t k = 1; cJSON_IsNumber(m) && m->valuedouble > 0 && k <= 1000; k++) {
        const double product = m->valuedouble * k;
        if (product > REMAINDERS)
            return 0;
        if (product >= 1 && fabs(product - round(product)) < 1e-12 * product)
            return (uint32_t)round(product);
    }
    return 0;
}

/* Integers that m divides: states are a start, a sign, a zero, and remainders. */
static mn_gexpr *multiples(mn_gschema *c, uint32_t m) {
    mn_gexpr *x = mn_gx_new(c->b, MN_GX_TABLE);
    mn_gtable *t = mn_arena_alloc(&c->b->arena, 1, sizeof *t);
    if (!x || !t)
        return mn_gbuild_memory(c->b);
    *t = (mn_gtable){.n = m + 3};
    t->from = mn_arena_alloc(&c->b->arena, m + 4ull, sizeof *t->from);
    t->run = mn_arena_alloc(&c->b->arena, 11ull * (m + 3), sizeof *t->run);
    t->ends = mn_arena_alloc(&c->b->arena, m + 3ull, sizeof *t->ends);
    if (!t->from || !t->run || !t->ends)
        return mn_gbuild_memory(c->b);
    for (uint32_t q = 0; q < t->n; q++) {
        const bool begin = q < 2;
        const uint32_t rest = begin ? 0 : q - 3;
        t->from[q] = t->n_runs;
        t->ends[q] = q == 2 || q == 3;
        if (!q)
            t->run[t->n_runs++] = (mn_grun){'-', '-', 1};
        if (!q)
            t->run[t->n_runs++] = (mn_grun){'0', '0', 2};
        for (uint32_t d = begin; d < 10 && q != 2; d++)
            t->run[t->n_runs++] =
                (mn_grun){(uint8_t)('0' + d), (uint8_t)('0' + d), 3 + (10 * rest + d) % m};
    }
    t->from[t->n] = t->n_runs;
    x->table = t;
    return x;
}

/* Without bounds: a rule that all places share. */
static mn_gexpr *any_integer(mn_gschema *c, const interval *all) {
    static const char name[] = "any integer"; /* no rule of a source has spaces */
    mn_gexpr *x = mn_gschema_named(c, name);
    if (x)
        return x;
    x = mn_gx_new(c->b, MN_GX_ALT);
    if (!add_interval(c, x, all, 0))
        return NULL;
    return mn_gx_ref(c->b, mn_grule_add(c->b, name, x));
}

mn_gexpr *mn_gschema_integer(mn_gschema *c, const cJSON *s) {
    const cJSON *m = mn_gschema_item(s, "multipleOf");
    interval in;
    if (!bounds(c, s, &in))
        return NULL;
    if (!in.any && !m)
        return any_integer(c, &in);
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    if (!add_interval(c, alt, &in, 0))
        return NULL;
    const uint32_t by = m ? divisor(m) : 1;
    if (!by)
        return mn_gschema_refuse(c, MN_UNSUPPORTED, "multipleOf",
                                 "only numbers with an integer multiple up to 4096");
    if (by == 1)
        return some(c, alt, &in);
    mn_gcut cut = {.n = 2, .max = MN_GNEVER, .where = "multipleOf"};
    cut.part[0].x = alt;
    cut.part[1].x = multiples(c, by);
    return cut.part[1].x ? mn_gx_cut(c->b, &cut) : NULL;
}

mn_gexpr *mn_gschema_number(mn_gschema *c, const cJSON *s) {
    interval in;
    if (mn_gschema_item(s, "multipleOf")) {
        mn_gschema_warn(c, "multipleOf", "restricted to integers");
        return mn_gschema_integer(c, s);
    }
    if (!bounds(c, s, &in))
        return NULL;
    if (!in.any)
        return mn_gschema_named(c, "number");
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    for (uint32_t point = 0; point <= FRACTION; point++) {
        if (!add_interval(c, alt, &in, point))
            return NULL;
    }
    return some(c, alt, &in);
}
