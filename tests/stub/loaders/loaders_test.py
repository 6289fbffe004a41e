#!/usr/bin/env python3
"""Loaders that go wrong, what `minerva plugins check` says of each, and that a model still runs with one of them in the plugin
folder: loaders_test.py MINERVA GROUP. Groups: check, run; files: which files reach a loader. The folder of the built stubs comes from MINERVA_STUBS."""
import os
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
