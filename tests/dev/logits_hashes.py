#!/usr/bin/env python3
"""logits_hashes.py MINERVA [--models FOLDER...] [--device D...] [--class C...] [--threads N...]: a line for each model, device, class and number of
threads, with a hash of the logits of three prompts (of an encoder: of the vectors of a text). What moves code and not numbers leaves every line as
it was: keep the output of the build before, and compare.

    tests/dev/logits_hashes.py old/tools/minerva >before; tests/dev/logits_hashes.py new/tools/minerva >after; diff before after

The configuration's variables count, such as MINERVA_CPU_SIMD_ISA. A combination that does not run has the exit code in the place of the hash."""
import argparse
import hashlib
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMPTS = [1, 7, 40]


def ids(n):
    """Token ids that every vocabulary of the fixtures has."""
    return ",".join(str(3 + i * i % 29) for i in range(n))


def output(a, model, device, precision, threads, n):
    common = [a.minerva, "logits", "-q", "-m", model, "--device", device, "--precision", precision, "-t", str(threads), "--prompt-ids", ids(n)]
    done = subprocess.run(common + ["-o", "-"], capture_output=True)
    if done.returncode:
        common[1] = "embed"
        done = subprocess.run(common + ["--json"], capture_output=True)
    return done


def line(a, model, device, precision, threads):
    digest = hashlib.sha256()
    for n in PROMPTS:
        done = output(a, model, device, precision, threads, n)
        if done.returncode:
            digest = "exit %d" % done.returncode
            break
        digest.update(done.stdout)
    what = digest if isinstance(digest, str) else digest.hexdigest()[:16]
    print("%-18s %-22s %-12s %-6s %d" % (what, os.path.basename(model), device, precision, threads), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("minerva")
    p.add_argument("--models", nargs="+", default=[os.path.join(ROOT, d) for d in ("tests/data/fixtures", "tests/data", "models")])
    p.add_argument("--device", nargs="+", default=["reference", "cpu"])
    p.add_argument("--class", dest="classes", nargs="+", default=["exact", "a16", "a8"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, os.cpu_count()])
    a = p.parse_args()
    for folder in a.models:
        for name in sorted(os.listdir(folder)):
            model = os.path.join(folder, name)
            if name in ("fixtures", "tokenizers") or not (os.path.isdir(model) or name.endswith(".gguf")):
                continue
            for device in a.device:
                for precision in a.classes:
                    for threads in a.threads:
                        line(a, model, device, precision, threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
