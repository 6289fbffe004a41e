/* test_pool.c -- the thread pool: every task once, all at the same time, callers in turn. */
#include "unit.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

typedef struct {
    _Atomic uint32_t count[16], arrived, mistakes;
    uint32_t n;
} tally;

static void count(void *arg, uint32_t i, uint32_t n) {
    tally *t = arg;
    atomic_fetch_add(&t->count[i], 1);
    if (n != t->n)
        atomic_fetch_add(&t->mistakes, 1);
}

/* Returns only when all tasks are inside. */
static void meet(void *arg, uint32_t i, uint32_t n) {
    tally *t = arg;
    (void)i;
    atomic_fetch_add(&t->arrived, 1);
    while (atomic_load(&t->arrived) < n)
        sched_yield();
}

static void every_task_once(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 8; workers++) {
        mn_pool *pool;
        assert_int_equal(mn_pool_create(workers, &pool, NULL), MN_OK);
        assert_int_equal(mn_pool_workers(pool), workers);
        for (uint32_t run = 0; run < 300; run++) {
            tally t = {.n = run % workers + 1};
            assert_int_equal(mn_pool_run(pool, t.n, count, &t), MN_OK);
            for (uint32_t i = 0; i < 16; i++)
                assert_int_equal(t.count[i], i < t.n);
            assert_int_equal(t.mistakes, 0);
            if (run % 100 == 50)
                usleep(1000); /* long enough for the workers to fall asleep */
        }
        assert_int_equal(mn_pool_run(pool, 0, count, NULL), MN_OK);
        assert_int_equal(mn_pool_run(pool, workers + 1, count, NULL), MN_INVALID);
        mn_pool_free(pool);
    }
    mn_pool_free(NULL);
}

static void all_at_once(void **state) {
    (void)state;
    mn_pool *pool;
    assert_int_equal(mn_pool_create(6, &pool, NULL), MN_OK);
    for (int run = 0; run < 100; run++) {
        tally t = {0};
        assert_int_equal(mn_pool_run(pool, 6, meet, &t), MN_OK);
    }
    mn_pool_free(pool);
}

typedef struct {
    mn_pool *pool;
    _Atomic int inside, overlaps;
    uint64_t sum;
} shared;

static void alone(void *arg, uint32_t i, uint32_t n) {
    shared *s = arg;
    (void)n;
    if (i)
        return;
    if (atomic_fetch_add(&s->inside, 1))
        atomic_fetch_add(&s->overlaps, 1);
    s->sum++; /* plain: safe only if callers are serialised */
    atomic_fetch_sub(&s->inside, 1);
}

static void *caller(void *arg) {
    shared *s = arg;
    for (int i = 0; i < 500; i++)
        mn_pool_run(s->pool, (uint32_t)i % 3 + 1, alone, s);
    return NULL;
}

static void callers_in_turn(void **state) {
    (void)state;
    shared s = {0};
    pthread_t threads[4];
    assert_int_equal(mn_pool_create(3, &s.pool, NULL), MN_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, caller, &s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(s.overlaps, 0);
    assert_int_equal(s.sum, 2000);
    mn_pool_free(s.pool);
}

typedef struct {
    mn_pool *pool;
    _Atomic mn_status status[2];
} nested;

static void inner(void *arg, uint32_t i, uint32_t n) {
    nested *t = arg;
    atomic_store(&t->status[i], mn_pool_run(t->pool, n, inner, arg));
}

static void limits(void **state) {
    (void)state;
    mn_error err = MN_ERROR_INIT;
    mn_pool *pool = NULL;
    assert_int_equal(mn_pool_create(100000, &pool, &err), MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "100000"));
    assert_int_equal(mn_pool_create(0, &pool, &err), MN_OK);
    assert_true(mn_pool_workers(pool) >= 1);
    mn_pool_free(pool);
    for (int k = 1; k <= 2; k++) {
        mn_alloc_fail_after(k);
        assert_int_equal(mn_pool_create(2, &pool, &err), MN_OUT_OF_MEMORY);
    }
    mn_alloc_fail_after(-1);
    nested t = {0};
    assert_int_equal(mn_pool_create(2, &t.pool, &err), MN_OK);
    assert_int_equal(mn_pool_run(t.pool, 2, inner, &t), MN_OK);
    /* not from inside a task */
    assert_true(t.status[0] == MN_INVALID && t.status[1] == MN_INVALID);
    mn_pool_free(t.pool);
}

/* ---- teams ----------------------------------------------------------------------------------- */
enum { TEAM_PHASES = 60, TEAM_CHUNKS = 40 };
typedef struct {
    mn_pool *pool;
    atomic_uint runs[TEAM_PHASES][TEAM_CHUNKS], done[TEAM_PHASES], wrong;
    atomic_uint busy[64]; /* by thread: a chunk is running */
} team_record;

/* Every third phase has no chunk. */
static uint32_t team_size(uint32_t phase) {
    return phase % 3 == 2 ? 0 : 1 + phase * 7 % TEAM_CHUNKS;
}
static uint32_t team_chunks(void *arg, uint32_t phase) {
    team_record *t = arg;
    for (uint32_t p = 0; p < phase; p++)
        t->wrong += atomic_load(&t->done[p]) != team_size(p);
    return team_size(phase);
}
static void team_run(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread) {
    team_record *t = arg;
    t->wrong += thread >= mn_pool_workers(t->pool) || chunk >= team_size(phase);
    t->wrong += atomic_exchange(&t->busy[thread], 1) != 0;
    if (phase)
        t->wrong += atomic_load(&t->done[phase - 1]) != team_size(phase - 1);
    t->runs[phase][chunk]++;
    t->done[phase]++;
    atomic_store(&t->busy[thread], 0);
}

static uint32_t too_many(void *arg, uint32_t phase) {
    (void)arg;
    return phase ? 1u << 24 : 1;
}
static void team_inside(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread) {
    team_record *t = arg;
    mn_team team = {sizeof team, 1, t, team_chunks, team_run};
    (void)phase, (void)chunk, (void)thread;
    t->wrong += mn_pool_team(t->pool, &team) != MN_INVALID;
}

/* Every chunk runs once, no phase begins before the one before it is done, a thread does one chunk
 * at a time; with more threads than processors, so that some come late or never. */
static void in_phases(void **state) {
    (void)state;
    static const uint32_t threads[] = {1, 2, 5, 16};
    for (size_t k = 0; k < MN_COUNT(threads); k++) {
        mn_pool *pool = NULL;
        assert_int_equal(mn_pool_create(threads[k], &pool, NULL), MN_OK);
        for (int round = 0; round < 30; round++) {
            team_record *t = calloc(1, sizeof *t);
            assert_non_null(t);
            t->pool = pool;
            mn_team team = {sizeof team, TEAM_PHASES, t, team_chunks, team_run};
            assert_int_equal(mn_pool_team(pool, &team), MN_OK);
            for (uint32_t p = 0; p < TEAM_PHASES; p++)
                for (uint32_t c = 0; c < TEAM_CHUNKS; c++)
                    assert_int_equal(t->runs[p][c], c < team_size(p));
            mn_team bad = {sizeof bad, 2, t, too_many, team_inside};
            assert_int_equal(mn_pool_team(pool, &bad), MN_INVALID);
            bad.size = 8;
            assert_int_equal(mn_pool_team(pool, &bad), MN_INVALID);
            assert_int_equal(t->wrong, 0);
            free(t);
        }
        mn_pool_free(pool);
    }
}

/* ---- how many threads ------------------------------------------------------------------------ */

/* Makes what is missing of the folders below root. */
static void put_file(const char *root, const char *folder, const char *name, const char *text) {
    char part[96];
    snprintf(part, sizeof part, "%s/", folder);
    for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(unit_path(root, part), 0755);
        *slash = '/';
    }
    unit_write(unit_path(unit_path(root, folder), name), text, strlen(text));
}

/* Quotas of v2 and v1, of the group or one above it, in whole processors; a container that sees its
 * group as the root; files that say nothing. */
static void quotas(void **state) {
    static const struct {
        const char *folder;
        const char *name;
        const char *text;
        uint32_t quota; /* once this file is there, too */
    } files[] = {
        {"proc/self", "cgroup", "0::/a/b\n", 0},
        {"sys/fs/cgroup/a/b", "cpu.max", "max 100000\n", 0},
        {"sys/fs/cgroup/a", "cpu.max", "390000 100000\n", 3},
        {"sys/fs/cgroup/a/b", "cpu.max", "50000 100000\n", 1},
        {"proc/self", "cgroup", "5:memory:/a\n4:cpu,cpuacct:/x\n0::/none\n", 0},
        {"sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "-1\n", 0},
        {"sys/fs/cgroup/cpu", "cpu.cfs_period_us", "100000\n", 0},
        {"sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "250000\n", 2},
    };
    const char *root = *state;
    assert_int_equal(mn_cpus_read(root).quota, 0);
    for (size_t i = 0; i < MN_COUNT(files); i++) {
        put_file(root, files[i].folder, files[i].name, files[i].text);
        assert_int_equal(mn_cpus_read(root).quota, files[i].quota);
    }
}

/* Puts processors 2 i and 2 i + 1 on one core each, where this process has one of them; how many
 * such cores there are. */
static uint32_t put_cores(const char *root, const cpu_set_t *may) {
    uint32_t n = 0;
    for (int i = 0; i < CPU_SETSIZE; i += 2) {
        char folder[96];
        char list[32];
        if (!CPU_ISSET(i, may) && !CPU_ISSET(i + 1, may))
            continue;
        snprintf(list, sizeof list, i % 4 ? "%d-%d\n" : "%d,%d\n", i, i + 1);
        snprintf(folder, sizeof folder, "sys/devices/system/cpu/cpu%d/topology", i);
        put_file(root, folder, "thread_siblings_list", list);
        snprintf(folder, sizeof folder, "sys/devices/system/cpu/cpu%d/topology", i + 1);
        put_file(root, folder, "thread_siblings_list", list);
        n++;
    }
    return n;
}

/* Two processors of one core count once, those whose core is unknown for themselves. */
static void cores(void **state) {
    const char *root = *state;
    const mn_cpus all = mn_cpus_read(root);
    cpu_set_t may;
    if (sched_getaffinity(0, sizeof may, &may))
        skip(); /* more processors than such a set has */
    assert_int_equal(all.processors, CPU_COUNT(&may));
    assert_int_equal(all.cores, all.processors);
    const uint32_t pairs = put_cores(root, &may);
    const mn_cpus halves = mn_cpus_read(root);
    assert_int_equal(halves.processors, all.processors);
    assert_int_equal(halves.cores, pairs);
    assert_int_equal(mn_cpus_default(&(mn_cpus){8, 4, 0}), 4);
    assert_int_equal(mn_cpus_default(&(mn_cpus){8, 4, 2}), 2);
    assert_int_equal(mn_cpus_default(&(mn_cpus){8, 4, 6}), 4);
}

/* ---- more threads than processors ------------------------------------------------------------ */

typedef struct {
    atomic_uint threads; /* bit by thread that has run a chunk */
    atomic_uint sum;
} crowd;
static uint32_t crowd_chunks(void *arg, uint32_t phase) {
    (void)arg;
    return phase % 2 ? 1 : 8;
}
static void crowd_run(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread) {
    crowd *c = arg;
    (void)phase;
    (void)chunk;
    atomic_fetch_or(&c->threads, 1u << thread);
    atomic_fetch_add(&c->sum, 1);
}

/* Of 16 threads on fewer processors only as many as those take part: the others would take their
 * time. All of them run where a call asks for all. */
static void no_more_than_processors(void **state) {
    (void)state;
    mn_pool *pool = NULL;
    const uint32_t processors = mn_cpus_read("").processors;
    assert_int_equal(mn_pool_create(16, &pool, NULL), MN_OK);
    crowd c = {0};
    const mn_team team = {sizeof team, 3000, &c, crowd_chunks, crowd_run};
    assert_int_equal(mn_pool_team(pool, &team), MN_OK);
    assert_int_equal(c.sum, 1500 * 9);
    if (processors < 16)
        assert_int_equal(c.threads >> processors, 0);
    assert_int_equal(mn_pool_workers(pool), 16);
    tally t = {0};
    assert_int_equal(mn_pool_run(pool, 16, meet, &t), MN_OK);
    mn_pool_free(pool);
}

/* ---- beside other work ----------------------------------------------------------------------- */

static atomic_bool burns;
static void *burn(void *arg) {
    while (atomic_load(&burns))
        sched_yield();
    return arg;
}
static uint32_t late_chunks(void *arg, uint32_t phase) {
    (void)arg;
    return phase % 3 ? 1 : 4;
}
/* Some chunks take long and are descheduled, so that others fall asleep, and the team narrows. */
static void late_run(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread) {
    crowd *c = arg;
    (void)thread;
    atomic_fetch_add(&c->sum, 1);
    if (chunk != phase / 3 % 4)
        return;
    const uint64_t until = mn_now_ns() + 300000;
    while (mn_now_ns() < until)
        sched_yield();
}

/* A team that gets narrower in the middle of its work comes to its end. */
static void narrower(void **state) {
    (void)state;
    enum { BURNERS = 4, PHASES = 300 };
    pthread_t burners[BURNERS];
    mn_pool *pool = NULL;
    atomic_store(&burns, true);
    for (int i = 0; i < BURNERS; i++)
        assert_int_equal(pthread_create(&burners[i], NULL, burn, NULL), 0);
    assert_int_equal(mn_pool_create(4, &pool, NULL), MN_OK);
    for (int round = 0; round < 4; round++) {
        crowd c = {0};
        const mn_team team = {sizeof team, PHASES, &c, late_chunks, late_run};
        assert_int_equal(mn_pool_team(pool, &team), MN_OK);
        assert_int_equal(c.sum, PHASES * 2);
    }
    atomic_store(&burns, false);
    for (int i = 0; i < BURNERS; i++)
        pthread_join(burners[i], NULL);
    mn_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(callers_in_turn),
        cmocka_unit_test(limits),
        cmocka_unit_test(in_phases),
        cmocka_unit_test_setup_teardown(quotas, unit_setup, unit_teardown),
        cmocka_unit_test_setup_teardown(cores, unit_setup, unit_teardown),
        cmocka_unit_test(no_more_than_processors),
        cmocka_unit_test(narrower)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
