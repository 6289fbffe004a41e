/* model.h -- the canonical model: what a loader described, checked once and believed afterwards.
 *
 * Owns the mapped files and the loader's parse. Names are GGUF's. Every plane of every tensor lies
 * inside its file, or in memory of the loader that lives as long as its parse; every tensor that
 * the architecture needs is there with the shape that the hyper-parameters say. */
#ifndef MN_MODEL_H
#define MN_MODEL_H
#include "base/base.h"
#include "base/call.h"
#include "base/ledger.h"
#include "base/sealed.h"
#include "base/vendor_types.h"
#include "model/meta.h"

/* A loader of the registry that may be asked. */
typedef struct {
    const mn_loader *loader;
    void *self;
    mn_str id;
    const mn_patterns *patterns;
    const mn_callee *callee;      /* for MN_WATCHED; may be NULL */
    mn_ledger *memory;            /* memory of the host that the loader holds; NULL: not known */
    const mn_vendor_types *types; /* of its own; NULL: none */
} mn_loader_ref;

/* The files of one model, in the order of their names: what the path names, its shards, and
 * companion files. */
typedef struct {
    mn_file *files;
    mn_map *maps;
    char **names;
    bool *has_weights; /* whether a tensor lies in it */
    uint32_t n, flags;
} mn_file_set;
/* flags: MN_MAP_*. The patterns of the loaders say which files. Errors name the path, or the shard
 * that is missing; if there is no model, the message lists the patterns. */
mn_status mn_file_set_open(const char *path, uint32_t flags, const mn_loader_ref *loaders,
                           uint32_t n_loaders, mn_file_set *out, mn_error *err);
void mn_file_set_close(mn_file_set *set);

typedef struct {
    mn_tensor_info info; /* as the loader gave it; planes: a copy in sealed pages */
    uint64_t bytes;      /* of all planes */
    uint64_t n_elements;
} mn_model_tensor_entry;

typedef struct mn_expert_order mn_expert_order; /* expert_order.c */
typedef struct mn_canonical {
    char *path, *format;
    mn_file_set files;
    const mn_loader *loader;
    const mn_callee *callee;
    mn_ledger *memory;
    mn_parsed *parsed;
    const mn_vendor_types *types; /* of the loader; ids of vendors are these alone; NULL: none */
    mn_meta meta;
    mn_model_tensor_entry *tensors;
    size_t n_tensors;
    uint32_t *by_name; /* indices sorted by name */
    uint64_t n_params, n_bytes;
    bool ignore_unused;              /* tensors that no graph uses are no error */
    const struct mn_lora_room *room; /* for adapters in its graphs; NULL: none */
    const mn_file *given;            /* the files as loaders get them, in sealed pages */
    mn_sealed *file_pages, *plane_pages;
    mn_expert_order *orders; /* of layers whose experts stand in the order of their use */
} mn_canonical;

/* Maps the files (flags: MN_MAP_*), asks every loader for its guess, opens with the most confident,
 * checks every plane against its file. If a loader claims the files and cannot read them, the next
 * one is tried. Errors name the path; if no loader claims it, or if none of several can read it,
 * the message lists the loaders and their errors. */
mn_status mn_canonical_open(const char *path, uint32_t flags, const mn_loader_ref *loaders,
                            uint32_t n_loaders, mn_canonical **out, mn_error *err);
/* To be called after work that read the files. Returns st, or MN_IO_ERROR if a file has changed
 * since it was mapped. look: also compares size and time of files with tensors (a system call per
 * file); else only a guarded fault counts. Once changed, always changed. */
mn_status mn_canonical_settle(const mn_canonical *m, bool look, mn_status st, mn_error *err);
void mn_canonical_close(mn_canonical *m);
/* Before a graph is built: puts the n experts of the layer in the order of their use, the most used
 * first. counts: [n], not negative. MN_UNSUPPORTED: tensors of the layer have no row for each.
 * After an error the model is to be closed. */
mn_status mn_canonical_order_experts(mn_canonical *m, int64_t layer, const double *counts,
                                     uint32_t n, mn_error *err);
/* [n_expert + 1] which share of a layer's choices falls on its first k experts; NULL: they were not
 * counted. */
const double *mn_canonical_expert_share(const mn_canonical *m, int64_t layer);
void mn_canonical_orders_free(mn_canonical *m);
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
#define MN_MAX_ROPE 4      /* tables of angles in one model */
#define MN_MAX_KV_GROUP 16 /* kinds of layers that keep keys and values */

/* The angles of some layers: {arch}.rope.* keys with the base and the width of these layers. */
typedef struct {
    int64_t n_rot;  /* dims of a head that rotate */
    int64_t n_turn; /* pairs of these dims that rotate; the angles of the other pairs are 0 */
    double theta;
    bool scaled; /* the model's scaling and factors apply; Gemma 3's window layers have none */
} mn_rope_table;

/* Layers that remember in the same pages: their shapes and windows are equal. */
typedef struct {
    int64_t window; /* 0 = every position */
    int64_t n_head_kv, head_dim_k, head_dim_v;
    int64_t one_step; /* 1: of an encoder: nothing is kept after the step of a text */
    int64_t v_of_k;   /* 1: values are the first elements of keys, and not kept */
    int64_t state;    /* 1: of layers that remember a state (MN_MEMORY_STATE); the others are 0 */
    int64_t text;     /* 1: its positions are positions of the text that an encoder reads */
} mn_kv_group;

/* Of an activation xIELU (Huang et al. 2024), as ACT has them. */
typedef struct {
    double alpha_p, alpha_n, beta, eps;
} mn_xielu;

/* One layer. Layers of one model may differ in any of it. */
typedef struct {
    int64_t n_head, n_head_kv, head_dim_k, head_dim_v;
    int64_t window;    /* positions that a row sees, its own included; 0 = every one */
    int64_t chunked;   /* 1: of the positions in chunks of `window` a row sees those of its own */
    double attn_scale; /* of q k^T */
    int64_t n_ff;
    /* n_expert 0: dense */
    int64_t n_expert, n_expert_used, n_ff_expert;
    const double *expert_share; /* mn_canonical_expert_share */
    int64_t n_ff_shared; /* of the experts that every token uses, together; 0 = there are none */
    int64_t sparse;      /* 1: the gate of its MLP keeps what is over mean + spread deviations */
    double spread;
    mn_xielu xielu;  /* of the model's activation, where it is that */
    int64_t shares;  /* 1: it reads the keys and values of an earlier layer (kv_layer) */
    int64_t attends; /* 1: it has attention; else heads are 0, and it has no group of keys */
    int32_t rope;    /* index of mn_hparams.rope; -1 = no rotation */
    uint32_t kv_group, kv_layer; /* kv_layer: index of the layer in its group */
    uint32_t cross_layer; /* of a decoder's: index in the text's group of what it reads there */
} mn_layer_shape;

/* What layers with a state have in common ({arch}.ssm.*, shortconv.*). */
typedef struct {
    int64_t conv;          /* W: rows that the convolution sees, the row itself included */
    int64_t state;         /* Mamba-2: N; delta rule: elements of a head of k */
    int64_t inner;         /* elements of all heads of the output */
    int64_t n_head;        /* of these */
    int64_t n_group;       /* Mamba-2: of B and C; delta rule: heads of k */
    double dt_min, dt_max; /* bounds of the step behind its softplus; 0 = none */
    double beta_scale;     /* delta rule: of sigmoid(beta) */
    bool heads_in_turn;    /* delta rule: head h of v reads head h % n_group of q and k */
    bool norm_first;       /* Mamba-2: the norm of the output is in front of its gate */
    /* Falcon-H1's factors: before in_proj, behind out_proj, of z, x, B, C, dt; 0 = 1 */
    double in_scale, out_scale, parts[5];
} mn_ssm;

/* Latent attention (DeepSeek-AI 2024): keys and values of all heads are products of one row of
 * n_kv + n_rot numbers per position, which alone is kept. n_kv 0: there is none. */
typedef struct {
    int64_t n_q;   /* width that q goes through; 0: its product is one */
    int64_t n_kv;  /* width of the latent row */
    int64_t n_rot; /* elements of a head of q, and of the row, that rotate */
    int64_t dim_k; /* elements of a head of q, those that rotate included */
    int64_t dim_v;
    double yarn_log; /* per natural logarithm of yarn's factor; its square scales q k^T */
} mn_latent;

#define MN_MAX_TAPS 15
#define MN_TAPS_TANH UINT32_MAX /* of taps_act, which else is an MN_ACT_* */
#define MN_MAX_STREAMS 8
/* AltUp (Baykal et al. 2023): n streams of hidden states, of which layers compute one. n 0: there
 * is none of this. */
typedef struct {
    int64_t n, active;
    bool scales; /* the active one is scaled in front of the embeddings of the layer */
} mn_altup;

/* Queries are 1 + scale ln(1 + floor((position + offset) / length)) times as long (Nakanishi 2025),
 * in layers without rotation, or in all. scale 0: they are not. */
typedef struct {
    double scale;
    int64_t length, offset;
    bool in_all;
} mn_q_growth;

typedef struct {
    char arch[32];
    int64_t n_layer, n_embd, n_vocab, n_ctx_train;
    /* of a draft head: its layer, the last one, which alone is computed; of the model itself 0 */
    int64_t first_layer;
    bool has_head; /* behind its layers the file has one that guesses the id after the next */
    int64_t n_pos; /* positions that the model has learned vectors for; 0 = no limit */
    const mn_layer_shape *layer; /* [n_layer] */
    mn_kv_group kv[MN_MAX_KV_GROUP];
    uint32_t n_kv;
    int32_t state_group; /* of kv: the layers' states, the last one; -1 = no layer has one */
    int64_t
        n_encoder; /* layers in front that read a text for those behind (T5); 0 = there are none */
    int64_t start_id; /* of a model with such layers: what stands in front of each answer */
    /* the bias of logits by distance: rows of its table, and the distance from which on all have
     * one row; 0 = none */
    int64_t n_buckets, far_distance;
    bool rel_keys, rel_queries; /* distances have keys, and queries, too (DeBERTa) */
    /* a convolution over the rows of a text: how many rows it sees, in the middle its own, in how
     * many groups of channels, its activation, the group of caches by which rows move; 0 = none */
    int64_t n_taps, n_tap_groups;
    uint32_t taps_act, taps_group;
    mn_ssm ssm;
    mn_latent latent;
    mn_altup altup;
    mn_q_growth q_growth;
    int64_t n_of_layer; /* width of the embeddings that each layer has of its own; 0 = none */
    int64_t n_latent;   /* width of what experts read and write; 0 = as the layers */
    double norm_eps, norm_offset;
    /* MN_ACT_* */
    uint32_t act;
    /* 0 = not used */
    double embd_scale, residual_scale, logit_scale, logit_softcap, attn_softcap;
    /* Falcon-H1: before q, k and v, behind the projection back; of the gate before its activation,
     * behind the product down */
    double alibi; /* ALiBi: heads' slopes fall from 2^(-alibi/H) to 2^-alibi; 0: there are none */
    double attn_in_scale, attn_out_scale, gate_scale, down_scale;
    bool parallel_residual;
    bool tied;          /* the output matrix is the embedding table */
    bool head_norms;    /* heads of q and k are normalised in every layer */
    bool row_norms;     /* the same over all heads at once */
    bool rotate_first;  /* norms of heads are behind the rotation */
    bool unit_norms;    /* heads that rotate are normalised behind it, without weights */
    bool post_norms;    /* the output of a block is normalised before it is added */
    bool zero_window;   /* GGUF has the window's key also without a window: it is 0 then */
    bool bidirectional; /* an encoder: a row sees all of its text, later positions, too */
    /* rotary embedding */
    mn_rope_table rope[MN_MAX_ROPE];
    uint32_t n_rope;
    uint32_t rope_pairing, rope_scaling; /* MN_ROPE_*, MN_ROPE_SCALING_* */
    double rope_factor, rope_low_freq, rope_high_freq, rope_attn_factor, rope_yarn_attn,
        rope_beta_fast, rope_beta_slow;
    bool yarn_truncate; /* its ramp begins and ends at whole pairs */
    int64_t rope_orig_ctx;
    uint32_t route; /* MN_ROUTE_* */
    bool route_normalise;
    bool weigh_inputs; /* an expert's weight multiplies what it reads, not what it gives */
    double route_scale;
    double route_jitter; /* of MN_ROUTE_SPARSEMIXER */
    /* the experts are route_groups groups; experts are chosen from the route_groups_used groups
     * with the best scores only. 0: from all */
    int64_t route_groups, route_groups_used;
    int64_t n_expert; /* of the layer with the most experts; 0 = the model has none */
} mn_hparams;
/* Reads {arch}.* keys. Errors name the file's own key, what it holds and what was expected.
 * n_vocab: rows of the embedding. The layers are in the arena. */
mn_status mn_hparams_read(const mn_canonical *m, mn_arena *arena, mn_hparams *out, mn_error *err);
/* The hyper-parameters of the draft head, as a model of the last layer alone. MN_UNSUPPORTED: it
 * has no head. */
mn_status mn_hparams_read_head(const mn_canonical *m, mn_arena *arena, mn_hparams *out,
                               mn_error *err);
/* The name of the pre-tokeniser that files of this architecture mean where they state none; NULL:
 * nothing is known. Static. */
const char *mn_arch_pre_tokenizer(const mn_meta *meta);
/* MN_ROPE_*: which elements of a head rotate together in GGUF files of this architecture. */
uint32_t mn_arch_pairing(const char *arch);
/* mn_hparams.bidirectional alone; false where its key is damaged. */
bool mn_hparams_is_encoder(const mn_canonical *m);
/* mn_hparams.has_head alone, likewise. */
bool mn_hparams_has_head(const mn_canonical *m);
/* Angles per position of each rotated pair of a table [n_rot/2], scaling applied. factors: divisors
 * of the frequencies (rope_freqs.weight, or longrope's set), or NULL; a table without scaling needs
 * none. Sources: Su et al. 2021; llama3: the Llama 3.1 model card's reference code; yarn: Peng et
 * al. 2023; longrope: Ding et al. 2024. mscale: for sin and cos. */
void mn_rope_freqs(const mn_hparams *hp, const mn_rope_table *table, const float *factors,
                   float *freqs, double *mscale);
/* What q_growth distinguishes in the model's context, and which of them a position is: of n. */
static inline int64_t mn_growth_rows(const mn_hparams *h) {
    return h->n_ctx_train / h->q_growth.length + 1;
}
static inline int32_t mn_growth_row(const mn_hparams *h, int64_t position) {
    const int64_t row = (position + h->q_growth.offset) / h->q_growth.length;
    return (int32_t)MN_MIN(row, mn_growth_rows(h) - 1);
}
/* Whether a text of n_ctx positions, 0: as many as in training, has more than one of them. */
static inline bool mn_grows(const mn_hparams *h, int64_t n_ctx) {
    const int64_t last = (n_ctx ? n_ctx : h->n_ctx_train) - 1;
    return h->q_growth.scale > 0 && last + h->q_growth.offset >= h->q_growth.length;
}
double mn_rope_yarn_mscale(double factor); /* yarn's mscale unless a file states another one */

/* Plane `plane` of part `part` of a tensor. */
static inline const mn_plane *mn_tensor_plane(const mn_tensor_info *t, uint32_t part,
                                              uint32_t plane) {
    const size_t index = (size_t)part * t->n_planes + plane;
    const char *at = (const char *)t->planes + index * t->plane_stride;
    return (const mn_plane *)(const void *)at;
}
#endif
