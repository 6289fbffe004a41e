#!/usr/bin/env python3
"""What ground has is written once: the constants of FNV, the escapes of JSON, the test for a digit, the macros of ground.h.

  once.py    says where another folder of the product has its own (status 1 if one has)

Templates for vendors stand on plugin.h alone and are left out, and so is what is no C.
"""
import importlib.util
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("density", os.path.join(HERE, "density.py"))
density = importlib.util.module_from_spec(spec)
spec.loader.exec_module(density)

OWN = {
    "FNV's constants (mn_fnv)": re.compile(r"100000001b3|1099511628211|cbf29ce484222325|14695981039346656037", re.I),
    "an escape of JSON (mn_json_escape)": re.compile(r'\\\\u%04x'),
    "a test for digits (mn_is_digit)": re.compile(r"static[^;=]*\bis_digit\("),
    "MN_COUNT, MN_MIN, MN_MAX or a format attribute": re.compile(r"#\s*define\s+\w*(?:COUNT\(|MIN\(|MAX\(|PRINTF\()|sizeof\(array\) */"),
    "a text that grows (mn_text)": re.compile(r"\btypedef struct \{\s*char \*\w+;\s*size_t \w+, cap;"),
}
# What a file has for another purpose, or may not take from ground.
ALLOWED = {
    "dtype/dtype.c": "MN_COUNT, MN_MIN, MN_MAX or a format attribute",  # dtype stands on plugin.h alone
    "runtime/text/jinja/tojson.c": "an escape of JSON (mn_json_escape)",  # Python's ensure_ascii: surrogate pairs
    "runtime/text/jinja/format.c": "an escape of JSON (mn_json_escape)",  # Python's repr
}


def main():
    failed = 0
    for path in density.sources():
        top = path.split(os.sep)[0]
        if top in ("ground", "tests", "include") or "template" in os.path.dirname(path) or path.startswith(("plugins/cuda", "plugins/cpu_simd")):
            continue
        with open(os.path.join(density.ROOT, path), encoding="utf-8", errors="replace") as f:
            text = f.read()
        for what, pattern in OWN.items():
            m = pattern.search(text)
            if m and ALLOWED.get(path) != what:
                print(f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {what}: ground has it")
                failed = 1
    sys.exit(failed)


if __name__ == "__main__":
    main()
