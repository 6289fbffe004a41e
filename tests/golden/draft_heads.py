#!/usr/bin/env python3
"""Makes tiny models with a draft head of tests/data/fixtures, out of those without: python3 -P draft_heads.py FIXTURES [NAME...]

Each is a folder NAME-mtp with the tensors of fixture NAME, those of a head (random), and draft.safetensors: ids [n] (the prompt and the greedy ids of NAME's
golden.safetensors), hidden [n, D] (the model's states behind its last norm, as Transformers computes them in f64), logits [n, V] of the head's row for each
id, and drafts [n, 3]: the greedy ids that the head guesses behind the first 1, 2, ... n ids; the second and the third read the head's own hidden states.
Transformers drops the heads: here they are computed in f64 by the formulas of DeepSeek-V3 (2024, 2.2) and of the models' own layers. Row p has id p and the
model's hidden state of row p - 1, zeros for p = 0. A development tool: the tests only read what it made. Needs numpy, torch, transformers, safetensors."""
import json
import os
import shutil
import sys

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # behind the others: safetensors.py of this folder is another
from make_fixtures import in_double  # noqa: E402

HEADS = {"qwen3-next": 5, "qwen3.5": 6, "qwen3.5-moe": 11, "glm4-moe": 8}  # seeds: no near tie of experts, nor of the drafts
K = 3


def random_like(shape, name, gen, offset):
    if len(shape) == 1:
        norm = "norm" in name and name.endswith("weight")
        std, mean = (0.5, 0.0) if not norm or offset else (0.2, 1.0)
    else:
        std, mean = 1.6 / shape[-1] ** 0.5, 0.0
    return (torch.randn(shape, generator=gen) * std + mean).bfloat16()


def head_of(config, tensors, seed):
    """The head's tensors by the names of the checkpoint, and the same in f64 by those of a layer."""
    glm, gen = config["model_type"] == "glm4_moe", torch.Generator().manual_seed(seed)
    last = max(int(n.split(".")[2]) for n in tensors if n.endswith("self_attn.k_proj.weight"))
    here, D = "model.layers.%d." % last, config["hidden_size"]
    prefix = "model.layers.%d." % config["num_hidden_layers"] if glm else "mtp.layers.0."
    outer = prefix if glm else "mtp."
    own = {"eh_proj.weight": (D, 2 * D), "enorm.weight": (D,), "hnorm.weight": (D,), "shared_head.norm.weight": (D,)}
    names = {"eh_proj.weight": "fc.weight", "enorm.weight": "pre_fc_norm_embedding.weight", "hnorm.weight": "pre_fc_norm_hidden.weight",
             "shared_head.norm.weight": "norm.weight"}
    if glm:
        own.update({"embed_tokens.weight": tensors["model.embed_tokens.weight"].shape, "shared_head.head.weight": tensors["lm_head.weight"].shape})
    made = {n: (outer + (n if glm else names[n]), random_like(tuple(s), n, gen, not glm)) for n, s in own.items()}
    for name in sorted(n for n in tensors if n.startswith(here)):
        rest = name[len(here):]
        made[rest] = (prefix + rest, random_like(tuple(tensors[name].shape), rest, gen, not glm))
    return {name: t.contiguous() for name, t in made.values()}, {rest: t.double().numpy() for rest, (_, t) in made.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Head:
    """One row at a time; keys and values are kept."""

    def __init__(self, config, w, tensors):
        self.c, self.w = config, w
        self.glm = config["model_type"] == "glm4_moe"
        wide = {n: tensors[n].double().numpy() for n in ("model.embed_tokens.weight", "lm_head.weight") if n in tensors}
        self.embed = w.get("embed_tokens.weight", wide["model.embed_tokens.weight"])
        self.out = w.get("shared_head.head.weight", wide.get("lm_head.weight", wide["model.embed_tokens.weight"]))
        self.keys, self.values = [], []

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * (self.w[name] + (0 if self.glm else 1))

    def linear(self, x, name):
        y = self.w[name + ".weight"] @ x
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def rotate(self, x, pos):
        rope = self.c["rope_parameters"]
        n = int(x.shape[-1] * rope.get("partial_rotary_factor", 1.0))
        angle = pos * rope["rope_theta"] ** (-np.arange(0, n, 2) / n)
        a, b, rest = x[:, :n // 2], x[:, n // 2:n], x[:, n:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), rest], -1)

    def attend(self, x, pos):
        H, G, d = self.c["num_attention_heads"], self.c["num_key_value_heads"], self.c["head_dim"]
        q, gate = self.linear(x, "self_attn.q_proj").reshape(H, -1), None
        if not self.glm:
            q, gate = q[:, :d], q[:, d:]
        k, v = (self.linear(x, "self_attn.%s_proj" % n).reshape(G, d) for n in "kv")
        if "self_attn.q_norm.weight" in self.w:
            q, k = self.norm(q, "self_attn.q_norm.weight"), self.norm(k, "self_attn.k_norm.weight")
        self.keys.append(self.rotate(k, pos))
        self.values.append(v)
        q, y = self.rotate(q, pos), np.empty((H, d))
        for h in range(H):
            s = np.array([keys[h // (H // G)] @ q[h] for keys in self.keys]) / np.sqrt(d)
            p = np.exp(s - s.max())
            y[h] = (p / p.sum()) @ np.array([values[h // (H // G)] for values in self.values])
        if gate is not None:
            y = y * sigmoid(gate)
        return self.linear(y.reshape(-1), "self_attn.o_proj")

    def mlp(self, x, name):
        gate = self.linear(x, name + ".gate_proj")
        return self.linear(gate * sigmoid(gate) * self.linear(x, name + ".up_proj"), name + ".down_proj")

    def feed_forward(self, x):
        if "mlp.gate.weight" not in self.w:
            return self.mlp(x, "mlp")
        logits = self.linear(x, "mlp.gate")
        k = self.c["num_experts_per_tok"]
        if self.glm:
            p = sigmoid(logits)
            best = np.argsort(-(p + self.w["mlp.gate.e_score_correction_bias"]))[:k]
        else:
            p = np.exp(logits - logits.max())
            p = p / p.sum()
            best = np.argsort(-p)[:k]
        chosen = p[best] / p[best].sum() if self.c.get("norm_topk_prob", True) else p[best]
        y = sum(g * self.mlp(x, "mlp.experts.%d" % e) for g, e in zip(chosen * self.c.get("routed_scaling_factor", 1.0), best))
        if self.glm:
            return y + self.mlp(x, "mlp.shared_experts")
        return y + sigmoid(self.linear(x, "mlp.shared_expert_gate")) * self.mlp(x, "mlp.shared_expert")

    def row(self, token, hidden):
        """Logits and hidden state of the next row."""
        pos = len(self.keys)
        x = self.linear(np.concatenate([self.norm(self.embed[token], "enorm.weight"), self.norm(hidden, "hnorm.weight")]), "eh_proj")
        x = x + self.attend(self.norm(x, "input_layernorm.weight"), pos)
        x = x + self.feed_forward(self.norm(x, "post_attention_layernorm.weight"))
        x = self.norm(x, "shared_head.norm.weight")
        return self.out @ x, x

    def cut(self, n):
        del self.keys[n:], self.values[n:]


def margin(logits):
    top = np.sort(logits)[-2:]
    return top[1] - top[0]


def make(folder, name, seed):
    base, out = os.path.join(folder, name), os.path.join(folder, name + "-mtp")
    with open(os.path.join(base, "config.json")) as f:
        config = json.load(f)
    tensors, golden = load_file(os.path.join(base, "model.safetensors")), load_file(os.path.join(base, "golden.safetensors"))
    ids = golden["prompt"].tolist() + golden["greedy"].tolist()
    with torch.no_grad(), in_double("qwen3-next"):
        model = tf.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
        hidden = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].double().numpy()
    of_head, w = head_of(config, tensors, seed)
    head, logits, drafts, least = Head(config, w, tensors), [], [], 1e9
    for p, token in enumerate(ids):
        row, own = head.row(token, hidden[p - 1] if p else np.zeros_like(hidden[0]))
        logits.append(row)
        chain = []
        for _ in range(K):
            least = min(least, margin(row))
            chain.append(int(row.argmax()))
            row, own = head.row(chain[-1], own)
        drafts.append(chain)
        head.cut(p + 1)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    config["num_nextn_predict_layers" if config["model_type"] == "glm4_moe" else "mtp_num_hidden_layers"] = 1
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    save_file({**tensors, **of_head}, os.path.join(out, "model.safetensors"), {"format": "pt"})
    shutil.copyfile(os.path.join(base, "golden.safetensors"), os.path.join(out, "golden.safetensors"))
    save_file({"ids": torch.tensor(ids, dtype=torch.int32), "hidden": torch.tensor(hidden).float().contiguous(),
               "logits": torch.tensor(np.array(logits)).float(), "drafts": torch.tensor(drafts, dtype=torch.int32)}, os.path.join(out, "draft.safetensors"))
    held = sum(d[0] == ids[p + 1] for p, d in enumerate(drafts[:-1]))
    print("%-18s %d ids, logits std %.2f, smallest margin %.4f, %d drafts hold" % (name + "-mtp", len(ids), np.std(logits), least, held))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    for wanted in sys.argv[2:] or HEADS:
        make(sys.argv[1], wanted, HEADS[wanted])
