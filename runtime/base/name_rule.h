/* name_rule.h -- PATTERN=VALUE of a user: a regular expression (PCRE2) that is searched in names of
 * tensors. Memory is the library's, so that it counts and can fail like any other. */
#ifndef MN_NAME_RULE_H
#define MN_NAME_RULE_H
#include "base/base.h"

typedef struct {
    mn_str text; /* the whole, the caller's: for messages */
    mn_str value;
    void *code; /* the compiled pattern */
    void *data; /* of a search */
    bool used;  /* some name matched */
} mn_name_rule;

/* Reads "PATTERN=VALUE": the value begins behind the last '=', because a pattern may contain '='.
 * like: an example for the message. MN_INVALID: there is no '=', no pattern, or it is no regular
 * expression. Freed in any case. */
mn_status mn_name_rule_read(mn_str text, const char *like, mn_name_rule *out, mn_error *err);
/* Whether the pattern is found in the name, which marks it as used. MN_INVALID: the search takes
 * too long. */
mn_status mn_name_rule_find(mn_name_rule *r, mn_str name, bool *found, mn_error *err);
void mn_name_rule_free(mn_name_rule *r);
#endif
