/* life.c -- see life.h. */
#include "life.h"
#include "watch.h"
#include <string.h>

op_shape life_shape(void) {
    return (op_shape){.rows = 6,
                      .k = 64,
                      .n = 64,
                      .n_head = 4,
                      .n_head_kv = 2,
                      .dim = 32,
                      .past = 3,
                      .n_seqs = 1,
                      .n_expert = 4,
                      .n_used = 2,
                      .kv_dtype = MN_F32};
}

case_on life_on(const check_plugin *p) {
    return (case_on){p->be, p->dev, p->queue, 0};
}

uint32_t life_node(const op_case *o, uint32_t op) {
    uint32_t i = 0;
    while (i + 1 < o->g.n_nodes && o->n[i].op != op)
        i++;
    return i;
}

/* *out NULL with MN_OK: none. A device that cannot answer is an error, not a no. */
static mn_status first_case(const check_plugin *p, op_case **out, mn_error *err) {
    static const uint32_t order[] = {
        MN_OP_LINEAR,      MN_OP_RMS_NORM,   MN_OP_ADD,     MN_OP_MUL,        MN_OP_GLU,
        MN_OP_ACT,         MN_OP_SCALE,      MN_OP_SOFTCAP, MN_OP_LAYER_NORM, MN_OP_ROPE,
        MN_OP_GATHER_ROWS, MN_OP_ATTENTION,  MN_OP_EMBED,   MN_OP_SAMPLE,     MN_OP_MOE_ROUTE,
        MN_OP_MOE_LINEAR,  MN_OP_MOE_COMBINE};
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0;
    op_shape shape = life_shape();
    case_on on = life_on(p);
    mn_status s = p->be->contracts(p->api->self, &table, &n);
    *out = NULL;
    for (size_t i = 0; i < sizeof order / sizeof order[0] && !s; i++)
        for (uint32_t k = 0; k < n && !s; k++) {
            mn_verdict v[CASE_NODES] = {{0}};
            int yes = 1;
            if (table[k][0] != order[i])
                continue;
            *out = case_random(order[i], MN_F32, &shape, 7);
            if (!*out || (*out)->failed)
                return MN_OUT_OF_MEMORY;
            s = on.be->supports(on.dev, &(*out)->g, (*out)->value, v, sizeof v[0], err);
            for (uint32_t j = 0; j < (*out)->g.n_nodes; j++)
                yes &= v[j].verdict != MN_VERDICT_NO;
            if (!s && yes)
                return MN_OK;
            case_free(*out);
            *out = NULL;
        }
    return s;
}

op_case *life_case(check *c, const check_plugin *p) {
    check_doing(c, "contracts and supports ran");
    op_case *o = NULL;
    mn_error err = check_error();
    mn_status s = first_case(p, &o, &err);
    if (s)
        check_fail(c, "supports: found status 0x%x (%s), expected MN_OK", (unsigned)s, err.msg);
    if (!s && !o)
        check_skip(c, "the device says yes to no op in f32 that the check can make a graph of");
    return o;
}

static mn_status live(check *c, check_plugin *p, int *ran, mn_error *err) {
    check_doing(c, "device_open ran");
    mn_status s = p->be->device_open(p->api->self, 0, &p->dev, err);
    if (!s)
        s = p->be->queue_create(p->dev, &p->queue, err);
    if (s)
        return s;
    check_doing(c, "a small graph was compiled and run");
    op_case *o = NULL;
    s = first_case(p, &o, err);
    if (s || !o)
        return s;
    case_on on = life_on(p);
    s = case_run(&on, o, MN_PRECISION_EXACT, err);
    if (!s && ran)
        *ran = 1;
    case_free(o);
    return s;
}

mn_status life_run(check *c, check_host *host, int *ran, mn_error *err) {
    check_plugin p = {.host = host};
    mn_entry_fn entry = check_entry(c);
    mn_status s = MN_OK;
    if (ran)
        *ran = 0;
    if (!entry)
        return MN_INVALID;
    check_doing(c, "%s ran", MN_ENTRY_NAME);
    watch_begin(c, MN_ENTRY_NAME);
    p.api = entry(&host->api, err);
    watch_end(MN_ENTRY_NAME);
    if (!p.api)
        return err && err->status ? err->status : MN_INVALID;
    p.be = watch_backend(c, p.api->query(p.api->self, MN_BACKEND_ID));
    if (p.be && c->facts->n_devices)
        s = live(c, &p, ran, err);
    check_close(c, &p);
    return s;
}
