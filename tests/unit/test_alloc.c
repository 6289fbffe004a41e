/* test_alloc.c -- memory runs out at the k-th allocation, anywhere from the first to the end of an
 * answer: always an error, or an answer, never a crash or (under ASan) a leak. Plugins are in it,
 * too: they allocate through the host. */
#include "base/base.h"
#include <minerva/minerva.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static int count(void *arg, const char *text, uint64_t n) {
    (void)text;
    *(uint64_t *)arg += n;
    return 0;
}

static char demo[4096];

/* Everything from runtime to answer; *stage says how far it came. */
static mn_status whole(const char *device, int *stage, mn_error *err) {
    mn_runtime *rt = NULL;
    mn_model *m = NULL;
    mn_session *s = NULL;
    uint64_t bytes = 0;
    mn_session_params p = {.size = sizeof p, .device = device, .n_ctx = 64};
    mn_sample_params sp = {.size = sizeof sp, .max_new = 4};
    *stage = 0;
    mn_status st = mn_runtime_create(NULL, &rt, err);
    if (!st && ++*stage)
        st = mn_model_open(rt, demo, &m, err);
    if (!st && ++*stage)
        st = mn_session_create(m, &p, &s, err);
    if (!st && ++*stage)
        st = mn_generate(s, "Hi", &sp, count, &bytes, err);
    if (!st)
        ++*stage;
    mn_session_free(s);
    mn_model_free(m);
    mn_runtime_free(rt);
    return st;
}

static void test_every_allocation(void **state) {
    static const char *const devices[] = {"reference", "cpu_simd"};
    (void)state;
    int seen[5] = {0};
    mn_log_level(MN_LOG_ERROR);
    for (size_t d = 0; d < MN_COUNT(devices); d++) {
        mn_error err = MN_ERROR_INIT;
        int stage = 0;
        if (whole(devices[d], &stage, &err) == MN_NO_DEVICE) {
            printf("skipped: %s is not built\n", devices[d]);
            continue;
        }
        assert_int_equal(stage, 4);
        int64_t step = 1;
        for (int64_t k = 1; k < (1 << 22); k += step) {
            mn_alloc_fail_after(k);
            mn_status st = whole(devices[d], &stage, &err);
            mn_alloc_fail_after(-1);
            seen[stage]++;
            if (!st && stage == 4)
                break; /* k lies behind the last allocation */
                       /* dense where few allocations decide much, thinner in the thousands of
                           * the vocabulary */
            step = k < 400 ? 1 : k / 97 + 1;
        }
        assert_int_equal(stage, 4);
    }
    /* the steps of an answer allocate little */
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] > 0 || i == 3);
}

/* A constraint, from its source to an answer under it, without memory at any place. */
static void test_constraint(void **state) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}";
    const mn_constraint_params how = {
        .size = sizeof how, .kind = MN_CONSTRAINT_SCHEMA, .source = {schema, sizeof schema - 1}};
    const mn_session_params p = {.size = sizeof p, .device = "cpu_simd,reference", .n_ctx = 64};
    mn_runtime *rt = NULL;
    mn_model *m = NULL;
    mn_session *s = NULL;
    (void)state;
    assert_int_equal(mn_runtime_create(NULL, &rt, NULL), MN_OK);
    assert_int_equal(mn_model_open(rt, demo, &m, NULL), MN_OK);
    assert_int_equal(mn_session_create(m, &p, &s, NULL), MN_OK);
    mn_status st = MN_OUT_OF_MEMORY;
    uint32_t n_refused = 0;
    for (int64_t k = 1; st; k += 1 + k / 50) {
        mn_sample_params sample = {.size = sizeof sample, .max_new = 12, .temp = 1};
        uint64_t bytes = 0;
        mn_alloc_fail_after(k);
        st = mn_constraint_create(m, &how, &sample.constraint, NULL);
        if (!st)
            st = mn_generate(s, "Hi", &sample, count, &bytes, NULL);
        mn_alloc_fail_after(-1);
        mn_constraint_free(sample.constraint);
        n_refused += st != MN_OK;
        assert_true(k < (1 << 22));
    }
    assert_true(n_refused > 50);
    mn_session_free(s);
    mn_model_free(m);
    mn_runtime_free(rt);
}

/* A conversion without memory leaves no file. */
static void test_convert(void **state) {
    (void)state;
    mn_runtime *rt = NULL;
    mn_model *m = NULL;
    mn_error err = MN_ERROR_INIT;
    mn_status st = MN_OUT_OF_MEMORY;
    char folder[] = "/tmp/minerva-alloc-XXXXXX", path[64];
    int64_t k = 1;
    mn_log_level(MN_LOG_ERROR);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    assert_int_equal(mn_runtime_create(NULL, &rt, &err), MN_OK);
    assert_int_equal(mn_model_open(rt, demo, &m, &err), MN_OK);
    const mn_convert_params params = {.size = sizeof params, .type = "q4_k_m"};
    for (; k < (1 << 20) && st; k += k < 150 ? 1 : k / 29) {
        mn_alloc_fail_after(k);
        st = mn_model_convert(m, path, &params, &err);
        mn_alloc_fail_after(-1);
        if (st)
            assert_int_equal(st, MN_OUT_OF_MEMORY);
        assert_true(mn_path_exists(path) == !st);
    }
    assert_int_equal(st, MN_OK);
    assert_true(k > 20);
    remove(path);
    assert_int_equal(remove(folder), 0); /* nothing else was left there */
    mn_model_free(m);
    mn_runtime_free(rt);
}

int main(void) {
    const char *root = getenv("MINERVA_SOURCE_ROOT");
    snprintf(demo, sizeof demo, "%s/models/storyteller", root ? root : ".");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation),
                                       cmocka_unit_test(test_constraint),
                                       cmocka_unit_test(test_convert)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
