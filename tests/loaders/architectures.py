#!/usr/bin/env python3
"""architectures.py SOURCE: joins the lists of architectures by name. runtime/model/archs.def has one row each; a family of
loaders/safetensors/families.c, a remark of runtime/convert/remarks.c and a row of docs/model-formats.md name one of these; an architecture
has a family, or is one of GGUF alone; a pre-tokeniser is one that GGUF has."""
import os
import re
import sys

GGUF_ALONE = {"baichuan", "bailingmoe", "deepseek", "exaone", "internlm2", "xverse"}  # whose folders bring code of their own


def read(path):
    with open(os.path.join(sys.argv[1], path), encoding="utf-8") as f:
        return f.read()


def main():
    rows = re.findall(r'^MN_ARCH\("([^"]+)", (\w+), (NULL|"[^"]+")', read("runtime/model/archs.def"), re.M)
    archs = [name for name, _, _ in rows]
    families = set(re.findall(r'\.arch = "([^"]+)"', read("loaders/safetensors/families.c")))
    remarks = set(re.findall(r'^    \{"([^"]+)", \w+, (?:true|false), (?:true|false)\},', read("runtime/convert/remarks.c"), re.M))
    table = read("docs/model-formats.md").split("## Architectures", 1)[1].split("\n## ", 1)[0]
    documented = {name for line in table.splitlines() if line.startswith("| `") for name in re.findall(r"`([^`]+)`", line.split("|")[1])}
    known_pre = set(" ".join(re.findall(r'\{((?:"[^"]*"\s*)+),\s*(?:0|MN_PRE)', read("runtime/text/pretokenizer/gguf_names.c"))).replace('"', " ").split())
    wrong = []
    if len(rows) < 10 or len(families) < 10 or len(remarks) < 10 or len(known_pre) < 10:
        wrong.append("a list was not understood: %d architectures, %d of families, %d remarks, %d pre-tokenisers" % (len(rows), len(families), len(remarks), len(known_pre)))
    wrong += ["archs.def has %s twice" % name for name in sorted(set(archs)) if archs.count(name) > 1]
    wrong += ["families.c: %s is not in archs.def" % name for name in sorted(families - set(archs))]
    wrong += ["remarks.c: %s is not in archs.def" % name for name in sorted(remarks - set(archs))]
    wrong += ["%s has no family, and is not one of GGUF alone" % name for name in archs if (name in families) == (name in GGUF_ALONE)]
    wrong += ["docs/model-formats.md and archs.def: one of them lacks %s" % name for name in sorted(documented ^ set(archs))]
    wrong += ["%s: gguf_names.c has no pre-tokeniser %s" % (name, pre) for name, _, pre in rows if pre != "NULL" and pre.strip('"') not in known_pre]
    missing = re.findall(r'^MN_MISSING\("(.*?)", "(.*?)",', read("ground/missing.def"), re.M)
    types = set(re.findall(r'\.model_type = "([^"]+)"', read("loaders/safetensors/families.c")))
    wrong += ["missing.def has %s, which runs" % name for arch, kind in missing for name, runs in ((arch, archs), (kind, types)) if name in runs]
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
