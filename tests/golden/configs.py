#!/usr/bin/env python3
"""configs.py [FIXTURE...]: config.json and tensor names as other versions of Transformers, and other people, write them.

Each variant of a fixture must give the fixture's golden logits on the devices reference and cpu_simd."""
import math
import sys

import models

LONE = ("transformers_version", "use_cache", "initializer_range", "pad_token_id", "attention_dropout", "_sliding_window_pattern",
        "attention_bias", "mlp_bias", "pretraining_tp", "no_rope_layer_interval")


def old_keys(m):
    """Transformers 4: rope_theta and rope_scaling at top level, torch_dtype; what can be derived is left out."""
    c = m.config
    rope = c.pop("rope_parameters", {})
    if "full_attention" in rope:  # Gemma 3
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            c[key] = rope.pop(key)
    if rope.get("rope_type", "default") != "default":
        c["rope_scaling"] = rope
        if rope["rope_type"] == "longrope":
            rope["type"] = rope.pop("rope_type")
    else:
        c["rope_scaling"] = None
    c["torch_dtype"] = c.pop("dtype")
    for key in LONE:
        c.pop(key, None)
    if any("q_proj" in name for name in m.tensors):  # its shape says them
        c.pop("head_dim", None)
        c["num_key_value_heads"] = None


def new_keys(m):
    """Transformers 5 as it writes Llama: everything rotary in rope_parameters."""
    c = m.config
    if "rope_parameters" in c:
        return
    rope = dict(c.pop("rope_scaling", None) or {"rope_type": "default"})
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in c:
            rope[key] = c.pop(key)
    c["rope_parameters"] = rope


def drop(*keys):
    def change(m):
        for key in keys:
            m.config.pop(key, None)
    return change


def put(**values):
    return lambda m: m.config.update(values)


def in_rope(**values):
    return lambda m: m.config["rope_parameters"].update(values)


def both_sections(m):
    m.config["rope_parameters"] = {"rope_type": "linear", "factor": 3.0, "rope_theta": 5.0}
    m.config["rope_scaling"] = {"rope_type": "default", "rope_theta": 10000.0}


def rename(m, change):
    m.tensors = {change(name): t for name, t in m.tensors.items()}


def prefix(old, new):
    return lambda m: rename(m, lambda s: new + s[len(old):] if s.startswith(old) else s)


def nested(m):
    """The text part of a model that also sees."""
    text = dict(m.config, architectures=None)
    m.config = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text, "image_token_index": 262144,
                "vision_config": {"hidden_size": 32, "model_type": "siglip_vision_model"}}
    m.tensors["vision_tower.vision_model.embeddings.patch_embedding.bias"] = ("F32", [4], bytes(16))
    for which in "qk":  # with heads of their own
        m.tensors["vision_tower.vision_model.encoder.layers.0.self_attn.%s_proj.weight" % which] = ("F32", [32, 4], bytes(512))
    m.order = lambda tensors: dict(sorted(tensors.items(), reverse=True))
    m.tensors["multi_modal_projector.mm_input_projection_weight"] = ("F32", [2, 4], bytes(32))


def nested_old(m):
    prefix("model.", "language_model.model.")(m)
    nested(m)


def qwen_vl(kind, first=False):
    """Of Qwen's models that see the text, which is Qwen2's or Qwen3's; the first ones have no section for it."""
    def change(m):
        moe = "experts" in "".join(m.tensors)
        text = dict(m.config, architectures=None, model_type=kind if first else kind + "_text")
        rope = text.pop("rope_parameters", None) or {"rope_theta": 10000.0}
        text.setdefault("rope_theta", rope["rope_theta"])
        text["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 3, 3]}
        if moe:
            columns_of_experts(m)
        section = {} if first else {"text_config": text}
        m.config = dict(text if first else {}, model_type=kind, architectures=["Qwen2VLForConditionalGeneration" if first else None], image_token_id=151655,
                        vision_config={"hidden_size": 32, "model_type": kind + "_vision"}, **section)
        if not first:
            m.config["architectures"] = ["Qwen3VLForConditionalGeneration"]
            prefix("model.", "model.language_model.")(m)
        tower = "visual." if first else "model.visual."
        m.tensors[tower + "patch_embed.proj.weight"] = ("F32", [4], bytes(16))
        m.tensors[tower + "deepstack_merger_list.0.norm.bias"] = ("F32", [4], bytes(16))
        m.tensors[tower + "blocks.0.attn.qkv.weight"] = ("F32", [2, 4], bytes(32))
    return change


def columns_of_experts(m):
    """Qwen3-VL-MoE's files: gate_up_proj [E, D, 2F], down_proj [E, F, D]."""
    fused_experts(m)
    for name, (kind, shape, raw) in list(m.tensors.items()):
        if ".experts." not in name:
            continue
        e, n, k = shape
        wide = 2 if kind != "F32" else 4
        cells = [raw[i:i + wide] for i in range(0, len(raw), wide)]
        m.tensors[name] = (kind, [e, k, n], b"".join(cells[(x * n + r) * k + c] for x in range(e) for c in range(k) for r in range(n)))


def nested_new(m):
    prefix("model.", "model.language_model.")(m)
    nested(m)
    rename(m, lambda s: "model." + s if s.startswith(("vision", "multi")) else s)


def tied_by_the_whole(m):
    nested_new(m)
    m.config["tie_word_embeddings"] = True
    m.config["text_config"]["tie_word_embeddings"] = False


def lm_head_too(m):
    """Tied, and the output matrix is stored all the same."""
    kind, shape, raw = m.tensors["model.embed_tokens.weight"]
    m.tensors["lm_head.weight"] = (kind, shape, raw)


def fused_experts(m):
    """One tensor for all experts of a layer, gates before ups, as Transformers 5 holds them."""
    found = {}
    for name in list(m.tensors):
        head, mark, rest = name.partition(".experts.")
        if mark and rest[0].isdigit():
            number, _, which = rest.partition(".")
            which = which.split(".")[0]
            which = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}[which]
            found.setdefault(head, {})[int(number), which] = m.tensors.pop(name)
    for head, of in found.items():
        n = len(of) // 3
        layer = head.rsplit(".", 1)[0]
        kind, (f, d), _ = of[0, "gate"]
        m.tensors[layer + ".mlp.experts.gate_up_proj"] = (kind, [n, 2 * f, d], b"".join(of[e, w][2] for e in range(n) for w in ("gate", "up")))
        m.tensors[layer + ".mlp.experts.down_proj"] = (kind, [n, d, f], b"".join(of[e, "down"][2] for e in range(n)))
    rename(m, lambda s: s.replace(".block_sparse_moe.gate.", ".mlp.gate."))
    assert found


def key_named(old, new):
    def change(m):
        if old in m.config:
            m.config[new] = m.config.pop(old)
    return change


def causal_masks(m):
    """The first GPT-2 files keep their masks, and name no transformer."""
    rename(m, lambda s: s[len("transformer."):] if s.startswith("transformer.") else s)
    m.config["n_ctx"] = m.config["n_positions"]
    for i in range(m.config["n_layer"]):
        m.tensors["h.%d.attn.bias" % i] = ("F32", [1, 1, 4, 4], bytes(64))
        m.tensors["h.%d.attn.masked_bias" % i] = ("F32", [1], bytes(4))
    m.tensors["h.0.attn.bias"] = ("BOOL", [1, 1, 4, 4], bytes(16))


def inverse_frequencies(m):
    m.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [8], bytes(32))


def class_defaults(m):
    """What the fixtures have as their class has it."""
    c = m.config
    for key, value in (("rms_norm_eps", 1e-5 if c["model_type"] in ("mixtral", "phi3", "gpt_oss", "olmo2") else 1e-6), ("layer_norm_eps", 1e-5),
                       ("rope_theta", 1e4)):
        if c.get(key) == value:
            del c[key]
    if c.get("rope_parameters", {}).get("rope_type", "default") == "default" and "n_positions" not in c:
        c.pop("max_position_embeddings")


def released_gemma4(m):
    """Full layers by keys of their own; what the class has is left out."""
    m.config.pop("per_layer_config")
    m.config.update(global_head_dim=32, num_global_key_value_heads=1)
    for key in ("rope_parameters", "tie_word_embeddings", "rms_norm_eps", "enable_moe_block", "num_kv_shared_layers", "num_experts"):
        m.config.pop(key)


def apart_gemma4(m):
    """Gates and ups of the experts as two tensors under MLX's names."""
    for name, (kind, shape, raw) in list(m.tensors.items()):
        if name.endswith(".experts.gate_up_proj"):
            half = len(raw) // shape[0] // 2
            del m.tensors[name]
            for which, at in (("gate", 0), ("up", half)):
                rows = b"".join(raw[2 * half * i + at:2 * half * i + at + half] for i in range(shape[0]))
                m.tensors[name.replace("gate_up_proj", "switch_glu.%s_proj.weight" % which)] = (kind, [shape[0], shape[1] // 2, shape[2]], rows)
        elif name.endswith(".experts.down_proj"):
            m.tensors[name.replace("down_proj", "switch_glu.down_proj.weight")] = m.tensors.pop(name)


def nested_gemma4(m):
    text = dict(m.config)
    text.pop("architectures")
    m.config = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": text, "tie_word_embeddings": True}
    m.tensors = {name.replace("model.", "model.language_model.", 1): t for name, t in m.tensors.items()}


def nothing_that_is_read(m):
    """Tensors without elements, and of types that are not known."""
    for name, kind, shape, n in (("a.tag", "F32", [0], 0), ("model.layers.0.self_attn.past", "F16", [2, 0, 4], 0), ("b.tag", "F4", [4], 2),
                                 ("c.tag", "C64", [2], 16), ("d.tag", "F8_E8M0", [3], 3)):
        m.tensors[name] = (kind, shape, bytes(n))


def any_order(m):
    m.order = models.shuffled


def odd_place(_):
    """The header of any length: main() writes it so."""


EVERY = ["gemma", "gemma2", "gemma3", "gpt-oss", "gpt-oss-mxfp4", "gpt-oss-odd", "gpt2", "granite", "granite-hybrid", "llama", "llama-sharded", "llama-wide", "llama-yarn", "llama3-rope",
         "mistral-plain", "mistral-window", "mixtral", "mixtral-top3", "olmo2", "olmo2-bias", "phi2", "phi2-wide", "phi3", "phi3-long", "phi3-short", "qwen2", "qwen2-window",
         "qwen3", "qwen3-moe", "qwen3-moe-raw", "smollm3", "stablelm", "stablelm-parallel"]
VARIANTS = [(name, "old keys", old_keys) for name in EVERY] + [(name, "new keys", new_keys) for name in EVERY] + [
    (name, "class defaults", class_defaults) for name in EVERY] + [
    (name, "data at an odd place", odd_place) for name in ("gemma3", "gpt-oss", "gpt-oss-mxfp4", "gpt2", "llama", "mixtral", "phi3", "stablelm-parallel")] + [
    (name, "tensors in any order", any_order) for name in ("gemma3", "gpt-oss-mxfp4", "gpt2", "granite-hybrid", "mixtral", "qwen3-moe", "stablelm-parallel")] + [
    ("gemma4", "as released", released_gemma4),
    ("gemma4-moe", "the text part", nested_gemma4),
    ("gemma4-moe", "gates and ups apart", apart_gemma4),
    ("gemma4", "as released, the text part", lambda m: (released_gemma4(m), nested_gemma4(m))),
    ("gemma", "hidden_act gelu", put(hidden_act="gelu", hidden_activation=None)),
    ("gemma", "defaults left out", drop("rms_norm_eps", "tie_word_embeddings", "hidden_act", "vocab_size")),
    ("gemma2", "defaults left out", drop("rms_norm_eps", "tie_word_embeddings", "hidden_activation", "layer_types", "vocab_size")),
    ("gemma3", "defaults left out", drop("rms_norm_eps", "tie_word_embeddings", "hidden_activation", "layer_types", "vocab_size")),
    ("gemma3", "the class without an output matrix, which is tied", lambda m: (prefix("model.", "")(m), put(architectures=["Gemma3TextModel"])(m))),
    ("gemma3", "a cap on scores, which its attention has not", put(attn_logit_softcapping=5.0)),
    ("gemma3", "period", lambda m: (drop("layer_types")(m), put(sliding_window_pattern=6)(m))),
    ("gemma3", "text part, first names", nested_old),
    ("gemma3", "text part, new names", nested_new),
    ("gemma3", "text part, tied by the whole", tied_by_the_whole),
    ("gemma3", "text part, old keys", lambda m: (old_keys(m), nested_old(m))),
    ("gemma3", "lm_head", lm_head_too),
    ("granite", "lm_head", lm_head_too),
    ("granite-hybrid", "first names of layers", put(layer_types=["attention"])),
    ("gpt-oss", "defaults left out", drop("layer_types", "rms_norm_eps", "tie_word_embeddings", "swiglu_limit")),
    ("gpt-oss", "expert count", key_named("num_local_experts", "num_experts")),
    ("gpt-oss", "yarn of 32 by the lengths", lambda m: (in_rope(factor=None)(m), put(max_position_embeddings=2048)(m))),
    ("gpt-oss-odd", "rotary keys left out", drop("rope_parameters")),
    ("gpt-oss-odd", "rotary keys null", put(rope_parameters=None, rope_scaling=None)),
    ("gpt2", "first files", causal_masks),
    ("gpt2", "defaults left out", drop("n_inner", "layer_norm_epsilon", "tie_word_embeddings", "activation_function")),
    ("llama", "rotary tables", inverse_frequencies),
    ("llama", "tied, and the output matrix is another one", put(tie_word_embeddings=True)),
    ("llama", "tensors whose values nobody reads", nothing_that_is_read),
    ("llama", "defaults left out", drop("tie_word_embeddings", "hidden_act", "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id")),
    ("llama", "dynamic, which changes nothing here", put(rope_scaling={"type": "dynamic", "factor": 4.0})),
    ("llama", "rope_scaling beside rope_parameters that say something else", both_sections),
    ("llama", "rope_scaling empty", put(rope_scaling={})),
    ("llama-yarn", "its magnitude as a number", lambda m: in_rope(mscale=None, attention_factor=(.05 * math.log(4) + 1) / (.08 * math.log(4) + 1))(m)),
    ("llama-yarn", "its magnitude as a number, and mscale", in_rope(mscale=3.0, attention_factor=(.05 * math.log(4) + 1) / (.08 * math.log(4) + 1))),
    ("llama3-rope", "tied, not said", drop("tie_word_embeddings")),
    ("mistral-plain", "sliding_window null", put(sliding_window=None)),
    ("mistral-window", "layer_types", put(layer_types=["sliding_attention"] * 2)),
    ("mistral-window", "keys that other families have", put(layer_types=["full_attention", "sliding_attention"], use_sliding_window=False, rope_local_base_freq=7.0,
                                                                  sliding_window_pattern=2)),
    ("llama", "keys that other families have", put(sliding_window=4, use_sliding_window=True, layer_types=["sliding_attention"] * 2)),
    ("olmo2", "keys that other families have", put(sliding_window=4)),
    ("gemma", "gelu_accurate", put(hidden_act="gelu_accurate", hidden_activation=None)),
    ("mixtral", "fused experts", fused_experts),
    ("mixtral-top3", "fused experts", fused_experts),
    ("mixtral", "expert count", key_named("num_local_experts", "num_experts")),
    ("phi2-wide", "defaults left out", drop("layer_norm_eps", "hidden_act", "qk_layernorm", "tie_word_embeddings")),
    ("phi3", "first name of longrope", lambda m: (old_keys(m), m.config["rope_scaling"].update(type="su"))),
    ("phi3-long", "original length at top level", lambda m: m.config["rope_parameters"].pop("original_max_position_embeddings", None)),
    ("phi3-long", "original length twice", lambda m: (put(original_max_position_embeddings=40)(m), in_rope(original_max_position_embeddings=999)(m))),
    ("phi3-long", "ratio of the lengths as a factor", lambda m: (put(max_position_embeddings=64)(m), in_rope(factor=12.8)(m))),
    ("qwen2", "window not used", put(use_sliding_window=False, sliding_window=8, max_window_layers=0, layer_types=None)),
    ("qwen2-window", "no layer_types", drop("layer_types")),
    ("qwen3-moe", "expert count", key_named("num_local_experts", "num_experts")),
    ("qwen3-moe-raw", "expert count", key_named("num_local_experts", "num_experts")),
    ("qwen3-moe-raw", "norm_topk_prob left out", drop("norm_topk_prob")),
    ("qwen3-moe", "fused experts", fused_experts),
    ("qwen3-moe-raw", "fused experts", fused_experts),
    ("qwen2", "the text of Qwen2-VL, first files", qwen_vl("qwen2_vl", True)),
    ("qwen2", "the text of Qwen2-VL", qwen_vl("qwen2_vl")),
    ("qwen2", "the text of Qwen2.5-VL", qwen_vl("qwen2_5_vl")),
    ("qwen3", "the text of Qwen3-VL", qwen_vl("qwen3_vl")),
    ("qwen3-moe", "the text of Qwen3-VL-MoE", qwen_vl("qwen3_vl_moe")),
    ("olmoe", "fused experts", fused_experts),
    ("glm4-moe", "fused experts", fused_experts),
    ("minimax-m2", "fused experts", lambda m: (fused_experts(m), rename(m, lambda s: s.replace("block_sparse_moe.e_score", "mlp.e_score")))),
    ("minimax-m2", "its rotated share", lambda m: (m.config.get("rope_parameters", {}).pop("partial_rotary_factor", None), put(rotary_dim=12)(m))),
    ("hunyuan-moe", "numbers by layer", put(moe_topk=[2, 2], num_shared_expert=[1, 1], moe_intermediate_size=[48, 48])),
    ("dots1", "no groups", put(n_group=None, topk_group=None)),
    ("gpt-neox", "first keys", lambda m: (drop("rope_parameters", "use_parallel_residual", "attention_bias")(m), put(rotary_pct=0.5, rotary_emb_base=10000)(m))),
    ("falcon", "first keys", lambda m: (key_named("num_attention_heads", "n_head")(m), key_named("num_hidden_layers", "n_layer")(m),
                                        drop("num_kv_heads", "multi_query", "parallel_attn", "activation", "ffn_hidden_size", "rope_parameters")(m))),
    ("exaone4", "no layer_types", drop("layer_types")),
    ("cohere2", "no layer_types", drop("layer_types")),
    ("olmo3", "no layer_types", drop("layer_types")),
    ("smollm3", "layers left out", drop("layer_types", "tie_word_embeddings", "rope_parameters", "use_sliding_window", "sliding_window")),
    ("stablelm", "defaults left out", drop("rope_parameters", "layer_norm_eps", "hidden_act", "use_parallel_residual", "qk_layernorm", "tie_word_embeddings")),
    ("stablelm-parallel", "defaults left out", drop("layer_norm_eps", "tie_word_embeddings")),
]


def main():
    wanted = sys.argv[1:]
    for name, what, change in VARIANTS:
        if wanted and name not in wanted:
            continue
        m = models.fixture(name)
        change(m)
        models.same_as_fixture("%s: %s" % (name, what), m.write(models.place(), 1 if change is odd_place else 8), name)
    models.finish()


if __name__ == "__main__":
    main()
