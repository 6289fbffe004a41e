/* test_cpu_host.c -- what CPU plugins share, through `reference`: weight sets, segments, arenas,
 * bindings, symbols, and every allocation failing once. */
#include "harness.h"
#include "host.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static h_plugin p;
static int setup(void **state) {
    (void)state;
    return h_open(&p, "reference") ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    h_close(&p);
    return 0;
}
#define ERR(e) mn_error e = {sizeof e, 0, 0, ~0u, 0, {0}}
/* A node of one output, without attributes: h_node(c, MN_OP_ADD, &y, a, b). */
#define h_node(c, op, out, ...)                                                                    \
    case_node(c, op, (const int32_t[]){__VA_ARGS__},                                               \
              sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), out, 1, NULL, 0)

/* x -> (linear, add, norm) x 3 -> y, with n_tokens as symbol 0 */
enum { D = 32, LAYERS = 3, T_MAX = 8 };
static op_case *chain(void) {
    op_case *c = case_new();
    uint64_t seed = 1;
    float w[D * D];
    float x[T_MAX * D];
    for (int i = 0; i < T_MAX * D; i++)
        x[i] = case_rand(&seed);
    c->g.n_symbols = 1;
    c->sym[0] = (mn_symbol){"n_tokens", 1, T_MAX, 1, MN_SYMBOL_SHAPE, -1, 0, 0};
    c->value[0] = T_MAX;
    int32_t at = case_mat(c, MN_ROLE_INPUT, MN_F32, ~0, D, x, "x");
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < D * D; i++)
            w[i] = case_rand(&seed);
        static const char *const names[] = {"w0", "w1", "w2"};
        int32_t m = case_mat(c, MN_ROLE_WEIGHT, MN_F32, D, D, w, names[l < 2 ? l : 2]);
        int32_t n = case_vec(c, MN_ROLE_WEIGHT, MN_F32, D, w, "norm");
        int32_t a = case_mat(c, MN_ROLE_INTERIOR, MN_F32, ~0, D, NULL, "a");
        int32_t b = case_mat(c, MN_ROLE_INTERIOR, MN_F32, ~0, D, NULL, "b");
        int32_t y = case_mat(c, l + 1 < LAYERS ? MN_ROLE_INTERIOR : MN_ROLE_OUTPUT, MN_F32, ~0, D,
                             NULL, "y");
        h_node(c, MN_OP_LINEAR, &a, at, m, -1);
        h_node(c, MN_OP_ADD, &b, at, a);
        case_node(c, MN_OP_RMS_NORM, (const int32_t[]){b, n}, 2, &y, 1,
                  (const uint64_t[]){case_f64(1e-6), 0}, 2);
        at = y;
    }
    return c;
}

static const int64_t t_max[1] = {T_MAX};
static mn_compile ask(op_case *c) {
    return (mn_compile){.size = sizeof(mn_compile),
                        .precision = MN_PRECISION_EXACT,
                        .graph = &c->g,
                        .node_hi = c->g.n_nodes,
                        .symbol_max = t_max};
}

static mn_weight_src source(op_case *c, uint32_t t, mn_plane *plane) {
    *plane = (mn_plane){
        .ptr = c->data[t],
        .bytes = c->bytes[t],
        .kind = MN_PLANE_DATA,
        .dtype = c->t[t].dtype.id,
    };
    plane->dim[0] = c->t[t].dim[0];
    plane->dim[1] = c->t[t].dim[1];
    plane->stride[0] = c->t[t].n_dim > 1 ? D * 4 : 4;
    plane->stride[1] = 4;
    return (mn_weight_src){
        .size = sizeof(mn_weight_src),
        .tensor = t,
        .n_parts = 1,
        .n_planes = 1,
        .plane_stride = sizeof *plane,
        .planes = plane,
        .dtype = c->t[t].dtype,
    };
}

static mn_weights *all_weights(op_case *c, const mn_compile *a) {
    mn_weights *w;
    mn_plane plane;
    uint32_t kept;
    assert_int_equal(p.be->weights_open(p.dev, a, &w, NULL), MN_OK);
    for (uint32_t t = 0; t < c->g.n_tensors; t++) {
        if (c->t[t].role != MN_ROLE_WEIGHT)
            continue;
        mn_weight_src s = source(c, t, &plane);
        assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, NULL), MN_OK);
    }
    assert_int_equal(p.be->weights_seal(w, p.queue, &kept, NULL), MN_OK);
    assert_int_equal(kept, MN_KEPT_ALIASED);
    return w;
}

/* The verdict on a graph of one node. */
static mn_verdict judged(op_case *c) {
    mn_verdict v = {0};
    ERR(err);
    const mn_status st = mn_usual_supports(p.be, p.dev, &c->g, c->value, &v, sizeof v, &err);
    assert_int_equal(st, MN_OK);
    return v;
}

/* A buffer of the device. */
static mn_buffer *new_buffer(uint64_t bytes) {
    mn_buffer *b = NULL;
    ERR(err);
    assert_int_equal(mn_usual_alloc(p.be, p.dev, bytes, MN_MEM_DEVICE, &b, &err), MN_OK);
    return b;
}

/* Two halves joined by a boundary tensor give what the whole gives; so does a step smaller than the
 * maximum. */
static void test_segments_and_symbols(void **state) {
    (void)state;
    op_case *c = chain();
    ERR(err);
    h_run(&p, c, MN_PRECISION_EXACT);
    int32_t x = 0;
    int32_t mid = -1;
    int32_t y = (int32_t)c->g.n_tensors - 1;
    mn_compile a = ask(c);
    mn_weights *w = all_weights(c, &a);
    mn_buffer *bx;
    mn_buffer *bm;
    mn_buffer *by;
    mid = c->operands[c->n[2].out_off];
    assert_int_equal(p.be->wrap(p.dev, c->data[x], c->bytes[x], &bx, &err), MN_OK);
    bm = new_buffer(c->bytes[x]);
    by = new_buffer(c->bytes[x]);
    mn_binding first[2] = {{(uint32_t)x, 0, bx, 0, c->bytes[x]},
                           {(uint32_t)mid, 0, bm, 0, c->bytes[x]}};
    mn_binding second[2] = {first[1], {(uint32_t)y, 0, by, 0, c->bytes[x]}};
    mn_program *prog[2];
    mn_context *ctx[2];
    for (int i = 0; i < 2; i++) {
        a.weights = w;
        a.node_lo = i ? 3 : 0;
        a.node_hi = i ? c->g.n_nodes : 3;
        assert_int_equal(p.be->compile(p.dev, &a, &prog[i], &err), MN_OK);
        assert_int_equal(mn_usual_context(p.be, prog[i], p.queue, &ctx[i], &err), MN_OK);
        assert_int_equal(
            p.be->context_bind(ctx[i], 0, i ? second : first, 2, sizeof(mn_binding), &err), MN_OK);
    }
    float *whole = c->result[y];
    float *got;
    assert_int_equal(p.be->map(by, (void **)&got, &err), MN_OK);
    for (int64_t n = T_MAX; n >= 1; n -= 3) {
        memset(got, 0, c->bytes[x]);
        for (int i = 0; i < 2; i++)
            assert_int_equal(mn_usual_execute(p.be, ctx[i], 0, &n, NULL, &err), MN_OK);
        assert_memory_equal(got, whole, (size_t)n * D * 4);
        if (n < T_MAX)
            assert_true(got[n * D] == 0);
    }
    for (int64_t n = 0; n <= T_MAX + 1; n += T_MAX + 1)
        assert_int_equal(mn_usual_execute(p.be, ctx[0], 0, &n, NULL, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "n_tokens"));
    /* an input that nobody bound; a buffer too small; a binding past its buffer's end */
    assert_int_equal(p.be->context_bind(ctx[1], 0, second + 1, 1, sizeof(mn_binding), &err),
                     MN_INVALID);
    assert_int_equal(mn_usual_execute(p.be, ctx[1], 0, t_max, NULL, &err), MN_INVALID);
    second[0].bytes = D * 4;
    assert_int_equal(p.be->context_bind(ctx[1], 0, second, 2, sizeof(mn_binding), &err), MN_OK);
    assert_int_equal(mn_usual_execute(p.be, ctx[1], 0, t_max, NULL, &err), MN_INVALID);
    second[0].offset = c->bytes[x];
    assert_int_equal(p.be->context_bind(ctx[1], 0, second, 2, sizeof(mn_binding), &err),
                     MN_INVALID);
    /* nothing wanted, nothing run */
    assert_int_equal(p.be->context_bind(ctx[0], 0, first, 1, sizeof(mn_binding), &err), MN_OK);
    assert_int_equal(mn_usual_execute(p.be, ctx[0], 0, t_max, NULL, &err), MN_OK);
    p.be->abort(p.queue);
    assert_int_equal(mn_usual_execute(p.be, ctx[0], 0, t_max, NULL, &err), MN_CANCELLED);
    for (int i = 0; i < 2; i++) {
        p.be->context_free(ctx[i]);
        p.be->program_free(prog[i]);
    }
    p.be->queue_free(p.queue);
    assert_int_equal(mn_usual_queue(p.be, p.dev, &p.queue, &err), MN_OK);
    p.be->weights_free(w);
    p.be->buffer_free(bx);
    p.be->buffer_free(bm);
    p.be->buffer_free(by);
    case_free(c);
}

/* The arena holds what lives at one time, not everything. */
static void test_estimate(void **state) {
    (void)state;
    op_case *c = chain();
    mn_compile a = ask(c);
    mn_estimate e = {.size = sizeof e};
    assert_int_equal(p.be->estimate(p.dev, &a, &e, NULL), MN_OK);
    assert_true(e.weights == 0);
    assert_true(e.precision == MN_PRECISION_EXACT);
    assert_true(e.row_grain == 1);
    assert_true(e.flags == MN_ESTIMATE_DETERMINISTIC);
    a.precision = MN_PRECISION_A8;
    assert_int_equal(p.be->estimate(p.dev, &a, &e, NULL), MN_OK);
    assert_int_equal(e.flags, 0);
    a.precision = MN_PRECISION_EXACT;
    /* a tensor is 8 MiB; of nine at most three live at one time */
    const int64_t many[1] = {1 << 16};
    a.symbol_max = many;
    assert_int_equal(p.be->estimate(p.dev, &a, &e, NULL), MN_OK);
    assert_true(e.scratch >= 3u << 23);
    assert_true(e.scratch < (3u << 23) + (1u << 20));
    op_case *empty = case_new();
    mn_compile none = ask(empty);
    mn_estimate e0 = {.size = offsetof(mn_estimate, weights)};
    assert_int_equal(p.be->estimate(p.dev, &none, &e0, NULL), MN_OK);
    assert_int_equal(e0.size, offsetof(mn_estimate, weights)); /* R4 */
    case_free(c);
    case_free(empty);
}

static void test_weight_errors(void **state) {
    (void)state;
    op_case *c = chain();
    mn_compile a = ask(c);
    mn_weights *w;
    mn_plane plane;
    uint32_t kept;
    ERR(err);
    assert_int_equal(p.be->weights_open(p.dev, &a, &w, &err), MN_OK);
    mn_weight_src s = source(c, 1, &plane);
    s.dtype.id = MN_F16;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "w0"));
    s = source(c, 1, &plane);
    plane.dtype = MN_BF16;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s = source(c, 1, &plane);
    plane.dim[1]--;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s = source(c, 1, &plane);
    plane.dim[0]--;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s = source(c, 1, &plane);
    plane.bytes--;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s = source(c, 1, &plane);
    plane.stride[0] = INT64_MAX;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s = source(c, 1, &plane);
    s.tensor = 0;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s.tensor = 1000;
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    s = source(c, 1, &plane);
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_OK);
    assert_int_equal(p.be->weights_put(w, p.queue, &s, NULL, &err), MN_INVALID);
    assert_int_equal(p.be->weights_seal(w, p.queue, &kept, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "missing"));
    mn_program *prog;
    a.weights = w;
    assert_int_equal(p.be->compile(p.dev, &a, &prog, &err), MN_INVALID);
    p.be->weights_free(w);
    case_free(c);
}

/* One LINEAR whose weight comes transposed, in parts, with gaps between rows, or at an odd address:
 * the same result. */
static void test_weight_layouts(void **state) {
    (void)state;
    op_shape shape = {
        .rows = 2,
        .k = 8,
        .n = 6,
    };
    op_case *c = case_random(MN_OP_LINEAR, MN_F32, &shape, 3);
    h_run(&p, c, MN_PRECISION_EXACT);
    float *w = c->data[1];
    float transposed[48];
    float gaps[6 * 10 + 1];
    for (int r = 0; r < 6; r++)
        for (int k = 0; k < 8; k++)
            transposed[k * 6 + r] = gaps[r * 10 + k] = w[r * 8 + k];
    char odd[48 * 4 + 1];
    char second[24 * 4];
    memcpy(odd + 1, w, 48 * 4);
    memcpy(second, w + 24, 24 * 4);
    mn_plane cases[5][2] = {
        {{transposed, 192, MN_PLANE_DATA, MN_F32, {6, 8}, {4, 24}}},
        {{gaps, 58 * 4, MN_PLANE_DATA, MN_F32, {6, 8}, {40, 4}}},
        {{odd + 1, 192, MN_PLANE_DATA, MN_F32, {6, 8}, {32, 4}}},
        {{w, 96, MN_PLANE_DATA, MN_F32, {3, 8}, {32, 4}},
         {second, 96, MN_PLANE_DATA, MN_F32, {3, 8}, {32, 4}}},
        {{w, 96, MN_PLANE_DATA, MN_F32, {3, 8}, {32, 4}},
         {w + 24, 96, MN_PLANE_DATA, MN_F32, {3, 8}, {32, 4}}},
    };
    const uint32_t kept_as[5] = {MN_KEPT_COPIED, MN_KEPT_ALIASED, MN_KEPT_COPIED, MN_KEPT_COPIED,
                                 MN_KEPT_ALIASED};
    for (int i = 0; i < 5; i++) {
        mn_compile a = {
            .size = sizeof a,
            .precision = MN_PRECISION_EXACT,
            .graph = &c->g,
            .node_hi = 1,
            .symbol_max = c->value,
        };
        mn_weight_src s = {sizeof s,         1, i < 3 ? 1 : 2, 1,
                           sizeof(mn_plane), 0, cases[i],      c->t[1].dtype};
        uint32_t kept = 0;
        mn_program *prog;
        mn_context *ctx;
        mn_buffer *bx;
        mn_buffer *by;
        float y[12];
        ERR(err);
        assert_int_equal(p.be->weights_open(p.dev, &a, &a.weights, &err), MN_OK);
        if (p.be->weights_put(a.weights, p.queue, &s, NULL, &err))
            fail_msg("%s", err.msg);
        assert_int_equal(p.be->weights_seal(a.weights, p.queue, &kept, &err), MN_OK);
        assert_int_equal(kept, kept_as[i]);
        assert_int_equal(p.be->compile(p.dev, &a, &prog, &err), MN_OK);
        assert_int_equal(mn_usual_context(p.be, prog, p.queue, &ctx, &err), MN_OK);
        p.be->wrap(p.dev, c->data[0], c->bytes[0], &bx, &err);
        p.be->wrap(p.dev, y, sizeof y, &by, &err);
        mn_binding b[2] = {{0, 0, bx, 0, c->bytes[0]}, {2, 0, by, 0, sizeof y}};
        assert_int_equal(p.be->context_bind(ctx, 0, b, 2, sizeof b[0], &err), MN_OK);
        assert_int_equal(mn_usual_execute(p.be, ctx, 0, c->value, NULL, &err), MN_OK);
        assert_memory_equal(y, c->result[2], sizeof y);
        p.be->context_free(ctx);
        p.be->program_free(prog);
        p.be->weights_free(a.weights);
        p.be->buffer_free(bx);
        p.be->buffer_free(by);
    }
    case_free(c);
}

/* Two parts of an F8 matrix [6, 8]: their scales lie alike, or are refused; a shared scale in the
 * one and a scale for each row in the other would be read behind its end. */
static void test_weight_scales(void **state) {
    (void)state;
    op_shape shape = {
        .rows = 1,
        .k = 8,
        .n = 6,
    };
    op_case *c = case_random(MN_OP_LINEAR, MN_F8_E4M3, &shape, 3);
    float scales[3] = {1, 2, 3};
    const uint8_t *w = c->data[1];
    static const struct {
        uint32_t dtype;
        int64_t stride[2];
        int64_t bytes;
        mn_status want;
    } list[] = {{MN_F32, {4, 4}, 12, MN_OK},
                {MN_F32, {4, 0}, 12, MN_INVALID},
                {MN_F32, {0, 4}, 12, MN_INVALID},
                {MN_F32, {0, 0}, 4, MN_OK},
                {MN_BF16, {4, 4}, 12, MN_INVALID}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        mn_plane planes[4];
        ERR(err);
        for (int k = 0; k < 2; k++) {
            planes[2 * k] = (mn_plane){w + 24 * k, 24, MN_PLANE_DATA, MN_F8_E4M3, {3, 8}, {8, 1}};
            planes[2 * k + 1] = (mn_plane){
                scales, (uint64_t)list[i].bytes, MN_PLANE_SCALE, k ? list[i].dtype : MN_F32,
                {3},    {list[i].stride[k]}};
        }
        mn_compile a = {
            .size = sizeof a,
            .precision = MN_PRECISION_EXACT,
            .graph = &c->g,
            .node_hi = 1,
            .symbol_max = c->value,
        };
        mn_weight_src s = {sizeof s, 1, 2, 2, sizeof *planes, 0, planes, c->t[1].dtype};
        assert_int_equal(p.be->weights_open(p.dev, &a, &a.weights, &err), MN_OK);
        assert_int_equal(p.be->weights_put(a.weights, p.queue, &s, NULL, &err), list[i].want);
        if (list[i].want)
            assert_non_null(strstr(err.msg, "scales of part 1"));
        p.be->weights_free(a.weights);
    }
    case_free(c);
}

/* The memory of nodes [lo, hi), with these types. */
static void remember(op_case *c, mn_compile *a, uint32_t k_dtype, uint32_t v_dtype) {
    const mn_node_range nodes = {a->node_lo, a->node_hi};
    mn_memory_uses_free(&c->memory);
    assert_true(mn_memory_uses_find(&c->g, &nodes, 1, k_dtype, v_dtype, &c->memory));
    mn_memory_uses_give(&c->memory, a);
}

/* A page has the layers of mn_compile.memory; pages are copied whole. */
static void test_kv(void **state) {
    (void)state;
    op_case *c = case_new();
    int32_t k = case_cube(c, MN_ROLE_INPUT, MN_F32, 2, 2, 4, NULL, "k");
    int32_t i = case_vec(c, MN_ROLE_INPUT, MN_I32, 2, NULL, "i");
    int32_t pg = case_mat(c, MN_ROLE_INPUT, MN_I32, 1, 1, NULL, "pages");
    int32_t kv = case_kv(c, MN_F32, 1);
    for (uint64_t l = 0; l < 4; l++)
        case_node(c, MN_OP_KV_STORE, (const int32_t[]){k, k, i, i, pg, kv}, 6, NULL, 0,
                  (const uint64_t[]){l, l & 1}, 2);
    mn_compile a = {
        .size = sizeof a,
        .precision = MN_PRECISION_EXACT,
        .graph = &c->g,
        .node_hi = 4,
        .symbol_max = c->value,
    };
    remember(c, &a, MN_F32, MN_F32);
    mn_memory_layout l = {.size = sizeof l};
    ERR(err);
    assert_int_equal(p.be->memory_layout(p.dev, &a, 0, &l, &err), MN_OK);
    assert_true(l.page_tokens == 64);
    assert_true(l.page_bytes == 2 * 2 * 64 * 2 * 4 * 4);
    a.node_lo = 2;
    remember(c, &a, MN_F16, MN_F16);
    assert_int_equal(p.be->memory_layout(p.dev, &a, 1, &l, &err), MN_OK);
    assert_int_equal(l.page_bytes, 2 * 64 * 2 * 4 * 2);
    assert_int_equal(p.be->memory_layout(p.dev, &a, 7, &l, &err), MN_INVALID);
    remember(c, &a, MN_Q8_0, MN_F16); /* heads of 4 are a block of 32 */
    assert_int_equal(p.be->memory_layout(p.dev, &a, 1, &l, &err), MN_OK);
    assert_int_equal(l.page_bytes, 64 * 2 * (34 + 4 * 2));
    remember(c, &a, MN_Q4_0, MN_F16);
    assert_int_equal(p.be->memory_layout(p.dev, &a, 1, &l, &err), MN_UNSUPPORTED);
    remember(c, &a, MN_F16, MN_F16);
    assert_int_equal(p.be->memory_layout(p.dev, &a, 1, &l, &err), MN_OK);
    mn_buffer *b;
    uint8_t *bytes;
    b = new_buffer(3 * l.page_bytes);
    p.be->map(b, (void **)&bytes, &err);
    memset(bytes, 7, l.page_bytes);
    mn_page_copy copies[2] = {{0, 2, 10, 0}, {2, 3, 1, 0}};
    assert_int_equal(p.be->memory_copy(p.queue, b, &l, copies, 1, sizeof copies[0], NULL, &err),
                     MN_OK);
    assert_true(bytes[2 * l.page_bytes] == 7);
    assert_true(bytes[l.page_bytes] == 0);
    assert_int_equal(p.be->memory_copy(p.queue, b, &l, copies, 2, sizeof copies[0], NULL, &err),
                     MN_INVALID);
    p.be->buffer_free(b);
    case_free(c);
}

static void test_verdicts(void **state) {
    (void)state;
    op_shape s = {
        .rows = 2,
        .k = 256,
        .n = 4,
    };
    op_case *c = case_random(MN_OP_LINEAR, MN_F32, &s, 1);
    mn_verdict v;
    char why[128];
    ERR(err);
    v = judged(c);
    assert_int_equal(v.verdict, MN_VERDICT_NATIVE);
    c->t[1].dtype = (mn_dtype){MN_I8, 1, 1, 1};
    v = judged(c);
    assert_int_equal(v.verdict, MN_VERDICT_NO);
    assert_int_equal(p.be->reason(p.api->self, v.reason, why, sizeof why), MN_OK);
    assert_non_null(strstr(why, "weight type"));
    mn_compile a = {
        .size = sizeof a,
        .precision = MN_PRECISION_EXACT,
        .graph = &c->g,
        .node_hi = 1,
        .symbol_max = c->value,
    };
    mn_estimate e = {.size = sizeof e};
    assert_int_equal(p.be->estimate(p.dev, &a, &e, &err), MN_UNSUPPORTED);
    assert_int_equal(err.node, 0);
    c->n[0].contract = 2;
    v = judged(c);
    assert_int_equal(v.verdict, MN_VERDICT_NO);
    case_free(c);
}

static void test_device(void **state) {
    (void)state;
    mn_device_info a = {.size = sizeof a};
    mn_device_info b = {.size = sizeof b};
    uint32_t n;
    ERR(err);
    assert_int_equal(p.be->device_count(p.api->self, &n, &err), MN_OK);
    assert_int_equal(n, 1);
    assert_int_equal(p.be->device_info(p.api->self, 0, &a, &err), MN_OK);
    assert_int_equal(p.be->device_info(p.api->self, 0, &b, &err), MN_OK);
    assert_int_equal(p.be->device_info(p.api->self, 1, &b, &err), MN_NO_DEVICE);
    assert_true(a.mem_total > 0);
    assert_true(a.mem_free <= a.mem_total);
    assert_true(a.name[0]);
    assert_true(!strcmp(a.uid, b.uid));
    assert_true(a.flags & MN_DEVICE_ORACLE);
    uint64_t left = 0;
    uint64_t total = 0;
    assert_int_equal(p.be->device_memory(p.dev, &left, &total, &err), MN_OK);
    assert_true(left > 0);
    assert_true(left <= total);
    assert_true(total == a.mem_total);
    assert_int_equal(p.be->self_test(p.dev, &err), MN_OK);
    mn_host old = h_host;
    mn_entry_fn entry;
    *(void **)&entry = dlsym(p.so, MN_ENTRY_NAME);
    old.abi = MN_ABI(0, 2);
    assert_null(entry(&old, &err));
    assert_int_equal(err.status, MN_UNSUPPORTED);
    mn_buffer *buf;
    assert_int_equal(mn_usual_alloc(p.be, p.dev, 8, MN_MEM_DEVICE, &buf, &err), MN_OK);
    assert_int_equal(p.be->write(p.queue, buf, 4, "12345", 5, &err), MN_INVALID);
    assert_int_equal(p.be->write(p.queue, buf, UINT64_MAX, "12345", 5, &err), MN_INVALID);
    p.be->buffer_free(buf);
    assert_int_equal(mn_usual_alloc(p.be, p.dev, UINT64_MAX, MN_MEM_DEVICE, &buf, &err),
                     MN_OUT_OF_MEMORY);
}

/* Every allocation of a whole run fails once; the error is memory's and nothing stays behind. */
static void test_out_of_memory(void **state) {
    (void)state;
    op_shape s = {
        .rows = 4,
        .n_head = 2,
        .n_head_kv = 1,
        .dim = 8,
        .past = 3,
        .kv_dtype = MN_F16,
    };
    op_case *cases[2] = {chain(), case_random(MN_OP_ATTENTION, MN_F32, &s, 1)};
    for (int i = 0; i < 2; i++) {
        int64_t k = 0;
        int64_t live = h_host_live();
        for (mn_status st = MN_OUT_OF_MEMORY; st; k++) {
            ERR(err);
            h_host_fail_after(k);
            st = h_try(&p, cases[i], MN_PRECISION_EXACT, &err);
            h_host_fail_after(-1);
            if (st)
                assert_int_equal(st, MN_OUT_OF_MEMORY);
            if (st)
                assert_non_null(strstr(err.msg, "out of memory"));
            assert_int_equal(h_host_live(), live);
            assert_true(k < 1000);
        }
        assert_true(k > 20);
        case_free(cases[i]);
    }
}

/* Pages of this process that are in memory. */
static long resident_pages(void) {
    long all = 0;
    long resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &all, &resident), 2);
    fclose(f);
    return resident;
}

/* A large buffer is zero, and takes memory where it is used alone. */
static void test_large_buffer(void **state) {
    (void)state;
    ERR(err);
    mn_buffer *b = NULL;
    void *at = NULL;
    const uint64_t bytes = (uint64_t)1 << 30;
    const long before = resident_pages();
    assert_int_equal(mn_usual_alloc(p.be, p.dev, bytes, MN_MEM_DEVICE, &b, &err), MN_OK);
    assert_int_equal(p.be->map(b, &at, &err), MN_OK);
    const uint8_t *all = at;
    for (uint64_t i = 0; i < bytes; i += bytes / 16)
        assert_int_equal(all[i], 0);
    assert_int_equal(all[bytes - 1], 0);
    assert_true(resident_pages() - before < (64 << 20) / 4096);
    p.be->buffer_free(b);
    assert_true(resident_pages() - before < (64 << 20) / 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_and_symbols),
        cmocka_unit_test(test_estimate),
        cmocka_unit_test(test_weight_errors),
        cmocka_unit_test(test_weight_layouts),
        cmocka_unit_test(test_weight_scales),
        cmocka_unit_test(test_kv),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_large_buffer),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
