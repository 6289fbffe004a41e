/* test_cuda_lower.c -- what the CUDA plugin says of every fixture's graph, without a GPU: all nodes
 * run there but for those of `elsewhere`, and the whole graph is lowered into units with places for
 * tensors and scratch, in each class and with each type of cache; again with every matrix in each
 * type that minerva convert writes. And so for groups of such devices: every exchange has a place
 * between the units of each member. */
#include "opened/opened.h"
#include "common.h"
#include "memory_uses.h"
#include "usual.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "fixtures.h"

mn_device *cuda_device_of(const mn_host *host);
mn_device *cuda_group_of(const mn_host *host, uint32_t n);
const mn_backend *cuda_backend(void);
const char *cuda_reason(uint32_t reason);

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
    uint32_t precision, k, v;
} way;
static const way ways[] = {
    {MN_PRECISION_EXACT, 0, 0},
    {MN_PRECISION_A16, 0, 0},
    {MN_PRECISION_AUTO, MN_Q8_0, MN_Q8_0},
    {MN_PRECISION_A16, MN_F16, MN_Q8_0},
};

/* Types of minerva convert. */
static const uint32_t types[] = {MN_F32,  MN_F16,   MN_BF16,   MN_Q8_0,  MN_Q4_0, MN_Q4_1,
                                 MN_Q5_0, MN_Q5_1,  MN_Q2_K,   MN_Q3_K,  MN_Q4_K, MN_Q5_K,
                                 MN_Q6_K, MN_MXFP4, MN_IQ4_NL, MN_IQ4_XS};

/* Groups of 2, 3, 4 and 8; alone: the estimate of one device. */
static void check_groups(const mn_compile *c, const mn_estimate *alone, const char *what) {
    static const uint32_t members[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        mn_error err = MN_ERROR_INIT;
        mn_estimate e = {.size = sizeof e};
        mn_device *group = cuda_group_of(&host, members[i]);
        if (cuda_backend()->estimate(group, c, &e, &err))
            fail_msg("%s, %u members: %s", what, members[i], err.msg);
        assert_true(e.weights > 0 && e.weights < 2 * alone->weights); /* small rows are padded */
        assert_int_equal(e.precision, alone->precision);
    }
}

/* Every node is native: of no model that the loaders know a node has no kernel. */
static void check_verdicts(const mn_graph *g, const int64_t *most, const char *what) {
    mn_verdict *verdicts = calloc(g->n_nodes, sizeof *verdicts);
    mn_error err = MN_ERROR_INIT;
    if (mn_usual_supports(cuda_backend(), cuda_device_of(&host), g, most, verdicts,
                          sizeof *verdicts, &err))
        fail_msg("%s: %s", what, err.msg);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (verdicts[i].verdict != MN_VERDICT_NATIVE)
            fail_msg("%s: node %u (op %u): %s", what, i, mnp_node(g, i)->op,
                     cuda_reason(verdicts[i].reason));
    free(verdicts);
}

/* Every node is native, and the graph has an estimate; what: for messages. */
static void check_graph(const mn_graph *g, const char *what) {
    mn_device *device = cuda_device_of(&host);
    const mn_backend *be = cuda_backend();
    int64_t *most = calloc(g->n_symbols, sizeof *most);
    mn_error err = MN_ERROR_INIT;
    for (uint32_t i = 0; i < g->n_symbols; i++)
        most[i] = mnp_symbol(g, i)->max;
    check_verdicts(g, most, what);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        mn_compile c = {
            .size = sizeof c,
            .precision = ways[i].precision,
            .graph = g,
            .node_hi = g->n_nodes,
            .symbol_max = most,
        };
        const mn_node_range nodes = {0, g->n_nodes};
        mn_memory_uses memory;
        assert_true(mn_memory_uses_find(g, &nodes, 1, ways[i].k, ways[i].v, &memory));
        mn_memory_uses_give(&memory, &c);
        mn_estimate e = {.size = sizeof e};
        if (be->estimate(device, &c, &e, &err))
            fail_msg("%s, class %u: %s", what, ways[i].precision, err.msg);
        assert_true(e.weights > 0);
        assert_true(e.scratch > 0);
        check_groups(&c, &e, what);
        mn_memory_uses_free(&memory);
    }
    free(most);
}

/* Whether the weight is a matrix that may be stored in blocks of so many elements. */
static bool takes(const mn_tensor *t, mn_dtype type) {
    if (t->role != MN_ROLE_WEIGHT || t->n_dim < 2)
        return false;
    return t->dim[t->n_dim - 1] % type.block_elems == 0;
}

/* The graph with its matrices in another type. Matrices that norms and positions read stay. */
static void check_type(const mn_graph *g, uint32_t id, const char *name) {
    mn_graph other = *g;
    mn_tensor *tensors = calloc(g->n_tensors, sizeof *tensors);
    mn_dtype type;
    char what[320];
    assert_true(mn_dtype_by_id(id, &type));
    for (uint32_t i = 0; i < g->n_tensors; i++)
        tensors[i] = *mnp_tensor(g, i);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = mnp_node(g, i);
        const bool product = n->op == MN_OP_LINEAR || n->op == MN_OP_MOE_LINEAR;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const int32_t t = mnp_in(g, n, k);
            const bool table = n->op == MN_OP_EMBED && k == MN_EMBED_WEIGHT;
            const bool weight = product && k % 2 == (n->op == MN_OP_LINEAR ? 1 : 0) && k > 0;
            if (t >= 0 && (table || weight) && takes(&tensors[t], type))
                tensors[t].dtype = type;
        }
    }
    other.tensors = tensors;
    other.tensor_stride = sizeof *tensors;
    snprintf(what, sizeof what, "%s in %s", name, mn_dtype_name(id));
    check_graph(&other, what);
    free(tensors);
}

static void check_fixture(void *arg, const char *name, const mn_graph *g) {
    (void)arg;
    check_graph(g, name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_type(g, types[i], name);
}

static void test_fixtures(void **state) {
    (void)state;
    const int n = each_fixture(rt, check_fixture, NULL);
    assert_true(n >= 37);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fixtures)};
    mn_error err = MN_ERROR_INIT;
    if (mn_runtime_create(NULL, &rt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mn_runtime_free(rt);
    return failed;
}
