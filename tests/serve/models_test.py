#!/usr/bin/env python3
"""models_test.py MINERVA GROUP: several models in one server: loads, turns, waits, failures, and who may ask for what.

Each model says a text of its own, byte by byte (replay.py): the byte at position p of a sequence is byte p of its text, round and round. So an answer shows which model
made it, and that nothing was lost."""
import concurrent.futures
import http.client
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time

import served
from replay import GO, Replay

MINERVA, GROUP = sys.argv[1], sys.argv[2]
NAMES = ["ash", "birch", "cedar", "elm", "fir"]
CONTEXT = 512


def text_of(name):
    """Of a length that no other model has, so that two are never alike for long."""
    return "%s says %s. " % (name, name.upper() * (1 + NAMES.index(name) if name in NAMES else 1))


def make_model(folder, name):
    path = os.path.join(folder, name)
    os.mkdir(path)
    model = Replay(path, GO + "{% for m in messages %}{{ m.content }}{% endfor %}")
    said = text_of(name).encode()
    model.write_model([said[(p + 1) % len(said)] for p in range(CONTEXT)])
    model.write_tokenizer()
    model.write("chat_template.jinja", model.template)
    model.write("generation_config.json", json.dumps({"eos_token_id": [256]}))
    return path


def expected(name, n_prompt, n):
    said = text_of(name)
    return "".join(said[(n_prompt + i) % len(said)] for i in range(n))


class Models(served.Server):
    """A server with these flags alone; slow: milliseconds of a step."""

    def __init__(self, *flags, slow=0, key=None, env=None):
        more = dict(env or {})
        if slow:
            more.update(MINERVA_PLUGIN_PATH=os.path.join(os.environ["MINERVA_STUBS"], "lost.so"), MINERVA_LOST_LOST_AFTER="-", MINERVA_LOST_SLOW=str(slow),
                        MINERVA_LOST_DEVICES="1")
            flags += ("--device", "flaky")
        super().__init__(MINERVA, env=more, key=key)
        self.command = [MINERVA, "serve", "--port", "0", *map(str, flags)]


class Client:
    def __init__(self, server, key=None):
        host, port = re.match(r"https?://([\d.]+):(\d+)", server.url).groups()
        self.headers = {"Authorization": "Bearer " + key} if key else {}
        self.connection = http.client.HTTPConnection(host, int(port), timeout=served.LIMIT)

    def ask(self, method, path, body=None):
        """(status, JSON or text)"""
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        r = self.connection.getresponse()
        text = r.read().decode()
        return r.status, json.loads(text) if (r.getheader("Content-Type") or "").startswith("application/json") else text

    def chat(self, model, messages, n=24, **more):
        return self.ask("POST", "/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": n, "temperature": 0, **more})

    def stream(self, model, messages, n=24, on_text=None):
        """(text, tokens of the prompt, comments)"""
        body = {"model": model, "messages": messages, "max_tokens": n, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), self.headers)
        r = self.connection.getresponse()
        assert r.status == 200, r.read()
        text, n_prompt, comments, last = "", 0, [], None
        for line in r:
            if line.startswith(b":"):
                comments.append(line.decode().strip())
            if not line.startswith(b"data: "):
                continue
            last = line[6:].strip()
            if last == b"[DONE]":
                continue
            event = json.loads(last)
            assert "error" not in event, event
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                if on_text and text:
                    on_text(text)
            n_prompt = (event.get("usage") or {}).get("prompt_tokens", n_prompt)
        assert last == b"[DONE]", last
        return text, n_prompt, comments


def user(text):
    return [{"role": "user", "content": text}]


def check_chat(client, model, messages, n=24, name=None):
    status, answer = client.chat(model, messages, n)
    assert status == 200, answer
    text = answer["choices"][0]["message"]["content"]
    assert text == expected(name or model, answer["usage"]["prompt_tokens"], n), (model, text)
    return text


def check_stream(client, model, messages, n=24, **more):
    text, n_prompt, comments = client.stream(model, messages, n, **more)
    assert text == expected(model, n_prompt, n), (model, text)
    return comments


def until(what):
    end = time.monotonic() + served.LIMIT
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def metrics(server, name, key=None):
    """The value for each model."""
    text = Client(server, key).ask("GET", "/metrics")[1]
    return {m: float(v) for m, v in re.findall(r'^minerva_%s\{model_name="([^"]*)"[^}]*\} ([\d.e+-]+)$' % name, text, re.M)}


def states(server, path="/v1/models", key=None):
    return {m["id"]: m["status"]["value"] for m in Client(server, key).ask("GET", path)[1]["data"]}


def engines(server):
    return {e["model"]: e for e in Client(server).ask("GET", "/health")[1]["engines"]}


def flags_of(paths):
    return [word for path in paths for word in ("-m", path)]


def lru_loads(order, n_fit):
    loaded, loads = [], 0
    for name in order:
        loads += name not in loaded
        loaded = [name] + [m for m in loaded if m != name]
        loaded = loaded[:n_fit]
    return loads


def bytes_of_model(path):
    with Models("--models", ini_file(os.path.dirname(path), "one.ini", "[one]\nmodel = %s\n" % path)) as server:
        assert Client(server).chat("one", user("hello"))[0] == 200
        return metrics(server, "model_bytes")["one"]


def ini_file(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


# ---- 5 models of which 2 fit ------------------------------------------------------------------------

def ask_in_random_order(server, order, n_clients):
    """Each client takes the next request; every second one is a stream."""
    turn = iter(enumerate(order))
    lock = threading.Lock()

    def run():
        client = Client(server)
        while True:
            with lock:
                i, name = next(turn, (None, None))
            if name is None:
                return
            (check_stream if i % 2 else check_chat)(client, name, user("number %d" % i), 16 + i % 9)

    with concurrent.futures.ThreadPoolExecutor(n_clients) as pool:
        for job in [pool.submit(run) for _ in range(n_clients)]:
            job.result()


def test_random(folder):
    paths = [make_model(folder, name) for name in NAMES]
    order = random.Random(1).choices(NAMES, k=200)
    memory = int(2.5 * bytes_of_model(paths[0])) >> 20
    for limit in (("--models-memory", memory), ("--models-max", 2)):
        with Models(*flags_of(paths), *limit) as server:
            assert states(server) == {name: "unloaded" for name in NAMES}
            ask_in_random_order(server, order, 20)
            loads = metrics(server, "model_loads_total")
            assert all(loads[name] >= 1 for name in NAMES), loads
            assert sum(loads.values()) <= 1.5 * lru_loads(order, 2), (loads, lru_loads(order, 2))
            assert sum(state == "loaded" for state in states(server).values()) <= 2
            assert sum(metrics(server, "engine_restarts_total").values()) == 0


def test_conversation(folder):
    paths = [make_model(folder, name) for name in NAMES[:3]]
    with Models(*flags_of(paths), "--models-max", 1) as server:
        client, messages = Client(server), user("Who are you?")
        for name in ("ash", "cedar", "ash", "birch"):
            messages.append({"role": "assistant", "content": check_chat(client, name, messages, 12)})
            messages.append({"role": "user", "content": "And now?"})
        assert check_chat(client, "birch:latest", user("Hello"), name="birch")


# ---- crashes, memory, time --------------------------------------------------------------------------

def test_crash(folder):
    """kill -9 of one engine: its streams go on in another one, and no other model sees anything of it."""
    paths = [make_model(folder, name) for name in NAMES[:2]]
    with Models(*flags_of(paths), slow=30) as server:
        seen = {name: threading.Event() for name in NAMES[:2]}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(check_stream, Client(server), name, user("go"), 120, on_text=lambda _, name=name: seen[name].set()) for name in NAMES[:2]]
            for name in NAMES[:2]:
                assert seen[name].wait(served.LIMIT)
            before = engines(server)
            os.kill(before["ash"]["pid"], signal.SIGKILL)
            for job in jobs:
                job.result()
        after = engines(server)
        assert after["ash"]["restarts"] == 1 and after["ash"]["pid"] != before["ash"]["pid"], after
        assert after["birch"] == before["birch"], (before, after)
        assert metrics(server, "engine_restarts_total") == {"ash": 1, "birch": 0}


def test_streams(folder):
    """A stream that runs is not cut for another model: that one's request waits, with comments in its stream."""
    paths = [make_model(folder, name) for name in NAMES[:2]]
    with Models(*flags_of(paths), "--models-max", 1, "--ping", 1, slow=40) as server:
        seen = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            long = pool.submit(check_stream, Client(server), "ash", user("go"), 120, on_text=lambda _: seen.set())
            assert seen.wait(served.LIMIT)
            waits = pool.submit(check_stream, Client(server), "birch", user("hello"), 12)
            until(lambda: metrics(server, "model_requests_waiting")["birch"] == 1)
            later = pool.submit(check_chat, Client(server), "ash", user("hello"), 12)
            assert not long.result()
            comments = waits.result()
            assert comments and set(comments) == {": the model is being loaded"}, comments
            later.result()
        loads = metrics(server, "model_loads_total")
        assert loads["birch"] == 1 and loads["ash"] in (1, 2), loads  # 1: the later request came before birch was open
        # A client that leaves while it waits leaves nothing behind.
        gone = Client(server)
        gone.connection.request("POST", "/v1/chat/completions", json.dumps({"model": "birch", "messages": user("x"), "max_tokens": 4}))
        gone.connection.close()
        check_chat(Client(server), "ash", user("still here"), 8)


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return f.read().split()


def test_keep_alive(folder):
    paths = [make_model(folder, name) for name in NAMES[:2]]
    ini = ini_file(folder, "models.ini", "[*]\nkeep-alive = 0\n[ash]\nmodel = %s\n[birch]\nmodel = %s\nkeep-alive = -1\n" % tuple(paths))
    with Models("--models", ini) as server:
        for name in NAMES[:2]:
            check_chat(Client(server), name, user("hello"))
        until(lambda: states(server) == {"ash": "unloaded", "birch": "loaded"})
        until(lambda: len(children(server.process.pid)) == 1)
        check_chat(Client(server), "ash", user("again"))
        assert metrics(server, "model_loads_total") == {"ash": 2, "birch": 1}
    with Models("-m", paths[0], "--keep-alive", 0) as server:
        until(lambda: states(server) == {"ash": "unloaded"} and not children(server.process.pid))
        check_chat(Client(server), "ash", user("hello"))


def ollama(server, path, body):
    status, answer = Client(server).ask("POST", path, body)
    assert status == 200, answer
    return answer


def test_stay(folder):
    """keep_alive of Ollama's requests: of a model of several, by who may; each model answers as alone, and is listed."""
    paths = [make_model(folder, name) for name in NAMES[:2]]
    ask = {"messages": user("hello"), "stream": False, "options": {"num_predict": 4, "temperature": 0}}
    with Models(*flags_of(paths), "--keep-alive", 3600, "--manage", "--embeddings") as server:
        names = {m["name"] for m in Client(server).ask("GET", "/api/tags")[1]["models"]}
        assert names == {"ash:latest", "birch:latest"}, names
        first = ollama(server, "/api/chat", {**ask, "model": "ash"})
        assert ollama(server, "/api/generate", {"model": "birch:latest", "prompt": "hello", "stream": False, "options": {"num_predict": 4}})["done"]
        assert states(server) == {"ash": "loaded", "birch": "loaded"}
        running = {m["name"]: m["expires_at"] for m in Client(server).ask("GET", "/api/ps")[1]["models"]}
        assert set(running) == {"ash:latest", "birch:latest"}, running
        assert ollama(server, "/api/chat", {**ask, "model": "ash", "keep_alive": 0})["message"] == first["message"]
        until(lambda: states(server) == {"ash": "unloaded", "birch": "loaded"})
        assert ollama(server, "/api/embed", {"model": "birch", "input": "hello", "keep_alive": "2h"})["embeddings"]
        later = {m["name"]: m["expires_at"] for m in Client(server).ask("GET", "/api/ps")[1]["models"]}
        assert list(later) == ["birch:latest"] and later["birch:latest"] > running["birch:latest"], (running, later)
        ollama(server, "/api/generate", {"model": "birch", "keep_alive": "1s"})
        until(lambda: states(server) == {"ash": "unloaded", "birch": "unloaded"})
        assert ollama(server, "/api/chat", {**ask, "model": "ash"})["message"] == first["message"]  # the flag's time again
        assert Client(server).ask("POST", "/api/chat", {**ask, "model": "ash", "keep_alive": "soon"})[0] == 400
        assert states(server)["ash"] == "loaded"
    with Models(*flags_of(paths), "--keep-alive", 0, "--manage") as server:
        ollama(server, "/api/chat", {**ask, "model": "ash", "keep_alive": -1})
        ollama(server, "/api/chat", {**ask, "model": "birch"})
        until(lambda: states(server) == {"ash": "loaded", "birch": "unloaded"})
    with Models(*flags_of(paths), "--keep-alive", 3600) as server:  # who may not unload models
        ollama(server, "/api/chat", {**ask, "model": "ash", "keep_alive": 0})
        ollama(server, "/api/chat", {**ask, "model": "birch"})
        assert states(server) == {"ash": "loaded", "birch": "loaded"}


# ---- failures ---------------------------------------------------------------------------------------

def test_failures(folder):
    good, cut = make_model(folder, "ash"), make_model(folder, "birch")
    weights = os.path.join(cut, "model.safetensors")
    os.truncate(weights, os.path.getsize(weights) // 2)
    ini = ini_file(folder, "models.ini", "[ash]\nmodel = %s\n[cut]\nmodel = %s\n[absent]\nmodel = %s/absent\n[wide]\nmodel = %s\nctx-size = 100000000\n"
                   "[large]\nmodel = %s\nkv-size = 8000000\n" % (good, cut, folder, good, good))
    with Models("--models", ini) as server:
        client = Client(server)
        check_chat(client, "ash", user("hello"))
        pid = engines(server)["ash"]["pid"]
        for name, status, word in (("cut", 500, "model.safetensors"), ("absent", 500, "absent"), ("wide", 500, "context"), ("large", 503, "KV cache")):
            for stream in (False, True, False, True):
                found, answer = client.chat(name, user("hello"), stream=stream)
                assert found == status and word in answer["error"]["message"] and answer["error"]["code"] == "model_failed", (found, answer)
        # The engine of the large one found too little memory beside ash, which gave its own, and then again.
        assert states(server) == {"ash": "unloaded", "cut": "failed", "absent": "failed", "wide": "failed", "large": "failed"}
        failures = metrics(server, "model_load_failures_total")
        assert all(failures[name] == 1 for name in ("cut", "absent", "wide", "large")) and not failures["ash"], failures
        check_chat(client, "ash", user("hello"))
        assert metrics(server, "model_loads_total")["ash"] == 2 and engines(server)["ash"]["pid"] != pid
    with Models("--models", ini, "--models-memory", 1) as server:
        status, answer = Client(server).chat("ash", user("hello"))
        assert status == 503 and "--models-memory" in answer["error"]["message"], answer
        assert not children(server.process.pid)


# ---- names, lists, who may ------------------------------------------------------------------------

def test_names(folder):
    paths = [make_model(folder, name) for name in NAMES[:2]]
    ini = ini_file(folder, "models.ini", "# two trees\nversion = 1\n\n[*]\ntemp = 0\nctx-size = 128\n\n[tree]\nmodel = %s\nalias = ash wood\n\n"
                   "[birch]\nmodel = %s\nctx-size = 256\nchat-template = chatml\nload-on-start = true\n" % tuple(paths))
    with Models("--models", ini) as server:
        client = Client(server)
        assert "2 models: http" in server.text()
        until(lambda: states(server) == {"tree": "unloaded", "ash": "unloaded", "wood": "unloaded", "birch": "loaded"})
        for path in ("/models", "/v1/models"):
            assert states(server, path) == states(server)
        assert [check_chat(client, name, user("hello"), 8, name="ash") for name in ("tree", "ash", "wood:latest")]
        lengths = {m["id"]: m["max_model_len"] for m in client.ask("GET", "/v1/models")[1]["data"]}
        assert lengths == {"tree": 128, "ash": 128, "wood": 128, "birch": 256}, lengths
        assert client.ask("GET", "/v1/models/wood")[1]["root"] == "tree"
        status, answer = client.chat("oak", user("hello"))
        assert status == 404 and answer["error"]["code"] == "model_not_found" and all('"%s"' % n in answer["error"]["message"] for n in ("tree", "birch")), answer
        status, answer = client.ask("POST", "/v1/messages", {"model": "oak", "messages": user("hello"), "max_tokens": 4})
        assert status == 404 and answer["type"] == "error" and answer["error"]["type"] == "not_found_error" and '"tree"' in answer["error"]["message"], answer
        status, answer = client.ask("POST", "/v1/messages", {"model": "tree", "messages": user("hello"), "max_tokens": 8})
        assert status == 200 and answer["content"][0]["text"] == expected("ash", answer["usage"]["input_tokens"], 8), answer
        status, answer = client.ask("POST", "/v1/chat/completions", {"messages": user("hello")})
        assert status == 400 and '"tree"' in answer["error"]["message"], answer
        one, two = [client.ask("POST", "/tokenize", {"model": name, "messages": user("hello")})[1]["count"] for name in ("tree", "birch")]
        assert one == 6 and two > one, (one, two)  # birch has ChatML
        assert {m["id"] for m in client.ask("GET", "/health")[1]["models"]} == {"tree", "birch"}
    os.makedirs(os.path.join(folder, "config", "minerva"))
    ini_file(os.path.join(folder, "config", "minerva"), "aliases.ini", "hazel = ash\n")
    with Models("--all-models", env={"MINERVA_MODEL_PATH": folder, "XDG_CONFIG_HOME": os.path.join(folder, "config")}) as server:
        assert {"ash", "birch", "hazel"} <= set(states(server)), states(server)
        check_chat(Client(server), "hazel", user("hello"), name="ash")
        check_chat(Client(server), "birch", user("hello"))
    for text, word in (("[a]\nmodle = x\n", ":2: modle"), ("[a]\nctx-size = many\n", ":2: ctx-size"), ("model = x\n", ":1: model"), ("[a]\nhello\n", ":2"),
                       ("[a]\n[a]\n", 'named "a"'), ("", "no model"), ("[a\n", ":1"), ("[a]\nembeddings = perhaps\n", "true or false")):
        server = Models("--models", ini_file(folder, "bad.ini", text))
        try:
            with server:
                raise AssertionError("accepted: " + text)
        except AssertionError as e:
            assert "has ended" in str(e) and word in str(e), (text, str(e))


def test_manage(folder):
    """Loading and unloading answer 403 without --manage or an admin key, on loopback, too."""
    paths = [make_model(folder, name) for name in NAMES[:2]]
    with Models(*flags_of(paths)) as server:
        for path in ("/models/load", "/models/unload"):
            status, answer = Client(server).ask("POST", path, {"model": "ash"})
            assert status == 403 and answer["error"]["code"] == "not_permitted", answer
    keys = ini_file(folder, "keys", "secret anna\nother admin\n")
    with Models(*flags_of(paths), "--api-key", keys, key="secret") as server:
        assert Client(server, "secret").ask("POST", "/models/load", {"model": "ash"})[0] == 403
        assert Client(server, "other").ask("POST", "/models/load", {"model": "ash"}) == (200, {"success": True})
        until(lambda: states(server, key="secret")["ash"] == "loaded")
    with Models(*flags_of(paths), "--manage", "--models-max", 1) as server:
        client = Client(server)
        change = lambda what, name: client.ask("POST", "/models/" + what, {"model": name})
        assert change("load", "ash") == (200, {"success": True})
        until(lambda: states(server)["ash"] == "loaded")
        assert change("load", "ash")[0] == 400 and change("unload", "birch")[0] == 400 and change("load", "oak")[0] == 404 and change("load", None)[0] == 400
        assert change("load", "birch")[0] == 200
        until(lambda: states(server) == {"ash": "unloaded", "birch": "loaded"})
        assert change("unload", "birch")[0] == 200
        until(lambda: states(server) == {"ash": "unloaded", "birch": "unloaded"} and not children(server.process.pid))
        check_chat(client, "birch", user("hello"))
    with Models("-m", paths[0], "--manage") as server:
        status, answer = Client(server).ask("POST", "/models/unload", {"model": "ash"})
        assert status == 400 and "only model" in answer["error"]["message"], answer


TESTS = {name[5:]: f for name, f in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    if not served.available(MINERVA):
        print("minerva was built without a server: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        TESTS[GROUP](folder)
    print("ok")
