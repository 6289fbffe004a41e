/* regex_syntax.h -- regular expressions of tokenizer.json, rewritten for PCRE2. */
#ifndef MN_REGEX_SYNTAX_H
#define MN_REGEX_SYNTAX_H
#include "base/base.h"

/* Translates e, an expression for Oniguruma in valid UTF-8, for PCRE2 (UTF, UCP, MULTILINE), and
 * appends it to out. Returns NULL, or the construct of e that has no counterpart. Memory:
 * out->failed. */
const char *mn_regex_translate(mn_str e, mn_text *out);

#endif
