/* scan.h -- JSON read straight from its text: the big values of a tokenizer.json, where a tree of a
 * million nodes would cost more than everything else, and variables of templates, where 1.0 is not
 * 1. */
#ifndef MN_SCAN_H
#define MN_SCAN_H
#include "base/base.h"

typedef struct {
    const char *at, *end;
    mn_text unescaped[2]; /* strings with escapes; two, for the halves of a merge */
} mn_scan;

mn_scan mn_scan_of(mn_str json); /* begins behind a byte order mark */
void mn_scan_free(mn_scan *s);
/* Each skips white space first. false: something else stands there, and nothing is consumed (a
 * string or number that begins well and goes wrong leaves at inside it). */
bool mn_scan_char(mn_scan *s, char c);
/* Into the JSON, or where it has escapes into unescaped[which], until that is used again.
 * false also when memory runs out: unescaped[which].failed. */
bool mn_scan_string(mn_scan *s, int which, mn_str *out);
bool mn_scan_number(mn_scan *s, double *out);
bool mn_scan_digits(mn_scan *s, mn_str *text);   /* a number as it is written */
bool mn_scan_word(mn_scan *s, const char *word); /* true, false, null */
bool mn_scan_more(mn_scan *s);                   /* something else than white space is left */
/* How many values a list or object has; 0 if it is neither. */
uint64_t mn_scan_count(mn_str value);

/* The value of path[0] . path[1] of an object; an empty span if it is missing. false: not JSON, *at
 * = offset. */
bool mn_scan_find(mn_str json, const char *outer, const char *inner, mn_str *value, size_t *at);
#endif
