"""Many streams at once from a server, with Python's standard library alone: for tests under load.

complete() sends one request on a connection of its own and returns an Answer; behaviours of bad clients are hang_up() and garbage()."""
import asyncio
import json
import random


class Answer:
    def __init__(self):
        self.status, self.text, self.finish, self.done, self.error, self.usage = 0, "", None, False, None, None


async def send(host, port, body, path="/v1/completions"):
    """A connection with the request on it, up to the head of the answer: (reader, writer, status, is chunked, length)."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    data = json.dumps(body).encode()
    writer.write(("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path, len(data))).encode() + data)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next((int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:")), None)
    return reader, writer, int(head.split()[1]), "transfer-encoding: chunked" in head, length


async def pieces(reader, chunked, length):
    """The body as it arrives."""
    if not chunked:
        yield await (reader.read() if length is None else reader.readexactly(length))
        return
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


def take(answer, data):
    """One event."""
    if data == "[DONE]":
        answer.done = True
        return
    event = json.loads(data)
    if "error" in event:
        answer.error = event["error"]["message"]
    answer.usage = event.get("usage") or answer.usage
    for choice in event.get("choices", []):
        answer.text += choice.get("text", "")
        answer.finish = choice.get("finish_reason") or answer.finish


async def complete(host, port, body, after=None):
    """The whole stream; with `after` the connection is closed after so many events."""
    answer, rest, n = Answer(), b"", 0
    reader, writer, answer.status, chunked, length = await send(host, port, dict(body, stream=True))
    try:
        async for piece in pieces(reader, chunked, length):
            rest += piece
            if answer.status != 200:
                continue
            *events, rest = rest.split(b"\n\n")
            for event in events:
                if event.startswith(b"data: "):
                    take(answer, event[6:].decode())
                    n += 1
            if after is not None and n >= after:
                break
        if answer.status != 200:
            answer.error = rest.decode(errors="replace")
    finally:
        writer.close()
    return answer


GARBAGE = [b"\x00\x01\x02\xff" * 50, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40\r\n\r\n{\"prompt\": [1, 2",
           b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{\"prompt\"", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
           b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", b"\r\n" * 1000,
           b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
           b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 13\r\n\r\n{\"prompt\": 3}"]


async def garbage(host, port, draw=random):
    """Bytes that are no request; whatever comes back is read for a moment."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(draw.choice(GARBAGE))
        await writer.drain()
        await asyncio.wait_for(reader.read(1 << 16), 1)
    except (asyncio.TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
