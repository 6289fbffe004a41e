#!/usr/bin/env python3
"""The archive and the wheel for arm64, cross-built by ./bootstrap package --arm64 from the last commit, tell a story under qemu: the archive with glibc
and GCC's library beside it and nothing else, the wheel in Debian's Python of arm64, where pip installed it. archive_arm64.py [ARCHIVE WHEEL]: those, and
nothing is built."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "packaging"), HERE]
import archive  # noqa: E402
import wheel_test  # noqa: E402

GLIBC = "/usr/aarch64-linux-gnu"  # of the package libc6-arm64-cross
MOST_BYTES = 60_000_000
# Debian's Python and what it needs: nothing is installed, so apt adds nothing of itself.
PYTHON = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libexpat1", "zlib1g", "libffi8", "libssl3", "libbz2-1.0", "liblzma5", "libuuid1")
PLUGINS = "import minerva; print(*('%(id)s=%(status)s' % p for p in minerva.Runtime().plugins()))"


def make(scratch):
    """The archive and the wheel, from a copy of the commit; None: Debian's packages of arm64 are not to be had."""
    source = scratch + "/source"
    os.makedirs(source)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    files = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", source], input=files, check=True)
    epoch = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct", commit], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    made = []
    for kind in ("tar", "wheel"):
        p = subprocess.run([source + "/bootstrap", "package", "--arm64", kind, scratch + "/out"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
        if "packages of arm64 could not be had" in p.stderr:
            return None
        assert p.returncode == 0, p.stderr[-3000:]
        made.append(p.stdout.strip())
    return made


def emulated(path):
    """A program that another program starts runs in the emulator, too: the first does not know of it."""
    os.rename(path, path + ".arm64")
    archive.write(path, '#!/bin/sh\nexec qemu-aarch64 -L %s "$0.arm64" "$@"\n' % GLIBC)
    os.chmod(path, 0o755)


def check_elves(folder):
    """Files below folder that are programs or libraries are for AArch64, and need no newer glibc than Debian 12's."""
    elves = [p for p in archive.files_below(folder) if archive.is_elf(os.path.join(folder, p))]
    for p in elves:
        assert "AArch64" in archive.output("readelf", "-h", os.path.join(folder, p)), p
    archive.check_symbols(folder)
    print("ok    %d files for AArch64, of glibc %d.%d at most" % (len(elves), *archive.GLIBC))


def run(exe, *words, root=GLIBC, **env):
    """Standard output of a program of arm64. root: where the emulator looks first for whatever the program opens."""
    p = subprocess.run(["qemu-aarch64", "-L", root, exe, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900,
                       env={"HOME": os.path.dirname(exe) + "/none", "PATH": os.environ["PATH"], "MINERVA_PROBE_TIMEOUT": "300", **env})
    assert p.returncode == 0, (words, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout


def try_archive(path, scratch):
    assert os.path.getsize(path) <= MOST_BYTES
    print("ok    %.1f MB" % (os.path.getsize(path) / 1e6))
    to = scratch + "/a folder of mine"
    os.makedirs(to)
    subprocess.run(["tar", "-xf", path, "-C", to], check=True)
    folder = os.path.join(to, os.path.basename(path)[:-len(".tar.gz")])
    check_elves(folder)
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


def try_wheel(path, scratch):
    assert path.endswith("-manylinux_2_34_aarch64.whl") and os.path.getsize(path) <= MOST_BYTES
    wheel_test.check_content(path)
    print("ok    %.1f MB: " % (os.path.getsize(path) / 1e6) + wheel_test.check_content.__doc__)
    if not wheel_test.pip():
        print("skipped: the wheel needs a wheel of pip (python3-pip-whl)")
        return
    root, to = scratch + "/python", scratch + "/installed"
    subprocess.run([ROOT + "/tools/cross/packages.sh", root, *PYTHON], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    python = root + "/usr/bin/python3.11"
    run(python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", "--no-warn-script-location", "--target", to, path, root=root,
        PYTHONPATH=wheel_test.pip())
    runtime = to + "/minerva/_runtime"
    check_elves(runtime)
    emulated(runtime + "/libexec/minerva/minerva-probe")
    story = run(python, "-c", wheel_test.STORY.replace("60", "30"), root=root, PYTHONPATH=to)
    assert len(story.split()) > 10, story
    print("ok    Python's story: " + " ".join(story.split()[:12]))
    plugins = run(python, "-c", PLUGINS, root=root, PYTHONPATH=to).split()
    for name in ("cpu_simd", "reference", "gguf", "safetensors", "mlx"):
        assert name + "=ok" in plugins, plugins
    print("ok    its plugins")


def main():
    if not all(shutil.which(tool) for tool in ("qemu-aarch64", "aarch64-linux-gnu-gcc", "readelf")) or not os.path.exists(GLIBC + "/lib/libc.so.6"):
        print("skipped: needs qemu-aarch64 and the cross compiler")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        made = [os.path.abspath(p) for p in sys.argv[1:]] or make(scratch)
        if not made:
            print("skipped: needs Debian's packages of arm64")
            sys.exit(77)
        try_archive(made[0], scratch)
        try_wheel(made[1], scratch)


if __name__ == "__main__":
    main()
