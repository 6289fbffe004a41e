#!/usr/bin/env python3
"""Names in the tree's Python scripts that a script would miss only when it comes to them.

  scripts.py    what is wrong (status 1 if anything is)

A name of another script (`models.place` after `import models`) has to be there: who removes a function finds its callers here, not in the night.
No name of a function, class or module is given to something else at the outer level of a script: a loop over `story` hides the function `story`.
The libraries of others are not looked at; `python3 -m pyflakes` says the rest."""
import ast
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MADE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def scripts():
    """Paths below ROOT."""
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if git.returncode == 0:
        names = git.stdout.splitlines()
    else:
        names = [os.path.relpath(os.path.join(at, name), ROOT) for at, _, files in os.walk(ROOT) for name in files]
    return sorted(name for name in names if name.endswith(".py") and not name.startswith("build") and os.path.exists(os.path.join(ROOT, name)))


def statements(body):
    """Those of the outer level: also in its loops, branches and with, not in functions and classes."""
    for node in body:
        yield node
        if not isinstance(node, MADE):
            for part in ("body", "orelse", "finalbody", "handlers"):
                yield from statements(getattr(node, part, []))


def bound(node):
    """Names that a statement gives to something, without those inside of it."""
    if isinstance(node, MADE):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    targets = list(getattr(node, "targets", [])) + [getattr(node, "target", None)] + [item.optional_vars for item in getattr(node, "items", [])]
    return [x.id for target in targets if target for x in ast.walk(target) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]


def names_of(tree):
    """name -> the statements of the outer level that give it to something, functions' `global` apart."""
    found = {name: [] for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for node in statements(tree.body):
        for name in bound(node):
            found.setdefault(name, []).append(node)
    return found


def hidden(names):
    """(line, name) of functions, classes and modules whose name something else has, too."""
    for name, nodes in names.items():
        others = [node for node in nodes if not isinstance(node, MADE + (ast.Import, ast.ImportFrom))]
        if others and len(others) < len(nodes):
            yield others[0].lineno, name


def missing(tree, own):
    """(line, module.name) of names that a script of ours does not have; own: module -> its names, of each script that is called so."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({alias.asname or alias.name: alias.name for alias in node.names if alias.name in own})
        elif isinstance(node, ast.ImportFrom) and node.module in own:
            for alias in node.names:
                if not any(alias.name in names for names in own[node.module]):
                    yield node.lineno, node.module + "." + alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            if not any(node.attr in names for names in own[module]):
                yield node.lineno, module + "." + node.attr


def parse(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return ast.parse(f.read(), path)


def main():
    trees = {path: parse(path) for path in scripts()}
    names = {path: names_of(tree) for path, tree in trees.items()}
    own = {}
    for path in trees:
        own.setdefault(os.path.basename(path)[:-len(".py")], []).append(names[path])
    wrong = 0
    for path, tree in trees.items():
        for line, name in sorted(missing(tree, own)):
            print("%s:%d: %s is not there" % (path, line, name))
            wrong += 1
        for line, name in sorted(hidden(names[path])):
            print("%s:%d: %s is already a function, class or module of this script" % (path, line, name))
            wrong += 1
    print("%d scripts, %d names are wrong" % (len(trees), wrong))
    return wrong > 0 or len(trees) < 50


if __name__ == "__main__":
    sys.exit(main())
