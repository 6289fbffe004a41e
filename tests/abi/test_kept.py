#!/usr/bin/env python3
"""test_kept.py PLUGIN_H HEADERS CC...: today's plugin.h is a compatible extension of every kept header, and would a careless
edit be seen?"""
import glob
import os
import re
import sys

import abi_header


def edited(header, pattern, by):
    text, n = re.subn(pattern, by, header.text, count=1)
    if n != 1:
        sys.exit("the edit %r finds nothing to change" % pattern)
    return abi_header.Header(text, "edited", header.cc)


# Each is one slip of the hand, and a word of what must be said about it.
SLIPS = [
    (r"uint32_t node_lo, node_hi;", "uint32_t node_hi, node_lo;", "mn_compile.node_lo"),
    (r"uint64_t weights, scratch,", "uint64_t weights, next, scratch,", "mn_estimate.scratch"),
    (r"double decode_us, prefill_us;", "float decode_us, prefill_us;", "mn_estimate.decode_us"),
    (r"const mn_plane \*planes;", "mn_plane *planes;", ".planes"),
    (r"(    mn_status\(MN_CALL \*queue_wait\)[^;]*;.*\n)(.*event_free.*\n)", r"\2\1", "mn_backend.queue_wait"),
    (r"mn_status\(MN_CALL \*map\)\(mn_buffer \*, void \*\*,", "mn_status(MN_CALL *map)(mn_buffer *, uint64_t, void **,", "mn_backend.map"),
    (r"    mn_status\(MN_CALL \*self_test\)[^;]*;.*\n", "", "mn_backend.self_test"),
    (r"#define MN_ROLE_STATE 4u", "#define MN_ROLE_STATE 6u", "MN_ROLE_STATE"),
    (r"MN_RMS_NORM_X = 0, MN_RMS_NORM_WEIGHT = 1", "MN_RMS_NORM_WEIGHT = 0, MN_RMS_NORM_X = 1", "MN_RMS_NORM_X"),
    (r"X\(Q8_0, 24, 32, 34, 1\)", "X(Q8_0, 24, 32, 36, 1)", "dtype-Q8_0"),
    (r'MN_LOADER_ID "mn.loader/1"', 'MN_LOADER_ID "mn.loader/2"', "MN_LOADER_ID"),
    (r"uint64_t len;\n\} mn_str;", "uint64_t len, hash;\n} mn_str;", "mn_str"),
    (r"int32_t min_new;", "int32_t more, min_new;", "mn_slot_params.min_new"),
]


def later(header):
    """Slips that only a later version can make."""
    text = abi_header.with_version(header.text, header.version[0], header.version[1] + 1)
    newer = abi_header.Header(text, "newer", header.cc)
    yield abi_header.breaks(header, newer), None
    yield abi_header.breaks(header, abi_header.Header(abi_header.next_minor(header, 0, header.version[1] + 2), "next", header.cc)), None
    yield abi_header.breaks(header, edited(newer, r"double decode_us, prefill_us;", "double decode_us;")), "mn_estimate.prefill_us"
    yield abi_header.breaks(header, edited(newer, r"char id\[64\], isa\[64\];\n\} mn_note;", "char id[64], isa[68];\n} mn_note;")), "mn_note.isa"
    yield abi_header.breaks(header, edited(newer, r"uint64_t len;\n\} mn_str;", "uint64_t len, hash;\n} mn_str;")), "mn_str"
    yield abi_header.breaks(header, edited(newer, r"    int32_t pad_end;\n\} mn_slot_params;", "    int32_t pad_end, more[2];\n} mn_slot_params;")), None
    yield abi_header.breaks(newer, header), "comes after"


def main():
    path, folder, cc = sys.argv[1], sys.argv[2], sys.argv[3:]
    today, failed = abi_header.read(path, cc), 0
    kept = sorted(glob.glob(os.path.join(folder, "plugin-*.h")))
    for k in kept:
        old = abi_header.read(k, cc)
        bad = abi_header.breaks(old, today)
        if "plugin-%d.%d.h" % old.version != old.name:
            bad.append("%s calls itself %d.%d" % ((old.name,) + old.version))
        print("%s plugin.h %d.%d after %s" % (("FAIL " if bad else "ok   ",) + today.version + (old.name,)))
        for b in bad:
            print("      " + b)
        failed += len(bad)
    for pattern, by, word in SLIPS:
        said = abi_header.breaks(today, edited(today, pattern, by))
        if not any(word in s for s in said):
            print("FAIL  not seen: %s (said: %s)" % (word, said))
            failed += 1
    for said, word in later(today):
        if bool(said) != bool(word) or (word and not any(word in s for s in said)):
            print("FAIL  in a later version: expected %s, said: %s" % (word, said))
            failed += 1
    if not any(abi_header.read(k, cc).version == today.version for k in kept):
        print("note  no header of %d.%d is kept yet: its release copies plugin.h to headers/" % today.version)
    print("%d structs, %d constants, %d slips of the hand" % (len(today.structs), len(today.constants), len(SLIPS)))
    sys.exit(failed != 0)


main()
