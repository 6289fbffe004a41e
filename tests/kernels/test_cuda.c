/* test_cuda.c -- the CUDA plugin through its table against reference. Run by tools/gpu_tests.sh on
 * a machine with a GPU. */
#include "harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every form in which weights lie on the device, and some types that are unpacked at import; behind
 * N_FORMS types that share a form with one before. */
static const uint32_t types[] = {
    MN_F32,         MN_F16,      MN_BF16,    MN_Q8_0,    MN_Q4_0,        MN_Q4_1,
    MN_Q5_0,        MN_Q5_1,     MN_Q2_K,    MN_Q3_K,    MN_Q4_K,        MN_Q5_K,
    MN_Q6_K,        MN_IQ4_NL,   MN_IQ4_XS,  MN_MXFP4,   MN_MXFP4_SPLIT, MN_MLX4_32,
    MN_MLX4_64,     MN_MLX4_128, MN_MLX8_32, MN_MLX8_64, MN_MLX8_128,    MN_F8_E4M3,
    MN_F8_E4M3_32,  MN_F8_E5M2,  MN_NVFP4,   MN_IQ2_XS,  MN_IQ3_XXS,     MN_IQ3_S,
    MN_IQ1_S,       MN_IQ1_M,    MN_TQ2_0,   MN_MLX2_32, MN_MLX2_64,     MN_MLX3_32,
    MN_MLX3_64,     MN_MLX5_64,  MN_MLX6_32, MN_MLX6_64, MN_Q8_K,        MN_MLX5_32,
    MN_F8_E4M3_128, MN_IQ2_XXS,  MN_IQ2_S,   MN_TQ1_0,   MN_MLX2_128,    MN_MLX3_128,
    MN_MLX5_128,    MN_MLX6_128};
enum { N_TYPES = sizeof types / sizeof *types, N_FLOAT = 3, N_FORMS = 41 };

/* k for a type: of packed types whole blocks of 256. */
static int64_t width(int t, int64_t any) {
    return t < N_FLOAT ? any : (any + 255) / 256 * 256;
}

static void near(uint32_t op, uint32_t type, op_shape s, uint32_t precision, double most) {
    double e = h_compare("cuda", "reference", op, type, &s, precision);
    if (e < 0) {
        print_message("not compared: op %u type %u class %u\n", op, type, precision);
        return;
    }
    if (!(e <= most))
        print_message(
            "op %u type %u class %u rows %d k %d n %d variant %d heads %d/%d dim %d past %d: %g\n",
            op, type, precision, (int)s.rows, (int)s.k, (int)s.n, (int)s.variant, (int)s.n_head,
            (int)s.n_head_kv, (int)s.dim, (int)s.past, e);
    assert_true(e <= most);
}

static void linear(void **state) {
    static const int64_t rows[] = {1, 2, 7, 8, 20, 33, 64, 65};
    /* rows, of several tiles of outputs */
    static const int64_t tiles[] = {2, 8, 20, 64, 96, 128, 200, 300, 512};
    static const int64_t ks[] = {50, 1037, 5632};
    static const int64_t ns[] = {1, 37};
    (void)state;
    for (int t = 0; t < N_FORMS; t++)
        for (int r = 0; r < 8; r++)
            for (int k = 0; k < 3; k++)
                for (int n = 0; n < 2; n++) {
                    op_shape s = {
                        .rows = rows[r], .k = width(t, ks[k]), .n = ns[n], .variant = n ? 2 : 0};
                    /* one output may cancel */
                    near(MN_OP_LINEAR, types[t], s, MN_PRECISION_EXACT, n ? 1e-5 : 1e-4);
                    if (n)
                        near(MN_OP_LINEAR, types[t], s, MN_PRECISION_A16, 5e-3);
                }
    for (int t = 0; t < N_FORMS; t++)
        for (int r = 0; r < 9; r++) {
            op_shape s = {
                .rows = tiles[r],
                .k = width(t, 700),
                .n = 300,
                .variant = 2,
            };
            near(MN_OP_LINEAR, types[t], s, MN_PRECISION_A16, 5e-3);
        }
    for (int t = N_FORMS; t < N_TYPES; t++)
        for (int r = 0; r < 9; r += 4) {
            const op_shape s = {.rows = tiles[r], .k = 768, .n = 300, .variant = 2};
            near(MN_OP_LINEAR, types[t], s, MN_PRECISION_EXACT, 1e-5);
            near(MN_OP_LINEAR, types[t], s, MN_PRECISION_A16, 5e-3);
        }
    near(MN_OP_LINEAR, MN_F16, (op_shape){.rows = 1, .k = 512, .n = 20000}, MN_PRECISION_EXACT,
         1e-5); /* two rows a warp */
    near(MN_OP_LINEAR, MN_Q8_0, (op_shape){.rows = 3, .k = 96, .n = 40}, MN_PRECISION_A16, 5e-3);
    near(MN_OP_LINEAR, MN_MXFP4, (op_shape){.rows = 1, .k = 2880, .n = 40}, MN_PRECISION_A16, 5e-3);
    /* rows that are no whole blocks of 256, of 128, of 32, which are kept as f32 */
    static const struct {
        uint32_t type;
        int64_t k;
    } ends[] = {{MN_F8_E4M3, 224},     {MN_F8_E4M3, 1037}, {MN_NVFP4, 672},    {MN_NVFP4, 1360},
                {MN_F8_E4M3_128, 640}, {MN_MLX2_128, 384}, {MN_MLX6_64, 1216}, {MN_MLX3_32, 992}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int64_t n = 1; n <= 65; n *= 4) {
            const op_shape s = {.rows = n, .k = ends[i].k, .n = 40};
            near(MN_OP_LINEAR, ends[i].type, s, MN_PRECISION_EXACT, 1e-5);
            near(MN_OP_LINEAR, ends[i].type, s, MN_PRECISION_A16, 5e-3);
        }
    /* a matrix that is widened in parts: 138 of 128 MiB */
    near(MN_OP_LINEAR, MN_Q8_0, (op_shape){.rows = 300, .k = 256, .n = 270001}, MN_PRECISION_A16,
         5e-3);
    /* one row, more tiles than blocks: a block has several, in one step of k each and in more */
    static const uint32_t packed[] = {MN_Q4_0,    MN_Q4_K,    MN_Q6_K,  MN_Q8_0,   MN_MXFP4,
                                      MN_MLX4_64, MN_F8_E4M3, MN_NVFP4, MN_IQ2_XS, MN_IQ3_S};
    const op_shape narrow = {.rows = 1, .k = 256, .n = 13000};
    const op_shape wide = {.rows = 1, .k = 5632, .n = 9001};
    /* parts of rows, and more of them than blocks */
    const op_shape parts = {.rows = 200, .k = 256, .n = 18000};
    const op_shape deep = {.rows = 130, .k = 5632, .n = 70};
    for (size_t t = 0; t < sizeof packed / sizeof *packed; t++) {
        near(MN_OP_LINEAR, packed[t], narrow, MN_PRECISION_A16, 5e-3);
        near(MN_OP_LINEAR, packed[t], wide, MN_PRECISION_A16, 5e-3);
        near(MN_OP_LINEAR, packed[t], parts, MN_PRECISION_A16, 5e-3);
        near(MN_OP_LINEAR, packed[t], deep, MN_PRECISION_A16, 5e-3);
    }
}

static void experts(void **state) {
    static const int64_t rows[] = {1, 3, 8, 20, 64, 100, 150, 512};
    static const int variants[] = {0, 1, 2, 3, 8, 11}; /* the last ones with RESIDENT */
    (void)state;
    for (int t = 0; t < N_FORMS; t++)
        for (int r = 0; r < 8; r++)
            for (int v = 0; v < 6; v++) {
                op_shape s = {.rows = rows[r],
                              .k = width(t, 160),
                              .n = r % 2 ? 24 : 150,
                              .n_expert = 8,
                              .n_used = 3,
                              .variant = variants[v]};
                if (rows[r] < 512)
                    near(MN_OP_MOE_LINEAR, types[t], s, MN_PRECISION_EXACT, 1e-5);
                near(MN_OP_MOE_LINEAR, types[t], s, MN_PRECISION_A16, 5e-3);
                if (rows[r] < 100)
                    continue;
                s.n_expert = s.n_used; /* each has all rows, in parts */
                near(MN_OP_MOE_LINEAR, types[t], s, MN_PRECISION_A16, 5e-3);
                s.n_expert = 60; /* each has few, while one may have all */
                near(MN_OP_MOE_LINEAR, types[t], s, MN_PRECISION_A16, 5e-3);
            }
    for (int r = 0; r < 5; r++)
        for (int64_t e = 4; e <= 300; e *= 4) {
            op_shape s = {.rows = rows[r], .k = 77, .n = 10, .n_expert = e, .n_used = 3};
            for (s.variant = 0; s.variant < 16; s.variant++)
                if (s.variant % 4 < 3)
                    near(MN_OP_MOE_ROUTE, MN_F32, s, MN_PRECISION_EXACT, 1e-5);
            for (s.variant = 0; s.variant < 8; s.variant++)
                near(MN_OP_MOE_COMBINE, MN_F32, s, MN_PRECISION_EXACT, 1e-5);
        }
}

static void attention(void **state) {
    static const op_shape shapes[] = {
        {.rows = 1, .n_head = 8, .n_head_kv = 2, .dim = 64, .past = 0},
        {.rows = 1, .n_head = 6, .n_head_kv = 1, .dim = 32, .past = 1300},
        {.rows = 33, .n_head = 4, .n_head_kv = 4, .dim = 20, .past = 70},
        {.rows = 70, .n_head = 4, .n_head_kv = 2, .dim = 48, .past = 0},
        {.rows = 600, .n_head = 8, .n_head_kv = 2, .dim = 128, .past = 0},
        {.rows = 3, .n_head = 2, .n_head_kv = 2, .dim = 256, .past = 700},
        {.rows = 1, .n_head = 16, .n_head_kv = 2, .dim = 256, .past = 5000},
        {.rows = 1, .n_head = 12, .n_head_kv = 1, .dim = 200, .past = 700},
        {.rows = 9, .n_head = 12, .n_head_kv = 2, .dim = 256, .past = 300, .n_seqs = 9},
        {.rows = 21, .n_head = 8, .n_head_kv = 4, .dim = 64, .past = 100, .n_seqs = 7}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 8; v++) {
            op_shape s = shapes[i];
            s.variant = v;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, 1e-5);
            s.kv_dtype = MN_F16;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3);
            s.kv_dtype = MN_Q8_0;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, 1e-5);
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3);
            s.v_dtype = MN_F16;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, 1e-5);
            s.kv_dtype = MN_F32;
            s.v_dtype = MN_Q8_0;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3);
        }
}

/* What contracts 4 and 5 bring: rows of another text, biases by distance, trees, relative keys and
 * queries; rows by themselves, and those of prompts, which share tiles. */
static void distances(void **state) {
    static const op_shape shapes[] = {
        {.rows = 1, .n_head = 8, .n_head_kv = 8, .dim = 64, .past = 1300},
        {.rows = 33, .n_head = 4, .n_head_kv = 4, .dim = 20, .dim_v = 12, .past = 70},
        {.rows = 600, .n_head = 12, .n_head_kv = 12, .dim = 64, .past = 0},
        {.rows = 70, .n_head = 12, .n_head_kv = 2, .dim = 144, .past = 300},
        {.rows = 9, .n_head = 12, .n_head_kv = 12, .dim = 64, .past = 300, .n_seqs = 9},
        {.rows = 210, .n_head = 16, .n_head_kv = 16, .dim = 64, .past = 100, .n_seqs = 7}};
    static const int variants[] = {128,
                                   128 + 256 + 6,
                                   128 + 256 + 16,
                                   128 + 32,
                                   256,
                                   256 + 7,
                                   256 + 8,
                                   512,
                                   512 + 256 + 32 + 16 + 6,
                                   1024,
                                   2048 + 8,
                                   1024 + 2048 + 8,
                                   2048 + 64,
                                   1024 + 2048 + 16 + 7};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            op_shape s = shapes[i];
            s.variant = variants[v];
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, 1e-5);
            s.kv_dtype = MN_F16;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3);
            s.kv_dtype = MN_Q8_0;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3);
        }
}

/* Slopes, values that are the first part of keys, chunks; rows of DeepSeek's cache. */
static void latent(void **state) {
    static const op_shape shapes[] = {
        {.rows = 1, .n_head = 16, .n_head_kv = 1, .dim = 576, .dim_v = 512, .past = 1300},
        {.rows = 33, .n_head = 6, .n_head_kv = 1, .dim = 576, .dim_v = 512, .past = 70},
        {.rows = 1, .n_head = 128, .n_head_kv = 1, .dim = 576, .dim_v = 512, .past = 5000},
        {.rows = 5,
         .n_head = 128,
         .n_head_kv = 1,
         .dim = 576,
         .dim_v = 512,
         .past = 9,
         .n_seqs = 5},
        {.rows = 21, .n_head = 8, .n_head_kv = 4, .dim = 64, .past = 100, .n_seqs = 7}};
    static const int variants[] = {16, 32, 64};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            op_shape s = shapes[i];
            /* sums of thousands of positions in f32 */
            const double exact = s.past > 2000 ? 1e-4 : 1e-5;
            s.variant = variants[v];
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, exact);
            s.kv_dtype = MN_F16;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3);
            s.kv_dtype = MN_Q8_0;
            near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, exact);
        }
    for (int64_t rows = 1; rows <= 100; rows += 33) {
        const op_shape heads = {.rows = rows, .k = 128, .n = 512, .variant = 4};
        const op_shape part = {.rows = rows, .k = 576, .variant = 2};
        near(MN_OP_LINEAR, MN_F32, heads, MN_PRECISION_EXACT, 1e-5);
        near(MN_OP_LINEAR, MN_BF16, heads, MN_PRECISION_A16, 5e-3);
        near(MN_OP_LINEAR, MN_Q8_0, heads, MN_PRECISION_A16, 5e-3);
        near(MN_OP_RMS_NORM, MN_F32, part, MN_PRECISION_EXACT, 1e-5);
    }
}

static void small_ops(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++)
        for (int r = 0; r < 3; r++) {
            static const int64_t rows[] = {1, 7, 33};
            op_shape s = {.rows = rows[r], .k = width(t, 77), .n = 53};
            for (s.variant = 0; s.variant < 2; s.variant++)
                near(MN_OP_EMBED, types[t], s, MN_PRECISION_EXACT, 1e-6);
            s.variant = 0;
            if (t >= N_FLOAT)
                continue;
            near(MN_OP_RMS_NORM, types[t], s, MN_PRECISION_EXACT, 1e-5);
            near(MN_OP_LAYER_NORM, types[t], s, MN_PRECISION_EXACT, 1e-5);
            s.n_head = 3;
            near(MN_OP_RMS_NORM, types[t], s, MN_PRECISION_EXACT, 1e-5);
        }
    static const int64_t rows[] = {1, 7, 33};
    for (int r = 0; r < 3; r++) {
        op_shape s = {
            .rows = rows[r], .k = 700 + r, .n = 300, .n_head = 3, .dim = 64, .past = 5000};
        for (s.variant = 0; s.variant < 8; s.variant++) {
            if (s.variant < 4)
                near(MN_OP_ACT, 0, s, MN_PRECISION_EXACT, 1e-5);
            near(MN_OP_GLU, 0, s, MN_PRECISION_EXACT, 1e-5);
            if (s.variant < 2)
                near(MN_OP_ROPE, 0, s, MN_PRECISION_EXACT, 1e-5);
        }
        static const uint32_t plain[] = {MN_OP_ADD,     MN_OP_MUL,         MN_OP_SCALE,
                                         MN_OP_SOFTCAP, MN_OP_GATHER_ROWS, MN_OP_SAMPLE};
        for (s.variant = 0; s.variant < 6; s.variant++)
            near(plain[s.variant], 0, s, MN_PRECISION_EXACT, 1e-5);
    }
}

/* One draw on each plugin: logits of V ids, the same parameters, history and position. */
static int32_t drawn(const char *plugin, int V, const mn_slot_params *params, uint64_t seed,
                     float spread) {
    h_plugin p;
    if (!h_open(&p, plugin))
        skip();
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
    int32_t in[6] = {case_mat(c, MN_ROLE_INPUT, MN_F32, 1, V, l, "logits"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, 1, &slot, "out_slot"),
                     case_state(c, params, sizeof *params, 1, "params"),
                     case_state(c, &state, sizeof state, 1, "slots"),
                     case_mat(c, MN_ROLE_STATE, MN_I32, 1, 64, history, "history"),
                     -1};
    int32_t out[3] = {case_vec(c, MN_ROLE_OUTPUT, MN_I32, 1, NULL, "ids"), -1, -1};
    case_node(c, MN_OP_SAMPLE, in, 6, out, 3, NULL, 0);
    h_run(&p, c, MN_PRECISION_EXACT);
    int32_t id = *(int32_t *)c->result[out[0]];
    const mn_slot *after = c->result[in[3]];
    assert_int_equal(after->last_id, id);
    assert_int_equal(after->n_drawn, 6);
    case_free(c);
    h_close(&p);
    free(l);
    return id;
}

static void sampling(void **state) {
    static const struct {
        float temp;
        int32_t k;
        float top_p, min_p, repeat, frequency;
        int32_t last_n;
    } t[] = {{0, 0, 0, 0, 0, 0, 0},           {1, 0, 0, 0, 0, 0, 0},
             {0.7f, 40, 0, 0, 0, 0, 0},       {1.3f, 0, 0.9f, 0, 0, 0, 0},
             {1, 0, 0, 0.05f, 0, 0, 0},       {0.8f, 40, 0.95f, 0.05f, 1.1f, 0, 20},
             {0, 0, 0, 0, 1.3f, 0.5f, -1},    {1, 1, 0, 0, 0, 0, 0},
             {2, 0, 0.5f, 0, 1.2f, 0.1f, 64}, {0.3f, 7, 0.999f, 0.001f, 0, 0.2f, 10}};
    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            mn_slot_params p = {.seed = seed * 77,
                                .temp = t[i].temp,
                                .top_k = t[i].k,
                                .top_p = t[i].top_p,
                                .min_p = t[i].min_p,
                                .repeat_penalty = t[i].repeat,
                                .frequency_penalty = t[i].frequency,
                                .penalty_last_n = t[i].last_n};
            static const int sizes[] = {32000, 300, 5003};
            int V = sizes[seed < 3 ? seed : 0];
            int32_t got = drawn("cuda", V, &p, seed, seed == 2 ? 1 : 3);
            int32_t want = drawn("reference", V, &p, seed, seed == 2 ? 1 : 3);
            if (got != want)
                print_message("sampling case %d seed %d: %d, reference %d\n", (int)i, (int)seed,
                              got, want);
            assert_int_equal(got, want);
        }
}

/* The same rows alone and among others: the same bits in class exact. */
static void batch_invariance(void **state) {
    (void)state;
    for (int t = 0; t <= N_FLOAT; t++) {
        int same = h_batch_invariant("cuda", types[t]);
        if (same < 0)
            skip();
        assert_int_equal(same, 1);
    }
}

/* test_cuda [NAME]: one test alone; * stands for any text. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ops), cmocka_unit_test(linear),          cmocka_unit_test(experts),
        cmocka_unit_test(attention), cmocka_unit_test(distances),       cmocka_unit_test(latent),
        cmocka_unit_test(sampling),  cmocka_unit_test(batch_invariance)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
