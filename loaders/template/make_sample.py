#!/usr/bin/env python3
"""make_sample.py OUT.mnt [MODEL_FOLDER]: a model in the format of template_loader.c. Standard library alone.

Without a folder: one layer of random numbers, 44 KB, for `minerva plugins check --model` and `minerva inspect`.
With one (a Llama in Hugging Face layout, one model.safetensors): the same model; put its tokenizer*.json beside OUT.mnt,
and `minerva run -m OUT.mnt` runs it."""
import json
import os
import random
import struct
import sys

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def spell(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"%s"' % value
    if isinstance(value, int):
        return str(value)
    text = "%.15g" % value
    if float(text) != value:
        raise SystemExit("%r has more than 15 digits" % value)
    return text if "." in text or "e" in text else text + ".0"


def write(path, meta, tensors):
    """tensors: name -> (type, dims, bytes). Offsets stand in the header, whose length depends on them: room for it is set aside."""
    room = 64 + sum(len(k) + len(spell(v)) + 8 for k, v in meta.items()) + sum(len(n) + 120 for n in tensors)
    at = room = (room + 63) // 64 * 64
    lines, blobs = ["%s = %s" % (k, spell(meta[k])) for k in sorted(meta)], []
    for name in sorted(tensors):
        kind, dims, data = tensors[name]
        lines.append("tensor %s = %s [%s] @ %d" % (name, kind, ", ".join(map(str, dims)), at))
        blobs.append(data + b"\0" * (-len(data) % 64))
        at += len(blobs[-1])
    header = ("MNT 1\n" + "\n".join(lines) + "\nEND\n").encode()
    with open(path, "wb") as f:
        f.write(header + b"\0" * (room - len(header)) + b"".join(blobs))


def sample(n_embd=16, n_ff=32, n_vocab=512):
    rng = random.Random(1)
    matrix = lambda n, k: ("F32", [n, k], struct.pack("<%df" % (n * k), *[rng.gauss(0, 0.1) for _ in range(n * k)]))
    ones = ("F32", [n_embd], struct.pack("<%df" % n_embd, *[1.0] * n_embd))
    meta = {"llama.block_count": 1, "llama.embedding_length": n_embd, "llama.feed_forward_length": n_ff, "llama.attention.head_count": 2,
            "llama.attention.head_count_kv": 1, "llama.context_length": 64, "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0, "general.architecture": "llama", "general.name": "sample",
            "minerva.rope.pairing": "halves", "minerva.tie_word_embeddings": True}
    b = "blk.0."
    tensors = {"token_embd.weight": matrix(n_vocab, n_embd), "output_norm.weight": ones, b + "attn_norm.weight": ones, b + "ffn_norm.weight": ones,
               b + "attn_q.weight": matrix(n_embd, n_embd), b + "attn_k.weight": matrix(n_embd // 2, n_embd),
               b + "attn_v.weight": matrix(n_embd // 2, n_embd), b + "attn_output.weight": matrix(n_embd, n_embd),
               b + "ffn_gate.weight": matrix(n_ff, n_embd), b + "ffn_up.weight": matrix(n_ff, n_embd), b + "ffn_down.weight": matrix(n_embd, n_ff)}
    return meta, tensors


def canonical(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    stem, _, kind = rest.rpartition(".")
    return "blk.%s.%s.%s" % (layer, LAYER[stem], kind)


def convert(folder):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    rope = config.get("rope_parameters") or {}
    meta = {"llama.block_count": config["num_hidden_layers"], "llama.embedding_length": config["hidden_size"],
            "llama.feed_forward_length": config["intermediate_size"], "llama.attention.head_count": config["num_attention_heads"],
            "llama.attention.head_count_kv": config["num_key_value_heads"], "llama.context_length": config["max_position_embeddings"],
            "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
            "llama.rope.freq_base": float(config.get("rope_theta") or rope["rope_theta"]), "general.architecture": "llama",
            "minerva.rope.pairing": "halves", "minerva.tie_word_embeddings": config["tie_word_embeddings"]}
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    tensors = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            lo, hi = t["data_offsets"]
            tensors[canonical(name)] = (t["dtype"], t["shape"], data[8 + n + lo:8 + n + hi])
    return meta, tensors


if len(sys.argv) not in (2, 3):
    raise SystemExit(__doc__)
write(sys.argv[1], *(convert(sys.argv[2]) if len(sys.argv) == 3 else sample()))
