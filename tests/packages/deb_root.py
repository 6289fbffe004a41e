#!/usr/bin/env python3
"""./bootstrap package deb of the last commit, in a clean root of Debian: lintian finds nothing; apt installs, upgrades and purges the packages; root and
a user without rights have a story within 10 seconds; examples/ are built with libminerva-dev; plugins of another ABI are refused; the service starts where
systemd does, and is purged. deb_root.py [ONE TWO THREE]: folders of packages as make_sets makes them; nothing is built."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "packaging"), HERE]
import deb  # noqa: E402
import release  # noqa: E402
import roots  # noqa: E402

NOBODY = "65534:65534"
CORE = ("libminerva0", "minerva")
COMPILERS = ("gcc", "g++", "libc6-dev", "pkg-config", "golang-go", "cargo", "rustc", "bindgen", "libclang-dev")
NOW = release.version_of(ROOT)
MAJOR, MINOR = (int(n) for n in NOW.split(".")[:2])
NEXT, OTHER = ("%d.%d.0" % (MAJOR, MINOR + i) for i in (1, 2))  # of this commit under another version, and of another ABI
STORY = ("minerva", "run", "-p", "Tell me a story.", "-n", "60", "--no-stdin")


def git(*args):
    return subprocess.run(["git", "-C", ROOT, *args], check=True, stdout=subprocess.PIPE).stdout


def build(source, out):
    """Packages of a tree, with the CUDA plugin where nvcc is."""
    cuda = ["--cuda"] if shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc") else []
    subprocess.run([source + "/bootstrap", "package", "deb", *cuda, out], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").decode().strip()})


def set_version(source, old, new):
    path = source + "/meson.build"
    text = deb.read(path)
    assert text.count("version: '%s'" % old) == 1
    deb.write(path, text.replace("version: '%s'" % old, "version: '%s'" % new))


def make_sets(scratch):
    """Three folders of packages: this version, the next, and one with the next ABI, which differs from the second in what the packages say."""
    source = scratch + "/source"
    os.makedirs(source)
    subprocess.run(["tar", "-x", "-C", source], input=git("archive", "HEAD"), check=True)
    build(source, scratch + "/one")
    set_version(source, NOW, NEXT)
    build(source, scratch + "/two")
    staged = source + "/build-deb/staged"
    header = staged + "/usr/include/minerva/plugin.h"
    now = "0x%08x" % (int(deb.abis(deb.read(header))[0].partition(".")[2]))
    deb.write(header, deb.read(header).replace("_VERSION " + now, "_VERSION 0x000000ff").replace("_OLDEST " + now, "_OLDEST 0x000000ff"))
    deb.debs(staged, scratch + "/three", OTHER, 1700000000)
    return [scratch + "/" + name for name in ("one", "two", "three")]


def publish(root, *folders):
    """Packages as a repository that apt in the root knows, and nothing else of ours."""
    to = root + "/srv/debs"
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for folder in folders:
        for name in os.listdir(folder):
            if name.endswith(".deb"):
                shutil.copy(os.path.join(folder, name), to)
    index = subprocess.run(["dpkg-scanpackages", "--multiversion", "."], cwd=to, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    deb.write(to + "/Packages", index)
    deb.write(root + "/etc/apt/sources.list.d/minerva.list", "deb [trusted=yes] file:/srv/debs ./\n")
    roots.good(root, "apt-get", "-q", "update")


def apt(root, *words):
    return roots.run(root, "apt-get", "-q", "-y", "--no-install-recommends", *words)


def version_of(root, name):
    return roots.run(root, "dpkg-query", "-W", "-f", "${Version}", name)[1]


def stories(root):
    for who, user in (("root", "0:0"), ("a user", NOBODY)):
        begun = time.monotonic()
        story = roots.good(root, *STORY, user=user, timeout=10)
        assert len(story.split()) > 30, story
        print("ok    %s has a story after %.1f s" % (who, time.monotonic() - begun))


def lint(folder):
    if not shutil.which("lintian"):
        print("skipped: needs lintian")
        return
    p = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".deb"))],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, p.stdout
    print("ok    lintian")


def first_version(root, one):
    publish(root, one)
    status, said = apt(root, "install", "minerva")
    assert status == 0, said[-3000:]
    stories(root)
    listed = roots.good(root, "minerva", "plugins")
    for name in ("cpu_simd", "reference", "gguf", "safetensors", "mlx"):
        assert any(name in line and "ok" in line for line in listed.splitlines()), listed
    others = sorted({n.partition("_")[0] for n in os.listdir(one) if n.endswith(".deb")} - set(CORE))
    assert {"minerva-opencl", "libminerva-dev"} <= set(others), others
    status, said = apt(root, "install", *others)
    assert status == 0, said[-3000:]
    listed = roots.good(root, "minerva", "plugins")
    for name in ("minerva-cuda", "minerva-opencl"):
        if name in others:
            assert name.partition("-")[2] + ".so" in listed, listed
    print("ok    installed: minerva, " + ", ".join(others))
    return others


def examples(root):
    """Programs of examples/ are built by the commands of their README with Debian's compilers and libminerva-dev, and tell a story each."""
    status, said = apt(root, "install", *COMPILERS)
    assert status == 0, said[-3000:]
    shutil.copytree(ROOT + "/examples", root + "/tmp/examples")
    builds = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", deb.read(ROOT + "/examples/README.md"), re.M))
    assert set(builds) == {"c", "cpp", "go", "rust"}, builds
    for language, build in sorted(builds.items()):
        story = roots.good(root, "/bin/sh", "-c", "cd /tmp/examples/%s && %s && if [ -x story ]; then ./story; fi" % (language, build))
        assert len(story.split()) > 20, (language, story)
    shutil.rmtree(root + "/tmp/examples")
    print("ok    examples in " + ", ".join(sorted(builds)))


def mixed_pair(root, sets, others):
    """With all versions at hand apt takes no plugin of another ABI than the command's."""
    publish(root, *sets)
    for command, plugin in ((OTHER, NOW), (NOW, OTHER)):
        status, said = apt(root, "install", "minerva=" + command, "libminerva0=" + command, "minerva-opencl=" + plugin)
        assert status and "minerva-abi-" in said, said[-3000:]
        assert version_of(root, "minerva") == version_of(root, "minerva-opencl") == NOW
    print("ok    a mixed pair is refused")
    publish(root, *sets[:2])
    deb.write(root + "/etc/default/minerva", "MINERVA_SERVE_FLAGS=--port 8093\n")
    status, said = apt(root, "upgrade")
    assert status == 0, said[-3000:]
    assert all(version_of(root, name) == NEXT for name in (*CORE, *others)), said
    assert "8093" in deb.read(root + "/etc/default/minerva")
    assert NEXT in roots.good(root, "minerva", "--version")
    stories(root)
    print("ok    upgraded, settings are kept")


def purged(root, before, others):
    status, said = apt(root, "purge", *CORE, *others)
    assert status == 0, said[-3000:]
    apt(root, "autoremove", "--purge")
    kept = ("tmp/.cache", "root/.cache", "srv/debs", "var/lib/apt/lists", "etc/apt", "var/cache/apt", "var/log")  # of users, of apt, and of this test
    left = sorted(p for p in everything(root) - before if "minerva" in p and not p.startswith(kept))
    assert not left, left
    print("ok    purged: nothing is left")


def everything(root):
    return {os.path.relpath(os.path.join(at, name), root) for at, folders, names in os.walk(root) for name in folders + names}


def leader(p):
    """The first process of a container."""
    for _ in range(600):
        for pid in subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(p.pid)], stdout=subprocess.PIPE, text=True).stdout.splitlines():
            if pid.split()[1] == "systemd":
                return pid.split()[0]
        time.sleep(0.1)
    raise AssertionError("systemd did not start")


def inside_of(pid, *command):
    p = subprocess.run(["nsenter", "-t", pid, "-a", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return p.returncode, p.stdout


ASK = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8093/health', timeout=20).status)"


def service(root):
    """The unit as systemd of the root sees it: checked, enabled, and started when that boots."""
    status, said = apt(root, "install", "systemd", "systemd-sysv")
    assert status == 0, said[-3000:]
    said = roots.good(root, "systemd-analyze", "verify", "--man=no", "minerva.service")
    assert "minerva" not in said, said
    roots.good(root, "systemctl", "enable", "minerva")
    print("ok    systemd-analyze verify; systemctl enable")
    if not shutil.which("systemd-nspawn"):
        print("skipped: needs systemd-nspawn (package systemd-container)")
        return
    with open(root + "/../boot.log", "wb") as log:
        p = subprocess.Popen(["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "-b", "-D", root], stdin=subprocess.DEVNULL,
                             stdout=log, stderr=log)
    try:
        pid = leader(p)
        for _ in range(300):
            status, said = inside_of(pid, "systemctl", "is-active", "minerva")
            if status == 0:
                break
            time.sleep(0.2)
        assert status == 0, (said, inside_of(pid, "systemctl", "status", "minerva", "--no-pager"), inside_of(pid, "journalctl", "-u", "minerva", "--no-pager"))
        answer = subprocess.run(["nsenter", "-t", pid, "-n", sys.executable, "-c", ASK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        assert answer.strip() == "200", answer
        status, said = inside_of(pid, "systemctl", "reload", "minerva")
        assert status == 0, said
        assert os.path.isdir(root + "/var/cache/private/minerva")
        inside_of(pid, "systemctl", "poweroff")
        p.wait(60)
    finally:
        p.kill()
        p.wait()
    print("ok    the enabled service starts with the system, as a user of its own, and answers")


def enough():
    return not os.geteuid() and all(shutil.which(tool) for tool in ("debootstrap", "dpkg-scanpackages", "unshare")) and not subprocess.run(
        ["unshare", "-m", "true"]).returncode


def main():
    if not enough():
        print("skipped: needs root, for mounts and roots in folders, debootstrap and dpkg-dev")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        root = scratch + "/root"
        if not roots.make(root):
            print("skipped: needs Debian's packages")
            sys.exit(77)
        sets = sys.argv[1:] or make_sets(scratch)
        lint(sets[0])
        before = everything(root)
        others = first_version(root, sets[0])
        examples(root)
        mixed_pair(root, sets, others)
        service(root)
        purged(root, before, others)


if __name__ == "__main__":
    main()
