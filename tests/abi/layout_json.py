#!/usr/bin/env python3
"""layout_json.py PLUGIN_H FILE CC... [--write]: plugin.h for other languages: sizes, offsets, types and constants as a compiler of this machine has them.

Without --write the two are compared: status 1 says that FILE is to be made again."""
import json
import re
import sys

import abi_header


def layout(h):
    types = re.findall(r"X\((\w+), (\d+), (\d+), (\d+), (\d+)\)", h.text)
    ops = re.search(r"#define MN_OPS\(X\)(.*?)\nenum", h.text, re.S).group(1)
    return {
        "abi": "%d.%d" % h.version,
        "structs": {name: {"size": h.facts[name][0], "fields": [
            {"name": f, "type": t, "offset": h.facts["%s.%s" % (name, f)][0], "size": h.facts["%s.%s" % (name, f)][1]} for f, t in fields]}
            for name, fields in h.structs.items()},
        "version": {name: int(re.search(r"#define %s (0x[0-9a-fA-F]+)" % name, h.text).group(1), 16) for name in ("MN_ABI_VERSION", "MN_ABI_OLDEST")},
        "constants": {name: h.facts[name][0] for name in h.constants if name in h.facts},
        "strings": {name: value.strip('"') for name, value in h.strings.items()},
        "dtypes": [dict(zip(("name", "id", "block_elems", "block_bytes", "n_planes"), [row[0]] + [int(n) for n in row[1:]])) for row in types if row[0] != "name"],
        "ops": [{"name": name, "id": int(number)} for name, number in re.findall(r"X\((\w+), (\d+)\)", ops)],
    }


def text_of(what):
    """JSON with a line for each entry of the second level, so that a change is a line."""
    lines = []
    for key, value in what.items():
        if isinstance(value, dict):
            body = ",\n".join("  %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in value.items())
            lines.append(" %s: {\n%s\n }" % (json.dumps(key), body))
        elif isinstance(value, list):
            lines.append(" %s: [\n%s\n ]" % (json.dumps(key), ",\n".join("  " + json.dumps(v) for v in value)))
        else:
            lines.append(" %s: %s" % (json.dumps(key), json.dumps(value)))
    return "{\n%s\n}\n" % ",\n".join(lines)


def main():
    words = [w for w in sys.argv[1:] if w != "--write"]
    made = text_of(layout(abi_header.read(words[0], words[2:] or ("cc",))))
    json.loads(made)
    if "--write" in sys.argv:
        with open(words[1], "w", encoding="utf-8") as f:
            f.write(made)
        return
    with open(words[1], encoding="utf-8") as f:
        kept = f.read()
    if kept != made:
        differ = [line for line in made.splitlines() if line not in kept.splitlines()][:3]
        sys.exit("%s is not plugin.h's any more, for example:\n%s\nmake it again: tests/abi/layout_json.py %s %s --write" % (words[1], "\n".join(differ), words[0], words[1]))


main()
