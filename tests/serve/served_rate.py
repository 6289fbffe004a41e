#!/usr/bin/env python3
"""served_rate.py [--device D] [--runs N] MINERVA MODEL...: the rate that a server with 64 users reaches beside the rate that its parts allow. By hand.

The parts are measured by `minerva bench` in the same run: the rate of prompts (pp512) and the time of a step in which 64 sequences draw, in the
middle of the answer. A load of prompts and answers can then take no less than

    computed prompt tokens / prompt rate + steps x step time,    steps = answer tokens / 64

and the share printed is this time over the time it took. Prompts are random; with a share in common only what the server computed counts.
One row for each load: users, prompt + answer, shared %, t/s, the rate of the parts, the share, first token p50 / p99 and time per token p50 / p99."""
import argparse
import json
import re
import statistics
import subprocess
import sys

USERS = 64
LOADS = [(128, 128, 0), (1500, 64, 0), (1500, 64, 95)]


def bench(a, model, *flags):
    """The rows of a benchmark, which are JSON lines."""
    command = [a.minerva, "bench", *(["--device", a.device] if model else []), *(["-m", model] if model else []), "-o", "json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.strip().splitlines()[-1]))
    return [json.loads(line) for line in done.stdout.splitlines()]


def rate(a, model, *flags):
    return statistics.median(bench(a, model, "-r", "3", *flags)[-1]["samples_ts"])


def serve(a, model):
    """A server of the model, and its URL, once it answers."""
    server = subprocess.Popen([a.minerva, "serve", "-m", model, "--device", a.device, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in server.stdout:
        url = re.search(r"http://\S+", line)
        if url:
            return server, url.group()
    sys.exit("%s: the server ended before it was ready" % model)


def row(a, url, load, prompt_rate, step_s):
    prompt, answer, shared = load
    r = bench(a, None, "--url", url, "-b", str(USERS), "-p", str(prompt), "-n", str(answer), "--shared", str(shared))[-1]
    if r["failed"]:
        sys.exit("%d of %d requests failed: %s" % (r["failed"], r["requests"], r["error"]))
    computed = r["prompt_tokens"] - r["cached_tokens"]
    least_s = computed / prompt_rate + r["completion_tokens"] / USERS * step_s
    ms = lambda of: "%.1f / %.1f" % (of["p50"] * 1e3, of["p99"] * 1e3)
    print("| %d, %d + %d, %d %% shared | %.0f | %.0f | %.0f %% | %s | %s |" % (
        USERS, prompt, answer, shared, r["tokens_per_s"], r["completion_tokens"] / least_s, 100 * least_s / r["wall_s"], ms(r["first_token_s"]), ms(r["per_token_s"])), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="auto")
    p.add_argument("--runs", type=int, default=2)
    p.add_argument("minerva")
    p.add_argument("models", nargs="+")
    a = p.parse_args()
    for model in a.models:
        prompt_rate = rate(a, model, "-p", "512", "-n", "0")
        steps = {load: USERS / rate(a, model, "-p", "0", "-n", "64", "-b", str(USERS), "-d", str(load[0] + load[1] // 2 - 32)) for load in LOADS}
        print("%s: prompts %.0f t/s; steps of %d: %s ms" % (model, prompt_rate, USERS, ", ".join("%.2f" % (s * 1e3) for s in steps.values())))
        print("| users, prompt + answer | t/s | of the parts | share | first token, ms | per token, ms |\n|---|---|---|---|---|---|")
        server, url = serve(a, model)
        try:
            for load in LOADS:
                for _ in range(a.runs):
                    row(a, url, load, prompt_rate, steps[load])
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
