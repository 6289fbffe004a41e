/* families_latent.c -- the rows of families.h with latent attention (MLA): names of tensors,
 * defaults of Transformers' classes, keys. kv_b_proj, from which keys and values of all heads
 * come, is two tensors by its rows (layout.c): one for each product of a head. */
#include "state_keys.h"
#include <string.h>

#define LATENT_NAMES                                                                               \
    {"self_attn.q_a_proj", "attn_q_a"}, {"self_attn.q_a_layernorm", "attn_q_a_norm"},              \
        {"self_attn.q_b_proj", "attn_q_b"}, {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},     \
        {"self_attn.kv_a_layernorm", "attn_kv_a_norm"}, {"self_attn.k_b_proj", "attn_k_b"}, {      \
        "self_attn.v_b_proj", "attn_v_b"                                                           \
    }
static const name_pair latent_names[] = {LATENT_NAMES, SHARED_EXPERTS{0}};
static const name_pair kimi_linear_names[] = {
    LATENT_NAMES,
    {"self_attn.q_conv1d", "ssm_conv1d_q"},
    {"self_attn.k_conv1d", "ssm_conv1d_k"},
    {"self_attn.v_conv1d", "ssm_conv1d_v"},
    {"self_attn.A_log", "ssm_a_log"},
    {"self_attn.dt", "ssm_dt"},
    {"self_attn.f_a_proj", "ssm_f_a"},
    {"self_attn.f_b_proj", "ssm_f_b"},
    {"self_attn.g_a_proj", "ssm_g_a"},
    {"self_attn.g_b_proj", "ssm_g_b"},
    {"self_attn.b_proj", "ssm_beta"},
    {"self_attn.o_norm", "ssm_norm"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate.e_score_correction", "exp_probs_b"},
    {"block_sparse_moe.experts.#.w1", "ffn_gate.#"},
    {"block_sparse_moe.experts.#.w3", "ffn_up.#"},
    {"block_sparse_moe.experts.#.w2", "ffn_down.#"},
    {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
    {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"},
    {0},
};

/* What the defaults of all these classes state, with the numbers of each. */
#define LATENT_DEFAULTS(positions, eps, rank_of_q, nope, dim_v, experts, shared, n_ff, dense)      \
    {"max_position_embeddings", (positions)}, {"rms_norm_eps", (eps)}, {"kv_lora_rank", 512},      \
        {"q_lora_rank", (rank_of_q)}, {"qk_nope_head_dim", (nope)}, {"qk_rope_head_dim", 64},      \
        {"v_head_dim", (dim_v)}, {"n_routed_experts", (experts)}, {"n_shared_experts", (shared)},  \
        {"moe_intermediate_size", (n_ff)}, {                                                       \
        "first_k_dense_replace", (dense)                                                           \
    }
/* And how experts are chosen. */
#define GROUP_DEFAULTS(chosen, groups, used, scale)                                                \
    {"num_experts_per_tok", (chosen)}, {"n_group", (groups)}, {"topk_group", (used)}, {            \
        "routed_scaling_factor", (scale)                                                           \
    }
static const key_default v2_defaults[] = {
    LATENT_DEFAULTS(2048, 1e-6, 1536, 128, 128, 64, 2, 1407, 0), {0}};
static const key_default v3_defaults[] = {
    LATENT_DEFAULTS(4096, 1e-6, 1536, 128, 128, 256, 1, 2048, 3),
    GROUP_DEFAULTS(8, 8, 4, 2.5),
    {0}};
static const key_default glm_lite_defaults[] = {
    LATENT_DEFAULTS(202752, 1e-5, 768, 192, 256, 64, 1, 1536, 1),
    GROUP_DEFAULTS(4, 1, 1, 1.8),
    {0}};

static const key_default kimi_linear_defaults[] = {
    {"model_max_length", 4096}, {"rms_norm_eps", 1e-6}, {"routed_scaling_factor", 1}, {0}};
static const size_keys kimi_linear_keys = {.n_ctx = "model_max_length"};

/* ---- heads ----------------------------------------------------------------------------------- */
static int64_t size_of(config_reader *c, const char *key) {
    return config_int(c, c->root, "", key, 1, 65536, NULL);
}

/* What the cache keeps of a position is one head of kv_lora_rank and qk_rope_head_dim numbers, of
 * which values are the first. */
void latent_read_heads(config_reader *c) {
    const int64_t none = 0;
    const int64_t n_kv = size_of(c, "kv_lora_rank");
    const int64_t n_rot = size_of(c, "qk_rope_head_dim");
    const int64_t n_q = config_int(c, c->root, "", "q_lora_rank", 0, 65536, &none);
    c->n_head = size_of(c, "num_attention_heads");
    c->n_head_kv = 1;
    c->head_dim = n_rot; /* of what rotates */
    c->head_dim_v = size_of(c, "v_head_dim");
    config_put_int(c, "attention.head_count", "", "num_attention_heads", c->n_head);
    if (c->kinds)
        state_put_one_head(c);
    else
        config_put_int(c, "attention.head_count_kv", "", "num_attention_heads", 1);
    config_put_int(c, "attention.key_length", "", "kv_lora_rank", n_kv + n_rot);
    config_put_int(c, "attention.value_length", "", "kv_lora_rank", n_kv);
    config_put_int(c, "attention.key_length_mla", "", "qk_nope_head_dim",
                   size_of(c, "qk_nope_head_dim") + n_rot);
    config_put_int(c, "attention.value_length_mla", "", "v_head_dim", c->head_dim_v);
    config_put_int(c, "attention.kv_lora_rank", "", "kv_lora_rank", n_kv);
    if (n_q)
        config_put_int(c, "attention.q_lora_rank", "", "q_lora_rank", n_q);
}

/* ---- keys ------------------------------------------------------------------------------------ */
static const char *latent_word(config_reader *c, const char *key, const char *usual) {
    return config_str(c, c->root, "", key, usual);
}

static void latent_expect(config_reader *c, const char *key, const char *wanted) {
    const char *found = latent_word(c, key, wanted);
    if (!c->status && strcmp(found, wanted))
        c->status = mnl_fail(c->err, MN_UNSUPPORTED, "%.*s: key '%s' is \"%.40s\", expected \"%s\"",
                             MN_STR_ARG(c->file->name), key, found, wanted);
}

/* Yarn's magnitude, as far as it scales the scores. */
static void put_yarn_log(config_reader *c) {
    const double none = 0;
    const char *names[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const cJSON *rope = json_get(c->root, names[i]);
        if (!rope || !rope->child)
            continue;
        const double m = config_float(c, rope, "rope_parameters.", "mscale_all_dim", 0, 1e3, &none);
        if (m > 0)
            config_put_float(c, "rope.scaling.yarn_log_multiplier", "rope_parameters.",
                             "mscale_all_dim", 0.1 * m);
        return;
    }
}

/* Experts of some groups alone: those whose best ones are best. */
static void put_groups(config_reader *c) {
    const int64_t one = 1;
    const int64_t n = config_int(c, c->root, "", "n_group", 1, 65536, &one);
    if (n == 1)
        return;
    const int64_t used = config_int(c, c->root, "", "topk_group", 1, n, NULL);
    config_put_int(c, "expert_group_count", "", "n_group", n);
    config_put_int(c, "expert_group_used_count", "", "topk_group", used);
}

static void family_latent(config_reader *c) {
    if (!config_bool(c, "rope_interleave", true) && !c->status)
        c->status =
            mnl_fail(c->err, MN_UNSUPPORTED, "%.*s: key 'rope_interleave' is false, expected true",
                     MN_STR_ARG(c->file->name));
    put_yarn_log(c);
}

static void family_deepseek_v2(config_reader *c) {
    family_latent(c);
    family_routed(c, FAMILY_SOFTMAX, false);
    latent_expect(c, "scoring_func", "softmax");
    const char *how = latent_word(c, "topk_method", "greedy");
    if (!strcmp(how, "group_limited_greedy"))
        put_groups(c);
    else
        latent_expect(c, "topk_method", "greedy");
}

static void family_deepseek_v3(config_reader *c) {
    family_latent(c);
    family_routed(c, FAMILY_SIGMOID, true);
    latent_expect(c, "scoring_func", "sigmoid");
    latent_expect(c, "topk_method", "noaux_tc");
    put_groups(c);
}

/* ---- Kimi Linear ----------------------------------------------------------------------------- */
static void kimi_linear_tree(config_reader *c) {
    static const char *const names[][2] = {{"num_experts_per_token", "num_experts_per_tok"},
                                           {"num_shared_experts", "n_shared_experts"},
                                           {"moe_renormalize", "norm_topk_prob"},
                                           {"num_expert_group", "n_group"},
                                           {"max_position_embeddings", "model_max_length"}};
    for (size_t i = 0; i < MN_COUNT(names); i++)
        family_copy_key(c, names[i][0], names[i][1]);
    family_kda_keys(c);
}

static void family_kimi_linear(config_reader *c) {
    const char *how = latent_word(c, "moe_router_activation_func", "sigmoid");
    const bool is_softmax = !strcmp(how, "softmax");
    if (!is_softmax)
        latent_expect(c, "moe_router_activation_func", "sigmoid");
    if (!config_bool(c, "mla_use_nope", false) && !c->status)
        c->status =
            mnl_fail(c->err, MN_UNSUPPORTED, "%.*s: key 'mla_use_nope' is false, expected true",
                     MN_STR_ARG(c->file->name));
    family_put_kda(c);
    family_routed(c, is_softmax ? FAMILY_SOFTMAX : FAMILY_SIGMOID, true);
    put_groups(c);
}

#define LATENT(usual, keys)                                                                        \
    .defaults = (usual), .extra = (keys), .own = latent_names, .fused = FUSED_HALVES,              \
    .latent = true, .adjacent = true, .prepare = family_routed_keys
const struct model_family latent_families[] = {
    {.model_type = "deepseek_v2",
     .class_name = "DeepseekV2ForCausalLM",
     .arch = "deepseek2",
     LATENT(v2_defaults, family_deepseek_v2)},
    {.model_type = "deepseek_v3",
     .class_name = "DeepseekV3ForCausalLM",
     .arch = "deepseek2",
     LATENT(v3_defaults, family_deepseek_v3)},
    {.model_type = "kimi_k2",
     .class_name = "DeepseekV3ForCausalLM",
     .arch = "deepseek2",
     LATENT(v3_defaults, family_deepseek_v3)},
    {.model_type = "glm4_moe_lite",
     .class_name = "Glm4MoeLiteForCausalLM",
     .arch = "deepseek2",
     LATENT(glm_lite_defaults, family_deepseek_v3)},
    {.model_type = "kimi_linear",
     .class_name = "KimiLinearForCausalLM",
     .arch = "kimi-linear",
     .own = kimi_linear_names,
     .keys = &kimi_linear_keys,
     .defaults = kimi_linear_defaults,
     .latent = true,
     .adjacent = true,
     .prepare = kimi_linear_tree,
     .extra = family_kimi_linear},
    {0},
};
