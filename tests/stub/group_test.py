#!/usr/bin/env python3
"""Groups of devices without a GPU: group_test.py MINERVA fixtures N | run. The plugin group.so has four devices whose groups are
members in the host's memory. fixtures: all golden fixtures on a group of N, class exact. run: the story, a batch, sessions, names
that are no groups, memory, and a group that is lost."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["MINERVA_SOURCE_ROOT"], "tests", "golden"))
import safetensors

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
BUILD = os.environ["MINERVA_BUILD_ROOT"]
MINERVA = sys.argv[1]
GOLDEN = os.path.join(BUILD, "tests", "golden", "golden")
ADAPTERS = os.path.join(BUILD, "tests", "golden", "adapters")
MODEL = os.path.join(ROOT, "tests", "data", "storyteller-q8_0.gguf")
failed = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what)
    if not ok:
        failed.append(what)


def command(*args, **env):
    """The exit code; standard output, then standard error: a line of the one does not end inside of one of the other."""
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env))
    return done.returncode, done.stdout + "\n" + done.stderr


def generate(device, *more, **env):
    # exact: another device goes on with the same ids
    return command(MINERVA, "run", "-m", MODEL, "--device", device, "--precision", "exact", "--temp", "0", "-n", "12", "-c", "64", "Once",
                   *more, **env)


def golden(device, *cases):
    code, out = command(GOLDEN, "-d", device, *cases)
    print(out)
    check(code == 0, "%d cases on %s" % (len(cases), device))


def story(out):
    return [line for line in out.splitlines() if line and not line.startswith("minerva:")]


def names():
    for device, words in {"group:0+group:7": '"group:7" is no device', "group:1+group:1": "group:1 is in it twice",
                          "group:2+reference": "different plugins", "reference:all": "at least 2 devices, found 1",
                          "nobody:all": "at least 2 devices, found 0", "group:0+": "at least 2"}.items():
        code, out = generate(device)
        check(code == 3 and words in out, "%s is refused: %s" % (device, words))
    for both in (("group:0+group:1", "group:0"), ("group:2", "group:all"), ("group:0+group:1", "group:1+group:2")):
        code, out = generate(",".join(both))
        words = "found %s beside %s, which have a device in common; expected each device once" % both
        check(code == 3 and words in out, "%s and %s in one list are refused" % both)
    code, out = generate("group:0+group:1,group:2")
    check(code == 0, "a group beside a device that is no member" + ("" if code == 0 else "\n" + out))
    code, out = generate("group:9+group:0,cpu")
    check(code == 0 and "not used" in out, "a group that cannot be is passed over before cpu")


def memory(alone):
    code, out = generate("group:0", MINERVA_GROUP_MEMORY="8")
    check(code != 0 and "needs 0.01 GiB" in out, "8 MiB are refused for one device")
    code, out = generate("group:all", MINERVA_GROUP_MEMORY="8")
    check(code == 0 and story(out) == story(alone), "8 MiB each are enough for four")
    code, out = generate("group:all", MINERVA_GROUP_MEMORY="3")
    check(code != 0 and "each member needs" in out, "3 MiB each are refused, per member")
    with tempfile.TemporaryDirectory() as folder:
        # no CPU is there: auto has these devices alone
        for path in (os.path.join(os.environ["MINERVA_STUBS"], "group.so"), os.path.join(BUILD, "loaders", "gguf", "gguf.so")):
            shutil.copy(path, folder)
        want = "group:all: 4 devices together: none of them has the memory alone"
        code, out = generate("auto", MINERVA_GROUP_MEMORY="8", MINERVA_PLUGIN_PATH_ONLY=folder)
        check(code == 0 and want in out, "auto with 8 MiB: %s%s" % (want, "" if want in out else "\n" + out))
        code, out = command(MINERVA, "devices", "--explain", "--json", "-m", MODEL, "-c", "64", MINERVA_GROUP_MEMORY="8",
                            MINERVA_PLUGIN_PATH_ONLY=folder)
        check(code == 0 and re.search('"members": *4', out), "devices --explain counts the members")


def set_rates(cache, of_group):
    """Replaces what was measured: figures of the devices, and of the group."""
    folder = os.path.join(cache, "minerva")
    kinds = set()
    for name in os.listdir(folder):
        if not name.startswith("rates-"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            head, key = f.read().splitlines()[:2]
        is_group = "group:all|" in key
        kinds.add(is_group)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write("%s\n%s\n%s\n" % (head, key, of_group if is_group else "10 0.1 1 1 1 10 0.001"))
    return kinds == {True, False}


def faster():
    """A group that one of its members could do without: by rates as a measurement leaves them."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        for path in (os.path.join(os.environ["MINERVA_STUBS"], "group.so"), os.path.join(BUILD, "loaders", "gguf", "gguf.so")):
            shutil.copy(path, folder)
        env = {"MINERVA_GROUP_MEMORY": "64", "MINERVA_PLUGIN_PATH_ONLY": folder, "XDG_CACHE_HOME": cache}
        explain = (MINERVA, "devices", "--explain", "--json", "-m", MODEL, "-c", "64")
        code, out = command(*explain, **env)
        check(code == 0 and '"exchange_us"' in out, "devices --explain measures the group, and what it exchanges")
        # GB/s, TFLOP/s, us per node, step and copy, GB/s of copies, us per exchange
        for figures, want, why in (("30 0.3 1 1 1 10 0.1", r"group:all: 4 devices together: [23]\.\d times as fast as group:\d alone", None),
                                   ("11 0.11 1 1 1 10 0.1", "group:[0-3]: the fastest of 4 usable devices", r": 1\.\d\d times as fast; wanted: 1\.2"),
                                   ("30 0.3 1 1 1 10 5000", "group:[0-3]: the fastest of 4 usable devices", r": 0\.\d\d times as fast; wanted: 1\.2")):
            check(set_rates(cache, figures), "rates of devices and group are kept")
            code, out = generate("auto", **env)
            found = code == 0 and re.search(want, out)
            check(found, "auto with a group of rates %s%s" % (figures, "" if found else "\n" + out))
            code, out = command(*explain, **env)
            found = code == 0 and (not why or re.search(why, out))
            check(found, "--explain says why" + ("" if found else "\n" + out))


def run():
    code, alone = generate("group:0")
    check(code == 0, "one device of the plugin")
    for device in ("group:0+group:1", "group:3+group:0+group:2", "group:all"):
        code, out = generate(device)
        check(code == 0 and story(out) == story(alone), "%s: the same story" % device)
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name in ("first", "second"):
            path = os.path.join(folder, name)
            command(MINERVA, "logits", "-m", MODEL, "--device", "group:all", "--prompt-ids", "5,6,7,8", "-o", path)
            found.append(safetensors.read(path, "logits"))
        check(found[0] == found[1], "the same bits from run to run")
    golden("group:0+group:1", "batch")
    code, out = command(ADAPTERS, "group:0+group:1")
    check(code == 0, "adapters as on one device" + ("" if code == 0 else "\n" + out))
    names()
    memory(alone)
    faster()
    code, out = generate("group:0+group:1,cpu_simd", MINERVA_GROUP_LOST="8")
    check(code == 0 and "group:0+group:1 was lost (member 1 of the group is lost); going on with cpu_simd" in out and
          story(out) == story(alone), "a lost member loses the group, and the generation goes on" + ("" if code == 0 else "\n" + out))


with tempfile.TemporaryDirectory() as plugins:
    shutil.copy(os.path.join(os.environ["MINERVA_STUBS"], "group.so"), plugins)
    os.environ["MINERVA_PLUGIN_PATH"] = plugins
    if sys.argv[2] == "run":
        run()
    else:
        device = "+".join("group:%d" % i for i in range(int(sys.argv[3])))
        golden(device, *("fixture:" + fixture for fixture in sys.argv[4:]))
sys.exit(1 if failed else 0)
