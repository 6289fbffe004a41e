"""Folders in Hugging Face layout with random weights, for synth.py: dense models of the llama kind whose matrices are packed as public checkpoints have
them, and LoRA adapters as PEFT writes them."""
import functools
import json
import os

import numpy as np

import synth_draw as draw

NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
       0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "U32": 4, "I32": 4, "I64": 8}


def all_of(kind, value):
    """Every element is one value: scales, of which none makes activations grow."""
    return functools.partial(draw.constant, kind, value)


def literal(raw):
    return functools.partial(draw.literal, raw)


# ---- matrices as formats pack them: (ending, type, shape, what makes its bytes); d: the standard deviation of the values ----
def bf16(n, k, d):
    return [(".weight", "BF16", [n, k], functools.partial(draw.values, "bf16", k))]


def f8(n, k, d):
    return [(".weight", "F8_E4M3", [n, k], draw.f8), (".weight_scale", "BF16", [n, 1], all_of("BF16", d / draw.F8_DEVIATION))]


def f8_blocks(n, k, d):
    return [(".weight", "F8_E4M3", [n, k], draw.f8), (".weight_scale_inv", "F32", [-(-n // 128), -(-k // 128)], all_of("F32", d / draw.F8_DEVIATION))]


def nvfp4(n, k, d):
    return [(".weight", "U8", [n, k // 2], draw.noise), (".weight_scale", "F8_E4M3", [n, k // 16], functools.partial(draw.between, 0x30, 0x40)),
            (".weight_scale_2", "F32", [], all_of("F32", d / 2.9))]


def w4a16(n, k, d):
    return [(".weight_packed", "I32", [n, k // 8], draw.noise), (".weight_scale", "BF16", [n, k // 128], all_of("BF16", d / 4.6)),
            (".weight_shape", "I64", [2], literal(np.array([n, k], np.int64).tobytes()))]


def w8a8(n, k, d):
    return [(".weight", "I8", [n, k], draw.noise), (".weight_scale", "BF16", [n, 1], all_of("BF16", d / 74))]


def mlx(bits, n, k, d):
    scale = d * 3.46 / (1 << bits)
    return [(".weight", "U32", [n, k * bits // 32], draw.noise), (".scales", "BF16", [n, k // 64], all_of("BF16", scale)),
            (".biases", "BF16", [n, k // 64], all_of("BF16", -scale * ((1 << bits) - 1) / 2))]


def mxfp8(n, k, d):
    return [(".weight", "U32", [n, k // 4], draw.f8), (".scales", "U8", [n, k // 32], all_of("U8", int(np.round(np.log2(d / draw.F8_DEVIATION))) + 127))]


def nf4(n, k, d):
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [n, k]}).encode()
    return [(".weight", "U8", [n * k // 2, 1], draw.noise), (".weight.absmax", "F32", [n * k // 64], all_of("F32", d / 0.55)),
            (".weight.quant_map", "F32", [16], literal(np.array(NF4, np.float32).tobytes())),
            (".weight.quant_state.bitsandbytes__nf4", "U8", [len(state)], literal(state))]


def compressed(form):
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"]}}


def of_mlx(bits, **more):
    return {"quantization": dict({"bits": bits, "group_size": 64}, **more)}


# name: how a matrix is stored, what config.json says of it, and whether embeddings and the output are stored so, too
FORMS = {"f8": (f8, compressed("float-quantized"), False),
         "f8_128": (f8_blocks, {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}, False),
         "nvfp4_folder": (nvfp4, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}}, False),
         "w4a16": (w4a16, compressed("pack-quantized"), False), "w8a8": (w8a8, compressed("int-quantized"), False),
         "nf4": (nf4, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}, False),
         "mxfp8": (mxfp8, of_mlx(8, group_size=32, mode="mxfp8"), True)}
FORMS.update({"mlx%d" % bits: (functools.partial(mlx, bits), of_mlx(bits), True) for bits in (2, 3, 4, 5, 6, 8)})


# ---- folders --------------------------------------------------------------------------------------
def matrices(s):
    """Of a layer: module -> (rows, columns)."""
    q, kv, d, f = s["heads"] * s["head"], s["kv"] * s["head"], s["dim"], s["ffn"]
    return {"self_attn.q_proj": (q, d), "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d), "self_attn.o_proj": (d, q),
            "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)}


def pieces(s, form):
    how, _, everything = FORMS[form]

    def stored(stem, n, k, packed=True):
        return [(stem + ending, *rest) for ending, *rest in (how if packed else bf16)(n, k, 1 / np.sqrt(k))]

    def norm(stem):
        return [(stem + ".weight", "BF16", [s["dim"]], all_of("BF16", 1.0))]

    yield from stored("model.embed_tokens", s["vocab"], s["dim"], everything)
    yield from stored("lm_head", s["vocab"], s["dim"], everything)
    yield from norm("model.norm")
    for i in range(s["layers"]):
        layer = "model.layers.%d." % i
        yield from norm(layer + "input_layernorm")
        yield from norm(layer + "post_attention_layernorm")
        for name, (n, k) in matrices(s).items():
            yield from stored(layer + name, n, k)


def config(s, form):
    c = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": s["dim"], "intermediate_size": s["ffn"], "num_hidden_layers": s["layers"],
         "num_attention_heads": s["heads"], "num_key_value_heads": s["kv"], "head_dim": s["head"], "vocab_size": s["vocab"], "hidden_act": "silu",
         "max_position_embeddings": s["context"], "rms_norm_eps": 1e-6, "rope_theta": s["theta"], "tie_word_embeddings": False}
    return dict(c, **FORMS[form][1])


def write_safetensors(path, listed, seed, jobs):
    """listed: (name, type, shape, what makes its bytes)"""
    head, at, work = {}, 0, []
    for name, kind, shape, fill in listed:
        size = int(np.prod(shape)) * BYTES[kind]
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        work.append((at, size, BYTES[kind], fill, [seed, *name.encode()]))
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    draw.write(path, len(text).to_bytes(8, "little") + text, at, work, jobs)


def write(s, form, folder, seed, jobs):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config(s, form), f)
    write_safetensors(os.path.join(folder, "model.safetensors"), list(pieces(s, form)), seed, jobs)


def write_adapters(s, folder, count, rank, seed, jobs):
    """folder/0, folder/1 and so on: adapters of every matrix of the layers."""
    for which in range(count):
        own = os.path.join(folder, str(which))
        os.makedirs(own, exist_ok=True)
        with open(os.path.join(own, "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none", "target_modules": [n.split(".")[1] for n in matrices(s)]}, f)
        listed = []
        for i in range(s["layers"]):
            for name, (n, k) in matrices(s).items():
                stem = "base_model.model.model.layers.%d.%s.lora_" % (i, name)
                listed.append((stem + "A.weight", "BF16", [rank, k], functools.partial(draw.values, "bf16", k)))
                listed.append((stem + "B.weight", "BF16", [n, rank], functools.partial(draw.values, "bf16", 64 * rank)))
        write_safetensors(os.path.join(own, "adapter_model.safetensors"), listed, seed + which, jobs)
