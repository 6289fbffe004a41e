#!/usr/bin/env python3
"""The long tests of minerva serve, by hand: long_test.py MINERVA load|crash|replicas [--seconds N] [--streams N] [--device D].

load      rounds of 1,000 connections, 64 streams at a time: 20 % hang up midway, 5 % send garbage; every other answer is complete and
          equals the lone run's (class exact). After each round nothing runs or waits, and after round 2 the memory of front and engine
          grows by at most 2 %. Without --seconds ten rounds; 7200 is the form before a release.
crash     kill -9 of the engine at random moments while 200 streams run, 32 at a time, again and again: every stream ends as alone.
          Then kill -9 of the front: its engine ends within a second, and a new server starts.
replicas  two engines, one of them killed again and again: no stream is lost.

--device is that of the engines, a CPU if it is not named.

One line per round; the first thing that is wrong raises."""
import argparse
import asyncio
import json
import os
import random
import signal
import time
import urllib.error
import urllib.request

import served
import streams

PROMPTS = ["Once upon a time there was %s" % who for who in ("an owl", "a small boat", "a girl with a key", "a fox", "an old king", "two frogs", "a tin cup", "a shy dragon")]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(server, path):
    with opener.open(server.url + path, timeout=60) as r:
        return r.read().decode()


def metric(server, name):
    return sum(float(line.split()[-1]) for line in get(server, "/metrics").splitlines() if line.startswith("minerva_" + name + "{"))


def engines(server, state=None):
    """The processes of the engines, of those in this state."""
    try:
        text = get(server, "/health/ready")
    except urllib.error.HTTPError as error:  # 503: none is ready
        text = error.read().decode()
    return [e["pid"] for e in json.loads(text)["engines"] if e["pid"] > 0 and state in (None, e["state"])]


def kib(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def body_of(i):
    """Requests differ in prompt, length and seed; i tells them apart."""
    return {"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 16 + 7 * (i % 6), "seed": i, "temperature": 0.8, "ignore_eos": True}


class Run:
    def __init__(self, server, seed=1):
        self.server, self.draw = server, random.Random(seed)
        self.host, self.port = "127.0.0.1", int(server.url.rsplit(":", 1)[1])
        self.alone = {}

    async def learn(self, n):
        """What each of n requests answers alone."""
        for i in range(n):
            answer = await streams.complete(self.host, self.port, body_of(i))
            assert answer.done and answer.finish == "length" and answer.text, vars(answer)
            self.alone[i] = answer.text

    async def good(self, i):
        answer = await streams.complete(self.host, self.port, body_of(i))
        while answer.status in (429, 503):  # as clients do
            await asyncio.sleep(0.2)
            answer = await streams.complete(self.host, self.port, body_of(i))
        assert answer.status == 200 and answer.done and not answer.error, (i, vars(answer))
        assert answer.text == self.alone[i], "request %d: %r is not %r" % (i, answer.text, self.alone[i])

    async def one(self, i, gate, idle):
        """One connection of a round: it is open from the beginning, and waits for its turn."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        idle.append(writer)
        async with gate:
            kind = self.draw.random()
            if kind < 0.05:
                return await streams.garbage(self.host, self.port, self.draw)
            if kind < 0.25:
                try:
                    return await streams.complete(self.host, self.port, body_of(i), after=self.draw.randrange(1, 12))
                except (ConnectionError, asyncio.IncompleteReadError):
                    return
            await self.good(i)

    async def round(self, n, at_once):
        gate, idle = asyncio.Semaphore(at_once), []
        begin = time.monotonic()
        await asyncio.gather(*[self.one(self.draw.randrange(len(self.alone)), gate, idle) for _ in range(n)])
        for writer in idle:
            writer.close()
        return time.monotonic() - begin

    async def quiet(self):
        """Nothing runs or waits any more."""
        end = time.monotonic() + 60
        while True:
            left = {name: metric(self.server, name) for name in ("num_requests_running", "num_requests_waiting")}
            if not any(left.values()):
                return
            assert time.monotonic() < end, left
            await asyncio.sleep(0.05)


async def load(server, args):
    run, begin, first, number = Run(server), time.monotonic(), None, 0
    await run.learn(64)
    while number < 10 if not args.seconds else time.monotonic() - begin < args.seconds:
        number += 1
        seconds = await run.round(args.streams or 1000, 64)
        await run.quiet()
        await asyncio.sleep(1.5)  # memory is given back once a second
        memory = [kib(server.process.pid)] + [kib(pid) for pid in engines(server)]
        print("round %d: %.1f s, memory in KiB: %s" % (number, seconds, memory), flush=True)
        first = memory if number == 2 else first
        if number > 2:
            assert all(now <= 1.02 * then for now, then in zip(memory, first)), "memory has grown: %s after round 2, %s now" % (first, memory)
        assert server.process.poll() is None and metric(server, "engine_restarts_total") == 0


async def kill_again(server, run, over, which=None):
    """kill -9 of an engine at random moments."""
    n = 0
    while not over.is_set():
        await asyncio.sleep(run.draw.uniform(0.05, 1.5))
        pids = await asyncio.to_thread(engines, server, "ready")
        if pids and not over.is_set():
            os.kill(pids[which if which is not None else run.draw.randrange(len(pids))], signal.SIGKILL)
            n += 1
    return n


async def crash(server, args, which=None):
    run, begin, number = Run(server), time.monotonic(), 0
    await run.learn(64)
    while number < 3 if not args.seconds else time.monotonic() - begin < args.seconds:
        number += 1
        over, gate = asyncio.Event(), asyncio.Semaphore(32)

        async def one(i):
            async with gate:
                await run.good(i)

        killer = asyncio.create_task(kill_again(server, run, over, which))
        n = args.streams or 200
        await asyncio.gather(*[one(run.draw.randrange(64)) for _ in range(n)])
        over.set()
        kills = await killer
        await run.quiet()
        print("round %d: %d streams equal, %d kills, %d resubmitted" % (number, n, kills, metric(server, "requests_resubmitted_total")), flush=True)


def gone(pid):
    """The process has ended, or waits for its parent to see it."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def kill_front(server):
    pids = engines(server)
    server.process.kill()
    server.process.wait()
    end = time.monotonic() + 1
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < end, "an engine lives on after its front"
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minerva")
    parser.add_argument("test", choices=["load", "crash", "replicas"])
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    flags = ["--precision", "exact", "--parallel", 32]
    flags += ["--replicas", args.device, args.device] if args.test == "replicas" else ["--device", args.device]
    with served.Server(args.minerva, *flags, env=served.NO_THREAD_CACHES) as server:
        if args.test == "load":
            asyncio.run(load(server, args))
        else:
            asyncio.run(crash(server, args, 0 if args.test == "replicas" else None))
        if args.test == "crash":
            kill_front(server)
    if args.test == "crash":
        with served.Server(args.minerva, *flags, env=served.NO_THREAD_CACHES) as server:
            asyncio.run(Run(server).learn(2))
    print("passed")


if __name__ == "__main__":
    main()
