/* test_shard.c -- the plan of a group over every architecture, for 2, 3, 4 and 8 members: each row
 * and column of a weight is held, none twice but where KV heads are repeated; the members' graphs
 * fit together node by node; what a group holds adds up. And sources: pieces are cut out of planes
 * without a copy. */
#include "opened/opened.h"
#include "shard.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "fixtures.h"

static void *host_alloc(void *self, uint64_t bytes, uint64_t align) {
    (void)self, (void)align;
    return malloc(bytes);
}
static void host_release(void *self, void *p) {
    (void)self;
    free(p);
}
static const mn_host host = {.size = sizeof host, .alloc = host_alloc, .release = host_release};
static mn_runtime *rt;

typedef struct {
    const char *name;
    const mn_graph *g;
    mnp_shard *s;
    uint32_t n;
    uint32_t n_divided, n_sums, n_gathers;
} plan;

/* ---- coverage -------------------------------------------------------------------------------- */
/* Shares ascend without a gap from 0 to the end; a share that is not new is one that the member
 * before has, too. */
static void check_shares(const plan *p, uint32_t t, bool may_repeat) {
    const mnp_piece piece = mnp_shard_piece(p->s, t);
    const mn_tensor *whole = mnp_tensor(p->g, piece.source);
    mnp_share last = {0, 0};
    for (uint32_t r = 0; r < p->n; r++) {
        const mnp_share x = mnp_shard_share(p->s, t, r);
        const mn_tensor *mine = mnp_tensor(mnp_shard_graph(p->s, r), t);
        const bool repeats = r && x.lo == last.lo && x.hi == last.hi;
        assert_int_equal(mine->dim[piece.dim], x.hi - x.lo);
        if (x.lo >= x.hi || !(x.lo == last.hi || (repeats && may_repeat)))
            fail_msg("%s, %u members: %.*s, member %u has %lld to %lld behind %lld", p->name, p->n,
                     MNP_NAME(whole), r, (long long)x.lo, (long long)x.hi, (long long)last.hi);
        last = x;
    }
    assert_int_equal(last.hi, whole->dim[piece.dim]);
}

/* Whether a share of a weight's columns holds whole blocks. */
static void check_blocks(const plan *p, uint32_t t) {
    for (uint32_t r = 0; r < p->n; r++) {
        uint64_t bytes;
        const mn_graph *g = mnp_shard_graph(p->s, r);
        if (mnp_tensor(g, t)->role == MN_ROLE_WEIGHT)
            assert_true(mnp_bytes(g, mnp_tensor(g, t), NULL, &bytes));
    }
}

/* K and V and what makes them, where there are more members than KV heads. */
static bool has_repeated_heads(const plan *p) {
    for (uint32_t i = 0; i < p->g->n_nodes; i++) {
        const mn_node *n = mnp_node(p->g, i);
        const int64_t n_kv = mnp_attr(p->g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
        if (n->op == MN_OP_ATTENTION && n_kv < p->n)
            return true;
    }
    return false;
}

/* ---- nodes ----------------------------------------------------------------------------------- */
static int64_t width_from(const mn_tensor *t, uint32_t first) {
    int64_t n = 1;
    for (uint32_t i = first; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

static void check_product(const mn_graph *g, const mn_node *n) {
    const bool experts = n->op == MN_OP_MOE_LINEAR;
    const uint32_t at = experts ? MN_MOE_LINEAR_WEIGHT : MN_LINEAR_WEIGHT;
    const mn_tensor *x = mnp_in_tensor(g, n, 0);
    for (uint32_t i = 0; i < n->n_out; i++) {
        const mn_tensor *w = mnp_in_tensor(g, n, at + 2 * i);
        const mn_tensor *b = mnp_in_tensor(g, n, at + 2 * i + 1);
        const mn_tensor *y = mnp_out_tensor(g, n, i);
        if (!experts && w->n_dim == 3) { /* a matrix for each head */
            assert_int_equal(x->dim[1], w->dim[0]);
            assert_int_equal(y->dim[1], w->dim[0]);
            assert_int_equal(x->dim[2] - w->dim[2], y->dim[2] - w->dim[1]);
            continue;
        }
        assert_int_equal(w->dim[w->n_dim - 1], width_from(x, experts ? x->n_dim - 1 : 1));
        assert_int_equal(w->dim[w->n_dim - 2], width_from(y, experts ? 2 : 1));
        if (b)
            assert_int_equal(b->dim[b->n_dim - 1], w->dim[w->n_dim - 2]);
    }
}

static void check_node(const mn_graph *g, const mn_node *n) {
    const mn_tensor *x = n->n_in ? mnp_in_tensor(g, n, 0) : NULL;
    const mn_tensor *y = n->n_out ? mnp_out_tensor(g, n, 0) : NULL;
    if (n->op == MN_OP_LINEAR || n->op == MN_OP_MOE_LINEAR)
        check_product(g, n);
    if (n->op == MN_OP_ATTENTION) {
        const mn_tensor *sinks = mnp_in_tensor(g, n, MN_ATTENTION_SINKS);
        const int64_t n_kv = mnp_attr(g, n, MN_ATTENTION_ATTR_N_HEAD_KV);
        assert_true(n_kv > 0 && x->dim[1] % n_kv == 0);
        assert_int_equal(x->dim[1], y->dim[1]);
        if (sinks)
            assert_int_equal(sinks->dim[0], x->dim[1]);
    }
    const bool pairs = n->op == MN_OP_GLU || n->op == MN_OP_ADD || n->op == MN_OP_MUL;
    const bool same = pairs || n->op == MN_OP_ACT || n->op == MN_OP_ROPE || n->op == MN_OP_SCALE;
    if (same)
        assert_int_equal(width_from(x, 1), width_from(y, 1));
    if (pairs)
        assert_int_equal(width_from(mnp_in_tensor(g, n, 1), 1), width_from(y, 1));
    if (n->op == MN_OP_KV_STORE && mnp_in_tensor(g, n, 1))
        assert_int_equal(x->dim[1], mnp_in_tensor(g, n, 1)->dim[1]);
}

/* The KV heads that an ATTENTION reads are those that its layer stores. */
static void check_cache(const mn_graph *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *a = mnp_node(g, i);
        for (uint32_t k = 0; k < i && a->op == MN_OP_ATTENTION; k++) {
            const mn_node *n = mnp_node(g, k);
            const int64_t layer = mnp_attr(g, n, MN_KV_STORE_ATTR_KV_LAYER);
            const int64_t group = mnp_attr(g, n, MN_KV_STORE_ATTR_GROUP);
            if (n->op == MN_OP_KV_STORE && layer == mnp_attr(g, a, MN_ATTENTION_ATTR_KV_LAYER) &&
                group == mnp_attr(g, a, MN_ATTENTION_ATTR_GROUP))
                assert_int_equal(mnp_in_tensor(g, n, 0)->dim[1],
                                 mnp_attr(g, a, MN_ATTENTION_ATTR_N_HEAD_KV));
        }
    }
}

/* ---- exchanges ------------------------------------------------------------------------------- */
static void check_exchanges(plan *p) {
    uint32_t n;
    uint32_t last = 0;
    const mnp_exchange *e = mnp_shard_exchanges(p->s, &n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(e[i].at >= last && e[i].at <= p->g->n_nodes);
        last = e[i].at;
        p->n_sums += e[i].kind == MNP_SUM;
        p->n_gathers += e[i].kind == MNP_GATHER;
        const uint32_t piece = e[i].kind == MNP_GATHER ? e[i].from : e[i].to;
        if (e[i].kind == MNP_SUM)
            assert_true(e[i].from == e[i].to && mnp_shard_piece(p->s, piece).dim < 0);
        else
            assert_int_equal(mnp_shard_piece(p->s, piece).dim, e[i].dim);
    }
}

/* Of a product whose input is divided: each of its outputs is summed up, once. */
static void check_sums(const plan *p) {
    uint32_t n_exchanges;
    uint32_t n_sums = 0;
    const mnp_exchange *e = mnp_shard_exchanges(p->s, &n_exchanges);
    const mn_graph *g = mnp_shard_graph(p->s, 0);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = mnp_node(g, i);
        const bool product = n->op == MN_OP_LINEAR || n->op == MN_OP_MOE_LINEAR;
        if (product && mnp_shard_piece(p->s, (uint32_t)mnp_in(g, n, 0)).dim >= 0)
            n_sums += n->n_out;
    }
    for (uint32_t i = 0; i < n_exchanges; i++)
        n_sums -= e[i].kind == MNP_SUM;
    assert_int_equal(n_sums, 0);
}

/* ---- units ----------------------------------------------------------------------------------- */
/* Where every node is a unit, an exchange stands where the plan has it or later, behind who makes
 * it and before who reads it; and nobody may fuse what is exchanged. */
static void check_stops(const plan *p) {
    uint32_t n_exchanges;
    const mnp_exchange *e = mnp_shard_exchanges(p->s, &n_exchanges);
    const mn_graph *g = mnp_shard_graph(p->s, 1);
    const uint32_t n = g->n_nodes;
    uint32_t *units = calloc((size_t)n + n_exchanges, sizeof *units);
    mnp_use *uses = calloc(g->n_tensors, sizeof *uses);
    const mnp_lowering l = {g, 0, n, uses};
    uint32_t *before = units + n;
    mn_error err = MN_ERROR_INIT;
    for (uint32_t i = 0; i < n; i++)
        units[i] = i;
    mnp_count_uses(g, 0, n, uses);
    mnp_shard_uses(p->s, uses);
    assert_int_equal(mnp_shard_stops(p->s, 1, units, n, before, &err), MN_OK);
    for (uint32_t i = 0; i < n_exchanges; i++) {
        assert_true(before[i] >= e[i].at && before[i] <= n);
        assert_true(!i || before[i] >= before[i - 1]);
        assert_true(uses[e[i].from].maker < (int32_t)before[i]);
        assert_false(mnp_is_private(&l, (int32_t)e[i].from));
        for (uint32_t k = 0; k < before[i]; k++)
            for (uint32_t j = 0; j < mnp_node(g, k)->n_in; j++)
                assert_int_not_equal(mnp_in(g, mnp_node(g, k), j), (int32_t)e[i].to);
    }
    /* a unit that has all nodes leaves no place between */
    for (uint32_t i = 0; i < n; i++)
        units[i] = 0;
    assert_int_equal(mnp_shard_stops(p->s, 1, units, 1, before, &err), MN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "is made behind the unit"));
    free(units);
    free(uses);
}

/* ---- a plan ---------------------------------------------------------------------------------- */
static uint64_t bytes_of(const mn_graph *g, uint32_t t) {
    uint64_t bytes = 0;
    assert_true(mnp_bytes(g, mnp_tensor(g, t), NULL, &bytes));
    return bytes;
}

/* What all members hold is what the model has, and whole weights n times; more where KV heads are
 * repeated. */
static void check_bytes(const plan *p, bool repeats) {
    const mn_graph *g = mnp_shard_graph(p->s, 0);
    uint64_t held = 0;
    uint64_t expected = 0;
    bool *seen = calloc(g->n_tensors, sizeof *seen);
    mnp_cursor at = {0, 0};
    uint32_t node;
    for (uint32_t r = 0; r < p->n; r++)
        held += mnp_shard_weight_bytes(p->s, r);
    for (int32_t t; (t = mnp_next_weight(g, g->n_nodes, &at, &node)) >= 0;) {
        const mnp_piece piece = mnp_shard_piece(p->s, (uint32_t)t);
        const bool first_only =
            mnp_in(mnp_shard_graph(p->s, 1), mnp_node(g, node), at.operand - 1) < 0;
        const uint32_t times = piece.dim < 0 && !first_only ? p->n : 1;
        if (!seen[t])
            expected += bytes_of(p->g, piece.source) * times;
        seen[t] = true;
    }
    free(seen);
    if (repeats)
        assert_true(held >= expected);
    else
        assert_int_equal(held, expected);
}

static void check_plan(void *arg, const char *name, const mn_graph *g) {
    const mn_compile c = {
        .size = sizeof c, .graph = g, .node_hi = g->n_nodes, .symbol_max = (int64_t[64]){0}};
    plan p = {.name = name, .g = g, .n = *(const uint32_t *)arg};
    mn_error err = MN_ERROR_INIT;
    if (mnp_shard_plan(&host, &c, p.n, &p.s, &err))
        fail_msg("%s, %u members: %s", name, p.n, err.msg);
    const bool repeats = has_repeated_heads(&p);
    const mn_graph *first = mnp_shard_graph(p.s, 0);
    for (uint32_t t = 0; t < first->n_tensors; t++) {
        if (mnp_shard_piece(p.s, t).dim < 0)
            continue;
        p.n_divided++;
        check_shares(&p, t, repeats);
        check_blocks(&p, t);
    }
    for (uint32_t r = 0; r < p.n; r++) {
        const mn_graph *mine = mnp_shard_graph(p.s, r);
        for (uint32_t i = 0; i < mine->n_nodes; i++)
            check_node(mine, mnp_node(mine, i));
        check_cache(mine);
    }
    check_exchanges(&p);
    check_sums(&p);
    if (p.n_sums)
        check_stops(&p);
    check_bytes(&p, repeats);
    const bool sums = p.n_sums || !strncmp(name, "mamba2", 6); /* its products are whole */
    if (p.n == 2 && (!p.n_divided || !sums))
        fail_msg("%s: %u tensors divided, %u sums", name, p.n_divided, p.n_sums);
    if (getenv("MINERVA_TEST_PRINT"))
        print_message("%s, %u members: %u divided, %u sums, %u gathers\n", name, p.n, p.n_divided,
                      p.n_sums, p.n_gathers);
    mnp_shard_free(p.s);
}

static void test_every_architecture(void **state) {
    static uint32_t members[] = {2, 3, 4, 8};
    (void)state;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        each_fixture(rt, check_plan, &members[i]);
}

/* The plain case in full: a sum behind attention and one behind the feed-forward part of each
 * layer, the embedding and the logits gathered, and nothing taken. */
static void check_llama(void *arg, const char *name, const mn_graph *g) {
    uint32_t n = 2;
    uint32_t n_exchanges;
    int32_t n_layers = 0;
    mnp_shard *s = NULL;
    const mn_compile c = {
        .size = sizeof c, .graph = g, .node_hi = g->n_nodes, .symbol_max = (int64_t[64]){0}};
    (void)arg;
    if (strcmp(name, "llama"))
        return;
    assert_int_equal(mnp_shard_plan(&host, &c, n, &s, NULL), MN_OK);
    const mnp_exchange *e = mnp_shard_exchanges(s, &n_exchanges);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (mnp_node(g, i)->layer >= n_layers)
            n_layers = mnp_node(g, i)->layer + 1;
    assert_int_equal(n_exchanges, 2 * n_layers + 2);
    assert_int_equal(e[0].kind, MNP_GATHER);
    assert_int_equal(e[n_exchanges - 1].kind, MNP_GATHER);
    for (uint32_t i = 1; i + 1 < n_exchanges; i++)
        assert_int_equal(e[i].kind, MNP_SUM);
    mnp_shard_free(s);
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mnp_shard_plan(&host, &c, 1, &s, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "1 members"));
}
static void test_llama(void **state) {
    (void)state;
    each_fixture(rt, check_llama, NULL);
}

static int setup(void **state) {
    (void)state;
    mn_error err = MN_ERROR_INIT;
    if (mn_runtime_create(NULL, &rt, &err))
        fail_msg("%s", err.msg);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    mn_runtime_free(rt);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_architecture),
                                       cmocka_unit_test(test_llama)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
