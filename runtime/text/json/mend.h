/* mend.h -- makes JSON of almost-JSON that a model writes, byte by byte. Line breaks and other
 * control characters inside strings become escapes, a backslash that begins no escape is doubled,
 * commas in front of a closing bracket are left out, single quotes around strings become double
 * ones and keys without quotes get them, True, False and None are Python's. mn_json_mend_close
 * completes any text that was pushed so far.
 *
 * Text that could not be completed is held: a member up to its value, an escape up to its last
 * digit. */
#ifndef MN_JSON_MEND_H
#define MN_JSON_MEND_H
#include "text/json/run.h"

enum { MN_JSON_MEND_HELD = 256, MN_JSON_MEND_ESCAPE = 6 };

/* {0}: before a value. Plain data. */
typedef struct {
    mn_json_run run; /* of the output, without the held part of an escape */
    bool holding;    /* since a comma or {, up to the value; else what is made is given at once */
    bool spilled;    /* held was full: the member has been given up to here */
    uint16_t n_held;
    uint8_t n_escape;
    char escape[MN_JSON_MEND_ESCAPE];
    char held[MN_JSON_MEND_HELD];
    bool single;      /* the string has single quotes */
    bool bare;        /* the key has no quotes */
    const char *skip; /* letters of None that are still to come; NULL: none */
} mn_json_mend;

/* Appends the output that the byte completes to out (NULL: no output). MN_JSON_END: the value is
 * complete; numbers have no such end. MN_JSON_BAD: no JSON continues so; the byte is not used. */
mn_json_step mn_json_mend_push(mn_json_mend *m, char c, mn_text *out);
/* Appends what completes the value; what is held is dropped. Nothing where none has begun. */
void mn_json_mend_close(mn_json_mend *m, mn_text *out);

#endif
