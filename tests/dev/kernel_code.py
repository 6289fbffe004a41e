#!/usr/bin/env python3
"""kernel_code.py [-p TOOL_PREFIX] [-v] BEFORE AFTER [OLD=NEW...] -- the machine code of kernels before and after a change of their source.

BEFORE and AFTER are folders with objects (*.o), searched with everything below. Of each function the instructions are compared,
without addresses, constants' places and the names of what is called; a function of BEFORE counts as kept if any function of AFTER
has the same instructions. Of the others the table has the instructions before and after, all and in the longest loop, with the
function of AFTER that has its name, in an object whose name ends alike if there are several; OLD=NEW renames: regular expressions on
"object:function", in turn. -v lists the kept ones, too. -p aarch64-linux-gnu-: another processor's objdump.

Status 0 if each function is kept, or has in no loop more instructions than before."""
import argparse
import os
import re
import subprocess
import sys

HEAD = re.compile(r"^[0-9a-f]+ <(.+)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
RELOCATION = re.compile(r"^\s+[0-9a-f]+: R_\S+")
JUMP = re.compile(r"^(j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?([0-9a-f]+) <")


def objects(folder):
    for at, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".o"):
                yield os.path.join(at, name)


def normal(text):
    """An instruction without what depends on where things lie."""
    text = re.sub(r"\s*(#|//).*", "", text)
    text = re.sub(r"(call|jmp|bl|b|j\w+|cbn?z|tbn?z|b\.\w+)(\s.*?)[0-9a-f]+ <[^>]*>", r"\1\2PLACE", text)
    text = re.sub(r"[0-9a-fx-]*\(%rip\)", "PLACE(%rip)", text)
    text = re.sub(r"^(adrp?\s+\w+), .*", r"\1, PLACE", text)
    return re.sub(r"\s+", " ", text).strip()


def functions(path, prefix):
    """{name: (instructions, those in the longest loop)}; alignment between functions and in front of loops does not count."""
    out = subprocess.run([prefix + "objdump", "-dr", "--no-show-raw-insn", "--section=.text", "-w", path], capture_output=True, text=True,
                         check=True).stdout
    found, name, code = {}, None, []

    def end():
        if name is None:
            return
        kept = [(at, text) for at, text in code if not re.match(r"(data16 |cs )*nop|xchg +%ax,%ax", text)]
        longest = 0
        for i, (at, text) in enumerate(kept):
            jump = JUMP.match(text)
            if jump and int(jump.group(2), 16) <= at:
                start = int(jump.group(2), 16)
                inside = sum(start <= a <= at for a, _ in kept)
                nested = any(JUMP.match(t) and start < int(JUMP.match(t).group(2), 16) <= a < at for a, t in kept)
                if not nested:
                    longest = max(longest, inside)
        found[name] = ([normal(text) for _, text in kept], longest)

    for line in out.splitlines():
        head = HEAD.match(line)
        if head:
            end()
            name, code = head.group(1), []
            continue
        if RELOCATION.match(line):
            continue
        part = LINE.match(line)
        if part:
            text = re.sub(r"\t[0-9a-f]+: R_.*", "", part.group(2))
            code.append((int(part.group(1), 16), text.replace("\t", " ")))
    end()
    return found


def read(folder, prefix):
    code = {}
    for path in objects(folder):
        for name, what in functions(path, prefix).items():
            code[os.path.relpath(path, folder) + ":" + name] = what
    return code


def alike(a, b):
    """Letters that two names end with alike."""
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n


def main():
    ask = argparse.ArgumentParser(usage=__doc__)
    ask.add_argument("-p", default="")
    ask.add_argument("-v", action="store_true")
    ask.add_argument("before")
    ask.add_argument("after")
    ask.add_argument("rename", nargs="*")
    ask = ask.parse_args()
    before, after = read(ask.before, ask.p), read(ask.after, ask.p)
    if not before or not after:
        sys.exit("no objects")
    same = {tuple(code) for code, _ in after.values()}
    kept, worse = 0, 0
    print("| function | instructions | in the longest loop |\n|---|---|---|")
    for name, (code, loop) in sorted(before.items()):
        if tuple(code) in same:
            kept += 1
            if ask.v:
                print("| %s | %d, the same | %d |" % (name, len(code), loop))
            continue
        to = name
        for pair in ask.rename:
            old, new = pair.split("=", 1)
            to = re.sub(old, new, to)
        at, function = to.rsplit(":", 1)
        others = [n for n in after if n.rsplit(":", 1)[1] == function]
        if not others:
            print("| %s | %d, now without a function | %d |" % (name, len(code), loop))
            continue
        new = max(others, key=lambda n: (at in n, alike(os.path.dirname(n), os.path.dirname(at)), alike(n, to)))
        worse += after[new][1] > loop
        print("| %s (%s) | %d, now %d | %d, now %d |" % (name, new, len(code), len(after[new][0]), loop, after[new][1]))
    print("\n%d functions before, %d with the same instructions after, %d with more in a loop" % (len(before), kept, worse))
    sys.exit(worse > 0)


main()
