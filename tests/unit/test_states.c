/* test_states.c -- states of sequences without a device: what a page holds is a hash of the tokens
 * that made it, so that each step says whether it begins with the state that its position has. Long
 * random runs of prompts in pieces, draws, drafts that fail, ends that are found late, forks, cuts,
 * beginnings that others have computed, and ends of sequences, with steps in flight; with host
 * memory for states that have no page any more, and without. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "engine/engine_impl.h"
#include "session/kv/kv.h"
#include "session/kv/pool.h"
#include <stdlib.h>
#include <string.h>

enum {
    N_SEQ = 3,
    N_CTX = 4096,
    PAGE = 64,
    ROW = N_CTX / PAGE,
    STATE = 1,
    N_STATES = 2 * N_SEQ + 4,
    N_HOST = 5
};

typedef struct {
    int32_t tokens[N_CTX + 1];
    uint32_t n, stored; /* tokens that are known; positions that are stored, or will be */
    bool used, shares;
} sequence;

typedef struct {
    mn_model_graph graph;
    mn_engine engine;
    mn_engine_device device;
    mn_device_record record;
    mn_plugin_record plugin;
    mn_backend backend;
    mn_step_clock clock;
    int32_t packed[N_SEQ * (ROW + 2)];
    mn_kv kv;
    uint64_t content[N_STATES]; /* by page */
    sequence seq[N_SEQ];
    uint64_t random;
    uint32_t n_taken, n_back; /* tokens that were not computed; that were computed again */
} world;

/* ---- what a device does ---------------------------------------------------------------------- */
static uint64_t mix(uint64_t h, int32_t token) {
    h = (h ^ (uint32_t)token) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_of(const sequence *q, uint32_t n) {
    uint64_t h = 1;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, q->tokens[i]);
    return h;
}

/* A step with n rows of the slot, of which the device computes `live`. */
static void step(world *w, uint32_t slot, uint32_t n, uint32_t live, bool literal) {
    const sequence *q = &w->seq[slot];
    mn_state_step(&w->kv, slot, q->stored, n, literal);
    const int32_t *row = mn_tables_row(&w->kv, STATE, slot);
    uint64_t h = row[0] < 0 ? 1 : w->content[row[0]];
    assert_true(row[1] >= 0 && row[1] < N_STATES);
    for (uint32_t i = 0; i < live; i++) {
        if (!i)
            assert_true(h == hash_of(q, q->stored));
        h = mix(h, q->tokens[q->stored + i]);
    }
    w->content[row[1]] = h;
    w->clock.enqueued++;
}

/* ---- the world ------------------------------------------------------------------------------- */
static uint32_t below(world *w, uint32_t n) {
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->random >> 33) % n;
}

static int setup(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->graph.hp.n_kv = 2;
    w->graph.hp.kv[STATE].state = 1;
    w->engine.graph = &w->graph;
    w->engine.group[0] = (mn_engine_group){
        .page_tokens = PAGE, .row = ROW, .n_pages = ROW, .n_total = N_SEQ * ROW, .n_own = ROW};
    w->engine.group[STATE] =
        (mn_engine_group){.row = 2, .n_pages = 2, .n_total = N_STATES, .n_own = 2};
    w->engine.in.pages[STATE] = N_SEQ * ROW;
    w->random = 42;
    assert_int_equal(mn_kv_init(&w->kv, N_SEQ, N_CTX, &w->clock, NULL), MN_OK);
    assert_int_equal(mn_kv_place(&w->kv, &w->engine, w->packed, NULL), MN_OK);
    *state = w;
    return 0;
}

/* The content as the memory of a device that can be mapped. */
static uint64_t *mapped;
static mn_status MN_CALL map_content(mn_buffer *b, void **at, mn_error *err) {
    (void)b;
    (void)err;
    *at = mapped;
    return MN_OK;
}

static int setup_host(void **state) {
    static const uint32_t n_pages[MN_MAX_KV_GROUP] = {0, 1};
    const int st = setup(state);
    world *w = *state;
    mapped = w->content;
    w->backend.map = map_content;
    w->record.plugin = &w->plugin;
    w->device = (mn_engine_device){.record = &w->record, .backend = &w->backend, .unified = true};
    w->device.kv[STATE].page_bytes = sizeof *w->content;
    w->device.pages_kv[STATE] = (mn_buffer *)(void *)w->content;
    w->engine.devices = &w->device;
    w->engine.n_devices = 1;
    mn_kv_unplace(&w->kv);
    w->kv.most_host = N_HOST * sizeof *w->content;
    assert_int_equal(mn_kv_place(&w->kv, &w->engine, w->packed, NULL), MN_OK);
    assert_int_equal(mn_engine_make_places(&w->engine, 2, n_pages, NULL), MN_OK);
    w->kv.host = (mn_host_states){.states = mn_calloc(N_HOST, sizeof(mn_host_state)),
                                  .n = N_HOST,
                                  .bytes = sizeof *w->content,
                                  .waiting = {-1, -1}};
    return st;
}

static int teardown(void **state) {
    world *w = *state;
    mn_kv_free(&w->kv);
    mn_engine_places_free(&w->engine);
    free(w);
    return 0;
}

static void complete(world *w, uint32_t most_in_flight) {
    while (w->clock.enqueued - w->clock.completed > most_in_flight)
        w->clock.completed++;
    mn_page_pools_settle(&w->kv);
}

static mn_memory_text text_of(const sequence *q) {
    return (mn_memory_text){q->tokens, q->n, q->stored};
}

static void reserve(world *w, uint32_t slot, uint32_t n_positions) {
    if (!mn_pages_reserve(&w->kv, slot, n_positions))
        complete(w, 0);
    assert_true(mn_pages_reserve(&w->kv, slot, n_positions));
}

/* A sequence whose first tokens are those of one of two texts. */
static void begin(world *w, uint32_t slot, bool shares, uint32_t n) {
    sequence *q = &w->seq[slot];
    const int32_t text = (int32_t)below(w, 2);
    const uint32_t common = below(w, n + 1);
    for (uint32_t i = 0; i < n; i++)
        q->tokens[i] = i < common ? (int32_t)i * 2 + text : (int32_t)below(w, 1000);
    q->n = n;
    q->stored = 0;
    q->used = true;
    q->shares = shares;
    mn_kv_begin(&w->kv, slot, shares, 0, 0);
    q->stored = mn_prefix_take(&w->kv, slot, text_of(q));
    w->n_taken += q->stored;
}

static void feed(world *w, uint32_t slot) {
    sequence *q = &w->seq[slot];
    while (q->stored < q->n) {
        mn_pages_trim(&w->kv, slot, text_of(q));
        uint32_t n = 1 + below(w, MN_MIN(q->n - q->stored, 700u));
        n = mn_state_chunk(&w->kv, slot, q->stored, n, q->n);
        reserve(w, slot, q->stored + n);
        step(w, slot, n, n, true);
        q->stored += n;
        complete(w, below(w, 3));
    }
}

static void go_back(world *w, uint32_t slot, uint32_t n) {
    sequence *q = &w->seq[slot];
    q->stored = mn_state_settle(&w->kv, slot, n);
    assert_true(q->stored <= n);
    w->n_back += n - q->stored;
}

/* Draws n ids. The host learns each of them `ahead` steps later: as many rows are enqueued behind
 * the last one, which the device leaves out. */
static void draw(world *w, uint32_t slot, uint32_t n, uint32_t ahead) {
    sequence *q = &w->seq[slot];
    feed(w, slot);
    uint32_t drawn = q->n;                        /* tokens that the device knows */
    q->tokens[drawn++] = (int32_t)below(w, 1000); /* by the last row of the prompt */
    for (uint32_t i = 0; i + 1 < n + ahead; i++) {
        const bool live = i + 1 < n;
        reserve(w, slot, q->stored + 1);
        step(w, slot, 1, live, false);
        q->stored++;
        if (live)
            q->tokens[drawn++] = (int32_t)below(w, 1000);
        if (i >= ahead && i + 1 < n)
            q->n++;
        complete(w, below(w, 3));
        mn_pages_trim(&w->kv, slot, text_of(q));
    }
    q->n = drawn;
    go_back(w, slot, q->n - 1);
}

/* A round: the last id and n drafts, of which the first `held` are drawn; then what is computed
 * again. */
static void verify(world *w, uint32_t slot, uint32_t n, uint32_t held) {
    sequence *q = &w->seq[slot];
    for (uint32_t i = 0; i < n; i++)
        q->tokens[q->n + i] = (int32_t)below(w, 1000);
    mn_state_keep(&w->kv, slot, true);
    reserve(w, slot, q->stored + 1 + n);
    step(w, slot, n + 1, n + 1, true);
    q->stored += n + 1;
    q->n += held;
    q->tokens[q->n++] = (int32_t)below(w, 1000);
    go_back(w, slot, q->n - 1);
    const uint32_t again = q->n - 1 - q->stored;
    if (held < n)
        assert_int_equal(again, held + 1); /* the state in front of the round was kept */
    else
        assert_int_equal(again, 0);
    if (again) {
        reserve(w, slot, q->stored + again);
        step(w, slot, again, again, true);
        q->stored += again;
    }
    complete(w, below(w, 2));
}

static void end(world *w, uint32_t slot) {
    sequence *q = &w->seq[slot];
    mn_pages_drop(&w->kv, slot, text_of(q));
    q->used = false;
    complete(w, below(w, 3));
}

/* Pages that slots and nodes hold are as many as are not free. */
static void count_pages(world *w) {
    const mn_page_pool *p = &w->kv.pools[STATE];
    uint32_t n_held = 0;
    for (uint32_t i = 0; i < N_STATES; i++)
        n_held += p->refs[i] > 0;
    assert_int_equal(p->n_free + p->n_kept + p->n_limbo + n_held, N_STATES);
}

/* ---- tests ----------------------------------------------------------------------------------- */
static void test_random(void **state) {
    world *w = *state;
    for (uint32_t i = 0; i < 3000; i++) {
        const uint32_t slot = below(w, N_SEQ);
        sequence *q = &w->seq[slot];
        if (!q->used) {
            begin(w, slot, below(w, 3) > 0, 1 + below(w, 2500));
            feed(w, slot);
        } else if (q->n + 60 > N_CTX || !below(w, 6)) {
            end(w, slot);
        } else if (below(w, 2)) {
            draw(w, slot, 1 + below(w, 20), below(w, 4));
            while (below(w, 3)) {
                const uint32_t n = 1 + below(w, 6);
                if (q->n + n + 2 < N_CTX)
                    verify(w, slot, n, below(w, n + 1));
            }
        } else {
            const uint32_t keep = 1 + below(w, q->n);
            const uint32_t reach = mn_kv_reach(&w->kv, slot, MN_MIN(q->stored, keep));
            assert_int_equal(mn_pages_cut(&w->kv, slot, reach, NULL), MN_OK);
            q->n = keep;
            q->stored = reach;
            feed(w, slot);
        }
        count_pages(w);
    }
    for (uint32_t slot = 0; slot < N_SEQ; slot++)
        if (w->seq[slot].used)
            end(w, slot);
    complete(w, 0);
    assert_int_equal(w->kv.pools[STATE].n_free + w->kv.pools[STATE].n_kept, N_STATES);
    assert_true(w->n_taken > 10000);
    print_message("%u tokens taken, %u computed again; %u states went to the host, %u came back\n",
                  w->n_taken, w->n_back, (unsigned)w->kv.host.n_out, (unsigned)w->kv.host.n_back);
    assert_true(!w->kv.host.n == !w->kv.host.n_back);
    mn_kv_close(&w->kv);
    mn_kv_reopen(&w->kv);
    assert_int_equal(w->kv.pools[STATE].n_free, N_STATES);
    assert_int_equal(w->kv.host.n_used, 0);
}

/* A prompt is computed up to its last block, so that the next turn begins there. */
static void test_turns(void **state) {
    world *w = *state;
    sequence *q = &w->seq[0];
    begin(w, 0, true, 300);
    feed(w, 0);
    draw(w, 0, 20, 2);
    const sequence before = *q;
    end(w, 0);
    complete(w, 0);
    memcpy(q->tokens, before.tokens, sizeof q->tokens);
    q->n = before.n + 30;
    q->stored = 0;
    mn_kv_begin(&w->kv, 1, true, 0, 0);
    memcpy(&w->seq[1], q, sizeof *q);
    assert_int_equal(mn_prefix_take(&w->kv, 1, text_of(q)), 299 / PAGE * PAGE);
}

/* A fork begins with the state of the other, which goes on beside it. */
static void test_fork(void **state) {
    world *w = *state;
    begin(w, 0, false, 100);
    feed(w, 0);
    memcpy(&w->seq[1], &w->seq[0], sizeof w->seq[1]);
    mn_kv_begin(&w->kv, 1, false, 0, 0);
    mn_snapshot s;
    assert_int_equal(mn_kv_reach(&w->kv, 0, 100), 100);
    assert_int_equal(mn_snapshot_take(&w->kv, 0, 100, &s, NULL), MN_OK);
    assert_int_equal(s.group[STATE].hi, 1);
    mn_state_begin(&w->kv, 1, 100, s.group[STATE].pages[0]);
    draw(w, 0, 5, 0);
    draw(w, 1, 9, 1);
    assert_int_equal(w->kv.slots[0].states[w->kv.slots[0].n_states - 1].position, 104);
    mn_snapshot_free(&w->kv, &s);
    count_pages(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random, setup_host, teardown),
        cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
    };
    return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
