#!/usr/bin/env python3
"""Memory that runs out at one allocation of the program, its libraries and the processes that it starts: memory_test.py MINERVA LIBRARY GROUP [STEP].

LIBRARY is fail_alloc.c, which counts allocations and fails number N; every STEP-th N is tried (default: 20). What may come of it: what comes without
(from the slow reference, too, if a line says so), or exit code 4 with a message about memory; a server may also answer 503, or drop the connection.
Never another text, another file, or another reason. The trace of a finding: run it again with FAIL_ALLOC_TRACE=FILE."""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODEL = os.path.join(ROOT, "models", "storyteller")
MINERVA, LIBRARY = (os.path.abspath(p) for p in sys.argv[1:3])
GROUP = sys.argv[3]
STEP = int(sys.argv[4]) if len(sys.argv) > 4 else 20
# Without the plugins of GPUs: code of others in them ends the process in its constructors (CUDA's runtime) or in its driver (PoCL) where an
# allocation fails, as a plugin that crashes, which other tests look at.
BUILD = os.environ.get("MINERVA_BUILD_ROOT") or os.path.dirname(os.path.dirname(MINERVA))
PLUGINS = [os.path.join(BUILD, *at) for at in (("plugins", "reference"), ("plugins", "cpu_simd"), ("loaders", "gguf"), ("loaders", "safetensors"), ("loaders", "mlx"))]
LIMIT = 120.0  # a hang, not a time that is measured
AT_ONCE = 2
EXIT_NO_DEVICE, EXIT_NO_MEMORY = 3, 4

COMMANDS = {
    "run": ["run", "-m", MODEL, "--temp", "0", "-n", "8", "-p", "Once"],
    "form": ["run", "-m", MODEL, "--temp", "0", "-n", "12", "-p", "Once", "--json-schema",
             '{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a","b"]}'],
    "first": ["run", "-m", MODEL, "--temp", "0", "-n", "2", "-p", "Once"],  # without results of earlier probes
    "tokenize": ["tokenize", "-m", MODEL, "-p", "Once upon a time", "--json"],
    # experts of the CPU that another device computes in prompts, with threads of their own
    "streamed": ["run", "-m", os.path.join(ROOT, "tests", "data", "fixtures", "mixtral"), "--device", "reference,cpu_simd", "--cpu-moe", "--precision", "exact",
                 "--temp", "0", "-n", "2", "--prompt-ids", "1,2,3,4,5,6,7,8"],
    "convert": ["convert", MODEL, "--type", "q8_0", "-o"],
}

# Requests of a server, each with what its answer is compared by.
REQUESTS = [
    ("GET", "/v1/models", None),
    ("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 2}),
    ("POST", "/v1/completions", {"prompt": [1, 2, 374, 3], "max_tokens": 6, "temperature": 0, "echo": True, "stream": True}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 8, "temperature": 0,
                                      "n": 2, "reasoning_effort": "low"}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0, "stream": True,
                                      "stop": ["zz"], "logprobs": True}),
    ("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 6, "temperature": 0,
                                 "guided_json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}),
    ("POST", "/tokenize", {"prompt": "Once upon", "return_token_strs": True}),
    ("POST", "/detokenize", {"tokens": [2, 374, 3]}),
]
SETTINGS = {"streamed": {"MINERVA_STREAM_EXPERTS": "2"}}


class Trial:
    """One start of the program, with the N-th allocation failing; 0: none."""

    def __init__(self, folder, n, warm):
        self.folder = os.path.join(folder, str(n))
        self.n = n
        os.mkdir(self.folder)
        self.count = os.path.join(self.folder, "count")
        with open(self.count, "wb") as f:
            f.truncate(4096)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("MINERVA_", "FAIL_ALLOC_A"))}
        self.env.update(MINERVA_PLUGIN_PATH_ONLY=":".join(PLUGINS), XDG_DATA_HOME="/nonexistent", XDG_CONFIG_HOME="/nonexistent", XDG_CACHE_HOME=warm or self.folder, LD_PRELOAD=LIBRARY,
                        FAIL_ALLOC_COUNT=self.count, FAIL_ALLOC_AT=str(n), **SETTINGS.get(GROUP, {}))

    def allocations(self):
        with open(self.count, "rb") as f:
            return struct.unpack("<Q", f.read(8))[0]

    def close(self):
        shutil.rmtree(self.folder)


def complaint(code, err):
    """What is wrong with an end that is not the usual one; None: nothing."""
    if code == EXIT_NO_MEMORY and re.search("memory", err, re.I):
        return None
    if code == EXIT_NO_DEVICE and "nothing can run the model" in err and "out of memory: " in err:  # of all devices that the command names
        return None
    if "for thread-local data: ABORT" in err:  # glibc's own end where a thread first meets a variable of its own in a plugin
        return None
    return "exit code %s: %s" % (code, err.strip()[-600:])


# ---- commands -----------------------------------------------------------------------------------------------------------------------------------

def command(trial):
    made = os.path.join(trial.folder, "made")
    words = COMMANDS[GROUP] + ([made] if GROUP == "convert" else [])
    p = subprocess.run([MINERVA] + words, env=trial.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    data = None
    if os.path.exists(made):
        with open(made, "rb") as f:
            data = f.read()
    left = [name for name in os.listdir(trial.folder) if name.startswith("made") and name != "made"]
    return p.returncode, p.stdout, p.stderr.decode(errors="replace"), data, left


def judge_command(usual, got):
    code, out, err, data, left = got
    if left:
        return "it left %s" % left
    if code == 0:
        return None if (out, data) == (usual[1], usual[3]) else "exit code 0 with another output: %r" % out[-200:]
    if data is not None or not usual[1].startswith(out.rstrip(b"\n")):  # an error ends the line
        return "an output beside exit code %s: %r" % (code, out[-200:])
    return complaint(code, err)


# ---- a server -----------------------------------------------------------------------------------------------------------------------------------

def whole(head, body):
    """The body behind a head; None: it has no end."""
    if b"chunked" not in head.lower():
        n = re.search(rb"content-length: *(\d+)", head, re.I)
        return body if n and int(n.group(1)) == len(body) else None
    text = b""
    while True:
        n, mark, rest = body.partition(b"\r\n")
        if not mark:
            return None
        n = int(n, 16)
        if n == 0:
            return text
        if len(rest) < n + 2:
            return None
        text += rest[:n]
        body = rest[n + 2:]


def ask(port, method, path, request):
    """(status, body without what differs each time); status 0: the connection was dropped."""
    data = json.dumps(request).encode() if request else b""
    got = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as s:
            s.sendall(("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (method, path, len(data))).encode() + data)
            for piece in iter(lambda: s.recv(65536), b""):
                got += piece
    except socket.timeout:
        return -1, "no answer"
    except OSError:
        return 0, ""
    head, _, body = got.partition(b"\r\n\r\n")
    text = whole(head, body) if head else None
    if text is None:
        return 0, ""
    text = text.decode(errors="replace")
    text = re.sub(r'"(id|created|created_at|request_id)": ?("[^"]*"|\d+)', r'"\1":0', text)
    text = re.sub(r"-?\d+\.\d[-+.e\d]*", "#", text)  # logprobs of another device, or of an engine that took over
    text = re.sub(r'"cached_tokens": ?\d+|"system_fingerprint": ?"[^"]*"|"device": ?"[^"]*"', "", text)
    return int(head.split()[1]), text


def wait_ready(server, said):
    """The port of a server that is ready; None: it has ended."""
    end = time.monotonic() + LIMIT
    while server.poll() is None and time.monotonic() < end:
        with open(said, errors="replace") as f:
            port = re.search(r"http://[^:]*:(\d+)", f.read())
        if port and ask(int(port.group(1)), "GET", "/health", None)[0] == 200:
            return int(port.group(1))
        time.sleep(0.02)
    return None


def serve(trial):
    said = os.path.join(trial.folder, "said")
    with open(said, "wb") as f:
        server = subprocess.Popen([MINERVA, "serve", "-m", MODEL, "--port", "0", "-c", "256"], env=trial.env, stdin=subprocess.DEVNULL, stdout=f, stderr=f)
    try:
        port = wait_ready(server, said)
        answers = [ask(port, *r) for r in REQUESTS] if port else None
        server.send_signal(signal.SIGTERM)
        code = server.wait(LIMIT)
    finally:
        server.kill()
        server.wait()
    with open(said, errors="replace") as f:
        return code, answers, f.read()


def judge_answer(usual, got):
    status, text = got
    if got == usual or status in (0, 503):
        return None
    if status == 200 and '"error"' in text and '"code":503' in text:  # in a stream that had begun
        return None
    return "status %d: %s" % (status, text[-300:])


def judge_serve(usual, got):
    code, answers, said = got
    if answers is None:
        return complaint(code, said)
    wrong = [w for w in map(judge_answer, usual[1], answers) if w]
    return "; ".join(wrong) or None


# ---- all N --------------------------------------------------------------------------------------------------------------------------------------

def main():
    try_it, judge = (serve, judge_serve) if GROUP == "serve" else (command, judge_command)
    with tempfile.TemporaryDirectory() as folder:
        warm = None if GROUP == "first" else os.path.join(folder, "cache")

        def trial(n):
            t = Trial(folder, n, warm)
            got = try_it(t)
            total = t.allocations()
            t.close()
            return n, got, total

        for _ in range(2):  # the first one fills the cache
            _, usual, total = trial(0)
        if GROUP == "serve" and (usual[1] is None or any(a[0] != 200 for a in usual[1])):
            print("a server without fault: %r" % (usual,))
            return 1
        if GROUP != "serve" and usual[0]:
            print("without a fault: exit code %d: %s" % (usual[0], usual[2]))
            return 1
        wrong = []
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for n, got, _ in pool.map(trial, range(1 + STEP // 2, total + 1, STEP)):
                why = judge(usual, got)
                if why:
                    wrong.append("allocation %d of %d: %s" % (n, total, why))
        print("%d of %d allocations failed, %d findings" % (len(range(1 + STEP // 2, total + 1, STEP)), total, len(wrong)))
        for line in wrong[:20]:
            print(line)
        return 1 if wrong or total < 200 else 0


if os.environ.get("MINERVA_TEST_SANITIZE"):
    print("skipped: a sanitizer has an allocator of its own")
    sys.exit(77)
sys.exit(main())
