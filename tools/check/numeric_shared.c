/* numeric_shared.c -- rule numeric.shared: one cache for two programs. The first has the layers up
 * to the KV_STORE of one whose ATTENTION is in the second; both are given the layers of the whole
 * graph and one layout, and the pages of the first become those of the second. */
#include "numeric.h"

enum { LAYERS = 4, NODES = 2 * LAYERS, CUT = 5 /* behind KV_STORE of layer 1 of group 0 */ };

static const op_shape groups[CASE_GROUPS] = {
    {.rows = 7, .n_head = 4, .n_head_kv = 2, .dim = 32, .past = 90, .n_seqs = 2},
    {.rows = 7, .n_head = 2, .n_head_kv = 1, .dim = 64, .past = 90, .n_seqs = 2},
};

/* Nodes [lo, hi) of the case, with the memory of all of it. NULL = out of memory. */
static op_case *shared_case(const op_shape *shape, uint32_t lo, uint32_t hi) {
    const mn_node_range all = {0, NODES};
    op_case *c = case_groups(shape, LAYERS, 99);
    if (!c)
        return NULL;
    c->node_lo = lo;
    c->node_hi = hi;
    if (!mn_memory_uses_find(&c->g, &all, 1, c->kv_dtype, c->v_dtype, &c->memory))
        c->failed = true;
    return c;
}

/* The tokens of each group's pages on the plugin's device. */
static mn_status ask_pages(const numeric *n, op_shape *shape, mn_error *err) {
    op_case *c = shared_case(shape, 0, NODES);
    mn_status st = !c || c->failed ? MN_OUT_OF_MEMORY : MN_OK;
    for (uint32_t i = 0; i < CASE_GROUPS && !st; i++) {
        mn_memory_layout l = {.size = sizeof l};
        const mn_compile ask = case_question(c, MN_PRECISION_EXACT);
        st = n->here.be->memory_layout(n->here.dev, &ask, i, &l, err);
        shape[i].page_tokens = l.page_tokens;
    }
    case_free(c);
    return st;
}

/* One step of a program; from: whose pages it begins with, or NULL. */
static mn_status run_program(const numeric *n, op_case *c, case_plan *from, case_plan **plan,
                             mn_error *err) {
    mn_status st = MN_OUT_OF_MEMORY;
    if (c && !c->failed)
        st = case_open(&n->here, c, MN_PRECISION_EXACT, plan, err);
    for (uint32_t i = 0; i < CASE_GROUPS && from && !st; i++)
        st = case_take_pages(*plan, from, i, err);
    return st ? st : case_step(*plan, c, err);
}

static void compare_programs(numeric *n, const op_shape *shape) {
    static const uint32_t lo[] = {0, 0, CUT};
    static const uint32_t hi[] = {NODES, CUT, NODES};
    op_case *c[3] = {NULL, NULL, NULL};
    case_plan *plan[3] = {NULL, NULL, NULL};
    const char *where = "";
    mn_error err = check_error();
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < 3 && !st; i++) {
        c[i] = shared_case(shape, lo[i], hi[i]);
        check_doing(n->c, "nodes %u to %u of two groups' layers ran", lo[i], hi[i] - 1);
        st = run_program(n, c[i], i == 2 ? plan[1] : NULL, &plan[i], &err);
    }
    check_status(n->c, st, &err, "layers of two programs");
    if (!st && case_differ(c[2], c[0], &where) != 0)
        check_fail(n->c,
                   "a program that reads what another one stored computes another '%s' than one "
                   "that does both, expected the same bits",
                   where);
    for (uint32_t i = 0; i < 3; i++) {
        case_close(plan[i]);
        case_free(c[i]);
    }
}

void check_numeric_shared(check *c) {
    numeric n;
    op_shape shape[CASE_GROUPS] = {groups[0], groups[1]};
    mn_error err = check_error();
    if (numeric_open(c, &n)) {
        op_case *any = case_groups(groups, LAYERS, 1);
        if (!any || !case_supported(&n.here, any))
            check_skip(c, "the plugin does not support KV_STORE or ATTENTION%s",
                       check_no_text(&n.plugin));
        else if (!check_status(c, ask_pages(&n, shape, &err), &err, "the pages of two groups"))
            compare_programs(&n, shape);
        case_free(any);
    }
    numeric_close(&n);
}
