#!/usr/bin/env python3
"""front_test.py MINERVA GROUP [SECONDS]: minerva serve --replicas URL,URL: requests that go to other servers.

  fakes   servers of this file break off, refuse and hang up as they are told: what the client has then
  access  keys, request ids, TLS, flags, metrics, the end
  kills   four servers with the demo model, 64 streams, and one server killed again and again; the long form: kills 60"""
import asyncio
import collections
import http.client
import http.server
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import messages
import responses
import served
import streams

MINERVA, GROUP = sys.argv[1], sys.argv[2]
DOC = os.path.join(served.ROOT, "docs", "serving.md")


class Front(served.Server):
    def __init__(self, urls, *flags, ready=True, **more):
        super().__init__(MINERVA, *flags, **more)
        self.command = [MINERVA, "serve", "--port", "0", "--replicas", ",".join(urls), *map(str, flags)]
        self.until_ready = ready

    def wait(self):
        super().wait(ready=self.until_ready)


def until(what, seconds=served.LIMIT):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def ask(url, method, path, body=None, headers=None):
    """(status, headers, body)"""
    c = http.client.HTTPConnection(*re.match(r"https?://([\d.]+):(\d+)", url).groups(), timeout=served.LIMIT)
    c.request(method, path, body if body is None or isinstance(body, str) else json.dumps(body), headers or {})
    r = c.getresponse()
    return r.status, r.headers, r.read().decode()


def metrics(url, headers=None):
    return {m.group(1): float(m.group(2)) for m in re.finditer(r"^minerva_(\S+) (\S+)$", ask(url, "GET", "/metrics", headers=headers)[2], re.M)}


# ---- servers that do as they are told ---------------------------------------------------------------------------------
TEXT = ["One", " two", " three", " four", " five"]


# Events of dialects by path, and how many of them tell the client nothing of the answer.
NAMED = {"/v1/messages": (["message_start", "ping", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"], 2),
         "/v1/responses": (["response." + x for x in ("created", "in_progress", "output_item.added", "output_text.delta", "output_item.done", "completed")], 2)}


class Fake:
    """A server whose answers follow `script`, one entry per POST (the last one for all others):
      400 and more   that status
      n              n events of the text, and then the connection breaks; None: the whole text
      -1             an error event of a server that is being stopped
      "hang"         nothing more, until the client leaves"""

    def __init__(self, *script, text=TEXT):
        self.script, self.text = list(script) or [None], text
        self.posts, self.broken, self.lock = [], 0, threading.Lock()
        self.ready, self.next = 200, None  # next: a function instead of the script

    def __enter__(self):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            log_message = lambda *_: None

            def whole(self, status, value, headers=()):
                data = json.dumps(value).encode()
                self.send_response(status)
                for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                if self.path == "/health/ready":
                    self.whole(fake.ready, {"status": "ready", "running": 0, "waiting": 0})
                else:
                    self.whole(200, {"path": self.path})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with fake.lock:
                    number = len(fake.posts)
                    fake.posts.append((self.path, dict(self.headers), body))
                    step = fake.next() if fake.next else fake.script[min(number, len(fake.script) - 1)]
                if isinstance(step, int) and step >= 400:
                    self.whole(step, {"error": {"message": "told to", "code": None}}, [("Retry-After", "7")])
                elif self.path in NAMED:
                    self.named(NAMED[self.path][0], step)
                elif not json.loads(body).get("stream"):
                    self.finish_whole(step)
                else:
                    self.stream(step, "%s-%d" % (id(fake), number))

            def finish_whole(self, step):
                if step is not None:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"half\":")
                    return self.drop()
                self.whole(200, {"choices": [{"text": "".join(fake.text)}]})

            def drop(self):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

            def event(self, text):
                data = text.encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

            def stream(self, step, name):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                chunk = lambda delta, finish=None: self.event("data: " + json.dumps(
                    {"id": name, "created": time.time(), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, separators=(",", ":")) + "\n\n")
                self.event(": keep-alive\n\n")
                chunk({"role": "assistant", "content": ""})
                if step == -1:
                    self.event('data: {"error":{"message":"stopping","code":503}}\n\ndata: [DONE]\n\n')
                    return self.event("")
                if step == "hang":
                    try:
                        while self.connection.recv(1):
                            pass
                    except OSError:
                        pass
                    fake.broken += 1
                    return
                for text in fake.text[:step]:
                    chunk({"content": text})
                if step is not None:
                    return self.drop()
                chunk({}, "stop")
                self.event("data: [DONE]\n\n")
                self.event("")

            def named(self, names, step):
                """Events of a dialect; step: how many, counted without the comment."""
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                self.event(": keep-alive\n\n")
                for name in names[:step]:
                    self.event("event: %s\ndata: %s\n\n" % (name, json.dumps({"type": name}, separators=(",", ":"))))
                if step is not None:
                    return self.drop()
                self.event("")

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            handle_error = lambda *_: None

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


Seen = collections.namedtuple("Seen", "status text ids roles error done headers")


def chat(url, **more):
    body = {"messages": [{"role": "user", "content": "Count, please. " * 20}], "stream": True, "temperature": 0, **more}
    status, headers, text = ask(url, "POST", "/v1/chat/completions", body)
    if status != 200:
        return Seen(status, "", set(), 0, text, False, headers)
    events = [json.loads(e) for e in re.findall(r"^data: (\{.*)$", text, re.M)]
    deltas = [c["delta"] for e in events for c in e.get("choices", [])]
    return Seen(status, "".join(d.get("content", "") for d in deltas), {e["id"] for e in events if "id" in e}, sum("role" in d for d in deltas),
                next((e["error"]["message"] for e in events if "error" in e), None), text.endswith("data: [DONE]\n\n"), headers)


def case(*scripts, texts=(TEXT, TEXT), **more):
    """What a client sees of servers with these scripts, whichever of them is asked first; and the metrics of the front."""
    fakes = [Fake(*s, text=t) for s, t in zip(scripts, texts)]
    with fakes[0], fakes[-1], Front([f.url for f in fakes]) as front:
        until(lambda: ask(front.url, "GET", "/health")[2].count('"ready"') == len(fakes) + 1)
        seen = chat(front.url, **more)
        return seen, metrics(front.url), fakes


def whole(seen, n_ids=1):
    assert (seen.status, seen.text, seen.error, seen.done) == (200, "".join(TEXT), None, True), seen
    assert len(seen.ids) == n_ids and seen.roles == 1, seen


def fakes():
    # both fakes have the same script: whoever is asked first does the first thing
    with Fake() as sole, Front([sole.url + "/"]) as front:
        whole(chat(front.url))
        assert ask(front.url, "GET", "/v1/models/a%20b%25")[2] == '{"path": "/v1/models/a%20b%25"}'
        assert json.loads(ask(front.url, "POST", "/v1/completions", {"prompt": "x"})[2])["choices"][0]["text"] == "".join(TEXT)
        sole.script = ["hang"]
        # a client that leaves: the server is told
        c = socket.create_connection(re.match(r"http://([\d.]+):(\d+)", front.url).groups())
        body = json.dumps({"prompt": "x", "stream": True})
        c.sendall(("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)).encode())
        assert c.recv(4096)
        c.close()
        until(lambda: sole.broken == 1)
        until(lambda: metrics(front.url)['replica_requests_running{replica="%s"}' % sole.url] == 0)
        # five servers that break off in a row with one request: it is not sent again
        sole.script = [0]
        before = len(sole.posts)
        seen = chat(front.url)
        assert len(sole.posts) - before == 5 and seen.done and not seen.roles, (seen, len(sole.posts) - before)
        assert "several servers broke off" in seen.error

    breaks = lambda n: ([n], [None])
    for n in 0, 2:  # the first choice is the first server: nothing is known of prompts, and both are idle
        seen, m, (a, b) = case(*breaks(n))
        whole(seen)
        assert (len(a.posts), len(b.posts)) == (1, 1) and a.posts[0][2] == b.posts[0][2]
        assert (m["requests_retried_total"], m["requests_resumed_total"]) == ((1, 0) if n == 0 else (0, 1)), m
    whole(case([-1], [None])[0])
    whole(case([429], [None])[0])
    whole(case([503], [None])[0])
    assert json.loads(ask_whole([0], [None]))["choices"][0]["text"] == "".join(TEXT)
    seen, m, _ = case(*breaks(2), temperature=0.7)
    assert (seen.text, seen.done, seen.roles) == ("One two", True, 1) and "broke off" in seen.error, seen
    assert m["requests_interrupted_total"] == 1 and m["requests_resumed_total"] == 0
    whole(case(*breaks(2), temperature=0.7, seed=3)[0])
    seen, m, _ = case(*breaks(2), texts=(TEXT, ["One", " other", " three"]))
    assert (seen.text, seen.done) == ("One two", True) and "another answer" in seen.error, seen
    seen, m, (a, b) = case([429], [429])
    assert (seen.status, seen.headers["Retry-After"], len(a.posts), len(b.posts)) == (429, "7", 1, 1), seen
    seen, m, (a, b) = case([503, None], [503, None])  # both come back at the next question after their health
    whole(seen)
    for path in NAMED:
        cut_named(path)
    silent()


def cut_named(path):
    """A stream of a dialect's events, cut at each: before the first block another server has the request, then an error ends it."""
    named, n_before = NAMED[path]
    shown = lambda names: [x for x in names if x != "ping"]
    with Fake() as a, Fake() as b, Front([a.url, b.url]) as front:
        for n in range(len(named)):
            until(lambda: ask(front.url, "GET", "/health")[2].count('"ready"') >= (3 if n <= n_before else 2))
            before, steps = len(a.posts) + len(b.posts), iter([n])
            a.next = b.next = lambda: next(steps, None)
            status, _, text = ask(front.url, "POST", path, {"messages": messages.STORY, "input": responses.STORY, "stream": True})
            want, n_posts = (shown(named), 2) if n <= n_before else (shown(named[:n]) + ["error"], 1)
            assert status == 200 and shown(re.findall("^event: (.*)$", text, re.M)) == want and len(a.posts) + len(b.posts) - before == n_posts, (n, text)


def ask_whole(*scripts):
    a, b = (Fake(*s) for s in scripts)
    with a, b, Front([a.url, b.url]) as front:
        until(lambda: ask(front.url, "GET", "/health")[2].count('"ready"') == 3)
        return ask(front.url, "POST", "/v1/completions", {"prompt": "x", "temperature": 1})[2]


def silent():
    """Nobody listens at first: the front is not ready, a request waits, and is answered when the server is there."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        with Front([url], "--drain", 0, ready=False) as front:
            assert ask(front.url, "GET", "/health/live")[0] == 200
            status, _, text = ask(front.url, "GET", "/health/ready")
            assert status == 503 and json.loads(text)["status"] == "not ready"
            found = []
            t = threading.Thread(target=lambda: found.append(chat(front.url)))
            t.start()
            until(lambda: metrics(front.url)["num_requests_waiting"] == 1)
            s.listen(1)  # and breaks off what comes
            s.accept()[0].close()
            front.process.send_signal(signal.SIGTERM)
            t.join()
            assert found[0].status == 503 and "being stopped" in found[0].error, found


# ---- access -----------------------------------------------------------------------------------------------------------
def usage_error(*flags, word):
    r = subprocess.run([MINERVA, "serve", "--port", "0", *flags], capture_output=True, text=True, env=served.environment(), timeout=served.LIMIT)
    assert r.returncode == 2 and word in r.stderr, r


def flags():
    usage_error("--replicas", "http://a,cpu", word="no devices among them")
    usage_error("--replicas", "http://", word="expected URLs")
    usage_error("--replicas", "http://a/x?y", word="expected URLs")
    usage_error("--replicas", "http://a,http://a/", word="http://a twice")
    usage_error("--replicas", "http://a", "-m", served.MODEL, word="--model: a front")
    usage_error("--replicas", "http://a", "--parallel", "4", word="--parallel: a front")


def certificate(folder):
    cert, key = folder + "/cert.pem", folder + "/key.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                           "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], capture_output=True)
    assert made.returncode == 0, made.stderr
    return cert, key


def by_messages(front):
    """Anthropic Messages through a front: whole, streamed, errors."""
    c = http.client.HTTPConnection(*re.match(r"https?://([\d.]+):(\d+)", front.url).groups(), timeout=served.LIMIT)
    request = c.request
    messages.refused(c, {}, 401, "authentication_error", "x-api-key")
    # a proxy's own Authorization is no key: the client's key counts, here and on the server
    c.request = lambda *args: request(*args[:3], headers={"X-Api-Key": "beta", "Authorization": "Basic eDp5"})
    body = {"messages": messages.STORY, "max_tokens": 6, "temperature": 0}
    a, b = messages.post(c, body), messages.streamed(c, body)
    assert messages.parts(a) == messages.parts(b)
    lines = lambda: [x for x in map(json.loads, re.findall(r"^{.*}$", front.text(), re.M)) if x["path"] == messages.PATH and x["status"] == 200]
    until(lambda: len(lines()) == 2)
    log = lines()
    for line, usage in zip(log, (a["usage"], b["usage"])):
        assert (line["prompt_tokens"], line["completion_tokens"]) == (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]), (line, usage)
    # the system prompt is the beginning, whatever its billing header is and whoever asks
    known = lambda: metrics(front.url, {"Authorization": "Bearer beta"})["prefix_blocks_routed_total"]
    before = known()
    for h in "a1b2c", "9f8e7":
        messages.post(c, {**body, "messages": [{"role": "user", "content": h}], "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=%s; %s" % (h, "Be brief. " * 40)}]})
    assert known() >= before + 5, before
    messages.refused(c, {**body, "messages": []}, 400, "invalid_request_error", "messages:")


def by_responses(front):
    """OpenAI Responses through a front: whole, streamed, errors."""
    c = http.client.HTTPConnection(*re.match(r"https?://([\d.]+):(\d+)", front.url).groups(), timeout=served.LIMIT)
    request = c.request
    c.request = lambda *args: request(*args[:3], headers={"Authorization": "Bearer beta"})
    body = {"input": responses.STORY, "max_output_tokens": 6, "temperature": 0}
    a, b = responses.post(c, body), responses.streamed(c, {**body, "tools": [{"type": "other", "usage": {"input_tokens": 1, "output_tokens": 99}}]})
    assert responses.parts(a) == responses.parts(b)
    lines = lambda: [x for x in map(json.loads, re.findall(r"^{.*}$", front.text(), re.M)) if x["path"] == responses.PATH and x["status"] == 200]
    until(lambda: len(lines()) == 2)
    for line, usage in zip(lines(), (a["usage"], b["usage"])):
        assert (line["prompt_tokens"], line["completion_tokens"]) == (usage["input_tokens"], usage["output_tokens"]), (line, usage)
    responses.keeps(c, {**body, "max_output_tokens": 12}, responses.post(c, {**body, "max_output_tokens": 12}))
    responses.refused(c, {**body, "input": []}, 400, "input:", "input")
    c.request = lambda *args: request(*args[:3], headers={"Authorization": "Bearer alpha"})  # of another key
    responses.refused(c, {**body, "previous_response_id": a["id"]}, 404, a["id"], "previous_response_id")
    responses.refused(c, None, 404, "not found", path=responses.PATH + "/" + a["id"], method="GET")


def kept_by_one():
    """Of several servers one has a response: the front asks them in turn."""
    with served.Server(MINERVA, "--device", "cpu") as one, served.Server(MINERVA, "--device", "cpu", "--keep-responses", 0) as two, Front([one.url, two.url, "http://127.0.0.1:1"]) as front:
        c = http.client.HTTPConnection(*re.match(r"https?://([\d.]+):(\d+)", front.url).groups(), timeout=served.LIMIT)
        direct = http.client.HTTPConnection(*re.match(r"https?://([\d.]+):(\d+)", one.url).groups(), timeout=served.LIMIT)
        body = {"input": responses.STORY, "max_output_tokens": 6, "temperature": 0}
        first = responses.post(direct, body)
        for _ in range(3):  # whichever the front asks first
            responses.post(c, {**body, "previous_response_id": first["id"]})
            responses.streamed(c, {**body, "previous_response_id": first["id"]})
            assert responses.get(c, first["id"]) == first
        responses.refused(c, {**body, "previous_response_id": "resp_1"}, 404, "resp_1", "previous_response_id")
        responses.get(c, first["id"], "DELETE")
        responses.refused(c, None, 404, "not found", path=responses.PATH + "/" + first["id"], method="DELETE")


def access():
    flags()
    kept_by_one()
    with tempfile.TemporaryDirectory() as folder:
        keys = folder + "/keys"
        with open(keys, "w") as f:
            f.write("alpha\nbeta\n")
        cert, key = certificate(folder)
        flags_of_both = "--api-key", keys
        with served.Server(MINERVA, "--device", "cpu", "--tls-cert", cert, "--tls-key", key, *flags_of_both, key="alpha") as s, \
                Front([s.url], "--replica-ca", cert, *flags_of_both, "-v", "--log-format", "json", key="alpha") as front:
            body = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
            assert ask(front.url, "POST", "/v1/completions", body)[0] == 401
            status, headers, text = ask(front.url, "POST", "/v1/completions", body, {"Authorization": "Bearer beta", "X-Request-Id": "r-17"})
            assert status == 200 and headers["X-Request-Id"] == "r-17" and json.loads(text)["usage"]["completion_tokens"] == 4, text
            status, _, text = ask(front.url, "POST", "/v1/completions", {**body, "max_tokens": -1}, {"Authorization": "Bearer beta"})
            assert status == 400 and json.loads(text)["error"]["param"] == "max_tokens", text
            status, headers, text = ask(front.url, "POST", "/v1/completions", {**body, "model": "storyteller", "stream": True,
                                                                               "stream_options": {"include_usage": True}}, {"X-Api-Key": "beta"})
            assert status == 200 and text.endswith("data: [DONE]\n\n"), text
            by_messages(front)
            by_responses(front)
            until(lambda: headers["X-Request-Id"] in front.text())
            log = {x["id"]: x for x in map(json.loads, re.findall(r"^{.*}$", front.text(), re.M))}
            for found in log["r-17"], log[headers["X-Request-Id"]]:
                assert (found["key"], found["status"], found["completion_tokens"]) == ("2", 200, 4) and found["prompt_tokens"] > 2, found
            assert found["model"] == "storyteller" and 0 < found["first_s"] <= found["total_s"], found
            named = set(re.findall(r"`(\w+)`", open(DOC).read().split("| name of a front | kind | |")[1].split("\n\n")[0])) - {"replica", "status"}
            found = ask(front.url, "GET", "/metrics", None, {"Authorization": "Bearer alpha"})[2]
            found = {n[len("minerva_"):] for n in re.findall(r"^# TYPE (\w+)", found, re.M)}
            assert named == found, named ^ found
        with served.Server(MINERVA, "--device", "cpu", "--tls-cert", cert, "--tls-key", key) as s, Front([s.url], ready=False) as front:
            until(lambda: "cannot be reached" in front.text())  # a certificate that nobody vouches for
            assert '"unreachable"' in ask(front.url, "GET", "/health")[2]
    with Fake() as fake, Front([fake.url], "--drain", 20) as front:
        whole(chat(front.url, model="anything"))
        path, headers, body = fake.posts[0]
        assert path == "/v1/chat/completions" and json.loads(body)["model"] == "anything"
        fake.script = ["hang"]
        t = threading.Thread(target=chat, args=(front.url,))
        t.start()
        until(lambda: len(fake.posts) == 2)
        front.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in front.text())
        assert front.process.poll() is None
        front.process.send_signal(signal.SIGTERM)
        t.join()
        assert front.process.wait(20) == 0


# ---- servers that are killed ------------------------------------------------------------------------------------------
N_REPLICAS, N_STREAMS, N_BEGINNINGS, N_ENDS, FEW = 4, 64, 8, 2, 6


def free_port(taken=set()):
    """One that no other test is given by the system."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in taken:
            taken.add(port)
            return port


def replica(port):
    s = served.SlowServer(MINERVA, 15, "--precision", "exact", "--parallel", 32)
    s.command[s.command.index("--port") + 1] = str(port)
    return s


def request(i, n=24):
    """Number i of them, n tokens: a long beginning that several share, then its own end. Every fourth cannot be computed again."""
    beginning = " ".join("On day %d of week %d the fox met friend number %d." % (d, i % N_BEGINNINGS, d * d) for d in range(14))
    body = {"prompt": beginning + " Ending %d:" % (i // N_BEGINNINGS), "max_tokens": n, "ignore_eos": True, "stream_options": {"include_usage": True}}
    kinds = {"temperature": 0}, {"seed": i, "temperature": 0.8}, {"temperature": 0}, {"temperature": 0.8}
    return {**body, **kinds[i % 4]}


def can_repeat(body):
    return "seed" in body or body["temperature"] == 0


class Load:
    """Streams that ask for the same requests in an order of their own, until stop; and what came of them."""

    def __init__(self, url, n=24):
        self.host, self.port = re.match(r"http://([\d.]+):(\d+)", url).groups()
        self.n, self.answers = n, []

    async def one(self, i):
        body = request(i, self.n)
        answer = await asyncio.wait_for(streams.complete(self.host, self.port, body), served.LIMIT)
        self.answers.append((i, answer))

    async def stream(self, number, rounds, end):
        draw = random.Random("stream %d" % number)
        n = 0
        while n < rounds if end is None else time.monotonic() < end:
            await self.one(draw.randrange(N_BEGINNINGS * N_ENDS))
            n += 1

    async def run(self, rounds=None, end=None):
        await asyncio.gather(*(self.stream(k, rounds, end) for k in range(N_STREAMS)))

    def check(self, alone):
        """Nothing is lost, nothing is repeated; how many were broken off."""
        n_broken = 0
        for i, a in self.answers:
            assert a.status == 200 and a.done, (i, a.status, a.error, a.text)
            if can_repeat(request(i)):
                assert a.error is None and a.finish == "length" and a.text == alone[i, self.n], (i, a.error, a.text, alone[i, self.n])
            elif a.error:
                assert a.text and "broke off" in a.error, (a.error, a.text)
                n_broken += 1
            else:
                assert a.finish == "length", a.finish
        return n_broken

    def cached(self):
        """The share of prompt tokens that came from the caches."""
        usages = [a.usage for _, a in self.answers if a.usage]
        return sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages) / sum(u["prompt_tokens"] for u in usages)


async def kill_again_and_again(running, ports, end, pause):
    draw, n = random.Random(1), 0
    while time.monotonic() < end:
        await asyncio.sleep(pause)
        i = draw.randrange(len(running))
        running[i].process.kill()
        running[i].process.wait()
        running[i].__exit__()
        running[i] = replica(ports[i])
        await asyncio.get_running_loop().run_in_executor(None, running[i].__enter__)
        n += 1
    return n


async def under_kills(load, running, ports, length):
    end = time.monotonic() + length
    return (await asyncio.gather(load.run(end=end), kill_again_and_again(running, ports, end - 1, 2)))[1]


async def lone_answers(url):
    """The text of every request, each computed alone."""
    texts = {}
    for n in FEW, 24:
        load = Load(url, n)
        for i in range(N_BEGINNINGS * N_ENDS):
            if can_repeat(request(i)):
                await load.one(i)
        texts.update({(i, n): a.text for i, a in load.answers})
    return texts


def kills(length=4.0, is_long=False):
    with served.Server(MINERVA, "--precision", "exact", "--device", "cpu_simd", "--parallel", 32) as s:
        alone = asyncio.run(lone_answers(s.url))
    with served.Server(MINERVA, "--precision", "exact", "--device", "cpu_simd", "--parallel", 64) as s:
        one = Load(s.url, FEW)
        asyncio.run(one.run(rounds=2))
    ports = [free_port() for _ in range(N_REPLICAS)]
    running = [replica(p) for p in ports]
    try:
        starts = [threading.Thread(target=r.__enter__) for r in running]
        for t in starts:
            t.start()
        for t in starts:
            t.join()
        with Front(["http://127.0.0.1:%d" % p for p in ports]) as front:
            until(lambda: ask(front.url, "GET", "/health")[2].count('"ready"') == N_REPLICAS + 1)
            calm = Load(front.url, FEW)
            asyncio.run(calm.run(rounds=2))
            assert calm.check(alone) == 0
            m = metrics(front.url)
            print("%d answers; cached: one server %.3f, four %.3f; beginnings routed: %.3f" % (
                len(calm.answers), one.cached(), calm.cached(), m["prefix_blocks_routed_total"] / m["prefix_blocks_total"]))
            assert calm.cached() >= 0.9 * one.cached(), (calm.cached(), one.cached())
            used = [v for k, v in metrics(front.url).items() if k.startswith("replica_requests_total")]
            assert min(used) >= len(calm.answers) / 16, used
            load = Load(front.url)
            n_kills = asyncio.run(under_kills(load, running, ports, length))
            n_broken = load.check(alone)
            m = metrics(front.url)
            print("%d answers, %d kills, %d broken off, %d sent again, %d continued; cached %.3f" % (
                len(load.answers), n_kills, n_broken, m["requests_retried_total"], m["requests_resumed_total"], load.cached()))
            assert n_kills >= 1 and m["requests_interrupted_total"] == n_broken
            assert not is_long or load.cached() >= 0.9 * one.cached()
            assert m["num_requests_waiting"] == 0
    finally:
        for r in running:
            if hasattr(r, "process"):
                r.__exit__()


def main():
    if not served.available(MINERVA):
        print("this minerva was built without its server")
        sys.exit(77)
    r = subprocess.run([MINERVA, "serve", "--replicas", "http://127.0.0.1:1", "--port", "0", "--host", "256.0.0.1", "--insecure"], capture_output=True,
                       text=True, env=served.environment(), timeout=served.LIMIT)
    if "libcurl" in r.stderr:
        print("this minerva was built without libcurl")
        sys.exit(77)
    if GROUP == "kills" and len(sys.argv) > 3:
        kills(float(sys.argv[3]), True)
    else:
        {"fakes": fakes, "access": access, "kills": kills}[GROUP]()


main()
