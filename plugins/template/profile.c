/* profile.c -- mn.profile/1, optional: where the time of a step goes (minerva bench --profile). A
 * step runs as execute runs it; behind each unit the clock is read. Here a unit is one node, and
 * everything is synchronous. A GPU would put a timestamp event behind each kernel or fused group,
 * on the same queue, and read them when the step is over; a captured graph is launched unit by
 * unit. */
#include "template.h"

/* The plugin's word for a unit, shown to users: of a fused one "NORM+LINEAR+GLU". */
static const char *name_of(uint32_t op) {
    static const char *const names[] = {
#define ROW(name, id) [id] = #name,
        MN_OPS(ROW)
#undef ROW
    };
    if (op < sizeof names / sizeof *names && names[op])
        return names[op];
    return "?";
}

/* By arithmetic: what has to be read and written at least, whatever caches do. */
static uint64_t bytes_of(const t_operand *o) {
    if (o->w)
        return (uint64_t)o->w->rows * (uint64_t)o->w->cols * o->w->elem;
    if (o->x)
        return (uint64_t)o->n * sizeof(float);
    return 0;
}

/* 2 for a multiplication and an addition; only of products, since nothing else comes near the
 * device's peak. 0 = not told. */
static uint64_t flop_of(uint32_t op, const t_call *c) {
    uint64_t flop = 0;
    if (op != MN_OP_LINEAR)
        return 0;
    for (uint32_t j = MN_LINEAR_WEIGHT; j < c->n_in && j < T_MAX_IN; j += 2)
        if (c->in[j].w)
            flop += 2 * (uint64_t)c->in[0].first * (uint64_t)c->in[j].w->rows *
                    (uint64_t)c->in[j].w->cols;
    return flop;
}

/* Called by t_execute when a node is done. Units beyond the room of the caller are counted, not
 * written; elements of a newer or older host lie `stride` bytes apart. */
void t_profile_node(t_profiling *p, const mn_host *h, uint32_t node, uint32_t op, const t_call *c) {
    const uint64_t now = h->now_ns(h->self);
    mn_profile_unit u = {.node = node, .n_nodes = 1, .time_ns = now - p->last_ns};
    p->last_ns = now;
    for (uint32_t j = 0; j < T_MAX_IN; j++)
        u.bytes += bytes_of(&c->in[j]);
    for (uint32_t j = 0; j < T_MAX_LINEAR; j++)
        u.bytes += bytes_of(&c->out[j]);
    u.flop = flop_of(op, c);
    strncpy(u.name, name_of(op), sizeof u.name - 1);
    if (p->n < p->room)
        memcpy((char *)p->units + (uint64_t)p->n * p->stride, &u,
               p->stride < sizeof u ? p->stride : sizeof u);
    p->n++;
}

static mn_status execute(mn_context *c, const mn_step *in, mn_profile_unit *units, uint32_t stride,
                         uint32_t *n, mn_error *err) {
    const mn_host *h = c->prog->dev->plugin->host;
    if (!MN_HAS(mn_host, h, now_ns))
        return t_fail(err, MN_UNSUPPORTED, ~0u, "a profile needs the host's clock");
    mn_step step;
    mn_status s = t_see_step(c, in, &step, err);
    if (s)
        return s;
    if (!units) { /* the number alone; nothing is run */
        *n = c->prog->hi - c->prog->lo;
        return MN_OK;
    }
    t_profiling p = {.units = units, .stride = stride, .room = *n, .last_ns = h->now_ns(h->self)};
    c->profiling = &p;
    s = t_execute(c, &step, NULL, err);
    c->profiling = NULL;
    if (!s)
        *n = p.n;
    return s;
}

const mn_profile t_profile = {.size = sizeof t_profile, .execute = execute};
