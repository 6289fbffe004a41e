#!/usr/bin/env python3
"""calls_table_test.py MINERVA: every row of calls_table.py, said by a model that replays it: as a whole and streamed, with marks as tokens and as text. The same rows cut by
max_tokens leave no mark in the content and no call open but the last; with tool_choice required no text at all."""
import http.client
import json
import re
import sys
import tempfile

import messages
import responses
import served
from calls_table import FORMS, OPENS, ROWS, TOKENS_ONLY, TOOLS, USUAL
from replay import GO, Replay

MINERVA = sys.argv[1]
bad, n_tried = [], 0


# Messages has no chat_template_kwargs: what a prompt ends with is told by the effort.
EFFORTS = {"think": "high", **dict.fromkeys(USUAL.values(), "low")}


def template(form, hint):
    own = {k: OPENS[k] for k in ("think", USUAL.get(form)) if k}
    tails = "".join("{%% if opens == %s or reasoning_effort == %s %%}{{ %s }}{%% endif %%}" % (json.dumps(k), json.dumps(EFFORTS.get(k, "none")), json.dumps(v)) for k, v in own.items())
    return "{% if false %}{% raw %}" + hint + "{% endraw %}{% endif %}{{ '" + GO + "' }}{{ messages[-1].content }}" + tails


class Client:
    def __init__(self, server):
        host, port = re.match(r"http://([\d.]+):(\d+)", server.url).groups()
        self.connection = http.client.HTTPConnection(host, int(port), timeout=served.LIMIT)

    def ask(self, body):
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body))
        r = self.connection.getresponse()
        text = r.read().decode()
        assert r.status == 200, text
        return text

    def whole(self, body):
        choice = json.loads(self.ask(body))["choices"][0]
        m = choice["message"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls") or []]
        return m["content"] or "", m.get("reasoning_content") or "", calls, choice["finish_reason"]

    def streamed(self, body):
        content, reasoning, calls, finish = "", "", {}, None
        for line in self.ask({**body, "stream": True}).split("\n"):
            if not line.startswith("data: {"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            delta, finish = choice["delta"], choice["finish_reason"] or finish
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            for c in delta.get("tool_calls") or []:
                f = c["function"]
                if "id" in c:
                    assert c["index"] == len(calls) and f["name"], line
                    calls[c["index"]] = [f["name"], ""]
                calls[c["index"]][1] += f["arguments"]
        return content, reasoning, [tuple(c) for c in calls.values()], finish


def read(arguments):
    try:
        return json.loads(arguments)
    except ValueError:
        return "no JSON: " + arguments


def check(what, ok, found):
    global n_tried
    n_tried += 1
    if not ok:
        bad.append(what)
        print("WRONG %s: %r" % (what, found))


def check_row(c, name, body, want):
    calls = want.get("calls", [])
    wanted = (want.get("content", ""), want.get("reasoning", ""), calls, want.get("finish", "tool_calls" if calls else "stop"))
    whole, streamed = c.whole(body), c.streamed(body)
    check(name, (whole[0], whole[1], [(n, read(a)) for n, a in whole[2]], whole[3]) == wanted, whole)
    check(name + ", streamed", streamed == whole, streamed)
    check_messages(c, name, body, wanted)
    check_responses(c, name, body, wanted)


def check_responses(c, name, body, wanted):
    """The same row by OpenAI Responses."""
    if set(body) - {"messages", "max_tokens", "tools", "chat_template_kwargs"}:
        return
    ask = {"input": body["messages"], "max_output_tokens": body["max_tokens"], "tools": [{"type": "function", **t["function"]} for t in body["tools"]],
           "chat_template_kwargs": body["chat_template_kwargs"]}
    want = (*wanted[:3], "completed")
    for how in (responses.post, responses.streamed):
        found = how(c.connection, ask)
        text, thinking, calls, status = responses.parts(found)
        check("%s, responses.%s" % (name, how.__name__), (text, thinking, calls, status) == want, found)


def check_messages(c, name, body, wanted):
    """The same row by Anthropic Messages."""
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in body["tools"]]
    opens = body["chat_template_kwargs"]["opens"]
    ask = {"messages": body["messages"], "max_tokens": body["max_tokens"], "tools": tools, "thinking": {"type": "adaptive"}}
    if opens:
        ask["output_config"] = {"effort": EFFORTS[opens]}
    if set(body) - {"messages", "max_tokens", "tools", "chat_template_kwargs"}:
        return
    want = (*wanted[:3], {"tool_calls": "tool_use", "stop": "end_turn"}[wanted[3]])
    for how in (messages.post, messages.streamed):
        found = how(c.connection, ask)
        check("%s, messages.%s" % (name, how.__name__), messages.parts(found) == want, found)


def check_cut(c, name, body, want, n, i):
    """The content is a beginning of what it is, and only the last call may be open. Other places in each row."""
    for most in sorted({max(1, n * k // 13) for k in range(1 + i % 4, 13, 4)}):
        for how in (c.whole, c.streamed):
            content, _, calls, finish = how({**body, "max_tokens": most})
            if finish != "length":
                continue
            ok = want.get("content", "").startswith(re.sub(r"[<>\[]?\s*$", "", content))  # one byte may be text
            ok = ok and [n for n, _ in calls] == [n for n, _ in want.get("calls", [])][:len(calls)]
            check("%s, cut at %d" % (name, most), ok and all(isinstance(read(a), dict) for _, a in calls[:-1]), (content, calls))


def check_form(form, as_tokens):
    hint, marks = FORMS[form]
    rows = [r for r in ROWS if r[0] == form and r[3].get("tokens" if as_tokens else "text", True)]
    with tempfile.TemporaryDirectory() as folder:
        # marks of calls are control tokens in some vocabularies, and in others not; tags of thinking are not
        model = Replay(folder, template(form, hint), marks if as_tokens else [], [m for m in marks if "think>" not in m])
        model.save([output for _, _, output, _ in rows])
        with served.Server(MINERVA, "--parallel", 1, model=folder) as s:
            c = Client(s)
            for i, (_, title, output, want) in enumerate(rows):
                opens = want.get("opens", USUAL.get(form, ""))
                length = model.at(i) - 1 - len(model.ids(OPENS[opens]))
                body = {"messages": [{"role": "user", "content": "x" * length}], "tools": TOOLS, "max_tokens": 400,
                        "chat_template_kwargs": {"opens": opens}, **want.get("ask", {})}
                name = "%s (%s): %s" % (form, "tokens" if as_tokens else "text", title)
                check_row(c, name, body, want)
                if want.get("cut", True):
                    check_cut(c, name, body, want, len(model.ids(output)), i)
                if i == 0 and form != "harmony":
                    for most in (1, 2, 5, 9, 14, 20):
                        content, _, calls, finish = c.whole({**body, "tool_choice": "required", "max_tokens": most})
                        check("%s: forced, cut at %d" % (form, most), not content and (finish == "length" or calls), (content, calls, finish))


for form, (_, marks) in FORMS.items():
    for as_tokens in [False, True]:
        if (as_tokens and not marks) or (not as_tokens and form in TOKENS_ONLY):
            continue
        check_form(form, as_tokens)
print("%d rows, %d checks, %d wrong" % (len(ROWS), n_tried, len(bad)))
sys.exit(bool(bad))
