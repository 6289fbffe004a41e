/* test_ground.c -- the ground floor: texts, JSON into a text, UTF-8, overflow, characters, FNV.
 * What it writes as JSON is read back, for every character and for bytes that are no text. */
#include "alloc.h"
#include "json_out.h"
#include "utf8.h"
#include <cjson/cJSON.h>
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void overflow(void **state) {
    uint64_t out = 0;
    (void)state;
    assert_true(mn_mul_u64(UINT64_C(1) << 32, UINT32_MAX, &out) &&
                out == UINT64_C(0xFFFFFFFF00000000));
    assert_false(mn_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_true(mn_add_u64(UINT64_MAX, 0, &out) && out == UINT64_MAX);
    assert_false(mn_add_u64(UINT64_MAX, 1, &out));
}

/* Against tables that somebody else made: draft-eastlake-fnv. */
static void fnv(void **state) {
    (void)state;
    assert_true(mn_fnv_z(MN_FNV_BASIS, "") == UINT64_C(0xcbf29ce484222325));
    assert_true(mn_fnv_z(MN_FNV_BASIS, "a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(mn_fnv_z(MN_FNV_BASIS, "foobar") == UINT64_C(0x85944171f73967e8));
    assert_true(mn_fnv(mn_fnv_z(MN_FNV_BASIS, "foo"), "bar", 3) == UINT64_C(0x85944171f73967e8));
}

static void characters(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        const char at[2] = {(char)c, 0};
        char *end = NULL;
        const long value = strtol(at, &end, 16);
        const bool is_hex = c > ' ' && c != '+' && c != '-' && end == at + 1;
        assert_int_equal(mn_is_digit((char)c), c >= '0' && c <= '9');
        assert_int_equal(mn_hex_digit((char)c), is_hex ? value : -1);
        assert_int_equal(mn_is_blank((char)c), c && strchr(" \t\r\n", c) != NULL);
    }
}

static void strings(void **state) {
    const mn_str none = {NULL, 0}, a = mn_str_of("ab"), b = mn_str_of("abc");
    (void)state;
    assert_true(mn_str_eq(none, mn_str_of(NULL)) && mn_str_is(none, ""));
    assert_true(mn_str_begins(b, "ab") && !mn_str_begins(a, "abc") && mn_str_begins(none, ""));
    assert_true(mn_str_ends(b, "bc") && !mn_str_ends(a, "abc") && mn_str_ends(none, ""));
    assert_true(mn_str_cmp(a, b) < 0 && mn_str_cmp(b, a) > 0 && mn_str_cmp(a, a) == 0);
    assert_true(mn_str_cmp(none, a) < 0 && mn_str_cmp(none, none) == 0);
}

static void text(void **state) {
    mn_text t = {0}, more = {0};
    (void)state;
    mn_text_puts(&t, "bd");
    mn_text_insert(&t, 1, "c", 1);
    mn_text_insert(&t, 0, "a", 1);
    assert_string_equal(t.ptr, "abcd");
    mn_text_remove(&t, 1, 3);
    mn_text_remove(&t, 2, 1);
    assert_string_equal(t.ptr, "ad");
    mn_text_add(&t, &more);
    mn_text_printf(&more, "%s-%d", "x", 7);
    mn_text_add(&t, &more);
    assert_string_equal(t.ptr, "adx-7");
    char *taken = mn_text_take(&t);
    assert_string_equal(taken, "adx-7");
    mn_free(taken);
    taken = mn_text_take(&t);
    assert_string_equal(taken, "");
    mn_free(taken);
    mn_text_clear(&more);
    assert_true(!more.len && !*more.ptr);
    more.failed = true;
    mn_text_add(&t, &more);
    assert_true(t.failed && !mn_text_take(&t));
    mn_text_free(&more);
}

/* Each allocation that fails makes the text incomplete, and says so. */
static void no_memory(void **state) {
    (void)state;
    for (int64_t k = 1;; k++) {
        mn_text t = {0};
        json_out j = json_to_text(&t);
        mn_alloc_fail_once(k);
        json_open(&j, '{');
        for (int i = 0; i < 100; i++)
            json_put_z(&j, "key", "value");
        json_close(&j);
        const bool failed = mn_alloc_failed();
        mn_alloc_fail_after(-1);
        assert_int_equal(t.failed, failed);
        mn_text_free(&t);
        if (!failed)
            break;
    }
}

/* One character, or one byte, as a string of JSON means what it was; a byte that is no text is
 * U+FFFD. The string of a text and the writer's are the same. */
static void is_written(const char *s, size_t n, const char *expected) {
    mn_text t = {0}, member = {0};
    json_out j = json_to_text(&member);
    mn_text_json(&t, (mn_str){s, n});
    json_str(&j, s, n);
    assert_string_equal(t.ptr, member.ptr);
    cJSON *v = cJSON_Parse(t.ptr);
    assert_non_null(v);
    assert_string_equal(cJSON_GetStringValue(v), expected);
    assert_int_equal(mn_utf8_check(t.ptr, t.len), t.len);
    for (size_t i = 0; i < t.len; i++)
        assert_true((unsigned char)t.ptr[i] >= 0x20);
    cJSON_Delete(v);
    mn_text_free(&t);
    mn_text_free(&member);
}

static void json_strings(void **state) {
    char s[5] = {0};
    (void)state;
    for (uint32_t code = 1; code <= 0x10FFFF; code += code < 0x900 ? 1 : 97) {
        const int n = mn_utf8_encode(code, s);
        s[n] = 0;
        assert_int_equal(mn_utf8_length(s, (size_t)n), n);
        is_written(s, (size_t)n, s);
    }
    for (int byte = 0x80; byte < 0x100; byte++) {
        s[0] = (char)byte;
        s[1] = 0;
        is_written(s, 1, "\xEF\xBF\xBD");
    }
    is_written("", 0, "");
    is_written("a\xC3", 2, "a\xEF\xBF\xBD");
    is_written("\xE2\x82z", 3, "\xEF\xBF\xBD\xEF\xBF\xBDz");
    is_written("\"\\/\b\f\n\r\t", 8, "\"\\/\b\f\n\r\t");
}

static void json_numbers(void **state) {
    static const double values[] = {0, 0.1, -1.5, 1e300, DBL_MAX, DBL_MIN, 1.0 / 3, 123456789};
    mn_text t = {0};
    json_out j = json_to_text(&t);
    (void)state;
    json_open(&j, '[');
    for (size_t i = 0; i < MN_COUNT(values); i++)
        json_num(&j, values[i]);
    json_num(&j, 0.0 / 0.0 * values[0]);
    json_uint(&j, UINT64_MAX);
    json_int(&j, INT64_MIN);
    json_open(&j, '{');
    json_put_rounded(&j, "third", 1.0 / 3, 6);
    json_put_object(&j, "none");
    json_close(&j);
    json_put_array(&j, "ids");
    json_close(&j);
    json_close(&j);
    json_close(&j);
    cJSON *v = cJSON_Parse(t.ptr);
    assert_non_null(v);
    for (size_t i = 0; i < MN_COUNT(values); i++)
        assert_true(cJSON_GetArrayItem(v, (int)i)->valuedouble == values[i]);
    cJSON_Delete(v);
    assert_non_null(strstr(t.ptr, "null,18446744073709551615,-9223372036854775808,"
                                  "{\"third\":0.333333,\"none\":{},\"ids\":[]}]"));
    mn_text_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow),     cmocka_unit_test(fnv),
        cmocka_unit_test(characters),   cmocka_unit_test(strings),
        cmocka_unit_test(text),         cmocka_unit_test(no_memory),
        cmocka_unit_test(json_strings), cmocka_unit_test(json_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
