/* families.h -- what the loader knows of each family of checkpoints: one row each, in
 * families.c. */
#ifndef MN_SAFETENSORS_FAMILIES_H
#define MN_SAFETENSORS_FAMILIES_H
#include "safetensors.h"

/* "#" in native stands for a number, which goes to the "#" in canonical. */
typedef struct name_pair {
    const char *native;
    const char *canonical;
} name_pair;

/* What a configuration's class has when config.json leaves the key out; null is a value. */
typedef struct {
    const char *key;
    double value;
} key_default;

/* The keys of config.json where they are not the usual ones. */
typedef struct {
    const char *n_ctx;
    const char *n_embd;
    const char *n_layer;
    const char *n_head;
    const char *n_ff;
    const char *act;
    const char *eps;
} size_keys;

typedef enum {
    FUSED_NONE,
    FUSED_HALVES, /* experts.gate_up_proj [E, 2F, D]: gates, then ups */
    /* input_linear of shared_mlp [2F, D] and of block_sparse_moe [E, 2F, D]: gate, then up */
    FUSED_SHARED,
    /* experts.gate_up_proj [E, D, 2F]: transposed, gates, then ups; down_proj [E, F, D] */
    FUSED_COLUMNS,
    /* experts.gate_up_proj [E, D, 2F]: transposed, gate and up in turn; blocks [E, 2F, D/32, 16] */
    FUSED_GPT_OSS,
} fused_experts;

/* What sliding_window means. The keys that say more are read only where the family has them. */
typedef enum {
    WINDOW_NONE, /* nothing, though files may have the key */
    WINDOW_ALL,  /* every layer slides */
    WINDOW_SOME, /* those that layer_types says, or a rule of the family */
} window_use;

struct model_family {
    const char *model_type;
    const char *class_name;
    const char *arch;
    const char *arch_experts;   /* of those of its models that have experts; NULL: the same */
    const char *arch_both_ways; /* where use_bidirectional_attention is true; NULL: refused */
    /* names in a layer that differ from the usual ones, ended by {0} */
    const name_pair *own;
    const size_keys *keys;       /* NULL: the usual ones */
    const key_default *defaults; /* ended by {0} */
    const char *act;             /* when config.json does not say; NULL: silu */
    const char *head_act;        /* inside the head of a class that classifies; NULL: tanh */
    /* likewise: rope_theta and partial_rotary_factor; 0: 10000 and 1 */
    double rope_theta;
    double rotary;
    /* rope_parameters where there are none, nor rope_scaling; NULL: no scaling */
    const char *rope;
    window_use window;
    /* where layer_types does not say which layers slide: of p layers all but the last; those from
     * max_window_layers on; those that do not rotate (no_rope_layers); 0, false: all */
    int window_period;
    bool period_key; /* sliding_window_pattern may say another p */
    bool window_from;
    bool no_rope;
    bool chunks;       /* what slides elsewhere is "chunked_attention" */
    bool asks_window;  /* use_sliding_window must be true, and is false where it is left out */
    bool layer_norm;   /* eps is a layer norm's */
    bool tied;         /* when config.json does not say */
    bool both_acts;    /* hidden_activation or hidden_act, and "gelu" means act */
    bool local_base;   /* rope_local_base_freq: of window layers, in the first configs */
    bool wide_full;    /* heads of full layers have sizes and numbers of their own */
    bool conv1d;       /* matrices of layers are stored [in, out] */
    bool encoder;      /* its classes differ by their heads, none of which is used */
    bool adjacent;     /* neighbouring elements of a head rotate together, not its halves */
    bool grouped_qkv;  /* query_key_value: of each head of k its heads of q, itself, its v */
    bool latent;       /* keys and values of all heads are products of one row (MLA) */
    bool no_attention; /* nor an MLP: a layer is its state */
    bool one_block;    /* a layer is a mixer or an MLP (config_reader.kinds) */
    bool same_heads;   /* llama.cpp's files count heads of keys in layers with a state, too */
    bool ahead;        /* its models may have a draft head (ahead.c) */
    bool from_pad;     /* positions are counted from pad_token_id + 1 on */
    fused_experts fused;
    double norm_offset;
    /* adds the usual keys to config.json's tree, where the family has others; NULL = none */
    void (*prepare)(config_reader *c);
    void (*extra)(config_reader *c); /* keys of this family alone; NULL = none */
};

/* GLM-4.5 and what has its experts; the names of a layer's, to stand in name_pairs. */
#define SHARED_EXPERTS                                                                             \
    {"mlp.gate.e_score_correction", "exp_probs_b"},                                                \
        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},                                        \
        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},                                            \
        {"mlp.shared_experts.down_proj", "ffn_down_shexp"}, {"mlp.gate", "ffn_gate_inp"},          \
        {"mlp.experts.#.gate_proj", "ffn_gate.#"}, {"mlp.experts.#.up_proj", "ffn_up.#"},          \
        {"mlp.experts.#.down_proj", "ffn_down.#"}, {"mlp.experts.gate_proj", "ffn_gate_exps"},     \
        {"mlp.experts.up_proj", "ffn_up_exps"}, {"mlp.experts.down_proj", "ffn_down_exps"},        \
        {"mlp.switch_mlp.gate_proj", "ffn_gate_exps"}, {"mlp.switch_mlp.up_proj", "ffn_up_exps"},  \
        {"mlp.switch_mlp.down_proj", "ffn_down_exps"},

/* families_encoders.c; ended by {0} */
extern const struct model_family encoder_families[];
/* families_state.c; likewise */
extern const struct model_family state_families[];
/* families_latent.c; likewise */
extern const struct model_family latent_families[];
/* Heads of a family with latent attention, which is one head of keys for the cache. */
void latent_read_heads(config_reader *c);
const struct model_family *family_by_type(const char *model_type); /* NULL = unknown */
const struct model_family *family_at(size_t i); /* every row, from 0 on; NULL = no more */
/* "llama, mistral, ..." in p's memory */
mn_str family_list(mn_parsed *p);

#endif
