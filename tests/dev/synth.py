#!/usr/bin/env python3
"""Writes a model of the shape of a published one with random weights: what benchmarks of docs/performance.md and docs/lab run.

  synth.py SHAPE TYPE OUT [--layers N] [--mtp] [--jobs N] [--seed S] [--router-skew Z]
  synth.py SHAPE lora OUT [--layers N] [--count N] [--rank R]
  synth.py --list

TYPE is that of the matrices. Those of GGUF (OUT is a file): f32, f16, bf16 and every quantised type. Experts of gpt-oss are mxfp4 in any case; vectors,
routers and convolutions are f32. Those of dense models in Hugging Face layout (OUT is a folder): f8 (a scale for each row, as compressed-tensors), f8_128
(in blocks of 128, as DeepSeek), nvfp4_folder (ModelOpt), w4a16 and w8a8 (compressed-tensors), nf4 (bitsandbytes), mlx2 to mlx8, mxfp8 (MLX). lora: OUT is a
folder of N adapters of all matrices, OUT/0, OUT/1 and so on. --mtp: a draft head behind the layers of qwen3-next-80b-a3b or qwen3.6-27b.
Blocks are drawn, not quantised from floats, with scales that keep activations finite: a file is written as fast as the disk takes it (several
processes write parts of it). Tensors above 64 MB repeat a random part, so that equal experts are no cache hits but equal bytes. The vocabulary
is a dummy of the right size; folders have none. Needs numpy.
--router-skew: random routers use all experts alike; with Z above 0 the rows of each layer's router are longer by 1 + Z ln(E / rank), in an order that is
drawn, so that few experts get most of the choices (0.5 is much).
"""
import argparse
import functools
import os
import struct
import sys

import numpy as np

import synth_draw as draw
import synth_folder

ALIGN = 32


def hybrid(period, at):
    return lambda i: i % period == at


SHAPES = {
    "tinyllama-1.1b": dict(arch="llama", vocab=32000, dim=2048, layers=22, heads=32, kv=4, head=64, ffn=5632, context=2048, theta=1e4),
    "mistral-7b": dict(arch="llama", vocab=32000, dim=4096, layers=32, heads=32, kv=8, head=128, ffn=14336, context=32768, theta=1e6),
    "gpt-oss-20b": dict(arch="gpt-oss", vocab=201088, dim=2880, layers=24, heads=64, kv=8, head=64, ffn=2880, context=131072, theta=150000.0,
                        experts=32, used=4, window=128),
    "gpt-oss-120b": dict(arch="gpt-oss", vocab=201088, dim=2880, layers=36, heads=64, kv=8, head=64, ffn=2880, context=131072, theta=150000.0,
                         experts=128, used=4, window=128),
    "qwen3-next-80b-a3b": dict(arch="qwen3next", vocab=151936, dim=2048, layers=48, heads=16, kv=2, head=256, ffn=5120, context=262144,
                               theta=1e7, rotary=64, experts=512, used=10, expert=512, shared=512, state=128, groups=16, ranks=32,
                               inner=4096, conv=4, attends=hybrid(4, 3)),
    "qwen3.6-27b": dict(arch="qwen35", vocab=248320, dim=5120, layers=64, heads=24, kv=4, head=256, ffn=17408, context=262144, theta=1e7,
                        rotary=64, state=128, groups=16, ranks=48, inner=6144, conv=4, attends=hybrid(4, 3)),
    "granite4-h-small": dict(arch="granitehybrid", vocab=100352, dim=4096, layers=40, heads=32, kv=8, head=128, ffn=768, context=131072,
                             theta=1e4, experts=72, used=10, expert=768, shared=1536, state=128, groups=1, ranks=128, inner=8192, conv=4,
                             attends=hybrid(10, 5)),
    # 3 layers are dense: --layers 5 has two with experts
    "deepseek-v3": dict(arch="deepseek2", vocab=129280, dim=7168, layers=61, heads=128, kv=1, head=576, head_v=512, ffn=18432, context=163840,
                        theta=1e4, rotary=64, experts=256, used=8, expert=2048, shared=2048, dense=3, groups_of_experts=(8, 4), scores="sigmoid",
                        latent=dict(q=1536, kv=512, key=192, value=128)),
    "deepseek-v2-lite": dict(arch="deepseek2", vocab=102400, dim=2048, layers=27, heads=16, kv=1, head=576, head_v=512, ffn=10944,
                             context=163840, theta=1e4, rotary=64, experts=64, used=6, expert=1408, shared=2816, dense=1,
                             latent=dict(q=0, kv=512, key=192, value=128)),
}


# ---- tensors --------------------------------------------------------------------------------------
def attention(s, p, t):
    gate = 2 if s["arch"] in ("qwen3next", "qwen35") else 1
    dims = {"attn_q": (gate * s["heads"] * s["head"], s["dim"]), "attn_k": (s["kv"] * s["head"], s["dim"]),
            "attn_v": (s["kv"] * s["head"], s["dim"]), "attn_output": (s["dim"], s["heads"] * s["head"])}
    for name, shape in dims.items():
        yield p + name + ".weight", shape, t
        if s["arch"] == "gpt-oss":
            yield p + name + ".bias", shape[:1], "f32"
    if gate == 2:
        yield p + "attn_q_norm.weight", (s["head"],), "ones"
        yield p + "attn_k_norm.weight", (s["head"],), "ones"
    if s["arch"] == "gpt-oss":
        yield p + "attn_sinks.weight", (s["heads"],), "f32"


def latent_attention(s, p, t):
    n = s["latent"]
    heads, rotary = s["heads"], s["rotary"]
    yield p + "attn_kv_a_mqa.weight", (n["kv"] + rotary, s["dim"]), t
    yield p + "attn_kv_a_norm.weight", (n["kv"],), "ones"
    yield p + "attn_k_b.weight", (heads, n["kv"], n["key"] - rotary), t
    yield p + "attn_v_b.weight", (heads, n["value"], n["kv"]), t
    yield p + "attn_output.weight", (s["dim"], heads * n["value"]), t
    if not n["q"]:
        yield p + "attn_q.weight", (heads * n["key"], s["dim"]), t
        return
    yield p + "attn_q_a.weight", (n["q"], s["dim"]), t
    yield p + "attn_q_a_norm.weight", (n["q"],), "ones"
    yield p + "attn_q_b.weight", (heads * n["key"], n["q"]), t


def recurrence(s, p, t):
    keys = s["groups"] * s["state"]
    of_heads = (s["ranks"],)
    if s["arch"] == "granitehybrid":
        width = s["inner"] + 2 * keys
        yield p + "ssm_in.weight", (s["inner"] + width + s["ranks"], s["dim"]), t
        yield p + "ssm_conv1d.bias", (width,), "f32"
        yield p + "ssm_d", of_heads + (1,), "ones"
        yield p + "ssm_a", of_heads + (1,), "minus"
        yield p + "ssm_norm.weight", (s["groups"], s["inner"] // s["groups"]), "ones"
    else:
        width = s["inner"] + 2 * keys
        yield p + "ssm_a", of_heads, "minus"
        yield p + "ssm_norm.weight", (s["state"],), "ones"
        if s["arch"] == "qwen3next":
            yield p + "ssm_in.weight", (width + s["inner"], s["dim"]), t
            yield p + "ssm_ba.weight", (2 * s["ranks"], s["dim"]), t
        else:
            yield p + "attn_qkv.weight", (width, s["dim"]), t
            yield p + "attn_gate.weight", (s["inner"], s["dim"]), t
            yield p + "ssm_alpha.weight", (s["ranks"], s["dim"]), t
            yield p + "ssm_beta.weight", (s["ranks"], s["dim"]), t
    yield p + "ssm_conv1d.weight", (width, s["conv"]), "f32"
    yield p + "ssm_dt.bias", of_heads, "f32"
    yield p + "ssm_out.weight", (s["dim"], s["inner"]), t


def feed_forward(s, p, t, dense=False):
    if "experts" not in s or dense:
        yield p + "ffn_gate.weight", (s["ffn"], s["dim"]), t
        yield p + "ffn_up.weight", (s["ffn"], s["dim"]), t
        yield p + "ffn_down.weight", (s["dim"], s["ffn"]), t
        return
    n = s["experts"]
    width = s.get("expert", s["ffn"])
    of_experts = "mxfp4" if s["arch"] == "gpt-oss" else t
    yield p + "ffn_gate_inp.weight", (n, s["dim"]), "f32"
    if "scores" in s:
        yield p + "exp_probs_b.bias", (n,), "f32"
    for name, shape in {"gate": (n, width, s["dim"]), "up": (n, width, s["dim"]), "down": (n, s["dim"], width)}.items():
        yield p + "ffn_%s_exps.weight" % name, shape, of_experts
        if s["arch"] == "gpt-oss":
            yield p + "ffn_%s_exps.bias" % name, shape[:2], "f32"
    if s["arch"] == "gpt-oss":
        yield p + "ffn_gate_inp.bias", (n,), "f32"
    if "shared" in s:
        yield p + "ffn_gate_shexp.weight", (s["shared"], s["dim"]), t
        yield p + "ffn_up_shexp.weight", (s["shared"], s["dim"]), t
        yield p + "ffn_down_shexp.weight", (s["dim"], s["shared"]), t
        if s["arch"] == "qwen3next":
            yield p + "ffn_gate_inp_shexp.weight", (1, s["dim"]), "f32"


def tensors(s, t):
    yield "token_embd.weight", (s["vocab"], s["dim"]), t
    if s["arch"] != "granitehybrid":
        yield "output.weight", (s["vocab"], s["dim"]), t
    yield "output_norm.weight", (s["dim"],), "ones"
    behind = "post_attention_norm" if s["arch"] in ("gpt-oss", "qwen3next", "qwen35") else "ffn_norm"
    for i in range(s["layers"] + s["mtp"]):
        p = "blk.%d." % i
        is_head = i >= s["layers"]
        yield p + "attn_norm.weight", (s["dim"],), "ones"
        yield p + behind + ".weight", (s["dim"],), "ones"
        attends = latent_attention if "latent" in s else attention
        yield from attends(s, p, t) if is_head or s.get("attends", lambda _: True)(i) else recurrence(s, p, t)
        yield from feed_forward(s, p, t, i < s.get("dense", 0))
        if is_head:
            yield p + "nextn.eh_proj.weight", (s["dim"], 2 * s["dim"]), t
            for norm in ("enorm", "hnorm", "shared_head_norm"):
                yield p + "nextn." + norm + ".weight", (s["dim"],), "ones"


def kind_of(kind, shape):
    """The type that a tensor is stored in: rows that do not fill blocks are f16."""
    if kind in ("ones", "minus"):
        return "f32"
    return kind if shape[-1] % draw.GGUF[kind][1] == 0 else "f16"


def size_of(kind, shape):
    _, elements, size, *_ = draw.GGUF[kind_of(kind, shape)]
    return int(np.prod(shape)) // elements * size


def skewed(shape, skew, rng, size):
    """A router whose rows are longer the higher the rank that is drawn for their expert."""
    rows = draw.values("f32", shape[-1], rng, size).view(np.float32).reshape(shape)
    rank = rng.permutation(shape[0]) + 1
    rows *= (1 + skew * np.log(shape[0] / rank)).astype(np.float32)[:, None]
    return rows.reshape(-1).view(np.uint8)


def fill_of(kind, shape, name, skew):
    if skew and name.endswith("ffn_gate_inp.weight"):
        return functools.partial(skewed, shape, skew)
    if kind in ("ones", "minus"):
        return getattr(draw, kind)
    return functools.partial(draw.blocks, kind_of(kind, shape), shape[-1])


# ---- the file -------------------------------------------------------------------------------------
def text(x):
    b = x.encode()
    return struct.pack("<Q", len(b)) + b


def entry(key, value):
    if isinstance(value, bool):
        return text(key) + struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value[0], str):
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    kind, code = (5, "<i") if isinstance(value[0], int) else (6, "<f")
    return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + b"".join(struct.pack(code, v) for v in value)


def metadata(name, s):
    a = s["arch"] + "."
    attends = s.get("attends", lambda _: True)
    heads_kv = [s["kv"] if attends(i) else 0 for i in range(s["layers"])]
    m = {"general.architecture": s["arch"], "general.name": name, a + "vocab_size": s["vocab"], a + "context_length": s["context"],
         a + "embedding_length": s["dim"], a + "block_count": s["layers"] + s["mtp"], a + "feed_forward_length": s["ffn"],
         a + "attention.head_count": s["heads"], a + "attention.head_count_kv": heads_kv if s["arch"] == "granitehybrid" else s["kv"],
         a + "attention.key_length": s["head"], a + "attention.value_length": s.get("head_v", s["head"]), a + "attention.layer_norm_rms_epsilon": 1e-6,
         a + "rope.freq_base": s["theta"], a + "rope.dimension_count": s.get("rotary", s["head"])}
    if "experts" in s:
        m.update({a + "expert_count": s["experts"], a + "expert_used_count": s["used"],
                  a + "expert_feed_forward_length": s.get("expert", s["ffn"])})
    if "shared" in s:
        m.update({a + "expert_shared_feed_forward_length": s["shared"], a + "expert_weights_norm": True})
    if "latent" in s:
        n = s["latent"]
        m.update({a + "attention.kv_lora_rank": n["kv"], a + "attention.key_length_mla": n["key"], a + "attention.value_length_mla": n["value"],
                  a + "leading_dense_block_count": s["dense"], a + "expert_shared_count": s["shared"] // s["expert"],
                  a + "expert_weights_scale": 2.5 if "scores" in s else 1.0, a + "expert_weights_norm": "scores" in s,
                  a + "expert_gating_func": 2 if "scores" in s else 1})
        if n["q"]:
            m[a + "attention.q_lora_rank"] = n["q"]
        if "groups_of_experts" in s:
            m[a + "expert_group_count"], m[a + "expert_group_used_count"] = s["groups_of_experts"]
    if "state" in s:
        m.update({a + "ssm.conv_kernel": s["conv"], a + "ssm.state_size": s["state"], a + "ssm.group_count": s["groups"],
                  a + "ssm.time_step_rank": s["ranks"], a + "ssm.inner_size": s["inner"]})
    if s["arch"] == "granitehybrid":
        m.update({a + "embedding_scale": 1.0, a + "residual_scale": 0.22, a + "attention.scale": 1.0 / s["head"], a + "logit_scale": 1.0,
                  a + "rope.scaling.finetuned": False})
        del m[a + "expert_weights_norm"]
    if s["mtp"]:
        m[a + "nextn_predict_layers"] = s["mtp"]
    if s["arch"] == "qwen35":
        m[a + "rope.dimension_sections"] = [11, 11, 10, 0]
    if "window" in s:
        m[a + "attention.sliding_window"] = s["window"]
    m.update({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"] + ["t%d" % i for i in range(3, s["vocab"])],
              "tokenizer.ggml.scores": [-float(i) for i in range(s["vocab"])], "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (s["vocab"] - 3),
              "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0})
    return m


def write(name, s, t, path, seed, jobs, skew=0):
    m = metadata(name, s)
    listed = list(tensors(s, t))
    head = struct.pack("<IIQQ", 0x46554747, 3, len(listed), len(m)) + b"".join(entry(k, v) for k, v in m.items())
    at, work = 0, []
    for n, shape, kind in listed:
        stored, size = draw.GGUF[kind_of(kind, shape)], size_of(kind, shape)
        head += text(n) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        head += struct.pack("<IQ", stored[0], at)
        work.append((at, size, stored[2], fill_of(kind, shape, n, skew), [seed, *n.encode()]))
        at += (size + ALIGN - 1) // ALIGN * ALIGN
    draw.write(path, head + bytes(-len(head) % ALIGN), at, work, jobs)


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(SHAPES))
        return
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("type", choices=[*draw.GGUF, *synth_folder.FORMS, "lora"])
    p.add_argument("out")
    p.add_argument("--layers", type=int)
    p.add_argument("--mtp", action="store_true")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--router-skew", type=float, default=0, help="of GGUF files")
    p.add_argument("--count", type=int, default=1, help="of adapters")
    p.add_argument("--rank", type=int, default=16, help="of adapters")
    a = p.parse_args()
    s = dict(SHAPES[a.shape])
    s["layers"] = a.layers or s["layers"]
    s["mtp"] = int(a.mtp)
    if a.mtp and not (a.type in draw.GGUF and s["arch"] in ("qwen3next", "qwen35")):
        sys.exit("--mtp: %s of type %s has no draft head; qwen3-next-80b-a3b and qwen3.6-27b in a type of GGUF have one" % (a.shape, a.type))
    if a.type in draw.GGUF:
        write(a.shape, s, a.type, a.out, a.seed, a.jobs, a.router_skew)
    elif a.router_skew:
        sys.exit("--router-skew is of GGUF files, not of %s" % a.type)
    elif s["arch"] != "llama":
        sys.exit("%s is no dense model of the llama kind: %s has %s" % (a.shape, a.type, ", ".join(n for n in SHAPES if SHAPES[n]["arch"] == "llama")))
    elif a.type == "lora":
        synth_folder.write_adapters(s, a.out, a.count, a.rank, a.seed, a.jobs)
    else:
        synth_folder.write(s, a.type, a.out, a.seed, a.jobs)


if __name__ == "__main__":
    main()
