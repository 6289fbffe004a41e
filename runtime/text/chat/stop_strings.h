/* stop_strings.h -- strings that end a text which comes in pieces. They may be cut anywhere between
 * pieces: what may still become one is held back. */
#ifndef MN_STOP_STRINGS_H
#define MN_STOP_STRINGS_H
#include "base/base.h"

enum { MN_STOPS_MAX = 64, MN_STOP_BYTES = 1024 };

/* {0}: none; freed by mn_stops_free. */
typedef struct {
    char **strings; /* [n], NUL-terminated copies */
    uint32_t *lengths;
    uint32_t n;
    bool met;
    bool off;       /* a string that is complete is text like any other */
    uint32_t which; /* the string that was met */
    mn_text held;   /* the end of the text so far, which begins one of the strings */
    mn_text given;
} mn_stops;

/* Copies the strings; what was set before is forgotten. MN_INVALID names the one that cannot be
 * used. */
mn_status mn_stops_set(mn_stops *s, const mn_str *strings, uint32_t n, mn_error *err);
/* text: what is new, replaced by what can be given (lives until the next call). After the first
 * string that is met nothing is. last: no string goes on behind this text; other text may follow.
 * MN_OUT_OF_MEMORY. */
mn_status mn_stops_push(mn_stops *s, mn_str *text, bool last);
void mn_stops_free(mn_stops *s);

#endif
