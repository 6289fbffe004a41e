/* profile.c -- mn.profile/1: a step enqueued unit by unit, each waited for: times are the host's
 * and hold a round trip to the driver. Bytes and operations are computed from sizes of operands. */
#include "ops.h"

static const char *op_name(uint32_t op) {
    static const char *const names[] = {
#define ROW(name, id) [id] = #name,
        MN_OPS(ROW)
#undef ROW
    };
    if (op < sizeof names / sizeof *names && names[op])
        return names[op];
    return "?";
}

/* Rows that a step multiplies with a weight. */
static int64_t rows_of_product(const ocl_run *r, const mn_node *n) {
    if (n->op == MN_OP_MOE_LINEAR)
        return ocl_elements(r, mnp_in(r->g, n, MN_MOE_LINEAR_EXPERTS));
    return ocl_dim(r, mnp_in(r->g, n, 0), 0);
}

static void count_weight(const ocl_run *r, const mn_node *n, uint32_t i, mn_profile_unit *to) {
    const int32_t t = mnp_in(r->g, n, i);
    const mn_tensor *x = mnp_tensor(r->g, (uint32_t)t);
    const ocl_weight *w = ocl_weight_of(r, t);
    const bool matrix = ocl_is_matrix(n, i);
    const int64_t asked = rows_of_product(r, n);
    const int64_t experts = n->op == MN_OP_MOE_LINEAR && matrix ? x->dim[0] : 1;
    int64_t rows = w->rows;
    if (n->op == MN_OP_EMBED)
        rows = asked < rows ? asked : rows;
    else if (asked < experts)
        rows = rows / experts * asked;
    to->bytes += ocl_weight_bytes(r->dev, x, matrix) / (uint64_t)w->rows * (uint64_t)rows;
    if (matrix && n->op != MN_OP_EMBED)
        to->flop += 2 * (uint64_t)(asked * (w->rows / experts) * w->cols);
}

static void count_node(const ocl_run *r, const mn_node *n, mn_profile_unit *to) {
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(r->g, n, i);
        if (t < 0 || mnp_tensor(r->g, (uint32_t)t)->role == MN_ROLE_STATE)
            continue;
        if (mnp_tensor(r->g, (uint32_t)t)->role == MN_ROLE_WEIGHT)
            count_weight(r, n, i, to);
        else
            to->bytes += (uint64_t)ocl_elements(r, t) * 4;
    }
}

static void absorb(const ocl_run *r, int32_t node, const char *name, mn_profile_unit *to) {
    if (node < 0)
        return;
    const size_t used = strlen(to->name);
    snprintf(to->name + used, sizeof to->name - used, "+%s", name);
    to->n_nodes++;
    count_node(r, mnp_node(r->g, (uint32_t)node), to);
}

static mn_profile_unit describe(const ocl_run *r, const ocl_unit *u) {
    const mn_node *n = mnp_node(r->g, u->node);
    mn_profile_unit to = {.node = u->node, .n_nodes = 1};
    count_node(r, n, &to);
    snprintf(to.name, sizeof to.name, "%s", op_name(n->op));
    absorb(r, u->gather, "GATHER_ROWS", &to);
    absorb(r, u->norm, "RMS_NORM", &to);
    absorb(r, u->add, "ADD", &to);
    absorb(r, u->glu, "GLU", &to);
    absorb(r, u->rope_q, "ROPE", &to);
    absorb(r, u->rope_k, "ROPE", &to);
    return to;
}

static mn_status profile(mn_context *c, uint32_t set, const int64_t *values, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
    const mn_program *p = c->prog;
    const mn_host *h = p->dev->plugin->host;
    const uint32_t room = *n;
    mn_status st = ocl_context_begin(c, set, values, err);
    if (st)
        return st;
    *n = p->n_units;
    if (!units)
        return MN_OK;
    ocl_run r = ocl_run_of(c, false, err);
    OCL_TRY(p->dev->cl->Finish(c->queue->cl), err, "a profile");
    uint64_t last = h->now_ns(h->self);
    for (uint32_t i = 0; i < p->n_units; i++) {
        ocl_launch_unit(&r, &p->units[i]);
        ocl_step_flush(&r);
        if (r.status)
            return r.status;
        OCL_TRY(p->dev->cl->Finish(c->queue->cl), err, "a profile");
        mn_profile_unit unit = describe(&r, &p->units[i]);
        const uint64_t now = h->now_ns(h->self);
        unit.time_ns = now - last;
        last = now;
        if (i < room)
            memcpy((char *)units + (uint64_t)i * stride, &unit,
                   stride < sizeof unit ? stride : sizeof unit);
    }
    return MN_OK;
}

const mn_profile ocl_profile = {.size = sizeof(mn_profile), .execute = profile};
