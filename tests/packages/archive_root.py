#!/usr/bin/env python3
"""Two clones of the last commit make the same archive with ./bootstrap package tar, byte for byte, and it runs in a root that has nothing but it, glibc
and GCC's library: from a folder whose name nobody foresaw, as a user without rights, with an empty environment, its first story within ten seconds. So does
the image that deploy/Containerfile makes of it (image_root.py). archive_root.py [ARCHIVE]: that one, and nothing is built."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import image_root  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SYSTEM = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libgcc_s.so.1")
MOST_BYTES = 60_000_000
MOST_SECONDS = 10  # the first story after unpacking


def git(*args):
    return subprocess.run(["git", "-C", ROOT, *args], check=True, stdout=subprocess.PIPE).stdout


def make(folder, commit):
    """The archive, from a copy of a commit in a folder of its own, without the compiler's cache."""
    source = os.path.join(folder, "source")
    os.makedirs(source)
    subprocess.run(["tar", "-x", "-C", source], input=git("archive", commit), check=True)
    subprocess.run([source + "/bootstrap", "package", "tar", folder + "/out"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct", commit).decode().strip(), "CCACHE_DISABLE": "1"})
    return folder + "/out"


def same(one, two):
    for name in sorted(set(os.listdir(one)) | set(os.listdir(two))):
        with open(os.path.join(one, name), "rb") as a, open(os.path.join(two, name), "rb") as b:
            assert a.read() == b.read(), name + " differs"
    print("ok    two builds are equal")
    subprocess.run("sha256sum --quiet -c *.sha256", shell=True, cwd=one, check=True)
    return next(os.path.join(one, name) for name in os.listdir(one) if name.endswith(".tar.gz"))


def make_root(root, archive):
    """A root with glibc; where the archive was unpacked, as inside sees it."""
    for folder in ("lib64", "lib/x86_64-linux-gnu", "proc", "dev", "tmp", "a folder/of mine"):
        os.makedirs(os.path.join(root, folder))
    for name in SYSTEM:
        path = subprocess.run(["cc", "-print-file-name=" + name], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        shutil.copy(os.path.realpath(path), os.path.join(root, "lib64" if name.startswith("ld-") else "lib/x86_64-linux-gnu", name))
    subprocess.run(["tar", "-xf", archive, "-C", os.path.join(root, "a folder/of mine")], check=True)
    for at, _, _ in os.walk(root):
        os.chmod(at, 0o755)
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    return "/a folder/of mine/" + os.path.basename(archive)[:-len(".tar.gz")]


# In mounts of its own, which end with it: ld.so asks /proc where a program lies.
ENTER = 'for f in proc dev; do mount --rbind /$f "$0/$f" || exit 77; done; exec chroot --userspec=65534:65534 "$0" "$@"'


def inside(root, *command):
    """Standard output of a command in that root, of a user without rights."""
    p = subprocess.run(["unshare", "-m", "/bin/sh", "-c", ENTER, root, *command], env={"HOME": "/tmp", "PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert p.returncode == 0, (command, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout


def old_processor(exe):
    """The story on an x86_64 without AVX; plugins are probed outside of the emulator."""
    if not shutil.which("qemu-x86_64"):
        print("skipped: needs qemu-x86_64 for a processor without AVX")
        return
    p = subprocess.run(["qemu-x86_64", "-cpu", "Nehalem", exe, "run", "-p", "Tell me a story.", "-n", "30"], env={"HOME": os.path.join(exe, "none")},
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    assert p.returncode == 0 and len(p.stdout.split()) > 10, (p.returncode, p.stdout, p.stderr[-2000:])
    print("ok    a processor without AVX")


def try_archive(archive):
    size = os.path.getsize(archive)
    assert "cuda" in os.path.basename(archive) or size <= MOST_BYTES, "%d bytes, expected %d at most" % (size, MOST_BYTES)
    print("ok    %.1f MB" % (size / 1e6))
    with tempfile.TemporaryDirectory() as root:
        exe = make_root(root, archive) + "/bin/minerva"
        begin = time.monotonic()
        story = inside(root, exe, "run", "-p", "Tell me a story.", "-n", "60")
        seconds = time.monotonic() - begin
        assert len(story.split()) > 20 and seconds <= MOST_SECONDS, (seconds, story)
        print("ok    a story after %.1f s: %s" % (seconds, " ".join(story.split()[:12])))
        plugins = inside(root, exe, "plugins")
        for name in ("cpu_simd", "reference", "gguf", "safetensors", "mlx"):
            line = next((line for line in plugins.splitlines() if name in line), "")
            assert "ok" in line, plugins
        print("ok    its plugins")
        assert "--port" in inside(root, exe, "serve", "--help")
        inside(root, exe, "plugins", "check", os.path.dirname(exe) + "/../lib/minerva/plugins/gguf.so")
        print("ok    minerva-check")
        old_processor(root + exe)
    image_root.try_image(archive)


def main():
    if os.geteuid() or os.uname().machine != "x86_64" or subprocess.run(["unshare", "-m", "true"]).returncode:
        print("skipped: needs root, for mounts and a root folder of its own, on x86_64")
        sys.exit(77)
    if len(sys.argv) > 1:
        try_archive(os.path.abspath(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as scratch:
        commit = git("rev-parse", "HEAD").decode().strip()  # which may move while this builds
        try_archive(same(make(scratch + "/one", commit), make(scratch + "/another name", commit)))


if __name__ == "__main__":
    main()
