#!/usr/bin/env python3
"""opencl.py MINERVA FIXTURE... | sessions | large: the golden answers on the OpenCL device that the environment's driver shows (PoCL in the gate): the
story, the fixtures in class exact, a batch against its prompts alone, a cache in several buffers, a fixture by the kernels of GPUs; or encoders,
sessions, requests and scores; or activations that halves do not hold, in all sizes of steps. Exit code 77: skipped, with the reason: there is no
driver. A driver whose device cannot be used fails."""
import array
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile

import safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
MINERVA = sys.argv[1]

listed = subprocess.run([MINERVA, "devices"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
if not os.path.exists(os.environ["OCL_ICD_VENDORS"]):
    print("SKIP  no OpenCL driver (PoCL: pocl-opencl-icd)\n" + listed)
    sys.exit(77)
if not any(line.startswith("opencl") and line.rstrip().endswith("yes") for line in listed.splitlines()):
    print("FAIL  the driver's device cannot be used\n" + listed)
    sys.exit(1)
failed = []


def processor_seconds():
    """Of the commands so far: how long they take for the clock depends on what runs beside them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


began = processor_seconds()


def report(what, ok, said=""):
    """A line with the seconds of processors that the case took."""
    global began
    now = processor_seconds()
    print("%s: %s (%.1f s)" % (what, "ok" if ok else "FAILED\n" + said, now - began), flush=True)
    began = now
    if not ok:
        failed.append(what)


if sys.argv[2:] == ["sessions"]:
    # what the CPU backends' tests ask of sessions, requests and scores
    unit = os.path.join(os.environ["MINERVA_BUILD_ROOT"], "tests", "unit")
    story = os.path.join(os.environ["MINERVA_SOURCE_ROOT"], "models", "storyteller")
    commands = {name: [os.path.join(unit, "test_" + name), story, "opencl"] for name in ("session", "requests", "scores")}
    for name in ("encoders", "rerankers"):
        commands[name] = [sys.executable, os.path.join(HERE, name + ".py"), MINERVA, "opencl"]
    for name, command in commands.items():
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        report(name, run.returncode == 0, run.stdout)
    sys.exit(1 if failed else 0)


def golden(what, cases, env=None):
    """Cases of the golden driver, in one process, whose lines are shown."""
    done = subprocess.run([os.path.join(os.environ["MINERVA_BUILD_ROOT"], "tests", "golden", "golden"), "-d", "opencl", *cases],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    print(done.stdout, end="")
    report(what, done.returncode == 0)


def fixture(name):
    return os.path.join(os.environ["MINERVA_TEST_DATA"], "fixtures", name)


def logits_error(model, ids, env):
    """Relative L2 of the logits beside those of reference, None if there are none; what the plugin says of its programs."""
    command = [MINERVA, "logits", "-m", model, "--prompt-ids", ",".join(map(str, ids))]
    with tempfile.TemporaryDirectory() as folder:
        runs = [subprocess.run(command + ["-v", "--device", device, "-o", os.path.join(folder, device)], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True) for device in ("opencl", "reference")]
        if any(run.returncode for run in runs):
            return None, runs[0].stdout
        got, want = (safetensors.read(os.path.join(folder, device), "logits")[1] for device in ("opencl", "reference"))
        return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(got, want)) / math.fsum(b * b for b in want)), runs[0].stdout


def with_large_activations(name, folder):
    """A fixture with activations of 1e6 before its gated units and more behind them: their norms' weights are multiplied by 1e6."""
    changed = shutil.copytree(fixture(name), os.path.join(folder, name))
    path = os.path.join(changed, "model.safetensors")
    tensors, at = safetensors.header(path)
    with open(path, "r+b") as f:
        for tensor, t in tensors.items():
            if tensor.endswith(".post_attention_layernorm.weight"):
                values = array.array("f", [1e6 * v for v in safetensors.read(path, tensor)[1]])
                f.seek(at + t["data_offsets"][0])
                f.write(values.tobytes())
    return changed


def large_activations(name, kind, sizes, own):
    """Logits of prompts of these sizes, with the model's matrices as kind, beside reference."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, kind + ".gguf")
        subprocess.run([MINERVA, "convert", with_large_activations(name, folder), "-o", path, "--type", kind], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for n_ids in sizes:
            env = dict(os.environ, POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable", **own)
            error, said = logits_error(path, [3 + (7 * i * i + i) % 50 for i in range(n_ids)], env)
            ok = error is not None and error <= 1e-5
            report("%s as %s, activations of 1e6, %d ids" % (name, kind, n_ids), ok, "error %s\n%s" % (error, said))


if sys.argv[2:] == ["large"]:
    # for a GPU, whose tensor cores multiply halves in all of these
    for name in ("llama", "mixtral"):
        for kind in ("f16", "q8_0", "mxfp4", "q4_0"):
            large_activations(name, kind, [1, 4, 9, 40, 70, 200], {})
    sys.exit(1 if failed else 0)
golden("story, batch and fixtures", ["story", "batch"] + ["fixture:" + name for name in sys.argv[2:]])
# a cache in several buffers, of as many as two pages in each: logits of a prompt of some pages against reference, by kernels of CPUs and of GPUs
for name, n_ids, lanes, kib in [("gpt-oss-mxfp4", 300, "0", "80"), ("llama", 140, "32", "80"), ("t5", 300, "0", "256")]:
    env = dict(os.environ, MINERVA_OPENCL_BUFFER_KIB=kib, MINERVA_OPENCL_LINEAR_LANES=lanes, POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable")
    error, said = logits_error(fixture(name), [3 + (7 * i * i + i) % 50 for i in range(n_ids)], env)
    ok = error is not None and error <= 1e-5 and "cache_split.cl compiled" in said
    report("%s, cache in several buffers, lanes %s" % (name, lanes), ok, "error %s\n%s" % (error, said))
# the kernels of devices with warps, with barriers where those shuffle: norms, experts, rotation and attention in units; then many operations in
# one kernel, whose groups are one here
for case, groups in [("begin:gpt-oss-mxfp4", "-1"), ("begin:gpt-oss-mxfp4", "1"), ("fixture:llama", "1")]:
    # without PoCL's optimiser, which takes longer for them than they compute without it
    env = dict(os.environ, MINERVA_OPENCL_LINEAR_LANES="32", MINERVA_OPENCL_STEP_GROUPS=groups, POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable")
    golden("%s in warps, step groups %s" % (case, groups), [case], env)
# steps that are the same twice as command buffers
with open(os.path.join(os.environ["MINERVA_SOURCE_ROOT"], "models", "storyteller", "golden.json"), encoding="utf-8") as f:
    story = json.load(f)[0]
done = subprocess.run([MINERVA, "run", "-m", os.path.join(os.environ["MINERVA_SOURCE_ROOT"], "models", "storyteller"), "--prompt-ids",
                       ",".join(map(str, story["prompt_ids"])), "-n", "24", "--temp", "0", "--precision", "exact", "--device", "opencl", "--json", "-v"],
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, MINERVA_OPENCL_COMMAND_BUFFERS="1"))
ok = done.returncode == 0 and json.loads(done.stdout)["ids"] == story["greedy_ids"][:24] and "is a command buffer" in done.stderr
report("story-begin in command buffers", ok, done.stdout + done.stderr)
# groups of products are measured once; prompts by the one that was found best, then the same from the cache
with tempfile.TemporaryDirectory() as folder:
    env = dict(os.environ, MINERVA_OPENCL_SHAPES="1", MINERVA_OPENCL_LINEAR_LANES="8", XDG_CACHE_HOME=folder, POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable")
    for words in (("groups of products of f32, measured: ", " us"), ("groups of products, as measured before: f32 ",)):
        error, said = logits_error(fixture("llama"), [5, 9, 13], env)
        ok = error is not None and error <= 1e-5 and all(word in said for word in words)
        report(words[0], ok, "error %s\n%s" % (error, said))
# sums by sub-groups, which local memory plays (PoCL takes minutes to compile samplers of more than one item: oclgrind.py has those), and weights
# through the ring of pinned memory, as on a GPU with memory of its own
for name, lanes, size in [("llama", "16", "8"), ("gpt-oss-mxfp4", "32", "64")]:
    env = dict(os.environ, MINERVA_OPENCL_SUB_GROUPS=size, MINERVA_OPENCL_LINEAR_LANES=lanes, MINERVA_OPENCL_UNIFIED="0",
               POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable")
    error, said = logits_error(fixture(name), [5, 9, 13], env)
    ok = error is not None and error <= 1e-5
    report("%s, %s lanes in sub-groups of %s" % (name, lanes, size), ok, "error %s\n%s" % (error, said))
# prompts by sub-groups that multiply matrices, emulated, beside the golden answers and, in types of the other kind, beside reference
with tempfile.TemporaryDirectory() as folder:
    for name, size, kind in [("llama-mlx4", "16", None), ("llama-mlx8", "8", None), ("llama", "16", "q8_0"), ("llama", "8", "f16")]:
        env = dict(os.environ, MINERVA_OPENCL_MAD=size, POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable")
        path = fixture(name)
        if kind:
            path = os.path.join(folder, kind + ".gguf")
            subprocess.run([MINERVA, "convert", fixture(name), "-o", path, "--type", kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        else:
            golden("fixture:%s by matrices of %s items" % (name, size), ["fixture:" + name], env)
        error, said = logits_error(path, [3 + (7 * i * i + i) % 50 for i in range(70)], env)
        ok = error is not None and error <= 2e-6 and "mad.cl for " in said
        report("%s%s by matrices of %s items" % (name, " as " + kind if kind else "", size), ok, "error %s\n%s" % (error, said))
# as few rows as products by tensor cores take in models with experts, which are emulated here
env = dict(os.environ, MINERVA_OPENCL_LINEAR_LANES="32", MINERVA_OPENCL_STEP_GROUPS="1", POCL_EXTRA_BUILD_FLAGS="-cl-opt-disable")
for kind in ("q8_0", "q4_0"):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, kind + ".gguf")
        subprocess.run([MINERVA, "convert", fixture("mixtral"), "-o", path, "--type", kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        error, said = logits_error(path, [5, 9, 13], env)
    ok = error is not None and error <= 1e-5
    report("mixtral as %s, products of a row" % kind, ok, "error %s\n%s" % (error, said))
# activations beyond the 65,504 of halves: products of a row and of prompts, as halves on PoCL, too, by the emulations
large_activations("mixtral", "q8_0", [1], {"MINERVA_OPENCL_LINEAR_LANES": "32", "MINERVA_OPENCL_STEP_GROUPS": "1"})
large_activations("llama", "q4_0", [70], {"MINERVA_OPENCL_MAD": "16"})
sys.exit(1 if failed else 0)
