"""A model that says what a test wants, turn by turn: save(folder, turns, plain) writes it. With tools it says turns[n] after n results of calls, else `plain`. Its template writes
no message into the prompt, only as many bytes as lead the model (../replay.py) to that text: so agents may send what they like."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from replay import GO, Replay  # noqa: E402

MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
HINT = '<tool_call>{"name": x, "arguments": y}</tool_call><think></think>'
# The server refuses what no prompt of its context can hold before it makes the prompt: messages of more bytes than the context has room for with the longest token.
SPARE = 16384


def call(name, **arguments):
    return "<tool_call>\n%s\n</tool_call>" % json.dumps({"name": name, "arguments": arguments})


def save(folder, turns, plain="Nothing to do."):
    model = Replay(folder, "", MARKS)
    model.save([*turns, plain], spare=SPARE)
    model.write("chat_template.jinja", "{%% if false %%}{%% raw %%}%s{%% endraw %%}{%% endif %%}"
                "{%% set starts = %s %%}{%% set done = messages | selectattr('role', 'equalto', 'tool') | list | length %%}"
                "{%% set n = [done, %d] | min if tools else %d %%}{{ '%s' }}{%% for i in range(starts[n] - 1) %%}x{%% endfor %%}"
                % (HINT, json.dumps(model.starts), len(turns) - 1, len(turns), GO))
    return folder
