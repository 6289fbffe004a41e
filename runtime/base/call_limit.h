/* call_limit.h -- how long a call into a plugin may last that is no step. */
#ifndef MN_CALL_LIMIT_H
#define MN_CALL_LIMIT_H
#include <stdint.h>

/* what: the function's name in plugin.h. Calls that start no driver and compute nothing, and those
 * after which nothing comes any more, get a part of the limit, but no less than 30 and 10 s. */
uint64_t mn_call_limit_ns(uint64_t limit_ns, const char *what);
#endif
