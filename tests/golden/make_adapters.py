#!/usr/bin/env python3
"""Makes the adapters of tests/data/adapters with PEFT, on the CPU: make_adapters.py DATA (tests/data, with its fixtures)

Each is a folder as PEFT saves it (adapter_config.json, adapter_model.safetensors) with golden.safetensors: the logits [48, V] of the fixture's
prompt with the adapter, computed in f64 and stored as f32. Folder BASE.NAME belongs to the fixture BASE; BASE.both has only the logits with
all adapters of BASE at once, the second one halved. A development tool: the tests only read what it made. Needs torch, transformers, peft,
safetensors."""
import os
import shutil
import sys

import torch
import transformers as tf
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "llama.all": dict(r=8, lora_alpha=16, target_modules=ALL + ["lm_head"]),
    "llama.small": dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj"]),
    "qwen3.patterns": dict(r=4, lora_alpha=8, use_rslora=True, target_modules=ALL, rank_pattern={"self_attn.q_proj": 6, "layers.1.mlp.down_proj": 2},
                           alpha_pattern={"k_proj": 3}),
    "gemma3.some": dict(r=5, lora_alpha=10, target_modules=["q_proj", "v_proj", "down_proj"]),
    "gpt2.conv": dict(r=4, lora_alpha=12, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
}


def base(data, name):
    return tf.AutoModelForCausalLM.from_pretrained(os.path.join(data, "fixtures", name), dtype=torch.float64).eval()


def prompt(data, name):
    return load_file(os.path.join(data, "fixtures", name, "golden.safetensors"))["prompt"].long()[None]


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits[0].float().contiguous()


def make(data, full):
    name = full.split(".")[0]
    out = os.path.join(data, "adapters", full)
    torch.manual_seed(sum(full.encode()))
    model = get_peft_model(base(data, name), LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[full]))
    for key, p in model.named_parameters():
        if "lora_" in key:  # B is zeros, as a training begins
            p.data = (torch.randn_like(p) * 0.2).to(torch.float32).to(torch.float64)
    model.eval()
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    for extra in os.listdir(out):
        if extra not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(out, extra))
    weights = os.path.join(out, "adapter_model.safetensors")
    save_file({k: v.to(torch.float32) for k, v in load_file(weights).items()}, weights)
    save_file({"logits": logits(model, prompt(data, name))}, os.path.join(out, "golden.safetensors"))


def both(data, name):
    of = [full for full in ADAPTERS if full.startswith(name + ".")]
    model = PeftModel.from_pretrained(base(data, name), os.path.join(data, "adapters", of[0]), adapter_name="a0")
    for i, full in enumerate(of[1:], 1):
        model.load_adapter(os.path.join(data, "adapters", full), adapter_name=f"a{i}")
    model.double().eval()
    for key, p in model.named_parameters():
        if ".lora_B.a1." in key:
            p.data *= 0.5
    model.base_model.set_adapter([f"a{i}" for i in range(len(of))])
    out = os.path.join(data, "adapters", name + ".both")
    os.makedirs(out, exist_ok=True)
    save_file({"logits": logits(model, prompt(data, name))}, os.path.join(out, "golden.safetensors"))


if __name__ == "__main__":
    for full in ADAPTERS:
        make(sys.argv[1], full)
    both(sys.argv[1], "llama")
