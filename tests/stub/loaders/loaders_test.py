#!/usr/bin/env python3
"""Loaders that go wrong, what `minerva plugins check` says of each, and that a model still runs with one of them in the plugin
folder: loaders_test.py MINERVA GROUP. Groups: check, run; files: which files reach a loader; types: a type that a loader
brings along. The folder of the built stubs comes from MINERVA_STUBS."""
import os
import random
import shutil
import struct
import sys

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path[:0] = [os.path.join(ROOT, "tests", "stub")]
from stub_test import DATA, Folder, cli_test, equal, has, is_error, minerva, story

BUILD = os.environ["MINERVA_BUILD_ROOT"]
GGUF = os.path.join(DATA, "storyteller-q8_0.gguf")
# The rule that fails first, and words of what was found.
RULES = {
    "crash": ("model.open", "SIGSEGV", "open"),
    "hang": ("model.open", "did not return", "open"),
    "greedy": ("model.guess", "100", "expected 0"),
    "outside": ("model.open", "outside of its file"),
    "forgetful": ("model.open", "found 1 blocks"),
    "reads_data": ("loader.lazy", "SIGSEGV", "data closed"),
    "trusting": ("loader.truncated", "SIGSEGV", "cut to"),
    "no_patterns": ("model.patterns", "none of kind"),
    "bad_pattern": ("model.patterns", "every file"),
    "endless": ("model.patterns", "past the last"),
    "fickle": ("model.patterns", "asked again"),
    "other_pattern": ("model.patterns", "none of its names"),
    "snob": ("loader.named", "flag 1 << 30"),
    "float_layers": ("model.open", "llama.block_count", "MN_VALUE_INT"),
    "key_twice": ("model.open", "general.architecture twice"),
    "name_twice": ("model.open", "tensor 't'", "twice"),
    "no_format": ("model.guess", "empty format"),
    "sizeof_stride": ("loader.named", "longer elements"),
    "exact_flag": ("loader.named", "flag 1 << 30"),
    "leaks_error": ("loader.leaks", "blocks of malloc", "during open"),
    "leaks_library": ("loader.leaks", "a heap that grew"),
    "opens_files": ("loader.files", "SIGSYS", "opens none"),
}
SLY = ("sly_greedy", "sly_outside")  # nothing but the model itself finds these out


def check(path, *args, code=None):
    r = minerva("plugins", "check", path, "--json", *args, code=code, timeout=300)
    return r, {x["id"]: x for x in r.json()["rules"]}


def test_check_bad():
    with Folder(*RULES) as f:
        for name, (rule, *words) in RULES.items():
            r, rules = check(f.plugins + "/" + name + ".so", "--only", rule.split(".")[0])
            failed = [i for i, x in rules.items() if x["status"] == "failed"]
            equal((name, r.code, failed[:1]), (name, 1, [rule]))
            has(rules[rule]["message"], *words)
            has(rules[rule]["page"], "rule-" + rule.replace(".", "-"))


def test_check_order():
    """What is wrong with a model is said by the rules of models, not by one of the process."""
    with Folder("name_twice") as f:
        r, rules = check(f.plugins + "/name_twice.so")
        equal([i for i, x in rules.items() if x["status"] == "failed"][:1], ["model.open"])


def test_check_types():
    """The check knows types that a loader brings along."""
    with Folder("toy_typed", "toy_fails") as f:
        model = typed_models(f)[0]
        for group in ("types", "model", "loader"):
            r, rules = check(f.plugins + "/toy_typed.so", "--only", group, "--model", model)
            equal({i: x["message"] for i, x in rules.items() if x["status"] == "failed"}, {})
        r, rules = check(f.plugins + "/toy_fails.so", "--only", "types", code=1)
        equal(rules["types.to_f32"]["status"], "failed")
    for name in ("no_unpack", "no_bit", "absurd", "twice", "misspelled"):
        r, rules = check(os.path.join(os.environ["MINERVA_STUBS"], "toy_" + name + ".so"), "--only", "types", code=1)
        equal(rules["types.list"]["status"], "failed")


def test_check_ours():
    for name in ("gguf", "safetensors", "mlx"):
        path = os.path.join(BUILD, "loaders", name, name + ".so")
        if os.path.exists(path):
            r, rules = check(path, "--only", "model", code=0)
            equal(rules["model.open"]["status"], "ok")
            r, rules = check(path, "--only", "loader", code=0)
            equal({x["status"] for x in rules.values()}, {"ok"})


def test_check_model():
    """A model of the user's own; one that is damaged is no valid model."""
    path = os.path.join(BUILD, "loaders", "safetensors", "safetensors.so")
    if not os.path.exists(path):
        raise cli_test.Skipped("safetensors was not built")
    check(path, "--only", "loader", "--model", os.path.join(DATA, "fixtures", "llama-sharded"), code=0)
    with cli_test.scratch() as tmp:
        with open(os.path.join(tmp, "model.safetensors"), "wb") as f:
            f.write(b"\xff" * 100)
        r, rules = check(path, "--only", "model", "--model", tmp, code=1)
        equal(rules["model.open"]["status"], "failed")


# ---- formats of a third party, by file patterns alone ----
LLAMA = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 16, "llama.feed_forward_length": 32,
         "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1, "llama.context_length": 64,
         "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 1e4}
SHAPES = {"token_embd": (64, 16), "output_norm": (16, 0), "blk.0.attn_norm": (16, 0), "blk.0.ffn_norm": (16, 0), "blk.0.attn_q": (16, 16),
          "blk.0.attn_k": (8, 16), "blk.0.attn_v": (8, 16), "blk.0.attn_output": (16, 16), "blk.0.ffn_gate": (32, 16),
          "blk.0.ffn_up": (32, 16), "blk.0.ffn_down": (16, 32)}


def toy_file(meta, shapes):
    """The bytes of one file of toy_loader.c."""
    head, data = struct.pack("<4sII", b"TOY1", len(meta), len(shapes)), b""
    for key, v in meta.items():
        kind = 4 if isinstance(v, str) else 2 if isinstance(v, float) else 1
        head += struct.pack("<64sIIqd40s", key.encode(), kind, 0, v if kind == 1 else 0, v if kind == 2 else 0,
                            v.encode() if kind == 4 else b"")
    at = len(head) + 88 * len(shapes)
    for name, (rows, cols) in shapes.items():
        head += struct.pack("<64sqqQ", (name + ".weight").encode(), rows, cols, at + len(data))
        data += struct.pack("<f", 0.5) * (rows * (cols or 1))
    return head + data


def toy_parts(n):
    """Metadata first; tensors over all n files."""
    names = list(SHAPES)
    return [toy_file(LLAMA if i == 0 else {}, {k: SHAPES[k] for k in names[i::n]}) for i in range(n)]


def inspects(f, path, *words, code=0):
    r = minerva("inspect", path, "--json", env=f.env, code=code)
    has(r.out if code == 0 else r.err, *words)
    return r


def test_files_shards():
    """*.part#of#.toy: a named shard brings the others; a missing one is named; models beside it are not its business."""
    with Folder("toy_shards") as f:
        for i, data in enumerate(toy_parts(3)):
            cli_test.put(f.path, "my.model.part%dof3.toy" % (i + 1), data)
        for name in ("other.part1of3.toy", "my.model.part1of2.toy"):
            cli_test.put(f.path, name, b"TOY1 of another model")
        for i in (1, 2, 3):
            inspects(f, f.path + "/my.model.part%dof3.toy" % i, '"toy_shards"', "llama")
        shutil.copy(GGUF, f.path + "/beside.gguf")
        inspects(f, f.path + "/my.model.part2of3.toy", '"toy_shards"')
        inspects(f, f.path + "/beside.gguf", '"gguf"')
        check(f.plugins + "/toy_shards.so", "--only", "model", "--model", f.path + "/my.model.part2of3.toy", code=0)
        r, rules = check(f.plugins + "/toy_shards.so", "--only", "loader", "--model", f.path + "/my.model.part2of3.toy")
        equal({i: x["message"] for i, x in rules.items() if x["status"] == "failed"}, {})
        os.remove(f.path + "/my.model.part2of3.toy")
        inspects(f, f.path + "/my.model.part3of3.toy", "my.model.part2of3.toy is missing", "shard 2 of the 3", code=1)


def test_files_folder():
    """TOY.list marks a folder, whose *.toyf files come with it; without the mark it is no model, and what would be one is said."""
    with Folder("toy_folders") as f:
        model = f.path + "/model"
        os.mkdir(model)
        cli_test.put(model, "TOY.list", b"b.toyf\na.toyf\n")
        for name, data in zip(("b.toyf", "a.toyf"), toy_parts(2)):
            cli_test.put(model, name, data)
        cli_test.put(model, "unused.toyf", b"not listed")
        for path in (model, model + "/TOY.list", model + "/a.toyf"):
            inspects(f, path, '"toy_folders"', "llama")
        for group in ("model", "loader"):
            r, rules = check(f.plugins + "/toy_folders.so", "--only", group, "--model", model)
            equal({i: x["message"] for i, x in rules.items() if x["status"] == "failed"}, {})
        os.remove(model + "/TOY.list")
        inspects(f, model, "holds no model", "*.gguf", "TOY.list", code=1)


def test_files_refused():
    """A loader whose patterns are missing or say nothing is not asked, and the list of plugins has why."""
    with Folder("no_patterns", "bad_pattern", "endless", "other_pattern") as f:
        rows = {p["id"]: p for p in minerva("plugins", "--json", env=f.env, code=None).json()}
        for name, words in (("no_patterns", "no file pattern"), ("bad_pattern", "every file"), ("endless", "do not end"),
                            ("other_pattern", "none of its file patterns names")):
            equal(rows[name]["status"], "failed")
            has(rows[name]["reason"], words)
        story(4, env=f.env)


def test_files_named():
    """Of several models in a folder the named one is read; a file of weights that is not the model's is no other name for it."""
    fixture = os.path.join(DATA, "fixtures", "llama")
    with cli_test.scratch() as tmp:
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(fixture, name), tmp)
        shutil.copy(GGUF, tmp + "/b.gguf")
        cli_test.put(tmp, "broken.gguf", b"GGUF")
        has(minerva("inspect", tmp + "/b.gguf", "--json").out, '"gguf"')
        has(minerva("inspect", tmp + "/model.safetensors", "--json").out, '"safetensors"')
        has(minerva("inspect", tmp, "--json").out, '"safetensors"')
        shutil.copy(tmp + "/model.safetensors", tmp + "/consolidated.safetensors")
        r = minerva("inspect", tmp + "/consolidated.safetensors", code=1)
        is_error(r, "consolidated.safetensors", "no tensor of the model")


# ---- a type of a vendor ----
STUB = os.path.join(BUILD, "tests", "stub", "%s.so")


def typed_values(rng, rows, cols):
    """Blocks of toy.b8 for a matrix, and the same numbers as F32."""
    packed, plain = b"", b""
    for _ in range(rows * cols // 16):
        scale, codes = 2.0 ** rng.randint(-9, -6), [rng.randint(-127, 127) for _ in range(16)]
        packed += struct.pack("<f16b", scale, *codes)
        plain += struct.pack("<16f", *[scale * c for c in codes])
    return packed, plain


def typed_models(f):
    """One model twice: with matrices of toy.b8 (typed.part1of1.toy), and as F32."""
    rng, files = random.Random(38), []
    values = {k: typed_values(rng, *v) if v[1] else (struct.pack("<f", 0.5) * v[0],) * 2 for k, v in SHAPES.items()}
    for i, name in enumerate(("typed", "plain")):
        head, data = struct.pack("<4sII", b"TOY1", len(LLAMA), len(SHAPES)), b""
        for key, v in LLAMA.items():
            kind = 4 if isinstance(v, str) else 2 if isinstance(v, float) else 1
            head += struct.pack("<64sIIqd40s", key.encode(), kind, 0, v if kind == 1 else 0, v if kind == 2 else 0,
                                v.encode() if kind == 4 else b"")
        at = len(head) + 88 * len(SHAPES)
        for key, (rows, cols) in SHAPES.items():
            head += struct.pack("<64sqqQ", (key + ".weight").encode(), rows, cols, at + len(data))
            data += values[key][i]
        files.append(cli_test.put(f.path, name + ".part1of1.toy", head + data))
    return files


class Typed:
    """A folder of plugins for each model: both loaders claim every toy, so that only one of them may be there."""

    def __init__(self, *more):
        self.typed, self.plain = Folder("toy_typed", *more), Folder("toy_shards")

    def __enter__(self):
        self.typed.__enter__()
        self.plain.__enter__()
        self.models = typed_models(self.typed)
        return self

    def __exit__(self, *why):
        self.plain.__exit__(*why)
        self.typed.__exit__(*why)

    def logits(self, device, model=None, f=None):
        """The bytes that `minerva logits` writes."""
        f = f or self.typed
        out = f.path + "/logits.safetensors"
        minerva("logits", "-m", model or self.models[0], "--prompt-ids", "1,2,3,60", "--device", device, "--precision", "exact", "-o", out, env=f.env)
        with open(out, "rb") as written:
            data = written.read()
        os.remove(out)
        return data

    def expected(self):
        return self.logits("reference", self.models[1], self.plain)


def explained(t, device):
    r = minerva("devices", "--explain", "-m", t.models[0], "--device", device, "--json", env=t.typed.env)
    return next(str(c["steps"]) for c in r.json()["candidates"] if c["device"].split(":")[0] == device)


def test_types_reference():
    """A device whose plugin does not have the type gets it as f32, by the loader's to_f32: the same bits; and it is said."""
    with Typed() as t:
        equal(t.logits("reference") == t.expected(), True)
        has(explained(t, "reference"), "8 weights of toy.b8 are unpacked to f32")


def test_types_backend():
    """The vendor's backend gets it as stored, under its own id."""
    with Typed(STUB % "typed") as t:
        equal(t.logits("typed") == t.expected(), True)
        equal("are unpacked" in explained(t, "typed"), False)


def test_types_differ():
    """One name for blocks of two sizes: the device is refused, and says why."""
    with Typed(STUB % "typed_other") as t:
        r = minerva("logits", "-m", t.models[0], "--prompt-ids", "1,2", "--device", "typed_other",
                    "-o", t.typed.path + "/none.safetensors", env=t.typed.env, code=3)
        is_error(r, "typed_other", "toy.b8", "32 elements in 36 bytes", "16 in 20")


def test_types_tools():
    """inspect names it, convert reads it and says what it cannot keep."""
    with Typed() as t:
        model = t.models[0]
        has(minerva("inspect", model, "--json", env=t.typed.env).out, '"toy.b8"')
        out = t.typed.path + "/out.gguf"
        minerva("convert", model, "-o", out, "--type", "f32", env=t.typed.env)
        equal(t.logits("reference", out) == t.expected(), True)


def test_types_refused():
    """Lists of types that break their contract; the plugin is not used, and why is said. A row that cannot be unpacked is an error."""
    words = {"toy_no_unpack": "lacks the function to_f32", "toy_no_bit": "bit 31", "toy_absurd": "in 0 bytes", "toy_twice": "one name",
             "toy_misspelled": "misspelled"}
    with Folder(*words) as f:
        rows = {p["id"]: p for p in minerva("plugins", "--json", env=f.env, code=None).json()}
        for name, what in words.items():
            equal(rows[name]["status"], "failed")
            has(rows[name]["reason"], "mn.types/1", what)
    with Folder("toy_fails") as f:
        model = typed_models(f)[0]
        r = minerva("logits", "-m", model, "--prompt-ids", "1", "--device", "reference",
                    "-o", f.path + "/none.safetensors", env=f.env, code=1)
        is_error(r, "toy.b8", "cannot be unpacked")
        r = minerva("convert", model, "-o", f.path + "/out.gguf", "--type", "f32", env=f.env, code=1)
        equal(os.path.exists(f.path + "/out.gguf"), False)


def test_run():
    """The demo model, and one of the format that the stub claims: it is found out before, or gives way."""
    for name in ("crash", "hang", "greedy", "outside", *SLY):
        with Folder(name) as f:
            story(8, env=f.env)
            minerva("run", "-m", GGUF, "--prompt-ids", "1,2,3", "-n", "4", "--temp", "0", env=f.env)


def test_run_says_why():
    """Which loader gave way is said; if all fail, what each said."""
    with Folder("sly_greedy") as f:
        r = story(8, env=f.env)
        has(r.err, "safetensors opened", "sly_greedy", "had only pretended")
        with open(GGUF, "rb") as whole:
            cut = cli_test.put(f.path, "cut.gguf", whole.read()[:300000])
        r = minerva("run", "-m", cut, "-n", "1", env=f.env, code=1)
        is_error(r, "cut.gguf", "sly_greedy", "had only pretended", "gguf", "truncated")
        r = minerva("run", "-m", GGUF, "--prompt-ids", "1,2,3", "-n", "2", "--temp", "0", env=f.env)  # the same claim twice: the first one's goes first
        has(r.err, "sly_greedy and gguf both claim it", "gguf opened", "before it sly_greedy")
    with Folder("sly_outside") as f:
        r = minerva("run", "-m", GGUF, "--prompt-ids", "1,2,3", "-n", "2", "--temp", "0", env=f.env)
        has(r.err, "gguf")


if __name__ == "__main__":
    cli_test.main(globals())
