/* profile.cu -- mn.profile/1: a step launched unit by unit, without a captured graph, with an event
 * behind each. What kernels of two units overlap in a real step is not seen here: times of small
 * units add up to more than the step's. Bytes and operations are arithmetic over sizes of operands.
 *
 * Events live while the call runs; the context is the caller's. */
#include "group.h"
#include "ops.h"

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
        if (t < 0 || mnp_tensor(r->g, (uint32_t)t)->role == MN_ROLE_STATE)
            continue;
        const cu_weight *w = cu_weight_of(r, t);
        if (!w) {
            to->bytes += (uint64_t)cu_elements(r, t) * 4;
            continue;
        }
        const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
        const double bytes = (double)cu_weight_bytes(x, cu_is_matrix(n, i));
        to->bytes += (uint64_t)(bytes * weight_share(r, n, w));
        if (n->op != MN_OP_EMBED && cu_is_matrix(n, i))
            to->flop += 2 * (uint64_t)rows_of_product(r, n) * (uint64_t)(w->group_rows * w->cols);
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        if (mnp_out(r->g, n, i) >= 0)
            to->bytes += (uint64_t)cu_elements(r, mnp_out(r->g, n, i)) * 4;
}

static mn_profile_unit describe(const cu_run *r, const cu_unit *u) {
    mn_profile_unit to = {};
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

/* Launches all units with an event behind each; events[0] comes first. */
static mn_status launch_all(cu_run *r, cudaEvent_t *events, uint32_t *ran, uint32_t *n,
                            mn_error *err) {
    uint32_t last = UINT32_MAX;
    mn_status st = cu_check(cudaEventRecord(events[0], r->s), err, "a profile");
    *n = 0;
    for (uint32_t i = 0; i < r->p->n_units && !st; i++) {
        if (cu_is_absorbed(r, i))
            continue;
        st = cu_launch_unit(r, i, last, err);
        last = i;
        ran[(*n)++] = i;
        if (!st)
            st = cu_check(cudaEventRecord(events[*n], r->s), err, "a profile");
    }
    if (st)
        return st;
    return cu_check(cudaStreamSynchronize(r->s), err, "a profile");
}

static mn_status profile(mn_context *c, uint32_t set, const int64_t *values, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
    const mn_program *p = c->prog;
    const uint32_t room = *n;
    if (cu_is_group(p->dev)) /* its members wait for each other within a captured step */
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a group of devices has no profile");
    mn_status st = cu_context_begin(c, set, values, err);
    if (st)
        return st;
    cu_run r = cu_run_of(c, c->symbol, c->queue->stream);
    *n = 0;
    for (uint32_t i = 0; i < p->n_units; i++)
        *n += !cu_is_absorbed(&r, i);
    if (!units)
        return MN_OK;
    const uint64_t bytes = (p->n_units + 1) * (sizeof(cudaEvent_t) + sizeof(uint32_t));
    cudaEvent_t *events = (cudaEvent_t *)cu_new(p->dev, bytes);
    if (!events)
        return mnp_fail_memory(err, bytes, "a profile");
    uint32_t *ran = (uint32_t *)(events + p->n_units + 1);
    for (uint32_t i = 0; i <= *n && !st; i++)
        st = cu_check(cudaEventCreate(&events[i]), err, "an event");
    if (!st)
        st = mnp_check_sizes(p->graph, c->symbol, c->bindings, err);
    if (!st)
        st = launch_all(&r, events, ran, n, err);
    for (uint32_t i = 0; i < *n && i < room && !st; i++) {
        mn_profile_unit u = describe(&r, &p->units[ran[i]]);
        float ms = 0;
        st = cu_check(cudaEventElapsedTime(&ms, events[i], events[i + 1]), err, "a profile");
        u.time_ns = (uint64_t)((double)ms * 1e6);
        memcpy((char *)units + (uint64_t)i * stride, &u, stride < sizeof u ? stride : sizeof u);
    }
    for (uint32_t i = 0; i <= p->n_units; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    cu_delete(p->dev, events);
    return st;
}

extern const mn_profile cu_profile = {sizeof(mn_profile), 0, profile};
