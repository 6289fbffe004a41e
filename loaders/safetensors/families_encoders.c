/* families_encoders.c -- the rows of families.h that read a whole text at once: encoders, and T5,
 * whose encoder reads for a decoder. Names of tensors, defaults of Transformers' classes;
 * family_keys.c has their keys. */
#include "family_keys.h"

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

static const size_keys layer_norm_keys = {.eps = "layer_norm_eps"};
static const size_keys distilbert_keys = {
    .n_embd = "dim",
    .n_layer = "n_layers",
    .n_head = "n_heads",
    .n_ff = "hidden_dim",
    .act = "activation",
    .eps = "layer_norm_eps",
};
static const size_keys t5_keys = {
    .n_ctx = "n_positions",
    .n_embd = "d_model",
    .n_layer = "num_layers",
    .n_head = "num_heads",
    .n_ff = "d_ff",
    .eps = "layer_norm_epsilon",
};
static const size_keys modern_bert_keys = {.act = "hidden_activation", .eps = "norm_eps"};

#define T5_DEFAULTS                                                                                \
    {"n_positions", 512}, {"d_kv", 64}, {"relative_attention_num_buckets", 32},                    \
        {"relative_attention_max_distance", 128}, {"decoder_start_token_id", 0},                   \
        {"layer_norm_epsilon", 1e-6}, {                                                            \
        0                                                                                          \
    }
static const key_default t5_defaults[] = {
    {"d_model", 512}, {"d_ff", 2048}, {"num_layers", 6}, {"num_heads", 8}, T5_DEFAULTS};
static const key_default mt5_defaults[] = {
    {"d_model", 512}, {"d_ff", 1024}, {"num_layers", 8}, {"num_heads", 6}, T5_DEFAULTS};

static const key_default bert_defaults[] = {
    {"max_position_embeddings", 512}, {"layer_norm_eps", 1e-12}, {"pad_token_id", 0}, {0}};
static const key_default electra_defaults[] = {
    {"hidden_size", 256},        {"num_hidden_layers", 12}, {"num_attention_heads", 4},
    {"intermediate_size", 1024}, {"embedding_size", 128},   {"max_position_embeddings", 512},
    {"layer_norm_eps", 1e-12},   {"pad_token_id", 0},       {0}};
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

const struct model_family encoder_families[] = {
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
     .extra = family_encoder},
    {.model_type = "distilbert",
     .class_name = "DistilBertModel",
     .arch = "bert",
     .head_act = "relu",
     .defaults = bert_defaults,
     .act = "gelu",
     .own = distilbert_names,
     .keys = &distilbert_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .extra = family_encoder},
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
     .extra = family_encoder},
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
     .extra = family_encoder},
    {.model_type = "electra",
     .class_name = "ElectraModel",
     .arch = "bert",
     .head_act = "gelu",
     .defaults = electra_defaults,
     .act = "gelu",
     .own = bert_names,
     .keys = &layer_norm_keys,
     .layer_norm = true,
     .tied = true,
     .encoder = true,
     .extra = family_electra},
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
     .extra = family_encoder},
    {.model_type = "modernbert",
     .class_name = "ModernBertModel",
     .arch = "modern-bert",
     .head_act = "gelu",
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
     .prepare = family_modern_bert,
     .extra = family_encoder},
    {.model_type = "t5",
     .class_name = "T5ForConditionalGeneration",
     .arch = "t5",
     .defaults = t5_defaults,
     .act = "relu",
     .keys = &t5_keys,
     .tied = true,
     .prepare = family_t5_keys,
     .extra = family_t5},
    {.model_type = "mt5",
     .class_name = "MT5ForConditionalGeneration",
     .arch = "t5",
     .defaults = mt5_defaults,
     .act = "gated-gelu",
     .keys = &t5_keys,
     .tied = true,
     .prepare = family_t5_keys,
     .extra = family_t5},
    {0},
};
