#!/usr/bin/env python3
"""adapter_files.py MINERVA: files of adapters: llama.cpp's form (GGUF) beside PEFT's, with models of both formats, merged into a model, and what is refused.

What PEFT computed (tests/data/adapters) is the oracle: every way gives its logits."""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import gguf_file
import safetensors

MINERVA, DATA = sys.argv[1], os.environ["MINERVA_TEST_DATA"]
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def adapter(name):
    return os.path.join(DATA, "adapters", name)


def fixture(name):
    return os.path.join(DATA, "fixtures", name)


def minerva(*args, code=0):
    done = subprocess.run([MINERVA, *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (args, done.returncode, done.stderr)
    return done.stderr


def compare(got, golden, limit, what):
    shape, want = safetensors.read(os.path.join(adapter(golden), "golden.safetensors"), "logits")
    got_shape, values = safetensors.read(got, "logits")
    assert shape == got_shape, (shape, got_shape)
    error = math.sqrt(sum((a - b) ** 2 for a, b in zip(values, want)) / sum(b * b for b in want))
    assert error <= limit, (what, error)
    print("%s: %.2g" % (what, error))


def logits(scratch, model, golden, limit, what, *lora):
    _, prompt = safetensors.read(os.path.join(fixture(golden.split(".")[0]), "golden.safetensors"), "prompt")
    out = os.path.join(scratch, "logits.safetensors")
    flags = [word for file in lora for word in ("--lora", file)]
    minerva("logits", "--device", "reference", "-m", model, "--prompt-ids", ",".join(map(str, prompt)), "-o", out, *flags)
    compare(out, golden, limit, what)


def tensors(path):
    """name -> (shape, values) of F32 tensors"""
    return {name: safetensors.read(path, name) for name in safetensors.header(path)[0]}


def neighbours(shape, values, heads):
    """Rows of halves of heads as GGUF has them: pairs of neighbours."""
    rows, cols = shape
    half = rows // heads // 2
    order = [h * 2 * half + i + side * half for h in range(heads) for i in range(half) for side in (0, 1)]
    return [v for r in order for v in values[r * cols:(r + 1) * cols]]


def as_gguf(scratch, name, heads):
    """PEFT's adapter of a llama in llama.cpp's form."""
    with open(os.path.join(adapter(name), "adapter_config.json")) as f:
        config = json.load(f)
    out = []
    for key, (shape, values) in tensors(os.path.join(adapter(name), "adapter_model.safetensors")).items():
        if ".lora_" not in key:
            continue
        module, side = key.replace("base_model.model.", "").replace(".weight", "").split(".lora_")
        if module == "lm_head":
            target = "output.weight"
        else:
            _, _, layer, rest = module.split(".", 3)
            target = "blk.%s.%s.weight" % (layer, NAMES[rest])
            if side == "B" and rest in heads:
                values = neighbours(shape, values, heads[rest])
        out.append((target + ".lora_" + side.lower(), shape, gguf_file.TENSOR_F32, struct.pack("<%df" % len(values), *values)))
    pairs = [gguf_file.pair("general.architecture", gguf_file.STR, "llama"), gguf_file.pair("general.type", gguf_file.STR, "adapter"),
             gguf_file.pair("adapter.type", gguf_file.STR, "lora"), gguf_file.pair("adapter.lora.alpha", gguf_file.F32, float(config["lora_alpha"]))]
    return gguf_file.write(os.path.join(scratch, name + ".gguf"), pairs, out)


def write_safetensors(path, entries):
    head, data = {}, b""
    for name, (shape, values) in entries.items():
        raw = struct.pack("<%df" % len(values), *values)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def test_forms(scratch):
    base = os.path.join(scratch, "llama.gguf")
    minerva("convert", fixture("llama"), "--type", "f32", "-o", base)
    heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}
    for name in "llama.all", "llama.small":
        other = as_gguf(scratch, name, heads)
        logits(scratch, fixture("llama"), name, 1e-5, "GGUF's adapter, a checkpoint", other)
        logits(scratch, base, name, 1e-5, "GGUF's adapter, GGUF", other)
        logits(scratch, base, name, 1e-5, "PEFT's adapter, GGUF", adapter(name))
    logits(scratch, base, "llama.both", 1e-5, "both forms at once", adapter("llama.all"), other + ":0.5")


def test_merged(scratch):
    for name in "llama.all", "qwen3.patterns", "gpt2.conv", "gemma3.some":
        out = os.path.join(scratch, name + "-merged.gguf")
        minerva("convert", fixture(name.split(".")[0]), "--merge", adapter(name), "--type", "f32", "-o", out)
        logits(scratch, out, name, 1e-4, name + " merged")
    out = os.path.join(scratch, "both-merged.gguf")
    minerva("convert", fixture("llama"), "--merge", adapter("llama.all"), "--merge", adapter("llama.small") + ":0.5", "--type", "f32", "-o", out)
    logits(scratch, out, "llama.both", 1e-4, "both merged")


def test_latent(scratch):
    """A module that families with latent attention alone have: beside the model and merged."""
    folder, merged = os.path.join(scratch, "latent"), os.path.join(scratch, "latent.gguf")
    os.makedirs(folder)
    with open(os.path.join(adapter("llama.small"), "adapter_config.json")) as f:
        config = {**json.load(f), "r": 2, "lora_alpha": 4, "target_modules": ["q_a_proj"]}
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump(config, f)
    module = "base_model.model.model.layers.1.self_attn.q_a_proj.lora_%s.weight"
    wave = [math.sin(i) / 4 for i in range(128)]
    write_safetensors(os.path.join(folder, "adapter_model.safetensors"), {module % "A": ([2, 64], wave), module % "B": ([32, 2], wave[:64])})
    minerva("convert", fixture("deepseek-v3"), "--merge", folder, "--type", "f32", "-o", merged)
    rows = []
    for model, lora in (fixture("deepseek-v3"), ()), (fixture("deepseek-v3"), ("--lora", folder)), (merged, ()):
        out = os.path.join(scratch, "latent.safetensors")
        minerva("logits", "--device", "reference", "-m", model, "--prompt-ids", "1,5,9,12", "-o", out, *lora)
        rows.append(safetensors.read(out, "logits")[1])
    length = math.sqrt(sum(v * v for v in rows[1]))
    plain, error = (math.dist(rows[1], other) / length for other in (rows[0], rows[2]))
    assert plain > 1e-3 and error <= 1e-4, (plain, error)
    print("latent attention, merged: %.2g" % error)


# ---- what is refused: a sentence that names the key or the tensor, and what was expected ----
KEYS = [({"use_dora": True}, "use_dora"), ({"modules_to_save": ["lm_head"]}, "modules_to_save"), ({"bias": "all"}, "'bias'"), ({"peft_type": "LOHA"}, "peft_type"),
        ({"r": 0}, "'r'"), ({"r": 5}, "has 3 rows"), ({"lora_alpha": "x"}, "lora_alpha"), ({"lora_bias": True}, "lora_bias"), ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"), ({"target_parameters": ["mlp.experts.down_proj"]}, "target_parameters"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"), ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"alpha_pattern": {"layers\\.\\d+\\..*q_proj": 3}}, "alpha_pattern"), ({"rank_pattern": {"q_proj": 4}}, "has 3 rows")]


def test_refused(scratch):
    folder = os.path.join(scratch, "refused")
    weights = os.path.join(folder, "adapter_model.safetensors")
    good = tensors(os.path.join(adapter("llama.small"), "adapter_model.safetensors"))
    with open(os.path.join(adapter("llama.small"), "adapter_config.json")) as f:
        config = json.load(f)

    def refuses(word, model="llama", code=1):
        err = minerva("logits", "--device", "reference", "-m", fixture(model), "--lora", folder, "--prompt-ids", "1", "-o", os.path.join(scratch, "x"), code=code)
        assert word in err and "refused" in err and len(err.strip().splitlines()[-1]) < 500, (word, err)

    def make(changes=(), entries=None):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with open(os.path.join(folder, "adapter_config.json"), "w") as f:
            json.dump({**config, **dict(changes)}, f)
        write_safetensors(weights, good if entries is None else entries)

    for changes, word in KEYS:
        make(changes)
        refuses(word)
    a, b = sorted(good)[:2]
    prefix = "base_model.model.model.layers.0."
    for entries, word in (
            ({k: v for k, v in good.items() if k != b}, "has no lora_b beside it"),
            ({}, "without tensors"),
            ({**good, a.replace("lora_A", "lora_magnitude_vector"): ([64], [0.0] * 64)}, "lora_magnitude_vector"),
            ({**good, prefix + "mlp.nothing.lora_A.weight": ([3, 4], [0.0] * 12), prefix + "mlp.nothing.lora_B.weight": ([4, 3], [0.0] * 12)}, "mlp.nothing"),
            ({**good, prefix + "mlp.experts.0.gate_proj.lora_A.weight": ([3, 4], [0.0] * 12), prefix + "mlp.experts.0.gate_proj.lora_B.weight": ([4, 3], [0.0] * 12)}, "experts"),
            ({**good, a: ([3, 32], [0.0] * 96)}, "expected an adapter of this model"),
            ({**good, b: (good[b][0][:1] + [2], [0.0] * (good[b][0][0] * 2))}, "expected one rank"),
            ({**good, a: (good[a][0], [math.nan] * len(good[a][1]))}, "NaN"),
            ({**good, "base_model.model.lm_head.weight": ([160, 64], [0.5] * 10240)}, "of its own, which differs"),
            ({**good, "base_model.model.model.embed_tokens.lora_embedding_A": ([3, 160], [0.0] * 480)}, "embedding")):
        make(entries=entries)
        refuses(word)
    make()
    refuses("expected an adapter of this model", model="gpt2")
    size = os.path.getsize(weights)
    for n in 0, 7, 100, size // 2, size - 1:
        make()
        with open(weights, "r+b") as f:
            f.truncate(n)
        refuses("adapter_model.safetensors")
    make()
    os.remove(os.path.join(folder, "adapter_config.json"))
    refuses("adapter_config.json is missing")
    make()
    err = minerva("logits", "-m", folder, "--prompt-ids", "1", "-o", os.path.join(scratch, "x"), code=1)
    assert "is an adapter, not a model" in err, err


with tempfile.TemporaryDirectory() as directory:
    for test in test_forms, test_merged, test_latent, test_refused:
        test(directory)
