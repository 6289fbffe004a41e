#!/usr/bin/env python3
"""memcheck.py MINERVA [all]: the OpenCL kernels on PoCL under Valgrind (Debian package valgrind), whose Memcheck follows uninitialised values from
buffers and private memory to where they decide something, which is at the latest the draw of an id: a small fixture with experts and packed weights
with the kernels of CPUs, or all fixtures, with groups of 32 and 16 items, too. The ids are those of reference. Local memory that an earlier group has
written counts as initialised. Exit code 77: skipped, with the reason."""
import os
import shutil
import subprocess
import sys
import tempfile

MINERVA = sys.argv[1]
FIXTURES = os.path.join(os.environ["MINERVA_TEST_DATA"], "fixtures")
ALL = len(sys.argv) > 2 and sys.argv[2] == "all"
# The loader compares strings by words of 8 bytes.
SUPPRESSED = "{\n   loader\n   Memcheck:Addr8\n   fun:strncmp\n   fun:is_dst\n   ...\n}\n"


def run(name, device, env, *under):
    command = [*under, MINERVA, "run", "-m", os.path.join(FIXTURES, name), "--prompt-ids", "1,5", "-n", "2", "--temp", "0", "--device", device]
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")


def skip(why):
    print("SKIP  " + why)
    sys.exit(77)


if not os.path.exists(os.environ["OCL_ICD_VENDORS"]):
    skip("no PoCL (Debian package pocl-opencl-icd), or a build with sanitizers")
if not shutil.which("valgrind"):
    skip("no Valgrind (Debian package valgrind)")
cases = [("gpt-oss-mxfp4", 1, 1)]
if ALL:
    names = sorted(n for n in os.listdir(FIXTURES) if os.path.exists(os.path.join(FIXTURES, n, "golden.safetensors")) and "bert" not in n)
    cases = [(name, *items) for name in names for items in ((1, 1), (32, 16))]
failed = 0
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    with open(folder + "/suppressed", "w", encoding="ascii") as f:
        f.write(SUPPRESSED)
    for name, rows, outputs in cases:
        env = dict(os.environ, XDG_CACHE_HOME=folder, MINERVA_OPENCL_FILL="0", MINERVA_OPENCL_LANES=str(rows),
                   MINERVA_OPENCL_LINEAR_LANES=str(outputs))
        run(name, "opencl", env)  # compiles the programs
        got = run(name, "opencl", env, "valgrind", "-q", "--error-exitcode=99", "--suppressions=" + folder + "/suppressed")
        want = run(name, "reference", env)
        bad = got.returncode or got.stdout != want.stdout
        print("%s  %s, %d and %d items" % ("FAIL" if bad else "ok  ", name, rows, outputs))
        if bad:
            failed += 1
            print("found %r, expected %r; exit code %d\n%s" % (got.stdout, want.stdout, got.returncode, got.stderr[-4000:]))
sys.exit(1 if failed else 0)
