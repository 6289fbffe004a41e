#!/usr/bin/env python3
"""Holds what is written by hand about samplers against ground/samplers.def.

minerva.h: mn_sample_params has each row's member with its type, and no other number that steers a draw. plugin.h: mn_slot_params has the same,
under the name of the member. docs/generation.md names each flag and each field of a request."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r'^MN_SAMPLE_([FI])32\(((?:[^()"]|"(?:\\.|[^"\\])*")*)\)$', re.M)
TYPES = {"F": "float", "I": "int32_t"}
NOT_SAMPLERS = {"ignore_stop"}  # numbers of mn_sample_params that steer no draw


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def members(header, name):
    """{member: type} of a struct's numbers."""
    body = re.search(r"typedef struct \{((?:[^{}])*)\} %s;" % name, re.sub(r"/\*.*?\*/", "", header, flags=re.S)).group(1)
    found = {}
    for kind, names in re.findall(r"^\s*(float|int32_t) ([\w, ]+);", body, re.M):
        found.update({member.strip(): kind for member in names.split(",")})
    return found


def main():
    wrong, seen = [], set()
    params = members(read("include/minerva/minerva.h"), "mn_sample_params")
    slot = members(read("include/minerva/plugin.h"), "mn_slot_params")
    text = read("docs/generation.md")
    for kind, inner in ROW.findall(read("ground/samplers.def")):
        a = [x.strip() for x in re.findall(r'"(?:\\.|[^"\\])*"|[^,"\s][^,"]*', inner)]
        member, flags, field = a[0], a[3].strip('"').split(), a[-5].strip('"')
        seen.add(member)
        if params.get(member) != TYPES[kind]:
            wrong.append("mn_sample_params.%s: found %s, expected %s" % (member, params.get(member), TYPES[kind]))
        if slot.get(member) != TYPES[kind]:
            wrong.append("mn_slot_params.%s: found %s, expected %s" % (member, slot.get(member), TYPES[kind]))
        if not any(re.search(r"`%s[ `]" % re.escape(flag), text) for flag in flags):
            wrong.append("docs/generation.md names none of %s" % " ".join(flags))
        if "`%s`" % field not in text:
            wrong.append("docs/generation.md does not name the field %s" % field)
    wrong += ["mn_sample_params.%s has no row in samplers.def" % m for m in params if m not in seen | NOT_SAMPLERS]
    if len(seen) < 15:
        wrong.append("samplers.def was not understood: %d rows" % len(seen))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
