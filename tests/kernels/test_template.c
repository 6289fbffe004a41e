/* test_template.c -- the template that vendors clone, through its table, against reference:
 * test_template PLUGIN.so */
#include "harness.h"
#include "host.h"
#include <string.h>

static const char *so;
static const uint32_t types[] = {MN_F32, MN_F16, MN_BF16};

static void same(uint32_t op, uint32_t type, op_shape s) {
    double e = h_compare(so, "reference", op, type, &s, MN_PRECISION_EXACT);
    if (e < 0 || e > 1e-6)
        print_message("op %u type %u rows %d k %d n %d: %g\n", op, type, (int)s.rows, (int)s.k,
                      (int)s.n, e);
    assert_true(e >= 0);
    assert_true(e <= 1e-6);
}

static void ops(void **state) {
    static const int64_t rows[] = {1, 2, 33};
    (void)state;
    for (size_t r = 0; r < 3; r++)
        for (size_t t = 0; t < 3; t++) {
            same(MN_OP_LINEAR, types[t],
                 (op_shape){
                     .rows = rows[r],
                     .k = 1037,
                     .n = 37,
                     .variant = (int64_t)r,
                 });
            same(MN_OP_RMS_NORM, types[t], (op_shape){.rows = rows[r], .k = 1037});
            same(MN_OP_ADD, MN_F32, (op_shape){.rows = rows[r], .k = 1037});
            same(MN_OP_GLU, MN_F32,
                 (op_shape){
                     .rows = rows[r],
                     .k = 1037,
                     .variant = MN_ACT_SILU,
                 });
        }
}

static void batches(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++)
        assert_int_equal(h_batch_invariant(so, types[t]), 1);
}

/* What it has no kernel for is a no with a reason, not a wrong result. */
static void refusals(void **state) {
    const struct {
        uint32_t op;
        uint32_t type;
        op_shape shape;
        const char *why;
    } no[] = {
        {MN_OP_LINEAR,
         MN_Q8_0,
         {
             .rows = 1,
             .k = 64,
             .n = 3,
         },
         "weights must be"},
        {MN_OP_GLU,
         MN_F32,
         {
             .rows = 1,
             .k = 64,
             .variant = MN_ACT_RELU,
         },
         "silu"},
        {MN_OP_MUL, MN_F32, {.rows = 1, .k = 64}, "no kernel"},
    };
    h_plugin p;
    char text[200];
    (void)state;
    assert_true(h_open(&p, so));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        op_case *c = case_random(no[i].op, no[i].type, &no[i].shape, 1);
        mn_verdict v = {0};
        assert_int_equal(mn_usual_supports(p.be, p.dev, &c->g, c->value, &v, sizeof v, NULL),
                         MN_OK);
        assert_int_equal(v.verdict, MN_VERDICT_NO);
        assert_int_equal(p.be->reason(p.api->self, v.reason, text, sizeof text), MN_OK);
        assert_non_null(strstr(text, no[i].why));
        mn_error err = {.size = sizeof err};
        assert_int_equal(MN_STATUS_CLASS(h_try(&p, c, MN_PRECISION_EXACT, &err)), MN_CLASS_REFUSE);
        case_free(c);
    }
    h_close(&p);
}

/* The k-th allocation fails, for every k: an error of class SMALLER, and nothing is left. */
static void out_of_memory(void **state) {
    h_plugin p;
    op_shape s = {
        .rows = 3,
        .k = 64,
        .n = 5,
        .variant = 1,
    };
    (void)state;
    assert_true(h_open(&p, so));
    int64_t live = h_host_live();
    for (int64_t k = 0; k < 100; k++) {
        op_case *c = case_random(MN_OP_LINEAR, MN_F16, &s, 1);
        mn_error err = {.size = sizeof err};
        h_host_fail_after(k);
        mn_status st = h_try(&p, c, MN_PRECISION_EXACT, &err);
        h_host_fail_after(-1);
        case_free(c);
        assert_int_equal(h_host_live(), live);
        if (!st)
            break;
        assert_int_equal(MN_STATUS_CLASS(st), MN_CLASS_SMALLER);
        assert_true(k < 99);
    }
    h_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops), cmocka_unit_test(batches),
                                       cmocka_unit_test(refusals), cmocka_unit_test(out_of_memory)};
    if (argc < 2)
        return 77;
    so = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
