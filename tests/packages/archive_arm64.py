#!/usr/bin/env python3
"""The archive for arm64, cross-built by ./bootstrap package --arm64 tar from the last commit, tells a story under qemu with glibc and GCC's library beside it
and nothing else. archive_arm64.py [ARCHIVE]: that one, and nothing is built."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "packaging")]
import archive  # noqa: E402

GLIBC = "/usr/aarch64-linux-gnu"  # of the package libc6-arm64-cross
MOST_BYTES = 60_000_000


def make(scratch):
    """The archive, from a copy of the commit; None: Debian's packages of arm64 are not to be had."""
    source = scratch + "/source"
    os.makedirs(source)
    commit = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", source], input=commit, check=True)
    epoch = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    p = subprocess.run([source + "/bootstrap", "package", "--arm64", "tar", scratch + "/out"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    if "packages of arm64 could not be had" in p.stderr:
        return None
    assert p.returncode == 0, p.stderr[-3000:]
    return p.stdout.strip()


def emulated(path):
    """A program that another program starts runs in the emulator, too: the first does not know of it."""
    os.rename(path, path + ".arm64")
    archive.write(path, '#!/bin/sh\nexec qemu-aarch64 -L %s "$0.arm64" "$@"\n' % GLIBC)
    os.chmod(path, 0o755)


def run(exe, *words):
    p = subprocess.run(["qemu-aarch64", "-L", GLIBC, exe, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900,
                       env={"HOME": os.path.dirname(exe) + "/none", "PATH": os.environ["PATH"], "MINERVA_PROBE_TIMEOUT": "300"})
    assert p.returncode == 0, (words, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout


def try_archive(path, scratch):
    assert os.path.getsize(path) <= MOST_BYTES
    print("ok    %.1f MB" % (os.path.getsize(path) / 1e6))
    to = scratch + "/a folder of mine"
    os.makedirs(to)
    subprocess.run(["tar", "-xf", path, "-C", to], check=True)
    folder = os.path.join(to, os.path.basename(path)[:-len(".tar.gz")])
    elves = [p for p in archive.files_below(folder) if archive.is_elf(os.path.join(folder, p))]
    for p in elves:
        assert "AArch64" in archive.output("readelf", "-h", os.path.join(folder, p)), p
    archive.check_symbols(folder)
    print("ok    %d files for AArch64, of glibc %d.%d at most" % (len(elves), *archive.GLIBC))
    for word in ("man/man1/minerva.1", "doc/minerva/minerva.spdx.json", "doc/minerva/licences/libcjson1.copyright"):
        assert os.path.exists(os.path.join(folder, "share", word)), word
    emulated(folder + "/libexec/minerva/minerva-probe")
    exe = folder + "/bin/minerva"
    plugins = run(exe, "plugins")
    for name in ("cpu_simd", "reference", "gguf", "safetensors", "mlx"):
        assert any(name in line and "ok" in line for line in plugins.splitlines()), plugins
    story = run(exe, "run", "-p", "Tell me a story.", "-n", "30", "--no-stdin")
    assert len(story.split()) > 10, story
    print("ok    a story: " + " ".join(story.split()[:12]))


def main():
    if not all(shutil.which(tool) for tool in ("qemu-aarch64", "aarch64-linux-gnu-gcc", "readelf")) or not os.path.exists(GLIBC + "/lib/libc.so.6"):
        print("skipped: needs qemu-aarch64 and the cross compiler")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else make(scratch)
        if not path:
            print("skipped: needs Debian's packages of arm64")
            sys.exit(77)
        try_archive(path, scratch)


if __name__ == "__main__":
    main()
