/* call_limit.h -- the time limit of calls into a plugin other than steps. */
#ifndef MN_CALL_LIMIT_H
#define MN_CALL_LIMIT_H
#include <stdint.h>

/* what: the function's name in plugin.h. A call that starts no driver and computes nothing gets a
 * part of the limit, at least 30 s; a call that closes something at the end a smaller part, at
 * least 10 s. */
uint64_t mn_call_limit_ns(uint64_t limit_ns, const char *what);
#endif
