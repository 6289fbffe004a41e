#!/usr/bin/env python3
"""Python's stream beside `minerva bench`, one sequence: speed.py MODEL [--device D] [--tokens N] [--rounds R] [--runs K]

Rounds in which both take turns, for other programs may run on the machine: K runs of N tokens of the one, then of the other, the order changing from round to
round. Printed are the medians of each round, and over all runs the median and the best of each with their ratio. The stream's clock runs from the first piece
of an answer to the last, through the package as a program calls it: text, ids, a Completion that grows. Needs PYTHONPATH, LIBMINERVA and
LIBMINERVA_COMMAND as docs/python.md has them. On a busy machine the ratio of the best says more than that of the medians.

Status 1: both ratios are below 0.97."""
import argparse
import json
import statistics
import subprocess
import sys
import time

import minerva
from minerva import _library

LEAST = 0.97


def bench(_, o):
    """Rates of runs, in tokens per second; the command has one more run to warm up."""
    p = subprocess.run([_library.command(), "bench", "-q", "-m", o.model, "--device", o.device, "-p", "0", "-n", str(o.tokens), "-r", str(o.runs), "--json"],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(p.stdout)["samples_ts"]


def answer(model, n):
    """Rate of n tokens behind the first."""
    times = []  # (of a piece, ids until then)
    running = model.generate([1], stream=True, raw=True, temperature=0, ignore_eos=True, max_tokens=n + 1)
    for _ in running:
        times.append((time.perf_counter(), len(running.result.ids)))
    assert times[-1][1] == n + 1 and len(times) > n // 2, "%d ids in %d pieces" % (times[-1][1], len(times))
    return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])


def stream(model, o):
    """The same of Python; the other program may have taken the caches."""
    answer(model, o.tokens)
    return [answer(model, o.tokens) for _ in range(o.runs)]


def show(what, b, s):
    print("%-8s bench %8.2f t/s   stream %8.2f t/s   %.3f" % (what, b, s, s / b), flush=True)
    return s / b


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="auto")
    for name, default in (("tokens", 64), ("rounds", 8), ("runs", 4)):
        parser.add_argument("--" + name, type=int, default=default)
    o = parser.parse_args()
    rates = {bench: [], stream: []}
    with minerva.Model(o.model, device=o.device, parallel=1) as model:
        print(model.load()["device"], flush=True)
        for i in range(o.rounds):
            made = {who: who(model, o) for who in ((bench, stream) if i % 2 else (stream, bench))}
            show("round", *(statistics.median(made[who]) for who in rates))
            for who, found in made.items():
                rates[who] += found
    ratios = [show(what, *(of(found) for found in rates.values())) for what, of in (("median", statistics.median), ("best", max))]
    sys.exit(max(ratios) < LEAST)


if __name__ == "__main__":
    main()
