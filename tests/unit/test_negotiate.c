/* test_negotiate.c -- which device gets the model, which claims are not believed, and what the
 * record says of it. */
#include "negotiate/choose.h"
#include "negotiate_fakes.h"
#include <cjson/cJSON.h>
#include <math.h>

/* ---- one device ------------------------------------------------------------------------------ */
static void test_one_is_enough(void **state) {
    (void)state;
    INSTALL(CPU, GPU(0), ORACLE, VENDOR(20));
    mn_placement p = negotiate("auto");
    only_on(&p, "gpu");
    has_words(p.why, "the fastest of 3 usable devices");
    assert_false(p.fallback);
    assert_int_equal(offer_of(&p, "cpu")->outcome, MN_OUTCOME_SLOWER);
    assert_int_equal(offer_of(&p, "oracle")->outcome, MN_OUTCOME_ORACLE);
    assert_int_equal(offer_of(&p, "vendor")->outcome, MN_OUTCOME_PARTIAL);
    assert_int_equal(p.symbol_max[MN_SYM_PAGES], 2); /* 128 positions in pages of 64 */
    assert_int_equal(p.segments[0].n_pages[0], 2);
    assert_int_equal(p.segments[0].kv_bytes, 2 * 4096 * N_LAYERS);
    mn_placement_free(&p);
    p = negotiate("cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
}

/* Rates that cannot be measured are the plugin's claims, and the record says so. */
/* gpt-oss-20b at 131,072 positions, f16: 12 layers that see 128 positions, 12 that see all; 2 KiB
 * per layer and position. Before window layers gave pages back it was 6 GiB. */
static void test_pages_of_windows(void **state) {
    const mn_kv_group all = {.n_head_kv = 8, .head_dim_k = 64, .head_dim_v = 64};
    const mn_kv_group some = {.window = 128, .n_head_kv = 8, .head_dim_k = 64, .head_dim_v = 64};
    int64_t max[MN_SYM_COUNT] = {[MN_SYM_TOKENS] = 512, [MN_SYM_SLOTS] = 1, [MN_SYM_CTX] = 131072};
    const uint64_t page = 64 * 12 * 2048;
    (void)state;
    assert_int_equal(mn_kv_pages(&all, 64, max, 1) * page, 3221225472);
    assert_int_equal(mn_kv_pages(&all, 64, max, 1) * page + mn_kv_pages(&some, 64, max, 1) * page,
                     3241672704);
    /* the window, what 8 steps add, an unaligned page at each end; two batches */
    assert_int_equal(mn_kv_pages_of_one(&some, 64, 131072, 8), 3 + 2);
    assert_int_equal(mn_kv_pages(&some, 64, max, 8), 3 + 2 + 2 * 8);
    max[MN_SYM_SLOTS] = 20;
    assert_int_equal(mn_kv_pages(&some, 64, max, 8), 20 * (3 + 2) + 2 * 8);
    assert_int_equal(mn_kv_pages(&some, 256, max, 8), 20 * (1 + 2) + 2 * 2);
    /* of an encoder: a batch of texts, each of which may leave a page half full */
    const mn_kv_group encoder = {.n_head_kv = 8, .head_dim_k = 64, .head_dim_v = 64, .one_step = 1};
    assert_int_equal(mn_kv_pages(&encoder, 64, max, 8), 8 + 20);
    /* never more than whole rows */
    max[MN_SYM_CTX] = 100;
    assert_int_equal(mn_kv_pages(&some, 64, max, 8), 20 * 2);
    assert_int_equal(mn_kv_pages(&all, 64, max, 8), 20 * 2);
}

/* The size of a cache that sequences share: by bytes, or by what a device has left where not all of
 * them fit at full length. */
static void test_shared_cache(void **state) {
    (void)state;
    INSTALL(CPU, GPU(0));
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for("gpu");
    const uint64_t page = 4096 * N_LAYERS;
    r.n_seq = 1000;
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
    only_on(&p, "gpu");
    assert_int_equal(p.kv_positions, 0); /* all at full length */
    assert_int_equal(p.segments[0].n_pages[0], 2000);
    const uint64_t rest = p.segments[0].need - p.segments[0].kv_bytes;
    mn_placement_free(&p);
    devices[1].info.mem_free = (rest + 100 * page) / 15 * 16 + (1 << 10);
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
    only_on(&p, "gpu");
    assert_in_range(p.kv_positions, 64 * 98, 64 * 101);
    assert_in_range(p.segments[0].n_pages[0], 98, 101);
    assert_true(p.segments[0].need < devices[1].info.mem_free);
    mn_placement_free(&p);
    r.kv_bytes = 7 * page + 1;
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
    assert_int_equal(p.kv_positions, 7 * 64);
    assert_int_equal(p.segments[0].kv_bytes, 7 * page);
    mn_placement_free(&p);
    r.kv_bytes = page - 1;
    assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OUT_OF_MEMORY);
    has_words(err.msg, "one batch of 4 positions");
}

static void test_claims(void **state) {
    (void)state;
    INSTALL(CPU, GPU(0), ORACLE);
    mn_placement p = negotiate("auto");
    assert_int_equal(offer_of(&p, "gpu")->rates.source, MN_RATES_CLAIMED);
    has_words(offer_of(&p, "gpu")->rates.note, "has no queue");
    assert_string_equal(offer_of(&p, "oracle")->rates.note, ""); /* nobody asks how fast it is */
    mn_placement_free(&p);
    p = negotiate("gpu"); /* nothing to decide */
    assert_string_equal(offer_of(&p, "gpu")->rates.note, "");
    mn_placement_free(&p);
}

/* No claim makes a device faster than the fastest memory that is known. */
static void test_claims_too_high(void **state) {
    (void)state;
    INSTALL({"boaster", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 1e-15, "a", HONEST, 0, 1});
    devices[0].info.mem_gbps = 1e9;
    mn_placement p = negotiate("boaster");
    double bytes = 0;
    for (uint32_t i = 0; i < n_nodes; i++)
        bytes += mn_node_bytes(&graph->abi, i);
    const double least_us = bytes / MN_MOST_MEM_GBPS * 1e-3;
    assert_true(least_us > 1e-12);
    assert_float_equal(p.segments[0].decode_us, least_us, least_us * 1e-6);
    assert_true(p.segments[0].prefill_us >= least_us * 0.999999);
    mn_placement_free(&p);
    assert_true(mn_capped(1e9, MN_MOST_BUS_GBPS) == MN_MOST_BUS_GBPS);
    assert_true(mn_capped(20, MN_MOST_BUS_GBPS) == 20);
    assert_true(mn_capped(NAN, MN_MOST_BUS_GBPS) == 0);
}

/* 128 drawn ids count as much as the prompt of 512: a slow prompt is outweighed by quick ids, up to
 * 128 times what each of them saves. */
static void test_drawn_ids_outweigh_the_prompt(void **state) {
    (void)state;
    INSTALL({"quick", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 1, "a", HONEST, 0, 300},
            {"steady", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 5, "b", HONEST, 0, 2});
    mn_placement p = negotiate("auto");
    only_on(&p, "quick"); /* 128 + 300 < 128 * 5 + 10 */
    assert_float_equal(offer_of(&p, "quick")->score, (128 + 300) * n_nodes / 640.0, 1e-9);
    assert_float_equal(offer_of(&p, "steady")->score, (128 * 5 + 10) * n_nodes / 640.0, 1e-9);
    mn_placement_free(&p);
    list_[1].us_per_node = 3;
    p = negotiate("auto");
    only_on(&p, "steady"); /* 128 * 3 + 6 < 128 + 300 */
    mn_placement_free(&p);
}

/* Two plugins offer the CPU: the one that measured faster is taken, and a claim is not believed
 * where the other was measured. */
static void test_cpu_twice(void **state) {
    (void)state;
    INSTALL({"other", MN_DEVICE_CPU, ALL_OPS, 0, 0, 0, 12, "host", HONEST, 0, 10}, CPU);
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    list_[0].us_per_node = 8;
    p = negotiate("auto");
    only_on(&p, "other");
    mn_offer *other = (mn_offer *)(uintptr_t)offer_of(&p, "other");
    mn_offer *cpu = (mn_offer *)(uintptr_t)offer_of(&p, "cpu");
    const mn_chooser c = {.g = graph, .p = &p};
    static const uint32_t sources[] = {MN_RATES_CLAIMED, MN_RATES_CACHED, MN_RATES_MEASURED};
    cpu->rates.source = MN_RATES_MEASURED;
    for (uint32_t i = 0; i < MN_COUNT(sources); i++) {
        mn_order order = {0};
        other->rates.source = sources[i];
        mn_order_add_ranked(&c, &order, false, false);
        assert_int_equal(order.n, 2);
        assert_ptr_equal(&p.offers[order.at[0]], i ? other : cpu);
    }
    mn_placement_free(&p);
}

static void test_oracle_last(void **state) {
    (void)state;
    INSTALL(ORACLE, CPU);
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    devices[1].usable = false;
    /* words of the plugin's that are no quarantine */
    devices[1].reason = "lost: two and two make five";
    p = negotiate("auto");
    only_on(&p, "oracle");
    assert_true(p.fallback);
    has_words(p.why, "two and two make five");
    assert_int_equal(offer_of(&p, "cpu")->outcome, MN_OUTCOME_FAILED);
    mn_placement_free(&p);
    p = negotiate("oracle");
    assert_false(p.fallback);
    mn_placement_free(&p);
}

static void test_quarantine(void **state) {
    (void)state;
    INSTALL(GPU(0), CPU);
    mn_registry_quarantine(NULL, &devices[0], "");
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_QUARANTINED);
    mn_placement_free(&p);
    assert_int_equal(n_retries[0], 1);
    refused("gpu", MN_NO_DEVICE, "lost: it said so");
    p = negotiate("gpu,cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    assert_int_equal(n_retries[0], 3);
    p = negotiate("cpu"); /* not for those who do not ask for it */
    mn_placement_free(&p);
    assert_int_equal(n_retries[0], 3);
    assert_int_equal(n_retries[1], 0);
    assert_int_equal(n_in_use, 0);
}

/* ---- names ----------------------------------------------------------------------------------- */
static void test_names(void **state) {
    (void)state;
    INSTALL(GPU(0), CPU, VENDOR(1));
    mn_log_level(MN_LOG_ERROR);
    refused("nope", MN_NO_DEVICE, "there is no device \"nope\"; there are: gpu, cpu, vendor");
    refused("nope,gpu", MN_NO_DEVICE, "\"nope\"");
    mn_placement p = negotiate("nope,cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
    p = negotiate("nope,auto");
    only_on(&p, "gpu");
    mn_placement_free(&p);
    p = negotiate("gpu,cpu"); /* the second has nothing left to take */
    only_on(&p, "gpu");
    assert_int_equal(offer_of(&p, "cpu")->outcome, MN_OUTCOME_SLOWER);
    mn_placement_free(&p);
    refused("vendor", MN_NO_DEVICE,
            "cannot run EMBED with f32 weights, ROPE with f32 weights, KV_STORE");
    records[3] = (mn_plugin_record){.path = (char *)(uintptr_t) "/plugins/broken.so",
                                    .kind = "",
                                    .status = MN_RECORD_CRASHED,
                                    .reason = (char *)(uintptr_t) "crashed: SIGILL in its entry"};
    n_extra = 1;
    refused("broken:0", MN_NO_DEVICE, "crashed: SIGILL in its entry");
    records[3].no_memory = true; /* whether it is missing is then not known */
    refused("broken:0", MN_OUT_OF_MEMORY, "out of memory");
}

/* ---- weights that stay in their file --------------------------------------------------------- */
static char logged[1024];
static void keep(void *arg, int32_t level, const char *msg) {
    (void)arg, (void)level;
    snprintf(logged, sizeof logged, "%s", msg);
}

static const char *warned_of(uint64_t mem_free) {
    INSTALL(CPU);
    list_[0].lies = IN_PLACE;
    devices[0].info.mem_free = mem_free;
    logged[0] = 0;
    mn_log_level(MN_LOG_WARN);
    mn_log_to(keep, NULL);
    mn_placement p = negotiate("cpu");
    mn_log_to(NULL, NULL);
    only_on(&p, "cpu");
    mn_placement_free(&p);
    return logged;
}

static void test_weights_in_their_file(void **state) {
    const uint64_t weights = 4ull * D * (2 * D * N_LAYERS + V), rest = SPARE;
    (void)state;
    assert_string_equal(warned_of(0), ""); /* it does not say how much there is */
    assert_string_equal(warned_of(weights + rest), "");
    has_words(warned_of(weights / 2), "cpu uses 0.01 GiB of weights where they lie in their file");
}

static void test_words(void **state) {
    (void)state;
    INSTALL(GPU(1000), VENDOR(1),
            {"none", MN_DEVICE_NPU, OP(MOE_ROUTE), 0, 0, 0, 1, "n", HONEST, 0, 10});
    refused("gpu", MN_OUT_OF_MEMORY, "gpu: needs");
    refused("none", MN_NO_DEVICE, "cannot run EMBED");
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for("auto");
    r.flags = MN_REQUEST_EXPLAIN;
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_NO_DEVICE);
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_OUT_OF_MEMORY);
    assert_int_equal(offer_of(&p, "vendor")->outcome, MN_OUTCOME_PARTIAL);
    assert_int_equal(offer_of(&p, "none")->outcome, MN_OUTCOME_UNSUPPORTED);
    assert_int_equal(p.n_segments, 0);
    mn_placement_free(&p);
}

/* ---- claims that cannot be true -------------------------------------------------------------- */
static void test_lies(void **state) {
    (void)state;
    static const struct {
        lie lies;
        mn_outcome outcome;
        const char *reason;
    } cases[] = {{BAD_VERDICT, MN_OUTCOME_LEFT_OUT, "the plugin gave no valid verdict"},
                 {NO_CLASS, MN_OUTCOME_UNSUPPORTED, "states no precision class"},
                 {ABSURD, MN_OUTCOME_UNSUPPORTED, "absurd"},
                 {NO_PAGES, MN_OUTCOME_UNSUPPORTED, "KV pages"},
                 {LOST, MN_OUTCOME_QUARANTINED, "fell off the bus"},
                 {NO_TABLE, MN_OUTCOME_UNSUPPORTED, "cannot list the operations"},
                 {COARSE, MN_OUTCOME_UNSUPPORTED, "coarser"}};
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        INSTALL(CPU, GPU(0));
        list_[1].lies = cases[i].lies;
        mn_placement p;
        mn_error err = MN_ERROR_INIT;
        mn_request r = request_for("auto");
        r.precision = MN_PRECISION_EXACT;
        assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OK);
        only_on(&p, "cpu");
        const mn_offer *o = offer_of(&p, "gpu");
        if (o->outcome != cases[i].outcome || !strstr(o->reason, cases[i].reason))
            fail_msg("case %zu: %s: %s", i, mn_outcome_name(o->outcome), o->reason);
        mn_placement_free(&p);
    }
    INSTALL(CPU, GPU(0));
    /* unknown, not infinitely fast; the bytes at an assumed rate stand in */
    list_[1].lies = NOT_A_NUMBER;
    mn_placement p = negotiate("auto");
    assert_true(offer_of(&p, "gpu")->score > 0 && offer_of(&p, "gpu")->score < 1e12);
    assert_int_equal(offer_of(&p, "gpu")->estimate.row_grain, 0);
    mn_placement_free(&p);
}

/* ---- the record ------------------------------------------------------------------------------ */
static char *explained(const char *list, mn_status *status) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for(list);
    mn_text text = {0};
    r.flags = MN_REQUEST_EXPLAIN;
    forget_questions();
    *status = mn_negotiate(NULL, graph, &r, &p, &err);
    check_questions();
    json_out j = json_to_text(&text);
    json_open(&j, '{');
    mn_placement_explain(&p, NULL, graph, &r, &err, &j);
    json_close(&j);
    mn_placement_free(&p);
    if (text.failed)
        mn_text_free(&text);
    return text.ptr;
}
static const char *member(const cJSON *o, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
}
static const cJSON *candidate(const cJSON *record, const char *path) {
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(
                              record, "candidates")) if (!strcmp(member(c, "path"), path)) return c;
    fail_msg("no candidate %s", path);
    return NULL;
}
static const cJSON *step_of(const cJSON *c, const char *name) {
    const cJSON *s;
    cJSON_ArrayForEach(s, cJSON_GetObjectItemCaseSensitive(
                              c, "steps")) if (!strcmp(member(s, "step"), name)) return s;
    fail_msg("no step %s", name);
    return NULL;
}

static void test_record(void **state) {
    (void)state;
    INSTALL(CPU, VENDOR(1000), ORACLE);
    static const char *const bad[][2] = {{"crashed", "crashed: \"SIGSEGV\"\nwhile listing devices"},
                                         {"hung", "hung for 10 s"}};
    for (int i = 0; i < 2; i++)
        records[3 + i] = (mn_plugin_record){
            .path = (char *)(uintptr_t)(i ? "/plugins/hung.so" : "/plugins/crashed.so"),
            .kind = "",
            .status = mn_record_status_of(mn_str_of(bad[i][0])),
            .reason = (char *)(uintptr_t)bad[i][1]};
    n_extra = 2;
    mn_status st;
    char *once = explained("vendor,cpu", &st), *twice = explained("vendor,cpu", &st);
    assert_int_equal(st, MN_OK);
    assert_string_equal(once, twice);
    cJSON *record = cJSON_Parse(once);
    assert_non_null(record);
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(record, "error")));
    assert_string_equal(member(candidate(record, "/plugins/crashed.so"), "outcome"), "crashed");
    assert_string_equal(member(candidate(record, "/plugins/crashed.so"), "reason"), bad[0][1]);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(
        step_of(candidate(record, "/plugins/hung.so"), "probe"), "ok")));
    const cJSON *vendor = candidate(record, "/plugins/vendor.so");
    assert_string_equal(member(vendor, "outcome"), "chosen");
    /* why auto would not have taken it */
    has_words(member(step_of(vendor, "split"), "text"), "us per token");
    assert_int_equal(
        cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(step_of(vendor, "verdicts"), "ops")),
        10);
    assert_string_equal(member(candidate(record, "/plugins/oracle.so"), "outcome"), "oracle");
    const cJSON *segments = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(record, "placement"), "segments");
    assert_int_equal(cJSON_GetArraySize(segments), 3 + 4 * N_LAYERS);
    cJSON_Delete(record);
    mn_free(once);
    mn_free(twice);
    once = explained("nope", &st);
    record = cJSON_Parse(once);
    assert_int_equal(st, MN_NO_DEVICE);
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(record, "placement")));
    has_words(member(cJSON_GetObjectItemCaseSensitive(record, "error"), "message"), "nope");
    assert_string_equal(member(cJSON_GetObjectItemCaseSensitive(record, "error"), "status"),
                        "no device");
    assert_string_equal(member(candidate(record, "/plugins/cpu.so"), "outcome"), "not named");
    cJSON_Delete(record);
    mn_free(once);
}

/* Memory of the host that runs out anywhere is an error, and leaks nothing (under ASan). */
static void test_no_memory(void **state) {
    (void)state;
    static const char *const lists[] = {"auto", "vendor,cpu", "gpu,cpu", "nope,cpu", "nope"};
    INSTALL(CPU, GPU(3 * LAYER + HEAD + SPARE), VENDOR(1000), ORACLE);
    mn_log_level(MN_LOG_ERROR - 1);
    for (size_t i = 0; i < MN_COUNT(lists); i++)
        for (int64_t k = 1, done = 0; !done; k++) {
            mn_status st;
            mn_alloc_fail_after(k);
            char *text = explained(lists[i], &st);
            mn_alloc_fail_after(-1);
            done = text && st != MN_OUT_OF_MEMORY;
            mn_free(text);
            assert_true(k < 100000);
        }
    mn_log_level(MN_LOG_WARN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_is_enough),
                                       cmocka_unit_test(test_drawn_ids_outweigh_the_prompt),
                                       cmocka_unit_test(test_pages_of_windows),
                                       cmocka_unit_test(test_claims),
                                       cmocka_unit_test(test_claims_too_high),
                                       cmocka_unit_test(test_cpu_twice),
                                       cmocka_unit_test(test_oracle_last),
                                       cmocka_unit_test(test_quarantine),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_weights_in_their_file),
                                       cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_lies),
                                       cmocka_unit_test(test_shared_cache),
                                       cmocka_unit_test(test_record),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, fake_graph, NULL);
}
