"""Small models as seeds: folders in Hugging Face layout, MLX ones, and GGUF files. Weights are headers alone: zeros follow (fuzz_model.c)."""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data")
FIXTURES = os.path.join(DATA, "fixtures")


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def parts(files):
    return b"\n".join(b"=== " + name.encode() + b"\n" + body for name, body in files.items())


def compact(thing):
    return json.dumps(thing, separators=(",", ":")).encode()


# ---- folders: config.json and the headers of the weights
def header(path):
    data = read(path)
    return data[8:8 + struct.unpack("<Q", data[:8])[0]].rstrip()


def fixtures(want_mlx):
    for name in sorted(os.listdir(FIXTURES)):
        folder = os.path.join(FIXTURES, name)
        config = read(folder, "config.json")
        if want_mlx != (b'"quantization"' in config):
            continue
        files = {"config.json": config}
        for f in sorted(os.listdir(folder)):
            if f.startswith("model") and f.endswith(".safetensors"):
                files[f] = header(os.path.join(folder, f))
            elif f.endswith(".index.json"):
                files[f] = read(folder, f)
        yield "ok-" + name, parts(files)


D, F, V, HEADS, KV, HEAD, E = 128, 256, 8, 4, 2, 32, 4
ORDER = ("F32", "I64", "I32", "U32", "BF16", "F16", "F8_E4M3", "I8", "U8")
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "U32": 4, "I32": 4, "I64": 8}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D, "intermediate_size": F, "vocab_size": V,
         "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
         "bos_token_id": 1, "eos_token_id": [2]}
QWEN3_MOE = {**LLAMA, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": E, "num_experts_per_tok": 2,
             "moe_intermediate_size": F, "norm_topk_prob": True}
MATRICES = {"self_attn.q_proj": [HEADS * HEAD, D], "self_attn.k_proj": [KV * HEAD, D], "self_attn.v_proj": [KV * HEAD, D],
            "self_attn.o_proj": [D, HEADS * HEAD], "mlp.gate_proj": [F, D], "mlp.up_proj": [F, D], "mlp.down_proj": [D, F]}
EXPERTS = {"mlp.switch_mlp.gate_proj": [E, F, D], "mlp.switch_mlp.up_proj": [E, F, D], "mlp.switch_mlp.down_proj": [E, D, F]}
TEXT = {
    "tokenizer.json": compact({
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}, {"id": 2, "content": "</s>", "special": True},
                         {"id": 6, "content": "<think>"}, {"id": 7, "content": "</think>"}],
        "model": {"type": "BPE", "vocab": {"\u0120": 0, "<s>": 1, "</s>": 2, "H": 3, "e": 4, "He": 5, "<think>": 6, "</think>": 7},
                  "merges": ["H e"]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"}}),
    "tokenizer_config.json": compact({
        "bos_token": "<s>", "eos_token": {"content": "</s>"}, "tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
        "chat_template": [{"name": "default", "template": "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}<think>"}]}),
    "generation_config.json": compact({"eos_token_id": [2], "temperature": 0.6, "top_p": 0.9, "top_k": 20, "do_sample": True}),
    "special_tokens_map.json": compact({"pad_token": "</s>"}),
}


HEAD_NORMS = {"model.layers.0.self_attn.%s.weight" % name: ("F32", [HEAD]) for name in ("q_norm", "k_norm")}


def stems(layer, top="model."):
    """All matrices of a layer and of both ends."""
    yield from ((top + "layers.0." + name, shape) for name, shape in layer.items())
    yield from ((top + "embed_tokens", [V, D]), ("lm_head", [V, D]))


def norms(top="model."):
    names = "layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"
    return {top + name + ".weight": ("BF16", [D]) for name in names}


def weights(tensors):
    """{name: (dtype, shape)} as a header, in the order of the format's library: by type, then by name."""
    out, at = {}, 0
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda t: (ORDER.index(t[1][0]), t[0])):
        n = BYTES[dtype]
        for dim in shape:
            n *= dim
        out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    return compact(out)


def folder(config, tensors, more=None):
    return parts({"config.json": compact(config), "model.safetensors": weights(tensors), **(more or {})})


def plain(layer=MATRICES, top="model."):
    return {**{stem + ".weight": ("BF16", shape) for stem, shape in stems(layer, top)}, **norms(top)}


def f8(how):
    out = norms()
    for stem, (rows, cols) in stems(MATRICES):
        if stem.startswith("model.layers"):
            out[stem + ".weight"] = "F8_E4M3", [rows, cols]
            name, shape = {"blocks": ("weight_scale_inv", [(rows + 127) // 128, cols // 128]), "rows": ("weight_scale", [rows, 1]),
                           "one": ("weight_scale", [1]), "none": ("", [])}[how]
            if name:
                out[stem + "." + name] = "F32", shape
        else:
            out[stem + ".weight"] = "BF16", [rows, cols]
    return out


def integers(make):
    """make(rows, cols): ending -> (dtype, shape), of the matrices of the layer."""
    out = norms()
    for stem, (n, k) in stems(MATRICES):
        of = make(n, k) if stem.startswith("model.layers") else {".weight": ("BF16", [n, k])}
        out.update({stem + ending: tensor for ending, tensor in of.items()})
    return out


INTEGERS = {
    "ok-gptq": ({"quant_method": "gptq"}, lambda n, k: {".qweight": ("I32", [k // 8, n]), ".qzeros": ("I32", [k // 64, n // 8]), ".scales": ("F16", [k // 64, n]), ".bias": ("F16", [n])}),
    "ok-gptq-3": ({"quant_method": "gptq"}, lambda n, k: {".qweight": ("I32", [k * 3 // 32, n]), ".qzeros": ("I32", [1, n * 3 // 32]), ".scales": ("F16", [1, n])}),
    "gptq-order": ({"quant_method": "gptq"}, lambda n, k: {
        ".qweight": ("I32", [k // 8, n]), ".qzeros": ("I32", [k // 64, n // 8]), ".scales": ("F16", [k // 64, n]), ".g_idx": ("I32", [k])}),
    "ok-awq": ({"quant_method": "awq"}, lambda n, k: {".qweight": ("I32", [k, n // 8]), ".qzeros": ("I32", [k // 128, n // 8]), ".scales": ("F16", [k // 128, n])}),
    "ok-w8a8": ({"quant_method": "compressed-tensors", "format": "int-quantized"}, lambda n, k: {".weight": ("I8", [n, k]), ".weight_scale": ("BF16", [n, 1])}),
    "ok-w8a8-zeros": ({"quant_method": "compressed-tensors", "format": "int-quantized"}, lambda n, k: {
        ".weight": ("I8", [n, k]), ".weight_scale": ("BF16", [n, 2]), ".weight_zero_point": ("I8", [n, 2])}),
    "w4a16": ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, lambda n, k: {
        ".weight_packed": ("I32", [n, k // 8]), ".weight_scale": ("BF16", [n, k // 32]), ".weight_zero_point": ("I32", [n // 8, k // 32]), ".weight_shape": ("I64", [2])}),
    "ok-compressed-mxfp4": ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}, lambda n, k: {
        ".weight_packed": ("U8", [n, k // 2]), ".weight_scale": ("U8", [n, k // 32])}),
    "compressed-nvfp4": ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, lambda n, k: {
        ".weight_packed": ("U8", [n, k // 2]), ".weight_scale": ("F8_E4M3", [n, k // 16]), ".weight_global_scale": ("F32", [1])}),
}


def f8_experts(how):
    """One by one with their scales in blocks, or together: in blocks, one scale for gates and one for ups, one for each row."""
    layer, fused = "model.layers.0.mlp.", {k: v for k, v in MATRICES.items() if "attn" in k}
    out = {**plain(fused), **HEAD_NORMS, layer + "gate.weight": ("F32", [E, D])}
    if how == "apart":
        for e in range(E):
            for which, (n, k) in (("gate", (F, D)), ("up", (F, D)), ("down", (D, F))):
                stem = layer + "experts.%d.%s_proj.weight" % (e, which)
                out[stem], out[stem + "_scale_inv"] = ("F8_E4M3", [n, k]), ("F32", [n // 128, k // 128])
        return out
    for which, (n, k) in (("gate_up", (2 * F, D)), ("down", (D, F))):
        stem = layer + "experts.%s_proj" % which
        out[stem] = "F8_E4M3", [E, n, k]
        out[stem + "_scale_inv"] = "BF16", {"blocks": [E, n // 128, k // 128], "halves": [E, 2 if n == 2 * F else 1, 1], "rows": [E, n, 1]}[how]
    return out


def safetensors():
    yield from fixtures(False)
    for how in ("apart", "blocks", "halves", "rows"):
        yield "ok-f8-experts-" + how, folder({**QWEN3_MOE, "quantization_config": {"quant_method": "fp8"}}, f8_experts(how))
    for name, (config, make) in INTEGERS.items():
        yield name, folder({**LLAMA, "quantization_config": config}, integers(make))
    yield "ok-text", folder(LLAMA, plain(), TEXT)
    jinja = {"tokenizer.model": read(HERE, "corpus", "sentencepiece", "ok-charsmap"), "chat_template.jinja": b"{{ messages[0].content }}",
             "added_tokens.json": b'{"<x>": 11}'}
    yield "ok-text-sentencepiece", folder({**LLAMA, "vocab_size": 12}, {**plain(), "model.embed_tokens.weight": ("F32", [12, D]),
                                                                        "lm_head.weight": ("F32", [12, D])}, jinja)
    yield "ok-f8-blocks", folder({**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, f8("blocks"))
    yield "ok-f8-rows", folder({**LLAMA, "quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized"}},
                               f8("rows"))
    yield "ok-f8-one", folder({**LLAMA, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, f8("one"))
    yield "ok-f8-without", folder(LLAMA, f8("none"))
    yield "ok-nested", folder({"model_type": "gemma3", "text_config": {
        **LLAMA, "model_type": "gemma3_text", "rope_local_base_freq": 10000.0, "sliding_window": 16, "sliding_window_pattern": 2}},
        {**plain(top="language_model.model."), "vision_tower.x.weight": ("F32", [2]),
         **{"language_model.model.layers.0.%s.weight" % n: ("F32", [HEAD if "attn" in n else D])
            for n in ("self_attn.q_norm", "self_attn.k_norm", "pre_feedforward_layernorm", "post_feedforward_layernorm")}})
    all_ = plain()
    shards = {"model-0000%d-of-00002.safetensors" % (i + 1): weights(dict(list(all_.items())[i::2])) for i in range(2)}
    yield "ok-numbered", parts({"config.json": compact({**LLAMA, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1,
        "attention_factor": 1.5}}), **shards})
    fused = {k: v for k, v in MATRICES.items() if "attn" in k}
    yield "ok-fused-halves", folder(QWEN3_MOE, {**plain(fused), **HEAD_NORMS, "model.layers.0.mlp.gate.weight": ("F32", [E, D]),
                                                "model.layers.0.mlp.experts.gate_up_proj": ("BF16", [E, 2 * F, D]),
                                                "model.layers.0.mlp.experts.down_proj": ("BF16", [E, D, F])})


# ---- MLX: X.weight in words, X.scales, X.biases
def packed(stem, shape, bits, group, mode="affine"):
    *rows, cols = shape
    out = {stem + ".weight": ("U32", rows + [cols * bits // 32]),
           stem + ".scales": ("U8" if mode == "mxfp4" else "F16", rows + [cols // group])}
    if mode == "affine":
        out[stem + ".biases"] = "F16", rows + [cols // group]
    return out


def quantised(config, matrices, bits, group, mode="affine", own=None, extra=None):
    """own: {stem: (bits, group, mode) or False}."""
    tensors, q = {**norms(), **(extra or {})}, {"group_size": group, "bits": bits, "mode": mode}
    for stem, shape in matrices:
        how = (own or {}).get(stem, (bits, group, mode))
        if stem in (own or {}):
            q[stem] = how and dict(zip(("bits", "group_size", "mode"), how))
        tensors.update(packed(stem, shape, *how) if how else {stem + ".weight": ("BF16", shape)})
    return {**config, "quantization": q}, tensors


def mlx():
    yield from fixtures(True)
    for bits, group in (2, 32), (3, 64), (3, 128), (4, 32), (6, 128), (6, 32), (8, 64):
        yield "ok-%d-bits-%d" % (bits, group), folder(*quantised(LLAMA, stems(MATRICES), bits, group))
    yield "ok-mxfp4", folder(*quantised(LLAMA, stems(MATRICES), 4, 32, "mxfp4"))
    own = {"lm_head": False, "model.embed_tokens": (8, 32, "affine"), "model.layers.0.mlp.down_proj": (6, 64, "affine"),
           "model.layers.0.self_attn.v_proj": (4, 32, "mxfp4")}
    yield "ok-own", folder(*quantised(LLAMA, stems(MATRICES), 3, 128, own=own), TEXT)
    attn = {k: v for k, v in MATRICES.items() if "attn" in k}
    yield "ok-experts", folder(*quantised(QWEN3_MOE, stems({**attn, **EXPERTS, "mlp.gate": [E, D]}), 4, 64, own={
        "model.layers.0.mlp.gate": (8, 64, "affine")}, extra=HEAD_NORMS))


# ---- GGUF: small models of all families
KINDS = {int: (4, "<I"), float: (6, "<f"), bool: (7, "<B")}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136), 30: (1, 2), 39: (32, 17)}


def string(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + string(v)
    if isinstance(v, list) and isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(string, v))
    if isinstance(v, list):
        kind, how = KINDS[type(v[0])]
        return struct.pack("<IIQ", 9, kind, len(v)) + b"".join(struct.pack(how, x) for x in v)
    kind, how = KINDS[type(v)]
    return struct.pack("<I", kind) + struct.pack(how, v)


def gguf(meta, tensors, version=3):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(meta))
    out += b"".join(string(k) + value(v) for k, v in meta.items())
    offset = 0
    for name, (dims, kind) in tensors.items():
        out += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in reversed(dims))
        out += struct.pack("<IQ", kind, offset)
        n = 1
        for d in dims:
            n *= d
        elements, size = BLOCKS[kind]
        offset += (n // elements * size + 31) // 32 * 32
    return b"Z" + out  # zeros follow


TOKENS = {"tokenizer.ggml.model": "llama",
          "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "ab"],
          "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.5],
          "tokenizer.ggml.token_type": [2, 3, 3, 6, 1, 1, 1, 1], "tokenizer.ggml.bos_token_id": 1,
          "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
          "tokenizer.chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"}


def small_model(arch, kind=0, dim=32, ffn=32, heads=4, kv=2, head=8, experts=0, meta=None, layer=None, drop=(), tensors=None):
    """layer: more tensors of each layer, {name: shape}; drop: those left out; kind: of the matrices, or a function of the name."""
    layers, vocab, k = 2, 8, arch + "."
    keys = {"general.architecture": arch, "general.name": arch, k + "block_count": layers, k + "context_length": 64,
            k + "embedding_length": dim, k + "feed_forward_length": ffn, k + "attention.head_count": heads,
            k + "attention.head_count_kv": kv, k + "attention.layer_norm_rms_epsilon": 1e-5, k + "rope.dimension_count": head,
            k + "attention.key_length": head, k + "attention.value_length": head, k + "rope.freq_base": 10000.0, **TOKENS}
    shapes = {"attn_norm.weight": [dim], "ffn_norm.weight": [dim], "attn_q.weight": [heads * head, dim],
              "attn_k.weight": [kv * head, dim], "attn_v.weight": [kv * head, dim], "attn_output.weight": [dim, heads * head]}
    if experts:
        keys.update({k + "expert_count": experts, k + "expert_used_count": 2})
        shapes.update({"ffn_gate_inp.weight": [experts, dim], "ffn_gate_exps.weight": [experts, ffn, dim],
                       "ffn_up_exps.weight": [experts, ffn, dim], "ffn_down_exps.weight": [experts, dim, ffn]})
    else:
        shapes.update({"ffn_gate.weight": [ffn, dim], "ffn_up.weight": [ffn, dim], "ffn_down.weight": [dim, ffn]})
    shapes.update(layer or {})
    all_ = {"token_embd.weight": [vocab, dim], "output_norm.weight": [dim], **(tensors or {})}
    for i in range(layers):
        all_.update({"blk.%d.%s" % (i, name): shape for name, shape in shapes.items() if name.split(".")[0] not in drop})
    pick = kind if callable(kind) else lambda name: kind
    keys.update({key if "." in key and key.split(".")[0] in ("general", "tokenizer", "split") else k + key: v
                 for key, v in (meta or {}).items()})
    return keys, {name: (shape, pick(name) if len(shape) > 1 and "inp" not in name else 0) for name, shape in all_.items()}


def of_all_kinds():
    """Every type of blocks: rows of 256 for those that need them, short ones for the others."""
    of = {"blk.0.attn_q": 10, "blk.0.attn_k": 11, "blk.0.attn_v": 12, "blk.0.ffn_gate": 13, "blk.0.ffn_up": 14, "blk.1.attn_q": 23,
          "blk.1.attn_k": 8, "blk.1.attn_v": 39, "blk.1.ffn_gate": 20, "blk.1.ffn_up": 30, "blk.0.ffn_down": 3, "blk.1.ffn_down": 6,
          "token_embd": 7, "blk.0.attn_output": 1}
    return small_model("llama", kind=lambda name: of.get(name[:-7], 0), dim=256, heads=1, kv=1)


def families():
    both = {"attn_norm.bias": [32], "ffn_norm.bias": [32], "attn_output.bias": [32], "ffn_up.bias": [32], "ffn_down.bias": [32]}
    last = {"output_norm.bias": [32]}
    fused = {"attn_qkv.weight": [64, 32], "attn_qkv.bias": [64]}
    posts = {"post_attention_norm.weight": [32], "post_ffw_norm.weight": [32]}
    heads = {"attn_q_norm.weight": [8], "attn_k_norm.weight": [8]}
    apart = "attn_q", "attn_k", "attn_v"
    yield "qwen2", {"layer": {"attn_q.bias": [32], "attn_k.bias": [16], "attn_v.bias": [16]}}
    yield "qwen3", {"layer": heads}
    yield "qwen3moe", {"layer": heads, "experts": 4, "meta": {"expert_feed_forward_length": 32, "expert_weights_norm": True}}
    yield "gemma", {}
    yield "gemma2", {"layer": posts, "meta": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 16}}
    yield "gemma3", {"layer": {**posts, **heads}, "meta": {"attention.sliding_window": 16, "rope.scaling.type": "linear",
                                                           "rope.scaling.factor": 8.0}}
    yield "phi2", {"layer": {**both, **fused}, "drop": apart + ("ffn_gate", "ffn_norm"), "tensors": {**last, "output.weight": [8, 32], "output.bias": [8]},
                   "meta": {"attention.layer_norm_epsilon": 1e-5}}
    yield "phi3", {"layer": {"attn_qkv.weight": [64, 32], "ffn_up.weight": [64, 32]}, "drop": apart + ("ffn_gate",),
                   "tensors": {"rope_factors_long.weight": [4], "rope_factors_short.weight": [4]},
                   "meta": {"rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.2}}
    yield "gpt2", {"layer": {**both, "attn_qkv.weight": [96, 32], "attn_qkv.bias": [96]}, "drop": apart + ("ffn_gate",), "kv": 4,
                   "tensors": {**last, "position_embd.weight": [64, 32]}, "meta": {"attention.layer_norm_epsilon": 1e-5}}
    yield "gpt-oss", {"layer": {"post_attention_norm.weight": [32], "attn_sinks.weight": [4], "ffn_gate_inp.bias": [4],
                                "ffn_gate_exps.bias": [4, 32], "ffn_up_exps.bias": [4, 32], "ffn_down_exps.bias": [4, 32]},
                      "drop": ("ffn_norm",), "experts": 4, "meta": {"attention.sliding_window": 16, "rope.scaling.type": "yarn",
                                                                    "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}}
    yield "olmo2", {"layer": {**posts, "attn_q_norm.weight": [32], "attn_k_norm.weight": [16]}, "drop": ("attn_norm", "ffn_norm")}
    yield "granite", {"meta": {"embedding_scale": 12.0, "residual_scale": 0.2, "attention.scale": 0.1, "logit_scale": 8.0}}
    yield "smollm3", {"meta": {"rope.no_rope_layers": [0, 1]}}
    yield "stablelm", {"layer": {"attn_norm.bias": [32], "ffn_norm.bias": [32], "attn_q_norm.weight": [4, 8], "attn_k_norm.weight": [2, 8]},
                       "tensors": last, "meta": {"attention.layer_norm_epsilon": 1e-5, "use_parallel_residual": True}}


def gguf_files():
    yield "ok-llama", gguf(*small_model("llama"))
    yield "ok-llama-q8_0-v2", gguf(*small_model("llama", 8), version=2)
    yield "ok-llama-experts", gguf(*small_model("llama", 2, experts=4))
    yield "ok-llama-factors", gguf(*small_model("llama", tensors={"rope_freqs.weight": [4]},
                                                meta={"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}))
    yield "ok-llama-kinds", gguf(*of_all_kinds())
    for arch, how in families():
        yield "ok-" + arch, gguf(*small_model(arch, **how))
    bpe = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.merges": ["a b"],
           "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "\u010a", "\u0120", "a", "b", "ab"],
           "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1]}
    yield "ok-llama-bpe", gguf(*small_model("llama", meta=bpe))
    yield "storyteller-head", read(DATA, "storyteller-q8_0.gguf")[:6000]
    meta, tensors = small_model("llama")
    split = {}
    for no in (0, 1):
        keys = {"split.no": no, "split.count": 2, "split.tensors.count": len(tensors)}
        split["m-0000%d-of-00002.gguf" % (no + 1)] = gguf({**({} if no else meta), **keys}, dict(list(tensors.items())[no::2]))
    yield "ok-split", parts(split)
