/* families.c -- the table of families: names of tensors, defaults, and a row each.
 * family_keys.c has the keys that only some of them have. */
#include "family_keys.h"
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static const name_pair moe_names[] = {
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.#.w1", "ffn_gate.#"},
    {"block_sparse_moe.experts.#.w2", "ffn_down.#"},
    {"block_sparse_moe.experts.#.w3", "ffn_up.#"},
    {"block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps"},
    {"block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps"},
    {"block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.#.gate_proj", "ffn_gate.#"},
    {"mlp.experts.#.up_proj", "ffn_up.#"},
    {"mlp.experts.#.down_proj", "ffn_down.#"},
    {"mlp.switch_mlp.gate_proj", "ffn_gate_exps"},
    {"mlp.switch_mlp.up_proj", "ffn_up_exps"},
    {"mlp.switch_mlp.down_proj", "ffn_down_exps"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"block_sparse_moe.e_score_correction", "exp_probs_b"},
    {"mlp.e_score_correction", "exp_probs_b"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {0},
};
static const name_pair glm4_moe_names[] = {
    SHARED_EXPERTS{"post_attention_layernorm", "post_attention_norm"},
    {"eh_proj", "nextn.eh_proj"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"embed_tokens", "nextn.embed_tokens"},
    {"shared_head.norm", "nextn.shared_head_norm"},
    {"shared_head.head", "nextn.shared_head_head"},
    {0}};
static const name_pair dots1_names[] = {SHARED_EXPERTS{0}};
static const name_pair ernie_moe_names[] = {
    SHARED_EXPERTS{"mlp.moe_statics.e_score_correction", "exp_probs_b"},
    {"mlp.gate.moe_statics.e_score_correction", "exp_probs_b"},
    {0}};
static const name_pair hunyuan_names[] = {{"self_attn.query_layernorm", "attn_q_norm"},
                                          {"self_attn.key_layernorm", "attn_k_norm"},
                                          {"mlp.gate.wg", "ffn_gate_inp"},
                                          {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
                                          {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
                                          {"mlp.shared_mlp.down_proj", "ffn_down_shexp"},
                                          {"mlp.experts.#.gate_proj", "ffn_gate.#"},
                                          {"mlp.experts.#.up_proj", "ffn_up.#"},
                                          {"mlp.experts.#.down_proj", "ffn_down.#"},
                                          {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                          {"mlp.experts.up_proj", "ffn_up_exps"},
                                          {"mlp.experts.down_proj", "ffn_down_exps"},
                                          {0}};
static const name_pair seed_oss_names[] = {{"post_attention_layernorm", "post_attention_norm"},
                                           {0}};
static const name_pair glm4_names[] = {{"mlp.gate_up_proj", "ffn_up"},
                                       {"post_self_attn_layernorm", "post_attention_norm"},
                                       {"post_mlp_layernorm", "post_ffw_norm"},
                                       {0}};
static const name_pair neox_names[] = {{"attention.query_key_value", "attn_qkv"},
                                       {"attention.dense", "attn_output"},
                                       {"mlp.dense_h_to_4h", "ffn_up"},
                                       {"mlp.dense_4h_to_h", "ffn_down"},
                                       {0}};
static const name_pair falcon_names[] = {{"self_attention.query_key_value", "attn_qkv"},
                                         {"self_attention.dense", "attn_output"},
                                         {"mlp.dense_h_to_4h", "ffn_up"},
                                         {"mlp.dense_4h_to_h", "ffn_down"},
                                         {"ln_attn", "attn_norm_2"},
                                         {"ln_mlp", "attn_norm"},
                                         {0}};
static const name_pair mpt_names[] = {{"norm_1", "attn_norm"},
                                      {"attn.Wqkv", "attn_qkv"},
                                      {"attn.out_proj", "attn_output"},
                                      {"norm_2", "ffn_norm"},
                                      {"ffn.up_proj", "ffn_up"},
                                      {"ffn.down_proj", "ffn_down"},
                                      {0}};
static const name_pair starcoder2_names[] = {
    {"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}, {0}};
static const name_pair llama4_names[] = {{"feed_forward.router", "ffn_gate_inp"},
                                         {"feed_forward.experts.gate_proj", "ffn_gate_exps"},
                                         {"feed_forward.experts.up_proj", "ffn_up_exps"},
                                         {"feed_forward.experts.down_proj", "ffn_down_exps"},
                                         {"feed_forward.experts.#.gate_proj", "ffn_gate.#"},
                                         {"feed_forward.experts.#.up_proj", "ffn_up.#"},
                                         {"feed_forward.experts.#.down_proj", "ffn_down.#"},
                                         {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
                                         {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
                                         {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
                                         {"feed_forward.gate_proj", "ffn_gate"},
                                         {"feed_forward.up_proj", "ffn_up"},
                                         {"feed_forward.down_proj", "ffn_down"},
                                         {0}};
static const name_pair apertus_names[] = {
    {"attention_layernorm", "attn_norm"}, {"feedforward_layernorm", "ffn_norm"}, {0}};
static const name_pair granite_moe_names[] = {
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"block_sparse_moe.router", "ffn_gate_inp"},
    {"block_sparse_moe.gate_proj", "ffn_gate_exps"},
    {"block_sparse_moe.up_proj", "ffn_up_exps"},
    {"block_sparse_moe.output_linear", "ffn_down_exps"},
    {"block_sparse_moe.experts.gate_proj", "ffn_gate_exps"},
    {"block_sparse_moe.experts.up_proj", "ffn_up_exps"},
    {"block_sparse_moe.experts.down_proj", "ffn_down_exps"},
    {"shared_mlp.gate", "ffn_gate_shexp"},
    {"shared_mlp.up", "ffn_up_shexp"},
    {"shared_mlp.output_linear", "ffn_down_shexp"},
    {0}};
static const name_pair gpt_oss_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.sinks", "attn_sinks"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {0},
};
static const name_pair gemma_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {0},
};
static const name_pair gemma3n_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"altup.correct_output_scale", "altup_correct_scale"},
    {"altup.correction_coefs", "altup_correct_coef"},
    {"altup.prediction_coefs", "altup_predict_coef"},
    {"altup.modality_router", "altup_router"},
    {"altup.router_norm", "altup_router_norm"},
    {"laurel.linear_left", "laurel_l"},
    {"laurel.linear_right", "laurel_r"},
    {"laurel.post_laurel_norm", "laurel_post_norm"},
    {0},
};
static const name_pair gemma4_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"layer_scalar", "layer_output_scale"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"router.proj", "ffn_gate_inp"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps"},
    {"experts.down_proj", "ffn_down_exps"},
    {"experts.switch_glu.gate_proj", "ffn_gate_exps"},
    {"experts.switch_glu.up_proj", "ffn_up_exps"},
    {"experts.switch_glu.down_proj", "ffn_down_exps"},
    {"experts.#.gate_proj", "ffn_gate.#"},
    {"experts.#.up_proj", "ffn_up.#"},
    {"experts.#.down_proj", "ffn_down.#"},
    {0},
};
static const name_pair olmo2_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {0},
};
static const name_pair phi_names[] = {
    {"self_attn.dense", "attn_output"}, {"mlp.fc1", "ffn_up"}, {"mlp.fc2", "ffn_down"}, {0}};
static const name_pair phi3_names[] = {
    {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}, {0}};
static const name_pair stablelm_names[] = {{"self_attn.q_layernorm.norms.#", "attn_q_norm.#"},
                                           {"self_attn.k_layernorm.norms.#", "attn_k_norm.#"},
                                           {0}};
static const name_pair gpt2_names[] = {{"ln_1", "attn_norm"},
                                       {"attn.c_attn", "attn_qkv"},
                                       {"attn.c_proj", "attn_output"},
                                       {"ln_2", "ffn_norm"},
                                       {"mlp.c_fc", "ffn_up"},
                                       {"mlp.c_proj", "ffn_down"},
                                       {0}};

static const size_keys gpt2_keys = {
    "n_positions",       "n_embd", "n_layer", "n_head", "n_inner", "activation_function",
    "layer_norm_epsilon"};
static const size_keys layer_norm_keys = {.eps = "layer_norm_eps"};
static const size_keys falcon_keys = {
    .n_ff = "ffn_hidden_size", .act = "activation", .eps = "layer_norm_epsilon"};
static const size_keys bloom_keys = {
    .n_ctx = "seq_length",
    .n_layer = "n_layer",
    .n_head = "n_head",
    .n_ff = "n_inner",
    .eps = "layer_norm_epsilon",
};
static const size_keys mpt_keys = {
    .n_ctx = "max_seq_len",
    .n_embd = "d_model",
    .n_layer = "n_layers",
    .n_head = "n_heads",
    .n_ff = "ffn_hidden_size",
    .eps = "layer_norm_epsilon",
};
static const size_keys llama4_keys = {.n_ff = "intermediate_size_mlp"};
static const size_keys nemotron_keys = {.eps = "norm_eps"};
static const size_keys starcoder2_keys = {.eps = "norm_epsilon"};
static const size_keys gemma_keys = {.act = "hidden_activation"};

/* ---- what files in the field leave out: the defaults of Transformers' classes ---------------- */

static const key_default llama_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-6}, {0}};
static const key_default mistral_defaults[] = {
    {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-6}, {"sliding_window", 4096}, {0}};
static const key_default mixtral_defaults[] = {
    {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-5}, {"num_experts_per_tok", 2}, {0}};
static const key_default qwen_defaults[] = {{"max_position_embeddings", 32768},
                                            {"rms_norm_eps", 1e-6},
                                            {"sliding_window", 4096},
                                            {"max_window_layers", 28},
                                            {0}};
static const key_default qwen3_moe_defaults[] = {
    {"max_position_embeddings", 32768}, {"rms_norm_eps", 1e-6},         {"sliding_window", 4096},
    {"num_experts_per_tok", 8},         {"moe_intermediate_size", 768}, {0}};
static const key_default qwen2_moe_defaults[] = {{"max_position_embeddings", 32768},
                                                 {"rms_norm_eps", 1e-6},
                                                 {"sliding_window", 4096},
                                                 {"max_window_layers", 28},
                                                 {"num_experts", 60},
                                                 {"num_experts_per_tok", 4},
                                                 {"moe_intermediate_size", 1408},
                                                 {"shared_expert_intermediate_size", 5632},
                                                 {0}};
static const key_default qwen2_vl_defaults[] = {{"max_position_embeddings", 32768},
                                                {"rms_norm_eps", 1e-5},
                                                {"sliding_window", 4096},
                                                {"max_window_layers", 80},
                                                {0}};
static const key_default qwen3_vl_defaults[] = {
    {"max_position_embeddings", 128000}, {"rms_norm_eps", 1e-6}, {"head_dim", 128}, {0}};
static const key_default qwen3_vl_moe_defaults[] = {
    {"max_position_embeddings", 128000}, {"rms_norm_eps", 1e-6},          {"num_experts", 60},
    {"num_experts_per_tok", 4},          {"moe_intermediate_size", 1408}, {0}};
static const key_default seed_oss_defaults[] = {
    {"max_position_embeddings", 524288}, {"rms_norm_eps", 1e-6}, {"head_dim", 128}, {0}};
static const key_default ministral_defaults[] = {
    {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-6}, {"sliding_window", 4096}, {0}};
static const key_default glm_defaults[] = {
    {"max_position_embeddings", 131072}, {"rms_norm_eps", 1.5625e-7}, {"head_dim", 128}, {0}};
static const key_default glm4_moe_defaults[] = {{"max_position_embeddings", 131072},
                                                {"rms_norm_eps", 1e-5},
                                                {"moe_intermediate_size", 1408},
                                                {"num_experts_per_tok", 8},
                                                {"n_shared_experts", 1},
                                                {"n_routed_experts", 128},
                                                {"first_k_dense_replace", 1},
                                                {0}};
static const key_default dots1_defaults[] = {{"max_position_embeddings", 2048},
                                             {"rms_norm_eps", 1e-6},
                                             {"moe_intermediate_size", 1408},
                                             {"first_k_dense_replace", 0},
                                             {"sliding_window", 4096},
                                             {"max_window_layers", 62},
                                             {0}};
static const key_default minimax_m2_defaults[] = {
    {"max_position_embeddings", 196608}, {"rms_norm_eps", 1e-6},     {"head_dim", 128},
    {"num_local_experts", 256},          {"num_experts_per_tok", 8}, {0}};
static const key_default ernie_defaults[] = {
    {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-5}, {"head_dim", 128}, {0}};
static const key_default ernie_moe_defaults[] = {{"max_position_embeddings", 131072},
                                                 {"rms_norm_eps", 1e-5},
                                                 {"moe_intermediate_size", 1536},
                                                 {"moe_k", 6},
                                                 {"moe_num_experts", 64},
                                                 {"moe_num_shared_experts", 2},
                                                 {"moe_layer_start_index", 1},
                                                 {"moe_layer_interval", 1},
                                                 {0}};
static const key_default hunyuan_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}, {0}};
static const key_default hunyuan_moe_defaults[] = {{"max_position_embeddings", 2048},
                                                   {"rms_norm_eps", 1e-5},
                                                   {"num_experts", 1},
                                                   {"moe_topk", 1},
                                                   {0}};
static const key_default olmoe_defaults[] = {{"max_position_embeddings", 4096},
                                             {"rms_norm_eps", 1e-5},
                                             {"num_experts", 64},
                                             {"num_experts_per_tok", 8},
                                             {0}};
static const key_default olmo3_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}, {"sliding_window", 4096}, {0}};
static const key_default exaone4_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}, {"sliding_window", 4096}, {0}};
static const key_default cohere_defaults[] = {
    {"max_position_embeddings", 8192}, {"layer_norm_eps", 1e-5}, {"logit_scale", 0.0625}, {0}};
static const key_default cohere2_defaults[] = {{"max_position_embeddings", 8192},
                                               {"layer_norm_eps", 1e-5},
                                               {"logit_scale", 0.0625},
                                               {"sliding_window", 4096},
                                               {0}};
static const key_default neox_defaults[] = {
    {"max_position_embeddings", 2048}, {"layer_norm_eps", 1e-5}, {0}};
static const key_default falcon_defaults[] = {
    {"max_position_embeddings", 2048}, {"layer_norm_epsilon", 1e-5}, {0}};
static const key_default bloom_defaults[] = {
    {"seq_length", 2048}, {"layer_norm_epsilon", 1e-5}, {0}};
static const key_default mpt_defaults[] = {
    {"max_seq_len", 2048}, {"layer_norm_epsilon", 1e-5}, {0}};
static const key_default helium_defaults[] = {
    {"max_position_embeddings", 4096}, {"rms_norm_eps", 1e-8}, {"head_dim", 128}, {0}};
static const key_default olmo_defaults[] = {
    {"max_position_embeddings", 2048}, {"layer_norm_eps", 1e-5}, {0}};
static const key_default starcoder2_defaults[] = {
    {"max_position_embeddings", 4096}, {"norm_epsilon", 1e-5}, {0}};
static const key_default llama4_defaults[] = {{"max_position_embeddings", 131072},
                                              {"rms_norm_eps", 1e-5},
                                              {"head_dim", 128},
                                              {"num_local_experts", 16},
                                              {"num_experts_per_tok", 1},
                                              {"attention_chunk_size", 8192},
                                              {"floor_scale", 8192},
                                              {"attn_scale", 0.1},
                                              {"interleave_moe_layer_step", 1},
                                              {0}};
static const key_default ministral3_defaults[] = {
    {"max_position_embeddings", 262144}, {"rms_norm_eps", 1e-5}, {"head_dim", 128}, {0}};
static const key_default apertus_defaults[] = {
    {"max_position_embeddings", 65536}, {"rms_norm_eps", 1e-5}, {0}};
static const key_default arcee_defaults[] = {
    {"max_position_embeddings", 4096}, {"rms_norm_eps", 1e-5}, {0}};
static const key_default nemotron_defaults[] = {
    {"max_position_embeddings", 4096}, {"norm_eps", 1e-5}, {0}};
static const key_default phimoe_defaults[] = {
    {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-5},        {"num_local_experts", 16},
    {"num_experts_per_tok", 2},          {"router_jitter_noise", 0.01}, {0}};
static const key_default granite_moe_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-6},     {"attention_multiplier", 1},
    {"num_local_experts", 8},          {"num_experts_per_tok", 2}, {0}};
static const key_default phi_defaults[] = {
    {"max_position_embeddings", 2048}, {"layer_norm_eps", 1e-5}, {0}};
static const key_default phi3_defaults[] = {{"max_position_embeddings", 4096},
                                            {"rms_norm_eps", 1e-5},
                                            {"original_max_position_embeddings", 4096},
                                            {0}};
static const key_default gemma_defaults[] = {
    {"max_position_embeddings", 8192}, {"rms_norm_eps", 1e-6}, {0}};
static const key_default gemma2_defaults[] = {
    {"num_attention_heads", 8},      {"max_position_embeddings", 8192},
    {"rms_norm_eps", 1e-6},          {"query_pre_attn_scalar", 256},
    {"sliding_window", 4096},        {"attn_logit_softcapping", 50},
    {"final_logit_softcapping", 30}, {0}};
static const key_default gemma3_defaults[] = {
    {"num_attention_heads", 8}, {"max_position_embeddings", 131072},
    {"rms_norm_eps", 1e-6},     {"query_pre_attn_scalar", 256},
    {"sliding_window", 4096},   {0}};
static const key_default gemma3n_defaults[] = {{"num_attention_heads", 8},
                                               {"num_key_value_heads", 2},
                                               {"head_dim", 256},
                                               {"max_position_embeddings", 32768},
                                               {"rms_norm_eps", 1e-6},
                                               {"hidden_size_per_layer_input", 256},
                                               {"num_kv_shared_layers", 15},
                                               {"sliding_window", 512},
                                               {"final_logit_softcapping", 30},
                                               {0}};
static const key_default gemma4_defaults[] = {{"num_attention_heads", 8},
                                              {"num_key_value_heads", 4},
                                              {"head_dim", 256},
                                              {"global_head_dim", 512},
                                              {"max_position_embeddings", 131072},
                                              {"rms_norm_eps", 1e-6},
                                              {"hidden_size_per_layer_input", 256},
                                              {"sliding_window", 512},
                                              {0}};
static const key_default gpt_oss_defaults[] = {{"sliding_window", 128},
                                               {"max_position_embeddings", 131072},
                                               {"rms_norm_eps", 1e-5},
                                               {"num_experts_per_tok", 4},
                                               {0}};
static const key_default olmo2_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}, {0}};
static const key_default granite_defaults[] = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-6}, {"attention_multiplier", 1}, {0}};
static const key_default smollm3_defaults[] = {
    {"max_position_embeddings", 32768}, {"rms_norm_eps", 1e-6}, {0}};
static const key_default stablelm_defaults[] = {
    {"max_position_embeddings", 4096}, {"layer_norm_eps", 1e-5}, {0}};
static const key_default gpt2_defaults[] = {
    {"n_positions", 1024}, {"layer_norm_epsilon", 1e-5}, {0}};

/* ---- families -------------------------------------------------------------------------------- */

/* The first configurations have the text's keys at top level, later ones in text_config. */
#define QWEN2_VL(type, class)                                                                      \
    {                                                                                              \
        .model_type = type, .class_name = class, .arch = "qwen2vl", .window = WINDOW_SOME,         \
        .asks_window = true, .window_from = true, .defaults = qwen2_vl_defaults,                   \
        .rope_theta = 1e6, .extra = family_sections                                                \
    }

static const struct model_family families[] = {
    {.model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .arch = "llama",
     .defaults = llama_defaults},
    {.model_type = "mistral",
     .class_name = "MistralForCausalLM",
     .arch = "llama",
     .window = WINDOW_ALL,
     .defaults = mistral_defaults},
    {.model_type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .arch = "llama",
     .window = WINDOW_ALL,
     .defaults = mixtral_defaults,
     .rope_theta = 1e6,
     .own = moe_names,
     .fused = FUSED_HALVES,
     .extra = family_experts},
    {.model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .arch = "qwen2",
     .window = WINDOW_SOME,
     .asks_window = true,
     .window_from = true,
     .defaults = qwen_defaults},
    {.model_type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .arch = "qwen3",
     .window = WINDOW_SOME,
     .asks_window = true,
     .window_from = true,
     .defaults = qwen_defaults},
    {.model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .arch = "qwen3moe",
     .window = WINDOW_ALL,
     .asks_window = true,
     .defaults = qwen3_moe_defaults,
     .own = moe_names,
     .fused = FUSED_HALVES,
     .extra = family_qwen3_moe},
    {.model_type = "ministral",
     .class_name = "MinistralForCausalLM",
     .arch = "llama",
     .window = WINDOW_SOME,
     .defaults = ministral_defaults},
    {.model_type = "qwen2_moe",
     .class_name = "Qwen2MoeForCausalLM",
     .arch = "qwen2moe",
     .window = WINDOW_SOME,
     .asks_window = true,
     .window_from = true,
     .defaults = qwen2_moe_defaults,
     .own = moe_names,
     .fused = FUSED_HALVES,
     .extra = family_qwen2_moe},
    QWEN2_VL("qwen2_vl", "Qwen2VLForConditionalGeneration"),
    QWEN2_VL("qwen2_vl_text", "Qwen2VLTextModel"),
    QWEN2_VL("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
    QWEN2_VL("qwen2_5_vl_text", "Qwen2_5_VLTextModel"),
    {.model_type = "qwen3_vl_text",
     .class_name = "Qwen3VLTextModel",
     .arch = "qwen3vl",
     .defaults = qwen3_vl_defaults,
     .rope_theta = 5e5,
     .extra = family_sections},
    {.model_type = "qwen3_vl_moe_text",
     .class_name = "Qwen3VLMoeTextModel",
     .arch = "qwen3vlmoe",
     .defaults = qwen3_vl_moe_defaults,
     .rope_theta = 5e5,
     .own = moe_names,
     .fused = FUSED_COLUMNS,
     .extra = family_qwen3_vl_moe},
    {.model_type = "seed_oss",
     .class_name = "SeedOssForCausalLM",
     .arch = "seed_oss",
     .defaults = seed_oss_defaults,
     .own = seed_oss_names},
    {.model_type = "ernie4_5",
     .class_name = "Ernie4_5ForCausalLM",
     .arch = "ernie4_5",
     .defaults = ernie_defaults,
     .rope_theta = 5e5,
     .tied = true,
     .adjacent = true},
    {.model_type = "ernie4_5_moe",
     .class_name = "Ernie4_5_MoeForCausalLM",
     .arch = "ernie4_5-moe",
     .defaults = ernie_moe_defaults,
     .rope_theta = 5e5,
     .own = ernie_moe_names,
     .fused = FUSED_HALVES,
     .tied = true,
     .adjacent = true,
     .prepare = family_ernie_moe_keys,
     .extra = family_ernie_moe},
    {.model_type = "hunyuan_v1_dense",
     .class_name = "HunYuanDenseV1ForCausalLM",
     .arch = "hunyuan-dense",
     .defaults = hunyuan_defaults,
     .own = hunyuan_names},
    {.model_type = "hunyuan_v1_moe",
     .class_name = "HunYuanMoEV1ForCausalLM",
     .arch = "hunyuan-moe",
     .defaults = hunyuan_moe_defaults,
     .own = hunyuan_names,
     .fused = FUSED_HALVES,
     .prepare = family_hunyuan_moe_keys,
     .extra = family_hunyuan_moe},
    {.model_type = "olmoe",
     .class_name = "OlmoeForCausalLM",
     .arch = "olmoe",
     .defaults = olmoe_defaults,
     .own = moe_names,
     .fused = FUSED_HALVES,
     .extra = family_olmoe},
    {.model_type = "glm4_moe",
     .class_name = "Glm4MoeForCausalLM",
     .arch = "glm4moe",
     .defaults = glm4_moe_defaults,
     .rotary = 0.5,
     .own = glm4_moe_names,
     .fused = FUSED_HALVES,
     .prepare = family_routed_keys,
     .ahead = true,
     .extra = family_glm4_moe},
    {.model_type = "dots1",
     .class_name = "Dots1ForCausalLM",
     .arch = "dots1",
     .window = WINDOW_SOME,
     .window_from = true,
     .defaults = dots1_defaults,
     .own = dots1_names,
     .fused = FUSED_HALVES,
     .prepare = family_routed_keys,
     .extra = family_dots1},
    {.model_type = "minimax_m2",
     .class_name = "MiniMaxM2ForCausalLM",
     .arch = "minimax-m2",
     .defaults = minimax_m2_defaults,
     .rope_theta = 5e6,
     .own = moe_names,
     .fused = FUSED_HALVES,
     .prepare = family_minimax_keys,
     .extra = family_minimax},
    {.model_type = "glm",
     .class_name = "GlmForCausalLM",
     .arch = "chatglm",
     .defaults = glm_defaults,
     .rotary = 0.5,
     .own = glm4_names,
     .adjacent = true},
    {.model_type = "glm4",
     .class_name = "Glm4ForCausalLM",
     .arch = "glm4",
     .defaults = glm_defaults,
     .rotary = 0.5,
     .own = glm4_names,
     .adjacent = true},
    {.model_type = "olmo3",
     .class_name = "Olmo3ForCausalLM",
     .arch = "olmo2",
     .window = WINDOW_SOME,
     .window_period = 4,
     .defaults = olmo3_defaults,
     .rope_theta = 5e5,
     .own = olmo2_names},
    {.model_type = "exaone4",
     .class_name = "Exaone4ForCausalLM",
     .arch = "exaone4",
     .window = WINDOW_SOME,
     .window_period = 4,
     .period_key = true,
     .defaults = exaone4_defaults,
     .own = olmo2_names},
    {.model_type = "cohere",
     .class_name = "CohereForCausalLM",
     .arch = "command-r",
     .defaults = cohere_defaults,
     .rope_theta = 5e5,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .adjacent = true,
     .extra = family_cohere},
    {.model_type = "cohere2",
     .class_name = "Cohere2ForCausalLM",
     .arch = "cohere2",
     .window = WINDOW_SOME,
     .window_period = 4,
     .period_key = true,
     .defaults = cohere2_defaults,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .adjacent = true,
     .extra = family_cohere},
    {.model_type = "gpt_neox",
     .class_name = "GPTNeoXForCausalLM",
     .arch = "gptneox",
     .defaults = neox_defaults,
     .act = "gelu",
     .rotary = 0.25,
     .own = neox_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .grouped_qkv = true,
     .prepare = family_neox_keys,
     .extra = family_neox},
    {.model_type = "falcon",
     .class_name = "FalconForCausalLM",
     .arch = "falcon",
     .defaults = falcon_defaults,
     .act = "gelu",
     .own = falcon_names,
     .keys = &falcon_keys,
     .layer_norm = true,
     .tied = true,
     .grouped_qkv = true,
     .prepare = family_falcon_keys},
    {.model_type = "bloom",
     .class_name = "BloomForCausalLM",
     .arch = "bloom",
     .defaults = bloom_defaults,
     .act = "gelu_pytorch_tanh",
     .own = falcon_names,
     .keys = &bloom_keys,
     .layer_norm = true,
     .tied = true,
     .grouped_qkv = true,
     .prepare = family_bloom_keys,
     .extra = family_bloom},
    {.model_type = "mpt",
     .class_name = "MptForCausalLM",
     .arch = "mpt",
     .defaults = mpt_defaults,
     .act = "gelu",
     .own = mpt_names,
     .keys = &mpt_keys,
     .layer_norm = true,
     .tied = true,
     .extra = family_mpt},
    {.model_type = "helium",
     .class_name = "HeliumForCausalLM",
     .arch = "llama",
     .defaults = helium_defaults,
     .rope_theta = 1e5,
     .adjacent = true},
    {.model_type = "olmo",
     .class_name = "OlmoForCausalLM",
     .arch = "olmo",
     .defaults = olmo_defaults,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .extra = family_olmo},
    {.model_type = "starcoder2",
     .class_name = "Starcoder2ForCausalLM",
     .arch = "starcoder2",
     .window = WINDOW_ALL,
     .defaults = starcoder2_defaults,
     .act = "gelu_pytorch_tanh",
     .own = starcoder2_names,
     .keys = &starcoder2_keys,
     .layer_norm = true,
     .tied = true},
    {.model_type = "llama4_text",
     .class_name = "Llama4ForCausalLM",
     .arch = "llama4",
     .window = WINDOW_SOME,
     .no_rope = true,
     .chunks = true,
     .defaults = llama4_defaults,
     .rope_theta = 5e5,
     .own = llama4_names,
     .keys = &llama4_keys,
     .fused = FUSED_COLUMNS,
     .adjacent = true,
     .prepare = family_llama4_keys,
     .extra = family_llama4},
    {.model_type = "ministral3",
     .class_name = "Ministral3ForCausalLM",
     .arch = "mistral3",
     .window = WINDOW_ALL,
     .defaults = ministral3_defaults,
     .rope_theta = 1e6,
     .rope = "{\"rope_type\":\"yarn\",\"rope_theta\":1000000.0,\"factor\":16.0,"
             "\"original_max_position_embeddings\":16384,\"beta_fast\":32.0,\"beta_slow\":1.0,"
             "\"mscale_all_dim\":1.0,\"mscale\":1.0,\"llama_4_scaling_beta\":0.1}",
     .extra = family_ministral3},
    {.model_type = "nemotron",
     .class_name = "NemotronForCausalLM",
     .arch = "nemotron",
     .defaults = nemotron_defaults,
     .act = "relu2",
     .rotary = 0.5,
     .keys = &nemotron_keys,
     .layer_norm = true,
     .norm_offset = 1},
    {.model_type = "arcee",
     .class_name = "ArceeForCausalLM",
     .arch = "arcee",
     .defaults = arcee_defaults,
     .act = "relu2"},
    {.model_type = "apertus",
     .class_name = "ApertusForCausalLM",
     .arch = "apertus",
     .defaults = apertus_defaults,
     .act = "xielu",
     .rope_theta = 12e6,
     .rope = "{\"rope_type\":\"llama3\",\"rope_theta\":12000000.0,\"factor\":8.0,"
             "\"original_max_position_embeddings\":8192,\"low_freq_factor\":1.0,"
             "\"high_freq_factor\":4.0}",
     .own = apertus_names,
     .extra = family_apertus},
    {.model_type = "phimoe",
     .class_name = "PhimoeForCausalLM",
     .arch = "phimoe",
     .window = WINDOW_ALL,
     .defaults = phimoe_defaults,
     .rope_theta = 1e6,
     .own = moe_names,
     .fused = FUSED_HALVES,
     .prepare = family_phimoe_keys,
     .extra = family_phimoe},
    {.model_type = "granitemoe",
     .class_name = "GraniteMoeForCausalLM",
     .arch = "granitemoe",
     .defaults = granite_moe_defaults,
     .own = granite_moe_names,
     .fused = FUSED_SHARED,
     .extra = family_granite_moe},
    {.model_type = "granitemoeshared",
     .class_name = "GraniteMoeSharedForCausalLM",
     .arch = "granitemoe",
     .defaults = granite_moe_defaults,
     .own = granite_moe_names,
     .fused = FUSED_SHARED,
     .extra = family_granite_moe},
    {.model_type = "phi",
     .class_name = "PhiForCausalLM",
     .arch = "phi2",
     .defaults = phi_defaults,
     .act = "gelu_new",
     .rotary = 0.5,
     .own = phi_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .extra = family_phi},
    {.model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .arch = "phi3",
     .window = WINDOW_ALL,
     .defaults = phi3_defaults,
     .own = phi3_names},
    {.model_type = "gemma",
     .class_name = "GemmaForCausalLM",
     .arch = "gemma",
     .defaults = gemma_defaults,
     .act = "gelu_pytorch_tanh",
     .keys = &gemma_keys,
     .both_acts = true,
     .tied = true,
     .norm_offset = 1,
     .extra = family_gemma},
    {.model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .arch = "gemma2",
     .window = WINDOW_SOME,
     .window_period = 2,
     .defaults = gemma2_defaults,
     .act = "gelu_pytorch_tanh",
     .own = gemma_names,
     .keys = &gemma_keys,
     .tied = true,
     .norm_offset = 1,
     .extra = family_gemma2},
    {.model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .arch = "gemma3",
     .arch_both_ways = "gemma-embedding",
     .window = WINDOW_SOME,
     .window_period = 6,
     .period_key = true,
     .local_base = true,
     .defaults = gemma3_defaults,
     .act = "gelu_pytorch_tanh",
     .rope_theta = 1e6,
     .own = gemma_names,
     .keys = &gemma_keys,
     .tied = true,
     .norm_offset = 1,
     .extra = family_gemma3},
    {.model_type = "gemma3n_text",
     .class_name = "Gemma3nForCausalLM",
     .arch = "gemma3n",
     .window = WINDOW_SOME,
     .window_period = 5,
     .local_base = true,
     .defaults = gemma3n_defaults,
     .act = "gelu_pytorch_tanh",
     .rope_theta = 1e6,
     .own = gemma3n_names,
     .keys = &gemma_keys,
     .tied = true,
     .extra = family_gemma3n},
    {.model_type = "gemma4_text",
     .class_name = "Gemma4ForCausalLM",
     .arch = "gemma4",
     .window = WINDOW_SOME,
     .window_period = 6,
     .wide_full = true,
     .defaults = gemma4_defaults,
     .act = "gelu_pytorch_tanh",
     .rope_theta = 1e6,
     .rope = "{\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,"
             "\"rope_theta\":1000000},"
             "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":10000}}",
     .own = gemma4_names,
     .keys = &gemma_keys,
     .tied = true,
     .extra = family_gemma4},
    {.model_type = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .arch = "gpt-oss",
     .window = WINDOW_SOME,
     .window_period = 2,
     .defaults = gpt_oss_defaults,
     .rope_theta = 150000,
     .rope = "{\"rope_type\":\"yarn\",\"factor\":32,\"beta_fast\":32,\"beta_slow\":1,\"truncate\":"
             "false,"
             "\"original_max_position_embeddings\":4096}",
     .own = gpt_oss_names,
     .fused = FUSED_GPT_OSS,
     .extra = family_gpt_oss},
    {.model_type = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .arch = "olmo2",
     .defaults = olmo2_defaults,
     .own = olmo2_names},
    {.model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .arch = "granite",
     .defaults = granite_defaults,
     .extra = family_granite},
    {.model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .arch = "smollm3",
     .window = WINDOW_SOME,
     .asks_window = true,
     .no_rope = true,
     .defaults = smollm3_defaults,
     .tied = true,
     .rope_theta = 2e6},
    {.model_type = "stablelm",
     .class_name = "StableLmForCausalLM",
     .arch = "stablelm",
     .defaults = stablelm_defaults,
     .rotary = 0.25,
     .own = stablelm_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .extra = family_stablelm},
    {.model_type = "gpt2",
     .class_name = "GPT2LMHeadModel",
     .arch = "gpt2",
     .defaults = gpt2_defaults,
     .act = "gelu_new",
     .own = gpt2_names,
     .keys = &gpt2_keys,
     .layer_norm = true,
     .tied = true,
     .conv1d = true,
     .extra = family_gpt2},
    {0},
};

/* Every list, each ended by {0}. */
static const struct model_family *const lists[] = {families, encoder_families, state_families,
                                                   latent_families};

/* model_type of config.json to its row of the table; NULL: no such family. */
const struct model_family *family_by_type(const char *model_type) {
    const struct model_family *f;
    for (size_t i = 0; (f = family_at(i)); i++)
        if (!strcmp(f->model_type, model_type))
            return f;
    return NULL;
}

const struct model_family *family_at(size_t i) {
    for (size_t k = 0; k < MN_COUNT(lists); k++)
        for (const struct model_family *f = lists[k]; f->model_type; f++, i--)
            if (!i)
                return f;
    return NULL;
}

mn_str family_list(mn_parsed *p) {
    mn_str list = {"", 0};
    const struct model_family *f;
    for (size_t i = 0; list.ptr && (f = family_at(i)); i++) {
        const char *comma = i ? ", " : "";
        list = mn_parsed_printf(p, "%.*s%s%s", (int)list.len, list.ptr, comma, f->model_type);
    }
    return list;
}
