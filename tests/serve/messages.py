"""Anthropic Messages from outside, for tests that have a server: post(connection, body) and streamed(connection, body) give a message, the second one joined from a stream whose
events are checked; check(connection, limit) tries requests, answers and errors of the demo model."""
import json

PATH = "/v1/messages"
STORY = [{"role": "user", "content": "Tell me a story about a frog."}]
DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking"), "tool_use": ("input_json_delta", "partial_json")}


def ask(connection, body, path=PATH, headers=None):
    connection.request("POST", path, json.dumps(body), headers or {})
    r = connection.getresponse()
    return r.status, r, r.read().decode()


def post(connection, body):
    status, r, text = ask(connection, body)
    assert status == 200 and r.getheader("request-id") == r.getheader("X-Request-Id"), text
    m = json.loads(text)
    assert (m["type"], m["role"], m["id"][:4]) == ("message", "assistant", "msg_"), m
    return m


def events_of(text):
    """Each event has its name in a line of its own and in its data; nothing else is there."""
    for event in text.split("\n\n")[:-1]:
        name, data = event.split("\n")
        data = json.loads(data.removeprefix("data: "))
        assert name == "event: " + data["type"], event
        yield data


def join(text):
    events = [e for e in events_of(text) if e["type"] != "ping"]
    assert [e["type"] for e in (events[0], *events[-2:])] == ["message_start", "message_delta", "message_stop"], text
    m, opened = events[0]["message"], None
    assert m["content"] == [] and m["stop_reason"] is None, m
    for e in events[1:-2]:
        if e["type"] == "content_block_start":
            assert opened is None and e["index"] == len(m["content"]), e
            opened, joined = e["content_block"], ""
            m["content"].append(opened)
            continue
        assert opened is not None and e["index"] == len(m["content"]) - 1, e
        if e["type"] == "content_block_stop":
            if opened["type"] == "tool_use":
                opened["input"] = json.loads(joined or "{}")
            else:
                opened[opened["type"]] = joined
            opened = None
        elif e["delta"]["type"] != "signature_delta":
            kind, name = DELTAS[opened["type"]]
            assert e["type"] == "content_block_delta" and e["delta"]["type"] == kind, e
            joined += e["delta"][name]
    assert opened is None
    return {**m, **events[-2]["delta"], "usage": events[-2]["usage"]}


def streamed(connection, body):
    status, r, text = ask(connection, {**body, "stream": True})
    assert status == 200 and r.getheader("Content-Type") == "text/event-stream" and r.getheader("request-id"), text
    return join(text)


def parts(m):
    """(text, thinking, calls, stop reason) of a message."""
    of = lambda kind, name: "".join(b[name] for b in m["content"] if b["type"] == kind)
    return of("text", "text"), of("thinking", "thinking"), [(b["name"], b["input"]) for b in m["content"] if b["type"] == "tool_use"], m["stop_reason"]


def refused(connection, body, status, kind, word, path=PATH):
    found, r, text = ask(connection, body, path)
    answer = json.loads(text)
    assert found == status and answer["type"] == "error" and answer["error"]["type"] == kind and word in answer["error"]["message"], (body, text)
    assert answer["request_id"] == r.getheader("request-id"), text


def check(connection, limit):
    """limit: of the context."""
    base = {"messages": STORY, "temperature": 0, "max_tokens": 12}
    a = post(connection, base)
    text = parts(a)[0]
    assert [b["type"] for b in a["content"]] == ["text"] and text and (a["stop_reason"], a["stop_sequence"]) == ("max_tokens", None), a
    assert parts(streamed(connection, base)) == parts(a)
    # the same prompt in other forms, and the chat's
    blocks = [{"role": "user", "content": [{"type": "text", "text": STORY[0]["content"], "cache_control": {"type": "ephemeral"}}]}]
    ignored = {"metadata": {"user_id": "x"}, "service_tier": "auto", "tools": [{"type": "web_search_20250305", "name": "web_search"}], "mcp_servers": []}
    assert parts(post(connection, {**base, "messages": blocks, **ignored})) == parts(a)
    chat_of = lambda body: json.loads(ask(connection, body, "/v1/chat/completions")[2])
    chat = chat_of(base)
    assert chat["choices"][0]["message"]["content"] == text, (chat, text)
    n = chat["usage"]["prompt_tokens"]
    assert a["usage"]["input_tokens"] + a["usage"]["cache_read_input_tokens"] == n and a["usage"]["output_tokens"] == 12, a
    # tokens are counted with everything that is in the prompt
    def count(**more):
        status, r, text = ask(connection, {"messages": STORY, **more}, PATH + "/count_tokens?beta=true")
        assert status == 200 and r.getheader("request-id"), text
        return json.loads(text)["input_tokens"]
    assert count() == n < count(system="Be brief.") == count(system=[{"type": "text", "text": "Be brief."}])
    line = "x-anthropic-billing-header: v=1; cch=%s;"
    cached = [post(connection, {**base, "system": [{"type": "text", "text": (line % h) + " Be brief. " * 30}]})["usage"] for h in ("a1b2c", "9f8e7")]
    assert cached[1]["cache_read_input_tokens"] > cached[1]["input_tokens"], cached
    told = [count(system="x-anthropic-billing-header: v=1;%scch=%s;" % (end, h)) for end in (" ", "\n") for h in ("frog frog", "0" * 9)]
    assert told[0] == told[1] and told[2] != told[3], told  # behind its first line the text is the user's
    # the answer continues the assistant's text; ends
    begun = {**base, "messages": STORY + [{"role": "assistant", "content": "Once upon a"}]}
    assert parts(post(connection, begun))[0] == chat_of({**begun, "continue_final_message": True})["choices"][0]["message"]["content"]
    cut = post(connection, {**base, "stop_sequences": ["not there", text[3:9]]})
    assert (parts(cut)[0], cut["stop_reason"], cut["stop_sequence"]) == (text[:3], "stop_sequence", text[3:9]), cut
    whole = post(connection, {**base, "max_tokens": 32000})
    assert whole["stop_reason"] == "end_turn" and parts(streamed(connection, {**base, "max_tokens": 32000})) == parts(whole), whole
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"], "additionalProperties": False}
    formed = post(connection, {**base, "max_tokens": 60, "output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert 1 <= json.loads(parts(formed)[0])["age"] <= 9, formed
    # turns with calls and their results
    use = {"type": "tool_use", "id": "toolu_123456789", "name": "look", "input": {"at": "owl"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_123456789", "content": [{"type": "text", "text": "an owl"}]}
    turns = STORY + [{"role": "assistant", "content": [{"type": "thinking", "thinking": "I look.", "signature": ""}, {"type": "redacted_thinking", "data": "x"}, use]},
                     {"role": "user", "content": [{"type": "text", "text": "So?"}, result]}]
    post(connection, {**base, "messages": turns})
    # errors
    wrong = "invalid_request_error"
    of = lambda content, role="user": {**base, "messages": [{"role": role, "content": content}]}
    for body, word in ((of([{"type": "image", "source": {"type": "url", "url": "x"}}]), 'content[0]: found a block of type "image"'),
                       (of([use]), '"tool_use" in a message of role user'), (of(3), "messages[0].content"), (of("x", "tool"), "messages[0].role"), ({**base, "messages": []}, "messages:"),
                       (of([{**result, "content": [{"type": "image"}]}]), "text only"), (of([{"type": "document", "source": {"type": "base64"}}]), "document"),
                       ({**base, "mcp_servers": [{"url": "x"}]}, "mcp_servers"), ({**base, "temperature": "warm"}, "temperature"), ({**base, "stop_sequences": "x"}, "stop_sequences"),
                       ({**base, "tools": [{"name": "x"}]}, "tools[0]"), ({**base, "tool_choice": {"type": "some"}}, "tool_choice"), ({**base, "thinking": {"type": "much"}}, "thinking"),
                       ({**base, "output_config": {"effort": "huge"}}, "effort"), ({**base, "output_config": {"format": {"type": "xml"}}}, "format"), ({**base, "system": 3}, "system"),
                       ({**base, "output_config": 3}, "output_config:"), ({**base, "stop_sequences": [3]}, "stop_sequences: "), ({**base, "tool_choice": {"type": "any"}}, "there are no tools"),
                       ({**base, "output_config": {"format": {"type": "json_schema", "schema": 3}}}, "output_config.format: "),
                       (of("frog " * 3 * limit), "prompt is too long: ")):
        refused(connection, body, 400, wrong, word)
        refused(connection, {**body, "stream": True}, 400, wrong, word)
    refused(connection, of("frog " * 3 * limit), 400, wrong, " tokens > %d maximum" % limit)
    refused(connection, {**base, "model": "gpt-9"}, 404, "not_found_error", "gpt-9")
    refused(connection, {"model": "gpt-9", **base}, 404, "not_found_error", "gpt-9", PATH + "/count_tokens")
    refused(connection, base, 404, "not_found_error", "no such path", PATH + "/batches")
    connection.request("GET", PATH)
    r = connection.getresponse()
    assert r.status == 405 and json.loads(r.read())["type"] == "error"
