#!/usr/bin/env python3
"""minerva bench --url against a server with known answers: bench_url_test.py MINERVA. Counts, not times.

Each test is a function test_what; a failed check raises."""
import json
import os
import subprocess
import sys
import tempfile

from mock_server import Server

MINERVA = sys.argv[1]


def minerva(*args, code=0, stdin="", **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MINERVA_") and k not in ("OPENAI_API_KEY", "LD_LIBRARY_PATH")}
    clean.update(env, no_proxy="127.0.0.1", XDG_CONFIG_HOME="/nonexistent")
    p = subprocess.run([MINERVA, "bench", *map(str, args)], input=stdin, capture_output=True, text=True, env=clean, timeout=100)
    assert p.returncode == code, "exit code %d, expected %d: bench %s\n%s%s" % (p.returncode, code, args, p.stdout, p.stderr)
    return p


def rows(*args, **more):
    return [json.loads(line) for line in minerva(*args, "--json", **more).stdout.splitlines()]


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def has(text, *parts):
    for part in parts:
        assert part in text, "%r is not in %r" % (part, text)


def counts(row):
    return row["completed"], row["failed"], row["prompt_tokens"], row["completion_tokens"]


def test_counts():
    """Users, prompt and answer lengths: each combination is a row with the counts of the server."""
    with Server() as s:
        found = rows("--url", s.url, "-b", "1,4", "-p", "20,30", "-n", "6", "--requests", 9)
        equal([(r["users"], *counts(r)) for r in found], [(b, 9, 0, 9 * p, 54) for p in (20, 30) for b in (1, 4)])
        for r in found:
            equal((r["model"], r["url"], r["cached_tokens"]), ("mock-model", s.url + "/v1", 9 * (r["prompt_tokens"] // 18)))
            equal((r["first_token_s"]["n"], r["per_token_s"]["n"], r["request_s"]["n"]), (9, 45, 9))
            t = r["first_token_s"]
            assert 0 < t["p50"] <= t["p90"] <= t["p99"] <= t["max"] <= r["request_s"]["max"] <= r["wall_s"]
            assert abs(r["requests_per_s"] * r["wall_s"] - 9) < 1e-3 and abs(r["tokens_per_s"] * r["wall_s"] - 54) < 1e-2
        equal(len(s.requests), 1 + 36)
        for q in s.requests:
            equal((q["path"], q["stream"], q["ignore_eos"], q["stream_options"]), ("/v1/completions", True, True, {"include_usage": True}))
            assert all(isinstance(i, int) and 0 <= i < 500 for i in q["prompt"])
        equal(len({json.dumps(q["prompt"]) for q in s.requests}), 37)  # no two alike: nothing comes from a cache


def test_users():
    """So many requests are in flight, never more."""
    with Server(pause=0.01) as s:
        rows("--url", s.url + "/v1/", "-b", 5, "-p", 4, "-n", 8, "--requests", 20)
        equal(s.most, 5)


def test_streams():
    """The same counts however the bytes of a stream are cut and its lines end, with and without usage."""
    for cut, newline in ((1, "\n"), (1, "\r\n"), (3, "\r"), (7, "\r\n"), (0, "\r\n"), (0, "\r")):
        with Server(cut=cut, newline=newline, comments=True) as s:
            equal(counts(rows("--url", s.url, "-b", 2, "-p", 5, "-n", 7, "--requests", 4)[0]), (4, 0, 20, 28))
    with Server(usage=False) as s:
        equal(counts(rows("--url", s.url, "-b", 2, "-p", 5, "-n", 7, "--requests", 4)[0]), (4, 0, 0, 28))


def test_chat():
    with Server() as s:
        r = rows("--url", s.url, "--chat", "-b", 2, "-p", 5, "-n", 7, "--requests", 4)[0]
        equal((*counts(r), r["per_token_s"]["n"]), (4, 0, 20, 28, 24))  # the empty delta with the role is no token
        equal({q["path"] for q in s.requests}, {"/v1/chat/completions"})


def test_words():
    """A server that refuses token ids gets words."""
    with Server(ids=False) as s:
        p = minerva("--url", s.url, "-p", 12, "-n", 3, "--requests", 2, "--json")
        equal(counts(json.loads(p.stdout)), (2, 0, 24, 6))
        has(p.stderr, "refuses token ids", "prompt: expected a string")


def test_shared():
    with Server() as s:
        rows("--url", s.url, "-p", 40, "-n", 1, "--requests", 5, "--shared", 75, "--seed", 7)
        prompts = [q["prompt"] for q in s.requests[1:]]
        equal(len({tuple(p[:30]) for p in prompts}), 1)
        equal(len({tuple(p[30:]) for p in prompts}), 5)
        first = prompts
    with Server() as s:
        rows("--url", s.url, "-p", 40, "-n", 1, "--requests", 5, "--shared", 75, "--seed", 7)
        equal([q["prompt"] for q in s.requests[1:]], first)


def test_rate():
    with Server() as s:
        r = rows("--url", s.url, "--rate", 200, "-p", 4, "-n", 2, "--requests", 30)[0]
        equal((r["users"], r["rate"], *counts(r)), (0, 200, 30, 0, 120, 60))
        assert r["wall_s"] > 0.03, "30 requests at 200 per second take about 0.15 s"


def test_file():
    with tempfile.TemporaryDirectory() as folder, Server() as s:
        path = os.path.join(folder, "requests.jsonl")
        with open(path, "w") as f:
            f.write('{"prompt": "one two three", "max_tokens": 2}\n\n{"prompt_ids": [1, 2, 3, 4], "max_tokens": 3, "temperature": 1}\n'
                    '{"messages": [{"role": "user", "content": "five words are in this"}], "max_tokens": 4, "user": "me"}\n')
        equal(counts(rows("--url", s.url, "--requests-file", path)[0]), (3, 0, 12, 9))
        equal([q["path"] for q in s.requests], ["/v1/completions"] * 2 + ["/v1/chat/completions"])
        equal([q["temperature"] for q in s.requests], [0, 1, 0])
        equal(s.requests[2]["user"], "me")
        with open(path, "w") as f:
            f.write('{"prompt": "a"}\n{"no": 1}\n')
        has(minerva("--url", s.url, "--requests-file", path, code=1).stderr, "requests.jsonl:2: expected one JSON object")


def test_errors():
    """A request that fails is counted, with the first one's message; the others count as ever."""
    with Server(fail={2: 429, 4: 500}, broken={5: "error", 6: "end", 7: "no_done"}) as s:
        p = minerva("--url", s.url, "-b", 1, "-p", 5, "-n", 4, "--requests", 10, "--json")
        r = json.loads(p.stdout)
        equal(counts(r), (5, 5, 25, 20))
        equal(r["error"], "HTTP status 429: told to fail")
        has(p.stderr, "warning: 5 of 10 requests failed", "told to fail")
    for how, message in (("error", "lost midway"), ("no_done", "without [DONE]"), ("end", "")):
        with Server(broken={i: how for i in range(1, 9)}) as s:
            has(minerva("--url", s.url, "-p", 5, "-n", 4, "--requests", 4, code=1).stderr, "all 4 requests failed", message)
    with Server(fail={0: 503}) as s:
        has(minerva("--url", s.url, code=1).stderr, s.url, "HTTP status 503: told to fail")
    has(minerva("--url", "127.0.0.1:1", code=1).stderr, "http://127.0.0.1:1/v1/models", "connect")


def test_key():
    with tempfile.TemporaryDirectory() as folder, Server(key="secret") as s:
        path = os.path.join(folder, "key")
        with open(path, "w") as f:
            f.write("secret\n")
        equal(rows("--url", s.url, "-p", 5, "-n", 1, "--requests", 2, "--api-key", path)[0]["completed"], 2)
        equal(rows("--url", s.url, "-p", 5, "-n", 1, "--requests", 2, OPENAI_API_KEY="secret")[0]["completed"], 2)
        has(minerva("--url", s.url, code=1).stderr, "401", "the key is not valid")


def test_table():
    with Server() as s:
        out = minerva("--url", s.url, "-b", "1,2", "-p", 5, "-n", 4, "--requests", 4).stdout.splitlines()
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in out[:4]]
        equal(cells[0], ["users", "prompt", "answer", "ok", "errors", "req/s", "t/s", "first ms", "p90", "p99", "token ms", "p90", "p99"])
        equal([c[:5] for c in cells[2:]], [["1", "5", "4", "4", "0"], ["2", "5", "4", "4", "0"]])
        has("\n".join(out), "mock-model", "random token ids", "% from the server's cache")
        csv = minerva("--url", s.url, "-p", 5, "-n", 4, "--requests", 4, "--csv").stdout.splitlines()
        equal(len(csv), 2)


def test_usage():
    for args in (("--url", "http://127.0.0.1:1", "-d", 5), ("--url", "x", "--rate", 3, "-b", 2), ("--rate", 3), ("--url", "x", "-n", 0),
                 ("--chat",), ("--url", "x", "--device", "cpu"), ("--url", "")):
        has(minerva(*args, code=2).stderr, "minerva: error: ")


def main():
    if "without libcurl" in subprocess.run([MINERVA, "bench", "--url", "http://127.0.0.1:1"], capture_output=True, text=True).stderr:
        print("this minerva was built without libcurl")
        sys.exit(77)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            print(name, flush=True)
            test()


if __name__ == "__main__":
    main()
