/* place.c -- puts a session on devices, at first and after a loss: the choice among them, and what
 * a session has per engine: the engine, page tables, the ring of steps. All of it goes with
 * mn_session_unplace; sequences keep their tokens, from which the next engine computes them again.
 * A device at fault gives way to others (failover.c). */
#include "session/session.h"
#include <stdio.h>
#include <string.h>

/* The device of the segment, unless an earlier one has it, too. */
static void add_device(mn_text *list, const mn_placement *p, uint32_t segment) {
    const uint32_t offer = p->segments[segment].offer;
    for (uint32_t i = 0; i < segment; i++)
        if (p->segments[i].offer == offer)
            return;
    mn_text_printf(list, "%s%s", list->len ? "," : "", p->offers[offer].record->name);
}

/* What mn_session_get_info says of the choice, in memory that lives as long as the session. */
static mn_status describe_choice(mn_session *s, mn_error *err) {
    const mn_placement *p = &s->placement;
    const mn_device_info *info = &p->offers[p->chosen].record->info;
    mn_text list = {0};
    for (uint32_t i = 0; i < p->n_segments; i++)
        add_device(&list, p, i);
    s->device = list.failed ? NULL : mn_arena_strndup(&s->names, list.ptr, list.len);
    s->description =
        mn_arena_strndup(&s->names, info->name, strnlen(info->name, sizeof info->name));
    s->why = mn_arena_strndup(&s->names, p->why, strlen(p->why));
    mn_text_free(&list);
    return s->device && s->description && s->why ? MN_OK : mn_fail_memory(err, 128);
}

/* Several segments leave nothing to run ahead of (engine.h). */
static uint32_t ring_size(const mn_session *s) {
    const mn_placement *p = &s->placement;
    if (p->n_segments > 1)
        return 1;
    return mn_steps_ahead(p->offers[p->chosen].record, &s->request);
}

/* Before anything is loaded: the memory that each device will be asked for. */
static void log_memory(const mn_session *s) {
    static const double mib = 1048576;
    const mn_placement *p = &s->placement;
    for (uint32_t i = 0; i < p->n_segments; i++) {
        const mn_segment *g = &p->segments[i];
        const mn_offer *o = &p->offers[g->offer];
        char weights[64] = "weights in the model's files";
        if (g->shares)
            snprintf(weights, sizeof weights, "weights that another session has there");
        else if (g->estimate.weights)
            snprintf(weights, sizeof weights, "weights %.1f MiB",
                     (double)g->estimate.weights / mib);
        char room[64] = "";
        if (o->free_bytes)
            snprintf(room, sizeof room, " of %.0f MiB that are free", (double)o->free_bytes / mib);
        mn_log(MN_LOG_INFO, "%s: loading; %s, KV cache %.1f MiB, at most %.1f MiB in all%s",
               o->record->name, weights, (double)g->kv_bytes / mib, (double)g->need / mib, room);
    }
}

/* What the output device's plugin is too old for, the first device of the choice whose plugin is
 * not draws. Without such a device requests are refused that need it. */
static mn_status add_sampler(mn_session *s, mn_error *err) {
    const mn_placement *p = &s->placement;
    const mn_offer *last = &p->offers[p->segments[p->n_segments - 1].offer];
    const uint32_t newest = mn_op_find(MN_OP_SAMPLE)->contract;
    const mn_model_graph *g = NULL;
    const uint32_t end = MN_GRAPH_SAMPLERS + (s->steps.graph->tells ? MN_GRAPH_TELLS : 0);
    if (!s->draws || last->sample_contract >= newest)
        return MN_OK;
    mn_status st =
        mn_model_graph_divided(s->model, s->steps.n_ctx, end, s->steps.graph->division, &g, err);
    for (uint32_t i = 0; i < p->n_offers && !st && !s->steps.engine->sampler; i++) {
        const mn_offer *o = &p->offers[i];
        mn_error why = MN_ERROR_INIT;
        if (o == last || !o->device || !o->asked || o->sample_contract < newest)
            continue;
        const mn_status made = mn_engine_make_sampler(s->steps.engine, o, g, &why);
        mn_log(MN_LOG_INFO,
               "%s knows contract %u of SAMPLE of %u: samplers that need more run on %s%s%s",
               last->record->name, last->sample_contract, newest, o->record->name, made ? ": " : "",
               made ? why.msg : "");
        if (MN_STATUS_CLASS(made) == MN_CLASS_LOST)
            st = mn_fail(err, made, "%s: %s", o->record->name, why.msg);
    }
    return st;
}

/* Without host memory for states the session computes the same. */
static mn_status open_host(mn_session *s, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    if (s->model->rt->ranks)
        s->steps.kv.most_host = 0; /* a page has its parts in other processes */
    const mn_status st = mn_host_open(&s->steps.kv, &why);
    if (MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return mn_fail(err, st, "%s", why.msg);
    if (st)
        mn_log(MN_LOG_INFO, "cache_host is not used: %s", why.msg);
    return MN_OK;
}

/* Without the files of cache_dir the session computes the same. Where the folder cannot be used
 * from the start, it is an error of the caller's; where pages cannot be moved, or another device
 * has taken over, a line says that there are none. */
static mn_status open_files(mn_session *s, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    const mn_status st = mn_session_open_files(s, &why);
    if (!st || MN_STATUS_CLASS(st) == MN_CLASS_LOST)
        return st ? mn_fail(err, st, "%s", why.msg) : MN_OK;
    if (MN_STATUS_CLASS(st) == MN_CLASS_INPUT && s->n_placed == 1)
        return mn_fail(err, st, "%s", why.msg);
    mn_log(MN_LOG_WARN, "cache_dir is not used: %s", why.msg);
    return MN_OK;
}

/* A graph of the session's with divided experts. */
static mn_status divide_graph(void *arg, mn_division division, const mn_model_graph **out,
                              mn_error *err) {
    const mn_session *s = arg;
    return mn_model_graph_divided(s->model, s->steps.n_ctx, s->end, division, out, err);
}

/* The first choice may divide experts; later ones, after a loss, keep the graph, whose order of
 * sums is the session's. */
static mn_status choose_devices(mn_session *s, mn_error *err) {
    mn_registry *reg = s->model->rt->registry;
    const mn_divider divider = {divide_graph, s};
    const mn_model_graph **g = &s->steps.graph;
    const bool is_first = s->n_placed == 1 && !s->sums_inputs && !(*g)->head;
    if (!is_first)
        return mn_negotiate_kv(reg, *g, &s->request, &s->placement, err);
    const mn_status st = mn_negotiate_divided(reg, g, &divider, &s->request, &s->placement, err);
    s->steps.limits.graph = *g;
    return st;
}

/* One choice and its engine. *fault: the device that was lost, or that refused what it claimed;
 * NULL = none did. What a failure leaves behind is mn_session_unplace's. */
static mn_status place_once(mn_session *s, const mn_device_record **fault, mn_error *err) {
    *fault = NULL;
    s->n_placed++;
    mn_status st = choose_devices(s, err);
    if (!st)
        st = mn_negotiate_streams(&s->placement, s->steps.graph, &s->request, err);
    if (!st)
        st = describe_choice(s, err);
    if (st)
        return st;
    if (s->sums_inputs)
        st = mn_placement_cut(&s->placement, s->steps.graph, err);
    if (st)
        return st;
    s->steps.n_batch = (uint32_t)s->placement.symbol_max[MN_SYM_TOKENS];
    log_memory(s);
    const uint32_t ring = ring_size(s);
    st = mn_engine_create(&s->placement, s->steps.graph, ring, &s->steps.engine, fault, err);
    st = mn_canonical_settle(s->model->canonical, true, st, err); /* all weights were read */
    if (st == MN_IO_ERROR)
        *fault = NULL; /* no other device can do better */
    if (!st)
        st = mn_steps_place(&s->steps, ring, err);
    if (!st)
        st = open_host(s, err);
    if (!st)
        st = open_files(s, err);
    if (!st)
        st = add_sampler(s, err);
    if (st && s->steps.engine)
        *fault = *fault ? *fault : s->steps.engine->fault;
    if (!st)
        st = mn_drafts_place(&s->steps.drafts, s->steps.engine, s->model, s->steps.n_ctx, err);
    if (!st)
        atomic_store(&s->steps.limits.max_positions,
                     mn_kv_max_positions(&s->steps.kv, s->steps.n_batch, s->steps.ring_size > 1));
    if (!st)
        atomic_store(&s->steps.limits.refused, 0);
    return st;
}

void mn_session_unplace(mn_session *s) {
    mn_steps_unplace(&s->steps);
    mn_placement_free(&s->placement);
}

/* ---- until a device stands ------------------------------------------------------------------- */
/* *fault: the device that was lost meanwhile. */
static mn_status wake_all(mn_session *s, const mn_device_record **fault, mn_error *err) {
    const mn_status st = mn_steps_wake(&s->steps, err);
    *fault = st ? s->steps.engine->fault : NULL;
    return st;
}

/* After the last attempt: one line where the session goes on with other devices; else st, with what
 * was lost on the way. */
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

mn_status mn_session_place(mn_session *s, mn_error *err) {
    const mn_device_record *fault = NULL;
    mn_status st;
    bool again;
    size_t left; /* every device gives way once at most */
    mn_registry_devices(s->model->rt->registry, &left);
    left += MN_MAX_GROUPS;
    do {
        st = MN_NO_DEVICE;
        if (*s->request.devices)
            st = place_once(s, &fault, err);
        if (!st)
            st = wake_all(s, &fault, err);
        again = st && mn_failover_give_way(s, fault, st, err);
        if (st)
            mn_session_unplace(s);
    } while (again && left--);
    return report(s, st, err);
}
