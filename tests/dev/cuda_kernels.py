#!/usr/bin/env python3
"""cuda_kernels.py: the kernels of plugins/cuda against tests/kernels/cuda_kernels.txt. Needs neither nvcc nor a GPU.

Every __global__ function has a row, and every row a function; the tests and benchmarks that a row names are there; every kernel waits for
its predecessor (cu_wait), unless it is launched by <<<>>>, which asks for no early start. And what nvcc compiles is device code and its
launches: a function of the host in a .cu or .cuh file launches, or helps one there that does; it is short, and names nothing of the host's
part; no .c file has device code."""
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


LAUNCH = re.compile(r"\b(?:launch|launch_cluster|cudaLaunchKernelEx|cudaFuncSetAttribute|cudaFuncGetAttributes)\s*\(|<<<")
HOST_WORDS = re.compile(r"\b(?:mn_(?:status|error|host|graph|node|tensor|program|context|weights|queue|buffer|event|compile|device)|mnp_\w+|malloc|calloc"
                        r"|s?n?printf|cuda(?:Malloc|Free|Memcpy|Memset|Stream(?!_t)|Event|Graph|SetDevice|GetDevice)\w*)\b")
DEVICE_WORDS = re.compile(r"<<<|__global__|__device__|__shared__|threadIdx|blockIdx")
MOST_LINES = 30  # of a function that launches
COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def functions(source):
    """(header, body) of each function at the outer level or in a struct."""
    source = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.)*", "", COMMENTS.sub("", source), flags=re.M | re.S)
    begin = at = 0
    while at < len(source):
        c = source[at]
        if c == "{":
            header = source[begin:at].strip()
            if re.search(r"\)(?:\s*(?:const|noexcept))?$", header) and "=" not in header.split("(")[0]:
                inside = body(source, at)
                yield header, inside
                at += len(inside)
                begin = at + 1
            elif re.search(r'(?:^|\s)(?:struct|extern "C"|namespace)\b[^=()]*$', header):
                begin = at + 1
            else:
                at += len(body(source, at))
                begin = at + 1
        elif c in ";}":
            begin = at + 1
        at += 1


def host_functions():
    """Name -> text of each function of the host in what nvcc compiles; and its file."""
    bodies, places = {}, {}
    for path in sorted(glob.glob(os.path.join(ROOT, "plugins", "cuda", "*.cu*"))):
        for header, inside in functions(text(path)):
            name = re.search(r"(\w+)\s*\(", re.sub(r"__\w+__\s*\((?:[^()]|\([^()]*\))*\)", "", header))
            if not name or re.search(r"__device__|__global__|\bconstexpr\b", header):
                continue
            name = name.group(1)
            bodies[name] = bodies.get(name, "") + inside
            places[name] = os.path.basename(path)
            if inside.count("\n") > MOST_LINES:
                FAILED.append("%s: %s has %d lines; a launch has at most %d" % (places[name], name, inside.count("\n"), MOST_LINES))
            for word in HOST_WORDS.findall(header + inside):
                FAILED.append("%s: %s of the host's part in %s" % (places[name], word, name))
    return bodies, places


def check_host():
    """What the host runs of what nvcc compiles; the number of its functions."""
    bodies, places = host_functions()
    calls = {name: {n for n in re.findall(r"(\w+)\s*(?:<[^<>;()]*>)?\(", inside) if n in bodies and n != name} for name, inside in bodies.items()}
    fine = {name for name, inside in bodies.items() if LAUNCH.search(inside)}
    before = -1
    while len(fine) != before:  # whoever calls one that launches
        before = len(fine)
        fine |= {name for name in bodies if calls[name] & fine}
    helpers = set().union(*(calls[name] for name in fine))
    for name in sorted(set(bodies) - fine - helpers):
        FAILED.append("%s: %s launches nothing: it is the host's, and C" % (places[name], name))
    for path in sorted(glob.glob(os.path.join(ROOT, "plugins", "cuda", "*.c"))):
        for word in DEVICE_WORDS.findall(COMMENTS.sub("", text(path))):
            FAILED.append("%s: %s in C" % (os.path.basename(path), word))
    return len(bodies)


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
        there = bench in ("cuda_gemm", "cuda_attention", "cuda_state") or re.match(r"-: \w", bench)
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
    launches = check_host()
    for line in FAILED:
        print("FAIL  " + line)
    print("%d kernels, %d functions of the host beside them, %d failures" % (len(kernels), launches, len(FAILED)))
    sys.exit(1 if FAILED else 0)


main()
