#!/usr/bin/env python3
"""The wheel of ./bootstrap package wheel, from a clone of the last commit, in a fresh virtual environment with nothing else on PATH: its first story takes
at most ten seconds, all its libraries are the wheel's own, Python's or glibc's, its command and its server run. wheel_root.py [WHEEL]"""
import glob
import os
import subprocess
import sys
import tempfile
import time

import wheel_test
from wheel_test import ROOT, archive, run

SERVER = "import minerva\nwith minerva.serve() as s: print(s.url)"


def make(folder):
    """The wheel, of a copy of the last commit."""
    source = os.path.join(folder, "source")
    os.makedirs(source)
    subprocess.run(["tar", "-x", "-C", source], check=True, input=subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout)
    subprocess.run([source + "/bootstrap", "package", "wheel", folder + "/out"], check=True, stdout=subprocess.DEVNULL)
    return glob.glob(folder + "/out/*.whl")[0]


def is_known(path, env):
    """A library of the wheel, of Python (its modules and what they need), of glibc or of GCC, or a driver that is opened where there is one."""
    name = os.path.basename(path)
    return path.startswith(os.path.realpath(env["HOME"])) or archive.SYSTEM.match(name) or "/python3" in path or name.startswith(
        ("libOpenCL.", "libpython3", "libz.", "libexpat.", "libffi.", "libcrypto.", "libssl.", "libbz2.", "liblzma.", "libuuid."))


def main():
    if not wheel_test.pip():
        print("skipped: needs a wheel of pip (python3-pip-whl)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else make(scratch)
        print("ok    %.1f MB" % (os.path.getsize(path) / 1e6))
        env = wheel_test.install(path, os.path.join(scratch, "env"))
        begin = time.monotonic()
        story = run(env, "python", "-c", wheel_test.STORY)
        seconds = time.monotonic() - begin
        assert len(story.split()) > 20 and seconds <= wheel_test.MOST_SECONDS, (seconds, story)
        print("ok    a story after %.1f s: %s" % (seconds, " ".join(story.split()[:12])))
        opened = eval(run(env, "python", "-c", wheel_test.LIBRARIES))  # a set of texts
        strange = sorted(p for p in opened if not is_known(p, env))
        assert not strange, strange
        print("ok    %d libraries, none of the machine's own" % len(opened))
        assert len(run(env, "minerva", "run", "-p", "Tell me a story.", "-n", "30").split()) > 10
        assert "cpu_simd" in run(env, "minerva", "plugins")
        assert run(env, "python", "-c", SERVER).startswith("http://")
        print("ok    the command and the server")


if __name__ == "__main__":
    main()
