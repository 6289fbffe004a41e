/* utf8.h -- UTF-8 as Unicode defines it. No function has a state: any thread. */
#ifndef MN_UTF8_H
#define MN_UTF8_H
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at s (1..4) and its code point, or 0 if s[0..n) does not begin with a
 * valid one. */
int mn_utf8_decode(const char *s, size_t n, uint32_t *code);
/* The same without the code point. */
int mn_utf8_length(const char *s, size_t n);
/* Writes the character, without a NUL, and returns its bytes (1..4); U+FFFD for a surrogate and
 * what is past U+10FFFF. */
int mn_utf8_encode(uint32_t code, char out[4]);
/* Offset of the first byte that is not valid UTF-8, or n. */
size_t mn_utf8_check(const char *s, size_t n);
/* The longest prefix of s that does not end inside a character which more bytes could complete. */
size_t mn_utf8_complete(const char *s, size_t n);

#endif
