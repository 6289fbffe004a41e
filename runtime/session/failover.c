/* failover.c -- a device at fault: one that is lost is quarantined for the whole runtime, one that
 * refuses what it claimed is passed over by this session alone. Either is struck from the session's
 * list, mn_session_place (place.c) chooses among what is left, and the sequences go on from their
 * tokens. */
#include "session/session.h"
#include <string.h>

/* The first name of a list; what follows it, NULL = nothing. */
static const char *next_name(const char *list, mn_str *name) {
    *name = (mn_str){list, strcspn(list, ",")};
    return list[name->len] ? list + name->len + 1 : NULL;
}

static bool names_device(const mn_session *s, mn_str name, const mn_device_record *d) {
    return mn_registry_device(s->model->rt->registry, name) == d;
}

/* The user's list without the device: what is left of it is what may go on. "auto" and "cpu" stay:
 * they are asked anew. */
static void strike(mn_session *s, const mn_device_record *d) {
    mn_text rest = {0};
    mn_str name;
    for (const char *list = s->request.devices; list;) {
        list = next_name(list, &name);
        if (!names_device(s, name, d))
            mn_text_printf(&rest, "%s%.*s", rest.len ? "," : "", MN_STR_ARG(name));
    }
    const char *copy = NULL;
    if (!rest.failed)
        copy = mn_arena_strndup(&s->names, rest.len ? rest.ptr : "", rest.len);
    if (copy)
        s->request.devices = copy; /* else the device is refused, and a line says so */
    mn_text_free(&rest);
}

/* "cuda:0 was lost (...)", for the line that says what goes on instead. */
static void note_loss(mn_session *s, const mn_device_record *d, const char *what, const char *why) {
    const char *comma = s->lost.len ? ", " : "";
    const char *reason = *why ? why : "it gave no reason";
    mn_text_printf(&s->lost, "%s%s %s (%s)", comma, d->name, what, reason);
}

static void lose(mn_session *s, const mn_device_record *d, const char *why) {
    mn_registry_quarantine(s->model->rt->registry, d, why);
    note_loss(s, d, "was lost", why);
    strike(s, d);
}

static void pass_over(mn_session *s, const mn_device_record *d, const char *why) {
    mn_request *r = &s->request;
    void *list = s->passed_over;
    note_loss(s, d, "refuses what it claimed", why);
    if (mn_grow(&list, &s->cap_passed_over, r->n_passed_over + 1u, sizeof *s->passed_over)) {
        s->passed_over = list;
        s->passed_over[r->n_passed_over++] = d;
        r->passed_over = s->passed_over;
    }
    strike(s, d);
}

/* Whether the list leaves a choice without the device. */
static bool has_others(const mn_session *s, const mn_device_record *d) {
    mn_str name;
    for (const char *list = s->request.devices; list;) {
        list = next_name(list, &name);
        if (!names_device(s, name, d))
            return true;
    }
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

/* The error of a device's call begins with the device's name, if it does not have it. */
static void name_device(mn_session *s, mn_status st, mn_error *err) {
    const mn_device_record *d = s->steps.engine ? s->steps.engine->failed : NULL;
    if (s->steps.engine)
        s->steps.engine->failed = NULL;
    if (!st || !d || st == MN_CANCELLED || !err || strstr(err->msg, d->name))
        return;
    if (!err->status)
        err->status = st;
    mn_fail_in(err, st, "%s", d->name);
}

mn_status mn_failover(mn_session *s, mn_status st, mn_error *err) {
    if (st)
        mn_fail_plain(err);
    if (MN_STATUS_CLASS(st) != MN_CLASS_LOST)
        name_device(s, st, err);
    if (MN_STATUS_CLASS(st) != MN_CLASS_LOST || !s->steps.engine || !s->steps.engine->fault)
        return st;
    const uint64_t begin = mn_now_ns();
    lose(s, s->steps.engine->fault, err->msg);
    mn_session_unplace(s);
    st = mn_session_place(s, err);
    s->steps.stats.restore_s += (double)(mn_now_ns() - begin) * 1e-9;
    return st;
}

mn_status mn_failover_ready(mn_session *s, mn_error *err) {
    return s->steps.engine ? MN_OK : mn_session_place(s, err);
}
