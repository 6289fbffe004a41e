"""OpenAI's client with Responses against `minerva serve`, as its users call it: run(openai, client) with a server of the demo model, calls(client) with one that calls tools.
client_test.py starts them."""

STORY = "Tell me a story."
TOOL = {"type": "function", "name": "look", "description": "looks", "strict": True,
        "parameters": {"type": "object", "properties": {"at": {"type": "string", "maxLength": 10}}, "required": ["at"], "additionalProperties": False}}


def raises(kind, call, **fields):
    try:
        call()
    except kind as error:
        assert all(getattr(error, name) == value for name, value in fields.items()), error.body
        return error
    raise AssertionError("%s was expected" % kind.__name__)


def run(openai, client):
    import pydantic

    class Age(pydantic.BaseModel):
        age: int = pydantic.Field(ge=1, le=9)
    settings = dict(model="storyteller", input=STORY, max_output_tokens=24, temperature=0)
    create = lambda **more: client.responses.create(**{**settings, **more})
    r = create(metadata={"a": "b"})
    assert (r.object, r.model, r.status, r.incomplete_details.reason, r.metadata, [x.type for x in r.output]) == \
        ("response", "storyteller", "incomplete", "max_output_tokens", {"a": "b"}, ["message"]), r
    chat = client.chat.completions.create(model="storyteller", messages=[{"role": "user", "content": STORY}], max_tokens=24, temperature=0)
    assert r.output_text == chat.choices[0].message.content and r.usage.output_tokens == 24 and r.usage.input_tokens == chat.usage.prompt_tokens, r
    assert create(max_output_tokens=900).status == "completed"
    # streams
    events = list(create(stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events))) and [e.type for e in (events[0], events[-1])] == ["response.created", "response.incomplete"], events
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == events[-1].response.output_text == r.output_text, events
    with client.responses.stream(**{**settings, "max_output_tokens": 900}) as stream:
        kinds = {e.type for e in stream}
        final = stream.get_final_response()
    assert "response.output_text.done" in kinds and final.status == "completed" and final.output_text.startswith(r.output_text), final
    # forms
    assert 1 <= client.responses.parse(**{**settings, "max_output_tokens": 60}, text_format=Age).output_parsed.age <= 9
    chat = client.beta.chat.completions if hasattr(client.beta, "chat") else client.chat.completions
    assert 1 <= chat.parse(model="storyteller", messages=[{"role": "user", "content": STORY}], response_format=Age, temperature=0).choices[0].message.parsed.age <= 9
    # what is kept
    more = create(input="And then?", previous_response_id=r.id)
    assert client.responses.retrieve(more.id).output_text == more.output_text
    assert [x.role for x in client.responses.input_items.list(more.id)] == ["user", "assistant", "user"]
    assert client.responses.input_tokens.count(model="storyteller", input="And then?", previous_response_id=r.id).input_tokens == more.usage.input_tokens
    client.responses.delete(more.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(more.id), code="response_not_found")
    raises(openai.NotFoundError, lambda: create(previous_response_id=more.id), code="previous_response_not_found", param="previous_response_id")
    # errors
    raises(openai.NotFoundError, lambda: create(model="other"), code="model_not_found")
    raises(openai.BadRequestError, lambda: create(background=True), param="background")
    raises(openai.BadRequestError, lambda: create(temperature=-1), param="temperature")
    raises(openai.BadRequestError, lambda: create(input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "low"}]}]), param="input")
    raises(openai.BadRequestError, lambda: create(input="frog " * 3000), code="context_length_exceeded", param="input")


def calls(client):
    settings = dict(model=client.models.list().data[0].id, input=STORY, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, temperature=0, max_output_tokens=200)
    r = client.responses.create(**settings)
    (call,) = r.output
    assert r.status == "completed" and (call.type, call.name) == ("function_call", "look") and call.call_id.startswith("call_"), r
    with client.responses.stream(**settings) as stream:
        pieces = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert "".join(pieces) == final.output[0].arguments == call.arguments and len(pieces) > 2, final
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "an owl"}
    by_items = client.responses.create(**{**settings, "input": [{"role": "user", "content": STORY}, call, output], "tool_choice": "none", "max_output_tokens": 8})
    by_id = client.responses.create(**{**settings, "input": [output], "previous_response_id": r.id, "tool_choice": "none", "max_output_tokens": 8})
    assert by_items.usage.input_tokens == by_id.usage.input_tokens and by_items.output_text == by_id.output_text, (by_items, by_id)
