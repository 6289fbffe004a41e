/* regex_syntax.h -- regular expressions of tokenizer.json, rewritten for PCRE2. */
#ifndef MN_REGEX_SYNTAX_H
#define MN_REGEX_SYNTAX_H
#include "base/base.h"

/* Appends to out what means for PCRE2 (UTF, UCP, MULTILINE) what e, valid UTF-8, means for its
 * author. NULL, or what in e has no counterpart. Memory: out->failed. */
const char *mn_regex_translate(mn_str e, mn_text *out);

#endif
