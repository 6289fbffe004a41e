#!/usr/bin/env python3
"""cuda_kernels.py: the kernels of plugins/cuda against tests/kernels/cuda_kernels.txt. Needs neither nvcc nor a GPU.

Every __global__ function has a row, and every row a function; the tests and benchmarks that a row names are there; every kernel waits for
its predecessor (cu_wait), unless it is launched by <<<>>>, which asks for no early start."""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(")
DEVICE = re.compile(r"__device__[\w\s]*?[*&\s](\w+)\s*\((?=[^;{}]*\)\s*\{)")
FAILED = []


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def sources():
    """Kernel -> the text of its file behind it."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "plugins", "cuda", "*.cu*"))):
        source = text(path)
        for m in KERNEL.finditer(source):
            found[m.group(1)] = (os.path.basename(path), source, m.end())
        if len(KERNEL.findall(source)) != len(re.findall(r"__global__", source)):
            FAILED.append("%s: a __global__ that this test cannot read" % os.path.basename(path))
    return found


def body(source, at):
    """What stands between the braces of the function whose parameters begin at `at`."""
    at = begin = source.index("{", at)
    depth = 0
    for at in range(begin, len(source)):
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        if not depth:
            break
    return source[begin:at]


def waits(source, at):
    """The kernel itself, or a __device__ function of its file that it calls."""
    own = body(source, at)
    called = [body(source, m.end()) for m in DEVICE.finditer(source) if re.search(r"\b%s\s*(?:<[^<>;]*>)?\(" % m.group(1), own)]
    return any("cu_wait(" in text or "griddepcontrol.wait" in text for text in [own] + called)


def check_row(name, tests, bench):
    for test in tests.split(","):
        if test.startswith("part:"):
            there = re.search(r"^ +%s\)|^ +.*\b%s\b.*\) step" % (test[5:], test[5:]), text("tools", "gpu_tests.sh"), re.M)
        elif test == "emulated":
            there = text("tests", "kernels", "test_cuda_emulated.cpp")
        else:
            there = "cmocka_unit_test(%s)" % test in text("tests", "kernels", "test_cuda.c")
        if not there:
            FAILED.append("%s: there is no test %s" % (name, test))
    if bench == "bench_cuda":
        there = re.search(r'{"(?:[^"]* )?%s(?: [^"]*)?",' % name, text("tests", "kernels", "bench_cuda.c"))
    else:
        there = bench == "cuda_gemm" or re.match(r"-: \w", bench)
    if not there:
        FAILED.append("%s: no benchmark %s names it" % (name, bench))


def main():
    kernels = sources()
    listed = set()
    for line in text("tests", "kernels", "cuda_kernels.txt").splitlines():
        if not line or line[0] == "#":
            continue
        name, tests, bench = line.split(None, 2)
        listed.add(name)
        check_row(name, tests, bench)
    for name in sorted(set(kernels) - listed):
        FAILED.append("%s of %s has no row in tests/kernels/cuda_kernels.txt" % (name, kernels[name][0]))
    for name in sorted(listed - set(kernels)):
        FAILED.append("%s is listed and is not in plugins/cuda" % name)
    for name, (file, source, at) in sorted(kernels.items()):
        if not waits(source, at) and not re.search(r"\b%s(?:<[^<>]*>)?<<<" % name, source):
            FAILED.append("%s of %s never waits for its predecessor" % (name, file))
    for line in FAILED:
        print("FAIL  " + line)
    print("%d kernels, %d failures" % (len(kernels), len(FAILED)))
    sys.exit(1 if FAILED else 0)


main()
