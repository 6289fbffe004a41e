#!/usr/bin/env python3
"""Makes tests/data/quantised: a tiny model packed by the libraries themselves, on the CPU: python3 -P make_quantised.py OUT [NAME...] (-P: safetensors.py of this folder is another)

Each is a folder with config.json, model.safetensors and sums.json: of each packed matrix, under its name in GGUF, the SHA-256 of its values in f32 as the
library's own function for it computes them; of int8 of bitsandbytes, which rounds twice, the values of two rows. The test `golden quantised` reads them.
A development tool. Needs torch, transformers, safetensors, and bitsandbytes, torchao, hqq, gptqmodel, autoawq, compressed-tensors, each for its own rows; for
torchao's Int4Tensor MSLK_SHUFFLE, the path of mslk/quantize/shuffle.py, whose package needs a GPU to be imported."""
import hashlib
import json
import os
import re
import shutil
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

CONFIG = dict(vocab_size=48, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
              max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False)
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def plain():
    torch.manual_seed(11)
    model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**CONFIG)).to(torch.float32)
    for p in model.parameters():
        p.data.normal_(0, 0.12) if p.dim() > 1 else p.data.uniform_(0.6, 1.4)
        p.data = p.data.to(torch.bfloat16).to(torch.float32)
    return model.eval()


def linears(model):
    return {name: m for name, m in model.named_modules() if any(name.endswith("layers.0." + key) for key in NAMES)}


def canonical(name):
    return "blk.0.%s.weight" % NAMES[re.sub(r"^model\.layers\.0\.", "", name)]


def digest(values):
    return hashlib.sha256(values.detach().to(torch.float32).contiguous().numpy().tobytes()).hexdigest()


def write(out, tensors, quantization, sums, metadata=None):
    """tensors: name -> tensor."""
    os.makedirs(out)
    config = tf.Qwen3Config(**CONFIG, architectures=["Qwen3ForCausalLM"], dtype="bfloat16").to_dict()
    config["quantization_config"] = quantization
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1, sort_keys=True, default=str)
        f.write("\n")
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(out, "model.safetensors"), dict({"format": "pt"}, **(metadata or {})))
    with open(os.path.join(out, "sums.json"), "w", encoding="utf-8") as f:
        json.dump(sums, f, indent=1, sort_keys=True)
        f.write("\n")


def rest(model):
    """What is not packed, in bf16."""
    packed = tuple(name + "." for name in linears(model))
    return {k: v.to(torch.bfloat16) for k, v in model.state_dict().items() if not k.startswith(packed)}


# ---- by Transformers: its own names, config and order ----
def by_transformers(out, config, dtype, values):
    work = out + ".work"
    plain().to(dtype).save_pretrained(work)
    model = tf.AutoModelForCausalLM.from_pretrained(work, quantization_config=config, dtype=dtype, device_map="cpu")
    model.save_pretrained(out)
    shutil.rmtree(work)
    for name in set(os.listdir(out)) - {"config.json", "model.safetensors"}:
        os.remove(os.path.join(out, name))
    sums = {canonical(name): values(m) for name, m in linears(model).items()}
    with open(os.path.join(out, "sums.json"), "w", encoding="utf-8") as f:
        json.dump(sums, f, indent=1, sort_keys=True)
        f.write("\n")


def bitsandbytes(kind, nested=False):
    def make(out):
        import bitsandbytes.functional as F
        config = tf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested)
        by_transformers(out, config, torch.float32, lambda m: digest(F.dequantize_4bit(m.weight.data, m.weight.quant_state)))
    return make


def bitsandbytes_int8(out):
    import bitsandbytes.functional as F

    def values(m):
        x = F.int8_vectorwise_dequant(m.weight.data, m.weight.SCB if m.weight.SCB is not None else m.state.SCB)
        return x[:2].flatten().tolist()
    by_transformers(out, tf.BitsAndBytesConfig(load_in_8bit=True), torch.float32, values)


def torchao(make_config):
    def make(out):
        import torchao.quantization as Q
        from torchao.quantization.quant_primitives import dequantize_affine

        def values(m):
            w = m.weight
            if hasattr(w, "target_dtype"):
                return digest(dequantize_affine(w.qdata, w.block_size, w.scale, w.zero_point, torch.int8, -128, 127, output_dtype=torch.float32))
            return digest(w.dequantize(torch.float32))
        by_transformers(out, tf.TorchAoConfig(make_config(Q)), torch.bfloat16, values)
    return make


def torchao_int4(out):
    """The library quantises for GPUs alone; its class and its way into SafeTensors work here."""
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Int4Tensor
    with open(os.environ["MSLK_SHUFFLE"], encoding="utf-8") as f:
        mslk = {}
        exec(re.sub(r"from mslk.*\n", "", f.read()), mslk)
    model, sums = plain(), {}
    tensors = {}
    for name, m in linears(model).items():
        q, scale, zero = mslk["int4_row_quantize_zp"](m.weight.data.to(torch.bfloat16), 32)
        scale, zero = scale.to(torch.bfloat16), zero.to(torch.bfloat16)
        tensors[name + ".weight"] = Int4Tensor(mslk["pack_int4"](q), scale, zero, [1, 32], m.weight.shape)
        wide = [t.double().t().repeat_interleave(32, dim=1) for t in (scale, zero)]
        sums[canonical(name)] = digest(q.double() * wide[0] + wide[1])
    flat, metadata = flatten_tensor_state_dict(dict(tensors, **rest(model)))
    write(out, flat, {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {"group_size": 32}}}}, sums, metadata)


# ---- by each library's own layer ----
def hqq(bits, dtype):
    def make(out):
        from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer
        model, tensors, sums = plain(), {}, {}
        for name, m in linears(model).items():
            layer = HQQLinear(torch.nn.Linear(m.in_features, m.out_features, bias=False), None, compute_dtype=dtype, device="cpu", initialize=False)
            layer = HQQLinear(m, BaseQuantizeConfig(nbits=bits, group_size=64, axis=1), compute_dtype=dtype, device="cpu")
            tensors.update({name + "." + k: v for k, v in layer.state_dict().items() if v is not None})
            meta = dict(layer.meta, compute_dtype=torch.float32)
            sums[canonical(name)] = digest(Quantizer.dequantize(layer.W_q.data, meta))
        params = {"axis": 1, "channel_wise": True, "group_size": 64, "nbits": bits, "optimize": True, "round_zero": False, "view_as_float": False}
        write(out, dict(tensors, **rest(model)), {"quant_method": "hqq", "quant_config": {"offload_meta": False, "weight_quant_params": params}, "skip_modules": ["lm_head"]}, sums)
    return make


def grid(weight, bits, group, symmetric):
    """(scale [n, g] f16, zero [n, g]) by the range of each group."""
    n, k = weight.shape
    w = weight.reshape(n, k // group, group)
    if symmetric:
        scale = w.abs().amax(dim=2) * 2 / ((1 << bits) - 1)
        return scale.half(), torch.full_like(scale, 1 << bits - 1)
    low, high = w.amin(dim=2).clamp(max=0), w.amax(dim=2).clamp(min=0)
    scale = ((high - low) / ((1 << bits) - 1)).half()
    return scale, torch.round(-low / scale.float()).clamp(0, (1 << bits) - 1)


def gptq(bits, act_order=False, v2=False):
    def make(out):
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
        model, tensors, sums = plain(), {}, {}
        for name, m in linears(model).items():
            scale, zero = grid(m.weight.data, bits, 32, not act_order)
            order = torch.arange(m.in_features) // 32
            if act_order:
                order = order[torch.randperm(m.in_features, generator=torch.Generator().manual_seed(5))]
            layer = TorchLinear(bits=bits, group_size=32, sym=not act_order, desc_act=act_order, in_features=m.in_features, out_features=m.out_features)
            layer.pack_block(m, scale.float(), zero, order.int())
            layer.post_init()
            layer.scales = layer.scales.float()  # else it rounds to f16
            layer.dequant_dtype = torch.int32
            sums[canonical(name)] = digest(layer.dequantize_weight().t())
            q = layer.qzeros.clone()
            if not v2:  # what the library does on its way to a file: zeros lack 1
                from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
                from gptqmodel.quantization import QuantizeConfig
                convert_gptq_v2_to_v1_format_module(layer, QuantizeConfig(bits=bits, group_size=32))
                q = layer.qzeros
            tensors.update({name + ".qweight": layer.qweight, name + ".qzeros": q, name + ".scales": layer.scales.half(), name + ".g_idx": layer.g_idx})
        config = {"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": act_order, "sym": not act_order, "checkpoint_format": "gptq_v2" if v2 else "gptq"}
        write(out, dict(tensors, **rest(model)), config, sums)
    return make


def awq(out):
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm
    model, tensors, sums = plain(), {}, {}
    for name, m in linears(model).items():
        scale, zero = grid(m.weight.data, 4, 32, False)
        layer = WQLinear_GEMM.from_linear(m, 4, 32, False, scale.float().t().contiguous(), zero.t().contiguous())
        sums[canonical(name)] = digest(dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, 32).t())
        tensors.update({name + ".qweight": layer.qweight, name + ".qzeros": layer.qzeros, name + ".scales": layer.scales})
    write(out, dict(tensors, **rest(model)), {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}, sums)


def compressed(bits, symmetric, form="pack-quantized", group=32):
    def make(out):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        kind = BaseCompressor.get_value_from_registry(form)
        model, tensors, sums = plain(), {}, {}
        args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group else "channel", group_size=group or None)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        for name, m in linears(model).items():
            scale, zero = grid(m.weight.data, bits, group or m.in_features, symmetric)
            state = {"weight": m.weight.data, "weight_scale": scale.float(), "weight_zero_point": (zero - (1 << bits - 1)).to(torch.int8)}
            state = kind.compress(state, scheme)
            wide = kind.decompress(dict(state), scheme)["weight"]
            sums[canonical(name)] = digest(wide)
            state["weight_scale"] = state["weight_scale"].half()
            tensors.update({name + "." + k: v for k, v in state.items()})
        config = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
                  "config_groups": {"group_0": {"targets": ["Linear"], "weights": args.model_dump(mode="json"), "input_activations": None}}}
        write(out, dict(tensors, **rest(model)), config, sums)
    return make


FORMS = {
    "bnb-nf4": bitsandbytes("nf4"), "bnb-nf4-nested": bitsandbytes("nf4", True), "bnb-fp4": bitsandbytes("fp4"), "bnb-int8": bitsandbytes_int8,
    "torchao-int8": torchao(lambda Q: Q.Int8WeightOnlyConfig()),
    "torchao-int8-int4": torchao(lambda Q: Q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=Q.PerGroup(32), mapping_type=Q.MappingType.ASYMMETRIC)),
    "torchao-f8": torchao(lambda Q: Q.Float8WeightOnlyConfig()), "torchao-int4": torchao_int4,
    "hqq-1": hqq(1, torch.float16), "hqq-2": hqq(2, torch.bfloat16), "hqq-3": hqq(3, torch.float16), "hqq-4": hqq(4, torch.bfloat16), "hqq-8": hqq(8, torch.float16),
    "gptq-2": gptq(2), "gptq-3": gptq(3), "gptq-4": gptq(4), "gptq-4-order": gptq(4, True), "gptq-8": gptq(8), "gptq-4-v2": gptq(4, True, True),
    "awq": awq,
    "compressed-4": compressed(4, True), "compressed-4-zeros": compressed(4, False), "compressed-3-zeros": compressed(3, False), "compressed-5": compressed(5, True),
    "compressed-6-zeros": compressed(6, False), "compressed-int8": compressed(8, True, "int-quantized", 0),
}


def main():
    out = sys.argv[1]
    for name in sys.argv[2:] or FORMS:
        path = os.path.join(out, name)
        shutil.rmtree(path, ignore_errors=True)
        FORMS[name](path)
        print("%-20s %d bytes" % (name, sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))))


main()
