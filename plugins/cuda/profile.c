/* profile.c -- mn.profile/1: a step launched unit by unit, without a captured graph, with an event
 * behind each. What kernels of two units overlap in a real step is not seen here: times of small
 * units add up to more than the step's. Bytes and operations are arithmetic over sizes of operands.
 *
 * Of a group the first member that is here is measured: its units, and the exchanges between, whose
 * time is that of waiting for the others, too. The step's graphs are made before, since a kernel
 * that is loaded while others wait for it may wait for them.
 *
 * Events live while the call runs; the context is the caller's. */
#include "group_step.h"

/* ---- launches with events -------------------------------------------------------------------- */
/* What was launched: a unit or an exchange of the plan; the other one is -1. */
typedef struct {
    int32_t unit, exchange;
} launched;
/* events[0] comes first, events[i + 1] behind of[i]. */
typedef struct {
    cudaEvent_t *events;
    launched *of;
    uint32_t n;
} marks;

static mn_status mark(marks *m, cudaStream_t s, launched what, mn_error *err) {
    m->of[m->n++] = what;
    return cu_check(cudaEventRecord(m->events[m->n], s), err, "a profile");
}

/* Units [from, to), with marks. */
static mn_status launch_units(mng_run *r, uint32_t from, uint32_t to, marks *m, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = from; i < to && !st; i++) {
        if (cu_is_absorbed(r, i))
            continue;
        st = cu_launch_some(r, i, i + 1, err);
        if (!st)
            st = mark(m, r->step->stream, (launched){(int32_t)i, -1}, err);
    }
    return st;
}

static mn_status launch_alone(mng_run *r, marks *m, mn_error *err) {
    mn_status st = cu_check(cudaEventRecord(m->events[0], r->step->stream), err, "a profile");
    if (!st)
        st = launch_units(r, 0, r->p->base.n_units, m, err);
    if (st)
        return st;
    return cu_check(cudaStreamSynchronize(r->step->stream), err, "a profile");
}

/* Every member's units up to exchange k, or all: n; marks on the first. */
static mn_status launch_up_to(cu_joint_step *s, uint32_t k, uint32_t n, marks *m, mn_error *err) {
    mn_status st = MN_OK;
    CU_EACH_MEMBER (s->g, r, !st) {
        mng_run *run = &s->run[r];
        uint32_t to = run->p->base.n_units;
        if (k < n)
            to = run->p->stops[k].unit;
        st = cu_choose_member(s->g, r, err);
        if (!st && r == s->g->lo)
            st = launch_units(run, s->unit[r], to, m, err);
        else if (!st)
            st = cu_launch_some(run, s->unit[r], to, err);
        s->unit[r] = to;
    }
    return st;
}

static mn_status launch_together(cu_joint_step *s, marks *m, mn_error *err) {
    const uint32_t first = s->g->lo;
    const cudaStream_t stream = s->run[first].step->stream;
    uint32_t n;
    const mnp_exchange *e = mnp_shard_exchanges(s->plan, &n);
    mn_status st = cu_choose_member(s->g, first, err);
    if (!st)
        st = cu_check(cudaEventRecord(m->events[0], stream), err, "a profile");
    for (uint32_t k = 0; k <= n && !st; k++) {
        st = launch_up_to(s, k, n, m, err);
        if (st || k == n || !cu_is_exchanged(s, &e[k]))
            continue;
        st = cu_launch_exchange(s, k, &e[k], err);
        if (!st)
            st = cu_choose_member(s->g, first, err);
        if (!st)
            st = mark(m, stream, (launched){-1, (int32_t)k}, err);
    }
    if (!st)
        st = cu_end_exchanges(s, err);
    for (uint32_t r = first; r < s->g->hi && !st; r++)
        st = cu_check(cudaStreamSynchronize(s->run[r].step->stream), err, "a profile");
    return st;
}

/* ---- what is told ---------------------------------------------------------------------------- */
/* A part of the node in front of it: what of its output goes in and comes out. */
static mn_profile_unit describe_exchange(const mng_run *r, const mnp_exchange *e) {
    static const char *const names[] = {"?", "SUM", "GATHER", "TAKE"};
    mn_profile_unit to = {0};
    to.node = e->at ? e->at - 1 : 0;
    to.bytes = 4 * (uint64_t)(mng_elements(r, e->from) + mng_elements(r, e->to));
    snprintf(to.name, sizeof to.name, "%s", names[e->kind < 4 ? e->kind : 0]);
    return to;
}

/* How many units of the run are launched, and exchanges of s, if it is a group's. */
static uint32_t count_launches(const mng_run *r, const cu_joint_step *s) {
    uint32_t sum = 0;
    uint32_t n = 0;
    const mnp_exchange *e = s ? mnp_shard_exchanges(s->plan, &n) : NULL;
    for (uint32_t i = 0; i < r->p->base.n_units; i++)
        sum += !cu_is_absorbed(r, i);
    for (uint32_t k = 0; k < n; k++)
        sum += cu_is_exchanged(s, &e[k]);
    return sum;
}

/* Room for `all` launches; marks_free also frees what is half made. */
static mn_status marks_make(const mn_device *d, uint32_t all, marks *m, mn_error *err) {
    const uint64_t bytes = (all + 1) * (sizeof(cudaEvent_t) + sizeof(launched));
    mn_status st = MN_OK;
    m->events = mng_new(d, bytes);
    if (!m->events)
        return mnp_fail_memory(err, bytes, "a profile");
    m->of = (launched *)(m->events + all + 1);
    for (uint32_t i = 0; i <= all && !st; i++)
        st = cu_check(cudaEventCreate(&m->events[i]), err, "an event");
    return st;
}

static void marks_free(const mn_device *d, uint32_t all, marks *m) {
    for (uint32_t i = 0; i <= all && m->events; i++)
        if (m->events[i])
            cudaEventDestroy(m->events[i]);
    mng_delete(d, m->events);
}

/* Runs the step of r, or of s, which r is the first member of: `all` launches, of which the first
 * `room` are described. */
static mn_status measure_step(mng_run *r, cu_joint_step *s, mn_profile_unit *units, uint32_t stride,
                              uint32_t all, uint32_t room, mn_error *err) {
    uint32_t n_exchanges = 0;
    const mnp_exchange *e = s ? mnp_shard_exchanges(s->plan, &n_exchanges) : NULL;
    marks m = {0};
    mn_status st = marks_make(r->dev, all, &m, err);
    if (!st)
        st = s ? launch_together(s, &m, err) : launch_alone(r, &m, err);
    for (uint32_t i = 0; i < m.n && i < room && !st; i++) {
        const launched *l = &m.of[i];
        mn_profile_unit u = l->unit < 0 ? describe_exchange(r, &e[l->exchange])
                                        : mng_describe_unit(r, &r->p->base.units[l->unit]);
        float ms = 0;
        st = cu_check(cudaEventElapsedTime(&ms, m.events[i], m.events[i + 1]), err, "a profile");
        u.time_ns = (uint64_t)((double)ms * 1e6);
        memcpy((char *)units + (uint64_t)i * stride, &u, stride < sizeof u ? stride : sizeof u);
    }
    marks_free(r->dev, all, &m);
    return st;
}

static mn_status profile_group(cu_group_context *c, const mn_step *step, mn_profile_unit *units,
                               uint32_t stride, uint32_t *n, mn_error *err) {
    const cu_group *g = cu_group_of_context(c);
    const uint32_t room = *n;
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = MN_OK;
    CU_EACH_MEMBER (g, r, !st)
        st = mng_context_begin(c->of[r], step, err);
    if (!st && units)
        st = cu_group_get_ready(c, step, false, execs, err);
    if (st)
        return st;
    cu_joint_step s = cu_joint_step_of(c, false);
    *n = count_launches(&s.run[g->lo], &s);
    if (!units)
        return MN_OK;
    return measure_step(&s.run[g->lo], &s, units, stride, *n, room, err);
}

static mn_status profile(mn_context *c, const mn_step *step, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
    const uint32_t room = *n;
    if (cu_is_group(c->base.prog->base.dev))
        return profile_group((cu_group_context *)c, step, units, stride, n, err);
    mn_status st = mng_context_begin(c, step, err);
    if (st)
        return st;
    c->stream = c->base.queue->stream;
    mng_run r = mng_run_of(c, false, err);
    *n = count_launches(&r, NULL);
    if (!units)
        return MN_OK;
    st = mng_check_sizes(c, err);
    if (st)
        return st;
    return measure_step(&r, NULL, units, stride, *n, room, err);
}

const mn_profile cu_profile = {sizeof(mn_profile), 0, profile};
