#!/usr/bin/env python3
"""Makes the tiny models of Kimi Linear of tests/data/fixtures: python3 -P make_kimi_linear.py OUT [NAME...] (-P: safetensors.py of this folder is another)

Transformers has no class for it: this is the model in f64 by the formulas of its report (Kimi Team 2025, arXiv 2510.26692: KDA, equations 1 and 3 to 6, a position
at a time; latent attention without rotation; DeepSeek V3's experts). Each is a folder as make_fixtures.py makes them, with the tensors of published checkpoints
(config.json's names, weights in bf16, A_log and dt_bias in f32), golden.safetensors and prompts.safetensors. A development tool: the tests only read what it made. Needs torch,
safetensors."""
import json
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

LATENT_EPS = 1e-6  # of the norm of the latent row, whatever the layers' is
UNIT_EPS = 1e-6  # of the lengths of q and k
LENGTHS = (1, 7, 40, 300)
COMMON = dict(architectures=["KimiLinearForCausalLM"], model_type="kimi_linear", vocab_size=160, bos_token_id=1, eos_token_id=2, hidden_act="silu", dtype="bfloat16",
              rms_norm_eps=1e-5, model_max_length=512, q_lora_rank=None, rope_scaling=None, rope_theta=10000.0, mla_use_nope=True, moe_layer_freq=1, use_grouped_topk=True,
              moe_router_activation_func="sigmoid", num_nextn_predict_layers=0, use_cache=True)
MODELS = {
    "kimi-linear": (dict(COMMON, hidden_size=48, head_dim=12, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=32,
                         qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24, first_k_dense_replace=1, num_experts=6, num_experts_per_token=2, num_shared_experts=1,
                         moe_intermediate_size=24, moe_renormalize=True, routed_scaling_factor=2.446, num_expert_group=1, topk_group=1, tie_word_embeddings=False,
                         linear_attn_config=dict(full_attn_layers=[3], kda_layers=[1, 2, 4], head_dim=16, num_heads=4, short_conv_kernel_size=4)), 950),
    "kimi-linear-plain": (dict(COMMON, hidden_size=32, head_dim=16, intermediate_size=40, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=24,
                               qk_nope_head_dim=12, qk_rope_head_dim=4, v_head_dim=8, first_k_dense_replace=0, num_experts=8, num_experts_per_token=3, num_shared_experts=2,
                               moe_intermediate_size=16, moe_renormalize=False, routed_scaling_factor=1.5, num_expert_group=4, topk_group=2, tie_word_embeddings=True,
                               linear_attn_config=dict(full_attn_layers=[1], kda_layers=[2, 3], head_dim=12, num_heads=3, short_conv_kernel_size=3)), 745),
}


def shapes(c):
    """Names and shapes of the tensors of a checkpoint."""
    d, kda, h = c["hidden_size"], c["linear_attn_config"], c["num_attention_heads"]
    inner, width = kda["num_heads"] * kda["head_dim"], kda["head_dim"]
    nope, rot, v, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        at = "model.layers.%d." % i
        yield at + "input_layernorm.weight", (d,)
        yield at + "post_attention_layernorm.weight", (d,)
        own = at + "self_attn."
        if i + 1 in kda["full_attn_layers"]:
            yield own + "q_proj.weight", (h * (nope + rot), d)
            yield own + "kv_a_proj_with_mqa.weight", (rank + rot, d)
            yield own + "kv_a_layernorm.weight", (rank,)
            yield own + "kv_b_proj.weight", (h * (nope + v), rank)
            yield own + "o_proj.weight", (d, h * v)
        else:
            for part in "qkv":
                yield own + part + "_proj.weight", (inner, d)
                yield own + part + "_conv1d.weight", (inner, 1, kda["short_conv_kernel_size"])
            for part in "fg":
                yield own + part + "_a_proj.weight", (width, d)
                yield own + part + "_b_proj.weight", (inner, width)
            yield own + "A_log", (1, 1, kda["num_heads"], 1)
            yield own + "dt_bias", (inner,)
            yield own + "b_proj.weight", (kda["num_heads"], d)
            yield own + "o_norm.weight", (width,)
            yield own + "o_proj.weight", (d, inner)
        wide, moe, n = c["intermediate_size"], at + "block_sparse_moe.", c["moe_intermediate_size"]
        if i < c["first_k_dense_replace"]:
            yield from ((at + "mlp.%s_proj.weight" % part, (d, wide) if part == "down" else (wide, d)) for part in ("gate", "up", "down"))
            continue
        yield moe + "gate.weight", (c["num_experts"], d)
        yield moe + "gate.e_score_correction_bias", (c["num_experts"],)
        for e in range(c["num_experts"]):
            yield from ((moe + "experts.%d.%s.weight" % (e, part), (d, n) if part == "w2" else (n, d)) for part in ("w1", "w2", "w3"))
        all_shared = n * c["num_shared_experts"]
        yield from ((moe + "shared_experts.%s_proj.weight" % part, (d, all_shared) if part == "down" else (all_shared, d)) for part in ("gate", "up", "down"))
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def draw(c, seed):
    """Weights of checkpoints: heads forget within 1 to 300 tokens."""
    gen, out = torch.Generator().manual_seed(seed), {}
    for name, shape in shapes(c):
        drawn = torch.randn(shape, generator=gen)
        if name.endswith("A_log") or name.endswith("dt_bias"):
            out[name] = drawn * 0.5 if name.endswith("A_log") else drawn * 1.5 - 3
            continue
        if "norm" in name.split(".")[-2]:
            drawn = 1 + 0.2 * drawn
        elif len(shape) == 1:
            drawn = 0.3 * drawn
        else:
            drawn = drawn * 1.6 / shape[-1] ** 0.5
        out[name] = drawn.bfloat16()
    return out


class Model:
    """noise: a generator by which the output of each norm is off by 2^-11; None: it is exact."""

    def __init__(self, config, tensors, noise=None):
        self.c, self.w, self.noise = config, {k: v.double() for k, v in tensors.items()}, noise

    def norm(self, x, name, eps):
        y = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * self.w[name + ".weight"]
        return y if self.noise is None else y * (1 + torch.randn(y.shape, generator=self.noise, dtype=torch.float64) / 2048)

    def product(self, x, name):
        return x @ self.w[name + ".weight"].T

    def convolve(self, x, name):
        """A causal convolution of each channel, then silu."""
        w = self.w[name + ".weight"][:, 0]  # [channels, taps]
        padded = torch.cat([torch.zeros(w.shape[1] - 1, x.shape[1], dtype=x.dtype), x])
        return F.silu(sum(padded[j:j + len(x)] * w[:, j] for j in range(w.shape[1])))

    def kda(self, x, at):
        own = self.c["linear_attn_config"]
        n, d = own["num_heads"], own["head_dim"]
        q, k, v = (self.convolve(self.product(x, at + p + "_proj"), at + p + "_conv1d").view(-1, n, d) for p in "qkv")
        q, k = (y / (y.pow(2).sum(-1, keepdim=True) + UNIT_EPS).sqrt() for y in (q, k))
        f = self.product(self.product(x, at + "f_a_proj"), at + "f_b_proj") + self.w[at + "dt_bias"]
        decay = torch.exp(-self.w[at + "A_log"].exp().view(n, 1) * torch.log1p(torch.exp(f)).view(-1, n, d))
        beta = torch.sigmoid(self.product(x, at + "b_proj"))
        state, rows = torch.zeros(n, d, d, dtype=x.dtype), []  # [head, of k, of v]
        for t in range(len(x)):
            state = decay[t][:, :, None] * state
            wrong = v[t] - torch.einsum("hij,hi->hj", state, k[t])
            state = state + beta[t][:, None, None] * torch.einsum("hi,hj->hij", k[t], wrong)
            rows.append(torch.einsum("hij,hi->hj", state, q[t]) / d ** 0.5)
        gate = torch.sigmoid(self.product(self.product(x, at + "g_a_proj"), at + "g_b_proj"))
        y = self.norm(torch.stack(rows), at + "o_norm", self.c["rms_norm_eps"]).reshape(len(x), n * d) * gate
        return self.product(y, at + "o_proj")

    def latent(self, x, at):
        c = self.c
        n, nope, rot, v = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        q = self.product(x, at + "q_proj").view(-1, n, nope + rot)
        row, common = self.product(x, at + "kv_a_proj_with_mqa").split([c["kv_lora_rank"], rot], -1)
        kv = self.product(self.norm(row, at + "kv_a_layernorm", LATENT_EPS), at + "kv_b_proj").view(-1, n, nope + v)
        k = torch.cat([kv[..., :nope], common[:, None].expand(-1, n, -1)], -1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / (nope + rot) ** 0.5
        later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        y = torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), kv[..., nope:])
        return self.product(y.reshape(len(x), n * v), at + "o_proj")

    def gated(self, x, at, names):
        return self.product(F.silu(self.product(x, at + names[0])) * self.product(x, at + names[1]), at + names[2])

    def experts(self, x, at):
        c = self.c
        scores = torch.sigmoid(self.product(x, at + "gate"))
        choice = scores + self.w[at + "gate.e_score_correction_bias"]
        groups = choice.view(len(x), c["num_expert_group"], -1)
        if c["num_expert_group"] > 1:
            best = groups.topk(2, -1).values.sum(-1).topk(c["topk_group"], -1).indices
            out = torch.ones(groups.shape[:2], dtype=torch.bool).scatter(1, best, False)
            choice = groups.masked_fill(out[..., None], -torch.inf).view(len(x), -1)
        chosen = choice.topk(c["num_experts_per_token"], -1).indices
        weights = scores.gather(1, chosen)
        if c["moe_renormalize"]:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights * c["routed_scaling_factor"]
        y = self.gated(x, at + "shared_experts.", ("gate_proj", "up_proj", "down_proj"))
        each = torch.stack([self.gated(x, at + "experts.%d." % e, ("w1", "w3", "w2")) for e in range(c["num_experts"])], 1)
        return y + (each.gather(1, chosen[..., None].expand(-1, -1, x.shape[1])) * weights[..., None]).sum(1)

    def __call__(self, ids):
        c, x = self.c, self.w["model.embed_tokens.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            at, eps = "model.layers.%d." % i, c["rms_norm_eps"]
            mix = self.latent if i + 1 in c["linear_attn_config"]["full_attn_layers"] else self.kda
            x = x + mix(self.norm(x, at + "input_layernorm", eps), at + "self_attn.")
            y = self.norm(x, at + "post_attention_layernorm", eps)
            dense = i < c["first_k_dense_replace"]
            x = x + (self.gated(y, at + "mlp.", ("gate_proj", "up_proj", "down_proj")) if dense else self.experts(y, at + "block_sparse_moe."))
        last = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
        return self.norm(x, "model.norm", c["rms_norm_eps"]) @ self.w[last].T


def moved(config, tensors, ids, logits):
    """As in make_fixtures.py: how far noise of 11 bits moves the logits; above 0.02 a row has a near tie of experts."""
    worst = 0.0
    for i in range(16):
        noisy = Model(config, tensors, torch.Generator().manual_seed(i))(ids)
        worst = max(worst, float(((noisy - logits).norm(dim=-1) / logits.norm(dim=-1)).max()))
    return worst


def make(out, name):
    config, seed = MODELS[name]
    tensors = draw(config, seed)
    model = Model(config, tensors)
    gen = torch.Generator().manual_seed(seed + 1)
    prompt = torch.randint(3, 160, (48,), generator=gen)
    prompts = [torch.randint(3, 160, (n,), generator=gen) for n in LENGTHS]
    logits, ids, greedy = model(prompt), prompt.tolist(), []
    by = moved(config, tensors, prompt, logits)
    for _ in range(24):
        greedy.append(int(model(torch.tensor(ids))[-1].argmax()))
        ids.append(greedy[-1])
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    save_file({"prompt": prompt.int(), "logits": logits.float().contiguous(), "greedy": torch.tensor(greedy, dtype=torch.int32)}, os.path.join(folder, "golden.safetensors"))
    save_file({"ids": torch.cat(prompts).int(), "lengths": torch.tensor(LENGTHS, dtype=torch.int32),
               "logits": torch.stack([model(p)[-1] for p in prompts]).float().contiguous()}, os.path.join(folder, "prompts.safetensors"))
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    top2 = logits.topk(2, dim=-1).values
    print("%-20s %7d bytes, logits std %.2f, smallest margin %.4f, moved by %.1e" % (name, size, logits.std(), (top2[:, 0] - top2[:, 1]).min(), by))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with torch.no_grad():
        for wanted in sys.argv[2:] or MODELS:
            make(sys.argv[1], wanted)
