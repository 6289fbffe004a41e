#!/usr/bin/env python3
"""What packaging/archive.py makes of the installation of a build: it is the same twice, has what it needs and says where each part is from, and tells a
story from a folder of another name; what would not run elsewhere is refused. archive_test.py BUILD"""
import hashlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
SPEC = importlib.util.spec_from_file_location("archive", os.path.join(ROOT, "packaging", "archive.py"))
archive = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(archive)
NAME, EPOCH = "minerva-test", 1700000000


def install(build, to):
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    subprocess.run([meson, "install", "-C", build, "--no-rebuild", "--quiet"], env={**os.environ, "DESTDIR": to}, check=True, stdout=subprocess.DEVNULL)
    for at, folders, _ in os.walk(to):
        if "bin" in folders and "share" in folders:
            multiarch = [name for name in os.listdir(at + "/lib") if os.path.exists("%s/lib/%s/libminerva.so.0" % (at, name))]
            for name in multiarch:  # a build with Debian's libdir; nothing is run here
                os.rename("%s/lib/%s" % (at, name), at + "/lib of Debian")
                os.rmdir(at + "/lib")
                os.rename(at + "/lib of Debian", at + "/lib")
            return at
    raise AssertionError("no installation below " + to)


def refused(words, call, *args):
    try:
        call(*args)
    except archive.Refused as e:
        assert all(w in str(e) for w in words), (str(e), words)
    else:
        raise AssertionError("not refused: %s" % (words,))


def compiled(folder, name, source, *flags):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", path, *flags], input=source, text=True, check=True)
    return path


def test_same_twice(build, scratch):
    """Two installations with other times and modes of folders: equal archives, SBOMs and sums; a story out of one."""
    made = []
    for i, mask in enumerate((0o022, 0o077)):
        before = os.umask(mask)
        folder = install(build, os.path.join(scratch, "one" * (i + 1)))
        made.append(archive.archive(folder, os.path.join(scratch, "out%d" % i), NAME, "0.1.0", EPOCH))
        os.umask(before)
    for end in (".tar.gz", ".tar.gz.sha256", ".spdx.json"):
        one, two = (open(os.path.join(scratch, "out%d" % i, NAME + end), "rb").read() for i in (0, 1))
        assert one == two, end + " differs"
    check_content(made[0])
    check_story(made[0], os.path.join(scratch, "a folder of mine"))


def check_story(path, folder):
    """Unpacked anywhere, and found by nobody's settings. The build may have Debian's libdir, so that its command looks for its parts elsewhere."""
    os.makedirs(folder)
    subprocess.run(["tar", "-xf", path, "-C", folder], check=True)
    top = os.path.join(folder, NAME)
    env = {"HOME": folder, "OCL_ICD_VENDORS": folder, "MINERVA_PROBE_TIMEOUT": "0",  # no drivers of the machine
           "LD_LIBRARY_PATH": top + "/lib", "MINERVA_PLUGIN_PATH": top + "/lib/minerva/plugins"}
    command = [top + "/bin/minerva", "run", "-m", top + "/share/minerva/models/storyteller", "-n", "30", "--no-stdin"]
    story = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert story.returncode == 0 and len(story.stdout.split()) > 10, story


def check_content(path):
    """Everything is below one folder, nobody's, of one time; the sum and the SBOM say what is inside."""
    with open(path, "rb") as f:
        assert open(path + ".sha256", encoding="utf-8").read() == "%s  %s.tar.gz\n" % (hashlib.sha256(f.read()).hexdigest(), NAME)
    with open(path.replace(".tar.gz", ".spdx.json"), encoding="utf-8") as f:
        sbom = json.load(f)
    listed = {f["fileName"]: {c["algorithm"]: c["checksumValue"] for c in f["checksums"]} for f in sbom["files"]}
    with tarfile.open(path) as tar:
        members = {m.name: m for m in tar.getmembers()}
        for m in members.values():
            assert (m.uid, m.gid, m.uname, m.gname, m.mtime) == (0, 0, "", "", EPOCH), m.name
            assert m.mode in ((0o777,) if m.issym() else (0o644, 0o755)), (m.name, oct(m.mode))
            assert m.mode == 0o755 or not m.isdir(), (m.name, oct(m.mode))
            assert m.name == NAME or m.name.startswith(NAME + "/"), m.name
            if m.isfile() and not m.name.endswith(".spdx.json"):
                assert listed["." + m.name[len(NAME):]]["SHA256"] == hashlib.sha256(tar.extractfile(m).read()).hexdigest(), m.name
    assert members[NAME + "/bin/minerva"].mode == 0o755
    packages = {p["name"]: p for p in sbom["packages"]}
    for soname in ("libcjson.so.1", "libinih.so.1", "libutf8proc.so.2"):
        assert NAME + "/lib/" + soname in members, soname
    assert not any(os.path.basename(name).startswith(("libc.so", "libm.so", "ld-linux", "libgcc_s")) for name in members)
    assert packages["libcjson1"]["versionInfo"] and "snapshot.debian.org" in packages["libcjson1"]["downloadLocation"]
    for p in packages:
        assert p in ("minerva", "cudart_static") or "%s/%s/licences/%s.copyright" % (NAME, archive.DOCUMENTS, p) in members, p
    assert ("cudart_static" in packages) == (NAME + "/" + archive.CUDA in members)
    ids = {x["SPDXID"] for part in ("packages", "files") for x in sbom[part]} | {"SPDXRef-DOCUMENT"}
    assert len(ids) == len(sbom["packages"]) + len(sbom["files"]) + 1
    owners = {r["spdxElementId"] for r in sbom["relationships"] if r["relationshipType"] == "CONTAINS"}
    for p in sbom["packages"]:  # as SPDX 2.3 wants, 7.8 and 7.9
        assert p["filesAnalyzed"] == ("packageVerificationCode" in p) == (p["SPDXID"] in owners), p
    assert all(r["spdxElementId"] in ids and r["relatedSpdxElement"] in ids for r in sbom["relationships"])


def test_newer_glibc(_, scratch):
    """A file that needs a symbol of glibc 2.99; one of 2.34 is good."""
    lib, script = os.path.join(scratch, "lib"), os.path.join(scratch, "script")
    for version, good in (("2.99", False), ("2.34", True), ("2.4", True)):
        archive.write(script, "GLIBC_%s { global: f; };\n" % version)
        compiled(scratch, "lib/libfake.so.1", "void f(void) {}", "-Wl,--version-script=" + script, "-Wl,-soname,libfake.so.1")
        compiled(scratch, "lib/plugin.so", "void f(void); void g(void) { f(); }", os.path.join(lib, "libfake.so.1"))
        if good:
            archive.check_symbols(scratch)
        else:
            refused(("lib/plugin.so", "glibc 2.99", "2.34 at most"), archive.check_symbols, scratch)


def test_missing_library(_, scratch):
    """A library that nobody has: named with the file that needs it, by the copying as by the check."""
    gone = compiled(scratch, "libnowhere.so.7", "void f(void) {}", "-Wl,-soname,libnowhere.so.7")
    compiled(scratch, "lib/plugin.so", "void f(void); void g(void) { f(); }", gone)
    os.remove(gone)
    refused(("lib/plugin.so", "libnowhere.so.7"), archive.bundle, scratch)
    refused(("lib/plugin.so", "libnowhere.so.7", "not in lib"), archive.check_symbols, scratch)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def nothing_installed(folder):
    """An installation without files."""
    os.makedirs(os.path.join(folder, archive.DOCUMENTS))
    os.makedirs(os.path.join(folder, "lib"))
    return folder


def test_link(_, scratch):
    """A link in the place of a file of the archive is replaced: what it leads to stays as it is."""
    folder, out, victim = (os.path.join(scratch, name) for name in ("folder", "out", "victim"))
    os.makedirs(out)
    archive.write(victim, "mine")
    for end in (".tar.gz", ".tar.gz.sha256", ".spdx.json"):
        os.symlink(victim, os.path.join(out, NAME + end))
    path = archive.archive(nothing_installed(folder), out, NAME, "0.1.0", EPOCH)
    assert read(victim) == "mine"
    assert sorted(os.listdir(out)) == [NAME + end for end in (".spdx.json", ".tar.gz", ".tar.gz.sha256")], os.listdir(out)
    assert not os.path.islink(path) and os.stat(path).st_mode & 0o777 == 0o644 and tarfile.is_tarfile(path)


def test_full_disk(_, scratch):
    """Writing that fails midway leaves the archive that was there, and nothing beside it."""
    folder, out = nothing_installed(os.path.join(scratch, "folder")), os.path.join(scratch, "out")
    os.makedirs(out)
    path = os.path.join(out, NAME + ".tar.gz")
    archive.write(path, "the one before")
    with open(os.path.join(folder, "lib", "noise"), "wb") as f:
        f.write(os.urandom(1 << 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
    try:
        refused((path, "cannot be written"), archive.archive, folder, out, NAME, "0.1.0", EPOCH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(out) == [NAME + ".tar.gz"] and read(path) == "the one before"


def package(words, **env):
    """What bootstrap says of a package that it refuses."""
    p = subprocess.run([ROOT + "/bootstrap", "package", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       env={**os.environ, **env})
    assert p.returncode == 1 and not p.stdout, (words, p)
    return p.stderr


def test_command(_, scratch):
    """Kinds of packages that there are not, words too many, a time that is none, a place for no file: refused before anything is built."""
    for words in ((), ("rpm",), ("tar", scratch, "x"), ("--cuda",)):
        assert "expected tar [FOLDER], deb [FOLDER], wheel [FOLDER] or sums FOLDER" in package(words), words
    for epoch in ("tomorrow", "-1", "1.5", "1e9", "253402300800", "9" * 40, "0x10", "1 2", "a[$(touch %s/ran)]" % scratch):
        assert 'SOURCE_DATE_EPOCH: found "%s"' % epoch in package(("tar", scratch), SOURCE_DATE_EPOCH=epoch), epoch
        refused((epoch, "expected seconds"), archive.seconds, epoch)
    assert os.listdir(scratch) == []
    archive.write(scratch + "/file", "")
    for folder in ("/file", "/file/below"):
        assert "no file can be written there" in package(("tar", scratch + folder)), folder


def main():
    archive.OPENED = ()  # OpenBLAS is 37 MB to pack, which tells nothing more
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as scratch:
                test(sys.argv[1], scratch)
            print("ok    " + (test.__doc__ or name))


if __name__ == "__main__":
    if not all(any(os.access(os.path.join(p, tool), os.X_OK) for p in os.environ["PATH"].split(":")) for tool in ("readelf", "dpkg-query", "cc")):
        print("skipped: needs cc, readelf and dpkg-query")
        sys.exit(77)
    main()
