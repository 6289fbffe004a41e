#!/usr/bin/env python3
"""adding_rows.py SOURCE SCRATCH CC... -- a data type and an instruction set, added in a copy of the tree by what docs/adding.md lists.

The type is Q4_1 under another name, the instruction set AVX2 under another. An edit of a file that the document does not list for it
fails, so that the lists stay complete. The bodies of plugins/cpu_simd are compiled as its meson.build lists them, without
optimisation; then test_rows tries all types on the new instruction set. 77: not a processor with AVX2."""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

SOURCE, SCRATCH, CC = sys.argv[1], sys.argv[2], sys.argv[3:]
FOLDERS = ["dtype", "ground", "include", "plugins/common", "plugins/cpu_host", "plugins/cpu_simd", "plugins/reference", "runtime/base",
           "tests/kernels", "tools/check", "docs"]
SIMD = "plugins/cpu_simd/"


def fail(what):
    sys.exit("FAIL  " + what)


def text_of(path):
    with open(os.path.join(SCRATCH, path), encoding="utf-8") as f:
        return f.read()


def write(path, text):
    with open(os.path.join(SCRATCH, path), "w", encoding="utf-8") as f:
        f.write(text)


def listed(heading):
    """The paths of a section of docs/adding.md; NAME and ISA stand for any name."""
    section = text_of("docs/adding.md").split("\n## " + heading + "\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"`((?:[a-z_0-9]+/)+[A-Za-z_0-9.]+)`", section))


def adder(heading):
    """A function that puts `new` behind, or in front of, a place of a listed file, or makes a listed file."""
    paths = listed(heading)

    def add(path, new, behind=None, before=None):
        if not any(re.fullmatch(re.sub(r"NAME|ISA", r"\\w+", re.escape(p)), path) for p in paths):
            fail("docs/adding.md, \"%s\", does not list %s" % (heading, path))
        if not behind and not before:
            write(path, new)
            return
        text = text_of(path)
        place = behind or before
        if text.count(place) != 1:
            fail("%s has %d places %r" % (path, text.count(place), place))
        write(path, text.replace(place, place + new if behind else new + place))
    return add


def add_type():
    """COPIED: Q4_1 under another name."""
    add = adder("A data type")
    copied = [m.group(0).replace("Q4_1, 21", "COPIED, 120") for m in re.finditer(r"X\(Q4_1, 21[^)]*\)", text_of("include/minerva/plugin.h"))]
    add("include/minerva/plugin.h", copied[0] + " ", before="X(Q4_1, 21,")
    add("dtype/dtype.def", "MN_DTYPE(COPIED, copied, -1, 2, ONE, copied, 0, 2)\n", before="MN_DTYPE(Q4_1,")
    of_type = re.search(r"void mn_dequant_q4_1\(.*?\n}\n", text_of("dtype/dequant_32.c"), re.S).group(0)
    add("dtype/dequant_32.c", of_type.replace("q4_1", "copied"), before=of_type)
    add(SIMD + "types.h", "    X(copied,      32,  20, 32,   0, 1, 0,  15, __VA_ARGS__) \\\n", before="    X(q4_1, ")
    add(SIMD + "types.h", "X(COPIED, copied, __VA_ARGS__) ", before="X(Q4_1, q4_1, __VA_ARGS__)")
    functions = re.search(r"SCALE_AND_MIN\(q4_1, 20\)\nBYTES\(q4_1\) {.*?\n}\n", text_of(SIMD + "types_block32.h"), re.S).group(0)
    add(SIMD + "types_block32.h", functions.replace("q4_1", "copied"), behind=functions)


def add_instruction_set():
    """FORWARD: a vocabulary that forwards to AVX2's, as another level upon it."""
    add = adder("An instruction set of the CPU")
    add(SIMD + "vec_forward.h", "/* vec_forward.h -- the vocabulary of AVX2 under another name. */\n#include \"vec_avx2.h\"\n")
    add(SIMD + "meson.build", "    'forward': ['x86_64', 'vec_forward.h', avx2, '', ['f32', 'ops', 'state', 'dot8', 'panels8', 'lanes8']],\n", before="    'avxvnni': [")
    add(SIMD + "rows.h", "    X(FORWARD, \"forward\", AVX2) \\\n", before="    X(AVXVNNI, ")
    of_forward = "".join("    %s \\\n" % row for row in (
        "L(FORWARD, A8, MANY, 0, mnk_panels8_forward)", "L(FORWARD, A8, 0, 0, mnk_dot8_forward)", "L(FORWARD, ANY, 0, 0, mnk_f32_forward)",
        "V(FORWARD, mnk_ops_forward)"))
    add(SIMD + "table.c", of_forward, before="    L(AVX2, A8, MANY, 0, mnk_panels8_avx2)")
    add(SIMD + "table.c", "    L(FORWARD, A8, 1, MNK_FEW_ROWS, mnk_lanes8_forward) \\\n", before="    L(AVX2, A8, 1, MNK_FEW_ROWS, mnk_lanes8_avx2)")
    add(SIMD + "isa.c", "    levels = with(levels, MNK_FORWARD);\n", behind="    levels = with(levels, MNK_AVX2);\n")
    add("runtime/base/config.c", "forward|", before="avxvnni|")


def matrix():
    """simd_matrix of meson.build: {name: [processor, header, flags, of cpuinfo, bodies]}; its text is Python's, too."""
    text = text_of(SIMD + "meson.build")
    lists = re.search(r"^avx2 = .*?^}", text, re.M | re.S).group(0)
    found = {}
    exec(lists, found)
    return found["simd_matrix"]


def compile_all():
    """All objects of test_rows; returns their paths."""
    include = ["-I" + os.path.join(SCRATCH, p) for p in ("include", "ground", "dtype", "plugins/common", "plugins/cpu_host", "tools/check")]
    base = CC + ["-std=gnu11", "-O0", "-w", "-D_GNU_SOURCE", "-ffp-contract=off"] + include
    work = []
    for isa, (processor, header, flags, _, bodies) in matrix().items():
        for body in bodies if processor in ("", "x86_64") else []:
            names = ["-DVEC_ISA=" + isa, "-DVEC_FILE=\"%s\"" % header]
            work.append((SIMD + "rows_%s.c" % body, flags + names, "%s_%s.o" % (isa, body)))
    drivers = [SIMD + f for f in ("attention.c", "attention_distance.c", "blas.c", "grids.c", "isa.c", "lanes.c", "linear.c", "misc.c", "moe.c", "plan.c", "quant.c", "table.c")]
    rest = ["tests/kernels/" + f for f in sorted(os.listdir(os.path.join(SCRATCH, "tests/kernels"))) if re.fullmatch(r"test_rows\w*\.c", f)]
    rest += ["dtype/" + f for f in sorted(os.listdir(os.path.join(SCRATCH, "dtype"))) if f.endswith(".c")]
    for source in drivers + rest + ["tools/check/case_type.c", "plugins/reference/row.c"]:
        work.append((source, [], source.replace("/", "_") + ".o"))

    def one(item):
        source, flags, name = item
        out = os.path.join(SCRATCH, name)
        p = subprocess.run(base + flags + ["-c", os.path.join(SCRATCH, source), "-o", out], capture_output=True, text=True)
        if p.returncode:
            fail("%s for %s\n%s" % (source, name, p.stderr))
        return out
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, work))


def main():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        if " avx2 " not in f.read():
            print("skipped: no AVX2")
            sys.exit(77)
    shutil.rmtree(SCRATCH, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(os.path.join(SOURCE, folder), os.path.join(SCRATCH, folder))
    add_type()
    add_instruction_set()
    test = os.path.join(SCRATCH, "test_rows")
    p = subprocess.run(CC + compile_all() + ["-o", test, "-lm", "-lpthread"], capture_output=True, text=True)
    if p.returncode:
        fail(p.stderr)
    p = subprocess.run([test, "brief", "forward"], capture_output=True, text=True)
    print(p.stdout)
    if p.returncode or "level forward," not in p.stdout:
        fail("test_rows on the new instruction set: %d\n%s" % (p.returncode, p.stderr))
    shutil.rmtree(SCRATCH)


main()
