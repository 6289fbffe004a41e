#!/usr/bin/env python3
"""The vendor's kit, from an installed prefix with nothing of this tree: template_test.py MINERVA GROUP

build: Makefile, plain cc, meson. check: minerva plugins check. run: both plugins take part in the demo story. howto: the guide's anchors."""
import json
import os
import re
import shutil
import subprocess

import cli_test
from cli_test import MODEL, ROOT, Skipped, environment, equal, has, installed, minerva, scratch

STRICT = ["-Wall", "-Wextra", "-Werror"]
# Every type and constant of the header, seen by a compiler that knows nothing else; in C++ a plugin's own spelling of the note.
HEADER = "#include <minerva/plugin.h>\n%sMN_PLUGIN_NOTE(\"x\", MN_KIND_BACKEND, \"\");\nextern mn_backend table; mn_loader *other(mn_graph *g);\n"


def tool(name, variable=None):
    found = shutil.which(os.environ.get(variable or "", name))
    if not found:
        raise Skipped("needs " + name)
    return found


def do(*args, cwd, env=None):
    p = subprocess.run([str(a) for a in args], cwd=cwd, env=env or environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    assert p.returncode == 0, "%s: exit code %d\n%s" % (args, p.returncode, p.stdout.decode(errors="replace"))
    return p.stdout.decode(errors="replace")


class Kit:
    """An installed prefix below folder, and copies of the two templates to work on."""

    def __init__(self, folder):
        os.chmod(folder, 0o755)
        self.folder, self.root = folder, folder + "/root"
        self.prefix = installed(self.root)
        self.exe = self.prefix + "/bin/minerva"
        for part in ("backend", "loader"):
            shutil.copytree(os.path.join(self.prefix, "share", "minerva", "template", part), os.path.join(folder, part))
            os.chmod(os.path.join(folder, part), 0o755)
        self.backend, self.loader = folder + "/backend", folder + "/loader"
        self.so = {self.backend: "template.so", self.loader: "template_loader.so"}

    def env(self, **more):
        return environment(XDG_CACHE_HOME=self.folder + "/cache", **more)

    def pkg_config(self):
        tool("pkg-config")
        at = next(at for at, _, files in os.walk(self.root) if "minerva-plugin.pc" in files)
        return environment(PKG_CONFIG_PATH=at, PKG_CONFIG_SYSROOT_DIR=self.root)

    def plain(self, part, *more):
        """The line of the guide: one compiler, one header, nothing else."""
        sources = sorted(f for f in os.listdir(part) if f.endswith(".c"))
        do(tool("cc", "CC"), "-shared", "-fPIC", "-I", self.prefix + "/include", *more, *sources, "-o", self.so[part], cwd=part)
        return os.path.join(part, self.so[part])


def exports(path):
    out = subprocess.run([tool("nm"), "-D", "--defined-only", path], stdout=subprocess.PIPE, check=True).stdout.decode()
    return [line.split()[-1] for line in out.splitlines()]


# ---- build ----------------------------------------------------------------------------------------------------------
def test_build_plain():
    with scratch() as folder:
        kit = Kit(folder)
        for part in (kit.backend, kit.loader):
            for flags in (STRICT, STRICT + ["-std=c11", "-O2", "-Wpedantic", "-Wshadow"]):
                equal(exports(kit.plain(part, *flags)), ["minerva_plugin_entry"])


def test_build_make():
    with scratch() as folder:
        kit = Kit(folder)
        make, env = tool("make"), kit.pkg_config()
        for part in (kit.backend, kit.loader):
            has(do(make, "CFLAGS=-O1 -Werror", cwd=part, env=env), "-I")
            equal(exports(os.path.join(part, kit.so[part])), ["minerva_plugin_entry"])
            do(make, "install", "DESTDIR=" + folder + "/staged", cwd=part, env=env)
        staged = sorted(os.path.join(at, f) for at, _, files in os.walk(folder + "/staged") for f in files)
        equal([os.path.basename(s) for s in staged], ["template.so", "template_loader.so"])
        plugins = {os.path.dirname(p["path"]) for p in minerva("plugins", "--json", exe=kit.exe, env=kit.env()).json()}
        assert any(os.path.realpath(p).endswith(os.path.dirname(staged[0])[len(folder + "/staged"):]) for p in plugins), (staged, plugins)


def test_build_meson():
    with scratch() as folder:
        kit = Kit(folder)
        meson, env = tool("meson", "MESON"), kit.pkg_config()
        for part in (kit.backend, kit.loader):
            do(meson, "setup", "build", "--werror", cwd=part, env=env)
            do(tool("ninja"), "-C", "build", cwd=part, env=env)
            equal(exports(os.path.join(part, "build", kit.so[part])), ["minerva_plugin_entry"])


def test_build_cxx():
    with scratch() as folder:
        kit = Kit(folder)
        for name, compiler, standard in (("h.c", tool("cc", "CC"), "c11"), ("h.cpp", tool("c++", "CXX"), "c++17")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(HEADER % "")
            do(compiler, "-std=" + standard, *STRICT, "-Wpedantic", "-fsyntax-only", "-I", kit.prefix + "/include", name, cwd=folder)


# ---- check ----------------------------------------------------------------------------------------------------------
def passes(kit, *args):
    r = minerva("plugins", "check", *args, "--json", exe=kit.exe, env=kit.env(), code=None, timeout=500)
    report = r.json()
    bad = [(x["id"], x["message"]) for x in report["rules"] if x["status"] == "failed"]
    equal((bad, r.code), ([], 0))
    assert report["passed"] > 10, report


def test_check_backend():
    with scratch() as folder:
        kit = Kit(folder)
        passes(kit, kit.plain(kit.backend, "-O2"))


def test_check_loader():
    with scratch() as folder:
        kit = Kit(folder)
        so = kit.plain(kit.loader, "-O2")
        do(tool("python3"), "make_sample.py", "sample.mnt", cwd=kit.loader)
        passes(kit, so, "--model", kit.loader + "/sample.mnt")


# ---- run ------------------------------------------------------------------------------------------------------------
def golden():
    with open(os.path.join(MODEL, "golden.json"), encoding="utf-8") as f:
        return json.load(f)


def tells(kit, story, *args, env):
    r = minerva("run", "--prompt-ids", ",".join(map(str, story["prompt_ids"])), "-n", "160", "--temp", "0", "--precision", "exact", "--json", *args,
                exe=kit.exe, env=env)
    equal((r.json()["ids"], r.json()["text"]), (story["greedy_ids"], story["text"]))
    return r


def test_run_listed():
    with scratch() as folder:
        kit = Kit(folder)
        kit.plain(kit.backend), kit.plain(kit.loader)
        env = kit.env(MINERVA_PLUGIN_PATH=kit.backend + ":" + kit.loader)
        found = {p["id"]: (p["kind"], p["status"], p["reason"]) for p in minerva("plugins", "--json", exe=kit.exe, env=env).json()}
        equal(found["template"], ("backend", "ok", ""))
        equal(found["template_loader"], ("loader", "ok", ""))


def test_run_backend():
    with scratch() as folder:
        kit = Kit(folder)
        kit.plain(kit.backend, "-O2")
        env = kit.env(MINERVA_PLUGIN_PATH=kit.backend)
        for story in golden()[:2]:
            tells(kit, story, "--device", "template,cpu", env=env)
        record = minerva("devices", "--explain", "-m", MODEL, "--device", "template,cpu", "--json", exe=kit.exe, env=env).json()
        devices = [s["device"].split(":")[0] for s in record["placement"]["segments"]]
        assert "template" in devices and len(set(devices)) == 2, devices


def test_run_loader():
    with scratch() as folder:
        kit = Kit(folder)
        kit.plain(kit.loader, "-O2")
        env, python3 = kit.env(MINERVA_PLUGIN_PATH=kit.loader), tool("python3")
        do(python3, "make_sample.py", "sample.mnt", cwd=kit.loader)
        has(minerva("inspect", kit.loader + "/sample.mnt", exe=kit.exe, env=env).out, "format mnt", "blk.0.attn_q.weight", "llama.block_count = 1")
        os.mkdir(folder + "/story")
        do(python3, "make_sample.py", folder + "/story/story.mnt", MODEL, cwd=kit.loader)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(os.path.join(MODEL, name), folder + "/story")
        tells(kit, golden()[0], "-m", folder + "/story/story.mnt", env=env)


def test_run_profile():
    """Units of both devices of a split, each by its own plugin."""
    with scratch() as folder:
        kit = Kit(folder)
        kit.plain(kit.backend)
        parts = minerva("bench", "-m", MODEL, "--profile", "-p", "8", "-n", "0", "-r", "1", "--json", "--device", "template,cpu", exe=kit.exe,
                        env=kit.env(MINERVA_PLUGIN_PATH=kit.backend)).lines()
        units = parts[0]["units"]
        equal({u["device"] for u in units}, {"template:0", "cpu_simd"})
        equal(sorted(u["node"] for u in units), list(range(len(units))))
        assert all(u["flop"] > 0 for u in units if u["op"] == "LINEAR"), units


# ---- howto ----------------------------------------------------------------------------------------------------------
def howto():
    with open(os.path.join(ROOT, "docs", "plugin-howto.md"), encoding="utf-8") as f:
        return f.read()


def test_howto_rules():
    """A failed rule names docs/plugin-howto.md#rule-GROUP-NAME: each rule has its section, and no section is of a rule that is gone."""
    with open(os.path.join(ROOT, "tools", "check", "rules.def"), encoding="utf-8") as f:
        rules = ["rule-%s-%s" % pair for pair in re.findall(r"^RULE\((\w+), (\w+),", f.read(), re.M)]
    sections = re.findall(r"^#+ (rule-[\w-]+)$", howto(), re.M)
    assert len(rules) > 10, rules
    equal(sorted(set(rules) - set(sections)), [])
    equal(sorted(set(sections) - set(rules)), [])
    equal(len(sections), len(set(sections)))


def test_howto_names():
    """What it says of the ABI exists: MN_ names, functions of the tables, files, links."""
    text = howto()
    with open(os.path.join(ROOT, "include", "minerva", "plugin.h"), encoding="utf-8") as f:
        header = f.read()
    names = set(re.findall(r"\bMN_[A-Z0-9_]*[A-Z0-9]\b(?!_?\*)", text))
    dtypes = {"MN_" + n for n in re.findall(r"\bX\((\w+),", header)}
    gone = sorted(n for n in names if n not in dtypes and not re.search(r"\b%s\b" % n, header))
    equal(gone, [])
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert link.startswith("http") or os.path.exists(os.path.join(ROOT, "docs", link)), link
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)}
    equal(sorted(a for a in re.findall(r"\]\(#([^)]*)\)", text) if a not in anchors), [])


def test_howto_examples():
    """Code that the guide says is the template's is the template's, but for comments and spaces."""
    sources = ""
    for at in ("plugins/template", "loaders/template"):
        for name in sorted(os.listdir(os.path.join(ROOT, at))):
            if name.endswith((".c", ".h")):
                with open(os.path.join(ROOT, at, name), encoding="utf-8") as f:
                    sources += f.read()
    bare = lambda c: re.sub(r"\s+", "", re.sub(r"/\*.*?\*/", "", c, flags=re.S))
    sources, blocks = bare(sources), re.findall(r"^```c\n(.*?)^```", howto(), re.M | re.S)
    assert len(blocks) > 3, blocks
    for block in blocks:
        for piece in re.split(r"^ *\.\.\.\n", block, flags=re.M):
            assert bare(piece) in sources, piece


if __name__ == "__main__":
    cli_test.main(globals())
