#!/usr/bin/env python3
"""opencl_compile.py KERNELS TYPES_H: every program of the OpenCL plugin through clang as OpenCL C 1.2 and 3.0, with the options of a CPU, of a GPU and of
NVIDIA's, where operands of inline assembly are checked, its text is not. Exit code 77: skipped, with the reason."""
import os
import re
import shutil
import subprocess
import sys

KERNELS, TYPES = sys.argv[1:3]
CLANG = next(filter(None, map(shutil.which, ("clang", "clang-14", "clang-16", "clang-18"))), None)
if not CLANG:
    print("SKIP  no clang")
    sys.exit(77)
DEVICES = {"cpu": "-DIS_CPU -DHAS_DOUBLE -DLINEAR_LANES=1 -DLANES=1", "cpu in warps": "-DIS_CPU -DHAS_DOUBLE -DLINEAR_LANES=32 -DLANES=1",
           "gpu": "-DLINEAR_LANES=32 -DLANES=256", "nvidia": "-DPTX -DHAS_DOUBLE -DLINEAR_LANES=32 -DLANES=256"}
# a sub-group's exchange by the extensions: those sources that have sums over groups
SUB_GROUPS = {"sub-groups of Khronos": ("-DSUB_GROUPS=1", ("CL2.0", "CL3.0")), "sub-groups of Intel": ("-DSUB_GROUPS=2", ("CL1.2", "CL3.0"))}
# clang has Intel's built-in functions for no target of ours
INTEL = "uint get_max_sub_group_size(void);\nuint intel_sub_group_shuffle_xor(uint v, uint n);\n"
MAD = "float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(%s8 a, int8 b, float8 sum);\n"
HALVES = ("f16", "q8_0", "mxfp4")
texts = {name[:-3]: open(os.path.join(KERNELS, name)).read() for name in sorted(os.listdir(KERNELS)) if name.endswith(".cl")}
args = open(os.path.join(KERNELS, "args.h")).read()
texts["w_iq"] = open(os.path.join(KERNELS, "..", "..", "..", "dtype", "grids.h")).read() + texts["w_iq"]
# name: file, options
types = {name: (file, options.split()) for name, file, options in re.findall(r'\(\w+, (\w+), (w_\w+), "([^"]*)"', open(TYPES).read())}
step_types = [name for name, (file, _) in types.items() if file not in ("w_planes", "w_iq")]


def typed(name):
    """Options and head of the programs of a weight type."""
    return (["-DTYPE=" + name] + types[name][1], args + texts["common"] + texts[types[name][0]] + texts["weight"])


def step(per, of_types, tiles=()):
    """The texts of ocl_step_texts (step.c); tiles: the types whose products are on tensor cores."""
    parts = [args, texts["common"], texts["rows"], texts["cache"]]
    parts += ["\n#define STEP_TILES\n"] if tiles else []
    parts += ["\n#define STEP_EXPERTS\n", texts["moe"]]
    for name in of_types:
        file, options = types[name]
        head = next((o[7:] for o in options if o.startswith("-DHEAD=")), "4")
        parts.append("\n#undef TYPE\n#define TYPE %s\n#undef HEAD\n#define HEAD %s\n#undef HAS_HALVES\n%s\n" % (
            name, head, "#define HAS_HALVES" if name in tiles else ""))
        for own in ("HAS_WORDS", "HAS_FRAGMENTS"):
            parts.append("#undef %s\n%s\n" % (own, "#define " + own if "-D" + own in options else ""))
        parts += [texts[file], texts["warps"], texts["mma"], texts["row"]]
    others = [name for name in of_types if name not in tiles]
    lists = "".join("\n#define %s(X)%s\n" % (each, "".join(" X(%d, %s)" % (step_types.index(name), name) for name in chosen))
                    for each, chosen in (("EACH_TYPE", others), ("EACH_TILE", tiles)))
    lanes = "#undef LANES\n#define LANES 512\n#define STEP_WARPS 16\n#define STEP_PER %d\n#define STEP_AHEAD %d\n" % (per, 1 if per > 4 else 4)
    mems = "\n#define STEP_MEMS 256\n#define EACH_8(X)%s\n" % "".join(" X(%d)" % i for i in range(32))
    return lanes + "".join(parts) + lists + mems + texts["step"]


failed = 0
count = 0


def compile(what, device, standard, options, source):
    global failed, count
    target = ["-target", "nvptx64-nvidia-cuda", "-Xclang", "-target-cpu", "-Xclang", "sm_80", "-Xclang", "-cl-ext=+all", "-S"] if device == "nvidia" else ["-target", "spir64"]
    target += ["-o", "/dev/null"] if device == "nvidia" else ["-fsyntax-only"]
    version = "-D__OPENCL_VERSION__=" + {"CL1.2": "120", "CL2.0": "200", "CL3.0": "300"}[standard]
    command = [CLANG, "-x", "cl", "-cl-std=" + standard, version, "-Xclang", "-finclude-default-header", "-Xclang", "-fdeclare-opencl-builtins", "-w", "-O0", "-fgnu-keywords"]
    done = subprocess.run(command + target + DEVICES.get(device, DEVICES["gpu"]).split() + options + ["-"], input=source, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    count += 1
    if done.returncode:
        failed += 1
        print("FAIL  %s, %s, %s\n%s" % (what, device, standard, done.stdout[:2000]))


for device in DEVICES:
    for standard in ("CL1.2", "CL3.0"):
        for name in ("self_test", "rows", "cache", "sample", "moe"):
            compile(name, device, standard, [], args + texts["common"] + texts[name])
        compile("cache_split", device, standard, [], args + texts["common"] + texts["cache_split"] + texts["cache"])
        compile("distance", device, standard, [], args + texts["common"] + "\n#define KV_SPLIT\n#define DISTANCES\n" + texts["cache"] + texts["distance"])
        if device != "cpu":
            for per in (2, 4, 16) if standard == "CL1.2" else (4,):
                compile("step, %d elements a lane" % per, device, standard, [], step(per, step_types))
        if device == "nvidia":
            compile("step with tiles", device, standard, [], step(2, step_types, HALVES))
            compile("step of tiles alone", device, standard, [], step(4, HALVES, HALVES))
        # of MLX's types one group's length is enough for what is not compiled by the first device
        few = [name for name in types if device == "gpu" or not name.startswith("mlx") or name.endswith("_64")]
        for name in few if standard == "CL1.2" else ("f16", "q8_0", "q4_k", "mlx4_64"):
            options, head = typed(name)
            warps = ("warps", "mma") if name in HALVES else ("warps",)
            # those that can stand in one text, for a start of clang costs more than they do; a driver compiles each alone
            for sources in (("linear", "embed"),) + (() if device == "cpu" else (warps,)):
                compile("%s of %s" % (" and ".join(sources), name), device, standard, options, head + "".join(map(texts.get, sources)))
            if device == "nvidia" and name not in HALVES:
                compile("pieces of %s" % name, device, standard, options, head + "\n#define PIECES\n" + texts["mma"] + texts["pieces"])
for device, (option, standards) in SUB_GROUPS.items():
    prototypes = INTEL if "Intel" in device else ""
    for standard in standards:
        for name in ("self_test", "rows", "sample", "moe", "cache"):
            compile(name, device, standard, [option], prototypes + args + texts["common"] + texts[name])
        options, head = typed("q8_0")
        for name in ("linear", "warps"):
            compile(name + " of q8_0", device, standard, [option] + options, prototypes + head + texts[name])
# products of matrices by sub-groups: Intel's, and emulated
for size, rows in (("8", "int"), ("16", "short")):
    for emulated in ([], ["-DMAD_EMULATED"]):
        prototypes = "" if emulated else MAD % rows
        for standard in ("CL1.2",) if emulated else ("CL1.2", "CL3.0"):
            option = ["-DMAD=" + size] + emulated
            what = "of matrices by %s items%s" % (size, ", emulated" if emulated else "")
            compile("self_test " + what, "gpu", standard, option, prototypes + args + texts["common"] + texts["self_test"])
            for name in ("f16", "q8_0", "mxfp4", "q4_k", "mlx4_64") if standard == "CL1.2" and not emulated else ("mxfp4", "q4_k"):
                options, head = typed(name)
                halves = ["-DHAS_HALVES"] if name in HALVES else []
                compile("products %s of %s" % (what, name), "gpu", standard, option + options + halves, prototypes + head + texts["mad"])
print("%d programs, %d refused" % (count, failed))
sys.exit(1 if failed else 0)
