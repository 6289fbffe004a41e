/* arithmetic.h -- the floating-point control word and the locale of a thread: rounding, subnormals,
 * traps, and how numbers are parsed. A call into a plugin must not change them; reading them costs
 * some nanoseconds and no system call. */
#ifndef MN_ARITHMETIC_H
#define MN_ARITHMETIC_H
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t control; /* without the flags that arithmetic raises */
    locale_t locale;  /* of the thread */
    const char *numeric;
} mn_arithmetic;

mn_arithmetic mn_arithmetic_now(void);
/* Restores what can be restored. Returns the change as a clause; NULL = nothing has changed. */
const char *mn_arithmetic_restore(const mn_arithmetic *was);
#endif
