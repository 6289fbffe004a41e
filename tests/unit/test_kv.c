/* test_kv.c -- the memory of sequences without a device: an engine that is nothing but its sizes.
 * Pages go from free to held, kept, limbo and free again as kv.h draws it, sequences share blocks
 * and snapshots, and nothing is held twice or lost. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "session/kv/kv.h"
#include "session/kv/pool.h"
#include <stdlib.h>
#include <string.h>

enum { N_SEQ = 4, N_CTX = 64, ROW = N_CTX / 4, TOTAL = 24, WINDOW = 8 };

typedef struct {
    mn_model_graph graph;
    mn_engine engine;
    mn_step_clock clock;
    int32_t packed[2 * N_SEQ * ROW];
    int32_t tokens[N_CTX];
    mn_kv kv;
} world;

/* Two groups with pages of 4: one sees all positions, the other a window. */
static int setup(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->graph.hp.n_kv = 2;
    w->graph.hp.kv[1].window = WINDOW;
    w->engine.graph = &w->graph;
    w->engine.row_pages = ROW;
    for (uint32_t i = 0; i < 2; i++) {
        w->engine.group[i] = (mn_engine_group){
            .page_tokens = 4, .row = ROW, .n_pages = ROW, .n_total = TOTAL, .n_own = i ? 3 : ROW};
        w->engine.in.pages[i] = i * N_SEQ * ROW;
    }
    for (int32_t i = 0; i < N_CTX; i++)
        w->tokens[i] = 100 + i;
    assert_int_equal(mn_kv_init(&w->kv, N_SEQ, N_CTX, &w->clock, NULL), MN_OK);
    assert_int_equal(mn_kv_place(&w->kv, &w->engine, w->packed, NULL), MN_OK);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    mn_kv_free(&w->kv);
    free(w);
    return 0;
}

static mn_memory_text text_of(const world *w, uint32_t n_stored) {
    return (mn_memory_text){w->tokens, N_CTX, n_stored};
}

static int32_t page(const world *w, uint32_t group, uint32_t slot, uint32_t entry) {
    return mn_tables_row(&w->kv, group, slot)[entry];
}

/* Free, kept and in limbo of the group; all others are held. */
static void expect(const world *w, uint32_t group, uint32_t n_free, uint32_t n_kept,
                   uint32_t n_limbo) {
    const mn_page_pool *p = &w->kv.pools[group];
    assert_int_equal(p->n_free, n_free);
    assert_int_equal(p->n_kept, n_kept);
    assert_int_equal(p->n_limbo, n_limbo);
}

/* A page that is given back is free when the steps that were enqueued by then are complete. */
static void test_limbo(void **state) {
    world *w = *state;
    mn_kv_begin(&w->kv, 0, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 10));
    expect(w, 0, TOTAL - 3, 0, 0);
    w->clock.enqueued = 2;
    w->clock.completed = 1;
    mn_pages_drop(&w->kv, 0, text_of(w, 10));
    expect(w, 0, TOTAL - 3, 0, 3);
    assert_int_equal(page(w, 0, 0, 0), -1);
    assert_false(mn_pages_reserve(&w->kv, 1, (TOTAL - 2) * 4));
    assert_true(mn_pages_will_come(&w->kv, 1, N_CTX));
    w->clock.completed = 2;
    mn_page_pools_settle(&w->kv);
    expect(w, 0, TOTAL, 0, 0);
}

/* A window group gives back what no row to come sees, and a sequence cannot go back behind that. */
static void test_window(void **state) {
    world *w = *state;
    mn_kv_begin(&w->kv, 0, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 32));
    assert_int_equal(mn_kv_reach(&w->kv, 0, 5), 5);
    mn_pages_trim(&w->kv, 0, text_of(w, 32));
    expect(w, 0, TOTAL - 8, 0, 0);
    expect(w, 1, TOTAL - 2, 0, 0); /* positions 25 to 31 are seen: two pages */
    assert_int_equal(mn_kv_reach(&w->kv, 0, 32), 32);
    assert_int_equal(mn_kv_reach(&w->kv, 0, 20), 0);
    assert_int_equal(mn_pages_cut(&w->kv, 0, 30, NULL), MN_OK);
    expect(w, 0, TOTAL - 8, 0, 0);
    assert_int_equal(mn_pages_cut(&w->kv, 0, 28, NULL), MN_OK);
    expect(w, 0, TOTAL - 7, 0, 0);
}

/* What a sequence has stored is kept behind its end, used again, evicted when room is needed. */
static void test_prefix(void **state) {
    world *w = *state;
    const mn_memory_text text = text_of(w, 16);
    mn_kv_begin(&w->kv, 0, true, 7, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 16));
    const int32_t first = page(w, 0, 0, 0);
    mn_pages_drop(&w->kv, 0, text);
    expect(w, 0, TOTAL - 4, 4, 0);
    mn_kv_begin(&w->kv, 1, true, 7, 0);
    assert_int_equal(mn_prefix_take(&w->kv, 1, text), 16);
    assert_int_equal(page(w, 0, 1, 0), first);
    expect(w, 0, TOTAL - 4, 0, 0);
    mn_kv_begin(&w->kv, 2, true, 8, 0); /* another salt */
    assert_int_equal(mn_prefix_take(&w->kv, 2, text), 0);
    mn_pages_drop(&w->kv, 1, text);
    assert_true(mn_pages_reserve(&w->kv, 2, N_CTX));
    expect(w, 0, TOTAL - ROW - 4, 4, 0);
    mn_kv_begin(&w->kv, 3, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 3, (TOTAL - ROW) * 4));
    expect(w, 0, 0, 0, 0);
    mn_kv_begin(&w->kv, 1, true, 7, 0);
    assert_int_equal(mn_prefix_take(&w->kv, 1, text), 0);
}

/* After a step failed nothing that the cache knew is used again. */
static void test_distrust(void **state) {
    world *w = *state;
    const mn_memory_text text = text_of(w, 16);
    mn_kv_begin(&w->kv, 0, true, 7, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 16));
    mn_pages_trim(&w->kv, 0, text); /* which makes them known */
    mn_kv_close(&w->kv);
    mn_pages_drop(&w->kv, 0, text);
    mn_kv_reopen(&w->kv);
    expect(w, 0, TOTAL, 0, 0);
    expect(w, 1, TOTAL, 0, 0);
    mn_kv_begin(&w->kv, 1, true, 7, 0);
    assert_int_equal(mn_prefix_take(&w->kv, 1, text), 0);
}

/* A snapshot outlives its sequence; slots that begin with it share whole pages and copy the
 * last. */
static void test_snapshot(void **state) {
    world *w = *state;
    mn_snapshot s;
    mn_kv_begin(&w->kv, 0, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 8));
    const int32_t whole = page(w, 0, 0, 0);
    const int32_t part = page(w, 0, 0, 1);
    assert_int_equal(mn_snapshot_take(&w->kv, 0, 6, &s, NULL), MN_OK);
    mn_pages_drop(&w->kv, 0, text_of(w, 8));
    expect(w, 0, TOTAL - 2, 0, 0);
    for (uint32_t slot = 1; slot < 3; slot++) {
        mn_kv_begin(&w->kv, slot, false, 0, 0);
        assert_int_equal(mn_snapshot_restore(&w->kv, &s, slot, NULL), MN_OK);
        assert_int_equal(page(w, 0, slot, 0), whole);
        assert_int_not_equal(page(w, 0, slot, 1), part);
        expect(w, 0, TOTAL - 2 - slot, 0, 0);
    }
    mn_snapshot_free(&w->kv, &s);
    expect(w, 0, TOTAL - 3, 0, 0); /* a page that both hold, and a copy for each */
    mn_pages_drop(&w->kv, 1, text_of(w, 6));
    mn_pages_drop(&w->kv, 2, text_of(w, 6));
    expect(w, 0, TOTAL, 0, 0);
    expect(w, 1, TOTAL, 0, 0);
}

/* With another engine it remembers nothing: its pages are not given back to the new one. */
static void test_snapshot_lost(void **state) {
    world *w = *state;
    mn_snapshot s;
    mn_kv_begin(&w->kv, 0, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 8));
    assert_int_equal(mn_snapshot_take(&w->kv, 0, 8, &s, NULL), MN_OK);
    mn_kv_forget(&w->kv, 0);
    mn_kv_unplace(&w->kv);
    assert_int_equal(mn_kv_place(&w->kv, &w->engine, w->packed, NULL), MN_OK);
    assert_int_equal(mn_snapshot_restore(&w->kv, &s, 1, NULL), MN_INVALID);
    mn_kv_begin(&w->kv, 2, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 2, 8)); /* the same pages */
    mn_snapshot_free(&w->kv, &s);
    expect(w, 0, TOTAL - 2, 0, 0);
}

/* No page for the copy: the slot has what mn_pages_drop gives back. */
static void test_snapshot_without_room(void **state) {
    world *w = *state;
    mn_snapshot s;
    mn_kv_begin(&w->kv, 0, false, 0, 0);
    mn_kv_begin(&w->kv, 1, false, 0, 0);
    mn_kv_begin(&w->kv, 2, false, 0, 0);
    assert_true(mn_pages_reserve(&w->kv, 0, 6));
    assert_true(mn_pages_reserve(&w->kv, 2, (TOTAL - 2) * 4));
    assert_int_equal(mn_snapshot_take(&w->kv, 0, 6, &s, NULL), MN_OK);
    assert_int_equal(mn_snapshot_restore(&w->kv, &s, 1, NULL), MN_OUT_OF_MEMORY);
    mn_pages_drop(&w->kv, 1, text_of(w, 6));
    mn_snapshot_free(&w->kv, &s);
    mn_pages_drop(&w->kv, 0, text_of(w, 6));
    expect(w, 0, 2, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_limbo, setup, teardown),
        cmocka_unit_test_setup_teardown(test_window, setup, teardown),
        cmocka_unit_test_setup_teardown(test_prefix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_distrust, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snapshot_without_room, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
