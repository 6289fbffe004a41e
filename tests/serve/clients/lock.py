#!/usr/bin/env python3
"""Pins packages by hash for tests: lock.py 'NAME==VERSION ...' >FILE.txt, which ../pypi.py installs. uv (a package of PyPI) finds what else they need; of each package the
hashes of those files are kept that CPython 3.11 to 3.14 can use on Linux, on x86-64 and on 64-bit Arm."""
import os
import re
import subprocess
import sys
import tempfile
import tomllib

PYTHON = "py3|py2\\.py3|cp3[0-9]*-abi3|cp31[1-4]-cp31[1-4]"
PLATFORM = "any|manylinux[a-z0-9_.]*_(x86_64|aarch64)"


def is_wanted(name):
    return re.search("-(%s)(-none)?-(%s)\\.whl$" % (PYTHON, PLATFORM), name) is not None


def name_of(wheel):
    return wheel.get("name") or wheel["url"].rsplit("/", 1)[1]


def rows(packages):
    for p in packages:
        hashes = [w["hashes"]["sha256"] for w in p.get("wheels", ()) if is_wanted(name_of(w))]
        marker = " ; " + p["marker"] if "marker" in p else ""
        if not hashes:
            print("%s has no wheel for Linux, and is left out" % p["name"], file=sys.stderr)
            continue
        yield " \\\n    ".join(["%s==%s%s" % (p["name"], p["version"], marker), *("--hash=sha256:" + h for h in hashes)])


def main():
    wanted = " ".join(sys.argv[1:]).split()
    with tempfile.TemporaryDirectory() as folder:
        lock = os.path.join(folder, "pylock.toml")
        subprocess.run(["uv", "pip", "compile", "-q", "--universal", "--python-version", "3.11", "--format", "pylock.toml", "-o", lock, "-"],
                       input="\n".join(wanted), text=True, check=True, stdout=subprocess.DEVNULL)
        with open(lock, "rb") as f:
            packages = tomllib.load(f)["packages"]
    print("# Made by: lock.py '%s'" % " ".join(wanted))
    print("\n".join(rows(packages)))


if __name__ == "__main__":
    main()
