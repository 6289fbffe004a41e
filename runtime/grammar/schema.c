/* schema.c -- JSON Schema 2020-12 to expressions. Starts from the rules of any JSON (grammar.c) and
 * replaces its root. A schema that $ref names, and one nested deeply, becomes a rule that is made
 * later, so that neither recursion of schemas nor nesting costs stack here. Each keyword is
 * enforced, an annotation, or refused with its JSON pointer. Combinations (allOf, and keywords
 * beside anyOf or $ref) are merged into one schema first. Trees made so live until the end.
 *
 * Narrower than written, which is always valid: objects with "properties" have no others unless
 * additionalProperties asks for them; properties come in the order of the schema. */
#include "grammar/schema.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NESTED = 40, MERGES = 4096, PATH = 400, KEY_MAX = 1000, DIGITS = 15 };

typedef struct {
    const cJSON *schema;
    uint32_t rule;
    char path[PATH];
} pending;
typedef struct {
    mn_gbuild *b;
    const cJSON *root;
    pending *queue;
    uint32_t n_queue, depth;
    size_t cap_queue;
    cJSON **made;
    uint32_t n_made;
    size_t cap_made;
    char path[PATH]; /* JSON pointer of the schema at hand; its end is cut where it is too long */
} compiler;

static mn_gexpr *value(compiler *c, const cJSON *s);

static mn_gexpr *refuse(compiler *c, mn_status status, const char *key, const char *why) {
    if (!c->b->status)
        c->b->status =
            mn_fail(c->b->err, status, "schema, #%s%s%s: %s", c->path, *key ? "/" : "", key, why);
    return NULL;
}

static const cJSON *item(const cJSON *s, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(s, key);
}

static mn_gexpr *text(compiler *c, const char *z) {
    return mn_gx_text(c->b, z, strlen(z));
}

static mn_gexpr *named(compiler *c, const char *name) {
    for (uint32_t i = 0; i < c->b->n_rules; i++) {
        if (!strcmp(c->b->rule[i].name, name))
            return mn_gx_ref(c->b, i);
    }
    return NULL;
}

/* value() of a part of the schema at hand. */
static mn_gexpr *below(compiler *c, const char *key, const char *name, const cJSON *s) {
    const size_t n = strlen(c->path);
    snprintf(c->path + n, PATH - n, "/%s%s%s", key, *name ? "/" : "", name);
    mn_gexpr *x = value(c, s);
    c->path[n] = 0;
    return x;
}

/* A rule for a schema, made later. */
static mn_gexpr *later(compiler *c, const cJSON *s, const char *path) {
    for (uint32_t i = 0; i < c->n_queue; i++) {
        if (c->queue[i].schema == s)
            return mn_gx_ref(c->b, c->queue[i].rule);
    }
    char name[PATH + 16];
    snprintf(name, sizeof name, "schema, #%s", path);
    if (!mn_grow((void **)&c->queue, &c->cap_queue, c->n_queue + 1u, sizeof *c->queue))
        return mn_gbuild_memory(c->b);
    const uint32_t rule = mn_grule_add(c->b, name, NULL);
    if (rule == MN_GNONE)
        return NULL;
    pending *p = &c->queue[c->n_queue++];
    p->schema = s;
    p->rule = rule;
    snprintf(p->path, PATH, "%s", path);
    return mn_gx_ref(c->b, rule);
}

/* ---- references and merges ------------------------------------------------------------------- */
/* The part of the tree that a pointer within this document names, or NULL. */
static const cJSON *resolve(const cJSON *at, const char *pointer) {
    while (at && *pointer == '/') {
        char key[KEY_MAX];
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/' && n + 1 < sizeof key; pointer++) {
            char ch = *pointer;
            if (ch == '~' && (pointer[1] == '0' || pointer[1] == '1'))
                ch = *++pointer == '0' ? '~' : '/';
            key[n++] = ch;
        }
        key[n] = 0;
        int64_t index = 0;
        if (cJSON_IsArray(at) && mn_parse_i64(mn_str_of(key), &index) && index >= 0)
            at = index < INT32_MAX ? cJSON_GetArrayItem(at, (int)index) : NULL;
        else
            at = item(at, key);
    }
    return *pointer ? NULL : at;
}

static const cJSON *target(compiler *c, const cJSON *ref) {
    const char *z = cJSON_IsString(ref) ? ref->valuestring : "";
    if (*z != '#') {
        refuse(c, MN_UNSUPPORTED, "$ref", "only references within the schema (#...) are supported");
        return NULL;
    }
    const cJSON *found = resolve(c->root, z + 1);
    if (!found)
        refuse(c, MN_BAD_INPUT, "$ref", "names nothing in the schema");
    return found;
}

static cJSON *keep(compiler *c, cJSON *made) {
    if (c->n_made >= MERGES) {
        refuse(c, MN_UNSUPPORTED, "", "too many combined schemas, or one that contains itself");
    } else if (made && mn_grow((void **)&c->made, &c->cap_made, c->n_made + 1u, sizeof *c->made)) {
        c->made[c->n_made++] = made;
        return made;
    } else {
        mn_gbuild_memory(c->b);
    }
    cJSON_Delete(made);
    return NULL;
}

static bool merge_properties(cJSON *into, const cJSON *from) {
    const cJSON *p = NULL;
    cJSON_ArrayForEach(p, from) {
        cJSON *old = cJSON_DetachItemFromObjectCaseSensitive(into, p->string);
        cJSON *copy = cJSON_Duplicate(p, true);
        if (old) {
            cJSON *both = cJSON_CreateObject();
            cJSON *list = cJSON_AddArrayToObject(both, "allOf");
            cJSON_AddItemToArray(list, old);
            cJSON_AddItemToArray(list, copy);
            copy = both;
        }
        if (!cJSON_AddItemToObject(into, p->string, copy))
            return false;
    }
    return true;
}

static bool merge_limit(cJSON *old, const cJSON *more, const char *key) {
    const double a = old->valuedouble;
    const double b = more->valuedouble;
    const bool least = !strncmp(key, "min", 3) || !strncmp(key, "exclusiveMin", 12);
    const bool most = !strncmp(key, "max", 3) || !strncmp(key, "exclusiveMax", 12);
    if ((!least && !most) || !cJSON_IsNumber(old) || !cJSON_IsNumber(more))
        return false;
    cJSON_SetNumberValue(old, least ? fmax(a, b) : fmin(a, b));
    return true;
}

static bool is_type(const cJSON *t, const char *name) {
    return cJSON_IsString(t) && !strcmp(t->valuestring, name);
}

/* One keyword of a schema into a merged one. */
static bool merge_key(compiler *c, cJSON *into, const cJSON *k) {
    cJSON *old = cJSON_GetObjectItemCaseSensitive(into, k->string);
    if (!old)
        return cJSON_AddItemToObject(into, k->string, cJSON_Duplicate(k, true));
    if (cJSON_Compare(old, k, true) || !strcmp(k->string, "title") ||
        !strcmp(k->string, "description") || !strcmp(k->string, "default") ||
        !strcmp(k->string, "examples"))
        return true;
    if (!strcmp(k->string, "type") && is_type(old, "integer") && is_type(k, "number"))
        return true;
    if (!strcmp(k->string, "type") && is_type(old, "number") && is_type(k, "integer"))
        return cJSON_SetValuestring(old, "integer") != NULL;
    if (!strcmp(k->string, "properties"))
        return merge_properties(old, k);
    if (!strcmp(k->string, "required")) {
        const cJSON *name = NULL;
        cJSON_ArrayForEach(name, k) cJSON_AddItemToArray(old, cJSON_Duplicate(name, true));
        return true;
    }
    return merge_limit(old, k, k->string) ||
           refuse(c, MN_UNSUPPORTED, k->string, "stands in several schemas that are combined here");
}

/* A new schema: all of `from` but the keyword `without`. */
static cJSON *without_key(compiler *c, const cJSON *from, const char *without) {
    cJSON *copy = keep(c, cJSON_CreateObject());
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, from) {
        if (copy && strcmp(k->string, without) && strcmp(k->string, "$defs") &&
            !cJSON_AddItemToObject(copy, k->string, cJSON_Duplicate(k, true)))
            return NULL;
    }
    return copy;
}

/* Both at once. An object that forbids or describes other properties cannot be merged with more. */
static bool merge(compiler *c, cJSON *into, const cJSON *more) {
    const bool closed = item(into, "additionalProperties") || item(more, "additionalProperties");
    if (cJSON_IsTrue(more))
        return true;
    if (!cJSON_IsObject(more))
        return refuse(c, MN_UNSUPPORTED, "", "false, or no schema, combined with others");
    if (closed && item(into, "properties") && item(more, "properties"))
        return refuse(c, MN_UNSUPPORTED, "additionalProperties",
                      "cannot be enforced where properties of several schemas are combined");
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, more) {
        if (!merge_key(c, into, k))
            return false;
    }
    return true;
}

/* Whether keywords other than key and annotations are there. */
static bool is_alone(const cJSON *s, const char *key);

static mn_gexpr *reference(compiler *c, const cJSON *s) {
    const cJSON *t = target(c, item(s, "$ref"));
    if (!t)
        return NULL;
    if (is_alone(s, "$ref"))
        return later(c, t, item(s, "$ref")->valuestring + 1);
    cJSON *all = without_key(c, s, "$ref");
    if (!all || !merge(c, all, t))
        return NULL;
    return value(c, all);
}

static mn_gexpr *all_of(compiler *c, const cJSON *s) {
    cJSON *all = without_key(c, s, "allOf");
    const cJSON *part = NULL;
    cJSON_ArrayForEach(part, item(s, "allOf")) {
        if (!all || !merge(c, all, part))
            return NULL;
    }
    return all ? value(c, all) : NULL;
}

static mn_gexpr *any_of(compiler *c, const cJSON *s, const char *key) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const bool alone = is_alone(s, key);
    const cJSON *part = NULL;
    if (!strcmp(key, "oneOf") && c->b->warnings)
        mn_text_printf(c->b->warnings, "#%s/oneOf: treated as anyOf\n", c->path);
    int i = 0;
    cJSON_ArrayForEach(part, item(s, key)) {
        char name[16];
        const cJSON *each = part;
        snprintf(name, sizeof name, "%d", i++);
        if (!alone) {
            cJSON *both = without_key(c, s, key);
            if (!both || !merge(c, both, part))
                return NULL;
            each = both;
        }
        if (!mn_gx_add(c->b, alt, below(c, key, name, each)))
            return NULL;
    }
    return alt;
}

/* ---- strings --------------------------------------------------------------------------------- */
#define DAY_OF_MONTH                                                                               \
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define DATE                                                                                       \
    "(0[0-9]{2}[1-9]|[1-9][0-9]{3})-" DAY_OF_MONTH                                                 \
    "|[1-9][0-9](0[48]|[2468][048]|[13579][26])-02-29"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define H16 "[0-9A-Fa-f]{1,4}"
#define PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

static mn_gexpr *format(compiler *c, const char *name) {
    static const struct {
        const char *name, *regex;
    } list[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", "(" DATE ")T" TIME},
        {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
        {"email", "[A-Za-z0-9_+-]{1,40}(\\.[A-Za-z0-9_+-]{1,20})?@" LABEL "(\\." LABEL "){1,3}"},
        {"ipv4", BYTE "(\\." BYTE "){3}"},
        {"ipv6", "(" H16 ":){7}" H16 "|(" H16 ":){1,6}:" H16 "|::(" H16 "(:" H16 "){0,6})?"},
        {"uri", "[a-z][a-z0-9+.-]{0,20}://" LABEL "(\\." LABEL "){0,4}(:[0-9]{1,4})?(/" PATH_CHAR
                "*)*(\\?(" PATH_CHAR "|[/?])*)?(#(" PATH_CHAR "|[/?])*)?"},
    };
    for (size_t i = 0; i < MN_COUNT(list); i++) {
        mn_gregex how = {.json = true};
        if (strcmp(list[i].name, name))
            continue;
        mn_gexpr *part[3] = {text(c, "\""),
                             mn_gregex_parse(c->b, mn_str_of(list[i].regex), name, &how),
                             text(c, "\"")};
        return mn_gx_join(c->b, MN_GX_SEQ, part, 3);
    }
    return refuse(c, MN_UNSUPPORTED, "format", "this format cannot be enforced");
}

/* A count of a keyword; otherwise where it is missing. */
static bool count(compiler *c, const cJSON *s, const char *key, uint32_t otherwise, uint32_t *out) {
    const cJSON *v = item(s, key);
    *out = otherwise;
    if (!v)
        return true;
    if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble != floor(v->valuedouble))
        return refuse(c, MN_BAD_INPUT, key, "a number of at least 0, without a fraction, expected");
    if (v->valuedouble > MN_GRAMMAR_NODES)
        return refuse(c, MN_UNSUPPORTED, key, "too large");
    *out = (uint32_t)v->valuedouble;
    return true;
}

static mn_gexpr *pattern(compiler *c, const cJSON *s, uint32_t min, uint32_t max) {
    mn_gregex how = {.json = true, .search = true};
    const cJSON *p = item(s, "pattern");
    how.any = mn_gx_repeat(c->b, named(c, "char"), 0, MN_GNEVER);
    if (!cJSON_IsString(p))
        return refuse(c, MN_BAD_INPUT, "pattern", "a string expected");
    mn_gexpr *x = mn_gregex_parse(c->b, mn_str_of(p->valuestring), "pattern", &how);
    if (x && (how.least < min || how.most > max))
        return refuse(c, MN_UNSUPPORTED, how.least < min ? "minLength" : "maxLength",
                      "cannot be enforced with this pattern");
    return x;
}

static mn_gexpr *string(compiler *c, const cJSON *s) {
    uint32_t min = 0;
    uint32_t max = 0;
    const cJSON *f = item(s, "format");
    if (!count(c, s, "minLength", 0, &min) || !count(c, s, "maxLength", MN_GNEVER, &max))
        return NULL;
    const bool limited = min || max != MN_GNEVER;
    if (f && (limited || item(s, "pattern")))
        return refuse(c, MN_UNSUPPORTED, "format", "cannot be enforced with lengths or a pattern");
    if (f)
        return format(c, cJSON_IsString(f) ? f->valuestring : "");
    if (!limited && !item(s, "pattern"))
        return named(c, "string");
    mn_gexpr *body = NULL;
    if (item(s, "pattern"))
        body = pattern(c, s, min, max);
    else if (min > max)
        body = mn_gx_new(c->b, MN_GX_ALT);
    else
        body = mn_gx_repeat(c->b, named(c, "char"), min, max);
    mn_gexpr *part[3] = {text(c, "\""), body, text(c, "\"")};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 3);
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* Adds to alt the numbers lo to hi, of the same number of digits, as text of fixed width. */
static bool digits(compiler *c, mn_gexpr *alt, const char *lo, const char *hi) {
    const size_t n = strlen(lo);
    size_t same = 0;
    while (same < n && lo[same] == hi[same])
        same++;
    bool full = true;
    for (size_t i = same + 1; i < n; i++)
        full &= lo[i] == '0' && hi[i] == '9';
    if (full || same == n) {
        const uint32_t rest = same == n ? 0 : (uint32_t)(n - same - 1);
        mn_gexpr *seq = mn_gx_new(c->b, MN_GX_SEQ);
        mn_gx_add(c->b, seq, mn_gx_text(c->b, lo, same));
        if (same < n)
            mn_gx_add(c->b, seq, mn_gx_bytes(c->b, (uint8_t)lo[same], (uint8_t)hi[same]));
        mn_gx_add(c->b, seq, mn_gx_repeat(c->b, mn_gx_bytes(c->b, '0', '9'), rest, rest));
        return mn_gx_add(c->b, alt, seq);
    }
    char middle[2 * DIGITS];
    memcpy(middle, lo, n + 1);
    memset(middle + same + 1, '9', n - same - 1);
    if (!digits(c, alt, lo, middle))
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
    if (above_lo[same] <= below_hi[same] && !digits(c, alt, above_lo, below_hi))
        return false;
    return digits(c, alt, middle, hi);
}

/* Adds the numbers lo to hi, both at least 0, each behind sign. */
static bool naturals(compiler *c, mn_gexpr *to, const char *sign, int64_t lo, int64_t hi) {
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    for (int64_t last = 9; lo <= hi; last = 10 * last + 9) {
        char from[2 * DIGITS];
        char until[2 * DIGITS];
        if (lo > last)
            continue;
        snprintf(from, sizeof from, "%lld", (long long)lo);
        snprintf(until, sizeof until, "%lld", (long long)MN_MIN(hi, last));
        if (!digits(c, alt, from, until))
            return false;
        lo = last + 1;
    }
    mn_gexpr *part[2] = {text(c, sign), alt};
    return mn_gx_add(c->b, to, mn_gx_join(c->b, MN_GX_SEQ, part, 2));
}

/* One end of an interval of integers. */
static bool bound(compiler *c, const cJSON *s, const char *key, int way, bool open, double *out) {
    const cJSON *v = item(s, key);
    if (!v)
        return true;
    if (!cJSON_IsNumber(v))
        return refuse(c, MN_BAD_INPUT, key, "a number expected");
    if (fabs(v->valuedouble) > 999999999999999.0)
        return refuse(c, MN_UNSUPPORTED, key, "beyond 15 digits");
    double limit = way < 0 ? ceil(v->valuedouble) : floor(v->valuedouble);
    if (open && limit == v->valuedouble)
        limit -= way;
    *out = way < 0 ? fmax(*out, limit) : fmin(*out, limit);
    return true;
}

static mn_gexpr *integer(compiler *c, const cJSON *s) {
    double lo = -999999999999999.0;
    double hi = 999999999999999.0;
    if (!bound(c, s, "minimum", -1, false, &lo) ||
        !bound(c, s, "exclusiveMinimum", -1, true, &lo) || !bound(c, s, "maximum", 1, false, &hi) ||
        !bound(c, s, "exclusiveMaximum", 1, true, &hi))
        return NULL;
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const int64_t from = (int64_t)lo;
    const int64_t to = (int64_t)hi;
    bool ok = true;
    if (from < 0 && from <= to)
        ok = naturals(c, alt, "-", MN_MAX(-to, 1), -from);
    if (ok && to >= 0 && from <= to)
        ok = naturals(c, alt, "", MN_MAX(from, 0), to);
    return ok ? alt : NULL;
}

static mn_gexpr *number(compiler *c, const cJSON *s) {
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum"};
    bool bounded = false;
    for (size_t i = 0; i < MN_COUNT(keys); i++)
        bounded |= item(s, keys[i]) != NULL;
    if (!bounded)
        return named(c, "number");
    if (c->b->warnings)
        mn_text_printf(c->b->warnings, "#%s: a bounded number is restricted to integers\n",
                       c->path);
    return integer(c, s);
}

/* ---- arrays and objects ---------------------------------------------------------------------- */
static mn_gexpr *comma(compiler *c) {
    mn_gexpr *part[2] = {text(c, ","), named(c, "ws")};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 2);
}

static mn_gexpr *enclosed(compiler *c, const char *open, mn_gexpr *body, const char *close) {
    mn_gexpr *part[5] = {text(c, open), named(c, "ws"), body, named(c, "ws"), text(c, close)};
    return mn_gx_join(c->b, MN_GX_SEQ, part, 5);
}

/* Appends one element to a chain, behind a comma unless it is the first. */
static bool add_element(compiler *c, mn_gexpr *chain, mn_gexpr *x) {
    mn_gexpr *part[2] = {comma(c), x};
    if (chain && chain->n && x)
        x = mn_gx_join(c->b, MN_GX_SEQ, part, 2);
    return mn_gx_add(c->b, chain, x);
}

static mn_gexpr *array(compiler *c, const cJSON *s) {
    uint32_t min = 0;
    uint32_t max = 0;
    const cJSON *prefix = item(s, "prefixItems");
    const cJSON *items = item(s, "items");
    mn_gexpr *chain = mn_gx_new(c->b, MN_GX_CHAIN);
    if (!chain || !count(c, s, "minItems", 0, &min) || !count(c, s, "maxItems", MN_GNEVER, &max))
        return NULL;
    const cJSON *p = NULL;
    cJSON_ArrayForEach(p, prefix) {
        char name[16];
        snprintf(name, sizeof name, "%u", chain->n);
        if (chain->n < max && !add_element(c, chain, below(c, "prefixItems", name, p)))
            return NULL;
    }
    const uint32_t n = chain->n;
    if (n < max && !cJSON_IsFalse(items)) {
        mn_gexpr *x = items ? below(c, "items", "", items) : named(c, "value");
        if (!add_element(c, chain, x))
            return NULL;
        mn_gexpr *more[2] = {comma(c), x};
        const uint32_t least = min > n + 1 ? min - n - 1 : 0;
        const uint32_t most = max == MN_GNEVER ? max : max - n - 1;
        if (least <= most && most)
            mn_gx_add(c->b, chain,
                      mn_gx_repeat(c->b, mn_gx_join(c->b, MN_GX_SEQ, more, 2), least, most));
    }
    const bool never = min > max || (cJSON_IsFalse(items) && min > n);
    chain->min = min > n ? n + 1 + (min > n + 1) : min;
    return never ? mn_gx_new(c->b, MN_GX_ALT) : enclosed(c, "[", chain, "]");
}

static mn_gexpr *member(compiler *c, const char *name, mn_gexpr *x) {
    mn_text key = {0};
    mn_text_json(&key, mn_str_of(name));
    mn_text_puts(&key, ":");
    mn_gexpr *part[3] = {NULL, named(c, "ws"), x};
    part[0] = key.failed ? mn_gbuild_memory(c->b) : mn_gx_text(c->b, key.ptr, key.len);
    mn_text_free(&key);
    return part[0] && x ? mn_gx_join(c->b, MN_GX_SEQ, part, 3) : NULL;
}

static bool is_required(const cJSON *s, const char *name) {
    const cJSON *r = NULL;
    cJSON_ArrayForEach(r, item(s, "required")) {
        if (cJSON_IsString(r) && !strcmp(r->valuestring, name))
            return true;
    }
    return false;
}

/* Properties that are required and not described. */
static bool add_undescribed(compiler *c, const cJSON *s, mn_gexpr *list, const cJSON *more) {
    const cJSON *r = NULL;
    cJSON_ArrayForEach(r, item(s, "required")) {
        if (!cJSON_IsString(r) || item(item(s, "properties"), r->valuestring))
            continue;
        mn_gexpr *x = more ? below(c, "additionalProperties", "", more) : named(c, "value");
        if (!mn_gx_add(c->b, list, member(c, r->valuestring, x)))
            return false;
    }
    return true;
}

static mn_gexpr *object(compiler *c, const cJSON *s) {
    const cJSON *properties = item(s, "properties");
    const cJSON *more = item(s, "additionalProperties");
    mn_gexpr *list = mn_gx_new(c->b, MN_GX_LIST);
    const cJSON *p = NULL;
    cJSON_ArrayForEach(p, properties) {
        mn_gexpr *x = member(c, p->string, below(c, "properties", p->string, p));
        if (!mn_gx_add(c->b, list, x))
            return NULL;
        x->optional = !is_required(s, p->string);
    }
    if (!list || !add_undescribed(c, s, list, more))
        return NULL;
    const bool open = more ? !cJSON_IsFalse(more) : !properties;
    if (open && list->n && more)
        return refuse(c, MN_UNSUPPORTED, "additionalProperties",
                      "beside properties only false can be enforced");
    list->between = comma(c);
    if (open && !list->n) {
        mn_gexpr *part[4] = {named(c, "string"), text(c, ":"), named(c, "ws"), NULL};
        part[3] = more ? below(c, "additionalProperties", "", more) : named(c, "value");
        list->tail = mn_gx_join(c->b, MN_GX_SEQ, part, 4);
        if (!list->tail)
            return NULL;
    }
    return enclosed(c, "{", list, "}");
}

/* ---- schemas --------------------------------------------------------------------------------- */
static bool fits_type(const cJSON *v, const char *t) {
    if (!strcmp(t, "integer"))
        return cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
    return (!strcmp(t, "string") && cJSON_IsString(v)) ||
           (!strcmp(t, "number") && cJSON_IsNumber(v)) ||
           (!strcmp(t, "boolean") && cJSON_IsBool(v)) || (!strcmp(t, "null") && cJSON_IsNull(v)) ||
           (!strcmp(t, "array") && cJSON_IsArray(v)) || (!strcmp(t, "object") && cJSON_IsObject(v));
}

static bool fits(const cJSON *v, const cJSON *type) {
    const cJSON *t = NULL;
    if (!type || (cJSON_IsString(type) && fits_type(v, type->valuestring)))
        return true;
    cJSON_ArrayForEach(t, type) {
        if (cJSON_IsString(t) && fits_type(v, t->valuestring))
            return true;
    }
    return false;
}

static bool add_literal(compiler *c, mn_gexpr *alt, const cJSON *v, const cJSON *type) {
    if (!fits(v, type))
        return true;
    char *z = cJSON_PrintUnformatted(v);
    mn_gexpr *x = z ? text(c, z) : mn_gbuild_memory(c->b);
    cJSON_free(z);
    return mn_gx_add(c->b, alt, x);
}

static mn_gexpr *literals(compiler *c, const cJSON *s) {
    const cJSON *list = item(s, "enum");
    const cJSON *one = item(s, "const");
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    const cJSON *v = NULL;
    if (one && list)
        return refuse(c, MN_UNSUPPORTED, "const", "cannot be enforced beside enum");
    if (one)
        return add_literal(c, alt, one, item(s, "type")) ? alt : NULL;
    cJSON_ArrayForEach(v, list) {
        if (!add_literal(c, alt, v, item(s, "type")))
            return NULL;
    }
    return alt;
}

static mn_gexpr *of_type(compiler *c, const cJSON *s, const char *type) {
    if (!strcmp(type, "object"))
        return object(c, s);
    if (!strcmp(type, "array"))
        return array(c, s);
    if (!strcmp(type, "string"))
        return string(c, s);
    if (!strcmp(type, "integer"))
        return integer(c, s);
    if (!strcmp(type, "number"))
        return number(c, s);
    if (!strcmp(type, "null"))
        return text(c, "null");
    if (strcmp(type, "boolean"))
        return refuse(c, MN_BAD_INPUT, "type", "no such type");
    mn_gexpr *part[2] = {text(c, "true"), text(c, "false")};
    return mn_gx_join(c->b, MN_GX_ALT, part, 2);
}

enum { ANNOTATION, ANY_TYPE, OF_TYPE, REFUSED };
static int kind_of(const char *key) {
    static const char *const list[] = {
        " title description default examples $schema $id $comment deprecated readOnly writeOnly "
        "$defs "
        "definitions contentEncoding contentMediaType contentSchema $anchor ",
        " type enum const anyOf oneOf allOf $ref ",
        " properties required additionalProperties items prefixItems minItems maxItems minLength "
        "maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum ",
        " not if then else patternProperties propertyNames minProperties maxProperties "
        "dependentRequired dependentSchemas dependencies uniqueItems contains minContains "
        "maxContains "
        "multipleOf unevaluatedProperties unevaluatedItems additionalItems $dynamicRef "
        "$recursiveRef "
        "$dynamicAnchor ",
    };
    char word[64];
    if (snprintf(word, sizeof word, " %s ", key) >= (int)sizeof word)
        return ANNOTATION;
    for (int i = 0; i < 4; i++) {
        if (strstr(list[i], word))
            return i;
    }
    return ANNOTATION;
}

static bool is_alone(const cJSON *s, const char *key) {
    const cJSON *k = NULL;
    cJSON_ArrayForEach(k, s) {
        if (strcmp(k->string, key) && kind_of(k->string) != ANNOTATION)
            return false;
    }
    return true;
}

/* Every keyword is known; typed: there is one that concerns a type. */
static bool check_keywords(compiler *c, const cJSON *s, bool *typed) {
    const cJSON *k = NULL;
    *typed = false;
    cJSON_ArrayForEach(k, s) {
        const int kind = kind_of(k->string);
        const bool idle = !strcmp(k->string, "uniqueItems") && cJSON_IsFalse(k);
        if (kind == REFUSED && !idle)
            return refuse(c, MN_UNSUPPORTED, k->string, "this keyword cannot be enforced");
        *typed |= kind == OF_TYPE;
        if (strcmp(k->string, "type") && (item(s, "enum") || item(s, "const")) && kind == OF_TYPE)
            return refuse(c, MN_UNSUPPORTED, k->string, "cannot be enforced beside enum or const");
    }
    return true;
}

static mn_gexpr *of_types(compiler *c, const cJSON *s, bool typed) {
    static const char *const all[] = {"object", "array", "string", "number", "boolean", "null"};
    const cJSON *type = item(s, "type");
    if (cJSON_IsString(type))
        return of_type(c, s, type->valuestring);
    if (!type && !typed)
        return named(c, "value");
    if (type && !cJSON_IsArray(type))
        return refuse(c, MN_BAD_INPUT, "type", "a name or a list of names expected");
    mn_gexpr *alt = mn_gx_new(c->b, MN_GX_ALT);
    for (size_t i = 0; !type && i < MN_COUNT(all); i++) {
        if (!mn_gx_add(c->b, alt, of_type(c, s, all[i])))
            return NULL;
    }
    const cJSON *t = NULL;
    cJSON_ArrayForEach(t, type) {
        const char *name = cJSON_IsString(t) ? t->valuestring : "";
        if (!mn_gx_add(c->b, alt, of_type(c, s, name)))
            return NULL;
    }
    return alt;
}

static mn_gexpr *schema(compiler *c, const cJSON *s) {
    bool typed = false;
    if (cJSON_IsTrue(s))
        return named(c, "value");
    if (cJSON_IsFalse(s))
        return mn_gx_new(c->b, MN_GX_ALT);
    if (!cJSON_IsObject(s))
        return refuse(c, MN_BAD_INPUT, "", "a schema is an object, true or false");
    if (!check_keywords(c, s, &typed))
        return NULL;
    if (item(s, "$ref"))
        return reference(c, s);
    if (item(s, "allOf"))
        return all_of(c, s);
    if (item(s, "anyOf"))
        return any_of(c, s, "anyOf");
    if (item(s, "oneOf"))
        return any_of(c, s, "oneOf");
    if (item(s, "enum") || item(s, "const"))
        return literals(c, s);
    return of_types(c, s, typed);
}

static mn_gexpr *value(compiler *c, const cJSON *s) {
    if (c->b->status)
        return NULL;
    if (c->depth > NESTED)
        return later(c, s, c->path);
    c->depth++;
    mn_gexpr *x = schema(c, s);
    c->depth--;
    return x;
}

/* All rules that were put off, and those that these put off. */
static mn_gexpr *compile(compiler *c) {
    mn_gexpr *all = later(c, c->root, "");
    for (uint32_t i = 0; i < c->n_queue && !c->b->status; i++) {
        const pending p = c->queue[i];
        memcpy(c->path, p.path, PATH);
        mn_gexpr *x = value(c, p.schema);
        c->b->rule[p.rule].expr = x;
    }
    return c->b->status ? NULL : all;
}

mn_gexpr *mn_gschema_parse(mn_gbuild *b, mn_str source) {
    compiler c = {.b = b};
    cJSON *root = NULL;
    b->status = mn_json_parse(source, "schema", &root, b->err);
    if (b->status)
        return NULL;
    c.root = root;
    mn_gexpr *x = compile(&c);
    for (uint32_t i = 0; i < c.n_made; i++)
        cJSON_Delete(c.made[i]);
    mn_free(c.made);
    mn_free(c.queue);
    cJSON_Delete(root);
    return x;
}
