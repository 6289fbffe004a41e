/* segment_rules.c -- rule graph.segments: a segment of a graph is compiled and run by itself. A
 * chain of three operations is cut at every place; the results are those of its nodes alone, each
 * in a graph of its own. All of it is tried with dense structs, and through a host of a later minor
 * (wide.h), whose arrays have longer elements. */
#include "chain.h"
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one try needs: the plugin, perhaps through a wider table, and what the chain computes. */
typedef struct {
    stage s;
    chain_ops ops;
    case_on on;
    bool wide;
    float want[CHAIN_NODES + 1][CHAIN_ROWS * CHAIN_COLS]; /* t0 to t3 */
} segments;

static const char *host_text(const segments *g) {
    return g->wide ? ", of longer structs" : "";
}

/* ---- what is expected ------------------------------------------------------------------------ */
/* The chain node by node, each in a graph of its own. */
static void compute_alone(check *c, segments *g) {
    op_case *all = chain_case(c, &g->ops, 1);
    if (!all)
        return;
    memcpy(g->want[0], all->data[chain_tensor(all, 0)], sizeof g->want[0]);
    case_free(all);
    for (uint32_t i = 0; i < CHAIN_NODES && !check_over(c); i++) {
        mn_error err = check_error();
        op_case *o = chain_node(c, &g->ops, i, 1, g->want[i]);
        if (!o)
            return;
        check_doing(c, "%s ran alone", case_op_name(g->ops.op[i]));
        const mn_status st = case_run(&g->s.on, o, MN_PRECISION_EXACT, &err);
        if (!check_status(c, st, &err, "%s alone", case_op_name(g->ops.op[i])))
            memcpy(g->want[i + 1], o->result[chain_tensor(o, i + 1)], sizeof g->want[0]);
        case_free(o);
    }
}

/* ---- one segment ----------------------------------------------------------------------------- */
/* The chain as a case of nodes [lo, hi), with the tensor that it begins with. NULL: the rule has
 * failed. */
static op_case *cut(check *c, const segments *g, uint32_t lo, uint32_t hi) {
    op_case *o = chain_case(c, &g->ops, 1);
    if (!o)
        return NULL;
    memcpy(o->data[chain_tensor(o, lo)], g->want[lo], sizeof g->want[lo]);
    o->node_lo = lo;
    o->node_hi = hi;
    return o;
}

/* Verdicts for nodes [lo, hi), of which `bad` has an operation that does not exist (CHAIN_NODES:
 * none): they are at their places from 0 on, and nothing behind them is written. */
static void judge_verdicts(check *c, segments *g, uint32_t lo, uint32_t hi, uint32_t bad) {
    mn_verdict v[2 * CHAIN_NODES];
    wide_graph w;
    mn_error err = check_error();
    op_case *o = cut(c, g, lo, hi);
    if (!o)
        return;
    memset(v, 0x5b, sizeof v);
    if (bad < CHAIN_NODES)
        o->n[bad].op = 9999;
    if (g->wide)
        CHECK(c, wide_do(&w, o), "out of memory");
    const mn_compile ask = case_question(o, MN_PRECISION_EXACT);
    check_doing(c, "supports met nodes [%u, %u) of 3", lo, hi);
    const mn_status st = g->on.be->supports(g->on.dev, &ask, v, sizeof *v, &err);
    CHECK_OK(c, st, &err, "supports of nodes [%u, %u) of 3%s", lo, hi, host_text(g));
    for (uint32_t i = lo; i < hi; i++) {
        const int32_t found = v[i - lo].verdict;
        const bool no = found == MN_VERDICT_NO || (i == bad && found == MN_VERDICT_ASK);
        CHECK(c, no == (i == bad) && found >= MN_VERDICT_ASK && found <= MN_VERDICT_NATIVE,
              "supports of nodes [%u, %u) of 3%s: found verdict %d at place %u, of node %u, "
              "expected %s",
              lo, hi, host_text(g), found, i - lo, i, i == bad ? "no" : "a yes");
    }
    for (uint32_t i = hi - lo; i < 2 * CHAIN_NODES; i++)
        CHECK(c, v[i].verdict == 0x5b5b5b5b,
              "supports of nodes [%u, %u) of 3%s: place %u was written, expected %u verdicts", lo,
              hi, host_text(g), i, hi - lo);
    if (g->wide)
        wide_undo(&w, o);
    case_free(o);
}

/* The results of nodes [lo, hi), with the tensors between them and the other nodes bound. */
static void run_segment(check *c, segments *g, uint32_t lo, uint32_t hi) {
    wide_graph w;
    mn_error err = check_error();
    op_case *o = cut(c, g, lo, hi);
    if (!o)
        return;
    if (g->wide)
        CHECK(c, wide_do(&w, o), "out of memory");
    check_doing(c, "nodes [%u, %u) of 3 ran", lo, hi);
    const mn_status st = case_run(&g->on, o, MN_PRECISION_EXACT, &err);
    if (g->wide)
        wide_undo(&w, o);
    CHECK_OK(c, st, &err, "a segment of nodes [%u, %u) of 3%s", lo, hi, host_text(g));
    const uint32_t out = chain_tensor(o, hi);
    const double e = case_rel_l2(o->result[out], g->want[hi], CHAIN_ROWS * CHAIN_COLS);
    CHECK(c, e < 1e-5,
          "a segment of nodes [%u, %u) of 3%s: '%s' differs by %g from that of the nodes alone, "
          "expected the same",
          lo, hi, host_text(g), o->t[out].name.ptr, e);
    case_free(o);
}

static void try_segments(check *c, segments *g) {
    for (uint32_t lo = 0; lo < CHAIN_NODES; lo++)
        for (uint32_t hi = lo + 1; hi <= CHAIN_NODES && !check_over(c); hi++) {
            judge_verdicts(c, g, lo, hi, CHAIN_NODES);
            for (uint32_t bad = lo; bad < hi && !check_over(c); bad++)
                judge_verdicts(c, g, lo, hi, bad);
            if (!check_over(c))
                run_segment(c, g, lo, hi);
        }
}

/* ---- refusals -------------------------------------------------------------------------------- */
/* compile of nodes [1, 3) with a set of weights that is there names the node that it does not know,
 * by its number in the graph. */
static void refuse_node(check *c, segments *g, uint32_t bad) {
    mn_error err = check_error();
    mn_program *program = NULL;
    case_plan *plan = NULL;
    op_case *o = cut(c, g, 1, CHAIN_NODES);
    if (!o)
        return;
    mn_status st = case_open(&g->on, o, MN_PRECISION_EXACT, &plan, &err);
    CHECK_OK(c, st, &err, "a segment of nodes [1, 3) of 3");
    op_case *other = cut(c, g, 1, CHAIN_NODES);
    if (!other)
        return;
    other->n[bad].op = 9999;
    mn_compile ask = plan->ask;
    ask.graph = &other->g;
    check_doing(c, "compile of nodes [1, 3) met op 9999 in node %u", bad);
    err = check_error();
    st = g->on.be->compile(g->on.dev, &ask, &program, &err);
    CHECK(c, MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "compile of nodes [1, 3) with op 9999 in node %u: found status 0x%x, expected "
          "MN_UNSUPPORTED",
          bad, (unsigned)st);
    CHECK(c, err.node == bad,
          "compile of nodes [1, 3) with op 9999 in node %u: found mn_error.node %u, expected %u",
          bad, err.node, bad);
    case_close(plan);
    case_free(other);
    case_free(o);
}

void check_graph_segments(check *c) {
    static segments g;
    memset(&g, 0, sizeof g);
    if (!stage_device(c, &g.s) || !chain_find(c, &g.s, &g.ops))
        return;
    g.on = g.s.on;
    compute_alone(c, &g);
    if (!check_over(c))
        try_segments(c, &g);
    for (uint32_t bad = 1; bad < CHAIN_NODES && !check_over(c); bad++)
        refuse_node(c, &g, bad);
    if (check_over(c))
        return;
    g.wide = true;
    g.on.be = wide_backend(g.s.p.be);
    try_segments(c, &g);
    CHECK(c, check_over(c) || !wide_breach()[0], "%s", wide_breach());
    if (check_over(c))
        return;
    stage_close(c, &g.s);
    check_found(c, "%s, %s, %s", case_op_name(g.ops.op[0]), case_op_name(g.ops.op[1]),
                case_op_name(g.ops.op[2]));
}
