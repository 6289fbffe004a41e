#!/usr/bin/env python3
"""Holds the table of tests/README.md against the tests of a build.

  tiers.py BUILD           what differs (status 1 if anything does)
  tiers.py BUILD --write   writes the column `runs in` anew, and a row for each test that has none

A row: | `name` | runs in | needs | what the test specifies |. `runs in` follows from the suites of the test (tests/meson.build says what
they mean). A name with * stands for several tests of one kind. A row that no test of the build has is an error, unless `needs` says what this
build or machine may lack; so are a test without a row, a row without a sentence, and two rows for one test.
"""
import fnmatch
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
README = os.path.join(ROOT, "tests", "README.md")
ROW = re.compile(r"^\| `([^`]+)` \|([^|]*)\|([^|]*)\|([^|]*)\|$")
NIGHTLY = ("pocl", "qemu", "valgrind", "oclgrind", "tidy", "clients")


def runs_in(suites):
    """Where bootstrap runs a test of these suites: the words of the column."""
    found = ["check"] if "check" in suites else []
    if "night" in suites:
        found += ["night " + part for part in NIGHTLY if part in suites]
    else:
        found += ["release"] if "sanitized" not in suites else []
        found += ["sanitizers"] if not {"slow", "source"} & suites else []
    return ", ".join(found + (["night tsan"] if "threads" in suites else []))


def tests_of(build):
    """name -> where it runs; by the file that meson leaves for editors."""
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
        return {t["name"]: runs_in({s.split(":")[-1] for s in t["suite"]}) for t in json.load(f)}


def row(name, where, needs, words):
    return "| `%s` | %s | %s | %s |" % (name, where, needs, words)


def judge(lines, tests):
    """(the lines as they should be, errors)"""
    out, errors, rows = [], [], {}
    for line in lines:
        found = ROW.match(line)
        if not found:
            out.append(line)
            continue
        name, where, needs, words = (part.strip() for part in found.groups())
        mine = [t for t in tests if fnmatch.fnmatchcase(t, name)]
        want = sorted({tests[t] for t in mine})
        for t in mine:
            if t in rows:
                errors.append("%s has two rows: `%s` and `%s`" % (t, rows[t], name))
            rows[t] = name
        if not words:
            errors.append("`%s`: what does it specify?" % name)
        if not mine and not needs:
            errors.append("`%s` is no test of this build, and `needs` does not say what the build may lack" % name)
        if len(want) > 1:
            errors.append("`%s`: its tests run in several places: %s" % (name, "; ".join(want)))
        if len(want) == 1 and where != want[0]:
            errors.append("`%s` runs in \"%s\"; the table has \"%s\"" % (name, want[0], where))
            where = want[0]
        out.append(row(name, where, needs, words))
    missing = [t for t in tests if t not in rows]
    errors += ["%s has no row" % t for t in missing]
    return out + [row(t, tests[t], "", "") for t in missing], errors


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with open(README, encoding="utf-8") as f:
        lines = f.read().splitlines()
    out, errors = judge(lines, tests_of(sys.argv[1]))
    if sys.argv[2:] == ["--write"]:
        with open(README, "w", encoding="utf-8") as f:
            f.write("\n".join(out) + "\n")
    for error in errors:
        print("tests/README.md: " + error)
    if errors:
        print("tests/dev/tiers.py BUILD --write mends the column and adds rows; what a test specifies is written by hand.")
    sys.exit(bool(errors))


main()
