/* test_windows.c -- sessions whose models have window layers: what is given back is never missed,
 * and never more is held than was planned. The judge is the same model with groups that keep every
 * page. Before each step all pages that no table names are filled with NaN. */
#include "opened/opened.h"
#include "flaky.h"
#include "engine/engine_impl.h"
#include "session/session.h"
#include <setjmp.h>
#include <cmocka.h>

enum { N_SEQ = 4, N_CTX = 512, N_BATCH = 32, MAX_IDS = 128, LONG = 300 };
static mn_runtime *rt;
static mn_model *model;
static uint32_t most_held[MN_MAX_KV_GROUP];

typedef struct {
    const char *device;
    uint32_t n_batch, ahead;
    bool keep_all;       /* the judge */
    const int32_t *stop; /* of the extend that stops when more has been enqueued */
} how;

typedef struct {
    int32_t ids[N_SEQ + 1][MAX_IDS];
    uint32_t n[N_SEQ + 1];
    uint64_t kv_bytes;
} story;

static void check(mn_status st, const mn_error *err) {
    if (st)
        fail_msg("%s", err->msg);
}

static void open_world(const char *name, const char *const *options) {
    const char *data = getenv("MINERVA_TEST_DATA");
    char path[4200];
    mn_error err = MN_ERROR;
    snprintf(path, sizeof path, "%s/fixtures/%s", data ? data : "tests/data", name);
    check(flaky_runtime(options, &rt, &err), &err);
    check(mn_model_open(rt, path, &model, &err), &err);
}
static void close_world(void) {
    mn_model_free(model);
    mn_runtime_free(rt);
}

/* The model's graph, whose groups lose their windows and get them back. */
static void set_windows(bool keep_all) {
    static int64_t window[MN_MAX_KV_GROUP];
    const mn_model_graph *g = NULL;
    mn_error err = MN_ERROR;
    check(mn_model_graph_of(model, &g, &err), &err);
    mn_hparams *hp = &((mn_model_graph *)(uintptr_t)g)->hp;
    for (uint32_t i = 0; i < hp->n_kv; i++) {
        if (keep_all)
            window[i] = hp->kv[i].window;
        hp->kv[i].window = keep_all ? 0 : window[i];
    }
}

/* By page: steps enqueued when a table was last seen to hold it. */
enum { MAX_PAGES = 512 };
static uint64_t held_at[MN_MAX_KV_GROUP][MAX_PAGES];

static mn_session *session(how h) {
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    mn_session_params p = {.size = sizeof p,
                           .device = h.device,
                           .precision = MN_PRECISION_EXACT,
                           .n_seq = N_SEQ,
                           .n_ctx = N_CTX,
                           .n_batch = h.n_batch,
                           .run_ahead = h.ahead};
    check(mn_session_create(model, &p, &s, &err), &err);
    memset(held_at, 0, sizeof held_at);
    return s;
}

/* A page is not free before the steps that could read it are complete. */
static void look_at_free(const mn_session *s, uint32_t group) {
    const mn_page_pool *pool = &s->steps.kv.pools[group];
    for (uint32_t i = 0; i < pool->n_free; i++)
        assert_true(s->steps.clock.completed >= held_at[group][pool->free[i]]);
    for (uint32_t i = 0; i < s->steps.n_seq; i++) {
        const int32_t *row = s->steps.packed + mn_engine_row(s->steps.engine, group, i);
        for (uint32_t k = s->steps.kv.slots[i].pages[group].lo;
             k < s->steps.kv.slots[i].pages[group].hi; k++)
            held_at[group][row[k]] = s->steps.clock.enqueued;
    }
}

/* Each table names its pages from one entry on, and -1 before and behind. */
static void look(const mn_session *s, const how *h) {
    for (uint32_t g = 0; s->steps.engine && g < s->steps.graph->hp.n_kv; g++) {
        const mn_engine_group *e = &s->steps.engine->group[g];
        const int64_t window = s->steps.graph->hp.kv[g].window;
        for (uint32_t i = 0; i < s->steps.n_seq; i++) {
            const mn_kv_slot *q = &s->steps.kv.slots[i];
            const int32_t *row = s->steps.packed + mn_engine_row(s->steps.engine, g, i);
            const uint32_t held = q->pages[g].hi - q->pages[g].lo;
            most_held[g] = MN_MAX(most_held[g], held);
            if (window)
                assert_in_range(held * e->page_tokens, 0,
                                window + h->n_batch + h->ahead + 2 * e->page_tokens);
            for (uint32_t k = 0; k < s->steps.engine->row_pages; k++)
                assert_int_equal(row[k] >= 0, k >= q->pages[g].lo && k < q->pages[g].hi);
        }
        assert_in_range(s->steps.kv.pools[g].n_total, 1, MAX_PAGES);
        look_at_free(s, g);
    }
}

/* What is free holds nothing that anybody may read. */
static void poison(const mn_session *s) {
    for (uint32_t g = 0; s->steps.engine && g < s->steps.graph->hp.n_kv; g++) {
        const mn_engine_device *d = &s->steps.engine->devices[0];
        const uint32_t ratio = mn_page_ratio(s->steps.engine, d, g);
        const uint64_t bytes = d->kv[g].page_bytes * ratio;
        void *map = NULL;
        if (s->steps.clock.completed != s->steps.clock.enqueued ||
            d->backend->map(d->pages_kv[g], &map, NULL))
            continue;
        for (uint32_t i = 0; i < s->steps.kv.pools[g].n_free; i++)
            memset((char *)map + (uint64_t)s->steps.kv.pools[g].free[i] * bytes, 0xff, bytes);
    }
}

static void run(mn_session *s, const how *h, story *to, uint32_t n_steps) {
    mn_token t[N_SEQ];
    mn_error err = MN_ERROR;
    for (uint32_t n = 1; n && n_steps; n_steps--) {
        poison(s);
        check(mn_session_step(s, t, N_SEQ, &n, &err), &err);
        look(s, h);
        for (uint32_t i = 0; i < n; i++) {
            const int32_t seq = t[i].seq;
            assert_in_range(to->n[seq], 0, MAX_IDS - 1);
            to->ids[seq][to->n[seq]++] = t[i].id;
        }
    }
}

static mn_sample_params draws(uint32_t n) {
    return (mn_sample_params){
        .size = sizeof(mn_sample_params), .max_new = n, .ignore_stop = 1, .temp = 1.5f, .seed = 5};
}

static uint32_t text(uint32_t which, uint32_t n, int32_t *ids) {
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(3 + (which * 31 + i * i * 7 + i) % 150);
    return n;
}

/* A long prompt, a short one that begins while the long one is read, a stop that turns up late, an
 * extend over several windows, a fork in the middle, and a sequence in the place of one that
 * left. */
static story play(how h) {
    story to = {0};
    int32_t ids[LONG], seq, twin;
    mn_error err = MN_ERROR;
    set_windows(h.keep_all);
    mn_session *s = session(h);
    mn_session_info info = {.size = sizeof info};
    mn_session_get_info(s, &info);
    to.kv_bytes = info.kv_bytes;
    mn_sample_params p = draws(40);
    check(mn_seq_create(s, ids, text(0, LONG, ids), &p, &seq, &err), &err);
    run(s, &h, &to, 1);
    check(mn_seq_create(s, ids, text(1, 20, ids), &p, &seq, &err), &err);
    run(s, &h, &to, UINT32_MAX);
    p = draws(60);
    p.n_stop = h.stop ? 1 : 0, p.stop = h.stop;
    check(mn_seq_extend(s, 1, ids, text(2, 30, ids), &p, &err), &err);
    run(s, &h, &to, UINT32_MAX);
    assert_in_range(to.n[1], 41, h.stop ? 90 : 100);
    p = draws(4);
    check(mn_seq_extend(s, 1, ids, text(7, 3, ids), &p, &err), &err);
    run(s, &h, &to, UINT32_MAX);
    p = draws(8);
    check(mn_seq_fork(s, 0, &twin, &err), &err);
    assert_int_equal(twin, 2);
    check(mn_seq_extend(s, twin, ids, text(3, 70, ids), &p, &err), &err);
    check(mn_seq_extend(s, 0, ids, text(4, 5, ids), &p, &err), &err);
    check(mn_seq_create(s, ids, text(5, LONG, ids), &p, &seq, &err), &err);
    run(s, &h, &to, UINT32_MAX);
    mn_seq_free(s, 0);
    to.n[0] = 0;
    check(mn_seq_create(s, ids, text(6, 200, ids), &p, &seq, &err), &err);
    assert_int_equal(seq, 0);
    run(s, &h, &to, UINT32_MAX);
    mn_session_free(s);
    if (h.keep_all)
        set_windows(false);
    return to;
}

static void same(const story *a, const story *b) {
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
}

static int32_t stop_id;

/* What comes out where every page is kept. The stop id is one that is drawn early. */
static story judge(void) {
    const story dry = play((how){"cpu_simd", N_BATCH, 1, true, NULL});
    stop_id = dry.ids[1][50];
    return play((how){"cpu_simd", N_BATCH, 1, true, &stop_id});
}

static const char *const models[] = {"gemma2", "gemma4", "gpt-oss-odd", "mistral-window",
                                     "llama-layers"};

static void test_given_back(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(models); i++) {
        open_world(models[i], NULL);
        const story want = judge();
        memset(most_held, 0, sizeof most_held);
        const story got = play((how){"cpu_simd", N_BATCH, 1, false, &stop_id});
        same(&want, &got);
        if (strcmp(models[i], "llama-layers"))
            assert_true(got.kv_bytes < want.kv_bytes);
        else
            assert_true(got.kv_bytes == want.kv_bytes);
        close_world();
    }
}

/* Other batches, steps in flight, pages of 48 tokens. */
static void test_other_ways(void **state) {
    (void)state;
    open_world("gemma2", NULL);
    const story want = judge();
    const how ways[] = {{"cpu_simd", 7, 1, false, &stop_id},
                        {"cpu_simd", 200, 8, false, &stop_id},
                        {"cpu_simd", N_BATCH, 3, false, &stop_id},
                        {"cpu_simd", N_BATCH, 60, false, &stop_id},
                        {"flaky", N_BATCH, 8, false, &stop_id}};
    for (size_t i = 0; i < MN_COUNT(ways); i++) {
        const story got = play(ways[i]);
        same(&want, &got);
    }
    close_world();
}

/* More sequences than there are pages for whole rows, all at work at once: every step finds its
 * pages, and each sequence says what it says alone. */
static void test_many(void **state) {
    enum { MANY = 12, NEW = 20 };
    int32_t ids[LONG], drawn[2][MANY][NEW];
    uint32_t n_drawn[2][MANY] = {0};
    (void)state;
    open_world("gemma2", NULL);
    for (int together = 0; together < 2; together++) {
        const mn_session_params p = {.size = sizeof p,
                                     .device = "cpu_simd",
                                     .precision = MN_PRECISION_EXACT,
                                     .n_seq = together ? MANY : 1,
                                     .n_ctx = N_CTX,
                                     .n_batch = 16,
                                     .run_ahead = together ? 8 : 1};
        mn_error err = MN_ERROR;
        mn_session *s = NULL;
        check(mn_session_create(model, &p, &s, &err), &err);
        for (uint32_t i = 0; i < MANY; i++) {
            int32_t seq;
            mn_sample_params how_drawn = draws(NEW);
            how_drawn.seed = i;
            check(mn_seq_create(s, ids, text(i, 30 + i * 23, ids), &how_drawn, &seq, &err), &err);
            mn_token t[MANY];
            for (uint32_t n = 1; n && (!together || i == MANY - 1);) {
                check(mn_session_step(s, t, MANY, &n, &err), &err);
                for (uint32_t k = 0; k < n; k++) {
                    const int32_t at = together ? t[k].seq : (int32_t)i;
                    drawn[together][at][n_drawn[together][at]++] = t[k].id;
                }
            }
            if (!together)
                mn_seq_free(s, seq);
        }
        for (uint32_t g = 0; together && g < s->steps.graph->hp.n_kv; g++)
            if (s->steps.graph->hp.kv[g].window)
                assert_true(s->steps.engine->group[g].n_total <
                            MANY * s->steps.engine->group[g].n_pages / 2);
        mn_session_free(s);
    }
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(n_drawn[0][i], NEW);
    assert_memory_equal(n_drawn[0], n_drawn[1], sizeof n_drawn[0]);
    assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
    close_world();
}

/* A prompt that is read far ahead leaves each sequence to come its share: a fork finds a page at
 * any time. */
static void test_fork_beside_a_prompt(void **state) {
    enum { SHORT = 20, PROMPT = 1900, FAR = 60, STEPS = 150 };
    int32_t ids[PROMPT], idle, busy, seq, twin;
    mn_error err = MN_ERROR;
    mn_token t[N_SEQ];
    mn_session *s = NULL;
    const mn_session_params p = {.size = sizeof p,
                                 .device = "cpu_simd",
                                 .precision = MN_PRECISION_EXACT,
                                 .n_seq = N_SEQ,
                                 .n_ctx = 2048,
                                 .n_batch = 17,
                                 .run_ahead = FAR};
    (void)state;
    open_world("gemma2", NULL);
    check(mn_session_create(model, &p, &s, &err), &err);
    mn_sample_params how_drawn = draws(1);
    check(mn_seq_create(s, ids, text(0, SHORT, ids), &how_drawn, &idle, &err), &err);
    for (uint32_t n = 1; n;)
        check(mn_session_step(s, t, N_SEQ, &n, &err), &err);
    how_drawn = draws(STEPS + FAR);
    check(mn_seq_create(s, ids, text(1, SHORT, ids), &how_drawn, &busy, &err), &err);
    check(mn_seq_create(s, ids, text(2, PROMPT, ids), &how_drawn, &seq, &err), &err);
    for (uint32_t i = 0, n; i < STEPS; i++) {
        check(mn_session_step(s, t, N_SEQ, &n, &err), &err);
        if (i % 25)
            continue;
        check(mn_seq_fork(s, idle, &twin, &err), &err);
        mn_seq_free(s, twin);
    }
    mn_session_free(s);
    close_world();
}

/* Lost in the middle: what was given back is computed again. */
static void test_lost(void **state) {
    static const char *const after[] = {"3", "30", "90"};
    (void)state;
    open_world("gemma2", NULL);
    const story want = judge();
    close_world();
    for (size_t i = 0; i < MN_COUNT(after); i++) {
        open_world("gemma2", (const char *const[]){"lost_after", after[i], NULL});
        const story got = play((how){"flaky,cpu_simd", N_BATCH, 8, false, &stop_id});
        same(&want, &got);
        close_world();
    }
}

static mn_status keep_rows(void *arg, uint32_t first, uint32_t n, uint32_t n_vocab,
                           const float *rows) {
    float *to = arg;
    memcpy(to + (size_t)first * n_vocab, rows, (size_t)n * n_vocab * sizeof *rows);
    return MN_OK;
}

static float *logits_of(bool keep_all, uint32_t n_batch, size_t *n) {
    int32_t ids[LONG];
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    mn_session_params p = {.size = sizeof p,
                           .device = "reference",
                           .precision = MN_PRECISION_EXACT,
                           .n_ctx = N_CTX,
                           .n_batch = n_batch,
                           .flags = MN_SESSION_NO_SAMPLING};
    set_windows(keep_all);
    check(mn_session_create(model, &p, &s, &err), &err);
    *n = LONG * (size_t)s->steps.graph->hp.n_vocab;
    float *all = malloc(*n * sizeof *all);
    check(mn_session_logits(s, ids, text(9, LONG, ids), keep_rows, all, &err), &err);
    mn_session_free(s);
    if (keep_all)
        set_windows(false);
    return all;
}

static void test_logits(void **state) {
    (void)state;
    open_world("gpt-oss-odd", NULL);
    size_t n;
    float *want = logits_of(true, LONG, &n), *got = logits_of(false, 16, &n);
    assert_memory_equal(want, got, n * sizeof *want);
    free(want);
    free(got);
    close_world();
}

/* Requests whose beginnings others have computed, in every length: what the cache has kept of
 * window groups is what the next row sees, and nothing that was free is read. */
enum { TURNS = 9 };
typedef struct {
    int32_t ids[TURNS][MAX_IDS];
    uint32_t n[TURNS], n_cached[TURNS];
} turns;

static void take_turn(mn_session *s, turns *to, uint32_t i, const int32_t *ids, uint32_t n) {
    mn_error err = MN_ERROR;
    const mn_sample_params p = draws(12);
    const mn_request_params r = {.size = sizeof r, .ids = ids, .n_ids = n, .sample = &p};
    mn_request_events events = {.size = sizeof events};
    uint64_t id;
    bool done = false;
    check(mn_session_submit(s, &r, &id, &err), &err);
    while (!done) {
        poison(s);
        check(mn_session_next(s, 1000, &events, &err), &err);
        for (uint32_t k = 0; k < events.n; k++) {
            const mn_request_event *e = &events.events[k];
            done = e->kind == MN_REQUEST_FINISH;
            to->n_cached[i] = e->n_cached;
            if (e->kind == MN_REQUEST_TOKEN)
                to->ids[i][to->n[i]++] = e->id;
        }
    }
}

/* A chat that grows, the same again, its middle with another end, another text, the chat once
 * more. */
static turns chat_with(uint32_t flags) {
    static const uint32_t lengths[TURNS] = {40, 90, 200, 200, 130, 131, 300, 199, 300};
    turns to = {0};
    int32_t ids[LONG];
    mn_error err = MN_ERROR;
    mn_session *s = NULL;
    const mn_session_params p = {.size = sizeof p,
                                 .device = "cpu_simd",
                                 .precision = MN_PRECISION_EXACT,
                                 .n_seq = 3,
                                 .n_ctx = N_CTX,
                                 .n_batch = N_BATCH,
                                 .flags = flags};
    check(mn_session_create(model, &p, &s, &err), &err);
    for (uint32_t i = 0; i < TURNS; i++) {
        text(i == 6 ? 9 : 1, lengths[i], ids);
        if (i == 4)
            ids[129] = 3;
        take_turn(s, &to, i, ids, lengths[i]);
    }
    mn_session_free(s);
    return to;
}

static void test_prefixes(void **state) {
    (void)state;
    for (size_t i = 0; i < MN_COUNT(models); i++) {
        open_world(models[i], NULL);
        const turns want = chat_with(MN_SESSION_NO_CACHE);
        const turns got = chat_with(0);
        assert_memory_equal(got.ids, want.ids, sizeof want.ids);
        assert_memory_equal(got.n, want.n, sizeof want.n);
        assert_true(got.n_cached[3] >= 128 && got.n_cached[4] >= 64 && !got.n_cached[6]);
        assert_true(!want.n_cached[3]);
        close_world();
    }
}

/* Page tables of many long sequences are written where they change: a step that draws costs a few
 * bytes of them, whatever the context is. */
static void test_table_changes(void **state) {
    enum { MANY = 12, STEPS = 100 };
    int32_t ids[LONG], seq;
    mn_error err = MN_ERROR;
    mn_token t[MANY];
    uint32_t n = 0;
    mn_session *s = NULL;
    const mn_session_params p = {.size = sizeof p,
                                 .device = "cpu_simd",
                                 .precision = MN_PRECISION_EXACT,
                                 .n_seq = MANY,
                                 .n_ctx = 32768,
                                 .n_batch = 64,
                                 .kv_bytes = 8 << 20};
    (void)state;
    open_world("llama-layers", NULL);
    check(mn_session_create(model, &p, &s, &err), &err);
    const mn_sample_params how_drawn = draws(STEPS + 10);
    for (uint32_t i = 0; i < MANY; i++)
        check(mn_seq_create(s, ids, text(i, 20 + i * 3, ids), &how_drawn, &seq, &err), &err);
    for (uint32_t i = 0; i < 8; i++)
        check(mn_session_step(s, t, MANY, &n, &err), &err);
    const uint64_t before = s->steps.engine->input_bytes;
    for (uint32_t i = 0; i < STEPS; i++)
        check(mn_session_step(s, t, MANY, &n, &err), &err);
    const uint64_t head = s->steps.engine->in.head * 4ull;
    assert_in_range(s->steps.engine->input_bytes - before, MANY * 4, (head + 16) * STEPS);
    assert_true(s->steps.engine->in.total * 4ull > 4 * head);
    mn_session_free(s);
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_back), cmocka_unit_test(test_other_ways),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_fork_beside_a_prompt),
        cmocka_unit_test(test_lost),       cmocka_unit_test(test_logits),
        cmocka_unit_test(test_prefixes),   cmocka_unit_test(test_table_changes)};
    if (!flaky_setup()) {
        printf("SKIP: the stub was not built\n");
        return 77;
    }
    mn_log_level(MN_LOG_ERROR);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    flaky_teardown();
    return failed;
}
