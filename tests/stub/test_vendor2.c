/* test_vendor2.c -- the two-op backend by itself: its numbers against the reference's, what it
 * refuses, and each of its allocations failing once. */
#include "harness.h"
#include <string.h>

static const uint32_t types[] = {MN_F32, MN_F16, MN_BF16};

static void test_numbers(void **state) {
    static const op_shape norms[] = {
        {.rows = 1, .k = 256}, {.rows = 7, .k = 40}, {.rows = 3, .k = 32, .n_head = 4}};
    static const op_shape products[] = {{.rows = 1, .k = 256, .n = 64},
                                        {.rows = 5, .k = 96, .n = 7, .variant = 3},
                                        {.rows = 33, .k = 32, .n = 1}};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 3; i++) {
            double norm = h_compare(VENDOR2, "reference", MN_OP_RMS_NORM, types[t], &norms[i],
                                    MN_PRECISION_EXACT);
            double linear = h_compare(VENDOR2, "reference", MN_OP_LINEAR, types[t], &products[i],
                                      MN_PRECISION_EXACT);
            if (!(norm >= 0 && norm <= 1e-6 && linear >= 0 && linear <= 1e-6))
                fail_msg("type %u, shape %d: RMS_NORM %g, LINEAR %g; expected at most 1e-6",
                         types[t], i, norm, linear);
        }
}

static void test_refusals(void **state) {
    static const op_shape s = {.rows = 2, .k = 64, .n = 8, .n_head = 2, .n_head_kv = 2, .dim = 8};
    static const struct {
        uint32_t op;
        uint32_t type;
        const char *why;
    } no[] = {{MN_OP_LINEAR, MN_Q8_0, "weights are f32, f16 or bf16"},
              {MN_OP_ADD, MN_F32, "only RMS_NORM and LINEAR"}};
    h_plugin p;
    (void)state;
    assert_true(h_open(&p, VENDOR2));
    for (int i = 0; i < 2; i++) {
        op_case *c = case_random(no[i].op, no[i].type, &s, 1);
        mn_verdict v = {.verdict = MN_VERDICT_NATIVE};
        mn_error err = {.size = sizeof err};
        char text[64];
        assert_int_equal(mn_usual_supports(p.be, p.dev, &c->g, c->value, &v, sizeof v, &err),
                         MN_OK);
        assert_int_equal(v.verdict, MN_VERDICT_NO);
        p.be->reason(p.api->self, v.reason, text, sizeof text);
        assert_string_equal(text, no[i].why);
        assert_int_equal(h_try(&p, c, MN_PRECISION_EXACT, &err), MN_UNSUPPORTED);
        assert_non_null(strstr(err.msg, no[i].why));
        case_free(c);
    }
    h_close(&p);
}

/* ---- an operation of its own, with a blob ---------------------------------------------------- */
#define CURVE (MN_VENDOR | 1u)
enum { CURVE_ROWS = 3, CURVE_COLS = 5 };

/* y = curve(x) of blob number `blob`. */
static op_case *curve_case(const mn_str *blobs, uint32_t n_blobs, uint64_t blob) {
    static const float x[CURVE_ROWS * CURVE_COLS] = {-9,   -0.5f, 0,    0.5f, 0.99f, 1, 1.5f, 2,
                                                     2.7f, 3,     3.9f, 4,    100,   1, 0};
    op_case *c = case_new();
    assert_non_null(c);
    const int64_t rows = case_symbol(c, "rows", CURVE_ROWS, MN_SYMBOL_SHAPE);
    const int32_t in = case_mat(c, MN_ROLE_INPUT, MN_F32, rows, CURVE_COLS, x, "x");
    const int32_t out = case_mat(c, MN_ROLE_OUTPUT, MN_F32, rows, CURVE_COLS, NULL, "y");
    case_node(c, CURVE, &in, 1, &out, 1, &blob, 1);
    c->g.blobs = blobs;
    c->g.n_blobs = n_blobs;
    return c;
}

/* Its table is what the blob says, of several; every other device says no. */
static void test_blob(void **state) {
    static const float small[] = {7};
    static const float table[] = {10, 20, 30, 40};
    static const float want[] = {10, 10, 10, 10, 10, 20, 20, 30, 30, 40, 40, 40, 40, 20, 10};
    const mn_str blobs[] = {{(const char *)small, sizeof small},
                            {(const char *)table, sizeof table}};
    h_plugin p;
    (void)state;
    assert_true(h_open(&p, VENDOR2));
    for (uint64_t blob = 0; blob < 4; blob++) {
        op_case *c = curve_case(blobs, 2, blob);
        mn_error err = {.size = sizeof err};
        const mn_status st = h_try(&p, c, MN_PRECISION_EXACT, &err);
        const float *y = c->result[1];
        assert_int_equal(st, blob == 1 || blob == 2 ? MN_OK : MN_UNSUPPORTED);
        for (int i = 0; !st && i < CURVE_ROWS * CURVE_COLS; i++)
            assert_true(y[i] == (blob == 1 ? 7 : want[i]));
        case_free(c);
    }
    h_close(&p);
    assert_true(h_open(&p, "reference"));
    op_case *c = curve_case(blobs, 2, 2);
    const case_on on = {.be = p.be, .dev = p.dev, .queue = p.queue};
    assert_false(case_supported(&on, c));
    case_free(c);
    h_close(&p);
}

static void test_allocation_failures(void **state) {
    static const op_shape s = {.rows = 3, .k = 64, .n = 8, .variant = 1};
    h_plugin p;
    (void)state;
    assert_true(h_open(&p, VENDOR2));
    int64_t live = h_host_live();
    mn_status st = MN_OUT_OF_MEMORY;
    int64_t k = 0;
    for (; st && k < 100; k++) {
        op_case *c = case_random(MN_OP_LINEAR, MN_BF16, &s, 1);
        mn_error err = {.size = sizeof err};
        h_host_fail_after(k);
        st = h_try(&p, c, MN_PRECISION_EXACT, &err);
        h_host_fail_after(-1);
        if (st)
            assert_int_equal(st, MN_OUT_OF_MEMORY);
        assert_int_equal(h_host_live(), live);
        case_free(c);
    }
    assert_int_equal(st, MN_OK);
    assert_true(k > 8); /* there were that many to fail */
    h_close(&p);
    assert_int_equal(h_host_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_blob),
                                       cmocka_unit_test(test_allocation_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
