#!/usr/bin/env python3
"""Makes the ctypes side of the C library from its headers: abi.py INCLUDE OUT.py

INCLUDE has minerva/minerva.h and minerva/plugin.h. OUT.py has every constant, struct and function of minerva.h, and of plugin.h what minerva.h uses:
no layout or signature is written by hand elsewhere in this package. tests/python/abi_test.py holds the sizes and offsets against the C compiler's.

In calls `const char *` is bytes; in callbacks, and beside a length, a pointer (c_void_p): such a text may have no NUL. A declaration that this does not know ends the build.
"""
import os
import re
import sys

PLAIN = {"void": "None", "int": "ctypes.c_int", "char": "ctypes.c_char", "float": "ctypes.c_float", "double": "ctypes.c_double",
         "mn_status": "ctypes.c_int32", "size_t": "ctypes.c_size_t",
         **{"%sint%d_t" % (u, n): "ctypes.c_%sint%d" % (u, n) for u in ("", "u") for n in (8, 16, 32, 64)}}
CONSTANT = re.compile(r"^#define (MN_\w+) +(\(?-?(?:0x[0-9a-fA-F]+|[0-9]+)u?\)?) *$", re.M)
ARRAY = re.compile(r"(\w+)((?:\[\w+\])+)$")


class Unknown(Exception):
    """A declaration that has no form here yet."""


def plain_text(path):
    """A header without comments and continued lines."""
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    return re.sub(r"\\\n", " ", text)


def split(text, at):
    """text at the separators that are outside of brackets, without empty parts."""
    depth, parts = 0, [""]
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == at and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [" ".join(p.split()) for p in parts if p.strip()]


class Headers:
    """What the two headers declare, in their order."""

    def __init__(self, include):
        text = [plain_text(os.path.join(include, "minerva", name)) for name in ("plugin.h", "minerva.h")]
        self.constants = {name: value.strip("()").rstrip("u") for t in text for name, value in CONSTANT.findall(t)}
        for t in text:
            for body in re.findall(r"\benum\s*\{([^{}]*)\}", t):
                self.constants.update(re.findall(r"\b(MN_\w+) *= *(\w+)", body))
        for row in re.findall(r"\bX\((\w+), *(\d+),", text[0]):
            self.constants["MN_" + row[0]] = row[1]  # types of data
        of_plugin, self.structs = ({m.group(2): m.group(1) for m in re.finditer(r"typedef struct\s*\{([^{}]*)\}\s*(\w+)\s*;", t)} for t in text)
        self.opaque = set(re.findall(r"typedef struct (\w+) \1;", text[1]))
        self.callbacks = {m.group(2): (m.group(1), m.group(3)) for m in re.finditer(r"typedef ([\w ]+?)\s*\(\*(\w+)\)\s*\(([^;{}]*)\)\s*;", text[1])}
        self.functions = [(m.group(2), m.group(1), m.group(3)) for m in re.finditer(r"^MN_API ([\w ]+?[ *]+)(\w+)\(([^;{}]*?)\)\s*;", text[1], re.M)]
        used = [name for name in of_plugin if re.search(r"\b%s\b" % name, text[1])]
        self.structs = {**{name: of_plugin[name] for name in used}, **self.structs}

    def type_of(self, text, inside):
        """ctypes of a type without a name. inside: of a callback's parameter or result."""
        const = bool(re.match(r"const\b", text))
        words = re.sub(r"\bconst\b", " ", text)
        stars, base = words.count("*"), words.replace("*", " ").split()
        if len(base) != 1:
            raise Unknown(text)
        base = base[0]
        if base in self.callbacks:
            return self.callback(*self.callbacks[base])
        if base == "char" and stars == 1:
            return "ctypes.c_char_p" if const and not inside else "ctypes.c_void_p"
        if base == "char" and const and stars == 2:
            return "ctypes.POINTER(ctypes.c_char_p)"
        if (base in self.opaque or base in ("void", "char")) and stars:
            base, stars = "ctypes.c_void_p", stars - 1
        elif base in PLAIN:
            base = PLAIN[base]
        elif base not in self.structs:
            raise Unknown(text)
        return "ctypes.POINTER(" * stars + base + ")" * stars

    def callback(self, result, parameters):
        return "ctypes.CFUNCTYPE(%s)" % ", ".join([self.type_of(result, True)] + [self.parameter(p, True)[1] for p in self.parameters(parameters)])

    def parameters(self, text):
        return [p for p in split(text, ",") if p != "void"]

    def parameter(self, text, inside=False):
        """(name, ctypes) of "type name", an array, or a pointer to a function."""
        pointer = re.match(r"(.*?)\(\*(\w+)\)\s*\((.*)\)$", text)
        if pointer:
            return pointer.group(2), self.callback(pointer.group(1), pointer.group(3))
        array = ARRAY.search(text)
        if array:
            name, kind = array.group(1), self.type_of(text[:array.start()], inside)
            for n in reversed(re.findall(r"\w+", array.group(2))):
                kind = "%s * %s" % (kind, n)
            return name, kind
        found = re.match(r"(.*?)(\w+)$", text)
        return found.group(2), self.type_of(found.group(1), inside)

    def fields(self, body):
        with_length = bool(re.search(r"\blen;", body))  # a text without a NUL
        for declaration in split(body, ";"):
            first, *others = split(declaration, ",")
            if "(" in declaration:
                yield self.parameter(declaration)
                continue
            kind = re.match(r"((?:const )?\w+)", first).group(1)
            for text in [first[len(kind):]] + others:
                yield self.parameter(kind + " " + text, with_length)


def write(headers, out):
    lines = ['"""Constants, structs and functions of minerva.h, made by python/abi.py: do not edit."""', "import ctypes", ""]
    lines += ["%s = %s" % c for c in headers.constants.items()]
    for name, body in headers.structs.items():
        lines += ["", "", "class %s(ctypes.Structure):" % name, "    _fields_ = ["]
        lines += ['        ("%s", %s),' % field for field in headers.fields(body)] + ["    ]"]
    lines += ["", "", "# name -> result, parameters", "FUNCTIONS = {"]
    for name, result, parameters in headers.functions:
        kinds = ", ".join(headers.parameter(p)[1] for p in headers.parameters(parameters))
        lines.append('    "%s": (%s, [%s]),' % (name, headers.type_of(result, False), kinds))
    lines += ["}", "STRUCTS = [%s]" % ", ".join(headers.structs)]
    with open(out, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        write(Headers(sys.argv[1]), sys.argv[2])
    except Unknown as e:
        sys.exit("abi.py: found \"%s\", expected a type of minerva.h" % e)


if __name__ == "__main__":
    main()
