/* probe_report.c -- the text between the probing process, the host and the cache; internal.h has
 * its keys. Its writer may have died in the middle of a line: only whole lines count. */
#include "registry/internal.h"
#include <stdio.h>
#include <string.h>

#define VALUE_MAX 900 /* bytes of a value */

/* Tabs separate fields: each field is made plain by itself. */
static void probe_report_put_plain(mn_text *report, mn_str value) {
    char field[VALUE_MAX + 1];
    for (uint64_t at = 0; at <= value.len;) {
        const char *tab = memchr(value.ptr + at, '\t', value.len - at);
        const uint64_t end = tab ? (uint64_t)(tab - value.ptr) : value.len;
        const size_t n = mn_plain(field, sizeof field, (mn_str){value.ptr + at, end - at});
        mn_text_put(report, field, n);
        if (tab)
            mn_text_puts(report, "\t");
        at = end + 1;
    }
}

void mn_report_put(mn_text *report, const char *key, const char *fmt, ...) {
    char value[VALUE_MAX + 1];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    const size_t len = n < 0 ? 0 : MN_MIN((size_t)n, sizeof value - 1);
    mn_text_printf(report, "%s\t", key);
    probe_report_put_plain(report, (mn_str){value, mn_utf8_complete(value, len)});
    mn_text_puts(report, "\n");
}

void mn_report_verdict(mn_text *report, mn_record_status status, const char *fmt, ...) {
    char reason[VALUE_MAX + 1];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    mn_report_put(report, "status", "%s", mn_record_status_name(status));
    mn_report_put(report, "reason", "%s", reason);
}

mn_record_status mn_report_status(const mn_text *report) {
    return mn_record_status_of(mn_report_get(report, "status"));
}

bool mn_report_complete(const mn_text *report) {
    mn_str all = {report->ptr, report->len};
    return mn_str_ends(all, "\n" MN_REPORT_END);
}

/* The next whole line from *at on, without its end; false = no more. */
static bool next_line(const mn_text *report, size_t *at, mn_str *line) {
    const char *from = report->len ? report->ptr + *at : NULL;
    const char *end = from ? memchr(from, '\n', report->len - *at) : NULL;
    if (!end)
        return false;
    *line = (mn_str){from, (uint64_t)(end - from)};
    *at += line->len + 1;
    return true;
}

/* The value of the next line with this key, from *at on; false = no more. */
static bool probe_report_next_value(const mn_text *report, size_t *at, const char *key,
                                    mn_str *value) {
    const size_t n = strlen(key);
    mn_str line;
    while (next_line(report, at, &line)) {
        if (line.len <= n || memcmp(line.ptr, key, n) != 0 || line.ptr[n] != '\t')
            continue;
        *value = (mn_str){line.ptr + n + 1, line.len - n - 1};
        return true;
    }
    return false;
}

mn_str mn_report_get(const mn_text *report, const char *key) {
    mn_str value = {"", 0};
    size_t at = 0;
    while (probe_report_next_value(report, &at, key, &value))
        continue;
    return value;
}

uint32_t mn_report_number(const mn_text *report, const char *key) {
    int64_t value = 0;
    if (!mn_parse_i64(mn_report_get(report, key), &value) || value < 0)
        return 0;
    return (uint32_t)MN_MIN(value, UINT32_MAX);
}

/* Up to the next tab, which is cut off. */
static mn_str field(mn_str *rest) {
    const char *tab = rest->len ? memchr(rest->ptr, '\t', rest->len) : NULL;
    const mn_str first = {rest->ptr, tab ? (uint64_t)(tab - rest->ptr) : rest->len};
    const uint64_t cut = first.len + (tab != NULL);
    *rest = (mn_str){rest->ptr + cut, rest->len - cut};
    return first;
}

mn_str mn_report_fault(const mn_text *report, uint32_t index, const char *uid) {
    mn_str rest;
    size_t at = 0;
    while (probe_report_next_value(report, &at, "fault", &rest)) {
        int64_t i = -1;
        mn_parse_i64(field(&rest), &i);
        const mn_str its_uid = field(&rest);
        const bool by_uid = *uid && its_uid.len;
        if (by_uid ? mn_str_is(its_uid, uid) : i == (int64_t)index)
            return rest;
    }
    return (mn_str){"", 0};
}
