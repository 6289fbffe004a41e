#!/usr/bin/env python3
"""tensor_lists.py MINERVA: the tensor lists of released models, as far as they differ from what Transformers writes for the family: each must load.

A list is a fixture of the family, whose names are the usual ones, with the changes that the released files have: prefixes, heads, buffers that training left behind, scales
of activations, towers of images. A model of each such form is made here, and `inspect --graph` must build its graph without a word: but a line where parts for images or
sound are left out. Names in a "*" stand for each layer. What is not on the loaders' list must be refused: bad_families.py."""
import os
import subprocess
import sys
import tempfile

import gguf_file as gguf
import gguf_forms
import models

TEXT = "the model runs as a text model"


def n_layers(m):
    c = m.config
    return c.get("num_hidden_layers") or c.get("n_layer") or c.get("n_layers")


def more(*names, kind="F32", shape=(2,)):
    """Further tensors; of any type and shape, since none is read."""
    def change(m):
        size = {"F32": 4, "BF16": 2, "BOOL": 1, "I64": 8, "U8": 1}[kind]
        for name in names:
            for i in range(n_layers(m)) if "*" in name else [0]:
                n = 1
                for d in shape:
                    n *= d
                m.tensors[name.replace("*", str(i))] = (kind, list(shape), bytes(size * n))
    return change


def renamed(old, new):
    def change(m):
        m.tensors = {new + name[len(old):] if name.startswith(old) else name: t for name, t in m.tensors.items()}
    return change


def tied(m):
    m.tensors.pop("lm_head.weight")
    m.config["tie_word_embeddings"] = True


def head_copied(m):
    """Tied, and the table is stored twice."""
    m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]
    m.config["tie_word_embeddings"] = True


def inside(model_type):
    """The text part of a model that also sees or hears."""
    def change(m):
        text = dict(m.config, architectures=None)
        m.config = {"model_type": model_type, "architectures": ["ThisForConditionalGeneration"], "text_config": text, "tie_word_embeddings": text.get("tie_word_embeddings", False)}
    return change


INV_FREQ = [more("model.layers.*.self_attn.rotary_emb.inv_freq")]
CLIP = ["vision_tower.vision_model.embeddings.class_embedding", "vision_tower.vision_model.embeddings.patch_embedding.weight",
        "vision_tower.vision_model.embeddings.position_embedding.weight", "vision_tower.vision_model.embeddings.position_ids",
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight", "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.bias",
        "vision_tower.vision_model.encoder.layers.0.layer_norm1.weight", "vision_tower.vision_model.post_layernorm.weight"]
LLAVA = CLIP + ["multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_1.bias", "multi_modal_projector.linear_2.weight"]
SIGLIP = [name for name in CLIP if "class" not in name] + ["vision_tower.vision_model.head.attention.in_proj_weight", "vision_tower.vision_model.head.probe",
                                                           "multi_modal_projector.mm_input_projection_weight", "multi_modal_projector.mm_soft_emb_norm.weight"]
PIXTRAL = ["vision_tower.ln_pre.weight", "vision_tower.patch_conv.weight", "vision_tower.transformer.layers.0.attention.q_proj.weight",
           "vision_tower.transformer.layers.0.feed_forward.gate_proj.weight", "multi_modal_projector.norm.weight", "multi_modal_projector.patch_merger.merging_layer.weight",
           "multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_2.weight"]
IN_TEXT = [renamed("model.", "language_model.model."), renamed("lm_head.", "language_model.lm_head.")]
NEWER = [renamed("model.", "model.language_model.")]
MASKS = [more("transformer.h.*.attn.bias", kind="U8", shape=(1, 1, 4, 4)), more("transformer.h.*.attn.masked_bias", shape=(1,))]
FP8 = [more("model.layers.*.self_attn.q_proj.input_scale", "model.layers.*.mlp.down_proj.input_scale", shape=(1,)),
       more("model.layers.*.self_attn.k_proj.k_scale", "model.layers.*.self_attn.v_proj.v_scale", shape=(1,))]
POSITIONS = more("embeddings.position_ids", kind="I64", shape=(1, 4))
MLM = ["cls.predictions.bias", "cls.predictions.transform.dense.weight", "cls.predictions.transform.LayerNorm.gamma", "cls.seq_relationship.weight"]

# (models, fixture, changes)
FOLDERS = [
    ("meta-llama/Llama-2-7b-hf, NousResearch/Llama-2-13b-hf, PygmalionAI/pygmalion-7b, huggyllama/llama-7b, WizardLM/WizardLM-13B-V1.2", "llama", INV_FREQ),
    ("meta-llama/Meta-Llama-3-8B, lzlv_70b, Reflection-Llama-3.1-70B, 01-ai/Yi-1.5-6B, TinyLlama-1.1B, deepseek-ai/deepseek-llm-7b", "llama", []),
    ("meta-llama/Llama-3.2-1B, meta-llama/Llama-3.2-3B, HuggingFaceTB/SmolLM2-135M", "llama", [tied]),
    ("ibm-granite/granite-3b-code-instruct-128k", "llama-wide", []),
    ("nvidia/Llama-3.1-8B-Instruct-FP8, neuralmagic/Meta-Llama-3-8B-Instruct-FP8-KV", "llama", FP8),
    ("a reward model's policy (trl)", "llama", [more("v_head.summary.weight", "v_head.summary.bias")]),
    ("FasterDecoding/medusa-vicuna-7b", "llama", [more("medusa_head.0.0.linear.weight", "medusa_head.0.1.weight")]),
    ("llava-hf/llava-1.5-7b-hf, llava-hf/vip-llava-7b-hf", "llama", IN_TEXT + [more(*LLAVA), inside("llava")]),
    ("llava-hf/llava-v1.6-vicuna-7b-hf", "llama", IN_TEXT + [more(*LLAVA), more("image_newline"), inside("llava_next")]),
    ("HuggingFaceTB/SmolVLM-Instruct, HuggingFaceM4/Idefics3-8B-Llama3", "llama", [
        renamed("model.", "model.text_model."), more(*[n.replace("vision_tower.vision_model.", "model.vision_model.") for n in CLIP]),
        more("model.connector.modality_projection.proj.weight"), inside("idefics3")]),
    ("mistralai/Voxtral-Mini-3B-2507", "llama", IN_TEXT + [more("audio_tower.conv1.weight", "audio_tower.layers.0.self_attn.q_proj.weight",
                                                               "multi_modal_projector.linear_1.weight"), inside("voxtral")]),
    ("mistralai/Mistral-7B-v0.1", "mistral-window", []),
    ("mistralai/Mistral-7B-Instruct-v0.3, mistralai/Devstral-Small-2507, dolphin3-mistral", "mistral-plain", []),
    ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral-plain", IN_TEXT + [more(*PIXTRAL), inside("mistral3")]),
    ("mistral-community/pixtral-12b", "mistral-plain", IN_TEXT + [more(*PIXTRAL[:4]), more("multi_modal_projector.linear_1.bias"), inside("llava")]),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1, WizardLM-2-8x22B", "mixtral", []),
    ("Qwen/Qwen2.5-14B-Instruct, Qwen/Qwen2.5-Coder-32B, sakura-14b-qwen2.5, cogito-v1-preview-qwen-14B", "qwen2", []),
    ("Qwen/Qwen1.5-0.5B", "qwen2", [head_copied]),
    ("Qwen/Qwen3-0.6B, Qwen/Qwen3-1.7B", "qwen3", [head_copied]),
    ("Qwen/Qwen3-4B", "qwen3", [tied]),
    ("Qwen/Qwen3-14B", "qwen3", []),
    ("Qwen/Qwen3-30B-A3B", "qwen3-moe", []),
    ("openai/gpt-oss-20b", "gpt-oss-mxfp4", []),
    ("microsoft/phi-2, microsoft/phi-1_5", "phi2", []),
    ("microsoft/phi-2 as first released", "phi2", [more("model.layers.*.self_attn.rotary_emb.inv_freq")]),
    ("microsoft/Phi-3-mini-128k-instruct", "phi3", []),
    ("microsoft/phi-4, microsoft/Phi-3-mini-4k-instruct", "phi3-short", []),
    ("google/gemma-2b", "gemma", []),
    ("google/gemma-2-9b-it", "gemma2", []),
    ("google/gemma-3-1b-it", "gemma3", []),
    ("google/gemma-3-4b-it, google/medgemma-27b-it", "gemma3", IN_TEXT + [more(*SIGLIP), inside("gemma3")]),
    ("google/gemma-3-4b-it by Transformers 5", "gemma3", NEWER + [more(*["model." + name for name in SIGLIP]), inside("gemma3")]),
    ("google/paligemma-3b-pt-224", "gemma", IN_TEXT + [more(*SIGLIP[:-2]), more("multi_modal_projector.linear.weight", "multi_modal_projector.linear.bias"), inside("paligemma")]),
    ("google/gemma-4-31b-it", "gemma4", NEWER + [more("model.vision_tower.patch_embedder.input_proj.weight", "model.vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight",
                                                      "model.embed_vision.embedding_projection.weight"), inside("gemma4")]),
    ("google/gemma-4-26b-a4b-it", "gemma4-moe", NEWER + [more("model.vision_tower.patch_embedder.input_proj.weight", "model.embed_vision.embedding_projection.weight"),
                                                         inside("gemma4")]),
    ("google/gemma-3n-E4B-it", "gemma3n", NEWER + [more("model.vision_tower.timm_model.conv_stem.conv.weight", "model.audio_tower.conformer.0.norm.weight",
                                                        "model.embed_vision.embedding.weight", "model.embed_audio.embedding.weight"), inside("gemma3n")]),
    ("allenai/OLMo-2-1124-7B-Instruct", "olmo2", []),
    ("ibm-granite/granite-3.1-2b-instruct", "granite", []),
    ("ibm-granite/granite-4.0-micro", "granite-hybrid", []),
    ("HuggingFaceTB/SmolLM3-3B", "smollm3", []),
    ("stabilityai/stablelm-2-1_6b", "stablelm", []),
    ("stabilityai/stablelm-3b-4e1t", "stablelm", INV_FREQ),
    ("stabilityai/stablelm-2-12b", "stablelm-parallel", []),
    ("openai-community/gpt2", "gpt2", MASKS[:1] + [renamed("transformer.", "")]),
    ("distilbert/distilgpt2, microsoft/DialoGPT-medium", "gpt2", MASKS),
    ("mlx-community/Qwen3-14B-4bit", "llama-mlx4", []),
    ("google-bert/bert-base-uncased", "bert", [more(*MLM)]),
    ("BAAI/bge-small-en-v1.5, sentence-transformers/all-MiniLM-L6-v2", "bert", [POSITIONS]),
    ("FacebookAI/roberta-base", "roberta", [more("roberta.embeddings.position_ids", kind="I64"),
                                            more("lm_head.bias", "lm_head.dense.weight", "lm_head.layer_norm.weight", "lm_head.decoder.weight")]),
    ("intfloat/multilingual-e5-small, BAAI/bge-m3", "xlm-roberta", [POSITIONS]),
    ("distilbert/distilbert-base-uncased", "distilbert", [renamed("", "distilbert."), more("vocab_transform.weight", "vocab_layer_norm.weight", "vocab_projector.bias")]),
    ("answerdotai/ModernBERT-base", "modernbert", []),
    ("nomic-ai/nomic-embed-text-v1.5", "nomic-bert", []),
]
# (models, fixture, further tensors)
FILES = [
    ("Llama-2-7B, Mistral-7B-v0.3, TinyLlama-1.1B", "llama", []),
    ("Llama-3.1-8B, Llama-3.2-1B (rope_freqs)", "llama3-rope", []),
    ("Mixtral-8x7B", "mixtral", []),
    ("gemma-3-4b as ollama stores it", "gemma3", ["v.blk.0.attn_q.weight", "v.patch_embedding.weight", "v.post_layernorm.bias", "mm.mm_input_projection.weight"]),
    ("Mistral-Small-3.1 as ollama stores it", "llama", ["v.blk.0.attn_k.weight", "v.patch_conv.weight", "v.encoder_norm.weight", "mm.linear_1.weight", "mm.norm.weight"]),
    ("Phi-3-mini-128k (rope_factors_long, rope_factors_short)", "phi3", []),
    ("a Llama of 2023 with angles", "llama", ["blk.*.attn_rot_embd.weight"]),
    ("Llama-3.1-8B-FP8 with scales of activations", "llama", ["blk.*.attn_q.input_scale", "blk.*.ffn_down.input_scale"]),
    ("gpt-oss-20b", "gpt-oss-mxfp4", []),
    ("Qwen3-30B-A3B", "qwen3-moe", []),
    ("stablelm-2-12b", "stablelm-parallel", []),
    ("OLMo-2-1124-7B", "olmo2", []),
    ("gemma-4-26b-a4b", "gemma4-moe", []),
]


def graph(what, minerva, path, sees):
    p = subprocess.run([minerva, "inspect", "-m", path, "--graph"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    said = [line for line in p.stderr.splitlines() if "nothing reads" not in line]
    right = len(said) == 1 and TEXT in said[0] if sees else not said
    models.check(p.returncode == 0 and right, "%s%s" % (what, "" if right else ": " + " | ".join(said)[:600]))


def main():
    minerva = sys.argv[1]
    done = 0
    for what, fixture, changes in FOLDERS:
        m = models.fixture(fixture)
        before = set(m.tensors)
        for change in changes:
            change(m)
        done += len(what.split(", "))
        with tempfile.TemporaryDirectory() as folder:
            graph(what, minerva, m.write(folder), any("vision" in name or "audio" in name for name in set(m.tensors) - before))
    for what, fixture, names in FILES:
        m = models.fixture(fixture)
        f = gguf_forms.form(m)
        tensors = list(f.tensors())
        for name in names:
            tensors += [(name.replace("*", str(i)), [2], gguf.TENSOR_F32, bytes(8)) for i in (range(n_layers(m)) if "*" in name else [0])]
        done += len(what.split(", "))
        with tempfile.TemporaryDirectory() as folder:
            graph(what + " (GGUF)", minerva, gguf.write(os.path.join(folder, "m.gguf"), f.pairs(), tensors), any(name.startswith("v.") for name in names))
    models.check(done >= 60, "%d lists" % done)
    models.finish()


if __name__ == "__main__":
    main()
