#!/usr/bin/env python3
"""freeze.py PLUGIN_H TEST_LAYOUT_C CC...: writes the frozen facts of plugin.h into test_layout.c, between its FROZEN markers.

Below 1.0 it is run for each version. From 1.0 on lines are only added."""
import re
import sys

import abi_header


def lines_of(h):
    for name, fields in h.structs.items():
        yield "SIZE(%s, %d)" % (name, h.facts[name][0])
        for field, _ in fields:
            yield "AT(%s, %s, %d)" % (name, field, h.facts["%s.%s" % (name, field)][0])
    for name in h.constants:
        if not name.startswith("MN_DTYPE") and name in h.facts:
            yield "IS(%s, %d)" % (name, h.facts[name][0])
    yield "#define FROZEN_TYPES(TYPE) \\"
    for row in re.findall(r"X\((\w+), (\d+), (\d+), (\d+), (\d+)\)", h.text):
        if row[0] != "name":
            yield "    TYPE(%s) \\" % ", ".join(row)
    yield "    /* end */"


def main():
    header, path, cc = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin, end = "// FROZEN-BEGIN\n", "// FROZEN-END\n"
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    body = "\n".join(lines_of(abi_header.read(header, cc or ("cc",)))) + "\n"
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + begin + body + end + tail)


main()
