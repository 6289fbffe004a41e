#!/usr/bin/env python3
"""A plugin built by hand, as a vendor's first evening goes: hand_test.py MINERVA hand

An installed prefix, an empty folder with its sources in it, plain cc, `minerva plugins check`, and the plugin takes part in telling the story."""
import glob
import json
import os
import shutil
import subprocess
import sys

ROOT = os.environ["MINERVA_SOURCE_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "tests", "cli"))
import cli_test
from cli_test import MODEL, Skipped, environment, equal, installed, minerva, scratch


def test_hand():
    cc = shutil.which(os.environ.get("CC", "cc"))
    if not cc:
        raise Skipped("needs a compiler")
    with scratch() as folder:
        os.chmod(folder, 0o755)
        prefix = installed(folder + "/root")
        exe, env = prefix + "/bin/minerva", environment(XDG_CACHE_HOME=folder + "/cache")
        mine = folder + "/mine"
        os.mkdir(mine, 0o755)
        sources = glob.glob(os.path.join(ROOT, "tests", "stub", "vendor2*"))
        for path in sources:
            shutil.copy(path, mine)
        units = sorted(os.path.basename(path) for path in sources if path.endswith(".c"))
        p = subprocess.run([cc, "-shared", "-fPIC", "-I", prefix + "/include", *units, "-o", "my.so"], cwd=mine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        equal((p.returncode, p.stdout), (0, b""))

        r = minerva("plugins", "check", "my.so", env=env, exe=exe, cwd=mine, code=None, timeout=300)
        assert r.code == 0, r.out + r.err

        plugins = next(at for at, _, files in os.walk(prefix) if "safetensors.so" in files)
        shutil.copy(mine + "/my.so", plugins)
        os.chmod(plugins + "/my.so", 0o755)
        with open(os.path.join(MODEL, "golden.json"), encoding="utf-8") as f:
            e = json.load(f)[0]
        r = minerva("run", "--prompt-ids", ",".join(map(str, e["prompt_ids"])), "-n", "160", "--temp", "0", "--precision", "exact", "--device", "vendor2,cpu",
                    "--json", env=env, exe=exe, cwd=mine)
        equal((r.json()["ids"], r.json()["text"]), (e["greedy_ids"], e["text"]))
        record = minerva("devices", "--explain", "-m", MODEL, "--device", "vendor2,cpu", "--json", env=env, exe=exe, cwd=mine).json()
        assert any(s["device"].startswith("vendor2") for s in record["placement"]["segments"]), record["placement"]


if __name__ == "__main__":
    cli_test.main(globals())
