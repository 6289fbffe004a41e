#!/usr/bin/env python3
"""llama-server's own paths from outside: `llama_test.py MINERVA`."""
import http.client
import json
import sys
import tempfile

import served

STORY = [{"role": "user", "content": "Tell me a story."}]


class Client:
    def __init__(self, server):
        self.server = server

    def ask(self, path, body=None):
        c = http.client.HTTPConnection(self.server.url.split("//")[1], timeout=served.LIMIT)
        c.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        r = c.getresponse()
        try:
            return r.status, r.read().decode()
        finally:
            c.close()

    def one(self, path, body=None):
        status, text = self.ask(path, body)
        assert status == 200, (status, text)
        return json.loads(text)

    def events(self, body, path="/completion"):
        status, text = self.ask(path, {**body, "stream": True})
        assert status == 200 and text.endswith("\n\n"), (status, text)
        return [json.loads(x[6:]) for x in text.split("\n\n") if x.startswith("data: ")]

    def refused(self, path, body, status, kind, word):
        found, text = self.ask(path, body)
        error = json.loads(text)["error"]
        assert found == status == error["code"] and error["type"] == kind and word in error["message"], (body, word, found, text)


def completions(c):
    base = {"prompt": "Once upon a time", "n_predict": 12, "temperature": 0}
    whole = c.one("/completion", base)
    plain = c.one("/v1/completions", {"prompt": base["prompt"], "max_tokens": 12, "temperature": 0})
    assert whole["content"] == plain["choices"][0]["text"] and whole["tokens"] == [] and whole["stop"] and whole["stop_type"] == "limit" and not whole["truncated"], whole
    assert whole["tokens_predicted"] == 12 == whole["timings"]["predicted_n"] and whole["timings"]["prompt_n"] + whole["timings"]["cache_n"] == whole["tokens_evaluated"], whole
    settings = whole["generation_settings"]
    assert settings["n_predict"] == 12 and settings["temperature"] == 0 and settings["repeat_penalty"] == 1 and settings["samplers"][0] == "penalties" and not settings["stream"], settings
    assert whole["prompt"].endswith("Once upon a time") and c.one("/completions", base)["content"] == whole["content"]
    events = c.events({**base, "timings_per_token": True})
    assert "".join(x["content"] for x in events) == whole["content"] and [x["stop"] for x in events] == [False] * (len(events) - 1) + [True], events
    ids = [i for x in events for i in x["tokens"]]
    assert ids == c.one("/completion", {**base, "return_tokens": True})["tokens"] and len(ids) == 12 and "timings" in events[0], ids
    # prompts of every form
    tokens = c.one("/tokenize", {"content": base["prompt"], "add_special": True})["tokens"]
    assert c.one("/detokenize", {"tokens": tokens[1:]})["content"] == base["prompt"]
    many = c.one("/completion", {**base, "prompt": [base["prompt"], tokens, {"prompt_string": base["prompt"]}, [*tokens[:2], c.one("/detokenize", {"tokens": tokens[2:]})["content"]]]})
    assert [x["content"] for x in many] == [whole["content"]] * 4 and [x["index"] for x in many] == [0, 1, 2, 3], many
    assert {x["index"] for x in c.events({**base, "prompt": [base["prompt"], "The sun"]})} == {0, 1}
    # ends
    word = whole["content"][4:8]
    cut = c.one("/completion", {**base, "stop": [word]})
    assert (cut["content"], cut["stop_type"], cut["stopping_word"]) == (whole["content"][:whole["content"].index(word)], "word", word), cut
    full = c.one("/completion", {"prompt": base["prompt"], "ignore_eos": True, "temperature": 0})
    assert full["truncated"] and full["stop_type"] == "limit" and full["tokens_cached"] == 1024 and full["generation_settings"]["logit_bias"][0]["bias"] is None, full["timings"]
    end = c.one("/completion", {"prompt": base["prompt"], "temperature": 0})
    assert end["stop_type"] == "eos" and not end["truncated"] and end["has_new_line"] == ("\n" in end["content"]), end
    # parts of answers
    fields = c.one("/completion", {**base, "response_fields": ["content", "generation_settings/n_predict", "nothing"]})
    assert fields == {"content": whole["content"], "generation_settings/n_predict": 12}, fields
    probable = c.one("/completion", {**base, "n_probs": 3})["completion_probabilities"]
    assert len(probable) == 12 and all(x["id"] == x["top_logprobs"][0]["id"] and len(x["top_logprobs"]) == 3 and x["logprob"] <= 0 for x in probable), probable
    first = whole["content"].split()[0].strip(",.")
    for bias in ([[" " + first, False]], {" " + first: -100}):
        assert not c.one("/completion", {**base, "n_predict": 1, "logit_bias": bias})["content"].startswith(" " + first), bias


def others(c):
    props = c.one("/props")
    assert props["total_slots"] > 0 and props["model_alias"] == "storyteller" and props["default_generation_settings"]["n_ctx"] == 1024 and "<|start_header_id|>" in props["chat_template"], props
    assert props["bos_token"] == "<|begin_of_text|>" and "params" in props["default_generation_settings"], props
    slots = c.one("/slots")
    assert len(slots) == props["total_slots"] and all(x["n_ctx"] == 1024 and not x["is_processing"] for x in slots), slots
    prompt = c.one("/apply-template", {"messages": STORY})["prompt"]
    assert c.one("/tokenize", {"messages": STORY})["tokens"] == c.one("/tokenize", {"content": prompt})["tokens"], prompt
    counted = [c.one(path, {"messages": STORY})["input_tokens"] for path in ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens")]
    assert counted == 2 * [len(c.one("/tokenize", {"messages": STORY})["tokens"])], counted
    pieces = c.one("/tokenize", {"content": "a \u5abd cat", "with_pieces": True})["tokens"]
    joined = b"".join(bytes(x["piece"]) if isinstance(x["piece"], list) else x["piece"].encode() for x in pieces)
    assert joined.decode() == "a \u5abd cat", pieces


def errors(c):
    wrong = "invalid_request_error"
    for body, word in (({"prompt": 3}, "prompt"), ({"prompt": [[1, True]]}, "token ids"), ({"prompt": {"prompt_string": "x", "multimodal_data": ["x"]}}, "text only"), ({}, "prompt"),
                       ({"prompt": "x", "response_fields": "x"}, "response_fields"), ({"prompt": "x", "lora": [{"id": 0}]}, "lora"), ({"prompt": "x", "logit_bias": [["x"]]}, "logit_bias"),
                       ({"prompt": "x", "temperature": "warm"}, "temperature"), ({"prompt": "x", "grammar": "x"}, "x")):
        c.refused("/completion", body, 400, wrong, word)
        c.refused("/completion", {**body, "stream": True}, 400, wrong, word)
    c.refused("/completion", {"prompt": "frog " * 3000}, 400, "exceed_context_size_error", "exceeds the available context size (1024 tokens)")
    c.refused("/infill", {"input_prefix": "a", "input_suffix": "b"}, 400, wrong, "tokens for text between")
    c.refused("/infill", {"input_prefix": "a"}, 400, wrong, "input_suffix")
    c.refused("/props", {}, 403, "permission_error", "--manage")
    c.refused("/embedding", {"content": "x"}, 400, wrong, "--embeddings")
    c.refused("/completion", {"prompt": "x", "model": "gpt-9"}, 404, "not_found_error", "gpt-9")


def infill(minerva):
    with tempfile.TemporaryDirectory() as folder:
        first = served.model_with_tokens(folder, served.FIM)
        with served.Server(minerva, "--manage", model=folder) as s:
            c = Client(s)
            ids = lambda text: c.one("/tokenize", {"content": text})["tokens"]
            body = {"input_prefix": "A cat ", "prompt": "and", "input_suffix": " a dog.", "n_predict": 4, "temperature": 0}
            found = c.one("/infill", body)
            assert [x["stop"] for x in c.events(body, "/infill")][-1] is True
            want = c.one("/v1/completions", {"prompt": "A cat and", "suffix": " a dog.", "max_tokens": 4, "temperature": 0, "return_token_ids": True})["choices"][0]
            assert found["content"] == want["text"] and first in want["prompt_token_ids"] and want["prompt_token_ids"][-1] == first + 2, (found, want)
            files = c.one("/infill", {**body, "input_extra": [{"filename": "a.txt", "text": "An owl."}]})
            assert files["tokens_evaluated"] > found["tokens_evaluated"] + len(ids("An owl.")), files
            c.refused("/infill", {**body, "input_extra": [{"filename": 3, "text": "x"}]}, 400, "invalid_request_error", "input_extra[0]")
            assert "insert" in c.one("/api/show", {"model": c.one("/api/tags")["models"][0]["name"]})["capabilities"]
            assert c.one("/api/generate", {"model": "x", "prompt": "A cat and", "suffix": " a dog.", "stream": False, "options": {"num_predict": 4, "temperature": 0}} | {
                "model": c.one("/api/tags")["models"][0]["name"]})["response"] == want["text"]
            assert c.one("/props", {}) == {"success": True}
            c.refused("/props", {"chat_template": "x"}, 400, "invalid_request_error", "chat_template")


def main(minerva):
    if not served.available(minerva):
        return print("minerva serve was built without libmicrohttpd: not tested")
    with served.Server(minerva) as s:
        for run in (completions, others, errors):
            run(Client(s))
    infill(minerva)


if __name__ == "__main__":
    main(*sys.argv[1:])
