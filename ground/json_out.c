/* json_out.c -- writes JSON piece by piece: commas, brackets, quoting, numbers.
 *
 * Nothing is allocated and nothing is stored but the open brackets: a list of any length is
 * streamed. Strings are made valid UTF-8: texts come from model files and plugins, which may
 * hold any byte. An error of a write is what `to` keeps. Interface: json_out.h. */
#include "json_out.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void json_out_put_z(json_out *j, const char *z) {
    j->put(j->to, z, strlen(z));
}

static void text_put(void *to, const char *bytes, size_t n) {
    mn_text_put(to, bytes, n);
}

json_out json_to_text(mn_text *t) {
    return (json_out){.put = text_put, .to = t};
}

/* Before each value and key: the comma, if one came before on this level. */
static void comma(json_out *j) {
    if (j->after_value && j->depth)
        j->put(j->to, ",", 1);
    j->after_value = 1;
}

void json_open(json_out *j, char bracket) {
    comma(j);
    j->put(j->to, &bracket, 1);
    if (j->depth < sizeof j->closer)
        j->closer[j->depth] = bracket == '{' ? '}' : ']';
    j->depth++;
    j->after_value = 0;
}

void json_close(json_out *j) {
    j->depth--;
    if (j->depth < sizeof j->closer)
        j->put(j->to, &j->closer[j->depth], 1);
    j->after_value = 1;
}

void json_line(json_out *j) {
    j->put(j->to, "\n", 1);
    j->after_value = 0;
}

/* A string with its quotes; a byte that is not UTF-8 becomes U+FFFD. */
static void quoted(json_out *j, const char *s, size_t n) {
    char escape[8];
    json_out_put_z(j, "\"");
    for (size_t at = 0; at < n; at++) {
        const size_t plain = mn_json_plain(s + at, n - at);
        j->put(j->to, s + at, plain);
        at += plain;
        if (at < n)
            json_out_put_z(j,
                           mn_json_escape((unsigned char)s[at], escape) ? escape : "\xef\xbf\xbd");
    }
    json_out_put_z(j, "\"");
}

void json_key_n(json_out *j, const char *bytes, size_t n) {
    comma(j);
    quoted(j, bytes, n);
    j->put(j->to, ":", 1);
    j->after_value = 0;
}

void json_key(json_out *j, const char *z) {
    json_key_n(j, z, strlen(z));
}

void json_str(json_out *j, const char *bytes, size_t n) {
    comma(j);
    quoted(j, bytes, n);
}

void json_z(json_out *j, const char *z) {
    if (z)
        json_str(j, z, strlen(z));
    else
        json_null(j);
}

void json_mn_str(json_out *j, mn_str s) {
    json_str(j, s.ptr, s.len);
}

static void plain(json_out *j, const char *z) {
    comma(j);
    json_out_put_z(j, z);
}

void json_int(json_out *j, int64_t v) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, v);
    plain(j, text);
}

void json_uint(json_out *j, uint64_t v) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    plain(j, text);
}

/* v with so many digits; whatever LC_NUMERIC is, the point is '.'. */
static void json_out_number_text(char text[40], double v, int digits) {
    snprintf(text, 40, "%.*g", digits, v);
    char *comma = strchr(text, ',');
    if (comma)
        *comma = '.';
}

/* The shortest text that reads back as v. */
void json_num(json_out *j, double v) {
    char text[40] = "null";
    for (int digits = 6; digits <= 17 && isfinite(v); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) {
            json_out_number_text(text, v, digits);
            break;
        }
    }
    plain(j, text);
}

void json_put_rounded(json_out *j, const char *key, double v, int digits) {
    char text[40] = "null";
    if (isfinite(v))
        json_out_number_text(text, v, digits);
    json_key(j, key);
    plain(j, text);
}

void json_bool(json_out *j, int v) {
    plain(j, v ? "true" : "false");
}
void json_null(json_out *j) {
    plain(j, "null");
}

void json_ids(json_out *j, const int32_t *ids, size_t n) {
    json_open(j, '[');
    for (size_t i = 0; i < n; i++)
        json_int(j, ids[i]);
    json_close(j);
}

void json_put_object(json_out *j, const char *key) {
    json_key(j, key);
    json_open(j, '{');
}

void json_put_array(json_out *j, const char *key) {
    json_key(j, key);
    json_open(j, '[');
}

void json_put_z(json_out *j, const char *key, const char *z) {
    json_key(j, key);
    json_z(j, z);
}

void json_put_int(json_out *j, const char *key, int64_t v) {
    json_key(j, key);
    json_int(j, v);
}

void json_put_uint(json_out *j, const char *key, uint64_t v) {
    json_key(j, key);
    json_uint(j, v);
}

void json_put_num(json_out *j, const char *key, double v) {
    json_key(j, key);
    json_num(j, v);
}

void json_put_bool(json_out *j, const char *key, int v) {
    json_key(j, key);
    json_bool(j, v);
}
