#!/usr/bin/env python3
"""Seeds of a fuzz target: those of corpus/NAME, and what tests/data gives.

  seeds.py NAME --into FOLDER    writes them
  seeds.py NAME TARGET           runs the target over them (a test of the build)
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data")
FIXTURES = os.path.join(DATA, "fixtures")


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def parts(**files):
    return b"\n".join(b"=== " + name.encode() + b"\n" + body for name, body in files.items())


# ---- folders in Hugging Face layout: config.json and the headers of the weights
def header(path):
    data = read(path)
    return data[8:8 + struct.unpack("<Q", data[:8])[0]].rstrip()


def folders(want_mlx):
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
        yield "ok-" + name, parts(**files)


# ---- GGUF: small models of several families, all weights zero
KINDS = {int: (4, "<I"), float: (6, "<f"), bool: (7, "<B")}


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
        size = {0: 4 * n, 1: 2 * n, 2: n // 32 * 18, 8: n // 32 * 34, 39: n // 32 * 17}[kind]
        offset += (size + 31) // 32 * 32
    return b"Z" + out  # zeros follow


def small_model(arch, kind=0, **extra):
    dim, ffn, layers, vocab, heads, kv = 32, 32, 2, 8, 4, 2
    k = arch + "."
    meta = {"general.architecture": arch, "general.name": arch, k + "block_count": layers, k + "context_length": 64,
            k + "embedding_length": dim, k + "feed_forward_length": ffn, k + "attention.head_count": heads,
            k + "attention.head_count_kv": kv, k + "attention.layer_norm_rms_epsilon": 1e-5, k + "rope.dimension_count": 8,
            k + "rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "ab"],
            "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.5],
            "tokenizer.ggml.token_type": [2, 3, 3, 6, 1, 1, 1, 1], "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"}
    tensors = {"token_embd.weight": ([vocab, dim], kind), "output_norm.weight": ([dim], 0)}
    for i in range(layers):
        b = "blk.%d." % i
        tensors.update({b + "attn_norm.weight": ([dim], 0), b + "ffn_norm.weight": ([dim], 0),
                        b + "attn_q.weight": ([dim, dim], kind), b + "attn_k.weight": ([dim // 2, dim], kind),
                        b + "attn_v.weight": ([dim // 2, dim], kind), b + "attn_output.weight": ([dim, dim], kind)})
        if not extra.get("experts"):
            tensors.update({b + "ffn_gate.weight": ([ffn, dim], kind), b + "ffn_up.weight": ([ffn, dim], kind),
                            b + "ffn_down.weight": ([dim, ffn], kind)})
        else:
            n = extra["experts"]
            tensors[b + "ffn_gate_inp.weight"] = ([n, dim], 0)
            tensors.update({b + "ffn_gate_exps.weight": ([n, ffn, dim], kind), b + "ffn_up_exps.weight": ([n, ffn, dim], kind),
                            b + "ffn_down_exps.weight": ([n, dim, ffn], kind)})
    if extra.get("experts"):
        meta.update({k + "expert_count": extra["experts"], k + "expert_used_count": 2})
    meta.update(extra.get("meta", {}))
    tensors.update({name: (dims, 0) for name, dims in extra.get("tensors", {}).items()})
    return meta, tensors


def per_layer(tensors):
    return {"blk.%d.%s" % (i, name): dims for i in range(2) for name, dims in tensors.items()}


def gguf_files():
    yield "ok-llama", gguf(*small_model("llama"))
    yield "ok-llama-q8_0-v2", gguf(*small_model("llama", 8), version=2)
    yield "ok-llama-experts", gguf(*small_model("llama", 2, experts=4))
    yield "ok-llama-factors", gguf(*small_model("llama", tensors={"rope_freqs.weight": [4]},
                                                meta={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}))
    yield "ok-qwen2", gguf(*small_model("qwen2", tensors=per_layer({"attn_q.bias": [32], "attn_k.bias": [16], "attn_v.bias": [16]})))
    yield "ok-qwen3", gguf(*small_model("qwen3", tensors=per_layer({"attn_q_norm.weight": [8], "attn_k_norm.weight": [8]})))
    yield "ok-gemma2", gguf(*small_model("gemma2", tensors=per_layer({"post_attention_norm.weight": [32], "post_ffw_norm.weight": [32]}),
                                         meta={"gemma2.attention.key_length": 8, "gemma2.attention.value_length": 8,
                                               "gemma2.attn_logit_softcapping": 50.0, "gemma2.final_logit_softcapping": 30.0,
                                               "gemma2.attention.sliding_window": 16}))
    meta, tensors = small_model("llama")
    del meta["tokenizer.ggml.scores"]
    meta.update({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.merges": ["a b"],
                 "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "\u010a", "\u0120", "a", "b", "ab"],
                 "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1]})
    yield "ok-llama-bpe", gguf(meta, tensors)
    head = read(DATA, "storyteller-q8_0.gguf")[:6000]
    yield "storyteller-head", head
    for no in (1, 2):  # a split model whose second part has one tensor
        keys = {"split.no": no - 1, "split.count": 2, "split.tensors.count": 2}
        one = gguf({**(meta if no == 1 else {}), **keys}, {"t%d" % no: ([32], 0)})
        split = locals().setdefault("split", {})
        split["m-0000%d-of-00002.gguf" % no] = one
    yield "split", parts(**split)


def tokenizers(ending):
    folder = os.path.join(DATA, "tokenizers")
    for name in sorted(os.listdir(folder)):
        if name.endswith(ending) and name != "cases.json":
            yield "ok-" + name, read(folder, name)


MADE = {"tokenizer": lambda: tokenizers(".json"), "sentencepiece": lambda: tokenizers(".model"), "gguf": gguf_files,
        "safetensors": lambda: folders(False), "mlx": lambda: folders(True)}


def write(name, folder):
    own = os.path.join(HERE, "corpus", name)
    os.makedirs(folder, exist_ok=True)
    for f in os.listdir(own) if os.path.isdir(own) else []:
        shutil.copy(os.path.join(own, f), folder)
    for seed, data in MADE.get(name, lambda: ())():
        with open(os.path.join(folder, seed), "wb") as f:
            f.write(data)


def main():
    name = sys.argv[1]
    if sys.argv[2] == "--into":
        return write(name, sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="minerva-seeds-") as folder:
        write(name, folder)
        return subprocess.call([sys.argv[2], folder])


if __name__ == "__main__":
    sys.exit(main())
