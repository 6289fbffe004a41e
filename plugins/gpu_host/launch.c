/* launch.c -- a program's units as launches of the backend's rows, for one set of symbol values.
 * Holds nothing; the step is the context's. */
#include "gpu_table.h"

mng_run mng_run_of(mn_context *ctx, bool dry, mn_error *err) {
    const mng_context *c = mng_context_of(ctx);
    const mng_program *p = mng_program_of(c->prog);
    mng_run r = {.c = ctx,
                 .p = c->prog,
                 .g = p->graph,
                 .dev = p->dev,
                 .sym = c->symbol,
                 .dry = dry,
                 .err = err};
    if (mng_backend_of(p->dev)->run_begin)
        mng_backend_of(p->dev)->run_begin(&r);
    return r;
}

static void launch(mng_run *r, const mng_unit *u) {
    mng_op_of(mng_backend_of(r->dev), mnp_node(r->g, u->node)->op)->launch(r, u);
}

void mng_launch_unit(mng_run *r, uint32_t i) {
    const mng_backend *b = mng_backend_of(r->dev);
    const mng_unit *u = &mng_program_of(r->p)->units[i];
    if (r->status || (b->unit_absorbed && b->unit_absorbed(r, i)))
        return;
    if (b->unit_begin)
        b->unit_begin(r, i);
    bool views = mng_copy_views(r, u, false);
    launch(r, u);
    views |= mng_copy_views(r, u, true);
    if (b->unit_end)
        b->unit_end(r, i, views);
    if (r->status && r->err && r->err->size >= MNP_UP_TO(mn_error, node))
        r->err->node = u->node;
}

void mng_launch_node(mng_run *r, int32_t node) {
    if (node < 0)
        return;
    const mng_unit alone = {(uint32_t)node, -1, -1, -1, -1, -1, -1, -1, {0}, {0}, NULL};
    launch(r, &alone);
}

mn_status mng_run_units(mn_context *ctx, bool dry, mn_error *err) {
    mng_run r = mng_run_of(ctx, dry, err);
    const mng_program *p = mng_program_of(r.p);
    const mng_backend *b = mng_backend_of(p->dev);
    for (uint32_t i = 0; i < p->n_units && !r.status; i++)
        mng_launch_unit(&r, i);
    if (b->run_flush)
        b->run_flush(&r);
    return r.status;
}

uint32_t mng_nodes_of(const mng_run *r, const mng_unit *u, int32_t *nodes) {
    const mng_backend *b = mng_backend_of(r->dev);
    const int32_t all[] = {u->gather,        u->norm, u->rope_q, u->rope_k,
                           (int32_t)u->node, u->add,  u->glu};
    uint32_t n = 0;
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0)
            nodes[n++] = all[i];
    return b->unit_nodes ? b->unit_nodes(r, u, nodes, n) : n;
}
