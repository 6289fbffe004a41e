/* profile.c -- mn_session_profile: a session's steps, told unit by unit while somebody asks. The
 * engine runs and measures them (engine/profile.c) and keeps the units until its next step; the
 * wish is the session's, and goes with it to another device. */
#include "session/session.h"

mn_status mn_session_profile(mn_session *s, mn_profile_fn fn, void *arg, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"s", s}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st && fn)
        st = mn_failover_ready(s, err);
    if (!st && fn)
        st = mn_engine_can_profile(s->steps.engine, err);
    if (st)
        return st;
    s->steps.profile = fn;
    s->steps.profile_arg = arg;
    return MN_OK;
}
