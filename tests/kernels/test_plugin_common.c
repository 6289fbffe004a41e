/* test_plugin_common.c -- plugins/common by itself, on graphs built by hand: errors and structs of
 * other sizes, symbols, the arena, the geometry of KV pages, bindings, and the lowering of nodes
 * into fused units. No plugin is loaded. */
#include "case.h"
#include "attend_fits.h"
#include "common.h"
#include "distances.h"
#include "host.h"
#include "units.h"
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

#define ERR(e) mn_error e = {sizeof e, 0, 0, ~0u, 0, {0}}
/* A node of one output, without attributes: h_node(c, MN_OP_ADD, &y, a, b). */
#define h_node(c, op, out, ...)                                                                    \
    case_node(c, op, (const int32_t[]){__VA_ARGS__},                                               \
              sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), out, 1, NULL, 0)

static void test_sizes(void **state) {
    (void)state;
    /* an error that ends inside of the message ends in NUL */
    union {
        mn_error e;
        char bytes[sizeof(mn_error)];
    } u;
    memset(&u, 'x', sizeof u);
    u.e.size = offsetof(mn_error, msg) + 5;
    assert_int_equal(mnp_fail(&u.e, MN_INVALID, 3, "%s", "twelve letters"), MN_INVALID);
    assert_string_equal(u.e.msg, "twel");
    assert_int_equal(u.bytes[offsetof(mn_error, msg) + 5], 'x');
    assert_int_equal(mnp_fail(NULL, MN_BAD_FILE, ~0u, "nobody reads this"), MN_BAD_FILE);
    struct {
        uint32_t size;
        uint32_t a;
        uint32_t b;
        uint32_t c;
    } small = {8, 1, 2, 3}, full = {sizeof full, 7, 8, 9};
    mnp_fill(&small, &full, sizeof full);
    assert_true(small.size == 8);
    assert_true(small.a == 7);
    assert_true(small.b == 2);
    mnp_read(&full, sizeof full, &small, 8);
    assert_true(full.a == 7);
    assert_true(full.b == 0);
    assert_true(full.c == 0);
}

static void test_symbols(void **state) {
    (void)state;
    op_case *c = case_new();
    ERR(err);
    c->g.n_symbols = 4;
    c->sym[0] = (mn_symbol){"rows", 1, 100, 1, MN_SYMBOL_SHAPE, -1, 1, 0};
    c->sym[1] = (mn_symbol){"pages", 1, 64, 1, MN_SYMBOL_BOUND, -1, 1, 0};
    c->sym[2] = (mn_symbol){"twice", 0, 1000, 1, MN_SYMBOL_SHAPE, 0, 2, 3};
    c->sym[3] = (mn_symbol){"again", 0, 1000, 1, MN_SYMBOL_SHAPE, 2, 1, 1};
    const int64_t max[4] = {100, 64, -1, -1};
    const int64_t given[4] = {5, 7, -9, -9};
    int64_t out[4];
    assert_int_equal(mnp_symbols(&c->g, given, max, out, &err), MN_OK);
    assert_true(out[0] == 5);
    assert_true(out[1] == 64);
    assert_true(out[2] == 13);
    assert_true(out[3] == 14);
    assert_int_equal(mnp_symbols(&c->g, given, NULL, out, &err), MN_OK);
    assert_int_equal(out[1], 7);
    const int64_t bad[4][4] = {{0, 1}, {101, 1}, {1, 65}, {-1, 1}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(mnp_symbols(&c->g, bad[i], max, out, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "rows"));
    c->sym[2].mul = INT64_MAX;
    assert_int_equal(mnp_symbols(&c->g, given, max, out, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "twice"));
    c->sym[2].base = 3; /* only what is there already can be a base */
    assert_int_equal(mnp_symbols(&c->g, given, max, out, &err), MN_INVALID);
    case_free(c);
}

/* KV_STORE of layers 4, 9 and 2 of group 1, and one of group 0 with other heads. */
static op_case *caches(void) {
    op_case *c = case_new();
    static const uint64_t attrs[4][2] = {{4, 1}, {0, 0}, {9, 1}, {2, 1}};
    const int64_t rows = case_symbol(c, "rows", 8, MN_SYMBOL_SHAPE);
    const int32_t pos = case_vec(c, MN_ROLE_INPUT, MN_I32, rows, NULL, "row_pos");
    const int32_t slot = case_vec(c, MN_ROLE_INPUT, MN_I32, rows, NULL, "row_slot");
    const int32_t pages = case_mat(c, MN_ROLE_INPUT, MN_I32, 2, 4, NULL, "pages");
    const int32_t kv = case_kv(c, MN_F32, 4);
    for (int i = 0; i < 4; i++) {
        const int64_t heads = i == 1 ? 3 : 2;
        const int32_t k = case_cube(c, MN_ROLE_INPUT, MN_F32, rows, heads, 20, NULL, "k");
        const int32_t v = case_cube(c, MN_ROLE_INPUT, MN_F32, rows, heads, 9, NULL, "v");
        case_node(c, MN_OP_KV_STORE, (const int32_t[]){k, v, pos, slot, pages, kv}, 6, NULL, 0,
                  attrs[i], 2);
    }
    assert_false(c->failed);
    return c;
}

static mn_error kv_error;

typedef struct {
    uint32_t k, v;
} kv_types;

/* The memory of nodes [lo, hi). */
static mn_compile remember(op_case *c, uint32_t lo, uint32_t hi, kv_types types) {
    const mn_node_range nodes = {lo, hi};
    mn_compile ask = {.size = sizeof ask, .graph = &c->g, .node_lo = lo, .node_hi = hi};
    mn_memory_uses_free(&c->memory);
    assert_true(mn_memory_uses_find(&c->g, &nodes, 1, types.k, types.v, &c->memory));
    mn_memory_uses_give(&c->memory, &ask);
    return ask;
}

/* The pages of group 1 in the whole of the graph; what is wrong is in kv_error. */
static mn_status kv_of(op_case *c, kv_types types, const mnp_kv_rules *rules, mnp_kv *kv) {
    const mn_compile ask = remember(c, 0, 4, types);
    kv_error.size = sizeof kv_error;
    return mnp_kv_of(mnp_memory_of(&ask, 1), MN_PRECISION_EXACT, rules, kv, &kv_error);
}

static void test_kv(void **state) {
    (void)state;
    op_case *c = caches();
    const mnp_kv_rules dense = {64, 1, 0};
    const mnp_kv_rules padded = {32, 8, 256};
    const mnp_kv_rules narrow = {64, 1, 16};
    const kv_types f32 = {MN_F32, MN_F32};
    const kv_types f16 = {MN_F16, MN_F16};
    const kv_types q8 = {MN_F16, MN_Q8_0};
    const kv_types mixed = {MN_F16, MN_DTYPE_NONE}; /* none: f32 in class exact */
    const kv_types bf16 = {MN_BF16, MN_BF16};
    mnp_kv kv;
    ERR(err);
    assert_int_equal(kv_of(c, f32, &dense, &kv), MN_OK);
    assert_true(kv.n_layers == 3);
    assert_true(kv.n_head_kv == 2);
    assert_true(kv.pad_k == 20);
    assert_true(kv.pad_v == 9);
    assert_int_equal(kv.v_offset, 2 * 64 * 20 * 4);
    assert_int_equal(kv.page_bytes, 3 * 2 * 64 * (20 + 9) * 4);
    assert_int_equal(kv_of(c, f16, &padded, &kv), MN_OK);
    assert_true(kv.dim_k == 20);
    assert_true(kv.pad_k == 24);
    assert_true(kv.dim_v == 9);
    assert_true(kv.pad_v == 16);
    assert_int_equal(kv.layer_bytes, 2 * 32 * (24 + 16) * 2);
    assert_int_equal(kv_of(c, q8, &padded, &kv), MN_OK);
    assert_true(kv.pad_k == 24);
    assert_true(kv.pad_v == 32);
    assert_true(kv.k_row == 48);
    assert_true(kv.v_row == 34);
    assert_int_equal(kv.layer_bytes, 2 * 32 * (48 + 34));
    assert_int_equal(kv_of(c, mixed, &dense, &kv), MN_OK);
    assert_true(kv.v_offset == 2 * 64 * 20 * 2);
    assert_true(kv.layer_bytes == kv.v_offset + 2 * 64 * 9 * 4);
    /* a layer's place is its index among those of mn_compile.memory */
    const int64_t places[4] = {1, 0, 2, 0};
    for (uint32_t i = 0; i < 4; i++) {
        const mn_compile all = remember(c, 0, 4, f32);
        assert_int_equal(mnp_kv_of_node(&all, i, MN_PRECISION_EXACT, &dense, &kv, &err), MN_OK);
        assert_int_equal(kv.layer, places[i]);
    }
    mn_compile part = remember(c, 1, 3, f32);
    assert_int_equal(mnp_kv_of_node(&part, 2, MN_PRECISION_EXACT, &dense, &kv, &err), MN_OK);
    assert_true(kv.layer == 0);
    assert_true(kv.n_layers == 1);
    assert_int_equal(mnp_kv_of_node(&part, 0, MN_PRECISION_EXACT, &dense, &kv, &err), MN_INVALID);
    assert_int_equal(err.node, 0);
    assert_null(mnp_memory_of(&part, 2));
    assert_int_equal(kv_of(c, f32, &narrow, &kv), MN_UNSUPPORTED);
    assert_non_null(strstr(kv_error.msg, "20"));
    assert_int_equal(kv_of(c, bf16, &dense, &kv), MN_UNSUPPORTED);
    assert_non_null(strstr(kv_error.msg, "q8_0"));
    c->t[c->operands[c->n[3].in_off]].dim[2] = 24;
    assert_int_equal(kv_of(c, f32, &dense, &kv), MN_INVALID);
    part = remember(c, 0, 1, f32);
    c->t[c->operands[c->n[0].in_off]].dim[2] = 24; /* behind the question */
    assert_int_equal(mnp_kv_of_node(&part, 0, MN_PRECISION_EXACT, &dense, &kv, &err), MN_INVALID);
    c->memory.layer[0].dim_k = UINT32_MAX;
    c->memory.layer[0].n_head = UINT32_MAX;
    assert_int_equal(mnp_kv_of(part.memory[0].params, MN_PRECISION_EXACT, &dense, &kv, &err),
                     MN_INVALID);
    case_free(c);
}

/* a -> b -> c -> d, and a once more at the end: b and c share room with nobody alive. */
static void test_arena(void **state) {
    (void)state;
    op_case *c = case_new();
    const int64_t rows = case_symbol(c, "rows", 10, MN_SYMBOL_SHAPE);
    int32_t t[6] = {case_mat(c, MN_ROLE_INPUT, MN_F32, rows, 16, NULL, "x")};
    ERR(err);
    for (int i = 1; i < 6; i++) {
        t[i] = case_mat(c, i == 5 ? MN_ROLE_OUTPUT : MN_ROLE_INTERIOR, MN_F16, rows, 16, NULL, "y");
        h_node(c, MN_OP_ADD, &t[i], t[i - 1], i == 5 ? t[1] : t[i - 1]);
    }
    mnp_allocation a[CASE_TENSORS];
    uint64_t bytes;
    mnp_arena_begin(&c->g, a);
    for (uint32_t i = 0; i < c->g.n_nodes; i++)
        mnp_arena_live(&c->g, i, (int32_t)i, a);
    const int64_t max[1] = {10};
    assert_int_equal(mnp_arena_place(&h_host, &c->g, max, 256, a, &bytes, &err), MN_OK);
    assert_int_equal(a[t[0]].place, MNP_NOWHERE);
    assert_int_equal(a[t[1]].bytes, 768); /* f32 inside: 640 bytes */
    assert_int_equal(bytes, 3 * 768);     /* of five tensors */
    for (int i = 1; i < 6; i++)
        for (int j = 1; j < i; j++)
            if (a[t[i]].first <= a[t[j]].last && a[t[j]].first <= a[t[i]].last)
                assert_true(a[t[i]].place >= a[t[j]].place + a[t[j]].bytes ||
                            a[t[j]].place >= a[t[i]].place + a[t[i]].bytes);
    case_free(c);
}

struct mn_buffer {
    uint64_t address;
    uint64_t bytes;
};
static mnp_extent extent(const mn_buffer *b) {
    return (mnp_extent){b->address, b->bytes};
}

static void test_bindings(void **state) {
    (void)state;
    op_case *c = case_new();
    const int32_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, 4, 4, NULL, "x");
    const int32_t w = case_vec(c, MN_ROLE_WEIGHT, MN_F32, 4, NULL, "w");
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, 4, 4, NULL, "y");
    h_node(c, MN_OP_RMS_NORM, &y, x, w);
    mn_buffer whole = {4096, 128};
    mn_buffer odd = {4097, 128};
    mnp_allocation a[CASE_TENSORS];
    mn_binding table[CASE_TENSORS];
    ERR(err);
    mnp_arena_begin(&c->g, a);
    const mn_binding good[2] = {{(uint32_t)x, 0, &whole, 0, 64}, {(uint32_t)y, 0, &whole, 64, 64}};
    const mn_binding bad[] = {
        {(uint32_t)w, 0, &whole, 0, 16},  /* a weight */
        {(uint32_t)x, 0, &whole, 0, 64},  /* twice */
        {(uint32_t)y, 0, &whole, 80, 64}, /* past the end */
        {(uint32_t)y, 0, &whole, UINT64_MAX, 64},
        {(uint32_t)y, 0, &odd, 0, 64},   /* not at a multiple of 4 */
        {(uint32_t)y, 0, &whole, 2, 64}, /* the same */
        {99, 0, &whole, 0, 64},
        {(uint32_t)y, 0, NULL, 0, 64},
    };
    const uint32_t stride = sizeof(mn_binding);
    assert_int_equal(mnp_bind(&c->g, a, good, 2, stride, extent, table, &err), MN_OK);
    assert_int_equal(mnp_check_bound(&c->g, 0, a, NULL, table, &err), MN_OK);
    assert_int_equal(mnp_check_sizes(&c->g, NULL, table, &err), MN_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const mn_binding two[2] = {good[0], bad[i]};
        assert_int_equal(mnp_bind(&c->g, a, two, 2, stride, extent, table, &err), MN_INVALID);
    }
    assert_int_equal(mnp_bind(&c->g, a, good, 2, 24, extent, table, &err), MN_INVALID);
    /* x alone; y has no place */
    assert_int_equal(mnp_bind(&c->g, a, good, 1, stride, extent, table, &err), MN_OK);
    assert_int_equal(mnp_check_bound(&c->g, 0, a, NULL, table, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "output y"));
    a[y].place = 0;
    assert_int_equal(mnp_check_bound(&c->g, 0, a, NULL, table, &err), MN_OK);
    table[x].bytes = 60;
    assert_int_equal(mnp_check_sizes(&c->g, NULL, table, &err), MN_INVALID);
    case_free(c);
}

static void test_sources(void **state) {
    (void)state;
    op_case *c = case_new();
    const int64_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, 4, 64, NULL, "x");
    const int32_t w = case_mat(c, MN_ROLE_WEIGHT, MN_Q8_0, 4, 64, NULL, "w");
    static char bytes[4 * 68];
    mn_plane p[2] = {{bytes, 2 * 68, MN_PLANE_DATA, MN_Q8_0, {2, 64}, {68, 34}},
                     {bytes + 2 * 68, 2 * 68, MN_PLANE_DATA, MN_Q8_0, {2, 64}, {68, 34}}};
    mn_weight_src s = {sizeof s, (uint32_t)w, 2, 1, sizeof *p, 0, p, c->t[w].dtype};
    ERR(err);
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_OK);
    assert_int_equal(mnp_check_source(&c->g, &s, 1, &err), MN_UNSUPPORTED);
    s.n_parts = 1; /* two rows of four */
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "2 rows, the graph expects 4"));
    s.n_parts = 2;
    p[1].bytes--;
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_INVALID);
    p[1].bytes++;
    p[1].stride[0] = INT64_MAX;
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_INVALID);
    p[1].stride[0] = 68;
    p[1].dim[1] = 32;
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_INVALID);
    p[1].dim[1] = 64;
    p[1].kind = MN_PLANE_SCALE;
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_UNSUPPORTED);
    s.tensor = (uint32_t)x;
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_INVALID);
    s.tensor = 99;
    assert_int_equal(mnp_check_source(&c->g, &s, 2, &err), MN_INVALID);
    /* the same weight in another graph */
    op_case *other = case_new();
    case_mat(other, MN_ROLE_INPUT, MN_Q8_0, 4, 64, NULL, "w");
    case_mat(other, MN_ROLE_WEIGHT, MN_Q8_0, 8, 64, NULL, "w");
    assert_int_equal(mnp_find_weight(&other->g, &c->g, (uint32_t)w), -1);
    case_mat(other, MN_ROLE_WEIGHT, MN_Q8_0, 4, 64, NULL, "w");
    assert_int_equal(mnp_find_weight(&other->g, &c->g, (uint32_t)w), 2);
    case_free(other);
    case_free(c);
    assert_int_equal(mnp_check_range(60, 4, 64, "write", &err), MN_OK);
    assert_int_equal(mnp_check_range(61, 4, 64, "write", &err), MN_INVALID);
    assert_int_equal(mnp_check_range(UINT64_MAX, 4, 64, "write", &err), MN_INVALID);
}

/* Pages that there are, and tokens that a page holds. */
static void test_page_copies(void **state) {
    (void)state;
    const mn_memory_layout l = {sizeof l, 64, 1000, 0, 0};
    static const struct {
        mn_page_copy copy;
        mn_status want;
    } rows[] = {{{0, 2, 64, 0}, MN_OK},      {{2, 0, 1, 0}, MN_OK},
                {{0, 2, 65, 0}, MN_INVALID}, {{3, 0, 1, 0}, MN_INVALID},
                {{0, 3, 1, 0}, MN_INVALID},  {{UINT32_MAX, 0, 0, 0}, MN_INVALID}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mn_page_copy out;
        ERR(err);
        const mn_status st = mnp_memory_copy_at(&l, &rows[i].copy, 0, sizeof out, 3999, &out, &err);
        assert_int_equal(st, rows[i].want);
    }
}

/* ---- lowering -------------------------------------------------------------------------------- */
static char told[4096]; /* what the pass logs, a line each */
static void hear(void *self, int32_t level, mn_str msg) {
    (void)self;
    assert_int_equal(level, MN_LOG_DEBUG);
    snprintf(told + strlen(told), sizeof told - strlen(told), "%.*s\n", (int)msg.len, msg.ptr);
}

/* "anchor,part,part anchor ..." in the order in which units run. */
static void lower(const op_case *c, uint32_t lo, uint32_t hi, char *out, size_t cap) {
    static const mnp_pattern *const patterns[] = {&mnp_pattern_linear, &mnp_pattern_store};
    mn_host host = h_host;
    mnp_use uses[CASE_TENSORS];
    mnp_unit units[CASE_NODES];
    const mnp_lowering l = {&c->g, lo, hi, uses};
    uint32_t n = 0;
    host.log = hear;
    told[0] = out[0] = 0;
    assert_false(c->failed);
    mnp_count_uses(&c->g, lo, hi, uses);
    assert_int_equal(mnp_lower(&h_host, &l, patterns, 2, &host, units, &n, NULL), MN_OK);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(out + strlen(out), cap - strlen(out), "%s%u", i ? " " : "", units[i].node);
        for (int k = 0; k < MNP_MAX_PARTS; k++)
            if (units[i].part[k] >= 0)
                snprintf(out + strlen(out), cap - strlen(out), ",%d", units[i].part[k]);
    }
}
#define UNITS(c, lo, hi, want)                                                                     \
    do {                                                                                           \
        char got_[256];                                                                            \
        lower(c, lo, hi, got_, sizeof got_);                                                       \
        assert_string_equal(got_, want);                                                           \
    } while (0)

enum { D = 8 };
static int32_t inner(op_case *c) {
    return case_mat(c, MN_ROLE_INTERIOR, MN_F32, 4, D, NULL, "t");
}
static int32_t norm(op_case *c, int32_t x) {
    const int32_t w = case_vec(c, MN_ROLE_WEIGHT, MN_F32, D, NULL, "norm");
    const int32_t y = inner(c);
    h_node(c, MN_OP_RMS_NORM, &y, x, w);
    return y;
}
static int32_t linear(op_case *c, int32_t x) {
    const int32_t w = case_mat(c, MN_ROLE_WEIGHT, MN_F32, D, D, NULL, "w");
    const int32_t y = inner(c);
    h_node(c, MN_OP_LINEAR, &y, x, w, -1);
    return y;
}
static int32_t add(op_case *c, int32_t a, int32_t b) {
    const int32_t y = inner(c);
    h_node(c, MN_OP_ADD, &y, a, b);
    return y;
}

static void test_lower_by_uses(void **state) {
    (void)state;
    op_case *c = case_new();
    const int32_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, 4, D, NULL, "x");
    /* nodes that have nothing to do with them stand between the three */
    const int32_t n = norm(c, x);        /* 0 */
    const int32_t other = add(c, x, x);  /* 1 */
    const int32_t y = linear(c, n);      /* 2 */
    const int32_t more = norm(c, other); /* 3 */
    add(c, more, y);                     /* 4: runs here, behind what it adds */
    UNITS(c, 0, 5, "1 3 2,0,4");
    assert_string_equal(told, "");
    /* a segment that ends between them */
    UNITS(c, 0, 4, "1 2,0 3");
    UNITS(c, 1, 5, "1 3 2,4");
    /* the norm is read twice */
    linear(c, n);
    UNITS(c, 0, 6, "0 1 3 2,4 5");
    assert_non_null(strstr(told, "linear of node 2: norm of node 0 is not fused"));
    case_free(c);
}

static void *no_memory(void *self, uint64_t bytes, uint64_t align) {
    (void)self;
    (void)bytes;
    (void)align;
    return NULL;
}

static void test_no_memory(void **state) {
    (void)state;
    op_case *c = case_new();
    const int32_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, 4, D, NULL, "x");
    mnp_use uses[CASE_TENSORS];
    mnp_unit units[CASE_NODES];
    mnp_allocation a[CASE_TENSORS];
    mn_verdict v;
    mn_host host = h_host;
    uint32_t n = 0;
    uint64_t bytes;
    ERR(err);
    linear(c, x);
    host.alloc = no_memory;
    const mnp_lowering l = {&c->g, 0, 1, uses};
    mnp_count_uses(&c->g, 0, 1, uses);
    assert_int_equal(mnp_lower(&host, &l, NULL, 0, NULL, units, &n, &err), MN_OUT_OF_MEMORY);
    assert_non_null(strstr(err.msg, "out of memory"));
    mnp_arena_begin(&c->g, a);
    assert_int_equal(mnp_arena_place(&host, &c->g, NULL, 64, a, &bytes, &err), MN_OUT_OF_MEMORY);
    const mn_compile ask = case_question(c, MN_PRECISION_EXACT);
    assert_int_equal(mnp_supports(&host, &ask, NULL, NULL, &v, sizeof v, &err), MN_OUT_OF_MEMORY);
    case_free(c);
}

static void test_lower_order(void **state) {
    (void)state;
    /* a product that is added to another one, and to itself */
    op_case *c = case_new();
    const int32_t x = case_mat(c, MN_ROLE_INPUT, MN_F32, 4, D, NULL, "x");
    const int32_t a = linear(c, x), b = linear(c, x); /* 0, 1 */
    add(c, a, b);                                     /* 2: the later product takes it */
    UNITS(c, 0, 3, "0 1,2");
    assert_non_null(strstr(told, "another unit has it"));
    const int32_t d = linear(c, x); /* 3 */
    add(c, d, d);
    UNITS(c, 0, 5, "0 1,2 3 4");
    case_free(c);
    /* a node between needs the unit's product: impossible with private tensors, but not with what a
     * rotation makes (below); here a view of the product ends the fusion */
    c = case_new();
    const int32_t in = case_mat(c, MN_ROLE_INPUT, MN_F32, 4, D, NULL, "x");
    const int32_t y = linear(c, in);
    const int32_t view = inner(c);
    c->t[view].alias_of = y;
    c->t[view].stride[0] = D;
    c->t[view].stride[1] = 1;
    add(c, in, view);
    UNITS(c, 0, 2, "0 1");
    case_free(c);
}

/* ROPE q, ROPE k, KV_STORE, ATTENTION with other nodes between; `q_twice`: the rotated q is read by
 * one of them; `stores`: one stores in another layer of the cache. The order of the rotations and
 * of the store may vary. */
static op_case *attention(bool k_first, bool q_twice, bool other_freqs, bool stores) {
    op_case *c = case_new();
    static const uint64_t none[8] = {0};
    static const uint64_t store[2] = {3, 0};
    static const uint64_t below[2] = {2, 0};
    static const uint64_t attend[7] = {0, 0, 0, 3, 0, 2, 0};
    const int32_t pos = case_vec(c, MN_ROLE_INPUT, MN_I32, 4, NULL, "row_pos");
    const int32_t slot = case_vec(c, MN_ROLE_INPUT, MN_I32, 4, NULL, "row_slot");
    const int32_t seqs = case_mat(c, MN_ROLE_INPUT, MN_I32, 1, 4, NULL, "seqs");
    const int32_t pages = case_mat(c, MN_ROLE_INPUT, MN_I32, 1, 4, NULL, "pages");
    const int32_t freqs = case_vec(c, MN_ROLE_WEIGHT, MN_F32, D / 2, NULL, "freqs");
    const int32_t local = case_vec(c, MN_ROLE_WEIGHT, MN_F32, D / 2, NULL, "local");
    const int32_t kv = case_kv(c, MN_F32, 4);
    int32_t x[3];
    int32_t y[4];
    for (int i = 0; i < 3; i++)
        x[i] = case_cube(c, MN_ROLE_INPUT, MN_F32, 4, 2, D, NULL, "x");
    for (int i = 0; i < 4; i++)
        y[i] = case_cube(c, MN_ROLE_INTERIOR, MN_F32, 4, 2, D, NULL, "y");
    const int32_t rope_q[3] = {x[0], pos, freqs};
    const int32_t rope_k[3] = {x[1], pos, other_freqs ? local : freqs};
    const int32_t kv_store[6] = {y[1], x[2], pos, slot, pages, kv};
    const int32_t attends[7] = {y[0], pos, slot, seqs, pages, kv, -1};
    const int32_t sum[2] = {q_twice ? y[0] : x[0], x[1]};
    if (k_first)
        case_node(c, MN_OP_ROPE, rope_k, 3, &y[1], 1, none, 3);
    case_node(c, MN_OP_ROPE, rope_q, 3, &y[0], 1, none, 3);
    if (!k_first)
        case_node(c, MN_OP_ROPE, rope_k, 3, &y[1], 1, none, 3);
    case_node(c, MN_OP_ADD, sum, 2, &y[2], 1, NULL, 0); /* 2 */
    case_node(c, MN_OP_KV_STORE, kv_store, 6, NULL, 0, store, 2);
    const int32_t store_x[6] = {x[1], x[2], pos, slot, pages, kv};
    if (stores) /* 4 */
        case_node(c, MN_OP_KV_STORE, store_x, 6, NULL, 0, below, 2);
    else
        case_node(c, MN_OP_ADD, x, 2, &y[3], 1, NULL, 0);
    int32_t out = case_cube(c, MN_ROLE_OUTPUT, MN_F32, 4, 2, D, NULL, "out");
    case_node(c, MN_OP_ATTENTION, attends, 7, &out, 1, attend, 7); /* 5 */
    return c;
}

static void test_lower_store(void **state) {
    (void)state;
    op_case *c = attention(false, false, false, false);
    UNITS(c, 0, 6, "2 3,5,1,0,5 4 5"); /* reader, rope k, rope q, attention */
    assert_string_equal(told, "");
    UNITS(c, 0, 5, "0 1 2 3 4"); /* without the attention nobody knows which rotation is q's */
    UNITS(c, 1, 6, "1 2 3,5 4 5");
    assert_non_null(strstr(told, "rope k of node 1 is not fused: another part"));
    case_free(c);
    c = attention(true, false, false, false);
    UNITS(c, 0, 6, "2 3,5,0,1,5 4 5");
    case_free(c);
    /* node 2 reads the rotated q before the store runs: it cannot be made there */
    c = attention(false, true, false, false);
    UNITS(c, 0, 6, "0 1 2 3,5 4 5");
    assert_non_null(strstr(told, "rope q of node 0 is not fused: a node between"));
    case_free(c);
    /* both are rotated in one kernel, yet the attention stays apart for good */
    c = attention(false, false, true, false);
    UNITS(c, 0, 6, "2 3,5,1,0 4 5");
    assert_non_null(strstr(told, "attention of node 5 is not fused: q and k are rotated"));
    case_free(c);
    /* node 4 changes the state that the store changes: both keep their order */
    c = attention(false, false, false, true);
    UNITS(c, 0, 6, "2 3,5,1,0 4 5");
    assert_non_null(strstr(told, "attention of node 5 is not fused: a node between"));
    case_free(c);
}

/* What plugins read of a unit: parts of other patterns have the same numbers. */
static void test_taken(void **state) {
    (void)state;
    mnp_unit u = {.pattern = &mnp_pattern_linear, .part = {10, 11, 12, 13, 14, 15}};
    mnp_taken t = mnp_taken_in(&u);
    assert_true(t.norm == 10 && t.gather == 11 && t.add == 12 && t.glu == 13);
    assert_true(t.rope_q == -1 && t.rope_k == -1);
    u.pattern = &mnp_pattern_store;
    t = mnp_taken_in(&u);
    assert_true(t.rope_k == 11 && t.rope_q == 12 && t.norm == -1 && t.add == -1);
    u.pattern = &mnp_pattern_moe_linear;
    t = mnp_taken_in(&u);
    assert_true(t.glu == 10 && t.add == -1 && t.norm == -1);
    u.pattern = &mnp_pattern_combine;
    t = mnp_taken_in(&u);
    assert_true(t.add == 10 && t.glu == -1 && t.norm == -1);
    u.pattern = NULL;
    t = mnp_taken_in(&u);
    assert_true(t.norm == -1 && t.gather == -1 && t.add == -1 && t.glu == -1 && t.rope_q == -1);
}

/* ---- distances ------------------------------------------------------------------------------- */
/* Of an ATTENTION with a table of so many rows: [B, H] (relative: [B, H, D]). */
static mnp_distances distances_of(bool relative, bool both_ways, int64_t rows, int64_t far,
                                  int64_t *steps) {
    op_case *c = case_new();
    const int64_t places[3] = {rows, 2, D};
    int32_t in[13];
    uint64_t attr[11] = {0};
    mnp_distances d;
    for (int i = 0; i < 13; i++)
        in[i] = -1;
    in[MN_ATTENTION_Q] = case_cube(c, MN_ROLE_INPUT, MN_F32, 4, 2, D, NULL, "q");
    if (relative)
        in[MN_ATTENTION_RELATIVE_Q] = case_tensor(c, MN_ROLE_WEIGHT, MN_F32, 3, places, NULL, "t");
    else
        in[MN_ATTENTION_DISTANCE_BIAS] = case_mat(c, MN_ROLE_WEIGHT, MN_F32, rows, 2, NULL, "b");
    const int32_t y = case_cube(c, MN_ROLE_OUTPUT, MN_F32, 4, 2, D, NULL, "y");
    attr[MN_ATTENTION_ATTR_BIDIRECTIONAL] = both_ways;
    attr[MN_ATTENTION_ATTR_MAX_DISTANCE] = (uint64_t)far;
    case_node(c, MN_OP_ATTENTION, in, 13, &y, 1, attr, 11);
    const mn_node *n = mnp_node(&c->g, 0);
    assert_true(mnp_attention_fits(&c->g, n) && mnp_has_distances(&c->g, n));
    *steps = mnp_distance_steps(&c->g, n);
    mnp_distances_of(&c->g, n, &d);
    case_free(c);
    return d;
}

static int64_t length_in(const mnp_distances *d, int64_t m) {
    int64_t length = d->exact;
    if (m < d->exact)
        return m;
    for (int32_t i = 0; i < d->n_steps && d->step[i] <= m; i++)
        length++;
    return length;
}

/* As op_attention.c of plugin `reference` computes it. */
static int64_t bucket_by_logarithm(int64_t m, int64_t n, int64_t far) {
    const int64_t exact = n / 2;
    if (m < exact)
        return m;
    const double from = (double)exact;
    const double share = log((double)m / from) / log((double)far / from);
    const int64_t bucket = exact + (int64_t)floor(share * (double)(n - exact));
    return bucket < n - 1 ? bucket : n - 1;
}

static int64_t length_by_logarithm(int64_t m, int64_t n, int64_t far) {
    const int64_t mid = n / 4;
    if (!far || m <= mid)
        return m;
    const double from = (double)mid;
    const double share = log((double)m / from) / log((double)(far - 1) / from);
    return mid + (int64_t)ceil(share * (from - 1));
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Buckets are those of the logarithms, distance by distance. */
static void test_distances(void **state) {
    static const int64_t biases[][2] = {{32, 128}, {12, 40}, {2, 2},    {3, 9},
                                        {31, 16},  {64, 33}, {16, 800}, {256, 65536}};
    static const int64_t tables[][2] = {{512, 512}, {512, 65536}, {26, 40}, {24, 40}, {4, 3},
                                        {6, 100},   {64, 18},     {2, 0},   {512, 0}};
    int64_t steps;
    (void)state;
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        for (int both = 0; both < 2; both++) {
            const int64_t n = biases[i][0];
            const int64_t far = biases[i][1];
            const mnp_distances d = distances_of(false, both, both ? 2 * n : n, far, &steps);
            assert_int_equal(d.places, n);
            assert_true(steps == d.n_steps && steps == n - 1 - n / 2);
            for (int64_t m = 0; m < 70000; m++)
                assert_int_equal(length_in(&d, m), bucket_by_logarithm(m, n, far));
        }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const int64_t n = tables[i][0];
        const mnp_distances d = distances_of(true, true, n, tables[i][1], &steps);
        assert_int_equal(d.places, n / 2);
        assert_int_equal(steps, d.n_steps);
        for (int64_t m = 0; m < 70000; m++)
            assert_int_equal(least(length_in(&d, m), n / 2),
                             least(length_by_logarithm(m, n, tables[i][1]), n / 2));
    }
    /* more than a kernel has room for */
    distances_of(false, false, 512, 65536, &steps);
    assert_true(steps > MNP_DISTANCE_STEPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_kv),          cmocka_unit_test(test_page_copies),
        cmocka_unit_test(test_arena),       cmocka_unit_test(test_bindings),
        cmocka_unit_test(test_sources),     cmocka_unit_test(test_lower_by_uses),
        cmocka_unit_test(test_lower_order), cmocka_unit_test(test_lower_store),
        cmocka_unit_test(test_taken),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
