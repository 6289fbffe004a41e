/* strict.h -- what cJSON and strtod accept and Python's json does not, and members of one name. */
#ifndef MN_JSON_STRICT_H
#define MN_JSON_STRICT_H
#include "base/base.h"

struct cJSON;
/* Whether all of text is one number of RFC 8259: no "01", "1." or "+1". */
bool mn_json_number(mn_str text);
/* Where the first number stands, outside of strings, that is none; json.len: there is none. */
size_t mn_json_bad_number(mn_str json);
/* In all objects of the tree: of members with one name the last stays, in the place of the first.
 * false: out of memory. */
bool mn_json_keep_last(struct cJSON *tree);
#endif
