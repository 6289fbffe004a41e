/* test_hybrid.c -- sessions with models whose layers remember a state, on a real device: batches,
 * turns, forks, cuts, chunks, pages that are too few and drafts give the ids and the logprobs of
 * the same text alone, bit for bit, and compute no more than the kept states leave to compute.
 *
 * test_hybrid DEVICE FIXTURE...: each fixture in turn. */
#include "serving.h"

enum { MOST = 20, BLOCK = 64, EVERY = 1024, LONGEST = 20480 };
static uint32_t n_vocab;

/* ---- texts ----------------------------------------------------------------------------------- */
/* n ids, of which no two texts have the same. No special tokens, no end. */
static uint32_t text(uint32_t which, uint32_t n, int32_t *ids) {
    uint32_t lot = which * 2654435761u + 12345;
    for (uint32_t i = 0; i < n; i++) {
        lot = lot * 1664525 + 1013904223;
        ids[i] = (int32_t)(4 + (lot >> 12) % (n_vocab - 4));
    }
    return n;
}

static uint32_t length_of(uint32_t i) {
    return i == MOST - 1 ? 100 : 1 + i * i * 7 % 100;
}

static mn_sample_params drawing(uint32_t n, uint32_t seed) {
    return (mn_sample_params){.size = sizeof(mn_sample_params),
                              .max_new = n,
                              .seed = seed,
                              .temp = seed % 2 ? 0.8f : 0,
                              .ignore_stop = 1};
}

static void ask(mn_session *s, const int32_t *ids, uint32_t n, const mn_sample_params *p,
                served *out) {
    const mn_request_params r = {
        .ids = ids, .n_ids = n, .sample = p, .flags = MN_SUBMIT_LOGPROBS, .n_top = 20};
    submit(s, r, out);
}

/* The text in a session of its own. */
static void ask_alone(const int32_t *ids, uint32_t n, const mn_sample_params *p, served *out) {
    mn_session *s = open_with(
        (mn_session_params){.n_seq = 1, .n_ctx = n + p->max_new + 1, .flags = MN_SESSION_NO_CACHE});
    ask(s, ids, n, p, out);
    finish_all(s, out, 1);
    mn_session_free(s);
}

static void same_answers(const served *a, const served *b) {
    same_ids(a, b);
    assert_memory_equal(a->logprob, b->logprob, a->n * sizeof *a->logprob);
}

static mn_session_load load_of(mn_session *s) {
    mn_session_load load = {.size = sizeof load};
    assert_int_equal(mn_session_get_load(s, &load), MN_OK);
    return load;
}

/* ---- batches --------------------------------------------------------------------------------- */
static int32_t prompts[MOST][128];
static served alone[MOST]; /* the answers to them */

static int make_alone(void **state) {
    (void)state;
    for (uint32_t i = 0; i < MOST; i++) {
        const mn_sample_params p = drawing(12, i);
        text(i, length_of(i), prompts[i]);
        ask_alone(prompts[i], length_of(i), &p, &alone[i]);
    }
    return 0;
}

/* All at once, as alone. */
static mn_session_load batch(mn_session_params how) {
    static served got[MOST];
    mn_session *s = open_with(how);
    for (uint32_t i = 0; i < MOST; i++) {
        const mn_sample_params p = drawing(12, i);
        ask(s, prompts[i], length_of(i), &p, &got[i]);
    }
    finish_all(s, got, MOST);
    for (uint32_t i = 0; i < MOST; i++)
        same_answers(&got[i], &alone[i]);
    const mn_session_load load = load_of(s);
    assert_int_equal(load.pages_used, 0);
    mn_session_free(s);
    return load;
}

static void test_batch(void **state) {
    (void)state;
    batch((mn_session_params){.n_seq = MOST, .n_ctx = 128});
    batch((mn_session_params){.n_seq = 7, .n_ctx = 128, .n_batch = 32, .run_ahead = 8});
}

/* A prompt in pieces, whatever their sizes. */
static void test_chunks(void **state) {
    static const uint32_t batches[] = {1, 3, 7, 16, 61, 64, 100, 333};
    static int32_t ids[333];
    served whole;
    served got;
    const mn_sample_params p = drawing(6, 2);
    (void)state;
    text(77, 333, ids);
    ask_alone(ids, 333, &p, &whole);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        mn_session *s =
            open_with((mn_session_params){.n_seq = 1, .n_ctx = 400, .n_batch = batches[i]});
        ask(s, ids, 333, &p, &got);
        finish_all(s, &got, 1);
        same_answers(&got, &whole);
        mn_session_free(s);
    }
}

/* Room for half of the positions: requests give way and are computed again. */
static void test_give_way(void **state) {
    (void)state;
    mn_session_info info = {.size = sizeof info};
    const mn_session_params roomy = {.n_seq = MOST, .n_ctx = 64, .n_batch = 64};
    mn_session_params few = roomy;
    mn_session *s = open_with(roomy);
    assert_int_equal(mn_session_get_info(s, &info), MN_OK);
    mn_session_free(s);
    few.n_ctx = 128;
    few.kv_bytes = info.kv_bytes;
    batch(few);
}

/* ---- turns ----------------------------------------------------------------------------------- */
enum { TURNS = 20, ANSWER = 10 };
typedef struct {
    int32_t ids[LONGEST + 512];
    uint32_t n;
    uint32_t begins[TURNS + 1]; /* where the text of each turn does */
} talk;

/* One turn more: n_new ids of a text, and the answer to all. Tokens that were computed besides the
 * new ones. */
static uint32_t turn(mn_session *s, talk *t, uint32_t at, uint32_t n_new, uint32_t which) {
    static served got;
    static served fresh;
    const mn_sample_params p = drawing(ANSWER, which);
    t->begins[at] = t->n;
    t->n += text(which, n_new, t->ids + t->n);
    ask(s, t->ids, t->n, &p, &got);
    finish_all(s, &got, 1);
    if (t->n < 4096 && (at % 4 == 3 || at + 1 == TURNS)) {
        ask_alone(t->ids, t->n, &p, &fresh);
        same_answers(&got, &fresh);
    }
    const uint32_t computed = t->n - got.last.n_cached;
    memcpy(t->ids + t->n, got.ids, got.n * sizeof *got.ids);
    t->n += got.n;
    return computed > n_new ? computed - n_new : 0;
}

/* most: old tokens that a turn may compute again. */
static void converse(uint32_t n_seq, uint32_t n_new, uint32_t most) {
    static talk t;
    t.n = 0;
    mn_session *s = open_with((mn_session_params){
        .n_seq = n_seq, .n_ctx = TURNS * (n_new + ANSWER) + 64, .n_batch = 256});
    for (uint32_t i = 0; i < TURNS; i++)
        assert_in_range(turn(s, &t, i, n_new, 100 + i), 0, most);
    t.n = t.begins[10]; /* edited: everything behind it is another */
    assert_in_range(turn(s, &t, 10, n_new, 200), 0, EVERY);
    for (uint32_t i = 11; i < TURNS; i++)
        assert_in_range(turn(s, &t, i, n_new, 200 + i), 0, most);
    mn_session_free(s);
}

static void test_turns(void **state) {
    (void)state;
    converse(4, 21, BLOCK + ANSWER);
}

static void test_long_turns(void **state) {
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* states are kept alike for all, and the oracle is slow */
    converse(1, 190, BLOCK + ANSWER);
}

/* More than states: those that are left lie apart evenly. */
static void test_longest_turns(void **state) {
    static talk t;
    (void)state;
    t.n = 0;
    mn_session *s = open_with((mn_session_params){.n_seq = 1, .n_ctx = 20000, .n_batch = 512});
    const bool attends = load_of(s).page_tokens > 0; /* to so long a text that takes its time */
    for (uint32_t i = 0; i < TURNS && !attends; i++)
        assert_in_range(turn(s, &t, i, 980, 100 + i), 0, BLOCK + ANSWER);
    for (uint32_t at = TURNS - 2; at >= 6 && !attends; at -= 4) {
        t.n = t.begins[at];
        assert_in_range(turn(s, &t, at, 100, 200), 0, 4 * EVERY);
    }
    mn_session_free(s);
}

/* More conversations than their states have pages, by turns: states wait in host memory. */
static void test_many_talks(void **state) {
    enum { TALKS = 20, ROUNDS = 3, NEW = 600 };
    static talk talks[TALKS];
    uint32_t most = 0;
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* states are kept alike for all, and the oracle is slow */
    mn_session *s = open_with((mn_session_params){
        .n_seq = 2, .n_ctx = TALKS * ROUNDS * (NEW + ANSWER) / 2 + 4096, .n_batch = 512});
    memset(talks, 0, sizeof talks);
    for (uint32_t i = 0; i < ROUNDS * TALKS; i++) {
        const uint32_t which = i % TALKS;
        const bool last = i >= (ROUNDS - 1) * TALKS && which % 5 == 0;
        /* of some of the last turns the answers are compared, as of every fourth turn */
        const uint32_t at = last ? 3 : i / TALKS;
        const uint32_t again = turn(s, &talks[which], at, NEW, 1000 + i);
        if (again > most)
            most = again;
    }
    const mn_session_load load = load_of(s);
    print_message("%u old tokens at most; %u states are in host memory, %u went there, %u came "
                  "back\n",
                  most, (unsigned)load.states_host, (unsigned)load.states_out,
                  (unsigned)load.states_back);
    assert_true(most <= EVERY && load.states_host && load.states_back);
    mn_session_free(s);
}

/* ---- sequences ------------------------------------------------------------------------------- */
static void draw(mn_session *s, served *out, uint32_t n) {
    mn_error err = MN_ERROR;
    mn_token t[2];
    uint32_t got = 1;
    out->n = 0;
    while (out->n < n) {
        if (mn_session_step(s, t, 2, &got, &err))
            fail_msg("%s", err.msg);
        assert_int_equal(got, 1);
        out->ids[out->n++] = t[0].id;
        out->finish = t[0].finish;
    }
}

/* The sequence goes on with other ids behind its first n_keep; as the whole text afresh. */
static void goes_on(mn_session *s, int32_t seq, const int32_t *ids, uint32_t n_keep) {
    static int32_t whole[512];
    static served got;
    static served fresh;
    const mn_sample_params p = drawing(ANSWER, 6);
    memcpy(whole, ids, n_keep * sizeof *whole);
    text(300 + n_keep, 9, whole + n_keep);
    ask_alone(whole, n_keep + 9, &p, &fresh);
    assert_int_equal(mn_seq_extend(s, seq, whole + n_keep, 9, &p, NULL), MN_OK);
    draw(s, &got, ANSWER);
    same_ids(&got, &fresh);
}

/* Forks at the end and in the middle; cuts, of which each leaves less. */
static void test_fork_and_cut(void **state) {
    static int32_t ids[512];
    static const uint32_t keeps[] = {209, 200, 129, 128, 65, 3, 1};
    static served got;
    const mn_sample_params p = drawing(ANSWER, 4);
    int32_t seq;
    int32_t twin;
    (void)state;
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 256, .n_batch = 48});
    text(55, 200, ids);
    assert_int_equal(mn_seq_create(s, ids, 200, &p, &seq, NULL), MN_OK);
    draw(s, &got, ANSWER);
    memcpy(ids + 200, got.ids, ANSWER * sizeof *ids);
    assert_int_equal(mn_seq_fork(s, seq, &twin, NULL), MN_OK);
    goes_on(s, twin, ids, 210);
    mn_seq_free(s, twin);
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        assert_int_equal(mn_seq_fork_at(s, seq, keeps[i], &twin, NULL), MN_OK);
        goes_on(s, twin, ids, keeps[i]);
        assert_int_equal(mn_seq_truncate(s, twin, keeps[i], NULL), MN_OK);
        goes_on(s, twin, ids, keeps[i]);
        mn_seq_free(s, twin);
        assert_int_equal(mn_seq_truncate(s, seq, keeps[i], NULL), MN_OK);
    }
    goes_on(s, seq, ids, 1);
    mn_session_free(s);
}

/* Rows that a turn of a sequence computes: of n_new ids, and of those that are computed again. */
static uint64_t rows_of_turn(mn_session *s, int32_t seq, talk *t, uint32_t n_new, uint32_t which) {
    static served got;
    const mn_sample_params p = drawing(ANSWER, which);
    mn_session_stats before = {.size = sizeof before};
    mn_session_stats after = {.size = sizeof after};
    assert_int_equal(mn_session_get_stats(s, &before), MN_OK);
    text(which, n_new, t->ids + t->n);
    assert_int_equal(mn_seq_extend(s, seq, t->ids + t->n, n_new, &p, NULL), MN_OK);
    t->n += n_new;
    draw(s, &got, ANSWER);
    memcpy(t->ids + t->n, got.ids, ANSWER * sizeof *t->ids);
    t->n += ANSWER;
    assert_int_equal(mn_session_get_stats(s, &after), MN_OK);
    return after.n_prompt + after.n_restored - before.n_prompt - before.n_restored;
}

/* A chat in one sequence, whose tenth turn is then said otherwise: by a cut, and by a fork. */
static void test_sequence_turns(void **state) {
    enum { NEW = 170 };
    static talk t;
    static served fresh;
    const mn_sample_params first = drawing(ANSWER, 0);
    const mn_sample_params last = drawing(ANSWER, 900 + TURNS);
    int32_t seq;
    int32_t twin;
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* states are kept alike for all, and the oracle is slow */
    mn_session *s = open_with((mn_session_params){.n_seq = 2, .n_ctx = 4096, .n_batch = 256});
    t.n = text(800, NEW, t.ids);
    assert_int_equal(mn_seq_create(s, t.ids, t.n, &first, &seq, NULL), MN_OK);
    draw(s, &fresh, ANSWER);
    memcpy(t.ids + t.n, fresh.ids, ANSWER * sizeof *t.ids);
    t.n += ANSWER;
    for (uint32_t i = 1; i < TURNS; i++) /* the last id of an answer is not stored */
        assert_int_equal(rows_of_turn(s, seq, &t, NEW, 800 + i), NEW + 1);
    t.n = 10 * (NEW + ANSWER);
    assert_int_equal(mn_seq_fork_at(s, seq, t.n, &twin, NULL), MN_OK);
    assert_in_range(rows_of_turn(s, twin, &t, NEW, 700), NEW, NEW + EVERY);
    t.n = 10 * (NEW + ANSWER);
    assert_int_equal(mn_seq_truncate(s, seq, t.n, NULL), MN_OK);
    assert_in_range(rows_of_turn(s, seq, &t, NEW, 700), NEW, NEW + EVERY);
    for (uint32_t i = 11; i <= TURNS; i++)
        assert_int_equal(rows_of_turn(s, seq, &t, NEW, 900 + i), NEW + 1);
    ask_alone(t.ids, t.n - ANSWER, &last, &fresh);
    assert_memory_equal(t.ids + t.n - ANSWER, fresh.ids, ANSWER * sizeof *t.ids);
    mn_session_free(s);
}

/* ---- drafts ---------------------------------------------------------------------------------- */
/* Ids that are right in part. */
static uint32_t guess(void *arg, const int32_t *ids, uint32_t n, int32_t *to, uint32_t k) {
    (void)arg;
    for (uint32_t i = 0; i < MOST; i++) {
        const uint32_t at = n - length_of(i);
        if (n < length_of(i) || memcmp(ids, prompts[i], length_of(i) * sizeof *ids))
            continue;
        uint32_t given = 0;
        for (; given < k && at + given < alone[i].n; given++)
            to[given] = alone[i].ids[at + given] ^ ((n + given) % 4 == 3);
        return given;
    }
    return 0;
}

static void test_drafts(void **state) {
    (void)state;
    const mn_session_params lookup = {
        .speculate = MN_SPECULATE_LOOKUP | MN_SPECULATE_ALWAYS, .n_seq = MOST, .n_ctx = 128};
    const mn_session_params pair = {.speculate = MN_SPECULATE_ALWAYS,
                                    .draft = model,
                                    .n_draft = 4,
                                    .n_seq = MOST,
                                    .n_ctx = 128};
    const mn_session_params guesses = {
        .speculate = MN_SPECULATE_ALWAYS, .guess = guess, .n_seq = 3, .n_ctx = 128};
    batch(lookup);
    const mn_session_load by_model = batch(pair);
    assert_true(by_model.n_accepted > by_model.n_drafted / 8);
    const mn_session_load by_guess = batch(guesses);
    assert_true(by_guess.n_accepted > 0 && by_guess.n_accepted < by_guess.n_drafted);
}

/* ---- many users ------------------------------------------------------------------------------ */
/* Prompts of which the first part is the same: it is computed by the first two, who tell where they
 * part; a state that a busy machine keeps too late costs another two. */
static void test_shared_prompt(void **state) {
    enum { USERS = 12, SHARED = 960, OWN = 130 };
    static int32_t ids[SHARED + OWN];
    static served got;
    static served fresh;
    uint32_t n_cached = 0;
    const mn_sample_params p = drawing(4, 2);
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* states are kept alike for all, and the oracle is slow */
    mn_session *s = open_with((mn_session_params){.n_seq = 4, .n_ctx = 1200});
    text(400, SHARED, ids);
    for (uint32_t i = 0; i < USERS; i++) {
        text(500 + i, OWN, ids + SHARED);
        ask(s, ids, SHARED + OWN, &p, &got);
        finish_all(s, &got, 1);
        n_cached += got.last.n_cached;
        if (i % 4 != 3)
            continue;
        ask_alone(ids, SHARED + OWN, &p, &fresh);
        same_answers(&got, &fresh);
    }
    print_message("%u of %u tokens were cached\n", n_cached, (USERS - 1) * SHARED);
    assert_true(n_cached >= (USERS - 4) * SHARED);
    mn_session_free(s);
}

/* All of them at once: what the first ones compute is not computed by those that wait. */
static void test_shared_at_once(void **state) {
    enum { USERS = 64, SHARED = 960, OWN = 50 };
    static int32_t ids[USERS][SHARED + OWN];
    static served got[USERS];
    static served fresh;
    uint32_t n_cached = 0;
    const mn_sample_params p = drawing(4, 2);
    (void)state;
    if (!strcmp(device, "reference"))
        return; /* states are kept alike for all, and the oracle is slow */
    mn_session *s = open_with((mn_session_params){.n_seq = 20, .n_ctx = 1100});
    for (uint32_t i = 0; i < USERS; i++) {
        text(400, SHARED, ids[i]);
        text(600 + i, OWN, ids[i] + SHARED);
        ask(s, ids[i], SHARED + OWN, &p, &got[i]);
    }
    finish_all(s, got, USERS);
    for (uint32_t i = 0; i < USERS; i++)
        n_cached += got[i].last.n_cached;
    print_message("%u of %u tokens were cached\n", n_cached, (USERS - 1) * SHARED);
    assert_true(10 * n_cached >= 9 * (USERS - 1) * SHARED);
    mn_session_free(s);
    ask_alone(ids[40], SHARED + OWN, &p, &fresh);
    same_answers(&got[40], &fresh);
}

static int test_fixture(const char *name) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch),          cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_give_way),       cmocka_unit_test(test_turns),
        cmocka_unit_test(test_long_turns),     cmocka_unit_test(test_longest_turns),
        cmocka_unit_test(test_fork_and_cut),   cmocka_unit_test(test_sequence_turns),
        cmocka_unit_test(test_drafts),         cmocka_unit_test(test_shared_prompt),
        cmocka_unit_test(test_shared_at_once), cmocka_unit_test(test_many_talks),
    };
    char path[4400];
    mn_error err = MN_ERROR;
    mn_model_info info = {.size = sizeof info};
    snprintf(path, sizeof path, "%s/fixtures/%s", getenv("MINERVA_TEST_DATA"), name);
    if (mn_model_open(rt, path, &model, &err) || mn_model_get_info(model, &info)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    n_vocab = info.n_vocab;
    const int bad = cmocka_run_group_tests_name(name, tests, make_alone, NULL);
    mn_model_free(model);
    return bad;
}

int main(int argc, char **argv) {
    mn_error err = MN_ERROR;
    int bad = 0;
    device = argv[1];
    if (mn_runtime_create(NULL, &rt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (int i = 2; i < argc; i++)
        bad += test_fixture(argv[i]);
    mn_runtime_free(rt);
    return bad != 0;
}
