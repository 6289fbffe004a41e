#!/usr/bin/env python3
"""Several processes as one machine, without a GPU: ranks_test.py MINERVA fixtures N NAME... | cases N CASE... | run | ends | serve. Each
process has one member of a group of the plugin group.so, or of the plugin RANKS_DEVICE. fixtures: golden fixtures as N processes, class
exact; cases: other cases of the golden driver. run: the story, a batch, ranks that differ, and ranks that end or hang; ends: these alone. serve:
a server of two processes, one of which is killed."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import ranks_start

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
MINERVA = os.path.abspath(sys.argv[1])
GOLDEN = os.path.join(os.environ["MINERVA_BUILD_ROOT"], "tests", "golden", "golden")
START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks_start.py")
MODEL = os.path.join(ROOT, "tests", "data", "storyteller-q8_0.gguf")
OTHER_MODEL = os.path.join(ROOT, "models", "storyteller")
DEVICE = os.environ.get("RANKS_DEVICE", "group")
COMMON = ["run", "-m", MODEL, "--device", DEVICE, "--precision", "exact", "--temp", "0"]
STORY = COMMON + ["-c", "64", "-n", "12", "Once"]
LONG = COMMON + ["-c", "100000", "-n", "90000", "--ignore-eos", "Once"]
LIMIT_S = 20  # 5 are promised, but a machine may be busy; how long it took is printed
failed = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what, flush=True)
    if not ok:
        failed.append(what)


class Ranks:
    """N processes; commands and variables may differ by rank."""

    def __init__(self, n, command, commands=(), variables=()):
        self.all = []
        for rank, place in enumerate(ranks_start.places(n)):
            own = dict(variables)[rank] if rank in dict(variables) else {}
            args = dict(commands).get(rank, command)
            self.all.append(subprocess.Popen([MINERVA] + args, env=os.environ | place | own, stdin=subprocess.DEVNULL,
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def end(self, timeout=60):
        """[(exit code, output, errors)] by rank; code None: it did not end."""
        until = time.monotonic() + timeout
        found = []
        for p in self.all:
            try:
                out, err = p.communicate(timeout=max(0.01, until - time.monotonic()))
                found.append((p.returncode, out, err))
            except subprocess.TimeoutExpired:
                p.kill()
                out, err = p.communicate()
                found.append((None, out, err))
        return found


def tell(found):
    return "".join("\n  rank %d: %s %r %s" % (rank, code, out[-200:], err[-600:]) for rank, (code, out, err) in enumerate(found))


def cases(n, names):
    for case in names:
        done = subprocess.run([sys.executable, START, str(n), GOLDEN, "-d", DEVICE, case], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(done.returncode in (0, 77), "%s as %s processes%s" % (case, n, "" if done.returncode in (0, 77) else "\n" + done.stdout))


def refused():
    """What differs is named on both sides."""
    for what, words, commands, variables in (
            ("token", "another token", {}, {1: {"MINERVA_RANK_TOKEN": "wrong"}}),
            ("model", "another model than rank 0", {1: [OTHER_MODEL if a == MODEL else a for a in STORY]}, {}),
            ("number of ranks", "expected 1 to 1 of 2", {}, {1: {"WORLD_SIZE": "3"}}),
            ("rank", "WORLD_SIZE is 2: expected a rank below", {}, {1: {"RANK": "2"}})):
        found = Ranks(2, STORY, commands, variables | {0: {"MINERVA_RANK_TIMEOUT": "3"}}).end(20)
        check(all(code for code, _, _ in found) and words in found[1][2], "another %s is refused%s" % (what, "" if words in found[1][2] else tell(found)))
    found = Ranks(2, STORY, {1: ["--version"]}, {0: {"MINERVA_RANK_TIMEOUT": "1"}}).end(20)
    check(found[0][0] and "rank 1 of 2 did not come within 1 s" in found[0][2], "a rank that is missing is named")
    found = Ranks(1, STORY, {}, {0: {"WORLD_SIZE": ""}}).end(20)
    check(found[0][0] and "found RANK without WORLD_SIZE" in found[0][2], "half of the variables")


def n_devices():
    listed = json.loads(subprocess.run([MINERVA, "devices", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    return sum(d["name"].split(":")[0] == DEVICE and d["usable"] for d in listed)


def too_many():
    """More ranks than devices, and two ranks that are given one device: a sentence with both numbers, at once."""
    n = n_devices()
    one = {r: [a if a != DEVICE else DEVICE + ":1" for a in STORY] for r in (0, 1)}
    for what, ranks, commands in (("more ranks than devices", n + 1, {}), ("one device for two ranks", 2, one)):
        begin = time.monotonic()
        found = Ranks(ranks, STORY, commands, {r: {"MINERVA_RANK_TIMEOUT": "3"} for r in range(ranks)}).end(30)
        words = "would use one device, %s:%d (" % (DEVICE, 0 if ranks > 2 else 1), "found %d ranks and %d devices there" % (ranks, n)
        said = [err for _, _, err in found if all(w in err for w in words)]
        ok = all(code for code, _, _ in found) and found[0][2] in said and len(said) >= 2
        check(ok, "%s: refused after %.1f s%s" % (what, time.monotonic() - begin, "" if ok else tell(found)))


def running(ranks):
    """All compute: rank 0 has written something."""
    return ranks.all[0].stdout.read(20)


def ends(ranks, which, number, words):
    running(ranks)
    ranks.all[which].send_signal(number)
    begin = time.monotonic()
    others = [p for i, p in enumerate(ranks.all) if i != which]
    said = []
    for p in others:
        try:
            said.append(p.communicate(timeout=LIMIT_S + 10)[1])
        except subprocess.TimeoutExpired:
            p.kill()
            said.append("(it did not end)")
    took = time.monotonic() - begin
    ranks.all[which].kill()
    ranks.all[which].wait()
    ok = took < LIMIT_S and all(p.returncode > 0 for p in others) and all(re.search(words, s) for s in said)
    check(ok, "%s of rank %d: the others end after %.1f s and name it%s" % (signal.Signals(number).name, which, took, "" if ok else ": %r" % said))


def run():
    alone = subprocess.run([MINERVA] + [a if a != DEVICE else DEVICE + ":0" for a in STORY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    for n in range(2, min(4, n_devices()) + 1):
        found = Ranks(n, STORY).end()
        check(all(code == 0 for code, _, _ in found) and found[0][1] == alone and not any(out for _, out, _ in found[1:]),
              "%d processes: the same story" % n + ("" if found[0][1] == alone else tell(found)))
    launcher = shutil.which("mpirun")
    if launcher:
        done = subprocess.run([launcher, "--allow-run-as-root", "--oversubscribe", "-np", "2", MINERVA] + STORY, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        check(done.returncode == 0 and done.stdout == alone, "mpirun: the same story" + ("" if done.stdout == alone else "\n" + done.stdout + done.stderr))
    else:
        print("skip  mpirun is not installed")
    cases(2, ["batch"])
    refused()
    too_many()
    all_ends()


def all_ends():
    for which in (0, 1):
        ends(Ranks(2, LONG), which, signal.SIGKILL, r"rank %d \(.*\) has ended" % which)
    if n_devices() > 2:
        ends(Ranks(3, LONG), 2, signal.SIGKILL, r"rank 2 \(.*\) has ended")
    else:
        print("skip  SIGKILL of rank 2: 3 devices are needed")
    for which in (0, 1):
        ends(Ranks(2, LONG), which, signal.SIGSTOP, r"rank %d \(.*\) has not been heard of" % which)


def ask(url, prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": 12, "temperature": 0}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["text"]


def engine_of(pid):
    done = subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE, text=True)
    return [int(p) for p in done.stdout.split()]


def serve():
    port = ranks_start.free_port()
    ranks = Ranks(2, ["serve", "-m", MODEL, "--device", DEVICE, "--port", str(port), "--parallel", "2", "-c", "256"])
    url = "http://127.0.0.1:%d" % port

    def answer():
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                return ask(url, "Once")
            except OSError:
                time.sleep(0.2)
        return None

    try:
        first = answer()
        check(bool(first), "a server of two processes answers")
        for which in (1, 0):
            engines = engine_of(ranks.all[which].pid)
            check(len(engines) >= 1, "rank %d has an engine" % which)
            os.kill(engines[-1], signal.SIGKILL)
            check(answer() == first, "the engine of rank %d is killed: the server answers again" % which)
        ranks.all[0].send_signal(signal.SIGTERM)
        found = ranks.end(20)
        ok = all(code == 0 for code, _, _ in found)
        check(ok, "both end in order" + ("" if ok else tell(found)))
    finally:
        for p in ranks.all:
            p.kill()


with tempfile.TemporaryDirectory() as plugins:
    if DEVICE == "group":
        shutil.copy(os.path.join(os.environ["MINERVA_STUBS"], "group.so"), plugins)
        os.environ["MINERVA_PLUGIN_PATH"] = plugins
    os.environ["MINERVA_RANK_TOKEN"] = "of this test"
    if sys.argv[2] == "run":
        run()
    elif sys.argv[2] == "ends":
        all_ends()
    elif sys.argv[2] == "serve":
        serve()
    elif sys.argv[2] == "cases":
        cases(sys.argv[3], sys.argv[4:])
    else:
        cases(sys.argv[3], ["fixture:" + name for name in sys.argv[4:]])
sys.exit(1 if failed else 0)
