/* wrong.c -- see wrong.h. Nothing is kept between calls. */
#include "wrong.h"

void wrong_close(check *c, stage *s) {
    check_doing(c, "a right call ran after wrong ones");
    mn_status st = case_step(s->plan, s->o, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "the right call after wrong ones");
    CHECK(c, !case_breach(s->plan)[0], "%s", case_breach(s->plan));
    stage_close(c, s);
}

void wrong_blames_caller(check *c, mn_status st, const mn_error *err, const char *what) {
    CHECK(c, st, "%s: found MN_OK, expected MN_INVALID", what);
    CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_CALLER,
          "%s: found status 0x%x (%s), expected MN_INVALID", what, (unsigned)st, err->msg);
    CHECK(c, err->msg[0], "%s: found MN_INVALID without a message", what);
}

void *wrong_unset(void) {
    static char unset[64];
    return unset;
}

void wrong_keeps(check *c, const void *out, const char *what) {
    if (out != wrong_unset())
        check_fail(c, "%s: found the output written by a call that failed, expected it as it was",
                   what);
}
