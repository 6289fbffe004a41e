/* test_rope.c -- angles of the rotary embedding against those of test_rope_data.h, which are made
 * by the formulas of Transformers and not by ours. The fixtures' heads are too small to tell a ramp
 * that is one pair off. */
#include "test_rope_data.h"
#include "unit.h"
#include <math.h>

enum { MAX_PAIRS = 64 };

static mn_hparams params_of(const rope_row *row) {
    return (mn_hparams){.rope_scaling = row->scaling,
                        .rope_factor = row->factor,
                        .rope_low_freq = row->low,
                        .rope_high_freq = row->high,
                        .rope_beta_fast = row->beta_fast,
                        .rope_beta_slow = row->beta_slow,
                        .yarn_truncate = row->truncate,
                        .rope_orig_ctx = row->orig,
                        .n_ctx_train = row->length};
}

static void expect_near(const char *name, int64_t pair, double got, double want) {
    if (fabs(got - want) > 1e-6 * fabs(want))
        fail_msg("%s: pair %d: found %.9g, expected %.9g", name, (int)pair, got, want);
}

static void test_frequencies(void **state) {
    (void)state;
    for (size_t k = 0; k < MN_COUNT(rope_rows); k++) {
        const rope_row *row = &rope_rows[k];
        const mn_hparams h = params_of(row);
        const mn_rope_table table = {row->n_rot, row->n_rot / 2, row->theta, true};
        float freqs[MAX_PAIRS];
        double mscale = 0;
        mn_rope_freqs(&h, &table, row->by[0] > 0 ? row->by : NULL, freqs, &mscale);
        for (int64_t i = 0; i < row->n_rot / 2; i++)
            expect_near(row->name, i, (double)freqs[i], row->freqs[i]);
        expect_near(row->name, -1, mscale, row->mscale);
    }
}

/* A table without scaling has the plain angles whatever the model's scaling is, and pairs behind
 * n_turn stand still. */
static void test_plain_table(void **state) {
    (void)state;
    const rope_row *plain = &rope_rows[0];
    for (size_t k = 1; k < MN_COUNT(rope_rows); k++) {
        const mn_hparams h = params_of(&rope_rows[k]);
        const int64_t n_turn = plain->n_rot / 2 - 5;
        const mn_rope_table table = {plain->n_rot, n_turn, plain->theta, false};
        float freqs[MAX_PAIRS], by[MAX_PAIRS];
        double mscale = 0;
        for (int i = 0; i < MAX_PAIRS; i++)
            by[i] = 3;
        mn_rope_freqs(&h, &table, by, freqs, &mscale);
        for (int64_t i = 0; i < plain->n_rot / 2; i++)
            expect_near(rope_rows[k].name, i, (double)freqs[i], i < n_turn ? plain->freqs[i] : 0);
        expect_near(rope_rows[k].name, -1, mscale, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_frequencies),
                                       cmocka_unit_test(test_plain_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
