"""Packages from PyPI for tests: install(folder, requirements, what) below the build folder, once, pinned by hash."""
import glob
import hashlib
import os
import subprocess
import sys


def install(folder, requirements, what, timeout=240):
    """The folder to import from, or None with a line that says why `what` is not tested. timeout: seconds."""
    with open(requirements, "rb") as f:
        name = "%s-%d.%d-%s" % (os.path.basename(requirements).split(".")[0], *sys.version_info[:2], hashlib.sha256(f.read()).hexdigest()[:12])
    target = os.path.join(folder, name)
    if os.path.isdir(target):
        return target
    env = dict(os.environ)
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        wheels = glob.glob("/usr/share/python-wheels/pip-*.whl")
        if not wheels:
            return print("no pip (python3-pip or python3-venv has it): %s is not tested" % what)
        env["PYTHONPATH"] = wheels[0]
    part = "%s.%d" % (target, os.getpid())
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "15",
               "--only-binary", ":all:", "--no-compile", "--no-deps", "--require-hashes", "--target", part, "-r", requirements]
    try:
        r = subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout)
    except subprocess.TimeoutExpired:
        return print("the network is too slow: %s is not tested" % what)
    if r.returncode:
        if "hash" in r.stderr.lower() and "do not match" in r.stderr.lower():
            raise AssertionError(r.stderr)
        return print("%s cannot be installed (no network?): it is not tested\n%s" % (what, r.stderr[-300:]))
    try:
        os.rename(part, target)
    except OSError:
        pass  # another group was faster
    return target
