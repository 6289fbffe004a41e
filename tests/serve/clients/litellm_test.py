#!/usr/bin/env python3
"""litellm_test.py MINERVA FOLDER: LiteLLM's proxy in front of `minerva serve`, by OpenAI's interface and by Anthropic's, asked with the clients of both: chat, Responses, Messages,
streams, tools, thinking, errors, counts; and its function for rerankers, in the forms of Jina, Cohere and vLLM. The model says each turn (scripted.py). Packages are installed below FOLDER once, from PyPI, pinned by hash (litellm.txt: those of
LiteLLM's extra `proxy` that it imports); without a network the test is skipped with a line."""
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import pypi  # noqa: E402
import scripted  # noqa: E402
import served  # noqa: E402

LIMIT = 900  # a hang, not a time that is measured: the proxy imports for long
KEY = "sk-" + "0123456789abcdef" * 2
ASK = [{"role": "user", "content": "What is in the tree?"}]
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
ANSWER, THOUGHT, END = "Nothing to do.", "I think.", "It is an owl."


class Proxy:
    """LiteLLM's proxy with the models `openai` and `anthropic`, both of the server at url. For some names of Anthropic alone it passes thinking on."""

    def __init__(self, packages, folder, url):
        self.packages, self.folder = os.path.abspath(packages), folder
        models = {"openai": {"model": "openai/m", "api_base": url + "/v1", "api_key": "none"}, "anthropic": {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": "none"}}
        with open(os.path.join(folder, "config.yaml"), "w") as f:  # JSON is YAML
            json.dump({"model_list": [{"model_name": k, "litellm_params": v} for k, v in models.items()], "litellm_settings": {"telemetry": False, "num_retries": 0}}, f)

    def __enter__(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = "http://127.0.0.1:%d" % port
        env = {**served.environment(), "PYTHONPATH": self.packages, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY, "HOME": self.folder, "DISABLE_ADMIN_UI": "True"}
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.process = subprocess.Popen([sys.executable, "-c", "from litellm import run_server; run_server()", "--config", os.path.join(self.folder, "config.yaml"), "--host", "127.0.0.1",
                                         "--port", str(port), "--telemetry", "False"], env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + LIMIT
        try:
            while not self.lives():
                assert self.process.poll() is None and time.monotonic() < end, "the proxy does not start: " + self.text()
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def lives(self):
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.url + "/health/liveliness", timeout=30).close()
            return True
        except OSError:
            return False

    def text(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("%s was expected" % kind.__name__)


def chat(openai, client, model):
    ask = dict(model=model, messages=ASK, max_tokens=400)
    create = lambda **more: client.chat.completions.create(**{**ask, **more})
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    # LiteLLM asks Anthropic's interface for thinking where a request has an effort
    thinks = {"reasoning_effort": "low"} if model == "anthropic" else {}
    m = create(**thinks, max_tokens=4000).choices[0].message
    assert (m.content, m.reasoning_content) == (ANSWER, THOUGHT), m
    pieces = [x.choices[0].delta for x in create(stream=True, max_tokens=4000, **thinks) if x.choices]
    assert "".join(d.content or "" for d in pieces) == ANSWER and "".join(getattr(d, "reasoning_content", None) or "" for d in pieces) == THOUGHT, pieces
    choice = create(tools=tools).choices[0]
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name, json.loads(call.function.arguments)) == ("tool_calls", "look", {"at": "tree"}), choice
    turns = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}, {"role": "tool", "tool_call_id": call.id, "content": "an owl"}]
    assert create(tools=tools, messages=turns).choices[0].message.content == END
    assert "temperature" in raises(openai.BadRequestError, lambda: create(temperature=-1))
    raises(openai.BadRequestError, lambda: create(messages=[{"role": "user", "content": "frog " * 100000}]))


def responses(openai, client):
    ask = dict(model="openai", input=ASK, max_output_tokens=400)
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    r = client.responses.create(**ask)
    assert r.output_text == ANSWER and r.output[0].type == "reasoning" and r.output[0].content[0].text == THOUGHT, r
    events = list(client.responses.create(**ask, stream=True))
    assert events[-1].type == "response.completed" and "".join(e.delta for e in events if e.type == "response.output_text.delta") == ANSWER, events
    call = client.responses.create(**ask, tools=tools).output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "look", {"at": "tree"}), call
    items = [*ASK, {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}, {"type": "function_call_output", "call_id": call.call_id, "output": "an owl"}]
    assert client.responses.create(**{**ask, "input": items}, tools=tools).output_text == END
    assert "temperature" in raises(openai.BadRequestError, lambda: client.responses.create(**ask, temperature=-1))


def messages(anthropic, client):
    ask = dict(model="anthropic", messages=ASK, max_tokens=4000)
    tools = [{"name": "look", "input_schema": SCHEMA}]
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    m = client.messages.create(**ask, **thinks)
    assert [(b.type, getattr(b, b.type)) for b in m.content] == [("thinking", THOUGHT), ("text", ANSWER)] and m.stop_reason == "end_turn", m
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == ANSWER
    m = client.messages.create(**ask, tools=tools)
    call = m.content[-1]
    assert m.stop_reason == "tool_use" and (call.type, call.name, call.input) == ("tool_use", "look", {"at": "tree"}), m
    turns = [*ASK, {"role": "assistant", "content": [call.model_dump(include={"type", "id", "name", "input"})]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "an owl"}]}]
    assert client.messages.create(**{**ask, "messages": turns}, tools=tools).content[0].text == END
    assert client.messages.count_tokens(model="anthropic", messages=ASK).input_tokens > 0
    raises(anthropic.APIStatusError, lambda: client.messages.create(**{**ask, "messages": [{"role": "user", "content": "frog " * 100000}]}))


def rerank(minerva, name):
    """Scores of a fixture, by what LiteLLM does for servers of other makers, are those that Transformers computed."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    fixture = os.path.join(HERE, "..", "..", "data", "fixtures", name)
    with open(os.path.join(fixture, "golden.json"), encoding="utf-8") as f:
        g = json.load(f)
    want = [1 / (1 + math.exp(-case["logit"])) for case in g["cases"]]
    best = sorted(range(len(want)), key=lambda i: -want[i])[:3]
    with served.Server(minerva, "--device", "reference", "--alias", "*", model=fixture) as s:
        for maker, path in ("jina_ai", "/v1/rerank"), ("cohere", "/v2/rerank"), ("hosted_vllm", ""):
            found = litellm.rerank(model=maker + "/m", query=g["query"], documents=[case["text"] for case in g["cases"]], top_n=3, api_base=s.url + path, api_key="none").results
            assert [x["index"] for x in found] == best, (maker, found, want)
            assert all(abs(x["relevance_score"] - want[x["index"]]) < 1e-5 for x in found), (maker, found, want)


def main():
    minerva, folder = sys.argv[1:3]
    if not served.available(minerva):
        print("this minerva was built without its server")
        sys.exit(77)
    os.makedirs(folder, exist_ok=True)
    packages = pypi.install(folder, os.path.join(HERE, "litellm.txt"), "LiteLLM's proxy", 900)
    if not packages:
        sys.exit(77)
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "LITELLM_")):
            del os.environ[name]
    sys.path.insert(0, packages)
    import anthropic
    import openai
    for name in "bert-rank", "qwen3-reranker":
        print("rerank, " + name, flush=True)
        rerank(minerva, name)
    with tempfile.TemporaryDirectory() as model, tempfile.TemporaryDirectory() as own:
        scripted.save(model, ["I look." + scripted.call("look", at="tree"), END], "<think>%s</think>%s" % (THOUGHT, ANSWER))
        with served.Server(minerva, "--device", "cpu", "--alias", "*", model=model) as s, Proxy(packages, own, s.url) as proxy:
            with openai.OpenAI(base_url=proxy.url + "/v1", api_key=KEY, max_retries=0, timeout=LIMIT) as client:
                for name in "openai", "anthropic":
                    print("chat, " + name, flush=True)
                    chat(openai, client, name)
                print("responses", flush=True)
                responses(openai, client)
            print("messages", flush=True)
            with anthropic.Anthropic(base_url=proxy.url, api_key=KEY, max_retries=0, timeout=LIMIT) as client:
                messages(anthropic, client)


if __name__ == "__main__":
    main()
