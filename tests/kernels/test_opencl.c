/* test_opencl.c -- the OpenCL plugin through its table against reference, on the first device that
 * the machine's drivers show: PoCL in the gate. Without a driver everything is skipped. Shapes are
 * few, since each weight type is compiled by the driver. */
#include "harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One type of each file of kernels, and one that is unpacked at import; `plugins check` has all. */
static const uint32_t types[] = {MN_F32,     MN_Q8_0,  MN_Q4_K, MN_IQ4_XS,
                                 MN_MLX3_64, MN_IQ3_S, MN_NVFP4};
enum { N_TYPES = sizeof types / sizeof *types, N_FLOAT = 1 };

/* k for a type: of packed types whole blocks of 256. */
static int64_t width(int t, int64_t any) {
    return t < N_FLOAT ? any : (any + 255) / 256 * 256;
}

static void near(uint32_t op, uint32_t type, op_shape s, double most) {
    const double e = h_compare("opencl", "reference", op, type, &s, MN_PRECISION_EXACT);
    assert_true(e >= 0);
    if (!(e <= most))
        print_message("op %u type %u rows %d k %d n %d variant %d heads %d/%d dim %d past %d: %g\n",
                      op, type, (int)s.rows, (int)s.k, (int)s.n, (int)s.variant, (int)s.n_head,
                      (int)s.n_head_kv, (int)s.dim, (int)s.past, e);
    assert_true(e <= most);
}

/* Skips on a machine without the driver, and in a build without the plugin; fails where a driver
 * shows no device. */
static void needs_device(void) {
    const char *driver = getenv("OCL_ICD_VENDORS");
    h_plugin p;
    if (h_open(&p, "opencl")) {
        h_close(&p);
        return;
    }
    if (h_built("opencl") && driver && !access(driver, R_OK))
        fail_msg("%s shows no OpenCL device", driver);
    print_message("no OpenCL device (PoCL: pocl-opencl-icd): skipped\n");
    skip();
}

static void linear(void **state) {
    static const int64_t rows[] = {1, 9};
    (void)state;
    needs_device();
    for (int t = 0; t < N_TYPES; t++)
        for (int r = 0; r < 2; r++) {
            const op_shape s = {.rows = rows[r], .k = width(t, 1037), .n = 37, .variant = 2};
            near(MN_OP_LINEAR, types[t], s, 1e-5);
        }
    near(MN_OP_LINEAR, MN_F16, (op_shape){.rows = 5, .k = 50, .n = 1}, 1e-4);
}

static void experts(void **state) {
    static const uint32_t some[] = {MN_F32, MN_Q4_K, MN_MXFP4, MN_MLX4_64};
    (void)state;
    needs_device();
    for (int t = 0; t < 4; t++)
        for (int v = 0; v < 5; v++) {
            const op_shape s = {.rows = v + 1,
                                .k = t ? 256 : 160,
                                .n = 24,
                                .n_expert = 8,
                                .n_used = 3,
                                .variant = v < 4 ? v : 11}; /* with RESIDENT */
            near(MN_OP_MOE_LINEAR, some[t], s, 1e-5);
        }
    for (int64_t e = 4; e <= 300; e *= 4) {
        op_shape s = {.rows = 3, .k = 77, .n = 10, .n_expert = e, .n_used = 3};
        for (s.variant = 0; s.variant < (e > 4 ? 32 : 16); s.variant++)
            if (s.variant % 4 < 3)
                near(MN_OP_MOE_ROUTE, MN_F32, s, 1e-5);
        for (s.variant = 0; s.variant < 8; s.variant++)
            near(MN_OP_MOE_COMBINE, MN_F32, s, 1e-5);
    }
}

static void attention(void **state) {
    static const op_shape shapes[] = {
        {.rows = 1, .n_head = 8, .n_head_kv = 2, .dim = 64, .past = 0},
        {.rows = 1, .n_head = 6, .n_head_kv = 1, .dim = 32, .past = 1300},
        {.rows = 33, .n_head = 4, .n_head_kv = 4, .dim = 20, .past = 70},
        {.rows = 3, .n_head = 2, .n_head_kv = 2, .dim = 256, .past = 100},
        {.rows = 21, .n_head = 8, .n_head_kv = 4, .dim = 64, .past = 100, .n_seqs = 7}};
    (void)state;
    needs_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 8; v++) {
            op_shape s = shapes[i];
            s.variant = v;
            near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
            s.kv_dtype = MN_Q8_0;
            near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
            s.v_dtype = MN_F16;
            near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
        }
}

/* What contracts 4 and 5 bring: rows of another text, biases by distance, trees, relative keys and
 * queries, alone and with what goes together with them. */
static void distances(void **state) {
    static const op_shape shapes[] = {
        {.rows = 1, .n_head = 6, .n_head_kv = 1, .dim = 32, .past = 300},
        {.rows = 33, .n_head = 4, .n_head_kv = 4, .dim = 20, .dim_v = 12, .past = 70},
        {.rows = 70, .n_head = 3, .n_head_kv = 3, .dim = 64, .past = 0},
        {.rows = 21, .n_head = 8, .n_head_kv = 4, .dim = 80, .past = 100, .n_seqs = 7}};
    static const int variants[] = {128,
                                   128 + 256 + 16 + 6,
                                   128 + 32,
                                   256,
                                   256 + 7,
                                   256 + 8,
                                   256 + 9,
                                   512,
                                   512 + 256 + 32 + 16 + 6,
                                   1024,
                                   1024 + 2048 + 8,
                                   2048 + 8,
                                   2048 + 64,
                                   1024 + 2048 + 16 + 7};
    (void)state;
    needs_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            op_shape s = shapes[i];
            s.variant = variants[v];
            near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
            s.kv_dtype = v % 2 ? MN_Q8_0 : MN_F16;
            near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
        }
}

/* What latent attention has beside: values that are the first part of keys, products of heads with
 * a matrix each, norms of a part of a row; and columns of another table. */
static void latent(void **state) {
    static const op_shape shapes[] = {
        {.rows = 1, .n_head = 6, .n_head_kv = 1, .dim = 576, .dim_v = 512, .past = 300},
        {.rows = 9, .n_head = 4, .n_head_kv = 1, .dim = 96, .dim_v = 64, .past = 70}};
    (void)state;
    needs_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        op_shape s = shapes[i];
        s.variant = 32;
        near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
        s.kv_dtype = MN_F16;
        near(MN_OP_ATTENTION, MN_F32, s, 1e-5);
    }
    for (int64_t rows = 1; rows <= 9; rows += 4) {
        static const uint32_t some[] = {MN_F32, MN_BF16, MN_Q8_0, MN_Q4_K};
        const op_shape part = {.rows = rows, .k = 77, .variant = 2};
        for (int t = 0; t < 4; t++) {
            const op_shape heads = {.rows = rows, .k = 256, .n = 53, .variant = 4};
            near(MN_OP_LINEAR, some[t], heads, 1e-5);
        }
        near(MN_OP_RMS_NORM, MN_F32, part, 1e-5);
    }
    for (int t = 0; t < N_TYPES; t++) {
        op_shape s = {.rows = 7, .k = width(t, 77), .n = 53};
        for (s.variant = 0; s.variant < 2; s.variant++)
            near(MN_OP_LOOKUP, types[t], s, 1e-6);
    }
}

static void small_ops(void **state) {
    static const int64_t rows[] = {1, 7, 33};
    (void)state;
    needs_device();
    for (int t = 0; t < N_TYPES; t++) {
        op_shape s = {.rows = rows[t % 3], .k = width(t, 77), .n = 53};
        for (s.variant = 0; s.variant < 2; s.variant++)
            near(MN_OP_EMBED, types[t], s, 1e-6);
        s.variant = 0;
        if (t >= N_FLOAT)
            continue;
        near(MN_OP_RMS_NORM, types[t], s, 1e-5);
        near(MN_OP_LAYER_NORM, types[t], s, 1e-5);
        s.n_head = 3;
        near(MN_OP_RMS_NORM, types[t], s, 1e-5);
    }
    for (int r = 0; r < 3; r++) {
        op_shape s = {
            .rows = rows[r], .k = 700 + r, .n = 300, .n_head = 3, .dim = 64, .past = 5000};
        for (s.variant = 0; s.variant < 8; s.variant++) {
            if (s.variant < 4)
                near(MN_OP_ACT, 0, s, 1e-5);
            near(MN_OP_GLU, 0, s, 1e-5);
            if (s.variant < 2)
                near(MN_OP_ROPE, 0, s, 1e-5);
        }
        static const uint32_t plain[] = {MN_OP_ADD,     MN_OP_MUL,         MN_OP_SCALE,
                                         MN_OP_SOFTCAP, MN_OP_GATHER_ROWS, MN_OP_SAMPLE};
        for (s.variant = 0; s.variant < 6; s.variant++)
            near(plain[s.variant], 0, s, 1e-5);
    }
}

/* Matrices in several buffers give what they give in one; a row alone, few and many, all planes. */
static void parts(void **state) {
    (void)state;
    needs_device();
    for (int t = 0; t < N_TYPES; t++) {
        const op_shape matrix = {.rows = 1 + t % 3 * 4, .k = width(t, 517), .n = 41, .variant = 1};
        const op_shape experts = {
            .rows = 3, .k = 256, .n = 24, .n_expert = 8, .n_used = 3, .variant = 1};
        const op_shape ids = {.rows = 7, .k = width(t, 77), .n = 53};
        for (int kib = 1; kib <= 16; kib *= 4) {
            char text[8];
            snprintf(text, sizeof text, "%d", kib);
            h_host_option("buffer_kib", text);
            near(MN_OP_LINEAR, types[t], matrix, 1e-5);
            near(MN_OP_MOE_LINEAR, types[t], experts, 1e-5);
            near(MN_OP_EMBED, types[t], ids, 1e-6);
        }
    }
    h_host_option(NULL, NULL);
}

/* Products of many rows by sub-groups of 8 and of 16 items that multiply matrices, emulated: whole
 * tiles and parts of them, types whose codes halves hold and others. */
static void matrices_of_sub_groups(void **state) {
    static const struct {
        const char *items;
        uint32_t type;
    } some[] = {
        {"8", MN_F16}, {"8", MN_Q4_K}, {"16", MN_Q8_0}, {"16", MN_MXFP4}, {"16", MN_MLX3_64}};
    static const op_shape shapes[] = {{.rows = 33, .k = 512, .n = 61, .variant = 1},
                                      {.rows = 128, .k = 256, .n = 130}};
    (void)state;
    needs_device();
    for (int t = 0; t < 5; t++) {
        h_host_option("mad", some[t].items);
        for (int i = 0; i < 2; i++)
            near(MN_OP_LINEAR, some[t].type, shapes[i], 2e-6);
    }
    h_host_option(NULL, NULL);
}

/* The products [rows, n] of rows of x with a matrix, by the plugin. */
static float *products(const char *plugin, uint32_t type, int rows, int k, int n, const float *x,
                       const void *w) {
    const size_t bytes = sizeof(float) * (size_t)rows * (size_t)n;
    h_plugin p;
    float *y = malloc(bytes);
    assert_true(h_open(&p, plugin));
    op_case *c = case_new();
    const int32_t in[3] = {case_mat(c, MN_ROLE_INPUT, MN_F32, rows, k, x, "x"),
                           case_mat(c, MN_ROLE_WEIGHT, type, n, k, w, "w"), -1};
    const int32_t out = case_mat(c, MN_ROLE_OUTPUT, MN_F32, rows, n, NULL, "y");
    case_node(c, MN_OP_LINEAR, in, 3, &out, 1, NULL, 0);
    h_run(&p, c, MN_PRECISION_EXACT);
    memcpy(y, c->result[out], bytes);
    case_free(c);
    h_close(&p);
    return y;
}

/* Rows with elements beyond the 65,504 of halves, each held beside reference: of 1e6 among others,
 * of 3e30 alone and on all places, and rows around them whose bits must not change. */
static void beyond_halves(const char *items, uint32_t type, int rows, int k, int n) {
    enum { LARGE = 7 };
    const int huge_row = rows - 4;
    const int full_row = rows - 3;
    float *x = malloc(sizeof *x * (size_t)(rows * k));
    void *w = malloc(case_weight_bytes(type, n, k));
    uint64_t seed = 5;
    for (int i = 0; i < rows * k; i++)
        x[i] = case_rand(&seed);
    case_random_weight(type, n, k, &seed, w);
    h_host_option("mad", items);
    float *plain = products("opencl", type, rows, k, n, x, w);
    for (int r = 0; r < rows; r += LARGE) {
        x[r * k + 17 * r % k] = 1e6f;
        x[r * k + 29 * r % k + 1] = -70000;
    }
    x[huge_row * k + k - 5] = -3e30f;
    for (int i = 0; i < k; i++)
        x[full_row * k + i] *= 3e30f;
    float *got = products("opencl", type, rows, k, n, x, w);
    float *want = products("reference", type, rows, k, n, x, w);
    for (int r = 0; r < rows; r++) {
        const bool changed = r % LARGE == 0 || r == huge_row || r == full_row;
        const double e = case_rel_l2(got + r * n, want + r * n, n);
        if (!(e <= 2e-6))
            fail_msg("type %u, %s items, %d rows, row %d: relative error %g", type, items, rows, r,
                     e);
        if (!changed)
            assert_memory_equal(got + r * n, plain + r * n, sizeof *got * (size_t)n);
    }
    h_host_option(NULL, NULL);
    free(x);
    free(w);
    free(plain);
    free(got);
    free(want);
}

static void large_activations(void **state) {
    (void)state;
    needs_device();
    /* tensor cores, where there are some: of few rows, of pieces, of many tiles */
    beyond_halves("0", MN_Q8_0, 20, 512, 61);
    beyond_halves("0", MN_F16, 70, 512, 61);
    beyond_halves("0", MN_Q4_K, 70, 512, 61);
    beyond_halves("0", MN_F16, 70, 96, 4200);
    beyond_halves("8", MN_F16, 70, 512, 61);
    beyond_halves("8", MN_Q4_K, 70, 512, 61);
    beyond_halves("16", MN_Q8_0, 70, 512, 61);
    beyond_halves("16", MN_MLX3_64, 70, 512, 61);
}

/* One draw: logits of V ids, the same parameters, history and position. */
static int32_t drawn(const char *plugin, int V, const mn_slot_params *params, uint64_t seed,
                     float spread) {
    h_plugin p;
    assert_true(h_open(&p, plugin));
    float *l = malloc(sizeof *l * (size_t)V);
    int32_t history[64];
    int32_t slot = 0;
    for (int i = 0; i < V; i++)
        l[i] = spread * (case_rand(&seed) + case_rand(&seed) + case_rand(&seed));
    for (int i = 0; i < V; i += 7)
        l[i] = (float)(int)l[i]; /* ties */
    for (int i = 0; i < 64; i++)
        history[i] = (int32_t)((uint64_t)i * 37 % (uint64_t)V);
    mn_slot state = {.last_id = 3, .pos = 40, .n_drawn = 5};
    op_case *c = case_new();
    const int32_t in[6] = {case_mat(c, MN_ROLE_INPUT, MN_F32, 1, V, l, "logits"),
                           case_vec(c, MN_ROLE_INPUT, MN_I32, 1, &slot, "out_slot"),
                           case_state(c, params, sizeof *params, 1, "params"),
                           case_state(c, &state, sizeof state, 1, "slots"),
                           case_mat(c, MN_ROLE_STATE, MN_I32, 1, 64, history, "history"),
                           -1};
    const int32_t out[3] = {case_vec(c, MN_ROLE_OUTPUT, MN_I32, 1, NULL, "ids"), -1, -1};
    case_node(c, MN_OP_SAMPLE, in, 6, out, 3, NULL, 0);
    h_run(&p, c, MN_PRECISION_EXACT);
    const int32_t id = *(int32_t *)c->result[out[0]];
    const mn_slot *after = c->result[in[3]];
    assert_int_equal(after->last_id, id);
    assert_int_equal(after->n_drawn, 6);
    case_free(c);
    h_close(&p);
    free(l);
    return id;
}

static void sampling(void **state) {
    static const mn_slot_params settings[] = {
        {.temp = 0},
        {.temp = 1},
        {.temp = 0.7f, .top_k = 40},
        {.temp = 1.3f, .top_p = 0.9f},
        {.temp = 1, .min_p = 0.05f},
        {.temp = 0.8f,
         .top_k = 40,
         .top_p = 0.95f,
         .min_p = 0.05f,
         .repeat_penalty = 1.1f,
         .penalty_last_n = 20},
        {.repeat_penalty = 1.3f, .frequency_penalty = 0.5f, .penalty_last_n = -1},
        {.temp = 1, .top_k = 1},
        {.temp = 2,
         .top_p = 0.5f,
         .repeat_penalty = 1.2f,
         .frequency_penalty = 0.1f,
         .penalty_last_n = 64},
        {.temp = 0.3f,
         .top_k = 7,
         .top_p = 0.999f,
         .min_p = 0.001f,
         .frequency_penalty = 0.2f,
         .penalty_last_n = 10}};
    static const int sizes[] = {300, 5003, 32000};
    (void)state;
    needs_device();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            mn_slot_params p = settings[i];
            p.seed = seed * 77;
            const float spread = seed == 2 ? 1 : 3;
            const int32_t got = drawn("opencl", sizes[seed - 1], &p, seed, spread);
            const int32_t want = drawn("reference", sizes[seed - 1], &p, seed, spread);
            if (got != want)
                print_message("settings %d, seed %d: %d, reference %d\n", (int)i, (int)seed, got,
                              want);
            assert_int_equal(got, want);
        }
}

/* The same rows alone and among others: the same bits in class exact. */
static void batch_invariance(void **state) {
    static const uint32_t some[] = {MN_F32, MN_F16, MN_Q8_0};
    (void)state;
    needs_device();
    for (int t = 0; t < 3; t++)
        assert_int_equal(h_batch_invariant("opencl", some[t]), 1);
}

/* test_opencl [NAME]: one test alone; * stands for any text. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_ops),
                                       cmocka_unit_test(linear),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(attention),
                                       cmocka_unit_test(distances),
                                       cmocka_unit_test(latent),
                                       cmocka_unit_test(sampling),
                                       cmocka_unit_test(batch_invariance),
                                       cmocka_unit_test(parts),
                                       cmocka_unit_test(matrices_of_sub_groups),
                                       cmocka_unit_test(large_activations)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
