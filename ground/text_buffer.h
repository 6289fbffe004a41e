/* text_buffer.h -- a text that grows, and strings of JSON in it. One thread at a time. */
#ifndef MN_TEXT_BUFFER_H
#define MN_TEXT_BUFFER_H
#include "ground.h"

/* ptr: len bytes and a NUL, or NULL while nothing was put there. failed: out of memory, the text is
 * incomplete and later calls do nothing: tested once, at the end. {0} is empty. */
typedef struct {
    char *ptr;
    size_t len, cap;
    bool failed;
} mn_text;

void mn_text_put(mn_text *t, const char *bytes, size_t n);
void mn_text_puts(mn_text *t, const char *z);
void mn_text_printf(mn_text *t, const char *fmt, ...) MN_PRINTF(2, 3);
void mn_text_add(mn_text *t, const mn_text *more); /* fails if `more` has failed */
void mn_text_insert(mn_text *t, size_t at, const char *bytes, size_t n);
void mn_text_remove(mn_text *t, size_t from, size_t to);
void mn_text_clear(mn_text *t); /* keeps the memory, and `failed` */
void mn_text_free(mn_text *t);
/* Returns the text, the caller's to free (mn_free), and empties t. NULL: out of memory. */
char *mn_text_take(mn_text *t);

/* ---- json_string.c: strings of JSON ---------------------------------------------------------- */
/* The escape of a character that a string of JSON may not hold as it is; returns its length, or 0:
 * it may stand there. */
size_t mn_json_escape(uint32_t code, char out[8]);
/* How many of the n bytes at s may be copied as they are: the next one, if there is one, has an
 * escape or is not UTF-8. */
size_t mn_json_plain(const char *s, size_t n);
/* Text with its escapes; bytes that are not UTF-8 become U+FFFD. mn_text_json puts quotes around
 * it. */
void mn_text_json_inner(mn_text *t, const char *bytes, size_t n);
void mn_text_json(mn_text *t, mn_str s);
/* In a JSON text z: Infinity, as Python writes it and cJSON does not read it, becomes a number that
 * no float holds. In place, all else stays where it is. */
void mn_json_spell_infinity(char *z);

#endif
