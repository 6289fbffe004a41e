/* numeric_shared.c -- rule numeric.shared: one cache for two programs. The first has the layers up
 * to the KV_STORE of one whose ATTENTION is in the second; both are given the layers of the whole
 * graph and one layout, and the pages of the first become those of the second. Then the same with
 * another list: the layers have other numbers and stand backwards, one more than the graph has is
 * among them, and a group that it does not have is the first. */
#include "alloc.h"
#include "numeric.h"

enum { LAYERS = 4, NODES = 2 * LAYERS, CUT = 5 /* behind KV_STORE of layer 1 of group 0 */ };

static const op_shape groups[CASE_GROUPS] = {
    {.rows = 7, .n_head = 4, .n_head_kv = 2, .dim = 32, .past = 90, .n_seqs = 2},
    {.rows = 7, .n_head = 2, .n_head_kv = 1, .dim = 64, .past = 90, .n_seqs = 2},
};

/* ---- the list -------------------------------------------------------------------------------- */
/* Numbers with holes: a layer's place is not its number. */
static void renumber_layers(op_case *c) {
    for (uint32_t i = 0; i < c->g.n_nodes; i++) {
        const mn_node *n = &c->n[i];
        const uint32_t at = n->op == MN_OP_KV_STORE ? (uint32_t)MN_KV_STORE_ATTR_KV_LAYER
                                                    : (uint32_t)MN_ATTENTION_ATTR_KV_LAYER;
        c->attrs[n->attr_off + at] = 5 * c->attrs[n->attr_off + at] + 2;
    }
}

/* In one block, as mn_memory_uses has it. */
typedef struct {
    mn_memory_params params[CASE_GROUPS + 1];
    mn_memory_layout layout[CASE_GROUPS + 1];
    mn_memory_layer layer[CASE_GROUPS + 1][LAYERS];
    mn_memory_use use[CASE_GROUPS + 1];
} other_list;

/* The layers of a group backwards, with one more behind the last. */
static void list_group(other_list *l, uint32_t at, const mn_memory_params *from) {
    const uint32_t n = from->n_layers;
    mn_memory_layer *to = l->layer[at];
    for (uint32_t i = 0; i < n; i++)
        to[i + (i > 0)] = from->layers[n - 1 - i];
    to[1] = from->layers[0];
    to[1].layer = 999;
    l->params[at] = *from;
    l->params[at].n_layers = n + 1;
    l->params[at].layers = to;
    l->use[at] = (mn_memory_use){&l->params[at], NULL};
}

static bool list_otherwise(mn_memory_uses *u) {
    other_list *l = mn_alloc(1, sizeof *l);
    if (!l || u->n != CASE_GROUPS) {
        mn_free(l);
        return false;
    }
    list_group(l, 0, &u->params[0]);
    l->params[0].group = 7;
    for (uint32_t i = 0; i < CASE_GROUPS; i++)
        list_group(l, i + 1, &u->params[CASE_GROUPS - 1 - i]);
    mn_memory_uses_free(u);
    *u = (mn_memory_uses){CASE_GROUPS + 1, l->use, l->params, l->layout, l->layer[0], l};
    return true;
}

/* ---- programs -------------------------------------------------------------------------------- */
/* Nodes [lo, hi) of the case, with the memory of all of it. NULL = out of memory. */
static op_case *shared_case(const op_shape *shape, uint32_t lo, uint32_t hi, bool otherwise) {
    const mn_node_range all = {0, NODES};
    op_case *c = case_groups(shape, LAYERS, 99);
    if (!c)
        return NULL;
    c->node_lo = lo;
    c->node_hi = hi;
    if (otherwise)
        renumber_layers(c);
    if (!mn_memory_uses_find(&c->g, &all, 1, c->kv_dtype, c->v_dtype, &c->memory) ||
        (otherwise && !list_otherwise(&c->memory)))
        c->failed = true;
    return c;
}

/* The tokens of each group's pages on the plugin's device. */
static mn_status ask_pages(const numeric *n, op_shape *shape, bool otherwise, mn_error *err) {
    op_case *c = shared_case(shape, 0, NODES, otherwise);
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

static void compare_programs(numeric *n, const op_shape *shape, bool otherwise) {
    static const uint32_t lo[] = {0, 0, CUT};
    static const uint32_t hi[] = {NODES, CUT, NODES};
    const char *list = otherwise ? ", where the list of layers is not that of the graph," : "";
    op_case *c[3] = {NULL, NULL, NULL};
    case_plan *plan[3] = {NULL, NULL, NULL};
    const char *where = "";
    mn_error err = check_error();
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < 3 && !st; i++) {
        c[i] = shared_case(shape, lo[i], hi[i], otherwise);
        check_doing(n->c, "nodes %u to %u of two groups' layers%s ran", lo[i], hi[i] - 1, list);
        st = run_program(n, c[i], i == 2 ? plan[1] : NULL, &plan[i], &err);
    }
    check_status(n->c, st, &err, "layers of two programs%s", list);
    if (!st && case_differ(c[2], c[0], &where) != 0)
        check_fail(n->c,
                   "a program that reads what another one stored%s computes another '%s' than one "
                   "that does both, expected the same bits",
                   list, where);
    for (uint32_t i = 0; i < 3; i++) {
        case_close(plan[i]);
        case_free(c[i]);
    }
}

static void shared_try(numeric *n, bool otherwise) {
    op_shape shape[CASE_GROUPS] = {groups[0], groups[1]};
    mn_error err = check_error();
    const mn_status st = ask_pages(n, shape, otherwise, &err);
    if (!check_status(n->c, st, &err, "the pages of two groups"))
        compare_programs(n, shape, otherwise);
}

void check_numeric_shared(check *c) {
    numeric n;
    if (numeric_open(c, &n)) {
        op_case *any = case_groups(groups, LAYERS, 1);
        if (!any || !case_supported(&n.here, any))
            check_skip(c, "the plugin does not support KV_STORE or ATTENTION%s",
                       check_no_text(&n.plugin));
        else
            shared_try(&n, false);
        if (!check_over(c))
            shared_try(&n, true);
        case_free(any);
    }
    numeric_close(&n);
}
