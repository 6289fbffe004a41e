/* profile.c -- mn.profile/1: a step launched unit by unit, each waited for: times are the host's
 * and hold a round trip to the driver. A backend whose events have times has a profile of its own
 * with the same descriptions. Bytes and operations are computed from sizes of operands. */
#include "gpu_table.h"
#include <stdio.h>

/* ---- what a unit reads and computes ---------------------------------------------------------- */
/* Rows that a step multiplies with a weight. */
static int64_t rows_of_product(const mng_run *r, const mn_node *n) {
    if (n->op == MN_OP_MOE_LINEAR)
        return mng_elements(r, mnp_in(r->g, n, MN_MOE_LINEAR_EXPERTS));
    return mng_dim(r, mnp_in(r->g, n, 0), 0);
}

/* What a step reads of a weight: all of it, rows of a table, or at most one expert for each
 * pair. */
static double weight_share(const mng_run *r, const mn_node *n, const mng_weight *w) {
    double asked = (double)rows_of_product(r, n);
    double all = (double)w->rows;
    if (n->op == MN_OP_MOE_LINEAR)
        all = (double)(w->rows / w->group_rows);
    else if (!mnp_reads_rows(n->op))
        return 1;
    asked = asked < all ? asked : all;
    return all > 0 ? asked / all : 1;
}

static void count_weight(const mng_run *r, const mn_node *n, uint32_t i, mn_profile_unit *to) {
    const int32_t t = mnp_in(r->g, n, i);
    const mng_weight *w = mng_weight_of(r, t);
    const bool matrix = mng_is_matrix(n, i);
    const uint64_t bytes = mng_weight_bytes(r->dev, mnp_tensor(r->g, (uint32_t)t), matrix);
    to->bytes += (uint64_t)((double)bytes * weight_share(r, n, w));
    if (matrix && !mnp_reads_rows(n->op))
        to->flop += 2 * (uint64_t)rows_of_product(r, n) * (uint64_t)(w->group_rows * w->cols);
}

static void count_node(const mng_run *r, const mn_node *n, mn_profile_unit *to) {
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const int32_t t = mnp_operand(r->g, n, i);
        if (t < 0 || mnp_tensor(r->g, (uint32_t)t)->role == MN_ROLE_STATE)
            continue;
        if (mnp_tensor(r->g, (uint32_t)t)->role == MN_ROLE_WEIGHT)
            count_weight(r, n, i, to);
        else
            to->bytes += (uint64_t)mng_elements(r, t) * 4;
    }
}

mn_profile_unit mng_describe_unit(const mng_run *r, const mng_unit *u) {
    int32_t nodes[MNG_UNIT_NODES];
    const uint32_t n = mng_nodes_of(r, u, nodes);
    mn_profile_unit to = {.node = u->node, .n_nodes = n};
    for (uint32_t i = 0; i < n; i++) {
        const mn_node *node = mnp_node(r->g, (uint32_t)nodes[i]);
        const size_t used = strlen(to.name);
        snprintf(to.name + used, sizeof to.name - used, "%s%s", i ? "+" : "",
                 mnp_op_name(node->op));
        count_node(r, node, &to);
    }
    return to;
}

/* ---- a step ---------------------------------------------------------------------------------- */
static bool is_absorbed(const mng_run *r, uint32_t i) {
    const mng_backend *b = mng_backend_of(r->dev);
    return b->unit_absorbed && b->unit_absorbed(r, i);
}

/* One unit, and the wait for it. */
static mn_status run_unit(mng_run *r, uint32_t i) {
    const mng_backend *b = mng_backend_of(r->dev);
    mng_launch_unit(r, i);
    if (b->run_flush)
        b->run_flush(r);
    return r->status ? r->status : b->queue_finish(mng_context_of(r->c)->queue, r->err);
}

static mn_status profile(mn_context *ctx, const mn_step *step, mn_profile_unit *units,
                         uint32_t stride, uint32_t *n, mn_error *err) {
    const mng_context *c = mng_context_of(ctx);
    const mng_program *p = mng_program_of(c->prog);
    const mn_host *h = mng_device_of(p->dev)->host;
    const uint32_t room = *n;
    mn_status st = mng_context_begin(ctx, step, err);
    if (!st)
        st = mng_check_sizes(ctx, err);
    if (st)
        return st;
    mng_run r = mng_run_of(ctx, false, err);
    *n = 0;
    for (uint32_t i = 0; i < p->n_units; i++)
        *n += !is_absorbed(&r, i);
    if (!units)
        return MN_OK;
    st = mng_backend_of(p->dev)->queue_finish(c->queue, err);
    uint64_t last = h->now_ns(h->self);
    uint32_t done = 0;
    for (uint32_t i = 0; i < p->n_units && !st; i++) {
        if (is_absorbed(&r, i))
            continue;
        st = run_unit(&r, i);
        mn_profile_unit unit = mng_describe_unit(&r, &p->units[i]);
        const uint64_t now = h->now_ns(h->self);
        unit.time_ns = now - last;
        last = now;
        if (!st && done < room)
            memcpy((char *)units + (uint64_t)done * stride, &unit,
                   stride < sizeof unit ? stride : sizeof unit);
        done++;
    }
    return st;
}

const mn_profile mng_profile = {.size = sizeof(mn_profile), .execute = profile};
