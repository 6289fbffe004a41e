/* arch.h -- the builders that archs.def names, and the blocks that families share. Each builder
 * appends its layers to g. Shapes are checked against the hyper-parameters;
 * whether a layer has optional parts is decided by the tensors in the file. Sizes in comments: T
 * rows, D n_embd, H heads. */
#ifndef MN_ARCH_H
#define MN_ARCH_H
#include "graph/graph.h"

void mn_arch_llama(mn_model_graph *g);
void mn_arch_llama4(mn_model_graph *g);
void mn_arch_gemma(mn_model_graph *g);
void mn_arch_gemma4(mn_model_graph *g);
void mn_arch_gemma3n(mn_model_graph *g);
void mn_arch_phi2(mn_model_graph *g);
void mn_arch_phi3(mn_model_graph *g);
void mn_arch_phimoe(mn_model_graph *g);
void mn_arch_arcee(mn_model_graph *g);
void mn_arch_gpt_oss(mn_model_graph *g);
void mn_arch_olmo2(mn_model_graph *g);
void mn_arch_glm4(mn_model_graph *g);
void mn_arch_neox(mn_model_graph *g);
void mn_arch_olmo(mn_model_graph *g);
void mn_arch_stablelm(mn_model_graph *g);
void mn_arch_gpt2(mn_model_graph *g);
void mn_arch_t5(mn_model_graph *g);
void mn_arch_bert(mn_model_graph *g);
void mn_arch_modern_bert(mn_model_graph *g);
void mn_arch_mamba2(mn_model_graph *g);
void mn_arch_nemotron_h(mn_model_graph *g);
void mn_arch_granite_hybrid(mn_model_graph *g);
void mn_arch_falcon_h1(mn_model_graph *g);
void mn_arch_qwen3next(mn_model_graph *g);
void mn_arch_olmo_hybrid(mn_model_graph *g);
void mn_arch_lfm2(mn_model_graph *g);
void mn_arch_deepseek(mn_model_graph *g);

/* ---- arch_blocks.c. stem: "blk.%d.attn_norm"; ".weight" and ".bias" are added. x: [T, D]. ---- */
int32_t mn_b_rms(mn_model_graph *g, int32_t x, const char *stem);
/* The bias is optional; the weights get the offset of the hyper-parameters. */
int32_t mn_b_layer_norm(mn_model_graph *g, int32_t x, const char *stem);
/* A matrix [rows, cols] and its bias, which may be absent. */
mn_g_product mn_b_product(mn_model_graph *g, const char *stem, int64_t rows, int64_t cols);
/* Rows [lo, lo + n) of it alone; rows in runs, as a matrix that is called `own`. */
mn_g_product mn_b_part(mn_model_graph *g, const char *stem, mn_row_part part, int64_t cols);
mn_g_product mn_b_runs(mn_model_graph *g, const char *own, const mn_row_run *runs, uint32_t n,
                       int64_t cols);
/* Heads of q or k, each normalised; y itself where the file has no weight for it. */
int32_t mn_b_norm_heads(mn_model_graph *g, int32_t y, const char *name);
/* q, k, v [T, H, head_dim]: from attn_q, attn_k, attn_v, or from attn_qkv stored as one; biases
 * optional. */
void mn_b_qkv(mn_model_graph *g, int32_t x, int32_t qkv[3]);
/* Projected, heads of q and k normalised where the file has attn_q_norm, rotated, attended,
 * projected back: [T, D]. */
int32_t mn_b_attention(mn_model_graph *g, int32_t x);
/* The part of mn_b_attention behind qkv: rotation, attention with sinks where the file has them,
 * the projection back. */
int32_t mn_b_attend(mn_model_graph *g, const int32_t qkv[3]);
/* ffn_gate and ffn_up, or both in ffn_up; ffn_down */
int32_t mn_b_glu(mn_model_graph *g, int32_t x);
int32_t mn_b_mlp(mn_model_graph *g, int32_t x); /* ffn_up, activation, ffn_down */
/* The experts that logits [T, E] choose: ffn_{gate,up,down}_exps, gate and up perhaps as one
 * (ffn_gate_up_exps), times ffn_down_exps.scale where the file has it; without a gate up, the
 * activation and down. x may be of another width than the layers. */
int32_t mn_b_experts(mn_model_graph *g, int32_t x, int32_t logits, mn_glu_form form);
/* sum plus the output of the shared experts for x; sum itself if there are none. */
int32_t mn_b_add_shared(mn_model_graph *g, int32_t sum, int32_t x, mn_glu_form form);
/* mn_b_experts with the router ffn_gate_inp of x, and mn_b_add_shared. */
int32_t mn_b_moe(mn_model_graph *g, int32_t x, mn_glu_form form);
/* mn_b_moe in layers with experts, mn_b_glu in dense ones. */
int32_t mn_b_feed_forward(mn_model_graph *g, int32_t x);
/* ---- arch_state.c. Layers with a state ---- */
int32_t mn_b_mamba2(mn_model_graph *g, int32_t x); /* ssm_in to ssm_out, gated */
/* attn_qkv and attn_gate, or ssm_in with both of a head side by side, or ssm_q, ssm_k, ssm_v; to
 * ssm_out. norm_eps: of the norm behind the rule */
int32_t mn_b_delta(mn_model_graph *g, int32_t x, double norm_eps);
int32_t mn_b_kda(mn_model_graph *g, int32_t x); /* attn_q, attn_k, attn_v, ssm_*; attn_output */
int32_t mn_b_short_conv(mn_model_graph *g, int32_t x);           /* shortconv.* */
int32_t mn_b_scale(mn_model_graph *g, int32_t x, double factor); /* 0 and 1: x itself */
/* x + residual_scale * y */
int32_t mn_b_residual(mn_model_graph *g, int32_t x, int32_t y);
int32_t mn_b_embed(mn_model_graph *g, double scale);
/* After the last layer: the rows that give logits, normalised by output_norm, times output (or the
 * embedding table), SAMPLE; in a graph that embeds, these rows are the output. */
void mn_b_head(mn_model_graph *g, int32_t x,
               int32_t (*norm)(mn_model_graph *g, int32_t x, const char *stem));
#endif
