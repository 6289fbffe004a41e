"""OpenAI Responses from outside, for tests that have a server: post(connection, body) and streamed(connection, body) give a response, the second one joined from a stream whose
events are checked; check(connection, limit) tries requests, answers, errors and what is kept, of the demo model."""
import json

PATH = "/v1/responses"
STORY = "Tell me a story about a frog."
# the events of an item between `added` and `done`
TEXTS = {"message": ("output_text", "text"), "reasoning": ("reasoning_text", "text"), "function_call": ("function_call_arguments", "arguments")}


def ask(connection, body, path=PATH, method="POST", headers=None):
    connection.request(method, path, None if body is None else json.dumps(body), headers or {})
    r = connection.getresponse()
    return r.status, r, r.read().decode()


def get(connection, path, method="GET"):
    status, _, text = ask(connection, None, PATH + "/" + path, method)
    assert status == 200, text
    return json.loads(text)


def post(connection, body):
    status, r, text = ask(connection, body)
    assert status == 200 and r.getheader("X-Request-Id"), text
    m = json.loads(text)
    assert (m["object"], m["id"][:5], m["error"]) == ("response", "resp_", None) and m["usage"]["total_tokens"] == m["usage"]["input_tokens"] + m["usage"]["output_tokens"], m
    return m


def events_of(text):
    """Each event has its name in a line of its own and in its data, and the next number."""
    for i, event in enumerate(text.split("\n\n")[:-1]):
        name, data = event.split("\n")
        data = json.loads(data.removeprefix("data: "))
        assert name == "event: " + data["type"] and data["sequence_number"] == i, event
        yield data


def join(text):
    events = list(events_of(text))
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert kinds[:2] == ["created", "in_progress"] and kinds[-1] in ("completed", "incomplete") and not set(kinds[2:-1]) & {"created", "in_progress", "completed"}, kinds
    assert all((e["response"]["status"], e["response"]["output"], e["response"]["usage"]) == ("in_progress", [], None) for e in events[:2]), text
    done, item, joined = [], None, ""
    for e, kind in zip(events[2:-1], kinds[2:-1]):
        if kind == "output_item.added":
            assert item is None and e["output_index"] == len(done), e
            item, joined, seen = e["item"], "", []
            delta, member = TEXTS[item["type"]]
            continue
        assert item is not None and e["output_index"] == len(done), e
        if kind == "output_item.done":
            whole = e["item"]
            found = whole["arguments"] if member == "arguments" else whole["content"][0]["text"]
            assert found == joined and whole["id"] == item["id"] and whole.get("call_id") == item.get("call_id") and whole["status"] != "in_progress", e
            parts = ["content_part.added", "content_part.done"] if item["type"] == "message" else []
            assert seen == parts[:1] + [delta + ".done"] + parts[1:], seen
            done.append(whole)
            item = None
            continue
        assert e["item_id"] == item["id"] and (member == "arguments" or e["content_index"] == 0), e
        if kind == delta + ".delta":
            joined += e["delta"]
            continue
        seen.append(kind)
        if kind == delta + ".done":
            assert e[member] == joined and (member == "text" or e["name"] == item["name"]), e
    assert item is None
    final = events[-1]["response"]
    assert final["output"] == done and final["id"] == events[0]["response"]["id"] and final["status"] == kinds[-1], final
    return final


def streamed(connection, body):
    status, r, text = ask(connection, {**body, "stream": True})
    assert status == 200 and r.getheader("Content-Type") == "text/event-stream", text
    return join(text)


def parts(m):
    """(text, thinking, calls, status) of a response."""
    of = lambda kind: [x for x in m["output"] if x["type"] == kind]
    text = lambda items: "".join(p["text"] for x in items for p in x["content"])
    return text(of("message")), text(of("reasoning")), [(x["name"], json.loads(x["arguments"])) for x in of("function_call")], m["status"]


def refused(connection, body, status, word, param=None, path=PATH, method="POST", code=None):
    found, _, text = ask(connection, body, path, method)
    error = json.loads(text)["error"]
    assert (found, error["param"]) == (status, param) and word in error["message"] and (code is None or error["code"] == code), (body, text)


def keeps(connection, base, first):
    """What is kept: a conversation goes on by the id of its last response; items, removal."""
    chat_of = lambda messages: json.loads(ask(connection, {"messages": messages, "temperature": 0, "max_tokens": 12}, "/v1/chat/completions")[2])["choices"][0]["message"]["content"]
    turns = [{"role": "user", "content": STORY}, {"role": "assistant", "content": parts(first)[0]}, {"role": "user", "content": "And then?"}]
    second = post(connection, {**base, "input": "And then?", "previous_response_id": first["id"]})
    assert parts(second)[0] == chat_of(turns) and second["previous_response_id"] == first["id"], second
    turns += [{"role": "assistant", "content": parts(second)[0]}, {"role": "user", "content": "So?"}]
    third = streamed(connection, {**base, "input": [{"role": "user", "content": "So?"}], "previous_response_id": second["id"], "instructions": "Be brief."})
    assert parts(third)[0] == chat_of([{"role": "system", "content": "Be brief."}] + turns), third
    n = lambda **more: json.loads(ask(connection, {**base, **more}, PATH + "/input_tokens")[2])
    assert n(previous_response_id=first["id"], input="And then?") == {"object": "response.input_tokens", "input_tokens": second["usage"]["input_tokens"]}
    # GET shows what was answered, and the items with the newest first
    assert get(connection, second["id"]) == second and get(connection, third["id"]) == third
    items = get(connection, third["id"] + "/input_items")
    assert [x["role"] for x in items["data"]] == ["user", "assistant"] * 2 + ["user"] and items["data"][0]["content"] == "So?" and not items["has_more"], items
    assert (items["first_id"], items["last_id"]) == (items["data"][0]["id"], items["data"][-1]["id"]) and len({x["id"] for x in items["data"]}) == 5, items
    assert get(connection, second["id"], "DELETE") == {"id": second["id"], "object": "response.deleted", "deleted": True}
    other = post(connection, {**base, "store": False})
    for gone in second["id"], other["id"], "resp_1", "x/input_items", second["id"] + "/more":
        refused(connection, None, 404, "not found", path=PATH + "/" + gone, method="GET")
    refused(connection, None, 404, "not found", path=PATH + "/" + second["id"], method="DELETE", code="response_not_found")
    refused(connection, {**base, "previous_response_id": second["id"]}, 404, second["id"], "previous_response_id", code="previous_response_not_found")
    refused(connection, {**base, "previous_response_id": 3}, 400, "previous_response_id", "previous_response_id")
    assert parts(post(connection, {**base, "input": "So?", "previous_response_id": third["id"]}))[0]  # what it continues stays


def check(connection, limit):
    """limit: of the context."""
    base = {"input": STORY, "temperature": 0, "max_output_tokens": 12}
    a = post(connection, base)
    text = parts(a)[0]
    assert text and (a["status"], a["incomplete_details"], a["max_output_tokens"]) == ("incomplete", {"reason": "max_output_tokens"}, 12), a
    assert parts(streamed(connection, base)) == parts(a)
    # the same prompt in other forms, and the chat's
    chat = json.loads(ask(connection, {"messages": [{"role": "user", "content": STORY}], "temperature": 0, "max_tokens": 12}, "/v1/chat/completions")[2])
    assert (chat["choices"][0]["message"]["content"], chat["usage"]["prompt_tokens"]) == (text, a["usage"]["input_tokens"]), (chat, a)
    ignored = {"metadata": {"k": "v"}, "service_tier": "auto", "tools": [{"type": "web_search"}], "truncation": "auto", "background": False, "include": ["reasoning.encrypted_content"],
               "reasoning": {"summary": "auto"}, "text": {"format": {"type": "text"}}, "prompt_cache_key": "x"}
    b = post(connection, {**base, "input": [{"role": "user", "content": [{"type": "input_text", "text": STORY}]}], **ignored})
    assert parts(b) == parts(a) and b["metadata"] == {"k": "v"} and b["tools"] == ignored["tools"], b
    whole = post(connection, {**base, "max_output_tokens": 32000})
    assert whole["status"] == "completed" and whole["incomplete_details"] is None and parts(streamed(connection, {**base, "max_output_tokens": 32000})) == parts(whole), whole
    logs = {**base, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    for x in post(connection, logs), streamed(connection, logs):
        found = x["output"][0]["content"][0]["logprobs"]
        assert "".join(p["token"] for p in found) == text and len(found) == 12 and all(len(p["top_logprobs"]) == 2 for p in found), x
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"], "additionalProperties": False}
    text_of = lambda form: parts(post(connection, {**base, "max_output_tokens": 60, "text": {"format": form}}))[0]
    assert 1 <= json.loads(text_of({"type": "json_schema", "name": "age", "schema": schema, "strict": True}))["age"] <= 9
    assert text_of({"type": "json_object"}).startswith("{")
    # items of a turn with a call
    turn = [{"role": "user", "content": STORY}, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I look."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So.", "annotations": []}]},
            {"type": "function_call", "call_id": "call_123456789", "name": "look", "arguments": "{\"at\": \"owl\"}"},
            {"type": "function_call_output", "call_id": "call_123456789", "output": "an owl"}]
    counted = json.loads(ask(connection, {"input": turn}, PATH + "/input_tokens")[2])["input_tokens"]
    call = {"id": "123456789", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"owl\"}"}}
    messages = [{"role": "user", "content": STORY}, {"role": "assistant", "content": "So.", "reasoning_content": "I look.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "123456789", "content": "an owl"}]
    assert counted == json.loads(ask(connection, {"messages": messages}, "/tokenize")[2])["count"]
    keeps(connection, base, a)
    # errors
    part = lambda p, role="user": {**base, "input": [{"role": role, "content": [p]}]}
    for body, param, word in ((part({"type": "input_image", "image_url": "x"}), "input", 'input[0].content[0]: found a part of type "input_image"'), ({**base, "input": 3}, "input", "input"),
                              (part({"type": "input_text"}), "input", "its text"), ({**base, "input": []}, "input", "at least one"), ({**base, "input": [3]}, "input", "input[0]"),
                              ({**base, "input": [{"type": "item_reference", "id": "x"}]}, "input", "item_reference"), ({**base, "input": [{"role": "tool", "content": "x"}]}, "input", "role"),
                              ({**base, "input": [{"type": "function_call", "name": "x"}]}, "input", "input[0].call_id"), ({**base, "background": True}, "background", "not supported"),
                              ({**base, "conversation": "conv_1"}, "conversation", "not supported"), ({**base, "prompt": {"id": "x"}}, "prompt", "not supported"),
                              ({**base, "include": ["x"]}, "include", '"x"'), ({**base, "temperature": "warm"}, "temperature", "temperature"), ({**base, "text": 3}, "text", "text"),
                              ({**base, "max_output_tokens": 0}, "max_output_tokens", "max_output_tokens: "), ({**base, "text": {"format": {"type": "xml"}}}, "text.format", "text.format"),
                              ({**base, "text": {"format": {"type": "json_schema", "name": "x", "schema": 3}}}, "text.format", "text.format"),
                              ({**base, "text": {"format": {"type": "json_schema", "name": "x", "schema": {"properties": {"a": {"not": {}}}}}}}, "text.format", "#/properties/a/not"), ({**base, "store": "yes"}, "store", "store"),
                              ({**base, "tools": [{"type": "function"}]}, "tools", "tools[0].name"), ({**base, "tool_choice": {"type": "file_search"}}, "tool_choice", "file_search"),
                              ({**base, "tool_choice": "required"}, "tool_choice", "there are no tools"), ({**base, "instructions": 3}, "instructions", "instructions"),
                              ({**base, "input": "frog " * 3 * limit}, "input", "maximum context length is %d" % limit)):
        refused(connection, body, 400, word, param)
        refused(connection, {**body, "stream": True}, 400, word, param)
    refused(connection, {**base, "model": "gpt-9"}, 404, "gpt-9", "model", code="model_not_found")
    status, r, text = ask(connection, base, PATH + "/resp_1")
    assert status == 405 and r.getheader("Allow") == "GET, DELETE", text


def evicts(connection):
    """A server that keeps 1 MiB: the oldest leave, and what is larger is not kept at all."""
    base = {"input": STORY, "temperature": 0, "max_output_tokens": 1}
    of_size = lambda n: post(connection, {**base, "metadata": {"text": "x" * n}})["id"]
    ids = [of_size(300 << 10) for _ in range(5)]
    for i, one in enumerate(ids):
        if i < 2:
            refused(connection, None, 404, "not found", path=PATH + "/" + one, method="GET")
        else:
            assert get(connection, one)["id"] == one
    refused(connection, {**base, "previous_response_id": of_size(2 << 20)}, 404, "not found", "previous_response_id")
    assert get(connection, ids[4])["id"] == ids[4]
