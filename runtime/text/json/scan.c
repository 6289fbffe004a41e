/* scan.c -- JSON read straight from its text (scan.h). The scan is a place in a text that the
 * caller owns; only strings with escapes are copied, into buffers of the scan that are used again.
 * What is passed over is not checked: whoever reads inside finds what is wrong there. */
#include "text/json/scan.h"
#include "json_strict.h"
#include <string.h>

/* A byte order mark is no JSON, but editors put one in front. */
mn_scan mn_scan_of(mn_str json) {
    const bool mark = json.len >= 3 && !memcmp(json.ptr, "\xEF\xBB\xBF", 3);
    return (mn_scan){json.ptr + (mark ? 3 : 0), json.ptr + json.len, {{0}, {0}}};
}

void mn_scan_free(mn_scan *s) {
    mn_text_free(&s->unescaped[0]);
    mn_text_free(&s->unescaped[1]);
}

/* JSON's own four kinds of white space; no others stand between its tokens. */
static void skip_space(mn_scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

bool mn_scan_char(mn_scan *s, char c) {
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

bool mn_scan_more(mn_scan *s) {
    skip_space(s);
    return s->at < s->end;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Four hexadecimal digits; false: something else, and at is inside it. */
static bool hex4(mn_scan *s, uint32_t *code) {
    *code = 0;
    if (s->end - s->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char c = *s->at++;
        const char low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            *code = *code * 16 + (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            *code = *code * 16 + (uint32_t)(low - 'a' + 10);
        else
            return false;
    }
    return true;
}

/* The two halves of UTF-16 that write one code point beyond U+FFFF: neither is one by itself. */
static bool is_high_half(uint32_t code) {
    return code >= 0xd800 && code < 0xdc00;
}

static bool is_low_half(uint32_t code) {
    return code >= 0xdc00 && code < 0xe000;
}

/* After "\u": one code point, of two halves if it is beyond U+FFFF. */
static bool put_code(mn_scan *s, mn_text *out) {
    uint32_t code = 0;
    uint32_t low = 0;
    char utf8[4];
    if (!hex4(s, &code) || is_low_half(code))
        return false;
    if (is_high_half(code)) {
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
            return false;
        s->at += 2;
        if (!hex4(s, &low) || !is_low_half(low))
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    mn_text_put(out, utf8, (size_t)mn_utf8_encode(code, utf8));
    return true;
}

/* What follows a backslash. */
static bool json_scan_put_escape(mn_scan *s, mn_text *out) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (s->at == s->end)
        return false;
    const char c = *s->at++;
    if (c == 'u')
        return put_code(s, out);
    const char *known = c ? strchr(from, c) : NULL;
    if (known)
        mn_text_put(out, &to[known - from], 1);
    return known != NULL;
}

/* Bytes up to a quote, an escape or a control character. */
static size_t plain_length(const mn_scan *s) {
    const char *p = s->at;
    while (p < s->end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20)
        p++;
    return (size_t)(p - s->at);
}

bool mn_scan_string(mn_scan *s, int which, mn_str *out) {
    if (!mn_scan_char(s, '"'))
        return false;
    size_t n = plain_length(s);
    *out = (mn_str){s->at, n};
    s->at += n;
    if (s->at < s->end && *s->at == '"') {
        s->at++;
        return true;
    }
    mn_text *t = &s->unescaped[which];
    t->len = 0;
    mn_text_put(t, out->ptr, n);
    while (s->at < s->end && *s->at == '\\') {
        s->at++;
        if (!json_scan_put_escape(s, t))
            return false;
        n = plain_length(s);
        mn_text_put(t, s->at, n);
        s->at += n;
    }
    *out = (mn_str){t->ptr, t->len};
    return s->at < s->end && *s->at++ == '"' && !t->failed;
}

/* ---- other values ---------------------------------------------------------------------------- */

bool mn_scan_word(mn_scan *s, const char *word) {
    const size_t n = strlen(word);
    skip_space(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

bool mn_scan_digits(mn_scan *s, mn_str *text) {
    skip_space(s);
    const char *p = s->at;
    while (p < s->end && *p && strchr("+-.eE0123456789", *p))
        p++;
    *text = (mn_str){s->at, (uint64_t)(p - s->at)};
    if (!json_is_number(text->ptr, (size_t)text->len))
        return false;
    s->at = p;
    return true;
}

bool mn_scan_number(mn_scan *s, double *out) {
    const mn_scan back = *s;
    mn_str text;
    int64_t whole = 0;
    if (!mn_scan_digits(s, &text))
        return false;
    if (text.len <= 15 && mn_parse_i64(text, &whole)) {
        *out = (double)whole;
        return true;
    }
    if (mn_parse_f64(text, out))
        return true;
    *s = back;
    return false;
}

/* From the opening quote to behind the closing one. */
static bool skip_string(mn_scan *s) {
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++)
        if (*s->at == '\\')
            s->at++;
    return s->at < s->end && *s->at++ == '"';
}

/* Any value; brackets are counted, not matched: whoever reads inside finds the rest. */
static bool skip_value(mn_scan *s, mn_str *value) {
    skip_space(s);
    const char *begin = s->at;
    int64_t depth = 0;
    const bool nested = s->at < s->end && (*s->at == '{' || *s->at == '[');
    while (s->at < s->end) {
        const char c = *s->at;
        if (c == '"') {
            if (!skip_string(s))
                return false;
            if (!nested)
                break;
            continue;
        }
        if (!nested && (c == ',' || c == '}' || c == ']'))
            break;
        if (c == '{' || c == '[')
            depth++;
        if (c == '}' || c == ']')
            depth--;
        s->at++;
        if (nested && depth == 0)
            break;
    }
    *value = (mn_str){begin, (uint64_t)(s->at - begin)};
    return depth == 0 && value->len;
}

uint64_t mn_scan_count(mn_str value) {
    mn_scan s = mn_scan_of(value);
    uint64_t n = 0;
    int64_t depth = 0;
    mn_str none;
    if (!mn_scan_char(&s, '[') && !mn_scan_char(&s, '{'))
        return 0;
    if (mn_scan_char(&s, ']') || mn_scan_char(&s, '}'))
        return 0;
    for (; s.at < s.end; s.at++) {
        const char c = *s.at;
        if (c == '"') {
            if (!skip_value(&s, &none))
                break;
            s.at--;
        } else if (c == '[' || c == '{')
            depth++;
        else if (c == ']' || c == '}')
            depth--;
        else
            n += c == ',' && depth == 0;
    }
    return n + 1;
}

/* Steps to key's value in the object at s: 1 found, 0 not there (s is behind the object), -1 not
 * JSON. */
static int json_scan_find_key(mn_scan *s, const char *key) {
    mn_str name;
    mn_str value;
    if (!mn_scan_char(s, '{'))
        return -1;
    if (mn_scan_char(s, '}'))
        return 0;
    do {
        if (!mn_scan_string(s, 0, &name) || !mn_scan_char(s, ':'))
            return -1;
        if (mn_str_is(name, key))
            return 1;
        if (!skip_value(s, &value))
            return -1;
    } while (mn_scan_char(s, ','));
    return mn_scan_char(s, '}') ? 0 : -1;
}

bool mn_scan_find(mn_str json, const char *outer, const char *inner, mn_str *value, size_t *at) {
    mn_scan s = mn_scan_of(json);
    *value = (mn_str){json.ptr, 0};
    int found = json_scan_find_key(&s, outer);
    skip_space(&s);
    if (found == 1 && s.at < s.end && *s.at == '{')
        found = json_scan_find_key(&s, inner);
    const bool ok = found == 1 ? skip_value(&s, value) : found == 0;
    *at = (size_t)(s.at - json.ptr);
    mn_scan_free(&s);
    return ok;
}
