#!/usr/bin/env python3
"""packaging/minerva.service: unit_test.py MINERVA. What systemd says of its settings, and run, serve, engines and probes under its system call filter."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

import filtered
import served

MINERVA = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = os.path.join(served.ROOT, "packaging", "minerva.service")
PREFIX = [sys.executable, os.path.join(HERE, "filtered.py"), UNIT]
MOST = 1.5


def exposure():
    """The unit can be read, and is exposed no more than it was."""
    try:
        r = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", UNIT], capture_output=True, text=True)
    except OSError:
        print("systemd is not installed: the unit's settings are not rated")
        return
    found = re.search(r"Overall exposure level for minerva.service: ([\d.]+)", r.stdout)
    if not found:
        print("systemd-analyze cannot rate units here: %s" % (r.stderr or r.stdout)[:200])
        return
    assert float(found.group(1)) <= MOST, r.stdout
    assert not re.search(r"Unknown (key|lvalue)|Failed to parse", r.stderr), r.stderr


def settings():
    one = lambda key: filtered.settings(UNIT, key)[-1]
    assert one("Type") == "notify" and int(one("WatchdogSec").rstrip("s")) >= 10 and "kill -HUP ${MAINPID}" in one("ExecReload")
    calls = filtered.permitted(UNIT)
    assert {"read", "futex", "epoll_wait", "execve"} <= calls and not {"ptrace", "mount", "setuid", "bpf", "keyctl_none"} & calls


def is_filtered():
    """The filter is one: what it does not permit fails."""
    code = "import os, socket\ntry:\n    os.nice(1)\n    print('permitted')\nexcept PermissionError:\n    print('refused')\n" \
           "try:\n    socket.socket(socket.AF_NETLINK)\n    print('permitted')\nexcept OSError:\n    print('refused')\n"
    r = subprocess.run([*PREFIX, sys.executable, "-c", code], capture_output=True, text=True)
    if r.returncode == 77:
        print("libseccomp.so.2 is not installed: the filter is not tried")
        sys.exit(77)
    assert r.stdout.split() == ["refused", "refused"], r


class Filtered(served.Server):
    def __init__(self, *flags, **more):
        super().__init__(MINERVA, *flags, **more)
        self.command = [*PREFIX, *self.command]


def ask(url, path, body=None):
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(urllib.request.Request(url + path, data), timeout=served.LIMIT) as r:
        return json.loads(r.read())


def run(cache, *prefix):
    """Its text, and what it says; with a cache of its own: plugins are probed."""
    env = {**served.environment(), "XDG_CACHE_HOME": cache}
    r = subprocess.run([*prefix, MINERVA, "run", "-m", served.MODEL, "-p", "Once upon a time", "-n", "12", "--temp", "0", "--precision", "exact",
                        "--device", "cpu_simd", "--raw"], capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, timeout=served.LIMIT)
    assert r.returncode == 0, r
    return r.stdout, r.stderr


def serve(cache):
    body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    with served.Server(MINERVA, "--precision", "exact") as s:
        alone = ask(s.url, "/v1/completions", body)["choices"][0]["text"]
    with Filtered("--precision", "exact", env={"XDG_CACHE_HOME": cache + "/serve"}) as s:
        assert ask(s.url, "/v1/completions", body)["choices"][0]["text"] == alone
        device = ask(s.url, "/v1/models")["data"][0]["minerva"]["device"]
        assert device.startswith("cpu_simd"), (device, s.text())
        pid = ask(s.url, "/health")["engines"][0]["pid"]
        with open("/proc/%d/status" % pid) as f:
            assert re.search(r"^Seccomp:\s*2$", f.read(), re.M)
        os.kill(pid, signal.SIGKILL)  # the next one starts under it, too
        assert ask(s.url, "/v1/completions", body)["choices"][0]["text"] == alone
        assert not re.search(r"not permitted|warning(?!: (engine 0 ended|at most))", s.text()), s.text()


def main():
    settings()
    exposure()
    is_filtered()
    with tempfile.TemporaryDirectory() as cache:
        plain, quiet = run(cache + "/plain"), run(cache + "/filtered", *PREFIX)
        assert plain[0] == quiet[0] and "not permitted" not in quiet[1] and "warning" not in quiet[1], (plain, quiet)
        assert os.listdir(cache + "/filtered"), "no probe has been recorded"
        serve(cache)


main()
