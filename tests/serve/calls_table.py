"""What models of each form write when they call tools, and what a client has to get. A row: form, what it shows, the output, then what differs from an answer
without text: content, reasoning, calls (name, arguments as an object), finish ("tool_calls" where there are calls, else "stop"), ask (fields of the request),
opens (what the prompt ends with), cut (False: a part of the output may mean something else than the whole), tokens, text
(False: not where marks are tokens, or not where they are text).

Taken from public reports about servers of language models, and from what lies beside those."""

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}} for name, properties in (
    ("log", {"day": {"type": "integer"}, "text": {"type": "string"}, "tags": {"type": "array"}, "on": {"type": "boolean"}}), ("ping", {}), ("backlog", {}))]

# The template's text that tells the form, marks that may be tokens, what a prompt may end with.
FORMS = {
    "hermes": ('<tool_call>{"name": x, "arguments": y}</tool_call><think></think>', ["<tool_call>", "</tool_call>", "<think>", "</think>"]),
    "qwen3-coder": ("<tool_call>\n<function=x>\n<parameter=y><think></think>", ["<tool_call>", "</tool_call>", "<think>", "</think>"]),
    "mistral": ("[TOOL_CALLS][", ["[TOOL_CALLS]"]),
    "mistral-args": ("[TOOL_CALLS]name[ARGS]", ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]),
    "llama3": ('{"name": function name, "parameters": dictionary}', ["<|python_tag|>"]),
    "phi": ("<|tool_call|><|/tool_call|>", ["<|tool_call|>", "<|/tool_call|>"]),
    "granite": ("<tool_call>[ or <|tool_call|>", ["<|tool_call|>", "<tool_call>", "</tool_call>"]),
    "functionary-2": ("<|recipient|>", ["<|from|>", "<|recipient|>", "<|content|>"]),
    "functionary-3.1": ("<function=x>{}</function>", []),
    "functionary-3.2": (">>>all", []),
    "kimi": ("<|tool_calls_section_begin|><|tool_call_begin|>", ["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
                                                                  "<|tool_calls_section_end|>"]),
    "deepseek": ("<｜tool▁calls▁begin｜>", ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"]),
    "dsml": ("｜DSML｜", ["｜DSML｜"]),
    "gemma4": ("<|tool_call>call:", ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"]),
    "functiongemma": ("<start_function_call>", ["<start_function_call>", "<end_function_call>", "<escape>"]),
    "internlm": ("<|action_start|>", ["<|action_start|>", "<|plugin|>", "<|action_end|>"]),
    "lfm2": ("<|tool_call_start|>[", ["<|tool_call_start|>", "<|tool_call_end|>"]),
    "olmo3": ("<function_calls>", []),
    "llama4": ("[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]", ["<|python_start|>", "<|python_end|>"]),
    "nemotron": ("<TOOLCALL>[", []),
    "glm": ("<tool_call>{name}<arg_key>{key}</arg_key>", ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]),
    "minimax": ("<minimax:tool_call>", ["<minimax:tool_call>", "</minimax:tool_call>"]),
    "seed-oss": ("<seed:tool_call>", ["<seed:tool_call>", "</seed:tool_call>"]),
    "hunyuan": ("<tool_calls>", []),
    "command-r7b": ("<|START_ACTION|>", ["<|START_ACTION|>", "<|END_ACTION|>"]),
    "apertus": ("<|tools_prefix|>", ["<|tools_prefix|>", "<|tools_suffix|>"]),
    "harmony": ("", ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"]),
}
OPENS = {"": "", "think": "<think>\n", ">>>": ">>>", "recipient": "<|from|>assistant\n<|recipient|>", "harmony": "<|start|>assistant"}
USUAL = {"functionary-3.2": ">>>", "functionary-2": "recipient", "harmony": "harmony"}
TOKENS_ONLY = ["harmony", "deepseek", "dsml"]  # of DeepSeek's marks a limit may leave half a character

LOG1, PING = ("log", {"day": 1}), ("ping", {})
H, T = "hermes", "qwen3-coder"


def call(name, arguments, key="arguments"):
    return '{"name": "%s", "%s": %s}' % (name, key, arguments)


def marked(*calls):
    return "".join("<tool_call>\n%s\n</tool_call>\n" % c for c in calls)


def tags(*parameters, end="</function>\n</tool_call>", name="log"):
    return "<tool_call>\n<function=%s>\n" % name + "".join("<parameter=%s>\n%s\n</parameter>\n" % p for p in parameters) + end


def kimi(*calls, end="<|tool_calls_section_end|>"):
    return "<|tool_calls_section_begin|>" + "".join("<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>%s<|tool_call_end|>" % (n, i, a) for i, (n, a) in enumerate(calls)) + end


def deepseek(*calls):
    return "<｜tool▁calls▁begin｜>" + "\n".join("<｜tool▁call▁begin｜>%s<｜tool▁call▁end｜>" % c for c in calls) + "<｜tool▁calls▁end｜>"


def old_deepseek(name, arguments):
    return "function<｜tool▁sep｜>%s\n```json\n%s\n```" % (name, arguments)


def dsml(*calls, mark="function_calls"):
    tag = '<｜DSML｜parameter name="%s"%s>%s</｜DSML｜parameter>\n'
    inner = "".join('<｜DSML｜invoke name="%s">\n%s</｜DSML｜invoke>\n' % (n, "".join(tag % p for p in parameters)) for n, *parameters in calls)
    return "<｜DSML｜%s>\n%s</｜DSML｜%s>" % (mark, inner, mark)


DAY1 = ("day", ' string="false"', "1")


def gemma4(*calls, quote='<|"|>'):
    return "".join("<|tool_call>call:%s<tool_call|>" % c.replace("~", quote) for c in calls)


# fmt: off
ROWS = [
    # ---- JSON in marks: Hermes, Qwen, Granite 4
    (H, "a call", marked(call("log", '{"day": 1}')), dict(calls=[LOG1])),
    (H, "text, then two calls", "I look.\n" + marked(call("log", '{"day": 1}'), call("ping", "{}")), dict(content="I look.", calls=[LOG1, PING])),
    (H, "two calls in one mark", "<tool_call>\n" + call("ping", "{}") + "\n" + call("log", '{"day": 1}') + "\n</tool_call>", dict(calls=[PING, LOG1])),
    (H, "two calls in one mark, with a comma", "<tool_call>" + call("ping", "{}") + ",\n" + call("log", '{"day": 1}') + "</tool_call>", dict(calls=[PING, LOG1], cut=False)),
    (H, "a list in the mark", "<tool_call>[" + call("ping", "{}") + ", " + call("log", '{"day": 1}') + "]</tool_call>", dict(calls=[PING, LOG1])),
    (H, "no opening mark", call("log", '{"day": 1}'), dict(calls=[LOG1], cut=False)),
    (H, "no opening mark, a closing one", "I do.\n" + call("log", '{"day": 1}') + "\n</tool_call>", dict(content="I do.", calls=[LOG1], cut=False)),
    (H, "no mark, another name: text", call("Ghent", '{"day": 1}'), dict(content=call("Ghent", '{"day": 1}'))),
    (H, "no mark, in the middle of a line: text", "So: " + call("log", '{"day": 1}'), dict(content="So: " + call("log", '{"day": 1}'))),
    (H, "no mark, fenced as code: text", "```json\n" + call("log", '{"day": 1}') + "\n```", dict(content="```json\n" + call("log", '{"day": 1}') + "\n```")),
    (H, "fenced in the mark", "<tool_call>\n```json\n" + call("log", '{"day": 1}') + "\n```\n</tool_call>", dict(calls=[LOG1])),
    (H, "closed by an opening mark", "<tool_call>\n" + call("log", '{"day": 1}') + "\n<tool_call>", dict(calls=[LOG1])),
    (H, "closed twice, text behind", "<tool_call>" + call("log", '{"day": 1}') + "</tool_call></tool_call>\nDone.", dict(content="Done.", calls=[LOG1])),
    (H, "a brace too many", "<tool_call>\n" + call("log", '{"day": 1}') + "}\n</tool_call>", dict(calls=[LOG1])),
    (H, "a brace too few", '<tool_call>\n{"name": "log", "arguments": {"day": 1}\n</tool_call>\nDone.', dict(content="Done.", calls=[LOG1])),
    (H, "two braces too few", '<tool_call>\n{"name": "log", "arguments": {"day": 1\n</tool_call>', dict(calls=[LOG1])),
    (H, "a bracket of another kind", '<tool_call>\n{"name": "log", "arguments": {"tags": [1}}\n</tool_call>', dict(calls=[("log", {"tags": [1]})])),
    (H, "the end of the answer inside of a string", '<tool_call>\n{"name": "log", "arguments": {"text": "half', dict(calls=[("log", {"text": "half"})])),
    (H, "the end of the answer inside of a key", '<tool_call>\n{"name": "log", "arguments": {"day": 1, "te', dict(calls=[LOG1])),
    (H, "the end of the answer behind an escape", '<tool_call>\n{"name": "log", "arguments": {"text": "a\\', dict(calls=[("log", {"text": "a"})])),
    (H, "line breaks and tabs in a string", "<tool_call>\n" + call("log", '{"text": "a\nb\tc"}') + "\n</tool_call>", dict(calls=[("log", {"text": "a\nb\tc"})])),
    (H, "backslashes that are none", "<tool_call>\n" + call("log", '{"text": "C:\\users\\d"}') + "\n</tool_call>", dict(calls=[("log", {"text": "C:\\users\\d"})])),
    (H, "commas at the end, Python's words", "<tool_call>\n" + call("log", '{"on": True, "tags": [None,],}') + "\n</tool_call>", dict(calls=[("log", {"on": True, "tags": [None]})])),
    (H, "single quotes, as Python has them", marked("{'name': 'log', 'arguments': {'text': 'it\\'s \"a\"'}}"), dict(calls=[("log", {"text": "it's \"a\""})])),
    (H, "keys without quotes", marked(call("log", "{day: 1, text: 'a'}")), dict(calls=[("log", {"day": 1, "text": "a"})])),
    (H, "no mark, no arguments", '{"name": "ping"}', dict(calls=[PING], cut=False)),
    (H, "a name with a namespace", marked(call("functions.log", '{"day": 1}')), dict(calls=[LOG1])),
    (H, "arguments []", marked(call("ping", "[]")), dict(calls=[PING])),
    (H, "arguments null", marked(call("ping", "null")), dict(calls=[PING])),
    (H, 'arguments ""', marked(call("ping", '""')), dict(calls=[PING])),
    (H, "arguments missing", marked('{"name": "ping"}'), dict(calls=[PING])),
    (H, "arguments missing, and a brace", '<tool_call>\n{"name": "ping"\n</tool_call>', dict(calls=[PING])),
    (H, "arguments as text", marked(call("log", '"{\\"day\\": 1}"')), dict(calls=[LOG1])),
    (H, "arguments as text with a line break", marked(call("log", '"{\\"text\\": \\"a\\nb\\"}"')), dict(calls=[("log", {"text": "a\nb"})])),
    (H, "arguments in quotes that are not escaped", marked(call("log", '"{"day": 1}"')), dict(calls=[LOG1])),
    (H, "arguments before the name", marked('{"arguments": {"day": 1}, "name": "log"}'), dict(calls=[LOG1])),
    (H, "parameters for arguments", marked(call("log", '{"day": 1}', "parameters")), dict(calls=[LOG1])),
    (H, "as OpenAI has it", marked('{"id": "1", "type": "function", "function": %s}' % call("log", '{"day": 1}')), dict(calls=[LOG1])),
    (H, "a mark and a brace in a string", marked(call("log", '{"text": "</tool_call>{"}')), dict(calls=[("log", {"text": "</tool_call>{"})], tokens=False)),
    (H, "a tag of thinking in a string", marked(call("log", '{"text": "<think>a</think>"}')), dict(calls=[("log", {"text": "<think>a</think>"})], tokens=False)),
    (H, "parallel_tool_calls: false", "A.\n" + marked(call("log", '{"day": 1}'), call("ping", "{}")) + "B", dict(content="A.", calls=[LOG1], ask={"parallel_tool_calls": False})),
    # ---- thinking
    (H, "two blocks of thinking", "<think>a</think>one <think>b</think>two", dict(content="one two", reasoning="ab")),
    (H, "thinking, then a call", "<think>a</think>\n\n" + marked(call("ping", "{}")), dict(reasoning="a", calls=[PING])),
    (H, "an end of thinking that had no beginning", "a</think>b", dict(content="ab")),
    (H, "a call in open thinking", "I call.\n" + marked(call("log", '{"day": 1}')), dict(reasoning="I call.", calls=[LOG1], opens="think", cut=False)),
    (H, "two calls in open thinking, then text", "I call.\n" + marked(call("log", '{"day": 1}'), call("ping", "{}")) + "Done.",
     dict(content="Done.", reasoning="I call.", calls=[LOG1, PING], opens="think", cut=False)),
    (H, "a call that was only thought", "Perhaps\n" + marked(call("log", '{"day": 1}')) + "no.</think>No.",
     dict(content="No.", reasoning="Perhaps\n" + marked(call("log", '{"day": 1}')) + "no.", opens="think", cut=False)),
    (H, "a call inside of a line of thought", "as <tool_call>" + call("ping", "{}") + "</tool_call>", dict(reasoning="as <tool_call>" + call("ping", "{}") + "</tool_call>", opens="think", cut=False)),
    (H, "a thought call of no tool", marked(call("nothing", "{}")), dict(reasoning=marked(call("nothing", "{}")), opens="think", cut=False)),
    (H, "a call at the end of thinking, and nothing else", "I call.\n" + marked(call("ping", "{}")) + "</think>", dict(reasoning="I call.", calls=[PING], opens="think", cut=False)),
    (T, "a call of tags in open thinking", "I call.\n" + tags(("day", 1)), dict(reasoning="I call.", calls=[LOG1], opens="think", cut=False)),
    # ---- tags: Qwen3-Coder
    (T, "a call of tags", tags(("day", 1), ("text", "a\n b")), dict(calls=[("log", {"day": 1, "text": "a\n b"})])),
    (T, "no mark", "I log it.\n<function=log>\n<parameter=day>\n1\n</parameter>\n</function>\n</tool_call>", dict(content="I log it.", calls=[LOG1], cut=False)),
    (T, "no mark, no tool: text", "<function=nothing>\n</function>", dict(content="<function=nothing>\n</function>")),
    (T, "no end of the function", tags(("day", 1), end="</tool_call>\nDone."), dict(content="Done.", calls=[LOG1])),
    (T, "no end at all, text behind", tags(("day", 1), end="It is done."), dict(content="It is done.", calls=[LOG1], cut=False)),
    (T, "no end of a value", "<tool_call>\n<function=log>\n<parameter=text>\na\n<parameter=day>\n1\n</function>\n</tool_call>", dict(calls=[("log", {"text": "a", "day": 1})])),
    (T, "no end of value and function", "<tool_call>\n<function=log>\n<parameter=text>\na\n</tool_call>\n", dict(calls=[("log", {"text": "a"})])),
    (T, "quotes around names", "<tool_call>\n<function=\"log\">\n<parameter=\"day\">\n1\n</parameter>\n</function>\n</tool_call>", dict(calls=[LOG1])),
    (T, "no bracket behind the name", "<tool_call>\n<function=log\n<parameter=day>\n1\n</parameter>\n</function>\n</tool_call>", dict(calls=[LOG1])),
    (T, "a parameter without a name", tags(("day", 1), end="<parameter=\necho\n</parameter>\n</function>\n</tool_call>"), dict(calls=[LOG1])),
    (T, "a parameter that is no tag", tags(end="<parameter day>2</parameter>\n<parameter=day>\n1\n</parameter>\n</function>\n</tool_call>"), dict(calls=[LOG1])),
    (T, "two functions in one mark", "<tool_call>\n<function=ping>\n</function>\n<function=log>\n<parameter=day>1</parameter>\n</function>\n</tool_call>", dict(calls=[PING, LOG1])),
    (T, "a function behind one that has no end", "<tool_call>\n<function=log>\n<parameter=day>1</parameter>\n<function=ping>\n</function>\n</tool_call>", dict(calls=[LOG1, PING])),
    (T, "an object for parameters", '<tool_call>\n<function=log>{"day": 1}</function>\n</tool_call>', dict(calls=[LOG1])),
    (T, "JSON under a template of tags", marked(call("log", '{"day": 1}')), dict(calls=[LOG1])),
    (T, "values of their types", tags(("day", "many"), ("text", "1"), ("on", "True"), ("tags", '["a"]')), dict(calls=[("log", {"day": "many", "text": "1", "on": True, "tags": ["a"]})])),
    # ---- Mistral
    ("mistral", "a list", "[TOOL_CALLS][" + call("log", '{"day": 1}') + ", " + call("ping", "{}") + "]", dict(calls=[LOG1, PING])),
    ("mistral", "a list without the mark", "[" + call("log", '{"day": 1}') + "]", dict(calls=[LOG1], cut=False)),
    ("mistral", "a list without its end", "[TOOL_CALLS][" + call("log", '{"day": 1}'), dict(calls=[LOG1])),
    ("mistral", "the same form with names", '[TOOL_CALLS]log{"day": 1}', dict(calls=[LOG1])),
    ("mistral-args", "names, text before and behind", 'I look.[TOOL_CALLS]log[ARGS]{"day": 1}\n\nDone.', dict(content="I look.Done.", calls=[LOG1])),
    ("mistral-args", "nothing behind the mark", "[TOOL_CALLS]ping[ARGS][TOOL_CALLS]backlog[CALL_ID]abc123xyz[ARGS]", dict(calls=[PING, ("backlog", {})])),
    ("mistral-args", "no mark of the call", 'log[ARGS]{"day": 1}', dict(calls=[LOG1], cut=False)),
    ("mistral-args", "a brace too many, line breaks", '[TOOL_CALLS]log[ARGS]{"text": "a\nb"}}\n', dict(calls=[("log", {"text": "a\nb"})])),
    ("mistral-args", "an object that breaks off", '[TOOL_CALLS]log[ARGS]{"day": 1, oops}\nSorry.', dict(content="Sorry.", calls=[LOG1], cut=False)),
    # ---- Llama 3
    ("llama3", "the answer is a call", call("log", '{"day": 1}', "parameters"), dict(calls=[LOG1], cut=False)),
    ("llama3", "two behind the mark", "<|python_tag|>" + call("log", '{"day": 1}', "parameters") + "; " + call("ping", "{}", "parameters"), dict(calls=[LOG1, PING])),
    ("llama3", "a call in a line of its own", "I look.\n" + call("ping", "null", "parameters"), dict(content="I look.", calls=[PING], cut=False)),
    ("llama3", "another name: text", call("Ghent", "{}", "parameters"), dict(content=call("Ghent", "{}", "parameters"))),
    ("llama3", "the key function", '{"type": "function", "function": "log", "parameters": {"day": 1}}', dict(calls=[LOG1], cut=False)),
    ("llama3", "a brace too many", call("log", '{"day": 1}', "parameters") + "}", dict(calls=[LOG1], cut=False)),
    # ---- Phi-4-mini, Granite 3
    ("phi", "a list in marks", "<|tool_call|>[" + call("log", '{"day": 1}') + ", " + call("ping", "null") + "]<|/tool_call|>", dict(calls=[LOG1, PING])),
    ("phi", "a bracket too few", "<|tool_call|>[" + call("log", '{"day": 1}') + "<|/tool_call|>Done.", dict(content="Done.", calls=[LOG1])),
    ("phi", "no mark", "[" + call("log", '{"day": 1}') + "]<|/tool_call|>", dict(calls=[LOG1], cut=False)),
    ("granite", "either mark", "<|tool_call|>[" + call("log", '{"day": 1}') + "]<tool_call>[" + call("ping", "{}") + "]</tool_call>", dict(calls=[LOG1, PING])),
    ("granite", "a list that breaks off", "<|tool_call|>[" + call("log", '{"day": 1}') + ", {", dict(calls=[LOG1])),
    # ---- functionary
    ("functionary-3.1", "two calls", '<function=log>{"day": 1}</function><function=ping>{}</function>', dict(calls=[LOG1, PING])),
    ("functionary-3.1", "no end, no object", "I look.\n<function=ping></function>\n<function=log>{\"day\": 1", dict(content="I look.", calls=[PING, LOG1])),
    ("functionary-3.2", "text and calls", 'all\nI look.\n>>>log\n{"day": 1}\n>>>ping\n{}', dict(content="I look.", calls=[LOG1, PING])),
    ("functionary-3.2", "a call without arguments", "ping\n", dict(calls=[PING])),
    ("functionary-3.2", "Python's prompts are text", "all\n>>> print(1)\n1", dict(content=">>> print(1)\n1")),
    ("functionary-2", "text and calls", 'all\n<|content|>I look.<|from|>assistant\n<|recipient|>log\n<|content|>{"day": 1}<|from|>assistant\n<|recipient|>ping\n<|content|>{}',
     dict(content="I look.", calls=[LOG1, PING])),
    # ---- Kimi K2, Kimi Linear
    ("kimi", "a call", kimi(("log", '{"day": 1}')), dict(calls=[LOG1])),
    ("kimi", "text, then two calls", "I look." + kimi(("log", '{"day": 1}'), ("ping", "{}")), dict(content="I look.", calls=[LOG1, PING])),
    ("kimi", "no namespace, no number", "<|tool_calls_section_begin|><|tool_call_begin|>log<|tool_call_argument_begin|>{\"day\": 1}<|tool_call_end|><|tool_calls_section_end|>", dict(calls=[LOG1])),
    ("kimi", "no section", '<|tool_call_begin|>functions.log:0<|tool_call_argument_begin|>{"day": 1}<|tool_call_end|>', dict(calls=[LOG1])),
    ("kimi", "white space around marks", '<|tool_calls_section_begin|>\n<|tool_call_begin|> functions.log:0 <|tool_call_argument_begin|> {"day": 1} <|tool_call_end|>\n<|tool_calls_section_end|>', dict(calls=[LOG1])),
    ("kimi", "no end of the call, none of the section", '<|tool_calls_section_begin|><|tool_call_begin|>functions.log:0<|tool_call_argument_begin|>{"day": 1}', dict(calls=[LOG1])),
    ("kimi", "the end of the answer inside of a string", '<|tool_calls_section_begin|><|tool_call_begin|>functions.log:0<|tool_call_argument_begin|>{"text": "half', dict(calls=[("log", {"text": "half"})])),
    ("kimi", "a brace too few", '<|tool_calls_section_begin|><|tool_call_begin|>functions.log:0<|tool_call_argument_begin|>{"day": 1<|tool_call_end|><|tool_calls_section_end|>', dict(calls=[LOG1])),
    ("kimi", "no arguments", '<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|>', dict(calls=[PING])),
    ("kimi", "no mark of the arguments", '<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_end|><|tool_calls_section_end|>', dict(calls=[PING])),
    ("kimi", "text behind", kimi(("ping", "{}")) + "Done.", dict(content="Done.", calls=[PING])),
    ("kimi", "parallel_tool_calls: false", kimi(("log", '{"day": 1}'), ("ping", "{}")), dict(calls=[LOG1], ask={"parallel_tool_calls": False})),
    # ---- DeepSeek
    ("deepseek", "V3.1", deepseek('log<｜tool▁sep｜>{"day": 1}'), dict(calls=[LOG1])),
    ("deepseek", "V3.1, text and two calls", "I look." + deepseek('log<｜tool▁sep｜>{"day": 1}', "ping<｜tool▁sep｜>{}"), dict(content="I look.", calls=[LOG1, PING])),
    ("deepseek", "V3, R1: a type, fenced as code", deepseek(old_deepseek("log", '{"day": 1}'), old_deepseek("ping", "{}")), dict(calls=[LOG1, PING])),
    ("deepseek", "a type, not fenced", deepseek('function<｜tool▁sep｜>log\n{"day": 1}'), dict(calls=[LOG1])),
    ("deepseek", "no arguments", deepseek("ping<｜tool▁sep｜>"), dict(calls=[PING])),
    ("deepseek", "a brace too few", deepseek('log<｜tool▁sep｜>{"day": 1'), dict(calls=[LOG1])),
    ("deepseek", "no ends", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + old_deepseek("log", '{"text": "a\\nb"}'), dict(calls=[("log", {"text": "a\nb"})])),
    # ---- DeepSeek V3.2
    ("dsml", "a call", dsml(("log", DAY1)), dict(calls=[LOG1])),
    ("dsml", "text, then two calls", "I look.\n\n" + dsml(("log", DAY1), ("ping",)), dict(content="I look.", calls=[LOG1, PING])),
    ("dsml", "a string that looks like a number, white space kept", dsml(("log", ("text", ' string="true"', "1"), ("tags", ' string="false"', '["a", {"b": null}]'))),
     dict(calls=[("log", {"text": "1", "tags": ["a", {"b": None}]})])),
    ("dsml", "a string under a parameter that is none", dsml(("log", ("day", ' string="true"', "1"))), dict(calls=[("log", {"day": "1"})])),
    ("dsml", "a string with tags and line breaks", dsml(("log", ("text", ' string="true"', ' <b>\n"a"\\ '))), dict(calls=[("log", {"text": ' <b>\n"a"\\ '})])),
    ("dsml", "no attribute", dsml(("log", ("day", "", "1"), ("text", "", "1"))), dict(calls=[("log", {"day": 1, "text": "1"})])),
    ("dsml", "the mark of V4", dsml(("ping",), mark="tool_calls"), dict(calls=[PING])),
    ("dsml", "an object in the tag of the function", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="log">\n{"day": 1}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', dict(calls=[LOG1])),
    ("dsml", "no ends", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="log">\n<｜DSML｜parameter name="text" string="true">half', dict(calls=[("log", {"text": "half"})])),
    ("dsml", "text behind", dsml(("ping",)) + "Done.", dict(content="Done.", calls=[PING])),
    # ---- Gemma 4, FunctionGemma
    ("gemma4", "a call", gemma4("log{day:1}"), dict(calls=[LOG1])),
    ("gemma4", "text, then two calls", "I look." + gemma4("log{day:1,text:~a~}", "ping{}"), dict(content="I look.", calls=[("log", {"day": 1, "text": "a"}), PING])),
    ("gemma4", "lists, objects, words", gemma4("log{on:true,tags:[~x~,{k:~v~,n:-1.5},null]}"), dict(calls=[("log", {"on": True, "tags": ["x", {"k": "v", "n": -1.5}, None]})])),
    ("gemma4", "every byte of a string means itself", gemma4('log{text:~"a"\\n,\n}<| <tool_call> {b:~}'), dict(calls=[("log", {"text": '"a"\\n,\n}<| <tool_call> {b:'})])),
    ("gemma4", "keys between marks", gemma4("log{~text~:~a~}"), dict(calls=[("log", {"text": "a"})])),
    ("gemma4", "JSON", '<|tool_call>call:log{"day": 1, "text": "a\\n<"}<tool_call|>', dict(calls=[("log", {"day": 1, "text": "a\n<"})])),
    ("gemma4", "a brace too few", gemma4("log{day:1"), dict(calls=[LOG1])),
    ("gemma4", "a brace too many, text behind", gemma4("log{day:1}}") + "Done.", dict(content="Done.", calls=[LOG1])),
    ("gemma4", "no arguments", gemma4("ping"), dict(calls=[PING])),
    ("gemma4", "no prefix, white space", "<|tool_call>log {day: 1, text: <|\"|>a<|\"|>}<tool_call|>", dict(calls=[("log", {"day": 1, "text": "a"})])),
    ("gemma4", "the end of the answer inside of a string", '<|tool_call>call:log{text:<|"|>half', dict(calls=[("log", {"text": "half"})])),
    ("gemma4", "a channel of thinking, whose name is no text", "<|channel>thought\nI think.<channel|>I look." + gemma4("log{day:1}"),
     dict(content="I look.", reasoning="I think.", calls=[LOG1], text=False)),
    ("gemma4", "the mark alone: text", "a <|tool_call> b", dict(content="a <|tool_call> b", cut=False)),
    ("functiongemma", "a call", "<start_function_call>call:log{day:1,text:<escape>a b<escape>}<end_function_call>", dict(calls=[("log", {"day": 1, "text": "a b"})])),
    # ---- InternLM 2.5 and 3
    ("internlm", "a call", "<|action_start|><|plugin|>\n" + call("log", '{"day": 1}', "parameters") + "<|action_end|>", dict(calls=[LOG1])),
    ("internlm", "text, then two calls", "I look." + "".join("<|action_start|><|plugin|>" + c + "<|action_end|>\n" for c in (call("log", '{"day": 1}'), call("ping", "{}", "parameters"))),
     dict(content="I look.", calls=[LOG1, PING])),
    ("internlm", "no end", "<|action_start|><|plugin|>\n" + call("log", '{"day": 1'), dict(calls=[LOG1])),
    ("internlm", "the interpreter's code: text", "<|action_start|><|interpreter|>\n1 + 1", dict(content="<|action_start|><|interpreter|>\n1 + 1", cut=False)),
    # ---- Python: LFM2, OLMo 3, Llama 4
    ("lfm2", "a call", '<|tool_call_start|>[log(day=1, text="a")]<|tool_call_end|>', dict(calls=[("log", {"day": 1, "text": "a"})])),
    ("lfm2", "text around two calls", 'I look.<|tool_call_start|>[log(day=1), ping()]<|tool_call_end|>Done.', dict(content="I look.Done.", calls=[LOG1, PING])),
    ("lfm2", "values of Python", "<|tool_call_start|>[log(text='it\\'s (a), \"b\"', on=True, tags=['x', None, {'k': [1, 2]}])]<|tool_call_end|>",
     dict(calls=[("log", {"text": "it's (a), \"b\"", "on": True, "tags": ["x", None, {"k": [1, 2]}]})])),
    ("lfm2", "white space, a comma at the end, a tuple", "<|tool_call_start|>[ log( day = 1 , tags = (1, 2), ) ]<|tool_call_end|>", dict(calls=[("log", {"day": 1, "tags": [1, 2]})])),
    ("lfm2", "no list", "<|tool_call_start|>log(day=1)<|tool_call_end|>", dict(calls=[LOG1])),
    ("lfm2", "no end of the list", "<|tool_call_start|>[log(day=1)<|tool_call_end|>", dict(calls=[LOG1])),
    ("lfm2", "no end of the call", '<|tool_call_start|>[log(text="a"', dict(calls=[("log", {"text": "a"})])),
    ("lfm2", "JSON in the mark", "<|tool_call_start|>[" + call("log", '{"day": 1}') + "]<|tool_call_end|>", dict(calls=[LOG1])),
    ("lfm2", "no mark", "[log(day=1)]", dict(calls=[LOG1], cut=False)),
    ("lfm2", "no mark, no tool: text", "[nothing(day=1)]", dict(content="[nothing(day=1)]")),
    ("lfm2", "a list of links: text", "[log](a) is", dict(content="[log](a) is")),
    ("olmo3", "lines of calls", 'I look.\n<function_calls>\nlog(day=1)\nping()\n</function_calls>', dict(content="I look.", calls=[LOG1, PING])),
    ("olmo3", "a string with a line break", '<function_calls>\nlog(text="a\\nb")\n</function_calls>', dict(calls=[("log", {"text": "a\nb"})])),
    ("llama4", "the answer is a list", "[log(day=1), ping()]", dict(calls=[LOG1, PING], cut=False)),
    ("llama4", "in marks", '<|python_start|>[log(text="a=b")]<|python_end|>', dict(calls=[("log", {"text": "a=b"})])),
    ("llama4", "the answer is JSON", call("log", '{"day": 1}', "parameters"), dict(calls=[LOG1], cut=False)),
    # ---- the other families
    ("nemotron", "a list", "<TOOLCALL>[" + call("log", '{"day": 1}') + ", " + call("ping", "{}") + "]</TOOLCALL>", dict(calls=[LOG1, PING])),
    ("nemotron", "no end", "<TOOLCALL>[" + call("log", '{"day": 1}'), dict(calls=[LOG1])),
    ("glm", "keys and values", "<tool_call>log\n<arg_key>day</arg_key>\n<arg_value>1</arg_value>\n<arg_key>text</arg_key>\n<arg_value>a\nb</arg_value>\n</tool_call>", dict(calls=[("log", {"day": 1, "text": "a\nb"})])),
    ("glm", "two calls, no arguments", "I look.\n<tool_call>ping\n</tool_call>\n<tool_call>log\n<arg_key>day</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", dict(content="I look.", calls=[PING, LOG1])),
    ("glm", "no arguments of a tool that has some", "<tool_call>log\n</tool_call>", dict(calls=[("log", {})])),
    ("glm", "a name and no end", "<tool_call>log\n<tool_call>ping", dict(calls=[("log", {}), PING], cut=False)),
    ("glm", "a name that is no tool, no end: text", "<tool_call>Ghent\n", dict(content="<tool_call>Ghent\n", cut=False)),
    ("minimax", "two calls in a mark", '<minimax:tool_call>\n<invoke name="log">\n<parameter name="day">1</parameter>\n</invoke>\n<invoke name="ping">\n</invoke>\n</minimax:tool_call>', dict(calls=[LOG1, PING])),
    ("seed-oss", "a call", "<seed:tool_call>\n<function=log>\n<parameter=day>1</parameter>\n</function>\n</seed:tool_call>", dict(calls=[LOG1])),
    ("hunyuan", "a list", "<tool_calls>[" + call("log", '{"day": 1}') + "]</tool_calls>", dict(calls=[LOG1])),
    ("command-r7b", "a list", '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "log", "parameters": {"day": 1}}\n]<|END_ACTION|>', dict(calls=[LOG1])),
    ("apertus", "names as keys", '<|tools_prefix|>[{"log": {"day": 1}}, {"ping": {}}]<|tools_suffix|>', dict(calls=[LOG1, PING])),
    # ---- Harmony
    ("harmony", "thinking, a preamble, a call", "<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
     '<|start|>assistant<|channel|>commentary to=functions.log <|constrain|>json<|message|>{"day": 1}<|call|>', dict(content="I look.", reasoning="t", calls=[LOG1])),
    ("harmony", "an empty message", "<|channel|>commentary to=functions.ping <|constrain|>json<|message|><|call|>", dict(calls=[PING])),
    ("harmony", "a header that is all", "<|channel|>commentary to=functions.ping<|call|>", dict(calls=[PING], cut=False)),
    ("harmony", "a brace too few, a line break", '<|channel|>commentary to=functions.log<|message|>{"text": "a\nb"<|call|>', dict(calls=[("log", {"text": "a\nb"})])),
    ("harmony", "two messages to tools", '<|channel|>commentary to=functions.log<|message|>{"day": 1}<|end|><|start|>assistant<|channel|>commentary to=functions.ping<|message|>null<|call|>',
     dict(calls=[LOG1, PING])),
    ("harmony", "a call on the channel of thinking", '<|channel|>analysis to=functions.log code<|message|>{"day": 1}<|call|>', dict(calls=[LOG1])),
    ("harmony", "the final answer", "<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>final<|message|>A.", dict(content="A.", reasoning="t")),
]
# fmt: on
