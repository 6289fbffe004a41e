#!/usr/bin/env python3
"""Makes the tiny models with an encoder and a decoder of tests/data/fixtures with Transformers, on the CPU: python3 -P make_t5.py OUT [NAME...]
(-P: safetensors.py of this folder is another)

Each is a folder with config.json, model.safetensors (weights in bf16), and as golden.safetensors has of other fixtures: prompt [48], which the encoder
reads; logits [48, V], where the decoder is given the prompt as its answer, shifted as Transformers shifts labels; and 24 greedy ids. prompts.safetensors as of
make_prompts.py: of each prompt the logits of its last row in that way. All in f64. A development tool: the tests only read what it made. Needs torch, transformers, safetensors."""
import json
import os
import shutil
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

COMMON = dict(vocab_size=160, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, n_positions=512, dropout_rate=0.0)
MODELS = {
    "t5": (tf.T5Config, tf.T5ForConditionalGeneration, dict(COMMON, d_model=48, d_kv=16, d_ff=80, num_layers=2, num_heads=4, feed_forward_proj="relu"), True),
    "t5-v1.1": (tf.T5Config, tf.T5ForConditionalGeneration, dict(COMMON, d_model=40, d_kv=8, d_ff=56, num_layers=3, num_decoder_layers=2, num_heads=6, feed_forward_proj="gated-gelu",
                                                                 relative_attention_num_buckets=16, relative_attention_max_distance=40), False),
}


def randomise(model, seed):
    gen = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        std = 0.2 if p.dim() == 1 else 1.6 / p.shape[-1] ** 0.5
        if name.endswith(".q.weight"):
            std /= 3  # products of q and k are not scaled
        p.data = (torch.randn(p.shape, generator=gen) * std + (1.0 if p.dim() == 1 else 0.0)).bfloat16().float()
    return model


def teacher(model, ids):
    return model(input_ids=ids[None], decoder_input_ids=torch.cat([torch.zeros(1, dtype=ids.dtype), ids[:-1]])[None], use_cache=False).logits[0].float()


def make(out, name, seed):
    kind, cls, values, tied = MODELS[name]
    config = kind(**values, tie_word_embeddings=tied)
    config._attn_implementation = "eager"
    model = cls(config)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    model = randomise(model, seed).eval().double()
    gen = torch.Generator().manual_seed(seed + 1)
    prompt = torch.randint(3, 160, (48,), generator=gen)
    lengths = [1, 7, 40, 300]
    prompts = [torch.randint(3, 160, (n,), generator=gen) for n in lengths]
    with torch.no_grad():
        logits, ids = teacher(model, prompt), [0]
        for _ in range(24):
            ids.append(int(model(input_ids=prompt[None], decoder_input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        rows = [teacher(model, p)[-1] for p in prompts]
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    weights = {k: v.bfloat16().contiguous() for k, v in model.state_dict().items() if "embed_tokens" not in k and not (tied and k == "lm_head.weight")}
    save_file(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    told = dict(values, architectures=[cls.__name__], model_type=config.model_type, layer_norm_epsilon=config.layer_norm_epsilon, tie_word_embeddings=tied, torch_dtype="bfloat16",
                is_encoder_decoder=True, use_cache=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(told, f, indent=1)
    save_file({"prompt": prompt.int(), "logits": logits.contiguous(), "greedy": torch.tensor(ids[1:], dtype=torch.int32)}, os.path.join(folder, "golden.safetensors"))
    save_file({"ids": torch.cat(prompts).int(), "lengths": torch.tensor(lengths, dtype=torch.int32), "logits": torch.stack(rows).contiguous()},
              os.path.join(folder, "prompts.safetensors"))
    top2 = logits.topk(2, dim=-1).values
    print("%-10s logits std %.2f, smallest margin %.4f, greedy %s" % (name, logits.std(), (top2[:, 0] - top2[:, 1]).min(), ids[1:]))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    for wanted in sys.argv[2:] or MODELS:
        make(sys.argv[1], wanted, 500 + list(MODELS).index(wanted))
