/* test_merges.c -- merges that are entered by the dozen: as many as come, with pieces of any length
 * and pieces that are no tokens. */
#include "text/tokenizer/tokenizer_impl.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { LONGEST = 300 };
static char run[LONGEST]; /* of one letter; a piece is a part of it, its id the length less one */
static mn_str piece(size_t n) {
    return (mn_str){run, n};
}

static int runs_of_one_letter(void **state) {
    static mn_vocab v;
    memset(&v, 0, sizeof v);
    memset(run, 'a', sizeof run);
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(mn_vocab_init(&v, LONGEST, "test", &err), MN_OK);
    for (int32_t i = 0; i < LONGEST; i++)
        assert_int_equal(mn_vocab_set(&v, i, piece((size_t)i + 1), 0, "test", &err), MN_OK);
    *state = &v;
    return 0;
}

static int free_runs(void **state) {
    mn_vocab_free(*state);
    return 0;
}

/* Every run with one of three letters: unions are short and long, and each is found, also those
 * entered last. */
static void every_length(void **state) {
    mn_vocab *v = *state;
    mn_error err = MN_ERROR_INIT;
    mn_merges m = {.vocab = v, .where = "test"};
    assert_int_equal(mn_merges_begin(&m, LONGEST, &err), MN_OK);
    for (size_t i = 1; i + 3 <= LONGEST; i++)
        assert_int_equal(mn_merges_add(&m, piece(i), piece(3), &err), MN_OK);
    assert_int_equal(mn_merges_end(&m, &err), MN_OK);
    for (int32_t i = 1; i + 3 <= LONGEST; i++) {
        const mn_merge *got = mn_vocab_merge(v, i - 1, 2);
        assert_non_null(got);
        assert_int_equal(got->rank, i - 1);
        assert_int_equal(got->id, i + 3 - 1);
    }
    assert_null(mn_vocab_merge(v, 0, 0));
    mn_free(v->merge);
    v->merge = NULL;
}

static void which_of_two_counts(void **state) {
    mn_vocab *v = *state;
    for (int last = 0; last < 2; last++)
        for (size_t between = 0; between < 40; between += 13) { /* the two come together, or not */
            mn_error err = MN_ERROR_INIT;
            mn_merges m = {.vocab = v, .where = "test", .last_wins = last};
            assert_int_equal(mn_merges_begin(&m, between + 2, &err), MN_OK);
            assert_int_equal(mn_merges_add(&m, piece(1), piece(1), &err), MN_OK);
            for (size_t i = 0; i < between; i++)
                assert_int_equal(mn_merges_add(&m, piece(2), piece(2 + i), &err), MN_OK);
            assert_int_equal(mn_merges_add(&m, piece(1), piece(1), &err), MN_OK);
            assert_int_equal(mn_merges_end(&m, &err), MN_OK);
            assert_int_equal(mn_vocab_merge(v, 0, 0)->rank, last ? (int)between + 1 : 0);
            mn_free(v->merge);
            v->merge = NULL;
        }
}

/* The merge at which, told now or at the end; with pass_over none, and the others are there. */
static void unknown_pieces(void **state) {
    mn_vocab *v = *state;
    for (size_t wrong = 0; wrong < 40; wrong++)
        for (int over = 0; over < 2; over++) {
            mn_error err = MN_ERROR_INIT;
            mn_merges m = {.vocab = v, .where = "test", .pass_over = over};
            mn_status st = mn_merges_begin(&m, 40, &err);
            for (size_t i = 0; !st && i < 40; i++)
                st = mn_merges_add(&m, piece(i == wrong ? LONGEST : 1), piece(i + 1), &err);
            if (!st)
                st = mn_merges_end(&m, &err);
            char says[32];
            snprintf(says, sizeof says, "test: merge %zu, ", wrong);
            assert_int_equal(st, over ? MN_OK : MN_BAD_FILE);
            assert_non_null(strstr(over ? m.first_idle.msg : err.msg, says));
            assert_int_equal(m.n_idle, over);
            if (over)
                assert_int_equal(mn_vocab_merge(v, 0, wrong == 39 ? 38 : 39)->rank,
                                 wrong == 39 ? 38 : 39);
            mn_free(v->merge);
            v->merge = NULL;
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_length, runs_of_one_letter, free_runs),
        cmocka_unit_test_setup_teardown(which_of_two_counts, runs_of_one_letter, free_runs),
        cmocka_unit_test_setup_teardown(unknown_pieces, runs_of_one_letter, free_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
