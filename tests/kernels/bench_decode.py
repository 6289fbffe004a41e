#!/usr/bin/env python3
"""Decode beside the machine's limit, in one run: bench_decode.py BUILD MODEL... [-- FURTHER FLAGS OF `minerva bench`]

For each model, in turn, five times: a read loop with 8 streams per thread, then `minerva bench` of 32 tokens. Prints medians:
tokens per second, bytes of weights read per second, and their share of what the read loop reached beside it."""
import json
import os
import statistics
import subprocess
import sys

ROUNDS, TOKENS = 5, 32


def main():
    args = sys.argv[1:]
    flags = args[args.index("--") + 1:] if "--" in args else []
    build, *models = args[:args.index("--")] if "--" in args else args
    threads = str(len(os.sched_getaffinity(0)))
    print("| model | class | t/s | weights GB/s | read loop GB/s | share (min-max) |\n|---|---|---|---|---|---|")
    for model in models:
        rows = []
        for _ in range(ROUNDS):
            loop = float(subprocess.check_output([build + "/tests/kernels/bench_read", threads, "3"]))
            out = subprocess.check_output([build + "/tools/minerva", "bench", "-m", model, "-p", "0", "-n", str(TOKENS), "-r", "1", "--json", *flags],
                                          stderr=subprocess.DEVNULL)
            r = json.loads(out.splitlines()[0])
            # the embedding table is looked up, not read, unless it is also the output matrix: what one token reads
            rows.append((r["avg_ts"], r["avg_ts"] * read_bytes(build, model) * 1e-9, loop, r["precision"]))
        share = [100 * b / loop for _, b, loop, _ in rows]
        m = [statistics.median(c) for c in list(zip(*rows))[:3]]
        print(f"| {os.path.basename(model)} | {rows[0][3]} | {m[0]:.1f} | {m[1]:.1f} | {m[2]:.1f} | {statistics.median(share):.0f} % ({min(share):.0f}-{max(share):.0f}) |",
              flush=True)


def read_bytes(build, model, cache={}):
    """Of one token: an embedding table is looked up unless it is the output matrix too, of experts only those in use are read."""
    if model not in cache:
        info = json.loads(subprocess.check_output([build + "/tools/minerva", "inspect", model, "--json"], stderr=subprocess.DEVNULL))
        key = info["arch"] + ".expert_"
        share = info["metadata"].get(key + "used_count", 0) / info["metadata"].get(key + "count", 1)
        tied = all(t["name"] != "output.weight" for t in info["tensors"])
        cache[model] = sum(t["bytes"] * (share if "_exps." in t["name"] else 1) for t in info["tensors"]
                           if tied or t["name"] != "token_embd.weight")
    return cache[model]


main()
