/* head.c -- the grammar of a request's head, in the strict reading of RFC 9112: lines end with CR
 * and LF, names are tokens with the colon behind them, no line continues another one, and the
 * length of the body is said once, in plain decimal digits or by "chunked". */
#include "serve/head.h"
#include "ground.h"
#include <string.h>
#include <strings.h>

/* Any number of so many digits fits into 64 bits. */
enum { MAX_DIGITS = 18 };

/* 1 for the characters of a name. */
static bool is_token(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* 1 for the characters of a value. */
static bool is_text(char c) {
    const unsigned char byte = (unsigned char)c;
    return c == '\t' || (byte >= ' ' && byte != 127);
}

const char *head_target(const char *target) {
    for (const unsigned char *c = (const unsigned char *)target; *c; c++)
        if (*c <= ' ' || *c >= 127)
            return "a byte of the path may not be in a URL";
    if (strstr(target, "%00"))
        return "the path has a NUL";
    if (*target == '/' || !strcmp(target, "*") || !strncasecmp(target, "http://", 7) ||
        !strncasecmp(target, "https://", 8))
        return NULL;
    return "found neither a path nor a URL behind the method";
}

/* ---- bytes as they came ---------------------------------------------------------------------- */

/* A line that is no field: what is wrong by the byte at which its name ends. */
static const char *wrong_name(char c) {
    if (c == ' ' || c == '\t')
        return "found white space before the colon of a field, or before its name";
    if (c == '\n' || c == '\r')
        return "found a line without a colon, or that does not end with CR and LF";
    return "a field has no name, or one with characters that no name has";
}

/* At the end of what can be seen, or at a NUL: nothing more has come, unless there is something
 * behind it. */
static head_verdict at_end(const char *bytes, size_t n, size_t at, head_fields *h) {
    while (at < n && !bytes[at])
        at++;
    if (at == n)
        return HEAD_UNSEEN;
    h->why = "found a NUL";
    return HEAD_BAD;
}

static head_verdict bad(head_fields *h, const char *why) {
    h->why = h->why ? h->why : why;
    return HEAD_BAD;
}

/* The field at *at, and its end. */
static head_verdict line(const char *bytes, size_t n, size_t *at, head_fields *h) {
    const char *begin = bytes + *at;
    size_t i = *at;
    while (i < n && is_token(bytes[i]))
        i++;
    if (i == n || !bytes[i])
        return at_end(bytes, n, i, h);
    const head_text name = {begin, i - *at};
    if (bytes[i] != ':' || !name.n)
        return bad(h, wrong_name(bytes[i]));
    i++;
    while (i < n && (bytes[i] == ' ' || bytes[i] == '\t'))
        i++;
    head_text value = {bytes + i, 0};
    while (i < n && is_text(bytes[i]))
        i++;
    value.n = (size_t)(bytes + i - value.p);
    if (i == n || !bytes[i])
        return at_end(bytes, n, i, h);
    if (i + 1 == n || (bytes[i] == '\r' && !bytes[i + 1]))
        return at_end(bytes, n, i + 1, h);
    if (bytes[i] != '\r' || bytes[i + 1] != '\n')
        return bad(h, "a line does not end with CR and LF, or has a control character");
    head_field(h, name, value);
    *at = i + 2;
    return HEAD_CLEAN;
}

head_verdict head_lines(const char *bytes, size_t n, size_t *used, head_fields *h) {
    size_t at = 0;
    while (at < n && bytes[at] != '\r') {
        const head_verdict v = line(bytes, n, &at, h);
        if (v != HEAD_CLEAN)
            return v;
    }
    if (at + 1 >= n || !bytes[at + 1])
        return at_end(bytes, n, at + 1 < n ? at + 1 : n, h);
    if (bytes[at + 1] != '\n')
        return bad(h, "found CR without LF");
    *used = at + 2;
    return HEAD_CLEAN;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static int head_is_called(head_text name, const char *z) {
    return name.n == strlen(z) && !strncasecmp(name.p, z, name.n);
}

/* 1 if each byte is one of those. */
static int all_are(head_text t, bool (*is)(char c)) {
    size_t i = 0;
    while (i < t.n && is(t.p[i]))
        i++;
    return i == t.n;
}

/* The value of a field of which there may be one. */
static void once(head_fields *h, head_text *field, head_text value, const char *why) {
    if (field->p && !h->why)
        h->why = why;
    *field = value;
}

void head_field(head_fields *h, head_text name, head_text value) {
    if (!h->why && (!name.n || !all_are(name, is_token)))
        h->why = "a field has white space before its colon, or no name";
    if (!h->why && !all_are(value, is_text))
        h->why = "a field has a control character";
    if (head_is_called(name, "Host"))
        once(h, &h->host, value, "found several Host fields, expected one");
    else if (head_is_called(name, "Content-Length"))
        once(h, &h->length, value, "found several Content-Length fields, expected one");
    else if (head_is_called(name, "Transfer-Encoding"))
        once(h, &h->coding, value, "found several Transfer-Encoding fields, expected one");
}

static bool is_of_host(char c) {
    return !strchr(" \t,/\\@?#", c);
}

/* Decimal digits, without zeros before others: some read those as octal. */
static int is_length(head_text t) {
    return t.n && t.n <= MAX_DIGITS && all_are(t, mn_is_digit) && (*t.p != '0' || t.n == 1);
}

const char *head_check(head_fields *h, int is_1_1) {
    if (h->why)
        return h->why;
    if (is_1_1 && !h->host.p)
        return "found no Host field, expected one";
    if (h->host.p && !all_are(h->host, is_of_host))
        return "the Host field has a character that no host has";
    if (h->length.p && h->coding.p)
        return "found several of Content-Length and Transfer-Encoding, expected one";
    if (h->length.p && !is_length(h->length))
        return "Content-Length is no plain decimal number";
    if (h->coding.p && (!is_1_1 || !head_is_called(h->coding, "chunked")))
        return "Transfer-Encoding is another than chunked, or the request is not HTTP/1.1";
    return NULL;
}

const char *head_path(const char *target, head_text host) {
    const char *authority = strstr(target, "://");
    if (*target == '/' || !authority)
        return target;
    authority += 3;
    const head_text named = {authority, strcspn(authority, "/")};
    if (!host.p || named.n != host.n || strncasecmp(named.p, host.p, host.n) != 0)
        return NULL;
    return named.p[named.n] ? named.p + named.n : "/";
}
