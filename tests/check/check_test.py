#!/usr/bin/env python3
"""minerva plugins check: check_test.py MINERVA GROUP [FILE]. Standard library alone.

Groups: command (the command line and the report), static (files that were linked wrong, damaged files), rules (plugins that break
one rule each), hangs (calls that do not return), abi (hosts of other versions), passes (FILE is a plugin of ours: no rule is broken)."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("MINERVA_BUILD_ROOT", "")
BAD = os.environ.get("MINERVA_BAD_BACKENDS", "")
REFERENCE = os.path.join(BUILD, "plugins", "reference", "reference.so")
SANITIZE = "MINERVA_TEST_SANITIZE" in os.environ
GOOD = r"""
#include <minerva/plugin.h>
MN_PLUGIN_NOTE("tiny", MN_KIND_LOADER, "");
const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) { (void)host, (void)err; return 0; }
"""


def check(*args, code=None, timeout=600):
    p = subprocess.run([MINERVA, "plugins", "check"] + list(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
    out, err = p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
    assert code is None or p.returncode == code, "exit code %s, expected %s: plugins check %s\n%s%s" % (p.returncode, code, args, out, err)
    return p.returncode, out, err


def report(path, *args, code=None):
    got, out, _ = check(path, "--json", *args, code=code)
    r = json.loads(out)
    assert got == (1 if r["failed"] or r["nothing_tried"] else 0), (got, r["failed"], r["nothing_tried"])
    count = {s: sum(rule["status"] == s for rule in r["rules"]) for s in ("ok", "failed", "skipped")}
    assert (count["ok"], count["failed"], count["skipped"]) == (r["passed"], r["failed"], r["skipped"]), r
    for rule in r["rules"]:
        assert rule["id"].startswith(rule["group"] + "."), rule
        assert rule["page"] == "docs/plugin-howto.md#rule-" + rule["id"].replace(".", "-"), rule
        assert rule["message"] or rule["status"] == "ok", "%s without a reason" % rule
    return r


def failed(r):
    return {rule["id"]: rule["message"] for rule in r["rules"] if rule["status"] == "failed"}


def breaks(path, rule, *words):
    r = failed(report(path, "--only", rule, code=1))
    assert set(r) == {rule}, "%s: found broken %s, expected %s" % (path, r, rule)
    for word in words:
        assert word in r[rule], (word, r[rule])


def scratch():
    return tempfile.TemporaryDirectory(dir=BUILD or None)


def build(folder, name, source, *flags):
    path, c = os.path.join(folder, name), os.path.join(folder, name + ".c")
    with open(c, "w") as f:
        f.write(source)
    cc = os.environ.get("CC", "cc").split()
    subprocess.run(cc + ["-shared", "-fPIC", "-I", os.path.join(ROOT, "include"), c, "-o", path] + list(flags), check=True)
    os.chmod(path, 0o755)
    return path


# ---- the command ----
def test_command():
    for args, words in (([], "found no file"), (["/nonexistent.so"], "No such file"), ([ROOT], "found a folder"),
                        (["/dev/null"], "special file"), (["a.so", "b.so"], "b.so"), (["--wrong"], "unknown flag"),
                        ([REFERENCE, "--only", "foo"], "no rule"), ([REFERENCE, "--only", "static.name.more"], "no rule"),
                        ([REFERENCE, "--model", "/nonexistent/model"], "--model /nonexistent/model: No such file"),
                        ([REFERENCE, "--abi", "7.0"], "host.major"), ([REFERENCE, "--abi", "new"], "no version"), ([REFERENCE, "--abi", "0.9x"], "no version")):
        _, out, err = check(*args, code=2)
        assert words in err and err.startswith("minerva: error: ") and not out, (args, out, err)
    _, out, _ = check("--help", code=0)
    usage = out.splitlines()[0]
    for flag in ("FILE.so", "[--json]", "[--only ID]", "[--model PATH]", "[--abi X.Y]", "[--limit SECONDS]"):
        assert flag in usage, (flag, usage)
    with scratch() as d:
        text = os.path.join(d, "text.so")
        with open(text, "w") as f:
            f.write("not a plugin\n")
        _, out, _ = check(text, code=1)
        assert "static.elf" in out and "FAIL" in out and "docs/plugin-howto.md#rule-static-elf" in out, out
        assert out.splitlines()[-1].endswith("skipped"), out
        r = report(text, code=1)
        assert {"static.elf", "static.accepted", "open.load"} == set(failed(r)), failed(r)
        assert r["file"] == text and r["kind"] == "unknown", r
        open(os.path.join(d, "empty.so"), "w").close()
        assert "static.elf" in failed(report(os.path.join(d, "empty.so"), code=1))


# ---- files linked wrong ----
def test_static():
    with scratch() as d:
        r = failed(report(build(d, "good.so", GOOD), "--only", "static", code=0))
        assert not r, r
        breaks(shutil.copy(os.path.join(d, "good.so"), os.path.join(d, "good.dll")), "static.name")
        open_to_all = shutil.copy(os.path.join(d, "good.so"), os.path.join(d, "open.so"))
        os.chmod(open_to_all, 0o666)
        breaks(open_to_all, "static.writable", "every user")
        os.mkdir(os.path.join(d, "folder"))
        os.chmod(os.path.join(d, "folder"), 0o777)
        breaks(shutil.copy(os.path.join(d, "good.so"), os.path.join(d, "folder", "good.so")), "static.writable")
        breaks(build(d, "nonote.so", GOOD.replace("MN_PLUGIN_NOTE", "//")), "static.note", "found 0 notes")
        breaks(build(d, "badid.so", GOOD.replace('"tiny"', '"Tiny!"')), "static.note", "Tiny!")
        breaks(build(d, "exports.so", GOOD + "int more_of_it(void) { return 1; }"), "static.exports", "more_of_it")
        breaks(build(d, "weak.so", GOOD + "__attribute__((weak)) int weak_one(void) { return 1; }"), "static.exports", "weak_one")
        breaks(build(d, "none.so", "int x;"), "static.exports", "found no function minerva_plugin_entry")
        breaks(build(d, "host.so", GOOD + "void *mn_runtime_create(void); static void *(*volatile f)(void) __attribute__((used)) = mn_runtime_create;"),
               "static.undefined", "mn_runtime_create")
        breaks(build(d, "lost.so", GOOD + "void *nowhere_to_be_found(void); static void *(*volatile f)(void) __attribute__((used)) = nowhere_to_be_found;"),
               "static.resolves", "nowhere_to_be_found")
        breaks(build(d, "stack.so", GOOD, "-Wl,-z,execstack"), "static.stack")
        breaks(build(d, "wx.so", GOOD, "-Wl,-N", "-nostdlib"), "static.wx")
        for i, path in enumerate(("lib", "/usr/lib::/lib", "/tmp", "./lib", "$ORIGIN:relative")):
            breaks(build(d, "run%d.so" % i, GOOD, "-Wl,-rpath," + path, "-Wl,--enable-new-dtags"), "static.runpath")
            breaks(build(d, "r%d.so" % i, GOOD, "-Wl,-rpath," + path, "-Wl,--disable-new-dtags"), "static.runpath")
        assert not failed(report(build(d, "origin.so", GOOD, "-Wl,-rpath,$ORIGIN/../lib:/usr/lib"), "--only", "static.runpath", code=0))
        text = GOOD + '__asm__(".text\\n.globl a_word\\n.hidden a_word\\na_word: .quad a_word\\n");'
        breaks(build(d, "textrel.so", text, "-Wl,-z,notext"), "static.textrel")
        damaged(d)


def damaged(d):
    """Files whose bytes are anything: a report each time, never a crash."""
    good = open(os.path.join(d, "good.so"), "rb").read()
    path, rng = os.path.join(d, "damaged.so"), random.Random(1)

    def judge(data):
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, 0o755)
        r = report(path, "--only", "static")
        for rule, message in failed(r).items():
            assert "crashed" not in message and "did not return" not in message, (rule, message)
        return failed(r)

    other = bytearray(good)
    other[18:20] = (8).to_bytes(2, "little")  # MIPS
    assert "static.machine" in judge(other)
    other = bytearray(good)
    other[4] = 1  # 32 bits
    assert "static.machine" in judge(other)
    for n in (3, 4, 16, 63, 64, 100, 1000, len(good) // 2):
        assert judge(good[:n])
    head = 64 + 56 * 12
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(16, head if rng.random() < 0.7 else len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        judge(data)


# ---- one broken rule each ----
SAMPLER_RULES = "min_new repeat_once frequency_once dry breakers dry_last_n top_n_sigma typical_p xtc second_word dynatemp mirostat mu order".split()


def test_rules():
    names = sorted(n for n in os.listdir(BAD) if n.endswith(".so") and n not in ("hang.so", "nothing.so") and not n.startswith("abi_")) if BAD else []
    assert len(names) >= 10 or not os.path.exists(REFERENCE), names
    for name in names:
        group, rule = name[:-3].split("-")[0].split("_", 1)  # what follows "-" is one of several ways to break it
        for sampler in SAMPLER_RULES if name == "numeric_sample-chain.so" else [None]:
            if sampler:
                os.environ["BAD_SAMPLER"] = sampler
            breaks(os.path.join(BAD, name), group + "." + rule)
    runs_nothing()
    with scratch() as d:
        crash = GOOD.replace("(void)host, (void)err; return 0;", "(void)host, (void)err; return *(const mn_plugin *volatile *)8;")
        r = failed(report(build(d, "crash.so", crash), code=1))
        assert list(r) == ["open.entry"] and ("SIGSEGV" in r["open.entry"] or SANITIZE), r
        r = failed(report(build(d, "exit.so", GOOD.replace("return 0;", "extern void _exit(int); _exit(0); return 0;")), code=1))
        assert list(r) == ["open.entry"] and "ended the process with exit code 0" in r["open.entry"], r
        loud = GOOD.replace("return 0;", 'extern int puts(const char *); puts("{noise"); return 0;')
        r = failed(report(build(d, "loud.so", loud), code=1))  # standard output is the report's alone
        assert list(r) == ["open.entry"] and "no message" in r["open.entry"], r


def test_abi():
    """Hosts of other versions (--abi): what a host of its own cannot find of a plugin."""
    def bad(name, abi, *words, own=0):
        path = os.path.join(BAD, name + ".so")
        if not os.path.exists(path):
            return
        r = report(path, "--abi", abi, "--only", "host.minor" if abi == "0.9" else "open", code=1)
        assert list(failed(r)) == [words[0]] and words[1] in failed(r)[words[0]], (name, failed(r))
        assert r["host_abi"] == abi, r
        report(path, "--only", "open", code=own)

    bad("abi_older", "0.9", "host.minor", "found a plugin")
    bad("abi_older-words", "0.9", "host.minor", "names both versions")
    bad("abi_own", "0.10", "open.entry", "too old", own=1)
    bad("abi_newer", "0.11", "open.entry", "not of ABI 0.10")
    path = os.path.join(BAD, "abi_newer-step.so")
    if os.path.exists(path):
        r = failed(report(path, "--abi", "0.11", "--only", "honesty.repeat", code=1))
        assert "an mn_step of another size" in r["honesty.repeat"], r
        report(path, "--only", "honesty.repeat", code=0)
    for name, rule in (("moves", "numeric.kv_moves"), ("units", "profile.units")):
        path = os.path.join(BAD, "abi_newer-%s.so" % name)
        if os.path.exists(path):
            assert list(failed(report(path, "--abi", "0.11", "--only", rule, code=1))) == [rule], name
            report(path, "--only", rule, code=0)
    if not os.path.exists(REFERENCE):
        return
    r = report(REFERENCE, "--abi", "0.9", code=0)  # the file, and that it refuses: nothing else can be tried
    assert {rule["group"] for rule in r["rules"]} == {"static", "host"} and not r["skipped"], r
    report(REFERENCE, "--abi", "0.9", "--only", "numeric", code=1)
    for group in ("open", "device", "honesty", "host", "graph", "call"):
        r = report(REFERENCE, "--abi", "0.11", "--only", group, code=0)
        assert r["passed"], r
    _, out, _ = check(REFERENCE, "--abi", "0.11", "--only", "open", code=0)
    assert "the host was one of ABI 0.11" in out, out
    for name in ("gguf", "safetensors", "mlx"):
        loader = os.path.join(BUILD, "loaders", name, name + ".so")
        if os.path.exists(loader):
            assert not failed(report(loader, "--abi", "0.11", "--only", "loader", code=0))


def runs_nothing():
    """A plugin that says no to every node breaks no rule, and has no certificate either."""
    path = os.path.join(BAD, "nothing.so")
    if not os.path.exists(path):
        return
    for some in ("numeric.linear", "numeric"):
        r = report(path, "--only", some, code=1)
        assert not r["failed"] and not r["passed"] and "skipped" in r["nothing_tried"], r
        assert "linear" in r["operations_refused"] and not r["operations_tried"], r
        assert any("no work on Sundays" in rule["message"] for rule in r["rules"]), r["rules"]
    _, out, _ = check(path, "--only", "numeric.add", code=1)
    assert "operations refused: add" in out and "no certificate" in out, out
    r = report(path, "--only", "device", code=0)  # rules that need no operation
    assert r["passed"] and not r["nothing_tried"], r
    r = report(REFERENCE, "--only", "numeric.add", code=0)
    assert r["operations_tried"] == ["add"] and not r["operations_refused"], r


# ---- calls that do not return ----
def test_hangs():
    plugin = os.path.join(BAD, "hang.so")
    if not os.path.exists(plugin):
        return
    for call, rules in (("minerva_plugin_entry", ["open.entry"]), ("device_open", ["device.list"]), ("weights_seal", ["honesty.native"]), ("context_free", [])):
        os.environ["MINERVA_TEST_HANG"] = call
        began = time.monotonic()
        r = report(plugin, "--limit", "6", "--only", rules[0] if rules else "honesty", code=1)
        took = time.monotonic() - began
        bad = failed(r)
        assert bad and all(call + " did not return within 2 s" in m for m in bad.values()), (call, bad)
        assert not rules or list(bad) == rules, (call, bad)
        if not rules:  # three calls of 2 s, then the check waits no more
            waits = [rule["id"] for rule in r["rules"] if "waits no longer" in rule["message"]]
            assert len(bad) == 3 and waits, (call, bad, waits)
        assert took < 60, (call, took)
    del os.environ["MINERVA_TEST_HANG"]
    assert not failed(report(plugin, "--only", "honesty", code=0))


# ---- plugins of ours ----
NO_KERNELS = ("numeric.lookup",)  # of OpenCL, yet
NO_ROOMS = ("experts.same", "experts.room", "experts.wrong")  # of no GPU of ours: mn.x.experts/1 is a draft


def test_passes(path):
    r = report(path)
    if path.endswith("opencl.so"):
        if not os.path.exists(os.environ["OCL_ICD_VENDORS"]):
            assert not failed(r), failed(r)
            print("no OpenCL driver (PoCL: pocl-opencl-icd): skipped")
            sys.exit(77)
        skipped = [rule["id"] for rule in r["rules"] if rule["status"] not in ("ok", "failed") and rule["id"] not in NO_KERNELS + NO_ROOMS]
        assert not skipped, skipped
    for rule in r["rules"]:
        if rule["status"] != "ok":
            print("# %s %s: %s" % (rule["id"], rule["status"], rule["message"]))
    assert not failed(r), failed(r)
    assert r["passed"] > 20, r["passed"]
    if path.endswith("gpu_toy.so"):
        assert r["skipped"] <= 15, r["skipped"]


# ---- the host's part of a plugin, with launches that compute nothing ----
NUMBERS = ("honesty.repeat", "graph.views", "graph.segments", "call.sets", "call.wrap", "call.sources", "call.updates", "call.shared_weights", "honesty.kept", "call.two_queues")  # beside numeric.*: they compare results


def test_passes_but_numbers(path):
    r = report(path, "--limit", "300")
    bad = {name: why for name, why in failed(r).items() if not name.startswith("numeric.") and name not in NUMBERS}
    assert not bad, bad
    skipped = [rule["id"] for rule in r["rules"] if rule["status"] == "skipped" and rule["id"] not in NO_ROOMS]
    assert r["passed"] > 60 and not skipped, (r["passed"], skipped)


MINERVA = sys.argv[1]
globals()["test_" + sys.argv[2]](*sys.argv[3:])
