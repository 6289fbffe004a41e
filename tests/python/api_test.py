#!/usr/bin/env python3
"""The package minerva as its users call it, on the demo model: api_test.py GROUP PLUGIN. Each test is a function test_GROUP_what(model)."""
import asyncio
import gc
import inspect
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import typing

import minerva
from minerva import _abi, _library, _options

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, "tests", "data", "fixtures")
STORY = "Tell me a story."
TEXT = "Once upon a time there was an owl. The owl lived in a tree, and the tree stood in a garden. " * 4
GREEDY = {"temperature": 0, "max_tokens": 16}


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def raises(kind, call, *words):
    try:
        call()
    except kind as e:
        for w in words:
            assert w in str(e), (w, str(e))
        return e
    raise AssertionError("%s was expected" % kind.__name__)


def command(*words):
    return subprocess.run([_library.command(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True).stdout


def have_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("numpy (python3-numpy) is missing: arrays are not tested")
        return False
    return True


# ---- text ----------------------------------------------------------------------------------------------------------
def test_text_ids(model):
    """Ids are the command's; texts come back, special tokens by name."""
    ids = model.tokenize(TEXT)
    equal(ids, json.loads(command("tokenize", "-p", TEXT, "--json"))["ids"])
    equal(model.detokenize(ids), TEXT)
    equal(ids, model.tokenize("") + model.tokenize(TEXT, add_special=False))
    name = model.detokenize(ids[:1], special=True)
    equal(model.tokenize(name, add_special=False, special=True), ids[:1])
    assert len(model.tokenize(name, add_special=False)) > 1
    equal("".join(model.token_bytes(i).decode() for i in model.tokenize("an owl", add_special=False)).strip(), "an owl")
    equal(model.token_bytes(10**6), b"")
    equal(model.detokenize(model.tokenize("a\0b \U0001f989")), "a\0b \U0001f989")


def test_text_template(model):
    """Messages are what the command renders; a template by name or source is another."""
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": STORY}]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"messages": messages, "add_generation_prompt": True}, f)
        f.flush()
        equal(model.apply_chat_template(messages), model.tokenize(command("template", "-m", model.path, "--vars", f.name), add_special=False, special=True))
    assert "<|im_start|>" in model.detokenize(model.apply_chat_template(messages, chat_template="chatml"), special=True)
    assert "owl:" in model.detokenize(model.apply_chat_template(messages, chat_template="owl:{{ messages[1].content }}"))
    raises(minerva.Invalid, lambda: model.apply_chat_template([{"content": "no role"}]), "role")


def test_text_facts(model):
    """What the model says of itself."""
    info = json.loads(command("inspect", "--json"))
    equal((model.arch, model.has_chat_template, model.is_encoder), ("llama", True, False))
    assert model.n_vocab > 1000 and model.n_embd == 256 and model.n_context_trained > 100
    equal(model.metadata["llama.block_count"], info["metadata"]["llama.block_count"])
    assert model.path.endswith("storyteller") and "storyteller" in repr(model)
    equal(minerva.__version__, command("--version").split()[1])


def test_text_adapters(model):
    """An adapter of a request changes its ids, beside one without; names, room and wrong files are errors that say so."""
    adapter = os.path.join(ROOT, "tests", "data", "adapters", "llama.all")
    ids = [0, 2, 37, 3, 31]
    with minerva.Model(os.path.join(FIXTURES, "llama"), adapters={"one": adapter}, adapter_room=(2, 0)) as m:
        m.load_adapter("twice", [(adapter, 0.5), (adapter, 0.5)])
        equal(m.adapters, {"one": adapter, "twice": adapter})
        plain, one, twice = (r.ids for r in m.batch([ids, {"prompt": ids, "adapter": "one"}, {"prompt": ids, "adapter": "twice"}], **GREEDY))
        assert plain != one and one == twice
        m.unload_adapter("one")
        raises(minerva.BadInput, lambda: m.generate(ids, adapter="one", **GREEDY), "one")
        raises(minerva.FileError, lambda: m.load_adapter("none", "/nowhere"), "/nowhere")
        equal(list(m.adapters), ["twice"])


# ---- generate ------------------------------------------------------------------------------------------------------
def test_generate_forms(model):
    """A text, messages and ids are one prompt; a stream and the whole are one answer; the command's is the same."""
    r = model.generate(STORY, **GREEDY)
    equal(r.text, command("run", "-p", STORY, "--temp", "0", "-n", "16", "--precision", "exact").rstrip("\n"))
    equal((len(r.ids), r.finish_reason, str(r)), (16, "length", r.text))
    messages = [{"role": "user", "content": STORY}]
    equal(model.chat(messages, **GREEDY).text, r.text)
    equal(model.chat(STORY, **GREEDY).message, {"role": "assistant", "content": r.text})
    equal(model.generate(model.apply_chat_template(messages), **GREEDY).ids, r.ids)
    chunks = list(model.generate(STORY, stream=True, **GREEDY))
    equal("".join(map(str, chunks)), r.text)
    equal(sum((c.ids for c in chunks), []), r.ids)
    equal([c.finish_reason for c in chunks if c.finish_reason], ["length"])
    assert r.n_prompt == len(model.apply_chat_template(messages)) and r.first_s > 0 and r.decode_s > 0
    raw = model.generate("Once upon a", raw=True, **GREEDY)
    equal(raw.n_prompt, len(model.tokenize("Once upon a")))
    end = model.generate(STORY, temperature=0)
    equal((end.finish_reason, model.is_end(end.ids[-1])), ("stop", True))


def test_generate_sampling(model):
    """A seed repeats; every option reaches the library; unknown ones and bad values are refused by name."""
    one, two = (model.generate(STORY, seed=7, temperature=1.2, max_tokens=20).ids for _ in range(2))
    equal(one, two)
    assert len({tuple(model.generate(STORY, temperature=1.5, max_tokens=20).ids) for _ in range(4)}) > 1
    fields = {f[0] for f in _abi.mn_sample_params._fields_}
    covered = {f for f, _ in _options.SAMPLING.values()} | {"stop", "n_stop", "bias", "n_bias", "samplers", "dry_breakers", "n_dry_breakers",
                                                            "constraint", "adapter", "size", "flags", "pad"}
    equal(fields, covered)
    first = model.generate(STORY, **GREEDY).ids[0]
    assert model.generate(STORY, logit_bias={first: -math.inf}, **GREEDY).ids[0] != first
    equal(model.generate(STORY, stop_ids=[first], **GREEDY).ids, [first])
    model.generate(STORY, samplers="top_k;temperature", top_k=5, dry_multiplier=0.8, dry_breakers=["\n"], mirostat=0, typical_p=0.9, max_tokens=4)
    model.generate(STORY, mirostat=2, xtc_probability=0.1, min_tokens=2, max_tokens=4)
    raises(TypeError, lambda: model.generate(STORY, temprature=1), "temprature", "temperature")
    raises(minerva.Invalid, lambda: model.generate(STORY, temperature="warm"), "temperature", "warm")
    raises(minerva.Invalid, lambda: model.generate(STORY, max_tokens=-1), "max_tokens")
    raises(minerva.Invalid, lambda: model.generate(STORY, top_p=7), "top_p")
    raises(minerva.BadInput, lambda: model.generate(STORY, samplers="top_z"), "top_z")


def test_generate_stop(model):
    """A stop string is no part of the text, wherever it falls, and is named."""
    text = model.generate(STORY, temperature=0, max_tokens=40).text
    for stop in (text[20:26], text[33:35]):
        r = model.generate(STORY, temperature=0, max_tokens=40, stop=["not in it", stop])
        equal((r.text, r.finish_reason, r.stop), (text[:text.index(stop)], "stop", stop))
        equal("".join(c.text for c in model.generate(STORY, temperature=0, max_tokens=40, stop=stop, stream=True)), r.text)


def test_generate_forms_of_answers(model):
    """A schema, a regular expression, a grammar, choices, any JSON, a class of pydantic."""
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"], "additionalProperties": False}
    r = model.generate(STORY, json_schema=schema, temperature=1.2, max_tokens=200, seed=1)
    assert 0 <= r.parsed["age"] <= 99 and json.loads(r.text) == r.parsed
    equal(model.generate(STORY, json_schema=json.dumps(schema), temperature=1.2, max_tokens=200, seed=1).parsed, r.parsed)
    equal(model.generate(STORY, json_schema=schema, max_tokens=2).parsed, None)  # cut
    assert model.generate(STORY, choices=["yes", "no"]).text in ("yes", "no")
    assert model.generate(STORY, grammar='root ::= "yes" | "no"').text in ("yes", "no")
    assert set(model.generate(STORY, regex="a{3,5}").text) == {"a"}
    assert model.generate(STORY, json=True, max_tokens=40, seed=2).text.lstrip()[0] in "{["
    raises(minerva.Invalid, lambda: model.generate(STORY, json=True, regex="a"), "json", "regex")
    raises(minerva.BadInput, lambda: model.generate(STORY, regex="a("))

    class Animal:
        """What is used of a class of pydantic."""

        @classmethod
        def model_json_schema(cls):
            return schema

        @classmethod
        def model_validate_json(cls, text):
            made = cls()
            made.age = json.loads(text)["age"]
            return made
    made = model.generate(STORY, json_schema=Animal, temperature=1.2, max_tokens=200, seed=1).parsed
    equal((type(made), made.age), (Animal, r.parsed["age"]))


def test_generate_tools(_):
    """A forced call follows the tool's schema, whole and streamed; the answer is a message for the next turn."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "serve"))
    import served
    tools = [{"type": "function", "function": {"name": "look", "parameters": {
        "type": "object", "properties": {"times": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["times"]}}}]
    with tempfile.TemporaryDirectory() as folder, minerva.Model(served.model_with_calls(folder, "<tool_call>")) as other:
        settings = dict(tools=tools, tool_choice="required", parallel_tool_calls=False, temperature=1.2, max_tokens=300, seed=3)
        r = other.generate(STORY, **settings)
        equal((r.finish_reason, [c.name for c in r.tool_calls], r.text), ("tool_calls", ["look"], ""))
        assert 1 <= json.loads(r.tool_calls[0].arguments)["times"] <= 9
        pieces = [c for c in other.generate(STORY, stream=True, **settings) if c.call == 0]
        equal((pieces[0].name, "".join(c.arguments for c in pieces)), ("look", r.tool_calls[0].arguments))
        equal(other.generate(STORY, **dict(settings, tool_choice="look")).tool_calls[0].name, "look")
        assert not other.generate(STORY, **dict(settings, tool_choice="none", max_tokens=9)).tool_calls
        raises(minerva.Invalid, lambda: other.generate(STORY, **dict(settings, tool_choice="listen")), "listen")
        equal(r.message["tool_calls"][0]["function"]["name"], "look")


def test_generate_logprobs(model):
    """One for each id, of the most likely as many as asked for; they are the logarithms of the logits' softmax."""
    r = model.generate(STORY, logprobs=3, **GREEDY)
    equal([t.id for t in r.logprobs], r.ids)
    for t in r.logprobs:
        equal(len(t.top), 3)
        assert t.logprob == t.top[0][2] == max(p for _, _, p in t.top) <= 0 and t.top[0][0] == t.id and t.bytes.decode() == t.token
    chunks = list(model.generate(STORY, logprobs=True, stream=True, **GREEDY))
    equal([t.id for c in chunks for t in c.logprobs], r.ids)
    equal(model.generate(STORY, **GREEDY).logprobs, [])
    prompt = model.apply_chat_template([{"role": "user", "content": STORY}])
    of_text = model.logprobs(prompt + r.ids)
    assert math.isnan(of_text[0]) and len(of_text) == len(prompt) + len(r.ids)
    for a, t in zip(of_text[len(prompt):], r.logprobs):
        assert abs(a - t.logprob) < 0.02 + 0.02 * abs(a), (a, t)


def test_generate_drafts(model):
    """Drafts of a second model or of the text change no id; the second model may be dropped."""
    expected = model.generate(STORY, **GREEDY).ids
    for more in ({"draft": minerva.Model(precision="exact")}, {"lookup": True}):
        with minerva.Model(precision="exact", **more) as other:
            more.clear()
            gc.collect()
            equal(other.generate(STORY, **GREEDY).ids, expected)
            assert other.load()["speculation"]


def test_generate_errors(model):
    """Statuses are classes; nothing is left of a request that failed."""
    e = raises(minerva.BadInput, lambda: model.generate([1] * 5000), "5000")
    equal((e.status, e.name, isinstance(e, ValueError)), (_abi.MN_BAD_INPUT, "BAD_INPUT", True))
    raises(minerva.BadInput, lambda: model.generate([10**6]))
    raises(minerva.FileError, lambda: minerva.Model("/nowhere/model.gguf"), "/nowhere/model.gguf")
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(b"GGUF" + b"\xff" * 60)
        f.flush()
        raises(minerva.Error, lambda: minerva.Model(f.name), f.name)
    raises(minerva.Error, lambda: minerva.Model(device="cuda:77").load(), "cuda")
    raises(minerva.Invalid, lambda: minerva.Model(precision="low"), "low", "exact")
    closed = minerva.Model()
    closed.close()
    closed.close()
    for call in (lambda: closed.generate(STORY), lambda: closed.tokenize("a"), lambda: closed.logprobs("a b"), closed.load):
        raises(minerva.Invalid, call, "closed")
    equal(len(model._requests()._sinks), 0)


# ---- numbers -------------------------------------------------------------------------------------------------------
def test_numbers_embed(_):
    """What the fixture's golden says, alone and together, cut, and lists without numpy."""
    with open(os.path.join(FIXTURES, "bert", "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    with minerva.Model(os.path.join(FIXTURES, "bert"), device="reference", precision="exact") as bert:
        assert bert.is_encoder
        values, n, count = bert._embed([g["text"] for g in golden], "mean", False, 0)
        equal((n, count), (bert.n_embd, sum(len(g["ids"]) for g in golden)))
        for i, g in enumerate(golden):
            assert all(abs(a - b) < 1e-4 + 1e-4 * abs(b) for a, b in zip(values[i * n:(i + 1) * n], g["mean"])), g["text"]
        e = raises(minerva.BadInput, lambda: bert._embed(["a", "a " * 5000], None, None, 0))
        equal(e.part, 2)
        raises(minerva.Unsupported, lambda: bert.generate("a"))
        with minerva.Model(bert.path, device="reference", batch=8) as small:
            raises(minerva.BadInput, lambda: small._embed([[7] * 20], None, None, 0), "20", "8")
        if not have_numpy():
            return
        import numpy
        rows = bert.embed([g["text"] for g in golden], pooling="mean", normalize=False)
        equal((rows.shape, rows.dtype), ((len(golden), n), numpy.float32))
        assert numpy.allclose(rows, [g["mean"] for g in golden], atol=1e-4, rtol=1e-4)
        one = bert.embed(golden[0]["text"], normalize=True, dims=8)
        equal(one.shape, (8,))
        assert abs(float((one * one).sum()) - 1) < 1e-5
        equal(bert.embed([]).shape, (0, n))
        assert numpy.allclose(asyncio.run(bert.aembed(golden[0]["text"])), bert.embed(golden[0]["text"]))


def test_numbers_rerank(model):
    """What the fixtures' goldens say, the best first, and what is refused."""
    for name in ("bert-rank", "qwen3-reranker"):
        path = os.path.join(FIXTURES, name)
        with open(os.path.join(path, "golden.json"), encoding="utf-8") as f:
            golden = json.load(f)
        cases, texts = golden["cases"], [c["text"] for c in golden["cases"]]
        with minerva.Model(path, device="reference", precision="exact") as ranker:
            assert ranker.is_reranker
            found = ranker.rerank(golden["query"], texts, logits=True)
            equal([r.index for r in found], sorted(range(len(cases)), key=lambda i: -cases[i]["logit"]))
            for r in found:
                assert r.text == texts[r.index] and abs(r.score - cases[r.index]["logit"]) < 1e-4, r
            best = ranker.rerank(golden["query"], texts, top=2)
            equal([r.index for r in best], [r.index for r in found[:2]])
            for r in best:
                assert abs(r.score - 1 / (1 + math.exp(-cases[r.index]["logit"]))) < 1e-4, r
            equal([r.index for r in ranker.rerank(golden["query"], ["the owl"] * 3)], [0, 1, 2])
            equal(asyncio.run(ranker.arerank(golden["query"], texts, top=2)), best)
            equal(ranker.rerank(golden["query"], []), [])
            equal(raises(minerva.BadInput, lambda: ranker.rerank("a", ["b", "b " * 5000])).part, 2)
            raises(minerva.Invalid, lambda: ranker.rerank("a", ["b"], top=0), "top", "0")
            if name == "bert-rank":
                raises(minerva.Unsupported, lambda: ranker.rerank("a", ["b"], instruction="find it"), "instruction")
            else:
                assert ranker.rerank("a", ["b"], instruction="find it") != ranker.rerank("a", ["b"])
    assert not model.is_reranker
    raises(minerva.Unsupported, lambda: model.rerank("a", ["b"]))


def test_numbers_labels(model):
    """A head that classifies: the probability of a label, by its name or number."""
    path = os.path.join(FIXTURES, "bert-labels")
    with open(os.path.join(path, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    cases, texts = golden["cases"], [c["text"] for c in golden["cases"]]
    with minerva.Model(path, device="reference", precision="exact") as judge:
        assert len(judge.labels) > 1 and not judge.is_reranker
        for i, name in enumerate(judge.labels):
            for r in judge.rerank(golden["query"], texts, label=name, logits=True):
                assert abs(r.score - cases[r.index]["logits"][i]) < 1e-4, r
            equal(judge.rerank(golden["query"], texts, label=i), judge.rerank(golden["query"], texts, label=name))
        whole = [sum(r.score for i in range(len(judge.labels)) for r in judge.rerank(golden["query"], [text], label=i)) for text in texts]
        assert all(abs(w - 1) < 1e-5 for w in whole), whole
        raises(minerva.Unsupported, lambda: judge.rerank(golden["query"], texts), judge.labels[0])
        raises(minerva.Invalid, lambda: judge.rerank("a", ["b"], label="no such"), "no such", judge.labels[0])
        raises(minerva.Invalid, lambda: judge.rerank("a", ["b"], label=len(judge.labels)))
    equal(model.labels, [])
    raises(minerva.Invalid, lambda: model.rerank("a", ["b"], label=0), "has labels")


def test_numbers_logits(model):
    """[n, n_vocab]; the softmax of a row is what logprobs says of the next id."""
    if not have_numpy():
        return
    import numpy
    ids = model.tokenize(TEXT)[:40]
    rows = model.logits(ids)
    equal((rows.shape, rows.dtype), ((40, model.n_vocab), numpy.float32))
    logs = rows - numpy.log(numpy.exp(rows.astype(numpy.float64)).sum(1, keepdims=True))
    found = model.logprobs(ids)
    for i in range(1, 40):
        assert abs(logs[i - 1, ids[i]] - found[i]) < 0.02 + 0.02 * abs(found[i]), i


def test_numbers_perplexity(model):
    """The command's numbers, with windows and with a stride."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(TEXT)
        f.flush()
        for more, words in (({}, ()), ({"stride": 8}, ("--stride", "8"))):
            theirs = json.loads(command("perplexity", "-f", f.name, "-c", "32", "--json", *words))["perplexity"]
            mine = model.perplexity(TEXT, context=32, **more)
            assert abs(mine - theirs) < 0.01 * theirs, (mine, theirs)
    raises(minerva.BadInput, lambda: model.perplexity("a b", context=32), "expected 32")
    raises(minerva.Invalid, lambda: model.perplexity(TEXT, context=32, stride=32), "stride")


# ---- threads -------------------------------------------------------------------------------------------------------
def test_threads_batch(model):
    """Many prompts at once have the answers that they have alone, in order; each may have options of its own."""
    prompts = ["Tell me a story about %s." % what for what in ("an owl", "a cup", "a fox", "the sea", "rain", "a king", "a ship", "snow", "a dog", "tea")]
    alone = [model.generate(p, temperature=0, max_tokens=12).ids for p in prompts[:3]]
    together = model.batch(prompts, temperature=0, max_tokens=12)
    equal([r.ids for r in together[:3]], alone)
    equal([len(r.ids) for r in model.batch([prompts[0], {"prompt": prompts[1], "max_tokens": 3}], temperature=0, max_tokens=5)], [5, 3])
    texts = [""] * len(prompts)
    for i, chunk in model.batch_stream(prompts, temperature=0, max_tokens=12):
        texts[i] += chunk.text
    equal(texts, [r.text for r in together])
    equal(len(model._requests()._sinks), 0)


def test_threads_many(model):
    """Threads share a batch; each has its own answer."""
    expected = [r.ids for r in model.batch(["Story %d" % i for i in range(6)], temperature=0, max_tokens=12)]
    found = [None] * 6

    def run(i):
        found[i] = sum((c.ids for c in model.generate("Story %d" % i, stream=True, temperature=0, max_tokens=12)), [])
    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    equal(found, expected)


def test_threads_gil(model):
    """While a thread is inside the library another one runs: the first waits there without a limit until the second wakes it."""
    engine = model._requests()
    status, handle = [], engine.session._value

    def wait():
        events = _library.new(_abi.mn_request_events)
        with engine._lock:
            status.append(_library.lib.mn_session_next(handle, 50000, events, None))
    t = threading.Thread(target=wait)
    t.start()
    while t.is_alive():
        _library.lib.mn_session_wake(handle)
        t.join(0.05)
    equal(status, [0])


def test_threads_asyncio(model):
    """await, async for, many at once, a cancelled task, an error."""
    whole = model.generate(STORY, **GREEDY).text

    async def main():
        equal((await model.agenerate(STORY, **GREEDY)).text, whole)
        equal((await model.achat(STORY, **GREEDY)).text, whole)
        equal("".join([c.text async for c in model.agenerate(STORY, stream=True, **GREEDY)]), whole)
        equal([r.text for r in await model.abatch([STORY] * 12, **GREEDY)], [whole] * 12)
        async for _ in model.agenerate(STORY, stream=True, ignore_eos=True):
            break
        task = asyncio.create_task(model.agenerate(STORY, ignore_eos=True))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
            raise AssertionError("cancelled")
        except asyncio.CancelledError:
            pass
        try:
            await model.agenerate([1] * 5000)
            raise AssertionError("too long")
        except minerva.BadInput:
            pass
        equal((await model.agenerate(STORY, **GREEDY)).text, whole)
    asyncio.run(main())


def test_threads_dropped(model):
    """A stream that is left, closed or forgotten ends its request; a model that is closed ends its streams."""
    engine = model._requests()
    for _ in model.generate(STORY, stream=True, ignore_eos=True):
        break
    gc.collect()
    equal(len(engine._sinks), 0)
    with model.generate(STORY, stream=True, ignore_eos=True) as running:
        next(running)
        assert running.result.text
    equal((len(engine._sinks), list(running)), (0, []))
    other = minerva.Model()
    running = other.generate(STORY, stream=True, ignore_eos=True)
    next(running)
    other.close()
    raises(minerva.Invalid, lambda: list(running), "closed")


# ---- things --------------------------------------------------------------------------------------------------------
def test_things_session(model):
    """A conversation keeps its messages; forks go on by themselves; what was computed is shared."""
    s = model.session(TEXT, temperature=0, max_tokens=30)
    one = s.send(STORY)
    equal([m["role"] for m in s.messages], ["system", "user", "assistant"])
    fork = s.fork()
    a, b = s.send("And the owl?"), fork.send("And the fox?")
    equal((len(s.messages), len(fork.messages), s.messages[:3]), (5, 5, fork.messages[:3]))
    equal((s.messages[2]["content"], a.text), (one.text, s.messages[4]["content"]))
    assert b.n_cached > 0, "the fork shares what was computed"
    equal(a.text, model.chat(s.messages[:4], temperature=0, max_tokens=30).text)
    text = "".join(c.text for c in fork.send(stream=True, content="Why?"))
    equal(fork.messages[-1]["content"], text)
    plain = model.session(raw=True, temperature=0, max_tokens=8)
    first = plain.add("Once upon a ").send("time")
    equal(plain.text, "Once upon a time" + first.text)
    equal(plain.fork().send().text, plain.send().text)


def test_things_plugin(_):
    """A plugin folder of the user's: the plugin is listed, and its device can be asked for."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(PLUGIN, folder)
        with minerva.Runtime({"plugin_path": folder}) as runtime:
            mine = [p for p in runtime.plugins() if p["path"].startswith(folder)]
            equal([p["status"] for p in mine], ["ok"])
            devices = {d["name"] for d in runtime.devices() if d["plugin"] == mine[0]["id"]}
            assert devices, runtime.devices()
        with minerva.Model(settings={"plugin_path": folder}, device=devices.pop() + ",cpu") as model:
            assert model.generate(STORY, max_tokens=2).ids
    assert {"cpu_simd", "reference"} <= {d["plugin"] for d in minerva.Runtime().devices()}
    assert any(c["key"] == "device" for c in minerva.Runtime().config())


def test_things_serve(model):
    """A server as a context manager; one that does not start says why."""
    import urllib.request
    with model.serve(parallel=2, alias=["owl"]) as server:
        with urllib.request.urlopen(server.openai_url + "/models") as answer:
            equal([m["id"] for m in json.load(answer)["data"]], ["owl"])
    assert server.process.poll() is not None
    raises(minerva.Error, lambda: minerva.serve("/nowhere/model.gguf"), "/nowhere/model.gguf")


def test_things_log(_):
    """Messages of the library are records of logging."""
    script = ("import logging, minerva\nseen = []\nclass H(logging.Handler):\n    def emit(self, r): seen.append(r.getMessage())\n"
              "logging.getLogger('minerva').addHandler(H())\nlogging.getLogger('minerva').propagate = False\n"
              "minerva.Runtime()\nassert any('MINERVA_NO_SUCH' in m for m in seen), seen\n")
    p = subprocess.run([sys.executable, "-c", script], env={**os.environ, "MINERVA_NO_SUCH": "1"}, stderr=subprocess.PIPE, text=True)
    equal((p.returncode, p.stderr), (0, ""))


def test_things_typed(_):
    """Every public function has a docstring and types; the package says that it is typed."""
    for name in minerva.__all__:
        thing = getattr(minerva, name)
        assert thing.__doc__, name
        for key, function in (vars(thing).items() if inspect.isclass(thing) else [("", thing)]):
            if inspect.isfunction(function) and not key.startswith("_") and function.__module__.startswith("minerva"):
                assert function.__doc__, "%s.%s has no docstring" % (name, key)
                assert "return" in function.__annotations__, "%s.%s has no types" % (name, key)
                forms = getattr(typing, "get_overloads", lambda f: [f, f])(function)  # Python 3.11
                assert "stream" not in inspect.signature(function).parameters or len(forms) == 2, "%s.%s has one type, whole or a stream" % (name, key)
    assert os.path.exists(os.path.join(os.path.dirname(minerva.__file__), "py.typed"))


def test_things_end(_):
    """A program that ends with an open model, a stream midway and a thread inside the library ends with its own status."""
    script = ("import minerva, threading\nm = minerva.Model()\nnext(m.generate('Hi', stream=True, ignore_eos=True))\n"
              "threading.Thread(target=lambda: m.generate('Hi', ignore_eos=True, max_tokens=900), daemon=True).start()\nraise SystemExit(7)\n")
    p = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=60)
    equal(p.returncode, 7)


def main():
    group = sys.argv[1]
    with minerva.Model(precision="exact") as model:  # the same ids alone and in a batch
        for name, test in sorted(globals().items()):
            if name.startswith("test_" + group + "_") or name == group:
                test(model)
                print("ok    " + test.__doc__.splitlines()[0])


PLUGIN = sys.argv[2] if len(sys.argv) > 2 else ""

if __name__ == "__main__":
    main()
