#!/usr/bin/env python3
"""without_libraries.py MINERVA WITHOUT COMMAND...: WITHOUT is minerva as it is built on a machine that lacks what is optional, libcurl and
libmicrohttpd: its pages and completions are the same, what needs a library says which package has it, and all else works. COMMAND: the commands
that have a page."""
import subprocess
import sys

MINERVA, WITHOUT = sys.argv[1:3]
FAILED = []


def run(exe, *words):
    return subprocess.run([exe, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


def check(ok, what, said=""):
    print(("ok    " if ok else "FAIL  ") + what)
    if not ok:
        print(said)
        FAILED.append(what)


def same(*words):
    """Both programs print the same, without an error."""
    want, got = run(MINERVA, *words), run(WITHOUT, *words)
    check(got.returncode == 0 and got.stdout and got.stdout == want.stdout, " ".join(words), got.stdout[-500:] + got.stderr)


def refused(package, *words):
    """One line that names the package, and nothing on standard output."""
    p = run(WITHOUT, *words)
    check(p.returncode == 1 and not p.stdout and package in p.stderr.splitlines()[-1], "%s names %s" % (" ".join(words), package),
          "exit code %d\n%s%s" % (p.returncode, p.stdout, p.stderr))


for command in ["help"] + sys.argv[3:]:
    same(*command.split(), "--help=man")
for shell in ("bash", "zsh", "fish"):
    same("completion", shell)
same("run", "-p", "Tell me a story.", "-n", "8", "--device", "reference", "--seed", "1")
refused("libcurl4-openssl-dev", "pull", "org/repo")
refused("libcurl4-openssl-dev", "bench", "--url", "http://127.0.0.1:9", "-p", "1", "-n", "1")
refused("libcurl4-openssl-dev", "serve", "--port", "0", "--replicas", "http://127.0.0.1:9")
refused("libmicrohttpd-dev", "serve", "--port", "0", "--device", "reference")
sys.exit(bool(FAILED))
