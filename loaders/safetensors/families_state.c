/* families_state.c -- the rows of families.h whose layers remember a state: names of tensors,
 * defaults of Transformers' classes. state_keys.c has their keys. */
#include "state_keys.h"

/* The mixer of Mamba-2, as a member `in` of its layer. */
#define MAMBA(in)                                                                                  \
    {in ".in_proj", "ssm_in"}, {in ".conv1d", "ssm_conv1d"}, {in ".A_log", "ssm_a_log"},           \
        {in ".D", "ssm_d"}, {in ".dt", "ssm_dt"}, {in ".norm", "ssm_norm"}, {                      \
        in ".out_proj", "ssm_out"                                                                  \
    }
/* The gated delta rule. */
#define DELTA                                                                                      \
    {"linear_attn.in_proj_qkvz", "ssm_in"}, {"linear_attn.in_proj_ba", "ssm_ba"},                  \
        {"linear_attn.in_proj_qkv", "attn_qkv"}, {"linear_attn.in_proj_z", "attn_gate"},           \
        {"linear_attn.in_proj_b", "ssm_beta"}, {"linear_attn.in_proj_a", "ssm_alpha"},             \
        {"linear_attn.conv1d", "ssm_conv1d"}, {"linear_attn.A_log", "ssm_a_log"},                  \
        {"linear_attn.dt", "ssm_dt"}, {"linear_attn.norm", "ssm_norm"},                            \
        {"linear_attn.out_proj", "ssm_out"}, {                                                     \
        "post_attention_layernorm", "post_attention_norm"                                          \
    }

static const name_pair mamba2_names[] = {MAMBA("mixer"), {"norm", "attn_norm"}, {0}};
static const name_pair nemotron_names[] = {
    MAMBA("mixer"),
    {"norm", "attn_norm"},
    {"mixer.q_proj", "attn_q"},
    {"mixer.k_proj", "attn_k"},
    {"mixer.v_proj", "attn_v"},
    {"mixer.o_proj", "attn_output"},
    {"mixer.up_proj", "ffn_up"},
    {"mixer.down_proj", "ffn_down"},
    {"mixer.gate", "ffn_gate_inp"},
    {"mixer.gate.e_score_correction", "exp_probs_b"},
    {"mixer.experts.#.up_proj", "ffn_up.#"},
    {"mixer.experts.#.down_proj", "ffn_down.#"},
    {"mixer.switch_mlp.fc1", "ffn_up_exps"},
    {"mixer.switch_mlp.fc2", "ffn_down_exps"},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
    {"mixer.fc1_latent_proj", "ffn_latent_down"},
    {"mixer.fc2_latent_proj", "ffn_latent_up"},
    {0},
};
static const name_pair granite_names[] = {
    MAMBA("mamba"),
    {"shared_mlp.input_linear", "ffn_up"},
    {"shared_mlp.gate", "ffn_gate"},
    {"shared_mlp.up", "ffn_up"},
    {"shared_mlp.output_linear", "ffn_down"},
    {0},
};
const name_pair granite_expert_names[] = {
    MAMBA("mamba"),
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"block_sparse_moe.router", "ffn_gate_inp"},
    {"block_sparse_moe.gate_proj", "ffn_gate_exps"},
    {"block_sparse_moe.up_proj", "ffn_up_exps"},
    {"block_sparse_moe.output_linear", "ffn_down_exps"},
    {"block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps"},
    {"block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps"},
    {"block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps"},
    {"shared_mlp.gate", "ffn_gate_shexp"},
    {"shared_mlp.up", "ffn_up_shexp"},
    {"shared_mlp.output_linear", "ffn_down_shexp"},
    {0},
};
static const name_pair bamba_names[] = {
    MAMBA("mamba"),
    {"feed_forward.gate_proj", "ffn_gate"},
    {"feed_forward.up_proj", "ffn_up"},
    {"feed_forward.down_proj", "ffn_down"},
    {"pre_ff_layernorm", "ffn_norm"},
    {0},
};
static const name_pair qwen3_next_names[] = {
    DELTA,
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.#.gate_proj", "ffn_gate.#"},
    {"mlp.experts.#.up_proj", "ffn_up.#"},
    {"mlp.experts.#.down_proj", "ffn_down.#"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"mlp.switch_mlp.gate_proj", "ffn_gate_exps"},
    {"mlp.switch_mlp.up_proj", "ffn_up_exps"},
    {"mlp.switch_mlp.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"eh_proj", "nextn.eh_proj"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"shared_head.norm", "nextn.shared_head_norm"},
    {0},
};
static const name_pair olmo_names[] = {
    {"linear_attn.q_proj", "ssm_q"},
    {"linear_attn.k_proj", "ssm_k"},
    {"linear_attn.v_proj", "ssm_v"},
    {"linear_attn.g_proj", "attn_gate"},
    {"linear_attn.b_proj", "ssm_beta"},
    {"linear_attn.a_proj", "ssm_alpha"},
    {"linear_attn.q_conv1d", "ssm_conv1d_q"},
    {"linear_attn.k_conv1d", "ssm_conv1d_k"},
    {"linear_attn.v_conv1d", "ssm_conv1d_v"},
    {"linear_attn.A_log", "ssm_a_log"},
    {"linear_attn.dt", "ssm_dt"},
    {"linear_attn.o_norm", "ssm_norm"},
    {"linear_attn.o_proj", "ssm_out"},
    /* of layers with a state; those with attention have the names that follow */
    {"attention_layer_norm", "attn_norm"},
    {"feedforward_layer_norm", "ffn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {0},
};
static const name_pair lfm2_names[] = {
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"self_attn.out_proj", "attn_output"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"operator_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.gate", "ffn_gate_inp"},
    {"feed_forward.expert", "exp_probs_b"},
    {"feed_forward.experts.#.w1", "ffn_gate.#"},
    {"feed_forward.experts.#.w3", "ffn_up.#"},
    {"feed_forward.experts.#.w2", "ffn_down.#"},
    {"feed_forward.switch_mlp.gate_proj", "ffn_gate_exps"},
    {"feed_forward.switch_mlp.up_proj", "ffn_up_exps"},
    {"feed_forward.switch_mlp.down_proj", "ffn_down_exps"},
    {"feed_forward.experts.gate_proj", "ffn_gate_exps"},
    {"feed_forward.experts.up_proj", "ffn_up_exps"},
    {"feed_forward.experts.down_proj", "ffn_down_exps"},
    {0},
};

static const size_keys mamba2_keys = {.eps = "layer_norm_epsilon"};
static const size_keys nemotron_keys = {.act = "mlp_hidden_act", .eps = "layer_norm_epsilon"};
static const size_keys granite_keys = {.n_ff = "shared_intermediate_size"};
static const size_keys lfm2_keys = {.eps = "norm_eps"};

static const key_default mamba2_defaults[] = {{"max_position_embeddings", 1048576},
                                              {"layer_norm_epsilon", 1e-5},
                                              {"num_heads", 128},
                                              {"head_dim", 64},
                                              {"state_size", 128},
                                              {"n_groups", 8},
                                              {"conv_kernel", 4},
                                              {0}};
static const key_default nemotron_defaults[] = {{"max_position_embeddings", 4096},
                                                {"layer_norm_epsilon", 1e-5},
                                                {"head_dim", 128},
                                                {"mamba_num_heads", 128},
                                                {"mamba_head_dim", 64},
                                                {"ssm_state_size", 128},
                                                {"n_groups", 8},
                                                {"conv_kernel", 4},
                                                {0}};
static const key_default granite_defaults[] = {
    {"max_position_embeddings", 2048},  {"rms_norm_eps", 1e-6}, {"attention_multiplier", 1},
    {"num_local_experts", 8},           {"mamba_n_heads", 128}, {"mamba_n_groups", 1},
    {"shared_intermediate_size", 1024}, {"mamba_d_state", 256}, {"mamba_d_conv", 4},
    {"num_experts_per_tok", 2},         {"mamba_expand", 2},    {0}};
static const key_default bamba_defaults[] = {{"max_position_embeddings", 262144},
                                             {"rms_norm_eps", 1e-5},
                                             {"mamba_n_heads", 128},
                                             {"mamba_n_groups", 1},
                                             {"mamba_d_state", 256},
                                             {"mamba_d_conv", 4},
                                             {"mamba_expand", 2},
                                             {0}};
static const key_default falcon_defaults[] = {{"max_position_embeddings", 8192},
                                              {"rms_norm_eps", 1e-5},
                                              {"mamba_n_heads", 128},
                                              {"mamba_n_groups", 1},
                                              {"mamba_d_state", 256},
                                              {"mamba_d_conv", 4},
                                              {"mamba_expand", 2},
                                              {0}};
#define DELTA_DEFAULTS                                                                             \
    {"max_position_embeddings", 32768}, {"rms_norm_eps", 1e-6}, {"head_dim", 256},                 \
        {"linear_conv_kernel_dim", 4}, {"linear_key_head_dim", 128},                               \
        {"linear_value_head_dim", 128}, {                                                          \
        "linear_num_key_heads", 16                                                                 \
    }
static const key_default qwen3_next_defaults[] = {DELTA_DEFAULTS,
                                                  {"linear_num_value_heads", 32},
                                                  {"num_experts", 512},
                                                  {"num_experts_per_tok", 10},
                                                  {"moe_intermediate_size", 512},
                                                  {"shared_expert_intermediate_size", 512},
                                                  {0}};
static const key_default qwen3_5_defaults[] = {DELTA_DEFAULTS, {"linear_num_value_heads", 32}, {0}};
static const key_default qwen3_5_moe_defaults[] = {DELTA_DEFAULTS,
                                                   {"linear_num_value_heads", 32},
                                                   {"intermediate_size", 512}, /* no layer's */
                                                   {"num_experts", 256},
                                                   {"num_experts_per_tok", 8},
                                                   {"moe_intermediate_size", 512},
                                                   {"shared_expert_intermediate_size", 512},
                                                   {0}};
static const key_default olmo_defaults[] = {
    {"max_position_embeddings", 65536}, {"rms_norm_eps", 1e-6}, {"linear_conv_kernel_dim", 4}, {0}};
static const key_default lfm2_defaults[] = {
    {"max_position_embeddings", 128000}, {"norm_eps", 1e-5}, {"conv_L_cache", 3}, {0}};
static const key_default lfm2_moe_defaults[] = {{"max_position_embeddings", 128000},
                                                {"norm_eps", 1e-5},
                                                {"conv_L_cache", 3},
                                                {"num_experts", 32},
                                                {"num_experts_per_tok", 4},
                                                {0}};

const struct model_family state_families[] = {
    {.model_type = "mamba2",
     .class_name = "Mamba2ForCausalLM",
     .arch = "mamba2",
     .defaults = mamba2_defaults,
     .own = mamba2_names,
     .keys = &mamba2_keys,
     .no_attention = true,
     .extra = family_mamba2},
    {.model_type = "nemotron_h",
     .class_name = "NemotronHForCausalLM",
     .arch = "nemotron_h",
     .arch_experts = "nemotron_h_moe",
     .defaults = nemotron_defaults,
     .act = "relu2",
     .own = nemotron_names,
     .keys = &nemotron_keys,
     .one_block = true,
     .prepare = family_nemotron_keys,
     .extra = family_nemotron},
    {.model_type = "granitemoehybrid",
     .class_name = "GraniteMoeHybridForCausalLM",
     .arch = "granitehybrid",
     .defaults = granite_defaults,
     .own = granite_names,
     .keys = &granite_keys,
     .fused = FUSED_SHARED,
     .prepare = family_granite_hybrid_keys,
     .extra = family_granite_hybrid},
    {.model_type = "bamba",
     .class_name = "BambaForCausalLM",
     .arch = "granitehybrid",
     .defaults = bamba_defaults,
     .rotary = 0.5,
     .own = bamba_names,
     .prepare = family_bamba_keys,
     .extra = family_bamba},
    {.model_type = "falcon_h1",
     .class_name = "FalconH1ForCausalLM",
     .arch = "falcon-h1",
     .defaults = falcon_defaults,
     .own = bamba_names,
     .extra = family_falcon_h1},
    {.model_type = "qwen3_next",
     .class_name = "Qwen3NextForCausalLM",
     .arch = "qwen3next",
     .defaults = qwen3_next_defaults,
     .rotary = 0.25,
     .own = qwen3_next_names,
     .fused = FUSED_HALVES,
     .norm_offset = 1,
     .prepare = family_delta_keys,
     .same_heads = true,
     .ahead = true,
     .extra = family_qwen3_next},
    {.model_type = "qwen3_5_text",
     .class_name = "Qwen3_5ForCausalLM",
     .arch = "qwen35",
     .defaults = qwen3_5_defaults,
     .rotary = 0.25,
     .own = qwen3_next_names,
     .norm_offset = 1,
     .prepare = family_delta_keys,
     .same_heads = true,
     .ahead = true,
     .extra = family_qwen3_5},
    {.model_type = "qwen3_5_moe_text",
     .class_name = "Qwen3_5MoeForCausalLM",
     .arch = "qwen35moe",
     .defaults = qwen3_5_moe_defaults,
     .rotary = 0.25,
     .own = qwen3_next_names,
     .fused = FUSED_HALVES,
     .norm_offset = 1,
     .prepare = family_delta_keys,
     .same_heads = true,
     .ahead = true,
     .extra = family_qwen3_5_moe},
    {.model_type = "olmo_hybrid",
     .class_name = "OlmoHybridForCausalLM",
     .arch = "olmo_hybrid",
     .defaults = olmo_defaults,
     .own = olmo_names,
     .prepare = family_olmo_hybrid_keys,
     .extra = family_olmo_hybrid},
    {.model_type = "lfm2",
     .class_name = "Lfm2ForCausalLM",
     .arch = "lfm2",
     .defaults = lfm2_defaults,
     .rope_theta = 1e6,
     .own = lfm2_names,
     .keys = &lfm2_keys,
     .tied = true,
     .prepare = family_lfm2_keys,
     .extra = family_lfm2},
    {.model_type = "lfm2_moe",
     .class_name = "Lfm2MoeForCausalLM",
     .arch = "lfm2moe",
     .defaults = lfm2_moe_defaults,
     .rope_theta = 1e6,
     .own = lfm2_names,
     .keys = &lfm2_keys,
     .tied = true,
     .fused = FUSED_HALVES,
     .prepare = family_lfm2_moe_keys,
     .extra = family_lfm2_moe},
    {0},
};
