#!/usr/bin/env python3
"""memcheck.py MINERVA [all]: the OpenCL kernels on PoCL under Valgrind (Debian package valgrind), whose Memcheck follows uninitialised values from
buffers and private memory to where they decide something, which is at the latest the draw of an id: a small fixture with experts and packed weights
with the kernels of CPUs, or all fixtures, as many at once as there are processors. The ids are those of reference. One item a group: groups of 4 and
4 take more than 8 minutes a fixture. Exit code 77: skipped, with the reason."""
import concurrent.futures
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
names = ["gpt-oss-mxfp4"]
if ALL:
    names = sorted(n for n in os.listdir(FIXTURES) if os.path.exists(os.path.join(FIXTURES, n, "golden.safetensors")) and "bert" not in n)


def judge(name, folder):
    """(whether the fixture fails, what was found)"""
    env = dict(os.environ, XDG_CACHE_HOME=folder, MINERVA_OPENCL_FILL="0", MINERVA_OPENCL_LANES="1", MINERVA_OPENCL_LINEAR_LANES="1",
               MINERVA_CALL_TIMEOUT="0")
    # compiles the programs, faster than Memcheck: a CPU under Valgrind is another one, without AVX-512
    run(name, "opencl", env, "valgrind", "-q", "--tool=none")
    got = run(name, "opencl", env, "valgrind", "-q", "--error-exitcode=99", "--suppressions=" + folder + "/suppressed")
    want = run(name, "reference", env)
    return (got.returncode or got.stdout != want.stdout,
            "found %r, expected %r; exit code %d\n%s" % (got.stdout, want.stdout, got.returncode, got.stderr[-4000:]))


failed = 0
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    with open(folder + "/suppressed", "w", encoding="ascii") as f:
        f.write(SUPPRESSED)
    for name, (bad, found) in zip(names, pool.map(lambda name: judge(name, folder), names)):
        print("%s  %s" % ("FAIL" if bad else "ok  ", name), flush=True)
        if bad:
            failed += 1
            print(found)
sys.exit(1 if failed else 0)
