#!/usr/bin/env python3
"""Counts arrows between the rooms of the runtime, and those that run up.

  arrows.py            both counts, and each arrow that runs up (status 1 if there are too many)
  arrows.py --rooms    the same, and a table of how many arrows run from each room to each other one

Rooms are the folders of ORDER, the ground floor first. An arrow is a name that a file uses and that a file of another room defines: a function
(called, or its address taken), a type, or a constant of an enum or a macro of a header. It counts once per file that uses it. A function is defined
where its body is, not where it is declared: one of minerva.h that a lower room calls is an arrow to the room that has its body. An arrow runs up
if the room that defines the name is above the one that uses it: then the lower room cannot be understood, built or tested without the higher one.
A function of the last room that minerva.h does not declare is an error, too: what public functions share is in runtime/opened.
Test `includes` holds which headers a folder may include; this one finds what goes around it.
"""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOST_UP = 9
ORDER = ("runtime/base", "runtime/text/json", "runtime/model", "runtime/text/pretokenizer", "runtime/text/tokenizer", "runtime/text/jinja",
         "runtime/text/chat", "runtime/grammar", "runtime/registry", "runtime/graph", "runtime/negotiate", "runtime/ranks", "runtime/convert",
         "runtime/hub", "runtime/engine", "runtime/opened", "runtime/session/disk", "runtime/session/kv", "runtime/session/guides", "runtime/session/requests",
         "runtime/session/drafts", "runtime/session/steps", "runtime/session", "runtime/api")
NAME = re.compile(r"\b(?:mn|MN)_\w+")
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
FUNCTION = re.compile(r"^(?!static|typedef|extern|return|else|#)[A-Za-z_][^\n;={}()]*?\b(mn_\w+)\(([^;{}]*)\)\s*\{", re.M)
INLINE = re.compile(r"^static inline [^\n;={}()]*?\b(mn_\w+)\(", re.M)
TYPE = re.compile(r"^(?:typedef )?(?:struct|enum|union) (mn_\w+) \{|^\} (mn_\w+);|^typedef (?!struct \w+ \w+;)[^{};]*?\b(mn_\w+)(?:\([^;{}]*\))?;", re.M)
ENUM = re.compile(r"^(?:typedef )?enum(?: \w+)? \{(.*?)\}", re.M | re.S)
MACRO = re.compile(r"^#define (MN_\w+)", re.M)


def code(path):
    with open(path, encoding="utf-8") as f:
        return COMMENT.sub(" ", f.read())


def definitions(path, text):
    names = [found.group(1) for found in FUNCTION.finditer(text)] + MACRO.findall(text) + INLINE.findall(text)
    if path.endswith((".h", ".def")):
        names += [name for found in TYPE.findall(text) for name in found if name]
        names += [name for body in ENUM.findall(text) for name in NAME.findall(body)]
    elif path.endswith(".c"):  # structs that are opaque elsewhere
        names += [name for name in re.findall(r"^struct (mn_\w+) \{", text, re.M)]
    return names


def files(room):
    folder = os.path.join(ROOT, room)
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".h")):
            yield os.path.join(folder, name)


def main():
    texts = {path: code(path) for room in ORDER for path in files(room)}
    rank = {path: ORDER.index(os.path.relpath(os.path.dirname(path), ROOT)) for path in texts}
    home = {}
    for path, text in texts.items():
        for name in definitions(path, text):
            if not name.endswith("_H"):
                home.setdefault(name, path)
    pairs, up = collections.Counter(), []
    for path, text in texts.items():
        for name in sorted(set(NAME.findall(text))):
            there = home.get(name)
            if there is None or rank[there] == rank[path]:
                continue
            pairs[rank[path], rank[there]] += 1
            if rank[there] > rank[path]:
                up.append((path, name, there))
    public = set(NAME.findall(code(os.path.join(ROOT, "include/minerva/minerva.h"))))
    private = sorted(name for name, path in home.items() if ORDER[rank[path]] == ORDER[-1] and name.startswith("mn_") and name not in public
                     and any(name == found.group(1) for found in FUNCTION.finditer(texts[path])))
    missing = [folder for folder, _, names in os.walk(os.path.join(ROOT, "runtime")) if any(n.endswith(".c") for n in names)]
    missing = [os.path.relpath(f, ROOT) for f in missing if os.path.relpath(f, ROOT) not in ORDER]
    if "--rooms" in sys.argv[1:]:
        for (a, b), n in sorted(pairs.items()):
            print(f"{ORDER[a]:28} -> {ORDER[b]:28} {n:5}")
    for path, name, there in up:
        print(f"up: {os.path.relpath(path, ROOT)} uses {name} of {os.path.relpath(there, ROOT)}")
    for folder in missing:
        print(f"{folder} is no room: ORDER of {os.path.relpath(__file__, ROOT)} lacks it")
    for name in private:
        print(f"{name} of {os.path.relpath(home[name], ROOT)} is not public: {ORDER[-1]} has the functions of minerva.h alone")
    print(f"arrows: {sum(pairs.values())} between {len(ORDER)} rooms, {len(up)} run up, at most {MOST_UP} are allowed")
    return bool(missing or private) or len(up) > MOST_UP


if __name__ == "__main__":
    sys.exit(main())
