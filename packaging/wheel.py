#!/usr/bin/env python3
"""Makes of an installation the wheel of the Python package: `./bootstrap package wheel` calls it.

  wheel.py FOLDER OUT VERSION EPOCH ARCH [COMPILER]

FOLDER holds the installation (bin, lib, libexec, share), built with -Dbundle=true, and is changed as by archive.py: libraries that it needs are copied into it.
OUT/minerva_runtime-VERSION-py3-none-manylinux_2_34_ARCH.whl has the package of python/minerva, the structs of the headers (python/abi.py), and of the
installation what runs, below minerva/_runtime: command, library, plugins, libraries of others, demo model. Licences and the SPDX document are in its dist-info.
A wheel has no links: libminerva is there under its soname alone. The same input makes the same bytes.
"""
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

sys.dont_write_bytecode = True
import archive

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(os.path.dirname(HERE), "python")
INCLUDE = os.path.join(os.path.dirname(HERE), "include")
NAME = "minerva_runtime"
WITHIN = "minerva/_runtime"
LEFT_OUT = ("include", "lib/pkgconfig", "share/bash-completion", "share/fish", "share/zsh", "share/man", "share/doc", "share/minerva/template")
METADATA = """Metadata-Version: 2.1
Name: minerva-runtime
Version: %s
Summary: Runs transformer language models on CPUs and accelerators
License: MIT
License-File: LICENSE
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Description-Content-Type: text/markdown

"""
ENTRIES = "[console_scripts]\nminerva = minerva.__main__:main\n"


def write_package(to):
    """python/minerva and its _abi.py."""
    os.makedirs(to)
    for name in sorted(os.listdir(os.path.join(SOURCE, "minerva"))):
        if name.endswith(".py") or name == "py.typed":
            shutil.copyfile(os.path.join(SOURCE, "minerva", name), os.path.join(to, name))
    subprocess.run([sys.executable, os.path.join(SOURCE, "abi.py"), INCLUDE, os.path.join(to, "_abi.py")], check=True, stderr=subprocess.PIPE, text=True)


def is_left_out(path):
    return any(path == name or path.startswith(name + "/") for name in LEFT_OUT)


def write_runtime(folder, to):
    """Files of the installation that a program needs, without links: a library has its soname."""
    for path in archive.files_below(folder):
        full = os.path.join(folder, path)
        if is_left_out(path) or (os.path.islink(full) and not path.endswith(".so.0")) or path.startswith("lib/libminerva.so.0."):
            continue
        target = os.path.join(to, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.realpath(full), target)


def write_info(folder, to, version, epoch, arch, packages, root):
    """The dist-info but RECORD. root: what is in the wheel so far, for the SPDX document."""
    os.makedirs(os.path.join(to, "licenses"))
    os.makedirs(os.path.join(to, "sboms"))
    shutil.copyfile(os.path.join(os.path.dirname(HERE), "LICENSE"), os.path.join(to, "licenses", "LICENSE"))
    licences = os.path.join(folder, archive.DOCUMENTS, "licences")
    for name in sorted(os.listdir(licences)):
        shutil.copyfile(os.path.join(licences, name), os.path.join(to, "licenses", name))
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        archive.write(os.path.join(to, "METADATA"), METADATA % version + f.read())
    archive.write(os.path.join(to, "WHEEL"), "Wheel-Version: 1.0\nGenerator: minerva-package (%s)\nRoot-Is-Purelib: false\nTag: %s\n" % (version, tag(arch, archive.glibc(folder))))
    archive.write(os.path.join(to, "entry_points.txt"), ENTRIES)
    spdx = archive.spdx_of(root, "%s-%s" % (NAME, version), version, epoch, packages, WITHIN + "/lib/")
    archive.write(os.path.join(to, "sboms", "minerva.spdx.json"), json.dumps(spdx, indent=1, sort_keys=True) + "\n")


def tag(arch, glibc):
    return "py3-none-manylinux_%d_%d_%s" % (*glibc, arch)


def write_zip(root, path, epoch):
    """root as path, with a RECORD: order, times and modes follow from what is inside."""
    info = next(name for name in os.listdir(root) if name.endswith(".dist-info"))
    date = max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0))
    lines = []
    with archive.replacing(path) as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16, 3
            z.writestr(entry, data)
        for name in sorted(archive.files_below(root), key=lambda n: (n.startswith(info), n)):  # as PEP 427 advises: the dist-info last
            full = os.path.join(root, name)
            with open(full, "rb") as f:
                data = f.read()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
            add(name, data, 0o755 if os.stat(full).st_mode & 0o100 else 0o644)
        add(info + "/RECORD", ("".join(lines) + info + "/RECORD,,\n").encode(), 0o644)


def wheel(folder, out, version, epoch, arch, compiler="cc"):
    """Path of the wheel."""
    packages = archive.packages_of(archive.bundle(folder, compiler))
    archive.check_symbols(folder)
    archive.write_licences(folder, packages)
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "%s-%s-%s.whl" % (NAME, version, tag(arch, archive.glibc(folder))))
    with tempfile.TemporaryDirectory() as root:
        write_package(os.path.join(root, "minerva"))
        write_runtime(folder, os.path.join(root, WITHIN))
        write_info(folder, os.path.join(root, "%s-%s.dist-info" % (NAME, version)), version, epoch, arch, packages, root)
        write_zip(root, path, epoch)
    with archive.replacing(path + ".sha256") as f:
        f.write(("%s  %s\n" % (archive.digest(path, "sha256"), os.path.basename(path))).encode())
    return path


def main():
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    folder, out, version, epoch, arch = sys.argv[1:6]
    try:
        print(wheel(folder, out, version, archive.seconds(epoch), arch, *sys.argv[6:]))
    except (archive.Refused, OSError) as e:
        sys.exit("minerva: no wheel: %s" % e)
    except subprocess.CalledProcessError as e:
        sys.exit("minerva: no wheel: %s failed: %s" % (" ".join(e.cmd), (e.stderr or "").strip()))


if __name__ == "__main__":
    main()
