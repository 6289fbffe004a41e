#!/usr/bin/env python3
"""Plugins that go wrong, and what a user sees of them: stub_test.py MINERVA GROUP. Standard library alone.

Groups: contain (a plugin that hangs, exits or crashes only in the host), writes (into what it is given as const), guest (what a plugin does to the process that opens it), list
(minerva plugins), explain (minerva devices --explain), run, check (minerva plugins check), vendor2. The folder of the
built stubs comes from MINERVA_STUBS. Every stub lies in a folder of MINERVA_PLUGIN_PATH, before the good plugins of the build."""
import concurrent.futures
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path[:0] = [os.path.join(ROOT, "tests", "cli"), os.path.join(ROOT, "tests", "golden")]
import cli_test
import safetensors
from cli_test import DATA, MODEL, Skipped, equal, has, is_error, minerva, run, scratch

STUBS = os.environ["MINERVA_STUBS"]
TIMEOUT = 3  # seconds that the probe of a plugin that hangs gets here
PATIENCE = 60  # seconds for all others, however slow and busy the machine
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


HUNG = "%d s" % TIMEOUT
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
    "hang_constructor": Stub("hung", HUNG, "constructors", rule="open.load"),
    "hang_entry": Stub("hung", HUNG, "entry", rule="open.entry"),
    "hang_list": Stub("hung", HUNG, "listing devices", rule="device.list"),
    "hang_test": Stub("hung", HUNG, "self-test of device 0", rule="device.self_test"),
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
    """A plugin folder with the named stubs, and a cache of its own. Beside stubs that hang, the verdicts on the others are there before."""
    def __init__(self, *names, only=False, **env):
        self.names, self.key, self.env = names, "MINERVA_PLUGIN_PATH" + ("_ONLY" if only else ""), env

    def __enter__(self):
        self.temp = scratch()
        self.path = self.temp.name
        os.chmod(self.path, 0o755)
        self.plugins, self.cache = self.path + "/plugins", self.path + "/cache"
        os.mkdir(self.plugins, 0o755)
        os.mkdir(self.cache, 0o700)
        hanging = [name for name in self.names if name.startswith("hang")]
        for name in self.names:
            if name not in hanging:
                self.add(name)
        self.env = cli_test.environment(XDG_CACHE_HOME=self.cache, MINERVA_PROBE_TIMEOUT=str(PATIENCE), **{self.key: self.plugins}, **self.env)
        if hanging:
            self.before = self.listed()
            self.env["MINERVA_PROBE_TIMEOUT"] = str(TIMEOUT)
        for name in hanging:
            self.add(name)
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


# Sanitizers and a load may slow cpu_simd down until it measures slower than any stub: which device is the fastest is asked of the others.
SANITIZE = "MINERVA_TEST_SANITIZE" in os.environ


def steady():
    """Without the one that has cpu_simd's own kernels: either of the two may measure faster."""
    return [name for name in built() if name != "lost"]


def slower():
    """Beside which auto takes cpu_simd."""
    return [name for name in steady() if name != "wrong" or not SANITIZE]


def golden():
    with open(os.path.join(MODEL, "golden.json"), encoding="utf-8") as f:
        return json.load(f)[0]


def story(n, *args, **more):
    e = golden()
    r = run("--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", str(n), "--temp", "0", "--precision", "exact", "--json", *args, **more)
    equal(r.json()["ids"], e["greedy_ids"][:n])
    return r


# ---- contain --------------------------------------------------------------------------------------------------------
LIMIT = 6  # seconds that a call into the plugin gets here
NO_HANDLERS = ":".join("handle_%s=0" % name for name in ("segv", "sigbus", "abort", "sigill", "sigfpe"))  # of a sanitizer: a signal is to be one
COMMANDS = {"plugins": ("plugins",), "explain": ("devices", "--explain", "-m", MODEL), "run": ("run", "-m", MODEL, "--prompt-ids", "5", "-n", "2"),
            "named": ("run", "-m", MODEL, "--prompt-ids", "5", "-n", "2", "--device", "late")}
REACHED = {"entry": COMMANDS, "supports": ("explain", "run", "named"), "execute": ("explain", "run", "named"), "shutdown": COMMANDS}
QUIET = ("estimate", "memory_layout", "compile", "device_close")  # tried by one command each


class Late:
    """The stub late.so, good in the probe, whose answers are remembered; each case has a cache of its own, with those."""
    def __init__(self, f):
        self.f, self.path = f, f.plugins + "/late.so"
        for command in ("plugins", "explain"):
            minerva(*COMMANDS[command], env=f.env)

    def case(self, rates=True):
        """Without rates, auto measures: it executes on every device."""
        cache = tempfile.mkdtemp(dir=self.f.path) + "/cache"
        shutil.copytree(self.f.cache, cache, ignore=shutil.ignore_patterns(".tmp-*", *([] if rates else ["rates-*"])))  # a probe may still write
        return cache

    def run(self, command, where="", how="", cache=None, code=0, **env):
        """Ends with that code, long before any patience does; the result. A signal is a negative code."""
        env = dict(self.f.env, XDG_CACHE_HOME=cache or self.case(where != "execute"), MINERVA_CALL_TIMEOUT=str(LIMIT), MINERVA_STEP_TIMEOUT=str(LIMIT),
                   MINERVA_LATE_IN=where, MINERVA_LATE_HOW=how, ASAN_OPTIONS=NO_HANDLERS, **env)
        return minerva(*COMMANDS[command], env=env, code=code, timeout=60, preexec_fn=no_core)

    def says(self, r, *words):
        lines = [line for line in r.err.splitlines() if line.startswith("minerva: error: plugin late (%s) " % self.path)]
        equal(len(lines), 1)
        has(lines[0], *words)


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def late(*names, **env):
    return Folder(STUBS + "/late.so", *names, **env)


def beside(cases, fn):
    """All cases at a time: most of them wait."""
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda case: fn(*case), cases))


def journal(cache):
    path = cache + "/minerva/crashes"
    return open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []


def test_contain_hang():
    """Whatever hangs, every command ends with a sentence that names the plugin and the call."""
    with late() as f:
        stub = Late(f)

        def hang(where, command):
            reached = where in QUIET or command in REACHED[where]
            last = where == "shutdown"  # nothing is left to do: the command's own code
            r = stub.run(command, where, "hang", code=1 if reached and not last else 0)
            if reached and last:
                has(r.err, "minerva: warning: plugin late (%s) did not return from shutdown" % stub.path)
            elif reached:
                step = (where, command) == ("execute", "named")
                stub.says(r, "did not return from " + where, "step_timeout" if step else "call_timeout")
            if (where, command) == ("execute", "named"):  # the same of a device that works by itself and never finishes
                r = stub.run(command, "wait", "never", code=1)
                stub.says(r, "did not return from wait", "step_timeout")
        beside([(where, command) for where in REACHED for command in COMMANDS] + [(where, "named") for where in QUIET], hang)


def test_contain_ids():
    """An id that is none, or an error of a step, is the device's; another one goes on where there is one."""
    with late() as f:
        stub = Late(f)

        def late_story(where, how, *args, code=0):
            e = golden()
            env = dict(f.env, XDG_CACHE_HOME=stub.case(), MINERVA_LATE_IN=where, MINERVA_LATE_HOW=how)
            return minerva("run", "-m", MODEL, "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "8", "--temp", "0", "--precision", "exact", "--json",
                           *args, env=env, code=code, timeout=60)
        drew = "late:0 drew id 1073741824 of 2048"
        r = late_story("read", "id", "--device", "late,cpu")
        equal(r.json()["ids"], golden()["greedy_ids"][:8])
        has(r.err, "late:0 was lost (%s)" % drew)
        has(late_story("read", "id", "--device", "late", code=3).err, drew)
        has(late_story("execute", "refuse", "--device", "late", code=None).err, "late:0: driver says no")
        has(late_story("read", "nan", "--device", "late", code=None).err, "late:0: sequence", "is NaN", "the device is at fault, or the weights of " + MODEL)
        r = late_story("execute", "rounding", "--device", "late")
        equal(r.err.count("late:0: execute leaves the floating-point mode other than it was"), 1)
        r = late_story("execute", "chatter", "--device", "late")
        assert 0 < r.err.count("so it goes") <= 80, r.err.count("so it goes")


def test_contain_claims():
    """Claims that cannot be are refused in words."""
    with late() as f:
        stub = Late(f)
        for how, words in (("nan", "NaN"), ("tib", "more than 1024 TiB")):
            r = stub.run("named", "device_info", how, code=3)
            has(r.err, "it claims", words)
        has(stub.run("plugins", "vendor").out, "its vendor states more than 4096 bytes")


def test_contain_exit():
    """exit(0) inside of a call is a failure of the command."""
    with late() as f:
        stub = Late(f)

        def leave(where, command):
            if command in REACHED[where]:
                stub.says(stub.run(command, where, "exit", code=1), "exit was called in " + where)
        beside([(where, command) for where in REACHED for command in COMMANDS], leave)
        # a thread of its own calls it: in a call, or between two
        r = run("--prompt-ids", "5", "-n", "4000", "--ignore-eos", "--device", "late", env=dict(f.env, MINERVA_LATE_IN="supports", MINERVA_LATE_HOW="later"),
                code=1)
        has(r.err, "minerva: error: ", "ended the process: exit was called")


def test_contain_signals():
    """A crash is said and noted, and the process ends by its signal; what is no crash is not noted."""
    with late() as f:
        stub = Late(f)

        def die(how, name, where):
            cache = stub.case()
            r = stub.run("named", where, how, cache=cache, code=-getattr(signal, name))
            stub.says(r, "crashed: %s in %s" % (name, where))
            line, = journal(cache)
            assert re.fullmatch("died [0-9a-f]{16} %s late %s" % (name, where), line), line
        beside([(name, name, "execute") for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")] +
               [("stack", "SIGSEGV", "execute"), ("thread", "SIGSEGV", "execute"), ("SIGSEGV", "SIGSEGV", "entry"), ("SIGABRT", "SIGABRT", "supports"),
                ("SIGSEGV", "SIGSEGV", "shutdown")], die)
        cache = stub.case()
        r = stub.run("named", "execute", "SIGTERM", cache=cache, code=-signal.SIGTERM)
        equal((journal(cache), "late (" in r.err), ([], False))


def test_contain_set_aside():
    """One death is told once; after two the plugin is set aside, until its file changes or it is named."""
    with late() as f:
        stub = Late(f)
        cache = stub.case(rates=False)
        dies = {"cache": cache, "code": -signal.SIGSEGV}
        r = stub.run("run", "execute", "SIGSEGV", **dies)
        assert "earlier run" not in r.err, r.err
        told = "minerva: warning: plugin late (%s): an earlier run died in it: SIGSEGV in execute" % stub.path
        has(stub.run("plugins", cache=cache).err, told)
        equal(stub.run("plugins", cache=cache).err, "")
        stub.run("run", "supports", "SIGSEGV", **dies)
        for _ in range(2):  # it would crash again
            r = stub.run("run", "supports", "SIGSEGV", cache=cache)
            has(r.err, stub.path + " (set aside): 2 runs died in its calls, the last by SIGSEGV in supports", "--device late")
        has(stub.run("explain", "supports", "SIGSEGV", cache=cache).out, "set aside", "2 runs died")
        r = stub.run("plugins", "entry", "SIGSEGV", cache=cache)
        line, = [line for line in r.out.splitlines() if line.startswith("late ")]
        has(line, "set aside", "2 runs died")
        has(stub.run("named", cache=cache).err, "minerva: late:0: named by the user")
        has(stub.run("plugins", cache=cache, MINERVA_DEVICE="cpu,late:0").out, "late")
        assert "set aside" not in stub.run("plugins", cache=cache, MINERVA_DEVICE="cpu,late:0").out
        os.utime(stub.path, (1, 1))  # another file
        assert "set aside" not in stub.run("run", cache=cache).err
        stub.says(stub.run("run", "supports", "SIGSEGV", **dies), "crashed: SIGSEGV in supports")


def test_contain_last_cpu():
    """The last CPU is tried whatever its past; beside another one it is not."""
    loaders = [cli_test.plugin_files()[p] for p in ("gguf", "safetensors")]
    with late(*loaders, only=True, MINERVA_LATE_CPU="1") as f:
        stub = Late(f)
        cache = stub.case()
        for _ in range(3):
            stub.says(stub.run("run", "execute", "SIGSEGV", cache=cache, code=-signal.SIGSEGV), "crashed: SIGSEGV in execute")
        has(stub.run("run", cache=cache).err, "minerva: warning: late: nothing faster is there")
        f.add(cli_test.plugin_files()["reference"])
        has(stub.run("run", cache=cache).err, "reference", "set aside")


def test_contain_journal():
    """Processes that write at the same time do not spoil it; what is damaged is ignored with a line, and begins anew."""
    with late() as f:
        stub = Late(f)
        cache = stub.case()
        beside([()] * 6, lambda: stub.run("named", "execute", "SIGSEGV", cache=cache, code=-signal.SIGSEGV))
        died = [line for line in journal(cache) if line.startswith("died")]
        equal((len(died), len(set(died))), (6, 1))
        for damage in (b"died 0123456789abcdef SIGSEGV late execute", b"\0" * 100, b"died x y\n", b"told 0123456789abcdef more\n", b"x\n" * 40000):
            with open(cache + "/minerva/crashes", "wb") as out:
                out.write(("\n".join(died) + "\n").encode() + damage)
            r = stub.run("plugins", cache=cache)
            has(r.err, "minerva: warning: cache: crashes: the journal of crashes is ", "ignored")
            assert "set aside" not in r.out, r.out
            equal((stub.run("plugins", cache=cache).err, journal(cache)), ("", []))
        os.remove(cache + "/minerva/crashes")
        os.mkdir(cache + "/minerva/crashes")  # no file at all: nothing is noted, and nothing else
        stub.run("named", "execute", "SIGSEGV", cache=cache, code=-signal.SIGSEGV)
        equal(stub.run("plugins", cache=cache).err, "")


# ---- writes: into what it is given as const -------------------------------------------------------------------------
OF_A_GRAPH = ("attrs", "graph", "nodes", "tensors", "name", "operands", "symbols", "host")
WRITES = ([("supports", to) for to in OF_A_GRAPH + ("compile", "maxima")] + [("estimate", to) for to in ("attrs", "compile", "maxima", "host")] +
          [("compile", to) for to in ("attrs", "symbols", "compile", "maxima", "host")] + [("execute", to) for to in ("attrs", "symbols", "host")] +
          [("memory_layout", "compile"), ("weights_open", "maxima"), ("weights_put", "planes"), ("weights_put", "weights"), ("context_bind", "bindings")])
HARMLESS = [("execute", "values"), ("context_prepare", "values"), ("write", "values")]  # copies, which nobody reads afterwards
WROTE = "it wrote into memory that it was given as const"


class Writes:
    """The stub writes.so, good in the probe, whose answers are remembered, with the rates."""
    def __init__(self, f):
        self.f, self.path = f, f.plugins + "/writes.so"
        minerva("devices", "--explain", "-m", MODEL, env=f.env)

    def env(self, where, to, **more):
        cache = tempfile.mkdtemp(dir=self.f.path) + "/cache"
        shutil.copytree(self.f.cache, cache, ignore=shutil.ignore_patterns(".tmp-*"))
        return dict(self.f.env, XDG_CACHE_HOME=cache, MINERVA_WRITES_IN=where, MINERVA_WRITES_TO=to, ASAN_OPTIONS=NO_HANDLERS, **more)


def writes_story(env, *args, code=0):
    """The ids of the golden story, or the message of a plugin that wrote."""
    e = golden()
    r = minerva("run", "-m", MODEL, "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "8", "--temp", "0", "--precision", "exact", "--json", *args,
                env=env, code=code, timeout=60, preexec_fn=no_core)
    if not code:
        equal(r.json()["ids"], e["greedy_ids"][:8])
    return r


def check_write(stub, where, to):
    """The first start ends with its name, the next ones are without it; by name it is tried again."""
    env = stub.env(where, to)
    explained = where in ("supports", "estimate")
    said = "minerva: error: plugin writes (%s) crashed: SIGSEGV in %s: %s" % (stub.path, where, WROTE)
    if explained:
        r = minerva("devices", "--explain", "-m", MODEL, env=env, code=-signal.SIGSEGV, timeout=60, preexec_fn=no_core)
    else:
        r = writes_story(env, "--device", "writes,cpu", code=-signal.SIGSEGV)
    has(r.err, said)
    line, = journal(env["XDG_CACHE_HOME"])
    assert re.fullmatch("wrote [0-9a-f]{16} SIGSEGV writes " + where, line), line
    r = writes_story(env)
    equal(r.json()["device"].split(":")[0], "cpu_simd" if os.path.exists(os.path.join(STUBS, "lost.so")) else "reference")
    has(r.err, "an earlier run died in it: SIGSEGV in " + where)
    if to in ("attrs", "compile"):
        record = minerva("devices", "--explain", "-m", MODEL, "--json", env=env).json()
        c = candidate(record, stub.f, "writes")
        equal((c["outcome"], record["placement"]["device"]), ("set aside", r.json()["device"]))
        has(c["reason"], WROTE, "SIGSEGV in " + where, "--device writes")
        has(writes_story(env, "--device", "writes", code=-signal.SIGSEGV).err, said)


def test_writes_all():
    """Whatever it writes over, another device's ids are as without it."""
    with Folder(STUBS + "/writes.so") as f:
        stub = Writes(f)
        beside(WRITES, lambda where, to: check_write(stub, where, to))


def test_writes_copies():
    """What a step hands over is a copy: its own ids are right, too."""
    with Folder(STUBS + "/writes.so", MINERVA_WRITES_ASKED="1") as f:
        stub = Writes(f)
        for where, to in HARMLESS:
            env = stub.env(where, to)
            equal(writes_story(env, "--device", "writes").json()["device"].split(":")[0], "writes")
            equal(journal(env["XDG_CACHE_HOME"]), [])


def test_writes_probe():
    """One that writes at once is found in the probing process: no start ends, and it is left out with a line."""
    with Folder(STUBS + "/writes.so", MINERVA_WRITES_PROBE="1", MINERVA_WRITES_IN="supports", MINERVA_WRITES_TO="nodes") as f:
        words = ("SIGSEGV while asking for verdicts of device 0", "by a write into memory that it was given as const")
        record, = f.listed().values()
        equal(record["status"], "crashed")
        has(record["reason"], *words)
        has(writes_story(f.env).err, *words)


# ---- list -----------------------------------------------------------------------------------------------------------
def test_list_all():
    """Each record says what was wrong; the good plugins are there as ever."""
    with Folder(*built()) as f:
        listed = f.listed()
        equal(sorted(listed), sorted(built()))
        for name, p in list(f.before.items()) + list(listed.items()):
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
    for name in slower():
        if not name.startswith("hang_"):
            check_run(name)


def test_run_beside_all():
    with Folder(*slower()) as f:
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


def test_run_lost_gpu():
    """The same of a backend on gpu_host: an error of the vendor's interface is a lost device."""
    with only(STUBS + "/gpu_toy/gpu_toy.so", MINERVA_GPU_TOY_LOST_AFTER="900") as f:
        r = story(40, env=f.env)
        lines = [line for line in r.err.splitlines() if "the thread fell asleep (toy error 2); the device is lost to this process" in line]
        equal(len(lines), 1)
        has(lines[0], "minerva: ", "gpu_toy", "reference")


def test_run_beside():
    """The toy's part of divided experts is under way while the CPU computes its own: what the CPU makes finds kernels in the queue."""
    def writes(*flags):
        with only(STUBS + "/gpu_toy/gpu_toy.so", MINERVA_GPU_TOY_KERNEL_US="3000") as f:
            model = os.path.join(DATA, "fixtures", "qwen3-next")
            log = minerva("run", "-m", model, "--device", "gpu_toy,reference", "--prompt-ids", "1,2,3", "-n", "6", *flags, "-v", env=f.env).err
        return int(re.search(r"toy: (\d+) writes", log)[1])
    divided, whole = writes("--n-gpu-experts", "2"), writes("--cpu-moe")
    assert divided >= 8 and whole * 2 < divided, (divided, whole)  # one for each of 4 layers in each step


def test_run_rates_of_experts():
    """Of models with experts a MOE_LINEAR of their shape is measured, too, once; as long as it takes on a small device."""
    def rates(name):
        record = minerva("devices", "--explain", "--json", "-m", os.path.join(DATA, "fixtures", name), "--device", "gpu_toy,reference", env=f.env).json()
        toy = next(c for c in record["candidates"] if c["device"] == "gpu_toy:0")
        return next(s for s in toy["steps"] if s["step"] == "rates")
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        dense = rates("llama")
        assert all("experts_gbps" not in t for t in dense["types"]), dense
        first, second = rates("gpt-oss"), rates("gpt-oss")
        assert first["types"] == second["types"] and first["measured_ms"] > 0 == second["measured_ms"], (first, second)
        assert any(t.get("experts_gbps", 0) > 0 and t["experts_tflops"] > 0 for t in first["types"]), first
        other = rates("qwen3-next")  # another shape, the same type
        assert other["measured_ms"] > 0 and other["types"][0]["decode_gbps"] == first["types"][0]["decode_gbps"], (first, other)


def test_run_memory_of_segments():
    """Segments of one queue share their scratch: what `--explain` states of the toy's memory is within 3 % of the most that it had in use."""
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        for name in "gpt-oss", "qwen3-next":
            for flag in (["--cpu-moe"], ["--n-gpu-experts", "2"]):
                flags = ["-m", os.path.join(DATA, "fixtures", name), "--device", "gpu_toy,reference", "-c", "256", *flag]
                placement = minerva("devices", "--explain", "--json", *flags, env=f.env).json()["placement"]
                total = next(d for d in placement["devices"] if d["device"] == "gpu_toy:0")
                segments = [s for s in placement["segments"] if s["device"] == "gpu_toy:0"]
                assert len(segments) == total["segments"] >= 5, segments
                equal(total["scratch"], max(s["scratch"] for s in segments))
                log = minerva("run", *flags, "--prompt-ids", "1,2,3", "-n", "2", "-v", env=f.env).err
                peak = int(re.search(r"toy: at most (\d+) bytes", log)[1])
                assert 0.97 * peak <= total["need"] <= 1.03 * peak, (name, flag, peak, total)


def streamed_run(f, name, *flags, rows, code=0, **env):
    """A prompt of 40 ids by gpu_toy and cpu_simd; the ids that follow, and the log."""
    r = minerva("run", "-m", os.path.join(DATA, "fixtures", name), "--prompt-ids", ",".join(str(1 + 3 * i) for i in range(40)), "-n", "8", "--temp", "0",
        "--precision", "exact", "--json", "-v", *flags, env=dict(f.env, MINERVA_STREAM_EXPERTS=str(rows), **env), code=code)
    return r.json()["ids"], r.err


def test_run_streamed():
    """Experts in main memory that a card computes in steps of many rows: the ids are the CPU's alone, whatever the size of the steps and of the rooms' runs;
    never with 0, in a step with fewer rows or with a profile; a layer of another form says why."""
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        f.add(cli_test.plugin_files()["cpu_simd"])
        toy = ["--device", "gpu_toy,cpu_simd"]
        for name in "gpt-oss", "gpt-oss-mxfp4", "qwen3-next", "mixtral", "granite-moe", "deepseek-v2", "deepseek-v3", "dots1", "nemotron-h-moe", "phimoe", "lfm2-moe":
            alone, _ = streamed_run(f, name, "--device", "cpu_simd", rows=2)
            for place in ["--cpu-moe"], ["--n-gpu-experts", "2"], ["-ot", "_exps=cpu"]:
                ids, log = streamed_run(f, name, *toy, *place, rows=2)
                equal(ids, alone)
                has(log, "streamed experts: 1 steps")
        alone, _ = streamed_run(f, "mixtral", "--device", "cpu_simd", rows=2)
        for batch in "7", "16":  # more pairs of a group than a run has: half of 4 experts, two for each row
            ids, log = streamed_run(f, "mixtral", *toy, "--cpu-moe", rows=2, MINERVA_BATCH=batch)
            equal(ids, alone)
            has(log, "streamed experts: %d steps" % (-(-40 // int(batch))))
        for rows in 0, 41, -1:  # -1: not in class exact
            ids, log = streamed_run(f, "mixtral", *toy, "--cpu-moe", rows=rows)
            equal(ids, alone)
            assert "streamed experts: " not in log, log
        for name, why in ("gemma4-moe", "operations that are none of theirs"), ("llama4", "their inputs are weighted"):
            ids, log = streamed_run(f, name, *toy, "--cpu-moe", rows=2)
            equal(ids, streamed_run(f, name, "--device", "cpu_simd", rows=2)[0])
            has(log, "stream_experts has no effect: experts that cannot be streamed: " + why)
        log = minerva("bench", "-m", os.path.join(DATA, "fixtures", "mixtral"), "-p", "16", "-n", "0", "-r", "1", "--profile", *toy, "--cpu-moe", "-v",
            env=dict(f.env, MINERVA_STREAM_EXPERTS="2")).err
        assert "compute the experts of 2 layers there" in log, log


def test_run_streamed_lost():
    """The card is lost while experts are copied to it and computed: the CPU goes on with the same ids."""
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        f.add(cli_test.plugin_files()["cpu_simd"])
        lost = 0
        alone, _ = streamed_run(f, "gpt-oss", "--device", "cpu_simd", rows=2)
        for after in range(130, 430, 37):
            ids, log = streamed_run(f, "gpt-oss", "--device", "gpu_toy,cpu_simd", "--cpu-moe", rows=2, MINERVA_BATCH="8", MINERVA_GPU_TOY_LOST_AFTER=str(after))
            equal(ids, alone)
            lost += "the thread fell asleep" in log
        assert lost >= 5, lost


def test_run_streamed_memory():
    """What `--explain` states of the card's memory is within 3 % of the most that was in use; a card without that memory computes without."""
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        f.add(cli_test.plugin_files()["cpu_simd"])
        env = dict(f.env, MINERVA_STREAM_EXPERTS="2")
        for name in "gpt-oss", "qwen3-next", "mixtral":
            for flag in (["--cpu-moe"], ["--n-gpu-experts", "2"]):
                flags = ["-m", os.path.join(DATA, "fixtures", name), "--device", "gpu_toy,cpu_simd", "-c", "256", *flag]
                placement = minerva("devices", "--explain", "--json", *flags, env=env).json()["placement"]
                total = next(d for d in placement["devices"] if d["device"] == "gpu_toy:0")["need"]
                streamed = placement["streamed"]
                assert streamed["rows"] == 2 and not streamed["reason"] and streamed["layers"] >= 2 and 0 < streamed["pinned"] <= 1 << 30, streamed
                log = minerva("run", *flags, "--prompt-ids", "1,2,3", "-n", "2", "-v", env=env).err
                peak = int(re.search(r"toy: at most (\d+) bytes", log)[1])
                need = total + streamed["need"]
                assert 0.97 * peak <= need <= 1.03 * peak, (name, flag, peak, need)
                short = [*flags, "--device-memory", str(need - 4096)]
                without = minerva("devices", "--explain", "--json", *short, env=env).json()["placement"]["streamed"]
                assert without["rows"] is None and "MB more for them" in without["reason"], without
                has(minerva("run", *short, "--prompt-ids", "1,2,3", "-n", "1", env=env).err, "stream_experts has no effect: gpu_toy:0 needs ")


def test_run_streamed_rates():
    """From how many rows on is told by the rates: a card whose files of rates are made 10,000 times as fast, at two rates of its bus. Where memory is short, a
    placement with experts on the CPU counts their prompts as the card computes them, and another one may be the fastest."""
    ask = ["devices", "--explain", "--json", "-m", os.path.join(DATA, "fixtures", "gpt-oss"), "--device", "gpu_toy,cpu_simd"]
    def explained(gbps, *flags, rows=-1):
        env = dict(f.env, XDG_CACHE_HOME=f.path + "/cache-%g" % gbps, MINERVA_THREADS="2", MINERVA_BATCH="64", MINERVA_STREAM_EXPERTS=str(rows))
        return minerva(*ask, *flags, env=env).json()["placement"]
    def set_rates(gbps):
        explained(gbps, "--cpu-moe")  # measures
        for folder, _, names in os.walk(f.path + "/cache-%g" % gbps):
            for name in (name for name in names if name.startswith("rates-")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", errors="replace") as was:
                    lines = was.read().splitlines()
                of_experts, gb, tera, node = lines[-2].startswith("experts"), *((1000, 10, 0.001) if "toy" in lines[1] else (9, 0.001, 1))
                with open(path, "w", encoding="utf-8") as to:
                    to.write("\n".join([*lines[:-1], " ".join(map(str, [gb, tera] if of_experts else [gb, tera, node, 1, 1, gbps, 0.001]))]) + "\n")
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        f.add(cli_test.plugin_files()["cpu_simd"])
        for gbps in 0.01, 0.1, 10:
            set_rates(gbps)
        slow, fast = (explained(gbps, "--cpu-moe")["streamed"] for gbps in (0.01, 0.1))
        assert abs(slow["faster_from"] / fast["faster_from"] / 10 - 1) < 0.01, (slow, fast)
        has(slow["reason"], "in class exact")
        whole = next(d["need"] for d in explained(10, "-c", "256")["devices"] if d["device"] == "gpu_toy:0")
        never, streamed = (explained(10, "-c", "256", "--device-memory", str(whole * 3 // 4), rows=rows)["options"] for rows in (0, 2))
        pace = [{o["experts_on_cpu"]: o["prompt_tokens_per_s"] for o in options if not o["whole_layers"] and not o["divided"]} for options in (never, streamed)]
        assert pace[1] and all(pace[1][n] > 2 * pace[0][n] for n in pace[1] if n in pace[0]), (never, streamed)
        best = [min(options, key=lambda o: o["us_per_token"]) for options in (never, streamed)]
        assert best[0]["experts_on_cpu"] < best[1]["experts_on_cpu"] and best[1]["chosen"], best


def test_run_expert_counts():
    """The most used experts are first: the ids stay those of the CPU alone, the halves of a layer are estimated by what they are used; files that do not fit are errors."""
    ids = " ".join(str(5 + i * i % 53) for i in range(512))
    with only(STUBS + "/gpu_toy/gpu_toy.so") as f:
        f.add(cli_test.plugin_files()["cpu_simd"])
        text, counts = f.path + "/ids.txt", f.path + "/%s.gguf"
        with open(text, "w") as to:
            to.write(ids)
        for name in "gpt-oss", "qwen3-next", "mixtral", "granite-moe", "gemma4-moe", "llama4":
            model = ["-m", os.path.join(DATA, "fixtures", name)]
            minerva("imatrix", *model, "--ids", text, "-o", counts % name, "-c", "64", "--device", "cpu_simd", env=f.env)
            ask = [*model, "--prompt-ids", "1,2,3,7,9,20,31", "-n", "16", "--temp", "0", "--precision", "exact", "--json"]
            flags = ["--expert-counts", counts % name]
            whole = minerva("run", *ask, "--device", "cpu_simd", env=f.env).json()["ids"]
            equal(minerva("run", *ask, "--device", "cpu_simd", *flags, env=f.env).json()["ids"], whole)
            divided = minerva("run", *ask, "--device", "gpu_toy,cpu_simd", "--n-gpu-experts", "2", *flags, "-v", env=f.env)
            equal(divided.json()["ids"], whole)
            has(divided.err, "are in the order of their use")

        def cpu_us(*flags):
            record = minerva("devices", "--explain", "--json", "-m", DATA + "/fixtures/gpt-oss", "--device", "gpu_toy,cpu_simd", "--n-gpu-experts", "2", *flags, env=f.env)
            return next(d for d in record.json()["placement"]["devices"] if d["device"] == "cpu_simd")["decode_us"]
        cpu_us()  # measures
        assert cpu_us("--expert-counts", counts % "gpt-oss") < cpu_us(), "a text uses no expert more than others"
        mixtral = ["-m", DATA + "/fixtures/mixtral"]
        run = ["run", *mixtral, "--prompt-ids", "1", "-n", "1", "--expert-counts"]
        is_error(minerva(*run, counts % "gpt-oss", env=f.env, code=1), "counts of 8 experts; the layer of", "has 4")
        is_error(minerva(*run, f.path + "/none", env=f.env, code=1), "expert_counts: ", "cannot open")
        old = f.path + "/old.dat"
        minerva("imatrix", *mixtral, "--ids", text, "-o", old, "-c", "64", "--output-format", "dat", env=f.env)
        is_error(minerva(*run, old, env=f.env, code=1), "has no counts of experts")
        again = ["imatrix", *mixtral, "--ids", text, "-o", f.path + "/again", "--expert-counts", counts % "mixtral"]
        is_error(minerva(*again, env=f.env, code=2), "expected a model that was opened without the setting expert_counts")
        env = dict(f.env, MINERVA_EXPERT_COUNTS=counts % "mixtral")
        is_error(minerva("convert", mixtral[1], "-o", f.path + "/x.gguf", env=env, code=2), "opened without the setting expert_counts")
        groups = minerva("run", "-m", DATA + "/fixtures/deepseek-v2-groups", "--prompt-ids", "1", "-n", "1", "--device", "cpu_simd", env=env)
        has(groups.err, "expert_counts has no effect")
        minerva("run", "-m", DATA + "/fixtures/llama", "--prompt-ids", "1", "-n", "1", "--device", "cpu_simd", env=env)


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
def explain(*args, env, model=MODEL, **more):
    return minerva("devices", "--explain", "-m", model, "--json", *args, env=env, **more).json()


def candidate(record, f, name):
    return next(c for c in record["candidates"] if c["path"] == f.plugins + "/" + name + ".so")


def test_explain_all():
    """One record tells of each file and device how far it came and what was the matter. Which of those that can do everything is the
    fastest is not for a test: stubs are made of the reference plugin, whose loops no sanitizer slows down."""
    with Folder(*steady()) as f:
        record = explain(env=f.env)
        assert record["error"] is None, record["error"]
        chosen = record["placement"]["device"]
        assert chosen in ["cpu_simd"] + [ALL[name].device for name in steady() if ALL[name].outcome == "slower"], record["placement"]
        for name in steady():
            c, stub = candidate(record, f, name), ALL[name]
            equal((name, c["device"]), (name, stub.device))
            outcome = "chosen" if stub.device == chosen else stub.outcome
            assert c["outcome"] == outcome and all(word in c["reason"] for word in stub.why), (name, c["outcome"], c["reason"])
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


# ---- guest ----------------------------------------------------------------------------------------------------------
class Guest:
    """status and words: of minerva plugins once the watch is over, of the reason or, where it is ok, of the column probe. first: the status
    at the first start. warns: minerva run says so, too. A plugin that is left out is always said to be."""
    def __init__(self, status, *words, first=None, warns=True):
        self.status, self.words, self.first, self.warns = status, words, first or status, warns


CHANGES = "changes the process that opens it: "
PRINTS = 'prints on standard output: "welcome to this driver"'
GUESTS = {
    "fork_child": Guest("refused", "leaves a process", "constructors"),
    "fork_twin": Guest("refused", "leaves a process", "constructors"),
    "fork_entry": Guest("refused", "leaves a process", "entry"),
    "fork_daemon": Guest("refused", "leaves 1 process running"),
    "thread_crash": Guest("crashed", "SIGSEGV", "being watched for 2 s", first="ok"),
    "thread_unload": Guest("refused", "may be unloaded", "1 thread running", first="ok"),
    "thread_stays": Guest("ok", "leaves 1 thread running", warns=False),
    "close_all": Guest("refused", "after its constructors and its entry, descriptor 0 and 15 others are closed"),
    "close_one": Guest("refused", "after its constructors and its entry, descriptor 7 is closed"),
    "signals": Guest("refused", "after a step on its devices", "SIGTERM has another handler"),
    "folder": Guest("ok", CHANGES + "the working directory is /"),
    "mask": Guest("ok", CHANGES + "the umask is 000"),
    "limits": Guest("ok", CHANGES + "RLIMIT_NOFILE is 40"),
    "rounding": Guest("ok", CHANGES + "floating-point numbers are rounded another way"),
    "prints_load": Guest("ok", PRINTS),
    "prints_entry": Guest("ok", PRINTS),
    "prints_step": Guest("ok", PRINTS),
    "claims": Guest("ok", warns=False),
    "escapes": Guest("ok", warns=False),
}
FASTEST = ["cpu_simd", "claims:0"] if SANITIZE else ["cpu_simd"]
SECONDS = 60  # for one command: a hang, not a time that is measured


def wait_for_watch(f, n):
    """Until the second verdicts of n files are in the cache."""
    folder = f.cache + "/minerva/probe"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        texts = []
        for name in os.listdir(folder):
            with contextlib.suppress(OSError), open(os.path.join(folder, name), encoding="utf-8") as file:
                texts.append(file.read())
        if sum("\nwatch\t0\n" in text for text in texts) >= n:
            return
        time.sleep(0.05)
    raise AssertionError("after 60 s the watch of some plugin is not over: %r" % texts)


def is_clean(text):
    """No control character but line ends."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), text


def check_guest(name, p, watched):
    guest = GUESTS[name]
    where = p["probe"] if guest.status == "ok" else p["reason"]
    equal((name, p["status"]), (name, guest.status if watched else guest.first))
    assert not watched or all(word in where for word in guest.words), (name, p)


def test_guest_all():
    """What each does is seen in the probing process, at the latest when its watch is over; the host starts at once, and its pipe ends."""
    with Folder(*GUESTS) as f:
        for name, p in f.listed().items():  # thread_unload is not unloaded yet
            check_guest(name, p, False)
        good = sum(1 for name in cli_test.plugin_files())
        wait_for_watch(f, len(GUESTS) + good)
        listed = f.listed()
        equal(sorted(listed), sorted(GUESTS))
        for name, p in listed.items():
            check_guest(name, p, True)
        text = minerva("plugins", env=f.env, timeout=SECONDS)
        is_clean(text.out + text.err)
        has(text.out, r"1.0\x1b[31mred\x1b[0m\x07")
        record = explain(env=f.env, timeout=SECONDS)
        assert record["placement"]["device"] in FASTEST, record["placement"]
        for name, guest in GUESTS.items():
            if guest.status != "ok":
                c = candidate(record, f, name)
                equal((name, c["outcome"]), (name, guest.status))
                assert all(word in c["reason"] for word in guest.words), (name, c["reason"])
        r = story(8, env=f.env, timeout=SECONDS)
        assert r.json()["device"] in FASTEST, r.json()["device"]
        for name, guest in GUESTS.items():
            lines = [line for line in r.err.splitlines() if "/%s.so " % name in line]
            assert bool(lines) == guest.warns, (name, r.err)
            assert not guest.warns or all(word in lines[0] for word in guest.words), (name, lines)


def test_guest_alone():
    """One beside the good plugins, at the first start: the answer is the golden one and comes from the CPU, and nothing was changed for it."""
    names = [name for name, guest in GUESTS.items() if guest.first == guest.status]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run_beside_guest, name) for name in names]:
            done.result()


def run_beside_guest(name):
    with Folder(name) as f:
        shutil.copytree(MODEL, f.path + "/model")
        e = golden()
        r = minerva("run", "-m", "model", "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "8", "--temp", "0", "--precision", "exact",
                    "--json", env=f.env, cwd=f.path, timeout=SECONDS)  # a relative path: the working directory is still the caller's
        equal((name, r.json()["ids"]), (name, e["greedy_ids"][:8]))
        assert r.json()["device"] in FASTEST, (name, r.json()["device"])


def test_guest_claims():
    """Claims of what no device has count as what the best have; keys and values in f32 alone are measured, too."""
    with Folder("claims") as f:
        steps = {step["step"]: step for step in candidate(explain(env=f.env), f, "claims")["steps"]}
        rates = steps["rates"]
        equal((rates["source"], rates["claims"]["mem_gbps"]), ("measured", 8000))
        has(rates["text"], "claims 1e+09 GB/s of memory, counted as 8000 at most", "claims 1e+09 GB/s from the host, counted as 450 at most")


def test_guest_escapes():
    """Names and messages come as text: JSON holds them without control characters, a terminal gets none."""
    red = r"\x1b[31mred\x1b[0m\x07"
    with Folder("escapes") as f:
        record = explain(env=f.env)
        c = candidate(record, f, "escapes")
        device = next(step for step in c["steps"] if step["step"] == "device")
        equal((device["description"], device["driver"]), (red, r"\xc2\x9b31m \xe2\x80\xae \xff"))
        has(c["reason"], "not in " + red)
        is_clean(json.dumps(record, ensure_ascii=False))
        for args in (("devices",), ("devices", "--explain", "-m", MODEL), ("run", "-m", MODEL, "-p", "A fox.", "-n", "2")):
            r = minerva(*args, env=f.env, timeout=SECONDS)
            is_clean(r.out + r.err)
            has(r.err, "the log, too: " + red)


def test_guest_pipe():
    """A process that a plugin leaves keeps none of our pipes open, and is gone soon."""
    with Folder("fork_child", "fork_daemon") as f:
        read, write = os.pipe()
        p = subprocess.Popen([cli_test.MINERVA, "plugins"], stdout=write, stderr=write, env=f.env)
        os.close(write)
        end = time.monotonic() + SECONDS
        with os.fdopen(read, "rb") as pipe:
            while pipe.read(4096):
                assert time.monotonic() < end
        equal(p.wait(), 0)


if __name__ == "__main__":
    cli_test.main(globals())
