#!/usr/bin/env python3
"""opencl.py MINERVA FIXTURE...: the golden answers on the OpenCL device that the environment's driver shows (PoCL in the gate): the story, the
fixtures in class exact, a batch against its prompts alone, a fixture by the kernels of GPUs. Exit code 77: skipped, with the reason."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MINERVA = sys.argv[1]

listed = subprocess.run([MINERVA, "devices"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
if not any(line.startswith("opencl") and line.rstrip().endswith("yes") for line in listed.splitlines()):
    print("SKIP  no OpenCL device (PoCL: pocl-opencl-icd)\n" + listed)
    sys.exit(77)
failed = []
for case in ["story", "batch"] + ["fixture:" + name for name in sys.argv[2:]]:
    done = subprocess.run([sys.executable, os.path.join(HERE, "golden.py"), MINERVA, case, "opencl"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    print(case + ": " + {0: "ok", 77: "skipped"}.get(done.returncode, "FAILED"))
    if done.returncode not in (0, 77):
        print(done.stdout)
        failed.append(case)
# the kernels of devices with warps, with barriers where those shuffle: norms, experts, rotation and attention in units
done = subprocess.run([sys.executable, os.path.join(HERE, "golden.py"), MINERVA, "fixture:gpt-oss-mxfp4", "opencl"], stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True, env=dict(os.environ, MINERVA_OPENCL_LINEAR_LANES="32"))
print("fixture:gpt-oss-mxfp4 in warps: " + ("ok" if done.returncode == 0 else "FAILED\n" + done.stdout))
sys.exit(1 if failed or done.returncode else 0)
