/* wrong.h -- wrong calls: each is refused with a status of class CALLER and a message, and the
 * right call after it works. */
#ifndef MINERVA_CHECK_WRONG_H
#define MINERVA_CHECK_WRONG_H
#include "life.h"

/* st is the answer to a wrong call. */
void wrong_blames_caller(check *c, mn_status st, const mn_error *err, const char *what);
/* What an output holds before a call that must leave it as it is: no handle of a plugin. */
void *wrong_unset(void);
/* out: what it holds after the call, which was an error. */
void wrong_keeps(check *c, const void *out, const char *what);
/* Closes a stage on which wrong calls were made; a right call is made first. */
void wrong_close(check *c, stage *s);

/* Makes a wrong call twice, with an mn_error and without: `call` uses the variable err. Returns
 * from the calling function if the rule is over. */
#define WRONG(c, what, call)                                                                       \
    do {                                                                                           \
        mn_error e_ = check_error(), *err = &e_;                                                   \
        check_doing(c, "%s", what);                                                                \
        mn_status st_ = (call);                                                                    \
        wrong_blames_caller(c, st_, &e_, what);                                                    \
        err = NULL;                                                                                \
        check_doing(c, "%s, without an mn_error", what);                                           \
        if (!check_over(c))                                                                        \
            (void)(call);                                                                          \
        if (check_over(c))                                                                         \
            return;                                                                                \
    } while (0)
#endif
