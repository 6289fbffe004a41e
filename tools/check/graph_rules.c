/* graph_rules.c -- group graph: graphs of a later minor, or of none. What the plugin does not know
 * it refuses, by verdict and by compile; what it does know it still runs. */
#include "fence.h"
#include "life.h"
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes and strides ----------------------------------------------------------------------- */
typedef struct {
    check_host host;
    check_plugin p;
    op_case *o;
} stage;

static int stage_open(check *c, stage *s) {
    check_host_init(&s->host);
    s->o = NULL;
    if (!check_open_device(c, &s->p, &s->host))
        return 0;
    s->o = life_case(c, &s->p);
    if (!s->o)
        check_close(c, &s->p);
    return s->o != NULL;
}
static void stage_close(check *c, stage *s) {
    case_free(s->o);
    check_close(c, &s->p);
}

/* Every claimed op: fn(c, stage, case, op) on a small case that the device says yes to. */
typedef void (*each_fn)(check *c, stage *s, op_case *o, uint32_t op);
static void each_op(check *c, each_fn fn) {
    stage s;
    op_shape shape = life_shape();
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0, seen = 0;
    check_host_init(&s.host);
    if (!check_open_device(c, &s.p, &s.host))
        return;
    case_on on = life_on(&s.p);
    CHECK(c, !s.p.be->contracts(s.p.api->self, &table, &n), "contracts failed");
    for (uint32_t i = 0; i < n && !check_over(c); i++) {
        const char *name = case_op_name(table[i][0]);
        op_case *o = name ? case_random(table[i][0], MN_F32, &shape, 11) : NULL;
        check_doing(c, "%s was offered", name ? name : "an op");
        if (o && case_supported(&on, o, NULL))
            fn(c, &s, o, table[i][0]), seen++;
        case_free(o);
    }
    if (check_over(c))
        return;
    check_close(c, &s.p);
    if (seen)
        check_found(c, "%u ops", seen);
    else
        check_skip(c, "the device says yes to no op in f32 that the check can make a graph of");
}

static void strides(check *c, stage *s, op_case *o, uint32_t op) {
    wide_graph w;
    op_shape shape = life_shape();
    mn_error err = check_error();
    case_on plain = life_on(&s->p), wide = plain;
    op_case *other = case_random(op, MN_F32, &shape, 11);
    CHECK(c, other, "out of memory");
    mn_status st = case_run(&plain, other, MN_PRECISION_EXACT, &err);
    CHECK(c, !st, "%s: found status 0x%x (%s)", case_op_name(op), (unsigned)st, err.msg);
    CHECK(c, wide_do(&w, o), "out of memory");
    wide.be = wide_backend(s->p.be);
    check_doing(c, "%s ran with longer structs and strides", case_op_name(op));
    int yes = case_supported(&wide, o, NULL);
    st = case_run(&wide, o, MN_PRECISION_EXACT, &err);
    wide_undo(&w, o);
    CHECK(c, yes && !st, "%s with longer structs and strides: found %s, status 0x%x (%s)",
          case_op_name(op), yes ? "yes" : "no", (unsigned)st, err.msg);
    CHECK(c, !wide_breach()[0], "%s: %s", case_op_name(op), wide_breach());
    double d = case_differ(o, other, NULL);
    CHECK(c, d < 1e-5, "%s with longer structs and strides: results differ by %g", case_op_name(op),
          d);
    case_free(other);
}
void check_graph_strides(check *c) {
    each_op(c, strides);
}

/* Outputs with less room than the plugin fills: written within, and size says how much. Structs of
 * 8 bytes and more. */
static void judge_small(check *c, const char *what, const fence *f, uint32_t n) {
    uint32_t size;
    memcpy(&size, f->at, sizeof size);
    CHECK(c, size <= n, "%s with room for %u bytes: found size %u", what, n, size);
}
void check_graph_small_outputs(check *c) {
    stage s;
    case_plan *plan = NULL;
    if (!stage_open(c, &s))
        return;
    case_on on = life_on(&s.p);
    mn_status st = case_open(&on, s.o, MN_PRECISION_EXACT, &plan, &s.p.err);
    CHECK(c, !st, "compile: found status 0x%x (%s)", (unsigned)st, s.p.err.msg);
    for (uint32_t n = 8; n <= sizeof(mn_device_info); n += 8) {
        fence f = fence_new(n);
        CHECK(c, f.at, "out of memory");
        memcpy(f.at, &n, sizeof n);
        check_doing(c, "device_info ran with room for %u bytes", n);
        if (!s.p.be->device_info(s.p.api->self, 0, f.at, NULL))
            judge_small(c, "device_info", &f, n);
        memset(f.at, 0xee, n), memcpy(f.at, &n, sizeof n);
        check_doing(c, "estimate ran with room for %u bytes", n);
        if (!s.p.be->estimate(s.p.dev, &plan->ask, f.at, NULL))
            judge_small(c, "estimate", &f, n);
        memset(f.at, 0xee, n), memcpy(f.at, &n, sizeof n);
        check_doing(c, "kv_layout ran with room for %u bytes", n);
        if (!s.p.be->kv_layout(s.p.dev, &plan->ask, 0, f.at, NULL))
            judge_small(c, "kv_layout", &f, n);
        fence_free(&f);
    }
    case_close(plan);
    stage_close(c, &s);
}

/* ---- what is not known ----------------------------------------------------------------------- */
/* The verdict of node `at` must be no (or ask), and compile or what comes before it must refuse with
 * a status of class REFUSE, naming it: the node may be right in a version that the plugin does not
 * know, so that it is no fault of the caller. */
static void refused(check *c, const stage *s, op_case *o, uint32_t at, const char *what) {
    mn_verdict v[CASE_NODES] = {{0}};
    mn_error err = check_error();
    case_on on = life_on(&s->p);
    case_plan *plan = NULL;
    on.be = wide_backend(s->p.be);
    check_doing(c, "supports met %s", what);
    mn_status st = s->p.be->supports(s->p.dev, &o->g, o->value, v, sizeof v[0], &err);
    CHECK(c, !st || MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "supports met %s: found status 0x%x (%s), expected MN_OK and a verdict", what,
          (unsigned)st, err.msg);
    CHECK(c, st || v[at].verdict == MN_VERDICT_NO || v[at].verdict == MN_VERDICT_ASK,
          "supports met %s: found verdict %d, expected no", what, v[at].verdict);
    check_doing(c, "compile met %s", what);
    err = check_error();
    st = case_open(&on, o, MN_PRECISION_EXACT, &plan, &err);
    case_close(st ? NULL : plan);
    CHECK(c, st, "compile met %s: found MN_OK, expected a refusal", what);
    CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "compile met %s: found status 0x%x (%s), expected MN_UNSUPPORTED: a later "
          "version may know it (R5)",
          what, (unsigned)st, err.msg);
    CHECK(c, err.msg[0], "compile met %s: found no message", what);
    CHECK(c, err.node == at || !wide_compiled(),
          "compile met %s: found err.node %u, expected %u, the node at fault", what, err.node, at);
}

void check_graph_unknown_op(check *c) {
    static const uint32_t ops[] = {0, 19, 9999, 0x7fffffff, ~0u};
    stage s;
    if (!stage_open(c, &s))
        return;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0] && !check_over(c); i++) {
        char what[32];
        snprintf(what, sizeof what, "op %u", ops[i]);
        s.o->n[0].op = ops[i];
        refused(c, &s, s.o, 0, what);
    }
    if (!check_over(c))
        stage_close(c, &s);
}

static void contract(check *c, stage *s, op_case *o, uint32_t op) {
    char what[64];
    o->n[life_node(o, op)].contract = 100;
    snprintf(what, sizeof what, "%s of contract 100", case_op_name(op));
    refused(c, s, o, life_node(o, op), what);
}
void check_graph_newer_contract(check *c) {
    each_op(c, contract);
}

/* Offers a graph that no plugin of today can mean to run; that it lives is all that is asked. */
static void survives(check *c, const stage *s, op_case *o, const char *what) {
    mn_verdict v[CASE_NODES] = {{0}};
    case_on on = life_on(&s->p);
    check_doing(c, "supports and compile met %s", what);
    s->p.be->supports(s->p.dev, &o->g, o->value, v, sizeof v[0], NULL);
    case_run(&on, o, MN_PRECISION_EXACT, NULL);
}

/* Of a weight, the type is the plugin's choice, so that it must look; of other operands the
 * contract fixes it. */
static void dtype(check *c, stage *s, op_case *o, uint32_t op) {
    char what[64];
    int32_t first = -1, weight = -1;
    const mn_node *n = &o->n[life_node(o, op)];
    for (uint32_t i = 0; i < n->n_in; i++) {
        int32_t t = o->operands[n->in_off + i];
        if (t < 0)
            continue;
        if (first < 0)
            first = t;
        if (weight < 0 && o->t[t].role == MN_ROLE_WEIGHT)
            weight = t;
    }
    o->t[weight >= 0 ? weight : first].dtype.id = 9999; // blocks as they were: only the name is new
    snprintf(what, sizeof what, "%s with %s of type 9999", case_op_name(op),
             weight >= 0 ? "a weight" : "an input");
    if (weight >= 0)
        refused(c, s, o, life_node(o, op), what);
    else
        survives(c, s, o, what);
}
void check_graph_unknown_dtype(check *c) {
    each_op(c, dtype);
}

static void role(check *c, stage *s, op_case *o, uint32_t op) {
    char what[64];
    o->t[o->operands[o->n[life_node(o, op)].in_off]].role = 77;
    snprintf(what, sizeof what, "%s with an operand of role 77", case_op_name(op));
    survives(c, s, o, what);
}
void check_graph_unknown_role(check *c) {
    each_op(c, role);
}

static void more_attributes(check *c, stage *s, op_case *o, uint32_t op) {
    char what[80];
    mn_node *n = &o->n[life_node(o, op)];
    op_shape shape = life_shape();
    case_on on = life_on(&s->p);
    op_case *plain = case_random(op, MN_F32, &shape, 11);
    CHECK(c, plain, "out of memory");
    for (uint32_t i = 0; i < n->n_attr; i++)
        o->attrs[64 + i] = o->attrs[n->attr_off + i];
    n->attr_off = 64, o->g.n_attrs = 128;
    uint32_t known = n->n_attr;
    n->n_attr = known + 6;
    check_doing(c, "%s ran with 6 more attributes that are 0", case_op_name(op));
    mn_error err = check_error();
    mn_status st = case_run(&on, plain, MN_PRECISION_EXACT, &err);
    if (!st)
        st = case_supported(&on, o, NULL) ? case_run(&on, o, MN_PRECISION_EXACT, &err)
                                          : MN_UNSUPPORTED;
    CHECK(c, !st,
          "%s with 6 more attributes that are 0: found status 0x%x (%s), expected that it runs: 0 "
          "means what it meant "
          "before",
          case_op_name(op), (unsigned)st, err.msg);
    CHECK(c, case_differ(o, plain, NULL) < 1e-5,
          "%s with 6 more attributes that are 0: found other results", case_op_name(op));
    case_free(plain);
    o->attrs[64 + known + 5] = 1;
    snprintf(what, sizeof what, "%s with a newer attribute that is not 0", case_op_name(op));
    survives(c, s, o, what); // a host that means it also states a newer contract
}
void check_graph_more_attributes(check *c) {
    each_op(c, more_attributes);
}

static void fewer_attributes(check *c, stage *s, op_case *o, uint32_t op) {
    op_shape shape = life_shape();
    case_on on = life_on(&s->p);
    op_case *zero = case_random(op, MN_F32, &shape, 11);
    CHECK(c, zero, "out of memory");
    memset(zero->attrs, 0, sizeof zero->attrs);
    memset(o->attrs, 0, sizeof o->attrs);
    memset(o->attrs + 120, 0xee, 64);
    mn_node *n = &o->n[life_node(o, op)];
    n->n_attr = 0, n->attr_off = 120, o->g.n_attrs = 128;
    check_doing(c, "%s ran without attributes", case_op_name(op));
    mn_status a = case_supported(&on, zero, NULL) ? case_run(&on, zero, MN_PRECISION_EXACT, NULL)
                                                  : MN_UNSUPPORTED;
    mn_status b =
        case_supported(&on, o, NULL) ? case_run(&on, o, MN_PRECISION_EXACT, NULL) : MN_UNSUPPORTED;
    CHECK(c, !a == !b,
          "%s without attributes: found status 0x%x, with attributes that are 0: 0x%x; expected "
          "the same",
          case_op_name(op), (unsigned)b, (unsigned)a);
    double d = a ? 0 : case_differ(o, zero, NULL);
    CHECK(c, d < 1e-5, "%s without attributes and with attributes that are 0: results differ by %g",
          case_op_name(op), d);
    case_free(zero);
}
void check_graph_fewer_attributes(check *c) {
    each_op(c, fewer_attributes);
}

/* A segment without nodes: every call works, and a step does nothing. */
static void empty_segment(check *c, const stage *s, const mn_compile *q) {
    const mn_backend *be = s->p.be;
    mn_compile ask = *q;
    mn_estimate e = {.size = sizeof e};
    mn_program *program = NULL;
    mn_context *x = NULL;
    mn_event *ev = NULL;
    mn_error err = check_error();
    uint32_t how = 0;
    check_doing(c, "an empty segment was estimated, compiled and run");
    mn_status st = be->estimate(s->p.dev, &ask, &e, &err);
    if (!st)
        st = be->weights_open(s->p.dev, &ask, &ask.weights, &err);
    if (!st)
        st = be->weights_seal(ask.weights, s->p.queue, &how, &err);
    if (!st)
        st = be->compile(s->p.dev, &ask, &program, &err);
    if (!st)
        st = be->context_create(program, s->p.queue, &x, &err);
    if (!st)
        st = be->context_bind(x, 0, NULL, 0, sizeof(mn_binding), &err);
    if (!st)
        st = be->execute(x, 0, s->o->value, &ev, &err);
    if (!st)
        st = be->wait(ev, 10000000000u, &err);
    CHECK(c, !st, "an empty segment: found status 0x%x (%s), expected that it does nothing",
          (unsigned)st, err.msg);
    be->event_free(ev);
    if (x)
        be->context_free(x);
    if (program)
        be->program_free(program);
    if (ask.weights)
        be->weights_free(ask.weights);
}

/* Questions that have no good answer get a status, not a crash. */
void check_graph_questions(check *c) {
    stage s;
    if (!stage_open(c, &s))
        return;
    int64_t max[CASE_SYMBOLS];
    for (uint32_t i = 0; i < s.o->g.n_symbols; i++)
        max[i] = s.o->sym[i].max;
    const mn_compile good = {.size = sizeof good,
                             .precision = MN_PRECISION_EXACT,
                             .graph = &s.o->g,
                             .node_hi = 1,
                             .symbol_max = max,
                             .k_dtype = MN_F32,
                             .v_dtype = MN_F32};
    mn_compile class = good, cache = good, empty = good, kv = good;
    mn_estimate e = {.size = sizeof e};
    mn_kv_layout l = {.size = sizeof l};
    class.precision = 77, cache.cache = (mn_str){"garbage", 7}, empty.node_hi = 0,
    kv.k_dtype = 9999;
    check_doing(c, "estimate met precision class 77");
    CHECK(c, s.p.be->estimate(s.p.dev, &class, &e, NULL),
          "estimate met precision class 77: found MN_OK, expected MN_UNSUPPORTED");
    mn_compile flag = good;
    flag.flags = (uint64_t)1 << 40;
    check_doing(c, "estimate met a flag that is not known");
    const mn_status st = s.p.be->estimate(s.p.dev, &flag, &e, NULL);
    CHECK(c, st == MN_UNSUPPORTED,
          "estimate met a flag that is not known: found status 0x%x, expected MN_UNSUPPORTED",
          (unsigned)st);
    check_doing(c, "estimate met a cache of another plugin");
    CHECK(c, !s.p.be->estimate(s.p.dev, &cache, &e, NULL),
          "estimate met a cache that is garbage: found an error, expected MN_OK: it is not read "
          "there");
    empty_segment(c, &s, &empty);
    if (check_over(c))
        return;
    check_doing(c, "kv_layout met a graph without a KV cache");
    s.p.be->kv_layout(s.p.dev, &kv, 0, &l, NULL);
    s.p.be->kv_layout(s.p.dev, &good, 12345, &l, NULL);
    check_doing(c, "supports met a graph without nodes");
    mn_graph none = s.o->g;
    none.n_nodes = 0;
    mn_verdict v = {0};
    s.p.be->supports(s.p.dev, &none, s.o->value, &v, sizeof v, NULL);
    stage_close(c, &s);
}
