#!/usr/bin/env python3
"""serve_test.py MINERVA GROUP: minerva serve from outside: endpoints, errors, streams, engines that die, clients that leave.

Each group starts its own server with the demo model. Limits of time are those of hangs."""
import base64
import concurrent.futures
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

import messages
import responses
import raw_heads
import served

MINERVA, GROUP = sys.argv[1], sys.argv[2]
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a frog."}], "temperature": 0}


class Client:
    """One keep-alive connection."""

    def __init__(self, server, headers=None):
        self.host, self.port = re.match(r"https?://([\d.]+):(\d+)", server.url).groups()
        self.headers = headers or {}
        self.connection = http.client.HTTPConnection(self.host, int(self.port), timeout=served.LIMIT)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, JSON or text)"""
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        self.connection.request(method, path, data, {**self.headers, **(headers or {})})
        r = self.connection.getresponse()
        text = r.read().decode()
        is_json = (r.getheader("Content-Type") or "").startswith("application/json")
        return r.status, r, json.loads(text) if is_json else text

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def chat(self, **more):
        status, _, answer = self.post("/v1/chat/completions", {**STORY, **more})
        assert status == 200, answer
        return answer

    def stream(self, path="/v1/chat/completions", **body):
        """Yields the chunks of a stream; checks that it ends as it should."""
        self.connection.request("POST", path, json.dumps({**STORY, "stream": True, **body}), self.headers)
        r = self.connection.getresponse()
        assert r.status == 200, r.read()
        assert r.getheader("Content-Type") == "text/event-stream"
        last, end = None, time.monotonic() + served.LIMIT
        for line in r:
            assert time.monotonic() < end, "the stream does not end"
            if line.startswith(b"data: "):
                last = line[6:].strip()
                if last != b"[DONE]":
                    yield json.loads(last)
        assert last == b"[DONE]", last

    def streamed(self, **body):
        """The text and the finish reason of a streamed answer."""
        text, finish = "", None
        for c in self.stream(**body):
            assert "error" not in c, c
            for choice in c["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
        return text, finish


def refused(found, status, param=None, word=None, code=None):
    got, r, answer = found
    assert got == status, (got, answer)
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}, answer
    assert set(answer) == {"error", "request_id"} and answer["request_id"] == r.getheader("X-Request-Id"), answer
    assert param is None or error["param"] == param, answer
    assert code is None or error["code"] == code, answer
    for w in [word] if isinstance(word, str) else word or []:
        assert w in error["message"], (w, answer)


def engine_of(server):
    return Client(server).ask("GET", "/health/ready")[2]["engines"][0]["pid"]


def until(what, seconds=served.LIMIT):
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def metric(server, name):
    text = Client(server).ask("GET", "/metrics")[2]
    found = re.search(r"^minerva_%s(?:\{[^}]*\})? ([\d.e+-]+)$" % re.escape(name), text, re.M)
    assert found, name
    return float(found.group(1))


class Streams:
    """Answers that stream at once, each in a thread of its own."""

    def __init__(self, server, jobs):
        self.found, self.n, self.changed = [None] * len(jobs), 0, threading.Condition()
        self.threads = [threading.Thread(target=self.run, args=(server, i, job)) for i, job in enumerate(jobs)]
        for t in self.threads:
            t.start()

    def run(self, server, i, job):
        text = ""
        for chunk in Client(server).stream(**job):
            assert "error" not in chunk, chunk
            text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
            with self.changed:
                self.n += 1
                self.changed.notify()
        self.found[i] = text

    def wait(self, n):
        """Until n more chunks have come."""
        with self.changed:
            until = self.n + n
            assert self.changed.wait_for(lambda: self.n >= until, served.LIMIT), "they do not come"

    def texts(self):
        for t in self.threads:
            t.join(served.LIMIT)
        return self.found


def states(server):
    return [engine["state"] for engine in Client(server).ask("GET", "/health/ready")[2]["engines"]]


# ---- groups --------------------------------------------------------------------------------------

def endpoints():
    with served.Server(MINERVA, "--precision", "exact", "--alias", "tale", "--alias", "story") as s:
        c = Client(s)
        log = s.text()
        assert 0 < log.find("loading; weights in the model's files, KV cache ") < log.find("engine 0 is ready"), log
        status, _, models = c.ask("GET", "/v1/models")
        assert [m["id"] for m in models["data"]] == ["tale", "story"], models
        assert models["data"][0]["max_model_len"] == 1024
        assert c.ask("GET", "/v1/models/story")[2]["id"] == "story"
        refused(c.ask("GET", "/v1/models/gpt-4"), 404, "model", code="model_not_found")
        assert Client(s).ask("GET", "/health/live")[0] == 200
        status, r, page = c.ask("GET", "/")
        assert status == 200 and "<html" in page and r.getheader("Content-Security-Policy") == served.POLICY
        # chat
        a = c.chat(max_tokens=12, model="story", unknown_field=3, stop=None, top_p=None)
        assert a["object"] == "chat.completion" and a["model"] == "tale", a
        assert a["choices"][0]["finish_reason"] == "length" and a["usage"]["completion_tokens"] == 12, a
        assert a["usage"]["total_tokens"] == a["usage"]["prompt_tokens"] + 12
        text = a["choices"][0]["message"]["content"]
        parts = [{"role": "user", "content": [{"type": "text", "text": STORY["messages"][0]["content"]}]}]
        assert c.chat(max_tokens=12, messages=parts)["choices"][0]["message"]["content"] == text
        assert c.chat(max_completion_tokens=3)["usage"]["completion_tokens"] == 3
        two = c.chat(n=2, temperature=1, seed=5, max_tokens=8)["choices"]
        one = [c.chat(temperature=1, seed=seed, max_tokens=8)["choices"][0]["message"]["content"] for seed in (5, 6)]
        assert [x["message"]["content"] for x in two] == one and [x["index"] for x in two] == [0, 1], (two, one)
        # stop strings, across tokens
        cut = text[3:9]
        short = c.chat(max_tokens=12, stop=[cut])["choices"][0]
        assert short["message"]["content"] == text[:3] and short["finish_reason"] == "stop", (short, cut)
        # text
        prompt = "Once upon a time"
        ids = c.post("/tokenize", {"prompt": prompt})[2]
        assert ids["count"] == len(ids["tokens"]) and ids["max_model_len"] == 1024
        named = c.post("/tokenize", {"prompt": prompt, "return_token_strs": True})[2]
        assert prompt in "".join(named["token_strs"])
        assert prompt in c.post("/detokenize", {"tokens": ids["tokens"]})[2]["prompt"]
        assert c.post("/tokenize", {"messages": STORY["messages"]})[2]["count"] == a["usage"]["prompt_tokens"]
        plain = c.post("/v1/completions", {"prompt": prompt, "temperature": 0})[2]
        assert plain["usage"]["completion_tokens"] == 16 and plain["object"] == "text_completion", plain
        by_ids = c.post("/v1/completions", {"prompt": ids["tokens"], "temperature": 0})[2]
        assert by_ids["choices"][0]["text"] == plain["choices"][0]["text"]
        many = c.post("/v1/completions", {"prompt": [prompt, "The sun"], "temperature": 0, "max_tokens": 4, "echo": True, "n": 2})[2]
        assert [x["index"] for x in many["choices"]] == [0, 1, 2, 3]
        assert many["choices"][0]["text"].startswith(prompt) and many["choices"][3]["text"].startswith("The sun")
        # logprobs
        entries = c.chat(max_tokens=3, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
        assert len(entries) == 3 and all(len(e["top_logprobs"]) == 2 for e in entries), entries
        assert all(bytes(e["bytes"]).decode() == e["token"] and e["logprob"] <= 0 for e in entries), entries
        assert all(e["top_logprobs"][0]["token"] == e["token"] for e in entries), entries  # temperature 0
        streamed = [e for x in c.stream(max_tokens=3, logprobs=True) for e in ((x["choices"][0]["logprobs"] or {}).get("content") or [])]
        assert [e["token"] for e in streamed] == [e["token"] for e in entries]
        echo = c.post("/v1/completions", {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1})[2]["choices"][0]
        old = echo["logprobs"]
        assert echo["text"] == prompt and len(old["tokens"]) == ids["count"] and old["token_logprobs"][0] is None, echo
        assert {len(v) for v in old.values()} == {ids["count"]}, echo
        assert [prompt[at:].startswith(t) for at, t in zip(old["text_offset"], old["tokens"])].count(False) <= 1, echo
        kept = c.chat(max_tokens=12, min_tokens=12, logit_bias={str(ids["tokens"][-1]): -100})
        assert kept["usage"]["completion_tokens"] == 12, kept
        # drafts
        exact = ("--precision", "exact")
        with served.Server(MINERVA, *exact) as alone, served.Server(MINERVA, *exact, "--lookup", "--draft", served.MODEL) as drafting:
            ask = {"max_tokens": 60, "temperature": 0.7, "seed": 3}
            want, found = Client(alone).chat(**ask), Client(drafting).chat(**ask)
            assert found["choices"][0]["message"] == want["choices"][0]["message"], (found, want)
            held = found["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
            assert held > 0
            accepted = until(lambda: metric(drafting, "spec_decode_num_accepted_tokens_total"))  # the engine tells them with its next beat
            assert metric(drafting, "spec_decode_num_draft_tokens_total") >= accepted
        # what a form forces: the same text as without several ids a step, also where a stop string lies in it
        names = {"the temperature of the garden": {"enum": [1, 2]}, "whether somebody came to play": {"type": "boolean"}}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": names, "required": list(names)}}}
        ask = {"max_tokens": 80, "temperature": 1.1, "seed": 4, "response_format": form}
        whole = c.chat(**ask)["choices"][0]["message"]["content"]
        assert sorted(json.loads(whole)) == sorted(names), whole
        for stop in ("garden", "me", '":', "{", "e t", "ther som"):
            want = whole[:whole.index(stop)]
            cut = c.chat(**ask, stop=[stop])
            assert (cut["choices"][0]["message"]["content"] or "") == want and cut["choices"][0]["finish_reason"] == "stop", (stop, cut)
            assert cut["usage"]["completion_tokens"] <= c.chat(**ask)["usage"]["completion_tokens"]
            streamed = "".join(x["choices"][0]["delta"].get("content") or "" for x in c.stream(**ask, stop=[stop]))
            assert streamed == want, (stop, streamed)
        assert until(lambda: metric(s, "forced_tokens_total")) > 10  # with the engine's next beat
        assert 0 < metric(s, "form_seconds_step_max") <= metric(s, "form_seconds_total")
        messages.check(c.connection, 1024)
        responses.check(c.connection, 1024)
        # metrics
        assert metric(s, "generation_tokens_total") > 40 and until(lambda: metric(s, "num_requests_running") == 0)
        assert metric(s, "time_to_first_token_seconds_count") > 5
    with served.Server(MINERVA, "--device", "cpu", "--keep-responses", 1) as s:
        responses.evicts(Client(s).connection)


# What the endpoint picker of the Kubernetes inference gateway reads by default, now and (gpu_cache_usage_perc) formerly.
PICKER = {"num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "gpu_cache_usage_perc", "lora_requests_info", "cache_config_info"}
RENAMED = {"gpu_cache_usage_perc": "kv_cache_usage_perc", "time_per_output_token_seconds": "inter_token_latency_seconds"}


def scrape(server):
    """(values, types): {"vllm:name{label=...}" without the model's label: value}, {"vllm:name": "gauge"}; each name has its lines once."""
    values, kinds = {}, {}
    for line in Client(server).ask("GET", "/metrics")[2].splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in kinds, name
            kinds[name] = kind
        elif not line.startswith("#"):
            name, label, value = re.fullmatch(r"(\S+?)(?:\{(.*)\})? (\S+)", line).groups()
            label = re.sub(r'^model_name="[^"]*",?', "", label or "")
            assert "%s{%s}" % (name, label) not in values, line
            values["%s{%s}" % (name, label)] = float(value)
    return values, kinds


def same_values(values, kinds):
    """Every metric of vLLM's names has the value of Minerva's own in the same answer, bucket by bucket."""
    shared = {name[5:] for name in kinds if name.startswith("vllm:")}
    assert PICKER <= shared and len(shared) > 20, shared
    for name in shared - {"lora_requests_info"}:
        own = RENAMED.get(name, name)
        assert kinds["vllm:" + name] == kinds["minerva_" + own], name
        found = {k[5 + len(name):]: v for k, v in values.items() if re.match(r"vllm:%s(_bucket|_sum|_count)?\{" % name, k)}
        want = {k[8 + len(own):]: v for k, v in values.items() if re.match(r"minerva_%s(_bucket|_sum|_count)?\{" % own, k)}
        calls = want.pop('{finished_reason="tool_calls"}', 0)
        if calls:
            want['{finished_reason="stop"}'] += calls
        assert found == want and found, (name, found, want)


def schedulers():
    """--metrics: vLLM's names under load, with the values of what the clients see and of Minerva's own names."""
    with served.SlowServer(MINERVA, 20, "--parallel", 2, "--metrics", "both") as s:
        c = Client(s)
        jobs = [{"max_tokens": 8 + i, "ignore_eos": True, "seed": i} for i in range(5)]
        usage = [c.chat(**job)["usage"] for job in jobs]
        before = scrape(s)[0]
        held = [Client(s) for _ in range(5)]
        for i, one in enumerate(held):
            one.connection.request("POST", "/v1/chat/completions", json.dumps({**STORY, "max_tokens": 900, "ignore_eos": True, "seed": i, "stream": True}))

        def loaded():
            values, kinds = scrape(s)
            same_values(values, kinds)
            return values if values["vllm:num_requests_running{}"] == 2 and values["vllm:num_requests_waiting{}"] == 3 and values["vllm:kv_cache_usage_perc{}"] else None

        values = until(loaded)
        (cache,) = [k for k in values if k.startswith("vllm:cache_config_info")]
        size, n = (int(re.search(r'%s="(\d+)"' % label, cache).group(1)) for label in ("block_size", "num_gpu_blocks"))
        used = values["vllm:kv_cache_usage_perc{}"] * n
        assert size > 0 and n >= 2 * 1024 / size and 2 <= round(used) <= 2 * 1024 / size and abs(used - round(used)) < 1e-6, (size, n, used)
        (adapters,) = [(k, v) for k, v in values.items() if k.startswith("vllm:lora_requests_info")]
        assert 'max_lora="0",running_lora_adapters="",waiting_lora_adapters=""' in adapters[0] and abs(adapters[1] - time.time()) < 3600, adapters
        # what has ended before
        assert before["vllm:prompt_tokens_total{}"] == sum(u["prompt_tokens"] for u in usage)
        assert before["vllm:generation_tokens_total{}"] == sum(u["completion_tokens"] for u in usage) == sum(j["max_tokens"] for j in jobs)
        assert before['vllm:request_success_total{finished_reason="length"}'] == 5
        for name, count in (("time_to_first_token", 5), ("e2e_request_latency", 5), ("request_queue_time", 5), ("request_prefill_time", 5),
                            ("request_decode_time", 5), ("inter_token_latency", sum(j["max_tokens"] - 1 for j in jobs))):
            assert before["vllm:%s_seconds_count{}" % name] == before['vllm:%s_seconds_bucket{le="+Inf"}' % name] == count, name
        assert before['vllm:inter_token_latency_seconds_bucket{le="0.01"}'] < before['vllm:inter_token_latency_seconds_bucket{le="+Inf"}']
        for one in held:
            one.connection.close()

        def idle():
            values = scrape(s)[0]
            return None if any(values["vllm:%s{}" % name] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")) else values

        values = until(idle)
        assert values['vllm:request_success_total{finished_reason="abort"}'] == 5
    with served.Server(MINERVA, "--metrics", "vllm") as s:
        kinds = scrape(s)[1]
        vllm, own = ({name[n:] for name in kinds if name.startswith(prefix)} for prefix, n in (("vllm:", 5), ("minerva_", 8)))
        assert PICKER <= vllm and not vllm & own and {"engines_ready", "http_requests_total"} <= own, kinds


def embeddings():
    def near(a, b):
        return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-5
    with served.Server(MINERVA, "--precision", "exact", "--embeddings") as s:
        c = Client(s)
        texts = ["The sea is blue.", "A frog sat on a stone."]
        both = c.post("/v1/embeddings", {"input": texts})[2]
        assert [x["index"] for x in both["data"]] == [0, 1] and both["usage"]["prompt_tokens"] > 8, both
        coded = c.post("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"})[2]["data"][0]["embedding"]
        raw = base64.b64decode(coded)
        floats = struct.unpack("<%df" % (len(raw) // 4), raw)
        assert near(floats, both["data"][0]["embedding"]) and abs(sum(x * x for x in floats) - 1) < 1e-4
        ids = [c.post("/tokenize", {"prompt": t})[2]["tokens"] for t in texts]
        assert near(c.post("/v1/embeddings", {"input": ids})[2]["data"][1]["embedding"], both["data"][1]["embedding"])
        assert len(c.post("/v1/embeddings", {"input": ids[0], "dimensions": 8})[2]["data"][0]["embedding"]) == 8
        refused(c.post("/v1/embeddings", {"input": []}), 400, "input")
        refused(c.post("/v1/embeddings", {"input": [1.5]}), 400, "input")
        refused(c.post("/v1/embeddings", {"input": "a", "dimensions": 100000}), 400, "dimensions")
        refused(c.post("/v1/embeddings", {"input": "a", "encoding_format": "hex"}), 400, "encoding_format")
        refused(c.post("/v1/embeddings", {"input": "word " * 3000}), 400, "input", code="context_length_exceeded")
        os.kill(engine_of(s), signal.SIGKILL)
        assert near(c.post("/v1/embeddings", {"input": texts[0]})[2]["data"][0]["embedding"], floats)


def errors():
    loading()
    with served.Server(MINERVA) as s:
        c = Client(s)
        chat, plain = "/v1/chat/completions", "/v1/completions"
        refused(c.ask("GET", "/nothing"), 404, word="/nothing")
        for path, meant in ((chat + "/", chat), ("/v1" + chat, chat), ("/api/v1/chat/completions//", chat),
                            ("/v1/models/", "/v1/models"), ("/models/", "/models"), ("/v1/metrics", "/metrics"), ("/chat/completions/", "/chat/completions")):
            refused(c.ask("GET", path), 404, word=path + ": this server has no such path, expected " + meant)
        refused(c.post(chat, {**STORY, "mirostat": 1}), 400, "mirostat", "mirostat: found 1, expected 0")
        assert not c.post(chat, {**STORY, "mirostat": 1})[2]["error"]["message"].startswith("mn_")
        refused(c.post("/v1/responses", {}), 400, "input")
        status, r, _ = c.ask("GET", chat)
        assert status == 405 and r.getheader("Allow") == "POST"
        refused(c.post(chat, b"{"), 400, word="not JSON")
        refused(c.post(chat, b"[]"), 400, word="a list")
        body = lambda more: json.dumps({**STORY, "max_tokens": 2}).encode()[:-1] + b", " + more + b"}"
        for number in b"01", b"1.", b"-01", b"1.e2", b"1e", b"-", b"+1":
            for more in b'"n": %s', b'"seed": %s', b'"logit_bias": {"5": %s}', b'"chat_template_kwargs": {"a": [%s]}':
                refused(c.post(chat, body(more % number)), 400, word="not JSON")
            refused(c.post("/tokenize", b'{"prompt": "a", "x": %s}' % number), 400, word="not JSON")
        # of members with one name the last, at every level
        answer = c.post(chat, body(b'"n": 5, "max_tokens": 9, "n": 2, "messages": [{"role": "user", "content": 3, "content": "hi"}], "max_tokens": 1'))[2]
        assert len(answer["choices"]) == 2 and answer["usage"]["completion_tokens"] == 2, answer
        ids = lambda text: c.post("/tokenize", b'{"messages": [{"role": "user", %s}]}' % text)[2]["tokens"]
        assert ids(b'"content": "a", "content": "b"') == ids(b'"content": "b"') != ids(b'"content": "a"')
        refused(c.post(chat, body(b'"n": 1, "n": "x"')), 400, "n")
        # a schema that is no JSON, or no object, however it is passed
        tool = lambda schema: {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}], "tool_choice": "required"}
        for schema in "{", "[]", "3", "nonsense", '{"type": 01}', '{"maxLength": 1.}', 3, [], None, {"type": 7}, {"type": "thing"}:
            for form in ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}, {"guided_json": schema},
                         {"response_format": {"type": "json_object", "schema": schema}}, {"structured_outputs": {"json": schema}}, {"json_schema": schema},
                         tool(schema)):
                status, _, answer = c.post(chat, {**STORY, **form, "max_tokens": 1})
                assert status == 400 or (status == 200 and schema is None), (status, form, answer)
        for schema in "{", "{}", 3, [], [1], True:
            for more in {}, {"tool_choice": "none"}, {"tool_choice": "required"}:
                refused(c.post(chat, {**STORY, **tool(schema), "tool_choice": "auto", **more}), 400, "tools", "tools[0].function.parameters")
        refused(c.post(chat, {}), 400, "messages")
        refused(c.post(chat, {**STORY, "model": "gpt-4"}), 404, "model", code="model_not_found")
        for field, value in {"temperature": "hot", "top_p": 2, "n": 0, "max_tokens": -1, "stream": "yes", "seed": 1.5, "stop": 7,
                             "logit_bias": {"x": 1}, "min_p": -1, "top_k": 0.5, "presence_penalty": 3, "stream_options": {},
                             "response_format": {"type": "json_schema"}, "tool_choice": "required", "tools": 3,
                             "chat_template_kwargs": [], "top_logprobs": 3, "stop_token_ids": [99999999], "guided_json": 3, "structured_outputs": {"regex": 3}}.items():
            refused(c.post(chat, {**STORY, field: value}), 400, field, field)
        assert c.chat(response_format={"type": "text"}, tool_choice="none", tools=None, max_tokens=1)
        image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
        refused(c.post(chat, {"messages": image}), 400, "messages", "image_url")
        refused(c.post(chat, {"messages": [{"role": "user", "content": "a\0b"}]}), 400)
        assert c.post(chat, {"messages": [{"role": "user", "content": "a\\u0000b \\"}], "max_tokens": 1})[0] == 200  # a backslash and digits
        refused(c.post(plain, b'{"prompt": [' + b"0," * (1 << 20) + b"0]}"), 400, word="values")
        refused(c.post(chat, b"{" + b'"a":1,' * 5000 + b'"b":2}'), 400, word="5001 members")
        refused(c.post(plain, {"prompt": ["a"] * 2048, "n": 128}), 400, "n", "262144")
        long = "word " * 2000
        refused(c.post(chat, {"messages": [{"role": "user", "content": long}]}), 400, "messages", "1024", "context_length_exceeded")
        refused(c.post(plain, {"prompt": long}), 400, "prompt", "This model's maximum context length is 1024 tokens. However, your prompt",
                "context_length_exceeded")
        cut = c.post(plain, {"prompt": "Once", "max_tokens": 5000, "ignore_eos": True})[2]  # to what the context has room for
        assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["total_tokens"] == 1024, cut
        refused(c.post(plain, {"prompt": []}), 400, "prompt")
        refused(c.post(plain, {"prompt": [1, True]}), 400, "prompt")
        refused(c.post(plain, {"prompt": "a", "suffix": "b"}), 400, "suffix")
        refused(c.post("/tokenize", {}), 400, "prompt")
        refused(c.post("/tokenize", {"prompt": "a" * 1100000}), 400, "prompt", "1100000")
        refused(c.post("/detokenize", {"tokens": [-1]}), 400, "tokens")
        refused(c.post("/v1/embeddings", {"input": "a"}), 400, word="--embeddings")
        # what comes back to a tool call is accepted
        calls = [{"role": "user", "content": "hi"},
                 {"role": "assistant", "content": None, "tool_calls": [
                     {"id": "abc123def", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                 {"role": "tool", "tool_call_id": "abc123def", "content": "2"}]
        assert c.post("/tokenize", {"messages": calls})[0] == 200


def loading():
    """Until an engine is ready the context is not known: 503, whatever the request is."""
    for _ in range(10):
        with served.LoadingServer(MINERVA, "--engine-timeout", 10) as s:
            c = Client(s)
            engine = c.ask("GET", "/health/ready")[2]["engines"][0]
            if engine["state"] == "loading":
                os.kill(engine["pid"], signal.SIGSTOP)
            if c.ask("GET", "/health/ready")[2]["engines"][0]["state"] != "loading":
                continue  # it was faster
            for path, body in ("/v1/chat/completions", STORY), ("/v1/completions", {"prompt": "a " * 5000}), ("/v1/embeddings", {}):
                answer = c.post(path, body)
                refused(answer, 503, code="loading")
                assert answer[1].getheader("Retry-After")
            until(lambda: c.ask("GET", "/health/ready")[0] == 200)  # a stopped one is ended, also while it loads
            assert metric(s, "engine_restarts_total") == 1, s.text()
            return


def streams():
    with served.Server(MINERVA, "--precision", "exact", "--seed", 7) as s:
        c = Client(s)
        assert c.streamed(max_tokens=20, temperature=1) == c.streamed(max_tokens=20, temperature=1, seed=7)
        whole = c.chat(max_tokens=60)["choices"][0]
        text, finish = c.streamed(max_tokens=60)
        assert (text, finish) == (whole["message"]["content"], whole["finish_reason"]), (text, whole)
        chunks = list(c.stream(max_tokens=3, stream_options={"include_usage": True}))
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant", chunks[0]
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 3, chunks[-1]
        assert all(x["usage"] is None for x in chunks[:-1]) and len({x["id"] for x in chunks}) == 1
        both = list(c.stream(max_tokens=6, n=2, temperature=1, seed=1))
        assert {x["choices"][0]["index"] for x in both} == {0, 1}
        plain = list(c.stream("/v1/completions", prompt="Once upon", max_tokens=5, messages=None))
        long = dict(prompt="A bear had a jar. " * 110, max_tokens=2, messages=None, stream_options={"include_usage": True})
        told = [x["prompt_progress"] for x in c.stream("/v1/completions", return_progress=True, **long) if "prompt_progress" in x]
        total = c.post("/v1/completions", {"prompt": long["prompt"], "max_tokens": 1})[2]["usage"]["prompt_tokens"]
        assert told and all(p["total"] == total for p in told), (told, total)
        processed = [p["processed"] for p in told]
        assert processed == sorted(set(processed)) and 0 < processed[0] and processed[-1] < total, told
        assert not any("prompt_progress" in x for x in c.stream("/v1/completions", **long))
        joined = "".join(x["choices"][0]["text"] for x in plain)
        assert joined == c.post("/v1/completions", {"prompt": "Once upon", "max_tokens": 5, "temperature": 0})[2]["choices"][0]["text"]


def stories(n):
    """Requests of 100 tokens and more: half of them drawn, two that end by themselves."""
    return [dict(max_tokens=100 + i, ignore_eos=i > 1, **(dict(temperature=0.9, seed=i) if i % 2 else {})) for i in range(n)]


def crash():
    """kill -9 of the engine while streams run: each ends with the text that it has alone; with sampling, too."""
    jobs = stories(8)
    for job in jobs[::3]:  # where they are in their form is found again from their tokens
        job["guided_regex"] = "([a-z]{2,9}[ ,.]){20,60}"
    with served.Server(MINERVA, "--precision", "exact", "--parallel", 8, "--device", "cpu_simd") as s:
        alone = [Client(s).streamed(**job)[0] for job in jobs]
        tokens = lambda c: c.post("/v1/completions", {"prompt": "Once upon a time", "echo": True, "logprobs": 1, "max_tokens": 100, "temperature": 0,
                                                      "ignore_eos": True})[2]["choices"][0]["logprobs"]["tokens"]
        echoed = tokens(Client(s))
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, \
            concurrent.futures.ThreadPoolExecutor(1) as pool, served.SlowServer(MINERVA, 20, "--precision", "exact", "--parallel", 9, "--engine-timeout", 10,
                              env={"NOTIFY_SOCKET": told.bind(folder + "/s") or folder + "/s", "WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"}) as s:
        again = pool.submit(tokens, Client(s))
        streams = Streams(s, jobs)
        for how in signal.SIGKILL, signal.SIGSTOP:  # a stopped one shows no life: it is ended
            streams.wait(16)
            pid = engine_of(s)
            os.kill(pid, how)
            until(lambda: engine_of(s) not in (0, pid))
        found = streams.texts()
        assert found == alone, [(a, b) for a, b in zip(alone, found) if a != b][0]
        assert again.result() == echoed, again.result()  # the logprobs of a prompt are said once
        assert metric(s, "engine_restarts_total") == 2 and "has shown no life for" in s.text(), s.text()
        assert metric(s, "requests_resubmitted_total") > 2, s.text()
        assert told.recv(100) == b"READY=1"  # and nothing more: the watchdog is another process's
        told.setblocking(False)
        try:
            raise AssertionError(told.recv(100))
        except BlockingIOError:
            pass
        # the engine follows its front
        pid = until(lambda: engine_of(s))
        s.process.kill()
        s.process.wait()
        until(lambda: not os.path.exists("/proc/%d" % pid) or open("/proc/%d/stat" % pid).read().split()[2] == "Z", 10)


def hybrid():
    """A model whose layers remember a state, with drafts of its own head: kill -9 of the engine while streams run, and a conversation that goes on."""
    jobs, story = stories(6), os.path.join(served.ROOT, "tests", "data", "hybrid-story")
    jobs[3]["guided_regex"] = "([a-z]{2,9}[ ,.]){20,60}"
    talk = lambda c, said: c.chat(messages=[{"role": "user" if i % 2 == 0 else "assistant", "content": t} for i, t in enumerate(said)], max_tokens=20,
                                  ignore_eos=True)
    with served.Server(MINERVA, "--precision", "exact", "--device", "cpu_simd", model=story) as s:
        alone = [Client(s).streamed(**job)[0] for job in jobs]
        assert metric(s, "spec_decode_num_draft_tokens_total") == 0
        said = ["A frog sat on a stone."]
        for _ in range(3):
            said += [talk(Client(s), said)["choices"][0]["message"]["content"], "And then?"]
    with served.SlowServer(MINERVA, 20, "--precision", "exact", "--parallel", 4, "--draft", "mtp", "--draft-max", 2, "--engine-timeout", 10, model=story) as s:
        streams = Streams(s, jobs)
        for _ in range(2):
            streams.wait(16)
            pid = engine_of(s)
            os.kill(pid, signal.SIGKILL)
            until(lambda: engine_of(s) not in (0, pid))
        found = streams.texts()
        assert found == alone, [(a, b) for a, b in zip(alone, found) if a != b][0]
        for n in range(1, len(said), 2):
            assert talk(Client(s), said[:n])["choices"][0]["message"]["content"] == said[n], n
        assert metric(s, "engine_restarts_total") == 2
        assert metric(s, "spec_decode_num_draft_tokens_total") > 0, s.text()


def replicas():
    """Two engines, both with requests: one is killed, then the other, and no request is lost."""
    jobs = stories(8)
    with served.Server(MINERVA, "--precision", "exact", "--device", "cpu_simd") as s:
        alone = [Client(s).streamed(**job)[0] for job in jobs]
    with served.SlowServer(MINERVA, 20, "--precision", "exact", "--parallel", 4, devices=2) as s:
        until(lambda: states(s) == ["ready", "ready"])
        streams = Streams(s, jobs)
        for i in range(2):
            streams.wait(16)
            before = metric(s, "requests_resubmitted_total")
            os.kill(Client(s).ask("GET", "/health/ready")[2]["engines"][i]["pid"], signal.SIGKILL)
            until(lambda: metric(s, "requests_resubmitted_total") > before)
            until(lambda: states(s) == ["ready", "ready"])
        found = streams.texts()
        assert found == alone, [(a, b) for a, b in zip(alone, found) if a != b][0]
        assert metric(s, "engine_restarts_total") == 2


def excluded():
    """A plugin that crashes in a step twice is left out; the answers are those of the other device."""
    if "MINERVA_TEST_SANITIZE" in os.environ:
        print("skipped: with a sanitizer a crash is an exit")
        sys.exit(77)
    stub = os.environ["MINERVA_STUBS"] + "/late.so"
    draft = "--draft-max", "2", "--draft", served.MODEL, "--draft-device"
    with served.Server(MINERVA, "--precision", "exact", "--device", "cpu_simd") as s:
        alone = Client(s).streamed(max_tokens=40)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        env = {"MINERVA_PLUGIN_PATH": stub, "MINERVA_LATE_IN": "execute", "MINERVA_LATE_HOW": "SIGSEGV", "MINERVA_LATE_AFTER": "12"}
        for flags in ["late,cpu_simd"], ["cpu_simd", *draft, "late,cpu_simd"]:
            env["MINERVA_LATE_AFTER"] = "12" if len(flags) == 1 else "0"
            env["XDG_CACHE_HOME"] = cache + "/%d" % len(flags) + flags[0]
            with served.Server(MINERVA, "--precision", "exact", "--device", *flags, env=env) as s:
                assert Client(s).streamed(max_tokens=40) == alone, s.text()
                assert metric(s, "engine_restarts_total") == 2, s.text()
                assert "plugin late crashed 2 times with this model and is left out" in s.text(), s.text()
                assert Client(s).streamed(max_tokens=40) == alone and metric(s, "engine_restarts_total") == 2
                assert (metric(s, "spec_decode_num_draft_tokens_total") > 0) == (len(flags) > 1), s.text()
        # one that writes into what it is given as const: after the first time, and never another text
        writes = {"MINERVA_PLUGIN_PATH": os.environ["MINERVA_STUBS"] + "/writes.so", "MINERVA_WRITES_TO": "attrs"}
        for where in "supports", "execute":
            writes.update(MINERVA_WRITES_IN=where, XDG_CACHE_HOME=cache + "/" + where)
            with served.Server(MINERVA, "--precision", "exact", "--device", "writes,cpu_simd", env=writes) as s:
                assert Client(s).streamed(max_tokens=40) == alone, s.text()
                assert metric(s, "engine_restarts_total") == 1, s.text()
                assert "plugin writes wrote into memory that it was given as const and is left out" in s.text(), s.text()
        # nothing else to go on with: an error that says so, and the exit code of "no device"
        env["XDG_CACHE_HOME"] = cache + "/other"
        with served.Server(MINERVA, "--device", "late", env=env) as s:
            chunks = []
            try:
                chunks = list(Client(s).stream(max_tokens=40))
            except (OSError, http.client.HTTPException, AssertionError):
                pass
            assert s.process.wait(served.LIMIT) == 3, s.text()
            assert not chunks or "error" in chunks[-1], chunks[-1]


def replaced():
    """An engine that starts again finds another model: the server ends with the reason instead of mixing two."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(os.path.dirname(served.MODEL), "..", "tests", "data", "storyteller-q8_0.gguf")
        path = folder + "/model.gguf"
        shutil.copy(source, path)
        with served.Server(MINERVA, model=path) as s:
            assert s.text().index("engine 0 is ready") < s.text().index(s.url), s.text()  # the URL is one that answers
            shutil.copy(source, path + ".new")
            os.rename(path + ".new", path)
            os.kill(engine_of(s), signal.SIGKILL)
            assert s.process.wait(served.LIMIT) == 1, s.text()
            assert "file has changed since the server began" in s.text(), s.text()


def tls():
    with tempfile.TemporaryDirectory() as folder:
        cert, key = folder + "/cert.pem", folder + "/key.pem"
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                               "-subj", "/CN=localhost", "-keyout", key, "-out", cert], capture_output=True)
        assert made.returncode == 0, made.stderr
        with served.Server(MINERVA, "--tls-cert", cert, "--tls-key", key, terminal=False) as s:
            assert s.url.startswith("https://")
            host, port = re.match(r"https://([\d.]+):(\d+)", s.url).groups()
            c = Client(s)
            c.connection = http.client.HTTPSConnection(host, int(port), timeout=served.LIMIT, context=ssl._create_unverified_context())
            assert c.streamed(max_tokens=5)[1] == "length"
            assert c.chat(max_tokens=5)
            assert c.ask("GET", "/v1/models", headers={"Origin": s.url})[0] == 200
            refused(c.ask("GET", "/v1/models", headers={"Origin": s.url.replace("https", "http")}), 403, code="origin_not_allowed")

            def connect(version=None):
                context = ssl._create_unverified_context()
                if version:
                    context.set_ciphers("ALL:@SECLEVEL=0")
                    context.minimum_version = context.maximum_version = version
                return context.wrap_socket(socket.create_connection((host, int(port)), timeout=served.LIMIT))
            raw_heads.check(connect, raw_heads.OVER_TLS)
            for version, is_old in ((ssl.TLSVersion.TLSv1, True), (ssl.TLSVersion.TLSv1_1, True), (ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, False)):
                try:
                    connect(version).close()
                    assert not is_old, version
                except (ssl.SSLError, OSError) as e:
                    assert is_old, (version, e)
            # SIGHUP: the new certificate for new connections, open ones go on; one that cannot be used changes nothing
            peer = lambda: ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
            before, pem = peer(), [open(path).read() for path in (cert, key)]
            with open(key, "w") as f:
                f.write(pem[0])
            s.process.send_signal(signal.SIGHUP)
            until(lambda: "the certificate stays as it was" in s.text())
            assert peer() == before
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                            "/CN=localhost", "-keyout", key, "-out", cert], capture_output=True, check=True)
            assert c.streamed(max_tokens=5)[1] == "length"
            old = c.connection.sock
            s.process.send_signal(signal.SIGHUP)
            until(lambda: peer() != before)
            assert c.chat(max_tokens=5) and c.connection.sock is old
        other = folder + "/other.pem"
        made = subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", other], capture_output=True)
        assert made.returncode == 0, made.stderr
        for given, words in (((key, key), ("--tls-cert", key, "CERTIFICATE")), ((cert, cert), ("--tls-key", cert, "PRIVATE KEY")), ((cert, other), ("belongs",))):
            r = subprocess.run([MINERVA, "serve", "--port", "0", "--tls-cert", given[0], "--tls-key", given[1]], capture_output=True, text=True,
                               env=served.environment(), timeout=served.LIMIT)
            assert r.returncode == 1 and all(word in r.stderr for word in words), r


def slow():
    """Requests that arrive too slowly, engines that show no life, streams with nothing to say."""
    with served.SlowServer(MINERVA, 50, "--receive-timeout", 1, "--ping", 1, "--parallel", 1, "--drain", 0) as s:
        c = Client(s)
        with socket.create_connection((c.host, int(c.port)), timeout=served.LIMIT) as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
            try:
                for _ in range(200):
                    sock.sendall(b" ")
                    time.sleep(0.1)
                raise AssertionError("the connection is still open")
            except OSError:
                pass
        pid = engine_of(s)
        c.connection.request("POST", "/v1/chat/completions", json.dumps({**STORY, "stream": True, "max_tokens": 900, "ignore_eos": True}))
        r = c.connection.getresponse()
        r.readline()
        os.kill(pid, signal.SIGSTOP)
        try:
            while (line := r.readline()) != b": keep-alive\n":
                assert line, "the stream has ended"
            until(lambda: Client(s).ask("GET", "/health/ready")[0] == 503)
            assert Client(s).ask("GET", "/health/ready")[2]["engines"][0]["state"] == "stuck"
            assert Client(s).ask("GET", "/health/live")[0] == 200
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: Client(s).ask("GET", "/health/ready")[0] == 200)


def long():
    """Long requests are read in threads: the same answers and errors, limits, clients that leave meanwhile, and the end of the server."""
    pad = {"pad": "x" * 10000}
    text = "a" * 100000
    with served.SlowServer(MINERVA, 5, "--parallel", 1, "--max-queue", 1, "--embeddings") as s:
        c = Client(s)
        assert c.chat(max_tokens=8, **pad)["choices"] == c.chat(max_tokens=8)["choices"]
        assert c.streamed(max_tokens=8, **pad) == c.streamed(max_tokens=8)
        for path, body in (("/v1/embeddings", {"input": ["a cup", "a frog"]}), ("/tokenize", {"prompt": "a cup"}), ("/detokenize", {"tokens": [300, 400]})):
            assert c.post(path, {**body, **pad})[2] == c.post(path, body)[2], path
        refused(c.post("/v1/chat/completions", {**pad, "messages": 3}), 400, "messages")
        refused(c.post("/v1/completions", json.dumps(pad)[:-1]), 400, None, "JSON")
        refused(c.post("/v1/completions", {**pad, "prompt": "a", "model": "gpt-4"}), 404, "model")
        refused(c.post("/v1/completions", {**pad, "prompt": ["a", "b", "c"]}), 400, "n", "at most 2")
        # full: one runs, one waits
        busy = [Client(s) for _ in range(2)]
        for other in busy:
            other.connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True, **pad}))
            assert other.connection.getresponse().status == 200
        refused(c.post("/v1/completions", {"prompt": "a", **pad}), 429)
        for other in busy:
            other.connection.close()
        until(lambda: metric(s, "num_requests_running") == 0 and metric(s, "num_requests_waiting") == 0)
        # clients that leave while their request is read
        for i in range(60):
            path, body = (("/tokenize", {"prompt": text}), ("/v1/completions", {"prompt": ["a b"] * 2 + [text]}), ("/v1/embeddings", {"input": text}))[i % 3]
            data = json.dumps(body).encode()
            with socket.create_connection((c.host, int(c.port)), timeout=served.LIMIT) as sock:
                sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
                time.sleep(0.001 * (i % 7))
        assert c.chat(max_tokens=8, **pad)["choices"]
        until(lambda: metric(s, "http_connections") <= 2)
        # the end, while requests are read
        left = [Client(s) for _ in range(8)]
        for other in left:
            other.connection.request("POST", "/tokenize", json.dumps({"prompt": text * 4}))
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(served.LIMIT) == 0, s.text()


def hangup():
    """A client that leaves ends its generation: in the answer, and before its first byte."""
    with served.SlowServer(MINERVA, 50, "--parallel", 1) as s:
        c = Client(s)
        host, port = c.host, int(c.port)

        def begin(**more):
            sock = socket.create_connection((host, port))
            body = json.dumps({**STORY, "max_tokens": 900, "ignore_eos": True, **more}).encode()
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return sock
        streaming = begin(stream=True)
        assert b"200" in streaming.recv(100)
        waiting = begin()  # in the queue: the only sequence is taken
        until(lambda: metric(s, "num_requests_running") + metric(s, "num_requests_waiting") == 2)
        waiting.close()
        until(lambda: metric(s, "num_requests_running") + metric(s, "num_requests_waiting") == 1)
        streaming.close()
        until(lambda: metric(s, "num_requests_running") + metric(s, "num_requests_waiting") == 0)
        assert c.chat(max_tokens=2)
        # while prompts are computed: most of them never are
        before = metric(s, "generation_tokens_total")
        body = json.dumps({"prompt": [[i % 200 + 5, i // 200 + 5] * 450 for i in range(300)], "max_tokens": 1}).encode()
        sock = socket.create_connection((host, port))
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: metric(s, "num_requests_running") + metric(s, "num_requests_waiting"))
        sock.close()
        until(lambda: metric(s, "num_requests_running") + metric(s, "num_requests_waiting") == 0)
        assert metric(s, "generation_tokens_total") - before < 200, s.text()


def drain():
    """SIGTERM: streams that run end whole, new connections are refused; --drain limits it."""
    with served.SlowServer(MINERVA, 20, "--precision", "exact", "--drain", 60) as s:
        alone = Client(s).streamed(max_tokens=60, ignore_eos=True)
        stream = Client(s).stream(max_tokens=60, ignore_eos=True)
        first = [next(stream), next(stream), next(stream)]
        s.process.send_signal(signal.SIGTERM)
        chunks = first + list(stream)
        assert "".join(x["choices"][0]["delta"].get("content") or "" for x in chunks) == alone[0]
        assert s.process.wait(served.LIMIT) == 0
    # so does SIGHUP where there is a terminal, whose end it tells; without one, the server goes on
    with served.Server(MINERVA, "-v", terminal=True) as s:
        assert Client(s).ask("GET", "/v1/models", headers={"X-Request-Id": "in-text"})[0] == 200
        until(lambda: re.search(r'Z id="in-text" method="GET" path="/v1/models" status=200 total_s=', s.text()))
        s.process.send_signal(signal.SIGHUP)
        assert s.process.wait(served.LIMIT) == 0 and "stopping" in s.text(), s.text()
    # systemd is told; a drain of 0 s ends streams at once
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, \
            served.SlowServer(MINERVA, 50, "--drain", 0, env={"NOTIFY_SOCKET": told.bind(folder + "/s") or folder + "/s", "WATCHDOG_USEC": "300000"}) as s:
        told.settimeout(served.LIMIT)
        found = [told.recv(100) for _ in range(5)]
        assert found.count(b"READY=1") == 1 and found.count(b"WATCHDOG=1") == 4, found
        c = Client(s)
        c.connection.request("POST", "/v1/chat/completions", json.dumps({**STORY, "stream": True, "max_tokens": 900, "ignore_eos": True}))
        r = c.connection.getresponse()
        r.readline()
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(served.LIMIT) == 0
        assert until(lambda: [x for x in [told.recv(100)] if x != b"WATCHDOG=1"]) == [b"STOPPING=1"]
        assert b"the server is being stopped" in r.read()


def access():
    with served.Server(MINERVA) as s:
        c = Client(s)
        for host in ("evil.example", "[127.0.0.1].evil.example", "[::1].evil.example", "[127.0.0.1]", "127.0.0.1:80:90", "127.0.0.1:", "127.0.0.1:8x",
                     "127.0.0.1.evil.example", "localhost.evil.example", "localhost:999999", "[::1", "::1"):
            refused(c.ask("GET", "/v1/models", headers={"Host": host}), 403, code="host_not_allowed")
        refused(c.ask("GET", "/v1/models", headers={"Host": "127.0.0.1:80@evil.example"}), 400)
        for host in ("LOCALHOST", "[::1]", "[::1]:80", "127.9.9.9:1"):
            assert c.ask("GET", "/v1/models", headers={"Host": host})[0] == 200, host
        refused(c.ask("GET", "/v1/models", headers={"Origin": s.url.replace("http", "https")}), 403, code="origin_not_allowed")
        refused(c.ask("GET", "/v1/models", headers={"Origin": "http://evil.example"}), 403, code="origin_not_allowed")
        assert c.ask("GET", "/v1/models", headers={"Origin": s.url})[0] == 200
        status, r, _ = c.ask("GET", "/v1/models", headers={"Host": "localhost:%s" % c.port})
        assert status == 200 and not r.getheader("Access-Control-Allow-Origin")
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("# keys\nsk-first\n  sk-second  \n")
        keys.flush()
        with served.SlowServer(MINERVA, 50, "--api-key", keys.name, "--allow-origin", "https://a.example", "--max-per-key", 1, "--drain", 0,
                               key="sk-first") as s:
            c = Client(s)
            for given in (None, "Bearer sk-firs", "Bearer sk-firstx", "sk-first", "Basic sk-first"):
                refused(c.ask("GET", "/v1/models", headers={"Authorization": given} if given else {}), 401, code="invalid_api_key")
            assert c.ask("GET", "/health/live")[0] == 200 and c.ask("GET", "/")[0] == 200
            # health without a key has the status alone, metrics need one
            for path in "/health", "/health/ready":
                assert c.ask("GET", path)[2] == {"status": "ready"} and "engines" in c.ask("GET", path, headers={"X-Api-Key": "sk-first"})[2]
            refused(c.ask("GET", "/metrics"), 401)
            for key in ("sk-first", "sk-second"):
                assert c.ask("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0] == 200
            asks = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os,x-stainless-retry-count"}
            status, r, _ = c.ask("OPTIONS", "/v1/chat/completions", headers=asks)
            assert status == 204 and r.getheader("Access-Control-Allow-Origin") == "https://a.example"
            assert r.getheader("Access-Control-Allow-Headers") == asks["Access-Control-Request-Headers"]
            assert "x-request-id" in r.getheader("Access-Control-Expose-Headers")
            for other in ({**asks, "Origin": "https://b.example"}, {**asks, "Origin": "http://a.example"}, {**asks, "Access-Control-Request-Headers": "a: b"}):
                status, r, _ = c.ask("OPTIONS", "/v1/chat/completions", headers=other)
                assert not r.getheader("Access-Control-Allow-Origin") or r.getheader("Access-Control-Allow-Headers") == "authorization, content-type", other
            assert c.ask("GET", "/v1/models", headers={"X-Api-Key": "sk-second"})[0] == 200
            refused(c.ask("GET", "/v1/models", headers={"X-Api-Key": "sk-secon"}), 401)
            messages.refused(c.connection, {}, 401, "authentication_error", "x-api-key")
            refused(c.ask("GET", "/v1/models", headers={"X-Api-Key": "sk-second", "Authorization": "Bearer x"}), 401)
            # ids of requests: the client's where it can be one, else one of the server's, each another one
            given = {"Authorization": "Bearer sk-first"}
            assert c.ask("GET", "/v1/models", headers={**given, "X-Request-Id": "r-1 \"x\""})[1].getheader("X-Request-Id").startswith("req-")
            assert c.ask("GET", "/v1/models", headers={**given, "X-Request-Id": "r-1"})[1].getheader("X-Request-Id") == "r-1"
            assert c.ask("GET", "/nothing", headers={**given, "X-Request-Id": "r" * 256})[2]["request_id"] == "r" * 256
            made = [c.ask("GET", "/", headers={"X-Request-Id": x} if x else {})[1].getheader("X-Request-Id") for x in ("r" * 257, None, "caf\xe9")]
            assert len(set(made)) == 3 and all(x.startswith("req-") for x in made), made
            # a compressed body, said or not
            body = gzip.compress(json.dumps(STORY).encode())
            for more in {"Content-Encoding": "gzip"}, {}:
                refused(c.post("/v1/chat/completions", body, headers={**given, **more}), 415, word="gzip", code="unsupported_content_encoding")
            busy = Client(s, {"Authorization": "Bearer sk-first"}).stream(max_tokens=900, ignore_eos=True)
            next(busy)
            status, r, answer = c.post("/v1/chat/completions", {**STORY, "max_tokens": 1}, headers={"Authorization": "Bearer sk-first"})
            assert status == 429 and int(r.getheader("Retry-After")) >= 1, answer
            assert c.post("/v1/chat/completions", {**STORY, "max_tokens": 1}, headers={"Authorization": "Bearer sk-second"})[0] == 200
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        reloaded(keys)
    for flags, word in ((["--host", "0.0.0.0"], "--api-key"), (["--tls-cert", "x"], "--tls-key"), (["more"], "found \"more\""),
                        (["-m", "/nonexistent"], "/nonexistent"), (["--port", "70000"], "65535"), (["--allow-origin", "a.example"], "--allow-origin"),
                        (["--allow-origin", "https://a.example/"], "--allow-origin"), (["--api-key", "/nonexistent"], "/nonexistent")):
        r = subprocess.run([MINERVA, "serve", "--port", "0", *flags], capture_output=True, text=True, env=served.environment())
        assert r.returncode in (1, 2) and word in r.stderr, (flags, r)


def reloaded(keys):
    """SIGHUP reads keys again, a bad file changes nothing; the access log has the names of keys."""
    def write(text):
        keys.seek(0)
        keys.truncate()
        keys.write(text)
        keys.flush()

    def status(key):
        return Client(s).ask("GET", "/v1/models", headers={"X-Api-Key": key})[0]
    write("sk-one anna\nsk-two\n")
    settings = keys.name + ".settings"

    def limit(text):
        with open(settings, "w") as f:
            f.write(text)
    limit("# limits\nmax-per-key = 5\n")
    with served.Server(MINERVA, "--api-key", keys.name, "--metrics-open", "--max-queue", 7, "--parallel", 2, "--settings", settings, "-v", "--log-format", "json", key="sk-one", terminal=False) as s:
        c = Client(s, {"X-Api-Key": "sk-one", "X-Request-Id": "r-17"})
        n = c.chat(max_tokens=4)["usage"]
        assert Client(s).ask("GET", "/metrics")[0] == 200 and status("sk-two") == 200 and status("sk-three") == 401
        write("# none\n")
        s.process.send_signal(signal.SIGHUP)
        until(lambda: "the keys stay as they were" in s.text())
        assert status("sk-one") == 200 and status("sk-two") == 200
        many = lambda: Client(s, {"X-Api-Key": "sk-two"}).post("/v1/completions", {"prompt": "a", "n": 100, "max_tokens": 1})[2]["error"]["message"]
        assert "at most 9 " in many(), many()
        for text in "max-queue = 3\n  max-queue=many\n", "max-queue = 3\nparallel = 4\n", "max-queue 3\n", "max-queue = -1\n":
            limit(text)
            n_told = s.text().count("they stay as they were")
            s.process.send_signal(signal.SIGHUP)
            until(lambda: s.text().count("they stay as they were") > n_told)
            assert "at most 9 " in many(), many()
        assert "settings:2: max-queue: found" in s.text() and "settings:2: parallel: expected" in s.text(), s.text()
        limit(" max-queue =\t3 \r\n")
        s.process.send_signal(signal.SIGHUP)
        until(lambda: "at most 5 " in many())
        os.unlink(settings)
        s.process.send_signal(signal.SIGHUP)
        until(lambda: s.text().count("they stay as they were") > n_told + 1)
        limit("")
        s.process.send_signal(signal.SIGHUP)
        until(lambda: "at most 9 " in many())
        os.unlink(settings)
        write("sk-three\nsk-two bob\n")
        s.process.send_signal(signal.SIGHUP)
        until(lambda: status("sk-three") == 200)
        assert status("sk-one") == 401 and status("") == 401 and status("sk-two") == 200
        until(lambda: '"bob"' in s.text())
        lines = [json.loads(line) for line in s.text().splitlines() if line.startswith("{")]
        chat = next(x for x in lines if x["path"] == "/v1/chat/completions")
        assert (chat["id"], chat["key"], chat["model"], chat["status"], chat["method"]) == ("r-17", "anna", "storyteller", 200, "POST"), chat
        assert (chat["prompt_tokens"], chat["completion_tokens"]) == (n["prompt_tokens"], n["completion_tokens"]), (chat, n)
        assert 0 < chat["first_s"] <= chat["total_s"] and re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", chat["time"]), chat
        assert {x["key"] for x in lines if "key" in x} == {"anna", "bob", "2", "3"}, lines
        assert any(x["status"] == 401 and "key" not in x for x in lines) and "sk-" not in "".join(map(str, lines))


def limits():
    with served.SlowServer(MINERVA, 50, "--parallel", 1, "--max-queue", 1, "--max-body", 1, "--max-unfinished", 1, "--max-connections", 40, "--drain", 0, "--receive-timeout", 2) as s:
        c = Client(s)
        big = json.dumps({**STORY, "pad": "x" * (2 << 20)})
        got = None
        try:
            got = c.post("/v1/chat/completions", big)
        except OSError:
            pass  # closed while the body was being sent
        if got:
            refused(got, 413)
        c = Client(s)
        refused(c.post("/v1/chat/completions", {**STORY, "n": 3}), 400, "n")
        held = [Client(s).stream(max_tokens=900, ignore_eos=True) for _ in range(2)]
        next(held[0])
        next(held[1])
        status, r, answer = c.post("/v1/chat/completions", {**STORY, "max_tokens": 1})
        assert status == 429 and int(r.getheader("Retry-After")) >= 1 and "queue is full" in answer["error"]["message"], answer
        # garbage ends its connection alone; half a request without more to come ends by its time at the latest
        for garbage in (b"\0\1\2\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/models HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                        b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            with socket.create_connection((c.host, int(c.port)), timeout=served.LIMIT) as sock:
                try:
                    sock.sendall(garbage)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(65536):
                        pass
                except OSError:
                    pass  # closed before all of it was sent
        raw_heads.check(lambda: socket.create_connection((c.host, int(c.port)), timeout=served.LIMIT))
        unfinished(s)
        assert Client(s).ask("GET", "/health/live")[0] == 200


def unfinished(s):
    """Bodies that do not end have a limit in sum, 1 MiB here and 64 KiB of each; others are answered meanwhile, and again when those have gone."""
    c = Client(s)

    def begin(n):
        sock = socket.create_connection((c.host, int(c.port)), timeout=served.LIMIT)
        sock.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b" " * n)
        return sock
    full = json.dumps({"prompt": "a", "pad": "x" * 800000}).encode()
    held = [begin(500000) for _ in range(2)]
    try:
        until(lambda: Client(s).post("/tokenize", full)[0] == 503)
        status, r, answer = Client(s).post("/tokenize", full)
        refused((status, r, answer), 503, code="overloaded")
        assert r.getheader("Retry-After") == "2"
        assert Client(s).post("/tokenize", {"prompt": "a", "pad": "x" * 60000})[0] == 200
    finally:
        for sock in held:
            sock.close()
    until(lambda: Client(s).post("/tokenize", full)[0] == 200)


def forms():
    """Calls that are forced, in the form of each family: the name is a tool's, the arguments follow its schema, nothing else is said."""
    look = {"type": "object", "properties": {"at": {"type": "string", "maxLength": 12}, "near": {"type": "boolean"}}, "required": ["at", "near"]}
    count = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"], "additionalProperties": False,
             "$defs": {"n": {"type": "integer", "minimum": 3, "maximum": 12}}}
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in (("look", look), ("count", count))]
    strict = [{"type": "function", "function": {**t["function"], "strict": True}} for t in tools]
    families = [("<tool_call>", None), ("<|tool_call|> <|/tool_call|>", None), ("<|tool_call|>", "<|tool_call|>"), ("[TOOL_CALLS]", "[TOOL_CALLS]"),
                ("[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]"), ('{"name": function name, "parameters":', None),
                ("<tool_call> <function=name>", None)]

    def right(call):
        given = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "count":
            return list(given) == ["n"] and 3 <= given["n"] <= 12
        return call["function"]["name"] == "look" and len(given["at"]) <= 12 and given["near"] in (True, False) and len(given) == 2

    def check(c, marks, **more_of_all):
        """Of a model that writes calls by these marks."""
        how = dict(temperature=1.5, max_tokens=400, tools=tools, **more_of_all)
        for seed in range(3):
            said = c.chat(**how, seed=seed, tool_choice="required")["choices"][0]
            calls = said["message"].get("tool_calls") or []
            assert said["finish_reason"] in ("tool_calls", "length"), (marks, said)
            # cut inside a mark, the answer shows the part of it that is there
            assert calls and (not said["message"]["content"] or said["finish_reason"] == "length"), (marks, said)
            assert all(right(x) for x in calls[:len(calls) - (said["finish_reason"] == "length")]), (marks, said)
        named = {"type": "function", "function": {"name": "count"}}
        for more in ({"tool_choice": named}, {"tool_choice": "required", "parallel_tool_calls": False}):
            said = c.chat(**how, seed=5, **more)["choices"][0]
            calls = said["message"]["tool_calls"]
            assert len(calls) == 1 and right(calls[0]) and said["finish_reason"] == "tool_calls", (marks, said)
            assert "parallel_tool_calls" in more or calls[0]["function"]["name"] == "count"
            joined = {"name": "", "arguments": ""}
            for chunk in c.stream(**how, seed=5, **more):
                for x in chunk["choices"][0]["delta"].get("tool_calls") or []:
                    for key in joined:
                        joined[key] += x["function"].get(key) or ""
            assert joined == {k: calls[0]["function"][k] for k in joined}, (marks, joined, calls)
        # free text stays free, whatever the tools are
        plain = c.chat(max_tokens=60)["choices"][0]["message"]["content"]
        said = c.chat(max_tokens=60, tools=strict)["choices"][0]["message"]
        assert said["content"] == plain or said.get("tool_calls"), (marks, said)
        odd = {"type": "function", "function": {"name": "odd", "parameters": {"properties": {"a": {"not": {}}}}}}
        assert c.chat(**{**how, "tools": [odd]}, tool_choice="required", parallel_tool_calls=False)["choices"][0]["message"]["tool_calls"]
        odd["function"]["strict"] = True
        refused(c.post("/v1/chat/completions", {**STORY, "tools": [odd]}), 400, "tools", "#/properties/a/not")
        refused(c.post("/v1/chat/completions", {**STORY, "tools": tools, "tool_choice": {"type": "function", "function": {"name": "x"}}}), 400, "tool_choice", "x")

    for marks, special in families:
        with tempfile.TemporaryDirectory() as folder, served.Server(MINERVA, model=served.model_with_calls(folder, marks, special)) as s:
            check(Client(s), marks)
    for tail in ("<|start|>assistant", "<|start|>assistant<|channel|>analysis<|message|>"):
        with tempfile.TemporaryDirectory() as folder:
            end = served.model_with_harmony(folder, tail)
            with served.Server(MINERVA, model=folder) as s:
                check(Client(s), tail, logit_bias={str(end): 22})  # what is thought before ends soon

    # a prompt that leaves thinking open: what is thought is free, the form is that of the answer
    with tempfile.TemporaryDirectory() as folder, served.Server(MINERVA, model=served.model_with_calls(folder, "", "</think>", "<think>\n")) as s:
        c = Client(s)
        for form in ({"guided_choice": ["yes", "no (n.o)"]}, {"guided_regex": r"yes|no \(n\.o\)"}):
            said = c.chat(**form, max_tokens=9)["choices"][0]
            assert said["finish_reason"] == "length" and said["message"]["reasoning_content"] and not said["message"]["content"], said
            said = c.chat(**form, max_tokens=60, logit_bias={"5": 100}, temperature=1)["choices"][0]
            assert said["finish_reason"] == "stop" and said["message"]["content"] in ("yes", "no (n.o)"), said


{"endpoints": endpoints, "embeddings": embeddings, "errors": errors, "streams": streams, "crash": crash, "hybrid": hybrid, "hangup": hangup, "drain": drain, "access": access,
 "limits": limits, "long": long, "replicas": replicas, "excluded": excluded, "replaced": replaced, "tls": tls, "slow": slow, "forms": forms, "schedulers": schedulers}[GROUP]()
