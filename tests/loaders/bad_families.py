#!/usr/bin/env python3
"""Models of every family and of the quantised forms that are wrong in one way each: bad_families.py MINERVA SOURCE_ROOT [mlx].

Each must end with exit code 1 and a message that names the file (or folder), what was found and what was expected."""
import math
import os
import re
import subprocess
import sys
import tempfile

MINERVA, ROOT = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
sys.dont_write_bytecode = True
import gguf_file  # noqa: E402
import gguf_forms  # noqa: E402
import models  # noqa: E402

failed = passed = 0


def refused(name, path, words, args=(), prompt=("--prompt-ids", "1,2,3")):
    global failed, passed
    p = subprocess.run([MINERVA, "run", "-m", path, "-n", "2", "--temp", "0", *prompt, "--device", "reference", *args], capture_output=True,
                       text=True, errors="replace", timeout=120)
    said = p.stderr.replace(path, os.path.basename(path) if path.endswith(".gguf") else "FOLDER")  # its name may hold the numbers that are looked for
    missing = [w for w in words if w not in said]
    if p.returncode != 1 or missing:
        failed += 1
        print("FAIL %s: exit %d (want 1), missing %s\n  %s" % (name, p.returncode, missing, said.strip()[:600]))
    else:
        passed += 1


def folder(fixture, change, words, args=()):
    """change(config, tensors)"""
    m = models.fixture(fixture)
    name = "%s %d" % (fixture, passed + failed)
    change(m.config, m.tensors)
    refused(name, m.write(os.path.join(TMP, name.replace(" ", "-"))), words, args)


def config(fixture, key, value, words):
    folder(fixture, lambda c, _: c.update({key: value}), ["config.json", key] + words)


def gguf(fixture, change, words, args=()):
    """change(form, tensors); tensors: name -> (shape, type, bytes)"""
    f = gguf_forms.form(models.fixture(fixture))
    tensors = {name: rest for name, *rest in f.tensors()}
    change(f, tensors)
    name = "%s-%d.gguf" % (fixture, passed + failed)
    refused(name, gguf_file.write(os.path.join(TMP, name), f.pairs(), [(n, *t) for n, t in tensors.items()]), [name] + words, args)


def keyed(fixture, key, value, words):
    """A GGUF of convert's whose key has another value, a u32; None: the key is not there."""
    name = "%s-%d.gguf" % (fixture, passed + failed)
    path = os.path.join(TMP, name)
    subprocess.run([MINERVA, "convert", os.path.join(ROOT, "tests", "data", "fixtures", fixture), "-o", path], check=True, capture_output=True)
    with open(path, "rb") as f:
        data = bytearray(f.read())
    end = data.index(b"." + key.encode()) + 1 + len(key)
    if value is None:
        data[end - 1:end] = b"X"
    else:
        data[end + 4:end + 8] = value.to_bytes(4, "little")
    with open(path, "wb") as f:
        f.write(data)
    refused(name, path, [name] + words)


def drop(*names):
    def change(_, tensors):
        for name in names:
            tensors.pop(name)
    return change


def reshaped(name, shape):
    def change(_, tensors):
        kind, _, raw = tensors[name]
        n = gguf_forms.product(shape) * len(raw) // gguf_forms.product(tensors[name][1])
        tensors[name] = (kind, shape, raw[:n] + bytes(n - len(raw[:n])))
    return change


def retyped(name, kind, size):
    def change(_, tensors):
        shape = tensors[name][1]
        tensors[name] = (kind, shape, bytes(size * gguf_forms.product(shape)))
    return change


def in_section(key, **values):
    def change(c, _):
        c[key] = dict(c[key], **values)
    return change


def mixed_scales(tensors):
    """Two experts in F8, the first with a scale for each row, the others with one."""
    for e in range(4):
        name = "model.layers.0.block_sparse_moe.experts.%d.w1.weight" % e
        shape = tensors[name][1]
        tensors[name] = ("F8_E4M3", shape, bytes(gguf_forms.product(shape)))
        n = 1 if e else shape[0]
        tensors[name + "_scale"] = ("F32", [n, 1], bytes(4 * n))


def keys():
    config("gpt-oss", "swiglu_limit", 6.0, ["6", "7"])
    config("gpt-oss", "num_experts_per_tok", 99, ["99", "8"])
    config("gpt-oss", "layer_types", ["full_attention"] * 3, ["3", "4"])
    config("gpt-oss", "layer_types", ["half_attention"] * 4, ["half_attention", "sliding_attention"])
    folder("gpt-oss", in_section("rope_parameters", factor="big"), ["config.json", "rope_parameters.factor", "big"])
    folder("gpt-oss", in_section("rope_parameters", truncate=3), ["config.json", "rope_parameters.truncate"])
    folder("gpt-oss", in_section("rope_parameters", mscale="1", mscale_all_dim=1), ["config.json", "rope_parameters.mscale", "number"])
    folder("gpt-oss", in_section("rope_parameters", attention_factor=-1), ["config.json", "rope_parameters.attention_factor", "-1"])
    folder("gpt-oss", lambda c, _: c["rope_parameters"].pop("factor"), ["config.json", "rope_parameters.factor", "missing"])
    folder("llama", lambda c, _: c.update(rope_scaling={"type": "dynamic", "factor": 2.0}), ["513", "dynamic", "at most 512"], ("-c", "513"))
    folder("llama", lambda c, _: c.update(rope_scaling={"type": "dynamic"}), ["config.json", "rope_scaling.factor", "missing"])
    config("gemma2", "query_pre_attn_scalar", 0, ["0"])
    config("gemma2", "attn_logit_softcapping", -1, ["-1"])
    config("gemma2", "final_logit_softcapping", "much", ["much"])
    config("gemma2", "sliding_window", -4, ["-4"])
    config("gemma2", "use_bidirectional_attention", True, ["true", "false"])
    folder("gemma3", lambda c, _: c["rope_parameters"]["sliding_attention"].update(rope_type="linear"), ["config.json", "sliding_attention.rope_type", "linear"])
    folder("gemma4", lambda c, _: c.update(hidden_size_per_layer_input=256), ["per_layer_token_embd.weight", "missing"])
    folder("gemma4-e", lambda c, _: c.update(hidden_size_per_layer_input=16), ["embed_tokens_per_layer", "[160, 48]", "[160, 96]"])
    config("gemma4-e", "num_kv_shared_layers", 7, ["7", "6"])
    folder("gemma4-e", lambda c, _: c.update(num_kv_shared_layers=6), ["num_kv_shared_layers is 6", "share"])
    folder("gemma4", lambda c, _: c.update(enable_moe_block=True), ["config.json", "num_experts", "missing"])
    config("gemma4-moe", "top_k_experts", 7, ["top_k_experts", "7", "6"])
    folder("gemma4-moe", lambda c, _: c.update(moe_intermediate_size=33), ["experts.gate_up_proj", "[6, 64, 64]", "[6, 66, 64]"])
    folder("gemma4-moe", lambda _, t: t.pop("model.layers.1.router.scale"), ["blk.1.ffn_gate_inp.scale", "missing"])
    config("gemma4", "use_bidirectional_attention", "all", ["all", "null"])
    folder("gemma4", lambda c, _: c["per_layer_config"]["4"].update(head_dim=16), ["head_dim", "16", "layer 4", "32"])
    folder("gemma4", lambda c, _: c["per_layer_config"]["4"].update(num_key_value_heads=2), ["layers.4.self_attn.k_proj.weight", "[32, 64]", "[64, 64]"])
    folder("gemma4", lambda c, _: c["rope_parameters"]["full_attention"].update(factor=8.0), ["full_attention.factor", "8", "expected 1"])
    folder("gemma", lambda c, _: c.update(hidden_act="snake"), ["hidden_act", "snake", "gelu"])
    config("granite", "residual_multiplier", "half", ["half"])
    config("granite", "logits_scaling", 0, ["0"])
    config("granite-hybrid", "num_local_experts", 70000, ["70000", "65536"])
    folder("granite-hybrid", lambda c, _: c.update(num_local_experts=8, num_experts_per_tok=2), ["ffn_gate_inp.weight is missing"])
    config("granite-hybrid", "layer_types", ["attention", "attention"], ["2", "num_hidden_layers"])
    config("granite-hybrid", "layer_types", "mamba", ["mamba", "an array"])
    config("granite-hybrid", "position_embedding_type", "learned", ["learned", "rope", "nope"])
    folder("granite-hybrid", lambda c, _: c.pop("layer_types"), ["config.json", "layer_types", "missing"])
    # layers with a state: what a layer is, sizes, factors
    config("granite4-h", "layer_types", ["linear_attention", "swinging", "full_attention", "linear_attention"], ["swinging", "full_attention"])
    folder("granite4-h", lambda c, _: c.update(mamba_d_conv=1), ["mamba_d_conv is 1", "2 or more"])
    folder("granite4-h", lambda c, _: c.update(mamba_n_groups=4), ["mamba_n_heads is 6", "a multiple of ssm.group_count"])
    config("granite4-h", "time_step_limit", [0.0], ["time_step_limit", "two numbers"])
    config("granite4-h", "time_step_limit", [-1.0, 2.0], ["time_step_limit", "two numbers"])
    folder("nemotron-h", lambda c, _: (c.pop("layers_block_type"), c.update(hybrid_override_pattern="M-*X")), ["hybrid_override_pattern", "M, *, - or E"])
    folder("nemotron-h", lambda c, _: c.pop("layers_block_type"), ["layer_types", "missing"])
    config("nemotron-h-moe", "n_group", 2, ["2", "1"])
    config("bamba", "attn_layer_indices", [9], ["9", "a layer"])
    config("deepseek-v2-groups", "n_shared_experts", 1 << 24, ["16777216", "of all shared experts"])
    config("falcon-h1", "mamba_d_ssm", 60, ["60", "mamba_n_heads"])
    config("falcon-h1", "ssm_multipliers", [1, 2], ["ssm_multipliers", "five"])
    config("falcon-h1", "mlp_multipliers", [1], ["mlp_multipliers", "two"])
    folder("qwen3-next", lambda c, _: c.update(linear_num_value_heads=5), ["linear_num_value_heads is 5", "a multiple of ssm.group_count"])
    config("qwen3-next", "linear_key_head_dim", 0, ["0"])
    folder("lfm2", lambda c, _: c.update(conv_L_cache=1), ["conv_L_cache is 1", "2 or more"])
    config("lfm2", "layer_types", ["conv"], ["1", "num_hidden_layers"])
    for key in ("inner_size", "time_step_rank", "state_size", "conv_kernel"):
        keyed("qwen3-next", "ssm." + key, None, ["missing key qwen3next.ssm." + key])
    keyed("qwen3-next", "ssm.conv_kernel", 1 << 24, ["blk.0.ssm_conv1d.weight", "160 x 16777216"])  # not a byte of memory for it
    keyed("mamba2", "ssm.group_count", 1 << 24, ["ssm.time_step_rank is 6", "ssm.group_count"])
    keyed("granite4-h", "ssm.state_size", 1 << 24, ["blk.0.ssm_in.weight", "[230, 48]"])
    folder("qwen3-moe", lambda c, _: c.pop("num_local_experts"), ["config.json", "num_experts", "missing"])
    config("qwen3-moe", "num_experts_per_tok", 0, ["0"])
    config("mixtral", "num_local_experts", -1, ["-1"])
    config("phi2", "qk_layernorm", True, ["true", "false"])
    folder("phi3", lambda c, _: c["rope_parameters"].pop("short_factor"), ["config.json", "rope_parameters.short_factor", "missing"])
    folder("phi3", in_section("rope_parameters", long_factor=[1.0] * 7), ["config.json", "rope_parameters.long_factor", "7", "8"])
    config("smollm3", "no_rope_layers", [1, 0], ["no_rope_layers"])
    folder("stablelm", in_section("rope_parameters", partial_rotary_factor=0.1), ["config.json", "partial_rotary_factor", "0.1"])
    config("gpt2", "scale_attn_by_inverse_layer_idx", True, ["true", "false"])
    config("gpt2", "n_head", 3, ["3", "64"])
    folder("hunyuan", in_section("rope_parameters", alpha=-3), ["rope_parameters.alpha", "-3", "0.001"])
    folder("hunyuan", in_section("rope_parameters", alpha="x"), ["rope_parameters.alpha", "x", "number"])
    for section in ([1, 2, 3, 4], [1, 2], [1, -2, 3], "x"):
        folder("qwen2", lambda c, _, section=section: c.update(model_type="qwen2_vl", architectures=None, rope_scaling={"type": "mrope", "mrope_section": section}),
               ["mrope_section", "three numbers"])
    config("falcon", "alibi", True, ["true", "false"])
    config("falcon", "parallel_attn", False, ["false", "true"])
    folder("falcon-grouped", lambda c, _: c.update(num_kv_heads=3), ["num_key_value_heads", "3", "multiple"])
    config("olmo", "clip_qkv", 8.0, ["8", "expected 0"])
    config("glm4-moe", "n_group", 4, ["4", "expected 1"])
    config("olmoe", "clip_qkv", 8.0, ["8", "expected 0"])
    config("minimax-m2", "use_qk_norm", False, ["false", "true"])
    config("hunyuan-moe", "moe_topk", [2, 3], ["moe_topk", "the same for each layer"])
    folder("qwen2-moe", drop("model.layers.1.mlp.shared_expert.up_proj.weight"), ["blk.1.ffn_up_shexp.weight"])
    config("olmo2", "architectures", ["Olmo9ForCausalLM"], ["Olmo9ForCausalLM", "Olmo2ForCausalLM"])
    not_read()
    integers()
    config("llama", "quantization_config", {"quant_method": "fp8", "weight_block_size": [64, 64]}, ["weight_block_size", "128"])
    fp8, up = {"quantization_config": {"quant_method": "fp8"}}, "model.layers.0.mlp.up_proj.weight"
    scale = lambda kind, shape: {up + "_scale": (kind, shape, bytes({"F32": 4, "I32": 4}[kind] * gguf_forms.product(shape)))}  # noqa: E731
    for kind in ("F8_E4M3", "F8_E5M2"):
        folder("llama", lambda c, t: (c.update(fp8), retyped(up, kind, 1)(c, t)), [up, kind.lower(), "_scale", "quantization_config"])
    folder("llama", lambda c, t: (c.update(fp8), retyped(up, "F8_E5M2", 1)(c, t), t.update(scale("F32", [1]))), [up, "f8_e5m2", "f8_e4m3"])
    folder("llama", lambda c, t: (c.update(fp8), retyped(up, "F8_E4M3", 1)(c, t), t.update(scale("I32", [1]))), [up + "_scale", "i32", "f32"])
    folder("llama", lambda c, t: (c.update(fp8), retyped(up, "F8_E4M3", 1)(c, t), t.update(scale("F32", [3]))), [up + "_scale", "is 3", "128 x 128", "128 and 64"])
    down = "model.layers.0.mlp.down_proj.weight"  # 64 x 128: one block
    folder("llama", lambda c, t: (c.update(fp8), retyped(down, "F8_E4M3", 1)(c, t), t.update({down + "_scale": ("F32", [2, 1], bytes(8))})),
           [down + "_scale", "128 x 128", "64 and 128"])
    nvfp4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}

    def packed(rows=128, groups=4, one=(), scale_2="F32"):
        def change(c, t):
            n, k = t[up][1]
            c.update(nvfp4)
            t[up] = ("U8", [n, k // 2], bytes(n * k // 2))
            t[up + "_scale"] = ("F8_E4M3", [rows, groups], bytes(rows * groups))
            if scale_2:
                t[up + "_scale_2"] = (scale_2, list(one), bytes(4 * gguf_forms.product(one)))
        return change
    folder("llama", packed(rows=127), [up + "_scale", "f8_e4m3", "NVFP4"])
    folder("llama", packed(groups=5), [up + "_scale", "each 16 elements"])
    folder("llama", packed(one=[2]), [up + "_scale_2", "one f32"])
    folder("llama", packed(scale_2="I32"), [up + "_scale_2", "i32", "one f32"])
    folder("llama", packed(scale_2=None), [up + "_scale", "_scale_2"])
    folder("mixtral", lambda c, t: (c.update(fp8), mixed_scales(t)), ["experts.1.w1", "experts.0.w1", "type and shape"])


def not_read():
    """More than 40 files of types and methods of quantisation that no loader reads: the name, what is missing, the nearest form that works."""
    before = passed + failed
    def method(name, words, **more):
        config("llama", "quantization_config", dict(more, quant_method=name), ["quant_method", name] + words)
    for name in ("sinq", "fp_quant", "fouroversix", "", "GPTQ"):
        method(name, ["no reader", "gptq, awq, compressed-tensors, hqq"])
    for name in ("aqlm", "quip", "vptq", "bitnet"):
        method(name, ["not read", "the nearest is", "Q2_K"])
    for name in ("higgs", "spqr", "exl2", "exl3"):
        method(name, ["not read", "the nearest is", "gptq"])
    for name in ("eetq", "quark"):
        method(name, ["not read", "the nearest is", "compressed-tensors"])
    for form in ("int4", None):
        method("bitsandbytes", ["'quantization_config.bnb_4bit_quant_type'", '"nf4"'], bnb_4bit_quant_type=form)
    for form in ("marlin-24", "sparse-24-bitmask", "pack-quantised", 4, None, ["pack-quantized"]):
        method("compressed-tensors", ["'quantization_config.format'", "float-quantized"], format=form)
    for version in ("gemv", "gemv_fast", "marlin", "exllama", "ipex"):
        method("awq", ["'quantization_config.version'", version, "gemm"], version=version)
    for version in ("marlin", "bitblas", "gptq_p"):
        method("gptq", ["'quantization_config.checkpoint_format'", version, '"gptq"'], checkpoint_format=version)
    for form in ("auto_round:gptqmodel", "auto_round:llm_compressor", "auto_round", None):
        method("auto-round", ["'quantization_config.packing_format'", "auto_round:auto_gptq"], packing_format=form)
    for form in ("INT4_AWQ", "W4A8_AWQ", "MXFP8"):
        method("modelopt", ["'quantization_config.quant_algo'", form, "FP8"], quant_algo=form)
    c = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    config("llama", "quantization_config", dict(c, sparsity_config={"format": "sparse-24-bitmask"}), ["sparsity_config.format", "sparse-24", '"dense"'])
    config("llama", "quantization_config", dict(c, transform_config={"config_groups": {}}), ["transform_config", "rotates activations"])
    for number, name, nearest in ((4, "Q4_2", "q4_0"), (5, "Q4_3", "q4_1"), (31, "Q4_0_4_4", "q4_0"), (32, "Q4_0_4_8", "q4_0"), (33, "Q4_0_8_8", "q4_0"),
                                  (36, "IQ4_NL_4_4", "iq4_nl"), (37, "IQ4_NL_4_8", "iq4_nl"), (38, "IQ4_NL_8_8", "iq4_nl")):
        gguf("llama", typed(number), ["type %d (%s)" % (number, name), "not read", "the nearest", nearest])
    for number in (43, 99):
        gguf("llama", typed(number), ["type %d (unknown)" % number, "expected one of", "q8_0"])
    assert passed + failed - before >= 40


def typed(number):
    """A matrix of a type of GGML that is not read."""
    def change(_, tensors):
        shape, _, raw = tensors["blk.0.ffn_up.weight"]
        tensors["blk.0.ffn_up.weight"] = (shape, number, raw)
    return change


def integers():
    """Matrices of compressed-tensors, GPTQ and AWQ whose tensors do not fit each other."""
    import packed
    stem, form = "model.layers.0.mlp.up_proj", {"compressed": "compressed-tensors", "gptq": "gptq", "awq": "awq", "nf4": "bitsandbytes", "double": "bitsandbytes", "int8": "bitsandbytes",
                                                        "fp4": "bitsandbytes", "hqq": "hqq", "ao8": "torchao", "ao4": "torchao", "aof8": "torchao"}
    makers = {"compressed": lambda: packed.compressed(4, 32, "F16", "words"), "gptq": lambda: packed.gptq(4, 32), "awq": lambda: packed.awq(32), "nf4": packed.nf4, "double": lambda: packed.nf4(nested=256), "int8": lambda: packed.int8,
              "fp4": lambda: packed.nf4(kind="fp4", table16=packed.FP4_BNB), "hqq": lambda: packed.hqq(4, 64), "ao8": lambda: packed.torchao_bytes(32, "BF16", True),
              "ao4": lambda: packed.torchao_int4(32), "aof8": lambda: packed.torchao_f8}

    def wrong(kind, changes, words):
        """changes: ending -> a tensor, or None: it is not there."""
        def change(c, t):
            n, k = t.pop(stem + ".weight")[1]
            c["quantization_config"] = {"quant_method": form[kind], "format": "pack-quantized", "bnb_4bit_quant_type": "nf4", "load_in_8bit": kind == "int8"}
            made = makers[kind]()(stem, (n, k), packed.random.Random(1))[0]
            for ending, tensor in made.items():
                t[stem + ending] = tensor
            for ending, tensor in changes.items():
                if tensor is None:
                    t.pop(stem + ending)
                else:
                    name, shape, *value = tensor
                    size = {"F32": 4, "I32": 4, "F16": 2, "I64": 8, "I8": 1, "F8_E4M3": 1, "U8": 1}[name]
                    t[stem + ending] = (name, shape, (value or [0])[0].to_bytes(size, "little", signed=True) * gguf_forms.product(shape))
        folder("llama", change, [stem] + words)
    # up_proj of the fixture: 128 x 64
    fp4 = {".weight_packed": ("I8", [128, 32])}
    for changes, words in (({}, ["weight_packed", "i8"]), ({".weight_packed": ("U8", [128, 24])}, ["whole groups of 32"]),
                           ({".weight_packed": ("U8", [128, 32])}, ["weight_scale", "f16", "e8m0", "global_scale"]),
                           ({".weight_packed": ("U8", [128, 32]), ".weight_scale": None}, ["weight_packed", "weight_scale beside it"]),
                           ({".weight_packed": ("U8", [128, 32]), ".weight_scale": ("F8_E4M3", [128, 4])}, ["weight_scale", "f8_e4m3", "global_scale"])):
        wrong("compressed", dict(fp4, **changes), words)
    for changes, words in (({".weight": ("I8", [128, 64])}, ["weight_zero_point"]),
                           ({".weight": ("I8", [128, 64]), ".weight_scale": None}, [".weight'", "weight_scale beside it"]),
                           ({".weight": ("I8", [8192])}, [".weight'", "rows, columns"]),
                           ({".weight": ("I8", [128, 64]), ".weight_zero_point": None, ".weight_scale": ("F16", [128, 3])}, ["weight_scale", "each group"]),
                           ({".weight": ("I8", [128, 64]), ".weight_zero_point": None, ".weight_scale": ("F16", [64, 1])}, ["weight_scale", "is 64"])):
        wrong("compressed", dict({".weight_packed": None}, **changes), words)
    wrong("compressed", {".weight_scale": None}, ["has no", "weight_scale"])
    wrong("compressed", {".weight_shape": None}, ["has no", "weight_shape"])
    wrong("compressed", {".weight_shape": ("I64", [2])}, ["weight_shape", "rows and columns"])
    wrong("compressed", {".weight_shape": ("I64", [3])}, ["weight_shape", "two integers"])
    wrong("compressed", {".weight_shape": ("F32", [2])}, ["weight_shape", "f32", "two integers"])
    wrong("compressed", {".weight_packed": ("I32", [128, 9])}, ["9 words", "[128, 64]"])
    wrong("compressed", {".weight_packed": ("I32", [128, 14]), ".weight_zero_point": None}, ["7 bits", "2 to 6 or 8"])
    wrong("compressed", {".weight_packed": ("I32", [127, 8])}, ["weight_packed", "[128, 64]"])
    wrong("compressed", {".weight_scale": ("F16", [128, 3])}, ["weight_scale", "for each group of a row"])
    wrong("compressed", {".weight_scale": ("F16", [128, 4]), ".weight_zero_point": ("I32", [16, 4])}, ["groups of 16", "a multiple of 32"])
    wrong("compressed", {".weight_scale": ("F16", [64, 2])}, ["weight_scale", "the first is 64"])
    wrong("compressed", {".weight_scale": ("F8_E4M3", [128, 2])}, ["weight_scale", "f8_e4m3", "f16, bf16 or f32"])
    wrong("compressed", {".weight_zero_point": ("I32", [16, 3])}, ["weight_zero_point", "a zero for each scale"])
    wrong("compressed", {".weight_zero_point": ("F16", [128, 2])}, ["weight_zero_point", "f16", "a zero for each scale"])
    wrong("compressed", {".weight_g_idx": ("I32", [63])}, ["weight_g_idx", "a group for each column"])
    wrong("gptq", {".scales": None}, ["has no", "up_proj.scales"])
    wrong("gptq", {".qzeros": None}, ["has no", "up_proj.qzeros"])
    wrong("gptq", {".g_idx": ("I32", [64], -1)}, ["g_idx", "column 0 is in group -1", "expected 0 to 1"])
    wrong("gptq", {".g_idx": ("I32", [64], 2)}, ["g_idx", "column 0 is in group 2", "expected 0 to 1"])
    wrong("gptq", {".g_idx": ("I32", [64]), ".qweight": ("I32", [6, 128]), ".qzeros": ("I32", [2, 12])}, ["3 bits", "act-order", "4 or 8 where g_idx"])
    wrong("gptq", {".g_idx": ("I32", [63])}, ["g_idx", "the first is 63", "a group for each column"])
    wrong("gptq", {".g_idx": ("F32", [64])}, ["g_idx", "f32", "a group for each column"])
    wrong("gptq", {".qzeros": ("I32", [2, 15])}, ["qzeros", "2, 3, 4 or 8 bits"])
    wrong("gptq", {".qzeros": ("I32", [3, 16])}, ["qzeros", "as many groups as of scales"])
    wrong("gptq", {".qzeros": ("F32", [2, 16])}, ["qzeros", "f32", "words of 32 bits"])
    wrong("gptq", {".scales": ("F16", [256])}, ["scales", "groups, rows of the matrix"])
    wrong("gptq", {".scales": ("F16", [3, 128]), ".qzeros": ("I32", [3, 16])}, ["scales", "divides the columns"])
    wrong("gptq", {".qweight": ("I32", [8, 127])}, ["qweight", "for each row"])
    wrong("gptq", {".qweight": ("F32", [8, 128])}, ["qweight", "f32", "words of 32 bits"])
    wrong("gptq", {".qzeros": ("I32", [2, 20]), ".qweight": ("I32", [10, 128])}, ["qzeros", "2, 3, 4 or 8 bits"])
    wrong("awq", {".qzeros": None}, ["has no", "up_proj.qzeros"])
    wrong("awq", {".qzeros": ("I32", [2, 15])}, ["qzeros", "4 bits"])
    wrong("awq", {".qweight": ("I32", [63, 16])}, ["qweight", "the first is 63"])
    wrong("awq", {".qweight": ("I32", [64, 15])}, ["qweight", "4 bits for each row"])
    wrong("awq", {".scales": ("F16", [4, 128]), ".qzeros": ("I32", [4, 16])}, ["groups of 16", "a multiple of 32"])


    state = ".weight.quant_state.bitsandbytes__nf4"
    wrong("nf4", {state: None}, ["quant_state", "beside it"])
    wrong("nf4", {".weight.absmax": None}, ["absmax", "beside it"])
    wrong("nf4", {state: ("U8", [4])}, ["JSON"])
    wrong("nf4", {".weight": ("U8", [4095, 1])}, [".weight'", "half a byte", "quant_state's shape"])
    wrong("nf4", {".weight.absmax": ("F32", [127])}, ["absmax", "f32 or u8", "each block"])
    wrong("nf4", {".weight.quant_map": None}, ["quant_map", "table of NF4"])
    wrong("nf4", {".weight.quant_map": ("F32", [16])}, ["quant_map", "table of NF4"])
    wrong("nf4", {".weight.absmax": ("U8", [128])}, ["absmax", "nested_quant_map"])
    wrong("double", {".weight.nested_absmax": None}, ["absmax", "nested_absmax"])
    wrong("double", {".weight.nested_quant_map": ("F32", [255])}, ["absmax", "nested_quant_map, 256"])
    wrong("int8", {".SCB": None}, ["X.SCB beside X.weight"])
    wrong("int8", {".SCB": ("F32", [127])}, ["SCB", "one f32 for each row"])
    wrong("int8", {".SCB": ("F16", [128])}, ["SCB", "f16", "one f32 for each row"])
    wrong("fp4", {".weight.quant_map": ("F32", [16])}, ["quant_map", "table of FP4"])
    wrong("hqq", {".axis": ("I32", [], 0)}, ["W_q", "X.axis is not 1", "expected axis 1"])
    wrong("hqq", {".axis": None}, ["W_q", "X.axis is not 1"])
    wrong("hqq", {".scale": None}, ["W_q", "X.scale, X.zero and X.shape"])
    wrong("hqq", {".zero": None}, ["W_q", "quantised themselves"])
    wrong("hqq", {".packing": ("U8", [7])}, ["W_q", "X.packing", "3bit_32"])
    wrong("hqq", {".packing": None}, ["W_q", "X.packing"])
    wrong("hqq", {".shape": ("I64", [3])}, ["up_proj.shape", "two integers of 64 bits"])
    wrong("hqq", {".shape": ("I64", [2], -1)}, ["up_proj.shape", "rows and columns"])
    wrong("hqq", {".scale": ("F16", [127, 1])}, ["up_proj.scale", "groups that divide rows"])
    wrong("hqq", {".scale": ("F16", [256, 1])}, ["up_proj.zero", "as many zeros as scales"])
    wrong("hqq", {".zero": ("F32", [64, 1])}, ["up_proj.zero", "of their type"])
    wrong("hqq", {".W_q": ("U8", [64, 32])}, ["W_q", "the codes of X.shape"])
    wrong("hqq", {".scale": ("F8_E4M3", [128, 1]), ".zero": ("F8_E4M3", [128, 1])}, ["up_proj.scale", "f16, bf16 or f32"])
    wrong("hqq", {".scale": ("F16", [512, 1]), ".zero": ("F16", [512, 1])}, ["groups of 16", "a multiple of 32"])
    wrong("ao8", {"._weight_qdata": ("I32", [16, 1, 32, 4]), "._weight_scale": None, "._weight_zero_point": None}, ["_weight_qdata", "not read", "the nearest are", "Int4Tensor"])
    wrong("ao8", {"._weight_qdata": ("U8", [128, 64])}, ["_weight_qdata", "u8", "bytes, or f8_e4m3"])
    wrong("ao8", {"._weight_act_pre_scale": ("F16", [64])}, ["_weight_act_pre_scale", "activations are multiplied"])
    wrong("ao8", {"._weight_scale": ("F16", [128, 3])}, ["_weight_scale", "each group"])
    wrong("ao8", {"._weight_zero_point": ("I8", [128, 1])}, ["_weight_zero_point", "a zero for each scale"])
    wrong("ao4", {"._weight_scale": ("F16", [2, 127])}, ["_weight_scale", "groups, rows of the matrix"])
    wrong("ao4", {"._weight_zero_point": ("F32", [2, 128])}, ["_weight_zero_point", "as many zeros as scales"])
    wrong("aof8", {"._weight_scale": ("F32", [128, 2])}, ["_weight_scale", "one for each row"])


def tensors():
    layer = "model.layers.1."
    folder("qwen3-moe", lambda c, _: c.update(moe_intermediate_size=48), ["experts", "shape", "48"])
    folder("mixtral", lambda c, _: c.update(num_local_experts=9, num_experts_per_tok=2), ["shape", "9"])
    folder("mixtral", drop(layer + "block_sparse_moe.experts.2.w3.weight"), ["experts.3.w3", "expected number 2"])
    folder("mixtral", reshaped(layer + "block_sparse_moe.experts.2.w3.weight", [64, 64]), ["experts.2.w3", "shape"])
    folder("qwen3-moe", drop(layer + "mlp.gate.weight"), ["blk.1."])
    folder("llama", lambda c, _: c.update(num_hidden_layers=3), ["blk.2.attn_norm.weight", "missing", "model.layers.0.input_layernorm.weight"])
    folder("llama", drop("model.norm.weight"), ["output_norm.weight", "missing", "model.norm.weight"])
    folder("qwen2", drop(layer + "self_attn.k_proj.bias"), ["blk.1.attn_k.bias", "missing", "model.layers.0.self_attn.k_proj.bias"])
    folder("qwen2", drop("model.layers.0.self_attn.k_proj.bias"), ["blk.0.attn_k.bias", "missing", "model.layers.1.self_attn.k_proj.bias"])
    folder("qwen3", drop(*("model.layers.%d.self_attn.q_norm.weight" % i for i in range(2))), ["blk.0.attn_q_norm.weight", "missing"])
    folder("gemma2", drop(*("model.layers.%d.post_feedforward_layernorm.weight" % i for i in range(3))), ["blk.0.post_ffw_norm.weight", "missing"])
    folder("gpt-oss", drop(layer + "self_attn.sinks"), ["blk.1.attn_sinks.weight", "missing"])
    folder("olmo2", lambda _, t: t.update({layer + "self_attn.q_norm.bias": ("F32", [64], bytes(256))}), ["q_norm.bias", "olmo2 has no bias here", "expected"])
    folder("llama", lambda _, t: t.update({"model.norm.bias": ("F32", [64], bytes(256))}), ["model.norm.bias", "llama has no bias here", "expected"])
    folder("olmo2", drop(layer + "post_feedforward_layernorm.weight"), ["blk.1.post_ffw_norm.weight", "missing"])
    folder("olmo2", reshaped(layer + "self_attn.q_norm.weight", [16]), ["q_norm", "16", "64"])
    folder("gemma3", reshaped(layer + "self_attn.q_norm.weight", [64]), ["q_norm", "64", "16"])
    folder("gpt2", lambda c, _: c.update(n_positions=64), ["wpe", "96", "64"])
    folder("gpt2", drop("transformer.wpe.weight"), ["position_embd.weight", "missing"])
    folder("gpt2", reshaped("transformer.h.1.attn.c_attn.weight", [64, 191]), ["c_attn", "191", "192"])
    folder("phi3", reshaped(layer + "self_attn.qkv_proj.weight", [100, 64]), ["qkv_proj", "100", "128"])
    folder("phi3", reshaped(layer + "mlp.gate_up_proj.weight", [128, 64]), ["gate_up_proj", "128", "256"])
    folder("phi2", drop("model.final_layernorm.weight"), ["output_norm.weight", "missing"])
    folder("stablelm-parallel", drop(layer + "self_attn.q_layernorm.norms.1.weight"), ["q_layernorm.norms.2", "expected number 1"])
    folder("gpt-oss", reshaped(layer + "self_attn.sinks", [7]), ["sinks", "7", "8"])
    folder("gpt-oss", reshaped(layer + "mlp.experts.gate_up_proj", [8, 64, 127]), ["gate_up_proj", "expected"])
    folder("gpt-oss-mxfp4", drop(layer + "mlp.experts.down_proj_scales"), ["down_proj_blocks", "down_proj_scales"])
    folder("gpt-oss-mxfp4", reshaped(layer + "mlp.experts.down_proj_scales", [8, 64, 1]), ["down_proj_scales", "expected"])
    folder("gpt-oss-mxfp4", reshaped(layer + "mlp.experts.down_proj_blocks", [8, 64, 2, 15]), ["down_proj_blocks", "expected"])
    folder("llama", retyped("model.layers.0.mlp.up_proj.weight", "I64", 8), ["up_proj", "i64"])
    folder("llama", retyped("model.norm.weight", "U8", 1), ["norm.weight", "u8"])
    folder("gpt2", lambda *_: None, ["97", "96"], ("-c", "97"))
    for name in ("model.norm.weight", "lm_head.weight", "model.layers.1.mlp.up_proj.weight"):
        folder("llama", retyped(name, "F64", 8), [name, "f64", "--type f32"])


def mlx():
    q = {"bits": 4, "group_size": 64}
    for changed, words in (({"bits": 7}, ["7", "2, 3, 4, 5, 6 or 8"]), ({"group_size": 48}, ["48"]), ({"mode": "nf4"}, ["mode", "nf4", "affine"]),
                           ({"bits": "four"}, ["quantization.bits", "four"]), ({"group_size": None}, ["quantization.group_size"]),
                           ({"model.layers.0.mlp.down_proj": False}, ["down_proj.scales", "not quantised"]),
                           ({"model.layers.0.mlp.down_proj": {"bits": 4}}, ["model.layers.0.mlp.down_proj.group_size"])):
        folder("llama-mlx4", lambda c, _: c.update(quantization=dict(q, **changed)), ["mlx"] + words)
    stem = "model.layers.0.self_attn.q_proj"
    folder("llama-mlx4", drop(stem + ".biases"), [stem + ".weight", "biases are missing"])
    folder("llama-mlx4", drop(stem + ".weight"), [stem + ".scales", "missing"])
    folder("llama-mlx4", drop(stem + ".scales"), [stem])
    folder("llama-mlx4", lambda c, t: reshaped(stem + ".scales", [t[stem + ".scales"][1][0], 3])(c, t), [stem + ".scales", "per row"])
    for plane in (".scales", ".biases"):
        folder("llama-mlx4", lambda c, t: reshaped(stem + plane, [t[stem + plane][1][0] - 1, t[stem + plane][1][1]])(c, t), [stem + plane, "as many rows"])
    folder("llama-mlx4", retyped(stem + ".scales", "I32", 4), [stem + ".scales", "i32"])


def gguf_keys():
    def put(name, kind, v):
        return lambda f, _: f.key(name, kind, v)
    u32, f32, string = gguf_file.U32, gguf_file.F32, gguf_file.STR
    gguf("mixtral", put("expert_used_count", u32, 99), ["llama.expert_used_count", "99", "1 to 4"])
    gguf("mixtral", lambda f, _: f.keys.pop("expert_used_count"), ["llama.expert_used_count", "missing"])
    gguf("qwen3-moe", put("expert_gating_func", u32, 9), ["qwen3moe.expert_gating_func", "9"])
    gguf("qwen3-moe", put("expert_feed_forward_length", u32, 33), ["ffn_gate_exps", "32", "33"])
    gguf("gemma2", lambda f, _: f.keys.update({"attention.sliding_window_pattern": (gguf_file.BOOL, [True, False])}),
         ["gemma2.attention.sliding_window_pattern", "3"])
    gguf("gemma2", put("attn_logit_softcapping", string, "much"), ["gemma2.attn_logit_softcapping", "number"])
    gguf("gemma3", put("rope.freq_base_swa", f32, -1.0), ["gemma3.rope.freq_base_swa", "-1"])
    gguf("gemma4", put("embedding_length_per_layer_input", u32, 256), ["per_layer_token_embd.weight is missing"])
    gguf("gemma4", put("attention.shared_kv_layers", u32, 99), ["gemma4.attention.shared_kv_layers", "99"])
    gguf("gemma4", put("rope.dimension_count_swa", u32, 18), ["rope.dimension_count_swa", "18", "head size 16", "layer 0"])
    gguf("gpt-oss", put("rope.scaling.type", string, "spiral"), ["gpt-oss.rope.scaling.type", "spiral", "yarn"])
    gguf("phi3", lambda _, t: t.pop("rope_factors_long.weight"), ["rope_factors_long.weight"], ("-c", "64"))
    gguf("phi3", lambda _, t: t.update({"rope_factors_long.weight": ([4], 0, bytes(16))}), ["rope_factors_long.weight", "4", "8"], ("-c", "64"))
    gguf("stablelm", put("rope.dimension_count", u32, 17), ["stablelm.rope.dimension_count", "17", "16"])
    gguf("gpt2", put("context_length", u32, 64), ["position_embd.weight", "96", "64"])
    gguf("olmo2", lambda f, _: setattr(f, "arch", "mamba"), ["mamba", "olmo2"])
    gguf("granite", put("logit_scale", f32, float("inf")), ["granite.logit_scale", "inf"])
    gguf("gpt-oss", lambda _, t: t.pop("blk.1.ffn_gate_inp.weight"), ["blk.1.ffn_gate_inp.weight", "missing"])


def unused():
    """Tensors without which it is another model: an error that names them, with --ignore-unused a warning and the logits of the model without."""
    def f32(n):
        return ([n], gguf_file.TENSOR_F32, bytes(4 * n))
    norms = {"blk.%d.%s_sub_norm.weight" % (i, w): f32(64) for i in range(2) for w in ("attn", "ffn")}
    for extra, kinds in ((norms, ["blk.*.attn_sub_norm.weight (2)", "blk.*.ffn_sub_norm.weight (2)"]), ({"blk.1.ffn_gate_shexp.weight": f32(64)}, ["ffn_gate_shexp"]),
                         ({"blk.0.attn_q.scale": f32(1)}, ["blk.*.attn_q.scale (1)"]), ({"token_embd_norm.weight": f32(64)}, ["token_embd_norm.weight"]),
                         ({"blk.0.attn_q.weight.lora_a": f32(64)}, ["lora_a"]), ({"blk.0.q.bias": f32(4)}, ["blk.*.q.bias"]),
                         ({"per_layer_model_proj.weight": f32(4)}, ["per_layer_model_proj.weight"])):
        gguf("llama", lambda _, t: t.update(extra), ["the architecture llama", "another model", "--ignore-unused"] + kinds)
    names = ("model.layers.1.mlp.shared_expert.up_proj.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "model.layers.0.mlp.extra")
    for name in names:
        folder("qwen3", lambda _, t: t.update({name: ("BF16", [2, 4], bytes(16))}), [name.replace(".0.", ".*.").replace(".1.", ".*."), "--ignore-unused"])
    many = {"model.layers.0.extra_%d.weight" % i: ("F32", [1], bytes(4)) for i in range(9)}
    folder("qwen3", lambda _, t: t.update(many), ["extra_5", "and 3 more"])
    m = models.fixture("qwen3")
    m.tensors.update({name: ("F4", [2, 4], bytes(4)) for name in names + ("a.tag", "speech.layers.0.weight")})
    golden = os.path.join(models.FIXTURES, "qwen3", "golden.safetensors")
    prompt, want = (list(models.safetensors.read(golden, of)[1]) for of in ("prompt", "logits"))
    path = m.write(os.path.join(TMP, "ignored"))
    refused("ignored", path, list(n.split(".")[-2] for n in names))
    for flags, variable in (["--ignore-unused"], {}), ([], {"MINERVA_IGNORE_UNUSED": "true"}):
        out = os.path.join(TMP, "l.safetensors")
        p = subprocess.run([MINERVA, "logits", "-m", path, "--prompt-ids", ",".join(map(str, prompt)), "--device", "reference", "-o", out, *flags],
                           capture_output=True, text=True, env=dict(os.environ, **variable))
        said = [line for line in p.stderr.splitlines() if "warning" in line and "nothing reads" not in line]
        models.check(p.returncode == 0 and len(said) == 1 and all(w in said[0] for w in ("another model", "lora_A", "a.tag (1)", "speech.layers.*.weight (1)", "not known")), "a warning: %s" % said)
        found = models.safetensors.read(out, "logits")[1] if p.returncode == 0 else ()
        models.check(len(found) == len(want) and math.dist(found, want) <= 1e-5 * math.hypot(*want), "the logits without the unused tensors")


def projector():
    """What it is, not that it has no tokeniser."""
    path = gguf_file.write(os.path.join(TMP, "mmproj.gguf"), [gguf_file.pair("general.architecture", gguf_file.STR, "clip")],
                           [("v.blk.0.attn_q.weight", [4, 4], gguf_file.TENSOR_F32, bytes(64)), ("mm.0.weight", [4, 4], gguf_file.TENSOR_F32, bytes(64))])
    for prompt in ((), ("-p", "a fox"), ("--prompt-ids", "1")):
        refused("mmproj.gguf", path, ["mmproj.gguf", 'general.architecture is "clip"', "known: llama"], prompt=prompt)


def missing():
    """Architectures of the field that do not run: the message says what is missing, in both formats."""
    with open(os.path.join(ROOT, "ground", "missing.def"), encoding="utf-8") as f:
        text = f.read()
    words = dict(re.findall(r'^#define (\w+) "(.*)"$', text, re.M))
    rows = re.findall(r'^MN_MISSING\("(.*?)", "(.*?)", (?:(\w+)|"(.*)")\)$', text, re.M)
    assert len(rows) >= 50 and len(rows) == text.count("\nMN_MISSING("), len(rows)
    for arch, kind, name, what in rows:
        what = what or words[name]
        if kind:
            config("llama", "model_type", kind, [kind, "does not run here yet", what])
        if arch:
            gguf("qwen2", lambda f, _, arch=arch: setattr(f, "arch", arch), ["general.architecture", arch, "does not run here yet", what])


def main(folder):
    global TMP
    TMP = folder
    keys()
    tensors()
    missing()
    if "mlx" in sys.argv:
        mlx()
    gguf_keys()
    unused()
    projector()
    print("%d cases as expected, %d not" % (passed, failed))


with tempfile.TemporaryDirectory() as tmp:
    main(tmp)
sys.exit(failed != 0 or len(models.FAILED) != 0)
