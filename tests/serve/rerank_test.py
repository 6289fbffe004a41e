#!/usr/bin/env python3
"""Scores of texts from outside: `rerank_test.py MINERVA`. The forms of Jina, Cohere, llama-server, Text Embeddings Inference and vLLM, against the scores that
Transformers computed for the fixtures, and errors in each form."""
import http.client
import json
import math
import os
import sys

import served

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "fixtures")


class Client:
    def __init__(self, server):
        self.server = server

    def ask(self, path, body):
        c = http.client.HTTPConnection(self.server.url.split("//")[1], timeout=served.LIMIT)
        c.request("POST", path, body if isinstance(body, str) else json.dumps(body))
        r = c.getresponse()
        try:
            return r.status, json.loads(r.read())
        finally:
            c.close()

    def one(self, path, body):
        status, found = self.ask(path, body)
        assert status == 200, (status, found)
        return found


def fixture(name):
    with open(os.path.join(FIXTURES, name, "golden.json"), encoding="utf-8") as f:
        return json.load(f)


def near(found, want):
    assert abs(found - want) < 1e-4, (found, want)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def forms(c, name):
    g = fixture(name)
    query, texts, logits = g["query"], [x["text"] for x in g["cases"]], [x["logit"] for x in g["cases"]]
    order = sorted(range(len(texts)), key=lambda i: -logits[i])
    n_ids = sum(len(x["ids"]) for x in g["cases"])
    for path in "/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking":
        whole = c.one(path, {"model": name, "query": query, "documents": texts})
        assert [x["index"] for x in whole["results"]] == order and set(whole["results"][0]) == {"index", "relevance_score"}, whole
        for x in whole["results"]:
            near(x["relevance_score"], sigmoid(logits[x["index"]]))
        assert whole["model"] == name and whole["object"] == "list" and whole["id"] and whole["usage"] == {"prompt_tokens": n_ids, "total_tokens": n_ids}, whole
    best = c.one("/v1/rerank", {"query": {"text": query}, "documents": [{"text": t, "title": "x"} for t in texts], "top_n": 2, "return_documents": True})["results"]
    assert [(x["index"], x["document"]) for x in best] == [(i, {"text": texts[i]}) for i in order[:2]], best
    assert len(c.one("/v1/rerank", {"query": query, "documents": texts[:1], "top_n": 9, "return_documents": None, "top_k": None})["results"]) == 1
    for more in {"raw_scores": True}, {"use_activation": False}, {"activation": False}:
        for x in c.one("/v1/rerank", {"query": query, "documents": texts, **more})["results"]:
            near(x["relevance_score"], logits[x["index"]])
    bare = c.one("/rerank", {"query": query, "texts": texts, "return_text": True})
    assert [(x["index"], x["text"]) for x in bare] == [(i, texts[i]) for i in order], bare
    near(bare[0]["score"], sigmoid(logits[order[0]]))
    assert set(c.one("/rerank", {"query": query, "texts": texts[:1]})[0]) == {"index", "score"}
    for path in "/v1/score", "/score":
        for body in ({"text_1": query, "text_2": texts}, {"text_1": [query] * len(texts), "text_2": texts}, {"queries": query, "documents": texts}):
            whole = c.one(path, body)
            assert [x["index"] for x in whole["data"]] == list(range(len(texts))) and whole["object"] == "list" and whole["data"][0]["object"] == "score", whole
            for x, logit in zip(whole["data"], logits):
                near(x["score"], sigmoid(logit))
            assert whole["usage"]["prompt_tokens"] == n_ids == whole["usage"]["total_tokens"] and whole["id"] and whole["created"] > 0, whole
    near(c.one("/v1/score", {"text_1": query, "text_2": texts[0], "use_activation": False})["data"][0]["score"], logits[0])


def error_of(path, found):
    """Message and form of an error: Cohere's, llama-server's or OpenAI's."""
    if path == "/v2/rerank":
        assert set(found) == {"id", "message"}, found
        return found["message"]
    llama = path in ("/rerank", "/reranking")
    long = "96" in found["error"]["message"]
    assert found["error"]["type"] == ("exceed_context_size_error" if llama and long else "invalid_request_error"), found
    assert (found["error"]["code"] == 400) if llama else ("param" in found["error"]), found
    return found["error"]["message"]


def errors(c):
    docs = ["a"]
    for path in "/v1/rerank", "/v2/rerank", "/rerank", "/reranking":
        for body, word in (({}, "query"), ({"query": 3, "documents": docs}, "query"), ({"query": "a"}, "documents"), ({"query": "a", "documents": []}, "documents"),
                           ({"query": "a", "documents": "b"}, "documents"), ({"query": "a", "documents": ["b", 3]}, "documents"),
                           ({"query": "a", "documents": [{"title": "b"}]}, "text"), ({"query": "a", "documents": docs, "top_n": "2"}, "top_n"),
                           ({"query": "a", "documents": docs, "return_documents": 1}, "return_documents"), ({"query": "a", "documents": docs, "top_n": -1}, "top_n"),
                           ({"query": "a", "documents": docs, "max_tokens_per_doc": 9}, "max_tokens_per_doc"), ({"query": "a", "documents": docs * 2049}, "2048"),
                           ({"query": "a", "documents": docs, "instruction": "b"}, "instruction"), ({"query": "a", "documents": ["the cat " * 60]}, "96"), ("{", "JSON")):
            status, found = c.ask(path, body)
            assert status == 400 and word in error_of(path, found), (path, body if len(str(body)) < 300 else "", status, found)
    for body, word in (({"text_1": "a"}, "text_2"), ({"text_2": "a"}, "text_1"), ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"), ({"text_1": [], "text_2": "a"}, "text_1"),
                       ({"text_1": "a", "text_2": [7]}, "text_2"), ({"text_1": "a", "text_2": "b", "truncate_prompt_tokens": 7}, "truncate_prompt_tokens")):
        status, found = c.ask("/v1/score", body)
        assert status == 400 and word in error_of("/v1/score", found), (body, status, found)


def main():
    minerva = sys.argv[1]
    if not served.available(minerva):
        return
    exact = ("--precision", "exact", "--device", "cpu_simd")
    for name in "bert-rank", "xlm-roberta-rank", "qwen3-reranker":
        with served.Server(minerva, *exact, model=os.path.join(FIXTURES, name)) as s:
            forms(Client(s), name)
            if name == "bert-rank":
                errors(Client(s))
            if name == "qwen3-reranker":
                g = fixture(name)
                asked, plain = (Client(s).one("/v1/score", {"text_1": g["query"], "text_2": "A", **more})["data"][0]["score"] for more in ({"instruction": "home"}, {}))
                assert asked != plain
    with served.Server(minerva) as s:
        for path in "/v1/rerank", "/v2/rerank", "/rerank":
            status, found = Client(s).ask(path, {"query": "a", "documents": ["b"]})
            assert status == 400 and "reranker" in error_of(path, found), (path, status, found)
    print("rerank: ok")


main()
