#!/usr/bin/env python3
"""The web page in headless Chromium: page_test.py MINERVA PAGE [FOLDER FOR SCREENSHOTS [TEST...]].

The page's own behaviour (streams, Markdown, editing, storage, errors) against a server that says what the tests want, and a story
by `minerva serve` with the demo model. Skipped without chromium. Each test is a function test_what(browser); a failed check raises."""
import json
import os
import re
import sys
import threading
import time

import browser
import mock_server
import served

MINERVA, PAGE = sys.argv[1], sys.argv[2]
SHOTS = sys.argv[3] if len(sys.argv) > 3 else None
ONLY = sys.argv[4:]
with open(PAGE, "rb") as f:
    HTML = f.read()

STORY = "Once there was an owl. She had a tin cup.\n\nThe end."
MARKDOWN = """# Title

Text with **bold**, *italic*, `a < b`, ~~gone~~, a [link](https://example.org/x) and [no link](javascript:alert(1)).
snake_case_name stays, 2 * 3 * 4 too, ![picture](https://example.org/p.png)

1. one
   - inner **b**
2. two

> quoted
> more

```python
print("<b>&amp;</b>")  # hello
```

| a | b |
|:--|--:|
| 1 | 2 |

- [x] done
- [ ] open

---

<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>
"""


class Handler(mock_server.Handler):
    """Answers by what the last message says; "hold" streams until the client hangs up."""

    def do_GET(self):
        if self.path == "/":
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", served.POLICY)
            self.send_header("Content-Length", str(len(HTML)))
            self.end_headers()
            self.wfile.write(HTML)
        elif self.path == "/v1/models" and not self.is_refused():
            mock = self.server.mock
            facts = {"device": "cpu_mock", "chat": mock.chat, "sampling": {"temperature": 0.6}}
            self.answer(200, {"object": "list", "data": [{"id": mock.model, "max_model_len": mock.room, "minerva": facts}, *mock.others]})
        elif self.path == "/favicon.ico":
            self.error(404, "none")

    def complete(self, mock, number, body):
        final = body["messages"][-1] if mock.chat else {"role": "user", "content": body["prompt"]}
        last = final["content"]
        if body.get("model") not in [mock.model, *(m["id"] for m in mock.others)]:
            return self.answer(404, {"error": {"message": 'model: found "%s", expected "%s"' % (body.get("model"), mock.model), "code": "model_not_found"}})
        if "fail" in last:
            return self.error(400, "temperature: found 9, expected 0 to 2")
        n_prompt = 10 if mock.room == 512 else sum(len(m["content"]) for m in body["messages"])  # a token for each character
        if n_prompt > mock.room:
            return self.answer(400, {"error": {"message": "This model's maximum context length is %d tokens." % mock.room, "type": "invalid_request_error",
                                               "param": "messages", "code": "context_length_exceeded"}})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def delta(**value):
            if not mock.chat:
                return self.event({"choices": [{"index": 0, "text": value["content"], "finish_reason": None}]})
            self.event({"choices": [{"index": 0, "delta": value, "finish_reason": None}]})

        if mock.chat:
            delta(role="assistant", content="")
        while "long" in last and not mock.release.is_set():
            self.event({"choices": [], "prompt_progress": {"index": 0, "total": 4000, "cache": 0, "processed": 1000, "time_ms": 1}})
            mock.release.wait(0.05)
        if "think" in last:
            for word in ("I ", "should ", "be ", "brief."):
                delta(reasoning_content=word)
        if body.get("tools") and final["role"] == "user":
            for piece in ({"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}},
                          {"index": 0, "function": {"arguments": '{"city": '}}, {"index": 0, "function": {"arguments": '"<b>Rome</b>"}'}}):
                delta(tool_calls=[piece])
            last = ""
        text = MARKDOWN if "markdown" in last else STORY if "story" in last else "echo: " + last if last else ""
        if body.get("continue_final_message"):
            text = " … and more"
        elif "number" in last:  # another answer each time
            text = "answer %d" % number
        for piece in re.findall(r"\s*\S+|\s+$", text):
            delta(content=piece)
        if "cut" in last:
            return self.event({"error": {"message": "the device was lost"}}), self.wfile.write(b"0\r\n\r\n")
        while "hold" in last:
            delta(content=" .")
            time.sleep(0.01)
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length" if "short" in last and not body.get("continue_final_message") else "stop"}], "model": mock.model})
        self.event({"choices": [], "usage": {"prompt_tokens": n_prompt, "completion_tokens": 7, "total_tokens": n_prompt + 7}})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


mock_server.Handler = Handler
mock_server.Server.chat = True  # whether the model has a chat template
mock_server.Server.model, mock_server.Server.room, mock_server.Server.others = "mock", 512, []
LAST = "[...document.querySelectorAll('.message.assistant')].at(-1)"


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def begin(b, url, **how):
    b.open(url, **how)
    b.run("localStorage.clear()")
    b.open(url, **how)
    b.until("document.getElementById('status').className === 'ready'", "the page reaches its server")


def ended(b, n):
    b.until("document.querySelectorAll('.message.assistant').length === %d && !document.querySelector('[aria-busy]')" % n, "answer %d ends" % n)


def ask(b, text, n=None):
    b.run("document.getElementById('input').focus()")
    b.type(text)
    b.key("Enter")
    if n:
        ended(b, n)


def answer(b):
    return b.run(LAST + ".querySelector('.text').innerText")


def messages(server):
    return [[m["content"] for m in q["messages"]] for q in server.requests]


def test_chat(b, s):
    """Two turns: the second request has the first answer; figures and the list of conversations."""
    begin(b, s.url + "/")
    ask(b, "a story, please", 1)
    equal(answer(b), STORY)
    ask(b, "two", 2)
    equal(answer(b), "echo: two")
    equal(messages(s), [["a story, please"], ["a story, please", STORY, "two"]])
    equal((s.requests[0]["stream"], s.requests[0]["stream_options"], s.requests[0]["model"]), (True, {"include_usage": True}, "mock"))
    assert re.search(r"^7 tokens · .*first after", b.run(LAST + ".querySelector('.figures').textContent"))
    equal(b.run("document.getElementById('room').textContent"), "17 of 512 tokens")
    equal(b.run("document.getElementById('title').textContent"), "a story, please")
    equal(b.run("document.activeElement.id"), "input")


def test_markdown(b, s):
    """Markdown as elements, everything else as text; the same nodes while it streams and when it is reloaded."""
    begin(b, s.url + "/")
    ask(b, "markdown", 1)
    count = b.run("""(() => { const t = %s.querySelector('.text'), n = q => t.querySelectorAll(q).length;
        return [n('h1'), n('strong'), n('em'), n('del'), n('ol > li'), n('ol ul li'), n('blockquote p'), n('.code code'), n('td'), n('.task'), n('hr'),
                n('img'), n('script'), n('a')]; })()""" % LAST)
    equal(count, [1, 2, 1, 1, 2, 1, 1, 1, 2, 2, 1, 0, 0, 2])
    equal(b.run("[...document.querySelectorAll('.text a')].map(a => a.href + a.rel)"),
          ["https://example.org/xnoopener noreferrer nofollow", "https://example.org/p.pngnoopener noreferrer nofollow"])
    equal(b.run(LAST + ".querySelector('.code code').textContent"), 'print("<b>&amp;</b>")  # hello')
    text = answer(b)
    for part in ("a < b", "no link", "snake_case_name", "2 * 3 * 4", "<img src=x onerror=", "<script>document.title='broken'</script>"):
        assert part in text, part
    before = b.run(LAST + ".querySelector('.text').outerHTML")
    b.open(s.url + "/")
    b.run("document.querySelector('#list .open').click()")
    equal(b.run(LAST + ".querySelector('.text').outerHTML"), before)
    assert b.run("document.title") != "broken"


def test_hostile(b, s):
    """Markers without ends take linear time: each of these is drawn at once."""
    begin(b, s.url + "/")
    for text in ("**" * 20000, "[" * 20000, "`a" * 20000, "*a _b " * 8000, "> " * 5000, "- " * 5000, "|" * 20000 + "\\n|-|", "#" * 9000, "(" * 9000 + "[a](b",
                 "`" * 5000, "***a**b*" * 4000, "~~~\\n" * 5000, "1. " * 3000, "http://" * 5000, "$a " * 20000, "$a$1" * 10000, "\\\\( " * 20000, "\\\\[\\n" * 10000,
                 "$$\\n" * 10000, "$" + "{" * 900 + "$", "$" + "\\\\sqrt" * 190 + "$", "\\\\[" + "x_{" * 1300 + "\\\\]", "\\\\begin{align}\\n" * 5000, "$$" * 20000):
        b.run("showMarkdown(document.createElement('div'), '%s')" % text)


PARTS = ["<img src=x onerror=document.title=1>", "<script>document.title=1</script>", "<a href='javascript:1'>", "[x](javascript:alert(1))", "[x](data:text/html,x)", "![x](//x)", "<!--", "&lt;",
         "$", "$$", "\\(", "\\)", "\\[", "\\]", "\\frac", "\\sqrt", "\\left(", "\\right)", "\\begin{pmatrix}", "\\end{pmatrix}", "\\begin{align}", "\\end{align}", "&", "\\\\", "\\href{javascript:x}",
         "\\text{<b>}", "\\mathbb{R}", "\\overset", "\\hat", "{", "}", "^", "_", "'", "#", "%", "x", "1", ".", " ", "\n", "\n\n", "`", "```html\n", "```\n", "**", "*", "> ", "- ", "1. ", "# ", "| a |", "|-|",
         "---", "http://x/\"onclick=1", "\u202e", "\u0000", "~~"]


def test_random(b, s):
    """Marks, formulas and HTML at random: elements and attributes that the page makes, and no others; the same when the text comes in pieces."""
    begin(b, s.url + "/")
    found = b.run("""(() => { const parts = %s, made = new Set(), wrong = []; let dice = 1;
        const roll = n => (dice = (Math.imul(dice, 1664525) + 1013904223) >>> 0, (dice >>> 8) %% n);
        for (let i = 0; i < 600; i++) {
            let text = ''; for (let k = roll(40); k >= 0; k--) text += parts[roll(parts.length)];
            const whole = document.createElement('div'), pieces = document.createElement('div');
            showMarkdown(whole, text);
            for (let n = 1; n < text.length; n += 1 + roll(40)) showMarkdown(pieces, text.slice(0, n));
            showMarkdown(pieces, text);
            if (whole.innerHTML !== pieces.innerHTML) wrong.push(text);
            for (const e of whole.querySelectorAll('*')) {
                made.add(e.localName);
                for (const a of e.attributes) made.add(a.name + (a.name === 'href' && !/^(https?:|mailto:)/.test(a.value) ? ' ' + a.value : '') + (a.name === 'style' && !/^[a-z-]+: [a-z0-9 ]+;( [a-z-]+: [a-z0-9 ]+;)?$/.test(a.value) ? ' ' + a.value : ''));
            }
        }
        return [[...made].sort(), wrong.slice(0, 2)]; })()""" % json.dumps(PARTS))
    equal(found[1], [])
    html = {"a", "blockquote", "br", "button", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p", "path", "pre", "span", "strong", "svg", "table", "tbody", "td", "th", "thead", "tr", "ul"}
    mathml = {"math", "mi", "mn", "mo", "mrow", "ms", "mspace", "msub", "msup", "msubsup", "mfrac", "msqrt", "mroot", "mtable", "mtr", "mtd", "mtext", "mover", "munder", "munderover"}
    attributes = {"accent", "aria-hidden", "aria-label", "class", "d", "disabled", "display", "displaystyle", "fence", "href", "mathvariant", "rel", "role", "start", "stretchy", "style", "tabindex",
                  "target", "title", "type", "viewBox", "width"}
    equal(set(found[0]) - html - mathml - attributes, set())


def formula(b, text):
    """The elements that a formula becomes, as nested lists with their texts; None: it stays text."""
    return b.run("""(() => { const parent = document.createElement('div'); showMarkdown(parent, %s); const m = parent.querySelector('math');
        const tree = n => n.children.length ? n.localName + '(' + [...n.children].map(tree).join(' ') + ')' : n.localName + ':' + n.textContent;
        return m ? tree(m) : null; })()""" % json.dumps(text))


def written(b, text):
    return b.run("(() => { const parent = document.createElement('div'); showMarkdown(parent, %s); return parent.textContent; })()" % json.dumps(text))


def test_formulas(b, s):
    """LaTeX becomes MathML; what is not known stays as it is written, backslashes included; prices and code are no formulas."""
    begin(b, s.url + "/")
    for text, want in ((r"so \(x^2\) is", "math(msup(mi:x mn:2))"), (r"$\frac{1}{2}$", "math(mfrac(mn:1 mn:2))"), (r"$a_i^{n+1}$", "math(msubsup(mi:a mi:i mrow(mi:n mo:+ mn:1)))"),
                       ("\\[\n\\sum_{i=1}^n i\n\\]", "math(mrow(munderover(mo:∑ mrow(mi:i mo:= mn:1) mi:n) mi:i))"), (r"$$\sqrt[3]{x}$$", "math(mroot(mi:x mn:3))"),
                       (r"$\alpha\le\mathbb{R}$", "math(mrow(mi:α mo:≤ mi:ℝ))"), (r"\(f'(x)\)", "math(mrow(msup(mi:f mo:′) mo:( mi:x mo:)))"), (r"$\text{if } x$", "math(mrow(mtext:if\u00a0 mi:x))"),
                       (r"$\left( \frac a b \right]$", "math(mrow(mo:( mfrac(mi:a mi:b) mo:]))"), (r"$\lim_{x \to 0} \sin x$", "math(mrow(munder(mi:lim mrow(mi:x mo:→ mn:0)) mi:sin mi:x))"),
                       (r"$3.14 \times 10^{-2}$", "math(mrow(mn:3.14 mo:× msup(mn:10 mrow(mo:− mn:2))))"), (r"$\hat{x}$", "math(mover(mi:x mo:^))"),
                       ("\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}", "math(mrow(mo:( mtable(mtr(mtd(mi:a) mtd(mi:b)) mtr(mtd(mi:c) mtd(mi:d))) mo:)))"),
                       ("$$\n\\begin{aligned}\na &= b \\\\\n&= c\n\\end{aligned}\n$$", "math(mrow(mtable(mtr(mtd(mi:a) mtd(mrow(mo:= mi:b))) mtr(mtd(mrow:) mtd(mrow(mo:= mi:c))))))")):
        equal(formula(b, text), want)
    for text in (r"\(\unknown{x}_a*b*c_d\)", "\\[ \\href{javascript:alert(1)}{x} \\\\ *a* \\]", r"$\frac{1}$", r"$x^{$", r"\(a", r"$$ \left( x $$", r"$\def\a{\a\a}\a$", r"\(<img src=x onerror=alert(1)>\unknown\)"):
        equal((formula(b, text), written(b, text)), (None, text))
    for text in ("it costs $5 and $10", "$5-$10", "US$5 or US$7", "$HOME:$PATH", "a $ b $ c"):
        equal((formula(b, text), written(b, text)), (None, text))
    equal((formula(b, "`$x$` and\n```\n\\(x\\)\n```"), formula(b, "- item $x$\n"), formula(b, "# Title $x$")), (None, "math(mi:x)", "math(mi:x)"))
    equal(b.run("(() => { const p = document.createElement('div'); showMarkdown(p, '$<img src=x onerror=alert(1)>$ $\\\\text{<script>x</script>}$'); return p.querySelectorAll('img, script').length; })()"), 0)
    b.run("navigator.clipboard.writeText = text => { window.copied = text; }")
    ask(b, r"\(x^2\)", 1)
    b.run(LAST + ".querySelector('[aria-label=Copy]').click()")
    equal(b.run("window.copied"), r"echo: \(x^2\)")


def test_plain(b, s):
    """A model without a chat template continues the text."""
    s.chat = False
    begin(b, s.url + "/")
    assert "continues the text" in b.run("document.getElementById('promise').textContent")
    ask(b, "It was ", 1)
    equal(answer(b), "echo: It was")
    ask(b, "late", 2)
    equal([(q["path"], q["prompt"], q["max_tokens"]) for q in s.requests],
          [("/v1/completions", "It was", 256), ("/v1/completions", "It wasecho: It waslate", 256)])


def test_thinking(b, s):
    begin(b, s.url + "/")
    ask(b, "think", 1)
    equal(b.run(LAST + ".querySelector('details').open"), False)
    equal(b.run(LAST + ".querySelector('details .inner').textContent"), "I should be brief.")
    equal(answer(b), "echo: think")
    ask(b, "next", 2)
    equal(messages(s)[-1], ["think", "echo: think", "next"])  # thinking is not sent back


def test_stop(b, s):
    """Escape ends the answer; what came stays, and the request is cancelled."""
    begin(b, s.url + "/")
    ask(b, "hold on")
    b.until(LAST + " && " + LAST + ".textContent.includes('echo: hold on . .')")
    equal(b.run("[document.getElementById('stop').hidden, document.getElementById('send').hidden]"), [False, True])
    b.key("Escape")
    ended(b, 1)
    equal(b.run(LAST + ".querySelector('.note').textContent"), "Stopped.")
    assert answer(b).startswith("echo: hold on . .")
    until = time.monotonic() + 30
    while s.now and time.monotonic() < until:
        time.sleep(0.02)
    equal(s.now, 0)


def test_edit_and_retry(b, s):
    begin(b, s.url + "/")
    ask(b, "one", 1)
    ask(b, "two", 2)
    b.run(LAST + ".querySelector('[aria-label=\"Another answer\"]').click()")
    ended(b, 2)
    equal(messages(s)[-1], ["one", "echo: one", "two"])
    b.key("ArrowUp")  # nothing is typed: edits the last message
    equal(b.run("document.activeElement.value"), "two")
    b.key("Escape")
    equal(b.run("document.querySelectorAll('.message').length"), 4)
    b.run("document.querySelector('.message.user [aria-label=Edit]').click()")
    b.run("document.activeElement.select()")
    b.type("uno")
    b.key("Enter")
    ended(b, 1)
    equal(messages(s)[-1], ["uno"])
    equal(answer(b), "echo: uno")
    equal(b.run("document.querySelector('#list .open').textContent"), "uno")


def shown(b):
    """The texts of the conversation, and the versions of each message that has some."""
    return b.run("[...document.querySelectorAll('.message')].map(m => [m.querySelector('.text').innerText, (m.querySelector('.versions > span') || {}).textContent || ''].join('|'))")


def turn(b, message, label):
    b.run("document.querySelectorAll('.message')[%d].querySelector('[aria-label=\"Version %s\"]').click()" % (message, label))


def edit_to(b, message, text):
    b.run("document.querySelectorAll('.message')[%d].querySelector('[aria-label=Edit]').click(); document.activeElement.select()" % message)
    b.type(text)
    b.key("Enter")


def test_versions(b, s):
    """Edited messages and other answers keep what was there, with all that followed, also over a reload; the request has what is shown."""
    begin(b, s.url + "/")
    ask(b, "one number", 1)
    first = answer(b)
    ask(b, "two", 2)
    b.run("document.querySelectorAll('[aria-label=\"Another answer\"]')[0].click()")
    ended(b, 1)
    second = answer(b)
    equal(shown(b), ["one number|", second + "|2 / 2"])
    turn(b, 1, "before")
    equal(shown(b), ["one number|", first + "|1 / 2", "two|", "echo: two|"])
    edit_to(b, 2, "three")
    ended(b, 2)
    edit_to(b, 0, "four")
    ended(b, 1)
    equal((shown(b), messages(s)[-1]), (["four|2 / 2", "echo: four|"], ["four"]))
    b.run("location.reload()")
    b.until("document.readyState === 'complete' && document.querySelectorAll('.message').length === 2 && document.getElementById('status').className === 'ready'")
    turn(b, 0, "before")
    equal(shown(b), ["one number|1 / 2", first + "|1 / 2", "three|2 / 2", "echo: three|"])
    turn(b, 2, "before")
    equal(shown(b)[2:], ["two|1 / 2", "echo: two|"])
    turn(b, 1, "after")
    equal(shown(b), ["one number|1 / 2", second + "|2 / 2"])
    ask(b, "five", 2)
    equal(messages(s)[-1], ["one number", second, "five"])
    # an answer that failed before it began is no version
    ask(b, "fail", 3)
    b.run(LAST + ".querySelector('.failure button').click()")
    ended(b, 3)
    equal(b.run(LAST + ".querySelectorAll('.versions').length"), 0)
    b.problems = [p for p in b.problems if "400" not in p]


def test_continue(b, s):
    """The last answer goes on where it ended, as one message."""
    begin(b, s.url + "/")
    ask(b, "short", 1)
    b.run(LAST + ".querySelector('[aria-label=\"Continue the answer\"]').click()")
    ended(b, 1)
    equal(answer(b), "echo: short … and more")
    equal([(m["role"], m["content"]) for m in s.requests[-1]["messages"]], [("user", "short"), ("assistant", "echo: short")])
    equal((s.requests[-1]["continue_final_message"], s.requests[-1]["add_generation_prompt"]), (True, False))
    equal(b.run(LAST + ".querySelectorAll('.note').length"), 0)
    s.chat = False
    begin(b, s.url + "/")
    ask(b, "It was ", 1)
    b.run(LAST + ".querySelector('[aria-label=\"Continue the answer\"]').click()")
    ended(b, 1)
    equal((s.requests[-1]["prompt"], answer(b)), ("It wasecho: It was", "echo: It wasecho: It wasecho: It was"))


def give_files(b, *files):
    """As if they were dropped on the page: (name, type, bytes)."""
    b.run("""(() => { const t = new DataTransfer();
        for (const [name, type, bytes] of %s) t.items.add(new File([new Uint8Array(bytes)], name, {type}));
        document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: t, bubbles: true, cancelable: true})); })()""" % json.dumps([(n, t, list(d)) for n, t, d in files]))


def test_files(b, s):
    """Text files go with a message, whatever is in them; others are refused in a sentence."""
    begin(b, s.url + "/")
    hostile = "<img src=x onerror=alert(1)>\n```\nfence\n````\n</script>"
    give_files(b, ("a<b>.txt", "text/plain", hostile.encode()), ("notes.md", "", "é\r\n".encode()))
    b.until("document.querySelectorAll('#attached li').length === 2")
    equal(b.run("[...document.querySelectorAll('#attached span')].map(x => x.textContent)"), ["a<b>.txt", "notes.md"])
    ask(b, "what is this?", 1)
    fence = "`" * 5
    equal(messages(s)[-1], ["a<b>.txt:\n%s\n%s\n%s\n\nnotes.md:\n```\né\n```\n\nwhat is this?" % (fence, hostile, fence)])
    equal(b.run("document.querySelectorAll('#attached li').length"), 0)
    equal(b.run("[document.querySelectorAll('#log img, #log script').length, document.querySelector('.file pre').textContent]"), [0, hostile])
    for name, kind, data, word in (("p.png", "image/png", b"\x89PNG", "p.png is an image"), ("x.bin", "", b"a\0b", "x.bin is not a text file"), ("y.txt", "text/plain", b"\xff\xfe\xfd", "y.txt is not a text file"),
                                   ("s.mp3", "audio/mpeg", b"ID3", "is sound")):
        b.run("document.getElementById('toast').hidden = true")
        give_files(b, (name, kind, data))
        b.until("!document.getElementById('toast').hidden && document.getElementById('toast').textContent.includes(%s)" % json.dumps(word), word)
    b.run("attach([new File([new Uint8Array((1 << 20) + 1)], 'big.txt')])")
    b.until("document.getElementById('toast').textContent.includes('big.txt has 1.0 MB')")
    equal(b.run("document.querySelectorAll('#attached li').length"), 0)
    # a file alone is a message; an edit and a reload keep it
    give_files(b, ("only.txt", "text/plain", b"alone"))
    b.until("!document.getElementById('send').disabled")
    b.run("document.getElementById('new').click()")
    b.run("document.getElementById('form').requestSubmit()")
    ended(b, 1)
    equal((messages(s)[-1], b.run("document.getElementById('title').textContent")), (["only.txt:\n```\nalone\n```\n\n"], "only.txt"))
    b.run("location.reload()")
    b.until("document.readyState === 'complete' && document.querySelectorAll('.message').length === 2 && document.getElementById('status').className === 'ready'")
    edit_to(b, 0, "and now")
    ended(b, 1)
    equal(messages(s)[-1], ["only.txt:\n```\nalone\n```\n\nand now"])


def search(b, words):
    b.run("(() => { const i = document.getElementById('search'); i.value = %s; i.dispatchEvent(new Event('input')); })()" % json.dumps(words))
    return b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)")


def test_search(b, s):
    """Words of titles and of messages, also of versions that are not shown; the hit is opened."""
    begin(b, s.url + "/")
    ask(b, "a story, please", 1)
    b.key("n", modifiers=1)
    ask(b, "Das Café am Meer", 1)
    edit_to(b, 0, "something else")
    ended(b, 1)
    equal(search(b, "tin  CUP")[0].startswith("a story, please"), True)
    equal(b.run("[...document.querySelectorAll('#list mark')].map(x => x.textContent)"), ["tin", "cup"])
    equal(len(search(b, "o")), 2)
    equal((search(b, "nowhere"), b.run("document.getElementById('nothing').hidden")), ([], False))
    equal(len(search(b, "[.*+?^${}()|\\")), 0)
    equal(search(b, "cafe meer")[0].startswith("something else"), True)
    b.run("document.getElementById('search').focus()")
    b.key("Enter")
    equal(shown(b)[0], "Das Café am Meer|1 / 2")
    b.run("document.getElementById('search').focus()")
    b.key("Escape")
    equal((b.run("[document.querySelectorAll('#list .open').length, document.getElementById('search').value, document.activeElement.id]")), [2, "", "input"])


CATCH = """URL.createObjectURL = blob => { window.blob = blob; return 'data:,'; };
HTMLAnchorElement.prototype.click = function () { window.saved = this.download; };"""


def exported(b):
    b.run(CATCH)
    b.run("exportAll()")
    return b.run("window.blob.text()")


def bring(b, text, name="x.json"):
    b.run("importFile(new File([%s], %s))" % (json.dumps(text), json.dumps(name)))
    return b.run("document.getElementById('toast').textContent")


def test_export_import(b, s):
    """What is exported is imported as it was, once; a chat's /save, too."""
    begin(b, s.url + "/")
    ask(b, "one number", 1)
    b.run(LAST + ".querySelector('[aria-label=\"Another answer\"]').click()")
    ended(b, 1)
    b.key("n", modifiers=1)
    give_files(b, ("f.txt", "text/plain", b"text"))
    b.until("document.querySelectorAll('#attached li').length === 1")
    ask(b, "two", 1)
    text = exported(b)
    equal(b.run("window.saved").endswith(".json"), True)
    equal(bring(b, text), "0 conversations imported, 2 here already.")
    b.run("localStorage.clear()")
    b.open(s.url + "/")
    equal(bring(b, text), "2 conversations imported.")
    equal(json.loads(exported(b)), json.loads(text))
    b.run("document.querySelectorAll('#list .open')[1].click()")
    equal(b.run("document.querySelector('.versions > span').textContent"), "2 / 2")
    saved = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "from a chat"}, {"role": "assistant", "content": "yes"}]
    equal(bring(b, json.dumps(saved)), "1 conversation imported.")
    b.run("document.querySelectorAll('#list .open')[0].click()")
    ask(b, "more", 2)
    equal(messages(s)[-1], ["Be kind.", "from a chat", "yes", "more"])


EVIL = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>[x](javascript:alert(1))"


def test_import_hostile(b, s):
    """Files that are none, or mean harm: nothing runs, nothing that is here changes."""
    begin(b, s.url + "/")
    ask(b, "mine", 1)
    mine = exported(b)
    deep = '{"format": "minerva.conversations", "conversations": [{"messages": ' + '[{"role": "user", "content": "", "branches": [null, ' * 5000 + "[]" + "]}]" * 5000 + "}]}"
    whole = {"format": "minerva.conversations", "version": 1, "conversations": [
        None, 3, {}, {"messages": []}, {"messages": "x"}, {"messages": [{"role": "root", "content": "x"}]}, {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "content": "x", "branches": [None, None]}]}, {"messages": [{"role": "user", "content": "x", "branches": [[]]}]},
        {"messages": [{"role": "user", "content": "x", "branches": {"length": 9}}]}]}
    for text in ("", "nonsense", "[", "null", "3", "{}", "[1]", "[[]]", '{"format": "minerva.conversations"}', '{"format": "minerva.conversations", "conversations": {}}', deep, json.dumps(whole)):
        told = bring(b, text)
        assert "was not imported" in told or told.startswith("0 conversations imported"), (text[:60], told)
        equal(exported(b), mine)
    evil = {"id": "../" + EVIL, "title": EVIL, "named": "yes", "time": "now", "dropped": 1e9, "used": -1, "__proto__": {"polluted": 1}, "constructor": 1, "extra": EVIL,
            "system": EVIL, "tools": EVIL, "messages": [
                {"role": "user", "content": EVIL, "files": [{"name": EVIL, "text": EVIL}, {"name": 1, "text": 2}, None], "onclick": EVIL, "branches": [[{"role": "user", "content": EVIL}], None]},
                {"role": "assistant", "content": EVIL, "thinking": EVIL, "figures": EVIL, "note": EVIL, "failure": EVIL, "calls": [{"id": EVIL, "name": EVIL, "arguments": EVIL}, 7], "thought_s": "x"},
                {"role": "tool", "content": EVIL, "call": EVIL}]}
    text = json.dumps({"format": "minerva.conversations", "conversations": [evil]}).replace('"__proto__"', '"__proto__"')
    equal(bring(b, text), "1 conversation imported.")
    b.run("document.querySelectorAll('#list .open')[0].click()")
    equal(b.run("[document.querySelectorAll('#log img, #log script, #list img, #log [onclick], #log a[href^=javascript]').length, {}.polluted === undefined, document.querySelectorAll('.message').length]"), [0, True, 3])
    search(b, "onerror")
    equal(b.run("document.querySelectorAll('#list img, #list script').length"), 0)
    kept = json.loads(exported(b))["conversations"]
    (found,) = [c for c in kept if c["title"].startswith("<img")]
    assert re.fullmatch(r"\w+", found["id"]) and set(found) == {"id", "time", "title", "messages", "system", "tools"}, found
    assert b.run("document.title").startswith("<img")  # as text, not run
    ask(b, "go on", 2)
    equal(b.run("document.title.startsWith('<img')"), True)


def test_storage_full(b, s):
    """A full storage is told, keeps what it has and what is new in this tab, and is written once there is room."""
    begin(b, s.url + "/")
    ask(b, "first", 1)
    b.run("(() => { for (let n = 1 << 20; n; n >>= 1) for (;;) try { localStorage.setItem('filler' + n + Math.random(), 'x'.repeat(n)); } catch { break; } })()")
    b.key("n", modifiers=1)
    ask(b, "second " + "y" * 3000, 1)
    equal(b.run("document.getElementById('unsaved').hidden"), False)
    assert "1 conversation is in this tab alone" in b.run("document.getElementById('unsaved').textContent")
    shot(b, "full")
    assert "second" in exported(b) and "first" in exported(b)
    b.run("Object.keys(localStorage).filter(k => k.startsWith('filler')).forEach(k => localStorage.removeItem(k))")
    ask(b, "third", 2)
    equal(b.run("document.getElementById('unsaved').hidden"), True)
    b.open(s.url + "/")
    equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent.slice(0, 6))"), ["second", "first"])


def test_two_tabs(b, s):
    """What another tab stores is neither lost nor overwritten; the list of an earlier page is taken over."""
    begin(b, s.url + "/")
    ask(b, "here", 1)
    other = {"id": "other1", "time": 1, "title": "there", "messages": [{"role": "user", "content": "there"}]}
    b.run("localStorage.setItem('minerva.conversation.other1', %s)" % json.dumps(json.dumps(other)))
    ask(b, "more", 2)
    b.run("dispatchEvent(new StorageEvent('storage', {key: 'minerva.conversation.other1'}))")
    equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)"), ["here", "there"])
    b.run("localStorage.removeItem('minerva.conversation.other1'); dispatchEvent(new StorageEvent('storage', {key: 'minerva.conversation.other1'}))")
    equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)"), ["here"])
    b.run("localStorage.clear(); localStorage.setItem('minerva.conversations', %s)" % json.dumps(json.dumps([{**other, "id": "b"}, {"id": "a", "title": "old", "messages": other["messages"]}, {"id": 3}])))
    for _ in range(2):
        b.open(s.url + "/")
        equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)"), ["old", "there"])
        equal(b.run("localStorage.getItem('minerva.conversations')"), None)


def set_field(b, name, value):
    b.run("(() => { const i = document.querySelector('[name=%s]'); i.value = %s; i.dispatchEvent(new Event('input')); })()" % (name, json.dumps(value)))


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_own(b, s):
    """A conversation has a system message and tools of its own; what a call returns is written by the user."""
    begin(b, s.url + "/")
    b.run("document.getElementById('open-settings').click()")
    set_field(b, "system", "For all.")
    set_field(b, "own_system", "For this one.")
    set_field(b, "own_tools", "[{")
    assert "Not JSON" in b.run("document.querySelector('.wrong').textContent")
    set_field(b, "own_tools", '[{"type": "x"}]')
    assert "Expected a list" in b.run("document.querySelector('.wrong').textContent")
    set_field(b, "own_tools", json.dumps([TOOL]))
    equal(b.run("document.querySelector('.wrong').textContent"), "")
    b.run("document.querySelector('#settings .primary').click()")
    ask(b, "hello", 1)
    equal((messages(s)[-1], s.requests[-1]["tools"]), (["For this one.", "hello"], [TOOL]))
    equal(b.run("[document.querySelector('.call .bar').textContent, document.querySelector('.call code').textContent, document.querySelectorAll('#log b').length]"),
          ["calls weather", '{"city": "<b>Rome</b>"}', 0])
    equal(b.run("document.querySelector('.own').textContent"), "With a system message and 1 tool of its own")
    shot(b, "call")
    b.run("document.querySelector('.results textarea').value = 'sunny'; document.querySelector('.results button').click()")
    ended(b, 2)
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "<b>Rome</b>"}'}}
    equal(s.requests[-1]["messages"][2:], [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "sunny", "tool_call_id": "c1"}])
    equal(answer(b), "echo: sunny")
    b.key("n", modifiers=1)
    ask(b, "plain", 1)
    equal((messages(s)[-1], "tools" in s.requests[-1]), (["For all.", "plain"], False))


def test_keys(b, s):
    """The list of keys, and what they do."""
    begin(b, s.url + "/")
    ask(b, "first", 1)
    b.key("n", modifiers=1)
    ask(b, "second", 1)
    b.run("document.activeElement.blur(); document.dispatchEvent(new KeyboardEvent('keydown', {key: '?', bubbles: true}))")
    equal(b.run("[document.getElementById('keys').open, document.querySelectorAll('#key-list dt').length > 7]"), [True, True])
    shot(b, "keys")
    b.key("Escape")
    b.key("ArrowDown", modifiers=1)
    equal(answer(b), "echo: first")
    b.key("ArrowUp", modifiers=1)
    equal(answer(b), "echo: second")
    b.key("k", modifiers=2)
    equal(b.run("document.activeElement.id"), "search")


def test_kept(b, s):
    """Conversations survive a reload; a new one, renaming, deleting and its undoing."""
    begin(b, s.url + "/")
    ask(b, "first", 1)
    b.key("n", modifiers=1)
    equal(b.run("document.getElementById('empty').hidden"), False)
    ask(b, "second", 1)
    b.open(s.url + "/")
    equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)"), ["second", "first"])
    b.run("document.querySelectorAll('#list .open')[1].click()")
    equal(answer(b), "echo: first")
    b.run("document.querySelectorAll('#list [aria-label=Rename]')[1].click()")
    b.run("document.activeElement.select()")
    b.type("renamed")
    b.key("Enter")
    equal(b.run("document.getElementById('title').textContent"), "renamed")
    b.run("document.querySelectorAll('#list [aria-label=Delete]')[0].click()")
    equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)"), ["renamed"])
    b.run("document.querySelector('#toast button').click()")
    equal(b.run("[...document.querySelectorAll('#list .open')].map(x => x.textContent)"), ["second", "renamed"])
    for bad in ("nonsense", "null", "[1]", '[{"id": 3}]', '[{"id": "a", "messages": [{}]}]', "{}"):
        b.run("localStorage.setItem('minerva.conversations', %s)" % json.dumps(bad))
        b.open(s.url + "/")
        b.until("document.getElementById('status').className === 'ready'")
        equal(b.problems, [])


def test_settings(b, s):
    begin(b, s.url + "/")
    b.run("document.getElementById('open-settings').click()")
    equal(b.run("['temperature', 'top_k'].map(n => document.querySelector('[name=' + n + ']').placeholder)"), ["default: 0.6", "default"])
    for name, value in (("temperature", "0.25"), ("top_k", "7"), ("seed", "12"), ("system", "Be kind."), ("max_tokens", "9"), ("top_p", "1.5")):
        b.run("(() => { const i = document.querySelector('[name=%s]'); i.value = '%s'; i.dispatchEvent(new Event('input')); })()" % (name, value))
    b.run("document.querySelector('#settings .primary').click()")
    b.open(s.url + "/")
    b.until("document.getElementById('status').className === 'ready'")
    ask(b, "hello", 1)
    q = s.requests[-1]
    equal({k: q.get(k) for k in ("temperature", "top_k", "seed", "max_tokens", "top_p")},
          {"temperature": 0.25, "top_k": 7, "seed": 12, "max_tokens": 9, "top_p": None})  # 1.5 is out of range: not taken
    equal(messages(s)[-1], ["Be kind.", "hello"])


def test_errors(b, s):
    """A refusal and a stream that breaks say so, keep what came, and can be tried again."""
    begin(b, s.url + "/")
    ask(b, "fail", 1)
    equal(b.run(LAST + ".querySelector('.failure span').textContent"), "temperature: found 9, expected 0 to 2")
    b.run(LAST + ".querySelector('.failure button').click()")
    ended(b, 1)
    b.run("document.getElementById('new').click()")
    ask(b, "cut", 1)
    equal((answer(b), b.run(LAST + ".querySelector('.failure span').textContent")), ("echo: cut", "the device was lost"))
    b.problems = [p for p in b.problems if "400" not in p]


def test_key(b, s):
    """A server that wants a key: the page asks for it."""
    s.key = "secret"
    b.open(s.url + "/")
    b.run("localStorage.clear()")
    b.open(s.url + "/")
    b.until("document.getElementById('settings').open && document.activeElement.name === 'api_key'")
    b.type("secret")
    b.run("document.querySelector('#settings .primary').click()")
    b.until("document.getElementById('status').className === 'ready'")
    ask(b, "hello", 1)
    equal(answer(b), "echo: hello")
    s.key = None
    b.problems = [p for p in b.problems if "401" not in p]


def test_full_context(b, s):
    """40 turns in a context of 1,024 tokens: the oldest ones are no longer sent, a line says so, each answer comes."""
    s.room = 1024
    begin(b, s.url + "/")
    for i in range(40):
        ask(b, "turn %d %s" % (i, "x" * 60), i + 1)
    equal(b.run("document.querySelectorAll('.failure').length"), 0)
    sent = [q["messages"] for q in s.requests]
    assert max(sum(len(m["content"]) for m in q) for q in sent) <= 1024 and all(q[0]["role"] == "user" for q in sent)
    assert all(q[-1]["content"].startswith("turn ") for q in sent) and len(sent[-1]) < 16, len(sent[-1])
    equal(b.run("document.querySelectorAll('.dropped').length"), 1)
    assert "1,024 tokens is full" in b.run("document.querySelector('.dropped').textContent")
    first = b.run("document.querySelector('.dropped').nextElementSibling.querySelector('.text').textContent")
    equal(first, sent[-1][0]["content"])
    shot(b, "full-context")
    assert len(s.requests) <= 44, len(s.requests)  # what does not fit is seldom sent


def test_refused_context(b, s):
    """Where the page's estimate is wrong, the server's refusal drops turns, too; a message that is too long alone is an error, and is not sent again."""
    begin(b, s.url + "/")
    ask(b, "a" * 300, 1)
    s.room = 700
    ask(b, "b" * 120, 2)
    equal([len(m) for m in messages(s)], [1, 3, 1])
    ask(b, "c" * 800, 3)
    assert "maximum context length" in b.run(LAST + ".querySelector('.failure span').textContent")
    ask(b, "d", 4)
    equal(answer(b), "echo: d")
    assert not any(m.startswith("c") for m in messages(s)[-1]), messages(s)[-1]
    b.problems = [p for p in b.problems if "400" not in p]


def test_cut(b, s):
    """Why an answer was cut off: the longest answer only where one is set."""
    begin(b, s.url + "/")
    ask(b, "short", 1)
    equal(b.run(LAST + ".querySelector('.note').textContent"), "Cut off after 7 tokens.")
    b.run("localStorage.setItem('minerva.settings', JSON.stringify({max_tokens: 7}))")
    b.open(s.url + "/")
    b.until("document.getElementById('status').className === 'ready'")
    b.run("document.getElementById('new').click()")
    ask(b, "short", 1)
    equal(b.run(LAST + ".querySelector('.note').textContent"), "Cut off at the longest answer that is set: 7 tokens.")


def test_other_model(b, s):
    """An open page notices a server with another model, at the next look or answer; a setting of the old one is not sent."""
    begin(b, s.url + "/")
    b.run("localStorage.setItem('minerva.settings', JSON.stringify({model: 'mock'}))")
    b.open(s.url + "/")
    b.until("document.getElementById('status').className === 'ready'")
    s.model = "another"
    b.run("dispatchEvent(new Event('focus'))")
    b.until("document.getElementById('status').textContent.includes('another')")
    assert "another model now: another" in b.run("document.getElementById('toast').textContent")
    ask(b, "hello", 1)
    equal(s.requests[-1]["model"], "another")
    s.model = "third"
    ask(b, "again", 2)
    b.until("document.getElementById('status').textContent.includes('third')")
    equal((answer(b), b.run("document.querySelectorAll('.failure').length")), ("echo: again", 0))
    equal([q["model"] for q in s.requests], ["another", "another", "third"])
    b.problems = [p for p in b.problems if "404" not in p]


def test_choice(b, s):
    """Of several models there is a list of their first names. The next answer is the chosen one's; its state, device and context follow."""
    facts = {"device": "", "chat": True, "sampling": {}}
    s.others = [{"id": "large", "root": "large", "max_model_len": 0, "status": {"value": "unloaded"}, "minerva": facts}, {"id": "big", "root": "large", "minerva": facts}]
    begin(b, s.url + "/")
    equal(b.run("[...document.querySelectorAll('#choice option')].map(o => o.value)"), ["mock", "large"])
    equal(b.run("[document.getElementById('choice').hidden, document.getElementById('choice').value]"), [False, "mock"])
    ask(b, "hello", 1)
    b.run("const c = document.getElementById('choice'); c.value = 'large'; c.dispatchEvent(new Event('change'))")
    b.until("document.getElementById('status-device').textContent.includes('unloaded')")
    s.others[0].update(status={"value": "loaded"}, max_model_len=512, minerva={**facts, "device": "cpu_large"})
    ask(b, "again", 2)
    b.until("document.getElementById('status-device').textContent.includes('cpu_large')")
    equal([q["model"] for q in s.requests], ["mock", "large"])
    equal(b.run("document.getElementById('choice').value"), "large")
    s.others = []
    b.run("dispatchEvent(new Event('focus'))")
    b.until("document.getElementById('choice').hidden && document.getElementById('status-what').textContent === 'mock'")


def test_progress(b, s):
    """A prompt that takes more than a second has a bar."""
    s.release = threading.Event()
    begin(b, s.url + "/")
    ask(b, "long")
    b.until(LAST + " && " + LAST + ".textContent.includes('Reading 4,000 tokens: 25 %')")
    equal(b.run(LAST + ".querySelector('progress').value"), 25)
    equal(s.requests[-1]["return_progress"], True)
    s.release.set()
    ended(b, 1)
    equal((answer(b), b.run("document.querySelectorAll('progress').length")), ("echo: long", 0))


def test_switch(b, s):
    """Another conversation leaves the answer growing, and can have one of its own."""
    begin(b, s.url + "/")
    ask(b, "hold on")
    b.until(LAST + " && " + LAST + ".textContent.includes('. .')")
    b.key("n", modifiers=1)
    equal(b.run("[document.getElementById('stop').hidden, document.getElementById('send').hidden]"), [True, False])
    ask(b, "second", 1)
    equal(answer(b), "echo: second")
    equal((s.now, b.run("document.querySelectorAll('#list .grows').length")), (1, 1))
    b.run("document.querySelectorAll('#list .open')[1].click()")
    b.until(LAST + ".textContent.includes('. . . .')")
    length = len(answer(b))
    b.until(LAST + ".textContent.length > %d" % (length + 20))
    b.key("Escape")
    ended(b, 1)
    equal(b.run(LAST + ".querySelector('.note').textContent"), "Stopped.")


def test_address(b, s):
    """The address names the conversation: a reload finds it, Back goes to the one before."""
    begin(b, s.url + "/")
    ask(b, "first", 1)
    b.run("document.getElementById('new').click()")
    ask(b, "second", 1)
    address = b.run("location.href")
    assert "#c=" in address, address
    b.run("window.isOld = true; location.reload()")
    b.until("!window.isOld && document.readyState === 'complete' && document.querySelectorAll('.message.assistant').length === 1")
    equal(answer(b), "echo: second")
    b.run("history.go(-2)")
    b.until("document.querySelectorAll('.message.assistant').length === 1 && %s.querySelector('.text').innerText === 'echo: first'" % LAST)


def test_left(b, s):
    """A reload while an answer grows keeps what came, and says why it ends there."""
    begin(b, s.url + "/")
    ask(b, "hold on")
    b.until(LAST + " && " + LAST + ".textContent.includes('. . .')")
    b.run("location.reload()")
    b.until("document.readyState === 'complete' && document.querySelectorAll('.message.assistant .note').length === 1")
    equal(b.run(LAST + ".querySelector('.note').textContent"), "Cut off: the page was left.")
    equal(b.run("document.querySelectorAll('.failure').length"), 0)
    assert "echo: hold on . ." in answer(b), answer(b)


def test_ideas(b, s):
    """Suggestions fit the model."""
    ideas = lambda: b.run("[...document.querySelectorAll('#ideas button')].map(x => x.textContent)")
    begin(b, s.url + "/")
    assert not any("story about" in i for i in ideas()) and len(ideas()) == 3, ideas()
    s.model = "storyteller"
    begin(b, s.url + "/")
    assert all("story about" in i for i in ideas()), ideas()
    s.model, s.chat = "mock", False
    begin(b, s.url + "/")
    assert any(i.startswith("Once upon") for i in ideas()), ideas()


def test_roles(b, s):
    """Every control has a name, the log and the states have their roles, nothing is wider than a phone."""
    for width, dark in ((1280, False), (390, True)):
        begin(b, s.url + "/", width=width, dark=dark)
        ask(b, "markdown think", 1)
        equal(b.run("""[...document.querySelectorAll('button, input, textarea, select')].filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() ||
            (e.labels && e.labels.length))).length"""), 0)
        equal(b.run("[document.getElementById('log').getAttribute('role'), document.getElementById('status').getAttribute('role')]"), ["log", "status"])
        equal(b.run("document.getElementById('speak').textContent"), "The answer is complete.")
        equal(b.run("[document.documentElement.scrollWidth, document.getElementById('scroll').scrollWidth - document.getElementById('scroll').clientWidth]"), [width, 0])
        shot(b, "dark-390" if dark else "light")
    b.run("document.getElementById('menu').click()")
    equal(b.run("document.getElementById('menu').getAttribute('aria-expanded')"), "true")
    b.key("Escape")
    equal(b.run("document.getElementById('menu').getAttribute('aria-expanded')"), "false")


def shot(b, name):
    if SHOTS:
        b.screenshot(os.path.join(SHOTS, name + ".png"))


def story(b):
    """The demo model by minerva serve."""
    with served.Server(MINERVA) as s:
        begin(b, s.url + "/")
        b.run("window.matchMedia = () => ({matches: true})")  # headless: no mouse hovers
        b.run("document.querySelector('#ideas button').click()")
        equal(b.run("document.activeElement.id"), "input")
        ended(b, 1)
        equal(b.run("!!%s.querySelector('.failure')" % LAST), False)
        text = answer(b)
        assert len(text.split()) > 30, text
        assert "tokens/s" in b.run(LAST + ".querySelector('.figures').textContent")
        shot(b, "story")
        # the server continues a message that was cut off
        b.run("document.getElementById('new').click(); state.settings.max_tokens = 8")
        ask(b, "Tell me a story.", 1)
        assert "longest answer" in b.run(LAST + ".querySelector('.note').textContent")
        cut = answer(b)
        b.run(LAST + ".querySelector('[aria-label=\"Continue the answer\"]').click()")
        ended(b, 1)
        assert answer(b).startswith(cut) and len(answer(b)) > len(cut) + 10, (cut, answer(b))
        b.run("delete state.settings.max_tokens; document.querySelectorAll('#list .open')[1].click()")
        for i in range(10):  # more than the context of 1,024 tokens holds
            ask(b, "Tell me another story about a fox and a drum.", i + 2)
        equal(b.run("[document.querySelectorAll('.failure').length, document.querySelectorAll('.dropped').length]"), [0, 1])
        equal(b.problems, [])


def main():
    if not browser.find():
        print("chromium is not installed: the web page is not tested")
        sys.exit(77)
    with browser.Browser() as b:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (not ONLY or name in ONLY):
                print(name, flush=True)
                with mock_server.Server() as s:
                    test(b, s)
                    equal(b.problems, [])
        if ONLY:
            return
        if served.available(MINERVA):
            print("story", flush=True)
            story(b)
        else:
            print("this minerva was built without its server: no story")


if __name__ == "__main__":
    main()
