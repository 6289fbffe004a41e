#!/usr/bin/env python3
"""`minerva serve` with the openai client, and with Anthropic's (messages_client.py), as their users call it: client_test.py MINERVA FOLDER.

The clients are installed below FOLDER once, from PyPI, pinned by hash (clients/sdks.txt); without a network the test is skipped with a
line. Each test is a function test_GROUP_what(client, server); a failed check raises."""
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))
import messages_client
import pypi
import responses_client
import scripted
import served

HERE = os.path.dirname(os.path.abspath(__file__))
STORY = [{"role": "user", "content": "Tell me a story."}]
PROMPT = "Once upon a time"


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def raises(kind, call, **fields):
    try:
        call()
    except kind as error:
        for name, value in fields.items():
            equal(getattr(error, name), value)
        return error
    raise AssertionError("%s was expected" % kind.__name__)


def chat(client, messages=STORY, **more):
    settings = dict(model="storyteller", max_tokens=24, temperature=0)
    return client.chat.completions.create(messages=messages, **{**settings, **more})


def complete(client, prompt=PROMPT, **more):
    return client.completions.create(prompt=prompt, **{**dict(model="storyteller", max_tokens=12, temperature=0), **more})


def metric(client, name):
    text = client.get("/../metrics", cast_to=str)
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("minerva_" + name + "{"))


# ---- chat -----------------------------------------------------------------------------------------------------------
def test_chat_models(client, server):
    models = client.models.list().data
    equal([m.id for m in models], ["storyteller"])
    m = client.models.retrieve("storyteller")
    assert m.id == "storyteller" and m.object == "model" and m.max_model_len > 100
    raises(openai.NotFoundError, lambda: client.models.retrieve("nothing"), code="model_not_found")


def test_chat_whole(client, server):
    r = chat(client)
    equal((r.object, r.model, len(r.choices)), ("chat.completion", "storyteller", 1))
    c = r.choices[0]
    equal((c.index, c.finish_reason, c.message.role, c.message.tool_calls), (0, "length", "assistant", None))
    assert len(c.message.content) > 40
    equal(r.usage.completion_tokens, 24)
    equal(r.usage.total_tokens, r.usage.prompt_tokens + 24)
    assert r.usage.prompt_tokens_details.cached_tokens >= 0
    equal(chat(client).choices[0].message.content, c.message.content)
    same = [chat(client, temperature=0.9, seed=7).choices[0].message.content for _ in range(2)]
    equal(same[0], same[1])
    whole = chat(client, max_tokens=400).choices[0]
    equal(whole.finish_reason, "stop")


def test_chat_stream(client, server):
    whole = chat(client).choices[0].message.content
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    equal(len({c.id for c in chunks}), 1)
    equal({c.object for c in chunks}, {"chat.completion.chunk"})
    equal(chunks[0].choices[0].delta.role, "assistant")
    equal("".join(c.choices[0].delta.content or "" for c in chunks[:-1]), whole)
    equal([c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason], ["length"])
    equal((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 24))
    assert all(c.usage is None for c in chunks[:-1])
    assert all(c.choices for c in chat(client, stream=True))


def test_chat_helper(client, server):
    """The client's own collector of streams."""
    with client.chat.completions.stream(model="storyteller", messages=STORY, max_tokens=400, temperature=0) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    equal(final.choices[0].message.content, chat(client, max_tokens=400).choices[0].message.content)


def test_chat_messages(client, server):
    """Forms of messages: parts, developer, null content with calls, both names of the limit."""
    parts = [{"role": "user", "content": [{"type": "text", "text": "Tell me a story."}]}]
    equal(chat(client, parts).choices[0].message.content, chat(client).choices[0].message.content)
    chat(client, [{"role": "developer", "content": "Be brief."}, *STORY])
    call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": '{"at": "owl"}'}}
    chat(client, [*STORY, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call00001", "content": "an owl"}, *STORY])
    equal(chat(client, max_tokens=openai.NOT_GIVEN, max_completion_tokens=5).usage.completion_tokens, 5)
    chat(client, user="me", store=False, metadata={"a": "b"}, reasoning_effort="low", response_format={"type": "text"}, service_tier="auto")


def test_chat_n(client, server):
    r = chat(client, n=3, temperature=1, seed=5)
    equal([c.index for c in r.choices], [0, 1, 2])
    equal(r.usage.completion_tokens, 72)
    assert len({c.message.content for c in r.choices}) > 1
    texts = ["", "", ""]
    for chunk in chat(client, n=3, temperature=1, seed=5, stream=True):
        for c in chunk.choices:
            texts[c.index] += c.delta.content or ""
    equal(texts, [c.message.content for c in r.choices])


def test_chat_stop(client, server):
    text = chat(client, max_tokens=40).choices[0].message.content
    for stop in (text[20:26], text[33:35]):
        r = chat(client, max_tokens=40, stop=stop).choices[0]
        equal((r.message.content, r.finish_reason), (text[:text.index(stop)], "stop"))
        chunks = list(chat(client, max_tokens=40, stop=["not in it", stop], stream=True))
        equal("".join(c.choices[0].delta.content or "" for c in chunks), text[:text.index(stop)])
        equal(chunks[-1].choices[0].finish_reason, "stop")


def test_chat_logprobs(client, server):
    c = chat(client, logprobs=True, top_logprobs=3).choices[0]
    equal(len(c.logprobs.content), 24)
    equal(b"".join(bytes(t.bytes) for t in c.logprobs.content).decode().strip(), c.message.content.strip())
    for t in c.logprobs.content:
        equal(len(t.top_logprobs), 3)
        assert t.logprob <= 0 and t.logprob == t.top_logprobs[0].logprob == max(x.logprob for x in t.top_logprobs)
        equal((t.token, t.bytes), (t.top_logprobs[0].token, t.top_logprobs[0].bytes))
    streamed = [t for chunk in chat(client, logprobs=True, top_logprobs=3, stream=True) for t in (chunk.choices[0].logprobs or c.logprobs.__class__(content=[])).content]
    equal([t.token for t in streamed], [t.token for t in c.logprobs.content])
    assert chat(client).choices[0].logprobs is None


def test_chat_tools(client, server):
    """A template without tools says so or ignores them; choices that cannot be kept are refused; none is as without."""
    tools = [{"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}]
    equal(chat(client, tools=tools, tool_choice="none").choices[0].message.content, chat(client).choices[0].message.content)
    try:
        assert chat(client, tools=tools).choices[0].message.tool_calls is None
    except openai.BadRequestError as error:
        equal(error.param, "tools")
    for choice in ("required", {"type": "function", "function": {"name": "look"}}):
        raises(openai.BadRequestError, lambda: chat(client, tools=tools, tool_choice=choice), param="tool_choice")


def test_chat_form(client, server):
    """response_format with a class of pydantic, streamed too; any JSON; vLLM's fields."""
    import enum
    import json
    import re
    import pydantic

    class Colour(enum.Enum):
        red = "red"
        blue = "blue"

    class Animal(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        colour: Colour
        age: int = pydantic.Field(ge=0, le=99)
        friends: list["Animal"] = pydantic.Field(max_length=1)

    for seed in range(4):
        try:
            r = client.chat.completions.parse(model="storyteller", messages=STORY, response_format=Animal, temperature=1.5, seed=seed, max_tokens=600)
        except openai.LengthFinishReasonError:
            continue  # a long row of friends
        assert 0 <= r.choices[0].message.parsed.age <= 99

    class Fruit(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        colour: Colour

    settings = dict(model="storyteller", messages=STORY, response_format=Fruit, temperature=1, seed=9, max_tokens=600)
    with client.chat.completions.stream(**settings) as stream:
        for event in stream:
            pass
        equal(stream.get_final_completion().choices[0].message.parsed, client.chat.completions.parse(**settings).choices[0].message.parsed)
    for more in ({"response_format": {"type": "json_object"}}, {"extra_body": {"structured_outputs": {"json_object": True}}}):
        for said in chat(client, max_tokens=100, temperature=1, seed=3, n=4, **more).choices:
            assert said.message.content.lstrip().startswith("{"), said
            assert said.finish_reason == "length" or isinstance(json.loads(said.message.content), dict)
    for more in ({"guided_choice": ["yes", "no"]}, {"structured_outputs": {"choice": ["yes", "no"]}}, {"guided_regex": "yes|no"}, {"guided_grammar": 'root ::= "yes" | "no"'}):
        c = chat(client, extra_body=more, n=3, temperature=1.5, logprobs=True)
        equal({x.finish_reason for x in c.choices}, {"stop"})
        assert {x.message.content for x in c.choices} <= {"yes", "no"}
    said = complete(client, max_tokens=60, temperature=1.5, extra_body={"guided_json": {"type": "integer", "minimum": 5, "maximum": 17}}).choices[0].text
    assert 5 <= int(said) <= 17 and re.fullmatch(r"\d+", said), said


def test_chat_calls(client, server):
    """Strict tools made from a class of pydantic, forced and streamed: the client's own parser takes the arguments."""
    import pydantic

    class Look(pydantic.BaseModel):
        at: str = pydantic.Field(max_length=10)
        times: int = pydantic.Field(ge=1, le=9)

    tools = [openai.pydantic_function_tool(Look, name="look")]
    with tempfile.TemporaryDirectory() as folder, served.Server(server.command[0], model=served.model_with_calls(folder, "<tool_call>")) as other:
        of = client.with_options(base_url=other.url + "/v1")
        settings = dict(model=of.models.list().data[0].id, messages=STORY, tools=tools, tool_choice="required", parallel_tool_calls=False, temperature=1.5, max_tokens=300)
        for seed in range(3):
            call = of.chat.completions.parse(**settings, seed=seed).choices[0].message.tool_calls[0]
            assert 1 <= call.function.parsed_arguments.times <= 9
            with of.chat.completions.stream(**settings, seed=seed) as stream:
                pieces = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
                final = stream.get_final_completion().choices[0]
            equal(final.finish_reason, "tool_calls")
            equal(final.message.tool_calls[0].function.parsed_arguments, call.function.parsed_arguments)
            equal("".join(p.arguments_delta for p in pieces), call.function.arguments)
            assert len(pieces) > 2
        messages_client.calls(anthropic, other)
        responses_client.calls(of)


# ---- completions and embeddings -------------------------------------------------------------------------------------
def test_text_complete(client, server):
    r = complete(client, max_tokens=openai.NOT_GIVEN)
    equal((r.object, r.usage.completion_tokens, r.choices[0].finish_reason), ("text_completion", 16, "length"))
    assert complete(client, echo=True).choices[0].text.strip().startswith(PROMPT)
    many = complete(client, [PROMPT, "The owl"], n=2)
    equal([c.index for c in many.choices], [0, 1, 2, 3])
    equal(many.choices[0].text, complete(client).choices[0].text)
    ids = client.post("/../tokenize", cast_to=object, body={"model": "storyteller", "prompt": PROMPT})["tokens"]
    equal(complete(client, ids).choices[0].text, complete(client).choices[0].text)
    equal(complete(client, [ids, ids]).choices[1].text, complete(client).choices[0].text)
    equal("".join(c.choices[0].text for c in complete(client, stream=True)), complete(client).choices[0].text)
    back = client.post("/../detokenize", cast_to=object, body={"model": "storyteller", "tokens": ids})["prompt"]
    assert PROMPT in back, back


def test_text_logprobs(client, server):
    c = complete(client, logprobs=2).choices[0]
    equal((len(c.logprobs.tokens), len(c.logprobs.token_logprobs), len(c.logprobs.top_logprobs), len(c.logprobs.text_offset)), (12, 12, 12, 12))
    equal("".join(c.logprobs.tokens), c.text)
    equal(c.logprobs.text_offset[0], 0)
    assert all(len(top) == 2 and max(top.values()) >= p for top, p in zip(c.logprobs.top_logprobs, c.logprobs.token_logprobs))


def samplers(client):
    """llama.cpp's fields: each changes what is drawn; off, they do not; an unknown sampler is named."""
    def text(**fields):
        return complete(client, max_tokens=80, temperature=1.2, seed=3, extra_body=dict({"ignore_eos": True}, **fields)).choices[0].text
    plain = text()
    for fields in ({"dry_multiplier": 1000, "dry_allowed_length": 1, "dry_sequence_breakers": []}, {"xtc_probability": 1, "xtc_threshold": 0.05},
                   {"typical_p": 0.2}, {"top_n_sigma": 0.5}, {"dynatemp_range": 1.1, "dynatemp_exponent": 2},
                   {"mirostat": 2, "mirostat_tau": 1, "mirostat_eta": 0.2}, {"samplers": ["top_k"], "top_k": 2}, {"samplers": "top_k", "top_k": 2}):
        assert text(**fields) != plain, fields
    equal(text(samplers=["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], mirostat_tau=1,
               dry_penalty_last_n=0, dry_multiplier=5, xtc_probability=0, typical_p=1, top_n_sigma=-1, dry_base=1.75), plain)
    for fields, word in (({"samplers": ["top_q"]}, "top_q"), ({"mirostat": 1}, "mirostat"), ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers"),
                         ({"typical_p": 2}, "typical_p"), ({"samplers": [3]}, "samplers")):
        try:
            text(**fields)
        except openai.BadRequestError as e:
            assert word in str(e), (fields, e)
        else:
            raise AssertionError(fields)


def test_text_extensions(client, server):
    """vLLM's fields."""
    equal(complete(client, max_tokens=300, extra_body={"ignore_eos": True}).usage.completion_tokens, 300)
    assert complete(client, max_tokens=300).usage.completion_tokens < 300
    complete(client, temperature=1, seed=3, extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 4})
    samplers(client)
    first = complete(client, logprobs=0, max_tokens=1, extra_body={"return_tokens_as_token_ids": False})
    assert first.choices[0].text


def test_embed_vectors(client, server):
    """As base64, the client's own choice, and as numbers; texts and ids."""
    r = client.embeddings.create(model="storyteller", input=["an owl", "a tin cup"])
    equal((len(r.data), [d.index for d in r.data], r.object), (2, [0, 1], "list"))
    numbers = client.embeddings.create(model="storyteller", input=["an owl", "a tin cup"], encoding_format="float")
    for a, b in zip(r.data, numbers.data):
        assert len(a.embedding) == len(b.embedding) > 8
        assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-5
        assert abs(sum(x * x for x in a.embedding) - 1) < 1e-3
    ids = client.post("/../tokenize", cast_to=object, body={"model": "storyteller", "prompt": "an owl"})["tokens"]
    of_ids = client.embeddings.create(model="storyteller", input=[ids])
    assert max(abs(x - y) for x, y in zip(of_ids.data[0].embedding, r.data[0].embedding)) < 1e-5
    equal(r.usage.prompt_tokens, r.usage.total_tokens)


# ---- errors ---------------------------------------------------------------------------------------------------------
def test_errors_fields(client, server):
    """A wrong value is a 400 that names its field."""
    for field, value in (("temperature", 900), ("temperature", "warm"), ("top_p", 2), ("n", 0), ("max_tokens", -1), ("stop", 3), ("seed", "x"), ("logit_bias", {"a": 1}),
                         ("logit_bias", {"3": 1000}), ("stream", "yes"), ("top_logprobs", 50), ("presence_penalty", 9), ("min_p", -1), ("top_k", "many")):
        error = raises(openai.BadRequestError, lambda: chat(client, extra_body={"logprobs": True, field: value}), param=field)
        assert field in error.message, error.message
    for messages in ([], [{"role": "user", "content": 3}], [{"content": "no role"}], "text", [3],
                     [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]):
        raises(openai.BadRequestError, lambda: chat(client, messages), param="messages")
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": 3}}):
        raises(openai.BadRequestError, lambda: chat(client, response_format=wrong), param="response_format")
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    error = raises(openai.BadRequestError, lambda: chat(client, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}), param="response_format")
    assert "#/properties/a/not" in error.message, error.message
    error = raises(openai.BadRequestError, lambda: chat(client, extra_body={"guided_regex": "(a"}, stream=True), param="guided_regex")
    assert "byte 2" in error.message, error.message
    raises(openai.BadRequestError, lambda: chat(client, extra_body={"guided_choice": []}), param="guided_choice")
    raises(openai.BadRequestError, lambda: chat(client, extra_body={"guided_choice": ["a"], "guided_regex": "a"}), param="guided_choice")
    raises(openai.BadRequestError, lambda: complete(client, []), param="prompt")
    raises(openai.BadRequestError, lambda: complete(client, [[99999999]]), param="prompt")
    chat(client, extra_body={"temperature": None, "stop": None, "tools": None, "top_k": None, "unknown_field": {"a": [1]}})


def test_errors_length(client, server):
    """Too long: both numbers."""
    most = client.models.retrieve("storyteller").max_model_len
    error = raises(openai.BadRequestError, lambda: complete(client, [5] * (most + 7)))
    assert str(most) in error.message and str(most + 7) in error.message, error.message


def test_errors_paths(client, server):
    raises(openai.NotFoundError, lambda: chat(client, model="gpt-9"), code="model_not_found")
    raises(openai.NotFoundError, lambda: client.batches.list())
    raises(openai.NotFoundError, lambda: client.get("/nothing", cast_to=object))
    raises(openai.APIStatusError, lambda: client.get("/chat/completions", cast_to=object), status_code=405)
    raises(openai.BadRequestError, lambda: client.post("/chat/completions", cast_to=object, body=["no object"]))


def test_held_cancel(client, server):
    """A client that closes a stream: its generation ends, and nothing is left."""
    stream = complete(client, max_tokens=900, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    assert metric(client, "num_requests_running") + metric(client, "num_requests_waiting") >= 1
    stream.close()
    until, quiet = time.monotonic() + 60, 0
    while quiet < 10:  # the engine's counts are as old as its last step
        assert time.monotonic() < until, "the generation runs on"
        busy = metric(client, "num_requests_running") + metric(client, "num_requests_waiting")
        quiet = 0 if busy else quiet + 1
        time.sleep(0.02)


def test_held_retry(client, server):
    """An overloaded server says 429 with Retry-After; the client tries again and succeeds."""
    held = [complete(client, max_tokens=900, stream=True, extra_body={"ignore_eos": True}) for _ in range(2)]  # runs; waits
    error = raises(openai.RateLimitError, lambda: complete(client.with_options(max_retries=0)))
    assert int(error.response.headers["retry-after"]) >= 1
    threading.Timer(0.3, lambda: [s.close() for s in held]).start()
    equal(complete(client.with_options(max_retries=5)).usage.completion_tokens, 12)


def test_key_wanted(client, server):
    other = openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, lambda: chat(other))
    raises(openai.AuthenticationError, lambda: other.models.list())
    equal(chat(client).usage.completion_tokens, 24)


def test_scripted_turns(client, server):
    """A model that thinks, says something and calls, then has the result: by chat, Responses and Messages, whole and as streams."""
    ask = [{"role": "user", "content": "What is in the tree?"}]
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    settings = dict(model="m", messages=ask, tools=tools)
    m = client.chat.completions.create(**settings).choices[0].message
    with client.chat.completions.stream(**settings) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message
    for said in m, streamed:
        equal((said.reasoning_content, said.content, said.tool_calls[0].function.name, said.tool_calls[0].function.arguments), ("I think.", "I look.", "look", '{"at": "tree"}'))
    settings = dict(model="m", input=ask, tools=[{"type": "function", "name": "look", "parameters": parameters, "strict": False}])
    r = client.responses.create(**settings)
    with client.responses.stream(**settings) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_response()
    for said in r, streamed:
        equal([x.type for x in said.output], ["reasoning", "message", "function_call"])
        thought, text, call = said.output
        equal((thought.content[0].text, text.content[0].text, call.name, call.arguments), ("I think.", "I look.", "look", '{"at": "tree"}'))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "an owl"}
        equal(client.responses.create(**{**settings, "input": [result]}, previous_response_id=said.id).output_text, "It is an owl.")
        equal(client.responses.create(**{**settings, "input": [*ask, *said.output, result]}).output_text, "It is an owl.")
    settings = dict(model="m", messages=ask, max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 1024}, tools=[{"name": "look", "input_schema": parameters}])
    with messages_client.of(anthropic, server) as other:
        m = other.messages.create(**settings)
        with other.messages.stream(**settings) as stream:
            streamed = stream.get_final_message()
        for said in m, streamed:
            thought, text, call = said.content
            equal((thought.thinking, text.text, call.name, call.input, said.stop_reason), ("I think.", "I look.", "look", {"at": "tree"}, "tool_use"))
            turns = [*ask, {"role": "assistant", "content": said.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "an owl"}]}]
            equal(other.messages.create(**{**settings, "messages": turns}).content[0].text, "It is an owl.")


def tests_of(group):
    return [(name, test) for name, test in globals().items() if name.startswith("test_%s_" % group)]


def run(groups, server, key=None):
    """The groups against one server."""
    with server:
        for name, test in [one for group in groups for one in tests_of(group)]:
            print(name, flush=True)
            with openai.OpenAI(base_url=server.url + "/v1", api_key=key or "none", max_retries=0, timeout=100) as client:
                test(client, server)
        if {"chat", "key"} & set(groups):
            print("messages", flush=True)
            messages_client.run(anthropic, server, key or "none")
            print("responses", flush=True)
            with openai.OpenAI(base_url=server.url + "/v1", api_key=key or "none", max_retries=0, timeout=100) as client:
                responses_client.run(openai, client)


def main():
    global openai, anthropic
    minerva, folder = sys.argv[1], sys.argv[2]
    if not served.available(minerva):
        print("this minerva was built without its server")
        sys.exit(77)
    os.makedirs(folder, exist_ok=True)
    target = pypi.install(folder, os.path.join(HERE, "clients", "sdks.txt"), "the openai client")
    if not target:
        sys.exit(77)
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_")):
            del os.environ[name]
    sys.path.insert(0, target)
    import anthropic
    import openai
    # in the other classes what comes out depends on how many rows are computed at once
    exact = "--device", "cpu", "--precision", "exact"
    run(["chat", "text", "errors"], served.Server(minerva, *exact))
    with tempfile.TemporaryDirectory() as model:
        scripted.save(model, ["<think>I think.</think>I look." + scripted.call("look", at="tree"), "It is an owl."])
        run(["scripted"], served.Server(minerva, "--device", "cpu", "--alias", "m", model=model))
    run(["embed"], served.Server(minerva, *exact, "--embeddings"))
    run(["held"], served.SlowServer(minerva, 50, "--parallel", 1, "--max-queue", 1))
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:  # 0600
        keys.write("other\nright\n")
        keys.flush()
        run(["key"], served.Server(minerva, "--device", "cpu", "--api-key", keys.name, key="right"), "right")


if __name__ == "__main__":
    main()
