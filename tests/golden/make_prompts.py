#!/usr/bin/env python3
"""Adds prompts of several lengths to fixtures of tests/data, with Transformers on the CPU: python3 -P make_prompts.py [--long] FIXTURES [NAME...] (-P:
safetensors.py of this folder is another one)

prompts.safetensors beside golden.safetensors: prompts of 1, 7, 40 and 300 tokens, and of one more than the window or the original context has, as far as the
context goes: their lengths [n], their ids one behind the other, and the logits [n, V] behind the last token of each, as Transformers computes them from the committed
weights, in f32 or (make_fixtures.WIDE) in f64.

--long: long.safetensors, of the same form, of the families whose layers remember a state or share caches (LONG): prompts of one token less than a chunk of the
scan has, of a chunk, of one token more, and of 2,000 tokens, always in f64 and beyond the context that the model was made for. A text in which the router of a
row has a near tie of experts is replaced by another: such rows choose by rounding. A development tool: the tests only read what it made. Needs what
make_fixtures.py needs."""
import contextlib
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # behind the others: safetensors.py of this folder is another
import make_fixtures  # noqa: E402
import make_kimi_linear  # noqa: E402

LENGTHS = (1, 7, 40, 300)
LONG = ("qwen3-next", "qwen3.5", "granite4-h", "mamba2", "falcon-h1", "bamba", "nemotron-h", "lfm2", "olmo-hybrid", "gemma3n", "gemma4-e", "kimi-linear")
CHUNK = 64  # of Transformers' delta rule, which has no setting
NEAR = 3e-5  # between the score of the last expert that is chosen and of the first one that is not, as a share of the former
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


class Choices:
    """The closest choice of topk within: (score k - score k + 1) / score k, the smallest of all rows."""

    def __init__(self):
        self.closest = 1.0

    def look(self, x, k, dim):
        if k < x.shape[dim]:
            best = x.detach().sort(dim=dim, descending=True).values
            last, other = best.select(dim, k - 1), best.select(dim, k)
            self.closest = min(self.closest, float(((last - other) / last.abs().clamp(min=1e-3)).min()))

    @contextlib.contextmanager
    def watched(self):
        kept = torch.topk, torch.Tensor.topk

        def topk(x, k, dim=-1, *rest, **more):
            self.look(x, k, dim)
            return kept[0](x, k, dim, *rest, **more)
        torch.topk = torch.Tensor.topk = topk
        try:
            yield self
        finally:
            torch.topk, torch.Tensor.topk = kept


def long_model(folder, config):
    """A function of ids: logits of all rows in f64."""
    if config["model_type"] == "kimi_linear":
        return make_kimi_linear.Model(config, load_file(os.path.join(folder, "model.safetensors")))
    model = load(folder, config)

    def run(ids):
        with make_fixtures.in_double(os.path.basename(folder)):
            return model.to(torch.float32)(ids[None], use_cache=False).logits[0]
    return run


def make_long(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    run, chunks = long_model(folder, config), {CHUNK, config.get("mamba_chunk_size") or config.get("chunk_size") or CHUNK}
    lengths = sorted({n for c in chunks for n in (c - 1, c, c + 1)} | {2000})
    for seed in range(100):
        gen = torch.Generator().manual_seed(1000 * len(os.path.basename(folder)) + seed)
        prompts = [torch.randint(3, 160, (n,), generator=gen) for n in lengths]
        with torch.no_grad(), Choices().watched() as choices:
            rows = [run(ids)[-1].float() for ids in prompts]
        if choices.closest > NEAR:
            break
    else:
        sys.exit("%s: a near tie of experts in each of 100 texts" % folder)
    save_file({"ids": torch.cat(prompts).int(), "lengths": torch.tensor(lengths, dtype=torch.int32), "logits": torch.stack(rows).contiguous()},
              os.path.join(folder, "long.safetensors"))
    print("%-20s %s, text %d, closest choice %.1e" % (os.path.basename(folder), lengths, seed, choices.closest), flush=True)


def is_long(name):
    return name.startswith(LONG) and not name.endswith("-mtp")


if __name__ == "__main__":
    given = [a for a in sys.argv[1:] if a != "--long"]
    if not given:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    if "--long" in sys.argv:
        for name in given[1:] or sorted(filter(is_long, os.listdir(given[0]))):
            make_long(os.path.join(given[0], name))
        sys.exit(0)
    for name in given[1:] or sorted(os.listdir(given[0])):
        if os.path.exists(os.path.join(given[0], name, "golden.safetensors")) and name not in PACKED:
            make(os.path.join(given[0], name))
