/* families.c -- the table of families, and the keys that only some of them have. */
#include "families.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------ */

static const double zero = 0;

/* A number that is used as it is; absent or null: nothing is put. */
static void put_if(config_reader *c, const char *key, const char *native, double lo, double hi) {
    if (json_get(c->root, native))
        config_put_float(c, key, "", native, config_float(c, c->root, "", native, lo, hi, &zero));
}

/* A flag for a variant of the architecture that no graph builder knows. */
static void refuse_true(config_reader *c, const char *key) {
    if (config_bool(c, key, false) && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key '%s' is true, which is unsupported; expected false",
                             MN_STR_ARG(c->file->name), key);
}

static void expect_number(config_reader *c, const char *key, double value);

static void gemma(config_reader *c) {
    refuse_true(c, "use_bidirectional_attention");
}

/* attention.scale is 1 / sqrt(query_pre_attn_scalar), whatever the heads' size is. A cap on the
 * scores stands in configurations of Gemma 3, too; its attention has none. */
static void gemma3(config_reader *c) {
    gemma(c);
    put_if(c, "final_logit_softcapping", "final_logit_softcapping", FLT_MIN, 1e6);
    if (!json_get(c->root, "query_pre_attn_scalar"))
        return;
    const double scalar = config_float(c, c->root, "", "query_pre_attn_scalar", 1e-3, 1e9, NULL);
    config_put_float(c, "attention.scale", "", "query_pre_attn_scalar", 1 / sqrt(scalar));
}

static void gemma2(config_reader *c) {
    gemma3(c);
    put_if(c, "attn_logit_softcapping", "attn_logit_softcapping", FLT_MIN, 1e6);
}

/* Of Gemma 4 the dense models: per-layer inputs, shared caches and experts are other graphs. */
static void gemma4(config_reader *c) {
    static const char *const none[] = {"hidden_size_per_layer_input", "num_kv_shared_layers"};
    for (size_t i = 0; i < MN_COUNT(none); i++)
        expect_number(c, none[i], 0);
    refuse_true(c, "enable_moe_block");
    const cJSON *both = json_get(c->root, "use_bidirectional_attention"); /* "vision": of images */
    if (both && !(cJSON_IsString(both) && !strcmp(both->valuestring, "vision")) && !c->status)
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'use_bidirectional_attention' is %s, expected null",
                             MN_STR_ARG(c->file->name), json_describe(both).s);
    put_if(c, "final_logit_softcapping", "final_logit_softcapping", FLT_MIN, 1e6);
}

/* Four factors that other families lack. logits_scaling goes on as it stands: the graph builder
 * divides by it. */
static void granite(config_reader *c) {
    put_if(c, "embedding_scale", "embedding_multiplier", FLT_MIN, 1e9);
    put_if(c, "residual_scale", "residual_multiplier", FLT_MIN, 1e9);
    put_if(c, "attention.scale", "attention_multiplier", FLT_MIN, 1e9);
    put_if(c, "logit_scale", "logits_scaling", FLT_MIN, 1e9);
}

/* Granite 4: of this class the models without experts and without state-space layers are
 * Granite. */
static void granite_hybrid(config_reader *c) {
    const cJSON *types = json_get(c->root, "layer_types");
    const char *position = config_str(c, c->root, "", "position_embedding_type", "none");
    granite(c);
    expect_number(c, "num_local_experts", 0);
    if (!c->status && strcmp(position, "rope"))
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'position_embedding_type' is %s, expected \"rope\"",
                             MN_STR_ARG(c->file->name),
                             json_describe(json_get(c->root, "position_embedding_type")).s);
    if (!types || !cJSON_IsArray(types) || !types->child) {
        config_fail(c, "", "layer_types", types, "an array of \"attention\"");
        return;
    }
    for (const cJSON *t = types->child; t && !c->status; t = t->next)
        if (!cJSON_IsString(t) ||
            (strcmp(t->valuestring, "attention") && strcmp(t->valuestring, "full_attention")))
            c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                                 "%.*s: key 'layer_types' has %s, expected \"attention\" alone",
                                 MN_STR_ARG(c->file->name), json_describe(t).s);
}

/* count: the first of these keys that is there; Qwen3-MoE has used both. */
static void put_experts(config_reader *c) {
    const char *count = "num_experts";
    if (json_get(c->root, "num_local_experts"))
        count = "num_local_experts";
    const int64_t n = config_int(c, c->root, "", count, 1, 65536, NULL);
    config_put_int(c, "expert_count", "", count, n);
    config_put_int(c, "expert_used_count", "", "num_experts_per_tok",
                   config_int(c, c->root, "", "num_experts_per_tok", 1, n > 0 ? n : 1, NULL));
}

/* The experts have a width of their own, and the weights of a token's choice are normalised only
 * where norm_topk_prob says so. */
static void qwen3_moe(config_reader *c) {
    put_experts(c);
    config_put_int(c, "expert_feed_forward_length", "", "moe_intermediate_size",
                   config_int(c, c->root, "", "moe_intermediate_size", 1, 1 << 24, NULL));
    config_put_bool(c, "expert_weights_norm", "norm_topk_prob",
                    config_bool(c, "norm_topk_prob", false));
}

/* A constant of the graph, which config.json may repeat. */
static void expect_number(config_reader *c, const char *key, double value) {
    const double found = config_float(c, c->root, "", key, -DBL_MAX, DBL_MAX, &value);
    if (c->status)
        return;
    if (!(found < value || found > value))
        return;
    c->status = mnl_fail(c->err, MN_UNSUPPORTED, "%.*s: key '%s' is %g, expected %g",
                         MN_STR_ARG(c->file->name), key, found, value);
}

/* The clamp and the slope of its activation are constants of the graph: another value is
 * refused. */
static void gpt_oss(config_reader *c) {
    put_experts(c);
    expect_number(c, "swiglu_limit", 7);
    expect_number(c, "swiglu_alpha", 1.702);
}

static void phi(config_reader *c) {
    refuse_true(c, "qk_layernorm");
}

static void stablelm(config_reader *c) {
    config_put_bool(c, "use_parallel_residual", "use_parallel_residual",
                    config_bool(c, "use_parallel_residual", false));
}

/* Without scale_attn_weights the scores are not divided by the root of the heads' size. */
static void gpt2(config_reader *c) {
    refuse_true(c, "scale_attn_by_inverse_layer_idx");
    if (!config_bool(c, "scale_attn_weights", true))
        config_put_float(c, "attention.scale", "", "scale_attn_weights", 1);
}

/* Embedding by distances between positions and cross attention are other graphs. */
static void encoder(config_reader *c) {
    const char *kind = config_str(c, c->root, "", "position_embedding_type", "absolute");
    refuse_true(c, "is_decoder");
    refuse_true(c, "add_cross_attention");
    if (!c->status && strcmp(kind, "absolute"))
        c->status = mnl_fail(c->err, MN_UNSUPPORTED,
                             "%.*s: key 'position_embedding_type' is \"%.40s\", expected "
                             "\"absolute\"",
                             MN_STR_ARG(c->file->name), kind);
    config_put_bool(c, "attention.causal", "model_type", false);
}

/* A number under another key, unless that is there. */
static void copy_number(config_reader *c, const char *from, const char *to) {
    const cJSON *v = json_get(c->root, from);
    if (!v || json_get(c->root, to) || c->status)
        return;
    cJSON *copy = cJSON_Duplicate(v, false);
    cJSON_DeleteItemFromObjectCaseSensitive(c->root, to); /* a null */
    if (copy && cJSON_AddItemToObject(c->root, to, copy))
        return;
    cJSON_Delete(copy);
    c->status = mnl_fail_memory(c->err);
}

/* Which layers slide: all but each n-th, which begins with the first. */
static void add_layer_types(config_reader *c) {
    const int64_t n_layer = config_int(c, c->root, "", "num_hidden_layers", 1, 4096, NULL);
    const int64_t n = config_int(c, c->root, "", "global_attn_every_n_layers", 1, 4096, NULL);
    cJSON *types = c->status ? NULL : cJSON_AddArrayToObject(c->root, "layer_types");
    for (int64_t i = 0; types && i < n_layer; i++)
        cJSON_AddItemToArray(types,
                             cJSON_CreateString(i % n ? "sliding_attention" : "full_attention"));
    if (!c->status && (!types || cJSON_GetArraySize(types) != n_layer))
        c->status = mnl_fail_memory(c->err);
}

static void modern_bert(config_reader *c) {
    copy_number(c, "local_attention", "sliding_window");
    if (!json_get(c->root, "rope_parameters")) {
        copy_number(c, "global_rope_theta", "rope_theta");
        copy_number(c, "local_rope_theta", "rope_local_base_freq");
    }
    if (!json_get(c->root, "layer_types"))
        add_layer_types(c);
}

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
    {"mlp.experts.#.gate_proj", "ffn_gate.#"},
    {"mlp.experts.#.up_proj", "ffn_up.#"},
    {"mlp.experts.#.down_proj", "ffn_down.#"},
    {"mlp.switch_mlp.gate_proj", "ffn_gate_exps"},
    {"mlp.switch_mlp.up_proj", "ffn_up_exps"},
    {"mlp.switch_mlp.down_proj", "ffn_down_exps"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {0},
};
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
static const name_pair gemma4_names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"layer_scalar", "layer_output_scale"},
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
static const name_pair granite_hybrid_names[] = {{"shared_mlp.input_linear", "ffn_up"},
                                                 {"shared_mlp.gate", "ffn_gate"},
                                                 {"shared_mlp.up", "ffn_up"},
                                                 {"shared_mlp.output_linear", "ffn_down"},
                                                 {0}};
static const name_pair gpt2_names[] = {{"ln_1", "attn_norm"},
                                       {"attn.c_attn", "attn_qkv"},
                                       {"attn.c_proj", "attn_output"},
                                       {"ln_2", "ffn_norm"},
                                       {"mlp.c_fc", "ffn_up"},
                                       {"mlp.c_proj", "ffn_down"},
                                       {0}};

static const name_pair bert_names[] = {{"attention.self.query", "attn_q"},
                                       {"attention.self.key", "attn_k"},
                                       {"attention.self.value", "attn_v"},
                                       {"attention.output.dense", "attn_output"},
                                       {"attention.output.LayerNorm", "attn_output_norm"},
                                       {"intermediate.dense", "ffn_up"},
                                       {"output.dense", "ffn_down"},
                                       {"output.LayerNorm", "layer_output_norm"},
                                       {0}};

static const name_pair distilbert_names[] = {{"attention.q_lin", "attn_q"},
                                             {"attention.k_lin", "attn_k"},
                                             {"attention.v_lin", "attn_v"},
                                             {"attention.out_lin", "attn_output"},
                                             {"sa_layer_norm", "attn_output_norm"},
                                             {"ffn.lin1", "ffn_up"},
                                             {"ffn.lin2", "ffn_down"},
                                             {"output_layer_norm", "layer_output_norm"},
                                             {0}};
static const name_pair modern_bert_names[] = {
    {"attn_norm", "attn_norm"},
    {"attn.Wqkv", "attn_qkv"},
    {"attn.Wo", "attn_output"},
    {"mlp_norm", "ffn_norm"},
    {"mlp.Wi", "ffn_up"},
    {"mlp.Wo", "ffn_down"},
    {0},
};
static const name_pair nomic_names[] = {{"attn.Wqkv", "attn_qkv"},
                                        {"attn.out_proj", "attn_output"},
                                        {"norm1", "attn_output_norm"},
                                        {"mlp.fc11", "ffn_up"},
                                        {"mlp.fc12", "ffn_gate"},
                                        {"mlp.fc2", "ffn_down"},
                                        {"norm2", "layer_output_norm"},
                                        {"post_attention_layernorm", "attn_output_norm"},
                                        {"post_mlp_layernorm", "layer_output_norm"},
                                        {0}};

static const size_keys gpt2_keys = {
    "n_positions",       "n_embd", "n_layer", "n_head", "n_inner", "activation_function",
    "layer_norm_epsilon"};
static const size_keys distilbert_keys = {
    .n_embd = "dim",
    .n_layer = "n_layers",
    .n_head = "n_heads",
    .n_ff = "hidden_dim",
    .act = "activation",
    .eps = "layer_norm_eps",
};
static const size_keys granite_hybrid_keys = {.n_ff = "shared_intermediate_size"};
static const size_keys layer_norm_keys = {.eps = "layer_norm_eps"};
static const size_keys modern_bert_keys = {.act = "hidden_activation", .eps = "norm_eps"};
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
static const key_default granite_hybrid_defaults[] = {
    {"max_position_embeddings", 2048},  {"rms_norm_eps", 1e-6},
    {"attention_multiplier", 1},        {"num_local_experts", 8},
    {"shared_intermediate_size", 1024}, {0}};
static const key_default smollm3_defaults[] = {
    {"max_position_embeddings", 32768}, {"rms_norm_eps", 1e-6}, {0}};
static const key_default stablelm_defaults[] = {
    {"max_position_embeddings", 4096}, {"layer_norm_eps", 1e-5}, {0}};
static const key_default gpt2_defaults[] = {
    {"n_positions", 1024}, {"layer_norm_epsilon", 1e-5}, {0}};

static const key_default bert_defaults[] = {
    {"max_position_embeddings", 512}, {"layer_norm_eps", 1e-12}, {"pad_token_id", 0}, {0}};
/* all of them: the model's own config.json has other keys, which Transformers does not read */
static const key_default nomic_defaults[] = {
    {"hidden_size", 768},        {"num_hidden_layers", 12},
    {"num_attention_heads", 12}, {"intermediate_size", 3072},
    {"vocab_size", 30528},       {"max_position_embeddings", 2048},
    {"layer_norm_eps", 1e-12},   {0}};
static const key_default modern_bert_defaults[] = {{"max_position_embeddings", 8192},
                                                   {"norm_eps", 1e-5},
                                                   {"local_attention", 128},
                                                   {"global_attn_every_n_layers", 3},
                                                   {0}};
static const key_default roberta_defaults[] = {
    {"max_position_embeddings", 512}, {"layer_norm_eps", 1e-12}, {"pad_token_id", 1}, {0}};

/* ---- families -------------------------------------------------------------------------------- */

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
     .extra = put_experts},
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
     .extra = qwen3_moe},
    {.model_type = "phi",
     .class_name = "PhiForCausalLM",
     .arch = "phi2",
     .defaults = phi_defaults,
     .act = "gelu_new",
     .rotary = 0.5,
     .own = phi_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .extra = phi},
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
     .extra = gemma},
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
     .extra = gemma2},
    {.model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .arch = "gemma3",
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
     .extra = gemma3},
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
     .extra = gemma4},
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
     .extra = gpt_oss},
    {.model_type = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .arch = "olmo2",
     .defaults = olmo2_defaults,
     .own = olmo2_names},
    {.model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .arch = "granite",
     .defaults = granite_defaults,
     .extra = granite},
    {.model_type = "granitemoehybrid",
     .class_name = "GraniteMoeHybridForCausalLM",
     .arch = "granite",
     .defaults = granite_hybrid_defaults,
     .own = granite_hybrid_names,
     .keys = &granite_hybrid_keys,
     .fused = FUSED_SHARED,
     .extra = granite_hybrid},
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
     .extra = stablelm},
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
     .extra = gpt2},
    {.model_type = "bert",
     .class_name = "BertModel",
     .arch = "bert",
     .defaults = bert_defaults,
     .act = "gelu",
     .own = bert_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .extra = encoder},
    {.model_type = "distilbert",
     .class_name = "DistilBertModel",
     .arch = "bert",
     .defaults = bert_defaults,
     .act = "gelu",
     .own = distilbert_names,
     .keys = &distilbert_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .extra = encoder},
    {.model_type = "roberta",
     .class_name = "RobertaModel",
     .arch = "bert",
     .defaults = roberta_defaults,
     .act = "gelu",
     .own = bert_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .from_pad = true,
     .extra = encoder},
    {.model_type = "xlm-roberta",
     .class_name = "XLMRobertaModel",
     .arch = "bert",
     .defaults = roberta_defaults,
     .act = "gelu",
     .own = bert_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .from_pad = true,
     .extra = encoder},
    {.model_type = "nomic_bert",
     .class_name = "NomicBertModel",
     .arch = "nomic-bert",
     .defaults = nomic_defaults,
     .rope_theta = 1000,
     .own = nomic_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .extra = encoder},
    {.model_type = "modernbert",
     .class_name = "ModernBertModel",
     .arch = "modern-bert",
     .window = WINDOW_SOME,
     .defaults = modern_bert_defaults,
     .act = "gelu",
     .rope_theta = 160000,
     .own = modern_bert_names,
     .keys = &modern_bert_keys,
     .layer_norm = true,
     .local_base = true,
     .tied = true,
     .encoder = true,
     .prepare = modern_bert,
     .extra = encoder},
};

/* model_type of config.json to its row of the table; NULL: no such family. */
const struct model_family *family_by_type(const char *model_type) {
    for (size_t i = 0; i < MN_COUNT(families); i++)
        if (!strcmp(families[i].model_type, model_type))
            return &families[i];
    return NULL;
}

mn_str family_list(mn_parsed *p) {
    mn_str list = {"", 0};
    for (size_t i = 0; i < MN_COUNT(families) && list.ptr; i++) {
        const struct model_family *f = &families[i];
        list =
            mn_parsed_printf(p, "%.*s%s%s", (int)list.len, list.ptr, i ? ", " : "", f->model_type);
    }
    return list;
}
