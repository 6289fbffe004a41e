/* test_speculate.c -- drafts change no id: requests with sources of drafts of all kinds and any
 * settings against the same requests without, alone and in batches, with pages that are too few,
 * logprobs and constraints; and the arithmetic of what drafts are worth.
 *
 * By hand: test_speculate MODEL DEVICE PROMPTS DRAFT_MODEL. */
#include "serving.h"
#include "session/drafts/worth.h"
#include <math.h>

enum { BATCH = 20, MAX_PROMPTS = 512, PROMPT = 24, LONGEST = 40 };

static uint32_t n_prompts = 40;
static uint32_t longest = LONGEST; /* answer; less on the oracle, which is slow */
static mn_model *draft_model;      /* NULL: the model itself */
static bool has_text;              /* the model has a tokeniser, which DRY and constraints need */
static int32_t prompts[MAX_PROMPTS][PROMPT];
static served truth[MAX_PROMPTS]; /* without drafts */

/* ---- requests -------------------------------------------------------------------------------- */
static mn_sample_params settings(uint32_t i) {
    static const int32_t stop[] = {13, 300, 301, 302};
    mn_sample_params p = {
        .size = sizeof p,
        .max_new = 8 + i * 7 % (longest - 8),
        .seed = i * 977 + 5,
        .temp = i % 4 ? 0.2f + (float)(i % 14) * 0.1f : 0,
        .top_k = i % 3 ? 0 : 40,
        .top_p = i % 5 == 1 ? 0.9f : 0,
        .min_p = i % 7 == 2 ? 0.05f : 0,
        .penalty_last_n = i % 6 == 1 ? 16 : -1,
        .ignore_stop = i % 2 == 1,
    };
    if (i % 3 == 1)
        p.repeat_penalty = 1.2f;
    if (i % 8 == 5)
        p.frequency_penalty = 0.3f;
    if (i % 10 == 7) {
        p.mirostat = 2;
        p.temp = 1;
    }
    if (i % 10 == 8 && has_text)
        p.dry_multiplier = 0.8f;
    if (i % 9 == 3) {
        p.stop = stop;
        p.n_stop = 4;
        p.min_new = 6;
    }
    return p;
}

/* Prompts with loops, which a lookup finds. */
static uint32_t prompt(uint32_t i) {
    const uint32_t n = 4 + i % (PROMPT - 4);
    words(i, n, prompts[i]);
    if (n_words < n_prompts) { /* no prompt begins as another one does */
        prompts[i][1] = (int32_t)(6 + i % n_words);
        prompts[i][2] = (int32_t)(6 + i / n_words);
    }
    for (uint32_t k = 6; k < n && i % 2; k++)
        prompts[i][k] = prompts[i][k - 5];
    return n;
}

static mn_request_params request(uint32_t i, mn_sample_params *sample) {
    *sample = settings(i);
    return (mn_request_params){.ids = prompts[i], .n_ids = prompt(i), .sample = sample};
}

/* Prompts [lo, hi) at once. */
static void run_batch(mn_session *s, uint32_t lo, uint32_t hi, served *out) {
    for (uint32_t i = lo; i < hi; i++) {
        mn_sample_params sample;
        submit(s, request(i, &sample), &out[i]);
    }
    finish_all(s, out + lo, hi - lo);
}

/* All prompts, n at once, and the session's counts. */
static mn_session_stats run_all(mn_session *s, uint32_t n_at_once, uint32_t n, served *out) {
    mn_session_stats stats = {.size = sizeof stats};
    for (uint32_t lo = 0; lo < n; lo += n_at_once)
        run_batch(s, lo, lo + n_at_once < n ? lo + n_at_once : n, out);
    assert_int_equal(mn_session_get_stats(s, &stats), MN_OK);
    mn_session_free(s);
    return stats;
}

/* ---- guesses --------------------------------------------------------------------------------- */
static double part_right; /* of the guesses */

/* What is drawn without drafts, right in part; the rest is wrong, or no id at all. */
static uint32_t guess_truth(void *arg, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k) {
    uint32_t *n_calls = arg;
    (*n_calls)++;
    for (uint32_t i = 0; i < n_prompts; i++) {
        const uint32_t n_prompt = truth[i].last.n_prompt;
        if (!n_prompt || n < n_prompt || memcmp(ids, prompts[i], n_prompt * sizeof *ids))
            continue;
        const uint32_t at = n - n_prompt;
        if (at >= truth[i].n || memcmp(ids + n_prompt, truth[i].ids, at * sizeof *ids))
            continue;
        uint32_t given = 0;
        for (; given < k && at + given < truth[i].n; given++) {
            const uint32_t chance = (n * 2654435761u + given * 40503u) >> 8 & 0xffff;
            const int32_t right = truth[i].ids[at + given];
            const int32_t wrong = chance % 5 ? (right + 1) % 2000 : INT32_MAX - 3;
            to[given] = chance < part_right * 65536 ? right : wrong;
        }
        return given;
    }
    return 0;
}

static void compare(const served *got, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        same_ids(&got[i], &truth[i]);
}

static served got[MAX_PROMPTS];

/* A session's requests with drafts are those without; n at once. */
static mn_session_stats same(mn_session_params p, uint32_t n_at_once, uint32_t n) {
    p.n_seq = n_at_once;
    p.n_ctx = 128;
    mn_session *s = open_with(p);
    const mn_session_stats stats = run_all(s, n_at_once, n, got);
    compare(got, n);
    return stats;
}

static bool has_head(void) {
    mn_model_info info = {.size = sizeof info};
    assert_int_equal(mn_model_get_info(model, &info), MN_OK);
    return info.draft_head;
}

/* ---- tests ----------------------------------------------------------------------------------- */
static void test_lookup(void **state) {
    (void)state;
    const mn_session_params p = {.speculate = MN_SPECULATE_LOOKUP};
    const mn_session_params always = {.speculate = MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS,
                                      .n_draft = 3};
    const bool loops = has_text && !has_head(); /* texts of random models may have none */
    assert_true(same(p, 1, 10).n_drafted > 0 || !loops);
    assert_true(same(always, BATCH, n_prompts).n_drafted > 0 || !loops);
}

static void test_draft_model(void **state) {
    (void)state;
    mn_model *draft = draft_model ? draft_model : model;
    const mn_session_params p = {.draft = draft};
    const mn_session_params always = {
        .draft = draft, .speculate = MN_SPECULATE_ALWAYS | MN_SPECULATE_LOOKUP, .n_draft = 4};
    same(p, 1, n_prompts / 8);
    const mn_session_stats stats = same(always, BATCH, n_prompts);
    assert_true(stats.n_accepted > stats.n_drafted / 8); /* also of lookups */
    assert_true(stats.draft_s > 0);
}

/* Guesses that are right: fewer steps; in part, or never: the same ids. */
static void test_guesses(void **state) {
    static const double parts[] = {1, 0.8, 0.5, 0};
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint32_t n_calls = 0;
        const mn_session_params p = {.guess = guess_truth,
                                     .guess_arg = &n_calls,
                                     .speculate = MN_SPECULATE_ALWAYS,
                                     .n_draft = i ? 5 : MN_MAX_DRAFT};
        part_right = parts[i];
        const mn_session_stats stats = same(p, i % 2 ? BATCH : 1, n_prompts);
        assert_true(n_calls > 0);
        assert_true(stats.n_drafted > 0 && stats.n_verifying > 0);
        if (part_right == 1)
            assert_int_equal(stats.n_accepted, stats.n_drafted);
        if (part_right == 1)
            assert_true(3 * stats.n_steps < stats.n_drawn);
        if (part_right == 0)
            assert_int_equal(stats.n_accepted, 0);
    }
}

/* What a request's last event says of its drafts. */
static void test_counts(void **state) {
    (void)state;
    uint32_t n_calls = 0;
    const mn_session_params p = {.guess = guess_truth,
                                 .guess_arg = &n_calls,
                                 .speculate = MN_SPECULATE_ALWAYS,
                                 .n_ctx = 128};
    mn_session_info info = {.size = sizeof info};
    mn_session *s = open_with(p);
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    assert_string_equal(info.speculation, "guesses of the caller");
    part_right = 1;
    run_batch(s, 1, 2, got);
    assert_int_equal(got[1].last.n_steps + got[1].last.n_accepted, got[1].n);
    assert_true(got[1].last.n_accepted > 0);
    mn_session_free(s);
}

/* Pages for a part of the sequences: they are preempted, and computed again. */
static void test_few_pages(void **state) {
    (void)state;
    uint32_t n_calls = 0;
    mn_session_load load = {.size = sizeof load};
    const mn_session_params p = {.n_seq = 8,
                                 .n_ctx = 128,
                                 .n_batch = 64,
                                 .kv_bytes = 1,
                                 .guess = guess_truth,
                                 .guess_arg = &n_calls,
                                 .speculate = MN_SPECULATE_ALWAYS};
    mn_session_info info = {.size = sizeof info};
    const uint32_t n_whole = has_head() || !has_text ? 6 : 1; /* states take their share */
    mn_session *whole = open_with((mn_session_params){.n_seq = n_whole, .n_ctx = 128});
    assert_int_equal(mn_session_get_info(whole, &info), MN_OK);
    mn_session_free(whole);
    mn_session_params few = p;
    few.kv_bytes = info.kv_bytes * 3 / 2;
    part_right = 0.7;
    mn_session *s = open_with(few);
    for (uint32_t lo = 0; lo < n_prompts; lo += 8) {
        const uint32_t hi = lo + 8 < n_prompts ? lo + 8 : n_prompts;
        run_batch(s, lo, hi, got);
    }
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    assert_true(load.n_drafted > load.n_accepted);
    mn_session_free(s);
    compare(got, n_prompts);
}

/* Logprobs come with each id, drafted or not. */
static void test_logprobs(void **state) {
    (void)state;
    uint32_t n_calls = 0;
    static served scored[2];
    part_right = 0.6;
    for (int drafts = 0; drafts < 2; drafts++) {
        mn_session_params p = {.n_ctx = 128};
        mn_sample_params sample;
        mn_request_params r = request(2, &sample);
        r.flags = MN_SUBMIT_LOGPROBS;
        r.n_top = 3;
        p.guess = drafts ? guess_truth : NULL;
        p.guess_arg = &n_calls;
        p.speculate = MN_SPECULATE_ALWAYS;
        mn_session *s = open_with(p);
        submit(s, r, &scored[drafts]);
        finish_all(s, &scored[drafts], 1);
        mn_session_free(s);
    }
    same_ids(&scored[0], &truth[2]);
    same_ids(&scored[0], &scored[1]);
    for (uint32_t i = 0; i < scored[0].n; i++)
        assert_true(fabsf(scored[0].logprob[i] - scored[1].logprob[i]) < 1e-5f);
    assert_true(n_calls > 0);
}

/* Of the model's own draft head, where it has one. */
static void test_head(void **state) {
    (void)state;
    uint32_t n_calls = 0;
    const mn_session_params p = {.speculate = MN_SPECULATE_HEAD};
    const mn_session_params always = {.speculate = MN_SPECULATE_HEAD | MN_SPECULATE_ALWAYS,
                                      .n_draft = 4};
    const mn_session_params both = {
        .speculate = MN_SPECULATE_HEAD | MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS, .n_draft = 3};
    const mn_session_params rehearsed = {.speculate = MN_SPECULATE_HEAD | MN_SPECULATE_REHEARSE |
                                                      MN_SPECULATE_ALWAYS,
                                         .guess = guess_truth,
                                         .guess_arg = &n_calls,
                                         .n_draft = 5};
    if (!has_head())
        return;
    same(p, 1, n_prompts / 8);
    assert_true(same(always, BATCH, n_prompts).draft_s > 0);
    same(both, BATCH, n_prompts);
    part_right = 0.75;
    const mn_session_stats stats = same(rehearsed, 3, n_prompts);
    assert_true(n_calls > 0 && stats.n_accepted > stats.n_drafted / 4);
}

/* With a constraint: masks along the drafts. */
static void test_constraint(void **state) {
    (void)state;
    static served constrained[2][4];
    const char *source = "(One|Two) [a-z ]+\\. (The|A) [a-z ]+\\.";
    const mn_constraint_params how = {
        .size = sizeof how, .kind = MN_CONSTRAINT_REGEX, .source = {source, strlen(source)}};
    mn_constraint *c = NULL;
    mn_error err = MN_ERROR;
    if (!has_text)
        return;
    if (mn_constraint_create(model, &how, &c, &err))
        fail_msg("%s", err.msg);
    for (int drafts = 0; drafts < 2; drafts++) {
        mn_session_params p = {.n_ctx = 128, .n_seq = 4};
        mn_session_stats stats = {.size = sizeof stats};
        p.speculate = MN_SPECULATE_ALWAYS;
        if (drafts && has_head())
            p.speculate |= MN_SPECULATE_HEAD;
        else if (drafts)
            p.draft = model;
        p.n_draft = 4;
        mn_session *s = open_with(p);
        for (uint32_t i = 0; i < 4; i++) {
            mn_sample_params sample;
            const mn_request_params r = request(i, &sample);
            sample.constraint = c;
            sample.max_new = 30;
            submit(s, r, &constrained[drafts][i]);
        }
        finish_all(s, constrained[drafts], 4);
        assert_int_equal(mn_session_get_stats(s, &stats), MN_OK);
        assert_true(!drafts || has_head() || stats.n_accepted > 0);
        mn_session_free(s);
    }
    for (uint32_t i = 0; i < 4; i++)
        same_ids(&constrained[0][i], &constrained[1][i]);
    mn_constraint_free(c);
}

/* Sequences of mn_seq_create: tokens beyond cap come with the next calls; those of a sequence that
 * is freed do not. */
static void test_sequences(void **state) {
    (void)state;
    uint32_t n_calls = 0;
    mn_token t;
    uint32_t n = 1;
    uint32_t at = 0;
    int32_t seq;
    part_right = 1;
    mn_session *s = open_with((mn_session_params){.n_ctx = 128,
                                                  .guess = guess_truth,
                                                  .guess_arg = &n_calls,
                                                  .speculate = MN_SPECULATE_ALWAYS});
    for (uint32_t i = 0; i < 4; i++) {
        const mn_sample_params p = settings(i);
        assert_int_equal(mn_seq_create(s, prompts[i], prompt(i), &p, &seq, NULL), MN_OK);
        at = 0;
        while (!mn_session_step(s, &t, 1, &n, NULL) && n) {
            assert_int_equal(t.id, truth[i].ids[at++]);
            assert_int_equal(t.finish, at == truth[i].n ? truth[i].finish : 0);
            if (i == 3 && at == 3)
                break;
        }
        assert_int_equal(at, i == 3 ? 3 : truth[i].n);
        mn_seq_free(s, seq);
    }
    mn_error err = MN_ERROR;
    if (mn_session_step(s, &t, 1, &n, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(n, 0);
    mn_session_free(s);
}

static void test_refused(void **state) {
    (void)state;
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_session_params many = {
        .size = sizeof many, .device = device, .n_draft = MN_MAX_DRAFT + 1};
    const mn_session_params flags = {.size = sizeof flags, .device = device, .speculate = 64};
    assert_int_equal(mn_session_create(model, &many, &s, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "n_draft: found 17, expected at most 16"));
    assert_int_equal(mn_session_create(model, &flags, &s, &err), MN_INVALID);
}

/* ---- what drafts are worth ------------------------------------------------------------------- */
static void test_worth(void **state) {
    (void)state;
    mn_step_times t = {.n_steps = 0};
    mn_acceptance a = {.held = 0.75, .tried = 1};
    assert_true(mn_step_times_of(&t, 3) == 0);
    mn_step_times_learn(&t, 2, 700); /* the first one is slow */
    assert_false(mn_step_times_known(&t, 2));
    mn_step_times_learn(&t, 2, 100);
    assert_true(mn_step_times_known(&t, 3) && !mn_step_times_known(&t, 1));
    assert_true(mn_step_times_of(&t, 1) == 100 && mn_step_times_of(&t, 2) == 100);
    assert_true(mn_step_times_of(&t, 4) > 100 && mn_step_times_of(&t, 4) < 120);
    mn_step_times_learn(&t, 6, 300);
    mn_step_times_learn(&t, 6, 300);
    assert_true(fabs(mn_step_times_of(&t, 4) - 200) < 1e-9);
    assert_true(fabs(mn_step_times_of(&t, 8) - 400) < 1e-9);
    assert_true(fabs(mn_draft_yield(0.5, 2) - 1.75) < 1e-12);
    assert_true(mn_draft_yield(1, 4) == 5);

    mn_step_times memory = {.n_steps = 0};  /* rows cost next to nothing */
    mn_step_times compute = {.n_steps = 0}; /* each row costs as much as the first */
    for (uint32_t i = 2; i <= 81; i++) {
        mn_step_times_learn(&memory, i / 2, 1000 + i / 2);
        mn_step_times_learn(&compute, i / 2, 1000 * (i / 2));
    }
    mn_draft_case c = {.n_draws = 1, .n_drafting = 1, .most = 8};
    assert_int_equal(mn_draft_count(&memory, 0.9, &c), 7); /* rows come in powers of two */
    assert_int_equal(mn_draft_count(&compute, 0.9, &c), 0);
    assert_int_equal(mn_draft_count(&memory, 0, &c), 0);
    c.most = 6; /* a few numbers of rows, so that each is measured soon */
    assert_int_equal(mn_draft_count(&memory, 0.9, &c), 3);
    c.most = 8;
    c.draft_ns = 400;
    const uint32_t dear = mn_draft_count(&memory, 0.8, &c);
    assert_true(dear > 0 && dear < 8);
    c = (mn_draft_case){.n_draws = 32, .n_drafting = 32, .most = 8};
    assert_int_equal(mn_draft_count(&compute, 0.9, &c), 0);

    mn_step_times even = {.n_steps = 0}; /* what a draft costs and what it yields are nearly even */
    for (uint32_t i = 2; i <= 19; i++)
        mn_step_times_learn(&even, i / 2, 1000 + 480 * (i / 2 - 1));
    c = (mn_draft_case){.n_draws = 1, .n_drafting = 1, .most = 8};
    assert_int_equal(mn_draft_count(&even, 0.5, &c), 0);
    for (int i = 0; i < 40; i++)
        mn_acceptance_learn(&a, 4, 4);
    assert_true(mn_acceptance_of(&a) > 0.95);
    for (int i = 0; i < 80; i++)
        mn_acceptance_learn(&a, 4, 0);
    assert_true(mn_acceptance_of(&a) < 0.1);
}

/* A session by a table of costs, in ms: of a step by its rows, of a draft, of what is prepared at
 * the first step of a number of rows, and of each id that the draft model has to catch up on. */
typedef struct {
    double step[17];
    double draft, first, behind;
    mn_step_times times;
    mn_draft_memory memory;
    uint32_t seed;
    bool prepared[17];
} model_session;

static bool holds(model_session *m, double right) {
    m->seed = m->seed * 1103515245u + 12345u;
    return (m->seed >> 8 & 0xffff) < right * 65536;
}

/* The time of a sequence of n ids whose drafts are right with that probability. most: 0: none. */
static double time_of(model_session *m, uint32_t n, double right, uint32_t most) {
    mn_drafting d;
    double ms = 0;
    uint32_t behind = 0; /* ids that the draft model has not seen */
    mn_drafting_begin(&d, &m->memory);
    for (uint32_t drawn = 1; drawn < n;) {
        const mn_draft_case c = {
            .n_draws = 1, .n_drafting = 1, .most = most, .draft_ns = m->draft * 1e6};
        mn_drafting_wake(&d, &m->memory, drawn);
        const bool tries = most && d.on;
        const uint32_t k = tries ? mn_drafting_count(&d, &m->memory, &m->times, &c, drawn) : 0;
        uint32_t held = 0;
        while (held < k && holds(m, right))
            held++;
        ms += m->step[1 + k] + k * m->draft + (k ? behind * m->behind : 0);
        ms += m->prepared[1 + k] ? 0 : m->first;
        m->prepared[1 + k] = true;
        mn_step_times_learn(&m->times, 1 + k, m->step[1 + k] * 1e6);
        if (k)
            mn_drafting_learn(&d, &m->memory, k, held);
        behind = k ? 0 : behind + 1;
        drawn += 1 + held;
    }
    return ms;
}

/* Steps of a model of 7B on one H200, and the draft model of 1.1B: as measured. */
static void begin_model(model_session *m, uint32_t seed) {
    static const double step[10] = {0, 4.10, 4.40, 4.71, 4.70, 4.69, 4.88, 5.08, 5.27, 5.47};
    *m = (model_session){.draft = 0.478, .first = 3, .behind = 0.01, .seed = seed};
    mn_draft_memory_begin(&m->memory);
    m->prepared[1] = true;
    for (uint32_t i = 0; i <= 16; i++)
        m->step[i] = i < 10 ? step[i] : 5.47 + 0.2 * (i - 9);
}

/* How much longer n ids take without drafts. */
static double gain(uint32_t seed, uint32_t n, double right, double *second) {
    model_session plain;
    model_session m;
    begin_model(&plain, 0);
    begin_model(&m, seed);
    const double without = time_of(&plain, n, 0, 0);
    const double first = without / time_of(&m, n, right, 16);
    *second = without / time_of(&m, n, right, 16);
    return first;
}

/* Drafts that never hold cost nearly nothing from the first 256 ids on, and less in the sequences
 * behind; those that hold are worth what E(k) says, whatever the first ones did. */
static void test_adapts(void **state) {
    (void)state;
    double second;
    const double none = gain(1, 256, 0, &second);
    print_message("no draft holds: %.3f, then %.3f\n", none, second);
    assert_true(none > 0.975 && second > 0.99);
    assert_true(gain(1, 2000, 0, &second) > 0.99);
    for (uint32_t seed = 1; seed <= 40; seed++) {
        const double many = gain(seed, 1000, 0.8, &second);
        const double some = gain(seed, 1000, 0.5, &second);
        assert_true(many > 1.7 && some > 0.97);
    }
}

static void test_find(void **state) {
    (void)state;
    const int32_t ids[] = {7, 1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3};
    const int32_t loop[] = {4, 5, 4, 5};
    const int32_t none[] = {1, 2, 3, 4};
    int32_t to[6];
    assert_int_equal(mn_draft_lookup(ids, 12, to, 3), 3); /* behind 1 2 3, not behind 2 3 */
    assert_memory_equal(to, ((int32_t[]){9, 5, 2}), 12);
    assert_int_equal(mn_draft_lookup(loop, 4, to, 6), 6);
    assert_memory_equal(to, ((int32_t[]){4, 5, 4, 5, 4, 5}), 24);
    assert_int_equal(mn_draft_lookup(none, 4, to, 6), 0);
    assert_int_equal(mn_draft_lookup(none, 1, to, 6), 0);
}

static int make_truth(void **state) {
    mn_model_info info = {.size = sizeof info};
    (void)state;
    assert_int_equal(mn_model_get_info(model, &info), MN_OK);
    has_text = info.has_tokenizer;
    mn_session *s = open_with((mn_session_params){.n_seq = BATCH, .n_ctx = 128});
    run_all(s, BATCH, n_prompts, truth);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worth),       cmocka_unit_test(test_adapts),
        cmocka_unit_test(test_find),        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_draft_model), cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_counts),      cmocka_unit_test(test_few_pages),
        cmocka_unit_test(test_logprobs),    cmocka_unit_test(test_constraint),
        cmocka_unit_test(test_sequences),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_head),
    };
    if (open_model(argc > 1 && *argv[1] ? argc : 1, argv))
        return 1;
    if (argc > 2)
        device = argv[2];
    if (!strcmp(device, "reference"))
        longest = 16;
    if (argc > 3)
        n_prompts = (uint32_t)atoi(argv[3]);
    if (argc > 4 && mn_model_open(rt, argv[4], &draft_model, NULL))
        return 1;
    const int bad = cmocka_run_group_tests(tests, make_truth, NULL);
    mn_model_free(draft_model);
    return close_model(bad);
}
