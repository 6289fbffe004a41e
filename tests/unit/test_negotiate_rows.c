/* test_negotiate_rows.c -- how many rows a step has: 2,048 on one GPU that is fast and has memory
 * to spare, else as many as were asked for. */
#include "negotiate_fakes.h"
#include <cjson/cJSON.h>
#include <math.h>

enum { ROWS = 512, WIDE = 2048, ROW = 64 << 10 };
#define FASTEST_US 1e-3 /* of a node */

static mn_request request_wide(const char *list) {
    mn_request r = request_for(list);
    r.n_batch = ROWS;
    r.n_batch_wide = WIDE;
    return r;
}

static int64_t rows_of(mn_request r) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    if (mn_negotiate_kv(NULL, graph, &r, &p, &err))
        fail_msg("%s: %s", r.devices, err.msg);
    const int64_t rows = p.symbol_max[MN_SYM_TOKENS];
    mn_placement_free(&p);
    assert_int_equal(n_in_use, 0);
    return rows;
}

/* Bytes that a step of so many rows takes on the only device of the list. */
static uint64_t need_of(const char *list, uint32_t rows) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for(list);
    r.n_batch = rows;
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OK);
    const uint64_t need = p.segments[0].need;
    mn_placement_free(&p);
    return need;
}

static void test_room(void **state) {
    (void)state;
    INSTALL(GPU(1 << 30));
    row_scratch = ROW;
    assert_int_equal(rows_of(request_wide("gpu")), WIDE);
    /* the wide step takes a quarter of what the other leaves, at most */
    const uint64_t need = need_of("gpu", ROWS);
    const uint64_t more = need_of("gpu", WIDE) - need;
    assert_int_equal(more, (WIDE - ROWS) * (uint64_t)ROW);
    devices[0].info.mem_free = need + 4 * more;
    assert_int_equal(rows_of(request_wide("gpu")), WIDE);
    devices[0].info.mem_free = need + 4 * more - 4;
    assert_int_equal(rows_of(request_wide("gpu")), ROWS);
    devices[0].info.mem_free = need; /* the wide one would not fit at all */
    assert_int_equal(rows_of(request_wide("gpu")), ROWS);
    devices[0].info.mem_free = 0; /* it does not say */
    assert_int_equal(rows_of(request_wide("gpu")), ROWS);
}

/* A step of 2,048 rows takes less than 250 ms: a cancellation waits for it. */
static void test_rate(void **state) {
    (void)state;
    INSTALL(GPU(1 << 30));
    list_[0].prefill = 0.99 * 250000 / 4 / n_nodes; /* us of 512 rows, of a node */
    assert_int_equal(rows_of(request_wide("gpu")), WIDE);
    list_[0].prefill = 1.01 * 250000 / 4 / n_nodes;
    assert_int_equal(rows_of(request_wide("gpu")), ROWS);
}

static void test_other_devices(void **state) {
    (void)state;
    INSTALL(CPU, GPU(1 << 30), VENDOR(1000));
    devices[0].info.mem_free = devices[2].info.mem_free = 1 << 30;
    list_[0].us_per_node = FASTEST_US;
    assert_int_equal(rows_of(request_wide("cpu")), ROWS);
    assert_int_equal(rows_of(request_wide("gpu")), WIDE);
    assert_int_equal(rows_of(request_wide("vendor,gpu")), ROWS); /* several segments */
    /* the GPU has the whole graph in narrow steps only */
    row_scratch = ROW;
    devices[1].info.mem_free = need_of("gpu", ROWS) + (8 << 20);
    assert_int_equal(rows_of(request_wide("gpu,cpu")), ROWS);
}

static void test_number_of_the_caller(void **state) {
    (void)state;
    INSTALL(GPU(1 << 30));
    mn_request r = request_wide("gpu");
    r.n_batch_wide = 0;
    assert_int_equal(rows_of(r), ROWS);
    r.n_batch_wide = r.n_batch = 3000; /* as many sequences at once */
    assert_int_equal(rows_of(r), 3000);
}

/* A KV cache of so many bytes has no fewer positions for it. */
static void test_cache(void **state) {
    (void)state;
    INSTALL(GPU(1 << 30));
    const uint64_t page = 4096 * N_LAYERS; /* of 64 positions */
    mn_request r = request_wide("gpu");
    r.n_ctx = 4096;
    r.kv_bytes = WIDE / 64 * page;
    assert_int_equal(rows_of(r), WIDE);
    r.kv_bytes -= 1; /* no room for one such step */
    assert_int_equal(rows_of(r), ROWS);
}

/* Times that cannot be are unknown: of prompts, 16 times what one row takes stands in; of all, the
 * bytes at an assumed rate, which is slow. */
static void test_claims_that_cannot_be(void **state) {
    (void)state;
    static const double claims[] = {0, -1, NAN, INFINITY, -INFINITY, 1e300};
    INSTALL(GPU(1 << 30));
    for (size_t i = 0; i < MN_COUNT(claims); i++) {
        list_[0].us_per_node = 1;
        list_[0].prefill = claims[i];
        assert_int_equal(rows_of(request_wide("gpu")), WIDE);
        list_[0].us_per_node = 1000;
        assert_int_equal(rows_of(request_wide("gpu")), ROWS);
        list_[0].us_per_node = claims[i];
        list_[0].prefill = 1;
        assert_int_equal(rows_of(request_wide("gpu")), ROWS);
    }
    list_[0].us_per_node = 1;
    list_[0].prefill = 10;
    row_scratch = UINT64_MAX / ROWS; /* more bytes than a machine has, or a sum that wraps */
    refused("gpu", MN_NO_DEVICE, "absurd");
    row_scratch = ((uint64_t)1 << 50) / (WIDE - 1);
    devices[0].info.mem_free = UINT64_MAX;
    assert_int_equal(rows_of(request_wide("gpu")), ROWS);
}

/* The devices are asked twice; what is wrong with the list is said once. */
static uint32_t n_warnings;
static void count_warnings(void *arg, int32_t level, const char *msg) {
    (void)arg, (void)msg;
    n_warnings += level == MN_LOG_WARN;
}

static void test_warnings(void **state) {
    (void)state;
    INSTALL(GPU(1 << 30));
    n_warnings = 0;
    mn_log_to(count_warnings, NULL);
    const int64_t rows = rows_of(request_wide("nope,auto"));
    mn_log_to(NULL, NULL);
    assert_int_equal(rows, WIDE);
    assert_int_equal(n_warnings, 1);
}

static void test_explanation(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        INSTALL(GPU(wide ? 1 << 30 : 0));
        mn_placement p;
        mn_error err = MN_ERROR_INIT;
        mn_request r = request_wide("auto");
        mn_text text = {0};
        r.flags = MN_REQUEST_EXPLAIN;
        assert_int_equal(mn_negotiate_kv(NULL, graph, &r, &p, &err), MN_OK);
        json_out j = json_to_text(&text);
        json_open(&j, '{');
        mn_placement_explain(&p, NULL, graph, &r, &err, &j);
        json_close(&j);
        mn_placement_free(&p);
        cJSON *record = cJSON_Parse(text.ptr);
        const cJSON *placement = cJSON_GetObjectItemCaseSensitive(record, "placement");
        assert_int_equal(cJSON_GetObjectItemCaseSensitive(placement, "rows")->valueint,
                         wide ? WIDE : ROWS);
        cJSON_Delete(record);
        mn_text_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),          cmocka_unit_test(test_rate),
        cmocka_unit_test(test_other_devices), cmocka_unit_test(test_number_of_the_caller),
        cmocka_unit_test(test_cache),         cmocka_unit_test(test_claims_that_cannot_be),
        cmocka_unit_test(test_warnings),      cmocka_unit_test(test_explanation)};
    return cmocka_run_group_tests(tests, fake_graph, NULL);
}
