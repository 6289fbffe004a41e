/* test_opencl.c -- the OpenCL plugin's table over the stub of a driver (opencl.c), which counts and
 * refuses calls in this process: what a step that failed leaves behind, handles that come again,
 * programs from the cache, weights and caches in several buffers. Nothing is computed. */
#include "../kernels/harness.h"
#include "../kernels/host.h"
#include "case_plan.h"
#include "opencl_stub.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mn_error error = {sizeof error, 0, 0, ~0u, 0, {0}};

/* A store and an attention of each of two layers, which are launches of several kernels, and a
 * product: the last two are in one list. */
static op_case *layers(uint32_t dtype) {
    enum { ROWS = 2, K = 32, N = 8 };
    static const float zero[N * K];
    const op_shape shape = {.rows = ROWS, .n_head = 4, .n_head_kv = 2, .dim = 32, .past = 3};
    const op_shape both[CASE_GROUPS] = {shape, shape};
    _Alignas(16) char packed[sizeof zero];
    op_case *c = case_groups(both, 2, 1);
    assert_non_null(c);
    case_quantise(dtype, zero, N * K, packed);
    const int32_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, ROWS, K, NULL, "x");
    const int32_t w = case_mat(c, MN_ROLE_WEIGHT, dtype, N, K, packed, "w");
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, ROWS, N, NULL, "y");
    case_node(c, MN_OP_LINEAR, (const int32_t[]){x, w, -1}, 3, &y, 1, NULL, 0);
    assert_false(c->failed);
    return c;
}

typedef struct {
    h_plugin p;
    op_case *c;
    case_plan *plan;
} world;

/* Opens the device, with lists of operations, and compiles the case. */
static void open_world(world *w, uint32_t dtype) {
    memset(w, 0, sizeof *w);
    opencl_stub = (opencl_stub_state){.max_alloc = 1 << 20};
    h_host_option("step_groups", "1");
    assert_true(h_open(&w->p, OPENCL));
    w->c = layers(dtype);
    const case_on here = {.be = w->p.be, .dev = w->p.dev, .queue = w->p.queue};
    assert_int_equal(case_open(&here, w->c, MN_PRECISION_EXACT, &w->plan, &error), MN_OK);
}

static void close_world(world *w) {
    case_close(w->plan);
    case_free(w->c);
    h_close(&w->p);
    h_host_option(NULL, NULL);
}

static mn_status step(world *w) {
    return case_step(w->plan, w->c, &error);
}

/* Whichever kernel a step loses, the next one has the operations of a step and no more. */
static void failed_step(void **state) {
    world w;
    (void)state;
    open_world(&w, MN_F32);
    assert_int_equal(step(&w), MN_OK);
    const int32_t n_ops = opencl_stub.n_ops;
    const uint32_t kernels = opencl_stub.kernels;
    assert_int_equal(n_ops, 2);
    for (uint32_t k = 1; k <= kernels; k++) {
        opencl_stub.fails_in = k;
        assert_int_equal(step(&w), MN_DEVICE_LOST);
        opencl_stub.kernels = 0;
        assert_int_equal(step(&w), MN_OK);
        assert_int_equal(opencl_stub.kernels, kernels);
        assert_int_equal(opencl_stub.n_ops, n_ops);
    }
    close_world(&w);
}

/* Lists of two queues never run together: a queue that failed to enqueue one has not had its turn
 * and still waits for the other queue. */
static void failed_turn(void **state) {
    world w;
    (void)state;
    open_world(&w, MN_F32);
    assert_int_equal(step(&w), MN_OK);
    assert_int_equal(opencl_stub.barriers, 0);
    assert_int_equal(case_second_context(w.plan, &error), MN_OK);
    opencl_stub.fails_in = 2; /* the first list, behind a store */
    assert_int_equal(step(&w), MN_DEVICE_LOST);
    const uint32_t before = opencl_stub.barriers;
    assert_int_equal(step(&w), MN_OK);
    assert_int_equal(opencl_stub.barriers, before + 1);
    close_world(&w);
}

/* Called when memory is released: the same handle is bound again, and a step runs. */
static void take_again(void *arg, cl_mem mem) {
    world *w = arg;
    case_plan *p = w->plan;
    const uint32_t x = p->binding[0].tensor;
    opencl_stub.released = NULL;
    assert_int_equal(mn_usual_alloc(p->on.be, p->on.dev, 2 * p->guard + w->c->bytes[x],
                                    MN_MEM_DEVICE, &p->buffer[x], &error),
                     MN_OK);
    p->binding[0].buffer = p->buffer[x];
    assert_int_equal(p->on.be->context_bind(p->contexts[0], 0, p->binding, p->n_bindings,
                                            sizeof *p->binding, &error),
                     MN_OK);
    opencl_stub.watched = mem;
    opencl_stub.n_watched = 0;
    assert_int_equal(step(w), MN_OK);
    assert_true(opencl_stub.n_watched > 0);
}

/* A handle that comes again is another buffer: kernels get it anew, however early that is. */
static void handle_again(void **state) {
    world w;
    (void)state;
    open_world(&w, MN_F32);
    assert_int_equal(step(&w), MN_OK);
    opencl_stub.released = take_again;
    opencl_stub.arg = &w;
    w.p.be->buffer_free(w.plan->binding[0].buffer);
    assert_null(opencl_stub.released);
    close_world(&w);
}

/* Rows with a matrix of N rows of K, of a type. */
static op_case *product_of(uint32_t type, int64_t rows, int64_t N, int64_t K) {
    op_case *c = case_new();
    assert_non_null(c);
    const int32_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, rows, K, NULL, "x");
    const int32_t w = case_mat(c, MN_ROLE_WEIGHT, type, N, K, NULL, "w");
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, rows, N, NULL, "y");
    case_node(c, MN_OP_LINEAR, (const int32_t[]){x, w, -1}, 3, &y, 1, NULL, 0);
    return c;
}

/* One row with a matrix of N rows of K. */
static op_case *product(int64_t N, int64_t K) {
    return product_of(MN_F32, 1, N, K);
}

/* Prompts on a device that says that it multiplies matrices, by its smallest sub-groups if they
 * have 8 or 16 items; not those of a few rows, nor with f32. */
static void matrices(void **state) {
    static const struct {
        size_t sub_groups[2];
        uint32_t type;
        int64_t rows;
        size_t want; /* items of a sub-group; 0: another kernel */
    } cases[] = {{{8, 32}, MN_F16, 64, 8},  {{32, 16}, MN_Q4_K, 33, 16}, {{16, 32}, MN_F16, 32, 0},
                 {{16, 32}, MN_F32, 64, 0}, {{32, 64}, MN_F16, 64, 0},   {{0, 0}, MN_F16, 64, 0}};
    (void)state;
    h_host_option("shapes", "-1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h_plugin p;
        opencl_stub = (opencl_stub_state){0};
        memcpy(opencl_stub.sub_groups, cases[i].sub_groups, sizeof opencl_stub.sub_groups);
        assert_true(h_open(&p, OPENCL));
        op_case *c = product_of(cases[i].type, cases[i].rows, 40, 256);
        h_run(&p, c, MN_PRECISION_EXACT);
        assert_int_equal(opencl_stub.mad[0], cases[i].want);
        case_free(c);
        h_close(&p);
    }
    h_host_option(NULL, NULL);
}

/* A matrix of 2 MiB on a device whose buffers have 1 MiB: 128 rows of 16 KiB lie in three, each
 * with a kernel of its own. */
static void parts(void **state) {
    enum { N = 128, K = 4096 };
    h_plugin p;
    (void)state;
    opencl_stub = (opencl_stub_state){.max_alloc = 1 << 20};
    h_host_option("shapes", "-1");
    assert_true(h_open(&p, OPENCL));
    op_case *c = product(N, K);
    h_run(&p, c, MN_PRECISION_EXACT);
    assert_int_equal(opencl_stub.kernels, 3);
    case_free(c);
    h_close(&p);
    h_host_option(NULL, NULL);
}

/* The device states buffers of 1 MiB, which is 32 pages of the cache: 100 pages lie in four of
 * them, and what is copied between pages and read back is what it would be in one. */
static void cache_in_parts(void **state) {
    enum { PAGES = 100, MOST = 8 * 31 };
    world w;
    mn_memory_layout l = {.size = sizeof l};
    mn_buffer *kv;
    mn_buffer *host;
    void *map;
    (void)state;
    open_world(&w, MN_F32);
    const mn_backend *be = w.p.be;
    const case_on *on = &w.plan->on;
    assert_int_equal(be->memory_layout(on->dev, &w.plan->ask, 0, &l, &error), MN_OK);
    assert_int_equal(l.page_bytes, 32 << 10);
    const uint64_t bytes = PAGES * l.page_bytes;
    assert_int_equal(mn_usual_alloc(be, on->dev, bytes, MN_MEM_DEVICE, &kv, &error), MN_OK);
    assert_int_equal(mn_usual_alloc(be, on->dev, l.page_bytes, MN_MEM_HOST_PINNED, &host, &error),
                     MN_OK);
    assert_int_equal(be->map(host, &map, &error), MN_OK);
    uint8_t *page = map;
    mn_page_copy copies[] = {{5, 99, 64, 0}, {31, 32, 64, 0}, {64, 0, 64, 0}};
    assert_int_equal(be->memory_copy(on->queue, kv, &l, copies, 0, sizeof *copies, NULL, &error),
                     MN_OK);
    for (uint32_t i = 0; i < PAGES; i++) {
        memset(page, (int)i, l.page_bytes);
        assert_int_equal(be->write(on->queue, kv, i * l.page_bytes, page, l.page_bytes, &error),
                         MN_OK);
    }
    assert_int_equal(be->memory_copy(on->queue, kv, &l, copies, 3, sizeof *copies, NULL, &error),
                     MN_OK);
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t from = i;
        for (uint32_t k = 0; k < 3; k++)
            if (copies[k].dst_page == i)
                from = copies[k].src_page;
        assert_int_equal(
            be->read(on->queue, kv, i * l.page_bytes, host, 0, l.page_bytes, NULL, &error), MN_OK);
        assert_int_equal(page[0], from);
        assert_int_equal(page[l.page_bytes - 1], from);
    }
    be->buffer_free(kv);
    be->buffer_free(host);
    assert_int_equal(mn_usual_alloc(be, on->dev, MOST * l.page_bytes, MN_MEM_DEVICE, &kv, &error),
                     MN_OK);
    be->buffer_free(kv);
    assert_int_equal(
        mn_usual_alloc(be, on->dev, (MOST + 1) * l.page_bytes, MN_MEM_DEVICE, &kv, &error),
        MN_OUT_OF_MEMORY);
    assert_string_equal(
        error.msg, "a buffer of 7.8 MiB; the driver gives at most 1.0 at once; a cache of keys "
                   "and values may lie in 8 of them");
    close_world(&w);
}

/* A page is not divided. */
static void cache_of_large_pages(void **state) {
    world w;
    mn_memory_layout l = {.size = sizeof l};
    (void)state;
    open_world(&w, MN_F32);
    h_plugin small;
    opencl_stub.max_alloc = 16 << 10;
    assert_true(h_open(&small, OPENCL));
    assert_int_equal(small.be->memory_layout(small.dev, &w.plan->ask, 0, &l, &error),
                     MN_UNSUPPORTED);
    assert_string_equal(error.msg,
                        "a page of group 0 of the memory has 32.0 KiB; the driver gives at most "
                        "16.0 at once");
    h_close(&small);
    close_world(&w);
}

/* What is free, of a driver that tells it, else all but an eighth; the option bounds both. */
static void memory(void **state) {
    static const struct {
        const char *mode;
        const char *bound;
        uint64_t free;
    } cases[] = {{"good", "0", UINT64_C(7) << 29},
                 {"amd", "0", UINT64_C(1) << 30},
                 {"good", "96", 96 << 20},
                 {"amd", "96", 96 << 20}};
    (void)state;
    opencl_stub = (opencl_stub_state){0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h_plugin p;
        uint64_t free_bytes = 0;
        uint64_t total = 0;
        setenv("OPENCL_STUB", cases[i].mode, 1);
        h_host_option("memory_mib", cases[i].bound);
        assert_true(h_open(&p, OPENCL));
        assert_int_equal(p.be->device_memory(p.dev, &free_bytes, &total, &error), MN_OK);
        assert_int_equal(free_bytes, cases[i].free);
        assert_int_equal(total, UINT64_C(1) << 32);
        h_close(&p);
    }
    h_host_option(NULL, NULL);
    unsetenv("OPENCL_STUB");
}

/* ---- command buffers ------------------------------------------------------------------------- */
/* As open_world, with a kernel for each operation; a step has run, and the next ones are
 * prepared. */
static void open_commands(world *w) {
    memset(w, 0, sizeof *w);
    opencl_stub.has_commands = true;
    assert_true(h_open(&w->p, OPENCL));
    w->c = layers(MN_F32);
    const case_on here = {.be = w->p.be, .dev = w->p.dev, .queue = w->p.queue};
    assert_int_equal(case_open(&here, w->c, MN_PRECISION_EXACT, &w->plan, &error), MN_OK);
    assert_int_equal(step(w), MN_OK);
    assert_int_equal(mn_usual_prepare(w->p.be, w->plan->contexts[0], 0, w->c->value, &error),
                     MN_OK);
    opencl_stub.kernels = 0;
}

/* A step that is like the two before it is one call of the driver; not so once a buffer went. */
static void commands(void **state) {
    world w;
    (void)state;
    opencl_stub = (opencl_stub_state){0};
    open_commands(&w);
    assert_int_equal(step(&w), MN_OK);
    const uint32_t kernels = opencl_stub.kernels;
    assert_true(kernels > 3);
    assert_int_equal(step(&w), MN_OK);
    assert_int_equal(opencl_stub.kernels, 2 * kernels);
    assert_int_equal(opencl_stub.recorded, kernels);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(step(&w), MN_OK);
        assert_int_equal(opencl_stub.kernels, 2 * kernels);
        assert_int_equal(opencl_stub.replays, i);
    }
    mn_buffer *other;
    assert_int_equal(mn_usual_alloc(w.p.be, w.p.dev, 64, MN_MEM_DEVICE, &other, &error), MN_OK);
    w.p.be->buffer_free(other);
    for (uint32_t i = 3; i <= 4; i++) {
        assert_int_equal(step(&w), MN_OK);
        assert_int_equal(opencl_stub.kernels, i * kernels);
    }
    assert_int_equal(step(&w), MN_OK);
    assert_int_equal(opencl_stub.replays, 4);
    close_world(&w);
}

/* A driver that makes no command buffer after all gets its kernels one by one. */
static void commands_refused(void **state) {
    world w;
    (void)state;
    opencl_stub = (opencl_stub_state){.refuses_commands = true};
    open_commands(&w);
    assert_int_equal(step(&w), MN_OK);
    const uint32_t kernels = opencl_stub.kernels;
    for (uint32_t i = 2; i <= 4; i++) {
        assert_int_equal(step(&w), MN_OK);
        assert_int_equal(opencl_stub.kernels, i * kernels);
    }
    assert_int_equal(opencl_stub.replays, 0);
    close_world(&w);
}

/* ---- a host with a cache --------------------------------------------------------------------- */
enum { ENTRIES = 64, MOST_NAME = 1200 };
static struct {
    char name[MOST_NAME];
    char stamp[MOST_NAME];
    void *data;
    uint64_t bytes;
} entries[ENTRIES];
static uint32_t n_entries;
static uint32_t n_told; /* lines of progress */

static uint32_t entry_of(mn_str name) {
    for (uint32_t i = 0; i < n_entries; i++)
        if (strlen(entries[i].name) == name.len && !memcmp(entries[i].name, name.ptr, name.len))
            return i;
    return n_entries;
}

static mn_status read_entry(void *self, mn_str name, mn_str stamp, void **data, uint64_t *bytes) {
    const uint32_t i = entry_of(name);
    if (i == n_entries || strlen(entries[i].stamp) != stamp.len ||
        memcmp(entries[i].stamp, stamp.ptr, stamp.len))
        return MN_END;
    *bytes = entries[i].bytes;
    *data = h_host.alloc(self, *bytes, 16);
    memcpy(*data, entries[i].data, *bytes);
    return MN_OK;
}

static mn_status write_entry(void *self, mn_str name, mn_str stamp, const void *data,
                             uint64_t bytes) {
    const uint32_t i = entry_of(name);
    (void)self;
    assert_true(i < ENTRIES);
    n_entries += i == n_entries;
    snprintf(entries[i].name, MOST_NAME, "%.*s", (int)name.len, name.ptr);
    snprintf(entries[i].stamp, MOST_NAME, "%.*s", (int)stamp.len, stamp.ptr);
    free(entries[i].data);
    entries[i].data = malloc(bytes);
    entries[i].bytes = bytes;
    memcpy(entries[i].data, data, bytes);
    return MN_OK;
}

static const void *query(void *self, const char *id) {
    static const mn_cache cache = {
        .size = sizeof cache, .read = read_entry, .write = write_entry, .most = 1 << 20};
    (void)self;
    return strcmp(id, MN_CACHE_ID) ? NULL : &cache;
}

static int32_t progress(void *self, float done, mn_str what) {
    static const char compiling[] = "compiling ";
    (void)self;
    (void)done;
    assert_true(what.len > strlen(compiling));
    assert_memory_equal(what.ptr, compiling, strlen(compiling));
    n_told++;
    return 0;
}

/* A step of a model with one type of weights, on a device that has just been opened. */
static void run_anew(uint32_t dtype) {
    world w;
    open_world(&w, dtype);
    n_told = 0;
    assert_int_equal(step(&w), MN_OK);
    close_world(&w);
}

/* Programs of two models' steps are two entries of the cache, and what comes from it is not
 * announced as being compiled. */
static void cached(void **state) {
    mn_host host = h_host;
    (void)state;
    host.query = query;
    host.progress = progress;
    h_host_of_plugins(&host);
    run_anew(MN_F32);
    const uint32_t compiled = opencl_stub.sources;
    assert_true(compiled > 0);
    assert_int_equal(n_told, compiled);
    run_anew(MN_Q8_0);
    run_anew(MN_F32);
    assert_int_equal(opencl_stub.sources, 0);
    assert_int_equal(n_told, 0);
    h_host_of_plugins(NULL);
    for (uint32_t i = 0; i < n_entries; i++) {
        free(entries[i].data);
        entries[i].data = NULL;
    }
    n_entries = 0;
}

/* A device is asked once which groups products of a type want. The matrix is in parts, which no
 * kernel of whole units takes. */
static void shapes(void **state) {
    enum { SHAPES = 5, TIMES = 4 };
    mn_host host = h_host;
    (void)state;
    opencl_stub = (opencl_stub_state){.max_alloc = 16 << 20};
    host.query = query;
    h_host_of_plugins(&host);
    h_host_option("shapes", "1");
    for (uint32_t run = 0; run < 2; run++) {
        h_plugin p;
        assert_true(h_open(&p, OPENCL));
        opencl_stub.kernels = 0;
        op_case *c = product(640, 8192); /* 20 MiB */
        h_run(&p, c, MN_PRECISION_EXACT);
        assert_int_equal(opencl_stub.kernels, (run ? 0 : SHAPES * TIMES) + 2);
        case_free(c);
        h_close(&p);
    }
    h_host_option(NULL, NULL);
    h_host_of_plugins(NULL);
    for (uint32_t i = 0; i < n_entries; i++) {
        free(entries[i].data);
        entries[i].data = NULL;
    }
    n_entries = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(failed_step),
                                       cmocka_unit_test(failed_turn),
                                       cmocka_unit_test(handle_again),
                                       cmocka_unit_test(parts),
                                       cmocka_unit_test(matrices),
                                       cmocka_unit_test(cache_in_parts),
                                       cmocka_unit_test(cache_of_large_pages),
                                       cmocka_unit_test(memory),
                                       cmocka_unit_test(commands),
                                       cmocka_unit_test(commands_refused),
                                       cmocka_unit_test(cached),
                                       cmocka_unit_test(shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
