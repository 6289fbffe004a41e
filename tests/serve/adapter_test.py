#!/usr/bin/env python3
"""adapter_test.py MINERVA: adapters in the server: chosen by the model's name, loaded and unloaded while others are in use, after an engine has died, and what is
refused. The oracle of an answer is minerva run --lora."""
import concurrent.futures
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import served

MINERVA = sys.argv[1]
PROMPT = "Once upon a time there was a little"
SHAPES = {"self_attn.q_proj": (256, 256), "self_attn.v_proj": (128, 256), "mlp.down_proj": (256, 768)}


def until(holds):
    end = time.monotonic() + served.LIMIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def make_adapter(folder, seed, rank=4):
    """Noise that changes what the demo model says."""
    rng = random.Random(seed)
    os.mkdir(folder)
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": [s.split(".")[1] for s in SHAPES]}, f)
    head, data = {}, b""
    for layer in range(6):
        for module, (n, k) in SHAPES.items():
            for side, shape in (("A", (rank, k)), ("B", (n, rank))):
                raw = struct.pack("<%df" % (shape[0] * shape[1]), *(rng.gauss(0, 0.12) for _ in range(shape[0] * shape[1])))
                name = "base_model.model.model.layers.%d.%s.lora_%s.weight" % (layer, module, side)
                head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
                data += raw
    text = json.dumps(head).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    return folder


def post(server, path, body, code=200):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=served.LIMIT) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        status, text = e.code, e.read().decode()
    assert status == code, (path, body, status, text)
    return text


def complete(server, model, n=16, code=200):
    answer = post(server, "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": n, "temperature": 0}, code)
    return json.loads(answer)["choices"][0]["text"] if code == 200 else answer


def run(*flags, n=16):
    done = subprocess.run([MINERVA, "run", "-q", "--raw", "-m", served.MODEL, "-n", str(n), "--temp", "0", "-p", PROMPT, *flags], capture_output=True, text=True,
                          env=served.environment(), timeout=served.LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def models(server):
    with urllib.request.urlopen(server.url + "/v1/models", timeout=served.LIMIT) as answer:
        return [m["id"] for m in json.loads(answer.read())["data"]]


def same(a, b):
    """run ends a text with a line's end, and prints the prompt or not."""
    return a.strip() == b.strip() or b.strip().endswith(a.strip())


def test_names(scratch):
    one, two = make_adapter(os.path.join(scratch, "one"), 1), make_adapter(os.path.join(scratch, "two"), 2)
    plain, first, both = run(), run("--lora", one), run("--lora", one, "--lora", two + ":0.5")
    assert len({plain, first, both}) == 3, (plain, first, both)
    with served.Server(MINERVA, "--lora", one, "--lora", "half=" + one + ":0.5") as server:
        base = models(server)[0]
        assert {base + ":one", base + ":half"} <= set(models(server)), models(server)
        for _ in range(2):  # the second time from the prefix cache
            assert same(complete(server, base), plain)
            assert same(complete(server, base + ":one"), first)
            assert same(complete(server, "one"), first)
        assert same(complete(server, "half"), run("--lora", one + ":0.5"))
        complete(server, base + ":three", code=404)
        post(server, "/v1/load_lora_adapter", {"lora_name": "two", "lora_path": two}, 403)
    for flag, word in (("--lora", one + "x"), "onex"), (("--lora", "a b=" + one), "blanks"), (("--lora", one, "--lora", one), "two adapters"):
        done = subprocess.run([MINERVA, "serve", "-m", served.MODEL, "--port", "0", *flag], capture_output=True, text=True, env=served.environment(), timeout=served.LIMIT)
        assert done.returncode and word in done.stderr, done.stderr


def engine_of(server):
    for task in os.listdir("/proc/%d/task" % server.process.pid):
        with open("/proc/%d/task/%s/children" % (server.process.pid, task)) as f:
            for pid in f.read().split():
                with open("/proc/%s/cmdline" % pid, "rb") as c:
                    if b"engine" in c.read():
                        return int(pid)
    return None


def test_changes(scratch):
    one, two = os.path.join(scratch, "one"), os.path.join(scratch, "two")
    wide = make_adapter(os.path.join(scratch, "wide"), 3, rank=9)
    plain, first, second = run(), run("--lora", one), run("--lora", two)
    with served.Server(MINERVA, "--lora", one, "--max-loras", "2", "--max-lora-rank", "8", "--manage", "--parallel", "8") as server:
        base = models(server)[0]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            # others go on while adapters come and go
            others = [pool.submit(complete, server, name) for name in [base, base + ":one"] * 8]
            for _ in range(4):
                text = post(server, "/v1/load_lora_adapter", {"lora_name": "two", "lora_path": two})
                assert text.startswith("Success: LoRA adapter 'two' added"), text
                assert same(complete(server, base + ":two"), second)
                assert base + ":two" in models(server)
                post(server, "/v1/unload_lora_adapter", {"lora_name": "two"})
                assert base + ":two" not in models(server)
                complete(server, base + ":two", code=404)
            for i, other in enumerate(others):
                assert same(other.result(), first if i % 2 else plain), (i, other.result())
        post(server, "/v1/load_lora_adapter", {"lora_name": "two", "lora_path": two})
        for body, status, word in (({"lora_name": "two", "lora_path": two}, 400, "already"), ({"lora_name": "three", "lora_path": two}, 400, "places"),
                                   ({"lora_path": two}, 400, "lora_name"), ({"lora_name": "a:b", "lora_path": two}, 400, "colons"), ({"lora_name": "x"}, 400, "lora_path")):
            assert word in post(server, "/v1/load_lora_adapter", body, status), word
        assert "not loaded" in post(server, "/v1/unload_lora_adapter", {"lora_name": "three"}, 404)
        post(server, "/v1/load_lora_adapter", {"lora_name": "two", "lora_path": one, "load_inplace": True})
        assert same(complete(server, "two"), first)
        pid = engine_of(server)
        if pid:  # the next engine has them, too
            os.kill(pid, signal.SIGKILL)
            assert same(complete(server, base + ":two"), first)
        post(server, "/v1/unload_lora_adapter", {"lora_name": "two"})
        for body, word in (({"lora_name": "wide", "lora_path": wide}, "rank 9"), ({"lora_name": "gone", "lora_path": two + "x"}, "twox"),
                           ({"lora_name": "model", "lora_path": served.MODEL}, "is no adapter")):
            assert word in post(server, "/v1/load_lora_adapter", body, 400), word
            assert base + ":" + body["lora_name"] not in models(server)
        assert same(complete(server, base), plain)


def test_left(scratch):
    """A client that leaves while its adapter is read: what the engine refuses is taken back all the same, what it takes stays."""
    wide, two = make_adapter(os.path.join(scratch, "wider"), 4, rank=9), os.path.join(scratch, "two")
    with served.Server(MINERVA, "--max-loras", "2", "--max-lora-rank", "8", "--manage") as server:
        base, pid = models(server)[0], engine_of(server)
        for name, path in (("wide", wide), ("two", two)):
            body = json.dumps({"lora_name": name, "lora_path": path}).encode()
            if pid:
                os.kill(pid, signal.SIGSTOP)
            with socket.create_connection(urllib.parse.urlsplit(server.url).netloc.split(":")) as s:
                s.sendall(b"POST /v1/load_lora_adapter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                until(lambda: base + ":" + name in models(server) or not pid)
            if pid:
                os.kill(pid, signal.SIGCONT)
            complete(server, base)
        until(lambda: models(server) == [base, base + ":two"])
        complete(server, base + ":wide", code=404)
        complete(server, base + ":two")


def test_embeddings(scratch):
    one = os.path.join(scratch, "one")
    with served.Server(MINERVA, "--lora", one, "--embeddings") as server:
        assert "without adapters" in post(server, "/v1/embeddings", {"model": "one", "input": "x"}, 400)
        post(server, "/v1/embeddings", {"model": models(server)[0], "input": "x"})


if not served.available(MINERVA):
    sys.exit(77)
with tempfile.TemporaryDirectory() as directory:
    for test in test_names, test_changes, test_left, test_embeddings:
        began = time.monotonic()
        test(directory)
        print("%s: %.1f s" % (test.__name__, time.monotonic() - began))
