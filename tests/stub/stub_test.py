#!/usr/bin/env python3
"""Plugins that go wrong, and what a user sees of them: stub_test.py MINERVA GROUP. Standard library alone.

Groups: list (minerva plugins), explain (minerva devices --explain), run, check (minerva plugins check), vendor2. The folder of the
built stubs comes from MINERVA_STUBS. Every stub lies in a folder of MINERVA_PLUGIN_PATH, before the good plugins of the build."""
import json
import os
import shutil
import struct
import subprocess
import sys
import time

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path[:0] = [os.path.join(ROOT, "tests", "cli"), os.path.join(ROOT, "tests", "golden")]
import cli_test
import safetensors
from cli_test import DATA, MODEL, Skipped, equal, has, is_error, minerva, put, run, scratch

STUBS = os.environ["MINERVA_STUBS"]
TIMEOUT = 2  # seconds that a probe gets here


class Stub:
    """status and words: of minerva plugins; outcome: of devices --explain, for the file or (ok) its device; rule: of plugins check."""
    def __init__(self, status, words, outcome, rule, device=None, spoil=None):
        self.status, self.words, self.outcome, self.rule, self.device, self.spoil = status, words, outcome, rule, device, spoil


def writable(path):
    os.chmod(path, 0o757)


def text(path):
    with open(path, "w") as f:
        f.write("#!/bin/sh\necho I am a shared object\n" * 40)


def patch(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def machine(path):
    patch(path, 18, struct.pack("<H", 0xF00D))  # e_machine


def isa(path):
    with open(path, "rb") as f:
        data = f.read()
    note = data.index(struct.pack("<III8s", 8, 144, 1, b"Minerva"))
    patch(path, note + 36 + 64, b"avx9000\0")  # size, abi, abi_oldest, kinds and id come before isa


ALL = {
    "no_entry": Stub("failed", ["minerva_plugin_entry"], "failed", "static.exports"),
    "null": Stub("failed", ["no reason"], "failed", "open.entry"),
    "null_text": Stub("failed", ["the dongle is not plugged in"], "failed", "open.entry"),
    "major": Stub("incompatible", ["7.0"], "incompatible", "static.note"),
    "major_entry": Stub("incompatible", ["7.0"], "incompatible", "open.plugin"),
    "newer": Stub("incompatible", ["0."], "incompatible", "static.note"),
    "longer": Stub("ok", [], "slower", None, device="longer"),
    "shorter": Stub("failed", ["context_bind"], "failed", "open.table"),
    "hang_constructor": Stub("hung", ["constructor"], "hung", "open.load"),
    "hang_entry": Stub("hung", ["entry"], "hung", "open.entry"),
    "hang_list": Stub("hung", ["device"], "hung", "open.devices"),
    "hang_test": Stub("hung", ["self-test"], "hung", "open.self_test"),
    "abort": Stub("crashed", ["SIGABRT"], "crashed", "open.load"),
    "sigill": Stub("crashed", ["SIGILL", "entry"], "crashed", "open.entry"),
    "crash_list": Stub("crashed", ["SIGSEGV", "device"], "crashed", "open.devices"),
    "self_test": Stub("ok", [], "unusable", "open.self_test", device="self_test"),
    "refuse": Stub("ok", [], "", "honesty.compile", device="refuse"),
    "wrong": Stub("ok", [], "", "numeric.rms_norm", device="wrong"),
    "needy": Stub("ok", [], "memory", "honesty.memory", device="needy"),
    "lost": Stub("ok", [], "", "numeric", device="flaky"),
    "writable": Stub("refused", ["everybody may write"], "refused", "static.file", spoil=writable),
    "not_elf": Stub("refused", ["ELF"], "refused", "static.elf", spoil=text),
    "machine": Stub("refused", ["machine"], "refused", "static.elf", spoil=machine),
    "isa": Stub("refused", ["avx9000"], "refused", "static.note", spoil=isa),
}


class Folder:
    """A plugin folder with the named stubs, and a cache of its own."""
    def __init__(self, *names, only=False, **env):
        self.names, self.key, self.env = names, "MINERVA_PLUGIN_PATH" + ("_ONLY" if only else ""), env

    def __enter__(self):
        self.temp = scratch()
        self.path = self.temp.name
        os.chmod(self.path, 0o755)
        self.plugins, self.cache = self.path + "/plugins", self.path + "/cache"
        os.mkdir(self.plugins, 0o755)
        os.mkdir(self.cache, 0o700)
        for name in self.names:
            self.add(name)
        self.env = cli_test.environment(XDG_CACHE_HOME=self.cache, MINERVA_PROBE_TIMEOUT=str(TIMEOUT), **{self.key: self.plugins}, **self.env)
        return self

    def __exit__(self, *why):
        self.temp.cleanup()

    def add(self, name):
        """A stub by name, or another file by its path. A file that was not built: the test is skipped."""
        stub = ALL.get(name)
        source = name if "/" in name else os.path.join(STUBS, ("good" if stub and stub.spoil else name) + ".so")
        if not os.path.exists(source):
            raise Skipped(source + " was not built")
        to = os.path.join(self.plugins, os.path.basename(name if "/" in name else name + ".so"))
        shutil.copy(source, to)
        os.chmod(to, 0o755)
        if stub and stub.spoil:
            stub.spoil(to)
        return to

    def listed(self):
        """Records of the folder's files by name."""
        found = minerva("plugins", "--json", env=self.env).json()
        return {os.path.basename(p["path"])[:-3]: p for p in found if p["path"].startswith(self.plugins)}


def built():
    return [name for name, stub in ALL.items() if stub.spoil or os.path.exists(os.path.join(STUBS, name + ".so"))]


def golden():
    with open(os.path.join(MODEL, "golden.json"), encoding="utf-8") as f:
        return json.load(f)[0]


def story(n, *args, **more):
    e = golden()
    r = run("--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", str(n), "--temp", "0", "--precision", "exact", "--json", *args, **more)
    equal(r.json()["ids"], e["greedy_ids"][:n])
    return r


# ---- list -----------------------------------------------------------------------------------------------------------
def test_list_all():
    """Each record says what was wrong; the good plugins are there as ever."""
    with Folder(*built()) as f:
        listed = f.listed()
        equal(sorted(listed), sorted(built()))
        for name, p in listed.items():
            stub = ALL[name]
            assert p["status"] == stub.status and all(word in p["reason"] for word in stub.words), (name, p, stub.status, stub.words)
            assert (p["status"] == "ok") == (p["reason"] == ""), (name, p)
        good = {p["id"]: p["status"] for p in minerva("plugins", "--json", env=f.env).json() if not p["path"].startswith(f.plugins)}
        for name in ("reference", "gguf", "safetensors"):
            equal(good.get(name), "ok")


def test_list_hanging_together():
    """They are probed side by side: all of them cost one time limit, and nothing once that is remembered."""
    names = [n for n in built() if n.startswith("hang_")]
    with Folder(*names) as f:
        begin = time.monotonic()
        first = f.listed()
        took = time.monotonic() - begin
        equal({p["status"] for p in first.values()}, {"hung"})
        assert took < 4 * TIMEOUT, "%d hanging plugins took %.1f s; a probe may take %d" % (len(names), took, TIMEOUT)
        again = f.listed()
        for name in names:
            equal((again[name]["status"], again[name]["probe"]["cached"]), ("hung", True))
            has(again[name]["reason"], first[name]["reason"])


def test_list_cache_sees_new_file():
    """A verdict belongs to one file: another one in its place is probed anew."""
    with Folder("abort") as f:
        equal([f.listed()["abort"]["status"] for _ in range(2)], ["crashed", "crashed"])
        os.remove(f.plugins + "/abort.so")
        shutil.copy(os.path.join(STUBS, "good.so"), f.plugins + "/abort.so")
        equal((f.listed()["abort"]["status"], f.listed()["abort"]["id"]), ("ok", "good"))


# ---- run ------------------------------------------------------------------------------------------------------------
def check_run(name):
    with Folder(name) as f:
        r = story(8, env=f.env)
        equal(r.json()["device"].split(":")[0], "cpu_simd" if os.path.exists(os.path.join(STUBS, "lost.so")) else "reference")


def test_run_beside_each():
    """One stub beside the good plugins: the answer is the golden one, by a good device."""
    for name in built():
        if not name.startswith("hang_") and name != "lost":
            check_run(name)


def test_run_beside_all():
    with Folder(*(n for n in built() if n != "lost")) as f:
        for _ in range(2):
            story(8, env=f.env)


def only(name, **env):
    """The stub, the oracle and the loaders, nothing else: auto prefers anything to the oracle."""
    files = cli_test.plugin_files()
    return Folder(name, *(files[p] for p in ("reference", "gguf", "safetensors")), only=True, **env)


def test_run_lost():
    """The device is gone in the middle of the answer: another one goes on, with one line, and the text is the same."""
    with only("lost") as f:
        r = story(40, env=f.env)
        lines = [line for line in r.err.splitlines() if "the plug was pulled" in line]
        equal(len(lines), 1)
        has(lines[0], "minerva: ", "flaky", "reference")
        r = minerva("run", "-m", MODEL, "-p", "A fox.", "-n", "40", "--device", "flaky", env=f.env, code=None)  # nothing else was named
        assert r.code != 0, r.code
        has(r.err, "minerva: error: ", "flaky", "the plug was pulled")


def test_run_refused():
    """It said yes to everything and does not compile: the next one does, with one line."""
    with only("refuse") as f:
        r = story(8, env=f.env)
        equal(r.json()["device"].split(":")[0], "reference")
        has(r.err, "refuse", "no RMS_NORM after all")
        r = minerva("run", "-m", MODEL, "-p", "A fox.", "-n", "1", "--device", "refuse", env=f.env, code=None)
        assert r.code != 0, r.code
        is_error(r, "refuse", "no RMS_NORM after all")


def test_run_needy():
    with only("needy") as f:
        r = story(8, env=f.env)
        equal(r.json()["device"].split(":")[0], "reference")
        has(r.err, "needy", "memory")
        is_error(minerva("run", "-m", MODEL, "-p", "A fox.", "-n", "1", "--device", "needy", env=f.env, code=4), "needy", "memory")


def test_run_self_test():
    with only("self_test") as f:
        r = story(8, env=f.env)
        equal(r.json()["device"].split(":")[0], "reference")
        is_error(minerva("run", "-m", MODEL, "-p", "A fox.", "-n", "1", "--device", "self_test", env=f.env, code=3), "two and two make five")


def test_run_longer():
    """Longer structs are read as far as they are known."""
    with Folder("longer") as f:
        equal(story(8, "--device", "longer", env=f.env).json()["device"].split(":")[0], "longer")


# ---- check ----------------------------------------------------------------------------------------------------------
def test_check():
    """The vendor's own command finds each of them, by the rule that is broken."""
    wrong = []
    with Folder(*built()) as f:
        for name in built():
            r = minerva("plugins", "check", f.plugins + "/" + name + ".so", "--json", env=f.env, code=None, timeout=300)
            failed = [x["rule"] for x in r.json()["rules"] if x["status"] == "failed"]
            want = ALL[name].rule
            if want is None:
                ok = r.code == 0 and not failed
            else:
                ok = r.code != 0 and any(rule.startswith(want) for rule in failed)
            if not ok:
                wrong.append((name, r.code, failed, want))
    equal(wrong, [])


# ---- vendor2 --------------------------------------------------------------------------------------------------------
def explain(*args, env, model=MODEL):
    return minerva("devices", "--explain", "-m", model, "--json", *args, env=env).json()


def test_vendor2_exact():
    """Its segments and the CPU's make the same logits and ids as one device."""
    model = os.path.join(DATA, "fixtures", "llama")
    golden_file = os.path.join(model, "golden.safetensors")
    prompt = ",".join(str(i) for i in safetensors.read(golden_file, "prompt")[1])
    with Folder(STUBS + "/vendor2.so") as f:
        out = f.path + "/logits.safetensors"
        for devices in ("vendor2,cpu", "vendor2,reference"):
            minerva("logits", "-m", model, "--prompt-ids", prompt, "--device", devices, "-o", out, env=f.env)
            want, got = safetensors.read(golden_file, "logits"), safetensors.read(out, "logits")
            equal(got[0], want[0])
            error = (sum((a - b) ** 2 for a, b in zip(got[1], want[1])) / sum(b * b for b in want[1])) ** 0.5
            assert error <= 1e-5, (devices, error)
            r = minerva("run", "-m", model, "--prompt-ids", prompt, "-n", "24", "--temp", "0", "--precision", "exact", "--ignore-eos", "--json",
                        "--device", devices, env=f.env)
            equal(r.json()["ids"], list(safetensors.read(golden_file, "greedy")[1]))


def test_vendor2_story():
    with Folder(STUBS + "/vendor2.so") as f:
        story(40, "--device", "vendor2,cpu", env=f.env)


if __name__ == "__main__":
    cli_test.main(globals())
