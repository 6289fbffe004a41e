/* test_json.c -- what JSON of a model or a conversation may not say, and which of members with one
 * name counts: as Python's json, which Transformers reads them with. */
#include "text/json/json.h"
#include "text/json/scan.h"
#include "unit.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static mn_str str(const char *z) {
    return (mn_str){z, strlen(z)};
}

static void test_numbers(void **state) {
    (void)state;
    static const char *const good[] = {"0", "-0", "10", "0.5", "1e5", "1E+05", "-1.0e-10", "1e999"};
    static const char *const bad[] = {"01", "-01", "1.", "1.e5", "-.5", "1e", "1e+", "00", "0e"};
    char text[80];
    mn_error err = MN_ERROR_INIT;
    cJSON *tree = NULL;
    double value = 0;
    for (size_t i = 0; i < MN_COUNT(good); i++) {
        snprintf(text, sizeof text, "{\"a 01\\\"\": [%s]}", good[i]);
        assert_int_equal(mn_json_parse(str(text), "x.json", &tree, &err), MN_OK);
        cJSON_Delete(tree);
        mn_scan s = mn_scan_of(str(good[i]));
        assert_true(mn_scan_number(&s, &value) == (strcmp(good[i], "1e999") != 0));
        mn_scan_free(&s);
    }
    for (size_t i = 0; i < MN_COUNT(bad); i++) {
        snprintf(text, sizeof text, "{\"a 01\\\"\": [%s]}", bad[i]);
        assert_int_equal(mn_json_parse(str(text), "x.json", &tree, &err), MN_BAD_FILE);
        assert_true(strstr(err.msg, "x.json: not valid JSON at byte 1"));
        mn_scan s = mn_scan_of(str(bad[i]));
        assert_true(!mn_scan_number(&s, &value));
        mn_scan_free(&s);
    }
}

static void test_members(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{\"a\":1,\"b\":2,\"a\":3,\"c\":4,\"a\":5}", "{\"a\":5,\"b\":2,\"c\":4}"},
        {"{\"x\":[{\"a\":1,\"a\":{\"b\":1,\"b\":2}}]}", "{\"x\":[{\"a\":{\"b\":2}}]}"},
        {"{\"a\":1,\"A\":2,\"\":3,\"\":4}", "{\"a\":1,\"A\":2,\"\":4}"},
    };
    mn_error err = MN_ERROR_INIT;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        cJSON *tree = NULL;
        assert_int_equal(mn_json_parse(str(cases[i][0]), "x.json", &tree, &err), MN_OK);
        char *text = cJSON_PrintUnformatted(tree);
        assert_true(text && !strcmp(text, cases[i][1]));
        cJSON_free(text);
        cJSON_Delete(tree);
    }
}

/* Each allocation of the library that fails is out of memory, not bad JSON. */
static void test_memory(void **state) {
    (void)state;
    mn_status st = MN_OUT_OF_MEMORY;
    for (int64_t k = 1; st == MN_OUT_OF_MEMORY && k < 100; k++) {
        mn_error err = MN_ERROR_INIT;
        cJSON *tree = NULL;
        mn_alloc_fail_once(k);
        st = mn_json_parse(str("{\"a\":1,\"b\":{\"c\":1,\"c\":2},\"a\":3}"), "x.json", &tree, &err);
        assert_true(st == MN_OK || st == MN_OUT_OF_MEMORY);
        cJSON_Delete(tree);
    }
    mn_alloc_fail_after(-1);
    assert_int_equal(st, MN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
