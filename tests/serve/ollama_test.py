#!/usr/bin/env python3
"""Ollama's interface from outside: `ollama_test.py MINERVA`. What a client of Ollama reads of answers, streams, lists and errors; every option does something, is refused by
name or is harmless."""
import http.client
import json
import os
import re
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hub"))
import loopback  # noqa: E402
import served  # noqa: E402

STORY = [{"role": "user", "content": "Tell me a story."}]
TOOL = {"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object", "properties": {"at": {"type": "string", "maxLength": 10}}, "required": ["at"]}}}
LAST = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}
# name: values that are accepted; what the field does is in docs/serving.md
OPTIONS = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.9, "seed": 5, "stop": ["."], "repeat_penalty": 1.5, "repeat_last_n": 8, "presence_penalty": 0.5,
           "frequency_penalty": 0.5, "mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2, "num_predict": 3, "tfs_z": 1.0, "penalize_newline": True}
HARMLESS = {"num_ctx": 4096, "num_batch": 512, "num_gpu": 99, "main_gpu": 0, "num_thread": 4, "num_keep": 4, "numa": False, "low_vram": False, "f16_kv": True, "use_mmap": True, "use_mlock": False,
            "vocab_only": False, "unheard_of": 1}


class Client:
    def __init__(self, server, key=None):
        self.server, self.key = server, key

    def ask(self, path, body=None, method=None):
        """status, content type, text"""
        c = http.client.HTTPConnection(self.server.url.split("//")[1], timeout=served.LIMIT)
        headers = {"Authorization": "Bearer " + self.key} if self.key else {}
        c.request(method or ("GET" if body is None else "POST"), path, None if body is None else json.dumps(body), headers)
        r = c.getresponse()
        try:
            return r.status, r.getheader("Content-Type"), r.read().decode()
        finally:
            c.close()

    def one(self, path, body=None, **more):
        status, kind, text = self.ask(path, body, **more)
        assert status == 200 and kind == "application/json", (status, kind, text)
        return json.loads(text)

    def lines(self, path, body):
        status, kind, text = self.ask(path, body)
        assert status == 200 and kind == "application/x-ndjson", (status, kind, text)
        found = [json.loads(line) for line in text.splitlines()]
        assert [x["done"] for x in found] == [False] * (len(found) - 1) + [True], found
        for x in found:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", x["created_at"]), x
            assert LAST & set(x) == (LAST if x["done"] else set()), x
        assert all(isinstance(found[-1][name], int) for name in LAST) and found[-1]["eval_duration"] > 0 < found[-1]["prompt_eval_duration"], found[-1]
        return found

    def refused(self, path, body, status, word, method=None):
        found, kind, text = self.ask(path, body, method)
        answer = json.loads(text)
        assert found == status and kind == "application/json" and set(answer) == {"error"} and word in answer["error"], (body, status, word, found, text)


def chats(c):
    base = {"model": "storyteller", "messages": STORY, "options": {"temperature": 0, "num_predict": 12}}
    found = c.lines("/api/chat", base)
    text = "".join(x["message"]["content"] for x in found)
    whole = c.one("/api/chat", {**base, "stream": False})
    assert whole["message"] == {"role": "assistant", "content": text} and whole["done_reason"] == "length" and whole["eval_count"] == 12 and whole["model"] == "storyteller", whole
    openai = c.one("/v1/chat/completions", {"messages": STORY, "temperature": 0, "max_tokens": 12})
    assert openai["choices"][0]["message"]["content"] == text and openai["usage"]["prompt_tokens"] == whole["prompt_eval_count"], (openai, whole)
    assert c.one("/api/chat", {**base, "model": "storyteller:latest", "stream": False})["model"] == "storyteller:latest"
    cut = c.one("/api/chat", {**base, "stream": False, "options": {**base["options"], "stop": [text[3:9]]}})
    assert (cut["message"]["content"], cut["done_reason"]) == (text[:3], "stop"), cut
    assert c.one("/api/chat", {**base, "stream": False, "options": {"temperature": 0, "num_predict": -1}})["done_reason"] == "stop"
    begun = c.one("/api/chat", {**base, "stream": False, "messages": STORY + [{"role": "assistant", "content": text[:4]}]})
    assert (text[:4] + begun["message"]["content"]).startswith(text[:12]), (text, begun)
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"], "additionalProperties": False}
    long = {**base, "stream": False, "options": {"temperature": 0, "num_predict": 60}}
    assert 1 <= json.loads(c.one("/api/chat", {**long, "format": schema})["message"]["content"])["age"] <= 9
    assert c.one("/api/chat", {**long, "format": "json", "options": {"temperature": 0, "num_predict": 4}})["message"]["content"].lstrip()[:1] == "{"
    logprobs = c.one("/api/chat", {**base, "stream": False, "logprobs": True, "top_logprobs": 2})["logprobs"]
    assert len(logprobs) == 12 and all(len(x["top_logprobs"]) == 2 and x["logprob"] <= 0 for x in logprobs), logprobs
    streamed = [x for line in c.lines("/api/chat", {**base, "logprobs": True}) for x in line.get("logprobs", [])]
    assert [x["token"] for x in streamed] == [x["token"] for x in logprobs], streamed
    turns = STORY + [{"role": "assistant", "content": "", "thinking": "I look.", "tool_calls": [{"function": {"name": "look", "arguments": {"at": "owl"}}}]},
                     {"role": "tool", "tool_name": "look", "content": "an owl"}, {"role": "user", "content": "So?", "images": []}]
    c.one("/api/chat", {**base, "stream": False, "messages": turns, "think": True})
    for keep in ("5m", "1h30m", -1, 0, 3.5, "-1", "300ms"):
        c.one("/api/chat", {**base, "stream": False, "keep_alive": keep, "options": {"num_predict": 1}})
    load = c.one("/api/chat", {"model": "storyteller", "messages": []})
    assert load["done_reason"] in ("load", "unload") and load["message"] == {"role": "assistant", "content": ""} and load["done"], load


def generates(c):
    base = {"model": "storyteller", "prompt": STORY[0]["content"], "options": {"temperature": 0, "num_predict": 12}}
    found = c.lines("/api/generate", base)
    text = "".join(x["response"] for x in found)
    chat = c.one("/api/chat", {"model": "storyteller", "messages": STORY, "stream": False, "options": base["options"]})
    assert text == chat["message"]["content"] and found[-1]["eval_count"] == 12, (text, chat)
    assert c.one("/api/generate", {**base, "stream": False})["response"] == text
    raw = c.one("/api/generate", {**base, "stream": False, "raw": True})
    plain = c.one("/v1/completions", {"prompt": base["prompt"], "temperature": 0, "max_tokens": 12})
    assert raw["response"] == plain["choices"][0]["text"] == "".join(x["response"] for x in c.lines("/api/generate", {**base, "raw": True})), (raw, plain)
    system = c.one("/api/generate", {**base, "stream": False, "system": "Be brief."})
    assert system["prompt_eval_count"] > found[-1]["prompt_eval_count"]
    assert c.one("/api/generate", {"model": "storyteller", "keep_alive": "5m"})["done_reason"] == "load"
    c.one("/api/generate", {**base, "stream": False, "template": "", "context": [], "suffix": "", "images": [], "think": False, "width": 0})


def options(c):
    chat = {"model": "storyteller", "messages": STORY, "stream": False}
    for name, value in {**OPTIONS, **HARMLESS}.items():
        c.one("/api/chat", {**chat, "options": {"num_predict": 2, name: value}})
    for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop", "repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty", "mirostat",
                 "mirostat_tau", "mirostat_eta", "num_predict"):
        c.refused("/api/chat", {**chat, "options": {name: {"a": 1}}}, 400, name)
    for name, value in (("tfs_z", 0.5), ("penalize_newline", False)):
        c.refused("/api/chat", {**chat, "options": {name: value}}, 400, "options.%s: not supported" % name)
    c.refused("/api/chat", {**chat, "options": [1]}, 400, "options: expected an object")


def errors(c, limit):
    chat = {"model": "storyteller", "messages": STORY}
    of = lambda m: {**chat, "messages": [m]}
    user = {"role": "user", "content": "x"}
    for body, word in ((of({**user, "images": ["aGk="]}), "images"), (of({"role": "developer", "content": "x"}), "messages[0].role"), (of({"role": "user", "content": 3}), "messages[0].content"),
                       (of({"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": "{}"}}]}), "tool_calls"), ({**chat, "messages": "x"}, "messages: expected a list"),
                       ({**chat, "format": "xml"}, "format: "), ({**chat, "format": {"type": 3}}, "schema"), ({**chat, "think": "much"}, "think: "), ({**chat, "tools": {}}, "tools: "),
                       ({**chat, "tools": [{}]}, "tools"), ({**chat, "keep_alive": "soon"}, "keep_alive: "), ({**chat, "keep_alive": "5x"}, "keep_alive: "), ({**chat, "stream": "yes"}, "stream: "),
                       ({**chat, "top_logprobs": 3}, "top_logprobs"), ({"messages": STORY}, "model is required"), (of({**user, "content": "frog " * 3 * limit}), "%d" % limit),
                       ({**chat, "width": 512}, "width: not supported")):
        c.refused("/api/chat", body, 400, word)
        c.refused("/api/chat", {**body, "stream": False}, 400, word) if "stream" not in body else None
    make = {"model": "storyteller", "prompt": "x"}
    for name, value in (("template", "{{ .Prompt }}"), ("context", [1, 2]), ("images", ["aGk="]), ("suffix", "y")):
        c.refused("/api/generate", {**make, name: value}, 400, "tokens for text between" if name == "suffix" else name)
    for name, value in (("system", "x"), ("think", True), ("suffix", "y")):
        c.refused("/api/generate", {**make, "raw": True, name: value}, 400, name + ": not supported beside raw")
    for path in ("/api/chat", "/api/generate", "/api/show"):
        c.refused(path, {**make, "messages": STORY, "model": "gpt-9"}, 404, "model 'gpt-9' not found")
    c.refused("/api/chat", None, 405, "expected POST", method="GET")
    c.refused("/api/nothing", None, 404, "no such path", method="GET")
    status, _, text = c.ask("/api/chat", method="POST")
    assert status == 400 and "error" in json.loads(text), text


def lists(c):
    (model,) = c.one("/api/tags")["models"]
    assert model["name"] == model["model"] == "storyteller:latest" and model["size"] > 10 ** 6 and re.fullmatch("[0-9a-f]{64}", model["digest"]), model
    assert set(model["details"]) == {"parent_model", "format", "family", "families", "parameter_size", "quantization_level"} and model["details"]["family"] == "llama", model
    (running,) = c.one("/api/ps")["models"]
    assert running["name"] == model["name"] and running["context_length"] == 1024 and running["digest"] == model["digest"] and running["expires_at"] > "2030", running
    for name in ("model", "name"):
        show = c.one("/api/show", {name: "storyteller"})
        assert show["model_info"]["general.architecture"] == "llama" and show["model_info"]["llama.context_length"] == 1024 and show["capabilities"] == ["completion"], show
        assert "<|start_header_id|>" in show["template"] and show["details"] == model["details"], show
    version = tuple(map(int, c.one("/api/version")["version"].split(".")))
    assert version >= (0, 6, 4), version


def embeds(minerva):
    with served.Server(minerva, "--embeddings") as s:
        c = Client(s)
        texts = ["an owl", "a tin cup"]
        want = [x["embedding"] for x in c.one("/v1/embeddings", {"input": texts})["data"]]
        near = lambda a, b: len(a) == len(b) and all(abs(x - y) < 5e-2 for x, y in zip(a, b))
        found = c.one("/api/embed", {"model": "storyteller:latest", "input": texts})
        assert all(map(near, found["embeddings"], want)) and found["model"] == "storyteller:latest" and found["prompt_eval_count"] > 2 and found["total_duration"] > 0, found
        assert near(c.one("/api/embeddings", {"model": "storyteller", "prompt": texts[0]})["embedding"], want[0])
        assert len(c.one("/api/embed", {"model": "storyteller", "input": texts[0], "dimensions": 8})["embeddings"][0]) == 8
        llama = c.one("/embedding", {"content": texts})
        assert [x["index"] for x in llama] == [0, 1] and all(near(x["embedding"][0], y) for x, y in zip(llama, want)), llama
        long = "frog " * 5000
        cut = c.one("/api/embed", {"model": "storyteller", "input": long})
        assert cut["prompt_eval_count"] == 1024, cut["prompt_eval_count"]
        c.refused("/api/embed", {"model": "storyteller", "input": long, "truncate": False}, 400, "1024")
        c.refused("/api/embed", {"model": "storyteller", "input": 3}, 400, "input")
        c.refused("/api/embeddings", {"model": "storyteller"}, 400, "prompt")
        assert "embedding" in c.one("/api/show", {"model": "storyteller"})["capabilities"]


def pulls(minerva):
    """From a hub of this machine; without --manage nobody may."""
    names = [n for n in os.listdir(served.MODEL) if os.path.isfile(os.path.join(served.MODEL, n))]
    files = {n: open(os.path.join(served.MODEL, n), "rb").read() for n in names}
    hub = loopback.Hub(files, [n for n in names if n.endswith(".safetensors")])
    with tempfile.TemporaryDirectory() as home:
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": home, "HF_TOKEN": hub.token, "HOME": home}
        with served.Server(minerva, env=env) as s:
            for method, path, body in (("POST", "/api/pull", {"model": "org/story"}), ("DELETE", "/api/delete", {"model": "org/story"}),
                                       ("POST", "/api/copy", {"source": "org/story", "destination": "story"})):
                Client(s).refused(path, body, 403, "--manage", method)
        with served.Server(minerva, "--manage", env=env) as s:
            c = Client(s)
            status, kind, text = c.ask("/api/pull", {"model": "org/story"})
            lines = [json.loads(x) for x in text.splitlines()]
            if "libcurl" in lines[-1].get("error", ""):
                return print("minerva was built without libcurl: pull is not tested")
            assert lines[0] == {"status": "pulling manifest"} and lines[-1] == {"status": "success"} and kind == "application/x-ndjson", text
            done = [x["completed"] for x in lines[1:-1]]
            assert done and done == sorted(done) and done[-1] == lines[1]["total"], text
            assert c.one("/api/pull", {"model": "org/story", "stream": False}) == {"status": "success"}
            assert "not found" in json.loads(c.ask("/api/pull", {"model": "org/nothing"})[2].splitlines()[-1])["error"]
            c.refused("/api/pull", {"model": "org/nothing", "stream": False}, 500, "not found")
            c.refused("/api/pull", {"model": "--offline"}, 400, "model: ")
            assert c.one("/api/copy", {"source": "org/story", "destination": "story"}) == {}
            assert c.one("/api/delete", {"model": "org/story"}, method="DELETE") == {}
            c.refused("/api/delete", {"model": "org/story"}, 404, "org/story", "DELETE")
            c.refused("/api/delete", {"model": "storyteller"}, 400, "keeps it", "DELETE")
            c.refused("/api/push", {"model": "x"}, 501, "makes and uploads")
    hub.close() if hasattr(hub, "close") else None


def calls(minerva):
    with tempfile.TemporaryDirectory() as folder, served.Server(minerva, model=served.model_with_calls(folder, "<tool_call></tool_call><think></think>"), env={}) as s:
        c = Client(s)
        (model,) = c.one("/api/tags")["models"]
        assert "tools" in c.one("/api/show", {"model": model["name"]})["capabilities"]
        # the form of an answer makes the model write a call: strict tools leave no other text
        body = {"model": model["name"], "messages": STORY, "tools": [TOOL], "options": {"temperature": 0, "num_predict": 200}}
        c.one("/api/chat", {**body, "stream": False})


def main(minerva):
    if not served.available(minerva):
        return print("minerva serve was built without libmicrohttpd: not tested")
    with served.Server(minerva) as s:
        c = Client(s)
        for run in (chats, generates, options, lists):
            run(c)
        errors(c, 1024)
    embeds(minerva)
    pulls(minerva)
    calls(minerva)


if __name__ == "__main__":
    main(*sys.argv[1:])
