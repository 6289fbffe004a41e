/* test_units.c -- what the lowering pass makes of every architecture: the graphs of the fixtures
 * through the patterns of plugins/common, held against units.txt. A builder that moves a node so
 * that a fusion is lost shows here. `test_units --print` writes the text anew; read the difference
 * before it is committed. */
#include "opened/opened.h"
#include "units.h"
#include <regex.h>
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
static const mnp_pattern *const patterns[] = {&mnp_pattern_linear, &mnp_pattern_store};
static mn_runtime *rt;

/* The anchor, and in brackets what it absorbed, in the order of the pattern: where these nodes
 * stand does not matter. "attention apart": a step of one row may run both at once. */
static void print_unit(mn_text *out, const mn_graph *g, const mnp_unit *u) {
    const char *gap = "[";
    mn_text_printf(out, "%s", mn_op_find(mnp_node(g, u->node)->op)->name);
    for (uint32_t k = 0; u->pattern && k < u->pattern->n_parts; k++) {
        const mnp_part *part = &u->pattern->parts[k];
        if (u->part[k] < 0 || (part->flags & MNP_LOCATE))
            continue;
        mn_text_printf(out, "%s%s%s", gap, part->name, part->flags & MNP_APART ? " apart" : "");
        gap = ", ";
    }
    if (*gap == ',')
        mn_text_printf(out, "]");
}

/* A line per run of layers with the same units. */
static void print_graph(mn_text *out, const mn_graph *g) {
    mnp_use *uses = calloc(g->n_tensors, sizeof *uses);
    mnp_unit *units = calloc(g->n_nodes, sizeof *units);
    mnp_lowering l = {g, 0, g->n_nodes, uses};
    uint32_t n = 0;
    mnp_count_uses(g, 0, g->n_nodes, uses);
    assert_int_equal(mnp_lower(&host, &l, patterns, 2, NULL, units, &n, NULL), MN_OK);
    char *last = NULL;
    for (uint32_t i = 0; i < n;) {
        mn_text line = {0};
        const int32_t layer = mnp_node(g, units[i].node)->layer;
        for (const char *gap = ""; i < n && mnp_node(g, units[i].node)->layer == layer; i++) {
            mn_text_printf(&line, "%s", gap);
            print_unit(&line, g, &units[i]);
            gap = " ";
        }
        const bool same = last && !strcmp(last, line.ptr) && layer >= 0;
        if (!same && last)
            mn_text_printf(out, "  %s\n", last);
        if (!same && layer >= 0)
            mn_text_printf(out, "  from layer %d:\n", layer);
        free(last);
        last = strdup(line.ptr);
        mn_text_free(&line);
    }
    mn_text_printf(out, "  %s\n", last ? last : "");
    free(last);
    free(uses);
    free(units);
}

static void print_fixture(void *out, const char *name, const mn_graph *g) {
    mn_text_printf(out, "%s\n", name);
    print_graph(out, g);
}

/* Of every fixture, by name. */
static void print_all(mn_text *out) {
    each_fixture(rt, print_fixture, out);
}

/* ---- the order of nodes that docs/ops.md states ---------------------------------------------- */
static char letter(uint32_t op) {
    static const char letters[] = "?ENNLRKACGDUSZHYTMBVWXP"; /* by op id */
    return op < sizeof letters - 1 ? letters[op] : '?';
}

/* One letter per node. */
static void spell(const mn_graph *g, char *out, size_t cap) {
    int32_t layer = -1;
    bool end = false; /* behind the last layer */
    assert_true(g->n_nodes < cap);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const mn_node *n = &g->nodes[i];
        out[i] = letter(n->op);
        end = end || (n->layer < 0 && layer >= 0);
        if (n->layer >= 0 && (end || n->layer < layer))
            fail_msg("node %u is of layer %d, behind layer %d", i, n->layer, layer);
        if (n->layer >= 0)
            layer = n->layer;
    }
    out[g->n_nodes] = 0;
}

#define ATTENTION "N?(UL)?LN{0,3}(R?|(RR)?N{0,2}K)ALN?S?"
#define CHOSEN "TMG(TMU)?MB"
#define FORWARD "N?(LGL(NNLSN" CHOSEN "ND)?|LCL|L" CHOSEN "(LGL(LTB)?D)?)N?S?"
/* mixers with a state; a gate behind attention; latent attention; a layer of one block alone */
#define MAMBA "S?LS?VCS?W(NG|GN?)LS?"
#define MIXER "N(" MAMBA "|LVC(LL)?XNGL|LNN(RR)?KAGL|LUVUL|L(NL)?R?LNR?KALL)S?"
#define BESIDE "N" MAMBA "S?L(RR)?KALS?DDNLS?GLS?D"
/* streams of Gemma 3n: a layer */
#define ROUTER "NSLZ"
#define STREAMS                                                                                    \
    ROUTER "(L+U(UD)+)+NLLNDL(NNN?(RR)?K|NR?)ALNDDSNL(NNULCBGL|GL)ND" ROUTER "SDL+(UD)+(LU)?"      \
           "LGLND+"
#define ALONE "N(" MAMBA "|LKAL|LCL|LL?TMCMBL?(LCLD)?)D"
static void check_order(void *order, const char *name, const mn_graph *g) {
    char word[4096];
    spell(g, word, sizeof word);
    if (regexec(order, word, 0, NULL, 0))
        fail_msg("%s: the nodes %s are not in the order of docs/ops.md", name, word);
}

static void test_order(void **state) {
    (void)state;
    static const char pattern[] =
        "^EN?S?P?(LNPDS)*(" ATTENTION "D" FORWARD "D(LGLND)?S?|" ATTENTION FORWARD "DD|" MIXER
        "D" FORWARD "D|" BESIDE "|" ALONE ")+HN(LS?Z?Y)?$"
        "|^ENL?(LN{0,2}(RR)?KALDN(LGL|LCL)DN(L(KAD)+[CZ]BDN)?)+H$"
        "|^ES?(LNPDS)+NUL(LNB)+(" STREAMS ")+NULLN(LND)*BDSHN(LS?Z?Y)?$"
        "|^EE(NLKALDN(LGL|LCL)D)+N(NLKALDLNLKALDN(LGL|LCL)D)+HNLS?Y$";
    regex_t order;
    assert_int_equal(regcomp(&order, pattern, REG_EXTENDED | REG_NOSUB), 0);
    assert_int_not_equal(regexec(&order, "EHNLY", 0, NULL, 0), 0);
    assert_int_not_equal(regexec(&order, "ENLRRKANLDNLGLDHNLY", 0, NULL, 0), 0);
    each_fixture(rt, check_order, &order);
    regfree(&order);
}

/* ---- weights that are rows of others --------------------------------------------------------- */
/* Parts of a cut: one height but for the last, row after row of the whole. */
static void check_cut(const mn_graph_weight *w, const char *whole, int64_t lo, int64_t n) {
    const mn_tensor_info *t = &w->source->info;
    const int64_t height = t->planes[0].dim[0];
    int64_t at = lo;
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const mn_plane *p = &t->planes[i];
        assert_true(p->dim[0] == height || (i + 1 == t->n_parts && p->dim[0] < height));
        assert_ptr_equal(p->ptr, whole + at * p->stride[0]);
        assert_int_equal(p->bytes, p->dim[0] * p->stride[0]);
        at += p->dim[0];
    }
    assert_int_equal(at, lo + n);
}

/* Rows of q, k and v out of one weight that lies in parts of 24 rows, which end inside of k. */
static void test_cuts(void **state) {
    enum { PART = 24, MAX = 16 };
    mn_plane parts[MAX];
    mn_model_graph *g = NULL;
    char path[4400];
    mn_model *m;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    snprintf(path, sizeof path, "%s/fixtures/phi3", getenv("MINERVA_TEST_DATA"));
    if (mn_model_open(rt, path, &m, &err))
        fail_msg("%s", err.msg);
    const mn_model_tensor_entry *e = mn_canonical_tensor(m->canonical, "blk.0.attn_qkv.weight");
    assert_non_null(e);
    mn_tensor_info *t = (mn_tensor_info *)(uintptr_t)&e->info;
    const mn_tensor_info before = *t;
    const mn_plane whole = t->planes[0];
    assert_true(t->n_parts == 1 && t->n_planes == 1 && t->dim[0] <= PART * MAX);
    t->planes = parts;
    t->plane_stride = sizeof *parts;
    t->n_parts = 0;
    for (int64_t at = 0; at < whole.dim[0]; at += PART) {
        mn_plane *p = &parts[t->n_parts++];
        *p = whole;
        p->dim[0] = MN_MIN(PART, whole.dim[0] - at);
        p->ptr = (const char *)whole.ptr + at * whole.stride[0];
        p->bytes = (uint64_t)(p->dim[0] * whole.stride[0]);
    }
    if (mn_model_graph_build(m->canonical, 0, false, &g, &err))
        fail_msg("%s", err.msg);
    int64_t at = 0;
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const mn_str name = g->abi.tensors[g->weights[i].tensor].name;
        if (name.len < 21 || memcmp(name.ptr, "blk.0.attn_qkv.weight", 21))
            continue;
        const int64_t n = g->weights[i].source->info.dim[0];
        check_cut(&g->weights[i], whole.ptr, at, n);
        at += n;
    }
    assert_int_equal(at, whole.dim[0]);
    mn_model_graph_free(g);
    *t = before;
    mn_model_free(m);
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

/* The first line that differs, with the model that it belongs to. */
static void test_every_architecture(void **state) {
    (void)state;
    char path[4200], *want, model[64] = "";
    uint64_t size;
    mn_text got = {0};
    print_all(&got);
    snprintf(path, sizeof path, "%s/units.txt", getenv("MINERVA_TEST_DATA"));
    assert_int_equal(mn_read_file(path, 1 << 20, &want, &size, NULL), MN_OK);
    const char *a = got.ptr, *b = want;
    while (*a || *b) {
        const int n = (int)strcspn(a, "\n"), m = (int)strcspn(b, "\n");
        if (n != m || memcmp(a, b, (size_t)n))
            fail_msg("%s: the units are\n%.*s\nbut units.txt has\n%.*s\nIf that is meant: "
                     "test_units --print > tests/data/units.txt",
                     model, n, a, m, b);
        if (*a != ' ')
            snprintf(model, sizeof model, "%.*s", n, a);
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
    mn_free(want);
    mn_text_free(&got);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_architecture),
                                       cmocka_unit_test(test_order), cmocka_unit_test(test_cuts)};
    if (argc < 2 || strcmp(argv[1], "--print"))
        return cmocka_run_group_tests(tests, setup, teardown);
    mn_text text = {0};
    setup(NULL);
    print_all(&text);
    fputs(text.ptr, stdout);
    mn_text_free(&text);
    teardown(NULL);
    return 0;
}
