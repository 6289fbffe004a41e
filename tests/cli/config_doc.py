#!/usr/bin/env python3
"""config_doc.py MINERVA: docs/configuration.md lists every key of `minerva config` with its default and its variable, which sets
it; and so does a line of minerva.ini."""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MINERVA = sys.argv[1]
FAILED = []


def check(ok, what):
    if not ok:
        print("FAIL  " + what)
        FAILED.append(what)


def config(folder, **variables):
    """{key: (value, origin)}, or None for a value that does not fit."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MINERVA_")}
    env.update({"XDG_CONFIG_HOME": folder, "XDG_DATA_HOME": folder, "XDG_CACHE_HOME": folder, "MINERVA_PLUGIN_PATH_ONLY": "/nonexistent"})
    env.update(variables)
    p = subprocess.run([MINERVA, "config", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    return {c["key"]: (c["value"], c["origin"]) for c in json.loads(p.stdout.decode())} if p.returncode == 0 else None


def main():
    with open(os.path.join(ROOT, "docs", "configuration.md"), encoding="utf-8") as f:
        text = f.read()
    rows = {m.group(1): (m.group(2), m.group(3).strip()) for m in re.finditer(r"^\| `([a-z_.]+)`(?: \+)? \| `(MINERVA_\w+)` \| *([^|]*)\|", text, re.M)}
    with tempfile.TemporaryDirectory() as folder:
        listed = config(folder)
        check(listed is not None, "minerva config works")
        check(set(rows) == set(listed), "the document lists %s, minerva config %s" % (sorted(set(rows) - set(listed)), sorted(set(listed) - set(rows))))
        os.makedirs(os.path.join(folder, "minerva"))
        for key, (variable, default) in rows.items():
            value, origin = listed.get(key, ("", ""))
            in_words = not default or not default.startswith("`")
            if key != "plugin_path_only":
                check(origin == "default", "%s has its default without any setting, not %s" % (key, origin))
                check(value == "" if in_words else value == default.strip("`"), "%s: the document says %s, the default is %r" % (key, default, value))
            for value in ("1", "8", "true", "exact", "warn", "avx2", "nccl", "split", "off", "/x"):
                set_by = config(folder, **{variable: value})
                if set_by is not None:
                    break
            check(set_by and set_by.get(key) == (value, "environment " + variable), "%s is set by %s: %s" % (key, variable, set_by and set_by.get(key)))
            ini = os.path.join(folder, "minerva", "minerva.ini")
            section, name = ("plugin." + key.split(".")[1], key.split(".")[2]) if key.startswith("plugin.") else ("minerva", key)
            with open(ini, "w", encoding="utf-8") as f:
                f.write("[%s]\n%s = %s\n" % (section, name, value))
            if key != "plugin_path_only":  # the variable that keeps this test short is stronger
                set_by = config(folder)
                check(set_by and set_by.get(key) == (value, ini + ":2"), "%s is set by minerva.ini: %s" % (key, set_by and set_by.get(key)))
            os.unlink(ini)
    print("%d keys" % len(rows))
    sys.exit(bool(FAILED))


main()
