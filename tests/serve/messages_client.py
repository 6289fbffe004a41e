"""Anthropic's client against `minerva serve`, as its users call it: run(anthropic, server, key) with a server of the demo model, calls(anthropic, server) with one
that calls tools. client_test.py starts them."""

STORY = [{"role": "user", "content": "Tell me a story."}]
TOOL = {"name": "look", "description": "looks", "input_schema": {"type": "object", "properties": {"at": {"type": "string", "maxLength": 10}}, "required": ["at"]}}


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("%s was expected" % kind.__name__)


def of(anthropic, server, key="none"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=100)


def run(anthropic, server, key="none"):
    with of(anthropic, server, key) as client:
        settings = dict(model="storyteller", max_tokens=24, messages=STORY, extra_body={"temperature": 0})
        create = lambda **more: client.messages.create(**{**settings, **more})
        m = create()
        assert (m.type, m.role, m.model, m.stop_reason, [b.type for b in m.content]) == ("message", "assistant", "storyteller", "max_tokens", ["text"]), m
        assert m.usage.output_tokens == 24 and m._request_id, m
        with client.messages.stream(**settings) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert text == final.content[0].text == m.content[0].text and final.stop_reason == "max_tokens" and final.usage.output_tokens == 24, final
        events = [e.type for e in create(stream=True)]
        assert events[0] == "message_start" and events[-1] == "message_stop", events
        cut = create(stop_sequences=[text[8:12]])
        assert (cut.content[0].text, cut.stop_reason, cut.stop_sequence) == (text[:8], "stop_sequence", text[8:12]), cut
        n = client.messages.count_tokens(model="storyteller", messages=STORY).input_tokens
        assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens < client.messages.count_tokens(model="storyteller", messages=STORY, system="Be brief.").input_tokens
        assert client.beta.messages.create(**settings).content[0].text == text
        assert [x.id for x in client.models.list()] == ["storyteller"] and client.models.retrieve("storyteller").created_at.year > 2000
        error = raises(anthropic.BadRequestError, lambda: create(messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x/"}}]}]))
        assert "image" in error.message and error.body["error"]["type"] == "invalid_request_error" and error.request_id, error
        raises(anthropic.NotFoundError, lambda: create(model="other"))
        assert "prompt is too long" in raises(anthropic.BadRequestError, lambda: create(messages=[{"role": "user", "content": "frog " * 3000}])).message
    if key != "none":
        with of(anthropic, server, "wrong") as client:
            raises(anthropic.AuthenticationError, lambda: client.messages.create(**settings))


def calls(anthropic, server):
    with of(anthropic, server) as client:
        settings = dict(model=client.models.list().data[0].id, max_tokens=200, messages=STORY, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True})
        m = client.messages.create(**settings, extra_body={"temperature": 0})
        (call,) = m.content
        assert m.stop_reason == "tool_use" and (call.type, call.name) == ("tool_use", "look") and len(call.input["at"]) <= 10, m
        with client.messages.stream(**settings, extra_body={"temperature": 0}) as stream:
            kinds = {e.type for e in stream}
            final = stream.get_final_message()
        assert "input_json" in kinds and final.content[0].input == call.input and final.stop_reason == "tool_use", final
        turns = [*STORY, {"role": "assistant", "content": m.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "an owl"}]}]
        assert client.messages.create(**{**settings, "messages": turns, "tool_choice": {"type": "auto"}, "max_tokens": 8}).usage.output_tokens > 0
