/* plain.c -- text of strangers, as it may go to a terminal or a log: what would move the cursor,
 * turn the direction of text or end the line is written as its bytes. */
#include "base/base.h"
#include <string.h>

static bool is_harmless(uint32_t code) {
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    const bool line_end = code == 0x2028 || code == 0x2029;
    const bool direction = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return !control && !line_end && !direction;
}

/* What stands for the character (or the one byte that is none) at s; *n: its bytes, returned: the
 * length of its replacement in out. */
static size_t plain_form(const char *s, size_t left, size_t *n, char out[16]) {
    static const char digits[] = "0123456789abcdef";
    uint32_t code = 0;
    const int length = mn_utf8_decode(s, left, &code);
    *n = length ? (size_t)length : 1;
    if (length && is_harmless(code)) {
        memcpy(out, s, *n);
        return *n;
    }
    if (*s == '\t' || *s == '\n' || *s == '\r') {
        out[0] = ' ';
        return 1;
    }
    for (size_t i = 0; i < *n; i++) {
        const uint8_t byte = (uint8_t)s[i];
        const char form[4] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        memcpy(out + i * sizeof form, form, sizeof form);
    }
    return *n * 4;
}

size_t mn_plain(char *dst, size_t cap, mn_str s) {
    size_t len = 0;
    for (size_t i = 0; i < s.len;) {
        char form[16];
        size_t n;
        const size_t more = plain_form(s.ptr + i, (size_t)s.len - i, &n, form);
        if (len + more >= cap)
            break;
        memcpy(dst + len, form, more);
        len += more;
        i += n;
    }
    dst[len] = 0;
    return len;
}

void mn_plain_array(char *text, size_t cap) {
    char copy[512];
    const size_t n = MN_MIN(strnlen(text, cap), sizeof copy);
    memcpy(copy, text, n);
    mn_plain(text, cap, (mn_str){copy, n});
}
