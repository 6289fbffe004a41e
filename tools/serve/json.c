/* json.c -- reading of requests and writing of answers (json.h).
 *
 * A field that is null counts as absent, as clients send it; a value of another kind or outside its
 * range is an error with the field's name, what was found and what was expected. */
#include "serve/json.h"
#include "json_strict.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a request's JSON: all values, and members of the object itself, which are searched by name. */
enum { MAX_VALUES = 1 << 20, MAX_MEMBERS = 4096 };

#define WHOLE_DOUBLES 0x1p53 /* below it a double holds every whole number */

/* ---- writing --------------------------------------------------------------------------------- */

void json_stringz(mn_text *out, const char *z) {
    mn_text_json(out, mn_str_of(z));
}

void json_float(mn_text *out, double v, const char *otherwise) {
    if (isfinite(v))
        mn_text_printf(out, "%.9g", v);
    else
        mn_text_puts(out, otherwise);
}

/* ---- errors ---------------------------------------------------------------------------------- */

int json_fail(json_error *e, const char *param, const char *fmt, ...) {
    va_list args;
    if (e->failed)
        return 0;
    e->failed = 1;
    e->status = e->status ? e->status : 400;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return 0;
}

int json_no_memory(json_error *e) {
    if (!e->failed)
        e->status = 503;
    return json_fail(e, NULL, "out of memory");
}

const char *json_found(const cJSON *v, char *out, size_t n) {
    if (cJSON_IsNumber(v)) {
        snprintf(out, n, "%.17g", v->valuedouble);
        return out;
    }
    if (cJSON_IsString(v)) {
        const int is_long = strlen(v->valuestring) > 40;
        snprintf(out, n, "\"%.40s%s\"", v->valuestring, is_long ? "..." : "");
        return out;
    }
    if (cJSON_IsBool(v))
        return cJSON_IsTrue(v) ? "true" : "false";
    if (cJSON_IsArray(v))
        return "a list";
    return cJSON_IsObject(v) ? "an object" : "null";
}

/* The message of a field with another value than expected. Returns 0. */
static int unexpected(json_error *e, const char *name, const cJSON *v, const char *expected) {
    char found[80];
    return json_fail(e, name, "%s: found %s, expected %s", name, json_found(v, found, sizeof found),
                     expected);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* One pass before the tree is made, of which each value takes some eighty bytes: a NUL, also as an
 * escape, the numbers of values and members, and numbers that are none in JSON. 0: the error is
 * set. */
static int check_body(const char *body, size_t n, json_error *e) {
    size_t n_values = 1;
    size_t n_members = 1;
    int64_t depth = 0;
    int in_string = 0;
    int has_nul = memchr(body, 0, n) != NULL;
    for (size_t i = 0; i < n && !has_nul; i++) {
        const char c = body[i];
        if (c == '"')
            in_string = !in_string;
        else if (in_string && c == '\\' && i + 1 < n)
            has_nul = !strncmp(body + ++i, "u0000", 5);
        else if (in_string)
            continue;
        n_values += c == ',' || c == '[' || c == '{';
        n_members += c == ',' && depth == 1;
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    }
    if (has_nul)
        return json_fail(e, NULL, "the body has a NUL character, which no text may contain");
    if (n_members > MAX_MEMBERS)
        return json_fail(e, NULL, "the body has %zu members, expected at most %d", n_members,
                         MAX_MEMBERS);
    if (n_values > MAX_VALUES)
        return json_fail(e, NULL, "the body has %zu values, expected at most %d", n_values,
                         MAX_VALUES);
    size_t length = 0;
    const size_t at = json_bad_number(body, n, &length);
    if (at < n)
        return json_fail(e, NULL,
                         "the body is not JSON: byte %zu of %zu: found %.*s, expected a number as "
                         "JSON writes it",
                         at, n, (int)(length < 40 ? length : 40), body + at);
    return 1;
}

/* A number of the body as text, freed by cJSON_Delete; NULL: out of memory. */
static char *digits_at(const char *at) {
    const size_t n = strspn(at, "+-.0123456789eE");
    char *text = cJSON_malloc(n + 1);
    if (!text)
        return NULL;
    memcpy(text, at, n);
    text[n] = 0;
    return text;
}

static int is_wide(const cJSON *v) {
    return cJSON_IsNumber(v) && fabs(v->valuedouble) >= WHOLE_DOUBLES;
}

/* The k-th colon of the outer object is that of its k-th member. 0: out of memory. */
static int keep_digits(cJSON *root, const char *body) {
    cJSON *member = root->child;
    int64_t depth = 0;
    int in_string = 0;
    for (const char *at = body; *at && member; at++) {
        if (*at == '"')
            in_string = !in_string;
        else if (in_string)
            at += *at == '\\';
        depth += !in_string * ((*at == '{' || *at == '[') - (*at == '}' || *at == ']'));
        if (in_string || depth != 1 || *at != ':')
            continue;
        if (is_wide(member)) {
            member->valuestring = digits_at(at + 1 + strspn(at + 1, " \t\r\n"));
            if (!member->valuestring)
                return 0;
        }
        member = member->next;
    }
    return 1;
}

cJSON *json_parse(const char *body, size_t n, json_error *e) {
    const char *end = NULL;
    if (!check_body(body, n, e))
        return NULL;
    errno = 0; /* malloc sets it; cJSON says no more than NULL */
    cJSON *root = cJSON_ParseWithLengthOpts(body, n, &end, 0);
    if (!root && errno == ENOMEM) {
        json_no_memory(e);
        return NULL;
    }
    const size_t at = end ? (size_t)(end - body) : 0;
    if (root && strspn(end, " \t\r\n") != strlen(end)) {
        cJSON_Delete(root);
        root = NULL;
    }
    if (!root)
        json_fail(e, NULL, "the body is not JSON: byte %zu of %zu", at, n);
    else if (!cJSON_IsObject(root)) {
        char found[80];
        json_fail(e, NULL, "the body is %s, expected an object",
                  json_found(root, found, sizeof found));
        cJSON_Delete(root);
        root = NULL;
    } else if (!keep_digits(root, body) || !json_keep_last(root)) {
        cJSON_Delete(root);
        root = NULL;
        json_no_memory(e);
    }
    return root;
}

const cJSON *json_field(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(v) ? NULL : v;
}

int json_read_bool(const cJSON *object, const char *name, int *out, json_error *e) {
    const cJSON *v = json_field(object, name);
    if (!v)
        return 1;
    if (!cJSON_IsBool(v))
        return unexpected(e, name, v, "true or false");
    *out = cJSON_IsTrue(v);
    return 1;
}

int json_read_number(const cJSON *object, const char *name, double lo, double hi, double *out,
                     json_error *e) {
    const cJSON *v = json_field(object, name);
    char expected[80];
    if (!v)
        return 1;
    snprintf(expected, sizeof expected, "a number from %g to %g", lo, hi);
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= lo && v->valuedouble <= hi))
        return unexpected(e, name, v, expected);
    *out = v->valuedouble;
    return 1;
}

int json_read_int(const cJSON *object, const char *name, int64_t lo, int64_t hi, int64_t *out,
                  json_error *e) {
    const cJSON *v = json_field(object, name);
    char expected[80];
    if (!v)
        return 1;
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)lo,
             (long long)hi);
    const double x = cJSON_IsNumber(v) ? v->valuedouble : NAN;
    if (!(x >= (double)lo && x <= (double)hi) || x != floor(x))
        return unexpected(e, name, v, expected);
    /* 2^63 as a double is beyond the type */
    *out = x >= 9223372036854775807.0 ? INT64_MAX : (int64_t)x;
    return 1;
}

/* Digits, perhaps behind a sign, of 64 bits. 0: they are more, or something else. */
static int parse_u64(const char *digits, uint64_t *out) {
    const int negative = *digits == '-';
    const char *from = digits + negative;
    char *end = NULL;
    errno = 0;
    const unsigned long long v = strtoull(from, &end, 10);
    if (*from < '0' || *from > '9' || *end || errno || (negative && v > (UINT64_C(1) << 63)))
        return 0;
    *out = negative ? 0 - (uint64_t)v : (uint64_t)v;
    return 1;
}

int json_read_u64(const cJSON *object, const char *name, uint64_t *out, json_error *e) {
    const cJSON *v = json_field(object, name);
    if (!v)
        return 1;
    if (is_wide(v) && v->valuestring && parse_u64(v->valuestring, out))
        return 1;
    if (!cJSON_IsNumber(v) || is_wide(v) || v->valuedouble != floor(v->valuedouble))
        return unexpected(e, name, v, "a whole number from -2^63 to 2^64 - 1");
    *out = (uint64_t)(int64_t)v->valuedouble;
    return 1;
}

int json_read_string(const cJSON *object, const char *name, const char **out, json_error *e) {
    const cJSON *v = json_field(object, name);
    if (!v)
        return 1;
    if (!cJSON_IsString(v))
        return unexpected(e, name, v, "a string");
    *out = v->valuestring;
    return 1;
}
