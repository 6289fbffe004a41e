#!/usr/bin/env python3
"""Minors mix in both directions: mixing.py SOURCE WORK BUILD SANITIZE kept|minors CC...

BUILD is a build of today's tree, with the address sanitizer if SANITIZE is "address". `kept`: a plugin of each kept release in its
host. `minors`: `now` is that build (with 1.0 for its number while that is below: the freeze is that one number), `next` one of the
minor after it, in which everything that can grow has grown. Each host runs the other's plugins, as they are and through between.c, and
tells the golden story."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import abi_header

SOURCE, WORK, BUILD = (os.path.abspath(a) for a in sys.argv[1:4])
SANITIZE, PART, CC = sys.argv[4], sys.argv[5], sys.argv[6:]
CHECKED = ["-fsanitize=address"] if SANITIZE == "address" else []
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


def run(args, env=None, may_fail=False, cwd=None):
    p = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd)
    if p.returncode and not may_fail:
        sys.exit("FAIL  exit code %d of %s\n%s%s" % (p.returncode, " ".join(map(str, args))[:400], p.stdout.decode(errors="replace")[-3000:], p.stderr.decode(errors="replace")[-6000:]))
    return p


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    return path


# What the number of a plugin.h is compiled into.
NUMBERED = re.compile("MN_ABI_VERSION|MN_ABI_OLDEST|MN_PLUGIN_NOTE")
TARGETS = ["tools/minerva", "runtime/registry/minerva-probe", "plugins/reference/reference.so", "loaders/gguf/gguf.so",
           "loaders/safetensors/safetensors.so"]


def renumbered(header):
    """BUILD with the number of this header, which is all that differs in it: sources that name the number are compiled again, as BUILD
    compiled them; what contains one of them is linked again; all other objects are those of BUILD."""
    folder, moved = os.path.join(WORK, "build-now"), {}
    shutil.rmtree(folder, ignore_errors=True)
    for line in run(["ninja", "-C", BUILD, "-t", "commands"] + TARGETS).stdout.decode().splitlines():
        words = shlex.split(line)
        if "-c" in words:
            with open(os.path.join(BUILD, words[-1]), encoding="utf-8") as f:
                if not NUMBERED.search(f.read()):
                    continue
            at = words.index("-MD") # with what says where the dependencies go
            words[at:at + 5] = ["-include", header]
        elif "gcc-ar" in line:
            words = words[words.index("&&") + 1:]
            if not any(w in moved for w in words):
                continue
        elif "-o" not in words:
            continue # what generates sources
        out = words[2] if "gcc-ar" in line else words[words.index("-o") + 1]
        moved[out] = os.path.join(folder, out)
        os.makedirs(os.path.dirname(moved[out]), exist_ok=True)
        # An archive names its members from its own place on.
        run([moved.get(w, os.path.join(BUILD, w) if w.endswith(".o") else w) for w in words], cwd=BUILD)
        for name in re.findall(r"-soname,([^ ,]+)", line):
            if name != os.path.basename(out):
                os.symlink(os.path.basename(out), os.path.join(os.path.dirname(moved[out]), name))
    shutil.copyfile(os.path.join(BUILD, "runtime", "minerva-build-tree"), os.path.join(folder, "runtime", "minerva-build-tree"))
    print("      now: plugin.h %d.%d, %d files made again" % (abi_header.read(header, CC).version + (len(moved),)))
    vendor(folder, CHECKED + ["-include", header])
    return folder


def build(name, header):
    """A reduced build of the tree with this header in front of its own."""
    folder = os.path.join(WORK, "build-" + name)
    env = dict(os.environ, CC=" ".join(CC))
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        run(["meson", "setup", folder, SOURCE, "-Dc_args=-include " + header, "-Dwarning_level=0", "-Db_sanitize=" + SANITIZE, "-Db_lundef=false", "-Doptimization=0", "-Dtests=disabled",
             "-Dcpu_simd=disabled", "-Dopenblas=disabled", "-Dmlx=disabled", "-Dcuda=disabled", "-Dopencl=disabled"], env)
    start = time.time()
    run(["ninja", "-C", folder] + TARGETS, env)
    print("      %s: plugin.h %d.%d, built in %.0f s" % ((name,) + abi_header.read(header, CC).version + (time.time() - start,)))
    vendor(folder, CHECKED + ["-include", header])
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
        run(CC + ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"] + CHECKED + ["-fvisibility=hidden", "-fPIC", "-shared", "-include", header,
                  '-DBETWEEN_ID="%s"' % plugin, "-DBETWEEN_KIND=" + kind, os.path.join(HERE, "between.c"), "-ldl", "-o", os.path.join(folder, plugin + ".so")])
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o755)
    return folder


class Host:
    def __init__(self, folder, plugins, **more):
        self.exe = os.path.join(folder, "tools", "minerva")
        # LD_LIBRARY_PATH, which meson sets to the build's folders, would give this program another host's library.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MINERVA_") and k != "LD_LIBRARY_PATH"}
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
    if PART == "kept":
        vendor(BUILD, CHECKED)
        kept(BUILD, today.version, want, quantised)
        sys.exit(bool(FAILED))
    major, minor = max(today.version, (1, 0))
    now = write(os.path.join(WORK, "now", "plugin.h"), abi_header.with_version(today.text, major, minor))
    after = write(os.path.join(WORK, "next", "plugin.h"), abi_header.next_minor(today, major, minor + 1))
    grown = abi_header.read(after, CC)
    check(not abi_header.breaks(abi_header.read(now, CC), grown), "the next minor is a compatible extension")
    still = sorted(s for s in today.structs if s not in today.fixed and grown.facts[s] == today.facts[s])
    check(not still, "every struct that can grow has grown (%d of %d)" % (len(today.structs) - len(today.fixed), len(today.structs)))
    now_build, next_build = renumbered(now), build("next", after)
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
