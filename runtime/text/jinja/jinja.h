/* jinja.h -- chat templates: the part of Jinja2 3.1 that models' templates use, as Transformers
 * sets it up (trim_blocks, lstrip_blocks, loop controls, immutable sandbox, its own tojson,
 * raise_exception, strftime_now).
 *
 * Every byte of every string knows whether it is template text (0) or user data (1), through all
 * operations, so that the tokeniser can refuse to see special tokens inside user data.
 *
 * Where it differs from Jinja2: integers are 64 bit (overflow is an error); unknown filters are
 * found when they run; inheritance (extends, block, include, import) is an error. Filters that
 * work on each item do so at once, not when the result is read. Output is never escaped, and
 * "safe" changes nothing. Left out is what no chat template needs: the filters batch, center,
 * escape, filesizeformat, forceescape, groupby, pprint, random, slice, striptags, truncate,
 * urlencode, urlize, wordcount, wordwrap, xmlattr; the tests escaped, filter and test; cycler();
 * of strings the methods that pad, encode or translate, and the rarer ones of case and class; of
 * formats all but strings, whole numbers and decimals, and widths that are arguments; attributes
 * of integers; \N{name}. Each fails with its name. A template that nests too deep, touches too
 * much (within about half a second) or makes too much text ends with an error. */
#ifndef MN_JINJA_H
#define MN_JINJA_H
#include "base/base.h"

typedef struct mn_jinja mn_jinja; /* a parsed template; immutable: any thread */

/* source: UTF-8, copied. Errors (MN_BAD_INPUT) name the line. *out is untouched on error. */
mn_status mn_jinja_parse(mn_str source, mn_jinja **out, mn_error *err);
void mn_jinja_free(mn_jinja *tmpl);           /* NULL is fine */
mn_str mn_jinja_source(const mn_jinja *tmpl); /* as it was parsed; lives as long as tmpl */

/* vars: the text of a JSON object, the template's variables. Strings under the top-level names in
 * trusted (NULL-terminated; may be NULL) are template text, all others are user data. now: Unix
 * time for strftime_now (local time zone). out: the text, appended; marks: one byte per byte of it,
 * appended (may be NULL). Both unchanged on error. Any thread. raise_exception gives MN_BAD_INPUT
 * with the template's message. */
mn_status mn_jinja_render(const mn_jinja *tmpl, mn_str vars, const char *const *trusted,
                          int64_t now, mn_text *out, mn_text *marks, mn_error *err);

#endif
