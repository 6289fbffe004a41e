#!/usr/bin/env python3
"""Holds the folder tree, docs/flow.md and the includes of the C against each other.

  includes.py           says what differs (status 1 if anything does)
  includes.py --edges   the table as the source has it, to be pasted into docs/flow.md

docs/flow.md has a row per folder that holds C, with the folders whose headers its files include. An include that the
table lacks, an entry of the table that no file needs, a folder without a row and a path that is not there are errors;
so is a cycle among folders, but for those that the section names.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLOW = "docs/flow.md"
TOP = ("include", "dtype", "ground", "json", "loaders", "plugins", "runtime", "tools")
SOURCES = (".c", ".cu", ".h", ".cuh", ".inc", ".def")
# Where the build looks for "name.h", in the order that settles names which occur twice.
SEARCH = ("runtime", "include", "dtype", "ground", "json", "plugins/common", "plugins/cpu_host", "plugins/gpu_host", "loaders/common", "loaders", "tools")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(minerva/[^>]+)>)', re.M)
PATHS = re.compile(r"(?<![\w/.-])(?:runtime|loaders|plugins|dtype|ground|tools|tests|models|include)/[\w/*.-]*\w")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def sources():
    """Paths of all C below TOP, as git would list them."""
    for top in TOP:
        for folder, folders, files in os.walk(os.path.join(ROOT, top)):
            folders[:] = sorted(d for d in folders if not d.startswith(("build", ".")))
            for name in sorted(files):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def resolve(path, name):
    """The file that `path` means by name; None = none of this tree."""
    for folder in (os.path.dirname(path),) + SEARCH:
        found = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(ROOT, found)):
            return found
    return None


def source_edges(complain):
    """{folder: {folder it includes: "file includes file"}}"""
    edges = {}
    for path in sources():
        folder = os.path.dirname(path)
        edges.setdefault(folder, {})
        for quoted, public in INCLUDE.findall(read(path)):
            found = resolve(path, quoted or public)
            if not found:
                complain(f'{path}: "{quoted or public}" is nowhere in the tree')
            elif os.path.dirname(found) != folder:
                edges[folder].setdefault(os.path.dirname(found), f"{path} includes {found}")
    return edges


def table_edges(text):
    """{folder: set of folders} of the rows below the heading of the table."""
    part = text.split("## Who includes whom", 1)
    if len(part) < 2:
        sys.exit(f'{FLOW} has no section "Who includes whom"')
    rows = {}
    for line in part[1].split("\n## ", 1)[0].splitlines():
        cells = line.split("|")
        if len(cells) == 4 and "`" in cells[1]:
            rows[re.findall(r"`([^`]+)`", cells[1])[0]] = set(re.findall(r"`([^`]+)`", cells[2]))
    return rows


def exceptions(text):
    """Pairs of folders that may include each other."""
    line = re.search(r"^Both ways, as an exception: (.*)$", text, re.M)
    return [frozenset(re.findall(r"`([^`]+)`", pair)) for pair in line.group(1).split(";")] if line else []


def cycles(rows, pairs):
    """Folders that reach themselves by edges other than those between the two of a pair."""
    for start in sorted(rows):
        seen, todo = set(), [start]
        while todo:
            at = todo.pop()
            onward = {to for to in rows.get(at, ()) if frozenset((at, to)) not in pairs}
            todo += onward - seen
            seen |= onward
        if start in seen:
            yield start


def main():
    errors = []
    text = read(FLOW)
    edges = source_edges(errors.append)
    if sys.argv[1:] == ["--edges"]:
        for folder, targets in sorted(edges.items()):
            print(f"| `{folder}` | {', '.join(f'`{t}`' for t in sorted(targets))} |")
        return 0
    rows = table_edges(text)
    for folder in sorted(set(edges) - set(rows)):
        errors.append(f"{folder} holds C, and {FLOW} has no row for it")
    for folder in sorted(set(rows) - set(edges)):
        errors.append(f"{FLOW} has a row for {folder}, which holds no C")
    for folder in sorted(set(edges) & set(rows)):
        for target in sorted(set(edges[folder]) - rows[folder]):
            errors.append(f"{FLOW} does not let {folder} know {target}: {edges[folder][target]}")
        for target in sorted(rows[folder] - set(edges[folder])):
            errors.append(f"{FLOW} lets {folder} know {target}, which nothing there includes")
    pairs = exceptions(text)
    for pair in pairs:
        if any(to not in edges.get(at, ()) for at in pair for to in pair - {at}):
            errors.append(f"{FLOW} excepts {' and '.join(sorted(pair))}, which do not include each other")
    for folder in cycles(rows, pairs):
        errors.append(f"{folder} knows itself by way of other folders")
    for path in sorted(set(PATHS.findall(text))):
        if not glob.glob(os.path.join(ROOT, path)):
            errors.append(f"{FLOW} speaks of {path}, which is not there")
    for error in errors:
        print(error)
    print(f"includes: {len(edges)} folders, {sum(map(len, edges.values()))} edges, {len(errors)} errors")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
