/* hparams.c -- hyper-parameters out of metadata: typed, in range, free of contradictions. */
#include "model/model.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const mn_canonical *m;
    const char *arch;
    mn_error *err;
} reader;

static mn_status name_file(const reader *r, mn_status st) { return mn_fail_in(r->err, st, "%s", r->m->path); }

/* {arch}.key as an integer in [lo, hi]; absent: *out stays if optional, else an error that names the key. */
static mn_status integer(const reader *r, const char *key, int64_t lo, int64_t hi, bool optional, int64_t *out) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    mn_status st = mn_meta_i64(&r->m->meta, full, lo, hi, out, r->err);
    if (st == MN_END) return optional ? MN_OK : mn_fail(r->err, MN_BAD_FILE, "%s: missing key %s", r->m->path, full);
    return st ? name_file(r, st) : MN_OK;
}

static mn_status real(const reader *r, const char *key, double lo, double hi, double *out) {
    char full[128];
    double v;
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    mn_status st = mn_meta_f64(&r->m->meta, full, &v, r->err);
    if (st == MN_END) return MN_OK;
    if (st) return name_file(r, st);
    if (!(v >= lo && v <= hi)) {
        const mn_meta_entry *e = mn_meta_find(&r->m->meta, full);
        return mn_fail(r->err, MN_BAD_FILE, "%s: key %.*s is %g; expected %g to %g", r->m->path, MN_STR_ARG(e->native),
                       v, lo, hi);
    }
    *out = v;
    return MN_OK;
}

static mn_status word(const reader *r, const char *key, const char *const *words, const uint32_t *values, size_t n,
                      uint32_t *out) {
    mn_str s;
    mn_status st = mn_meta_str(&r->m->meta, key, &s, r->err);
    if (st == MN_END) return MN_OK;
    if (st) return name_file(r, st);
    mn_text known = {0};
    for (size_t i = 0; i < n; i++) {
        if (mn_str_is(s, words[i])) {
            *out = values[i];
            mn_text_free(&known);
            return MN_OK;
        }
        mn_text_printf(&known, "%s%s", i ? ", " : "", words[i]);
    }
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, key);
    st = mn_fail(r->err, MN_UNSUPPORTED, "%s: key %.*s is \"%.*s\"; known: %s", r->m->path,
                 MN_STR_ARG(e->native.len ? e->native : e->key), MN_STR_ARG(s), known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

static mn_status read_shape(const reader *r, mn_hparams *h) {
    enum { BIG = 1 << 24 };
    mn_status st = integer(r, "block_count", 1, 4096, false, &h->n_layer);
    if (!st) st = integer(r, "embedding_length", 1, BIG, false, &h->n_embd);
    if (!st) st = integer(r, "feed_forward_length", 1, BIG, false, &h->n_ff);
    if (!st) st = integer(r, "attention.head_count", 1, 65536, false, &h->n_head);
    h->n_head_kv = h->n_head;
    if (!st) st = integer(r, "attention.head_count_kv", 1, 65536, true, &h->n_head_kv);
    if (!st) st = integer(r, "context_length", 1, INT32_MAX, true, &h->n_ctx_train);
    if (!st) st = integer(r, "attention.sliding_window", 0, INT32_MAX, true, &h->window);
    if (!st) st = integer(r, "attention.key_length", 1, 65536, true, &h->head_dim_k);
    if (st) return st;
    if (h->n_head % h->n_head_kv)
        return mn_fail(r->err, MN_BAD_FILE,
                       "%s: %s.attention.head_count %lld is not a multiple of %s.attention.head_count_kv %lld",
                       r->m->path, r->arch, (long long)h->n_head, r->arch, (long long)h->n_head_kv);
    if (!h->head_dim_k) {
        if (h->n_embd % h->n_head)
            return mn_fail(r->err, MN_BAD_FILE,
                           "%s: %s.embedding_length %lld is not a multiple of %s.attention.head_count %lld, and there "
                           "is no %s.attention.key_length",
                           r->m->path, r->arch, (long long)h->n_embd, r->arch, (long long)h->n_head, r->arch);
        h->head_dim_k = h->n_embd / h->n_head;
    }
    h->head_dim_v = h->head_dim_k;
    st = integer(r, "attention.value_length", 1, 65536, true, &h->head_dim_v);
    h->n_rot = h->head_dim_k;
    if (!st) st = integer(r, "rope.dimension_count", 2, 65536, true, &h->n_rot);
    if (!st && (h->n_rot > h->head_dim_k || h->n_rot % 2))
        st = mn_fail(r->err, MN_BAD_FILE,
                     "%s: %s.rope.dimension_count is %lld; expected an even number of at most the head size %lld",
                     r->m->path, r->arch, (long long)h->n_rot, (long long)h->head_dim_k);
    return st;
}

static mn_status read_rope(const reader *r, mn_hparams *h) {
    static const char *const kinds[] = {"none", "linear", "llama3", "yarn"};
    static const uint32_t kind_ids[] = {MN_ROPE_SCALING_NONE, MN_ROPE_SCALING_LINEAR, MN_ROPE_SCALING_LLAMA3,
                                        MN_ROPE_SCALING_YARN};
    static const char *const pairs[] = {"halves", "adjacent"};
    static const uint32_t pair_ids[] = {MN_ROPE_HALVES, MN_ROPE_ADJACENT};
    char key[128];
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->arch);
    h->rope_theta = 10000;
    h->rope_factor = h->rope_low_freq = 1;
    h->rope_high_freq = 4;
    h->rope_beta_fast = 32;
    h->rope_beta_slow = 1;
    h->rope_orig_ctx = h->n_ctx_train;
    mn_status st = word(r, key, kinds, kind_ids, MN_COUNT(kinds), &h->rope_scaling);
    if (!st) st = word(r, "minerva.rope.pairing", pairs, pair_ids, MN_COUNT(pairs), &h->rope_pairing);
    if (!st) st = real(r, "rope.freq_base", 1, 1e12, &h->rope_theta);
    if (!st) st = real(r, "rope.scaling.factor", 1e-6, 1e6, &h->rope_factor);
    if (!st) st = real(r, "rope.scaling.low_freq_factor", 1e-6, 1e6, &h->rope_low_freq);
    if (!st) st = real(r, "rope.scaling.high_freq_factor", 1e-6, 1e6, &h->rope_high_freq);
    if (!st) st = real(r, "rope.scaling.attn_factor", 0, 1e6, &h->rope_attn_factor);
    if (!st) st = real(r, "rope.scaling.beta_fast", 1e-6, 1e6, &h->rope_beta_fast);
    if (!st) st = real(r, "rope.scaling.beta_slow", 1e-6, 1e6, &h->rope_beta_slow);
    if (!st) st = integer(r, "rope.scaling.original_context_length", 1, INT32_MAX, true, &h->rope_orig_ctx);
    if (!st && h->rope_scaling >= MN_ROPE_SCALING_LLAMA3 && !h->rope_orig_ctx)
        st = mn_fail(r->err, MN_BAD_FILE, "%s: missing key %s.rope.scaling.original_context_length", r->m->path,
                     r->arch);
    if (!st && h->rope_scaling == MN_ROPE_SCALING_LLAMA3 && !(h->rope_high_freq > h->rope_low_freq))
        st = mn_fail(r->err, MN_BAD_FILE, "%s: %s.rope.scaling.high_freq_factor %g is not above low_freq_factor %g",
                     r->m->path, r->arch, h->rope_high_freq, h->rope_low_freq);
    return st;
}

static mn_status read_arch(const mn_canonical *m, mn_hparams *h, mn_error *err) {
    mn_str arch;
    mn_status st = mn_meta_str(&m->meta, "general.architecture", &arch, err);
    if (st == MN_END) return mn_fail(err, MN_BAD_FILE, "%s: missing key general.architecture", m->path);
    if (st) return mn_fail_in(err, st, "%s", m->path);
    if (!arch.len || arch.len >= sizeof h->arch)
        return mn_fail(err, MN_BAD_FILE, "%s: general.architecture is \"%.*s\"; expected a short name", m->path,
                       MN_STR_ARG(arch));
    memcpy(h->arch, arch.ptr, arch.len);
    return MN_OK;
}

mn_status mn_hparams_read(const mn_canonical *m, mn_hparams *out, mn_error *err) {
    static const char *const acts[] = {"silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"};
    static const uint32_t act_ids[] = {MN_ACT_SILU,      MN_ACT_SILU,      MN_ACT_GELU_ERF,
                                       MN_ACT_GELU_TANH, MN_ACT_GELU_TANH, MN_ACT_RELU};
    mn_hparams h = {.norm_eps = 1e-5};
    mn_status st = read_arch(m, &h, err);
    reader r = {m, h.arch, err};
    if (!st) st = read_shape(&r, &h);
    if (!st) st = read_rope(&r, &h);
    if (!st) st = real(&r, "attention.layer_norm_epsilon", 0, 1, &h.norm_eps);
    if (!st) st = real(&r, "attention.layer_norm_rms_epsilon", 0, 1, &h.norm_eps);
    if (!st) st = word(&r, "minerva.hidden_act", acts, act_ids, MN_COUNT(acts), &h.act);
    if (!st) st = mn_meta_f64(&m->meta, "minerva.norm.offset", &h.norm_offset, err);
    if (st && st != MN_END) return st;
    const mn_model_tensor_entry *embd = mn_canonical_tensor(m, "token_embd.weight");
    if (!embd || embd->info.n_dim != 2)
        return mn_fail(err, MN_BAD_FILE, "%s: tensor token_embd.weight is missing or not a matrix", m->path);
    h.n_vocab = embd->info.dim[0];
    if (h.n_vocab > INT32_MAX)
        return mn_fail(err, MN_BAD_FILE, "%s: token_embd.weight has %lld rows", m->path, (long long)h.n_vocab);
    bool tied = false, told = mn_meta_bool(&m->meta, "minerva.tie_word_embeddings", &tied, NULL) == MN_OK;
    h.tied = told ? tied : !mn_canonical_tensor(m, "output.weight");
    *out = h;
    return MN_OK;
}

/* Llama 3.1: low frequencies are divided by factor, high ones kept, those between interpolated. */
static double llama3_scale(const mn_hparams *h, double freq) {
    double wavelength = 2 * M_PI / freq, orig = (double)h->rope_orig_ctx;
    if (wavelength < orig / h->rope_high_freq) return freq;
    if (wavelength > orig / h->rope_low_freq) return freq / h->rope_factor;
    double smooth = (orig / wavelength - h->rope_low_freq) / (h->rope_high_freq - h->rope_low_freq);
    return (1 - smooth) * freq / h->rope_factor + smooth * freq;
}

/* YaRN: pairs that turn more than beta_fast times within the original context are kept, fewer than beta_slow interpolated. */
static double yarn_pair(const mn_hparams *h, double turns) {
    return (double)h->n_rot * log((double)h->rope_orig_ctx / (turns * 2 * M_PI)) / (2 * log(h->rope_theta));
}

static double yarn_scale(const mn_hparams *h, int64_t i, double freq) {
    double lo = MN_MAX(floor(yarn_pair(h, h->rope_beta_fast)), 0),
           hi = MN_MIN(ceil(yarn_pair(h, h->rope_beta_slow)), (double)h->n_rot - 1);
    double ramp = ((double)i - lo) / MN_MAX(hi - lo, 0.001);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return freq / h->rope_factor * ramp + freq * (1 - ramp);
}

void mn_rope_freqs(const mn_hparams *h, const float *freq_factors, float *freqs, double *mscale) {
    for (int64_t i = 0; i < h->n_rot / 2; i++) {
        double f = pow(h->rope_theta, -2.0 * (double)i / (double)h->n_rot);
        if (freq_factors) f /= freq_factors[i];
        if (h->rope_scaling == MN_ROPE_SCALING_LINEAR) f /= h->rope_factor;
        if (h->rope_scaling == MN_ROPE_SCALING_LLAMA3) f = llama3_scale(h, f);
        if (h->rope_scaling == MN_ROPE_SCALING_YARN) f = yarn_scale(h, i, f);
        freqs[i] = (float)f;
    }
    *mscale = 1;
    if (h->rope_scaling == MN_ROPE_SCALING_YARN)
        *mscale = h->rope_attn_factor > 0 ? h->rope_attn_factor
                  : h->rope_factor > 1    ? 0.1 * log(h->rope_factor) + 1
                                          : 1;
}
