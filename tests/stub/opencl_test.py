#!/usr/bin/env python3
"""An OpenCL driver that goes wrong, and what a user reads of it: opencl_test.py MINERVA CASE. The loader is opencl.c beside, found through
LD_LIBRARY_PATH in the folder MINERVA_STUBS; the plugin is MINERVA_STUB_OPENCL_PLUGIN or the build's own; standard library alone."""
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path[:0] = [os.path.join(ROOT, "tests", "cli"), os.path.join(ROOT, "tests", "stub")]
import cli_test
from cli_test import MODEL, equal, has, minerva, scratch
from stub_test import golden

# what `minerva devices`, or of one that hangs `minerva plugins`, says in each mode of the stub
WORDS = {
    "none": "the OpenCL loader finds no driver (/etc/OpenCL/vendors)",
    "empty": "1 OpenCL platforms show no usable device",
    "build": "the driver's compiler refuses self_test.cl: BUILD_PROGRAM_FAILURE (OpenCL error -11): line 7:  no such flux capacitor",
    "resources": "self-test: OUT_OF_RESOURCES (OpenCL error -5)",
    "wrong": "self-test: 0 * 0 + 0 gave 1",
    "hang": "self-test of device 0",
}


def environment(folder, mode):
    return cli_test.environment(XDG_CACHE_HOME=folder + "/cache", LD_LIBRARY_PATH=os.environ["MINERVA_STUBS"], OPENCL_STUB=mode,
                                MINERVA_PROBE_TIMEOUT="3" if mode == "hang" else "60", OPENCL_STUB_COUNT=folder + "/contexts",
                                MINERVA_PLUGIN_PATH=os.environ.get("MINERVA_STUB_OPENCL_PLUGIN"))


def counted(folder, what):
    """How many contexts, sources or binaries the stub was given so far."""
    try:
        with open(folder + "/contexts", encoding="ascii") as f:
            return sum(line.startswith(what) for line in f)
    except FileNotFoundError:
        return 0


def contexts(folder):
    return counted(folder, "context")


def test_opencl_says():
    """A driver that does not work costs a line, and the model runs elsewhere."""
    for mode, words in WORDS.items():
        with scratch() as temp:
            env = environment(temp, mode)
            plugins = minerva("plugins", env=env).out
            has(minerva("devices", env=env).out + plugins, words)
            if mode in ("none", "empty"):  # one line, of the plugin
                equal([line.split()[0] for line in plugins.splitlines() if words in line], ["opencl"])


def test_opencl_none():
    """Without a loader the plugin has one line that says so; a model runs elsewhere. A start that probes the plugin gives the reason, others do not."""
    e = golden()
    with scratch() as temp:
        env = environment(temp, "good")
        env["LD_LIBRARY_PATH"] = temp
        with open(temp + "/libOpenCL.so.1", "wb"):
            pass
        words = "no OpenCL loader is installed (libOpenCL.so.1)"
        lines = [line for line in minerva("plugins", env=env).out.splitlines() if words in line]
        equal([line.split()[0] for line in lines], ["opencl"])
        run = ("run", "-m", MODEL, "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "4", "--temp", "0", "--json", "--precision", "exact")

        def tells(*more):
            r = minerva(*run, *more, env=env)
            equal(r.json()["ids"], e["greedy_ids"][:4])
            equal(len(r.err.splitlines()), 1)
            return "opencl: " + words in r.err

        assert not all(tells() for _ in range(20))  # the verdict of the probe is kept soon
        assert tells("--no-probe-cache")


def test_opencl_idle():
    """A device that nobody uses has no context: the probing process alone makes one."""
    with scratch() as temp:
        env = environment(temp, "good")
        listed = minerva("devices", env=env)
        has(listed.out, "Stub device", "opencl:0")
        probed = contexts(temp)
        assert probed >= 1, probed
        e = golden()
        run = ("run", "-m", MODEL, "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "4", "--temp", "0", "--json")
        equal(minerva(*run, "--device", "reference,opencl", env=env).json()["ids"], e["greedy_ids"][:4])
        minerva("devices", env=env)
        equal(contexts(temp), probed)


def test_opencl_cache():
    """Programs come from the cache in the second process; what is damaged or refused there is compiled again, with a line in the log."""
    with scratch() as temp:
        env = environment(temp, "good")
        folder = temp + "/cache/minerva/plugin"

        def probe(mode="good"):
            before = counted(temp, "source"), counted(temp, "binary")
            r = minerva("devices", "--no-probe-cache", env=dict(env, OPENCL_STUB=mode, MINERVA_LOG="info"))
            has(r.out, "Stub device", "yes")
            return counted(temp, "source") - before[0], counted(temp, "binary") - before[1]

        equal(probe(), (2, 0))  # the self-test and the one node of the probing process
        names = sorted(os.listdir(folder))
        equal(len(names), 2)
        equal(probe(), (0, 2))
        with open(os.path.join(folder, names[0]), "r+b") as f:
            f.seek(-3, os.SEEK_END)
            f.write(b"x")
        equal(probe(), (1, 1))
        equal(probe(), (0, 2))
        equal(probe("refuses"), (2, 0))
        equal(sorted(os.listdir(folder)), names)
        env["MINERVA_OPENCL_CACHE"] = "0"
        equal(probe(), (2, 0))


def test_opencl_at_once():
    """Processes that start at once with an empty cache compile the same programs and keep them: the next one has whole entries from there. An entry
    that was cut is compiled again."""
    with scratch() as temp:
        for _ in range(5):
            env = dict(environment(temp, "slow"), XDG_CACHE_HOME=tempfile.mkdtemp(dir=temp))
            folder = env["XDG_CACHE_HOME"] + "/minerva/plugin"
            before = counted(temp, "source")
            command = [cli_test.MINERVA, "devices", "--no-probe-cache"]
            both = [subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
            for process in both:
                has(process.communicate(timeout=60)[0], "Stub device", "yes")
            if counted(temp, "source") == before + 4:  # neither found what the other kept
                break
        else:
            raise AssertionError("two processes never compiled at once")
        names = os.listdir(folder)
        equal(len(names), 2)

        def probe():
            before = counted(temp, "source"), counted(temp, "binary")
            has(minerva("devices", "--no-probe-cache", env=env).out, "Stub device", "yes")
            return counted(temp, "source") - before[0], counted(temp, "binary") - before[1]

        equal(probe(), (0, 2))
        for name, left in zip(names, (0, 0.5)):
            path = os.path.join(folder, name)
            os.truncate(path, int(left * os.path.getsize(path)))
        equal(probe(), (2, 0))
        equal(probe(), (0, 2))
        equal(sorted(os.listdir(folder)), sorted(names))


def test_opencl_shapes():
    """`minerva devices --explain -v` shows the groups of products that a device was found to want: by itself, and later what was kept."""
    measured, known = r"Stub device: groups of products of bf16, measured: (\d+x\d+)(?:, \d+x\d+ \d+ us){5}", "groups of products, as measured before: "
    with scratch() as temp:
        env = environment(temp, "good")
        explain = ("devices", "--explain", "-v", "-m", MODEL)
        said = minerva(*explain, env=env).err
        found = re.search(measured, said)
        assert found and known not in said, said
        run = ("run", "-m", MODEL, "--prompt-ids", ",".join(map(str, range(5, 60))), "-n", "1", "--temp", "0", "--json", "--device", "opencl", "-v")
        for command in (explain, run):
            said = minerva(*command, env=env).err
            has(said, known + "bf16 " + found.group(1))
            assert not re.search(measured, said), said


def test_opencl_report():
    """A report has the drivers, their limits and the last build that failed, and nothing of the user's."""
    with scratch() as temp:
        secret = dict(environment(temp, "build"), HOME=temp, HF_TOKEN="hf_secret", MINERVA_MODEL="/mine/private.gguf")
        minerva("devices", env=secret)
        r = minerva("devices", "--report", env=dict(secret, OPENCL_STUB="good"))
        day = time.strftime("%Y-%m-%d", time.gmtime())
        has(r.out, ", report of " + day, "minerva 0.", "plugins:", "devices:", "opencl.so (backend)", "ok in", "opencl: platform: Stub; Stub; Stub", "opencl: extensions: cl_khr_fp64",
            "largest buffer 4294967296", "build that failed: self_test.cl on Stub device (OpenCL 1.0), " + day, "no such flux capacitor")
        assert re.search(r"opencl\.so \(backend\) \S+ of \d{4}-\d\d-\d\d \d\d:\d\d UTC, ABI", r.out), r.out
        assert "hf_secret" not in r.out and "private.gguf" not in r.out and temp not in r.out, r.out
        folder = re.search(r"(/\S*)/opencl\.so", r.out).group(1)  # another folder's name may begin like the home folder's
        beside = minerva("devices", "--report", env=dict(secret, HOME=folder[:-1]))
        assert "~" + folder[-1] + "/" not in beside.out and folder + "/" in beside.out, beside.out
        minerva("devices", "--report", "--json", env=secret, code=2)
        broken = minerva("devices", "--report", env=dict(secret, OPENCL_STUB="long"))
        has(broken.out, "opencl: extensions: " + 440 * "x" + "\n", "opencl: extensions: " + 120 * "x" + "\n")


def test_opencl_uid():
    """The place on the bus in CUDA's form, as NVIDIA's driver tells it and as AMD's does; else the UUID. What two platforms show is listed once."""
    for mode, uid in (("good", "pci-0001:5e:03"), ("amd", "pci-0000:5e:03"), ("uuid", "uuid-303132333435363738396162636465")):
        with scratch() as temp:
            listed = minerva("devices", "--json", env=environment(temp, mode)).out
            has(listed, uid)
            equal(listed.count("Stub device"), 1)


def test_opencl_lost():
    """A device that is lost in a step: another goes on, with the same ids."""
    e = golden()
    for mode in ("lost", "fails"):
        with scratch() as temp:
            env = environment(temp, mode)
            r = minerva("run", "-m", MODEL, "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "4", "--temp", "0", "--json",
                        "--device", "opencl,reference", env=env)
            equal(r.json()["ids"], e["greedy_ids"][:4])
            has(r.err, "OUT_OF_RESOURCES (OpenCL error -5)")


if __name__ == "__main__":
    cli_test.main(globals())
