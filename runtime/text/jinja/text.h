/* text.h -- characters of marked strings: walking, searching, stripping, letter case. Offsets
 * are in bytes. */
#ifndef MN_JINJA_TEXT_H
#define MN_JINJA_TEXT_H
#include "text/jinja/value.h"

#define MN_J_BAD_BYTE 0x200000u /* code of a byte that is not UTF-8: this plus the byte */

/* Functions that take a context charge for what they read; if a function returns an offset or a
 * count, c->status says whether it failed; its result is then meaningless, but within the
 * string. */

/* Bytes (>= 1) of the character at offset at < s.len, and its code. The caller charges. */
size_t mn_jchar(mn_jstr s, size_t at, uint32_t *code);
size_t mn_jchars(mn_jctx *c, mn_jstr s); /* how many */
/* of the chars-th character; s.len past the end */
size_t mn_joffset(mn_jctx *c, mn_jstr s, size_t chars);
size_t mn_jfind(mn_jctx *c, mn_jstr in, mn_jstr what, size_t from); /* SIZE_MAX = nowhere */
/* last that ends at or before end */
size_t mn_jrfind(mn_jctx *c, mn_jstr in, mn_jstr what, size_t end);
bool mn_jcode_space(uint32_t code); /* str.isspace() */
bool mn_jcode_print(uint32_t code); /* str.isprintable() */
bool mn_jcode_alpha(uint32_t code);
bool mn_jcode_decimal(uint32_t code); /* each class holds the one before it */
bool mn_jcode_digit(uint32_t code);
bool mn_jcode_numeric(uint32_t code);
bool mn_jcode_upper(uint32_t code);
bool mn_jcode_lower(uint32_t code);
bool mn_jcode_title(uint32_t code); /* such as U+01C5 */
/* chars: NULL = white space. sides: 1 left, 2 right. */
mn_jstr mn_jstrip(mn_jctx *c, mn_jstr s, const mn_jstr *chars, int sides);

typedef enum {
    MN_J_UPPER,
    MN_J_LOWER,
    MN_J_CAPITAL,
    MN_J_TITLE_METHOD,
    MN_J_TITLE_FILTER
} mn_jcase;
bool mn_jcase_of(mn_jctx *c, mn_jstr s, mn_jcase how, mn_jval *out);

/* count < 0 = all */
bool mn_jreplace(mn_jctx *c, mn_jstr s, mn_jstr old, mn_jstr with, int64_t count, mn_jval *out);
/* sep NULL = white space; max < 0 = no limit */
bool mn_jsplit(mn_jctx *c, mn_jstr s, const mn_jstr *sep, int64_t max, bool from_right,
               mn_jval *out);
bool mn_jsplitlines(mn_jctx *c, mn_jstr s, bool keep_ends, mn_jval *out);
#endif
