/* graph_rules.c -- group graph: graphs of a later minor version of plugin.h, or of none. What
 * the plugin does not know it refuses, by verdict and by compile; what it knows it still runs.
 * Each rule changes one thing in a small case of every op that the device runs (stage_each_op).
 * Rows of SLOTS and PARAMS are in slot_rows.c. */
#include "fence.h"
#include "life.h"
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void graph_rule_each_op(check *c, stage_fn fn) {
    stage s;
    if (stage_device(c, &s))
        stage_each_op(c, &s, fn);
}

/* ---- sizes and strides ----------------------------------------------------------------------- */
/* With longer structs and strides (wide.h), the case has the same results. */
static void strides(check *c, stage *s, op_case *o, uint32_t op) {
    const char *name = case_op_name(op);
    wide_graph w;
    mn_error err = check_error();
    case_on wide = s->on;
    op_case *plain = life_case(c, op);
    if (!plain)
        return;
    mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &err);
    CHECK_OK(c, st, &err, "%s", name);
    CHECK(c, wide_do(&w, o), "out of memory");
    wide.be = wide_backend(s->p.be);
    check_doing(c, "%s ran with longer structs and strides", name);
    const bool yes = case_supported(&wide, o);
    st = case_run(&wide, o, MN_PRECISION_EXACT, &err);
    wide_undo(&w, o);
    CHECK_OK(c, st, &err, "%s with longer structs and strides", name);
    CHECK(c, yes, "%s with longer structs and strides: found verdict no, expected yes", name);
    CHECK(c, !wide_breach()[0], "%s: %s", name, wide_breach());
    const double d = case_differ(o, plain, NULL);
    CHECK(c, d < 1e-5,
          "%s with longer structs and strides: results differ by %g, expected the same", name, d);
    case_free(plain);
}

/* Layers of two groups, of which all tokens are in one page of any plugin. NULL = out of memory. */
static op_case *strides_of_groups(void) {
    const op_shape shape[CASE_GROUPS] = {
        {.rows = 6, .n_head = 4, .n_head_kv = 2, .dim = 32, .past = 3},
        {.rows = 6, .n_head = 2, .n_head_kv = 1, .dim = 64, .past = 3}};
    return case_groups(shape, 4, 11);
}

/* Lists of groups and of layers with more than one element (mn_compile.memory). */
static void memory_strides(check *c, stage *s) {
    mn_error err = check_error();
    case_on wide = s->on;
    op_case *plain = strides_of_groups();
    op_case *o = strides_of_groups();
    CHECK(c, plain && o && !plain->failed && !o->failed, "out of memory");
    if (case_supported(&s->on, plain)) {
        check_doing(c, "layers of two groups ran");
        mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &err);
        CHECK_OK(c, st, &err, "layers of two groups");
        wide.be = wide_backend(s->p.be);
        check_doing(c, "layers of two groups ran with longer structs and strides");
        st = case_run(&wide, o, MN_PRECISION_EXACT, &err);
        CHECK_OK(c, st, &err, "layers of two groups with longer structs and strides");
        CHECK(c, !wide_breach()[0], "layers of two groups: %s", wide_breach());
        CHECK(c, case_differ(o, plain, NULL) < 1e-5,
              "layers of two groups with longer structs and strides: found other results, expected "
              "the same");
    }
    case_free(plain);
    case_free(o);
}

void check_graph_strides(check *c) {
    stage s;
    if (!stage_device(c, &s))
        return;
    memory_strides(c, &s);
    if (!check_over(c))
        stage_each_op(c, &s, strides);
}

/* A new output struct with room for n bytes, before a page that cannot be accessed. */
static void begin_small(fence *f, uint32_t n) {
    memset(f->at, 0xee, n);
    memcpy(f->at, &n, sizeof n);
}

/* The size that a call has set; st is the call's status. */
static void judge_small(check *c, const fence *f, uint32_t n, mn_status st, const char *what) {
    uint32_t size;
    memcpy(&size, f->at, sizeof size);
    CHECK(c, st || size <= n, "%s with room for %u bytes: found size %u, expected at most %u", what,
          n, size, n);
}

/* Outputs with less room than the plugin fills, from 8 bytes on: written within the room, and
 * `size` states how much was. */
void check_graph_small_outputs(check *c) {
    stage s;
    if (!stage_plan(c, &s))
        return;
    const mn_backend *be = s.p.be;
    const mn_compile *ask = &s.plan->ask;
    for (uint32_t n = 8; n <= sizeof(mn_device_info); n += 8) {
        fence f = fence_new(n);
        CHECK(c, f.at, "out of memory");
        begin_small(&f, n);
        check_doing(c, "device_info ran with room for %u bytes", n);
        judge_small(c, &f, n, be->device_info(s.p.api->self, 0, f.at, NULL), "device_info");
        begin_small(&f, n);
        check_doing(c, "estimate ran with room for %u bytes", n);
        judge_small(c, &f, n, be->estimate(s.p.dev, ask, f.at, NULL), "estimate");
        begin_small(&f, n);
        check_doing(c, "memory_layout ran with room for %u bytes", n);
        judge_small(c, &f, n, be->memory_layout(s.p.dev, ask, 0, f.at, NULL), "memory_layout");
        fence_free(&f);
    }
    if (!check_over(c))
        stage_close(c, &s);
}

/* ---- what is not known ----------------------------------------------------------------------- */
static void refused_by_supports(check *c, const stage *s, op_case *o, uint32_t at,
                                const char *what) {
    mn_verdict v[CASE_NODES] = {{0}};
    mn_error err = check_error();
    check_doing(c, "supports met %s", what);
    const mn_status st = case_supports(&s->on, o, v, &err);
    const int32_t verdict = v[at].verdict;
    CHECK(c, !st || MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "supports met %s: found status 0x%x (%s), expected MN_OK and a verdict", what,
          (unsigned)st, err.msg);
    CHECK(c, st || verdict == MN_VERDICT_NO || verdict == MN_VERDICT_ASK,
          "supports met %s: found verdict %d, expected no", what, verdict);
}

/* compile, or a call before it, refuses with a status of class REFUSE and names the node: the
 * node may be right in a version that the plugin does not know, so that it is not the caller's
 * error. */
static void refused_by_compile(check *c, const stage *s, op_case *o, uint32_t at,
                               const char *what) {
    mn_error err = check_error();
    case_on on = s->on;
    case_plan *plan = NULL;
    on.be = wide_backend(s->p.be);
    check_doing(c, "compile met %s", what);
    const mn_status st = case_open(&on, o, MN_PRECISION_EXACT, &plan, &err);
    CHECK(c, st, "compile met %s: found MN_OK, expected MN_UNSUPPORTED", what);
    CHECK(
        c, MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
        "compile met %s: found status 0x%x (%s), expected MN_UNSUPPORTED: a later version may know "
        "it (R5)",
        what, (unsigned)st, err.msg);
    CHECK(c, err.msg[0], "compile met %s: found no message, expected one", what);
    CHECK(c, err.node == at || !wide_compiled(),
          "compile met %s: found err.node %u, expected %u, the node at fault", what, err.node, at);
}

/* at: the node that is not known. */
static void refused(check *c, const stage *s, op_case *o, uint32_t at, const char *what) {
    refused_by_supports(c, s, o, at, what);
    if (!check_over(c))
        refused_by_compile(c, s, o, at, what);
}

void check_graph_unknown_op(check *c) {
#define NEXT_OP(name, id) +1u
    static const uint32_t ops[] = {0, 1 MN_OPS(NEXT_OP), 9999, 0x7fffffff, ~0u};
    stage s;
    if (!stage_case(c, &s))
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

/* A vendor's operation, of nobody's, with a blob: who does not have it does not look at the bytes,
 * which cannot be read. */
void check_graph_blobs(check *c) {
    enum { BYTES = 4096 };
    stage s;
    if (!stage_case(c, &s))
        return;
    void *bytes = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(c, bytes != MAP_FAILED, "out of memory");
    const mn_str blob = {bytes, BYTES};
    mn_node *n = &s.o->n[0];
    n->op = MN_VENDOR | 0x5eedb10b;
    n->contract = 1;
    n->attr_off = CASE_ATTRS - 1;
    n->n_attr = 1;
    s.o->attrs[n->attr_off] = 1;
    s.o->g.n_attrs = CASE_ATTRS;
    s.o->g.blobs = &blob;
    s.o->g.n_blobs = 1;
    refused(c, &s, s.o, 0, "a vendor's operation with a blob");
    if (check_over(c))
        return;
    munmap(bytes, BYTES);
    stage_close(c, &s);
}

static void contract(check *c, stage *s, op_case *o, uint32_t op) {
    const uint32_t at = life_node(o, op);
    char what[64];
    o->n[at].contract = 100;
    snprintf(what, sizeof what, "%s of contract 100", case_op_name(op));
    refused(c, s, o, at, what);
}

void check_graph_newer_contract(check *c) {
    graph_rule_each_op(c, contract);
}

/* A graph that no present plugin can run as it is meant: any answer is right, a crash is not. */
static void survives(check *c, const stage *s, op_case *o, const char *what) {
    mn_verdict v[CASE_NODES] = {{0}};
    check_doing(c, "supports and compile met %s", what);
    case_supports(&s->on, o, v, NULL);
    case_run(&s->on, o, MN_PRECISION_EXACT, NULL);
}

/* The first input of the node that is a weight (weights true) or is there at all; -1 = none. */
static int32_t first_input(const op_case *o, const mn_node *n, bool weights) {
    for (uint32_t i = 0; i < n->n_in; i++) {
        const int32_t t = o->operands[n->in_off + i];
        if (t >= 0 && (!weights || o->t[t].role == MN_ROLE_WEIGHT))
            return t;
    }
    return -1;
}

/* The plugin chooses which types of weights it supports, so that it must look at them; the types
 * of other operands are fixed by the contract. Blocks keep their size: the id alone is unknown. */
static void dtype(check *c, stage *s, op_case *o, uint32_t op) {
    const uint32_t at = life_node(o, op);
    const int32_t weight = first_input(o, &o->n[at], true);
    const int32_t t = weight >= 0 ? weight : first_input(o, &o->n[at], false);
    char what[64];
    o->t[t].dtype.id = 9999;
    snprintf(what, sizeof what, "%s with %s of type 9999", case_op_name(op),
             weight >= 0 ? "a weight" : "an input");
    if (weight >= 0)
        refused(c, s, o, at, what);
    else
        survives(c, s, o, what);
}

void check_graph_unknown_dtype(check *c) {
    graph_rule_each_op(c, dtype);
}

static void role(check *c, stage *s, op_case *o, uint32_t op) {
    const mn_node *n = &o->n[life_node(o, op)];
    char what[64];
    o->t[o->operands[n->in_off]].role = 77;
    snprintf(what, sizeof what, "%s with an operand of role 77", case_op_name(op));
    survives(c, s, o, what);
}

void check_graph_unknown_role(check *c) {
    graph_rule_each_op(c, role);
}

/* ---- attributes ------------------------------------------------------------------------------ */
/* MN_UNSUPPORTED, or the status of the run. */
static mn_status run_if_supported(const case_on *on, op_case *o, mn_error *err) {
    if (!case_supported(on, o))
        return MN_UNSUPPORTED;
    return case_run(on, o, MN_PRECISION_EXACT, err);
}

/* Moves the node's attributes to the second half of the table, which is zero, and adds six. */
static void more_attributes(check *c, stage *s, op_case *o, uint32_t op) {
    const char *name = case_op_name(op);
    char what[80];
    mn_node *n = &o->n[life_node(o, op)];
    mn_error err = check_error();
    const uint32_t half = CASE_ATTRS / 2;
    op_case *plain = life_case(c, op);
    if (!plain)
        return;
    memcpy(o->attrs + half, o->attrs + n->attr_off, n->n_attr * sizeof *o->attrs);
    n->attr_off = half;
    n->n_attr += 6;
    o->g.n_attrs = CASE_ATTRS;
    check_doing(c, "%s ran with 6 more attributes that are 0", name);
    mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &err);
    if (!st)
        st = run_if_supported(&s->on, o, &err);
    CHECK_OK(c, st, &err, "%s with 6 more attributes that are 0, which means what it meant before",
             name);
    CHECK(c, case_differ(o, plain, NULL) < 1e-5,
          "%s with 6 more attributes that are 0: found other results, expected the same", name);
    case_free(plain);
    o->attrs[half + n->n_attr - 1] = 1;
    snprintf(what, sizeof what, "%s with an unknown attribute that is not 0", name);
    refused(c, s, o, (uint32_t)(n - o->n), what);
}

void check_graph_more_attributes(check *c) {
    graph_rule_each_op(c, more_attributes);
}

/* ---- operands -------------------------------------------------------------------------------- */
/* Moves the node's operands behind those of all nodes, with MORE_OPERANDS inputs more, which are
 * absent; the last of them. More than any operation has today. */
enum { MORE_OPERANDS = 12 };
static int32_t *add_operands(op_case *o, mn_node *n) {
    int32_t *to = o->operands + o->g.n_operands;
    const uint32_t all = n->n_in + MORE_OPERANDS + n->n_out;
    if (o->g.n_operands + all > CASE_OPERANDS)
        return NULL;
    memcpy(to, o->operands + n->in_off, n->n_in * sizeof *to);
    for (uint32_t i = 0; i < MORE_OPERANDS; i++)
        to[n->n_in + i] = -1;
    memcpy(to + n->n_in + MORE_OPERANDS, o->operands + n->out_off, n->n_out * sizeof *to);
    n->in_off = o->g.n_operands;
    n->n_in += MORE_OPERANDS;
    n->out_off = n->in_off + n->n_in;
    o->g.n_operands += all;
    return &to[n->n_in - 1];
}

static void more_operands(check *c, stage *s, op_case *o, uint32_t op) {
    const char *name = case_op_name(op);
    char what[80];
    mn_node *n = &o->n[life_node(o, op)];
    mn_error err = check_error();
    op_case *plain = life_case(c, op);
    if (!plain)
        return;
    int32_t *last = add_operands(o, n);
    CHECK(c, last, "out of room for operands");
    check_doing(c, "%s ran with %d more operands that are absent", name, MORE_OPERANDS);
    mn_status st = case_run(&s->on, plain, MN_PRECISION_EXACT, &err);
    if (!st)
        st = run_if_supported(&s->on, o, &err);
    CHECK_OK(c, st, &err, "%s with %d more operands that are absent", name, MORE_OPERANDS);
    CHECK(c, case_differ(o, plain, NULL) < 1e-5,
          "%s with %d more operands that are absent: found other results, expected the same", name,
          MORE_OPERANDS);
    case_free(plain);
    *last = o->operands[n->in_off];
    snprintf(what, sizeof what, "%s with an unknown operand", name);
    refused(c, s, o, (uint32_t)(n - o->n), what);
}

void check_graph_more_operands(check *c) {
    graph_rule_each_op(c, more_operands);
}

/* ---- attributes that are missing ------------------------------------------------------------- */
/* zero: with attributes that are 0; o: with none, and garbage where they would be. */
static void fewer_attributes(check *c, stage *s, op_case *o, uint32_t op) {
    const char *name = case_op_name(op);
    const uint32_t end = CASE_ATTRS - 8;
    op_case *zero = life_case(c, op);
    if (!zero)
        return;
    memset(zero->attrs, 0, sizeof zero->attrs);
    memset(o->attrs, 0, sizeof o->attrs);
    memset(o->attrs + end, 0xee, 8 * sizeof *o->attrs);
    mn_node *n = &o->n[life_node(o, op)];
    n->n_attr = 0;
    n->attr_off = end;
    o->g.n_attrs = CASE_ATTRS;
    check_doing(c, "%s ran without attributes", name);
    const mn_status a = run_if_supported(&s->on, zero, NULL);
    const mn_status b = run_if_supported(&s->on, o, NULL);
    CHECK(c, !a == !b,
          "%s without attributes: found status 0x%x, expected 0x%x as with attributes that are 0",
          name, (unsigned)b, (unsigned)a);
    double d = 0;
    if (!a)
        d = case_differ(o, zero, NULL);
    CHECK(c, d < 1e-5,
          "%s without attributes: results differ by %g from those with attributes that are 0, "
          "expected the same",
          name, d);
    case_free(zero);
}

void check_graph_fewer_attributes(check *c) {
    graph_rule_each_op(c, fewer_attributes);
}

/* ---- unusual questions ----------------------------------------------------------------------- */
/* A segment without nodes: every call works, and a step does nothing. */
static void empty_segment(check *c, const stage *s, mn_compile ask) {
    const mn_backend *be = s->p.be;
    mn_estimate e = {.size = sizeof e};
    mn_program *program = NULL;
    mn_context *x = NULL;
    mn_event *ev = NULL;
    mn_error err = check_error();
    uint32_t kept = 0;
    ask.node_hi = 0;
    check_doing(c, "an empty segment was estimated, compiled and run");
    mn_status st = be->estimate(s->p.dev, &ask, &e, &err);
    if (!st)
        st = be->weights_open(s->p.dev, &ask, &ask.weights, &err);
    if (!st)
        st = be->weights_seal(ask.weights, s->p.queue, &kept, &err);
    if (!st)
        st = be->compile(s->p.dev, &ask, &program, &err);
    if (!st)
        st = mn_usual_context(be, program, s->p.queue, &x, &err);
    if (!st)
        st = be->context_bind(x, 0, NULL, 0, sizeof(mn_binding), &err);
    if (!st)
        st = mn_usual_execute(be, x, 0, s->o->value, &ev, &err);
    st = case_wait(be, st, &ev, &err);
    CHECK_OK(c, st, &err, "an empty segment, which does nothing");
    if (x)
        be->context_free(x);
    if (program)
        be->program_free(program);
    if (ask.weights)
        be->weights_free(ask.weights);
}

/* supports of a class that does not exist, or with a flag: no node is a yes. */
static void odd_verdicts(check *c, const stage *s, const mn_compile *ask, const char *what) {
    mn_verdict v[CASE_NODES] = {{0}};
    check_doing(c, "supports met %s", what);
    const mn_status st = s->p.be->supports(s->p.dev, ask, v, sizeof v[0], NULL);
    CHECK(c, !st || st == MN_UNSUPPORTED,
          "supports met %s: found status 0x%x, expected MN_UNSUPPORTED, or no as verdict", what,
          (unsigned)st);
    for (uint32_t i = 0; !st && i < s->o->g.n_nodes; i++)
        CHECK(c, v[i].verdict == MN_VERDICT_NO,
              "supports met %s: found MN_OK and verdict %d of node %u, expected MN_UNSUPPORTED, or "
              "no as verdict",
              what, v[i].verdict, i);
}

/* estimate of requests that are wrong, or hold what the plugin does not know. */
static void odd_estimates(check *c, const stage *s, const mn_compile *good) {
    const mn_backend *be = s->p.be;
    mn_compile class = *good;
    mn_compile flag = *good;
    mn_compile cache = *good;
    mn_estimate e = {.size = sizeof e};
    class.precision = 77;
    flag.flags = UINT64_C(1) << 40;
    cache.cache = (mn_str){"garbage", 7};
    odd_verdicts(c, s, &class, "precision class 77");
    if (!check_over(c))
        odd_verdicts(c, s, &flag, "a flag that is not known");
    if (check_over(c))
        return;
    check_doing(c, "estimate met precision class 77");
    CHECK(c, be->estimate(s->p.dev, &class, &e, NULL),
          "estimate met precision class 77: found MN_OK, expected MN_UNSUPPORTED");
    check_doing(c, "estimate met a flag that is not known");
    const mn_status st = be->estimate(s->p.dev, &flag, &e, NULL);
    CHECK(c, st == MN_UNSUPPORTED,
          "estimate met a flag that is not known: found status 0x%x, expected MN_UNSUPPORTED",
          (unsigned)st);
    check_doing(c, "estimate met a cache of another plugin");
    CHECK_OK(c, be->estimate(s->p.dev, &cache, &e, NULL), NULL,
             "estimate met a cache that is garbage, which it does not read");
}

/* memory_layout of kinds of memory that a later minor may have: the next one, and one far off. */
static void odd_memory(check *c, const stage *s, mn_compile ask) {
    const mn_memory_layer layer = {.n_head = 1, .dim_k = 32, .dim_v = 32, .n_state = 64};
    mn_memory_params p = {
        .size = sizeof p, .n_layers = 1, .layer_stride = sizeof layer, .layers = &layer};
    const mn_memory_use use = {&p, NULL};
    ask.memory = &use;
    ask.n_memory = 1;
    ask.memory_stride = sizeof use;
    for (uint32_t i = 0; i < 2 && !check_over(c); i++) {
        mn_memory_layout l = {.size = sizeof l};
        mn_error err = check_error();
        p.kind = i ? 9999 : MN_MEMORY_STATE + 1;
        check_doing(c, "memory_layout met memory of kind %u", p.kind);
        const mn_status st = s->p.be->memory_layout(s->p.dev, &ask, 0, &l, &err);
        CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
              "memory_layout met memory of kind %u: found status 0x%x (%s), expected "
              "MN_UNSUPPORTED: a later version may know it (R5)",
              p.kind, (unsigned)st, err.msg);
    }
}

void check_graph_questions(check *c) {
    stage s;
    if (!stage_case(c, &s))
        return;
    const mn_backend *be = s.p.be;
    const mn_compile good = case_question(s.o, MN_PRECISION_EXACT);
    mn_memory_layout l = {.size = sizeof l};
    odd_estimates(c, &s, &good);
    if (!check_over(c))
        empty_segment(c, &s, good);
    if (check_over(c))
        return;
    odd_memory(c, &s, good);
    if (check_over(c))
        return;
    check_doing(c, "memory_layout met a group that there is not");
    be->memory_layout(s.p.dev, &good, 12345, &l, NULL);
    check_doing(c, "supports met a graph without nodes");
    mn_graph none = s.o->g;
    mn_verdict v = {0};
    mn_compile nothing = good;
    none.n_nodes = 0;
    nothing.graph = &none;
    nothing.node_hi = 0;
    be->supports(s.p.dev, &nothing, &v, sizeof v, NULL);
    stage_close(c, &s);
}
