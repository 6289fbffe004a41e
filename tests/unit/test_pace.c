/* test_pace.c -- how long streams wait for their next token while prompts are computed beside them.
 * The device is made up: it computes nothing, and says how long each step took. No clock is read,
 * so that a busy machine changes nothing. By hand: test_pace MODEL DEVICE prints the same figures
 * of a real device.
 *
 * The session is real: the linker puts the __wrap functions of this file between it and its engine
 * (mn_engine_submit, mn_engine_ids), and between its steps and the scheduler that learns from them
 * (mn_pace_learn). */
#include "engine/engine_impl.h"
#include "session/session.h"
#include "serving.h"

enum { N_STREAMS = 8, MAX_STEPS = 4000, PROMPT = 1500, CONTEXT = 2048, N_BEFORE = 24 };
enum { PREPARE_NS = 7000000 };

/* A step takes fixed_ns, row_ns for each row, rounded up to whole tiles, and position_ns for each
 * position that a row of a prompt sees; up to noise_percent more; and mixed_ns if it has rows of
 * prompts beside streams. */
typedef struct {
    const char *name;
    uint64_t fixed_ns, row_ns, position_ns;
    uint32_t tile, noise_percent;
    uint64_t mixed_ns;
} made_up;

static const made_up devices[] = {
    {"weights are most of a step", 8000000, 100000, 0, 1, 5, 0},
    {"rows are most of a step", 500000, 500000, 0, 1, 5, 0},
    {"rows in tiles of 8", 2000000, 100000, 0, 8, 5, 0},
    {"long prompts cost more", 4000000, 200000, 200, 1, 5, 0},
    {"noise", 4000000, 200000, 0, 1, 15, 0},
    {"fast", 900000, 3000, 1, 16, 5, 0},
};

/* As measured on an H200 at 1,400 positions. */
static const made_up gpu = {"mixed steps cost more", 1050000, 24000, 0, 1, 5, 700000};

/* Any row of a prompt makes a step longer than two others. */
static const made_up slow_mixed = {"slow beside prompts", 900000, 10000, 0, 1, 5, 2500000};

typedef struct {
    uint32_t n_draws, n_prompt;
    uint64_t ns;
} past_step;

static const made_up *on; /* NULL: a real device */
static past_step steps[MAX_STEPS];
static uint32_t n_steps, n_computed; /* rows of the prompt so far */
static uint64_t dice;
static int32_t no_ids[1024];
static double most_ahead_ns = 5.5e6;
static uint32_t n_new; /* steps that were the first of their sizes */

mn_status __real_mn_engine_submit(mn_engine *e, const mn_engine_step *x, mn_event **event,
                                  mn_error *err);
mn_status __wrap_mn_engine_submit(mn_engine *e, const mn_engine_step *x, mn_event **event,
                                  mn_error *err);
const int32_t *__real_mn_engine_ids(const mn_engine *e, uint32_t at);
const int32_t *__wrap_mn_engine_ids(const mn_engine *e, uint32_t at);
void __real_mn_pace_learn(mn_steps *s, const mn_pending_step *step, uint64_t ns);
void __wrap_mn_pace_learn(mn_steps *s, const mn_pending_step *step, uint64_t ns);

mn_status __wrap_mn_engine_submit(mn_engine *e, const mn_engine_step *x, mn_event **event,
                                  mn_error *err) {
    return on ? MN_OK : __real_mn_engine_submit(e, x, event, err);
}

const int32_t *__wrap_mn_engine_ids(const mn_engine *e, uint32_t at) {
    return on ? no_ids : __real_mn_engine_ids(e, at);
}

/* What is enqueued behind the step that has just ended is one step, or no more than 5 ms. */
static void check_ahead(const mn_steps *s) {
    double ns = 0;
    for (uint64_t i = s->clock.completed; i < s->clock.enqueued; i++) {
        const uint32_t n_rows = s->ring[i % s->ring_size].n_rows;
        ns += (double)(on->fixed_ns + (n_rows + on->tile - 1) / on->tile * on->tile * on->row_ns);
    }
    if (s->clock.enqueued > s->clock.completed + 1 && ns > most_ahead_ns)
        fail_msg("%s: %.2f ms are enqueued", on->name, ns / 1e6);
}

static uint64_t time_of(const made_up *d, uint32_t n_rows, uint32_t n_prompt) {
    const uint64_t n_tiles = (n_rows + d->tile - 1) / d->tile;
    const uint64_t seen = (uint64_t)n_prompt * n_computed + (uint64_t)n_prompt * n_prompt / 2;
    uint64_t ns = d->fixed_ns + n_tiles * d->tile * d->row_ns + seen * d->position_ns;
    if (n_prompt && n_rows > n_prompt)
        ns += d->mixed_ns;
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return ns + ns * ((dice >> 33) % (d->noise_percent + 1)) / 100;
}

void __wrap_mn_pace_learn(mn_steps *s, const mn_pending_step *step, uint64_t ns) {
    const uint32_t n_prompt = step->n_prompt_rows + step->n_restored_rows;
    if (on)
        ns = time_of(on, step->n_rows, n_prompt);
    if (on && step->is_new)
        ns += PREPARE_NS;
    n_new += step->is_new;
    assert_true(n_steps < MAX_STEPS);
    steps[n_steps++] = (past_step){step->n_rows - n_prompt, n_prompt, ns};
    n_computed += n_prompt;
    if (on)
        check_ahead(s);
    __real_mn_pace_learn(s, step, ns);
}

/* ---- streams and a prompt -------------------------------------------------------------------- */
static int by_ns(const void *a, const void *b) {
    const uint64_t x = ((const past_step *)a)->ns;
    const uint64_t y = ((const past_step *)b)->ns;
    return (x > y) - (x < y);
}

/* The share p of n steps takes no longer. Sorts them. */
static uint64_t percentile(past_step *of, uint32_t n, double p) {
    qsort(of, n, sizeof *of, by_ns);
    return of[(uint32_t)((n - 1) * p)].ns;
}

static void submit_one(mn_session *s, uint32_t text, uint32_t n_prompt, uint32_t max_new,
                       served *out) {
    static int32_t ids[PROMPT];
    const mn_sample_params sample = {
        .size = sizeof sample, .max_new = max_new, .ignore_stop = 1, .seed = text};
    submit(s,
           (mn_request_params){.ids = ids, .n_ids = words(text, n_prompt, ids), .sample = &sample},
           out);
}

/* Until every one of n has drawn so many ids. */
static void draw(mn_session *s, const served *all, uint32_t n, uint32_t n_ids) {
    for (uint32_t done = 0; done < n;) {
        next(s, 10000);
        done = 0;
        for (uint32_t i = 0; i < n; i++)
            done += all[i].n >= n_ids || all[i].finish;
    }
}

/* The steps since the last call, in which prompts were computed beside n streams: none took longer
 * than three times the usual, but for 1 %; and prompts got most of what they may have. */
static void check_steps(uint32_t n_streams, uint64_t usual, double least_mean) {
    double sum = 0;
    const uint64_t p99 = percentile(steps, n_steps, 0.99);
    for (uint32_t i = 0; i < n_steps; i++)
        sum += (double)steps[i].ns / (double)usual;
    print_message("%s, %u streams of %.2f ms: %u steps with prompts, mean %.2f, p99 %.2f\n",
                  on ? on->name : device, n_streams, (double)usual / 1e6, n_steps, sum / n_steps,
                  (double)p99 / (double)usual);
    if (on && (p99 > 3 * usual || sum < least_mean * n_steps))
        fail_msg("%s: expected a p99 of at most 3, and a mean of at least %.1f", on->name,
                 least_mean);
    n_steps = 0;
}

/* The usual time of a step, when nothing but streams runs. */
static uint64_t usual_step(mn_session *s, const served *streams, uint32_t n_streams) {
    draw(s, streams, n_streams, streams->n + N_BEFORE);
    const uint64_t usual = percentile(steps + n_steps - N_BEFORE / 2, N_BEFORE / 2, 0.5);
    n_steps = 0;
    n_computed = 0;
    return usual;
}

static void run_prompt(mn_session *s, uint32_t text) {
    static served prompt;
    submit_one(s, text, PROMPT, 1, &prompt);
    finish_all(s, &prompt, 1);
}

/* The first prompt meets a scheduler that knows nothing of rows, the second one that does; before
 * the third, streams have left; and beside the fourth they leave. */
static void play_device(mn_session *s) {
    static served streams[N_STREAMS];
    static served prompt;
    for (uint32_t i = 0; i < N_STREAMS; i++)
        submit_one(s, i, 20, CONTEXT - 20, &streams[i]);
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t usual = usual_step(s, streams, N_STREAMS);
        run_prompt(s, 100 + i);
        check_steps(N_STREAMS, usual, i ? 1.7 : 1.1);
    }
    for (uint32_t i = 4; i < N_STREAMS; i++)
        mn_session_abort(s, streams[i].id);
    const uint64_t usual = usual_step(s, streams, 4);
    run_prompt(s, 102);
    check_steps(4, usual, 1.7);
    n_computed = 0;
    submit_one(s, 103, PROMPT, 1, &prompt);
    draw(s, streams, 2, streams->n + 3);
    mn_session_abort(s, streams[2].id);
    mn_session_abort(s, streams[3].id);
    draw(s, streams, 2, streams->n + 8); /* what was in flight */
    n_steps = 0;
    finish_all(s, &prompt, 1);
    if (on && n_steps) /* a fast device has computed all of it before they left */
        check_steps(2, on->fixed_ns + (2 + on->tile - 1) / on->tile * on->tile * on->row_ns, 1.2);
}

static void test_device(const made_up *d) {
    const mn_session_params p = {
        .n_seq = N_STREAMS + 1, .n_ctx = CONTEXT, .run_ahead = 16, .flags = MN_SESSION_NO_CACHE};
    on = d;
    n_steps = 0;
    mn_session *s = open_with(p);
    play_device(s);
    mn_session_free(s);
    on = NULL;
}

static void test_streams(void **state) {
    (void)state;
    for (size_t d = 0; d < MN_COUNT(devices); d++)
        test_device(&devices[d]);
    test_device(&gpu);
}

/* Three times the usual time cannot be kept: it is twice that of a step with the fewest rows,
 * and prompts get on. Four prompts, of which the first tries what few rows take. */
static void test_slow_beside_prompts(void **state) {
    static served streams[N_STREAMS];
    (void)state;
    on = &slow_mixed;
    n_steps = 0;
    mn_session *s = open_with((mn_session_params){
        .n_seq = N_STREAMS + 1, .n_ctx = CONTEXT, .run_ahead = 16, .flags = MN_SESSION_NO_CACHE});
    for (uint32_t i = 0; i < N_STREAMS; i++)
        submit_one(s, i, 20, CONTEXT - 20, &streams[i]);
    const uint64_t usual = usual_step(s, streams, N_STREAMS);
    for (uint32_t i = 0; i < 4; i++)
        run_prompt(s, 100 + i);
    const uint32_t n = n_steps;
    const uint64_t p99 = percentile(steps, n_steps, 0.99);
    print_message("%u steps for 4 prompts, p99 %.2f\n", n, (double)p99 / (double)usual);
    assert_true(n < 150);
    assert_true(p99 <= 2 * (slow_mixed.mixed_ns + usual) * 21 / 20);
    mn_session_free(s);
    on = NULL;
}

/* ---- many users ------------------------------------------------------------------------------ */
enum { N_USERS = 64, ANSWER = 64 };

/* Runs n prompts of so many ids at once; how many steps that took. */
static uint32_t run_users(mn_session *s, uint32_t text, uint32_t n_prompt) {
    static served all[N_USERS];
    n_steps = 0;
    for (uint32_t i = 0; i < N_USERS; i++)
        submit_one(s, text + i, n_prompt, ANSWER, &all[i]);
    finish_all(s, all, N_USERS);
    return n_steps;
}

/* A device that takes long for the first step of each size: that delays nothing else. */
static void test_new_sizes(void **state) {
    (void)state;
    on = &slow_mixed;
    most_ahead_ns = 20e6;
    mn_session *s = open_with((mn_session_params){
        .n_seq = N_USERS, .n_ctx = CONTEXT, .run_ahead = 16, .flags = MN_SESSION_NO_CACHE});
    s->steps.engine->segments[0].row_grain = 8;
    n_new = 0;
    const uint32_t first = run_users(s, 0, 128);
    const uint32_t n_first = n_new;
    const uint32_t second = run_users(s, 0, 128);
    print_message("%u steps, %u of them new; then %u, %u new\n", first, n_first, second,
                  n_new - n_first);
    assert_true(first < 240);
    assert_in_range(n_first, 5, 60);
    assert_true(n_new - n_first < n_first);
    mn_session_free(s);
    most_ahead_ns = 5.5e6;
    on = NULL;
}

/* A session whose first requests are a burst has seen no step that only draws; and what single
 * prompts have taught of rows, and of few that draw, must not hold up many. */
static void test_users(void **state) {
    (void)state;
    on = &slow_mixed;
    most_ahead_ns = 11e6; /* what many users cost is a guess at first */
    mn_session *s = open_with((mn_session_params){
        .n_seq = N_USERS, .n_ctx = CONTEXT, .run_ahead = 16, .flags = MN_SESSION_NO_CACHE});
    const uint32_t first = run_users(s, 0, 128);
    run_prompt(s, 1000);
    const uint32_t second = run_users(s, 200, 100);
    print_message("steps for %u users at once: %u, then %u\n", N_USERS, first, second);
    assert_true(first < 400);
    assert_true(second < 400);
    mn_session_free(s);
    most_ahead_ns = 5.5e6;
    on = NULL;
}

/* Many wait for long prompts while few draw: they do not wait for long on account of those. What
 * their rows take alone is 64 x 1,000 x 24 us. */
static void test_waiting(void **state) {
    uint64_t ns = 0;
    (void)state;
    on = &gpu;
    most_ahead_ns = 20e6;
    mn_session *s = open_with((mn_session_params){
        .n_seq = N_USERS, .n_ctx = CONTEXT, .run_ahead = 16, .flags = MN_SESSION_NO_CACHE});
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t n = run_users(s, 200 * k, 1000);
        ns = 0;
        for (uint32_t i = 0; i < n; i++)
            ns += steps[i].ns;
        print_message("%u users with long prompts: %u steps, %.2f s\n", N_USERS, n,
                      (double)ns / 1e9);
        assert_true(ns < 2 * UINT64_C(64000) * gpu.row_ns);
    }
    mn_session_free(s);
    most_ahead_ns = 5.5e6;
    on = NULL;
}

/* ---- a burst of prompts ---------------------------------------------------------------------- */
enum { STEP_NS = 1000000, ROW_NS = 50000, N_STEPS = 200 };

/* A step of the device: a fixed time, and one per row beyond the first. */
static uint32_t learn(mn_steps *s, uint32_t n_draws, uint32_t n_prompt) {
    const uint32_t n_rows = n_draws + n_prompt;
    const uint32_t ns = STEP_NS + (n_rows - 1) * ROW_NS;
    const mn_pending_step step = {.n_rows = n_rows, .n_prompt_rows = n_prompt};
    __real_mn_pace_learn(s, &step, ns);
    return ns;
}

/* A burst of prompts: while they wait no step only draws, and more and more sequences do. A
 * step may take three times the time that these sequences take alone, so the budget grows
 * with them; it must not fall because they are more than at the last step that only drew. */
static void test_burst(void **state) {
    mn_steps *s = calloc(1, sizeof *s);
    (void)state;
    assert_non_null(s);
    s->pace.n_rows = MN_FIRST_ROWS;
    learn(s, 1, 0);
    for (uint32_t n_draws = 1; n_draws <= 32; n_draws *= 2) {
        uint32_t ns = 0;
        for (int i = 0; i < N_STEPS; i++)
            ns = learn(s, n_draws, (uint32_t)s->pace.n_rows);
        const uint32_t alone = STEP_NS + (n_draws - 1) * ROW_NS;
        assert_true(ns <= 3 * alone);
        assert_true(ns >= 2 * alone);
    }
    free(s);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_burst),
                                       cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_slow_beside_prompts),
                                       cmocka_unit_test(test_users),
                                       cmocka_unit_test(test_waiting),
                                       cmocka_unit_test(test_new_sizes)};
    mn_log_level(MN_LOG_ERROR); /* the context is longer than the model's */
    const int bad = open_model(argc, argv);
    if (bad)
        return bad;
    if (argc > 1) {
        test_device(NULL);
        return close_model(0);
    }
    return close_model(cmocka_run_group_tests(tests, NULL, NULL));
}
