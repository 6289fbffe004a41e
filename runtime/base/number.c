/* number.c -- numbers in text. */
#include "base/base.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
