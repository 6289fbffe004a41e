#!/usr/bin/env python3
"""front_rate.py MINERVA: processor time that a front of four servers spends on a request, and on an event of a stream. By hand; docs/scale.md has
the result. The servers are canned answers in this process, 64 connections ask. Processor time, not time: this process is slower than the front."""
import asyncio
import json
import os
import re
import subprocess
import sys

SERVERS, CONNECTIONS, EVENTS = 4, 64, 64
EVENT = ('data: {"id":"cmpl-e6ec2ecc7e63122700000001","object":"text_completion","created":1795411754,"model":"storyteller",'
         '"choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}\n\n').encode()
WHOLE = json.dumps({"id": "x", "choices": [{"text": "word " * 32, "finish_reason": "length"}], "usage": {"prompt_tokens": 5}}).encode()
READY = b'{"status":"ready","running":0,"waiting":0}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


async def answer(reader, writer, gap):
    """One connection of a server."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            body = await reader.readexactly(int(length.group(1))) if length else b""
            if b'"stream": true' not in body:
                value = READY if head.startswith(b"GET") else WHOLE
                writer.write(HEAD % (len(value), value))
                continue
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(EVENTS):
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                await asyncio.sleep(gap[0])
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass


async def ask(port, n, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    data = json.dumps(body).encode()
    for _ in range(n):
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
        length = re.search(rb"content-length: (\d+)", (await reader.readuntil(b"\r\n\r\n")).lower())
        await (reader.readexactly(int(length.group(1))) if length else reader.readuntil(b"0\r\n\r\n"))
    writer.close()


def processor_time(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(front, port, n, body):
    """Seconds of the front for each of n requests."""
    begin = processor_time(front.pid)
    await asyncio.gather(*(ask(port, n // CONNECTIONS, body) for _ in range(CONNECTIONS)))
    return (processor_time(front.pid) - begin) / n


async def main():
    gap = [0.01]
    servers = [await asyncio.start_server(lambda r, w: answer(r, w, gap), "127.0.0.1", 0, limit=1 << 24) for _ in range(SERVERS)]
    urls = ["http://127.0.0.1:%d" % s.sockets[0].getsockname()[1] for s in servers]
    front = subprocess.Popen([sys.argv[1], "serve", "--port", "0", "--replicas", *urls], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(front.stdout.readline().rsplit(":", 1)[1])
    await asyncio.sleep(2)
    print("| prompt, bytes | us a request | requests/s of a core |\n|---|---|---|")
    for size in 100, 4000, 16000, 64000:
        s = await measure(front, port, 3200 if size < 20000 else 960, {"prompt": "Once upon a time there was a fox. " * (size // 34), "max_tokens": 8})
        print("| %d | %.0f | %.0f |" % (size, s * 1e6, 1 / s), flush=True)
    for gap[0] in 0.01, 0:
        s = await measure(front, port, 512, {"prompt": "Once upon a time", "max_tokens": EVENTS, "stream": True}) / EVENTS
        print("events %g s apart: %.1f us each, %.0f events/s of a core" % (gap[0], s * 1e6, 1 / s), flush=True)
    front.terminate()
    front.wait()
    os._exit(0)


asyncio.run(main())
