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

static const char *op_name(uint32_t op) {
    switch (op) {
#define NAME(name, id)                                                                             \
    case id:                                                                                       \
        return #name;
        MN_OPS(NAME)
#undef NAME
    default:
        return "?";
    }
}

/* Rows that a step multiplies with a weight. */
static int64_t rows_of_product(const cu_run *r, const mn_node *n) {
    if (n->op == MN_OP_MOE_LINEAR)
        return cu_elements(r, mnp_in(r->g, n, MN_MOE_LINEAR_EXPERTS));
    return cu_dim(r, mnp_in(r->g, n, 0), 0);
}

/* What a step reads of a weight: all of it, rows of a table, or at most one expert for each
 * pair. */
static double weight_share(const cu_run *r, const mn_node *n, const cu_weight *w) {
    double asked = (double)rows_of_product(r, n);
    double all = (double)w->rows;
    if (n->op == MN_OP_MOE_LINEAR)
        all = (double)(w->rows / w->group_rows);
    else if (n->op != MN_OP_EMBED)
        return 1;
    asked = asked < all ? asked : all;
    if (all > 0)
        return asked / all;
    return 1;
}

static void count_node(const cu_run *r, uint32_t node, mn_profile_unit *to) {
    const mn_node *n = mnp_node(r->g, node);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const int32_t t = mnp_in(r->g, n, i);
        if (t < 0 || mnp_tensor(r->g, t)->role == MN_ROLE_STATE)
            continue;
        const cu_weight *w = cu_weight_of(r, t);
        if (!w) {
            to->bytes += (uint64_t)cu_elements(r, t) * 4;
            continue;
        }
        const mn_tensor *x = mnp_tensor(r->g, t);
        const double bytes = (double)cu_weight_bytes(x, cu_is_matrix(n, i));
        to->bytes += (uint64_t)(bytes * weight_share(r, n, w));
        if (n->op != MN_OP_EMBED && cu_is_matrix(n, i))
            to->flop += 2 * (uint64_t)rows_of_product(r, n) * (uint64_t)(w->group_rows * w->cols);
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        if (mnp_out(r->g, n, i) >= 0)
            to->bytes += (uint64_t)cu_elements(r, mnp_out(r->g, n, i)) * 4;
}

static mn_profile_unit describe_unit(const cu_run *r, const cu_unit *u) {
    mn_profile_unit to = {0};
    int32_t nodes[CU_UNIT_NODES];
    const int n = cu_nodes_of(r, u, nodes);
    uint32_t used = 0;
    to.node = u->node;
    to.n_nodes = (uint32_t)n;
    for (int i = 0; i < n; i++) {
        const char *name = op_name(mnp_node(r->g, (uint32_t)nodes[i])->op);
        const int k = snprintf(to.name + used, sizeof to.name - used, "%s%s", i ? "+" : "", name);
        used += (uint32_t)k;
        if (used >= sizeof to.name)
            used = sizeof to.name - 1;
        count_node(r, (uint32_t)nodes[i], &to);
    }
    return to;
}

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
static mn_status launch_units(cu_run *r, uint32_t from, uint32_t to, uint32_t *last, marks *m,
                              mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = from; i < to && !st; i++) {
        if (cu_is_absorbed(r, i))
            continue;
        st = cu_launch_unit(r, i, *last, err);
        *last = i;
        if (!st)
            st = mark(m, r->s, (launched){(int32_t)i, -1}, err);
    }
    return st;
}

static mn_status launch_alone(cu_run *r, marks *m, mn_error *err) {
    uint32_t last = UINT32_MAX;
    mn_status st = cu_check(cudaEventRecord(m->events[0], r->s), err, "a profile");
    if (!st)
        st = launch_units(r, 0, r->p->n_units, &last, m, err);
    return st ? st : cu_check(cudaStreamSynchronize(r->s), err, "a profile");
}

/* Every member's units up to exchange k, or all: n; marks on the first. */
static mn_status launch_up_to(cu_joint_step *s, uint32_t k, uint32_t n, marks *m, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = s->g->lo; r < s->g->hi && !st; r++) {
        cu_run *run = &s->run[r];
        const uint32_t to = k < n ? run->p->stops[k].unit : run->p->n_units;
        st = cu_choose_member(s->g, r, err);
        if (!st && r == s->g->lo)
            st = launch_units(run, s->unit[r], to, &s->last[r], m, err);
        else if (!st)
            st = cu_launch_some(run, s->unit[r], to, &s->last[r], err);
        s->unit[r] = to;
    }
    return st;
}

static mn_status launch_together(cu_joint_step *s, marks *m, mn_error *err) {
    const uint32_t first = s->g->lo;
    const cudaStream_t stream = s->run[first].s;
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
        st = cu_check(cudaStreamSynchronize(s->run[r].s), err, "a profile");
    return st;
}

/* ---- what is told ---------------------------------------------------------------------------- */
/* A part of the node in front of it: what of its output goes in and comes out. */
static mn_profile_unit describe_exchange(const cu_run *r, const mnp_exchange *e) {
    static const char *const names[] = {"?", "SUM", "GATHER", "TAKE"};
    mn_profile_unit to = {0};
    to.node = e->at ? e->at - 1 : 0;
    to.bytes = 4 * (uint64_t)(cu_elements(r, e->from) + cu_elements(r, e->to));
    snprintf(to.name, sizeof to.name, "%s", names[e->kind < 4 ? e->kind : 0]);
    return to;
}

/* How many units of the run are launched, and exchanges of s, if it is a group's. */
static uint32_t count_launches(const cu_run *r, const cu_joint_step *s) {
    uint32_t sum = 0;
    uint32_t n = 0;
    const mnp_exchange *e = s ? mnp_shard_exchanges(s->plan, &n) : NULL;
    for (uint32_t i = 0; i < r->p->n_units; i++)
        sum += !cu_is_absorbed(r, i);
    for (uint32_t k = 0; k < n; k++)
        sum += cu_is_exchanged(s, &e[k]);
    return sum;
}

/* Room for `all` launches; marks_free also frees what is half made. */
static mn_status marks_make(const mn_device *d, uint32_t all, marks *m, mn_error *err) {
    const uint64_t bytes = (all + 1) * (sizeof(cudaEvent_t) + sizeof(launched));
    mn_status st = MN_OK;
    m->events = cu_new(d, bytes);
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
    cu_delete(d, m->events);
}

/* Runs the step of r, or of s, which r is the first member of: `all` launches, of which the first
 * `room` are described. */
static mn_status measure_step(cu_run *r, cu_joint_step *s, mn_profile_unit *units, uint32_t stride,
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
                                        : describe_unit(r, &r->p->units[l->unit]);
        float ms = 0;
        st = cu_check(cudaEventElapsedTime(&ms, m.events[i], m.events[i + 1]), err, "a profile");
        u.time_ns = (uint64_t)((double)ms * 1e6);
        memcpy((char *)units + (uint64_t)i * stride, &u, stride < sizeof u ? stride : sizeof u);
    }
    marks_free(r->dev, all, &m);
    return st;
}

static mn_status profile_group(cu_group_context *c, uint32_t set, const int64_t *values,
                               mn_profile_unit *units, uint32_t stride, uint32_t *n,
                               mn_error *err) {
    const cu_group *g = cu_group_of(c->base.prog->dev);
    const uint32_t room = *n;
    cudaGraphExec_t execs[CU_MAX_MEMBERS];
    mn_status st = MN_OK;
    for (uint32_t r = g->lo; r < g->hi && !st; r++)
        st = cu_context_begin(c->of[r], set, values, err);
    if (!st && units)
        st = cu_group_get_ready(c, set, values, false, execs, err);
    if (st)
        return st;
    cu_joint_step s = cu_joint_step_of(c, false);
    *n = count_launches(&s.run[g->lo], &s);
    if (!units)
        return MN_OK;
    return measure_step(&s.run[g->lo], &s, units, stride, *n, room, err);
}

static mn_status profile(mn_context *c, uint32_t set, const int64_t *values, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
    const mn_program *p = c->prog;
    const uint32_t room = *n;
    if (cu_is_group(p->dev))
        return profile_group((cu_group_context *)c, set, values, units, stride, n, err);
    mn_status st = cu_context_begin(c, set, values, err);
    if (st)
        return st;
    cu_run r = cu_run_of(c, c->symbol, c->queue->stream);
    *n = count_launches(&r, NULL);
    if (!units)
        return MN_OK;
    st = mnp_check_sizes(p->graph, c->symbol, c->bindings, err);
    return st ? st : measure_step(&r, NULL, units, stride, *n, room, err);
}

const mn_profile cu_profile = {sizeof(mn_profile), 0, profile};
