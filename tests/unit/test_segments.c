/* test_segments.c -- one graph over several devices, cut at every node, at every layer and node by
 * node: the golden ids, and the logits of one device. flaky (never lost here) has KV pages of 48
 * tokens beside 64, and may hide that its memory can be mapped. */
#include "opened/opened.h"
#include "flaky.h"
#include "engine/engine_impl.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <cmocka.h>

enum { N_CTX = 256, N_NEW = 8, MAX_PROMPT = 192, MAX_SEGMENTS = 256 };
static mn_runtime *rt;
static mn_model *model;
static const mn_model_graph *graph;
static int32_t prompt[MAX_PROMPT], golden[N_NEW];
static uint32_t n_prompt;

typedef struct {
    int32_t ids[N_NEW];
    float *logits; /* [n_prompt, n_vocab] */
} answer;

static void read_golden(void) {
    char path[4200], *text = NULL;
    uint64_t n;
    snprintf(path, sizeof path, "%s/golden.json", flaky_demo);
    assert_int_equal(mn_read_file(path, 1 << 20, &text, &n, NULL), MN_OK);
    cJSON *all = cJSON_Parse(text);
    const cJSON *first = cJSON_GetArrayItem(all, 0),
                *ids = cJSON_GetObjectItem(first, "prompt_ids"),
                *greedy = cJSON_GetObjectItem(first, "greedy_ids");
    n_prompt = (uint32_t)cJSON_GetArraySize(ids);
    assert_in_range(n_prompt, 1, MAX_PROMPT);
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = cJSON_GetArrayItem(ids, (int)i)->valueint;
    for (int i = 0; i < N_NEW; i++)
        golden[i] = cJSON_GetArrayItem(greedy, i)->valueint;
    cJSON_Delete(all);
    mn_free(text);
}

/* ---- placements by hand ---------------------------------------------------------------------- */
typedef struct {
    mn_placement p;
    mn_offer offers[3];
    mn_segment segments[MAX_SEGMENTS];
} plan;

static void add_device(plan *pl, const char *name) {
    mn_offer *o = &pl->offers[pl->p.n_offers++];
    mn_error err = MN_ERROR_INIT;
    o->record = mn_registry_device(rt->registry, mn_str_of(name));
    if (!o->record)
        fail_msg("%s is not there", name);
    if (mn_registry_device_open(rt->registry, o->record, &o->device, &err))
        fail_msg("%s", err.msg);
    o->precision = MN_PRECISION_EXACT;
    o->k_dtype = o->v_dtype = MN_F32;
}

static void begin(plan *pl, const char *a, const char *b) {
    memset(pl, 0, sizeof *pl);
    add_device(pl, a);
    if (b)
        add_device(pl, b);
    pl->p.offers = pl->offers;
    pl->p.segments = pl->segments;
    int64_t *s = pl->p.symbol_max;
    s[MN_SYM_TOKENS] = s[MN_SYM_OUTPUTS] = MAX_PROMPT;
    s[MN_SYM_SEQS] = s[MN_SYM_SLOTS] = 2;
    s[MN_SYM_PAGES] = 1;
    s[MN_SYM_CTX] = N_CTX;
    s[MN_SYM_SEQ_ROWS] = MAX_PROMPT;
}

static void add(plan *pl, uint32_t hi, uint32_t offer) {
    uint32_t n = pl->p.n_segments, lo = n ? pl->segments[n - 1].node_hi : 0;
    if (hi <= lo)
        return;
    if (n && pl->segments[n - 1].offer == offer)
        pl->segments[n - 1].node_hi = hi;
    else
        pl->segments[pl->p.n_segments++] =
            (mn_segment){.node_lo = lo, .node_hi = hi, .offer = offer};
}

/* May a segment end before this node? */
static bool may_cut(uint32_t node) {
    return graph->abi.nodes[node].op != MN_OP_ATTENTION;
}

/* ---- two sequences, of which the second lies in the pages after the first's; slot 1 is the one
 * that is looked at ---- */
static void set_pages(const mn_engine *e, int32_t *packed) {
    for (uint32_t g = 0; g < graph->hp.n_kv; g++)
        for (uint32_t slot = 0; slot < 2; slot++)
            for (uint32_t i = 0; i < e->group[g].n_pages; i++)
                packed[mn_engine_row(e, g, slot) + i] =
                    (int32_t)((slot + 1) * e->group[g].n_pages - 1 - i);
}

static void step(mn_engine *e, int32_t *packed, uint32_t n, bool literal, bool every, int32_t *id) {
    const mn_input_layout *l = &e->in;
    mn_engine_step x = {.inputs = packed, .logits = every};
    mn_error err = MN_ERROR_INIT;
    mn_event *done = NULL;
    memset(packed + l->row_slot, 0xff, (l->seqs - l->row_slot) * 4);
    memset(packed + l->out_row, 0xff, (l->head - l->out_row) * 4);
    memcpy(packed + l->seqs, (int32_t[]){0, (int32_t)n, 1, 0}, 16);
    for (uint32_t i = 0; i < n; i++) {
        packed[l->src + i] = literal ? prompt[i] : ~1;
        packed[l->pos + i] = literal ? (int32_t)i : -1;
        packed[l->row_slot + i] = 1;
        packed[l->out_row + i] = every ? (int32_t)i : (int32_t)n - 1;
    }
    const uint32_t n_out = every ? n : 1;
    packed[l->out_slot + n_out - 1] = 1;
    const mn_step_size size = {n, n_out, 1, n, N_CTX, 0, 0};
    mn_engine_describe(e, &size, packed);
    mn_engine_symbols(e, &size, x.symbols);
    mn_status st = mn_engine_submit(e, &x, &done, &err);
    if (!st)
        st = mn_engine_wait(e, &done, 1000000000, &err);
    if (st)
        fail_msg("%s", err.msg);
    *id = mn_engine_ids(e, 0)[n_out - 1];
}

static answer drive(const plan *pl) {
    answer a = {.logits = malloc((size_t)n_prompt * (size_t)graph->hp.n_vocab * sizeof(float))};
    mn_error err = MN_ERROR_INIT;
    mn_engine *e = NULL;
    const float *rows;
    if (mn_engine_create(&pl->p, graph, 1, &e, NULL, &err))
        fail_msg("%s", err.msg);
    int32_t *packed = calloc(e->in.total, sizeof *packed);
    set_pages(e, packed);
    assert_int_equal(
        mn_engine_reset_slot(e, 1, &(mn_slot){0}, &(mn_slot_params){.max_new = N_NEW}, &err),
        MN_OK);
    assert_int_equal(mn_engine_make_logits(e, &err), MN_OK);
    step(e, packed, n_prompt, true, true, &a.ids[0]);
    assert_int_equal(mn_engine_logits(e, n_prompt, &rows, &err), MN_OK);
    memcpy(a.logits, rows, (size_t)n_prompt * (size_t)graph->hp.n_vocab * sizeof(float));
    for (uint32_t i = 1; i < N_NEW; i++)
        step(e, packed, 1, false, false, &a.ids[i]);
    free(packed);
    mn_engine_free(e);
    return a;
}

static answer one; /* of the reference alone */

static void like_one(const plan *pl, double limit) {
    answer a = drive(pl);
    double diff = 0, all = 0;
    for (size_t i = 0; i < (size_t)n_prompt * (size_t)graph->hp.n_vocab; i++) {
        diff += pow((double)a.logits[i] - (double)one.logits[i], 2);
        all += pow((double)one.logits[i], 2);
    }
    assert_memory_equal(a.ids, golden, sizeof golden);
    if (!(sqrt(diff / all) <= limit))
        fail_msg("relative L2 %g, %u segments", sqrt(diff / all), pl->p.n_segments);
    free(a.logits);
}

static void test_one_device(void **state) {
    static const char *const devices[] = {"reference", "cpu_simd", "flaky"};
    (void)state;
    for (size_t i = 0; i < MN_COUNT(devices); i++) {
        plan pl;
        begin(&pl, devices[i], NULL);
        add(&pl, graph->abi.n_nodes, 0);
        if (!i)
            one = drive(&pl);
        like_one(&pl, 1e-5);
    }
}

static void test_every_node(void **state) {
    const uint32_t n = graph->abi.n_nodes;
    (void)state;
    for (uint32_t cut = 1; cut + 1 < n; cut++) {
        plan pl;
        begin(&pl, "cpu_simd", "flaky");
        add(&pl, cut, 0);
        add(&pl, n - 1, 1); /* SAMPLE is where EMBED is */
        add(&pl, n, 0);
        if (may_cut(cut))
            like_one(&pl, 1e-5);
    }
}

static void layers(plan *pl) {
    const uint32_t n = graph->abi.n_nodes;
    for (uint32_t i = 0; i < n; i++)
        add(pl, i + 1, graph->abi.nodes[i].layer < 0 ? 0 : graph->abi.nodes[i].layer % 2);
    assert_true(pl->p.n_segments > 4);
}

static void test_every_layer(void **state) {
    static const char *const pairs[][2] = {
        {"reference", "cpu_simd"}, {"cpu_simd", "reference"}, {"flaky", "reference"}};
    (void)state;
    for (size_t i = 0; i < MN_COUNT(pairs); i++) {
        plan pl;
        begin(&pl, pairs[i][0], pairs[i][1]);
        layers(&pl);
        like_one(&pl, 1e-5);
    }
}

static void alternate(plan *pl) {
    const uint32_t n = graph->abi.n_nodes;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i && may_cut(i))
            at = !at;
        add(pl, i + 1, i + 1 == n ? 0 : at);
    }
    assert_true(pl->p.n_segments > n / 2);
}

static void test_alternating(void **state) {
    (void)state;
    plan pl;
    begin(&pl, "cpu_simd", "reference");
    alternate(&pl);
    like_one(&pl, 1e-5);
    begin(&pl, "cpu_simd", "flaky");
    alternate(&pl);
    like_one(&pl, 1e-5);
}

/* What crosses first is larger than what crosses last: a layer's input, then the rows'
 * positions. */
static void test_sizes_that_cross(void **state) {
    const uint32_t n = graph->abi.n_nodes;
    (void)state;
    plan pl;
    begin(&pl, "flaky", "cpu_simd");
    uint32_t cut = 0;
    while (graph->abi.nodes[cut].layer < 1)
        cut++;
    add(&pl, cut, 0);
    add(&pl, n - 1, 1);
    add(&pl, n, 0);
    like_one(&pl, 1e-5);
}

/* Symbols of a step: what devices may rely on, whatever a step holds. */
static void test_symbols(void **state) {
    static const int64_t max[MN_SYM_COUNT] = {
        [MN_SYM_TOKENS] = 200, [MN_SYM_OUTPUTS] = 10, [MN_SYM_SEQS] = 10,     [MN_SYM_SLOTS] = 10,
        [MN_SYM_PAGES] = 64,   [MN_SYM_CTX] = 3000,   [MN_SYM_SEQ_ROWS] = 200};
    static const struct {
        mn_step_size step;
        uint32_t grain;
        int64_t tokens, outputs, seqs, rows, ctx;
    } rows[] = {
        {{1, 1, 1, 1, 1, 0, 0}, 0, 1, 1, 1, 1, 256},
        {{1, 1, 1, 1, 256, 0, 0}, 0, 1, 1, 1, 1, 256},
        {{1, 1, 1, 1, 257, 0, 0}, 0, 1, 1, 1, 1, 512},
        {{3, 3, 3, 1, 2049, 0, 0}, 0, 4, 4, 4, 1, 3000},
        {{9, 9, 9, 1, 300, 0, 0}, 0, 16, 10, 10, 1, 512},
        {{50, 0, 1, 50, 50, 0, 0}, 0, 64, 0, 1, 200, 256},
        {{50, 1, 1, 50, 50, 0, 0}, 24, 72, 1, 1, 200, 256},
        {{18, 1, 1, 18, 50, 0, 0}, 24, 24, 1, 1, 200, 256},
        {{16, 1, 1, 16, 50, 0, 0}, 24, 16, 10, 10, 200, 256}, // few rows: as many sequences
        {{5, 5, 1, 5, 50, 0, 0}, 8, 8, 8, 8, 200, 256},
        {{5, 5, 1, 5, 50, 0, 0}, 1, 5, 5, 1, 200, 256},
        {{51, 3, 2, 50, 50, 0, 0}, 0, 64, 10, 2, 200, 256},
        {{150, 4, 4, 140, 600, 0, 0}, 0, 200, 4, 4, 200, 1024},
        {{65, 4, 5, 60, 50, 0, 0}, 8, 72, 8, 8, 200, 256}, // few sequences beside prompts
        {{65, 65, 65, 1, 50, 0, 0}, 8, 72, 10, 10, 1, 256},
        {{129, 6, 9, 121, 50, 0, 0}, 8, 144, 10, 10, 200, 256}, // rows by sixteenths
        {{145, 0, 6, 121, 50, 0, 0}, 8, 160, 0, 8, 200, 256},
        {{129, 6, 9, 121, 50, 0, 0}, 1, 129, 9, 9, 200, 256}, // a device that does not round
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        mn_engine_segment part = {.row_grain = rows[i].grain};
        mn_engine e = {.segments = &part, .n_segments = 1};
        int64_t got[MN_SYM_COUNT];
        memcpy(e.symbol_max, max, sizeof max);
        mn_engine_symbols(&e, &rows[i].step, got);
        assert_int_equal(got[MN_SYM_TOKENS], rows[i].tokens);
        assert_int_equal(got[MN_SYM_OUTPUTS], rows[i].outputs);
        assert_int_equal(got[MN_SYM_SEQS], rows[i].seqs);
        assert_int_equal(got[MN_SYM_SEQ_ROWS], rows[i].rows);
        assert_int_equal(got[MN_SYM_CTX], rows[i].ctx);
        assert_int_equal(got[MN_SYM_SLOTS], 10);
        assert_int_equal(got[MN_SYM_PAGES], 64);
    }
}

/* Pages of 48 and of 64 tokens: a half-filled page of 192 is copied as whole and partial pages of
 * each. */
static void copy_page(const plan *pl) {
    mn_error err = MN_ERROR_INIT;
    mn_engine *e = NULL;
    assert_int_equal(mn_engine_create(&pl->p, graph, 1, &e, NULL, &err), MN_OK);
    for (uint32_t g = 0; g < graph->hp.n_kv; g++) {
        const uint32_t per = e->group[g].page_tokens; /* a group may be on one device alone */
        assert_true(per == 192 || (graph->hp.n_kv > 1 && (per == 48 || per == 64)));
        assert_int_equal(e->group[g].n_pages, (N_CTX + per - 1) / per);
    }
    int32_t *packed = calloc(e->in.total, sizeof *packed), id;
    const mn_slot_params params = {.max_new = N_NEW};
    set_pages(e, packed);
    assert_int_equal(mn_engine_reset_slot(e, 1, &(mn_slot){0}, &params, &err), MN_OK);
    step(e, packed, n_prompt, true, false, &id);
    assert_int_equal(id, golden[0]);
    for (uint32_t g = 0; g < graph->hp.n_kv; g++) {
        const uint32_t per = e->group[g].page_tokens;
        int32_t *pages = &packed[mn_engine_row(e, g, 1)];
        const int32_t *others = &packed[mn_engine_row(e, g, 0)];
        for (uint32_t i = 0; i * per < n_prompt; i++) {
            const uint32_t n = MN_MIN(per, n_prompt - i * per);
            const mn_page_copy copy = {(uint32_t)pages[i], (uint32_t)others[i], n, 0};
            assert_int_equal(mn_engine_copy_page(e, g, copy, &err), MN_OK);
            pages[i] = others[i];
        }
    }
    for (uint32_t i = 1; i < N_NEW; i++) {
        step(e, packed, 1, false, false, &id);
        assert_int_equal(id, golden[i]);
    }
    free(packed);
    mn_engine_free(e);
}

static void test_page_copy(void **state) {
    (void)state;
    plan pl;
    begin(&pl, "cpu_simd", "flaky");
    layers(&pl);
    copy_page(&pl);
}

/* A text over several pages of each size: 170 tokens are 3.5 pages of 48, 2.7 of 64, within one of
 * 192. */
static void long_text(int64_t n_vocab) {
    int32_t short_prompt[MAX_PROMPT], short_golden[N_NEW];
    const uint32_t n_short = n_prompt;
    const answer of_short = one;
    plan pl;
    memcpy(short_prompt, prompt, sizeof prompt);
    memcpy(short_golden, golden, sizeof golden);
    n_prompt = 170;
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = i ? (int32_t)(6 + i * i * 17 % (n_vocab - 48)) : 1;
    begin(&pl, "reference", NULL);
    add(&pl, graph->abi.n_nodes, 0);
    one = drive(&pl);
    memcpy(golden, one.ids, sizeof golden);
    begin(&pl, "cpu_simd", "flaky");
    layers(&pl);
    like_one(&pl, 1e-5);
    copy_page(&pl);
    free(one.logits);
    one = of_short;
    n_prompt = n_short;
    memcpy(prompt, short_prompt, sizeof prompt);
    memcpy(golden, short_golden, sizeof golden);
}

static void test_long(void **state) {
    (void)state;
    long_text(graph->hp.n_vocab);
}

/* Models with several KV groups: page tables of their own, expanded one by one. */
static void test_groups(void **state) {
    static const char *const names[] = {"gemma3", "llama-layers"};
    const char *data = getenv("MINERVA_TEST_DATA");
    mn_model *demo = model;
    const mn_model_graph *of_demo = graph;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/fixtures/%s", data ? data : "tests/data", names[i]);
        if (mn_model_open(rt, path, &model, &err) ||
            mn_model_graph_for(model, N_CTX, false, &graph, &err))
            fail_msg("%s", err.msg);
        assert_in_range(graph->hp.n_kv, 2, 3);
        long_text(graph->hp.n_vocab);
        mn_model_free(model);
    }
    model = demo;
    graph = of_demo;
}

static void test_torn_placements(void **state) {
    (void)state;
    const uint32_t n = graph->abi.n_nodes;
    plan pl;
    mn_error err = MN_ERROR_INIT;
    mn_engine *e = NULL;
    begin(&pl, "cpu_simd", "reference");
    add(&pl, n - 1, 0);
    add(&pl, n, 1);
    assert_int_equal(mn_engine_create(&pl.p, graph, 1, &e, NULL, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "slots"));
    begin(&pl, "cpu_simd", "reference");
    uint32_t cut = 1;
    while (may_cut(cut))
        cut++;
    add(&pl, cut, 0);
    add(&pl, n - 1, 1);
    add(&pl, n, 0);
    assert_int_equal(mn_engine_create(&pl.p, graph, 1, &e, NULL, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "KV_STORE"));
    begin(&pl, "cpu_simd", "reference");
    add(&pl, n - 1, 0);
    assert_int_equal(mn_engine_create(&pl.p, graph, 1, &e, NULL, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "end at node"));
}

static void test_out_of_memory(void **state) {
    (void)state;
    plan pl;
    begin(&pl, "cpu_simd", "flaky");
    layers(&pl);
    mn_status st = MN_OUT_OF_MEMORY;
    for (int64_t k = 1; st; k += 1 + k / 40) {
        mn_error err = MN_ERROR_INIT;
        mn_engine *e = NULL;
        mn_alloc_fail_after(k);
        st = mn_engine_create(&pl.p, graph, 1, &e, NULL, &err);
        mn_alloc_fail_after(-1);
        if (st)
            assert_int_equal(st, MN_OUT_OF_MEMORY);
        if (!st)
            mn_engine_free(e);
        assert_true(k < 1 << 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),       cmocka_unit_test(test_every_node),
        cmocka_unit_test(test_every_layer),      cmocka_unit_test(test_alternating),
        cmocka_unit_test(test_sizes_that_cross), cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_page_copy),        cmocka_unit_test(test_long),
        cmocka_unit_test(test_groups),           cmocka_unit_test(test_torn_placements),
        cmocka_unit_test(test_out_of_memory)};
    static const char *const ways[][3] = {{"unified", "1", NULL}, {"unified", "0", NULL}};
    mn_error err = MN_ERROR_INIT;
    int bad = 0;
    if (!flaky_setup()) {
        printf("skipped: cpu_simd is not built\n");
        return 77;
    }
    for (size_t i = 0; i < MN_COUNT(ways); i++) {
        if (flaky_runtime(ways[i], &rt, &err) || mn_model_open(rt, flaky_demo, &model, &err) ||
            mn_model_graph_for(model, N_CTX, false, &graph, &err)) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        if (!mn_registry_device(rt->registry, mn_str_of("reference"))) {
            printf("skipped: reference is not built\n");
            return 77;
        }
        if (!i)
            read_golden();
        bad += cmocka_run_group_tests_name(i ? "read and written" : "mapped", tests, NULL, NULL);
        free(one.logits);
        one.logits = NULL;
        mn_model_free(model);
        mn_runtime_free(rt);
    }
    flaky_teardown();
    return bad != 0;
}
