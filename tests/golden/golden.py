#!/usr/bin/env python3
"""Answers that must not change: golden.py MINERVA CASE [DEVICE [ISA]]

CASE  tokens          prompt ids of the storyteller's golden prompts
      story           its greedy answers, class exact
      story-begin     the first 8 ids of its first answer
      story-gguf      the same from an F16 GGUF file made of the same weights
      fixture:NAME    all logits and 24 greedy ids of tests/data/fixtures/NAME
      begin:NAME      the same with 6 greedy ids, for kernels that are slow
      a16:NAME        logits of a fixture with float or MXFP4 weights in class a16, as a prompt and token by token
      auto:NAME       the same in the class that auto is on a CPU: a8 for packed weights
      argmax          the storyteller fed its golden text in class a16: the most likely ids
      types           the storyteller in every type of convert: logits on DEVICE against those on reference
      quantised       q8_0 and q4_0: logits on cpu_simd against those on reference
      batch           a prompt alone and in a batch of 20: the same greedy ids
Paths come from MINERVA_SOURCE_ROOT and MINERVA_TEST_DATA, as the build sets them. Exit code 77: skipped, with the reason."""
import json
import math
import os
import subprocess
import sys
import tempfile

import safetensors
import storyteller_gguf

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DATA = os.environ.get("MINERVA_TEST_DATA", os.path.join(ROOT, "tests", "data"))
STORYTELLER = os.path.join(ROOT, "models", "storyteller")
FAILED = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what)
    if not ok:
        FAILED.append(what)


def skip(why):
    print("SKIP  " + why)
    sys.exit(77)


def minerva(*args):
    p = subprocess.run([MINERVA] + [str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode:
        sys.exit("FAIL  exit code %d of minerva %s\n%s" % (p.returncode, " ".join(map(str, args))[:300], p.stderr.decode(errors="replace")))
    return p.stdout.decode()


def ids_text(ids):
    return ",".join(map(str, ids))


def greedy(model, ids, n, *more):
    return json.loads(minerva("run", "-m", model, "--prompt-ids", ids_text(ids), "-n", n, "--temp", 0, "--precision", "exact",
                              "--device", DEVICE, "--json", *more))


def logits(model, ids, device, *more):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits.safetensors")
        minerva("logits", "-m", model, "--prompt-ids", ids_text(ids), "--device", device, "-o", path, *more)
        assert list(safetensors.read(path, "tokens")[1]) == list(ids)
        return safetensors.read(path, "logits")


def relative_l2(x, golden):
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(x, golden)) / math.fsum(b * b for b in golden))


def entries():
    with open(os.path.join(STORYTELLER, "golden.json"), encoding="utf-8") as f:
        return json.load(f)


def case_tokens():
    for e in entries():
        got = json.loads(minerva("tokenize", "-m", STORYTELLER, "-p", e["prompt"], "--no-bos", "--parse-special", "--json"))["ids"]
        check(got == e["prompt_ids"], "prompt ids of %r" % e["prompt"][-70:])


def stories(model):
    for e in entries():
        got = greedy(model, e["prompt_ids"], 160)
        check(got["ids"] == e["greedy_ids"], "greedy ids of %r" % e["prompt"][-70:])
        check(got["prompt_ids"] == e["prompt_ids"] and got["device"].split(":")[0] == DEVICE, "prompt ids and device as asked")
        check(got["finish_reason"] == ("stop" if len(e["greedy_ids"]) < 160 or e["greedy_ids"][-1] in (1, 4) else "length"), "finish reason")
        if "text" in e:
            check(got["text"] == e["text"], "text")


def case_story():
    stories(STORYTELLER)


def case_story_begin():
    e = entries()[0]
    got = greedy(STORYTELLER, e["prompt_ids"], 8)
    check(got["ids"] == e["greedy_ids"][:8], "8 greedy ids of %r" % e["prompt"][-70:])
    check(got["device"].split(":")[0] == DEVICE, "device as asked")


def case_story_gguf():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f16.gguf")
        storyteller_gguf.write(STORYTELLER, path)
        for e in entries():
            got = json.loads(minerva("tokenize", "-m", path, "-p", e["prompt"], "--no-bos", "--parse-special", "--json"))["ids"]
            check(got == e["prompt_ids"], "prompt ids from GGUF")
        stories(path)


def case_fixture(name, n=24):
    model = os.path.join(DATA, "fixtures", name)
    golden = os.path.join(model, "golden.safetensors")
    if not os.path.exists(golden):
        skip(golden + " is not there")
    limit = 1e-5 if DEVICE.split(":")[0] in ("reference", "group") else 1e-4
    prompt = list(safetensors.read(golden, "prompt")[1])
    shape, want = safetensors.read(golden, "logits")
    got_shape, got = logits(model, prompt, DEVICE)
    check(got_shape == shape, "shape of the logits: %s, golden %s" % (got_shape, shape))
    error = relative_l2(got, want)
    check(error <= limit, "relative L2 error of the logits %.3g, at most %g" % (error, limit))
    ids = greedy(model, prompt, n, "--ignore-eos")["ids"]
    check(ids == list(safetensors.read(golden, "greedy")[1])[:n], "%d greedy ids" % n)


def is_bf16(model):
    for name in os.listdir(model):
        if name.endswith(".safetensors") and name.startswith("model"):
            with open(os.path.join(model, name), "rb") as f:
                n = int.from_bytes(f.read(8), "little")
                return b'"BF16"' in f.read(n)
    return False


def class_logits(name, precision, limit):
    model = os.path.join(DATA, "fixtures", name)
    golden = os.path.join(model, "golden.safetensors")
    want = safetensors.read(golden, "logits")[1]
    prompt = list(safetensors.read(golden, "prompt")[1])
    for rows in ("512", "1"):
        got = logits(model, prompt, DEVICE, "--precision", precision, "-b", rows)[1]
        error = relative_l2(got, want)
        check(error <= limit, "%s: relative L2 error of the logits in class %s, steps of %s rows, %.3g, at most %g" % (name, precision, rows, error, limit))


def limit_a16(name):
    model = os.path.join(DATA, "fixtures", name)
    if not os.path.exists(os.path.join(model, "golden.safetensors")):
        skip(model + " is not there")
    # cuda rounds x to f16 for 16-bit weights, and multiplies weights of f32 as they are.
    return 3e-3 if is_bf16(model) else 2e-3


def case_a16(name):
    limit = limit_a16(name)
    if "mlx" in name:
        skip(name + " has packed weights")
    class_logits(name, "a16", limit)


def case_auto(name):
    limit_a16(name)
    packed = "mlx" in name or "mxfp4" in name
    # cpu_simd rounds x to bf16 for weights of bf16, where the CPU multiplies such: eight times as coarse as f16; 8 bits may choose
    # another expert.
    class_logits(name, "a8" if packed else "a16", 1e-1 if packed else 3e-2)


def case_argmax():
    same = positions = 0
    for e in entries():
        ids = e["prompt_ids"] + e["greedy_ids"]
        shape, got = logits(STORYTELLER, ids[:-1], DEVICE, "--precision", "a16")
        for i, want in enumerate(e["greedy_ids"]):
            row = got[(len(e["prompt_ids"]) - 1 + i) * shape[1]:][:shape[1]]
            same += row[want] == max(row)
            positions += 1
    check(same >= 0.99 * positions, "%d of %d golden ids are the most likely ones, at least 99 %%" % (same, positions))


def case_types():
    prompt = entries()[0]["prompt_ids"] + entries()[0]["greedy_ids"][:42]
    kinds = "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs q4_k_m q5_k_m mxfp4"
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds.split():
            path = os.path.join(folder, kind + ".gguf")
            minerva("convert", STORYTELLER, "-o", path, "--type", kind)
            error = relative_l2(logits(path, prompt, DEVICE)[1], logits(path, prompt, "reference")[1])
            check(error <= 1e-4, "%s: relative L2 error of the logits %.3g, at most 1e-4" % (kind, error))


def case_quantised():
    prompt = entries()[0]["prompt_ids"] + entries()[0]["greedy_ids"][:42]
    for kind in ("q8_0", "q4_0"):
        model = os.path.join(DATA, "storyteller-%s.gguf" % kind)
        if not os.path.exists(model):
            skip(model + " is not there")
        shape, want = logits(model, prompt, "reference")
        got_shape, got = logits(model, prompt, "cpu_simd")
        error = relative_l2(got, want)
        check(got_shape == shape and error <= 1e-4, "%s: relative L2 error of the logits %.3g, at most 1e-4" % (kind, error))


def case_batch():
    n = 40
    whole = [e["prompt_ids"] + e["greedy_ids"] for e in entries()]
    prompts = [e["prompt_ids"] for e in entries()]
    for i in range(20 - len(prompts)):
        prompts.append(whole[i % len(whole)][:3 + 11 * i])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "prompts.jsonl")
        with open(path, "w", encoding="utf-8") as f:
            for p in prompts:
                f.write(json.dumps({"prompt_ids": p, "n": n}) + "\n")
        out = minerva("run", "-m", STORYTELLER, "--prompts", path, "--temp", 0, "--precision", "exact", "--device", DEVICE)
    batch = sorted((json.loads(line) for line in out.splitlines()), key=lambda b: b["line"]) # they come as they finish
    check([b["prompt_ids"] for b in batch] == prompts, "%d objects, each with its line" % len(prompts))
    for p, b in zip(prompts, batch):
        check(greedy(STORYTELLER, p, n)["ids"] == b["ids"], "prompt of %d ids: alone as in the batch" % len(p))


def main():
    global MINERVA, DEVICE
    MINERVA, case = sys.argv[1:3]
    DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cpu_simd"
    if len(sys.argv) > 4:
        os.environ["MINERVA_CPU_ISA"] = sys.argv[4]
    name, _, argument = case.partition(":")
    {"tokens": case_tokens, "story": case_story, "story-begin": case_story_begin, "story-gguf": case_story_gguf, "fixture": lambda: case_fixture(argument),
     "begin": lambda: case_fixture(argument, 6),
     "a16": lambda: case_a16(argument), "auto": lambda: case_auto(argument), "argmax": case_argmax, "types": case_types, "quantised": case_quantised, "batch": case_batch}[name]()
    sys.exit("%d failed" % len(FAILED) if FAILED else 0)


main()
