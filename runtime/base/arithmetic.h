/* arithmetic.h -- the state of a thread that decides what numbers become: rounding, subnormals,
 * traps, and how texts of numbers are read. A plugin's call leaves it as it was; looking costs some
 * nanoseconds and no system call. */
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
/* Restores what can be restored; returns the change as a clause; NULL = nothing has changed. */
const char *mn_arithmetic_restore(const mn_arithmetic *was);
#endif
