#!/usr/bin/env python3
"""Makes the tiny models of tests/data/fixtures with Transformers, on the CPU: python3 -P make_fixtures.py OUT [NAME...] (-P: safetensors.py of this folder is another)

Each is a folder with config.json, model.safetensors and golden.safetensors: prompt [48], logits [48, V] in f32 and 24 greedy ids, as
Transformers computes them from the weights, which are stored in bf16; in f32, models with recurrent state or shared caches (WIDE) in f64.
A development tool: the tests only read what it made. Needs torch, transformers, safetensors."""
import contextlib
import os
import shutil
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

COMMON = dict(vocab_size=160, bos_token_id=1, eos_token_id=2, pad_token_id=None)
SMALL = dict(COMMON, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=512)
TINY = dict(SMALL, hidden_size=32, intermediate_size=48, num_hidden_layers=1)
STATE = dict(SMALL, hidden_size=48, intermediate_size=64)
LATENT = dict(SMALL, num_key_value_heads=4)
STATE_H = {k: v for k, v in STATE.items() if k != "num_hidden_layers"}  # which layers_block_type says
MODELS = {
    "gemma": (tf.GemmaConfig, dict(SMALL, head_dim=24, num_key_value_heads=1)),
    "gemma2": (tf.Gemma2Config, dict(SMALL, num_hidden_layers=3, head_dim=16, sliding_window=12, query_pre_attn_scalar=20,
                                     attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
    "gemma3": (tf.Gemma3TextConfig, dict(SMALL, num_hidden_layers=7, head_dim=16, sliding_window=12, query_pre_attn_scalar=24,
                                         rope_parameters={"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                                                          "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})),
    "olmo2": (tf.Olmo2Config, dict(SMALL)),
    "granite": (tf.GraniteConfig, dict(SMALL, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
                                       logits_scaling=2.5, tie_word_embeddings=True)),
    "smollm3": (tf.SmolLM3Config, dict(SMALL, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1], tie_word_embeddings=True)),
    "stablelm": (tf.StableLmConfig, dict(SMALL, partial_rotary_factor=0.25, use_qkv_bias=True)),
    "stablelm-parallel": (tf.StableLmConfig, dict(SMALL, partial_rotary_factor=0.5, qk_layernorm=True, use_parallel_residual=True)),
    "gpt2": (tf.GPT2Config, dict(COMMON, n_embd=64, n_layer=2, n_head=4, n_positions=96)),
    "qwen3-moe": (tf.Qwen3MoeConfig, dict(SMALL, head_dim=24, moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2,
                                          norm_topk_prob=True)),
    "qwen3-moe-raw": (tf.Qwen3MoeConfig, dict(SMALL, head_dim=16, moe_intermediate_size=32, num_experts=5, num_experts_per_tok=3,
                                              norm_topk_prob=False, mlp_only_layers=[1], num_hidden_layers=3)),
    "qwen2-window": (tf.Qwen2Config, dict(SMALL, num_hidden_layers=3, use_sliding_window=True, sliding_window=10, max_window_layers=1)),
    "llama-wide": (tf.LlamaConfig, dict(SMALL, hidden_size=96, intermediate_size=160, num_attention_heads=6, num_key_value_heads=3,
                                        head_dim=20, attention_bias=True, mlp_bias=True)),
    "mistral-plain": (tf.MistralConfig, dict(SMALL, num_key_value_heads=1, sliding_window=None)),
    "mixtral-top3": (tf.MixtralConfig, dict(SMALL, num_local_experts=5, num_experts_per_tok=3, sliding_window=14)),
    "phi2-wide": (tf.PhiConfig, dict(SMALL, num_key_value_heads=2, partial_rotary_factor=0.25)),
    "phi3-long": (tf.Phi3Config, dict(SMALL, original_max_position_embeddings=40, sliding_window=None,
                                      rope_scaling=dict(type="longrope", short_factor=[1.0 + 0.1 * i for i in range(8)],
                                                        long_factor=[1.2 + 0.4 * i for i in range(8)]))),
    "gpt-oss-odd": (tf.GptOssConfig, dict(SMALL, num_hidden_layers=3, head_dim=24, num_local_experts=5, num_experts_per_tok=2,
                                          sliding_window=9, intermediate_size=96)),
    "olmo2-bias": (tf.Olmo2Config, dict(TINY, attention_bias=True)),
    "granite-hybrid": (tf.GraniteMoeHybridConfig, dict(TINY, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.5,
                                                       num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=40, position_embedding_type="rope",
                                                       layer_types=["full_attention"], mamba_n_heads=8, tie_word_embeddings=True)),
    "llama-yarn": (tf.LlamaConfig, dict(TINY, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16,
                                                                  beta_fast=8.0, mscale=0.5, mscale_all_dim=0.8))),
    "llama-layers": (tf.LlamaConfig, dict(SMALL, num_hidden_layers=5, head_dim=16, intermediate_size=96,
                                          per_layer_config={0: dict(num_attention_heads=2), 1: dict(num_key_value_heads=1, intermediate_size=40),
                                                            2: dict(num_attention_heads=6, num_key_value_heads=3), 4: dict(intermediate_size=152)})),
    "gemma4": (tf.Gemma4TextConfig, dict(SMALL, num_hidden_layers=5, head_dim=16, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True,
                                         sliding_window=12, hidden_size_per_layer_input=0, final_logit_softcapping=3.0,
                                         layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"])),
    "seed-oss": (tf.SeedOssConfig, dict(SMALL, head_dim=24)),
    "seed-oss-plain": (tf.SeedOssConfig, dict(TINY, head_dim=8, attention_bias=False, mlp_bias=True)),
    "glm4": (tf.Glm4Config, dict(SMALL, head_dim=16)),
    "glm": (tf.GlmConfig, dict(TINY, head_dim=16, attention_bias=True, partial_rotary_factor=0.25)),
    "glm4-moe": (tf.Glm4MoeConfig, dict(SMALL, head_dim=16, num_hidden_layers=3, moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2,
                                        n_shared_experts=2, routed_scaling_factor=1.7, use_qk_norm=True, attention_bias=True)),
    "glm4-moe-plain": (tf.Glm4MoeConfig, dict(TINY, num_hidden_layers=2, head_dim=8, moe_intermediate_size=32, n_routed_experts=5, num_experts_per_tok=3, norm_topk_prob=False)),
    "minimax-m2": (tf.MiniMaxM2Config, dict(SMALL, head_dim=24, rotary_dim=12, intermediate_size=48, num_local_experts=6, num_experts_per_tok=2)),
    "olmo3": (tf.Olmo3Config, dict(SMALL, num_hidden_layers=5, sliding_window=12,
                                   rope_parameters=dict(full_attention=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16),
                                                        sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "olmoe": (tf.OlmoeConfig, dict(SMALL, intermediate_size=32, num_experts=6, num_experts_per_tok=2)),
    "olmoe-normed": (tf.OlmoeConfig, dict(TINY, intermediate_size=32, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True)),
    "qwen2-moe": (tf.Qwen2MoeConfig, dict(SMALL, moe_intermediate_size=32, shared_expert_intermediate_size=40, num_experts=6, num_experts_per_tok=2)),
    "qwen2-moe-sparse": (tf.Qwen2MoeConfig, dict(TINY, num_hidden_layers=4, moe_intermediate_size=32, shared_expert_intermediate_size=64, num_experts=5, num_experts_per_tok=3,
                                                 norm_topk_prob=True, decoder_sparse_step=2, qkv_bias=False)),
    "ernie4.5": (tf.Ernie4_5Config, dict(SMALL, head_dim=24)),
    "ernie4.5-bias": (tf.Ernie4_5Config, dict(TINY, head_dim=8, use_bias=True, tie_word_embeddings=False)),
    "ernie4.5-moe": (tf.Ernie4_5_MoeConfig, dict(SMALL, num_hidden_layers=3, moe_intermediate_size=32, moe_num_experts=6, moe_k=2)),
    "ernie4.5-moe-plain": (tf.Ernie4_5_MoeConfig, dict(TINY, num_hidden_layers=4, moe_intermediate_size=32, moe_num_experts=5, moe_k=3, moe_num_shared_experts=0,
                                                       moe_layer_start_index=0, moe_layer_interval=2, tie_word_embeddings=False)),
    "hunyuan": (tf.HunYuanDenseV1Config, dict(SMALL, head_dim=24, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=1000.0))),
    "hunyuan-plain": (tf.HunYuanDenseV1Config, dict(TINY, head_dim=8, attention_bias=True, tie_word_embeddings=True)),
    "hunyuan-moe": (tf.HunYuanMoEV1Config, dict(SMALL, head_dim=16, intermediate_size=48, num_experts=6, moe_topk=2)),
    "granite-moe": (tf.GraniteMoeConfig, dict(SMALL, intermediate_size=48, num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=3.0, residual_multiplier=0.4,
                                              attention_multiplier=0.2, logits_scaling=2.5)),
    "granite-moe-shared": (tf.GraniteMoeSharedConfig, dict(TINY, intermediate_size=32, num_local_experts=5, num_experts_per_tok=3, shared_intermediate_size=40,
                                                           attention_multiplier=0.3, tie_word_embeddings=True)),
    "exaone4": (tf.Exaone4Config, dict(SMALL, num_hidden_layers=5, head_dim=16, sliding_window=12, sliding_window_pattern=4)),
    "exaone4-full": (tf.Exaone4Config, dict(TINY, num_hidden_layers=2, head_dim=8, sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 2,
                                            tie_word_embeddings=True)),
    "dots1": (tf.Dots1Config, dict(SMALL, num_hidden_layers=3, head_dim=16, moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
                                   first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5)),
    "cohere": (tf.CohereConfig, dict(SMALL, logit_scale=0.4, use_qk_norm=True)),
    "cohere-plain": (tf.CohereConfig, dict(TINY, attention_bias=True)),
    "cohere2": (tf.Cohere2Config, dict(SMALL, num_hidden_layers=5, sliding_window=12, logit_scale=0.5)),
    "starcoder2": (tf.Starcoder2Config, dict(SMALL, sliding_window=12)),
    "starcoder2-plain": (tf.Starcoder2Config, dict(TINY, use_bias=False, tie_word_embeddings=False)),
    "gpt-neox": (tf.GPTNeoXConfig, dict(SMALL, num_key_value_heads=None, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "gpt-neox-serial": (tf.GPTNeoXConfig, dict(TINY, num_key_value_heads=None, use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True)),
    "falcon": (tf.FalconConfig, dict(COMMON, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, bias=True)),
    "falcon-grouped": (tf.FalconConfig, dict(COMMON, hidden_size=64, num_hidden_layers=2, num_attention_heads=8, num_kv_heads=2, new_decoder_architecture=True,
                                             ffn_hidden_size=96, tie_word_embeddings=False)),
    "falcon-one-norm": (tf.FalconConfig, dict(COMMON, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True,
                                              num_ln_in_parallel_attn=1)),
    "helium": (tf.HeliumConfig, dict(TINY, head_dim=8, num_key_value_heads=4)),
    "olmo": (tf.OlmoConfig, dict(TINY, num_hidden_layers=2)),
    "ministral": (tf.MinistralConfig, dict(SMALL, num_hidden_layers=4, head_dim=20, sliding_window=12,
                                           layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"])),
    "gemma4-moe": (tf.Gemma4TextConfig, dict(SMALL, num_hidden_layers=3, head_dim=16, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True,
                                             sliding_window=12, hidden_size_per_layer_input=0, final_logit_softcapping=3.0, enable_moe_block=True, num_experts=6,
                                             top_k_experts=2, moe_intermediate_size=32, layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "gemma4-moe-plain": (tf.Gemma4TextConfig, dict(TINY, num_hidden_layers=2, head_dim=8, global_head_dim=8, sliding_window=9, hidden_size_per_layer_input=0,
                                                   enable_moe_block=True, num_experts=5, top_k_experts=3, moe_intermediate_size=24,
                                                   layer_types=["sliding_attention", "full_attention"])),
    "gemma4-plain": (tf.Gemma4TextConfig, dict(TINY, num_hidden_layers=2, head_dim=8, global_head_dim=16, sliding_window=9, hidden_size_per_layer_input=0,
                                               layer_types=["sliding_attention", "full_attention"])),
    "gemma-plain": (tf.GemmaConfig, dict(TINY, head_dim=8)),
    "gemma2-plain": (tf.Gemma2Config, dict(TINY, num_hidden_layers=2, head_dim=8, sliding_window=9, query_pre_attn_scalar=8, attn_logit_softcapping=None,
                                           final_logit_softcapping=None)),
    "gemma3-plain": (tf.Gemma3TextConfig, dict(TINY, num_hidden_layers=2, head_dim=8, sliding_window=9, query_pre_attn_scalar=8,
                                               layer_types=["full_attention", "sliding_attention"])),
    "glm4-plain": (tf.Glm4Config, dict(TINY, head_dim=8, attention_bias=True, partial_rotary_factor=1.0)),
    "glm-plain": (tf.GlmConfig, dict(TINY, num_hidden_layers=2, head_dim=8, tie_word_embeddings=True)),
    "dots1-plain": (tf.Dots1Config, dict(TINY, num_hidden_layers=2, head_dim=8, moe_intermediate_size=24, n_routed_experts=5, num_experts_per_tok=3, n_shared_experts=1,
                                         first_k_dense_replace=0, norm_topk_prob=False, sliding_window=9, max_window_layers=1,
                                         layer_types=["full_attention", "sliding_attention"])),
    "minimax-m2-plain": (tf.MiniMaxM2Config, dict(TINY, head_dim=8, rotary_dim=8, intermediate_size=24, num_local_experts=5, num_experts_per_tok=3, tie_word_embeddings=True)),
    "hunyuan-moe-plain": (tf.HunYuanMoEV1Config, dict(TINY, head_dim=8, intermediate_size=24, num_experts=5, moe_topk=3, tie_word_embeddings=True, attention_bias=True)),
    "smollm3-plain": (tf.SmolLM3Config, dict(TINY, num_hidden_layers=2, no_rope_layers=[1, 1], use_sliding_window=True, sliding_window=9,
                                             layer_types=["sliding_attention", "full_attention"])),
    "olmo-plain": (tf.OlmoConfig, dict(TINY, tie_word_embeddings=True, num_key_value_heads=4)),
    "olmo3-plain": (tf.Olmo3Config, dict(TINY, num_hidden_layers=2, sliding_window=9, layer_types=["full_attention", "sliding_attention"])),
    "cohere2-plain": (tf.Cohere2Config, dict(TINY, num_hidden_layers=2, sliding_window=9, layer_types=["full_attention", "sliding_attention"])),
    "gpt2-plain": (tf.GPT2Config, dict(COMMON, n_embd=32, n_layer=1, n_head=4, n_positions=80, n_inner=48, tie_word_embeddings=False)),
    "helium-plain": (tf.HeliumConfig, dict(TINY, num_hidden_layers=2, head_dim=8, tie_word_embeddings=True)),
    "ministral-plain": (tf.MinistralConfig, dict(TINY, num_hidden_layers=2, head_dim=8, sliding_window=9, layer_types=["full_attention", "sliding_attention"],
                                                 tie_word_embeddings=True)),
    # recurrent state: several chunks of Transformers' algorithms in a prompt of 300 tokens, and a last one that is not full
    "qwen3-next": (tf.Qwen3NextConfig, dict(STATE, num_hidden_layers=4, head_dim=24, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
                                            linear_num_value_heads=6, moe_intermediate_size=24, shared_expert_intermediate_size=20, num_experts=6,
                                            num_experts_per_tok=2, partial_rotary_factor=0.5)),
    "qwen3-next-plain": (tf.Qwen3NextConfig, dict(STATE, hidden_size=32, num_hidden_layers=3, head_dim=8, linear_key_head_dim=8, linear_value_head_dim=12,
                                                  linear_num_key_heads=3, linear_num_value_heads=3, linear_conv_kernel_dim=3, moe_intermediate_size=16,
                                                  shared_expert_intermediate_size=24, num_experts=5, num_experts_per_tok=3, norm_topk_prob=False,
                                                  mlp_only_layers=[1], partial_rotary_factor=1.0, attention_bias=True,
                                                  layer_types=["full_attention", "linear_attention", "linear_attention"])),
    "qwen3.5": (tf.Qwen3_5TextConfig, dict(STATE, num_hidden_layers=4, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
                                           linear_num_value_heads=4, partial_rotary_factor=0.25)),
    "qwen3.5-plain": (tf.Qwen3_5TextConfig, dict(STATE, hidden_size=32, num_hidden_layers=2, head_dim=16, linear_key_head_dim=12, linear_value_head_dim=8,
                                                 linear_num_key_heads=3, linear_num_value_heads=3, linear_conv_kernel_dim=2, tie_word_embeddings=True,
                                                 layer_types=["linear_attention", "full_attention"])),
    "qwen3.5-moe": (tf.Qwen3_5MoeTextConfig, dict(STATE, hidden_size=32, num_hidden_layers=3, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=8,
                                                  linear_num_key_heads=2, linear_num_value_heads=6, moe_intermediate_size=16,
                                                  shared_expert_intermediate_size=24, num_experts=6, num_experts_per_tok=2,
                                                  layer_types=["linear_attention", "linear_attention", "full_attention"])),
    "qwen3.5-moe-plain": (tf.Qwen3_5MoeTextConfig, dict(STATE, hidden_size=32, num_hidden_layers=2, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=16,
                                                        linear_num_key_heads=4, linear_num_value_heads=4, moe_intermediate_size=24,
                                                        shared_expert_intermediate_size=16, num_experts=5, num_experts_per_tok=3, tie_word_embeddings=True,
                                                        layer_types=["full_attention", "linear_attention"])),
    "granite4-h": (tf.GraniteMoeHybridConfig, dict(STATE, num_hidden_layers=4, intermediate_size=24, num_local_experts=6, num_experts_per_tok=2,
                                                   shared_intermediate_size=40, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
                                                   logits_scaling=2.5, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=16, mamba_chunk_size=64,
                                                   tie_word_embeddings=True, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"])),
    "granite4-h-dense": (tf.GraniteMoeHybridConfig, dict(STATE, hidden_size=32, num_hidden_layers=3, num_local_experts=0, num_experts_per_tok=0,
                                                         shared_intermediate_size=40, attention_multiplier=0.3, residual_multiplier=0.7, mamba_n_heads=8,
                                                         mamba_d_head=8, mamba_n_groups=2, mamba_d_state=12, mamba_d_conv=3, mamba_chunk_size=32,
                                                         mamba_conv_bias=False, mamba_proj_bias=True, position_embedding_type="rope",
                                                         layer_types=["linear_attention", "full_attention", "linear_attention"])),
    "mamba2": (tf.Mamba2Config, dict(COMMON, hidden_size=48, num_hidden_layers=3, num_heads=6, head_dim=16, state_size=16, n_groups=2, chunk_size=64)),
    "mamba2-plain": (tf.Mamba2Config, dict(COMMON, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=24, n_groups=1, chunk_size=32,
                                           conv_kernel=3, use_bias=True, use_conv_bias=False, tie_word_embeddings=True, layer_norm_epsilon=1e-6)),
    "falcon-h1": (tf.FalconH1Config, dict(STATE, num_hidden_layers=2, head_dim=16, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
                                          mamba_d_state=16, mamba_chunk_size=64, lm_head_multiplier=0.6, embedding_multiplier=2.5, mlp_multipliers=[0.7, 0.4],
                                          key_multiplier=0.5, attention_out_multiplier=0.8, attention_in_multiplier=1.3, ssm_in_multiplier=1.2,
                                          ssm_out_multiplier=0.7, ssm_multipliers=[0.8, 1.2, 0.6, 0.9, 1.1])),
    "falcon-h1-norm": (tf.FalconH1Config, dict(STATE, hidden_size=32, num_hidden_layers=2, head_dim=8, mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2,
                                               mamba_d_state=12, mamba_chunk_size=32, mamba_rms_norm=True, mamba_norm_before_gate=False, tie_word_embeddings=True,
                                               attention_bias=True, mlp_bias=True, mamba_proj_bias=True)),
    "bamba": (tf.BambaConfig, dict(STATE, num_hidden_layers=4, attn_layer_indices=[2], mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16,
                                   mamba_chunk_size=64)),
    "bamba-plain": (tf.BambaConfig, dict(STATE, hidden_size=32, num_hidden_layers=3, attn_layer_indices=[0], mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
                                         mamba_d_state=20, mamba_chunk_size=32, mamba_d_conv=2, mamba_conv_bias=False, mamba_proj_bias=True, attention_bias=True,
                                         mlp_bias=True, tie_word_embeddings=True)),
    "nemotron-h": (tf.NemotronHConfig, dict(STATE_H, head_dim=16, intermediate_size=80, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
                                            mamba_num_heads=5, mamba_head_dim=16, n_groups=1, ssm_state_size=16, chunk_size=64)),
    "nemotron-h-plain": (tf.NemotronHConfig, dict(STATE_H, hidden_size=32, head_dim=8, intermediate_size=48, layers_block_type=["mlp", "linear_attention", "full_attention"],
                                                  mamba_num_heads=6, mamba_head_dim=8, n_groups=2, ssm_state_size=12, chunk_size=32, conv_kernel=3,
                                                  use_conv_bias=False, use_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "nemotron-h-moe": (tf.NemotronHConfig, dict(STATE_H, hidden_size=32, head_dim=16, layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
                                                mamba_num_heads=4, mamba_head_dim=16, n_groups=2, ssm_state_size=16, chunk_size=64, n_routed_experts=6,
                                                num_experts_per_tok=2, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40,
                                                routed_scaling_factor=1.7)),
    "nemotron-h-latent": (tf.NemotronHConfig, dict(STATE_H, hidden_size=32, head_dim=16, layers_block_type=["linear_attention", "moe", "full_attention"],
                                                   mamba_num_heads=4, mamba_head_dim=8, n_groups=1, ssm_state_size=16, chunk_size=64, n_routed_experts=5,
                                                   num_experts_per_tok=3, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24, moe_latent_size=20,
                                                   norm_topk_prob=False)),
    "lfm2": (tf.Lfm2Config, dict(STATE, num_hidden_layers=4, intermediate_size=96, block_multiple_of=16, layer_types=["conv", "conv", "full_attention", "conv"])),
    "lfm2-plain": (tf.Lfm2Config, dict(STATE, hidden_size=32, num_hidden_layers=3, intermediate_size=48, block_auto_adjust_ff_dim=False, conv_bias=True, conv_L_cache=4,
                                       tie_word_embeddings=False, layer_types=["full_attention", "conv", "conv"])),
    "lfm2-moe": (tf.Lfm2MoeConfig, dict(STATE, hidden_size=32, num_hidden_layers=4, intermediate_size=40, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2,
                                        num_dense_layers=1, routed_scaling_factor=1.5, layer_types=["conv", "full_attention", "conv", "conv"])),
    "lfm2-moe-plain": (tf.Lfm2MoeConfig, dict(STATE, hidden_size=32, num_hidden_layers=2, intermediate_size=40, moe_intermediate_size=16, num_experts=5,
                                              num_experts_per_tok=3, num_dense_layers=0, use_expert_bias=False, norm_topk_prob=False, conv_L_cache=2,
                                              layer_types=["conv", "full_attention"])),
    "olmo-hybrid": (tf.OlmoHybridConfig, dict(STATE, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
                                              linear_value_head_dim=16)),
    "olmo-hybrid-plain": (tf.OlmoHybridConfig, dict(STATE, hidden_size=32, num_hidden_layers=3, num_key_value_heads=4, linear_num_key_heads=3, linear_num_value_heads=3,
                                                    linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=3, linear_allow_neg_eigval=False,
                                                    rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=True,
                                                    layer_types=["full_attention", "linear_attention", "linear_attention"])),
    # caches that several layers share, embeddings per layer
    "gemma3n": (tf.Gemma3nTextConfig, dict(STATE, num_hidden_layers=6, intermediate_size=64, head_dim=16, sliding_window=12, num_kv_shared_layers=2, laurel_rank=8,
                                           hidden_size_per_layer_input=8, vocab_size_per_layer_input=160, final_logit_softcapping=3.0,
                                           activation_sparsity_pattern=[0.9, 0.5, 0.0, 0.0, 0.0, 0.0],
                                           layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "gemma3n-plain": (tf.Gemma3nTextConfig, dict(STATE, hidden_size=32, num_hidden_layers=4, intermediate_size=[40, 48, 32, 40], head_dim=8, sliding_window=9,
                                                 num_kv_shared_layers=1, laurel_rank=4, hidden_size_per_layer_input=4, vocab_size_per_layer_input=144,
                                                 altup_correct_scale=False, altup_active_idx=1, altup_num_inputs=3,
                                                 layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "gemma4-e": (tf.Gemma4TextConfig, dict(STATE, num_hidden_layers=6, head_dim=16, global_head_dim=32, sliding_window=12, hidden_size_per_layer_input=8,
                                           vocab_size_per_layer_input=160, num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=3.0,
                                           layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "gemma4-e-plain": (tf.Gemma4TextConfig, dict(STATE, hidden_size=32, num_hidden_layers=3, head_dim=8, global_head_dim=16, num_key_value_heads=1, sliding_window=9,
                                                 hidden_size_per_layer_input=4, vocab_size_per_layer_input=160, num_kv_shared_layers=1,
                                                 layer_types=["full_attention", "sliding_attention", "full_attention"])),
    # latent attention
    "deepseek-v2": (tf.DeepseekV2Config, dict(LATENT, num_hidden_layers=3, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24,
                                              first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=32,
                                              rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16,
                                                                   mscale=0.707, mscale_all_dim=0.707))),
    "deepseek-v2-groups": (tf.DeepseekV2Config, dict(LATENT, hidden_size=32, num_hidden_layers=2, q_lora_rank=24, kv_lora_rank=40, qk_nope_head_dim=12,
                                                     qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
                                                     moe_intermediate_size=24, n_group=4, topk_group=2, topk_method="group_limited_greedy",
                                                     routed_scaling_factor=1.5, attention_bias=True)),
    "deepseek-v3": (tf.DeepseekV3Config, dict(LATENT, num_hidden_layers=3, q_lora_rank=32, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32,
                                              first_k_dense_replace=1, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_group=4, topk_group=2,
                                              num_mtp_layers=0, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0,
                                                                                     original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek-v3-plain": (tf.DeepseekV3Config, dict(LATENT, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=24,
                                                    qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=12, first_k_dense_replace=0, n_routed_experts=5,
                                                    num_experts_per_tok=2, moe_intermediate_size=16, n_group=1, topk_group=1, norm_topk_prob=False,
                                                    num_mtp_layers=0, attention_bias=True, tie_word_embeddings=True)),
    # slopes in place of positions
    "bloom": (tf.BloomConfig, dict(COMMON, hidden_size=64, n_layer=2, n_head=4)),
    "bloom-six": (tf.BloomConfig, dict(COMMON, hidden_size=48, n_layer=2, n_head=6, tie_word_embeddings=False)),
    "mpt": (tf.MptConfig, dict(COMMON, d_model=64, n_layers=2, n_heads=4, max_seq_len=512)),
    "mpt-six": (tf.MptConfig, dict(COMMON, d_model=48, n_layers=1, n_heads=6, max_seq_len=320, attn_config=dict(softmax_scale=0.3))),
    "glm4-moe-lite": (tf.Glm4MoeLiteConfig, dict(LATENT, num_hidden_layers=3, q_lora_rank=48, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32,
                                                 n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)),
    "glm4-moe-lite-plain": (tf.Glm4MoeLiteConfig, dict(LATENT, hidden_size=32, num_hidden_layers=2, q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=8,
                                                       qk_rope_head_dim=16, v_head_dim=8, n_routed_experts=5, num_experts_per_tok=3, moe_intermediate_size=24,
                                                       norm_topk_prob=False, mlp_layer_types=["sparse", "dense"])),
    # activations and routes of their own
    "nemotron": (tf.NemotronConfig, dict(SMALL, head_dim=24, intermediate_size=112)),
    "nemotron-bias": (tf.NemotronConfig, dict(TINY, num_key_value_heads=4, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                              rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.25))),
    "arcee": (tf.ArceeConfig, dict(SMALL, head_dim=20, mlp_bias=True)),
    "arcee-plain": (tf.ArceeConfig, dict(TINY, num_hidden_layers=2, attention_bias=True, tie_word_embeddings=True)),
    "apertus": (tf.ApertusConfig, dict(SMALL, num_hidden_layers=3, intermediate_size=96, rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
                                                                                       high_freq_factor=4.0, original_max_position_embeddings=64))),
    "apertus-plain": (tf.ApertusConfig, dict(TINY, num_hidden_layers=2, attention_bias=True, tie_word_embeddings=True,
                                             rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "phimoe": (tf.PhimoeConfig, dict(STATE, hidden_size=48, num_hidden_layers=2, intermediate_size=40, num_local_experts=6, attention_bias=True, lm_head_bias=True,
                                     sliding_window=12, router_jitter_noise=0.2)),
    "phimoe-long": (tf.PhimoeConfig, dict(TINY, num_hidden_layers=2, intermediate_size=24, num_local_experts=5, tie_word_embeddings=True,
                                          rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_mscale=1.24, long_mscale=1.24,
                                                               original_max_position_embeddings=40, short_factor=[1.0, 1.2, 1.5, 2.0],
                                                               long_factor=[1.0, 1.2, 1.5, 2.0]))),
    "ministral3": (tf.Ministral3Config, dict(STATE, hidden_size=48, num_hidden_layers=2, head_dim=16,
                                             rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=40, beta_fast=8.0,
                                                                  mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    "ministral3-plain": (tf.Ministral3Config, dict(TINY, head_dim=8, sliding_window=9, tie_word_embeddings=True,
                                                   rope_parameters=dict(rope_type="default", rope_theta=10000.0, original_max_position_embeddings=16,
                                                                        llama_4_scaling_beta=0.5))),
    "llama4": (tf.Llama4TextConfig, dict(STATE, hidden_size=40, intermediate_size=24, intermediate_size_mlp=56, num_hidden_layers=5, head_dim=16, num_local_experts=4,
                                         interleave_moe_layer_step=2, attention_chunk_size=32, floor_scale=16, attn_scale=0.3)),
    "llama4-plain": (tf.Llama4TextConfig, dict(STATE, hidden_size=32, intermediate_size=24, intermediate_size_mlp=40, num_hidden_layers=2, head_dim=8, num_local_experts=4,
                                               num_experts_per_tok=2, attention_chunk_size=9, no_rope_layers=[1, 0], use_qk_norm=False,
                                               attn_temperature_tuning=False, attention_bias=True, tie_word_embeddings=True)),
}
WIDE = set(list(MODELS)[list(MODELS).index("qwen3-next"):])
LONG_PROMPT = {"gemma4": 170}  # several pages of every group
SEEDS = {"granite-moe-shared": 1, "gemma4-moe": 202,  # where the usual seed makes a near tie of experts (moved), or other layers that amplify noise
         "qwen3-next": 219, "qwen3-next-plain": 234, "qwen3.5": 232, "qwen3.5-plain": 217, "qwen3.5-moe": 313, "qwen3.5-moe-plain": 224, "granite4-h": 228,
         "granite4-h-dense": 217, "mamba2": 228, "mamba2-plain": 238, "falcon-h1": 232, "falcon-h1-norm": 213, "bamba": 217, "bamba-plain": 211, "nemotron-h": 206,
         "nemotron-h-plain": 239, "nemotron-h-moe": 220, "nemotron-h-latent": 200, "lfm2": 222, "lfm2-plain": 239, "lfm2-moe": 203, "lfm2-moe-plain": 204,
         "olmo-hybrid": 204, "olmo-hybrid-plain": 227, "gemma3n": 201, "gemma3n-plain": 216, "gemma4-e": 229, "gemma4-e-plain": 236, "deepseek-v2": 206,
         "deepseek-v2-groups": 204, "deepseek-v3": 226, "deepseek-v3-plain": 209, "glm4-moe-lite": 257, "glm4-moe-lite-plain": 209, "bloom": 201, "bloom-six": 201, "mpt": 201,
         "mpt-six": 201, "nemotron": 201, "nemotron-bias": 202, "arcee": 201, "arcee-plain": 202, "apertus": 202, "apertus-plain": 201, "phimoe": 213,
         "phimoe-long": 206, "ministral3": 201, "ministral3-plain": 201, "llama4": 210, "llama4-plain": 200}


@contextlib.contextmanager
def in_double(name):
    """For a model of WIDE: what Transformers computes in f32 whatever its weights are (norms, softmax, scans) is computed in f64 here."""
    kept = torch.float32, torch.Tensor.float
    if name in WIDE:
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32 = torch.float = kept[0]
        torch.Tensor.float = kept[1]


def is_plain_norm(model, name):
    """Whether this is a norm's weight that multiplies as it is; else 1 is added to it."""
    kind = model.config.model_type
    if "norm" not in name or not name.endswith("weight"):
        return False
    if kind.startswith("qwen3_next") or kind.startswith("qwen3_5"):
        return name.endswith("linear_attn.norm.weight")
    if kind == "nemotron":
        return False
    return "gemma" not in kind or "gemma4" in kind or "gemma3n" in kind


def randomise(model, seed):
    """Weights large enough that caps, windows, sinks and offsets matter; heads with state forget within 1 to 300 tokens."""
    gen, kind = torch.Generator().manual_seed(seed), model.config.model_type
    for name, p in model.named_parameters():
        std = 0.5 if p.dim() == 1 else 1.6 / (p.shape[-1] ** 0.5)
        mean = 1.0 if is_plain_norm(model, name) or name.endswith("scale") or name.endswith(".D") else 0.0
        if name.endswith("dt_bias"):
            mean, std = -3.0, 1.5
        size = 0.25 if ("gemma4" in kind or "gemma3n" in kind) and "q_norm" in name else 1.0  # their scale of q k is 1
        size = p.shape[-1] ** 0.5 if "router.proj" in name else size  # its logits are divided by that
        size = p.shape[-1] / 2 if "modality_router" in name else size  # likewise
        size = 0.25 if "_coefs" in name else size  # AltUp's gain from layer to layer
        drawn = torch.randn(p.shape, generator=gen) * (0.2 if mean == 1.0 else std) + mean
        p.data = (size * drawn).bfloat16().float()
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias") or name.endswith("expert_bias"):
            b.copy_((0.3 * torch.randn(b.shape, generator=gen)).bfloat16())
        if name.endswith("layer_scalar"):
            b.copy_((0.5 + torch.rand(b.shape, generator=gen)).bfloat16())
    return model


def build(kind, values):
    """A model of this configuration. LlamaModel makes equal layers: those that per_layer_config sizes otherwise are made anew by their own configurations."""
    own = values.get("per_layer_config") if kind is tf.LlamaConfig else None
    config = kind(**{k: v for k, v in values.items() if not own or k != "per_layer_config"})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if own:
        config.allow_global_per_layer_attribute_access = True
        config.per_layer_config = own
        for i, of_layer in enumerate(config.per_layer_config):
            model.model.layers[i] = type(model.model.layers[i])(of_layer, i)
        model.config = config
    return model


def moved(model, prompt, logits):
    """How far noise of 11 bits behind each norm moves the logits, relative L2 of the worst row of 16 tries. Above 0.02 a row has a near tie of experts:
    16 bits may choose another one."""
    worst = 0.0
    for i in range(16):
        gen = torch.Generator().manual_seed(i)
        hooks = [m.register_forward_hook(lambda _, given, made: made * (1 + torch.randn(made.shape, generator=gen) / 2048))
                 for n, m in model.named_modules() if "norm" in n.split(".")[-1]]
        noisy = model(prompt[None], use_cache=False).logits[0].float()
        worst = max(worst, float(((noisy - logits).norm(dim=-1) / logits.norm(dim=-1)).max()))
        for h in hooks:
            h.remove()
    return worst


def split_convolution(path, config):
    """Checkpoints have a convolution for each of q, k and v; what Transformers writes are three equal parts of them together."""
    tensors, key = load_file(path), config.linear_key_head_dim * config.linear_num_key_heads
    for i in [i for i, t in enumerate(config.layer_types) if t == "linear_attention"]:
        names = ["model.layers.%d.linear_attn.%s_conv1d.weight" % (i, part) for part in "qkv"]
        whole = torch.cat([tensors[n] for n in names])
        tensors.update({n: part.contiguous() for n, part in zip(names, whole.split([key, key, len(whole) - 2 * key]))})
    save_file(tensors, path, {"format": "pt"})


def make(out, name, seed):
    kind, values = MODELS[name]
    torch.manual_seed(seed)
    model = randomise(build(kind, values), seed).eval()
    gen = torch.Generator().manual_seed(seed + 1)
    prompt = torch.randint(3, 160, (LONG_PROMPT.get(name, 48),), generator=gen)
    with torch.no_grad(), in_double(name):
        model.to(torch.float32)
        logits = model(prompt[None], use_cache=False).logits[0].float()
        by = moved(model, prompt, logits)
        ids, greedy = prompt.tolist(), []
        for _ in range(24):
            step = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            greedy.append(int(step.argmax()))
            ids.append(greedy[-1])
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.bfloat16().save_pretrained(folder)
    if model.config.model_type == "olmo_hybrid":
        split_convolution(os.path.join(folder, "model.safetensors"), model.config)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    save_file({"prompt": prompt.int(), "logits": logits.float().contiguous(), "greedy": torch.tensor(greedy, dtype=torch.int32)},
              os.path.join(folder, "golden.safetensors"))
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    top2 = logits.topk(2, dim=-1).values
    print("%-20s %7d bytes, logits std %.2f, smallest margin %.4f, moved by %.1e" % (name, size, logits.std(), (top2[:, 0] - top2[:, 1]).min(), by))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    for i, wanted in enumerate(sys.argv[2:] or MODELS):
        make(sys.argv[1], wanted, SEEDS.get(wanted, 100 + list(MODELS).index(wanted)))
