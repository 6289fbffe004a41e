#!/usr/bin/env python3
"""Plugins that go wrong, and what a user sees of them: stub_test.py MINERVA GROUP. Standard library alone.

Groups: list (minerva plugins), explain (minerva devices --explain), run, check (minerva plugins check), vendor2. The folder of the
built stubs comes from MINERVA_STUBS. Every stub lies in a folder of MINERVA_PLUGIN_PATH, before the good plugins of the build."""
import concurrent.futures
import json
import os
import re
import shutil
import struct
import sys
import time

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path[:0] = [os.path.join(ROOT, "tests", "cli"), os.path.join(ROOT, "tests", "golden")]
import cli_test
import safetensors
from cli_test import DATA, MODEL, Skipped, equal, has, is_error, minerva, run, scratch

STUBS = os.environ["MINERVA_STUBS"]
TIMEOUT = 2  # seconds that a probe gets here
with open(os.path.join(ROOT, "include", "minerva", "plugin.h"), encoding="utf-8") as _f:
    ABI = tuple(int(v, 16) for v in re.search(r"define MN_ABI_VERSION 0x(\w{4})(\w{4})", _f.read()).groups())


class Stub:
    """status and words of the reason: of minerva plugins. device: the one that a good file offers. outcome, why: of devices --explain for
    that device under auto, else for the file, where they are status and words. rule: the one of plugins check that fails first; None = all hold."""
    def __init__(self, status, *words, rule=None, device="", outcome=None, why=None, spoil=None):
        self.status, self.words, self.rule, self.device, self.spoil = status, words, rule, device, spoil
        self.outcome, self.why = outcome or status, why or words


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
    "no_entry": Stub("failed", "minerva_plugin_entry", rule="static.exports"),
    "null": Stub("failed", "no reason", rule="open.entry"),
    "null_text": Stub("failed", "the dongle is not plugged in", rule="open.entry"),
    "major": Stub("incompatible", "7.0", rule="static.note"),
    "major_entry": Stub("incompatible", "7.0", rule="open.identity"),
    "newer": Stub("ok", device="newer", outcome="oracle") if ABI >= (1, 0)  # minors mix from 1.0 on
    else Stub("incompatible", "%d.%d" % (ABI[0], ABI[1] + 1), "%d.%d" % ABI, rule="static.note"),
    "longer": Stub("ok", device="longer", outcome="oracle"),
    "shorter": Stub("failed", "mn.backend/1", "context_bind", rule="open.table"),
    "hang_constructor": Stub("hung", "2 s", "constructors", rule="open.load"),
    "hang_entry": Stub("hung", "2 s", "entry", rule="open.entry"),
    "hang_list": Stub("hung", "2 s", "listing devices", rule="device.list"),
    "hang_test": Stub("hung", "2 s", "self-test of device 0", rule="device.self_test"),
    "abort": Stub("crashed", "SIGABRT", "constructors", rule="open.load"),
    "sigill": Stub("crashed", "SIGILL", "entry", rule="open.entry"),
    "crash_list": Stub("crashed", "SIGSEGV", "device 0", rule="device.list"),
    "self_test": Stub("ok", device="self_test", outcome="failed", why=["two and two make five"], rule="device.self_test"),
    "refuse": Stub("ok", device="refuse:0", outcome="slower", rule="honesty.native"),
    "wrong": Stub("ok", device="wrong:0", outcome="slower", rule="numeric.rms_norm"),
    "needy": Stub("ok", device="needy:0", outcome="out of memory", why=["1048576.0", "GiB free"], rule="honesty.memory"),
    "lost": Stub("ok", device="flaky", rule="honesty.repeat"),
    "writable": Stub("refused", "everybody may write", rule="static.writable", spoil=writable),
    "not_elf": Stub("refused", "ELF", rule="static.elf", spoil=text),
    "machine": Stub("refused", "machine", rule="static.machine", spoil=machine),
    "isa": Stub("refused", "avx9000", rule="static.accepted", spoil=isa),
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


def steady():
    """Without the one that has cpu_simd's own kernels: either of the two may measure faster."""
    return [name for name in built() if name != "lost"]


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
            equal(again[name]["status"], "hung")
            has(again[name]["reason"], first[name]["reason"] + " (remembered; --no-probe-cache asks again)")


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
    for name in steady():
        if not name.startswith("hang_"):
            check_run(name)


def test_run_beside_all():
    with Folder(*steady()) as f:
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
        ids = ",".join(map(str, golden()["prompt_ids"]))
        r = run("--prompt-ids", ids, "-n", "40", "--temp", "0", "--device", "flaky", env=f.env, code=3)  # nothing else was named
        has(r.err, "minerva: error: flaky was lost (the plug was pulled), and no other device was named")


def test_run_refused():
    """It said yes to everything and does not compile: the next one does, with one line."""
    with only("refuse") as f:
        r = story(8, env=f.env)
        equal(r.json()["device"].split(":")[0], "reference")
        has(r.err, "refuse:0 refuses what it claimed (no RMS_NORM after all); going on with reference")
        for devices in ("refuse,reference", "refuse,auto"):
            equal(story(8, "--device", devices, env=f.env).json()["device"].split(":")[0], "reference")
        is_error(minerva("run", "-m", MODEL, "-p", "A fox.", "-n", "1", "--device", "refuse", env=f.env, code=1), "refuse:0: no RMS_NORM after all")


def test_run_profile():
    """A backend without mn.profile/1 is named."""
    with Folder(STUBS + "/good.so") as f:
        is_error(minerva("bench", "-m", MODEL, "--profile", "-p", "4", "-n", "0", "-r", "1", "--device", "good", env=f.env, code=1), "good", "mn.profile/1")


def test_run_needy():
    with only("needy") as f:
        r = story(8, env=f.env)
        equal(r.json()["device"].split(":")[0], "reference")
        has(r.err, "needy", "needs 1048576.0", "GiB free")
        is_error(minerva("run", "-m", MODEL, "-p", "A fox.", "-n", "1", "--device", "needy", env=f.env, code=4), "needy", "needs 1048576.0")


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
def check(f, name):
    """"" = the vendor's own command finds the rule that is broken. Rules that need the plugin to work are tried alone: others break with them."""
    rule = ALL[name].rule or "host"
    group = rule.split(".")[0]
    some = rule if group in ("host", "honesty", "numeric") else group if group == "static" else ""
    r = minerva("plugins", "check", f.plugins + "/" + name + ".so", "--json", *(["--only", some] if some else []), env=f.env, code=None, timeout=300)
    failed = [x["id"] for x in r.json()["rules"] if x["status"] == "failed"]
    first = failed[0] if failed else None
    return "" if (r.code, first) == (1 if ALL[name].rule else 0, ALL[name].rule) else "%s: exit code %d, failed %s" % (name, r.code, failed)


def test_check():
    with Folder(*built()) as f, concurrent.futures.ThreadPoolExecutor(6) as pool:  # most of them wait for what hangs
        equal([x for x in pool.map(lambda name: check(f, name), built()) if x], [])


# ---- explain --------------------------------------------------------------------------------------------------------
def explain(*args, env, model=MODEL):
    return minerva("devices", "--explain", "-m", model, "--json", *args, env=env).json()


def candidate(record, f, name):
    return next(c for c in record["candidates"] if c["path"] == f.plugins + "/" + name + ".so")


def test_explain_all():
    """One record tells of each file and device how far it came and what was the matter."""
    with Folder(*steady()) as f:
        record = explain(env=f.env)
        assert record["error"] is None and record["placement"]["device"] == "cpu_simd", record["placement"]
        for name in steady():
            c, stub = candidate(record, f, name), ALL[name]
            equal((name, c["device"]), (name, stub.device))
            assert c["outcome"] == stub.outcome and all(word in c["reason"] for word in stub.why), (name, c["outcome"], c["reason"])
            if stub.status != "ok":  # the last step is the one that failed
                equal([step["ok"] for step in c["steps"]], [True] * (len(c["steps"]) - 1) + [False])
                equal(c["steps"][-1]["text"], c["reason"])


def test_explain_measured():
    """Absurd claims do not count: what the host measured does."""
    with Folder("wrong") as f:
        steps = {step["step"]: step for step in candidate(explain(env=f.env), f, "wrong")["steps"]}
        equal(steps["rates"]["source"], "measured")
        assert steps["rates"]["claims"]["decode_us"] < 1 < steps["score"]["us_per_token"], steps
        steps = {step["step"]: step for step in candidate(explain(env=f.env), f, "wrong")["steps"]}
        equal((steps["rates"]["source"], steps["probe"]["cached"]), ("cached", True))


# ---- vendor2 --------------------------------------------------------------------------------------------------------
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
        segments = explain("--device", "vendor2,cpu", env=f.env)["placement"]["segments"]
        equal({s["device"] for s in segments}, {"vendor2:0", "cpu_simd"})
        equal([s["nodes"][0] for s in segments[1:]], [s["nodes"][1] for s in segments[:-1]])


def test_vendor2_auto():
    """It is not chosen, and the record says why: two operations, and what the split would cost."""
    with Folder(STUBS + "/vendor2.so") as f:
        equal(story(8, env=f.env).json()["device"].split(":")[0], "cpu_simd")
        c = candidate(explain(env=f.env), f, "vendor2")
        steps = {step["step"]: step for step in c["steps"]}
        yes = {op["op"] for op in steps["verdicts"]["ops"] if op["native"]}
        no = {op["op"]: op["reason"] for op in steps["verdicts"]["ops"] if op["no"]}
        equal((yes, no["ROPE"]), ({"RMS_NORM", "LINEAR"}, "only RMS_NORM and LINEAR"))
        equal(c["outcome"], "partial")
        assert not steps["split"]["ok"] and steps["split"]["copies"] > 6, steps["split"]
        has(steps["split"]["text"], "us per token", "cpu_simd alone")


if __name__ == "__main__":
    cli_test.main(globals())
