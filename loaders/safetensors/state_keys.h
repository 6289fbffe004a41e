/* state_keys.h -- as family_keys.h, of the families whose layers remember a state
 * (docs/lab/state-families.md has their keys). */
#ifndef MN_SAFETENSORS_STATE_KEYS_H
#define MN_SAFETENSORS_STATE_KEYS_H
#include "family_keys.h"

/* Names of granitemoehybrid with experts, whose MLP is what all tokens share. */
extern const name_pair granite_expert_names[];

void family_mamba2(config_reader *c);
void family_nemotron_keys(config_reader *c);
void family_nemotron(config_reader *c);
void family_granite_hybrid_keys(config_reader *c);
void family_granite_hybrid(config_reader *c);
void family_bamba_keys(config_reader *c);
void family_bamba(config_reader *c);
void family_falcon_h1(config_reader *c);
void family_delta_keys(config_reader *c);
void family_qwen3_next(config_reader *c);
void family_qwen3_5(config_reader *c);
void family_qwen3_5_moe(config_reader *c);
void family_olmo_hybrid_keys(config_reader *c);
void family_olmo_hybrid(config_reader *c);
/* Of Kimi delta attention: which layers have it; its sizes. */
void family_kda_keys(config_reader *c);
void family_put_kda(config_reader *c);
/* One head of keys in layers that attend, none in the others. */
void state_put_one_head(config_reader *c);
void family_lfm2_keys(config_reader *c);
void family_lfm2(config_reader *c);
void family_lfm2_moe_keys(config_reader *c);
void family_lfm2_moe(config_reader *c);
#endif
