"""What a plugin.h promises, read from its text and measured by the compiler, for test_kept.py and mixing.py."""
import os
import re
import subprocess
import tempfile

# Structs that may not grow though they are not embedded in others: none (rows in device memory have a stride, too).
WITHOUT_STRIDE = set()
VERSION = re.compile(r"#define MN_ABI_VERSION 0x([0-9a-fA-F]{4})([0-9a-fA-F]{4})")
OLDEST = re.compile(r"#define MN_ABI_OLDEST 0x[0-9a-fA-F]{8}")


def squeeze(text):
    return re.sub(r"\s+", " ", re.sub(r"\s*([*(),\[\]{}])\s*", r"\1", text)).strip()


def type_of_parameter(text):
    """Without its name: a parameter may be renamed."""
    text = re.sub(r"\((\*+)\w+\)", r"(\1)", squeeze(text))
    words = re.findall(r"\w+", text.split("(")[0])
    named = len([w for w in words if w not in ("const", "struct")]) > 1 or re.search(r"\*\w+$", text)
    return re.sub(r"\s*\w+$", "", text) if named and "(" not in text else text


def split_top(text, at):
    depth, parts, last = 0, [], 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == at and not depth:
            parts.append(text[last:i])
            last = i + 1
    return [p.strip() for p in parts + [text[last:]] if p.strip()]


def fields_of(body):
    """[(name, type)] in order."""
    out = []
    for line in split_top(body, ";"):
        function = re.match(r"(.*?)\((?:MN_CALL )?\*(\w+)\)\s*\((.*)\)$", line, re.S)
        if function:
            result, name, parameters = function.groups()
            out.append((name, "%s(*)(%s)" % (squeeze(result), ",".join(type_of_parameter(p) for p in split_top(parameters, ",")))))
            continue
        base = None
        for declarator in split_top(line, ","):
            m = re.match(r"(.*?)(\**)(\w+)((?:\[[^\]]*\])*)$", declarator, re.S)
            base = m.group(1) if base is None else base
            out.append((m.group(3), squeeze(base + m.group(2)) + m.group(4)))
    return out


class Header:
    def __init__(self, text, name, cc=("cc",)):
        self.text, self.name, self.cc = text, name, list(cc)
        self.version = tuple(int(v, 16) for v in VERSION.search(text).groups())
        plain = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        plain = re.sub(r"\\\n", " ", plain)
        self.structs = {m.group(2): fields_of(m.group(1)) for m in re.finditer(r"typedef struct\s*\{([^{}]*)\}\s*(\w+)\s*;", plain)}
        enums = ",".join(m.group(1) for m in re.finditer(r"enum\s*\{([^{}]*)\}", plain))
        names = re.findall(r"\b(MN_\w+)\s*=", enums)
        self.strings, macros = {}, []
        for m in re.finditer(r"^#define (MN_\w+) (.+)$", plain, re.M):
            value = m.group(2).strip()
            if value.startswith('"'):
                self.strings[m.group(1)] = value
            elif not value.startswith("__"):
                macros.append(m.group(1))
        self.constants = sorted(set(names + macros) - {"MN_ABI_VERSION", "MN_ABI_OLDEST"})
        self.functions = {m.group(2): squeeze(m.group(0)) for m in re.finditer(r"typedef [^;{}]*\((?:MN_CALL )?\*(\w*?)(mn_\w+)\)\([^;]*;", plain)}
        embedded = {re.sub(r"\[.*", "", t) for fields in self.structs.values() for _, t in fields}
        self.fixed = (embedded & set(self.structs)) | WITHOUT_STRIDE
        self.measure()

    def measure(self):
        lines = ["#include <stdio.h>", '#include "plugin.h"', "int main(void) {"]
        for s, fields in self.structs.items():
            lines.append('printf("%s %%zu 0\\n", sizeof(%s));' % (s, s))
            lines += ['printf("%s.%s %%zu %%zu\\n", offsetof(%s, %s), sizeof(((%s *)0)->%s));' % (s, f, s, f, s, f) for f, _ in fields]
        lines += ['printf("%s %%lld 0\\n", (long long)(%s));' % (c, c) for c in self.constants]
        lines.append('#define ROW(name, id, elems, bytes, planes) printf("dtype-" #name " %d %d\\n", id, elems << 20 | bytes << 4 | planes);')
        lines += ["MN_DTYPES(ROW)", "return 0; }"]
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("plugin.h", self.text), ("main.c", "\n".join(lines))):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            exe = os.path.join(folder, "main")
            subprocess.run(self.cc + ["-w", "-std=gnu11", os.path.join(folder, "main.c"), "-o", exe], check=True)
            out = subprocess.run([exe], check=True, stdout=subprocess.PIPE).stdout.decode()
        self.facts = {k: (int(a), int(b)) for k, a, b in (line.split() for line in out.splitlines())}


def read(path, cc=("cc",)):
    with open(path, encoding="utf-8") as f:
        return Header(f.read(), os.path.basename(path), cc)


def breaks(old, new):
    """What in `new` is no compatible extension of `old`; the same version must be the same altogether."""
    bad, same = [], old.version == new.version
    if new.version < old.version:
        bad.append("version %d.%d comes after %d.%d" % (new.version + old.version))
    for s, fields in old.structs.items():
        if s not in new.structs:
            bad.append("%s is gone" % s)
            continue
        ours, size, before = new.structs[s], new.facts[s][0], old.facts[s][0]
        for i, (f, t) in enumerate(fields):
            if i >= len(ours) or ours[i][0] != f:
                bad.append("%s.%s: its place is taken by %s" % (s, f, ours[i][0] if i < len(ours) else "nothing"))
                break
            if ours[i][1] != t:
                bad.append("%s.%s: was %s, is %s" % (s, f, t, ours[i][1]))
            if old.facts[s + "." + f] != new.facts[s + "." + f]:
                bad.append("%s.%s: was at %d with %d bytes, is at %d with %d" % ((s, f) + old.facts[s + "." + f] + new.facts[s + "." + f]))
        added = ours[len(fields):]
        if size < before or (size != before and (same or s in new.fixed)):
            bad.append("%s: had %d bytes and cannot change, has %d" % (s, before, size))
        if added and (same or s in new.fixed):
            bad.append("%s.%s: this struct cannot grow" % (s, added[0][0]))
        if added and new.facts[s + "." + added[0][0]][0] < before:
            bad.append("%s.%s lies in what was padding" % (s, added[0][0]))
    for name in old.constants + [k for k in old.facts if k.startswith("dtype-")]:
        if new.facts.get(name) != old.facts[name]:
            bad.append("%s: was %s, is %s" % (name, old.facts[name], new.facts.get(name, "gone")))
    for kind in ("strings", "functions"):
        for name, value in getattr(old, kind).items():
            if getattr(new, kind).get(name) != value:
                bad.append("%s: was %s, is %s" % (name, value, getattr(new, kind).get(name, "gone")))
    if same:
        bad += ["%s is new in the same version" % n for n in sorted(set(new.facts) - set(old.facts)) if "." not in n]
    return bad


def with_version(text, major, minor):
    oldest = (major, 0) if major else (major, minor)
    text = OLDEST.sub("#define MN_ABI_OLDEST 0x%04x%04x" % oldest, text)
    return VERSION.sub("#define MN_ABI_VERSION 0x%04x%04x" % (major, minor), text)


FUNCTIONS = {"mn_host": "void *self, uint32_t", "mn_backend": "mn_device *, uint64_t, mn_error *", "mn_loader": "mn_parsed *, uint32_t", "mn_plugin": "void *self"}


def next_minor(header, major, minor):
    """The text of a later version, in which everything that can grow has grown."""
    def grow(m):
        body, name = m.groups()
        if name in header.fixed or name not in header.structs:
            return m.group(0)
        more = " uint32_t next_words[2];" if name == "mn_note" else " uint64_t next_bytes, next_flags; uint32_t next_count, next_pad;"
        if name in FUNCTIONS:
            more = " mn_status (*next_function)(%s);" % FUNCTIONS[name] + more
        return "typedef struct {%s%s\n} %s;" % (body.rstrip(), more, name)
    plain = re.sub(r"typedef struct\s*\{([^{}]*)\}\s*(\w+)\s*;", grow, header.text)
    plain = plain.replace("#define MN_STATUS(klass", "#define MN_NEXT_FLAG 64u\n#define MN_STATUS(klass", 1)
    return with_version(plain, major, minor)
