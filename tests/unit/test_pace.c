/* test_pace.c -- how many rows of prompts stand beside sequences that draw: mn_schedule_learn, fed
 * with steps of a made-up device whose time is known. */
#include "session/session.h"
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

enum { STEP_NS = 1000000, ROW_NS = 50000, N_STEPS = 200 };

/* A step of the device: a fixed time, and one per row beyond the first. */
static uint32_t learn(mn_session *s, uint32_t n_draws, uint32_t n_prompt) {
    const uint32_t n_rows = n_draws + n_prompt;
    const uint32_t ns = STEP_NS + (n_rows - 1) * ROW_NS;
    const mn_pending_step step = {.n_rows = n_rows, .n_prompt_rows = n_prompt};
    mn_schedule_learn(s, &step, ns);
    return ns;
}

/* A burst of prompts: while they wait no step only draws, and more and more sequences do. A step
 * may take twice the time that these sequences take alone, so the budget grows with them; it must
 * not fall because they are more than at the last step that only drew. */
static void test_burst(void **state) {
    mn_session *s = calloc(1, sizeof *s);
    (void)state;
    assert_non_null(s);
    s->pace.n_rows = MN_FIRST_ROWS;
    learn(s, 1, 0);
    for (uint32_t n_draws = 1; n_draws <= 32; n_draws *= 2) {
        uint32_t ns = 0;
        for (int i = 0; i < N_STEPS; i++)
            ns = learn(s, n_draws, (uint32_t)s->pace.n_rows);
        const uint32_t alone = STEP_NS + (n_draws - 1) * ROW_NS;
        assert_true(ns <= 2 * alone);
        assert_true(ns >= alone + alone / 2);
    }
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_burst)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
