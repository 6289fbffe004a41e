#!/usr/bin/env python3
"""minerva convert, inspect, perplexity and imatrix from outside: convert_test.py MINERVA GROUP. Standard library alone; what other readers of
GGUF say is asked where the Python packages gguf and numpy are."""
import json
import math
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time

import cli_test
from cli_test import DATA, MODEL, ROOT, Skipped, environment, equal, has, is_error, minerva, scratch

sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import models  # noqa: E402
import safetensors  # noqa: E402

FIXTURES = os.path.join(DATA, "fixtures")
PROMPT = "0,2,374,3,315,576,413,264,394,455,264,519"


def convert(source, out, *args, **more):
    return minerva("convert", source, "-o", out, *args, **more)


def logits(model, ids, folder):
    path = os.path.join(folder, "logits.safetensors")
    minerva("logits", "-m", model, "--prompt-ids", ids, "--device", "reference", "-o", path)
    return safetensors.read(path, "logits")[1]


def relative_l2(x, y):
    equal(len(x), len(y))
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(x, y)) / math.fsum(b * b for b in y))


def fixture_ids(name):
    return ",".join(map(str, safetensors.read(os.path.join(FIXTURES, name, "golden.safetensors"), "prompt")[1]))


def longest_prompt(name):
    """Of prompts.safetensors; the usual one where there is none."""
    path = os.path.join(FIXTURES, name, "prompts.safetensors")
    if not os.path.exists(path):
        return fixture_ids(name)
    last = max(safetensors.read(path, "lengths")[1])
    return ",".join(map(str, list(safetensors.read(path, "ids")[1])[-last:]))


def fixtures():
    return sorted(f for f in os.listdir(FIXTURES) if os.path.exists(os.path.join(FIXTURES, f, "golden.safetensors")))


def same_logits(kind, limit_of):
    """Every fixture, as a checkpoint and as GGUF."""
    wrong = []
    with scratch() as folder:
        for name in fixtures():
            source, out, ids = os.path.join(FIXTURES, name), os.path.join(folder, name + ".gguf"), fixture_ids(name)
            convert(source, out, *(["--type", kind] if kind else []))
            error = relative_l2(logits(out, ids, folder), logits(source, ids, folder))
            if kind == "f32":
                ids = longest_prompt(name)
                error = max(error, relative_l2(logits(out, ids, folder), logits(source, ids, folder)))
            os.remove(out)
            if not error <= limit_of(name):
                wrong.append("%s: %.3g" % (name, error))
    assert not wrong, "%s: relative L2 error of the logits over the limit: %s" % (kind, ", ".join(wrong))


def test_f32_all_fixtures():
    same_logits("f32", lambda name: 1e-6)


def test_kept_all_fixtures():
    """Only MLX of 8 bits has no type in GGUF that holds its values: it becomes f16. Falcon-H1's factors are multiplied into bf16."""
    same_logits(None, lambda name: 3e-3 if name == "llama-mlx8" else 1e-2 if name == "falcon-h1" else 1e-6)


def test_q8_all_fixtures():
    """Experts may be chosen otherwise where two were close."""
    same_logits("q8_0", lambda name: 0.2 if name.startswith(("mixtral", "qwen3-moe", "gpt-oss", "granite-moe", "nemotron-h-moe", "deepseek-v3", "phimoe", "kimi-linear")) else 0.1)


def test_packed_checkpoints():
    """MLX, F8, NVFP4, compressed-tensors, GPTQ, AWQ and bitsandbytes, all layouts: the values in f32; as kept, the values again where scales are f16 and codes have 4 bits at most."""
    import packed
    wrong, n_exact = [], 0

    def compare(what, config, more, pack, seed=1, pad=8, order=packed.models.as_written, of=packed.shapes, **_):
        nonlocal n_exact
        exact = what.startswith("mlx") and "F16" in what and "8 bits" not in what and "6 bits" not in what and "5 bits" not in what or what.startswith("mlx mxfp4")
        exact = exact or what.startswith(("w2a16", "w4a16")) and "F16" in what and "BF16" not in what
        n_exact += exact
        tensors = order(packed.build(config, pack, packed.random.Random(seed), of)[0])
        with scratch() as folder:
            source = packed.models.Model(dict(config, **more), tensors).write(folder + "/packed", pad)
            ids, out = ",".join(map(str, packed.PROMPT)), folder + "/a.gguf"
            want = logits(source, ids, folder)
            for kind, limit in ((["--type", "f32"], 2e-6), ([], 2e-6 if exact else 1e-2)):
                convert(source, out, "--force", *kind)
                error = relative_l2(logits(out, ids, folder), want)
                if not error <= limit:
                    wrong.append("%s%s: %.3g, at most %g" % (what, " " + kind[1] if kind else "", error, limit))
    packed.compare = compare
    packed.mlx()
    packed.f8_all()
    packed.nvfp4_all()
    packed.compressed_all()
    packed.gptq_all()
    packed.awq_all()
    packed.bnb_all()
    assert n_exact >= 3 and not wrong, "; ".join(wrong)


def test_types_storyteller():
    """A trained model: each type at its own distance, sizes as the type says."""
    limits = {"f32": 1e-6, "bf16": 0.02, "f16": 0.002, "q8_0": 0.02, "q6_k": 0.05, "q5_k": 0.08, "q5_1": 0.1, "q5_0": 0.1, "q4_k": 0.16,
              "q4_1": 0.2, "q4_0": 0.2, "iq4_nl": 0.17, "iq4_xs": 0.17, "q4_k_m": 0.15, "q5_k_m": 0.08, "mxfp4": 0.3, "nvfp4": 0.25, "q3_k": 0.35, "q2_k": 0.7,
              "q4_k_s": 0.16, "q5_k_s": 0.08, "q3_k_l": 0.3, "q3_k_m": 0.32, "q3_k_s": 0.35, "q2_k_s": 0.7, "iq3_s": 0.35, "iq3_xxs": 0.5, "iq2_s": 0.8, "iq2_xs": 0.9, "iq2_xxs": 1.0, "tq2_0": 1.1, "tq1_0": 1.1}
    bits = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q6_k": 6.5625, "q5_k": 5.5, "q5_1": 6, "q5_0": 5.5, "q4_k": 4.5, "q4_1": 5, "q4_0": 4.5,
            "iq4_nl": 4.5, "iq4_xs": 4.25, "mxfp4": 4.25, "nvfp4": 4.5, "q3_k": 3.4375, "q2_k": 2.625, "iq3_s": 3.4375, "iq3_xxs": 3.0625, "iq2_s": 2.5625, "iq2_xs": 2.3125, "iq2_xxs": 2.0625,
            "tq2_0": 2.0625, "tq1_0": 1.6875}
    with scratch() as folder:
        want, found = logits(MODEL, PROMPT, folder), {}
        for kind, limit in limits.items():
            out = os.path.join(folder, kind + ".gguf")
            convert(MODEL, out, "--type", kind, *(["--type", ".=" + kind] if kind == "q2_k" else []))  # the name is a mix's, too
            found[kind] = relative_l2(logits(out, PROMPT, folder), want)
            assert found[kind] <= limit, "%s: %.3g, at most %g" % (kind, found[kind], limit)
            info = minerva("inspect", out, "--json").json()
            if kind in bits:
                weights = [t for t in info["tensors"] if len(t["dim"]) == 2]
                for t in weights:
                    equal((t["dtype"], t["bytes"] * 8), ({"nvfp4": "nvfp4_64"}.get(kind, kind), t["dim"][0] * t["dim"][1] * bits[kind]))
            os.remove(out)
        assert found["q4_k_m"] < found["q4_k"] * 1.05 and found["q8_0"] < found["q4_0"] and found["q4_0"] < found["q2_k"]


def test_types_again():
    """From GGUF to GGUF: the same type is copied byte for byte, another one is made of the values."""
    with scratch() as folder:
        a, b, c = (os.path.join(folder, x) for x in ("a.gguf", "b.gguf", "c.gguf"))
        convert(MODEL, a, "--type", "q8_0")
        convert(a, b)
        with open(a, "rb") as f, open(b, "rb") as g:
            one, two = f.read(), g.read()
        data = sum(t["bytes"] for t in minerva("inspect", a, "--json").json()["tensors"])
        equal(one[-data:], two[-data:])
        convert(a, c, "--type", "q4_0")
        error = relative_l2(logits(c, PROMPT, folder), logits(MODEL, PROMPT, folder))
        assert 1e-3 < error < 0.25, error
        convert(MODEL, b, "--type", "q8_0", "--force", "-t", 1)  # as many threads as there are, the same bytes
        with open(b, "rb") as f:
            equal(f.read(), one)


def test_types_mixes():
    """Which tensors a mix stores in more bits; rows that do not fit 256 fall back in the same places."""
    with scratch() as folder:
        source, out = variant(folder, "gpt-oss-mxfp4", "m"), os.path.join(folder, "a.gguf")  # eight experts, rows of 64
        for kind, base, more in (("q4_k_m", "q5_0", "q8_0"), ("q5_k_m", "q5_1", "q8_0")):
            convert(source, out, "--type", kind, "--force")
            types = {t["name"]: t["dtype"] for t in minerva("inspect", out, "--json").json()["tensors"]}
            equal({types["blk.0." + t + ".weight"] for t in ("attn_k", "attn_v")}, {"q8_0"})
            equal(types["blk.1.attn_output.weight"], "q5_1")  # q5_k
            equal([types[t] for t in ("blk.0.attn_q.weight", "token_embd.weight", "output.weight")], [base, base, more])
            equal([types["blk.%d.ffn_down_exps.weight" % i] for i in range(4)], [base, base, more, more])


def planned(source, *args):
    """The table of --dry-run: (stored, type) by name; and the size of the file."""
    lines = minerva("convert", source, "--dry-run", *args).out.splitlines()
    rows = [line.split() for line in lines[1:lines.index("")]]
    return {r[0]: tuple(r[-4:-2]) for r in rows}, int(lines[-1].split("(")[1].split()[0])


def test_types_named_mixes():
    """The tensors that each mix has in other types than its own, of six layers whose heads share k and v by two."""
    every = range(6)
    want = {"q2_k": {"attn_v": {"q3_k": every}, "ffn_down": {"q3_k": every}, "attn_output": {"q3_k": every}}, "q2_k_s": {}, "q3_k_s": {},
            "q3_k_m": {"attn_v": {"q5_k": (0, 1), "q4_k": (2, 3, 4, 5)}, "ffn_down": {"q4_k": every}, "attn_output": {"q4_k": every}},
            "q3_k_l": {"attn_v": {"q5_k": every}, "ffn_down": {"q5_k": every}, "attn_output": {"q5_k": every}},
            "q4_k_s": {"attn_v": {"q5_k": (0, 1, 2, 3)}}, "q4_k_m": {"attn_v": {"q6_k": (2, 5)}, "ffn_down": {"q6_k": (2, 5)}},
            "q5_k_s": {}, "q5_k_m": {"attn_v": {"q6_k": (2, 5)}, "ffn_down": {"q6_k": (2, 5)}}}
    for mix, kinds in want.items():
        types = {name: kind for name, (_, kind) in planned(MODEL, "--type", mix)[0].items() if "norm" not in name}
        equal(types.pop("token_embd.weight"), "q6_k")
        for name, found in types.items():
            layer, kind = int(name.split(".")[1]), name.split(".")[2]
            expected = [t for t, layers in kinds.get(kind, {}).items() if layer in layers] or [mix[:4]]
            equal((mix, name, found), (mix, name, expected[0]))


def test_types_rules():
    """PATTERN=TYPE: the first pattern that a name matches; vectors and norms stay; the plan is what is written."""
    with scratch() as folder:
        args = ["--type", "q4_k_m", "--type", r"^blk\.(0|1)\.attn_v=q8_0", "--type", "attn_v=f16", "--type", "embd=Q5_K", "--type", r"blk\.3\.ffn_up=nvfp4"]
        types, size = planned(MODEL, *args)
        equal([types["blk.%d.attn_v.weight" % i][1] for i in range(6)], ["q8_0"] * 2 + ["f16"] * 4)
        equal((types["token_embd.weight"], types["blk.2.ffn_down.weight"], types["output_norm.weight"]), (("bf16", "q5_k"), ("bf16", "q6_k"), ("bf16", "f32")))
        equal(types["blk.3.ffn_up.weight"][1], "nvfp4_64")
        out = os.path.join(folder, "a.gguf")
        convert(MODEL, out, *args)
        info = minerva("inspect", out, "--json").json()
        equal({t["name"]: t["dtype"] for t in info["tensors"]}, {name: kind for name, (_, kind) in types.items()})
        equal((os.path.getsize(out), info["metadata"]["general.file_type"]), (size, 15))
        types, _ = planned(out, "--type", ".=q4_k")  # of a GGUF file the others stay as they are
        equal((types["blk.0.attn_v.weight"], types["output_norm.weight"]), (("q8_0", "q4_k"), ("f32", "f32")))
        equal(os.listdir(folder), ["a.gguf"])


def test_types_parts():
    """A file of several parts becomes one."""
    with scratch() as folder:
        out = os.path.join(folder, "a.gguf")
        convert(os.path.join(FIXTURES, "llama-sharded"), out)
        keys = minerva("inspect", out, "--json").json()["metadata"]
        assert not [k for k in keys if k.startswith("split.")], keys


def test_types_magnitude():
    """What YaRN multiplies sin and cos with: in GGUF as a factor of 0.1 ln(4) + 1, which other programs multiply it by."""
    with scratch() as folder:
        out = os.path.join(folder, "a.gguf")
        convert(os.path.join(FIXTURES, "llama-yarn"), out)
        keys = {k: v for k, v in minerva("inspect", out, "--json").json()["metadata"].items() if "attn_factor" in k}
        equal(list(keys), ["llama.rope.scaling.attn_factor"])
        usual, m, over = (0.1 * x * math.log(4) + 1 for x in (1, 0.5, 0.8))
        assert abs(keys["llama.rope.scaling.attn_factor"] - m / over / usual) < 1e-6, keys
        convert(os.path.join(FIXTURES, "gpt-oss"), out, "--force")
        assert not [k for k in minerva("inspect", out, "--json").json()["metadata"] if "attn_factor" in k]


# ---- keys ----
def variant(folder, fixture, name, **changes):
    """A fixture with other values in its config.json; None takes a key away."""
    path = os.path.join(folder, name)
    os.mkdir(path)
    with open(os.path.join(FIXTURES, fixture, "config.json")) as f:
        config = dict(json.load(f), **changes)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({k: v for k, v in config.items() if v is not None}, f)
    os.symlink(os.path.join(FIXTURES, fixture, "model.safetensors"), os.path.join(path, "model.safetensors"))
    return path


def keys_of(source, *args):
    out = source + ".gguf"
    convert(source, out, "--force", *args)
    return minerva("inspect", out, "--json").json()["metadata"]


def rewritten(source, out, *pairs):
    """Bytes of a GGUF file's header replaced by as many others."""
    with open(source, "rb") as f:
        data = f.read()
    for a, b in pairs:
        assert data.count(a) == 1 and len(a) == len(b), (a, b)
        data = data.replace(a, b)
    with open(out, "wb") as f:
        f.write(data)
    return out


def test_keys_general():
    with scratch() as folder:
        keys = keys_of(variant(folder, "llama", "Some-Model", _name_or_path=""))
        equal([keys.get("general." + k) for k in ("name", "type", "size_label", "file_type", "quantization_version")], ["Some-Model", "model", "95K", 0, 2])
        assert "llama.rope.scaling.type" not in keys, keys
        for i, path in enumerate(("/home/someone/run-7", "./out", "a/b/c", "C:\\x")):  # where it was saved is nobody's business
            equal(keys_of(variant(folder, "llama", "M%d" % i, _name_or_path=path))["general.name"], "M%d" % i)
        equal(keys_of(variant(folder, "llama", "other", _name_or_path="owner/model"))["general.name"], "owner/model")
        minerva("convert", ".", "-o", "../dot.gguf", cwd=os.path.join(folder, "M0"), exe=os.path.abspath(cli_test.MINERVA))
        equal(minerva("inspect", os.path.join(folder, "dot.gguf"), "--json").json()["metadata"]["general.name"], "M0")
        is_error(minerva("inspect", variant(folder, "llama", "bad", _name_or_path=7), code=1), "_name_or_path", "string")
        equal(keys_of(variant(folder, "mixtral", "mixtral"))["general.size_label"], "4x95K")
        equal(keys_of(variant(folder, "phi3", "phi3"))["phi3.attention.sliding_window"], 0)  # other programs insist on the key
        equal(keys_of(variant(folder, "phi3-short", "windows"))["phi3.attention.sliding_window"], 20)


def test_keys_sampling():
    """What the makers say, and nothing that they do not say."""
    with scratch() as folder:
        path = variant(folder, "llama", "m")
        for said, want in (({"eos_token_id": 2}, {}), ({"top_k": 40, "min_p": 0.25, "repetition_penalty": 1.5, "temperature": None, "top_p": "much"},
                                                       {"top_k": 40, "min_p": 0.25, "penalty_repeat": 1.5}), ({"temperature": 0.5, "top_p": 0.75}, {"temp": 0.5, "top_p": 0.75}),
                           ({"typical_p": 0.5}, {"typical_p": 0.5})):
            with open(os.path.join(path, "generation_config.json"), "w") as f:
                json.dump(said, f)
            equal({k[17:]: v for k, v in keys_of(path).items() if k.startswith("general.sampling.")}, want)


def test_keys_sampling_of_the_makers():
    """From generation_config.json and from the keys of a GGUF file alike; flags are stronger."""
    with scratch() as folder:
        plain, path, gguf = variant(folder, "llama", "plain"), variant(folder, "llama", "m"), os.path.join(folder, "m.gguf")

        def ids(model, *flags):
            return minerva("run", "-m", model, "--prompt-ids", "5,6,7,5,6,7", "-n", "90", "--ignore-eos", "-s", "3", "--json", *flags).json()["ids"]

        def makers_say(**said):
            with open(os.path.join(path, "generation_config.json"), "w") as f:
                json.dump(said, f)
            minerva("convert", path, "-o", gguf, "--force")
            return path, gguf

        for model in makers_say(typical_p=0.25):
            typical = ids(plain, "--typical", "0.25")
            assert typical != ids(plain), "the fixture tells nothing"
            equal(ids(model), typical)
        greedy, penalised = ids(plain, "--temp", "0"), ids(plain, "--temp", "0", "--repeat-penalty", "1.8", "--repeat-last-n", "500")
        near = ids(plain, "--temp", "0", "--repeat-penalty", "1.8")
        assert len({tuple(i) for i in (greedy, penalised, near)}) == 3, "the fixture tells nothing"
        for model in makers_say(min_p=1.0, temperature=5.0):
            equal(ids(model), greedy)
            equal(ids(model, "--min-p", "0"), ids(plain, "--temp", "5"))
        for model in makers_say(repetition_penalty=1.8):  # over all tokens, as the library that the file is for
            equal(ids(model, "--temp", "0"), penalised)
            equal(ids(model, "--temp", "0", "--repeat-last-n", "64"), near)
            equal(ids(model, "--temp", "0", "--repeat-penalty", "1.8"), near)
            equal(ids(model, "--temp", "0", "--repeat-penalty", "1"), greedy)
        for wrong in (1, 0, -2, "much", None):
            for model in makers_say(repetition_penalty=wrong):
                equal(ids(model, "--temp", "0"), greedy)


def warned(model, *parts):
    """Runs, and says so on stderr."""
    r = minerva("run", "-m", model, "--prompt-ids", "5,6,7", "-n", "3", "--temp", "0", "--json")
    has(r.err, "minerva: warning: ", *parts)
    return r


def with_generation(path, said):
    with open(os.path.join(path, "generation_config.json"), "w") as f:
        f.write(said if isinstance(said, str) else json.dumps(said))
    return path


def test_keys_sampling_of_no_use():
    """Each is named with its value, in every format; the usual value is used, and nothing of it is converted."""
    inf = float("inf")
    wrong = [("temperature", "temp", "hot", '"hot"'), ("temperature", "temp", 1e39, "1e+39"), ("temperature", "temp", -1, "-1"), ("temperature", "temp", [1], "a list"),
             ("temperature", "temp", True, "true"), ("temperature", "temp", inf, "inf"), ("top_p", "top_p", 7, "7"), ("top_p", "top_p", 0, "0"), ("top_k", "top_k", 2.5, "2.5"),
             ("top_k", "top_k", -1, "-1"), ("min_p", "min_p", 5, "5"), ("repetition_penalty", "penalty_repeat", -1, "-1"), ("repetition_penalty", "penalty_repeat", 0, "0")]
    with scratch() as folder:
        for source in ("llama", "llama-mlx4"):
            path = variant(folder, source, source + "-m")
            for key, name, value, shown in wrong:
                warned(with_generation(path, {key: value}), "generation_config.json: key '%s' is %s, expected" % (key, shown), "used")
                assert "general.sampling." + name not in keys_of(path), key
            warned(with_generation(path, {"temperature": 0}), "key 'temperature' is 0", "most likely")
            for key, value in (("num_beams", 4), ("suppress_tokens", [7]), ("no_repeat_ngram_size", 3)):
                warned(with_generation(path, {key: value}), "generation_config.json: key '%s' is ignored" % key)
            equal(keys_of(with_generation(path, '{"top_p": 0.5, "top_p": 0.25}'))["general.sampling.top_p"], 0.25)  # the last one, as in Python
            warned(with_generation(path, {"eos_token_id": [2, 5000]}), "generation_config.json: key 'eos_token_id' is 5000, expected 0 to 159")
            warned(with_generation(path, {"bos_token_id": 99999}), "generation_config.json: key 'bos_token_id' is 99999, expected 0 to 159", "begins no text")
            for bad, shown in (("soon", '"soon"'), (2.5, "2.5"), (-1, "-1"), ({"a": 1}, "an object"), (True, "true"), ([2, "x"], '"x"')):
                is_error(minerva("run", "-m", with_generation(path, {"eos_token_id": bad}), "--prompt-ids", "5", code=1),
                         "generation_config.json: key 'eos_token_id' is %s, expected" % shown)
            for bad in ("[1]", "{", "", '{"top_p": 1} 2'):
                is_error(minerva("run", "-m", with_generation(path, bad), "--prompt-ids", "5", code=1), "generation_config.json")
        quiet = minerva("run", "-m", with_generation(path, {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0, "repetition_penalty": 1.0, "eos_token_id": 2, "pad_token_id": None,
                                                                  "typical_p": 1.0, "num_beams": 1, "suppress_tokens": None, "bad_words_ids": []}),
                        "--prompt-ids", "5,6,7", "-n", "3", "--json")
        assert "warning" not in quiet.err, quiet.err
        path, gguf = variant(folder, "llama", "g"), os.path.join(folder, "g.gguf")
        values = {"temperature": 0.625, "top_p": 0.375, "min_p": 0.125, "repetition_penalty": 1.375, "top_k": 77}
        convert(with_generation(path, values), gguf)

        for key, name, value, shown in (("temperature", "temp", math.nan, "nan"), ("temperature", "temp", 0.0, "0"), ("temperature", "temp", 1e38, "1e+38"), ("top_p", "top_p", 0.0, "0"),
                                        ("top_p", "top_p", math.nan, "nan"), ("min_p", "min_p", inf, "inf"), ("repetition_penalty", "penalty_repeat", 0.0, "0")):
            with open(gguf, "rb") as f:
                data = f.read()
            at = data.index(b"general.sampling." + name.encode()) + 17 + len(name)
            kind, = struct.unpack("<I", data[at:at + 4])
            equal(struct.unpack("<f" if kind == 6 else "<d", data[at + 4:at + (8 if kind == 6 else 12)])[0], values[key])
            changed = struct.pack("<f" if kind == 6 else "<d", value)
            out = os.path.join(folder, "x.gguf")
            with open(out, "wb") as f:
                f.write(data[:at + 4] + changed + data[at + 4 + len(changed):])
            warned(out, "key general.sampling.%s is %s" % (name, shown if value != 1e38 else "1e+38"))


def test_keys_ends_outside():
    """An id that the vocabulary lacks: a warning where it would end an answer, an error where texts begin with it."""
    def with_id(key, value):
        with open(gguf, "rb") as f:
            data = f.read()
        at = data.index(key) + len(key) + 4 # behind the type
        out = os.path.join(folder, "x.gguf")
        with open(out, "wb") as f:
            f.write(data[:at] + struct.pack("<I", value) + data[at + 4:])
        return out

    with scratch() as folder:
        gguf = os.path.join(folder, "a.gguf")
        convert(MODEL, gguf)
        r = warned(with_id(b"tokenizer.ggml.eos_token_id", 5000), "key tokenizer.ggml.eos_token_id is 5000, expected 0 to 2047", "ends no answer")
        equal(r.err.count("eos_token_id"), 1)
        is_error(minerva("run", "-m", with_id(b"tokenizer.ggml.bos_token_id", 5000), "-p", "a", code=1), "bos_token_id", "5000")


def rewritten_config(path, change):
    with open(os.path.join(path, "config.json")) as f:
        config = f.read()
    with open(os.path.join(path, "config.json"), "w") as f:
        f.write(change(config))
    return path


def refused(model, *parts):
    """By run and by convert, in the same words; no file appears."""
    out = model + ".out.gguf"
    a, b = minerva("run", "-m", model, "--prompt-ids", "5,6,7", code=1), convert(model, out, code=1)
    is_error(a, *parts)
    is_error(b, *parts)
    assert not os.path.exists(out), out
    return a.err, b.err


def null(key):
    def change(text):
        config = json.loads(text)
        config[key] = None
        return json.dumps(config)
    return change


def test_keys_window():
    """Layers that slide need a window; a model none of whose layers does needs none."""
    with scratch() as folder:
        for name in ("gpt-oss", "gemma2", "gemma3"):
            path = rewritten_config(variant(folder, name, name), null("sliding_window"))
            refused(path, "config.json: key 'sliding_window' is null", "layer_types")
            path = rewritten_config(variant(folder, name, name + "-rule", layer_types=None), null("sliding_window"))
            refused(path, "config.json: key 'sliding_window' is null", "sliding attention")
            n = len(json.load(open(os.path.join(FIXTURES, name, "config.json")))["layer_types"])
            path = rewritten_config(variant(folder, name, name + "-full", layer_types=["full_attention"] * n), null("sliding_window"))
            keys = keys_of(path)
            arch = keys["general.architecture"]
            equal(keys[arch + ".attention.sliding_window"], 0)
            assert relative_l2(logits(path, "5,6,7", folder), logits(path + ".gguf", "5,6,7", folder)) < 1e-6, name
        both = {"use_sliding_window": False, "layer_types": ["sliding_attention"] * 2}
        refused(variant(folder, "qwen3", "qwen3", **both), "use_sliding_window", "layer_types")
        gguf = os.path.join(folder, "a.gguf")
        convert(os.path.join(FIXTURES, "gpt-oss"), gguf)
        key = b"gpt-oss.attention.sliding_window"
        with open(gguf, "rb") as f:
            data = f.read()
        at = data.index(key + struct.pack("<I", 4)) + len(key) + 4
        equal(data[at:at + 4], struct.pack("<I", 12))
        for name, changed in (("zero.gguf", data[:at] + bytes(4) + data[at + 4:]), ("gone.gguf", data.replace(key + b"\4", key[:-1] + b"x\4"))):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(changed)
            refused(os.path.join(folder, name), "gpt-oss.attention.sliding_window", "missing or 0")


def test_keys_unused():
    """What would be passed over: sets of another name, a factor without a kind, words for numbers, NULs in names."""
    with scratch() as folder:
        for i, rope in enumerate(({"": {}}, {"x": {"rope_theta": 5.0}}, {"rope_theta": 10000.0, "x": {}}, {"full_attention": {"rope_theta": 5.0}, "x": 1})):
            refused(variant(folder, "llama", "rope%d" % i, rope_parameters=rope), "config.json", "rope_parameters")
        refused(variant(folder, "llama", "theta", rope_parameters=None, rope_theta={"": {}}), "config.json: key 'rope_theta' is an object")
        refused(variant(folder, "llama", "old", rope_scaling={"": {}}), "config.json: key 'rope_scaling.'")
        refused(variant(folder, "llama", "factor", rope_parameters={"rope_theta": 1e4, "factor": 8}), "config.json: key 'rope_parameters.rope_type' is missing")
        refused(variant(folder, "smollm3", "no-rope", no_rope_layers=["yes"] * 4), "no_rope_layers")
        refused(variant(folder, "llama", "nul", model_type="llama\0x"), "config.json: a NUL character at offset")
        refused(rewritten_config(variant(folder, "llama", "raw"), lambda t: t.replace('"llama"', '"llama\0"')), "config.json: a NUL character at offset")
        for i, change in enumerate((lambda name, file: (name, file + "\0x"), lambda name, file: (name + "\0x", file))):
            path, source = os.path.join(folder, "index%d" % i), os.path.join(FIXTURES, "llama-sharded")
            os.mkdir(path)
            for name in os.listdir(source):
                os.symlink(os.path.join(source, name), os.path.join(path, name))
            with open(os.path.join(source, "model.safetensors.index.json")) as f:
                index = json.load(f)
            index["weight_map"] = dict(change(k, v) for k, v in index["weight_map"].items())
            os.remove(os.path.join(path, "model.safetensors.index.json"))
            with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
                json.dump(index, f)
            refused(path, "model.safetensors.index.json: a NUL character at offset")
        gguf, length = os.path.join(folder, "a.gguf"), lambda n: struct.pack("<Q", n)
        convert(variant(folder, "llama", "Some-Model"), gguf)
        with open(gguf, "rb") as f:  # a byte longer here, one shorter there: all else stays where it is
            data = f.read()
        arch = b"general.architecture" + struct.pack("<I", 8)
        assert data.count(arch + length(5) + b"llama") == 1 and data.count(length(10) + b"Some-Model") == 1
        data = data.replace(arch + length(5) + b"llama", arch + length(6) + b"llama\0").replace(length(10) + b"Some-Model", length(9) + b"Some-Mode")
        with open(gguf, "wb") as f:
            f.write(data)
        refused(gguf, "general.architecture is \"llama\\u0000\"")


def test_keys_rope():
    """Files of others name the scaling in several ways."""
    ids, both = fixture_ids("llama"), lambda *a: [struct.pack("<Q", len(k)) + k for k in a]
    with scratch() as folder:
        def same(a, b, limit=1e-6):
            error = relative_l2(logits(a, ids, folder), logits(b, ids, folder))
            assert error <= limit, "%s, %s: %g" % (a, b, error)

        rope = {"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0}
        path = variant(folder, "llama", "linear-x", rope_parameters=rope)
        keys_of(path)
        same(rewritten(path + ".gguf", folder + "/a.gguf", both(b"llama.rope.scaling.type", b"llama.rope.scaling.tyqe")), path)  # a factor alone is linear
        old, new = both(b"llama.rope.scaling.factor", b"llama.rope.scale_linear")
        name = both(b"linear-x", b"linear-x-y")
        with open(folder + "/a.gguf", "rb") as f:
            data = f.read().replace(old, new).replace(*name)
        with open(folder + "/a.gguf", "wb") as f:
            f.write(data)
        same(folder + "/a.gguf", path)
        # longrope: its factor says the magnitude; other programs would divide by it
        ids = fixture_ids("phi3")
        with open(os.path.join(FIXTURES, "phi3", "config.json")) as f:
            rope = dict(json.load(f)["rope_parameters"], factor=2.0)
        magnitude = math.sqrt(1 + math.log(2) / math.log(rope["original_max_position_embeddings"]))
        path, told = variant(folder, "phi3", "long", rope_parameters=rope), variant(folder, "phi3", "told", rope_parameters=dict(rope, attention_factor=magnitude))
        keys = keys_of(path)
        assert abs(keys["phi3.rope.scaling.attn_factor"] / magnitude - 1) < 1e-6 and "phi3.rope.scaling.factor" not in keys, keys
        same(path, told)
        same(path + ".gguf", path)


# ---- text ----
TEXTS = ["Once upon a time", "I'll say 12345 times:\n\n  \"Hello, W\u00f6rld\" \u4f60\u597d \U0001f600\t<|eot_id|>", " ", "x" * 300]


def test_text_storyteller():
    with scratch() as folder:
        out = os.path.join(folder, "story.gguf")
        convert(MODEL, out, "--type", "f32")
        for text in TEXTS:
            for more in ([], ["--parse-special"], ["--no-bos"]):
                a, b = (minerva("tokenize", "-m", m, "-p", text, "--json", *more).json() for m in (MODEL, out))
                equal(a["ids"], b["ids"])
        keys = [minerva("inspect", m, "--json").json()["metadata"] for m in (MODEL, out)]
        assert not [k for k in keys[1] if k.startswith("minerva.")], keys[1]
        run = ["-p", "Tell me a story about a boat.", "-n", 40, "--temp", 0, "--precision", "exact", "--device", "reference", "--json"]
        a, b = (minerva("run", "-m", m, *run).json() for m in (MODEL, out))
        equal((a["prompt_ids"], a["ids"], a["finish_reason"]), (b["prompt_ids"], b["ids"], b["finish_reason"]))  # the template went along


def test_text_of_others():
    """Vocabularies of GGUF go through as they are."""
    shared = os.environ.get("MINERVA_SHARED") or os.path.join(ROOT, "..", "shared")
    if not os.path.isdir(os.path.join(shared, "tokenizers")):
        raise Skipped("no folder shared/tokenizers")
    with scratch() as folder:
        for name in ("gpt-2", "llama-spm", "phi-3"):
            source = os.path.join(shared, "tokenizers", name + ".gguf")
            r = minerva("convert", source, "-o", os.path.join(folder, "v.gguf"), code=None)
            assert r.code in (0, 1), r.err  # a vocabulary without a model: refused with a reason
            if r.code:
                is_error(r, name)


# ---- readers ----
def test_readers_gguf_package():
    try:
        import gguf as gguf_package
        import numpy
    except ImportError as e:
        raise Skipped("needs the Python packages gguf and numpy: %s" % e)
    with scratch() as folder:
        f32, path = os.path.join(folder, "f32.gguf"), os.path.join(folder, "x.gguf")
        convert(MODEL, f32, "--type", "f32")
        want = {t.name: numpy.array(t.data) for t in gguf_package.GGUFReader(f32).tensors}
        for kind in ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"):
            convert(MODEL, path, "--type", kind, "--force")
            reader = gguf_package.GGUFReader(path)
            equal(reader.fields["general.architecture"].contents(), "llama")
            equal({t.name for t in reader.tensors}, set(want))
            error = square = 0.0
            for t in reader.tensors:
                assert t.data_offset % 32 == 0, t.name
                values = gguf_package.quants.dequantize(t.data, t.tensor_type).reshape(want[t.name].shape)
                error += float(((values - want[t.name]) ** 2).sum())
                square += float((want[t.name] ** 2).sum())
            limit = {"f16": 1e-6, "bf16": 1e-5, "q8_0": 1e-4, "q6_k": 1e-3}.get(kind, 0.12 if kind == "q2_k" else 0.03)
            assert error <= limit * square, "%s: %g" % (kind, error / square)


def test_readers_warnings():
    """What other programs refuse or do not know is said, and nothing where there is nothing to say."""
    def said(path, out, *args):
        r = convert(path, out, "--force", *args)
        return [line for line in r.err.splitlines() if "warning" in line and "nothing reads" not in line]

    def warns(path, *words, args=()):
        lines = said(path, out, *args)
        equal(len(lines), 1)
        has(lines[0], *words)

    def fixture(name):
        return os.path.join(FIXTURES, name)
    with scratch() as folder:
        out, again = folder + "/a.gguf", folder + "/again.gguf"
        for name in ("gemma", "gemma2", "gemma3", "gpt-oss", "gpt2", "granite", "llama", "llama-mlx4", "mixtral", "olmo2", "phi2", "phi3", "qwen2", "qwen3", "smollm3",
                     "stablelm", "gemma4"):
            equal(said(fixture(name), out), [])
        keys = minerva("inspect", out, "--json").json()["metadata"]
        equal(keys["gemma4.embedding_length_per_layer_input"], 0)
        warns(fixture("olmo2-bias"), "4 biases", "blk.0.attn_", "olmo2")
        warns(fixture("llama-yarn"), "beta_fast 8", "beta_slow 1")
        warns(fixture("llama-wide"), "f16 instead of q4_k (", "q5_0 instead of q4_k (", "rows of 96", args=("--type", "q4_k"))
        for name in ("phi2", "stablelm", "olmo2"):
            m = models.fixture(name)
            m.tensors.pop("lm_head.weight")
            m.config["tie_word_embeddings"] = True
            warns(m.write(os.path.join(folder, name)), "output matrix is the embedding", "output.weight", name)
        m = models.fixture("gemma2")
        kind, shape, raw = m.tensors["model.embed_tokens.weight"]
        m.tensors["lm_head.weight"] = (kind, shape, raw[::-1])
        lines = said(m.write(os.path.join(folder, "gemma2")), out)
        has(lines[0], "tie_word_embeddings", "stored output matrix is used")
        has(lines[1], "output.weight is not the embedding", "gemma2")
        has(convert(fixture("llama"), again, "--type", "q8_0").err, "written in", "KiB, from 369")
        warns(again, "quantised already", "q8_0", "q4_0", args=("--type", "q4_0"))
        equal(said(again, out, "--type", "q8_0") + said(again, out, "--type", "f32"), [])


def at_odd_addresses(source, out):
    """The same file with an alignment of 1, and its data behind a header of odd length."""
    tensors = minerva("inspect", source, "--json").json()["tensors"]
    with open(source, "rb") as f:
        data = f.read()
    size = sum(t["bytes"] + -t["bytes"] % 32 for t in tensors)
    last = tensors[-1]["name"].encode()
    end = data.rindex(last, 0, len(data) - size) + len(last) + 4 + 8 * len(tensors[-1]["dim"]) + 4 + 8
    pairs = [struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, 1)]
    if (end + len(pairs[0])) % 2 == 0:
        pairs.append(struct.pack("<Q", 2) + b"ab" + struct.pack("<IB", 7, 1))
    n_pairs = struct.unpack("<Q", data[16:24])[0] + len(pairs)
    with open(out, "wb") as f:
        f.write(data[:16] + struct.pack("<Q", n_pairs) + b"".join(pairs) + data[24:end] + data[-size:])


def test_readers_odd_addresses():
    with scratch() as folder:
        source, out, text = (os.path.join(folder, x) for x in ("a.gguf", "odd.gguf", "text"))
        with open(text, "w") as f:
            f.write("Once upon a time, there was a little girl named Lily. " * 5)
        for kind in ("f32", "f16", "q8_0", "q5_1", "q4_k", "iq4_xs", "mxfp4"):
            convert(MODEL, source, "--type", kind, "--force")
            at_odd_addresses(source, out)
            equal(logits(out, PROMPT, folder), logits(source, PROMPT, folder))
            both = [minerva("perplexity", "-m", m, "-f", text, "-c", 64, "--json").json()["perplexity"] for m in (source, out)]
            assert abs(both[0] / both[1] - 1) < 1e-6, (kind, both)


# ---- files and errors ----
def is_empty(folder):
    equal(os.listdir(folder), [])


def test_errors_arguments():
    with scratch() as folder:
        out = os.path.join(folder, "a.gguf")
        is_error(convert(MODEL, out, "--type", "q9_9", code=2), "--type", "q9_9", "q4_k_m")
        for rule, *said in (("attn_w=q8_0", "applies to no tensor"), ("output_norm=q8_0", "applies to no tensor"), ("(=q8_0", "regular expression", "byte 1"),
                            ("attn_v=q9", 'unknown type "q9"'), ("attn_v=q4_k_m", "mix"), ("=q8_0", "PATTERN=TYPE"), ("attn_v=", 'unknown type ""'),
                            ("^(.+)+[0-9]$=q8_0", "too long")):
            is_error(convert(MODEL, out, "--type", rule, code=2), "--type", rule.split("=")[0][:20], *said)
        is_error(convert(MODEL, out, "--type", "attn_v=q8_0", "--type", "blk=q8_0", "--type", "attn_v=q4_0", code=2), '"attn_v=q4_0" applies to no tensor')
        is_error(convert(MODEL, out, "--type", "q8_0", "--type", "q4_0", code=2), "--type", "q8_0 and q4_0")
        is_error(minerva("convert", MODEL, code=2), "-o")
        is_error(minerva("convert", "-o", out, code=2), "no model")
        is_error(minerva("convert", MODEL, "-o", "", code=2), "-o")
        is_error(minerva("convert", os.path.abspath(MODEL), "-o", "-", code=2, cwd=folder, exe=os.path.abspath(cli_test.MINERVA)), "-o", "standard output")
        is_error(convert(os.path.join(folder, "none"), out, code=1), "none")
        is_empty(folder)


# ---- importance matrices ----
def text(t):
    return struct.pack("<Q", len(t)) + t


def imatrix_gguf(entries, keys=(), kind=0, version=3, cut=None, shared=False):
    """entries: (name, sums, counts). shared: all tensors have the bytes of the first."""
    tensors = [(name + suffix, values) for name, sums, counts in entries for suffix, values in ((b".in_sum2", sums), (b".counts", counts))]
    pairs = [text(b"general.type") + struct.pack("<I", 8) + text(b"imatrix"), text(b"imatrix.datasets") + struct.pack("<IIQ", 9, 8, 1) + text(b"words.txt"),
             text(b"imatrix.chunk_count") + struct.pack("<II", 4, 7), text(b"imatrix.chunk_size") + struct.pack("<II", 4, 512)] + list(keys)
    head, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs), b""
    for name, values in tensors:
        head += text(name) + struct.pack("<IQIQ", 1, len(values), kind, 0 if shared else len(data))
        data += b"" if shared and data else struct.pack("<%df" % len(values), *values)
        data += bytes(-len(data) % 32)
    return (head + bytes(-len(head) % 32) + data)[:cut]


def imatrix_old(entries, end=b""):
    one = [struct.pack("<I", len(name)) + name + struct.pack("<II", 5, len(sums)) + struct.pack("<%df" % len(sums), *(5 * v for v in sums)) for name, sums, _ in entries]
    return struct.pack("<I", len(entries)) + b"".join(one) + end


def weighted_entries(folder):
    """Of every matrix of the demo model's layers: a few inputs that are large."""
    dims = {t["name"]: t["dim"] for t in minerva("inspect", MODEL, "--json").json()["tensors"] if len(t["dim"]) == 2 and t["name"].startswith("blk.")}
    return [(name.encode(), [100.0 if i % 16 == 3 else 0.25 + i % 7 for i in range(dim[1])], [1.0]) for name, dim in dims.items()]


def saved(folder, name, data):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)
    return os.path.join(folder, name)


def test_types_imatrix():
    """Both forms of the matrix give the same weights; the error weighted by it falls for every type; what the file says of it."""
    try:
        import gguf as gguf_package
    except ImportError as e:
        raise Skipped("needs the Python packages gguf and numpy: %s" % e)
    with scratch() as folder:
        f32, out = os.path.join(folder, "f32.gguf"), os.path.join(folder, "x.gguf")
        entries = weighted_entries(folder)
        new, old = saved(folder, "m.gguf", imatrix_gguf(entries)), saved(folder, "m.dat", imatrix_old(entries, struct.pack("<II", 7, 9) + b"words.txt"))
        convert(MODEL, f32, "--type", "f32")
        want, weights = {t.name: t.data.copy() for t in gguf_package.GGUFReader(f32).tensors}, {n.decode(): v for n, v, _ in entries}

        def error(*args):
            r = convert(f32, out, "--force", *args)
            assert "warning" not in r.err, r.err
            e = 0.0
            for t in gguf_package.GGUFReader(out).tensors:
                if t.name in weights:
                    d = gguf_package.quants.dequantize(t.data, t.tensor_type).reshape(want[t.name].shape) - want[t.name]
                    e += float(((d * d).sum(axis=0) * weights[t.name]).sum())
            with open(out, "rb") as f:
                data = f.read()
            return e, data[-sum(t["bytes"] for t in minerva("inspect", out, "--json").json()["tensors"]):]
        for kind in ("q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "q3_k", "q2_k", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "tq2_0"):
            args = ["--type", kind, "--type", ".=" + kind]
            (plain, _), (by_new, a), (by_old, b) = error(*args), error(*args, "--imatrix", new), error(*args, "--imatrix", old)
            assert by_new < (0.99 if kind in ("mxfp4", "nvfp4") else 0.9) * plain, (kind, by_new, plain)
            assert a == b, kind
            keys = {k[17:]: v for k, v in minerva("inspect", out, "--json").json()["metadata"].items() if k.startswith("quantize.imatrix.")}
            equal(keys, {"file": "m.dat", "dataset": "words.txt", "entries_count": len(entries), "chunks_count": 7})
        flat = saved(folder, "flat.gguf", imatrix_gguf([(n, [9.0] * len(v), c) for n, v, c in entries]))
        none = saved(folder, "none.gguf", imatrix_gguf([(n, v, [0.0]) for n, v, c in entries]))  # counted nothing: no weights
        same = [error("--type", "q4_k_m", *more)[1] for more in ([], ["--imatrix", flat], ["--imatrix", none])]
        assert same[0] == same[2], "weights of entries that counted nothing"
        has(convert(MODEL, out, "--force", "--type", "q4_k", "--imatrix", saved(folder, "few", imatrix_old(entries[:-2]))).err, "few: has nothing for 2 of the matrices")


def test_types_imatrix_experts():
    """Weights of each expert, and one set for all of them."""
    with scratch() as folder:
        source, out = os.path.join(FIXTURES, "mixtral"), os.path.join(folder, "a.gguf")
        dims = {t["name"]: t["dim"] for t in minerva("inspect", source, "--json").json()["tensors"] if len(t["dim"]) == 3}
        name, dim = sorted(dims.items())[0]

        def bytes_with(sums, counts):
            convert(source, out, "--force", "--type", "q4_0", "--imatrix", saved(folder, "m", imatrix_gguf([(name.encode(), sums, counts)])))
            with open(out, "rb") as f:
                return f.read()
        one = [1.0 + 50 * (i % 8 == 2) for i in range(dim[2])]
        equal(bytes_with(one, [1.0]), bytes_with(one * dim[0], [3.0] * dim[0]))
        r = convert(source, out, "--force", "--type", "q4_0", "--imatrix", saved(folder, "m", imatrix_gguf([(name.encode(), one * (dim[0] + 1), [1.0] * (dim[0] + 1))])), code=1)
        is_error(r, "m: %s: found %d values, expected %d for each of %d" % (name, dim[2] * (dim[0] + 1), dim[2], dim[0]))


def test_errors_imatrix():
    """Files that are none, are cut, lie about lengths, or belong to another model: the file, the entry, found and expected."""
    with scratch() as folder, scratch() as work:
        out, entries = os.path.join(folder, "a.gguf"), weighted_entries(work)
        name, sums, counts = entries[0]
        good, old = imatrix_gguf(entries[:1]), imatrix_old(entries[:1])

        def bad(data, *said):
            path = saved(work, "im.bin", data)
            is_error(convert(MODEL, out, "--type", "q4_0", "--imatrix", path, code=1), "im.bin: ", *said)
            is_empty(folder)
        is_error(convert(MODEL, out, "--imatrix", os.path.join(work, "none"), code=1), "none")
        bad(b"", "ends at byte 0", "the number of entries")
        bad(b"no matrix of any kind here", "neither the magic number GGUF")
        bad(struct.pack("<I", 1) + struct.pack("<I", 0xffffffff) + b"x" * 40, "ends at byte 48", "the name of an entry")
        bad(struct.pack("<II", 1, 1) + b"x" + struct.pack("<II", 1, 0x7fffffff) + bytes(40), 'entry 1 ("x") has 2147483647 values, but 40 bytes')
        bad(struct.pack("<II", 1, 1) + b"x" + struct.pack("<II", 1, 0), "x: found 0 values")
        bad(imatrix_old(entries[:1] * 2), "found %s twice" % name.decode())
        bad(old + b"ab", "the number of calls")
        bad(old + struct.pack("<II", 5, 9), "the name of the dataset")
        for cut in list(range(5, 200, 13)) + [len(good) // 2, len(good) - 33]:
            bad(good[:cut], *(["ends at byte %d" % cut] if cut < 200 else []))
        bad(good[:-32], "beyond the file's end")
        for cut in range(5, 120, 11):
            bad(old[:cut])
        for value in (math.nan, math.inf, -1.0):
            bad(imatrix_gguf([(name, [1.0, value] + sums[2:], counts)]), "%s: value 1 is" % name.decode(), "from 0 on")
        bad(imatrix_gguf([(name, sums[:-1], counts)]), "%s: found %d values, expected %d" % (name.decode(), len(sums) - 1, len(sums)), "another model")
        bad(imatrix_gguf([(name, sums, [1.0] * 5)]), "%d values of 5 matrices" % len(sums))
        bad(imatrix_gguf([(name, sums, [])]), "of 0 matrices")
        bad(imatrix_gguf([(b"no.such.weight", sums, counts)]), "none of its 1 entries (no.such.weight, ...)")
        bad(imatrix_gguf(entries[:1], kind=1), "has type 1, expected 0 (F32)")
        bad(imatrix_gguf([(b"a%d" % i, [1.0] * 4000, [1.0]) for i in range(50)], shared=True), "a1: the values of the entries so far", "expected each to have its own")
        bad(imatrix_gguf(entries[:1], version=9), "GGUF version 9, expected 2 or 3")
        bad(imatrix_gguf(entries[:1], keys=[text(b"a") + struct.pack("<I", 77)]), "key a has type 77")
        bad(imatrix_gguf(entries[:1], keys=[text(b"a") + struct.pack("<IIQ", 9, 9, 1)]), "key a: a list of type 9")
        bad(imatrix_gguf(entries[:1], keys=[text(b"a") + struct.pack("<IIQ", 9, 10, 1 << 61)]), "the values of a list")
        bad(imatrix_gguf(entries[:1], keys=[text(b"general.alignment") + struct.pack("<II", 4, 3)]), "general.alignment is 3, expected a power of two")
        bad(good.replace(b"imatrix", b"IMATRIX", 1), 'general.type is "IMATRIX", expected "imatrix"')
        bad(good.replace(b".counts", b".counTs"), "%s.in_sum2 without" % name.decode())
        bad(good.replace(b".in_sum2", b".in_suM2"), "none of its 2 tensors is NAME.in_sum2")
        bad(good.replace(struct.pack("<IQ", 1, len(sums)), struct.pack("<IQ", 1, 1 << 62)), "more values than the file")
        bad(good.replace(struct.pack("<IQ", 1, len(sums)), struct.pack("<IQ", 9, len(sums))), "has 9 dimensions")
        is_error(convert(MODEL, out, "--type", "q4_0", "--imatrix", folder, code=1), os.path.basename(folder))


def test_errors_existing_file():
    with scratch() as folder:
        out = os.path.join(folder, "a.gguf")
        with open(out, "w") as f:
            f.write("mine")
        is_error(convert(MODEL, out, code=1), out, "--force")
        with open(out) as f:
            equal(f.read(), "mine")
        convert(MODEL, out, "--force")
        equal(os.listdir(folder), ["a.gguf"])
        convert(out, out, "--force", "--type", "q8_0")  # onto itself
        equal(minerva("inspect", out, "--json").json()["metadata"]["general.file_type"], 7)
        is_error(convert(MODEL, folder, code=1), folder)


def test_errors_folder():
    with scratch() as folder:
        is_error(convert(MODEL, os.path.join(folder, "none", "a.gguf"), code=1), "none")
        if os.geteuid() == 0:
            is_error(convert(MODEL, "/proc/a.gguf", code=1), "/proc/a.gguf")
        else:
            os.chmod(folder, 0o500)
            is_error(convert(MODEL, os.path.join(folder, "a.gguf"), code=1), folder)


def test_errors_limit_on_files():
    """What a full disk does: the write fails in the middle."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
    with scratch() as folder:
        r = convert(MODEL, os.path.join(folder, "a.gguf"), "--type", "f32", code=1, preexec_fn=limit)
        is_error(r, "a.gguf", "cannot write")
        is_empty(folder)


def checkpoint(folder, poison):
    """The llama fixture with one value replaced."""
    source = os.path.join(FIXTURES, "llama")
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        data = bytearray(f.read())
    tensors, at = safetensors.header(os.path.join(source, "model.safetensors"))
    t = tensors["model.layers.0.mlp.up_proj.weight"]
    size = safetensors.SIZE[t["dtype"]]
    data[at + t["data_offsets"][0] + 5 * size:at + t["data_offsets"][0] + 6 * size] = poison[size]
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(data)
    with open(os.path.join(source, "config.json"), "rb") as f, open(os.path.join(folder, "config.json"), "wb") as g:
        g.write(f.read())
    return folder


def test_errors_not_finite():
    nan = {2: b"\xc0\x7f", 4: b"\0\0\xc0\x7f"}
    with scratch() as source, scratch() as folder:
        out = os.path.join(folder, "a.gguf")
        for kind in ("q8_0", "q4_k", "f16"):
            is_error(convert(checkpoint(source, nan), out, "--type", kind, code=1), "up_proj", "NaN")
            is_empty(folder)
        is_error(convert(checkpoint(source, {4: struct.pack("<f", 65520)}), out, "--type", "f16", code=1), "up_proj", "too large")
        is_empty(folder)
        convert(checkpoint(source, {4: struct.pack("<f", 65519)}), out, "--type", "f16")  # the largest that rounds to an f16
        is_error(convert(checkpoint(source, {4: struct.pack("<f", 2700)}), out, "--type", "nvfp4", "--force", code=1), "up_proj", "too large")


def reshaped(source, path, change):
    """A checkpoint with other names or shapes in its header; the data stays."""
    os.mkdir(path)
    tensors, at = safetensors.header(os.path.join(source, "model.safetensors"))
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        data = f.read()[at:]
    change(tensors)
    head = json.dumps(tensors).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)
    with open(os.path.join(source, "config.json"), "rb") as f, open(os.path.join(path, "config.json"), "wb") as g:
        g.write(f.read())
    return path


def renamed(old, new):
    def change(tensors):
        tensors[new] = tensors.pop(old)
    return change


def turned(name):
    def change(tensors):
        tensors[name]["shape"].reverse()
    return change


def test_errors_cannot_run():
    """What run refuses is not converted: a weight is missing, or has another shape."""
    layer = "model.layers.1."
    with scratch() as folder:
        for i, (fixture, change, word) in enumerate((
                ("llama", renamed(layer + "mlp.up_proj.weight", layer + "mlp.down_proj.bias2"), "ffn_up"),
                ("llama", renamed(layer + "input_layernorm.weight", "model.other.weight"), "attn_norm"),
                ("llama", renamed("lm_head.weight", "model.other.weight"), "output.weight"),
                ("llama", renamed("model.norm.weight", "model.other.weight"), "output_norm"),
                ("llama", turned(layer + "mlp.up_proj.weight"), "up_proj"),
                ("llama", turned(layer + "mlp.down_proj.weight"), "down_proj"),
                ("llama", turned(layer + "self_attn.k_proj.weight"), "k_proj"),
                ("mixtral", turned("model.layers.0.mlp.experts.gate_up_proj"), "experts"))):
            tensors, _ = safetensors.header(os.path.join(FIXTURES, fixture, "model.safetensors"))
            try:
                change(dict((k, dict(v, shape=list(v["shape"]))) for k, v in tensors.items()))
            except KeyError:
                continue
            a, b = refused(reshaped(os.path.join(FIXTURES, fixture), os.path.join(folder, "m%d" % i), change), word)
            equal(a, b)
        gguf = os.path.join(folder, "a.gguf")
        convert(os.path.join(FIXTURES, "llama"), gguf)
        rewritten(gguf, gguf, (b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
        a, b = refused(gguf, "blk.1.ffn_up.weight")
        equal(a, b)


def slow(folder, *args):
    """A conversion that takes a while: the demo model to the type with the longest search, on one thread."""
    return subprocess.Popen([cli_test.MINERVA, "convert", MODEL, "-o", os.path.join(folder, "a.gguf"), "--type", "q2_k", "-t", "1", *args],
                            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(folder, signal_number):
    for delay in (0.05, 0.2, 0.4, 0.6):
        p = slow(folder)
        time.sleep(delay)
        p.send_signal(signal_number)
        p.communicate()
        left = os.listdir(folder)
        if p.returncode == 0:  # it was faster
            equal(left, ["a.gguf"])
            minerva("inspect", os.path.join(folder, "a.gguf"))
            os.remove(os.path.join(folder, "a.gguf"))
            continue
        assert "a.gguf" not in left, left
        for name in left:  # a file system without nameless files
            os.remove(os.path.join(folder, name))


def test_stopped_killed():
    with scratch() as folder:
        ended(folder, signal.SIGKILL)


def test_stopped_interrupted():
    with scratch() as folder:
        ended(folder, signal.SIGINT)
        is_empty(folder)


# ---- inspect ----
def test_inspect_json():
    info = minerva("inspect", MODEL, "--json").json()
    tensor = info["tensors"][0]
    equal(sorted(tensor), ["bytes", "dim", "dtype", "file", "name", "native"])
    equal({t["file"] for t in info["tensors"]}, {"model.safetensors"})
    equal(sum(t["bytes"] for t in info["tensors"]), info["bytes"])
    equal(sum(t["count"] for t in info["types"]), len(info["tensors"]))
    equal(sum(t["bytes"] for t in info["types"]), info["bytes"])
    equal(info["runs"], True)
    has(info["why"], "")


def test_inspect_text():
    text = minerva("inspect", MODEL).out
    has(text, "token_embd.weight", "bf16", "runs here: yes")
    sharded = minerva("inspect", os.path.join(FIXTURES, "llama-sharded"), "--json").json()
    equal(len({t["file"] for t in sharded["tensors"]}), 2)


def test_inspect_unknown_architecture():
    """Read, described, and said not to run here."""
    with scratch() as folder:
        path = os.path.join(folder, "a.gguf")
        key = lambda k, v: struct.pack("<Q", len(k)) + k + struct.pack("<IQ", 8, len(v)) + v
        with open(path, "wb") as f:
            head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + key(b"general.architecture", b"abacus")
            head += struct.pack("<Q", 3) + b"one" + struct.pack("<IQIQ", 1, 4, 0, 0)
            f.write(head + b"\0" * (-len(head) % 32) + b"\0" * 16)
        info = minerva("inspect", path, "--json").json()
        equal(info["runs"], False)
        has(info["why"], "abacus")
        has(minerva("inspect", path).out, "runs here: no", "abacus")
        is_error(convert(path, os.path.join(folder, "b.gguf"), code=1), "abacus")


def test_inspect_pairing():
    """What GGUF does not say is fixed by the architecture; what a file says in our own key is believed or refused."""
    import gguf_file as gguf
    sizes = {"block_count": 1, "embedding_length": 8, "feed_forward_length": 8, "attention.head_count": 1, "context_length": 8}
    pairs = [gguf.pair("general.architecture", gguf.STR, "llama")] + [gguf.pair("llama." + k, gguf.U32, v) for k, v in sizes.items()]
    with scratch() as folder:
        path = os.path.join(folder, "a.gguf")
        for word in ("halves", "adjacent", "x"):
            gguf.write(path, pairs + [gguf.pair("minerva.rope.pairing", gguf.STR, word)], [("token_embd.weight", (8, 8), 0, b"\0" * 256)])
            why = minerva("inspect", path, "--json").json()["why"]
            has(why, *(["minerva.rope.pairing", "halves, adjacent"] if word == "x" else ["tensor"]))  # the rest of the model is not there


# ---- perplexity ----
def test_perplexity_definition():
    """Against the logits of each window, by the definition."""
    ids = list(range(6, 6 + 70))
    n_ctx = 16
    with scratch() as folder:
        path = os.path.join(folder, "ids")
        with open(path, "w") as f:
            f.write(" ".join(map(str, ids)) + "\n")
        want = []
        for at in range(0, len(ids) - n_ctx + 1, n_ctx):
            window = ids[at:at + n_ctx]
            rows = logits(MODEL, ",".join(map(str, window)), folder)
            v = len(rows) // n_ctx
            for i in range(n_ctx // 2, n_ctx - 1):
                row = rows[i * v:(i + 1) * v]
                top = max(row)
                want.append(math.log(math.fsum(math.exp(x - top) for x in row)) + top - row[window[i + 1]])
        mean = math.fsum(want) / len(want)
        spread = math.sqrt((math.fsum(x * x for x in want) / len(want) - mean * mean) / (len(want) - 1))
        got = minerva("perplexity", "-m", MODEL, "--ids", path, "-c", n_ctx, "--device", "reference", "--precision", "exact", "--json").json()
        equal(got["tokens"], len(want))
        assert abs(got["perplexity"] / math.exp(mean) - 1) < 1e-5, (got, math.exp(mean))
        assert abs(got["error"] / (math.exp(mean) * spread) - 1) < 1e-4, (got, math.exp(mean) * spread)
        stride = minerva("perplexity", "-m", MODEL, "--ids", path, "-c", n_ctx, "--stride", 4, "--device", "reference", "--json").json()
        equal((stride["windows"], stride["tokens"]), ((70 - 16) // 4 + 1, 4 * ((70 - 16) // 4 + 1)))


def test_perplexity_of_nan():
    """A weight that is NaN is an error that names the first position it reaches, in the text as it was given."""
    nan = {2: b"\xc0\x7f", 4: b"\0\0\xc0\x7f"}
    with scratch() as folder:
        path = os.path.join(folder, "ids")
        with open(path, "w") as f:
            f.write(" ".join(str(3 + i) for i in range(40)))
        bad = checkpoint(folder, nan)
        for flags, position in (((), 8), (("--stride", 4), 11)):
            for form in ((), ("--json",)):
                r = minerva("perplexity", "-m", bad, "--ids", path, "-c", 16, "--device", "reference", *flags, *form, code=1)
                is_error(r, folder, "position %d of the text (window 1) is NaN" % position)


def perplexity_is_interrupted(path):
    """The values so far stay on a terminal, and what comes behind them begins a line of its own."""
    with open(path) as f:
        text = f.read()
    with open(path + ".long", "w") as f:
        f.write(text * 1000)
    main_end, other = os.openpty()
    p = subprocess.Popen([cli_test.MINERVA, "perplexity", "-m", MODEL, "-f", path + ".long", "-c", "64"], stdin=subprocess.DEVNULL,
                         stdout=other, stderr=other, env=environment())
    os.close(other)
    shown, begin = b"", None
    try:
        while b"[2]" not in shown or time.monotonic() < begin + 1.3:  # what is redrawn every second would be there
            shown += os.read(main_end, 65536)
            begin = begin or time.monotonic()
        p.send_signal(signal.SIGINT)
        while True:
            shown += os.read(main_end, 65536)
    except OSError:
        pass
    os.close(main_end)
    equal(p.wait(60), 130)
    assert b"\033[K" not in shown and shown.endswith(b"\n"), shown[-200:]


def test_perplexity_text():
    """A story of its own kind surprises the model less than letters in disorder; bad arguments are said."""
    story = "Once upon a time, there was a little girl named Lily. She had a red ball and she liked to play in the park with her friend Tom. " * 5
    with scratch() as folder:
        good, bad = os.path.join(folder, "good"), os.path.join(folder, "bad")
        for path, text in ((good, story), (bad, story[::-1])):
            with open(path, "w") as f:
                f.write(text)
        run = lambda path: minerva("perplexity", "-m", MODEL, "-f", path, "-c", 64, "--json").json()["perplexity"]
        assert run(good) * 3 < run(bad), (run(good), run(bad))
        has(minerva("perplexity", "-m", MODEL, "-f", good, "-c", 64, "--device", "reference").out, "perplexity ", " +- ")
        perplexity_is_interrupted(good)
        is_error(minerva("perplexity", "-m", MODEL, "-f", good, "-c", 1000, code=1), "1000")
        is_error(minerva("perplexity", "-m", MODEL, code=2), "--ids")
        is_error(minerva("perplexity", "-m", MODEL, "-f", good, "-c", 64, "--stride", 64, code=2), "stride")
        with open(bad, "w") as f:
            f.write("1 2 x")
        is_error(minerva("perplexity", "-m", MODEL, "--ids", bad, code=2), "byte 4")


# ---- minerva imatrix ----
def imatrix_read(path):
    """Both forms: name -> (sums or mean squares times calls, counts or calls); and what the file says of itself."""
    with open(path, "rb") as f:
        b = f.read()
    at = [0]

    def take(form):
        found = struct.unpack_from("<" + form, b, at[0])
        at[0] += struct.calcsize("<" + form)
        return found[0] if len(found) == 1 else found

    def string(form):
        return take("%ds" % take(form)).decode()
    if not b.startswith(b"GGUF"):
        entries = {}
        for _ in range(take("I")):
            name, calls, n = string("I"), take("I"), take("I")
            entries[name] = (list(struct.unpack_from("<%df" % n, b, at[0])), calls)
            at[0] += 4 * n
        return entries, {"chunks": take("I"), "dataset": string("I")}
    at[0] = 8
    (n, n_keys), keys, tensors = take("QQ"), {}, {}
    for _ in range(n_keys):
        key, kind = string("Q"), take("I")
        keys[key] = string("Q") if kind == 8 else [string("Q") for _ in range(take("IQ")[1])] if kind == 9 else take("I")
    for _ in range(n):
        name, dims = string("Q"), [take("Q") for _ in range(take("I"))]
        tensors[name] = (math.prod(dims), take("IQ")[1])
    begin = at[0] + -at[0] % 32
    value = lambda t: list(struct.unpack_from("<%df" % tensors[t][0], b, begin + tensors[t][1]))
    return {t[:-8]: (value(t), value(t[:-8] + ".counts")) for t in tensors if t.endswith(".in_sum2")}, keys


def product(w, x):
    shape, values = w
    return [math.fsum(a * b for a, b in zip(values[i * shape[1]:(i + 1) * shape[1]], x)) for i in range(shape[0])]


class Summed:
    """Llama or Mixtral in doubles, position by position; sums of squares of what each matrix reads, by GGUF's name."""
    def __init__(self, name):
        self.path = os.path.join(FIXTURES, name, "model.safetensors")
        with open(os.path.join(FIXTURES, name, "config.json"), encoding="utf-8") as f:
            self.c = json.load(f)
        self.sums, self.counts = {}, {}

    def of(self, name):
        return safetensors.read(self.path, name)

    def linear(self, name, stored, x, mat=0, n_mat=1):
        sums = self.sums.setdefault(name, [0.0] * (len(x) * n_mat))
        self.counts.setdefault(name, [0] * n_mat)[mat] += 1
        for i, v in enumerate(x):
            sums[mat * len(x) + i] += v * v
        return product(self.of(stored), x)

    def norm(self, name, x):
        scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + self.c["rms_norm_eps"])
        return [v * scale * w for v, w in zip(x, self.of(name)[1])]

    def rotated(self, x, d, pos):
        out, theta = list(x), self.c["rope_parameters"]["rope_theta"]
        for h in range(0, len(x), d):
            for i in range(d // 2):
                angle = pos * theta ** (-2 * i / d)
                a, b = x[h + i], x[h + i + d // 2]
                out[h + i], out[h + i + d // 2] = a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)
        return out

    def attend(self, q, keys, values, d):
        out, share = [], len(q) // len(keys[0])
        for h in range(len(q) // d):
            at = h // share * d
            scores = [math.fsum(q[h * d + i] * k[at + i] for i in range(d)) / math.sqrt(d) for k in keys]
            weights = [math.exp(s - max(scores)) for s in scores]
            out += [math.fsum(w * v[at + i] for w, v in zip(weights, values)) / math.fsum(weights) for i in range(d)]
        return out

    def gated(self, names, stored, x, mat=0, n_mat=1):
        gate, up, down = [(n, stored % s) for n, s in names]
        g, u = self.linear(*gate, x, mat, n_mat), self.linear(*up, x, mat, n_mat)
        return self.linear(*down, [a / (1 + math.exp(-a)) * b for a, b in zip(g, u)], mat, n_mat)

    def feed(self, b, layer, x):
        if "num_local_experts" not in self.c:
            return self.gated([(b + "ffn_%s.weight" % n, n + "_proj") for n in ("gate", "up", "down")], layer + "mlp.%s.weight", x)
        n, moe = self.c["num_local_experts"], layer + "block_sparse_moe."
        scores = self.linear(b + "ffn_gate_inp.weight", moe + "gate.weight", x)
        best = sorted(range(n), key=lambda e: -scores[e])[:self.c["num_experts_per_tok"]]
        total, out = math.fsum(math.exp(scores[e]) for e in best), [0.0] * len(x)
        for e in best:
            y = self.gated([(b + "ffn_%s_exps.weight" % k, w) for k, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))],
                           moe + "experts.%d." % e + "%s.weight", x, e, n)
            out = [a + math.exp(scores[e]) / total * v for a, v in zip(out, y)]
        return out

    def read(self, ids):
        """Once more from an empty context."""
        d = self.c["hidden_size"] // self.c["num_attention_heads"]
        caches = [([], []) for _ in range(self.c["num_hidden_layers"])]
        shape, table = self.of("model.embed_tokens.weight")
        for pos, token in enumerate(ids):
            x = list(table[token * shape[1]:(token + 1) * shape[1]])
            for i, (keys, values) in enumerate(caches):
                b, layer = "blk.%d." % i, "model.layers.%d." % i
                y = self.norm(layer + "input_layernorm.weight", x)
                q, k, v = (self.linear(b + "attn_%s.weight" % n, layer + "self_attn.%s_proj.weight" % n, y) for n in "qkv")
                keys.append(self.rotated(k, d, pos))
                values.append(v)
                y = self.attend(self.rotated(q, d, pos), keys, values, d)
                x = [a + e for a, e in zip(x, self.linear(b + "attn_output.weight", layer + "self_attn.o_proj.weight", y))]
                x = [a + e for a, e in zip(x, self.feed(b, layer, self.norm(layer + "post_attention_layernorm.weight", x)))]
            self.linear("output.weight", "lm_head.weight", self.norm("model.norm.weight", x))


def imatrix(model, ids, out, *args, **more):
    return minerva("imatrix", "-m", model, "--ids", ids, "-o", out, *args, **more)


def test_imatrix_numbers():
    """Sums and counts are those of the model's formulas, also of experts, of windows that begin anew, and in steps of any size; both forms."""
    with scratch() as folder:
        out, old = os.path.join(folder, "a.gguf"), os.path.join(folder, "a.dat")
        ids = [(7 * i * i + 3 * i + 1) % 150 for i in range(21)]
        path = saved(folder, "ids", " ".join(map(str, ids)).encode())
        for model in ("llama", "mixtral"):
            want = Summed(model)
            want.read(ids[:10])
            want.read(ids[10:20])
            source = os.path.join(FIXTURES, model)
            for args in (["--device", "reference"], ["--device", "cpu_simd", "--precision", "exact", "-b", 3]):
                imatrix(source, path, out, "-c", 10, "--process-output", "--force", *args)
                found, keys = imatrix_read(out)
                equal(keys, {"general.type": "imatrix", "imatrix.datasets": [path], "imatrix.chunk_count": 2, "imatrix.chunk_size": 10})
                equal(list(found), sorted(want.sums))
                for name, (sums, counts) in found.items():
                    equal((name, counts), (name, want.counts[name]))
                    largest = max(want.sums[name])
                    assert max(abs(a - b) for a, b in zip(sums, want.sums[name])) < 2e-5 * largest, (model, args, name)
            imatrix(source, path, old, "-c", 10, "--output-format", "dat", "--device", "reference", "--force")
            entries, end = imatrix_read(old)
            equal(end, {"chunks": 2, "dataset": path})
            equal(list(entries), [name for name in sorted(want.sums) if name.startswith("blk.")])
            for name, (means, calls) in entries.items():
                seen, cols = want.counts[name], len(means) // len(want.counts[name])
                equal((name, calls), (name, (max(seen) + 9) // 10))
                for i, v in enumerate(means):
                    mean = want.sums[name][i] / seen[i // cols] if seen[i // cols] else 1.0
                    assert abs(v - mean * calls) < 2e-5 * max(means), (model, name, i)


def test_imatrix_every():
    """Every matrix in a layer of every fixture has its sums, each of all rows; convert takes them, in both forms alike."""
    with scratch() as folder:
        out, a, b = (os.path.join(folder, n) for n in ("a.gguf", "new", "old"))
        path = saved(folder, "ids", b"0 2 37 3 31 57 41 26 39 45 25 51 4 8 9 12")
        for name in fixtures():
            source = os.path.join(FIXTURES, name)
            if name.startswith("t5"):
                is_error(minerva("imatrix", "-m", source, "--ids", path, "-o", a, "-c", 16, "--force", code=1), "an encoder and a decoder")
                continue
            imatrix(source, path, a, "-c", 16, "--force")
            found, _ = imatrix_read(a)
            tensors = {t["name"]: t["dim"] for t in minerva("inspect", source, "--json").json()["tensors"]}
            matrices = {t for t, dim in tensors.items() if t.startswith("blk.") and t.endswith(".weight") and len(dim) > 1 and "norm" not in t and "conv1d" not in t and "shortconv.conv" not in t}  # convolutions stay F32
            matrices -= {t for t in matrices if t.endswith("_coef.weight")}  # stay F32, too
            heads = {t.split(".")[1] for t in tensors if ".nextn." in t}  # layers of draft heads, which no text runs through
            matrices -= {t for t in matrices if t.split(".")[1] in heads}
            equal((name, matrices - set(found), set(found) - set(tensors)), (name, set(), set()))
            for t, (sums, counts) in found.items():
                assert sum(counts) % 16 == 0 and sum(counts) and len(sums) == len(counts) * tensors[t][-1], (name, t, counts)
        made = []
        for form, file in (("gguf", a), ("dat", b)):
            imatrix(os.path.join(FIXTURES, "mixtral"), path, file, "-c", 16, "--force", "--output-format", form, "--device", "reference")
            r = convert(os.path.join(FIXTURES, "mixtral"), out, "--force", "--type", "q4_0", "--imatrix", file)
            assert "has nothing for" not in r.err, r.err
            made.append({k: v for k, v in minerva("inspect", out, "--json").json()["metadata"].items() if "imatrix" in k and k != "quantize.imatrix.file"})
        equal(made[0], made[1])


def test_imatrix_errors():
    with scratch() as folder:
        out, path = os.path.join(folder, "a.gguf"), saved(folder, "text", b"Once upon a time, there was a little girl named Lily. " * 9)
        run = lambda *args, **more: minerva("imatrix", "-m", MODEL, *args, **more)
        is_error(run("-o", out, code=2), "-f TEXT", "--ids FILE")
        is_error(run("-f", path, code=2), "-o", "imatrix.gguf")
        is_error(run("-f", path, "-o", "-", code=2), "-o")
        is_error(run("-f", path, "-o", out, "--output-format", "old", code=2), "--output-format", "gguf", "dat")
        is_error(run("-f", path, "-o", out, code=1), "tokens, expected at least a window of 512", "-c")
        assert not os.path.exists(out)
        has(run("-f", path, "-o", out, "-c", 16, "--chunks", 2).err, out + ": written, of 2 windows")
        equal(imatrix_read(out)[1]["imatrix.chunk_count"], 2)
        is_error(run("-f", path, "-o", out, "-c", 16, "--chunks", 2, code=1), out)
        is_error(run("-f", path, "-o", os.path.join(folder, "none", "a"), "-c", 16, "--chunks", 2, code=1), os.path.join(folder, "none"))
        is_error(minerva("imatrix", "-m", os.path.join(FIXTURES, "llama"), "-f", path, "-o", out, code=1), "no tokeniser")


if __name__ == "__main__":
    cli_test.main(globals())
