/* codeset.c -- converts between UTF-8 and the codeset of the terminal (codeset.h).
 *
 * One pair of iconv descriptors belongs to the process, opened at the first use; main thread only.
 * setlocale() is not called: the locale changes only the bytes of the terminal, never what the
 * program or its libraries print and parse. */
#include "codeset.h"
#include "utf8.h"
#include <errno.h>
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static iconv_t to_utf8, from_utf8;
static int state; /* 0: unknown, 1: UTF-8, 2: another codeset */

/* state stays UTF-8 if iconv does not know the codeset. */
static void open_descriptors(const char *name) {
    to_utf8 = iconv_open("UTF-8", name);
    from_utf8 = iconv_open(name, "UTF-8");
    const iconv_t none = (iconv_t)-1;
    if (to_utf8 != none && from_utf8 != none) {
        state = 2;
        return;
    }
    if (to_utf8 != none)
        iconv_close(to_utf8);
    if (from_utf8 != none)
        iconv_close(from_utf8);
}

int codeset_is_other(void) {
    if (state)
        return state == 2;
    state = 1;
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!locale) // LANG names a locale that is not installed
        return 0;
    const char *name = nl_langinfo_l(CODESET, locale);
    if (strcasecmp(name, "UTF-8") != 0 && strcmp(name, "ANSI_X3.4-1968") != 0 &&
        strcasecmp(name, "US-ASCII") != 0)
        open_descriptors(name);
    freelocale(locale);
    return state == 2;
}

/* Converts all but an incomplete character at the end; the number of bytes used. unknown replaces a
 * character (is_utf8) or byte that cannot be converted. */
static size_t codeset_convert(iconv_t cd, const char *in, size_t n, mn_text *out,
                              const char *unknown, int is_utf8) {
    char piece[512], *from = (char *)in;
    size_t left = n;
    while (left) {
        char *to = piece;
        size_t room = sizeof piece;
        size_t done = iconv(cd, &from, &left, &to, &room);
        int e = done == (size_t)-1 ? errno : 0;
        mn_text_put(out, piece, sizeof piece - room);
        if (e == EINVAL)
            break;
        if (e != EILSEQ)
            continue;
        mn_text_puts(out, unknown);
        do {
            from++;
            left--;
        } while (is_utf8 && left && (*from & 0xC0) == 0x80);
    }
    return n - left;
}

size_t codeset_decode(const char *typed, size_t n, mn_text *out) {
    return codeset_convert(to_utf8, typed, n, out, "\xEF\xBF\xBD", 0);
}

void codeset_encode(const char *text, size_t n, mn_text *out) {
    size_t used = codeset_convert(from_utf8, text, n, out, "?", 1);
    if (used < n)
        mn_text_puts(out, "?");
}

/* The converted arguments, which live as long as the process. */
static struct argument {
    struct argument *next;
    char *text;
} * arguments;

static int is_utf8(const char *z) {
    const size_t n = strlen(z);
    for (size_t at = 0; at < n;) {
        const int length = mn_utf8_length(z + at, n - at);
        if (!length)
            return 0;
        at += (size_t)length;
    }
    return 1;
}

const char *codeset_argument(const char *z) {
    mn_text text = {0};
    if (is_utf8(z) || !codeset_is_other())
        return z;
    const size_t n = strlen(z);
    if (codeset_decode(z, n, &text) < n)
        mn_text_puts(&text, "\xEF\xBF\xBD");
    struct argument *one = malloc(sizeof *one);
    char *copy = mn_text_take(&text);
    if (!one || !copy) {
        free(one);
        free(copy);
        return z;
    }
    *one = (struct argument){arguments, copy};
    arguments = one;
    return copy;
}
