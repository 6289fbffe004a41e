/* number.c -- numbers in text. */
#include "base/base.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool mn_parse_i64(mn_str s, int64_t *out) {
    uint64_t i = s.len && (s.ptr[0] == '-' || s.ptr[0] == '+');
    uint64_t value = 0;
    bool negative = i && s.ptr[0] == '-';
    if (i == s.len)
        return false;
    for (; i < s.len; i++)
        if (!mn_is_digit(s.ptr[i]) || !mn_mul_u64(value, 10, &value) ||
            !mn_add_u64(value, (uint64_t)(s.ptr[i] - '0'), &value))
            return false;
    if (value > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

static const char *skip_digits(const char *p) {
    while (mn_is_digit(*p))
        p++;
    return p;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before or after the point */
static bool is_decimal(const char *p) {
    if (*p == '+' || *p == '-')
        p++;
    const char *whole = p;
    p = skip_digits(p);
    size_t n_digits = (size_t)(p - whole);
    if (*p == '.') {
        const char *fraction = ++p;
        p = skip_digits(p);
        n_digits += (size_t)(p - fraction);
    }
    if (!n_digits)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-')
            p++;
        if (!mn_is_digit(*p))
            return false;
        p = skip_digits(p);
    }
    return !*p;
}

bool mn_parse_f64(mn_str s, double *out) {
    char text[512];
    if (!s.len || s.len >= sizeof text || memchr(s.ptr, 0, s.len))
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    if (!is_decimal(text))
        return false;
    /* cheap: the C library keeps this one */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return false;
    double value = strtod_l(text, NULL, c_locale);
    freelocale(c_locale);
    if (!isfinite(value))
        return false;
    *out = value;
    return true;
}

/* What the letters behind a number multiply it by; 0: they are no unit. */
static double unit_of(const char *text) {
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"KiB", 0x1p10}, {"KB", 1e3},
                 {"M", 0x1p20}, {"MiB", 0x1p20}, {"MB", 1e6},     {"G", 0x1p30},   {"GiB", 0x1p30},
                 {"GB", 1e9},   {"T", 0x1p40},   {"TiB", 0x1p40}, {"TB", 1e12}};
    for (size_t i = 0; i < MN_COUNT(units); i++)
        if (!strcasecmp(text, units[i].name))
            return units[i].factor;
    return 0;
}

bool mn_parse_bytes(mn_str s, uint64_t *out) {
    char unit[8] = "";
    uint64_t n = 0;
    double value;
    while (n < s.len && (mn_is_digit(s.ptr[n]) || s.ptr[n] == '.'))
        n++;
    const uint64_t digits = n;
    while (n < s.len && s.ptr[n] == ' ')
        n++;
    if (s.len - n >= sizeof unit || !mn_parse_f64((mn_str){s.ptr, digits}, &value))
        return false;
    memcpy(unit, s.ptr + n, s.len - n);
    value *= unit_of(unit);
    if (value < 1 || value >= 0x1p63)
        return false;
    *out = (uint64_t)value;
    return true;
}
