/* stop_strings.h -- strings that end a text which comes in pieces. A string may be cut anywhere
 * between pieces: text that may still become one is held back. */
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

/* Copies the strings and replaces earlier ones. MN_INVALID names a string that cannot be
 * used. */
mn_status mn_stops_set(mn_stops *s, const mn_str *strings, uint32_t n, mn_error *err);
/* text: the new text; it is replaced by the text that can be given (valid until the next call).
 * Behind the first string that is found no text is given. last: no string continues behind this
 * text; other text may follow. MN_OUT_OF_MEMORY. */
mn_status mn_stops_push(mn_stops *s, mn_str *text, bool last);
void mn_stops_free(mn_stops *s);

#endif
