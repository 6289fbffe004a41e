#!/usr/bin/env python3
"""The table of fields (tools/serve/fields.def) as rows, and as docs/serving.md prints it.

  fields_table.py          compares the document with the table
  fields_table.py --write  writes the table into the document"""
import collections
import os
import re
import sys

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TABLE = os.path.join(ROOT, "tools", "serve", "fields.def")
SAMPLERS = os.path.join(ROOT, "ground", "samplers.def")
DOCUMENT = os.path.join(ROOT, "docs", "serving.md")
BEGIN, END = "<!-- fields.def -->\n", "<!-- end of fields.def -->\n"
SERVERS = {"O": "OpenAI", "V": "vLLM", "L": "llama-server", "S": "SGLang"}
LIMITS = {"INT32_MAX": "2^31 - 1", "INT32_MIN": "-2^31", "ASK_MAX_CHOICES": "128"}

# kind: the macro; of: letters of SERVERS; at: endpoints; value: what it may be; doc: the last argument
Row = collections.namedtuple("Row", "name kind of at value doc")


def arguments(text):
    """The arguments of a macro: names, numbers and strings."""
    found = re.findall(r'\s*("(?:\\.|[^"\\])*"|[^,"\s][^,"]*)\s*(?:,|$)', text)
    return [re.sub(r"\\(.)", r"\1", a[1:-1]) if a.startswith('"') else a.strip() for a in found]


def samplers():
    """The rows of samplers.def as those of numbers."""
    with open(SAMPLERS) as f:
        text = f.read()
    found = []
    for kind, inner in re.findall(r'^MN_SAMPLE_([FI]32)\(((?:[^()"]|"(?:\\.|[^"\\])*")*)\)$', text, re.M):
        a = [x.strip() for x in re.findall(r'"(?:\\.|[^"\\])*"|[^,"\s][^,"]*', inner)]
        name, of, least, most, doc = a[-5:]
        found.append("%s(%s, %s, BOTH, %s, %s, %s, %s)" % ({"F": "NUMBER", "I": "INTEGER"}[kind[0]], name, of, a[0], least, most, doc))
    return "\n".join(found)


def rows():
    with open(TABLE) as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S).replace('\n#include "samplers.def"\n', "\n" + samplers() + "\n")
    for kind, inner in re.findall(r"^(NUMBER|INTEGER|FLAG|FORM|READ|REFUSED|HARMLESS)\((.*)\)$", text, re.M):
        a = arguments(inner)
        at = {"CHAT": ("chat",), "TEXT": ("text",), "BOTH": ("chat", "text")}[a[2]]
        value = ""
        if kind in ("NUMBER", "INTEGER"):
            least, most = a[4:6]
            value = "%s to %s" % (LIMITS.get(least, least), LIMITS.get(most, most))
            value = {"-2^31 to 2^31 - 1": "a whole number"}.get(value, re.sub(r"^(-?\d+) to 2\^31 - 1$", r"from \1", value))
        elif kind == "FLAG":
            value = "true or false"
        elif kind == "REFUSED":
            value = a[3]
        yield Row(a[0], kind, a[1], at, value, a[-1])


def tables():
    """The three tables in markdown: fields of one row have the same words and stand together."""
    groups = {"read": {}, "REFUSED": {}, "HARMLESS": {}}
    for r in rows():
        kind = r.kind if r.kind in groups else "read"
        where = "" if len(r.at) == 2 else r.at[0]
        of = ", ".join(SERVERS[x] for x in r.of)
        words = "; ".join(x for x in (r.value, r.doc) if x) if kind == "read" else r.doc
        key = (of, where, words, r.value) if kind == "REFUSED" else (of, where, words)
        groups[kind].setdefault(key if words else (r.name,) + key, []).append((r.name, of, where, words, r.value))
    heads = {"read": "| field | of | at | value |\n|---|---|---|---|\n",
             "REFUSED": "| refused | of | at | but for | why |\n|---|---|---|---|---|\n",
             "HARMLESS": "| without effect | of | at | why |\n|---|---|---|---|\n"}
    out = []
    for kind, head in heads.items():
        text = head
        for group in groups[kind].values():
            _, of, where, words, value = group[0]
            names = ", ".join("`%s`" % g[0] for g in group)
            allowed = [" %s |" % ", ".join("`%s`" % v for v in value.split("|") if v)] if kind == "REFUSED" else []
            text += "| %s | %s | %s |%s %s |\n" % (names, of, where, "".join(allowed), words)
        out.append(text)
    return "\n".join(out)


def main():
    with open(DOCUMENT, encoding="utf-8") as f:
        before, rest = f.read().split(BEGIN)
    has, behind = rest.split(END)
    want = tables()
    if "--write" in sys.argv:
        with open(DOCUMENT, "w", encoding="utf-8") as f:
            f.write(before + BEGIN + want + END + behind)
    elif has != want:
        sys.exit("docs/serving.md has other fields than tools/serve/fields.def: tests/serve/fields_table.py --write")


if __name__ == "__main__":
    main()
