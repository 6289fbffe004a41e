#!/usr/bin/env python3
"""What packaging/deb.py makes of the installation of a build: packages that are the same twice and have each file once; a story out of them; and
which versions of them apt installs beside each other. deb_test.py BUILD"""
import hashlib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "packaging")]
import deb  # noqa: E402

EPOCH = 1700000000
PLUGINS = ("minerva-cuda", "minerva-opencl")


def text_of(*command, **how):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how).stdout


def installed(build, to):
    """The installation of a build below to, with the folders of Debian. Its own prefix is another, which nothing here asks for."""
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    subprocess.run([meson, "install", "-C", build, "--no-rebuild", "--quiet"], env={**os.environ, "DESTDIR": to}, check=True, stdout=subprocess.DEVNULL)
    prefix = next(at for at, folders, _ in os.walk(to) if "bin" in folders and "share" in folders)
    os.rename(prefix, to + "/moved")
    os.renames(to + "/moved", os.path.join(to, "root/usr"))
    lib = os.path.join(to, "root/usr/lib")
    if os.path.exists(lib + "/minerva"):  # --libdir=lib
        os.rename(lib, lib + ".flat")
        os.renames(lib + ".flat", lib + "/" + text_of("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip())
    return os.path.join(to, "root")


def small(folder, abi=0x9, oldest=0x9):
    """An installation of nothing that runs: a file for each row of the table."""
    for pattern, _, _ in deb.TABLE:
        path = os.path.join(folder, pattern.replace("lib/*", "lib/here").replace("so.*", "so.0.0.1").replace("*", "x"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if ".so" in path:
            subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", path, "-Wl,-soname,libminerva.so.0"], input="int mn_f(void) { return 1; }", text=True, check=True)
        else:
            deb.write(path, "ExecStart=/usr/local/bin/minerva serve\n")
    deb.write(os.path.join(folder, "usr/include/minerva/plugin.h"), "#define MN_ABI_VERSION 0x%08x\n#define MN_ABI_OLDEST 0x%08x\n" % (abi, oldest))
    deb.write(os.path.join(folder, "usr/share/doc/minerva/LICENSE"), deb.read(ROOT + "/LICENSE"))
    return folder


def made(folder, out, version):
    return {os.path.basename(path).partition("_")[0]: path for path in deb.debs(folder, out, version, EPOCH)}


def field(path, name):
    return text_of("dpkg-deb", "-f", path, name).strip()


def paths_in(path):
    """path -> mode and owner, of the files of a package."""
    lines = [line.split(None, 5) for line in text_of("dpkg-deb", "-c", path).splitlines()]
    return {words[5].partition(" -> ")[0][2:]: (words[0], words[1]) for words in lines if not words[0].startswith("d")}


def refused(words, call, *args):
    try:
        call(*args)
    except deb.Refused as e:
        assert all(w in str(e) for w in words), (str(e), words)
    else:
        raise AssertionError("not refused: %s" % (words,))


def test_story(build, scratch):
    """Packages of the build, unpacked into one folder, tell a story; each file is in one of them, root's, and none is missing"""
    folder = installed(build, scratch)
    before = {path for path in deb.files_below(folder) if not path.endswith("doc/minerva/LICENSE")}
    packages = made(folder, os.path.join(scratch, "out"), "0.1.0")
    assert set(packages) - set(PLUGINS) == {"libminerva0", "libminerva-dev", "minerva"}, packages
    whole = os.path.join(scratch, "whole")
    seen, added = set(), 0
    for name, path in packages.items():
        content = paths_in(path)
        assert not seen & set(content), (name, seen & set(content))
        seen |= set(content)
        added += len({"usr/share/doc/%s/%s" % (name, text) for text in ("copyright", "changelog.gz")} & set(content))
        added += len([p for p in content if p.startswith("etc/default/")])
        assert all(owner == "root/root" for _, owner in content.values()), content
        subprocess.run(["dpkg-deb", "-x", path, whole], check=True)
        check_sums(path, whole)
    assert len(seen) == len(before) + added, (len(seen), len(before), added)
    exe = whole + "/usr/bin/minerva"
    lib = os.path.dirname(next(os.path.join(whole, p) for p in seen if p.endswith("/libminerva.so.0")))
    story = text_of(exe, "run", "-n", "30", "--no-stdin", env={"HOME": scratch, "LD_LIBRARY_PATH": lib})
    assert len(story.split()) > 10, story
    check_fields(packages)


def check_sums(path, whole):
    for line in text_of("dpkg-deb", "-I", path, "md5sums").splitlines():
        digest, name = line.split(None, 1)
        with open(os.path.join(whole, name), "rb") as f:
            assert hashlib.md5(f.read()).hexdigest() == digest, name


def check_fields(packages):
    """Packages of one version hold together; the ABI is that of plugin.h."""
    with open(ROOT + "/include/minerva/plugin.h", encoding="utf-8") as f:
        abi = "minerva-abi-" + deb.abis(f.read())[0]
    assert "libminerva0 (= 0.1.0)" in field(packages["minerva"], "Depends")
    assert "libcjson1" in field(packages["libminerva0"], "Depends")
    assert abi in field(packages["minerva"], "Provides").split(", ")
    for name in set(PLUGINS) & set(packages):
        assert abi in field(packages[name], "Depends").split(", "), name
    assert text_of("dpkg-deb", "-I", packages["libminerva0"], "shlibs") == "libminerva 0 libminerva0 (>= 0.1.0)\n"
    assert " mn_generate@" in text_of("dpkg-deb", "-I", packages["libminerva0"], "symbols")


def test_same_twice(_, scratch):
    """Two installations under other umasks: equal packages"""
    sets = []
    for i, mask in enumerate((0o022, 0o077)):
        before = os.umask(mask)
        sets.append(made(small(os.path.join(scratch, "in%d" % i)), os.path.join(scratch, "out%d" % i), "0.1.0"))
        os.umask(before)
    for name in sets[0]:
        with open(sets[0][name], "rb") as one, open(sets[1][name], "rb") as two:
            assert one.read() == two.read(), name + " differs"
    unit = os.path.join(scratch, "unit")
    subprocess.run(["dpkg-deb", "-x", sets[0]["minerva"], unit], check=True)
    assert deb.read(os.path.join(unit, deb.UNIT)) == "ExecStart=/usr/bin/minerva serve\n"


def test_table(_, scratch):
    """A file that no row names, and a row that names no file, are refused; the plugins of GPUs may be absent"""
    folder = small(os.path.join(scratch, "in"))
    extra = os.path.join(folder, "usr/share/extra")
    deb.write(extra, "")
    refused(("usr/share/extra", "no row"), deb.sort_files, folder)
    os.remove(extra)
    os.remove(os.path.join(folder, "usr/lib/here/minerva/plugins/cuda.so"))
    assert "minerva-cuda" not in deb.sort_files(folder)
    os.remove(os.path.join(folder, "usr/bin/minerva"))
    refused(("usr/bin/minerva", "no file"), deb.sort_files, folder)


def test_abi(_, scratch):
    """The versions of the ABI are those from MN_ABI_OLDEST to MN_ABI_VERSION"""
    header = "#define MN_ABI_VERSION 0x%08x\n#define MN_ABI_OLDEST 0x%08x\n"
    assert deb.abis(header % (0x9, 0x9)) == ("0.9", ["0.9"])
    assert deb.abis(header % (0x10002, 0x10000)) == ("1.2", ["1.0", "1.1", "1.2"])
    refused(("MN_ABI_OLDEST",), deb.abis, header % (0x10000, 0x9))
    refused(("plugin.h",), deb.abis, "#define MN_ABI_VERSION 9\n")
    packages = made(small(scratch + "/in", 0x10001, 0x10000), scratch + "/out", "1.1.0")
    assert field(packages["minerva"], "Provides") == "minerva-abi-1.0, minerva-abi-1.1"


def apt(scratch, before, *words):
    """(status, output) of `apt-get -s install WORDS` where the packages `before` are installed, beside those of this machine."""
    status = os.path.join(scratch, "status")
    here = [stanza for stanza in deb.read("/var/lib/dpkg/status").split("\n\n") if not re.match(r"Package: (lib)?minerva", stanza)]
    there = [text_of("dpkg-deb", "-f", path).replace("\nVersion:", "\nStatus: install ok installed\nVersion:", 1) for path in before]
    deb.write(status, "\n\n".join([s.strip() for s in here + there if s.strip()]) + "\n")
    p = subprocess.run(["apt-get", "-s", "-y", "--no-install-recommends", "-o", "Dir::State::status=" + status, "-o", "Dir::State=" + scratch, "-o",
                        "Dir::Cache=" + scratch, "-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null", "-o",
                        "APT::Sandbox::User=", "install", *words], env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return p.returncode, p.stdout


def test_pairs(_, scratch):
    """apt refuses plugins of another ABI, and libraries of another version; it installs an upgrade of all, and of one ABI without the plugins"""
    sets = {version: made(small(os.path.join(scratch, "in" + version), abi, abi), os.path.join(scratch, "out" + version), version)
            for version, abi in (("0.1.0", 9), ("0.1.1", 9), ("0.2.0", 10))}
    old, patch, new = sets.values()
    core = ("minerva", "libminerva0")
    os.makedirs(scratch + "/lists/partial")

    def install(before, *paths):
        return apt(scratch, before, *paths)
    status, said = install([], *old.values())
    assert status == 0 and "Inst minerva-cuda" in said, said
    status, said = install([], old["minerva-opencl"])
    assert status and "minerva-abi-0.9" in said, said
    status, said = install([], *(new[n] for n in core), old["minerva-opencl"])
    assert status and "minerva-opencl : Depends: minerva-abi-0.9" in said, said
    status, said = install([], *(old[n] for n in core), new["minerva-cuda"])
    assert status and "minerva-abi-0.10" in said, said
    status, said = install([], new["minerva"], old["libminerva0"])
    assert status and "libminerva0 (= 0.2.0)" in said, said
    status, said = install(old.values(), "--no-remove", *(new[n] for n in core))
    assert status, said  # only without the plugins that are there
    status, said = install(old.values(), *new.values())
    assert status == 0 and "Inst minerva-cuda [0.1.0]" in said and "Remv" not in said, said
    status, said = install([old[n] for n in (*core, "minerva-opencl")], "--no-remove", *(patch[n] for n in core))
    assert status == 0 and "Inst minerva [0.1.0] (0.1.1" in said, said


def main():
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as scratch:
                test(sys.argv[1], scratch)
            print("ok    " + (test.__doc__ or name), flush=True)


if __name__ == "__main__":
    if not all(any(os.access(os.path.join(p, tool), os.X_OK) for p in os.environ["PATH"].split(":")) for tool in ("dpkg-shlibdeps", "apt-get", "cc", "readelf")):
        print("skipped: needs cc, readelf, apt-get and dpkg-dev")
        sys.exit(77)
    main()
