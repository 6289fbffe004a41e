/* rope.c -- rotary embedding: its keys, and the angle of each pair with the scaling applied.
 *
 * Layers that rotate alike share a table of angles; window layers may have one of their own, which
 * is never scaled. The formulas are those of the papers that mn_hparams names, computed in f64. */
#include "model/hparams_read.h"
#include <math.h>
#include <stdio.h>

static mn_status read_scaling(const mn_hp_reader *r, mn_hparams *h) {
    static const struct {
        const char *key;
        double lo;
        size_t at;
    } rows[] = {
        {"rope.scale_linear", 1e-6, offsetof(mn_hparams, rope_factor)}, /* its first name */
        {"rope.scaling.factor", 1e-6, offsetof(mn_hparams, rope_factor)},
        {"rope.scaling.low_freq_factor", 1e-6, offsetof(mn_hparams, rope_low_freq)},
        {"rope.scaling.high_freq_factor", 1e-6, offsetof(mn_hparams, rope_high_freq)},
        {"rope.scaling.attn_factor", 0, offsetof(mn_hparams, rope_attn_factor)},
        {"rope.scaling.yarn_attn_factor", 0, offsetof(mn_hparams, rope_yarn_attn)},
        {"rope.scaling.beta_fast", 1e-6, offsetof(mn_hparams, rope_beta_fast)},
        {"rope.scaling.beta_slow", 1e-6, offsetof(mn_hparams, rope_beta_slow)},
        {"rope.scaling.yarn_beta_fast", 1e-6, offsetof(mn_hparams, rope_beta_fast)},
        {"rope.scaling.yarn_beta_slow", 1e-6, offsetof(mn_hparams, rope_beta_slow)},
    };
    mn_status st = MN_OK;
    for (size_t i = 0; i < MN_COUNT(rows) && !st; i++) {
        char *at = (char *)h + rows[i].at;
        st = mn_hp_real(r, rows[i].key, rows[i].lo, 1e12, (double *)(void *)at);
    }
    if (!st)
        st = mn_hp_bool(r, "rope.scaling.yarn_truncate", &h->yarn_truncate);
    if (st)
        return st;
    return mn_hp_int(r, "rope.scaling.original_context_length", 1, INT32_MAX, &h->rope_orig_ctx);
}

/* What the kind of scaling cannot do without. */
static mn_status check_scaling(const mn_hp_reader *r, const mn_hparams *h) {
    if (h->rope_scaling >= MN_ROPE_SCALING_LLAMA3 && !h->rope_orig_ctx)
        return mn_fail(r->err, MN_BAD_FILE,
                       "%s: missing key %s.rope.scaling.original_context_length", r->m->path,
                       r->arch);
    if (h->rope_scaling == MN_ROPE_SCALING_LLAMA3 && !(h->rope_high_freq > h->rope_low_freq))
        return mn_fail(r->err, MN_BAD_FILE,
                       "%s: %s.rope.scaling.high_freq_factor %g is not above low_freq_factor %g",
                       r->m->path, r->arch, h->rope_high_freq, h->rope_low_freq);
    return MN_OK;
}

/* Files with longrope's factors as tensors do not name the kind. */
static bool has_longrope(const mn_canonical *m) {
    return mn_canonical_tensor(m, "rope_factors_long.weight") ||
           mn_canonical_tensor(m, "rope_factors_short.weight");
}

/* Bases and widths, of full and of window layers. 0 = the file does not say. */
typedef struct {
    double theta[2];
    int64_t n_rot[2];
    int64_t n_turn; /* of full layers */
} bases;

/* theta_swa: what the architecture has for window layers where the file says nothing; 0 = none,
 * MN_ROPE_THETA_SAME = the base of the full layers. */
static mn_status read_bases(const mn_hp_reader *r, double theta_swa, bases *b) {
    *b = (bases){.theta = {10000, theta_swa}};
    mn_status st = mn_hp_real(r, "rope.freq_base", 1, 1e12, &b->theta[0]);
    if (!st)
        st = mn_hp_real(r, "rope.freq_base_swa", 1, 1e12, &b->theta[1]);
    if (b->theta[1] < 0)
        b->theta[1] = b->theta[0];
    if (!st)
        st = mn_hp_int(r, "rope.dimension_count", 2, 65536, &b->n_rot[0]);
    b->n_rot[1] = b->n_rot[0];
    if (!st)
        st = mn_hp_int(r, "rope.dimension_count_swa", 2, 65536, &b->n_rot[1]);
    if (st)
        return st;
    return mn_hp_int(r, "rope.turning_count", 1, 32768, &b->n_turn);
}

static bool same_table(const mn_rope_table *a, const mn_rope_table *b) {
    if (a->theta < b->theta || a->theta > b->theta)
        return false;
    return a->n_rot == b->n_rot && a->n_turn == b->n_turn && a->scaled == b->scaled;
}

/* The table of these values, made if there is none. */
static mn_status rope_table_of(const mn_hp_reader *r, mn_hparams *h, mn_rope_table want,
                               int32_t *at) {
    for (uint32_t i = 0; i < h->n_rope; i++) {
        *at = (int32_t)i;
        if (same_table(&h->rope[i], &want))
            return MN_OK;
    }
    if (h->n_rope == MN_MAX_ROPE)
        return mn_fail(r->err, MN_UNSUPPORTED,
                       "%s: its layers rotate in more than %d ways (rope.dimension_count, head "
                       "sizes)",
                       r->m->path, MN_MAX_ROPE);
    *at = (int32_t)h->n_rope;
    h->rope[h->n_rope++] = want;
    return MN_OK;
}

/* Tables of the full layers (local 0), or of the window layers that have a base of their own
 * (1). */
static mn_status give_tables(const mn_hp_reader *r, mn_hparams *h, mn_layer_shape *layers,
                             const bases *b, int local) {
    mn_status st = MN_OK;
    for (int64_t i = 0; i < h->n_layer && !st; i++) {
        mn_layer_shape *l = &layers[i];
        const int own = l->window && b->theta[1] > 0;
        const int64_t n_rot = b->n_rot[own] ? b->n_rot[own] : l->head_dim_k;
        if (own != local || l->rope < 0)
            continue;
        if (n_rot > l->head_dim_k || n_rot % 2)
            return mn_fail(r->err, MN_BAD_FILE,
                           "%s: %s.rope.dimension_count%s is %lld; expected an even number of at "
                           "most the head size %lld (layer %lld)",
                           r->m->path, r->arch, own ? "_swa" : "", (long long)n_rot,
                           (long long)l->head_dim_k, (long long)i);
        const int64_t most = n_rot / 2;
        const int64_t n_turn = own || !b->n_turn ? most : b->n_turn;
        const mn_rope_table want = {n_rot, MN_MIN(n_turn, most), b->theta[own], !own};
        st = rope_table_of(r, h, want, &l->rope);
    }
    return st;
}

static mn_status read_tables(const mn_hp_reader *r, mn_hparams *h, mn_layer_shape *layers,
                             double theta_swa) {
    bases b;
    mn_status st = read_bases(r, theta_swa, &b);
    if (!st)
        st = give_tables(r, h, layers, &b, 0);
    if (st)
        return st;
    return give_tables(r, h, layers, &b, 1);
}

mn_status mn_rope_read(const mn_hp_reader *r, mn_hparams *h, mn_layer_shape *layers,
                       double theta_swa) {
    static const char *const kinds[] = {"none", "linear",   "dynamic", "llama3",
                                        "yarn", "longrope", "su"};
    static const uint32_t kind_ids[] = {MN_ROPE_SCALING_NONE,    MN_ROPE_SCALING_LINEAR,
                                        MN_ROPE_SCALING_DYNAMIC, MN_ROPE_SCALING_LLAMA3,
                                        MN_ROPE_SCALING_YARN,    MN_ROPE_SCALING_LONGROPE,
                                        MN_ROPE_SCALING_LONGROPE};
    static const char *const pairs[] = {"halves", "adjacent"};
    static const uint32_t pair_ids[] = {MN_ROPE_HALVES, MN_ROPE_ADJACENT};
    char key[128];
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->arch);
    h->rope_scaling = MN_ROPE_SCALING_LINEAR; /* a factor without a kind */
    h->rope_factor = 1;
    h->rope_low_freq = 1;
    h->rope_high_freq = 4;
    h->rope_beta_fast = 32;
    h->rope_beta_slow = 1;
    h->rope_orig_ctx = h->n_ctx_train;
    mn_status st = mn_hp_word(r, key, kinds, kind_ids, MN_COUNT(kinds), &h->rope_scaling);
    if (!st && has_longrope(r->m))
        h->rope_scaling = MN_ROPE_SCALING_LONGROPE;
    if (!st)
        st = mn_hp_word(r, "minerva.rope.pairing", pairs, pair_ids, MN_COUNT(pairs),
                        &h->rope_pairing);
    if (!st)
        st = read_tables(r, h, layers, theta_swa);
    if (!st)
        st = read_scaling(r, h);
    if (st)
        return st;
    return check_scaling(r, h);
}

/* Llama 3.1: low frequencies are divided by factor, high ones kept, those between interpolated. */
static double llama3_scale(const mn_hparams *h, double freq) {
    const double wavelength = 2 * M_PI / freq;
    const double orig = (double)h->rope_orig_ctx;
    const double lo = h->rope_low_freq;
    const double hi = h->rope_high_freq;
    if (wavelength < orig / hi)
        return freq;
    if (wavelength > orig / lo)
        return freq / h->rope_factor;
    const double smooth = (orig / wavelength - lo) / (hi - lo);
    return (1 - smooth) * freq / h->rope_factor + smooth * freq;
}

/* YaRN: pairs that turn more than beta_fast times within the original context are kept, fewer than
 * beta_slow interpolated. */
static double yarn_pair(const mn_hparams *h, const mn_rope_table *t, double turns) {
    const double orig = (double)h->rope_orig_ctx;
    const double base = 2 * log(t->theta);
    return (double)t->n_rot * log(orig / (turns * 2 * M_PI)) / base;
}

static double yarn_scale(const mn_hparams *h, const mn_rope_table *t, int64_t i, double freq) {
    double lo = yarn_pair(h, t, h->rope_beta_fast);
    double hi = yarn_pair(h, t, h->rope_beta_slow);
    if (h->yarn_truncate) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = MN_MAX(lo, 0);
    hi = MN_MIN(hi, (double)t->n_rot - 1);
    double ramp = ((double)i - lo) / MN_MAX(hi - lo, 0.001);
    ramp = MN_MIN(MN_MAX(ramp, 0), 1);
    return freq / h->rope_factor * ramp + freq * (1 - ramp);
}

/* Longrope: sqrt(1 + ln(context / original) / ln(original)), unless the file says it. */
static double longrope_mscale(const mn_hparams *h) {
    const double orig = (double)h->rope_orig_ctx;
    const double ratio = (double)h->n_ctx_train / orig;
    if (ratio > 1)
        return sqrt(1 + log(ratio) / log(orig));
    return 1;
}

double mn_rope_yarn_mscale(double factor) {
    if (factor > 1)
        return 0.1 * log(factor) + 1;
    return 1;
}

/* attn_factor is longrope's magnitude itself, and multiplies that of yarn: so other readers of GGUF
 * take it. */
static double mscale_of(const mn_hparams *h) {
    const double own = h->rope_attn_factor;
    if (h->rope_scaling == MN_ROPE_SCALING_LONGROPE) {
        if (own > 0)
            return own;
        return longrope_mscale(h);
    }
    if (h->rope_scaling != MN_ROPE_SCALING_YARN)
        return 1;
    double yarn = h->rope_yarn_attn;
    if (!(yarn > 0) && h->latent.yarn_log > 0)
        yarn = 1; /* it scales q k^T */
    if (!(yarn > 0))
        yarn = mn_rope_yarn_mscale(h->rope_factor);
    if (own > 0)
        return yarn * own;
    return yarn;
}

void mn_rope_freqs(const mn_hparams *h, const mn_rope_table *t, const float *factors, float *freqs,
                   double *mscale) {
    uint32_t scaling = MN_ROPE_SCALING_NONE;
    if (t->scaled)
        scaling = h->rope_scaling;
    for (int64_t i = 0; i < t->n_rot / 2; i++) {
        double f = pow(t->theta, -2.0 * (double)i / (double)t->n_rot);
        if (factors && t->scaled)
            f /= factors[i];
        if (scaling == MN_ROPE_SCALING_LINEAR)
            f /= h->rope_factor;
        if (scaling == MN_ROPE_SCALING_LLAMA3)
            f = llama3_scale(h, f);
        if (scaling == MN_ROPE_SCALING_YARN)
            f = yarn_scale(h, t, i, f);
        if (i < t->n_turn)
            freqs[i] = (float)f;
        else
            freqs[i] = 0;
    }
    *mscale = t->scaled ? mscale_of(h) : 1;
}
