#!/usr/bin/env python3
"""filtered.py UNIT COMMAND...: runs the command with the system calls and address families that a unit of systemd permits, by libseccomp.

What the unit does not permit fails with SystemCallErrorNumber, in all processes of the command. Exit status 77 without libseccomp."""
import ctypes
import errno
import os
import re
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ALLOW, ERRNO, EQUAL = 0x7fff0000, 0x00050000, 4


class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def library():
    try:
        lib = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = [ctypes.c_uint32]
    lib.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
    lib.seccomp_load.argtypes = [ctypes.c_void_p]
    return lib


def stored():
    """The groups of syscalls.txt."""
    groups, last = {}, None
    with open(os.path.join(HERE, "syscalls.txt")) as f:
        for word in (w for line in f if not line.startswith("#") for w in line.split()):
            last = groups.setdefault(word, set()) if word.startswith("@") else (last.add(word) or last)
    return groups


def expand(name, groups):
    """The calls of a group: of the systemd that is installed, or of syscalls.txt."""
    if not name.startswith("@"):
        return {name}
    try:
        text = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True).stdout
    except OSError:
        return groups[name]
    words = [line.strip() for line in text.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return set().union(*(expand(w, groups) for w in words)) if words else groups[name]


def settings(unit, key):
    with open(unit) as f:
        return re.findall(r"^%s=(.*)$" % key, f.read(), re.M)


def permitted(unit):
    groups, calls = stored(), set()
    for value in settings(unit, "SystemCallFilter"):
        named = set().union(*(expand(name, groups) for name in value.lstrip("~").split()))
        calls = calls - named if value.startswith("~") else calls | named
    return calls


def confine(unit):
    """The filter, from now on. False: there is no libseccomp."""
    lib = library()
    if not lib:
        return False
    number = getattr(errno, settings(unit, "SystemCallErrorNumber")[-1])
    families = [getattr(socket, name) for name in settings(unit, "RestrictAddressFamilies")[-1].split()]
    context = lib.seccomp_init(ERRNO | number)
    for name in permitted(unit):
        call = lib.seccomp_syscall_resolve_name(name.encode())
        if call < 0:
            continue  # of another architecture
        for rule in [Compare(0, EQUAL, family, 0) for family in families] if name == "socket" else [None]:
            failed = lib.seccomp_rule_add_array(context, ALLOW, call, 1 if rule else 0, ctypes.byref(rule) if rule else None)
            assert not failed, (name, failed)
    failed = lib.seccomp_load(context)
    assert not failed, failed
    return True


if __name__ == "__main__":
    if not confine(sys.argv[1]):
        sys.exit(77)
    os.execv(sys.argv[2], sys.argv[2:])
