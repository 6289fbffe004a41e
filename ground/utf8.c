/* utf8.c -- UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing past
 * U+10FFFF. */
#include "utf8.h"

/* Length of the character that lead begins (0 = no lead byte) and the range of its second byte
 * (Unicode table 3-7). */
static int lead_length(uint8_t lead, uint8_t *lo, uint8_t *hi) {
    *lo = 0x80;
    *hi = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0)
            *lo = 0xA0;
        if (lead == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (lead < 0xF0 || lead > 0xF4)
        return 0;
    if (lead == 0xF0)
        *lo = 0x90;
    if (lead == 0xF4)
        *hi = 0x8F;
    return 4;
}

/* How many of the bytes s[0..n) belong to one character, and the whole length of that character (0
 * = none begins here). */
static int valid_bytes(const uint8_t *s, size_t n, int *length) {
    uint8_t lo;
    uint8_t hi;
    *length = n ? lead_length(s[0], &lo, &hi) : 0;
    if (!*length)
        return 0;
    int have = 1;
    for (; have < *length && (size_t)have < n; have++) {
        if (s[have] < lo || s[have] > hi)
            break;
        lo = 0x80;
        hi = 0xBF;
    }
    return have;
}

int mn_utf8_decode(const char *s, size_t n, uint32_t *code) {
    static const uint8_t lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const uint8_t *u = (const uint8_t *)s;
    int length;
    if (valid_bytes(u, n, &length) != length || !length)
        return 0;
    uint32_t c = u[0] & lead_bits[length];
    for (int i = 1; i < length; i++)
        c = c << 6 | (u[i] & 0x3Fu);
    *code = c;
    return length;
}

int mn_utf8_length(const char *s, size_t n) {
    uint32_t code;
    return mn_utf8_decode(s, n, &code);
}

int mn_utf8_encode(uint32_t code, char out[4]) {
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        code = 0xFFFD;
    if (code < 0x80)
        return out[0] = (char)code, 1;
    const int n = 2 + (code >= 0x800) + (code >= 0x10000);
    for (int i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xFF) | code);
    return n;
}

size_t mn_utf8_check(const char *s, size_t n) {
    const uint8_t *u = (const uint8_t *)s;
    size_t i = 0;
    while (i < n) {
        int length = 1;
        if (u[i] >= 0x80 && (valid_bytes(u + i, n - i, &length) != length || !length))
            return i;
        i += (size_t)length;
    }
    return n;
}

size_t mn_utf8_complete(const char *s, size_t n) {
    const uint8_t *u = (const uint8_t *)s;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        if ((u[n - back] & 0xC0) == 0x80)
            continue; /* not a lead byte */
        int length;
        int have = valid_bytes(u + n - back, back, &length);
        return (size_t)have == back && have < length ? n - back : n;
    }
    return n;
}
