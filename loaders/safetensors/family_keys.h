/* family_keys.h -- the functions of rows in families.c: each reads the keys of config.json that its
 * families alone have, puts the canonical ones, and refuses what no graph builder knows. The first
 * error stays in c->status. */
#ifndef MN_SAFETENSORS_FAMILY_KEYS_H
#define MN_SAFETENSORS_FAMILY_KEYS_H
#include "families.h"

/* The number `native` under the canonical key; absent or null: nothing is put. */
void family_put_if(config_reader *c, const char *key, const char *native, double lo, double hi);
/* A number or true or false under another key of the tree, unless that is there. */
void family_copy_key(config_reader *c, const char *from, const char *to);
/* How many experts there are, how many a token uses, and the width of each. */
void family_put_experts(config_reader *c, const char *count, const char *width);
void family_expect_one(config_reader *c, const char *key); /* 1, or absent */
/* Experts with shared ones, dense layers first; gating: how a router's logits become scores, by
 * GGUF's numbers. normalised: what norm_topk_prob is where config.json does not say. */
enum { FAMILY_SOFTMAX = 1, FAMILY_SIGMOID = 2 };
void family_routed(config_reader *c, int gating, bool normalised);

void family_gemma(config_reader *c);
void family_gemma2(config_reader *c);
void family_gemma3(config_reader *c);
void family_gemma4(config_reader *c);
void family_gemma3n(config_reader *c);
void family_granite(config_reader *c);
void family_experts(config_reader *c);
void family_qwen3_moe(config_reader *c);
void family_gpt_oss(config_reader *c);
void family_phi(config_reader *c);
void family_stablelm(config_reader *c);
void family_gpt2(config_reader *c);
void family_encoder(config_reader *c);
void family_electra(config_reader *c);
void family_mpnet(config_reader *c);
void family_deberta_keys(config_reader *c);
void family_deberta(config_reader *c);
void family_classifier(config_reader *c); /* of any family, where its class classifies texts */
void family_modern_bert(config_reader *c);
void family_qwen2_moe(config_reader *c);
void family_sections(config_reader *c);
/* usual: the three sections where mrope_section is left out; NULL: then nothing is put. */
void family_put_sections(config_reader *c, const int64_t *usual);
void family_qwen3_vl_moe(config_reader *c);
void family_olmoe(config_reader *c);
void family_routed_keys(config_reader *c);
void family_glm4_moe(config_reader *c);
void family_dots1(config_reader *c);
void family_minimax_keys(config_reader *c);
void family_minimax(config_reader *c);
void family_ernie_moe_keys(config_reader *c);
void family_ernie_moe(config_reader *c);
void family_hunyuan_moe_keys(config_reader *c);
void family_hunyuan_moe(config_reader *c);
void family_cohere(config_reader *c);
void family_granite_moe(config_reader *c);
void family_llama4_keys(config_reader *c);
void family_llama4(config_reader *c);
void family_ministral3(config_reader *c);
void family_apertus(config_reader *c);
void family_phimoe_keys(config_reader *c);
void family_phimoe(config_reader *c);
void family_neox_keys(config_reader *c);
void family_neox(config_reader *c);
void family_falcon_keys(config_reader *c);
void family_olmo(config_reader *c);
void family_bloom_keys(config_reader *c);
void family_bloom(config_reader *c);
void family_mpt(config_reader *c);
void family_t5_keys(config_reader *c);
void family_t5(config_reader *c);
#endif
