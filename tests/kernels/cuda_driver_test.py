#!/usr/bin/env python3
"""cuda_driver_test.py MINERVA OLD_DRIVER: what the CUDA plugin says where the driver is missing or too old, and that the program runs on the CPU then.

OLD_DRIVER is a libcuda.so.1 of CUDA 11.8. Needs no GPU; a driver of this machine is hidden by a file of its name."""
import os
import shutil
import subprocess
import sys
import tempfile

MINERVA, OLD = sys.argv[1:3]
FAILED = []


def said(folder, *words):
    env = dict(os.environ, LD_LIBRARY_PATH=folder + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
    devices = subprocess.run([MINERVA, "devices", "--no-probe-cache"], env=env, capture_output=True, text=True, timeout=60)
    text = " ".join((devices.stdout + devices.stderr).split())
    for word in words:
        if word not in text:
            FAILED.append("minerva devices does not say %r: %s" % (word, text[-700:]))
    run = subprocess.run([MINERVA, "run", "-p", "Once", "-n", "2", "--temp", "0"], env=env, capture_output=True, text=True, timeout=60)
    if run.returncode:
        FAILED.append("minerva run: exit code %d: %s" % (run.returncode, run.stderr[-500:]))
    named = subprocess.run([MINERVA, "run", "-p", "Once", "-n", "2", "--device", "cuda:0"], env=env, capture_output=True, text=True, timeout=60)
    if named.returncode == 0 or words[0] not in " ".join(named.stderr.split()):
        FAILED.append("--device cuda:0: exit code %d, %s" % (named.returncode, named.stderr[-500:]))


with tempfile.TemporaryDirectory() as folder:
    at = os.path.join(folder, "libcuda.so.1")
    open(at, "w").close()
    said(folder, "no NVIDIA driver is installed")
    shutil.copy(OLD, at)
    said(folder, "the NVIDIA driver is too old", "it runs CUDA 11.8")
for line in FAILED:
    print("FAIL  " + line)
sys.exit(1 if FAILED else 0)
