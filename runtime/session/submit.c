/* submit.c -- the functions of a session that any thread may call: requests come in, are aborted,
 * and wake the thread that steps (serve.c). Checks of arguments; the rest is the room's. */
#include "session/session.h"

mn_status mn_session_submit(mn_session *s, const mn_request_params *params, uint64_t *id,
                            mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_request_params p = {.size = sizeof p};
    const mn_arg args[] = {{"s", s}, {"params", params}, {"id", id}, {0}};
    if (!err)
        err = &why;
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, s->model->rt);
    if (!st)
        st = mn_session_draws(s, __func__, err);
    if (!st)
        st = mn_args_take(MN_SIZED_REQUEST_PARAMS, &p, params, err);
    return st ? st : mn_requests_submit(&s->steps.requests, &s->steps.limits, &p, id, err);
}

void mn_session_abort(mn_session *s, uint64_t id) {
    if (s && !mn_pool_is_stranded(s->model->rt->pool))
        mn_requests_abort(&s->steps.requests, id);
}

void mn_session_wake(mn_session *s) {
    if (s && !mn_pool_is_stranded(s->model->rt->pool))
        mn_requests_wake(&s->steps.requests);
}

mn_status mn_session_get_load(const mn_session *s, mn_session_load *out) {
    if (!s || mn_pool_is_stranded(s->model->rt->pool))
        return MN_INVALID;
    mn_session *own = (mn_session *)(uintptr_t)s; /* its lock is no part of what the caller sees */
    const mn_session_load load = mn_requests_load(&own->steps.requests);
    return mn_args_give(MN_SIZED_SESSION_LOAD, out, &load);
}
