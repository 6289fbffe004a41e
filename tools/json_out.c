/* json_out.c -- writes JSON to an out_file piece by piece: commas, brackets, quoting, numbers.
 *
 * Nothing is allocated and nothing is stored but the open brackets: a list of any length is
 * streamed. Strings are made valid UTF-8: texts come from model files and plugins, which may
 * hold any byte. An error of write is the out_file's. Interface: json_out.h. */
#include "json_out.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The length that the first byte of a character states; 0: it cannot be a first byte. */
static int stated_length(unsigned char first) {
    if (first < 0x80)
        return 1;
    if (first < 0xc0 || first >= 0xf8)
        return 0;
    if (first < 0xe0)
        return 2;
    return first < 0xf0 ? 3 : 4;
}

int utf8_length(const char *s, size_t n) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0)
        return 0;
    const int len = stated_length(u[0]);
    if (len < 2)
        return len;
    if ((size_t)len > n)
        return 0;
    uint32_t code = u[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (u[i] & 0x3fu);
    }
    const int is_surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[len] || code > 0x10ffff || is_surrogate ? 0 : len;
}

/* Before each value and key: the comma, if one came before on this level. */
static void comma(json_out *j) {
    if (j->after_value && j->depth)
        out_put(j->out, ",", 1);
    j->after_value = 1;
}

void json_open(json_out *j, char bracket) {
    comma(j);
    out_put(j->out, &bracket, 1);
    if (j->depth < sizeof j->closer)
        j->closer[j->depth] = bracket == '{' ? '}' : ']';
    j->depth++;
    j->after_value = 0;
}

void json_close(json_out *j) {
    j->depth--;
    if (j->depth < sizeof j->closer)
        out_put(j->out, &j->closer[j->depth], 1);
    j->after_value = 1;
}

void json_line(json_out *j) {
    out_put(j->out, "\n", 1);
    j->after_value = 0;
}

/* A string with its quotes; a byte that is not UTF-8 becomes U+FFFD. */
static void quoted(out_file *o, const char *s, size_t n) {
    out_put(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        int len = utf8_length(s + i, n - i);
        if (c == '"' || c == '\\')
            out_printf(o, "\\%c", c);
        else if (c == '\n')
            out_puts(o, "\\n");
        else if (c == '\t')
            out_puts(o, "\\t");
        else if (c == '\r')
            out_puts(o, "\\r");
        else if (c < 0x20 || c == 0x7f)
            out_printf(o, "\\u%04x", c);
        else if (len)
            out_put(o, s + i, (size_t)len);
        else
            out_puts(o, "\xef\xbf\xbd");
        i += len ? (size_t)len : 1;
    }
    out_put(o, "\"", 1);
}

void json_key_n(json_out *j, const char *bytes, size_t n) {
    comma(j);
    quoted(j->out, bytes, n);
    out_put(j->out, ":", 1);
    j->after_value = 0;
}

void json_key(json_out *j, const char *z) {
    json_key_n(j, z, strlen(z));
}

void json_str(json_out *j, const char *bytes, size_t n) {
    comma(j);
    quoted(j->out, bytes, n);
}

void json_z(json_out *j, const char *z) {
    if (z)
        json_str(j, z, strlen(z));
    else
        json_null(j);
}

static void plain(json_out *j, const char *z) {
    comma(j);
    out_puts(j->out, z);
}

void json_int(json_out *j, int64_t v) {
    comma(j);
    out_printf(j->out, "%" PRId64, v);
}

void json_uint(json_out *j, uint64_t v) {
    comma(j);
    out_printf(j->out, "%" PRIu64, v);
}

void json_num(json_out *j, double v) {
    /* the shortest text that reads back as v; LC_NUMERIC is never set, so that the point is '.' */
    char buf[40] = "null";
    for (int digits = 6; digits <= 17 && isfinite(v); digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    plain(j, buf);
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
