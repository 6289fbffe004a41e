#!/usr/bin/env python3
"""architectures.py SOURCE [--write]: joins the lists of architectures by name. runtime/model/archs.def has one row each; a family of
loaders/safetensors/families.c and a remark of runtime/convert/remarks.c name one of these; an architecture has a family, or is one of GGUF alone;
a pre-tokeniser is one that GGUF has. The table of docs/model-formats.md is what these rows and the fixtures say: --write puts it there."""
import json
import os
import re
import sys

GGUF_ALONE = {"baichuan", "bailingmoe", "deepseek", "exaone", "internlm2", "xverse"}  # whose folders bring code of their own
DOCUMENT = "docs/model-formats.md"
BEGIN, END = "<!-- table of tests/loaders/architectures.py -->\n", "<!-- end of the table -->\n"
STRINGS = r'"(?:[^"\\]|\\.)*"'


def read(path):
    with open(os.path.join(sys.argv[1], path), encoding="utf-8") as f:
        return f.read()


def joined(strings):
    """The value of C's string literals one behind the other."""
    return "".join(json.loads(s) for s in re.findall(STRINGS, strings))


def architectures():
    """name, pre-tokeniser or NULL, what is special: the rows of archs.def."""
    rows = re.findall(r'^MN_ARCH\("([^"]+)", \w+, (NULL|"[^"]+"),((?:\s*%s)+),' % STRINGS, read("runtime/model/archs.def"), re.M)
    return [(name, pre.strip('"'), joined(special)) for name, pre, special in rows]

FAMILIES = ("families", "families_encoders", "families_state", "families_latent")


def families():
    """model_type, class, architecture: the rows of families.c."""
    text = "".join(read("loaders/safetensors/%s.c" % name) for name in FAMILIES)
    rows = re.findall(r'\.model_type = "([^"]+)",\s*\.class_name = "([^"]+)",\s*\.arch = "([^"]+)"', text)
    both_ways = re.findall(r'\.model_type = "([^"]+)",\s*\.class_name = "([^"]+)",\s*\.arch = "[^"]+",\s*\.arch_both_ways = "([^"]+)"', text)
    experts = re.findall(r'\.model_type = "([^"]+)",\s*\.class_name = "([^"]+)",\s*\.arch = "[^"]+",\s*\.arch_experts = "([^"]+)"', text)
    return rows + both_ways + experts + [(kind, name, "qwen2vl") for kind, name in re.findall(r'^    QWEN2_VL\("([^"]+)", "([^"]+)"\)', text, re.M)]


def checks(types, both_ways):
    """architecture -> what its logits are compared with: fixtures, and those that other tests rename. types: model_type -> architecture; both_ways: the
    same of encoders made of decoders, and of models with experts where these have a name of their own."""
    out = {}
    folder = os.path.join(sys.argv[1], "tests", "data", "fixtures")
    for name in sorted(os.listdir(folder)):
        config = json.loads(read(os.path.join("tests", "data", "fixtures", name, "config.json")))
        config = config.get("text_config", config)
        arch = types[config["model_type"]]
        if config.get("use_bidirectional_attention") or "moe" in config.get("layers_block_type", []):
            arch = both_ways[config["model_type"]]
        if arch == "granitehybrid" and set(config.get("layer_types", ["linear_attention"])) <= {"attention", "full_attention"}:
            arch = "granite"
        out.setdefault(arch, []).append("`%s`" % name)
    for fixture, kind in re.findall(r'\("([^"]+)", "[^"]*", qwen_vl\("([^"]+)"', read("tests/golden/configs.py")):
        arch = types.get(kind) or types[kind + "_text"]
        if "`%s`, renamed" % fixture not in out.setdefault(arch, []):
            out[arch].append("`%s`, renamed" % fixture)
    for fixture, arch in re.findall(r'\("([^"]+)", named\("([^"]+)"', read("tests/golden/gguf_forms.py")):
        if "`%s`, renamed" % fixture not in out.setdefault(arch, []):
            out[arch].append("`%s`, renamed" % fixture)
    return out


def make_table(archs, of):
    """Markdown; of: rows of families()."""
    types, both_ways = {}, {}
    for kind, _, arch in of:
        (both_ways if kind in types else types)[kind] = arch
    checked = checks(types, both_ways)
    lines = ["| `general.architecture` of GGUF | `model_type` and class of a folder | what is special | checked with |", "|---|---|---|---|"]
    for name, _, special in archs:
        kinds = ", ".join("`%s` (`%s`)" % (kind, cls) for kind, cls, arch in of if arch == name) or "GGUF alone"
        lines.append("| `%s` | %s | %s | %s |" % (name, kinds, special, ", ".join(checked.get(name, ["nothing"]))))
    return "\n".join(lines) + "\n"


def document(table):
    """The document with this table; None: it has no place for one."""
    text = read(DOCUMENT)
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        return None
    return text[:text.index(BEGIN) + len(BEGIN)] + table + text[text.index(END):]


def main():
    rows, of = architectures(), families()
    archs, of_families = [name for name, _, _ in rows], {arch for _, _, arch in of}
    remarks = set(re.findall(r' \{"([^"]+)", \w+, (?:true|false), (?:true|false)\}', read("runtime/convert/remarks.c"), re.M))
    known_pre = set(" ".join(re.findall(r'\{((?:"[^"]*"\s*)+),\s*(?:0|MN_PRE)', read("runtime/text/pretokenizer/gguf_names.c"))).replace('"', " ").split())
    wrong = []
    if len(rows) != len(re.findall(r'^MN_ARCH\(', read("runtime/model/archs.def"), re.M)) or len(of) != len(re.findall(r'\.model_type = "|\.arch_both_ways = "|\.arch_experts = "|^    QWEN2_VL\(', "".join(read("loaders/safetensors/%s.c" % name) for name in FAMILIES), re.M)):
        wrong.append("a list was not understood: %d architectures, %d families" % (len(rows), len(of)))
    if len(remarks) < 10 or len(known_pre) < 10:
        wrong.append("a list was not understood: %d remarks, %d pre-tokenisers" % (len(remarks), len(known_pre)))
    wrong += ["archs.def has %s twice" % name for name in sorted(set(archs)) if archs.count(name) > 1]
    wrong += ["families.c: %s is not in archs.def" % name for name in sorted(of_families - set(archs))]
    wrong += ["remarks.c: %s is not in archs.def" % name for name in sorted(remarks - set(archs))]
    wrong += ["%s has no family, and is not one of GGUF alone" % name for name in archs if (name in of_families) == (name in GGUF_ALONE)]
    wrong += ["%s: gguf_names.c has no pre-tokeniser %s" % (name, pre) for name, pre, _ in rows if pre != "NULL" and pre not in known_pre]
    missing = re.findall(r'^MN_MISSING\("(.*?)", "(.*?)",', read("ground/missing.def"), re.M)
    types = {kind for kind, _, _ in of}
    wrong += ["missing.def has %s, which runs" % name for arch, kind in missing for name, runs in ((arch, archs), (kind, types)) if name in runs]
    table = make_table(rows, of)
    text = document(table)
    if "| nothing |" in table:
        wrong += ["%s is checked with nothing" % re.match(r"\| `([^`]+)`", line)[1] for line in table.splitlines() if line.endswith("| nothing |")]
    if text is None:
        wrong.append("%s has no line %s" % (DOCUMENT, BEGIN.strip()))
    elif "--write" in sys.argv:
        with open(os.path.join(sys.argv[1], DOCUMENT), "w", encoding="utf-8") as f:
            f.write(text)
    elif text != read(DOCUMENT):
        found, want = read(DOCUMENT).splitlines(), text.splitlines()
        line = next((a + "\n expected: " + b for a, b in zip(found, want) if a != b), "another number of lines")
        wrong.append("the table of %s is not that of archs.def, families.c and the fixtures (tests/loaders/architectures.py . --write): %s" % (DOCUMENT, line))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
