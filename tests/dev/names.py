#!/usr/bin/env python3
"""Counts how many functions of the product share their name with another one.

  names.py          the share, the names that occur most often, and what exceeds a limit (status 1 if anything does)
  names.py --list   every name that several functions have, with their files and lines
  names.py --folders  the share by folder
  names.py --files  basenames that several files of the product have

A name that one function alone has can be searched. Definitions count, in .c, .cu, .h, .cuh and .inc, once per file; not main. A static
function that a table of functions in its own file names is apart: its table gives it the name (begin, free, run of each row). A static function
whose name occurs more than MOST times names its object: pages_take instead of take. The limits fall with the count, and never rise.
"""
import collections
import importlib.util
import os
import re
import sys

LIMIT_SHARE = 8.6  # per cent of the definitions whose name another one has
LIMIT_OFTEN = 1  # names that occur more than MOST times
MOST = 5

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = ("dtype", "ground", "json", "include", "loaders", "plugins", "runtime", "tools")
NAME = re.compile(r"[A-Za-z_]\w*$")


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


density = load("density")


class Definitions(density.Scanner):
    """The functions of one file, and the names in its tables outside of functions and in static ones inside."""

    def __init__(self, tokens, path):
        self.found = []  # (name, line, is_static)
        self.in_tables = set()
        self.before = ("", "")  # the two tokens before
        super().__init__(tokens, path)

    def name_of(self, words):
        """The name in front of the parameters: the last list in round brackets; None = made by a macro."""
        depth, at = 0, len(words) - 1
        while at >= 0 and words[at] in ("const", "noexcept"):
            at -= 1
        while at >= 0:
            depth += (words[at] == ")") - (words[at] == "(")
            if depth == 0:
                break
            at -= 1
        return words[at - 1] if at > 0 and NAME.match(words[at - 1]) else None

    def token(self, text, line):
        if text == "{" and self.kind_of_block() == "function":
            name = self.name_of(self.statement)
            if name:
                self.found.append((name, line, "static" in self.statement))
        elif self.blocks and self.blocks[-1] in ("table", "type") and NAME.match(text):
            self.in_tables.add(text)
        elif text in (",", ";", "}") and self.before[0] == "=" and NAME.match(self.before[1]):
            self.in_tables.add(self.before[1])  # table.field = name
        self.before = (self.before[1], text)
        super().token(text, line)


def definitions():
    """[(name, path, line, is_static, is in a table of its file)]"""
    out = []
    for path in sources():
        with open(os.path.join(density.ROOT, path), encoding="utf-8", errors="replace") as f:
            text = f.read()
        tokens, _ = density.lex(text if text.endswith("\n") else text + "\n")
        file = Definitions(tokens, path)
        once = {name: (line, static) for name, line, static in reversed(file.found) if name != "main"}  # branches of #if are one
        out += [(name, path, line, static, static and name in file.in_tables) for name, (line, static) in once.items()]
    return out


def sources():
    return [path for path in density.sources() if path.split(os.sep)[0] in TOP]


def main():
    if len(sys.argv) > 1 and sys.argv[1:] not in (["--list"], ["--folders"], ["--files"]):
        sys.exit(__doc__)
    if sys.argv[1:] == ["--files"]:
        files = collections.defaultdict(list)
        for path in sources():
            files[os.path.basename(path)].append(os.path.dirname(path))
        for name, folders in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
            if len(folders) > 1:
                print(f"{len(folders):3} {name}: {' '.join(folders)}")
        return
    found = definitions()
    places = collections.defaultdict(list)
    for name, path, line, static, member in found:
        places[name].append((path, line, member))
    counted = [d for d in found if not d[4]]
    often = collections.Counter(d[0] for d in counted)
    shared = [d for d in counted if often[d[0]] > 1]
    share = 100 * len(shared) / len(counted)
    if sys.argv[1:] == ["--folders"]:
        all_of, shared_of = collections.Counter(os.path.dirname(d[1]) for d in counted), collections.Counter(os.path.dirname(d[1]) for d in shared)
        for folder, n in sorted(all_of.items(), key=lambda item: -shared_of[item[0]]):
            print(f"{folder:28} {shared_of[folder]:5} of {n:5}  {100 * shared_of[folder] / n:5.1f} %")
        return
    if sys.argv[1:] == ["--list"]:
        for name, n in sorted(often.items(), key=lambda item: (-item[1], item[0])):
            if n > 1:
                print(f"{n:3} {name}: " + " ".join(f"{path}:{line}" for path, line, member in places[name] if not member))
        return
    raw = collections.Counter(d[0] for d in found)
    too_often = [(n, name) for name, n in often.items() if n > MOST]
    print(f"names: {share:.2f} % of {len(counted)} definitions share their name with another (limit {LIMIT_SHARE}); "
          f"{len(found) - len(counted)} members of tables apart; with them {100 * sum(raw[d[0]] > 1 for d in found) / len(found):.2f} %")
    print(f"names: {len(too_often)} names occur more than {MOST} times (limit {LIMIT_OFTEN}): "
          + " ".join(f"{name} {n}" for n, name in sorted(too_often, reverse=True)))
    sys.exit(1 if share > LIMIT_SHARE or len(too_often) > LIMIT_OFTEN else 0)


if __name__ == "__main__":
    main()
