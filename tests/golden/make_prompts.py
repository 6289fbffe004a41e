#!/usr/bin/env python3
"""Adds prompts of several lengths to fixtures of tests/data, with Transformers on the CPU: python3 -P make_prompts.py FIXTURES [NAME...] (-P: safetensors.py of this
folder is another one)

prompts.safetensors beside golden.safetensors: prompts of 1, 7, 40 and 300 tokens, and of one more than the window or the original context has, as far as the
context goes: their lengths [n], their ids one behind the other, and the logits [n, V] behind the last token of each, as Transformers computes them from the committed
weights, in f32 or (make_fixtures.WIDE) in f64. A development tool: the tests only read what it made. Needs what make_fixtures.py needs."""
import json
import os
import sys

import make_fixtures
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

LENGTHS = (1, 7, 40, 300)
PACKED = ("llama-mlx4", "llama-mlx8")  # whose types Transformers does not read


def numbers_of(config, key):
    """All values of a key, at any depth."""
    found = []
    for name, value in config.items():
        if name == key and isinstance(value, int):
            found.append(value)
        elif isinstance(value, dict):
            found += numbers_of(value, key)
    return found


def load(folder, config):
    if config.get("per_layer_config") and config["model_type"] == "llama":
        model = make_fixtures.build(*make_fixtures.MODELS[os.path.basename(folder)])
        model.load_state_dict({k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()})
        return model.eval()
    more = {"quantization_config": tf.Mxfp4Config(dequantize=True)} if "quantization_config" in config else {}
    return tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", **more).eval()


def make(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    most = config.get("max_position_embeddings") or config.get("n_positions") or 512
    edges = [n for key in ("sliding_window", "original_max_position_embeddings", "attention_chunk_size", "floor_scale") for n in numbers_of(config, key)]
    lengths = sorted({min(n, most) for n in LENGTHS} | {n + 1 for n in edges if n + 1 < most})
    model, name = load(folder, config).float(), os.path.basename(folder)
    gen = torch.Generator().manual_seed(len(os.path.basename(folder)))
    prompts = [torch.randint(3, 160, (n,), generator=gen) for n in lengths]
    with torch.no_grad(), make_fixtures.in_double(name):
        model.to(torch.float32)
        rows = [model(ids[None], use_cache=False).logits[0, -1].float() for ids in prompts]
    save_file({"ids": torch.cat(prompts).int(), "lengths": torch.tensor(lengths, dtype=torch.int32), "logits": torch.stack(rows).float().contiguous()},
              os.path.join(folder, "prompts.safetensors"))
    print("%-20s %s" % (os.path.basename(folder), lengths))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    for name in sys.argv[2:] or sorted(os.listdir(sys.argv[1])):
        if os.path.exists(os.path.join(sys.argv[1], name, "golden.safetensors")) and name not in PACKED:
            make(os.path.join(sys.argv[1], name))
