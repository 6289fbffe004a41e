/* failover.c -- a device at fault: one that is lost is quarantined for the whole runtime, one that
 * refuses what it claimed is passed over by this session alone. Either is struck from the session's
 * list, mn_session_place (place.c) chooses among what is left, and the sequences go on from their
 * tokens. */
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

bool mn_failover_give_way(mn_session *s, const mn_device_record *d, mn_status st, mn_error *err) {
    const uint32_t klass = MN_STATUS_CLASS(st);
    if (!d)
        return false;
    mn_fail_plain(err);
    if (klass == MN_CLASS_LOST) {
        lose(s, d, err->msg);
        return true;
    }
    if (klass != MN_CLASS_REFUSE)
        return false;
    if (!has_others(s, d)) {
        mn_fail_in(err, st, "%s", d->name);
        return false;
    }
    pass_over(s, d, err->msg);
    return true;
}

mn_status mn_failover(mn_session *s, mn_status st, mn_error *err) {
    if (st)
        mn_fail_plain(err);
    if (MN_STATUS_CLASS(st) != MN_CLASS_LOST || !s->engine || !s->engine->fault)
        return st;
    const uint64_t begin = mn_now_ns();
    lose(s, s->engine->fault, err->msg);
    mn_session_unplace(s);
    st = mn_session_place(s, err);
    s->stats.restore_s += (double)(mn_now_ns() - begin) * 1e-9;
    return st;
}

mn_status mn_failover_ready(mn_session *s, mn_error *err) {
    return s->engine ? MN_OK : mn_session_place(s, err);
}
