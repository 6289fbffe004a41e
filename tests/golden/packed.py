#!/usr/bin/env python3
"""packed.py mlx|f8|nvfp4|compressed|gptq|awq|bnb|hqq|torchao: quantised SafeTensors against the same weights written out in F32.

Random tiny models are packed here, after the layouts of the formats, and once more stored as the values that the packed bytes stand
for; the device reference must give the same logits for both, and cpu_simd in class exact those of the second. The plain form is held against Transformers by the fixtures."""
import json
import math
import random
import struct
import sys

import models

PROMPT = [1, 17, 140, 3, 99, 42, 7, 7, 155, 64, 31, 8, 120, 77, 2, 5]
VOCAB = 160


def config(model_type, **more):
    c = {"model_type": model_type, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 32, "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}
    c.update(more)
    return c


def shapes(c):
    """Matrices of a layer: name -> shape."""
    d, f, hd = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    if c["model_type"] == "phi3":
        return {"self_attn.qkv_proj": (q + 2 * kv, d), "self_attn.o_proj": (d, q), "mlp.gate_up_proj": (2 * f, d), "mlp.down_proj": (d, f)}
    out = {"self_attn.q_proj": (q, d), "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d), "self_attn.o_proj": (d, q)}
    if c["model_type"] == "qwen3_moe":
        n, f = c["num_experts"], c["moe_intermediate_size"]
        out.update({"mlp.gate": (n, d), "mlp.switch_mlp.gate_proj": (n, f, d), "mlp.switch_mlp.up_proj": (n, f, d), "mlp.switch_mlp.down_proj": (n, d, f)})
    else:
        out.update({"mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)})
    return out


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def f32(shape, values):
    return ("F32", list(shape), struct.pack("<%df" % len(values), *values))


def build(c, pack, rng, of=shapes):
    """(packed, plain). pack(stem, shape, rng) -> ({ending: tensor}, values), or None for a matrix that stays as it is."""
    packed, plain = {}, {}

    def put(name, shape, values):
        packed[name] = plain[name] = f32(shape, values)

    def matrix(stem, shape):
        done = pack(stem, shape, rng)
        if not done:
            put(stem + ".weight", shape, [rng.gauss(0, 1.2 / shape[-1] ** 0.5) for _ in range(product(shape))])
            return
        for ending, tensor in done[0].items():
            packed[stem + ending] = tensor
        plain[stem + ("" if "" in done[0] else ".weight")] = f32(shape, done[1])

    def norm(name, n):
        put(name + ".weight", [n], [rng.uniform(0.6, 1.4) for _ in range(n)])

    d = c["hidden_size"]
    matrix("model.embed_tokens", (VOCAB, d))
    matrix("lm_head", (VOCAB, d))
    norm("model.norm", d)
    for i in range(c["num_hidden_layers"]):
        layer = "model.layers.%d." % i
        norm(layer + "input_layernorm", d)
        norm(layer + "post_attention_layernorm", d)
        if c["model_type"].startswith("qwen3"):
            norm(layer + "self_attn.q_norm", c["head_dim"])
            norm(layer + "self_attn.k_norm", c["head_dim"])
        if "kv_lora_rank" in c:
            norm(layer + "self_attn.kv_a_layernorm", c["kv_lora_rank"])
        for name, shape in of(c).items():
            matrix(layer + name, shape)
    return packed, plain


def compare(what, c, more, pack, seed=1, pad=8, order=models.as_written, of=shapes, limit=2e-6):
    rng = random.Random(seed)
    packed, plain = build(c, pack, rng, of)
    models.same_as_model(what, models.Model(dict(c, **more), packed, order).write(models.place(), pad), models.Model(c, plain).write(models.place()), PROMPT, limit)


# ---- 16-bit floats: rounded down to what they can hold, so that both forms have the same scale ----
def half(v, kind):
    """(value, bytes)"""
    if kind == "F32":
        raw = struct.pack("<f", v)
        return struct.unpack("<f", raw)[0], raw
    if kind == "F16":
        raw = struct.pack("<e", v)
        return struct.unpack("<e", raw)[0], raw
    if kind == "F8_E8M0":
        e = round(math.log2(v))
        return 2.0 ** e, bytes([e + 127])
    raw = struct.pack("<f", v)[2:]
    return struct.unpack("<f", b"\0\0" + raw)[0], raw


# ---- MLX ----
def affine(bits, group, kind):
    def pack(_, shape, rng):
        n, words, scales, biases, values = product(shape), 0, b"", b"", []
        spread = 4.0 / ((1 << bits) - 1) / shape[-1] ** 0.5
        for g in range(n // group):
            s, raw_s = half(spread * rng.uniform(0.5, 1.5) * rng.choice((-1, 1)), kind)
            b, raw_b = half(-s * ((1 << bits) - 1) / 2 * rng.uniform(0.9, 1.1), kind)
            scales, biases = scales + raw_s, biases + raw_b
            for i in range(group):
                q = rng.getrandbits(bits)
                words |= q << bits * i
                values.append(s * q + b)
            stream.extend(words.to_bytes(group * bits // 8, "little"))
            words = 0
        rows = list(shape[:-1])
        raw = bytes(stream)
        stream.clear()
        return {".weight": ("U32", rows + [shape[-1] * bits // 32], raw), ".scales": (kind, rows + [shape[-1] // group], scales),
                ".biases": (kind, rows + [shape[-1] // group], biases)}, values
    stream = bytearray()
    return pack


FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def mxfp4(_, shape, rng):
    raw, scales, values = bytearray(), bytearray(), []
    for _ in range(product(shape) // 32):
        e = rng.randint(121, 124)
        scales.append(e)
        q = [rng.getrandbits(4) for _ in range(32)]
        values += [(-1 if x & 8 else 1) * FP4[x & 7] * 2.0 ** (e - 127) for x in q]
        raw += bytes(q[i] | q[i + 1] << 4 for i in range(0, 32, 2))
    rows = list(shape[:-1])
    return {".weight": ("U32", rows + [shape[-1] // 8], bytes(raw)), ".scales": ("U8", rows + [shape[-1] // 32], bytes(scales))}, values


def mxfp8(_, shape, rng):
    raw = bytes(rng.choices(NUMBERS, k=product(shape)))
    scales = bytes(rng.randint(113, 116) for _ in range(product(shape) // 32))
    values = [E4M3[b] * 2.0 ** (scales[i // 32] - 127) for i, b in enumerate(raw)]
    rows = list(shape[:-1])
    return {".weight": ("U32", rows + [shape[-1] // 4], raw), ".scales": ("U8", rows + [shape[-1] // 32], scales)}, values


def mlx_nvfp4(_, shape, rng):
    """Scales of F8, which MLX stores as U8, and none for the tensor."""
    raw, scales, values = bytearray(), bytearray(), []
    for _ in range(product(shape) // 16):
        s = rng.randrange(0x04, 0x18)  # 2^-7 to 2^-4
        q = [rng.getrandbits(4) for _ in range(16)]
        scales.append(s)
        values += [(-1 if x & 8 else 1) * FP4[x & 7] * E4M3[s] for x in q]
        raw += bytes(q[i] | q[i + 1] << 4 for i in range(0, 16, 2))
    rows = list(shape[:-1])
    return {".weight": ("U32", rows + [shape[-1] // 8], bytes(raw)), ".scales": ("U8", rows + [shape[-1] // 16], bytes(scales))}, values


def by_name(rules, usual):
    """The first rule whose text is in the name."""
    def pack(stem, shape, rng):
        how = next((how for text, how in rules if text in stem), usual)
        return how and how(stem, shape, rng)
    return pack


def mlx():
    kinds = {32: "F16", 64: "BF16", 128: "F32"}
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            compare("mlx %d bits, groups of %d, %s" % (bits, group, kinds[group]), config("llama"), {"quantization": {"bits": bits, "group_size": group}},
                    affine(bits, group, kinds[group]), bits * 1000 + group)
    compare("mlx, q k v in one matrix", config("phi3"), {"quantization": {"bits": 3, "group_size": 64, "mode": "affine"}}, affine(3, 64, "BF16"))
    compare("mlx mxfp4", config("llama"), {"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, mxfp4)
    compare("mlx mxfp4, q k v in one matrix", config("phi3"), {"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, mxfp4)
    for mode, bits, group, pack in (("mxfp8", 8, 32, mxfp8), ("nvfp4", 4, 16, mlx_nvfp4)):
        how = {"quantization": {"bits": bits, "group_size": group, "mode": mode}}
        compare("mlx " + mode, config("llama"), how, pack)
        compare("mlx %s, q k v in one matrix, the data at an odd place" % mode, config("phi3"), how, pack, pad=1)
    compare("mlx 4 bits, as MLX writes files: the data at an odd place", config("llama"), {"quantization": {"bits": 4, "group_size": 64}}, affine(4, 64, "BF16"), pad=1)
    own = {"bits": 4, "group_size": 64, "model.embed_tokens": {"bits": 6, "group_size": 64}, "lm_head": False, "model.layers.0.self_attn.v_proj": {"bits": 8, "group_size": 32},
           "model.layers.1.self_attn.v_proj": {"bits": 2, "group_size": 128}, "model.layers.1.mlp.down_proj": False, "model.layers.0.mlp.down_proj": True}
    rules = [("embed_tokens", affine(6, 64, "F16")), ("lm_head", None), ("layers.0.self_attn.v", affine(8, 32, "F16")), ("layers.1.self_attn.v", affine(2, 128, "F16")),
             ("layers.1.mlp.down", None)]
    pack = by_name(rules, affine(4, 64, "F16"))
    compare("mlx, matrices with bits of their own", config("llama"), {"quantization": own, "quantization_config": own}, pack)
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    gates = {"model.layers.%d.mlp.gate" % i: {"bits": 8, "group_size": 64} for i in range(2)}
    compare("mlx, in any order", config("llama"), {"quantization": own}, pack, order=models.shuffled)
    other = {"language_model." + name if isinstance(v, (dict, bool)) else name: v for name, v in own.items()}
    compare("mlx, bits listed under another prefix", config("llama"), {"quantization": other}, pack)
    compare("mlx, bits that are not listed", config("llama"), {"quantization": {"bits": 4, "group_size": 64}},
            by_name([("mlp.down", affine(6, 64, "F16")), ("self_attn.v", affine(8, 64, "F16"))], affine(4, 64, "F16")))
    compare("mlx, experts", experts, {"quantization": dict(gates, bits=4, group_size=32)}, by_name([(".mlp.gate", affine(8, 64, "BF16"))], affine(4, 32, "BF16")))
    for mode, bits, group, pack in (("mxfp8", 8, 32, mxfp8), ("nvfp4", 4, 16, mlx_nvfp4)):
        compare("mlx, %s experts" % mode, experts, {"quantization": dict(gates, bits=bits, group_size=group, mode=mode)}, by_name([(".mlp.gate", affine(8, 64, "BF16"))], pack))
    compare("mlx, mxfp4 experts", experts, {"quantization": dict(gates, bits=4, group_size=32, mode="mxfp4")}, by_name([(".mlp.gate", affine(8, 64, "BF16"))], mxfp4))


# ---- F8 ----
def e4m3(b):
    m = (b & 7) / 8
    v = m * 2.0 ** -6 if b >> 3 & 15 == 0 else (1 + m) * 2.0 ** ((b >> 3 & 15) - 7)
    return -v if b & 128 else v


E4M3 = [e4m3(b) for b in range(256)]
NUMBERS = [b for b in range(256) if b & 127 != 127]


def f8(kind, ending, grid):
    """grid(shape) -> (rows, columns) that share a scale, and the shape in which the scales are stored."""
    def pack(stem, shape, rng):
        if "embed" in stem or "lm_head" in stem or stem.endswith("mlp.gate"):
            return None
        n, k = shape
        rows, cols, stored = grid(shape)
        across = -(-k // cols)
        scales = [half(rng.uniform(0.5, 1.5) / 300 / k ** 0.5 * 3, kind) for _ in range(-(-n // rows) * across)]
        raw, values = bytes(rng.choices(NUMBERS, k=n * k)), []
        for at in range(0, n * k, cols):
            s = scales[at // k // rows * across + at % k // cols][0]
            values += [E4M3[b] * s for b in raw[at:at + cols]]
        return {".weight": ("F8_E4M3", [n, k], raw), ending: (kind, stored, b"".join(s for _, s in scales)),
                ".input_scale": (kind, [1], half(0.5, kind)[1])}, values
    return pack


def nvfp4(stem, shape, rng):
    """As ModelOpt writes it: nibbles, a scale of F8 for each 16, one F32 for all."""
    if "embed" in stem or "lm_head" in stem or stem.endswith("mlp.gate"):
        return None
    n, k = shape
    whole, whole_raw = half(rng.uniform(0.5, 1.5) / 400 / k ** 0.5, "F32")
    raw, scales, values = bytearray(), bytearray(), []
    for _ in range(n * k // 16):
        s = rng.randrange(0x20, 0x7f)  # 2^-3 to 448
        q = [rng.getrandbits(4) for _ in range(16)]
        scales.append(s)
        values += [(-1 if x & 8 else 1) * FP4[x & 7] * E4M3[s] * whole for x in q]
        raw += bytes(q[i] | q[i + 1] << 4 for i in range(0, 16, 2))
    return {".weight": ("U8", [n, k // 2], bytes(raw)), ".weight_scale": ("F8_E4M3", [n, k // 16], bytes(scales)),
            ".weight_scale_2": ("F32", rng.choice(([], [1])), whole_raw), ".input_scale": ("F32", [], half(0.5, "F32")[1])}, values


def nvfp4_all():
    how = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "config_groups": {}}}
    compare("nvfp4", config("llama"), how, nvfp4)
    compare("nvfp4, not announced", config("llama"), {}, nvfp4)
    compare("nvfp4, q k v in one matrix", config("phi3"), how, nvfp4)
    compare("nvfp4, scales behind their weights", config("llama"), how, nvfp4, order=dict)
    compare("nvfp4, in any order", config("llama"), how, nvfp4, order=models.shuffled)
    compare("nvfp4, the data at an odd place", config("llama"), how, nvfp4, pad=1)
    mixed = by_name([("mlp.down", None), ("self_attn.v", f8("F32", ".weight_scale", lambda s: (s[0], s[1], [])))], nvfp4)
    compare("nvfp4 beside f8 and f32", config("llama"), how, mixed)
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    compare("nvfp4 experts one by one", experts, how, nvfp4, of=experts_of(experts, False))


def blocks(shape):
    return 128, 128, [-(-shape[0] // 128), -(-shape[1] // 128)]


def f8_together(kind, ending, grid):
    """All experts of a layer in one tensor [E, N, K], as some checkpoints and Transformers 5 in memory have them; grid as in f8, of one expert's matrix."""
    one = f8(kind, ending, grid)

    def pack(stem, shape, rng):
        if len(shape) == 2:
            return one(stem, shape, rng)
        raw, scales, values, stored = b"", b"", [], None
        for _ in range(shape[0]):
            packed, v = one(stem, shape[1:], rng)
            raw, values = raw + packed[".weight"][2], values + v
            scales, stored = scales + packed[ending][2], packed[ending][1]
        return {"": ("F8_E4M3", list(shape), raw), ending.replace(".weight", ""): (kind, [shape[0]] + stored, scales)}, values
    return pack


def experts_of(c, together):
    """shapes() with experts one by one, or together."""
    def make(_):
        out = {name: shape for name, shape in shapes(c).items() if "switch" not in name}
        n, f, d = c["num_experts"], c["moe_intermediate_size"], c["hidden_size"]
        if together:
            return dict(out, **{"mlp.experts.gate_up_proj": (n, 2 * f, d), "mlp.experts.down_proj": (n, d, f)})
        for e in range(n):
            for which, shape in (("gate_proj", (f, d)), ("up_proj", (f, d)), ("down_proj", (d, f))):
                out["mlp.experts.%d.%s" % (e, which)] = shape
        return out
    return make


def f8_experts():
    fp8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    tensors = {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"}}
    c = config("qwen3_moe", num_hidden_layers=1, hidden_size=256, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=256, norm_topk_prob=True)
    forms = (("blocks of 128", ".weight_scale_inv", blocks), ("a scale for each row", ".weight_scale", lambda s: (1, s[1], [s[0], 1])),
             ("one scale", ".weight_scale", lambda s: (s[0], s[1], [])))
    for what, ending, grid in forms:
        compare("f8 experts one by one, " + what, c, fp8 if grid is blocks else tensors, f8("BF16", ending, grid), of=experts_of(c, False))
    for what, ending, grid in forms:
        grid = grid if what != "one scale" else lambda s: (s[0], s[1], [1, 1])
        compare("f8 experts together, " + what, c, fp8, f8_together("F32", ending, grid), of=experts_of(c, True))
    compare("f8 experts together, a scale for gates and one for ups", c, fp8, f8_together("F32", ".weight_scale_inv", lambda s: (
        s[0] // 2, s[1], [2, 1]) if s[0] == 512 else (s[0], s[1], [1, 1])), of=experts_of(c, True))
    high = dict(c, hidden_size=128, moe_intermediate_size=384)
    compare("f8 experts of more blocks of rows than of columns", high, fp8, f8("F32", ".weight_scale_inv", blocks), of=experts_of(high, False))


def latent_shapes(c):
    """Of DeepSeek V3: kv_b_proj has of each head its rows of k, then of v."""
    d, f, n = c["hidden_size"], c["moe_intermediate_size"], c["num_attention_heads"]
    rank, nope, rope, v = c["kv_lora_rank"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    out = {"self_attn.q_proj": (n * (nope + rope), d), "self_attn.kv_a_proj_with_mqa": (rank + rope, d), "self_attn.kv_b_proj": (n * (nope + v), rank),
           "self_attn.o_proj": (d, n * v), "mlp.gate": (c["n_routed_experts"], d)}
    for e in range(c["n_routed_experts"]):
        out.update({"mlp.experts.%d.%s_proj" % (e, what): shape for what, shape in (("gate", (f, d)), ("up", (f, d)), ("down", (d, f)))})
    return out


def f8_latent(fp8):
    """Heads of k that end at borders of blocks, where both products stay F8, and heads that do not."""
    for what, nope, v, rank in (("", 128, 128, 256), (", two blocks of k", 256, 128, 128), (", heads inside of blocks", 64, 192, 128), (", odd heads", 24, 20, 128)):
        c = config("deepseek_v3", num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=None, kv_lora_rank=rank, qk_nope_head_dim=nope,
                   qk_rope_head_dim=16, v_head_dim=v, first_k_dense_replace=0, n_routed_experts=2, num_experts_per_tok=1, n_shared_experts=0, n_group=1, topk_group=1, moe_intermediate_size=128)
        compare("f8 of latent attention" + what, c, fp8, f8("F32", ".weight_scale_inv", blocks), of=latent_shapes)
    compare("f8 of latent attention, a scale for each row", c, {"quantization_config": {"quant_method": "fbgemm_fp8"}},
            f8("BF16", ".weight_scale", lambda s: (1, s[1], [s[0], 1])), of=latent_shapes)


def f8_all():
    f8_experts()
    wide = config("llama", num_hidden_layers=1, hidden_size=256, intermediate_size=384, head_dim=48, num_attention_heads=8)  # k and v: 96 rows
    wide_fused = dict(wide, model_type="phi3")  # q, k and v part inside blocks
    fp8 = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}}
    rows = {"quantization_config": {"quant_method": "fbgemm_fp8"}}
    plain = {"quantization_config": {"quant_method": "fp8"}}
    tensors = {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"]}}
    f8_latent(fp8)
    compare("f8 in blocks of 128, named as scales of rows are", wide, tensors, f8("BF16", ".weight_scale", blocks))
    compare("f8, one scale named as that of blocks is", wide, plain, f8("BF16", ".weight_scale_inv", lambda s: (s[0], s[1], [])))
    compare("f8 in blocks of 128, scales behind their weights", wide, fp8, f8("F32", ".weight_scale_inv", blocks), order=dict)
    compare("f8 in blocks of 128, in any order", wide, fp8, f8("F32", ".weight_scale_inv", blocks), order=models.shuffled)
    compare("f8 as compressed-tensors", wide, tensors, f8("BF16", ".weight_scale", lambda s: (1, s[1], [s[0], 1])))
    compare("f8 of modelopt", wide, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, f8("F32", ".weight_scale", lambda s: (s[0], s[1], [])))
    for kind in ("F32", "BF16", "F8_E8M0"):
        compare("f8 in blocks of 128, scales in " + kind, wide, fp8, f8(kind, ".weight_scale_inv", blocks))
        compare("f8 in blocks of 128, q k v in one matrix, scales in " + kind, wide_fused, fp8, f8(kind, ".weight_scale_inv", blocks))
        compare("f8, a scale for each row, in " + kind, wide, rows, f8(kind, ".weight_scale", lambda s: (1, s[1], [s[0], 1])))
        compare("f8, a scale for each row of q k v in one, in " + kind, wide_fused, rows, f8(kind, ".weight_scale", lambda s: (1, s[1], [s[0]])))
        compare("f8, one scale, in " + kind, wide, plain, f8(kind, ".weight_scale", lambda s: (s[0], s[1], [])))
        compare("f8, one scale for q k v in one, in " + kind, wide_fused, plain, f8(kind, ".weight_scale", lambda s: (s[0], s[1], [1])))


# ---- integers in groups: x = scale * (code - zero) ----
def exactly(*args, **more):
    """The same logits bit for bit on reference: no value is rounded."""
    compare(*args, limit=0, **more)


def spared(stem):
    """A matrix that these formats leave as it is."""
    return "embed" in stem or "lm_head" in stem or stem.endswith("mlp.gate")


def stream(codes, bits):
    """Little-endian words of 32 bits, the first code in the lowest bits."""
    whole = 0
    for i, q in enumerate(codes):
        whole |= q << bits * i
    return whole.to_bytes(-(-len(codes) * bits // 32) * 4, "little")


def columns_shuffled(k, group, rng):
    """The group of each column, as act-order leaves them."""
    of = [i // group for i in range(k)]
    rng.shuffle(of)
    return of


def integers(shape, bits, group, kind, rng, zeros, order=None):
    """(codes [n][k], scales [n][g] as (value, bytes), zeros [n][g], values). zeros: from, to; the same: one zero for all. order: the group of each column."""
    n, k = shape
    of = order or [i // group for i in range(k)]
    codes = [[rng.getrandbits(bits) for _ in range(k)] for _ in range(n)]
    scales = [[half(rng.uniform(0.5, 1.5) * 4 / (1 << bits) / k ** 0.5, kind) for _ in range(k // group)] for _ in range(n)]
    offsets = [[rng.randint(*zeros) for _ in range(k // group)] for _ in range(n)]
    values = [scales[r][of[c]][0] * (codes[r][c] - offsets[r][of[c]]) for r in range(n) for c in range(k)]
    return codes, scales, offsets, values


def columns(table):
    return [list(c) for c in zip(*table)]


def words_down(table, bits):
    """[n][k] -> the words of each row, as columns: [k * bits / 32, n]"""
    rows = [stream(row, bits) for row in table]
    return b"".join(row[i:i + 4] for i in range(0, len(rows[0]), 4) for row in rows)


def compressed(bits, group, kind, zeros=None, strategy="group", shuffled=False):
    """pack-quantized of compressed-tensors; zeros: None, "words" or "bytes"; shuffled: act-order."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        middle = 1 << bits - 1
        g = k if strategy == "channel" else group
        order = columns_shuffled(k, g, rng) if shuffled else None
        codes, scales, offsets, values = integers(shape, bits, g, kind, rng, (1, (1 << bits) - 2) if zeros else (middle, middle), order)
        out = {".weight_packed": ("I32", [n, k * bits // 32], b"".join(stream(row, bits) for row in codes)),
               ".weight_scale": (kind, [n, k // g], b"".join(raw for row in scales for _, raw in row)),
               ".weight_shape": rng.choice((("I64", [2], struct.pack("<2q", n, k)), ("I32", [2], struct.pack("<2i", n, k))))}
        if zeros == "bytes":
            out[".weight_zero_point"] = ("I8", [n, k // g], bytes(z - middle & 255 for row in offsets for z in row))
        if zeros == "words":
            out[".weight_zero_point"] = ("I32", [n * bits // 32, k // g], words_up(offsets, bits))
        if order or rng.random() < 0.2 and strategy == "group":
            out[".weight_g_idx"] = ("I32", [k], struct.pack("<%di" % k, *(order or (i // g for i in range(k)))))
        return out, values
    return pack


def compressed_bytes(grid, kind, zeros=False):
    """int-quantized: signed bytes; grid(k): columns that share a scale."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        g = grid(k)
        codes, scales, offsets, values = integers(shape, 8, g, kind, rng, (1, 254) if zeros else (128, 128))
        out = {".weight": ("I8", [n, k], bytes(q ^ 128 for row in codes for q in row)), ".input_zero_point": ("I8", [1], b"\x03"),
               ".weight_scale": (kind, [n, k // g], b"".join(raw for row in scales for _, raw in row)), ".input_scale": (kind, [1], half(0.5, kind)[1])}
        if zeros:
            out[".weight_zero_point"] = ("I8", [n, k // g], bytes(z - 128 & 255 for row in offsets for z in row))
        return out, values
    return pack


def compressed_mxfp4(kind):
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        packed, values = mxfp4(stem, shape, rng)
        return {".weight_packed": ("U8", [shape[0], shape[1] // 2], packed[".weight"][2]), ".weight_scale": (kind, packed[".scales"][1], packed[".scales"][2])}, values
    return pack


def compressed_nvfp4(stem, shape, rng):
    """The scale of the tensor is stored as what scales were multiplied by."""
    if spared(stem):
        return None
    n, k = shape
    stored, stored_raw = half(rng.uniform(0.5, 1.5) * 400 * k ** 0.5, "F32")
    whole = half(1 / stored, "F32")[0]
    raw, scales, values = bytearray(), bytearray(), []
    for _ in range(n * k // 16):
        s = rng.randrange(0x20, 0x7f)
        q = [rng.getrandbits(4) for _ in range(16)]
        scales.append(s)
        values += [(-1 if x & 8 else 1) * FP4[x & 7] * E4M3[s] * whole for x in q]
        raw += bytes(q[i] | q[i + 1] << 4 for i in range(0, 16, 2))
    return {".weight_packed": ("U8", [n, k // 2], bytes(raw)), ".weight_scale": ("F8_E4M3", [n, k // 16], bytes(scales)),
            ".weight_global_scale": ("F32", [1], stored_raw), ".input_global_scale": ("F32", [1], half(300.0, "F32")[1])}, values


def words_up(table, bits):
    """[n][g] -> words along n: [n * bits / 32, g]"""
    across = [stream(column, bits) for column in columns(table)]
    return b"".join(column[i:i + 4] for i in range(0, len(across[0]), 4) for column in across)


def compressed_all():
    def how(**more):
        weights = dict({"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}, **more)
        return {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                                        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}}
    for bits in (2, 4, 8):
        for group, kind in ((32, "F16"), (64, "BF16"), (128, "BF16")):
            exactly("w%da16, groups of %d, %s" % (bits, group, kind), config("llama"), how(num_bits=bits, group_size=group), compressed(bits, group, kind), bits * 1000 + group)
    exactly("w4a16, a scale for each row", config("llama"), how(strategy="channel"), compressed(4, 0, "BF16", strategy="channel"))
    exactly("w4a16, scales in f32", config("llama"), how(), compressed(4, 128, "F32"))
    wide = config("llama", num_hidden_layers=1, hidden_size=384, intermediate_size=192, head_dim=32, num_attention_heads=12)
    exactly("w4a16, groups of 96", wide, how(group_size=96), compressed(4, 96, "F16"))
    for zeros in ("words", "bytes"):
        for bits in (4, 8):
            exactly("w%da16 with zeros in %s" % (bits, zeros), config("llama"), how(num_bits=bits, symmetric=False), compressed(bits, 64, "BF16", zeros))
    for bits, group, kind, zeros in ((4, 128, "BF16", None), (4, 32, "F16", "words"), (8, 64, "BF16", "bytes"), (8, 32, "F32", None)):
        exactly("w%da16, groups of %d, act-order, zeros in %s" % (bits, group, zeros), wide, how(num_bits=bits, group_size=group, actorder="group"),
                compressed(bits, 48 * 2 if group == 128 else group, kind, zeros, shuffled=True))
    exactly("w4a16 in any order", config("llama"), how(), compressed(4, 128, "BF16"), order=models.shuffled)
    exactly("w4a16, the data at an odd place", config("llama"), how(), compressed(4, 32, "BF16", "words"), pad=1)
    exactly("w4a16, q k v in one matrix", config("phi3"), how(), compressed(4, 128, "BF16"))
    exactly("w4a16 and w8a16 beside f32", config("llama"), dict(quantization_config=dict(how()["quantization_config"], format="mixed-precision")),
            by_name([("mlp.down", None), ("self_attn.v", compressed(8, 32, "BF16"))], compressed(4, 128, "BF16")))
    for form, more in (("int-quantized", {}), ("naive-quantized", {"symmetric": False})):
        eight = dict(quantization_config=dict(how(num_bits=8, strategy="channel", **more)["quantization_config"], format=form))
        exactly("w8a8 as %s, a scale for each row" % form, config("llama"), eight, compressed_bytes(lambda k: k, "BF16", bool(more)))
        exactly("w8a8 as %s, groups of 32" % form, config("phi3"), eight, compressed_bytes(lambda k: 32, "F16", bool(more)))
    exactly("w8a8, scales in f32, any order, an odd place", config("llama"), eight, compressed_bytes(lambda k: k, "F32"), order=models.shuffled, pad=1)
    fp4 = {"quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}}
    for kind in ("U8", "F8_E8M0"):
        exactly("compressed mxfp4, scales in " + kind, config("llama"), fp4, compressed_mxfp4(kind))
    nv = {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}
    exactly("compressed nvfp4", config("llama"), nv, compressed_nvfp4)
    exactly("compressed nvfp4, any order, an odd place", config("phi3"), nv, compressed_nvfp4, order=models.shuffled, pad=1)
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    exactly("compressed nvfp4 experts one by one", experts, nv, compressed_nvfp4, of=experts_of(experts, False))
    exactly("w8a8 experts one by one", experts, eight, compressed_bytes(lambda k: k, "BF16"), of=experts_of(experts, False))
    exactly("w4a16 experts one by one", experts, how(), compressed(4, 32, "BF16", "words"), of=experts_of(experts, False))


def gptq(bits, group, kind="F16", added=1, shuffled=False):
    """added: what stored zeros lack; shuffled: act-order."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        g = group if group > 0 else k
        order = columns_shuffled(k, g, rng) if shuffled else [i // g for i in range(k)]
        codes, scales, offsets, values = integers(shape, bits, g, kind, rng, (1, (1 << bits) - 1 + added), order)
        return {".qweight": ("I32", [k * bits // 32, n], words_down(codes, bits)),
                ".qzeros": ("I32", [k // g, n * bits // 32], b"".join(stream([z - added for z in column], bits) for column in columns(offsets))),
                ".scales": (kind, [k // g, n], b"".join(raw for column in columns(scales) for _, raw in column)),
                ".g_idx": ("I32", [k], struct.pack("<%di" % k, *order)),
                ".bias": (kind, [n], bytes(n * (4 if kind == "F32" else 2)))}, values  # of zeros, as AutoGPTQ writes it
    return pack


def gptq_all():
    def how(**more):
        return {"quantization_config": dict({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}, **more)}
    for bits in (2, 3, 4, 8):
        for group in (32, 64, 128, -1):
            exactly("gptq, %d bits, groups of %d" % (bits, group), config("llama"), how(bits=bits, group_size=group), gptq(bits, group), bits * 1000 + group)
    exactly("gptq_v2", config("llama"), how(checkpoint_format="gptq_v2"), gptq(4, 128, added=0))
    exactly("gptq, scales in bf16", config("llama"), how(checkpoint_format="gptq"), gptq(4, 128, "BF16"))
    for bits in (4, 8):
        for group in (32, 64, 128):
            exactly("gptq, %d bits, groups of %d, act-order" % (bits, group), config("llama"), how(bits=bits, group_size=group, desc_act=True), gptq(bits, group, shuffled=True))
    exactly("gptq, act-order, q k v in one matrix, an odd place", config("phi3"), how(desc_act=True), gptq(4, 32, "BF16", shuffled=True), pad=1)
    exactly("gptq in any order", config("llama"), how(), gptq(4, 128), order=models.shuffled)
    exactly("gptq, the data at an odd place", config("llama"), how(), gptq(3, 32), pad=1)
    exactly("gptq, q k v in one matrix", config("phi3"), how(), gptq(4, 128))
    exactly("gptq of several bits, beside f32", config("llama"), how(), by_name([("mlp.down", None), ("self_attn.v", gptq(8, 32))], gptq(4, 128)))
    exactly("auto-round as gptq", config("llama"), {"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}}, gptq(4, 128))
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    exactly("gptq experts one by one", experts, how(), gptq(4, 32), of=experts_of(experts, False))
    exactly("gptq experts one by one, act-order", experts, how(desc_act=True), gptq(4, 32, shuffled=True), of=experts_of(experts, False))


def awq(group, kind="F16"):
    order = (0, 2, 4, 6, 1, 3, 5, 7)  # of the columns in a word

    def words(table):
        return b"".join(stream([row[i + o] for o in order], 4) for row in table for i in range(0, len(row), 8))

    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        g = group if group > 0 else k
        codes, scales, offsets, values = integers(shape, 4, g, kind, rng, (0, 15))
        return {".qweight": ("I32", [k, n // 8], words(columns(codes))), ".qzeros": ("I32", [k // g, n // 8], words(columns(offsets))),
                ".scales": (kind, [k // g, n], b"".join(raw for column in columns(scales) for _, raw in column))}, values
    return pack


def awq_all():
    how = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}}
    for group in (32, 64, 128, -1):
        exactly("awq, groups of %d" % group, config("llama"), how, awq(group), 4000 + group)
    exactly("awq, scales in bf16", config("llama"), how, awq(128, "BF16"))
    exactly("awq in any order", config("llama"), how, awq(128), order=models.shuffled)
    exactly("awq, the data at an odd place", config("llama"), how, awq(32), pad=1)
    exactly("awq, q k v in one matrix", config("phi3"), how, awq(128))
    odd = config("llama", hidden_size=96, head_dim=24, intermediate_size=160)
    exactly("awq, rows that fill no run of 64", odd, how, awq(32))
    exactly("auto-round as awq", config("llama"), {"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq"}}, awq(128))
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    exactly("awq experts one by one", experts, how, awq(32), of=experts_of(experts, False))


# ---- bitsandbytes ----
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
       0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)


FP4_BNB = (0.0, 0.0052083334885537624, 0.6666666865348816, 1.0, 0.3333333432674408, 0.5, 0.1666666716337204, 0.25)
FP4_BNB += tuple(-v for v in FP4_BNB)


def floats(values):
    return struct.pack("<%df" % len(values), *values)


def single(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def nf4(block=64, nested=0, kind="nf4", table16=NF4):
    """nested: scales are quantised, too, in blocks of so many."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        blocks, state = -(-n * k // block), {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [n, k]}
        spread = 2 / k ** 0.5
        out = {}
        if nested:
            table, offset = sorted(single(rng.uniform(-1, 1)) for _ in range(256)), single(spread)
            codes, whole = rng.randbytes(blocks), [single(spread * rng.uniform(0.3, 0.6)) for _ in range(-(-blocks // nested))]
            scales = [single(single(table[q] * whole[i // nested]) + offset) for i, q in enumerate(codes)]
            state.update(nested_blocksize=nested, nested_dtype="float32", nested_offset=offset)
            out = {".weight.absmax": ("U8", [blocks], codes), ".weight.nested_absmax": ("F32", [len(whole)], floats(whole)),
                   ".weight.nested_quant_map": ("F32", [256], floats(table))}
        else:
            scales = [single(spread * rng.uniform(0.5, 1.5)) for _ in range(blocks)]
            out = {".weight.absmax": ("F32", [blocks], floats(scales))}
        codes = [rng.getrandbits(4) for _ in range(n * k)]
        text = json.dumps(state).encode()
        out[".weight"] = ("U8", [n * k // 2, 1], bytes(codes[i] << 4 | codes[i + 1] for i in range(0, n * k, 2)))
        out[".weight.quant_map"] = ("F32", [16], floats(table16))
        out[".weight.quant_state.bitsandbytes__" + kind] = ("U8", [len(text)], text)
        return out, [scales[i // block] * table16[q] for i, q in enumerate(codes)]
    return pack


def int8(stem, shape, rng):
    if spared(stem):
        return None
    n, k = shape
    codes = [[rng.randint(-127, 127) for _ in range(k)] for _ in range(n)]
    most = [single(rng.uniform(0.5, 1.5) * 2 / k ** 0.5) for _ in range(n)]
    return {".weight": ("I8", [n, k], bytes(q & 255 for row in codes for q in row)), ".SCB": ("F32", [n], floats(most)),
            ".weight_format": ("U8", [], b"\0")}, [most[r] * codes[r][c] / 127 for r in range(n) for c in range(k)]


def bnb_all():
    def how(**more):
        return {"quantization_config": dict({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"}, **more)}
    exactly("nf4", config("llama"), how(), nf4())
    exactly("nf4, scales quantised", config("llama"), how(bnb_4bit_use_double_quant=True), nf4(nested=256))
    exactly("nf4, scales quantised in blocks of 32, any order", config("llama"), how(bnb_4bit_use_double_quant=True), nf4(nested=32), order=models.shuffled)
    exactly("nf4, a scale for each 256, the data at an odd place", config("llama"), how(), nf4(256), pad=1)
    exactly("nf4, q k v in one matrix", config("phi3"), how(), nf4(128, 256))
    exactly("nf4 beside f32", config("llama"), how(), by_name([("mlp.down", None)], nf4()))
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    exactly("nf4 experts one by one", experts, how(), nf4(), of=experts_of(experts, False))
    fp4 = how(bnb_4bit_quant_type="fp4")
    exactly("fp4", config("llama"), fp4, nf4(kind="fp4", table16=FP4_BNB))
    exactly("fp4, scales quantised, q k v in one matrix, any order, an odd place", config("phi3"), fp4, nf4(128, 256, "fp4", FP4_BNB), order=models.shuffled, pad=1)
    exactly("fp4 experts one by one", experts, fp4, nf4(kind="fp4", table16=FP4_BNB), of=experts_of(experts, False))
    eight = how(load_in_4bit=False, load_in_8bit=True, bnb_4bit_quant_type="fp4")
    compare("int8", config("llama"), eight, int8)
    compare("int8, q k v in one matrix, any order, an odd place", config("phi3"), eight, int8, order=models.shuffled, pad=1)
    compare("int8 experts one by one", experts, eight, int8, of=experts_of(experts, False))


def main():
    {"mlx": mlx, "f8": f8_all, "nvfp4": nvfp4_all, "compressed": compressed_all, "gptq": gptq_all, "awq": awq_all, "bnb": bnb_all, "hqq": hqq_all, "torchao": torchao_all}[sys.argv[1]]()
    models.finish()


# ---- HQQ ----
def hqq_words(rows, bits):
    """[R][group] -> bytes of several rows, the first of them in the highest bits; of 3 bits words of ten."""
    per = 10 if bits == 3 else 8 // bits
    step = -(-len(rows) // per)
    rows = rows + [[0] * len(rows[0])] * (step * per - len(rows))
    words = [sum(rows[r + i * step][c] << bits * (per - 1 - i) for i in range(per)) for r in range(step) for c in range(len(rows[0]))]
    return struct.pack("<%d%s" % (len(words), "i" if bits == 3 else "B"), *words), step


def hqq(bits, group, kind="F16", view=None):
    """view: the type that bytes are stored as (view_as_float)."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        g, one = group or k, lambda v: ("I32", [], struct.pack("<i", v))
        runs = n * k // g
        rows = [[rng.getrandbits(bits) for _ in range(g)] for _ in range(runs)]
        scales = [half(rng.uniform(0.5, 1.5) * 4 / (1 << bits) / k ** 0.5, kind) for _ in range(runs)]
        zeros = [half(rng.uniform(0, (1 << bits) - 1), kind) for _ in range(runs)]
        raw, step = hqq_words(rows, bits)
        text = {1: "1bit_u8", 2: "2bit_u8", 3: "3bit_32", 4: "4bit_u8", 8: "8bit_u8"}[bits]
        out = {".W_q": (view or ("I32" if bits == 3 else "U8"), [step, g // 2 if view else g], raw), ".shape": ("I64", [2], struct.pack("<2q", n, k)), ".nbits": one(bits), ".group_size": one(g), ".axis": one(1),
               ".scale": (kind, [runs, 1], b"".join(r for _, r in scales)), ".zero": (kind, [runs, 1], b"".join(r for _, r in zeros)),
               ".packing": ("U8", [7], text.encode()), ".unpack_view_dtype": ("U8", [11], b"torch.uint8"), ".compute_dtype": ("U8", [13], b"torch.float16"),
               ".view_as_float": ("U8", [], bytes([view is not None])), ".stores_quant_config": ("U8", [], b"\1"), ".optimize": ("U8", [], b"\1")}
        return out, [(q - zeros[r][0]) * scales[r][0] for r, row in enumerate(rows) for q in row]
    return pack


def hqq_all():
    how = {"quantization_config": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"axis": 1, "group_size": 64, "nbits": 4}}, "skip_modules": ["lm_head"]}}
    for bits in (1, 2, 3, 4, 8):
        for group in (32, 64, 128, 0):
            compare("hqq, %d bits, groups of %s" % (bits, group or "rows"), config("llama"), how, hqq(bits, group, "BF16" if group == 64 else "F16"), bits * 100 + group)
    compare("hqq, scales in f32, any order, an odd place", config("llama"), how, hqq(4, 64, "F32"), order=models.shuffled, pad=1)
    compare("hqq, bytes stored as bf16", config("llama"), how, hqq(4, 64, "BF16", "BF16"))
    compare("hqq, q k v in one matrix", config("phi3"), how, hqq(4, 64))
    compare("hqq beside f32", config("llama"), how, by_name([("mlp.down", None), ("self_attn.v", hqq(8, 128))], hqq(4, 64)))
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    compare("hqq experts one by one", experts, how, hqq(4, 64), of=experts_of(experts, False))


# ---- torchao ----
def torchao_bytes(group, kind, zeros, low=-128):
    """Int8Tensor and IntxUnpackedToInt8Tensor; low: the least code."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        g = group or k
        codes = [[rng.randint(low, -1 - low) for _ in range(k)] for _ in range(n)]
        scales = [[half(rng.uniform(0.5, 1.5) * -2 / low / k ** 0.5, kind) for _ in range(k // g)] for _ in range(n)]
        offsets = [[rng.randint(low // 2, -low // 2) if zeros else 0 for _ in range(k // g)] for _ in range(n)]
        return {"._weight_qdata": ("I8", [n, k], bytes(q & 255 for row in codes for q in row)), "._weight_scale": (kind, [n, k // g], b"".join(r for row in scales for _, r in row)),
                "._weight_zero_point": ("I8", [n, k // g], bytes(z & 255 for row in offsets for z in row))}, [scales[r][c // g][0] * (codes[r][c] - offsets[r][c // g]) for r in range(n) for c in range(k)]
    return pack


def torchao_int4(group, kind="BF16"):
    """Int4Tensor, plain packing."""
    def pack(stem, shape, rng):
        if spared(stem):
            return None
        n, k = shape
        codes = [[rng.randint(-8, 7) for _ in range(k)] for _ in range(n)]
        scales = [[half(rng.uniform(0.5, 1.5) / 4 / k ** 0.5, kind) for _ in range(k // group)] for _ in range(n)]
        zeros = [[half(rng.uniform(-1, 1) / k ** 0.5, kind) for _ in range(k // group)] for _ in range(n)]
        return {"._weight_qdata": ("I8", [n, k // 2], bytes(row[c] & 15 | (row[c + 1] & 15) << 4 for row in codes for c in range(0, k, 2))),
                "._weight_scale": (kind, [k // group, n], b"".join(r for column in columns(scales) for _, r in column)),
                "._weight_zero_point": (kind, [k // group, n], b"".join(r for column in columns(zeros) for _, r in column))}, [
                    codes[r][c] * scales[r][c // group][0] + zeros[r][c // group][0] for r in range(n) for c in range(k)]
    return pack


def torchao_f8(stem, shape, rng):
    if spared(stem):
        return None
    packed, values = f8("F32", ".weight_scale", lambda s: (1, s[1], [s[0], 1]))(stem, shape, rng)
    return {"._weight_qdata": packed[".weight"], "._weight_scale": packed[".weight_scale"]}, values


def torchao_all():
    how = {"quantization_config": {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}, "_version": 2}}}}
    exactly("torchao, Int8Tensor", config("llama"), how, torchao_bytes(0, "F32", False))
    exactly("torchao, 4 bits in bytes, groups of 32", config("llama"), how, torchao_bytes(32, "BF16", False, -8))
    exactly("torchao, 4 bits in bytes, groups of 64 with zeros, any order, an odd place", config("phi3"), how, torchao_bytes(64, "BF16", True, -8), order=models.shuffled, pad=1)
    for group in (32, 64, 128):
        compare("torchao, Int4Tensor, groups of %d" % group, config("llama"), how, torchao_int4(group))
    compare("torchao, Int4Tensor, q k v in one matrix, any order, an odd place", config("phi3"), how, torchao_int4(64), order=models.shuffled, pad=1)
    compare("torchao, Float8Tensor", config("llama"), how, torchao_f8)
    compare("torchao of several forms, beside f32", config("llama"), how, by_name([("mlp.down", None), ("self_attn.v", torchao_f8)], torchao_int4(32)))
    experts = config("qwen3_moe", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
    compare("torchao experts one by one", experts, how, torchao_int4(32), of=experts_of(experts, False))


if __name__ == "__main__":
    main()
