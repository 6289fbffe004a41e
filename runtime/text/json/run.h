/* run.h -- JSON that comes byte by byte: whether it is still JSON, and the characters of a string
 * without its escapes. Only the nesting is kept. */
#ifndef MN_JSON_RUN_H
#define MN_JSON_RUN_H
#include "base/base.h"

#define MN_JSON_RUN_DEPTH 256 /* of lists and objects; deeper nesting is MN_JSON_BAD */

/* What is expected next; the numbers stand in the order of their characters. */
typedef enum {
    MN_JSON_VALUE,
    MN_JSON_FIRST_VALUE, /* or ] */
    MN_JSON_FIRST_KEY,   /* or } */
    MN_JSON_KEY,
    MN_JSON_COLON,
    MN_JSON_AFTER, /* a comma or the end of what is open */
    MN_JSON_STRING,
    MN_JSON_ESCAPE,
    MN_JSON_HEX,
    MN_JSON_WORD, /* true, false, null */
    MN_JSON_MINUS,
    MN_JSON_ZERO,
    MN_JSON_DIGITS,
    MN_JSON_POINT,
    MN_JSON_FRACTION,
    MN_JSON_E,
    MN_JSON_E_SIGN,
    MN_JSON_E_DIGITS,
    MN_JSON_DONE
} mn_json_state;

typedef enum { MN_JSON_MORE, MN_JSON_END, MN_JSON_BAD } mn_json_step;

/* {0}: before a value. Plain data. */
typedef struct {
    mn_json_state state;
    bool in_key;      /* the string is a key */
    uint16_t at;      /* digits of an escape, letters of a word */
    const char *word; /* the rest of true, false or null */
    uint16_t depth;   /* open lists and objects */
    uint8_t is_object[MN_JSON_RUN_DEPTH];
} mn_json_run;

/* MN_JSON_END with the last byte of the value; a number has none (mn_json_run_whole). MN_JSON_BAD:
 * no JSON can begin so; the run is not used further. Bytes from 0x80 on are taken in strings. */
mn_json_step mn_json_run_push(mn_json_run *r, char c);
/* A whole value was pushed; white space behind it is MN_JSON_BAD. */
bool mn_json_run_whole(const mn_json_run *r);

/* The inside of a string, whose syntax a run checks. {0}: at its beginning. */
typedef struct {
    uint8_t left;  /* hexadecimal digits to come */
    bool escape;   /* behind a backslash */
    uint32_t code; /* of \u */
    uint32_t high; /* the first half of a surrogate pair; 0 = none */
} mn_json_chars;

/* The next byte of the inside; returns how many bytes of out it made: 0 inside an escape. Half a
 * surrogate pair becomes U+FFFD. */
int mn_json_chars_push(mn_json_chars *s, char c, char out[8]);

#endif
