#!/usr/bin/env python3
"""Mutants: small faults put into the product one at a time, each with the tests that notice it. By hand, not in the gate.

usage: mutants.py --check            whether every old text still stands in its file exactly once (status 1: the stale ones)
       mutants.py WORK [WORD...]     runs them all, or those with a WORD in file or note, in WORK/src and WORK/build (kept)

Prints one line each: killed by TEST, SURVIVED, STALE or DOES NOT BUILD; status 1 unless all were killed. A mutant of a part that others
are linked with takes a minute or two. A survivor wants a test; an old text that is stale wants the line as it now reads. Patterns are
short, so that a change of format leaves them alone."""
import filecmp
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# file, old text (once in the file), new text, tests that see it, what is wrong
MUTANTS = [
    ("runtime/session/pages.c", "refs[page]++;", "refs[page];", ["session"], "a shared page is not counted"),
    ("runtime/model/rope.c", "hi = ceil(hi)", "hi = floor(hi)", ["rope"], "YaRN's ramp ends a pair early"),
    ("runtime/negotiate/offer.h", "(128 * decode_us + prefill_us)", "(decode_us + prefill_us)", ["negotiate"], "drawn ids do not outweigh the prompt"),
]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def stale(root, mutant):
    """Why the mutant cannot be made, or None."""
    path = os.path.join(root, mutant[0])
    if not os.path.exists(path):
        return "%s is not there" % mutant[0]
    n = read(path).count(mutant[1])
    return None if n == 1 else "%s has %d times: %s" % (mutant[0], n, mutant[1])


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def copy_tree(src):
    """The tracked files as they are in the work tree; what is equal keeps its time."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    for name in names.rstrip("\0").split("\0"):
        here, there = os.path.join(ROOT, name), os.path.join(src, name)
        if os.path.exists(there) and filecmp.cmp(here, there, shallow=False):
            continue
        os.makedirs(os.path.dirname(there), exist_ok=True)
        shutil.copy(here, there)


def prepare(work):
    src, build = os.path.join(work, "src"), os.path.join(work, "build")
    copy_tree(src)
    if not os.path.exists(os.path.join(build, "build.ninja")):
        subprocess.run(["meson", "setup", build, src, "-Dtests=enabled", "-Dcuda=disabled"], check=True, stdout=subprocess.DEVNULL)
    return src, build


def verdict(build, tests):
    """meson builds what the tests need, and runs them up to the first that fails."""
    done = run("nice", "meson", "test", "-C", build, "--maxfail=1", "--timeout-multiplier=4", *tests)
    failed = [line for line in done.stdout.splitlines() if " FAIL " in line or " TIMEOUT " in line or "ERROR " in line]
    if "ninja: build stopped" in done.stdout:
        return "DOES NOT BUILD\n" + done.stdout[-2000:]
    if done.returncode and failed:
        return "killed: " + " ".join(failed[0].split())
    return "SURVIVED" if not done.returncode else "?\n" + done.stdout[-2000:]


def try_one(src, build, mutant):
    file, old, new, tests, _ = mutant
    path = os.path.join(src, file)
    text = read(path)
    write(path, text.replace(old, new))
    try:
        return verdict(build, tests)
    finally:
        write(path, text)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    bad = 0
    if sys.argv[1] == "--check":
        for why in filter(None, (stale(ROOT, m) for m in MUTANTS)):
            print("STALE: " + why)
            bad += 1
        sys.exit(bad != 0)
    src, build = prepare(os.path.abspath(sys.argv[1]))
    words = sys.argv[2:]
    for m in MUTANTS:
        if words and not any(w in m[0] or w in m[4] for w in words):
            continue
        why = stale(src, m)
        result = "STALE: " + why if why else try_one(src, build, m)
        bad += not result.startswith("killed")
        print("%s: %s: %s" % (m[0], m[4], result), flush=True)
    sys.exit(bad != 0)


main()
