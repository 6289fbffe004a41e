#!/usr/bin/env python3
"""Answers of the demo model at temperature 1.5 under JSON schemas: those that end by themselves are valid by Python's jsonschema.
constraint_schemas.py CONSTRAINT_TEXTS [N answers for each schema]"""
import json
import subprocess
import sys

from grammar_schemas import GOOD, jsonschema


def main():
    lines = "".join(json.dumps(s) + "\n" for s in GOOD)
    n = sys.argv[2] if len(sys.argv) > 2 else "1"
    p = subprocess.run([sys.argv[1], n], input=lines, capture_output=True, text=True)
    if p.returncode:
        sys.exit(p.stderr[-500:])
    drafts = [jsonschema.validators.validator_for(s, default=jsonschema.Draft202012Validator) for s in GOOD]
    checks = [d(s, format_checker=d.FORMAT_CHECKER) for d, s in zip(drafts, GOOD)]
    wrong, by_finish = 0, {}
    for line in p.stdout.splitlines():
        i, finish, text = line.split(" ", 2)
        by_finish[finish] = by_finish.get(finish, 0) + 1
        try:
            if finish == "1":
                checks[int(i)].validate(json.loads(json.loads(text)))
        except (ValueError, jsonschema.ValidationError) as e:
            print(f"{GOOD[int(i)]}: {text}: {str(e)[:200]}")
            wrong += 1
    whole, cut = by_finish.pop("1", 0), by_finish.pop("2", 0)
    print(f"{len(GOOD)} schemas: {whole} answers, {cut} cut by their limit, {wrong} wrong, others {by_finish}")
    sys.exit(wrong > 0 or bool(by_finish) or whole < cut)


main()
