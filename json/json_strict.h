/* json_strict.h -- what cJSON accepts and neither RFC 8259 nor Python does: other numbers, and of
 * members with one name the first. The functions keep no state: any thread. */
#ifndef MINERVA_JSON_STRICT_H
#define MINERVA_JSON_STRICT_H
#include <cjson/cJSON.h>
#include <stddef.h>

/* Whether all n bytes are one number of RFC 8259: no "01", "1." or "+1". 1 or 0. */
int json_is_number(const char *text, size_t n);

/* Where the first number stands that RFC 8259 does not allow ("01", "1.", "1e"), and its length; n,
 * and 0: there is none. What else is wrong with the text is cJSON's to say. */
size_t json_bad_number(const char *text, size_t n, size_t *length);

/* In all objects of the tree: of members with one name the last stays, in the place of the first,
 * as in Python and JavaScript. 0: out of memory. */
int json_keep_last(cJSON *tree);
#endif
