#!/usr/bin/env python3
"""Writes the storyteller's folder as an F16 GGUF file, with the standard library alone: storyteller_gguf.py DIR OUT.gguf"""
import json
import struct
import sys

import safetensors
from gguf_file import BOOL, F32, I32, STR, TENSOR_F16, TENSOR_F32, U32, array, pair
from gguf_file import write as write_file

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def hyper_parameters(c):
    hd = c["head_dim"]
    return [("context_length", U32, c["max_position_embeddings"]), ("embedding_length", U32, c["hidden_size"]),
            ("block_count", U32, c["num_hidden_layers"]), ("feed_forward_length", U32, c["intermediate_size"]),
            ("attention.head_count", U32, c["num_attention_heads"]), ("attention.head_count_kv", U32, c["num_key_value_heads"]),
            ("attention.key_length", U32, hd), ("attention.value_length", U32, hd), ("rope.dimension_count", U32, hd),
            ("rope.freq_base", F32, c["rope_parameters"]["rope_theta"]), ("attention.layer_norm_rms_epsilon", F32, c["rms_norm_eps"]),
            ("vocab_size", U32, c["vocab_size"])]


def token_type(i, special, ids):
    """GGUF's: control, normal, unused."""
    if i in special:
        return 3
    return 1 if i in ids else 5


def metadata(src):
    c = json.load(open(src + "/config.json", encoding="utf-8"))
    t = json.load(open(src + "/tokenizer.json", encoding="utf-8"))
    special = {a["id"]: a["content"] for a in t["added_tokens"]}
    ids = dict([(i, s) for s, i in t["model"]["vocab"].items()] + list(special.items()))
    every = range(c["vocab_size"])
    kv = [pair("general.architecture", STR, "llama"), pair("general.name", STR, "storyteller")]
    kv += [pair("llama." + key, kind, v) for key, kind, v in hyper_parameters(c)]
    kv += [pair("tokenizer.ggml.model", STR, "gpt2"), pair("tokenizer.ggml.pre", STR, "llama-bpe"),
           array("tokenizer.ggml.tokens", STR, [ids.get(i, "[PAD%d]" % i) for i in every]),
           array("tokenizer.ggml.token_type", I32, [token_type(i, special, ids) for i in every]),
           array("tokenizer.ggml.merges", STR, [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]),
           pair("tokenizer.ggml.bos_token_id", U32, c["bos_token_id"]),
           pair("tokenizer.ggml.eos_token_id", U32, c["eos_token_id"][1]),  # <|end_of_text|>
           pair("tokenizer.ggml.eot_token_id", U32, c["eos_token_id"][0]),  # <|eot_id|>: both end an answer
           pair("tokenizer.ggml.add_bos_token", BOOL, True),
           pair("tokenizer.chat_template", STR, open(src + "/chat_template.jinja", encoding="utf-8").read())]
    return c, kv


def adjacent_pairs(rows, head_dim):
    """Rows of q and k from halves (Hugging Face) to adjacent pairs (GGUF's order for Llama)."""
    half, out = head_dim // 2, []
    for head in range(0, len(rows), head_dim):
        for i in range(half):
            out += [rows[head + i], rows[head + half + i]]
    return out


def tensors(src, c):
    """(name, shape, type, bytes)"""
    path = src + "/model.safetensors"
    listed, at = safetensors.header(path)
    with open(path, "rb") as f:
        for key, t in listed.items():
            assert t["dtype"] == "BF16", key
            f.seek(at + t["data_offsets"][0])
            values = safetensors.bf16_as_f32(f.read(t["data_offsets"][1] - t["data_offsets"][0]))
            p = key.split(".")
            name = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(key)
            name = name or "blk.%s.%s.weight" % (p[2], NAMES[".".join(p[3:-1])])
            if len(t["shape"]) == 1:
                yield name, t["shape"], TENSOR_F32, struct.pack("<%df" % len(values), *values)
                continue
            raw, width = struct.pack("<%de" % len(values), *values), 2 * t["shape"][1]
            if "attn_q" in name or "attn_k" in name:
                rows = [raw[i:i + width] for i in range(0, len(raw), width)]
                raw = b"".join(adjacent_pairs(rows, c["head_dim"]))
            yield name, t["shape"], TENSOR_F16, raw


def write(src, path):
    c, kv = metadata(src)
    write_file(path, kv, tensors(src, c))


if __name__ == "__main__":
    write(*sys.argv[1:])
