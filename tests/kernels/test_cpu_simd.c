/* test_cpu_simd.c -- cpu_simd through its table against reference: every op, weight type, class and
 * ISA cap. */
#include "harness.h"
#include <math.h>
#include "host.h"
#include "../../plugins/cpu_simd/rows.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *plugin = "cpu_simd";

/* Those of another CPU family mean generic. Under sanitizers test_rows alone has every set. */
static const char *const names[] = {
    "generic",
#ifndef __x86_64__
    "neon",    "dotprod", "i8mm", "bf16", "sve256",
#elif defined __SANITIZE_ADDRESS__
    "avx512vnni",
#else
    "avx2",    "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx",
#endif
};
/* Those of them that are different rows on this CPU: without AVX-512 its name means AVX2's. */
static const char *caps[sizeof names / sizeof *names];
static size_t n_caps;
static void find_caps(void) {
    uint32_t found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int32_t cap = mnk_isa_by_name(names[i], strlen(names[i]));
        const uint32_t level = 1u << mnk_isa_cap(mnk_cpu_levels(), cap);
        if (found & level)
            continue;
        found |= level;
        caps[n_caps] = names[i];
        n_caps++;
    }
}
static bool is_block(uint32_t t) {
    return case_dtype(t).block_elems > 1;
}
static bool has_a8(uint32_t t) {
    return is_block(t) && t != MN_F8_E4M3_128 && t != MN_F8_E4M3_32 && t != MN_NF4_64 &&
           t != MN_FP4_64 && t != MN_PICK4_32 && t != MN_PICK8_32;
}

/* Every case is one that both can run: what is refused is not left out in silence. */
static void near(uint32_t op, uint32_t type, op_shape s, uint32_t precision, double most,
                 const char *cap) {
    double e = h_compare(plugin, "reference", op, type, &s, precision);
    if (e < 0)
        fail_msg("op %u type %u class %u cap %s k %d: one of the two says no", op, type, precision,
                 cap, (int)s.k);
    if (e > most)
        print_message("op %u type %u class %u cap %s rows %d k %d n %d variant %d: %g\n", op, type,
                      precision, cap, (int)s.rows, (int)s.k, (int)s.n, (int)s.variant, e);
    assert_true(e <= most);
}

/* OpenBLAS is not there before a program wants it, and has no threads of its own then. */
static void blas_when_needed(void **state) {
    (void)state;
    int (*threads)(void) = NULL;
    h_host_option("isa", "generic");
    near(MN_OP_LINEAR, MN_F32,
         (op_shape){
             .rows = 80,
             .k = 64,
             .n = 32,
         },
         MN_PRECISION_EXACT, 1e-4, "generic");
    near(MN_OP_LINEAR, MN_F16,
         (op_shape){
             .rows = 80,
             .k = 64,
             .n = 32,
         },
         MN_PRECISION_A16, 5e-3, "generic");
    assert_null(dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD));
    near(MN_OP_LINEAR, MN_F32,
         (op_shape){
             .rows = 80,
             .k = 64,
             .n = 32,
         },
         MN_PRECISION_A16, 5e-3, "generic");
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "openblas_get_num_threads") : NULL;
    memcpy(&threads, &symbol, sizeof threads);
    if (threads)
        assert_int_equal(threads(), 1);
    if (strcmp(plugin, "cpu_simd"))
        assert_null(library); /* it is built without */
    h_host_option(NULL, NULL);
}

#define EACH_WEIGHT_TYPE(t)                                                                        \
    for (uint32_t t = 1; t <= MN_MLX5_128; t++)                                                    \
        if (case_is_weight_type(t))

static const int64_t three_rows[] = {1, 7, 33};

static void linear(void **state) {
    static const int64_t ns[] = {1, 37};
    (void)state;
    for (size_t c = 0; c < n_caps; c++) {
        h_host_option("isa", caps[c]);
        EACH_WEIGHT_TYPE(t)
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 2; k++)
                for (int n = 0; n < 2; n++) {
                    const int64_t e = case_dtype(t).block_elems;
                    const int64_t plain[2] = {50, 1037};
                    const int64_t blocks[2] = {(3 * e + 31) / 32 * 32, (1056 + e - 1) / e * e};
                    op_shape s = {
                        .rows = three_rows[r],
                        .k = e == 1 ? plain[k] : blocks[k],
                        .n = ns[n],
                        .variant = n ? 2 : 0,
                    };
                    /* one output may cancel */
                    near(MN_OP_LINEAR, t, s, MN_PRECISION_EXACT, n ? 1e-5 : 1e-4, caps[c]);
                    if (n)
                        near(MN_OP_LINEAR, t, s, has_a8(t) ? MN_PRECISION_A8 : MN_PRECISION_A16,
                             has_a8(t) ? 3e-2 : 5e-3, caps[c]);
                }
        near(MN_OP_LINEAR, MN_F8_E4M3_128,
             (op_shape){
                 .rows = 5,
                 .k = 256,
                 .n = 300,
             },
             MN_PRECISION_EXACT, 1e-5, caps[c]);
        near(MN_OP_LINEAR, MN_Q4_0,
             (op_shape){
                 .rows = 2,
                 .k = 512,
                 .n = 77,
             },
             MN_PRECISION_A8, 3e-2, caps[c]); /* whole spans of the second layout */
        near(MN_OP_LINEAR, MN_F32,
             (op_shape){
                 .rows = 80,
                 .k = 100,
                 .n = 61,
             },
             MN_PRECISION_A16, 5e-3, caps[c]); /* OpenBLAS, if built in */
    }
    h_host_option(NULL, NULL);
}

/* How a set keeps the weight [77, 512] of a LINEAR. */
static uint32_t kept_of(uint32_t type, uint32_t precision) {
    const op_shape shape = {.rows = 1, .k = 512, .n = 77};
    const int64_t block = (int64_t)case_dtype(type).block_bytes;
    h_plugin p;
    uint32_t kept = 0;
    mn_weights *set;
    assert_true(h_open(&p, plugin));
    op_case *c = case_random(MN_OP_LINEAR, type, &shape, 3);
    const mn_compile in = {
        .size = sizeof in,
        .precision = precision,
        .graph = &c->g,
        .node_hi = 1,
        .symbol_max = c->value,
    };
    assert_int_equal(p.be->weights_open(p.dev, &in, &set, NULL), MN_OK);
    for (uint32_t t = 0; t < c->g.n_tensors; t++) {
        const mn_plane plane = {
            .ptr = c->data[t],
            .bytes = c->bytes[t],
            .kind = MN_PLANE_DATA,
            .dtype = type,
            .dim = {shape.n, shape.k},
            .stride = {shape.k / 32 * block, block},
        };
        const mn_weight_src source = {
            .size = sizeof source,
            .tensor = t,
            .n_parts = 1,
            .n_planes = 1,
            .plane_stride = sizeof plane,
            .planes = &plane,
            .dtype = c->t[t].dtype,
        };
        if (c->t[t].role == MN_ROLE_WEIGHT)
            assert_int_equal(p.be->weights_put(set, p.queue, &source, NULL, NULL), MN_OK);
    }
    assert_int_equal(p.be->weights_seal(set, p.queue, &kept, NULL), MN_OK);
    p.be->weights_free(set);
    case_free(c);
    h_close(&p);
    return kept;
}

/* The types and the class that have a second layout get it, where nobody says no. */
static void second_layout(void **state) {
    const bool has_it = mnk_isa_runs(mnk_cpu_level(), MNK_AVX2);
    (void)state;
    assert_int_equal(!!(kept_of(MN_Q4_0, MN_PRECISION_A8) & MN_KEPT_REPACKED), has_it);
    assert_int_equal(kept_of(MN_Q4_0, MN_PRECISION_EXACT), MN_KEPT_ALIASED);
    assert_int_equal(kept_of(MN_Q8_0, MN_PRECISION_A8), MN_KEPT_ALIASED);
    h_host_option("repack", "off");
    assert_int_equal(kept_of(MN_Q4_0, MN_PRECISION_A8), MN_KEPT_ALIASED);
    h_host_option(NULL, NULL);
}

/* One token and many, experts with few and with many rows, more experts than rows. */
static void experts(void **state) {
    static const int64_t rows[] = {1, 3, 40};
    static const int64_t n_expert[] = {4, 16};
    static const int64_t n_used[] = {1, 4};
    (void)state;
    for (size_t c = 0; c < n_caps; c++) {
        h_host_option("isa", caps[c]);
        for (int i = 0; i < 12; i++) {
            op_shape s = {
                .rows = rows[i % 3],
                .n_expert = n_expert[i / 3 % 2],
                .n_used = n_used[i / 6],
                .k = 77,
            };
            for (s.variant = 0; s.variant < 8; s.variant++)
                near(MN_OP_MOE_COMBINE, 0, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
            for (s.variant = 0; s.variant < 16; s.variant++)
                if ((s.variant & 3) < 3)
                    near(MN_OP_MOE_ROUTE, 0, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
            EACH_WEIGHT_TYPE(t) {
                const int64_t e = case_dtype(t).block_elems;
                s.k = e > 64 ? e : 96 / e * e;
                if (e == 1)
                    s.k = 77;
                s.n = 21;
                for (int v = 0; v < 5; v++) {
                    s.variant = v < 4 ? v : 11; /* with RESIDENT */
                    near(MN_OP_MOE_LINEAR, t, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
                    if (has_a8(t))
                        near(MN_OP_MOE_LINEAR, t, s, MN_PRECISION_A8, 3e-2, caps[c]);
                }
            }
        }
    }
    /* rows of scales for 128 rows each */
    op_shape high = {
        .rows = 3,
        .n_expert = 4,
        .n_used = 2,
        .k = 256,
        .n = 300,
    };
    for (high.variant = 0; high.variant < 4; high.variant++)
        near(MN_OP_MOE_LINEAR, MN_F8_E4M3_128, high, MN_PRECISION_EXACT, 1e-5, "neon");
    h_host_option(NULL, NULL);
}

/* The most scratch that a MOE_LINEAR may take: of each worker the pairs, their order, where each
 * expert's begin, and a panel of weights; of all x as the products read it, and y. A panel of f32
 * has 48 rows of 1,040 columns, one of bytes 64 rows of at most 1.5 bytes a column, one of tiles
 * 128 rows and sums of 512 pairs. Tiles: 64 bytes a column and group of 16 pairs. Two nodes may
 * have their x at once. */
static uint64_t most_scratch(const op_shape *s, uint32_t precision) {
    const uint64_t pairs = (uint64_t)(s->rows * s->n_used);
    const uint64_t k = (uint64_t)s->k;
    const uint64_t n_expert = (uint64_t)s->n_expert;
    const uint64_t y = pairs * (uint64_t)s->n * 4;
    const uint64_t records = 8 << 10; /* of nodes and tensors */
    const uint64_t lists = pairs * 20 + n_expert * 4 + 256;
    const uint64_t rest = records + lists + y;
    uint64_t panel = 48 * 1040 * 4;
    if (precision == MN_PRECISION_EXACT)
        return rest + panel;
    uint64_t x = pairs * (5 * k / 2 + 64);
    const uint64_t tiles = (pairs / 16 + n_expert) * (32 * k + 2048);
    if (tiles > x)
        x = tiles;
    panel = 384 << 10;
    if (96 * k > panel)
        panel = 96 * k;
    return rest + panel + 2 * x;
}

static uint64_t scratch_of(h_plugin *p, op_case *c, uint32_t precision) {
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    mn_estimate e = {.size = sizeof e};
    mn_compile question = case_question(c, precision);
    question.n_sets = 1;
    assert_int_equal(p->be->estimate(p->dev, &question, &e, &err), MN_OK);
    return e.scratch;
}

/* Experts of a prompt: every pair goes to the first experts, so that they have many times the pairs
 * of an average one, and rows are long. What the plugin says it takes stays within most_scratch,
 * and the step within what it says: the host guards the end of the only worker's scratch. */
static void scratch_of_experts(void **state) {
    static const uint32_t types[] = {MN_F32, MN_BF16, MN_Q8_0, MN_Q2_K};
    static const op_shape shapes[] = {{
                                          .rows = 300,
                                          .n_expert = 32,
                                          .n_used = 2,
                                          .k = 4352,
                                          .n = 24,
                                      },
                                      {
                                          .rows = 40,
                                          .n_expert = 8,
                                          .n_used = 4,
                                          .k = 512,
                                          .n = 24,
                                          .variant = 1,
                                      }};
    (void)state;
    h_host_workers(1);
    for (int i = 0; i < 8; i++) {
        const op_shape *s = &shapes[i / 4];
        op_case *got = case_random(MN_OP_MOE_LINEAR, types[i % 4], s, 5);
        op_case *want = case_random(MN_OP_MOE_LINEAR, types[i % 4], s, 5);
        const size_t n_pairs = (size_t)(s->rows * s->n_used);
        int32_t *experts = got->data[got->operands[got->n[0].in_off + MN_MOE_LINEAR_EXPERTS]];
        for (size_t p = 0; p < n_pairs; p++)
            experts[p] = (int32_t)p % (int32_t)s->n_used;
        memcpy(want->data[want->operands[want->n[0].in_off + MN_MOE_LINEAR_EXPERTS]], experts,
               n_pairs * sizeof *experts);
        h_plugin reference;
        if (!h_open(&reference, "reference"))
            skip();
        h_run(&reference, want, MN_PRECISION_EXACT);
        h_close(&reference);
        for (size_t c = 0; c < n_caps; c++)
            for (uint32_t class = MN_PRECISION_EXACT; class <= MN_PRECISION_A8; class ++) {
                h_plugin p;
                h_host_option("isa", caps[c]);
                assert_true(h_open(&p, plugin));
                const uint64_t scratch = scratch_of(&p, got, class);
                if (scratch > most_scratch(s, class))
                    fail_msg("type %u class %u cap %s: %llu bytes of scratch, at most %llu",
                             types[i % 4], class, caps[c], (unsigned long long)scratch,
                             (unsigned long long)most_scratch(s, class));
                h_run(&p, got, class);
                const double e = case_differ(got, want, NULL);
                assert_true(e <= (class == MN_PRECISION_EXACT ? 1e-5 : 3e-2));
                h_close(&p);
            }
        case_free(got);
        case_free(want);
    }
    h_host_option(NULL, NULL);
    h_host_workers(3);
}

static void attention(void **state) {
    static const op_shape shapes[] = {{
                                          .rows = 1,
                                          .n_head = 8,
                                          .n_head_kv = 2,
                                          .dim = 64,
                                          .past = 0,
                                      },
                                      {
                                          .rows = 1,
                                          .n_head = 6,
                                          .n_head_kv = 1,
                                          .dim = 32,
                                          .past = 1300,
                                      },
                                      {
                                          .rows = 33,
                                          .n_head = 4,
                                          .n_head_kv = 4,
                                          .dim = 20,
                                          .past = 70,
                                      },
                                      {
                                          .rows = 70,
                                          .n_head = 4,
                                          .n_head_kv = 2,
                                          .dim = 48,
                                          .past = 0,
                                      },
                                      {
                                          .rows = 21,
                                          .n_head = 8,
                                          .n_head_kv = 4,
                                          .dim = 64,
                                          .past = 100,
                                          .n_seqs = 7,
                                      }};
    (void)state;
    for (size_t c = 0; c < n_caps; c++) {
        h_host_option("isa", caps[c]);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int v = 0; v < 8; v++) {
                op_shape s = shapes[i];
                s.variant = v;
                near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
                s.kv_dtype = MN_F16;
                near(MN_OP_ATTENTION, MN_F32, s, MN_PRECISION_A16, 5e-3, caps[c]);
            }
        /* far distances both ways, which share rows of tables: biases, relative keys and queries */
        op_shape far = {.rows = 90, .n_head = 3, .n_head_kv = 3, .dim = 32, .variant = 256 + 8};
        near(MN_OP_ATTENTION, MN_F32, far, MN_PRECISION_EXACT, 1e-5, caps[c]);
        far.variant = 1024 + 2048 + 8;
        near(MN_OP_ATTENTION, MN_F32, far, MN_PRECISION_EXACT, 1e-5, caps[c]);
    }
    h_host_option(NULL, NULL);
}

/* Columns in whole blocks, in parts of one, and fewer than a register has. */
static void states(void **state) {
    static const int64_t dims[] = {3, 32, 40, 77};
    (void)state;
    for (size_t c = 0; c < n_caps; c++) {
        h_host_option("isa", caps[c]);
        for (int64_t i = 0; i < 4 * 16; i++) {
            op_shape s = {
                .rows = i % 2 ? 9 : 21,
                .n_seqs = 1 + i % 3,
                .n_head = 4,
                .n_head_kv = 2,
                .dim = dims[i % 4],
                .dim_v = dims[(i + 1) % 4],
                .k = 300 + i,
                .n = 2 + i % 5,
                .variant = i / 4,
            };
            const uint32_t type = i % 3 ? MN_BF16 : MN_F16;
            near(MN_OP_CONV_STATE, type, s, MN_PRECISION_EXACT, 1e-6, caps[c]);
            near(MN_OP_GATED_DELTA, type, s, MN_PRECISION_EXACT, 5e-6, caps[c]);
            s.n = 5 * s.n + 1;
            s.variant %= 8;
            near(MN_OP_SSM_SCAN, type, s, MN_PRECISION_EXACT, 5e-6, caps[c]);
        }
    }
    h_host_option(NULL, NULL);
}
static void small_ops(void **state) {
    (void)state;
    for (size_t c = 0; c < n_caps; c++) {
        h_host_option("isa", caps[c]);
        EACH_WEIGHT_TYPE(t)
        for (int r = 0; r < 3; r++) {
            const int64_t e = case_dtype(t).block_elems;
            op_shape s = {
                .rows = three_rows[r],
                .k = is_block(t) ? (3 * e + 31) / 32 * 32 : 77,
                .n = 53,
            };
            for (s.variant = 0; s.variant < 2; s.variant++)
                near(MN_OP_EMBED, t, s, MN_PRECISION_EXACT, 1e-6, caps[c]);
            if (t > MN_BF16)
                continue;
            s.variant = 0;
            near(MN_OP_RMS_NORM, t, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
            near(MN_OP_LAYER_NORM, t, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
            s.n_head = 3;
            near(MN_OP_RMS_NORM, t, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
            near(MN_OP_LAYER_NORM, t, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
        }
        for (int r = 0; r < 3; r++) {
            op_shape s = {
                .rows = three_rows[r],
                .k = 700 + r,
                .n = 300,
                .n_head = 3,
                .dim = 64,
                .past = 5000,
            };
            for (s.variant = 0; s.variant < 14; s.variant++) {
                if (case_act_kind(s.variant) > MN_ACT_RELU2)
                    continue;
                if (!(s.variant & 4))
                    near(MN_OP_ACT, 0, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
                near(MN_OP_GLU, 0, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
                for (s.n_rot = 0; s.variant < 2 && s.n_rot <= 40; s.n_rot += 40)
                    near(MN_OP_ROPE, 0, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
            }
            static const uint32_t plain[] = {MN_OP_ADD,     MN_OP_MUL,         MN_OP_SCALE,
                                             MN_OP_SOFTCAP, MN_OP_GATHER_ROWS, MN_OP_SAMPLE};
            for (s.variant = 0; s.variant < 6; s.variant++)
                near(plain[s.variant], 0, s, MN_PRECISION_EXACT, 1e-5, caps[c]);
        }
    }
    h_host_option(NULL, NULL);
}

/* Of experts that score the same the lower numbers are chosen, in their order. */
static void equal_experts(void **state) {
    enum { ROWS = 3, EXPERTS = 8, USED = 4 };
    static const int32_t want[USED] = {1, 4, 7, 0}; /* those of 2, then one of 1 */
    const op_shape s = {
        .rows = ROWS,
        .n_expert = EXPERTS,
        .n_used = USED,
    };
    h_plugin p;
    (void)state;
    if (!h_open(&p, plugin))
        skip();
    op_case *c = case_random(MN_OP_MOE_ROUTE, 0, &s, 3);
    float *logits = c->data[c->operands[c->n[0].in_off + MN_MOE_ROUTE_LOGITS]];
    for (int i = 0; i < ROWS * EXPERTS; i++)
        logits[i] = i % EXPERTS % 3 == 1 ? 2 : 1;
    h_run(&p, c, MN_PRECISION_EXACT);
    const int32_t *chosen = c->result[c->operands[c->n[0].out_off + MN_MOE_ROUTE_OUT_EXPERTS]];
    for (int i = 0; i < ROWS; i++)
        assert_memory_equal(chosen + i * USED, want, sizeof want);
    case_free(c);
    h_close(&p);
}

/* A position behind the page table of its slot is not stored: not in the page of the next slot,
 * whose entry stands there. */
static void behind_the_table(void **state) {
    enum { D = 4, PAGES = 2 };
    const float kv[2 * D] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int32_t pos[2] = {PAGES * 64, 0};
    const int32_t slot[2] = {0, 0};
    const int32_t table[2 * PAGES] = {0, -1, 1, -1};
    h_plugin p;
    (void)state;
    if (!h_open(&p, plugin))
        skip();
    op_case *c = case_new();
    const int32_t x = case_cube(c, MN_ROLE_INPUT, MN_F32, 2, 1, D, kv, "k");
    const int32_t row_pos = case_vec(c, MN_ROLE_INPUT, MN_I32, 2, pos, "pos");
    const int32_t row_slot = case_vec(c, MN_ROLE_INPUT, MN_I32, 2, slot, "slot");
    const int32_t pages = case_mat(c, MN_ROLE_INPUT, MN_I32, 2, PAGES, table, "pages");
    const int32_t cache = case_kv(c, MN_F32, 2);
    case_node(c, MN_OP_KV_STORE, (const int32_t[]){x, x, row_pos, row_slot, pages, cache}, 6, NULL,
              0, (const uint64_t[]){0, 0}, 2);
    h_run(&p, c, MN_PRECISION_EXACT);
    const float *stored = c->result[cache];
    const size_t n = c->bytes[cache] / sizeof(float);
    size_t n_stored = 0;
    for (size_t i = 0; i < n; i++)
        n_stored += stored[i] != 0;
    assert_int_equal(n_stored, 2 * D); /* k and v of row 1 alone */
    assert_true(stored[0] == 5);
    case_free(c);
    h_close(&p);
}

enum { NORM_ROWS = 33, NORM_K = 64, NORM_N = 96 };
/* What norm_before_product expects, by doubles. */
static void normed_products(const float *x, int64_t rows, const float *gain, const float *w,
                            double *want) {
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * NORM_K;
        double squares = 0;
        for (int i = 0; i < NORM_K; i++)
            squares += (double)row[i] * row[i];
        const double by = 1 / sqrt(squares / NORM_K + 1e-5);
        for (int j = 0; j < NORM_N; j++) {
            const float *weight = w + j * NORM_K;
            double sum = 0;
            for (int i = 0; i < NORM_K; i++)
                sum += by * row[i] * (gain[i] + 0.5) * weight[i];
            want[r * NORM_N + j] = sum;
        }
    }
}

/* A norm that few rows' products take, one that they do not, and one that is an output, too; every
 * other row has squares beyond the range of f32. */
static void norm_before_product_of(int64_t rows, bool is_output) {
    static double want[NORM_ROWS * NORM_N];
    float x[NORM_ROWS * NORM_K];
    float gain[NORM_K];
    float w[NORM_N * NORM_K];
    uint64_t seed = 7;
    h_plugin p;
    if (!h_open(&p, plugin))
        skip();
    for (int64_t i = 0; i < NORM_ROWS * NORM_K; i++)
        x[i] = case_rand(&seed) * (i / NORM_K % 2 ? 1e22f : 1);
    for (int i = 0; i < NORM_K; i++)
        gain[i] = case_rand(&seed);
    for (int i = 0; i < NORM_N * NORM_K; i++)
        w[i] = case_rand(&seed);
    op_case *c = case_new();
    const uint32_t role = is_output ? MN_ROLE_OUTPUT : MN_ROLE_INTERIOR;
    const int32_t in = case_mat(c, MN_ROLE_INPUT, MN_F32, rows, NORM_K, x, "x");
    const int32_t g = case_vec(c, MN_ROLE_WEIGHT, MN_F32, NORM_K, gain, "gain");
    const int32_t m = case_mat(c, MN_ROLE_WEIGHT, MN_F32, NORM_N, NORM_K, w, "w");
    const int32_t normed = case_mat(c, role, MN_F32, rows, NORM_K, NULL, "normed");
    const int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, rows, NORM_N, NULL, "y");
    case_node(c, MN_OP_RMS_NORM, (const int32_t[]){in, g}, 2, &normed, 1,
              (const uint64_t[]){case_f64(1e-5), case_f64(0.5)}, 2);
    case_node(c, MN_OP_LINEAR, (const int32_t[]){normed, m, -1}, 3, &y, 1, NULL, 0);
    h_run(&p, c, MN_PRECISION_EXACT);
    normed_products(x, rows, gain, w, want);
    const float *got = c->result[y];
    for (int64_t i = 0; i < rows * NORM_N; i++)
        assert_true(fabs(got[i] - want[i]) <= 1e-5 * sqrt(NORM_K));
    case_free(c);
    h_close(&p);
}

enum { LATE_ROWS = 20, LATE_K = 1024, LATE_N = 1024 };
/* y = x W^T + x: the parts of its phase have whole columns, and the last ones may have none. */
static void late_products(uint32_t type, const float *x, const uint8_t *w, float *y) {
    h_plugin p;
    assert_true(h_open(&p, plugin));
    op_case *c = case_new();
    const int32_t in = case_mat(c, MN_ROLE_INPUT, MN_F32, LATE_ROWS, LATE_K, x, "x");
    const int32_t more = case_mat(c, MN_ROLE_INPUT, MN_F32, LATE_ROWS, LATE_N, x, "more");
    const int32_t m = case_mat(c, MN_ROLE_WEIGHT, type, LATE_N, LATE_K, w, "w");
    const int32_t made = case_mat(c, MN_ROLE_INTERIOR, MN_F32, LATE_ROWS, LATE_N, NULL, "made");
    const int32_t sum = case_mat(c, MN_ROLE_OUTPUT, MN_F32, LATE_ROWS, LATE_N, NULL, "sum");
    case_node(c, MN_OP_LINEAR, (const int32_t[]){in, m, -1}, 3, &made, 1, NULL, 0);
    case_node(c, MN_OP_ADD, (const int32_t[]){made, more}, 2, &sum, 1, NULL, 0);
    h_run(&p, c, MN_PRECISION_A8);
    memcpy(y, c->result[sum], LATE_ROWS * LATE_N * sizeof *y);
    case_free(c);
    h_close(&p);
}

/* A thread that comes late has small parts alone, the first of them maybe without any work: what it
 * makes for itself is made all the same. */
static void late_thread(void **state) {
    static const uint32_t types[] = {MN_Q8_0, MN_Q4_0, MN_Q6_K};
    static float x[LATE_ROWS * LATE_N];
    static float want[LATE_ROWS * LATE_N];
    static float got[LATE_ROWS * LATE_N];
    static uint8_t w[LATE_N * LATE_K * 2];
    uint64_t seed = 11;
    (void)state;
    for (int i = 0; i < LATE_ROWS * LATE_N; i++)
        x[i] = case_rand(&seed);
    h_host_workers(16);
    for (int i = 0; i < 3; i++) {
        case_random_weight(types[i], LATE_N, LATE_K, &seed, w);
        late_products(types[i], x, w, want);
        h_host_late(true);
        late_products(types[i], x, w, got);
        h_host_late(false);
        assert_memory_equal(got, want, sizeof want);
    }
    h_host_workers(3);
}

static void norm_before_product(void **state) {
    static const int64_t rows[] = {1, 2, 5, 32, NORM_ROWS};
    (void)state;
    for (size_t cap = 0; cap < n_caps; cap++) {
        h_host_option("isa", caps[cap]);
        for (int i = 0; i < 5; i++) {
            norm_before_product_of(rows[i], false);
            norm_before_product_of(rows[i], true);
        }
    }
    h_host_option(NULL, NULL);
}

/* The same rows alone and among others: the same bits in class exact. Cases of one seed share x and
 * w as far as they go. */
static void batch_invariance(void **state) {
    (void)state;
    for (size_t cap = 0; cap < n_caps; cap++) {
        h_host_option("isa", caps[cap]);
        /* test_rows has the others */
        static const uint32_t types[] = {MN_F32, MN_F16, MN_BF16, MN_Q8_0, MN_Q4_0};
        for (int t = 0; t < 5; t++) {
            int same = h_batch_invariant(plugin, types[t]);
            if (same < 0)
                skip();
            assert_int_equal(same, 1);
        }
    }
    h_host_option(NULL, NULL);
}

static void bad_isa(void **state) {
    h_plugin p;
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    (void)state;
    if (!h_open(&p, plugin))
        skip();
    mn_entry_fn entry = (mn_entry_fn)(uintptr_t)dlsym(p.so, MN_ENTRY_NAME);
    h_host_option("isa", "sse9");
    assert_null(entry(&h_host, &err));
    assert_int_equal(err.status, MN_BAD_INPUT);
    assert_non_null(strstr(err.msg, "MINERVA_CPU_ISA"));
    assert_non_null(strstr(err.msg, "sse9"));
    assert_non_null(strstr(err.msg, "avx512vnni"));
    h_host_option(NULL, NULL);
    h_close(&p);
    assert_int_equal(h_host_live(), 0);
}

/* test_cpu_simd [FILE]: the plugin that is tested; FILE is one without OpenBLAS, which differs in
 * LINEAR alone. */
int main(int argc, char **argv) {
    const struct CMUnitTest without_blas[] = {cmocka_unit_test(blas_when_needed),
                                              cmocka_unit_test(linear),
                                              cmocka_unit_test(batch_invariance)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(blas_when_needed),
                                       cmocka_unit_test(linear),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(attention),
                                       cmocka_unit_test(small_ops),
                                       cmocka_unit_test(states),
                                       cmocka_unit_test(batch_invariance),
                                       cmocka_unit_test(scratch_of_experts),
                                       cmocka_unit_test(equal_experts),
                                       cmocka_unit_test(behind_the_table),
                                       cmocka_unit_test(norm_before_product),
                                       cmocka_unit_test(second_layout),
                                       cmocka_unit_test(late_thread),
                                       cmocka_unit_test(bad_isa)};
    find_caps();
    if (argc > 1) {
        plugin = argv[1];
        return cmocka_run_group_tests(without_blas, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
