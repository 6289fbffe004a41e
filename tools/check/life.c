/* life.c -- see life.h. A stage lives in the rule's function; its plugin, case and plan are
 * freed by stage_close, or with the rule's process when the rule fails. */
#include "life.h"
#include "watch.h"
#include "wide.h"
#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------- */
op_shape life_shape(void) {
    return (op_shape){
        .rows = 6,
        .k = 64,
        .n = 64,
        .n_head = 4,
        .n_head_kv = 2,
        .dim = 32,
        .past = 3,
        .n_seqs = 1,
        .n_expert = 4,
        .n_used = 2,
        .kv_dtype = MN_F32,
    };
}

/* NULL = out of memory. */
static op_case *small_case(uint32_t op) {
    const op_shape shape = life_shape();
    op_case *o = case_random(op, MN_F32, &shape, 7);
    if (!o || !o->failed)
        return o;
    case_free(o);
    return NULL;
}

op_case *life_case(check *c, uint32_t op) {
    op_case *o = small_case(op);
    if (!o)
        check_fail(c, "out of memory for a case of %s", case_op_name(op));
    return o;
}

uint32_t life_node(const op_case *o, uint32_t op) {
    uint32_t i = 0;
    while (i + 1 < o->g.n_nodes && o->n[i].op != op)
        i++;
    return i;
}

static case_on side_of(check_plugin *p) {
    return (case_on){
        .be = p->be,
        .dev = p->dev,
        .queue = p->queue,
        .self = p->api->self,
        .no = &p->no,
    };
}

const mn_op_contract *op_contract(const op_contracts *list, uint32_t i) {
    return (const mn_op_contract *)(const void *)((const char *)list->at +
                                                  (size_t)i * list->stride);
}

static int contains(const op_contracts *list, uint32_t op) {
    for (uint32_t i = 0; i < list->n; i++)
        if (op_contract(list, i)->op == op)
            return 1;
    return 0;
}

/* Asks for the verdicts of a case of op. *out: the case, if no verdict is no; else NULL. */
static mn_status life_try_op(check_plugin *p, uint32_t op, op_case **out, mn_error *err) {
    mn_error no = check_error();
    case_on on = side_of(p);
    op_case *o = small_case(op);
    on.no = &no;
    *out = NULL;
    if (!o)
        return MN_OUT_OF_MEMORY;
    if (case_supported(&on, o)) {
        *out = o;
        return MN_OK;
    }
    case_free(o);
    if (no.status && err)
        *err = no;
    else
        p->no = no;
    return no.status;
}

/* *out NULL with MN_OK: there is none. A device that cannot answer is an error, not a no. */
static mn_status first_case(check_plugin *p, op_case **out, mn_error *err) {
    static const uint32_t order[] = {
        MN_OP_LINEAR,      MN_OP_RMS_NORM,   MN_OP_ADD,     MN_OP_MUL,        MN_OP_GLU,
        MN_OP_ACT,         MN_OP_SCALE,      MN_OP_SOFTCAP, MN_OP_LAYER_NORM, MN_OP_ROPE,
        MN_OP_GATHER_ROWS, MN_OP_ATTENTION,  MN_OP_EMBED,   MN_OP_SAMPLE,     MN_OP_MOE_ROUTE,
        MN_OP_MOE_LINEAR,  MN_OP_MOE_COMBINE};
    op_contracts list = {0};
    *out = NULL;
    mn_status st = p->be->contracts(p->api->self, &list.at, &list.n, &list.stride);
    for (size_t i = 0; i < sizeof order / sizeof order[0] && !st && !*out; i++)
        if (contains(&list, order[i]))
            st = life_try_op(p, order[i], out, err);
    return st;
}

/* ---- stages ---------------------------------------------------------------------------------- */
int stage_device(check *c, stage *s) {
    memset(s, 0, sizeof *s);
    check_host_init(&s->host);
    if (!check_open_device(c, &s->p, &s->host))
        return 0;
    s->on = side_of(&s->p);
    return 1;
}

int stage_case(check *c, stage *s) {
    if (!stage_device(c, s))
        return 0;
    check_doing(c, "contracts and supports ran");
    mn_status st = first_case(&s->p, &s->o, &s->p.err);
    if (check_status(c, st, &s->p.err, "supports"))
        return 0;
    if (s->o)
        return 1;
    check_close(c, &s->p);
    check_skip(c, "the device supports no op in f32 that the check can build a graph of%s",
               check_no_text(&s->p));
    return 0;
}

int stage_plan(check *c, stage *s) {
    if (!stage_case(c, s))
        return 0;
    check_doing(c, "a small graph was compiled");
    mn_status st = case_open(&s->on, s->o, MN_PRECISION_EXACT, &s->plan, &s->p.err);
    return !check_status(c, st, &s->p.err, "compiling a small graph");
}

void stage_close(check *c, stage *s) {
    case_close(s->plan);
    case_free(s->o);
    check_close(c, &s->p);
}

int stage_contracts(check *c, const stage *s, op_contracts *list) {
    *list = (op_contracts){0};
    check_doing(c, "contracts ran");
    mn_status st = s->p.be->contracts(s->p.api->self, &list->at, &list->n, &list->stride);
    return !check_status(c, st, NULL, "contracts");
}

void stage_each_op(check *c, stage *s, stage_fn fn) {
    op_contracts list;
    uint32_t tried = 0;
    if (!stage_contracts(c, s, &list))
        return;
    for (uint32_t i = 0; i < list.n && !check_over(c); i++) {
        const uint32_t op = op_contract(&list, i)->op;
        op_case *o = NULL;
        if (case_op_name(op))
            o = life_case(c, op);
        if (!o)
            continue;
        check_doing(c, "supports met %s", case_op_name(op));
        if (case_supported(&s->on, o)) {
            fn(c, s, o, op);
            tried++;
        }
        case_free(o);
    }
    if (check_over(c))
        return;
    stage_close(c, s);
    if (tried)
        check_found(c, "%u ops", tried);
    else
        check_skip(c, "the device supports no op in f32 that the check can build a graph of%s",
                   check_no_text(&s->p));
}

/* ---- a life ---------------------------------------------------------------------------------- */
/* What is between entry and shutdown. */
static mn_status life_live(check *c, check_plugin *p, mn_error *err) {
    check_doing(c, "device_open ran");
    mn_status st = mn_usual_open(p->be, p->api->self, 0, &p->dev, err);
    if (!st)
        st = mn_usual_queue(p->be, p->dev, &p->queue, err);
    if (st)
        return st;
    check_doing(c, "a small graph was compiled and run");
    op_case *o = NULL;
    st = first_case(p, &o, err);
    if (st || !o)
        return st;
    const case_on on = side_of(p);
    st = case_run(&on, o, MN_PRECISION_EXACT, err);
    case_free(o);
    return st;
}

mn_status life_run(check *c, check_host *host, mn_error *err) {
    check_plugin p = {.host = host};
    mn_entry_fn entry = check_entry(c);
    mn_status st = MN_OK;
    if (!entry)
        return MN_INVALID;
    check_doing(c, "%s ran", MN_ENTRY_NAME);
    watch_begin(c, MN_ENTRY_NAME);
    p.api = entry(&host->api, err);
    watch_end(MN_ENTRY_NAME);
    if (!p.api) {
        if (err && err->status)
            return err->status;
        return MN_INVALID;
    }
    const mn_backend *be = p.api->query(p.api->self, MN_BACKEND_ID);
    p.be = watch_backend(c, check_host_is_newer() ? wide_always(be) : be);
    if (p.be && c->facts->n_devices)
        st = life_live(c, &p, err);
    check_close(c, &p);
    return st;
}
