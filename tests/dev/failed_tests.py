#!/usr/bin/env python3
"""Names the failed tests of meson's logs, with the end of what each printed.

failed_tests.py FOLDER...   FOLDER: a build folder in which `meson test` ran

What a test printed while it ran is thousands of lines above the end of a long run; this stands at the end of it.
"""
import json
import os
import sys

PASSED = ("OK", "EXPECTEDFAIL", "SKIP")
LINES = 15  # of the end of each stream of a test


def failed(folder):
    """The failed tests of a build folder, as meson logged them; none if no test ran there."""
    path = os.path.join(folder, "meson-logs", "testlog.json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as log:
        tests = [json.loads(line) for line in log]
    return [test for test in tests if test["result"] not in PASSED]


def end_of(text):
    return "".join(f"    {line}\n" for line in text.rstrip().splitlines()[-LINES:])


def main():
    for folder in sys.argv[1:]:
        for test in failed(folder):
            name = f"{os.path.basename(folder)}: {test['name']}"
            print(f"{name}: {test['result']} after {test['duration']:.1f} s, status {test['returncode']}")
            print(end_of(test.get("stdout", "")) + end_of(test.get("stderr", "")), end="")


if __name__ == "__main__":
    main()
