#!/usr/bin/env python3
"""load_test.py MINERVA [CONNECTIONS ROUNDS]: many clients of minerva serve at once.

Each round opens CONNECTIONS keep-alive connections and sends one streamed request on each, 64 at a time. 20 % of the
clients leave midway, 5 % send garbage. Every other answer is whole and equals that of a lone run (class exact); then no
generation runs, no page is in use, and the front's memory stays what it was. The long form: load_test.py MINERVA 1000 400."""
import asyncio
import json
import os
import random
import re
import sys
import time
import urllib.request

import served

MINERVA = sys.argv[1]
CONNECTIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
AT_ONCE, PROMPTS = 64, 16
GARBAGE = (b"\0\1\2\3\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{\"messa",
           b"GET " + b"/x" * 40000 + b" HTTP/1.1\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n{{{")


def request(prompt):
    body = {"prompt": "Once upon a time there was number %d" % prompt, "max_tokens": 6 + prompt % 7, "seed": prompt,
            "temperature": 0.8 if prompt % 2 else 0, "stream": True, "ignore_eos": True}
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data


async def read_answer(reader, leave_after=None):
    """The text of a streamed answer; None: left after so many events."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    text, events, data = "", 0, b""
    while True:
        size = int((await reader.readline()).strip(), 16)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            break
        data += piece[:-2]
        *whole, data = data.split(b"\n\n")
        for event in whole:
            if event.startswith(b"data: {"):
                chunk = json.loads(event[6:])
                assert "error" not in chunk, chunk
                text += "".join(c["text"] for c in chunk["choices"])
                events += 1
            if leave_after is not None and events > leave_after:
                return None
            if event == b"data: [DONE]":
                assert not data
                done = True
    assert done
    return text


async def client(host, port, i, round_seed, gate, alone, opened):
    dice = random.Random((round_seed, i).__repr__())
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    opened.append(i)
    while len(opened) < CONNECTIONS:  # all connections are open before the first request
        await asyncio.sleep(0.02)
    try:
        async with gate:
            kind = dice.random()
            if kind < 0.05:
                writer.write(dice.choice(GARBAGE))
                await asyncio.sleep(0)
                return "garbage"
            prompt = dice.randrange(PROMPTS)
            writer.write(request(prompt))
            text = await asyncio.wait_for(read_answer(reader, dice.randrange(4) if kind < 0.25 else None), served.LIMIT)
            if text is None:
                return "left"
            assert text == alone[prompt], (prompt, text, alone[prompt])
            return "whole"
    finally:
        writer.close()


async def one_round(host, port, seed, alone):
    gate, opened = asyncio.Semaphore(AT_ONCE), []
    return await asyncio.gather(*(client(host, port, i, seed, gate, alone, opened) for i in range(CONNECTIONS)))


async def lone_answers(host, port):
    answers = []
    for prompt in range(PROMPTS):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request(prompt))
        answers.append(await read_answer(reader))
        writer.close()
    return answers


def metric(server, name):
    with urllib.request.urlopen(server.url + "/metrics") as r:
        return float(re.search(r"^minerva_%s\S* ([\d.e+-]+)$" % name, r.read().decode(), re.M).group(1))


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def idle(server):
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return not any(metric(server, name) for name in names) and metric(server, "http_connections") == 1


def main():
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with served.Server(MINERVA, "--precision", "exact", "--parallel", AT_ONCE, env=served.NO_THREAD_CACHES) as s:
        host, port = re.match(r"http://([\d.]+):(\d+)", s.url).groups()
        alone = asyncio.run(lone_answers(host, port))
        sizes = []
        for r in range(ROUNDS):
            begin = time.monotonic()
            kinds = asyncio.run(one_round(host, port, r, alone))
            end = time.monotonic() + served.LIMIT
            while not idle(s):
                assert time.monotonic() < end, "generations, pages or connections remain"
                time.sleep(0.1)
            time.sleep(1.5)  # memory is given back once a second
            sizes.append(resident(s.process.pid))
            print({k: kinds.count(k) for k in set(kinds)}, "%.1f s, front %d KiB" % (time.monotonic() - begin, sizes[-1]))
        assert metric(s, "engine_restarts_total") == 0
        if ROUNDS >= 3 and "MINERVA_TEST_SANITIZE" not in os.environ:  # which keeps what is freed
            assert sizes[-1] <= sizes[1] * 1.02, sizes
        assert s.process.poll() is None


main()
