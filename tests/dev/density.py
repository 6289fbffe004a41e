#!/usr/bin/env python3
"""Counts how dense the C of this tree is, and how much of it is comment.

  density.py               the table of folders, then the two lines of the product
  density.py --summary     the two lines of the product
  density.py --check       these, then ?: inside ?:, and what exceeds a limit (status 1 if the limits are enforced)
  density.py --files PATH  the same per file below PATH, then the functions above 300 tokens

tokens per line: tokens of C over lines that are neither blank nor comment, both between the braces of function
definitions (the lines of the braces that open and close a body do not count). A string, a number, a name and an
operator are one token each. Left out: preprocessor lines, tables of data (initialisers of arrays and of static const
objects), and what follows `asm`, whose operands are a table, too.
comments: lines that hold a comment, of the lines of .c and .cu files that are not blank.
The product is everything but tests/.
"""
import collections
import os
import re
import sys

ENFORCED = True
LIMIT_PRODUCT = 10.3
LIMIT_FOLDER = 11.0
LIMIT_COMMENTS = (8.0, 12.0)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = ("include", "dtype", "ground", "json", "loaders", "plugins", "runtime", "tools", "tests")
SOURCES = (".c", ".cu", ".h", ".cuh", ".inc")
LONG_FUNCTION = 300

TOKEN = re.compile(r'''
    (?P<space>[ \t\r\f\v]+|\\\n)
  | (?P<line>\n)
  | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][-+]|[\w.])*)
  | (?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|.)
''', re.X | re.S)


class Count:
    """Sums over files: tokens and lines in functions, comment lines and lines of .c and .cu files."""

    def __init__(self):
        self.tokens = self.lines = self.comments = self.all_lines = 0
        self.functions = []  # (tokens, file, line)
        self.nested = []  # (file, line) of each ?: inside another one

    def add(self, other):
        self.tokens += other.tokens
        self.lines += other.lines
        self.comments += other.comments
        self.all_lines += other.all_lines
        self.functions += other.functions
        self.nested += other.nested

    def density(self):
        return self.tokens / self.lines if self.lines else 0.0

    def comment_share(self):
        return 100 * self.comments / self.all_lines if self.all_lines else 0.0


def lex(text):
    """The tokens as (text, line), preprocessor directives as one token each; the lines that hold a comment."""
    tokens, commented = [], set()
    line, first_on_line, directive = 1, True, None
    for m in TOKEN.finditer(text):
        kind, found = m.lastgroup, m.group()
        if kind == "line":
            if directive is not None:
                tokens.append(("#" + directive.strip(), line))
            first_on_line, directive = True, None
        elif kind == "comment":
            commented.update(range(line, line + found.count("\n") + 1))
        elif directive is not None:
            directive += found
        elif found == "#" and first_on_line:
            directive, first_on_line = "", False
        elif kind != "space":
            tokens.append((found, line))
            first_on_line = False
        line += found.count("\n")
    return tokens, commented


class Scanner:
    """Walks the tokens of one file and finds the bodies of its functions."""

    def __init__(self, tokens, path):
        self.path, self.count = path, Count()
        self.lines = set()
        self.blocks = []  # open braces: "function", "code", "table", "type"
        self.statement = []  # tokens since the last one that ended a declaration or statement
        self.branches = []  # blocks at each open #if: its branches start alike
        self.body_tokens = self.body_start = 0
        for text, line in tokens:
            if text.startswith("#") and text not in ("#", "##"):
                self.directive(text)
            else:
                self.token(text, line)
        if self.blocks:
            sys.exit(f"density: {path}: {len(self.blocks)} braces are open at the end of the file")
        self.count.lines = len(self.lines)

    def directive(self, text):
        word = re.match(r"#\s*(\w*)", text).group(1)
        if word in ("if", "ifdef", "ifndef"):
            self.branches.append(list(self.blocks))
        elif word in ("else", "elif") and self.branches:
            self.blocks = list(self.branches[-1])
        elif word == "endif" and self.branches:
            self.branches.pop()

    def kind_of_block(self):
        """What a brace opens that follows self.statement."""
        words = self.statement
        if "function" in self.blocks:
            is_static_const = "=" in words and "static" in words and "const" in words
            is_table = is_static_const or words[-2:] == ["]", "="]
            inside_table = self.blocks[-1] == "table"
            return "table" if is_table or inside_table else "code"
        if words[:1] == ["extern"] and len(words) == 2:
            return "linkage"
        before = [w for w in words if w not in ("const", "noexcept")]
        return "function" if before and before[-1] == ")" and "=" not in words else "type"

    def token(self, text, line):
        if text == "{":
            kind = self.kind_of_block()
            if kind == "function":
                self.body_tokens, self.body_start = 0, line
            elif kind != "table":
                self.counted(line)
            self.blocks.append(kind)
            if kind != "table" and kind != "type":
                self.statement = []
            return
        if text == "}":
            closed = self.blocks.pop() if self.blocks else "type"
            if closed == "function":
                self.count.functions.append((self.body_tokens, self.path, self.body_start))
            elif closed != "table":
                self.counted(line)
            if closed != "table" and closed != "type":
                self.statement = []
            return
        self.counted(line)
        if text == ";":
            self.statement = []
        else:
            self.statement.append(text)

    def counted(self, line):
        is_operand = self.statement[:1] == ["asm"]
        is_data = is_operand or self.blocks[-1:] == ["table"]
        if "function" in self.blocks and not is_data and line != self.body_start:
            self.count.tokens += 1
            self.body_tokens += 1
            self.lines.add(line)


def nested(tokens):
    """Lines with a ?: inside another one: no operand of it ends in between, and no argument of a call."""
    open_marks = [0]
    for text, line in tokens:
        if text in (";", "{", "}"):
            open_marks = [0]
        elif text in ("(", "["):
            open_marks.append(0)
        elif text in (")", "]") and len(open_marks) > 1:
            open_marks.pop()
        elif text == ",":
            open_marks[-1] = 0
        elif text == "?":
            if any(open_marks):
                yield line
            open_marks[-1] += 1


def count_file(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        text = f.read()
    tokens, commented = lex(text if text.endswith("\n") else text + "\n")
    count = Scanner(tokens, path).count
    count.nested = [(path, line) for line in nested(tokens)]
    if path.endswith((".c", ".cu")):
        count.comments = len(commented)
        count.all_lines = sum(1 for line in text.split("\n") if line.strip())
    return count


def sources():
    for top in TOP:
        for folder, _, names in sorted(os.walk(os.path.join(ROOT, top))):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def table(counts, label):
    width = max(map(len, counts))
    print(f"{label:{width}}  tokens   lines  per line  comments")
    for name, c in sorted(counts.items()):
        share = f"{c.comment_share():7.1f} %" if c.all_lines else "        -"
        print(f"{name:{width}} {c.tokens:7} {c.lines:7} {c.density():9.1f} {share}")


def complaints(folders, product):
    if product.density() > LIMIT_PRODUCT:
        yield f"the product has {product.density():.2f} tokens per line, at most {LIMIT_PRODUCT} are allowed"
    low, high = LIMIT_COMMENTS
    if not low <= product.comment_share() <= high:
        yield f"comments are {product.comment_share():.1f} % of the product's lines, expected {low} to {high} %"
    for name, c in sorted(folders.items()):
        if c.density() > LIMIT_FOLDER:
            yield f"{name} has {c.density():.2f} tokens per line, at most {LIMIT_FOLDER} are allowed in a folder"


def main():
    below = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--files" else None
    if len(sys.argv) > 1 and below is None and sys.argv[1:] not in (["--check"], ["--summary"]):
        sys.exit(__doc__)
    files = {path: count_file(path) for path in sources()}
    if below is not None:
        files = {path: c for path, c in files.items() if path.startswith(below)}
        if not files:
            sys.exit(f"density: no C file is below {below}")
        table(files, "file")
        for tokens, path, line in sorted((f for c in files.values() for f in c.functions), reverse=True):
            if tokens > LONG_FUNCTION:
                print(f"{path}:{line}: a function of {tokens} tokens")
        return

    folders, product = collections.defaultdict(Count), Count()
    for path, c in files.items():
        folders[os.path.dirname(path)].add(c)
        if not path.startswith("tests"):
            product.add(c)
    if len(sys.argv) == 1:
        table(folders, "folder")
    sizes = sorted(f[0] for f in product.functions)
    worst = max(folders, key=lambda name: folders[name].density())
    print(f"density: {product.density():.2f} tokens per line in functions of the product, "
          f"{folders[worst].density():.2f} in the densest folder ({worst}); "
          f"comments {product.comment_share():.1f} % of its lines")
    print(f"density: {product.tokens} tokens in {len(sizes)} functions, {sizes[len(sizes) // 2]} in the median, "
          f"{sum(1 for s in sizes if s > LONG_FUNCTION)} functions above {LONG_FUNCTION}")
    if sys.argv[1:] == ["--check"]:
        found = list(complaints(folders, product))
        for path, line in product.nested:
            print(f"density: {path}:{line}: a conditional inside another one (?:)")
        for line in found:
            print("density: over the limit: " + line)
        sys.exit(1 if found and ENFORCED else 0)


if __name__ == "__main__":
    main()
