#!/usr/bin/env python3
"""Decode of every stored type with one model's shape and random weights: a Markdown table of rates, and their shares of the machine's bandwidth.

  type_rows.py MINERVA [--device DEVICE] [--types T,...] [--shape SHAPE] [--layers N] [--rounds N] [--bandwidth GB/S] [--folder FOLDER] [-- FLAGS OF bench]
  type_rows.py --list

Bytes are those of the matrices that a token reads, as the device keeps them (docs/model-formats.md). Each round measures all types in turn, q4_0 and q8_0
among them; figures are medians. "beside": the share as a part of that of q4_0 (of types kept in 5 bits at most) or of q8_0, in the same round.
Without --bandwidth a CPU's is measured. Files are made by tests/dev/synth.py, several at a time, and deleted."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

SYNTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "dev")
sys.dont_write_bytecode = True
sys.path.insert(0, SYNTH)
import synth_draw  # noqa: E402
import synth_folder  # noqa: E402

# bits of an element that CUDA keeps, where these are others than the file's
CUDA_BITS = {"iq3_s": 4.3, "iq3_xxs": 4.3, "iq2_s": 3.6, "iq2_xs": 3.6, "iq2_xxs": 3.6, "iq1_m": 3.6, "iq1_s": 2.3, "tq1_0": 2.3, "tq2_0": 2.3, "f8_e4m3": 8.25,
             "f8_e4m3_128": 8.25, "f8_e4m3_32": 8.25, "nvfp4": 4.6, "nvfp4_64": 4.6, "mlx2_64": 3, "mlx3_64": 4, "mlx5_64": 6, "mlx6_64": 7, "nf4_64": 32}
BASES = ("q4_0", "q8_0")


def elements(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def read_bytes(minerva, model, cuda):
    """(bytes that a token reads, bits of an element of the layers' matrices, their type)"""
    info = json.loads(subprocess.check_output([minerva, "inspect", model, "--json"], stderr=subprocess.DEVNULL))
    total, bits, kind = 0, 0, ""
    for t in info["tensors"]:
        if t["name"] == "token_embd.weight":
            continue  # looked up
        n = elements(t["dim"])
        kept = CUDA_BITS.get(t["dtype"], 0) * n / 8 if cuda and len(t["dim"]) > 1 else 0
        total += kept or t["bytes"]
        if t["name"] == "blk.0.ffn_up.weight":
            bits, kind = 8 * (kept or t["bytes"]) / n, t["dtype"]
    return total, bits, kind


def cpu_bandwidth(minerva):
    rows = subprocess.check_output([minerva, "bench", "--peaks", "--json"], stderr=subprocess.DEVNULL, text=True).splitlines()
    return max(r["rate"] for r in map(json.loads, rows) if r["peak"] == "read")


def measure(a, model):
    out = subprocess.check_output([a.minerva, "bench", "-q", "-m", model, "-p", "0", "-n", str(a.tokens), "-r", "3", "--json", "--device", a.device, *a.flags],
                                  stderr=subprocess.DEVNULL)
    return statistics.median(json.loads(out)["samples_ts"])


def arguments():
    known = [*synth_draw.GGUF, *synth_folder.FORMS]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("minerva", nargs="?")
    p.add_argument("--list", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--types", default=",".join(known))
    p.add_argument("--shape", default="tinyllama-1.1b")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--bandwidth", type=float)
    p.add_argument("--folder", help="where models are put for the while", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    p.add_argument("flags", nargs="*")
    a = p.parse_args()
    a.types = a.types.split(",")
    if a.list or not a.minerva or set(a.types) - set(known):
        print(" ".join(known))
        sys.exit(0 if a.list else 2)
    return a


def main():
    a = arguments()
    cuda = a.device.startswith("cuda")
    folder = tempfile.mkdtemp(prefix="type_rows", dir=a.folder)
    try:
        models = {t: os.path.join(folder, t) for t in dict.fromkeys([*BASES, *a.types])}
        for t, path in models.items():
            subprocess.run([sys.executable, os.path.join(SYNTH, "synth.py"), a.shape, t, path, "--layers", str(a.layers)], check=True, stdout=subprocess.DEVNULL)
        limit = a.bandwidth or (0 if cuda else cpu_bandwidth(a.minerva))
        facts = {t: read_bytes(a.minerva, path, cuda) for t, path in models.items()}
        rounds = [{t: measure(a, path) for t, path in models.items()} for _ in range(a.rounds)]
    finally:
        shutil.rmtree(folder)
    print("%s, %d layers, %s%s, medians of %d rounds of 3\n" % (a.shape, a.layers, a.device, ", %.0f GB/s" % limit if limit else "", a.rounds))
    print("| type | as | bits kept | t/s | GB/s | share | beside | share of its |\n|---|---|---|---|---|---|---|---|")
    for t in models:
        size, bits, kind = facts[t]
        base = BASES[bits > 5]
        rate = statistics.median(r[t] for r in rounds)
        beside = statistics.median(r[t] * size / (r[base] * facts[base][0]) for r in rounds)
        share = "%.0f %%" % (rate * size / limit * 1e-7) if limit else ""
        print("| %s | %s | %.2f | %.0f | %.0f | %s | %s | %.2f |" % (t, kind, bits, rate, rate * size * 1e-9, share, base, beside))


main()
