/* case_sample.c -- random cases of SAMPLE (case_gen.h): row i draws for slot live - 1 - i, with
 * other parameters in each. With holes, one slot in six is done, and one row in seven has no
 * finite logit or a NaN: its id is defined, its top list is not. With drafts, TIED rows in a row
 * draw for one slot, and each makes the draft of the one behind it likely, or not. The arrays are
 * the generator's until the case has copied them. */
#include "case_gen.h"
#include <math.h>
#include <stdlib.h>

enum { HISTORY = 16, N_TOP = 5, N_BIASES = 3, TIED = 3, FEW_STOPS = 3 };

/* What a draft's logit is raised by: enough to be drawn nearly always, while the log-probability
 * stays far above 1e-12, which is what rounding leaves of sums near 1. */
#define LIKELY 20

/* Periods that have no common factor where parameters work together: penalties meet histories that
 * repeat ids, min_new meets slots that have drawn fewer ids and more. variant bit 1: greedy. */
static mn_slot_params draw_params(const casegen *g, int64_t i) {
    static const int32_t last_n[] = {-1, 4, 0};
    mn_slot_params p = {
        .seed = (uint64_t)i * 77 << i % 40,
        .top_k = (int32_t)(i % 5) * 10,
        .penalty_last_n = last_n[i % 3],
        .max_new = (int32_t)(i % 3),
    };
    if (!(g->s->variant & 2))
        p.temp = (float)(i % 3) * 0.7f;
    if (i % 2)
        p.top_p = 0.9f;
    if (i % 7 == 1)
        p.min_p = 0.05f;
    if (i % 4 == 3)
        p.repeat_penalty = 1.3f;
    if (i % 5 == 2)
        p.frequency_penalty = 0.4f;
    if (i % 5 == 4)
        p.presence_penalty = 0.3f;
    if (i % 4 == 1)
        p.n_stop = MN_MAX_STOP;
    if (i % 4 == 3)
        p.n_stop = FEW_STOPS; /* others are left where these may not be drawn yet */
    if (i % 8 == 3)
        p.min_new = 3;
    for (int j = 0; j < p.n_stop; j++)
        p.stop[j] = (int32_t)((j * 3 + i) % g->s->n);
    return p;
}

static bool has_samplers(const casegen *g) {
    return g->s->variant & 16;
}

/* What contract 4 adds: each sampler acts in some rows, and two orders are not the usual one. */
static void draw_samplers(int64_t i, mn_slot_params *p) {
    const uint64_t late = MN_SAMPLER_TOP_P | MN_SAMPLER_DRY << 4 | MN_SAMPLER_TEMPERATURE << 8 |
                          MN_SAMPLER_XTC << 12 | MN_SAMPLER_PENALTIES << 16;
    const uint64_t early = MN_SAMPLER_TEMPERATURE | MN_SAMPLER_MIN_P << 4 | MN_SAMPLER_TOP_P << 8;
    if (p->temp > 0)
        p->temp += 0.8f;
    if (i % 2)
        p->dry_multiplier = 1.5f;
    p->dry_base = 1.75f;
    p->dry_allowed_length = (int32_t)(1 + i % 2);
    p->dry_last_n = i % 8 == 1 ? 4 : -1;
    if (i % 5 == 1)
        p->top_n_sigma = 0.9f;
    if (i % 3 == 1)
        p->typical_p = 0.5f;
    if (i % 4 == 1)
        p->xtc_probability = 0.7f;
    p->xtc_threshold = 0.02f;
    if (i % 3 == 2)
        p->dynatemp_range = 1;
    p->dynatemp_exponent = 1.3f;
    if (i % 7 == 5)
        p->mirostat = 2;
    p->mirostat_tau = 2;
    p->mirostat_eta = 0.3f;
    if (i % 4 == 3)
        p->samplers = late;
    if (i % 8 == 2)
        p->samplers = early;
}

static bool has_drafts(const casegen *g) {
    return g->s->variant & 8;
}

/* The slot of a live row. */
static int32_t case_sample_slot_of(const casegen *g, int64_t row) {
    const int64_t per = has_drafts(g) ? TIED : 1;
    return (int32_t)((g->live - 1) / per - row / per);
}

/* Whether the next row verifies a draft. Every fourth group of rows is not tied: its slot draws
 * once per row, or has targets. */
static bool is_tied(const casegen *g, int64_t row) {
    const bool last = row % TIED == TIED - 1 || row + 1 >= g->live;
    return has_drafts(g) && !last && row / TIED % 4 != 3;
}

/* What the row most likely draws, unless a mask or a penalty is against it. */
static int32_t likely(const casegen *g, int64_t row) {
    return (int32_t)((row * 7 + 3) % g->s->n);
}

/* Adds the operand of contract 3. One draft in five is wrong. */
static int32_t add_drafts(casegen *g) {
    const int64_t rows = g->s->rows;
    int32_t *draft = casegen_zeroed(g, rows, sizeof *draft);
    for (int64_t i = 0; !g->c->failed && i < rows; i++) {
        draft[i] = -1;
        if (is_tied(g, i))
            draft[i] = (int32_t)((likely(g, i) + (i % 5 == 4)) % g->s->n);
    }
    const int32_t tensor = casegen_int_input(g, draft, "draft");
    free(draft);
    return tensor;
}

static int32_t add_mask(casegen *g) {
    const int64_t rows = g->s->rows;
    const int64_t words = (g->s->n + 31) / 32;
    uint32_t *mask = casegen_zeroed(g, rows * words, sizeof *mask); // [rows, words]
    for (int64_t i = 0; !g->c->failed && i < rows * words; i++)
        mask[i] = 0xF7BD6F5Bu;
    const int32_t t = case_mat(g->c, MN_ROLE_INPUT, MN_I32, g->T, words, mask, "mask");
    free(mask);
    return t;
}

/* Sparse biases: ids and values, [rows, N_BIASES]. One entry of a row is unused: id -1, and the
 * value beside it must not be used. */
static void add_sparse_biases(casegen *g, int32_t *in) {
    const int64_t rows = g->s->rows;
    op_case *c = g->c;
    int32_t *ids = casegen_zeroed(g, rows * N_BIASES, sizeof *ids);
    float *values = casegen_zeroed(g, rows * N_BIASES, sizeof *values);
    for (int64_t i = 0; !c->failed && i < rows; i++)
        for (int64_t j = 0; j < N_BIASES; j++) {
            const bool none = j == 1;
            ids[i * N_BIASES + j] = none ? -1 : (int32_t)((i + j) % g->s->n);
            values[i * N_BIASES + j] = none ? 100 : 3 * case_rand(g->seed);
        }
    in[MN_SAMPLE_BIAS_IDS] = case_mat(c, MN_ROLE_STATE, MN_I32, rows, N_BIASES, ids, "bias_ids");
    in[MN_SAMPLE_BIAS_VALUES] =
        case_mat(c, MN_ROLE_STATE, MN_F32, rows, N_BIASES, values, "bias_values");
    free(ids);
    free(values);
}

/* One row in three has a target, unless it verifies a draft. */
static int32_t add_targets(casegen *g) {
    int32_t *target = casegen_zeroed(g, g->s->rows, sizeof *target);
    for (int64_t i = 0; !g->c->failed && i < g->s->rows; i++) {
        const bool tied = is_tied(g, i) || (i && is_tied(g, i - 1));
        if (i % 3 == 1 && !tied)
            target[i] = (int32_t)(i % g->s->n);
        else
            target[i] = -1;
    }
    const int32_t t = casegen_int_input(g, target, "target");
    free(target);
    return t;
}

/* Adds what contract 2 knows: MASK, sparse biases, TARGET and LOGPROB. */
static void add_contract_2(casegen *g, int32_t *in, int32_t *logprob) {
    in[MN_SAMPLE_MASK] = add_mask(g);
    add_sparse_biases(g, in);
    in[MN_SAMPLE_TARGET] = add_targets(g);
    *logprob = case_vec(g->c, MN_ROLE_OUTPUT, MN_F32, g->T, NULL, "logprob");
}

/* Adds the breakers of contract 4, every third id. */
static int32_t add_breakers(casegen *g) {
    const int64_t rows = g->s->rows;
    const int64_t words = (g->s->n + 31) / 32;
    int32_t *bits = casegen_zeroed(g, rows * words, sizeof *bits);
    for (int64_t i = 0; !g->c->failed && i < rows * words; i++)
        bits[i] = 0x49249249;
    const int32_t t = case_mat(g->c, MN_ROLE_STATE, MN_I32, rows, words, bits, "breakers");
    free(bits);
    return t;
}

/* Arrays of one case, [rows] or [rows, n]; NULL where memory ran out. */
typedef struct {
    mn_slot *slots;
    mn_slot_params *params;
    int32_t *slot, *history;
    float *logits, *bias;
} sample_arrays;

static void arrays_make(casegen *g, sample_arrays *a) {
    const int64_t rows = g->s->rows;
    const int64_t n = g->s->n;
    a->slots = casegen_zeroed(g, rows, sizeof *a->slots);
    a->params = casegen_zeroed(g, rows, sizeof *a->params);
    a->slot = casegen_zeroed(g, rows, sizeof *a->slot);
    a->history = casegen_zeroed(g, rows * HISTORY, sizeof *a->history);
    a->logits = casegen_zeroed(g, rows * n, sizeof *a->logits);
    a->bias = casegen_zeroed(g, rows * n, sizeof *a->bias);
}

static void arrays_free(sample_arrays *a) {
    free(a->slots);
    free(a->params);
    free(a->slot);
    free(a->history);
    free(a->logits);
    free(a->bias);
}

/* Logits of row i: [n] */
static void spoil_logits(const casegen *g, int64_t i, float *logits) {
    const bool no_number = g->holes && i % 7 == 6;
    const bool spoiled = g->s->spoil && i % 2;
    const bool has_nan = i % 14 != 6;
    for (int64_t j = 0; j < g->s->n; j++) {
        if (!no_number && !(spoiled && j % 3 == 1))
            continue;
        if (j % 2 && has_nan)
            logits[j] = NAN;
        else
            logits[j] = -INFINITY;
    }
}

static void fill_row(casegen *g, sample_arrays *a, int64_t i, uint8_t *dead) {
    const op_shape *s = g->s;
    float *logits = a->logits + i * s->n;
    const bool padding = i >= g->live;
    if (padding)
        a->slot[i] = -1;
    else
        a->slot[i] = case_sample_slot_of(g, i);
    if (has_drafts(g))
        logits[likely(g, i)] += LIKELY;
    a->slots[i].pos = (int32_t)(3 + i * 5 % 13);
    a->slots[i].n_drawn = (int32_t)(i % 5);
    if (g->holes && i % 6 == 5)
        a->slots[i].done = MN_SLOT_LENGTH;
    a->params[i] = draw_params(g, i);
    if (has_samplers(g)) {
        draw_samplers(i, &a->params[i]);
        a->slots[i].mu = 2 + (float)(i % 4);
    }
    for (int64_t j = 0; j < HISTORY; j++)
        a->history[i * HISTORY + j] = (int32_t)((i * 5 + j * j % 7 * 3) % s->n);
    if (padding || s->dirty)
        casegen_fill_bad(logits, s->n);
    spoil_logits(g, i, logits);
    const bool top_undefined = g->holes && (i % 7 == 6 || a->slot[i] % 6 == 5);
    const bool spoiled = s->spoil && i % 2;
    const bool may_not_draw = has_drafts(g) && i % TIED;
    dead[i] = padding || top_undefined || spoiled || may_not_draw || s->dirty;
}

static void arrays_fill(casegen *g, sample_arrays *a, uint8_t *dead) {
    const int64_t rows = g->s->rows;
    for (int64_t i = 0; !g->c->failed && i < rows * g->s->n; i++) {
        const float first = case_rand(g->seed);
        a->logits[i] = 4 * (first + case_rand(g->seed));
        if (i % 11 == 4)
            a->bias[i] = -INFINITY;
        else
            a->bias[i] = 0.5f * case_rand(g->seed);
    }
    for (int64_t i = 0; !g->c->failed && i < rows; i++)
        fill_row(g, a, i, dead);
}

/* The operands that every SAMPLE has, in[LOGITS] to in[HISTORY]. */
static void add_first_operands(casegen *g, const sample_arrays *a, int32_t *in) {
    op_case *c = g->c;
    const int64_t rows = g->s->rows;
    in[MN_SAMPLE_LOGITS] = case_mat(c, MN_ROLE_INPUT, MN_F32, g->T, g->s->n, a->logits, "logits");
    in[MN_SAMPLE_OUT_SLOT] = casegen_int_input(g, a->slot, "out_slot");
    in[MN_SAMPLE_PARAMS] =
        case_state(c, a->params, (uint64_t)rows * sizeof *a->params, rows, "params");
    in[MN_SAMPLE_SLOTS] = case_state(c, a->slots, (uint64_t)rows * sizeof *a->slots, rows, "slots");
    in[MN_SAMPLE_HISTORY] =
        case_mat(c, MN_ROLE_STATE, MN_I32, rows, HISTORY, a->history, "history");
}

/* The operands behind BIAS that the shape's variant has; how many operands the node has with them.
 * *logprob: the output, where contract 2 is tried. */
static uint32_t add_last_operands(casegen *g, int32_t *in, int32_t *logprob) {
    uint32_t n_in = MN_SAMPLE_BIAS;
    if (g->s->variant & 1)
        n_in = MN_SAMPLE_BIAS + 1;
    if (g->s->variant & 4) {
        add_contract_2(g, in, logprob);
        n_in = MN_SAMPLE_TARGET + 1;
    }
    if (has_drafts(g)) {
        in[MN_SAMPLE_DRAFT] = add_drafts(g);
        n_in = MN_SAMPLE_DRAFT + 1;
    }
    if (has_samplers(g)) {
        in[MN_SAMPLE_BREAKERS] = add_breakers(g);
        n_in = MN_SAMPLE_BREAKERS + 1;
    }
    return n_in;
}

/* variant: bit 0 a dense bias, bit 1 greedy, bit 2 what contract 2 adds, bit 3 drafts, bit 4 all
 * samplers. */
void casegen_sample(casegen *g, uint32_t op, uint32_t dtype) {
    op_case *c = g->c;
    sample_arrays a;
    int32_t in[MN_SAMPLE_BREAKERS + 1];
    int32_t out[4];
    (void)dtype;
    arrays_make(g, &a);
    c->dead[0] = casegen_zeroed(g, g->s->rows, 1);
    arrays_fill(g, &a, c->dead[0]);
    for (int i = MN_SAMPLE_BIAS; i <= MN_SAMPLE_BREAKERS; i++)
        in[i] = -1;
    add_first_operands(g, &a, in);
    if (g->s->variant & 1)
        in[MN_SAMPLE_BIAS] = case_mat(c, MN_ROLE_INPUT, MN_F32, g->T, g->s->n, a.bias, "bias");
    out[0] = casegen_int_output(g, "ids");
    out[1] = case_mat(c, MN_ROLE_OUTPUT, MN_I32, g->T, N_TOP, NULL, "top_ids");
    out[2] = casegen_float_output(g, N_TOP, "top_logprobs");
    c->every_row[out[0]] = true;
    const uint32_t n_in = add_last_operands(g, in, &out[MN_SAMPLE_OUT_LOGPROB]);
    case_node(c, op, in, n_in, out, g->s->variant & 4 ? 4 : 3, NULL, 0);
    arrays_free(&a);
}
