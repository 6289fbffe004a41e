#!/usr/bin/env python3
"""Links and names of files in the documents: each has to be there.

In every Markdown file of the tree: the targets of links and images, the headings that links name, and what stands in code marks and looks like a
file of the tree (a path below one of its folders, or the name of a C, header, table or kernel file) or like a name of the library (mn_...). In all other texts: documents by their
path (docs/NAME.md, with its heading; sections of rules are held by test `template howto`). docs/lab and the ABI's history name things that are
gone; their links are checked alone.

docs/pictures/folders.svg has the folders of the table in docs/flow.md, each above all folders whose headers it may include."""
import glob
import os
import re
import subprocess
import sys

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.chdir(root)
FOLDERS = ("include", "dtype", "ground", "json", "loaders", "runtime", "plugins", "tools", "tests", "models", "docs", "deploy", "packaging", "python", "examples")


def tracked():
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if git.returncode == 0:
        return [name for name in git.stdout.split("\n") if name and os.path.exists(name)]
    return [os.path.relpath(name, root) for name in glob.glob("**/*", recursive=True) if os.path.isfile(name) and not name.startswith("build")]


def read(name):
    with open(name, encoding="utf-8", errors="replace") as f:
        return f.read()


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(name, cache={}):
    """Headings as GitHub names them: lower case, marks dropped, spaces to hyphens; a heading that repeats has -1, -2."""
    if name not in cache:
        seen, found = {}, set(re.findall(r'<a (?:id|name)="([^"]+)"', read(name)))
        for heading in re.findall(r"^#+ +(.*?)\s*$", without_code(read(name)), flags=re.M):
            slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
            found.add(slug if slug not in seen else "%s-%d" % (slug, seen[slug]))
            seen[slug] = seen.get(slug, 0) + 1
        cache[name] = found
    return cache[name]


def target(where, path, heading):
    """What is wrong with a link, or None."""
    if not os.path.exists(path):
        return "%s: %s is not there" % (where, path)
    if heading and path.endswith(".md") and heading not in anchors(path):
        return "%s: %s has no heading #%s" % (where, path, heading)
    return None


def links(name, text):
    for path, heading in re.findall(r"\]\(<?([^)#\s>]*)(?:#([^)\s>]*))?>?\)", without_code(text)):
        if not re.match(r"[a-z]+:", path) and (path or heading):
            yield target(name, os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name, heading)
    for path in re.findall(r'(?:src|srcset)="([^"]+)"', without_code(text)):
        if not re.match(r"[a-z]+:", path):
            yield target(name, os.path.normpath(os.path.join(os.path.dirname(name), path)), "")


def there(path, bases):
    path = re.sub(r"^PREFIX/", "", path)
    pattern = re.sub(r"[A-Z]{2,}", "*", path)  # NAME and ISA stand for any
    if os.path.exists(path):
        return True
    if "/" not in path:
        return path in bases or ("*" in pattern and any(glob.fnmatch.fnmatch(base, pattern) for base in bases))
    return bool(glob.glob(path) or glob.glob(pattern) or glob.glob("*/" + pattern) or glob.glob("*/*/" + pattern) or glob.glob("*/*/*/" + pattern))


def identifiers(files):
    """Every mn_... and MN_... of the C and of its tables."""
    found = set()
    for name in files:
        if re.search(r"\.(c|h|def|inc|cu|cuh|cl)$", name):
            found.update(re.findall(r"\b(?:mn|MN)_\w+", read(name)))
    return found


def names(name, text, bases, known):
    for path in sorted(set(re.findall(r"`([A-Za-z_0-9*./-]+)`", without_code(text)))):
        is_path = "/" in path and path.split("/")[0] in FOLDERS
        if (is_path or re.search(r"\w\.(c|h|def|inc|cu|cuh|cl)$", path)) and not there(path.rstrip("/"), bases):
            yield "%s: `%s` is not there" % (name, path)
    for identifier, star in sorted(set(re.findall(r"`((?:mn|MN)_(?!noun)\w+)(\*?)[^`]*`", without_code(text)))):
        if identifier not in known and not (star and any(other.startswith(identifier) for other in known)):
            yield "%s: `%s` is not in the source" % (name, identifier)


def storeys():
    """Folders of the table that the picture lacks, folders that are gone, and includes that lead up."""
    table = read("docs/flow.md").split("## Who includes whom")[1].split("\n## ")[0]
    edges = {folder: re.findall(r"`([^`]+)`", others) for folder, others in re.findall(r"^\| `([^`]+)` \| ?(.*?) ?\|$", table, flags=re.M)}
    picture = "docs/pictures/folders.svg"
    storey = {folder: int(number) for folder, number in re.findall(r'data-folder="([^"]+)" data-storey="(\d+)"', read(picture))}
    for folder in sorted(set(edges) ^ set(storey)):
        yield "%s: `%s` is %s" % (picture, folder, "not in it" if folder in edges else "gone: it is not in the table of docs/flow.md")
    for folder, others in edges.items():
        for other in others:
            if storey.get(folder, 99) <= storey.get(other, -1):
                yield "%s: `%s` includes headers of `%s` and must stand above it" % (picture, folder, other)


def main():
    files = tracked()
    bases = {os.path.basename(name) for name in files}
    known = identifiers(files)
    wrong, documents = list(storeys()), 0
    for name in files:
        if name.endswith(".md"):
            documents += 1
            wrong += list(links(name, read(name)))
            if not name.startswith("docs/lab/") and name != "docs/abi-history.md":
                wrong += list(names(name, read(name), bases, known))
        elif os.path.getsize(name) < 1 << 20 and not name.endswith((".svg", ".png", "links.py")):
            cited = re.findall(r"(?<![\w/])(docs/(?:[a-z]+/)?[a-z-]+\.md)(?:#(?!rule)([a-z][a-z0-9_-]*[a-z0-9]))?", read(name))
            wrong += [target(name, path, heading) for path, heading in cited]
    for line in sorted(set(filter(None, wrong))):
        print(line)
    print("%d documents" % documents)
    return any(wrong) or documents < 15


sys.exit(main())
