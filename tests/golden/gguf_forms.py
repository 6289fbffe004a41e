#!/usr/bin/env python3
"""gguf_forms.py [FIXTURE...]: the fixtures as GGUF files, as the converters of the field write them, with the same logits.

What converters do is in the functions below: names, keys, rows of q and k in adjacent pairs for some, norms with Gemma's 1 added, experts stacked, GPT-2's matrices
turned. Where a converter leaves out what a fixture varies (scales, windows), the key is given all the same."""
import math
import os
import struct
import sys

import gguf_file as gguf
import models
from gguf_file import BOOL, F32, STR, TENSOR_BF16, TENSOR_F16, TENSOR_F32, TENSOR_MXFP4, U32, pair

IN_LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.dense": "attn_output", "self_attn.qkv_proj": "attn_qkv",
            "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.sinks": "attn_sinks", "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
            "mlp.router": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "ln_1": "attn_norm", "ln_2": "ffn_norm",
            "layer_scalar": "layer_output_scale", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
            "mlp.moe_statics": "exp_probs_b", "router.proj": "ffn_gate_inp", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2"}
FACTORS = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}
POST_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.final_layernorm": "output_norm", "lm_head": "output", "transformer.wte": "token_embd",
       "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}
ARCH = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe", "phi": "phi2", "gemma3_text": "gemma3", "gemma4_text": "gemma4", "gpt_oss": "gpt-oss",
        "ernie4_5_moe": "ernie4_5-moe"}
TYPES = {"F32": TENSOR_F32, "F16": TENSOR_F16, "BF16": TENSOR_BF16}
ADJACENT = ("llama", "granite", "smollm3")
LONG = ("gemma2", "gemma3", "gemma4", "gemma4-moe", "gemma4-moe-plain", "gpt-oss", "olmo2")  # norms before and after a block, or after it alone


class Form:
    """One model on its way: pairs and tensors of the GGUF file."""

    def __init__(self, m):
        self.m, self.c = m, m.config
        self.arch = ARCH.get(self.c["model_type"], self.c["model_type"])
        self.keys, self.extra = {}, {}

    def head_dim(self):
        c = self.c
        return c.get("head_dim") or c.get("hidden_size", c.get("n_embd")) // c.get("num_attention_heads", c.get("n_head"))

    # ---- keys ----
    def key(self, name, kind, v):
        self.keys[name] = (kind, v)

    def rope(self):
        c, rope = self.c, self.c["rope_parameters"]
        if "full_attention" in rope:
            rope = rope["full_attention"]
        n_rot = int(self.head_dim() * rope.get("partial_rotary_factor", 1))
        self.key("rope.freq_base", F32, rope["rope_theta"])
        self.key("rope.dimension_count", U32, n_rot)
        kind = rope["rope_type"]
        if kind == "proportional":
            wide = c["per_layer_config"][str(c["layer_types"].index("full_attention"))]["head_dim"]
            for key, full, local in (("rope.dimension_count", wide, c["head_dim"]), ("attention.key_length", wide, c["head_dim"]),
                                     ("attention.value_length", wide, c["head_dim"])):
                self.key(key, U32, full)
                self.key(key + "_swa", U32, local)
            self.key("rope.freq_base_swa", F32, c["rope_parameters"]["sliding_attention"]["rope_theta"])
            turning = int(rope["partial_rotary_factor"] * wide / 2)
            self.extra["rope_freqs.weight"] = ([wide // 2], [1.0 if i < turning else 1e30 for i in range(wide // 2)])
        elif kind == "linear":
            self.key("rope.scaling.type", STR, "linear")
            self.key("rope.scaling.factor", F32, rope["factor"])
        elif kind == "yarn":
            self.key("rope.scaling.type", STR, "yarn")
            self.key("rope.scaling.factor", F32, rope["factor"])
            self.key("rope.scaling.original_context_length", U32, rope["original_max_position_embeddings"])
            for key in ("beta_fast", "beta_slow"):
                if key in rope:
                    self.key("rope.scaling.yarn_" + key, F32, rope[key])
            if "attention_factor" in rope:
                self.key("rope.scaling.yarn_attn_factor", F32, rope["attention_factor"])
            if "mscale" in rope:  # this key multiplies the usual magnitude
                usual, m, all_dim = (0.1 * x * math.log(rope["factor"]) + 1 for x in (1, rope["mscale"], rope["mscale_all_dim"]))
                self.key("rope.scaling.attn_factor", F32, m / all_dim / usual)
        elif kind == "longrope":
            original = rope.get("original_max_position_embeddings") or c["original_max_position_embeddings"]
            self.key("rope.scaling.original_context_length", U32, original)
            for which in ("long", "short"):
                self.extra["rope_factors_%s.weight" % which] = ([n_rot // 2], rope[which + "_factor"])
        elif kind == "llama3":
            self.extra["rope_freqs.weight"] = ([n_rot // 2], [llama3_divisor(rope, i, n_rot) for i in range(n_rot // 2)])

    def hyper_parameters(self):
        c, gpt2 = self.c, self.arch == "gpt2"
        self.key("context_length", U32, c["n_positions" if gpt2 else "max_position_embeddings"])
        self.key("embedding_length", U32, c["n_embd" if gpt2 else "hidden_size"])
        self.key("block_count", U32, c["n_layer" if gpt2 else "num_hidden_layers"])
        self.key("feed_forward_length", U32, 4 * c["n_embd"] if gpt2 else c["intermediate_size"])
        self.key("attention.head_count", U32, c["n_head" if gpt2 else "num_attention_heads"])
        for key, name in (("rms_norm_eps", "attention.layer_norm_rms_epsilon"), ("layer_norm_eps", "attention.layer_norm_epsilon"),
                          ("layer_norm_epsilon", "attention.layer_norm_epsilon")):
            if key in c:
                self.key(name, F32, c[key])
        if gpt2:
            return
        self.key("attention.head_count_kv", U32, c["num_key_value_heads"])
        if "head_dim" in c and c["head_dim"]:
            self.key("attention.key_length", U32, c["head_dim"])
            self.key("attention.value_length", U32, c["head_dim"])
        self.layers()
        self.rope()
        self.window()
        self.scales()
        experts = c.get("num_local_experts") or c.get("num_experts") or c.get("moe_num_experts")
        if experts:
            self.key("expert_count", U32, experts)
            self.key("expert_used_count", U32, c.get("num_experts_per_tok") or c.get("top_k_experts") or c["moe_k"])
            if self.arch != "llama":
                self.key("expert_feed_forward_length", U32, c.get("moe_intermediate_size", c["intermediate_size"]))
        if "moe_num_shared_experts" in c:
            self.key("expert_shared_count", U32, c["moe_num_shared_experts"])
            self.key("expert_shared_feed_forward_length", U32, c["moe_num_shared_experts"] * c["moe_intermediate_size"])
            self.key("leading_dense_block_count", U32, c["moe_layer_start_index"])
            self.key("interleave_moe_layer_step", U32, c["moe_layer_interval"])
        if c.get("norm_topk_prob") is False:
            self.key("expert_weights_norm", BOOL, False)
        if self.arch == "stablelm":
            self.key("use_parallel_residual", BOOL, c["use_parallel_residual"])

    def layers(self):
        """What differs from layer to layer is an array."""
        own = self.c.get("per_layer_config", {})
        for key, name in (("num_attention_heads", "attention.head_count"), ("num_key_value_heads", "attention.head_count_kv"),
                          ("intermediate_size", "feed_forward_length")):
            if any(key in of_layer for of_layer in own.values()):
                self.keys[name] = (U32, [own.get(str(i), {}).get(key, self.c[key]) for i in range(self.c["num_hidden_layers"])])

    def window(self):
        c = self.c
        if not c.get("sliding_window") or c.get("use_sliding_window") is False:
            return
        self.key("attention.sliding_window", U32, c["sliding_window"])
        if self.arch in ("qwen2", "gemma4"):
            self.keys["attention.sliding_window_pattern"] = (BOOL, [t == "sliding_attention" for t in c["layer_types"]])

    def scales(self):
        for key, name in (("embedding_multiplier", "embedding_scale"), ("residual_multiplier", "residual_scale"), ("attention_multiplier", "attention.scale"),
                          ("logits_scaling", "logit_scale"), ("attn_logit_softcapping", "attn_logit_softcapping"),
                          ("final_logit_softcapping", "final_logit_softcapping")):
            if self.c.get(key):
                self.key(name, F32, self.c[key])
        if self.c.get("query_pre_attn_scalar"):
            self.key("attention.scale", F32, self.c["query_pre_attn_scalar"] ** -0.5)

    # ---- tensors ----
    def name_of(self, native):
        stem, _, kind = native.replace("e_score_correction_bias", "bias").rpartition(".")
        if kind not in ("weight", "bias"):
            stem, kind = native, "weight"
        if stem in TOP:
            return TOP[stem] + "." + kind
        parts = stem.split(".", 3)  # model.layers.N.what
        if parts[3] in FACTORS:
            return "blk.%s.%s" % (parts[2], FACTORS[parts[3]])
        what = POST_NORMS.get(parts[3]) if self.arch in LONG else None
        return "blk.%s.%s.%s" % (parts[2], what or IN_LAYER[parts[3]], kind)

    def values(self, native, name):
        """(shape, type, bytes) as a converter stores them."""
        kind, shape, raw = self.m.tensors[native]
        shape = list(shape)
        if len(shape) == 1:
            values = self.m.floats(native)
            if self.arch in ("gemma", "gemma2", "gemma3") and "norm" in name:
                values = [v + 1 for v in values]
            if name.endswith(("sinks.weight", "bias", ".scale")) or "norm" in name:
                raw, kind = struct.pack("<%df" % len(values), *values), "F32"
        size = len(raw) // product(shape)
        if self.arch == "gpt2" and len(shape) == 2 and (".attn_" in name or ".ffn_" in name):
            raw, shape = turned(raw, shape[0], shape[1], size), shape[::-1]
        if self.arch in ADJACENT and (".attn_q." in name or ".attn_k." in name):
            raw = adjacent(raw, shape[0], self.head_dim(), len(raw) // shape[0])
        return shape, TYPES[kind], raw

    def experts(self, done):
        """Stacked experts, from one by one (Mixtral, Qwen3-MoE) or from gate and up in turn (GPT-OSS)."""
        found = {}
        for native in self.m.tensors:
            head, mark, rest = native.partition(".experts.")
            if not mark:
                continue
            done.add(native)
            layer = native.split(".")[2]
            if self.arch == "gemma4":  # gate and up stay one
                kind, shape, raw = self.m.tensors[native]
                yield "blk.%s.ffn_%s_exps.weight" % (layer, {"gate_up_proj": "gate_up", "down_proj": "down"}[rest]), list(shape), TYPES[kind], raw
                continue
            if rest[0].isdigit():
                number, _, which = rest.partition(".")
                which = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}[which.split(".")[0]]
                found.setdefault((layer, which), {})[int(number)] = native
            else:
                yield from self.whole_experts(layer, rest, native)
        for (layer, which), members in found.items():
            kind, shape, _ = self.m.tensors[members[0]]
            raw = b"".join(self.m.tensors[members[i]][2] for i in range(len(members)))
            yield "blk.%s.ffn_%s_exps.weight" % (layer, which), [len(members)] + list(shape), TYPES[kind], raw

    def whole_experts(self, layer, rest, native):
        kind, shape, raw = self.m.tensors[native]
        name = "blk.%s.ffn_%%s_exps.%s" % (layer, "bias" if rest.endswith("bias") else "weight")
        parts = [("gate", 0), ("up", 1)] if rest.startswith("gate_up") else [("down", None)]
        if rest.endswith("_scales"):
            return
        if rest.endswith("_blocks"):
            e, n, g, _ = shape
            scales = self.m.tensors[native.replace("_blocks", "_scales")][2]
            for which, first in parts:
                rows = [r for r in range(e * n) if first is None or r % 2 == first]
                packed = b"".join(mxfp4_block(scales[r * g + i], raw[(r * g + i) * 16:(r * g + i + 1) * 16]) for r in rows for i in range(g))
                yield name % which, [e, len(rows) // e, g * 32], TENSOR_MXFP4, packed
            return
        size = len(raw) // product(shape)
        for which, first in parts:
            if rest.endswith("bias"):
                values = self.m.floats(native)
                values = values if first is None else values[first::2]
                yield name % which, [shape[0], len(values) // shape[0]], TENSOR_F32, struct.pack("<%df" % len(values), *values)
                continue
            e, rows, cols = shape
            one = rows * cols * size
            whole = b"".join(turned(raw[i * one:(i + 1) * one], rows, cols, size) for i in range(e))  # [e, cols, rows]
            width = rows * size
            lines = [whole[i:i + width] for i in range(0, len(whole), width)]
            lines = lines if first is None else lines[first::2]
            yield name % which, [e, len(lines) // e, rows], TENSOR_BF16, b"".join(lines)

    def head_norms(self, done):
        """StableLM's norms of each head, stacked."""
        for which in ("q", "k"):
            for layer in range(self.c.get("num_hidden_layers", 0)):
                stem = "model.layers.%d.self_attn.%s_layernorm.norms." % (layer, which)
                members = sorted((n for n in self.m.tensors if n.startswith(stem)), key=lambda s: int(s[len(stem):].split(".")[0]))
                if members:
                    done.update(members)
                    values = [v for n in members for v in self.m.floats(n)]
                    yield "blk.%d.attn_%s_norm.weight" % (layer, which), [len(members), self.head_dim()], TENSOR_F32, struct.pack("<%df" % len(values), *values)

    def tensors(self):
        done = set()
        out = list(self.experts(done)) + list(self.head_norms(done))
        for native in self.m.tensors:
            if native in done:
                continue
            name = self.name_of(native)
            shape, kind, raw = self.values(native, name)
            out.append((name, shape, kind, raw))
        for name, (shape, values) in self.extra.items():
            out.append((name, shape, TENSOR_F32, struct.pack("<%df" % len(values), *values)))
        return out

    def pairs(self):
        out = [pair("general.architecture", STR, self.arch), pair("general.name", STR, "fixture")]
        for name, (kind, v) in self.keys.items():
            out.append((gguf.array if isinstance(v, list) else pair)(self.arch + "." + name, kind, v))
        return out


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def turned(raw, rows, cols, size):
    return b"".join(raw[(r * cols + c) * size:(r * cols + c + 1) * size] for c in range(cols) for r in range(rows))


def adjacent(raw, rows, head_dim, width):
    lines = [raw[i * width:(i + 1) * width] for i in range(rows)]
    half = head_dim // 2
    return b"".join(lines[h + i + s * half] for h in range(0, rows, head_dim) for i in range(half) for s in (0, 1))


def llama3_divisor(rope, i, n_rot):
    wavelength = 2 * 3.141592653589793 * rope["rope_theta"] ** (2 * i / n_rot)
    original, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    if wavelength < original / high:
        return 1.0
    if wavelength > original / low:
        return rope["factor"]
    smooth = (original / wavelength - low) / (high - low)
    return 1 / ((1 - smooth) / rope["factor"] + smooth)


def mxfp4_block(scale, raw):
    """From elements side by side in a byte to i and i + 16."""
    q = [n for b in raw for n in (b & 15, b >> 4)]
    return bytes([scale]) + bytes(q[i] | q[i + 16] << 4 for i in range(16))


def form(m):
    f = Form(m)
    f.hyper_parameters()
    return f


# ---- variants of the form: each changes a Form, or its tensors ----
def split_experts(f, tensors):
    """Mixtral's first files."""
    for name, shape, kind, raw in tensors:
        if "_exps" not in name:
            yield name, shape, kind, raw
            continue
        one = len(raw) // shape[0]
        for e in range(shape[0]):
            yield name.replace("_exps", ".%d" % e), shape[1:], kind, raw[e * one:(e + 1) * one]


def fused_qkv(f, tensors):
    """Phi-2's first files."""
    of = {name: (shape, kind, raw) for name, shape, kind, raw in tensors}
    for i in range(f.c["num_hidden_layers"]):
        for ending in ("weight", "bias"):
            parts = [of.pop("blk.%d.attn_%s.%s" % (i, w, ending)) for w in "qkv"]
            of["blk.%d.attn_qkv.%s" % (i, ending)] = ([sum(p[0][0] for p in parts)] + parts[0][0][1:], parts[0][1], b"".join(p[2] for p in parts))
    return [(name, *t) for name, t in of.items()]


def output_too(f, tensors):
    """Tied, and the table stored twice, as GPT-2's first files have it."""
    tensors = list(tensors)
    shape, kind, raw = next(t[1:] for t in tensors if t[0] == "token_embd.weight")
    return tensors + [("output.weight", shape, kind, raw)]


def attn_factor(f, tensors):
    """Longrope's factor of sin and cos as converters compute it."""
    ratio = f.c["max_position_embeddings"] / f.keys["rope.scaling.original_context_length"][1]
    f.key("rope.scaling.attn_factor", F32, math.sqrt(1 + math.log(ratio) / math.log(f.keys["rope.scaling.original_context_length"][1])))
    return tensors


def newer_gemma3(f, tensors):
    f.key("attention.sliding_window_pattern", U32, 6)
    f.key("rope.freq_base_swa", F32, 10000.0)
    return tensors


def per_layer(f, tensors):
    """As programs write them that have models with layers of different sizes."""
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        f.keys[key] = (U32, [f.keys[key][1]] * f.c["num_hidden_layers"])
    return tensors


def without(*keys):
    def change(f, tensors):
        for key in keys:
            f.keys.pop(key, None)
        return tensors
    return change


def unknown(f, tensors):
    f.key("rope.scaling.finetuned", BOOL, True)
    f.keys["attention.mood"] = (STR, ["calm", "bright"])
    return list(tensors) + [("mood.weight", [3], TENSOR_F32, bytes(12)), ("blk.0.attn_rot_embd.weight", [3], TENSOR_F32, bytes(12))]


def one_gate_up(f, tensors):
    """Gates and ups of all experts in one tensor, as newer converters may write them."""
    found = {name: (shape, kind, raw) for name, shape, kind, raw in tensors}
    for name, (shape, kind, raw) in found.items():
        if name.endswith("ffn_gate_exps.weight"):
            other = found[name.replace("gate", "up")][2]
            one = len(raw) // shape[0]
            both = b"".join(raw[i * one:(i + 1) * one] + other[i * one:(i + 1) * one] for i in range(shape[0]))
            yield name.replace("gate", "gate_up"), [shape[0], 2 * shape[1], shape[2]], kind, both
        elif not name.endswith("ffn_up_exps.weight"):
            yield name, shape, kind, raw


def gating(f, tensors):
    f.key("expert_gating_func", U32, 1)  # softmax
    f.key("expert_weights_scale", F32, 1.0)
    return tensors


def qwen2vl(f, tensors):
    """The text of Qwen2-VL: Qwen2 under another name, with M-RoPE's sections, whose positions are equal in a text."""
    f.arch = "qwen2vl"
    f.keys["rope.dimension_sections"] = (gguf.I32, [2, 1, 1, 0])
    return tensors


def named(arch, **more):
    """The same under another architecture's name, whose graph it is."""
    def change(f, tensors):
        f.arch = arch
        for key, value in more.items():
            f.key(key, BOOL, value)
        return tensors
    return change


EVERY = ["ernie4.5-moe", "ernie4.5-moe-plain", "gemma", "gemma2", "gemma3", "gemma4", "gpt-oss", "gpt-oss-mxfp4", "gpt-oss-odd", "gpt2", "granite", "llama", "llama-layers", "llama-sharded", "llama-wide", "llama-yarn", "llama3-rope",
         "mistral-plain", "mistral-window", "mixtral", "mixtral-top3", "olmo2", "olmo2-bias", "phi2", "phi2-wide", "phi3", "phi3-long", "phi3-short", "qwen2", "qwen2-window",
         "qwen3", "qwen3-moe", "qwen3-moe-raw", "stablelm", "stablelm-parallel"]
VARIANTS = [("mixtral", split_experts, {}), ("mixtral-top3", split_experts, {}), ("phi2", fused_qkv, {}), ("phi2-wide", fused_qkv, {}), ("gpt2", output_too, {}),
            ("gemma", output_too, {}), ("phi3", attn_factor, {}), ("gemma3", newer_gemma3, {}),
            ("gpt-oss", without("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"), {}), ("qwen3-moe", gating, {}), ("mixtral", gating, {}), ("mixtral", one_gate_up, {}),
            ("qwen3-moe", one_gate_up, {}),
            ("qwen3-moe", without("feed_forward_length"), {}), ("llama-wide", per_layer, {}), ("gemma3", per_layer, {}),
            ("qwen3", unknown, {}), ("llama", unknown, {"version": 2}), ("llama", unknown, {"alignment": 4096}), ("qwen2", unknown, {"version": 2, "alignment": 8}), ("qwen2", qwen2vl, {}),
            ("llama", named("internlm2"), {}), ("llama", named("baichuan"), {}), ("llama", named("xverse"), {}), ("qwen2", named("exaone"), {}),
            ("qwen3", named("qwen3vl"), {}), ("qwen3-moe", named("qwen3vlmoe"), {}), ("mixtral", named("bailingmoe"), {}),
            ("mixtral", named("deepseek", expert_weights_norm=True), {})]


def write(name, m, change=None, **how):
    """The path of the model as a GGUF file."""
    f = form(m)
    tensors = f.tensors()
    if change:
        tensors = list(change(f, tensors))
    pairs = f.pairs()
    if "alignment" in how:
        pairs.append(pair("general.alignment", U32, how["alignment"]))
    return gguf.write(os.path.join(models.place(), name + ".gguf"), pairs, tensors, **how)


def beside_safetensors(name, what, m, change=None):
    """For what no fixture has: the same model from a folder and from a GGUF file."""
    models.same_as_model("%s as GGUF%s" % (name, what), write(name, m, change), m.write(models.place()), models.prompt("llama"))


def every_fourth():
    m = models.fixture("smollm3")
    m.config["no_rope_layers"] = [1, 1, 1, 0]
    return m


def other_yarn():
    m = models.fixture("qwen3")
    m.config["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 8.0,
                                   "beta_slow": 0.5, "attention_factor": 1.4}
    return m


def deep_gemma2():
    """As many layers as the 27B, whose scale is that of n_embd / n_head; made of Gemma's, for its heads are not so wide."""
    m = models.fixture("gemma")
    tensors = {name: t for name, t in m.tensors.items() if ".layers." not in name}
    for i in range(46):
        for name, t in m.tensors.items():
            if ".layers.%d." % (i % 2) not in name:
                continue
            name = name.replace(".layers.%d." % (i % 2), ".layers.%d." % i)
            tensors[name] = t
            if "post_attention_layernorm" in name:
                tensors[name.replace("post_attention", "pre_feedforward")] = tensors[name.replace("post_attention", "post_feedforward")] = t
    m.tensors = tensors
    m.config.update(model_type="gemma2", architectures=["Gemma2ForCausalLM"], num_hidden_layers=46, query_pre_attn_scalar=m.config["hidden_size"] // 4,
                    sliding_window=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, hidden_activation="gelu_pytorch_tanh")
    return m


def main():
    wanted = sys.argv[1:]
    for name, change, how in [(name, None, {}) for name in EVERY] + VARIANTS:
        if not wanted or name in wanted:
            what = ", " + getattr(change, "__name__", "") if change else ""
            models.same_as_fixture("%s as GGUF%s" % (name, what), write(name, models.fixture(name), change, **how), name)
    if not wanted or "smollm3" in wanted:
        beside_safetensors("smollm3", "", every_fourth())
    if not wanted or "qwen3" in wanted:
        beside_safetensors("qwen3", " with yarn", other_yarn())
    if not wanted or "gemma2" in wanted:
        beside_safetensors("gemma2", " of 46 layers", deep_gemma2(), without("attention.scale"))
    models.finish()


if __name__ == "__main__":
    main()
