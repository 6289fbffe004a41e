/* model.h -- the canonical model: what a loader described, checked once and believed afterwards.
 *
 * Owns the mapped files and the loader's parse. Names are GGUF's. Every plane of every tensor lies
 * inside its file; every tensor that the architecture needs is there with the shape that the
 * hyper-parameters say. */
#ifndef MN_MODEL_H
#define MN_MODEL_H
#include "base/base.h"
#include "model/meta.h"

/* The files of one model: what the path names and, for a folder or a shard, its siblings and
 * side-cars. */
typedef struct {
    mn_file *files;
    mn_map *maps;
    char **names;
    bool *has_weights; /* whether a tensor lies in it */
    uint32_t n, flags;
} mn_file_set;
/* flags: MN_MAP_*. error: names the path */
mn_status mn_file_set_open(const char *path, uint32_t flags, mn_file_set *out, mn_error *err);
void mn_file_set_close(mn_file_set *set);

typedef struct {
    mn_tensor_info info; /* name, dims, dtype, planes as the loader gave them */
    uint64_t bytes;      /* of all planes */
    uint64_t n_elements;
} mn_model_tensor_entry;

typedef struct mn_canonical {
    char *path, *format;
    mn_file_set files;
    const mn_loader *loader;
    mn_parsed *parsed;
    mn_meta meta;
    mn_model_tensor_entry *tensors;
    size_t n_tensors;
    uint32_t *by_name; /* indices sorted by name */
    uint64_t n_params, n_bytes;
} mn_canonical;

typedef struct {
    const mn_loader *loader;
    void *self;
    mn_str id;
} mn_loader_ref;
/* Maps the files (flags: MN_MAP_*), asks every loader for its guess, opens with the most confident, checks every
 * plane against its file. A loader that claims the files and cannot read them gives way to the
 * next. Errors name the path; if no loader claims it, or if none of several can read it, the
 * message lists the loaders and what each said. */
mn_status mn_canonical_open(const char *path, uint32_t flags, const mn_loader_ref *loaders,
                            uint32_t n_loaders, mn_canonical **out, mn_error *err);
/* After work that read the files: st; or MN_IO_ERROR, whatever st was, if one of them is not what
 * it was when it was mapped. look: also at size and time of those that hold tensors (a system call
 * per file); else a guarded fault alone tells. Once changed, always changed. */
mn_status mn_canonical_settle(const mn_canonical *m, bool look, mn_status st, mn_error *err);
void mn_canonical_close(mn_canonical *m);
/* NULL = absent */
const mn_model_tensor_entry *mn_canonical_tensor(const mn_canonical *m, const char *name);

/* ---- hyper-parameters: typed, in range, free of contradictions ------------------------------- */
#define MN_ROPE_SCALING_NONE 0
#define MN_ROPE_SCALING_LINEAR 1
#define MN_ROPE_SCALING_LLAMA3 2
#define MN_ROPE_SCALING_YARN 3
#define MN_ROPE_SCALING_LONGROPE 4
#define MN_ROPE_SCALING_DYNAMIC 5 /* nothing up to n_ctx_train; beyond it nothing is computed */
#define MN_MAX_LAYER 1024
typedef struct {
    char arch[32];
    int64_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim_k, head_dim_v, n_vocab, n_ctx_train;
    int64_t n_rot, window; /* window 0 = full attention everywhere */
    int64_t n_pos;         /* positions that the model has learned: none beyond; 0 = any */
    double norm_eps, norm_offset;
    /* MN_ACT_* */
    uint32_t act;
    /* 0 = not used */
    double embd_scale, residual_scale, attn_scale, attn_softcap, logit_scale, logit_softcap;
    bool parallel_residual;
    bool tied; /* the output matrix is the embedding table */
    /* rotary embedding; *_swa: of window layers, where they differ */
    uint32_t rope_pairing, rope_scaling; /* MN_ROPE_*, MN_ROPE_SCALING_* */
    double rope_theta, rope_theta_swa;
    double rope_factor, rope_low_freq, rope_high_freq, rope_attn_factor, rope_yarn_attn,
        rope_beta_fast, rope_beta_slow;
    bool yarn_truncate; /* its ramp begins and ends at whole pairs */
    int64_t rope_orig_ctx;
    /* experts; n_expert 0 = none */
    int64_t n_expert, n_expert_used, n_ff_expert;
    uint32_t route; /* MN_ROUTE_* */
    bool route_normalise;
    double route_scale;
    uint8_t slides[MN_MAX_LAYER / 8],
        no_rope[MN_MAX_LAYER / 8]; /* a bit per layer: attends to the window; has no rotation */
} mn_hparams;
static inline bool mn_layer_bit(const uint8_t *bits, int64_t layer) {
    return bits[layer / 8] >> (layer % 8) & 1;
}
/* Reads {arch}.* keys. Errors name the file's own key, what it holds and what was expected.
 * n_vocab: rows of the embedding. */
mn_status mn_hparams_read(const mn_canonical *m, mn_hparams *out, mn_error *err);
/* Angles per position of each rotated pair [n_rot/2], scaling applied. factors: what the
 * frequencies are divided by (rope_freqs.weight, or longrope's set), or NULL. local: of window
 * layers with a base of their own, which no scaling touches (Gemma 3). Sources: Su et al. 2021;
 * llama3: the Llama 3.1 model card's reference code; yarn: Peng et al. 2023; longrope: Ding et al.
 * 2024. mscale: for sin and cos. */
void mn_rope_freqs(const mn_hparams *hp, const float *factors, bool local, float *freqs,
                   double *mscale);
double mn_rope_yarn_mscale(double factor); /* yarn's mscale where a file says nothing else */

#endif
