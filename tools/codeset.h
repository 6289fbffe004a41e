/* codeset.h -- terminals that do not speak UTF-8. */
#ifndef MINERVA_CODESET_H
#define MINERVA_CODESET_H
#include "buffer.h"

/* 1: the terminal's codeset, by LC_ALL, LC_CTYPE and LANG, is another than UTF-8. A locale of ASCII
 * (C, POSIX, none set: containers) counts as UTF-8, for its terminals are. */
int codeset_is_other(void);
/* Appends what was typed, as UTF-8. The number of bytes used: the last ones may begin a character
 * whose rest is still to come. Bytes that spell nothing become U+FFFD. */
size_t codeset_decode(const char *typed, size_t n, buffer *out);
/* Appends UTF-8 as the terminal wants it; characters that it lacks become ?. */
void codeset_encode(const char *text, size_t n, buffer *out);
/* A text of the command line as UTF-8: z itself if it is that already or the terminal's codeset does
 * not help, else a copy that the process keeps. */
const char *codeset_argument(const char *z);
#endif
