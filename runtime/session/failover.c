/* failover.c -- a device is lost: it is quarantined, the devices are asked again, and the sequences
 * go on from their tokens. One that refuses what it claimed is passed over by this session
 * alone. */
#include "session/session.h"
#include <string.h>

/* The user's list without the device: what is left of it is what may go on. "auto" and "cpu" stay:
 * they are asked anew. */
static void strike(mn_session *s, const mn_device_record *d) {
    mn_text rest = {0};
    for (const char *at = s->request.devices; at;
         at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const mn_str name = {at, strcspn(at, ",")};
        if (mn_registry_device(s->model->rt->registry, name) != d)
            mn_text_printf(&rest, "%s%.*s", rest.len ? "," : "", MN_STR_ARG(name));
    }
    const char *copy =
        rest.failed ? NULL : mn_arena_strndup(&s->names, rest.len ? rest.ptr : "", rest.len);
    if (copy)
        s->request.devices = copy; /* else the device is refused, and a line says so */
    mn_text_free(&rest);
}

static void lose(mn_session *s, const mn_device_record *d, const char *why) {
    mn_registry_quarantine(s->model->rt->registry, d, why);
    mn_text_printf(&s->lost, "%s%s was lost (%s)", s->lost.len ? ", " : "", d->name,
                   *why ? why : "it gave no reason");
    strike(s, d);
}

static void pass_over(mn_session *s, const mn_device_record *d, const char *why) {
    mn_request *r = &s->request;
    mn_text_printf(&s->lost, "%s%s refuses what it claimed (%s)", s->lost.len ? ", " : "", d->name,
                   *why ? why : "it gave no reason");
    if (mn_grow((void **)&s->passed_over, &s->cap_passed_over, r->n_passed_over + 1u,
                sizeof *s->passed_over)) {
        s->passed_over[r->n_passed_over++] = d;
        r->passed_over = s->passed_over;
    }
    strike(s, d);
}

/* Whether the list leaves a choice without the device. */
static bool has_others(const mn_session *s, const mn_device_record *d) {
    for (const char *at = s->request.devices; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (mn_registry_device(s->model->rt->registry, (mn_str){at, strcspn(at, ",")}) != d)
            return true;
    return false;
}

/* The device at fault gives way to others; false = st stands. */
static bool give_way(mn_session *s, const mn_device_record *d, mn_status st, mn_error *err) {
    if (!d)
        return false;
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return lose(s, d, err->msg), true;
    if (MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        return false;
    if (has_others(s, d))
        return pass_over(s, d, err->msg), true;
    return mn_fail_in(err, st, "%s", d->name), false;
}

static mn_status wake_all(mn_session *s, const mn_device_record **fault, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; s->seqs && i < s->n_seq && !st; i++)
        if (s->seqs[i].running)
            st = mn_seq_wake(s, i, err);
    *fault = st ? s->engine->fault : NULL;
    return st;
}

static mn_status report(mn_session *s, mn_status st, mn_error *err) {
    const char *lost = s->lost.ptr ? s->lost.ptr : "";
    if (!s->lost.len)
        return st;
    if (!*s->request.devices)
        return mn_fail(err, MN_NO_DEVICE, "%s, and no other device was named", lost);
    if (st)
        return mn_fail_in(err, st, "%s", lost);
    mn_log(MN_LOG_WARN, "%s; going on with %s", lost, s->device);
    mn_text_free(&s->lost);
    return MN_OK;
}

mn_status mn_failover_place(mn_session *s, mn_error *err) {
    const mn_device_record *fault = NULL;
    mn_status st;
    bool again;
    size_t left;
    mn_registry_devices(s->model->rt->registry, &left);
    do {
        st = *s->request.devices ? mn_session_place(s, &fault, err) : MN_NO_DEVICE;
        if (!st)
            st = wake_all(s, &fault, err);
        again = st && give_way(s, fault, st, err);
        if (st)
            mn_session_unplace(s);
    } while (again && left--);
    return report(s, st, err);
}

mn_status mn_failover(mn_session *s, mn_status st, mn_error *err) {
    if (MN_STATUS_CLASS(st) != MN_CLASS_LOST || !s->engine || !s->engine->fault)
        return st;
    const uint64_t begin = mn_now_ns();
    lose(s, s->engine->fault, err->msg);
    mn_session_unplace(s);
    st = mn_failover_place(s, err);
    s->stats.restore_s += (double)(mn_now_ns() - begin) * 1e-9;
    return st;
}

mn_status mn_failover_ready(mn_session *s, mn_error *err) {
    return s->engine ? MN_OK : mn_failover_place(s, err);
}
