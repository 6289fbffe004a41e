/* test_reference.c -- the oracle against formulas written here a second time, in another way where
 * there is one. */
#include "harness.h"
#include "sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static h_plugin ref;
static int setup(void **state) {
    (void)state;
    return h_open(&ref, "reference") ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    h_close(&ref);
    return h_host_live() ? -1 : 0;
}

static void check(const op_case *c, int32_t t, const float *want, int64_t n) {
    double e = case_rel_l2(c->result[t], want, n);
    if (!(e <= 1e-6))
        fail_msg("%s: relative L2 %g", c->t[t].name.ptr, e);
}

static const uint32_t weight_types[] = {MN_F32, MN_F16, MN_BF16, MN_Q8_0, MN_Q4_0};

static void test_linear(void **state) {
    (void)state;
    for (size_t k = 0; k < 5; k++)
        for (int64_t variant = 0; variant < 4; variant += 3) {
            op_shape s = {
                .rows = 5,
                .k = 96,
                .n = 7,
                .variant = variant,
            };
            op_case *c = case_random(MN_OP_LINEAR, weight_types[k], &s, 1);
            h_run(&ref, c, MN_PRECISION_EXACT);
            for (uint32_t i = 0; i <= variant; i++) {
                int32_t w = c->operands[1 + 2 * i];
                int32_t b = c->operands[2 + 2 * i];
                int32_t y = c->operands[c->n[0].out_off + i];
                int64_t n = c->t[w].dim[0];
                float *wf = malloc((size_t)n * 96 * 4);
                float *want = calloc((size_t)n * 5, 4);
                float *x = c->data[0];
                case_dequantise(c->t[w].dtype.id, c->data[w], n * 96, wf);
                for (int64_t r = 0; r < 5; r++)
                    for (int64_t o = 0; o < n; o++) {
                        float bias = 0;
                        if (b >= 0)
                            case_dequantise(c->t[b].dtype.id,
                                            (char *)c->data[b] +
                                                case_plane_bytes(c->t[b].dtype.id, o),
                                            1, &bias);
                        double sum = (double)bias;
                        for (int64_t j = 0; j < 96; j++)
                            sum += (double)x[r * 96 + j] * (double)wf[o * 96 + j];
                        want[r * n + o] = (float)sum;
                    }
                check(c, y, want, 5 * n);
                free(wf);
                free(want);
            }
            case_free(c);
        }
}

/* case_random's case of [3, 2, 40]: the gain of a row, and of LAYER_NORM its bias; variant 1 of
 * RMS_NORM has a gain for each of the two heads. */
static void norms_against_double(uint32_t op, int64_t variant) {
    const op_shape s = {
        .rows = 3,
        .k = 40,
        .n_head = 2,
        .variant = variant,
    };
    const bool is_rms = op == MN_OP_RMS_NORM;
    const int gains = is_rms && variant ? 2 : 1;
    op_case *c = case_random(op, MN_BF16, &s, 2);
    h_run(&ref, c, MN_PRECISION_EXACT);
    float w[80];
    float b[40] = {0};
    float want[240];
    const float *x = c->data[0];
    case_dequantise(MN_BF16, c->data[2], 40 * gains, w);
    if (!is_rms)
        case_dequantise(MN_BF16, c->data[3], 40, b);
    for (int r = 0; r < 6; r++) {
        double s1 = 0;
        double s2 = 0;
        for (int i = 0; i < 40; i++) {
            s1 += (double)x[r * 40 + i];
            s2 += (double)x[r * 40 + i] * (double)x[r * 40 + i];
        }
        const double mean = is_rms ? 0 : s1 / 40;
        const double by = 1 / sqrt(s2 / 40 - mean * mean + 1e-5);
        for (int i = 0; i < 40; i++) {
            const double gain = (double)w[r % gains * 40 + i] + (is_rms ? 1 : 0);
            const double normal = ((double)x[r * 40 + i] - mean) * by;
            want[r * 40 + i] = (float)(normal * gain + (double)b[i]);
        }
    }
    check(c, 1, want, 240);
    case_free(c);
}

static void test_norms(void **state) {
    (void)state;
    norms_against_double(MN_OP_RMS_NORM, 0);
    norms_against_double(MN_OP_RMS_NORM, 1);
    norms_against_double(MN_OP_LAYER_NORM, 0);
}

/* As a product of complex numbers. */
static void test_rope(void **state) {
    (void)state;
    for (uint64_t pairing = 0; pairing < 2; pairing++) {
        op_case *c = case_new();
        float x[3 * 2 * 8];
        float freqs[3] = {1, 0.25f, 0.01f};
        float want[48];
        int32_t pos[3] = {0, 5, 4001};
        uint64_t seed = 3;
        for (int i = 0; i < 48; i++)
            x[i] = case_rand(&seed);
        int32_t in[3] = {case_cube(c, MN_ROLE_INPUT, MN_F32, 3, 2, 8, x, "x"),
                         case_vec(c, MN_ROLE_INPUT, MN_I32, 3, pos, "pos"),
                         case_vec(c, MN_ROLE_WEIGHT, MN_F32, 3, freqs, "freqs")};
        int32_t y = case_cube(c, MN_ROLE_OUTPUT, MN_F32, 3, 2, 8, NULL, "y");
        case_node(c, MN_OP_ROPE, in, 3, &y, 1, (const uint64_t[]){pairing, 6, case_f64(0.5)}, 3);
        h_run(&ref, c, MN_PRECISION_EXACT);
        memcpy(want, x, sizeof x);
        for (int r = 0; r < 6; r++)
            for (int i = 0; i < 3; i++) {
                int a = r * 8 + (pairing ? 2 * i : i);
                int b = pairing ? a + 1 : a + 3;
                double len = hypot((double)x[a], (double)x[b]) * 0.5;
                double angle = atan2((double)x[b], (double)x[a]) + pos[r / 2] * (double)freqs[i];
                want[a] = (float)(len * cos(angle));
                want[b] = (float)(len * sin(angle));
            }
        check(c, y, want, 48);
        case_free(c);
    }
}

/* All keys of a sequence lie dense in the case's data: no pages here. */
static void naive_attention(const op_case *c, const op_shape *s, float *want, bool f16) {
    int64_t nq = s->n_seqs ? s->n_seqs : 1;
    int64_t per = s->rows / nq;
    int64_t len = s->past + per;
    int64_t d = s->dim;
    const float *k = c->data[7];
    const float *v = c->data[8];
    const float *q = c->data[9];
    const float *sinks = s->variant & 4 ? c->data[11] : NULL;
    float *kr = malloc((size_t)(nq * len * s->n_head_kv * d) * 8);
    float *vr = kr + nq * len * s->n_head_kv * d;
    uint16_t half;
    for (int64_t i = 0; i < nq * len * s->n_head_kv * d; i++) {
        kr[i] = k[i];
        vr[i] = v[i];
        if (!f16)
            continue;
        case_quantise(MN_F16, &k[i], 1, &half);
        case_dequantise(MN_F16, &half, 1, &kr[i]);
        case_quantise(MN_F16, &v[i], 1, &half);
        case_dequantise(MN_F16, &half, 1, &vr[i]);
    }
    for (int64_t t = 0; t < s->rows; t++)
        for (int64_t h = 0; h < s->n_head; h++) {
            int64_t base = t / per * len;
            int64_t p = s->past + t % per;
            int64_t hk = h / (s->n_head / s->n_head_kv);
            long double sum = sinks ? expl((long double)sinks[h]) : 0;
            long double acc[256] = {0};
            for (int64_t i = 0; i <= p; i++) {
                if ((s->variant & 1) && i <= p - 17)
                    continue;
                long double l = 0;
                for (int64_t j = 0; j < d; j++)
                    l += (long double)q[(t * s->n_head + h) * d + j] *
                         (long double)kr[((base + i) * s->n_head_kv + hk) * d + j];
                l /= sqrtl((long double)d);
                if (s->variant & 2)
                    l = 1.5L * tanhl(l / 1.5L);
                sum += expl(l);
                for (int64_t j = 0; j < d; j++)
                    acc[j] += expl(l) * (long double)vr[((base + i) * s->n_head_kv + hk) * d + j];
            }
            for (int64_t j = 0; j < d; j++)
                want[(t * s->n_head + h) * d + j] = (float)(acc[j] / sum);
        }
    free(kr);
}

static void test_attention(void **state) {
    (void)state;
    for (int64_t variant = 0; variant < 8; variant++)
        for (int f16 = 0; f16 < 2; f16++) {
            op_shape s = {
                .rows = 6,
                .n_head = 4,
                .n_head_kv = 2,
                .dim = 16,
                .past = variant == 5 ? 0 : 130,
                .n_seqs = 1 + variant % 3,
                .variant = variant,
                .kv_dtype = f16 ? MN_F16 : MN_F32,
            };
            op_case *c = case_random(MN_OP_ATTENTION, MN_F32, &s, (uint64_t)variant);
            float want[6 * 4 * 16];
            h_run(&ref, c, MN_PRECISION_EXACT);
            naive_attention(c, &s, want, f16);
            check(c, 10, want, 6 * 4 * 16);
            case_free(c);
        }
}

/* Rows that must leave the cache as it is: padding and done slots (row_pos -1), and the slot they
 * name. */
static void test_kv_store_skips(void **state) {
    (void)state;
    op_case *c = case_new();
    float kv[4 * 2] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t pos[4] = {0, -1, 1, 2};
    int32_t slot[4] = {0, 0, -1, 0};
    int32_t pages[2] = {1, -1};
    int32_t k = case_cube(c, MN_ROLE_INPUT, MN_F32, 4, 1, 2, kv, "k");
    int32_t p = case_vec(c, MN_ROLE_INPUT, MN_I32, 4, pos, "pos");
    int32_t s = case_vec(c, MN_ROLE_INPUT, MN_I32, 4, slot, "slot");
    int32_t pg = case_mat(c, MN_ROLE_INPUT, MN_I32, 1, 2, pages, "pages");
    int32_t b = case_kv(c, MN_F32, 2);
    case_node(c, MN_OP_KV_STORE, (const int32_t[]){k, k, p, s, pg, b}, 6, NULL, 0,
              (const uint64_t[]){0, 0}, 2);
    h_run(&ref, c, MN_PRECISION_EXACT);
    const float *cache = c->result[b];
    int64_t page = (int64_t)c->bytes[b] / 8;
    int64_t stored = 0;
    for (int64_t i = 0; i < 2 * page; i++)
        stored += cache[i] != 0;
    assert_int_equal(stored, 8); /* rows 0 and 3, k and v, all in page 1 */
    assert_true(cache[page] == 1);
    assert_true(cache[page + 1] == 2);
    assert_true(cache[page + 4] == 7);
    assert_true(cache[page + 5] == 8);
    case_free(c);
}

static double act(int64_t kind, double x) {
    if (kind == MN_ACT_SILU)
        return x * 0.5 * (1 + tanh(x / 2));
    if (kind == MN_ACT_GELU_ERF)
        return x * 0.5 * erfc(-x / sqrt(2));
    if (kind == MN_ACT_GELU_TANH)
        return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
    if (kind == MN_ACT_SIGMOID)
        return 0.5 * (1 + tanh(x / 2));
    return kind == MN_ACT_RELU2 ? fmax(x, 0) * fmax(x, 0) : fmax(x, 0);
}

static double elementwise(uint32_t op, int64_t kind, double x, double y) {
    switch (op) {
    case MN_OP_ACT:
        return act(kind, x);
    case MN_OP_GLU:
        return act(kind, x) * y;
    case MN_OP_ADD:
        return x + y;
    case MN_OP_MUL:
        return x * y;
    case MN_OP_SCALE:
        return 1.75 * x;
    default:
        return 1.75 * (1 - 2 / (exp(2 * x / 1.75) + 1));
    }
}

static void test_elementwise(void **state) {
    (void)state;
    for (uint32_t op = MN_OP_ACT; op <= MN_OP_SOFTCAP; op++)
        for (int64_t kind = 0; kind < (op <= MN_OP_GLU ? 6 : 1); kind++) {
            op_shape s = {
                .rows = 3,
                .k = 37,
                .variant = kind + (kind & 4),
            };
            op_case *c = case_random(op, MN_F32, &s, op);
            float want[111];
            float *a = c->data[0];
            float *b = c->data[1];
            h_run(&ref, c, MN_PRECISION_EXACT);
            for (int i = 0; i < 111; i++) {
                double x = (double)a[i];
                double y = (double)b[i];
                want[i] = (float)elementwise(op, kind, x, y);
            }
            check(c, 2, want, 111);
            case_free(c);
        }
}

static void test_gather(void **state) {
    (void)state;
    op_case *c = case_new();
    float x[6] = {1, 2, 3, 4, 5, 6};
    float want[4] = {5, 6, 1, 2};
    int32_t rows[3] = {2, 0, -1};
    int32_t in[2] = {case_mat(c, MN_ROLE_INPUT, MN_F32, 3, 2, x, "x"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, 3, rows, "rows")};
    int32_t y = case_mat(c, MN_ROLE_OUTPUT, MN_F32, 3, 2, NULL, "y");
    case_node(c, MN_OP_GATHER_ROWS, in, 2, &y, 1, NULL, 0);
    h_run(&ref, c, MN_PRECISION_EXACT);
    check(c, y, want, 4);
    case_free(c);
}

static void test_embed(void **state) {
    (void)state;
    op_case *c = case_new();
    float table[4 * 2] = {1, 2, 3, 4, 5, 6, 7, 8};
    float want[14] = {6, 8, 10, 12, 2, 4};
    /* rows: two of a prompt, padding, slot 1 goes on, slot 2 is done, a literal row of the done
     * slot, an id outside */
    int32_t src[7] = {1, 2, 3, ~1, ~2, 3, 99};
    int32_t pos[7] = {4, 5, -1, -1, -1, 7, 6};
    int32_t slot[7] = {0, 0, -1, 1, 2, 2, 0};
    mn_slot slots[3] = {{.pos = 4},
                        {.pos = 2, .n_drawn = 5},
                        {.last_id = 1, .pos = 6, .n_drawn = 5, .done = MN_SLOT_STOPPED}};
    int32_t in[6] = {case_vec(c, MN_ROLE_INPUT, MN_I32, 7, src, "src"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, 7, pos, "pos"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, 7, slot, "slot"),
                     case_mat(c, MN_ROLE_WEIGHT, MN_F32, 4, 2, table, "table"),
                     case_state(c, slots, sizeof slots, 3, "slots"),
                     case_mat(c, MN_ROLE_STATE, MN_I32, 3, 8, NULL, "history")};
    int32_t out[2] = {case_mat(c, MN_ROLE_OUTPUT, MN_F32, 7, 2, NULL, "x"),
                      case_vec(c, MN_ROLE_OUTPUT, MN_I32, 7, NULL, "row_pos")};
    case_node(c, MN_OP_EMBED, in, 6, out, 2, (const uint64_t[]){case_f64(2)}, 1);
    h_run(&ref, c, MN_PRECISION_EXACT);
    const int32_t *rp = c->result[out[1]];
    const int32_t *h = c->result[in[5]];
    const int32_t expect[7] = {4, 5, -1, 2, -1, 7, 6};
    const mn_slot *after = c->result[in[4]];
    const float *x = c->result[out[0]];
    assert_memory_equal(rp, expect, sizeof expect);
    check(c, out[0], want, 4);
    assert_true(x[6] == 2);
    assert_true(x[7] == 4);
    assert_true(x[10] == 14);
    assert_true(x[12] == 2);
    assert_true(h[4] == 1);
    assert_true(h[5] == 2);
    assert_true(h[6] == 0);
    assert_true(h[8 + 2] == 0);
    assert_true(h[16 + 7] == 3);
    assert_true(h[16 + 6] == 0);
    assert_true(after[0].pos == 7);
    assert_true(after[1].pos == 3);
    assert_true(after[2].pos == 8);
    assert_true(after[2].done == MN_SLOT_STOPPED);
    case_free(c);
}

/* ---- SAMPLE ---------------------------------------------------------------------------------- */
static int32_t draw(const float *logits, int64_t n, mn_slot_params p, int32_t pos,
                    const int32_t *history) {
    char scratch[12 * 64];
    mnc_sample s = {
        .logits = logits,
        .n_vocab = n,
        .params = &p,
        .history = history,
        .n_ctx = 64,
        .pos = pos,
    };
    return mnc_sample_draw(&s, scratch);
}

static void test_philox(void **state) { /* the known answers of the Random123 distribution */
    (void)state;
    uint32_t out[4];
    mnc_philox((const uint32_t[]){0, 0}, (const uint32_t[]){0, 0, 0, 0}, out);
    assert_true(out[0] == 0x6627e8d5);
    assert_true(out[1] == 0xe169c58d);
    assert_true(out[2] == 0xbc57ac4c);
    assert_true(out[3] == 0x9b00dbd8);
    mnc_philox((const uint32_t[]){~0u, ~0u}, (const uint32_t[]){~0u, ~0u, ~0u, ~0u}, out);
    assert_true(out[0] == 0x408f276d);
    assert_true(out[1] == 0x41c83b0e);
    assert_true(out[2] == 0xa20bc7c6);
    assert_true(out[3] == 0x6d5451fd);
    mnc_philox((const uint32_t[]){0xa4093822, 0x299f31d0},
               (const uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, out);
    assert_true(out[0] == 0xd16cfe09);
    assert_true(out[1] == 0x94fdcceb);
    assert_true(out[2] == 0x5001e420);
    assert_true(out[3] == 0x24126ea1);
}

static void test_greedy(void **state) {
    (void)state;
    const float tie[4] = {1, 3, 3, -INFINITY};
    const float none[2] = {-INFINITY, -INFINITY};
    const float bad[4] = {1, 3, NAN, -INFINITY};
    const mn_slot_params greedy = {0};
    const mn_slot_params warm = {.temp = 1};
    const mn_slot_params first = {.temp = 1, .top_k = 1};
    assert_int_equal(draw(tie, 4, greedy, 1, NULL), 1);
    assert_int_equal(draw(none, 2, greedy, 1, NULL), MN_ID_NONE);
    assert_int_equal(draw(none, 2, warm, 1, NULL), MN_ID_NONE);
    assert_int_equal(draw(tie, 4, first, 1, NULL), 1);
    assert_int_equal(draw(bad, 4, greedy, 1, NULL), MN_ID_NAN);
    assert_int_equal(draw(bad, 4, warm, 1, NULL), MN_ID_NAN);
}

/* What `plugins check` compares: log-probabilities that rounding does not make. A row whose one id
 * is sure has 0 less the rounding of a sum, which each implementation does in its own way. */
static void test_cases_have_digits(void **state) {
    (void)state;
    static const int64_t lives[] = {1, 3, 36};
    for (int64_t i = 0; i < 3 * 32; i++) {
        op_shape s = {
            .rows = 37, .n = 7, .variant = i / 3, .live = lives[i % 3], .spoil = i % 3 == 2};
        if (!(s.variant & 4)) /* no LOGPROB */
            continue;
        op_case *c = case_random(MN_OP_SAMPLE, 0, &s, 42 + MN_OP_SAMPLE);
        c->value[0] = s.live;
        h_run(&ref, c, MN_PRECISION_EXACT);
        uint32_t t = 0;
        while (strcmp(c->t[t].name.ptr, "logprob"))
            t++;
        const float *got = c->result[t];
        double sum = 0;
        for (int64_t r = 0; r < s.live; r++)
            if (!c->dead[0][r])
                sum += (double)got[r] * (double)got[r];
        assert_true(sqrt(sum) > 1e-9); /* 1e-5 of it is more than doubles near 40 can hold */
        case_free(c);
    }
}

/* The biases, the mask and min_new, alone and in their order; LOGPROB; TARGET. */
static void test_operands(void **state) {
    (void)state;
    const float logits[4] = {1, 4, 3, INFINITY};
    const float bias[4] = {0, 0, 0, -INFINITY};
    const uint32_t mask = 0x5; /* ids 0 and 2 */
    const int32_t sparse[3] = {-1, 0, 9};
    const float by[3] = {100, 2.5f, 100};
    char scratch[12 * 4];
    float logprob = 0;
    mn_slot_params p = {
        .n_stop = 1,
        .stop = {1},
        .min_new = 2,
    };
    mnc_sample s = {
        .logits = logits,
        .bias = bias,
        .n_vocab = 4,
        .params = &p,
    };
    s.logprob = &logprob;
    s.n_drawn = 2;
    assert_int_equal(mnc_sample_draw(&s, scratch), 1);
    assert_true(fabs(logprob + log(exp(-3) + 1 + exp(-1))) < 1e-6);
    s.n_drawn = 1; /* its stop id is not drawn yet */
    assert_int_equal(mnc_sample_draw(&s, scratch), 2);
    s.sparse = sparse;
    s.sparse_by = by;
    s.n_sparse = 3;
    assert_int_equal(mnc_sample_draw(&s, scratch), 0);
    s.sparse = NULL;
    s.n_drawn = 2;
    s.mask = &mask;
    assert_int_equal(mnc_sample_draw(&s, scratch), 2);
    const float plain[4] = {1, 4, 3, -INFINITY};
    s.logits = plain;
    mnc_sample_target(&s, 0, scratch); /* of the logits as they are: no mask */
    assert_true(fabs(logprob + 3 + log(exp(-3) + 1 + exp(-1))) < 1e-6);
    mnc_sample_target(&s, 3, scratch);
    assert_true(isinf(logprob));
    assert_true(logprob < 0);
}

static void test_penalties(void **state) {
    (void)state;
    const float l[4] = {-1, 4, 3, 2};
    const int32_t history[64] = {3, 1, 1, 2};
    mn_slot_params p = {.repeat_penalty = 2, .penalty_last_n = -1};
    /* 4 / 2 = 2 once, though there are two: 3 wins */
    assert_int_equal(draw(l, 4, p, 3, history), 2);
    p.penalty_last_n = 0;
    assert_int_equal(draw(l, 4, p, 3, history), 1);
    p.penalty_last_n = 1;
    p.repeat_penalty = 1.5f;
    assert_int_equal(draw(l, 4, p, 4, history), 1); /* only the newest, id 2 */
    p = (mn_slot_params){.frequency_penalty = 0.6f, .penalty_last_n = -1};
    assert_int_equal(draw(l, 4, p, 3, history), 2); /* 4 - 2 * 0.6 = 2.8 */
    p = (mn_slot_params){.presence_penalty = 0.6f, .penalty_last_n = -1};
    assert_int_equal(draw(l, 4, p, 3, history), 1);
    /* negative logits are multiplied */
    p = (mn_slot_params){.repeat_penalty = 100, .penalty_last_n = -1};
    const float neg[2] = {-1, -2};
    assert_int_equal(draw(neg, 2, p, 1, (const int32_t[64]){0}), 1);
    /* 4 / 1e-40 is no infinity, but the largest float: drawn, greedily or not */
    p = (mn_slot_params){.repeat_penalty = 1e-40f, .penalty_last_n = -1};
    assert_int_equal(draw(l, 4, p, 2, history), 1);
    p.temp = 1;
    assert_int_equal(draw(l, 4, p, 2, (const int32_t[64]){1, 1}), 1);
}

/* What the filters let through, by many draws; and how often, by the formula. */
static void count_draws(const float *l, int64_t n, mn_slot_params p, int32_t *count) {
    memset(count, 0, (size_t)n * sizeof *count);
    for (int32_t pos = 0; pos < 20000; pos++)
        count[draw(l, n, p, pos, NULL)]++;
}

static void test_filters(void **state) {
    (void)state;
    const float l[5] = {logf(0.1f), logf(0.4f), logf(0.25f), logf(0.2f), logf(0.05f)};
    int32_t n[5];
    count_draws(l, 5, (mn_slot_params){.temp = 1}, n);
    assert_true(abs(n[1] - 8000) < 300);
    assert_true(abs(n[0] - 2000) < 200);
    assert_true(abs(n[4] - 1000) < 150);
    count_draws(l, 5, (mn_slot_params){.temp = 1, .top_k = 2}, n);
    assert_true(!n[0]);
    assert_true(!n[3]);
    assert_true(!n[4]);
    assert_true(abs(n[1] - 12308) < 300);
    count_draws(l, 5, (mn_slot_params){.temp = 1, .top_p = 0.6f}, n);
    assert_true(n[1]);
    assert_true(n[2]);
    assert_true(!n[3]);
    assert_true(!n[0]);
    assert_true(!n[4]);
    /* among three: 0.47, 0.29, 0.24 */
    count_draws(l, 5,
                (mn_slot_params){
                    .temp = 1,
                    .top_k = 3,
                    .top_p = 0.46f,
                },
                n);
    assert_true(n[1] == 20000);
    count_draws(l, 5, (mn_slot_params){.temp = 1, .min_p = 0.45f}, n);
    assert_true(n[1]);
    assert_true(n[2]);
    assert_true(n[3]);
    assert_true(!n[0]);
    assert_true(!n[4]);
    count_draws(l, 5, (mn_slot_params){.temp = 0.5f}, n); /* squares: .01 .16 .0625 .04 .0025 */
    assert_true(abs(n[1] - 11636) < 300);
    assert_true(abs(n[2] - 4545) < 300);
}

/* By sorting everything, for random cases. */
static int cmp_logit(const void *a, const void *b, void *l) {
    const float x = ((float *)l)[*(const int32_t *)a];
    const float y = ((float *)l)[*(const int32_t *)b];
    if (x != y)
        return x > y ? -1 : 1;
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void test_draw_by_sorting(void **state) {
    (void)state;
    uint64_t seed = 9;
    for (int round = 0; round < 3000; round++) {
        float l[64];
        int32_t id[64];
        int32_t n = 64;
        /* many ties */
        for (int i = 0; i < 64; i++) {
            l[i] = roundf(case_rand(&seed) * 20) / 4;
            id[i] = i;
        }
        mn_slot_params p = {
            .seed = (uint64_t)round << 30,
            .temp = 0.3f + fabsf(case_rand(&seed)),
            .top_k = round % 3 ? round % 70 : 0,
            .top_p = round % 2 ? fabsf(case_rand(&seed)) : 0,
            .min_p = round % 5 == 0 ? fabsf(case_rand(&seed)) : 0,
        };
        qsort_r(id, 64, sizeof *id, cmp_logit, l);
        if (p.top_k > 0 && p.top_k < n)
            n = p.top_k;
        double total = 0;
        double run = 0;
        double sum = 0;
        for (int i = 0; i < n; i++)
            total += exp((double)l[id[i]] - (double)l[id[0]]);
        for (int i = 0; p.top_p > 0 && i < n; i++)
            if ((run += exp((double)l[id[i]] - (double)l[id[0]])) >= (double)p.top_p * total)
                n = i + 1;
        while (n > 1 && exp((double)l[id[n - 1]] - (double)l[id[0]]) < (double)p.min_p)
            n--;
        for (int i = 0; i < n; i++)
            sum += exp(((double)l[id[i]] - (double)l[id[0]]) / (double)p.temp);
        uint32_t x[4];
        mnc_philox((const uint32_t[]){(uint32_t)p.seed, (uint32_t)(p.seed >> 32)},
                   (const uint32_t[]){(uint32_t)round, 0, 0, 0}, x);
        double goal = (x[0] >> 8) * 0x1p-24 * sum;
        int32_t want = -1;
        run = 0;
        for (int i = 0; i < n && want < 0; i++)
            if ((run += exp(((double)l[id[i]] - (double)l[id[0]]) / (double)p.temp)) > goal)
                want = id[i];
        assert_int_equal(draw(l, 64, p, round, NULL), want);
    }
}

/* The op: states, stops, done slots, missing outputs, bias, top-n. */
static op_case *sample_case(bool with_top) {
    op_case *c = case_new();
    float logits[4 * 4] = {0, 1, 2, 3, 0, 1, 2, 3, 9, 1, 2, 3, 0, 1, 2, 3};
    float bias[16] = {[3] = -INFINITY};
    int32_t out_slot[4] = {0, 1, -1, 2};
    mn_slot slots[3] = {{.pos = 3}, {.pos = 3, .done = MN_SLOT_STOPPED}, {.pos = 3, .n_drawn = 1}};
    mn_slot_params params[3] = {{.n_stop = 2, .stop = {7, 2}}, {0}, {.max_new = 2}};
    int32_t in[6] = {case_mat(c, MN_ROLE_INPUT, MN_F32, 4, 4, logits, "logits"),
                     case_vec(c, MN_ROLE_INPUT, MN_I32, 4, out_slot, "out_slot"),
                     case_state(c, params, sizeof params, 3, "params"),
                     case_state(c, slots, sizeof slots, 3, "slots"),
                     case_mat(c, MN_ROLE_STATE, MN_I32, 3, 8, NULL, "history"),
                     case_mat(c, MN_ROLE_INPUT, MN_F32, 4, 4, bias, "bias")};
    int32_t out[3] = {case_vec(c, MN_ROLE_OUTPUT, MN_I32, 4, NULL, "ids"),
                      case_mat(c, MN_ROLE_OUTPUT, MN_I32, 4, 2, NULL, "top"),
                      case_mat(c, MN_ROLE_OUTPUT, MN_F32, 4, 2, NULL, "lp")};
    case_node(c, MN_OP_SAMPLE, in, 6, out, 3, NULL, 0);
    for (int i = 0; i < 3; i++)
        c->unbound[out[i]] = !with_top;
    return c;
}

static void test_sample_op(void **state) {
    (void)state;
    for (int with_top = 0; with_top < 2; with_top++) {
        op_case *c = sample_case(with_top);
        h_run(&ref, c, MN_PRECISION_EXACT);
        const mn_slot *s = c->result[3];
        assert_true(s[0].last_id == 2);
        assert_true(s[0].n_drawn == 1);
        assert_true(s[0].done == MN_SLOT_STOPPED);
        assert_true(s[0].pos == 3);
        assert_true(s[1].n_drawn == 0);
        assert_true(s[1].done == MN_SLOT_STOPPED);
        assert_true(s[2].last_id == 3);
        assert_true(s[2].n_drawn == 2);
        assert_true(s[2].done == MN_SLOT_LENGTH);
        const int32_t *ids = c->result[6];
        const int32_t *top = c->result[7];
        const int32_t want[4] = {2, -1, -1, 3};
        const float *lp = c->result[8];
        if (with_top) {
            assert_memory_equal(ids, want, sizeof want);
            assert_true(top[0] == 2);
            assert_true(top[1] == 1);
            assert_true(top[6] == 3);
            assert_true(top[7] == 2);
            double z = log(1 + exp(-1) + exp(-2));
            assert_true(fabs((double)lp[0] + z) < 1e-6);
            assert_true(fabs((double)lp[1] + 1 + z) < 1e-6);
        }
        case_free(c);
    }
}

/* Four rows of a slot that verify drafts, against as many steps of one row. */
enum { N_TIED = 4, N_TIED_IDS = 12, TIED_AT = 5, TIED_CTX = 16 };
typedef struct {
    float logits[N_TIED * N_TIED_IDS];
    int32_t history[2 * TIED_CTX]; /* of slot 1 the second row */
    mn_slot_params params[2];
} tied_case;

/* Runs n rows from row `at` on; drafts: of all but the last. */
static void run_rows(const tied_case *t, int at, int n, const int32_t *drafts, mn_slot *slot,
                     int32_t *ids) {
    op_case *c = case_new();
    int32_t out_slot[N_TIED] = {1, 1, 1, 1};
    int32_t draft[N_TIED] = {-1, -1, -1, -1};
    mn_slot slots[2] = {{0}, *slot};
    for (int i = 0; i + 1 < n; i++)
        draft[i] = drafts[i];
    int32_t in[MN_SAMPLE_DRAFT + 1];
    for (int i = 0; i <= MN_SAMPLE_DRAFT; i++)
        in[i] = -1;
    in[MN_SAMPLE_LOGITS] =
        case_mat(c, MN_ROLE_INPUT, MN_F32, n, N_TIED_IDS, t->logits + at * N_TIED_IDS, "logits");
    in[MN_SAMPLE_OUT_SLOT] = case_vec(c, MN_ROLE_INPUT, MN_I32, n, out_slot, "out_slot");
    in[MN_SAMPLE_PARAMS] = case_state(c, t->params, sizeof t->params, 2, "params");
    in[MN_SAMPLE_SLOTS] = case_state(c, slots, sizeof slots, 2, "slots");
    in[MN_SAMPLE_HISTORY] = case_mat(c, MN_ROLE_STATE, MN_I32, 2, TIED_CTX, t->history, "history");
    in[MN_SAMPLE_DRAFT] = case_vec(c, MN_ROLE_INPUT, MN_I32, n, draft, "draft");
    int32_t out = case_vec(c, MN_ROLE_OUTPUT, MN_I32, n, NULL, "ids");
    case_node(c, MN_OP_SAMPLE, in, MN_SAMPLE_DRAFT + 1, &out, 1, NULL, 0);
    h_run(&ref, c, MN_PRECISION_EXACT);
    memcpy(ids, c->result[out], (size_t)n * sizeof *ids);
    *slot = ((const mn_slot *)c->result[in[MN_SAMPLE_SLOTS]])[1];
    case_free(c);
}

/* wrong: the first draft that is not what is drawn; N_TIED: none. */
static void compare_tied(tied_case t, int wrong) {
    mn_slot slot = {.last_id = 3, .pos = TIED_AT, .n_drawn = 1};
    mn_slot tied = slot;
    int32_t want[N_TIED] = {-1, -1, -1, -1};
    int32_t drafts[N_TIED] = {1, 1, 1, 1};
    int32_t got[N_TIED];
    tied_case alone = t;
    for (int i = 0; i < N_TIED && !slot.done && i <= wrong; i++) {
        slot.pos = TIED_AT + i;
        run_rows(&alone, i, 1, NULL, &slot, &want[i]);
        alone.history[TIED_CTX + TIED_AT + i] = want[i];
        drafts[i] = i == wrong ? (want[i] + 1) % N_TIED_IDS : want[i];
    }
    for (int i = 0; i + 1 < N_TIED; i++)
        t.history[TIED_CTX + TIED_AT + i] = drafts[i];
    tied.pos = TIED_AT + N_TIED - 1;
    run_rows(&t, 0, N_TIED, drafts, &tied, got);
    assert_memory_equal(got, want, sizeof want);
    assert_memory_equal(&tied, &slot, sizeof slot);
}

static void test_tied_rows(void **state) {
    const mn_slot_params params[] = {
        {0},
        {.temp = 1, .seed = 7},
        {.temp = 1.5f, .seed = 8, .repeat_penalty = 3, .penalty_last_n = 4},
        {.temp = 0.7f, .seed = 9, .frequency_penalty = 2, .penalty_last_n = -1, .max_new = 3},
        {.temp = 1, .seed = 10, .n_stop = 4, .stop = {0, 2, 4, 6}},
        {.temp = 1, .seed = 11, .n_stop = 4, .stop = {0, 2, 4, 6}, .min_new = 3},
    };
    uint64_t seed = 5;
    (void)state;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        tied_case t = {.params = {{0}, params[i]}};
        for (int j = 0; j < N_TIED * N_TIED_IDS; j++)
            t.logits[j] = 3 * case_rand(&seed);
        for (int j = 0; j < 2 * TIED_CTX; j++)
            t.history[j] = j % N_TIED_IDS;
        for (int wrong = 0; wrong <= N_TIED; wrong++)
            compare_tied(t, wrong);
    }
}

/* The number of workers changes no bit. */
static void test_workers(void **state) {
    (void)state;
    op_shape shapes[] = {{
                             .rows = 7,
                             .k = 64,
                             .n = 13,
                             .variant = 1,
                         },
                         {
                             .rows = 6,
                             .n_head = 4,
                             .n_head_kv = 2,
                             .dim = 8,
                             .past = 70,
                         },
                         {.rows = 9, .n = 60},
                         {.rows = 5, .k = 33}};
    uint32_t ops[] = {MN_OP_LINEAR, MN_OP_ATTENTION, MN_OP_SAMPLE, MN_OP_RMS_NORM};
    for (int i = 0; i < 4; i++) {
        op_case *c[2];
        for (int k = 0; k < 2; k++) {
            h_plugin p;
            h_host_workers(k ? 5 : 1);
            assert_true(h_open(&p, "reference"));
            c[k] = case_random(ops[i], MN_F32, &shapes[i], 5);
            h_run(&p, c[k], MN_PRECISION_EXACT);
            h_close(&p);
        }
        h_host_workers(3);
        for (uint32_t t = 0; t < c[0]->g.n_tensors; t++)
            assert_memory_equal(c[0]->result[t], c[1]->result[t], c[0]->bytes[t]);
        case_free(c[0]);
        case_free(c[1]);
    }
}

/* Every random case runs, and gives the same twice. */
static void test_compare(void **state) {
    (void)state;
    op_shape s = {
        .rows = 4,
        .k = 64,
        .n = 64,
        .n_head = 4,
        .n_head_kv = 2,
        .dim = 16,
        .past = 65,
    };
    for (uint32_t op = MN_OP_EMBED; op <= MN_OP_SAMPLE; op++) {
        double e = h_compare("reference", "reference", op, MN_Q8_0, &s, MN_PRECISION_EXACT);
        if (e != 0)
            fail_msg("op %u: %g", op, e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_kv_store_skips),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_draw_by_sorting),
        cmocka_unit_test(test_sample_op),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_tied_rows),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_cases_have_digits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
