#!/usr/bin/env python3
"""Makes tests/data/hybrid-story: a tiny model whose layers remember a state, with a draft head and the storyteller's tokeniser, of random weights, for tests of
sessions and of the server that need texts: python3 -P hybrid_story.py STORYTELLER OUT. A development tool; needs numpy, torch, transformers, safetensors."""
import json
import os
import shutil
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # behind the others: safetensors.py of this folder is another
from draft_heads import head_of  # noqa: E402
from make_fixtures import STATE, build, randomise  # noqa: E402


def main(storyteller, out):
    with open(os.path.join(storyteller, "config.json")) as f:
        told = json.load(f)
    ends = {k: told[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")}
    values = dict(STATE, num_hidden_layers=4, head_dim=16, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                  partial_rotary_factor=0.25, tie_word_embeddings=True, max_position_embeddings=told["max_position_embeddings"], **ends)
    torch.manual_seed(7)
    model = randomise(build(tf.Qwen3_5TextConfig, values), 7)
    shutil.rmtree(out, ignore_errors=True)
    model.bfloat16().save_pretrained(out)
    with open(os.path.join(out, "config.json")) as f:
        config = dict(json.load(f), mtp_num_hidden_layers=1)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    weights = os.path.join(out, "model.safetensors")
    tensors = load_file(weights)
    save_file({**tensors, **head_of(config, tensors, 7)[0]}, weights, {"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copyfile(os.path.join(storyteller, name), os.path.join(out, name))
    for name in os.listdir(out):
        os.chmod(os.path.join(out, name), 0o644)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    main(sys.argv[1], sys.argv[2])
