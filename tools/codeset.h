/* codeset.h -- conversion for terminals with another codeset than UTF-8. */
#ifndef MINERVA_CODESET_H
#define MINERVA_CODESET_H
#include "text_buffer.h"

/* 1: the terminal's codeset, by LC_ALL, LC_CTYPE and LANG, is not UTF-8. An ASCII locale (C,
 * POSIX, none set: containers) counts as UTF-8, which its terminals use. */
int codeset_is_other(void);
/* Appends typed bytes as UTF-8. The number of bytes used: an incomplete character at the end is
 * not. Invalid bytes become U+FFFD. */
size_t codeset_decode(const char *typed, size_t n, mn_text *out);
/* Appends UTF-8 in the terminal's codeset; characters that it lacks become ?. */
void codeset_encode(const char *text, size_t n, mn_text *out);
/* A text of the command line as UTF-8: z itself if it is UTF-8 or cannot be converted, else a
 * copy that lives as long as the process. */
const char *codeset_argument(const char *z);
#endif
