#!/usr/bin/env python3
"""Minors mix in both directions: mixing.py SOURCE WORK BUILD CC...

Two builds under the address sanitizer, `now` with today's plugin.h (numbered 1.0 while it is below: the freeze is that one
number) and `next` with the minor after it, in which everything that can grow has grown. Each host runs the other's plugins,
as they are and through between.c, and tells the golden story. With BUILD other than "-" only this: a plugin of each kept release
in today's host, as that folder has built it."""
import json
import os
import shutil
import subprocess
import sys
import time

import abi_header

SOURCE, WORK, BUILD, CC = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3], sys.argv[4:]
HERE = os.path.dirname(os.path.abspath(__file__))
STORYTELLER = os.path.join(SOURCE, "models", "storyteller")
GGUF = os.path.join(SOURCE, "tests", "data", "storyteller-q8_0.gguf")
PLUGINS = {"reference": ("plugins", "MN_KIND_BACKEND"), "gguf": ("loaders", "MN_KIND_LOADER"), "safetensors": ("loaders", "MN_KIND_LOADER"),
           "template": ("plugins", "MN_KIND_BACKEND")}
FAILED = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what, flush=True)
    if not ok:
        FAILED.append(what)


def run(args, env=None, may_fail=False):
    p = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    if p.returncode and not may_fail:
        sys.exit("FAIL  exit code %d of %s\n%s%s" % (p.returncode, " ".join(map(str, args))[:400], p.stdout.decode(errors="replace")[-3000:], p.stderr.decode(errors="replace")[-6000:]))
    return p


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    return path


def build(name, header):
    """A reduced build of the tree with this header in front of its own."""
    folder = os.path.join(WORK, "build-" + name)
    env = dict(os.environ, CC=" ".join(CC))
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        run(["meson", "setup", folder, SOURCE, "-Dc_args=-include " + header, "-Db_sanitize=address", "-Db_lundef=false", "-Doptimization=0", "-Dtests=disabled",
             "-Dcpu_simd=disabled", "-Dopenblas=disabled", "-Dmlx=disabled", "-Dcuda=disabled", "-Dopencl=disabled"], env)
    start = time.time()
    run(["ninja", "-C", folder], env)
    print("      %s: plugin.h %d.%d, built in %.0f s" % ((name,) + abi_header.read(header, CC).version + (time.time() - start,)))
    vendor(folder, ["-fsanitize=address", "-include", header])
    return folder


def vendor(folder, more):
    """The plugin that vendors clone, built as they do."""
    source, out = os.path.join(SOURCE, "plugins", "template"), plugin_file(folder, "template")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    run(CC + ["-std=c11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-I", os.path.join(SOURCE, "include")] + more +
        sorted(os.path.join(source, f) for f in os.listdir(source) if f.endswith(".c")) + ["-lm", "-o", out])
    os.chmod(os.path.dirname(out), 0o755)


def plugin_file(folder, name):
    if name == "template":
        return os.path.join(WORK, "vendor-" + os.path.basename(folder), "template.so")
    return os.path.join(folder, PLUGINS[name][0], name, name + ".so")


def between(name, header, inner_build):
    """A folder of plugins that play the release of `header` before the plugins of a build."""
    folder = os.path.join(WORK, "between-" + name)
    for plugin, (_, kind) in PLUGINS.items():
        os.makedirs(os.path.join(folder, "inner"), exist_ok=True)
        shutil.copyfile(plugin_file(inner_build, plugin), os.path.join(folder, "inner", plugin + ".so"))
        run(CC + ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"] + ([] if BUILD != "-" else ["-fsanitize=address"]) + ["-fvisibility=hidden", "-fPIC", "-shared", "-include", header,
                  '-DBETWEEN_ID="%s"' % plugin, "-DBETWEEN_KIND=" + kind, os.path.join(HERE, "between.c"), "-ldl", "-o", os.path.join(folder, plugin + ".so")])
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o755)
    return folder


class Host:
    def __init__(self, folder, plugins, **more):
        self.exe = os.path.join(folder, "tools", "minerva")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MINERVA_")}
        for k in ("CONFIG", "CACHE", "DATA"):
            self.env["XDG_%s_HOME" % k] = os.path.join(WORK, "home")
        self.env.update(MINERVA_PLUGIN_PATH_ONLY=":".join(plugins), **more)

    def minerva(self, *args, may_fail=False):
        return run([self.exe] + list(args), self.env, may_fail)

    def greedy(self, model, ids, n, device="reference"):
        out = self.minerva("run", "-m", model, "--prompt-ids", ",".join(map(str, ids)), "-n", n, "--temp", 0, "--precision", "exact", "--device", device, "--json")
        return json.loads(out.stdout.decode())["ids"]


def folders(build_folder):
    return [os.path.dirname(plugin_file(build_folder, p)) for p in PLUGINS]


def tell(title, host, want, quantised):
    start = time.time()
    state = {p["id"]: p["status"] for p in listed(host)}
    check(all(state.get(p) == "ok" for p in PLUGINS), "%s: the plugins are accepted (%s)" % (title, state))
    check(host.greedy(STORYTELLER, want["prompt_ids"], 160) == want["greedy_ids"], "%s: the golden story" % title)
    check(host.greedy(STORYTELLER, want["prompt_ids"], 24, "template,reference") == want["greedy_ids"][:24], "%s: its begin in segments of two plugins" % title)
    got = host.greedy(GGUF, want["prompt_ids"], 8)
    check(not quantised or got == quantised[0], "%s: the same from a GGUF (%.0f s)" % (title, time.time() - start))
    quantised.append(got)


def kept(folder, host_version, want, quantised):
    """A plugin of each kept release in this host, with that build's own plugins behind it."""
    for name in sorted(n for n in os.listdir(os.path.join(HERE, "headers")) if n.endswith(".h")):
        header = os.path.join(HERE, "headers", name)
        version, front = abi_header.read(header, CC).version, between("kept-" + name[7:-2], header, folder)
        if version >= (1, 0) or version == host_version:
            tell("a plugin built with " + name, Host(folder, [front]), want, quantised)
            continue
        said = ["%s: %s" % (p["status"], p["reason"]) for p in listed(Host(folder, [front]))]
        check(said and all("ABI" in s and not s.startswith("ok") for s in said), "a plugin built with %s, before the freeze, is refused: %s" % (name, said[:1]))


def listed(host):
    out = json.loads(host.minerva("plugins", "--json").stdout.decode())
    return out["plugins"] if isinstance(out, dict) else out


def main():
    start = time.time()
    today = abi_header.read(os.path.join(SOURCE, "include", "minerva", "plugin.h"), CC)
    with open(os.path.join(STORYTELLER, "golden.json"), encoding="utf-8") as f:
        want = min(json.load(f), key=lambda e: len(e["prompt_ids"]) + len(e["greedy_ids"]))
    quantised = []
    if BUILD != "-":
        vendor(os.path.abspath(BUILD), [])
        kept(os.path.abspath(BUILD), today.version, want, quantised)
        sys.exit(bool(FAILED))
    major, minor = max(today.version, (1, 0))
    now = write(os.path.join(WORK, "now", "plugin.h"), abi_header.with_version(today.text, major, minor))
    after = write(os.path.join(WORK, "next", "plugin.h"), abi_header.next_minor(today, major, minor + 1))
    grown = abi_header.read(after, CC)
    check(not abi_header.breaks(abi_header.read(now, CC), grown), "the next minor is a compatible extension")
    still = sorted(s for s in today.structs if s not in today.fixed and grown.facts[s] == today.facts[s])
    check(not still, "every struct that can grow has grown (%d of %d)" % (len(today.structs) - len(today.fixed), len(today.structs)))
    now_build, next_build = build("now", now), build("next", after)
    tell("today's plugins in today's host", Host(now_build, folders(now_build)), want, quantised)
    tell("today's plugins in the next host", Host(next_build, folders(now_build)), want, quantised)
    tell("the next plugins in today's host", Host(now_build, folders(next_build)), want, quantised)
    old_in_new = between("old-in-new", after, now_build)
    new_in_old = between("new-in-old", now, next_build)
    tell("today's plugins, every block exact and its new fields garbage", Host(next_build, [old_in_new]), want, quantised)
    tell("the next plugins, every block exact as today", Host(now_build, [new_in_old]), want, quantised)

    ids = ",".join(map(str, want["prompt_ids"]))
    host = Host(now_build, [new_in_old], MINERVA_REFERENCE_OLDER="1")
    p = host.minerva("run", "-m", STORYTELLER, "--prompt-ids", ids, "-n", 1, "--device", "reference", may_fail=True)
    check(p.returncode == 3 and b"contract" in p.stderr, "a plugin that says native, but knows only the contract before, is a no: exit %d, %s" % (p.returncode, p.stderr.decode()[:200].strip()))

    kept(now_build, (major, minor), want, quantised)
    print("%.0f s" % (time.time() - start))
    sys.exit(bool(FAILED))


main()
