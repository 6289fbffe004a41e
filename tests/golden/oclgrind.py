#!/usr/bin/env python3
"""oclgrind.py MINERVA [all]: the OpenCL kernels under Oclgrind (Debian package oclgrind), an OpenCL 1.2 device with 32 KiB of local memory that
reports invalid accesses and data races: two small fixtures with the kernels of CPUs and with groups of 16 and 32 items, or all of them, as many at
once as there are processors. The ids are those of reference. Exit code 77: skipped, with the reason. Its search for uninitialised values is not used:
version 21.10 crashes in it (memcpy in Uninitialized::instructionExecuted) at a vload from private memory, and takes what clEnqueueFillBuffer filled
for uninitialised."""
import concurrent.futures
import functools
import os
import subprocess
import sys
import tempfile

MINERVA = sys.argv[1]
FIXTURES = os.path.join(os.environ["MINERVA_TEST_DATA"], "fixtures")
RUNTIME = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
ALL = len(sys.argv) > 2 and sys.argv[2] == "all"
# fixture, items of a row, items of an output, items of a sub-group that local memory plays (-1: there are none)
CASES = [("llama", 32, 16, 8), ("llama", 32, 16, -1), ("llama-mlx4", 1, 1, -1)]


def run(name, device, env):
    command = [MINERVA, "run", "-m", os.path.join(FIXTURES, name), "--prompt-ids", "1,5", "-n", "2" if ALL else "1", "--temp", "0", "--device", device]
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")


def says(text):
    """What Oclgrind found; queries of what it does not know are no errors of the kernels."""
    return [line for line in text.splitlines() if "data race" in line or line.startswith("Invalid ") or "Kernel:" in line]


if not os.path.exists(RUNTIME):
    print("SKIP  no Oclgrind (Debian package oclgrind)")
    sys.exit(77)
if ALL:
    names = sorted(n for n in os.listdir(FIXTURES) if os.path.exists(os.path.join(FIXTURES, n, "golden.safetensors")) and "bert" not in n)
    CASES = [(name, rows, outputs, size) for name in names for rows, outputs, size in ((1, 1, -1), (32, 16, -1), (32, 16, 8))]


def judge(name, rows, outputs, size):
    """(whether the case fails, what was found)"""
    env = dict(os.environ, OCL_ICD_VENDORS=FOLDER + "/oclgrind.icd", XDG_CACHE_HOME=FOLDER, OCLGRIND_DATA_RACES="1", MINERVA_PROBE_TIMEOUT="100",
               MINERVA_OPENCL_LANES=str(rows), MINERVA_OPENCL_LINEAR_LANES=str(outputs), MINERVA_OPENCL_SUB_GROUPS=str(size))
    got = run(name, "opencl", env)
    found = says(got.stdout + got.stderr)
    return (found or got.returncode or got.stdout != answer(name),
            "found %r, expected %r; exit code %d\n%s" % (got.stdout, answer(name), got.returncode, "\n".join(found[:20]) or got.stderr[-2000:]))


@functools.lru_cache(maxsize=None)
def answer(name):
    return run(name, "reference", dict(os.environ, XDG_CACHE_HOME=FOLDER)).stdout


failed = 0
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as FOLDER, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    with open(FOLDER + "/oclgrind.icd", "w", encoding="ascii") as f:
        f.write(RUNTIME + "\n")
    for case, (bad, found) in zip(CASES, pool.map(lambda case: judge(*case), CASES)):
        print("%s  %s, %d and %d items, sub-groups of %d" % ("FAIL" if bad else "ok  ", *case), flush=True)
        if bad:
            failed += 1
            print(found)
sys.exit(1 if failed else 0)
