#!/usr/bin/env python3
"""Loaders that go wrong, what `minerva plugins check` says of each, and that a model still runs with one of them in the plugin
folder: loaders_test.py MINERVA GROUP. Groups: check, run. The folder of the built stubs comes from MINERVA_STUBS."""
import os
import sys

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path[:0] = [os.path.join(ROOT, "tests", "stub")]
import stub_test
from stub_test import DATA, Folder, cli_test, equal, has, is_error, minerva, story

BUILD = os.environ["MINERVA_BUILD_ROOT"]
GGUF = os.path.join(DATA, "storyteller-q8_0.gguf")
# The rule that fails first, and words of what was found.
RULES = {
    "crash": ("model.open", "SIGSEGV", "open"),
    "hang": ("model.open", "did not return", "open"),
    "greedy": ("model.guess", "100", "expected 0"),
    "outside": ("model.open", "outside of its file"),
    "forgetful": ("model.open", "left 1 blocks"),
    "reads_data": ("loader.lazy", "SIGSEGV", "data closed"),
    "trusting": ("loader.truncated", "SIGSEGV", "cut to"),
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
    with Folder("sly_outside") as f:
        r = minerva("run", "-m", GGUF, "--prompt-ids", "1,2,3", "-n", "2", "--temp", "0", env=f.env)
        has(r.err, "gguf")


if __name__ == "__main__":
    cli_test.main(globals())
