#!/usr/bin/env python3
"""minerva.llama_cpp as programs call llama-cpp-python, on the demo model; what it lacks is refused by name."""
import json
import sys

import minerva
import minerva.llama_cpp

PROMPT = "Once upon a time"
USER = [{"role": "user", "content": "Tell me a story."}]


def refused(call, word):
    try:
        call()
    except (minerva.Unsupported, minerva.Invalid, TypeError) as e:
        assert word in str(e), (word, str(e))
    else:
        raise AssertionError("%s was not refused" % word)


def test_install():
    """`import llama_cpp` is the facade after install() alone."""
    assert "llama_cpp" not in sys.modules
    minerva.llama_cpp.install()
    import llama_cpp
    assert llama_cpp is minerva.llama_cpp and llama_cpp.Llama and llama_cpp.LlamaGrammar


def test_completion(llama):
    """A text completion, its stream, echo, logprobs, stop strings."""
    r = llama(PROMPT, max_tokens=8, temperature=0)
    assert (r["object"], r["choices"][0]["finish_reason"], r["usage"]["completion_tokens"]) == ("text_completion", "length", 8), r
    text = r["choices"][0]["text"]
    assert llama.create_completion(PROMPT, max_tokens=8, temperature=0, echo=True)["choices"][0]["text"] == PROMPT + text
    pieces = list(llama(PROMPT, max_tokens=8, temperature=0, stream=True))
    assert "".join(p["choices"][0]["text"] for p in pieces) == text and pieces[-1]["choices"][0]["finish_reason"] == "length"
    scores = llama(PROMPT, max_tokens=8, temperature=0, logprobs=2)["choices"][0]["logprobs"]
    assert "".join(scores["tokens"]) == text and all(len(t) == 2 for t in scores["top_logprobs"]) and scores["text_offset"][0] == 0
    assert llama(PROMPT, max_tokens=8, temperature=0, stop=[text[5:9]])["choices"][0]["text"] == text[:5]
    ids = llama.tokenize(PROMPT.encode())
    assert llama(ids, max_tokens=8, temperature=0)["choices"][0]["text"] == text
    assert llama(PROMPT, temperature=1, seed=3)["choices"] == llama(PROMPT, temperature=1, seed=3)["choices"]
    follow = llama.generate(ids, temperature=0)
    assert llama.detokenize([next(follow) for _ in range(3)]).decode().strip() in text


def test_chat(llama):
    """A chat, its stream, logprobs, a form of the answer."""
    r = llama.create_chat_completion(messages=USER, max_tokens=8, temperature=0)
    text = r["choices"][0]["message"]["content"]
    assert r["object"] == "chat.completion" and text and r["usage"]["total_tokens"] == r["usage"]["prompt_tokens"] + 8
    pieces = list(llama.create_chat_completion(messages=USER, max_tokens=8, temperature=0, stream=True))
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in pieces) == text
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"
    content = llama.create_chat_completion(messages=USER, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert len(content) == 4 and all(len(t["top_logprobs"]) == 3 for t in content)
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}
    said = llama.create_chat_completion(messages=USER, response_format={"type": "json_object", "schema": schema}, max_tokens=100)
    assert 0 <= json.loads(said["choices"][0]["message"]["content"])["a"] <= 9
    grammar = minerva.llama_cpp.LlamaGrammar.from_string('root ::= "yes" | "no"')
    assert llama.create_chat_completion(messages=USER, grammar=grammar)["choices"][0]["message"]["content"] in ("yes", "no")


def test_embeddings(llama):
    """Of one text and of several; counts; cut to the context."""
    r = llama.create_embedding(["an owl", "a fox"])
    assert [d["index"] for d in r["data"]] == [0, 1] and all(len(d["embedding"]) == llama.n_embd() for d in r["data"])
    assert all(abs(a - b) < 1e-2 + 1e-2 * abs(b) for a, b in zip(llama.embed("an owl"), r["data"][0]["embedding"]))
    assert abs(sum(x * x for x in llama.embed("an owl", normalize=True)) - 1) < 1e-4
    assert len(llama.embed("owl " * 2000)) == llama.n_embd()


def test_rest(llama):
    """Tokens, names, what is refused."""
    assert llama.detokenize(llama.tokenize(b"an owl")) == b"an owl"
    assert llama.n_ctx() == llama.context_params.n_ctx == 256 and llama.token_bos() == llama.tokenize(b"")[0]
    assert llama.model.is_end(llama.token_eos()) and llama.n_vocab() > 1000 and llama.metadata
    llama.set_cache(minerva.llama_cpp.LlamaRAMCache())
    llama.reset()
    refused(lambda: minerva.llama_cpp.Llama(None, lora_path="a.gguf"), "lora_path")
    refused(lambda: minerva.llama_cpp.Llama(None, rope_freq_base=5.0), "rope_freq_base")
    refused(lambda: llama(PROMPT, suffix="end"), "suffix")
    refused(lambda: llama(PROMPT, logits_processor=[len]), "logits_processor")
    refused(lambda: llama(PROMPT, mirostat_mode=1), "mirostat_mode")
    refused(lambda: llama(PROMPT, temprature=1), "temprature")
    refused(lambda: llama.create_chat_completion(USER, response_format={"type": "xml"}), "xml")
    assert llama(PROMPT, mirostat_mode=2, mirostat_tau=4.0, max_tokens=2)["usage"]["completion_tokens"] == 2


def test_pretrained():
    """A name of Minerva; a name that is nowhere is an error that says so."""
    try:
        minerva.llama_cpp.Llama.from_pretrained("/nowhere/there.gguf")
    except minerva.Error as e:
        assert "/nowhere/there.gguf" in str(e), e
    else:
        raise AssertionError("found")


def main():
    test_install()
    with minerva.llama_cpp.Llama(None, n_ctx=256, n_gpu_layers=0, rope_freq_base=10000.0, use_mmap=True, verbose=False) as llama:
        for test in (test_completion, test_chat, test_embeddings, test_rest):
            test(llama)
            print("ok    " + test.__doc__)
    test_pretrained()
    print("ok    " + test_pretrained.__doc__)


if __name__ == "__main__":
    main()
