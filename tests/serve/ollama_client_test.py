#!/usr/bin/env python3
"""Ollama's client against `minerva serve`, as its users call it: ollama_client_test.py MINERVA FOLDER.

The client is installed below FOLDER once, from PyPI, pinned by hash (clients/sdks.txt); without a network the test is skipped with a line."""
import os
import sys
import tempfile

import pypi
import served

HERE = os.path.dirname(os.path.abspath(__file__))
STORY = [{"role": "user", "content": "Tell me a story."}]
EXACT = "--device", "cpu", "--precision", "exact"  # in the other classes the text depends on how many rows are computed at once


def look(at: str) -> str:
    """
    Looks.

    Args:
      at: what to look at
    """
    return at


def raises(kind, call, status, word):
    try:
        call()
    except kind as error:
        assert error.status_code == status and word in error.error and "{" not in error.error[:1], (error.status_code, error.error)
        return
    raise AssertionError("%s was expected" % kind.__name__)


def chats(ollama, client):
    settings = dict(model="storyteller", messages=STORY, options={"temperature": 0, "num_predict": 16})
    whole = client.chat(**settings)
    assert whole.done and whole.done_reason == "length" and whole.eval_count == 16 and whole.message.role == "assistant" and whole.total_duration > 0, whole
    parts = list(client.chat(**settings, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content and [p.done for p in parts] == [False] * (len(parts) - 1) + [True], parts
    made = client.generate(model="storyteller", prompt=STORY[0]["content"], options=settings["options"])
    assert made.response == whole.message.content, made
    assert "".join(p.response for p in client.generate(model="storyteller", prompt="Once upon", raw=True, stream=True, options=settings["options"]))
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"], "additionalProperties": False}
    assert "age" in client.chat(model="storyteller", messages=STORY, format=schema, options={"num_predict": 60}).message.content
    options = ollama.Options(temperature=0.5, top_k=5, seed=3, num_ctx=2048, repeat_penalty=1.1, stop=["."], num_predict=8)
    assert client.chat(model="storyteller", messages=STORY, options=options, keep_alive="5m").done
    assert client.chat(model="storyteller", messages=STORY, logprobs=True, top_logprobs=2, options={"num_predict": 2}).logprobs[0].top_logprobs[1].logprob <= 0
    assert client.generate(model="storyteller").done_reason == "load"
    wrong = ollama.ResponseError
    raises(wrong, lambda: client.chat(model="other", messages=STORY), 404, "not found")
    raises(wrong, lambda: list(client.chat(model="other", messages=STORY, stream=True)), 404, "not found")
    raises(wrong, lambda: client.chat(model="storyteller", messages=[{**STORY[0], "images": [b"x"]}]), 400, "images")
    raises(wrong, lambda: client.chat(model="storyteller", messages=[{"role": "user", "content": "frog " * 3000}]), 400, "1024")
    raises(wrong, lambda: client.pull("org/repo"), 403, "--manage")
    raises(wrong, lambda: client.delete("org/repo"), 403, "--manage")


def lists(client):
    (model,) = client.list().models
    assert model.model == "storyteller:latest" and model.size > 10 ** 6 and model.details.family == "llama" and model.modified_at.year > 2000, model
    (running,) = client.ps().models
    assert running.model == model.model and running.context_length == 1024 and running.digest == model.digest, running
    show = client.show("storyteller")
    assert show.modelinfo["llama.context_length"] == 1024 and "completion" in show.capabilities and "header_id" in show.template and show.details.family == "llama", show


def embeds(client):
    one = client.embed(model="storyteller", input="an owl")
    two = client.embed(model="storyteller", input=["an owl", "a cup"], dimensions=8)
    assert len(one.embeddings) == 1 and [len(x) for x in two.embeddings] == [8, 8], two
    assert len(client.embeddings(model="storyteller", prompt="an owl").embedding) == len(one.embeddings[0])


def calls(ollama, minerva):
    """A model that thinks and calls: its prompt ends inside of a call, which the model writes on."""
    tail = '{%- if add_generation_prompt %}<tool_call>{"name": "look", "arguments": {"at": "{%- endif %}'
    with tempfile.TemporaryDirectory() as folder:
        model = served.model_with_calls(folder, "<tool_call></tool_call>", tail=tail)
        with served.Server(minerva, *EXACT, model=model) as server:
            client = ollama.Client(host=server.url)
            name = client.list().models[0].model
            assert "tools" in client.show(name).capabilities
            settings = dict(model=name, messages=STORY, tools=[look], options={"temperature": 0, "num_predict": 60})
            found = client.chat(**settings)
            assert found.done, found
            turns = [*STORY, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {"at": "owl"}}}]}, {"role": "tool", "tool_name": "look", "content": "an owl"}]
            assert client.chat(**{**settings, "messages": turns}).done
    with tempfile.TemporaryDirectory() as folder, served.Server(minerva, *EXACT, model=served.model_with_calls(folder, "", "</think>", "<think>\n")) as server:
        client = ollama.Client(host=server.url)
        name = client.list().models[0].model
        assert "thinking" in client.show(name).capabilities
        settings = dict(model=name, messages=STORY, options={"temperature": 0, "num_predict": 12})
        thinks = client.chat(**settings, think=True)
        assert thinks.message.thinking and not thinks.message.content, thinks
        assert "".join(p.message.thinking or "" for p in client.chat(**settings, think=True, stream=True)) == thinks.message.thinking
        assert client.generate(model=name, prompt=STORY[0]["content"], think=True, options=settings["options"]).thinking == thinks.message.thinking
        assert not client.chat(**settings, think=False).message.thinking


def main():
    minerva, folder = sys.argv[1], sys.argv[2]
    if not served.available(minerva):
        print("this minerva was built without its server")
        sys.exit(77)
    os.makedirs(folder, exist_ok=True)
    target = pypi.install(folder, os.path.join(HERE, "clients", "sdks.txt"), "Ollama's client")
    if not target:
        sys.exit(77)
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("OLLAMA_"):
            del os.environ[name]
    sys.path.insert(0, target)
    import ollama
    with served.Server(minerva, *EXACT, "--embeddings") as server:
        client = ollama.Client(host=server.url)
        chats(ollama, client)
        lists(client)
        embeds(client)
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("right\n")
        keys.flush()
        with served.Server(minerva, "--device", "cpu", "--api-key", keys.name, key="right") as server:
            settings = dict(model="storyteller", messages=STORY, options={"num_predict": 2})
            assert ollama.Client(host=server.url, headers={"Authorization": "Bearer right"}).chat(**settings).done
            raises(ollama.ResponseError, lambda: ollama.Client(host=server.url).chat(**settings), 401, "key")
    calls(ollama, minerva)


if __name__ == "__main__":
    main()
