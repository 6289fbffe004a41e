#!/usr/bin/env python3
"""What python/abi.py made of the headers is what the C compiler makes of them: sizes, offsets and constants; every function of minerva.h is there.
abi_test.py INCLUDE COMPILER..."""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

from minerva import _abi, _library

CONSTANTS = [name for name in dir(_abi) if name.startswith("MN_")]


def program():
    """C that prints a line for each field and constant."""
    lines = ["#include <stdio.h>", "#include <minerva/minerva.h>", "int main(void) {"]
    for s in _abi.STRUCTS:
        name = s.__name__
        lines.append('printf("%s %%zu 0\\n", sizeof(%s));' % (name, name))
        lines += ['printf("%s.%s %%zu %%zu\\n", offsetof(%s, %s), sizeof(((%s *)0)->%s));' % (name, f[0], name, f[0], name, f[0]) for f in s._fields_]
    lines += ['printf("%s %%lld 0\\n", (long long)(%s));' % (name, name) for name in CONSTANTS]
    return "\n".join(lines + ["return 0;", "}", ""])


def ours():
    found = {}
    for s in _abi.STRUCTS:
        found[s.__name__] = (ctypes.sizeof(s), 0)
        for field in s._fields_:
            at = getattr(s, field[0])
            found[s.__name__ + "." + field[0]] = (at.offset, at.size)
    found.update((name, (getattr(_abi, name), 0)) for name in CONSTANTS)
    return found


def main():
    include, compiler = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        exe = os.path.join(folder, "layout")
        subprocess.run([*compiler, "-x", "c", "-", "-I", include, "-o", exe], input=program(), text=True, check=True)
        said = subprocess.run([exe], stdout=subprocess.PIPE, text=True, check=True).stdout
    theirs = {name: (int(a), int(b)) for name, a, b in (line.split() for line in said.splitlines())}
    mine = ours()
    wrong = ["%s: found %s in _abi.py, expected %s" % (name, mine.get(name), theirs[name]) for name in theirs if mine.get(name) != theirs[name]]
    assert not wrong, "\n".join(wrong)
    with open(os.path.join(include, "minerva", "minerva.h"), encoding="utf-8") as f:
        text = f.read()
    functions = set(re.findall(r"\b(mn_\w+)\(", "".join(re.findall(r"^MN_API [^;]*;", text, re.M))))
    assert functions == set(_abi.FUNCTIONS), functions ^ set(_abi.FUNCTIONS)
    structs = set(re.findall(r"^} (mn_\w+);", text, re.M))
    assert structs <= {s.__name__ for s in _abi.STRUCTS}, structs
    assert all(getattr(_library.lib, name).argtypes is not None for name in functions)
    print("ok    %d fields and constants, %d functions" % (len(theirs), len(functions)))


if __name__ == "__main__":
    main()
