#!/usr/bin/env python3
"""Decode by threads, alone and beside a process that burns a processor: bench_threads.py BUILD [-m MODEL] [-n TOKENS] [-r ROUNDS]
[--cpus LIST] [--threads LIST] [--old BUILD]

Each round runs every row once, so that rows of a round share the machine's mood; the table has medians and, beside them, medians
of the rounds' ratios: to the row with as many threads as processors, and beside a burning process to one thread beside it.
With --old: a second build in the same rounds, and the ratio to it."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def rate(build, args, threads):
    out = subprocess.check_output([build + "/tools/minerva", "bench", "-m", args.m, "-p", "0", "-n", args.n, "-r", "1", "-t", str(threads),
                                   "--device", "cpu_simd", "--json"], stderr=subprocess.DEVNULL)
    return json.loads(out.splitlines()[0])["avg_ts"]


def run(builds, args, threads, burning):
    """Of each build, one right after the other, beside a process that burns a processor of the mask."""
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if burning else None
    try:
        return [rate(b, args, threads) for b in builds]
    finally:
        if burner:
            burner.kill()
            burner.wait()


def ratio(rows, a, b):
    """Medians, least and most of the rounds' ratios of (row, build) a to b."""
    r = [x[a[1]] / y[b[1]] for x, y in zip(rows[a[0]], rows[b[0]])]
    return f"{statistics.median(r):.2f} [{min(r):.2f}-{max(r):.2f}]"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("-m", default=HERE + "/../../models/storyteller")
    p.add_argument("-n", default="64")
    p.add_argument("-r", type=int, default=9)
    p.add_argument("--cpus")
    p.add_argument("--threads")
    p.add_argument("--old")
    args = p.parse_args()
    if args.cpus:
        os.sched_setaffinity(0, {int(c) for c in args.cpus.split(",")})
    n = len(os.sched_getaffinity(0))
    threads = [int(t) for t in args.threads.split(",")] if args.threads else sorted({1, n, n + 1, 3 * n // 2, 2 * n, 4 * n})
    threads += [n] if n not in threads else []
    builds = [args.build] + ([args.old] if args.old else [])
    keys = [(t, False) for t in threads] + [(t, True) for t in sorted({1, n})]
    rows = {k: [] for k in keys}
    for i in range(args.r):
        for t, burning in keys if i % 2 else reversed(keys):
            rows[t, burning].append(run(builds, args, t, burning))
    print(f"{n} processors, {args.r} rounds, {os.path.basename(args.m)}, tg{args.n}\n")
    print("| threads | beside a burning process | t/s | to %d threads | to 1 thread beside it |%s" % (n, " to the other build |" if args.old else ""))
    print("|---|---|---|---|---|" + ("---|" if args.old else ""))
    for k in keys:
        burning = k[1]
        print(f"| {k[0]} | {'yes' if burning else 'no'} | {statistics.median(x[0] for x in rows[k]):.4g} | "
              f"{'' if burning else ratio(rows, (k, 0), ((n, False), 0))} | {ratio(rows, (k, 0), ((1, True), 0)) if burning else ''} |"
              + (f" {ratio(rows, (k, 0), (k, 1))} |" if args.old else ""))


main()
