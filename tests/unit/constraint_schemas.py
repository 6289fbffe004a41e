#!/usr/bin/env python3
"""Answers at temperature 1.5 under JSON schemas: those that end by themselves are valid by Python's jsonschema.

constraint_schemas.py CONSTRAINT_TEXTS [N answers for each schema]        of the demo model
constraint_schemas.py CONSTRAINT_TEXTS N DEVICE SEED...                    of models with random weights, which nothing helps to be right:
    N answers for each schema and seed; a negative N: one for each of every -N-th schema"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

from grammar_schemas import GOOD, jsonschema

DIM, LAYERS, FFN, VOCAB = 64, 2, 128, 2048
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/storyteller")


def random_model(folder, seed):
    """The demo model's tokeniser with small random weights of another shape."""
    normal = random.Random(seed).gauss
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(DEMO, name), folder)
    with open(os.path.join(DEMO, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config.update(dtype="float32", head_dim=16, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,)}
    for i in range(LAYERS):
        of = f"model.layers.{i}."
        shapes |= {of + "input_layernorm.weight": (DIM,), of + "post_attention_layernorm.weight": (DIM,)}
        shapes |= {of + f"self_attn.{n}_proj.weight": (r, DIM) for n, r in (("q", 64), ("k", 32), ("v", 32), ("o", 64))}
        shapes |= {of + "mlp.gate_proj.weight": (FFN, DIM), of + "mlp.up_proj.weight": (FFN, DIM), of + "mlp.down_proj.weight": (DIM, FFN)}
    head, at, data = {}, 0, []
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [normal(0, 0.3) if len(shape) > 1 else 1.0 for _ in range(n)]
        data.append(struct.pack(f"<{n}f", *values))
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * n]}
        at += 4 * n
    text = json.dumps(head).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def answers(program, schemas, args):
    """(schema, finish, text) of each."""
    lines = "".join(json.dumps(s) + "\n" for s in schemas)
    p = subprocess.run([program, *args], input=lines.encode(), capture_output=True, check=False)
    if p.returncode:
        sys.exit(p.stderr.decode()[-500:])
    for line in p.stdout.decode(errors="replace").split("\n")[:-1]:  # an answer may be cut inside a character
        i, finish, text = line.split(" ", 2)
        yield schemas[int(i)], finish, json.loads(text)


def all_answers():
    program, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if len(sys.argv) < 4:
        yield from answers(program, GOOD, [str(n)])
    for seed in sys.argv[4:]:
        with tempfile.TemporaryDirectory() as folder:
            random_model(folder, int(seed))
            yield from answers(program, GOOD[:: max(-n, 1)], [str(max(n, 1)), folder, sys.argv[3]])


def main():
    wrong, by_finish, checks = 0, {}, {}
    for schema, finish, text in all_answers():
        by_finish[finish] = by_finish.get(finish, 0) + 1
        if id(schema) not in checks:
            draft = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            checks[id(schema)] = draft(schema, format_checker=draft.FORMAT_CHECKER)
        try:
            if finish == "1":
                checks[id(schema)].validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as e:
            print(f"{schema}: {text}: {str(e)[:200]}")
            wrong += 1
    whole, cut = by_finish.pop("1", 0), by_finish.pop("2", 0)
    print(f"{len(checks)} schemas: {whole} answers, {cut} cut by their limit, {wrong} wrong, others {by_finish}")
    sys.exit(wrong > 0 or bool(by_finish) or whole < cut)


main()
